#include "runtime/repository/repository.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/package/package.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/request/offload.h"
#include "runtime/repository/repository_internal.h"

#define USUAL_POLL_NS (15 * SY_NS_PER_S)
#define RETRY_NS      (5 * SY_NS_PER_S) /* until what may pass is tried again */
#define MOST_TASKS    (1 << 20)         /* a version has one, a load one */

/* ---- create and destroy ------------------------------------------------------------------------------------------- */

static int copy_text(const char *from, char **to)
{
    *to = strdup(from);
    return *to ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for the repository");
}

static int copy_config(struct sy_repository *r, const struct sy_repository_config *config)
{
    SY_TRY(copy_text(config->folder, &r->folder));
    SY_TRY(copy_text(config->device, &r->device));
    r->startup = calloc((size_t)config->n_startup_models + 1, sizeof *r->startup);
    SY_TRY_ALLOC(r->startup, "no memory for the repository");
    for (int i = 0; i < config->n_startup_models; i++)
        SY_TRY(copy_text(config->startup_models[i], &r->startup[r->n_startup++]));
    r->control = config->control;
    r->poll_ns = config->poll_ns ? config->poll_ns : USUAL_POLL_NS;
    r->importer = config->importer;
    r->started = config->started;
    r->started_ctx = config->ctx;
    return SY_OK;
}

static void on_wake(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    sy_repository_call_woken(ctx);
    sy_repository_run_callbacks(ctx);
}

static void on_poll(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    if (sy_repository_poll(ctx) < 0)
        sy_repository_poll_later(ctx);
}

static int begin(struct sy_repository *r)
{
    r->wake_event = event_new(r->base, -1, 0, on_wake, r);
    r->poll_event = event_new(r->base, -1, 0, on_poll, r);
    SY_TRY_ALLOC(r->wake_event && r->poll_event, "no memory for the repository's events");
    SY_TRY(sy_offload_create(r->base, 1, MOST_TASKS, &r->thread));
    SY_TRY(sy_repository_begin(r));
    if (r->control == SY_REPOSITORY_POLL)
        sy_repository_poll_later(r);
    return SY_OK;
}

int sy_repository_create(struct event_base *base, const struct sy_repository_config *config,
                         const struct sy_core_handlers *handlers, void *core,
                         struct sy_repository **out)
{
    struct sy_repository *r = calloc(1, sizeof *r);
    int status;

    SY_TRY_ALLOC(r, "no memory for the repository");
    r->base = base;
    r->handlers = handlers;
    r->core = core;
    r->front = (struct sy_front){.base = base, .handlers = handlers, .core = core};
    r->imports_end = &r->imports;
    r->rests = sy_repository_version_settled;
    status = copy_config(r, config);
    if (status == SY_OK)
        status = begin(r);
    if (status < 0) {
        sy_repository_destroy(r);
        return status;
    }
    *out = r;
    return SY_OK;
}

static void free_models(struct sy_repository *r)
{
    struct sy_repository_model *model, *next;

    for (int i = 0; i < r->n_buckets; i++)
        for (model = r->buckets[i]; model; model = next) {
            next = model->next;
            sy_repository_model_free(model);
        }
    free(r->buckets);
}

void sy_repository_stop(struct sy_repository *r)
{
    if (!r || r->stops)
        return;
    r->stops = true;
    sy_repository_loads_drop(r);
    for (int i = 0; i < r->n_buckets; i++)
        for (struct sy_repository_model *model = r->buckets[i]; model; model = model->next)
            sy_repository_wake(model);
    sy_repository_call_woken(r);
}

void sy_repository_destroy(struct sy_repository *r)
{
    if (!r)
        return;
    r->stops = true;
    sy_repository_loads_drop(r);
    sy_offload_destroy(r->thread);
    while (r->woken)
        sy_repository_wait_cancel(r->woken);
    free_models(r);
    if (r->wake_event)
        event_free(r->wake_event);
    if (r->poll_event)
        event_free(r->poll_event);
    for (int i = 0; i < r->n_startup; i++)
        free(r->startup[i]);
    free(r->startup);
    free(r->folder);
    free(r->device);
    free(r);
}

/* ---- acquire -------------------------------------------------------------------------------------------------------- */

/* Transient failures: a full table, a worker that died. */
static bool may_pass(const struct sy_repository_version *v)
{
    bool passes = v->status == SY_EBUSY || v->status == SY_EPEER || v->status == SY_ENOMEM_HOST;

    return passes && sy_clock_now() > v->failed_ns + RETRY_NS;
}

/* A request may load it. */
static bool loads_itself(const struct sy_repository_version *v)
{
    if (!v->chosen || v->gone || v->model->config == NULL)
        return false;
    if (v->state == SY_VERSION_UNAVAILABLE)
        return may_pass(v);
    return v->state == SY_VERSION_UNLOADED &&
           (v->evicted || v->model->repository->control != SY_REPOSITORY_EXPLICIT);
}

/* The highest version that serves; if none does, the highest that loads or can. An evicted version is reloaded rather than replaced by a lower one. NULL: no
 * version. */
static struct sy_repository_version *best_version(const struct sy_repository_model *model)
{
    struct sy_repository_version *serving = NULL, *coming = NULL, *any = NULL;

    for (struct sy_repository_version *v = model->versions; v; v = v->next) {
        if (!v->chosen && !v->serves)
            continue;
        any = v;
        if (v->serves)
            serving = v;
        else if (sy_repository_version_is_busy(v) || loads_itself(v))
            coming = v;
    }
    if (coming && serving && coming->version > serving->version && coming->evicted)
        return coming;
    return serving ? serving : coming ? coming : any;
}

static int no_version(const struct sy_repository_model *model, int64_t version)
{
    char list[200] = "";
    size_t used = 0;

    if (model->status < 0)
        return sy_error_set(model->status, "model '%s' is unavailable: %s", model->name,
                            model->reason);
    for (const struct sy_repository_version *v = model->versions; v && used < sizeof list;
         v = v->next)
        if (v->chosen)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%" PRId64,
                                     used ? ", " : "", v->version);
    return sy_error_set(SY_ENOTFOUND, "there is no version %" PRId64 " of model '%s'; there %s %s",
                        version, model->name, *list ? "are:" : "are none", list);
}

static int not_served(const struct sy_repository_version *v)
{
    const char *name = v->model->name;

    if (v->state == SY_VERSION_UNLOADED && v->model->status < 0)
        return no_version(v->model, v->version);
    if (v->state == SY_VERSION_UNAVAILABLE)
        return sy_error_set(v->status, "model '%s', version %" PRId64 ", is unavailable: %s", name,
                            v->version, v->reason);
    if (sy_repository_version_is_busy(v))
        return sy_error_set(SY_EBUSY, "model '%s', version %" PRId64 ", is loading", name,
                            v->version);
    return sy_error_set(SY_EBUSY, "model '%s', version %" PRId64 ", is not loaded; load it first",
                        name, v->version);
}

/* A package that was loaded by its path, under a name of the folder's: until the folder's own is loaded. */
static bool core_has(struct sy_repository *r, const char *name, int64_t version,
                     struct sy_core_model_ref **out)
{
    return r->handlers->model_acquire(r->core, name, version, out) == SY_OK;
}

static int acquire_version(struct sy_repository_version *v, struct sy_repository_wait *wait,
                           struct sy_core_model_ref **out)
{
    struct sy_repository_model *model = v->model;
    struct sy_repository *r = model->repository;

    if (v->serves) {
        int status = r->handlers->model_acquire(r->core, model->name, v->version, out);
        v->used_ns = sy_clock_now();
        if (status != SY_ENOTFOUND)
            return status;
        v->serves = false; /* removed at the core itself */
        v->evicted = true;
        if (v->state == SY_VERSION_READY)
            sy_repository_version_drop(v);
    }
    if (!sy_repository_version_is_busy(v) && core_has(r, model->name, v->version, out))
        return SY_OK;
    if (loads_itself(v) && wait && !r->stops)
        sy_repository_version_want(v);
    if (sy_repository_version_is_busy(v) && wait)
        return sy_repository_park(model, wait);
    return not_served(v);
}

int sy_repository_acquire(struct sy_repository *r, const char *name, int64_t version,
                          struct sy_repository_wait *wait, struct sy_core_model_ref **out)
{
    struct sy_repository_model *model = sy_repository_find(r, name);
    struct sy_repository_version *v;

    if (!model)
        return r->handlers->model_acquire(r->core, name, version, out);
    v = version ? sy_repository_version_find(model, version) : best_version(model);
    if (v && (v->chosen || v->serves))
        return acquire_version(v, wait, out);
    if (core_has(r, name, version, out))
        return SY_OK;
    if (model->n_loads > 0 && !model->versions && wait)
        return sy_repository_park(model, wait); /* its folder is being read */
    return no_version(model, version);
}

/* ---- unload --------------------------------------------------------------------------------------------------------- */

static bool matches(const struct sy_repository_version *v, int64_t version)
{
    return version == 0 || v->version == version;
}

/* A version may be freed in the walk. */
static bool drop_versions(struct sy_repository_model *model, int64_t version)
{
    struct sy_repository_version *v, *next;
    bool found = false;

    for (v = model->versions; v; v = next) {
        next = v->next;
        if (!matches(v, version))
            continue;
        found = true;
        v->off = true;
        v->evicted = false;
        sy_repository_version_drop(v);
    }
    return found;
}

int sy_repository_unload_version(struct sy_repository *r, const char *name, int64_t version)
{
    struct sy_repository_model *model = sy_repository_find(r, name);
    struct sy_core_model_ref *other;
    bool found;

    if (!model)
        return r->handlers->model_remove(r->core, name, version);
    model->n_busy++;
    found = drop_versions(model, version);
    if (core_has(r, name, version, &other)) { /* loaded by its path */
        r->handlers->model_release(r->core, other);
        SY_CLEANUP(r->handlers->model_remove(r->core, name, version));
        found = true;
    }
    sy_repository_loads_overtaken(model);
    model->n_busy--;
    sy_repository_loads_check(model);
    return found || version == 0
               ? SY_OK
               : sy_error_set(SY_ENOTFOUND, "there is no version %" PRId64 " of model '%s'",
                              version, name);
}

int sy_repository_unload(struct sy_repository *r, const char *name)
{
    return sy_repository_unload_version(r, name, 0);
}
