/* A model as a graph: tensors, nodes in execution order, shapes with a symbolic batch and open sizes.
 *
 * A dimension is `fixed + per_batch * N`, N the batch size, or an expression (size_expr.h) over N and the graph's symbols: the other
 * sizes that a request may choose. Shapes are resolved at import; sy_graph_bind (graph_bind.h) replaces the symbols by numbers.
 * Engines only get bound graphs, in which N is the only unknown. */
#ifndef SY_LOADER_GRAPH_GRAPH_H
#define SY_LOADER_GRAPH_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/graph/op_table.h"

#define SY_MAX_RANK    8
#define SY_MAX_SYMBOLS 16  /* of a graph: a sequence input uses two or three */
#define SY_MAX_ENDS    256 /* inputs, or outputs, of a model */
/* Total iterations of a run's loops: an endless loop is an error, not a hang. */
#define SY_LOOP_MOST_TRIPS (1 << 24)

/* X(name, ONNX TensorProto.DataType value, bytes, KServe v2 name, numpy descr) */
#define SY_DTYPE_TABLE(X)          \
    X(F32, 1, 4, "FP32", "<f4")    \
    X(U8, 2, 1, "UINT8", "|u1")    \
    X(I8, 3, 1, "INT8", "|i1")     \
    X(U16, 4, 2, "UINT16", "<u2")  \
    X(I16, 5, 2, "INT16", "<i2")   \
    X(I32, 6, 4, "INT32", "<i4")   \
    X(I64, 7, 8, "INT64", "<i8")   \
    X(BOOL, 9, 1, "BOOL", "|b1")   \
    X(F16, 10, 2, "FP16", "<f2")   \
    X(F64, 11, 8, "FP64", "<f8")   \
    X(U32, 12, 4, "UINT32", "<u4") \
    X(U64, 13, 8, "UINT64", "<u8") \
    X(BF16, 16, 2, "BF16", "<V2")

enum sy_dtype {
    SY_DTYPE_NONE = 0,
#define X(name, value, bytes, wire, npy) SY_DTYPE_##name = value,
    SY_DTYPE_TABLE(X)
#undef X
        SY_DTYPE_STRING =
            8, /* "BYTES"; not in the table: its elements are not all of a tensor (string_tensor.h) */
};

size_t sy_dtype_bytes(enum sy_dtype dtype);              /* 0 for unknown; of a string: its entry */
const char *sy_dtype_wire_name(enum sy_dtype dtype);     /* "FP32" */
enum sy_dtype sy_dtype_from_wire_name(const char *name); /* NONE if unknown */

/* An expression is named by its `per_batch` (sy_dim_is_expr, size_expr.h), far below any number of a model; `fixed` is 0 then. */
struct sy_dim {
    int64_t fixed, per_batch;
};
#define SY_DIM_EXPR_END (INT64_MIN + INT64_C(0x7fffffff))

static inline bool sy_dim_is_expr(struct sy_dim dim)
{
    return dim.per_batch < SY_DIM_EXPR_END;
}

/* True for a size known at import. */
static inline bool sy_dim_is_number(struct sy_dim dim)
{
    return dim.per_batch == 0;
}

struct sy_shape {
    int rank;
    struct sy_dim dims[SY_MAX_RANK];
};

int64_t sy_dim_at(struct sy_dim dim, int64_t batch); /* no expression */
/* Elements of the shape at this batch size; -1 on overflow, a negative dimension, or an expression. */
int64_t sy_shape_elements(const struct sy_shape *shape, int64_t batch);
bool sy_shape_is_open(const struct sy_shape *shape); /* has an expression */
bool sy_shape_equal(const struct sy_shape *a, const struct sy_shape *b);
/* "[N, 3, 224, 224]" */
const char *sy_shape_text(const struct sy_shape *shape, char *buffer, size_t bytes);

/* Operators after reading and fusion (op_table.h). */
enum sy_op {
#define X(id, ...) SY_OP_##id,
    SY_OP_TABLE(X)
#undef X
        SY_OP_COUNT
};

/* How an operator is computed at import where its inputs are known. */
enum sy_fold_rule { SY_FOLD_NONE, SY_FOLD_ELEMENTS, SY_FOLD_VIEW, SY_FOLD_REDUCE, SY_FOLD_OWN };

/* Whether an operator takes and gives a narrow type: never; always; where both inputs have one shape. */
enum sy_narrow_rule { SY_NARROW_NEVER, SY_NARROW_ALWAYS, SY_NARROW_ALIKE };

/* Families of operators whose gradients are computed alike; each trainer has a pair of functions a family. */
enum sy_gradient {
    SY_GRADIENT_NONE,
    SY_GRADIENT_CONV,
    SY_GRADIENT_BATCH_NORM,
    SY_GRADIENT_ACTIVATION,
    SY_GRADIENT_CURVE,
    SY_GRADIENT_CHAIN,
    SY_GRADIENT_PAIR,
    SY_GRADIENT_ADD,
    SY_GRADIENT_POOL,
    SY_GRADIENT_PRODUCT,
    SY_GRADIENT_SOFTMAX,
    SY_GRADIENT_ROWS,
    SY_GRADIENT_REDUCE,
    SY_GRADIENT_GATHER,
    SY_GRADIENT_MOVE,
    SY_GRADIENT_VIEW,
    SY_GRADIENT_IDENTITY,
    SY_GRADIENT_DROPOUT,
    SY_GRADIENT_CAST,
    SY_GRADIENT_PAD,
    SY_GRADIENT_WHERE,
    SY_GRADIENT_COMPARE,
    SY_GRADIENT_ATTENTION,
    SY_GRADIENT_STEP, /* no gradient flows through it */
    SY_GRADIENT_TILE,
    SY_GRADIENT_TRIANGLE,
    SY_GRADIENT_BLOCKS,
    SY_GRADIENT_DECONV,
    SY_GRADIENT_RECURRENT,
    SY_GRADIENT_COUNT
};

/* A row of SY_OP_TABLE, without its functions. */
struct sy_op_facts {
    const char *name;
    enum sy_fold_rule fold;
    enum sy_narrow_rule narrow;
    enum sy_gradient gradient;
    int least_inputs, most_inputs, most_outputs;
    const char *attributes; /* NULL: not checked */
};
const struct sy_op_facts *sy_op_facts(enum sy_op op); /* op < SY_OP_COUNT */
const char *sy_op_name(enum sy_op op);
int sy_op_from_name(const char *onnx_name, enum sy_op *out); /* EUNSUPPORTED names it */

enum sy_attr_kind {
    SY_ATTR_INT,
    SY_ATTR_FLOAT,
    SY_ATTR_INTS,
    SY_ATTR_FLOATS,
    SY_ATTR_STRING,
    SY_ATTR_TENSOR,
    SY_ATTR_GRAPH,
    SY_ATTR_SIZES, /* numbers that depend on the graph's symbols: INTS once it is bound */
    SY_ATTR_STRINGS
};

struct sy_attr {
    char *name;
    enum sy_attr_kind kind;
    int64_t i;
    float f;
    /* STRINGS: one behind the other, each ended by a zero; string i begins at ints[i], of n + 1 */
    char *s;
    int n; /* of ints, floats, sizes or strings */
    int64_t *ints;
    float *floats;
    struct sy_dim *sizes;
    int tensor; /* ATTR_TENSOR: index of a constant tensor of the graph */
    /* ATTR_GRAPH: a body, owned. Its inputs are the last of the node's (G10) */
    struct sy_graph *graph;
};

struct sy_tensor {
    char *name;
    enum sy_dtype dtype;
    struct sy_shape shape;
    void *data; /* constant: its elements, owned, plain row-major; NULL otherwise */
    size_t data_bytes;
    bool is_borrowed; /* a constant whose data is not the graph's to free */
    unsigned char
        small_type; /* 0, or the file's type of what lies here in a wider one (small_types.h) */
    /* a constant that is no parameter of the file: a Constant node's, or computed at import */
    bool is_derived;
};

/* Fused to a CONV, GEMM or MATMUL, in this order: + residual, then activation. */
enum sy_activation {
    SY_ACT_NONE,
    SY_ACT_RELU,
    SY_ACT_GELU_ERF,
    SY_ACT_TANH,
    SY_ACT_SIGMOID,
    SY_ACT_CLIP,
    /* these two by sy_graph_fuse only: */
    SY_ACT_SWISH,
    SY_ACT_HARD_SWISH
};

struct sy_node {
    enum sy_op op;
    int opset;
    char *name;
    int n_inputs, *inputs; /* tensor indices; -1: optional input left out */
    int n_outputs, *outputs;
    int n_attrs;
    struct sy_attr *attrs;
    /* fused: */
    enum sy_activation activation;
    float act_alpha, act_beta; /* CLIP: lower, upper; SWISH: alpha */
    int bias_input; /* index into inputs of the bias, or -1 (CONV: 2; fused MATMUL: where it was put) */
    int residual_input; /* index into inputs of the summed residual, or -1 */
};

/* What an engine may compute with instead of float32, where it gains by it: float32 tensors keep their type, and only multiplied
 * numbers are rounded; sums and normalisations stay float32. */
enum sy_precision { SY_PRECISION_F32, SY_PRECISION_BF16, SY_PRECISION_F16 };

const char *sy_precision_name(enum sy_precision precision);           /* "f32", "bf16", "f16" */
int sy_precision_from_name(const char *name, enum sy_precision *out); /* EARG names it */

/* A size of the inputs, other than N, that each request may choose. */
struct sy_symbol {
    char *name; /* of the file, or INPUT.INDEX; unique in the graph */
    /* what the model is laid out for, profiled with and shown with: a typical one that the model allows */
    int64_t usual;
};

/* A number for each of a graph's symbols, in their order; the rest is ignored. */
struct sy_sizes {
    int64_t of[SY_MAX_SYMBOLS];
};

/* A condition on open sizes that the model needs and that not all sizes meet: two tensors that are added have the same length. */
struct sy_condition {
    struct sy_dim left, right;
    bool at_most; /* left <= right; else left == right */
    char *where;  /* the node, for error texts */
};

/* Why inference put a node off to the run (explain.h). Texts may be "". */
struct sy_run_reason {
    char *result; /* the node's first result */
    char *why;    /* names the node */
    char *input;  /* the tensor that decides on the size */
    char *maker;  /* "made by node ...", or what else it is */
};

struct sy_graph {
    char *name;
    char *batch_name; /* of N in the file, or INPUT.INDEX; NULL: none. From reading to inference */
    enum sy_precision precision;
    int n_symbols; /* 0: all sizes but N are known */
    struct sy_symbol *symbols;
    int n_conditions;
    struct sy_condition *conditions;
    int n_reasons; /* from inference on; packages do not keep them */
    struct sy_run_reason *reasons;
    /* bound graphs with strings: what a run has for them (string_tensor.h) */
    uint64_t string_bytes;
    /* constants' data belongs to the graph that this one was bound from (graph_bind.h) */
    bool borrows_data;
    int n_tensors;
    struct sy_tensor *tensors;
    int n_nodes;
    struct sy_node *nodes; /* in execution order */
    int n_inputs, *inputs; /* tensor indices, initializers excluded */
    int n_outputs, *outputs;
};

/* ---- outputs whose size only a run knows ----
 * Results of an AT_RUN node: their tensors' shapes say how many elements there is room for. In a binding, and wherever outputs lie,
 * the elements of the run come first, and at the end of the room 1 + SY_MAX_RANK int64: the run's rank and dimensions. Where no bound can be
 * told of a result, its room grows with a size of the graph that no input has: a run whose result is larger says SY_NEEDS_ROOM for its rank, and
 * the bytes that it needs for its first dimension; nothing of the result is there. */
#define SY_NEEDS_ROOM (-1)
/* Bytes of the rank and the dimensions. */
#define SY_SIZED_DYNAMIC_BYTES ((1 + SY_MAX_RANK) * sizeof(int64_t))
/* Index of that size among the graph's symbols; -1: it has none. */
int sy_graph_room_size(const struct sy_graph *graph);
/* Doubles that size until the room for the result grows from `has` bytes to `needs`. False: the result has no such size, or the room cannot grow. */
bool sy_graph_grow_room(const struct sy_graph *graph, uint64_t has, uint64_t needs,
                        struct sy_sizes *sizes);
bool sy_graph_is_dynamic(const struct sy_graph *graph, int tensor);
/* Whether it is dynamic and the run decides one dimension only, by counting elements (NonZero, NonMaxSuppression), so that without room for any element the
 * room's shape is the result's. */
bool sy_graph_is_counted(const struct sy_graph *graph, int tensor);
/* Room of any input or output in memory; what follows from its shape, and the dimensions behind it where a run says them. */
uint64_t sy_graph_tensor_room(const struct sy_graph *graph, int tensor, int64_t batch);
/* As sy_graph_tensor_room, for the shape that the tensor has with certain sizes (graph_bind.h). UINT64_MAX: more than can be counted. */
uint64_t sy_graph_shaped_room(const struct sy_graph *graph, int tensor,
                              const struct sy_shape *shape, int64_t batch);
/* Shape and bytes of an output that lies at `data`. ENOMEM_HOST: the run needs more room, *bytes. ECORRUPT: what lies there was not written by a
 * run. */
int sy_graph_output_shape(const struct sy_graph *graph, int tensor, int64_t batch, const void *data,
                          struct sy_shape *shape, uint64_t *bytes);
/* As sy_graph_output_shape, for an output that has room for the shape `as`. */
int sy_graph_shaped_output(const struct sy_graph *graph, int tensor, const struct sy_shape *as,
                           int64_t batch, const void *data, struct sy_shape *shape,
                           uint64_t *bytes);

bool sy_graph_is_input(const struct sy_graph *graph, int tensor);
bool sy_graph_is_output(const struct sy_graph *graph, int tensor);
/* By a node, or as an output of the graph. */
bool sy_graph_is_read(const struct sy_graph *graph, int tensor);
void sy_graph_free(struct sy_graph *graph);                                       /* NULL is fine */
const struct sy_attr *sy_node_attr(const struct sy_node *node, const char *name); /* or NULL */
/* String i of a list; *bytes without its ending zero. */
const char *sy_attr_string(const struct sy_attr *attr, int i, size_t *bytes);
int64_t sy_node_int(const struct sy_node *node, const char *name, int64_t otherwise);
/* Number i of a list; otherwise: it is shorter, or not there. */
int64_t sy_node_int_at(const struct sy_node *node, const char *name, int i, int64_t otherwise);
float sy_node_float(const struct sy_node *node, const char *name, float otherwise);
int sy_node_input(const struct sy_node *node, int i); /* -1: it has none */

/* Reads an ONNX file (external data next to it too): graph as written, in topological order, shapes not yet
 * inferred. Every refusal names node, operator, opset and what is missing. Caller frees. */
int sy_onnx_read(const char *path, struct sy_graph **out);

/* A symbolic dimension of the file, by its name, or as INPUT.INDEX ("tokens.1"), and the number that it gets. Or SY_ONNX_APART: the inputs that share the name
 * need not agree, but where the graph requires it. INPUT.rank: how many dimensions an input has of which the file does not say it. */
enum { SY_ONNX_APART = -1 };
struct sy_onnx_dim {
    const char *name;
    int64_t size;
};
/* As sy_onnx_read, with numbers for symbolic dimensions. EARG names one that no input has. */
int sy_onnx_read_sized(const char *path, const struct sy_onnx_dim *dims, int n_dims,
                       struct sy_graph **out);

/* Infers all shapes and dtypes, folds constants and shape arithmetic (Shape, Gather, Concat ... on
 * values linear in N), removes dead nodes. The first dimension of every input that is symbolic is N. EUNSUPPORTED/EARG name
 * the node. After it, every tensor has dtype and shape; Reshape targets and the like are constants
 * (Reshape nodes: use the output tensor's shape). */
int sy_graph_infer(struct sy_graph *graph);

/* As sy_graph_infer, for a few nodes, all of whose inputs have numbers for shapes: nothing is deferred to the run. *needs_values: it failed because an
 * input's elements decide on a size. */
int sy_graph_infer_now(struct sy_graph *graph, bool *needs_values);
/* As sy_graph_infer, as far as it goes. (*waits)[t], for each tensor that the graph has then: its size, or what it is made of, needs elements not known
 * yet, or an operator that is not supported. *waits: the caller's. Afterwards the graph serves only to read shapes from. */
int sy_graph_infer_ready(struct sy_graph *graph, bool **waits);

/* As sy_graph_infer, for a graph that is to be trained: what depends on a float parameter of the file is not folded, Dropout stays (with the
 * attribute `ratio`), and so do training modes. */
int sy_graph_infer_training(struct sy_graph *graph);

/* Passes that keep every parameter as the file has it: identity removal, gelu and layer norm recognition, biases of matrix products. */
int sy_graph_optimize_training(struct sy_graph *graph);

/* Passes for inference, each its own function (loader/fuse/fuse.h), each keeps the outputs: identity removal, conv +
 * batch norm folding, activation / residual / bias fusion, gelu and layer norm recognition, then dead nodes. What nodes
 * look like afterwards: loader/shape/README.md. Two attributes are this project's own: MATMUL `alpha` (float, default 1: result =
 * alpha * a*b + bias), SKIP_LAYER_NORM `axis` and `epsilon` as LAYER_NORM; its inputs are a, b, gamma, beta. */
int sy_graph_optimize(struct sy_graph *graph);

/* After it: passes that make nodes which not every engine has (Attention, Swish, RMSNormalization), for those that `has` says it has. size:
 * of Attention the larger of its heads' sizes, for q and k and for v, INT64_MAX where the batch decides on them; 0 where none is known yet, and
 * of the others. Last, depthwise convolutions of one dimension become two-dimensional ones, for which engines have fast code. */
int sy_graph_fuse(struct sy_graph *graph, bool (*has)(enum sy_op op, int64_t size));

/* As sy_graph_fuse, after sy_graph_optimize_training, for Attention alone, and only where no mask that is added is trained or follows from what is.
 * Dropout nodes have the attribute `number` afterwards: their place before, from which follows what they draw. */
int sy_graph_fuse_training(struct sy_graph *graph, bool (*has)(enum sy_op op, int64_t size));

/* msgpack image of the graph without the data of tensors that `keep_data[t]` is false for. *out is malloc'd. */
int sy_graph_encode(const struct sy_graph *graph, const bool *keep_data, void **out,
                    size_t *out_bytes);
/* For untrusted bytes: ECORRUPT. */
int sy_graph_decode(const void *bytes, size_t n_bytes, struct sy_graph **out);

#endif
