/* Inference: runs the rules in order, folds, and checks what is left. */
#include "loader/graph_infer.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static sy_infer_rule *const rules[SY_OP_COUNT] = {
    [SY_OP_CONV] = sy_rule_conv,
    [SY_OP_BATCH_NORM] = sy_rule_batch_norm,
    [SY_OP_RELU] = sy_rule_same,
    [SY_OP_LEAKY_RELU] = sy_rule_same,
    [SY_OP_SIGMOID] = sy_rule_same,
    [SY_OP_TANH] = sy_rule_same,
    [SY_OP_ERF] = sy_rule_same,
    [SY_OP_CLIP] = sy_rule_clip,
    [SY_OP_HARD_SIGMOID] = sy_rule_same,
    [SY_OP_HARD_SWISH] = sy_rule_same,
    [SY_OP_ELU] = sy_rule_same,
    [SY_OP_EXP] = sy_rule_same,
    [SY_OP_LOG] = sy_rule_same,
    [SY_OP_SQRT] = sy_rule_same,
    [SY_OP_NEG] = sy_rule_same,
    [SY_OP_ABS] = sy_rule_same,
    [SY_OP_RECIPROCAL] = sy_rule_same,
    [SY_OP_POW] = sy_rule_broadcast,
    [SY_OP_ADD] = sy_rule_broadcast,
    [SY_OP_SUB] = sy_rule_broadcast,
    [SY_OP_MUL] = sy_rule_broadcast,
    [SY_OP_DIV] = sy_rule_broadcast,
    [SY_OP_MIN] = sy_rule_broadcast,
    [SY_OP_MAX] = sy_rule_broadcast,
    [SY_OP_SUM] = sy_rule_broadcast,
    [SY_OP_MAX_POOL] = sy_rule_pool,
    [SY_OP_AVERAGE_POOL] = sy_rule_pool,
    [SY_OP_GLOBAL_AVERAGE_POOL] = sy_rule_global_pool,
    [SY_OP_GLOBAL_MAX_POOL] = sy_rule_global_pool,
    [SY_OP_GEMM] = sy_rule_gemm,
    [SY_OP_MATMUL] = sy_rule_matmul,
    [SY_OP_SOFTMAX] = sy_rule_softmax,
    [SY_OP_LOG_SOFTMAX] = sy_rule_softmax,
    [SY_OP_LAYER_NORM] = sy_rule_layer_norm,
    [SY_OP_REDUCE_MEAN] = sy_rule_reduce,
    [SY_OP_REDUCE_SUM] = sy_rule_reduce,
    [SY_OP_GATHER] = sy_rule_gather,
    [SY_OP_CONCAT] = sy_rule_concat,
    [SY_OP_SPLIT] = sy_rule_split,
    [SY_OP_SLICE] = sy_rule_slice,
    [SY_OP_TRANSPOSE] = sy_rule_transpose,
    [SY_OP_RESHAPE] = sy_rule_reshape,
    [SY_OP_FLATTEN] = sy_rule_flatten,
    [SY_OP_SQUEEZE] = sy_rule_squeeze,
    [SY_OP_UNSQUEEZE] = sy_rule_unsqueeze,
    [SY_OP_IDENTITY] = sy_rule_same,
    [SY_OP_DROPOUT] = sy_rule_dropout,
    [SY_OP_CAST] = sy_rule_cast,
    [SY_OP_PAD] = sy_rule_pad,
    [SY_OP_EXPAND] = sy_rule_expand,
    [SY_OP_WHERE] = sy_rule_broadcast,
    [SY_OP_EQUAL] = sy_rule_broadcast,
    [SY_OP_LRN] = sy_rule_same,
    [SY_OP_SHAPE] = sy_rule_shape,
    [SY_OP_CONSTANT_OF_SHAPE] = sy_rule_constant_of_shape,
    [SY_OP_RANGE] = sy_rule_range,
    [SY_OP_GELU] = sy_rule_same,
};

/* Room for the constants that rules add, at most one a node. */
static int open_infer(struct sy_infer *in, struct sy_graph *graph)
{
    int *uses;
    *in = (struct sy_infer){.graph = graph, .capacity = graph->n_tensors + graph->n_nodes};
    SY_TRY(sy_graph_alloc((size_t)in->capacity, sizeof(struct sy_dim *), &in->values));
    SY_TRY(sy_graph_alloc((size_t)in->capacity, sizeof *in->uses, &in->uses));
    SY_TRY(sy_graph_use_counts(graph, &uses));
    memcpy(in->uses, uses, (size_t)graph->n_tensors * sizeof *uses);
    free(uses);
    return SY_OK;
}

static void close_infer(struct sy_infer *in)
{
    for (int t = 0; in->values && t < in->capacity; t++)
        free(in->values[t]);
    free(in->values);
    free(in->uses);
}

/* Only the first dimension of an input may be symbolic. */
static int check_input(const struct sy_tensor *input)
{
    char text[160];
    for (int i = 1; i < input->shape.rank; i++)
        if (input->shape.dims[i].per_batch != 0)
            return sy_error_set(
                SY_EUNSUPPORTED,
                "input '%.100s' has shape %s: only the first dimension may be symbolic, "
                "export the model with numbers for the others",
                input->name, sy_shape_text(&input->shape, text, sizeof text));
    return SY_OK;
}

static int check_output(const struct sy_node *node, const struct sy_tensor *tensor)
{
    char text[160];
    int64_t n = sy_shape_elements(&tensor->shape, 1);
    for (int i = 0; n >= 0 && i < tensor->shape.rank; i++)
        if (tensor->shape.dims[i].per_batch < 0 || sy_dim_at(tensor->shape.dims[i], 1) < 0)
            n = -1;
    if (n < 0 || n > INT64_MAX / 16 || sy_dtype_bytes(tensor->dtype) == 0)
        return sy_infer_fail(node, SY_ECORRUPT, "result '%.80s' of shape %s", tensor->name,
                             sy_shape_text(&tensor->shape, text, sizeof text));
    return SY_OK;
}

static int infer_node(struct sy_infer *in, int n)
{
    struct sy_node *node = &in->graph->nodes[n];
    bool folded = false;
    if (!rules[node->op])
        return sy_infer_fail(node, SY_EUNSUPPORTED, "this operator is not supported");
    SY_TRY(rules[node->op](in, node));
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] >= 0)
            SY_TRY(check_output(node, &in->graph->tensors[node->outputs[i]]));
    SY_TRY(sy_fold_node(in, node, &folded));
    if (folded && in->graph->tensors[node->outputs[0]].data)
        sy_node_finish(node);
    return SY_OK;
}

/* All values come from a Shape; if one is alive then something computes with the batch size itself. */
static int check_left(const struct sy_graph *graph)
{
    for (int n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].op == SY_OP_SHAPE || graph->nodes[n].op == SY_OP_RANGE)
            return sy_infer_fail(&graph->nodes[n], SY_EUNSUPPORTED,
                                 "the batch size is used as a number, not only as a shape");
    return SY_OK;
}

int sy_graph_infer(struct sy_graph *graph)
{
    struct sy_infer in;
    int status;
    for (int i = 0; i < graph->n_inputs; i++)
        SY_TRY(check_input(&graph->tensors[graph->inputs[i]]));
    SY_TRY_GOTO(open_infer(&in, graph), out);
    for (int n = 0; n < graph->n_nodes; n++)
        SY_TRY_GOTO(infer_node(&in, n), out);
    sy_graph_compact(graph);
    SY_TRY_GOTO(sy_graph_remove_dead(graph), out);
    status = check_left(graph);
out:
    close_infer(&in);
    return status;
}
