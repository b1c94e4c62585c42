#include "tests/fakes/fake_worker.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "allocator/shared_memory.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/wire/control_page.h"
#include "runtime/wire/messages.h"

#define SCRIPT_VARIABLE "SY_TEST_FAKE_SCRIPT"
#define MAX_PARTS       64
#define MAX_GROUPS      1024
#define MAGIC           0x6661736b72617774ull
#define PERSISTENT      65536u
#define EPHEMERAL       32768u

const char *fake_moment_name(enum fake_moment moment)
{
    static const char *const names[] = {
#define X(name, state) #name " (" state ")",
        FAKE_MOMENT_TABLE(X)
#undef X
    };
    return names[moment];
}

const char *fake_fault_name(enum fake_fault fault)
{
    static const char *const names[] = {
#define X(name, what) what,
        FAKE_FAULT_TABLE(X)
#undef X
    };
    return names[fault];
}

static struct fake_script *map_script(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct fake_script)) < 0)
        return NULL;
    void *base = mmap(NULL, sizeof(struct fake_script), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return base == MAP_FAILED ? NULL : base;
}

struct fake_script *fake_script_create(const char *path)
{
    struct fake_script *script = map_script(path, O_RDWR | O_CREAT | O_EXCL);
    assert_non_null(script);
    script->worker = -1;
    script->total_steps = UINT64_MAX;
    script->phase = SY_PHASE_GRADIENT;
    setenv(SCRIPT_VARIABLE, path, 1);
    return script;
}

void fake_script_destroy(struct fake_script *script, const char *path)
{
    munmap(script, sizeof *script);
    unlink(path);
    unsetenv(SCRIPT_VARIABLE);
}

/* ---- the worker --------------------------------------------------------------------------------- */

struct fake {
    struct fake_script *script;
    int fd, index;
    struct sy_shared_memory page_memory, arrivals_memory, slab, pool, image;
    struct sy_control_page *page;
    _Atomic uint32_t *arrivals;
    /* the run that is loaded or computes */
    uint64_t run, batch, words[MAX_GROUPS], inputs[MAX_PARTS], outputs[MAX_PARTS], n_parts;
    size_t n_groups, n_computed;
    bool told_to_run;
    /* the job */
    uint64_t job, step;
    volatile uint64_t *persistent;     /* [magic, step] */
    volatile uint64_t *ephemeral;      /* [job] */
    bool training, stopping, has_turn; /* training: JOB_STARTED was sent */
    uint32_t announced;
    bool over;
};

static void beat(struct fake *f)
{
    if (f->page)
        atomic_store_explicit(&f->page->heartbeat_ns, sy_clock_now(), memory_order_relaxed);
}

/* Alive to see, and of no use, until it is killed. */
static void idle_for_ever(struct fake *f)
{
    for (;;) {
        beat(f);
        usleep(10000);
    }
}

static void send_message(struct fake *f, const struct sy_message *m)
{
    if (sy_message_send(f->fd, m, NULL, 0) < 0)
        _exit(1);
}

static void send_packet(struct fake *f, const void *bytes, size_t n)
{
    (void)!send(f->fd, bytes, n, MSG_NOSIGNAL);
}

static void send_damaged(struct fake *f, enum fake_fault fault)
{
    static unsigned char large[SY_MESSAGE_MAX_BYTES + 4096];
    unsigned char bytes[256];
    size_t n = 64;
    struct sy_message ready = {.id = SY_MSG_READY, .ready = {.worker = (uint64_t)f->index}};
    if (fault == FAKE_GARBAGE)
        for (size_t i = 0; i < n; i++)
            bytes[i] = (unsigned char)(i * 151 + 7);
    else if (sy_message_encode(&ready, bytes, sizeof bytes, &n) < 0)
        _exit(1);
    if (fault == FAKE_LARGE)
        send_packet(f, large, sizeof large);
    else
        send_packet(f, bytes, fault == FAKE_EMPTY ? 0 : fault == FAKE_HALF ? n - 1 : n);
}

static void send_run_done(struct fake *f, uint64_t run, int64_t status, size_t n_spans)
{
    static uint64_t spans[4 * MAX_GROUPS];
    struct sy_message done = {.id = SY_MSG_RUN_DONE};
    sy_ns now = sy_clock_now();
    done.run_done = (struct sy_msg_run_done){.run = run,
                                             .status = status,
                                             .error = status < 0 ? "as the script says" : "",
                                             .received_ns = now,
                                             .first_layer_ns = now,
                                             .end_ns = now,
                                             .spans = {n_spans, spans}};
    send_message(f, &done);
}

static void send_unfit(struct fake *f, enum fake_fault fault)
{
    struct sy_message m = {.id = SY_MSG_JOB_STARTED, .job_started = {.job = 99}};
    if (fault == FAKE_WRONG_WAY)
        m = (struct sy_message){.id = SY_MSG_CANCEL, .cancel = {.run = f->run}};
    else if (fault == FAKE_BAD_NUMBER)
        m = (struct sy_message){.id = SY_MSG_MODEL_ADDED, .model_added = {.model = 1ull << 60}};
    else if (fault == FAKE_OLD_VERSION)
        m = (struct sy_message){.id = SY_MSG_HELLO, .hello = {.version = SY_WIRE_VERSION + 1}};
    if (fault == FAKE_FOREIGN_RUN)
        send_run_done(f, f->run + 12345, 0, 0);
    else if (fault == FAKE_BAD_STATUS)
        send_run_done(f, f->run, 5, 0);
    else if (fault == FAKE_BAD_SPANS)
        send_run_done(f, f->run, 0, 4 * MAX_GROUPS);
    else
        send_message(f, &m);
}

/* The moment has come: does what the script wants. Returns whether the answer is to be a failure. */
static bool strike(struct fake *f, enum fake_moment moment)
{
    struct fake_script *s = f->script;
    atomic_fetch_add(&s->n_seen[moment], 1);
    int worker = atomic_load(&s->worker), left = atomic_load(&s->left);
    if (atomic_load(&s->moment) != (int)moment || (worker >= 0 && worker != f->index))
        return false;
    do {
        if (left <= 0)
            return false;
    } while (!atomic_compare_exchange_weak(&s->left, &left, left - 1));
    atomic_fetch_add(&s->n_struck, 1);
    enum fake_fault fault = (enum fake_fault)atomic_load(&s->fault);
    switch (fault) {
    case FAKE_DIE:
        kill(getpid(), SIGKILL);
        break;
    case FAKE_EXIT:
        _exit(3);
    case FAKE_STOP:
        raise(SIGSTOP);
        break;
    case FAKE_CLOSE:
        close(f->fd);
        break;
    case FAKE_FAIL:
    case FAKE_NO_MEMORY:
        return true;
    case FAKE_GARBAGE:
    case FAKE_HALF:
    case FAKE_EMPTY:
    case FAKE_LARGE:
        send_damaged(f, fault);
        break;
    default:
        send_unfit(f, fault);
        break;
    }
    idle_for_ever(f);
    return false;
}

/* ---- start -------------------------------------------------------------------------------------- */

static void map(struct sy_shared_memory *m, int fd, uint64_t bytes, bool writable)
{
    if (sy_shared_memory_map(m, fd, bytes, writable) < 0)
        _exit(4);
}

static void start(struct fake *f)
{
    struct sy_message m = {.id = SY_MSG_HELLO};
    int fds[SY_MESSAGE_MAX_FDS], n_fds = SY_MESSAGE_MAX_FDS;
    strike(f, FAKE_AT_START);
    m.hello = (struct sy_msg_hello){
        .version = SY_WIRE_VERSION, .pid = (uint64_t)getpid(), .engine = "fake"};
    send_message(f, &m);
    if (sy_message_receive(f->fd, SY_TO_WORKER, &m, fds, &n_fds) < 0 || m.id != SY_MSG_WELCOME ||
        n_fds < 4)
        _exit(5);
    map(&f->page_memory, fds[0], SY_CONTROL_PAGE_BYTES, true);
    map(&f->arrivals_memory, fds[1], SY_ARRIVALS_BYTES, false);
    map(&f->slab, fds[2], m.welcome.slab_bytes, true);
    map(&f->pool, fds[3], m.welcome.pool_bytes, true);
    if (n_fds > 4)
        map(&f->image, fds[4], m.welcome.image_bytes, false);
    sy_message_finish(&m);
    f->page = f->page_memory.base;
    f->arrivals = f->arrivals_memory.base;
    beat(f);
    strike(f, FAKE_AT_WELCOME);
    m = (struct sy_message){.id = SY_MSG_READY, .ready = {.worker = (uint64_t)f->index}};
    send_message(f, &m);
}

/* ---- models and runs ---------------------------------------------------------------------------- */

static void prepare(struct fake *f, uint64_t model, uint64_t batch, uint64_t team, bool fail)
{
    struct sy_message m = {.id = SY_MSG_PREPARED};
    m.prepared = (struct sy_msg_prepared){.model = model,
                                          .batch = batch,
                                          .team = team,
                                          .status = fail ? SY_EDEVICE : SY_OK,
                                          .error = fail ? "as the script says" : "",
                                          .workspace_bytes = FAKE_WORKSPACE * batch,
                                          .took_ns = FAKE_PREPARE_NS};
    send_message(f, &m);
}

static void add_model(struct fake *f, const struct sy_msg_model_add *add)
{
    bool fail = strike(f, FAKE_AT_MODEL_ADD);
    int failure = atomic_load(&f->script->fault) == FAKE_NO_MEMORY ? SY_ENOMEM_HOST : SY_EDEVICE;
    struct sy_message m = {.id = SY_MSG_MODEL_ADDED};
    for (size_t i = 0; !fail && i < add->warm_batches.n; i++)
        prepare(f, add->model, add->warm_batches.v[i], 0, false);
    m.model_added = (struct sy_msg_model_added){.model = add->model,
                                                .status = fail ? failure : SY_OK,
                                                .error = fail ? "as the script says" : ""};
    send_message(f, &m);
}

static void load(struct fake *f, const struct sy_msg_load *msg)
{
    if (f->run != msg->run)
        f->n_groups = 0;
    f->run = msg->run;
    f->told_to_run = false;
    for (size_t i = 0; i < msg->arrivals.n && f->n_groups < MAX_GROUPS; i++)
        f->words[f->n_groups++] = msg->arrivals.v[i];
    if (strike(f, FAKE_AT_LOAD))
        send_run_done(f, f->run, SY_EDEVICE, 0);
}

static void run(struct fake *f, const struct sy_msg_run *msg)
{
    f->batch = msg->batch;
    f->n_parts = msg->parts < MAX_PARTS ? msg->parts : MAX_PARTS;
    if (msg->inputs.n != msg->parts || msg->outputs.n != msg->parts)
        _exit(6);
    memcpy(f->inputs, msg->inputs.v, f->n_parts * sizeof *f->inputs);
    memcpy(f->outputs, msg->outputs.v, f->n_parts * sizeof *f->outputs);
    if (f->n_parts > 1)
        atomic_fetch_add(&f->script->n_back_to_back, 1);
    for (size_t g = 0; g < f->n_groups; g++)
        if (atomic_load(&f->arrivals[f->words[g]]) == SY_ARRIVAL_ABSENT)
            atomic_fetch_add(&f->script->n_absent, 1);
    if (strike(f, FAKE_AT_RUN))
        send_run_done(f, f->run, SY_EDEVICE, 0);
    else
        f->told_to_run = true;
    f->n_computed = 0;
}

/* One group is through: readers that wait for its place may go on. */
static void publish_progress(struct fake *f)
{
    atomic_store_explicit(&f->page->run_progress, f->run << 16 | f->n_computed,
                          memory_order_release);
    strike(f, FAKE_AT_GROUP);
}

static void compute_part(struct fake *f, uint64_t part)
{
    const float *in = (const float *)((char *)f->slab.base + f->inputs[part]);
    float *out = (float *)((char *)f->slab.base + f->outputs[part]);
    for (uint64_t i = 0; i < f->batch * FAKE_ROW; i++)
        out[i] = 2 * in[i] + 1;
}

/* As far as groups are there. */
static void compute(struct fake *f)
{
    int64_t status = SY_OK;
    for (; f->n_computed < f->n_groups && status == SY_OK; publish_progress(f)) {
        _Atomic uint32_t *word = &f->arrivals[f->words[f->n_computed]];
        uint32_t seen = atomic_load_explicit(word, memory_order_acquire);
        if (seen == SY_ARRIVAL_FAILED)
            status = SY_EIO;
        else if (seen != SY_ARRIVAL_HERE)
            return;
        f->n_computed++;
    }
    for (uint64_t part = 0; status == SY_OK && part < f->n_parts; part++)
        compute_part(f, part);
    f->told_to_run = false;
    send_run_done(f, f->run, status, 4 * f->n_groups);
}

/* ---- training ----------------------------------------------------------------------------------- */

static void end_job(struct fake *f, int status)
{
    struct sy_message m = {.id = SY_MSG_JOB_ENDED};
    m.job_ended = (struct sy_msg_job_ended){.job = f->job,
                                            .status = status,
                                            .error = status < 0 ? "as the script says" : "",
                                            .step = f->step,
                                            .accuracy = -1};
    send_message(f, &m);
    f->training = f->stopping = f->has_turn = false;
    atomic_store(&f->page->job, 0);
    atomic_store(&f->page->train_phase, SY_PHASE_NONE);
}

static void job_prepare(struct fake *f, const struct sy_msg_job_prepare *msg)
{
    bool fail = strike(f, FAKE_AT_JOB_PREPARE);
    struct sy_message m = {.id = SY_MSG_JOB_PREPARED};
    f->job = msg->job;
    m.job_prepared = (struct sy_msg_job_prepared){.job = msg->job,
                                                  .status = fail ? SY_EDEVICE : SY_OK,
                                                  .error = fail ? "as the script says" : "",
                                                  .persistent_bytes = PERSISTENT,
                                                  .ephemeral_bytes = EPHEMERAL,
                                                  .total_steps = f->script->total_steps};
    send_message(f, &m);
}

static void job_start(struct fake *f, const struct sy_msg_job_start *msg)
{
    f->persistent = (uint64_t *)((char *)f->pool.base + msg->persistent_offset);
    atomic_fetch_add(msg->in_memory ? &f->script->n_in_memory : &f->script->n_from_snapshot, 1);
    if (msg->in_memory && f->persistent[0] != (MAGIC ^ f->job))
        _exit(6); /* somebody has written over it */
    f->step = msg->in_memory ? f->persistent[1] : 0;
    f->persistent[0] = MAGIC ^ f->job;
    f->persistent[1] = f->step;
    atomic_store(&f->page->job, f->job);
    atomic_store(&f->page->train_step, f->step);
    atomic_store(&f->page->train_phase, (uint32_t)f->script->phase);
    if (strike(f, FAKE_AT_JOB_START)) {
        end_job(f, SY_EDEVICE);
        return;
    }
    f->training = true;
    f->announced = 0;
    struct sy_message m = {.id = SY_MSG_JOB_STARTED,
                           .job_started = {.job = f->job, .step = f->step}};
    send_message(f, &m);
}

/* Memory of a turn is the job's alone: somebody else's mark would be found after an iteration. */
static void take_turn(struct fake *f, const struct sy_msg_job_turn *msg)
{
    if (!f->training || msg->job != f->job)
        return; /* it has ended meanwhile */
    if (f->has_turn || msg->ephemeral_offset + EPHEMERAL > f->pool.bytes)
        _exit(7);
    f->has_turn = true;
    f->ephemeral = (uint64_t *)((char *)f->pool.base + msg->ephemeral_offset);
    f->ephemeral[0] = f->job;
}

static void end_turn(struct fake *f)
{
    struct sy_message m = {.id = SY_MSG_JOB_TURN_OVER};
    m.job_turn_over = (struct sy_msg_job_turn_over){
        .job = f->job, .step = f->step, .busy_ns = atomic_load(&f->script->step_us) * 1000 + 1000};
    f->has_turn = false;
    send_message(f, &m);
}

static void pause_at(struct fake *f, uint32_t epoch)
{
    if (f->announced == epoch)
        return;
    struct sy_message m = {.id = SY_MSG_JOB_PAUSED};
    f->announced = epoch;
    strike(f, FAKE_AT_PREEMPT);
    m.job_paused =
        (struct sy_msg_job_paused){.job = f->job, .epoch = epoch, .paused_ns = sy_clock_now()};
    send_message(f, &m);
    strike(f, FAKE_AT_STANDING);
}

static void train(struct fake *f)
{
    uint32_t epoch = atomic_load(&f->page->preempt_epoch);
    if (f->has_turn && (f->stopping || f->step >= f->script->total_steps)) {
        end_job(f, SY_OK);
        return;
    }
    if (!f->has_turn) {
        if (f->stopping)
            end_job(f, SY_OK);
        return;
    }
    if (epoch & 1) {
        pause_at(f, epoch);
        return;
    }
    atomic_store(&f->page->train_phase, (uint32_t)f->script->phase);
    atomic_store(&f->page->train_step, f->persistent[1] = ++f->step);
    if (f->ephemeral[0] != f->job)
        _exit(8);
    strike(f, FAKE_AT_STEP);
    if (atomic_load(&f->script->step_us))
        usleep((useconds_t)atomic_load(&f->script->step_us));
    if (!atomic_load(&f->page->turn_keeps) && !(atomic_load(&f->page->preempt_epoch) & 1))
        end_turn(f);
}

/* ---- loop --------------------------------------------------------------------------------------- */

static void handle(struct fake *f, const struct sy_message *m)
{
    switch (m->id) {
    case SY_MSG_MODEL_ADD:
        add_model(f, &m->model_add);
        break;
    case SY_MSG_PREPARE:
        prepare(f, m->prepare.model, m->prepare.batch, m->prepare.team, strike(f, FAKE_AT_PREPARE));
        break;
    case SY_MSG_LOAD:
        load(f, &m->load);
        break;
    case SY_MSG_RUN:
        run(f, &m->run);
        break;
    case SY_MSG_CANCEL:
        strike(f, FAKE_AT_CANCEL);
        send_run_done(f, m->cancel.run, SY_ECANCELED, 0);
        break;
    case SY_MSG_JOB_PREPARE:
        job_prepare(f, &m->job_prepare);
        break;
    case SY_MSG_JOB_START:
        job_start(f, &m->job_start);
        break;
    case SY_MSG_JOB_TURN:
        strike(f, FAKE_AT_TURN);
        take_turn(f, &m->job_turn);
        break;
    case SY_MSG_JOB_STOP:
        strike(f, FAKE_AT_JOB_STOP);
        if (f->training)
            f->stopping = true;
        else
            end_job(f, SY_ECANCELED);
        break;
    case SY_MSG_SHUTDOWN:
        strike(f, FAKE_AT_SHUTDOWN);
        f->over = true;
        break;
    default: /* MODEL_DROP, MODEL_REGROUP */
        break;
    }
}

bool fake_is_worker(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "worker") == 0;
}

/* argv: PROGRAM worker --fd N --index I */
int fake_worker_main(char **argv)
{
    static struct fake fake;
    struct fake *f = &fake;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char *path = getenv(SCRIPT_VARIABLE);
    f->script = path ? map_script(path, O_RDWR) : NULL;
    if (!f->script)
        return 2;
    f->fd = atoi(argv[3]);
    f->index = atoi(argv[5]);
    start(f);
    while (!f->over) {
        bool busy = f->training || f->told_to_run;
        struct pollfd p = {.fd = f->fd, .events = POLLIN};
        struct sy_message m;
        beat(f);
        if (poll(&p, 1, busy ? 1 : 20) > 0) {
            if (sy_message_receive(f->fd, SY_TO_WORKER, &m, NULL, NULL) < 0)
                return 1;
            handle(f, &m);
            sy_message_finish(&m);
        }
        if (f->told_to_run && atomic_load(&f->script->hold_runs) == 0)
            compute(f);
        if (f->training)
            train(f);
    }
    return 0;
}
