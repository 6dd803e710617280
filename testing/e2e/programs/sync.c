// Locks of the C library that live in far memory, under contention, while a thread sweeps memory so that their pages leave.

#include "check.h"

#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <time.h>

enum { THREADS = 6, TURNS = 10000 };

// Each on a page of its own.
static pthread_mutex_t *mutex;
static pthread_rwlock_t *rwlock;
static pthread_spinlock_t *spin;
static pthread_cond_t *filled, *emptied;
static sem_t *semaphore;
static pthread_barrier_t *barrier;
static long *counter, *queued, *passed;
static pthread_once_t *once;
static volatile int is_over;

static void *sweeper(void *unused) {
    (void)unused;
    while (!is_over) sweep();
    return NULL;
}

// Runs a body in all threads, each with its number.
static void in_threads(void *(*body)(void *)) {
    pthread_t threads[THREADS];
    for (intptr_t number = 0; number < THREADS; number++) pthread_create(&threads[number], NULL, body, (void *)number);
    for (int number = 0; number < THREADS; number++) pthread_join(threads[number], NULL);
}

// What all threads together count with that body.
static long counted_by(void *(*body)(void *)) {
    *counter = 0;
    in_threads(body);
    return *counter;
}

static void *count_locked(void *unused) {
    (void)unused;
    for (int turn = 0; turn < TURNS; turn++) {
        pthread_mutex_lock(mutex);
        (*counter)++;
        pthread_mutex_unlock(mutex);
    }
    return NULL;
}

static void *count_timed(void *unused) {
    struct timespec *until = paged(sizeof *until);
    (void)unused;
    for (int turn = 0; turn < TURNS; turn++) {
        clock_gettime(CLOCK_REALTIME, until);
        until->tv_sec += 60;
        if (pthread_mutex_timedlock(mutex, until) != 0) break;
        (*counter)++;
        pthread_mutex_unlock(mutex);
    }
    return NULL;
}

static void *count_rwlocked(void *number) {
    long seen = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        if ((intptr_t)number % 2) {
            pthread_rwlock_wrlock(rwlock);
            (*counter)++;
        } else {
            pthread_rwlock_rdlock(rwlock);
            if (*counter < seen) *passed += 1;
            seen = *counter;
        }
        pthread_rwlock_unlock(rwlock);
    }
    return NULL;
}

static void *count_spinning(void *unused) {
    (void)unused;
    for (int turn = 0; turn < TURNS / 8; turn++) {
        pthread_spin_lock(spin);
        (*counter)++;
        pthread_spin_unlock(spin);
    }
    return NULL;
}

static void *produce_and_consume(void *number) {
    int is_producer = (intptr_t)number % 2;
    for (int turn = 0; turn < TURNS; turn++) {
        pthread_mutex_lock(mutex);
        if (is_producer) {
            while (*queued == 3) pthread_cond_wait(emptied, mutex);
            ++*queued;
            pthread_cond_signal(filled);
        } else {
            while (*queued == 0) pthread_cond_wait(filled, mutex);
            --*queued;
            ++*counter;
            pthread_cond_broadcast(emptied);
        }
        pthread_mutex_unlock(mutex);
    }
    return NULL;
}

static void *pass_semaphore(void *unused) {
    (void)unused;
    for (int turn = 0; turn < TURNS; turn++) {
        sem_wait(semaphore);
        (*counter)++;
        sem_post(semaphore);
    }
    return NULL;
}

static void *pass_barrier(void *number) {
    long *phase = paged(sizeof *phase);
    for (int turn = 0; turn < 300; turn++) {
        if (number == 0) *counter = turn;
        pthread_barrier_wait(barrier);
        if (*counter == turn) ++*phase;
        pthread_barrier_wait(barrier);
    }
    __atomic_fetch_add(passed, *phase, __ATOMIC_RELAXED);
    return NULL;
}

static void count_once(void) { ++*counter; }

static void *run_once(void *unused) {
    (void)unused;
    pthread_once(once, count_once);
    return NULL;
}

static long futex(int *word, int operation, int value, void *timeout, int *other, int compared) {
    return syscall(SYS_futex, word, operation, value, timeout, other, compared);
}

static int *first, *second;

static void *wait_at_first(void *unused) {
    (void)unused;
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(passed, __ATOMIC_ACQUIRE) == 0) futex(first, FUTEX_WAIT, 0, NULL, NULL, 0);
    return NULL;
}

static void futexes(void) {
    first = NEW(int), second = NEW(int);
    struct timespec *soon = NEW(struct timespec);
    soon->tv_nsec = 1000000;
    check("a futex wait ends in time", futex(COLD(first), FUTEX_WAIT, 0, COLD(soon), NULL, 0) == -1 && errno == ETIMEDOUT);
    check("a futex wait compares", futex(COLD(first), FUTEX_WAIT, 1, COLD(soon), NULL, 0) == -1 && errno == EAGAIN);
    *second = 5;
    COLD(first), COLD(second);
    check("a futex wake-op", futex(first, FUTEX_WAKE_OP, 1, (void *)1, second, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 5)) == 0 && *second == 8);
    COLD(first), COLD(second);
    check("a futex requeue", futex(first, FUTEX_CMP_REQUEUE, 1, (void *)1, second, 0) == 0);
    COLD(first), COLD(second);
    check("a futex requeue compares", futex(first, FUTEX_CMP_REQUEUE, 1, (void *)1, second, 7) == -1 && errno == EAGAIN);
    errno = 0;
    long refused = futex(COLD(first), FUTEX_WAIT, 0, (void *)8, NULL, 0);
    report(refused == -1 && errno == EFAULT, "a futex wait with a time that is nowhere");
    // Waiters that are moved from one word to another while both are away most of the time.
    pthread_t threads[THREADS];
    *counter = *passed = 0;
    for (int number = 0; number < THREADS; number++) pthread_create(&threads[number], NULL, wait_at_first, NULL);
    while (__atomic_load_n(counter, __ATOMIC_RELAXED) < THREADS) sched_yield();
    long moved = 0;
    for (int turn = 0; turn < 20000 && moved < THREADS; turn++) {
        long result = futex(first, FUTEX_CMP_REQUEUE, 0, (void *)THREADS, second, 0);
        moved += result > 0 ? result : 0;
    }
    check("waiters are moved", moved == THREADS);
    __atomic_store_n(passed, 1, __ATOMIC_RELEASE);
    long woken = futex(COLD(second), FUTEX_WAKE, THREADS, NULL, NULL, 0);
    check("waiters are woken", woken == THREADS);
    for (int number = 0; number < THREADS; number++) pthread_join(threads[number], NULL);
}

// Ends with a mutex after enough was touched to make its page leave, if it may.
static void *hold_and_end(void *robust) {
    pthread_mutex_lock(robust);
    for (int turn = 0; turn < 4; turn++) sweep();
    return NULL;
}

static void robust(void) {
    pthread_mutexattr_t *attributes = NEW(pthread_mutexattr_t);
    pthread_mutex_t *dying = NEW(pthread_mutex_t);
    pthread_t thread;
    pthread_mutexattr_init(attributes);
    pthread_mutexattr_setrobust(attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(dying, attributes);
    pthread_create(&thread, NULL, hold_and_end, dying);
    pthread_join(thread, NULL);
    check("a robust mutex tells of its owner's end", pthread_mutex_lock(dying) == EOWNERDEAD && pthread_mutex_consistent(dying) == 0);
    pthread_mutex_unlock(dying);
    check("a robust mutex is destroyed", pthread_mutex_destroy(dying) == 0);
    COLD(dying);
    pthread_mutexattr_setprotocol(attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutexattr_setrobust(attributes, PTHREAD_MUTEX_STALLED);
    pthread_mutex_destroy(mutex);
    pthread_mutex_init(mutex, attributes);
    check("mutexes with inherited priority", counted_by(count_locked) == (long)THREADS * TURNS);
}

int main(void) {
    begin();
    mutex = NEW(pthread_mutex_t), rwlock = NEW(pthread_rwlock_t), semaphore = NEW(sem_t), barrier = NEW(pthread_barrier_t);
    filled = NEW(pthread_cond_t), emptied = NEW(pthread_cond_t), once = NEW(pthread_once_t);
    spin = (pthread_spinlock_t *)paged(sizeof *spin);
    counter = NEW(long), queued = NEW(long), passed = NEW(long);
    pthread_mutex_init(mutex, NULL), pthread_rwlock_init(rwlock, NULL), sem_init(semaphore, 0, 2);
    pthread_barrier_init(barrier, NULL, THREADS), pthread_cond_init(filled, NULL), pthread_cond_init(emptied, NULL);
    pthread_spin_init(spin, 0);
    sem_wait(semaphore);
    pthread_t *thread = NEW(pthread_t);
    pthread_create(COLD(thread), NULL, sweeper, NULL);
    check("mutexes", counted_by(count_locked) == (long)THREADS * TURNS);
    check("timed mutexes", counted_by(count_timed) == (long)THREADS * TURNS);
    check("read-write locks", counted_by(count_rwlocked) == (long)THREADS / 2 * TURNS && *passed == 0);
    check("spin locks", counted_by(count_spinning) == (long)THREADS * (TURNS / 8));
    check("conditions", counted_by(produce_and_consume) == (long)THREADS / 2 * TURNS && *queued == 0);
    check("semaphores", counted_by(pass_semaphore) == (long)THREADS * TURNS);
    *passed = 0;
    in_threads(pass_barrier);
    check("barriers", *passed == 300L * THREADS);
    check("once", counted_by(run_once) == 1);
    futexes();
    robust();
    is_over = 1;
    void **result = NEW(void *);
    check("pthread_join", pthread_join(*COLD(thread), COLD(result)) == 0);
    return done();
}
