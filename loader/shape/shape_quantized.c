/* Shape rules: quantised forms. Scales and zero points are inputs; the forms of Conv and MatMul borrow the rules of those. */
#include <string.h>

#include "loader/shape/graph_infer.h"
#include "runtime/base/status.h"

/* The type of input i, or `otherwise` where it is left out. */
static enum sy_dtype type_of(const struct sy_infer *in, const struct sy_node *node, int i,
                             enum sy_dtype otherwise)
{
    int tensor = sy_node_input(node, i);
    return tensor < 0 ? otherwise : in->graph->tensors[tensor].dtype;
}

int sy_infer_quantized_types(const struct sy_infer *in, const struct sy_node *node)
{
    int64_t result = sy_node_int(node, "output_dtype", 0),
            precision = sy_node_int(node, "precision", 0);
    if (node->op == SY_OP_DEQUANTIZE_LINEAR && result != 0 &&
        result != (int64_t)type_of(in, node, 1, SY_DTYPE_F32))
        return sy_infer_fail(node, SY_EUNSUPPORTED,
                             "results of element type %lld, other than the scale's",
                             (long long)result);
    if (precision != 0 && precision != SY_DTYPE_F32)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "a division in element type %lld",
                             (long long)precision);
    return SY_OK;
}

static int like_first(struct sy_infer *in, struct sy_node *node, enum sy_dtype dtype)
{
    const struct sy_tensor *x, *scale;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(sy_infer_need(in, node, 1, &scale));
    SY_TRY(sy_infer_quantized_types(in, node));
    if (sy_node_int(node, "block_size", 0) != 0)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "blocked quantisation");
    if (scale->shape.rank > 1)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "a scale of %d dimensions", scale->shape.rank);
    struct sy_shape shape = x->shape;
    sy_infer_set(in, node, 0, dtype, &shape);
    return SY_OK;
}

int sy_rule_quantize(struct sy_infer *in, struct sy_node *node)
{
    enum sy_dtype to = (enum sy_dtype)sy_node_int(node, "output_dtype", 0);
    if (to == SY_DTYPE_NONE)
        to = type_of(in, node, 2, SY_DTYPE_U8);
    if (to != SY_DTYPE_U8 && to != SY_DTYPE_I8 && to != SY_DTYPE_U16 && to != SY_DTYPE_I16)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "results of element type %d", (int)to);
    return like_first(in, node, to);
}

int sy_rule_dequantize(struct sy_infer *in, struct sy_node *node)
{
    return like_first(in, node, type_of(in, node, 1, SY_DTYPE_F32));
}

int sy_rule_dynamic_quantize(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    struct sy_shape scalar = {.rank = 0};
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    sy_infer_set(in, node, 0, SY_DTYPE_U8, &shape);
    sy_infer_set(in, node, 1, SY_DTYPE_F32, &scalar);
    sy_infer_set(in, node, 2, SY_DTYPE_U8, &scalar);
    return SY_OK;
}

/* `rule` sees the node with inputs 0 and `second` only; the result's type is `dtype`. */
static int borrow_rule(struct sy_infer *in, struct sy_node *node, sy_infer_rule *rule, int second,
                       enum sy_dtype dtype)
{
    int first_two[2] = {sy_node_input(node, 0), sy_node_input(node, second)}, n = node->n_inputs;
    int *inputs = node->inputs;
    if (n <= second || node->outputs[0] < 0)
        return sy_infer_fail(node, SY_ECORRUPT, "%d inputs", n);
    node->inputs = first_two;
    node->n_inputs = 2;
    int status = rule(in, node);
    node->inputs = inputs;
    node->n_inputs = n;
    SY_TRY(status);
    struct sy_shape shape = in->graph->tensors[node->outputs[0]].shape;
    sy_infer_set(in, node, 0, dtype, &shape);
    return SY_OK;
}

/* QLinearConv and ConvInteger. */
int sy_rule_qlinear_conv(struct sy_infer *in, struct sy_node *node)
{
    if (node->op == SY_OP_CONV_INTEGER)
        return borrow_rule(in, node, sy_rule_conv, 1, SY_DTYPE_I32);
    return borrow_rule(in, node, sy_rule_conv, 3, type_of(in, node, 7, SY_DTYPE_U8));
}

/* QLinearMatMul and MatMulInteger. */
int sy_rule_qlinear_matmul(struct sy_infer *in, struct sy_node *node)
{
    if (node->op == SY_OP_MATMUL_INTEGER)
        return borrow_rule(in, node, sy_rule_matmul, 1, SY_DTYPE_I32);
    return borrow_rule(in, node, sy_rule_matmul, 3, type_of(in, node, 7, SY_DTYPE_U8));
}
