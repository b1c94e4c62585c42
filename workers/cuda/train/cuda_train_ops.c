/* The table of operators that can be trained, and the small ones: activations, sums, batch normalization, shapes. */
#include <float.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/train/cuda_train.h"

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
    int source, out;
    struct sy_math_chain chain = {.n_inputs = 1, .n_steps = 2, .steps = {{SY_CHAIN_LOAD, 0, 0, 0}}};
    struct sy_math_chain_step backward;
    bool by_input;
    SY_TRY(activation_of(node, &chain.steps[1], &backward, &by_input));
    if (t->graph->tensors[node->inputs[0]].dtype != SY_DTYPE_F32)
        return sy_cutr_refuse(node, "of a type other than float32");
    SY_TRY(sy_cutr_operand_typed(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_ANY, SY_DTYPE_NONE,
                                 &source));
    SY_TRY(sy_cutr_result_typed(t, node->outputs[0], t->values[source].last,
                                t->values[source].dtype, &out));
    t->nodes[n].source = source;
    return sy_cutr_chain(t, SY_CUTR_FORWARD, node->name, &chain, &source, (bool[]){false}, 1, out);
}

static int activation_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_math_chain chain = {.n_inputs = 2, .n_steps = 2, .steps = {{SY_CHAIN_LOAD, 0, 0, 0}}};
    struct sy_math_chain_step forward;
    bool by_input;
    int dy, dx;
    SY_TRY(activation_of(node, &forward, &chain.steps[1], &by_input));
    int kept = by_input ? t->nodes[n].source : t->tensors[node->outputs[0]].value;
    bool last = t->values[kept].last;
    SY_TRY(sy_cutr_as_typed(t, SY_CUTR_TRAIN, gradient, last, SY_DTYPE_NONE, &dy));
    SY_TRY(sy_cutr_diff_begin_typed(t, node->inputs[0], last, t->values[kept].dtype, &dx));
    SY_TRY(sy_cutr_chain(t, SY_CUTR_TRAIN, node->name, &chain, (int[]){dy, kept},
                         (bool[]){false, false}, 1, dx));
    return sy_cutr_diff_end(t, node->inputs[0], dx);
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
                                    .a_type = v->dtype,
                                    .x_type = v->dtype,
                                    .epsilon = sy_node_float(node, "epsilon", 1e-5f)};
}

/* out = (x - mean) / sqrt(variance + epsilon) * scale + bias */
static int add_normalize(struct sy_trainer *t, unsigned when, const struct sy_node *node,
                         const int *inputs, int out)
{
    struct sy_math_chain chain = {
        .n_inputs = 5,
        .n_steps = 5,
        .steps = {{SY_CHAIN_LOAD, 0, 0, 0},
                  {SY_CHAIN_SUB, 1, 0, 0},
                  {SY_CHAIN_MUL_RSQRT, 2, sy_node_float(node, "epsilon", 1e-5f), 0},
                  {SY_CHAIN_MUL, 3, 0, 0},
                  {SY_CHAIN_ADD, 4, 0, 0}}};
    return sy_cutr_chain(t, when, node->name, &chain, inputs,
                         (bool[]){false, true, true, true, true}, t->values[out].dims[1], out);
}

/* Running mean and variance follow the batches' in the update phase. */
static int norm_statistics(struct sy_trainer *t, int n, int64_t channels, int running[2],
                           int batch[2])
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_node *record = &t->nodes[n];
    if (node->n_inputs < 5)
        return sy_cutr_refuse(node, "it has no running statistics");
    for (int i = 1; i < 3; i++)
        if (sy_cutr_elements(t, node->inputs[i]) != channels)
            return sy_cutr_refuse(node, "a scale or bias that does not fit the channels");
    SY_TRY(sy_cutr_value_new(t, 2, (int64_t[]){2, channels}, false, false, &record->moments));
    for (int i = 0; i < 2; i++) {
        SY_TRY(sy_cutr_view(t, record->moments, 1, &channels, false,
                            (uint64_t)(i * channels) * sizeof(float), &batch[i]));
        SY_TRY(sy_cutr_statistic(t, node->inputs[3 + i], channels, batch[i],
                                 sy_node_float(node, "momentum", 0.9f), &running[i]));
    }
    return SY_OK;
}

static int norm_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_step *step;
    int running[2], batch[2], out, source, scale, bias;
    SY_TRY(sy_cutr_operand_typed(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_LAST, SY_DTYPE_NONE,
                                 &source));
    t->nodes[n].source = source;
    if (t->values[source].rank < 2)
        return sy_cutr_refuse(node, "an input without channels");
    SY_TRY(norm_statistics(t, n, t->values[source].dims[1], running, batch));
    SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[1], SY_CUTR_PLAIN, &scale));
    SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[2], SY_CUTR_PLAIN, &bias));
    SY_TRY(sy_cutr_result_typed(t, node->outputs[0], true, t->values[source].dtype, &out));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, node->name, run_columns,
                            (int[]){source, -1, -1, t->nodes[n].moments}, 4, &step));
    step->columns = norm_columns(t, node, source, SY_COLUMNS_MOMENTS);
    SY_TRY(add_normalize(t, SY_CUTR_TRAIN, node, (int[]){source, batch[0], batch[1], scale, bias},
                         out));
    return add_normalize(t, SY_CUTR_EVALUATE, node,
                         (int[]){source, running[0], running[1], scale, bias}, out);
}

/* sums: [sum dy, sum dy unit], which are the gradients of bias and scale. */
static int commit_norm(struct sy_trainer *t, const struct sy_node *node, int sums, int64_t channels)
{
    for (int i = 0; i < 2; i++) {
        int row, tensor = node->inputs[2 - i];
        if (!sy_cutr_needs(t, tensor))
            continue;
        SY_TRY(sy_cutr_view(t, sums, 1, &channels, false, (uint64_t)(i * channels) * sizeof(float),
                            &row));
        SY_TRY(sy_cutr_diff_end(t, tensor, row));
    }
    return SY_OK;
}

static int norm_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    const struct sy_cutr_node *record = &t->nodes[n];
    int64_t channels = t->values[record->source].dims[1];
    struct sy_math_columns columns = norm_columns(t, node, record->source, SY_COLUMNS_NORM);
    struct sy_cutr_step *step;
    int dy, dx, sums, scale;
    SY_TRY(sy_cutr_as_typed(t, SY_CUTR_TRAIN, gradient, true, SY_DTYPE_NONE, &dy));
    columns.a_type = t->values[dy].dtype;
    SY_TRY(sy_cutr_value_new(t, 2, (int64_t[]){2, channels}, false, false, &sums));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, node->name, run_columns,
                            (int[]){dy, record->source, record->moments, sums}, 4, &step));
    step->columns = columns;
    SY_TRY(commit_norm(t, node, sums, channels));
    if (!sy_cutr_needs(t, node->inputs[0]))
        return SY_OK;
    SY_TRY(sy_cutr_operand(t, SY_CUTR_TRAIN, node->inputs[1], SY_CUTR_PLAIN, &scale));
    SY_TRY(sy_cutr_diff_begin_typed(t, node->inputs[0], true, columns.x_type, &dx));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, node->name, run_norm_gradient,
                            (int[]){dy, record->source, record->moments, sums, scale, dx}, 6,
                            &step));
    step->columns = columns;
    return sy_cutr_diff_end(t, node->inputs[0], dx);
}

/* ---- shapes ------------------------------------------------------------------------------------------- */

static int shape_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int64_t dims[SY_MAX_RANK];
    int rank = sy_cutr_dims(t, node->outputs[0], dims), plain;
    SY_TRY(rank);
    SY_TRY(sy_cutr_operand_typed(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_PLAIN, SY_DTYPE_NONE,
                                 &plain));
    return sy_cutr_view(t, plain, rank, dims, false, 0, &t->tensors[node->outputs[0]].value);
}

static int shape_backward(struct sy_trainer *t, int n, int gradient)
{
    int plain;
    SY_TRY(sy_cutr_as_typed(t, SY_CUTR_TRAIN, gradient, false, SY_DTYPE_NONE, &plain));
    return sy_cutr_diff_end(t, t->graph->nodes[n].inputs[0], plain);
}

static int same_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    return sy_cutr_operand_typed(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_ANY, SY_DTYPE_NONE,
                                 &t->tensors[node->outputs[0]].value);
}

static int same_backward(struct sy_trainer *t, int n, int gradient)
{
    return sy_cutr_diff_end(t, t->graph->nodes[n].inputs[0], gradient);
}

/* ---- the table ---------------------------------------------------------------------------------------- */

#define BY(name) sy_cutr_##name##_forward, sy_cutr_##name##_backward

static const struct sy_gradient_steps gradients[SY_GRADIENT_COUNT] = {
    [SY_GRADIENT_CONV] = {BY(conv)},
    [SY_GRADIENT_BATCH_NORM] = {norm_forward, norm_backward},
    [SY_GRADIENT_ACTIVATION] = {activation_forward, activation_backward},
    [SY_GRADIENT_CURVE] = {BY(curve)},
    [SY_GRADIENT_CHAIN] = {activation_forward, activation_backward},
    [SY_GRADIENT_PAIR] = {BY(pair)},
    [SY_GRADIENT_ADD] = {BY(pair)},
    [SY_GRADIENT_POOL] = {BY(pool)},
    [SY_GRADIENT_PRODUCT] = {BY(matmul)},
    [SY_GRADIENT_SOFTMAX] = {BY(softmax)},
    [SY_GRADIENT_ROWS] = {BY(rows)},
    [SY_GRADIENT_REDUCE] = {BY(reduce)},
    [SY_GRADIENT_GATHER] = {BY(gather)},
    [SY_GRADIENT_MOVE] = {BY(move)},
    [SY_GRADIENT_VIEW] = {shape_forward, shape_backward},
    [SY_GRADIENT_IDENTITY] = {same_forward, same_backward},
    [SY_GRADIENT_DROPOUT] = {BY(dropout)},
    [SY_GRADIENT_CAST] = {BY(cast)},
    [SY_GRADIENT_PAD] = {BY(pad)},
    [SY_GRADIENT_WHERE] = {BY(where)},
    [SY_GRADIENT_COMPARE] = {sy_cutr_compare_forward, sy_cutr_no_backward},
    [SY_GRADIENT_ATTENTION] = {BY(attention)},
    [SY_GRADIENT_STEP] = {sy_cutr_formula_forward, sy_cutr_no_backward},
    [SY_GRADIENT_TILE] = {BY(tile)},
    [SY_GRADIENT_TRIANGLE] = {BY(formula)},
    [SY_GRADIENT_BLOCKS] = {BY(move)},
    [SY_GRADIENT_DECONV] = {BY(deconv)},
    [SY_GRADIENT_RECURRENT] = {BY(recurrent)},
};

const struct sy_gradient_steps *sy_cutr_gradient_of(enum sy_op op)
{
    return sy_gradient_steps_of(gradients, op);
}
