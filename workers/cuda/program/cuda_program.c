/* A program: made layer by layer, its memory planned, its algorithms picked. */
#include "workers/cuda/program/cuda_program.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/math/device_math_library.h"
#include "workers/cuda/program/cuda_candidates.h"
#include "workers/engine/workspace_plan.h"

/* ---- tensors of the caller (E2) ------------------------------------------------------------------- */

static int run_copy_in(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->copy(p->math, p->binding->inputs[step->host.tensor],
                        sy_cuda_pointer(p, step->args[0]), step->host.bytes);
}

static int run_copy_out(struct sy_program *p, const struct sy_cuda_step *step)
{
    void *to = p->binding->outputs[step->host.tensor];
    if (step->host.constant)
        return p->ops->to_device(p->math, step->host.constant, to, step->host.bytes);
    return p->ops->copy(p->math, sy_cuda_pointer(p, step->args[0]), to, step->host.bytes);
}

static int run_fetch(struct sy_program *p, const struct sy_cuda_step *step)
{
    return p->ops->to_device(p->math, p->binding->inputs[step->host.tensor],
                             sy_cuda_pointer(p, step->args[0]), step->host.bytes);
}

static int run_deliver(struct sy_program *p, const struct sy_cuda_step *step)
{
    void *to = p->binding->outputs[step->host.tensor];
    if (step->host.constant) {
        memcpy(to, step->host.constant, step->host.bytes);
        return SY_OK;
    }
    return p->ops->to_host(p->math, sy_cuda_pointer(p, step->args[0]), to, step->host.bytes);
}

static int fetch_inputs(struct sy_program *p)
{
    for (int i = 0; i < p->graph->n_inputs; i++) {
        int tensor = p->graph->inputs[i], value;
        struct sy_cuda_step *step;
        if (!sy_graph_is_read(p->graph, tensor))
            continue;
        SY_TRY(sy_cuda_new_of(p, tensor, false, &value));
        p->native[tensor] = value;
        if (p->captured && p->captured[i]) {
            p->values[value].place = SY_CUDA_CAPTURED;
            p->values[value].layer = i;
            continue;
        }
        SY_TRY(sy_cuda_add_step(p, p->captured ? run_copy_in : run_fetch, &value, 1, &step));
        step->on_host_memory = !p->captured;
        step->host.tensor = i;
        step->host.bytes = p->values[value].bytes;
    }
    return SY_OK;
}

static int deliver(struct sy_program *p, int output)
{
    int tensor = p->graph->outputs[output], value = p->native[tensor];
    const void *constant = NULL;
    struct sy_cuda_step *step;
    if (value < 0) {
        constant = p->graph->tensors[tensor].data;
        if (!constant)
            return sy_error_set(SY_ECORRUPT, "output %s is neither computed nor constant",
                                p->graph->tensors[tensor].name);
    } else if (p->values[value].channels_last ||
               p->values[value].dtype != p->graph->tensors[tensor].dtype) {
        int plain;
        SY_TRY(sy_cuda_new_of(p, tensor, false, &plain));
        SY_TRY(sy_cuda_add_reorder(p, value, plain));
        value = plain;
    }
    SY_TRY(sy_cuda_add_step(p, p->captured ? run_copy_out : run_deliver, &value, 1, &step));
    step->on_host_memory = !p->captured || constant;
    step->host.tensor = output;
    step->host.constant = constant;
    step->host.bytes = value < 0 ? p->graph->tensors[tensor].data_bytes : p->values[value].bytes;
    return SY_OK;
}

/* Outputs leave in the layer that makes them; in the last one if none does. */
static int deliver_outputs(struct sy_program *p, int layer)
{
    const struct sy_node *node = sy_cuda_node(p);
    for (int i = 0; i < p->graph->n_outputs; i++) {
        int tensor = p->graph->outputs[i];
        bool here = sy_node_makes(node, tensor);
        bool passed_through = p->native[tensor] < 0 || sy_graph_is_input(p->graph, tensor);
        if (here || (passed_through && layer == p->n_layers - 1))
            SY_TRY(deliver(p, i));
    }
    return SY_OK;
}

/* ---- layers ---------------------------------------------------------------------------------------- */

/* Inputs that are results too are read once more by the last layer. */
static void find_last_uses(struct sy_program *p)
{
    sy_last_uses(p->graph, p->layers, p->n_layers, p->last_use);
    for (int i = 0; i < p->graph->n_outputs; i++)
        if (sy_graph_is_input(p->graph, p->graph->outputs[i]))
            p->last_use[p->graph->outputs[i]] = p->n_layers;
}

static void drop_step(struct sy_program *p, struct sy_cuda_step *step)
{
    if (step->plan)
        p->ops->plan_drop(p->math, step->plan);
    if (step->by_library)
        p->ops->library->plan_drop(p->math, step->by_library);
    if (step->destroy)
        step->destroy(p, step->state);
    free(step->formula);
    free(step->attention);
}

/* Removes what a failed build has added; lifetimes that it extended only cost memory. */
static void forget_since(struct sy_program *p, int n_steps, int n_values)
{
    while (p->n_steps > n_steps)
        drop_step(p, &p->steps[--p->n_steps]);
    p->n_values = n_values;
    for (int t = 0; t < p->graph->n_tensors; t++) {
        p->native[t] = p->native[t] < n_values ? p->native[t] : -1;
        for (int f = 0; f < SY_CUDA_FORMS; f++)
            p->forms[t][f] = p->forms[t][f] < n_values ? p->forms[t][f] : -1;
    }
}

static int build_operator(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    const struct sy_layer *layer = &p->layers[p->layer];
    const struct sy_cuda_builders *builders = p->builders;
    const struct sy_cuda_op *op = builders->find(node->op);
    int n_steps = p->n_steps, n_values = p->n_values;
    bool may_host = p->host_ops && builders->host_is_there();
    if (may_host && builders->host_has(layer))
        return builders->by_host(p);
    int status =
        op ? op->build(p) : sy_unsupported(node, "the CUDA engine does not have this operator");
    if (status == SY_OK)
        status = sy_node_check_outputs(p->graph, node, p->native);
    if (status == SY_EUNSUPPORTED && sy_generic_has(node->op)) {
        forget_since(p, n_steps, n_values);
        status = builders->by_formula(p);
    }
    if (status != SY_EUNSUPPORTED || !may_host || layer->n_params > 0)
        return status;
    forget_since(p, n_steps, n_values);
    return builders->by_host(p);
}

static int build_layer(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    bool recurs = node->op == SY_OP_LSTM || node->op == SY_OP_GRU || node->op == SY_OP_RNN;
    if (node->n_outputs < 1 || (node->outputs[0] < 0 && !recurs))
        return sy_unsupported(node, "its first output is left out");
    if (node->activation > SY_ACT_CLIP)
        return sy_unsupported(node, "its fused activation");
    SY_TRY(build_operator(p));
    return sy_node_check_outputs(p->graph, node, p->native);
}

static int build_layers(struct sy_program *p)
{
    for (p->layer = 0; p->layer < p->n_layers; p->layer++) {
        p->layer_steps[p->layer] = p->n_steps;
        if (p->layer == 0)
            SY_TRY(fetch_inputs(p));
        SY_TRY(build_layer(p));
        SY_TRY(deliver_outputs(p, p->layer));
    }
    p->layer_steps[p->n_layers] = p->n_steps;
    return SY_OK;
}

static uint64_t scratch_bytes(const struct sy_program *p)
{
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].plan_kind == SY_CUDA_CONV_PLAN &&
            p->steps[i].conv.direction != SY_MATH_FORWARD)
            return p->ops->back_scratch_bytes;
    return p->ops->scratch_bytes;
}

static int plan_memory(struct sy_program *p)
{
    struct sy_interval *intervals = calloc((size_t)p->n_values + 1, sizeof *intervals);
    int n = 0;
    SY_TRY_ALLOC(intervals, "no memory to plan %d values", p->n_values);
    for (int i = 0; i < p->n_values; i++) {
        struct sy_cuda_value *v = &p->values[i];
        if (v->place == SY_CUDA_WORKSPACE && v->root == i)
            intervals[n++] = (struct sy_interval){
                .id = i, .first = v->first, .last = v->last, .bytes = v->bytes};
    }
    uint64_t bytes = 0;
    int status = sy_workspace_plan(intervals, n, &bytes);
    for (int i = 0; i < n; i++)
        p->values[intervals[i].id].offset = intervals[i].offset;
    for (int i = 0; i < p->n_values; i++)
        if (p->values[i].place == SY_CUDA_WORKSPACE)
            p->values[i].offset = p->values[p->values[i].root].offset;
    p->scratch_offset = SY_ALIGN_UP(bytes, 256u); /* what cuDNN and cuBLASLt like */
    p->workspace_bytes = p->has_plans ? p->scratch_offset + scratch_bytes(p) : bytes;
    free(intervals);
    return status;
}

/* ---- what only the device can give ------------------------------------------------------------------ */

static int make_plan(struct sy_program *p, struct sy_cuda_step *step)
{
    int status = SY_OK;
    if (step->plan_kind == SY_CUDA_CONV_PLAN)
        status = p->ops->conv_plan(p->math, &step->conv, &step->plan);
    else if (step->plan_kind == SY_CUDA_MATMUL_PLAN)
        status = p->ops->matmul_plan(p->math, &step->matmul, &step->plan);
    if (status < 0)
        return sy_error_prefix(status, "node %s: %s", step->node->name, sy_op_name(step->node->op));
    return SY_OK;
}

static int prepare(struct sy_program *p)
{
    for (int i = 0; i < p->n_steps; i++)
        p->has_plans = p->has_plans || p->steps[i].plan_kind != SY_CUDA_NO_PLAN;
    SY_TRY(plan_memory(p));
    for (int i = 0; i < p->n_steps; i++)
        SY_TRY(make_plan(p, &p->steps[i]));
    void *fault;
    SY_TRY(p->ops->host_take(p->math, sizeof *p->fault, &fault));
    p->fault = fault;
    *p->fault = (struct sy_math_fault){0};
    return sy_cuda_candidates_settle(p);
}

/* ---- life -------------------------------------------------------------------------------------------- */

static int start(struct sy_program *p)
{
    static _Atomic uint64_t n_programs;
    size_t n = (size_t)p->graph->n_tensors + 1;
    p->id = atomic_fetch_add(&n_programs, 1) + 1;
    p->native = malloc(n * sizeof *p->native);
    p->forms = malloc(n * sizeof *p->forms);
    p->wants = calloc(n, sizeof *p->wants);
    p->last_use = malloc(n * sizeof *p->last_use);
    p->layer_steps = calloc((size_t)p->n_layers + 1, sizeof *p->layer_steps);
    SY_TRY_ALLOC(p->native && p->forms && p->wants && p->last_use && p->layer_steps,
                 "no memory for a program of %d layers", p->n_layers);
    memset(p->native, 0xff, n * sizeof *p->native);
    memset(p->forms, 0xff, n * sizeof *p->forms);
    find_last_uses(p);
    sy_cuda_plan_narrow(p);
    return SY_OK;
}

bool sy_cuda_program_has_fault(const struct sy_program *p)
{
    return p->fault->step != 0;
}

static int new_program(const struct sy_cuda_builders *builders, const struct sy_graph *graph,
                       const struct sy_layer *layers, int n_layers, int64_t batch,
                       struct sy_program **out)
{
    struct sy_program *p = calloc(1, sizeof *p);
    SY_TRY_ALLOC(p, "no memory for a program");
    p->builders = builders;
    p->graph = graph;
    p->layers = layers;
    p->n_layers = n_layers;
    p->batch = batch;
    *out = p;
    int status = start(p);
    if (status < 0)
        sy_cuda_program_destroy(p);
    return status;
}

/* Takes `p`, whatever happens. */
static int build_program(struct sy_program *p, const struct sy_math_ops *ops, struct sy_math *math,
                         struct sy_program **out)
{
    p->ops = ops;
    p->math = math;
    int status = build_layers(p);
    if (status == SY_OK)
        status = prepare(p);
    if (status < 0) {
        sy_cuda_program_destroy(p);
        return status;
    }
    *out = p;
    return SY_OK;
}

int sy_cuda_program_create(const struct sy_cuda_builders *builders, const struct sy_math_ops *ops,
                           struct sy_math *math, const struct sy_graph *graph,
                           const struct sy_layer *layers, int n_layers, int64_t batch,
                           struct sy_program **out)
{
    struct sy_program *p;
    if (batch < 1)
        return sy_error_set(SY_EARG, "a program for batch size %lld", (long long)batch);
    SY_TRY(new_program(builders, graph, layers, n_layers, batch, &p));
    p->host_ops = true;
    return build_program(p, ops, math, out);
}

int sy_cuda_program_create_body(const struct sy_program *outer, const struct sy_graph *graph,
                                const struct sy_layer *layers, const bool *captured,
                                struct sy_program **out)
{
    struct sy_program *p;
    SY_TRY(new_program(outer->builders, graph, layers, graph->n_nodes, outer->batch, &p));
    p->captured = captured;
    return build_program(p, outer->ops, outer->math, out);
}

/* Inputs from other layers are assumed row-major in the workspace. */
static int invent_inputs(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    for (int i = 0; i < node->n_inputs; i++) {
        int tensor = node->inputs[i], value;
        if (tensor < 0 || p->native[tensor] >= 0 || sy_cuda_is_param(p, i))
            continue;
        SY_TRY(sy_cuda_new_of(p, tensor, false, &value));
        p->native[tensor] = value;
    }
    return SY_OK;
}

static int try_layer(const struct sy_cuda_builders *builders, const struct sy_graph *graph,
                     const struct sy_layer *layer)
{
    struct sy_program *p;
    SY_TRY(new_program(builders, graph, layer, 1, 1, &p));
    int status = invent_inputs(p);
    if (status == SY_OK)
        status = build_layer(p);
    sy_cuda_program_destroy(p);
    return status;
}

/* Making the layer's steps once on trial makes import refuse by name what could not run. */
int sy_cuda_layout_own(const struct sy_cuda_builders *builders, const struct sy_graph *graph,
                       struct sy_layer *layer)
{
    const struct sy_node *node = &graph->nodes[layer->node];
    layer->bytes = 0;
    layer->n_params = 0;
    if (!builders->find(node->op) && !sy_generic_has(node->op))
        return sy_unsupported(node, "the CUDA engine does not have this operator");
    SY_TRY(sy_cuda_lay_out_params(graph, layer));
    return try_layer(builders, graph, layer);
}

void sy_cuda_program_destroy(struct sy_program *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_steps; i++)
        drop_step(p, &p->steps[i]);
    if (p->fault)
        p->ops->host_drop(p->math, p->fault);
    free(p->steps);
    free(p->values);
    free(p->native);
    free(p->forms);
    free(p->wants);
    free(p->last_use);
    free(p->layer_steps);
    free(p);
}
