/*
 * calls.c - every function of yonder.h, and what it refuses
 *
 *     calls URL NOWHERE
 *
 * URL is a node's, NOWHERE one at which there is none. Prints what is not as it should be, and ends with 1 if anything.
 * tests/interface/main.rs builds and runs it.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yonder.h>

static int wrong;

#define IS(expected, call)                                                                                          \
	do {                                                                                                        \
		long long got_ = (long long)(call), expected_ = (long long)(expected);                              \
		if (got_ != expected_) {                                                                            \
			wrong++;                                                                                    \
			printf("line %d: %s is %lld, not %lld; last message: %s\n", __LINE__, #call, got_, expected_, \
			       yonder_error_message());                                                             \
		}                                                                                                   \
	} while (0)

/* That the last message contains a text, and is one line. */
static void says(int line, const char *text)
{
	const char *message = yonder_error_message();

	if (!strstr(message, text) || strchr(message, '\n')) {
		wrong++;
		printf("line %d: the message is '%s', without '%s'\n", line, message, text);
	}
}
#define SAYS(text) says(__LINE__, text)

#define READ_WRITE (YONDER_READ | YONDER_WRITE)

static void processes(const char *url, const char *nowhere)
{
	yonder_config config = YONDER_CONFIG_DEFAULT;
	yonder_process *process = NULL;

	IS(0, strcmp(yonder_version(), YONDER_VERSION));
	IS(0, strcmp(yonder_error_message(), ""));
	IS(-EINVAL, yonder_process_create(NULL, NULL, &process));
	SAYS("'url' is NULL");
	IS(-EINVAL, yonder_process_create(url, NULL, NULL));
	SAYS("'process' is NULL");
	IS(-EINVAL, yonder_process_create("\xff", NULL, &process));
	IS(-EINVAL, yonder_process_create("nonsense\n", NULL, &process));
	SAYS("'nonsense '");
	IS(-EHOSTUNREACH, yonder_process_create(nowhere, NULL, &process));
	SAYS("yonder node --listen");
	IS(-EINVAL, yonder_process_open(url, "no ticket", NULL, &process));
	SAYS("is not a ticket");
	IS(-EINVAL, yonder_process_open(url, NULL, NULL, &process));
	IS(-ESTALE, yonder_process_open(url, "1-4000000000000001", NULL, &process));
	config.size = 8;
	IS(-EINVAL, yonder_process_create(url, &config, &process));
	SAYS("YONDER_CONFIG_DEFAULT");
	config.size = sizeof config;
	config.pending_max = 0;
	IS(-EINVAL, yonder_process_create(url, &config, &process));
	config.pending_max = YONDER_PENDING_MAX + 1;
	IS(-EINVAL, yonder_process_create(url, &config, &process));
	SAYS("pending_max");
	IS(1, process == NULL);
	config.pending_max = YONDER_PENDING_MAX;
	config.lease_ns = config.deadline_ns = config.spin_ns = UINT64_MAX;
	IS(0, yonder_process_create(url, &config, &process));
	yonder_process_close(process);
	yonder_process_close(NULL);
}

static void tickets(const char *url, yonder_process *owner, yonder_thread *thread)
{
	char ticket[YONDER_TICKET_BYTES], same[YONDER_TICKET_BYTES];
	yonder_process *reader;
	yonder_thread *reading;
	uint64_t address, other;
	char byte = 'x';

	IS(0, yonder_ralloc(thread, 4096, READ_WRITE, &address));
	IS(0, yonder_rwrite(thread, address, &byte, 1));
	IS(-ERANGE, yonder_process_ticket(owner, YONDER_RIGHTS_READ, ticket, 3));
	SAYS("YONDER_TICKET_BYTES");
	IS(-ERANGE, yonder_process_ticket(owner, YONDER_RIGHTS_SAME, NULL, 0));
	IS(-EINVAL, yonder_process_ticket(owner, YONDER_RIGHTS_READ, NULL, sizeof ticket));
	IS(-EINVAL, yonder_process_ticket(owner, 4, ticket, sizeof ticket));
	IS(-EINVAL, yonder_process_ticket(NULL, YONDER_RIGHTS_READ, ticket, sizeof ticket));
	IS(0, yonder_process_ticket(owner, YONDER_RIGHTS_READ, ticket, sizeof ticket));
	IS(0, yonder_process_open(url, ticket, NULL, &reader));
	IS(0, yonder_process_ticket(reader, YONDER_RIGHTS_SAME, same, sizeof same));
	IS(0, strcmp(ticket, same));
	IS(-EACCES, yonder_process_ticket(reader, YONDER_RIGHTS_OWNER, ticket, sizeof ticket));
	IS(0, yonder_thread_open(reader, &reading));
	byte = 0;
	IS(0, yonder_rread(reading, address, &byte, 1));
	IS('x', byte);
	IS(-EACCES, yonder_rwrite(reading, address, &byte, 1));
	SAYS("does not allow");
	IS(-EACCES, yonder_fetch_add(reading, address, 1, NULL));
	IS(-EACCES, yonder_ralloc(reading, 1, YONDER_READ, &other));
	IS(-EACCES, yonder_rfree(reading, address));
	/* A thread stays valid without its process, and without its space once that has ended. */
	yonder_process_close(reader);
	IS(0, yonder_rread(reading, address, &byte, 1));
	yonder_thread_close(reading);
	IS(0, yonder_rfree(thread, address));
}

static void memory(yonder_thread *thread)
{
	static unsigned char out[300000], back[300000];
	uint64_t address = 77, sealed;
	yonder_node status;
	size_t at;

	IS(-EINVAL, yonder_ralloc(NULL, 4096, READ_WRITE, &address));
	SAYS("'thread' is NULL");
	IS(-EINVAL, yonder_ralloc(thread, 4096, READ_WRITE, NULL));
	IS(-EINVAL, yonder_ralloc(thread, 0, READ_WRITE, &address));
	IS(-EINVAL, yonder_ralloc(thread, 4096, YONDER_WRITE, &address));
	IS(-EINVAL, yonder_ralloc(thread, 4096, 64 | YONDER_READ, &address));
	IS(-ENOMEM, yonder_ralloc(thread, UINT64_C(1) << 40, YONDER_READ | YONDER_BACKED, &address));
	SAYS("no room");
	IS(77, address);
	IS(0, yonder_ralloc(thread, sizeof out, READ_WRITE, &address));
	IS(0, yonder_ralloc(thread, 1, YONDER_READ | YONDER_BACKED, &sealed));
	for (at = 0; at < sizeof out; at++)
		out[at] = (unsigned char)(at * 31 + at / 4096);
	IS(0, yonder_rwrite(thread, address, out, sizeof out));
	IS(0, yonder_rread(thread, address, back, sizeof back));
	IS(0, memcmp(out, back, sizeof out));
	IS(0, yonder_rread(thread, address + 4097, back, 4098));
	IS(0, memcmp(out + 4097, back, 4098));
	IS(0, yonder_rread(thread, address, NULL, 0));
	IS(0, yonder_rwrite(thread, address, NULL, 0));
	IS(-EINVAL, yonder_rread(thread, address, NULL, 1));
	SAYS("'into' is NULL");
	IS(-EINVAL, yonder_rwrite(thread, address, NULL, 1));
	IS(-EINVAL, yonder_rread(thread, address, back, SIZE_MAX));
	IS(-EINVAL, yonder_rread(thread, address, back, (size_t)YONDER_TRANSFER_BYTES_MAX + 1));
	IS(-EACCES, yonder_rwrite(thread, sealed, out, 1));
	IS(-EFAULT, yonder_rread(thread, UINT64_C(1) << 60, back, 1));
	SAYS("check the address");
	IS(-EFAULT, yonder_rfree(thread, address + 4096));
	IS(-EINVAL, yonder_node_status(thread, 0, NULL));
	IS(0, yonder_node_status(thread, 0, &status));
	IS(1, status.memory_bytes > status.free_bytes && status.spaces >= 1 && status.allocated_bytes >= sizeof out);
	IS(0, yonder_rfree(thread, sealed));
	IS(0, yonder_rfree(thread, address));
	IS(-EFAULT, yonder_rread(thread, address, back, 1));
}

static void asynchronous(yonder_process *process, yonder_thread *thread, uint64_t pending_max)
{
	static unsigned char out[9000], back[9000];
	yonder_pending writing, reading, failing, names[64];
	yonder_thread *other;
	uint64_t address, count;
	int polled;

	IS(0, yonder_ralloc(thread, 1 << 16, READ_WRITE, &address));
	memset(out, 'w', sizeof out);
	IS(-EINVAL, yonder_rwrite_async(thread, address, out, sizeof out, NULL));
	IS(-EINVAL, yonder_rwrite_async(thread, address, NULL, 1, &writing));
	IS(-EINVAL, yonder_rread_async(NULL, address, back, 1, &reading));
	IS(-EBADF, yonder_rpoll(thread, 0));
	IS(-EBADF, yonder_rwait(thread, 12345));
	SAYS("no pending operation");

	/* Those that touch a page in common keep their order. */
	IS(0, yonder_rwrite_async(thread, address + 5, out, sizeof out, &writing));
	IS(0, yonder_rread_async(thread, address + 5, back, sizeof back, &reading));
	IS(0, yonder_rfence(thread));
	IS(0, yonder_rread_async(thread, UINT64_C(1) << 60, back, 0, &failing));
	IS(0, yonder_rwait(thread, failing));
	IS(0, yonder_rread_async(thread, UINT64_C(1) << 60, back, 1, &failing));
	IS(0, yonder_rrelease(thread));
	IS(1, yonder_rpoll(thread, reading));
	IS(0, memcmp(out, back, sizeof out));
	IS(-EBADF, yonder_rpoll(thread, reading));
	IS(0, yonder_rwait(thread, writing));
	IS(-EBADF, yonder_rwait(thread, writing));
	IS(-EFAULT, yonder_rpoll(thread, failing));
	IS(-EBADF, yonder_rpoll(thread, failing));

	/* There are as many as the configuration says, and no more. */
	for (count = 0; count < pending_max; count++)
		IS(0, yonder_rread_async(thread, address + count * 64, back + count * 64, 64, &names[count]));
	IS(-EAGAIN, yonder_rread_async(thread, address, back + count * 64, 64, &reading));
	SAYS("rpoll some");
	while ((polled = yonder_rpoll(thread, names[0])) == 0)
		;
	IS(1, polled);
	IS(0, yonder_rread_async(thread, address, back + count * 64, 64, &names[0]));
	for (count = 0; count < pending_max; count++)
		IS(0, yonder_rwait(thread, names[count]));

	/* Names belong to their thread; a thread may be closed with operations pending. */
	IS(0, yonder_thread_open(process, &other));
	IS(0, yonder_rwrite_async(other, address, out, sizeof out, &writing));
	IS(-EBADF, yonder_rwait(thread, writing));
	yonder_thread_close(other);
	yonder_thread_close(NULL);
	IS(0, yonder_rfree(thread, address));
}

static void allocations(yonder_process *process, yonder_thread *thread, uint64_t pending_max)
{
	uint64_t address = 77, other = 88, addresses[64], count;
	unsigned char out[64], back[64];
	yonder_pending allocating, writing, reading, freeing, names[64];
	yonder_thread *closed;
	yonder_node before, after;
	int polled;

	IS(-EINVAL, yonder_ralloc_async(NULL, 4096, READ_WRITE, &address, &allocating));
	IS(-EINVAL, yonder_ralloc_async(thread, 4096, READ_WRITE, NULL, &allocating));
	SAYS("'address' is NULL");
	IS(-EINVAL, yonder_ralloc_async(thread, 4096, READ_WRITE, &address, NULL));
	IS(-EINVAL, yonder_ralloc_async(thread, 0, READ_WRITE, &address, &allocating));
	IS(-EINVAL, yonder_ralloc_async(thread, 4096, YONDER_WRITE, &address, &allocating));
	IS(-EINVAL, yonder_rfree_async(thread, address, NULL));
	IS(0, yonder_node_status(thread, 0, &before));

	/* What the node refuses is the result, and the address stays as it was. */
	IS(0, yonder_ralloc_async(thread, UINT64_C(1) << 40, YONDER_READ | YONDER_BACKED, &address, &allocating));
	IS(-ENOMEM, yonder_rwait(thread, allocating));
	SAYS("no room");
	IS(77, address);
	IS(-EBADF, yonder_rwait(thread, allocating));
	IS(0, yonder_rfree_async(thread, UINT64_C(1) << 60, &freeing));
	IS(-EFAULT, yonder_rwait(thread, freeing));

	/* As many at a time as may be; used; and freed after they were used. */
	for (count = 0; count < pending_max; count++)
		IS(0, yonder_ralloc_async(thread, 4096, READ_WRITE, &addresses[count], &names[count]));
	IS(-EAGAIN, yonder_ralloc_async(thread, 4096, READ_WRITE, &address, &allocating));
	IS(-EAGAIN, yonder_rfree_async(thread, 4096, &freeing));
	IS(0, yonder_rrelease(thread));
	for (count = 0; count < pending_max; count++)
		IS(1, yonder_rpoll(thread, names[count]));
	memset(out, 'a', sizeof out);
	for (count = 0; count < pending_max; count++) {
		memset(back, 0, sizeof back);
		IS(0, yonder_rwrite_async(thread, addresses[count], out, sizeof out, &writing));
		IS(0, yonder_rread_async(thread, addresses[count], back, sizeof back, &reading));
		IS(0, yonder_rfree_async(thread, addresses[count], &freeing));
		while ((polled = yonder_rpoll(thread, freeing)) == 0)
			;
		IS(1, polled);
		IS(0, yonder_rwait(thread, writing));
		IS(0, yonder_rwait(thread, reading));
		IS(0, memcmp(out, back, sizeof out));
		IS(-EFAULT, yonder_rread(thread, addresses[count], back, 1));
	}

	/* A thread that is closed puts no address anywhere. */
	IS(0, yonder_thread_open(process, &closed));
	IS(0, yonder_ralloc_async(closed, 4096, READ_WRITE, &other, &allocating));
	IS(-EBADF, yonder_rwait(thread, allocating));
	yonder_thread_close(closed);
	IS(88, other);
	IS(0, yonder_node_status(thread, 0, &after));
	IS(1, after.allocated_bytes <= before.allocated_bytes + (1 << 16));
}

static void words(yonder_thread *thread)
{
	uint64_t address, old = 99;

	IS(0, yonder_ralloc(thread, 64, READ_WRITE, &address));
	IS(0, yonder_rlock(thread, address));
	IS(0, yonder_test_and_set(thread, address, &old));
	IS(1, old);
	IS(0, yonder_runlock(thread, address));
	IS(0, yonder_test_and_set(thread, address, &old));
	IS(0, old);
	IS(0, yonder_fetch_add(thread, address + 8, UINT64_MAX, NULL));
	IS(0, yonder_fetch_add(thread, address + 8, 3, &old));
	IS(1, old == UINT64_MAX);
	IS(0, yonder_compare_and_swap(thread, address + 8, 1, 5, &old));
	IS(2, old);
	IS(0, yonder_compare_and_swap(thread, address + 8, 2, 5, &old));
	IS(2, old);
	IS(0, yonder_fetch_add(thread, address + 8, 0, &old));
	IS(5, old);
	IS(-EINVAL, yonder_fetch_add(thread, address + 4, 1, &old));
	IS(5, old);
	IS(-EFAULT, yonder_rlock(thread, UINT64_C(1) << 60));
	IS(-EFAULT, yonder_runlock(thread, UINT64_C(1) << 60));
	IS(0, yonder_rfree(thread, address));
}

static void calls(yonder_thread *thread)
{
	static char large[YONDER_CALL_BYTES_MAX + 1];
	size_t length = 7;

	IS(-ENOSYS, yonder_call(thread, 0, 987654321, NULL, 0, NULL, 0, &length));
	SAYS("no such offload");
	IS(-EREMOTEIO, yonder_call(thread, 0, 1, "nonsense", 8, NULL, 0, &length));
	IS(-EINVAL, yonder_call(thread, 0, 1, NULL, 1, NULL, 0, NULL));
	IS(-EINVAL, yonder_call(thread, 0, 1, large, sizeof large, NULL, 0, NULL));
	SAYS("65536");
	IS(-EINVAL, yonder_call(thread, 0, 1, NULL, 0, NULL, 1, NULL));
	IS(7, length);
}

/* A call with a thread that waits for a lock is refused, and the message is each caller's own. */
struct waiter {
	yonder_thread *thread;
	uint64_t lock;
	int result;
};

static void *wait_for_lock(void *argument)
{
	struct waiter *waiter = argument;

	IS(0, strcmp(yonder_error_message(), ""));
	/* The owner of the lock is trying the same thread. */
	while ((waiter->result = yonder_rlock(waiter->thread, waiter->lock)) == -EBUSY)
		sched_yield();
	return NULL;
}

static void turns(yonder_process *process, yonder_thread *thread)
{
	struct waiter waiter = { NULL, 0, 1 };
	pthread_t other;
	uint64_t old;
	int refused;

	IS(0, yonder_ralloc(thread, 64, READ_WRITE, &waiter.lock));
	IS(0, yonder_thread_open(process, &waiter.thread));
	IS(0, yonder_rlock(thread, waiter.lock));
	IS(0, pthread_create(&other, NULL, wait_for_lock, &waiter));
	/* What is tried needs no node, so that the other finds the thread free sooner or later. */
	while ((refused = yonder_rpoll(waiter.thread, 12345)) == -EBADF)
		sched_yield();
	IS(-EBUSY, refused);
	SAYS("in use by another thread");
	yonder_thread_close(waiter.thread);
	SAYS("stays open");
	IS(0, yonder_runlock(thread, waiter.lock));
	IS(0, pthread_join(other, NULL));
	IS(0, waiter.result);
	IS(0, yonder_fetch_add(waiter.thread, waiter.lock, 0, &old));
	IS(1, old);
	yonder_thread_close(waiter.thread);
	IS(0, yonder_rfree(thread, waiter.lock));
}

int main(int argc, char **argv)
{
	yonder_config config = YONDER_CONFIG_DEFAULT;
	yonder_process *process;
	yonder_thread *thread, *last;
	uint64_t address;

	if (argc != 3) {
		fprintf(stderr, "usage: calls URL NOWHERE\n");
		return 2;
	}
	processes(argv[1], argv[2]);
	config.pending_max = 8;
	if (yonder_process_create(argv[1], &config, &process) < 0 || yonder_thread_open(process, &thread) < 0) {
		fprintf(stderr, "calls: %s\n", yonder_error_message());
		return 1;
	}
	IS(-EINVAL, yonder_thread_open(NULL, &last));
	IS(-EINVAL, yonder_thread_open(process, NULL));
	tickets(argv[1], process, thread);
	memory(thread);
	asynchronous(process, thread, config.pending_max);
	allocations(process, thread, config.pending_max);
	words(thread);
	calls(thread);
	turns(process, thread);
	/* The owner ends, and with it the address space; its thread is still there to be told so. */
	IS(0, yonder_ralloc(thread, 64, READ_WRITE, &address));
	yonder_process_close(process);
	IS(-ESTALE, yonder_rwrite(thread, address, "x", 1));
	IS(-ESTALE, yonder_ralloc(thread, 64, YONDER_READ, &address));
	yonder_thread_close(thread);
	printf("%d wrong\n", wrong);
	return wrong ? 1 : 0;
}
