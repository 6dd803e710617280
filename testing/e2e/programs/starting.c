// What threads ask for while the far memory of this process is made for one of them, which takes long where the node is
// slow.
//
// Usage: starting both | cancelled | cancelled-maker | stopped. What two threads ask for is far and is there; a thread
// that is cancelled while it asks goes on until it reaches a place where it may end; and a thread that stops another by
// a signal has what it asks for.

#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

enum { BLOCKS = 512 };
#define BLOCK ((size_t)64 * KIB)

static uint64_t *blocks[2][BLOCKS];

// Asks for so much that memory becomes far, and writes to all of it.
static void *ask(void *number) {
    uint64_t **mine = blocks[(intptr_t)number];
    for (size_t block = 0; block < BLOCKS; block++) {
        mine[block] = malloc(BLOCK);
        for (size_t word = 0; word < BLOCK / sizeof(uint64_t); word += PAGE / sizeof(uint64_t)) mine[block][word] = block + word;
    }
    return NULL;
}

static int is_there(uint64_t **theirs) {
    for (size_t block = 0; block < BLOCKS; block++)
        for (size_t word = 0; word < BLOCK / sizeof(uint64_t); word += PAGE / sizeof(uint64_t))
            if (theirs[block][word] != block + word) return 0;
    return 1;
}

static void both(void) {
    pthread_t other;
    pthread_create(&other, NULL, ask, (void *)1);
    ask(NULL);
    pthread_join(other, NULL);
    check("what both wrote is there", is_there(blocks[0]) && is_there(blocks[1]));
}

static atomic_int has_asked;
static pthread_t maker;
static pid_t maker_id;

// Whether the thread that asks first holds signals back, which it does while it makes far memory.
static int holds_back(void) {
    char path[64], line[256];
    unsigned long long held = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)maker_id);
    FILE *status = fopen(path, "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "SigBlk: %llx", &held);
    if (status) fclose(status);
    return held >> (SIGUSR1 - 1) & 1;
}

// Says on standard error if it has seen that: a thread that had no CPU meanwhile has not.
static void until_it_makes(void) {
    int makes = 0;
    while (!has_asked && !(makes = holds_back())) sched_yield();
    if (makes) fprintf(stderr, "asked while far memory was made\n");
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int has_lock, may_ask, has_it;

// Asks with a lock, as many do, and is cancelled by then: it ends at the first place where it may.
static void *ask_with_lock(void *unused) {
    pthread_mutex_lock(&lock);
    has_lock = 1;
    while (!may_ask) sched_yield();
    ask((void *)1);
    has_it = 1;
    pthread_mutex_unlock(&lock);
    pthread_testcancel();
    return unused;
}

static void *let_ask(void *unused) {
    until_it_makes();
    may_ask = 1;
    return unused;
}

// A thread that waits is cancelled, or the one that makes far memory.
static void cancelled(int waits) {
    pthread_t asking, letting;
    void *end;
    pthread_create(&asking, NULL, ask_with_lock, NULL);
    while (!has_lock) sched_yield();
    pthread_cancel(asking);
    if (waits) {
        pthread_create(&letting, NULL, let_ask, NULL);
        ask(NULL);
        has_asked = 1;
        pthread_join(letting, NULL);
    }
    may_ask = 1;
    pthread_join(asking, &end);
    check("a thread is not cancelled while it asks for memory", has_it && end == PTHREAD_CANCELED);
    check("it has given its lock back", pthread_mutex_trylock(&lock) == 0);
    if (!waits) ask(NULL);
    check("what both wrote is there", has_it && is_there(blocks[0]) && is_there(blocks[1]));
}

static atomic_int is_stopped, may_go_on;

static void stop(int signal) {
    (void)signal;
    is_stopped = 1;
    while (!may_go_on) sched_yield();
}

// As a collector of garbage does. It asks for so much that it begins if the other has not.
static void *stop_the_world(void *memory) {
    until_it_makes();
    pthread_kill(maker, SIGUSR1);
    while (!is_stopped) sched_yield();
    *(void **)memory = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    may_go_on = 1;
    return NULL;
}

static void stopped(void) {
    pthread_t stopping;
    void *memory = MAP_FAILED;
    signal(SIGUSR1, stop);
    pthread_create(&stopping, NULL, stop_the_world, &memory);
    ask(NULL);
    has_asked = 1;
    pthread_join(stopping, NULL);
    int is_right = memory != MAP_FAILED && is_far(memory) == is_far_run();
    check("what is asked for while another thread is stopped is far", is_right);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "both";
    maker = pthread_self();
    maker_id = gettid();
    if (strcmp(what, "cancelled") == 0) cancelled(1);
    else if (strcmp(what, "cancelled-maker") == 0) cancelled(0);
    else if (strcmp(what, "stopped") == 0) stopped();
    else both();
    return done();
}
