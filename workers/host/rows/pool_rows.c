#include "workers/host/rows/pool_rows.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "runtime/base/assert.h"
#include "workers/host/base/clones.h"

enum {
    RESULTS = 1024,       /* of a row, summed beside each other */
    PLACES = 4096,        /* of the input's rows, combined beside each other */
    PARALLEL_FROM = 16384 /* results */
};

/* ---- loops ----------------------------------------------------------------------------------------------- */

static inline float larger_of(float a, float x)
{
    return (x > a) | (x != x) ? x : a;
}

/* Loops of one kind of pooling: a row of the input into `to`, as the first of its window or a later one; columns `stride` apart into `to`. */
struct loops {
    void (*start)(int64_t n, const float *from, void *to);
    void (*add)(int64_t n, const float *from, void *to);
    void (*columns)(int64_t n, int64_t stride, const void *from, void *to);
};

#define GENERIC_COLUMN(type, step, next)    \
    for (int64_t i = 0; i < n; i++) {       \
        type a = to[i], x = from[i * step]; \
        to[i] = next;                       \
    }

/* `take` makes a number of the input what is combined, `next` combines a and x. Strides that are known become moves between vectors. */
#define LOOPS_OF(name, type, take, next)                                                           \
    SY_CLONES static void name##_start(int64_t n, const float *restrict from, void *restrict into) \
    {                                                                                              \
        type *restrict to = into;                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                          \
            type v = (type)from[i];                                                                \
            to[i] = take;                                                                          \
        }                                                                                          \
    }                                                                                              \
    SY_CLONES static void name##_add(int64_t n, const float *restrict from, void *restrict into)   \
    {                                                                                              \
        type *restrict to = into;                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                          \
            type v = (type)from[i], a = to[i], x = take;                                           \
            to[i] = next;                                                                          \
        }                                                                                          \
    }                                                                                              \
    SY_CLONES static void name##_columns(int64_t n, int64_t stride, const void *restrict first,    \
                                         void *restrict into)                                      \
    {                                                                                              \
        const type *restrict from = first;                                                         \
        type *restrict to = into;                                                                  \
        if (stride == 1)                                                                           \
            GENERIC_COLUMN(type, 1, next)                                                          \
        else if (stride == 2)                                                                      \
            GENERIC_COLUMN(type, 2, next)                                                          \
        else if (stride == 4)                                                                      \
            GENERIC_COLUMN(type, 4, next)                                                          \
        else                                                                                       \
            GENERIC_COLUMN(type, stride, next)                                                     \
    }                                                                                              \
    static const struct loops name##_loops = {name##_start, name##_add, name##_columns};

LOOPS_OF(largest, float, v, larger_of(a, x))
LOOPS_OF(sum, float, v, a + x)
LOOPS_OF(sizes, double, fabs(v), a + x)
LOOPS_OF(squares, double, v *v, a + x)

static const struct loops *const loops_of[] = {[SY_POOL_LARGEST] = &largest_loops,
                                               [SY_POOL_AVERAGE] = &sum_loops,
                                               [SY_POOL_L1] = &sizes_loops,
                                               [SY_POOL_L2] = &squares_loops};

/* ---- windows --------------------------------------------------------------------------------------------- */

static int64_t ceil_div(int64_t a, int64_t b)
{
    if (b == 1)
        return a;
    return a > 0 ? (a + b - 1) / b : -(-a / b);
}

/* Positions of the kernel whose place in dimension d, for the result's `at`, is in [from, end): the first, and behind the last. */
static void taps_within(const struct sy_pool_rows *p, int d, int64_t at, int64_t from, int64_t end,
                        int64_t *first, int64_t *behind)
{
    int64_t start = at * p->strides[d] - p->pads[d];
    *first = SY_MAX(ceil_div(from - start, p->dilations[d]), 0);
    *behind = SY_MIN(ceil_div(end - start, p->dilations[d]), p->kernel[d]);
    *behind = SY_MAX(*behind, *first);
}

/* A row of results: the rows of its windows. */
struct row {
    const float *plane;
    int64_t first[SY_POOL_DIMS], behind[SY_POOL_DIMS], start[SY_POOL_DIMS], strides[SY_POOL_DIMS];
    int64_t n_rows, counted; /* rows in the input; those that an average counts */
};

static void find_rows(const struct sy_pool_rows *p, int64_t row, struct row *r)
{
    int64_t stride = p->in[p->n_dims - 1];
    r->n_rows = r->counted = 1;
    for (int d = p->n_dims - 2; d >= 0; d--) {
        int64_t at = row % p->out[d], first, behind;
        row /= p->out[d];
        taps_within(p, d, at, 0, p->in[d], &r->first[d], &r->behind[d]);
        taps_within(p, d, at, p->from[d], p->end[d], &first, &behind);
        r->n_rows *= r->behind[d] - r->first[d];
        r->counted *= behind - first;
        r->start[d] = at * p->strides[d] - p->pads[d];
        r->strides[d] = stride;
        stride *= p->in[d];
    }
    r->plane += row * stride;
}

/* The next row of the window; `taps` of each dimension and `at` say which one it is. */
static void next_row(const struct sy_pool_rows *p, const struct row *r, int64_t *taps,
                     const float **at)
{
    for (int d = p->n_dims - 2; d >= 0; d--) {
        int64_t step = p->dilations[d] * r->strides[d];
        *at += step;
        if (++taps[d] < r->behind[d])
            return;
        *at -= (taps[d] - r->first[d]) * step;
        taps[d] = r->first[d];
    }
}

/* Columns [first, behind) of all rows of the window. */
static void combine_rows(const struct sy_pool_rows *p, const struct row *r, int64_t first,
                         int64_t behind, void *mixed)
{
    const struct loops *loops = loops_of[p->kind];
    const float *at = r->plane + first;
    int64_t taps[SY_POOL_DIMS];
    for (int d = 0; d + 1 < p->n_dims; d++) {
        taps[d] = r->first[d];
        at += (r->start[d] + taps[d] * p->dilations[d]) * r->strides[d];
    }
    loops->start(behind - first, at, mixed);
    for (int64_t k = 1; k < r->n_rows; k++) {
        next_row(p, r, taps, &at);
        loops->add(behind - first, at, mixed);
    }
}

/* A part of a row of results; sums of `size` bytes each. */
struct part {
    int64_t from, end, size;
    char *sums;
};

/* Adds what position `tap` of the kernel sees in columns [first, behind) of the input. */
static void combine_tap(const struct sy_pool_rows *p, const struct part *part, int64_t tap,
                        int64_t first, int64_t behind, const char *mixed)
{
    int last = p->n_dims - 1;
    int64_t stride = p->strides[last], start = tap * p->dilations[last] - p->pads[last];
    int64_t from = SY_MAX(part->from, ceil_div(first - start, stride));
    int64_t n = SY_MIN(part->end, ceil_div(behind - start, stride)) - from;
    if (n > 0)
        loops_of[p->kind]->columns(n, stride, mixed + (from * stride + start - first) * part->size,
                                   part->sums + (from - part->from) * part->size);
}

static void combine(const struct sy_pool_rows *p, const struct row *r, const struct part *part)
{
    double mixed[PLACES];
    int last = p->n_dims - 1;
    int64_t reach = (p->kernel[last] - 1) * p->dilations[last] + 1,
            start = part->from * p->strides[last] - p->pads[last],
            edge = (part->end - 1) * p->strides[last] - p->pads[last] + reach;
    edge = SY_MIN(edge, p->in[last]);
    for (int64_t first = SY_MAX(start, 0); first < edge; first += PLACES) {
        int64_t behind = SY_MIN(first + PLACES, edge);
        combine_rows(p, r, first, behind, mixed);
        for (int64_t tap = 0; tap < p->kernel[last]; tap++)
            combine_tap(p, part, tap, first, behind, (const char *)mixed);
    }
}

/* ---- results --------------------------------------------------------------------------------------------- */

/* In place: an empty window's largest. */
static void finish_largest(const struct sy_pool_rows *p, const struct row *r, int64_t from,
                           int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t first, behind;
        if (to[i] != -INFINITY)
            continue;
        taps_within(p, p->n_dims - 1, from + i, 0, p->in[p->n_dims - 1], &first, &behind);
        if (r->n_rows == 0 || first == behind)
            to[i] = -FLT_MAX;
    }
}

static float mean_of(float sum, int64_t count)
{
    return count ? sum / (float)count : 0;
}

/* Results whose whole window counts lie together. */
static void finish_average(const struct sy_pool_rows *p, const struct row *r, int64_t from,
                           int64_t n, float *to)
{
    int last = p->n_dims - 1;
    int64_t stride = p->strides[last], reach = (p->kernel[last] - 1) * p->dilations[last],
            inside = ceil_div(p->from[last] + p->pads[last], stride) - from,
            behind = ceil_div(p->end[last] - reach + p->pads[last], stride) - from;
    inside = SY_MIN(SY_MAX(inside, 0), n);
    behind = SY_MIN(SY_MAX(behind, inside), n);
    for (int64_t i = 0; i < n; i++) {
        int64_t first, end;
        if (i == inside && inside < behind) {
            i = behind - 1;
            continue;
        }
        taps_within(p, last, from + i, p->from[last], p->end[last], &first, &end);
        to[i] = mean_of(to[i], (end - first) * r->counted);
    }
    float whole = (float)(p->kernel[last] * r->counted);
    for (int64_t i = inside; i < behind; i++)
        to[i] = r->counted ? to[i] / whole : 0;
}

static void finish_norm(enum sy_pool_kind kind, int64_t n, const double *sums, float *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)(kind == SY_POOL_L2 ? sqrt(sums[i]) : sums[i]);
}

/* Results [from, from + n) of a row, at `to`. */
static void pool_part(const struct sy_pool_rows *p, const struct row *r, int64_t from, int64_t n,
                      float *to)
{
    double sums[RESULTS];
    bool norm = p->kind == SY_POOL_L1 || p->kind == SY_POOL_L2;
    for (int64_t i = 0; i < n; i++)
        to[i] = p->kind == SY_POOL_LARGEST ? -INFINITY : 0;
    for (int64_t i = 0; norm && i < n; i++)
        sums[i] = 0;
    struct part part = {from, from + n, norm ? (int64_t)sizeof *sums : (int64_t)sizeof *to,
                        norm ? (char *)sums : (char *)to};
    if (r->n_rows > 0)
        combine(p, r, &part);
    if (norm)
        finish_norm(p->kind, n, sums, to);
    else if (p->kind == SY_POOL_AVERAGE)
        finish_average(p, r, from, n, to);
    else
        finish_largest(p, r, from, n, to);
}

void sy_pool_rows(const struct sy_pool_rows *p, const float *in, float *out)
{
    int64_t rows = p->planes, width = p->out[p->n_dims - 1];
    for (int d = 0; d + 1 < p->n_dims; d++)
        rows *= p->out[d];
#pragma omp parallel for schedule(static) if (rows * width > PARALLEL_FROM)
    for (int64_t row = 0; row < rows; row++) {
        struct row r = {.plane = in};
        find_rows(p, row, &r);
        for (int64_t from = 0; from < width; from += RESULTS)
            pool_part(p, &r, from, SY_MIN(RESULTS, width - from), out + row * width + from);
    }
}
