/*
 * swap_advise.c - advice has the effect that the header says
 *
 *     swap_advise URL
 *
 * tests/interface/far.rs builds and runs it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yonder.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define MEMORY (32 * MIB)
#define LOCAL (8 * MIB)

static void open_far(const char *url, uint64_t prefetch)
{
	yonder_memory_config config = YONDER_MEMORY_CONFIG_DEFAULT;

	config.far_url = url;
	config.memory_bytes = MEMORY;
	config.local_bytes = LOCAL;
	config.prefetch = prefetch;
	CHECK(yonder_memory_open(&config) == 0);
}

static uint64_t major_faults(void)
{
	yonder_memory memory;

	CHECK(yonder_memory_stats(&memory) == 0);
	return memory.major_faults;
}

static void write_pages(unsigned char *at, size_t bytes)
{
	for (size_t offset = 0; offset < bytes; offset += PAGE)
		memset(at + offset, (int)(1 + offset / PAGE % 251), 64);
}

/* Reads the pages in an order that no sequence explains; how many of them had to be waited for. */
static uint64_t read_pages(const unsigned char *at, size_t bytes)
{
	const uint64_t before = major_faults();
	const size_t pages = bytes / PAGE;

	/* 37 has no divisor in common with the numbers of pages used here. */
	for (size_t step = 0; step < pages; step++) {
		const size_t page = step * 37 % pages;
		CHECK(at[page * PAGE] == 1 + page % 251);
	}
	return major_faults() - before;
}

static void refuses_what_cannot_be(const char *url)
{
	char near[1] = { 0 };
	char *far;

	CHECK(yonder_swap_advise(near, 1, 1) == -ENXIO);
	open_far(url, YONDER_PREFETCH_READAHEAD);
	far = yonder_malloc(MIB);
	CHECK(far != NULL);
	for (int out = 0; out < 2; out++) {
		CHECK(yonder_swap_advise(far, 0, out) == -EINVAL);
		CHECK(yonder_swap_advise(NULL, 1, out) == -EFAULT && yonder_swap_advise(near, 1, out) == -EFAULT);
		CHECK(strstr(yonder_error_message(), "not in one region") != NULL);
		CHECK(yonder_swap_advise(far, MEMORY + 1, out) == -EFAULT && yonder_swap_advise(far, SIZE_MAX, out) == -EFAULT);
		CHECK(yonder_swap_advise(far, MIB, out) == 0 && yonder_swap_advise(far, 1, out) == 0);
	}
	yonder_free(far);
	CHECK(yonder_memory_close() == 0);
}

/* Of two halves of what is local, the second is advised out; then there is need of room. */
static void what_is_advised_out_goes_first(const char *url)
{
	const size_t half = 3 * MIB, more = 2 * MIB;
	unsigned char *far;

	open_far(url, YONDER_PREFETCH_NONE);
	far = yonder_malloc(2 * half + more);
	CHECK(far != NULL);
	write_pages(far, half);
	write_pages(far + half, half);
	CHECK(yonder_swap_advise(far + half, half, 1) == 0);
	write_pages(far + 2 * half, more);
	CHECK(read_pages(far, half) == 0);
	CHECK(read_pages(far + half, half) > 0);
	yonder_free(far);
	CHECK(yonder_memory_close() == 0);
}

/* Of two parts that are far, one is advised to be fetched together. */
static void what_is_advised_ahead_comes_together(const char *url)
{
	const size_t part = 96 * PAGE, rest = 24 * MIB;
	unsigned char *far;
	uint64_t advised, other;

	open_far(url, YONDER_PREFETCH_READAHEAD);
	far = yonder_malloc(2 * part + rest);
	CHECK(far != NULL);
	write_pages(far, part);
	write_pages(far + part, part);
	write_pages(far + 2 * part, rest);
	CHECK(yonder_swap_advise(far + part, part, 0) == 0);
	other = read_pages(far, part);
	advised = read_pages(far + part, part);
	printf("%d of the pages were waited for, and %d without advice\n", (int)advised, (int)other);
	CHECK(advised > 0 && advised * 2 < other);
	yonder_free(far);
	CHECK(yonder_memory_close() == 0);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	refuses_what_cannot_be(argv[1]);
	what_is_advised_out_goes_first(argv[1]);
	what_is_advised_ahead_comes_together(argv[1]);
	printf("done\n");
	return 0;
}
