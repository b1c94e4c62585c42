/* Events from workers: runs and jobs that were prepared, stopped, left or ended; and the recovery of their work when a worker dies. */
#include <stdio.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

/* ---- the end of a run ------------------------------------------------------------------------- */

static struct request *find_run(struct sy_sched *s, uint64_t run)
{
    for (struct slice *c = s->slices; c < s->slices + s->n_made; c++) {
        if (c->active && c->active->run == run)
            return c->active;
        if (c->next && c->next->run == run)
            return c->next;
    }
    return s->fetch && s->fetch->run == run ? s->fetch : NULL;
}

/* S3: the memory is freed once the worker and the reads have finished; a request without an END then waits again. */
static void finish_run(struct sy_sched *s, struct request *r)
{
    if (!r->worker_through || r->n_reads > 0)
        return;
    if (r == s->fetch) {
        sy_sched_end_fetch(s);
        return;
    }
    sy_sched_unpin(s, r);
    struct slice *c = sy_sched_slice_of(s, r);
    bool was_active = c->active == r;
    if (was_active)
        c->active = NULL;
    else
        c->next = NULL;
    if (r->ended) {
        if (was_active)
            sy_admission_done(c->admission);
        else
            (void)sy_admission_cancel(c->admission, r->id);
        sy_sched_forget_workspace(s, r);
        sy_sched_free_request(r);
        return;
    }
    if (was_active)
        sy_sched_leave_device(s, r);
    r->worker = -1;
    r->n_loaded = 0;
    r->run_sent = r->restarting = r->worker_through = r->interrupted = false;
    sy_sched_push(s, r);
}

void sy_sched_arrived(struct sy_sched *s, int worker, uint64_t run, uint64_t n)
{
    struct request *r = find_run(s, run);
    for (int g = 0; r && r->worker == worker && s->image_residency && g < r->n_loaded; g++)
        r->pool_arrived[g] |= (uint64_t)g < n;
}

static void cancel_reads(struct sy_sched *s, struct request *r)
{
    if (r->n_reads > 0)
        sy_sched_act(s, SY_DO_CANCEL_READ)->run = r->run;
}

static void end_canceled(struct sy_sched *s, struct request *r)
{
    sy_sched_end(s, r, SY_ECANCELED,
                 r->run_sent ? "canceled while it ran" : "canceled while it loaded");
}

int sy_sched_run_done(struct sy_sched *s, int worker, uint64_t run, int status, const char *why)
{
    struct request *r = find_run(s, run);
    if (!r || r->worker != worker || r->worker_through)
        return sy_error_set(SY_EPROTO,
                            "worker %d says that run %llu is done, which it does not have", worker,
                            (unsigned long long)run);
    if (status == SY_OK && !r->run_sent && r != s->fetch)
        return sy_error_set(SY_EPROTO, "worker %d ended run %llu before it was told to run", worker,
                            (unsigned long long)run);
    r->worker_through = true;
    s->workers[worker] = WORKER_IDLE;
    if (status == SY_OK && s->image_residency)
        for (int g = 0; g < r->n_loaded; g++)
            r->pool_arrived[g] = true;
    if (r == s->fetch && status < 0 && !r->restarting) /* do not repeat a failed fetch */
        (void)sy_residency_set_head(s->pool_residency, r->model, 0, 0);
    bool again = r == s->fetch || r->restarting || (r->interrupted && status == SY_ECANCELED);
    if (!again)
        sy_sched_end(s, r, status, why);
    else if (r->canceled)
        end_canceled(s, r);
    cancel_reads(s, r);
    finish_run(s, r);
    sy_sched_step(s);
    return SY_OK;
}

void sy_sched_read_done(struct sy_sched *s, uint64_t run, int first_group, int n_groups,
                        const bool *arrived)
{
    struct request *r = find_run(s, run);
    assert(r && r->n_reads > 0);
    bool *flags = s->image_residency ? r->image_arrived : r->pool_arrived;
    for (int g = 0; g < n_groups; g++)
        flags[first_group + g] |= arrived[g];
    r->n_reads--;
    finish_run(s, r);
    sy_sched_step(s);
}

/* ---- workers ---------------------------------------------------------------------------------- */

void sy_sched_worker_ready(struct sy_sched *s, int worker)
{
    assert(worker >= 0 && worker < s->config.n_workers);
    assert(s->workers[worker] == WORKER_AWAY);
    s->workers[worker] = WORKER_IDLE;
    sy_sched_step(s);
}

void sy_sched_worker_loads(struct sy_sched *s, int worker, int n_models)
{
    s->n_loading[worker] = n_models;
    if (n_models == 0)
        sy_sched_step(s);
}

static void lose_run(struct sy_sched *s, struct request *r, const struct sy_sched_loss *loss)
{
    char text[256];
    r->worker_through = true;
    r->deaths += r != s->fetch && loss->heard;
    if (r->deaths >= SY_SCHED_MOST_DEATHS) {
        snprintf(text, sizeof text, "%d workers died with this request; the last one: %s",
                 SY_SCHED_MOST_DEATHS, loss->why);
        sy_sched_end(s, r, SY_EPEER, text);
    } else if (r->canceled) {
        end_canceled(s, r);
    }
    cancel_reads(s, r);
    finish_run(s, r);
}

static void lose_run_of(struct sy_sched *s, struct request *r, int worker,
                        const struct sy_sched_loss *loss)
{
    if (r && r->worker == worker && !r->worker_through)
        lose_run(s, r, loss);
}

static void lose_preparation(struct sy_sched *s, int worker)
{
    for (struct request *r = s->waiting, *next; r; r = next) {
        next = r->next;
        if (!r->preparing || r->worker != worker)
            continue;
        r->preparing = false;
        r->worker = -1;
        if (++r->deaths >= SY_SCHED_MOST_DEATHS)
            sy_sched_drop_waiting(s, r, SY_EPEER,
                                  "three workers died with it, the last one while it prepared this "
                                  "batch size, or these sizes");
    }
}

void sy_sched_worker_lost(struct sy_sched *s, int worker, const struct sy_sched_loss *loss)
{
    assert(worker >= 0 && worker < s->config.n_workers);
    s->workers[worker] = loss->comes_back ? WORKER_AWAY : WORKER_GONE;
    for (struct slice *c = s->slices; c < s->slices + s->n_made; c++) {
        lose_run_of(s, c->next, worker, loss);
        lose_run_of(s, c->active, worker, loss);
    }
    lose_run_of(s, s->fetch, worker, loss);
    sy_sched_workspaces_lost(s, worker);
    lose_preparation(s, worker);
    sy_sched_job_lost(s, worker, loss);
    sy_sched_step(s);
}

/* ---- runs that are prepared ------------------------------------------------------------------- */

/* The entry of these sizes, else the least recently used one. */
static struct workspace *workspace_for(struct sy_sched *s, const struct sy_sched_prepared *p)
{
    struct workspace *all = s->models[p->model].workspaces, *oldest = &all[0];
    struct workspace *known = sy_sched_find_workspace(s, p->model, p->batch, p->sizes, p->team);
    if (known)
        return known;
    for (int i = 1; i < SY_SCHED_WORKSPACES; i++)
        if (all[i].used < oldest->used)
            oldest = &all[i];
    *oldest = (struct workspace){.batch = p->batch, .sizes = p->sizes, .team = p->team};
    return oldest;
}

static void note_workspace(struct sy_sched *s, const struct sy_sched_prepared *p)
{
    struct workspace *w = workspace_for(s, p);
    w->bytes = p->workspace_bytes;
    w->workers |= p->worker < 0 ? SY_SCHED_ALL_WORKERS : 1ull << p->worker;
    w->used = ++s->last_use;
}

void sy_sched_workspace(struct sy_sched *s, const struct sy_sched_prepared *p)
{
    assert(p->worker < s->config.n_workers);
    if (p->worker >= 0 && s->n_preparing[p->worker] > 0)
        s->n_preparing[p->worker]--;
    if (p->model < 0 || p->model >= SY_SCHED_MAX_MODELS || !s->models[p->model].used ||
        p->batch < 1)
        return;
    if (p->status == SY_OK)
        note_workspace(s, p);
    for (struct request *r = s->waiting, *next; r; r = next) {
        next = r->next;
        if (r->model != p->model || r->batch != p->batch || r->sizes != p->sizes || !r->preparing)
            continue;
        r->preparing = false;
        r->worker = -1;
        if (p->status < 0)
            sy_sched_drop_waiting(s, r, p->status, p->why);
    }
    sy_sched_step(s);
}

/* ---- jobs ------------------------------------------------------------------------------------- */

static void end_turn(struct sy_sched *s, struct job *j)
{
    if (!j->has_turn)
        return;
    int status = sy_lanes_end(s->lanes, j->id);
    assert(status == SY_OK);
    j->has_turn = j->keeps = false;
}

int sy_sched_job_prepared(struct sy_sched *s, int worker, uint64_t id, uint64_t persistent_bytes,
                          uint64_t ephemeral_bytes, uint64_t total_iterations)
{
    struct job *j;
    SY_TRY(sy_sched_find_job(s, worker, id, &j));
    if (j->state != JOB_PREPARING || persistent_bytes == 0 || ephemeral_bytes == 0 ||
        ((j->in_lanes || j->in_spill) &&
         (persistent_bytes > j->persistent_bytes || ephemeral_bytes > j->ephemeral_bytes)))
        return sy_error_set(SY_EPROTO,
                            "job %llu: JOB_PREPARED out of turn, or of other sizes than before",
                            (unsigned long long)id);
    j->state = JOB_PREPARED;
    j->total_iterations = total_iterations;
    if (!j->in_lanes) {
        j->persistent_bytes = persistent_bytes;
        j->ephemeral_bytes = ephemeral_bytes;
        if (!j->in_spill)
            sy_sched_join_lanes(s, j);
    }
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_job_started(struct sy_sched *s, int worker, uint64_t id, uint64_t iterations_done)
{
    struct job *j;
    SY_TRY(sy_sched_find_job(s, worker, id, &j));
    if (j->state != JOB_STARTING)
        return sy_error_set(SY_EPROTO, "job %llu: JOB_STARTED out of turn", (unsigned long long)id);
    end_turn(s, j);
    j->state = JOB_RUNNING;
    j->in_spill = false;
    SY_TRY(sy_sched_join_policy(s, j));
    sy_sched_note_progress(s, j, iterations_done);
    sy_sched_sync_blocked(s, j);
    if (j->stop_wanted)
        sy_sched_act_job(s, SY_DO_JOB_STOP, j);
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_job_turn_over(struct sy_sched *s, int worker, uint64_t id, uint64_t iterations_done,
                           sy_ns busy_ns)
{
    struct job *j;
    SY_TRY(sy_sched_find_job(s, worker, id, &j));
    if (j->state != JOB_RUNNING || !j->has_turn || iterations_done < j->iterations_done)
        return sy_error_set(SY_EPROTO, "job %llu: JOB_TURN_OVER out of turn",
                            (unsigned long long)id);
    if (j->preempted)
        sy_sched_act_job(
            s, SY_DO_RESUME,
            j); /* the job ended before it saw the epoch: its next turn must not find it odd */
    j->preempted = j->still = false;
    end_turn(s, j);
    SY_TRY(sy_policy_done_many(s->slices[j->slice].policy, id, iterations_done - j->iterations_done,
                               busy_ns, s->now));
    sy_sched_note_progress(s, j, iterations_done);
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_job_paused(struct sy_sched *s, int worker, uint64_t id)
{
    struct job *j;
    SY_TRY(sy_sched_find_job(s, worker, id, &j));
    if (j->state != JOB_RUNNING || !j->has_turn)
        return sy_error_set(SY_EPROTO, "job %llu: JOB_PAUSED out of turn", (unsigned long long)id);
    j->still = j->preempted;
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_job_ended(struct sy_sched *s, int worker, uint64_t id)
{
    struct job *j;
    SY_TRY(sy_sched_find_job(s, worker, id, &j));
    if (j->preempted)
        sy_sched_act_job(s, SY_DO_RESUME, j); /* the worker's next job must not find an odd epoch */
    s->workers[worker] = WORKER_IDLE;
    sy_sched_remove_job(s, j);
    sy_sched_step(s);
    return SY_OK;
}

void sy_sched_job_lost(struct sy_sched *s, int worker, const struct sy_sched_loss *loss)
{
    struct job *j = s->jobs;
    while (j && (j->state == JOB_QUEUED || j->worker != worker))
        j = j->next;
    if (!j)
        return;
    if (j->state >= JOB_STARTING) /* before this state the job is as it was queued */
        j->in_memory =
            j->admitted && loss->state_intact && !j->in_spill &&
            (j->state == JOB_RUNNING || j->state == JOB_STARTING || j->state == JOB_SPILLING);
    /* Otherwise the worker died for another reason. */
    bool at_work = loss->heard && (j->has_turn || j->state == JOB_PREPARING ||
                                   j->state == JOB_SPILLING || j->state == JOB_RETURNING);
    if (j->has_turn && j->state == JOB_RUNNING)
        (void)sy_policy_undo(s->slices[j->slice].policy, j->id);
    end_turn(s, j);
    j->state = JOB_QUEUED;
    j->worker = -1;
    j->for_team = j->preempted = j->still = false;
    sy_sched_sync_blocked(s, j);
    j->deaths = (loss->job_progressed ? 0 : j->deaths) + at_work;
    if (j->deaths < SY_SCHED_MOST_DEATHS && !j->stop_wanted)
        return; /* S6 */
    sy_sched_refuse_job(s, j, SY_EPEER, loss->why);
    sy_sched_remove_job(s, j);
}

/* State in memory is laid out for the number of compute units that the job had. Without a snapshot it continues from there, and is not asked again: the
 * snapshot would fail once more. */
static void end_team(struct job *j, bool has_snapshot)
{
    if (!j->for_team)
        return;
    j->for_team = false;
    j->in_memory = !has_snapshot;
    j->moves = j->moves && has_snapshot;
}

int sy_sched_job_left(struct sy_sched *s, int worker, uint64_t id, bool has_snapshot)
{
    struct job *j;
    SY_TRY(sy_sched_find_job(s, worker, id, &j));
    if (j->state != JOB_LEAVING)
        return sy_error_set(SY_EPROTO, "job %llu: JOB_LEFT out of turn", (unsigned long long)id);
    end_team(j, has_snapshot);
    s->workers[worker] = WORKER_IDLE;
    j->state = JOB_QUEUED;
    j->worker = -1;
    if (j->in_lanes &&
        !j->in_memory) { /* none of its state is in memory: it joins the queue again */
        (void)sy_lanes_leave(s->lanes, id);
        s->admission_stuck = false;
        j->in_lanes = j->admitted = false;
    }
    if (j->stop_wanted) {
        sy_sched_refuse_job(s, j, SY_ECANCELED, "stopped while it left its worker");
        sy_sched_remove_job(s, j);
    }
    sy_sched_step(s);
    return SY_OK;
}

static int find(struct sy_sched *s, int worker, uint64_t id, enum job_state state, struct job **out)
{
    struct job *j = s->jobs;
    while (j && j->id != id)
        j = j->next;
    if (!j || j->worker != worker || j->state != state)
        return sy_error_set(SY_EPROTO, "worker %d: job %llu does not travel that way", worker,
                            (unsigned long long)id);
    *out = j;
    return SY_OK;
}

int sy_sched_job_spilled(struct sy_sched *s, int worker, uint64_t id, bool worked)
{
    struct job *j;
    SY_TRY(find(s, worker, id, JOB_SPILLING, &j));
    if (worked) {
        (void)sy_lanes_leave(s->lanes, id);
        s->admission_stuck = false;
        j->in_lanes = j->admitted = j->in_memory = false;
        j->in_spill = true;
        j->state = JOB_SPILLED;
        j->spill_pause_ns = 0;
    } else {
        sy_sched_spill_failed(s, j);
        j->state = JOB_RUNNING;
    }
    sy_sched_sync_blocked(s, j);
    sy_sched_step(s);
    return SY_OK;
}

int sy_sched_job_returned(struct sy_sched *s, int worker, uint64_t id)
{
    struct job *j;
    SY_TRY(find(s, worker, id, JOB_RETURNING, &j));
    j->state = JOB_RUNNING;
    j->in_spill = false;
    (void)sy_sched_join_policy(s, j);
    sy_sched_sync_blocked(s, j);
    sy_sched_step(s);
    return SY_OK;
}
