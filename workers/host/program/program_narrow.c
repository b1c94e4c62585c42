/* bf16 in a program (P12): which float32 tensors have their bytes as bf16, and what operators ask for.
 *
 * Readers are looked at from the last layer to the first. A product wants its factors narrow; what passes bytes on wants what its own
 * result is wanted as; everything else wants float32. The producer chooses from the sum of these wishes, and a reader that
 * needs the other form converts. */
#include <math.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/keeps_precision.h"
#include "workers/host/program/program_internal.h"
#include "workers/host/rows/elementwise.h"

bool sy_value_is_narrow(const struct sy_value *v)
{
    return v->dtype == SY_DTYPE_F32 && v->md.ndims > 0 && v->md.data_type == dnnl_bf16;
}

size_t sy_value_element_bytes(const struct sy_value *v)
{
    return sy_value_is_narrow(v) ? sizeof(uint16_t) : sy_dtype_bytes(v->dtype);
}

bool sy_computes_narrow(const struct sy_graph *graph)
{
    return graph->precision == SY_PRECISION_BF16 && sy_dnnl_has_bf16();
}

/* Whether that parameter is packed as bf16. */
static bool layer_has_narrow(const struct sy_layer *layer, int input)
{
    dnnl_memory_desc_t md;
    const struct sy_param *param = sy_layer_param(layer, input);
    if (!param || param->layout_bytes != sizeof md)
        return false;
    memcpy(&md, param->layout, sizeof md);
    return md.data_type == dnnl_bf16;
}

static bool is_constant(const struct sy_graph *graph, const struct sy_layer *layer, int input)
{
    int tensor = graph->nodes[layer->node].inputs[input];
    return sy_layer_param(layer, input) || graph->tensors[tensor].data;
}

bool sy_node_packs_narrow(const struct sy_graph *graph, const struct sy_node *node)
{
    const struct sy_tensor *w = &graph->tensors[node->inputs[1]];
    const float *floats = w->data;
    const int64_t largest = 256; /* below it bf16 has all whole numbers */
    if (sy_computes_narrow(graph))
        return true;
    if (!sy_dnnl_has_bf16() || !sy_node_int(node, "whole", 0) ||
        sy_node_float(node, "alpha", 1) != 1 || w->dtype != SY_DTYPE_F32 || !floats)
        return false;
    for (size_t i = 0; i < w->data_bytes / sizeof *floats; i++)
        if (!(fabsf(floats[i]) <= (float)largest) || floats[i] != rintf(floats[i]))
            return false;
    return true;
}

bool sy_program_multiplies_narrow(const struct sy_program *p, const struct sy_layer *layer)
{
    const struct sy_graph *graph = p->graph;
    const struct sy_node *node = &graph->nodes[layer->node];
    if (sy_dnnl_has_bf16() && layer_has_narrow(layer, 1))
        return true;
    return sy_computes_narrow(graph) && node->op == SY_OP_MATMUL && !is_constant(graph, layer, 0) &&
           !is_constant(graph, layer, 1) && sy_is_large_product(graph, node);
}

static unsigned wanted_as(const struct sy_program *p, const struct sy_layer *layer, int input)
{
    const struct sy_node *node = &p->graph->nodes[layer->node];
    switch (node->op) {
    case SY_OP_CONV:
        if (!sy_program_multiplies_narrow(p, layer))
            return SY_WANT_WIDE;
        return input == 0                      ? SY_WANT_NARROW
               : input == node->residual_input ? sy_wants_of_results(node, p->wants)
                                               : SY_WANT_WIDE;
    case SY_OP_GEMM:
    case SY_OP_MATMUL:
        return input < 2 && sy_program_multiplies_narrow(p, layer) ? SY_WANT_NARROW : SY_WANT_WIDE;
    case SY_OP_ATTENTION: /* widened a tile at a time */
        return input < 3 && sy_computes_narrow(p->graph) ? SY_WANT_NARROW : SY_WANT_WIDE;
    case SY_OP_LSTM:
    case SY_OP_GRU:
        return input == 0 && sy_program_multiplies_narrow(p, layer) ? SY_WANT_NARROW : SY_WANT_WIDE;
    default:
        return sy_node_propagates_precision(p->graph, node) ? sy_wants_of_results(node, p->wants)
                                                            : SY_WANT_WIDE;
    }
}

void sy_program_plan_narrow(struct sy_program *p)
{
    sy_wants_plan(p->graph, p->layers, p->n_layers, wanted_as, p, p->wants);
}

unsigned sy_program_wanted(const struct sy_program *p, int output)
{
    const struct sy_node *node = sy_program_node(p);
    int tensor = node->outputs[output];
    /* In float32 only whole numbers may be narrow, and they are made here. */
    if (p->graph->precision == SY_PRECISION_F32 && node->op != SY_OP_DEQUANTIZE_LINEAR)
        return SY_WANT_WIDE;
    return p->graph->tensors[tensor].dtype == SY_DTYPE_F32 ? p->wants[tensor] : SY_WANT_WIDE;
}

/* ---- weights in bf16 on a CPU that multiplies float32 only ---- */

bool sy_dnnl_widened_md(const dnnl_memory_desc_t *stored, dnnl_memory_desc_t *md)
{
    *md = *stored;
    md->data_type = dnnl_f32;
    size_t bytes = dnnl_memory_desc_get_size(stored);
    return stored->data_type == dnnl_bf16 && bytes > 0 &&
           dnnl_memory_desc_get_size(md) == 2 * bytes;
}

static int run_widen(struct sy_program *p, struct sy_step *step)
{
    const uint16_t *from = sy_program_pointer(p, step->args[0].value);
    float *to = sy_program_pointer(p, step->args[1].value);
    int64_t n = step->numbers[0], piece = 1 << 14;
#pragma omp parallel for schedule(static) if (n > 4 * piece)
    for (int64_t at = 0; at < n; at += piece)
        sy_elementwise_widen(SY_MIN(piece, n - at), from + at, to + at);
    return SY_OK;
}

int sy_program_add_widen(struct sy_program *p, int from, int to)
{
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_widen, (int[]){from, to}, 2, &step));
    int64_t n = (int64_t)(p->values[to].bytes / sizeof(float));
    return sy_step_set_numbers(step, &n, 1);
}

int sy_program_new_narrow(struct sy_program *p, int tensor, int *out)
{
    dnnl_memory_desc_t md;
    int64_t dims[SY_MAX_RANK];
    sy_program_dims(p, tensor, dims);
    sy_dnnl_plain_md_of(&md, dnnl_bf16, p->graph->tensors[tensor].shape.rank, dims);
    return sy_program_new_laid_out(p, tensor, &md, out);
}
