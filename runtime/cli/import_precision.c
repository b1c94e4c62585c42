#include "runtime/cli/import_precision.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "workers/data/npy.h"
#include "workers/infer/precision.h"

#define RANDOM_SAMPLES 4
#define CHUNK          8 /* samples at once: any number of them can be given */

/* One array for each graph input. */
struct samples {
    int n;
    struct sy_npy *inputs;
    int64_t batch;
};

static void drop(struct samples *s)
{
    for (int i = 0; s->inputs && i < s->n; i++)
        sy_npy_finish(&s->inputs[i]);
    free(s->inputs);
}

/* ---- random ------------------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Integers below this: of an index, its table's extent. */
static int64_t bound_of(const struct sy_graph *graph, int tensor)
{
    int64_t bound = 2;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct sy_node *node = &graph->nodes[i];
        if (node->op != SY_OP_GATHER || node->inputs[1] != tensor)
            continue;
        const struct sy_shape *table = &graph->tensors[node->inputs[0]].shape;
        int64_t axis = sy_node_int(node, "axis", 0);
        axis = axis < 0 ? axis + table->rank : axis;
        if (axis >= 0 && axis < table->rank && table->dims[axis].fixed > 0)
            bound = bound == 2 ? table->dims[axis].fixed : SY_MIN(bound, table->dims[axis].fixed);
    }
    return bound;
}

/* A whole number that the type holds; little-endian: the low bytes come first. */
static void put_whole(struct sy_npy *to, int64_t i, uint64_t value)
{
    size_t bytes = sy_dtype_bytes(to->dtype);
    memcpy((char *)to->data + (size_t)i * bytes, &value, bytes);
}

static int make_random(const struct sy_graph *graph, struct samples *s)
{
    uint64_t state = 1;
    s->batch = RANDOM_SAMPLES;
    for (int i = 0; i < s->n; i++) {
        const struct sy_tensor *t = &graph->tensors[graph->inputs[i]];
        int64_t n = sy_shape_elements(&t->shape, s->batch),
                bound = bound_of(graph, graph->inputs[i]);
        struct sy_npy *to = &s->inputs[i];
        *to = (struct sy_npy){.dtype = t->dtype, .bytes = (size_t)n * sy_dtype_bytes(t->dtype)};
        to->data = calloc(1, to->bytes + 1);
        SY_TRY_ALLOC(to->data, "no memory for input %s", t->name);
        for (int64_t k = 0; k < n; k++) {
            uint64_t r = next_random(&state);
            float unit = (float)(r >> 40) / (float)(1 << 23) - 1;
            if (t->dtype == SY_DTYPE_F32)
                ((float *)to->data)[k] = unit;
            else if (t->dtype == SY_DTYPE_F16)
                ((uint16_t *)to->data)[k] = sy_float_to_half(unit);
            else if (t->dtype == SY_DTYPE_BF16)
                ((uint16_t *)to->data)[k] = sy_float_to_bf16(unit);
            else if (sy_dtype_bytes(t->dtype) == 1)
                ((uint8_t *)to->data)[k] = (uint8_t)(r & 1);
            else if (t->dtype != SY_DTYPE_F64)
                put_whole(to, k, r % (uint64_t)bound);
        }
    }
    return SY_OK;
}

/* ---- given -------------------------------------------------------------------------------------------- */

static int input_of(const struct sy_graph *graph, const char *word, const char **path, int *out)
{
    const char *equals = strchr(word, '=');
    *path = equals ? equals + 1 : word;
    if (!equals && graph->n_inputs == 1) {
        *out = 0;
        return SY_OK;
    }
    for (int i = 0; equals && i < graph->n_inputs; i++) {
        const char *name = graph->tensors[graph->inputs[i]].name;
        if (strlen(name) == (size_t)(equals - word) &&
            strncmp(name, word, (size_t)(equals - word)) == 0) {
            *out = i;
            return SY_OK;
        }
    }
    return sy_error_set(SY_EARG,
                        "--calibrate %s: give NAME=FILE.npy with a name of the model's %d "
                        "inputs (the first is %s)",
                        word, graph->n_inputs,
                        graph->n_inputs > 0 ? graph->tensors[graph->inputs[0]].name : "missing");
}

/* The batch size that the array's dimensions are the input's at; 0: none. */
static int64_t batch_of(const struct sy_tensor *t, const struct sy_npy *npy)
{
    int64_t batch = 1;
    if (npy->rank != t->shape.rank)
        return 0;
    for (int d = 0; d < npy->rank; d++)
        if (t->shape.dims[d].per_batch > 0)
            batch = (npy->dims[d] - t->shape.dims[d].fixed) / t->shape.dims[d].per_batch;
    for (int d = 0; d < npy->rank; d++)
        if (sy_dim_at(t->shape.dims[d], batch) != npy->dims[d])
            return 0;
    return batch;
}

static int read_given(const struct sy_graph *graph, const char *const *words, int n,
                      struct samples *s)
{
    s->batch = 1;
    for (int w = 0; w < n; w++) {
        const char *path;
        char shape[160];
        int i;
        SY_TRY(input_of(graph, words[w], &path, &i));
        const struct sy_tensor *t = &graph->tensors[graph->inputs[i]];
        if (s->inputs[i].data)
            return sy_error_set(SY_EARG, "--calibrate: input %s is given twice", t->name);
        SY_TRY(sy_npy_read(path, &s->inputs[i]));
        int64_t batch = batch_of(t, &s->inputs[i]);
        if (batch < 1 || s->inputs[i].dtype != t->dtype)
            return sy_error_set(SY_EARG, "--calibrate: %s does not fit input %s, which is %s of %s",
                                path, t->name, sy_shape_text(&t->shape, shape, sizeof shape),
                                sy_dtype_wire_name(t->dtype));
        if (s->batch > 1 && batch > 1 && batch != s->batch)
            return sy_error_set(SY_EARG, "--calibrate: %s has %lld samples, another input %lld",
                                path, (long long)batch, (long long)s->batch);
        s->batch = SY_MAX(s->batch, batch);
    }
    for (int i = 0; i < s->n; i++)
        if (!s->inputs[i].data)
            return sy_error_set(SY_EARG, "--calibrate: no file for input %s",
                                graph->tensors[graph->inputs[i]].name);
    return SY_OK;
}

/* ---- report ------------------------------------------------------------------------------------------- */

/* Samples lie one after the other if the batch is the first dimension of every input, and nothing else in its size. */
static bool can_be_cut(const struct sy_graph *graph)
{
    for (int i = 0; i < graph->n_inputs; i++) {
        const struct sy_shape *shape = &graph->tensors[graph->inputs[i]].shape;
        for (int d = 0; d < shape->rank; d++)
            if ((shape->dims[d].per_batch != 0) != (d == 0) ||
                (d == 0 && shape->dims[0].fixed != 0))
                return false;
        if (shape->rank == 0)
            return false;
    }
    return true;
}

static int compare(const struct sy_graph *graph, const struct sy_engine_ops *engine,
                   const struct samples *s, struct sy_precision_error *errors)
{
    int64_t chunk = can_be_cut(graph) ? CHUNK : s->batch;
    const void **inputs = calloc((size_t)s->n + 1, sizeof *inputs);
    int status = inputs ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for inputs");
    for (int64_t at = 0; status == SY_OK && at < s->batch; at += chunk) {
        for (int i = 0; i < s->n; i++)
            inputs[i] = (const char *)s->inputs[i].data +
                        s->inputs[i].bytes / (uint64_t)s->batch * (uint64_t)at;
        status = sy_precision_compare(graph, engine, inputs, SY_MIN(chunk, s->batch - at), errors);
    }
    free(inputs);
    return status;
}

static void print(const struct sy_graph *graph, const struct samples *s, bool random,
                  const struct sy_precision_error *errors)
{
    for (int i = 0; i < graph->n_outputs; i++) {
        const struct sy_tensor *t = &graph->tensors[graph->outputs[i]];
        const struct sy_precision_error *e = &errors[i];
        if (!sy_precision_is_compared(t->dtype))
            continue;
        fprintf(stderr,
                "%s: %s against f32 on %lld %s samples: output %s: max abs %.3g, relative %.3g",
                graph->name, sy_precision_name(graph->precision), (long long)s->batch,
                random ? "random" : "given", t->name, e->max_abs, sy_precision_relative(e));
        if (e->n_rows > 0)
            fprintf(stderr, ", top-1 the same in %lld of %lld", (long long)e->n_same_top,
                    (long long)e->n_rows);
        fputc('\n', stderr);
    }
}

int sy_cli_report_precision(const struct sy_graph *graph, const struct sy_engine_ops *engine,
                            const char *const *words, int n)
{
    struct samples s = {.n = graph->n_inputs};
    if (engine->attach && n == 0) {
        fprintf(stderr, "%s: %s against f32 was not measured: it is on the host engine only\n",
                graph->name, sy_precision_name(graph->precision));
        return SY_OK;
    }
    struct sy_precision_error *errors = calloc((size_t)graph->n_outputs + 1, sizeof *errors);
    s.inputs = calloc((size_t)graph->n_inputs + 1, sizeof *s.inputs);
    int status = errors && s.inputs
                     ? SY_OK
                     : sy_error_set(SY_ENOMEM_HOST, "no memory for %d inputs", graph->n_inputs);
    if (status == SY_OK)
        status = n > 0 ? read_given(graph, words, n, &s) : make_random(graph, &s);
    if (status == SY_OK)
        status = compare(graph, engine, &s, errors);
    if (status == SY_OK)
        print(graph, &s, n == 0, errors);
    drop(&s);
    free(errors);
    if (status == SY_EARG && n == 0) {
        fprintf(stderr,
                "%s: %s against f32 was not measured: random inputs do not suit: %s; give "
                "some with --calibrate\n",
                graph->name, sy_precision_name(graph->precision), sy_error_text());
        return SY_OK;
    }
    return status;
}
