#include "workers/process/worker.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/sandbox/sandbox.h"
#include "workers/engine/engines.h"
#include "workers/process/worker_internal.h"
#include "workers/process/worker_regions.h"
#include "workers/process/worker_script.h"

#define IDLE_POLL_MS     200
#define FETCH_POLL_MS    5
#define MOST_POLL_US     10000u /* the control page may ask for less */
#define TRAINING_POLL_NS (2 * SY_NS_PER_MS)

/* ---- start ------------------------------------------------------------------------------------ */

static int say_hello(struct sy_worker *w)
{
    char engine[128];
    SY_TRY(sy_host_engine.describe(engine,
                                   sizeof engine)); /* which device it will be is not known yet */
    struct sy_message hello = {.id = SY_MSG_HELLO};
    hello.hello = (struct sy_msg_hello){
        .version = SY_WIRE_VERSION, .pid = (uint64_t)getpid(), .engine = engine};
    return sy_worker_send(w, &hello);
}

static int map_memory(struct sy_worker *w, const struct sy_msg_welcome *welcome, const int *fds,
                      int n_fds)
{
    int wanted = welcome->image_bytes > 0 ? 5 : 4;
    if (n_fds != wanted)
        return sy_error_set(SY_EPROTO, "WELCOME came with %d files instead of %d", n_fds, wanted);
    SY_TRY(sy_shared_memory_map(&w->page_memory, fds[0], SY_CONTROL_PAGE_BYTES, true));
    SY_TRY(sy_shared_memory_map(&w->arrivals_memory, fds[1], SY_ARRIVALS_BYTES, true));
    SY_TRY(sy_shared_memory_map(&w->slab, fds[2], welcome->slab_bytes, true));
    if (wanted == 5)
        SY_TRY(sy_shared_memory_map(&w->image, fds[4], welcome->image_bytes, false));
    w->page = w->page_memory.base;
    w->arrivals = w->arrivals_memory.base;
    w->post.in = &w->page->to_worker;
    w->post.out = &w->page->to_runtime;
    return SY_OK;
}

/* The engine's part of the device: it computes there from now on. */
static int attach_engine(struct sy_worker *w)
{
    if (!w->engine->attach)
        return SY_OK;
    SY_TRY(sy_event_create(w->device, &w->run_done));
    return w->engine->attach(w->device, w->compute);
}

static int open_device(struct sy_worker *w, const struct sy_msg_welcome *welcome, int pool_fd)
{
    struct sy_device_spec spec;
    SY_TRY(sy_device_spec_parse(welcome->device, &spec));
    SY_TRY(sy_device_open(&spec, &w->device));
    if (welcome->link_core >= 0)
        SY_TRY(sy_device_set_link_core(w->device, (int)welcome->link_core));
    SY_TRY(sy_pool_import(w->device, pool_fd, welcome->pool_bytes, &w->pool));
    if (w->image.bytes)
        SY_TRY(sy_device_host_register(w->device, w->image.base, w->image.bytes));
    SY_TRY(sy_device_host_register(w->device, w->slab.base, w->slab.bytes));
    SY_TRY(sy_stream_create(w->device, SY_STREAM_COMPUTE, &w->compute));
    SY_TRY(sy_transfer_create(w->device, w->pool, (int)welcome->link_core, &w->transfer));
    w->board = (struct sy_link_board *)&w->arrivals[SY_ARRIVAL_WORDS];
    sy_transfer_set_board(w->transfer, w->board, w->index);
    SY_TRY(attach_engine(w));
    SY_TRY(sy_worker_models_create(w->engine, SY_MODELS_PROGRAM_BYTES, &w->models));
    sy_worker_models_set_team(w->models, w->home.team);
    return SY_OK;
}

static int choose_engine(struct sy_worker *w, const struct sy_msg_welcome *welcome)
{
    struct sy_device_spec spec;
    SY_TRY(sy_device_spec_parse(welcome->device, &spec));
    SY_TRY(sy_engine_for_device(spec.kind, &w->engine));
    return sy_trainer_for_device(spec.kind, &w->trainer);
}

/* W6. A GPU's driver opens files and makes calls that no list can name: there, no new privileges and no more. */
static int confine(const struct sy_worker *w, const struct sy_msg_welcome *welcome)
{
    struct sy_device_spec spec;
    struct sy_sandbox_state state;
    char text[256];
    SY_TRY(sy_device_spec_parse(welcome->device, &spec));
    if (strcmp(spec.kind, "cuda") == 0)
        return sy_sandbox_no_new_privs();
    SY_TRY(sy_sandbox_enter_worker(&state));
    sy_sandbox_describe(&state, text, sizeof text);
    sy_log_info("worker", "event=confined index=%d by=\"%s\"", w->index, text);
    return SY_OK;
}

/* The kernel hands a death on only after the dump was written, and a worker maps all pools. 1 byte: the kernel writes no file so short, and calls no
 * program of core_pattern, which it does for 0. Where the hard limit is 0 that is what stays. */
static void leave_no_dump(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_CORE, &limit) != 0 || limit.rlim_max == 0)
        return;
    limit.rlim_cur = 1;
    if (setrlimit(RLIMIT_CORE, &limit) != 0)
        sy_log_warn("worker", "event=core_limit why=\"%s\"", strerror(errno));
}

static int start(struct sy_worker *w)
{
    struct sy_message welcome;
    int fds[SY_MESSAGE_MAX_FDS], n_fds = SY_MESSAGE_MAX_FDS;
    leave_no_dump();
    SY_TRY(say_hello(w));
    SY_TRY(sy_post_receive(&w->post, w->fd, SY_TO_WORKER, &welcome, fds, &n_fds));
    int status = SY_OK;
    if (welcome.id != SY_MSG_WELCOME)
        status = sy_error_set(SY_EPROTO, "%s instead of WELCOME", sy_message_name(welcome.id));
    if (status == SY_OK)
        status = map_memory(w, &welcome.welcome, fds, n_fds);
    if (status == SY_OK)
        status = choose_engine(w, &welcome.welcome);
    if (status == SY_OK)
        status = confine(w, &welcome.welcome); /* before it has threads */
    if (status == SY_OK)
        status = sy_worker_set_home(w, &welcome.welcome.cores);
    if (status == SY_OK)
        status = open_device(w, &welcome.welcome, fds[3]);
    sy_message_finish(&welcome);
    SY_TRY(status);
    sy_worker_beat(w);
    if (w->engine->on_turn)
        w->engine->on_turn(sy_worker_between_turns, w);
    struct sy_message ready = {.id = SY_MSG_READY};
    ready.ready.worker = (uint64_t)w->index;
    return sy_worker_send(w, &ready);
}

/* ---- messages --------------------------------------------------------------------------------- */

static int prepare(struct sy_worker *w, const struct sy_msg_prepare *msg, bool keep)
{
    struct sy_worker_program of;
    struct sy_worker_cores before = w->cores; /* a job's turn may be under way */
    int status = sy_worker_set_cores(w, msg->team, &msg->cores);
    if (status == SY_OK)
        status = sy_worker_models_program(w->models, msg->model, msg->batch, msg->sizes.v,
                                          msg->sizes.n, keep, &of);
    struct sy_message answer = {.id = SY_MSG_PREPARED};
    answer.prepared = (struct sy_msg_prepared){
        .model = msg->model,
        .batch = msg->batch,
        .team = msg->team,
        .sizes = msg->sizes,
        .status = status,
        .error = status < 0 ? (char *)sy_error_text() : "",
        .workspace_bytes = status < 0 ? 0 : w->engine->program_workspace_bytes(of.program),
        .took_ns = status < 0 ? 0 : of.took_ns,
    };
    sy_worker_beat(w);
    SY_TRY(sy_worker_send(w, &answer));
    return sy_worker_restore_cores(w, &before);
}

/* file: the package's, which may lie elsewhere by now; taken over. */
static int add_model(struct sy_worker *w, const struct sy_msg_model_add *add, int *file)
{
    int fd = *file;
    *file = -1;
    if (fd < 0)
        return sy_error_set(SY_EPROTO, "MODEL_ADD came without its package's file");
    int status = sy_worker_models_add(w->models, add->model, fd, add->path, add->group_layers.v,
                                      add->group_layers.n);
    struct sy_message answer = {.id = SY_MSG_MODEL_ADDED};
    answer.model_added = (struct sy_msg_model_added){
        .model = add->model,
        .status = status,
        .error = status < 0 ? (char *)sy_error_text() : "",
    };
    for (size_t i = 0; status == SY_OK && i < add->warm_batches.n; i++) {
        struct sy_msg_prepare warm = {.model = add->model, .batch = add->warm_batches.v[i]};
        SY_TRY(prepare(w, &warm, true));
    }
    return sy_worker_send(w, &answer);
}

static int regroup(struct sy_worker *w, const struct sy_msg_model_regroup *msg)
{
    if (w->loaded && w->run_model == msg->model)
        return sy_error_set(SY_EPROTO, "MODEL_REGROUP of model %llu during its run",
                            (unsigned long long)msg->model);
    return sy_worker_models_regroup(w->models, msg->model, msg->group_layers.v,
                                    msg->group_layers.n);
}

static int shut_down(struct sy_worker *w, const struct sy_msg_shutdown *msg)
{
    w->shutdown = true;
    return sy_worker_job_finish_iteration(w, sy_clock_now() + msg->grace_ns);
}

static int drop_regions(struct sy_worker *w, const struct sy_msg_region_drop *msg)
{
    for (size_t i = 0; i < msg->regions.n; i++)
        sy_worker_region_drop(w->device, msg->regions.v[i]);
    return SY_OK;
}

/* file: the descriptor that came with it, or -1; a handler that takes it over sets -1. */
static int handle(struct sy_worker *w, const struct sy_message *m, int *file)
{
    switch (m->id) {
    case SY_MSG_MODEL_ADD:
        return add_model(w, &m->model_add, file);
    case SY_MSG_MODEL_REGROUP:
        return regroup(w, &m->model_regroup);
    case SY_MSG_MODEL_DROP:
        sy_worker_models_drop(w->models, m->model_drop.model);
        return SY_OK;
    case SY_MSG_PREPARE:
        return prepare(w, &m->prepare, false);
    case SY_MSG_LOAD:
        return sy_worker_load(w, &m->load);
    case SY_MSG_RUN:
        return sy_worker_run(w, &m->run);
    case SY_MSG_FETCH:
        return sy_worker_fetch(w, &m->fetch);
    case SY_MSG_CANCEL:
        return sy_worker_cancel(w, &m->cancel);
    case SY_MSG_JOB_PREPARE:
        return sy_worker_job_prepare(w, &m->job_prepare, file);
    case SY_MSG_JOB_START:
        return sy_worker_job_start(w, &m->job_start, file);
    case SY_MSG_JOB_TURN:
        return sy_worker_job_turn(w, &m->job_turn);
    case SY_MSG_JOB_SPILL:
        return sy_worker_job_spill(w, &m->job_spill);
    case SY_MSG_JOB_RETURN:
        return sy_worker_job_return(w, &m->job_return);
    case SY_MSG_JOB_LEAVE:
        return sy_worker_job_leave(w, &m->job_leave);
    case SY_MSG_JOB_STOP:
        return sy_worker_job_stop(w, &m->job_stop);
    case SY_MSG_REGION_ADD:
        return sy_worker_region_add(w->device, &m->region_add, *file);
    case SY_MSG_REGION_DROP:
        return drop_regions(w, &m->region_drop);
    case SY_MSG_SHUTDOWN:
        return shut_down(w, &m->shutdown);
    default:
        return sy_error_set(SY_EPROTO, "unexpected %s", sy_message_name(m->id));
    }
}

/* Looks for messages again and again for as long as the runtime allows after a run, and between LOAD and RUN: a sleeping thread is woken in some 5 us, on a
 * virtual machine up to 50. Between two looks the core is yielded. */
static void poll_after_run(struct sy_worker *w)
{
    struct pollfd p = {.fd = w->fd, .events = POLLIN};
    uint32_t poll_us = atomic_load_explicit(&w->page->poll_us, memory_order_relaxed);
    sy_ns from = SY_MAX(w->run_end_ns, w->received_ns);
    sy_ns until = from + (sy_ns)SY_MIN(poll_us, MOST_POLL_US) * SY_NS_PER_US;
    if (sy_clock_now() >= until)
        return;
    sy_post_set_polled(&w->post, true);
    while (!sy_post_has(&w->post) && poll(&p, 1, 0) == 0 && sy_clock_now() < until)
        sched_yield();
}

/* Waits up to timeout_ms (IDLE_POLL_MS: as the socket does by itself, a system call less a message). EBUSY: nothing came. */
static int receive(struct sy_worker *w, int timeout_ms, struct sy_message *message, int *fds,
                   int *n_fds)
{
    struct pollfd p = {.fd = w->fd, .events = POLLIN};
    if (timeout_ms == IDLE_POLL_MS)
        poll_after_run(w);
    else if (!sy_post_has(&w->post) && poll(&p, 1, timeout_ms) <= 0)
        return SY_EBUSY;
    return sy_post_receive(&w->post, w->fd, SY_TO_WORKER, message, fds, n_fds);
}

/* Waits up to timeout_ms for one message and handles it; EBUSY when none came. */
static int serve_one(struct sy_worker *w, int timeout_ms)
{
    struct sy_message message;
    int fds[SY_MESSAGE_MAX_FDS] = {-1}, n_fds = SY_MESSAGE_MAX_FDS;
    int status = receive(w, timeout_ms, &message, fds, &n_fds);
    sy_worker_beat(w);
    SY_TRY(status);
    status = handle(w, &message, &fds[0]);
    sy_message_finish(&message);
    for (int i = 0; i < n_fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return status == SY_EBUSY ? SY_EPEER : status;
}

/* ---- loop ------------------------------------------------------------------------------------- */

static int serve(struct sy_worker *w)
{
    const struct timeval idle = {.tv_usec = IDLE_POLL_MS * 1000};
    sy_ns next_look = 0;
    if (setsockopt(w->fd, SOL_SOCKET, SO_RCVTIMEO, &idle, sizeof idle) < 0)
        return sy_error_set(SY_EIO, "receive timeout of the control socket: %s", strerror(errno));
    while (!w->shutdown) {
        bool training = sy_worker_job_can_advance(w);
        int status = SY_OK;
        if (training && sy_clock_now() < next_look) {
            status = sy_worker_job_advance(w);
        } else {
            status = serve_one(w, training ? 0 : w->fetching ? FETCH_POLL_MS : IDLE_POLL_MS);
            if (status == SY_EBUSY) { /* nothing more to read */
                status = training ? sy_worker_job_advance(w) : SY_OK;
                next_look = sy_clock_now() + TRAINING_POLL_NS;
            }
        }
        SY_TRY(status);
        SY_TRY(sy_worker_fetch_look(w));
    }
    return SY_OK;
}

static void finish(struct sy_worker *w)
{
    if (w->device_lost)
        sy_train_run_destroy(w->job);
    else if (w->job)
        sy_worker_job_forget(w);
    sy_worker_script_forget(w);
    sy_worker_models_destroy(w->models);
    sy_transfer_destroy(w->transfer);
    if (w->engine && w->engine->detach)
        w->engine->detach();
    if (w->run_done)
        sy_event_destroy(w->run_done);
    sy_stream_destroy(w->compute);
    sy_worker_regions_finish(w->device);
    sy_pool_destroy(w->pool);
    sy_device_close(w->device);
    sy_shared_memory_finish(&w->image);
    sy_shared_memory_finish(&w->slab);
    sy_shared_memory_finish(&w->arrivals_memory);
    sy_shared_memory_finish(&w->page_memory);
    close(w->fd);
}

int sy_worker_main(int fd, int index)
{
    pid_t parent = getppid();
    sy_log_init("worker");
    /* W4. A terminal's interrupt is handled by the runtime, which drains; workers ignore it and wait for SHUTDOWN. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        return 1;
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);

    struct sy_worker *w = calloc(1, sizeof *w);
    if (!w)
        return 1;
    w->fd = fd;
    w->index = index;
    w->page_memory.fd = w->arrivals_memory.fd = w->slab.fd = w->image.fd = w->spill_file = -1;
    int status = sy_worker_regions_start();
    if (status == SY_OK)
        status = start(w);
    if (status == SY_OK)
        status = serve(w);
    if (status < 0)
        sy_log_error("worker", "event=exit index=%d why=\"%s\"", index, sy_error_text());
    finish(w);
    free(w);
    return status < 0;
}
