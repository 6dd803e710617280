// How threads and processes end while their memory is far: cancelled, by `pthread_exit`, with destructors that use memory, with
// children that are made at the very end.

#include "check.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { DATA = 8 << 20 };
static unsigned char *data;
static volatile int has_started;

static int is_as_it_was(void) { return is_filled(cold_bytes(data, DATA), DATA, 1); }

static pthread_key_t key;
static volatile int destroyed;

static void destroy(void *value) { destroyed += value == data && is_as_it_was(); }

static void *has_value(void *unused) {
    pthread_setspecific(key, data);
    free(malloc(400000));
    return unused;
}

static void *exits(void *unused) {
    free(malloc(400000));
    if (is_as_it_was()) pthread_exit(data);
    return unused;
}

// The dynamic linker's table of a thread's own variables, which handlers of faults read.
static void *has_local_table(void *unused) {
    void *table;
    __asm__("mov %%fs:8, %0" : "=r"(table));
    return is_far(table) ? unused : data;
}

static void threads_end(void) {
    pthread_t thread;
    void *result;
    int is_right = pthread_create(&thread, NULL, has_local_table, NULL) == 0;
    check("a thread's own variables stay", is_right && pthread_join(thread, &result) == 0 && result == data);
    is_right = pthread_key_create(&key, destroy) == 0 && pthread_create(&thread, NULL, has_value, NULL) == 0;
    check("a destructor of a thread's value", is_right && pthread_join(thread, NULL) == 0 && destroyed == 1);
    is_right = pthread_create(&thread, NULL, exits, NULL) == 0 && pthread_join(thread, &result) == 0 && result == data;
    check("pthread_exit", is_right);
}

// A thread that may be cancelled at any instruction, and has a fault at most of them.
static void *touches(void *unused) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    has_started = 1;
    volatile unsigned char *at = data;
    for (size_t index = 0;; index += PAGE) (void)at[index % DATA];
    return unused;
}

static struct sockaddr_un *name;
static socklen_t *name_bytes;

// One that waits in a system call on far memory.
static void *accepts(void *listener) {
    *name_bytes = sizeof *name;
    COLD(name);
    has_started = 1;
    int fd = accept(*(int *)listener, (struct sockaddr *)name, name_bytes);
    if (fd >= 0) close(fd);
    pthread_testcancel();
    return NULL;
}

static void cancelled(void) {
    int is_right = 1;
    pthread_t thread;
    void *result;
    for (int turn = 0; turn < 100; turn++) {
        has_started = 0;
        is_right = is_right && pthread_create(&thread, NULL, touches, NULL) == 0;
        while (!has_started) continue;
        for (volatile int wait = 0; wait < turn % 20 * 10000; wait++) continue;
        is_right = is_right && pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED;
    }
    check("threads that are cancelled in faults", is_right && is_as_it_was());
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un own = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof own;
    // A name of the kernel's choice.
    if (bind(listener, (struct sockaddr *)&own, sizeof own.sun_family) != 0 || listen(listener, 8) != 0) exit(1);
    getsockname(listener, (struct sockaddr *)&own, &bytes);
    name = NEW(struct sockaddr_un);
    name_bytes = NEW(socklen_t);
    is_right = 1;
    for (int turn = 0; turn < 10; turn++) {
        has_started = 0;
        is_right = is_right && pthread_create(&thread, NULL, accepts, &listener) == 0;
        while (!has_started) continue;
        usleep(500);
        is_right = is_right && pthread_cancel(thread) == 0;
        // Far memory has the call go on; it ends with somebody who comes.
        int guest = socket(AF_UNIX, SOCK_STREAM, 0);
        is_right = is_right && connect(guest, (struct sockaddr *)&own, bytes) == 0;
        is_right = is_right && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED;
        struct pollfd waiting = {.fd = listener, .events = POLLIN};
        if (poll(&waiting, 1, 0) == 1) close(accept(listener, NULL, NULL));
        close(guest);
    }
    close(listener);
    check("threads that are cancelled in calls", is_right && is_as_it_was());
}

static void leave(int number) {
    (void)number;
    pthread_exit(data);
}

static void *reads(void *ends) {
    unsigned char *buffer = paged(5000);
    has_started = 1;
    ssize_t got = read(*(int *)ends, buffer, 5000);
    return got == 1 ? ends : NULL;
}

static void left_by_a_handler(void) {
    int ends[2], is_right = 1;
    struct sigaction action = {.sa_handler = leave};
    if (pipe(ends) != 0 || sigaction(SIGUSR1, &action, NULL) != 0) exit(1);
    pthread_t thread;
    void *result;
    for (int turn = 0; turn < 40; turn++) {
        has_started = 0;
        is_right = is_right && pthread_create(&thread, NULL, reads, ends) == 0;
        while (!has_started) continue;
        usleep((useconds_t)turn * 10);
        is_right = is_right && pthread_kill(thread, SIGUSR1) == 0 && pthread_join(thread, &result) == 0 && result == data;
    }
    check("pthread_exit in a handler, out of a call", is_right && is_as_it_was());
}

static void *executes(void *self) {
    char *arguments[] = {self, "executed", NULL};
    execv(self, arguments);
    return NULL;
}

static void children_end(const char *self) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    int status = 0;
    pid_t child = fork();
    if (child == 0) abort();
    check("abort", waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    child = fork();
    if (child == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, executes, (void *)self);
        for (;;) pause();
    }
    check("a thread executes a program", waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 19);
}

// In the order in which they run: at the exit, then as the program is unloaded.
static void at_exit(void) {
    check("a function at the exit", is_as_it_was());
    unsigned char *cleared = calloc(1, 3 * MIB);
    check("and its memory", is_all(cleared, 3 * MIB, 0));
    int status = 1;
    pid_t child = fork();
    if (child == 0) _exit(0);
    check("a child at the exit", waitpid(child, &status, 0) == child && status == 0);
}

__attribute__((destructor)) static void at_the_end(void) {
    if (data != NULL) check("a destructor", is_as_it_was());
}

int main(int count, char **arguments) {
    if (count == 2) _exit(19);
    begin();
    data = paged(DATA);
    fill(data, DATA, 1);
    atexit(at_exit);
    threads_end();
    cancelled();
    left_by_a_handler();
    children_end(arguments[0]);
    return done();
}
