/* Takes a node out and puts what an expander adds in its place. */
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MAX_EXPANDED = 20000 }; /* each moves the nodes behind it */

static int grow_array(void *array, size_t from, size_t to, size_t bytes)
{
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, to * bytes);
    SY_TRY_ALLOC(grown, "no memory for %zu tensors", to);
    memset((char *)grown + from * bytes, 0, (to - from) * bytes);
    memcpy(array, &grown, sizeof grown);
    return SY_OK;
}

int sy_expand_grow(struct sy_infer *in)
{
    int capacity = in->graph->n_tensors + in->graph->n_nodes;
    size_t from = (size_t)in->capacity, to = (size_t)SY_MAX(capacity, 2 * in->capacity);
    if (capacity <= in->capacity)
        return SY_OK;
    SY_TRY(grow_array(&in->values, from, to, sizeof *in->values));
    SY_TRY(grow_array(&in->fractions, from, to, sizeof *in->fractions));
    SY_TRY(grow_array(&in->sequences, from, to, sizeof *in->sequences));
    SY_TRY(grow_array(&in->uses, from, to, sizeof *in->uses));
    SY_TRY(grow_array(&in->is_dynamic, from, to, sizeof *in->is_dynamic));
    in->capacity = (int)to;
    return SY_OK;
}

static void count_uses(struct sy_infer *in, const struct sy_node *node, int by)
{
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0)
            in->uses[node->inputs[i]] += by;
}

/* Nodes from `first` on go behind node n. */
static int move_into_place(struct sy_graph *graph, int n, int first)
{
    size_t added = (size_t)(graph->n_nodes - first), between = (size_t)(first - n - 1);
    struct sy_node *keep;
    if (added == 0 || between == 0)
        return SY_OK;
    SY_TRY(sy_graph_alloc(added, sizeof *keep, &keep));
    memcpy(keep, &graph->nodes[first], added * sizeof *keep);
    memmove(&graph->nodes[n + 1 + (int)added], &graph->nodes[n + 1], between * sizeof *keep);
    memcpy(&graph->nodes[n + 1], keep, added * sizeof *keep);
    free(keep);
    return SY_OK;
}

/* Results that are read have a maker in the expansion, or are sequences. */
static int check_results(struct sy_expand *e)
{
    for (int i = 0; i < e->node->n_outputs; i++) {
        int out = e->node->outputs[i];
        bool made = !sy_expand_wanted(e, i) || (out < e->in->capacity && e->in->sequences[out]);
        for (int n = e->first; n < e->graph->n_nodes && !made; n++)
            for (int k = 0; k < e->graph->nodes[n].n_outputs; k++)
                made = made || e->graph->nodes[n].outputs[k] == out;
        if (!made)
            return sy_infer_fail(e->node, SY_EUNSUPPORTED, "output %d is used, which is not made",
                                 i);
    }
    return SY_OK;
}

int sy_expand_by(struct sy_infer *in, int n, sy_expander *expander)
{
    struct sy_graph *graph = in->graph;
    struct sy_node node = graph->nodes[n];
    struct sy_expand e = {.in = in, .graph = graph, .node = &node, .first = graph->n_nodes};
    if (++in->n_expanded > MAX_EXPANDED)
        return sy_infer_fail(&node, SY_EUNSUPPORTED, "more than %d operators are to be written out",
                             MAX_EXPANDED);
    graph->nodes[n] = (struct sy_node){.bias_input = -1, .residual_input = -1};
    int status = expander(&e);
    if (status == SY_OK)
        status = e.status;
    if (status == SY_OK)
        status = check_results(&e);
    if (status == SY_OK)
        status = sy_expand_grow(in);
    if (status == SY_OK) {
        count_uses(in, &node, -1);
        for (int i = e.first; i < graph->n_nodes; i++)
            count_uses(in, &graph->nodes[i], 1);
    }
    sy_node_finish(&node);
    SY_TRY(status);
    return move_into_place(graph, n, e.first);
}
