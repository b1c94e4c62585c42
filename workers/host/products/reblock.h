/* Moves weights from one blocked layout to another whose blocks are of the same dimension but of another size.
 *
 * oneDNN chooses the block of a convolution's filters (32, 48, 64) by the image's size, and has no fast reorder between two of them: 25 ms for
 * 1 MB. A package's weights are blocked for its usual sizes, so that a request of other sizes may meet it on each run. */
#ifndef SY_WORKERS_HOST_PRODUCTS_REBLOCK_H
#define SY_WORKERS_HOST_PRODUCTS_REBLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "workers/host/base/dnnl_compat.h"

/* A layout: elements of dimension `d` are in blocks, all other dimensions have strides. */
struct sy_reblock_side {
    int64_t block;       /* elements of the blocked dimension that are adjacent */
    int64_t strides[12]; /* in elements; of the blocked dimension: from block to block */
    int64_t padded;      /* extent of the blocked dimension with its padding */
};

struct sy_reblock {
    int64_t rank, blocked; /* `blocked`: the dimension */
    int64_t dims[12];
    int64_t run; /* elements that are adjacent in both */
    struct sy_reblock_side from, to;
};

/* Whether both are layouts of float32 as above, of the same dimensions. Always false with oneDNN 3.x, whose layouts have names only. */
bool sy_reblock_read(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                     struct sy_reblock *out);
/* Writes all of `to`, its padding with zeros; on the engine's threads. The padding of `from` is zero. */
void sy_reblock_run(const struct sy_reblock *r, const float *from, float *to);

#endif
