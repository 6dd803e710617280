// A program that goes on for as long as its input does, with far memory that it looks at again and again. Lines say what to do:
// "fork" leaves a child that does nothing, "exec" begins again, with the same number, "look" looks at all of
// the memory.

#include "check.h"

enum { BYTES = 12 << 20 };

int main(int count, char **words) {
    begin();
    unsigned char *data = paged(BYTES);
    fill(data, BYTES, 1);
    printf(count > 1 ? "ready again\n" : "ready\n");
    fflush(stdout);
    char line[16];
    // Not through a stream, so that nothing is read ahead of who reads it.
    for (size_t length = 0; read(0, line + length, 1) == 1;) {
        if (line[length] != '\n') {
            if (length + 2 < sizeof line) length++;
            continue;
        }
        line[length] = 0;
        length = 0;
        if (!strcmp(line, "look")) {
            check("the memory is as it was", is_filled(data, BYTES, 1));
        } else if (!strcmp(line, "fork")) {
            pid_t child = fork();
            if (child == 0) {
                // Whoever asked for it ends it, or a minute does.
                alarm(60);
                for (;;) pause();
            }
            printf("forked %d\n", (int)child);
            fflush(stdout);
        } else if (!strcmp(line, "exec")) {
            execl(words[0], words[0], "again", (char *)NULL);
            return 2;
        }
    }
    return done();
}
