/* Many devices: the agenda against the tree, request by request. A fault after all other events changes nothing, but with faults the tree is used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_internal.h"
#include "runtime/sim/sim_trace.h"
#include "tests/rigs/sim_rig.h"

#define N_DEVICES 700
#define N_MODELS  20

struct end {
    int device;
    enum sy_sim_outcome outcome;
    sy_ns latency_ns, served_ns;
    uint64_t nth; /* of all, in the order in which they were told */
};

struct ends {
    const struct sy_sim_request *requests;
    struct end *by_request;
    uint64_t n;
};

static void note(void *ctx, const struct sy_sim_request *r, int device, enum sy_sim_outcome outcome,
                 sy_ns latency_ns, sy_ns served_ns)
{
    struct ends *e = ctx;
    e->by_request[r - e->requests] = (struct end){device, outcome, latency_ns, served_ns, e->n++};
}

static struct end *run(struct sy_sim_config c, struct sy_sim_input in, bool with_fault)
{
    static const struct sy_sim_fault late = {
        .at_ns = 1000000 * SY_NS_PER_S, .kind = SY_SIM_WORKER_DIES, .factor = 1};
    struct ends e = {in.requests, calloc(in.n_requests, sizeof *e.by_request), 0};
    assert_non_null(e.by_request);
    in.faults = &late;
    in.n_faults = with_fault;
    c.answered = note;
    c.answered_ctx = &e;
    sy_sim_report_free(sim_run(&c, &in));
    assert_int_equal(e.n, in.n_requests);
    return e.by_request;
}

static void check(const struct sy_sim_config *c, const char *trace)
{
    struct sy_sim_generator g;
    struct sy_sim_model *models;
    struct sy_sim_request *requests;
    struct sy_sim_input in = {.n_models = N_MODELS};
    assert_int_equal(sy_sim_generator_parse(trace, &g), SY_OK);
    g.n_models = N_MODELS;
    assert_int_equal(sy_sim_example_models(N_MODELS, &models), SY_OK);
    assert_int_equal(sy_sim_generate(&g, 1, &requests, &in.n_requests), SY_OK);
    in.models = models;
    in.requests = requests;
    struct end *by_agenda = run(*c, in, false), *by_tree = run(*c, in, true);
    for (uint64_t i = 0; i < in.n_requests; i++)
        assert_memory_equal(&by_agenda[i], &by_tree[i], sizeof *by_tree);
    free(by_agenda);
    free(by_tree);
    free(requests);
    free(models);
}

static void check_router(enum sy_sim_router router)
{
    static const struct sy_sim_kind kinds[] = {
        {.n_devices = 600, .pool_bytes = 16000000000, .link_gbps = 12, .speed = 1},
        {.n_devices = 650, .pool_bytes = 16000000000, .link_gbps = 25, .speed = 2},
    };
    struct sy_sim_config c = sim_plain();
    c.router = router;
    c.device.n_devices = N_DEVICES;
    check(&c, "rate=14000,seconds=0.4,zipf=1");
    check(&c, "rate=28000,seconds=0.2,zipf=1,classes=2,deadline-ms=300");
    c.noise = 0.7;
    check(&c, "rate=14000,seconds=0.3,zipf=1,classes=3,burst=4,burst-every=0.1,burst-last=0.02");
    c.kinds = kinds;
    c.n_kinds = SY_ARRAY_LEN(kinds);
    check(&c, "rate=40000,seconds=0.1,zipf=1");
}

static void test_hash(void **state)
{
    (void)state;
    check_router(SY_SIM_HASH);
}

static void test_least(void **state)
{
    (void)state;
    check_router(SY_SIM_LEAST);
}

static void test_residency(void **state)
{
    (void)state;
    check_router(SY_SIM_RESIDENCY);
}

/* The comparison compares two things. */
static void test_a_late_fault_takes_the_tree(void **state)
{
    (void)state;
    struct sy_sim_config c = sim_plain();
    struct sy_sim_fault late = {.at_ns = SY_NS_PER_S, .factor = 1};
    c.device.n_devices = N_DEVICES;
    c.router = SY_SIM_LEAST;
    for (int n_faults = 0; n_faults < 2; n_faults++) {
        struct sy_sim_input in = {.faults = &late, .n_faults = n_faults};
        struct sim s = {.config = &c, .in = &in, .report = sy_sim_report_new()};
        s.n_all = s.n_devices = N_DEVICES;
        assert_int_equal(sy_sim_open(&s), SY_OK);
        assert_int_equal(s.has_agenda, n_faults == 0);
        sy_sim_close(&s);
        sy_sim_report_free(s.report);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_least),
        cmocka_unit_test(test_residency),
        cmocka_unit_test(test_a_late_fault_takes_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
