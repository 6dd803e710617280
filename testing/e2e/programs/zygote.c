// A program with an allocator of its own, which is started as the processes are that fork Chromium's other ones.

#include "check.h"

#include <dirent.h>

static unsigned char first[64 << 10];
static unsigned char *next = first, *end = first + sizeof first;

// Gives memory out of large mappings, and takes nothing back.
void *malloc(size_t bytes) {
    size_t whole = (bytes + sizeof(size_t) + 15) & ~(size_t)15;
    if (whole > (size_t)(end - next)) {
        size_t mapped = whole > 4 * MIB ? whole + PAGE : 4 * MIB;
        next = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        end = next + mapped;
    }
    unsigned char *memory = next + 16;
    next += whole + 16;
    memcpy(memory - sizeof bytes, &bytes, sizeof bytes);
    return memory;
}

void free(void *memory) { (void)memory; }

void *calloc(size_t count, size_t bytes) { return malloc(count * bytes); }

void *realloc(void *old, size_t bytes) {
    unsigned char *memory = malloc(bytes);
    size_t old_bytes = 0;
    if (old != NULL) memcpy(&old_bytes, (unsigned char *)old - sizeof old_bytes, sizeof old_bytes);
    if (old != NULL) memcpy(memory, old, old_bytes < bytes ? old_bytes : bytes);
    return memory;
}

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int found = 0;
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) found += task->d_name[0] != '.';
    closedir(tasks);
    return found;
}

int main(void) {
    check("it has one thread", threads() == 1);
    unsigned char *memory = malloc(32 * MIB);
    fill(memory, 32 * MIB, 1);
    check("its memory is local", !is_far(memory) && is_filled(memory, 32 * MIB, 1));
    check("and it has one thread still", threads() == 1);
    return done();
}
