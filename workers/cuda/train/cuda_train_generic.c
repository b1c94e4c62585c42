/* Operators without training steps of their own: forward by formula for each element (generic.h), of any type. Backward of Trilu, which is itself, and
 * of Pad in the modes that repeat elements; nothing else here has a gradient. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "workers/cuda/train/cuda_train.h"

static void describe_array(const struct sy_trainer *t, int tensor, struct sy_generic_array *out)
{
    *out = (struct sy_generic_array){.dtype = SY_DTYPE_NONE};
    if (tensor < 0)
        return;
    out->rank = sy_cutr_dims(t, tensor, out->dims);
    out->dtype = t->graph->tensors[tensor].dtype;
}

/* args: inputs, then results, -1 where there is none */
static int run_each(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    struct sy_cutr_news *news = (struct sy_cutr_news *)(void *)(t->host + t->host_loss);
    void *at[SY_GENERIC_ARRAYS];
    for (int i = 0; i < SY_GENERIC_ARRAYS; i++)
        at[i] = sy_cutr_pointer(t, step->args[i]);
    if (step->copies_first)
        SY_TRY(t->ops->copy(t->math, at[0], at[SY_GENERIC_IN],
                            sy_cutr_value_bytes(t, step->args[SY_GENERIC_IN])));
    return t->ops->each(t->math, step->formula, at, &news->fault);
}

static int add_each(struct sy_trainer *t, unsigned when, const struct sy_node *node,
                    const int *args, const struct sy_math_generic *each, bool copies_first)
{
    struct sy_cutr_step *step;
    SY_TRY(sy_cutr_step_new(t, when, node->name, run_each, args, SY_GENERIC_ARRAYS, &step));
    step->n_results = SY_GENERIC_ARRAYS - SY_GENERIC_IN;
    step->formula = each;
    step->copies_first = copies_first;
    return SY_OK;
}

/* Kept until the trainer goes: steps, and those that are made of them, borrow it. */
static int new_each(struct sy_trainer *t, const struct sy_node *node, struct sy_math_generic **out,
                    bool *copies_first)
{
    struct sy_math_generic **kept = sy_append(&t->formulas, &t->n_formulas, sizeof *kept);
    struct sy_math_generic *each = kept ? calloc(1, sizeof *each) : NULL;
    SY_TRY_ALLOC(each, "node %s: no memory for its step", node->name);
    *out = *kept = each;
    if (node->n_inputs < 1 || node->n_inputs > SY_GENERIC_IN || node->n_outputs > SY_GENERIC_OUT)
        return sy_cutr_refuse(node, "so many inputs and outputs");
    each->n_in = node->n_inputs;
    each->n_out = node->n_outputs;
    each->step = node - t->graph->nodes + 1;
    for (int i = 0; i < node->n_inputs; i++)
        describe_array(t, node->inputs[i], &each->at[i]);
    for (int i = 0; i < node->n_outputs; i++)
        describe_array(t, node->outputs[i], &each->at[SY_GENERIC_IN + i]);
    SY_TRY(sy_generic_describe(node, each, copies_first));
    bool needs_room = each->at[SY_GENERIC_ROOM].dtype != SY_DTYPE_NONE;
    return needs_room ? sy_cutr_refuse(node, "what needs memory of its own") : SY_OK;
}

int sy_cutr_formula_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_math_generic *each;
    bool copies_first;
    int args[SY_GENERIC_ARRAYS];
    memset(args, 0xff, sizeof args);
    SY_TRY(new_each(t, node, &each, &copies_first));
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0)
            SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[i], SY_CUTR_PLAIN, &args[i]));
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0)
            SY_TRY(sy_cutr_result(t, node->outputs[i], false, &args[SY_GENERIC_IN + i]));
    return add_each(t, SY_CUTR_FORWARD, node, args, each, copies_first);
}

int sy_cutr_no_backward(struct sy_trainer *t, int n, int gradient)
{
    (void)t;
    (void)n;
    (void)gradient;
    return SY_OK;
}

/* Trilu: the same of the gradient. Pad: from dy, in the place of the second input, to dx; the first says only its shape. */
int sy_cutr_formula_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    bool copies_first, pads = node->op == SY_OP_PAD;
    struct sy_math_generic *each;
    int args[SY_GENERIC_ARRAYS], dx, dy;
    memset(args, 0xff, sizeof args);
    SY_TRY(new_each(t, node, &each, &copies_first));
    SY_TRY(sy_cutr_as(t, SY_CUTR_TRAIN, gradient, false, &dy));
    SY_TRY(sy_cutr_diff_begin(t, node->inputs[0], false, &dx));
    args[pads] = dy;
    args[SY_GENERIC_IN] = dx;
    if (pads) {
        each->kind = SY_GENERIC_PAD_BACK;
        each->at[1] = each->at[SY_GENERIC_IN];
        each->at[SY_GENERIC_IN] = each->at[0];
        each->items = each->at[0].n;
    } else if (sy_node_input(node, 1) >= 0) {
        SY_TRY(sy_cutr_operand(t, SY_CUTR_TRAIN, node->inputs[1], SY_CUTR_PLAIN, &args[1]));
    }
    SY_TRY(add_each(t, SY_CUTR_TRAIN, node, args, each, copies_first));
    return sy_cutr_diff_end(t, node->inputs[0], dx);
}

/* Pads that are no move into a filled result: another mode, negative pads, another type. */
static bool pads_by_formula(const struct sy_trainer *t, const struct sy_node *node)
{
    const struct sy_attr *pads = sy_node_attr(node, "pads"), *mode = sy_node_attr(node, "mode");
    bool plain = !mode || !mode->s || strcmp(mode->s, "constant") == 0;
    for (int i = 0; pads && i < pads->n; i++)
        plain = plain && pads->ints[i] >= 0;
    return !plain || t->graph->tensors[node->inputs[0]].dtype != SY_DTYPE_F32;
}

int sy_cutr_pad_forward(struct sy_trainer *t, int n)
{
    bool by_formula = pads_by_formula(t, &t->graph->nodes[n]);
    return by_formula ? sy_cutr_formula_forward(t, n) : sy_cutr_move_forward(t, n);
}

int sy_cutr_pad_backward(struct sy_trainer *t, int n, int gradient)
{
    bool by_formula = pads_by_formula(t, &t->graph->nodes[n]);
    return by_formula ? sy_cutr_formula_backward(t, n, gradient)
                      : sy_cutr_move_backward(t, n, gradient);
}
