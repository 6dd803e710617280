// What a program sees of the process that it is, and all the ways in which it ends by itself.

#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { CODE = 7, BYTES = 16 * MIB };

static void *end_it(void *nothing) {
    (void)nothing;
    exit(CODE);
}

// Memory that is far, so that there is something to tell.
static void use_memory(void) {
    for (int index = 0; index < 4; index++) {
        unsigned char *memory = malloc(BYTES / 4);
        memset(memory, 5, BYTES / 4);
    }
    // The figures of an end that runs no code are those of a moment before it.
    usleep(300 * 1000);
}

static void *end_last(void *first) {
    pthread_join(*(pthread_t *)first, NULL);
    printf("the last thread ends\n");
    return NULL;
}

// Has the lock of standard input for as long as it waits there.
static void *read_input(void *nothing) {
    (void)nothing;
    flockfile(stdin);
    printf("reads\n");
    fflush(stdout);
    getchar();
    return NULL;
}

// The kernel kills who makes another call than a few.
static void sandbox(void) {
    static const unsigned allowed[] = {SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_brk, SYS_mmap, SYS_munmap,
        SYS_newfstatat, SYS_rt_sigprocmask, SYS_rt_sigreturn};
    enum { COUNT = sizeof allowed / sizeof *allowed };
    struct sock_filter code[2 * COUNT + 2];
    int length = 0;
    code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int index = 0; index < COUNT; index++) {
        code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[index], 0, 1);
        code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {.len = (unsigned short)length, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
        exit(1);
}

static void end(const char *how) {
    // What needs little has no threads of the system's own, which the filter would meet.
    if (strcmp(how, "sandboxed") == 0 || strcmp(how, "_sandboxed") == 0) {
        sandbox();
        if (how[0] == '_') _exit(CODE);
        exit(CODE);
    }
    use_memory();
    if (strcmp(how, "quick") == 0) {
        printf("what a quick end leaves in a stream is lost");
        quick_exit(CODE);
    }
    if (strcmp(how, "reader") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, read_input, NULL);
        // Until the other thread has the lock.
        while (ftrylockfile(stdin) == 0) funlockfile(stdin);
        exit(CODE);
    }
    if (strcmp(how, "last") == 0) {
        static pthread_t first;
        pthread_t thread;
        first = pthread_self();
        pthread_create(&thread, NULL, end_last, &first);
        pthread_exit(NULL);
    }
    if (strcmp(how, "exit") == 0) exit(CODE);
    if (strcmp(how, "_exit") == 0) _exit(CODE);
    if (strcmp(how, "_Exit") == 0) _Exit(CODE);
    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, end_it, NULL);
        pthread_join(thread, NULL);
    }
    if (strcmp(how, "forked") == 0) {
        // The end of a child, or of one that shares all memory, is not the program's.
        if (fork() == 0) exit(1);
        if (vfork() == 0) _exit(2);
        while (wait(NULL) > 0) {}
    }
}

int main(int count, char **words) {
    if (count > 1) {
        end(words[1]);
        return CODE;
    }
    printf("process %d of %d\n", getpid(), getppid());
    // The first process of a container has all that is nobody else's; only who asks for all kinds of children sees it.
    int kinds = getpid() == 1 ? 0 : __WALL;
    fflush(stdout);
    check("there are no children to wait for", waitpid(-1, NULL, kinds) == -1 && errno == ECHILD);
    use_memory();
    check("nor later", waitpid(-1, NULL, kinds) == -1 && errno == ECHILD);
    pid_t child = fork();
    if (child == 0) exit(3);
    int status = 0;
    check("a child of its own is one", waitpid(-1, &status, 0) == child && WEXITSTATUS(status) == 3);
    check("and the only one", waitpid(-1, NULL, kinds) == -1 && errno == ECHILD);
    return done();
}
