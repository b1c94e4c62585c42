/* Layouts of parameters: which inputs of a node are parameters, in which order their elements lie on the device, and the packing of them at import. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"
#include "workers/engine/product_node.h"

/* E3. The device does not read the shape operand of a view. */
static bool is_param(const struct sy_graph *graph, const struct sy_node *node, int input)
{
    bool view = node->op == SY_OP_RESHAPE || node->op == SY_OP_SQUEEZE ||
                node->op == SY_OP_UNSQUEEZE || node->op == SY_OP_EXPAND;
    if (node->inputs[input] < 0 || (view && input > 0))
        return false;
    return graph->tensors[node->inputs[input]].data != NULL;
}

static bool is_kernel(const struct sy_node *node, int input)
{
    return input == 1 && (node->op == SY_OP_CONV || node->op == SY_OP_CONV_TRANSPOSE);
}

static bool is_product(const struct sy_node *node)
{
    return node->op == SY_OP_GEMM || node->op == SY_OP_MATMUL;
}

uint32_t sy_cuda_layout_of(const struct sy_graph *graph, const struct sy_node *node, int input)
{
    uint32_t layout = is_kernel(node, input) ? SY_CUDA_KERNEL_LAST : SY_CUDA_AS_IS;
    return layout | (sy_cuda_packs_narrow(graph, node, input) ? SY_CUDA_NARROW : 0);
}

static int param_form(const struct sy_graph *graph, const struct sy_node *node, int input,
                      struct sy_param_form *out)
{
    uint32_t layout = sy_cuda_layout_of(graph, node, input);
    uint64_t bytes = graph->tensors[node->inputs[input]].data_bytes;
    out->bytes = layout & SY_CUDA_NARROW ? bytes / 2 : bytes;
    out->layout_bytes = layout == SY_CUDA_AS_IS ? 0 : sizeof layout;
    memcpy(out->layout, &layout, sizeof layout);
    return SY_OK;
}

int sy_cuda_lay_out_params(const struct sy_graph *graph, struct sy_layer *layer)
{
    static const struct sy_param_rules rules = {is_param, param_form};
    return sy_layer_lay_out(graph, &rules, layer);
}

bool sy_cuda_packs_product(const struct sy_graph *graph, const struct sy_node *node)
{
    const struct sy_tensor *w = &graph->tensors[node->inputs[1]];
    const struct sy_tensor *x = &graph->tensors[node->inputs[0]];
    return w->dtype == SY_DTYPE_F32 && w->shape.rank == 2 && x->shape.rank >= 2;
}

/* [out, in, kernel...] -> [out, kernel..., in] */
static void pack_kernel(const struct sy_tensor *t, float *packed)
{
    int64_t outs = t->shape.dims[0].fixed, ins = t->shape.dims[1].fixed, area = 1;
    for (int i = 2; i < t->shape.rank; i++)
        area *= t->shape.dims[i].fixed;
    const float *from = t->data;
    for (int64_t o = 0; o < outs; o++)
        for (int64_t c = 0; c < ins; c++)
            for (int64_t k = 0; k < area; k++)
                packed[(o * area + k) * ins + c] = from[(o * ins + c) * area + k];
}

/* In the operator's own layout, of the constant's type. */
static void pack_as_is(const struct sy_graph *graph, const struct sy_node *node, int input,
                       void *to)
{
    const struct sy_tensor *t = &graph->tensors[node->inputs[input]];
    if (t->dtype == SY_DTYPE_F32 && is_kernel(node, input))
        pack_kernel(t, to);
    else if (t->dtype == SY_DTYPE_F32 && is_product(node))
        sy_product_pack(graph, node, input, input == 1 && sy_cuda_packs_product(graph, node), to);
    else
        memcpy(to, t->data, t->data_bytes);
}

static int pack_narrow(const struct sy_graph *graph, const struct sy_node *node, int input,
                       void *to)
{
    const struct sy_tensor *t = &graph->tensors[node->inputs[input]];
    float *floats = malloc(t->data_bytes + 1);
    SY_TRY_ALLOC(floats, "no memory for %zu bytes of %s", t->data_bytes, t->name);
    pack_as_is(graph, node, input, floats);
    int status = sy_cuda_pack_narrow(graph, node, floats, t->data_bytes / sizeof *floats, to);
    free(floats);
    return status;
}

int sy_cuda_pack_params(const struct sy_graph *graph, const struct sy_layer *layer, void *to)
{
    const struct sy_node *node = &graph->nodes[layer->node];
    memset(to, 0, layer->bytes);
    for (int i = 0; i < layer->n_params; i++) {
        const struct sy_param *param = &layer->params[i];
        unsigned char *at = (unsigned char *)to + param->offset_bytes;
        if (sy_cuda_packs_narrow(graph, node, param->input))
            SY_TRY(pack_narrow(graph, node, param->input, at));
        else
            pack_as_is(graph, node, param->input, at);
    }
    return SY_OK;
}
