#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/simulation/sim_world.h"

#define MOST_REQUESTS 24 /* at one time */
#define MOST_LIVE     4  /* jobs */
#define PATIENCE_NS \
    (400 * SY_NS_PER_S) /* the last workers may hang while they load models, which has 300 s */

/* All of a walk are kept, so that a second answer is seen. */
struct sim_request {
    struct sim_request *next;
    uint64_t id, in, out, bytes;
    int64_t batch;
    int n_answers;
    bool canceled;
    sy_ns since_ns;
};

/* One of a model or a job: its callback comes once. */
struct sim_call {
    struct sim_call *next;
    const char *what;
    uint64_t id;
    int n_answers, status;
    sy_ns since_ns;
};

static const char *const models[] = {"a", "b"};

static int n_waiting(void)
{
    int n = 0;
    for (const struct sim_request *r = sim.requests; r; r = r->next)
        n += r->n_answers == 0;
    return n;
}

/* ---- calls that are answered later -------------------------------------------------------------- */

static void on_done(void *ctx, int status, const char *error)
{
    struct sim_call *c = ctx;
    sim_say("%s %llu: %s %s", c->what, (unsigned long long)c->id, sy_status_name(status),
            error ? error : "");
    c->status = status;
    SIM_CHECK(++c->n_answers == 1, "%s %llu: a second answer", c->what, (unsigned long long)c->id);
}

static struct sim_call *new_call(const char *what)
{
    struct sim_call *c = calloc(1, sizeof *c);
    SIM_CHECK(c, "no memory");
    *c = (struct sim_call){.what = what, .since_ns = sim_os_now(), .next = sim.calls};
    sim.calls = c;
    return c;
}

/* The call itself failed: nobody is called. */
static void said(struct sim_call *c, int status)
{
    sim_say("client: %s: %s %s", c->what, sy_status_name(status),
            status < 0 ? sy_error_text() : "");
    SIM_CHECK(status == SY_OK || c->n_answers == 0, "%s: refused, and answered", c->what);
    if (status < 0)
        c->n_answers = 1;
}

static void add_model(const char *name)
{
    char path[128];
    struct sim_call *c = new_call("add model");
    snprintf(path, sizeof path, "%s/%s.sypkg", sim.rig.folder, name);
    said(c, sy_core_model_add(sim.core, path, NULL, on_done, c));
}

/* ---- requests ----------------------------------------------------------------------------------- */

static void check_output(const struct sim_request *r)
{
    const float *in = sy_slab_pointer(sim.core->slab, r->in),
                *out = sy_slab_pointer(sim.core->slab, r->out);
    for (int64_t i = 0; i < r->batch * FAKE_ROW; i++)
        SIM_CHECK(out[i] == 2 * in[i] + 1, "request %llu: a wrong answer",
                  (unsigned long long)r->id);
}

static void release(const struct sim_request *r)
{
    sy_slab_release(sim.core->slab, r->in);
    sy_slab_release(sim.core->slab, r->out);
    sim.slab_bytes -= r->bytes;
}

static void on_answer(void *ctx, int status, const char *error,
                      const struct sy_request_report *report)
{
    struct sim_request *r = ctx;
    (void)report;
    sim_say("request %llu: %s %s", (unsigned long long)r->id, sy_status_name(status),
            error ? error : "");
    SIM_CHECK(++r->n_answers == 1, "request %llu: a second answer", (unsigned long long)r->id);
    SIM_CHECK(status != SY_ECANCELED || r->canceled, "request %llu: canceled, by nobody",
              (unsigned long long)r->id);
    if (status == SY_OK)
        check_output(r);
    sim.n_answered += status == SY_OK;
    sim.n_canceled += status == SY_ECANCELED;
    sim.n_failed += status < 0 && status != SY_ECANCELED;
    release(r);
}

static bool fill(struct sim_request *r)
{
    struct sy_slab *slab = sim.core->slab;
    uint64_t bytes = (uint64_t)r->batch * FAKE_ROW * sizeof(float);
    if (sy_slab_alloc(slab, bytes, &r->in) < 0)
        return false;
    if (sy_slab_alloc(slab, bytes, &r->out) < 0) {
        sy_slab_release(slab, r->in);
        return false;
    }
    r->bytes = sy_slab_piece_bytes(slab, r->in) + sy_slab_piece_bytes(slab, r->out);
    sim.slab_bytes += r->bytes;
    memset(sy_slab_pointer(slab, r->out), 0xff, bytes);
    float *in = sy_slab_pointer(slab, r->in);
    for (int64_t i = 0; i < r->batch * FAKE_ROW; i++)
        in[i] = (float)sim_draw(1000);
    return true;
}

static void ask(void)
{
    static const char *const tenants[] = {NULL, "red", "blue"};
    struct sim_request *r = calloc(1, sizeof *r);
    if (n_waiting() >= MOST_REQUESTS || !r) {
        free(r);
        return;
    }
    r->batch = 1 + (int64_t)(sim_draw(4) ? 0 : sim_draw(4));
    r->since_ns = sim_os_now();
    const struct sy_core_infer_options options = {.class_ = (int)sim_draw(3),
                                                  .deadline_ns =
                                                      sim_draw(6) ? 0 : sim_time(20 * SY_NS_PER_MS),
                                                  .tenant = tenants[sim_draw(3)]};
    if (!fill(r)) {
        free(r);
        return;
    }
    const char *name = models[sim_draw(SY_ARRAY_LEN(models))];
    int status =
        core_rig_send(&sim.rig, name, r->batch, r->in, r->out, &options, on_answer, r, &r->id);
    sim_say("client: asks %s, batch %d, class %d: %s, request %llu", name, (int)r->batch,
            options.class_, sy_status_name(status), (unsigned long long)r->id);
    SIM_CHECK(r->n_answers == 0, "request %llu: answered inside of the call",
              (unsigned long long)r->id);
    sim.was_refused = status < 0;
    if (status < 0) {
        sim.n_refused++;
        release(r);
        free(r);
        if (status == SY_ENOTFOUND)
            add_model(name);
        return;
    }
    r->next = sim.requests;
    sim.requests = r;
}

static void vanish(void)
{
    int n = n_waiting(), k = n ? (int)sim_draw((uint64_t)n) : -1;
    for (struct sim_request *r = sim.requests; r; r = r->next) {
        if (r->n_answers > 0 || k-- > 0)
            continue;
        sim_say("client: of request %llu vanishes", (unsigned long long)r->id);
        r->canceled = true;
        sy_core_infer_cancel(sim.core, r->id);
        return;
    }
}

/* ---- models and jobs ---------------------------------------------------------------------------- */

static void change_models(void)
{
    const char *name = models[sim_draw(SY_ARRAY_LEN(models))];
    if (sim_draw(2))
        add_model(name);
    else
        sim_say("client: removes %s: %s", name,
                sy_status_name(sy_core_model_remove(sim.core, name, 0)));
}

static void evict(void)
{
    const char *name = models[sim_draw(SY_ARRAY_LEN(models))];
    sim_say("client: evicts %s: %s", name,
            sy_status_name(sy_core_model_evict(sim.core, name, sim_draw(2))));
}

static bool is_live(const struct sy_core_job *j)
{
    return j->state != SY_JOB_ENDED && j->state != SY_JOB_FAILED;
}

static struct sy_core_job *some_job(void)
{
    struct sy_core_job *found = NULL;
    uint64_t n = 0;
    for (struct sy_core_job *j = sim.core->jobs; j; j = j->next)
        if ((is_live(j) || j->parked) && sim_draw(++n) == 0)
            found = j;
    return found;
}

static void submit(void)
{
    char text[200];
    int n = 0;
    for (const struct sy_core_job *j = sim.core->jobs; j; j = j->next)
        n += is_live(j);
    if (n >= MOST_LIVE || sim.core->last_job >= SIM_MAX_JOBS - 1)
        return;
    struct sim_call *c = new_call("job");
    snprintf(text, sizeof text,
             "{\"name\": \"sim\", \"class\": \"%s\", \"priority\": %d, \"snapshot\": {%s}}",
             sim_draw(2) ? "guaranteed" : "opportunistic", (int)sim_draw(3),
             sim_draw(2) ? "\"folder\": \"/nowhere\"" : "");
    said(c, sy_core_job_submit(sim.core, text, on_done, c, &c->id));
}

static void change_job(void)
{
    const struct sy_core_job *j = some_job();
    if (!j)
        return;
    uint64_t id = j->id, kind = sim_draw(6);
    struct sim_call *c = kind >= 4 ? new_call(kind == 4 ? "stop job" : "park job") : NULL;
    if (c)
        c->id = id;
    if (kind < 3)
        sim_say("client: %s job %llu: %s", kind ? "lets go" : "suspends", (unsigned long long)id,
                sy_status_name(sy_core_job_suspend(sim.core, id, kind == 0)));
    else if (kind == 3)
        sim_say("client: priority of job %llu: %s", (unsigned long long)id,
                sy_status_name(sy_core_job_set_priority(sim.core, id, (int)sim_draw(4))));
    else
        said(c, kind == 4 ? sy_core_job_stop(sim.core, id, false, on_done, c)
                          : sy_core_job_park(sim.core, id, on_done, c));
}

/* ---- rules -------------------------------------------------------------------------------------- */

static void change_rules(void)
{
    static const char *const policies[] = {"{\"policy\": \"fair\"}",     "{\"policy\": \"fifo\"}",
                                           "{\"train_share\": 0.3}",     "{\"train_share\": 0}",
                                           "{\"at_once\": 2}",           "{\"at_once\": 0}",
                                           "{\"policy\": \"priority\"}", "{\"max_wait_s\": 0.01}"};
    const char *text = policies[sim_draw(SY_ARRAY_LEN(policies))];
    json_t *params = json_loads(text, 0, NULL);
    sim_say("client: policy %s: %s", text, sy_status_name(sy_core_policy_set(sim.core, params)));
    json_decref(params);
}

static void change_slices(void)
{
    static const char *const cuts[] = {"{\"slices\": []}",
                                       "{\"slices\": [{\"name\": \"x\", \"cores\": \"0-1\"}, "
                                       "{\"name\": \"y\", \"cores\": \"2-3\"}]}",
                                       "{\"slices\": [{\"name\": \"x\", \"cores\": \"0-2\"}, "
                                       "{\"name\": \"y\", \"cores\": \"3\"}], \"for_jobs\": \"y\"}",
                                       "{\"model\": \"a\", \"slice\": \"y\"}",
                                       "{\"model\": \"b\", \"slice\": \"x\"}",
                                       "{\"for_jobs\": \"x\"}"};
    const char *text = cuts[sim_draw(SY_ARRAY_LEN(cuts))];
    json_t *params = json_loads(text, 0, NULL);
    sim_say("client: slices %s: %s", text, sy_status_name(sy_core_slices_set(sim.core, params)));
    json_decref(params);
}

void sim_client_acts(void)
{
    static const struct {
        unsigned weight;
        void (*act)(void);
    } acts[] = {{600, ask},   {25, vanish},     {6, change_models}, {20, evict},
                {14, submit}, {20, change_job}, {4, change_rules},  {2, change_slices}};
    unsigned all = 0, k = 0;
    for (size_t i = 0; i < SY_ARRAY_LEN(acts); i++)
        all += acts[i].weight;
    uint64_t drawn = sim_draw(all);
    while (drawn >= acts[k].weight)
        drawn -= acts[k++].weight;
    acts[k].act();
}

/* ---- what must hold ----------------------------------------------------------------------------- */

static void check_worker(int w)
{
    struct sy_core *core = sim.core;
    enum sy_worker_state state = sy_supervisor_state(core->supervisor, w);
    bool is_free = state == SY_WORKER_IDLE || state == SY_WORKER_DEAD;
    SIM_CHECK(!is_free || !sy_sched_computes(core->sched, w),
              "worker %d is %s, and computes a request", w, sy_worker_state_name(state));
    for (const struct sy_core_job *j = core->jobs; j; j = j->next)
        SIM_CHECK(j->worker != w || !is_free || !is_live(j), "worker %d is %s, and has job %llu", w,
                  sy_worker_state_name(state), (unsigned long long)j->id);
}

void sim_clients_look(void)
{
    sy_ns now = sim_os_now();
    for (int w = 0; w < sim.n_workers; w++)
        check_worker(w);
    uint64_t used = sy_slab_used_bytes(sim.core->slab);
    /* The core gathers into tensors of its own; answers of connections wait to be read. */
    bool others = sim.core->requests || sim.has_front;
    SIM_CHECK(used == sim.slab_bytes || (others && used > sim.slab_bytes),
              "%llu bytes of the slab are taken, clients have %llu", (unsigned long long)used,
              (unsigned long long)sim.slab_bytes);
    for (const struct sim_request *r = sim.n_events % 16 ? NULL : sim.requests; r; r = r->next)
        SIM_CHECK(r->n_answers || now - r->since_ns < PATIENCE_NS, "request %llu waits for ever",
                  (unsigned long long)r->id);
    SIM_CHECK(sim.n_events % 16 || sy_sched_is_valid(sim.core->sched),
              "the scheduler's books are wrong");
}

bool sim_clients_have_all(void)
{
    bool all = n_waiting() == 0 && !sim.core->requests;
    for (const struct sim_call *c = sim.calls; c; c = c->next)
        all &= c->n_answers > 0;
    for (const struct sy_core_job *j = sim.core->jobs; j; j = j->next)
        all &= !is_live(j);
    return all;
}

void sim_clients_begin(void)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(models); i++)
        add_model(models[i]);
}

void sim_clients_end_jobs(void)
{
    for (const struct sy_core_job *j = sim.core->jobs; j; j = j->next) {
        if (!is_live(j) || j->stop_wanted)
            continue;
        struct sim_call *c = new_call("end job");
        c->id = j->id;
        said(c, sy_core_job_stop(sim.core, j->id, false, on_done, c));
    }
}

void sim_clients_remove_models(void)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(models); i++)
        (void)sy_core_model_remove(sim.core, models[i], 0);
}

void sim_clients_finish(void)
{
    while (sim.requests) {
        struct sim_request *next = sim.requests->next;
        SIM_CHECK(sim.requests->n_answers == 1, "request %llu has no answer",
                  (unsigned long long)sim.requests->id);
        free(sim.requests);
        sim.requests = next;
    }
    while (sim.calls) {
        struct sim_call *next = sim.calls->next;
        SIM_CHECK(sim.calls->n_answers == 1, "%s %llu has no answer", sim.calls->what,
                  (unsigned long long)sim.calls->id);
        free(sim.calls);
        sim.calls = next;
    }
}
