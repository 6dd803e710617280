/*
 * yonder.h - remote address spaces on a memory node, and far memory
 *
 * A memory node (`yonder node`) lends its memory to programs on other machines. A *process* of this interface has a
 * remote address space there: its own, or one that it was given a ticket for. Each thread of the program works through
 * a yonder_thread, which has a flow of its own to the node:
 *
 *     yonder_process *process;
 *     yonder_thread *thread;
 *     uint64_t address;
 *     char back[14];
 *
 *     if (yonder_process_create("udp://127.0.0.1:7000", NULL, &process) < 0 ||
 *         yonder_thread_open(process, &thread) < 0 ||
 *         yonder_ralloc(thread, 1 << 20, YONDER_READ | YONDER_WRITE, &address) < 0 ||
 *         yonder_rwrite(thread, address, "kept far away", 14) < 0 ||
 *         yonder_rread(thread, address, back, 14) < 0)
 *             fprintf(stderr, "%s\n", yonder_error_message());
 *
 * The other half, at the end, is *far memory*: yonder_malloc() gives out memory that is touched by pointers like any
 * other, of which a part is local and the rest on the node.
 *
 * Build with:  cc program.c $(pkg-config --cflags --libs yonder)
 *
 * ADDRESSES are numbers of the address space, uint64_t, and no pointers. Lengths are in bytes, times in nanoseconds.
 *
 * RESULTS. A function that returns int returns 0 (yonder_rpoll: 0 or 1) when it has done what it says, or a negative
 * errno; yonder_error_message() then has one line that says what is wrong. Where a function fails, what its out
 * parameters point to is unchanged, unless it says otherwise. All functions that talk to the node can fail with:
 *
 *     -EINVAL        a pointer is NULL that must not be, a flag or a length is not valid, a word is not aligned
 *     -EFAULT        the remote range is not wholly in allocated memory
 *     -EACCES        the ticket, or the permission of the memory, does not allow it
 *     -ENOMEM        the node has no room left
 *     -ESTALE        the node has forgotten the address space: it was restarted, the lease is over, the owner has
 *                    ended, or the ticket is wrong. What was in it is lost, and the process is of no more use.
 *     -ETIMEDOUT     no answer came until the deadline. The operation was executed or not, and will not be later.
 *     -EPROTO        the node refused for a reason of its own
 *     -EOPNOTSUPP    the node does not serve such a request
 *     -EBUSY         another thread is in a call with the same yonder_thread
 *     -EIO           a fault of this library. The yonder_thread can only be closed.
 *
 * EXECUTION. Every operation is executed at most once, however often the network loses, repeats or delays it. The
 * synchronous calls of a thread are executed one after another. Its asynchronous ones may be executed in any order, but
 * for those that touch a page in common, one of them to change it: they keep the order in which they were called.
 * Between threads nothing is ordered but what yonder_rlock() and atomics order.
 *
 * THREADS. A yonder_process may be used by many threads at once. A yonder_thread is used by one thread at a time, and
 * may go from one to another; a call on one that is in use fails with -EBUSY. yonder_error_message() belongs to the
 * calling thread. The library has one thread of its own for each process; it installs no signal handlers before far
 * memory is opened. After fork() the child must not use what the parent has opened. No function may be called from a
 * signal handler.
 *
 * MEMORY. Whatever is opened or created is the caller's, who closes it. The library keeps no pointer of the caller's
 * after a call, but for the buffers and addresses of asynchronous operations.
 */
#ifndef YONDER_H
#define YONDER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version ---------------------------------------------------------------------------------------------------- */

/* The version of this header. */
#define YONDER_VERSION_MAJOR 0
#define YONDER_VERSION_MINOR 1
#define YONDER_VERSION_PATCH 0
#define YONDER_VERSION "0.1.0"

/* The version of the library that the program runs with, such as "0.1.0". Lives as long as the program. */
const char *yonder_version(void);

/* What the last call of this thread that failed had to say: one line without its end, for people. "" if none has
 * failed. Valid until the next call that fails in this thread. Never NULL. */
const char *yonder_error_message(void);

/* ---- Processes -------------------------------------------------------------------------------------------------- */

/* A user of a remote address space. */
typedef struct yonder_process yonder_process;

/* How a process uses its address space. Begin with YONDER_CONFIG_DEFAULT and change what should differ:
 *
 *     yonder_config config = YONDER_CONFIG_DEFAULT;
 *     config.deadline_ns = 100000000;
 */
typedef struct yonder_config {
	/* sizeof(yonder_config), by which the library knows which fields there are. */
	uint64_t size;
	/* How long the node or the controller keeps the address space after the last sign of life of its owner, whom the
	 * library keeps alive as long as the program runs. A day at most, and at a controller five seconds at least;
	 * 0: a day. Whole milliseconds count. Only for yonder_process_create(). */
	uint64_t lease_ns;
	/* From the call of an operation until it ends with -ETIMEDOUT. */
	uint64_t deadline_ns;
	/* How long a thread that waits asks again before it sleeps, at most, for shorter latency; less if that has
	 * not helped lately. 0: it always sleeps. */
	uint64_t spin_ns;
	/* Most asynchronous operations of a thread, from 1 to YONDER_PENDING_MAX. */
	uint64_t pending_max;
} yonder_config;

/* A minute's lease, five seconds' deadline, at most 50 microseconds of asking again, 256 asynchronous operations. */
#define YONDER_CONFIG_DEFAULT { sizeof(yonder_config), UINT64_C(60000000000), UINT64_C(5000000000), UINT64_C(50000), 256 }

/* Upper limit of pending_max. */
#define YONDER_PENDING_MAX 65536

/* Makes an address space on the node at `url`, udp://host:port, tcp://host:port or shm:///path of a node on this
 * machine, or on the nodes of a controller, controller://host:port. It ends with the process. `config` may be NULL for
 * YONDER_CONFIG_DEFAULT. Waits some seconds at most.
 *
 *     -EHOSTUNREACH  there is no node or no controller at `url`, or the controller cannot help
 *     -EINVAL        `url` is not the address of a node, or the configuration is not valid
 */
int yonder_process_create(const char *url, const yonder_config *config, yonder_process **process);

/* Uses the address space of another process on the node at `url`, which gave `ticket` away. Errors as above, and
 * -ESTALE if the ticket is not, or no longer, one for an address space of this node. */
int yonder_process_open(const char *url, const char *ticket, const yonder_config *config, yonder_process **process);

/* Ends the process, and with its creator the address space and all that is in it. No thread may be in a call with
 * `process`. Threads of it that are still open stay valid and are closed as usual; if this was the creator, what
 * they do fails with -EFAULT or -ESTALE from now on. NULL is ignored. */
void yonder_process_close(yonder_process *process);

/* Rights of tickets. Each includes those before it. */
#define YONDER_RIGHTS_SAME 0       /* those that this process has; any process can give them away */
#define YONDER_RIGHTS_READ 1       /* to read */
#define YONDER_RIGHTS_READ_WRITE 2 /* also to write, to use atomics and locks, and to call offloads */
#define YONDER_RIGHTS_OWNER 3      /* also to allocate, to free and to give any rights away */

/* Bytes of the longest ticket, with the NUL that ends it. */
#define YONDER_TICKET_BYTES 64

/* Writes a ticket for the address space, with these rights, into `ticket`, which has room for `ticket_bytes`. Give the
 * text to another program, for yonder_process_open(). Whoever has it can use the address space: keep it as you would
 * keep a password. It is good for as long as the address space is.
 *
 *     -EACCES        this process does not have the right to give these rights away
 *     -ERANGE        the ticket does not fit: YONDER_TICKET_BYTES are always enough
 */
int yonder_process_ticket(yonder_process *process, unsigned rights, char *ticket, size_t ticket_bytes);

/* ---- Threads ---------------------------------------------------------------------------------------------------- */

/* One thread's way to an address space. */
typedef struct yonder_thread yonder_thread;

/* Opens a flow to the node. -EHOSTUNREACH if the node is not there any more. */
int yonder_thread_open(yonder_process *process, yonder_thread **thread);

/* Closes a flow. From then on no buffer is touched; of operations that have not ended it is unknown whether they are
 * executed. A thread that is in a call is not closed. NULL is ignored. */
void yonder_thread_close(yonder_thread *thread);

/* What yonder_node_status() tells. */
typedef struct yonder_node {
	uint64_t memory_bytes;    /* memory of the node */
	uint64_t free_bytes;      /* memory of it that no address space has */
	uint64_t allocated_bytes; /* sum of all allocations, with memory or without */
	uint64_t spaces;          /* address spaces */
} yonder_node;

/* How full the node is that has the memory at `near`. Where the address space is on one node, `near` may be 0. */
int yonder_node_status(yonder_thread *thread, uint64_t near, yonder_node *status);

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

/* Flags of yonder_ralloc() and yonder_ralloc_async(). */
#define YONDER_READ 1u   /* may be read; always given */
#define YONDER_WRITE 2u  /* may be written too */
#define YONDER_BACKED 4u /* has its memory from the start, so that no write fails with -ENOMEM */

/* Allocates `bytes`, rounded up to whole pages of the node, and tells where. They read as zeros. Without YONDER_BACKED
 * memory is taken page by page, when it is first written, and a write can fail with -ENOMEM. */
int yonder_ralloc(yonder_thread *thread, uint64_t bytes, unsigned flags, uint64_t *address);

/* Frees the allocation that begins at `address`. */
int yonder_rfree(yonder_thread *thread, uint64_t address);

/* Most bytes of one read or write. */
#define YONDER_TRANSFER_BYTES_MAX UINT32_MAX

/* Copies `length` bytes at `address` to `into`. Nothing is done if `length` is 0; `into` may then be NULL. If it
 * fails, a part may have been copied. */
int yonder_rread(yonder_thread *thread, uint64_t address, void *into, size_t length);

/* Copies `length` bytes from `from` to `address`. Nothing is done if `length` is 0; `from` may then be NULL. If it
 * fails, a part may have been written. */
int yonder_rwrite(yonder_thread *thread, uint64_t address, const void *from, size_t length);

/* ---- Asynchronous operations ------------------------------------------------------------------------------------ */

/* The name of an asynchronous operation of one thread. Never 0. It ends when yonder_rpoll() or yonder_rwait() has
 * told the result. */
typedef uint64_t yonder_pending;

/* Begins to copy `length` bytes at `address` to `into`. From now until the result was told, or the thread is closed,
 * `into` must stay where it is, and must be neither read nor written. The library touches it only during calls on this
 * thread, which also drive the transfer: poll or wait.
 *
 *     -EAGAIN        as many operations are pending as there may be: take the results of some
 */
int yonder_rread_async(yonder_thread *thread, uint64_t address, void *into, size_t length, yonder_pending *pending);

/* Begins to copy `length` bytes from `from` to `address`. From now until the result was told, or the thread is closed,
 * `from` must stay where it is and must not be changed. -EAGAIN as above. */
int yonder_rwrite_async(yonder_thread *thread, uint64_t address, const void *from, size_t length,
			yonder_pending *pending);

/* Begins to allocate, as yonder_ralloc() does. `*address` becomes the address when yonder_rpoll() or yonder_rwait()
 * tells that it was done; until the result was told, or the thread is closed, `address` must stay where it is. An
 * allocation that is called after a release may be executed before it: where it needs that memory, yonder_rfence() goes
 * between.
 *
 * Where the address space is on several nodes, the controller is waited for, and what it refuses is returned here,
 * -ENOMEM among it; an allocation that is longer than a region is done at once. -EAGAIN as above. */
int yonder_ralloc_async(yonder_thread *thread, uint64_t bytes, unsigned flags, uint64_t *address,
			yonder_pending *pending);

/* Begins to free the allocation that begins at `address`, after all that was called before for its pages. Where the
 * address space is on several nodes, one that is longer than a region is freed at once. -EAGAIN as above. */
int yonder_rfree_async(yonder_thread *thread, uint64_t address, yonder_pending *pending);

/* Whether an operation has ended: 1 if it was done, 0 if it is still pending, or a negative errno if it has failed.
 * Unless it is 0 the name is used up, and the buffer is the caller's again. Does not wait.
 *
 *     -EBADF         there is no such operation, or its result was told before
 */
int yonder_rpoll(yonder_thread *thread, yonder_pending pending);

/* Waits until an operation has ended: 0 if it was done, or a negative errno if it has failed. The name is used up,
 * and the buffer is the caller's again. -EBADF as above. */
int yonder_rwait(yonder_thread *thread, yonder_pending pending);

/* Waits until all asynchronous operations of the thread have ended. Their results are still to be taken. */
int yonder_rrelease(yonder_thread *thread);

/* Orders: no operation of the thread that is called from now on is executed before all that were called before have
 * ended. Does not wait. -EAGAIN if too much is pending. */
int yonder_rfence(yonder_thread *thread);

/* ---- Locks and atomics ------------------------------------------------------------------------------------------ */

/* All of these work on a word: 8 bytes at an address that is a multiple of 8, little-endian when read as bytes. They
 * fail with -EINVAL or -EFAULT where it is not aligned or not allocated. `old` may be NULL if it is not needed. */

/* Takes the lock at `address`, a word that was 0 at first. Waits, without end, while somebody has it. */
int yonder_rlock(yonder_thread *thread, uint64_t address);

/* Gives the lock at `address` back. What this thread has written before is seen by whoever takes the lock next: its
 * asynchronous operations are waited for first. */
int yonder_runlock(yonder_thread *thread, uint64_t address);

/* Sets the word to 1, and tells what it was. */
int yonder_test_and_set(yonder_thread *thread, uint64_t address, uint64_t *old);

/* Adds to the word, modulo 2^64, and tells what it was. */
int yonder_fetch_add(yonder_thread *thread, uint64_t address, uint64_t more, uint64_t *old);

/* Replaces the word by `desired` if it is `expected`, and tells what it was. */
int yonder_compare_and_swap(yonder_thread *thread, uint64_t address, uint64_t expected, uint64_t desired,
			    uint64_t *old);

/* ---- Offloads --------------------------------------------------------------------------------------------------- */

/* Most bytes of the arguments, and of the answer, of a call; over udp 64 less. */
#define YONDER_CALL_BYTES_MAX 65536

/* Calls the offload with number `offload` on the node that has the memory at `near` (where the address space is on one
 * node, `near` may be 0), and copies its answer to `answer`, which has room for `answer_room` bytes. `*answer_bytes`
 * becomes the length of the whole answer; it may be NULL. `arguments` may be NULL if `argument_bytes` is 0, and
 * `answer` if `answer_room` is 0.
 *
 *     -ENOSYS        the node has no such offload
 *     -EREMOTEIO     the offload failed, or did not understand its arguments
 *     -EMSGSIZE      it was executed, but its answer does not fit. What fits was copied, and *answer_bytes is set.
 *                    YONDER_CALL_BYTES_MAX are always enough.
 */
int yonder_call(yonder_thread *thread, uint64_t near, uint64_t offload, const void *arguments, size_t argument_bytes,
		void *answer, size_t answer_room, size_t *answer_bytes);

/* ---- Far memory ------------------------------------------------------------------------------------------------- */

/* Far memory is memory of this program, whose pointers are ordinary ones, of which `local_bytes` at most are here at a
 * time. The rest is on the node, and comes when it is touched:
 *
 *     yonder_memory_config config = YONDER_MEMORY_CONFIG_DEFAULT;
 *     double *numbers;
 *
 *     config.far_url = "tcp://127.0.0.1:7000";
 *     config.memory_bytes = UINT64_C(64) << 30;
 *     config.local_bytes = UINT64_C(4) << 30;
 *     if (yonder_memory_open(&config) < 0)
 *             fprintf(stderr, "%s\n", yonder_error_message());
 *     numbers = yonder_calloc(1000000000, sizeof *numbers);
 *     numbers[123456789] = 1.5;
 *
 * FAULTS. A touch of memory that is not here is served by the thread that touches: SIGBUS is raised in it, and the
 * handler that yonder_memory_open() installs brings the page, needs up to 32 KiB of the thread's stack, and returns to
 * the access. So threads that touch far memory must not hold SIGBUS back, and a program that installs a SIGBUS handler
 * of its own does it before yonder_memory_open(), which passes on to it what is not of far memory. Signal handlers may
 * touch far memory, but those of SIGSEGV, SIGILL, SIGFPE and SIGTRAP only where an instruction has raised the signal:
 * one that is sent can come in the middle of a fault. If a page cannot be had until the deadline, that is a paging
 * error, which YONDER_TRY catches; else the program ends with a message. It never reads zeros or old content instead.
 *
 * SYSTEM CALLS on far memory do not work: the kernel does not fetch, and read(), write() and their kin fail with
 * EFAULT, or stop half way, where it meets a page that is not here. Copy instead: read into a local buffer and memcpy()
 * to far memory, or the other way round. The same holds for functions of the C library that make system calls with the
 * caller's pointers, such as fread() of much, and for stacks, locks and condition variables, which have to be local.
 * `yonder run` is for programs that cannot tell: it makes the memory of an unmodified program far, system calls
 * included.
 *
 * MISUSE. Freeing what is not allocated ends the program with one line, by abort(). What two threads have both freed
 * may be found only later, when one of them frees more or ends.
 *
 * COST. Allocating and freeing small objects takes no lock, and neither touches far memory, but for zeros and what
 * yonder_realloc() moves. Every thread keeps some small objects of each size ready, and gives them back when it
 * ends. */

/* What is fetched before it is touched. */
#define YONDER_PREFETCH_NONE 0      /* nothing */
#define YONDER_PREFETCH_READAHEAD 1 /* what follows where two neighbours were missed */
#define YONDER_PREFETCH_TREND 2     /* also with gaps, where most of the last steps were equal */

/* The far memory of a program. Begin with YONDER_MEMORY_CONFIG_DEFAULT and set the first three. */
typedef struct yonder_memory_config {
	/* sizeof(yonder_memory_config), by which the library knows which fields there are. */
	uint64_t size;
	/* Where the memory is: tcp://host:port, udp://host:port or shm:///path of a `yonder node`, or emu:// for
	 * emulated far memory in this process, such as "emu://?latency=2.5us&gbps=100". Read during the call only. */
	const char *far_url;
	/* Bytes that can be allocated, from 1 to 8 TiB. The node has to have as many. Local bookkeeping takes about
	 * 1 % of what is used. */
	uint64_t memory_bytes;
	/* Most bytes of it that are local at a time, at least 2 MiB. */
	uint64_t local_bytes;
	/* One of YONDER_PREFETCH_... */
	uint64_t prefetch;
	/* How long a touch waits for its page before it is a paging error. */
	uint64_t deadline_ns;
} yonder_memory_config;

/* Readahead and five seconds; far_url, memory_bytes and local_bytes have to be set. */
#define YONDER_MEMORY_CONFIG_DEFAULT \
	{ sizeof(yonder_memory_config), NULL, 0, 0, YONDER_PREFETCH_READAHEAD, UINT64_C(5000000000) }

/* Opens the far memory of this program, which has one at a time, for all its threads. Waits some seconds at most.
 *
 *     -EINVAL        far_url is not the address of far memory, or a setting is not valid
 *     -EALREADY      it is open
 *     -EPERM         this user may not use userfaultfd; the message has the command that mends it
 *     -ENOSYS        this kernel has no userfaultfd, or one that is too old
 *     -EHOSTUNREACH  there is no node at far_url
 *     -ENOMEM        the node has not as much memory, or this machine has no room for the bookkeeping or a thread
 */
int yonder_memory_open(const yonder_memory_config *config);

/* Closes the far memory, when everything in it is free and the other threads that have used it have ended. Programs
 * that end need not close it; the node then has its memory again a while later.
 *
 *     -ENXIO         it is not open, or only in the parent of this process
 *     -EBUSY         something is allocated, or another thread that has called a function below has not ended
 */
int yonder_memory_close(void);

/* What yonder_memory_stats() tells. Counters are of the time since yonder_memory_open(). */
typedef struct yonder_memory {
	uint64_t memory_bytes;      /* can be allocated */
	uint64_t used_bytes;        /* of the pages in which something is allocated, or kept ready by threads */
	uint64_t used_bytes_max;    /* most of them, as far as anybody has looked */
	uint64_t local_limit_bytes; /* may be local */
	uint64_t local_bytes;       /* are local */
	uint64_t local_bytes_max;   /* most that were */
	uint64_t major_faults;      /* touches that waited for the node */
	uint64_t minor_faults;      /* touches of what was not mapped, but here */
	uint64_t fetched_bytes;     /* came from the node */
	uint64_t written_bytes;     /* went there */
} yonder_memory;

/* How full the far memory is, and what it did. -ENXIO if it is not open. */
int yonder_memory_stats(yonder_memory *stats);

/* Advises on the pages that `bytes` bytes at `address`, in memory that was allocated here, are in. Nothing but speed
 * depends on it, and of too much advice the oldest is forgotten.
 *
 * With `out` other than 0 they will not be touched soon: they are the first to leave local memory when room is needed,
 * and at once where a quota is reached or almost. That holds for what is local now, until it has left.
 *
 * With `out` 0 they will be touched together: a touch of one that has to be fetched fetches others of them too, up to
 * 128. That holds until they are advised out, and has no effect with YONDER_PREFETCH_NONE.
 *
 *     -EINVAL        `bytes` is 0
 *     -EFAULT        the bytes are not in far memory
 *     -ENXIO         no far memory is open */
int yonder_swap_advise(const void *address, size_t bytes, int out);

/* The functions below are those of the C library without the prefix, for far memory. Where one returns NULL, errno says
 * why, and yonder_error_message() too:
 *
 *     ENOMEM         far memory has no room, or the node does not answer for zeros
 *     EINVAL         the alignment is no power of two
 *     ENXIO          no far memory is open
 *
 * A block may be used, resized and freed by any thread. */

/* Allocates `bytes` bytes with any content, aligned for every object; with 0 bytes a block of its own too. */
void *yonder_malloc(size_t bytes);

/* Allocates `count` times `bytes` bytes that are zeros. Zeros of whole pages take no memory before they are written. */
void *yonder_calloc(size_t count, size_t bytes);

/* Allocates `bytes` bytes at a multiple of `align`, a power of two. Up to 2 MiB there are always such places. */
void *yonder_memalign(size_t align, size_t bytes);

/* Makes a block hold `bytes` bytes, and returns where it is now: its first bytes are as they were. Large blocks are
 * cut, and grow if there is room behind them, where they are. NULL is as for yonder_malloc(); 0 bytes are as for
 * yonder_free(), and NULL is returned. If it fails the block is as it was. */
void *yonder_realloc(void *block, size_t bytes);

/* Frees a block that one of the functions above has returned. NULL is ignored. Of a large one the memory goes back
 * to the node at once. */
void yonder_free(void *block);

/* Bytes of a block that may be used, at least as many as were asked for. 0 for NULL. */
size_t yonder_malloc_usable_size(void *block);

/* ---- Paging errors ---------------------------------------------------------------------------------------------- */

/* A touch of far memory whose page cannot be had: the node is lost, or the memory is damaged (an uncorrectable error).
 * What is between YONDER_TRY and YONDER_CATCH goes on in the part behind YONDER_CATCH then; without one around it, the
 * program ends.
 *
 *     YONDER_TRY {
 *             sum += table[index];
 *     } YONDER_CATCH(code, address) {
 *             fprintf(stderr, "%p: %s\n", address, yonder_caught_text(code));
 *             forget(index);
 *     } YONDER_END
 *
 * `code` is one of YONDER_CAUGHT_... and `address` the address that was touched; both are names of the caller's choice.
 *
 * WHAT A JUMP MAY SKIP. The jump is that of longjmp(): functions that were called inside end where they are. They must
 * hold no lock, and be in the middle of nothing that others see half done; that holds for functions of the C library on
 * far memory too, such as fputs(), which locks its stream. In C++ no object whose destructor does anything may be alive
 * between the two. Local variables of the function that are changed inside and read behind have to be volatile. The
 * page stays as it is: what was written before is written.
 *
 * TRY within TRY is allowed, in the same function and in others: the innermost catches. `return`, `break`,
 * `continue`, `goto` and exceptions may leave YONDER_TRY, longjmp() may not. A page that is PAGE_LOST or DAMAGED
 * stays so until the memory is freed. */

#define YONDER_CAUGHT_NODE_LOST 1   /* the connection to the node is lost */
#define YONDER_CAUGHT_TIMED_OUT 2   /* the node has not answered until the deadline */
#define YONDER_CAUGHT_NODE_FAILED 3 /* the node has answered with errors until the deadline */
#define YONDER_CAUGHT_LOCAL_FULL 4  /* there was no room for the page, because the node takes no writes */
#define YONDER_CAUGHT_STUCK 5       /* the page was under reclaim until the deadline */
#define YONDER_CAUGHT_PAGE_LOST 6   /* the page's bytes are not those that were written: it is lost */
#define YONDER_CAUGHT_DAMAGED 7     /* the memory under the page is damaged: it is lost */
#define YONDER_CAUGHT_FORKED 8      /* only the parent of this process could fetch the page */

/* What YONDER_TRY keeps. */
typedef struct yonder_try {
	uint64_t kept[10];
} yonder_try;

#define YONDER_TRY_NAME_(line) yonder_try_##line
#define YONDER_TRY_NAME(line) YONDER_TRY_NAME_(line)

#define YONDER_TRY \
	{ \
		yonder_try YONDER_TRY_NAME(__LINE__) __attribute__((cleanup(yonder_try_leave))); \
		if (yonder_try_enter(&YONDER_TRY_NAME(__LINE__)) == 0)

#define YONDER_CATCH(code, address) \
		else { \
			void *address = NULL; \
			const int code = yonder_caught(&address); \
			(void)code; \
			(void)address;

#define YONDER_END \
		} \
	}

/* What YONDER_TRY calls: begins, and returns 0; returns again, with a code, if it has caught one. */
int yonder_try_enter(yonder_try *kept) __attribute__((returns_twice));

/* What YONDER_TRY calls at its end. */
void yonder_try_leave(yonder_try *kept);

/* The code of what this thread has caught last, and its address, if that is not NULL. 0 if it has caught nothing. */
int yonder_caught(void **address);

/* What a code means, as the end of a sentence. Never NULL. */
const char *yonder_caught_text(int code);

#ifdef __cplusplus
}
#endif

#endif /* YONDER_H */
