/* E5: which float32 tensors lie as bfloat16 or float16, and which constants are packed so. The same rules as the host engine's (P12):
 * readers are looked at from the last layer to the first; a product wants its factors narrow, what passes bytes on wants what its own
 * result is wanted as, everything else wants float32. */
#include <math.h>

#include "runtime/base/assert.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"
#include "workers/engine/keeps_precision.h"

/* The graph's narrow type, NONE if it has none. */
static enum sy_dtype narrow_type(const struct sy_graph *graph)
{
    return graph->precision == SY_PRECISION_BF16  ? SY_DTYPE_BF16
           : graph->precision == SY_PRECISION_F16 ? SY_DTYPE_F16
                                                  : SY_DTYPE_NONE;
}

/* ---- constants ---------------------------------------------------------------------------------------- */

/* Whether a table has long rows; short ones may be coordinates, which keep their bits. */
static bool has_long_rows(const struct sy_shape *shape)
{
    const int64_t least = 16;
    int64_t n = 1;
    for (int i = 1; i < shape->rank; i++)
        n *= shape->dims[i].fixed;
    return n >= least;
}

bool sy_cuda_packs_narrow(const struct sy_graph *graph, const struct sy_node *node, int input)
{
    const struct sy_tensor *t = &graph->tensors[node->inputs[input]];
    if (node->op == SY_OP_CONV &&
        input == 2) /* a bias lies as the weights do: cuDNN wants one type */
        return t->dtype == SY_DTYPE_F32 && sy_cuda_packs_narrow(graph, node, 1);
    if (graph->precision == SY_PRECISION_F32 || t->dtype != SY_DTYPE_F32 || t->shape.rank < 2)
        return false;
    switch (node->op) {
    case SY_OP_CONV:
    case SY_OP_GEMM:
    case SY_OP_MATMUL:
        return input == 1;
    case SY_OP_LSTM:
    case SY_OP_GRU:
    case SY_OP_RNN:
        return input == 1 || input == 2;
    case SY_OP_GATHER:
        return input == 0 && has_long_rows(&t->shape);
    default:
        return false;
    }
}

int sy_cuda_pack_narrow(const struct sy_graph *graph, const struct sy_node *node,
                        const float *floats, size_t n, uint16_t *out)
{
    bool half = narrow_type(graph) == SY_DTYPE_F16;
    for (size_t i = 0; i < n; i++) {
        out[i] = half ? sy_float_to_half(floats[i]) : sy_float_to_bf16(floats[i]);
        if (half && isfinite(floats[i]) && (out[i] & 0x7fff) == 0x7c00)
            return sy_error_set(
                SY_EUNSUPPORTED,
                "node %s: %s (opset %d): a weight or bias of %g is beyond f16, which ends "
                "at 65504; bf16 has it",
                node->name, sy_op_name(node->op), node->opset, (double)floats[i]);
    }
    return SY_OK;
}

/* ---- tensors ------------------------------------------------------------------------------------------ */

bool sy_cuda_multiplies_narrow(const struct sy_program *p, const struct sy_layer *layer)
{
    const struct sy_graph *graph = p->graph;
    const struct sy_node *node = &graph->nodes[layer->node];
    if (node->n_inputs < 2 || node->inputs[0] < 0 || node->inputs[1] < 0)
        return false;
    if (sy_layer_param(layer, 1))
        return sy_cuda_packs_narrow(graph, node, 1);
    return graph->precision != SY_PRECISION_F32 && node->op == SY_OP_MATMUL &&
           !sy_layer_param(layer, 0) && graph->tensors[node->inputs[0]].dtype == SY_DTYPE_F32 &&
           sy_is_large_product(graph, node);
}

static unsigned wanted_as(const struct sy_program *p, const struct sy_layer *layer, int input)
{
    const struct sy_node *node = &p->graph->nodes[layer->node];
    switch (node->op) {
    case SY_OP_CONV:
        if (!sy_cuda_multiplies_narrow(p, layer))
            return SY_WANT_WIDE;
        return input == 0 || input == node->residual_input ? SY_WANT_NARROW : SY_WANT_WIDE;
    case SY_OP_GEMM:
    case SY_OP_MATMUL:
        return input < 2 && sy_cuda_multiplies_narrow(p, layer) ? SY_WANT_NARROW : SY_WANT_WIDE;
    case SY_OP_LSTM:
    case SY_OP_GRU:
    case SY_OP_RNN:
        return input == 0 && sy_cuda_multiplies_narrow(p, layer) ? SY_WANT_NARROW : SY_WANT_WIDE;
    case SY_OP_ATTENTION:
        return input < 3 ? SY_WANT_NARROW : SY_WANT_WIDE;
    default:
        return sy_node_propagates_precision(p->graph, node) ? sy_wants_of_results(node, p->wants)
                                                            : SY_WANT_WIDE;
    }
}

void sy_cuda_plan_narrow(struct sy_program *p)
{
    p->narrow = narrow_type(p->graph);
    if (p->narrow != SY_DTYPE_NONE)
        sy_wants_plan(p->graph, p->layers, p->n_layers, wanted_as, p, p->wants);
}

enum sy_dtype sy_cuda_wanted(const struct sy_program *p, int output)
{
    int tensor = sy_cuda_node(p)->outputs[output];
    enum sy_dtype own = p->graph->tensors[tensor].dtype;
    return own == SY_DTYPE_F32 && p->wants[tensor] == SY_WANT_NARROW ? p->narrow : own;
}
