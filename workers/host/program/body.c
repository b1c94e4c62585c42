#include "workers/host/program/body.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/layer_node.h"

/* Header of a layer's packed constants; as long as their alignment. */
struct packed {
    int refs;
    uint64_t bytes;
};

/* Elements moved, as work_of counts them. */
enum { SMALL_LAYER = 16384, SMALL_BODY = 131072, PRODUCTS_AN_ELEMENT = 8 };
#define UNKNOWN_WORK 1e18

/* Bodies are made and run by one thread at a time. */
static uint64_t packed_bytes;

uint64_t sy_body_packed_bytes(void)
{
    return packed_bytes;
}

static int new_packed(uint64_t bytes, unsigned char **out)
{
    struct packed *p = aligned_alloc(SY_LAYER_ALIGN, SY_LAYER_ALIGN + bytes);
    SY_TRY_ALLOC(p, "no memory for %llu bytes of a body's constants", (unsigned long long)bytes);
    *p = (struct packed){1, bytes};
    packed_bytes += bytes;
    *out = (unsigned char *)p + SY_LAYER_ALIGN;
    return SY_OK;
}

static unsigned char *ref_packed(unsigned char *data)
{
    ((struct packed *)(void *)(data - SY_LAYER_ALIGN))->refs++;
    return data;
}

static void drop_packed(unsigned char *data)
{
    struct packed *p = data ? (void *)(data - SY_LAYER_ALIGN) : NULL;
    if (!p || --p->refs > 0)
        return;
    packed_bytes -= p->bytes;
    free(p);
}

void sy_body_finish(struct sy_body *b)
{
    sy_program_destroy(b->program);
    for (int l = 0; b->graph && l < b->graph->n_nodes; l++) {
        for (int i = 0; b->layers && i < b->layers[l].n_params; i++)
            free(b->layers[l].params[i].layout);
        if (b->layers)
            free(b->layers[l].params);
        if (b->params)
            drop_packed(b->params[l]);
    }
    free(b->layers);
    free(b->params);
    free(b->hashes);
    free(b->inputs);
    free(b->outputs);
    *b = (struct sy_body){.graph = NULL};
}

/* Hash over the inputs of a layer's packed constants, except the layout. */
static uint64_t hash_layer(const struct sy_graph *graph, const struct sy_layer *layer)
{
    const struct sy_node *node = &graph->nodes[layer->node];
    uint64_t hash = XXH3_64bits(&node->op, sizeof node->op);
    for (int i = 0; i < node->n_attrs; i++) {
        const struct sy_attr *a = &node->attrs[i];
        hash = XXH3_64bits_withSeed(a->name, strlen(a->name), hash);
        if (a->kind == SY_ATTR_INTS)
            hash = XXH3_64bits_withSeed(a->ints, (size_t)a->n * sizeof *a->ints, hash);
        if (a->kind == SY_ATTR_INT || a->kind == SY_ATTR_FLOAT)
            hash = XXH3_64bits_withSeed(a->kind == SY_ATTR_INT ? (const void *)&a->i : &a->f,
                                        a->kind == SY_ATTR_INT ? sizeof a->i : sizeof a->f, hash);
    }
    for (int i = 0; i < layer->n_params; i++) {
        const struct sy_tensor *t = &graph->tensors[node->inputs[layer->params[i].input]];
        hash = t->is_borrowed ? XXH3_64bits_withSeed(t->name, strlen(t->name), hash)
                              : XXH3_64bits_withSeed(t->data, t->data_bytes, hash);
    }
    return hash;
}

static unsigned char *share_packed(const struct sy_body *like, const struct sy_layer *layer,
                                   uint64_t hash)
{
    for (int l = 0; like && like->program && l < like->graph->n_nodes; l++)
        if (like->params[l] && like->hashes[l] == hash &&
            sy_layer_packed_alike(&like->layers[l], layer))
            return ref_packed(like->params[l]);
    return NULL;
}

/* Operators that may use several threads even on small tensors, or that compute more than their tensors' sizes suggest. */
static bool may_be_long(enum sy_op op)
{
    return op == SY_OP_CONV || op == SY_OP_CONV_TRANSPOSE || op == SY_OP_LSTM || op == SY_OP_GRU ||
           op == SY_OP_RNN || op == SY_OP_ATTENTION || op == SY_OP_EINSUM || op == SY_OP_IF ||
           op == SY_OP_LOOP || op == SY_OP_DYNAMIC || op == SY_OP_TREES;
}

static bool is_product(enum sy_op op)
{
    return op == SY_OP_GEMM || op == SY_OP_MATMUL;
}

/* Estimated cost of a layer in elements moved (some 0.15 ns each); UNKNOWN_WORK if it cannot be estimated. The number of multiplications of a product is the
 * root of the product of its three sizes. */
static double work_of(const struct sy_graph *graph, const struct sy_node *node, int64_t batch)
{
    double product = 1, most = 0;
    for (int i = 0; i < node->n_inputs + node->n_outputs; i++) {
        int t = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
        int64_t n = t < 0 ? 1 : sy_shape_elements(&graph->tensors[t].shape, batch);
        bool is_table = node->op == SY_OP_GATHER && i == 0;
        if (n < 0 || may_be_long(node->op))
            return UNKNOWN_WORK;
        most = SY_MAX(most, is_table ? 0 : (double)n);
        product *= i < 3 && !is_table ? (double)n : 1;
    }
    return most + (is_product(node->op) ? sqrt(product) / PRODUCTS_AN_ELEMENT : 0);
}

/* A body has no profile, so the sizes of tensors decide. One thread computes layers of a few microseconds, and all layers if they take less than waking the
 * other threads. */
static void choose_threads(struct sy_body *b, int64_t batch)
{
    double all = 0;
    for (int l = 0; l < b->graph->n_nodes; l++)
        all += work_of(b->graph, &b->graph->nodes[l], batch);
    for (int l = 0; l < b->graph->n_nodes; l++)
        if (all <= SMALL_BODY || work_of(b->graph, &b->graph->nodes[l], batch) <= SMALL_LAYER)
            b->layers[l].solo_batches = UINT32_MAX;
}

static int pack(struct sy_body *b, int l, const struct sy_body *like)
{
    struct sy_layer *layer = &b->layers[l];
    layer->node = l;
    SY_TRY(sy_host_engine.layout_layer(b->graph, layer));
    if (layer->bytes == 0)
        return SY_OK;
    b->hashes[l] = hash_layer(b->graph, layer);
    if ((b->params[l] = share_packed(like, layer, b->hashes[l])) != NULL)
        return SY_OK;
    SY_TRY(new_packed(layer->bytes, &b->params[l]));
    return sy_host_engine.pack_layer(b->graph, layer, b->params[l]);
}

static int init(struct sy_body *b, const struct sy_graph *graph, int64_t batch,
                struct sy_body *like, const struct sy_captured_param *captured)
{
    size_t n = (size_t)graph->n_nodes;
    b->graph = graph;
    b->layers = calloc(n + 1, sizeof *b->layers);
    b->params = calloc(n + 1, sizeof *b->params);
    b->hashes = calloc(n + 1, sizeof *b->hashes);
    b->inputs = calloc((size_t)graph->n_inputs + 1, sizeof *b->inputs);
    b->outputs = calloc((size_t)graph->n_outputs + 1, sizeof *b->outputs);
    SY_TRY_ALLOC(b->layers && b->params && b->hashes && b->inputs && b->outputs,
                 "no memory for a body of %zu layers", n);
    for (int l = 0; l < graph->n_nodes; l++)
        SY_TRY(pack(b, l, like));
    choose_threads(b, batch);
    return sy_program_create_inside(graph, b->layers, graph->n_nodes, batch, captured, &b->program);
}

int sy_body_init(struct sy_body *b, const struct sy_graph *graph, int64_t batch)
{
    return sy_body_init_like(b, graph, batch, NULL);
}

int sy_body_init_like(struct sy_body *b, const struct sy_graph *graph, int64_t batch,
                      struct sy_body *like)
{
    return init(b, graph, batch, like, NULL);
}

int sy_body_init_inside(struct sy_body *b, const struct sy_graph *graph, int64_t batch,
                        const struct sy_captured_param *captured)
{
    return init(b, graph, batch, NULL, captured);
}

int sy_body_run(struct sy_body *b, void *workspace)
{
    struct sy_binding binding = {b->params, workspace, b->inputs, b->outputs};
    return sy_program_run(b->program, &binding, 0, b->graph->n_nodes);
}
