#include "workers/cuda/program/cuda_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"
#include "workers/cuda/program/cuda_run.h"
#include "workers/cuda/program/host_ops.h"
#include "workers/cuda/program/node_help.h"

/* Raised whenever packed parameters or layer tables change their meaning. */
#define LAYOUT_VERSION 4

static const struct sy_cuda_op *const tables[] = {
    sy_cuda_ops_conv, sy_cuda_ops_matmul, sy_cuda_ops_pool,      sy_cuda_ops_eltwise,
    sy_cuda_ops_norm, sy_cuda_ops_lists,  sy_cuda_ops_movement,  sy_cuda_ops_recurrent,
    sy_cuda_ops_more, sy_cuda_ops_deconv, sy_cuda_ops_attention, sy_cuda_ops_control};

static struct {
    const struct sy_math_ops *ops;
    struct sy_math *math;      /* NULL: not attached */
    struct sy_stream *compute; /* borrowed */
    bool allow_host_ops;       /* at import */
} engine;

void sy_cuda_engine_use(const struct sy_math_ops *ops)
{
    assert(!engine.math);
    engine.ops = ops;
}

const struct sy_cuda_op *sy_cuda_op_find(enum sy_op op)
{
    for (size_t t = 0; t < SY_ARRAY_LEN(tables); t++)
        for (const struct sy_cuda_op *o = tables[t]; o->build; o++)
            if (sy_op_is_among(o->ops, o->n_ops, op))
                return o;
    return NULL;
}

static const struct sy_cuda_builders builders = {.find = sy_cuda_op_find,
                                                 .by_formula = sy_cuda_formula_build,
                                                 .host_is_there = sy_cuda_host_engine_is_there,
                                                 .host_has = sy_cuda_host_is_layer,
                                                 .by_host = sy_cuda_host_build};

/* ---- import ------------------------------------------------------------------------------------------- */

/* Layouts are our own: they depend on no library and on no GPU. */
static int describe(char *buffer, size_t bytes)
{
    snprintf(buffer, bytes, "cuda-%d channels-last", LAYOUT_VERSION);
    return SY_OK;
}

/* Every GPU from sm_80 on multiplies all of them. */
static int check_precision(enum sy_precision precision)
{
    (void)precision;
    return SY_OK;
}

static bool fuses(enum sy_op op, int64_t size)
{
    return op == SY_OP_ATTENTION && size <= SY_MATH_ATTENTION_SIZE;
}

/* The host's part of this engine is one thread. */
static int set_threads(const int *cores, int n)
{
    if (n >= 1)
        sy_cuda_host_set_threads(cores, n);
    return n < 1 ? sy_error_set(SY_EARG, "%d compute threads", n) : SY_OK;
}

static void drop_params(struct sy_layer *layer)
{
    for (int i = 0; i < layer->n_params; i++)
        free(layer->params[i].layout);
    free(layer->params);
    layer->params = NULL;
    layer->n_params = 0;
    layer->bytes = 0;
}

static int layout_layer(const struct sy_graph *graph, struct sy_layer *layer)
{
    char why[512];
    int status = sy_cuda_layout_own(&builders, graph, layer);
    if (status != SY_EUNSUPPORTED || !sy_cuda_host_engine_is_there())
        return status;
    snprintf(why, sizeof why, "%s", sy_error_text());
    if (!engine.allow_host_ops && !sy_cuda_host_always(&graph->nodes[layer->node]))
        return sy_error_set(status, "%s; --allow-host-ops has the host engine compute it", why);
    drop_params(layer);
    SY_TRY(sy_cuda_host_layout_layer(graph, layer));
    sy_cuda_host_say(graph, layer->node, why);
    return SY_OK;
}

static void on_turn(int (*turn)(void *ctx), void *ctx)
{
    sy_cuda_run_on_turn(turn, ctx);
    sy_cuda_host_on_turn(turn, ctx);
}

static void allow_host_ops(bool allowed)
{
    engine.allow_host_ops = allowed;
}

static int pack_layer(const struct sy_graph *graph, const struct sy_layer *layer, void *to)
{
    return sy_cuda_host_is_layer(layer) ? sy_cuda_host_pack_layer(graph, layer, to)
                                        : sy_cuda_pack_params(graph, layer, to);
}

/* ---- device ------------------------------------------------------------------------------------------- */

static int confine(const int *parts, int n)
{
    return engine.math ? sy_cuda_run_confine(engine.compute, parts, n)
                       : sy_error_set(SY_EBUG, "the CUDA engine is not attached");
}

static void detach(void)
{
    if (!engine.math)
        return;
    sy_cuda_host_use_helper(NULL);
    sy_cuda_run_close();
    engine.ops->close(engine.math);
    engine.math = NULL;
}

static int attach(struct sy_device *device, struct sy_stream *compute)
{
    if (!engine.ops || engine.math)
        return sy_error_set(SY_EBUG, "the CUDA engine is %s",
                            engine.ops ? "attached already" : "without mathematics");
    SY_TRY(engine.ops->open(device, compute, &engine.math));
    sy_cuda_host_use_helper(&sy_cuda_node_helper);
    engine.compute = compute;
    int status = sy_cuda_run_open(engine.ops, engine.math);
    if (status < 0)
        detach();
    return status;
}

static void tune(bool on)
{
    if (engine.math && engine.ops->tune)
        engine.ops->tune(engine.math, on);
}

static int choices(char **out)
{
    *out = NULL;
    return engine.math && engine.ops->choices ? engine.ops->choices(engine.math, out) : SY_OK;
}

/* Choices that cannot be used only cost time: the library's own choice is right too. */
static int use_choices(const char *text)
{
    int status =
        engine.math && engine.ops->use_choices ? engine.ops->use_choices(engine.math, text) : SY_OK;
    if (status == SY_EUNSUPPORTED || status == SY_ECORRUPT) {
        sy_log_info("cuda", "event=choices_ignored why=\"%s\"", sy_error_text());
        return SY_OK;
    }
    return status;
}

/* ---- programs ----------------------------------------------------------------------------------------- */

int sy_cuda_engine_math(const struct sy_math_ops **ops, struct sy_math **math)
{
    if (!engine.math)
        return sy_error_set(SY_ENODEVICE, "the CUDA engine has no device: open cuda:N first");
    *ops = engine.ops;
    *math = engine.math;
    return SY_OK;
}

static int program_create(const struct sy_graph *graph, const struct sy_layer *layers, int n_layers,
                          int64_t batch, struct sy_program **out)
{
    if (!engine.math)
        return sy_error_set(SY_ENODEVICE, "the CUDA engine has no device: open cuda:N first");
    return sy_cuda_program_create(&builders, engine.ops, engine.math, graph, layers, n_layers,
                                  batch, out);
}

static uint64_t program_workspace_bytes(const struct sy_program *program)
{
    return program->workspace_bytes;
}

const struct sy_engine_ops sy_cuda_engine = {
    .name = "cuda",
    .describe = describe,
    .check_precision = check_precision,
    .set_threads = set_threads,
    .fuses = fuses,
    .attach = attach,
    .detach = detach,
    .confine = confine,
    .layout_layer = layout_layer,
    .pack_layer = pack_layer,
    .program_create = program_create,
    .program_destroy = sy_cuda_program_drop,
    .program_workspace_bytes = program_workspace_bytes,
    .program_run = sy_cuda_program_run,
    .program_finish = sy_cuda_program_finish,
    .tune = tune,
    .choices = choices,
    .use_choices = use_choices,
    .allow_host_ops = allow_host_ops,
    .on_turn = on_turn,
};
