/* What the core counts: requests and their phases, refusals, failures, jobs and device time; and the text of it with as many models as there may be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/base/text_copy.h"
#include "runtime/core/core_metrics.h"
#include "runtime/front/metrics/metrics_body.h"
#include "runtime/front/metrics/metrics_snapshot.h"
#include "tests/rigs/core_rig.h"

static struct sy_core_metrics *look(struct core_rig *r)
{
    struct sy_core_metrics *m;

    assert_int_equal(sy_core_metrics(r->core, &m), SY_OK);
    return m;
}

static const struct sy_core_model_metrics *model_of(const struct sy_core_metrics *m,
                                                    const char *name)
{
    for (int i = 0; i < m->n_models; i++)
        if (strcmp(m->models[i].name, name) == 0)
            return &m->models[i];
    fail_msg("no model %s", name);
    return NULL;
}

static uint64_t n_of(const struct sy_phase_histograms *h, enum sy_phase phase)
{
    return sy_histogram_count(&h->of[phase]);
}

static int64_t status_counter(struct core_rig *r, const char *name)
{
    json_t *status;

    assert_int_equal(sy_core_status(r->core, &status), SY_OK);
    json_t *value = json_object_get(json_object_get(status, "counters"), name);
    assert_non_null(value);
    int64_t n = json_integer_value(value);
    json_decref(status);
    return n;
}

static void test_requests_by_model(void **state)
{
    struct core_rig r;
    struct core_answer answer;

    (void)state;
    core_rig_open(&r, "emulated", 3);
    core_rig_add_both(&r);
    struct sy_core_metrics *before = look(&r);
    assert_int_equal(before->n_models, 2);
    assert_int_equal(n_of(&before->phases, SY_PHASE_QUEUE), 0);
    for (int i = 0; i < 5; i++)
        core_rig_must_infer(&r, i % 5 < 3 ? "a" : "b", &answer);
    core_rig_calm(&r);
    struct sy_core_metrics *m = look(&r);
    const struct sy_core_model_metrics *a = model_of(m, "a"), *b = model_of(m, "b");
    assert_int_equal(sy_histogram_count(&m->phases.total), 5);
    assert_int_equal(n_of(&a->phases, SY_PHASE_QUEUE), 3);
    assert_int_equal(n_of(&b->phases, SY_PHASE_COMPUTE), 2);
    assert_int_equal(m->phases.total.sum_ns, a->phases.total.sum_ns + b->phases.total.sum_ns);
    assert_true(a->is_ready && a->n_pending == 0 && a->weights_bytes > 0);
    assert_true(a->resident_bytes <= m->pool.bytes - m->pool.free_bytes);
    assert_int_equal(m->n_swaps, a->n_swaps + b->n_swaps);
    assert_int_equal(m->link_bytes, a->link_bytes + b->link_bytes);
    assert_int_equal(m->link_bytes, status_counter(&r, "link_bytes"));
    assert_int_equal(m->storage_bytes, status_counter(&r, "storage_bytes"));
    assert_true(m->inference_ns > before->inference_ns && m->training_ns == 0);
    assert_true(m->image.bytes > 0 && m->slab.free_bytes == m->slab.bytes);
    assert_int_equal(m->n_workers, 3);
    free(before);
    free(m);
    core_rig_close(&r);
}

static void test_refusals_and_failures(void **state)
{
    struct core_rig r;
    struct core_answer answer, late;

    (void)state;
    core_rig_open(&r, "host", 3);
    core_rig_add_both(&r);
    assert_int_equal(core_rig_infer_by(&r, "a", 1, 1, &late), SY_EDEADLINE);
    core_rig_infer(&r, "a", 1, &answer);
    sy_core_infer_cancel(r.core, answer.id);
    int ended = core_rig_wait(&r, &answer);
    struct sy_core_metrics *m = look(&r);
    assert_int_equal(m->refused.n[SY_REFUSED_LATE], 1);
    assert_int_equal(m->failed[-SY_ECANCELED], ended == SY_ECANCELED);
    assert_int_equal(sy_histogram_count(&m->phases.total), ended == SY_OK);
    free(m);
    core_rig_close(&r);
}

/* Each of those that were gathered is a request of its own. */
static void test_gathered_requests_count_each(void **state)
{
    struct core_rig r;
    struct core_answer answers[6];

    (void)state;
    core_rig_open_gathering(&r, "host", 3, 1 << 20, 50 * SY_NS_PER_MS);
    core_rig_add_both(&r);
    for (int i = 0; i < 6; i++)
        core_rig_infer(&r, "a", 1, &answers[i]);
    for (int i = 0; i < 6; i++)
        assert_int_equal(core_rig_wait(&r, &answers[i]), SY_OK);
    struct sy_core_metrics *m = look(&r);
    assert_int_equal(sy_histogram_count(&m->phases.total), 6);
    assert_int_equal(sy_histogram_count(&model_of(m, "a")->phases.total), 6);
    free(m);
    core_rig_close(&r);
}

/* A copy of everything that is counted, as the loop takes it. */
static void test_as_many_models_as_there_may_be(void **state)
{
    struct core_rig r;
    struct core_done done = {0};
    char path[128], name[16];
    int n = 0;

    (void)state;
    core_rig_open(&r, "host", 2);
    snprintf(path, sizeof path, "%s/a.sypkg", r.folder);
    for (int i = 0; i < 256; i++) {
        struct sy_core_model_options options = {.name = name};

        snprintf(name, sizeof name, "m%d", i);
        n += sy_core_model_add(r.core, path, &options, core_rig_done, &done) == SY_OK;
    }
    while (done.n_calls < n)
        core_rig_turn(&r, 10);
    sy_ns begun = sy_clock_now();
    struct sy_core_metrics *m = look(&r);
    print_message("%d models: a copy in %.3f ms\n", m->n_models,
                  (double)(sy_clock_now() - begun) / 1e6);
    assert_int_equal(n, 256);
    assert_int_equal(m->n_models, 256);
    free(m);
    core_rig_close(&r);
}

static void test_a_job_and_its_preemptions(void **state)
{
    struct core_rig r;
    struct core_answer answer;
    uint64_t job;

    (void)state;
    core_rig_open(&r, "host", 3);
    core_rig_add_both(&r);
    core_rig_submit(&r, NULL, &job);
    core_rig_await_step(&r, job, 5);
    for (int i = 0; i < 3; i++)
        core_rig_must_infer(&r, "a", &answer);
    core_rig_await_job(&r, job, "training");
    core_rig_await_step(&r, job, core_rig_step(&r, job) + 2);
    struct sy_core_metrics *m = look(&r);
    assert_int_equal(m->n_jobs, 1);
    assert_true(m->jobs[0].id == job && m->jobs[0].step >= 7 && m->jobs[0].device_ns > 0);
    assert_true(m->training_ns >= m->jobs[0].device_ns && m->inference_ns > 0);
    assert_true(m->n_preemptions >= 1);
    assert_int_equal(m->n_preemptions, status_counter(&r, "preemptions"));
    assert_true(sy_histogram_count(&m->preempt_wait) >= 1);
    free(m);
    assert_int_equal(core_rig_stop(&r, job), SY_OK);
    m = look(&r);
    assert_string_equal(m->jobs[0].state, "ended");
    free(m);
    core_rig_close(&r);
}

/* ---- the text ----------------------------------------------------------------------------------------------------- */

static void fill_model(struct sy_core_model_metrics *model, int i)
{
    snprintf(model->name, sizeof model->name, "model_%d_%s", i, i % 2 ? "\"quoted\\\"" : "é");
    model->version = 1 + i % 3;
    for (int k = 0; k < 200; k++) {
        for (int p = 0; p < SY_N_PHASES; p++)
            sy_histogram_add(&model->phases.of[p], (sy_ns)(k * 500) * SY_NS_PER_US);
        sy_histogram_add(&model->phases.total, (sy_ns)k * SY_NS_PER_MS);
    }
}

static struct sy_core_metrics *many_models(int n)
{
    struct sy_core_metrics *m =
        calloc(1, sizeof *m + (size_t)n * sizeof *m->models + sizeof *m->jobs + sizeof *m->workers);

    assert_non_null(m);
    m->models = (struct sy_core_model_metrics *)(m + 1);
    m->jobs = (struct sy_core_job_metrics *)(m->models + n);
    m->workers = (struct sy_core_worker_metrics *)(m->jobs + 1);
    m->n_models = n;
    m->n_jobs = m->n_workers = 1;
    for (int i = 0; i < n; i++)
        fill_model(&m->models[i], i);
    snprintf(m->jobs[0].name, sizeof m->jobs[0].name, "job");
    m->jobs[0].state = "training";
    snprintf(m->device_kind, sizeof m->device_kind, "cuda");
    snprintf(m->device_uuid, sizeof m->device_uuid, "GPU-1");
    m->pool.bytes = 100;
    m->pool.free_bytes = 40;
    return m;
}

static size_t n_lines_with(const char *text, const char *start)
{
    size_t n = 0, length = strlen(start);
    const char *end = text + strlen(text);

    /* by memchr: the address sanitizer's strchr measures all of the text for each line */
    for (const char *line = text, *newline; line < end; line = newline + 1) {
        n += (size_t)(end - line) >= length && memcmp(line, start, length) == 0;
        newline = memchr(line, '\n', (size_t)(end - line));
        if (!newline)
            break;
    }
    return n;
}

static char *body(const struct sy_metrics_input *in)
{
    char *text;
    size_t bytes;

    assert_int_equal(sy_metrics_body(in, &text, &bytes), SY_OK);
    char *copy = sy_text_copy(text, bytes);
    free(text);
    return copy;
}

static void test_256_models(void **state)
{
    struct sy_front_model_stats stats[2] = {{.name = "gone",
                                             .version = 1,
                                             .n_successes = 7,
                                             .success = {7, 9000},
                                             .n_failures = 6,
                                             .n_rejected = 3,
                                             .n_canceled = 2,
                                             .n_backend_failures = 0},
                                            {.name = "model_0_é", .version = 1, .n_successes = 5}};
    struct sy_metrics_input in = {
        .own = true, .triton = true, .version = "1", .stats = stats, .n_stats = 2};

    (void)state;
    in.core = many_models(256);
    sy_ns begun = sy_clock_now();
    char *text = body(&in);
    print_message("256 models: %zu bytes in %.2f ms\n", strlen(text),
                  (double)(sy_clock_now() - begun) / 1e6);
    assert_int_equal(n_lines_with(text, "switchyard_model_phase_seconds_bucket{"),
                     256 * SY_N_PHASES * (SY_HISTOGRAM_BOUNDS + 1));
    assert_int_equal(n_lines_with(text, "nv_inference_request_success{"), 257);
    assert_int_equal(n_lines_with(text, "nv_inference_request_failure{"), 4 * 257);
    assert_non_null(strstr(text, "nv_inference_request_success{model=\"gone\",version=\"1\"} 7\n"));
    assert_non_null(
        strstr(text, "nv_inference_request_success{model=\"model_0_é\",version=\"1\"} 5\n"));
    assert_non_null(
        strstr(text, "nv_inference_request_duration_us{model=\"gone\",version=\"1\"} 9\n"));
    assert_non_null(strstr(
        text, "nv_inference_request_failure{model=\"gone\",version=\"1\",reason=\"OTHER\"} 1\n"));
    assert_non_null(strstr(text, "nv_gpu_memory_used_bytes{gpu_uuid=\"GPU-1\"} 60\n"));
    assert_non_null(strstr(text, "switchyard_jobs{state=\"training\"} 1\n"));
    free(text);
    in.triton = false;
    in.format = SY_EXPOSITION_OPENMETRICS;
    text = body(&in);
    assert_null(strstr(text, "nv_"));
    assert_string_equal(text + strlen(text) - 6, "# EOF\n");
    free(text);
    free(in.core);
    in.core = NULL; /* a core that counts nothing */
    in.triton = true;
    text = body(&in);
    assert_null(strstr(text, "switchyard_model_ready"));
    assert_non_null(strstr(text, "nv_cpu_utilization"));
    free(text);
}

static void test_host_usage(void **state)
{
    struct sy_host_sampler sampler = {0};
    uint64_t bytes, used;

    (void)state;
    assert_true(sy_host_usage_cpu(&sampler, "cpu  10 0 10 60 20 0 0 0 0 0\n") == 0.2);
    assert_true(sy_host_usage_cpu(&sampler, "cpu  40 0 10 130 20 0 0 0 0 0\n") == 0.3);
    assert_true(sy_host_usage_cpu(&sampler, "cpu  40 0 10 130 20 0 0 0 0 0\n") == 0);
    assert_true(sy_host_usage_cpu(&sampler, "cpu  39 0 10 131 20 0 0 0 0 0\n") == 0);
    assert_true(sy_host_usage_cpu(&sampler, "no such file") == 0);
    sy_host_usage_memory("MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    600 kB\n",
                         &bytes, &used);
    assert_true(bytes == 1024000 && used == 409600);
    sy_host_usage_memory("", &bytes, &used);
    assert_true(bytes == 0 && used == 0);
    struct sy_host_usage usage;
    sy_host_usage_read(&sampler, &usage);
    assert_true(usage.memory_bytes > usage.process_resident_bytes &&
                usage.process_resident_bytes > 0);
    assert_true(usage.cpu_utilization >= 0 && usage.cpu_utilization <= 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_by_model),
        cmocka_unit_test(test_refusals_and_failures),
        cmocka_unit_test(test_gathered_requests_count_each),
        cmocka_unit_test(test_a_job_and_its_preemptions),
        cmocka_unit_test(test_as_many_models_as_there_may_be),
        cmocka_unit_test(test_256_models),
        cmocka_unit_test(test_host_usage),
    };
    if (fake_is_worker(argc, argv))
        return fake_worker_main(argv);
    sy_log_init("test_core_metrics");
    sy_log_threshold = SY_LOG_ERROR;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
