/* Random draws as a pure function of seed and index. */
#ifndef SY_SIM_SIM_CHANCE_H
#define SY_SIM_SIM_CHANCE_H

#include <stdint.h>

/* splitmix64's last step. */
static inline uint64_t sy_sim_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

#endif
