/* Steps: what operators add to a program. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/products/reblock.h"
#include "workers/host/program/channel_layout.h"
#include "workers/host/program/program_internal.h"
#include "workers/host/rows/movement.h"

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

int sy_program_add_own_step(struct sy_program *p, sy_step_run run, const void *state, size_t bytes,
                            const int *values, size_t n_values)
{
    void *own = malloc(bytes);
    struct sy_step *step = own ? sy_program_add_step(p, run, 0) : NULL;
    if (!step) {
        free(own);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a step");
    }
    memcpy(own, state, bytes);
    step->state = own;
    step->free_state = free;
    for (size_t i = 0; i < n_values; i++)
        if (values[i] >= 0)
            sy_program_touch(p, values[i]);
    return SY_OK;
}

void sy_step_set(struct sy_program *p, struct sy_step *step, int arg, int dnnl_arg, int value)
{
    step->args[arg] = (struct sy_step_arg){.dnnl_arg = dnnl_arg, .value = value};
    if (value >= 0)
        sy_program_touch(p, value);
}

int sy_program_add_values(struct sy_program *p, sy_step_run run, const int *values, int n,
                          struct sy_step **out)
{
    *out = sy_program_add_step(p, run, n);
    SY_TRY_ALLOC(*out, "no memory for a step");
    for (int i = 0; i < n; i++)
        sy_step_set(p, *out, i, 0, values[i]);
    return SY_OK;
}

int sy_step_set_numbers(struct sy_step *step, const int64_t *numbers, int n)
{
    step->numbers = calloc((size_t)n, sizeof *numbers);
    SY_TRY_ALLOC(step->numbers, "node %s: no memory for its numbers", step->name);
    memcpy(step->numbers, numbers, (size_t)n * sizeof *numbers);
    return SY_OK;
}

int sy_step_set_floats(struct sy_step *step, const float *floats, int n)
{
    step->floats = calloc((size_t)n, sizeof *floats);
    SY_TRY_ALLOC(step->floats, "node %s: no memory for its numbers", step->name);
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
    SY_TRY_ALLOC(step, "no memory for a step");
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
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_reblock, (int[]){from, to}, 2, &step));
    _Static_assert(sizeof r % sizeof(int64_t) == 0, "stored as numbers");
    return sy_step_set_numbers(step, (const int64_t *)(const void *)&r,
                               (int)(sizeof r / sizeof(int64_t)));
}

static int run_move(struct sy_program *p, struct sy_step *step)
{
    sy_move((const struct sy_strided_move *)step->numbers,
            sy_program_pointer(p, step->args[0].value), sy_program_pointer(p, step->args[1].value));
    return SY_OK;
}

int sy_program_add_move(struct sy_program *p, const struct sy_strided_move *move, int from, int to)
{
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_move, (int[]){from, to}, 2, &step));
    _Static_assert(sizeof *move % sizeof(int64_t) == 0, "stored as numbers");
    return sy_step_set_numbers(step, (const int64_t *)move, (int)(sizeof *move / sizeof(int64_t)));
}

/* Row-major channels become last ones, or the other way round, by tiles of our own: they take 0.2 to 0.9 of the time of oneDNN's loops for more
 * channels than these, 1 to 2 times as long for fewer. */
enum { MOST_TO_ROWS = 16, MOST_TO_LAST = 255 };

static int add_turn(struct sy_program *p, int from, int to, bool *out)
{
    const struct sy_value *x = &p->values[from], *y = &p->values[to];
    enum sy_channel_layout a = sy_channel_layout_of(x), b = sy_channel_layout_of(y);
    *out = (a == SY_CHANNELS_LAST && b == SY_CHANNELS_ROWS && y->dims[1] > MOST_TO_ROWS) ||
           (a == SY_CHANNELS_ROWS && b == SY_CHANNELS_LAST && y->dims[1] > MOST_TO_LAST);
    if (!*out)
        return SY_OK;
    int64_t channels = y->dims[1], pixels = 1;
    for (int i = 2; i < y->rank; i++)
        pixels *= y->dims[i];
    const int64_t rows = b == SY_CHANNELS_LAST ? pixels : channels,
                  columns = b == SY_CHANNELS_LAST ? channels : pixels;
    struct sy_strided_move move = {.element_bytes = sizeof(float),
                                   .rank = 3,
                                   .dims = {y->dims[0], rows, columns},
                                   .from_strides = {rows * columns, 1, rows},
                                   .to_strides = {rows * columns, columns, 1}};
    return sy_program_add_move(p, &move, from, to);
}

int sy_program_add_reorder(struct sy_program *p, int from, int to)
{
    bool added;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_attr_t attr;
    const char *name = sy_program_node(p)->name;
    SY_TRY(add_reblock(p, from, to, &added));
    if (!added)
        SY_TRY(add_turn(p, from, to, &added));
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
