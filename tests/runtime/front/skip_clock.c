#include "tests/runtime/front/skip_clock.h"

#include <poll.h>
#include <stdatomic.h>
#include <time.h>

static _Atomic sy_ns skipped_ns;

sy_ns sy_clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (sy_ns)t.tv_sec * SY_NS_PER_S + (sy_ns)t.tv_nsec + skipped_ns;
}

void skip_clock(sy_ns by)
{
    skipped_ns += by;
}

void skip_clock_until_readable(int fd, sy_ns by)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};

    do
        skip_clock(by);
    while (poll(&readable, 1, 200) <= 0);
}
