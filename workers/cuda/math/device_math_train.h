/* The mathematics that only training needs, as a second table beside device_math.h's: rules M1 to M4 hold. Tensors are dense float32, row-major
 * where nothing else is said. */
#ifndef SY_WORKERS_CUDA_MATH_DEVICE_MATH_TRAIN_H
#define SY_WORKERS_CUDA_MATH_DEVICE_MATH_TRAIN_H

#include "workers/cuda/math/device_math.h"
#include "workers/engine/cell_curves.h"
#include "workers/engine/train_reductions.h"

/* Elements in any order. */
struct sy_math_curve {
    struct sy_curve of;
    int64_t n;
};

/* A result of dims; a and b by strides, 0 where they are repeated. */
struct sy_math_pair {
    enum sy_op op;
    int rank;
    int64_t dims[SY_MAX_RANK], a_strides[SY_MAX_RANK], b_strides[SY_MAX_RANK];
};

/* [rows, columns]: each row by its own moments. */
struct sy_math_rows {
    int64_t rows, columns;
    float epsilon;
    bool is_rms; /* the mean is taken as 0 */
};

/* Element i is dropped if its random number, a function of (seed, batch, node, i), is below ratio * 2^32; the others are multiplied
 * with 1 / (1 - ratio). */
struct sy_math_drop {
    uint64_t seed, batch;
    uint32_t node;
    float ratio;
    int64_t n;
};

/* What a step of a recurrence reads and writes, [batch, hidden] where nothing else is said; NULL where it is not there. */
enum sy_cell_role {
    SY_CELL_REC, /* h by the recurrent weights: [batch, gates, hidden], of the gates that the part makes */
    SY_CELL_BIAS,    /* [2, gates, hidden]: of the input, of the state */
    SY_CELL_LENGTHS, /* int32 [batch] */
    SY_CELL_H,       /* the state before */
    SY_CELL_C,
    SY_CELL_DY,
    SY_CELL_D,     /* BACK_END: third by the third recurrent weights */
    SY_CELL_PEEPS, /* LSTM: [input, output, forget; hidden] */
    SY_CELL_G,     /* [batch, gates, hidden]: input by weights, becomes the gates */
    SY_CELL_EXTRA, /* LSTM: c behind. GRU: reset h, or late what the state gives the third gate */
    SY_CELL_H_NEW,
    SY_CELL_Y,
    SY_CELL_DH, /* of the state behind; becomes what passes to the one before beside the products */
    SY_CELL_DC, /* of c behind; becomes that of c before */
    SY_CELL_DG, /* [batch, gates, hidden] */
    SY_CELL_DG_H,  /* GRU: the same for the state's side; without `resets_late` its third is zero */
    SY_CELL_THIRD, /* GRU: the third of DG */
    SY_CELL_NARROW, /* forward: what the next product reads, H_NEW or (GATES without `resets_late`) EXTRA, as `narrow` */
    SY_CELL_ROLES
};

/* LSTM, GRU (gates in ONNX's order) or RNN at one time, backward by the usual rules without peepholes. GRU that resets in front of the product: GATES and END, BACK and BACK_END. */
enum sy_cell_part {
    SY_CELL_PART_GATES,
    SY_CELL_PART_END,
    SY_CELL_PART_BACK,
    SY_CELL_PART_BACK_END
};
struct sy_math_cell {
    enum sy_op op;
    enum sy_cell_part part;
    bool resets_late;
    struct sy_cell_rules rules;
    enum sy_dtype narrow; /* with NARROW: F16, BF16 */
    int64_t time, batch, hidden;
};

/* The gradients of attention. type: not F16. */
#define SY_MATH_ATTENTION_BACK_SIZE 128 /* at most: depth, width */
struct sy_math_attention_back {
    struct sy_math_attention forward;
    enum sy_dtype dq_type, dk_type, dv_type; /* each as `type`, or float32 */
    /* No two elements in one place: what heads share has a gradient for each. */
    struct sy_attention_view dq, dk, dv;
};

/* On the device. */
struct sy_math_attention_at {
    const void *q, *k, *v, *y;
    const void *dy; /* as y lies, of `type` */
    const void *stats, *masks[SY_ATTENTION_MASKS];
    void *delta; /* written, float32 of heads by rows */
    void *dq, *dk, *dv;
};

struct sy_math_train_ops {
    int (*curve)(struct sy_math *math, const struct sy_math_curve *curve, const void *x, void *y);
    /* dx = dy * slope(x, y) */
    int (*curve_gradient)(struct sy_math *math, const struct sy_math_curve *curve, const void *x,
                          const void *y, const void *dy, void *dx);
    int (*pair)(struct sy_math *math, const struct sy_math_pair *pair, const void *a, const void *b,
                void *y);
    /* y: bool, whether the comparison holds. */
    int (*compare)(struct sy_math *math, const struct sy_math_pair *pair, const void *a,
                   const void *b, void *y);
    /* For each element of the result: d = dy times the slope in a (which 0) or b (1). d may be dy. */
    int (*pair_gradient)(struct sy_math *math, const struct sy_math_pair *pair, int which,
                         const void *a, const void *b, const void *dy, void *d);
    int (*softmax_gradient)(struct sy_math *math, const struct sy_math_softmax *softmax,
                            const void *y, const void *dy, void *dx);
    /* mean[rows], rate[rows] = 1 / sqrt(variance + epsilon) */
    int (*row_moments)(struct sy_math *math, const struct sy_math_rows *rows, const void *x,
                       void *mean, void *rate);
    /* g: the gradient of (x - mean) rate. dx may be g. */
    int (*row_gradient)(struct sy_math *math, const struct sy_math_rows *rows, const void *x,
                        const void *g, const void *mean, const void *rate, void *dx);
    /* The gradient of a gather's table, all of it: rows that were read twice get the sum in the order of the indices; an index that is
     * outside gives nothing. */
    int (*scatter)(struct sy_math *math, const struct sy_math_gather *gather, const void *dy,
                   const void *indices, void *to);
    int (*drop)(struct sy_math *math, const struct sy_math_drop *drop, const void *x, void *y);
    int (*reduction)(struct sy_math *math, const struct sy_train_reduction *reduction,
                     const void *x, void *y);
    int (*reduction_gradient)(struct sy_math *math, const struct sy_train_reduction *reduction,
                              const void *x, const void *y, const void *dy, void *dx);
    int (*cell)(struct sy_math *math, const struct sy_math_cell *cell, void *const *at);
    /* Of the result of `attention`, with the stats that it wrote; overwrites delta and all of dq, dk, dv. */
    int (*attention_gradient)(struct sy_math *math, const struct sy_math_attention_back *attention,
                              const struct sy_math_attention_at *at);
    /* *out (a double) = the sum of squares, or is increased by it. */
    int (*square_sum)(struct sy_math *math, int64_t n, const void *x, bool adds, void *out,
                      void *scratch);
};

#endif
