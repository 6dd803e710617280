// What signals do to a program with far memory, where the memory needs two of them: SIGBUS and SIGSYS. Handlers, the default
// action, older functions, masks for the length of a call; and what is refused because the C library's own threads would do it.

#include "check.h"

#include <aio.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>
#include <sys/wait.h>
#include <time.h>

enum { DATA = 8 << 20, PAST_THE_END = 5 * PAGE };
static unsigned char *data;
static volatile unsigned char *file;

static int is_as_it_was(void) { return is_filled(cold_bytes(data, DATA), DATA, 1); }

// The signal that ends a child that does this; 0 if none does.
static int ended_by(void (*action)(void)) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        action();
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child) return -1;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void touch_past_the_end(void) { file[PAST_THE_END] = 1; }

static void ignore_and_touch(void) {
    signal(SIGBUS, SIG_IGN);
    file[PAST_THE_END] = 1;
}

static void raise_bus(void) { raise(SIGBUS); }

static void raise_sys(void) { raise(SIGSYS); }

static void ignore_both(void) {
    signal(SIGBUS, SIG_IGN);
    signal(SIGSYS, SIG_IGN);
    kill(getpid(), SIGBUS);
    kill(getpid(), SIGSYS);
    data[DATA - 1] = 1;
}

static void default_actions(const char *folder) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    char path[300];
    snprintf(path, sizeof path, "%s/short", folder);
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    if (ftruncate(fd, 10 * PAGE) != 0) exit(1);
    file = mmap(NULL, 10 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ftruncate(fd, PAGE) != 0) exit(1);
    close(fd);
    // What a child touches is here, so that it needs no node.
    data[DATA - 1] = pattern(1, DATA - 1);
    check("a touch behind a file's end ends the program", ended_by(touch_past_the_end) == SIGBUS);
    check("one that is ignored, too", ended_by(ignore_and_touch) == SIGBUS);
    check("a SIGBUS that is sent", ended_by(raise_bus) == SIGBUS);
    check("a SIGSYS that is sent", ended_by(raise_sys) == SIGSYS);
    check("both ignored", ended_by(ignore_both) == 0);
    munmap((void *)file, 10 * PAGE);
}

static volatile int handled;

static void handle(int number) {
    (void)number;
    handled += is_as_it_was();
}

static void answer(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    handled++;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 77;
}

static void own_handlers(void) {
    struct sigaction *action = NEW(struct sigaction), *before = NEW(struct sigaction);
    action->sa_handler = handle;
    check("sigaction for SIGSYS", sigaction(SIGSYS, COLD(action), COLD(before)) == 0 && before->sa_handler == SIG_DFL);
    check("sigaction for SIGSYS is told", sigaction(SIGSYS, NULL, COLD(before)) == 0 && before->sa_handler == handle);
    check("a SIGSYS reaches its handler", (raise(SIGSYS), handled) == 1);
    check("and so does a SIGBUS", signal(SIGBUS, handle) == SIG_DFL && (raise(SIGBUS), handled) == 2);
    signal(SIGBUS, SIG_DFL);
    signal(SIGSYS, SIG_DFL);
}

// Filters of the program's own, in a child because they stay.
static int filter_getpgid(void) {
    struct sock_filter instructions[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP | 55),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof instructions / sizeof *instructions, instructions};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

static void be_filtered(void) {
    if (filter_getpgid()) getpgid(0);
}

static void filter_own_calls(void) {
    struct sigaction action = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO};
    handled = 0;
    int fd = open("/dev/zero", O_RDONLY);
    unsigned char *zeros = malloc(MIB);
    int is_right = sigaction(SIGSYS, &action, NULL) == 0 && filter_getpgid();
    // The program's handler answers what its filter sends back, and far memory's what has an address there.
    is_right = is_right && getpgid(0) == 77 && handled == 1;
    is_right = is_right && syscall(SYS_read, fd, zeros, MIB) == (long)MIB && is_all(zeros, MIB, 0) && handled == 1;
    if (!is_right) kill(getpid(), SIGKILL);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void older_functions(void) {
    check("sighold", sighold(SIGBUS) == 0 && is_as_it_was() && sigrelse(SIGBUS) == 0);
    check("sigset", sigset(SIGBUS, SIG_HOLD) != SIG_ERR && is_as_it_was());
    check("sigignore", sigignore(SIGBUS) == 0 && sigignore(SIGUSR1) == 0 && is_as_it_was());
    check("sigset again", sigset(SIGBUS, SIG_DFL) != SIG_ERR && is_as_it_was());
    check("sigsetmask", (sigsetmask(~0), is_as_it_was()));
    check("sigblock", (sigsetmask(0), sigblock(~0), is_as_it_was()));
    sigsetmask(0);
    check("sysv_signal", sysv_signal(SIGBUS, SIG_DFL) != SIG_ERR && is_as_it_was());
}
#pragma GCC diagnostic pop

// The handler runs while the call waits, with the mask that the call was given.
static int handles_in(int (*wait)(const sigset_t *)) {
    sigset_t *mask = NEW(sigset_t);
    sigfillset(mask);
    sigdelset(mask, SIGUSR2);
    handled = 0;
    raise(SIGUSR2);
    return handled == 0 && wait(COLD(mask)) == -1 && errno == EINTR && handled == 1;
}

static int in_ppoll(const sigset_t *mask) {
    struct timespec most = {20, 0};
    return ppoll(NULL, 0, &most, mask);
}

static int in_pselect(const sigset_t *mask) {
    struct timespec most = {20, 0};
    return pselect(0, NULL, NULL, NULL, &most, mask);
}

static int in_epoll_pwait(const sigset_t *mask) {
    struct epoll_event event;
    int fd = epoll_create1(0), result = epoll_pwait(fd, &event, 1, 20000, mask), error = errno;
    close(fd);
    errno = error;
    return result;
}

static int in_epoll_pwait2(const sigset_t *mask) {
    struct epoll_event event;
    struct timespec most = {20, 0};
    int fd = epoll_create1(0), result = epoll_pwait2(fd, &event, 1, &most, mask), error = errno;
    close(fd);
    errno = error;
    return result;
}

static void masks_of_calls(void) {
    sigset_t held, all, before;
    sigemptyset(&held);
    sigaddset(&held, SIGUSR2);
    signal(SIGUSR2, handle);
    sigprocmask(SIG_BLOCK, &held, NULL);
    check("ppoll", handles_in(in_ppoll));
    check("pselect", handles_in(in_pselect));
    check("epoll_pwait", handles_in(in_epoll_pwait));
    check("epoll_pwait2", handles_in(in_epoll_pwait2));
    check("sigsuspend", handles_in(sigsuspend));
    sigprocmask(SIG_UNBLOCK, &held, NULL);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    int fd = signalfd(-1, &all, SFD_NONBLOCK), *number = NEW(int);
    check("signalfd of all signals", fd >= 0 && is_as_it_was());
    sigset_t *waited = NEW(sigset_t);
    sigfillset(waited);
    raise(SIGUSR1);
    raise(SIGUSR2);
    int first = sigwait(COLD(waited), COLD(number)) == 0 ? *number : 0, second = sigwait(COLD(waited), COLD(number)) == 0 ? *number : 0;
    check("sigwait for all signals", first == SIGUSR1 && second == SIGUSR2 && is_as_it_was());
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(fd);
}

// What another thread of the C library would do, in which no fault can be served.
static void refused(void) {
    struct aiocb *request = NEW(struct aiocb), local = {.aio_nbytes = 0};
    local.aio_fildes = request->aio_fildes = open("/dev/zero", O_RDONLY);
    request->aio_buf = paged(50000);
    request->aio_nbytes = 50000;
    errno = 0;
    int result = aio_read(request);
    report(is_far_run() ? result == -1 && errno == ENOSYS : result == 0, "aio_read on far memory");
    const struct aiocb *waits[] = {is_far_run() ? NULL : request}, *local_waits[] = {&local};
    while (aio_suspend(waits, is_far_run() ? 0 : 1, NULL) != 0) continue;
    static char bytes[100];
    local.aio_buf = memset(bytes, 1, sizeof bytes);
    local.aio_nbytes = sizeof bytes;
    int is_right = aio_read(&local) == 0 && aio_suspend(local_waits, 1, NULL) == 0;
    check("aio_read on local memory", is_right && aio_return(&local) == sizeof bytes && is_all(bytes, sizeof bytes, 0));
    struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST};
    struct gaicb *question = NEW(struct gaicb), *list[] = {question};
    question->ar_name = "127.0.0.1";
    question->ar_request = &numeric;
    result = getaddrinfo_a(GAI_WAIT, list, 1, NULL);
    report(is_far_run() ? result == EAI_SYSTEM && errno == ENOSYS : result == 0, "getaddrinfo_a on far memory");
    check("unshare of descriptors", is_far_run() ? unshare(CLONE_FILES) == -1 && errno == EINVAL : unshare(CLONE_FILES) == 0);
    check("unshare of the working folder", unshare(CLONE_FS) == 0);
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    begin();
    data = paged(DATA);
    fill(data, DATA, 1);
    default_actions(arguments[1]);
    own_handlers();
    check("a filter of the program's own", ended_by(filter_own_calls) == 0);
    check("and one without a handler", ended_by(be_filtered) == SIGSYS);
    older_functions();
    masks_of_calls();
    refused();
    check("memory after all", is_as_it_was());
    return done();
}
