// Memory that cannot be far, in use until somebody ends the program: shared, and a child's if that is asked for.

#include "check.h"

#include <sys/wait.h>

int main(int argc, char **argv) {
    size_t bytes = (size_t)atoi(argv[1]) * MIB;
    begin();
    if (argc > 2 && strcmp(argv[2], "CHILD") == 0) {
        pid_t child = fork();
        if (child != 0) return waitpid(child, NULL, 0) != child;
    }
    unsigned char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check("shared memory is local", memory != MAP_FAILED && !is_far(memory));
    if (failed_checks) return done();
    fill(memory, bytes, 1);
    for (;;) pause();
}
