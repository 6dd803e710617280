// What `madvise` says of far memory is heard: the summary's count of misses tells the test.
//
// Usage: advised ORDER ADVICE. Memory that is not here is touched page by page, in order or not, after the advice; with
// the order `hot`, hot memory is touched again after each piece of the rest. With `phases` the advice is about memory
// that was used all the time until then; from there on other memory is, as much of it.

#include "check.h"

enum { MEMORY_MIB = 64, HOT_MIB = 6 };

static uint64_t *memory;

static uint64_t *page_at(size_t page) { return memory + page * PAGE / sizeof *memory; }

static int advice_of(const char *name) {
    static const struct {
        const char *name;
        int advice;
    } known[] = {
        {"NORMAL", MADV_NORMAL},     {"RANDOM", MADV_RANDOM},          {"SEQUENTIAL", MADV_SEQUENTIAL},
        {"WILLNEED", MADV_WILLNEED}, {"POPULATE", MADV_POPULATE_READ}, {"COLD", MADV_COLD},
    };
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (strcmp(name, known[at].name) == 0) return known[at].advice;
    exit(2);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    int advice = advice_of(arguments[2]), wrong = 0;
    size_t pages = MEMORY_MIB * MIB / PAGE, hot = HOT_MIB * MIB / PAGE;
    memory = mmap(NULL, MEMORY_MIB * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t page = 0; page < pages; page++) *page_at(page) = page + 1;
    int has_phases = strcmp(arguments[1], "phases") == 0;
    if (strcmp(arguments[1], "hot") == 0 || has_phases) {
        // The first pages are used between all others, which are used once.
        for (size_t first = hot; first + 512 <= pages; first += 512) {
            for (size_t page = first; page < first + 512; page++) wrong += *page_at(page) != page + 1;
            for (size_t page = 0; page < hot; page++) wrong += *page_at(page) != page + 1;
        }
        if (madvise(memory, hot * PAGE, advice) != 0) return 3;
        for (int round = 0; has_phases && round < 10; round++)
            for (size_t at = 0; at < hot; at++) {
                size_t page = hot + at * 4099 % hot;
                wrong += *page_at(page) != page + 1;
            }
    } else {
        // The last pages are here; the others are not.
        size_t far = pages / 2, step = strcmp(arguments[1], "order") == 0 ? 1 : 4099;
        if (madvise(memory, far * PAGE, advice) != 0) return 3;
        for (size_t at = 0; at < far; at++) {
            size_t page = at * step % far;
            wrong += *page_at(page) != page + 1;
        }
    }
    check("every page was what was written to it", wrong == 0);
    unsigned char here[16];
    if (advice == MADV_POPULATE_READ) {
        int is_here = madvise(memory, sizeof here * PAGE, advice) == 0 && mincore(memory, sizeof here * PAGE, here) == 0;
        check("what is populated is here", is_here && memchr(here, 0, sizeof here) == NULL);
    }
    return done();
}
