#include "workers/host/program/program.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/workspace_plan.h"
#include "workers/host/products/reblock.h"
#include "workers/host/program/program_internal.h"

int sy_dnnl_check(dnnl_status_t status, const char *what, const char *name)
{
    if (status == dnnl_success)
        return SY_OK;
    if (status == dnnl_unimplemented)
        return sy_error_set(SY_EUNSUPPORTED, "node %s: oneDNN has no implementation: %s", name,
                            what);
    return sy_error_set(status == dnnl_out_of_memory ? SY_ENOMEM_HOST : SY_EBUG,
                        "node %s: oneDNN status %d in %s", name, (int)status, what);
}

static bool is_countable(const dnnl_memory_desc_t *md)
{
    int64_t n = 1;
    for (int d = 0; d < md->ndims; d++)
        if (md->dims[d] < 0 || __builtin_mul_overflow(n, md->dims[d], &n))
            return false;
    return n < (int64_t)1 << 32;
}

int sy_dnnl_check_sizes(const char *name, const dnnl_memory_desc_t *source,
                        const dnnl_memory_desc_t *weights, const dnnl_memory_desc_t *destination)
{
    const dnnl_memory_desc_t *const all[] = {source, weights, destination};
    static const char *const what[] = {"first input", "second input", "output"};
    for (size_t i = 0; i < SY_ARRAY_LEN(all); i++)
        if (!is_countable(all[i]))
            return sy_error_set(SY_EUNSUPPORTED,
                                "node %s: its %s has 2^32 elements or more, too many for oneDNN",
                                name, what[i]);
    return SY_OK;
}

dnnl_engine_t sy_dnnl_engine(void)
{
    static dnnl_engine_t engine;
    if (!engine && dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        engine = NULL;
    return engine;
}

dnnl_data_type_t sy_dnnl_type(enum sy_dtype dtype)
{
    return dtype == SY_DTYPE_F32  ? dnnl_f32
           : dtype == SY_DTYPE_U8 ? dnnl_u8
           : dtype == SY_DTYPE_I8 ? dnnl_s8
                                  : dnnl_data_type_undef;
}

void sy_dnnl_plain_md_of(dnnl_memory_desc_t *md, dnnl_data_type_t type, int rank,
                         const int64_t *dims)
{
    dnnl_dims_t d, strides;
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        d[i] = dims[i];
        strides[i] = stride;
        stride *= dims[i];
    }
    if (rank == 0) { /* a scalar */
        d[0] = strides[0] = 1;
        rank = 1;
    }
    dnnl_memory_desc_init_by_strides(md, rank, d, type, strides);
}

void sy_dnnl_plain_md(dnnl_memory_desc_t *md, int rank, const int64_t *dims)
{
    sy_dnnl_plain_md_of(md, dnnl_f32, rank, dims);
}

/* ---- steps ------------------------------------------------------------------------------------------- */

struct sy_step *sy_program_add_step(struct sy_program *p, sy_step_run run, int n_args)
{
    struct sy_step_arg *arguments = calloc((size_t)(n_args ? n_args : 1), sizeof *arguments);
    struct sy_step *step = arguments ? sy_append(&p->steps, &p->n_steps, sizeof *step) : NULL;
    if (!step) {
        free(arguments);
        return NULL;
    }
    *step = (struct sy_step){.run = run,
                             .args = arguments,
                             .n_args = n_args,
                             .threads = omp_get_max_threads(),
                             .name = sy_program_node(p)->name};
    return step;
}

void sy_step_set(struct sy_program *p, struct sy_step *step, int arg, int dnnl_arg, int value)
{
    step->args[arg] = (struct sy_step_arg){.dnnl_arg = dnnl_arg, .value = value};
    if (value >= 0)
        sy_program_touch(p, value);
}

int sy_step_set_numbers(struct sy_step *step, const int64_t *numbers, int n)
{
    step->numbers = calloc((size_t)n, sizeof *numbers);
    if (!step->numbers)
        return sy_error_set(SY_ENOMEM_HOST, "node %s: no memory for its numbers", step->name);
    memcpy(step->numbers, numbers, (size_t)n * sizeof *numbers);
    return SY_OK;
}

int sy_step_set_floats(struct sy_step *step, const float *floats, int n)
{
    step->floats = calloc((size_t)n, sizeof *floats);
    if (!step->floats)
        return sy_error_set(SY_ENOMEM_HOST, "node %s: no memory for its numbers", step->name);
    memcpy(step->floats, floats, (size_t)n * sizeof *floats);
    return SY_OK;
}

static int run_primitive(struct sy_program *p, struct sy_step *step)
{
    dnnl_exec_arg_t args[SY_STEP_MAX_ARGS];
    for (int i = 0; i < step->n_args; i++) {
        struct sy_step_arg *a = &step->args[i];
        void *pointer = a->value >= 0 ? sy_program_pointer(p, a->value)
                                      : (char *)p->binding->workspace + p->scratch_offset;
        void *held = NULL;
        dnnl_memory_get_data_handle(a->memory, &held);
        if (held != pointer)
            SY_DNNL(dnnl_memory_set_data_handle(a->memory, pointer), step->name);
        args[i] = (dnnl_exec_arg_t){a->dnnl_arg, a->memory};
    }
    SY_DNNL(dnnl_primitive_execute(step->primitive, p->stream, step->n_args, args), step->name);
    return SY_OK;
}

static int make_memory(struct sy_program *p, struct sy_step *step, int i,
                       const dnnl_memory_desc_t *md)
{
    SY_DNNL(dnnl_memory_create(&step->args[i].memory, md, p->engine, DNNL_MEMORY_NONE), step->name);
    return SY_OK;
}

static int fill_primitive(struct sy_program *p, const_dnnl_primitive_desc_t pd,
                          const int (*args)[2], int n_args)
{
    const dnnl_memory_desc_t *scratch = sy_dnnl_md(pd, dnnl_query_scratchpad_md);
    size_t scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    if (n_args + 1 > SY_STEP_MAX_ARGS)
        return sy_unsupported(sy_program_node(p), "more inputs than one primitive takes");
    struct sy_step *step = sy_program_add_step(p, run_primitive, n_args + (scratch_bytes > 0));
    if (!step)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a step");
    for (int i = 0; i < n_args; i++) {
        sy_step_set(p, step, i, args[i][0], args[i][1]);
        SY_TRY(make_memory(p, step, i, &p->values[args[i][1]].md));
    }
    if (scratch_bytes) {
        sy_step_set(p, step, n_args, DNNL_ARG_SCRATCHPAD, -1);
        SY_TRY(make_memory(p, step, n_args, scratch));
        p->scratch_bytes = SY_MAX(p->scratch_bytes, (uint64_t)scratch_bytes);
    }
    SY_DNNL(dnnl_primitive_create(&step->primitive, pd), step->name);
    return SY_OK;
}

int sy_program_add_primitive(struct sy_program *p, dnnl_primitive_desc_t pd, const int (*args)[2],
                             int n_args)
{
    int status = fill_primitive(p, pd, args, n_args);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

int sy_program_add_weighted(struct sy_program *p, const_dnnl_primitive_desc_t pd, int src,
                            int weights, int bias, int dst)
{
    dnnl_primitive_desc_t own;
    int args[4][2] = {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, dst}}, n = 3;
    if (bias >= 0) {
        memcpy(args[2], (int[]){DNNL_ARG_BIAS, bias}, sizeof args[2]);
        memcpy(args[n++], (int[]){DNNL_ARG_DST, dst}, sizeof args[3]);
    }
    sy_program_set_output(p, 0, dst);
    SY_DNNL(dnnl_primitive_desc_clone(&own, pd), sy_program_node(p)->name);
    return sy_program_add_primitive(p, own, (const int(*)[2])args, n);
}

static int run_reblock(struct sy_program *p, struct sy_step *step)
{
    sy_reblock_run((const struct sy_reblock *)step->numbers,
                   sy_program_pointer(p, step->args[0].value),
                   sy_program_pointer(p, step->args[1].value));
    return SY_OK;
}

/* *out: whether it is one of those for which oneDNN has reference loops only. */
static int add_reblock(struct sy_program *p, int from, int to, bool *out)
{
    struct sy_reblock r;
    *out = sy_reblock_read(&p->values[from].md, &p->values[to].md, &r);
    if (!*out)
        return SY_OK;
    struct sy_step *step = sy_program_add_step(p, run_reblock, 2);
    if (!step)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a step");
    sy_step_set(p, step, 0, 0, from);
    sy_step_set(p, step, 1, 0, to);
    _Static_assert(sizeof r % sizeof(int64_t) == 0, "stored as numbers");
    return sy_step_set_numbers(step, (const int64_t *)(const void *)&r,
                               (int)(sizeof r / sizeof(int64_t)));
}

int sy_program_add_reorder(struct sy_program *p, int from, int to)
{
    bool added;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_attr_t attr;
    const char *name = sy_program_node(p)->name;
    SY_TRY(add_reblock(p, from, to, &added));
    if (added)
        return SY_OK;
    SY_DNNL(dnnl_primitive_attr_create(&attr), name);
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    dnnl_status_t made = dnnl_reorder_primitive_desc_create(&pd, &p->values[from].md, p->engine,
                                                            &p->values[to].md, p->engine, attr);
    dnnl_primitive_attr_destroy(attr);
    SY_DNNL(made, name);
    const int args[][2] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return sy_program_add_primitive(p, pd, args, 2);
}

/* ---- program ----------------------------------------------------------------------------------------- */

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

/* Whether the value is row-major memory of its own that only loops of ours write, so that it can be the caller's instead, which may begin
 * anywhere. */
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

/* Outputs go to the caller's memory, row-major, in the layer that makes them (the last one for inputs and constants): the value moves
 * there, or is copied. */
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
            continue; /* it is made there (AtRun) */
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
        struct sy_step *step = sy_program_add_step(p, run_copy, 2);
        if (!step)
            return sy_error_set(SY_ENOMEM_HOST, "no memory for a step");
        sy_step_set(p, step, 0, 0, from);
        sy_step_set(p, step, 1, 0, to);
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

/* P13: primitives are made for as many threads as they run with. */
static void set_threads_of_layer(const struct sy_program *p, int layer)
{
    omp_set_num_threads(sy_layer_is_solo(&p->layers[layer], p->batch) ? 1 : p->team);
}

/* Layer p->layer, or a chain that begins with it and leaves p->layer at its last one. */
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
    if (!intervals)
        return sy_error_set(SY_ENOMEM_HOST, "no memory to plan %d values", p->n_values);
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
    if (!p->native || !p->plain || !p->narrow || !p->wants || !p->last_use || !p->layer_steps)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a program of %d layers", p->n_layers);
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
    if (!p)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a program");
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
    struct sy_program *p;
    if (batch < 1)
        return sy_error_set(SY_EARG, "a program for batch size %lld", (long long)batch);
    SY_TRY(new_program(graph, layers, n_layers, batch, &p));
    int status = build_layers(p);
    if (status == SY_OK)
        status = plan_memory(p);
    if (status < 0) {
        sy_program_destroy(p);
        return status;
    }
    *out = p;
    return SY_OK;
}

/* What other layers would have made lies row-major in the workspace. */
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
