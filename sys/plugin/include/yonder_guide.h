/*
 * yonder_guide.h - guides: what a program will touch next, for `yonder run --guide`
 *
 * Memory that is far is fetched when it is touched. A *guide* knows the data structures of a program, and asks for what
 * will be touched before that happens. It is a shared library with one symbol, `yonder_guide`:
 *
 *     #include <yonder_guide.h>
 *
 *     // Fetches the page behind the one that had to be fetched.
 *     static int touched(void *state, const struct yonder_touch *touch, const struct yonder_reach *reach) {
 *             (void)state;
 *             reach->prefetch(reach->context, touch->address + 4096, 1);
 *             return YONDER_KNOWN;
 *     }
 *
 *     const struct yonder_guide yonder_guide = {
 *             YONDER_GUIDE_VERSION, sizeof(struct yonder_guide), "next-page", 0, NULL, touched, NULL,
 *     };
 *
 * Build with:  cc -O2 -shared -fPIC guide.c -o libyonder_guide_next_page.so
 * Use with:    yonder run --guide ./libyonder_guide_next_page.so -- PROGRAM
 *
 * A name without a slash, such as `--guide next-page`, is looked up as libyonder_guide_next_page.so in the folder of the
 * library that `yonder run` preloads: lib/yonder of an installation.
 *
 * HINTS. All that a guide learns is a hint, and all that it does is one. What it reads may be older than what the program
 * would see, and may be no pointer at all: it has to be checked before it is followed. What is fetched for nothing costs
 * bandwidth. A guide that keeps the rules below cannot make a program wrong.
 *
 * RULES. touched() and arrived() run in a signal handler, at any instruction of the program, on whatever stack it has.
 * They must not:
 *
 *     - touch the program's memory, but by yonder_reach: a fault there would never end;
 *     - allocate or free memory, take locks, make system calls, or call functions of the C library that may do so; memcpy()
 *       and its like are fine;
 *     - use thread-local variables, whose memory may be allocated when they are first used;
 *     - throw exceptions, or leave by longjmp();
 *     - use more than 4 KiB of stack, or more time than a fetch takes: a few microseconds;
 *     - keep the pointers that they are given: all are valid until the function returns.
 *
 * The library stays loaded until the process ends. Its constructors and start() run before any memory is far, on an
 * ordinary stack, and may do what they like; what they allocate is local memory. `yonder run` loads it too, to check it.
 *
 * THREADS. Each port, which serves the faults of one thread at a time, has a state of its own. Calls for one state never
 * overlap; those for different states do. What a guide needs to remember belongs into the state and not into variables.
 *
 * VERSIONS. A guide of another YONDER_GUIDE_VERSION is refused. What structures get within a version is at their end.
 */
#ifndef YONDER_GUIDE_H
#define YONDER_GUIDE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. */
#define YONDER_GUIDE_VERSION 1

/* Most bytes of a read. */
#define YONDER_READ_BYTES_MAX 256
/* Reads of one state that can be under way at a time. */
#define YONDER_READS_MAX 16
/* Most addresses in the history of a touch. */
#define YONDER_HISTORY_MAX 16
/* Most bytes of a state. */
#define YONDER_STATE_BYTES_MAX 1048576

/* ---- What a guide is told --------------------------------------------------------------------------------------- */

/* yonder_touch, cause: the page had to be fetched, and is on its way. */
#define YONDER_MISS 0
/* yonder_touch, cause: this guide had fetched the page, and nobody had touched any page of the same batch before. */
#define YONDER_HIT 1

/* What has become of what a guide has fetched. */
struct yonder_payoff {
	/* Pages that it has fetched. */
	uint64_t fetched_pages;
	/* Batches of them that were touched. */
	uint64_t hits;
	/* Pages that were thrown away, untouched. */
	uint64_t unused_pages;
};

/* A touch of far memory. */
struct yonder_touch {
	/* YONDER_MISS or YONDER_HIT. */
	uint32_t cause;
	/* Number of `registers`, which may be 0. */
	uint32_t register_count;
	/* The address that was touched. */
	uint64_t address;
	/* What the code that touched it works with: its general registers, in no useful order, and then some words from the top
	 * of its stack. */
	const uint64_t *registers;
	/* Addresses of the last misses before this one, the latest first. */
	const uint64_t *history;
	/* Number of addresses in `history`, at most YONDER_HISTORY_MAX. */
	uint64_t history_count;
	/* How the guide has done so far, with this state. */
	struct yonder_payoff payoff;
};

/* Bytes that have arrived. */
struct yonder_arrived {
	/* Where they are from. */
	uint64_t address;
	/* The bytes, which need not be aligned: take them with memcpy(). */
	const void *bytes;
	/* How many: as many as were asked for. */
	uint64_t count;
	/* As given to read(). */
	uint64_t note;
};

/* ---- What a guide can do ---------------------------------------------------------------------------------------- */

/* read(): the bytes are there. */
#define YONDER_DONE 0
/* read(): they are far, and come by arrived(), or not at all if the node does not answer. */
#define YONDER_COMING 1
/* read(): they cannot be read now, or never: there is no far memory at the address, say. */
#define YONDER_REFUSED 2

/* What a guide can reach. The functions get `context` back; they may be called until the guide returns. */
struct yonder_reach {
	void *context;

	/* Fetches the pages of `bytes` bytes, at least 1, at `address`, as far as they are far. Those that are asked for until the next
	 * touch are one batch, whose pages are mapped together when one of them is touched. 0 if there is no room for all of
	 * them; the guide had better stop then. Else 1. */
	int (*prefetch)(void *context, uint64_t address, uint64_t bytes);

	/* Copies `bytes` bytes at `address` to `into`, from 1 to YONDER_READ_BYTES_MAX of one page, if they are here. 1 if
	 * they are, else 0, and `into` is as it was. */
	int (*peek)(void *context, uint64_t address, void *into, uint64_t bytes);

	/* As peek(), but reads what is far too, and no more than these bytes: YONDER_DONE, YONDER_COMING or
	 * YONDER_REFUSED. What comes later has this `note`. */
	int (*read)(void *context, uint64_t address, void *into, uint64_t bytes, uint64_t note);
};

/* ---- What a guide is -------------------------------------------------------------------------------------------- */

/* touched(): the guide does not know what the touch is part of, or not all of it: the general prefetcher does what it makes
 * of it too. */
#define YONDER_UNKNOWN 0
/* touched(): it does know, and nobody else fetches ahead for this touch. */
#define YONDER_KNOWN 1

/* A guide. */
struct yonder_guide {
	/* YONDER_GUIDE_VERSION. */
	uint32_t version;
	/* sizeof(struct yonder_guide). */
	uint32_t bytes;
	/* Its name, for people. */
	const char *name;
	/* Bytes of a state, at most YONDER_STATE_BYTES_MAX. Each state begins as zeros, at a multiple of 16, in local
	 * memory, which is not told when it ends. */
	size_t state_bytes;
	/* Makes more of a new state than zeros. May be NULL. */
	void (*start)(void *state);
	/* A touch, which may be the beginning of something. YONDER_KNOWN or YONDER_UNKNOWN. */
	int (*touched)(void *state, const struct yonder_touch *touch, const struct yonder_reach *reach);
	/* Bytes that a read had to wait for. May be NULL if the guide never reads. */
	void (*arrived)(void *state, const struct yonder_arrived *arrived, const struct yonder_reach *reach);
};

/* What a guide's library defines. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
extern const struct yonder_guide yonder_guide;

#ifdef __cplusplus
}
#endif

#endif /* YONDER_GUIDE_H */
