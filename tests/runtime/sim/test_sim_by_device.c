/* Devices that do not depend on each other: many at once give, request by request, what each gives alone with the requests that went
 * there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim.h"
#include "runtime/sim/sim_trace.h"
#include "tests/rigs/seed.h"
#include "tests/rigs/sim_rig.h"

#define MS       SY_NS_PER_MS
#define S        SY_NS_PER_S
#define N_MODELS 6
#define ROUNDS   60

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

struct end {
    int device, n;
    enum sy_sim_outcome outcome;
    sy_ns latency_ns, served_ns;
};

struct ends {
    const struct sy_sim_request *requests;
    struct end *by_request;
    sy_ns last_ns;
};

static void note(void *ctx, const struct sy_sim_request *r, int device, enum sy_sim_outcome outcome,
                 sy_ns latency_ns, sy_ns served_ns)
{
    struct ends *e = ctx;
    struct end *end = &e->by_request[r - e->requests];
    assert_int_equal(end->n, 0);
    *end = (struct end){device, 1, outcome, latency_ns, served_ns};
    assert_true(r->at_ns + latency_ns >= e->last_ns); /* told in the order of time */
    e->last_ns = r->at_ns + latency_ns;
}

struct made {
    struct sy_sim_model models[N_MODELS];
    struct sy_sim_fault faults[80];
    struct sy_sim_kind kinds[3];
    struct sy_sim_request *requests;
    struct sy_sim_config config;
    struct sy_sim_input in;
};

static void make(struct made *m)
{
    struct sy_sim_config *c = &m->config;
    struct sy_sim_generator g;
    *c = sim_plain();
    c->device.n_devices = 2 + (int)below(9);
    c->router = SY_SIM_RANDOM;
    c->device.pool_bytes = 2000000000ull + below(6000000000ull);
    c->whole_models = below(3) == 0;
    c->take_all = below(3) == 0;
    c->preempt_ns = below(2) * 2 * MS;
    c->max_queue = 1 + (int)below(30);
    c->end_ns = below(3) ? 0 : 6 * S;
    m->in = (struct sy_sim_input){.models = m->models, .n_models = N_MODELS};
    for (int i = 0; i < N_MODELS; i++)
        m->models[i] = (struct sy_sim_model){.name = "m",
                                             .bytes = 1 + below(2000000000),
                                             .compute_ns = 1 + below(60 * MS),
                                             .n_groups = 1 + (int)below(30),
                                             .n_samples = (int)below(2),
                                             .samples = {1.5f}};
    c->n_kinds = below(2) ? 0 : 1 + (int)below(SY_ARRAY_LEN(m->kinds));
    for (int i = 0; i < c->n_kinds; i++)
        m->kinds[i] = (struct sy_sim_kind){.n_devices = 1 + (int)below(4),
                                           .pool_bytes = 2000000000 + below(2000000000),
                                           .link_gbps = 1 + (double)below(40),
                                           .lost_ns_per_byte = (double)below(2) / 50,
                                           .speed = (1 + (double)below(30)) / 10};
    c->kinds = m->kinds;
    sy_ns at = 0;
    for (m->in.n_faults = 0; m->in.n_faults < 80 && below(40); m->in.n_faults++)
        m->faults[m->in.n_faults] = (struct sy_sim_fault){at += below(S / 10), below(S / 5),
                                                          (int)below((uint64_t)sy_sim_n_devices(c)),
                                                          (enum sy_sim_fault_kind)below(2), 0.3};
    assert_int_equal(
        sy_sim_generator_parse("rate=40,seconds=8,classes=3,deadline-ms=90,burst=5", &g), SY_OK);
    g.n_models = N_MODELS;
    g.rate = 5 + (double)below(300);
    assert_int_equal(sy_sim_generate(&g, below(1000), &m->requests, &m->in.n_requests), SY_OK);
    m->in.requests = m->requests;
    m->in.faults = m->faults;
}

static struct sy_sim_report *run(const struct sy_sim_config *config, const struct sy_sim_input *in,
                                 struct end *ends)
{
    struct ends e = {in->requests, ends, 0};
    struct sy_sim_config c = *config;
    c.answered = note;
    c.answered_ctx = &e;
    return sim_run(&c, in);
}

static struct sy_sim_kind kind_of(const struct sy_sim_config *c, int device)
{
    for (int i = 0; i < c->n_kinds; device -= c->kinds[i++].n_devices)
        if (device < c->kinds[i].n_devices)
            return c->kinds[i];
    return c->device;
}

/* The requests and faults of one device; `which` says which they were. */
static void pick(const struct made *m, const struct end *ends, int device, struct made *own,
                 uint64_t *which)
{
    *own = *m;
    own->config.n_kinds = 0;
    own->config.device = kind_of(&m->config, device);
    own->config.device.n_devices = 1;
    own->requests = malloc((m->in.n_requests + 1) * sizeof *own->requests);
    assert_non_null(own->requests);
    own->in = (struct sy_sim_input){.models = own->models, .n_models = N_MODELS};
    for (uint64_t i = 0; i < m->in.n_requests; i++)
        if (ends[i].n > 0 && ends[i].device == device) {
            which[own->in.n_requests] = i;
            own->requests[own->in.n_requests++] = m->requests[i];
        }
    for (int i = 0; i < m->in.n_faults; i++)
        if (m->faults[i].device == device) {
            own->faults[own->in.n_faults] = m->faults[i];
            own->faults[own->in.n_faults++].device = 0;
        }
    own->in.requests = own->requests;
    own->in.faults = own->faults;
}

static void assert_same_end(const struct end *a, const struct end *b)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->outcome, b->outcome);
    assert_int_equal(a->latency_ns, b->latency_ns);
    assert_int_equal(a->served_ns, b->served_ns);
}

struct sums {
    uint64_t n_done, n_refused, n_failed, n_late, n_swaps, n_preempted, moved_bytes, used_ns;
};

static void add(struct sums *sums, const struct sy_sim_report *r)
{
    sums->n_done += r->n_done;
    sums->n_refused += r->n_refused;
    sums->n_failed += r->n_failed;
    sums->n_late += r->n_late;
    sums->n_swaps += r->n_swaps;
    sums->n_preempted += r->n_preempted;
    sums->moved_bytes += r->moved_bytes;
    sums->used_ns += r->used_ns[SY_SIM_USE_REQUESTS];
}

/* What no end says: who is still there when the time is up is not told of, and so is in no device's trace. */
static void assert_sums(const struct made *m, const struct sums *sums,
                        const struct sy_sim_report *all)
{
    if (m->config.end_ns > 0)
        return;
    struct sums whole = {0};
    add(&whole, all);
    assert_memory_equal(sums, &whole, sizeof whole);
}

static void test_many_are_as_each_alone(void **state)
{
    (void)state;
    uint64_t n_failed = 0, n_refused = 0, n_preempted = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct made m = {0}, own;
        make(&m);
        size_t n = (size_t)m.in.n_requests + 1;
        struct end *ends = calloc(n, sizeof *ends), *alone = calloc(n, sizeof *alone);
        uint64_t *which = calloc(n, sizeof *which);
        struct sums sums = {0};
        struct sy_sim_report *all = run(&m.config, &m.in, ends);
        for (int device = 0; device < sy_sim_n_devices(&m.config); device++) {
            pick(&m, ends, device, &own, which);
            struct sy_sim_report *one = run(&own.config, &own.in, alone);
            add(&sums, one);
            for (uint64_t i = 0; i < own.in.n_requests; i++)
                if (m.config.end_ns == 0)
                    assert_same_end(&ends[which[i]], &alone[i]);
            for (uint64_t i = 0; i < own.in.n_requests; i++)
                alone[i] = (struct end){0};
            sy_sim_report_free(one);
            free(own.requests);
        }
        assert_sums(&m, &sums, all);
        n_failed += all->n_failed;
        n_refused += all->n_refused;
        n_preempted += all->n_preempted;
        sy_sim_report_free(all);
        free(ends);
        free(alone);
        free(which);
        free(m.requests);
    }
    assert_true(n_failed > 0 && n_refused > 0 && n_preempted > 0);
}

/* A fault at a device with nothing to do counts while others are busy, and not after everything else. */
static void test_idle_faults_count_while_others_are_busy(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_model model = {.name = "m", .bytes = 1, .compute_ns = 100 * MS, .n_groups = 1};
    struct sy_sim_request request = {S, 0, 0, 0, 0};
    struct sy_sim_fault faults[64];
    struct sy_sim_input in = {.models = &model,
                              .n_models = 1,
                              .requests = &request,
                              .n_requests = 1,
                              .faults = faults,
                              .n_faults = SY_ARRAY_LEN(faults)};
    c.device.n_devices = 50;
    c.router = SY_SIM_RANDOM;
    for (int i = 0; i < 64; i++) /* half of them before the request is done */
        faults[i] = (struct sy_sim_fault){i < 32 ? S / 2 : 9 * S, MS, i % 50, SY_SIM_LINK_SLOWS, 1};
    struct sy_sim_report *r = sim_run(&c, &in);
    assert_int_equal(r->n_done, 1);
    assert_int_equal(r->n_faults, 32);
    assert_int_equal(r->n_events, 34);
    assert_int_equal(r->makespan_ns, S + 100 * MS);
    sy_sim_report_free(r);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_are_as_each_alone),
        cmocka_unit_test(test_idle_faults_count_while_others_are_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
