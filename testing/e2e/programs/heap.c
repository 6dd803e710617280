// A stress of the allocator: threads that begin and end all the time, and free what others have allocated.
//
// Usage: heap SEED SECONDS. Every block has a pattern of its own size and number, which is looked at whenever it is resized and
// when it is freed; a block that overlaps another is seen then. Live memory is bounded.

#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { THREADS = 8, QUEUE = 256, OWN = 64, BLOCKS_MIN = 100 };
#define LIVE_MAX (200 * MIB)
#define LARGEST (64 * MIB)

struct block {
    unsigned char *memory;
    size_t bytes;
    uint64_t seed;
};

// Blocks on their way from one thread to another, in far memory themselves.
static struct queue {
    pthread_mutex_t lock;
    struct block blocks[QUEUE];
    int count;
} *queue;

static size_t live;
static uint64_t seeds, blocks_made, threads_ended;
static struct timespec until;

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

// Not before some blocks were made, on a machine that is busy with something else.
static int is_over(void) {
    if (__atomic_load_n(&blocks_made, __ATOMIC_RELAXED) <= BLOCKS_MIN) return 0;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec);
}

static void die_of(const struct block *block, const char *when, size_t at) {
    printf("WRONG: a block of %zu bytes at %p is damaged at %zu %s\n", block->bytes, (void *)block->memory, at, when);
    fflush(stdout);
    _exit(1);
}

// The word at a place of a block's pattern: large blocks have it in a word of each 512 bytes, and at both ends.
static uint64_t word_of(const struct block *block, size_t at) { return (block->seed + at) * 0x9e3779b97f4a7c15u; }

static size_t step_of(size_t bytes) { return bytes > 64 * KIB ? 512 : 8; }

static void mark(const struct block *block, size_t from) {
    size_t step = step_of(block->bytes);
    for (size_t at = from / step * step; at + 8 <= block->bytes; at += step) memcpy(block->memory + at, &(uint64_t){word_of(block, at)}, 8);
    for (size_t at = block->bytes / 8 * 8; at < block->bytes; at++) block->memory[at] = (unsigned char)block->seed;
}

static void look_at(const struct block *block, size_t bytes, size_t step, const char *when) {
    for (size_t at = 0; at + 8 <= bytes; at += step) {
        uint64_t word;
        memcpy(&word, block->memory + at, 8);
        if (word != word_of(block, at)) die_of(block, when, at);
    }
}

static void look_at_all(const struct block *block, const char *when) {
    look_at(block, block->bytes, step_of(block->bytes), when);
    for (size_t at = block->bytes / 8 * 8; at < block->bytes; at++)
        if (block->memory[at] != (unsigned char)block->seed) die_of(block, when, at);
}

// Sizes whose logarithm is uniform: from 1 byte to 64 MiB.
static size_t some_size(uint64_t *random) {
    int bits = (int)(next(random) % 27);
    // Most blocks of programs are small.
    if (bits > 17 && next(random) % 8 != 0) bits = (int)(next(random) % 12);
    size_t bytes = ((size_t)1 << bits) + next(random) % ((size_t)1 << bits);
    return bytes > LARGEST ? LARGEST : bytes;
}

static struct block allocate(uint64_t *random) {
    struct block block = {NULL, some_size(random), __atomic_add_fetch(&seeds, 1, __ATOMIC_RELAXED) * 0x10001};
    if (__atomic_add_fetch(&live, block.bytes, __ATOMIC_RELAXED) > LIVE_MAX) {
        __atomic_sub_fetch(&live, block.bytes, __ATOMIC_RELAXED);
        return (struct block){NULL, 0, 0};
    }
    switch (next(random) % 4) {
    case 0:
        block.memory = calloc(1, block.bytes);
        if (block.memory != NULL && !is_all(block.memory, block.bytes < MIB ? block.bytes : MIB, 0)) die_of(&block, "after calloc", 0);
        break;
    case 1: block.memory = aligned_alloc((size_t)16 << next(random) % 9, block.bytes); break;
    default: block.memory = malloc(block.bytes);
    }
    if (block.memory == NULL) {
        printf("WRONG: no memory for %zu bytes\n", block.bytes);
        fflush(stdout);
        _exit(1);
    }
    __atomic_add_fetch(&blocks_made, 1, __ATOMIC_RELAXED);
    mark(&block, 0);
    return block;
}

static void give_up(struct block *block) {
    if (block->memory == NULL) return;
    look_at_all(block, "when it is freed");
    free(block->memory);
    __atomic_sub_fetch(&live, block->bytes, __ATOMIC_RELAXED);
    block->memory = NULL;
}

static void resize(struct block *block, uint64_t *random) {
    if (block->memory == NULL) return;
    look_at_all(block, "before it is resized");
    size_t bytes = some_size(random), before = block->bytes;
    if (__atomic_add_fetch(&live, bytes, __ATOMIC_RELAXED) > LIVE_MAX) {
        __atomic_sub_fetch(&live, bytes, __ATOMIC_RELAXED);
        return;
    }
    unsigned char *memory = realloc(block->memory, bytes);
    if (memory == NULL) die_of(block, "because it cannot be resized", 0);
    __atomic_sub_fetch(&live, before, __ATOMIC_RELAXED);
    block->memory = memory;
    look_at(block, before < bytes ? before : bytes, step_of(before), "after it was resized");
    block->bytes = bytes;
    mark(block, 0);
}

// Swaps a block with one on the queue, or puts it there, or takes one.
static void pass_on(struct block *block, uint64_t *random) {
    pthread_mutex_lock(&queue->lock);
    if (queue->count > 0 && (block->memory == NULL || queue->count == QUEUE)) {
        struct block other = queue->blocks[--queue->count];
        if (block->memory != NULL) queue->blocks[queue->count++] = *block;
        *block = other;
    } else if (block->memory != NULL) {
        int place = (int)(next(random) % (uint64_t)(queue->count + 1));
        queue->blocks[queue->count++] = queue->blocks[place];
        queue->blocks[place] = *block;
        block->memory = NULL;
    }
    pthread_mutex_unlock(&queue->lock);
}

static void *work(void *given) {
    uint64_t random = (uintptr_t)given | 1;
    struct block *own = calloc(OWN, sizeof *own);
    for (int turn = 0; turn < 600 && !is_over(); turn++) {
        struct block *block = &own[next(&random) % OWN];
        switch (next(&random) % 5) {
        case 0:
        case 1:
            give_up(block);
            *block = allocate(&random);
            break;
        case 2: resize(block, &random); break;
        case 3: pass_on(block, &random); break;
        default: give_up(block);
        }
    }
    for (int index = 0; index < OWN; index++) give_up(&own[index]);
    free(own);
    __atomic_add_fetch(&threads_ended, 1, __ATOMIC_RELAXED);
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    uint64_t random = strtoull(arguments[1], NULL, 10) * 2654435761u + 1;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += atoi(arguments[2]);
    begin();
    queue = calloc(1, sizeof *queue);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_t threads[THREADS];
    for (int index = 0; index < THREADS; index++) pthread_create(&threads[index], NULL, work, (void *)(uintptr_t)next(&random));
    for (int index = 0; !is_over(); index = (index + 1) % THREADS) {
        pthread_join(threads[index], NULL);
        pthread_create(&threads[index], NULL, work, (void *)(uintptr_t)next(&random));
    }
    for (int index = 0; index < THREADS; index++) pthread_join(threads[index], NULL);
    check("blocks were made", blocks_made > BLOCKS_MIN);
    check("threads have come and gone", threads_ended > THREADS);
    while (queue->count > 0) give_up(&queue->blocks[--queue->count]);
    check("nothing is left", live == 0);
    sweep();
    return done();
}
