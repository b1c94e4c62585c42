#include "workers/host/program/channels_last.h"

#include <string.h>

#include "runtime/base/status.h"

enum { READERS_DEPTH = 4 }; /* Reshapes between a Transpose and its convolution */

/* The channels-last layout of float32 with these dimensions; false: there is none. */
static bool channels_last_md(int rank, const int64_t *dims, dnnl_memory_desc_t *md)
{
    static const dnnl_format_tag_t tags[] = {[3] = dnnl_acb, [4] = dnnl_acdb, [5] = dnnl_acdeb};
    dnnl_dims_t sizes = {0};
    if (rank < 3 || rank > 5)
        return false;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 1)
            return false;
        sizes[i] = dims[i];
    }
    return dnnl_memory_desc_init_by_tag(md, rank, sizes, dnnl_f32, tags[rank]) == dnnl_success;
}

/* Whether the bytes may be viewed in another layout: float32 made by the program, or given by the caller. */
static bool is_floats(const struct sy_value *v)
{
    return v->dtype == SY_DTYPE_F32 && !sy_value_is_narrow(v) &&
           (v->place == SY_IN_WORKSPACE || v->place == SY_IN_INPUT);
}

/* False where both layouts are the same: then the value counts as row-major. */
static bool is_channels_last(const struct sy_value *v)
{
    dnnl_memory_desc_t md;
    return is_floats(v) && channels_last_md(v->rank, v->dims, &md) &&
           dnnl_memory_desc_equal(&md, &v->md) && !sy_program_is_plain(v);
}

/* Whether batch and channels stay, and only the other dimensions are reshaped. */
static bool keeps_channels(int from_rank, const int64_t *from, int to_rank, const int64_t *to)
{
    return from_rank >= 3 && to_rank >= 3 && from[0] == to[0] && from[1] == to[1];
}

static bool keeps_order(enum sy_op op)
{
    return op == SY_OP_RESHAPE || op == SY_OP_FLATTEN || op == SY_OP_SQUEEZE ||
           op == SY_OP_UNSQUEEZE;
}

static bool wants_channels_last(const struct sy_program *p, int tensor, int depth);

static bool reader_wants(const struct sy_program *p, const struct sy_node *node, int tensor,
                         int depth)
{
    int64_t from[SY_MAX_RANK], to[SY_MAX_RANK];
    if (node->inputs[0] != tensor)
        return false;
    for (int i = 1; i < node->n_inputs; i++)
        if (node->inputs[i] == tensor)
            return false;
    if (node->op == SY_OP_CONV)
        return true;
    if (!keeps_order(node->op) || depth == 0)
        return false;
    sy_program_dims(p, tensor, from);
    sy_program_dims(p, node->outputs[0], to);
    return keeps_channels(p->graph->tensors[tensor].shape.rank, from,
                          p->graph->tensors[node->outputs[0]].shape.rank, to) &&
           wants_channels_last(p, node->outputs[0], depth - 1);
}

/* Whether all its readers are convolutions, perhaps behind Reshapes. */
static bool wants_channels_last(const struct sy_program *p, int tensor, int depth)
{
    bool any = false;
    if (sy_graph_is_output(p->graph, tensor))
        return false;
    for (int l = p->layer + 1; l < p->n_layers && l <= p->last_use[tensor]; l++) {
        const struct sy_node *node = &p->graph->nodes[p->layers[l].node];
        for (int i = 0; i < node->n_inputs; i++) {
            if (node->inputs[i] != tensor)
                continue;
            if (!reader_wants(p, node, tensor, depth))
                return false;
            any = true;
        }
    }
    return any;
}

/* perm moves dimension `from` to place `to`, the others keep their order. */
static bool moves_one(const struct sy_attr *perm, int rank, int from, int to)
{
    if (!perm || perm->n != rank)
        return false;
    for (int i = 0, next = 0; i < rank; i++) {
        next += next == from;
        if (perm->ints[i] != (i == to ? from : next))
            return false;
        next += i != to;
    }
    return true;
}

static int set_alias(struct sy_program *p, int src, const dnnl_memory_desc_t *md)
{
    int out;
    SY_TRY(sy_program_new_alias(p, src, sy_program_node(p)->outputs[0], md, &out));
    sy_program_set_output(p, 0, out);
    return SY_OK;
}

int sy_channels_last_transpose(struct sy_program *p, bool *built)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_attr *perm = sy_node_attr(node, "perm");
    int src, tensor = node->outputs[0], rank = p->graph->tensors[tensor].shape.rank;
    int64_t dims[SY_MAX_RANK];
    dnnl_memory_desc_t md;
    *built = false;
    if (sy_program_is_param(p, 0) || rank < 3 || rank > 5)
        return SY_OK;
    SY_TRY(sy_program_input_native(p, 0, &src));
    if (is_channels_last(&p->values[src]) && moves_one(perm, rank, 1, rank - 1)) {
        *built = true;
        return set_alias(p, src, NULL);
    }
    sy_program_dims(p, tensor, dims);
    *built = is_floats(&p->values[src]) && sy_program_is_plain(&p->values[src]) &&
             moves_one(perm, rank, rank - 1, 1) && channels_last_md(rank, dims, &md) &&
             wants_channels_last(p, tensor, READERS_DEPTH);
    return *built ? set_alias(p, src, &md) : SY_OK;
}

int sy_channels_last_reshape(struct sy_program *p, bool *built)
{
    int src, tensor = sy_program_node(p)->outputs[0], rank = p->graph->tensors[tensor].shape.rank;
    int64_t dims[SY_MAX_RANK];
    dnnl_memory_desc_t md;
    *built = false;
    if (sy_program_is_param(p, 0) || rank < 3 || rank > 5)
        return SY_OK;
    SY_TRY(sy_program_input_native(p, 0, &src));
    sy_program_dims(p, tensor, dims);
    const struct sy_value *v = &p->values[src];
    *built = is_channels_last(v) && keeps_channels(v->rank, v->dims, rank, dims) &&
             channels_last_md(rank, dims, &md);
    return *built ? set_alias(p, src, &md) : SY_OK;
}
