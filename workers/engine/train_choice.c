#include "workers/engine/train_choice.h"

#include <fnmatch.h>

#include "runtime/base/status.h"

/* Weights of these operators are trained whatever their size; a constant of one element elsewhere is a number of the formula. */
static bool is_weight(const struct sy_node *node, int input)
{
    switch (node->op) {
    case SY_OP_CONV:
    case SY_OP_CONV_TRANSPOSE:
    case SY_OP_GEMM:
    case SY_OP_MATMUL:
    case SY_OP_PRELU:
    case SY_OP_LAYER_NORM:
    case SY_OP_RMS_NORM:
    case SY_OP_INSTANCE_NORM:
    case SY_OP_GROUP_NORM:
        return true;
    case SY_OP_ATTENTION: /* of products of matrices */
        return input < 3;
    case SY_OP_BATCH_NORM:
        return input == 1 || input == 2;
    case SY_OP_LSTM:
    case SY_OP_GRU:
    case SY_OP_RNN:
        return input >= 1 && input <= 3;
    default:
        return false;
    }
}

/* Which other constants are trained: named in the file as a parameter (a name of its own, not a constant node's or a folded
 * one's), and more than one number. */
static bool is_free_weight(const struct sy_graph *g, const struct sy_node *node, int input)
{
    const struct sy_tensor *x = &g->tensors[node->inputs[input]];
    if (x->is_derived || sy_shape_elements(&x->shape, 1) < 2)
        return false;
    switch (node->op) {
    case SY_OP_ADD:
    case SY_OP_SUB:
    case SY_OP_MUL:
    case SY_OP_DIV:
    case SY_OP_CONCAT:
    case SY_OP_EXPAND:
    case SY_OP_TRANSPOSE:
    case SY_OP_RESHAPE:
    case SY_OP_SLICE:
    case SY_OP_SPLIT:
    case SY_OP_UNSQUEEZE:
    case SY_OP_SQUEEZE:
    case SY_OP_TILE:
    case SY_OP_IDENTITY:
    case SY_OP_SIGMOID:
    case SY_OP_TANH:
    case SY_OP_EXP:
    case SY_OP_SOFTPLUS:
    case SY_OP_SOFTMAX:
        return true;
    case SY_OP_GATHER:
        return input == 0;
    default:
        return false;
    }
}

static bool is_frozen(char *const *frozen, const char *name)
{
    for (char *const *pattern = frozen; pattern && *pattern; pattern++)
        if (fnmatch(*pattern, name, 0) == 0)
            return true;
    return false;
}

bool sy_train_is_trained(const struct sy_graph *g, int n, int input, char *const *frozen)
{
    const struct sy_node *node = &g->nodes[n];
    int tensor = node->inputs[input];
    if (tensor < 0 || !g->tensors[tensor].data || g->tensors[tensor].dtype != SY_DTYPE_F32)
        return false;
    return !is_frozen(frozen, g->tensors[tensor].name) &&
           (is_weight(node, input) || is_free_weight(g, node, input));
}

static bool fits_a_weight(const struct sy_graph *g, const char *pattern, const char **a_weight)
{
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_inputs; i++) {
            if (!sy_train_is_trained(g, n, i, NULL))
                continue;
            *a_weight = g->tensors[g->nodes[n].inputs[i]].name;
            if (fnmatch(pattern, *a_weight, 0) == 0)
                return true;
        }
    return false;
}

int sy_train_check_frozen(const struct sy_graph *graph, char *const *frozen)
{
    const char *a_weight = "none";
    for (char *const *pattern = frozen; pattern && *pattern; pattern++)
        if (!fits_a_weight(graph, *pattern, &a_weight))
            return sy_error_set(SY_EARG, "'frozen': no weight fits '%s'; one is called '%s'",
                                *pattern, a_weight);
    return SY_OK;
}
