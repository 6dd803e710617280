/*
 * cache.c - a cache whose values are far: memcached's text protocol, a light thread for each connection
 *
 *     cc -O2 cache.c -o cache $(pkg-config --cflags --libs yonder)
 *     yonder node --listen tcp://127.0.0.1:7000 --memory 1GiB &
 *     ./cache 127.0.0.1:11211 tcp://127.0.0.1:7000 1024 128     1,024 MiB for items, 128 MiB of it local
 *     printf 'set a 0 0 1\r\nx\r\nget a\r\nquit\r\n' | nc 127.0.0.1 11211
 *
 * It is written as a server with a thread for each connection: it reads, looks up under a lock, and answers. Where an
 * item is not here the connection's light thread waits for it, with the lock if it has one, and its worker serves
 * others. It knows get, gets, set, add, replace, delete, stats, version and quit. It is an example: its hash has no
 * secret, so who chooses keys can make one bucket long, and connections that say nothing are kept.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <yonder_threads.h>

#define KEY_MAX 250
#define VALUE_MAX (1 << 20)
/* Each lock is for every so-manieth bucket. */
#define LOCKS 1024
#define CONNECTIONS_MAX 4000
/* The longest line, and what is read of a connection at once. */
#define BUFFER 8192

/* ---- Items ------------------------------------------------------------------------------------------------------ */

/* A key and its value, in far memory. */
struct item {
	struct item *next; /* in its bucket */
	uint32_t users;    /* who reads it, and the bucket */
	uint32_t flags;
	int64_t expires; /* second of the monotonic clock; 0: never */
	uint32_t value_length;
	uint8_t key_length;
	char bytes[]; /* key and value */
};

static struct item **buckets; /* far too */
static size_t bucket_mask;
static yonder_mutex *locks[LOCKS];
static uint64_t items, asked, hits; /* counters of all workers */

static uint64_t hash(const char *key, size_t length)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	while (length-- > 0)
		hash = (hash ^ (unsigned char)*key++) * UINT64_C(0x100000001b3);
	return hash ^ hash >> 29;
}

static int64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec + 1;
}

static void let_go(struct item *item)
{
	if (__atomic_sub_fetch(&item->users, 1, __ATOMIC_ACQ_REL) == 0)
		yonder_free(item);
}

/* Where the item with this key is, or the end of its bucket. The caller has the lock. */
static struct item **place_of(uint64_t hash, const char *key, size_t length)
{
	struct item **place = &buckets[hash & bucket_mask];

	while (*place != NULL && ((*place)->key_length != length || memcmp((*place)->bytes, key, length) != 0))
		place = &(*place)->next;
	return place;
}

/* Takes an item out of its bucket, and returns it. The caller has the lock. */
static struct item *unlink_at(struct item **place)
{
	struct item *item = *place;

	*place = item->next;
	__atomic_sub_fetch(&items, 1, __ATOMIC_RELAXED);
	return item;
}

static yonder_mutex *lock_of(uint64_t hash)
{
	yonder_mutex *lock = locks[hash & bucket_mask & (LOCKS - 1)];

	yonder_mutex_lock(lock);
	return lock;
}

/* The item with this key, which is to be let go, or NULL. */
static struct item *find(const char *key, size_t length)
{
	uint64_t number = hash(key, length);
	yonder_mutex *lock = lock_of(number);
	struct item **place = place_of(number, key, length), *item = *place;

	if (item != NULL && item->expires != 0 && item->expires <= now()) {
		let_go(unlink_at(place));
		item = NULL;
	}
	if (item != NULL)
		__atomic_add_fetch(&item->users, 1, __ATOMIC_RELAXED);
	yonder_mutex_unlock(lock);
	return item;
}

enum store { SET, ADD, REPLACE };

/* Puts an item in the place of the one with its key. Returns whether it did; else the item is let go. */
static int store(enum store how, struct item *item)
{
	uint64_t number = hash(item->bytes, item->key_length);
	yonder_mutex *lock = lock_of(number);
	struct item **place = place_of(number, item->bytes, item->key_length), *old = NULL;
	int there = *place != NULL && ((*place)->expires == 0 || (*place)->expires > now());
	int is_done = how == SET || there == (how == REPLACE);

	if (is_done) {
		if (*place != NULL)
			old = unlink_at(place);
		item->next = buckets[number & bucket_mask];
		buckets[number & bucket_mask] = item;
		__atomic_add_fetch(&items, 1, __ATOMIC_RELAXED);
	} else {
		old = item;
	}
	yonder_mutex_unlock(lock);
	if (old != NULL)
		let_go(old);
	return is_done;
}

static int delete(const char *key, size_t length)
{
	uint64_t number = hash(key, length);
	yonder_mutex *lock = lock_of(number);
	struct item **place = place_of(number, key, length);
	struct item *item = *place == NULL ? NULL : unlink_at(place);

	yonder_mutex_unlock(lock);
	if (item != NULL)
		let_go(item);
	return item != NULL;
}

/* ---- Connections ------------------------------------------------------------------------------------------------ */

struct connection {
	yonder_socket *socket;
	size_t begin, end;     /* of what was received and not read */
	size_t answered;       /* bytes of `answer` that wait to be sent */
	char buffer[BUFFER], answer[BUFFER];
};

/* Sends what waits. Returns 0, or -1 if the connection is gone. */
static int flush(struct connection *connection)
{
	size_t length = connection->answered;

	connection->answered = 0;
	return length == 0 ? 0 : yonder_send(connection->socket, connection->answer, length);
}

/* Answers with bytes, which may be far. They are sent together with others. */
static int answer(struct connection *connection, const void *bytes, size_t length)
{
	if (length > BUFFER - connection->answered && flush(connection) < 0)
		return -1;
	if (length > BUFFER)
		return yonder_send(connection->socket, bytes, length);
	memcpy(connection->answer + connection->answered, bytes, length);
	connection->answered += length;
	return 0;
}

static int say(struct connection *connection, const char *text)
{
	return answer(connection, text, strlen(text));
}

/* Receives more. Returns 0 if there is more, else -1. What waits is sent first: the other side may wait for it. */
static int receive_more(struct connection *connection)
{
	ptrdiff_t bytes;

	if (flush(connection) < 0)
		return -1;
	memmove(connection->buffer, connection->buffer + connection->begin, connection->end - connection->begin);
	connection->end -= connection->begin;
	connection->begin = 0;
	if (connection->end == BUFFER)
		return -1;
	bytes = yonder_receive(connection->socket, connection->buffer + connection->end, BUFFER - connection->end);
	if (bytes <= 0)
		return -1;
	connection->end += (size_t)bytes;
	return 0;
}

/* The next line, without its end; NULL if the connection is over. */
static char *next_line(struct connection *connection)
{
	char *line, *end;

	for (;;) {
		line = connection->buffer + connection->begin;
		end = memchr(line, '\n', connection->end - connection->begin);
		if (end != NULL)
			break;
		if (receive_more(connection) < 0)
			return NULL;
	}
	connection->begin += (size_t)(end - line) + 1;
	*end = 0;
	if (end > line && end[-1] == '\r')
		end[-1] = 0;
	return line;
}

/* Reads `length` bytes, to `into`, which may be far, or nowhere. */
static int read_bytes(struct connection *connection, char *into, size_t length)
{
	while (length > 0) {
		size_t part = connection->end - connection->begin;

		if (part == 0 && into != NULL && length >= BUFFER) {
			/* Much is received where it belongs. */
			ptrdiff_t bytes;

			if (flush(connection) < 0)
				return -1;
			bytes = yonder_receive(connection->socket, into, length);
			if (bytes <= 0)
				return -1;
			into += bytes;
			length -= (size_t)bytes;
			continue;
		}
		if (part == 0) {
			if (receive_more(connection) < 0)
				return -1;
			continue;
		}
		part = part < length ? part : length;
		if (into != NULL) {
			memcpy(into, connection->buffer + connection->begin, part);
			into += part;
		}
		connection->begin += part;
		length -= part;
	}
	return 0;
}

static int get(struct connection *connection, char **save, int has_unique)
{
	char *key, head[64];

	while ((key = strtok_r(NULL, " ", save)) != NULL) {
		size_t length = strlen(key);
		struct item *item = length > KEY_MAX ? NULL : find(key, length);
		int failed;

		__atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED);
		if (item == NULL)
			continue;
		__atomic_add_fetch(&hits, 1, __ATOMIC_RELAXED);
		snprintf(head, sizeof head, has_unique ? " %" PRIu32 " %" PRIu32 " 0\r\n" : " %" PRIu32 " %" PRIu32 "\r\n",
			 item->flags, item->value_length);
		failed = say(connection, "VALUE ") < 0 || answer(connection, key, length) < 0 || say(connection, head) < 0 ||
			 answer(connection, item->bytes + length, item->value_length) < 0 || say(connection, "\r\n") < 0;
		let_go(item);
		if (failed)
			return -1;
	}
	return say(connection, "END\r\n");
}

/* A number of at most 32 bits, as all of the protocol are here. */
static int read_number(const char *text, uint64_t *number)
{
	size_t digits = strspn(text, "0123456789");

	*number = strtoull(text, NULL, 10);
	return digits > 0 && digits <= 10 && text[digits] == 0 && *number <= UINT32_MAX;
}

static int put(struct connection *connection, char **save, enum store how)
{
	char *word[4], *noreply, ending[2];
	uint64_t number[3];
	struct item *item;
	size_t i, length;
	int is_stored, is_good = 1;

	for (i = 0; i < 4; i++)
		is_good = (word[i] = strtok_r(NULL, " ", save)) != NULL && is_good;
	for (i = 0; i < 3 && is_good; i++)
		is_good = read_number(word[i + 1], &number[i]);
	noreply = is_good ? strtok_r(NULL, " ", save) : NULL;
	if (!is_good)
		return say(connection, "CLIENT_ERROR bad command line format\r\n");
	length = strlen(word[0]);
	if (number[2] > VALUE_MAX || length > KEY_MAX) {
		if (read_bytes(connection, NULL, (size_t)number[2] + 2) < 0)
			return -1;
		return say(connection, "SERVER_ERROR object too large for cache\r\n");
	}
	item = yonder_malloc(sizeof *item + length + (size_t)number[2]);
	if (item == NULL) {
		if (read_bytes(connection, NULL, (size_t)number[2] + 2) < 0)
			return -1;
		return say(connection, "SERVER_ERROR out of memory storing object\r\n");
	}
	item->users = 1;
	item->flags = (uint32_t)number[0];
	item->expires = number[1] == 0 ? 0 : now() + (int64_t)(number[1] > INT32_MAX ? INT32_MAX : number[1]);
	item->value_length = (uint32_t)number[2];
	item->key_length = (uint8_t)length;
	memcpy(item->bytes, word[0], length);
	/* The words are gone when more is received. */
	is_good = noreply == NULL || strcmp(noreply, "noreply") != 0;
	if (read_bytes(connection, item->bytes + length, item->value_length) < 0 ||
	    read_bytes(connection, ending, 2) < 0) {
		let_go(item);
		return -1;
	}
	if (memcmp(ending, "\r\n", 2) != 0) {
		let_go(item);
		return say(connection, "CLIENT_ERROR bad data chunk\r\n");
	}
	is_stored = store(how, item);
	return is_good ? say(connection, is_stored ? "STORED\r\n" : "NOT_STORED\r\n") : 0;
}

static int stats(struct connection *connection)
{
	char text[512];
	yonder_memory memory;

	if (yonder_memory_stats(&memory) < 0)
		return -1;
	snprintf(text, sizeof text,
		 "STAT curr_items %" PRIu64 "\r\nSTAT cmd_get %" PRIu64 "\r\nSTAT get_hits %" PRIu64 "\r\nSTAT bytes %" PRIu64
		 "\r\nSTAT local_bytes %" PRIu64 "\r\nSTAT pages_waited_for %" PRIu64 "\r\nEND\r\n",
		 items, asked, hits, memory.used_bytes, memory.local_bytes, memory.major_faults);
	return say(connection, text);
}

/* Does what a line asks for. Returns -1 if the connection is over. */
static int serve_line(struct connection *connection, char *line)
{
	char *save, *command = strtok_r(line, " ", &save), *key, *noreply;

	if (command == NULL)
		return say(connection, "ERROR\r\n");
	if (strcmp(command, "get") == 0 || strcmp(command, "gets") == 0)
		return get(connection, &save, command[3] == 's');
	if (strcmp(command, "set") == 0)
		return put(connection, &save, SET);
	if (strcmp(command, "add") == 0)
		return put(connection, &save, ADD);
	if (strcmp(command, "replace") == 0)
		return put(connection, &save, REPLACE);
	if (strcmp(command, "delete") == 0 && (key = strtok_r(NULL, " ", &save)) != NULL) {
		int was_there = strlen(key) <= KEY_MAX && delete(key, strlen(key));

		noreply = strtok_r(NULL, " ", &save);
		if (noreply != NULL && strcmp(noreply, "noreply") == 0)
			return 0;
		return say(connection, was_there ? "DELETED\r\n" : "NOT_FOUND\r\n");
	}
	if (strcmp(command, "stats") == 0)
		return stats(connection);
	if (strcmp(command, "version") == 0)
		return say(connection, "VERSION yonder-cache\r\n");
	if (strcmp(command, "quit") == 0)
		return -1;
	return say(connection, "ERROR\r\n");
}

static void *serve(void *argument)
{
	struct connection connection;
	char *line;

	connection.socket = argument;
	connection.begin = connection.end = connection.answered = 0;
	while ((line = next_line(&connection)) != NULL && serve_line(&connection, line) == 0)
		;
	flush(&connection);
	yonder_socket_close(connection.socket);
	return NULL;
}

static void *accept_all(void *argument)
{
	yonder_socket *listener = argument, *socket;

	for (;;) {
		int result = yonder_accept(listener, &socket);

		if (result == -EBADF || result == -EINVAL)
			break;
		if (result < 0)
			/* There are no descriptors or no memory, until a connection ends. */
			yonder_sleep(10000000);
		else if (yonder_spawn(serve, socket, NULL) < 0)
			yonder_socket_close(socket);
	}
	fprintf(stderr, "cache: accept: %s\n", yonder_error_message());
	return NULL;
}

/* ---- The program ------------------------------------------------------------------------------------------------ */

static void must(int is_true, const char *what)
{
	if (!is_true) {
		fprintf(stderr, "cache: %s: %s\n", what, yonder_error_message());
		exit(1);
	}
}

/* The port that the kernel has chosen, if it was to. */
static int port_of(yonder_socket *listener)
{
	union {
		struct sockaddr any;
		struct sockaddr_in ipv4;
		struct sockaddr_in6 ipv6;
	} name;
	socklen_t length = sizeof name;

	if (getsockname(yonder_socket_descriptor(listener), &name.any, &length) < 0)
		return -1;
	return ntohs(name.any.sa_family == AF_INET ? name.ipv4.sin_port : name.ipv6.sin6_port);
}

static uint64_t mebibytes(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 10);

	if (*text == 0 || *end != 0 || value == 0 || value > 1 << 20) {
		fprintf(stderr, "cache: '%s' is no number of MiB\n", text);
		exit(2);
	}
	return value << 20;
}

int main(int argc, char **argv)
{
	yonder_memory_config memory = YONDER_MEMORY_CONFIG_DEFAULT;
	yonder_threads_config threads = YONDER_THREADS_CONFIG_DEFAULT;
	yonder_socket *listener;
	size_t i;

	if (argc < 5 || argc > 6) {
		fprintf(stderr, "usage: cache HOST:PORT URL MIB LOCAL_MIB [WORKERS]\n");
		return 2;
	}
	memory.far_url = argv[2];
	memory.memory_bytes = mebibytes(argv[3]);
	memory.local_bytes = mebibytes(argv[4]);
	/* Neighbours in memory have nothing to do with each other. */
	memory.prefetch = YONDER_PREFETCH_NONE;
	must(yonder_memory_open(&memory) == 0, "open");
	/* A bucket for each KiB. */
	for (bucket_mask = 1023; bucket_mask < memory.memory_bytes / 1024; bucket_mask = bucket_mask * 2 + 1)
		;
	buckets = yonder_calloc(bucket_mask + 1, sizeof *buckets);
	must(buckets != NULL, "buckets");
	for (i = 0; i < LOCKS; i++)
		locks[i] = yonder_mutex_new();
	must(yonder_listen(argv[1], &listener) == 0, argv[1]);
	threads.workers = argc > 5 ? strtoull(argv[5], NULL, 10) : 1;
	threads.light_threads = CONNECTIONS_MAX + 1;
	printf("listening on port %d\n", port_of(listener));
	fflush(stdout);
	must(yonder_threads_run(&threads, accept_all, listener, NULL) == 0, "run");
	return 1;
}
