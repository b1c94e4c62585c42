/* Carries out the scheduler's actions, and handles completed storage reads. */
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/core/core_batch.h"
#include "runtime/core/core_image.h"
#include "runtime/core/core_internal.h"
#include "runtime/core/core_jobs.h"

static _Atomic uint32_t *arrival_word(struct sy_core *core, int model, int group)
{
    return &core->arrivals[(unsigned)model * (SY_ARRIVAL_WORDS / SY_MAX_MODELS) + (unsigned)group];
}

/* ---- preempt and resume ----------------------------------------------------------------------- */

static void bump_epoch(struct sy_core *core, int worker, bool odd)
{
    struct sy_control_page *page = sy_supervisor_page(core->supervisor, worker);
    uint32_t epoch = atomic_load_explicit(&page->preempt_epoch, memory_order_relaxed);
    if ((epoch & 1) == odd)
        return;
    if (odd)
        atomic_store_explicit(&page->preempt_ns, core->preempted_ns, memory_order_relaxed);
    atomic_store_explicit(&page->preempt_epoch, epoch + 1, memory_order_release);
    sy_futex_wake(&page->preempt_epoch);
}

static void preempt(struct sy_core *core, const struct sy_sched_action *a)
{
    core->preempted_ns = sy_clock_now();
    core->n_preemptions++;
    bump_epoch(core, a->worker, true);
    (void)sy_supervisor_event(core->supervisor, a->worker, SY_WORKER_EVENT_PREEMPT);
}

static void resume(struct sy_core *core, const struct sy_sched_action *a)
{
    bump_epoch(core, a->worker, false);
    core->preempting_request = 0;
    struct sy_core_job *j = sy_core_find_job(core, a->job);
    if (sy_supervisor_event(core->supervisor, a->worker, SY_WORKER_EVENT_RESUME) == SY_OK && j &&
        sy_supervisor_state(core->supervisor, a->worker) == SY_WORKER_TRAINING)
        sy_core_job_compute_begin(core, j, core->tick_ns);
}

/* ---- load ------------------------------------------------------------------------------------- */

/* Marks the groups that will be read as COMING, before the worker can look at them. */
static void announce_groups(struct sy_core *core, const struct sy_sched_action *a)
{
    const struct sy_core_model *m = &core->models[a->model];
    const struct sy_group_place *places = core->unified ? a->places : a->image_places;
    int first = core->unified ? a->first_group : 0;
    int end = core->unified ? a->first_group + a->n_groups : m->n_groups;
    if (!places || (!core->unified && a->first_group > 0))
        return;
    for (int g = first; g < end; g++) {
        uint32_t word = m->group_bytes[g] == 0 ? SY_ARRIVAL_HERE
                        : !places[g].resident  ? SY_ARRIVAL_COMING
                                               : atomic_load(arrival_word(core, a->model, g));
        atomic_store_explicit(arrival_word(core, a->model, g), word, memory_order_release);
    }
}

/* Number of leading groups that are in the pool. */
static int n_leading(const struct sy_core_model *m, const struct sy_sched_action *a)
{
    int n = 0;
    while (n < a->n_groups && (a->places[n].resident || m->direct[n]))
        n++;
    return n;
}

static void note_load(struct sy_core *core, const struct sy_sched_action *a)
{
    struct sy_core_request *r = sy_core_find_request(core, a->request);
    struct sy_core_model *m = &core->models[a->model];
    uint64_t bytes = 0;
    for (int g = a->first_group; g < a->first_group + a->n_groups; g++)
        bytes += a->places[g].resident ? 0 : a->places[g].bytes;
    m->link_bytes += bytes;
    core->link_bytes += bytes;
    if (!r)
        return;
    if (r->run != a->run) {
        r->run = a->run;
        r->report.started_ns = sy_clock_now();
        r->report.attempts++;
        r->report.worker = a->worker;
        r->report.moved_bytes = 0;
        r->report.swapped = false;
        r->report.preempted |= a->preempts;
        r->report.bound_ns =
            sy_core_swap_bound(core, m, a->batch, r->sizes, a->places, a->n_groups);
        r->guess = sy_core_guess_parts(
            sy_core_guess(core, m, a->batch, r->sizes, a->places, a->n_groups), r->n_parts);
        r->n_resident = n_leading(m, a);
        if (a->preempts)
            core->preempting_request = r->id;
        sy_trace_span(core->trace, SY_TRACE_QUEUE, m->name, r->report.arrived_ns,
                      r->report.started_ns, r->id);
    }
    r->report.moved_bytes += bytes;
    r->report.swapped = r->report.moved_bytes > 0;
}

static void load(struct sy_core *core, const struct sy_sched_action *a)
{
    size_t n = (size_t)a->n_groups;
    uint64_t *lists = calloc(5 * n + 1, sizeof *lists);
    if (!lists) {
        sy_supervisor_kill(core->supervisor, a->worker, "no memory for its LOAD message");
        return;
    }
    announce_groups(core, a);
    for (size_t i = 0; i < n; i++) {
        const struct sy_group_place *p = &a->places[a->first_group + (int)i];
        lists[i] = p->offset;
        lists[n + i] = core->models[a->model].direct[a->first_group + (int)i] ? SY_LOAD_DIRECT
                       : p->resident                                          ? SY_LOAD_RESIDENT
                                                                              : SY_LOAD_COMES;
        lists[2 * n + i] = (uint64_t)(p->after_group + 1);
        lists[3 * n + i] = a->image_places ? a->image_places[a->first_group + (int)i].offset : 0;
        lists[4 * n + i] =
            (uint64_t)(arrival_word(core, a->model, a->first_group + (int)i) - core->arrivals);
    }
    struct sy_message message = {.id = SY_MSG_LOAD};
    message.load = (struct sy_msg_load){
        .run = a->run,
        .model = (uint64_t)a->model,
        .first_group = (uint64_t)a->first_group,
        .link_class = a->prefetch ? SY_LINK_PREFETCH : SY_LINK_URGENT,
        .pool_offsets = {n, lists},
        .resident = {n, lists + n},
        .after_group = {n, lists + 2 * n},
        .image_offsets = {core->unified ? 0 : n, lists + 3 * n},
        .arrivals = {n, lists + 4 * n},
    };
    if (sy_supervisor_send(core->supervisor, a->worker, &message, NULL, 0) == SY_OK)
        (void)sy_supervisor_event(core->supervisor, a->worker, SY_WORKER_EVENT_LOAD);
    free(lists);
    note_load(core, a);
}

/* ---- storage ---------------------------------------------------------------------------------- */

static struct sy_storage_job *make_read(struct sy_core *core, const struct sy_sched_action *a)
{
    const struct sy_core_model *m = &core->models[a->model];
    const struct sy_group_place *places = core->unified ? a->places : a->image_places;
    unsigned char *base = core->unified ? core->pool_base : core->image.base;
    struct sy_storage_job *job = calloc(1, sizeof *job);
    if (job)
        job->groups = calloc((size_t)a->n_groups + 1, sizeof *job->groups);
    if (!job || !job->groups) {
        sy_storage_job_free(job);
        return NULL;
    }
    job->run = a->run;
    job->model = a->model;
    job->first_group = a->first_group;
    job->n_span = a->n_groups;
    job->urgent = !a->prefetch;
    job->package = m->package;
    job->page = sy_supervisor_page(core->supervisor, a->worker);
    job->pool = core->unified ? core->pool : NULL;
    for (int g = a->first_group; g < a->first_group + a->n_groups; g++) {
        if (places[g].resident || m->group_bytes[g] == 0)
            continue;
        job->groups[job->n_groups++] = (struct sy_storage_group){
            .group = g,
            .first_layer = m->groups[g].first_layer,
            .n_layers = m->groups[g].n_layers,
            .after_group = places[g].after_group,
            .file_offset = m->package->weights_offset + m->groups[g].offset_bytes,
            .bytes = m->group_bytes[g],
            .to = base + places[g].offset,
            .pool_offset = places[g].offset,
            .arrival = arrival_word(core, a->model, g),
        };
    }
    return job;
}

/* Finds which groups of a READ have arrived, and tells the scheduler. */
static void report_read(struct sy_core *core, uint64_t run, int model, int first, int n)
{
    bool arrived[SY_CORE_MAX_GROUPS];
    assert(n <= SY_CORE_MAX_GROUPS);
    for (int i = 0; i < n; i++)
        arrived[i] = atomic_load_explicit(arrival_word(core, model, first + i),
                                          memory_order_acquire) == SY_ARRIVAL_HERE;
    sy_sched_read_done(core->sched, run, first, n, arrived);
}

static void read_groups(struct sy_core *core, const struct sy_sched_action *a)
{
    struct sy_storage_job *job = make_read(core, a);
    if (job)
        sy_core_image_before_read(core, job);
    if (job && sy_storage_thread_add(core->storage, job) == SY_OK)
        return;
    sy_log_error("core", "event=read_refused run=%llu why=\"%s\"", (unsigned long long)a->run,
                 job ? sy_error_text() : "no memory");
    sy_storage_job_free(job);
    for (int g = a->first_group; g < a->first_group + a->n_groups; g++) {
        uint32_t coming = SY_ARRIVAL_COMING;
        if (atomic_compare_exchange_strong(arrival_word(core, a->model, g), &coming,
                                           SY_ARRIVAL_FAILED))
            sy_futex_wake(arrival_word(core, a->model, g));
    }
    report_read(core, a->run, a->model, a->first_group, a->n_groups);
}

static void note_read(struct sy_core *core, const struct sy_storage_job *job)
{
    struct sy_core_request *r = sy_core_find_run(core, job->run);
    struct sy_core_model *m = &core->models[job->model];
    core->storage_bytes += job->bytes;
    sy_trace_span(core->trace, SY_TRACE_STORAGE, m->name, job->start_ns, job->end_ns,
                  r ? r->id : 0);
    if (r) {
        r->report.storage_bytes += job->bytes;
        r->report.storage_start_ns =
            r->report.storage_start_ns ? r->report.storage_start_ns : job->start_ns;
        r->report.storage_end_ns = job->end_ns;
    }
    if (job->status >= 0 || job->status == SY_ECANCELED)
        return;
    if (job->status == SY_ENOMEM_HOST) { /* not the package's fault: the next request reads again */
        sy_log_warn("core", "event=read_refused run=%llu why=\"%s\"", (unsigned long long)job->run,
                    job->error);
        return;
    }
    m->status = job->status;
    snprintf(m->error, sizeof m->error, "%s", job->error);
    m->state = SY_MODEL_UNAVAILABLE;
    sy_log_error("core", "event=read_failed model=%s why=\"%s\"", m->name, job->error);
}

void sy_core_read_done(void *ctx, const struct sy_storage_job *job)
{
    struct sy_core *core = ctx;
    sy_core_tick(core);
    note_read(core, job);
    sy_core_image_after_read(core, job);
    report_read(core, job->run, job->model, job->first_group, job->n_span);
    sy_core_pump(core);
}

/* ---- the rest --------------------------------------------------------------------------------- */

static bool runs_in_one_thread(const struct sy_core *core, const struct sy_sched_action *a)
{
    const struct sy_package *package = core->models[a->model].package;
    bool one = true;
    for (int i = 0; one && i < package->n_layers; i++)
        one = sy_layer_is_solo(&package->layers[i], a->batch);
    return one || core->n_cores == 1;
}

static void run(struct sy_core *core, const struct sy_sched_action *a)
{
    struct sy_core_request *r = sy_core_find_request(core, a->request);
    assert(r);
    uint64_t sizes[SY_MAX_SYMBOLS];
    size_t n_sizes = sy_core_sizes_words(&core->models[a->model], r->sizes, sizes);
    struct sy_message message = {.id = SY_MSG_RUN};
    message.run = (struct sy_msg_run){
        .run = a->run,
        .model = (uint64_t)a->model,
        .batch = (uint64_t)a->batch,
        .workspace_offset = a->workspace_offset,
        .workspace_bytes = a->workspace_bytes,
        .first_layer = (uint64_t)a->first_layer,
        .parts = (uint64_t)r->n_parts,
        .team = (uint64_t)a->team,
        .cores = sy_core_slice_cores(core, a->slice),
        .sizes = {n_sizes, sizes},
        .inputs = {(size_t)r->n_inputs, r->inputs},
        .outputs = {(size_t)r->n_outputs, r->outputs},
    };
    sy_core_poll_check_load(core);
    atomic_store_explicit(&sy_supervisor_page(core->supervisor, a->worker)->poll_us,
                          sy_core_poll_us(core), memory_order_relaxed);
    sy_core_regions_send(core, a->worker, r->inputs, r->n_inputs);
    sy_core_regions_send(core, a->worker, r->outputs, r->n_outputs);
    if (sy_supervisor_send(core->supervisor, a->worker, &message, NULL, 0) == SY_OK)
        (void)sy_supervisor_event(core->supervisor, a->worker, SY_WORKER_EVENT_RUN);
    core->n_continued += a->first_layer > 0;
    sy_storage_thread_promote(core->storage, a->run);
    r->slice = a->slice;
    r->report.run_ns = sy_clock_now();
    core->models[a->model].account.tenant_ns = &core->tenants[r->tenant].used_ns;
    struct sy_duration expected = a->first_layer > 0
                                      ? sy_core_remaining(core, r, a->first_layer, r->n_resident)
                                      : sy_core_duration(core, a->model, r->guess);
    sy_sched_expect(core->sched, r->id, expected);
    sy_core_poll_run(core, expected.expected_ns, runs_in_one_thread(core, a));
    sy_core_corun_begins(core, r, a->first_layer > 0);
    sy_account_begin(&core->account, &core->models[a->model].account, r->report.run_ns);
}

static void fetch(struct sy_core *core, const struct sy_sched_action *a)
{
    struct sy_message message = {.id = SY_MSG_FETCH, .fetch = {.run = a->run}};
    (void)sy_supervisor_send(core->supervisor, a->worker, &message, NULL, 0);
}

static void cancel(struct sy_core *core, const struct sy_sched_action *a)
{
    struct sy_message message = {.id = SY_MSG_CANCEL, .cancel = {.run = a->run}};
    if (sy_supervisor_send(core->supervisor, a->worker, &message, NULL, 0) == SY_OK)
        (void)sy_supervisor_event(core->supervisor, a->worker, SY_WORKER_EVENT_CANCEL);
}

/* The run may have ended meanwhile: then RUN_DONE is on its way. */
static void interrupt_run(struct sy_core *core, const struct sy_sched_action *a)
{
    struct sy_control_page *page = sy_supervisor_page(core->supervisor, a->worker);
    atomic_store_explicit(&page->interrupted_run, a->run, memory_order_relaxed);
    (void)sy_supervisor_event(core->supervisor, a->worker, SY_WORKER_EVENT_CANCEL);
    core->n_interrupts++;
}

/* A request with these sizes waits, so the sizes are still known. */
static void prepare(struct sy_core *core, const struct sy_sched_action *a)
{
    const struct sy_core_model *m = &core->models[a->model];
    struct sy_message message = {.id = SY_MSG_PREPARE};
    struct sy_core_sizes *sizes = a->sizes ? m->sizes : NULL;
    uint64_t words[SY_MAX_SYMBOLS];
    while (sizes && sizes->id != a->sizes)
        sizes = sizes->next;
    message.prepare =
        (struct sy_msg_prepare){.model = (uint64_t)a->model,
                                .batch = (uint64_t)a->batch,
                                .team = (uint64_t)a->team,
                                .cores = sy_core_slice_cores(core, a->slice),
                                .sizes = {sy_core_sizes_words(m, sizes, words), words}};
    (void)sy_supervisor_send(core->supervisor, a->worker, &message, NULL, 0);
}

/* For the error text that explains the lack of room. */
static uint64_t held_by_jobs(const struct sy_core *core)
{
    const struct sy_lanes *lanes = sy_sched_lanes(core->sched);
    return sy_lanes_persistent_bytes(lanes) + sy_lanes_ephemeral_bytes(lanes);
}

static void end(struct sy_core *core, const struct sy_sched_action *a)
{
    struct sy_core_request *r = sy_core_find_request(core, a->request);
    const struct sy_core_model *m = &core->models[a->model];
    char error[600];
    assert(r);
    char sizes[256];
    snprintf(error, sizeof error, "model %s%s: %s%s%s", m->name,
             a->status == SY_OK ? "" : sy_core_sizes_text(m, r->sizes, sizes, sizeof sizes), a->why,
             a->status == SY_EIO && m->status < 0 ? ": " : "",
             a->status == SY_EIO && m->status < 0 ? m->error : "");
    if (a->status == SY_ENOMEM_DEVICE && held_by_jobs(core) > 0)
        snprintf(
            error + strlen(error), sizeof error - strlen(error),
            "; %llu bytes of it are training jobs', which keep them while requests run: send a "
            "smaller batch, make the pool larger (--pool-bytes), or let a job be of class "
            "opportunistic",
            (unsigned long long)held_by_jobs(core));
    sy_core_end_request(core, r, a->status, error);
}

static void act(struct sy_core *core, const struct sy_sched_action *a)
{
    /* After the workers were told to stop, only bookkeeping continues. */
    if (core->stopping && a->kind != SY_DO_END && a->kind != SY_DO_CANCEL_READ &&
        a->kind != SY_DO_JOB_REFUSE)
        return;
    switch (a->kind) {
    case SY_DO_PREEMPT:
        preempt(core, a);
        break;
    case SY_DO_RESUME:
        resume(core, a);
        break;
    case SY_DO_PREPARE:
        prepare(core, a);
        break;
    case SY_DO_LOAD:
        load(core, a);
        break;
    case SY_DO_READ:
        read_groups(core, a);
        break;
    case SY_DO_FETCH:
        fetch(core, a);
        break;
    case SY_DO_CANCEL_READ:
        sy_storage_thread_cancel(core->storage, a->run);
        break;
    case SY_DO_RUN:
        run(core, a);
        break;
    case SY_DO_CANCEL:
        cancel(core, a);
        break;
    case SY_DO_INTERRUPT:
        interrupt_run(core, a);
        break;
    case SY_DO_END:
        end(core, a);
        break;
    case SY_DO_JOB_PREPARE:
    case SY_DO_JOB_START:
    case SY_DO_JOB_TURN:
    case SY_DO_JOB_YIELD:
    case SY_DO_JOB_SPILL:
    case SY_DO_JOB_RETURN:
    case SY_DO_JOB_LEAVE:
    case SY_DO_JOB_STOP:
    case SY_DO_JOB_REFUSE:
        sy_core_act_job(core, a);
        break;
    }
}

/* Schedules a wake-up for decisions of the scheduler that depend on time alone. */
static void set_alarm(struct sy_core *core)
{
    sy_ns at = sy_sched_wake_at(core->sched), now = sy_clock_now();
    if (at == 0 || core->stopping)
        return;
    sy_ns left = at > now ? at - now : 0;
    struct timeval timeout = {.tv_sec = (time_t)(left / SY_NS_PER_S),
                              .tv_usec = (suseconds_t)(left % SY_NS_PER_S / 1000 + 1)};
    event_add(core->wake_event, &timeout);
}

/* Actions call callbacks, which cause events, which cause actions: the outermost call carries out all of them. */
void sy_core_pump(struct sy_core *core)
{
    struct sy_sched_action a;
    if (core->pumping)
        return;
    core->pumping = true;
    while (sy_sched_next(core->sched, &a))
        act(core, &a);
    if (sy_core_batch_n_gathered(core->batches) > 0)
        sy_core_batch_flush_idle(core->batches); /* B1 */
    while (sy_sched_next(core->sched, &a))
        act(core, &a);
    sy_core_models_leave(core);
    while (sy_sched_next(core->sched,
                         &a)) /* for jobs that waited for memory which models have freed */
        act(core, &a);
    core->pumping = false;
    set_alarm(core);
}
