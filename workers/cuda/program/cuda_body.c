#include "workers/cuda/program/cuda_body.h"

#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_run.h"
#include "workers/engine/layer_node.h"

uint64_t sy_cuda_reserve(uint64_t *total, uint64_t bytes)
{
    uint64_t at = SY_ALIGN_UP(*total, (uint64_t)SY_CUDA_PLACE_ALIGN);
    *total = at + bytes;
    return at;
}

void sy_cuda_body_finish(const struct sy_program *outer, struct sy_cuda_body *b)
{
    if (b->program)
        sy_cuda_program_drop(b->program);
    if (b->packed)
        outer->ops->host_drop(outer->math, b->packed);
    for (int l = 0; b->layers && l < b->graph->n_nodes; l++) {
        for (int i = 0; i < b->layers[l].n_params; i++)
            free(b->layers[l].params[i].layout);
        free(b->layers[l].params);
    }
    free(b->layers);
    free(b->captured);
    free(b->params);
    free(b->inputs);
    free(b->outputs);
    *b = (struct sy_cuda_body){.graph = NULL};
}

static int take_lists(struct sy_cuda_body *b)
{
    size_t n = (size_t)b->graph->n_nodes + 1, n_in = (size_t)b->graph->n_inputs + 1,
           n_out = (size_t)b->graph->n_outputs + 1;
    b->layers = calloc(n, sizeof *b->layers);
    b->params = calloc(n, sizeof *b->params);
    b->captured = calloc(n_in, sizeof *b->captured);
    b->inputs = calloc(n_in, sizeof *b->inputs);
    b->outputs = calloc(n_out, sizeof *b->outputs);
    return b->layers && b->params && b->captured && b->inputs && b->outputs
               ? SY_OK
               : sy_error_set(SY_ENOMEM_HOST, "no memory for a body of %zu layers", n);
}

/* Only what this engine has: whether another may help does not depend on a body's node, but on the node that has the body. */
static int lay_out(const struct sy_cuda_builders *builders, struct sy_cuda_body *b)
{
    for (int l = 0; l < b->graph->n_nodes; l++) {
        struct sy_layer *layer = &b->layers[l];
        layer->node = l;
        SY_TRY(sy_cuda_layout_own(builders, b->graph, layer));
        layer->offset_bytes = b->packed_bytes;
        b->packed_bytes += layer->bytes;
    }
    return SY_OK;
}

static int pack(struct sy_program *outer, struct sy_cuda_body *b)
{
    void *packed;
    if (b->packed_bytes == 0)
        return SY_OK;
    SY_TRY(outer->ops->host_take(outer->math, b->packed_bytes, &packed));
    b->packed = packed;
    for (int l = 0; l < b->graph->n_nodes; l++)
        if (b->layers[l].bytes)
            SY_TRY(sy_cuda_pack_params(b->graph, &b->layers[l],
                                       b->packed + b->layers[l].offset_bytes));
    return SY_OK;
}

static int make(struct sy_program *outer, struct sy_cuda_body *b, uint64_t *place_bytes)
{
    SY_TRY(b->packed ? SY_OK : pack(outer, b));
    SY_TRY(b->is_by_itself
               ? sy_cuda_program_create(outer->builders, outer->ops, outer->math, b->graph,
                                        b->layers, b->graph->n_nodes, 1, &b->program)
               : sy_cuda_program_create_body(outer, b->graph, b->layers, b->captured, &b->program));
    b->params_at = sy_cuda_reserve(place_bytes, b->packed_bytes);
    b->workspace_at = sy_cuda_reserve(place_bytes, b->program->workspace_bytes);
    return SY_OK;
}

int sy_cuda_body_init(struct sy_program *outer, const struct sy_graph *graph, int formal,
                      uint64_t *place_bytes, struct sy_cuda_body *b)
{
    b->graph = graph;
    if (graph->n_nodes < 1)
        return sy_unsupported(sy_cuda_node(outer), "a body without nodes");
    SY_TRY(take_lists(b));
    for (int i = formal; i < graph->n_inputs; i++)
        b->captured[i] = true;
    SY_TRY(lay_out(outer->builders, b));
    return outer->math ? make(outer, b, place_bytes) : SY_OK;
}

int sy_cuda_body_init_by_itself(struct sy_program *outer, const struct sy_graph *graph,
                                struct sy_cuda_body *like, uint64_t *place_bytes,
                                struct sy_cuda_body *b)
{
    b->graph = graph;
    b->is_by_itself = true;
    SY_TRY(take_lists(b));
    SY_TRY(lay_out(outer->builders, b));
    bool alike = like && like->packed && like->graph->n_nodes == graph->n_nodes;
    for (int l = 0; alike && l < graph->n_nodes; l++)
        alike = sy_layer_packed_alike(&like->layers[l], &b->layers[l]);
    if (alike) {
        b->packed = like->packed;
        like->packed = NULL;
    }
    return make(outer, b, place_bytes);
}

int sy_cuda_body_bring(struct sy_program *outer, struct sy_cuda_body *b, unsigned char *place)
{
    for (int l = 0; l < b->graph->n_nodes; l++)
        b->params[l] = place + b->params_at + b->layers[l].offset_bytes;
    return b->packed_bytes ? outer->ops->to_device(outer->math, b->packed, place + b->params_at,
                                                   b->packed_bytes)
                           : SY_OK;
}

int sy_cuda_body_run(struct sy_cuda_body *b, unsigned char *place)
{
    struct sy_binding binding = {.layer_params = b->params,
                                 .workspace = place + b->workspace_at,
                                 .inputs = b->inputs,
                                 .outputs = b->outputs};
    return sy_cuda_program_run(b->program, &binding, 0, b->graph->n_nodes);
}

int sy_cuda_body_check_bounds(struct sy_cuda_body *b)
{
    return sy_cuda_program_finish(b->program);
}
