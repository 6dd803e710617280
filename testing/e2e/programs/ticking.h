// A signal every millisecond, whose handler touches far memory and counts.

#ifndef TICKING_H
#define TICKING_H

#include "check.h"

#include <signal.h>
#include <sys/time.h>

enum { DATA = 8 << 20 };
static unsigned char *data;
static volatile uint64_t *ticks;

static void on_tick(int number) {
    int saved = errno;
    (void)number;
    // A page that is probably not here, and one that is.
    uint64_t tick = ++*ticks;
    volatile unsigned char *at = data + tick * 7919 % (DATA / PAGE) * PAGE;
    if (*at != pattern(1, (size_t)(at - data))) _exit(97);
    errno = saved;
}

static void tick_every_ms(int flags) {
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = flags};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval interval = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &interval, NULL);
}

static void stop_ticking(void) {
    struct itimerval none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &none, NULL);
}

#endif
