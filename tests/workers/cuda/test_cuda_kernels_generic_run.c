/* The kernels by formula (workers/cuda/math/generic.h) whose sizes, places or axes are data, and those of signals, beside the host engine's loops for
 * the same node: random shapes, all types; and what the data may not say is told. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "tests/on_cpu/generic_trial.h"
#include "tests/rigs/engine_rig.h"

#define ROUNDS 12

/* From 1 to most each. */
static void some_dims(int rank, int64_t most, int64_t *dims)
{
    for (int d = 0; d < rank; d++)
        dims[d] = kernel_between(1, most);
}

/* ---- the same elements ---------------------------------------------------------------------------------- */

static void test_views(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t x[3], out[5] = {1, 1, 1, 1, 1}, to[5];
        some_dims(3, 9, x);
        struct trial *t = trial_start(SY_OP_RUN_RESHAPE);
        enum sy_dtype type = trial_any_type();
        (void)trial_operand(t, type, 3, x);
        out[0] = to[0] = x[0];
        out[2] = to[2] = x[1] * x[2];
        to[1] = 1;
        to[round % 3] = round % 2 || round % 3 ? -1 : 0;
        (void)trial_numbers(t, 3, to);
        trial_result(t, type, 3, out);
        trial_check(t);
        bool squeezes = round % 2;
        const int64_t large[5] = {x[0], 1, x[1], x[2], 1}, axes[2] = {-1, 1};
        t = trial_start(squeezes ? SY_OP_RUN_SQUEEZE : SY_OP_RUN_UNSQUEEZE);
        (void)trial_operand(t, type, squeezes ? 5 : 3, squeezes ? large : x);
        (void)trial_numbers(t, 2, axes);
        trial_result(t, type, squeezes ? 3 : 5, squeezes ? x : large);
        trial_check(t);
    }
}

static void test_views_of_other_shapes(void **state)
{
    static const struct {
        enum sy_op op;
        int64_t to[2], told;
    } cases[] = {{SY_OP_RUN_RESHAPE, {4, 6}, 6}, {SY_OP_RUN_RESHAPE, {-1, -1}, -1},
                 {SY_OP_RUN_RESHAPE, {3, 8}, 8}, {SY_OP_RUN_SQUEEZE, {1, 4}, 4},
                 {SY_OP_RUN_SQUEEZE, {1, 2}, 2}, {SY_OP_RUN_SQUEEZE, {1, -3}, -3}};
    const int64_t x[4] = {3, 1, 8, 1}, out[2] = {3, 8}, reshaped[2] = {6, 4};
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        struct trial *t = trial_start(cases[i].op);
        (void)trial_operand(t, SY_DTYPE_F32, 4, x);
        (void)trial_numbers(t, 2, cases[i].to);
        trial_result(t, SY_DTYPE_F32, 2, i == 2 ? reshaped : out);
        trial_refused(t, cases[i].told);
    }
}

/* ---- repeats -------------------------------------------------------------------------------------------- */

static void test_repeats(void **state)
{
    (void)state;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        bool tiles = round % 2;
        struct trial *t = trial_start(tiles ? SY_OP_TILE : SY_OP_RUN_EXPAND);
        enum sy_dtype type = trial_any_type();
        int64_t x[3], out[3], to[3];
        some_dims(3, 6, out);
        for (int d = 0; d < 3; d++) {
            x[d] = tiles || kernel_between(0, 1) ? out[d] : 1;
            to[d] = tiles || kernel_between(0, 1) ? kernel_between(1, 3) : out[d];
            if (tiles)
                out[d] = x[d] * to[d];
            else
                to[d] = x[d] == out[d] && to[d] != out[d] ? 1 : out[d];
        }
        (void)trial_operand(t, type, 3, x);
        (void)trial_numbers(t, 3, to);
        trial_result(t, type, 3, out);
        trial_check(t);
    }
}

static void test_other_repeats(void **state)
{
    const int64_t x[2] = {3, 1}, out[2] = {3, 4}, wide[2] = {3, 5}, twice[2] = {1, 2};
    (void)state;
    struct trial *t = trial_start(SY_OP_RUN_EXPAND);
    (void)trial_operand(t, SY_DTYPE_F32, 2, x);
    (void)trial_numbers(t, 2, wide);
    trial_result(t, SY_DTYPE_F32, 2, out);
    trial_refused(t, 5);
    t = trial_start(SY_OP_TILE);
    (void)trial_operand(t, SY_DTYPE_F32, 2, x);
    (void)trial_numbers(t, 2, twice);
    trial_result(t, SY_DTYPE_F32, 2, out);
    trial_refused(t, 2);
}

/* ---- parts ---------------------------------------------------------------------------------------------- */

/* How many elements numpy's start:end:step has of n, one by one. */
static int64_t sliced(int64_t n, int64_t start, int64_t end, int64_t step)
{
    int64_t count = 0;
    start += start < 0 ? n : 0;
    end += end < 0 ? n : 0;
    start = step > 0 ? SY_MAX(start, 0) : SY_MIN(start, n - 1);
    for (int64_t i = start; step > 0 ? i < SY_MIN(end, n) : i > SY_MAX(end, -1); i += step)
        count += i >= 0 && i < n;
    return count;
}

static void test_slices(void **state)
{
    (void)state;
    for (int round = 0; round < 4 * ROUNDS; round++) {
        struct trial *t = trial_start(SY_OP_RUN_SLICE);
        enum sy_dtype type = trial_any_type();
        int64_t x[3], out[3], starts[2], ends[2], axes[2] = {kernel_between(0, 1), -1}, steps[2];
        some_dims(3, 9, x);
        memcpy(out, x, sizeof out);
        for (int i = 0; i < 2; i++) {
            int64_t axis = axes[i] < 0 ? axes[i] + 3 : axes[i];
            starts[i] = kernel_between(-x[axis], x[axis] + 3);
            ends[i] = kernel_between(-x[axis], x[axis] + 3);
            steps[i] = kernel_between(1, 3) * (kernel_between(0, 1) ? 1 : -1);
            out[axis] = sliced(x[axis], starts[i], ends[i], steps[i]);
        }
        (void)trial_operand(t, type, 3, x);
        (void)trial_numbers(t, 2, starts);
        (void)trial_numbers(t, 2, ends);
        (void)trial_numbers(t, 2, axes);
        (void)trial_numbers(t, 2, steps);
        trial_result(t, type, 3, out);
        trial_check(t);
    }
}

/* starts, ends, axes, steps of the second axis of [3, 7], declared as [3, 4]. */
static void test_other_slices(void **state)
{
    static const int64_t cases[][5] = {{0, 5, 1, 1, 5},
                                       {0, 4, 2, 1, 2},
                                       {0, 4, 1, 0, 0},
                                       {6, 1, 1, -1, 5},
                                       {INT64_MIN, INT64_MAX, 1, 1, 7}};
    const int64_t x[2] = {3, 7}, out[2] = {3, 4};
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        struct trial *t = trial_start(SY_OP_RUN_SLICE);
        (void)trial_operand(t, SY_DTYPE_F32, 2, x);
        for (int k = 0; k < 4; k++) {
            const int64_t one = 1;
            sy_put_int(trial_operand(t, SY_DTYPE_I64, 1, &one), 0, cases[i][k]);
        }
        trial_result(t, SY_DTYPE_F32, 2, out);
        trial_refused(t, cases[i][4]);
    }
}

static void test_splits(void **state)
{
    (void)state;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        struct trial *t = trial_start(SY_OP_RUN_SPLIT);
        enum sy_dtype type = trial_any_type();
        int64_t x[3], parts[4], axis = kernel_between(0, 2), n = kernel_between(1, 4);
        some_dims(3, 6, x);
        x[axis] = 0;
        for (int i = 0; i < n; i++)
            x[axis] += parts[i] = kernel_between(0, 4);
        (void)trial_operand(t, type, 3, x);
        (void)trial_numbers(t, n, parts);
        gb_int(t->graph, "axis", axis);
        for (int i = 0; i < n; i++) {
            x[axis] = parts[i];
            trial_result(t, type, 3, x);
        }
        trial_check(t);
    }
    const int64_t x[1] = {7}, other[2] = {4, 3}, first[1] = {3}, second[1] = {4};
    struct trial *t = trial_start(SY_OP_RUN_SPLIT);
    (void)trial_operand(t, SY_DTYPE_F32, 1, x);
    (void)trial_numbers(t, 2, other);
    trial_result(t, SY_DTYPE_F32, 1, first);
    trial_result(t, SY_DTYPE_F32, 1, second);
    trial_refused(t, 3);
}

static void test_pads(void **state)
{
    static const char *const modes[] = {"constant", "edge", "reflect", "wrap"};
    (void)state;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        struct trial *t = trial_start(SY_OP_RUN_PAD);
        enum sy_dtype type = trial_any_type();
        bool some = round % 2;
        int64_t x[3], out[3], pads[6] = {0}, axes[2] = {-1, 0}, one = 1;
        for (int d = 0; d < 3; d++)
            x[d] = kernel_between(2, 6);
        memcpy(out, x, sizeof out);
        (void)trial_operand(t, type, 3, x);
        for (int i = 0; i < (some ? 2 : 3); i++) {
            int d = some ? (int)(axes[i] + 3) % 3 : i;
            pads[i] = kernel_between(-1, 3);
            pads[i + (some ? 2 : 3)] = kernel_between(0, 4);
            out[d] += pads[i] + pads[i + (some ? 2 : 3)];
        }
        (void)trial_numbers(t, some ? 4 : 6, pads);
        if (round % 3)
            (void)trial_operand(t, type, 1, &one);
        else
            trial_absent(t);
        if (some)
            (void)trial_numbers(t, 2, axes);
        gb_string(t->graph, "mode", modes[round % 4]);
        trial_result(t, type, 3, out);
        trial_check(t);
    }
    const int64_t x[1] = {5}, out[1] = {8}, pads[2] = {1, 1}, far[2] = {(int64_t)1 << 50, 1};
    for (int i = 0; i < 2; i++) {
        struct trial *t = trial_start(SY_OP_RUN_PAD);
        (void)trial_operand(t, SY_DTYPE_F32, 1, x);
        (void)trial_operand(t, SY_DTYPE_I64, 1, (int64_t[]){2});
        for (int k = 0; k < 2; k++)
            sy_put_int(&t->call.in[1], k, i ? far[k] : pads[k]);
        trial_result(t, SY_DTYPE_F32, 1, out);
        trial_refused(t, i ? far[0] : 2);
    }
}

/* ---- reductions over axes that are data --------------------------------------------------------------------- */

static void test_reductions(void **state)
{
    static const enum sy_op ops[] = {
        SY_OP_REDUCE_SUM, SY_OP_REDUCE_MEAN,        SY_OP_REDUCE_MAX,
        SY_OP_REDUCE_MIN, SY_OP_REDUCE_PROD,        SY_OP_REDUCE_L1,
        SY_OP_REDUCE_L2,  SY_OP_REDUCE_LOG_SUM_EXP, SY_OP_REDUCE_SUM_SQUARE};
    (void)state;
    for (int round = 0; round < 4 * ROUNDS; round++) {
        struct trial *t = trial_start(ops[round % SY_ARRAY_LEN(ops)]);
        enum sy_dtype type = trial_any_type();
        int64_t x[4], out[4], axes[2] = {0, 0}, n = round % 7 == 0 ? 0 : kernel_between(1, 2);
        bool keeps = kernel_between(0, 1), reduced[4] = {false}, noop = kernel_between(0, 1);
        int rank = 0;
        some_dims(4, 5, x);
        for (int64_t i = 0; i < n; i++) {
            axes[i] = kernel_between(-4, 3);
            reduced[(axes[i] + 4) % 4] = true;
        }
        for (int d = 0; d < 4; d++) {
            bool gone = reduced[d] || (n == 0 && !noop);
            if (!gone || keeps)
                out[rank++] = gone ? 1 : x[d];
        }
        (void)trial_operand(t, type, 4, x);
        (void)trial_numbers(t, n, axes);
        gb_int(t->graph, "keepdims", keeps);
        gb_int(t->graph, "noop_with_empty_axes", noop);
        trial_result(t, type, rank, out);
        trial_check(t);
    }
    const int64_t x[2] = {3, 4}, out[2] = {3, 1}, first[1] = {0}, outside[1] = {2};
    for (int i = 0; i < 2; i++) {
        struct trial *t = trial_start(SY_OP_REDUCE_SUM);
        (void)trial_operand(t, SY_DTYPE_F32, 2, x);
        (void)trial_numbers(t, 1, i ? outside : first);
        trial_result(t, SY_DTYPE_F32, 2, out);
        trial_refused(t, i ? 2 : 1);
    }
}

/* ---- what is counted ------------------------------------------------------------------------------------ */

static int64_t count_of(const struct sy_array *a)
{
    int64_t n = 0;
    for (int64_t i = 0; i < a->n; i++)
        n += sy_get(a, i) != 0;
    return n;
}

static void test_non_zero(void **state)
{
    (void)state;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        struct trial *t = trial_start(SY_OP_NON_ZERO);
        int64_t x[3], out[2] = {3, 0};
        kernel_dims(3, 15, x);
        out[1] = count_of(trial_operand(t, round % 3 ? trial_any_type() : SY_DTYPE_BOOL, 3, x));
        trial_result(t, SY_DTYPE_I64, 2, out);
        trial_check(t);
    }
    struct trial *t = trial_start(SY_OP_NON_ZERO);
    const int64_t x[1] = {40}, out[2] = {1, 3};
    struct sy_array *a = trial_operand(t, SY_DTYPE_I32, 1, x);
    for (int64_t i = 0; i < 40; i++)
        sy_put_int(a, i, i % 10 == 0);
    trial_result(t, SY_DTYPE_I64, 2, out);
    trial_refused(t, 4);
}

static void test_compress(void **state)
{
    (void)state;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        struct trial *t = trial_start(SY_OP_COMPRESS);
        enum sy_dtype type = trial_any_type();
        int64_t x[3], axis = kernel_between(-3, 2), kept, length;
        some_dims(3, 9, x);
        bool flat = round % 3 == 0;
        length = kernel_between(1, flat ? x[0] * x[1] * x[2] : x[(axis + 3) % 3]);
        (void)trial_operand(t, type, 3, x);
        kept = count_of(trial_operand(t, SY_DTYPE_BOOL, 1, &length));
        if (!flat)
            gb_int(t->graph, "axis", axis);
        x[(axis + 3) % 3] = kept;
        trial_result(t, type, flat ? 1 : 3, flat ? &kept : x);
        trial_check(t);
    }
    struct trial *t = trial_start(SY_OP_COMPRESS);
    const int64_t x[1] = {5}, out[1] = {4};
    (void)trial_operand(t, SY_DTYPE_F32, 1, x);
    struct sy_array *keep = trial_operand(t, SY_DTYPE_BOOL, 1, x);
    for (int64_t i = 0; i < 5; i++)
        sy_put_int(keep, i, i > 2);
    trial_result(t, SY_DTYPE_F32, 1, out);
    trial_refused(t, 2);
}

/* How many different slices along axis 0 of [n, each]. */
static int64_t different(const struct sy_array *x, int64_t n, int64_t each)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        bool seen = false;
        for (int64_t k = 0; k < i && !seen; k++) {
            seen = true;
            for (int64_t j = 0; j < each; j++)
                seen = seen && sy_get(x, i * each + j) == sy_get(x, k * each + j);
        }
        count += !seen;
    }
    return count;
}

static void test_unique(void **state)
{
    (void)state;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        struct trial *t = trial_start(SY_OP_UNIQUE);
        enum sy_dtype type = trial_any_type();
        bool along = round % 2;
        int64_t x[2] = {kernel_between(1, 40), along ? kernel_between(1, 2) : 7}, n, all;
        struct sy_array *a = trial_operand(t, type, 2, x);
        for (int64_t i = 0; along && i < a->n; i++)
            sy_put(a, i, (double)kernel_between(0, 3));
        all = along ? x[0] : a->n;
        n = along ? different(a, x[0], x[1]) : different(a, a->n, 1);
        if (along)
            gb_int(t->graph, "axis", 0);
        gb_int(t->graph, "sorted", kernel_between(0, 1));
        x[0] = n;
        trial_result(t, type, along ? 2 : 1, x);
        trial_result(t, SY_DTYPE_I64, 1, &n);
        trial_result(t, SY_DTYPE_I64, 1, &all);
        trial_result(t, SY_DTYPE_I64, 1, &n);
        trial_check(t);
    }
    struct trial *t = trial_start(SY_OP_UNIQUE);
    const int64_t x[1] = {6}, out[1] = {5};
    struct sy_array *a = trial_operand(t, SY_DTYPE_I64, 1, x);
    for (int64_t i = 0; i < 6; i++)
        sy_put_int(a, i, i / 2);
    trial_result(t, SY_DTYPE_I64, 1, out);
    trial_refused(t, 3);
}

/* The host's loops say how many rows there are: declared are all that there could be, so that it counts them. */
static int64_t count_kept(const struct trial *t)
{
    struct sy_call call = t->call;
    int64_t n = 0, room[3] = {0};
    const struct sy_kernel *kernel = sy_kernel_find(call.node->op);
    call.out[0] = (struct sy_array){SY_DTYPE_I64, 2, {1, 3}, 3, room};
    call.n_out = 1;
    call.counted = &n;
    call.scratch = malloc((size_t)kernel->scratch(&call) + 1);
    assert_int_equal(kernel->run(&call), 0);
    free(call.scratch);
    return n;
}

static void test_suppression(void **state)
{
    (void)state;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        struct trial *t = trial_start(SY_OP_NON_MAX_SUPPRESSION);
        int64_t boxes[3] = {kernel_between(1, 2), kernel_between(1, 90), 4}, one = 1,
                scores[3] = {boxes[0], kernel_between(1, 3), boxes[1]}, out[2] = {0, 3};
        struct sy_array *b = trial_operand(t, SY_DTYPE_F32, 3, boxes);
        for (int64_t i = 0; i < b->n; i++)
            sy_put(b, i, (i % 4 > 1 ? 3 : 0) + 3 * (1 + kernel_uniform()));
        for (int64_t i = 0; round % 4 == 1 && i < b->n; i++) /* some share exactly the limit */
            sy_put(b, i, i % 4 < 2 ? 0 : (double)kernel_between(1, 20));
        struct sy_array *s = trial_operand(t, SY_DTYPE_F32, 3, scores);
        if (s->n > 3)
            sy_put(s, 2, NAN);
        sy_put_int(trial_operand(t, SY_DTYPE_I64, 1, &one), 0, kernel_between(0, 30));
        sy_put(trial_operand(t, SY_DTYPE_F32, 1, &one), 0, round % 4 == 1 ? 0.7 : 0.3);
        if (round % 3)
            sy_put(trial_operand(t, SY_DTYPE_F32, 1, &one), 0, -1);
        gb_int(t->graph, "center_point_box", round % 4 == 0);
        out[0] = count_kept(t) + (round == 1);
        trial_result(t, SY_DTYPE_I64, 2, out);
        if (round == 1)
            trial_refused(t, out[0] - 1);
        else
            trial_check(t);
    }
}

/* ---- signals, determinants ------------------------------------------------------------------------------ */

static void test_tapers(void **state)
{
    static const enum sy_op ops[] = {SY_OP_HANN_WINDOW, SY_OP_HAMMING_WINDOW,
                                     SY_OP_BLACKMAN_WINDOW};
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct trial *t = trial_start(ops[round % 3]);
        int64_t n = kernel_between(1, 300);
        const int64_t said = n + (round == 5);
        (void)trial_numbers(t, 1, &said);
        gb_int(t->graph, "periodic", kernel_between(0, 1));
        trial_result(t, trial_types[round % 4], 1, &n);
        if (round == 5)
            trial_refused(t, said);
        else
            trial_check(t);
    }
}

static void test_dft(void **state)
{
    (void)state;
    for (int round = 0; round < 3 * ROUNDS; round++) {
        struct trial *t = trial_start(SY_OP_DFT);
        bool inverse = round % 2, onesided = round % 3 == 0;
        enum sy_dtype type = trial_types[round % 2];
        int64_t axis = kernel_between(1, 2), x[4], out[4], n;
        some_dims(4, 9, x);
        x[3] = inverse || kernel_between(0, 1) ? 2 : 1;
        memcpy(out, x, sizeof out);
        n = kernel_between(1, x[axis]);
        (void)trial_operand(t, type, 4, x);
        if (onesided && inverse) {
            out[axis] = 2 * (x[axis] - 1) + 1;
            out[3] = 1;
        } else {
            (void)trial_numbers(t, 1, &n);
            out[axis] = onesided ? n / 2 + 1 : n;
            out[3] = 2;
        }
        gb_int(t->graph, "axis", axis);
        gb_int(t->graph, "inverse", inverse);
        gb_int(t->graph, "onesided", onesided);
        trial_result(t, type, 4, out);
        trial_check(t);
    }
    struct trial *t = trial_start(SY_OP_DFT);
    const int64_t x[3] = {1, 6, 1}, out[3] = {1, 4, 2}, n = 9;
    (void)trial_operand(t, SY_DTYPE_F32, 3, x);
    (void)trial_numbers(t, 1, &n);
    gb_int(t->graph, "axis", 1);
    gb_int(t->graph, "onesided", 1);
    trial_result(t, SY_DTYPE_F32, 3, out);
    trial_refused(t, 9);
}

static void test_determinants(void **state)
{
    (void)state;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        struct trial *t = trial_start(SY_OP_DET);
        int64_t n = kernel_between(1, 20), x[3] = {kernel_between(1, 5), n, n};
        enum sy_dtype type = trial_types[round % 2];
        struct sy_array *a = trial_operand(t, type, 3, x);
        for (int64_t i = 0; i < a->n; i++)
            sy_put(a, i, round % 5 ? kernel_uniform() : 1); /* of equal rows: 0 */
        trial_result(t, type, 1, x);
        trial_check(t);
    }
}

static void test_unpooling(void **state)
{
    (void)state;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        struct trial *t = trial_start(SY_OP_MAX_UNPOOL);
        enum sy_dtype type = trial_any_type();
        int64_t x[4], out[4], kernel[2], strides[2], more = round % 3 == 0;
        some_dims(4, 5, x);
        memcpy(out, x, sizeof out);
        for (int d = 0; d < 2; d++) {
            kernel[d] = kernel_between(1, 3);
            strides[d] = kernel_between(1, 2);
            out[d + 2] = (x[d + 2] - 1) * strides[d] + kernel[d];
        }
        (void)trial_operand(t, type, 4, x);
        struct sy_array *at = trial_operand(t, SY_DTYPE_I64, 4, x);
        int64_t last = kernel_elements(4, out) - 1;
        for (int64_t i = 0; i < at->n; i++)
            sy_put_int(at, i, kernel_between(0, last));
        gb_ints(t->graph, "kernel_shape", 2, kernel);
        gb_ints(t->graph, "strides", 2, strides);
        out[3] += more;
        trial_result(t, type, 4, out);
        if (round == 1) {
            sy_put_int(at, at->n - 1, last + 1);
            trial_refused(t, last + 1);
        } else {
            trial_check(t);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_views),       cmocka_unit_test(test_views_of_other_shapes),
        cmocka_unit_test(test_repeats),     cmocka_unit_test(test_other_repeats),
        cmocka_unit_test(test_slices),      cmocka_unit_test(test_other_slices),
        cmocka_unit_test(test_splits),      cmocka_unit_test(test_pads),
        cmocka_unit_test(test_reductions),  cmocka_unit_test(test_non_zero),
        cmocka_unit_test(test_compress),    cmocka_unit_test(test_unique),
        cmocka_unit_test(test_suppression), cmocka_unit_test(test_tapers),
        cmocka_unit_test(test_dft),         cmocka_unit_test(test_determinants),
        cmocka_unit_test(test_unpooling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
