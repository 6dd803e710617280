// What the programs that are run with far memory share: checks, patterns, and memory that is not here.
//
// A program prints one line for each check and exits with 0 if all of them came true. It prints the same whether its memory is
// far or not: the tests compare both. `cold` makes sure that what a check gives to the kernel is remote at that moment.

#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static int failed_checks;

// Prints how a check of this name came out.
__attribute__((format(printf, 2, 3))) static inline void report(int came_true, const char *name, ...) {
    int error = errno;
    va_list words;
    va_start(words, name);
    fputs(came_true ? "ok " : "WRONG ", stdout);
    vprintf(name, words);
    va_end(words);
    if (!came_true) printf(" (errno %d: %s)", error, strerror(error));
    failed_checks += !came_true;
    putchar('\n');
    fflush(stdout);
}

// Checks an expression; an error that it looks for is one of its own.
#define check(name, ...) (errno = 0, report((__VA_ARGS__), "%s", (name)))
// The same, under a name that is printed as `printf` does.
#define check_of(expression, ...) (errno = 0, report((expression), __VA_ARGS__))

// Ends the program after its last check.
static int done(void) {
    printf("%s\n", failed_checks == 0 ? "done" : "failed");
    return failed_checks != 0;
}

// Whether the program's memory is far: some things have to fail then, and only then.
static int is_far_run(void) { return getenv("YONDER_RUN_FAR") != NULL; }

static int is_far(const void *address) { return (uintptr_t)address >> 44 == 3; }

// Byte number `index` of a pattern that differs between seeds, pages and neighbours.
static unsigned char pattern(uint64_t seed, size_t index) {
    uint64_t mixed = (index + seed * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    return (unsigned char)(mixed >> 56 ^ mixed >> 29);
}

static inline void fill(void *memory, size_t bytes, uint64_t seed) {
    unsigned char *at = memory;
    for (size_t index = 0; index < bytes; index++) at[index] = pattern(seed, index);
}

// Whether bytes from `first` to `end` of memory that was filled are as they were.
static inline int is_filled_from(const void *memory, size_t first, size_t end, uint64_t seed) {
    const unsigned char *at = memory;
    for (size_t index = first; index < end; index++)
        if (at[index] != pattern(seed, index)) return 0;
    return 1;
}

static inline int is_filled(const void *memory, size_t bytes, uint64_t seed) { return is_filled_from(memory, 0, bytes, seed); }

static inline int is_all(const void *memory, size_t bytes, unsigned char value) {
    const unsigned char *at = memory;
    for (size_t index = 0; index < bytes; index++)
        if (at[index] != value) return 0;
    return 1;
}

// Memory that is swept to make other memory remote: more than the local limit of the tests.
#ifndef SWEPT_BYTES
#define SWEPT_BYTES (8 * MIB)
#endif
static volatile unsigned char *swept;
static pid_t begun_by;
// From when on parts of far memory have to stay: stacks that the kernel uses are kept here, and what lies near them.
static int some_stays;

// Begins far memory, with an allocation that is large enough for it.
static inline void begin(void) {
    begun_by = getpid();
    // What lies behind it may be fetched ahead with it: that is nobody's.
    swept = malloc(SWEPT_BYTES + MIB);
    if (swept == NULL || is_far((void *)swept) != is_far_run()) {
        printf("WRONG: memory is not where it should be: %p\n", (void *)swept);
        exit(1);
    }
    for (size_t index = 0; index < SWEPT_BYTES; index += PAGE / 2) swept[index] = pattern(0, index);
}

// Touches all of the swept memory once.
static inline void sweep(void) {
    for (size_t index = 0; index < SWEPT_BYTES; index += PAGE)
        if (swept[index] != pattern(0, index)) {
            printf("WRONG: swept memory has changed at %zu\n", index);
            exit(1);
        }
}

// Whether any page of a range is mapped.
static inline int is_resident(const void *address, size_t bytes) {
    uintptr_t first = (uintptr_t)address & ~(uintptr_t)(PAGE - 1);
    uintptr_t end = ((uintptr_t)address + bytes + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    for (; first < end; first += PAGE) {
        unsigned char is_mapped = 0;
        if (mincore((void *)first, PAGE, &is_mapped) == 0 && (is_mapped & 1)) return 1;
    }
    return 0;
}

// Makes far memory remote, or on its way there; returns its address. In a forked child nothing leaves.
static inline void *cold_bytes(const void *address, size_t bytes) {
    if (getpid() != begun_by) return (void *)address;
    for (int tries = 0; is_far(address) && is_resident(address, bytes); tries++) {
        sweep();
        if (some_stays && tries == 2) break;
        if (tries == 20) {
            printf("WRONG: %p does not leave\n", address);
            exit(1);
        }
    }
    return (void *)address;
}

#define COLD(pointer) ((__typeof__(pointer))cold_bytes((pointer), sizeof *(pointer)))

// New memory on pages of its own, so that nothing else keeps it here; for the length of the program.
static inline void *paged(size_t bytes) {
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    void *memory = aligned_alloc(PAGE, whole);
    if (memory == NULL) {
        printf("WRONG: no memory\n");
        exit(1);
    }
    memset(memory, 0, whole);
    return memory;
}

#define NEW(type) ((type *)paged(sizeof(type)))

// A copy of a text on pages of its own, which is remote.
static inline char *cold_text(const char *text) {
    char *copy = paged(strlen(text) + 1);
    strcpy(copy, text);
    return cold_bytes(copy, strlen(text) + 1);
}

#endif
