#include "loader/graph/loop_condition.h"

bool sy_tensor_is_true(const struct sy_tensor *t)
{
    return t->data && t->data_bytes == 1 && *(const unsigned char *)t->data != 0;
}

bool sy_loop_stays_true(const struct sy_graph *body)
{
    int out = body->outputs[0];
    for (int n = body->n_nodes - 1; n >= 0; n--) {
        const struct sy_node *node = &body->nodes[n];
        if (node->n_outputs == 0 || node->outputs[0] != out)
            continue;
        if (node->op != SY_OP_IDENTITY || node->n_inputs != 1)
            return false;
        out = node->inputs[0];
    }
    return out == body->inputs[1] || sy_tensor_is_true(&body->tensors[out]);
}
