#include "workers/host/program.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/program_internal.h"
#include "workers/host/workspace_plan.h"

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

int sy_unsupported(const struct sy_node *node, const char *what)
{
    return sy_error_set(SY_EUNSUPPORTED, "node %s: %s (opset %d): %s", node->name,
                        sy_op_name(node->op), node->opset, what);
}

dnnl_engine_t sy_dnnl_engine(void)
{
    static dnnl_engine_t engine;
    if (!engine && dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        engine = NULL;
    return engine;
}

void sy_dnnl_plain_md(dnnl_memory_desc_t *md, int rank, const int64_t *dims)
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
    dnnl_memory_desc_init_by_strides(md, rank, d, dnnl_f32, strides);
}

const dnnl_memory_desc_t *sy_dnnl_md(const_dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

/* ---- values ------------------------------------------------------------------------------------------ */

const struct sy_node *sy_program_node(const struct sy_program *p)
{
    return &p->graph->nodes[p->layers[p->layer].node];
}

const struct sy_tensor *sy_program_input_tensor(const struct sy_program *p, int input)
{
    return &p->graph->tensors[sy_program_node(p)->inputs[input]];
}

void sy_program_dims(const struct sy_program *p, int tensor, int64_t *dims)
{
    const struct sy_shape *shape = &p->graph->tensors[tensor].shape;
    for (int i = 0; i < shape->rank; i++)
        dims[i] = sy_dim_at(shape->dims[i], p->batch);
}

int sy_program_new_value(struct sy_program *p, enum sy_dtype dtype, int rank, const int64_t *dims,
                         int *out)
{
    if (p->n_values == p->values_capacity) {
        int capacity = p->values_capacity ? 2 * p->values_capacity : 256;
        struct sy_value *grown = realloc(p->values, (size_t)capacity * sizeof *grown);
        if (!grown)
            return sy_error_set(SY_ENOMEM_HOST, "no memory for %d values", capacity);
        p->values = grown;
        p->values_capacity = capacity;
    }
    struct sy_value *v = &p->values[p->n_values];
    *v = (struct sy_value){.dtype = dtype,
                           .rank = rank,
                           .root = p->n_values,
                           .first = p->layer,
                           .last = p->layer,
                           .bytes = sy_dtype_bytes(dtype)};
    for (int i = 0; i < rank; i++) {
        v->dims[i] = dims[i];
        v->bytes *= (uint64_t)dims[i];
    }
    if (dtype == SY_DTYPE_F32)
        sy_dnnl_plain_md(&v->md, rank, dims);
    *out = p->n_values++;
    return SY_OK;
}

static int new_of_tensor(struct sy_program *p, int tensor, int *out)
{
    int64_t dims[SY_MAX_RANK];
    const struct sy_tensor *t = &p->graph->tensors[tensor];
    sy_program_dims(p, tensor, dims);
    return sy_program_new_value(p, t->dtype, t->shape.rank, dims, out);
}

int sy_program_new_laid_out(struct sy_program *p, int tensor, const dnnl_memory_desc_t *md,
                            int *out)
{
    SY_TRY(new_of_tensor(p, tensor, out));
    p->values[*out].md = *md;
    p->values[*out].bytes = dnnl_memory_desc_get_size(md);
    return SY_OK;
}

int sy_program_new_alias(struct sy_program *p, int value, int tensor, const dnnl_memory_desc_t *md,
                         int *out)
{
    SY_TRY(new_of_tensor(p, tensor, out));
    struct sy_value *v = &p->values[*out], *of = &p->values[value];
    int root = of->root;
    v->place = of->place;
    v->index = of->index;
    v->constant = of->constant;
    v->offset = of->offset;
    v->root = root;
    if (md)
        v->md = *md;
    p->values[root].last = p->layer;
    return SY_OK;
}

void sy_program_touch(struct sy_program *p, int value)
{
    struct sy_value *root = &p->values[p->values[value].root];
    root->last = SY_MAX(root->last, p->layer);
}

static const struct sy_param *find_param(const struct sy_program *p, int input)
{
    const struct sy_layer *layer = &p->layers[p->layer];
    for (int i = 0; i < layer->n_params; i++)
        if (layer->params[i].input == input)
            return &layer->params[i];
    return NULL;
}

bool sy_program_is_param(const struct sy_program *p, int input)
{
    return find_param(p, input) != NULL;
}

int sy_program_param(struct sy_program *p, int input, int *out)
{
    const struct sy_param *param = find_param(p, input);
    const struct sy_node *node = sy_program_node(p);
    if (!param)
        return sy_error_set(SY_ECORRUPT, "node %s: input %d is not among its parameters",
                            node->name, input);
    SY_TRY(new_of_tensor(p, node->inputs[input], out));
    struct sy_value *v = &p->values[*out];
    v->place = SY_IN_PARAMS;
    v->index = p->layer;
    v->offset = param->offset_bytes;
    v->bytes = param->bytes;
    if (param->layout_bytes == sizeof v->md)
        memcpy(&v->md, param->layout, sizeof v->md);
    else if (param->layout_bytes != 0)
        return sy_error_set(SY_ECORRUPT, "node %s: layout of input %d has %zu bytes", node->name,
                            input, param->layout_bytes);
    return SY_OK;
}

static int constant_value(struct sy_program *p, int tensor, int *out)
{
    const struct sy_tensor *t = &p->graph->tensors[tensor];
    SY_TRY(new_of_tensor(p, tensor, out));
    p->values[*out].place = SY_IN_CONSTANT;
    p->values[*out].constant = t->data;
    return SY_OK;
}

static bool is_plain(const struct sy_value *v)
{
    dnnl_memory_desc_t plain;
    if (v->dtype != SY_DTYPE_F32)
        return true;
    sy_dnnl_plain_md(&plain, v->rank, v->dims);
    return dnnl_memory_desc_equal(&plain, &v->md);
}

int sy_program_input_native(struct sy_program *p, int input, int *out)
{
    const struct sy_node *node = sy_program_node(p);
    int tensor = node->inputs[input];
    if (find_param(p, input))
        return sy_program_param(p, input, out);
    if (p->graph->tensors[tensor].data && p->native[tensor] < 0)
        return constant_value(p, tensor, out);
    if (p->native[tensor] < 0)
        return sy_error_set(SY_ECORRUPT, "node %s: input %s is not computed before it", node->name,
                            p->graph->tensors[tensor].name);
    *out = p->native[tensor];
    sy_program_touch(p, *out);
    return SY_OK;
}

int sy_program_input_plain(struct sy_program *p, int input, int *out)
{
    int tensor = sy_program_node(p)->inputs[input], from;
    if (tensor >= 0 && p->plain[tensor] >= 0) {
        *out = p->plain[tensor];
        sy_program_touch(p, *out);
        return SY_OK;
    }
    SY_TRY(sy_program_input_native(p, input, &from));
    if (is_plain(&p->values[from])) {
        *out = from;
        return SY_OK;
    }
    SY_TRY(new_of_tensor(p, tensor, out));
    SY_TRY(sy_program_add_reorder(p, from, *out));
    if (!sy_program_is_param(p, input))
        p->plain[tensor] = *out;
    return SY_OK;
}

int sy_program_input_as(struct sy_program *p, int input, const dnnl_memory_desc_t *md, int *out)
{
    int tensor = sy_program_node(p)->inputs[input], from;
    SY_TRY(sy_program_input_native(p, input, &from));
    if (dnnl_memory_desc_equal(md, &p->values[from].md)) {
        *out = from;
        return SY_OK;
    }
    SY_TRY(sy_program_new_laid_out(p, tensor, md, out));
    return sy_program_add_reorder(p, from, *out);
}

void sy_program_set_output(struct sy_program *p, int output, int value)
{
    p->native[sy_program_node(p)->outputs[output]] = value;
}

int sy_program_output_plain(struct sy_program *p, int output, int *out)
{
    SY_TRY(new_of_tensor(p, sy_program_node(p)->outputs[output], out));
    sy_program_set_output(p, output, *out);
    return SY_OK;
}

/* Whether a tensor that is still to be read (or read by another input of this node) has these bytes. */
static bool is_needed(const struct sy_program *p, int tensor, int root, int but_input)
{
    const struct sy_node *node = sy_program_node(p);
    bool here = (p->native[tensor] >= 0 && p->values[p->native[tensor]].root == root) ||
                (p->plain[tensor] >= 0 && p->values[p->plain[tensor]].root == root);
    if (!here)
        return false;
    for (int i = 0; i < node->n_inputs; i++)
        if (i != but_input && node->inputs[i] == tensor)
            return true;
    return p->last_use[tensor] > p->layer;
}

bool sy_program_is_last_use(const struct sy_program *p, int input, int value)
{
    const struct sy_value *v = &p->values[value];
    if (v->place != SY_IN_WORKSPACE)
        return false;
    for (int t = 0; t < p->graph->n_tensors; t++)
        if (is_needed(p, t, v->root, input))
            return false;
    return true;
}

/* ---- steps ------------------------------------------------------------------------------------------- */

struct sy_step *sy_program_add_step(struct sy_program *p, sy_step_run run, int n_args)
{
    if (p->n_steps == p->steps_capacity) {
        int capacity = p->steps_capacity ? 2 * p->steps_capacity : 256;
        struct sy_step *grown = realloc(p->steps, (size_t)capacity * sizeof *grown);
        if (!grown)
            return NULL;
        p->steps = grown;
        p->steps_capacity = capacity;
    }
    struct sy_step *step = &p->steps[p->n_steps];
    *step = (struct sy_step){.run = run, .n_args = n_args, .name = sy_program_node(p)->name};
    step->args = calloc((size_t)(n_args ? n_args : 1), sizeof *step->args);
    if (!step->args)
        return NULL;
    p->n_steps++;
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

int sy_program_add_reorder(struct sy_program *p, int from, int to)
{
    dnnl_primitive_desc_t pd;
    dnnl_primitive_attr_t attr;
    const char *name = sy_program_node(p)->name;
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

static int find_last_uses(struct sy_program *p)
{
    for (int l = 0; l < p->n_layers; l++) {
        const struct sy_node *node = &p->graph->nodes[p->layers[l].node];
        for (int i = 0; i < node->n_inputs; i++)
            if (node->inputs[i] >= 0)
                p->last_use[node->inputs[i]] = l;
    }
    return SY_OK;
}

static int make_inputs(struct sy_program *p)
{
    for (int i = 0; i < p->graph->n_inputs; i++) {
        int value;
        SY_TRY(new_of_tensor(p, p->graph->inputs[i], &value));
        p->values[value].place = SY_IN_INPUT;
        p->values[value].index = i;
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

/* Outputs go to the caller's memory, row-major, in the layer that makes them (the last one for inputs and constants). */
static int copy_outputs(struct sy_program *p, int layer)
{
    const struct sy_node *node = sy_program_node(p);
    for (int i = 0; i < p->graph->n_outputs; i++) {
        int tensor = p->graph->outputs[i], to, from = p->native[tensor];
        bool here = false;
        for (int k = 0; k < node->n_outputs; k++)
            here = here || node->outputs[k] == tensor;
        bool passed_through = from < 0 || p->values[from].place == SY_IN_INPUT;
        if (!here && !(passed_through && layer == p->n_layers - 1))
            continue;
        if (from < 0)
            SY_TRY(constant_value(p, tensor, &from));
        SY_TRY(new_of_tensor(p, tensor, &to));
        p->values[to].place = SY_IN_OUTPUT;
        p->values[to].index = i;
        if (!is_plain(&p->values[from])) {
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

static int build_layers(struct sy_program *p)
{
    SY_TRY(make_inputs(p));
    for (p->layer = 0; p->layer < p->n_layers; p->layer++) {
        const struct sy_host_op *op = sy_host_op_find(sy_program_node(p)->op);
        p->layer_steps[p->layer] = p->n_steps;
        if (!op)
            return sy_unsupported(sy_program_node(p),
                                  "the host engine does not have this operator");
        SY_TRY(op->build(p));
        SY_TRY(copy_outputs(p, p->layer));
    }
    p->layer_steps[p->n_layers] = p->n_steps;
    return SY_OK;
}

static int plan_memory(struct sy_program *p)
{
    struct sy_interval *intervals = calloc((size_t)p->n_values + 1, sizeof *intervals);
    int n = 0;
    if (!intervals)
        return sy_error_set(SY_ENOMEM_HOST, "no memory to plan %d values", p->n_values);
    for (int i = 0; i < p->n_values; i++) {
        struct sy_value *v = &p->values[i];
        if (v->place == SY_IN_WORKSPACE && v->root == i)
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

static int create(struct sy_program *p)
{
    size_t n = (size_t)p->graph->n_tensors + 1;
    p->engine = sy_dnnl_engine();
    p->native = malloc(n * sizeof *p->native);
    p->plain = malloc(n * sizeof *p->plain);
    p->last_use = malloc(n * sizeof *p->last_use);
    p->layer_steps = calloc((size_t)p->n_layers + 1, sizeof *p->layer_steps);
    if (!p->native || !p->plain || !p->last_use || !p->layer_steps)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a program of %d layers", p->n_layers);
    memset(p->native, 0xff, n * sizeof *p->native);
    memset(p->plain, 0xff, n * sizeof *p->plain);
    memset(p->last_use, 0xff, n * sizeof *p->last_use);
    if (!p->engine)
        return sy_error_set(SY_ENODEVICE, "oneDNN has no CPU engine on this machine");
    SY_DNNL(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags), p->graph->name);
    SY_TRY(find_last_uses(p));
    SY_TRY(build_layers(p));
    return plan_memory(p);
}

int sy_program_create(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                      int64_t batch, struct sy_program **out)
{
    struct sy_program *p = calloc(1, sizeof *p);
    if (!p)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a program");
    p->graph = graph;
    p->layers = layers;
    p->n_layers = n_layers;
    p->batch = batch;
    int status = create(p);
    if (status < 0) {
        sy_program_destroy(p);
        return status;
    }
    *out = p;
    return SY_OK;
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
    }
    if (p->stream)
        dnnl_stream_destroy(p->stream);
    free(p->steps);
    free(p->values);
    free(p->native);
    free(p->plain);
    free(p->last_use);
    free(p->layer_steps);
    free(p);
}

uint64_t sy_program_workspace_bytes(const struct sy_program *p)
{
    return p->workspace_bytes;
}

void *sy_program_pointer(const struct sy_program *p, int value)
{
    const struct sy_value *v = &p->values[value];
    switch (v->place) {
    case SY_IN_WORKSPACE:
        return (char *)p->binding->workspace + v->offset;
    case SY_IN_INPUT:
        return (void *)p->binding->inputs[v->index];
    case SY_IN_OUTPUT:
        return p->binding->outputs[v->index];
    case SY_IN_PARAMS:
        return p->binding->layer_params[v->index] + v->offset;
    case SY_IN_CONSTANT:
        return (void *)v->constant;
    }
    return NULL;
}

int sy_program_run(struct sy_program *p, const struct sy_binding *binding, int first, int n)
{
    assert(first >= 0 && n >= 0 && first + n <= p->n_layers);
    p->binding = binding;
    for (int i = p->layer_steps[first]; i < p->layer_steps[first + n]; i++)
        SY_TRY(p->steps[i].run(p, &p->steps[i]));
    return SY_OK;
}
