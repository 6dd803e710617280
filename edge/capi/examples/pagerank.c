/*
 * pagerank.c - the ranks of a graph that is larger than local memory, by light threads
 *
 *     cc -O2 pagerank.c -o pagerank $(pkg-config --cflags --libs yonder)
 *     yonder node --listen tcp://127.0.0.1:7000 --memory 256MiB &
 *     ./pagerank tcp://127.0.0.1:7000 18 50        2^18 vertices, half of it local
 *     ./pagerank tcp://127.0.0.1:7000 18 50 0      the same by one ordinary thread, which waits for each page
 *
 * The algorithm is that of the GAP benchmark suite: every vertex pulls from its neighbours what they give away, ten
 * times. The graph is a random one of that suite (Kronecker), made in ordinary memory and copied. What the light
 * threads add to such a program is in run_stage(): a stage's vertices are dealt out in chunks to light threads, and
 * while one of them waits for a page the others compute. The result is the same to the last bit, however many there
 * are.
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <yonder_threads.h>

#define EDGES_A_VERTEX 16
#define ITERATIONS 10
#define DAMPING 0.85
/* Vertices that a light thread takes at a time. */
#define CHUNK 256
#define LIGHT_MAX 4096

static void must(int is_true, const char *what)
{
	if (!is_true) {
		fprintf(stderr, "pagerank: %s: %s\n", what, yonder_error_message());
		exit(1);
	}
}

/* ---- The graph -------------------------------------------------------------------------------------------------- */

/* Neighbours of each vertex, and where they begin: compressed sparse rows, in far memory. */
struct graph {
	size_t vertices;
	uint64_t *offsets;
	uint32_t *neighbours;
};

static uint64_t random_state;

static uint64_t draw(void)
{
	uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* An edge falls into a quadrant of the matrix of all edges, then into a quadrant of that, and so on. */
static void draw_edge(unsigned scale, const uint32_t *names, uint32_t edge[2])
{
	uint32_t from = 0, to = 0;
	unsigned level;

	for (level = 0; level < scale; level++) {
		uint64_t place = draw() >> 48;

		from = from << 1 | (place >= 49807);
		to = to << 1 | (place >= 62259 || (place >= 37356 && place < 49807));
	}
	edge[0] = names[from];
	edge[1] = names[to];
}

static void *local(size_t bytes)
{
	void *memory = calloc(1, bytes);

	if (memory == NULL) {
		fprintf(stderr, "pagerank: there is no memory for the graph: give a smaller scale\n");
		exit(1);
	}
	return memory;
}

/* The graph in ordinary memory. Edges go both ways. */
static struct graph make_graph(unsigned scale)
{
	struct graph graph;
	size_t vertices = (size_t)1 << scale, edges = vertices * EDGES_A_VERTEX, i;
	uint32_t *names = local(vertices * sizeof *names), *ends = local(2 * edges * sizeof *ends);

	for (i = 0; i < vertices; i++)
		names[i] = (uint32_t)i;
	for (i = vertices - 1; i > 0; i--) {
		size_t other = draw() % (i + 1);
		uint32_t name = names[i];

		names[i] = names[other];
		names[other] = name;
	}
	graph.vertices = vertices;
	graph.offsets = local((vertices + 1) * sizeof *graph.offsets);
	graph.neighbours = local(2 * edges * sizeof *graph.neighbours);
	for (i = 0; i < edges; i++)
		draw_edge(scale, names, ends + 2 * i);
	for (i = 0; i < 2 * edges; i++)
		graph.offsets[ends[i]]++;
	for (i = 0; i < vertices; i++)
		graph.offsets[i + 1] += graph.offsets[i];
	/* Each vertex' offset is its end now, and moves to its beginning while its neighbours are filled in. */
	for (i = 0; i < 2 * edges; i++)
		graph.neighbours[--graph.offsets[ends[i]]] = ends[i ^ 1];
	graph.offsets[vertices] = 2 * edges;
	free(names);
	free(ends);
	return graph;
}

/* `bytes` bytes of far memory with the content of `memory`, which is freed; zeros if that is NULL. */
static void *to_far(void *memory, size_t bytes)
{
	void *far = yonder_calloc(1, bytes);

	must(far != NULL, "far memory");
	if (memory != NULL)
		memcpy(far, memory, bytes);
	free(memory);
	return far;
}

/* ---- The ranks -------------------------------------------------------------------------------------------------- */

struct ranking {
	struct graph graph;
	double *ranks, *gifts; /* far */
	double *stuck;         /* what vertices without neighbours have, by chunk */
	double base;
	size_t light; /* light threads of a stage; 0: an ordinary thread */
};

/* What is done with the vertices from `first` to `end`, which are chunk number `chunk`. */
typedef void stage_function(struct ranking *ranking, size_t chunk, size_t first, size_t end);

static void give(struct ranking *ranking, size_t chunk, size_t first, size_t end)
{
	size_t vertex;
	double stuck = 0;

	for (vertex = first; vertex < end; vertex++) {
		uint64_t degree = ranking->graph.offsets[vertex + 1] - ranking->graph.offsets[vertex];

		if (degree == 0)
			stuck += ranking->ranks[vertex];
		else
			ranking->gifts[vertex] = ranking->ranks[vertex] / (double)degree;
	}
	ranking->stuck[chunk] = stuck;
}

static void pull(struct ranking *ranking, size_t chunk, size_t first, size_t end)
{
	size_t vertex;
	uint64_t place = ranking->graph.offsets[first];

	(void)chunk;
	for (vertex = first; vertex < end; vertex++) {
		uint64_t last = ranking->graph.offsets[vertex + 1];
		double pulled = 0;

		for (; place < last; place++)
			pulled += ranking->gifts[ranking->graph.neighbours[place]];
		ranking->ranks[vertex] = ranking->base + DAMPING * pulled;
	}
}

struct stage {
	struct ranking *ranking;
	stage_function *function;
	size_t next; /* chunk that nobody has taken */
};

static void *take_chunks(void *argument)
{
	struct stage *stage = argument;
	size_t vertices = stage->ranking->graph.vertices, chunk, first;

	while ((chunk = __atomic_fetch_add(&stage->next, 1, __ATOMIC_RELAXED)) * CHUNK < vertices) {
		first = chunk * CHUNK;
		stage->function(stage->ranking, chunk, first, first + CHUNK < vertices ? first + CHUNK : vertices);
	}
	return NULL;
}

/* Does `function` with all vertices. */
static void run_stage(struct ranking *ranking, stage_function *function)
{
	yonder_light_thread *threads[LIGHT_MAX];
	struct stage stage = { ranking, function, 0 };
	size_t i;

	if (ranking->light == 0)
		take_chunks(&stage);
	for (i = 0; i < ranking->light; i++)
		must(yonder_spawn(take_chunks, &stage, &threads[i]) == 0, "spawn");
	for (i = 0; i < ranking->light; i++)
		must(yonder_join(threads[i], NULL) == 0, "join");
}

static void *rank(void *argument)
{
	struct ranking *ranking = argument;
	double vertices = (double)ranking->graph.vertices;
	size_t chunks = (ranking->graph.vertices + CHUNK - 1) / CHUNK, i, iteration;

	for (i = 0; i < ranking->graph.vertices; i++)
		ranking->ranks[i] = 1 / vertices;
	for (iteration = 0; iteration < ITERATIONS; iteration++) {
		double stuck = 0;

		run_stage(ranking, give);
		for (i = 0; i < chunks; i++)
			stuck += ranking->stuck[i];
		ranking->base = (1 - DAMPING + DAMPING * stuck) / vertices;
		run_stage(ranking, pull);
	}
	return NULL;
}

/* ---- The program ------------------------------------------------------------------------------------------------ */

static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
	char *end;
	uint64_t value = strtoull(text, &end, 10);

	if (*text < '0' || *text > '9' || *end != 0 || value < least || value > most) {
		fprintf(stderr, "pagerank: '%s' is no number from %" PRIu64 " to %" PRIu64 "\n", text, least, most);
		exit(2);
	}
	return value;
}

int main(int argc, char **argv)
{
	yonder_memory_config memory = YONDER_MEMORY_CONFIG_DEFAULT;
	yonder_threads_config threads = YONDER_THREADS_CONFIG_DEFAULT;
	yonder_memory before, after;
	struct ranking ranking;
	struct timespec start, end;
	unsigned scale;
	uint64_t percent, bytes;
	size_t vertices, edges, i;
	double sum = 0, seconds;

	if (argc < 2 || argc > 6) {
		fprintf(stderr, "usage: pagerank URL [SCALE [LOCAL_PERCENT [LIGHT_THREADS [WORKERS]]]]\n");
		return 2;
	}
	scale = (unsigned)(argc > 2 ? number(argv[2], 4, 28) : 14);
	percent = argc > 3 ? number(argv[3], 1, 100) : 50;
	ranking.light = argc > 4 ? (size_t)number(argv[4], 0, LIGHT_MAX) : 8;
	threads.workers = argc > 5 ? number(argv[5], 1, 128) : 1;
	threads.light_threads = LIGHT_MAX + 1;

	ranking.graph = make_graph(scale);
	vertices = ranking.graph.vertices;
	edges = ranking.graph.offsets[vertices];
	bytes = (vertices + 1) * sizeof *ranking.graph.offsets + edges * sizeof *ranking.graph.neighbours +
		vertices * 2 * sizeof *ranking.ranks;
	memory.far_url = argv[1];
	memory.memory_bytes = bytes + (4 << 20);
	/* All of it is local with some room, so that nothing ever leaves. */
	memory.local_bytes = percent == 100 ? memory.memory_bytes * 5 / 4 : bytes / 100 * percent;
	if (memory.local_bytes < 2 << 20)
		memory.local_bytes = 2 << 20;
	must(yonder_memory_open(&memory) == 0, "open");
	ranking.graph.offsets = to_far(ranking.graph.offsets, (vertices + 1) * sizeof *ranking.graph.offsets);
	ranking.graph.neighbours = to_far(ranking.graph.neighbours, edges * sizeof *ranking.graph.neighbours);
	ranking.ranks = to_far(NULL, vertices * sizeof *ranking.ranks);
	ranking.gifts = to_far(NULL, vertices * sizeof *ranking.gifts);
	ranking.stuck = local((vertices + CHUNK - 1) / CHUNK * sizeof *ranking.stuck);

	must(yonder_memory_stats(&before) == 0, "stats");
	clock_gettime(CLOCK_MONOTONIC, &start);
	if (ranking.light == 0)
		rank(&ranking);
	else
		must(yonder_threads_run(&threads, rank, &ranking, NULL) == 0, "run");
	clock_gettime(CLOCK_MONOTONIC, &end);
	must(yonder_memory_stats(&after) == 0, "stats");

	for (i = 0; i < vertices; i++)
		sum += ranking.ranks[i];
	seconds = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
	printf("%zu vertices, %zu edges: the ranks' sum is %.12f, that of vertex 1 %.17g\n", vertices, edges / 2, sum,
	       ranking.ranks[1]);
	printf("%.3f s with %" PRIu64 " of %" PRIu64 " MiB local: %" PRIu64 " pages were waited for, %" PRIu64
	       " MiB fetched\n",
	       seconds, memory.local_bytes >> 20, bytes >> 20, after.major_faults - before.major_faults,
	       (after.fetched_bytes - before.fetched_bytes) >> 20);

	free(ranking.stuck);
	yonder_free(ranking.gifts);
	yonder_free(ranking.ranks);
	yonder_free(ranking.graph.neighbours);
	yonder_free(ranking.graph.offsets);
	must(yonder_memory_close() == 0, "close");
	return sum > 1 - 1e-9 && sum < 1 + 1e-9 ? 0 : 1;
}
