/* What computes side by side: what is measured, when two are told apart, and what setting slices changes. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/core/core_internal.h"
#include "tests/rigs/core_rig.h"

#define ALONE   8   /* runs, as core_corun.c measures them */
#define JOB_IDS 256 /* tasks for jobs, which come behind those for models */

static int set(struct core_rig *r, const char *text)
{
    json_t *params = json_loads(text, 0, NULL);
    assert_non_null(params);
    int status = sy_core_slices_set(r->core, params);
    json_decref(params);
    return status;
}

/* Model 0 in slice x, model 1 in slice y; both promise something, and were measured alone. The cores are only named: fake workers compute on any. */
static void open_two(struct core_rig *r)
{
    core_rig_open(r, "host", 3);
    core_rig_add_both(r);
    r->core->n_cores = 2;
    r->core->cores[0] = 0;
    r->core->cores[1] = 1;
    assert_int_equal(
        set(r, "{\"slices\": [{\"name\": \"x\", \"cores\": 1}, {\"name\": \"y\", \"cores\": 1}]}"),
        SY_OK);
    assert_int_equal(set(r, "{\"model\": \"b\", \"slice\": \"y\"}"), SY_OK);
    for (int i = 0; i < 2; i++) {
        struct sy_core_model *m = &r->core->models[i];
        m->ref.defaults.has_class = true;
        m->ref.defaults.class_ = 0;
        m->corun.n_alone = ALONE;
        m->corun.alone = 1;
    }
    sy_core_corun_judge_all(r->core);
}

static bool both_compute(struct core_rig *r, void *ctx)
{
    int n = 0;
    (void)ctx;
    for (int w = 0; w < r->n_workers; w++)
        n += sy_sched_computes(r->core->sched, w);
    return n == 2;
}

static bool computes(struct core_rig *r, void *ctx)
{
    (void)ctx;
    for (int w = 0; w < r->n_workers; w++)
        if (sy_sched_computes(r->core->sched, w))
            return true;
    return false;
}

static void observe(struct core_rig *r, int model, int other, double slowdown)
{
    for (int i = 0; i < 4; i++)
        sy_interference_observe(&r->core->corun.slow, model, other, slowdown);
}

static void test_two_are_told_apart_while_both_compute(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_answer a, b;
    open_two(&r);
    assert_false(r.core->models[0].corun.apart[1]);
    atomic_store(&r.script->hold_runs, 1);
    core_rig_infer(&r, "a", 1, &a);
    core_rig_infer(&r, "b", 1, &b);
    core_rig_until(&r, both_compute, NULL, "both compute");
    observe(&r, 0, 1, 3);
    sy_core_corun_judge_all(r.core);
    assert_true(r.core->models[0].corun.apart[1] && r.core->models[1].corun.apart[0]);
    assert_true(sy_sched_is_valid(r.core->sched));
    core_rig_turn(&r, 20);
    assert_true(both_compute(&r, NULL));
    atomic_store(&r.script->hold_runs, 0);
    assert_int_equal(core_rig_wait(&r, &a), SY_OK);
    assert_int_equal(core_rig_wait(&r, &b), SY_OK);
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* A job of an id that comes again, and a model of one. */
static void test_ids_that_come_again_are_new(void **state)
{
    (void)state;
    struct core_rig r;
    struct core_done done;
    uint64_t job, again;
    open_two(&r);
    core_rig_submit(&r, NULL, &job);
    int task = SY_MAX_MODELS + (int)(job % JOB_IDS);
    observe(&r, 0, task, 3);
    sy_core_corun_judge(r.core, 0);
    assert_true(r.core->models[0].corun.apart[task]);
    assert_int_equal(core_rig_stop(&r, job), SY_OK);
    r.core->last_job = job + JOB_IDS - 1;
    core_rig_submit(&r, NULL, &again);
    assert_int_equal(again, job + JOB_IDS);
    assert_null(sy_interference_find(&r.core->corun.slow, 0, task));
    assert_false(r.core->models[0].corun.apart[task]);
    assert_int_equal(r.core->models[0].corun.retry_at_ns[task], 0);
    assert_int_equal(r.core->models[0].corun.wait_ns[task], 0);
    assert_int_equal(core_rig_stop(&r, again), SY_OK);

    observe(&r, 0, 1, 3);
    sy_core_corun_judge(r.core, 0);
    assert_true(r.core->models[0].corun.apart[1]);
    assert_int_equal(sy_core_model_remove(r.core, "b", 0), SY_OK);
    core_rig_turn(&r, 20);
    assert_false(r.core->models[1].used);
    assert_false(r.core->models[0].corun.apart[1]);
    assert_int_equal(r.core->models[0].corun.wait_ns[1], 0);
    assert_int_equal(core_rig_add(&r, "b", &done), SY_OK);
    core_rig_calm(&r);
    core_rig_close(&r);
}

static void test_a_continued_run_is_no_measurement(void **state)
{
    (void)state;
    struct core_rig r;
    open_two(&r);
    for (int continued = 0; continued < 2; continued++) {
        struct sy_core_request whole = {.model = 0, .guess = {.ns = 1000}};
        unsigned before = r.core->models[0].corun.n_alone;
        sy_core_corun_begins(r.core, &whole, continued);
        sy_core_corun_ends(r.core, &whole, 10, 0);
        assert_int_equal(r.core->models[0].corun.n_alone, before + !continued);
    }
    core_rig_close(&r);
}

/* What the run's thread stood without its core is no neighbour's doing: half of each run beside is lost, and nothing is slower. */
static void test_lost_time_is_no_slow_down(void **state)
{
    (void)state;
    struct core_rig r;
    open_two(&r);
    struct sy_core_corun_model *of = &r.core->models[0].corun;
    of->n_alone = 0;
    for (int run = 0; run < 64; run++) {
        struct sy_core_request alone = {.model = 0, .guess = {.ns = 1000}};
        sy_core_corun_begins(r.core, &alone, false);
        sy_core_corun_ends(r.core, &alone, 1000 + 500 * (run % 2), 500 * (run % 2));
        sy_core_corun_ends(r.core, &alone, 700, 700); /* nothing is left: no measurement */
    }
    assert_int_equal(of->n_alone, 64);
    assert_true(of->alone == 1 && of->alone_error == 0);
    assert_true(of->lost[0] > 0.1 && of->lost[0] < 0.2 && of->lost[1] == 0);

    struct core_answer neighbour;
    atomic_store(&r.script->hold_runs, 1);
    core_rig_infer(&r, "b", 1, &neighbour);
    core_rig_until(&r, computes, NULL, "b computes");
    for (int run = 0; run < 64; run++) {
        struct sy_core_request beside = {.model = 0, .guess = {.ns = 1000}};
        sy_core_corun_begins(r.core, &beside, false);
        sy_core_corun_ends(r.core, &beside, 2000, 1000);
    }
    assert_true(sy_interference_find(&r.core->corun.slow, 0, 1)->slowdown == 1);
    assert_false(of->apart[1]);
    assert_true(of->lost[1] > 0.4);
    atomic_store(&r.script->hold_runs, 0);
    assert_int_equal(core_rig_wait(&r, &neighbour), SY_OK);
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* Blocks of eight that differ by a tenth: what no prediction can know is told. */
static void test_what_the_machine_varies_by_itself(void **state)
{
    (void)state;
    struct core_rig r;
    open_two(&r);
    struct sy_core_corun_model *of = &r.core->models[0].corun;
    of->n_alone = 0;
    for (int run = 0; run < 320; run++) {
        struct sy_core_request alone = {.model = 0, .guess = {.ns = 1000}};
        sy_core_corun_begins(r.core, &alone, false);
        sy_core_corun_ends(r.core, &alone, run / 8 % 2 ? 1100 : 900, 0);
    }
    assert_true(of->alone_error > 0.05 && of->alone_error < 0.15);
    core_rig_close(&r);
}

static void test_another_bound_keeps_what_was_measured(void **state)
{
    (void)state;
    struct core_rig r;
    open_two(&r);
    observe(&r, 0, 1, 1.5);
    assert_int_equal(set(&r, "{\"bound\": 2}"), SY_OK);
    assert_int_equal(set(&r, "{\"for_jobs\": \"y\"}"), SY_OK);
    assert_int_equal(set(&r, "{\"model\": \"a\", \"slice\": \"x\"}"), SY_OK); /* it is there */
    assert_int_equal(r.core->models[0].corun.n_alone, ALONE);
    assert_non_null(sy_interference_find(&r.core->corun.slow, 0, 1));
    assert_false(r.core->models[0].corun.apart[1]);
    assert_int_equal(set(&r, "{\"bound\": 1.2}"), SY_OK);
    assert_true(r.core->models[0].corun.apart[1]);               /* of what is known already */
    assert_int_equal(set(&r, "{\"for_models\": \"y\"}"), SY_OK); /* both are in one now */
    assert_int_equal(r.core->models[1].corun.n_alone, ALONE);
    core_rig_close(&r);
}

static void test_all_of_a_setting_or_nothing(void **state)
{
    static const struct {
        const char *text;
        int status;
    } wrong[] = {
        {"{\"bound\": 3, \"model\": \"nobody\", \"slice\": \"x\"}", SY_ENOTFOUND},
        {"{\"bound\": 3, \"model\": \"a\", \"slice\": \"z\"}", SY_ENOTFOUND},
        {"{\"bound\": 3, \"job\": 77, \"slice\": \"x\"}", SY_ENOTFOUND},
        {"{\"bound\": 3, \"job\": 0, \"slice\": \"x\"}", SY_EARG},
        {"{\"bound\": 3, \"model\": \"a\"}", SY_EARG},
        {"{\"bound\": 3, \"model\": 5, \"slice\": \"x\"}", SY_EARG},
        {"{\"bound\": 3, \"model\": \"a\", \"job\": 1, \"slice\": \"x\"}", SY_EARG},
        {"{\"slices\": [], \"model\": \"a\", \"slice\": \"x\"}", SY_ENOTFOUND},
        {"{\"slices\": [], \"for_jobs\": \"x\"}", SY_ENOTFOUND},
        {"{\"slices\": [{\"name\": \"z\", \"cores\": 2}], \"model\": \"a\", \"slice\": \"x\"}",
         SY_ENOTFOUND},
        {"{\"slices\": [{\"name\": \"z\", \"cores\": 2}], \"model\": \"no\", \"slice\": \"z\"}",
         SY_ENOTFOUND},
    };
    (void)state;
    struct core_rig r;
    open_two(&r);
    for (size_t i = 0; i < SY_ARRAY_LEN(wrong); i++) {
        assert_int_equal(set(&r, wrong[i].text), wrong[i].status);
        assert_int_equal(r.core->n_slices, 2);
        assert_true(r.core->corun.bound < 2);
        assert_string_equal(r.core->models[0].slice, "");
        assert_string_equal(r.core->models[1].slice, "y");
    }
    assert_int_equal(set(&r, "{\"slices\": [{\"name\": \"z\", \"cores\": 2}], \"model\": \"a\","
                             " \"slice\": \"z\", \"bound\": 3}"),
                     SY_OK);
    assert_int_equal(r.core->n_slices, 1);
    assert_string_equal(r.core->models[0].slice, "z");
    assert_int_equal(set(&r, "{\"slices\": [], \"for_jobs\": \"all\"}"), SY_OK);
    core_rig_close(&r);
}

static int here(cpu_set_t *set)
{
    assert_int_equal(sched_getaffinity(0, sizeof *set, set), 0);
    return CPU_COUNT(set);
}

/* The thread that calls, on the named slice's cores, as slices change; and back to where it was. */
static void test_the_runtime_computes_in_a_slice(void **state)
{
    struct core_rig r;
    cpu_set_t before, now;
    int cores[2], n = 0;
    (void)state;
    if (here(&before) < 2)
        skip();
    for (int i = 0; n < 2; i++)
        if (CPU_ISSET(i, &before))
            cores[n++] = i;
    open_two(&r);
    r.core->units.ids[0] = (uint64_t)cores[0];
    r.core->units.ids[1] = (uint64_t)cores[1];
    assert_int_equal(
        set(&r, "{\"slices\": [{\"name\": \"x\", \"cores\": 1}, {\"name\": \"y\", \"cores\": 1}],"
                " \"for_runtime\": \"y\"}"),
        SY_OK);
    assert_true(here(&now) == 1 && CPU_ISSET(cores[1], &now));
    json_t *rules = sy_core_slices_rules(r.core);
    assert_string_equal(json_string_value(json_object_get(rules, "for_runtime")), "y");
    json_decref(rules);
    assert_int_equal(set(&r, "{\"for_runtime\": \"z\"}"), SY_ENOTFOUND);
    assert_int_equal(set(&r, "{\"for_runtime\": \"x\"}"), SY_OK);
    assert_true(here(&now) == 1 && CPU_ISSET(cores[0], &now));
    assert_int_equal(set(&r, "{\"slices\": []}"), SY_OK);
    assert_true(here(&now) >= 2 && CPU_EQUAL(&now, &before));
    assert_int_equal(
        set(&r, "{\"slices\": [{\"name\": \"x\", \"cores\": 1}, {\"name\": \"z\", \"cores\": 1}]}"),
        SY_OK);
    assert_true(here(&now) == 1 && CPU_ISSET(cores[0], &now)); /* as it was asked for */
    assert_int_equal(set(&r, "{\"for_runtime\": \"\"}"), SY_OK);
    assert_true(here(&now) >= 2 && CPU_EQUAL(&now, &before));
    snprintf(r.core->spec.kind, sizeof r.core->spec.kind, "cuda");
    assert_int_equal(set(&r, "{\"for_runtime\": \"x\"}"), SY_EUNSUPPORTED);
    snprintf(r.core->spec.kind, sizeof r.core->spec.kind, "host");
    core_rig_close(&r);
}

/* What a worker says of a team is a number of cores. */
static void test_a_team_has_bounds(void **state)
{
    (void)state;
    struct core_rig r;
    struct sy_message m = {.id = SY_MSG_PREPARED};
    open_two(&r);
    m.prepared = (struct sy_msg_prepared){
        .batch = 1, .team = SY_CORE_MAX_CORES, .error = "", .workspace_bytes = FAKE_WORKSPACE};
    assert_int_equal(sy_core_message(r.core, 0, &m), SY_OK);
    m.prepared.team++;
    assert_int_equal(sy_core_message(r.core, 0, &m), SY_EPROTO);
    assert_non_null(strstr(sy_error_text(), "a team of 1025"));
    m.prepared.team = 1ull << 32;
    assert_int_equal(sy_core_message(r.core, 0, &m), SY_EPROTO);
    core_rig_close(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_are_told_apart_while_both_compute),
        cmocka_unit_test(test_ids_that_come_again_are_new),
        cmocka_unit_test(test_a_continued_run_is_no_measurement),
        cmocka_unit_test(test_lost_time_is_no_slow_down),
        cmocka_unit_test(test_what_the_machine_varies_by_itself),
        cmocka_unit_test(test_another_bound_keeps_what_was_measured),
        cmocka_unit_test(test_all_of_a_setting_or_nothing),
        cmocka_unit_test(test_the_runtime_computes_in_a_slice),
        cmocka_unit_test(test_a_team_has_bounds),
    };
    if (fake_is_worker(argc, argv))
        return fake_worker_main(argv);
    sy_log_init("test_corun");
    sy_log_threshold = SY_LOG_ERROR;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
