// How many pages a second threads touch, by how many of them touch pages at a time: 1, 8, 32 and 128 threads, or as many as the
// arguments say, for a second each. Every page is touched once before any is touched again, in an order that is no sequence.

#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { PAGES = 1 << 15, THREADS_MAX = 1024 };
#define NANOS 1000000000ull
#define STEP 20021ull

static volatile uint64_t *memory;
static atomic_ullong next, wrong, touched;
static uint64_t end_at;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * NANOS + (uint64_t)time.tv_nsec;
}

static void *touch(void *unused) {
    uint64_t mine = 0;
    while (now() < end_at) {
        uint64_t page = atomic_fetch_add(&next, 1) * STEP % PAGES;
        if (memory[page * PAGE / sizeof(uint64_t)] != page + 1) atomic_fetch_add(&wrong, 1);
        mine++;
    }
    atomic_fetch_add(&touched, mine);
    return unused;
}

// Touches a second that `count` threads make together.
static uint64_t rate(int count) {
    static pthread_t threads[THREADS_MAX];
    uint64_t begun = now();
    touched = 0;
    end_at = begun + NANOS;
    for (int thread = 0; thread < count; thread++) pthread_create(&threads[thread], NULL, touch, NULL);
    for (int thread = 0; thread < count; thread++) pthread_join(threads[thread], NULL);
    return touched * NANOS / (now() - begun);
}

int main(int argc, char **argv) {
    static const char *usual[] = {"1", "8", "32", "128"};
    uint64_t *written = malloc((size_t)PAGES * PAGE);
    for (uint64_t page = 0; page < PAGES; page++) written[page * PAGE / sizeof(uint64_t)] = page + 1;
    memory = written;
    const char **counts = argc > 1 ? (const char **)argv + 1 : usual;
    for (int at = 0; at < (argc > 1 ? argc - 1 : 4); at++) {
        int count = atoi(counts[at]);
        printf("%d threads: %llu touches/s\n", count, (unsigned long long)rate(count));
        fflush(stdout);
    }
    check("every page was what was written to it", wrong == 0);
    return done();
}
