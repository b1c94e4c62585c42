/* Time that passes when a test says so: stands in front of sy_clock_now in the binaries that link it (tests.mk). With limits of a minute nothing
 * depends on how fast the machine is, and nobody waits for them. libevent's timers go on as they do: servers look for stalled clients as often. */
#ifndef SY_TESTS_SKIP_CLOCK_H
#define SY_TESTS_SKIP_CLOCK_H

#include "runtime/base/clock.h"

/* From now on it is so much later, in all threads of this process. */
void skip_clock(sy_ns by);
/* Skips again and again, as often as a server looks, until this descriptor has something to read. */
void skip_clock_until_readable(int fd, sy_ns by);

#endif
