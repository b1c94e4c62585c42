/* The simulator: books that balance whatever is thrown at it, the same results from equal seeds, others from other seeds; JSON's keys. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim.h"
#include "runtime/sim/sim_trace.h"
#include "tests/rigs/seed.h"
#include "tests/rigs/sim_rig.h"

#define MS SY_NS_PER_MS
#define S  SY_NS_PER_S
#define GB 1000000000ull

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

struct made {
    struct sy_sim_model models[12];
    struct sy_sim_job jobs[40];
    struct sy_sim_fault faults[30];
    struct sy_sim_kind kinds[4];
    struct sy_sim_profile profiles[6];
    struct sy_sim_tenant tenants[3];
    struct sy_sim_request *requests;
    struct sy_sim_config config;
    struct sy_sim_input in;
};

static void make_config(struct made *m)
{
    struct sy_sim_config *c = &m->config;
    *c = sim_plain();
    c->policy.kind = (enum sy_policy_kind)below(SY_POLICY_N_KINDS);
    c->policy.n_parallel = (int)below(4);
    c->policy.max_wait_ns = below(3) ? 0 : 2 * S;
    c->device.n_devices = 1 + (int)below(5);
    c->router = (enum sy_sim_router)below(SY_SIM_N_ROUTERS);
    c->device.pool_bytes = 4 * GB + below(8) * GB;
    c->device.unified = below(8) == 0;
    c->whole_models = below(4) == 0;
    c->take_all = below(4) == 0;
    c->regroup = below(2);
    c->spill = below(2);
    c->device.contention = (double)below(3) / 10;
    c->noise = (double)below(3) / 10;
    c->pause_ns = below(3) * MS;
    c->preempt_ns = below(2) * 2 * MS;
    c->train_share = (double)below(4) / 10;
    c->max_queue = 1 + (int)below(40);
    c->seed = below(1000);
    c->end_ns = below(4) ? 0 : 5 * S;
}

/* Half of all runs: unequal ones, some with little room, the first with room for all. */
static void make_kinds(struct made *m)
{
    struct sy_sim_config *c = &m->config;
    c->n_kinds = below(2) ? 0 : 1 + (int)below(SY_ARRAY_LEN(m->kinds));
    for (int i = 0; i < c->n_kinds; i++)
        m->kinds[i] = (struct sy_sim_kind){.name = "k",
                                           .n_devices = 1 + (int)below(3),
                                           .pool_bytes = (i ? 1 : 4) * GB + below(4) * GB,
                                           .link_gbps = 1 + (double)below(50),
                                           .unified = below(8) == 0,
                                           .speed = (1 + (double)below(30)) / 10,
                                           .contention = (double)below(3) / 10};
    c->kinds = m->kinds;
    m->in.profiles = m->profiles;
    m->in.n_profiles = c->n_kinds ? (int)below(7) : 0;
    for (int i = 0; i < m->in.n_profiles; i++)
        m->profiles[i] = (struct sy_sim_profile){(int)below((uint64_t)m->in.n_models),
                                                 (int)below((uint64_t)c->n_kinds), below(40 * MS),
                                                 (int)below(30)};
    m->in.tenants = m->tenants;
    m->in.n_tenants = (int)below(4);
    for (int i = 0; i < m->in.n_tenants; i++)
        m->tenants[i] =
            (struct sy_sim_tenant){.name = "t",
                                   .weight = (unsigned)below(4),
                                   .hard_permille = below(3) ? 0 : 100 + (unsigned)below(901),
                                   .memory_bytes = below(2) * (1 + below(8 * GB))};
}

static void make_input(struct made *m)
{
    sy_ns at = 0;
    struct sy_sim_generator g;
    m->in = (struct sy_sim_input){.models = m->models,
                                  .n_models = 1 + (int)below(12),
                                  .jobs = m->jobs,
                                  .n_jobs = (int)below(41),
                                  .faults = m->faults,
                                  .n_faults = (int)below(31)};
    for (int i = 0; i < m->in.n_models; i++)
        m->models[i] = (struct sy_sim_model){.name = "m",
                                             .bytes = 1 + below(2 * GB),
                                             .compute_ns = 1 + below(40 * MS),
                                             .n_groups = 1 + (int)below(30),
                                             .tenant = (int)below(3)};
    make_kinds(m);
    for (int i = 0; i < m->in.n_jobs; i++) {
        struct sy_sim_job *j = &m->jobs[i];
        *j = sim_job("j", at += below(S), 1 + below(30), (1 + below(200)) * MS);
        j->persistent_bytes = below(3 * GB);
        j->ephemeral_bytes = below(6 * GB);
        j->utilization = (double)below(101) / 100;
        j->tenant = (int)below(3);
        j->priority = (int)below(3);
        j->weight = (unsigned)below(4);
    }
    at = 0;
    for (int i = 0; i < m->in.n_faults; i++)
        m->faults[i] = (struct sy_sim_fault){
            at += below(3) ? below(S / 100) : below(S), /* three may hit one request */
            below(3) ? below(S / 200) : below(2 * S),
            (int)below((uint64_t)sy_sim_n_devices(&m->config)), (enum sy_sim_fault_kind)below(2),
            0.1 + (double)below(10) / 10};
    assert_int_equal(
        sy_sim_generator_parse("rate=40,seconds=10,classes=3,deadline-ms=60,burst=5", &g), SY_OK);
    g.n_models = m->in.n_models;
    g.rate = 1 + (double)below(100);
    if (below(4))
        assert_int_equal(sy_sim_generate(&g, below(1000), &m->requests, &m->in.n_requests), SY_OK);
    m->in.requests = m->requests;
}

static void assert_balanced(const struct made *m, const struct sy_sim_report *r)
{
    uint64_t counted = 0, tenants = 0;
    double rates = 0;
    bool to_its_end = m->config.end_ns == 0;
    for (int i = 0; i < SY_SIM_MAX_CLASSES; i++)
        counted += r->latency[i].n;
    for (int i = 0; i < 256; i++)
        tenants += r->tenant_ns[i];
    for (int i = 0; i < r->n_rates; i++) {
        assert_true(r->job_rate[i] >= 0 && r->job_rate[i] <= 1 + 1e-6);
        rates += r->job_rate[i];
    }
    assert_int_equal(counted, r->n_done);
    if (to_its_end) { /* each request and each job ends once */
        assert_int_equal(r->n_requests, m->in.n_requests);
        assert_int_equal(r->n_requests, r->n_done + r->n_refused + r->n_failed);
        assert_int_equal(r->n_jobs, (uint64_t)r->n_jct + r->n_jobs_refused);
    }
    assert_true(r->n_requests >= r->n_done + r->n_refused + r->n_failed);
    /* No time twice: what was used is at most what there was, and tenants' times are the jobs' time, but for rounding. */
    assert_true(r->used_ns[0] + r->used_ns[1] <=
                (r->makespan_ns + 1) * (uint64_t)sy_sim_n_devices(&m->config));
    uint64_t off = tenants > r->used_ns[SY_SIM_USE_JOBS] ? tenants - r->used_ns[SY_SIM_USE_JOBS]
                                                         : r->used_ns[SY_SIM_USE_JOBS] - tenants;
    assert_true(off <= r->n_events + 1);
    uint64_t used = 0;
    for (int i = 0; i < r->n_kinds; i++) {
        const struct sy_sim_kind_use *k = &r->kinds[i];
        assert_true(k->used_ns[0] + k->used_ns[1] <= (r->makespan_ns + 1) * (uint64_t)k->n_devices);
        used += k->used_ns[0] + k->used_ns[1];
    }
    assert_int_equal(used, r->used_ns[0] + r->used_ns[1]);
    assert_int_equal(r->copied_bytes, 0);
    assert_true(m->in.n_jobs == 0 || rates <= r->n_rates);
}

static char *json_of(const struct sy_sim_report *r)
{
    char *text;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    assert_non_null(to);
    assert_int_equal(sy_sim_print_json(r, 0, to), SY_OK);
    fclose(to);
    return text;
}

#define ROUNDS 400 /* requests seldom lose three workers, and fail */

/* Random inputs with workers dying and links slowing, the invariants walked after each event; each twice. */
static void test_books_balance_and_equal_seeds_give_equal_results(void **state)
{
    (void)state;
    uint64_t n_events = 0, n_faults = 0, n_failed = 0, n_spilled = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct made m = {0};
        char *text[2];
        make_config(&m);
        make_input(&m);
        for (int i = 0; i < 2; i++) {
            struct sy_sim_report *r = sim_run(&m.config, &m.in);
            assert_balanced(&m, r);
            text[i] = json_of(r);
            n_events += r->n_events;
            n_faults += r->n_faults;
            n_failed += r->n_failed;
            n_spilled += r->spilled_bytes > 0;
            sy_sim_report_free(r);
        }
        assert_string_equal(text[0], text[1]);
        free(text[0]);
        free(text[1]);
        free(m.requests);
    }
    print_message("%llu events, %llu faults, %llu requests failed, %llu runs spilled\n",
                  (unsigned long long)n_events, (unsigned long long)n_faults,
                  (unsigned long long)n_failed, (unsigned long long)n_spilled);
    assert_true(n_faults > 0 && n_failed > 0 && n_spilled > 0);
}

static void test_seeds_differ_where_chance_has_a_part(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_job jobs[] = {sim_job("a", 0, 50, S / 10), sim_job("b", 0, 50, S / 10)};
    struct sy_sim_input in = {.jobs = jobs, .n_jobs = 2};
    double makespan[3];
    c.noise = 0.2;
    for (int i = 0; i < 3; i++) {
        c.seed = (uint64_t)i / 2; /* 0, 0, 1 */
        struct sy_sim_report *r = sim_run(&c, &in);
        makespan[i] = (double)r->makespan_ns;
        sy_sim_report_free(r);
    }
    assert_true(makespan[0] == makespan[1]);
    assert_true(makespan[1] != makespan[2]);
}

static void assert_has(json_t *object, const char *keys)
{
    char copy[256], *at = copy, *key;
    snprintf(copy, sizeof copy, "%s", keys);
    while ((key = strsep(&at, " ")))
        if (!json_object_get(object, key))
            fail_msg("no %s in what --json gives", key);
}

static void test_json_has_its_keys(void **state)
{
    (void)state;
    struct made m = {0};
    make_config(&m);
    make_input(&m);
    free(m.requests);
    m.config.n_kinds = m.in.n_profiles = m.in.n_tenants = 0;
    m.config.device.n_devices = 1;
    struct sy_sim_request requests[] = {{0, 0, 0, 0, 0}, {0, 0, 2, 0, 0}};
    m.in.requests = requests;
    m.in.n_requests = 2;
    m.in.n_faults = 0;
    struct sy_sim_report *r = sim_run(&m.config, &m.in);
    char *text = json_of(r);
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    assert_has(json,
               "latency_ms refused swaps bytes events events_per_s jct_s makespan_s shares jain");
    assert_has(json_object_get(json, "latency_ms"), "0 2");
    assert_null(json_object_get(json_object_get(json, "latency_ms"), "1"));
    assert_has(json_object_get(json_object_get(json, "latency_ms"), "2"), "p50 p99");
    assert_has(json_object_get(json, "jct_s"), "mean p95");
    json_t *shares = json_object_get(json, "shares");
    assert_has(shares, "requests jobs idle tenants");
    double sum = json_real_value(json_object_get(shares, "requests")) +
                 json_real_value(json_object_get(shares, "jobs")) +
                 json_real_value(json_object_get(shares, "idle"));
    assert_true(fabs(sum - 1) < 1e-9);
    json_decref(json);
    free(text);
    sy_sim_report_free(r);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_books_balance_and_equal_seeds_give_equal_results),
        cmocka_unit_test(test_seeds_differ_where_chance_has_a_part),
        cmocka_unit_test(test_json_has_its_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
