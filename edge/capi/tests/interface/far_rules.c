/*
 * far_rules.c - far memory does what the header says, one rule after another
 *
 *     far_rules URL NOWHERE        checks everything
 *     far_rules URL twice|inside|foreign|closed|elsewhere        ends by a misuse
 *
 * tests/interface/far.rs builds and runs it.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yonder.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define MEMORY (32 * MIB)
#define LOCAL (2 * MIB)

static yonder_memory_config config = YONDER_MEMORY_CONFIG_DEFAULT;

static int open_with(const char *url, uint64_t memory_bytes, uint64_t local_bytes)
{
	config.far_url = url;
	config.memory_bytes = memory_bytes;
	config.local_bytes = local_bytes;
	return yonder_memory_open(&config);
}

static void refuses_what_cannot_be(const char *url, const char *nowhere)
{
	yonder_memory memory;

	errno = 0;
	CHECK(yonder_malloc(1) == NULL && errno == ENXIO);
	CHECK(yonder_calloc(1, 1) == NULL && yonder_memalign(16, 1) == NULL && yonder_realloc(NULL, 1) == NULL);
	CHECK(strstr(yonder_error_message(), "yonder_memory_open") != NULL);
	CHECK(yonder_memory_close() == -ENXIO && yonder_memory_stats(&memory) == -ENXIO);
	yonder_free(NULL);
	CHECK(yonder_malloc_usable_size(NULL) == 0);

	CHECK(yonder_memory_open(NULL) == -EINVAL && open_with(NULL, MEMORY, LOCAL) == -EINVAL);
	CHECK(open_with("what", MEMORY, LOCAL) == -EINVAL && open_with(nowhere, MEMORY, LOCAL) == -EHOSTUNREACH);
	CHECK(open_with(url, 0, LOCAL) == -EINVAL && open_with(url, (uint64_t)9 << 40, LOCAL) == -EINVAL);
	CHECK(open_with(url, MEMORY, 4096) == -EINVAL);
	CHECK(strstr(yonder_error_message(), "2 MiB") != NULL);
	config.prefetch = 3;
	CHECK(open_with(url, MEMORY, LOCAL) == -EINVAL);
	config.prefetch = YONDER_PREFETCH_TREND;
	config.size -= 1;
	CHECK(open_with(url, MEMORY, LOCAL) == -EINVAL);
	config.size += 1;
	CHECK(open_with(url, MEMORY, LOCAL) == 0 && open_with(url, MEMORY, LOCAL) == -EALREADY);
	CHECK(yonder_memory_stats(NULL) == -EINVAL);
	CHECK(yonder_memory_stats(&memory) == 0 && memory.memory_bytes == MEMORY && memory.local_limit_bytes == LOCAL);
}

static void allocates_as_the_c_library(void)
{
	unsigned char *block, *other;
	size_t align, index;

	CHECK((block = yonder_malloc(0)) != NULL && (other = yonder_malloc(0)) != NULL && block != other);
	yonder_free(block);
	yonder_free(other);
	errno = 0;
	CHECK(yonder_malloc(MEMORY + 1) == NULL && errno == ENOMEM);
	errno = 0;
	CHECK(yonder_calloc(SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
	errno = 0;
	CHECK(yonder_memalign(24, 8) == NULL && errno == EINVAL);
	CHECK(yonder_memalign(0, 8) == NULL && errno == EINVAL);
	for (align = 1; align <= 2 * MIB; align *= 2) {
		CHECK((block = yonder_memalign(align, 100)) != NULL && (uintptr_t)block % align == 0);
		CHECK((uintptr_t)block % 16 == 0 && yonder_malloc_usable_size(block) >= 100);
		memset(block, 7, 100);
		yonder_free(block);
	}
	/* From a small object to large memory and back, which moves where it must and keeps what was there. */
	CHECK((block = yonder_realloc(NULL, 10)) != NULL);
	memset(block, 1, 10);
	CHECK((block = yonder_realloc(block, 5 * MIB)) != NULL);
	memset(block + 10, 2, 5 * MIB - 10);
	CHECK((other = yonder_realloc(block, 4 * MIB)) == block);
	errno = 0;
	CHECK(yonder_realloc(block, MEMORY + 1) == NULL && errno == ENOMEM);
	CHECK(block[0] == 1 && block[9] == 1 && block[10] == 2 && block[4 * MIB - 1] == 2);
	CHECK((block = yonder_realloc(block, 20)) != NULL && block[9] == 1 && block[19] == 2);
	CHECK(yonder_realloc(block, 0) == NULL);
	/* Zeros where something was. */
	for (index = 0; index < 4; index++) {
		CHECK((block = yonder_malloc(3 * MIB)) != NULL);
		memset(block, 255, 3 * MIB);
		yonder_free(block);
		CHECK((block = yonder_calloc(3, MIB)) != NULL && block[0] == 0 && block[3 * MIB - 1] == 0);
		yonder_free(block);
	}
}

/* ---- Signals, forks and threads --------------------------------------------------------------------------------- */

static volatile unsigned char *seen_by_handler;
/* Where the interrupted code touches far memory. */
static volatile size_t touched;
static volatile sig_atomic_t handled;

static void handle(int number)
{
	static size_t at;
	size_t count;

	(void)number;
	if (seen_by_handler[touched] != (unsigned char)(touched >> 12))
		_exit(9);
	for (count = 0; count < 8; count++, at = (at + 4096) % (8 * MIB))
		if (seen_by_handler[at] != (unsigned char)(at >> 12))
			_exit(9);
	handled++;
}

/* Signals that come in the middle of faults, of the pages that the handler touches too, and while much is freed, find far memory
 * as it should be. */
static void handlers_touch_far_memory(void)
{
	struct itimerspec every = {{0, 300000}, {0, 300000}};
	struct sigaction action;
	unsigned char *block;
	timer_t timer;
	size_t at;
	int turn;

	CHECK((seen_by_handler = yonder_malloc(8 * MIB)) != NULL);
	for (at = 0; at < 8 * MIB; at += 4096)
		seen_by_handler[at] = (unsigned char)(at >> 12);
	memset(&action, 0, sizeof action);
	action.sa_handler = handle;
	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, NULL);
	CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0 && timer_settime(timer, 0, &every, NULL) == 0);
	for (turn = 0; turn < 40 || handled < 200; turn++) {
		CHECK((block = yonder_malloc(6 * MIB)) != NULL);
		for (at = 0; at < 6 * MIB; at += 4096)
			block[at] = 1;
		yonder_free(block);
	}
	for (at = 0; handled < 1500; at = at * 1103515245 + 12345) {
		touched = (at >> 8) % 2048 * 4096;
		CHECK(seen_by_handler[touched] == (unsigned char)(touched >> 12));
	}
	timer_delete(timer);
	yonder_free((void *)seen_by_handler);
}

static void a_child_has_no_far_memory(void)
{
	unsigned char *block = yonder_malloc(MIB);
	int status;
	pid_t child;

	CHECK(block != NULL);
	block[0] = 1;
	fflush(stdout);
	if ((child = fork()) == 0) {
		/* A child that touches nothing ends as it should, though this thread has a share. */
		exit(yonder_memory_close() == -ENXIO ? 7 : 8);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	if ((child = fork()) == 0)
		_exit(block[0]);
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	CHECK(block[0] == 1);
	yonder_free(block);
}

static pthread_key_t key;
static pthread_barrier_t met;

/* Runs when the library has taken the thread's share back, or before: both are right. */
static void free_late(void *block)
{
	yonder_free(block);
	yonder_free(yonder_malloc(32));
}

static void *uses(void *given)
{
	(void)given;
	pthread_setspecific(key, yonder_malloc(16));
	pthread_barrier_wait(&met);
	pthread_barrier_wait(&met);
	return NULL;
}

static void closes_when_nothing_is_left(const char *url)
{
	unsigned char *block;
	pthread_t thread;
	int turn;

	pthread_key_create(&key, free_late);
	pthread_barrier_init(&met, NULL, 2);
	for (turn = 0; turn < 3; turn++) {
		CHECK((block = yonder_malloc(16)) != NULL);
		CHECK(yonder_memory_close() == -EBUSY && strstr(yonder_error_message(), "free it first") != NULL);
		yonder_free(block);
		CHECK((block = yonder_malloc(MIB)) != NULL);
		block[0] = 1;
		CHECK(yonder_memory_close() == -EBUSY && block[0] == 1);
		yonder_free(block);
		pthread_create(&thread, NULL, uses, NULL);
		pthread_barrier_wait(&met);
		CHECK(yonder_memory_close() == -EBUSY && strstr(yonder_error_message(), "threads") != NULL);
		pthread_barrier_wait(&met);
		pthread_join(thread, NULL);
		CHECK(yonder_memory_close() == 0);
		errno = 0;
		CHECK(yonder_malloc(1) == NULL && errno == ENXIO && yonder_memory_close() == -ENXIO);
		CHECK(open_with(url, MEMORY, LOCAL) == 0);
	}
}

/* Does what no program may, and does not come back. */
static void misuse(const char *url, const char *how)
{
	static char local[16];
	char *block;

	if (strcmp(how, "closed") == 0)
		yonder_free(local);
	CHECK(open_with(url, MEMORY, LOCAL) == 0 && (block = yonder_malloc(64)) != NULL);
	if (strcmp(how, "twice") == 0) {
		yonder_free(block);
		yonder_free(block);
	}
	if (strcmp(how, "inside") == 0)
		yonder_free(block + 16);
	if (strcmp(how, "foreign") == 0)
		yonder_realloc(local, 100);
	if (strcmp(how, "elsewhere") == 0)
		printf("%zu\n", yonder_malloc_usable_size(block + 8 * MIB));
	printf("WRONG: %s went unnoticed\n", how);
	exit(1);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	if (strchr(argv[2], '/') == NULL)
		misuse(argv[1], argv[2]);
	refuses_what_cannot_be(argv[1], argv[2]);
	allocates_as_the_c_library();
	handlers_touch_far_memory();
	a_child_has_no_far_memory();
	closes_when_nothing_is_left(argv[1]);
	CHECK(yonder_memory_close() == 0);
	printf("done\n");
	return 0;
}
