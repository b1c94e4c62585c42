/* Functions of one float against double, over all of them: errors, and what is no ordinary number. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "tests/rigs/engine_rig.h"
#include "workers/host/rows/curve_rows.h"

enum { STEP = 4099, COUNT = (1 << 20) + 17 };

static uint64_t seed;
static float in[COUNT], out[COUNT], again[COUNT];

static double ref_sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static double ref_softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double ref_mish(double x)
{
    return x * tanh(ref_softplus(x));
}

static double ref_swish(double x)
{
    return x * ref_sigmoid(x);
}

static double ref_elu(double x)
{
    return x < 0 ? expm1(x) : x;
}

static double ref_selu(double x)
{
    return 1.5 * (x < 0 ? 2 * expm1(x) : x);
}

static double ref_celu(double x)
{
    return x < 0 ? 0.5 * expm1(x / 0.5) : x;
}

static double ref_gelu(double x)
{
    return 0.5 * x * erfc(-x * 0.7071067811865476);
}

static double ref_relu(double x)
{
    return x < 0 ? 0 : x;
}

static double ref_sign(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : x;
}

static double ref_softsign(double x)
{
    return x / (1 + fabs(x));
}

static double ref_reciprocal(double x)
{
    return 1 / x;
}

static double ref_negative(double x)
{
    return -x;
}

static double ref_clip(double x)
{
    return x < -0.5 ? -0.5 : x > 2 ? 2 : x;
}

static double ref_hard_sigmoid(double x)
{
    return x * 0.25 + 0.5 < 0 ? 0 : x * 0.25 + 0.5 > 1 ? 1 : x * 0.25 + 0.5;
}

/* Errors in ulp of the result, and what is allowed besides (where terms cancel). */
static const struct {
    struct sy_curve curve;
    double (*ref)(double x);
    double ulp, besides;
} curves[] = {
    {{SY_OP_EXP, 0, 0, false}, exp, 2, 0},
    {{SY_OP_LOG, 0, 0, false}, log, 0.51, 0},
    {{SY_OP_TANH, 0, 0, false}, tanh, 4, 0},
    {{SY_OP_SIGMOID, 0, 0, false}, ref_sigmoid, 4, 0},
    {{SY_OP_ERF, 0, 0, false}, erf, 3, 0},
    {{SY_OP_SIN, 0, 0, false}, sin, 1, 0},
    {{SY_OP_COS, 0, 0, false}, cos, 1, 0},
    {{SY_OP_TAN, 0, 0, false}, tan, 1, 0},
    {{SY_OP_ATAN, 0, 0, false}, atan, 1, 0},
    {{SY_OP_SOFTPLUS, 0, 0, false}, ref_softplus, 3, 0},
    {{SY_OP_MISH, 0, 0, false}, ref_mish, 5, 1e-42},
    {{SY_OP_SWISH, 1, 0, false}, ref_swish, 5, 1e-42},
    {{SY_OP_ELU, 1, 0, false}, ref_elu, 3, 0},
    {{SY_OP_SELU, 2, 1.5f, false}, ref_selu, 4, 0},
    {{SY_OP_CELU, 0.5f, 0, false}, ref_celu, 4, 0},
    {{SY_OP_GELU, 0, 0, false}, ref_gelu, 4, 3e-7},
    {{SY_OP_RELU, 0, 0, false}, ref_relu, 0, 0},
    {{SY_OP_SIGN, 0, 0, false}, ref_sign, 0, 0},
    {{SY_OP_SOFTSIGN, 0, 0, false}, ref_softsign, 2, 0},
    {{SY_OP_RECIPROCAL, 0, 0, false}, ref_reciprocal, 0.5, 0},
    {{SY_OP_SQRT, 0, 0, false}, sqrt, 0.5, 0},
    {{SY_OP_NEG, 0, 0, false}, ref_negative, 0, 0},
    {{SY_OP_ABS, 0, 0, false}, fabs, 0, 0},
    {{SY_OP_FLOOR, 0, 0, false}, floor, 0, 0},
    {{SY_OP_CEIL, 0, 0, false}, ceil, 0, 0},
    {{SY_OP_ROUND, 0, 0, false}, nearbyint, 0, 0},
    {{SY_OP_CLIP, -0.5f, 2, false}, ref_clip, 0, 0},
    {{SY_OP_HARD_SIGMOID, 0.25f, 0.5f, false}, ref_hard_sigmoid, 1, 0},
};

/* From the float next to |x| toward zero. */
static double ulp_of(double x)
{
    float size = fabsf((float)x);
    return size == 0 || size == INFINITY ? 1.4e-45 : (double)size - (double)nextafterf(size, 0);
}

static void check_one(size_t k, float x, float y)
{
    double want = curves[k].ref((double)x);
    const char *name = sy_op_name(curves[k].curve.op);
    if (isnan(want) || isinf((float)want) || isinf(y)) {
        bool same = isnan(want) ? isnan(y) : (double)y == (double)(float)want;
        bool brim = isinf(y) != isinf((float)want) && fabs(want) > 3.4028e38;
        if (!same && !brim)
            fail_msg("%s(%a) is %a, not %a", name, (double)x, (double)y, want);
        return;
    }
    double error = fabs((double)y - want), most = curves[k].ulp * ulp_of(want) + curves[k].besides;
    if (!(error <= most + 1e-45))
        fail_msg("%s(%a = %.9g) is %.9g, not %.9g: %.2f ulp", name, (double)x, (double)x, (double)y,
                 want, error / ulp_of(want));
}

/* Every 4099th float, and those that are particular. */
static void test_errors(void **state)
{
    static const float special[] = {NAN,    INFINITY, -INFINITY, 0.0f,  -0.0f,  1e-45f,  -1e-45f,
                                    1e-38f, 1,        -1,        0.9f,  -0.9f,  88.7f,   -88.7f,
                                    89.0f,  -104.0f,  1e6f,      -1e6f, 1.1e6f, 3.4e38f, -3.4e38f};
    (void)state;
    uint32_t bits = (uint32_t)rig_int(&seed, 0, STEP - 1);
    for (int i = 0; i < COUNT; i++, bits += STEP)
        memcpy(&in[i], &bits, sizeof bits);
    memcpy(in, special, sizeof special);
    for (size_t k = 0; k < SY_ARRAY_LEN(curves); k++) {
        assert_true(sy_curve_rows_has(&curves[k].curve));
        sy_curve_rows(&curves[k].curve, COUNT, in, out);
        for (int i = 0; i < COUNT; i++)
            check_one(k, in[i], out[i]);
    }
}

/* Where results are ordinary: bits of all floats lie mostly elsewhere. */
static void test_errors_around_zero(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)(rig_int(&seed, -1000000, 1000000)) * 1.0000213e-5f;
    for (size_t k = 0; k < SY_ARRAY_LEN(curves); k++) {
        sy_curve_rows(&curves[k].curve, COUNT, in, out);
        for (int i = 0; i < COUNT; i++)
            check_one(k, in[i], out[i]);
    }
}

/* Over the input, in pieces of any length, none, one: the same bits. */
static void test_pieces(void **state)
{
    (void)state;
    const int n = 40000;
    for (size_t k = 0; k < SY_ARRAY_LEN(curves); k++) {
        sy_curve_rows(&curves[k].curve, n, in, out);
        memcpy(again, in, sizeof in);
        for (int64_t i = 0, length; i < n; i += length) {
            length = rig_int(&seed, 0, 1) ? rig_int(&seed, 0, 1) : rig_int(&seed, 0, 99);
            length = length < n - i ? length : n - i;
            sy_curve_rows(&curves[k].curve, length, again + i, again + i);
        }
        for (int i = 0; i < n; i++)
            if (memcmp(&out[i], &again[i], sizeof *out) && !isnan(out[i]))
                fail_msg("%s(%a) is %a and %a", sy_op_name(curves[k].curve.op), (double)in[i],
                         (double)out[i], (double)again[i]);
    }
}

/* Zeros keep their sign where the function does. */
static void test_zeros(void **state)
{
    static const enum sy_op odd[] = {
        SY_OP_TANH, SY_OP_ERF,  SY_OP_ATAN, SY_OP_SIN,   SY_OP_TAN,  SY_OP_SIGN, SY_OP_SOFTSIGN,
        SY_OP_ELU,  SY_OP_SELU, SY_OP_CELU, SY_OP_ROUND, SY_OP_SQRT, SY_OP_RELU};
    (void)state;
    for (size_t k = 0; k < SY_ARRAY_LEN(odd); k++) {
        const struct sy_curve c = {.op = odd[k], .a = 1, .b = 1};
        float zeros[] = {-0.0f, 0.0f}, y[2];
        sy_curve_rows(&c, 2, zeros, y);
        if (y[0] != 0 || y[1] != 0 || !signbit(y[0]) || signbit(y[1]))
            fail_msg("%s of -0 and 0 is %g and %g", sy_op_name(odd[k]), (double)y[0], (double)y[1]);
    }
}

static void test_is(void **state)
{
    const float x[] = {NAN, -NAN, INFINITY, -INFINITY, 0, 3.4e38f, 1e-45f};
    uint8_t y[7];
    (void)state;
    sy_curve_is_nan(7, x, y);
    assert_memory_equal(y, ((uint8_t[]){1, 1, 0, 0, 0, 0, 0}), 7);
    sy_curve_is_infinite(true, true, 7, x, y);
    assert_memory_equal(y, ((uint8_t[]){0, 0, 1, 1, 0, 0, 0}), 7);
    sy_curve_is_infinite(false, true, 7, x, y);
    assert_memory_equal(y, ((uint8_t[]){0, 0, 0, 1, 0, 0, 0}), 7);
    sy_curve_is_infinite(true, false, 7, x, y);
    assert_memory_equal(y, ((uint8_t[]){0, 0, 1, 0, 0, 0, 0}), 7);
}

/* ONNX: x + bias below -lambd, x - bias above lambd, else 0. So of NaN, which is neither; and a negative lambd leaves nothing between. */
static void test_shrink(void **state)
{
    const float x[] = {NAN, -2, -1, 0.5f, 1, 3}, wanted[] = {0, -1.75f, 0, 0, 0, 2.75f},
                negative[] = {-1, 0.5f}, one_side[] = {-0.75f, 0.75f};
    struct sy_curve c = {.op = SY_OP_SHRINK, .a = 1, .b = 0.25};
    float y[6];
    (void)state;
    for (int lambd = 1; lambd >= -1; lambd -= 2) {
        int n = lambd > 0 ? 6 : 2;
        const float *from = lambd > 0 ? x : negative, *to = lambd > 0 ? wanted : one_side;
        c.a = lambd;
        sy_curve_rows(&c, n, from, y);
        for (int i = 0; i < n; i++)
            if (y[i] != to[i] || sy_curve_at(&c, from[i]) != to[i])
                fail_msg("Shrink of %g with %d: %g, %g", (double)from[i], lambd, (double)y[i],
                         sy_curve_at(&c, from[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors), cmocka_unit_test(test_errors_around_zero),
        cmocka_unit_test(test_pieces), cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_is),     cmocka_unit_test(test_shrink),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
