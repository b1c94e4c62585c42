#include "workers/data/normal_draws.h"

#include <string.h>

#include "runtime/base/assert.h"
#include "workers/data/data_internal.h"

#define STEP 0x9e3779b97f4a7c15ull /* between the states of two words */

enum { LANES = 8, WORDS = 3 /* of a number */ };

typedef uint64_t lanes __attribute__((vector_size(LANES * sizeof(uint64_t)), aligned(8)));
typedef uint32_t halves __attribute__((vector_size(LANES * sizeof(uint32_t)), aligned(4)));

#define INLINE static inline __attribute__((always_inline))

uint64_t sy_data_draw(uint64_t key, uint64_t number)
{
    return sy_data_mix(sy_data_mix(key + STEP) + number * STEP);
}

/* sy_data_mix of each. By pointer: a vector as an argument is passed differently with and without AVX. */
INLINE void mix(lanes *at)
{
    lanes z = *at;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    *at = z ^ (z >> 31);
}

/* The sums of the LANES numbers whose first words are in `state`. Two halves of 32 bits are added side by side. */
INLINE void add_words(const lanes *state, halves *sum)
{
    const uint64_t low = 0x0000ffff0000ffffull;
    lanes both = {0};
#pragma GCC unroll 3
    for (uint64_t word = 0; word < WORDS; word++) {
        lanes bits = *state + (uint64_t)(word * STEP);
        mix(&bits);
        both += (bits & low) + ((bits >> 16) & low);
    }
    both = (both & 0xffffffffu) + (both >> 32);
    *sum = __builtin_convertvector(both, halves);
}

INLINE void draw_sums(uint64_t key, uint64_t first, uint64_t n, uint32_t *sums)
{
    uint64_t start = sy_data_mix(key + STEP) + first * WORDS * STEP;
    lanes state;
    for (int l = 0; l < LANES; l++)
        state[l] = start + (uint64_t)l * WORDS * STEP;
    uint64_t whole = n / LANES * LANES;
    halves sum;
    for (uint64_t i = 0; i < whole; i += LANES, state += LANES * WORDS * STEP) {
        add_words(&state, &sum);
        memcpy(sums + i, &sum, sizeof sum);
    }
    if (whole < n) {
        add_words(&state, &sum);
        memcpy(sums + whole, &sum, (n - whole) * sizeof *sums);
    }
}

/* Products of 64 bits are what takes the time; AVX-512 has them. */
#ifdef __x86_64__
__attribute__((target("avx512f,avx512dq"))) static void draw_sums_16(uint64_t key, uint64_t first,
                                                                     uint64_t n, uint32_t *sums)
{
    draw_sums(key, first, n, sums);
}

__attribute__((target("avx2"))) static void draw_sums_8(uint64_t key, uint64_t first, uint64_t n,
                                                        uint32_t *sums)
{
    draw_sums(key, first, n, sums);
}
#endif

void sy_data_draw_sums(uint64_t key, uint64_t first, uint64_t n, uint32_t *sums)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
        draw_sums_16(key, first, n, sums);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        draw_sums_8(key, first, n, sums);
        return;
    }
#endif
    draw_sums(key, first, n, sums);
}
