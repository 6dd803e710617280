// Anonymous mappings that are far, and what can be done to them; the malloc family from outside.

#include "check.h"

#include <fcntl.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/uio.h>
#include <ucontext.h>

enum { PROT = PROT_READ | PROT_WRITE, FLAGS = MAP_PRIVATE | MAP_ANONYMOUS };

static unsigned char *map(size_t bytes) {
    unsigned char *mapped = mmap(NULL, bytes, PROT, FLAGS, -1, 0);
    if (mapped == MAP_FAILED || is_far(mapped) != is_far_run()) {
        printf("WRONG: a mapping is not where it should be: %p\n", (void *)mapped);
        exit(1);
    }
    return mapped;
}

static void mapping(void) {
    unsigned char *memory = map(12 * MIB);
    check("a mapping is zeros", is_all(memory, 12 * MIB, 0));
    fill(memory, 12 * MIB, 1);
    sweep();
    check("it keeps what is written", is_filled(memory, 12 * MIB, 1));
    check("munmap of the middle", munmap(memory + 5 * MIB, 2 * MIB) == 0);
    check("munmap of the head", munmap(memory, 64 * KIB) == 0);
    check("munmap of the tail", munmap(memory + 12 * MIB - 3 * PAGE, 3 * PAGE) == 0);
    // What is mapped and allocated now may take the place of what is gone, and of nothing else.
    unsigned char *others[6];
    for (int index = 0; index < 6; index++) {
        others[index] = index % 2 ? map(MIB) : calloc(1, MIB);
        check("memory that is used again is zeros", is_all(others[index], MIB, 0));
        memset(others[index], 0xff, MIB);
    }
    unsigned char *copy = malloc(12 * MIB);
    fill(copy, 12 * MIB, 1);
    int is_right = memcmp(memory + 64 * KIB, copy + 64 * KIB, 5 * MIB - 64 * KIB) == 0 &&
                   memcmp(memory + 7 * MIB, copy + 7 * MIB, 5 * MIB - 3 * PAGE) == 0;
    check("the rest is untouched", is_right);
    for (int index = 0; index < 6; index++) {
        is_right = is_right && is_all(others[index], MIB, 0xff);
        if (index % 2) munmap(others[index], MIB);
        else free(others[index]);
    }
    check("and so is what came later", is_right);
    check("munmap across a hole", munmap(memory + 64 * KIB, 12 * MIB - 64 * KIB - 3 * PAGE) == 0);
    free(copy);
    check("munmap of nothing is refused", munmap(map(MIB), 0) == -1 && errno == EINVAL);
    for (int turn = 0; turn < 40; turn++) {
        unsigned char *again = map(3 * MIB);
        if (!is_all(again, 3 * MIB, 0)) is_right = 0;
        memset(again, 0xaa, 3 * MIB);
        munmap(again, 3 * MIB);
    }
    check("mappings that come and go are zeros", is_right);
    unsigned char *file_like = mmap(memory, 100 * PAGE, PROT, FLAGS, -1, 0);
    check("a hint is a hint", file_like != MAP_FAILED && is_all(file_like, 100 * PAGE, 0));
    unsigned char *shared = mmap(memory, 300 * PAGE, PROT, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check("a shared mapping with a hint", shared != MAP_FAILED && is_all(shared, 300 * PAGE, 0));
}

static void moving(void) {
    unsigned char *memory = map(4 * MIB), *moved;
    fill(memory, 4 * MIB, 2);
    moved = mremap(memory, 4 * MIB, 2 * MIB, 0);
    check("mremap shrinks in place", moved == memory && is_filled(memory, 2 * MIB, 2));
    unsigned char *neighbour = map(2 * MIB);
    memset(neighbour, 0x11, 2 * MIB);
    moved = mremap(memory, 2 * MIB, 9 * MIB, MREMAP_MAYMOVE);
    check("mremap grows", moved != MAP_FAILED && is_filled(moved, 2 * MIB, 2) && is_all(moved + 2 * MIB, 7 * MIB, 0));
    memory = moved;
    fill(memory, 9 * MIB, 3);
    for (size_t bytes = 9 * MIB; bytes < 14 * MIB; bytes += 333 * PAGE) {
        moved = mremap(memory, bytes, bytes + 333 * PAGE, MREMAP_MAYMOVE);
        if (moved == MAP_FAILED || !is_all(moved + bytes, 333 * PAGE, 0)) check("mremap grows step by step", 0);
        memory = moved;
    }
    check("mremap keeps all", is_filled(memory, 9 * MIB, 3) && is_all(neighbour, 2 * MIB, 0x11));
    // The part of a mapping in the middle can move away on its own.
    memory = map(6 * MIB);
    fill(memory, 6 * MIB, 4);
    moved = mremap(memory + 2 * MIB, 2 * MIB, 5 * MIB, MREMAP_MAYMOVE);
    unsigned char *copy = malloc(6 * MIB);
    fill(copy, 6 * MIB, 4);
    check("mremap of a part", moved != MAP_FAILED && memcmp(moved, copy + 2 * MIB, 2 * MIB) == 0 && is_all(moved + 2 * MIB, 3 * MIB, 0) &&
                                  memcmp(memory, copy, 2 * MIB) == 0 && memcmp(memory + 4 * MIB, copy + 4 * MIB, 2 * MIB) == 0);
    free(copy);
    // Few pages move to a place that can be cut in two.
    memory = map(MIB);
    fill(memory, MIB, 6);
    moved = mremap(memory, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
    check("mremap of a page to two", moved != MAP_FAILED && is_filled(moved, PAGE, 6) && is_all(moved + PAGE, PAGE, 0));
    check("which are unmapped one by one", munmap(moved + PAGE, PAGE) == 0 && munmap(moved, PAGE) == 0);
    munmap(memory, MIB);
    // What was protected at its end is given to others as good as new.
    memory = map(4 * MIB);
    check("mprotect of a tail", mprotect(memory + 2 * MIB, 2 * MIB, PROT_NONE) == 0);
    check("mremap cuts it off", mremap(memory, 4 * MIB, 2 * MIB, 0) == memory);
    int is_right = 1;
    for (int turn = 0; turn < 6; turn++) {
        unsigned char *next = map(2 * MIB);
        is_right = is_right && is_all(next, 2 * MIB, 0);
        memset(next, 1, 2 * MIB);
    }
    check("what was cut off can be used", is_right);
}

static void advice(void) {
    unsigned char *memory = map(6 * MIB);
    fill(memory, 6 * MIB, 5);
    check("MADV_DONTNEED", madvise(memory + MIB, 3 * MIB, MADV_DONTNEED) == 0 && is_all(memory + MIB, 3 * MIB, 0) && is_filled(memory, MIB, 5));
    memset(memory + MIB, 9, 3 * MIB);
    cold_bytes(memory + MIB, 3 * MIB);
    check("MADV_DONTNEED of remote memory", madvise(memory + MIB, 3 * MIB, MADV_DONTNEED) == 0 && is_all(memory + MIB, 3 * MIB, 0));
    memset(memory, 3, 6 * MIB);
    static const int harmless[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_DODUMP, MADV_COLD, MADV_PAGEOUT};
    int is_right = 1;
    for (size_t index = 0; index < sizeof harmless / sizeof *harmless; index++) is_right = is_right && madvise(memory, 6 * MIB, harmless[index]) == 0;
    check("advice that changes nothing", is_right && is_all(memory, 6 * MIB, 3));
    check("MADV_FREE", madvise(memory, 6 * MIB, MADV_FREE) == 0);
    for (size_t at = 0; at < 6 * MIB; at += PAGE) is_right = is_right && (is_all(memory + at, PAGE, 3) || is_all(memory + at, PAGE, 0));
    check("MADV_FREE leaves old pages or zeros", is_right);
    check("unknown advice is refused", madvise(memory, PAGE, 7777) == -1 && errno == EINVAL);
    check("advice off a page's border is refused", madvise(memory + 1, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
}

static sigjmp_buf back;
static void *volatile fault_at;

static void on_fault(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    fault_at = info->si_addr;
    siglongjmp(back, 1);
}

// Whether a write raises SIGSEGV there.
static int traps_writes(volatile unsigned char *at) {
    if (sigsetjmp(back, 1) == 0) {
        *at = 1;
        return 0;
    }
    return fault_at == (void *)at;
}

static int traps_reads(volatile unsigned char *at) {
    if (sigsetjmp(back, 1) == 0) {
        (void)*at;
        return 0;
    }
    return fault_at == (void *)at;
}

static void protection(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    unsigned char *memory = map(12 * MIB);
    fill(memory, 12 * MIB, 6);
    check("PROT_READ", mprotect(memory + MIB, 4 * MIB, PROT_READ) == 0);
    check("a write to it is a fault", traps_writes(memory + MIB + 5) && traps_writes(memory + 5 * MIB - 1) && !traps_reads(memory + MIB));
    sweep();
    check("a write to it is a fault when it is remote", traps_writes(cold_bytes(memory + 2 * MIB, PAGE)) && traps_writes(memory + 3 * MIB + 77));
    memory[MIB - 1] = pattern(6, MIB - 1), memory[5 * MIB] = pattern(6, 5 * MIB);
    check("it can be read", is_filled(memory, 12 * MIB, 6));
    check("PROT_NONE", mprotect(memory + 2 * MIB, 8 * MIB, PROT_NONE) == 0);
    check("a touch of it is a fault", traps_reads(memory + 2 * MIB) && traps_reads(memory + 10 * MIB - 1) && traps_writes(memory + 6 * MIB) && !traps_reads(memory + 10 * MIB));
    sweep(), sweep();
    check("a touch of it is a fault for long", traps_reads(memory + 4 * MIB + 123));
    check("back to PROT_READ | PROT_WRITE", mprotect(memory + MIB, 9 * MIB, PROT) == 0);
    check("nothing was lost", is_filled(memory, 12 * MIB, 6));
    check("it can be written", !traps_writes(memory + MIB + 5));
    // As collectors of garbage do it: nothing of it can be reached, and all of it is there again.
    unsigned char *large = map(24 * MIB);
    fill(large, 24 * MIB, 7);
    mprotect(large, 24 * MIB, PROT_NONE);
    sweep(), sweep();
    check("much can be protected", traps_reads(large + 11 * MIB));
    for (size_t at = 0; at < 24 * MIB; at += 64 * PAGE) mprotect(large + at, 64 * PAGE, at / (64 * PAGE) % 2 ? PROT : PROT_READ);
    check("and opened piece by piece", is_filled(large, 24 * MIB, 7));
    mprotect(large, 24 * MIB, PROT_NONE);
    check("MADV_DONTNEED of what is protected", madvise(large, 24 * MIB, MADV_DONTNEED) == 0);
    mprotect(large, 24 * MIB, PROT);
    check("makes it zeros", is_all(large, 24 * MIB, 0));
    fill(large, 24 * MIB, 8);
    mprotect(large, 24 * MIB, PROT_NONE);
    check("munmap of what is protected", munmap(large, 24 * MIB) == 0);
    large = map(24 * MIB);
    check("its place can be used", is_all(large, 24 * MIB, 0) && !traps_writes(large) && !traps_writes(large + 24 * MIB - 1));
    munmap(large, 24 * MIB);
    // Each takes part of local memory with it, unless it leaves: together more than there is.
    unsigned char *spaces[8];
    int is_right = 1;
    for (int index = 0; index < 8; index++) {
        fill(spaces[index] = map(2 * MIB), 2 * MIB, index);
        is_right = is_right && mprotect(spaces[index], 2 * MIB, PROT_NONE) == 0;
    }
    sweep();
    check("mprotect off a page's border is refused", mprotect(spaces[0] + 1, PAGE, PROT_NONE) == -1 && errno == EINVAL);
    check("one space after the other can be protected", is_right && traps_reads(spaces[0] + MIB));
    for (int index = 0; index < 8; index++) {
        mprotect(spaces[index], 2 * MIB, PROT_READ);
        is_right = is_right && is_filled(spaces[index], 2 * MIB, index);
        munmap(spaces[index], 2 * MIB);
    }
    check("and all be opened again", is_right);
    // A block of the heap with a guard page.
    unsigned char *guarded = aligned_alloc(PAGE, 64 * PAGE);
    memset(guarded, 1, 64 * PAGE);
    check("mprotect of a block of the heap", mprotect(guarded + 3 * PAGE, PAGE, PROT_NONE) == 0 && traps_reads(guarded + 3 * PAGE) && !traps_reads(guarded + 4 * PAGE));
    mprotect(guarded + 3 * PAGE, PAGE, PROT);
    // The C library's heap may write to what is freed.
    for (int round = 0; round < 8 && is_far_run(); round++) {
        size_t bytes = 3 * MIB + 24;
        char *block = malloc(bytes);
        memset(block, 1, bytes);
        // All pages that it has a part of.
        uintptr_t first = (uintptr_t)block / PAGE * PAGE, end = ((uintptr_t)block + bytes + PAGE - 1) / PAGE * PAGE;
        is_right = is_right && mprotect((void *)first, end - first, PROT_READ) == 0;
        free(block);
        block = malloc(bytes);
        memset(block, 2, bytes);
        is_right = is_right && is_all(block, bytes, 2);
        free(block);
    }
    check("what is freed while it is protected can be used by the next", is_right);
    for (int round = 0; round < 8 && is_far_run(); round++) {
        char *block = malloc(3 * MIB);
        memset(block, 1, 3 * MIB);
        uintptr_t first = (uintptr_t)block / PAGE * PAGE;
        is_right = is_right && mprotect((void *)(first + 2 * MIB), MIB, PROT_READ) == 0;
        block = realloc(block, MIB);
        char *next = malloc(2 * MIB);
        memset(next, 2, 2 * MIB);
        is_right = is_right && is_all(block, MIB, 1) && is_all(next, 2 * MIB, 2);
        free(next);
        free(block);
    }
    check("what realloc cuts off while it is protected can be used by the next", is_right);
    free(guarded);
}

// The kernel refuses what the program could not do itself, and does not end it.
static void calls_on_protected(void) {
    unsigned char *memory = map(MIB);
    memset(memory, 7, MIB);
    int ends[2];
    if (pipe2(ends, O_NONBLOCK) != 0) exit(1);
    mprotect(memory, PAGE, PROT_NONE);
    mprotect(memory + PAGE, PAGE, PROT_READ);
    check("write from PROT_NONE", write(ends[1], memory, 10) == -1 && errno == EFAULT);
    check("write from PROT_READ", write(ends[1], memory + PAGE, 5) == 5);
    check("write from the middle of it", write(ends[1], memory + PAGE + 100, 5) == 5);
    check("read into PROT_READ", read(ends[0], memory + PAGE, 5) == -1 && errno == EFAULT);
    check("and beside it", read(ends[0], memory + 2 * PAGE, 5) > 0);
    check("a path in PROT_NONE", access((char *)memory + 100, F_OK) == -1 && errno == EFAULT);
    check("a text that ends in PROT_READ", access((char *)memory + PAGE, F_OK) == -1 && errno != EFAULT);
    struct iovec parts[2] = {{memory + 2 * PAGE, 10}, {memory, 10}};
    check("a list with a part in PROT_NONE", writev(ends[1], parts + 1, 1) == -1 && errno == EFAULT);
    unsigned char *moved = mremap(memory, MIB, 30 * MIB, MREMAP_MAYMOVE);
    report(moved == MAP_FAILED && errno == EFAULT, "mremap of parts that differ");
    mprotect(memory, MIB, PROT_READ);
    unsigned char *neighbour = map(MIB);
    moved = mremap(memory, MIB, 3 * MIB, MREMAP_MAYMOVE);
    check("mremap of what is protected", is_all(moved, MIB, 7) && is_all(moved + MIB, 2 * MIB, 0));
    check("and it stays so", read(ends[0], moved, 1) == -1 && errno == EFAULT);
    check("for what is new too", read(ends[0], moved + 2 * MIB, 1) == -1 && errno == EFAULT);
    struct iovec list = {moved, 5};
    check("readv into it", readv(ends[0], &list, 1) == -1 && errno == EFAULT);
    char rest[6] = {0};
    check("and nothing that was to be read is lost", read(ends[0], rest, 5) == 5);
    mprotect(moved, 3 * MIB, PROT_NONE);
    moved = mremap(moved, 3 * MIB, 8 * MIB, MREMAP_MAYMOVE);
    check("nor of what cannot be read", moved != MAP_FAILED && traps_reads(moved) && traps_reads(moved + 7 * MIB));
    mprotect(moved, 8 * MIB, PROT_READ);
    check("is anything lost", is_all(moved, MIB, 7) && is_all(moved + MIB, 7 * MIB, 0));
    munmap(neighbour, MIB), munmap(moved, 8 * MIB), close(ends[0]), close(ends[1]);
}

static ucontext_t outside, inside;

static void on_far_stack(void) {
    sigset_t before;
    char deep[10000];
    memset(deep, 1, sizeof deep);
    unsigned char *memory = map(MIB);
    // The sets of these calls lie in far memory, and some of that is protected.
    int is_right = mprotect(memory, PAGE, PROT_NONE) == 0 && sigprocmask(SIG_SETMASK, NULL, &before) == 0;
    is_right = is_right && munmap(memory, MIB) == 0 && is_all(deep, sizeof deep, 1);
    check("a far stack with a guard", is_right);
}

static void protected_and_used(void) {
    unsigned char *stack = map(512 * KIB);
    mprotect(stack, PAGE, PROT_NONE);
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack, inside.uc_stack.ss_size = 512 * KIB, inside.uc_link = &outside;
    makecontext(&inside, on_far_stack, 0);
    swapcontext(&outside, &inside);
    unsigned char *memory = map(8 * MIB);
    memset(memory, 3, MIB);
    check("mprotect that is none", mprotect(memory, MIB, 0x4000) == -1 && errno == EINVAL);
    int ends[2];
    if (pipe(ends) != 0) exit(1);
    check("changes nothing", write(ends[1], memory, 10) == 10 && read(ends[0], memory, 10) == 10);
    munmap(memory + MIB, 7 * MIB);
    check("mremap cuts off what is gone", mremap(memory, 8 * MIB, 8 * MIB - PAGE, MREMAP_MAYMOVE) == memory);
    check("and does not grow it", mremap(memory, 4 * MIB, 20 * MIB, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
    // Not known when it is compiled.
    volatile size_t too_much = -(size_t)8 * PAGE;
    check("munmap of too much", munmap(memory, too_much) == -1 && errno == EINVAL);
    check("mremap of too much", mremap(memory, too_much, MIB, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
    check("harms nothing", is_all(memory, MIB, 3));
    mprotect(memory, MIB, PROT_READ | PROT_WRITE | PROT_EXEC);
    memory[0] = 0xc3;  // ret
    unsigned char *neighbour = map(MIB), *moved = mremap(memory, MIB, 3 * MIB, MREMAP_MAYMOVE);
    ((void (*)(void))moved)();
    moved[2 * MIB] = 0xc3;
    ((void (*)(void))(moved + 2 * MIB))();
    check("code that moves", is_all(moved + 1, MIB - 1, 3));
    munmap(neighbour, MIB), munmap(moved, 3 * MIB), munmap(stack, 512 * KIB);
    void *block = NULL;
    int is_right = 1;
    for (int turn = 0; turn < 5; turn++) {
        // So large that the C library unmaps it too.
        if (posix_memalign(&block, PAGE, 40 * MIB) != 0) exit(1);
        mprotect(block, 40 * MIB, PROT_NONE);
        free(block);
        unsigned char *next = malloc(40 * MIB);
        is_right = is_right && !traps_reads(next + PAGE) && !traps_writes(next + 30 * MIB);
        free(next);
    }
    check("blocks that were protected when they were freed", is_right);
    close(ends[0]), close(ends[1]);
}

static void replacing(void) {
    unsigned char *memory = map(8 * MIB);
    fill(memory, 8 * MIB, 9);
    check("MAP_FIXED over a far mapping", mmap(memory + MIB, 2 * MIB, PROT, FLAGS | MAP_FIXED, -1, 0) == memory + MIB);
    unsigned char *copy = malloc(8 * MIB);
    fill(copy, 8 * MIB, 9);
    check("is zeros there", is_all(memory + MIB, 2 * MIB, 0) && memcmp(memory, copy, MIB) == 0 && memcmp(memory + 3 * MIB, copy + 3 * MIB, 5 * MIB) == 0);
    check("MAP_FIXED with PROT_NONE", mmap(memory + MIB, MIB, PROT_NONE, FLAGS | MAP_FIXED, -1, 0) == memory + MIB && traps_reads(memory + MIB));
    check("mprotect opens it", mprotect(memory + MIB, MIB, PROT) == 0 && is_all(memory + MIB, MIB, 0));
    // A hole belongs to whoever comes first: a mapping is not put over what is somebody else's.
    munmap(memory + 4 * MIB, 2 * MIB);
    unsigned char *blocks[64];
    for (int index = 0; index < 64; index++) blocks[index] = memset(malloc(100 * KIB), index + 1, 100 * KIB);
    unsigned char *filled = mmap(memory + 4 * MIB, 2 * MIB, PROT, FLAGS | MAP_FIXED, -1, 0);
    if (filled != MAP_FAILED) memset(filled, 0xdd, 2 * MIB);
    int is_right = filled == memory + 4 * MIB || (is_far_run() && errno == ENOMEM);
    for (int index = 0; index < 64; index++) is_right = is_right && is_all(blocks[index], 100 * KIB, (unsigned char)(index + 1));
    check("MAP_FIXED over a hole hurts nobody", is_right);
    for (int index = 0; index < 64; index++) free(blocks[index]);
    check("and can be undone", filled == MAP_FAILED || munmap(filled, 2 * MIB) == 0);
    errno = 0;
    unsigned char *taken = mmap(memory, PAGE, PROT, FLAGS | MAP_FIXED_NOREPLACE, -1, 0);
    report(taken == MAP_FAILED && errno == EEXIST && memcmp(memory, copy, MIB) == 0, "MAP_FIXED_NOREPLACE replaces nothing");
    free(copy);
}

static void heap(void) {
    unsigned char *block = NULL;
    size_t bytes = 1;
    int is_right = 1;
    for (; bytes < 40 * MIB; bytes = bytes * 3 / 2 + 1) {
        size_t before = block == NULL ? 0 : bytes * 2 / 3;
        block = realloc(block, bytes);
        is_right = is_right && block != NULL && is_filled(block, before < bytes ? before / 2 : 0, 10) && malloc_usable_size(block) >= bytes;
        fill(block, bytes, 10);
    }
    for (bytes = 30 * MIB; bytes > 0; bytes = bytes * 3 / 5) {
        block = realloc(block, bytes);
        is_right = is_right && block != NULL && is_filled(block, bytes, 10) && malloc_usable_size(block) >= bytes;
    }
    check("realloc grows and shrinks", is_right);
    check("realloc to nothing frees", realloc(block, 0) == NULL);
    for (size_t align = 16; align <= 2 * MIB; align *= 2)
        for (size_t size = 1; size < 5 * MIB; size = size * 7 + 3) {
            void *aligned = NULL;
            is_right = is_right && posix_memalign(&aligned, align, size) == 0 && (uintptr_t)aligned % align == 0;
            memset(aligned, 1, size);
            void *other = align % 3 ? memalign(align, size) : aligned_alloc(align, size);
            is_right = is_right && other != NULL && (uintptr_t)other % align == 0;
            memset(other, 2, size);
            is_right = is_right && is_all(aligned, size, 1);
            free(aligned);
            other = realloc(other, size + 1);
            is_right = is_right && is_all(other, size, 2);
            free(other);
        }
    check("blocks are aligned up to 2 MiB", is_right);
    void *none = NULL;
    check("alignment that is none is refused", posix_memalign(&none, 3, 10) == EINVAL && posix_memalign(&none, 4, 10) == EINVAL);
    for (size_t size = 20 * MIB; size > 100; size = size * 2 / 3) {
        unsigned char *dirty = malloc(size);
        memset(dirty, 0xff, size);
        free(dirty);
        dirty = calloc(size / 10, 10);
        is_right = is_right && is_all(dirty, size / 10 * 10, 0);
        free(dirty);
    }
    check("calloc is zeros after anything", is_right);
    errno = 0;
    volatile size_t too_much = SIZE_MAX / 2 + 1;
    check("calloc that overflows", calloc(too_much, 2) == NULL && errno == ENOMEM);
    check("malloc of too much", malloc(too_much - 1) == NULL && errno == ENOMEM);
    check("mmap of too much", mmap(NULL, too_much - 1, PROT, FLAGS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    check("reallocarray that overflows", reallocarray(NULL, too_much, 3) == NULL);
    void *empty = malloc(0), *other = malloc(0);
    check("malloc of nothing is something", empty != NULL && other != NULL && empty != other);
    free(empty), free(other), free(NULL);
    char *text = strdup(cold_text("text")), *part = strndup(cold_text("partition"), 4), *printed = NULL;
    check("strdup and strndup", strcmp(text, "text") == 0 && strcmp(part, "part") == 0);
    check("asprintf", asprintf(&printed, "%s", text) == 4 && strcmp(printed, "text") == 0);
    printed = realloc(printed, 3 * MIB);
    check("realloc of the C library's memory", printed != NULL && strcmp(printed, "text") == 0);
    memset(printed, 1, 3 * MIB);
    free(text), free(part), free(printed);
    void *page = valloc(10), *pages = pvalloc(PAGE + 1);
    check("valloc and pvalloc", (uintptr_t)page % PAGE == 0 && (uintptr_t)pages % PAGE == 0 && malloc_usable_size(pages) >= 2 * PAGE);
    free(page), free(pages);
    check("malloc_trim and mallopt", malloc_trim(0) >= 0 && mallopt(M_MMAP_THRESHOLD, 65536) >= 0 && mallinfo2().arena > 0);
}

int main(void) {
    begin();
    mapping();
    moving();
    advice();
    protection();
    calls_on_protected();
    protected_and_used();
    replacing();
    heap();
    return done();
}
