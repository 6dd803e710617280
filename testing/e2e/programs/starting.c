// Two threads that ask for memory from the beginning: while the far memory of this process is made for one of them, the other goes
// on asking. What both have is far, and what they wrote is there.

#include "check.h"

#include <pthread.h>

enum { BLOCKS = 512 };
#define BLOCK ((size_t)64 * KIB)

static uint64_t *blocks[2][BLOCKS];

static void *ask(void *number) {
    uint64_t **mine = blocks[(intptr_t)number];
    for (size_t block = 0; block < BLOCKS; block++) {
        mine[block] = malloc(BLOCK);
        for (size_t word = 0; word < BLOCK / sizeof(uint64_t); word += PAGE / sizeof(uint64_t)) mine[block][word] = block + word;
    }
    return NULL;
}

static int is_there(uint64_t **theirs) {
    for (size_t block = 0; block < BLOCKS; block++)
        for (size_t word = 0; word < BLOCK / sizeof(uint64_t); word += PAGE / sizeof(uint64_t))
            if (theirs[block][word] != block + word) return 0;
    return 1;
}

int main(void) {
    pthread_t other;
    pthread_create(&other, NULL, ask, (void *)1);
    ask(NULL);
    pthread_join(other, NULL);
    check("what both wrote is there", is_there(blocks[0]) && is_there(blocks[1]));
    return done();
}
