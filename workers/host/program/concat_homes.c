#include "workers/host/program/concat_homes.h"

enum { NEAR = 64 }; /* concatenations before a root that are compared with it */

struct search {
    const struct sy_graph *graph;
    const struct sy_layer *layers;
    struct sy_concat_home *homes;
};

static int64_t channels_of(const struct search *s, int tensor)
{
    return s->graph->tensors[tensor].shape.dims[1].fixed;
}

/* Whether it joins images along their channels, whose number is known. */
static bool is_channel_concat(const struct search *s, const struct sy_node *node)
{
    if (node->op != SY_OP_CONCAT || node->n_outputs != 1 || node->outputs[0] < 0)
        return false;
    const struct sy_tensor *y = &s->graph->tensors[node->outputs[0]];
    int64_t axis = sy_node_int(node, "axis", 0);
    if (y->dtype != SY_DTYPE_F32 || y->shape.rank < 3 || y->shape.rank > 5 ||
        (axis < 0 ? axis + y->shape.rank : axis) != 1)
        return false;
    for (int i = 0; i < node->n_inputs; i++)
        if (!sy_dim_is_number(s->graph->tensors[node->inputs[i]].shape.dims[1]) ||
            channels_of(s, node->inputs[i]) < 1)
            return false;
    return node->n_inputs > 0;
}

/* Position among the inputs of `whole` at which all inputs of `part` follow each other; -1: none. */
static int find_part(const struct sy_node *part, const struct sy_node *whole)
{
    for (int at = 0; at + part->n_inputs <= whole->n_inputs; at++) {
        int i = 0;
        while (i < part->n_inputs && part->inputs[i] == whole->inputs[at + i])
            i++;
        if (i == part->n_inputs)
            return at;
    }
    return -1;
}

/* The channel of `whole` at which input `input` begins. */
static int64_t channel_of(const struct search *s, const struct sy_node *whole, int input)
{
    int64_t channel = 0;
    for (int i = 0; i < input; i++)
        channel += channels_of(s, whole->inputs[i]);
    return channel;
}

/* The place that `part` has in `whole`; false: none. */
static bool find_place(const struct search *s, const struct sy_node *part,
                       const struct sy_node *whole, int64_t *channel)
{
    int at = find_part(part, whole);
    for (int i = 0; at < 0 && i < whole->n_inputs; i++)
        if (whole->inputs[i] == part->outputs[0]) {
            *channel = channel_of(s, whole, i);
            return true;
        }
    if (at >= 0)
        *channel = channel_of(s, whole, at);
    return at >= 0;
}

/* Concatenations near before layer `last` that are parts of its tensor, which has a place already. */
static void find_parts(const struct search *s, int last)
{
    const struct sy_node *whole = &s->graph->nodes[s->layers[last].node];
    const struct sy_concat_home *home = &s->homes[whole->outputs[0]];
    int seen = 0;
    for (int l = last - 1; l >= 0 && seen < NEAR; l--) {
        const struct sy_node *part = &s->graph->nodes[s->layers[l].node];
        int64_t channel;
        if (!is_channel_concat(s, part))
            continue;
        seen++;
        if (s->homes[part->outputs[0]].root >= 0 || !find_place(s, part, whole, &channel))
            continue;
        s->homes[part->outputs[0]] =
            (struct sy_concat_home){.root = home->root, .first = home->first + channel};
        s->homes[home->root].joined = true;
    }
}

void sy_concat_homes_find(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                          struct sy_concat_home *homes)
{
    const struct search s = {graph, layers, homes};
    for (int t = 0; t < graph->n_tensors; t++)
        homes[t] = (struct sy_concat_home){.root = -1};
    for (int l = n_layers - 1; l >= 0; l--) {
        const struct sy_node *node = &graph->nodes[layers[l].node];
        if (!is_channel_concat(&s, node))
            continue;
        struct sy_concat_home *home = &homes[node->outputs[0]];
        if (home->root < 0)
            *home = (struct sy_concat_home){.root = node->outputs[0]};
        find_parts(&s, l);
    }
}
