/* A run's state: in memory behind its header (T3), and in snapshots (T4). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "workers/train/train_run_internal.h"

#define MAGIC   0x314e525459575300ull /* "SWYTRN1" */
#define VERSION 1u

/* ---- the header (T3) ----------------------------------------------------------------------------- */

uint64_t sy_run_bits_of(double x)
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
int sy_run_enter_phase(struct sy_train_run *r, enum sy_train_phase phase)
{
    atomic_store_explicit(&r->page->train_phase, (uint32_t)phase, memory_order_release);
    atomic_exchange_explicit(&r->header->phase, (uint32_t)phase, memory_order_acq_rel);
    return flush_header(r);
}

int sy_run_publish_step(struct sy_train_run *r)
{
    atomic_store_explicit(&r->header->step, r->step, memory_order_release);
    atomic_store_explicit(&r->header->loss_bits, sy_run_bits_of(r->loss), memory_order_relaxed);
    atomic_store_explicit(&r->page->train_step, r->step, memory_order_relaxed);
    atomic_store_explicit(&r->page->train_loss_bits, sy_run_bits_of(r->loss), memory_order_relaxed);
    return flush_header(r);
}

/* A process that dies before it is written again leaves no state. */
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
    SY_TRY(sy_run_publish_step(r));
    SY_TRY(sy_run_enter_phase(r, SY_PHASE_GRADIENT));
    atomic_store_explicit(&r->header->magic, MAGIC, memory_order_release);
    return flush_header(r);
}

static int adopt_memory(struct sy_train_run *r)
{
    struct sy_run_header *h = r->header;
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
    SY_TRY(sy_run_publish_step(r));
    return sy_run_enter_phase(r, SY_PHASE_GRADIENT);
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
    SY_TRY_ALLOC(*data, "job '%s': no room for a snapshot of %" PRIu64 " bytes", r->job.name,
                 r->layout.data_bytes);
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
static int find_good_snapshot(struct sy_train_run *r)
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

enum sy_run_stage sy_run_next_iteration(const struct sy_train_run *r)
{
    bool stops = r->callbacks.ranks ? r->all_stop : r->is_stopping;
    return stops || r->step >= r->total_steps ? STAGE_LAST_SNAPSHOT : STAGE_LOAD;
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
        SY_TRY(find_good_snapshot(r));
    r->last_snapshot_ns = sy_clock_now();
    r->wants_evaluation = true;
    atomic_store_explicit(&page->train_accuracy_step, 0, memory_order_release);
    if (r->callbacks.ranks) { /* their step is rank 0's */
        SY_TRY(sy_run_share_state(r));
        SY_TRY(sy_run_publish_step(r));
    }
    r->stage = sy_run_next_iteration(r);
    return SY_OK;
}
/* ---- snapshots (T4) ------------------------------------------------------------------------------ */

void sy_run_collect(struct sy_train_run *r, int wait_ms)
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

int sy_run_take_snapshot(struct sy_train_run *r, bool *is_taken)
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

bool sy_run_snapshot_is_due(const struct sy_train_run *r)
{
    const struct sy_job *job = &r->job;
    if (!r->writer)
        return false;
    if (job->snapshot_every_steps && r->step - r->last_snapshot_step >= job->snapshot_every_steps)
        return true;
    return job->snapshot_every_s > 0.0 &&
           (double)(sy_clock_now() - r->last_snapshot_ns) >= job->snapshot_every_s * 1e9;
}
