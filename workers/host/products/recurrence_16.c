/* Blocks of 16 units, for AVX-512: 16 sums of 4 sequences in its 32 registers; in bf16 with AVX512_BF16. */
#define LANES 16
#include <immintrin.h>

#include "workers/host/products/recurrence_block.h"

#define WIDE   __attribute__((target("avx512f")))
#define NARROW __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

/* As some_sequences with weights and states in bf16, two states at once. */
NARROW INLINE void some_narrow(const struct place *p, int64_t block, int64_t b, int gates,
                               int count)
{
    lanes sum[MAX_SEQUENCES][MAX_GATES], fresh[MAX_SEQUENCES];
    const float *h[MAX_SEQUENCES];
    const uint32_t *pairs[MAX_SEQUENCES];
    int64_t rows = recurrence_rows(p->r->hidden, true);
    const __m512i *w = (const __m512i *)((const uint32_t *)p->r->weights +
                                         recurrence_weights_at(p->r, p->direction, block));
    start_sums(p, block, b, gates, count, sum, fresh, h);
    for (int s = 0; s < count; s++)
        pairs[s] = (const uint32_t *)recurrence_narrow_state(p->r, p->direction, p->step, b + s);
    for (int64_t k = 0; k < rows && h[0]; k++)
        for (int g = 0; g < gates; g++)
            for (int s = 0; s < count; s++)
                sum[s][g] = (lanes)_mm512_dpbf16_ps(
                    (__m512)sum[s][g], (__m512bh)_mm512_set1_epi32((int)pairs[s][k]),
                    (__m512bh)_mm512_loadu_si512(&w[k * gates + g]));
    finish_sums(p, block, b, gates, count, sum, fresh);
}

BLOCK(WIDE, sy_lstm_block_16, some_sequences, 4, 4)
BLOCK(WIDE, sy_gru_block_16, some_sequences, 3, 4)
BLOCK(NARROW, sy_narrow_lstm_block, some_narrow, 4, 4)
BLOCK(NARROW, sy_narrow_gru_block, some_narrow, 3, 4)
