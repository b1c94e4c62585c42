/* Operands as an operator wants them: row-major, in a layout, widened, as rows; and outputs. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/program/program_internal.h"

static const struct sy_param *find_param(const struct sy_program *p, int input)
{
    return sy_layer_param(&p->layers[p->layer], input);
}

bool sy_program_is_param(const struct sy_program *p, int input)
{
    return find_param(p, input) != NULL;
}

struct sy_captured_param sy_program_param_of(const struct sy_program *p, int input)
{
    const struct sy_param *param = find_param(p, input);
    int tensor = sy_program_node(p)->inputs[input],
        value = param || tensor < 0 ? -1 : p->native[tensor];
    if (param && param->layout_bytes == 0)
        return (struct sy_captured_param){&p->layers[p->layer], param->offset_bytes};
    if (value >= 0 && p->captured && p->values[value].place == SY_IN_INPUT)
        return p->captured[p->values[value].index];
    return (struct sy_captured_param){NULL, 0};
}

int sy_program_stored_param(struct sy_program *p, int input, int *out)
{
    const struct sy_param *param = find_param(p, input);
    const struct sy_node *node = sy_program_node(p);
    if (!param)
        return sy_error_set(SY_ECORRUPT, "node %s: input %d is not among its parameters",
                            node->name, input);
    SY_TRY(sy_program_new_of(p, node->inputs[input], out));
    struct sy_value *v = &p->values[*out];
    v->place = SY_IN_PARAMS;
    v->index = p->layer;
    v->offset = param->offset_bytes;
    if (param->layout_bytes == sizeof v->md)
        memcpy(&v->md, param->layout, sizeof v->md);
    else if (param->layout_bytes != 0)
        return sy_error_set(SY_ECORRUPT, "node %s: layout of input %d has %zu bytes", node->name,
                            input, param->layout_bytes);
    uint64_t needed = param->layout_bytes ? dnnl_memory_desc_get_size(&v->md) : v->bytes;
    uint64_t end = p->layers[p->layer].bytes;
    if (param->bytes < needed || param->offset_bytes > end ||
        param->bytes > end - param->offset_bytes)
        return sy_error_set(SY_ECORRUPT,
                            "node %s: input %d: %llu bytes at %llu of a layer of %llu, %llu needed",
                            node->name, input, (unsigned long long)param->bytes,
                            (unsigned long long)param->offset_bytes, (unsigned long long)end,
                            (unsigned long long)needed);
    v->bytes = param->bytes;
    return SY_OK;
}

int sy_program_param(struct sy_program *p, int input, int *out)
{
    const struct sy_node *node = sy_program_node(p);
    dnnl_memory_desc_t md;
    int stored;
    SY_TRY(sy_program_stored_param(p, input, &stored));
    *out = stored;
    /* Few rows of a table are read, so they are widened after the gather. */
    if (!sy_value_is_narrow(&p->values[stored]) || sy_dnnl_has_bf16() ||
        (node->op == SY_OP_GATHER && input == 0))
        return SY_OK;
    if (!sy_dnnl_widened_md(&p->values[stored].md, &md))
        return sy_error_set(SY_ECORRUPT, "node %s: input %d: a layout of bf16 that has no wide one",
                            node->name, input);
    SY_TRY(sy_program_new_laid_out(p, node->inputs[input], &md, out));
    return sy_program_add_widen(p, stored, *out);
}

int sy_program_constant(struct sy_program *p, int tensor, int *out)
{
    const struct sy_tensor *t = &p->graph->tensors[tensor];
    SY_TRY(sy_program_new_of(p, tensor, out));
    p->values[*out].place = SY_IN_CONSTANT;
    p->values[*out].constant = t->data;
    if (t->dtype != SY_DTYPE_STRING)
        return SY_OK;
    int block = *out;
    SY_TRY(sy_program_take_strings(p, block, tensor, out));
    p->native[tensor] = *out;
    return SY_OK;
}

int sy_program_input_native(struct sy_program *p, int input, int *out)
{
    const struct sy_node *node = sy_program_node(p);
    int tensor = node->inputs[input];
    if (find_param(p, input))
        return sy_program_param(p, input, out);
    if (p->graph->tensors[tensor].data && p->native[tensor] < 0)
        return sy_program_constant(p, tensor, out);
    if (p->native[tensor] < 0)
        return sy_error_set(SY_ECORRUPT, "node %s: input %s is not computed before it", node->name,
                            p->graph->tensors[tensor].name);
    if (p->values[p->native[tensor]].pending)
        SY_TRY(sy_program_fetch(p, tensor));
    *out = p->native[tensor];
    sy_program_touch(p, *out);
    return SY_OK;
}

int sy_program_input_plain(struct sy_program *p, int input, int *out)
{
    int tensor = sy_program_node(p)->inputs[input], from;
    if (tensor >= 0 && p->plain[tensor] >= 0) {
        *out = p->plain[tensor];
        sy_program_touch(p, *out);
        return SY_OK;
    }
    SY_TRY(sy_program_input_native(p, input, &from));
    if (sy_program_is_plain(&p->values[from])) {
        *out = from;
        return SY_OK;
    }
    SY_TRY(sy_program_new_of(p, tensor, out));
    SY_TRY(sy_program_add_reorder(p, from, *out));
    if (!sy_program_is_param(p, input))
        p->plain[tensor] = *out;
    return SY_OK;
}

int sy_program_input_as(struct sy_program *p, int input, const dnnl_memory_desc_t *md, int *out)
{
    int tensor = sy_program_node(p)->inputs[input], from;
    SY_TRY(sy_program_input_native(p, input, &from));
    if (dnnl_memory_desc_equal(md, &p->values[from].md)) {
        *out = from;
        return SY_OK;
    }
    SY_TRY(sy_program_new_laid_out(p, tensor, md, out));
    return sy_program_add_reorder(p, from, *out);
}

int sy_program_output_plain(struct sy_program *p, int output, int *out)
{
    SY_TRY(sy_program_new_of(p, sy_program_node(p)->outputs[output], out));
    sy_program_set_output(p, output, *out);
    return SY_OK;
}

int sy_program_output_or_room(struct sy_program *p, int output, bool needed, int rank,
                              const int64_t *dims, int *out)
{
    const struct sy_node *node = sy_program_node(p);
    *out = -1;
    if (output < node->n_outputs && node->outputs[output] >= 0)
        return sy_program_output_plain(p, output, out);
    return needed ? sy_program_new_value(p, SY_DTYPE_F32, rank, dims, out) : SY_OK;
}

static bool is_rows(const struct sy_value *v)
{
    dnnl_memory_desc_t rows;
    if (!sy_value_is_narrow(v))
        return sy_program_is_plain(v);
    sy_dnnl_plain_md_of(&rows, dnnl_bf16, v->rank, v->dims);
    return dnnl_memory_desc_equal(&rows, &v->md);
}

int sy_program_input_narrow(struct sy_program *p, int input, int *out)
{
    int tensor = sy_program_node(p)->inputs[input], from;
    if (p->narrow[tensor] >= 0) {
        *out = p->narrow[tensor];
        sy_program_touch(p, *out);
        return SY_OK;
    }
    SY_TRY(sy_program_input_native(p, input, &from));
    if (sy_value_is_narrow(&p->values[from]) && is_rows(&p->values[from])) {
        *out = from;
        return SY_OK;
    }
    SY_TRY(sy_program_new_narrow(p, tensor, out));
    SY_TRY(sy_program_add_reorder(p, from, *out));
    if (!sy_program_is_param(p, input))
        p->narrow[tensor] = *out;
    return SY_OK;
}

int sy_program_input_rows(struct sy_program *p, int input, int *out)
{
    int from;
    if (sy_program_node(p)->inputs[input] < 0)
        return sy_program_input_plain(p, input, out);
    SY_TRY(sy_program_input_native(p, input, &from));
    if (is_rows(&p->values[from])) {
        *out = from;
        return SY_OK;
    }
    return sy_value_is_narrow(&p->values[from]) ? sy_program_input_narrow(p, input, out)
                                                : sy_program_input_plain(p, input, out);
}

int sy_program_output_rows(struct sy_program *p, int output, int like, int *out)
{
    if (!sy_value_is_narrow(&p->values[like]))
        return sy_program_output_plain(p, output, out);
    SY_TRY(sy_program_new_narrow(p, sy_program_node(p)->outputs[output], out));
    sy_program_set_output(p, output, *out);
    return SY_OK;
}
