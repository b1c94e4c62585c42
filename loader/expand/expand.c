/* The table of operators that are lowered, with their expanders. */
#include "loader/expand/expand.h"

#include <string.h>

#include "loader/expand/expand_learn.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static const struct sy_expander_line *const families[] = {
    sy_expanders_microsoft, sy_expanders_attention, sy_expanders_attend,   sy_expanders_decoder,
    sy_expanders_resize,    sy_expanders_quantized, sy_expanders_sequence, sy_expanders_control,
    sy_expanders_learn,     sy_expanders_various,   sy_expanders_sizes,    sy_expanders_trees,
    sy_expanders_svm,       sy_expanders_training,  sy_expanders_deform,   sy_expanders_gradient,
    sy_expanders_recurrent, sy_expanders_text,      sy_expanders_layouts,  sy_expanders_blocks,
    sy_expanders_bits,      sy_expanders_experts,   sy_expanders_contrib,  sy_expanders_small,
    sy_expanders_flex};

static sy_expander *find(enum sy_op op)
{
    for (size_t f = 0; f < SY_ARRAY_LEN(families); f++)
        for (const struct sy_expander_line *line = families[f]; line->expand; line++)
            if (line->op == op)
                return line->expand;
    return NULL;
}

static bool reads_sequence(const struct sy_infer *in, const struct sy_node *node)
{
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0 && in->sequences[node->inputs[i]])
            return true;
    return false;
}

int sy_expand_node(struct sy_infer *in, int n, bool *replaced)
{
    const struct sy_node *node = &in->graph->nodes[n];
    sy_expander *expander = find(node->op);
    *replaced = false;
    if (node->op == SY_OP_IDENTITY && !reads_sequence(in, node))
        return SY_OK;
    if (node->op == SY_OP_IF && !sy_expand_is_decided(in, node))
        return SY_OK;
    if ((node->op == SY_OP_REDUCE_MAX || node->op == SY_OP_REDUCE_MIN) &&
        !sy_expand_reduces_bool(in, node))
        return SY_OK;
    if (node->op == SY_OP_NON_ZERO && !sy_expand_is_constant(in, node))
        return SY_OK;
    if (node->op == SY_OP_DROPOUT && !sy_expand_drops(in, node))
        return SY_OK;
    if (node->op == SY_OP_SPLIT && !sy_expand_splits_sizes(in, node))
        return SY_OK;
    if ((node->op == SY_OP_QUANTIZE_LINEAR || node->op == SY_OP_DEQUANTIZE_LINEAR) &&
        sy_node_int(node, "block_size", 0) == 0 && !sy_expand_makes_small(in, node))
        return SY_OK;
    if ((node->op == SY_OP_CAST || node->op == SY_OP_CAST_LIKE) && !sy_expand_makes_small(in, node))
        return SY_OK;
    if (node->op == SY_OP_SPACE_TO_DEPTH && strcmp(sy_infer_text(node, "mode", "DCR"), "CRD") != 0)
        return SY_OK;
    if (node->op == SY_OP_RESIZE && sy_node_int(node, "antialias", 0) == 0)
        return SY_OK;
    if (node->op == SY_OP_MS_TOKENIZER && !sy_expand_feeds_grams(in, node))
        return SY_OK;
    if (!expander)
        return SY_OK;
    *replaced = true;
    return sy_expand_by(in, n, expander);
}
