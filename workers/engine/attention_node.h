/* The attention node (loader/fuse/fuse_attention.c), parsed for all engines: softmax(scale * q k + masks) v for many heads, with the place of each matrix as
 * strides. */
#ifndef SY_WORKERS_ENGINE_ATTENTION_NODE_H
#define SY_WORKERS_ENGINE_ATTENTION_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"

#define SY_ATTENTION_MASKS 4

/* Strides of a matrix for each head. */
struct sy_attention_view {
    int64_t heads[SY_MAX_RANK]; /* strides, in elements; 0: repeated */
    int64_t row, column;
    bool narrow; /* in the engine's narrow type, not float32; sy_attention_read leaves it false */
};

enum sy_attention_mask { SY_MASK_ADD, SY_MASK_KEEP, SY_MASK_DROP };

struct sy_attention {
    int n_threads; /* host engine: threads that have scratch memory */
    int head_rank;
    int64_t head_dims[SY_MAX_RANK];
    int64_t rows, depth, columns,
        width; /* q [rows, depth], k [depth, columns], v [columns, width] */
    float scale;
    bool zero_nan; /* rows of NaN become zeros */
    struct sy_attention_view q, k, v, y;
    int n_masks;
    enum sy_attention_mask kinds[SY_ATTENTION_MASKS]; /* ADD: of floats; the others: of bools */
    float fills[SY_ATTENTION_MASKS];
    /* n > 0: a causal mask, a row keeps the columns before its number + n; ADD adds 0 there and the fill elsewhere. 0: any other mask. */
    int64_t causal[SY_ATTENTION_MASKS];
    struct sy_attention_view masks[SY_ATTENTION_MASKS];
};

/* The node at that batch size, all its tensors row-major. Heads that share k and v may have become rows. ECORRUPT or EUNSUPPORTED, naming the node: it
 * describes none. */
int sy_attention_read(const struct sy_graph *graph, const struct sy_node *node, int64_t batch,
                      struct sy_attention *out);

#endif
