/* Outputs of a graph that are sequences: their tensors, by the names NAME[0], NAME[1] and on. And how many ends a model has. */
#include "loader/infer/sequence_ends.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "runtime/base/status.h"

static bool has_name(const struct sy_graph *graph, const char *name)
{
    for (int i = 0; i < graph->n_outputs; i++)
        if (strcmp(graph->tensors[graph->outputs[i]].name, name) == 0)
            return true;
    return false;
}

/* Copies the tensor under the output's name; deferred if the tensor is. */
static int add_element(struct sy_infer *in, int sequence, int i, int *out)
{
    struct sy_graph *graph = in->graph;
    int from = in->sequences[sequence]->tensors[i];
    struct sy_shape shape = graph->tensors[from].shape;
    char name[1100];
    if (in->sequences[from])
        return sy_error_set(SY_EUNSUPPORTED, "output '%.120s' is a sequence of sequences",
                            graph->tensors[sequence].name);
    snprintf(name, sizeof name, "%s[%d]", graph->tensors[sequence].name, i);
    if (has_name(graph, name))
        return sy_error_set(SY_EUNSUPPORTED,
                            "output '%.120s' is a sequence, and there is an output '%.120s'",
                            graph->tensors[sequence].name, name);
    SY_TRY(sy_graph_add_tensor(graph, name, graph->tensors[from].dtype, &shape, out));
    SY_TRY(sy_graph_add_node(graph, SY_OP_IDENTITY, 13, name, 1, &from, 1, out, NULL));
    SY_TRY(sy_expand_grow(in));
    in->uses[from]++;
    in->is_dynamic[*out] = in->is_dynamic[from];
    return SY_OK;
}

static int count_outputs(const struct sy_infer *in)
{
    int n = 0;
    for (int i = 0; i < in->graph->n_outputs; i++) {
        const struct sy_sequence *s = in->sequences[in->graph->outputs[i]];
        n += s ? s->n : 1;
    }
    return n;
}

static int add_elements(struct sy_infer *in, int *outputs)
{
    int n = 0;
    for (int i = 0; i < in->graph->n_outputs; i++) {
        int tensor = in->graph->outputs[i];
        if (!in->sequences[tensor])
            outputs[n++] = tensor;
        for (int k = 0; in->sequences[tensor] && k < in->sequences[tensor]->n; k++)
            SY_TRY(add_element(in, tensor, k, &outputs[n++]));
    }
    return SY_OK;
}

int sy_sequence_outputs(struct sy_infer *in)
{
    struct sy_graph *graph = in->graph;
    int n = count_outputs(in), *outputs;
    bool any = false;
    for (int i = 0; i < graph->n_outputs; i++)
        any = any || in->sequences[graph->outputs[i]];
    if (!any)
        return SY_OK;
    if (n == 0)
        return sy_error_set(SY_EUNSUPPORTED, "the outputs are sequences of no tensors");
    SY_TRY(sy_graph_alloc((size_t)n, sizeof *outputs, &outputs));
    int status = add_elements(in, outputs);
    if (status < 0) {
        free(outputs);
        return status;
    }
    free(graph->outputs);
    graph->outputs = outputs;
    graph->n_outputs = n;
    return SY_OK;
}

int sy_check_ends(const struct sy_graph *graph)
{
    if (graph->n_inputs > SY_MAX_ENDS || graph->n_outputs > SY_MAX_ENDS)
        return sy_error_set(SY_EUNSUPPORTED,
                            "the model has %d inputs and %d outputs (of a sequence each tensor is "
                            "one), at most %d of each are supported",
                            graph->n_inputs, graph->n_outputs, SY_MAX_ENDS);
    return SY_OK;
}
