/* Small types (loader/graph/small_types.h): casts to them, and quantisation by scales of tensors, axes and blocks from and to them. */
#include <string.h>

#include "loader/expand/expand_small.h"
#include "loader/graph/small_types.h"
#include "runtime/base/status.h"

static int small_type_of(const struct sy_infer *in, const struct sy_node *node, int i)
{
    int tensor = sy_node_input(node, i);
    return tensor < 0 ? 0 : in->graph->tensors[tensor].small_type;
}

/* The small type that the node's result has in the file; 0: none. */
static int64_t result_type(const struct sy_infer *in, const struct sy_node *node)
{
    int64_t to = node->op == SY_OP_CAST        ? sy_node_int(node, "to", 0)
                 : node->op == SY_OP_CAST_LIKE ? small_type_of(in, node, 1)
                                               : small_type_of(in, node, 2);
    if (node->op != SY_OP_CAST && to == 0) /* of constants the reader says it */
        to = sy_node_int(node, node->op == SY_OP_CAST_LIKE ? "to" : "output_dtype", 0);
    return sy_small_carrier(to) == SY_DTYPE_NONE ? 0 : to;
}

bool sy_expand_makes_small(const struct sy_infer *in, const struct sy_node *node)
{
    int x = sy_node_input(node, 0);
    if (node->op == SY_OP_DEQUANTIZE_LINEAR)
        return x >= 0 && (in->graph->tensors[x].dtype == SY_DTYPE_F32 ||
                          in->graph->tensors[x].small_type >= SY_SMALL_UINT2);
    return result_type(in, node) != 0;
}

int64_t sy_small_result_type(const struct sy_expand *e)
{
    return result_type(e->in, e->node);
}

int sy_small_from_float(struct sy_expand *e, int x, int64_t type)
{
    int y = SY_EXPAND(e, SMALL, x);
    sy_expand_set_int(e, "to", type);
    sy_expand_pass(e, "saturate");
    sy_expand_pass(e, "round_mode");
    return y;
}

int sy_small_give(struct sy_expand *e, int y, enum sy_dtype dtype, int64_t type)
{
    enum sy_dtype carrier = sy_small_carrier(type);
    int out = e->node->outputs[0];
    if (dtype != carrier)
        y = sy_expand_cast(e, y, carrier);
    if (e->status == SY_OK && out >= 0)
        e->graph->tensors[out].small_type = e->graph->tensors[y].small_type = (unsigned char)type;
    sy_expand_result(e, 0, y);
    return e->status;
}

static int expand_cast(struct sy_expand *e)
{
    enum sy_dtype dtype = sy_expand_dtype(e, 0), as = SY_DTYPE_F64;
    int x = sy_expand_input(e, 0);
    if (dtype == SY_DTYPE_F32 || dtype == SY_DTYPE_F16 || dtype == SY_DTYPE_BF16)
        as = SY_DTYPE_F32;
    if (dtype != as)
        x = sy_expand_cast(e, x, as);
    int64_t type = result_type(e->in, e->node);
    return sy_small_give(e, sy_small_from_float(e, x, type), as, type);
}

const struct sy_expander_line sy_expanders_small[] = {
    {SY_OP_CAST, expand_cast}, {SY_OP_CAST_LIKE, expand_cast}, {0}};
