/* Internal declarations of convolution chains: the plan (conv_chain_plan.c) and its execution (conv_chain.c). */
#ifndef SY_WORKERS_HOST_OPERATORS_CONV_CHAIN_INTERNAL_H
#define SY_WORKERS_HOST_OPERATORS_CONV_CHAIN_INTERNAL_H

#include "workers/host/operators/late_curve.h"
#include "workers/host/operators/op_depthwise.h"

enum { SY_CHAIN_STAGES = 8, SY_CHAIN_PIECES = 16, SY_CHAIN_ARGS = 5 };

/* A primitive for a number of rows. Each thread has its own SY_CHAIN_ARGS memories for it. */
struct sy_chain_piece {
    int64_t rows_in, rows_out, pad_top, pad_bottom;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    dnnl_memory_t *memory;
};

struct sy_chain_stage {
    const struct sy_node *node;
    struct sy_conv_shape shape;
    bool is_depthwise; /* computed by depthwise.h: its pieces have no primitives */
    struct sy_depthwise depthwise;
    bool is_curved_late; /* the activation is a loop over each piece's rows (late_curve.h) */
    struct sy_curve curve;
    dnnl_memory_desc_t weights_md;
    int weights, bias; /* values; bias -1: none */
    int n_pieces;
    struct sy_chain_piece pieces[SY_CHAIN_PIECES];
    /* Its input. */
    int64_t height, row_bytes;
    int64_t buffer_rows; /* of the second stage and later */
    uint64_t buffer_offset;
};

enum sy_chain_op_kind { SY_CHAIN_MOVE, SY_CHAIN_CLEAR, SY_CHAIN_RUN };

/* MOVE, CLEAR: rows of the input buffer of `stage`, from row `from` to row `to`. RUN: `piece` of `stage`, from row `from` of its input to
 * row `to` of the next one's; rows of the chain's input and result are counted in the image. */
struct sy_chain_op {
    enum sy_chain_op_kind kind;
    int stage, piece;
    int64_t from, to, rows;
};

struct sy_chain {
    int n_stages;
    struct sy_chain_stage stages[SY_CHAIN_STAGES];
    int64_t images, height, row_bytes; /* of the result */
    int n_ops, ops_capacity;
    struct sy_chain_op *ops;
    int bands, *band_ops; /* first op of each band, bands + 1 entries */
    bool may_overwrite; /* the result may overwrite the input: no row is read after it is written */
    int n_threads;
    dnnl_stream_t *streams;
    uint64_t scratch_bytes, scratch_offset, thread_bytes;
    int src, dst, residual; /* values; residual -1: none, or the result overwrites it */
};

/* Fills ops and bands, the buffers' sizes and the stages' pieces (without primitives) for turns of `rows` rows of the result.
 * EUNSUPPORTED: too many pieces, or one that would read padding only. */
int sy_chain_plan(struct sy_chain *chain, int64_t rows);
uint64_t sy_chain_buffer_bytes(const struct sy_chain *chain); /* of one thread */

#endif
