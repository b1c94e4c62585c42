/* The planner's answers about heads and direct reads, against brute force. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/plan/free_prefix.h"
#include "loader/plan/head_budget.h"
#include "loader/storage/direct_read.h"
#include "runtime/base/status.h"
#include "tests/rigs/computing_beside.h"
#include "tests/rigs/seed.h"

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    return seed_below(&seed, n);
}

static struct sy_link_cost random_link(void)
{
    return (struct sy_link_cost){(double)below(10000) * (double)below(2), 1 + (double)below(20),
                                 (double)below(5000) * (double)below(2),
                                 .lost_ns_per_byte = below(2) ? 0 : (double)below(90) / 2000};
}

static void random_groups(struct sy_run_group *g, int n)
{
    for (int i = 0; i < n; i++)
        g[i] = (struct sy_run_group){below(4) ? below(200000) : 0, below(5) ? below(30000) : 0, 0};
    if (below(3) == 0) { /* a table that stays in the image */
        int i = (int)below((uint64_t)n);
        g[i].bytes = 0;
        g[i].read_bytes = 1 + below(20000);
    }
}

/* Stepping through time by events, written apart from the code under test. */
static double stepped(const struct sy_run_group *g, int n, const struct sy_link_cost *c, int there)
{
    double arrived[64] = {0}, link = 0, now = 0, moving = 0;
    for (int i = 0; i < n; i++) {
        if (i >= there && g[i].bytes > 0)
            arrived[i] = link += c->alpha_ns + (double)g[i].bytes / c->bytes_per_ns;
        if (i >= there)
            moving += (double)g[i].bytes / c->bytes_per_ns;
        if (g[i].read_bytes > 0)
            link += c->alpha_ns + (double)g[i].read_bytes / c->bytes_per_ns;
    }
    for (int i = 0; i < n; i++) {
        double busy = (double)g[i].compute_ns;
        if (g[i].read_bytes > 0)
            busy += c->alpha_ns + (double)g[i].read_bytes / c->bytes_per_ns;
        if (i >= there && g[i].bytes > 0) {
            now = arrived[i] > now ? arrived[i] : now;
            busy += c->sigma_ns;
        }
        now = computing_beside(now, busy, moving, c->lost_ns_per_byte * c->bytes_per_ns);
    }
    return now;
}

static void free_prefix_is_the_shortest(void **state)
{
    (void)state;
    for (int round = 0; round < 5000; round++) {
        struct sy_run_group g[12];
        int n = 1 + (int)below(12), shortest = n;
        struct sy_link_cost c = random_link();
        random_groups(g, n);
        uint64_t slack = below(3) ? below(20000) : 0, pure = 0;
        for (int i = 0; i < n; i++)
            pure += g[i].compute_ns;
        struct sy_link_cost slower = c;
        slower.bytes_per_ns *= SY_LINK_CARE;
        uint64_t least = sy_swap_predict(g, n, &slower, n);
        uint64_t limit = pure + slack > least + slack / 4 ? pure + slack : least + slack / 4;
        for (int k = n; k >= 0; k--) {
            uint64_t end = sy_swap_predict(g, n, &c, k);
            assert_true(fabs((double)end - stepped(g, n, &c, k)) <= 0.501);
            assert_true(k == n || end >= sy_swap_predict(g, n, &c, k + 1));
            if (sy_swap_predict(g, n, &slower, k) <= limit)
                shortest = k;
        }
        uint64_t bytes = sy_prefix_bytes(g, shortest);
        int k = sy_free_prefix(g, n, &c, slack);
        assert_true(sy_swap_predict(g, n, &slower, k) <= limit);
        assert_int_equal(sy_prefix_bytes(g, k), bytes);
        assert_true(k <= shortest && (k == 0 || g[k - 1].bytes > 0));
    }
}

/* Rows of a table that take longer than the slack make no group of what is hidden well worth its room. */
static void a_read_table_does_not_fill_the_pool(void **state)
{
    enum { N = 25 };
    struct sy_run_group g[N];
    struct sy_link_cost c = {.alpha_ns = 1000, .bytes_per_ns = 1, .sigma_ns = 100};
    (void)state;
    for (int i = 0; i < N; i++)
        g[i] = (struct sy_run_group){.bytes = 1000000, .compute_ns = 4000000};
    uint64_t slack = sy_free_prefix_slack(g, N);
    int without = sy_free_prefix(g, N, &c, slack);
    g[0] = (struct sy_run_group){.compute_ns = 4000000, .read_bytes = 2 * slack};
    assert_in_range(sy_free_prefix(g, N, &c, slack), 0, without + 1);
    assert_in_range(without, 1, 2);
}

/* ---- budget ------------------------------------------------------------------------------------------ */

#define MODELS 4
#define GROUPS 4

struct curves {
    struct sy_head_curve model[MODELS];
    uint64_t bytes[MODELS][GROUPS + 1];
    double saved[MODELS][GROUPS + 1];
    int n;
};

static void random_curves(struct curves *c)
{
    memset(c, 0, sizeof *c);
    c->n = 1 + (int)below(MODELS);
    for (int i = 0; i < c->n; i++) {
        int n = (int)below(GROUPS + 1);
        for (int k = 1; k <= n; k++) {
            c->bytes[i][k] = c->bytes[i][k - 1] + (below(5) ? 1 + below(50) : 0);
            c->saved[i][k] = c->saved[i][k - 1] + (double)(below(3) ? below(100) : 0);
        }
        c->model[i] = (struct sy_head_curve){
            .rate = (double)below(10) / 4, .n = n, .bytes = c->bytes[i], .saved_ns = c->saved[i]};
    }
}

static double value_of(const struct curves *c, const int *heads, uint64_t *bytes)
{
    double value = 0;
    *bytes = 0;
    for (int i = 0; i < c->n; i++) {
        value += c->model[i].rate * c->saved[i][heads[i]];
        *bytes += c->bytes[i][heads[i]];
    }
    return value;
}

static double best_value(const struct curves *c, uint64_t room)
{
    double best = 0;
    int heads[MODELS] = {0};
    for (;;) {
        uint64_t bytes;
        double value = value_of(c, heads, &bytes);
        if (bytes <= room && value > best)
            best = value;
        int i = 0;
        while (i < c->n && heads[i] == c->model[i].n)
            heads[i++] = 0;
        if (i == c->n)
            return best;
        heads[i]++;
    }
}

static void budget_is_best_but_for_a_step(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        struct curves c;
        int heads[MODELS];
        double worth[MODELS], largest = 0;
        uint64_t room = below(3) ? below(300) : 100000, bytes;
        random_curves(&c);
        sy_head_budget(c.model, c.n, room, heads, worth);
        double value = value_of(&c, heads, &bytes), best = best_value(&c, room);
        assert_true(bytes <= room);
        for (int i = 0; i < c.n; i++) {
            assert_in_range(heads[i], 0, c.model[i].n);
            assert_true(worth[i] >= 0);
            double all = c.model[i].rate * c.saved[i][c.model[i].n];
            largest = all > largest ? all : largest;
        }
        assert_true(value >= best - largest - 1e-9);
        if (room == 100000) /* all of it fits */
            assert_true(fabs(value - best) < 1e-9);
    }
}

/* With steps of one size, all of which are on the hull, there is no step that does not fit: the best outright. */
static void budget_of_even_steps_is_the_best(void **state)
{
    (void)state;
    for (int round = 0; round < 5000; round++) {
        struct curves c;
        int heads[MODELS];
        double worth[MODELS];
        uint64_t bytes;
        memset(&c, 0, sizeof c);
        c.n = 1 + (int)below(MODELS);
        for (int i = 0; i < c.n; i++) {
            double step = 100;
            for (int k = 1; k <= GROUPS; k++) {
                step = (double)below((uint64_t)step + 1);
                c.bytes[i][k] = 10u * (unsigned)k;
                c.saved[i][k] = c.saved[i][k - 1] + step;
            }
            c.model[i] =
                (struct sy_head_curve){1 + (double)below(4), GROUPS, c.bytes[i], c.saved[i]};
        }
        uint64_t room = 10 * below(18);
        sy_head_budget(c.model, c.n, room, heads, worth);
        assert_true(fabs(value_of(&c, heads, &bytes) - best_value(&c, room)) < 1e-9);
    }
}

/* ---- direct reads -------------------------------------------------------------------------------------- */

static void check_cover(const struct sy_direct_plan *p, const struct sy_plan_layer *l,
                        const uint64_t *read, int n)
{
    int layer = 0, n_direct = 0;
    uint64_t offset = 0;
    for (int g = 0; g < p->n_groups; g++) {
        assert_int_equal(p->groups[g].first_layer, layer);
        assert_int_equal(p->groups[g].offset_bytes, offset);
        uint64_t bytes = 0;
        for (int i = 0; i < p->groups[g].n_layers; i++)
            bytes += l[layer++].bytes;
        assert_int_equal(p->groups[g].bytes, bytes);
        offset += bytes;
        if (!p->groups[g].direct)
            continue;
        n_direct++;
        assert_int_equal(p->groups[g].n_layers, 1);
        assert_true(read[layer - 1] > 0 && read[layer - 1] < l[layer - 1].bytes);
    }
    assert_int_equal(layer, n);
    assert_int_equal(n_direct, p->n_direct);
}

static void direct_reads_never_make_it_slower(void **state)
{
    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct sy_plan_layer l[10];
        uint64_t read[10];
        int n = 1 + (int)below(10);
        for (int i = 0; i < n; i++) {
            l[i] = (struct sy_plan_layer){below(3) ? below(100000) : 0, below(20000)};
            read[i] = below(3) ? 0 : 1 + below(20000);
        }
        struct sy_link_cost c = random_link();
        struct sy_direct_plan p;
        assert_int_equal(sy_direct_plan_make(l, read, n, &c, 8, 0, &p), SY_OK);
        check_cover(&p, l, read, n);
        /* The cut beside a direct layer may add a copy. It is the slower link for which it is no slower; no time is longer there than by its rate. */
        double cuts = (double)p.n_direct * (c.alpha_ns + c.sigma_ns) * 2;
        assert_true((double)p.predicted_ns <= ((double)p.copied_ns + cuts) / SY_LINK_CARE + 1);
        free(p.groups);
    }
}

/* ---- plans for a link that may be slower ------------------------------------------------------------------ */

/* The end of all cuts' best on a link, and that of the cut that was planned. */
static void ends_of_cuts(const struct sy_plan_layer *l, int n, const struct sy_link_cost *c,
                         const struct sy_direct_plan *p, uint64_t *best, uint64_t *planned)
{
    *best = UINT64_MAX;
    *planned = sy_plan_simulate(l, p->groups, p->n_groups, c, NULL);
    for (unsigned cuts = 0; cuts < 1u << (n - 1); cuts++) {
        struct sy_group g[10] = {{0}};
        int last = 0;
        g[0].n_layers = 1;
        for (int i = 1; i < n; i++) {
            if (cuts >> (i - 1) & 1)
                g[++last].first_layer = i;
            g[last].n_layers++;
        }
        uint64_t end = sy_plan_simulate(l, g, last + 1, c, NULL);
        *best = end < *best ? end : *best;
    }
}

static void plans_are_the_best_for_a_slower_link(void **state)
{
    (void)state;
    for (int round = 0; round < 500; round++) {
        struct sy_plan_layer l[9];
        uint64_t none[9] = {0}, best, planned;
        int n = 1 + (int)below(9);
        for (int i = 0; i < n; i++)
            l[i] = (struct sy_plan_layer){below(3) ? below(100000) : 0, below(20000)};
        struct sy_link_cost c = random_link(), slower = c;
        slower.bytes_per_ns *= SY_LINK_CARE;
        struct sy_direct_plan p;
        assert_int_equal(sy_direct_plan_make(l, none, n, &c, 64, 0, &p), SY_OK);
        ends_of_cuts(l, n, &slower, &p, &best, &planned);
        assert_true(planned <= best + 1);
        ends_of_cuts(l, n, &c, &p, &best, &planned);
        assert_int_equal(p.predicted_ns, planned);
        assert_true((double)planned <= (double)best / SY_LINK_CARE + 1);
        free(p.groups);
    }
}

/* Groups that come at the last moment: on the link as measured nothing is lost by them, a little slower all that is waited for. */
static void a_late_copy_stops_nothing(void **state)
{
    enum { N = 40 };
    struct sy_plan_layer l[N];
    uint64_t none[N] = {0};
    struct sy_link_cost c = {.alpha_ns = 8000, .bytes_per_ns = 0.2, .sigma_ns = 60000}, late = c;
    struct sy_direct_plan p;
    struct sy_plan tight;
    (void)state;
    for (int i = 0; i < N; i++)
        l[i] = (struct sy_plan_layer){i < 2 ? 20000 : 600000 * (1 + (uint64_t)i / 8), 20000000};
    late.bytes_per_ns *= 0.9;
    assert_int_equal(sy_plan_make(l, N, &c, 64, 0, &tight), SY_OK);
    assert_int_equal(sy_direct_plan_make(l, none, N, &c, 64, 0, &p), SY_OK);
    uint64_t lost = sy_plan_simulate(l, p.groups, p.n_groups, &late, NULL) - p.predicted_ns;
    uint64_t tight_lost =
        sy_plan_simulate(l, tight.groups, tight.n_groups, &late, NULL) - tight.predicted_ns;
    assert_true(lost < 200000); /* the first layer's copy */
    assert_true(tight_lost > 10 * lost);
    assert_true((double)p.predicted_ns < 1.001 * (double)tight.predicted_ns);
    free(p.groups);
}

static void groups_are_of_a_size_for_the_pool(void **state)
{
    enum { N = 200 };
    static struct sy_plan_layer l[N];
    static uint64_t none[N];
    struct sy_link_cost c = {.alpha_ns = 10000, .bytes_per_ns = 10, .sigma_ns = 5000};
    struct sy_direct_plan p;
    (void)state;
    for (int i = 0; i < N; i++)
        l[i] = (struct sy_plan_layer){1 << 20, 50000};
    /* 15 MB are copied in a hundred times what a group costs; a sixteenth of 100 MB is less, a 32nd of the model's 210 MB more than that. */
    const struct {
        uint64_t pool, most;
    } cases[] = {{UINT64_MAX, 15000000}, {100ull << 20, 6553600}, {3ull << 20, 6553600}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(sy_direct_plan_for_pool(l, none, N, &c, cases[i].pool, &p), SY_OK);
        check_cover(&p, l, none, N);
        for (int g = 0; g < p.n_groups; g++)
            assert_true(p.groups[g].bytes <= cases[i].most);
        assert_true(p.n_groups >= 210000000.0 / (double)cases[i].most);
        free(p.groups);
    }
    /* Every other layer is larger than the limit, and stands alone: too many for the limit. */
    for (int i = 0; i < N; i++)
        l[i].bytes = i % 2 ? 8 << 20 : 64 << 10;
    assert_int_equal(sy_direct_plan_for_pool(l, none, N, &c, 64ull << 20, &p), SY_OK);
    check_cover(&p, l, none, N);
    assert_in_range(p.n_groups, 1, SY_MAX_GROUPS);
    free(p.groups);
}

static void table_in_front_is_read_directly(void **state)
{
    (void)state;
    struct sy_plan_layer l[4] = {
        {90000000, 100000}, {10000000, 20000000}, {10000000, 20000000}, {10000000, 20000000}};
    uint64_t read[4] = {400000, 0, 0, 0};
    struct sy_link_cost c = {10000, 1, 5000, 0};
    struct sy_direct_plan p;
    assert_int_equal(sy_direct_plan_make(l, read, 4, &c, 64, 0, &p), SY_OK);
    assert_int_equal(p.n_direct, 1);
    assert_true(p.groups[0].direct);
    assert_true(p.predicted_ns < 72000000 && p.copied_ns > 150000000);
    free(p.groups);
    read[0] = 89999999; /* hardly less than all of it */
    assert_int_equal(sy_direct_plan_make(l, read, 4, &c, 64, 0, &p), SY_OK);
    assert_int_equal(p.n_direct, 0);
    assert_int_equal(p.predicted_ns, p.copied_ns);
    free(p.groups);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_prefix_is_the_shortest),
        cmocka_unit_test(a_read_table_does_not_fill_the_pool),
        cmocka_unit_test(budget_is_best_but_for_a_step),
        cmocka_unit_test(budget_of_even_steps_is_the_best),
        cmocka_unit_test(direct_reads_never_make_it_slower),
        cmocka_unit_test(table_in_front_is_read_directly),
        cmocka_unit_test(plans_are_the_best_for_a_slower_link),
        cmocka_unit_test(a_late_copy_stops_nothing),
        cmocka_unit_test(groups_are_of_a_size_for_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
