/* How runs end, and what becomes of them when their worker does. */
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

/* S3: memory goes back when the worker and the reads are through; a request that has no END then waits again. */
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
    if (r == s->fetch && status < 0 && !r->restarting) /* not again and again */
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

int sy_sched_idle_worker(const struct sy_sched *s)
{
    for (int w = 0; w < s->config.n_workers; w++)
        if (s->workers[w] == WORKER_IDLE)
            return w;
    return -1;
}

void sy_sched_worker_ready(struct sy_sched *s, int worker)
{
    assert(worker >= 0 && worker < s->config.n_workers);
    assert(s->workers[worker] == WORKER_AWAY);
    s->workers[worker] = WORKER_IDLE;
    sy_sched_step(s);
}

static void lose_run(struct sy_sched *s, struct request *r, const char *why)
{
    char text[256];
    r->worker_through = true;
    if (r != s->fetch && ++r->deaths >= SY_SCHED_MOST_DEATHS) {
        snprintf(text, sizeof text, "%d workers died with this request; the last one: %s",
                 SY_SCHED_MOST_DEATHS, why);
        sy_sched_end(s, r, SY_EPEER, text);
    } else if (r->canceled) {
        end_canceled(s, r);
    }
    cancel_reads(s, r);
    finish_run(s, r);
}

static void lose_run_of(struct sy_sched *s, struct request *r, int worker, const char *why)
{
    if (r && r->worker == worker && !r->worker_through)
        lose_run(s, r, why);
}

/* S4: with no worker that could take requests, they must not wait for ever. */
void sy_sched_end_hopeless(struct sy_sched *s)
{
    int n = 0;
    for (int w = 0; w < s->config.n_workers; w++)
        n += s->workers[w] != WORKER_GONE && s->workers[w] != WORKER_JOB;
    while (n == 0 && s->waiting)
        sy_sched_drop_waiting(s, s->waiting, SY_EPEER,
                              "no worker is left that could run it; see the log for why they died");
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

void sy_sched_worker_lost(struct sy_sched *s, int worker, bool state_intact, bool job_progressed,
                          bool comes_back, const char *why)
{
    assert(worker >= 0 && worker < s->config.n_workers);
    s->workers[worker] = comes_back ? WORKER_AWAY : WORKER_GONE;
    for (struct slice *c = s->slices; c < s->slices + s->n_made; c++) {
        lose_run_of(s, c->next, worker, why);
        lose_run_of(s, c->active, worker, why);
    }
    lose_run_of(s, s->fetch, worker, why);
    sy_sched_workspaces_lost(s, worker);
    lose_preparation(s, worker);
    sy_sched_job_lost(s, worker, state_intact, job_progressed, why);
    sy_sched_step(s);
}
