#include "workers/engine/curve_formulas.h"

#include <float.h>
#include <string.h>

void sy_curve_read(const struct sy_node *node, struct sy_curve *c)
{
    const struct sy_attr *kind = sy_node_attr(node, "approximate");
    *c = (struct sy_curve){.op = node->op};
    c->is_tanh_gelu = kind && kind->kind == SY_ATTR_STRING && kind->s && !strcmp(kind->s, "tanh");
    switch (node->op) {
    case SY_OP_LEAKY_RELU:
        c->a = sy_node_float(node, "alpha", 0.01f);
        break;
    case SY_OP_SELU:
        c->a = sy_node_float(node, "alpha", 1.67326319217681884765625f);
        c->b = sy_node_float(node, "gamma", 1.05070102214813232421875f);
        break;
    case SY_OP_HARD_SIGMOID:
        c->a = sy_node_float(node, "alpha", 0.2f);
        c->b = sy_node_float(node, "beta", 0.5f);
        break;
    case SY_OP_SHRINK:
        c->a = sy_node_float(node, "lambd", 0.5f);
        c->b = sy_node_float(node, "bias", 0.0f);
        break;
    case SY_OP_CLIP:
        c->a = sy_node_float(node, "min", -FLT_MAX);
        c->b = sy_node_float(node, "max", FLT_MAX);
        break;
    default:
        c->a = sy_node_float(node, "alpha", 1.0f);
        break;
    }
}
