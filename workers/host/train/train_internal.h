/* The host trainer inside: values, buffers, steps, parameters, and what the operators use to add them.
 *
 *   graph tensor --value--> buffer (a stretch of the ephemeral or the persistent part)
 *                 \-grad--> buffer
 *
 * A value is a buffer seen through one oneDNN layout. Operators ask for a tensor in the layout they want
 * (sy_tr_as) and a reorder step appears if it is not there yet. Everything is decided at create: a step is a primitive
 * and its arguments, and running it allocates nothing.
 *
 * G1: a step of the gradient phase writes ephemeral buffers and gradients only.
 * G2: padding of a blocked layout is zero: oneDNN's primitives leave it so, and the flat loops here (sum,
 *     optimizers) map zeros to zeros.
 * G3: a buffer lives from the first to the last step that names it; buffers whose lives do not overlap may share bytes. */
#ifndef SY_WORKERS_HOST_TRAIN_TRAIN_INTERNAL_H
#define SY_WORKERS_HOST_TRAIN_TRAIN_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"
#include "workers/engine/append.h"
#include "workers/engine/layer_node.h"
#include "workers/engine/train_rules.h"
#include "workers/engine/trainer.h"
#include "workers/host/base/dnnl_compat.h"

#define SY_TR_ALIGN      64u
#define SY_TR_MAX_ARGS   12
#define SY_TR_MAX_SLOTS  2
#define SY_TR_MAX_VALUES 12

struct sy_tr_value {
    dnnl_memory_desc_t md;
    int buffer;
    int next_layout; /* the same elements in another layout, or -1 */
    dnnl_memory_t memory;
    float *data; /* since bind */
};

struct sy_tr_buffer {
    uint64_t bytes, offset;
    int first, last; /* steps; ephemeral only */
    bool persistent;
    const void *fixed; /* a constant of the graph that is not trained: its data; NULL otherwise */
};

enum sy_tr_step_kind {
    SY_TR_PRIMITIVE,
    SY_TR_SUM,  /* value[0] = value[1] + value[2], all in one layout */
    SY_TR_LOSS, /* value[0] = d loss / d value[1], labels value[2] */
    SY_TR_CALL  /* fn(trainer, step), with its own data */
};

enum { SY_TR_TRAIN = 1, SY_TR_EVALUATE = 2, SY_TR_FORWARD = 3 };

struct sy_tr_arg {
    int arg, value;
};

struct sy_tr_step;
typedef int sy_tr_fn(struct sy_trainer *t, const struct sy_tr_step *step);

struct sy_tr_step {
    enum sy_tr_step_kind kind;
    int node;                              /* node of the graph that it was added for; -1: none */
    bool is_backward;                      /* added behind the loss */
    bool is_copy;                          /* a copy of a step that owns primitive and data */
    unsigned when;                         /* SY_TR_TRAIN, SY_TR_EVALUATE or both */
    const char *name;                      /* name of the node, for errors */
    int n_values, value[SY_TR_MAX_VALUES]; /* not of primitives; the first n_results are written */
    int n_results;
    sy_tr_fn *fn;
    int n_pieces; /* calls of fn in a row, t->piece counts them: a pause may come in between; 0 is 1 */
    void *data; /* owned */
    dnnl_primitive_t primitive;
    int n_args;
    struct sy_tr_arg args[SY_TR_MAX_ARGS];
    dnnl_exec_arg_t exec[SY_TR_MAX_ARGS];
};

/* A constant of the graph that training changes. */
struct sy_tr_param {
    int tensor;
    dnnl_memory_desc_t plain; /* the graph's row-major data in oneDNN's dimensions */
    int value, gradient;      /* same layout; gradient -1: a running statistic */
    int total; /* the gradient that the update reads: summed over the phases of an iteration */
    int slots[SY_TR_MAX_SLOTS]; /* optimizer state, same layout */
    int n_slots;
    int n_contributions;
    int alias_of; /* the same data with another plain layout: a view of that parameter, remade by each forward pass; else -1 */
    int batch_statistic; /* running statistic: the value that it follows, else -1 */
    float keep;          /* and running = keep * running + (1 - keep) * batch */
};

struct sy_tr_tensor {
    int value, gradient;       /* -1: none */
    int param;                 /* -1: none */
    bool needs_gradient;       /* of a constant: it is trained */
    int n_consumers, consumer; /* the last consumer: a node; -1: the graph's output */
};

/* Results that forward keeps for backward, per node. */
struct sy_tr_node {
    dnnl_primitive_desc_t forward; /* hint of the backward primitives */
    int source, workspace, mean, variance;
    int weights, bias;        /* params, or -1 */
    bool masked_by_producer;  /* and whose backward pass the producer computes too */
    bool fused_into_producer; /* activation that the producer applies */
};

struct sy_tr_update {
    int param;
    uint64_t first, n; /* elements */
};

/* A value averaged over ranks: a parameter's gradient, or a batch statistic. */
struct sy_tr_shared {
    int value, ready_step;
    bool is_gradient;
};

/* One call: a piece of a step. */
struct sy_tr_turn {
    int step, piece;
};

struct sy_trainer {
    const struct sy_graph *graph;
    struct sy_train_options options;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* scratchpad in our memory */
    struct sy_tr_tensor *tensors;
    struct sy_tr_node *nodes;
    int n_values, n_buffers, n_steps, n_params, n_updates, n_states, n_train, n_evaluate;
    struct sy_tr_value *values;
    struct sy_tr_buffer *buffers;
    struct sy_tr_step *steps;
    struct sy_tr_param *params;
    struct sy_tr_update *updates;
    struct sy_state_slot *states;
    struct sy_tr_turn *train_steps, *evaluate_steps; /* steps in order of execution */
    int labels, logits;                              /* values */
    int64_t n_outputs, n_positions; /* classes or values of one position; positions of the batch */
    int piece;                      /* piece of the running step */
    int node;                       /* for which steps are being added */
    bool is_backward;               /* the loss is there */
    bool is_training;               /* the running step is one of the gradient phase */
    bool is_channels_last;          /* between convolutions: as SY_TRAIN_LAYOUT says */
    double norm_square;             /* of the gradient, since the end of the last phase */
    uint64_t draw;                  /* number of the batch since the beginning: dropout's counter */
    uint64_t persistent_bytes, ephemeral_bytes;
    double loss;
    struct sy_tr_shared *shared; /* train_shared.c */
    int n_shared, shared_by;
};

/* ---- train_util.c: memory descriptors and steps ------------------------------------------------ */

int sy_tr_check(dnnl_status_t status, const char *what, const char *name);
dnnl_memory_desc_t sy_tr_plain(int rank, const int64_t *dims);
dnnl_memory_desc_t sy_tr_any(int rank, const int64_t *dims);
/* In the type that products compute in: bfloat16 where the job wants it. */
dnnl_memory_desc_t sy_tr_any_product(const struct sy_trainer *t, int rank, const int64_t *dims);
/* Fixed dims of a tensor at the trainer's batch. */
int sy_tr_dims(const struct sy_trainer *t, int tensor, int64_t *dims);
int64_t sy_tr_elements(const dnnl_memory_desc_t *md); /* without padding */
/* Valid in the enclosing block. */
#define sy_tr_query(pd, what) dnnl_primitive_desc_query_md((pd), (what), 0)

int sy_tr_value_new(struct sy_trainer *t, const dnnl_memory_desc_t *md, bool persistent, int *out);
int sy_tr_value_view(struct sy_trainer *t, int value, const dnnl_memory_desc_t *md, int *out);
/* `value` in layout md: itself, an earlier reorder of it, or a new reorder step. */
int sy_tr_as(struct sy_trainer *t, unsigned when, int value, const dnnl_memory_desc_t *md,
             int *out);
int sy_tr_as_plain(struct sy_trainer *t, unsigned when, int value, int *out);
int sy_tr_add_primitive(struct sy_trainer *t, unsigned when, const char *name,
                        dnnl_primitive_desc_t pd, const struct sy_tr_arg *args, int n_args);
/* fn(trainer, step) with values (the first n_results are written) and data (malloc'd, owned in every case). */
int sy_tr_add_call(struct sy_trainer *t, unsigned when, sy_tr_fn *fn, int n_results, int n_values,
                   const int *values, void *data);
/* The i-th value's memory; NULL if it was left out (-1). */
void *sy_tr_at(const struct sy_trainer *t, const struct sy_tr_step *step, int i);
int sy_tr_add_kernel(struct sy_trainer *t, unsigned when, enum sy_tr_step_kind kind,
                     const char *name, int to, int a, int b);

/* ---- train_operand.c: tensors as row-major memory ------------------------------------------------ */

/* Bytes that no primitive interprets, for types other than float32. */
dnnl_memory_desc_t sy_tr_raw_md(const struct sy_trainer *t, int tensor);
/* Row-major: a result, a parameter, or a constant that is not trained; float32 unless the tensor is of another type. */
int sy_tr_operand(struct sy_trainer *t, unsigned when, int tensor, int *value);
/* A new row-major value for the tensor, which is a node's output. */
int sy_tr_result(struct sy_trainer *t, int tensor, int *value);
/* Buffer for a contribution to the tensor's gradient, row-major; end adds it. */
int sy_tr_diff_begin(struct sy_trainer *t, int tensor, int *value);
int sy_tr_diff_end(struct sy_trainer *t, int tensor, int value);
/* The gradient of the node's i-th output, row-major. Only if it has one. */
int sy_tr_diff_of(struct sy_trainer *t, int tensor, int *value);
bool sy_tr_needs(const struct sy_trainer *t, int tensor);
/* Dimensions at the trainer's batch, any type; the rank. */
int sy_tr_shape(const struct sy_trainer *t, int tensor, int64_t *dims);
int64_t sy_tr_count(const struct sy_trainer *t, int tensor); /* elements */
/* calloc, with the error text. */
int sy_tr_alloc(size_t bytes, void *out);

/* ---- train_params.c: parameters and gradients -------------------------------------------------- */

/* The gradient of a parameter that is another's alias, added to the other's. */
int sy_tr_param_join(struct sy_trainer *t, int alias);
/* The constant `tensor` as a parameter, stored in `layout` by its first user. *value is in `layout` either way. */
int sy_tr_param_use(struct sy_trainer *t, int tensor, const dnnl_memory_desc_t *plain,
                    const dnnl_memory_desc_t *layout, bool trained, int *param, int *value);
/* Buffer in which a primitive writes a contribution to the parameter's gradient; commit after its step. */
/* The parameter as its user with this plain layout knows it; -1: none. */
int sy_tr_param_find(const struct sy_trainer *t, int tensor, const dnnl_memory_desc_t *plain);
int sy_tr_param_gradient(struct sy_trainer *t, int param, const dnnl_memory_desc_t *md, int *value);
int sy_tr_param_commit(struct sy_trainer *t, int param, int value);
/* Adds a contribution to the gradient of a tensor. */
int sy_tr_gradient_add(struct sy_trainer *t, int tensor, int value);
int sy_tr_build(struct sy_trainer *t);
int sy_tr_refuse(const struct sy_node *node, const char *why);

/* ---- operators --------------------------------------------------------------------------------- */

/* NULL: no backward. train_operators.c */
const struct sy_gradient_steps *sy_tr_gradient_of(enum sy_op op);
int sy_tr_conv_forward(struct sy_trainer *t, int node);
int sy_tr_conv_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_linear_forward(struct sy_trainer *t, int node);
int sy_tr_linear_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_pool_forward(struct sy_trainer *t, int node);
int sy_tr_pool_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_norm_forward(struct sy_trainer *t, int node);
int sy_tr_norm_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_activation_forward(struct sy_trainer *t, int node);
int sy_tr_activation_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_unary_forward(struct sy_trainer *t, int node);
int sy_tr_unary_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_broadcast_forward(struct sy_trainer *t, int node);
int sy_tr_broadcast_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_where_forward(struct sy_trainer *t, int node);
int sy_tr_where_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_move_forward(struct sy_trainer *t, int node);
int sy_tr_move_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_gather_forward(struct sy_trainer *t, int node);
int sy_tr_gather_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_map_forward(struct sy_trainer *t, int node);
int sy_tr_map_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_softmax_forward(struct sy_trainer *t, int node);
int sy_tr_softmax_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_rows_forward(struct sy_trainer *t, int node);
int sy_tr_rows_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_reduce_forward(struct sy_trainer *t, int node);
int sy_tr_reduce_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_matmul_forward(struct sy_trainer *t, int node);
int sy_tr_matmul_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_dropout_forward(struct sy_trainer *t, int node);
int sy_tr_dropout_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_cast_forward(struct sy_trainer *t, int node);
int sy_tr_cast_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_recurrent_forward(struct sy_trainer *t, int node);
int sy_tr_recurrent_backward(struct sy_trainer *t, int node, int gradient);
int sy_tr_deconv_forward(struct sy_trainer *t, int node);
int sy_tr_deconv_backward(struct sy_trainer *t, int node, int gradient);
/* Nodes without a gradient run by the inference engine's kernel of the operator. */
int sy_tr_plain_forward(struct sy_trainer *t, int node);
int sy_tr_no_backward(struct sy_trainer *t, int node, int gradient);
/* The attributes of a convolution or linear layer, with the activation behind it fused where it can be; owned by the caller. */
int sy_tr_fused_attr(struct sy_trainer *t, int node, dnnl_primitive_attr_t *out);

/* Kernel, stride, padding of a convolution or pool, for oneDNN. */
struct sy_tr_window {
    int n; /* spatial dimensions */
    dnnl_dims_t kernel, stride, dilation, before, after;
};
int sy_tr_window(const struct sy_trainer *t, const struct sy_node *node, const int64_t *kernel,
                 struct sy_tr_window *out);

/* ---- train_kernels.c: own loops ---------------------------------------------------------------- */

void sy_tr_kernel_sum(float *to, const float *a, const float *b, uint64_t n);
void sy_tr_kernel_sum_bf16(uint16_t *to, const uint16_t *a, const uint16_t *b, uint64_t n);
int sy_tr_kernel_loss(struct sy_trainer *t, const struct sy_tr_step *step);
/* ---- train_recompute.c --------------------------------------------------------------------------- */

/* Rewrites the steps so that activations are dropped and recomputed; updates lifetimes. */
int sy_tr_recompute(struct sy_trainer *t);

/* ---- train_optimizer.c: what follows backward ---------------------------------------------------- */

/* Sums over the phases of an iteration, and the gradient's norm: the last steps of the gradient phase. */
int sy_tr_add_totals(struct sy_trainer *t);
bool sy_tr_is_norm(const struct sy_tr_step *step);
int64_t sy_tr_kernel_correct(const struct sy_trainer *t, int64_t rows);
void sy_tr_kernel_update(struct sy_trainer *t, const struct sy_tr_update *update,
                         uint64_t iteration);

/* ---- train_shared.c: what ranks share ------------------------------------------------------------- */

/* Parts that ranks share, from the finished plan. */
int sy_tr_plan_shared(struct sy_trainer *t);
int sy_tr_n_shared_parts(const struct sy_trainer *t);
void sy_tr_shared_part(const struct sy_trainer *t, int index, struct sy_shared_part *out);
int sy_tr_shared_by_step(const struct sy_trainer *t);

/* ---- train_plan.c: where buffers lie ----------------------------------------------------------- */

/* Lifetimes, offsets, oneDNN memory objects; the trainer is complete afterwards. */
int sy_tr_finish_plan(struct sy_trainer *t);

#endif
