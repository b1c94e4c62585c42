/* The shape rule of each operator, which also normalises it: SY_OP_TABLE's column `shape`. */
#include "loader/shape/graph_infer.h"

#define sy_rule_none NULL

static sy_infer_rule *const rules[] = {
#define X(id, name, shape, ...) sy_rule_##shape,
    SY_OP_TABLE(X)
#undef X
};

sy_infer_rule *sy_infer_rule_of(enum sy_op op)
{
    return rules[op];
}
