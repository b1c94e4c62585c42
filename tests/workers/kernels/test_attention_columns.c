/* The host's attention leaves out the columns that a causal mask takes from a block of rows: the result is that of all columns, also of what is
 * not finite there, and its bits are the same with any number of threads and heads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <omp.h>

#include "runtime/base/assert.h"
#include "tests/rigs/engine_rig.h"
#include "workers/host/rows/attention.h"

enum { HEADS = 2, BATCH = 4, DEPTH = 8, WIDTH = 9, MOST = 300, Q, K, V, N_OPERANDS };

static uint64_t seed;

/* Operands in float32, and what of them is run as bf16. */
struct data {
    float x[N_OPERANDS][BATCH * HEADS * MOST * WIDTH], y[BATCH * HEADS * MOST * WIDTH];
    uint16_t narrow[N_OPERANDS][BATCH * HEADS * MOST * WIDTH],
        narrow_y[BATCH * HEADS * MOST * WIDTH];
    uint8_t mask[MOST * MOST];
};

static uint16_t top_half(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float of_top_half(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Numbers of so few bits that bf16 has them. */
static void fill(struct data *d)
{
    for (int m = Q; m < N_OPERANDS; m++)
        for (int64_t i = 0; i < BATCH * HEADS * MOST * WIDTH; i++)
            d->x[m][i] = (float)rig_int(&seed, -120, 120) / 64;
}

static void make_narrow(struct data *d)
{
    for (int m = Q; m < N_OPERANDS; m++)
        for (int64_t i = 0; i < BATCH * HEADS * MOST * WIDTH; i++)
            d->narrow[m][i] = top_half(d->x[m][i]);
}

static void fill_mask(const struct sy_attention *a, struct data *d)
{
    for (int64_t k = 0; k < a->rows * a->columns; k++)
        d->mask[k] =
            (k % a->columns < k / a->columns + a->causal[0]) == (a->kinds[0] == SY_MASK_KEEP);
}

/* n: as sy_attention.causal. */
static struct sy_attention describe(int64_t rows, int64_t n, bool transposed)
{
    int64_t columns = rows + n - 1;
    return (struct sy_attention){
        .n_threads = 2,
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
    const struct sy_attention_view *views[] = {[Q] = &a->q, [K] = &a->k, [V] = &a->v};
    const void *at[N_OPERANDS];
    for (int m = Q; m < N_OPERANDS; m++)
        at[m] = views[m]->narrow ? (const void *)d->narrow[m] : d->x[m];
    struct sy_attention_data data = {
        .q = at[Q], .k = at[K], .v = at[V], .masks = {d->mask}, .y = d->y};
    data.y = a->y.narrow ? (void *)d->narrow_y : d->y;
    omp_set_num_threads(a->n_threads); /* as the engine does: the math library's */
    data.scratch = malloc((size_t)sy_attention_scratch(a) + 64);
    assert_int_equal(sy_attention_run(a, &data), 0);
    free(data.scratch);
    for (int64_t i = 0; i < a->head_dims[0] * a->rows * WIDTH && a->y.narrow; i++)
        d->y[i] = of_top_half(d->narrow_y[i]);
}

static void check(const struct sy_attention *a, const struct data *cut, const struct data *all)
{
    for (int64_t i = 0; i < HEADS * a->rows * WIDTH; i++) {
        float got = cut->y[i], want = all->y[i],
              error = a->y.narrow ? fabsf(want) / 100 + 1e-5f : 1e-5f;
        if (isnan(want) ? !isnan(got) : got != want && !(fabsf(got - want) <= error))
            fail_msg("%lld rows, %lld columns, row %lld: %g, not %g", (long long)a->rows,
                     (long long)a->columns, (long long)(i / WIDTH), (double)got, (double)want);
    }
}

/* Without a causal mask the engine reads the mask, and computes what it takes. */
static void test_columns_that_a_causal_mask_takes(void **state)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 1e30f}, fills[] = {-INFINITY, -1e4f, 1};
    struct data *cut = calloc(1, sizeof *cut), *all = calloc(1, sizeof *all);
    (void)state;
    for (int i = 0; i < 60; i++) {
        struct sy_attention a =
            describe(rig_int(&seed, 2, 250), rig_int(&seed, 1, i % 4 ? 2 : 50), i % 2);
        a.kinds[0] = rig_int(&seed, 0, 1) ? SY_MASK_KEEP : SY_MASK_DROP;
        int64_t which = rig_int(&seed, -2, 2);
        a.fills[0] = fills[SY_MAX(which, 0)];
        a.zero_nan = rig_int(&seed, 0, 1);
        a.q.narrow = rig_int(&seed, 0, 2) == 0;
        a.k.narrow = rig_int(&seed, 0, 2) == 0;
        a.v.narrow = rig_int(&seed, 0, 2) == 0;
        a.y.narrow = rig_int(&seed, 0, 3) == 0;
        fill(cut);
        if (i % 3) {
            int m = (int)rig_int(&seed, Q, V);
            int64_t each = m == Q ? a.rows * DEPTH : a.columns * (m == K ? DEPTH : WIDTH);
            cut->x[m][rig_int(&seed, 0, HEADS * each - 1)] = odd[rig_int(&seed, 0, m == V ? 2 : 3)];
        }
        make_narrow(cut);
        fill_mask(&a, cut);
        *all = *cut;
        run(&a, cut);
        a.causal[0] = 0;
        run(&a, all);
        check(&a, cut, all);
    }
    free(cut);
    free(all);
}

/* Neither more threads nor fewer heads. */
static void test_bits_of_any_blocks(void **state)
{
    struct data *one = calloc(1, sizeof *one), *other = calloc(1, sizeof *other);
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct sy_attention a =
            describe(rig_int(&seed, 2, 250), rig_int(&seed, 1, i % 3 ? 2 : 50), i % 2);
        size_t bytes = (size_t)(HEADS * a.rows * WIDTH) * sizeof(float);
        fill(one);
        if (i % 4 == 3)
            one->x[V][rig_int(&seed, 0, HEADS * a.columns * WIDTH - 1)] = NAN;
        fill_mask(&a, one);
        a.n_threads = 1;
        a.head_dims[0] = BATCH * HEADS;
        run(&a, one);
        for (int threads = 1; threads < 9; threads++) {
            *other = *one;
            memset(other->y, 0, sizeof other->y);
            a.n_threads = threads;
            a.head_dims[0] = threads % 2 ? HEADS : BATCH * HEADS;
            run(&a, other);
            if (memcmp(one->y, other->y, bytes) != 0)
                fail_msg("%lld rows, %lld columns: %d threads and %lld heads give other bits",
                         (long long)a.rows, (long long)a.columns, threads,
                         (long long)a.head_dims[0]);
        }
    }
    free(one);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns_that_a_causal_mask_takes),
        cmocka_unit_test(test_bits_of_any_blocks),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
