/*
 * threads.c - light threads do what yonder_threads.h says, over far memory that is larger than local memory
 *
 *     threads URL WORKERS
 *     threads URL overflow         a light thread overflows its stack
 *     threads URL step             it does so by large frames, and steps over a part
 *
 * tests/interface/threads.rs builds and runs it.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <ucontext.h>
#include <unistd.h>

#include <yonder_threads.h>

#include "check.h"

#define MEMORY ((size_t)16 << 20)
#define LOCAL ((size_t)4 << 20)
#define PAGE ((size_t)4096)
#define PAGES (MEMORY / PAGE)
#define LIGHT ((size_t)64)

static const char *url;
static uint64_t workers;

/* ---- Without light threads -------------------------------------------------------------------------------------- */

static void *never(void *argument)
{
	CHECK(argument == NULL && !"it was run");
	return NULL;
}

static void refusals(void)
{
	yonder_threads_config config = YONDER_THREADS_CONFIG_DEFAULT;
	yonder_mutex *mutex = yonder_mutex_new();
	yonder_cond *cond = yonder_cond_new();
	yonder_semaphore *semaphore = yonder_semaphore_new(1);

	CHECK(yonder_threads_run(NULL, NULL, NULL, NULL) == -EINVAL);
	CHECK(yonder_spawn(never, NULL, NULL) == -EPERM);
	CHECK(yonder_join(NULL, NULL) == -EINVAL);
	CHECK(!yonder_is_light_thread());
	config.size = 8;
	CHECK(yonder_threads_run(&config, never, NULL, NULL) == -EINVAL);
	config.size = sizeof config;
	config.workers = 0;
	CHECK(yonder_threads_run(&config, never, NULL, NULL) == -EINVAL);
	config.workers = 1;
	config.stack_bytes = 1;
	CHECK(yonder_threads_run(&config, never, NULL, NULL) == -EINVAL);
	config.stack_bytes = 65536;
	config.light_threads = UINT64_MAX;
	CHECK(yonder_threads_run(&config, never, NULL, NULL) == -EINVAL);

	/* Locks work for all threads. */
	CHECK(yonder_mutex_unlock(mutex) == -EPERM && yonder_cond_wait(cond, mutex) == -EPERM);
	CHECK(yonder_mutex_lock(mutex) == 0 && yonder_mutex_trylock(mutex) == -EBUSY);
	CHECK(yonder_cond_timedwait(cond, mutex, 1000) == -ETIMEDOUT);
	CHECK(yonder_mutex_unlock(mutex) == 0 && yonder_mutex_unlock(mutex) == -EPERM);
	CHECK(yonder_mutex_lock(NULL) == -EINVAL && yonder_cond_signal(NULL) == -EINVAL);
	CHECK(yonder_semaphore_acquire(semaphore) == 0 && yonder_semaphore_try_acquire(semaphore) == -EAGAIN);
	CHECK(yonder_semaphore_release(semaphore) == 0 && yonder_semaphore_try_acquire(semaphore) == 0);
	CHECK(yonder_channel_new(0) == NULL);
	yonder_semaphore_free(semaphore);
	yonder_cond_free(cond);
	yonder_mutex_free(mutex);
	yonder_mutex_free(NULL);
	yonder_channel_free(NULL);
	yonder_socket_close(NULL);
	yonder_detach(NULL);
}

/* ---- Faults ----------------------------------------------------------------------------------------------------- */

/* How many light threads of the only worker are between two touches, and were at most. */
static volatile int inside, inside_max;

struct walk {
	volatile uint64_t *memory;
	size_t first, turn;
};

/* Every LIGHTth page from the first on is this light thread's. */
static void *walk(void *argument)
{
	struct walk *walk = argument;
	size_t page;

	for (page = walk->first; page < PAGES; page += LIGHT) {
		volatile uint64_t *word = walk->memory + page * PAGE / sizeof *word;

		if (workers == 1)
			inside_max = ++inside > inside_max ? inside : inside_max;
		errno = (int)walk->first;
		CHECK(*word == (walk->turn - 1) * (page + 1));
		*word = walk->turn * (page + 1);
		CHECK(errno == (int)walk->first);
		if (workers == 1)
			inside--;
	}
	CHECK(yonder_is_light_thread());
	return argument;
}

static void faults_yield(void)
{
	struct walk walks[LIGHT];
	yonder_light_thread *threads[LIGHT];
	yonder_memory before, after;
	uint64_t *memory = yonder_calloc(1, MEMORY);
	size_t i, turn;
	void *result;

	CHECK(memory != NULL && yonder_memory_stats(&before) == 0);
	inside_max = 0;
	for (turn = 1; turn <= 3; turn++) {
		for (i = 0; i < LIGHT; i++) {
			walks[i].memory = memory;
			walks[i].first = i;
			walks[i].turn = turn;
			CHECK(yonder_spawn(walk, &walks[i], &threads[i]) == 0);
		}
		for (i = 0; i < LIGHT; i++)
			CHECK(yonder_join(threads[i], &result) == 0 && result == &walks[i]);
	}
	CHECK(yonder_memory_stats(&after) == 0);
	CHECK(after.major_faults > before.major_faults && after.fetched_bytes > before.fetched_bytes + MEMORY);
	CHECK(after.local_bytes_max <= LOCAL);
	/* One that waits for its page leaves the worker to others. */
	CHECK(workers > 1 || inside_max > 1);
	yonder_free(memory);
}

/* Others are let in also after a light thread has changed the mask of signals and put it back. */
static void masks_are_put_back(void)
{
	sigset_t one, before;

	sigemptyset(&one);
	sigaddset(&one, SIGPIPE);
	CHECK(pthread_sigmask(SIG_BLOCK, &one, &before) == 0 && pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
	faults_yield();
}

/* Allocates, checks and frees, with pages that leave and come meanwhile. */
static void *allocate(void *argument)
{
	size_t seed = *(size_t *)argument, turn, i;

	for (turn = 0; turn < 200; turn++) {
		size_t bytes = seed * 37 % 5000 + turn * 13 % 3000 + 1;
		unsigned char *block = yonder_calloc(1, bytes);

		CHECK(block != NULL);
		for (i = 0; i < bytes; i += 100)
			CHECK(block[i] == 0);
		memset(block, (int)(seed & 255), bytes);
		block = yonder_realloc(block, 2 * bytes);
		CHECK(block != NULL);
		for (i = 0; i < bytes; i += 100)
			CHECK(block[i] == (unsigned char)(seed & 255));
		memset(block, 255, yonder_malloc_usable_size(block));
		yonder_free(block);
	}
	return NULL;
}

static void heap_is_for_all(void)
{
	size_t seeds[LIGHT], i;
	yonder_light_thread *threads[LIGHT];
	unsigned char *rest = yonder_malloc(MEMORY);

	CHECK(rest != NULL);
	for (i = 0; i < LIGHT; i++) {
		seeds[i] = i;
		CHECK(yonder_spawn(allocate, &seeds[i], &threads[i]) == 0);
	}
	/* So that there is no room. */
	for (i = 0; i < MEMORY; i += PAGE) {
		rest[i] = 1;
		if (i % (64 * PAGE) == 0)
			yonder_yield();
	}
	for (i = 0; i < LIGHT; i++)
		CHECK(yonder_join(threads[i], NULL) == 0);
	yonder_free(rest);
}

/* ---- Locks and channels ----------------------------------------------------------------------------------------- */

struct shared {
	yonder_mutex *mutex;
	yonder_cond *cond;
	yonder_semaphore *semaphore;
	yonder_channel *channel;
	volatile uint64_t *memory; /* far */
	volatile uint64_t sum;
	volatile int holders, turn;
};

static void *count(void *argument)
{
	struct shared *shared = argument;
	size_t i;

	for (i = 0; i < 100; i++) {
		CHECK(yonder_mutex_lock(shared->mutex) == 0);
		CHECK(++shared->holders == 1);
		shared->memory[i * PAGE * 40 % MEMORY / sizeof *shared->memory]++;
		CHECK(shared->holders-- == 1);
		CHECK(yonder_mutex_unlock(shared->mutex) == 0);

		CHECK(yonder_semaphore_acquire(shared->semaphore) == 0);
		yonder_yield();
		CHECK(yonder_semaphore_release(shared->semaphore) == 0);
	}
	return NULL;
}

static void *alternate(void *argument)
{
	struct shared *shared = argument;
	int i, mine;

	CHECK(yonder_mutex_lock(shared->mutex) == 0);
	mine = shared->holders++;
	for (i = 0; i < 200; i++) {
		while (shared->turn % 2 != mine)
			CHECK(yonder_cond_wait(shared->cond, shared->mutex) == 0);
		shared->turn++;
		CHECK(yonder_cond_broadcast(shared->cond) == 0);
	}
	CHECK(yonder_mutex_unlock(shared->mutex) == 0);
	return NULL;
}

static void *produce(void *argument)
{
	struct shared *shared = argument;
	uint64_t i;

	for (i = 1; i <= 1000; i++) {
		uint64_t *message = yonder_malloc(sizeof *message);

		CHECK(message != NULL);
		*message = i;
		CHECK(yonder_channel_send(shared->channel, message) == 0);
	}
	return NULL;
}

static void *consume(void *argument)
{
	struct shared *shared = argument;
	void *message;
	int result;

	while ((result = yonder_channel_receive(shared->channel, &message)) == 0) {
		uint64_t value = *(uint64_t *)message;

		CHECK(yonder_mutex_lock(shared->mutex) == 0);
		shared->sum += value;
		CHECK(yonder_mutex_unlock(shared->mutex) == 0);
		yonder_free(message);
	}
	CHECK(result == -EPIPE);
	return NULL;
}

static void spawn_and_join(yonder_light_function function, void *argument, size_t number)
{
	yonder_light_thread *threads[LIGHT];
	size_t i;

	for (i = 0; i < number; i++)
		CHECK(yonder_spawn(function, argument, &threads[i]) == 0);
	for (i = 0; i < number; i++)
		CHECK(yonder_join(threads[i], NULL) == 0);
}

/* For each of these channels a thread sends a message and closes it, when the other has come there. */
#define CLOSED ((size_t)2000)

struct closing {
	yonder_channel *channels[CLOSED];
	volatile size_t reached;
};

static void *send_and_close(void *argument)
{
	struct closing *closing = argument;
	size_t i;

	for (i = 0; i < CLOSED; i++) {
		while (closing->reached < i)
			;
		CHECK(yonder_channel_send(closing->channels[i], closing) == 0);
		CHECK(yonder_channel_close(closing->channels[i]) == 0);
	}
	return NULL;
}

/* What was sent before the close is received before the close is told. */
static void messages_before_the_close(void)
{
	static struct closing closing;
	pthread_t sender;
	void *message;
	size_t i;
	int result;

	for (i = 0; i < CLOSED; i++)
		CHECK((closing.channels[i] = yonder_channel_new(1)) != NULL);
	closing.reached = 0;
	CHECK(pthread_create(&sender, NULL, send_and_close, &closing) == 0);
	for (i = 0; i < CLOSED; i++) {
		closing.reached = i;
		while ((result = yonder_channel_try_receive(closing.channels[i], &message)) == -EAGAIN)
			;
		CHECK(result == 0 && message == &closing);
		CHECK(yonder_channel_receive(closing.channels[i], &message) == -EPIPE);
	}
	CHECK(pthread_join(sender, NULL) == 0);
	for (i = 0; i < CLOSED; i++)
		yonder_channel_free(closing.channels[i]);
}

static void locks_and_channels(void)
{
	struct shared shared = { NULL, NULL, NULL, NULL, NULL, 0, 0, 0 };
	yonder_light_thread *consumers[4];
	void *message;
	size_t i;
	uint64_t all = 0;

	shared.mutex = yonder_mutex_new();
	shared.cond = yonder_cond_new();
	shared.semaphore = yonder_semaphore_new(3);
	shared.channel = yonder_channel_new(8);
	shared.memory = yonder_calloc(1, MEMORY);
	CHECK(shared.memory != NULL);

	spawn_and_join(count, &shared, 32);
	for (i = 0; i < MEMORY / sizeof *shared.memory; i += PAGE / sizeof *shared.memory)
		all += shared.memory[i];
	CHECK(all == 32 * 100 && shared.holders == 0);

	spawn_and_join(alternate, &shared, 2);
	CHECK(shared.turn == 400);

	CHECK(yonder_channel_try_receive(shared.channel, &message) == -EAGAIN);
	for (i = 0; i < 4; i++)
		CHECK(yonder_spawn(consume, &shared, &consumers[i]) == 0);
	spawn_and_join(produce, &shared, 3);
	CHECK(yonder_channel_close(shared.channel) == 0);
	for (i = 0; i < 4; i++)
		CHECK(yonder_join(consumers[i], NULL) == 0);
	CHECK(shared.sum == 3 * 1000 * 1001 / 2);
	CHECK(yonder_channel_send(shared.channel, NULL) == -EPIPE);
	CHECK(yonder_channel_try_receive(shared.channel, &message) == -EPIPE);

	yonder_free((void *)shared.memory);
	yonder_channel_free(shared.channel);
	yonder_semaphore_free(shared.semaphore);
	yonder_cond_free(shared.cond);
	yonder_mutex_free(shared.mutex);
}

/* ---- Sockets ---------------------------------------------------------------------------------------------------- */

#define TEXT ((size_t)200000)

/* Sends back what comes, through far memory. */
static void *echo(void *argument)
{
	yonder_socket *listener = argument, *socket;
	char *buffer = yonder_malloc(TEXT);
	ptrdiff_t bytes;

	CHECK(buffer != NULL && yonder_accept(listener, &socket) == 0);
	while ((bytes = yonder_receive(socket, buffer, TEXT)) > 0)
		CHECK(yonder_send(socket, buffer, (size_t)bytes) == 0);
	CHECK(bytes == 0);
	yonder_socket_close(socket);
	yonder_free(buffer);
	return NULL;
}

static int socket_of_unix(void)
{
	int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);

	CHECK(descriptor >= 0);
	return descriptor;
}

struct sender {
	yonder_socket *socket;
	const char *text;
};

static void *send_all(void *argument)
{
	struct sender *sender = argument;

	CHECK(yonder_send(sender->socket, sender->text, TEXT) == 0);
	CHECK(shutdown(yonder_socket_descriptor(sender->socket), SHUT_WR) == 0);
	return NULL;
}

static void talk(yonder_socket *socket)
{
	struct sender sender;
	yonder_light_thread *thread;
	char *text = yonder_malloc(TEXT), *back = yonder_malloc(TEXT);
	size_t i;
	ptrdiff_t bytes;

	CHECK(text != NULL && back != NULL);
	for (i = 0; i < TEXT; i++)
		text[i] = (char)(i * 7 % 251);
	sender.socket = socket;
	sender.text = text;
	CHECK(yonder_spawn(send_all, &sender, &thread) == 0);
	for (i = 0; i < TEXT; i += (size_t)bytes) {
		bytes = yonder_receive(socket, back + i, TEXT - i);
		CHECK(bytes > 0);
	}
	CHECK(yonder_receive(socket, back, TEXT) == 0);
	CHECK(memcmp(text, back, TEXT) == 0);
	CHECK(yonder_join(thread, NULL) == 0);
	yonder_free(text);
	yonder_free(back);
}

/* A listener of another family, whose other side has no name. */
static void unix_listener(void)
{
	struct sockaddr_un name;
	yonder_socket *listener, *socket;
	int own = (int)getpid(), descriptor = socket_of_unix(), client = socket_of_unix();
	char byte;

	memset(&name, 0, sizeof name);
	name.sun_family = AF_UNIX;
	snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "yonder-threads-%d", own);
	CHECK(yonder_socket_adopt(descriptor, &socket) == -EPROTOTYPE);
	CHECK(bind(descriptor, (struct sockaddr *)&name, sizeof name) == 0 && listen(descriptor, 1) == 0);
	CHECK(yonder_socket_adopt(descriptor, &listener) == 0);
	CHECK(connect(client, (struct sockaddr *)&name, sizeof name) == 0 && write(client, "y", 1) == 1);
	CHECK(yonder_accept(listener, &socket) == 0 && yonder_receive(socket, &byte, 1) == 1 && byte == 'y');
	close(client);
	yonder_socket_close(socket);
	yonder_socket_close(listener);
}

static void sockets(void)
{
	yonder_socket *listener, *socket, *other;
	yonder_light_thread *server;
	struct sockaddr_storage name;
	socklen_t length = sizeof name;
	char address[32], byte;
	int ends[2];
	unsigned char port[2];

	CHECK(yonder_listen("127.0.0.1:0", &listener) == 0);
	CHECK(getsockname(yonder_socket_descriptor(listener), (struct sockaddr *)&name, &length) == 0);
	memcpy(port, (const char *)&name + 2, 2);
	snprintf(address, sizeof address, "127.0.0.1:%d", port[0] * 256 + port[1]);
	CHECK(yonder_listen(address, &other) == -EADDRINUSE);
	CHECK(yonder_spawn(echo, listener, &server) == 0);
	CHECK(yonder_connect(address, &socket) == 0);
	talk(socket);
	CHECK(yonder_join(server, NULL) == 0);
	CHECK(yonder_accept(socket, &other) == -EINVAL && yonder_receive(listener, &byte, 1) == -ENOTCONN);
	CHECK(yonder_socket_timeout(listener, 1000000) == 0 && yonder_accept(listener, &other) == -ETIMEDOUT);
	yonder_socket_close(socket);
	yonder_socket_close(listener);
	CHECK(yonder_connect(address, &socket) == -ECONNREFUSED);
	CHECK(yonder_connect("nonsense", &socket) == -EINVAL);

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	CHECK(yonder_socket_adopt(ends[0], &socket) == 0 && yonder_socket_adopt(ends[1], &other) == 0);
	CHECK(yonder_socket_timeout(socket, 1000000) == 0 && yonder_receive(socket, &byte, 1) == -ETIMEDOUT);
	CHECK(yonder_send(other, "x", 1) == 0 && yonder_receive(socket, &byte, 1) == 1 && byte == 'x');
	yonder_socket_close(other);
	CHECK(yonder_send(socket, "x", 1) == -EPIPE && yonder_receive(socket, &byte, 1) == 0);
	yonder_socket_close(socket);
	unix_listener();
	CHECK(yonder_socket_adopt(-1, &socket) == -EBADF);
	CHECK(yonder_socket_adopt(ends[0], &socket) == -EBADF);
	CHECK(pipe(ends) == 0 && yonder_socket_adopt(ends[0], &socket) == -EPROTOTYPE);
	close(ends[0]);
	close(ends[1]);
}

/* ---- Signals, limits and the end -------------------------------------------------------------------------------- */

static volatile int alternates, unheld;

long syscall(long number, ...);

/* In the place of the C library's. The library gives workers an alternate stack before all else, and takes it back
 * after all else: the program's signals do not come to them then either. */
int sigaltstack(const stack_t *stack, stack_t *old)
{
	sigset_t held;

	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &held) == 0);
	alternates++;
	unheld += !sigismember(&held, SIGUSR1);
	return (int)syscall(SYS_sigaltstack, stack, old);
}

static pthread_t first;
static volatile sig_atomic_t signalled, interrupted;

static void on_signal(int signal)
{
	if (signal == SIGUSR1)
		signalled = pthread_equal(pthread_self(), first);
	else
		interrupted = 1;
}

static void *sleep_shortly(void *argument)
{
	yonder_sleep(1000000);
	return argument;
}

static void signals_and_limits(void)
{
	yonder_light_thread *threads[LIGHT * 2];
	size_t spawned;
	int result;

	CHECK(kill(getpid(), SIGUSR1) == 0);
	while (!signalled)
		yonder_yield();
	/* One that is sent to a worker waits until it has ended. */
	CHECK(pthread_kill(pthread_self(), SIGUSR2) == 0);
	yonder_sleep(1000000);
	CHECK(!interrupted);

	for (spawned = 0; (result = yonder_spawn(sleep_shortly, NULL, &threads[spawned])) == 0; spawned++)
		CHECK(spawned < 2 * LIGHT);
	/* The first one is a light thread too. */
	CHECK(result == -EAGAIN && spawned == 2 * LIGHT - 1);
	while (spawned > 0)
		CHECK(yonder_join(threads[--spawned], NULL) == 0);
	CHECK(yonder_spawn(sleep_shortly, NULL, NULL) == 0);
	CHECK(yonder_memory_close() == -EBUSY);
	CHECK(yonder_threads_run(NULL, never, NULL, NULL) == -EPERM);
}

/* Pages of local memory that nobody may write before the handler has seen it, which touches far memory for each. */
#define BARRIERS 64
static unsigned char *barriers;
static volatile uint64_t *far_words;

static void on_barrier(int signal, siginfo_t *info, void *context)
{
	size_t offset = (size_t)((unsigned char *)info->si_addr - barriers), page = offset / PAGE;

	(void)context;
	if (signal != SIGSEGV || offset >= BARRIERS * PAGE)
		_exit(3);
	far_words[page * 37 % PAGES * PAGE / sizeof *far_words]++;
	if (mprotect(barriers + page * PAGE, PAGE, PROT_READ | PROT_WRITE) < 0)
		_exit(4);
}

static void *pass_barriers(void *argument)
{
	size_t page;

	for (page = *(size_t *)argument; page < BARRIERS; page += LIGHT / 4) {
		barriers[page * PAGE] = 1;
		yonder_yield();
	}
	return NULL;
}

static void handlers_may_touch(void)
{
	yonder_light_thread *threads[LIGHT / 4];
	size_t firsts[LIGHT / 4], i;
	uint64_t sum = 0;
	void *memory;

	CHECK(posix_memalign(&memory, PAGE, BARRIERS * PAGE) == 0);
	barriers = memory;
	far_words = yonder_calloc(1, MEMORY);
	CHECK(mprotect(barriers, BARRIERS * PAGE, PROT_NONE) == 0 && far_words != NULL);
	/* All of it is far but the last part. */
	for (i = 0; i < PAGES; i++)
		far_words[i * PAGE / sizeof *far_words + 1] = i;
	for (i = 0; i < LIGHT / 4; i++) {
		firsts[i] = i;
		CHECK(yonder_spawn(pass_barriers, &firsts[i], &threads[i]) == 0);
	}
	for (i = 0; i < LIGHT / 4; i++)
		CHECK(yonder_join(threads[i], NULL) == 0);
	for (i = 0; i < PAGES; i++)
		sum += far_words[i * PAGE / sizeof *far_words];
	CHECK(sum == BARRIERS);
	yonder_free((void *)far_words);
	CHECK(mprotect(barriers, BARRIERS * PAGE, PROT_READ | PROT_WRITE) == 0);
	free(barriers);
}

static uint64_t recurse(volatile uint64_t *depth)
{
	volatile uint64_t more[64];

	more[0] = *depth + 1;
	return more[0] == 0 ? 0 : recurse(more) + more[0];
}

static void *overflow(void *argument)
{
	uint64_t depth = 0;

	printf("%d\n", (int)recurse(&depth));
	return argument;
}

/* Has 128 workers from when it says so until it is let go. */
struct large_run {
	yonder_semaphore *begun, *end;
};

static void *wait_for_end(void *argument)
{
	struct large_run *run = argument;

	CHECK(yonder_semaphore_release(run->begun) == 0 && yonder_semaphore_acquire(run->end) == 0);
	return NULL;
}

static void *run_largely(void *run)
{
	yonder_threads_config config = YONDER_THREADS_CONFIG_DEFAULT;

	config.workers = 128;
	config.light_threads = 2;
	CHECK(yonder_threads_run(&config, wait_for_end, run, NULL) == 0);
	return NULL;
}

/* All runs together have up to 248 workers. */
static void workers_of_all_runs(void)
{
	yonder_threads_config config = YONDER_THREADS_CONFIG_DEFAULT;
	struct large_run run;
	pthread_t other;

	run.begun = yonder_semaphore_new(0);
	run.end = yonder_semaphore_new(0);
	CHECK(pthread_create(&other, NULL, run_largely, &run) == 0);
	CHECK(yonder_semaphore_acquire(run.begun) == 0);
	config.workers = 128;
	config.light_threads = 2;
	CHECK(yonder_threads_run(&config, never, NULL, NULL) == -EAGAIN);
	CHECK(yonder_semaphore_release(run.end) == 0 && pthread_join(other, NULL) == 0);
	CHECK(yonder_threads_run(&config, sleep_shortly, NULL, NULL) == 0);
	yonder_semaphore_free(run.begun);
	yonder_semaphore_free(run.end);
}

/* ---- Stacks of others ------------------------------------------------------------------------------------------- */

static ucontext_t own, coroutine;
static struct shared held;
static yonder_light_thread *unjoined;

/* What a coroutine of a light thread's own may do. Where others would have to go on for it, it is told so. */
static void on_another_stack(void)
{
	static void *blocks[1000];
	yonder_light_thread *thread;
	void *message;
	size_t i, sum = 0;
	int result;

	/* Touches, and what the library reads and writes itself. */
	for (i = 0; i < PAGES; i++)
		sum += held.memory[i * PAGE / sizeof *held.memory];
	CHECK(sum == PAGES * (PAGES - 1) / 2);
	for (i = 0; i < 1000; i++)
		CHECK((blocks[i] = yonder_malloc(3000)) != NULL && memset(blocks[i], 1, 3000) != NULL);
	for (i = 0; i < PAGES; i++)
		held.memory[i * PAGE / sizeof *held.memory] += 1;
	for (i = 0; i < 1000; i++) {
		yonder_free(blocks[i]);
		CHECK((blocks[i] = yonder_calloc(1, 3000)) != NULL && *(char *)blocks[i] == 0);
	}
	for (i = 0; i < 1000; i++)
		yonder_free(blocks[i]);
	yonder_yield();
	yonder_sleep(1000);

	CHECK(yonder_mutex_lock(held.mutex) == -EDEADLK && strstr(yonder_error_message(), "stack") != NULL);
	CHECK(yonder_mutex_trylock(held.mutex) == -EBUSY);
	CHECK(yonder_cond_wait(held.cond, held.mutex) == -EDEADLK);
	CHECK(yonder_cond_timedwait(held.cond, held.mutex, 1000) == -EDEADLK);
	CHECK(yonder_mutex_unlock(held.mutex) == 0 && yonder_mutex_lock(held.mutex) == 0);
	CHECK(yonder_semaphore_acquire(held.semaphore) == 0 && yonder_semaphore_acquire(held.semaphore) == -EDEADLK);
	CHECK(yonder_semaphore_release(held.semaphore) == 0);
	CHECK(yonder_channel_send(held.channel, &held) == 0 && yonder_channel_send(held.channel, &held) == -EDEADLK);
	CHECK(yonder_channel_receive(held.channel, &message) == 0 && message == &held);
	CHECK(yonder_channel_receive(held.channel, &message) == -EDEADLK);
	CHECK(yonder_channel_close(held.channel) == 0 && yonder_channel_send(held.channel, &held) == -EPIPE);
	CHECK(yonder_channel_receive(held.channel, &message) == -EPIPE);
	CHECK(yonder_spawn(sleep_shortly, NULL, &thread) == 0);
	while ((result = yonder_join(thread, NULL)) == -EDEADLK && workers > 1)
		yonder_yield();
	/* With one worker it would never end. */
	CHECK(result == (workers > 1 ? 0 : -EDEADLK));
	unjoined = result < 0 ? thread : NULL;
}

static void *visit(void *argument)
{
	CHECK(swapcontext(&own, &coroutine) == 0);
	return argument;
}

static void other_stacks(void)
{
	yonder_light_thread *thread;
	size_t i, bytes = (size_t)256 << 10;

	held.mutex = yonder_mutex_new();
	held.cond = yonder_cond_new();
	held.semaphore = yonder_semaphore_new(1);
	held.channel = yonder_channel_new(1);
	held.memory = yonder_calloc(1, MEMORY);
	CHECK(held.memory != NULL && getcontext(&coroutine) == 0);
	for (i = 0; i < PAGES; i++)
		held.memory[i * PAGE / sizeof *held.memory] = i;
	coroutine.uc_stack.ss_sp = malloc(bytes);
	coroutine.uc_stack.ss_size = bytes;
	coroutine.uc_link = &own;
	CHECK(coroutine.uc_stack.ss_sp != NULL);
	makecontext(&coroutine, on_another_stack, 0);

	CHECK(yonder_mutex_lock(held.mutex) == 0);
	CHECK(yonder_spawn(visit, NULL, &thread) == 0 && yonder_join(thread, NULL) == 0);
	CHECK(yonder_mutex_unlock(held.mutex) == 0);
	CHECK(unjoined == NULL || yonder_join(unjoined, NULL) == 0);
	free(coroutine.uc_stack.ss_sp);
	yonder_free((void *)held.memory);
	yonder_channel_free(held.channel);
	yonder_semaphore_free(held.semaphore);
	yonder_cond_free(held.cond);
	yonder_mutex_free(held.mutex);
}

#define FRAME ((size_t)48 << 10)

/* Touches each of its frames at the lower end alone. */
static uint64_t recurse_by_large(uint64_t depth)
{
	volatile uint64_t more[FRAME / sizeof(uint64_t)];

	more[0] = depth + 1;
	return more[0] == 0 ? 0 : recurse_by_large(more[0]) + more[0];
}

static void *overflow_by_large(void *argument)
{
	printf("%d\n", (int)recurse_by_large(0));
	return argument;
}

static void *with_neighbours(void *overflow)
{
	yonder_light_thread *threads[3];
	size_t i;

	/* The stacks of two that wait lie below. */
	for (i = 0; i < 3; i++)
		CHECK(yonder_spawn(i < 2 ? sleep_shortly : overflow_by_large, overflow, &threads[i]) == 0);
	for (i = 3; i-- > 0;)
		CHECK(yonder_join(threads[i], NULL) == 0);
	return NULL;
}

static void *all(void *argument)
{
	faults_yield();
	masks_are_put_back();
	heap_is_for_all();
	locks_and_channels();
	sockets();
	handlers_may_touch();
	other_stacks();
	signals_and_limits();
	return argument;
}

int main(int argc, char **arguments)
{
	yonder_memory_config memory = YONDER_MEMORY_CONFIG_DEFAULT;
	yonder_threads_config config = YONDER_THREADS_CONFIG_DEFAULT;
	struct sigaction action;
	void *result = NULL;

	CHECK(argc == 3);
	url = arguments[1];
	workers = (uint64_t)atoi(arguments[2]);
	CHECK(yonder_threads_run(NULL, never, NULL, NULL) == -ENXIO);
	memory.far_url = url;
	memory.memory_bytes = 4 * MEMORY;
	memory.local_bytes = LOCAL;
	CHECK(yonder_memory_open(&memory) == 0);
	if (strcmp(arguments[2], "overflow") == 0) {
		yonder_threads_run(NULL, overflow, NULL, NULL);
		return 1;
	}
	if (strcmp(arguments[2], "step") == 0) {
		yonder_threads_run(NULL, with_neighbours, NULL, NULL);
		return 1;
	}
	memset(&action, 0, sizeof action);
	/* Before the library looks for overflows. With one worker it holds SIGSEGV back while it runs, with two it does not. */
	action.sa_flags = workers == 1 ? SA_SIGINFO : SA_SIGINFO | SA_NODEFER;
	action.sa_sigaction = on_barrier;
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	refusals();
	messages_before_the_close();

	first = pthread_self();
	action.sa_flags = 0;
	action.sa_handler = on_signal;
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
	config.workers = workers;
	config.light_threads = 2 * LIGHT;
	CHECK(yonder_threads_run(&config, all, &config, &result) == 0 && result == &config);
	workers_of_all_runs();
	CHECK(alternates > 0 && unheld == 0);
	CHECK(yonder_memory_close() == 0);
	puts("done");
	return 0;
}
