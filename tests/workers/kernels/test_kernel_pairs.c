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
            assert_int_equal(got[i], op == SY_OP_AND ? p && q : op == SY_OP_OR ? p || q : p != q);
        }
    }
}

int main(void)
{
    seed = rig_start();
    kernel_case_fill();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_remainders),
                                       cmocka_unit_test(test_logic)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
