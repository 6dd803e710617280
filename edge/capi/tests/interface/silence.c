/*
 * silence.c - a node that goes away is an error of the calls that need it, and of nothing else
 *
 *     silence URL
 *
 * Allocates, prints "ready", waits until its standard input ends, which says that the node is gone, and goes on.
 * tests/interface/main.rs builds and runs it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <yonder.h>

static int lost_or_late(int result)
{
	return result == -ETIMEDOUT || result == -ESTALE;
}

/* A call may be late on a machine that is busy, while the node is there: then it is made again. */
static int is_late(int result)
{
	static int tries;

	return result == -ETIMEDOUT && ++tries < 500;
}

static int begin(const char *url, const yonder_config *config, yonder_process **process, yonder_thread **thread,
		 uint64_t *address)
{
	int result;

	do
		result = yonder_process_create(url, config, process);
	while (is_late(result));
	if (result < 0)
		return result;
	do
		result = yonder_thread_open(*process, thread);
	while (is_late(result));
	if (result < 0)
		return result;
	do
		result = yonder_ralloc(*thread, 64, YONDER_READ | YONDER_WRITE, address);
	while (is_late(result));
	return result;
}

int main(int argc, char **argv)
{
	yonder_config config = YONDER_CONFIG_DEFAULT;
	yonder_process *process;
	yonder_thread *thread, *later;
	yonder_pending pending;
	uint64_t address;
	int results[5];
	size_t index;

	if (argc != 2)
		return 2;
	config.deadline_ns = 50000000;
	if (begin(argv[1], &config, &process, &thread, &address) < 0) {
		fprintf(stderr, "silence: %s\n", yonder_error_message());
		return 1;
	}
	printf("ready\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	results[0] = yonder_rwrite(thread, address, "x", 1);
	results[1] = yonder_rread(thread, address, &address, 1);
	results[2] = yonder_rwrite_async(thread, address, "y", 1, &pending);
	if (results[2] == 0)
		results[2] = yonder_rwait(thread, pending);
	results[3] = yonder_rlock(thread, address);
	results[4] = yonder_thread_open(process, &later) == -EHOSTUNREACH ? -ETIMEDOUT : 0;
	for (index = 0; index < sizeof results / sizeof results[0]; index++)
		if (!lost_or_late(results[index])) {
			printf("call %d ended with %s\n", (int)index, strerror(-results[index]));
			return 1;
		}
	yonder_thread_close(thread);
	yonder_process_close(process);
	printf("done\n");
	return 0;
}
