/* Messages from workers. Every number is checked: a faulty worker may send anything before it dies. */
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/core/core_internal.h"
#include "runtime/core/core_jobs.h"

static int hello(struct sy_core *core, int worker, const struct sy_msg_hello *msg)
{
    int fds[5] = {sy_supervisor_page_fd(core->supervisor, worker), core->arrivals_memory.fd,
                  sy_slab_fd(core->slab), core->pool_fd, core->image.fd};
    struct sy_message welcome = {.id = SY_MSG_WELCOME};
    if (msg->version != SY_WIRE_VERSION)
        return sy_error_set(SY_EPROTO, "worker %d speaks version %llu, this runtime %d", worker,
                            (unsigned long long)msg->version, SY_WIRE_VERSION);
    SY_TRY(sy_supervisor_event(core->supervisor, worker, SY_WORKER_EVENT_HELLO));
    if (core->stopping)
        return SY_OK;
    welcome.welcome = (struct sy_msg_welcome){
        .worker = (uint64_t)worker,
        .device = core->spec.text,
        .pool_bytes = sy_pool_size(core->pool),
        .image_bytes = core->image.bytes,
        .slab_bytes = sy_slab_size(core->slab),
        .cores = {core->n_cores, core->cores},
        .link_core = core->link_core,
    };
    (void)sy_supervisor_send(core->supervisor, worker, &welcome, fds, core->image.bytes ? 5 : 4);
    return SY_OK;
}

static int ready(struct sy_core *core, int worker)
{
    SY_TRY(sy_supervisor_event(core->supervisor, worker, SY_WORKER_EVENT_READY));
    if (core->stopping)
        return SY_OK;
    sy_core_send_models(core, worker);
    sy_core_settle_models(core);
    return SY_OK;
}

/* Traces one run's spans: 4 values per group, measured by the worker. */
static void trace_run(struct sy_core *core, const struct sy_core_request *r,
                      const struct sy_msg_run_done *msg)
{
    const char *name = core->models[r->model].name;
    const uint64_t *v = msg->spans.v;
    for (size_t g = 0; g < msg->spans.n / 4; g++) {
        sy_trace_span(core->trace, SY_TRACE_LINK, name, v[4 * g], v[4 * g + 1], r->id);
        /* 0: the group before was not computed: the run resumed with this one */
        if (g > 0 && v[4 * g - 1] > 0)
            sy_trace_span(core->trace, SY_TRACE_WAIT, name, v[4 * g - 1], v[4 * g + 2], r->id);
    }
    sy_trace_span(core->trace, SY_TRACE_INFERENCE, name, msg->first_layer_ns, msg->end_ns, r->id);
}

static void report_run(struct sy_core_request *r, const struct sy_msg_run_done *msg)
{
    r->report.first_layer_ns = msg->first_layer_ns;
    r->report.computed_ns = msg->end_ns;
    r->report.compute_wait_ns = msg->wait_ns;
    r->report.copy_start_ns = r->report.copy_end_ns = 0;
    for (size_t g = 0; g < msg->spans.n / 4; g++) {
        uint64_t start = msg->spans.v[4 * g], stop = msg->spans.v[4 * g + 1];
        if (start == 0)
            continue;
        if (r->report.copy_start_ns == 0)
            r->report.copy_start_ns = start;
        r->report.copy_end_ns = SY_MAX(r->report.copy_end_ns, stop);
    }
}

static void note_run(struct sy_core_model *m, const struct sy_core_request *r,
                     const struct sy_msg_run_done *msg)
{
    sy_ns took = msg->end_ns > msg->first_layer_ns ? msg->end_ns - msg->first_layer_ns : 0;
    m->longest_run_ns = SY_MAX(m->longest_run_ns, took / (sy_ns)r->n_parts);
    m->was_run = true;
    if (r->guess.moves || r->guess.ns == 0)
        return;
    double scale = (double)took / (double)r->guess.ns;
    m->run_scale += m->run_scale > 0 ? (scale - m->run_scale) / 8 : scale;
}

/* Interrupted runs count too, with the time until they stopped. */
static void note_served(struct sy_core *core, struct sy_core_request *r, sy_ns now)
{
    struct sy_core_slice *slice = &core->slices[r->slice];
    sy_ns from = SY_MAX(r->report.started_ns, slice->last_served_ns);
    r->report.served_ns += now - SY_MIN(from, now);
    slice->used_ns += now - SY_MIN(from, now);
    slice->last_served_ns = now;
}

static int run_done(struct sy_core *core, int worker, const struct sy_msg_run_done *msg)
{
    struct sy_core_request *r = sy_core_find_run(core, msg->run);
    if (r && msg->spans.n > 4 * (size_t)core->models[r->model].n_groups)
        return sy_error_set(SY_EPROTO, "RUN_DONE with %zu spans, of a model of %d groups",
                            msg->spans.n, core->models[r->model].n_groups);
    if (r && msg->next_layer >= (uint64_t)core->models[r->model].package->n_layers)
        return sy_error_set(SY_EPROTO, "RUN_DONE stopped at layer %llu of model %s, which has %d",
                            (unsigned long long)msg->next_layer, core->models[r->model].name,
                            core->models[r->model].package->n_layers);
    if (r && r->report.worker == worker && msg->status == SY_OK) {
        report_run(r, msg);
        note_run(&core->models[r->model], r, msg);
        sy_core_corun_ends(
            core, r, msg->end_ns > msg->first_layer_ns ? msg->end_ns - msg->first_layer_ns : 0,
            msg->lost_ns);
        r->report.moved_bytes += msg->read_bytes;
        core->models[r->model].link_bytes += msg->read_bytes;
        core->link_bytes += msg->read_bytes;
        trace_run(core, r, msg);
    }
    if (r) {
        sy_ns now = sy_clock_now();
        if (sy_sched_computes(core->sched, worker))
            note_served(core, r, now);
        sy_account_end(&core->account, &core->models[r->model].account, now);
    }
    /* The scheduler checks first whether this worker has such a run. */
    if (msg->status == SY_OK || msg->status == SY_ECANCELED)
        sy_sched_arrived(core->sched, worker, msg->run, msg->n_arrived);
    if (r && msg->status == SY_ECANCELED)
        sy_sched_stopped_at(
            core->sched, worker, msg->run, (int)msg->next_layer,
            sy_core_remaining_later(core, r, (int)msg->next_layer,
                                    (int)SY_MIN(msg->n_arrived, (uint64_t)SY_CORE_MAX_GROUPS)));
    SY_TRY(sy_sched_run_done(core->sched, worker, msg->run, (int)msg->status, msg->error));
    return sy_supervisor_event(core->supervisor, worker, SY_WORKER_EVENT_RUN_DONE);
}

static int dispatch(struct sy_core *core, int worker, const struct sy_message *message)
{
    switch (message->id) {
    case SY_MSG_HELLO:
        return hello(core, worker, &message->hello);
    case SY_MSG_READY:
        return ready(core, worker);
    case SY_MSG_MODEL_ADDED:
        return sy_core_model_added(core, worker, &message->model_added);
    case SY_MSG_PREPARED:
        return sy_core_model_prepared(core, worker, &message->prepared);
    case SY_MSG_RUN_DONE:
        return run_done(core, worker, &message->run_done);
    case SY_MSG_JOB_PREPARED:
    case SY_MSG_JOB_STARTED:
    case SY_MSG_JOB_PAUSED:
    case SY_MSG_JOB_TURN_OVER:
    case SY_MSG_JOB_SPILLED:
    case SY_MSG_JOB_RETURNED:
    case SY_MSG_JOB_LEFT:
    case SY_MSG_JOB_SNAPSHOT:
    case SY_MSG_JOB_ENDED:
        return sy_core_job_message(core, worker, message);
    default:
        return sy_error_set(SY_EPROTO, "message %s does not go this way",
                            sy_message_name((int)message->id));
    }
}

int sy_core_message(void *ctx, int worker, const struct sy_message *message)
{
    struct sy_core *core = ctx;
    sy_core_tick(core);
    sy_core_pump(
        core); /* actions decided before this message are carried out first, while they match the workers' states */
    int status = dispatch(core, worker, message);
    sy_core_pump(core);
    return status;
}

/* Ends the charging of device time to the request. */
static void end_its_use(struct sy_core *core, int worker)
{
    if (!sy_sched_computes(core->sched, worker))
        return;
    for (struct sy_core_request *r = core->requests; r; r = r->next)
        if (r->report.worker == worker)
            sy_account_end(&core->account, &core->models[r->model].account, sy_clock_now());
}

void sy_core_worker_lost(void *ctx, int worker, enum sy_worker_state was, bool comes_back,
                         const char *why)
{
    struct sy_core *core = ctx;
    struct sy_sched_loss loss = {
        .heard = was != SY_WORKER_DEAD, .comes_back = comes_back, .why = why};
    sy_core_tick(core);
    end_its_use(core, worker);
    sy_link_board_set(core->board, worker, SY_LINK_NONE);
    sy_core_regions_worker_lost(core, worker);
    sy_core_models_worker_lost(core, worker, comes_back, why);
    sy_core_job_lost(core, worker, &loss.state_intact, &loss.job_progressed);
    sy_sched_worker_lost(core->sched, worker, &loss);
    sy_core_settle_models(core);
    sy_core_pump(core);
    sy_core_end_hopeless_jobs(core);
}
