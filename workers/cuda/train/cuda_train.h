/* The CUDA trainer inside: values, buffers, parameters, steps, and what the operators use to add them. No CUDA here: what is
 * computed goes through device_math.h.
 *
 *   graph tensor --value--> buffer: a stretch of the ephemeral or the persistent part, row-major or channels last
 *                 \-grad--> buffer
 *
 *   persistent   [weights w0 w1 ...][gradients g0 g1 ...][sums over phases][slot 0][slot 1][statistics][constants]
 *                 one order in each of the first five, the decayed in front: an optimizer is a flat loop over each of the two parts
 *   ephemeral    [batch, activations, gradients of activations: placed by lifetime][scratch]
 *   pinned host  [batch as it is filled in][loss, norms, fault][headers on their way]
 *
 * A job of bfloat16: weights are kept and changed in float32. Convolutions and products compute in bfloat16; activations, batch norms,
 * pools, residual sums and moves take what they are given and give the same; everything else takes and gives float32. A value's other forms
 * are made when somebody asks for them, once.
 *
 * G1 to G3 of workers/host/train/train_internal.h hold here too. Besides:
 *
 * H1: a step enqueues and returns. What is enqueued and not done is bounded (inflight.h): running a step may wait for an earlier one.
 * H2: the host reads what the device wrote in loss, count_correct, get_state and read_header only; these wait.
 * H3: the header is written in stream order: when it says GRADIENT, all updates before it are done. */
#ifndef SY_WORKERS_CUDA_TRAIN_CUDA_TRAIN_H
#define SY_WORKERS_CUDA_TRAIN_CUDA_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"
#include "runtime/device/cuda/inflight.h"
#include "workers/cuda/math/device_math_train.h"
#include "workers/engine/append.h"
#include "workers/engine/layer_node.h"
#include "workers/engine/train_rules.h"
#include "workers/engine/trainer.h"

#define SY_CUTR_ALIGN 256u
#define SY_CUTR_ARGS  SY_GENERIC_ARRAYS /* the most that a step has */
#define SY_CUTR_SLOTS 2
#define SY_CUTR_HEADERS \
    16u /* writes of an iteration, and of a start, are fewer than half of that */
#define SY_CUTR_HEADER_BYTES 64u
/* Places for a batch in the host's memory: one in use, two made ahead. */
#define SY_CUTR_BATCHES 3

_Static_assert((int)SY_CELL_ROLES <= SY_CUTR_ARGS, "a step has so many arguments");

/* Results for the host, in pinned memory. */
struct sy_cutr_news {
    double norm_square[2]; /* of even and odd iterations */
    struct sy_math_fault fault;
    float loss;
};

enum { SY_CUTR_TRAIN = 1, SY_CUTR_EVALUATE = 2, SY_CUTR_FORWARD = 3 };

struct sy_cutr_value {
    int buffer;
    uint64_t delta_bytes; /* into the buffer */
    bool last;            /* channels last */
    int form; /* a ring: the same elements in another layout or float type; alone: itself */
    enum sy_dtype dtype;
    int rank;
    int64_t dims[SY_MAX_RANK];
};

struct sy_cutr_buffer {
    uint64_t bytes, offset;
    int first, last; /* steps; ephemeral only. -1: never named */
    bool persistent;
};

enum sy_cutr_param_kind {
    SY_CUTR_TRAINED,
    SY_CUTR_STATISTIC, /* follows the batches */
    SY_CUTR_FIXED      /* a constant of the graph as it is */
};

struct sy_cutr_param {
    int tensor;
    enum sy_cutr_param_kind kind;
    int value, gradient; /* gradient, total: of what is trained; else -1 */
    int total;           /* summed over the phases of an iteration: what the update reads */
    int slots[SY_CUTR_SLOTS], n_slots;
    int n_contributions;
    int batch_statistic; /* the value that it follows; -1 */
    float keep;
};

struct sy_cutr_tensor {
    int value, gradient, param; /* -1: none */
    bool needs_gradient;        /* of a constant: it is trained */
};

struct sy_trainer;
struct sy_cutr_step;
typedef int (*sy_cutr_run)(struct sy_trainer *t, const struct sy_cutr_step *step);

struct sy_cutr_step {
    sy_cutr_run run;
    unsigned when;
    bool is_fetch;          /* of the batch, which the host may soon replace: not to be run twice */
    const char *name;       /* of the node, for errors */
    uint64_t cost_ns;       /* guess, for what is in flight */
    int args[SY_CUTR_ARGS]; /* values; -1: none */
    int n_args, n_results;  /* the last n_results are written */
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
        struct sy_math_curve curve;
        struct {
            struct sy_math_pair pair;
            int which;
        };
        struct sy_math_rows rows;
        struct sy_math_cell cell;
        struct sy_math_softmax softmax;
        struct sy_math_gather gather;
        struct sy_math_drop drop;
        struct sy_train_reduction reduction;
        struct sy_math_reduce reduce;
        struct sy_math_choice choice;
        struct {
            const struct sy_math_generic *formula; /* of the trainer's */
            bool copies_first;
        };
        const struct sy_math_attention_back *attention; /* of the node's */
        struct {
            int64_t n; /* elements; of a copy bytes */
            uint64_t first;
            float number;
            int param;
            struct sy_math_update update;
        };
    };
};

/* Per node, kept by forward for backward. */
struct sy_cutr_node {
    int source, moments, rate;                /* values; -1 */
    struct sy_math_attention_back *attention; /* owned */
    union {
        struct sy_math_conv conv;
        struct sy_math_pool pool;
    };
    int64_t pad_left[SY_MATH_SPATIAL]; /* conv: of the padded copy that it reads instead */
    bool padded;
    int saved[2][3]; /* recurrences, by direction: gates, h, c (LSTM) or what reset made (GRU) */
};

/* The parts that ranks share: a parameter, and the step after which its gradient (or statistic) is complete. */
struct sy_cutr_shared {
    int param, ready_step;
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
    struct sy_state_slot *states;
    int *train_steps, *evaluate_steps;
    int n_formulas;
    struct sy_math_generic **formulas;    /* owned */
    int labels, logits, loss_value, norm; /* values */
    int loss_step;                        /* what is in front of it is forward */
    int64_t n_outputs, n_positions; /* classes or values of one position; positions of the batch */
    uint64_t decayed_bytes;         /* of trained_bytes: those in front that weight decay is for */
    uint64_t trained_bytes, total_offset, slot_offset; /* of gradients that are summed, slots */
    uint64_t persistent_bytes, ephemeral_bytes, scratch_offset;
    uint64_t draw;    /* number of the batch since the beginning: dropout's counter */
    uint64_t n_norms; /* gradients whose norm is on its way or has come */
    unsigned char *persistent, *ephemeral; /* the device's view */
    const unsigned char *copy; /* of the persistent part, the host's view; NULL: there is none */
    unsigned char *host;       /* pinned: batches (inputs, labels), news, headers */
    unsigned char *batch;      /* the one in use, of SY_CUTR_BATCHES */
    uint64_t *host_inputs, host_labels; /* offsets in a batch */
    uint64_t batch_bytes, host_loss;    /* host_loss: offset in `host` */
    unsigned n_header_writes;
    struct sy_inflight inflight;
    int last_mark;                 /* slot waited for last; -1 */
    struct sy_cutr_shared *shared; /* cuda_train_shared.c */
    int n_shared, shared_by;
    bool loss_marked;
};

/* ---- cuda_train_values.c ---- */

int sy_cutr_dims(const struct sy_trainer *t, int tensor, int64_t *dims); /* returns the rank */
int64_t sy_cutr_count(const struct sy_cutr_value *value);
void sy_cutr_strides(const struct sy_cutr_value *value, int64_t *strides);
int sy_cutr_value_new(struct sy_trainer *t, int rank, const int64_t *dims, bool last,
                      bool persistent, int *out);
/* As sy_cutr_value_new, of any type; row-major unless `last`. */
int sy_cutr_value_typed(struct sy_trainer *t, enum sy_dtype dtype, int rank, const int64_t *dims,
                        bool last, bool persistent, int *out);
uint64_t sy_cutr_value_bytes(const struct sy_trainer *t, int value);
/* Part of a buffer, or all of it, under other dims, of the same type. */
int sy_cutr_view(struct sy_trainer *t, int value, int rank, const int64_t *dims, bool last,
                 uint64_t delta_bytes, int *out);
int sy_cutr_view_typed(struct sy_trainer *t, int value, enum sy_dtype dtype, int rank,
                       const int64_t *dims, bool last, uint64_t delta_bytes, int *out);
/* `value` in this layout, floats in float32: itself, an earlier form of it, or a new step. */
int sy_cutr_as(struct sy_trainer *t, unsigned when, int value, bool last, int *out);
/* Floats in `type`; NONE: as they are. */
int sy_cutr_as_typed(struct sy_trainer *t, unsigned when, int value, bool last, enum sy_dtype type,
                     int *out);
/* The type that products compute in. */
enum sy_dtype sy_cutr_product_type(const struct sy_trainer *t);
/* bfloat16 if all of them are, else float32. */
enum sy_dtype sy_cutr_common_type(const struct sy_trainer *t, const int *values, int n);
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

/* A chain whose dims and strides are given; `to` dense. */
int sy_cutr_strided_chain(struct sy_trainer *t, unsigned when, const char *name,
                          const struct sy_math_chain *chain, const int *inputs, int to);
int sy_cutr_fill(struct sy_trainer *t, unsigned when, const char *name, int value, float number);
/* to = the sum of `from`, seen as row-major dims, over those that are reduced. */
int sy_cutr_sum(struct sy_trainer *t, unsigned when, const char *name, int rank,
                const int64_t *dims, const bool *reduced, int from, int to);
int sy_cutr_refuse(const struct sy_node *node, const char *why);
/* The lifetime of each buffer: the first and last step that name it. */
void sy_cutr_find_lifetimes(struct sy_trainer *t);

/* ---- cuda_train_params.c: constants, operands, gradients ---- */

enum sy_cutr_layout { SY_CUTR_ANY, SY_CUTR_PLAIN, SY_CUTR_LAST };
/* A node's input: what was computed, a parameter, or a constant; in the layout that its first user wanted, or a copy. */
int sy_cutr_operand(struct sy_trainer *t, unsigned when, int tensor, enum sy_cutr_layout layout,
                    int *value);
/* Floats in `type`, NONE: as they are, instead of in float32. */
int sy_cutr_operand_typed(struct sy_trainer *t, unsigned when, int tensor,
                          enum sy_cutr_layout layout, enum sy_dtype type, int *value);
/* A running statistic of this many channels, which follows `batch`; *value. */
int sy_cutr_statistic(struct sy_trainer *t, int tensor, int64_t channels, int batch, float keep,
                      int *value);
/* A new value for a node's output. */
int sy_cutr_result(struct sy_trainer *t, int tensor, bool last, int *value);
int sy_cutr_result_typed(struct sy_trainer *t, int tensor, bool last, enum sy_dtype type,
                         int *value); /* NONE: the tensor's */
/* As what a product writes the tensor: as its readers want it. */
enum sy_dtype sy_cutr_wanted_type(const struct sy_trainer *t, int tensor);
bool sy_cutr_needs(const struct sy_trainer *t, int tensor);
/* Where a step may write a contribution to the tensor's gradient, in its dims; end behind the step, with it or any other value of so many
 * elements. */
int sy_cutr_diff_begin(struct sy_trainer *t, int tensor, bool last, int *value);
int sy_cutr_diff_begin_typed(struct sy_trainer *t, int tensor, bool last, enum sy_dtype type,
                             int *value);
int sy_cutr_diff_end(struct sy_trainer *t, int tensor, int value);
/* The gradient of an output, row-major, of the type it has. Only if it has one. */
int sy_cutr_diff_of(struct sy_trainer *t, int tensor, int *value);
/* `full`, of rank and dims, is the gradient of each time the tensor was repeated to those: sums and adds it. */
int sy_cutr_diff_reduction(struct sy_trainer *t, const char *name, int tensor, int rank,
                           const int64_t *dims, int full);
int64_t sy_cutr_elements(const struct sy_trainer *t, int tensor);

/* ---- operators ---- */

/* NULL: what it reads cannot be trained. */
const struct sy_gradient_steps *sy_cutr_gradient_of(enum sy_op op);
/* y = alpha a b + beta y, y += bias; args: a, b, bias or -1, y. Types, y's stride and alignment are filled in. */
int sy_cutr_add_product(struct sy_trainer *t, unsigned when, const char *name,
                        struct sy_math_matmul m, const int *args);
/* args: a, b, bias or -1, result; as struct sy_math_conv has them. */
int sy_cutr_add_conv(struct sy_trainer *t, unsigned when, const char *name,
                     const struct sy_math_conv *conv, const int *args);
/* cuda_train_conv.c, _matmul.c, _attention.c, _elementwise.c, _move.c, _rows.c */
#define SY_CUTR_OPERATOR(name)                                 \
    int sy_cutr_##name##_forward(struct sy_trainer *t, int n); \
    int sy_cutr_##name##_backward(struct sy_trainer *t, int n, int gradient)
SY_CUTR_OPERATOR(conv);
SY_CUTR_OPERATOR(deconv);
SY_CUTR_OPERATOR(pool);
SY_CUTR_OPERATOR(matmul);
SY_CUTR_OPERATOR(curve);
SY_CUTR_OPERATOR(pair);
SY_CUTR_OPERATOR(formula);
SY_CUTR_OPERATOR(pad);
int sy_cutr_compare_forward(struct sy_trainer *t, int n);
/* Operators that are constant or piecewise constant: gradients end there. */
int sy_cutr_no_backward(struct sy_trainer *t, int n, int gradient);
SY_CUTR_OPERATOR(where);
SY_CUTR_OPERATOR(cast);
SY_CUTR_OPERATOR(dropout);
SY_CUTR_OPERATOR(move);
SY_CUTR_OPERATOR(tile);
SY_CUTR_OPERATOR(gather);
SY_CUTR_OPERATOR(softmax);
SY_CUTR_OPERATOR(attention);
SY_CUTR_OPERATOR(rows);
SY_CUTR_OPERATOR(recurrent);
SY_CUTR_OPERATOR(reduce);
/* Rows of a Gather's table. */
int64_t sy_cutr_gather_extent(const struct sy_trainer *t, const struct sy_node *node);
/* Sum over all but the last dimension in memory, `columns` wide, as a contribution to the tensor's gradient. */
int sy_cutr_bias_gradient(struct sy_trainer *t, const char *name, int tensor, int gradient,
                          int64_t columns);

/* ---- cuda_train_recompute.c ---- */
/* Rewrites the steps so that activations are forgotten and made again; lifetimes follow. */
int sy_cutr_recompute(struct sy_trainer *t);

/* ---- cuda_train_optimizer.c ---- */
/* Sums over the phases of an iteration, and the gradient's norm: the last steps of the gradient phase. */
int sy_cutr_add_totals(struct sy_trainer *t);
bool sy_cutr_is_norm(const struct sy_cutr_step *step);
int sy_cutr_n_updates(const struct sy_trainer *t);
int sy_cutr_run_update(struct sy_trainer *t, int step, uint64_t iteration);
/* EARG if the norm of an iteration that has ended is not finite: then nothing was updated. */
int sy_cutr_check_norm(const struct sy_trainer *t, uint64_t n_ended);

/* ---- cuda_train_shared.c: what ranks share, as the trainer's table has it ---- */
/* The steps are in their last order. */
int sy_cutr_plan_shared(struct sy_trainer *t);
int sy_cutr_n_shared_parts(const struct sy_trainer *t);
void sy_cutr_shared_part(const struct sy_trainer *t, int index, struct sy_shared_part *out);
int sy_cutr_shared_by_step(const struct sy_trainer *t);

/* ---- cuda_train_flight.c ---- */
/* Runs fn with room for its cost in flight (H1). */
int sy_cutr_bounded(struct sy_trainer *t, uint64_t cost_ns, sy_cutr_run run,
                    const struct sy_cutr_step *step);

/* ---- cuda_train_build.c ---- */
int sy_cutr_build(struct sy_trainer *t);

#endif
