#include "workers/host/body.h"

#include <stdlib.h>

#include "runtime/base/status.h"
#include "workers/host/program.h"
#include "workers/layer_node.h"

void sy_body_finish(struct sy_body *b)
{
    sy_program_destroy(b->program);
    for (int l = 0; b->graph && l < b->graph->n_nodes; l++) {
        for (int i = 0; b->layers && i < b->layers[l].n_params; i++)
            free(b->layers[l].params[i].layout);
        if (b->layers)
            free(b->layers[l].params);
        if (b->params)
            free(b->params[l]);
    }
    free(b->layers);
    free(b->params);
    free(b->inputs);
    free(b->outputs);
    *b = (struct sy_body){.graph = NULL};
}

static void *take_packed(struct sy_body *like, int l, const struct sy_layer *layer)
{
    if (!like || !like->params || l >= like->graph->n_nodes ||
        !sy_layer_packed_alike(&like->layers[l], layer))
        return NULL;
    void *params = like->params[l];
    like->params[l] = NULL;
    return params;
}

static int pack(struct sy_body *b, int l, struct sy_body *like)
{
    struct sy_layer *layer = &b->layers[l];
    layer->node = l;
    SY_TRY(sy_host_engine.layout_layer(b->graph, layer));
    if (layer->bytes == 0 || (b->params[l] = take_packed(like, l, layer)) != NULL)
        return SY_OK;
    b->params[l] = aligned_alloc(SY_LAYER_ALIGN, layer->bytes);
    if (!b->params[l])
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a body's constants");
    return sy_host_engine.pack_layer(b->graph, layer, b->params[l]);
}

int sy_body_init(struct sy_body *b, const struct sy_graph *graph, int64_t batch)
{
    return sy_body_init_like(b, graph, batch, NULL);
}

int sy_body_init_like(struct sy_body *b, const struct sy_graph *graph, int64_t batch,
                      struct sy_body *like)
{
    size_t n = (size_t)graph->n_nodes;
    b->graph = graph;
    b->layers = calloc(n + 1, sizeof *b->layers);
    b->params = calloc(n + 1, sizeof *b->params);
    b->inputs = calloc((size_t)graph->n_inputs + 1, sizeof *b->inputs);
    b->outputs = calloc((size_t)graph->n_outputs + 1, sizeof *b->outputs);
    if (!b->layers || !b->params || !b->inputs || !b->outputs)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a body of %zu layers", n);
    for (int l = 0; l < graph->n_nodes; l++)
        SY_TRY(pack(b, l, like));
    return sy_program_create(graph, b->layers, graph->n_nodes, batch, &b->program);
}

int sy_body_run(struct sy_body *b, void *workspace)
{
    struct sy_binding binding = {b->params, workspace, b->inputs, b->outputs};
    return sy_program_run(b->program, &binding, 0, b->graph->n_nodes);
}
