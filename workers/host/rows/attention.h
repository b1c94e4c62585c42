/* softmax(scale * q k + masks) v for many heads, a block of queries at a time: a block's scores stay in the cache. Matrices are read and written
 * where they lie, by strides; a block is computed by one thread. Behind a causal mask that leaves columns out, neither the number of threads nor
 * that of heads changes a bit; without, blocks are smaller with more threads to each head, and the math library's sums may differ by rounding. */
#ifndef SY_WORKERS_HOST_ROWS_ATTENTION_H
#define SY_WORKERS_HOST_ROWS_ATTENTION_H

#include "workers/engine/attention_node.h"

struct sy_attention_data {
    const void *q, *k, *v, *masks[SY_ATTENTION_MASKS];
    void *y;
    float *scratch; /* sy_attention_scratch bytes */
};

/* Each of q, k, v has a row or column stride of 1 if both extents are above 1; y's column stride is 1. */
int64_t sy_attention_scratch(const struct sy_attention *a);
/* ENOMEM_HOST if the math library had none. */
int sy_attention_run(const struct sy_attention *a, const struct sy_attention_data *data);

#endif
