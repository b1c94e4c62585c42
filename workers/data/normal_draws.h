/* Numbers that are close to normal ones, each a function of (key, number), many at once: a batch of pictures is millions of them. The sums are
 * of integers, so each CPU's instructions give the same ones. */
#ifndef SY_WORKERS_DATA_NORMAL_DRAWS_H
#define SY_WORKERS_DATA_NORMAL_DRAWS_H

#include <stdint.h>

/* Word `number` of what `key` draws. */
uint64_t sy_data_draw(uint64_t key, uint64_t number);

/* sums[i]: of the four times 16 bits of each of the three words 3 (first + i) to 3 (first + i) + 2 of what `key` draws. */
void sy_data_draw_sums(uint64_t key, uint64_t first, uint64_t n, uint32_t *sums);

/* Twelve uniform numbers' worth, less their mean; exact. */
static inline double sy_data_normal_of(uint32_t sum)
{
    return (double)sum / 65536.0 - 6.0;
}

#endif
