// A library as libraries are: with things in thread-locals from one line to the next, and locks around others.

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef void touch_function(void);

static __thread int mine;
static __thread char *scratch;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static long shared[2];

// Whether thread-locals are as they were after memory was touched in the middle, many times.
int keeps_thread_locals(int number, touch_function *touch) {
    int is_right = 1;
    for (int turn = 1; turn <= 20; turn++) {
        mine = number * turn, errno = number;
        if (scratch == NULL) scratch = malloc(64);
        memset(scratch, number, 64);
        touch();
        is_right &= mine == number * turn && errno == number;
        for (int at = 0; at < 64; at++) is_right &= scratch[at] == (char)number;
    }
    return is_right;
}

// Whether what a lock guards stays as it is while memory is touched; 0 is also the answer if the lock is not held alone.
int keeps_locks(int number, touch_function *touch) {
    int is_right = 1;
    for (int turn = 0; turn < 20; turn++) {
        touch();
        if (turn % 2) pthread_mutex_lock(&mutex);
        else if (pthread_mutex_trylock(&mutex) != 0) return 0;
        pthread_rwlock_wrlock(&rwlock);
        shared[0] = number;
        touch();
        shared[1] = number;
        pthread_rwlock_unlock(&rwlock);
        touch();
        is_right &= shared[0] == shared[1] && shared[1] == number;
        pthread_mutex_unlock(&mutex);
    }
    return is_right;
}
