/* sy_host_trainer: the table of workers/engine/trainer.h over the plan that train_build.c makes. */
#include <stdlib.h>
#include <string.h>

#include "loader/graph/engine.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/host/program/program_internal.h"
#include "workers/host/train/train_internal.h"

/* ---- life --------------------------------------------------------------------------------------- */

static void destroy(struct sy_trainer *t)
{
    if (!t)
        return;
    for (int s = 0; s < t->n_steps; s++)
        if (t->steps[s].primitive && !t->steps[s].is_copy)
            dnnl_primitive_destroy(t->steps[s].primitive);
    for (int s = 0; s < t->n_steps; s++)
        free(t->steps[s].is_copy ? NULL : t->steps[s].data);
    for (int v = 0; v < t->n_values; v++)
        if (t->values[v].memory)
            dnnl_memory_destroy(t->values[v].memory);
    for (int n = 0; t->nodes && n < t->graph->n_nodes; n++)
        if (t->nodes[n].forward)
            dnnl_primitive_desc_destroy(t->nodes[n].forward);
    for (int s = 0; s < t->n_states; s++)
        free(t->states[s].name);
    if (t->attr)
        dnnl_primitive_attr_destroy(t->attr);
    if (t->stream)
        dnnl_stream_destroy(t->stream);
    if (t->engine)
        dnnl_engine_destroy(t->engine);
    void *arrays[] = {t->tensors, t->nodes,  t->values,      t->buffers,        t->steps, t->params,
                      t->updates, t->states, t->train_steps, t->evaluate_steps, t->shared};
    for (size_t i = 0; i < SY_ARRAY_LEN(arrays); i++)
        free(arrays[i]);
    free(t);
}

/* SY_TRAIN_LAYOUT: to measure what the choice is worth. */
static int choose_layout(struct sy_trainer *t)
{
    const char *text = getenv("SY_TRAIN_LAYOUT");
    t->is_channels_last = text && !strcmp(text, "channels_last");
    if (text && !t->is_channels_last && strcmp(text, "auto") != 0)
        return sy_error_set(SY_EARG, "SY_TRAIN_LAYOUT is '%s'; known: auto, channels_last", text);
    return SY_OK;
}

static int open_library(struct sy_trainer *t)
{
    SY_TRY(choose_layout(t));
    SY_TRY(sy_tr_check(dnnl_engine_create(&t->engine, dnnl_cpu, 0), "engine", "trainer"));
    SY_TRY(sy_tr_check(dnnl_stream_create(&t->stream, t->engine, dnnl_stream_default_flags),
                       "stream", "trainer"));
    SY_TRY(sy_tr_check(dnnl_primitive_attr_create(&t->attr), "attributes", "trainer"));
    return sy_tr_check(dnnl_primitive_attr_set_scratchpad_mode(t->attr, dnnl_scratchpad_mode_user),
                       "attributes", "trainer");
}

static int make_tables(struct sy_trainer *t)
{
    const struct sy_graph *g = t->graph;
    t->tensors = calloc((size_t)g->n_tensors + 1, sizeof *t->tensors);
    t->nodes = calloc((size_t)g->n_nodes + 1, sizeof *t->nodes);
    SY_TRY_ALLOC(t->tensors && t->nodes,
                 "model '%s': no room for the tables of %d tensors and %d nodes", g->name,
                 g->n_tensors, g->n_nodes);
    for (int i = 0; i < g->n_tensors; i++)
        t->tensors[i].value = t->tensors[i].gradient = t->tensors[i].param = -1;
    for (int n = 0; n < g->n_nodes; n++) {
        struct sy_tr_node *node = &t->nodes[n];
        node->source = node->workspace = node->mean = node->variance = node->weights = node->bias =
            -1;
    }
    return SY_OK;
}

/* As in inference (sy_dnnl_check_sizes). */
static int check_sizes(const struct sy_trainer *t)
{
    const struct sy_graph *g = t->graph;
    for (int i = 0; i < g->n_tensors; i++)
        if (sy_shape_elements(&g->tensors[i].shape, t->options.batch) >= (int64_t)1 << 32)
            return sy_error_set(SY_EUNSUPPORTED,
                                "model '%s': tensor '%s' has 2^32 elements or more with batches of "
                                "%lld, too many for oneDNN",
                                g->name, g->tensors[i].name, (long long)t->options.batch);
    return SY_OK;
}

static int prepare(struct sy_graph *graph)
{
    SY_TRY(sy_graph_infer_training(graph));
    return sy_graph_optimize_training(graph);
}

/* Steps are computed in bf16 or not at all: in float32 they would be another training, and no faster. */
static int check_bf16(void)
{
    return sy_dnnl_has_bf16()
               ? SY_OK
               : sy_error_set(SY_EUNSUPPORTED, "this CPU has no instructions for bf16 (AVX512_BF16 "
                                               "or AMX), which a job in bf16 needs");
}

static int create(const struct sy_graph *graph, const struct sy_train_options *options,
                  struct sy_trainer **out)
{
    int status;
    if (options->batch < 1)
        return sy_error_set(SY_EARG, "batch %lld: must be at least 1", (long long)options->batch);
    if (options->precision == SY_TRAIN_BF16)
        SY_TRY(check_bf16());
    struct sy_trainer *t = calloc(1, sizeof *t);
    SY_TRY_ALLOC(t, "model '%s': no room for a trainer", graph->name);
    t->graph = graph;
    t->options = *options;
    SY_TRY_GOTO(check_sizes(t), fail);
    SY_TRY_GOTO(make_tables(t), fail);
    SY_TRY_GOTO(open_library(t), fail);
    SY_TRY_GOTO(sy_tr_build(t), fail);
    SY_TRY_GOTO(sy_tr_plan_shared(t), fail);
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
    for (int v = 0; v < t->n_values; v++) {
        struct sy_tr_value *value = &t->values[v];
        const struct sy_tr_buffer *buffer = &t->buffers[value->buffer];
        char *base = buffer->persistent ? persistent : ephemeral;
        value->data = buffer->fixed ? (float *)(uintptr_t)buffer->fixed
                                    : (float *)(void *)(base + buffer->offset);
        dnnl_memory_set_data_handle(value->memory, value->data);
    }
}

/* ---- state -------------------------------------------------------------------------------------- */

static int n_state_tensors(const struct sy_trainer *t)
{
    return t->n_states;
}

static int state_value(const struct sy_trainer *t, int index)
{
    const struct sy_state_slot *state = &t->states[index];
    const struct sy_tr_param *param = &t->params[state->param];
    return state->slot < 0 ? param->value : param->slots[state->slot];
}

static void state_tensor(const struct sy_trainer *t, int index, struct sy_state_tensor *out)
{
    const struct sy_tensor *tensor = &t->graph->tensors[t->params[t->states[index].param].tensor];
    out->name = t->states[index].name;
    out->shape = tensor->shape;
    out->bytes = tensor->data_bytes;
}

/* Between the trainer's layout and row-major memory of the caller. */
static int convert(struct sy_trainer *t, int index, void *plain, bool to_plain)
{
    struct sy_tr_value *value = &t->values[state_value(t, index)];
    const dnnl_memory_desc_t *md = &t->params[t->states[index].param].plain;
    const char *name = t->states[index].name;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_memory_t memory = NULL;
    int status;
    SY_TRY_GOTO(sy_tr_check(dnnl_memory_create(&memory, md, t->engine, plain), "memory", name),
                done);
    SY_TRY_GOTO(
        sy_tr_check(dnnl_reorder_primitive_desc_create(&pd, to_plain ? &value->md : md, t->engine,
                                                       to_plain ? md : &value->md, t->engine, NULL),
                    "reorder", name),
        done);
    SY_TRY_GOTO(sy_tr_check(dnnl_primitive_create(&primitive, pd), "reorder", name), done);
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, to_plain ? value->memory : memory},
                              {DNNL_ARG_TO, to_plain ? memory : value->memory}};
    SY_TRY_GOTO(sy_tr_check(dnnl_primitive_execute(primitive, t->stream, 2, args), "reorder", name),
                done);
    SY_TRY_GOTO(sy_tr_check(dnnl_stream_wait(t->stream), "reorder", name), done);
done:
    if (primitive)
        dnnl_primitive_destroy(primitive);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (memory)
        dnnl_memory_destroy(memory);
    return status;
}

static int get_state(struct sy_trainer *t, int index, void *to)
{
    return convert(t, index, to, true);
}

static int set_state(struct sy_trainer *t, int index, const void *from)
{
    return convert(t, index, (void *)(uintptr_t)from,
                   false); /* oneDNN's memory objects know no const */
}

static int init_state(struct sy_trainer *t)
{
    for (int b = 0; b < t->n_values; b++)
        if (t->buffers[t->values[b].buffer].persistent)
            memset(t->values[b].data, 0, dnnl_memory_desc_get_size(&t->values[b].md));
    for (int s = 0; s < t->n_states; s++)
        if (t->states[s].slot < 0)
            SY_TRY(set_state(t, s, t->graph->tensors[t->params[t->states[s].param].tensor].data));
    return SY_OK;
}

/* ---- steps -------------------------------------------------------------------------------------- */

static int run_primitive(struct sy_trainer *t, const struct sy_tr_step *step)
{
    dnnl_status_t status =
        dnnl_primitive_execute(step->primitive, t->stream, step->n_args, step->exec);
    if (status == dnnl_success)
        status = dnnl_stream_wait(t->stream);
    return status == dnnl_success ? SY_OK : sy_tr_check(status, "execution", step->name);
}

static int run_turn(struct sy_trainer *t, const struct sy_tr_turn *turn)
{
    const struct sy_tr_step *step = &t->steps[turn->step];
    t->piece = turn->piece;
    if (step->kind == SY_TR_PRIMITIVE)
        return run_primitive(t, step);
    if (step->kind == SY_TR_CALL)
        return step->fn(t, step);
    if (step->kind == SY_TR_LOSS)
        return sy_tr_kernel_loss(t, step);
    const dnnl_memory_desc_t *md = &t->values[step->value[1]].md;
    void *to = sy_tr_at(t, step, 0), *a = sy_tr_at(t, step, 1), *b = sy_tr_at(t, step, 2);
    size_t bytes = dnnl_memory_desc_get_size(md);
    if (md->data_type == dnnl_bf16)
        sy_tr_kernel_sum_bf16(to, a, b, bytes / sizeof(uint16_t));
    else
        sy_tr_kernel_sum(to, a, b, bytes / sizeof(float));
    return SY_OK;
}

static int n_gradient_steps(const struct sy_trainer *t)
{
    return t->n_train;
}

static int n_update_steps(const struct sy_trainer *t)
{
    return t->n_updates;
}

static int n_forward_steps(const struct sy_trainer *t)
{
    return t->n_evaluate;
}

static void *batch_input(struct sy_trainer *t, int input)
{
    return t->values[t->tensors[t->graph->inputs[input]].value].data;
}

static void begin_batch(struct sy_trainer *t, uint64_t number)
{
    t->draw = number;
}

static void *batch_labels(struct sy_trainer *t)
{
    return t->values[t->labels].data;
}

static int run_gradient_step(struct sy_trainer *t, int step)
{
    sy_assert_internal(step >= 0 && step < t->n_train);
    t->is_training = true;
    return run_turn(t, &t->train_steps[step]);
}

static const char *gradient_step_name(const struct sy_trainer *t, int step, bool *is_backward)
{
    *is_backward = false;
    for (int i = 0; i < step; i++)
        *is_backward |= t->steps[t->train_steps[i].step].kind == SY_TR_LOSS;
    return t->steps[t->train_steps[step].step].name;
}

static const char *update_step_name(const struct sy_trainer *t, int step)
{
    int tensor = t->params[t->updates[step].param].tensor;
    const struct sy_tr_tensor *of = &t->tensors[tensor];
    return of->n_consumers && of->consumer >= 0 ? t->graph->nodes[of->consumer].name
                                                : t->graph->tensors[tensor].name;
}

static int run_update_step(struct sy_trainer *t, int step, uint64_t iteration)
{
    sy_assert_internal(step >= 0 && step < t->n_updates && iteration > 0);
    sy_tr_kernel_update(t, &t->updates[step], iteration);
    return SY_OK;
}

static int run_forward_step(struct sy_trainer *t, int step)
{
    sy_assert_internal(step >= 0 && step < t->n_evaluate);
    t->is_training = false;
    return run_turn(t, &t->evaluate_steps[step]);
}

static double loss(const struct sy_trainer *t)
{
    return t->loss;
}

const struct sy_trainer_ops sy_host_trainer = {
    .name = "host",
    .prepare = prepare,
    .create = create,
    .destroy = destroy,
    .persistent_bytes = persistent_bytes,
    .ephemeral_bytes = ephemeral_bytes,
    .bind = bind,
    .init_state = init_state,
    .n_gradient_steps = n_gradient_steps,
    .n_update_steps = n_update_steps,
    .batch_input = batch_input,
    .begin_batch = begin_batch,
    .batch_labels = batch_labels,
    .run_gradient_step = run_gradient_step,
    .gradient_step_name = gradient_step_name,
    .update_step_name = update_step_name,
    .run_update_step = run_update_step,
    .loss = loss,
    .n_forward_steps = n_forward_steps,
    .run_forward_step = run_forward_step,
    .count_correct = sy_tr_kernel_correct,
    .n_state_tensors = n_state_tensors,
    .state_tensor = state_tensor,
    .get_state = get_state,
    .set_state = set_state,
    .n_shared_parts = sy_tr_n_shared_parts,
    .shared_part = sy_tr_shared_part,
    .shared_by_step = sy_tr_shared_by_step,
};
