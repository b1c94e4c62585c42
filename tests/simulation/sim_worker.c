#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/wire/control_page.h"
#include "runtime/wire/messages.h"
#include "tests/simulation/sim_worker_internal.h"
#include "tests/simulation/sim_world.h"

#define RUN_MAGIC 0x72756e2073707065ull

int sim_worker_index(const struct sim_worker *w)
{
    return (int)(w - sim.workers);
}

struct sy_control_page *sim_worker_page(const struct sim_worker *w)
{
    return sy_supervisor_page(sim.core->supervisor, sim_worker_index(w));
}

uint64_t *sim_worker_pool(uint64_t offset)
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
    sim_say("worker %d: is gone", sim_worker_index(w));
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
            atomic_store_explicit(&sim_worker_page(w)->heartbeat_ns, sim_os_now(),
                                  memory_order_relaxed);
}

/* ---- saying ------------------------------------------------------------------------------------- */

static void send_packet(const struct sim_worker *w, const void *bytes, size_t n)
{
    if (!w->closed && send(w->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        sim_say("worker %d: nobody hears it", sim_worker_index(w));
}

void sim_worker_say(const struct sim_worker *w, const struct sy_message *m)
{
    unsigned char bytes[4096];
    size_t n;
    SIM_CHECK(sy_message_encode(m, bytes, sizeof bytes, &n) == SY_OK, "%s", sy_error_text());
    sim_say("worker %d: %s", sim_worker_index(w), sy_message_name((int)m->id));
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
    sim_worker_say(w, &m);
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
    struct sy_message ready = {.id = SY_MSG_READY,
                               .ready = {.worker = (uint64_t)sim_worker_index(w)}};
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
        sim_worker_say(w, &messages[kind]);
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
    sim_say("worker %d: %s", sim_worker_index(w), words[kind]);
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
        if (!w->closed) /* the number may be another's by now */
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
bool sim_worker_fails(void)
{
    return !sim.calm && sim.fault_one_in && sim_draw(sim.fault_one_in * 2) == 0;
}

/* ---- models and runs ---------------------------------------------------------------------------- */

static void prepared(const struct sim_worker *w, const struct sy_msg_prepare *p)
{
    bool bad = sim_worker_fails();
    struct sy_message m = {.id = SY_MSG_PREPARED};
    m.prepared = (struct sy_msg_prepared){.model = p->model,
                                          .batch = p->batch,
                                          .team = p->team,
                                          .sizes = p->sizes,
                                          .status = bad ? SY_EUNSUPPORTED : SY_OK,
                                          .error = bad ? "as was drawn" : "",
                                          .workspace_bytes = FAKE_WORKSPACE * p->batch,
                                          .took_ns = SY_NS_PER_MS};
    sim_worker_say(w, &m);
}

static void add_model(const struct sim_worker *w, const struct sy_msg_model_add *add)
{
    struct sy_message m = {.id = SY_MSG_MODEL_ADDED};
    bool bad = sim_worker_fails();
    for (size_t i = 0; i < add->warm_batches.n; i++)
        prepared(w, &(struct sy_msg_prepare){.model = add->model, .batch = add->warm_batches.v[i]});
    m.model_added = (struct sy_msg_model_added){.model = add->model,
                                                .status = !bad          ? SY_OK
                                                          : sim_draw(2) ? SY_EUNSUPPORTED
                                                                        : SY_ENOMEM_HOST,
                                                .error = bad ? "as was drawn" : ""};
    sim_worker_say(w, &m);
}

static void load(struct sim_worker *w, const struct sy_msg_load *msg)
{
    SIM_CHECK(!w->loaded || w->run == msg->run, "worker %d: LOAD of run %llu beside run %llu",
              sim_worker_index(w), (unsigned long long)msg->run, (unsigned long long)w->run);
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
    atomic_store(&sim_worker_page(w)->run_progress, w->run << 16);
}

/* The request has it, whichever of its runs. */
static uint64_t workspace_mark(const struct sim_worker *w)
{
    return RUN_MAGIC ^ w->outputs[0];
}

static void run(struct sim_worker *w, const struct sy_msg_run *msg)
{
    SIM_CHECK(w->loaded && w->run == msg->run && !w->told_to_run,
              "worker %d: RUN %llu, which was not LOADed", sim_worker_index(w),
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
    SIM_CHECK(w->first_layer == 0 || *sim_worker_pool(w->workspace) == workspace_mark(w),
              "run %llu goes on, and its workspace was written over", (unsigned long long)w->run);
    *sim_worker_pool(w->workspace) = workspace_mark(w);
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
        *sim_worker_pool(group->offset) =
            *(uint64_t *)((char *)sim.core->image.base + group->image_offset);
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
    struct sy_control_page *page = sim_worker_page(w);
    SIM_CHECK(*sim_worker_pool(w->workspace) == workspace_mark(w),
              "run %llu: its workspace was written over", (unsigned long long)w->run);
    if (atomic_load(&page->interrupted_run) == w->run && w->n_computed < w->n_groups) {
        end_run(w, SY_ECANCELED, (uint64_t)w->n_computed);
        return SY_NS_PER_US;
    }
    if (w->n_computed == w->n_groups) {
        for (uint64_t part = 0; part < w->n_parts; part++)
            compute_part(w, part);
        bool bad = sim_worker_fails(),
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
    SIM_CHECK(!reads || *sim_worker_pool(g->offset) == mark,
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

/* ---- hearing ------------------------------------------------------------------------------------ */

static void handle(struct sim_worker *w, const struct sy_message *m)
{
    switch (m->id) {
    case SY_MSG_WELCOME:
        sim_worker_say(w, &(struct sy_message){.id = SY_MSG_READY,
                                               .ready = {.worker = (uint64_t)sim_worker_index(w)}});
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
        sim_worker_job_prepare(w, &m->job_prepare);
        break;
    case SY_MSG_JOB_START:
        sim_worker_job_start(w, &m->job_start);
        break;
    case SY_MSG_JOB_TURN:
        sim_worker_job_turn(w, &m->job_turn);
        break;
    case SY_MSG_JOB_SPILL:
    case SY_MSG_JOB_RETURN:
        sim_worker_job_trip(w, m);
        break;
    case SY_MSG_JOB_LEAVE:
        sim_worker_job_stop(w, m->job_leave.job, true);
        break;
    case SY_MSG_JOB_STOP:
        sim_worker_job_stop(w, m->job_stop.job, false);
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
              sim_worker_index(w), sy_error_text());
    for (int i = 0; i < n_fds; i++)
        close(fds[i]);
    sim_say("to worker %d: %s", sim_worker_index(w), sy_message_name((int)m.id));
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
    sim_worker_say(w, &m);
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
    takes = w->told_to_run ? compute(w) : w->fetches ? fetch(w) : works ? sim_worker_train(w) : 0;
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
