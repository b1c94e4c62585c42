/* The model table: packages, their groups, and which worker has which model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/row_independence.h"
#include "loader/package/class_labels.h"
#include "loader/storage/direct_read.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/printable.h"
#include "runtime/core/core_batch.h"
#include "runtime/core/core_image.h"
#include "runtime/core/core_internal.h"

#define MAX_LOST 3 /* consecutive workers that may die while loading a model */

static void free_model(struct sy_core_model *m)
{
    free(m->corun.retry_at_ns);
    free(m->corun.apart);
    free(m->name);
    free(m->path);
    free((void *)(uintptr_t)m->ref.reshapes);
    free((void *)(uintptr_t)m->ref.states);
    sy_class_labels_free(m->labels);
    free(m->groups);
    free(m->group_layers);
    free(m->group_bytes);
    free(m->direct);
    sy_core_heads_free(m);
    sy_core_sizes_free(m);
    sy_package_close(m->package);
    *m = (struct sy_core_model){0};
}

void sy_core_free_models(struct sy_core *core)
{
    for (unsigned i = 0; i < SY_MAX_MODELS; i++)
        if (core->models[i].used)
            free_model(&core->models[i]);
}

/* ---- adding ----------------------------------------------------------------------------------- */

/* An id is free once no answer of a worker for it is outstanding. */
static bool is_free(const struct sy_core *core, int id)
{
    bool taken = core->models[id].used;
    for (int w = 0; w < core->n_workers; w++)
        taken |= core->workers[w].has[id] != SY_HAS_NOT;
    return !taken;
}

int sy_core_model_room(const struct sy_core *core)
{
    int n = 0;
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        n += is_free(core, i);
    return n;
}

static int free_id(const struct sy_core *core)
{
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        if (is_free(core, i))
            return i;
    return sy_error_set(SY_EBUSY, "%u models are loaded; unload one first", SY_MAX_MODELS);
}

static void send_model(struct sy_core *core, int worker, int model)
{
    struct sy_core_model *m = &core->models[model];
    struct sy_message message = {.id = SY_MSG_MODEL_ADD};
    message.model_add = (struct sy_msg_model_add){
        .model = (uint64_t)model,
        .path = m->path,
        .group_layers = {.n = (size_t)m->n_groups, .v = m->group_layers},
        .warm_batches = {.n = core->n_warm, .v = core->warm_batches},
    };
    core->workers[worker].has[model] = SY_HAS_SENT;
    core->workers[worker].n_pending++;
    sy_sched_worker_loads(core->sched, worker, core->workers[worker].n_pending);
    (void)sy_supervisor_send(core->supervisor, worker, &message, &m->package->fd,
                             1); /* a failure kills it: sy_core_worker_lost */
}

void sy_core_send_models(struct sy_core *core, int worker)
{
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        if (core->models[i].used && core->models[i].status == SY_OK &&
            (!core->models[i].leaving || core->models[i].n_held > 0))
            send_model(core, worker, i);
}

static bool takes_models(const struct sy_core *core, int worker)
{
    enum sy_worker_state state = sy_supervisor_state(core->supervisor, worker);
    return state >= SY_WORKER_LOADING_MODELS && state < SY_WORKER_STOPPING;
}

/* The caller keeps a package that it passed in. */
static int refuse_model(struct sy_core_model *m, const struct sy_core_model_options *options,
                        int status)
{
    if (options->package)
        m->package = NULL;
    free_model(m);
    return status;
}

/* Copies an array of the options; NULL for an empty one. */
static int copy_list(const void *list, int n, size_t each, const void **out)
{
    void *copy = n > 0 ? malloc((size_t)n * each) : NULL;
    if (n > 0 && !copy)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a list of %d", n);
    if (n > 0)
        memcpy(copy, list, (size_t)n * each);
    *out = copy;
    return SY_OK;
}

static int take_options(struct sy_core_model *m, const struct sy_core_model_options *options)
{
    const void *reshapes = NULL, *states = NULL;
    int status =
        copy_list(options->reshapes, options->n_reshapes, sizeof *options->reshapes, &reshapes);
    if (status == SY_OK)
        status = copy_list(options->states, options->n_states, sizeof *options->states, &states);
    m->ref = (struct sy_core_model_ref){.n_reshapes = options->n_reshapes,
                                        .reshapes = reshapes,
                                        .n_states = options->n_states,
                                        .states = states,
                                        .session_idle_ns = options->session_idle_ns,
                                        .package = m->package,
                                        .name = m->name,
                                        .version = options->version ? options->version : 1,
                                        .defaults = options->defaults};
    return status;
}

static int open_model(struct sy_core *core, const char *path,
                      const struct sy_core_model_options *options, int *out)
{
    const char *name = options->name;
    int id = free_id(core);
    SY_TRY(id);
    struct sy_core_model *m = &core->models[id];
    *m = (struct sy_core_model){.used = true,
                                .state = SY_MODEL_ADDING,
                                .tenant = -1,
                                .replaces = options->replaces,
                                .max_delay_ns = options->max_delay_ns,
                                .max_batch = options->max_batch};
    snprintf(m->slice, sizeof m->slice, "%s", options->defaults.slice);
    sy_core_forget(core, id);
    m->package = options->package;
    int status = m->package ? SY_OK : sy_package_open(path, &m->package);
    if (status == SY_OK) {
        m->path = strdup(path);
        m->name = strdup(name && *name ? name : m->package->name);
        if (!m->path || !m->name)
            status = sy_error_set(SY_ENOMEM_HOST, "no memory for a model");
        else if (strlen(m->name) >= SY_CORE_MODEL_NAME)
            status = sy_error_set(SY_EARG, "a model's name of %zu bytes; at most %d",
                                  strlen(m->name), SY_CORE_MODEL_NAME - 1);
        else if (m->name[sy_printable_length(m->name)])
            status = sy_error_set(SY_EARG, "model '%s': a name is UTF-8 without control characters",
                                  m->name);
    }
    if (status == SY_OK)
        status = sy_core_cut_groups(core, m);
    if (status == SY_OK)
        status = sy_core_heads_update(core, m);
    if (status == SY_OK)
        m->rows_are_independent =
            sy_graph_rows_are_independent(m->package->graph, m->package->usual);
    if (status == SY_OK)
        status = take_options(m, options);
    if (status < 0)
        return refuse_model(m, options, status);
    *out = id;
    return SY_OK;
}

/* The model was added: takes over what the caller passed in. */
static void take_labels(struct sy_core_model *m, const struct sy_core_model_options *options)
{
    m->labels = options->labels;
    m->ref.labels = options->labels;
}

/* Index of another model with this name and version; -1: none. */
static int twin_of(const struct sy_core *core, int self)
{
    const struct sy_core_model *m = &core->models[self];
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        if (i != self && sy_core_model_is_named(&core->models[i], m->name, m->ref.version))
            return i;
    return -1;
}

static int check_twin(const struct sy_core *core, int self)
{
    const struct sy_core_model *m = &core->models[self];
    int twin = twin_of(core, self);
    if (twin < 0 || (m->replaces && core->models[twin].state == SY_MODEL_READY))
        return SY_OK;
    if (m->replaces)
        return sy_error_set(SY_EBUSY, "model '%s' is loading already", m->name);
    return sy_error_set(
        SY_EBUSY, "there is a model '%s' already; unload it first, or give another name", m->name);
}

/* Charges the maximum that the model can occupy, whether or not others leave that much: so a tenant's charge does not depend on other tenants. */
static int charge(struct sy_core *core, struct sy_core_model *m, const char *tenant)
{
    char what[SY_CORE_MODEL_NAME + SY_CORE_TENANT_NAME + 128];
    int index;
    uint64_t pool = SY_MIN(m->heads.pool_bytes, sy_pool_size(core->pool));
    uint64_t image = core->unified ? 0 : m->package->weights_bytes;
    uint64_t bytes =
        SY_MAX(pool + image, 1); /* at least 1, so that tenants with models keep their entries */
    if (!tenant)
        return SY_OK;
    SY_TRY(sy_core_tenant_find(core, tenant, &index));
    snprintf(what, sizeof what,
             "model '%s' of tenant '%s', with %llu bytes in the pool and %llu in the host image,",
             m->name, tenant, (unsigned long long)pool, (unsigned long long)image);
    SY_TRY(sy_sched_charge(core->sched, index, bytes, what));
    m->tenant = index;
    m->charged_bytes = bytes;
    return SY_OK;
}

static void give_charge_back(struct sy_core *core, struct sy_core_model *m)
{
    if (m->tenant >= 0)
        sy_sched_release(core->sched, m->tenant, m->charged_bytes);
    m->tenant = -1;
}

static void drop_model(struct sy_core *core, int model)
{
    struct sy_message message = {.id = SY_MSG_MODEL_DROP, .model_drop = {.model = (uint64_t)model}};
    for (int w = 0; w < core->n_workers; w++) {
        if (core->workers[w].has[model] == SY_HAS_NOT)
            continue;
        (void)sy_supervisor_send(core->supervisor, w, &message, NULL, 0);
        if (core->workers[w].has[model] == SY_HAS_IT)
            core->workers[w].has[model] = SY_HAS_NOT;
    }
    core->gone_ns += core->models[model].account.used_ns;
    give_charge_back(core, &core->models[model]);
    sy_core_corun_leave(core, model);
    free_model(&core->models[model]);
}

/* Called when the last reference was released. */
static void begin_leave(struct sy_core *core, int model)
{
    core->models[model].state = SY_MODEL_UNAVAILABLE;     /* the head must not be kept any more */
    (void)sy_sched_model_evict(core->sched, model, true); /* also ends a fetch of its head */
}

void sy_core_models_leave(struct sy_core *core)
{
    for (int i = 0; i < (int)SY_MAX_MODELS; i++) {
        struct sy_core_model *m = &core->models[i];
        if (!m->used || !m->leaving || m->n_held > 0)
            continue;
        begin_leave(core, i);
        if (sy_sched_model_remove(core->sched, i) != SY_EBUSY)
            drop_model(core, i);
    }
}

static int remove_model(struct sy_core *core, int index)
{
    struct sy_core_model *m = &core->models[index];
    if (m->state == SY_MODEL_ADDING)
        return sy_error_set(SY_EBUSY, "model '%s' is loading", m->name);
    sy_core_batch_flush(core->batches, index); /* its gathered requests need not wait for more */
    m->leaving = true;
    sy_core_models_leave(core);
    sy_core_heads_choose(core);
    sy_core_pump_soon(core);
    return SY_OK;
}

/* A model that became unavailable releases its name to the one that is loaded in its place. */
static void make_way(struct sy_core *core, int self)
{
    int twin = twin_of(core, self);
    if (twin >= 0 && core->models[twin].state == SY_MODEL_UNAVAILABLE)
        SY_CLEANUP(remove_model(core, twin));
}

int sy_core_n_workers_left(const struct sy_core *core)
{
    int n = 0;
    for (int w = 0; w < core->n_workers; w++)
        n += !core->workers[w].gone;
    return n;
}

int sy_core_model_add(struct sy_core *core, const char *path,
                      const struct sy_core_model_options *options, sy_core_done done, void *ctx)
{
    static const struct sy_core_model_options usual = {0};
    int id;
    options = options ? options : &usual;
    if (core->draining)
        return sy_error_set(SY_EBUSY, "draining: the runtime stops and loads no models");
    if (options->version < 0)
        return sy_error_set(SY_EARG, "version %lld of a model; 1 or above",
                            (long long)options->version);
    if (sy_core_n_workers_left(core) == 0)
        return sy_error_set(SY_EPEER, "no worker is left; see the log for why they died");
    SY_TRY(open_model(core, path, options, &id));
    struct sy_core_model *m = &core->models[id];
    make_way(core, id);
    int twin = check_twin(core, id);
    if (twin < 0)
        return refuse_model(m, options, twin);
    int charged = charge(core, m, options->tenant);
    if (charged < 0) {
        core->counts.refused.n[SY_REFUSED_QUOTA]++;
        return refuse_model(m, options, charged);
    }
    take_labels(m, options);
    m->done = done;
    m->done_ctx = ctx;
    for (int w = 0; w < core->n_workers; w++)
        if (takes_models(core, w))
            send_model(core, w, id);
    return SY_OK;
}

static void settle(struct sy_core *core, int model)
{
    struct sy_core_model *m = &core->models[model];
    sy_core_done done = m->done;
    void *ctx = m->done_ctx;
    char error[512] = "";
    uint64_t workspace = m->n_workspaces ? UINT64_MAX : 0;
    for (int i = 0; i < m->n_workspaces; i++)
        workspace = SY_MIN(workspace, m->workspaces[i].bytes);
    int status = m->status;
    if (status < 0)
        snprintf(error, sizeof error, "model %s: %s", m->name, m->error);
    if (status == SY_OK &&
        (status = sy_sched_model_add_direct(core->sched, model, m->n_groups, m->group_bytes,
                                            m->direct, workspace)) < 0)
        snprintf(error, sizeof error, "model %s: %s", m->name, sy_error_text());
    m->done = NULL;
    if (status < 0) {
        sy_log_warn("models", "event=refused model=%s why=\"%s\"", m->name, error);
        drop_model(core, model);
    } else {
        int twin = twin_of(core, model);
        m->state = SY_MODEL_READY;
        sy_core_image_prefer(core, model);
        sy_core_slices_place(core, model, true);
        if (twin >= 0)
            SY_CLEANUP(remove_model(core, twin)); /* the old version was replaced */
        for (int i = 0; i < m->n_workspaces; i++) {
            struct sy_sched_prepared warm = {.worker = -1,
                                             .model = model,
                                             .batch = (int64_t)m->workspaces[i].batch,
                                             .workspace_bytes = m->workspaces[i].bytes};
            sy_sched_workspace(core->sched, &warm);
        }
        sy_core_heads_choose(core);
        sy_log_info("models", "event=loaded model=%s weights_bytes=%llu groups=%d gathered=%d",
                    m->name, (unsigned long long)m->package->weights_bytes, m->n_groups,
                    (int)m->rows_are_independent);
    }
    if (done)
        done(ctx, status, status < 0 ? error : NULL);
}

static void settle_workers(struct sy_core *core)
{
    for (int w = 0; w < core->n_workers; w++) {
        if (core->workers[w].n_pending > 0 ||
            sy_supervisor_state(core->supervisor, w) != SY_WORKER_LOADING_MODELS)
            continue;
        if (sy_supervisor_event(core->supervisor, w, SY_WORKER_EVENT_MODELS_DONE) == SY_OK)
            sy_sched_worker_ready(core->sched, w);
    }
}

/* A model is ready when all workers that were told have loaded it. While the server starts (jobs_held) the first one suffices: it serves while the others
 * build their programs. */
void sy_core_settle_models(struct sy_core *core)
{
    if (core->stopping)
        return;
    for (int i = 0; i < (int)SY_MAX_MODELS; i++) {
        if (!core->models[i].used || core->models[i].state != SY_MODEL_ADDING)
            continue;
        int n_sent = 0, n_have = 0;
        for (int w = 0; w < core->n_workers; w++) {
            n_sent += core->workers[w].has[i] == SY_HAS_SENT;
            n_have += core->workers[w].has[i] == SY_HAS_IT;
        }
        bool waits = n_sent > 0 && (n_have == 0 || !core->jobs_held);
        if (!waits && (n_have > 0 || core->models[i].status < 0))
            settle(core, i);
    }
    settle_workers(core);
}

static void refuse_adding(struct sy_core_model *m, const char *what, const char *why)
{
    m->status = SY_EPEER;
    snprintf(m->error, sizeof m->error, "%s%.150s", what, why);
}

void sy_core_models_worker_lost(struct sy_core *core, int worker, bool comes_back, const char *why)
{
    struct sy_core_worker *w = &core->workers[worker];
    w->gone = !comes_back;
    bool no_worker = sy_core_n_workers_left(core) == 0;
    for (int i = 0; i < (int)SY_MAX_MODELS; i++) {
        struct sy_core_model *m = &core->models[i];
        if (!m->used || m->state != SY_MODEL_ADDING || m->status < 0)
            continue;
        if (no_worker)
            refuse_adding(m, "no worker is left that could load it; the last one: ", why);
        else if (w->has[i] == SY_HAS_SENT && ++m->n_lost >= MAX_LOST)
            refuse_adding(m, "three workers died while they loaded it; the last one: ", why);
    }
    *w = (struct sy_core_worker){.gone = w->gone};
}

static int check_model(const struct sy_core *core, uint64_t model, const char *what)
{
    (void)core;
    if (model >= SY_MAX_MODELS)
        return sy_error_set(SY_EPROTO, "%s of model %llu: ids are below %u", what,
                            (unsigned long long)model, SY_MAX_MODELS);
    return SY_OK;
}

static bool another_has(const struct sy_core *core, int worker, uint64_t model)
{
    for (int w = 0; w < core->n_workers; w++)
        if (w != worker && core->workers[w].has[model] == SY_HAS_IT)
            return true;
    return false;
}

/* Whether a worker that cannot load a ready model should be replaced: a fresh one may succeed where memory was lacking, or where another worker has the model.
 * Three consecutive failures make the model unavailable. */
static bool is_worth_a_fresh_worker(struct sy_core *core, int worker,
                                    const struct sy_msg_model_added *msg)
{
    struct sy_core_model *m = &core->models[msg->model];
    if (!m->used || m->state != SY_MODEL_READY || msg->status >= 0)
        return false;
    return (msg->status == SY_ENOMEM_HOST || another_has(core, worker, msg->model)) &&
           ++m->n_lost < MAX_LOST;
}

int sy_core_model_added(struct sy_core *core, int worker, const struct sy_msg_model_added *msg)
{
    SY_TRY(check_model(core, msg->model, "MODEL_ADDED"));
    struct sy_core_worker *w = &core->workers[worker];
    if (w->has[msg->model] != SY_HAS_SENT)
        return sy_error_set(SY_EPROTO, "MODEL_ADDED of model %llu, which was not sent",
                            (unsigned long long)msg->model);
    struct sy_core_model *m = &core->models[msg->model];
    bool failed = msg->status < 0;
    w->has[msg->model] = m->used && !failed ? SY_HAS_IT : SY_HAS_NOT;
    w->n_pending--;
    sy_sched_worker_loads(core->sched, worker, w->n_pending);
    if (!failed)
        m->n_lost = 0;
    if (is_worth_a_fresh_worker(core, worker, msg))
        return sy_error_set((int)msg->status, "model %s: %.200s", m->name, msg->error);
    if (m->used && failed) {
        m->status = (int)msg->status;
        snprintf(m->error, sizeof m->error, "%s", msg->error);
        if (m->state == SY_MODEL_READY)
            m->state = SY_MODEL_UNAVAILABLE;
        sy_log_error("models", "event=add_failed model=%s worker=%d why=\"%s\"", m->name, worker,
                     msg->error);
    }
    sy_core_settle_models(core);
    return SY_OK;
}

int sy_core_model_prepared(struct sy_core *core, int worker, const struct sy_msg_prepared *msg)
{
    SY_TRY(check_model(core, msg->model, "PREPARED"));
    struct sy_core_model *m = &core->models[msg->model];
    struct sy_sched_prepared prepared = {.worker = worker, .model = -1};
    struct sy_core_sizes *sizes = NULL;
    if (!m->used) { /* unloaded meanwhile */
        sy_sched_workspace(core->sched, &prepared);
        return SY_OK;
    }
    if (msg->batch < 1 || msg->batch > INT64_MAX || msg->workspace_bytes > UINT64_MAX / 2 ||
        msg->team > SY_CORE_MAX_CORES)
        return sy_error_set(SY_EPROTO, "PREPARED with batch %llu, workspace %llu, a team of %llu",
                            (unsigned long long)msg->batch,
                            (unsigned long long)msg->workspace_bytes,
                            (unsigned long long)msg->team);
    if (msg->status == SY_OK)
        sy_core_learn_preparing(core, (int)msg->model, msg->took_ns);
    if (m->state == SY_MODEL_ADDING) {
        if (msg->status == SY_OK && m->n_workspaces < SY_CORE_WARM) {
            for (int i = 0; i < m->n_workspaces; i++)
                if (m->workspaces[i].batch == msg->batch)
                    return SY_OK;
            m->workspaces[m->n_workspaces].batch = msg->batch;
            m->workspaces[m->n_workspaces++].bytes = msg->workspace_bytes;
        }
        return SY_OK;
    }
    if (sy_core_sizes_find(m, &msg->sizes, &sizes))
        prepared = (struct sy_sched_prepared){.worker = worker,
                                              .model = (int)msg->model,
                                              .team = (int)msg->team,
                                              .batch = (int64_t)msg->batch,
                                              .sizes = sizes ? sizes->id : 0,
                                              .status = (int)msg->status,
                                              .why = msg->error,
                                              .workspace_bytes = msg->workspace_bytes};
    sy_sched_workspace(core->sched, &prepared);
    return SY_OK;
}

int sy_core_model_remove(struct sy_core *core, const char *name, int64_t version)
{
    int status = SY_OK;
    SY_TRY(sy_core_model_lookup(core, name, version));
    for (int i = 0; i < (int)SY_MAX_MODELS; i++) {
        int removed =
            sy_core_model_is_named(&core->models[i], name, version) ? remove_model(core, i) : SY_OK;
        status = removed < 0 ? removed : status;
    }
    return status;
}

static int evict_model(struct sy_core *core, int index, bool image_too)
{
    const char *name = core->models[index].name;
    int status = sy_sched_model_evict(core->sched, index, image_too);
    if (status == SY_EBUSY)
        return sy_error_set(status, "model '%s' streams or runs; try again later", name);
    if (status == SY_ENOTFOUND)
        return sy_error_set(SY_EBUSY, "model '%s' is loading", name);
    SY_TRY(status);
    core->models[index].heads.out = true;
    return SY_OK;
}

int sy_core_model_evict(struct sy_core *core, const char *name, bool image_too)
{
    SY_TRY(sy_core_model_lookup(core, name, 0));
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        if (sy_core_model_is_named(&core->models[i], name, 0))
            SY_TRY(evict_model(core, i, image_too));
    sy_core_heads_choose(core);
    sy_core_pump_soon(core); /* a fetch of its groups may have to end */
    return SY_OK;
}
