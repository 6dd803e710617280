// System calls that wait, that tell the time, and that tell or set something about the process, with everything in far memory.

#include "check.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <termios.h>
#include <time.h>

static int ends[2];
static volatile int *touched;
static int *counted;

// Touches far memory that is not here.
static void on_signal(int number) {
    (void)number;
    (*touched)++;
}

static void handle(int number, int flags) {
    struct sigaction *action = NEW(struct sigaction), *before = NEW(struct sigaction);
    action->sa_handler = on_signal;
    action->sa_flags = flags;
    sigfillset(&action->sa_mask);
    check("sigaction", sigaction(number, COLD(action), COLD(before)) == 0 && before->sa_handler == SIG_DFL);
    check("sigaction again", sigaction(number, NULL, COLD(before)) == 0 && before->sa_handler == on_signal);
}

static void *call_soon(void *thread) {
    usleep(100000);
    pthread_kill(*(pthread_t *)thread, SIGUSR1);
    return NULL;
}

// Another thread that sends this one a signal in a moment.
static pthread_t be_called(void) {
    static pthread_t self;
    pthread_t caller;
    self = pthread_self();
    cold_bytes((void *)touched, sizeof *touched);
    pthread_create(&caller, NULL, call_soon, &self);
    return caller;
}

static void polls(void) {
    struct pollfd *fds = paged(300 * sizeof *fds);
    for (int index = 0; index < 300; index++) fds[index] = (struct pollfd){.fd = ends[index % 2], .events = POLLIN | POLLOUT};
    check("poll", poll(cold_bytes(fds, 2400), 300, 1000) == 150 && fds[0].revents == 0 && fds[299].revents == POLLOUT);
    struct timespec *time = NEW(struct timespec);
    *time = (struct timespec){.tv_nsec = 1000000};
    sigset_t *all = NEW(sigset_t);
    sigfillset(all);
    check("ppoll", ppoll(cold_bytes(fds, 8), 1, COLD(time), COLD(all)) == 0);
    fd_set *reads = NEW(fd_set), *writes = NEW(fd_set);
    struct timeval *limit = NEW(struct timeval);
    limit->tv_usec = 1000;
    FD_SET(ends[0], reads);
    FD_SET(ends[1], writes);
    check("select", select(ends[1] + 1, COLD(reads), COLD(writes), NULL, COLD(limit)) == 1 && FD_ISSET(ends[1], writes) && !FD_ISSET(ends[0], reads));
    FD_SET(ends[0], reads);
    check("pselect", pselect(ends[0] + 1, COLD(reads), NULL, NULL, COLD(time), COLD(all)) == 0 && !FD_ISSET(ends[0], reads));
    int watcher = epoll_create1(0);
    struct epoll_event *event = NEW(struct epoll_event), *events = paged(3000 * sizeof *events);
    *event = (struct epoll_event){.events = EPOLLOUT, .data.u64 = 0x123456789abcdef0};
    check("epoll_ctl", epoll_ctl(watcher, EPOLL_CTL_ADD, ends[1], COLD(event)) == 0);
    check("epoll_wait", epoll_wait(watcher, cold_bytes(events, 8192), 3000, 1000) == 1 && events->data.u64 == 0x123456789abcdef0);
    check("epoll_pwait", epoll_pwait(watcher, COLD(events), 10, 1000, COLD(all)) == 1 && events->events == EPOLLOUT);
    struct epoll_event *mod = NEW(struct epoll_event);
    *mod = (struct epoll_event){.events = EPOLLIN, .data.u64 = 5};
    check("epoll_ctl changes", epoll_ctl(watcher, EPOLL_CTL_MOD, ends[1], COLD(mod)) == 0 && epoll_wait(watcher, events, 1, 0) == 0);
    close(watcher);
}

// Another thread changes what is polled for meanwhile, as event loops do, and wakes the one that polls.
static struct pollfd *polled;
static int wakes[2];

static void *change_polled(void *given) {
    usleep(100000);
    polled[1] = (struct pollfd){.fd = ends[1], .events = POLLOUT, .revents = 0};
    return write(wakes[1], "x", 1) == 1 ? given : NULL;
}

static void polls_beside_changes(void) {
    polled = paged(2 * sizeof *polled);
    if (pipe(wakes) != 0) exit(1);
    polled[0] = (struct pollfd){.fd = wakes[0], .events = POLLIN}, polled[1] = (struct pollfd){.fd = -1};
    cold_bytes(polled, 16);
    pthread_t changer;
    pthread_create(&changer, NULL, change_polled, NULL);
    int has_come = poll(polled, 2, 5000);
    pthread_join(changer, NULL);
    check("poll changes nothing but what has come", has_come == 1 && polled[0].revents == POLLIN && polled[1].fd == ends[1] && polled[1].events == POLLOUT);
    close(wakes[0]), close(wakes[1]);
}

// Calls that wait with a mask of their own: a handler runs with that mask, and touches far memory.
static void masks(void) {
    sigset_t *mask = NEW(sigset_t), *one = NEW(sigset_t), *before = NEW(sigset_t), local;
    sigemptyset(one);
    sigaddset(one, SIGUSR1);
    check("sigprocmask", sigprocmask(SIG_BLOCK, COLD(one), COLD(before)) == 0 && !sigismember(before, SIGUSR1));
    check("sigprocmask is told", sigprocmask(SIG_SETMASK, NULL, COLD(before)) == 0 && sigismember(before, SIGUSR1));
    check("pthread_sigmask is told", pthread_sigmask(SIG_BLOCK, COLD(one), COLD(before)) == 0 && sigismember(before, SIGUSR1));
    sigfillset(mask);
    sigdelset(mask, SIGUSR1);
    int watcher = epoll_create1(0);
    struct epoll_event event;
    struct timespec *time = NEW(struct timespec);
    *time = (struct timespec){.tv_sec = 5};
    // Another thread's signal ends each call, behind its handler.
#define INTERRUPTED(name, call, calls)                                              \
    do {                                                                            \
        pthread_t caller = be_called();                                             \
        int is_right = (call) == -1 && errno == EINTR && *touched == (calls);       \
        pthread_join(caller, NULL);                                                 \
        check(name, is_right);                                                      \
    } while (0)
    INTERRUPTED("a handler within sigsuspend", sigsuspend(COLD(mask)), 1);
    INTERRUPTED("a handler within ppoll", ppoll(NULL, 0, COLD(time), COLD(mask)), 2);
    INTERRUPTED("a handler within pselect", pselect(0, NULL, NULL, NULL, time, COLD(mask)), 3);
    INTERRUPTED("a handler within epoll_pwait", epoll_pwait(watcher, &event, 1, 5000, COLD(mask)), 4);
#undef INTERRUPTED
    siginfo_t *info = NEW(siginfo_t);
    pthread_t caller = be_called();
    check("sigtimedwait", sigtimedwait(COLD(one), COLD(info), COLD(time)) == SIGUSR1 && info->si_signo == SIGUSR1);
    pthread_join(caller, NULL);
    raise(SIGUSR1);
    check("sigpending", sigpending(COLD(before)) == 0 && sigismember(before, SIGUSR1));
    int *number = NEW(int);
    check("sigwait", sigwait(COLD(one), COLD(number)) == 0 && *number == SIGUSR1);
    raise(SIGUSR1);
    int signals = signalfd(-1, COLD(one), 0);
    struct signalfd_siginfo *told = NEW(struct signalfd_siginfo);
    check("signalfd", signals >= 0 && read(signals, COLD(told), sizeof *told) == sizeof *told && told->ssi_signo == SIGUSR1);
    // The mask is part of where one jumps back to.
    sigjmp_buf *place = NEW(sigjmp_buf);
    sigemptyset(&local);
    volatile int came = 0;
    COLD(place);
    if (sigsetjmp(*place, 1) == 0) {
        sigprocmask(SIG_SETMASK, &local, NULL);
        COLD(place);
        siglongjmp(*place, 1);
    }
    came = sigprocmask(SIG_BLOCK, NULL, &local) == 0 && sigismember(&local, SIGUSR1);
    check("sigsetjmp keeps the mask in far memory", came);
    // As a library does that makes the system call itself.
    uint64_t *bits = NEW(uint64_t), *bits_before = NEW(uint64_t);
    sigprocmask(SIG_UNBLOCK, one, NULL);
    *bits = (uint64_t)1 << (SIGUSR1 - 1);
    int is_held = syscall(SYS_rt_sigprocmask, SIG_BLOCK, COLD(bits), COLD(bits_before), 8) == 0 && !(*bits_before & *bits) &&
                  sigprocmask(SIG_BLOCK, NULL, &local) == 0 && sigismember(&local, SIGUSR1);
    int is_let = syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, COLD(bits), COLD(bits_before), 8) == 0 && (*bits_before & *bits) &&
                 sigprocmask(SIG_BLOCK, NULL, &local) == 0 && !sigismember(&local, SIGUSR1);
    check("rt_sigprocmask", is_held && is_let);
    sigfillset(mask);
    sigprocmask(SIG_BLOCK, mask, before);
    check("all signals held back", *(volatile int *)COLD(counted) == 17);
    sigprocmask(SIG_UNBLOCK, mask, NULL);
}

static void on_timer(union sigval value) {
    if (*(volatile int *)value.sival_ptr == 17) __atomic_store_n((int *)touched, 100, __ATOMIC_RELEASE);
}

static void times_and_timers(void) {
    struct timespec *time = NEW(struct timespec), *rest = NEW(struct timespec);
    check("clock_gettime", clock_gettime(CLOCK_REALTIME, COLD(time)) == 0 && time->tv_sec > 1000000000);
    check("clock_gettime by the kernel", clock_gettime(CLOCK_PROCESS_CPUTIME_ID, COLD(time)) == 0 && time->tv_sec < 1000);
    check("clock_getres", clock_getres(CLOCK_MONOTONIC, COLD(time)) == 0);
    *time = (struct timespec){.tv_nsec = 1000000};
    check("nanosleep", nanosleep(COLD(time), COLD(rest)) == 0);
    check("clock_nanosleep", clock_nanosleep(CLOCK_MONOTONIC, 0, COLD(time), NULL) == 0);
    *time = (struct timespec){.tv_sec = 5};
    // Nothing that takes time between the thread that calls and the sleep.
    COLD(time), COLD(rest);
    pthread_t caller = be_called();
    check("nanosleep tells the rest", nanosleep(time, rest) == -1 && errno == EINTR && rest->tv_sec == 4);
    pthread_join(caller, NULL);
    struct timeval *now = NEW(struct timeval);
    check("gettimeofday", gettimeofday(COLD(now), NULL) == 0 && now->tv_sec > 1000000000);
    struct tm *parts = NEW(struct tm);
    time_t *seconds = NEW(time_t);
    *seconds = 1000000000;
    check("gmtime_r", gmtime_r(COLD(seconds), COLD(parts)) == parts && parts->tm_year == 101);
    struct sigevent *event = NEW(struct sigevent);
    timer_t *timer = NEW(timer_t);
    struct itimerspec *when = NEW(struct itimerspec);
    *event = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_timer, .sigev_value.sival_ptr = counted};
    when->it_value.tv_nsec = 1000000;
    COLD(counted);
    *touched = 0;
    check("timer_create", timer_create(CLOCK_MONOTONIC, COLD(event), COLD(timer)) == 0);
    check("timer_settime", timer_settime(*timer, 0, COLD(when), NULL) == 0);
    for (int turn = 0; turn < 5000 && __atomic_load_n((int *)touched, __ATOMIC_ACQUIRE) != 100; turn++) usleep(1000);
    check("a timer's thread touches far memory", *touched == 100);
    check("timer_gettime", timer_gettime(*timer, COLD(when)) == 0 && when->it_value.tv_nsec == 0);
    timer_delete(*timer);
    int clock = timerfd_create(CLOCK_MONOTONIC, 0);
    uint64_t *ticks = NEW(uint64_t);
    when->it_value.tv_nsec = 1000000;
    check("timerfd", timerfd_settime(clock, 0, COLD(when), NULL) == 0 && read(clock, COLD(ticks), 8) == 8 && *ticks == 1);
    struct itimerval *interval = NEW(struct itimerval), *before = NEW(struct itimerval);
    interval->it_value.tv_sec = 100;
    check("setitimer", setitimer(ITIMER_REAL, COLD(interval), NULL) == 0 && getitimer(ITIMER_REAL, COLD(before)) == 0 && before->it_value.tv_sec >= 99);
    *interval = (struct itimerval){.it_value = {0}};
    check("setitimer ends", setitimer(ITIMER_REAL, COLD(interval), COLD(before)) == 0 && before->it_value.tv_sec >= 99);
    int events = eventfd(3, 0);
    check("eventfd", read(events, COLD(ticks), 8) == 8 && *ticks == 3 && write(events, COLD(ticks), 8) == 8);
    close(clock), close(events);
}

static void about_the_process(void) {
    struct utsname *name = NEW(struct utsname);
    check("uname", uname(COLD(name)) == 0 && strcmp(name->sysname, "Linux") == 0);
    struct rusage *usage = NEW(struct rusage);
    check("getrusage", getrusage(RUSAGE_SELF, COLD(usage)) == 0 && usage->ru_maxrss > 0);
    struct rlimit *limit = NEW(struct rlimit);
    check("getrlimit", getrlimit(RLIMIT_NOFILE, COLD(limit)) == 0 && limit->rlim_cur > 2);
    check("setrlimit", setrlimit(RLIMIT_NOFILE, COLD(limit)) == 0);
    struct sysinfo *info = NEW(struct sysinfo);
    check("sysinfo", sysinfo(COLD(info)) == 0 && info->totalram > 0);
    struct tms *ticks = NEW(struct tms);
    check("times", times(COLD(ticks)) != -1);
    unsigned char *noise = paged(40000);
    check("getrandom", getrandom(cold_bytes(noise, 8000), 200, 0) == 200 && !is_all(noise, 200, 0) && is_all(noise + 200, 100, 0));
    check("getrandom of much", getrandom(cold_bytes(noise, 40000), 40000, 0) == 40000 && !is_all(noise + 39000, 1000, 0));
    check("getentropy", getentropy(cold_bytes(noise, 200), 200) == 0);
    cpu_set_t *cpus = NEW(cpu_set_t);
    check("sched_getaffinity", sched_getaffinity(0, sizeof *cpus, COLD(cpus)) == 0 && CPU_COUNT(cpus) > 0);
    check("sched_setaffinity", sched_setaffinity(0, sizeof *cpus, COLD(cpus)) == 0);
    char *text = paged(16);
    check("prctl", prctl(PR_SET_NAME, cold_text("far")) == 0 && prctl(PR_GET_NAME, cold_bytes(text, 16)) == 0 && strcmp(text, "far") == 0);
    int master, slave;
    struct winsize *size = NEW(struct winsize);
    struct termios *mode = NEW(struct termios);
    *size = (struct winsize){.ws_row = 17, .ws_col = 33};
    int has_terminal = openpty(&master, &slave, NULL, NULL, NULL) == 0;
    check("ioctl TIOCSWINSZ", !has_terminal || ioctl(master, TIOCSWINSZ, COLD(size)) == 0);
    *size = (struct winsize){.ws_row = 1};
    check("ioctl TIOCGWINSZ", !has_terminal || (ioctl(slave, TIOCGWINSZ, COLD(size)) == 0 && size->ws_row == 17 && size->ws_col == 33));
    check("tcgetattr", !has_terminal || (tcgetattr(slave, COLD(mode)) == 0 && tcsetattr(slave, TCSANOW, COLD(mode)) == 0));
    unsigned *groups = paged(1000 * sizeof *groups);
    check("getgroups", getgroups(1000, cold_bytes(groups, 4000)) >= 0);
}

// What would let the kernel use far memory later is refused, with errors that programs know.
static void refusals(void) {
    char *parameters = paged(PAGE);
    errno = 0;
    long ring = syscall(SYS_io_uring_setup, 4, cold_bytes(parameters, PAGE));
    report(is_far_run() ? ring == -1 && errno == ENOSYS : ring >= -1, "io_uring_setup is refused");
    aio_context_t *context = NEW(aio_context_t);
    errno = 0;
    long made = syscall(SYS_io_setup, 4, COLD(context));
    report(is_far_run() ? made == -1 && errno == ENOSYS : made >= -1, "io_setup is refused");
    void *memory = paged(4 * PAGE);
    errno = 0;
    int locked = mlock(memory, 4 * PAGE);
    report(is_far_run() ? locked == -1 && errno == ENOMEM : locked == 0 || errno == ENOMEM || errno == EPERM, "mlock is refused");
    check("munlock", munlock(memory, 4 * PAGE) == 0);
    unsigned char *vector = paged(PAGE);
    check("mincore", mincore(memory, 4 * PAGE, cold_bytes(vector, 4)) == 0);
    static char local[4 * PAGE];
    void *start = (void *)((uintptr_t)(local + PAGE) & ~(uintptr_t)(PAGE - 1));
    local[2 * PAGE] = 1;
    check("mincore of local memory", mincore(start, 2 * PAGE, cold_bytes(vector, 4)) == 0 && ((vector[0] | vector[1]) & 1));
    check("msync", msync(memory, 4 * PAGE, MS_ASYNC) == 0);
}

int main(void) {
    begin();
    touched = NEW(int);
    counted = NEW(int);
    *counted = 17;
    if (pipe(ends) != 0) return 1;
    handle(SIGUSR1, 0);
    polls();
    polls_beside_changes();
    masks();
    times_and_timers();
    about_the_process();
    refusals();
    return done();
}
