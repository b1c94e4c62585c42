/* sy_cuda_trainer: the table of workers/engine/trainer.h over the plan that cuda_train_build.c makes. */
#include "workers/cuda/train/cuda_trainer.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_engine.h"
#include "workers/cuda/ranks/device_exchange.h"
#include "workers/cuda/train/cuda_train.h"
#include "workers/engine/train_rules.h"

#define LOSS_MARK (SY_MATH_MARKS - 1)

_Static_assert(SY_INFLIGHT_EVENTS < SY_MATH_MARKS, "a mark each, and one for the loss");

/* ---- life --------------------------------------------------------------------------------------------- */

static int synchronize(struct sy_trainer *t)
{
    uint64_t limit_ns = t->inflight.limit_ns;
    SY_TRY(t->ops->synchronize(t->math));
    double ratio = t->inflight.ratio;
    sy_inflight_init(&t->inflight, limit_ns);
    t->inflight.ratio = ratio;
    t->last_mark = -1;
    return SY_OK;
}

static void destroy(struct sy_trainer *t)
{
    if (!t)
        return;
    if (t->host) /* what is in flight may read it; a failure of the device has been told before */
        SY_CLEANUP(t->ops->synchronize(t->math));
    for (int s = 0; s < t->n_steps; s++)
        if (t->steps[s].plan)
            t->ops->plan_drop(t->math, t->steps[s].plan);
    if (t->host)
        t->ops->host_drop(t->math, t->host);
    for (int s = 0; s < t->n_states; s++)
        free(t->states[s].name);
    for (int e = 0; e < t->n_formulas; e++)
        free(t->formulas[e]);
    for (int n = 0; t->nodes && n < t->graph->n_nodes; n++)
        free(t->nodes[n].attention);
    void *arrays[] = {t->tensors,     t->nodes,          t->values,      t->buffers,
                      t->steps,       t->params,         t->states,      t->formulas,
                      t->train_steps, t->evaluate_steps, t->host_inputs, t->shared};
    for (size_t i = 0; i < SY_ARRAY_LEN(arrays); i++)
        free(arrays[i]);
    free(t);
}

static int make_tables(struct sy_trainer *t)
{
    const struct sy_graph *g = t->graph;
    t->tensors = calloc((size_t)g->n_tensors + 1, sizeof *t->tensors);
    t->nodes = calloc((size_t)g->n_nodes + 1, sizeof *t->nodes);
    t->host_inputs = calloc((size_t)g->n_inputs + 1, sizeof *t->host_inputs);
    SY_TRY_ALLOC(t->tensors && t->nodes && t->host_inputs,
                 "model '%s': no room for %d tensors and %d nodes", g->name, g->n_tensors,
                 g->n_nodes);
    for (int i = 0; i < g->n_tensors; i++)
        t->tensors[i].value = t->tensors[i].gradient = t->tensors[i].param = -1;
    for (int n = 0; n < g->n_nodes; n++)
        t->nodes[n].source = t->nodes[n].moments = t->nodes[n].rate = -1;
    return SY_OK;
}

/* SY_CUDA_INFLIGHT_US: how long a preemption may wait for kernels. */
static uint64_t inflight_limit_ns(void)
{
    const char *text = getenv("SY_CUDA_INFLIGHT_US");
    double us = text ? strtod(text, NULL) : 0;
    return us >= 1 && us <= 1e6 ? (uint64_t)(us * 1e3) : 0;
}

static bool fuses(enum sy_op op, int64_t size)
{
    return op == SY_OP_ATTENTION && size <= SY_MATH_ATTENTION_BACK_SIZE;
}

static int prepare(struct sy_graph *graph)
{
    SY_TRY(sy_graph_infer_training(graph));
    return sy_graph_optimize_training(graph);
}

static int create(const struct sy_graph *graph, const struct sy_train_options *options,
                  struct sy_trainer **out)
{
    const struct sy_math_ops *ops;
    struct sy_math *math;
    int status;
    if (options->batch < 1)
        return sy_error_set(SY_EARG, "batch %lld: must be at least 1", (long long)options->batch);
    SY_TRY(sy_cuda_engine_math(&ops, &math));
    struct sy_trainer *t = calloc(1, sizeof *t);
    SY_TRY_ALLOC(t, "model '%s': no room for a trainer", graph->name);
    t->graph = graph;
    t->options = *options;
    t->ops = ops;
    t->math = math;
    t->last_mark = -1;
    sy_inflight_init(&t->inflight, inflight_limit_ns());
    SY_TRY_GOTO(make_tables(t), fail);
    SY_TRY_GOTO(sy_cutr_build(t), fail);
    SY_TRY_GOTO(sy_cutr_plan_shared(t), fail);
    *out = t;
    return SY_OK;
fail:
    destroy(t);
    return status;
}

static uint64_t persistent_bytes(const struct sy_trainer *t)
{
    return t->persistent_bytes;
}

static uint64_t ephemeral_bytes(const struct sy_trainer *t)
{
    return t->ephemeral_bytes;
}

static void bind(struct sy_trainer *t, void *persistent, void *ephemeral)
{
    t->persistent = persistent;
    t->copy = NULL;
    t->ephemeral = ephemeral;
}

/* ---- runs ------------------------------------------------------------------------------------------- */

static int run_step(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    int status = sy_cutr_bounded(t, step->cost_ns, step->run, step);
    return status < 0 ? sy_error_prefix(status, "node %s: ", step->name) : SY_OK;
}

static struct sy_cutr_news *news_of(const struct sy_trainer *t)
{
    return (struct sy_cutr_news *)(void *)(t->host + t->host_loss);
}

/* A fault that the device found in a forward pass that has ended: an index outside of its table. */
static int check_fault(struct sy_trainer *t)
{
    struct sy_math_fault *fault = &news_of(t)->fault;
    if (fault->step == 0)
        return SY_OK;
    const struct sy_node *node = &t->graph->nodes[fault->step - 1];
    fault->step = 0;
    if (node->op != SY_OP_GATHER)
        return sy_error_set(SY_EARG,
                            "node '%s' (%s): %lld, an index, a length or a size, is not in its "
                            "bounds",
                            node->name ? node->name : "", sy_op_name(node->op),
                            (long long)fault->index);
    int64_t extent = sy_cutr_gather_extent(t, node);
    return sy_error_set(SY_EARG, "node '%s' (Gather): index %lld, the table has rows 0 to %lld",
                        node->name ? node->name : "", (long long)fault->index,
                        (long long)extent - 1);
}

/* ---- state -------------------------------------------------------------------------------------------- */

static int n_state_tensors(const struct sy_trainer *t)
{
    return t->n_states;
}

static int state_value(const struct sy_trainer *t, int index)
{
    const struct sy_state_slot *state = &t->states[index];
    const struct sy_cutr_param *param = &t->params[state->param];
    return state->slot < 0 ? param->value : param->slots[state->slot];
}

static void state_tensor(const struct sy_trainer *t, int index, struct sy_state_tensor *out)
{
    const struct sy_tensor *tensor = &t->graph->tensors[t->params[t->states[index].param].tensor];
    out->name = t->states[index].name;
    out->shape = tensor->shape;
    out->bytes = tensor->data_bytes;
}

/* Channels last is [outer, inner..., channels]: per outer index a transposed matrix. */
static void transpose(const struct sy_cutr_value *v, const float *from, float *to, bool to_plain)
{
    int64_t channels = v->dims[1], area = 1;
    for (int i = 2; i < v->rank; i++)
        area *= v->dims[i];
    for (int64_t o = 0; o < v->dims[0]; o++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t k = 0; k < area; k++) {
                int64_t plain = (o * channels + c) * area + k, last = (o * area + k) * channels + c;
                to[to_plain ? plain : last] = from[to_plain ? last : plain];
            }
}

static int put_persistent(struct sy_trainer *t, const void *host, int value, uint64_t bytes)
{
    SY_TRY(t->ops->to_device(t->math, host, sy_cutr_pointer(t, value), bytes));
    return synchronize(t);
}

static int get_persistent(struct sy_trainer *t, int value, void *host, uint64_t bytes)
{
    const unsigned char *at = sy_cutr_pointer(t, value);
    if (t->copy) {
        memcpy(host, t->copy + (at - t->persistent), bytes);
        return SY_OK;
    }
    SY_TRY(t->ops->to_host(t->math, at, host, bytes));
    return synchronize(t);
}

/* Through memory of our own, where the layouts differ. */
static int convert(struct sy_trainer *t, int value, const char *name, void *plain, bool to_plain)
{
    const struct sy_cutr_value *v = &t->values[value];
    uint64_t bytes = sy_cutr_value_bytes(t, value);
    float *own = v->last ? malloc(bytes) : NULL, *host = v->last ? own : plain;
    SY_TRY_ALLOC(host, "%s: no memory for %llu bytes", name, (unsigned long long)bytes);
    if (v->last && !to_plain)
        transpose(v, plain, own, false);
    int status =
        to_plain ? get_persistent(t, value, host, bytes) : put_persistent(t, host, value, bytes);
    if (status == SY_OK && v->last && to_plain)
        transpose(v, own, plain, true);
    free(own);
    return status;
}

static int get_state(struct sy_trainer *t, int index, void *to)
{
    SY_TRY(convert(t, state_value(t, index), t->states[index].name, to, true));
    return sy_cutr_check_norm(t, t->n_norms);
}

static int set_state(struct sy_trainer *t, int index, const void *from)
{
    return convert(t, state_value(t, index), t->states[index].name, (void *)(uintptr_t)from,
                   false); /* only read */
}

static int init_state(struct sy_trainer *t)
{
    SY_TRY(t->ops->fill(t->math, t->persistent, (int64_t)(t->persistent_bytes / sizeof(float)), 0));
    for (int p = 0; p < t->n_params; p++) {
        const struct sy_tensor *x = &t->graph->tensors[t->params[p].tensor];
        SY_TRY(convert(t, t->params[p].value, x->name, x->data, false));
    }
    return SY_OK;
}

/* Each write from a place of its own: it is used again HEADERS writes later, with a loss in between that was waited for. */
static int write_header(struct sy_trainer *t, const void *from, uint64_t bytes)
{
    unsigned char *own = t->host + t->host_loss + SY_CUTR_ALIGN +
                         t->n_header_writes++ % SY_CUTR_HEADERS * SY_CUTR_HEADER_BYTES;
    sy_assert_internal(bytes <= SY_CUTR_HEADER_BYTES);
    memcpy(own, from, bytes);
    return t->ops->to_device(t->math, own, t->persistent - SY_TRAIN_HEADER_BYTES, bytes);
}

static int read_header(struct sy_trainer *t, void *to, uint64_t bytes)
{
    SY_TRY(t->ops->to_host(t->math, t->persistent - SY_TRAIN_HEADER_BYTES, to, bytes));
    return synchronize(t);
}

static void read_copy(struct sy_trainer *t, const void *copy)
{
    t->copy = copy;
}

/* ---- steps -------------------------------------------------------------------------------------------- */

static int n_gradient_steps(const struct sy_trainer *t)
{
    return t->n_train;
}

static int n_forward_steps(const struct sy_trainer *t)
{
    return t->n_evaluate;
}

/* The host fills in what earlier steps have copied: the loss behind them was waited for. */
static void *batch_input(struct sy_trainer *t, int input)
{
    sy_assert_internal(input >= 0 && input < t->graph->n_inputs);
    t->last_mark = -1;
    return t->batch + t->host_inputs[input];
}

static void *batch_labels(struct sy_trainer *t)
{
    return t->batch + t->host_labels;
}

static int n_batch_places(const struct sy_trainer *t)
{
    (void)t;
    return SY_CUTR_BATCHES;
}

static void use_batch_place(struct sy_trainer *t, int place)
{
    sy_assert_internal(place >= 0 && place < SY_CUTR_BATCHES);
    t->batch = t->host + (uint64_t)place * t->batch_bytes;
    t->last_mark = -1;
}

static int check_labels(const struct sy_trainer *t)
{
    const int32_t *labels = (const int32_t *)(const void *)(t->batch + t->host_labels);
    if (t->options.loss != SY_LOSS_SOFTMAX_CROSS_ENTROPY)
        return SY_OK;
    for (int64_t r = 0; r < t->n_positions; r++)
        if (labels[r] >= t->n_outputs)
            return sy_error_set(
                SY_EARG, "label %d of row %lld: the model has %lld classes, 0 to %lld", labels[r],
                (long long)r, (long long)t->n_outputs, (long long)t->n_outputs - 1);
    return SY_OK;
}

static void begin_batch(struct sy_trainer *t, uint64_t number)
{
    t->draw = number;
}

static int run_gradient_step(struct sy_trainer *t, int step)
{
    uint64_t ns, n_ended = t->n_norms;
    sy_assert_internal(step >= 0 && step < t->n_train);
    if (step == 0)
        SY_TRY(check_labels(t));
    SY_TRY(run_step(t, &t->steps[t->train_steps[step]]));
    if (step < t->n_train - 1 || !t->loss_marked)
        return SY_OK;
    t->loss_marked = false;
    SY_TRY(t->ops->wait_mark(t->math, LOSS_MARK, -1, &ns));
    SY_TRY(check_fault(t));
    return sy_cutr_check_norm(t, n_ended); /* of iterations in front of this one */
}

static int run_update_step(struct sy_trainer *t, int step, uint64_t iteration)
{
    sy_assert_internal(step >= 0 && step < sy_cutr_n_updates(t) && iteration > 0);
    return sy_cutr_run_update(t, step, iteration);
}

static int run_forward_step(struct sy_trainer *t, int step)
{
    sy_assert_internal(step >= 0 && step < t->n_evaluate);
    SY_TRY(run_step(t, &t->steps[t->evaluate_steps[step]]));
    if (step < t->n_evaluate - 1)
        return SY_OK;
    SY_TRY(synchronize(t)); /* then the batch may be replaced */
    return check_fault(t);
}

static double loss(const struct sy_trainer *t)
{
    return (double)news_of(t)->loss;
}

static int64_t count_correct(const struct sy_trainer *t, int64_t rows)
{
    int64_t all = rows * (t->n_positions / t->options.batch);
    uint64_t bytes = (uint64_t)(all * t->n_outputs) * sizeof(float);
    float *x = malloc(bytes + 1);
    if (!x || t->ops->to_host(t->math, sy_cutr_pointer(t, t->logits), x, bytes) < 0 ||
        t->ops->synchronize(t->math) < 0) {
        sy_log_warn("cuda", "event=not_counted rows=%lld why=\"%s\"", (long long)rows,
                    x ? sy_error_text() : "no memory");
        free(x);
        return 0; /* what made it fail ends the job at its next step */
    }
    int64_t right =
        sy_train_count_right(t->options.loss, x, t->batch + t->host_labels, all, t->n_outputs);
    free(x);
    return right;
}

const struct sy_trainer_ops sy_cuda_trainer = {
    .name = "cuda",
    .prepare = prepare,
    .fuses = fuses,
    .create = create,
    .destroy = destroy,
    .persistent_bytes = persistent_bytes,
    .ephemeral_bytes = ephemeral_bytes,
    .bind = bind,
    .init_state = init_state,
    .n_gradient_steps = n_gradient_steps,
    .n_update_steps = sy_cutr_n_updates,
    .batch_input = batch_input,
    .batch_labels = batch_labels,
    .n_batch_places = n_batch_places,
    .use_batch_place = use_batch_place,
    .begin_batch = begin_batch,
    .run_gradient_step = run_gradient_step,
    .run_update_step = run_update_step,
    .loss = loss,
    .n_forward_steps = n_forward_steps,
    .run_forward_step = run_forward_step,
    .count_correct = count_correct,
    .n_state_tensors = n_state_tensors,
    .state_tensor = state_tensor,
    .get_state = get_state,
    .set_state = set_state,
    .write_header = write_header,
    .read_header = read_header,
    .settle = synchronize,
    .read_copy = read_copy,
    .n_shared_parts = sy_cutr_n_shared_parts,
    .shared_part = sy_cutr_shared_part,
    .shared_by_step = sy_cutr_shared_by_step,
    .exchange = &sy_cuda_exchange,
};
