/* The host engine's remainders and logic against the C library's and the compiler's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/nets/kernel_case.h"
#include "tests/rigs/engine_rig.h"

static uint64_t seed;

/* ---- remainders ----------------------------------------------------------------------------------------- */

/* As the library's, to the bit, also where the quotient is too large to be taken in one step. */
static void test_remainders(void **state)
{
    static const float special[] = {0, -0.0f, 1, -1, 2.5f, 1e-45f, 3e38f, 1e9f, INFINITY, NAN, -7};
    enum { N = 400 };
    static float a[N], b[N], got[N];
    (void)state;
    for (int round = 0; round < 60; round++) {
        bool scalar = round % 3 == 0;
        for (int i = 0; i < N; i++) {
            int64_t pick = rig_int(&seed, 0, round % 2 ? 10 : 10000);
            a[i] = pick < 11 ? special[pick] : (float)rig_int(&seed, -100000, 100000) / 64;
            pick = rig_int(&seed, 0, round % 2 ? 10 : 10000);
            b[i] = pick < 11 ? special[pick] : (float)rig_int(&seed, -1000, 1000) / 256;
        }
        kernel_case = (struct kernel_case){
            .node = {.op = SY_OP_MOD, .name = "rest", .attrs = kernel_case.attrs}};
        kernel_case_attr((struct sy_attr){.name = "fmod", .kind = SY_ATTR_INT, .i = 1});
        kernel_case.call = (struct sy_call){.node = &kernel_case.node, .n_in = 2, .n_out = 1};
        kernel_case.call.in[0] = array_of(SY_DTYPE_F32, 2, (int64_t[]){4, N / 4}, a);
        kernel_case.call.in[1] = array_of(SY_DTYPE_F32, 1, (int64_t[]){scalar ? 1 : N / 4}, b);
        kernel_case.call.out[0] = array_of(SY_DTYPE_F32, 2, (int64_t[]){4, N / 4}, got);
        assert_int_equal(sy_kernel_find(SY_OP_MOD)->run(&kernel_case.call), SY_OK);
        for (int i = 0; i < N; i++) {
            float want = fmodf(a[i], b[scalar ? 0 : i % (N / 4)]);
            if (isnan(want) ? !isnan(got[i]) : memcmp(&want, &got[i], sizeof want) != 0)
                fail_msg("%a mod %a is %a", (double)a[i], (double)b[scalar ? 0 : i % (N / 4)],
                         (double)got[i]);
        }
    }
}

static bool logic_of(enum sy_op op, bool p, bool q)
{
    return op == SY_OP_AND ? p && q : op == SY_OP_OR ? p || q : p != q;
}

/* Rows, one value for a row and one for all; what is true need not be 1. */
static void test_logic(void **state)
{
    static const enum sy_op ops[] = {SY_OP_AND, SY_OP_OR, SY_OP_XOR};
    static uint8_t a[3 * 71], b[3 * 71], got[3 * 71];
    (void)state;
    for (int round = 0; round < 60; round++) {
        enum sy_op op = ops[round % 3];
        int64_t dims[2] = {rig_int(&seed, 0, 1) ? 3 : 1, rig_int(&seed, 0, 1) ? 71 : 1};
        for (int i = 0; i < 3 * 71; i++) {
            a[i] = (uint8_t)(rig_int(&seed, 0, 1) * 4);
            b[i] = (uint8_t)rig_int(&seed, 0, 2);
        }
        kernel_case =
            (struct kernel_case){.node = {.op = op, .name = "logic", .attrs = kernel_case.attrs}};
        kernel_case.call = (struct sy_call){.node = &kernel_case.node, .n_in = 2, .n_out = 1};
        kernel_case.call.in[0] = array_of(SY_DTYPE_BOOL, 2, (int64_t[]){3, 71}, a);
        kernel_case.call.in[1] = array_of(SY_DTYPE_BOOL, 2, dims, b);
        kernel_case.call.out[0] = array_of(SY_DTYPE_BOOL, 2, (int64_t[]){3, 71}, got);
        assert_int_equal(sy_kernel_find(op)->run(&kernel_case.call), SY_OK);
        for (int i = 0; i < 3 * 71; i++) {
            bool p = a[i], q = b[i / 71 % dims[0] * dims[1] + i % dims[1]];
            assert_int_equal(got[i], logic_of(op, p, q));
        }
    }
}

/* y: NULL, one input. */
static void run_pair(enum sy_op op, const struct sy_array *x, const struct sy_array *y,
                     struct sy_array out)
{
    kernel_case =
        (struct kernel_case){.node = {.op = op, .name = "pair", .attrs = kernel_case.attrs}};
    kernel_case.call = (struct sy_call){.node = &kernel_case.node, .n_in = y ? 2 : 1, .n_out = 1};
    kernel_case.call.in[0] = *x;
    if (y)
        kernel_case.call.in[1] = *y;
    kernel_case.call.out[0] = out;
    assert_int_equal(sy_kernel_find(op)->run(&kernel_case.call), SY_OK);
}

/* Dimensions of 1 anywhere on both sides, so that some go on by one step and others do not; whole, it is so large that threads share it. */
static void test_joined_dimensions(void **state)
{
    enum { RANK = 4, N = 3 * 5 * 71 * 17 }; /* above kernel_binary.c's PARALLEL_FROM */
    static const enum sy_op ops[] = {SY_OP_AND, SY_OP_OR, SY_OP_XOR};
    static const int64_t all[RANK] = {3, 5, 71, 17};
    static int32_t a[N], b[N], sums[N];
    static uint8_t p[N], q[N], both[N], not [N];
    (void)state;
    for (int i = 0; i < N; i++) {
        p[i] = (uint8_t)(a[i] = (int32_t)rig_int(&seed, 0, 2));
        q[i] = (uint8_t)(b[i] = (int32_t)rig_int(&seed, 0, 2));
    }
    for (int round = 0; round < 64; round++) {
        int64_t da[RANK], db[RANK], out[RANK], n = 1;
        enum sy_op op = ops[round % 3];
        bool whole = round < 6; /* one side, so that all of it is computed */
        for (int d = 0; d < RANK; d++) {
            da[d] = whole || rig_int(&seed, 0, 2) ? all[d] : 1;
            db[d] = rig_int(&seed, 0, 2) ? all[d] : 1;
            n *= out[d] = SY_MAX(da[d], db[d]);
        }
        const struct sy_array ins[] = {
            array_of(SY_DTYPE_I32, RANK, da, a), array_of(SY_DTYPE_I32, RANK, db, b),
            array_of(SY_DTYPE_BOOL, RANK, da, p), array_of(SY_DTYPE_BOOL, RANK, db, q)};
        run_pair(SY_OP_ADD, &ins[0], &ins[1], array_of(SY_DTYPE_I32, RANK, out, sums));
        run_pair(op, &ins[2], &ins[3], array_of(SY_DTYPE_BOOL, RANK, out, both));
        const struct sy_array turned = array_of(SY_DTYPE_BOOL, RANK, out, both);
        run_pair(SY_OP_NOT, &turned, NULL, array_of(SY_DTYPE_BOOL, RANK, out, not ));
        for (int64_t i = 0; i < n; i++) {
            int64_t ia = 0, ib = 0, rest = i, step_a = 1, step_b = 1;
            for (int d = RANK - 1; d >= 0; rest /= out[d], d--) {
                ia += da[d] > 1 ? rest % out[d] * step_a : 0;
                ib += db[d] > 1 ? rest % out[d] * step_b : 0;
                step_a *= da[d];
                step_b *= db[d];
            }
            assert_int_equal(sums[i], a[ia] + b[ib]);
            assert_int_equal(both[i], logic_of(op, p[ia], q[ib]));
            assert_int_equal(not [i], !both[i]);
        }
    }
}

int main(void)
{
    seed = rig_start();
    kernel_case_fill();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_remainders),
                                       cmocka_unit_test(test_logic),
                                       cmocka_unit_test(test_joined_dimensions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
