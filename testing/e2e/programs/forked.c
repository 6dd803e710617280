// A child that touches memory which only the parent's node has. Prints how it ended.

#include "check.h"

#include <sys/wait.h>

int main(void) {
    begin();
    unsigned char *data = paged(8 * MIB);
    fill(data, 8 * MIB, 1);
    cold_bytes(data, 8 * MIB);
    pid_t child = fork();
    if (child == 0) _exit(is_filled(data, 8 * MIB, 1) ? 0 : 1);
    int status = 0;
    if (waitpid(child, &status, 0) != child) return 1;
    char line[64];
    snprintf(line, sizeof line, "the child was ended by signal %d", WTERMSIG(status));
    check(line, WIFSIGNALED(status));
    return done();
}
