#include "workers/train_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/fault.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/job.h"
#include "workers/prefetch.h"
#include "workers/snapshot.h"
#include "workers/train_data.h"
#include "workers/train_model.h"

#define MAGIC   0x314e525459575300ull /* "SWYTRN1" */
#define VERSION 1u
/* How long one advance may stand in a wait for the snapshot thread: the caller looks at the epoch in between. */
#define WAIT_MS 1

/* T3: first page of the persistent part. Written by the worker that trains; read after its death by the next. */
struct header {
    _Atomic uint64_t magic; /* release, after the rest was written first */
    uint32_t version;
    _Atomic uint32_t phase; /* enum sy_train_phase: release on entry */
    uint64_t job_hash;
    uint64_t state_bytes; /* of the trainer's persistent part */
    _Atomic uint64_t step;
    _Atomic uint64_t loss_bits;
};

_Static_assert(sizeof(struct header) <= 64, "one write of a device's");

/* What the next advance does. */
enum stage {
    STAGE_LOAD,          /* put batch `step` in place */
    STAGE_GRADIENT,      /* run gradient step `at` */
    STAGE_UPDATE,        /* run update step `at` */
    STAGE_ITERATION_END, /* step + 1; take a snapshot if it is time */
    STAGE_LAST_SNAPSHOT, /* take the final one, when the thread is free */
    STAGE_EVALUATE_LOAD, /* put test batch `test_row` in place */
    STAGE_EVALUATE,      /* run forward step `at` */
    STAGE_DRAIN,         /* the final snapshot is being written */
    STAGE_FINISHED
};

struct sy_train_run {
    struct sy_job job;
    const struct sy_trainer_ops *ops;
    struct sy_train_callbacks callbacks;
    struct sy_graph *graph;
    struct sy_trainer *trainer;
    struct sy_data_want want;
    struct sy_train_data data;
    struct sy_prefetch *prefetch;
    uint64_t total_steps;
    struct sy_safetensor *tensors;
    struct sy_snapshot_layout layout;
    struct sy_snapshot_writer *writer; /* NULL: no snapshots */
    struct header *header;             /* since start */
    char *persistent;
    void *ephemeral;
    struct header own; /* where memory is a device's: what is written there, or was read */
    struct sy_control_page *page;
    enum stage stage;
    int at;
    uint64_t
        n_phases;    /* of this iteration that are done; a new worker begins the iteration again */
    double loss_sum; /* of those */
    bool is_stopping, wants_evaluation;
    bool is_between; /* this evaluation is one between two iterations */
    uint64_t step;
    double loss, accuracy;
    uint64_t test_row, n_correct;
    uint64_t last_snapshot_step, good_step; /* handed to the thread; known to be durable */
    sy_ns last_snapshot_ns;
    bool has_good;
    char failure[256]; /* why the last snapshot could not be written */
    char good_path[SY_SNAPSHOT_PATH_BYTES];
};

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

static int read_data(struct sy_train_run *r)
{
    const struct sy_job *job = &r->job;
    SY_TRY(sy_train_data_open(&job->data, &r->want, &r->data));
    SY_TRY(sy_prefetch_create(&r->data, &r->want, job->options.batch, &r->prefetch));
    uint64_t batch = (uint64_t)job->options.batch * phases_of(r);
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
    if (!r->tensors)
        return sy_error_set(SY_ENOMEM_HOST, "job '%s': no room for a table of %d tensors",
                            r->job.name, n);
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
    if (!r)
        return sy_error_set(SY_ENOMEM_HOST, "no room for a training run");
    r->ops = ops;
    if (callbacks)
        r->callbacks = *callbacks;
    r->accuracy = -1.0;
    r->loss = NAN;
    SY_TRY_GOTO(sy_job_parse(job_text, &r->job), fail);
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
    out->total_steps = r->total_steps;
}

/* ---- the header (T3) ----------------------------------------------------------------------------- */

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* To memory that only the device sees; behind the work that the header speaks of. */
static int flush_header(struct sy_train_run *r)
{
    return r->ops->write_header ? r->ops->write_header(r->trainer, r->header, sizeof *r->header)
                                : SY_OK;
}

/* An exchange, not a store: acquire keeps what follows behind the word, where a release store orders only what came before. */
static int enter_phase(struct sy_train_run *r, enum sy_train_phase phase)
{
    atomic_store_explicit(&r->page->train_phase, (uint32_t)phase, memory_order_release);
    atomic_exchange_explicit(&r->header->phase, (uint32_t)phase, memory_order_acq_rel);
    return flush_header(r);
}

static int publish_step(struct sy_train_run *r)
{
    atomic_store_explicit(&r->header->step, r->step, memory_order_release);
    atomic_store_explicit(&r->header->loss_bits, bits_of(r->loss), memory_order_relaxed);
    atomic_store_explicit(&r->page->train_step, r->step, memory_order_relaxed);
    atomic_store_explicit(&r->page->train_loss_bits, bits_of(r->loss), memory_order_relaxed);
    return flush_header(r);
}

/* Whoever dies before it is written again leaves no state. */
static int spoil_header(struct sy_train_run *r)
{
    atomic_exchange_explicit(&r->header->magic, 0, memory_order_acq_rel);
    return flush_header(r);
}

static int write_header(struct sy_train_run *r)
{
    SY_TRY(spoil_header(r));
    r->header->version = VERSION;
    r->header->job_hash = r->job.hash;
    r->header->state_bytes = r->ops->persistent_bytes(r->trainer);
    SY_TRY(publish_step(r));
    SY_TRY(enter_phase(r, SY_PHASE_GRADIENT));
    atomic_store_explicit(&r->header->magic, MAGIC, memory_order_release);
    return flush_header(r);
}

static int adopt_memory(struct sy_train_run *r)
{
    struct header *h = r->header;
    if (atomic_load_explicit(&h->magic, memory_order_acquire) != MAGIC || h->version != VERSION ||
        h->job_hash != r->job.hash || h->state_bytes != r->ops->persistent_bytes(r->trainer))
        return sy_error_set(
            SY_ECORRUPT,
            "job '%s': the memory holds no state of this job; start from the last snapshot",
            r->job.name);
    if (atomic_load_explicit(&h->phase, memory_order_acquire) != SY_PHASE_GRADIENT)
        return sy_error_set(SY_ECORRUPT,
                            "job '%s': the worker ended in the update after step %" PRIu64
                            "; start from the last snapshot",
                            r->job.name, atomic_load(&h->step));
    r->step = atomic_load(&h->step);
    r->loss = double_of(atomic_load(&h->loss_bits));
    SY_TRY(publish_step(r));
    return enter_phase(r, SY_PHASE_GRADIENT);
}

/* ---- start --------------------------------------------------------------------------------------- */

static int put_state(struct sy_train_run *r, const char *data)
{
    for (int i = 0; i < r->layout.n_tensors; i++)
        SY_TRY(r->ops->set_state(r->trainer, i, data + r->tensors[i].offset_bytes));
    return SY_OK;
}

/* The newest good snapshot's bytes, which the caller frees; *data NULL when there is none. */
static int find_snapshot(struct sy_train_run *r, struct sy_snapshot_info *info, char **data)
{
    *data = malloc(r->layout.data_bytes + 1);
    if (!*data)
        return sy_error_set(SY_ENOMEM_HOST, "job '%s': no room for a snapshot of %" PRIu64 " bytes",
                            r->job.name, r->layout.data_bytes);
    int status = sy_snapshot_read_newest(&r->layout, info, *data, r->good_path);
    if (status == SY_OK) {
        r->has_good = true;
        r->good_step = info->step;
        return SY_OK;
    }
    free(*data);
    *data = NULL;
    return status == SY_ENOTFOUND ? SY_OK : status;
}

static int read_snapshot(struct sy_train_run *r)
{
    struct sy_snapshot_info info;
    char *data;
    SY_TRY(find_snapshot(r, &info, &data));
    if (!data)
        return SY_OK; /* initial weights, step 0 */
    int status = put_state(r, data);
    free(data);
    SY_TRY(status);
    r->step = r->last_snapshot_step = info.step;
    r->loss = info.loss;
    sy_log_info("train", "event=resumed job=%s step=%" PRIu64 " from=%s", r->job.name, r->step,
                r->good_path);
    return SY_OK;
}

/* The state in memory goes on; what is on disk is only looked up, to be named should the job fail. */
static int look_up_snapshot(struct sy_train_run *r)
{
    struct sy_snapshot_info info;
    char *data;
    SY_TRY(find_snapshot(r, &info, &data));
    free(data);
    return SY_OK;
}

static int load_state(struct sy_train_run *r)
{
    SY_TRY(spoil_header(r));
    SY_TRY(r->ops->init_state(r->trainer));
    if (r->job.snapshot_folder)
        SY_TRY(read_snapshot(r));
    return write_header(r);
}

static enum stage next_iteration(const struct sy_train_run *r)
{
    return r->is_stopping || r->step >= r->total_steps ? STAGE_LAST_SNAPSHOT : STAGE_LOAD;
}

/* The device may be behind what its worker said before it died: then the last snapshot is the state, as after a death in an update. */
static int adopt_or_load(struct sy_train_run *r, int *in_memory)
{
    int status = adopt_memory(r);
    if (status != SY_ECORRUPT || !r->ops->read_header)
        return status;
    sy_log_info("train", "event=memory_refused job=%s why=\"%s\"", r->job.name, sy_error_text());
    *in_memory = 0;
    return SY_OK;
}

static int find_header(struct sy_train_run *r, void *persistent, int in_memory)
{
    r->header = r->ops->write_header ? &r->own : persistent;
    return in_memory && r->ops->read_header
               ? r->ops->read_header(r->trainer, r->header, sizeof *r->header)
               : SY_OK;
}

int sy_train_run_start(struct sy_train_run *r, void *persistent, void *ephemeral, int in_memory,
                       struct sy_control_page *page)
{
    r->page = page;
    r->persistent = persistent;
    r->ephemeral = ephemeral;
    r->ops->bind(r->trainer, r->persistent + SY_TRAIN_HEADER_BYTES, ephemeral);
    SY_TRY(find_header(r, persistent, in_memory));
    if (in_memory)
        SY_TRY(adopt_or_load(r, &in_memory));
    if (r->job.snapshot_folder)
        SY_TRY(sy_snapshot_writer_create(&r->layout, &r->writer)); /* first: N4 */
    if (!in_memory)
        SY_TRY(load_state(r));
    else if (r->job.snapshot_folder)
        SY_TRY(look_up_snapshot(r));
    r->last_snapshot_ns = sy_clock_now();
    r->wants_evaluation = true;
    atomic_store_explicit(&page->train_accuracy_step, 0, memory_order_release);
    r->stage = next_iteration(r);
    return SY_OK;
}

/* ---- snapshots (T4) ------------------------------------------------------------------------------ */

static void collect(struct sy_train_run *r, int wait_ms)
{
    struct sy_snapshot_result result;
    if (!r->writer || !sy_snapshot_writer_poll(r->writer, wait_ms, &result))
        return;
    if (result.status == SY_OK) {
        r->has_good = true;
        r->good_step = result.step;
        memcpy(r->good_path, result.path, sizeof r->good_path);
        atomic_store_explicit(&r->page->snapshot_step, result.step, memory_order_relaxed);
    } else {
        snprintf(r->failure, sizeof r->failure, "%s", result.error);
        sy_log_warn("train",
                    "event=snapshot_failed job=%s step=%" PRIu64
                    " why=\"%s\" next=\"training goes on; %s\"",
                    r->job.name, result.step, result.error,
                    r->has_good ? "the last good snapshot stays" : "there is none yet");
    }
    if (r->callbacks.snapshot_done)
        r->callbacks.snapshot_done(r->callbacks.ctx, result.status, result.step, result.path);
}

/* False while the thread is still busy with the last one. */
static int take_snapshot(struct sy_train_run *r, bool *is_taken)
{
    char *room = sy_snapshot_writer_room(r->writer);
    *is_taken = room != NULL;
    if (!room)
        return SY_OK;
    for (int i = 0; i < r->layout.n_tensors; i++)
        SY_TRY(r->ops->get_state(r->trainer, i, room + r->tensors[i].offset_bytes));
    struct sy_snapshot_info info = {.step = r->step, .loss = r->loss};
    sy_snapshot_writer_submit(r->writer, &info);
    r->last_snapshot_step = r->step;
    r->last_snapshot_ns = sy_clock_now();
    return SY_OK;
}

static bool snapshot_is_due(const struct sy_train_run *r)
{
    const struct sy_job *job = &r->job;
    if (!r->writer)
        return false;
    if (job->snapshot_every_steps && r->step - r->last_snapshot_step >= job->snapshot_every_steps)
        return true;
    return job->snapshot_every_s > 0.0 &&
           (double)(sy_clock_now() - r->last_snapshot_ns) >= job->snapshot_every_s * 1e9;
}

/* ---- stages -------------------------------------------------------------------------------------- */

static void go_to(struct sy_train_run *r, enum stage stage)
{
    r->stage = stage;
    r->at = 0;
}

/* A batch that is not made yet is asked for again by the next advance. */
static int load_batch(struct sy_train_run *r, bool is_test, uint64_t index, enum stage next)
{
    void *inputs[SY_DATA_MAX_INPUTS];
    for (int i = 0; i < r->want.n_inputs; i++)
        inputs[i] = r->ops->batch_input(r->trainer, i);
    int got = sy_prefetch_take(r->prefetch, is_test, index, WAIT_MS, inputs,
                               r->ops->batch_labels(r->trainer));
    if (got == 1) {
        if (r->ops->begin_batch)
            r->ops->begin_batch(r->trainer, index);
        go_to(r, next);
    }
    return got < 0 ? sy_error_prefix(got, "job '%s', step %" PRIu64, r->job.name, r->step + 1)
                   : SY_OK;
}

/* The job ends here; its state in memory and on disk is that of the step before. */
static int give_up(const struct sy_train_run *r, int status)
{
    char why[256];
    snprintf(why, sizeof why, "%s", sy_error_text());
    return sy_error_set(status,
                        "job '%s': %s, in step %" PRIu64 "; last good snapshot: %s (step %" PRIu64
                        "); a smaller learning rate than %g, or clip_norm, may help",
                        r->job.name, why, r->step + 1, r->has_good ? r->good_path : "none",
                        r->good_step, r->job.options.learning_rate);
}

static int end_gradient(struct sy_train_run *r)
{
    double loss = r->ops->loss(r->trainer);
    if (!isfinite(loss))
        return give_up(r, sy_error_set(SY_EARG, "the loss is %g", loss));
    r->loss_sum = (r->n_phases ? r->loss_sum : 0.0) + loss;
    if (++r->n_phases < phases_of(r)) {
        go_to(r, STAGE_LOAD);
        return SY_OK;
    }
    r->n_phases = 0;
    r->loss = phases_of(r) > 1 ? r->loss_sum / (double)phases_of(r) : loss;
    SY_TRY(enter_phase(r, SY_PHASE_UPDATE));
    go_to(r, STAGE_UPDATE);
    return SY_OK;
}

static int run_gradient(struct sy_train_run *r)
{
    SY_TRY(sy_fault("gradient_step"));
    int status = r->ops->run_gradient_step(r->trainer, r->at);
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
    SY_TRY(publish_step(r));
    SY_TRY(enter_phase(r, SY_PHASE_GRADIENT));
    go_to(r, STAGE_ITERATION_END);
    return SY_OK;
}

static int end_iteration(struct sy_train_run *r)
{
    bool is_taken;
    uint64_t every = r->job.evaluate_every_steps;
    collect(r, 0);
    go_to(r, next_iteration(r));
    if (r->stage != STAGE_LOAD)
        return SY_OK;
    if (snapshot_is_due(r))
        SY_TRY(take_snapshot(r, &is_taken));
    r->is_between = every && r->step % every == 0 && r->data.n_test;
    if (r->is_between)
        go_to(r, STAGE_EVALUATE_LOAD);
    return SY_OK;
}

static enum stage after_last_snapshot(const struct sy_train_run *r)
{
    return r->wants_evaluation && r->data.n_test ? STAGE_EVALUATE_LOAD : STAGE_DRAIN;
}

static int last_snapshot(struct sy_train_run *r)
{
    bool is_taken = true;
    bool is_there = r->has_good && r->good_step == r->step && r->last_snapshot_step == r->step;
    if (r->writer && !is_there) {
        collect(r, WAIT_MS);
        SY_TRY(take_snapshot(r, &is_taken));
    }
    if (is_taken)
        go_to(r, after_last_snapshot(r));
    return SY_OK;
}

static void publish_accuracy(struct sy_train_run *r)
{
    atomic_store_explicit(&r->page->train_accuracy_bits, bits_of(r->accuracy),
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
    go_to(r, r->is_between ? next_iteration(r) : STAGE_DRAIN);
    r->is_between = false;
    return SY_OK;
}

static int drain(struct sy_train_run *r)
{
    if (r->writer && !sy_snapshot_writer_room(r->writer)) {
        collect(r, WAIT_MS);
        return SY_OK;
    }
    if (r->writer && !(r->has_good && r->good_step == r->step))
        return sy_error_set(SY_EIO, "job '%s': its state after step %" PRIu64 " is lost: %s",
                            r->job.name, r->step, r->failure);
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

bool sy_train_run_is_between_iterations(const struct sy_train_run *r)
{
    return r->stage == STAGE_LOAD && r->n_phases == 0;
}

void sy_train_run_stop(struct sy_train_run *r, int evaluate)
{
    bool is_training = r->stage <= STAGE_ITERATION_END;
    r->is_stopping = true;
    r->wants_evaluation = evaluate != 0;
    if (r->stage == STAGE_LOAD || r->is_between) {
        r->is_between = false;
        r->test_row = r->n_correct = 0;
        go_to(r, STAGE_LAST_SNAPSHOT);
    } else if (!is_training && !evaluate &&
               (r->stage == STAGE_EVALUATE || r->stage == STAGE_EVALUATE_LOAD))
        go_to(r, STAGE_DRAIN);
}

int sy_train_run_settle(struct sy_train_run *r)
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
