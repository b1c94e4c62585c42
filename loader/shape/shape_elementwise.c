/* Shape rules: operators that work element by element. */
#include <float.h>
#include <string.h>

#include "loader/shape/graph_infer.h"
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

/* IsNaN and the like. */
int sy_rule_test(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(need_right_count(node));
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    sy_infer_set(in, node, 0, SY_DTYPE_BOOL, &shape);
    return SY_OK;
}

static bool has_right_count(const struct sy_node *node)
{
    switch (node->op) {
    case SY_OP_WHERE:
        return node->n_inputs == 3;
    case SY_OP_MIN:
    case SY_OP_MAX:
    case SY_OP_SUM:
    case SY_OP_MEAN:
        return node->n_inputs >= 1;
    default:
        return node->n_inputs == 2;
    }
}

static bool is_question(enum sy_op op)
{
    switch (op) {
    case SY_OP_EQUAL:
    case SY_OP_GREATER:
    case SY_OP_GREATER_OR_EQUAL:
    case SY_OP_LESS:
    case SY_OP_LESS_OR_EQUAL:
    case SY_OP_AND:
    case SY_OP_OR:
    case SY_OP_XOR:
        return true;
    default:
        return false;
    }
}

/* Before opset 7 the second operand lies at `axis` of the first, and nothing is repeated without `broadcast`. Ones behind a
 * constant's dimensions make that numpy's rule. */
static int align_old_broadcast(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *a, *b;
    int64_t axis = sy_node_int(node, "axis", -1);
    SY_TRY(sy_infer_need(in, node, 0, &a));
    SY_TRY(sy_infer_need(in, node, 1, &b));
    bool lies = axis >= 0 && axis <= a->shape.rank;
    int behind = lies ? a->shape.rank - b->shape.rank - (int)axis : 0;
    if (node->opset >= 7 || sy_node_int(node, "broadcast", 0) == 0 || axis > a->shape.rank ||
        behind < 0)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "broadcasting with axis %lld", (long long)axis);
    if (behind == 0)
        return SY_OK;
    if (!b->data)
        return sy_infer_fail(node, SY_EUNSUPPORTED,
                             "broadcasting as before opset 7, of a computed operand");
    struct sy_shape shape = b->shape;
    void *copy;
    int constant;
    while (behind-- > 0)
        shape.dims[shape.rank++] = (struct sy_dim){1, 0};
    SY_TRY(sy_graph_alloc(b->data_bytes, 1, &copy));
    memcpy(copy, b->data, b->data_bytes);
    SY_TRY(sy_graph_add_constant(in->graph, b->name, b->dtype, &shape, copy, b->data_bytes,
                                 &constant));
    node->inputs[1] = constant;
    return SY_OK;
}

/* The slope of an old PRelu: one for each channel. */
static bool is_per_channel(const struct sy_infer *in, const struct sy_node *node)
{
    int x = sy_node_input(node, 0), slope = sy_node_input(node, 1);
    if (x < 0 || slope < 0)
        return false;
    const struct sy_shape *a = &in->graph->tensors[x].shape, *b = &in->graph->tensors[slope].shape;
    return b->rank == 1 && a->rank > 1 && sy_dim_equal(a->dims[1], b->dims[0]);
}

/* All operators with numpy's broadcasting: the type is the last input's, for comparisons bool. */
int sy_rule_broadcast(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    char a[160], b[160];
    if (!has_right_count(node))
        return sy_infer_fail(node, SY_ECORRUPT, "%d inputs", node->n_inputs);
    if (node->op == SY_OP_PRELU && node->opset < 7 && is_per_channel(in, node)) {
        SY_TRY(sy_node_set_int(node, "broadcast", 1));
        SY_TRY(sy_node_set_int(node, "axis", 1));
    }
    if (sy_node_attr(node, "broadcast"))
        SY_TRY(align_old_broadcast(in, node));
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    for (int i = 1; i < node->n_inputs; i++) {
        SY_TRY(sy_infer_need(in, node, i, &x));
        struct sy_shape before = shape;
        if (sy_infer_broadcast(in, node, &shape, &x->shape) < 0)
            return sy_infer_fail(node, SY_EUNSUPPORTED, "shapes %s and %s do not fit",
                                 sy_shape_text(&before, a, sizeof a),
                                 sy_shape_text(&x->shape, b, sizeof b));
    }
    enum sy_dtype dtype = x->dtype;
    if (node->op == SY_OP_POW)
        dtype = in->graph->tensors[node->inputs[0]].dtype;
    sy_infer_set(in, node, 0, is_question(node->op) ? SY_DTYPE_BOOL : dtype, &shape);
    return SY_OK;
}

/* CastLike becomes a Cast. */
int sy_rule_cast(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    if (node->op == SY_OP_CAST_LIKE) {
        SY_TRY(sy_infer_need(in, node, 1, &x));
        SY_TRY(sy_node_set_int(node, "to", x->dtype));
        sy_infer_keep_inputs(node, 1);
        node->op = SY_OP_CAST;
    }
    SY_TRY(need_right_count(node));
    SY_TRY(sy_infer_need(in, node, 0, &x));
    enum sy_dtype to = (enum sy_dtype)sy_node_int(node, "to", SY_DTYPE_NONE);
    if (sy_dtype_bytes(to) == 0)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "cast to element type %d", (int)to);
    struct sy_shape shape = x->shape;
    sy_infer_set(in, node, 0, to, &shape);
    return SY_OK;
}

/* Bounds: attributes up to opset 10, inputs from 11 on; here attributes of float32, inputs of a RUN_CLIP otherwise. */
int sy_rule_clip(struct sy_infer *in, struct sy_node *node)
{
    float low, high;
    const struct sy_tensor *x;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    if (node->n_inputs > 1 && (x->dtype != SY_DTYPE_F32 || !sy_infer_is_known(in, node, 1) ||
                               !sy_infer_is_known(in, node, 2))) {
        node->op = SY_OP_RUN_CLIP;
        return sy_infer_same(in, node);
    }
    SY_TRY(sy_infer_float(in, node, 1, "min", -FLT_MAX, &low));
    SY_TRY(sy_infer_float(in, node, 2, "max", FLT_MAX, &high));
    SY_TRY(sy_node_set_float(node, "min", low));
    SY_TRY(sy_node_set_float(node, "max", high));
    sy_infer_keep_inputs(node, 1);
    return sy_infer_same(in, node);
}

/* The identity at inference; its mask, if it is used, is true everywhere. */
/* For training: one input, one output, the attribute `ratio`. */
static int keep_dropout(struct sy_infer *in, struct sy_node *node)
{
    float ratio;
    SY_TRY(sy_infer_float(in, node, 1, "ratio", 0.5f, &ratio));
    if (!(ratio >= 0.0f && ratio < 1.0f))
        return sy_infer_fail(node, SY_ECORRUPT, "ratio %g, must be from 0 to below 1",
                             (double)ratio);
    SY_TRY(sy_node_set_float(node, "ratio", ratio));
    sy_infer_keep_inputs(node, 1);
    SY_TRY(sy_infer_keep_outputs(in, node, 1));
    return sy_infer_same(in, node);
}

int sy_rule_bit_cast(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    enum sy_dtype to = (enum sy_dtype)sy_node_int(node, "to", SY_DTYPE_NONE);
    SY_TRY(sy_infer_need(in, node, 0, &x));
    if (to == SY_DTYPE_STRING || x->dtype == SY_DTYPE_STRING || sy_dtype_bytes(to) == 0 ||
        sy_dtype_bytes(to) != sy_dtype_bytes(x->dtype))
        return sy_infer_fail(node, SY_EUNSUPPORTED, "element type %d to %d", (int)x->dtype,
                             (int)to);
    struct sy_shape shape = x->shape;
    sy_infer_set(in, node, 0, to, &shape);
    return SY_OK;
}

int sy_rule_dropout(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    if (!sy_infer_is_known(in, node, 2)) /* only here when trained: else it was written out */
        return sy_infer_fail(node, SY_EUNSUPPORTED, "training_mode must be known at import");
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    enum sy_dtype dtype = x->dtype;
    if (in->for_training)
        return keep_dropout(in, node);
    sy_infer_keep_inputs(node, 1);
    if (node->n_outputs > 1 && node->outputs[1] >= 0 && in->uses[node->outputs[1]] > 0) {
        sy_infer_set(in, node, 1, node->opset < 10 ? dtype : SY_DTYPE_BOOL, &shape);
        return sy_infer_same(in, node);
    }
    SY_TRY(sy_infer_keep_outputs(in, node, 1));
    node->op = SY_OP_IDENTITY;
    return sy_infer_same(in, node);
}
