#include "workers/cuda/program/host_ops.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_run.h"
#include "workers/cuda/program/node_help.h"

#define MAX_CORES 1024

static const char mark[8] =
    "hostops"; /* in front of the host engine's own description of a layout */

static struct {
    const struct sy_engine_ops *engine;
    int cores[MAX_CORES], n_cores;
    bool has_threads;
} host;

/* A node of the model as a separate graph over the model's tensors. */
struct one_node {
    struct sy_graph graph;
    struct sy_layer layer;
};

struct sy_cuda_host_op {
    struct one_node one;
    struct sy_program *program; /* the host engine's */
    int *in, *out;              /* values */
    void **in_memory, **out_memory;
    uint64_t *in_bytes, *out_bytes;
    unsigned char *params, *workspace;
    bool has_params; /* they are the same in all runs */
    int place;       /* a value, for large products within; -1: none */
    uint64_t place_bytes;
};

void sy_cuda_host_engine_use(const struct sy_engine_ops *engine)
{
    host.engine = engine;
}

bool sy_cuda_host_engine_is_there(void)
{
    return host.engine != NULL;
}

void sy_cuda_host_set_threads(const int *cores, int n)
{
    host.n_cores = SY_MIN(n, MAX_CORES);
    memcpy(host.cores, cores, (size_t)host.n_cores * sizeof *cores);
}

void sy_cuda_host_on_turn(int (*turn)(void *ctx), void *ctx)
{
    if (host.engine && host.engine->on_turn)
        host.engine->on_turn(turn, ctx);
}

void sy_cuda_host_use_helper(const struct sy_node_helper *helper)
{
    if (host.engine && host.engine->use_helper)
        host.engine->use_helper(helper);
}

static int start_threads(void)
{
    if (host.has_threads || host.n_cores == 0)
        return SY_OK;
    host.has_threads = true;
    return host.engine->set_threads(host.cores, host.n_cores);
}

/* ---- one node as a graph ------------------------------------------------------------------------------ */

static bool has(const int *list, int n, int what)
{
    for (int i = 0; i < n; i++)
        if (list[i] == what)
            return true;
    return false;
}

static void one_finish(struct one_node *one)
{
    for (int i = 0; i < one->layer.n_params; i++)
        free(one->layer.params[i].layout);
    free(one->layer.params);
    free(one->graph.inputs);
    free(one->graph.outputs);
    *one = (struct one_node){0};
}

/* layer: as in the package, whose parameters have no data any more; NULL at import, where all constants have. */
static int one_init(struct one_node *one, const struct sy_graph *graph, int node,
                    const struct sy_layer *layer)
{
    struct sy_node *n = &graph->nodes[node];
    *one = (struct one_node){.graph = *graph};
    one->graph.precision = SY_PRECISION_F32; /* not every CPU has the others */
    one->graph.nodes = n;
    one->graph.n_nodes = 1;
    one->graph.n_inputs = one->graph.n_outputs = 0;
    one->graph.inputs = calloc((size_t)n->n_inputs + 1, sizeof(int));
    one->graph.outputs = calloc((size_t)n->n_outputs + 1, sizeof(int));
    if (!one->graph.inputs || !one->graph.outputs) {
        one_finish(one);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for node %s", n->name);
    }
    for (int i = 0; i < n->n_inputs; i++) {
        int tensor = n->inputs[i];
        bool comes =
            tensor >= 0 && !graph->tensors[tensor].data && !(layer && sy_layer_param(layer, i));
        if (comes && !has(one->graph.inputs, one->graph.n_inputs, tensor))
            one->graph.inputs[one->graph.n_inputs++] = tensor;
    }
    for (int i = 0; i < n->n_outputs; i++)
        if (n->outputs[i] >= 0 && sy_graph_is_read(graph, n->outputs[i]))
            one->graph.outputs[one->graph.n_outputs++] = n->outputs[i];
    return SY_OK;
}

/* The package's layer as the host engine described it. */
static int unmark(const struct sy_layer *layer, struct sy_layer *out)
{
    *out = (struct sy_layer){.bytes = layer->bytes};
    out->params = calloc((size_t)layer->n_params + 1, sizeof *out->params);
    SY_TRY_ALLOC(out->params, "no memory for a layer's parameters");
    for (int i = 0; i < layer->n_params; i++) {
        const struct sy_param *from = &layer->params[i];
        struct sy_param *to = &out->params[out->n_params++];
        *to = *from;
        to->layout_bytes = from->layout_bytes - sizeof mark;
        to->layout = malloc(to->layout_bytes + 1);
        SY_TRY_ALLOC(to->layout, "no memory for a layer's parameters");
        memcpy(to->layout, (const char *)from->layout + sizeof mark, to->layout_bytes);
    }
    return SY_OK;
}

static int put_mark(struct sy_param *param)
{
    char *marked = malloc(sizeof mark + param->layout_bytes);
    SY_TRY_ALLOC(marked, "no memory for a layer's parameters");
    memcpy(marked, mark, sizeof mark);
    if (param->layout_bytes)
        memcpy(marked + sizeof mark, param->layout, param->layout_bytes);
    free(param->layout);
    param->layout = marked;
    param->layout_bytes += sizeof mark;
    return SY_OK;
}

bool sy_cuda_host_is_layer(const struct sy_layer *layer)
{
    bool all = layer->n_params > 0;
    for (int i = 0; i < layer->n_params; i++)
        all = all && layer->params[i].layout && layer->params[i].layout_bytes >= sizeof mark &&
              memcmp(layer->params[i].layout, mark, sizeof mark) == 0;
    return all;
}

/* ---- import ------------------------------------------------------------------------------------------- */

bool sy_cuda_host_always(const struct sy_node *node)
{
    return node->op == SY_OP_DYNAMIC || node->op == SY_OP_IF || node->op == SY_OP_LOOP;
}

void sy_cuda_host_say(const struct sy_graph *graph, int node, const char *why)
{
    const struct sy_node *n = &graph->nodes[node];
    const struct sy_attr *body =
        n->op == SY_OP_DYNAMIC && sy_node_attr(n, "body") ? sy_node_attr(n, "body") : NULL;
    if (!body || body->kind != SY_ATTR_GRAPH || body->graph->n_nodes < 1) {
        sy_log_info("cuda", "event=on_host why=\"%s\"", why);
        return;
    }
    const struct sy_node *first = &body->graph->nodes[0];
    sy_log_info(
        "cuda",
        "event=on_host nodes=%d of=%d first=\"%.100s\" op=%s why=\"only a run can size what "
        "they make\"",
        body->graph->n_nodes, body->graph->n_nodes + graph->n_nodes - 1, first->name,
        sy_op_name(first->op));
}

/* The node's inputs and outputs cross the link, which strings cannot. */
static int check_no_strings(const struct sy_graph *graph, const struct sy_node *node)
{
    bool has = false;
    for (int i = 0; i < node->n_inputs; i++)
        has |= node->inputs[i] >= 0 && graph->tensors[node->inputs[i]].dtype == SY_DTYPE_STRING;
    for (int i = 0; i < node->n_outputs; i++)
        has |= node->outputs[i] >= 0 && graph->tensors[node->outputs[i]].dtype == SY_DTYPE_STRING;
    return has ? sy_unsupported(node, "strings, which are computed on the host alone") : SY_OK;
}

int sy_cuda_host_layout_layer(const struct sy_graph *graph, struct sy_layer *layer)
{
    struct one_node one;
    SY_TRY(check_no_strings(graph, &graph->nodes[layer->node]));
    SY_TRY(one_init(&one, graph, layer->node, NULL));
    int status = host.engine->layout_layer(&one.graph, &one.layer);
    for (int i = 0; status == SY_OK && i < one.layer.n_params; i++)
        status = put_mark(&one.layer.params[i]);
    if (status == SY_OK) {
        layer->n_params = one.layer.n_params;
        layer->params = one.layer.params;
        layer->bytes = one.layer.bytes;
        one.layer.params = NULL;
        one.layer.n_params = 0;
    }
    one_finish(&one);
    return status;
}

int sy_cuda_host_pack_layer(const struct sy_graph *graph, const struct sy_layer *layer, void *to)
{
    struct one_node one;
    SY_TRY(one_init(&one, graph, layer->node, NULL));
    int status = unmark(layer, &one.layer);
    if (status == SY_OK)
        status = host.engine->pack_layer(&one.graph, &one.layer, to);
    one_finish(&one);
    return status;
}

/* ---- programs ----------------------------------------------------------------------------------------- */

static void destroy_op(const struct sy_program *p, void *state)
{
    struct sy_cuda_host_op *op = state;
    (void)p;
    if (!op)
        return;
    if (op->program)
        host.engine->program_destroy(op->program);
    for (int i = 0; op->in_memory && i < op->one.graph.n_inputs; i++)
        free(op->in_memory[i]);
    for (int i = 0; op->out_memory && i < op->one.graph.n_outputs; i++)
        free(op->out_memory[i]);
    void *lists[] = {op->in,       op->out,       op->in_memory, op->out_memory,
                     op->in_bytes, op->out_bytes, op->params,    op->workspace};
    for (size_t i = 0; i < SY_ARRAY_LEN(lists); i++)
        free(lists[i]);
    one_finish(&op->one);
    free(op);
}

static void *take(uint64_t bytes)
{
    return aligned_alloc(SY_LAYER_ALIGN, SY_ALIGN_UP(bytes + 1, (uint64_t)SY_LAYER_ALIGN));
}

static int run_host_op(struct sy_program *p, const struct sy_cuda_step *step)
{
    struct sy_cuda_host_op *op = step->state;
    const struct sy_graph *g = &op->one.graph;
    if (op->one.layer.bytes && !op->has_params)
        SY_TRY(p->ops->to_host(p->math, p->binding->layer_params[step->layer], op->params,
                               op->one.layer.bytes));
    for (int i = 0; i < g->n_inputs; i++)
        SY_TRY(p->ops->to_host(p->math, sy_cuda_pointer(p, op->in[i]), op->in_memory[i],
                               op->in_bytes[i]));
    SY_TRY(p->ops->synchronize(p->math));
    op->has_params = true;
    if (sy_cuda_program_has_fault(p)) /* what it would be given means nothing */
        return SY_OK;
    SY_TRY(sy_cuda_between_turns());
    struct sy_binding binding = {.layer_params = &op->params,
                                 .workspace = op->workspace,
                                 .inputs = (const void *const *)op->in_memory,
                                 .outputs = op->out_memory};
    sy_cuda_node_help_begin(p, op->place, op->place_bytes);
    int status = host.engine->program_run(op->program, &binding, 0, 1);
    sy_cuda_node_help_end();
    SY_TRY(status);
    for (int i = 0; i < g->n_outputs; i++)
        SY_TRY(p->ops->to_device(p->math, op->out_memory[i], sy_cuda_pointer(p, op->out[i]),
                                 op->out_bytes[i]));
    return SY_OK;
}

static int take_lists(struct sy_cuda_host_op *op)
{
    size_t n_in = (size_t)op->one.graph.n_inputs + 1, n_out = (size_t)op->one.graph.n_outputs + 1;
    op->in = calloc(n_in, sizeof *op->in);
    op->out = calloc(n_out, sizeof *op->out);
    op->in_memory = calloc(n_in, sizeof *op->in_memory);
    op->out_memory = calloc(n_out, sizeof *op->out_memory);
    op->in_bytes = calloc(n_in, sizeof *op->in_bytes);
    op->out_bytes = calloc(n_out, sizeof *op->out_bytes);
    bool all =
        op->in && op->out && op->in_memory && op->out_memory && op->in_bytes && op->out_bytes;
    return all ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for an operator on the host");
}

/* The inputs row-major on the device, and a place for each on the host. */
static int take_inputs(struct sy_program *p, struct sy_cuda_host_op *op)
{
    const struct sy_node *node = sy_cuda_node(p);
    for (int i = 0; i < op->one.graph.n_inputs; i++) {
        int input = 0;
        while (node->inputs[input] != op->one.graph.inputs[i])
            input++;
        SY_TRY(sy_cuda_input_plain(p, input, &op->in[i]));
        op->in_bytes[i] = p->values[op->in[i]].bytes;
        op->in_memory[i] = take(op->in_bytes[i]);
        SY_TRY_ALLOC(op->in_memory[i], "no memory for an operator on the host");
    }
    return SY_OK;
}

static int take_outputs(struct sy_program *p, struct sy_cuda_host_op *op)
{
    const struct sy_node *node = sy_cuda_node(p);
    for (int i = 0; i < op->one.graph.n_outputs; i++) {
        int output = 0;
        while (node->outputs[output] != op->one.graph.outputs[i])
            output++;
        SY_TRY(sy_cuda_output(p, output, false, &op->out[i]));
        op->out_bytes[i] = p->values[op->out[i]].bytes;
        op->out_memory[i] = take(op->out_bytes[i]);
        SY_TRY_ALLOC(op->out_memory[i], "no memory for an operator on the host");
    }
    return SY_OK;
}

static int make_program(struct sy_program *p, struct sy_cuda_host_op *op)
{
    SY_TRY(start_threads());
    SY_TRY(host.engine->program_create(&op->one.graph, &op->one.layer, 1, p->batch, &op->program));
    op->params = take(op->one.layer.bytes);
    op->workspace = take(host.engine->program_workspace_bytes(op->program));
    return op->params && op->workspace
               ? SY_OK
               : sy_error_set(SY_ENOMEM_HOST, "no memory for an operator on the host");
}

static int fill_op(struct sy_program *p, struct sy_cuda_host_op *op)
{
    const struct sy_layer *layer = &p->layers[p->layer];
    SY_TRY(one_init(&op->one, p->graph, layer->node, layer));
    SY_TRY(unmark(layer, &op->one.layer));
    SY_TRY(take_lists(op));
    SY_TRY(take_inputs(p, op));
    SY_TRY(make_program(p, op));
    SY_TRY(sy_cuda_node_help_place(p, &op->place, &op->place_bytes));
    return take_outputs(p, op);
}

int sy_cuda_host_build(struct sy_program *p)
{
    struct sy_cuda_step *step;
    struct sy_cuda_host_op *op = calloc(1, sizeof *op);
    SY_TRY_ALLOC(op, "no memory for an operator on the host");
    int status = fill_op(p, op);
    if (status == SY_OK)
        status = sy_cuda_add_step(p, run_host_op, NULL, 0, &step);
    if (status < 0) {
        destroy_op(p, op);
        return status;
    }
    for (int i = 0; i < op->one.graph.n_inputs; i++)
        sy_cuda_touch(p, op->in[i]);
    step->state = op;
    step->destroy = destroy_op;
    step->layer = p->layer;
    step->on_host_memory = true;
    return SY_OK;
}
