#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/fault.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/engine/train_rules.h"
#include "workers/train/train_exchange.h"
#include "workers/train/train_model.h"
#include "workers/train/train_run_internal.h"

/* ---- create -------------------------------------------------------------------------------------- */

/* Gradient phases in one iteration. */
static uint64_t phases_of(const struct sy_train_run *r)
{
    return SY_MAX(r->job.options.accumulate, 1);
}

static int read_model(struct sy_train_run *r)
{
    SY_TRY(sy_train_model_open(&r->job, r->ops, &r->graph, &r->trainer));
    return sy_data_want_of(r->graph, &r->job.options, &r->want);
}

/* Batches are made where the engine copies them from, if it has such places. */
static int make_prefetch(struct sy_train_run *r)
{
    const struct sy_trainer_ops *ops = r->ops;
    struct sy_batch_place places[SY_PREFETCH_PLACES] = {0};
    r->holds_batches = ops->n_batch_places && ops->n_batch_places(r->trainer) >= SY_PREFETCH_PLACES;
    for (int p = 0; r->holds_batches && p < SY_PREFETCH_PLACES; p++) {
        ops->use_batch_place(r->trainer, p);
        for (int i = 0; i < r->want.n_inputs; i++)
            places[p].inputs[i] = ops->batch_input(r->trainer, i);
        places[p].labels = ops->batch_labels(r->trainer);
    }
    return sy_prefetch_create(&r->data, &r->want, r->job.options.batch,
                              r->holds_batches ? places : NULL, &r->prefetch);
}

static int read_data(struct sy_train_run *r)
{
    const struct sy_job *job = &r->job;
    SY_TRY(sy_train_data_open(&job->data, &r->want, &r->data));
    SY_TRY(make_prefetch(r));
    uint64_t batch = (uint64_t)job->options.batch * sy_run_n_ranks(r) * phases_of(r);
    if (batch > r->data.n)
        sy_log_warn("train",
                    "job=%s batch=%" PRIu64 " samples=%" PRIu64
                    " what=\"each sample is in a batch more than once\"",
                    job->name, batch, r->data.n);
    r->total_steps = (job->epochs * r->data.n + batch - 1) / batch;
    if (job->max_steps)
        r->total_steps = SY_MIN(r->total_steps, job->max_steps);
    return SY_OK;
}

static int describe_state(struct sy_train_run *r)
{
    int n = r->ops->n_state_tensors(r->trainer);
    uint64_t offset = 0;
    r->tensors = calloc((size_t)n + 1, sizeof *r->tensors);
    SY_TRY_ALLOC(r->tensors, "job '%s': no room for a table of %d tensors", r->job.name, n);
    for (int i = 0; i < n; i++) {
        struct sy_state_tensor tensor;
        r->ops->state_tensor(r->trainer, i, &tensor);
        struct sy_safetensor *to = &r->tensors[i];
        *to = (struct sy_safetensor){.name = tensor.name,
                                     .dtype = SY_DTYPE_F32,
                                     .rank = tensor.shape.rank,
                                     .bytes = tensor.bytes,
                                     .offset_bytes = offset};
        for (int d = 0; d < tensor.shape.rank; d++)
            to->shape[d] = tensor.shape.dims[d].fixed;
        offset += tensor.bytes;
    }
    r->layout = (struct sy_snapshot_layout){.folder = r->job.snapshot_folder,
                                            .job_name = r->job.name,
                                            .job_hash = r->job.hash,
                                            .tensors = r->tensors,
                                            .n_tensors = n,
                                            .data_bytes = offset};
    return SY_OK;
}

int sy_train_run_create(const char *job_text, const struct sy_trainer_ops *ops,
                        const struct sy_train_callbacks *callbacks, struct sy_train_run **out)
{
    int status;
    struct sy_train_run *r = calloc(1, sizeof *r);
    SY_TRY_ALLOC(r, "no room for a training run");
    r->ops = ops;
    if (callbacks)
        r->callbacks = *callbacks;
    r->accuracy = -1.0;
    r->loss = NAN;
    SY_TRY_GOTO(sy_job_parse(job_text, &r->job), fail);
    SY_TRY_GOTO(sy_run_take_part(r), fail);
    SY_TRY_GOTO(read_model(r), fail_named);
    SY_TRY_GOTO(read_data(r), fail_named);
    SY_TRY_GOTO(describe_state(r), fail_named);
    *out = r;
    return SY_OK;
fail_named:
    status = sy_error_prefix(status, "job '%s'", r->job.name);
fail:
    sy_train_run_destroy(r);
    return status;
}

void sy_train_run_destroy(struct sy_train_run *r)
{
    if (!r)
        return;
    sy_prefetch_destroy(r->prefetch); /* its thread reads what goes next */
    sy_snapshot_writer_destroy(r->writer);
    sy_exchange_destroy(r->exchange);
    if (r->trainer)
        r->ops->destroy(r->trainer);
    sy_graph_free(r->graph);
    sy_train_data_close(&r->data);
    free(r->tensors);
    sy_job_finish(&r->job);
    free(r);
}

void sy_train_run_needs(const struct sy_train_run *r, struct sy_train_needs *out)
{
    out->persistent_bytes =
        SY_TRAIN_HEADER_BYTES + SY_ALIGN_UP(r->ops->persistent_bytes(r->trainer), 4096u);
    out->ephemeral_bytes = SY_ALIGN_UP(r->ops->ephemeral_bytes(r->trainer), 4096u);
    out->exchange_bytes = sy_exchange_bytes((int)r->job.staleness, r->ops, r->trainer);
    out->total_steps = r->total_steps;
    out->ranks = r->job.ranks;
    out->opportunistic = r->job.opportunistic;
}

/* ---- stages -------------------------------------------------------------------------------------- */

static void go_to(struct sy_train_run *r, enum sy_run_stage stage)
{
    r->stage = stage;
    r->at = 0;
}

/* As sy_prefetch_hold. The batch before is of no more use: the loss behind it, or its last forward step, was waited for. */
static int use_batch(struct sy_train_run *r, bool is_test, uint64_t part)
{
    int place;
    sy_prefetch_release(r->prefetch);
    int got = sy_prefetch_hold(r->prefetch, is_test, part, SY_RUN_BATCH_WAIT_US, &place);
    if (got == 1)
        r->ops->use_batch_place(r->trainer, place);
    return got;
}

static int copy_batch(struct sy_train_run *r, bool is_test, uint64_t part)
{
    void *inputs[SY_DATA_MAX_INPUTS];
    for (int i = 0; i < r->want.n_inputs; i++)
        inputs[i] = r->ops->batch_input(r->trainer, i);
    return sy_prefetch_take(r->prefetch, is_test, part, SY_RUN_BATCH_WAIT_US, inputs,
                            r->ops->batch_labels(r->trainer));
}

/* A batch that is not made yet is asked for again by the next advance. */
static int load_batch(struct sy_train_run *r, bool is_test, uint64_t index, enum sy_run_stage next)
{
    uint64_t part = is_test ? index : sy_run_part_of_batch(r, index);
    int got = r->holds_batches ? use_batch(r, is_test, part) : copy_batch(r, is_test, part);
    if (got == 1) {
        if (r->ops->begin_batch)
            r->ops->begin_batch(r->trainer, index);
        go_to(r, next);
    }
    return got < 0 ? sy_error_prefix(got, "job '%s', step %" PRIu64, r->job.name, r->step + 1)
                   : SY_OK;
}

/* False when no snapshot is in flight any more. */
static bool is_writing(struct sy_train_run *r)
{
    if (!r->writer || sy_snapshot_writer_room(r->writer))
        return false;
    sy_run_collect(r, SY_RUN_WAIT_MS);
    return true;
}

/* The job ends; its state in memory and on disk is that of the step before, which may be on its way to disk. */
static int give_up(struct sy_train_run *r, int status)
{
    r->why_status = status;
    snprintf(r->why, sizeof r->why, "%s", sy_error_text());
    go_to(r, STAGE_GIVE_UP);
    return SY_OK;
}

/* A loss that was small until then speaks of a fault, one that grew from step to step of the learning rate. */
static int end_given_up(const struct sy_train_run *r)
{
    char before[80] = "";
    if (r->step > 0)
        snprintf(before, sizeof before, " (step %" PRIu64 " had loss %g)", r->step, r->loss);
    return sy_error_set(r->why_status,
                        "job '%s': %s, in step %" PRIu64 "%s; last good snapshot: %s (step %" PRIu64
                        ")",
                        r->job.name, r->why, r->step + 1, before,
                        r->has_good ? r->good_path : "none", r->good_step);
}

static int end_gradient(struct sy_train_run *r)
{
    bool is_last = r->n_phases + 1 == phases_of(r);
    r->loss_sum = (r->n_phases ? r->loss_sum : 0.0) + r->ops->loss(r->trainer);
    if (is_last)
        SY_TRY(sy_run_agree(r, &r->loss_sum));
    if (!isfinite(r->loss_sum) && (is_last || !r->callbacks.ranks)) /* ranks give up together */
        return give_up(
            r, sy_train_fail_not_finite("the loss", r->loss_sum, r->job.options.learning_rate));
    if (!is_last) {
        r->n_phases++;
        go_to(r, STAGE_LOAD);
        return SY_OK;
    }
    r->n_phases = 0;
    r->loss = r->loss_sum / (double)phases_of(r);
    SY_TRY(sy_run_enter_phase(r, SY_PHASE_UPDATE));
    go_to(r, STAGE_UPDATE);
    return SY_OK;
}

static int run_gradient(struct sy_train_run *r)
{
    SY_TRY(sy_fault("gradient_step"));
    int status = sy_run_gradient_step(r, r->n_phases + 1 == phases_of(r));
    if (status == SY_EARG)
        return give_up(r, status);
    SY_TRY(status);
    return ++r->at < r->ops->n_gradient_steps(r->trainer) ? SY_OK : end_gradient(r);
}

static int run_update(struct sy_train_run *r)
{
    SY_TRY(sy_fault("update_step"));
    SY_TRY(r->ops->run_update_step(r->trainer, r->at, r->step + 1));
    if (++r->at < r->ops->n_update_steps(r->trainer))
        return SY_OK;
    r->step++;
    SY_TRY(sy_run_publish_step(r));
    SY_TRY(sy_run_enter_phase(r, SY_PHASE_GRADIENT));
    go_to(r, STAGE_ITERATION_END);
    return SY_OK;
}

static int end_iteration(struct sy_train_run *r)
{
    bool is_taken;
    uint64_t every = r->job.evaluate_every_steps;
    sy_run_collect(r, 0);
    go_to(r, sy_run_next_iteration(r));
    if (r->stage != STAGE_LOAD)
        return SY_OK;
    if (sy_run_snapshot_is_due(r))
        SY_TRY(sy_run_take_snapshot(r, &is_taken));
    r->is_between = every && r->step % every == 0 && r->data.n_test;
    if (r->is_between)
        go_to(r, STAGE_EVALUATE_LOAD);
    return SY_OK;
}

static enum sy_run_stage after_last_snapshot(const struct sy_train_run *r)
{
    return r->wants_evaluation && r->data.n_test ? STAGE_EVALUATE_LOAD : STAGE_DRAIN;
}

static int last_snapshot(struct sy_train_run *r)
{
    bool is_taken = true;
    bool is_there = r->has_good && r->good_step == r->step && r->last_snapshot_step == r->step;
    if (r->writer && !is_there) {
        sy_run_collect(r, SY_RUN_WAIT_MS);
        SY_TRY(sy_run_take_snapshot(r, &is_taken));
    }
    if (is_taken)
        go_to(r, after_last_snapshot(r));
    return SY_OK;
}

static void publish_accuracy(struct sy_train_run *r)
{
    atomic_store_explicit(&r->page->train_accuracy_bits, sy_run_bits_of(r->accuracy),
                          memory_order_relaxed);
    atomic_store_explicit(&r->page->train_accuracy_step, r->step, memory_order_release);
}

static int run_evaluation(struct sy_train_run *r)
{
    SY_TRY(r->ops->run_forward_step(r->trainer, r->at));
    if (++r->at < r->ops->n_forward_steps(r->trainer))
        return SY_OK;
    uint64_t n = r->data.n_test, rows = SY_MIN((uint64_t)r->job.options.batch, n - r->test_row);
    r->n_correct += (uint64_t)r->ops->count_correct(r->trainer, (int64_t)rows);
    r->test_row += rows;
    if (r->test_row < n) {
        go_to(r, STAGE_EVALUATE_LOAD);
        return SY_OK;
    }
    uint64_t labels = r->want.are_classes ? r->want.n_labels : 1;
    r->accuracy = (double)r->n_correct / (double)(n * labels);
    publish_accuracy(r);
    r->test_row = r->n_correct = 0;
    go_to(r, r->is_between ? sy_run_next_iteration(r) : STAGE_DRAIN);
    r->is_between = false;
    return SY_OK;
}

static int drain(struct sy_train_run *r)
{
    if (is_writing(r))
        return SY_OK;
    if (r->writer && !(r->has_good && r->good_step == r->step))
        return sy_error_set(SY_EIO,
                            "job '%s': its state after step %" PRIu64
                            " is lost: %s; last good snapshot: %s (step %" PRIu64 ")",
                            r->job.name, r->step, r->failure, r->has_good ? r->good_path : "none",
                            r->good_step);
    go_to(r, STAGE_FINISHED);
    return SY_OK;
}

static int run_stage(struct sy_train_run *r)
{
    switch (r->stage) {
    case STAGE_LOAD:
        return load_batch(r, false, r->step * phases_of(r) + r->n_phases, STAGE_GRADIENT);
    case STAGE_GRADIENT:
        return run_gradient(r);
    case STAGE_UPDATE:
        return run_update(r);
    case STAGE_ITERATION_END:
        return end_iteration(r);
    case STAGE_LAST_SNAPSHOT:
        return last_snapshot(r);
    case STAGE_EVALUATE_LOAD:
        return load_batch(r, true, r->test_row / (uint64_t)r->job.options.batch, STAGE_EVALUATE);
    case STAGE_EVALUATE:
        return run_evaluation(r);
    case STAGE_DRAIN:
        return drain(r);
    case STAGE_GIVE_UP:
        return is_writing(r) ? SY_OK : end_given_up(r);
    case STAGE_FINISHED:
        break;
    }
    return SY_OK;
}

int sy_train_run_advance(struct sy_train_run *r, enum sy_train_state *state)
{
    sy_ns before = sy_clock_now();
    int status = run_stage(r);
    uint64_t busy = atomic_load_explicit(&r->page->train_busy_ns, memory_order_relaxed);
    atomic_store_explicit(&r->page->train_busy_ns, busy + (sy_clock_now() - before),
                          memory_order_relaxed);
    *state = r->stage == STAGE_FINISHED ? SY_TRAIN_FINISHED : SY_TRAIN_RUNNING;
    return status;
}

enum sy_train_part sy_train_run_next(const struct sy_train_run *r, const char **name)
{
    bool is_backward;
    *name = NULL;
    switch (r->stage) {
    case STAGE_LOAD:
        return SY_TRAIN_DATA;
    case STAGE_GRADIENT:
        if (!r->ops->gradient_step_name)
            return SY_TRAIN_FORWARD;
        *name = r->ops->gradient_step_name(r->trainer, r->at, &is_backward);
        return is_backward ? SY_TRAIN_BACKWARD : SY_TRAIN_FORWARD;
    case STAGE_UPDATE:
        if (r->ops->update_step_name)
            *name = r->ops->update_step_name(r->trainer, r->at);
        return SY_TRAIN_UPDATE;
    default:
        return SY_TRAIN_OTHER;
    }
}

const char *sy_train_run_next_words(const struct sy_train_run *r)
{
    static const char *const words[] = {
        [STAGE_LOAD] = "data",
        [STAGE_ITERATION_END] = "end of iteration",
        [STAGE_LAST_SNAPSHOT] = "last snapshot",
        [STAGE_EVALUATE_LOAD] = "test data",
        [STAGE_EVALUATE] = "evaluation",
        [STAGE_DRAIN] = "snapshot being written",
        [STAGE_GIVE_UP] = "snapshot being written",
        [STAGE_FINISHED] = "end",
    };
    const char *name;
    switch (sy_train_run_next(r, &name)) {
    case SY_TRAIN_FORWARD:
        return "forward";
    case SY_TRAIN_BACKWARD:
        return "backward";
    case SY_TRAIN_UPDATE:
        return "update";
    default:
        return words[r->stage];
    }
}

void sy_train_run_set_ephemeral(struct sy_train_run *r, void *ephemeral)
{
    assert(sy_train_run_is_between_iterations(r) || r->stage == STAGE_LAST_SNAPSHOT);
    if (ephemeral != r->ephemeral)
        r->ops->bind(r->trainer, r->persistent + SY_TRAIN_HEADER_BYTES, ephemeral);
    r->ephemeral = ephemeral;
}

void sy_train_run_set_persistent(struct sy_train_run *r, void *persistent)
{
    assert(sy_train_run_is_between_iterations(r));
    if (r->header != &r->own)
        r->header = persistent;
    r->persistent = persistent;
    r->ops->bind(r->trainer, r->persistent + SY_TRAIN_HEADER_BYTES, r->ephemeral);
}

void sy_train_run_read_copy(struct sy_train_run *r, void *copy)
{
    assert(sy_train_run_is_between_iterations(r));
    if (r->ops->read_copy)
        r->ops->read_copy(r->trainer, (char *)copy + SY_TRAIN_HEADER_BYTES);
    else
        sy_train_run_set_persistent(r, copy);
}

bool sy_train_run_is_between_iterations(const struct sy_train_run *r)
{
    return r->stage == STAGE_LOAD && r->n_phases == 0;
}

void sy_train_run_stop(struct sy_train_run *r, int evaluate)
{
    bool is_training = r->stage <= STAGE_ITERATION_END;
    r->is_stopping = true;
    if (r->callbacks.ranks) /* with the others: sy_run_agree */
        return;
    r->wants_evaluation = evaluate != 0;
    if (r->stage == STAGE_LOAD || r->is_between) {
        r->is_between = false;
        r->test_row = r->n_correct = 0;
        go_to(r, STAGE_LAST_SNAPSHOT);
    } else if (!is_training && !evaluate &&
               (r->stage == STAGE_EVALUATE || r->stage == STAGE_EVALUATE_LOAD))
        go_to(r, STAGE_DRAIN);
}

int sy_train_run_synchronize(struct sy_train_run *r)
{
    return r->ops->settle ? r->ops->settle(r->trainer) : SY_OK;
}

uint64_t sy_train_run_step(const struct sy_train_run *r)
{
    return r->step;
}

double sy_train_run_loss(const struct sy_train_run *r)
{
    return r->loss;
}

double sy_train_run_accuracy(const struct sy_train_run *r)
{
    return r->accuracy;
}
