/* The CUDA kernel of attention, run on the CPU, against its definition in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/on_cpu/attention_case.h"

#define MOST_COLUMNS 400
#ifdef SY_SANITIZED
#define N_SIZES  6
#define N_BEHIND 8
#else
#define N_SIZES  20
#define N_BEHIND 32 /* all */
#endif

static int launch(void *arg)
{
    struct attention_case *c = arg;
    const void *masks[SY_ATTENTION_MASKS];
    for (int m = 0; m < SY_ATTENTION_MASKS; m++)
        masks[m] = KERNEL_AT(c->masks[m]);
    return sy_kernel_attention(kernel_stream, &c->attention, c->tf32, c->q->device, c->k->device,
                               c->v->device, masks, c->y->device, KERNEL_AT(c->stats));
}

/* ---- the definition ---- */

static double score_of(const struct attention_case *c, int64_t head, int64_t row, int64_t column)
{
    const struct sy_attention *a = &c->attention.of;
    double sum = 0;
    for (int64_t i = 0; i < a->depth; i++)
        sum += kernel_get(c->q, offset_of(a, &a->q, head, row, i)) *
               kernel_get(c->k, offset_of(a, &a->k, head, i, column));
    sum *= (double)a->scale;
    for (int m = 0; m < a->n_masks; m++) {
        double mask = kernel_get(c->masks[m], offset_of(a, &a->masks[m], head, row, column));
        if (a->kinds[m] == SY_MASK_ADD) /* in float32: added to the least number a score vanishes */
            sum = (double)((float)sum + (float)mask);
        else if ((mask != 0) == (a->kinds[m] == SY_MASK_DROP))
            sum = (double)a->fills[m];
    }
    return sum;
}

static void check_row(const struct attention_case *c, int64_t head, int64_t row, double error)
{
    const struct sy_attention *a = &c->attention.of;
    double p[MOST_COLUMNS], top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < a->columns; i++) {
        p[i] = score_of(c, head, row, i);
        top = p[i] > top ? p[i] : top;
    }
    for (int64_t i = 0; i < a->columns; i++)
        sum += p[i] = exp(p[i] - top);
    for (int64_t w = 0; w < a->width; w++) {
        double want = 0, size = 0;
        for (int64_t i = 0; i < a->columns; i++) {
            double share = a->zero_nan && isnan(sum) ? 0 : p[i] / sum;
            double v = kernel_get(c->v, offset_of(a, &a->v, head, i, w));
            want += share * v;
            size += isfinite(v) ? share * fabs(v) : 0;
        }
        int64_t at = offset_of(a, &a->y, head, row, w);
        double got = kernel_get(c->y, at);
        if (isnan(want) != isnan(got) || (isnan(want) ? false : isinf(want) || isinf(got)))
            assert_true(isnan(want) ? isnan(got) : want == got);
        else if (!isnan(want) && fabs(got - want) > error * (size + 1e-3))
            fail_msg("head %lld row %lld column %lld: %.9g instead of %.9g", (long long)head,
                     (long long)row, (long long)w, got, want);
    }
}

static void check_all(struct attention_case *c)
{
    const struct sy_attention *a = &c->attention.of;
    bool is_bf16 = c->attention.type == SY_DTYPE_BF16;
    double error = is_bf16                             ? 1.0 / 120
                   : c->attention.type == SY_DTYPE_F16 ? 1.0 / 900
                   : c->tf32                           ? 1.0 / 300
                                                       : 2e-5;
    kernel_run(launch, c);
    for (int64_t head = 0; head < kernel_elements(a->head_rank, a->head_dims); head++)
        for (int64_t row = 0; row < a->rows; row++)
            check_row(c, head, row, error);
}

/* ---- cases ---- */

static void take_matrices(struct attention_case *c)
{
    struct sy_attention *a = &c->attention.of;
    enum sy_dtype type = c->attention.type;
    bool repeats = kernel_between(0, 3) == 0; /* heads that share k and v */
    c->q = kernel_random(type, lay(a, a->rows, a->depth, false, &a->q));
    c->k = kernel_random(type, lay(a, a->depth, a->columns, repeats, &a->k));
    c->v = kernel_random(type, lay(a, a->columns, a->width, repeats, &a->v));
    c->y = kernel_tensor(c->attention.y_type, lay(a, a->rows, a->width, false, &a->y));
}

static struct attention_case make_case(enum sy_dtype type, int64_t rows, int64_t columns,
                                       int64_t depth, int64_t width)
{
    struct attention_case c = {
        .attention = {.type = type,
                      .y_type = kernel_between(0, 1) ? type : SY_DTYPE_F32,
                      .of = {.head_rank = (int)kernel_between(0, 2),
                             .rows = rows,
                             .columns = columns,
                             .depth = depth,
                             .width = width,
                             .scale = (float)(1 + kernel_uniform()) / sqrtf((float)depth + 1),
                             .zero_nan = kernel_between(0, 1)}}};
    for (int d = 0; d < c.attention.of.head_rank; d++)
        c.attention.of.head_dims[d] = kernel_between(1, 2);
    take_matrices(&c);
    return c;
}

/* Every kind of kernel, its tiles full, not full, and with a few columns in the last. */
static void test_sizes(void **state)
{
    static const int64_t sizes[] = {64, 63, 65, 128, 80, 256, 200, 1, 17, 40},
                         rows[] = {1, 16, 17, 33, 64, 70}, columns[] = {1, 15, 64, 65, 130, 200};
    for (int i = 0; i < 3 * N_SIZES; i++) {
        static const enum sy_dtype types[] = {SY_DTYPE_F32, SY_DTYPE_BF16, SY_DTYPE_F16};
        int64_t depth = sizes[kernel_between(0, 9)];
        struct attention_case c =
            make_case(types[i % 3], rows[i / 3 % 6], columns[kernel_between(0, 5)], depth,
                      kernel_between(0, 1) ? depth : sizes[kernel_between(0, 9)]);
        c.tf32 = kernel_between(0, 2) == 0;
        for (int64_t m = kernel_between(-2, 4); m > 0; m--)
            add_mask(&c);
        check_all(&c);
        kernel_end(state);
    }
}

/* So many heads that blocks have more rows than 16: 32, 64, 128. */
static struct attention_case many_heads(int i, int64_t rows, int64_t columns)
{
    static const enum sy_dtype types[] = {SY_DTYPE_BF16, SY_DTYPE_F16, SY_DTYPE_F32, SY_DTYPE_F32};
    struct attention_case c = {.attention = {.type = types[i % 4],
                                             .y_type = types[i % 4],
                                             .of = {.head_rank = 2,
                                                    .head_dims = {2, 132},
                                                    .rows = rows,
                                                    .columns = columns,
                                                    .depth = i % 3 ? 16 : 70,
                                                    .width = 12,
                                                    .scale = i % 3 ? 0.4f : 0.1f}},
                               .tf32 = i % 4 == 3};
    take_matrices(&c);
    return c;
}

static void test_many_heads(void **state)
{
    static const int64_t rows[] = {18, 64, 93};
    for (int i = 0; i < 12; i++) {
        struct attention_case c = many_heads(i, rows[i / 4], 20);
        if (i % 2)
            add_mask(&c);
        check_all(&c);
        kernel_end(state);
    }
}

/* Rows of which masks leave nothing, or only something late; NaN and infinity in the scores and in v. */
static void test_odd_numbers(void **state)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 24; i++) {
        struct attention_case c = make_case(kernel_float_type(), kernel_between(1, 40), 140, 8, 9);
        struct sy_attention *a = &c.attention.of;
        struct sy_attention_view *view = &a->masks[0];
        *view = (struct sy_attention_view){.row = a->columns, .column = 1};
        a->n_masks = 1;
        a->kinds[0] = i % 2 ? SY_MASK_ADD : SY_MASK_KEEP;
        a->fills[0] = -INFINITY;
        c.masks[0] = kernel_tensor(i % 2 ? SY_DTYPE_F32 : SY_DTYPE_BOOL, a->rows * a->columns);
        for (int64_t row = 0; row < a->rows; row++) {
            int64_t first = kernel_between(0, 3) == 0 ? a->columns : kernel_between(0, a->columns);
            for (int64_t k = 0; k < a->columns; k++)
                kernel_put(c.masks[0], row * a->columns + k,
                           i % 2 ? (k < first ? -INFINITY : 0) : k >= first);
        }
        if (i % 3 == 1)
            kernel_put(c.q, kernel_between(0, c.q->n - 1), odd[kernel_between(0, 2)]);
        if (i % 3 == 2 && !a->zero_nan)
            kernel_put(c.v, kernel_between(0, c.v->n - 1), odd[kernel_between(0, 2)]);
        check_all(&c);
        kernel_end(state);
    }
}

/* A mask that leaves rows a stretch of columns, as causal masks, windows and lengths do; the number that is written elsewhere. */
static struct kernel_tensor *stretch_mask(struct sy_attention *a, int m, int kind, double gone)
{
    int64_t window = kernel_between(0, 2) ? a->columns : kernel_between(1, 70),
            shift = a->columns - a->rows, length = kernel_between(a->columns / 2, a->columns);
    bool by_row = kernel_between(0, 3) > 0;
    enum sy_dtype type = kind == SY_MASK_ADD ? SY_DTYPE_F32 : SY_DTYPE_BOOL;
    struct kernel_tensor *t = kernel_tensor(type, (by_row ? a->rows : 1) * a->columns);
    a->masks[m] = (struct sy_attention_view){.row = by_row ? a->columns : 0, .column = 1};
    a->kinds[m] = (enum sy_attention_mask)kind;
    a->fills[m] = (float)gone;
    for (int64_t row = 0; row < (by_row ? a->rows : 1); row++)
        for (int64_t k = 0; k < a->columns; k++) {
            bool left = by_row ? k <= row + shift && k > row + shift - window : k < length;
            kernel_put(t, row * a->columns + k,
                       kind == SY_MASK_ADD ? (left ? 0 : gone) : left == (kind == SY_MASK_KEEP));
        }
    a->causal[m] = by_row && window == a->columns && kernel_between(0, 2) ? shift + 1 : 0;
    return t;
}

/* Tiles of which masks leave nothing: the result is that of all tiles, also of what NaN, infinity and large numbers do there. */
static void test_empty_tiles(void **state)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, 1e20},
                        gone[] = {-INFINITY, -3.4028234663852886e38, -1e4};
    for (int i = 0; i < 20; i++) {
        int64_t rows = kernel_between(1, 150), depth = i % 4 ? 8 : 65;
        struct attention_case c =
            make_case(kernel_float_type(), rows,
                      rows + kernel_between(0, 3) * kernel_between(0, 60), depth, i % 4 ? 9 : 70);
        struct sy_attention *a = &c.attention.of;
        a->n_masks = (int)kernel_between(1, 2);
        for (int m = 0; m < a->n_masks; m++)
            c.masks[m] = stretch_mask(a, m, (int)kernel_between(0, 2), gone[kernel_between(0, 2)]);
        c.tf32 = kernel_between(0, 3) == 0;
        struct kernel_tensor *changed[] = {NULL, c.q, c.k, c.v, c.masks[0]};
        struct kernel_tensor *t = changed[i % 5];
        double number = odd[kernel_between(0, t == c.masks[0] ? 2 : 3)];
        bool fits = t && t->type != SY_DTYPE_BOOL &&
                    (t->type == SY_DTYPE_F32 || !isfinite(number)) &&
                    !(t == c.v && (isfinite(number) || a->zero_nan));
        if (fits)
            kernel_put(t, kernel_between(0, t->n - 1), number);
        check_all(&c);
        kernel_end(state);
    }
}

static void add_causal_mask(struct attention_case *c, int kind, double gone)
{
    struct sy_attention *a = &c->attention.of;
    a->n_masks = 1;
    a->kinds[0] = (enum sy_attention_mask)kind;
    a->fills[0] = (float)gone;
    a->masks[0] = (struct sy_attention_view){.row = a->columns, .column = 1};
    a->causal[0] = a->columns - a->rows + 1;
    c->masks[0] =
        kernel_tensor(kind == SY_MASK_ADD ? SY_DTYPE_F32 : SY_DTYPE_BOOL, a->rows * a->columns);
    for (int64_t k = 0; k < a->rows * a->columns; k++) {
        bool left = k % a->columns < k / a->columns + a->causal[0];
        kernel_put(c->masks[0], k,
                   kind == SY_MASK_ADD ? (left ? 0 : gone) : left == (kind == SY_MASK_KEEP));
    }
}

/* A causal mask, of blocks of 64 and of 128 rows, whose rows are as many as columns or fewer. What it takes are numbers that would be seen. */
static void test_causal(void **state)
{
    static const double gone[] = {-INFINITY, -3.4028234663852886e38, -1e9};
    for (int i = 0; i < 12; i++) {
        int64_t rows = i % 2 ? 64 : 93, n = i % 3 ? 1 : 40;
        struct attention_case c = many_heads(i, rows, rows + n - 1);
        add_causal_mask(&c, (int)kernel_between(0, 2), gone[i / 4]);
        if (i % 4 == 3)
            kernel_put(c.v, c.v->n - 1, NAN);
        check_all(&c);
        kernel_end(state);
    }
}

/* What a causal mask takes, in tiles that a block of 16 or of 64 rows does not compute before it has looked at them: NaN in v is seen all the same,
 * and in k if the mask is added; numbers in k that undo the mask count. */
enum beyond { NAN_IN_V, NAN_IN_K, LARGE_K, UNDONE_MASK };

/* heads and rows of which choose_blocks has blocks of 16, or of 64 */
static struct attention_case causal_blocks(int type, bool large, enum beyond beyond)
{
    static const enum sy_dtype types[] = {SY_DTYPE_BF16, SY_DTYPE_F16, SY_DTYPE_F32, SY_DTYPE_F32};
    static const double gone[] = {-INFINITY, -3.4028234663852886e38};
    int64_t rows = large ? kernel_between(193, 200) : kernel_between(200, 300);
    struct attention_case c = {.attention = {.type = types[type],
                                             .y_type = types[type],
                                             .of = {.head_rank = 1,
                                                    .head_dims = {large ? 66 : 2},
                                                    .rows = rows,
                                                    .columns = rows + kernel_between(0, 9),
                                                    .depth = 8,
                                                    .width = 8,
                                                    .scale = 0.4f}},
                               .tf32 = type == 3};
    struct sy_attention *a = &c.attention.of;
    take_matrices(&c);
    int kind = beyond == NAN_IN_V ? (int)kernel_between(0, 2) : SY_MASK_ADD;
    add_causal_mask(&c, kind, beyond == UNDONE_MASK ? -1e9 : gone[kernel_between(0, 1)]);
    int64_t head = kernel_between(0, a->head_dims[0] - 1), at = kernel_between(0, 7),
            column = kernel_between(0, 1) ? a->columns - 1 : kernel_between(80, a->columns - 1);
    if (beyond == NAN_IN_V)
        kernel_put(c.v, offset_of(a, &a->v, head, column, at), NAN);
    else
        kernel_put(c.k, offset_of(a, &a->k, head, at, column),
                   beyond == NAN_IN_K            ? NAN
                   : types[type] == SY_DTYPE_F16 ? 6e4
                                                 : 1e20);
    return c;
}

static void test_behind_causal(void **state)
{
    int first = (int)kernel_between(0, 31);
    for (int k = 0; k < N_BEHIND; k++) {
        int i = (first + 5 * k) % 32;
        struct attention_case c = causal_blocks(i / 2 % 4, i % 2, (enum beyond)(i / 8));
        check_all(&c);
        kernel_end(state);
    }
}

/* Nothing to do is nothing done; more than the kernel has is an error, as a narrow result of wide operands is. */
static void test_bounds(void **state)
{
    struct attention_case c = make_case(SY_DTYPE_F32, 0, 5, 4, 4);
    kernel_run(launch, &c);
    c.attention.of.rows = 1;
    c.attention.of.width = SY_MATH_ATTENTION_SIZE + 1;
    assert_int_not_equal(launch(&c), 0);
    c.attention.of.width = 4;
    c.attention.y_type = SY_DTYPE_BF16;
    assert_int_not_equal(launch(&c), 0);
    kernel_end(state);
    c = make_case(SY_DTYPE_F32, 3, 0, 4, 4);
    c.attention.of.zero_nan = true;
    check_all(&c);
    kernel_end(state);
}

/* ---- gradients ---- */

static int launch_back(void *arg)
{
    struct attention_case *c = arg;
    struct sy_math_attention_at at = {.q = c->q->device,
                                      .k = c->k->device,
                                      .v = c->v->device,
                                      .y = c->y->device,
                                      .dy = c->dy->device,
                                      .stats = c->stats->device,
                                      .delta = c->delta->device,
                                      .dq = c->dq->device,
                                      .dk = c->dk->device,
                                      .dv = c->dv->device};
    for (int m = 0; m < SY_ATTENTION_MASKS; m++)
        at.masks[m] = KERNEL_AT(c->masks[m]);
    return sy_kernel_attention_gradient(kernel_stream, &c->back, c->tf32, &at);
}

/* Of a head, with the sum of what was added up without signs. */
struct gradient {
    double *sum, *size;
    int64_t columns;
};

static struct gradient new_gradient(int64_t rows, int64_t columns)
{
    size_t n = (size_t)(rows * columns) + 1;
    return (struct gradient){calloc(n, sizeof(double)), calloc(n, sizeof(double)), columns};
}

static void add_to(struct gradient *g, int64_t row, int64_t column, double number, double size)
{
    g->sum[row * g->columns + column] += number;
    g->size[row * g->columns + column] += isnan(size) ? 0 : fabs(size);
}

static bool is_written_over(const struct attention_case *c, int64_t head, int64_t row, int64_t k)
{
    const struct sy_attention *a = &c->attention.of;
    for (int m = 0; m < a->n_masks; m++)
        if (a->kinds[m] != SY_MASK_ADD &&
            (kernel_get(c->masks[m], offset_of(a, &a->masks[m], head, row, k)) != 0) ==
                (a->kinds[m] == SY_MASK_DROP))
            return true;
    return false;
}

/* Softmax, then its gradient, as the operators apart have them. */
static void add_row(const struct attention_case *c, int64_t head, int64_t row, struct gradient *dq,
                    struct gradient *dk, struct gradient *dv)
{
    const struct sy_attention *a = &c->attention.of;
    double p[MOST_COLUMNS], dp[MOST_COLUMNS], size[MOST_COLUMNS];
    double top = -INFINITY, sum = 0, inner = 0, inner_size = 0;
    for (int64_t i = 0; i < a->columns; i++) {
        p[i] = score_of(c, head, row, i);
        top = p[i] > top ? p[i] : top;
    }
    for (int64_t i = 0; i < a->columns; i++)
        sum += p[i] = exp(p[i] - top);
    bool dead = a->zero_nan && isnan(sum);
    for (int64_t i = 0; i < a->columns; i++) {
        p[i] /= sum;
        dp[i] = size[i] = 0;
        for (int64_t w = 0; w < a->width; w++) {
            double dy = kernel_get(c->dy, offset_of(a, &a->y, head, row, w)),
                   v = kernel_get(c->v, offset_of(a, &a->v, head, i, w));
            dp[i] += dead ? 0 : dy * v;
            size[i] += fabs(dy * v);
            add_to(dv, i, w, dead ? 0 : p[i] * dy, dead ? 0 : p[i] * dy);
        }
        inner += p[i] * dp[i];
        inner_size += p[i] * size[i];
    }
    for (int64_t i = 0; i < a->columns; i++) {
        double ds =
                   is_written_over(c, head, row, i) ? 0 : (double)a->scale * p[i] * (dp[i] - inner),
               most = (double)a->scale * p[i] * (size[i] + inner_size);
        for (int64_t d = 0; d < a->depth; d++) {
            double q = kernel_get(c->q, offset_of(a, &a->q, head, row, d)),
                   k = kernel_get(c->k, offset_of(a, &a->k, head, d, i));
            add_to(dq, row, d, ds * k, most * k);
            add_to(dk, i, d, ds * q, most * q);
        }
    }
}

static void check_gradient(const struct attention_case *c, const char *name, int64_t head,
                           const struct gradient *g, const struct kernel_tensor *t,
                           const struct sy_attention_view *view, bool turned, int64_t rows,
                           double error)
{
    for (int64_t i = 0; i < rows * g->columns; i++) {
        int64_t row = i / g->columns, column = i % g->columns;
        double got = kernel_get(t, offset_of(&c->attention.of, view, head, turned ? column : row,
                                             turned ? row : column));
        if (isnan(g->sum[i]) ? !isnan(got)
                             : !(fabs(got - g->sum[i]) <= error * (g->size[i] + 1e-3)))
            fail_msg("%s, head %lld row %lld column %lld: %.9g instead of %.9g", name,
                     (long long)head, (long long)row, (long long)column, got, g->sum[i]);
    }
}

static void check_gradients(struct attention_case *c)
{
    const struct sy_attention *a = &c->attention.of;
    double error = c->attention.type == SY_DTYPE_BF16 ? 1.0 / 80 : c->tf32 ? 1.0 / 200 : 3e-5;
    kernel_run(launch, c);
    kernel_run(launch_back, c);
    for (int64_t head = 0; head < kernel_elements(a->head_rank, a->head_dims); head++) {
        struct gradient dq = new_gradient(a->rows, a->depth),
                        dk = new_gradient(a->columns, a->depth),
                        dv = new_gradient(a->columns, a->width);
        for (int64_t row = 0; row < a->rows; row++)
            add_row(c, head, row, &dq, &dk, &dv);
        check_gradient(c, "dq", head, &dq, c->dq, &c->back.dq, false, a->rows, error);
        check_gradient(c, "dk", head, &dk, c->dk, &c->back.dk, true, a->columns, error);
        check_gradient(c, "dv", head, &dv, c->dv, &c->back.dv, false, a->columns, error);
        struct gradient all[] = {dq, dk, dv};
        for (int i = 0; i < 3; i++) {
            free(all[i].sum);
            free(all[i].size);
        }
    }
}

static enum sy_dtype type_or_f32(enum sy_dtype type)
{
    return kernel_between(0, 1) ? type : SY_DTYPE_F32;
}

static void take_gradients(struct attention_case *c)
{
    struct sy_attention *a = &c->attention.of;
    struct sy_math_attention_back *b = &c->back;
    enum sy_dtype type = c->attention.type;
    int64_t rows = kernel_elements(a->head_rank, a->head_dims) * a->rows;
    b->dq_type = type_or_f32(type);
    b->dk_type = type_or_f32(type);
    b->dv_type = type_or_f32(type);
    c->dq = kernel_tensor(b->dq_type, lay(a, a->rows, a->depth, false, &b->dq));
    c->dk = kernel_tensor(b->dk_type, lay(a, a->depth, a->columns, false, &b->dk));
    c->dv = kernel_tensor(b->dv_type, lay(a, a->columns, a->width, false, &b->dv));
    c->dy = kernel_random(type, c->y->n);
    c->stats = kernel_tensor(SY_DTYPE_F32, 2 * rows);
    c->delta = kernel_tensor(SY_DTYPE_F32, rows);
    b->forward = c->attention;
}

static void test_gradients(void **state)
{
    static const int64_t sizes[] = {64, 63, 65, 128, 80, 1, 17, 40},
                         lengths[] = {1, 15, 16, 33, 64, 70, 130};
    for (int i = 0; i < 24; i++) {
        int64_t depth = sizes[kernel_between(0, 7)];
        struct attention_case c =
            make_case(i % 2 ? SY_DTYPE_BF16 : SY_DTYPE_F32, lengths[kernel_between(0, 6)],
                      lengths[kernel_between(0, 6)], depth,
                      kernel_between(0, 1) ? depth : sizes[kernel_between(0, 7)]);
        c.tf32 = i % 4 == 0;
        for (int64_t m = kernel_between(-2, 4); m > 0; m--)
            add_mask(&c);
        take_gradients(&c);
        check_gradients(&c);
        kernel_end(state);
    }
}

/* Tiles of which masks leave nothing, and rows. */
static void test_gradients_of_empty_tiles(void **state)
{
    static const double gone[] = {-INFINITY, -3.4028234663852886e38, -1e4};
    for (int i = 0; i < 15; i++) {
        int64_t rows = kernel_between(1, 150), more = kernel_between(-60, 60);
        struct attention_case c = make_case(i % 3 == 2 ? SY_DTYPE_BF16 : SY_DTYPE_F32, rows,
                                            rows + more < 1 || i % 2 ? rows : rows + more, 8, 9);
        struct sy_attention *a = &c.attention.of;
        a->n_masks = (int)kernel_between(1, 2);
        for (int m = 0; m < a->n_masks; m++)
            c.masks[m] = stretch_mask(a, m, (int)kernel_between(0, 2), gone[kernel_between(0, 2)]);
        c.tf32 = kernel_between(0, 3) == 0;
        take_gradients(&c);
        check_gradients(&c);
        kernel_end(state);
    }
}

static void test_gradient_bounds(void **state)
{
    struct attention_case c = make_case(SY_DTYPE_F32, 3, 5, 4, 4);
    take_gradients(&c);
    c.back.forward.of.depth = SY_MATH_ATTENTION_BACK_SIZE + 1;
    assert_int_not_equal(launch_back(&c), 0);
    c.back.forward.of.depth = 4;
    c.back.dk_type = SY_DTYPE_BF16;
    assert_int_not_equal(launch_back(&c), 0);
    c.back.dk_type = SY_DTYPE_F32;
    c.back.forward.type = SY_DTYPE_F16;
    assert_int_not_equal(launch_back(&c), 0);
    kernel_end(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_sizes, kernel_end),
        cmocka_unit_test_teardown(test_many_heads, kernel_end),
        cmocka_unit_test_teardown(test_odd_numbers, kernel_end),
        cmocka_unit_test_teardown(test_empty_tiles, kernel_end),
        cmocka_unit_test_teardown(test_causal, kernel_end),
        cmocka_unit_test_teardown(test_behind_causal, kernel_end),
        cmocka_unit_test_teardown(test_bounds, kernel_end),
        cmocka_unit_test_teardown(test_gradients, kernel_end),
        cmocka_unit_test_teardown(test_gradients_of_empty_tiles, kernel_end),
        cmocka_unit_test_teardown(test_gradient_bounds, kernel_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
