#include "tests/rigs/core_rig.h"

#include <event2/event.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/package/package.h"
#include "runtime/base/status.h"
#include "runtime/core/core_internal.h"
#include "tests/nets/graph_builder.h"

#define PATIENCE_NS (120 * SY_NS_PER_S)
#define POOL_BYTES  (1u << 20)
#define SLAB_BYTES  (8u << 20)

/* ---- packages ----------------------------------------------------------------------------------- */

/* Some layers with parameters of their own, so that there are groups. */
static void make_package(const struct core_rig *r, const char *name, int n_layers)
{
    char path[128];
    uint64_t seed = 7;
    struct sy_graph *g = gb_new(name);
    int x = gb_input(g, 2, (int64_t[]){1, FAKE_ROW});
    for (int i = 0; i < n_layers; i++) {
        int w = gb_constant(g, "w", 2, (int64_t[]){FAKE_ROW, FAKE_ROW}, &seed, -1, 1);
        x = gb_node(g, SY_OP_MATMUL, 2, (int[]){x, w}, 2, (int64_t[]){1, FAKE_ROW});
    }
    gb_output(g, x);
    snprintf(path, sizeof path, "%s/%s.sypkg", r->folder, name);
    if (sy_package_write(path, name, g, &sy_host_engine, NULL, NULL) < 0)
        fail_msg("%s: %s", path, sy_error_text());
    sy_graph_free(g);
}

/* Of the rig that is open; removed at exit, too, when a test has failed. */
static char folder[64];

static void remove_folder(void)
{
    static const char *const names[] = {"a.sypkg", "b.sypkg", "script"};
    char path[128];
    for (size_t i = 0; folder[0] && i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    if (folder[0])
        rmdir(folder);
    folder[0] = 0;
}

/* ---- open, close -------------------------------------------------------------------------------- */

void core_rig_open(struct core_rig *r, const char *device, int n_workers)
{
    core_rig_open_small(r, device, n_workers, POOL_BYTES);
}

void core_rig_open_patient(struct core_rig *r, const char *device, int n_workers)
{
    struct sy_core_config config = {.device = device,
                                    .pool_bytes = POOL_BYTES,
                                    .n_workers = n_workers,
                                    .hang_timeout_ns = 60 * SY_NS_PER_S};
    core_rig_open_with(r, &config);
}

void core_rig_open_small(struct core_rig *r, const char *device, int n_workers, uint64_t pool_bytes)
{
    core_rig_open_gathering(r, device, n_workers, pool_bytes, 0);
}

void core_rig_open_gathering(struct core_rig *r, const char *device, int n_workers,
                             uint64_t pool_bytes, sy_ns max_delay_ns)
{
    struct sy_core_config config = {.device = device,
                                    .pool_bytes = pool_bytes,
                                    .n_workers = n_workers,
                                    .hang_timeout_ns = 1500 * SY_NS_PER_MS,
                                    .max_delay_ns = max_delay_ns};
    core_rig_open_with(r, &config);
}

void core_rig_open_with(struct core_rig *r, const struct sy_core_config *wants)
{
    static bool at_exit;
    struct sy_core_config config = *wants;
    *r = (struct core_rig){.n_workers = config.n_workers, .pool_bytes = config.pool_bytes};
    snprintf(r->folder, sizeof r->folder, "/tmp/switchyard-core-XXXXXX");
    remove_folder();
    assert_non_null(mkdtemp(r->folder));
    if (!at_exit)
        atexit(remove_folder);
    at_exit = true;
    snprintf(folder, sizeof folder, "%s", r->folder);
    snprintf(r->script_path, sizeof r->script_path, "%s/script", r->folder);
    r->script = fake_script_create(r->script_path);
    make_package(r, "a", 5);
    make_package(r, "b", 3);
    r->base = event_base_new();
    assert_non_null(r->base);
    config.image_bytes = POOL_BYTES;
    config.slab_bytes = SLAB_BYTES;
    config.max_queue = 200;
    config.grouping = "per_layer";
    if (sy_core_create(r->base, &config, &r->core) < 0)
        fail_msg("core: %s", sy_error_text());
}

void core_rig_close(struct core_rig *r)
{
    sy_core_destroy(r->core);
    event_base_free(r->base);
    fake_script_destroy(r->script, r->script_path);
    remove_folder();
}

void core_rig_fault(struct core_rig *r, enum fake_moment moment, enum fake_fault fault, int times)
{
    atomic_store(&r->script->left, 0);
    atomic_store(&r->script->worker, -1);
    atomic_store(&r->script->fault, (int)fault);
    atomic_store(&r->script->moment, (int)moment);
    atomic_store(&r->script->left, times);
}

/* ---- waiting ------------------------------------------------------------------------------------ */

static void on_time(int fd, short what, void *base)
{
    (void)fd;
    (void)what;
    event_base_loopbreak(base);
}

void core_rig_turn(struct core_rig *r, int ms)
{
    struct timeval timeout = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    event_base_once(r->base, -1, EV_TIMEOUT, on_time, r->base, &timeout);
    event_base_dispatch(r->base);
}

void core_rig_until(struct core_rig *r, core_condition holds, void *ctx, const char *what)
{
    sy_ns end = sy_clock_now() + PATIENCE_NS;
    while (!holds(r, ctx)) {
        if (sy_clock_now() > end)
            fail_msg("waited too long: %s", what);
        core_rig_turn(r, 2);
    }
}

void core_rig_done(void *ctx, int status, const char *error)
{
    struct core_done *done = ctx;
    done->n_calls++;
    done->status = status;
    snprintf(done->error, sizeof done->error, "%s", error ? error : "");
}

static bool is_done(struct core_rig *r, void *done)
{
    (void)r;
    return ((struct core_done *)done)->n_calls > 0;
}

int core_rig_wait_done(struct core_rig *r, struct core_done *done, const char *what)
{
    core_rig_until(r, is_done, done, what);
    assert_int_equal(done->n_calls, 1);
    return done->status;
}

/* ---- models ------------------------------------------------------------------------------------- */

int core_rig_add(struct core_rig *r, const char *name, struct core_done *done)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s.sypkg", r->folder, name);
    *done = (struct core_done){0};
    assert_int_equal(sy_core_model_add(r->core, path, NULL, core_rig_done, done), SY_OK);
    return core_rig_wait_done(r, done, "the model's callback");
}

void core_rig_add_both(struct core_rig *r)
{
    struct core_done done;
    assert_int_equal(core_rig_add(r, "a", &done), SY_OK);
    assert_int_equal(core_rig_add(r, "b", &done), SY_OK);
}

/* ---- requests ----------------------------------------------------------------------------------- */

static void on_answer(void *ctx, int status, const char *error,
                      const struct sy_request_report *report)
{
    struct core_answer *a = ctx;
    a->over = true;
    a->n_calls++;
    a->status = status;
    a->report = *report;
    snprintf(a->error, sizeof a->error, "%s", error ? error : "");
}

static void make_input(struct core_rig *r, int64_t batch, struct core_answer *answer)
{
    struct sy_slab *slab = sy_core_slab(r->core);
    uint64_t bytes = (uint64_t)batch * FAKE_ROW * sizeof(float);
    *answer = (struct core_answer){.rig = r, .batch = batch};
    assert_int_equal(sy_slab_alloc(slab, bytes, &answer->in), SY_OK);
    assert_int_equal(sy_slab_alloc(slab, bytes, &answer->out), SY_OK);
    float *in = sy_slab_pointer(slab, answer->in);
    memset(sy_slab_pointer(slab, answer->out), 0xff, bytes);
    for (int64_t i = 0; i < batch * FAKE_ROW; i++)
        in[i] = (float)(answer->in % 1000 + (uint64_t)i);
}

int core_rig_send(struct core_rig *r, const char *model, int64_t batch, uint64_t in, uint64_t out,
                  const struct sy_core_infer_options *options, sy_core_infer_done done, void *ctx,
                  uint64_t *id)
{
    struct sy_core_model_ref *ref;
    SY_TRY(sy_core_model_acquire(r->core, model, 0, &ref));
    int status = sy_core_infer(r->core, ref, batch, &in, &out, options, done, ctx, id);
    sy_core_model_release(r->core, ref);
    return status;
}

int core_rig_infer_by(struct core_rig *r, const char *model, int64_t batch, sy_ns deadline_ns,
                      struct core_answer *answer)
{
    const struct sy_core_infer_options options = {.class_ = SY_CORE_USUAL_CLASS,
                                                  .deadline_ns = deadline_ns};
    make_input(r, batch, answer);
    int status = core_rig_send(r, model, batch, answer->in, answer->out, &options, on_answer,
                               answer, &answer->id);
    assert_false(answer->over); /* never inside the call */
    if (status < 0) {
        sy_slab_release(sy_core_slab(r->core), answer->in);
        sy_slab_release(sy_core_slab(r->core), answer->out);
    }
    return status;
}

void core_rig_infer(struct core_rig *r, const char *model, int64_t batch,
                    struct core_answer *answer)
{
    make_input(r, batch, answer);
    if (core_rig_send(r, model, batch, answer->in, answer->out, NULL, on_answer, answer,
                      &answer->id) < 0)
        fail_msg("infer: %s", sy_error_text());
    assert_false(answer->over); /* never inside the call */
}

static bool is_over(struct core_rig *r, void *answer)
{
    (void)r;
    return ((struct core_answer *)answer)->over;
}

int core_rig_wait(struct core_rig *r, struct core_answer *answer)
{
    struct sy_slab *slab = sy_core_slab(r->core);
    core_rig_until(r, is_over, answer, "an answer");
    assert_int_equal(answer->n_calls, 1);
    const float *in = sy_slab_pointer(slab, answer->in), *out = sy_slab_pointer(slab, answer->out);
    for (int64_t i = 0; answer->status == SY_OK && i < answer->batch * FAKE_ROW; i++)
        if (out[i] != 2 * in[i] + 1)
            fail_msg("output[%d] is %g for %g", (int)i, (double)out[i], (double)in[i]);
    sy_slab_release(slab, answer->in);
    sy_slab_release(slab, answer->out);
    return answer->status;
}

void core_rig_must_infer(struct core_rig *r, const char *model, struct core_answer *answer)
{
    core_rig_infer(r, model, 1, answer);
    if (core_rig_wait(r, answer) < 0)
        fail_msg("request of %s: %s", model, answer->error);
}

/* ---- workers ------------------------------------------------------------------------------------ */

int core_rig_worker_in(struct core_rig *r, enum sy_worker_state state)
{
    for (int w = 0; w < r->n_workers; w++)
        if (sy_supervisor_state(r->core->supervisor, w) == state)
            return w;
    return -1;
}

static bool is_in_state(struct core_rig *r, void *state)
{
    return core_rig_worker_in(r, *(enum sy_worker_state *)state) >= 0;
}

void core_rig_await_state(struct core_rig *r, enum sy_worker_state state)
{
    core_rig_until(r, is_in_state, &state, sy_worker_state_name(state));
}

int core_rig_deaths(struct core_rig *r)
{
    int n = 0;
    for (int w = 0; w < r->n_workers; w++)
        n += sy_supervisor_n_deaths(r->core->supervisor, w);
    return n;
}

static bool has_deaths(struct core_rig *r, void *n)
{
    return core_rig_deaths(r) >= *(int *)n;
}

void core_rig_await_deaths(struct core_rig *r, int n)
{
    core_rig_until(r, has_deaths, &n, "the death of a worker");
}

void core_rig_kill(struct core_rig *r, int worker)
{
    pid_t pid = sy_supervisor_pid(r->core->supervisor, worker);
    assert_true(pid > 0);
    kill(pid, SIGKILL);
}

static bool is_calm(struct core_rig *r, void *ctx)
{
    (void)ctx;
    for (int w = 0; w < r->n_workers; w++) {
        enum sy_worker_state state = sy_supervisor_state(r->core->supervisor, w);
        if (state != SY_WORKER_IDLE && state != SY_WORKER_TRAINING &&
            state != SY_WORKER_WAITING_TURN)
            return false;
    }
    return !r->core->requests && sy_sched_n_started(r->core->sched) == 0;
}

void core_rig_calm(struct core_rig *r)
{
    core_rig_until(r, is_calm, NULL, "idle workers and an empty queue");
    assert_int_equal(sy_sched_n_waiting(r->core->sched), 0);
    assert_true(sy_sched_is_valid(r->core->sched));
    assert_int_equal(r->core->n_requests, 0);
    assert_int_equal(sy_slab_used_bytes(r->core->slab), 0);
    for (int i = 0; i < (int)SY_MAX_MODELS; i++) {
        const struct sy_core_model *m = &r->core->models[i];
        if (!m->used)
            continue;
        assert_int_equal(m->state, SY_MODEL_READY);
        assert_int_equal(sy_core_model_evict(r->core, m->name, true), SY_OK); /* not pinned */
        assert_int_equal(sy_residency_n_resident(sy_sched_residency(r->core->sched), i), 0);
    }
    /* With no model in it, only the lane and a job's two blocks are taken. */
    uint64_t taken = r->pool_bytes - sy_pool_free_bytes(sy_sched_pool(r->core->sched));
    assert_true(taken <= 64 * FAKE_WORKSPACE + (96u << 10) + (256u << 10));
}

/* ---- jobs --------------------------------------------------------------------------------------- */

json_t *core_rig_job(struct core_rig *r, uint64_t id)
{
    json_t *status, *found = NULL, *job;
    size_t i;
    assert_int_equal(sy_core_status(r->core, &status), SY_OK);
    json_array_foreach(json_object_get(status, "jobs"), i, job)
    {
        if ((uint64_t)json_integer_value(json_object_get(job, "job")) == id)
            found = json_incref(job);
    }
    json_decref(status);
    assert_non_null(found);
    return found;
}

bool core_rig_job_is(struct core_rig *r, uint64_t id, const char *state)
{
    json_t *job = core_rig_job(r, id);
    bool is = !strcmp(json_string_value(json_object_get(job, "state")), state);
    json_decref(job);
    return is;
}

struct job_wait {
    uint64_t id, step;
    const char *state;
};

static bool job_is(struct core_rig *r, void *ctx)
{
    const struct job_wait *w = ctx;
    return core_rig_job_is(r, w->id, w->state);
}

void core_rig_await_job(struct core_rig *r, uint64_t id, const char *state)
{
    struct job_wait w = {.id = id, .state = state};
    core_rig_until(r, job_is, &w, state);
}

uint64_t core_rig_step(struct core_rig *r, uint64_t id)
{
    json_t *job = core_rig_job(r, id);
    uint64_t step = (uint64_t)json_integer_value(json_object_get(job, "step"));
    json_decref(job);
    return step;
}

static bool has_step(struct core_rig *r, void *ctx)
{
    const struct job_wait *w = ctx;
    return core_rig_step(r, w->id) >= w->step;
}

void core_rig_await_step(struct core_rig *r, uint64_t id, uint64_t step)
{
    struct job_wait w = {.id = id, .step = step};
    core_rig_until(r, has_step, &w, "a step of the job");
}

void core_rig_submit(struct core_rig *r, struct core_done *done, uint64_t *id)
{
    struct core_done own = {0};
    struct core_done *mine = done ? done : &own;
    *mine = (struct core_done){0};
    assert_int_equal(sy_core_job_submit(r->core, "{\"name\": \"fake\"}", core_rig_done, mine, id),
                     SY_OK);
    if (!done && core_rig_wait_done(r, mine, "the job's start") < 0)
        fail_msg("job: %s", mine->error);
}

int core_rig_stop(struct core_rig *r, uint64_t id)
{
    struct core_done done = {0};
    assert_int_equal(sy_core_job_stop(r->core, id, false, core_rig_done, &done), SY_OK);
    return core_rig_wait_done(r, &done, "the job's end");
}
