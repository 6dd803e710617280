/*
 * far_heap.c - threads that begin and end, and free what others have allocated
 *
 *     far_heap URL SEED
 *
 * Every block has a pattern of its own, which is looked at whenever it is resized and freed: a block that overlaps another is seen
 * then, and so is a page that came back with what it had not. Sizes are from 1 byte to 64 MiB, live memory is bounded, and local
 * memory is a small part of it. tests/interface/far.rs builds and runs it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yonder.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define THREADS 6
#define GENERATIONS 3
#define TURNS 150
#define OWN 48
#define QUEUE 128
#define LARGEST (64 * MIB)
#define LIVE_MAX (160 * MIB)
#define LOCAL (8 * MIB)

struct block {
	unsigned char *memory;
	size_t bytes;
	uint64_t seed;
};

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static struct block queue[QUEUE];
static int queued;
static size_t live;
static uint64_t seeds;

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void die(const struct block *block, const char *what)
{
	printf("WRONG: a block of %zu bytes at %p %s: %s\n", block->bytes, (void *)block->memory, what,
	       yonder_error_message());
	exit(1);
}

/* Bytes of a block that are looked at: all of a small one, and the ends and some between of a large one. */
static size_t step_of(size_t bytes)
{
	return bytes > 64 * KIB ? 1000 : 1;
}

static unsigned char byte_of(uint64_t seed, size_t at)
{
	return (unsigned char)((at + seed) * 0x9e3779b97f4a7c15u >> 56);
}

static void mark(const struct block *block)
{
	size_t at, step = step_of(block->bytes);

	for (at = 0; at < block->bytes; at += step)
		block->memory[at] = byte_of(block->seed, at);
	block->memory[block->bytes - 1] = byte_of(block->seed, block->bytes - 1);
}

static void look_at(const struct block *block, const unsigned char *memory, size_t bytes, const char *when)
{
	size_t at, step = step_of(block->bytes);

	for (at = 0; at < bytes; at += step)
		if (memory[at] != byte_of(block->seed, at))
			die(block, when);
	if (bytes == block->bytes && memory[bytes - 1] != byte_of(block->seed, bytes - 1))
		die(block, when);
}

static int is_live_enough(size_t bytes)
{
	if (__atomic_add_fetch(&live, bytes, __ATOMIC_RELAXED) <= LIVE_MAX)
		return 0;
	__atomic_sub_fetch(&live, bytes, __ATOMIC_RELAXED);
	return 1;
}

/* Most are small, and the logarithm of the others is uniform. */
static size_t some_size(uint64_t *random)
{
	unsigned bits = (unsigned)(next(random) % 27);
	size_t bytes;

	if (bits > 14 && next(random) % 8 != 0)
		bits %= 13;
	bytes = ((size_t)1 << bits) + next(random) % ((size_t)1 << bits);
	return bytes > LARGEST ? LARGEST : bytes;
}

static void check_zeros(const struct block *block)
{
	size_t at;

	for (at = 0; at < block->bytes; at += step_of(block->bytes))
		if (block->memory[at] != 0)
			die(block, "is not zeros");
}

static void allocate(struct block *block, uint64_t *random)
{
	size_t align = 1;

	block->bytes = some_size(random);
	block->seed = __atomic_add_fetch(&seeds, 1, __ATOMIC_RELAXED) * 0x10001;
	if (is_live_enough(block->bytes))
		return;
	switch (next(random) % 4) {
	case 0:
		block->memory = yonder_calloc(1, block->bytes);
		if (block->memory != NULL)
			check_zeros(block);
		break;
	case 1:
		align = (size_t)1 << next(random) % 22;
		block->memory = yonder_memalign(align, block->bytes);
		break;
	default:
		block->memory = yonder_malloc(block->bytes);
	}
	if (block->memory == NULL || (uintptr_t)block->memory % align != 0 ||
	    yonder_malloc_usable_size(block->memory) < block->bytes)
		die(block, "was allocated");
	mark(block);
}

static void give_up(struct block *block)
{
	if (block->memory == NULL)
		return;
	look_at(block, block->memory, block->bytes, "is freed");
	yonder_free(block->memory);
	__atomic_sub_fetch(&live, block->bytes, __ATOMIC_RELAXED);
	block->memory = NULL;
}

static void resize(struct block *block, uint64_t *random)
{
	size_t bytes = some_size(random), before = block->bytes;
	unsigned char *memory;

	if (block->memory == NULL || is_live_enough(bytes))
		return;
	look_at(block, block->memory, before, "is resized");
	memory = yonder_realloc(block->memory, bytes);
	if (memory == NULL)
		die(block, "cannot be resized");
	look_at(block, memory, before < bytes ? before : bytes, "was resized");
	__atomic_sub_fetch(&live, before, __ATOMIC_RELAXED);
	block->memory = memory;
	block->bytes = bytes;
	mark(block);
}

/* Swaps a block with one that another thread has left. */
static void pass_on(struct block *block, uint64_t *random)
{
	struct block other = *block;
	int place;

	pthread_mutex_lock(&queue_lock);
	if (queued < QUEUE) {
		block->memory = NULL;
		queue[queued++] = other;
	}
	place = (int)(next(random) % (uint64_t)queued);
	other = queue[place];
	queue[place] = *block;
	*block = other;
	pthread_mutex_unlock(&queue_lock);
}

static void *work(void *given)
{
	uint64_t random = (uintptr_t)given | 1;
	struct block own[OWN];
	int turn;

	memset(own, 0, sizeof own);
	for (turn = 0; turn < TURNS; turn++) {
		struct block *block = &own[next(&random) % OWN];

		switch (next(&random) % 5) {
		case 0:
		case 1:
			give_up(block);
			allocate(block, &random);
			break;
		case 2:
			resize(block, &random);
			break;
		case 3:
			pass_on(block, &random);
			break;
		default:
			give_up(block);
		}
	}
	for (turn = 0; turn < OWN; turn++)
		give_up(&own[turn]);
	return NULL;
}

int main(int argc, char **argv)
{
	yonder_memory_config config = YONDER_MEMORY_CONFIG_DEFAULT;
	yonder_memory memory;
	pthread_t threads[THREADS];
	uint64_t random;
	int index, generation;

	if (argc != 3)
		return 2;
	random = strtoull(argv[2], NULL, 10) * 2654435761u + 1;
	config.far_url = argv[1];
	config.memory_bytes = 384 * MIB;
	config.local_bytes = LOCAL;
	if (yonder_memory_open(&config) < 0) {
		printf("WRONG: %s\n", yonder_error_message());
		return 1;
	}
	for (generation = 0; generation < GENERATIONS; generation++) {
		for (index = 0; index < THREADS; index++)
			pthread_create(&threads[index], NULL, work, (void *)(uintptr_t)next(&random));
		for (index = 0; index < THREADS; index++)
			pthread_join(threads[index], NULL);
	}
	for (index = 0; index < queued; index++)
		give_up(&queue[index]);
	if (live != 0 || yonder_memory_stats(&memory) < 0 || memory.local_bytes_max > LOCAL ||
	    memory.used_bytes_max < 4 * LOCAL || memory.fetched_bytes < LOCAL) {
		printf("WRONG: %zu bytes are live, %llu used, %llu local, %llu fetched\n", live,
		       (unsigned long long)memory.used_bytes_max, (unsigned long long)memory.local_bytes_max,
		       (unsigned long long)memory.fetched_bytes);
		return 1;
	}
	if (yonder_memory_close() < 0) {
		printf("WRONG: %s\n", yonder_error_message());
		return 1;
	}
	printf("done\n");
	return 0;
}
