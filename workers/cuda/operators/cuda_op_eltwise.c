/* Elementwise operators: chains with numpy's broadcasting, in the layout that the inputs have; choices; casts. */
#include <float.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"

/* ---- one input ---------------------------------------------------------------------------------------- */

struct unary {
    enum sy_op op;
    enum sy_math_chain_code code;
    float alpha, beta;
};

static const struct unary unaries[] = {
    {SY_OP_RELU, SY_CHAIN_LEAKY, 0, 0},
    {SY_OP_LEAKY_RELU, SY_CHAIN_LEAKY, 0.01f, 0},
    {SY_OP_SIGMOID, SY_CHAIN_SIGMOID, 0, 0},
    {SY_OP_TANH, SY_CHAIN_TANH, 0, 0},
    {SY_OP_CLIP, SY_CHAIN_CLIP, 0, 0},
    {SY_OP_ELU, SY_CHAIN_ELU, 1, 0},
    {SY_OP_EXP, SY_CHAIN_EXP, 0, 0},
    {SY_OP_LOG, SY_CHAIN_LOG, 0, 0},
    {SY_OP_SQRT, SY_CHAIN_SQRT, 0, 0},
    {SY_OP_NEG, SY_CHAIN_LINEAR, -1, 0},
    {SY_OP_ABS, SY_CHAIN_ABS, 0, 0},
    {SY_OP_RECIPROCAL, SY_CHAIN_RECIPROCAL, 0, 0},
    {SY_OP_GELU, SY_CHAIN_GELU_ERF, 0, 0},
    {SY_OP_ERF, SY_CHAIN_ERF, 0, 0},
    {SY_OP_HARD_SIGMOID, SY_CHAIN_HARD_SIGMOID, 0.2f, 0.5f},
    {SY_OP_HARD_SWISH, SY_CHAIN_HARD_SWISH, 0, 0},
};

static void add_unary(struct sy_math_chain *chain, const struct sy_node *node)
{
    const struct unary *u = unaries;
    const struct sy_attr *approximate = sy_node_attr(node, "approximate");
    while (u->op != node->op)
        u++;
    enum sy_math_chain_code code = u->code;
    float alpha = u->alpha, beta = u->beta;
    if (node->op == SY_OP_LEAKY_RELU || node->op == SY_OP_ELU || node->op == SY_OP_HARD_SIGMOID)
        alpha = sy_node_float(node, "alpha", alpha);
    if (node->op == SY_OP_HARD_SIGMOID)
        beta = sy_node_float(node, "beta", beta);
    if (node->op == SY_OP_CLIP) {
        alpha = sy_node_float(node, "min", -FLT_MAX);
        beta = sy_node_float(node, "max", FLT_MAX);
    }
    if (node->op == SY_OP_GELU && approximate && approximate->s &&
        strcmp(approximate->s, "tanh") == 0)
        code = SY_CHAIN_GELU_TANH;
    sy_cuda_chain_add(chain, code, 0, alpha, beta);
}

static int build_unary(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    struct sy_math_chain chain = {.n_inputs = 1};
    int src, dst;
    if (sy_cuda_input_tensor(p, 0)->dtype != SY_DTYPE_F32)
        return sy_unsupported(node, "only float32");
    SY_TRY(sy_cuda_input(p, 0, &src));
    sy_cuda_chain_add(&chain, SY_CHAIN_LOAD, 0, 0, 0);
    add_unary(&chain, node);
    SY_TRY(sy_cuda_output_over(p, 0, src, sy_cuda_wanted(p, 0), &dst));
    return sy_cuda_add_chain(p, &chain, &src, dst);
}

/* x times its sigmoid. */
static int build_swish(struct sy_program *p)
{
    struct sy_math_chain chain = {.n_inputs = 1};
    int src, dst;
    if (sy_cuda_input_tensor(p, 0)->dtype != SY_DTYPE_F32)
        return sy_unsupported(sy_cuda_node(p), "only float32");
    SY_TRY(sy_cuda_input(p, 0, &src));
    sy_cuda_chain_add(&chain, SY_CHAIN_LOAD, 0, 0, 0);
    sy_cuda_chain_add(&chain, SY_CHAIN_LINEAR, 0, sy_node_float(sy_cuda_node(p), "alpha", 1), 0);
    sy_cuda_chain_add(&chain, SY_CHAIN_SIGMOID, 0, 0, 0);
    sy_cuda_chain_add(&chain, SY_CHAIN_MUL, 0, 0, 0);
    SY_TRY(sy_cuda_output_as(p, 0, sy_cuda_wanted(p, 0), p->values[src].channels_last, &dst));
    return sy_cuda_add_chain(p, &chain, &src, dst);
}

/* ---- two inputs and more -------------------------------------------------------------------------------- */

/* Channels last if an input of the output's own shape is. */
static bool wants_last(const struct sy_program *p, const int *inputs, int n)
{
    int64_t dims[SY_MAX_RANK];
    int tensor = sy_cuda_node(p)->outputs[0], rank = p->graph->tensors[tensor].shape.rank;
    sy_cuda_dims(p, tensor, dims);
    for (int i = 0; i < n; i++) {
        const struct sy_cuda_value *v = &p->values[inputs[i]];
        if (v->channels_last && v->rank == rank &&
            memcmp(v->dims, dims, (size_t)rank * sizeof *dims) == 0)
            return true;
    }
    return false;
}

static bool code_of(enum sy_op op, enum sy_math_chain_code *code)
{
    static const struct {
        enum sy_op op;
        enum sy_math_chain_code code;
    } codes[] = {{SY_OP_ADD, SY_CHAIN_ADD}, {SY_OP_SUB, SY_CHAIN_SUB}, {SY_OP_MUL, SY_CHAIN_MUL},
                 {SY_OP_DIV, SY_CHAIN_DIV}, {SY_OP_POW, SY_CHAIN_POW}, {SY_OP_MIN, SY_CHAIN_MIN},
                 {SY_OP_MAX, SY_CHAIN_MAX}, {SY_OP_SUM, SY_CHAIN_ADD}};
    for (size_t i = 0; i < SY_ARRAY_LEN(codes); i++)
        if (codes[i].op == op) {
            *code = codes[i].code;
            return true;
        }
    return false;
}

static int check_types(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    enum sy_dtype dtype = p->graph->tensors[node->outputs[0]].dtype;
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0 && sy_cuda_input_tensor(p, i)->dtype != dtype)
            return sy_unsupported(node, "inputs of different element types");
    if (dtype != SY_DTYPE_F32 && dtype != SY_DTYPE_I32 && dtype != SY_DTYPE_I64)
        return sy_unsupported(sy_cuda_node(p), "this element type");
    return SY_OK;
}

/* out = inputs[0] op inputs[1] op ..., at most SY_MATH_CHAIN_IN of them. */
static int add_fold(struct sy_program *p, enum sy_math_chain_code code, const int *inputs, int n,
                    int out)
{
    struct sy_math_chain chain = {.n_inputs = n};
    sy_cuda_chain_add(&chain, SY_CHAIN_LOAD, 0, 0, 0);
    for (int i = 1; i < n; i++)
        sy_cuda_chain_add(&chain, code, i, 0, 0);
    return sy_cuda_add_chain(p, &chain, inputs, out);
}

/* Any number of inputs, folded from the left; what one chain cannot take goes through the output. */
static int build_fold(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    enum sy_math_chain_code code;
    int inputs[SY_MATH_CHAIN_IN], n = 0, out = -1;
    if (!code_of(node->op, &code) || node->n_inputs < 1)
        return sy_unsupported(node, "no inputs");
    SY_TRY(check_types(p));
    /* What goes through the output is not to be rounded on the way. */
    enum sy_dtype type = node->n_inputs <= SY_MATH_CHAIN_IN
                             ? sy_cuda_wanted(p, 0)
                             : p->graph->tensors[node->outputs[0]].dtype;
    for (int i = 0; i < node->n_inputs; i++) {
        SY_TRY(sy_cuda_input(p, i, &inputs[n++]));
        if (n < SY_MATH_CHAIN_IN && i + 1 < node->n_inputs)
            continue;
        if (out < 0)
            SY_TRY(sy_cuda_output_as(p, 0, type, wants_last(p, inputs, n), &out));
        SY_TRY(add_fold(p, code, inputs, n, out));
        inputs[0] = out; /* elementwise: may be read and written */
        n = 1;
    }
    return SY_OK;
}

/* ---- choices ------------------------------------------------------------------------------------------- */

static int run_where(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->where(p->math, &step->choice, sy_cuda_pointer(p, step->args[0]),
                         sy_cuda_pointer(p, step->args[1]), sy_cuda_pointer(p, step->args[2]),
                         sy_cuda_pointer(p, step->args[3]));
}

static int run_equal(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->equal(p->math, &step->choice, sy_cuda_pointer(p, step->args[1]),
                         sy_cuda_pointer(p, step->args[2]), sy_cuda_pointer(p, step->args[3]));
}

/* inputs: pick (or -1), a, b; out. */
static int add_choice(struct sy_program *p, const int *inputs)
{
    struct sy_math_choice c = {.dtype = p->values[inputs[1]].dtype,
                               .rank = p->values[inputs[3]].rank};
    struct sy_cuda_step *step;
    memcpy(c.dims, p->values[inputs[3]].dims, sizeof c.dims);
    sy_cuda_strides(&p->values[inputs[3]], c.out_strides);
    for (int i = 0; i < 3; i++)
        if (inputs[i] >= 0)
            SY_TRY(sy_cuda_broadcast(p, inputs[i], inputs[3], c.in_strides[i]));
    SY_TRY(sy_cuda_add_step(p, inputs[0] < 0 ? run_equal : run_where, inputs, 4, &step));
    step->choice = c;
    struct sy_math_choice *s = &step->choice;
    s->rank = sy_cuda_collapse(
        s->rank, s->dims,
        (int64_t *[]){s->out_strides, s->in_strides[0], s->in_strides[1], s->in_strides[2]}, 4);
    return SY_OK;
}

static int build_where(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    int values[4];
    for (int i = 0; i < 3; i++)
        SY_TRY(sy_cuda_input_wide(p, i, &values[i]));
    SY_TRY(sy_cuda_output(p, 0, wants_last(p, values, 3), &values[3]));
    const struct sy_cuda_value *v = p->values;
    enum sy_dtype dtype = v[values[3]].dtype;
    if (v[values[0]].dtype != SY_DTYPE_BOOL || v[values[1]].dtype != dtype ||
        v[values[2]].dtype != dtype)
        return sy_unsupported(node, "inputs of different element types");
    return add_choice(p, values);
}

static int build_equal(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    int values[4] = {-1};
    SY_TRY(sy_cuda_input_wide(p, 0, &values[1]));
    SY_TRY(sy_cuda_input_wide(p, 1, &values[2]));
    SY_TRY(sy_cuda_output(p, 0, wants_last(p, values + 1, 2), &values[3]));
    enum sy_dtype dtype = p->values[values[1]].dtype;
    if (p->values[values[2]].dtype != dtype || p->values[values[3]].dtype != SY_DTYPE_BOOL)
        return sy_unsupported(node, "inputs of different element types");
    if (dtype != SY_DTYPE_F32 && dtype != SY_DTYPE_I32 && dtype != SY_DTYPE_I64 &&
        dtype != SY_DTYPE_BOOL)
        return sy_unsupported(node, "this element type");
    return add_choice(p, values);
}

/* ---- other types ------------------------------------------------------------------------------------------ */

static int run_cast(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->cast(p->math, step->cast.from, step->cast.to, step->cast.n,
                        sy_cuda_pointer(p, step->args[0]), sy_cuda_pointer(p, step->args[1]));
}

static bool castable(enum sy_dtype dtype)
{
    return dtype == SY_DTYPE_F32 || sy_math_is_narrow(dtype) || dtype == SY_DTYPE_I32 ||
           dtype == SY_DTYPE_I64 || dtype == SY_DTYPE_BOOL;
}

static int build_cast(struct sy_program *p)
{
    int values[2];
    struct sy_cuda_step *step;
    SY_TRY(sy_cuda_input(p, 0, &values[0]));
    SY_TRY(sy_cuda_output_as(p, 0, sy_cuda_wanted(p, 0), p->values[values[0]].channels_last,
                             &values[1]));
    enum sy_dtype from = p->values[values[0]].dtype, to = p->values[values[1]].dtype;
    if (!castable(from) || !castable(to))
        return sy_unsupported(sy_cuda_node(p), "these element types");
    SY_TRY(sy_cuda_add_step(p, run_cast, values, 2, &step));
    step->cast.from = from;
    step->cast.to = to;
    step->cast.n = sy_cuda_count(&p->values[values[0]]);
    return SY_OK;
}

static int build_expand(struct sy_program *p)
{
    int src, dst;
    SY_TRY(sy_cuda_input(p, 0, &src));
    SY_TRY(sy_cuda_output_as(p, 0, p->values[src].dtype, false, &dst));
    return sy_cuda_add_expand(p, src, dst);
}

const struct sy_cuda_op sy_cuda_ops_eltwise[] = {
    {.build = build_unary,
     SY_OPS(SY_OP_RELU, SY_OP_LEAKY_RELU, SY_OP_SIGMOID, SY_OP_TANH, SY_OP_CLIP, SY_OP_ELU,
            SY_OP_EXP, SY_OP_LOG, SY_OP_SQRT, SY_OP_NEG, SY_OP_ABS, SY_OP_RECIPROCAL, SY_OP_GELU,
            SY_OP_ERF, SY_OP_HARD_SIGMOID, SY_OP_HARD_SWISH)},
    {.build = build_fold,
     SY_OPS(SY_OP_ADD, SY_OP_SUB, SY_OP_MUL, SY_OP_DIV, SY_OP_POW, SY_OP_MIN, SY_OP_MAX,
            SY_OP_SUM)},
    {.build = build_swish, SY_OPS(SY_OP_SWISH)},
    {.build = build_equal, SY_OPS(SY_OP_EQUAL)},
    {.build = build_where, SY_OPS(SY_OP_WHERE)},
    {.build = build_cast, SY_OPS(SY_OP_CAST)},
    {.build = build_expand, SY_OPS(SY_OP_EXPAND)},
    {0}};
