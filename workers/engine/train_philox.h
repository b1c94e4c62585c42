/* The random numbers of dropout, and of nodes that draw: Philox 4x32-10 (Salmon et al., 2011), a function of (seed, batch, node, element) and nothing else.
 * One text for the CUDA kernel and the tests; the host's loop over many counters at once is in workers/host/train/train_random.c. */
#ifndef SY_WORKERS_ENGINE_TRAIN_PHILOX_H
#define SY_WORKERS_ENGINE_TRAIN_PHILOX_H

#include <stdbool.h>
#include <stdint.h>

#include "workers/engine/train_formulas.h"

/* counters that are drawn together: a piece has four times as many elements */
#define SY_PHILOX_CHUNK 256

/* Element j of a piece has word j / CHUNK of counter j % CHUNK. */
SY_FORMULA uint32_t sy_philox_element(uint64_t seed, uint64_t batch, uint32_t node,
                                      uint64_t element)
{
    uint64_t piece = element / (4 * SY_PHILOX_CHUNK), j = element % (4 * SY_PHILOX_CHUNK);
    uint32_t c[4] = {(uint32_t)(piece * SY_PHILOX_CHUNK + j % SY_PHILOX_CHUNK), node,
                     (uint32_t)batch, (uint32_t)(batch >> 32)};
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p = 0xd2511f53ull * c[0], q = 0xcd9e8d57ull * c[2];
        uint32_t c1 = c[1], c3 = c[3];
        c[0] = (uint32_t)(q >> 32) ^ c1 ^ key0;
        c[1] = (uint32_t)q;
        c[2] = (uint32_t)(p >> 32) ^ c3 ^ key1;
        c[3] = (uint32_t)p;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    return c[j / SY_PHILOX_CHUNK];
}

/* Element i of normal numbers, mean 0 and deviation 1 (Box and Muller, 1958): of two even ones. */
SY_FORMULA double sy_philox_normal(uint64_t seed, uint64_t i)
{
    double even[2];
    for (int k = 0; k < 2; k++) /* in (0, 1) */
        even[k] = ((double)sy_philox_element(seed, 0, 0, 2 * i + (uint64_t)k) + 0.5) / 4294967296.0;
    return sqrt(-2 * log(even[0])) * cos(6.283185307179586 * even[1]);
}

/* Element i of numbers in [0, 1), each a multiple of 2^-24: float32 holds them, and none becomes 1. */
SY_FORMULA double sy_philox_uniform(uint64_t seed, uint64_t i)
{
    return (double)(sy_philox_element(seed, 0, 1, i) >> 8) / 16777216.0;
}

/* The distribution that a node draws from. */
struct sy_draw {
    uint64_t seed;
    int64_t period; /* behind it the numbers come again */
    double shift, scale;
    bool is_uniform; /* else normal */
};

SY_FORMULA double sy_draw_element(const struct sy_draw *d, int64_t i)
{
    uint64_t at = (uint64_t)(i % d->period);
    return d->shift + d->scale * (d->is_uniform ? sy_philox_uniform(d->seed, at)
                                                : sy_philox_normal(d->seed, at));
}

#endif
