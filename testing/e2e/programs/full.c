// A program that asks for more than there is: it is told so, keeps what it has, and can go on.

#include "check.h"

int main(void) {
    begin();
    unsigned char *blocks[512];
    int count = 0;
    errno = 0;
    while (count < 512 && (blocks[count] = malloc(MIB)) != NULL) {
        fill(blocks[count], PAGE, (uint64_t)count);
        count++;
    }
    report(is_far_run() ? count < 64 && errno == ENOMEM : count == 512, "malloc is refused");
    errno = 0;
    void *mapped = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    report(!is_far_run() || (mapped == MAP_FAILED && errno == ENOMEM), "mmap is refused");
    check("realloc is refused", !is_far_run() || (realloc(blocks[0], 8 * MIB) == NULL && errno == ENOMEM));
    int is_right = 1;
    for (int index = 0; index < count; index++) is_right = is_right && is_filled(blocks[index], PAGE, (uint64_t)index);
    check("nothing is lost", is_right && count > 30);
    for (int index = 0; index < count; index++) free(blocks[index]);
    unsigned char *again = malloc(30 * MIB);
    check("what is freed can be used", again != NULL);
    memset(again, 1, 30 * MIB);
    return done();
}
