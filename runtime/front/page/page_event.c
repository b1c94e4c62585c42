/* One tick's text: a part of the status, the timeline since the tick before, and what statistics and repository add to it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/model_info.h"
#include "runtime/front/page/page_files.h"
#include "runtime/front/page/page_internal.h"
#include "runtime/front/request/front_stats.h"

#define MAP_PARTS        1024 /* parts of the pool's map: more than a screen has columns */
#define REPOSITORY_TICKS 8    /* its index comes every so many ticks */

static json_int_t integer_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static json_int_t last_of(const json_t *list, const char *key)
{
    return integer_of(json_array_get(list, json_array_size(list) - 1), key);
}

/* Count and total time of successes and failures; the page computes rates and means from two ticks. */
static void add_stats(const struct sy_page *page, json_t *model)
{
    struct sy_front_model_stats stats;

    json_object_del(model, "path"); /* paths of this machine stay private */
    if (!page->front->stats)
        return;
    sy_front_stats_of(page->front->stats, json_string_value(json_object_get(model, "name")),
                      integer_of(model, "version"), &stats);
    json_object_set_new(model, "answered", json_integer((json_int_t)stats.success.count));
    json_object_set_new(model, "answered_ns", json_integer((json_int_t)stats.success.ns));
    json_object_set_new(model, "rejected", json_integer((json_int_t)stats.n_rejected));
}

/* P2: which of the models' places, and of the jobs' ids, this tick tells all of; the next one goes on behind them. */
static void add_slices(struct sy_page *page, json_t *event)
{
    json_t *models = json_object_get(event, "models"), *jobs = json_object_get(event, "jobs");
    int from = page->next_model;
    uint64_t after = page->after_job;

    page->next_model = json_array_size(models) == SY_PAGE_SLICE
                           ? ((int)last_of(models, "place") + 1) % SY_CORE_MODEL_PLACES
                           : 0;
    page->after_job = json_array_size(jobs) == SY_PAGE_SLICE ? (uint64_t)last_of(jobs, "job") : 0;
    json_object_set_new(event, "models_from", json_integer(from));
    json_object_set_new(event, "models_to",
                        json_integer(page->next_model ? page->next_model : SY_CORE_MODEL_PLACES));
    json_object_set_new(event, "jobs_after", json_integer((json_int_t)after));
    json_object_set_new(event, "jobs_to",
                        page->after_job ? json_integer((json_int_t)page->after_job) : json_null());
}

static void add_models(struct sy_page *page, json_t *event)
{
    json_t *model;
    size_t i;

    json_array_foreach(json_object_get(event, "models"), i, model) add_stats(page, model);
    add_slices(page, event);
}

static void add_timeline(const struct sy_page *page, json_t *event)
{
    json_t *timeline;

    if (page->front->handlers->timeline_take(page->front->core, &timeline) == SY_OK)
        json_object_set_new(event, "timeline", timeline);
}

static void add_repository(const struct sy_page *page, json_t *event)
{
    json_t *index;

    if (page->front->repository && page->n_ticks % REPOSITORY_TICKS == 0 &&
        sy_model_info_index(page->front, false, &index) == SY_OK)
        json_object_set_new(event, "repository", index);
}

/* Steals `json`. The text of a server-sent event of this name. */
static int event_text(json_t *json, const char *name, char **out)
{
    char *data = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(7));
    size_t room = data ? strlen(data) + strlen(name) + 32 : 0;

    json_decref(json);
    *out = room ? malloc(room) : NULL;
    if (*out)
        snprintf(*out, room, "event: %s\ndata: %s\n\n", name, data);
    free(data);
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for the page's event");
}

int sy_page_event(struct sy_page *page, char **out)
{
    struct sy_core_status_part part = {
        .first_model = page->next_model,
        .n_models = SY_PAGE_SLICE,
        .after_job = page->after_job,
        .n_jobs = SY_PAGE_SLICE,
        .gap_bytes = SY_MAX(page->pool_bytes / MAP_PARTS, 1u),
    };
    json_t *event;

    SY_TRY(page->front->handlers->status_part(page->front->core, &part, &event));
    json_object_del(json_object_get(event, "image"), "blocks"); /* not shown */
    page->pool_bytes = (uint64_t)integer_of(json_object_get(event, "pool"), "bytes");
    add_models(page, event);
    add_timeline(page, event);
    add_repository(page, event);
    page->n_ticks++;
    return event_text(event, "tick", out);
}

int sy_page_hello(const struct sy_page *page, char **out)
{
    json_t *hello =
        json_pack("{s:s, s:I, s:b, s:b, s:i}", "page", sy_page_etag(), "instance",
                  (json_int_t)page->instance, "needs_token", page->needs_token, "has_repository",
                  page->front->repository != NULL, "tick_ms", SY_PAGE_TICK_MS);

    SY_TRY_ALLOC(hello, "no memory for the page's event");
    return event_text(hello, "hello", out);
}
