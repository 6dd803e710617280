// Signals of a program with far memory, and stacks that lie in it.

#include "ticking.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

static void handlers(void) {
    fill(data, DATA, 1);
    tick_every_ms(SA_RESTART);
    int ends[2], is_right = 1;
    if (pipe(ends) != 0) exit(1);
    unsigned char *buffer = paged(70000);
    for (int turn = 0; turn < 30000 && (turn < 5 || *ticks < 100); turn++) {
        sweep();
        is_right = is_right && is_filled_from(data, (size_t)turn % 128 * 65536, (size_t)turn % 128 * 65536 + 65536, 1);
        size_t bytes = turn % 2 ? 60000 : 600;
        for (size_t at = 0; at < bytes;) {
            ssize_t wrote = write(ends[1], data + at, bytes - at);
            if (wrote < 0) is_right = 0;
            at += (size_t)(wrote < 0 ? (ssize_t)bytes : wrote);
        }
        memset(buffer, 0, bytes);
        for (size_t at = 0; at < bytes;) {
            ssize_t got = read(ends[0], buffer + at, bytes - at);
            if (got <= 0) is_right = 0;
            at += (size_t)(got <= 0 ? (ssize_t)bytes : got);
        }
        is_right = is_right && memcmp(buffer, data, bytes) == 0;
    }
    stop_ticking();
    check("handlers touch far memory while the program does", is_right && *ticks >= 100);
    close(ends[0]), close(ends[1]);
}

static void *touch_all(void *given) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    unsigned char *buffer = paged(100000);
    int fd = open("/dev/zero", O_RDONLY), is_right = 1;
    for (int turn = 0; turn < 5; turn++) {
        sweep();
        memset(buffer, 1, 100000);
        is_right = is_right && is_filled(data, DATA / 8, 1) && read(fd, cold_bytes(buffer, 100000), 100000) == 100000 && is_all(buffer, 100000, 0);
    }
    close(fd);
    unsigned char deep[100000];
    memset(deep, 7, sizeof deep);
    sweep();
    is_right = is_right && is_all(deep, sizeof deep, 7);
    return is_right ? given : NULL;
}

static void threads(void) {
    pthread_t thread;
    void *result = NULL;
    pthread_create(&thread, NULL, touch_all, data);
    pthread_join(thread, &result);
    check("a thread that holds all signals back", result == data);
    pthread_attr_t *attributes = NEW(pthread_attr_t);
    sigset_t *all = NEW(sigset_t);
    sigfillset(all);
    pthread_attr_init(attributes);
    pthread_attr_setsigmask_np(attributes, COLD(all));
    check("a thread made to hold all signals back", pthread_create(&thread, COLD(attributes), touch_all, data) == 0 && pthread_join(thread, &result) == 0 && result == data);
    pthread_attr_destroy(attributes);
    int is_right = 1;
    for (int turn = 0; turn < 4; turn++) {
        // Stacks that are given, of the heap and of a mapping.
        size_t bytes = MIB;
        unsigned char *stack = turn % 2 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : paged(bytes);
        pthread_attr_init(attributes);
        pthread_attr_setstack(attributes, cold_bytes(stack, bytes), bytes);
        pthread_t second;
        is_right = is_right && pthread_create(&thread, attributes, touch_all, data) == 0;
        sweep();
        is_right = is_right && pthread_join(thread, &result) == 0 && result == data;
        // Used again, by another thread.
        is_right = is_right && pthread_create(&second, attributes, touch_all, data) == 0 && pthread_join(second, &result) == 0 && result == data;
    }
    check("threads whose stacks are in far memory", is_right);
    pthread_attr_t *told = NEW(pthread_attr_t);
    void **start = NEW(void *);
    size_t *size = NEW(size_t);
    check("pthread_getattr_np", pthread_getattr_np(pthread_self(), COLD(told)) == 0 && pthread_attr_getstack(told, COLD(start), COLD(size)) == 0 && *size > 0);
    pthread_attr_destroy(told);
}

static sigjmp_buf *back;
static void *volatile bus_at;

static void on_bus(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    bus_at = info->si_addr;
    siglongjmp(*back, 1);
}

static void own_bus_errors(const char *folder) {
    char path[300];
    back = NEW(sigjmp_buf);
    snprintf(path, sizeof path, "%s/short", folder);
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    if (ftruncate(fd, 10 * PAGE) != 0) exit(1);
    volatile unsigned char *file = mmap(NULL, 10 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct sigaction *action = NEW(struct sigaction), *before = NEW(struct sigaction);
    action->sa_sigaction = on_bus;
    action->sa_flags = SA_SIGINFO;
    check("sigaction for SIGBUS", sigaction(SIGBUS, COLD(action), COLD(before)) == 0 && before->sa_handler == SIG_DFL);
    check("sigaction for SIGBUS is told", sigaction(SIGBUS, NULL, COLD(before)) == 0 && before->sa_sigaction == on_bus && (before->sa_flags & SA_SIGINFO));
    if (ftruncate(fd, PAGE) != 0) exit(1);
    volatile int caught = 0;
    for (int turn = 0; turn < 3; turn++) {
        sweep();
        if (sigsetjmp(*back, 1) == 0) file[5 * PAGE] = 1;
        else caught += bus_at == (void *)&file[5 * PAGE];
    }
    check("the program's own bus errors reach it", caught == 3);
    check("and its far memory does not", is_filled(data, DATA, 1));
    struct sigaction none = {.sa_handler = SIG_IGN};
    check("SIGPIPE", sigaction(SIGPIPE, &none, NULL) == 0 && signal(SIGPIPE, SIG_DFL) == SIG_IGN);
    close(fd);
}

// A call that waits is left by a jump out of a handler, again and again: nothing of it may be kept for good.
static void jump_back(int number) {
    (void)number;
    siglongjmp(*back, 1);
}

static void jumps_out_of_calls(void) {
    int ends[2];
    if (pipe(ends) != 0) exit(1);
    struct sigaction action = {.sa_handler = jump_back};
    sigaction(SIGALRM, &action, NULL);
    unsigned char *buffers = paged(200 * 8192 + 20000);
    volatile int jumped = 0;
    for (volatile int turn = 0; turn < 150; turn++) {
        struct itimerval soon = {{0, 0}, {0, 500}};
        if (sigsetjmp(*back, 1) == 0) {
            setitimer(ITIMER_REAL, &soon, NULL);
            if (read(ends[0], buffers + turn * 8192, turn % 2 ? 20000 : 1000) != 12345) check("a pipe without a writer", 0);
        } else {
            jumped++;
        }
    }
    check("jumps out of calls that wait", jumped == 150);
    memset(buffers, 5, 200 * 8192);
    cold_bytes(data, DATA);
    check("memory goes on being used", is_filled(data, DATA, 1) && is_all(buffers, 200 * 8192, 5));
}

// Handlers that map memory and fork while the program does the same.
static volatile int handled, handled_right;

static void on_alarm_map(int number) {
    (void)number;
    unsigned char *memory = mmap(NULL, 512 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int is_right = memory != MAP_FAILED && *memory == 0;
    memory[PAGE] = 1;
    is_right = is_right && mprotect(memory, PAGE, PROT_READ) == 0 && munmap(memory, 512 * KIB) == 0;
    handled_right += is_right, handled++;
}

static void on_alarm_fork(int number) {
    int saved = errno, status = 1;
    (void)number;
    pid_t child = fork();
    if (child == 0) _exit(0);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    handled_right += status == 0, handled++, errno = saved;
}

static void arm(int after_us) {
    // Once, so that a handler that takes long leaves time for the program.
    struct itimerval once = {{0, 0}, {0, after_us}};
    setitimer(ITIMER_REAL, &once, NULL);
}

static void handlers_in_forks(void) {
    handled = handled_right = 0;
    struct sigaction action = {.sa_handler = on_alarm_map, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    int is_right = 1;
    for (int turn = 0; handled < 200; turn++) {
        arm(1 + turn * 37 % 1000);
        int status = 1;
        pid_t child = fork();
        sigset_t held_back;
        // The child holds back nothing that its parent did not.
        if (child == 0) _exit(pthread_sigmask(SIG_SETMASK, NULL, &held_back) || sigismember(&held_back, SIGALRM));
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
        is_right = is_right && status == 0;
    }
    stop_ticking();
    check("handlers map memory while the program forks", is_right && handled_right == handled);
}

static void handlers_that(const char *name, void (*handler)(int), int times, int most_us) {
    handled = handled_right = 0;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    int is_right = 1;
    for (int turn = 0; handled < times; turn++) {
        arm(1 + turn * 7 % most_us);
        unsigned char *memory = mmap(NULL, 512 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        is_right = is_right && memory[PAGE] == 0 && memory[99 * PAGE] == 0;
        memory[PAGE] = 1;
        munmap(memory, 512 * KIB);
        // The C library's own fork waits for its malloc.
        if (handler == on_alarm_fork) continue;
        unsigned char *block = malloc(64 * KIB), *small[100];
        block[100] = 1;
        for (int index = 0; index < 100; index++) *(small[index] = malloc(2000)) = 1;
        for (int index = 0; index < 100; index++) free(small[index]);
        free(block);
    }
    stop_ticking();
    check(name, is_right && handled_right == handled);
}

// What comes while the program allocates, most of it in the middle of that.
enum { RESTORER = 0x04000000 }; // The C library's own.
static volatile sig_atomic_t queued, in_order = 1, held_right = 1;

static int holds_back(int number) {
    sigset_t now;
    return pthread_sigmask(SIG_SETMASK, NULL, &now) == 0 && sigismember(&now, number);
}

static void on_queued(int number, siginfo_t *info, void *given) {
    ucontext_t *context = given;
    in_order = in_order && info->si_value.sival_int == queued && info->si_code == SI_QUEUE && info->si_pid == getpid();
    held_right = held_right && holds_back(number) && holds_back(SIGUSR2) && !holds_back(SIGUSR1) && !sigismember(&context->uc_sigmask, number);
    queued++;
}

static void *send_queued(void *given) {
    for (int sent = 0; sent < 3000; sent++)
        while (pthread_sigqueue(*(pthread_t *)given, SIGRTMIN, (union sigval){.sival_int = sent}) == EAGAIN) sched_yield();
    return NULL;
}

static void allocate(size_t bytes) {
    volatile unsigned char *block = malloc(bytes);
    block[bytes / 2] = 1;
    free((void *)block);
}

static void queued_signals(void) {
    struct sigaction action = {.sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART}, told = {0};
    sigaddset(&action.sa_mask, SIGUSR2);
    sigaction(SIGRTMIN, &action, NULL);
    check("sigaction tells what it was told", sigaction(SIGRTMIN, NULL, &told) == 0 && told.sa_sigaction == on_queued && (told.sa_flags & ~RESTORER) == action.sa_flags && sigismember(&told.sa_mask, SIGUSR2) && !sigismember(&told.sa_mask, SIGUSR1));
    pthread_t sender, own = pthread_self();
    pthread_create(&sender, NULL, send_queued, &own);
    // Nothing but the heap's work: most signals come in the middle of that.
    for (size_t turn = 0; queued < 3000; turn++) {
        void *volatile block = malloc((1 + turn % 16) * 8 * KIB);
        free(block);
    }
    pthread_join(sender, NULL);
    check("signals that are queued come in their order, each once", in_order && queued == 3000);
    check("with the signals held back that sigaction says", held_right && !holds_back(SIGRTMIN) && !holds_back(SIGUSR2));
}

static volatile sig_atomic_t caught_first, caught_second, held_in_handler;

static void on_first(int number) {
    (void)number;
    caught_first++, held_in_handler = holds_back(SIGUSR2) && holds_back(SIGTERM);
}

static void on_second(int number) {
    (void)number;
    caught_second++;
}

// A call that waits with a mask of its own lets all through that wait, and its handlers have that mask.
static void masks_of_calls(void) {
    struct sigaction first = {.sa_handler = on_first}, second = {.sa_handler = on_second};
    sigset_t both, none, all_but_first;
    sigemptyset(&none), sigemptyset(&both), sigaddset(&both, SIGUSR1), sigaddset(&both, SIGUSR2);
    sigfillset(&all_but_first), sigdelset(&all_but_first, SIGUSR1);
    sigaction(SIGUSR1, &first, NULL), sigaction(SIGUSR2, &second, NULL);
    pthread_sigmask(SIG_BLOCK, &both, NULL);
    raise(SIGUSR1), raise(SIGUSR2);
    sigsuspend(&none);
    check("sigsuspend lets all through that wait", caught_first == 1 && caught_second == 1);
    raise(SIGUSR1);
    sigsuspend(&all_but_first);
    check("a handler within sigsuspend has its mask", caught_first == 2 && held_in_handler);
    pthread_sigmask(SIG_UNBLOCK, &both, NULL);
}

static volatile sig_atomic_t caught_now, caught_all;

static void on_changed(int number, siginfo_t *info, void *given) {
    (void)number, (void)info;
    sigaddset(&((ucontext_t *)given)->uc_sigmask, SIGUSR2);
    caught_now = 1, caught_all++;
}

static void on_number(int number) { caught_now = number; }

// As `arm` does, until the handler was called while the program allocates.
static void catch_one(void) {
    caught_now = 0;
    arm(1 + caught_all % 100);
    while (!caught_now) allocate(40 * KIB);
}

static void changed_in_handlers(void) {
    int is_right = 1;
    sigset_t second;
    sigemptyset(&second), sigaddset(&second, SIGUSR2);
    struct sigaction action = {.sa_sigaction = on_changed, .sa_flags = SA_SIGINFO | SA_NODEFER}, told = {0};
    sigaction(SIGALRM, &action, NULL);
    for (int turn = 0; turn < 300; turn++) {
        catch_one();
        is_right = is_right && holds_back(SIGUSR2) && !holds_back(SIGALRM) && !holds_back(SIGUSR1);
        pthread_sigmask(SIG_UNBLOCK, &second, NULL);
    }
    check("a handler changes what is held back after it", is_right);
    for (int turn = 0; turn < 100; turn++) {
        struct sigaction once = {.sa_handler = on_number, .sa_flags = SA_RESETHAND};
        sigaction(SIGALRM, &once, NULL);
        catch_one();
        is_right = is_right && caught_now == SIGALRM && sigaction(SIGALRM, NULL, &told) == 0 && told.sa_handler == SIG_DFL;
    }
    check("a handler that is called once", is_right);
    is_right = signal(SIGALRM, on_number) == SIG_DFL && signal(SIGALRM, SIG_IGN) == on_number && signal(SIGALRM, on_number) == SIG_IGN;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    siginterrupt(SIGALRM, 1);
    is_right = is_right && sigaction(SIGALRM, NULL, &told) == 0 && told.sa_handler == on_number && (told.sa_flags & ~RESTORER) == 0;
    check("signal and siginterrupt", is_right);
    siginterrupt(SIGALRM, 0);
    is_right = signal(SIGALRM, on_number) == on_number && sigaction(SIGALRM, NULL, &told) == 0 &&
               (told.sa_flags & ~RESTORER) == SA_RESTART;
    siginterrupt(SIGALRM, 1);
    is_right = is_right && signal(SIGALRM, on_number) == on_number && sigaction(SIGALRM, NULL, &told) == 0 &&
               (told.sa_flags & ~RESTORER) == 0;
    check("signal after siginterrupt", is_right);
    check("no handler is refused", signal(SIGUSR1, SIG_ERR) == SIG_ERR && errno == EINVAL);
    signal(SIGUSR1, SIG_DFL);
    is_right = sigset(SIGUSR1, on_number) == SIG_DFL && sigset(SIGUSR1, SIG_HOLD) == on_number && holds_back(SIGUSR1);
    is_right = is_right && sigset(SIGUSR1, SIG_HOLD) == SIG_HOLD && sigset(SIGUSR1, on_number) == SIG_HOLD && !holds_back(SIGUSR1);
#pragma GCC diagnostic pop
    raise(SIGUSR1);
    check("sigset", is_right && caught_now == SIGUSR1);
    action.sa_flags = 0;
    check("a signal that nobody handles", sigaction(SIGKILL, &action, NULL) == -1 && errno == EINVAL && sigaction(99, &action, NULL) == -1);
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    begin();
    data = malloc(DATA);
    ticks = NEW(uint64_t);
    handlers();
    threads();
    own_bus_errors(arguments[1]);
    jumps_out_of_calls();
    handlers_that("handlers map memory while the program does", on_alarm_map, 1000, 200);
    handlers_that("handlers fork while the program maps", on_alarm_fork, 100, 500);
    handlers_in_forks();
    queued_signals();
    masks_of_calls();
    changed_in_handlers();
    return done();
}
