#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/plan/plan.h"
#include "runtime/base/status.h"
#include "tests/rigs/computing_beside.h"
#include "tests/rigs/seed.h"

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

/* The end of the pipeline for cuts given as bits, written apart from the code under test; -1 if not allowed. */
static double end_of_cuts(const struct sy_plan_layer *l, int n, unsigned cuts,
                          const struct sy_link_cost *c, int max_groups, uint64_t max_bytes)
{
    double link = 0, device = 0, compute = 0, all = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++)
        all += (double)l[i].bytes;
    int groups = 0, in_group = 0;
    for (int i = 0; i < n; i++) {
        bytes += l[i].bytes;
        compute += (double)l[i].compute_ns;
        in_group++;
        if (i < n - 1 && !(cuts >> i & 1))
            continue;
        if (max_bytes && bytes > max_bytes && in_group > 1)
            return -1;
        link += c->alpha_ns + (double)bytes / c->bytes_per_ns;
        device = computing_beside(link > device ? link : device, c->sigma_ns + compute,
                                  all / c->bytes_per_ns, c->lost_ns_per_byte * c->bytes_per_ns);
        bytes = 0, compute = 0, in_group = 0, groups++;
    }
    return groups <= max_groups ? device : -1;
}

static void check_shape(const struct sy_plan_layer *l, int n, const struct sy_plan *p)
{
    int layer = 0;
    uint64_t offset = 0;
    for (int g = 0; g < p->n_groups; g++) {
        assert_int_equal(p->groups[g].first_layer, layer);
        assert_true(p->groups[g].n_layers > 0);
        assert_int_equal(p->groups[g].offset_bytes, offset);
        uint64_t bytes = 0;
        for (int i = 0; i < p->groups[g].n_layers; i++)
            bytes += l[layer++].bytes;
        assert_int_equal(p->groups[g].bytes, bytes);
        offset += bytes;
    }
    assert_int_equal(layer, n);
}

static void equals_brute_force(void **state)
{
    (void)state;
    for (int round = 0; round < 1000; round++) {
        struct sy_plan_layer l[11];
        int n = 1 + (int)below(11), max_groups = 1 + (int)below(12);
        uint64_t scale = below(3) ? 100000 : 1000;
        for (int i = 0; i < n; i++)
            l[i] = (struct sy_plan_layer){below(3) ? below(scale) : 0, below(4) ? below(20000) : 0};
        struct sy_link_cost c = {(double)below(10000) * (double)below(2), 1 + (double)below(20),
                                 (double)below(5000) * (double)below(2),
                                 .lost_ns_per_byte = below(2) ? 0 : (double)below(80) / 2000};
        uint64_t limit = below(2) ? 1 + below(2 * scale) : 0;
        double best = INFINITY;
        for (unsigned cuts = 0; cuts < 1u << (n - 1); cuts++) {
            double end = end_of_cuts(l, n, cuts, &c, max_groups, limit);
            if (end >= 0 && end < best)
                best = end;
        }
        struct sy_plan p, again;
        int status = sy_plan_make(l, n, &c, max_groups, limit, &p);
        if (isinf(best)) {
            assert_int_equal(status, SY_ETOOBIG);
            continue;
        }
        assert_int_equal(status, SY_OK);
        check_shape(l, n, &p);
        unsigned cuts = 0;
        for (int g = 1; g < p.n_groups; g++)
            cuts |= 1u << (p.groups[g].first_layer - 1);
        /* The plan itself keeps to the limits and costs what the best costs. */
        double cost = end_of_cuts(l, n, cuts, &c, max_groups, limit);
        assert_true(cost >= 0 && fabs(cost - best) < 1e-3);
        assert_true(fabs((double)p.predicted_ns - best) <= 0.501);
        assert_int_equal(p.predicted_ns, sy_plan_simulate(l, p.groups, p.n_groups, &c, NULL));
        assert_true(p.bound_ns <= p.predicted_ns);
        assert_int_equal(sy_plan_make(l, n, &c, max_groups, limit, &again), SY_OK);
        assert_memory_equal(&p, &again, sizeof(p));
    }
}

static void edges(void **state)
{
    (void)state;
    struct sy_link_cost c = {10, 2, 5, 0};
    struct sy_plan p;
    struct sy_plan_layer one = {100, 7};
    assert_int_equal(sy_plan_make(&one, 1, &c, 64, 1, &p),
                     SY_OK); /* larger than the limit: alone */
    assert_int_equal(p.predicted_ns, 10 + 50 + 5 + 7);
    assert_int_equal(p.bound_ns, 57);
    struct sy_plan_layer no_bytes[3] = {{0, 1}, {0, 2}, {0, 3}};
    assert_int_equal(sy_plan_make(no_bytes, 3, &c, 64, 0, &p), SY_OK);
    assert_int_equal(p.n_groups, 1);
    assert_int_equal(p.predicted_ns, 21);
    struct sy_plan_layer no_compute[3] = {{10, 0}, {20, 0}, {30, 0}};
    assert_int_equal(sy_plan_make(no_compute, 3, &c, 64, 0, &p), SY_OK);
    assert_int_equal(p.n_groups, 1); /* nothing to hide a copy behind */
    assert_int_equal(p.predicted_ns, 45);
    assert_int_equal(sy_plan_make(&one, 0, &c, 64, 0, &p), SY_EARG);
    assert_int_equal(sy_plan_make(&one, 1, &c, 65, 0, &p), SY_EARG);
    c.bytes_per_ns = 0;
    assert_int_equal(sy_plan_make(&one, 1, &c, 64, 0, &p), SY_EARG);
}

static void per_layer_and_spans(void **state)
{
    (void)state;
    struct sy_plan_layer l[5] = {{0, 1}, {10, 2}, {0, 3}, {20, 4}, {0, 5}};
    struct sy_link_cost c = {1, 1, 2, 0};
    struct sy_group *g;
    int n;
    assert_int_equal(sy_plan_per_layer(l, 5, &g, &n), SY_OK);
    assert_int_equal(n, 2);
    assert_int_equal(g[0].n_layers, 3);
    assert_int_equal(g[1].first_layer, 3);
    assert_int_equal(g[1].offset_bytes, 10);
    uint64_t spans[8], expect[8] = {0, 11, 11, 19, 11, 32, 32, 43};
    assert_int_equal(sy_plan_simulate(l, g, n, &c, spans), 43);
    assert_memory_equal(spans, expect, sizeof(spans));
    free(g);
}

int main(void)
{
    seed = seed_of_run(1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_brute_force),
        cmocka_unit_test(edges),
        cmocka_unit_test(per_layer_and_spans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
