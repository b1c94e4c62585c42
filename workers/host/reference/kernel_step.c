/* A kernel as a step of a program. */
#include "runtime/base/status.h"
#include "workers/host/program/program_internal.h"
#include "workers/host/reference/kernel.h"

static struct sy_array describe(const struct sy_program *p, int value, bool with_data)
{
    struct sy_array a = {.dtype = SY_DTYPE_NONE};
    if (value < 0)
        return a;
    const struct sy_value *v = &p->values[value];
    a = (struct sy_array){.dtype = v->dtype, .rank = v->rank, .n = 1};
    for (int i = 0; i < v->rank; i++) {
        a.dims[i] = v->dims[i];
        a.n *= v->dims[i];
    }
    if (with_data)
        a.data = sy_program_pointer(p, value);
    return a;
}

/* Row-major as [batch, ..., channels]. */
static void move_channels(struct sy_array *a)
{
    int64_t channels = a->dims[1];
    for (int d = 1; d + 1 < a->rank; d++)
        a->dims[d] = a->dims[d + 1];
    a->dims[a->rank - 1] = channels;
}

static double activate(const struct sy_node *node, double x)
{
    switch (node->activation) {
    case SY_ACT_RELU:
        return x < 0 ? 0 : x;
    case SY_ACT_GELU_ERF:
        return 0.5 * x * (1 + erf(x * 0.7071067811865476));
    case SY_ACT_TANH:
        return tanh(x);
    case SY_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case SY_ACT_CLIP:
        return fmin(fmax(x, (double)node->act_alpha), (double)node->act_beta);
    case SY_ACT_SWISH:
        return x / (1 + exp(-(double)node->act_alpha * x));
    case SY_ACT_HARD_SWISH:
        return x * fmin(fmax(x / 6 + 0.5, 0), 1);
    case SY_ACT_NONE:
        break;
    }
    return x;
}

/* Applies what passes fused to the node: a residual of the result's shape, an activation. */
static void finish(const struct sy_call *call, const struct sy_array *residual)
{
    const struct sy_array *y = &call->out[0];
    if (!residual && call->node->activation == SY_ACT_NONE)
        return;
    for (int64_t i = 0; i < y->n; i++)
        sy_put(y, i, activate(call->node, sy_get(y, i) + (residual ? sy_get(residual, i) : 0)));
}

static int run_kernel(struct sy_program *p, struct sy_step *step)
{
    struct sy_call call = {.node = step->node,
                           .n_in = (int)step->numbers[0],
                           .n_out = (int)step->numbers[1],
                           .channels_last = step->numbers[2] != 0,
                           .state = step->state};
    const struct sy_step_arg *args = step->args;
    for (int i = 0; i < call.n_in; i++)
        call.in[i] = describe(p, args[i].value, true);
    for (int i = 0; i < call.n_out; i++)
        call.out[i] = describe(p, args[call.n_in + i].value, true);
    if (call.channels_last) {
        move_channels(&call.in[0]);
        move_channels(&call.out[0]);
    }
    int scratch = args[call.n_in + call.n_out].value;
    call.scratch = scratch >= 0 ? sy_program_pointer(p, scratch) : NULL;
    int side = args[call.n_in + call.n_out + 1].value;
    struct sy_array residual = describe(p, side, side >= 0);
    SY_TRY(step->kernel->run(&call));
    finish(&call, side >= 0 ? &residual : NULL);
    return SY_OK;
}

/* Images as convolutions leave them, and nothing that would have to be so, too. Fills in input 0 and output 0. */
static int take_channels_last(struct sy_program *p, struct sy_call *call, int *in, int *out)
{
    const struct sy_node *node = call->node;
    dnnl_memory_desc_t md;
    dnnl_dims_t dims = {0};
    *in = p->native[node->inputs[0]];
    call->channels_last = false;
    if (*in < 0 || p->values[*in].rank != 4 || p->values[*in].md.ndims != 4 ||
        p->values[*in].dtype != SY_DTYPE_F32 || sy_program_is_plain(&p->values[*in]) ||
        sy_value_is_narrow(&p->values[*in]) || node->residual_input >= 0 ||
        p->graph->tensors[node->outputs[0]].shape.rank != 4)
        return SY_OK;
    memcpy(dims, p->values[*in].dims, 4 * sizeof *dims);
    SY_DNNL(dnnl_memory_desc_init_by_tag(&md, 4, dims, dnnl_f32, dnnl_nhwc), node->name);
    if (!dnnl_memory_desc_equal(&md, &p->values[*in].md))
        return SY_OK;
    SY_TRY(sy_program_input_native(p, 0, in));
    sy_program_dims(p, node->outputs[0], dims);
    SY_DNNL(dnnl_memory_desc_init_by_tag(&md, 4, dims, dnnl_f32, dnnl_nhwc), node->name);
    SY_TRY(sy_program_new_laid_out(p, node->outputs[0], &md, out));
    sy_program_set_output(p, 0, *out);
    call->channels_last = true;
    call->in[0] = describe(p, *in, false);
    call->out[0] = describe(p, *out, false);
    move_channels(&call->in[0]);
    move_channels(&call->out[0]);
    return SY_OK;
}

/* Values of all operands into ids: inputs, outputs, scratch. */
static int take_values(struct sy_program *p, struct sy_call *call, int *ids)
{
    const struct sy_node *node = call->node;
    if (sy_kernel_find(node->op)->types[0] & SY_LAST_TOO && !sy_program_is_param(p, 0))
        SY_TRY(take_channels_last(p, call, &ids[0], &ids[call->n_in]));
    for (int i = call->channels_last; i < call->n_in; i++) {
        ids[i] = -1;
        if (node->inputs[i] >= 0)
            SY_TRY(sy_program_input_plain(p, i, &ids[i]));
        call->in[i] = describe(p, ids[i], false);
    }
    for (int i = call->channels_last; i < call->n_out; i++) {
        int *id = &ids[call->n_in + i];
        *id = -1;
        if (node->outputs[i] >= 0)
            SY_TRY(sy_program_output_plain(p, i, id));
        call->out[i] = describe(p, *id, false);
    }
    return SY_OK;
}

/* The residual is the last input, and no business of the kernel. */
static int take_residual(struct sy_program *p, const struct sy_call *call, int *id)
{
    const struct sy_node *node = call->node;
    if (node->residual_input != node->n_inputs - 1 || node->inputs[node->residual_input] < 0)
        return sy_unsupported(node, "a residual that is not the last input");
    SY_TRY(sy_program_input_plain(p, node->residual_input, id));
    struct sy_array residual = describe(p, *id, false);
    if (!sy_array_same_dims(&residual, &call->out[0]))
        return sy_unsupported(node, "a residual of another shape");
    return SY_OK;
}

int sy_program_add_kernel(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_kernel *kernel = sy_kernel_find(node->op);
    struct sy_call call = {.node = node,
                           .n_in = node->n_inputs - (node->residual_input >= 0),
                           .n_out = node->n_outputs};
    int ids[SY_KERNEL_INPUTS + SY_KERNEL_OUTPUTS + 2], n = call.n_in + call.n_out;
    if (!kernel || call.n_in > SY_KERNEL_INPUTS || call.n_out > SY_KERNEL_OUTPUTS)
        return sy_unsupported(node, "these element types, or so many inputs and outputs");
    if (call.n_in < 1 || node->inputs[0] < 0 || call.n_out < 1 ||
        (node->outputs[0] < 0 && !(kernel->types[0] & SY_NO_OUTPUT)))
        return sy_unsupported(node, "a first input or output that is left out");
    ids[n] = ids[n + 1] = -1;
    SY_TRY(take_values(p, &call, ids));
    if (node->residual_input >= 0)
        SY_TRY(take_residual(p, &call, &ids[n + 1]));
    SY_TRY(sy_kernel_check_types(kernel, &call));
    if (kernel->check)
        SY_TRY(kernel->check(&call));

    if (kernel->scratch) {
        int64_t bytes = kernel->scratch(&call);
        SY_TRY(sy_program_new_value(p, SY_DTYPE_U8, 1, &bytes, &ids[n]));
    }
    struct sy_step *step = sy_program_add_step(p, run_kernel, n + 2);
    SY_TRY_ALLOC(step, "no memory for a step");
    for (int i = 0; i <= n + 1; i++)
        sy_step_set(p, step, i, 0, ids[i]);
    step->kernel = kernel;
    step->node = node;
    for (const struct sy_kernel_state *s = sy_kernel_states; s->prepare; s++)
        if (s->op == node->op) {
            SY_TRY(s->prepare(&call, &step->state));
            step->free_state = s->drop;
        }
    return sy_step_set_numbers(step, (int64_t[]){call.n_in, call.n_out, call.channels_last}, 3);
}
