/* A simulated worker's training job. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/wire/control_page.h"
#include "runtime/wire/messages.h"
#include "tests/simulation/sim_worker_internal.h"
#include "tests/simulation/sim_world.h"

#define JOB_MAGIC 0x6a6f622073746174ull

static struct sim_job *job_of(const struct sim_worker *w)
{
    SIM_CHECK(w->job < SIM_MAX_JOBS, "job %llu: a walk has fewer", (unsigned long long)w->job);
    return &sim.jobs[w->job];
}

static void forget_job(struct sim_worker *w)
{
    w->job = 0;
    w->started = w->has_turn = w->stops = w->leaves = w->is_out = w->goes_out = w->comes_back =
        false;
    atomic_store(&sim_worker_page(w)->job, 0);
    atomic_store(&sim_worker_page(w)->train_phase, SY_PHASE_NONE);
}

static void save(const struct sim_worker *w)
{
    struct sim_job *job = job_of(w);
    job->has_snapshot = true;
    job->snapshot_step = w->step;
    atomic_store(&sim_worker_page(w)->snapshot_step, w->step);
}

static void end_job(struct sim_worker *w, int status)
{
    struct sy_message m = {.id = SY_MSG_JOB_ENDED};
    if (w->started && status == SY_OK)
        save(w);
    m.job_ended = (struct sy_msg_job_ended){.job = w->job,
                                            .status = status,
                                            .error = status < 0 ? "as was drawn" : "",
                                            .step = w->step,
                                            .accuracy = -1};
    uint64_t step = w->step, job = w->job;
    if (w->leaves)
        m = (struct sy_message){.id = SY_MSG_JOB_LEFT,
                                .job_left = {.job = job, .step = step, .status = SY_OK}};
    forget_job(w);
    sim_worker_say(w, &m);
}

void sim_worker_job_prepare(struct sim_worker *w, const struct sy_msg_job_prepare *msg)
{
    SIM_CHECK(w->job == 0, "worker %d: a second job", sim_worker_index(w));
    w->job = msg->job;
    w->step = 0;
    struct sim_job *job = job_of(w);
    if (job->total == 0)
        job->total = 3 + sim_draw(60);
    w->total = job->total;
    bool bad = sim_worker_fails();
    struct sy_message m = {.id = SY_MSG_JOB_PREPARED};
    m.job_prepared = (struct sy_msg_job_prepared){.job = msg->job,
                                                  .status = bad ? SY_EARG : SY_OK,
                                                  .error = bad ? "as was drawn" : "",
                                                  .persistent_bytes = SIM_PERSISTENT,
                                                  .ephemeral_bytes = SIM_EPHEMERAL,
                                                  .total_steps = w->total};
    if (bad)
        forget_job(w);
    sim_worker_say(w, &m);
}

void sim_worker_job_start(struct sim_worker *w, const struct sy_msg_job_start *msg)
{
    struct sim_job *job = job_of(w);
    SIM_CHECK(w->job == msg->job, "JOB_START of job %llu on a worker with job %llu",
              (unsigned long long)msg->job, (unsigned long long)w->job);
    uint64_t *state = sim_worker_pool(w->persistent = msg->persistent_offset);
    SIM_CHECK(!msg->spilled || job->has_spill, "job %llu: nothing was spilled",
              (unsigned long long)w->job);
    SIM_CHECK(msg->spilled || !msg->in_memory || state[0] == (JOB_MAGIC ^ w->job),
              "job %llu: its persistent state was overwritten", (unsigned long long)w->job);
    w->step = msg->spilled        ? job->spilled_step
              : msg->in_memory    ? state[1]
              : job->has_snapshot ? job->snapshot_step
                                  : 0;
    state[0] = JOB_MAGIC ^ w->job;
    state[1] = w->step;
    struct sy_control_page *page = sim_worker_page(w);
    atomic_store(&page->job, w->job);
    atomic_store(&page->train_step, w->step);
    atomic_store(&page->snapshot_step, job->has_snapshot ? job->snapshot_step : 0);
    atomic_store(&page->train_phase, SY_PHASE_GRADIENT);
    if (sim_worker_fails()) {
        end_job(w, SY_EARG);
        return;
    }
    w->started = true;
    w->announced = 0;
    sim_worker_say(w, &(struct sy_message){.id = SY_MSG_JOB_STARTED,
                                           .job_started = {.job = w->job, .step = w->step}});
}

void sim_worker_job_turn(struct sim_worker *w, const struct sy_msg_job_turn *msg)
{
    if (w->job != msg->job || (w->stops && !w->has_turn))
        return; /* it has ended meanwhile */
    SIM_CHECK(w->started && !w->has_turn && !w->is_out && !w->goes_out && !w->comes_back,
              "job %llu: a turn out of turn", (unsigned long long)w->job);
    w->has_turn = true;
    w->ephemeral = msg->ephemeral_offset;
    *sim_worker_pool(w->ephemeral) = JOB_MAGIC ^ ~w->job;
}

void sim_worker_job_trip(struct sim_worker *w, const struct sy_message *m)
{
    bool out = m->id == SY_MSG_JOB_SPILL;
    uint64_t job = out ? m->job_spill.job : m->job_return.job;
    if (w->job != job || w->stops || w->leaves)
        return;
    SIM_CHECK(w->started && !w->has_turn && !w->goes_out && !w->comes_back && w->is_out != out,
              "job %llu: a trip out of turn", (unsigned long long)job);
    w->goes_out = out;
    w->comes_back = !out;
    if (!out)
        w->persistent = m->job_return.persistent_offset;
}

/* The persistent state has been copied wholly. */
static void end_trip(struct sim_worker *w)
{
    struct sim_job *job = job_of(w);
    struct sy_message m = {.id = SY_MSG_JOB_RETURNED,
                           .job_returned = {.job = w->job, .bytes = SIM_PERSISTENT}};
    uint64_t *state = sim_worker_pool(w->persistent);
    if (w->goes_out) {
        bool bad = sim_worker_fails();
        SIM_CHECK(state[0] == (JOB_MAGIC ^ w->job),
                  "job %llu: its persistent state was overwritten", (unsigned long long)w->job);
        job->has_spill |= !bad;
        job->spilled_step = state[1];
        w->is_out = !bad;
        m = (struct sy_message){.id = SY_MSG_JOB_SPILLED,
                                .job_spilled = {.job = w->job,
                                                .status = bad ? SY_ENOMEM_HOST : SY_OK,
                                                .error = bad ? "as was drawn" : "",
                                                .bytes = bad ? 0 : SIM_PERSISTENT}};
    } else {
        state[0] = JOB_MAGIC ^ w->job;
        state[1] = job->spilled_step;
        w->is_out = false;
    }
    w->goes_out = w->comes_back = false;
    sim_worker_say(w, &m);
}

void sim_worker_job_stop(struct sim_worker *w, uint64_t job, bool leaves)
{
    if (w->job != job || w->leaves || (leaves && w->stops))
        return;
    SIM_CHECK(!leaves || (!w->has_turn && !w->goes_out && !w->comes_back),
              "job %llu: leaves out of turn", (unsigned long long)job);
    w->leaves = leaves;
    if (!w->started)
        end_job(w, SY_ECANCELED);
    else
        w->stops = true;
}

static void stand_still(struct sim_worker *w, uint32_t epoch)
{
    if (w->announced == epoch)
        return;
    w->announced = epoch;
    sim_worker_say(w,
                   &(struct sy_message){
                       .id = SY_MSG_JOB_PAUSED,
                       .job_paused = {.job = w->job, .epoch = epoch, .paused_ns = sim_os_now()}});
}

/* One thing of its job. The time that it takes; 0: it waits. */
sy_ns sim_worker_train(struct sim_worker *w)
{
    struct sy_control_page *page = sim_worker_page(w);
    uint32_t epoch = atomic_load(&page->preempt_epoch);
    if (w->goes_out || w->comes_back) {
        end_trip(w);
        return SY_NS_PER_US;
    }
    if (!w->has_turn && w->stops) {
        end_job(w, SY_OK);
        return SY_NS_PER_US;
    }
    if (!w->has_turn)
        return 0;
    if (epoch & 1) {
        stand_still(w, epoch);
        return 200 * SY_NS_PER_US;
    }
    uint64_t *state = sim_worker_pool(w->persistent);
    SIM_CHECK(state[0] == (JOB_MAGIC ^ w->job) && state[1] == w->step,
              "job %llu: its persistent state was overwritten", (unsigned long long)w->job);
    SIM_CHECK(*sim_worker_pool(w->ephemeral) == (JOB_MAGIC ^ ~w->job),
              "job %llu: the memory of its turn was written over", (unsigned long long)w->job);
    if (w->stops || w->step >= w->total) {
        end_job(w, SY_OK);
        return SY_NS_PER_US;
    }
    state[1] = ++w->step;
    sim.n_steps++;
    atomic_store(&page->train_phase, sim_draw(4) ? SY_PHASE_GRADIENT : SY_PHASE_UPDATE);
    atomic_store(&page->train_step, w->step);
    if (sim_draw(8) == 0)
        save(w);
    if (!atomic_load(&page->turn_keeps) && !(atomic_load(&page->preempt_epoch) & 1)) {
        w->has_turn = false;
        sim_worker_say(w, &(struct sy_message){.id = SY_MSG_JOB_TURN_OVER,
                                               .job_turn_over = {.job = w->job,
                                                                 .step = w->step,
                                                                 .busy_ns = 100 * SY_NS_PER_US}});
    }
    return sim_time(150 * SY_NS_PER_US);
}
