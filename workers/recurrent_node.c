#include "workers/recurrent_node.h"

#include <string.h>
#include <strings.h>

static bool has_default_curves(const struct sy_node *node)
{
    const char *list = node->op == SY_OP_LSTM  ? "sigmoid,tanh,tanh"
                       : node->op == SY_OP_GRU ? "sigmoid,tanh"
                                               : "tanh";
    const struct sy_attr *attr = sy_node_attr(node, "activations");
    size_t n = strlen(list);
    if (!attr || !attr->s || !*attr->s)
        return true;
    return strncasecmp(attr->s, list, n) == 0 &&
           (!attr->s[n] || (attr->s[n] == ',' && strcasecmp(attr->s + n + 1, list) == 0));
}

const char *sy_recurrent_node_read(const struct sy_node *node, const int64_t *x, const int64_t *w,
                                   const int64_t *r, struct sy_recurrent_node *out)
{
    const struct sy_attr *way = sy_node_attr(node, "direction");
    bool has_peepholes = node->n_inputs > 7 && node->inputs[7] >= 0;
    if (sy_node_int(node, "layout", 0) || sy_node_attr(node, "clip") ||
        sy_node_int(node, "input_forget", 0) || has_peepholes || !has_default_curves(node))
        return "layout 1, clip, input_forget, peepholes, or activations other than the usual ones";
    *out =
        (struct sy_recurrent_node){.steps = x[0],
                                   .batch = x[1],
                                   .input = x[2],
                                   .hidden = r[2],
                                   .directions = r[0],
                                   .gates = node->op == SY_OP_LSTM  ? 4
                                            : node->op == SY_OP_GRU ? 3
                                                                    : 1,
                                   .is_reverse = way && way->s && !strcmp(way->s, "reverse"),
                                   .resets_late = sy_node_int(node, "linear_before_reset", 0) != 0};
    if (w[0] != r[0] || w[2] != x[2] || w[1] != out->gates * r[2] || r[1] != w[1])
        return "weights that do not fit the input and each other";
    return NULL;
}
