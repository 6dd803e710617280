// Memory that is left to the kernel as long as it fits: pages of it that the kernel uses by itself, or that are
// protected, beside one that was touched, and then more of it than is local.

#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#define BLOCK (2 * MIB)
enum { MUTEXES = 24, CONTEXTS = 24, PLACES = 9, FILLED_MIB = 64, ALT_BYTES = 64 << 10 };

static volatile char *memory;
static ucontext_t out, contexts[CONTEXTS];
static volatile sig_atomic_t handled;
static int sum;

// The start of a block of which another page has just been touched for the first time.
static char *next_block(void) {
    static size_t used;
    volatile char *block = memory + used++ * BLOCK;
    block[BLOCK - PAGE] = 1;
    return (char *)block;
}

// What no table has is given to the kernel as it is, with a page that may only be read, and one that may not be
// touched.
static void unknown_calls(void) {
    char *block = next_block();
    block[0] = 7;
    mprotect(block, PAGE, PROT_READ);
    check("an unknown request of a device has a page that can only be read", ioctl(0, 0x12345678, block) == -1);
    mprotect(block + PAGE, PAGE, PROT_NONE);
    block[2 * PAGE] = 1;
    check("one has a page that cannot be touched", ioctl(0, 0x12345678, block + PAGE) == -1);
    check("so has an unknown system call", syscall(9999, block + PAGE) == -1 && errno == ENOSYS);
    check("what was stored is there", block[0] == 7);
}

static void in_context(int number) {
    volatile char bytes[1000];
    memset((char *)bytes, number, sizeof bytes);
    sum += bytes[999];
    swapcontext(&contexts[number], &out);
}

// Stacks with a page at their end that cannot be touched.
static void guarded_contexts(void) {
    enum { STACK = 256 << 10 };
    for (int number = 0; number < CONTEXTS; number++) {
        ucontext_t *context = &contexts[number];
        char *stack = next_block();
        mprotect(stack, PAGE, PROT_NONE);
        stack[STACK - 1] = 1;
        getcontext(context);
        context->uc_stack.ss_sp = stack;
        context->uc_stack.ss_size = STACK;
        context->uc_link = &out;
        makecontext(context, (void (*)(void))in_context, 1, number);
        swapcontext(&out, context);
    }
    check("contexts run on stacks with a guard page", sum == CONTEXTS * (CONTEXTS - 1) / 2);
}

static ucontext_t outer, inner;
static char *nest;
static int innermost;

static void in_inner(void) { innermost++; }

// On a stack in the block of the pages that it gives to the kernel.
static void in_outer(void) {
    mprotect(nest, PAGE, PROT_NONE);
    getcontext(&inner);
    inner.uc_stack.ss_sp = nest;
    inner.uc_stack.ss_size = MIB / 4;
    inner.uc_link = &outer;
    makecontext(&inner, in_inner, 0);
    swapcontext(&outer, &inner);
    innermost += ioctl(0, 0x12345678, nest) == -1;
    mprotect(nest, PAGE, PROT_READ | PROT_WRITE);
    nest[0] = 1;
}

// A context makes another one in the 2 MiB that it runs in itself.
static void nested_contexts(void) {
    nest = next_block();
    getcontext(&outer);
    outer.uc_stack.ss_sp = nest + MIB;
    outer.uc_stack.ss_size = MIB / 4;
    outer.uc_link = &out;
    makecontext(&outer, in_outer, 0);
    swapcontext(&out, &outer);
    check("a context has another one beside its own stack", innermost == 2);
}

static void handle(int signal) {
    (void)signal;
    volatile char bytes[4 * PAGE];
    bytes[0] = 1;
    handled += bytes[0];
}

static int is_handled(void) {
    int before = handled;
    raise(SIGUSR1);
    return handled == before + 1;
}

// Alternate stacks: with a guard page, and given back while it is one, also in a forked process.
static void alternate_stacks(void) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    char *guarded = next_block();
    mprotect(guarded, PAGE, PROT_NONE);
    guarded[BLOCK - PAGE] = 2;
    stack_t on_guarded = {.ss_sp = guarded, .ss_size = ALT_BYTES};
    check("an alternate stack has a guard page", sigaltstack(&on_guarded, NULL) == 0 && is_handled());
    char *dropped = next_block();
    stack_t on_dropped = {.ss_sp = dropped + ALT_BYTES, .ss_size = ALT_BYTES};
    check("another is set", sigaltstack(&on_dropped, NULL) == 0);
    madvise(dropped, MIB, MADV_DONTNEED);
    pid_t child = fork();
    if (child == 0) _exit(is_handled() ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    check("a forked process has it, after it was given back", status == 0);
    check("so has this one", is_handled());
}

// Words of the kernel in many blocks, for good.
// What is lent when a process forks is mapped in its child, where calls find it as it is.
static void calls_of_a_child(void) {
    char *block = next_block();
    memset(block, 7, BLOCK);
    int ends[2];
    check("a pipe", pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        errno = 0;
        _exit(write(ends[1], block + 100, 50000) == 50000 && errno == 0 ? 0 : 1);
    }
    static char got[50000];
    size_t all = 0;
    for (ssize_t bytes; all < sizeof got && (bytes = read(ends[0], got + all, sizeof got - all)) > 0;) all += bytes;
    int status = -1;
    waitpid(child, &status, 0);
    check("a forked process writes what is lent", status == 0 && all == sizeof got && got[0] == 7 && got[49999] == 7);
    close(ends[0]), close(ends[1]);
}

static void robust_mutexes(void) {
    pthread_mutexattr_t robust;
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    int wrong = 0;
    for (int number = 0; number < MUTEXES; number++) {
        pthread_mutex_t *mutex = (pthread_mutex_t *)(next_block() + PAGE);
        wrong += pthread_mutex_init(mutex, &robust) != 0 || pthread_mutex_lock(mutex) != 0;
        wrong += pthread_mutex_unlock(mutex) != 0;
    }
    check("robust mutexes lie in many blocks", wrong == 0);
}

// More than is local, several times.
static void filled(void) {
    uint64_t *words = mmap(NULL, FILLED_MIB * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t pages = FILLED_MIB * MIB / PAGE, step = PAGE / sizeof *words;
    int wrong = 0;
    for (size_t round = 1; round <= 2; round++) {
        for (size_t page = 0; page < pages; page++) words[page * step] = page + round;
        for (size_t page = 0; page < pages; page++) wrong += words[page * step] != page + round;
    }
    check("more than is local was what was stored", wrong == 0);
}

int main(void) {
    size_t blocks = MUTEXES + CONTEXTS + PLACES;
    char *mapped = mmap(NULL, (blocks + 1) * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory = (char *)(((uintptr_t)mapped + BLOCK - 1) / BLOCK * BLOCK);
    unknown_calls();
    guarded_contexts();
    nested_contexts();
    alternate_stacks();
    calls_of_a_child();
    robust_mutexes();
    filled();
    check("handlers run still", is_handled());
    return done();
}
