#include "workers/host/program/program.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/workspace_plan.h"
#include "workers/host/program/program_internal.h"

static int make_inputs(struct sy_program *p)
{
    for (int i = 0; i < p->graph->n_inputs; i++) {
        int value;
        SY_TRY(sy_program_new_of(p, p->graph->inputs[i], &value));
        p->values[value].place = SY_IN_INPUT;
        p->values[value].index = i;
        if (p->strings >= 0 && p->values[value].dtype == SY_DTYPE_STRING)
            SY_TRY(sy_program_take_strings(p, value, p->graph->inputs[i], &value));
        p->native[p->graph->inputs[i]] = value;
    }
    return SY_OK;
}

static int run_copy(struct sy_program *p, struct sy_step *step)
{
    memcpy(sy_program_pointer(p, step->args[1].value), sy_program_pointer(p, step->args[0].value),
           p->values[step->args[1].value].bytes);
    return SY_OK;
}

/* Whether the value is row-major memory that only our own loops write, so that the caller's memory, with any alignment, can replace it. */
static bool may_move(const struct sy_program *p, int value)
{
    const struct sy_value *v = &p->values[value];
    if (v->place != SY_IN_WORKSPACE || v->root != value || !sy_program_is_plain(v) ||
        sy_value_is_narrow(v))
        return false;
    for (int i = 0; i < p->n_values; i++)
        if (i != value && p->values[i].root == value)
            return false;
    for (int s = p->layer_steps[p->layer]; s < p->n_steps; s++)
        for (int i = 0; p->steps[s].primitive && i < p->steps[s].n_args; i++)
            if (p->steps[s].args[i].value == value)
                return false;
    return true;
}

/* Outputs are written to the caller's memory, row-major, by the layer that makes them (the last layer for inputs and constants): the value is placed there, or
 * copied. */
static int copy_outputs(struct sy_program *p, int layer)
{
    const struct sy_node *node = sy_program_node(p);
    for (int i = 0; i < p->graph->n_outputs; i++) {
        int tensor = p->graph->outputs[i], to, from = p->native[tensor];
        bool here = sy_node_makes(node, tensor);
        bool passed_through = from < 0 || p->values[from].place == SY_IN_INPUT;
        bool strings = p->strings >= 0 && p->graph->tensors[tensor].dtype == SY_DTYPE_STRING;
        if (from >= 0 && p->values[from].place == SY_IN_OUTPUT && p->values[from].index == i) {
            if (strings && here)
                SY_TRY(sy_program_give_strings(p, from, i));
            continue; /* AtRun writes it there itself */
        }
        if (!here && !(passed_through && layer == p->n_layers - 1))
            continue;
        if (from < 0)
            SY_TRY(sy_program_constant(p, tensor, &from));
        if (p->values[from].pending) {
            SY_TRY(sy_program_fetch(p, tensor));
            from = p->native[tensor];
        }
        if (strings) {
            SY_TRY(sy_program_give_strings(p, from, i));
            continue;
        }
        if (may_move(p, from)) {
            p->values[from].place = SY_IN_OUTPUT;
            p->values[from].index = i;
            continue;
        }
        SY_TRY(sy_program_new_of(p, tensor, &to));
        p->values[to].place = SY_IN_OUTPUT;
        p->values[to].index = i;
        if (!sy_program_is_plain(&p->values[from])) {
            SY_TRY(sy_program_add_reorder(p, from, to));
            continue;
        }
        struct sy_step *step;
        SY_TRY(sy_program_add_values(p, run_copy, (int[]){from, to}, 2, &step));
    }
    return SY_OK;
}

/* The steps of layer p->layer. */
static int build_layer(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_host_op *op = sy_host_op_find(node->op);
    if (!op)
        return sy_unsupported(node, "the host engine does not have this operator");
    SY_TRY(op->build(p));
    return sy_node_check_outputs(p->graph, node, p->native);
}

/* P13: primitives are made for the number of threads they run with. */
static void set_threads_of_layer(const struct sy_program *p, int layer)
{
    omp_set_num_threads(sy_layer_is_solo(&p->layers[layer], p->batch) ? 1 : p->team);
}

/* Builds layer p->layer, or a chain that begins with it; then p->layer is its last layer. */
static int build_layer_or_chain(struct sy_program *p)
{
    bool chained;
    SY_TRY(sy_program_add_chain(p, &chained));
    if (!chained) {
        set_threads_of_layer(p, p->layer);
        p->layer_steps[p->layer] = p->n_steps;
        SY_TRY(build_layer(p));
    }
    return copy_outputs(p, p->layer);
}

static int build_layers(struct sy_program *p)
{
    SY_TRY(sy_program_open_strings(p));
    int status = make_inputs(p);
    for (p->layer = 0; status == SY_OK && p->layer < p->n_layers; p->layer++)
        status = build_layer_or_chain(p);
    omp_set_num_threads(p->team);
    p->layer_steps[0] = 0; /* the inputs' strings are taken first */
    p->layer_steps[p->n_layers] = p->n_steps;
    return status;
}

static int plan_memory(struct sy_program *p)
{
    struct sy_interval *intervals = calloc((size_t)p->n_values + 1, sizeof *intervals);
    int n = 0;
    SY_TRY_ALLOC(intervals, "no memory to plan %d values", p->n_values);
    for (int i = 0; i < p->n_values; i++) {
        struct sy_value *v = &p->values[i];
        if (v->place == SY_IN_WORKSPACE && v->root == i && !v->pending)
            intervals[n++] = (struct sy_interval){
                .id = i, .first = v->first, .last = v->last, .bytes = v->bytes};
    }
    uint64_t bytes = 0;
    int status = sy_workspace_plan(intervals, n, &bytes);
    for (int i = 0; i < n; i++)
        p->values[intervals[i].id].offset = intervals[i].offset;
    for (int i = 0; i < p->n_values; i++)
        if (p->values[i].place == SY_IN_WORKSPACE)
            p->values[i].offset = p->values[p->values[i].root].offset;
    p->scratch_offset = bytes;
    p->workspace_bytes = SY_ALIGN_UP(bytes + p->scratch_bytes, (uint64_t)SY_PARAM_ALIGN);
    free(intervals);
    return status;
}

static int start(struct sy_program *p)
{
    size_t n = (size_t)p->graph->n_tensors + 1;
    p->engine = sy_dnnl_engine();
    p->native = malloc(n * sizeof *p->native);
    p->plain = malloc(n * sizeof *p->plain);
    p->narrow = malloc(n * sizeof *p->narrow);
    p->wants = calloc(n, sizeof *p->wants);
    p->last_use = malloc(n * sizeof *p->last_use);
    p->layer_steps = calloc((size_t)p->n_layers + 1, sizeof *p->layer_steps);
    SY_TRY_ALLOC(p->native && p->plain && p->narrow && p->wants && p->last_use && p->layer_steps,
                 "no memory for a program of %d layers", p->n_layers);
    memset(p->native, 0xff, n * sizeof *p->native);
    memset(p->plain, 0xff, n * sizeof *p->plain);
    memset(p->narrow, 0xff, n * sizeof *p->narrow);
    if (!p->engine)
        return sy_error_set(SY_ENODEVICE, "oneDNN has no CPU engine on this machine");
    SY_DNNL(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags), p->graph->name);
    sy_last_uses(p->graph, p->layers, p->n_layers, p->last_use);
    sy_program_plan_narrow(p);
    return sy_program_plan_parts(p);
}

static int new_program(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                       int64_t batch, struct sy_program **out)
{
    struct sy_program *p = calloc(1, sizeof *p);
    SY_TRY_ALLOC(p, "no memory for a program");
    p->graph = graph;
    p->layers = layers;
    p->n_layers = n_layers;
    p->batch = batch;
    p->strings = -1;
    p->team = omp_get_max_threads();
    *out = p;
    int status = start(p);
    if (status < 0)
        sy_program_destroy(p);
    return status;
}

int sy_program_create(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                      int64_t batch, struct sy_program **out)
{
    return sy_program_create_inside(graph, layers, n_layers, batch, NULL, out);
}

int sy_program_create_inside(const struct sy_graph *graph, const struct sy_layer *layers,
                             int n_layers, int64_t batch, const struct sy_captured_param *captured,
                             struct sy_program **out)
{
    struct sy_program *p;
    if (batch < 1)
        return sy_error_set(SY_EARG, "a program for batch size %lld", (long long)batch);
    SY_TRY(new_program(graph, layers, n_layers, batch, &p));
    p->captured = captured;
    int status = build_layers(p);
    p->captured = NULL;
    if (status == SY_OK)
        status = plan_memory(p);
    if (status < 0) {
        sy_program_destroy(p);
        return status;
    }
    *out = p;
    return SY_OK;
}

/* Inputs made by other layers are row-major in the workspace. */
static int invent_inputs(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    for (int i = 0; i < node->n_inputs; i++) {
        int tensor = node->inputs[i], value;
        if (tensor < 0 || p->native[tensor] >= 0 || p->graph->tensors[tensor].data)
            continue;
        SY_TRY(sy_program_new_of(p, tensor, &value));
        p->native[tensor] = value;
    }
    return SY_OK;
}

int sy_program_try_layer(const struct sy_graph *graph, const struct sy_layer *layer)
{
    struct sy_program *p;
    SY_TRY(new_program(graph, layer, 1, 1, &p));
    int status = invent_inputs(p);
    if (status == SY_OK)
        status = build_layer(p);
    sy_program_destroy(p);
    return status;
}

void sy_program_destroy(struct sy_program *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_steps; i++) {
        struct sy_step *step = &p->steps[i];
        for (int k = 0; k < step->n_args; k++)
            if (step->args[k].memory)
                dnnl_memory_destroy(step->args[k].memory);
        if (step->primitive)
            dnnl_primitive_destroy(step->primitive);
        free(step->args);
        free(step->numbers);
        free(step->floats);
        if (step->free_state)
            step->free_state(step->state);
    }
    if (p->stream)
        dnnl_stream_destroy(p->stream);
    free(p->steps);
    free(p->values);
    free(p->native);
    free(p->plain);
    free(p->narrow);
    free(p->wants);
    free(p->last_use);
    free(p->homes);
    free(p->parts);
    free(p->layer_steps);
    free(p);
}

uint64_t sy_program_workspace_bytes(const struct sy_program *p)
{
    return p->workspace_bytes;
}

int sy_program_run(struct sy_program *p, const struct sy_binding *binding, int first, int n)
{
    assert(first >= 0 && n >= 0 && first + n <= p->n_layers);
    int threads = omp_get_max_threads(), before = threads, status = SY_OK;
    p->binding = binding;
    sy_program_use_strings(p, first);
    for (int i = p->layer_steps[first]; status == SY_OK && i < p->layer_steps[first + n]; i++) {
        struct sy_step *step = &p->steps[i];
        if (step->threads != threads)
            omp_set_num_threads(threads = step->threads);
        status = step->run(p, step);
    }
    if (threads != before)
        omp_set_num_threads(before);
    return status;
}
