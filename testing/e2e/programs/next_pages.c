// A guide that always fetches the next four pages, and reads a word of the fourth. When the process ends it says what it was told
// on standard error, and what of its own memory was far, which none may be.
//
// It counts in variables and allocates on its first touch, which a guide must not do: what comes of that is tested too.

#include <stdio.h>
#include <stdlib.h>
#include <yonder_guide.h>

#ifndef VERSION
#define VERSION YONDER_GUIDE_VERSION
#endif
#ifndef SYMBOL
#define SYMBOL yonder_guide
#endif

enum { PAGES = 4, PAGE = 4096 };

static unsigned long started, misses, hits, arrivals, wrong, far;

static void count(unsigned long *what) { __atomic_fetch_add(what, 1, __ATOMIC_RELAXED); }

static void allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (memory == NULL || (uintptr_t)memory >> 44 == 3) count(&far);
}

struct state {
    uint64_t magic;
};

__attribute__((constructor)) static void loaded(void) { allocate(8 << 20); }

__attribute__((destructor)) static void ended(void) {
    if (misses + hits > 0)
        fprintf(stderr, "guide: %lu states, misses %s, hits %s, arrivals %s, %lu wrong, %lu far\n", started > 0 ? 1ul : 0ul,
                misses > 0 ? "yes" : "no", hits > 0 ? "yes" : "no", arrivals > 0 ? "yes" : "no", wrong, far);
}

static void start(void *memory) {
    struct state *state = memory;
    if (state->magic != 0 || (uintptr_t)memory >> 44 == 3) count(&wrong);
    state->magic = 4711;
    count(&started);
    allocate(5 << 20);
}

static int touched(void *memory, const struct yonder_touch *touch, const struct yonder_reach *reach) {
    struct state *state = memory;
    if (state->magic != 4711 || touch->address >> 44 != 3) count(&wrong);
    if (misses + hits == 0) allocate(1 << 20);
    count(touch->cause == YONDER_MISS ? &misses : &hits);
    uint64_t next = (touch->address / PAGE + 1) * PAGE, word;
    reach->prefetch(reach->context, next, PAGES * PAGE);
    reach->read(reach->context, next + PAGES * PAGE, &word, sizeof word, touch->address);
    return YONDER_KNOWN;
}

static void arrived(void *memory, const struct yonder_arrived *arrived, const struct yonder_reach *reach) {
    struct state *state = memory;
    (void)reach;
    uint64_t asked = (arrived->note / PAGE + 1 + PAGES) * PAGE;
    if (state->magic != 4711 || arrived->address != asked || arrived->count != 8) count(&wrong);
    count(&arrivals);
}

const struct yonder_guide SYMBOL = {
    VERSION, sizeof(struct yonder_guide), "next-pages", sizeof(struct state), start, touched, arrived,
};
