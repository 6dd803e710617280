// Memory that is reserved first and used later, as the heaps of JavaScript engines and Java machines are.

#include "check.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>

enum { PROT = PROT_READ | PROT_WRITE, FLAGS = MAP_PRIVATE | MAP_ANONYMOUS, RESERVE = FLAGS | MAP_NORESERVE };

static unsigned char *reserve(size_t bytes) {
    unsigned char *memory = mmap(NULL, bytes, PROT_NONE, RESERVE, -1, 0);
    if (memory == MAP_FAILED || is_far(memory) != is_far_run()) {
        printf("WRONG: a reservation is not where it should be: %p\n", (void *)memory);
        exit(1);
    }
    return memory;
}

static sigjmp_buf refused;

static void on_refusal(int signal) { siglongjmp(refused, signal); }

static int is_refused(volatile unsigned char *at, int stores) {
    struct sigaction ours = {.sa_handler = on_refusal}, old;
    sigaction(SIGSEGV, &ours, &old);
    int signal = sigsetjmp(refused, 1);
    if (signal == 0) {
        if (stores) *at = 1;
        else (void)*at;
    }
    sigaction(SIGSEGV, &old, NULL);
    return signal == SIGSEGV;
}

// A heap that grows by mprotect and shrinks by it.
static void protected_heap(void) {
    enum { CHUNK = 256 * 1024, CHUNKS = 96 };
    unsigned char *heap = reserve(64 * MIB);
    check("what is reserved cannot be touched", is_refused(heap, 0) && is_refused(heap + 63 * MIB, 1));
    int is_right = 1;
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        // Every second one, so that there are borders.
        unsigned char *at = heap + (size_t)chunk * 2 * CHUNK;
        is_right = is_right && mprotect(at, CHUNK, PROT) == 0 && is_all(at, CHUNK, 0);
        fill(at, CHUNK, (uint64_t)chunk);
    }
    check("chunks are made usable", is_right);
    for (int chunk = 0; chunk < CHUNKS; chunk++)
        is_right = is_right && is_filled(heap + (size_t)chunk * 2 * CHUNK, CHUNK, (uint64_t)chunk);
    check("and keep what is written", is_right);
    check("what lies between them is refused", is_refused(heap + CHUNK, 0) && is_refused(heap + 64 * MIB - 1, 0));
    for (int chunk = 0; chunk < CHUNKS; chunk += 3) {
        unsigned char *at = heap + (size_t)chunk * 2 * CHUNK;
        is_right = is_right && madvise(at, CHUNK, MADV_DONTNEED) == 0 && mprotect(at, CHUNK, PROT_NONE) == 0;
        is_right = is_right && is_refused(at, 0);
    }
    check("chunks are given back", is_right);
    for (int chunk = 0; chunk < CHUNKS; chunk += 3) {
        unsigned char *at = heap + (size_t)chunk * 2 * CHUNK;
        is_right = is_right && mprotect(at, CHUNK, PROT) == 0 && is_all(at, CHUNK, 0);
    }
    check("and are zeros when they are used again", is_right);
    for (int chunk = 0; chunk < CHUNKS; chunk++)
        if (chunk % 3) is_right = is_right && is_filled(heap + (size_t)chunk * 2 * CHUNK, CHUNK, (uint64_t)chunk);
    check("their neighbours are as they were", is_right);
    check("a heap is unmapped", munmap(heap, 64 * MIB) == 0);
}

// A heap that grows and shrinks by mappings in its place.
static void replaced_heap(void) {
    unsigned char *heap = reserve(48 * MIB);
    unsigned char *part = mmap(heap + 2 * MIB, 20 * MIB, PROT, FLAGS | MAP_FIXED, -1, 0);
    check("a part is mapped in its place", part == heap + 2 * MIB && is_all(part, 20 * MIB, 0));
    fill(part, 20 * MIB, 7);
    unsigned char *again = mmap(part + 5 * MIB, 3 * MIB, PROT_NONE, RESERVE | MAP_FIXED, -1, 0);
    check("a part is reserved again", again == part + 5 * MIB);
    check("which cannot be touched", is_refused(part + 5 * MIB, 0) && is_refused(part + 8 * MIB - 1, 1));
    unsigned char *same = malloc(20 * MIB);
    fill(same, 20 * MIB, 7);
    int is_same = memcmp(part, same, 5 * MIB) == 0 && memcmp(part + 8 * MIB, same + 8 * MIB, 12 * MIB) == 0;
    check("what lies around it is as it was", is_same);
    free(same);
    check("it is mapped once more", mmap(part + 5 * MIB, 3 * MIB, PROT, FLAGS | MAP_FIXED, -1, 0) == part + 5 * MIB);
    check("and is zeros", is_all(part + 5 * MIB, 3 * MIB, 0));
    munmap(heap, 48 * MIB);
}

// More is reserved than needed, and its ends go, so that the middle begins at a multiple of its size.
static void aligned(void) {
    enum { CHUNK = 256 * 1024, ALL = 2 * CHUNK - PAGE };
    unsigned char *chunks[40];
    int is_right = 1;
    for (int index = 0; index < 40; index++) {
        unsigned char *all = reserve(ALL);
        unsigned char *chunk = (unsigned char *)(((uintptr_t)all + CHUNK - 1) & ~(uintptr_t)(CHUNK - 1));
        if (chunk > all) is_right = is_right && munmap(all, (size_t)(chunk - all)) == 0;
        size_t tail = (size_t)(all + ALL - chunk - CHUNK);
        if (tail > 0) is_right = is_right && munmap(chunk + CHUNK, tail) == 0;
        is_right = is_right && mprotect(chunk, CHUNK, PROT) == 0 && is_all(chunk, CHUNK, 0);
        fill(chunk, CHUNK, (uint64_t)index);
        chunks[index] = chunk;
    }
    for (int index = 0; index < 40; index++) {
        is_right = is_right && is_filled(chunks[index], CHUNK, (uint64_t)index);
        is_right = is_right && munmap(chunks[index], CHUNK) == 0;
    }
    check("chunks whose ends were cut off", is_right);
}

// A file, private and in the place of a part of what is reserved.
static void files(const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/mapped", folder);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    unsigned char *content = malloc(3 * MIB);
    fill(content, 3 * MIB, 11);
    int is_right = write(file, content, 3 * MIB - 100) == (ssize_t)(3 * MIB - 100);
    unsigned char *heap = reserve(16 * MIB);
    unsigned char *mapped = mmap(heap + MIB, 2 * MIB, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, MIB);
    check("a file is mapped in its place", is_right && mapped == heap + MIB);
    is_right = memcmp(mapped, content + MIB, 2 * MIB - 100) == 0;
    check("its content is there", is_right && is_all(mapped + 2 * MIB - 100, 100, 0));
    check("and cannot be stored to", is_refused(mapped, 1));
    check("nor can what lies beside it", is_refused(heap, 0) && is_refused(mapped + 2 * MIB, 0));
    mapped = mmap(heap + 8 * MIB, 2 * MIB, PROT, MAP_PRIVATE | MAP_FIXED, file, 0);
    check("one that can be stored to", mapped == heap + 8 * MIB && memcmp(mapped, content, 2 * MIB) == 0);
    memset(mapped, 3, MIB);
    unsigned char first = 0;
    check("keeps it from the file", is_all(mapped, MIB, 3) && pread(file, &first, 1, 0) == 1 && first == content[0]);
    mapped = mmap(heap + 12 * MIB, 100, PROT, MAP_PRIVATE | MAP_FIXED, file, 0);
    check("a file is there to the end of the page", mapped == heap + 12 * MIB && memcmp(mapped, content, PAGE) == 0);
    // The kernel brings back what the file has, which is not done here: it must not be zeros then.
    int came_back = madvise(mapped, PAGE, MADV_DONTNEED) == 0;
    check("it never reads as zeros", came_back != is_far_run() && memcmp(mapped, content, PAGE) == 0);
    unsigned char *grown = mremap(mapped, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
    int is_refused_growth = grown == MAP_FAILED && errno == ENOMEM;
    int shows_more = grown != MAP_FAILED && memcmp(grown + PAGE, content + PAGE, PAGE) == 0;
    check("one that grows shows more of its file, or does not", is_far_run() ? is_refused_growth : shows_more);
    if (grown != MAP_FAILED) munmap(grown, 2 * PAGE);
    mapped = heap + 8 * MIB;
    int is_refused_file = mmap(heap, MIB, PROT, MAP_PRIVATE | MAP_FIXED, 9999, 0) == MAP_FAILED && errno == EBADF;
    check("what is no file is refused", is_refused_file);
    check("and leaves all as it was", is_all(mapped, MIB, 3) && memcmp(mapped + MIB, content + MIB, MIB) == 0);
    munmap(heap, 16 * MIB);
    free(content);
    close(file);
    unlink(path);
}

// Code that is written, protected, swept out and run.
static void code(void) {
    static const unsigned char returns_42[] = {0xb8, 42, 0, 0, 0, 0xc3};
    unsigned char *heap = reserve(8 * MIB);
    int is_right = mprotect(heap, MIB, PROT) == 0;
    for (size_t at = 0; at < MIB; at += PAGE) memcpy(heap + at, returns_42, sizeof returns_42);
    is_right = is_right && mprotect(heap, MIB, PROT_READ | PROT_EXEC) == 0;
    cold_bytes(heap, MIB);
    for (size_t at = 0; at < MIB; at += PAGE) {
        int (*function)(void);
        unsigned char *entry = heap + at;
        memcpy(&function, &entry, sizeof function);
        is_right = is_right && function() == 42;
    }
    check("code that was far is run", is_right);
    munmap(heap, 8 * MIB);
}

// What cannot be far because there is no room for it is the kernel's.
static void too_much(void) {
    size_t much = (size_t)64 << 30;
    unsigned char *memory = mmap(NULL, much, PROT_NONE, RESERVE, -1, 0);
    check("more is reserved than there is", memory != MAP_FAILED && !is_far(memory));
    int is_right = mprotect(memory + much / 2, MIB, PROT) == 0;
    fill(memory + much / 2, MIB, 1);
    check("and can be used", is_right && is_filled(memory + much / 2, MIB, 1));
    munmap(memory, much);
    memory = reserve(200 * MIB);
    unsigned char *grown = mremap(memory, 200 * MIB, 400 * MIB, MREMAP_MAYMOVE);
    int is_refused_growth = grown == MAP_FAILED && errno == ENOMEM;
    check("nor does a reservation grow over that", is_refused_growth == is_far_run());
    if (grown == MAP_FAILED) munmap(memory, 200 * MIB);
    else munmap(grown, 400 * MIB);
    unsigned char *parts[64];
    int there = 0;
    for (int index = 0; index < 64; index++) {
        parts[index] = mmap(NULL, 32 * MIB, PROT_NONE, RESERVE, -1, 0);
        there += parts[index] != MAP_FAILED;
    }
    unsigned char *used = malloc(64 * MIB);
    check("many reservations leave room", there == 64 && used != NULL && is_far(used) == is_far_run());
    free(used);
    for (int index = 0; index < 64; index++) munmap(parts[index], 32 * MIB);
}

// Where far memory may be, and one page before it, which is needed as well.
static const uintptr_t WINDOW = (uintptr_t)0x30 << 40;

static unsigned char *inside, *across;

// Allocators ask for places that are drawn by lot, and before any library has begun.
static void wish_early(void) {
    inside = mmap((void *)(WINDOW + ((uintptr_t)4 << 40)), MIB, PROT, RESERVE, -1, 0);
    across = mmap((void *)(WINDOW - 2 * MIB), 2 * MIB, PROT_NONE, RESERVE, -1, 0);
}

__attribute__((section(".preinit_array"), used)) static void (*const at_first)(void) = wish_early;

// Some need what they reserve at a certain place; most have only wishes.
static void wished_for(void) {
    check("no early wish is where far memory may be", is_far(inside) != is_far_run());
    check("nor across its beginning", (across + 2 * MIB == (unsigned char *)WINDOW) != is_far_run());
    munmap(inside, MIB);
    munmap(across, 2 * MIB);
    void *round = (void *)((uintptr_t)64 << 30), *needed = (void *)((uintptr_t)4 << 40);
    unsigned char *memory = mmap(round, 8 * MIB, PROT_NONE, RESERVE, -1, 0);
    check("a round address is no more than a wish", is_far_run() ? is_far(memory) : memory == round);
    munmap(memory, 8 * MIB);
    memory = mmap(needed, 8 * MIB, PROT_NONE, RESERVE, -1, 0);
    check("one that has a bit of its own is needed", memory == needed);
    munmap(memory, 8 * MIB);
}

int main(int argc, char **argv) {
    (void)argc;
    begin();
    wished_for();
    protected_heap();
    replaced_heap();
    aligned();
    files(argv[1]);
    code();
    too_much();
    return done();
}
