#include "workers/engine/product_node.h"

bool sy_product_is_transposed(const struct sy_node *node, int input)
{
    return node->op == SY_OP_GEMM && sy_node_int(node, input == 0 ? "transA" : "transB", 0) != 0;
}

int sy_product_bias(const struct sy_node *node)
{
    if (node->bias_input >= 0)
        return node->bias_input;
    return node->op == SY_OP_GEMM && sy_node_input(node, 2) >= 0 ? 2 : -1;
}

static float factor_of(const struct sy_node *node, int input, bool is_matrix)
{
    if (is_matrix)
        return sy_node_float(node, "alpha", 1);
    if (input == sy_product_bias(node) && node->op == SY_OP_GEMM)
        return sy_node_float(node, "beta", 1);
    return 1;
}

void sy_product_pack(const struct sy_graph *graph, const struct sy_node *node, int input,
                     bool is_matrix, float *to)
{
    const struct sy_tensor *t = &graph->tensors[node->inputs[input]];
    const float *from = t->data;
    int64_t n = (int64_t)(t->data_bytes / sizeof *to), rows = 1, columns = n;
    float factor = factor_of(node, input, is_matrix);
    if (is_matrix && sy_product_is_transposed(node, 1)) {
        rows = t->shape.dims[0].fixed;
        columns = t->shape.dims[1].fixed;
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            to[c * rows + r] = factor * from[r * columns + c];
}
