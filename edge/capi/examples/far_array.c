/*
 * far_array.c - an array that is eight times as large as what is local of it
 *
 *     cc far_array.c -o far_array $(pkg-config --cflags --libs yonder)
 *     yonder node --listen tcp://127.0.0.1:7000 --memory 64MiB &
 *     ./far_array tcp://127.0.0.1:7000
 *
 * The array is ordinary memory to the program: it is filled and summed up in order, where what comes next is fetched ahead, and
 * then looked into at places that nobody foresees. At the end it says what that took.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <yonder.h>

#define NUMBERS ((size_t)4 << 20)
#define LOOKS 5000

static void must(int is_true, const char *what)
{
	if (!is_true) {
		fprintf(stderr, "far_array: %s: %s\n", what, yonder_error_message());
		exit(1);
	}
}

int main(int argc, char **argv)
{
	yonder_memory_config config = YONDER_MEMORY_CONFIG_DEFAULT;
	yonder_memory memory;
	uint64_t *numbers, sum = 0, random = 1;
	size_t index;

	if (argc != 2) {
		fprintf(stderr, "usage: far_array URL, such as tcp://127.0.0.1:7000\n");
		return 2;
	}
	config.far_url = argv[1];
	config.memory_bytes = NUMBERS * sizeof *numbers;
	config.local_bytes = config.memory_bytes / 8;
	must(yonder_memory_open(&config) == 0, "open");
	numbers = yonder_malloc(NUMBERS * sizeof *numbers);
	must(numbers != NULL, "malloc");

	for (index = 0; index < NUMBERS; index++)
		numbers[index] = index;
	for (index = 0; index < NUMBERS; index++)
		sum += numbers[index];
	printf("the sum is %" PRIu64 "\n", sum);
	for (index = 0; index < LOOKS; index++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		must(numbers[random >> 42] == random >> 42, "a number has changed");
	}

	must(yonder_memory_stats(&memory) == 0, "stats");
	printf("%" PRIu64 " MiB were used, and at most %" PRIu64 " MiB of them local; %" PRIu64 " MiB were fetched\n",
	       memory.used_bytes >> 20, memory.local_bytes_max >> 20, memory.fetched_bytes >> 20);
	yonder_free(numbers);
	must(yonder_memory_close() == 0, "close");
	return sum == (uint64_t)NUMBERS / 2 * (NUMBERS - 1) ? 0 : 1;
}
