/* Derives from the folder which versions are wanted: at start, by load, by polling.
 *
 *   load ──> WAITS (for one of the same model) ──> SCANS (the thread reads the model's folder) ──> RUNS (its versions load) ──> OVER ──> done */
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/front/request/offload.h"
#include "runtime/repository/repository_internal.h"

/* ---- loads --------------------------------------------------------------------------------------------------------- */

static void load_over(struct sy_repository_load *load, int status, const char *why)
{
    load->state = SY_LOAD_OVER;
    load->status = status;
    snprintf(load->error, sizeof load->error, "%s", why);
    if (--load->model->n_loads == 0) /* requests that wait for its folder to be read go on */
        sy_repository_wake(load->model);
    sy_repository_run_callbacks_soon(load->repository);
}

static void load_free(struct sy_repository_load *load)
{
    sy_scanned_model_finish(&load->scanned);
    sy_model_config_free(load->before.config);
    free(load->config);
    free(load);
}

static void scan_work(void *ctx)
{
    struct sy_repository_load *load = ctx;
    load->ran = true;
    load->status = sy_repository_scan_model(load->repository->folder, load->model->name,
                                            load->config, &load->scanned);
    if (load->status < 0)
        snprintf(load->error, sizeof load->error, "%s", sy_error_text());
}

/* A configuration that came with the request and is none: the model stays as it was, whatever state that is. */
static void refuse_given(struct sy_repository_load *load)
{
    char why[700];

    snprintf(why, sizeof why, "model '%.100s': %s", load->model->name, load->scanned.error);
    load_over(load, load->scanned.status, why);
    sy_repository_loads_check(load->model);
}

static void scan_done(void *ctx)
{
    struct sy_repository_load *load = ctx;
    struct sy_repository_model *model = load->model;
    int status = load->status;
    if (load->repository->stops) {
        load_free(load);
        return;
    }
    load->state = SY_LOAD_RUNS;
    if (status == SY_OK && !load->unloaded && load->config && load->scanned.status < 0) {
        refuse_given(load);
        return;
    }
    if (status == SY_OK && !load->unloaded) {
        if (load->config)
            sy_repository_config_remember(model, &load->before);
        status = sy_repository_apply(model, &load->scanned, SY_SCAN_BY_LOAD, load->config != NULL);
        if (status < 0)
            snprintf(load->error, sizeof load->error, "%s", sy_error_text());
    }
    if (load->unloaded) {
        load_over(load, SY_OK, "");
    } else if (status < 0) {
        char why[sizeof load->error];

        snprintf(why, sizeof why, "%s", load->error);
        if (status == SY_ENOTFOUND)
            sy_repository_forget(model);
        load_over(load, status, why);
    }
    sy_repository_loads_check(model);
}

static void start_load(struct sy_repository_load *load)
{
    load->state = SY_LOAD_SCANS;
    if (sy_offload_run(load->repository->thread, scan_work, scan_done, load) < 0)
        load_over(load, SY_EBUSY, sy_error_text());
}

/* OK, or why one of the versions that are to be served is not. */
static int result_of(const struct sy_repository_model *model, char why[700])
{
    *why = '\0';
    if (model->status < 0) {
        snprintf(why, 700, "model '%s': %s", model->name, model->reason);
        return model->status;
    }
    for (const struct sy_repository_version *v = model->versions; v; v = v->next)
        if (v->chosen && v->state == SY_VERSION_UNAVAILABLE) {
            snprintf(why, 700, "model '%s', version %" PRId64 ": %s", model->name, v->version,
                     v->reason);
            return v->status;
        }
    return SY_OK;
}

static bool loads_on(const struct sy_repository_model *model)
{
    for (const struct sy_repository_version *v = model->versions; v; v = v->next)
        if (v->chosen && (sy_repository_version_is_busy(v) || v->again))
            return true;
    return false;
}

void sy_repository_loads_check(struct sy_repository_model *model)
{
    struct sy_repository_load *load = model->repository->loads;
    char why[700];

    if (model->n_busy > 0)
        return;
    for (; load; load = load->next) {
        if (load->model != model || load->state == SY_LOAD_OVER)
            continue;
        if (load->state == SY_LOAD_SCANS || (load->state == SY_LOAD_RUNS && loads_on(model)))
            return;
        if (load->state == SY_LOAD_WAITS) {
            start_load(load);
            if (load->state == SY_LOAD_SCANS)
                return;
            continue; /* it could not begin: the next one */
        }
        int status = load->unloaded ? SY_OK : result_of(model, why);
        if (status < 0 && load->config)
            sy_repository_config_restore(model, &load->scanned, &load->before);
        load_over(load, status, status < 0 ? why : "");
    }
    sy_repository_model_free_if_gone(model);
}

int sy_repository_load(struct sy_repository *r, const char *name, const char *config,
                       sy_core_done done, void *ctx)
{
    struct sy_repository_load *load, **end = &r->loads;
    struct sy_repository_model *model;

    if (r->stops)
        return sy_error_set(SY_EBUSY, "the runtime stops and loads no models");
    if (r->n_loads >= SY_REPOSITORY_MOST_LOADS)
        return sy_error_set(SY_EBUSY, "%d loads of models wait already; try again later",
                            r->n_loads);
    load = calloc(1, sizeof *load);
    if (!load || (config && !(load->config = strdup(config)))) {
        free(load);
        return sy_error_set(SY_ENOMEM_HOST, "no memory to load a model");
    }
    int status = sy_repository_model_make(r, name, &model);
    if (status < 0) {
        load_free(load);
        return status;
    }
    load->repository = r;
    load->model = model;
    load->done = done;
    load->ctx = ctx;
    while (*end)
        end = &(*end)->next;
    *end = load;
    r->n_loads++;
    model->n_loads++;
    sy_repository_loads_check(model);
    return SY_OK;
}

void sy_repository_loads_overtaken(struct sy_repository_model *model)
{
    struct sy_repository_load *load;

    for (load = model->repository->loads; load; load = load->next) {
        if (load->model != model || load->state == SY_LOAD_OVER)
            continue;
        load->unloaded = true;
        if (load->state == SY_LOAD_WAITS)
            load_over(load, SY_OK, "");
    }
}

/* ---- telling -------------------------------------------------------------------------------------------------------- */

static struct sy_repository_load *take_over(struct sy_repository *r)
{
    struct sy_repository_load **at = &r->loads, *load;

    while (*at && (*at)->state != SY_LOAD_OVER)
        at = &(*at)->next;
    load = *at;
    if (load) {
        *at = load->next;
        r->n_loads--;
    }
    return load;
}

void sy_repository_run_callbacks(struct sy_repository *r)
{
    struct sy_repository_load *load;

    while ((load = take_over(r))) {
        load->done(load->ctx, load->status, load->status < 0 ? load->error : NULL);
        load_free(load);
    }
    if (r->n_starting == 0 && r->started) {
        sy_core_done started = r->started;

        r->started = NULL;
        started(r->started_ctx, r->start_status, r->start_status < 0 ? r->start_error : NULL);
    }
}

void sy_repository_loads_drop(struct sy_repository *r)
{
    struct sy_repository_load *load;

    while ((load = r->loads)) {
        bool on_thread = load->state == SY_LOAD_SCANS;

        r->loads = load->next;
        if (load->state == SY_LOAD_OVER)
            load->done(load->ctx, load->status, load->status < 0 ? load->error : NULL);
        else
            load->done(load->ctx, SY_EBUSY, "the runtime stopped before the model was loaded");
        if (!on_thread) /* else scan_done frees it */
            load_free(load);
    }
}

/* ---- start ------------------------------------------------------------------------------------------------------------ */

static void note_start(struct sy_repository *r, int status, const char *model, const char *why)
{
    if (status < 0 && r->start_status == SY_OK) {
        r->start_status = status;
        snprintf(r->start_error, sizeof r->start_error, "model '%.100s': %s", model, why);
    }
}

void sy_repository_version_settled(struct sy_repository_version *v)
{
    struct sy_repository_model *model = v->model;
    struct sy_repository *r = model->repository;

    if (v->at_start) {
        v->at_start = false;
        r->n_starting--;
        if (v->state == SY_VERSION_UNAVAILABLE)
            note_start(r, v->status, model->name, v->reason);
        sy_repository_run_callbacks_soon(r);
    }
    if (v->again && v->chosen && !v->off) {
        v->again = false;
        sy_repository_version_want(v);
        return;
    }
    sy_repository_wake(model);
    if (v->gone && v->state == SY_VERSION_UNLOADED) {
        struct sy_repository_version **at = &model->versions;

        while (*at != v)
            at = &(*at)->next;
        *at = v->next;
        sy_repository_version_free(v);
    }
    sy_repository_loads_check(model);
}

static void say_ignored(struct sy_repository *r, const struct sy_scan *scan)
{
    if (strcmp(r->ignored, scan->ignored) == 0)
        return;
    strcpy(r->ignored, scan->ignored);
    if (*r->ignored)
        sy_log_warn("repository",
                    "event=ignored folder=%s what=\"%s\" why=\"a model is a folder "
                    "with a version, as 1, in it, and a name of at most %d bytes\"",
                    r->folder, r->ignored, SY_CORE_MODEL_NAME - 1);
}

static int apply_all(struct sy_repository *r, struct sy_scan *scan, enum sy_scan_reason reason)
{
    say_ignored(r, scan);
    for (int i = 0; i < scan->n; i++) {
        struct sy_repository_model *model;

        SY_TRY(sy_repository_model_make(r, scan->models[i].name, &model));
        model->seen = true;
        if (model->n_loads > 0)
            continue;
        SY_TRY(sy_repository_apply(model, &scan->models[i], reason, false));
        if (reason == SY_SCAN_AT_START && sy_repository_is_startup(r, scan->models[i].name))
            note_start(r, model->status, model->name, model->reason);
    }
    return SY_OK;
}

static void check_startup_names(struct sy_repository *r)
{
    for (int i = 0; i < r->n_startup; i++)
        if (strcmp(r->startup[i], "*") != 0 && !sy_repository_find(r, r->startup[i])) {
            note_start(r, SY_ENOTFOUND, r->startup[i], "the repository has no such model");
            sy_log_error("repository",
                         "event=refused model=%s why=\"the repository has no such model\"",
                         r->startup[i]);
        }
}

int sy_repository_begin(struct sy_repository *r)
{
    struct sy_scan scan;
    int status;

    SY_TRY(sy_repository_scan(r->folder, &scan));
    r->n_starting++; /* until all are begun */
    status = apply_all(r, &scan, SY_SCAN_AT_START);
    sy_scan_finish(&scan);
    check_startup_names(r);
    r->n_starting--;
    sy_repository_run_callbacks_soon(r);
    return status;
}

/* ---- poll ------------------------------------------------------------------------------------------------------------- */

struct poll {
    struct sy_repository *repository;
    struct sy_scan scan;
    int status;
    bool ran;
    char error[512];
};

static void poll_work(void *ctx)
{
    struct poll *poll = ctx;

    poll->ran = true;
    poll->status = sy_repository_scan(poll->repository->folder, &poll->scan);
    if (poll->status < 0)
        snprintf(poll->error, sizeof poll->error, "%s", sy_error_text());
}

static void forget_unseen(struct sy_repository *r)
{
    struct sy_repository_model **list = sy_repository_models_sorted(r);

    for (int i = 0; list && list[i]; i++)
        if (!list[i]->seen && list[i]->n_loads == 0) {
            sy_log_info("repository", "event=gone model=%s", list[i]->name);
            sy_repository_forget(list[i]);
            sy_repository_model_free_if_gone(list[i]);
        }
    free(list);
}

static void poll_done(void *ctx)
{
    struct poll *poll = ctx;
    struct sy_repository *r = poll->repository;

    if (!r->stops && poll->ran && poll->status == SY_OK) {
        for (int i = 0; i < r->n_buckets; i++)
            for (struct sy_repository_model *model = r->buckets[i]; model; model = model->next)
                model->seen = false;
        if (apply_all(r, &poll->scan, SY_SCAN_BY_POLL) < 0)
            sy_log_warn("repository", "event=poll_failed why=\"%s\"", sy_error_text());
        else
            forget_unseen(r);
    } else if (!r->stops && poll->ran) {
        sy_log_warn("repository", "event=poll_failed why=\"%s\"", poll->error);
    }
    if (!r->stops)
        sy_repository_poll_later(r);
    sy_scan_finish(&poll->scan);
    free(poll);
}

int sy_repository_poll(struct sy_repository *r)
{
    struct poll *poll = calloc(1, sizeof *poll);
    int status;

    SY_TRY_ALLOC(poll, "no memory to read the models folder");
    poll->repository = r;
    status = sy_offload_run(r->thread, poll_work, poll_done, poll);
    if (status < 0)
        free(poll);
    return status;
}

void sy_repository_poll_later(struct sy_repository *r)
{
    struct timeval later = {(time_t)(r->poll_ns / SY_NS_PER_S),
                            (suseconds_t)(r->poll_ns % SY_NS_PER_S / SY_NS_PER_US)};

    if (event_add(r->poll_event, &later))
        sy_log_error("repository", "event=poll_ended why=\"no memory for a timer\"");
}
