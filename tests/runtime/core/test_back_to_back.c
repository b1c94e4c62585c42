/* Runs of several requests one after the other (core_batch.h, APART) on real workers: the bits that each has alone, beside training, through
 * urgent requests and workers that are killed; requests that are canceled while they run; models that nobody has timed. */
#include <event2/event.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/core/core_batch.h"
#include "runtime/core/core_internal.h"
#include "tests/nets/reference_rig.h"
#include "tests/rigs/core_rig.h"
#include "workers/process/worker.h"

/* ---- a server ------------------------------------------------------------------------------------ */

enum { N_ASKERS = 12, N_EACH = 80, N_URGENT = 40, N_KILLS = 2 };

static int n_done(struct asker *askers)
{
    int n = 0;
    for (int i = 0; i < N_ASKERS; i++)
        n += atomic_load(&askers[i].n_done);
    return n;
}

static void start_askers(struct fixture *f, const struct references *references,
                         struct asker *askers)
{
    for (int i = 0; i < N_ASKERS; i++) {
        askers[i] = (struct asker){.f = f, .references = references, .seed = i, .n = N_EACH};
        assert_int_equal(pthread_create(&askers[i].thread, NULL, asker_main, &askers[i]), 0);
    }
}

static void join_askers(struct asker *askers)
{
    for (int i = 0; i < N_ASKERS; i++) {
        pthread_join(askers[i].thread, NULL);
        if (askers[i].n_failed)
            fail_msg("%d failed; the first: %s", askers[i].n_failed, askers[i].error);
        assert_int_equal(askers[i].n_wrong, 0);
    }
}

/* Urgent ones between them, each with its own bits; where `kills`, also a worker that runs something, now and then. */
static void disturb(struct fixture *f, const struct references *references, struct asker *askers,
                    int kills)
{
    const sy_client_options urgent = {.urgency_class = 0};
    int killed = 0;
    for (int i = 0; i < N_URGENT; i++) {
        int m = i % N_MODELS, v = i % VARIANTS, status = 0;
        sy_client_result *result =
            fixture_infer_with(f->client, reference_models[m], 1, v, &urgent, &status);
        if (status < 0)
            fail_msg("an urgent one: %s", sy_client_error(f->client));
        assert_true(fixture_same(result, references->of[m][v]));
        sy_client_result_free(result);
        bool is_due = n_done(askers) > (killed + 1) * N_ASKERS * N_EACH / (N_KILLS + 2);
        pid_t pid = killed < kills && is_due ? fixture_worker_in(f, "running") : 0;
        killed += pid > 0 && kill(pid, SIGKILL) == 0;
    }
}

static void many_at_once(const char *name, const char *device, bool trains, int kills)
{
    struct fixture f;
    struct references references;
    static struct asker askers[N_ASKERS];
    fixture_init(&f, name);
    const char *const args[] = {"--models", fixture_models(), "--device", device, "--pool-bytes",
                                "128M",     "--workers",      "4",        NULL};
    fixture_start(&f, args);
    references_take(&f, &references);
    if (trains)
        fixture_submit(&f, fixture_make_job(&f, name, 1000000, 1000000));
    start_askers(&f, &references, askers);
    disturb(&f, &references, askers, kills);
    join_askers(askers);
    assert_int_equal(fixture_counter(&f, "failed"), 0);
    references_ask(&f, &references, 1);
    references_free(&references);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static void beside_training_on_host(void **state)
{
    (void)state;
    many_at_once("b2b-train", "host", true, 0);
}

static void beside_training_on_emulated(void **state)
{
    (void)state;
    many_at_once("b2b-link", "emulated,link-gbps=5", true, 0);
}

static void with_killed_workers(void **state)
{
    (void)state;
    many_at_once("b2b-kill", "host", false, N_KILLS);
}

/* ---- the core in this process -------------------------------------------------------------------- */

enum { N = 40 };

struct tensors {
    struct core_answer answers[N];
    int n_ok, n_canceled;
};

static void on_answer(void *ctx, int status, const char *error,
                      const struct sy_request_report *report)
{
    struct core_answer *a = ctx;
    (void)report;
    a->over = true;
    a->n_calls++;
    a->status = status;
    snprintf(a->error, sizeof a->error, "%s", error ? error : "");
}

static uint64_t take_slab(struct core_rig *r)
{
    uint64_t at;
    assert_int_equal(sy_slab_alloc(sy_core_slab(r->core), FAKE_ROW * sizeof(float), &at), SY_OK);
    return at;
}

static void send_all(struct core_rig *r, struct tensors *t)
{
    *t = (struct tensors){0};
    for (int i = 0; i < N; i++) {
        struct core_answer *a = &t->answers[i];
        a->in = take_slab(r);
        a->out = take_slab(r);
        float *in = sy_slab_pointer(sy_core_slab(r->core), a->in);
        for (int k = 0; k < FAKE_ROW; k++)
            in[k] = (float)(i * FAKE_ROW + k) / 17;
        if (core_rig_send(r, "a", 1, a->in, a->out, NULL, on_answer, a, &a->id) < 0)
            fail_msg("infer: %s", sy_error_text());
    }
}

static bool all_are_over(struct core_rig *r, void *ctx)
{
    const struct tensors *t = ctx;
    (void)r;
    for (int i = 0; i < N; i++)
        if (!t->answers[i].over)
            return false;
    return true;
}

/* With the results of those that succeeded in `results`, a row each. */
static void wait_all(struct core_rig *r, struct tensors *t, float *results)
{
    struct sy_slab *slab = sy_core_slab(r->core);
    core_rig_until(r, all_are_over, t, "all answers");
    for (int i = 0; i < N; i++) {
        const struct core_answer *a = &t->answers[i];
        assert_int_equal(a->n_calls, 1);
        t->n_ok += a->status == SY_OK;
        t->n_canceled += a->status == SY_ECANCELED;
        if (a->status == SY_OK)
            memcpy(results + i * FAKE_ROW, sy_slab_pointer(slab, a->out), FAKE_ROW * sizeof(float));
        sy_slab_release(slab, a->in);
        sy_slab_release(slab, a->out);
    }
    assert_int_equal(t->n_ok + t->n_canceled, N);
}

static void open_rig(struct core_rig *r, const char *device)
{
    const struct sy_core_config config = {.device = device,
                                          .pool_bytes = 4u << 20,
                                          .n_workers = 2,
                                          .hang_timeout_ns = 60 * SY_NS_PER_S};
    core_rig_open_with(r, &config);
    core_rig_add_both(r);
}

static void must_send_and_wait(struct core_rig *r, float *results)
{
    static struct tensors t;
    send_all(r, &t);
    wait_all(r, &t, results);
    assert_int_equal(t.n_ok, N);
}

/* Canceled before, between and after their parts of the run: all have an answer, others their bits, and nothing is left. */
static void canceled_ones_hurt_nobody(void **state)
{
    (void)state;
    static struct tensors t;
    static float expected[N * FAKE_ROW], results[N * FAKE_ROW];
    struct core_rig r;
    open_rig(&r, "host");
    must_send_and_wait(&r, expected);
    for (int round = 0; round < 24; round++) {
        int step = round % 3 + 1; /* 1: all of them */
        memcpy(results, expected, sizeof results);
        send_all(&r, &t);
        for (int i = 0; i < round % 4; i++)
            event_base_loop(r.base, EVLOOP_NONBLOCK);
        for (int i = 0; i < N; i += step)
            sy_core_infer_cancel(r.core, t.answers[i].id);
        wait_all(&r, &t, results);
        assert_true(t.n_canceled <= (N + step - 1) / step);
        assert_memory_equal(results, expected, sizeof results);
    }
    assert_int_equal(core_rig_deaths(&r), 0);
    core_rig_calm(&r);
    core_rig_close(&r);
}

/* Of a model without a profile no run counts as short before one was seen, and none once a long one was. */
static void untimed_models_wait_for_a_look(void **state)
{
    (void)state;
    static float results[N * FAKE_ROW];
    static struct tensors t;
    struct core_rig r;
    open_rig(&r, "host");
    send_all(&r, &t);
    uint64_t n_sent = sy_core_batch_n_sent(r.core->batches);
    assert_int_equal(sy_core_batch_n_gathered(r.core->batches), 0);
    wait_all(&r, &t, results);
    assert_int_equal(sy_core_batch_n_sent(r.core->batches), n_sent);
    r.core->models[0].longest_run_ns = SY_BATCH_APART_RUN_NS; /* whatever this machine made of it */
    send_all(&r, &t);
    assert_int_equal(sy_core_batch_n_gathered(r.core->batches), N - 1);
    wait_all(&r, &t, results);
    r.core->models[0].longest_run_ns = SY_BATCH_APART_RUN_NS + 1;
    send_all(&r, &t);
    assert_int_equal(sy_core_batch_n_gathered(r.core->batches), 0);
    wait_all(&r, &t, results);
    core_rig_calm(&r);
    core_rig_close(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside_training_on_host),
        cmocka_unit_test(beside_training_on_emulated),
        cmocka_unit_test(with_killed_workers),
        cmocka_unit_test(canceled_ones_hurt_nobody),
        cmocka_unit_test(untimed_models_wait_for_a_look),
    };
    if (fake_is_worker(argc, argv)) /* a real one: argv is PROGRAM worker --fd N --index I */
        return sy_worker_main(atoi(argv[3]), atoi(argv[5]));
    sy_log_init("test_back_to_back");
    if (!getenv("SY_LOG"))
        sy_log_threshold = SY_LOG_ERROR;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
