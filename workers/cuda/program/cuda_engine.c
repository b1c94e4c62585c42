#include "workers/cuda/program/cuda_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/graph_cache.h"
#include "workers/cuda/program/cuda_program.h"
#include "workers/cuda/program/host_ops.h"
#include "workers/cuda/program/node_help.h"

/* Raised whenever packed parameters or layer tables change their meaning. */
#define LAYOUT_VERSION 4
#define MAX_GRAPHS     1024 /* a graph of some dozen kernels takes some 100 KB of the device */

static const struct sy_cuda_op *const tables[] = {
    sy_cuda_ops_conv, sy_cuda_ops_matmul, sy_cuda_ops_pool,      sy_cuda_ops_eltwise,
    sy_cuda_ops_norm, sy_cuda_ops_lists,  sy_cuda_ops_movement,  sy_cuda_ops_recurrent,
    sy_cuda_ops_more, sy_cuda_ops_deconv, sy_cuda_ops_attention, sy_cuda_ops_control};

static struct {
    const struct sy_math_ops *ops;
    struct sy_math *math;          /* NULL: not attached */
    struct sy_graph_cache *graphs; /* NULL: SY_CUDA_GRAPHS=0 */
    struct sy_stream *compute;     /* borrowed */
    bool allow_host_ops;           /* at import */
    int (*turn)(void *ctx);        /* NULL: nothing */
    void *turn_ctx;
} engine;

void sy_cuda_engine_use(const struct sy_math_ops *ops)
{
    assert(!engine.math);
    engine.ops = ops;
}

const struct sy_cuda_op *sy_cuda_op_find(enum sy_op op)
{
    for (size_t t = 0; t < SY_ARRAY_LEN(tables); t++)
        for (const struct sy_cuda_op *o = tables[t]; o->build; o++)
            if (sy_op_is_among(o->ops, o->n_ops, op))
                return o;
    return NULL;
}

/* ---- import ------------------------------------------------------------------------------------------- */

/* Layouts are our own: they depend on no library and on no GPU. */
static int describe(char *buffer, size_t bytes)
{
    snprintf(buffer, bytes, "cuda-%d channels-last", LAYOUT_VERSION);
    return SY_OK;
}

/* Every GPU from sm_80 on multiplies all of them. */
static int check_precision(enum sy_precision precision)
{
    (void)precision;
    return SY_OK;
}

static bool fuses(enum sy_op op, int64_t size)
{
    return op == SY_OP_ATTENTION && size <= SY_MATH_ATTENTION_SIZE;
}

/* The host's part of this engine is one thread. */
static int set_threads(const int *cores, int n)
{
    if (n >= 1)
        sy_cuda_host_set_threads(cores, n);
    return n < 1 ? sy_error_set(SY_EARG, "%d compute threads", n) : SY_OK;
}

/* E3. What a view is told about its shape is not read by the device. */
static bool is_param(const struct sy_graph *graph, const struct sy_node *node, int input)
{
    bool view = node->op == SY_OP_RESHAPE || node->op == SY_OP_SQUEEZE ||
                node->op == SY_OP_UNSQUEEZE || node->op == SY_OP_EXPAND;
    if (node->inputs[input] < 0 || (view && input > 0))
        return false;
    return graph->tensors[node->inputs[input]].data != NULL;
}

uint32_t sy_cuda_layout_of(const struct sy_graph *graph, const struct sy_node *node, int input)
{
    const struct sy_cuda_op *op = sy_cuda_op_find(node->op);
    uint32_t layout = (uint32_t)(op && op->layout ? op->layout(graph, node, input) : SY_CUDA_AS_IS);
    return layout | (sy_cuda_packs_narrow(graph, node, input) ? SY_CUDA_NARROW : 0);
}

static int param_form(const struct sy_graph *graph, const struct sy_node *node, int input,
                      struct sy_param_form *out)
{
    uint32_t layout = sy_cuda_layout_of(graph, node, input);
    uint64_t bytes = graph->tensors[node->inputs[input]].data_bytes;
    out->bytes = layout & SY_CUDA_NARROW ? bytes / 2 : bytes;
    out->layout_bytes = layout == SY_CUDA_AS_IS ? 0 : sizeof layout;
    memcpy(out->layout, &layout, sizeof layout);
    return SY_OK;
}

static void drop_params(struct sy_layer *layer)
{
    for (int i = 0; i < layer->n_params; i++)
        free(layer->params[i].layout);
    free(layer->params);
    layer->params = NULL;
    layer->n_params = 0;
    layer->bytes = 0;
}

/* Making the layer's steps once on trial makes import refuse by name what could not run. */
int sy_cuda_layout_own(const struct sy_graph *graph, struct sy_layer *layer)
{
    static const struct sy_param_rules rules = {is_param, param_form};
    const struct sy_node *node = &graph->nodes[layer->node];
    layer->bytes = 0;
    layer->n_params = 0;
    if (!sy_cuda_op_find(node->op) && !sy_generic_has(node->op))
        return sy_unsupported(node, "the CUDA engine does not have this operator");
    SY_TRY(sy_layer_lay_out(graph, &rules, layer));
    return sy_cuda_program_try_layer(graph, layer);
}

static int layout_layer(const struct sy_graph *graph, struct sy_layer *layer)
{
    char why[512];
    int status = sy_cuda_layout_own(graph, layer);
    if (status != SY_EUNSUPPORTED || !sy_cuda_host_engine_is_there())
        return status;
    snprintf(why, sizeof why, "%s", sy_error_text());
    if (!engine.allow_host_ops && !sy_cuda_host_always(&graph->nodes[layer->node]))
        return sy_error_set(status, "%s; --allow-host-ops has the host engine compute it", why);
    drop_params(layer);
    SY_TRY(sy_cuda_host_layout_layer(graph, layer));
    sy_cuda_host_say(graph, layer->node, why);
    return SY_OK;
}

static void on_turn(int (*turn)(void *ctx), void *ctx)
{
    engine.turn = turn;
    engine.turn_ctx = ctx;
    sy_cuda_host_on_turn(turn, ctx);
}

int sy_cuda_between_turns(void)
{
    return engine.turn ? engine.turn(engine.turn_ctx) : SY_OK;
}

static void allow_host_ops(bool allowed)
{
    engine.allow_host_ops = allowed;
}

/* In the operator's own layout, of the constant's type. */
static int pack_as_is(const struct sy_graph *graph, const struct sy_node *node, int input, void *to)
{
    const struct sy_tensor *t = &graph->tensors[node->inputs[input]];
    const struct sy_cuda_op *op = sy_cuda_op_find(node->op);
    if (op && op->prepare && t->dtype == SY_DTYPE_F32)
        return op->prepare(graph, node, input, to);
    memcpy(to, t->data, t->data_bytes);
    return SY_OK;
}

static int pack_narrow(const struct sy_graph *graph, const struct sy_node *node, int input,
                       void *to)
{
    const struct sy_tensor *t = &graph->tensors[node->inputs[input]];
    float *floats = malloc(t->data_bytes + 1);
    if (!floats)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %zu bytes of %s", t->data_bytes,
                            t->name);
    int status = pack_as_is(graph, node, input, floats);
    if (status == SY_OK)
        status = sy_cuda_pack_narrow(graph, node, floats, t->data_bytes / sizeof *floats, to);
    free(floats);
    return status;
}

static int pack_layer(const struct sy_graph *graph, const struct sy_layer *layer, void *to)
{
    const struct sy_node *node = &graph->nodes[layer->node];
    if (sy_cuda_host_is_layer(layer))
        return sy_cuda_host_pack_layer(graph, layer, to);
    memset(to, 0, layer->bytes);
    for (int i = 0; i < layer->n_params; i++) {
        const struct sy_param *param = &layer->params[i];
        unsigned char *at = (unsigned char *)to + param->offset_bytes;
        if (sy_cuda_packs_narrow(graph, node, param->input))
            SY_TRY(pack_narrow(graph, node, param->input, at));
        else
            SY_TRY(pack_as_is(graph, node, param->input, at));
    }
    return SY_OK;
}

/* ---- device ------------------------------------------------------------------------------------------- */

static void release_graph(void *ctx, void *graph)
{
    (void)ctx;
    engine.ops->graph_drop(engine.math, graph);
}

/* A graph's kernels stay where they were captured: all are captured anew. */
static int confine(const int *parts, int n)
{
    struct sy_graph_cache *anew = NULL;
    if (!engine.math)
        return sy_error_set(SY_EBUG, "the CUDA engine is not attached");
    if (engine.graphs)
        SY_TRY(sy_graph_cache_create(MAX_GRAPHS, release_graph, NULL, &anew));
    int status = sy_cuda_stream_confine(engine.compute, parts, n);
    if (status < 0 || !engine.graphs) {
        sy_graph_cache_destroy(anew);
        return status;
    }
    sy_graph_cache_destroy(engine.graphs);
    engine.graphs = anew;
    return SY_OK;
}

static void detach(void)
{
    if (!engine.math)
        return;
    sy_cuda_host_use_helper(NULL);
    sy_graph_cache_destroy(engine.graphs);
    engine.graphs = NULL;
    engine.ops->close(engine.math);
    engine.math = NULL;
}

static int attach(struct sy_device *device, struct sy_stream *compute)
{
    const char *graphs = getenv("SY_CUDA_GRAPHS");
    if (!engine.ops || engine.math)
        return sy_error_set(SY_EBUG, "the CUDA engine is %s",
                            engine.ops ? "attached already" : "without mathematics");
    SY_TRY(engine.ops->open(device, compute, &engine.math));
    sy_cuda_host_use_helper(&sy_cuda_node_helper);
    engine.compute = compute;
    if (graphs && strcmp(graphs, "0") == 0)
        return SY_OK;
    int status = sy_graph_cache_create(MAX_GRAPHS, release_graph, NULL, &engine.graphs);
    if (status < 0)
        detach();
    return status;
}

static void tune(bool on)
{
    if (engine.math && engine.ops->tune)
        engine.ops->tune(engine.math, on);
}

static int choices(char **out)
{
    *out = NULL;
    return engine.math && engine.ops->choices ? engine.ops->choices(engine.math, out) : SY_OK;
}

/* What cannot be used costs time only: the library's own choice is right too. */
static int use_choices(const char *text)
{
    int status =
        engine.math && engine.ops->use_choices ? engine.ops->use_choices(engine.math, text) : SY_OK;
    if (status == SY_EUNSUPPORTED || status == SY_ECORRUPT) {
        sy_log_info("cuda", "event=choices_ignored why=\"%s\"", sy_error_text());
        return SY_OK;
    }
    return status;
}

struct sy_cuda_engine_counts sy_cuda_engine_get_counts(void)
{
    struct sy_cuda_engine_counts out = {0};
    if (engine.graphs) {
        struct sy_graph_counts counts = sy_graph_cache_counts(engine.graphs);
        out = (struct sy_cuda_engine_counts){counts.eager, counts.captures, counts.launches};
    }
    return out;
}

/* ---- programs ----------------------------------------------------------------------------------------- */

int sy_cuda_engine_math(const struct sy_math_ops **ops, struct sy_math **math)
{
    if (!engine.math)
        return sy_error_set(SY_ENODEVICE, "the CUDA engine has no device: open cuda:N first");
    *ops = engine.ops;
    *math = engine.math;
    return SY_OK;
}

static int program_create(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                          int64_t batch, struct sy_program **out)
{
    if (!engine.math)
        return sy_error_set(SY_ENODEVICE, "the CUDA engine has no device: open cuda:N first");
    return sy_cuda_program_create(engine.ops, engine.math, graph, layers, n_layers, batch, out);
}

static void program_destroy(struct sy_program *program)
{
    if (program && engine.graphs)
        sy_graph_cache_forget(engine.graphs, program->id);
    sy_cuda_program_destroy(program);
}

static uint64_t program_workspace_bytes(const struct sy_program *program)
{
    return program->workspace_bytes;
}

/* A graph holds addresses: those of the parameters that its layers read, and of the workspace; a body's, of what it is given and gives. */
static int placement_of(const struct sy_program *p, int first, int end, uint64_t *out)
{
    size_t n = 2, ends = p->captured ? (size_t)(p->graph->n_inputs + p->graph->n_outputs) : 0;
    uint64_t *at = calloc((size_t)p->n_layers + 2 + ends, sizeof *at);
    if (!at)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d addresses", p->n_layers);
    for (int i = 0; p->captured && i < p->graph->n_inputs; i++)
        at[n++] = (uint64_t)(uintptr_t)p->binding->inputs[i];
    for (int i = 0; p->captured && i < p->graph->n_outputs; i++)
        at[n++] = (uint64_t)(uintptr_t)p->binding->outputs[i];
    at[0] = (uint64_t)(uintptr_t)p->binding->workspace;
    at[1] = (uint64_t)end;
    for (int l = 0; l < p->n_layers; l++)
        if (p->layers[l].bytes && p->layer_steps[l] < end && p->layer_steps[l + 1] > first)
            at[n++] = (uint64_t)(uintptr_t)p->binding->layer_params[l];
    *out = sy_graph_placement(at, n);
    free(at);
    return SY_OK;
}

/* Records the steps and runs what was recorded; what cannot be recorded, or fails at it, runs step by step, now and from now on. A step that
 * fails by itself fails there too. */
static int capture(struct sy_program *p, struct sy_graph_key key, uint64_t placement, int first,
                   int end)
{
    struct sy_math_graph *graph = NULL;
    SY_TRY(p->ops->capture_begin(p->math));
    int status = sy_cuda_program_steps(p, first, end);
    int ended = p->ops->capture_end(p->math, &graph);
    SY_TRY(ended);
    if (status < 0 || !graph) {
        sy_log_info("cuda", "event=not_captured first=%d steps=%d why=\"%s\"", first, end - first,
                    status < 0 ? sy_error_text() : "the recording cannot be run");
        if (graph)
            p->ops->graph_drop(p->math, graph);
        sy_graph_cache_refuse(engine.graphs, key);
        return sy_cuda_program_steps(p, first, end);
    }
    sy_graph_cache_put(engine.graphs, key, placement, graph);
    return p->ops->graph_launch(p->math, graph);
}

/* Steps without tensors of the caller, whose addresses differ from run to run: as one graph, if it is worth it. */
static int run_steps(struct sy_program *p, int first, int end)
{
    uint64_t placement;
    void *graph = NULL;
    if (!engine.graphs || end - first < 2)
        return sy_cuda_program_steps(p, first, end);
    struct sy_graph_key key = {p->id, (uint32_t)p->batch, (uint32_t)first};
    SY_TRY(placement_of(p, first, end, &placement));
    switch (sy_graph_cache_look(engine.graphs, key, placement, &graph)) {
    case SY_GRAPH_LAUNCH:
        return p->ops->graph_launch(p->math, graph);
    case SY_GRAPH_CAPTURE:
        return capture(p, key, placement, first, end);
    case SY_GRAPH_EAGER:
        break;
    }
    return sy_cuda_program_steps(p, first, end);
}

static int program_run(struct sy_program *p, const struct sy_binding *binding, int first, int n)
{
    assert(first >= 0 && n >= 0 && first + n <= p->n_layers);
    int at = p->layer_steps[first], end = p->layer_steps[first + n];
    p->binding = binding;
    if (first == 0 && n > 0)
        *p->fault = (struct sy_math_fault){0}; /* the run before was synchronised */
    while (at < end) {
        int to = at;
        while (to < end && !p->steps[to].on_host_memory)
            to++;
        if (to == at)
            SY_TRY(sy_cuda_program_steps(p, at, ++to));
        else
            SY_TRY(run_steps(p, at, to));
        at = to;
    }
    return SY_OK;
}

static int program_finish(struct sy_program *p)
{
    struct sy_math_fault fault = *p->fault;
    *p->fault = (struct sy_math_fault){0};
    if (fault.step < 1 || fault.step > p->n_steps)
        return SY_OK;
    const struct sy_cuda_step *step = &p->steps[fault.step - 1];
    if (step->each)
        return sy_error_set(SY_EARG,
                            "node %s: %s: %lld, an index, a length or a size, is not in its bounds",
                            step->node->name, sy_op_name(step->node->op), (long long)fault.index);
    return sy_error_set(SY_EARG, "node %s: index %lld is not in [-%lld, %lld)", step->node->name,
                        (long long)fault.index, (long long)step->gather.extent,
                        (long long)step->gather.extent);
}

const struct sy_engine_ops sy_cuda_engine = {
    .name = "cuda",
    .describe = describe,
    .check_precision = check_precision,
    .set_threads = set_threads,
    .fuses = fuses,
    .attach = attach,
    .detach = detach,
    .confine = confine,
    .layout_layer = layout_layer,
    .pack_layer = pack_layer,
    .program_create = program_create,
    .program_destroy = program_destroy,
    .program_workspace_bytes = program_workspace_bytes,
    .program_run = program_run,
    .program_finish = program_finish,
    .tune = tune,
    .choices = choices,
    .use_choices = use_choices,
    .allow_host_ops = allow_host_ops,
    .on_turn = on_turn,
};
