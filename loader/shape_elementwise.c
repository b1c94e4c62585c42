/* Shape rules: operators that work element by element. */
#include <float.h>

#include "loader/graph_infer.h"
#include "runtime/base/status.h"

/* Folding takes every input as one of the result's shape, so that a second one must not be there at all. */
static int need_right_count(const struct sy_node *node)
{
    int n = node->op == SY_OP_BATCH_NORM ? 5 : 1;
    return node->n_inputs == n
               ? SY_OK
               : sy_infer_fail(node, SY_ECORRUPT, "%d inputs instead of %d", node->n_inputs, n);
}

int sy_rule_same(struct sy_infer *in, struct sy_node *node)
{
    SY_TRY(need_right_count(node));
    SY_TRY(sy_infer_keep_outputs(in, node, 1));
    return sy_infer_same(in, node);
}

static bool has_right_count(const struct sy_node *node)
{
    switch (node->op) {
    case SY_OP_WHERE:
        return node->n_inputs == 3;
    case SY_OP_MIN:
    case SY_OP_MAX:
    case SY_OP_SUM:
        return node->n_inputs >= 1;
    default:
        return node->n_inputs == 2;
    }
}

/* All operators with numpy's broadcasting: the type is the last input's, for Equal bool. */
int sy_rule_broadcast(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    char a[160], b[160];
    if (sy_node_attr(node, "broadcast"))
        return sy_infer_fail(node, SY_EUNSUPPORTED,
                             "broadcasting as before opset 7; export the model again");
    if (!has_right_count(node))
        return sy_infer_fail(node, SY_ECORRUPT, "%d inputs", node->n_inputs);
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    for (int i = 1; i < node->n_inputs; i++) {
        SY_TRY(sy_infer_need(in, node, i, &x));
        struct sy_shape before = shape;
        if (sy_shape_broadcast(&shape, &x->shape) < 0)
            return sy_infer_fail(node, SY_EUNSUPPORTED, "shapes %s and %s do not fit",
                                 sy_shape_text(&before, a, sizeof a),
                                 sy_shape_text(&x->shape, b, sizeof b));
    }
    enum sy_dtype dtype = x->dtype;
    if (node->op == SY_OP_POW)
        dtype = in->graph->tensors[node->inputs[0]].dtype;
    sy_infer_set(in, node, 0, node->op == SY_OP_EQUAL ? SY_DTYPE_BOOL : dtype, &shape);
    return SY_OK;
}

int sy_rule_cast(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(need_right_count(node));
    SY_TRY(sy_infer_need(in, node, 0, &x));
    enum sy_dtype to = (enum sy_dtype)sy_node_int(node, "to", SY_DTYPE_NONE);
    if (sy_dtype_bytes(to) == 0)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "cast to element type %d", (int)to);
    struct sy_shape shape = x->shape;
    sy_infer_set(in, node, 0, to, &shape);
    return SY_OK;
}

/* Bounds: attributes up to opset 10, inputs from 11 on; here always attributes. */
int sy_rule_clip(struct sy_infer *in, struct sy_node *node)
{
    float low, high;
    SY_TRY(sy_infer_float(in, node, 1, "min", -FLT_MAX, &low));
    SY_TRY(sy_infer_float(in, node, 2, "max", FLT_MAX, &high));
    SY_TRY(sy_node_set_float(node, "min", low));
    SY_TRY(sy_node_set_float(node, "max", high));
    sy_infer_keep_inputs(node, 1);
    return sy_infer_same(in, node);
}

/* Nothing happens at inference. */
int sy_rule_dropout(struct sy_infer *in, struct sy_node *node)
{
    int n = 0;
    int64_t training = 0;
    if (sy_node_input(node, 2) >= 0)
        SY_TRY(sy_infer_ints(in, node, 2, "training_mode", 1, &n, &training));
    if (training)
        return sy_infer_fail(node, SY_EUNSUPPORTED,
                             "training_mode is true; export the model for inference");
    SY_TRY(sy_infer_keep_outputs(in, node, 1));
    node->op = SY_OP_IDENTITY;
    sy_infer_keep_inputs(node, 1);
    return sy_infer_same(in, node);
}
