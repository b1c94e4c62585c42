/* The mathematics of the CUDA engine as one table of functions: what the engine wants computed, without CUDA.
 *
 * The engine (layouts, planning, pointers) is plain C above this table. Below it are cuDNN, cuBLASLt and kernels of our own
 * (math_cuda.c); the tests run these kernels on the CPU, and loops in the place of the libraries (tests/on_cpu/).
 *
 * M1: each call of `enqueue` kind only puts work into the stream that the math was opened on; work runs in that order.
 *     Descriptions are read before the call returns, memory is read and written when the work runs.
 * M2: device pointers are addresses that only the device follows. Activations are dense float32, row-major, or channels last
 *     (N, spatial, C) where it says so; strides count elements. Where a description names a type, float16 (F16) or bfloat16 (BF16) may
 *     lie there instead; NONE is float32. It is computed in float32 all the same, and rounded when it is written.
 * M3: equal inputs give equal bits, each time, for one plan: no atomics, no sums whose order varies.
 * M4: a call that fails has set the error text, with the name of what failed. The engine adds the node's name.
 *
 * One thread at a time. */
#ifndef SY_WORKERS_CUDA_MATH_DEVICE_MATH_H
#define SY_WORKERS_CUDA_MATH_DEVICE_MATH_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"
#include "workers/cuda/math/generic.h"
#include "workers/engine/attention_node.h"
#include "workers/engine/schedule.h"

struct sy_device;
struct sy_stream;
struct sy_math;      /* open: libraries' handles, the stream */
struct sy_math_plan; /* a convolution or a product with its algorithm */
struct sy_math_graph;
struct sy_math_train_ops;
struct sy_math_library_ops;

#define SY_MATH_SPATIAL    3
#define SY_MATH_CHAIN_IN   5
#define SY_MATH_CHAIN_STEP 8

static inline bool sy_math_is_narrow(enum sy_dtype type)
{
    return type == SY_DTYPE_F16 || type == SY_DTYPE_BF16;
}

static inline int64_t sy_math_float_bytes(enum sy_dtype type)
{
    return sy_math_is_narrow(type) ? 2 : 4;
}

/* FORWARD: y = act(conv(x, w) + bias + residual); a = x, b = w. DATA: the gradient of x from that of y; a = dy, b = w, y = dx. WEIGHTS: that of
 * w; a = x, b = dy, y = dw; both without bias, residual, activation. */
enum sy_math_direction { SY_MATH_FORWARD, SY_MATH_DATA, SY_MATH_WEIGHTS };

/* Any direction; the result is none of the operands. x, y, residual: channels last; w: [out, kernel..., in / groups]. One dimension is
 * written as kernel [1, k] (spatial = 2). Padding is the same on both sides: the engine pads the input first where it is not. */
struct sy_math_conv {
    enum sy_math_direction direction;
    enum sy_dtype type;      /* of x, w, residual, y */
    enum sy_dtype bias_type; /* as `type`, else float32 */
    int spatial;             /* 2 or 3 */
    int64_t batch, in_channels, out_channels, groups;
    int64_t in[SY_MATH_SPATIAL], out[SY_MATH_SPATIAL], kernel[SY_MATH_SPATIAL];
    int64_t strides[SY_MATH_SPATIAL], dilations[SY_MATH_SPATIAL], pads[SY_MATH_SPATIAL];
    bool has_bias, has_residual;
    bool wide_scratch; /* FORWARD: it is given back_scratch_bytes, as the other directions are */
    enum sy_activation activation;
    float act_alpha, act_beta;
};

/* Row-major: y[m, n] = act(alpha * a[m, k] b[k, n] + beta * c[m, n] + bias[n]), `count` times with strides between. A
 * transposed operand lies there as [k, m] or [n, k]. c may be y. */
struct sy_math_matmul {
    enum sy_dtype type, y_type; /* of a, b; of c, y: as a's, or float32 */
    enum sy_dtype bias_type;    /* as `y_type`, else float32 */
    int64_t m, n, k, count;
    int64_t a_stride, b_stride, y_stride; /* elements; 0: the same each time (not y) */
    int64_t align_bytes;                  /* of a, b, c, y: a power of two, an element to 16 */
    bool a_transposed, b_transposed, has_bias;
    float alpha, beta; /* beta 0: c is not read */
    enum sy_activation activation;
    float act_alpha, act_beta;
};

/* Any layout: strides in the order batch, channel, spatial. */
struct sy_math_pool {
    enum sy_dtype type; /* of x and y, and of their gradients */
    bool max, count_padding;
    int64_t batch, channels;
    int64_t in[SY_MATH_SPATIAL], out[SY_MATH_SPATIAL], kernel[SY_MATH_SPATIAL];
    int64_t strides[SY_MATH_SPATIAL], dilations[SY_MATH_SPATIAL], pads[SY_MATH_SPATIAL];
    int64_t in_strides[2 + SY_MATH_SPATIAL], out_strides[2 + SY_MATH_SPATIAL];
};

/* X(name, operand): value = f(value), or f(value, operand) with the operand an input of the chain. Integers take the first eight. */
#define SY_MATH_CHAIN_TABLE(X)                                                                                   \
    X(LOAD, 1) /* value = operand */                                                                             \
    X(ADD, 1)                                                                                                    \
    X(SUB, 1)                                                                                                    \
    X(MUL, 1)                                                                                                    \
    X(DIV, 1)                                                                                                    \
    X(POW, 1)                                                                                                    \
    X(MAX, 1)                                                                                                    \
    X(MIN, 1)                                                                                                    \
    X(MUL_RSQRT, 1) /* value / sqrt(operand + alpha) */                                                          \
    /* Backward: value times the derivative; the operand is the forward's result, in the last four its input. */ \
    X(GRAD_LEAKY, 1) /* alpha at least 0 */                                                                      \
    X(GRAD_SIGMOID, 1)                                                                                           \
    X(GRAD_TANH, 1)                                                                                              \
    X(GRAD_ELU, 1)                                                                                               \
    X(GRAD_GELU_ERF, 1)                                                                                          \
    X(GRAD_GELU_TANH, 1)                                                                                         \
    X(GRAD_HARD_SWISH, 1)                                                                                        \
    X(GRAD_CLIP, 1)                                                                                              \
    X(LEAKY, 0) /* x < 0: alpha x */                                                                             \
    X(SIGMOID, 0)                                                                                                \
    X(TANH, 0)                                                                                                   \
    X(CLIP, 0) /* to [alpha, beta] */                                                                            \
    X(ELU, 0)                                                                                                    \
    X(EXP, 0)                                                                                                    \
    X(LOG, 0)                                                                                                    \
    X(SQRT, 0)                                                                                                   \
    X(ABS, 0)                                                                                                    \
    X(LINEAR, 0) /* alpha x + beta */                                                                            \
    X(RECIPROCAL, 0)                                                                                             \
    X(GELU_ERF, 0)                                                                                               \
    X(GELU_TANH, 0)                                                                                              \
    X(ERF, 0)                                                                                                    \
    X(HARD_SIGMOID, 0) /* clip(alpha x + beta, 0, 1) */                                                          \
    X(HARD_SWISH, 0)

enum sy_math_chain_code {
#define X(name, operand) SY_CHAIN_##name,
    SY_MATH_CHAIN_TABLE(X)
#undef X
};

/* Codes up to here read an operand. */
#define SY_CHAIN_LAST_OPERAND SY_CHAIN_GRAD_CLIP

struct sy_math_chain_step {
    int32_t code, input;
    float alpha, beta;
};

/* An elementwise program, one pass over the output: inputs broadcast by strides of 0. The output may be an input that has its strides. */
struct sy_math_chain {
    enum sy_dtype dtype;                                /* F32, I32, I64; of all */
    enum sy_dtype in_types[SY_MATH_CHAIN_IN], out_type; /* with F32: how each lies in memory */
    int rank, n_inputs, n_steps;
    int64_t dims[SY_MAX_RANK], out_strides[SY_MAX_RANK];
    int64_t in_strides[SY_MATH_CHAIN_IN][SY_MAX_RANK];
    struct sy_math_chain_step steps[SY_MATH_CHAIN_STEP];
};

/* out = pick ? a : b by a bool; or out (bool) = a == b. Broadcast as above. */
struct sy_math_choice {
    enum sy_dtype dtype; /* of a and b; Where only needs its size */
    int rank;
    int64_t dims[SY_MAX_RANK], out_strides[SY_MAX_RANK];
    int64_t in_strides[3][SY_MAX_RANK]; /* pick (not with ==), a, b */
};

/* For every index of dims: to[to_offset + i * to_strides] = from[from_offset + i * from_strides]. */
struct sy_math_move {
    int64_t element_bytes; /* 1, 2, 4, 8 */
    int rank;
    int64_t dims[SY_MAX_RANK], from_strides[SY_MAX_RANK], to_strides[SY_MAX_RANK];
    int64_t from_offset, to_offset;
};

/* from [outer, extent, inner], indices [n_indices] -> to [outer, n_indices, inner]. */
struct sy_math_gather {
    int64_t outer, extent, n_indices, inner_bytes;
    bool wide;    /* indices are int64, else int32 */
    int64_t step; /* what to write into the fault */
};

/* Written by the device when an index is outside; lies in host memory that the device sees. */
struct sy_math_fault {
    int64_t step; /* 0: none */
    int64_t index;
};

/* [outer, extent, inner], over the middle. */
struct sy_math_softmax {
    int64_t outer, extent, inner;
    bool logarithm;
    enum sy_dtype out_type; /* y may be x if it is float32 */
};

/* Any strides. Scores are summed and softened in float32; where q, k, v are narrow the numbers of their softmax are rounded to that before
 * they are multiplied with v. */
#define SY_MATH_ATTENTION_SIZE 256 /* at most: depth, width */
struct sy_math_attention {
    enum sy_dtype type, y_type; /* of q, k, v; of y. What `of` says of that is not read */
    struct sy_attention of;
};

/* skip, bias, sum may be NULL. */
struct sy_math_layer_norm {
    int64_t rows, columns;
    float epsilon;
    enum sy_dtype out_type; /* of the result; all else is float32 */
};

/* Any strides; the output is dense over the dimensions that are kept. */
struct sy_math_reduce {
    bool mean; /* else sum */
    int rank;
    int64_t dims[SY_MAX_RANK], strides[SY_MAX_RANK];
    bool reduced[SY_MAX_RANK];
};

/* ---- training ---- */

/* Of dense [rows, columns], for each column; sums are exact to float rounding. */
enum sy_math_columns_kind {
    SY_COLUMNS_SUM,     /* out[columns] = sum a */
    SY_COLUMNS_MOMENTS, /* out[2, columns] = mean, population variance of a */
    SY_COLUMNS_NORM /* a = dy: out[2, columns] = sum dy, sum dy (x - mean) / sqrt(variance + epsilon) */
};
struct sy_math_columns {
    enum sy_math_columns_kind kind;
    int64_t rows, columns;
    float epsilon;
    enum sy_dtype a_type, x_type; /* of a or dy; of x and dx. Sums and moments are float32 */
};

/* CLASSES: the mean of -log softmax(x)[label] over the `counted` rows whose label (int32, checked by the caller) is not below zero. SQUARE: of
 * (x - wanted)^2 over all elements. LOGITS: of the binary cross entropy of sigmoid(x). */
struct sy_math_loss {
    enum { SY_MATH_CLASSES, SY_MATH_SQUARE, SY_MATH_LOGITS } kind;
    int64_t rows, columns, counted;
};

struct sy_math_update {
    enum {
        SY_UPDATE_SGD,
        SY_UPDATE_MOMENTUM,
        SY_UPDATE_NESTEROV,
        SY_UPDATE_ADAM,
        SY_UPDATE_STATISTIC,
        SY_UPDATE_SUM
    } kind;
    int64_t n;
    /* As the rule says, where scale = mean, or mean limit / (norm + 1e-6) if the gradient's norm = sqrt(*norm_square) mean is larger than limit > 0.
     * STATISTIC: w = momentum w + rest1 g. SUM: w += g. Nothing changes if *norm_square is not finite. */
    struct sy_update_rule rule;
    double mean, limit;
};

#define SY_MATH_MARKS 9u /* slots of mark */

struct sy_math_ops {
    const char *name;
    /* Every program reserves so much of its workspace for plans. A constant, so that workspaces are of equal size in all
     * workers, whatever algorithm each found fastest. */
    uint64_t scratch_bytes;
    uint64_t back_scratch_bytes; /* with plans of other directions than FORWARD; not less */

    /* ENODEVICE when the libraries cannot be had. Device and stream are borrowed. */
    int (*open)(struct sy_device *device, struct sy_stream *compute, struct sy_math **out);
    void (*close)(
        struct sy_math
            *math); /* what is enqueued has ended; plans and graphs are gone. NULL is fine */

    /* Host memory that the device reads and writes under the same address. */
    int (*host_take)(struct sy_math *math, uint64_t bytes, void **out);
    void (*host_drop)(struct sy_math *math, void *memory); /* NULL is fine */

    /* Picks an algorithm, once per description (remembered while open): the fastest while tuning is on, which takes time and
     * waits for the device; else the one that was measured before, for this batch size or another; else the library's own first choice
     * that is deterministic. Equal libraries, devices and choices make equal plans. */
    int (*conv_plan)(struct sy_math *math, const struct sy_math_conv *conv,
                     struct sy_math_plan **out);
    int (*matmul_plan)(struct sy_math *math, const struct sy_math_matmul *matmul,
                       struct sy_math_plan **out);
    void (*plan_drop)(struct sy_math *math, struct sy_math_plan *plan); /* NULL is fine */

    /* (all optional) As in struct sy_engine_ops: whether plans measure; what was measured, as text; another process's. */
    void (*tune)(struct sy_math *math, bool on);
    int (*choices)(struct sy_math *math, char **out);
    int (*use_choices)(struct sy_math *math, const char *text);

    /* ---- enqueue (M1) ---- */
    int (*conv)(struct sy_math *math, struct sy_math_plan *plan, const void *a, const void *b,
                const void *bias, const void *residual, void *y, void *scratch);
    int (*matmul)(struct sy_math *math, struct sy_math_plan *plan, const void *a, const void *b,
                  const void *bias, const void *c, void *y, void *scratch);
    int (*pool)(struct sy_math *math, const struct sy_math_pool *pool, const void *x, void *y);
    int (*chain)(struct sy_math *math, const struct sy_math_chain *chain, const void *const *in,
                 void *out);
    int (*where)(struct sy_math *math, const struct sy_math_choice *choice, const void *pick,
                 const void *a, const void *b, void *out);
    int (*equal)(struct sy_math *math, const struct sy_math_choice *choice, const void *a,
                 const void *b, void *out);
    int (*move)(struct sy_math *math, const struct sy_math_move *move, const void *from, void *to);
    int (*fill)(struct sy_math *math, void *to, int64_t n, float value);
    int (*zero)(struct sy_math *math, void *to, uint64_t bytes);
    int (*gather)(struct sy_math *math, const struct sy_math_gather *gather, const void *from,
                  const void *indices, void *to, struct sy_math_fault *fault);
    /* Between F32, F16, BF16, I32, I64, BOOL. */
    int (*cast)(struct sy_math *math, enum sy_dtype from_type, enum sy_dtype to_type, int64_t n,
                const void *from, void *to);
    int (*softmax)(struct sy_math *math, const struct sy_math_softmax *softmax, const void *x,
                   void *y);
    /* masks: SY_ATTENTION_MASKS, NULL where there is none. y is none of the others. stats (NULL: for nobody): of each row of each head the
     * largest score and 1 / the sum of e^(score - largest), for the gradient; NaN and infinity where there is no sum. */
    int (*attention)(struct sy_math *math, const struct sy_math_attention *attention, const void *q,
                     const void *k, const void *v, const void *const *masks, void *y, void *stats);
    int (*layer_norm)(struct sy_math *math, const struct sy_math_layer_norm *norm, const void *x,
                      const void *skip, const void *scale, const void *bias, void *out, void *sum);
    int (*reduce)(struct sy_math *math, const struct sy_math_reduce *reduce, const void *x,
                  void *y);
    /* at: inputs and results where `each` has them, NULL where there is none. */
    int (*each)(struct sy_math *math, const struct sy_math_generic *each, void *const *at,
                struct sy_math_fault *fault);
    int (*copy)(struct sy_math *math, const void *from, void *to,
                uint64_t bytes); /* on the device */
    int (*to_device)(struct sy_math *math, const void *host, void *to, uint64_t bytes);
    int (*to_host)(struct sy_math *math, const void *from, void *host, uint64_t bytes);

    /* (optional) What a library may compute in the place of kernels of our own: device_math_library.h. */
    const struct sy_math_library_ops *library;

    /* ---- training: enqueue ---- */
    const struct sy_math_train_ops *train; /* device_math_train.h */
    /* x, moments: with NORM. */
    int (*columns)(struct sy_math *math, const struct sy_math_columns *columns, const void *a,
                   const void *x, const void *moments, void *out, void *scratch);
    /* dx of y = (x - mean) rsqrt(variance + epsilon) scale + bias over the batch; sums: of NORM. dx may be dy, of one type. */
    int (*norm_gradient)(struct sy_math *math, const struct sy_math_columns *columns,
                         const void *dy, const void *x, const void *moments, const void *sums,
                         const void *scale, void *dx);
    /* dx, of x's strides, all of it; the gradient of a maximum goes to the first of equals. */
    int (*pool_gradient)(struct sy_math *math, const struct sy_math_pool *pool, const void *x,
                         const void *dy, void *dx);
    /* diff = d loss / d x; *loss on the device. */
    int (*loss)(struct sy_math *math, const struct sy_math_loss *loss, const void *x,
                const void *wanted, void *diff, void *out, void *scratch);
    /* norm_square: a double of the device; not with STATISTIC and SUM. */
    int (*update)(struct sy_math *math, const struct sy_math_update *update, void *w, const void *g,
                  void *m, void *v, const void *norm_square);
    /* Notes what is enqueued so far as `slot`, which may be noted again once it was waited for. */
    int (*mark)(struct sy_math *math, unsigned slot);

    /* ---- waiting: sleeps ---- */
    /* Until all in front of the mark is done. *out_ns: device time since mark `before`, if that was noted and waited for; else 0. */
    int (*wait_mark)(struct sy_math *math, unsigned slot, int before, uint64_t *out_ns);
    int (*synchronize)(struct sy_math *math);

    /* Between begin and end what is enqueued is not run but recorded. end returns NULL in *out and SY_OK when it could not be. */
    int (*capture_begin)(struct sy_math *math);
    int (*capture_end)(struct sy_math *math, struct sy_math_graph **out);
    int (*graph_launch)(struct sy_math *math, struct sy_math_graph *graph);
    void (*graph_drop)(struct sy_math *math, struct sy_math_graph *graph);
};

#endif
