/* One version, on its way from the folder into the core (states: version_state.h). */
#include <assert.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/package/class_labels.h"
#include "loader/package/package.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/repository/repository_internal.h"

#define ASK_AGAIN_MS   20
#define EVICT_EVERY    50  /* attempts in vain before one more model is evicted */
#define MOST_ASKED     500 /* 10 s */
#define IMPORT_LIMIT_S 3600

static void enter(struct sy_repository_version *v);
static void start_imports(struct sy_repository *r);

/* ---- moves ------------------------------------------------------------------------------------------------------ */

static void move(struct sy_repository_version *v, enum sy_version_event event)
{
    int next = sy_version_next(v->state, event);

    sy_log_debug("repository", "event=move model=%s version=%" PRId64 " from=%s by=%s",
                 v->model->name, v->version, sy_version_state_name(v->state),
                 sy_version_event_name(event));
    assert(next >= 0);
    v->state = (enum sy_version_state)next;
    enter(v);
}

bool sy_repository_version_is_busy(const struct sy_repository_version *v)
{
    return v->state != SY_VERSION_UNLOADED && v->state != SY_VERSION_READY &&
           v->state != SY_VERSION_UNAVAILABLE;
}

/* Its work has ended with this event, or with DROP if it was dropped meanwhile. This and fail may free the version. */
static void go_on(struct sy_repository_version *v, enum sy_version_event event)
{
    move(v, v->dropped ? SY_VERSION_EVENT_DROP : event);
}

static void fail_version(struct sy_repository_version *v, int status, const char *why)
{
    if (v->dropped) {
        move(v, SY_VERSION_EVENT_DROP);
        return;
    }
    v->status = status < 0 ? status : SY_EIO;
    snprintf(v->reason, sizeof v->reason, "%s", why && *why ? why : sy_status_text(v->status));
    v->failed_ns = sy_clock_now();
    sy_log_error("repository",
                 "event=not_loaded model=%s version=%" PRId64 " serves_older=%d why=\"%s\"",
                 v->model->name, v->version, (int)v->serves, v->reason);
    move(v, SY_VERSION_EVENT_FAIL);
}

static void fail_here(struct sy_repository_version *v, int status)
{
    char why[512];

    snprintf(why, sizeof why, "%s", sy_error_text());
    fail_version(v, status, why);
}

/* ---- want and drop ---------------------------------------------------------------------------------------------- */

static bool is_same(const struct sy_repository_content *a, const struct sy_repository_content *b)
{
    return a->source == b->source && a->config == b->config &&
           (a->source != 0 || a->package == b->package);
}

void sy_repository_version_want(struct sy_repository_version *v)
{
    v->has.config = v->model->config_serial;
    v->off = false;
    if (v->state == SY_VERSION_WARMING && v->dropped) {
        v->again = true; /* it has left the core already */
    } else if (sy_repository_version_is_busy(v)) {
        v->dropped = false;
        v->again |= !is_same(&v->has, &v->loading);
    } else if (v->state != SY_VERSION_READY || !is_same(&v->has, &v->served) ||
               v->has.package != v->served.package) {
        move(v, SY_VERSION_EVENT_WANT);
    }
}

/* Content that is being added to the core stays, which says EBUSY: `added` sees to it. */
static void leave_core(struct sy_repository_version *v)
{
    struct sy_repository *r = v->model->repository;
    int status = r->handlers->model_remove(r->core, v->model->name, v->version);

    v->serves = false;
    if (status < 0 && !(status == SY_EBUSY && v->state == SY_VERSION_ADDING))
        sy_log_warn("repository", "event=not_removed model=%s version=%" PRId64 " why=\"%s\"",
                    v->model->name, v->version, sy_error_text());
}

static void leave_queue(struct sy_repository_version *v)
{
    struct sy_repository *r = v->model->repository;
    struct sy_repository_version **at = &r->imports;

    while (*at != v)
        at = &(*at)->next_import;
    *at = v->next_import;
    if (!v->next_import)
        r->imports_end = at;
}

void sy_repository_version_drop(struct sy_repository_version *v)
{
    struct sy_repository *r = v->model->repository;

    v->again = false;
    if (v->serves || v->state == SY_VERSION_WARMING)
        leave_core(v);
    switch (v->state) {
    case SY_VERSION_UNLOADED:
        return;
    case SY_VERSION_LOOKING:
    case SY_VERSION_OPENING:
    case SY_VERSION_ADDING:
        v->dropped = true;
        return;
    case SY_VERSION_WARMING:
        v->dropped = true;
        sy_warmup_stop(v->warmup);
        return;
    case SY_VERSION_QUEUED:
        leave_queue(v);
        break;
    case SY_VERSION_IMPORTING:
        sy_import_process_stop(v->import);
        v->import = NULL;
        r->importing = false;
        break;
    default:
        break;
    }
    move(v, SY_VERSION_EVENT_DROP);
    start_imports(r);
}

/* ---- importing --------------------------------------------------------------------------------------------------- */

static void import_done(void *ctx, int status, const char *why)
{
    struct sy_repository_version *v = ctx;
    struct sy_repository *r = v->model->repository;

    v->import = NULL;
    r->importing = false;
    if (status < 0) {
        fail_version(v, status, why);
    } else {
        v->package_of = v->loading.source;
        go_on(v, SY_VERSION_EVENT_IMPORTED);
    }
    start_imports(r);
}

static int start_import(struct sy_repository_version *v)
{
    struct sy_repository *r = v->model->repository;
    const struct sy_repository_importer *importer = &r->importer;
    char source[PATH_MAX], package[PATH_MAX];

    SY_TRY(sy_repository_source_path(r->folder, v->model->name, v->version, v->config->model_file,
                                     source));
    SY_TRY(sy_repository_package_path(r->folder, v->model->name, v->version, package));
    const char *argv[] = {"switchyard",
                          "import",
                          source,
                          "-o",
                          package,
                          "--name",
                          v->model->name,
                          "--device",
                          r->device,
                          "--precision",
                          sy_precision_name(v->precision),
                          NULL};
    sy_log_info("repository", "event=import model=%s version=%" PRId64 " why=\"%s\"",
                v->model->name, v->version, v->reason);
    *v->reason = '\0';
    return sy_import_process_start(
        r->base, importer->program ? importer->program : "/proc/self/exe", argv,
        importer->limit_ns ? importer->limit_ns : IMPORT_LIMIT_S * SY_NS_PER_S, import_done, v,
        &v->import);
}

static void start_imports(struct sy_repository *r)
{
    while (!r->importing && r->imports && !r->stops) {
        struct sy_repository_version *v = r->imports;

        leave_queue(v);
        r->importing = true;
        move(v, SY_VERSION_EVENT_TURN);
    }
}

/* ---- a place in the core ------------------------------------------------------------------------------------------ */

/* The least recently used version that is ready. */
static struct sy_repository_version *least_used(const struct sy_repository *r)
{
    struct sy_repository_version *least = NULL;

    for (int i = 0; i < r->n_buckets; i++)
        for (struct sy_repository_model *model = r->buckets[i]; model; model = model->next)
            for (struct sy_repository_version *v = model->versions; v; v = v->next)
                if (v->state == SY_VERSION_READY && v->serves &&
                    (!least || v->used_ns < least->used_ns))
                    least = v;
    return least;
}

/* Frees a place for `waiting`. If no other version can be evicted, its own older content is: requests then wait for the new one. */
static void evict_one(struct sy_repository_version *waiting)
{
    struct sy_repository *r = waiting->model->repository;
    struct sy_repository_version *v = least_used(r);

    if (!v && waiting->serves)
        leave_core(waiting);
    if (!v)
        return;
    sy_log_info("repository",
                "event=evict model=%s version=%" PRId64 " why=\"others need its place\"",
                v->model->name, v->version);
    leave_core(v);
    v->evicted = true;
    move(v, SY_VERSION_EVENT_DROP);
}

static void try_to_place(struct sy_repository_version *v);

static void on_place(evutil_socket_t fd, short what, void *ctx)
{
    (void)fd, (void)what;
    try_to_place(ctx);
}

static void wait_for_place(struct sy_repository_version *v)
{
    struct sy_repository *r = v->model->repository;
    struct timeval soon = {0, ASK_AGAIN_MS * 1000};

    if (v->at_start) { /* loading at start evicts nothing; the first request loads it */
        v->evicted = true;
        move(v, SY_VERSION_EVENT_DROP);
        return;
    }
    if (v->n_asked == MOST_ASKED) {
        fail_version(v, SY_EBUSY,
                     "the server's table of models is full, and no model "
                     "that is loaded can go");
        return;
    }
    if (v->n_asked++ % EVICT_EVERY == 0)
        evict_one(v);
    if (!v->place_event)
        v->place_event = event_new(r->base, -1, 0, on_place, v);
    if (!v->place_event || event_add(v->place_event, &soon))
        fail_version(v, SY_ENOMEM_HOST, "no memory for a timer");
}

static void added(void *ctx, int status, const char *error)
{
    struct sy_repository_version *v = ctx;
    struct sy_repository *r = v->model->repository;

    if (status < 0) {
        fail_version(v, status, error);
        return;
    }
    if (v->dropped)
        SY_CLEANUP(r->handlers->model_remove(r->core, v->model->name, v->version));
    else
        v->served = v->loading;
    go_on(v, SY_VERSION_EVENT_ADDED);
}

static int add_to_core(struct sy_repository_version *v)
{
    struct sy_repository *r = v->model->repository;
    struct sy_core_reshape *reshapes;
    struct sy_state_pair *states;
    int n_reshapes, n_states, status;

    SY_TRY(sy_model_config_states(v->config, v->package->graph, &states, &n_states));
    status = sy_model_config_reshapes(v->config, v->package->graph, &reshapes, &n_reshapes);
    if (status < 0) {
        free(states);
        return status;
    }
    struct sy_core_model_options options = {
        .name = v->model->name,
        .version = v->version,
        .tenant = *v->config->defaults.tenant ? v->config->defaults.tenant : NULL,
        .replaces = true,
        .max_delay_ns = v->config->max_delay_ns,
        .max_batch = (int)v->config->max_gathered,
        .defaults = v->config->defaults,
        .n_reshapes = n_reshapes,
        .reshapes = reshapes,
        .n_states = n_states,
        .states = states,
        .session_idle_ns = v->config->session_idle_ns,
        .package = v->package,
        .labels = v->labels,
    };
    status = r->handlers->model_add(r->core, v->package->path, &options, added, v);
    free(reshapes);
    free(states);
    if (status < 0)
        return status;
    v->package = NULL; /* both are the core's now */
    v->labels = NULL;
    return SY_OK;
}

static void try_to_place(struct sy_repository_version *v)
{
    struct sy_repository *r = v->model->repository;
    int status;

    if (r->handlers->model_room(r->core) == 0) {
        wait_for_place(v);
        return;
    }
    status = add_to_core(v);
    if (status < 0)
        fail_here(v, status);
    else
        move(v, SY_VERSION_EVENT_PLACED);
}

/* ---- warm-up ------------------------------------------------------------------------------------------------------- */

/* A version that replaced another serves already: a failed warm-up run is only logged. */
static void warmed(void *ctx, int status, const char *error)
{
    struct sy_repository_version *v = ctx;
    struct sy_repository *r = v->model->repository;

    v->warmup = NULL;
    if (status < 0 && !v->dropped && v->serves)
        sy_log_warn("repository", "event=warmup_failed model=%s version=%" PRId64 " why=\"%s\"",
                    v->model->name, v->version, error);
    if (status < 0 && !v->dropped && !v->serves)
        SY_CLEANUP(r->handlers->model_remove(r->core, v->model->name, v->version));
    if (status < 0 && !v->serves)
        fail_version(v, status, error);
    else
        go_on(v, SY_VERSION_EVENT_WARMED);
}

static void warm_up(struct sy_repository_version *v)
{
    struct sy_repository *r = v->model->repository;
    struct sy_core_model_ref *ref;
    char why[512];
    int status = SY_OK;

    if (v->config->n_warmups > 0) {
        status = r->handlers->model_acquire(r->core, v->model->name, v->version, &ref);
        if (status == SY_OK)
            status =
                sy_warmup_start(&r->front, v->config, v->warmup_files, ref, warmed, v, &v->warmup);
        if (status == SY_OK)
            v->warmup_files = NULL;
        if (status == SY_OK)
            return;
    }
    snprintf(why, sizeof why, "%s", status < 0 ? sy_error_text() : "");
    warmed(v, status, why);
}

/* ---- what is done in each state --------------------------------------------------------------------------------------- */

static void task_ended(struct sy_repository_version *v, int status, const char *why,
                       enum sy_version_event event)
{
    if (status < 0)
        fail_version(v, status, why);
    else
        go_on(v, event);
}

static int enter_looking(struct sy_repository_version *v)
{
    struct sy_repository_model *model = v->model;

    v->again = v->dropped = v->evicted = false;
    v->n_asked = 0;
    v->loading = v->has;
    v->loading.config = model->config_serial;
    if (!model->config)
        return sy_error_set(model->status < 0 ? model->status : SY_EARG, "%s", model->reason);
    sy_model_config_free(v->config);
    v->config = sy_model_config_hold(model->config);
    return sy_repository_inspect(v, task_ended);
}

static void enter_queued(struct sy_repository_version *v)
{
    struct sy_repository *r = v->model->repository;

    v->next_import = NULL;
    *r->imports_end = v;
    r->imports_end = &v->next_import;
    start_imports(r);
}

static int enter_importing(struct sy_repository_version *v)
{
    int status = start_import(v);

    if (status < 0)
        v->model->repository->importing = false;
    return status;
}

static void enter_rest(struct sy_repository_version *v)
{
    if (v->place_event)
        event_del(v->place_event);
    sy_repository_close_package(v);
    v->dropped = false;
    if (v->state == SY_VERSION_READY) {
        v->serves = true;
        v->status = SY_OK;
        *v->reason = '\0';
        v->used_ns = sy_clock_now();
        sy_log_info("repository", "event=ready model=%s version=%" PRId64, v->model->name,
                    v->version);
    }
    v->model->repository->rests(v);
}

static void enter(struct sy_repository_version *v)
{
    int status = SY_OK;

    switch (v->state) {
    case SY_VERSION_LOOKING:
        status = enter_looking(v);
        break;
    case SY_VERSION_QUEUED:
        enter_queued(v);
        break;
    case SY_VERSION_IMPORTING:
        status = enter_importing(v);
        break;
    case SY_VERSION_OPENING:
        v->package_of = v->loading.source;
        status = sy_repository_open(v, task_ended);
        break;
    case SY_VERSION_PLACING:
        try_to_place(v);
        break;
    case SY_VERSION_ADDING:
        break;
    case SY_VERSION_WARMING:
        warm_up(v);
        break;
    default:
        enter_rest(v);
    }
    if (status < 0)
        fail_here(v, status);
}
