/* The CUDA engine's program inside: values, steps, and what the operators use to add them. No CUDA here: what is computed goes
 * through device_math.h.
 *
 *   graph tensor ──> value (bytes on the device, row-major or channels last)
 *   layer        ──> steps: calls of the math table over values, added when the program is made
 *
 * The rules P1 to P10 of workers/host/program/README.md hold here too. Besides:
 *
 * E1: program_run enqueues and returns; nothing on the host reads what the device writes before the stream was synchronised. The steps that
 *     wait for the device in between are If and Loop (cuda_op_control.c) and those of the host engine (host_ops.c): what decides how often, and
 *     on how much, something is run. Where a fault was found by then, they do nothing: program_finish will say it.
 * E2: graph inputs are copied to the workspace in the first layer, one copy a tensor; outputs leave in the layer that makes them.
 * E3: every constant that a step reads is a parameter, integers too: what the device reads has travelled with its group.
 * E4: how large a workspace is depends on graph and batch size alone, not on which algorithms were fast.
 * E5: in a graph of precision bf16 or f16 the value of a float32 tensor may lie as that: its dtype says so (P12). Readers ask for a form;
 *     a form that is not there is made once. Of parameters only those that sy_cuda_packs_narrow names lie so. */
#ifndef SY_WORKERS_CUDA_PROGRAM_CUDA_PROGRAM_H
#define SY_WORKERS_CUDA_PROGRAM_CUDA_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/engine.h"
#include "workers/cuda/math/device_math_library.h"
#include "workers/cuda/math/device_math_train.h"
#include "workers/engine/append.h"
#include "workers/engine/keeps_precision.h"
#include "workers/engine/layer_node.h"
#include "workers/engine/recurrent_node.h"

#define SY_CUDA_STEP_ARGS   6
#define SY_CUDA_MATMUL_RANK 3 /* of the loops around one strided product */
#define SY_CUDA_FORMS       4 /* row-major or channels last, as the tensor's type or narrow */

enum sy_cuda_place { SY_CUDA_WORKSPACE, SY_CUDA_PARAMS, SY_CUDA_CAPTURED /* of a body's caller */ };

struct sy_cuda_value {
    enum sy_cuda_place place;
    int layer;       /* PARAMS; CAPTURED: which of the graph's inputs */
    uint64_t offset; /* in the workspace (once planned) or in the layer's parameters */
    uint64_t bytes;
    int root;        /* itself, or the value whose bytes these are */
    int first, last; /* layers; of a root: of all its aliases */
    bool channels_last;
    enum sy_dtype dtype;
    int rank;
    int64_t dims[SY_MAX_RANK];
};

/* Products that one strided call cannot walk: loops around it, offsets in elements. */
struct sy_cuda_loops {
    int rank;
    int64_t dims[SY_CUDA_MATMUL_RANK];
    int64_t strides[3][SY_CUDA_MATMUL_RANK]; /* a, b, y */
};

/* One direction of a recurrence; the first eight values are the node's inputs. */
enum sy_cuda_cell_value {
    SY_CUDA_CELL_X,
    SY_CUDA_CELL_W,
    SY_CUDA_CELL_R,
    SY_CUDA_CELL_BIAS,
    SY_CUDA_CELL_LENGTHS,
    SY_CUDA_CELL_H0,
    SY_CUDA_CELL_C0,
    SY_CUDA_CELL_PEEPHOLES,
    SY_CUDA_CELL_Y,
    SY_CUDA_CELL_YH,
    SY_CUDA_CELL_YC,
    SY_CUDA_CELL_GATES,
    SY_CUDA_CELL_ROOM,
    SY_CUDA_CELL_VALUES
};

struct sy_cuda_cells {
    struct sy_recurrent_node of;
    int direction;
    int library;                     /* the step in front that may do it all; -1: none */
    int values[SY_CUDA_CELL_VALUES]; /* -1: none */
};

/* A step by formula. */
struct sy_cuda_formula {
    struct sy_math_generic of;
    int values[SY_GENERIC_ARRAYS]; /* -1: none */
    bool copies_first;
};

/* Values: q, k, v, the result, masks. */
struct sy_cuda_attention {
    struct sy_math_attention of;
    int values[4 + SY_ATTENTION_MASKS]; /* -1: none */
};

struct sy_cuda_step;
typedef int (*sy_cuda_step_run)(struct sy_program *program, const struct sy_cuda_step *step);

struct sy_cuda_step {
    sy_cuda_step_run run;
    const struct sy_node *node;
    bool on_host_memory;         /* E2: reads or writes what the host has: never part of a graph */
    int args[SY_CUDA_STEP_ARGS]; /* values; -1: none */
    int layer;                   /* of a step of the host engine's */
    void *
        state; /* the operator's own: control flow (cuda_op_control.c), the host engine (host_ops.c) */
    void (*destroy)(const struct sy_program *program, void *state); /* NULL: there is no state */
    struct sy_cuda_formula *formula;                                /* owned */
    struct sy_cuda_attention *attention;                            /* owned */
    struct sy_math_plan *plan;
    enum { SY_CUDA_NO_PLAN, SY_CUDA_CONV_PLAN, SY_CUDA_MATMUL_PLAN } plan_kind;
    /* Steps that a library may compute: cuda_candidates.h. n_compared: steps from this one on that are compared with it. */
    enum { SY_CUDA_NO_CANDIDATE, SY_CUDA_POOL, SY_CUDA_RECURRENCE } candidate;
    int n_compared;
    struct sy_math_library_plan *by_library; /* it does; NULL: our own kernels do */
    union {
        struct sy_math_conv conv;
        struct {
            struct sy_math_matmul matmul;
            struct sy_cuda_loops loops;
            struct sy_cuda_cells cells;
            struct sy_math_recurrence recurrence;
        };
        struct sy_math_pool pool;
        struct sy_math_chain chain;
        struct sy_math_choice choice;
        struct sy_math_move move;
        struct sy_math_gather gather;
        struct sy_math_softmax softmax;
        struct sy_math_layer_norm layer_norm;
        struct sy_math_reduce reduce;
        struct sy_math_curve curve;
        struct sy_math_pair pair;
        struct sy_math_rows rows;
        struct sy_train_reduction reduction;
        struct {
            int64_t n;
            float value;
        } fill;
        uint64_t zero_bytes;
        struct {
            enum sy_dtype from, to;
            int64_t n;
        } cast;
        struct {
            int tensor; /* graph input or output */
            uint64_t bytes;
            const void *constant; /* output that is a constant */
        } host;
    };
};

struct sy_program {
    const struct sy_cuda_builders *builders; /* borrowed, static */
    const struct sy_graph *graph;
    const struct sy_layer *layers;
    int n_layers;
    int64_t batch;
    uint64_t id; /* of this program, never used again */
    int n_values;
    struct sy_cuda_value *values;
    int *native;                 /* per tensor: its value as it was made; -1 */
    int (*forms)[SY_CUDA_FORMS]; /* per tensor: what was made of that for readers, by form_of; -1 */
    enum sy_dtype narrow;        /* E5: BF16, F16; NONE in a graph of float32 */
    unsigned char *wants;        /* E5: per tensor, what its readers ask for */
    int *last_use;               /* per tensor: last layer that reads it */
    int n_steps;
    struct sy_cuda_step *steps;
    int *layer_steps; /* first step of each layer, n_layers + 1 entries */
    uint64_t workspace_bytes, scratch_offset;
    bool has_plans;
    bool host_ops; /* what the engine lacks the host engine computes: the package was made so */
    int layer;     /* being built */
    const bool
        *captured; /* of a body: per input, whether it is read where it lies; NULL: no body */
    const struct sy_math_ops *ops;
    struct sy_math *math;             /* NULL on trial */
    struct sy_math_fault *fault;      /* NULL: no step can have one */
    const struct sy_binding *binding; /* of the call that is on */
};

/* ---- values ---- */
int sy_cuda_new_value(struct sy_program *p, enum sy_dtype dtype, int rank, const int64_t *dims,
                      bool channels_last, int *out);
/* Bytes in the workspace for the tensor. channels_last: only with 3 to 5 dimensions. */
int sy_cuda_new_of(struct sy_program *p, int tensor, bool channels_last, int *out);
int sy_cuda_new_as(struct sy_program *p, int tensor, enum sy_dtype dtype, bool channels_last,
                   int *out);
/* Another view of `value`'s bytes: the tensor's dims; narrow if the value is. */
int sy_cuda_new_alias(struct sy_program *p, int value, int tensor, bool channels_last, int *out);
/* `value` becomes a view of the bytes of `of`. */
void sy_cuda_share_bytes(struct sy_program *p, int value, int of);
/* The bytes of a row-major float32 value under other dims of as many elements. */
int sy_cuda_seen_as(struct sy_program *p, int value, const int64_t *dims, int rank, int *out);
bool sy_cuda_is_param(const struct sy_program *p, int input);
void *sy_cuda_pointer(const struct sy_program *p, int value); /* during a run; -1: NULL */
void sy_cuda_touch(struct sy_program *p, int value);
void sy_cuda_strides(const struct sy_cuda_value *value, int64_t *strides);
/* Strides in elements of a dense array, row-major or with its dimension 1 (channels) last. */
void sy_cuda_dense_strides(int rank, const int64_t *dims, bool channels_last, int64_t *strides);
int64_t sy_cuda_count(const struct sy_cuda_value *value); /* elements */

/* Node input `input` of the layer being built. Where it is not what is asked for, a step that makes it so is added. */
int sy_cuda_input(struct sy_program *p, int input, int *out);       /* as it is */
int sy_cuda_input_rows(struct sy_program *p, int input, int *out);  /* row-major, perhaps narrow */
int sy_cuda_input_wide(struct sy_program *p, int input, int *out);  /* any layout, not narrow */
int sy_cuda_input_plain(struct sy_program *p, int input, int *out); /* row-major, not narrow */
/* narrow: of a float32 tensor, in a graph that has a narrow type. */
int sy_cuda_input_as(struct sy_program *p, int input, bool channels_last, bool narrow, int *out);
/* A fresh value for node output `output`, set: of the tensor's type; of another. */
int sy_cuda_output(struct sy_program *p, int output, bool channels_last, int *out);
int sy_cuda_output_as(struct sy_program *p, int output, enum sy_dtype dtype, bool channels_last,
                      int *out);
void sy_cuda_set_output(struct sy_program *p, int output, int value);
/* As `dtype` over the bytes of `value` (input `input`, of the output's shape) if they are that and nobody needs them any more, else fresh;
 * the same layout. */
int sy_cuda_output_over(struct sy_program *p, int input, int value, enum sy_dtype dtype, int *out);
bool sy_cuda_is_last_use(const struct sy_program *p, int input, int value);

const struct sy_node *sy_cuda_node(const struct sy_program *p);
const struct sy_tensor *sy_cuda_input_tensor(const struct sy_program *p, int input);
void sy_cuda_dims(const struct sy_program *p, int tensor, int64_t *dims); /* at the batch size */

/* ---- parameters, cuda_layout.c ---- */
enum sy_cuda_layout { SY_CUDA_AS_IS, SY_CUDA_KERNEL_LAST /* conv weights: [out, kernel, in] */ };
#define SY_CUDA_NARROW 2u /* added to a layout: of the graph's narrow type */
/* The layout of parameter `input`, narrowness included. */
uint32_t sy_cuda_layout_of(const struct sy_graph *graph, const struct sy_node *node, int input);
/* Import: the layer's parameters; after a failure too they are the caller's. Then their bytes, layer->bytes in all. */
int sy_cuda_lay_out_params(const struct sy_graph *graph, struct sy_layer *layer);
int sy_cuda_pack_params(const struct sy_graph *graph, const struct sy_layer *layer, void *to);
/* Whether the right side of a product, a constant matrix, is packed as [k, n]. */
bool sy_cuda_packs_product(const struct sy_graph *graph, const struct sy_node *node);

/* ---- narrow values (E5), cuda_narrow.c ---- */
/* Whether constant `input` of the node is packed narrow; looks at no data. */
bool sy_cuda_packs_narrow(const struct sy_graph *graph, const struct sy_node *node, int input);
/* n floats to the graph's narrow type. EUNSUPPORTED, naming the node, if one becomes infinite by it. */
int sy_cuda_pack_narrow(const struct sy_graph *graph, const struct sy_node *node,
                        const float *floats, size_t n, uint16_t *out);
/* Whether the layer, a convolution or a product, multiplies narrow numbers. */
bool sy_cuda_multiplies_narrow(const struct sy_program *p, const struct sy_layer *layer);
void sy_cuda_plan_narrow(struct sy_program *p); /* fills p->wants */
/* The best type of output `output` of the layer being built: narrow if all readers want it so, else the tensor's type. */
enum sy_dtype sy_cuda_wanted(const struct sy_program *p, int output);

/* ---- steps ---- */
/* Runs the steps [first, end), one after another. */
int sy_cuda_program_steps(struct sy_program *program, int first, int end);
/* Valid until the next one is added. Values are touched; -1: none. */
int sy_cuda_add_step(struct sy_program *p, sy_cuda_step_run run, const int *values, int n,
                     struct sy_cuda_step **out);
int sy_cuda_add_move(struct sy_program *p, const struct sy_math_move *move, int from, int to);
/* All elements of `from` to `to`, of equal dims, from layout to layout, and to another float type. */
int sy_cuda_add_reorder(struct sy_program *p, int from, int to);
int sy_cuda_add_chain(struct sy_program *p, struct sy_math_chain *chain, const int *inputs,
                      int out);
/* `from` broadcast to the shape of `to`, of any type. */
int sy_cuda_add_expand(struct sy_program *p, int from, int to);
/* Numpy's rule: strides of `in` seen with the dims of `out`, 0 where it is repeated. EUNSUPPORTED names the node. */
int sy_cuda_broadcast(const struct sy_program *p, int in, int out, int64_t *strides);
void sy_cuda_chain_add(struct sy_math_chain *chain, enum sy_math_chain_code code, int input,
                       float alpha, float beta);
/* The node's fused activation. */
void sy_cuda_chain_activation(struct sy_math_chain *chain, const struct sy_node *node);

/* Sorts dimensions by stride (of the first array) and joins those that can be walked as one, for all arrays at once; dimensions of 1 go.
 * Returns the new rank; at least 1 (an array of one dimension 1) if `rank` was. Pure. */
int sy_cuda_collapse(int rank, int64_t *dims, int64_t *const *strides, int n_arrays);

/* ---- program ---- */
int sy_cuda_program_create(const struct sy_cuda_builders *builders, const struct sy_math_ops *ops,
                           struct sy_math *math, const struct sy_graph *graph,
                           const struct sy_layer *layers, int n_layers, int64_t batch,
                           struct sy_program **out);
/* A body (cuda_body.h): inputs and outputs are on the device, those inputs that are `captured`, borrowed, are read where they lie. */
int sy_cuda_program_create_body(const struct sy_program *outer, const struct sy_graph *graph,
                                const struct sy_layer *layers, const bool *captured,
                                struct sy_program **out);
/* Import: the layer's parameters as this engine lays them out, without the host engine. After a failure too they are the caller's.
 * EUNSUPPORTED: the layer's steps cannot be made; they are made once, for batch size 1 and without plans, and dropped. */
int sy_cuda_layout_own(const struct sy_cuda_builders *builders, const struct sy_graph *graph,
                       struct sy_layer *layer);
void sy_cuda_program_destroy(struct sy_program *program); /* NULL is fine */
/* After the stream was synchronised: whether the device met an index or a size outside its bounds. */
bool sy_cuda_program_has_fault(const struct sy_program *program);

/* ---- operators: each adds the steps of one node ---- */
struct sy_cuda_op {
    SY_OPS_FIELDS;
    int (*build)(struct sy_program *p);
};
/* Makes the steps of a layer: by its operator, else by formula, else by the host engine. Programs know operators by this table only, since operators
 * make programs of their bodies. cuda_engine.c has it. */
struct sy_cuda_builders {
    const struct sy_cuda_op *(*find)(enum sy_op op); /* NULL: it has no steps of its own */
    int (*by_formula)(struct sy_program *p);
    bool (*host_is_there)(void);
    bool (*host_has)(const struct sy_layer *layer); /* import gave the layer to the host engine */
    int (*by_host)(struct sy_program *p);
};
const struct sy_cuda_op *sy_cuda_op_find(enum sy_op op);
/* The layer by formula (cuda_op_generic.c). */
int sy_cuda_formula_build(struct sy_program *p);
/* In parts: with the layer's inputs and outputs as values and arrays (the caller frees it); as a step, which takes it, whatever happens. */
int sy_cuda_formula_open(struct sy_program *p, struct sy_cuda_formula **out);
int sy_cuda_formula_add(struct sy_program *p, struct sy_cuda_formula *each);
extern const struct sy_cuda_op sy_cuda_ops_conv[], sy_cuda_ops_matmul[], sy_cuda_ops_pool[],
    sy_cuda_ops_eltwise[], sy_cuda_ops_norm[], sy_cuda_ops_recurrent[], sy_cuda_ops_more[],
    sy_cuda_ops_deconv[], sy_cuda_ops_movement[], sy_cuda_ops_lists[], sy_cuda_ops_attention[],
    sy_cuda_ops_control[]; /* each ends with build NULL */

#endif
