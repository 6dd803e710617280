// Memory that is locked, which never leaves, and memory that is unlocked again.

#include "check.h"

static unsigned char *mapped(size_t bytes) {
    unsigned char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) exit(1);
    return memory;
}

// How many pages of a range are in memory.
static size_t here(unsigned char *memory, size_t bytes) {
    unsigned char told[512];
    size_t count = 0;
    if (bytes > sizeof told * PAGE || mincore(memory, bytes, told) != 0) return SIZE_MAX;
    for (size_t page = 0; page < bytes / PAGE; page++) count += told[page] & 1;
    return count;
}

// Makes room short.
static void take_room(unsigned char *large, size_t bytes) {
    for (int round = 0; round < 2; round++)
        for (size_t at = 0; at < bytes; at += PAGE) large[at]++;
}

int main(void) {
    enum { SECRET = 64 * 1024 };
    size_t large_bytes = 96 * MIB;
    unsigned char *large = mapped(large_bytes), *secret = mapped(MIB);
    // A block of 2 MiB stays as a whole where a page of it is locked: this is in another one.
    unsigned char *plain = mapped(4 * MIB) + 2 * MIB;
    take_room(large, large_bytes);
    fill(secret, MIB, 1);
    fill(plain, MIB, 2);
    check("memory is locked", mlock(secret + 100, SECRET - 200) == 0);
    check("and more of it", mlock2(secret + SECRET, SECRET, 0) == 0 && mlock(secret, PAGE) == 0);
    take_room(large, large_bytes);
    check("it has not left", here(secret, 2 * SECRET) == 2 * SECRET / PAGE);
    check("what is not locked has", !is_far_run() || here(plain, MIB) < MIB / PAGE);
    check("both are as they were", is_filled(secret, MIB, 1) && is_filled(plain, MIB, 2));
    check("what is locked is not dropped", madvise(secret, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
    int is_unlocked = munlock(secret, PAGE) == 0 && madvise(secret, PAGE, MADV_DONTNEED) == 0;
    check("nothing is locked twice", is_unlocked && secret[0] == 0);
    check("it is unlocked", munlock(secret, 2 * SECRET) == 0);
    take_room(large, large_bytes);
    check("and may leave", !is_far_run() || here(secret, 2 * SECRET) < 2 * SECRET / PAGE);
    check("and come back", is_filled(plain, MIB, 2) && secret[0] == 0);
    int is_right = 1;
    for (int round = 0; round < 200; round++) {
        unsigned char *some = mapped(MIB);
        is_right = is_right && mlock(some, MIB) == 0 && is_all(some, MIB, 0);
        some[round] = 1;
        is_right = is_right && (round % 2 == 0 || munlock(some, MIB) == 0) && munmap(some, MIB) == 0;
    }
    check("what is unmapped is not locked any more", is_right);
    errno = 0;
    int locked = mlock(large, large_bytes), is_too_much = locked == -1 && errno == ENOMEM;
    check("there is a limit", is_far_run() ? is_too_much : locked == 0 || is_too_much);
    take_room(large, large_bytes);
    check("and the rest goes on", munlock(large, large_bytes) == 0 && is_filled(plain, MIB, 2));
    return done();
}
