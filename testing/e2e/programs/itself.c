// What a program sees of the process that it is, and all the ways in which it ends by itself.

#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

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

static void end(const char *how) {
    use_memory();
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
    fflush(stdout);
    check("there are no children to wait for", waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
    use_memory();
    check("nor later", waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
    pid_t child = fork();
    if (child == 0) exit(3);
    int status = 0;
    check("a child of its own is one", waitpid(-1, &status, 0) == child && WEXITSTATUS(status) == 3);
    check("and the only one", waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
    return done();
}
