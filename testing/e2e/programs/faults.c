/* Two functions that touch far memory, one much more than the other, and a third of a library that is loaded late, if one is
 * named. With KILL the program ends by a signal. Compiled in the test of reports, which finds the functions' names. */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 8192

__attribute__((noinline)) static uint64_t touches_much(volatile uint8_t *memory, unsigned rounds)
{
    uint64_t sum = 0;
    for (unsigned round = 0; round < rounds; round++)
        for (size_t page = 0; page < PAGES; page++)
            sum += memory[page * 5 % PAGES * PAGE];
    return sum;
}

__attribute__((noinline)) static uint64_t touches_little(volatile uint8_t *memory)
{
    uint64_t sum = 0;
    for (size_t page = 0; page < PAGES / 4; page++)
        sum += memory[page * 3 * PAGE];
    return sum;
}

static void work(uint8_t *memory)
{
    for (size_t page = 0; page < PAGES; page++)
        memory[page * PAGE] = 1;
    printf("sum %u\n", (unsigned)(touches_much(memory, 2) + touches_little(memory)));
}

int main(int count, char **words)
{
    /* Much at a time becomes far at once. */
    uint8_t *memory = malloc((size_t)PAGES * PAGE);
    if (!memory)
        return 1;
    work(memory);
    for (int word = 1; word < count; word++) {
        if (!strcmp(words[word], "KILL")) {
            fflush(stdout);
            raise(SIGKILL);
        } else if (!strcmp(words[word], "AGAIN")) {
            pid_t child = fork();
            if (child == 0) {
                execl(words[0], words[0], (char *)NULL);
                _exit(2);
            }
            int status;
            if (waitpid(child, &status, 0) != child || status != 0)
                return 3;
        } else {
            void *library = dlopen(words[word], RTLD_NOW);
            uint64_t (*touches)(volatile uint8_t *, size_t) = NULL;
            if (library)
                *(void **)&touches = dlsym(library, "touches_from_afar");
            if (!touches)
                return 4;
            printf("sum %u\n", (unsigned)touches(memory, PAGES));
            dlclose(library);
        }
    }
    printf("done\n");
    return 0;
}
