/* The table of operators that can be trained, and the small ones: activations, sums, batch normalization, shapes. */
#include <float.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/cuda_train.h"

/* ---- activations -------------------------------------------------------------------------------------- */

struct activation {
    enum sy_op op;
    enum sy_math_chain_code forward, backward;
    bool by_input; /* backward reads the input, not the result */
    float alpha;
};

static const struct activation activations[] = {
    {SY_OP_RELU, SY_CHAIN_LEAKY, SY_CHAIN_GRAD_LEAKY, false, 0},
    {SY_OP_LEAKY_RELU, SY_CHAIN_LEAKY, SY_CHAIN_GRAD_LEAKY, false, 0.01f},
    {SY_OP_SIGMOID, SY_CHAIN_SIGMOID, SY_CHAIN_GRAD_SIGMOID, false, 0},
    {SY_OP_TANH, SY_CHAIN_TANH, SY_CHAIN_GRAD_TANH, false, 0},
    {SY_OP_ELU, SY_CHAIN_ELU, SY_CHAIN_GRAD_ELU, false, 1},
    {SY_OP_GELU, SY_CHAIN_GELU_ERF, SY_CHAIN_GRAD_GELU_ERF, true, 0},
    {SY_OP_HARD_SWISH, SY_CHAIN_HARD_SWISH, SY_CHAIN_GRAD_HARD_SWISH, true, 0},
    {SY_OP_CLIP, SY_CHAIN_CLIP, SY_CHAIN_GRAD_CLIP, true, 0},
};

static int activation_of(const struct sy_node *node, struct sy_math_chain_step *forward,
                         struct sy_math_chain_step *backward, bool *by_input)
{
    const struct activation *a = activations;
    const struct sy_attr *approximate = sy_node_attr(node, "approximate");
    while (a->op != node->op)
        a++;
    *forward = (struct sy_math_chain_step){.code = a->forward, .alpha = a->alpha};
    *backward = (struct sy_math_chain_step){.code = a->backward, .input = 1};
    *by_input = a->by_input;
    if (node->op == SY_OP_LEAKY_RELU || node->op == SY_OP_ELU)
        forward->alpha = sy_node_float(node, "alpha", a->alpha);
    if (node->op == SY_OP_CLIP) {
        forward->alpha = sy_node_float(node, "min", -FLT_MAX);
        forward->beta = sy_node_float(node, "max", FLT_MAX);
    }
    if (node->op == SY_OP_GELU && approximate && approximate->s &&
        strcmp(approximate->s, "tanh") == 0) {
        forward->code = SY_CHAIN_GELU_TANH;
        backward->code = SY_CHAIN_GRAD_GELU_TANH;
    }
    backward->alpha = forward->alpha;
    backward->beta = forward->beta;
    /* Below zero the result would not tell the input's sign. */
    return (node->op == SY_OP_LEAKY_RELU || node->op == SY_OP_ELU) && forward->alpha < 0
               ? sy_cutr_refuse(node, "a negative slope")
               : SY_OK;
}

static int activation_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int source = t->tensors[node->inputs[0]].value, out;
    struct sy_math_chain chain = {.n_inputs = 1, .n_steps = 2, .steps = {{SY_CHAIN_LOAD, 0, 0, 0}}};
    struct sy_math_chain_step backward;
    bool by_input;
    SY_TRY(activation_of(node, &chain.steps[1], &backward, &by_input));
    const struct sy_cutr_value v = t->values[source];
    SY_TRY(sy_cutr_value_new(t, v.rank, v.dims, v.last, false, &out));
    t->nodes[n].source = source;
    t->tensors[node->outputs[0]].value = out;
    return sy_cutr_chain(t, SY_CUTR_FORWARD, node->name, &chain, &source, (bool[]){false}, 1, out);
}

static int activation_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_math_chain chain = {.n_inputs = 2, .n_steps = 2, .steps = {{SY_CHAIN_LOAD, 0, 0, 0}}};
    struct sy_math_chain_step forward;
    bool by_input;
    int dy, dx;
    if (!t->tensors[node->inputs[0]].needs_gradient)
        return SY_OK;
    SY_TRY(activation_of(node, &forward, &chain.steps[1], &by_input));
    int kept = by_input ? t->nodes[n].source : t->tensors[node->outputs[0]].value;
    const struct sy_cutr_value v = t->values[kept];
    SY_TRY(sy_cutr_as(t, SY_CUTR_TRAIN, gradient, v.last, &dy));
    SY_TRY(sy_cutr_value_new(t, v.rank, v.dims, v.last, false, &dx));
    SY_TRY(sy_cutr_chain(t, SY_CUTR_TRAIN, node->name, &chain, (int[]){dy, kept},
                         (bool[]){false, false}, 1, dx));
    return sy_cutr_gradient_add(t, node->inputs[0], dx);
}

/* ---- Add: a residual sum, or a bias row --------------------------------------------------------------- */

static const struct sy_math_chain sum_of_two = {
    .n_inputs = 2, .n_steps = 2, .steps = {{SY_CHAIN_LOAD, 0, 0, 0}, {SY_CHAIN_ADD, 1, 0, 0}}};

static int residual_forward(struct sy_trainer *t, const struct sy_node *node)
{
    const struct sy_shape *shape = &t->graph->tensors[node->outputs[0]].shape;
    int a = t->tensors[node->inputs[0]].value, b, out;
    for (int i = 0; i < 2; i++)
        if (!sy_shape_equal(&t->graph->tensors[node->inputs[i]].shape, shape))
            return sy_cutr_refuse(node, "broadcasting between two activations");
    const struct sy_cutr_value v = t->values[a];
    SY_TRY(sy_cutr_as(t, SY_CUTR_FORWARD, t->tensors[node->inputs[1]].value, v.last, &b));
    SY_TRY(sy_cutr_value_new(t, v.rank, v.dims, v.last, false, &out));
    t->tensors[node->outputs[0]].value = out;
    return sy_cutr_chain(t, SY_CUTR_FORWARD, node->name, &sum_of_two, (int[]){a, b},
                         (bool[]){false, false}, 1, out);
}

static int bias_forward(struct sy_trainer *t, int n, int data, int constant)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int64_t dims[SY_MAX_RANK];
    int rank = sy_cutr_dims(t, data, dims), plain, out;
    SY_TRY(rank);
    int64_t columns = dims[rank - 1];
    if (t->graph->tensors[constant].data_bytes != (size_t)columns * sizeof(float))
        return sy_cutr_refuse(node,
                              "a constant that is not one value for each of the last dimension");
    SY_TRY(sy_cutr_as(t, SY_CUTR_FORWARD, t->tensors[data].value, false, &plain));
    SY_TRY(sy_cutr_param_use(t, constant, 1, &columns, false, true, &t->nodes[n].bias));
    SY_TRY(sy_cutr_value_new(t, rank, dims, false, false, &out));
    t->tensors[node->outputs[0]].value = out;
    return sy_cutr_chain(t, SY_CUTR_FORWARD, node->name, &sum_of_two,
                         (int[]){plain, t->params[t->nodes[n].bias].value}, (bool[]){false, true},
                         columns, out);
}

static int add_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    for (int i = 0; i < 2; i++)
        if (t->graph->tensors[node->inputs[i]].data)
            return t->tensors[node->inputs[1 - i]].value < 0
                       ? sy_cutr_refuse(node, "both inputs are constants")
                       : bias_forward(t, n, node->inputs[1 - i], node->inputs[i]);
    return residual_forward(t, node);
}

static int add_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int plain, bias = t->nodes[n].bias;
    if (bias >= 0) {
        SY_TRY(sy_cutr_as(t, SY_CUTR_TRAIN, gradient, false, &plain));
        SY_TRY(sy_cutr_bias_gradient(t, node->name, bias, plain,
                                     sy_cutr_count(&t->values[t->params[bias].value])));
    }
    for (int i = 0; i < 2; i++)
        if (t->tensors[node->inputs[i]].needs_gradient)
            SY_TRY(sy_cutr_gradient_add(t, node->inputs[i], gradient));
    return SY_OK;
}

/* ---- batch normalization ------------------------------------------------------------------------------ */

static int run_columns(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->columns(t->math, &step->columns, sy_cutr_pointer(t, step->args[0]),
                           sy_cutr_pointer(t, step->args[1]), sy_cutr_pointer(t, step->args[2]),
                           sy_cutr_pointer(t, step->args[3]), sy_cutr_scratch(t));
}

/* args: dy, x, moments, sums, scale, dx */
static int run_norm_gradient(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    const int *a = step->args;
    return t->ops->norm_gradient(t->math, &step->columns, sy_cutr_pointer(t, a[0]),
                                 sy_cutr_pointer(t, a[1]), sy_cutr_pointer(t, a[2]),
                                 sy_cutr_pointer(t, a[3]), sy_cutr_pointer(t, a[4]),
                                 sy_cutr_pointer(t, a[5]));
}

static struct sy_math_columns norm_columns(const struct sy_trainer *t, const struct sy_node *node,
                                           int value, enum sy_math_columns_kind kind)
{
    const struct sy_cutr_value *v = &t->values[value];
    return (struct sy_math_columns){.kind = kind,
                                    .rows = sy_cutr_count(v) / v->dims[1],
                                    .columns = v->dims[1],
                                    .epsilon = sy_node_float(node, "epsilon", 1e-5f)};
}

/* out = (x - mean) / sqrt(variance + epsilon) * scale + bias */
static int add_normalize(struct sy_trainer *t, unsigned when, int n, int mean, int variance,
                         int out)
{
    const struct sy_node *node = &t->graph->nodes[n];
    const struct sy_cutr_node *record = &t->nodes[n];
    struct sy_math_chain chain = {
        .n_inputs = 5,
        .n_steps = 5,
        .steps = {{SY_CHAIN_LOAD, 0, 0, 0},
                  {SY_CHAIN_SUB, 1, 0, 0},
                  {SY_CHAIN_MUL_RSQRT, 2, sy_node_float(node, "epsilon", 1e-5f), 0},
                  {SY_CHAIN_MUL, 3, 0, 0},
                  {SY_CHAIN_ADD, 4, 0, 0}}};
    int inputs[] = {record->source, mean, variance, t->params[record->weights].value,
                    t->params[record->bias].value};
    return sy_cutr_chain(t, when, node->name, &chain, inputs,
                         (bool[]){false, true, true, true, true}, t->values[out].dims[1], out);
}

/* Scale, shift: trained. Mean, variance: follow the batches' in the update phase. */
static int norm_params(struct sy_trainer *t, int n, int64_t channels, int running[2], int batch[2])
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_node *record = &t->nodes[n];
    if (node->n_inputs < 5)
        return sy_cutr_refuse(node, "it has no running statistics");
    SY_TRY(sy_cutr_value_new(t, 2, (int64_t[]){2, channels}, false, false, &record->moments));
    SY_TRY(sy_cutr_param_use(t, node->inputs[1], 1, &channels, false, true, &record->weights));
    SY_TRY(sy_cutr_param_use(t, node->inputs[2], 1, &channels, false, true, &record->bias));
    for (int i = 0; i < 2; i++) {
        int param;
        SY_TRY(sy_cutr_view(t, record->moments, 1, &channels, false,
                            (uint64_t)(i * channels) * sizeof(float), &batch[i]));
        SY_TRY(sy_cutr_param_use(t, node->inputs[3 + i], 1, &channels, false, false, &param));
        t->params[param].batch_statistic = batch[i];
        t->params[param].keep = sy_node_float(node, "momentum", 0.9f);
        running[i] = t->params[param].value;
    }
    return SY_OK;
}

static int norm_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_node *record = &t->nodes[n];
    struct sy_cutr_step *step;
    int running[2], batch[2], out;
    SY_TRY(
        sy_cutr_as(t, SY_CUTR_FORWARD, t->tensors[node->inputs[0]].value, true, &record->source));
    const struct sy_cutr_value v = t->values[record->source];
    if (v.rank < 2)
        return sy_cutr_refuse(node, "an input without channels");
    SY_TRY(norm_params(t, n, v.dims[1], running, batch));
    SY_TRY(sy_cutr_value_new(t, v.rank, v.dims, true, false, &out));
    t->tensors[node->outputs[0]].value = out;
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, node->name, run_columns,
                            (int[]){record->source, -1, -1, record->moments}, 4, &step));
    step->columns = norm_columns(t, node, record->source, SY_COLUMNS_MOMENTS);
    SY_TRY(add_normalize(t, SY_CUTR_TRAIN, n, batch[0], batch[1], out));
    return add_normalize(t, SY_CUTR_EVALUATE, n, running[0], running[1], out);
}

static int copy_row(struct sy_trainer *t, const char *name, int from, int to)
{
    struct sy_math_chain copy = {.n_inputs = 1, .n_steps = 1, .steps = {{SY_CHAIN_LOAD, 0, 0, 0}}};
    return sy_cutr_chain(t, SY_CUTR_TRAIN, name, &copy, &from, (bool[]){false}, 1, to);
}

/* sums: [sum dy, sum dy unit], which are the gradients of bias and scale. */
static int commit_norm(struct sy_trainer *t, int n, int sums, int64_t channels)
{
    const struct sy_cutr_node *record = &t->nodes[n];
    int params[] = {record->bias, record->weights};
    for (int i = 0; i < 2; i++) {
        int row, to;
        SY_TRY(sy_cutr_view(t, sums, 1, &channels, false, (uint64_t)(i * channels) * sizeof(float),
                            &row));
        SY_TRY(sy_cutr_param_gradient(t, params[i], &to));
        SY_TRY(copy_row(t, t->graph->nodes[n].name, row, to));
        SY_TRY(sy_cutr_param_commit(t, params[i], to));
    }
    return SY_OK;
}

static int norm_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    const struct sy_cutr_node *record = &t->nodes[n];
    const struct sy_cutr_value v = t->values[record->source];
    struct sy_math_columns columns = norm_columns(t, node, record->source, SY_COLUMNS_NORM);
    struct sy_cutr_step *step;
    int dy, dx, sums;
    SY_TRY(sy_cutr_as(t, SY_CUTR_TRAIN, gradient, true, &dy));
    SY_TRY(sy_cutr_value_new(t, 2, (int64_t[]){2, v.dims[1]}, false, false, &sums));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, node->name, run_columns,
                            (int[]){dy, record->source, record->moments, sums}, 4, &step));
    step->columns = columns;
    SY_TRY(commit_norm(t, n, sums, v.dims[1]));
    if (!t->tensors[node->inputs[0]].needs_gradient)
        return SY_OK;
    SY_TRY(sy_cutr_value_new(t, v.rank, v.dims, true, false, &dx));
    SY_TRY(sy_cutr_step_new(
        t, SY_CUTR_TRAIN, node->name, run_norm_gradient,
        (int[]){dy, record->source, record->moments, sums, t->params[record->weights].value, dx}, 6,
        &step));
    step->columns = columns;
    return sy_cutr_gradient_add(t, node->inputs[0], dx);
}

/* ---- shapes ------------------------------------------------------------------------------------------- */

static int view_as(struct sy_trainer *t, unsigned when, int value, int tensor, int *out)
{
    int64_t dims[SY_MAX_RANK];
    int rank = sy_cutr_dims(t, tensor, dims), plain;
    SY_TRY(rank);
    SY_TRY(sy_cutr_as(t, when, value, false, &plain));
    return sy_cutr_view(t, plain, rank, dims, false, 0, out);
}

static int shape_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    return view_as(t, SY_CUTR_FORWARD, t->tensors[node->inputs[0]].value, node->outputs[0],
                   &t->tensors[node->outputs[0]].value);
}

static int shape_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int out;
    if (!t->tensors[node->inputs[0]].needs_gradient)
        return SY_OK;
    SY_TRY(view_as(t, SY_CUTR_TRAIN, gradient, node->inputs[0], &out));
    return sy_cutr_gradient_add(t, node->inputs[0], out);
}

static int same_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    if (node->op == SY_OP_DROPOUT && sy_node_float(node, "ratio", 0) > 0)
        return sy_cutr_refuse(node, "dropout that drops");
    t->tensors[node->outputs[0]].value = t->tensors[node->inputs[0]].value;
    return SY_OK;
}

static int same_backward(struct sy_trainer *t, int n, int gradient)
{
    int input = t->graph->nodes[n].inputs[0];
    return t->tensors[input].needs_gradient ? sy_cutr_gradient_add(t, input, gradient) : SY_OK;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

static const struct sy_cutr_operator operators[] = {
    {SY_OP_CONV, sy_cutr_conv_forward, sy_cutr_conv_backward},
    {SY_OP_GEMM, sy_cutr_linear_forward, sy_cutr_linear_backward},
    {SY_OP_MATMUL, sy_cutr_linear_forward, sy_cutr_linear_backward},
    {SY_OP_RELU, activation_forward, activation_backward},
    {SY_OP_LEAKY_RELU, activation_forward, activation_backward},
    {SY_OP_SIGMOID, activation_forward, activation_backward},
    {SY_OP_TANH, activation_forward, activation_backward},
    {SY_OP_ELU, activation_forward, activation_backward},
    {SY_OP_GELU, activation_forward, activation_backward},
    {SY_OP_HARD_SWISH, activation_forward, activation_backward},
    {SY_OP_CLIP, activation_forward, activation_backward},
    {SY_OP_MAX_POOL, sy_cutr_pool_forward, sy_cutr_pool_backward},
    {SY_OP_AVERAGE_POOL, sy_cutr_pool_forward, sy_cutr_pool_backward},
    {SY_OP_GLOBAL_AVERAGE_POOL, sy_cutr_pool_forward, sy_cutr_pool_backward},
    {SY_OP_BATCH_NORM, norm_forward, norm_backward},
    {SY_OP_ADD, add_forward, add_backward},
    {SY_OP_FLATTEN, shape_forward, shape_backward},
    {SY_OP_RESHAPE, shape_forward, shape_backward},
    {SY_OP_SQUEEZE, shape_forward, shape_backward},
    {SY_OP_UNSQUEEZE, shape_forward, shape_backward},
    {SY_OP_IDENTITY, same_forward, same_backward},
    {SY_OP_DROPOUT, same_forward, same_backward},
};

const struct sy_cutr_operator *sy_cutr_operator_of(enum sy_op op)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(operators); i++)
        if (operators[i].op == op)
            return &operators[i];
    return NULL;
}
