#include "workers/cuda/program/cuda_run.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/graph_cache.h"

#define MAX_GRAPHS 1024 /* a graph of some dozen kernels takes some 100 KB of the device */

static struct {
    const struct sy_math_ops *ops;
    struct sy_math *math;
    struct sy_graph_cache *graphs; /* NULL: SY_CUDA_GRAPHS=0 */
    int (*turn)(void *ctx);        /* NULL: nothing */
    void *turn_ctx;
} run;

/* ---- life --------------------------------------------------------------------------------------------- */

void sy_cuda_run_on_turn(int (*turn)(void *ctx), void *ctx)
{
    run.turn = turn;
    run.turn_ctx = ctx;
}

int sy_cuda_between_turns(void)
{
    return run.turn ? run.turn(run.turn_ctx) : SY_OK;
}

static void release_graph(void *ctx, void *graph)
{
    (void)ctx;
    run.ops->graph_drop(run.math, graph);
}

int sy_cuda_run_open(const struct sy_math_ops *ops, struct sy_math *math)
{
    const char *graphs = getenv("SY_CUDA_GRAPHS");
    run.ops = ops;
    run.math = math;
    if (graphs && strcmp(graphs, "0") == 0)
        return SY_OK;
    return sy_graph_cache_create(MAX_GRAPHS, release_graph, NULL, &run.graphs);
}

void sy_cuda_run_close(void)
{
    sy_graph_cache_destroy(run.graphs);
    run.graphs = NULL;
    run.math = NULL;
    run.ops = NULL;
}

int sy_cuda_run_confine(struct sy_stream *compute, const int *parts, int n)
{
    struct sy_graph_cache *anew = NULL;
    if (run.graphs)
        SY_TRY(sy_graph_cache_create(MAX_GRAPHS, release_graph, NULL, &anew));
    int status = sy_cuda_stream_confine(compute, parts, n);
    if (status < 0 || !run.graphs) {
        sy_graph_cache_destroy(anew);
        return status;
    }
    sy_graph_cache_destroy(run.graphs);
    run.graphs = anew;
    return SY_OK;
}

struct sy_cuda_run_counts sy_cuda_run_get_counts(void)
{
    struct sy_cuda_run_counts out = {0};
    if (run.graphs) {
        struct sy_graph_counts counts = sy_graph_cache_counts(run.graphs);
        out = (struct sy_cuda_run_counts){counts.eager, counts.captures, counts.launches};
    }
    return out;
}

void sy_cuda_program_drop(struct sy_program *program)
{
    if (program && run.graphs)
        sy_graph_cache_forget(run.graphs, program->id);
    sy_cuda_program_destroy(program);
}

/* ---- runs --------------------------------------------------------------------------------------------- */

/* A graph holds addresses: those of the parameters that its layers read, and of the workspace; a body's, of what it is given and gives. */
static int placement_of(const struct sy_program *p, int first, int end, uint64_t *out)
{
    size_t n = 2, ends = p->captured ? (size_t)(p->graph->n_inputs + p->graph->n_outputs) : 0;
    uint64_t *at = calloc((size_t)p->n_layers + 2 + ends, sizeof *at);
    SY_TRY_ALLOC(at, "no memory for %d addresses", p->n_layers);
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
        sy_graph_cache_refuse(run.graphs, key);
        return sy_cuda_program_steps(p, first, end);
    }
    sy_graph_cache_put(run.graphs, key, placement, graph);
    return p->ops->graph_launch(p->math, graph);
}

/* Steps without tensors of the caller, whose addresses differ from run to run: as one graph, if it is worth it. */
static int run_steps(struct sy_program *p, int first, int end)
{
    uint64_t placement;
    void *graph = NULL;
    if (!run.graphs || end - first < 2)
        return sy_cuda_program_steps(p, first, end);
    struct sy_graph_key key = {p->id, (uint32_t)p->batch, (uint32_t)first};
    SY_TRY(placement_of(p, first, end, &placement));
    switch (sy_graph_cache_look(run.graphs, key, placement, &graph)) {
    case SY_GRAPH_LAUNCH:
        return p->ops->graph_launch(p->math, graph);
    case SY_GRAPH_CAPTURE:
        return capture(p, key, placement, first, end);
    case SY_GRAPH_EAGER:
        break;
    }
    return sy_cuda_program_steps(p, first, end);
}

int sy_cuda_program_run(struct sy_program *p, const struct sy_binding *binding, int first, int n)
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

int sy_cuda_program_finish(struct sy_program *p)
{
    struct sy_math_fault fault = *p->fault;
    *p->fault = (struct sy_math_fault){0};
    if (fault.step < 1 || fault.step > p->n_steps)
        return SY_OK;
    const struct sy_cuda_step *step = &p->steps[fault.step - 1];
    if (step->formula)
        return sy_error_set(SY_EARG,
                            "node %s: %s: %lld, an index, a length or a size, is not in its bounds",
                            step->node->name, sy_op_name(step->node->op), (long long)fault.index);
    return sy_error_set(SY_EARG, "node %s: index %lld is not in [-%lld, %lld)", step->node->name,
                        (long long)fault.index, (long long)step->gather.extent,
                        (long long)step->gather.extent);
}
