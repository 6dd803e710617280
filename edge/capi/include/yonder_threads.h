/*
 * yonder_threads.h - light threads whose page faults yield
 *
 * A light thread has a stack of its own and is switched by the program, not by the kernel: a switch costs some ten
 * nanoseconds, and there can be a hundred thousand of them. Worker threads run them. When one touches far memory that
 * is not here, it alone waits, and its worker runs others; the same holds for the locks, channels and sockets below:
 *
 *     static void *sum(void *part)
 *     {
 *             double *number = part, all = 0;
 *
 *             for (size_t i = 0; i < PART; i++)
 *                     all += number[i];
 *             number[0] = all;
 *             return NULL;
 *     }
 *
 *     static void *sum_of_all(void *numbers)
 *     {
 *             yonder_light_thread *thread[PARTS];
 *
 *             for (size_t i = 0; i < PARTS; i++)
 *                     yonder_spawn(sum, (double *)numbers + i * PART, &thread[i]);
 *             for (size_t i = 0; i < PARTS; i++)
 *                     yonder_join(thread[i], NULL);
 *             return NULL;
 *     }
 *
 *     yonder_threads_run(NULL, sum_of_all, numbers, NULL);
 *
 * `numbers` is of yonder_malloc(): see yonder.h, whose RESULTS hold here too. With -EINVAL functions refuse a pointer
 * that is NULL and must not be. yonder_error_message() is the worker's: ask it before anything that waits.
 *
 * RULES. A light thread that has started stays with its worker; those that have not are started by any. They take turns
 * where they wait, not by time: one that computes for long calls yonder_yield() now and then. What blocks a thread in
 * the kernel blocks the worker: other libraries' locks, files, calls to nodes (yonder_rread() and its kin). A lock of
 * pthreads must not be held across what may wait, such as a touch of far memory: the next light thread that wants it
 * would block the worker for ever. Variables that are a thread's own (_Thread_local) are the worker's, and its light
 * threads share them.
 *
 * STACKS are small. One that overflows ends the program with a line: below each lie 64 KiB that are never there. A
 * function with a larger frame may step over them into the stack of another; compiled with -fstack-clash-protection it
 * does not. A function of a light thread returns: it does not call pthread_exit(), and neither longjmp() nor an
 * exception of C++ leaves it. YONDER_TRY works as elsewhere, and what it jumps out of may not be one of the functions
 * below. Who joins itself waits for ever.
 *
 * On another stack than its own, such as that of a coroutine or of a signal handler, a light thread waits with its
 * worker: for pages, sockets and time. A function that would wait there for another thread returns -EDEADLK at once:
 * that one may be of the same worker.
 *
 * SIGNALS. Workers hold back all signals that can wait, so the program's handlers run in its other threads, such as the
 * one that has called yonder_threads_run(); a light thread lets none of them through. Threads and programs that light
 * threads start hold the same signals back, unless they are given another mask: POSIX_SPAWN_SETSIGMASK, sigprocmask().
 * A handler of SIGSEGV that was there before the first run gets what is no overflow of a light thread's stack. From
 * then on it runs on the alternate stack of its thread, if there is one, also without SA_ONSTACK: a worker has one of
 * 64 KiB, and one of the program's own has to be as large if the handler touches far memory. While it runs on a worker,
 * faults wait with the worker.
 *
 * Locks, channels and sockets may be used by other threads too, which block where a light thread waits. Who waits for a
 * lock or at a channel is served in the order of coming; of several that wait for the same of a socket, any is first.
 * They must not be freed while anybody waits. In far memory buffers may lie, and messages' pointers may point there.
 */
#ifndef YONDER_THREADS_H
#define YONDER_THREADS_H

#include <yonder.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Light threads ---------------------------------------------------------------------------------------------- */

/* A light thread that has been spawned, until it is joined or detached. */
typedef struct yonder_light_thread yonder_light_thread;

/* What a light thread runs, and its result. */
typedef void *(*yonder_light_function)(void *argument);

/* Workers and light threads. Begin with YONDER_THREADS_CONFIG_DEFAULT and change what should differ. */
typedef struct yonder_threads_config {
	/* sizeof(yonder_threads_config), by which the library knows which fields there are. */
	uint64_t size;
	/* Threads that run light threads, from 1 to 128. More than CPUs are of no use. All runs of a program
	 * together have up to 248. */
	uint64_t workers;
	/* Most light threads at a time, the first one included. */
	uint64_t light_threads;
	/* Stack of each, in bytes, to 1 GiB, and from 12 KiB, or from more where the processor's registers are large:
	 * from 20 KiB with AMX. What of it is not used costs address space alone. The handler of a fault needs up to
	 * 32 KiB. */
	uint64_t stack_bytes;
	/* How long a worker that has nothing to do looks again before it sleeps, for shorter latency. */
	uint64_t spin_ns;
} yonder_threads_config;

/* One worker, at most 4,096 light threads with 128 KiB of stack, and 100 microseconds. */
#define YONDER_THREADS_CONFIG_DEFAULT { sizeof(yonder_threads_config), 1, 4096, 131072, 100000 }

/* Runs `function` as the first light thread, and returns when it and all others have ended. `*result` becomes its
 * result; `result` may be NULL. `config` may be NULL for YONDER_THREADS_CONFIG_DEFAULT. Far memory has to be open, and
 * stays so.
 *
 *     -ENXIO         no far memory is open
 *     -EINVAL        a setting is not valid
 *     -ENOMEM        threads or stacks were refused
 *     -EAGAIN        other runs have so many workers that there are not as many left
 *     -EPERM         the caller is a light thread
 */
int yonder_threads_run(const yonder_threads_config *config, yonder_light_function function, void *argument,
		       void **result);

/* Spawns a light thread, which runs when a worker has a turn for it. `*thread` is to be joined or detached; if `thread`
 * is NULL it is detached.
 *
 *     -EAGAIN        there are as many as the configuration allows
 *     -EPERM         the caller is no light thread
 */
int yonder_spawn(yonder_light_function function, void *argument, yonder_light_thread **thread);

/* Waits for the end of a light thread. `*result` becomes its result; `result` may be NULL. `thread` is used up. */
int yonder_join(yonder_light_thread *thread, void **result);

/* Lets a light thread end by itself. `thread` is used up. NULL is ignored. */
void yonder_detach(yonder_light_thread *thread);

/* 1 if the caller is a light thread, else 0. */
int yonder_is_light_thread(void);

/* Lets others run before the caller goes on. */
void yonder_yield(void);

/* Waits for so many nanoseconds, or a little longer. */
void yonder_sleep(uint64_t nanoseconds);

/* ---- Locks ------------------------------------------------------------------------------------------------------ */

/* Mutual exclusion. Who unlocks hands it to the one that has waited longest. It is not recursive. */
typedef struct yonder_mutex yonder_mutex;

yonder_mutex *yonder_mutex_new(void);
void yonder_mutex_free(yonder_mutex *mutex);
int yonder_mutex_lock(yonder_mutex *mutex);

/* -EBUSY if it is locked. */
int yonder_mutex_trylock(yonder_mutex *mutex);

/* -EPERM if it is not locked. */
int yonder_mutex_unlock(yonder_mutex *mutex);

/* A condition on what a mutex protects. */
typedef struct yonder_cond yonder_cond;

yonder_cond *yonder_cond_new(void);
void yonder_cond_free(yonder_cond *cond);

/* Unlocks the mutex, waits until the condition is signalled, and locks the mutex again. Check the condition in a
 * loop: between the two others may have had the mutex. -EPERM if the mutex is not locked. */
int yonder_cond_wait(yonder_cond *cond, yonder_mutex *mutex);

/* The same, but waits for so many nanoseconds at most: -ETIMEDOUT, and the mutex is locked then too. */
int yonder_cond_timedwait(yonder_cond *cond, yonder_mutex *mutex, uint64_t nanoseconds);

/* Lets the one go on that has waited longest, if any waits. */
int yonder_cond_signal(yonder_cond *cond);

/* Lets all go on that wait now. */
int yonder_cond_broadcast(yonder_cond *cond);

/* A number of permits. */
typedef struct yonder_semaphore yonder_semaphore;

yonder_semaphore *yonder_semaphore_new(size_t permits);
void yonder_semaphore_free(yonder_semaphore *semaphore);

/* Takes a permit, and waits for one. */
int yonder_semaphore_acquire(yonder_semaphore *semaphore);

/* Takes a permit; -EAGAIN if none is free. */
int yonder_semaphore_try_acquire(yonder_semaphore *semaphore);

/* Adds a permit, which goes to the one that has waited longest. */
int yonder_semaphore_release(yonder_semaphore *semaphore);

/* ---- Channels --------------------------------------------------------------------------------------------------- */

/* A queue of messages, which are pointers: any number may send, any number receive, and each message is received
 * once. What a pointer points to is handed over with it. */
typedef struct yonder_channel yonder_channel;

/* A channel with room for so many messages, at least 1; NULL if it is 0. */
yonder_channel *yonder_channel_new(size_t room);

/* Frees a channel. Messages that are in it are forgotten. */
void yonder_channel_free(yonder_channel *channel);

/* Sends a message, and waits for room. -EPIPE if the channel is closed. */
int yonder_channel_send(yonder_channel *channel, void *message);

/* Receives the oldest message, and waits for one. -EPIPE if the channel is closed and empty. */
int yonder_channel_receive(yonder_channel *channel, void **message);

/* The same, but -EAGAIN if it is empty. */
int yonder_channel_try_receive(yonder_channel *channel, void **message);

/* Closes a channel: nothing is sent any more, also by who waits for room; what was sent is received. */
int yonder_channel_close(yonder_channel *channel);

/* ---- Sockets ---------------------------------------------------------------------------------------------------- */

/* A connection, or a socket that accepts connections. Their functions fail with the errno of the system call that
 * failed. A socket may be used by several at a time: by one to send and another to receive, or to accept by several. */
typedef struct yonder_socket yonder_socket;

/* Listens at "host:port", of TCP. With port 0 the kernel chooses: ask yonder_socket_descriptor(), with
 * getsockname(). */
int yonder_listen(const char *address, yonder_socket **socket);

/* Connects to "host:port", of TCP. Finding the address of a name blocks the worker. -EHOSTUNREACH if it has none. */
int yonder_connect(const char *address, yonder_socket **socket);

/* Takes a descriptor over: a socket of streams, such as one of AF_UNIX, that is connected or listens. From now on it
 * does not block, and is closed with the yonder_socket. If the call fails the descriptor is the caller's still.
 * -EPROTOTYPE if it is none of these. */
int yonder_socket_adopt(int descriptor, yonder_socket **socket);

/* Waits for a connection, and accepts it. */
int yonder_accept(yonder_socket *listener, yonder_socket **socket);

/* Waits for bytes, and copies at most `length` of them to `buffer`, which may be far. Returns how many, 0 at the end
 * of the stream, or a negative errno. */
ptrdiff_t yonder_receive(yonder_socket *socket, void *buffer, size_t length);

/* Sends `length` bytes of `buffer`, which may be far, and waits as long as the other side takes none. If it fails, a
 * part may have been sent. Raises no SIGPIPE. */
int yonder_send(yonder_socket *socket, const void *buffer, size_t length);

/* From now on a wait of this socket ends after so many nanoseconds: -ETIMEDOUT. 0: never, as at first. */
int yonder_socket_timeout(yonder_socket *socket, uint64_t nanoseconds);

/* The socket's descriptor, for getsockname(), setsockopt() and shutdown(). It stays the socket's. */
int yonder_socket_descriptor(yonder_socket *socket);

/* Closes a socket that nobody uses any more. NULL is ignored. To end what others wait for in it, call shutdown()
 * first. */
void yonder_socket_close(yonder_socket *socket);

#ifdef __cplusplus
}
#endif

#endif /* YONDER_THREADS_H */
