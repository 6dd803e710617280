/*
 * pipeline.c - many blocks at a time, by asynchronous writes and reads
 *
 *     cc pipeline.c -o pipeline $(pkg-config --cflags --libs yonder)
 *     yonder node --listen udp://127.0.0.1:7000 --memory 64MiB &
 *     ./pipeline udp://127.0.0.1:7000
 *
 * Allocates memory for 256 blocks, one allocation for each 16 of them, all asked for at once; writes the blocks with up to 16
 * under way, reads them back likewise, and frees all at once. A buffer belongs to the library from the call that begins an
 * operation until its result was told; then it is used for the next block.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yonder.h>

#define BLOCK 16384
#define BLOCKS 256
#define DEPTH 16
#define PARTS (BLOCKS / DEPTH)

static uint64_t parts[PARTS];
static unsigned char buffers[DEPTH][BLOCK];
static yonder_pending pending[DEPTH];

static void must(int result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "pipeline: %s: %s\n", what, yonder_error_message());
		exit(1);
	}
}

/* Any byte that tells blocks from each other. */
static int content(int block)
{
	return 1 + block % 251;
}

/* Waits for what was begun with the buffer `slot`, if something was. */
static void finish(yonder_thread *thread, int slot)
{
	if (pending[slot] != 0)
		must(yonder_rwait(thread, pending[slot]), "rwait");
	pending[slot] = 0;
}

/* Where a block is. */
static uint64_t place(int block)
{
	return parts[block / DEPTH] + (uint64_t)(block % DEPTH) * BLOCK;
}

/* Asks for all parts before the first address is there. */
static void allocate_all(yonder_thread *thread)
{
	yonder_pending allocating[PARTS];
	int part;

	for (part = 0; part < PARTS; part++)
		must(yonder_ralloc_async(thread, (uint64_t)DEPTH * BLOCK, YONDER_READ | YONDER_WRITE, &parts[part],
					 &allocating[part]),
		     "ralloc_async");
	for (part = 0; part < PARTS; part++)
		must(yonder_rwait(thread, allocating[part]), "ralloc");
}

static void free_all(yonder_thread *thread)
{
	yonder_pending freeing[PARTS];
	int part;

	for (part = 0; part < PARTS; part++)
		must(yonder_rfree_async(thread, parts[part], &freeing[part]), "rfree_async");
	for (part = 0; part < PARTS; part++)
		must(yonder_rwait(thread, freeing[part]), "rfree");
}

static void write_all(yonder_thread *thread)
{
	int block;

	for (block = 0; block < BLOCKS; block++) {
		int slot = block % DEPTH;

		finish(thread, slot);
		memset(buffers[slot], content(block), BLOCK);
		must(yonder_rwrite_async(thread, place(block), buffers[slot], BLOCK, &pending[slot]), "rwrite_async");
	}
	must(yonder_rrelease(thread), "rrelease");
	for (block = 0; block < DEPTH; block++)
		finish(thread, block);
}

/* Counts the blocks that are not as they should be. */
static int check_all(yonder_thread *thread)
{
	int block, wrong = 0;

	for (block = 0; block < BLOCKS + DEPTH; block++) {
		int slot = block % DEPTH;

		if (block >= DEPTH) {
			const unsigned char *bytes = buffers[slot];

			finish(thread, slot);
			wrong += bytes[0] != content(block - DEPTH) || memcmp(bytes, bytes + 1, BLOCK - 1) != 0;
		}
		if (block < BLOCKS)
			must(yonder_rread_async(thread, place(block), buffers[slot], BLOCK, &pending[slot]), "rread_async");
	}
	return wrong;
}

int main(int argc, char **argv)
{
	yonder_config config = YONDER_CONFIG_DEFAULT;
	yonder_process *process;
	yonder_thread *thread;
	int wrong;

	if (argc != 2) {
		fprintf(stderr, "usage: pipeline URL, such as udp://127.0.0.1:7000\n");
		return 2;
	}
	config.pending_max = DEPTH;
	must(yonder_process_create(argv[1], &config, &process), "create");
	must(yonder_thread_open(process, &thread), "thread");
	allocate_all(thread);
	write_all(thread);
	wrong = check_all(thread);
	free_all(thread);
	printf("%d blocks written and read, %d of them wrong\n", BLOCKS, wrong);
	yonder_thread_close(thread);
	yonder_process_close(process);
	return wrong == 0 ? 0 : 1;
}
