#include "runtime/doctor/read_rate.h"

#include <math.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"

/* The value is used, as far as the compiler knows. */
static void keep(uint64_t value)
{
    __asm__ volatile("" : : "r"(value) : "memory");
}

void sy_read_once(const void *from, uint64_t bytes)
{
    const uint64_t *words = from;
    uint64_t sum[8] = {0};
    for (uint64_t i = 0; i < bytes / 8; i += 8)
        for (int k = 0; k < 8; k++)
            sum[k] += words[i + (uint64_t)k];
    for (int k = 0; k < 8; k++)
        keep(sum[k]);
}

double sy_read_gbps(const void *from, uint64_t bytes, int n_times)
{
    double best = 0;
    for (int i = 0; i < n_times; i++) {
        sy_ns start = sy_clock_now();
        sy_read_once(from, bytes);
        best = fmax(best, (double)bytes / (double)SY_MAX(sy_clock_now() - start, 1u));
    }
    return best;
}

double sy_read_random_rate(const void *from, uint64_t bytes, uint64_t n, int n_times)
{
    const uint64_t *words = from;
    uint64_t mask = bytes / 8 - 1;
    double best = 0;
    for (int i = 0; i < n_times; i++) {
        uint64_t at = 1, sum = 0;
        sy_ns start = sy_clock_now();
        for (uint64_t k = 0; k < n; k++) {
            at = at * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
            sum += words[at >> 20 & mask];
        }
        best = fmax(best, (double)n / (double)SY_MAX(sy_clock_now() - start, 1u));
        keep(sum);
    }
    return best;
}
