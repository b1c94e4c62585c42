#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/wire/control_page.h"
#include "runtime/wire/messages.h"
#include "tests/simulation/sim_world.h"

#define JOB_MAGIC 0x6a6f622073746174ull
#define RUN_MAGIC 0x72756e2073707065ull

static int index_of(const struct sim_worker *w)
{
    return (int)(w - sim.workers);
}

static struct sy_control_page *page_of(const struct sim_worker *w)
{
    return sy_supervisor_page(sim.core->supervisor, index_of(w));
}

static uint64_t *at_pool(uint64_t offset)
{
    return (uint64_t *)(sim.pool + offset);
}

uint64_t sim_group_mark(int model, int group)
{
    return 0x77656967687400ull << 8 | (unsigned)model << 8 | (unsigned)group;
}

/* ---- life --------------------------------------------------------------------------------------- */

void sim_worker_spawned(void *world, int pid, int index, int fd)
{
    struct sim_worker *w = &sim.workers[index];
    (void)world;
    SIM_CHECK(w->pid == 0, "worker %d was started twice", index);
    *w = (struct sim_worker){.pid = pid, .fd = fd};
    w->wake_ns = sim_os_now() + sim_time(SY_NS_PER_MS);
    sim_say("worker %d: starts", index);
}

static void leave_world(struct sim_worker *w)
{
    int pid = w->pid;
    if (!w->closed)
        close(w->fd);
    w->pid = 0;
    sim_say("worker %d: is gone", index_of(w));
    sim_os_exit(pid, w->wait_status);
}

static void will_exit(struct sim_worker *w, int wait_status, sy_ns in)
{
    w->exits = true;
    w->wait_status = wait_status;
    w->wake_ns = sim_os_now() + in;
}

void sim_worker_killed(void *world, int pid)
{
    (void)world;
    for (struct sim_worker *w = sim.workers; w < sim.workers + sim.n_workers; w++)
        if (w->pid == pid)
            will_exit(w, 9, sim_time(200 * SY_NS_PER_US));
}

void sim_workers_beat(void)
{
    for (struct sim_worker *w = sim.workers; w < sim.workers + sim.n_workers; w++)
        if (w->pid && !w->hangs && !w->exits)
            atomic_store_explicit(&page_of(w)->heartbeat_ns, sim_os_now(), memory_order_relaxed);
}

/* ---- saying ------------------------------------------------------------------------------------- */

static void send_packet(const struct sim_worker *w, const void *bytes, size_t n)
{
    if (!w->closed && send(w->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        sim_say("worker %d: nobody hears it", index_of(w));
}

static void say(const struct sim_worker *w, const struct sy_message *m)
{
    unsigned char bytes[4096];
    size_t n;
    SIM_CHECK(sy_message_encode(m, bytes, sizeof bytes, &n) == SY_OK, "%s", sy_error_text());
    sim_say("worker %d: %s", index_of(w), sy_message_name((int)m->id));
    send_packet(w, bytes, n);
}

static void say_run_done(const struct sim_worker *w, uint64_t run, int status, uint64_t next_layer,
                         size_t n_spans)
{
    static uint64_t spans[4 * SIM_MAX_GROUPS + 4];
    struct sy_message m = {.id = SY_MSG_RUN_DONE};
    uint64_t n_arrived = 0;
    while (n_arrived < (uint64_t)w->n_groups && w->groups[n_arrived].is_here)
        n_arrived++;
    m.run_done = (struct sy_msg_run_done){.run = run,
                                          .status = status,
                                          .error = status < 0 ? "as was drawn" : "",
                                          .received_ns = sim_os_now(),
                                          .first_layer_ns = sim_os_now() - 1000,
                                          .end_ns = sim_os_now(),
                                          .n_arrived = n_arrived,
                                          .next_layer = next_layer,
                                          .spans = {n_spans, spans}};
    say(w, &m);
}

static void end_run(struct sim_worker *w, int status, uint64_t next_layer)
{
    say_run_done(w, w->run, status, next_layer, status == SY_OK ? 4 * (size_t)w->n_groups : 0);
    w->loaded = w->told_to_run = w->fetches = false;
}

/* ---- faults ------------------------------------------------------------------------------------- */

static void say_damaged(const struct sim_worker *w)
{
    static unsigned char large[SY_MESSAGE_MAX_BYTES + 4096];
    unsigned char bytes[256];
    size_t n = 1 + sim_draw(sizeof bytes - 1);
    struct sy_message ready = {.id = SY_MSG_READY, .ready = {.worker = (uint64_t)index_of(w)}};
    uint64_t kind = sim_draw(4);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)sim_draw(256);
    if (kind == 0)
        SIM_CHECK(sy_message_encode(&ready, bytes, sizeof bytes, &n) == SY_OK, "no READY");
    if (kind == 3)
        send_packet(w, large, sizeof large);
    else
        send_packet(w, bytes, kind == 0 ? n - 1 : kind == 1 ? 0 : n);
}

/* Well formed, and not for it to say now. */
static void say_unfit(const struct sim_worker *w)
{
    const struct sim_worker *other = &sim.workers[sim_draw((uint64_t)sim.n_workers)];
    uint64_t job = sim_draw(2) ? other->job : 99;
    struct sy_message messages[] = {
        {.id = SY_MSG_JOB_STARTED, .job_started = {.job = job, .step = 7}},
        {.id = SY_MSG_CANCEL, .cancel = {.run = w->run}},
        {.id = SY_MSG_MODEL_ADDED, .model_added = {.model = 1ull << 60, .error = ""}},
        {.id = SY_MSG_HELLO, .hello = {.version = SY_WIRE_VERSION + 1, .engine = ""}},
        {.id = SY_MSG_JOB_PAUSED, .job_paused = {.job = job, .epoch = 1}},
        {.id = SY_MSG_JOB_SPILLED, .job_spilled = {.job = job, .error = ""}},
        {.id = SY_MSG_JOB_RETURNED, .job_returned = {.job = job}},
        {.id = SY_MSG_READY, .ready = {.worker = 0}},
    };
    uint64_t kind = sim_draw(SY_ARRAY_LEN(messages) + 3);
    if (kind < SY_ARRAY_LEN(messages))
        say(w, &messages[kind]);
    else if (other != w)
        say_run_done(w, other->run, sim_draw(2) ? SY_OK : SY_EARG, 0, 0);
    else if (w->told_to_run) /* of a run that it fetches it would be believed */
        say_run_done(w, w->run, SY_OK, UINT64_MAX, 4 * SIM_MAX_GROUPS);
}

/* True: it does not do what it was about to do. */
static bool strikes(struct sim_worker *w)
{
    if (sim.calm || sim.fault_one_in == 0 || sim_draw(sim.fault_one_in) > 0)
        return false;
    uint64_t kind = sim_draw(12);
    static const char *const words[] = {"dies",
                                        "dies",
                                        "exits",
                                        "hangs",
                                        "closes its socket",
                                        "says garbage",
                                        "says what is not for it",
                                        "says what is not for it",
                                        "is late",
                                        "is late",
                                        "is late",
                                        "is stopped and dies"};
    sim.n_faults++;
    sim_say("worker %d: %s", index_of(w), words[kind]);
    switch (kind) {
    case 0:
    case 1:
        will_exit(w, 9, 0);
        return true;
    case 2:
        will_exit(w, 3 << 8, 0);
        return true;
    case 3:
        w->hangs = true;
        return true;
    case 4:
        close(w->fd);
        w->closed = true;
        return false;
    case 5:
        say_damaged(w);
        return false;
    case 6:
    case 7:
        say_unfit(w);
        return false;
    case 11:
        w->hangs = true;
        will_exit(w, 11, sim_time(SY_NS_PER_S));
        return true;
    default:
        w->wake_ns = sim_os_now() + sim_time(300 * SY_NS_PER_MS);
        return false;
    }
}

/* Now and then a thing that can be done fails, in words. */
static bool fails(void)
{
    return !sim.calm && sim.fault_one_in && sim_draw(sim.fault_one_in * 2) == 0;
}

/* ---- models and runs ---------------------------------------------------------------------------- */

static void prepared(const struct sim_worker *w, const struct sy_msg_prepare *p)
{
    bool bad = fails();
    struct sy_message m = {.id = SY_MSG_PREPARED};
    m.prepared = (struct sy_msg_prepared){.model = p->model,
                                          .batch = p->batch,
                                          .team = p->team,
                                          .sizes = p->sizes,
                                          .status = bad ? SY_EUNSUPPORTED : SY_OK,
                                          .error = bad ? "as was drawn" : "",
                                          .workspace_bytes = FAKE_WORKSPACE * p->batch,
                                          .took_ns = SY_NS_PER_MS};
    say(w, &m);
}

static void add_model(const struct sim_worker *w, const struct sy_msg_model_add *add)
{
    struct sy_message m = {.id = SY_MSG_MODEL_ADDED};
    bool bad = fails();
    for (size_t i = 0; i < add->warm_batches.n; i++)
        prepared(w, &(struct sy_msg_prepare){.model = add->model, .batch = add->warm_batches.v[i]});
    m.model_added = (struct sy_msg_model_added){.model = add->model,
                                                .status = bad ? SY_EUNSUPPORTED : SY_OK,
                                                .error = bad ? "as was drawn" : ""};
    say(w, &m);
}

static void load(struct sim_worker *w, const struct sy_msg_load *msg)
{
    SIM_CHECK(!w->loaded || w->run == msg->run, "worker %d: LOAD of run %llu beside run %llu",
              index_of(w), (unsigned long long)msg->run, (unsigned long long)w->run);
    if (!w->loaded)
        w->n_groups = 0;
    w->loaded = true;
    w->run = msg->run;
    w->model = msg->model;
    for (size_t i = 0; i < msg->arrivals.n; i++) {
        SIM_CHECK(w->n_groups < SIM_MAX_GROUPS, "more groups than models have");
        w->groups[w->n_groups++] = (struct sim_group){
            .offset = msg->pool_offsets.v[i],
            .image_offset = msg->image_offsets.n ? msg->image_offsets.v[i] : 0,
            .word = msg->arrivals.v[i],
            .after_group = (int32_t)msg->after_group.v[i] - 1,
            .resident = msg->resident.v[i] == SY_LOAD_RESIDENT,
            .direct = msg->resident.v[i] == SY_LOAD_DIRECT,
        };
    }
    atomic_store(&page_of(w)->run_progress, w->run << 16);
}

/* The request has it, whichever of its runs. */
static uint64_t workspace_mark(const struct sim_worker *w)
{
    return RUN_MAGIC ^ w->outputs[0];
}

static void run(struct sim_worker *w, const struct sy_msg_run *msg)
{
    SIM_CHECK(w->loaded && w->run == msg->run && !w->told_to_run,
              "worker %d: RUN %llu, which was not LOADed", index_of(w),
              (unsigned long long)msg->run);
    SIM_CHECK(msg->parts >= 1 && msg->parts <= SIM_MAX_PARTS && msg->inputs.n == msg->parts,
              "RUN of %llu parts", (unsigned long long)msg->parts);
    w->batch = msg->batch;
    w->n_parts = msg->parts;
    w->workspace = msg->workspace_offset;
    w->first_layer = msg->first_layer;
    w->told_to_run = true;
    memcpy(w->inputs, msg->inputs.v, w->n_parts * sizeof *w->inputs);
    memcpy(w->outputs, msg->outputs.v, w->n_parts * sizeof *w->outputs);
    SIM_CHECK(msg->workspace_bytes >= FAKE_WORKSPACE * w->batch,
              "a workspace of %llu bytes for a batch of %llu",
              (unsigned long long)msg->workspace_bytes, (unsigned long long)w->batch);
    w->n_computed = (int)w->first_layer; /* one group a layer */
    SIM_CHECK(w->first_layer < (uint64_t)w->n_groups, "RUN from layer %llu on",
              (unsigned long long)w->first_layer);
    SIM_CHECK(w->first_layer == 0 || *at_pool(w->workspace) == workspace_mark(w),
              "run %llu goes on, and its workspace was written over", (unsigned long long)w->run);
    *at_pool(w->workspace) = workspace_mark(w);
}

/* Whether the group is in the pool; brings it there on a device with a link. Negative: it does not come. */
static int look_for_group(struct sim_worker *w, int g)
{
    struct sim_group *group = &w->groups[g];
    uint32_t seen = atomic_load_explicit(&sim.core->arrivals[group->word], memory_order_acquire);
    if (group->is_here)
        return 1;
    if (group->resident && !sim.unified)
        seen = SY_ARRIVAL_HERE;
    if (seen == SY_ARRIVAL_FAILED)
        return SY_EIO;
    if (seen != SY_ARRIVAL_HERE || group->after_group >= w->n_computed)
        return 0;
    if (!sim.unified && !group->resident && !group->direct)
        *at_pool(group->offset) = *(uint64_t *)((char *)sim.core->image.base + group->image_offset);
    group->is_here = true;
    return 1;
}

/* Copies go in the order of groups: also of those in front of the layer that a run goes on with. */
static int look_up_to(struct sim_worker *w, int group)
{
    int there = 1;
    for (int g = 0; g <= group && there > 0; g++)
        there = look_for_group(w, g);
    return there;
}

static void compute_part(const struct sim_worker *w, uint64_t part)
{
    const float *in = sy_slab_pointer(sim.core->slab, w->inputs[part]);
    float *out = sy_slab_pointer(sim.core->slab, w->outputs[part]);
    for (uint64_t i = 0; i < w->batch * FAKE_ROW; i++)
        out[i] = 2 * in[i] + 1;
}

/* One group of the run. The time that it takes; 0: it waits for the group. */
static sy_ns compute(struct sim_worker *w)
{
    struct sy_control_page *page = page_of(w);
    SIM_CHECK(*at_pool(w->workspace) == workspace_mark(w),
              "run %llu: its workspace was written over", (unsigned long long)w->run);
    if (atomic_load(&page->interrupted_run) == w->run && w->n_computed < w->n_groups) {
        end_run(w, SY_ECANCELED, (uint64_t)w->n_computed);
        return SY_NS_PER_US;
    }
    if (w->n_computed == w->n_groups) {
        for (uint64_t part = 0; part < w->n_parts; part++)
            compute_part(w, part);
        bool bad = fails(),
             twice = !sim.calm && sim.fault_one_in && sim_draw(sim.fault_one_in * 4) == 0;
        end_run(w, bad ? SY_EUNSUPPORTED : SY_OK, 0);
        if (twice)
            say_run_done(w, w->run, SY_OK, 0, 0);
        return SY_NS_PER_US;
    }
    int there = look_up_to(w, w->n_computed);
    if (there < 0) {
        end_run(w, there, 0);
        return SY_NS_PER_US;
    }
    if (there == 0)
        return 0;
    const struct sim_group *g = &w->groups[w->n_computed];
    bool reads = sim.core->models[w->model].group_bytes[w->n_computed] > 0 && !g->direct;
    uint64_t mark = sim_group_mark((int)w->model, w->n_computed);
    SIM_CHECK(!reads || *at_pool(g->offset) == mark,
              "run %llu: group %d of model %d is not at %llu, where it is said to be",
              (unsigned long long)w->run, w->n_computed, (int)w->model,
              (unsigned long long)g->offset);
    w->n_computed++;
    atomic_store(&page->run_progress, w->run << 16 | (uint64_t)w->n_computed);
    return sim_time(40 * SY_NS_PER_US);
}

static sy_ns fetch(struct sim_worker *w)
{
    for (int g = 0; g < w->n_groups; g++) {
        int there = look_for_group(w, g);
        if (there == 0)
            return 0;
        if (there < 0) {
            end_run(w, there, 0);
            return SY_NS_PER_US;
        }
    }
    end_run(w, SY_OK, 0);
    return SY_NS_PER_US;
}

/* ---- training ----------------------------------------------------------------------------------- */

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
    atomic_store(&page_of(w)->job, 0);
    atomic_store(&page_of(w)->train_phase, SY_PHASE_NONE);
}

static void save(const struct sim_worker *w)
{
    struct sim_job *job = job_of(w);
    job->has_snapshot = true;
    job->snapshot_step = w->step;
    atomic_store(&page_of(w)->snapshot_step, w->step);
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
    say(w, &m);
}

static void job_prepare(struct sim_worker *w, const struct sy_msg_job_prepare *msg)
{
    SIM_CHECK(w->job == 0, "worker %d: a second job", index_of(w));
    w->job = msg->job;
    w->step = 0;
    struct sim_job *job = job_of(w);
    if (job->total == 0)
        job->total = 3 + sim_draw(60);
    w->total = job->total;
    bool bad = fails();
    struct sy_message m = {.id = SY_MSG_JOB_PREPARED};
    m.job_prepared = (struct sy_msg_job_prepared){.job = msg->job,
                                                  .status = bad ? SY_EARG : SY_OK,
                                                  .error = bad ? "as was drawn" : "",
                                                  .persistent_bytes = SIM_PERSISTENT,
                                                  .ephemeral_bytes = SIM_EPHEMERAL,
                                                  .total_steps = w->total};
    if (bad)
        forget_job(w);
    say(w, &m);
}

static void job_start(struct sim_worker *w, const struct sy_msg_job_start *msg)
{
    struct sim_job *job = job_of(w);
    SIM_CHECK(w->job == msg->job, "JOB_START of job %llu on a worker with job %llu",
              (unsigned long long)msg->job, (unsigned long long)w->job);
    uint64_t *state = at_pool(w->persistent = msg->persistent_offset);
    SIM_CHECK(!msg->spilled || job->has_spill, "job %llu: nothing was spilled",
              (unsigned long long)w->job);
    SIM_CHECK(msg->spilled || !msg->in_memory || state[0] == (JOB_MAGIC ^ w->job),
              "job %llu: what lasts of it was written over", (unsigned long long)w->job);
    w->step = msg->spilled        ? job->spilled_step
              : msg->in_memory    ? state[1]
              : job->has_snapshot ? job->snapshot_step
                                  : 0;
    state[0] = JOB_MAGIC ^ w->job;
    state[1] = w->step;
    struct sy_control_page *page = page_of(w);
    atomic_store(&page->job, w->job);
    atomic_store(&page->train_step, w->step);
    atomic_store(&page->snapshot_step, job->has_snapshot ? job->snapshot_step : 0);
    atomic_store(&page->train_phase, SY_PHASE_GRADIENT);
    if (fails()) {
        end_job(w, SY_EARG);
        return;
    }
    w->started = true;
    w->announced = 0;
    say(w, &(struct sy_message){.id = SY_MSG_JOB_STARTED,
                                .job_started = {.job = w->job, .step = w->step}});
}

static void job_turn(struct sim_worker *w, const struct sy_msg_job_turn *msg)
{
    if (w->job != msg->job || (w->stops && !w->has_turn))
        return; /* it has ended meanwhile */
    SIM_CHECK(w->started && !w->has_turn && !w->is_out && !w->goes_out && !w->comes_back,
              "job %llu: a turn out of turn", (unsigned long long)w->job);
    w->has_turn = true;
    w->ephemeral = msg->ephemeral_offset;
    *at_pool(w->ephemeral) = JOB_MAGIC ^ ~w->job;
}

static void job_trip(struct sim_worker *w, const struct sy_message *m)
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

/* What lasts has gone the whole way. */
static void end_trip(struct sim_worker *w)
{
    struct sim_job *job = job_of(w);
    struct sy_message m = {.id = SY_MSG_JOB_RETURNED,
                           .job_returned = {.job = w->job, .bytes = SIM_PERSISTENT}};
    uint64_t *state = at_pool(w->persistent);
    if (w->goes_out) {
        bool bad = fails();
        SIM_CHECK(state[0] == (JOB_MAGIC ^ w->job), "job %llu: what lasts of it was written over",
                  (unsigned long long)w->job);
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
    say(w, &m);
}

static void job_stop(struct sim_worker *w, uint64_t job, bool leaves)
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
    say(w, &(struct sy_message){
               .id = SY_MSG_JOB_PAUSED,
               .job_paused = {.job = w->job, .epoch = epoch, .paused_ns = sim_os_now()}});
}

/* One thing of its job. The time that it takes; 0: it waits. */
static sy_ns train(struct sim_worker *w)
{
    struct sy_control_page *page = page_of(w);
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
    uint64_t *state = at_pool(w->persistent);
    SIM_CHECK(state[0] == (JOB_MAGIC ^ w->job) && state[1] == w->step,
              "job %llu: what lasts of it was written over", (unsigned long long)w->job);
    SIM_CHECK(*at_pool(w->ephemeral) == (JOB_MAGIC ^ ~w->job),
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
        say(w,
            &(struct sy_message){
                .id = SY_MSG_JOB_TURN_OVER,
                .job_turn_over = {.job = w->job, .step = w->step, .busy_ns = 100 * SY_NS_PER_US}});
    }
    return sim_time(150 * SY_NS_PER_US);
}

/* ---- hearing ------------------------------------------------------------------------------------ */

static void handle(struct sim_worker *w, const struct sy_message *m)
{
    switch (m->id) {
    case SY_MSG_WELCOME:
        say(w,
            &(struct sy_message){.id = SY_MSG_READY, .ready = {.worker = (uint64_t)index_of(w)}});
        break;
    case SY_MSG_MODEL_ADD:
        add_model(w, &m->model_add);
        break;
    case SY_MSG_PREPARE:
        prepared(w, &m->prepare);
        break;
    case SY_MSG_LOAD:
        load(w, &m->load);
        break;
    case SY_MSG_RUN:
        run(w, &m->run);
        break;
    case SY_MSG_FETCH:
        w->fetches = w->loaded && w->run == m->fetch.run;
        break;
    case SY_MSG_CANCEL:
        if (w->loaded && w->run == m->cancel.run)
            end_run(w, SY_ECANCELED, 0);
        break;
    case SY_MSG_JOB_PREPARE:
        job_prepare(w, &m->job_prepare);
        break;
    case SY_MSG_JOB_START:
        job_start(w, &m->job_start);
        break;
    case SY_MSG_JOB_TURN:
        job_turn(w, &m->job_turn);
        break;
    case SY_MSG_JOB_SPILL:
    case SY_MSG_JOB_RETURN:
        job_trip(w, m);
        break;
    case SY_MSG_JOB_LEAVE:
        job_stop(w, m->job_leave.job, true);
        break;
    case SY_MSG_JOB_STOP:
        job_stop(w, m->job_stop.job, false);
        break;
    case SY_MSG_SHUTDOWN:
        will_exit(w, 0, sim_time(SY_NS_PER_MS));
        break;
    default: /* MODEL_DROP, MODEL_REGROUP, regions */
        break;
    }
}

/* True: there was one. */
static bool hear(struct sim_worker *w)
{
    struct sy_message m;
    int fds[SY_MESSAGE_MAX_FDS], n_fds = SY_MESSAGE_MAX_FDS;
    char peek;
    if (w->closed || recv(w->fd, &peek, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
        return false;
    SIM_CHECK(sy_message_receive(w->fd, SY_TO_WORKER, &m, fds, &n_fds) == SY_OK, "worker %d: %s",
              index_of(w), sy_error_text());
    for (int i = 0; i < n_fds; i++)
        close(fds[i]);
    sim_say("to worker %d: %s", index_of(w), sy_message_name((int)m.id));
    if (!strikes(w))
        handle(w, &m);
    sy_message_finish(&m);
    return true;
}

/* A start: HELLO comes by itself. */
static void begin(struct sim_worker *w)
{
    w->greeted = true;
    w->wake_ns = SIM_NEVER;
    if (strikes(w))
        return;
    struct sy_message m = {.id = SY_MSG_HELLO};
    m.hello = (struct sy_msg_hello){
        .version = SY_WIRE_VERSION, .pid = (uint64_t)w->pid, .engine = "simulated"};
    say(w, &m);
    w->wake_ns = sim_os_now() + sim_time(SY_NS_PER_MS);
}

static void act(struct sim_worker *w)
{
    sy_ns was = w->wake_ns, takes;
    if (w->exits) {
        leave_world(w);
        return;
    }
    if (w->hangs) {
        w->wake_ns = SIM_NEVER;
        return;
    }
    if (!w->greeted) {
        begin(w);
        return;
    }
    if (hear(w)) {
        if (w->wake_ns == was)
            w->wake_ns = sim_os_now() + sim_time(5 * SY_NS_PER_US);
        return;
    }
    bool works = w->told_to_run || w->fetches ||
                 (w->started && (w->has_turn || w->stops || w->goes_out || w->comes_back));
    if (works && strikes(w)) {
        w->wake_ns = w->exits ? w->wake_ns : SIM_NEVER;
        return;
    }
    if (w->wake_ns != was)
        return; /* it is late */
    takes = w->told_to_run ? compute(w) : w->fetches ? fetch(w) : works ? train(w) : 0;
    w->wake_ns = takes   ? sim_os_now() + takes
                 : works ? sim_os_now() + sim_time(60 * SY_NS_PER_US)
                         : SIM_NEVER;
}

/* ---- when --------------------------------------------------------------------------------------- */

static struct sim_worker *next_worker(void)
{
    struct sim_worker *first = NULL;
    for (struct sim_worker *w = sim.workers; w < sim.workers + sim.n_workers; w++)
        if (w->pid && (!first || w->wake_ns < first->wake_ns))
            first = w;
    return first;
}

sy_ns sim_workers_next(void)
{
    const struct sim_worker *w = next_worker();
    return w ? w->wake_ns : SIM_NEVER;
}

void sim_workers_happen(void)
{
    act(next_worker());
}

void sim_workers_were_sent(void)
{
    for (struct sim_worker *w = sim.workers; w < sim.workers + sim.n_workers; w++)
        if (w->pid && !w->hangs && w->greeted && w->wake_ns == SIM_NEVER)
            w->wake_ns = sim_os_now() + sim_time(8 * SY_NS_PER_US);
}
