/*
 * far_errors.c - paging errors are caught where the header says
 *
 *     far_errors full URL          URL takes no writes: local memory stays full
 *     far_errors uncaught URL      the same, outside of YONDER_TRY
 *     far_errors lost URL          says "ready", and goes on when the node at URL is gone and a byte has come
 *
 * tests/interface/far.rs builds and runs it.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <yonder_threads.h>

#include "check.h"

#define MEMORY ((size_t)16 << 20)
#define LOCAL ((size_t)2 << 20)
#define PAGE ((size_t)4096)

/* The second where a node has to answer, on a machine that may be busy. */
#define SHORT UINT64_C(60000000)
#define LONG UINT64_C(1500000000)

static volatile unsigned char *memory;

static void open_at(const char *url, uint64_t deadline_ns)
{
	yonder_memory_config config = YONDER_MEMORY_CONFIG_DEFAULT;

	config.far_url = url;
	config.memory_bytes = 2 * MEMORY;
	config.local_bytes = LOCAL;
	config.deadline_ns = deadline_ns;
	CHECK(yonder_memory_open(&config) == 0);
	memory = yonder_malloc(MEMORY);
	CHECK(memory != NULL);
}

/* Writes until a page cannot be had, some frames deep and with registers in use. */
static size_t fill(size_t from, size_t depth)
{
	size_t at, a = from + 1, b = from + 2, c = from + 3, d = from + 4;

	if (depth > 0)
		return fill(from, depth - 1) + a + b + c + d;
	for (at = from; at < MEMORY; at += PAGE)
		memory[at] = (unsigned char)(at / PAGE);
	return a + b + c + d;
}

static int is_inside(const void *address)
{
	return (const unsigned char *)address >= memory && (const unsigned char *)address < memory + MEMORY;
}

/* Leaves YONDER_TRY by return. */
static int returns(int value)
{
	YONDER_TRY {
		return value;
	} YONDER_CATCH(code, address) {
		CHECK(!"nothing was touched");
	} YONDER_END
	return 0;
}

static int catches(void)
{
	volatile int caught = 0;
	volatile int inner = 0;
	volatile int turn;

	for (turn = 0; turn < 3; turn++) {
		YONDER_TRY {
			YONDER_TRY {
				fill(0, 5);
			} YONDER_CATCH(code, address) {
				CHECK(code == YONDER_CAUGHT_LOCAL_FULL && is_inside(address));
				CHECK(strstr(yonder_caught_text(code), "stays full") != NULL);
				inner++;
			} YONDER_END
			CHECK(returns(7) == 7);
			if (turn == 1)
				continue;
			fill(0, 0);
			CHECK(!"there is no room");
		} YONDER_CATCH(code, address) {
			CHECK(code == YONDER_CAUGHT_LOCAL_FULL && is_inside(address));
			caught++;
		} YONDER_END
	}
	CHECK(inner == 3);
	return caught;
}

static void *in_a_thread(void *argument)
{
	(void)argument;
	CHECK(yonder_caught(NULL) == 0);
	CHECK(catches() == 2);
	return NULL;
}

/* A page of local memory that nobody may write. */
static volatile unsigned char *barrier;

static void on_barrier(int signal, siginfo_t *info, void *context)
{
	(void)context;
	if (signal != SIGSEGV || info->si_addr != (const volatile void *)barrier)
		_exit(3);
	fill(0, 0);
}

/* YONDER_TRY around a signal's handler ends that too, and the signal can come again. */
static void catches_in_handlers(void)
{
	volatile int turn, caught = 0;
	sigset_t held;

	for (turn = 0; turn < 2; turn++) {
		YONDER_TRY {
			*barrier = 1;
		} YONDER_CATCH(code, address) {
			CHECK(code == YONDER_CAUGHT_LOCAL_FULL && is_inside(address));
			caught++;
		} YONDER_END
		CHECK(pthread_sigmask(SIG_SETMASK, NULL, &held) == 0);
		CHECK(!sigismember(&held, SIGSEGV) && sigismember(&held, SIGUSR1));
	}
	CHECK(caught == 2);
}

static void *in_a_light_thread(void *argument)
{
	yonder_yield();
	CHECK(catches() == 2);
	catches_in_handlers();
	return argument;
}

/* Each has scopes of its own, also where it is left in the middle of one. */
static void *in_light_threads(void *argument)
{
	yonder_light_thread *threads[4];
	int thread;

	for (thread = 0; thread < 4; thread++)
		CHECK(yonder_spawn(in_a_light_thread, NULL, &threads[thread]) == 0);
	CHECK(catches() == 2);
	for (thread = 0; thread < 4; thread++)
		CHECK(yonder_join(threads[thread], NULL) == 0);
	return argument;
}

static void full(const char *url)
{
	pthread_t threads[2];
	int thread;
	struct sigaction action;
	void *page;

	CHECK(posix_memalign(&page, PAGE, PAGE) == 0 && mprotect(page, PAGE, PROT_NONE) == 0);
	barrier = page;
	memset(&action, 0, sizeof action);
	action.sa_flags = SA_SIGINFO;
	action.sa_sigaction = on_barrier;
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	open_at(url, SHORT);
	CHECK(strcmp(yonder_caught_text(0), "no paging error") == 0);
	for (thread = 0; thread < 2; thread++)
		CHECK(pthread_create(&threads[thread], NULL, in_a_thread, NULL) == 0);
	CHECK(catches() == 2);
	for (thread = 0; thread < 2; thread++)
		CHECK(pthread_join(threads[thread], NULL) == 0);
	CHECK(yonder_threads_run(NULL, in_light_threads, NULL, NULL) == 0);
}

static void lost(const char *url)
{
	volatile size_t right = 0, caught = 0;
	volatile size_t at;
	char byte;

	open_at(url, LONG);
	fill(0, 0);
	puts("ready");
	fflush(stdout);
	CHECK(read(0, &byte, 1) == 1);
	for (at = 0; at < MEMORY; at += PAGE) {
		YONDER_TRY {
			CHECK(memory[at] == (unsigned char)(at / PAGE));
			right++;
		} YONDER_CATCH(code, address) {
			CHECK(code == YONDER_CAUGHT_NODE_LOST || code == YONDER_CAUGHT_TIMED_OUT);
			CHECK(address == (const void *)(memory + at));
			caught++;
			if (caught == 3)
				break;
		} YONDER_END
	}
	CHECK(caught == 3);
	/* Closing would wait for the node. */
	puts("done");
	fflush(stdout);
	_exit(0);
}

int main(int count, char **arguments)
{
	CHECK(count == 3);
	if (strcmp(arguments[1], "full") == 0) {
		full(arguments[2]);
	} else if (strcmp(arguments[1], "uncaught") == 0) {
		open_at(arguments[2], SHORT);
		fill(0, 0);
	} else {
		lost(arguments[2]);
	}
	puts("done");
	fflush(stdout);
	_exit(0);
}
