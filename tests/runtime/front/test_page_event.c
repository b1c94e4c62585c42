/* What the page is told, tick by tick (runtime/front/page/page_event.c), of a made-up core: put together as the page does it, the slices are all
 * models and jobs there are, also while these come and go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/front/page/page_internal.h"
#include "tests/rigs/seed.h"

#define MOST_JOBS 300

/* What there is, and what a page that listens takes it for. */
static struct world {
    bool models[SY_CORE_MODEL_PLACES], jobs[MOST_JOBS];
} is, shown;

static int fake_status_part(void *core, const struct sy_core_status_part *part, json_t **out)
{
    json_t *models = json_array(), *jobs = json_array();
    (void)core;

    assert_true(part->gap_bytes > 0);
    for (int i = part->first_model;
         i < SY_CORE_MODEL_PLACES && (int)json_array_size(models) < part->n_models; i++)
        if (is.models[i])
            json_array_append_new(models, json_pack("{s:i, s:s, s:i, s:s}", "place", i, "name", "m",
                                                    "version", 1, "path", "/secret"));
    for (uint64_t j = part->after_job + 1;
         j < MOST_JOBS && (int)json_array_size(jobs) < part->n_jobs; j++)
        if (is.jobs[j])
            json_array_append_new(jobs, json_pack("{s:I}", "job", (json_int_t)j));
    *out = json_pack("{s:o, s:o, s:{s:i}, s:n}", "models", models, "jobs", jobs, "pool", "bytes",
                     1 << 20, "image");
    return SY_OK;
}

static int fake_timeline_take(void *core, json_t **out)
{
    (void)core;
    *out = json_pack("{s:i, s:[], s:[]}", "now_ns", 1, "spans", "under_way");
    return SY_OK;
}

static const struct sy_core_handlers handlers = {.status_part = fake_status_part,
                                                 .timeline_take = fake_timeline_take};

/* As page.js does: what a slice covers and does not name is gone. */
static void show(const json_t *tick)
{
    const json_t *item, *jobs_to = json_object_get(tick, "jobs_to");
    json_int_t from = json_integer_value(json_object_get(tick, "models_from"));
    json_int_t to = json_integer_value(json_object_get(tick, "models_to"));
    json_int_t after = json_integer_value(json_object_get(tick, "jobs_after"));
    size_t i;

    assert_true(from >= 0 && from < to && to <= SY_CORE_MODEL_PLACES);
    for (json_int_t p = from; p < to; p++)
        shown.models[p] = false;
    for (json_int_t j = after + 1; j < MOST_JOBS; j++)
        if (json_is_null(jobs_to) || j <= json_integer_value(jobs_to))
            shown.jobs[j] = false;
    json_array_foreach(json_object_get(tick, "models"), i, item)
    {
        json_int_t place = json_integer_value(json_object_get(item, "place"));
        assert_true(place >= from && place < to && !json_object_get(item, "path"));
        shown.models[place] = true;
    }
    json_array_foreach(json_object_get(tick, "jobs"), i, item)
        shown.jobs[json_integer_value(json_object_get(item, "job"))] = true;
}

static void tick(struct sy_page *page)
{
    static const char begin[] = "event: tick\ndata: ";
    json_error_t error;
    char *text;

    assert_int_equal(sy_page_event(page, &text), SY_OK);
    assert_memory_equal(text, begin, sizeof(begin) - 1);
    char *end = strstr(text + sizeof(begin) - 1, "\n\n");
    assert_true(end && end[2] == '\0');
    assert_null(memchr(text + sizeof(begin), '\n', (size_t)(end - text) - sizeof(begin)));
    json_t *event = json_loads(text + sizeof(begin) - 1, JSON_DISABLE_EOF_CHECK, &error);
    assert_non_null(event);
    assert_true(json_array_size(json_object_get(event, "models")) <= SY_PAGE_SLICE);
    assert_true(json_array_size(json_object_get(event, "jobs")) <= SY_PAGE_SLICE);
    show(event);
    json_decref(event);
    free(text);
}

static void fill(bool *list, int first, int n, uint64_t *seed)
{
    uint64_t dense = seed_below(seed, 101);
    for (int i = first; i < n; i++)
        list[i] = seed_below(seed, 100) < dense;
}

/* Once nothing changes any more, as many ticks as there are slices are enough. */
static void slices_are_all(void **state)
{
    uint64_t seed = seed_of_run(3);
    struct sy_front front = {.handlers = &handlers};
    struct sy_page page = {.front = &front};
    (void)state;

    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 5; i++) {
            fill(is.models, 0, SY_CORE_MODEL_PLACES, &seed);
            fill(is.jobs, 1, MOST_JOBS, &seed);
            tick(&page);
        }
        for (int i = 0; i < 2 * (MOST_JOBS / SY_PAGE_SLICE + 1); i++)
            tick(&page);
        assert_memory_equal(is.models, shown.models, sizeof(is.models));
        assert_memory_equal(is.jobs, shown.jobs, sizeof(is.jobs));
    }
}

static void hello_says_whom_it_talks_to(void **state)
{
    struct sy_front front = {.handlers = &handlers};
    char *text;
    struct sy_page page = {.front = &front, .needs_token = true, .instance = 42};
    (void)state;

    assert_int_equal(sy_page_hello(&page, &text), SY_OK);
    assert_non_null(strstr(text, "event: hello\ndata: {"));
    assert_non_null(strstr(text, "\"needs_token\":true"));
    assert_non_null(strstr(text, "\"instance\":42"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_all),
        cmocka_unit_test(hello_says_whom_it_talks_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
