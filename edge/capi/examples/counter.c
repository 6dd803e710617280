/*
 * counter.c - two users of one address space count under a lock
 *
 *     cc counter.c -o counter $(pkg-config --cflags --libs yonder)
 *     yonder node --listen udp://127.0.0.1:7000 --memory 64MiB &
 *     ./counter udp://127.0.0.1:7000
 *
 * The owner allocates a page with a lock and a counter, and gives a ticket away. The guest, which could as well be another
 * program on another machine, opens the address space with it. Both add to the counter, which the lock alone protects.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <yonder.h>

#define TURNS 200

/* Where things are in the page. */
#define LOCK 0
#define COUNTER 8
#define GREETING 64

static void must(int result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "counter: %s: %s\n", what, yonder_error_message());
		exit(1);
	}
}

/* Adds 1 to the counter at `page`, by a read and a write. */
static void count(yonder_thread *thread, uint64_t page)
{
	uint64_t counter;

	must(yonder_rlock(thread, page + LOCK), "rlock");
	must(yonder_rread(thread, page + COUNTER, &counter, sizeof counter), "rread");
	counter += 1;
	must(yonder_rwrite(thread, page + COUNTER, &counter, sizeof counter), "rwrite");
	must(yonder_runlock(thread, page + LOCK), "runlock");
}

int main(int argc, char **argv)
{
	yonder_process *owner, *guest;
	yonder_thread *mine, *theirs;
	char ticket[YONDER_TICKET_BYTES], greeting[6];
	uint64_t page, counter;
	int turn;

	if (argc != 2) {
		fprintf(stderr, "usage: counter URL, such as udp://127.0.0.1:7000\n");
		return 2;
	}
	must(yonder_process_create(argv[1], NULL, &owner), "create");
	must(yonder_thread_open(owner, &mine), "thread");
	must(yonder_ralloc(mine, 4096, YONDER_READ | YONDER_WRITE, &page), "ralloc");
	must(yonder_rwrite(mine, page + GREETING, "hello", 6), "rwrite");

	must(yonder_process_ticket(owner, YONDER_RIGHTS_READ_WRITE, ticket, sizeof ticket), "ticket");
	must(yonder_process_open(argv[1], ticket, NULL, &guest), "open");
	must(yonder_thread_open(guest, &theirs), "thread");
	must(yonder_rread(theirs, page + GREETING, greeting, sizeof greeting), "rread");
	printf("the guest has read '%s'\n", greeting);

	for (turn = 0; turn < TURNS; turn++)
		count(turn % 2 ? mine : theirs, page);
	must(yonder_fetch_add(mine, page + COUNTER, 0, &counter), "fetch_add");
	printf("the counter is %" PRIu64 "\n", counter);

	yonder_thread_close(theirs);
	yonder_process_close(guest);
	must(yonder_rfree(mine, page), "rfree");
	yonder_thread_close(mine);
	yonder_process_close(owner);
	return counter == TURNS ? 0 : 1;
}
