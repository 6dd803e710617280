// What threads ask for while the far memory of this process is made for one of them, which takes long where the node is slow.
//
// Usage: starting both | cancelled | stopped. What two threads ask for is far and is there; a thread that is cancelled while it
// asks goes on until it reaches a place where it may end; and a thread that stops another by a signal has what it asks for.

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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int is_asking, has_it, is_cancelled;

// Asks with a lock, as many do, until it is cancelled.
static void *ask_with_lock(void *unused) {
    pthread_mutex_lock(&lock);
    is_asking = 1;
    // Some of this is while far memory is made.
    while (!is_cancelled) *(volatile char *)malloc(BLOCK / 16) = 1;
    *(volatile char *)malloc(BLOCK) = 1;
    has_it = 1;
    pthread_mutex_unlock(&lock);
    pthread_testcancel();
    return unused;
}

static void *cancel(void *thread) {
    while (!is_asking) sched_yield();
    // It asks, and waits by now.
    usleep(50000);
    pthread_cancel(*(pthread_t *)thread);
    is_cancelled = 1;
    return NULL;
}

static void cancelled(void) {
    pthread_t asking, cancelling;
    void *end;
    pthread_create(&asking, NULL, ask_with_lock, NULL);
    pthread_create(&cancelling, NULL, cancel, &asking);
    ask(NULL);
    pthread_join(cancelling, NULL);
    pthread_join(asking, &end);
    check("a thread is not cancelled while it asks for memory", has_it && end == PTHREAD_CANCELED);
    check("it has given its lock back", pthread_mutex_trylock(&lock) == 0);
}

static atomic_int is_stopped, may_go_on;
static pthread_t maker;

static void stop(int signal) {
    (void)signal;
    is_stopped = 1;
    while (!may_go_on) sched_yield();
}

// As a collector of garbage does.
static void *stop_the_world(void *memory) {
    while (!is_asking) sched_yield();
    usleep(50000);
    pthread_kill(maker, SIGUSR1);
    while (!is_stopped) sched_yield();
    *(void **)memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    may_go_on = 1;
    return NULL;
}

static void stopped(void) {
    pthread_t stopping;
    void *memory = MAP_FAILED;
    maker = pthread_self();
    signal(SIGUSR1, stop);
    pthread_create(&stopping, NULL, stop_the_world, &memory);
    is_asking = 1;
    ask(NULL);
    pthread_join(stopping, NULL);
    check("what is asked for while another thread is stopped is far", memory != MAP_FAILED && is_far(memory) == is_far_run());
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "both";
    if (strcmp(what, "cancelled") == 0) cancelled();
    else if (strcmp(what, "stopped") == 0) stopped();
    else both();
    return done();
}
