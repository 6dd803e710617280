// A list whose nodes lie in no order, walked from end to end: what no general prefetcher sees through. Then its nodes as they lie.
//
// Usage: list WALKS. Every node has a number, which must come in order, and a pattern.

#include "check.h"

enum { NODES = 1 << 14, APART = 16 };

struct node {
    struct node *next;
    uint64_t number;
    unsigned char content[48];
};
_Static_assert(sizeof(struct node) == 64, "a class of the far heap, and what the guide of lists expects");

// Number of the place in memory that node `number` has: neighbours are far from one another.
static size_t place(size_t number) { return number * 7919 % NODES; }

int main(int count, char **arguments) {
    int walks = count > 1 ? atoi(arguments[1]) : 2;
    begin();
    struct node **places = malloc(NODES * sizeof *places);
    for (size_t index = 0; index < NODES; index++) {
        places[index] = malloc(sizeof(struct node));
        // What lies between makes a list of more pages than fit.
        for (int other = 1; other < APART; other++) fill(malloc(sizeof(struct node)), sizeof(struct node), index);
    }
    check("all memory is there", places[NODES - 1] != NULL);
    for (size_t number = 0; number < NODES; number++) {
        struct node *node = places[place(number)];
        node->next = number + 1 < NODES ? places[place(number + 1)] : NULL;
        node->number = number;
        fill(node->content, sizeof node->content, number);
    }
    struct node *first = places[place(0)];
    for (int walk = 0; walk < walks; walk++) {
        uint64_t number = 0;
        const struct node *node = first;
        for (; node != NULL && node->number == number; node = node->next, number++)
            if (!is_filled(node->content, sizeof node->content, number)) break;
        check("a walk finds every node", node == NULL && number == NODES);
    }
    size_t right = 0;
    for (size_t index = 0; index < NODES; index++) {
        size_t number = places[index]->number;
        right += number < NODES && place(number) == index;
    }
    check("every node is where it should be", right == NODES);
    return done();
}
