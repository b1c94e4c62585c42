#include "workers/infer/precision.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"

struct side {
    struct sy_graph graph; /* the caller's, in one precision */
    struct sy_layer *layers;
    struct sy_program *program;
    void *workspace, *params, **outputs;
    unsigned char **layer_params;
};

static void *take(uint64_t bytes)
{
    return aligned_alloc(SY_LAYER_ALIGN, SY_ALIGN_UP(bytes + 1, (uint64_t)SY_LAYER_ALIGN));
}

static void finish(struct side *side, const struct sy_engine_ops *engine)
{
    if (side->program)
        engine->program_destroy(side->program);
    for (int i = 0; side->layers && i < side->graph.n_nodes; i++) {
        for (int k = 0; k < side->layers[i].n_params; k++)
            free(side->layers[i].params[k].layout);
        free(side->layers[i].params);
    }
    for (int i = 0; side->outputs && i < side->graph.n_outputs; i++)
        free(side->outputs[i]);
    free(side->outputs);
    free(side->layers);
    free(side->layer_params);
    free(side->params);
    free(side->workspace);
}

static int take_outputs(struct side *side, int64_t batch)
{
    for (int i = 0; i < side->graph.n_outputs; i++) {
        const struct sy_tensor *t = &side->graph.tensors[side->graph.outputs[i]];
        uint64_t wide = (uint64_t)sy_shape_elements(&t->shape, batch) * sizeof(float);
        side->outputs[i] =
            take(SY_MAX(wide, sy_graph_tensor_room(&side->graph, side->graph.outputs[i], batch)));
        SY_TRY_ALLOC(side->outputs[i], "no memory for output %s", t->name);
    }
    return SY_OK;
}

static int prepare(struct side *side, const struct sy_engine_ops *engine, int64_t batch)
{
    size_t n = (size_t)side->graph.n_nodes + 1;
    uint64_t largest = 0;
    side->layers = calloc(n, sizeof *side->layers);
    side->layer_params = calloc(n, sizeof *side->layer_params);
    side->outputs = calloc((size_t)side->graph.n_outputs + 1, sizeof *side->outputs);
    SY_TRY_ALLOC(side->layers && side->layer_params && side->outputs, "no memory for %zu layers",
                 n);
    for (int i = 0; i < side->graph.n_nodes; i++) {
        side->layers[i].node = i;
        SY_TRY(engine->layout_layer(&side->graph, &side->layers[i]));
        largest = SY_MAX(largest, side->layers[i].bytes);
    }
    SY_TRY(engine->program_create(&side->graph, side->layers, side->graph.n_nodes, batch,
                                  &side->program));
    side->params = take(largest);
    side->workspace = take(engine->program_workspace_bytes(side->program));
    SY_TRY_ALLOC(side->params && side->workspace, "no memory for a layer of %llu bytes",
                 (unsigned long long)largest);
    return take_outputs(side, batch);
}

static int run(struct side *side, const struct sy_engine_ops *engine, const void *const *inputs,
               int64_t batch)
{
    SY_TRY(prepare(side, engine, batch));
    struct sy_binding binding = {side->layer_params, side->workspace, inputs, side->outputs};
    for (int i = 0; i < side->graph.n_nodes; i++) {
        SY_TRY(engine->pack_layer(&side->graph, &side->layers[i], side->params));
        side->layer_params[i] = side->params;
        SY_TRY(engine->program_run(side->program, &binding, i, 1));
        side->layer_params[i] = NULL;
    }
    return SY_OK;
}

static int64_t largest_of(const float *row, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        best = row[i] > row[best] ? i : best;
    return best;
}

/* In place: the block was taken for this. */
static void widen(enum sy_dtype dtype, int64_t n, void *data)
{
    const uint16_t *halves = data;
    float *floats = data;
    for (int64_t i = n - 1; dtype != SY_DTYPE_F32 && i >= 0; i--)
        floats[i] =
            dtype == SY_DTYPE_F16 ? sy_half_to_float(halves[i]) : sy_bf16_to_float(halves[i]);
}

static void add_error(const struct sy_tensor *t, int64_t batch, float *want, float *got,
                      struct sy_precision_error *error)
{
    int64_t n = sy_shape_elements(&t->shape, batch);
    widen(t->dtype, n, want);
    widen(t->dtype, n, got);
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - (double)want[i]);
        if (got[i] == want[i] || (isnan(got[i]) && isnan(want[i])))
            off = 0; /* infinities, and what is undefined in both */
        error->max_abs = off > error->max_abs || isnan(off) ? off : error->max_abs;
        error->sum_squares_off += off * off;
        error->sum_squares += isfinite(want[i]) ? (double)want[i] * (double)want[i] : 0;
    }
    int64_t columns = t->shape.rank == 2 ? sy_dim_at(t->shape.dims[1], batch) : 0;
    for (int64_t row = 0; columns > 1 && row < n / columns; row++) {
        error->n_rows++;
        error->n_same_top +=
            largest_of(want + row * columns, columns) == largest_of(got + row * columns, columns);
    }
}

bool sy_precision_is_compared(enum sy_dtype dtype)
{
    return dtype == SY_DTYPE_F32 || dtype == SY_DTYPE_F16 || dtype == SY_DTYPE_BF16;
}

double sy_precision_relative(const struct sy_precision_error *error)
{
    if (error->sum_squares_off == 0)
        return 0;
    return error->sum_squares > 0 ? sqrt(error->sum_squares_off / error->sum_squares) : INFINITY;
}

int sy_precision_compare(const struct sy_graph *graph, const struct sy_engine_ops *engine,
                         const void *const *inputs, int64_t batch,
                         struct sy_precision_error *errors)
{
    struct side own = {.graph = *graph}, wide = {.graph = *graph};
    wide.graph.precision = SY_PRECISION_F32;
    int status = engine->attach ? sy_error_set(SY_EUNSUPPORTED,
                                               "precisions are compared on the host engine only")
                                : run(&own, engine, inputs, batch);
    if (status == SY_OK)
        status = run(&wide, engine, inputs, batch);
    for (int i = 0; status == SY_OK && i < graph->n_outputs; i++) {
        const struct sy_tensor *t = &graph->tensors[graph->outputs[i]];
        /* how many elements a run makes may differ by rounding */
        if (sy_precision_is_compared(t->dtype) && !sy_graph_is_dynamic(graph, graph->outputs[i]))
            add_error(t, batch, wide.outputs[i], own.outputs[i], &errors[i]);
    }
    finish(&own, engine);
    finish(&wide, engine);
    return status;
}
