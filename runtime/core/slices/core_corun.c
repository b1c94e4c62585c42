/* Which tasks may compute side by side. Bound models (class 0, or with a deadline of their own) are measured alone first, then beside their neighbours; pairs
 * in which they would be slower than the bound take turns, and are tried again later.
 *
 *   runs alone (the others are paused for ALONE of them) ──> runs beside b, measured ──slower than the bound──> apart from b ──RETRY, doubling──> beside b again */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/core/core_internal.h"

#define ALONE       8 /* runs; their median counts, since the first ones find cold caches */
#define BEFORE      4 /* observations of a pair before it may be separated */
#define RETRY_NS    (30 * SY_NS_PER_S)
#define MOST_RETRY  (64 * RETRY_NS)
#define FIRST_JOB   256
#define N_JOB_IDS   256
#define USUAL_BOUND 1.10
/* Values of `beside` where other slices compute no task, or several. */
#define NOBODY  (-1)
#define SEVERAL (-2) /* or the run is no measurement */

_Static_assert(FIRST_JOB == SY_MAX_MODELS && FIRST_JOB + N_JOB_IDS == SY_INTERFERENCE_TASKS, "ids");

void sy_core_corun_start(struct sy_core *core)
{
    sy_interference_start(&core->corun.slow);
    core->corun.bound = USUAL_BOUND;
}

static int id_of_job(const struct sy_core_job *j)
{
    return FIRST_JOB + (int)(j->id % N_JOB_IDS);
}

static bool promises(const struct sy_core_model *m)
{
    return m->used && m->state == SY_MODEL_READY &&
           ((m->ref.defaults.has_class && m->ref.defaults.class_ == 0) ||
            m->ref.defaults.deadline_ns > 0);
}

/* ---- pairs that take turns -------------------------------------------------------------------------- */

static void set_exclusive(struct sy_core *core, int model, int other, bool apart)
{
    if (other < FIRST_JOB) {
        (void)sy_sched_set_exclusive(core->sched, model, other, apart);
        return;
    }
    for (const struct sy_core_job *j = core->jobs; j; j = j->next)
        if (id_of_job(j) == other)
            (void)sy_sched_job_set_exclusive(core->sched, j->id, model, apart);
}

/* Whether the bound model `model` would be slower than the bound beside `other`. */
static bool must_take_turns(const struct sy_core *core, int model, int other, sy_ns now)
{
    const struct sy_core_model *m = &core->models[model];
    const struct sy_interference_pair *pair = sy_interference_find(&core->corun.slow, model, other);
    if (core->n_slices == 1 || core->corun.bound <= 0 || !promises(m))
        return false;
    if (m->corun.n_alone < ALONE)
        return true;
    if (pair && pair->n < BEFORE)
        return false;
    return sy_interference_breaks(&core->corun.slow, model, other, core->corun.bound) &&
           now < m->corun.retry_at_ns[other];
}

/* Pairs that are too slow take turns from now on. */
static void judge(struct sy_core *core, int model, int other, const char *name, sy_ns now)
{
    struct sy_core_model *m = &core->models[model];
    const struct sy_interference_pair *pair = sy_interference_find(&core->corun.slow, model, other);
    double slow = sy_interference_predict(&core->corun.slow, model, other);
    if (promises(m) && m->corun.n_alone >= ALONE &&
        sy_interference_breaks(&core->corun.slow, model, other, core->corun.bound) &&
        now >= m->corun.retry_at_ns[other] && (!pair || pair->n % BEFORE == 0)) {
        sy_ns wait = m->corun.wait_ns[other];
        wait = wait ? SY_MIN(2 * wait, MOST_RETRY) : RETRY_NS;
        m->corun.wait_ns[other] = wait;
        m->corun.retry_at_ns[other] = now + wait;
        sy_log_info("slices", "event=apart model=%s beside=%s slowdown=%.3f bound=%.3f for_s=%.0f",
                    m->name, name, slow, core->corun.bound, (double)wait / 1e9);
    }
    bool apart = must_take_turns(core, model, other, now) ||
                 (other < FIRST_JOB && must_take_turns(core, other, model, now));
    if (apart != m->corun.apart[other])
        set_exclusive(core, model, other, apart);
    m->corun.apart[other] = apart;
    if (other < FIRST_JOB)
        core->models[other].corun.apart[model] = apart;
}

static bool is_settled(const struct sy_core *core, int model)
{
    return core->models[model].used && core->models[model].state == SY_MODEL_READY &&
           !core->models[model].leaving;
}

void sy_core_corun_judge(struct sy_core *core, int model)
{
    sy_ns now = sy_clock_now();
    if (!is_settled(core, model) || core->models[model].corun.retry_at_ns == NULL)
        return;
    for (int other = 0; other < (int)SY_MAX_MODELS; other++)
        if (other != model && is_settled(core, other) && core->models[other].corun.retry_at_ns)
            judge(core, model, other, core->models[other].name, now);
    for (const struct sy_core_job *j = core->jobs; j; j = j->next)
        if (j->state != SY_JOB_ENDED && j->state != SY_JOB_FAILED)
            judge(core, model, id_of_job(j), j->name, now);
}

void sy_core_corun_judge_all(struct sy_core *core)
{
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        sy_core_corun_judge(core, i);
}

/* ---- measuring ---------------------------------------------------------------------------------- */

/* The task that computes in another slice than `slice`, NOBODY, or SEVERAL. */
static int neighbour(const struct sy_core *core, int slice)
{
    int found = NOBODY;
    for (const struct sy_core_request *r = core->requests; r; r = r->next)
        if (r->run && r->slice != slice && r->report.worker >= 0 &&
            sy_sched_computes(core->sched, r->report.worker))
            found = found == NOBODY ? r->model : SEVERAL;
    for (const struct sy_core_job *j = core->jobs; j; j = j->next)
        if (j->since_ns)
            found = found == NOBODY ? id_of_job(j) : SEVERAL;
    return found;
}

void sy_core_corun_begins(struct sy_core *core, struct sy_core_request *r, bool continued)
{
    r->beside = continued ? SEVERAL : neighbour(core, r->slice);
}

/* The error of predicting undisturbed runs in the same blocks: a pair's prediction cannot be better. */
static void note_block(struct sy_core_corun_model *of)
{
    unsigned n = SY_ARRAY_LEN(of->recent), n_blocks = of->n_alone / SY_INTERFERENCE_BLOCK;
    if (of->n_alone % SY_INTERFERENCE_BLOCK != 0)
        return;
    double is = sy_interference_median(of->recent + (of->n_alone - SY_INTERFERENCE_BLOCK) % n,
                                       SY_INTERFERENCE_BLOCK);
    if (n_blocks > 1)
        of->alone_error += (fabs(of->alone_block - is) / is - of->alone_error) /
                           SY_MIN(n_blocks - 1, SY_INTERFERENCE_BLOCK);
    of->alone_block = of->alone;
}

static void note_lost(struct sy_core_corun_model *of, bool beside, sy_ns took, sy_ns lost)
{
    of->lost[beside] += ((double)lost / (double)took - of->lost[beside]) / 32;
}

/* An undisturbed run: learns its time, and its memory traffic (weights once, workspace written and read). */
static void note_alone(struct sy_core *core, int model, double scale, sy_ns took)
{
    struct sy_core_model *m = &core->models[model];
    unsigned n = SY_ARRAY_LEN(m->corun.recent);
    m->corun.recent[m->corun.n_alone++ % n] = (float)scale;
    m->corun.alone = sy_interference_median(m->corun.recent, SY_MIN(m->corun.n_alone, n));
    note_block(&m->corun);
    if (m->package)
        sy_interference_profile(&core->corun.slow, model,
                                (double)(m->package->weights_bytes +
                                         2 * (m->n_workspaces ? m->workspaces[0].bytes : 0)) /
                                    (double)took);
}

/* Counts whole runs without copies, each beside one neighbour from beginning to end, by the time that the run had its core: while it had none, some other
 * thread computed there, never the neighbour, which is confined to its own cores. */
void sy_core_corun_ends(struct sy_core *core, const struct sy_core_request *r, sy_ns took,
                        sy_ns lost)
{
    struct sy_core_model *m = &core->models[r->model];
    int beside = neighbour(core, r->slice);
    if (core->n_slices == 1 || r->guess.moves || r->guess.ns == 0 || took <= lost ||
        !m->corun.retry_at_ns)
        return;
    double scale = (double)(took - lost) / (double)r->guess.ns;
    if (r->beside != SEVERAL)
        note_lost(&m->corun, r->beside != NOBODY, took, lost);
    if (beside == NOBODY && r->beside == NOBODY) {
        note_alone(core, r->model, scale, took - lost);
    } else if (beside >= 0 && beside == r->beside && m->corun.n_alone >= ALONE) {
        sy_interference_observe(&core->corun.slow, r->model, beside, scale / m->corun.alone);
    }
    sy_core_corun_judge(core, r->model);
}

/* Forgets all measurements of the task beside others, and of others beside it. */
static void forget_task(struct sy_core *core, int task)
{
    for (int i = 0; i < (int)SY_MAX_MODELS; i++) {
        struct sy_core_corun_model *of = &core->models[i].corun;
        if (of->retry_at_ns)
            of->retry_at_ns[task] = of->wait_ns[task] = 0;
    }
    sy_interference_forget(&core->corun.slow, task);
}

/* Its slice has other cores, or the model changed: its time alone must be measured again. */
void sy_core_corun_reset(struct sy_core *core, int model)
{
    struct sy_core_model *m = &core->models[model];
    if (!m->corun.retry_at_ns)
        m->corun.retry_at_ns = calloc(2 * SY_INTERFERENCE_TASKS, sizeof(sy_ns));
    if (m->corun.retry_at_ns) /* same allocation: both exist or neither */
        m->corun.wait_ns = m->corun.retry_at_ns + SY_INTERFERENCE_TASKS;
    if (!m->corun.apart)
        m->corun.apart = calloc(SY_INTERFERENCE_TASKS, sizeof(bool));
    if (!m->corun.retry_at_ns || !m->corun.apart) {
        sy_core_corun_leave(core, model);
        sy_log_warn("slices", "event=not_measured model=%s why=\"no memory\"", m->name);
        return;
    }
    memset(m->corun.retry_at_ns, 0, 2 * SY_INTERFERENCE_TASKS * sizeof(sy_ns));
    forget_task(core, model);
    m->corun.n_alone = 0;
    m->corun.alone = m->corun.alone_block = m->corun.alone_error = 0;
    m->corun.lost[0] = m->corun.lost[1] = 0;
}

void sy_core_corun_leave(struct sy_core *core, int model)
{
    struct sy_core_model *m = &core->models[model];
    for (int other = 0; m->corun.apart && other < SY_INTERFERENCE_TASKS; other++)
        if (m->corun.apart[other])
            set_exclusive(core, model, other, false);
    forget_task(core, model);
    for (int other = 0; other < (int)SY_MAX_MODELS; other++)
        if (core->models[other].corun.apart)
            core->models[other].corun.apart[model] = false;
    free(m->corun.retry_at_ns);
    free(m->corun.apart);
    memset(&m->corun, 0, sizeof m->corun);
}

/* Job ids wrap after N_JOB_IDS: measurements under this id belong to an earlier job. */
void sy_core_corun_forget_job(struct sy_core *core, const struct sy_core_job *j)
{
    int task = id_of_job(j);
    for (int i = 0; i < (int)SY_MAX_MODELS; i++) {
        bool *apart = core->models[i].corun.apart;
        if (apart && apart[task])
            set_exclusive(core, i, task, false);
        if (apart)
            apart[task] = false;
    }
    forget_task(core, task);
}

/* ---- status ------------------------------------------------------------------------------------- */

static const char *name_of(const struct sy_core *core, int task)
{
    if (task < FIRST_JOB)
        return core->models[task].used ? core->models[task].name : "?";
    const struct sy_core_job *found = NULL;
    for (const struct sy_core_job *j = core->jobs; j; j = j->next)
        if (id_of_job(j) == task)
            found = j;
    return found ? found->name : "?";
}

json_t *sy_core_corun_json(const struct sy_core *core)
{
    json_t *list = json_array();
    for (int k = 0; k < SY_INTERFERENCE_PAIRS; k++) {
        const struct sy_interference_pair *p = &core->corun.slow.pairs[k];
        if (p->n == 0)
            continue;
        const struct sy_core_corun_model *of = p->a < FIRST_JOB ? &core->models[p->a].corun : NULL;
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b}",
                      "task", name_of(core, p->a), "beside", name_of(core, p->b), "n", (int)p->n,
                      "slowdown", p->slowdown, "first_predicted", p->predicted, "first_error",
                      p->first_error, "error", p->next_error, "none_first_error", p->none_first,
                      "none_error", p->none_next, "alone", of ? of->alone : 0, "alone_error",
                      of ? of->alone_error : 0, "lost_alone", of ? of->lost[0] : 0, "lost_beside",
                      of ? of->lost[1] : 0, "takes_turns",
                      (int)(of && of->apart && of->apart[p->b])));
    }
    return list;
}
