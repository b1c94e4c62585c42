/* The timeline's promises (runtime/core/trace/timeline.h), beside a model that keeps every span: random spans in time order, and a fixed few. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/core/trace/timeline.h"
#include "runtime/core/trace/trace.h"
#include "tests/rigs/seed.h"

static void merges_what_is_close(void **state)
{
    struct sy_timeline t = {0};
    (void)state;

    sy_timeline_add(&t, 2, "a", 100, 200);
    sy_timeline_add(&t, 2, "a", 300, 350);
    sy_timeline_add(&t, 3, "a", 360, 370); /* another lane */
    sy_timeline_add(&t, 2, "b", 400, 500); /* another name */
    sy_timeline_add(&t, 2, "b", 500 + SY_TIMELINE_GAP_NS + 1, 600 + SY_TIMELINE_GAP_NS);
    sy_timeline_add(&t, 2, "b", 700, 700); /* nothing */
    assert_int_equal(t.n, 4);
    assert_int_equal(t.spans[0].start, 100);
    assert_int_equal(t.spans[0].end, 350);
    assert_int_equal(t.spans[0].busy_ns, 150);
    assert_int_equal(t.spans[0].n, 2);
    assert_string_equal(t.spans[3].name, "b");
}

/* 47 bytes would end within the character. */
static void cuts_names_between_characters(void **state)
{
    struct sy_timeline t = {0};
    char name[80];
    (void)state;

    memset(name, 'x', 46);
    strcpy(name + 46, "\xC3\xA9tude");
    sy_timeline_add(&t, 0, name, 1, 2);
    sy_timeline_add(&t, 0, name, 3, 4);
    assert_int_equal(t.n, 1);
    assert_int_equal(strlen(t.spans[0].name), 46);
}

struct lane_model {
    sy_ns now, busy_ns, first, end;
    uint64_t n;
};

/* L1, L2: with spans that do not overlap, nothing is lost of time and number, however many there are. */
static void check(const struct sy_timeline *t, const struct lane_model *lanes)
{
    struct lane_model got[SY_TIMELINE_LANES] = {0};

    assert_in_range(t->n, 0, SY_TIMELINE_SPANS);
    for (int i = 0; i < t->n; i++) {
        const struct sy_timeline_span *s = &t->spans[i];
        struct lane_model *lane = &got[s->lane];

        assert_true(s->start >= lane->end && s->end > s->start);
        assert_true(s->busy_ns <= s->end - s->start);
        lane->first = lane->n ? lane->first : s->start;
        lane->busy_ns += s->busy_ns;
        lane->n += s->n;
        lane->end = s->end;
    }
    for (int i = 0; i < SY_TIMELINE_LANES; i++) {
        assert_int_equal(got[i].n, lanes[i].n);
        assert_int_equal(got[i].busy_ns, lanes[i].busy_ns);
        assert_int_equal(got[i].first, lanes[i].first);
        assert_int_equal(got[i].end, lanes[i].end);
    }
}

static void add_random(struct sy_timeline *t, struct lane_model *lanes, uint64_t *seed)
{
    int lane = (int)seed_below(seed, SY_TIMELINE_LANES);
    struct lane_model *m = &lanes[lane];
    char name[2] = {(char)('a' + seed_below(seed, 3)), 0};
    sy_ns start = m->now + seed_below(seed, 2 * SY_TIMELINE_GAP_NS);
    sy_ns end = start + 1 + seed_below(seed, SY_NS_PER_MS);

    sy_timeline_add(t, lane, name, start, end);
    m->first = m->n ? m->first : start;
    m->now = m->end = end;
    m->busy_ns += end - start;
    m->n++;
}

static void keeps_time_and_number(void **state)
{
    static struct sy_timeline t;
    uint64_t seed = seed_of_run(1);
    (void)state;

    for (int round = 0; round < 50; round++) {
        struct lane_model lanes[SY_TIMELINE_LANES] = {0};
        uint64_t n = seed_below(&seed, 3000);

        sy_timeline_clear(&t);
        for (uint64_t i = 0; i < n; i++)
            add_random(&t, lanes, &seed);
        check(&t, lanes);
    }
}

static void trace_and_timeline_are_apart(void **state)
{
    struct sy_trace *trace;
    (void)state;

    assert_int_equal(sy_trace_create(&trace), SY_OK);
    assert_null(sy_trace_timeline(trace));
    assert_int_equal(sy_trace_watch(trace, true), SY_OK);
    sy_trace_span(trace, SY_TRACE_TRAINING, "job", 10, 20, 0);
    sy_trace_span(trace, SY_TRACE_QUEUE, "job", 10, 20, 0); /* not drawn */
    assert_int_equal(sy_trace_timeline(trace)->n, 1);

    json_t *dump;
    assert_int_equal(sy_trace_dump(trace, &dump), SY_OK);
    assert_int_equal(json_array_size(json_object_get(dump, "traceEvents")), SY_TRACE_N_LANES);
    json_decref(dump);
    assert_int_equal(sy_trace_watch(trace, false), SY_OK);
    assert_null(sy_trace_timeline(trace));
    sy_trace_destroy(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_what_is_close),
        cmocka_unit_test(cuts_names_between_characters),
        cmocka_unit_test(keeps_time_and_number),
        cmocka_unit_test(trace_and_timeline_are_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
