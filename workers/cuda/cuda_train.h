/* The CUDA trainer inside: values, buffers, parameters, steps, and what the operators use to add them. No CUDA here: what is
 * computed goes through device_math.h.
 *
 *   graph tensor --value--> buffer: a stretch of the ephemeral or the persistent part, row-major or channels last
 *                 \-grad--> buffer
 *
 *   persistent   [weights w0 w1 ...][gradients g0 g1 ...][slot 0][slot 1][statistics]     one order in each: an optimizer is one flat loop
 *   ephemeral    [batch, activations, gradients of activations: placed by lifetime][scratch]
 *   pinned host  [batch as it is filled in][loss][headers on their way]
 *
 * G1 to G3 of workers/host/train_internal.h hold here too. Besides:
 *
 * H1: a step enqueues and returns. What is enqueued and not done is bounded (inflight.h): running a step may wait for an earlier one.
 * H2: the host reads what the device wrote in loss, count_correct, get_state and read_header only; these wait.
 * H3: the header is written in stream order: when it says GRADIENT, all updates before it are done. */
#ifndef SY_WORKERS_CUDA_CUDA_TRAIN_H
#define SY_WORKERS_CUDA_CUDA_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph.h"
#include "runtime/device/cuda/inflight.h"
#include "workers/cuda/device_math.h"
#include "workers/trainer.h"

#define SY_CUTR_ALIGN 256u
#define SY_CUTR_ARGS  7
#define SY_CUTR_SLOTS 2
#define SY_CUTR_HEADERS \
    16u /* writes of an iteration, and of a start, are fewer than half of that */
#define SY_CUTR_HEADER_BYTES 64u

enum { SY_CUTR_TRAIN = 1, SY_CUTR_EVALUATE = 2, SY_CUTR_FORWARD = 3 };

struct sy_cutr_value {
    int buffer;
    uint64_t delta_bytes; /* into the buffer */
    bool last;            /* channels last */
    int other;            /* the same elements in the other layout, or -1 */
    int rank;
    int64_t dims[SY_MAX_RANK];
};

struct sy_cutr_buffer {
    uint64_t bytes, offset;
    int first, last; /* steps; ephemeral only. -1: never named */
    bool persistent;
};

/* A constant of the graph that training changes; or a running statistic. */
struct sy_cutr_param {
    int tensor;
    int value, gradient; /* gradient -1: a running statistic */
    int slots[SY_CUTR_SLOTS], n_slots;
    int n_contributions;
    int batch_statistic; /* the value that it follows; -1 */
    float keep;
};

struct sy_cutr_tensor {
    int value, gradient, param; /* -1: none */
    bool needs_gradient;
};

struct sy_trainer;
struct sy_cutr_step;
typedef int (*sy_cutr_run)(struct sy_trainer *t, const struct sy_cutr_step *step);

struct sy_cutr_step {
    sy_cutr_run run;
    unsigned when;
    const char *name;       /* of the node, for errors */
    uint64_t cost_ns;       /* guess, for what is in flight */
    int args[SY_CUTR_ARGS]; /* values; -1: none */
    struct sy_math_plan *plan;
    enum { SY_CUTR_NO_PLAN, SY_CUTR_CONV_PLAN, SY_CUTR_MATMUL_PLAN } plan_kind;
    union {
        struct sy_math_conv conv;
        struct sy_math_matmul matmul;
        struct sy_math_pool pool;
        struct sy_math_chain chain;
        struct sy_math_move move;
        struct sy_math_columns columns;
        struct sy_math_loss loss;
        int64_t n; /* elements of a fill; bytes of a copy */
    };
};

/* What forward leaves for backward, per node. */
struct sy_cutr_node {
    int source, weights, bias; /* value, params; -1 */
    int moments;               /* value */
    union {
        struct sy_math_conv conv;
        struct sy_math_pool pool;
    };
    int64_t pad_left[SY_MATH_SPATIAL]; /* conv: of the padded copy that it reads instead */
    bool padded;
};

struct sy_cutr_state {
    char *name;
    int param, slot; /* slot -1: the parameter itself */
};

struct sy_trainer {
    const struct sy_graph *graph;
    struct sy_train_options options;
    const struct sy_math_ops *ops;
    struct sy_math *math;
    struct sy_cutr_tensor *tensors;
    struct sy_cutr_node *nodes;
    int n_values, n_buffers, n_steps, n_params, n_states, n_train, n_evaluate;
    struct sy_cutr_value *values;
    struct sy_cutr_buffer *buffers;
    struct sy_cutr_step *steps;
    struct sy_cutr_param *params;
    struct sy_cutr_state *states;
    int *train_steps, *evaluate_steps;
    int input, labels, logits, loss_value; /* values */
    int64_t n_outputs;                     /* of one row of the logits */
    uint64_t trained_bytes, statistic_offset, persistent_bytes, ephemeral_bytes, scratch_offset;
    unsigned char *persistent, *ephemeral; /* the device's view */
    unsigned char *host;                   /* pinned: input, labels, loss, header */
    uint64_t host_labels, host_loss;
    unsigned n_header_writes;
    struct sy_inflight inflight;
    int last_mark; /* slot waited for last; -1 */
    bool loss_marked;
};

/* ---- cuda_train_values.c ---- */

/* Appends one zeroed element to a growing array; NULL out of memory (error set). */
void *sy_cutr_append(void *array, int *n, size_t element_bytes);
int sy_cutr_dims(const struct sy_trainer *t, int tensor, int64_t *dims); /* returns the rank */
int64_t sy_cutr_count(const struct sy_cutr_value *value);
void sy_cutr_strides(const struct sy_cutr_value *value, int64_t *strides);
int sy_cutr_value_new(struct sy_trainer *t, int rank, const int64_t *dims, bool last,
                      bool persistent, int *out);
/* Part of a buffer, or all of it, under other dims. */
int sy_cutr_view(struct sy_trainer *t, int value, int rank, const int64_t *dims, bool last,
                 uint64_t delta_bytes, int *out);
/* `value` in the other layout, if it is not: an earlier copy of it, or a new step. */
int sy_cutr_as(struct sy_trainer *t, unsigned when, int value, bool last, int *out);
int sy_cutr_step_new(struct sy_trainer *t, unsigned when, const char *name, sy_cutr_run run,
                     const int *args, int n_args, struct sy_cutr_step **out);
/* Elementwise over `to`, dense, seen as [rows, columns] of its own order in memory; inputs of its layout, or rows of `columns` elements where
 * is_row says so. chain: codes, with inputs by number. */
int sy_cutr_chain(struct sy_trainer *t, unsigned when, const char *name,
                  const struct sy_math_chain *chain, const int *inputs, const bool *is_row,
                  int64_t columns, int to);
int sy_cutr_move(struct sy_trainer *t, unsigned when, const char *name,
                 const struct sy_math_move *move, int from, int to);
void *sy_cutr_pointer(const struct sy_trainer *t, int value); /* -1: NULL */
void *sy_cutr_scratch(const struct sy_trainer *t);

/* The constant `tensor` as a parameter of these dims; *param. EUNSUPPORTED names what it is not. */
int sy_cutr_param_use(struct sy_trainer *t, int tensor, int rank, const int64_t *dims, bool last,
                      bool trained, int *param);
/* Where a step may write a contribution to its gradient; commit behind the step. */
int sy_cutr_param_gradient(struct sy_trainer *t, int param, int *value);
int sy_cutr_param_commit(struct sy_trainer *t, int param, int value);
int sy_cutr_gradient_add(struct sy_trainer *t, int tensor, int value);
int sy_cutr_refuse(const struct sy_node *node, const char *why);

/* ---- operators ---- */

struct sy_cutr_operator {
    enum sy_op op;
    int (*forward)(struct sy_trainer *t, int node);
    int (*backward)(struct sy_trainer *t, int node, int gradient); /* of its first output */
};
const struct sy_cutr_operator *sy_cutr_operator_of(enum sy_op op); /* NULL: cannot be trained */
/* cuda_train_conv.c */
int sy_cutr_conv_forward(struct sy_trainer *t, int node);
int sy_cutr_conv_backward(struct sy_trainer *t, int node, int gradient);
int sy_cutr_linear_forward(struct sy_trainer *t, int node);
int sy_cutr_linear_backward(struct sy_trainer *t, int node, int gradient);
int sy_cutr_pool_forward(struct sy_trainer *t, int node);
int sy_cutr_pool_backward(struct sy_trainer *t, int node, int gradient);
/* Sum over all but the last dimension in memory, `columns` wide, as a contribution to `param`. */
int sy_cutr_bias_gradient(struct sy_trainer *t, const char *name, int param, int gradient,
                          int64_t columns);

/* ---- cuda_train_build.c ---- */
int sy_cutr_build(struct sy_trainer *t);

#endif
