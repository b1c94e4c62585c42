/* The host's attention leaves out the columns that a causal mask takes from a block of rows: the result is that of all columns, also of what is
 * not finite there. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/rigs/engine_rig.h"
#include "workers/host/rows/attention.h"

enum { HEADS = 2, DEPTH = 8, WIDTH = 9, THREADS = 2, MOST = 300 };

static uint64_t seed;

struct data {
    float q[HEADS * MOST * DEPTH], k[HEADS * MOST * DEPTH], v[HEADS * MOST * WIDTH],
        y[HEADS * MOST * WIDTH];
    uint8_t mask[MOST * MOST];
};

static void fill(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)rig_int(&seed, -1000, 1000) / 500;
}

/* n: as sy_attention.causal. */
static struct sy_attention describe(int64_t rows, int64_t n, bool transposed)
{
    int64_t columns = rows + n - 1;
    return (struct sy_attention){
        .n_threads = THREADS,
        .head_rank = 1,
        .head_dims = {HEADS},
        .rows = rows,
        .depth = DEPTH,
        .columns = columns,
        .width = WIDTH,
        .scale = 0.3f,
        .q = {.heads = {rows * DEPTH}, .row = DEPTH, .column = 1},
        .k = {.heads = {columns * DEPTH}, .row = 1, .column = DEPTH},
        .v = {.heads = {columns * WIDTH},
              .row = transposed ? 1 : WIDTH,
              .column = transposed ? columns : 1},
        .y = {.heads = {rows * WIDTH}, .row = WIDTH, .column = 1},
        .n_masks = 1,
        .kinds = {SY_MASK_KEEP},
        .fills = {-INFINITY},
        .causal = {n},
        .masks = {{.row = columns, .column = 1}},
    };
}

static void run(const struct sy_attention *a, struct data *d)
{
    struct sy_attention_data at = {.q = d->q, .k = d->k, .v = d->v, .masks = {d->mask}, .y = d->y};
    at.scratch = malloc((size_t)sy_attention_scratch(a) + 64);
    assert_int_equal(sy_attention_run(a, &at), 0);
    free(at.scratch);
}

static void check(const struct sy_attention *a, const struct data *cut, const struct data *all)
{
    for (int64_t i = 0; i < HEADS * a->rows * WIDTH; i++) {
        float got = cut->y[i], want = all->y[i];
        if (isnan(want) ? !isnan(got) : got != want && !(fabsf(got - want) <= 1e-5f))
            fail_msg("%lld rows, %lld columns, row %lld: %g, not %g", (long long)a->rows,
                     (long long)a->columns, (long long)(i / WIDTH), (double)got, (double)want);
    }
}

static void test_columns_that_a_causal_mask_takes(void **state)
{
    static const float odd[] = {0, NAN, INFINITY};
    struct data *cut = calloc(1, sizeof *cut), *all = calloc(1, sizeof *all);
    (void)state;
    for (int i = 0; i < 18; i++) {
        struct sy_attention a =
            describe(rig_int(&seed, 2, 250), rig_int(&seed, 1, i % 4 ? 2 : 50), i % 2);
        fill(cut->q, HEADS * MOST * DEPTH);
        fill(cut->k, HEADS * MOST * DEPTH);
        fill(cut->v, HEADS * MOST * WIDTH);
        if (i % 3)
            cut->v[rig_int(&seed, 0, HEADS * a.columns * WIDTH - 1)] = odd[i % 3];
        for (int64_t k = 0; k < a.rows * a.columns; k++)
            cut->mask[k] = k % a.columns < k / a.columns + a.causal[0];
        *all = *cut;
        run(&a, cut);
        a.causal[0] = 0;
        run(&a, all);
        check(&a, cut, all);
    }
    free(cut);
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_columns_that_a_causal_mask_takes)};
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
