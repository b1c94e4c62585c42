/* Values, layouts, parameters and their gradients; the steps that all operators share. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"
#include "workers/cuda/train/cuda_train.h"

/* The GPU that cost guesses assume: 1.5 TB/s, 20 * 10^12 operations a second, 2 us a launch. Measurements correct them. */
#define BYTES_PER_NS 1500u
#define FLOP_PER_NS  20000.0
#define LAUNCH_NS    2000u

int sy_cutr_refuse(const struct sy_node *node, const char *why)
{
    return sy_error_set(SY_EUNSUPPORTED, "node '%s' (%s): cannot be trained on cuda: %s",
                        node->name ? node->name : "", sy_op_name(node->op), why);
}

/* ---- values ------------------------------------------------------------------------------------------- */

int sy_cutr_dims(const struct sy_trainer *t, int tensor, int64_t *dims)
{
    const struct sy_tensor *x = &t->graph->tensors[tensor];
    for (int i = 0; i < x->shape.rank; i++) {
        dims[i] = sy_dim_at(x->shape.dims[i], t->options.batch);
        if (dims[i] < 1)
            return sy_error_set(SY_EUNSUPPORTED, "tensor '%s': dimension %d is %lld", x->name, i,
                                (long long)dims[i]);
    }
    return x->shape.rank;
}

int64_t sy_cutr_count(const struct sy_cutr_value *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++)
        n *= v->dims[i];
    return n;
}

void sy_cutr_strides(const struct sy_cutr_value *v, int64_t *strides)
{
    sy_cuda_dense_strides(v->rank, v->dims, v->last, strides);
}

uint64_t sy_cutr_value_bytes(const struct sy_trainer *t, int value)
{
    const struct sy_cutr_value *v = &t->values[value];
    return (uint64_t)sy_cutr_count(v) * sy_dtype_bytes(v->dtype);
}

static struct sy_cutr_value *add_value(struct sy_trainer *t, enum sy_dtype dtype, int rank,
                                       const int64_t *dims, bool last)
{
    struct sy_cutr_value *v = sy_append(&t->values, &t->n_values, sizeof *v);
    if (!v)
        return NULL;
    v->dtype = dtype;
    v->rank = rank;
    v->last = last && rank >= 3;
    v->form = t->n_values - 1;
    for (int i = 0; i < rank; i++)
        v->dims[i] = dims[i];
    return v;
}

int sy_cutr_value_new(struct sy_trainer *t, int rank, const int64_t *dims, bool last,
                      bool persistent, int *out)
{
    return sy_cutr_value_typed(t, SY_DTYPE_F32, rank, dims, last, persistent, out);
}

int sy_cutr_value_typed(struct sy_trainer *t, enum sy_dtype dtype, int rank, const int64_t *dims,
                        bool last, bool persistent, int *out)
{
    struct sy_cutr_value *v = add_value(t, dtype, rank, dims, last);
    if (!v)
        return SY_ENOMEM_HOST;
    struct sy_cutr_buffer *b = sy_append(&t->buffers, &t->n_buffers, sizeof *b);
    if (!b)
        return SY_ENOMEM_HOST;
    *b = (struct sy_cutr_buffer){
        .bytes = SY_ALIGN_UP(sy_cutr_value_bytes(t, t->n_values - 1), (uint64_t)SY_CUTR_ALIGN),
        .first = -1,
        .last = -1,
        .persistent = persistent};
    v->buffer = t->n_buffers - 1;
    *out = t->n_values - 1;
    return SY_OK;
}

int sy_cutr_view(struct sy_trainer *t, int value, int rank, const int64_t *dims, bool last,
                 uint64_t delta_bytes, int *out)
{
    return sy_cutr_view_typed(t, value, t->values[value].dtype, rank, dims, last, delta_bytes, out);
}

int sy_cutr_view_typed(struct sy_trainer *t, int value, enum sy_dtype dtype, int rank,
                       const int64_t *dims, bool last, uint64_t delta_bytes, int *out)
{
    struct sy_cutr_value *v = add_value(t, dtype, rank, dims, last);
    if (!v)
        return SY_ENOMEM_HOST;
    const struct sy_cutr_value *of = &t->values[value];
    v->buffer = of->buffer;
    v->delta_bytes = of->delta_bytes + delta_bytes;
    sy_assert_internal(v->delta_bytes + sy_cutr_value_bytes(t, t->n_values - 1) <=
                       t->buffers[v->buffer].bytes);
    *out = t->n_values - 1;
    return SY_OK;
}

void *sy_cutr_pointer(const struct sy_trainer *t, int value)
{
    if (value < 0)
        return NULL;
    const struct sy_cutr_value *v = &t->values[value];
    const struct sy_cutr_buffer *b = &t->buffers[v->buffer];
    return (b->persistent ? t->persistent : t->ephemeral) + b->offset + v->delta_bytes;
}

void *sy_cutr_scratch(const struct sy_trainer *t)
{
    return t->ephemeral + t->scratch_offset;
}

/* ---- steps -------------------------------------------------------------------------------------------- */

int sy_cutr_step_new(struct sy_trainer *t, unsigned when, const char *name, sy_cutr_run run,
                     const int *args, int n_args, struct sy_cutr_step **out)
{
    uint64_t bytes = 0;
    struct sy_cutr_step *step = sy_append(&t->steps, &t->n_steps, sizeof *step);
    if (!step)
        return SY_ENOMEM_HOST;
    step->run = run;
    step->when = when;
    step->name = name ? name : "";
    step->n_args = n_args;
    step->n_results = n_args > 0 ? 1 : 0;
    for (int i = 0; i < SY_CUTR_ARGS; i++) {
        step->args[i] = i < n_args ? args[i] : -1;
        bytes += step->args[i] < 0 ? 0 : sy_cutr_value_bytes(t, step->args[i]);
    }
    step->cost_ns = LAUNCH_NS + bytes / BYTES_PER_NS;
    *out = step;
    return SY_OK;
}

static int run_chain(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    const void *in[SY_MATH_CHAIN_IN];
    for (int i = 0; i < step->chain.n_inputs; i++)
        in[i] = sy_cutr_pointer(t, step->args[i]);
    return t->ops->chain(t->math, &step->chain, in, sy_cutr_pointer(t, step->args[5]));
}

void sy_cutr_find_lifetimes(struct sy_trainer *t)
{
    for (int b = 0; b < t->n_buffers; b++)
        t->buffers[b].first = t->buffers[b].last = -1;
    for (int s = 0; s < t->n_steps; s++)
        for (int i = 0; i < t->steps[s].n_args; i++) {
            int value = t->steps[s].args[i];
            if (value < 0)
                continue;
            struct sy_cutr_buffer *b = &t->buffers[t->values[value].buffer];
            b->first = b->first < 0 ? s : b->first;
            b->last = s;
        }
}

static void set_types(const struct sy_trainer *t, struct sy_math_chain *chain, const int *args)
{
    chain->dtype = SY_DTYPE_F32;
    chain->out_type = t->values[args[5]].dtype;
    for (int i = 0; i < chain->n_inputs; i++)
        chain->in_types[i] = t->values[args[i]].dtype;
}

int sy_cutr_chain(struct sy_trainer *t, unsigned when, const char *name,
                  const struct sy_math_chain *chain, const int *inputs, const bool *is_row,
                  int64_t columns, int to)
{
    struct sy_cutr_step *step;
    int args[6] = {-1, -1, -1, -1, -1, to};
    int64_t rows = sy_cutr_count(&t->values[to]) / columns;
    bool flat = true;
    for (int i = 0; i < chain->n_inputs; i++) {
        args[i] = inputs[i];
        flat = flat && !is_row[i];
    }
    SY_TRY(sy_cutr_step_new(t, when, name, run_chain, args, 6, &step));
    struct sy_math_chain *c = &step->chain;
    *c = *chain;
    set_types(t, c, args);
    c->rank = flat ? 1 : 2;
    c->dims[0] = flat ? rows * columns : rows;
    c->out_strides[0] = flat ? 1 : columns;
    c->dims[1] = columns;
    c->out_strides[1] = 1;
    for (int i = 0; i < chain->n_inputs; i++) {
        c->in_strides[i][0] = flat ? 1 : is_row[i] ? 0 : columns;
        c->in_strides[i][1] = 1;
    }
    return SY_OK;
}

int sy_cutr_strided_chain(struct sy_trainer *t, unsigned when, const char *name,
                          const struct sy_math_chain *chain, const int *inputs, int to)
{
    struct sy_cutr_step *step;
    int args[6] = {-1, -1, -1, -1, -1, to};
    int64_t stride = 1, *strides[1 + SY_MATH_CHAIN_IN];
    for (int i = 0; i < chain->n_inputs; i++)
        args[i] = inputs[i];
    SY_TRY(sy_cutr_step_new(t, when, name, run_chain, args, 6, &step));
    struct sy_math_chain *c = &step->chain;
    *c = *chain;
    set_types(t, c, args);
    for (int i = c->rank - 1; i >= 0; i--) {
        c->out_strides[i] = stride;
        stride *= c->dims[i];
    }
    strides[0] = c->out_strides;
    for (int i = 0; i < c->n_inputs; i++)
        strides[1 + i] = c->in_strides[i];
    c->rank = sy_cuda_collapse(c->rank, c->dims, strides, 1 + c->n_inputs);
    return SY_OK;
}

static int run_fill(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    const struct sy_cutr_value *v = &t->values[step->args[0]];
    if (v->dtype == SY_DTYPE_BF16) /* zero only */
        return t->ops->zero(t->math, sy_cutr_pointer(t, step->args[0]),
                            sy_cutr_value_bytes(t, step->args[0]));
    return t->ops->fill(t->math, sy_cutr_pointer(t, step->args[0]), step->n, step->number);
}

int sy_cutr_fill(struct sy_trainer *t, unsigned when, const char *name, int value, float number)
{
    struct sy_cutr_step *step;
    sy_assert_internal(number == 0.0f || t->values[value].dtype == SY_DTYPE_F32);
    SY_TRY(sy_cutr_step_new(t, when, name, run_fill, &value, 1, &step));
    step->n = sy_cutr_count(&t->values[value]);
    step->number = number;
    return SY_OK;
}

static int run_columns(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->columns(t->math, &step->columns, sy_cutr_pointer(t, step->args[0]), NULL, NULL,
                           sy_cutr_pointer(t, step->args[1]), sy_cutr_scratch(t));
}

static int run_reduce(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->reduce(t->math, &step->reduce, sy_cutr_pointer(t, step->args[0]),
                          sy_cutr_pointer(t, step->args[1]));
}

int sy_cutr_sum(struct sy_trainer *t, unsigned when, const char *name, int rank,
                const int64_t *dims, const bool *reduced, int from, int to)
{
    struct sy_cutr_step *step;
    int64_t stride = 1, rows = 1, columns = 1;
    bool is_columns = true, kept = false;
    for (int i = 0; i < rank; i++) {
        kept |= !reduced[i] && dims[i] > 1;
        is_columns &= !(reduced[i] && dims[i] > 1 && kept);
        *(reduced[i] ? &rows : &columns) *= dims[i];
    }
    if (!is_columns)
        SY_TRY(sy_cutr_as(t, when, from, t->values[from].last, &from));
    SY_TRY(sy_cutr_step_new(t, when, name, is_columns ? run_columns : run_reduce, (int[]){from, to},
                            2, &step));
    if (is_columns) {
        step->columns = (struct sy_math_columns){.kind = SY_COLUMNS_SUM,
                                                 .rows = rows,
                                                 .columns = columns,
                                                 .a_type = t->values[from].dtype};
        return SY_OK;
    }
    step->reduce.rank = rank;
    for (int i = rank - 1; i >= 0; i--) {
        step->reduce.dims[i] = dims[i];
        step->reduce.strides[i] = stride;
        step->reduce.reduced[i] = reduced[i];
        stride *= dims[i];
    }
    return SY_OK;
}

static int run_move(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    return t->ops->move(t->math, &step->move, sy_cutr_pointer(t, step->args[0]),
                        sy_cutr_pointer(t, step->args[1]));
}

int sy_cutr_move(struct sy_trainer *t, unsigned when, const char *name,
                 const struct sy_math_move *move, int from, int to)
{
    struct sy_cutr_step *step;
    SY_TRY(sy_cutr_step_new(t, when, name, run_move, (int[]){from, to}, 2, &step));
    step->move = *move;
    step->move.element_bytes = (int64_t)sy_dtype_bytes(t->values[from].dtype);
    return SY_OK;
}

/* ---- forms -------------------------------------------------------------------------------------------- */

enum sy_dtype sy_cutr_product_type(const struct sy_trainer *t)
{
    return t->options.precision == SY_TRAIN_BF16 ? SY_DTYPE_BF16 : SY_DTYPE_F32;
}

enum sy_dtype sy_cutr_common_type(const struct sy_trainer *t, const int *values, int n)
{
    for (int i = 0; i < n; i++)
        if (t->values[values[i]].dtype != SY_DTYPE_BF16)
            return SY_DTYPE_F32;
    return SY_DTYPE_BF16;
}

/* The form that another is converted from: for float32 preferably float32, then one of its layout. */
static int best_source(const struct sy_trainer *t, int value, bool last, enum sy_dtype type)
{
    int best = value, best_score = -1, v = value;
    do {
        const struct sy_cutr_value *x = &t->values[v];
        int score = (x->dtype == type) * (type == SY_DTYPE_F32 ? 4 : 1) + (x->last == last) * 2;
        if (score > best_score) {
            best = v;
            best_score = score;
        }
        v = x->form;
    } while (v != value);
    return best;
}

/* In the order in which `to` lies. */
static int add_conversion(struct sy_trainer *t, unsigned when, int from, int to)
{
    const struct sy_cutr_value a = t->values[from], b = t->values[to];
    struct sy_math_chain load = {.n_inputs = 1, .n_steps = 1, .steps = {{SY_CHAIN_LOAD, 0, 0, 0}}};
    int64_t strides[SY_MAX_RANK];
    if (a.last == b.last)
        return sy_cutr_chain(t, when, "type change", &load, &from, (bool[]){false}, 1, to);
    sy_cutr_strides(&a, strides);
    if (a.dtype == b.dtype) {
        struct sy_math_move move = {.rank = a.rank};
        memcpy(move.dims, a.dims, sizeof move.dims);
        memcpy(move.from_strides, strides, sizeof strides);
        sy_cutr_strides(&b, move.to_strides);
        return sy_cutr_move(t, when, "layout change", &move, from, to);
    }
    load.rank = a.rank;
    for (int i = 0; i < a.rank; i++) {
        int d = !b.last || i == 0 ? i : i == a.rank - 1 ? 1 : i + 1;
        load.dims[i] = a.dims[d];
        load.in_strides[0][i] = strides[d];
    }
    return sy_cutr_strided_chain(t, when, "layout change", &load, &from, to);
}

int sy_cutr_as_typed(struct sy_trainer *t, unsigned when, int value, bool last, enum sy_dtype type,
                     int *out)
{
    struct sy_cutr_value v = t->values[value];
    bool is_float = v.dtype == SY_DTYPE_F32 || v.dtype == SY_DTYPE_BF16;
    int at = value;
    type = is_float && type != SY_DTYPE_NONE ? type : v.dtype;
    last = v.rank < 3 ? v.last : last;
    do {
        if (t->values[at].last == last && t->values[at].dtype == type) {
            *out = at;
            return SY_OK;
        }
        at = t->values[at].form;
    } while (at != value);
    int from = best_source(t, value, last, type);
    SY_TRY(sy_cutr_value_typed(t, type, v.rank, v.dims, last, false, out));
    t->values[*out].form = t->values[value].form;
    t->values[value].form = *out;
    return add_conversion(t, when, from, *out);
}

int sy_cutr_as(struct sy_trainer *t, unsigned when, int value, bool last, int *out)
{
    return sy_cutr_as_typed(t, when, value, last, SY_DTYPE_F32, out);
}
