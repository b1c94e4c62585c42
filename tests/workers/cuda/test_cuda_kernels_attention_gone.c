/* The CUDA kernels of attention, run on the CPU, where a mask leaves nothing of whole tiles and something else still reaches the result: by
 * closed form, in numbers that every type has. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/on_cpu/kernel_rig.h"
#include "workers/cuda/kernels/kernels.h"
#include "workers/cuda/kernels/kernels_train_ops.h"

/* The first columns are there for each row, as many as a tile has at most; the others are masked, HIDDEN is the one that counts. */
enum { COLUMNS = 200, VISIBLE = 64, HIDDEN = 150, DEPTH = 4, WIDTH = 3 };

struct gone_case {
    struct sy_math_attention attention;
    bool tf32;
    struct kernel_tensor *q, *k, *v, *mask, *second, *y, *stats;
};

static int launch(void *arg)
{
    struct gone_case *c = arg;
    const void *masks[SY_ATTENTION_MASKS] = {c->mask->device, KERNEL_AT(c->second)};
    return sy_kernel_attention(kernel_stream, &c->attention, c->tf32, c->q->device, c->k->device,
                               c->v->device, masks, c->y->device, KERNEL_AT(c->stats));
}

static void fill(struct kernel_tensor *t, double number)
{
    for (int64_t i = 0; i < t->n; i++)
        kernel_put(t, i, number);
}

/* Scores are 0; column i of v is i, i + 1, i + 2; `gone` is added to what is masked. */
static struct gone_case make_case(int which, int64_t rows, double gone)
{
    static const enum sy_dtype types[] = {SY_DTYPE_F32, SY_DTYPE_F32, SY_DTYPE_BF16, SY_DTYPE_F16};
    struct sy_attention of = {.rows = rows,
                              .columns = COLUMNS,
                              .depth = DEPTH,
                              .width = WIDTH,
                              .scale = 1,
                              .q = {.row = DEPTH, .column = 1},
                              .k = {.row = 1, .column = DEPTH},
                              .v = {.row = WIDTH, .column = 1},
                              .y = {.row = WIDTH, .column = 1},
                              .n_masks = 1,
                              .masks = {{.row = COLUMNS, .column = 1}},
                              .kinds = {SY_MASK_ADD}};
    struct gone_case c = {.attention = {.type = types[which], .y_type = SY_DTYPE_F32, .of = of},
                          .tf32 = which == 1,
                          .q = kernel_tensor(types[which], rows * DEPTH),
                          .k = kernel_tensor(types[which], (int64_t)COLUMNS * DEPTH),
                          .v = kernel_tensor(types[which], (int64_t)COLUMNS * WIDTH),
                          .mask = kernel_tensor(SY_DTYPE_F32, rows * COLUMNS),
                          .y = kernel_tensor(SY_DTYPE_F32, rows * WIDTH)};
    fill(c.q, 0);
    fill(c.k, 0);
    for (int64_t i = 0; i < c.v->n; i++)
        kernel_put(c.v, i, (double)(i / WIDTH + i % WIDTH));
    for (int64_t i = 0; i < c.mask->n; i++)
        kernel_put(c.mask, i, i % COLUMNS < VISIBLE ? 0 : gone);
    return c;
}

static void expect(const struct gone_case *c, int64_t row, int64_t w, double want)
{
    double got = kernel_get(c->y, row * WIDTH + w);
    if (isnan(want) ? !isnan(got) : !(fabs(got - want) < 1e-3))
        fail_msg("row %lld of %lld, %lld: %g, not %g", (long long)row,
                 (long long)c->attention.of.rows, (long long)w, got, want);
}

/* What is masked is multiplied by 0, and a 0 times no number is none. */
static void test_values_that_are_not_finite(void **state)
{
    static const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (int i = 0; i < 24; i++) {
        struct gone_case c = make_case(i % 4, i / 4 % 2 ? 4 : 40, -(double)INFINITY);
        kernel_put(c.v, (int64_t)HIDDEN * WIDTH + 1, odd[i / 8]);
        kernel_run(launch, &c);
        for (int64_t row = 0; row < c.attention.of.rows; row++) {
            expect(&c, row, 0, (VISIBLE - 1) / 2.0);
            expect(&c, row, 1, (double)NAN);
            expect(&c, row, 2, (VISIBLE - 1) / 2.0 + 2);
        }
        kernel_end(state);
    }
}

/* A row of which the mask takes all alike has all columns alike, by a finite number. */
static void test_a_row_without_a_score(void **state)
{
    for (int i = 0; i < 8; i++) {
        struct gone_case c = make_case(i % 4, i / 4 ? 4 : 40, -3.4028234663852886e38);
        int64_t dead = c.attention.of.rows - 2;
        for (int64_t k = 0; k < VISIBLE; k++)
            kernel_put(c.mask, dead * COLUMNS + k, -3.4028234663852886e38);
        kernel_run(launch, &c);
        for (int64_t row = 0; row < c.attention.of.rows; row++)
            expect(&c, row, 0, ((row == dead ? COLUMNS : VISIBLE) - 1) / 2.0);
        kernel_end(state);
    }
}

/* A score so large that the mask only takes it back to 0, where all that is not masked is far below: by k, by q, by the scale. */
static void test_scores_that_undo_a_mask(void **state)
{
    static const struct {
        int q, k, scale; /* powers of two, 127 together: what the mask takes */
    } ways[] = {{39, 88, 0}, {88, 39, 0}, {39, 28, 60}};
    for (int i = 0; i < 18; i++) { /* float16 has no such numbers */
        int way = i % 3;
        struct gone_case c = make_case(i / 3 % 3, i / 9 ? 4 : 40, -ldexp(1, 127));
        c.attention.of.scale = ldexpf(1, ways[way].scale);
        for (int64_t row = 0; row < c.attention.of.rows; row++)
            kernel_put(c.q, row * DEPTH, ldexp(1, ways[way].q));
        for (int64_t k = 0; k < VISIBLE; k++)
            kernel_put(c.k, k * DEPTH, -1);
        kernel_put(c.k, (int64_t)HIDDEN * DEPTH, ldexp(1, ways[way].k));
        kernel_run(launch, &c);
        for (int64_t row = 0; row < c.attention.of.rows; row++)
            expect(&c, row, 2, HIDDEN + 2);
        kernel_end(state);
    }
}

/* One column of a tile: a mask that is no number there, or one that writes a large number over what the first one took. */
static void test_one_column_that_is_there(void **state)
{
    for (int i = 0; i < 16; i++) {
        struct gone_case c = make_case(i % 4, i / 4 % 2 ? 4 : 40, -(double)INFINITY);
        struct sy_attention *a = &c.attention.of;
        bool writes = i / 8;
        if (writes) {
            c.second = kernel_tensor(SY_DTYPE_BOOL, COLUMNS);
            fill(c.second, 0);
            kernel_put(c.second, HIDDEN, 1);
            a->masks[a->n_masks] = (struct sy_attention_view){.row = 0, .column = 1};
            a->kinds[a->n_masks] = SY_MASK_DROP;
            a->fills[a->n_masks++] = 200;
        }
        for (int64_t row = 0; !writes && row < a->rows; row++)
            kernel_put(c.mask, row * COLUMNS + HIDDEN, (double)NAN);
        kernel_run(launch, &c);
        for (int64_t row = 0; row < a->rows; row++)
            expect(&c, row, 1, writes ? HIDDEN + 1 : (double)NAN);
        kernel_end(state);
    }
}

/* ---- gradients ---- */

struct back_case {
    struct gone_case forward;
    struct sy_math_attention_back back;
    struct kernel_tensor *dy, *delta, *dq, *dk, *dv;
};

static int launch_back(void *arg)
{
    struct back_case *b = arg;
    struct sy_math_attention_at at = {.q = b->forward.q->device,
                                      .k = b->forward.k->device,
                                      .v = b->forward.v->device,
                                      .masks = {b->forward.mask->device},
                                      .y = b->forward.y->device,
                                      .stats = b->forward.stats->device,
                                      .dy = b->dy->device,
                                      .delta = b->delta->device,
                                      .dq = b->dq->device,
                                      .dk = b->dk->device,
                                      .dv = b->dv->device};
    return sy_kernel_attention_gradient(kernel_stream, &b->back, b->forward.tf32, &at);
}

/* A gradient of 1 everywhere. */
static struct back_case make_back(struct gone_case forward)
{
    const struct sy_attention *a = &forward.attention.of;
    forward.stats = kernel_tensor(SY_DTYPE_F32, 2 * a->rows);
    struct back_case b = {.forward = forward,
                          .back = {.forward = forward.attention,
                                   .dq = a->q,
                                   .dk = a->k,
                                   .dv = a->v,
                                   .dq_type = SY_DTYPE_F32,
                                   .dk_type = SY_DTYPE_F32,
                                   .dv_type = SY_DTYPE_F32},
                          .dy = kernel_tensor(forward.attention.type, a->rows * WIDTH),
                          .delta = kernel_tensor(SY_DTYPE_F32, a->rows),
                          .dq = kernel_tensor(SY_DTYPE_F32, a->rows * DEPTH),
                          .dk = kernel_tensor(SY_DTYPE_F32, (int64_t)COLUMNS * DEPTH),
                          .dv = kernel_tensor(SY_DTYPE_F32, (int64_t)COLUMNS * WIDTH)};
    fill(b.dy, 1);
    return b;
}

/* Such a row gives each column of v its share, behind tiles that are empty for the other rows too. */
static void test_the_gradient_of_a_row_without_a_score(void **state)
{
    for (int i = 0; i < 6; i++) {
        struct back_case b = make_back(make_case(i % 3, i / 3 ? 4 : 40, -3.4028234663852886e38));
        int64_t rows = b.forward.attention.of.rows;
        for (int64_t k = 0; k < VISIBLE; k++)
            kernel_put(b.forward.mask, (rows - 2) * COLUMNS + k, -3.4028234663852886e38);
        kernel_run(launch, &b.forward);
        kernel_run(launch_back, &b);
        for (int64_t k = 0; k < COLUMNS; k++) {
            double want = 1.0 / COLUMNS + (k < VISIBLE ? (double)(rows - 1) / VISIBLE : 0),
                   got = kernel_get(b.dv, k * WIDTH);
            if (!(fabs(got - want) < 1e-4))
                fail_msg("column %lld: %g, not %g", (long long)k, got, want);
        }
        kernel_end(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_values_that_are_not_finite, kernel_end),
        cmocka_unit_test_teardown(test_a_row_without_a_score, kernel_end),
        cmocka_unit_test_teardown(test_scores_that_undo_a_mask, kernel_end),
        cmocka_unit_test_teardown(test_one_column_that_is_there, kernel_end),
        cmocka_unit_test_teardown(test_the_gradient_of_a_row_without_a_score, kernel_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
