/* Pools of float32 by rows, window by window as ONNX defines them: up to three dimensions, padding larger than what there is, windows in the
 * padding altogether, numbers that are none. The same bits with any number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "tests/rigs/engine_rig.h"
#include "workers/host/reference/kernel.h"

enum { DIMS_MOST = 3, ROUNDS = 400 };

static uint64_t seed;

/* Spatial sizes; `counts` 1: the padding counts for an average. */
struct pool {
    enum sy_op op;
    int n;
    int64_t planes, in[DIMS_MOST], out[DIMS_MOST], kernel[DIMS_MOST], strides[DIMS_MOST],
        dilations[DIMS_MOST], pads[2 * DIMS_MOST], counts, p;
    float *x, *y, *again;
};

static int64_t volume(const int64_t *dims, int n)
{
    int64_t v = 1;
    for (int d = 0; d < n; d++)
        v *= dims[d];
    return v;
}

/* What a window sees. */
struct seen {
    double sum, largest;
    int64_t n, counted;
    bool none;
};

static void see(const struct pool *w, struct seen *s, double v)
{
    s->n++;
    s->none = s->none || isnan(v);
    s->largest = v > s->largest ? v : s->largest;
    s->sum += w->op != SY_OP_LP_POOL ? v : pow(fabs(v), (double)w->p);
}

static struct seen look(const struct pool *w, int64_t plane, int64_t place)
{
    struct seen s = {.largest = -INFINITY};
    for (int64_t k = 0; k < volume(w->kernel, w->n); k++) {
        int64_t tap = k, left = place, offset = 0, stride = 1;
        bool inside = true, counted = true;
        for (int d = w->n - 1; d >= 0; d--) {
            int64_t at = left % w->out[d] * w->strides[d] - w->pads[d] +
                         tap % w->kernel[d] * w->dilations[d];
            inside = inside && at >= 0 && at < w->in[d];
            counted = counted && at < w->in[d] + w->pads[w->n + d];
            offset += at * stride;
            stride *= w->in[d];
            tap /= w->kernel[d];
            left /= w->out[d];
        }
        s.counted += counted;
        if (inside)
            see(w, &s, (double)w->x[plane * stride + offset]);
    }
    return s;
}

static double expected(const struct pool *w, int64_t plane, int64_t place)
{
    struct seen s = look(w, plane, place);
    if (w->op == SY_OP_MAX_POOL)
        return s.none ? NAN : s.n ? s.largest : -(double)FLT_MAX;
    if (w->op == SY_OP_LP_POOL)
        return pow(s.sum, 1 / (double)w->p);
    int64_t n = w->counts ? s.counted : s.n;
    return n ? s.sum / (double)n : 0;
}

static void fill_attrs(const struct pool *w, struct sy_attr *attrs, int64_t *numbers)
{
    const char *const names[] = {"kernel_shape", "strides", "dilations", "pads"};
    const int64_t *const from[] = {w->kernel, w->strides, w->dilations, w->pads};
    for (int i = 0; i < 4; i++) {
        int n = i == 3 ? 2 * w->n : w->n;
        memcpy(numbers, from[i], (size_t)n * sizeof *numbers);
        attrs[i] = (struct sy_attr){
            .name = (char *)(uintptr_t)names[i], .kind = SY_ATTR_INTS, .n = n, .ints = numbers};
        numbers += n;
    }
    attrs[4] = (struct sy_attr){.name = "count_include_pad", .kind = SY_ATTR_INT, .i = w->counts};
    attrs[5] = (struct sy_attr){.name = "p", .kind = SY_ATTR_INT, .i = w->p};
}

static struct sy_array array(const struct pool *w, const int64_t *dims, float *data)
{
    struct sy_array a = {.dtype = SY_DTYPE_F32, .rank = w->n + 2, .data = data};
    a.dims[0] = 1;
    a.dims[1] = w->planes;
    memcpy(a.dims + 2, dims, (size_t)w->n * sizeof *dims);
    a.n = w->planes * volume(dims, w->n);
    return a;
}

static void run(const struct pool *w, float *y)
{
    struct sy_attr attrs[6];
    int64_t numbers[5 * DIMS_MOST];
    struct sy_node node = {.op = w->op, .name = "pooled", .attrs = attrs, .n_attrs = 6};
    struct sy_call call = {.node = &node, .n_in = 1, .n_out = 1};
    const struct sy_kernel *kernel = sy_kernel_find(w->op);
    fill_attrs(w, attrs, numbers);
    call.in[0] = array(w, w->in, w->x);
    call.out[0] = array(w, w->out, y);
    assert_int_equal(kernel->check(&call), 0);
    assert_int_equal(kernel->run(&call), 0);
}

static void compare(const struct pool *w)
{
    int64_t outer = volume(w->out, w->n);
    for (int64_t i = 0; i < w->planes * outer; i++) {
        double want = expected(w, i / outer, i % outer), got = (double)w->y[i];
        bool same =
            isnan(want) ? isnan(got) : got == want || fabs(got - want) <= 2e-6 * (1 + fabs(want));
        if (!same)
            fail_msg("%s, %d dimensions, kernel %lld: element %lld is %g, not %g",
                     sy_op_name(w->op), w->n, (long long)w->kernel[w->n - 1], (long long)i, got,
                     want);
    }
}

/* Room behind the results is looked at by the address sanitizer. */
static void check(struct pool *w, bool odd_numbers)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    int64_t inner = w->planes * volume(w->in, w->n), outer = w->planes * volume(w->out, w->n);
    w->x = malloc((size_t)inner * sizeof *w->x);
    w->y = malloc((size_t)outer * sizeof *w->y);
    w->again = malloc((size_t)outer * sizeof *w->again);
    for (int64_t i = 0; i < inner; i++)
        w->x[i] = odd_numbers && rig_int(&seed, 0, 9) == 0
                      ? odd[rig_int(&seed, 0, 2)]
                      : (float)rig_int(&seed, -1000, 1000) / 256;
    int threads = omp_get_max_threads();
    run(w, w->y);
    omp_set_num_threads(1);
    run(w, w->again);
    omp_set_num_threads(threads);
    assert_memory_equal(w->y, w->again, (size_t)outer * sizeof *w->y);
    compare(w);
    free(w->x);
    free(w->y);
    free(w->again);
}

static void random_window(struct pool *w)
{
    for (int d = 0; d < w->n; d++) {
        w->in[d] = rig_int(&seed, 1, w->n == 1 ? 300 : 12);
        w->kernel[d] = rig_int(&seed, 1, 5);
        w->strides[d] = rig_int(&seed, 1, 5);
        w->dilations[d] = rig_int(&seed, 1, 3);
        w->pads[d] = rig_int(&seed, 0, 6);
        w->pads[w->n + d] = rig_int(&seed, 0, 6);
        int64_t room =
            w->in[d] + w->pads[d] + w->pads[w->n + d] - (w->kernel[d] - 1) * w->dilations[d] - 1;
        w->out[d] = SY_MAX(room, 0) / w->strides[d] + 1 + rig_int(&seed, 0, 1); /* ceil_mode */
    }
}

static void test_random(void **state)
{
    static const enum sy_op ops[] = {SY_OP_MAX_POOL, SY_OP_AVERAGE_POOL, SY_OP_LP_POOL};
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct pool w = {.op = ops[round % 3], .n = 1 + round / 3 % 3, .planes = 1 + round % 4};
        w.counts = rig_int(&seed, 0, 1);
        w.p = rig_int(&seed, 1, 2);
        random_window(&w);
        check(&w, round % 5 == 0);
    }
}

/* More results than are summed at once, more places than are combined at once, enough rows for the threads. */
static void test_long_rows(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct pool w = {.op = i % 3 == 0   ? SY_OP_MAX_POOL
                               : i % 3 == 1 ? SY_OP_AVERAGE_POOL
                                            : SY_OP_LP_POOL,
                         .n = 1,
                         .planes = 3,
                         .in = {20000},
                         .kernel = {i < 6 ? 5 : 4500},
                         .strides = {i < 6 ? 1 + i % 2 : 300},
                         .dilations = {i < 6 ? 3 : 2},
                         .pads = {7, 9},
                         .p = 2};
        w.out[0] = (w.in[0] + 16 - (w.kernel[0] - 1) * w.dilations[0] - 1) / w.strides[0] + 1;
        check(&w, false);
    }
}

int main(void)
{
    seed = rig_start();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),
                                       cmocka_unit_test(test_long_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
