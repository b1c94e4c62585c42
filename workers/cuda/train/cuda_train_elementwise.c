/* Operators of one element: curves of one input, two inputs with numpy's broadcasting, choices, casts, dropout. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"
#include "workers/cuda/train/cuda_train.h"

/* ---- one input ---------------------------------------------------------------------------------------- */

/* args: x, y */
static int run_curve(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->train->curve(t->math, &step->curve, sy_cutr_pointer(t, step->args[0]),
                                sy_cutr_pointer(t, step->args[1]));
}

/* args: x, y, dy, dx */
static int run_curve_gradient(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->train->curve_gradient(
        t->math, &step->curve, sy_cutr_pointer(t, step->args[0]), sy_cutr_pointer(t, step->args[1]),
        sy_cutr_pointer(t, step->args[2]), sy_cutr_pointer(t, step->args[3]));
}

static int add_curve(struct sy_trainer *t, unsigned when, int n, sy_cutr_run run, const int *args,
                     int n_args)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_step *step;
    SY_TRY(sy_cutr_step_new(t, when, node->name, run, args, n_args, &step));
    sy_curve_read(node, &step->curve.of);
    step->curve.n = sy_cutr_elements(t, node->outputs[0]);
    return SY_OK;
}

int sy_cutr_curve_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int x, y;
    if (t->graph->tensors[node->outputs[0]].dtype != SY_DTYPE_F32)
        return sy_cutr_refuse(node, "of a type other than float32");
    SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_ANY, &x));
    SY_TRY(sy_cutr_result(t, node->outputs[0], t->values[x].last, &y));
    t->nodes[n].source = x;
    return add_curve(t, SY_CUTR_FORWARD, n, run_curve, (int[]){x, y}, 2);
}

int sy_cutr_curve_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int x = t->nodes[n].source, y = t->tensors[node->outputs[0]].value, dy, dx;
    bool last = t->values[x].last;
    SY_TRY(sy_cutr_as(t, SY_CUTR_TRAIN, gradient, last, &dy));
    SY_TRY(sy_cutr_diff_begin(t, node->inputs[0], last, &dx));
    SY_TRY(add_curve(t, SY_CUTR_TRAIN, n, run_curve_gradient, (int[]){x, y, dy, dx}, 4));
    return sy_cutr_diff_end(t, node->inputs[0], dx);
}

/* ---- two inputs --------------------------------------------------------------------------------------- */

/* Strides of a tensor seen with the result's dims, 0 where it is repeated. */
static void spread(const struct sy_trainer *t, int tensor, int rank, int64_t *strides)
{
    int64_t dims[SY_MAX_RANK], stride = 1;
    int own = sy_cutr_dims(t, tensor, dims);
    for (int i = 0; i < rank; i++)
        strides[i] = 0;
    for (int i = own - 1; i >= 0; i--) {
        strides[i + rank - own] = dims[i] == 1 ? 0 : stride;
        stride *= dims[i];
    }
}

static int describe_pair(const struct sy_trainer *t, const struct sy_node *node,
                         struct sy_math_pair *p)
{
    int64_t out[SY_MAX_RANK];
    p->op = node->op;
    p->rank = sy_cutr_dims(t, node->outputs[0], p->dims);
    SY_TRY(p->rank);
    sy_row_major_strides(p->rank, p->dims, out);
    spread(t, node->inputs[0], p->rank, p->a_strides);
    spread(t, node->inputs[1], p->rank, p->b_strides);
    p->rank = sy_cuda_collapse(p->rank, p->dims, (int64_t *[]){out, p->a_strides, p->b_strides}, 3);
    return SY_OK;
}

/* args: a, b, y */
static int run_pair(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->train->pair(t->math, &step->pair, sy_cutr_pointer(t, step->args[0]),
                               sy_cutr_pointer(t, step->args[1]),
                               sy_cutr_pointer(t, step->args[2]));
}

/* args: a, b, y */
static int run_compare(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->train->compare(t->math, &step->pair, sy_cutr_pointer(t, step->args[0]),
                                  sy_cutr_pointer(t, step->args[1]),
                                  sy_cutr_pointer(t, step->args[2]));
}

/* args: a, b, dy, d */
static int run_pair_gradient(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->train->pair_gradient(
        t->math, &step->pair, step->which, sy_cutr_pointer(t, step->args[0]),
        sy_cutr_pointer(t, step->args[1]), sy_cutr_pointer(t, step->args[2]),
        sy_cutr_pointer(t, step->args[3]));
}

static int residual_forward(struct sy_trainer *t, const struct sy_node *node)
{
    const struct sy_math_chain sum = {
        .n_inputs = 2, .n_steps = 2, .steps = {{SY_CHAIN_LOAD, 0, 0, 0}, {SY_CHAIN_ADD, 1, 0, 0}}};
    int a = t->tensors[node->inputs[0]].value, b, out;
    bool last = t->values[a].last;
    SY_TRY(sy_cutr_as_typed(t, SY_CUTR_FORWARD, t->tensors[node->inputs[1]].value, last,
                            SY_DTYPE_NONE, &b));
    SY_TRY(sy_cutr_result_typed(t, node->outputs[0], last, sy_cutr_common_type(t, (int[]){a, b}, 2),
                                &out));
    return sy_cutr_chain(t, SY_CUTR_FORWARD, node->name, &sum, (int[]){a, b},
                         (bool[]){false, false}, 1, out);
}

static int two_forward(struct sy_trainer *t, const struct sy_node *node, sy_cutr_run run)
{
    struct sy_cutr_step *step;
    int a, b, y;
    for (int i = 0; i < node->n_inputs; i++)
        if (node->n_inputs != 2 || t->graph->tensors[node->inputs[i]].dtype != SY_DTYPE_F32)
            return sy_cutr_refuse(node, "other than two inputs of float32");
    SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_PLAIN, &a));
    SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[1], SY_CUTR_PLAIN, &b));
    SY_TRY(sy_cutr_result(t, node->outputs[0], false, &y));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_FORWARD, node->name, run, (int[]){a, b, y}, 3, &step));
    return describe_pair(t, node, &step->pair);
}

int sy_cutr_pair_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    if (sy_train_adds_results(t->graph, node))
        return residual_forward(t, node);
    return two_forward(t, node, run_pair);
}

int sy_cutr_compare_forward(struct sy_trainer *t, int n)
{
    return two_forward(t, &t->graph->nodes[n], run_compare);
}

/* An input's gradient at each element of the result, then summed over its broadcast dimensions. */
static int pair_side(struct sy_trainer *t, const struct sy_node *node, int which, int dy)
{
    struct sy_cutr_step *step;
    int64_t dims[SY_MAX_RANK];
    int rank = sy_cutr_dims(t, node->outputs[0], dims), a, b, full;
    SY_TRY(rank);
    if (node->op == SY_OP_ADD || (node->op == SY_OP_SUB && which == 0))
        return sy_cutr_diff_reduction(t, node->name, node->inputs[which], rank, dims, dy);
    SY_TRY(sy_cutr_operand(t, SY_CUTR_TRAIN, node->inputs[0], SY_CUTR_PLAIN, &a));
    SY_TRY(sy_cutr_operand(t, SY_CUTR_TRAIN, node->inputs[1], SY_CUTR_PLAIN, &b));
    SY_TRY(sy_cutr_value_new(t, rank, dims, false, false, &full));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, node->name, run_pair_gradient,
                            (int[]){a, b, dy, full}, 4, &step));
    SY_TRY(describe_pair(t, node, &step->pair));
    step->which = which;
    return sy_cutr_diff_reduction(t, node->name, node->inputs[which], rank, dims, full);
}

int sy_cutr_pair_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int dy;
    bool residual = sy_train_adds_results(t->graph, node);
    SY_TRY(sy_cutr_as_typed(t, SY_CUTR_TRAIN, gradient, residual && t->values[gradient].last,
                            residual ? SY_DTYPE_NONE : SY_DTYPE_F32, &dy));
    for (int i = 0; i < 2; i++)
        if (sy_cutr_needs(t, node->inputs[i]))
            SY_TRY(residual ? sy_cutr_diff_end(t, node->inputs[i], dy) : pair_side(t, node, i, dy));
    return SY_OK;
}

/* ---- Where -------------------------------------------------------------------------------------------- */

/* args: pick, a, b, out */
static int run_where(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->where(t->math, &step->choice, sy_cutr_pointer(t, step->args[0]),
                         sy_cutr_pointer(t, step->args[1]), sy_cutr_pointer(t, step->args[2]),
                         sy_cutr_pointer(t, step->args[3]));
}

static int add_where(struct sy_trainer *t, unsigned when, const struct sy_node *node,
                     const int *args, struct sy_math_choice **out)
{
    struct sy_cutr_step *step;
    SY_TRY(sy_cutr_step_new(t, when, node->name, run_where, args, 4, &step));
    struct sy_math_choice *c = *out = &step->choice;
    c->dtype = t->graph->tensors[node->outputs[0]].dtype;
    c->rank = sy_cutr_dims(t, node->outputs[0], c->dims);
    SY_TRY(c->rank);
    sy_row_major_strides(c->rank, c->dims, c->out_strides);
    for (int i = 0; i < 3; i++)
        spread(t, node->inputs[i], c->rank, c->in_strides[i]);
    return SY_OK;
}

int sy_cutr_where_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_math_choice *choice;
    int args[4];
    for (int i = 0; i < 3; i++)
        SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[i], SY_CUTR_PLAIN, &args[i]));
    SY_TRY(sy_cutr_result(t, node->outputs[0], false, &args[3]));
    return add_where(t, SY_CUTR_FORWARD, node, args, &choice);
}

int sy_cutr_where_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_math_choice *choice;
    int64_t dims[SY_MAX_RANK];
    int rank = sy_cutr_dims(t, node->outputs[0], dims), pick, dy, zero, full;
    SY_TRY(rank);
    SY_TRY(sy_cutr_operand(t, SY_CUTR_TRAIN, node->inputs[0], SY_CUTR_PLAIN, &pick));
    SY_TRY(sy_cutr_as(t, SY_CUTR_TRAIN, gradient, false, &dy));
    SY_TRY(sy_cutr_value_new(t, 1, (int64_t[]){1}, false, false, &zero));
    SY_TRY(sy_cutr_fill(t, SY_CUTR_TRAIN, node->name, zero, 0));
    for (int i = 1; i < 3; i++) {
        if (!sy_cutr_needs(t, node->inputs[i]))
            continue;
        SY_TRY(sy_cutr_value_new(t, rank, dims, false, false, &full));
        int args[4] = {pick, i == 1 ? dy : zero, i == 1 ? zero : dy, full};
        SY_TRY(add_where(t, SY_CUTR_TRAIN, node, args, &choice));
        sy_row_major_strides(rank, dims, choice->in_strides[i]);
        memset(choice->in_strides[3 - i], 0, sizeof choice->in_strides[0]);
        SY_TRY(sy_cutr_diff_reduction(t, node->name, node->inputs[i], rank, dims, full));
    }
    return SY_OK;
}

/* ---- Cast --------------------------------------------------------------------------------------------- */

/* args: from, to */
static int run_cast(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->cast(t->math, t->values[step->args[0]].dtype, t->values[step->args[1]].dtype,
                        step->n, sy_cutr_pointer(t, step->args[0]),
                        sy_cutr_pointer(t, step->args[1]));
}

static bool can_cast(enum sy_dtype dtype)
{
    return dtype == SY_DTYPE_F32 || dtype == SY_DTYPE_I32 || dtype == SY_DTYPE_I64 ||
           dtype == SY_DTYPE_BOOL;
}

int sy_cutr_cast_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    const struct sy_tensor *x = t->graph->tensors;
    struct sy_cutr_step *step;
    int from, to;
    SY_TRY(sy_cutr_operand_typed(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_PLAIN, SY_DTYPE_NONE,
                                 &from));
    if (x[node->inputs[0]].dtype == x[node->outputs[0]].dtype) {
        t->tensors[node->outputs[0]].value = from;
        return SY_OK;
    }
    if (!can_cast(x[node->inputs[0]].dtype) || !can_cast(x[node->outputs[0]].dtype))
        return sy_cutr_refuse(node, "between these types");
    SY_TRY(sy_cutr_result(t, node->outputs[0], false, &to));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_FORWARD, node->name, run_cast, (int[]){from, to}, 2, &step));
    step->n = sy_cutr_count(&t->values[to]);
    return SY_OK;
}

int sy_cutr_cast_backward(struct sy_trainer *t, int n, int gradient)
{
    int input = t->graph->nodes[n].inputs[0];
    return t->graph->tensors[input].dtype == SY_DTYPE_F32 ? sy_cutr_diff_end(t, input, gradient)
                                                          : SY_OK;
}

/* ---- Dropout ------------------------------------------------------------------------------------------ */

/* args: x, y */
static int run_drop(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    struct sy_math_drop drop = step->drop;
    drop.batch = t->draw;
    return t->ops->train->drop(t->math, &drop, sy_cutr_pointer(t, step->args[0]),
                               sy_cutr_pointer(t, step->args[1]));
}

static int run_copy(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->copy(t->math, sy_cutr_pointer(t, step->args[0]),
                        sy_cutr_pointer(t, step->args[1]), (uint64_t)step->n);
}

/* Forward of the values, backward of their gradients: the same. */
static int add_drop(struct sy_trainer *t, int n, int from, int to)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_step *step;
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_TRAIN, node->name, run_drop, (int[]){from, to}, 2, &step));
    step->drop = (struct sy_math_drop){.seed = t->options.seed,
                                       .node = (uint32_t)sy_node_int(node, "number", n),
                                       .ratio = sy_node_float(node, "ratio", 0.0f),
                                       .n = sy_cutr_count(&t->values[to])};
    return SY_OK;
}

int sy_cutr_dropout_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_cutr_step *step;
    float ratio = sy_node_float(node, "ratio", 0.0f);
    int x, y;
    if (!(ratio >= 0.0f && ratio < 1.0f))
        return sy_cutr_refuse(node, "a ratio that is not from 0 up to below 1");
    SY_TRY(sy_cutr_operand_typed(t, SY_CUTR_FORWARD, node->inputs[0],
                                 ratio > 0.0f ? SY_CUTR_PLAIN : SY_CUTR_ANY,
                                 ratio > 0.0f ? SY_DTYPE_F32 : SY_DTYPE_NONE, &x));
    if (ratio == 0.0f) {
        t->tensors[node->outputs[0]].value = x;
        return SY_OK;
    }
    SY_TRY(sy_cutr_result(t, node->outputs[0], false, &y));
    SY_TRY(add_drop(t, n, x, y));
    SY_TRY(sy_cutr_step_new(t, SY_CUTR_EVALUATE, node->name, run_copy, (int[]){x, y}, 2, &step));
    step->n = (int64_t)sy_cutr_value_bytes(t, y);
    return SY_OK;
}

int sy_cutr_dropout_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    int dy, dx;
    if (sy_node_float(node, "ratio", 0.0f) == 0.0f)
        return sy_cutr_diff_end(t, node->inputs[0], gradient);
    SY_TRY(sy_cutr_as(t, SY_CUTR_TRAIN, gradient, false, &dy));
    SY_TRY(sy_cutr_diff_begin(t, node->inputs[0], false, &dx));
    SY_TRY(add_drop(t, n, dy, dx));
    return sy_cutr_diff_end(t, node->inputs[0], dx);
}
