// Stacks in far memory: of coroutines, and of signal handlers. What the kernel writes to is kept here, and what lies near it.

// With a larger local limit than the other programs, of which that is a small part.
#define SWEPT_BYTES (24 * MIB)
#include "ticking.h"

#include <sys/wait.h>
#include <ucontext.h>

static volatile int *alternate_is_right;
static unsigned char *alternate;

static void on_alternate(int number) {
    unsigned char here;
    (void)number;
    *alternate_is_right += &here > alternate && &here < alternate + 64 * KIB && data[DATA - 1] == pattern(1, DATA - 1);
}

static void alternate_stacks(void) {
    alternate = paged(64 * KIB);
    alternate_is_right = NEW(int);
    stack_t *stack = NEW(stack_t), *before = NEW(stack_t);
    *stack = (stack_t){.ss_sp = alternate, .ss_size = 64 * KIB};
    cold_bytes(alternate, 64 * KIB);
    some_stays = 1;
    check("sigaltstack", sigaltstack(COLD(stack), COLD(before)) == 0 && before->ss_flags == SS_DISABLE);
    check("sigaltstack is told", sigaltstack(NULL, COLD(before)) == 0 && before->ss_sp == alternate && before->ss_size == 64 * KIB);
    struct sigaction action = {.sa_handler = on_alternate, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR2, &action, NULL);
    for (int turn = 0; turn < 10; turn++) {
        sweep();
        cold_bytes(data + DATA - PAGE, PAGE);
        raise(SIGUSR2);
    }
    check("a handler on an alternate stack in far memory", *alternate_is_right == 10);
    stack->ss_flags = SS_DISABLE;
    check("sigaltstack ends", sigaltstack(COLD(stack), NULL) == 0);
}

// Memory beside a stack that is held is given back and got again as zeros, as all memory is, and so is the stack itself.
static void beside_a_stack(void) {
    enum { BLOCKS = 24, HELD = 11, BLOCK = 64 << 10 };
    unsigned char *blocks[BLOCKS];
    int is_right = 1;
    for (int turn = 0; turn < 4; turn++) {
        for (int index = 0; index < BLOCKS; index++) {
            blocks[index] = calloc(1, BLOCK);
            is_right = is_right && is_all(blocks[index], BLOCK, 0);
            memset(blocks[index], index + 1, BLOCK);
        }
        alternate = blocks[HELD];
        *alternate_is_right = 0;
        stack_t stack = {.ss_sp = alternate, .ss_size = BLOCK}, none = {.ss_flags = SS_DISABLE};
        is_right = is_right && sigaltstack(&stack, NULL) == 0;
        for (int index = 0; index < BLOCKS; index++)
            if (index != HELD) free(blocks[index]);
        for (int index = 0; index < BLOCKS; index++) {
            if (index == HELD) continue;
            blocks[index] = calloc(1, BLOCK);
            is_right = is_right && is_all(blocks[index], BLOCK, 0);
        }
        sweep();
        raise(SIGUSR2);
        is_right = is_right && *alternate_is_right == 1 && sigaltstack(&none, NULL) == 0;
        for (int index = 0; index < BLOCKS; index++) free(blocks[index]);
    }
    check("memory beside a stack that is held", is_right);
}

enum { COROUTINES = 12, SWITCHES = 40, STACK = 64 << 10 };
static ucontext_t *scheduler, *coroutines;
static int *switched;

static void coroutine(int number) {
    volatile unsigned char deep[20000];
    for (int turn = 0; turn < SWITCHES; turn++) {
        for (size_t at = 0; at < sizeof deep; at += 512) deep[at] = (unsigned char)(number + turn);
        swapcontext(&coroutines[number], scheduler);
        for (size_t at = 0; at < sizeof deep; at += 512)
            if (deep[at] != (unsigned char)(number + turn)) _exit(96);
        if (data[number * 65537] != pattern(1, (size_t)number * 65537)) _exit(95);
        switched[number]++;
    }
}

static void run_coroutines(void) {
    scheduler = NEW(ucontext_t);
    coroutines = paged(COROUTINES * sizeof *coroutines);
    switched = paged(COROUTINES * sizeof *switched);
    int is_right = 1;
    // One block for all stacks, as a pool of them has it.
    unsigned char *pool = malloc(COROUTINES * STACK);
    for (int number = 0; number < COROUTINES; number++) {
        unsigned char *stack = pool + number * STACK;
        is_right = is_right && getcontext(cold_bytes(&coroutines[number], sizeof *coroutines)) == 0;
        coroutines[number].uc_stack = (stack_t){.ss_sp = stack, .ss_size = STACK};
        coroutines[number].uc_link = scheduler;
        makecontext(&coroutines[number], (void (*)(void))coroutine, 1, number);
    }
    tick_every_ms(SA_RESTART);
    for (int turn = 0; turn <= SWITCHES; turn++) {
        for (int number = 0; number < COROUTINES; number++) is_right = is_right && swapcontext(scheduler, &coroutines[number]) == 0;
        if (turn % 8 == 0) sweep();
    }
    stop_ticking();
    for (int number = 0; number < COROUTINES; number++) is_right = is_right && switched[number] == SWITCHES;
    check("coroutines on stacks in far memory", is_right);
    // Made again and again on the same stack.
    unsigned char *stack = malloc(STACK);
    static const int again = 70000;
    for (volatile int turn = 0; turn < again; turn++) {
        getcontext(&coroutines[0]);
        coroutines[0].uc_stack = (stack_t){.ss_sp = stack, .ss_size = STACK};
        coroutines[0].uc_link = scheduler;
        makecontext(&coroutines[0], (void (*)(void))on_tick, 1, 0);
        is_right = is_right && swapcontext(scheduler, &coroutines[0]) == 0;
    }
    check("coroutines made again and again", is_right);
}

// A child that is forked on a stack in far memory, while some far memory is protected.
static ucontext_t *forker;
static volatile int *child_status;

static void fork_here(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(7);
    int status = 0;
    *child_status = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7;
}

static void forks_on_a_stack(void) {
    scheduler = NEW(ucontext_t), forker = NEW(ucontext_t), child_status = NEW(int);
    unsigned char *stack = paged(MIB), *guarded = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    guarded[0] = 1;
    check("mprotect", mprotect(guarded, PAGE, PROT_NONE) == 0);
    getcontext(forker);
    forker->uc_stack.ss_sp = stack, forker->uc_stack.ss_size = MIB, forker->uc_link = scheduler;
    makecontext(forker, fork_here, 0);
    swapcontext(scheduler, forker);
    check("a fork on a stack in far memory, while other memory is protected", *child_status == 1);
    munmap(guarded, MIB);
}

int main(void) {
    begin();
    data = malloc(DATA);
    fill(data, DATA, 1);
    ticks = NEW(uint64_t);
    alternate_stacks();
    beside_a_stack();
    run_coroutines();
    forks_on_a_stack();
    return done();
}
