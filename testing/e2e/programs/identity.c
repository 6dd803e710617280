// A program that changes who it is while its threads use far memory, as servers do that begin as root.
//
// The C library signals every thread of the process for that, ours too, and waits until each has followed.

#include "check.h"

#include <dirent.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { DATA = 8 << 20, TURNS = 20 };
static unsigned char *data;
static volatile int is_over;

// Whether no thread of this process holds the C library's signal for such changes back, but the kernel's threads for rings.
static int all_can_follow(void) {
    DIR *threads = opendir("/proc/self/task");
    struct dirent *thread;
    int can = threads != NULL;
    while (threads != NULL && (thread = readdir(threads)) != NULL) {
        char path[300], line[200];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", thread->d_name);
        FILE *status = thread->d_name[0] == '.' ? NULL : fopen(path, "r");
        while (status != NULL && fgets(line, sizeof line, status) != NULL)
            if (strncmp(line, "Name:\tiou-", 10) == 0) break;
            else if (strncmp(line, "SigBlk:", 7) == 0) can = can && (strtoull(line + 7, NULL, 16) >> 32 & 1) == 0;
        if (status != NULL) fclose(status);
    }
    closedir(threads);
    return can;
}

static void *use_memory(void *given) {
    size_t number = (size_t)given;
    for (size_t turn = 0; !is_over; turn++) {
        size_t at = turn * 7919 % 512 * PAGE + number * 512 * PAGE;
        if (!is_filled_from(data, at, at + 64, 1)) return (void *)1;
        free(malloc(300000));
        // So that a busy machine gets round to those that are to follow.
        sched_yield();
    }
    return NULL;
}

static void many_changes(void) {
    pthread_t threads[4];
    int is_right = 1;
    is_over = 0;
    for (size_t number = 0; number < 4; number++) pthread_create(&threads[number], NULL, use_memory, (void *)number);
    for (int turn = 0; turn < TURNS; turn++) {
        is_right = is_right && setgid(getgid()) == 0 && setuid(getuid()) == 0 && seteuid(geteuid()) == 0;
        unsigned char *cleared = calloc(1, 400000);
        is_right = is_right && is_all(cleared, 400000, 0);
        free(cleared);
    }
    is_over = 1;
    void *result;
    for (int number = 0; number < 4; number++) is_right = is_right && pthread_join(threads[number], &result) == 0 && result == NULL;
    check("many changes of user and group while threads have faults", is_right);
    check("no thread stands in the way of another", all_can_follow());
}

static int uses_all(uint64_t seed) {
    unsigned char *more = paged(2 * MIB);
    fill(more, 2 * MIB, seed);
    sweep();
    int is_right = is_filled(cold_bytes(data, DATA), DATA, 1) && is_filled(cold_bytes(more, 2 * MIB), 2 * MIB, seed);
    free(more);
    return is_right;
}

int main(void) {
    begin();
    data = paged(DATA);
    fill(data, DATA, 1);
    check("no thread of ours stands in the way", all_can_follow());
    many_changes();
    // What takes rights away from the process for good, and leaves memory what it was.
    check("PR_SET_NO_NEW_PRIVS", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && uses_all(2));
    check("PR_SET_DUMPABLE", prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 && uses_all(3));
    struct rlimit none = {0, 0}, few = {16, 16};
    check("no locked memory", setrlimit(RLIMIT_MEMLOCK, &none) == 0 && uses_all(4));
    check("few descriptors", setrlimit(RLIMIT_NOFILE, &few) == 0 && uses_all(5));
    check("no more threads", setrlimit(RLIMIT_NPROC, &none) == 0 && uses_all(6));
    if (getuid() == 0) {
        // No user's number in particular.
        int has_dropped = setgroups(0, NULL) == 0 && setresgid(54321, 54321, 54321) == 0 && setresuid(54321, 54321, 54321) == 0;
        check("rights are dropped", has_dropped && geteuid() == 54321 && setuid(0) == -1);
    } else {
        check("rights are dropped", 1);
    }
    check("memory after that", uses_all(7));
    check("PR_SET_NAME", prctl(PR_SET_NAME, cold_text("renamed")) == 0 && uses_all(8));
    return done();
}
