/* softmax(scale * q k + masks) v for many heads, a block of queries at a time: a block's scores stay in the cache. Matrices are read and written
 * where they lie, by strides; a block is computed by one thread, so results do not depend on how many there are. */
#ifndef SY_WORKERS_HOST_ATTENTION_H
#define SY_WORKERS_HOST_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph.h"

#define SY_ATTENTION_MASKS 4

/* Of a matrix per head. One of row and column is 1 if both extents are above 1. */
struct sy_attention_view {
    int64_t heads[SY_MAX_RANK]; /* strides, in elements; 0: repeated */
    int64_t row, column;
    bool narrow; /* bf16 */
};

enum sy_attention_mask { SY_MASK_ADD, SY_MASK_KEEP, SY_MASK_DROP };

struct sy_attention {
    int n_threads; /* that there is scratch memory for */
    int head_rank;
    int64_t head_dims[SY_MAX_RANK];
    int64_t rows, depth, columns,
        width; /* q [rows, depth], k [depth, columns], v [columns, width] */
    float scale;
    bool zero_nan;                       /* rows of NaN become zeros */
    struct sy_attention_view q, k, v, y; /* y's column stride is 1 */
    int n_masks;
    enum sy_attention_mask kinds[SY_ATTENTION_MASKS]; /* ADD: of floats; the others: of bools */
    float fills[SY_ATTENTION_MASKS];
    struct sy_attention_view masks[SY_ATTENTION_MASKS];
};

struct sy_attention_data {
    const void *q, *k, *v, *masks[SY_ATTENTION_MASKS];
    void *y;
    float *scratch; /* sy_attention_scratch bytes */
};

int64_t sy_attention_scratch(const struct sy_attention *a);
/* ENOMEM_HOST if the math library had none. */
int sy_attention_run(const struct sy_attention *a, const struct sy_attention_data *data);

#endif
