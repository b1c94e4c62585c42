/* Operands of the layer being built: its inputs in the form that is asked for, its outputs. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"

static const struct sy_param *find_param(const struct sy_program *p, int input)
{
    return sy_layer_param(&p->layers[p->layer], input);
}

bool sy_cuda_is_param(const struct sy_program *p, int input)
{
    return find_param(p, input) != NULL;
}

/* Refuses parameters of a damaged package: nothing is read outside of the layer's bytes. */
static int check_param(const struct sy_program *p, const struct sy_param *param, uint64_t needed)
{
    const struct sy_node *node = sy_cuda_node(p);
    uint32_t wanted = sy_cuda_layout_of(p->graph, node, param->input);
    uint64_t end = p->layers[p->layer].bytes;
    uint32_t layout = SY_CUDA_AS_IS;
    if (param->layout_bytes == sizeof layout)
        memcpy(&layout, param->layout, sizeof layout);
    bool layout_fits =
        param->layout_bytes == (wanted == SY_CUDA_AS_IS ? 0 : sizeof layout) && layout == wanted;
    bool aligned = param->offset_bytes % SY_PARAM_ALIGN == 0;
    if (layout_fits && aligned && param->bytes == needed && param->offset_bytes <= end &&
        param->bytes <= end - param->offset_bytes)
        return SY_OK;
    return sy_error_set(SY_ECORRUPT,
                        "node %s: input %d: %llu bytes at %llu of a layer of %llu in layout %u, "
                        "%llu needed in layout %u",
                        node->name, param->input, (unsigned long long)param->bytes,
                        (unsigned long long)param->offset_bytes, (unsigned long long)end,
                        (unsigned)layout, (unsigned long long)needed, (unsigned)wanted);
}

static int param_value(struct sy_program *p, int input, int *out)
{
    const struct sy_param *param = find_param(p, input);
    int tensor = sy_cuda_node(p)->inputs[input];
    enum sy_dtype dtype = p->graph->tensors[tensor].dtype;
    if (sy_cuda_packs_narrow(p->graph, sy_cuda_node(p), input))
        dtype = p->narrow;
    SY_TRY(sy_cuda_new_as(p, tensor, dtype, false, out));
    struct sy_cuda_value *v = &p->values[*out];
    SY_TRY(check_param(p, param, v->bytes));
    v->place = SY_CUDA_PARAMS;
    v->layer = p->layer;
    v->offset = param->offset_bytes;
    return SY_OK;
}

int sy_cuda_input(struct sy_program *p, int input, int *out)
{
    const struct sy_node *node = sy_cuda_node(p);
    if (input >= node->n_inputs || node->inputs[input] < 0)
        return sy_error_set(SY_ECORRUPT, "node %s: %s without its input %d", node->name,
                            sy_op_name(node->op), input);
    int tensor = node->inputs[input];
    if (find_param(p, input))
        return param_value(p, input, out);
    if (p->native[tensor] < 0)
        return sy_error_set(SY_ECORRUPT, "node %s: input %s is not computed before it", node->name,
                            p->graph->tensors[tensor].name);
    *out = p->native[tensor];
    sy_cuda_touch(p, *out);
    return SY_OK;
}

static int form_of(bool channels_last, bool narrow)
{
    return (channels_last ? 1 : 0) + (narrow ? 2 : 0);
}

int sy_cuda_input_as(struct sy_program *p, int input, bool channels_last, bool narrow, int *out)
{
    int from;
    SY_TRY(sy_cuda_input(p, input, &from));
    int tensor = sy_cuda_node(p)->inputs[input];
    enum sy_dtype own = p->graph->tensors[tensor].dtype,
                  dtype = narrow && own == SY_DTYPE_F32 ? p->narrow : own;
    *out = from;
    if (p->values[from].channels_last == channels_last && p->values[from].dtype == dtype)
        return SY_OK;
    bool is_param = sy_cuda_is_param(p, input);
    int *form = &p->forms[tensor][form_of(channels_last, dtype != own)];
    if (!is_param && *form >= 0) {
        *out = *form;
        sy_cuda_touch(p, *out);
        return SY_OK;
    }
    SY_TRY(sy_cuda_new_as(p, tensor, dtype, channels_last, out));
    SY_TRY(sy_cuda_add_reorder(p, from, *out));
    if (!is_param)
        *form = *out;
    return SY_OK;
}

int sy_cuda_input_plain(struct sy_program *p, int input, int *out)
{
    return sy_cuda_input_as(p, input, false, false, out);
}

static bool is_narrow(const struct sy_program *p, int input, int value)
{
    return p->values[value].dtype != sy_cuda_input_tensor(p, input)->dtype;
}

int sy_cuda_input_rows(struct sy_program *p, int input, int *out)
{
    int from;
    SY_TRY(sy_cuda_input(p, input, &from));
    return sy_cuda_input_as(p, input, false, is_narrow(p, input, from), out);
}

int sy_cuda_input_wide(struct sy_program *p, int input, int *out)
{
    int from;
    SY_TRY(sy_cuda_input(p, input, &from));
    return sy_cuda_input_as(p, input, p->values[from].channels_last, false, out);
}

void sy_cuda_set_output(struct sy_program *p, int output, int value)
{
    p->native[sy_cuda_node(p)->outputs[output]] = value;
}

int sy_cuda_output_as(struct sy_program *p, int output, enum sy_dtype dtype, bool channels_last,
                      int *out)
{
    SY_TRY(sy_cuda_new_as(p, sy_cuda_node(p)->outputs[output], dtype, channels_last, out));
    sy_cuda_set_output(p, output, *out);
    return SY_OK;
}

int sy_cuda_output(struct sy_program *p, int output, bool channels_last, int *out)
{
    int tensor = sy_cuda_node(p)->outputs[output];
    return sy_cuda_output_as(p, output, p->graph->tensors[tensor].dtype, channels_last, out);
}

int sy_cuda_output_over(struct sy_program *p, int input, int value, enum sy_dtype dtype, int *out)
{
    bool channels_last = p->values[value].channels_last;
    if (p->values[value].dtype != dtype || !sy_cuda_is_last_use(p, input, value))
        return sy_cuda_output_as(p, 0, dtype, channels_last, out);
    SY_TRY(sy_cuda_new_alias(p, value, sy_cuda_node(p)->outputs[0], channels_last, out));
    sy_cuda_set_output(p, 0, *out);
    return SY_OK;
}

/* Whether a tensor that is still to be read (or read by another input of this node) has these bytes. */
static bool is_needed(const struct sy_program *p, int tensor, int root, int but_input)
{
    bool here = p->native[tensor] >= 0 && p->values[p->native[tensor]].root == root;
    for (int f = 0; f < SY_CUDA_FORMS; f++)
        here = here || (p->forms[tensor][f] >= 0 && p->values[p->forms[tensor][f]].root == root);
    return here && sy_tensor_is_needed(sy_cuda_node(p), tensor, but_input, p->last_use, p->layer);
}

bool sy_cuda_is_last_use(const struct sy_program *p, int input, int value)
{
    const struct sy_cuda_value *v = &p->values[value];
    if (v->place != SY_CUDA_WORKSPACE)
        return false;
    for (int t = 0; t < p->graph->n_tensors; t++)
        if (is_needed(p, t, v->root, input))
            return false;
    return true;
}
