/* Chance in tests: where it begins, and numbers from there on. */
#ifndef SY_TESTS_RIGS_SEED_H
#define SY_TESTS_RIGS_SEED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* SY_SEED in the environment, else `otherwise`; never 0. Printed, so that what failed can be had again. */
static inline uint64_t seed_of_run(uint64_t otherwise)
{
    const char *text = getenv("SY_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : otherwise;
    printf("SY_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed ? seed : 1;
}

/* Xorshift (Marsaglia, 2003). */
static inline uint64_t seed_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline uint64_t seed_below(uint64_t *state, uint64_t n)
{
    return seed_next(state) % n;
}

#endif
