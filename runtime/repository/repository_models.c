/* Models by name, their versions, and parked requests. */
#include <assert.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "loader/package/class_labels.h"
#include "loader/package/package.h"
#include "runtime/base/status.h"
#include "runtime/repository/repository_internal.h"
#include "runtime/repository/warmup_files.h"

#define FIRST_BUCKETS 64

static struct sy_repository_model **bucket_of(const struct sy_repository *r, const char *name)
{
    return &r->buckets[XXH3_64bits(name, strlen(name)) % (uint64_t)r->n_buckets];
}

struct sy_repository_model *sy_repository_find(const struct sy_repository *r, const char *name)
{
    struct sy_repository_model *model = r->n_buckets > 0 ? *bucket_of(r, name) : NULL;

    while (model && strcmp(model->name, name) != 0)
        model = model->next;
    return model;
}

static int grow(struct sy_repository *r)
{
    struct sy_repository_model **old = r->buckets, *model, *next;
    int n_old = r->n_buckets, n = n_old ? 2 * n_old : FIRST_BUCKETS;

    if (r->n_models < n_old)
        return SY_OK;
    r->buckets = calloc((size_t)n, sizeof *r->buckets);
    if (!r->buckets) {
        r->buckets = old;
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d models", n);
    }
    r->n_buckets = n;
    for (int i = 0; i < n_old; i++)
        for (model = old[i]; model; model = next) {
            struct sy_repository_model **bucket = bucket_of(r, model->name);

            next = model->next;
            model->next = *bucket;
            *bucket = model;
        }
    free(old);
    return SY_OK;
}

int sy_repository_model_make(struct sy_repository *r, const char *name,
                             struct sy_repository_model **out)
{
    struct sy_repository_model *model = sy_repository_find(r, name), **bucket;

    if (model) {
        *out = model;
        return SY_OK;
    }
    SY_TRY(grow(r));
    model = calloc(1, sizeof *model);
    if (!model || !(model->name = strdup(name))) {
        free(model);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a model");
    }
    model->repository = r;
    bucket = bucket_of(r, name);
    model->next = *bucket;
    *bucket = model;
    r->n_models++;
    *out = model;
    return SY_OK;
}

void sy_repository_model_free(struct sy_repository_model *model)
{
    struct sy_repository_version *v, *next;

    for (v = model->versions; v; v = next) {
        next = v->next;
        sy_repository_version_free(v);
    }
    while (model->waits)
        sy_repository_wait_cancel(model->waits);
    sy_model_config_free(model->config);
    free(model->name);
    free(model);
}

static bool is_known(const struct sy_repository_model *model)
{
    return model->versions || model->config || model->status < 0 || model->n_loads > 0 ||
           model->n_busy > 0;
}

void sy_repository_model_free_if_gone(struct sy_repository_model *model)
{
    struct sy_repository *r = model->repository;
    struct sy_repository_model **at = bucket_of(r, model->name);

    if (is_known(model))
        return;
    while (*at != model)
        at = &(*at)->next;
    *at = model->next;
    r->n_models--;
    sy_repository_wake(model);
    sy_repository_model_free(model);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct sy_repository_model *const *)a)->name,
                  (*(struct sy_repository_model *const *)b)->name);
}

struct sy_repository_model **sy_repository_models_sorted(const struct sy_repository *r)
{
    struct sy_repository_model **list = calloc((size_t)r->n_models + 1, sizeof(*list));
    int n = 0;

    for (int i = 0; list && i < r->n_buckets; i++)
        for (struct sy_repository_model *model = r->buckets[i]; model; model = model->next)
            list[n++] = model;
    if (list)
        qsort(list, (size_t)n, sizeof(*list), by_name);
    return list;
}

/* ---- versions ------------------------------------------------------------------------------------------------ */

struct sy_repository_version *sy_repository_version_find(const struct sy_repository_model *model,
                                                         int64_t version)
{
    struct sy_repository_version *v = model->versions;

    while (v && v->version != version)
        v = v->next;
    return v;
}

int sy_repository_version_make(struct sy_repository_model *model, int64_t version,
                               struct sy_repository_version **out)
{
    struct sy_repository_version *v = sy_repository_version_find(model, version),
                                 **at = &model->versions;

    *out = v;
    if (v)
        return SY_OK;
    v = calloc(1, sizeof *v);
    SY_TRY_ALLOC(v, "no memory for a version");
    v->model = model;
    v->version = version;
    while (*at && (*at)->version < version)
        at = &(*at)->next;
    v->next = *at;
    *at = v;
    *out = v;
    return SY_OK;
}

void sy_repository_close_package(struct sy_repository_version *v)
{
    sy_package_close(v->package);
    sy_class_labels_free(v->labels);
    sy_warmup_files_free(v->warmup_files);
    v->package = NULL;
    v->labels = NULL;
    v->warmup_files = NULL;
}

void sy_repository_version_free(struct sy_repository_version *v)
{
    sy_import_process_stop(v->import);
    sy_warmup_abandon(v->warmup);
    if (v->place_event)
        event_free(v->place_event);
    sy_repository_close_package(v);
    sy_model_config_free(v->config);
    free(v);
}

/* ---- parked requests ------------------------------------------------------------------------------------------------- */

static void link_wait(struct sy_repository_wait **list, struct sy_repository_wait *wait)
{
    wait->next = *list;
    wait->previous = list;
    if (wait->next)
        wait->next->previous = &wait->next;
    *list = wait;
}

static void unlink_wait(struct sy_repository_wait *wait)
{
    *wait->previous = wait->next;
    if (wait->next)
        wait->next->previous = wait->previous;
    wait->previous = NULL;
}

void sy_repository_wait_cancel(struct sy_repository_wait *wait)
{
    if (!wait->previous)
        return;
    unlink_wait(wait);
    --*wait->n_waits;
}

int sy_repository_park(struct sy_repository_model *model, struct sy_repository_wait *wait)
{
    struct sy_repository *r = model->repository;

    sy_repository_wait_cancel(wait);
    if (r->stops)
        return sy_error_set(SY_EBUSY, "the runtime stopped before model '%s' was loaded",
                            model->name);
    if (r->n_waits >= SY_REPOSITORY_MOST_WAITS)
        return sy_error_set(SY_EBUSY,
                            "model '%s' is loading, and %d requests wait for models already; try "
                            "again later",
                            model->name, r->n_waits);
    wait->n_waits = &r->n_waits;
    r->n_waits++;
    link_wait(&model->waits, wait);
    return SY_REPOSITORY_LOADS;
}

void sy_repository_run_callbacks_soon(struct sy_repository *r)
{
    if (!r->stops)
        event_active(r->wake_event, EV_TIMEOUT, 0);
}

void sy_repository_wake(struct sy_repository_model *model)
{
    struct sy_repository *r = model->repository;

    if (!model->waits)
        return;
    while (model->waits) {
        struct sy_repository_wait *wait = model->waits;

        unlink_wait(wait);
        link_wait(&r->woken, wait);
    }
    sy_repository_run_callbacks_soon(r);
}

/* Only those woken before: a request that parks again meanwhile waits for the next wake. */
void sy_repository_call_woken(struct sy_repository *r)
{
    struct sy_repository_wait *wait;

    while ((wait = r->woken)) {
        sy_repository_wait_cancel(wait);
        wait->ready(wait->ctx);
    }
}
