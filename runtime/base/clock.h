/* Time: monotonic nanoseconds. The pure parts take time as an argument; the shell reads it here. */
#ifndef SY_BASE_CLOCK_H
#define SY_BASE_CLOCK_H

#include <stdint.h>

typedef uint64_t sy_ns;

#define SY_NS_PER_US 1000ull
#define SY_NS_PER_MS 1000000ull
#define SY_NS_PER_S  1000000000ull

/* CLOCK_MONOTONIC now. The same clock in every process of the machine. */
sy_ns sy_clock_now(void);

/* CPU time of all threads of this process so far. Takes a system call, unlike sy_clock_now. */
sy_ns sy_clock_process(void);

/* CPU time of this thread so far: excludes time without a core. Takes a system call. */
sy_ns sy_clock_thread(void);

/* Sleep until the monotonic time `deadline`; returns at once if it has passed. */
void sy_clock_sleep_until(sy_ns deadline);

#endif
