/* Elementwise chains on CUDA, run on the CPU, against their definition in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/on_cpu/kernel_rig.h"
#include "workers/cuda/kernels/kernels.h"

#define ROUNDS 60

/* ---- chains ------------------------------------------------------------------------------------------ */

struct chain_case {
    struct sy_math_chain chain;
    struct kernel_tensor *in[SY_MATH_CHAIN_IN], *out;
    int64_t skipped; /* elements in front of input 0 */
};

static int launch_chain(void *arg)
{
    struct chain_case *c = arg;
    const void *in[SY_MATH_CHAIN_IN] = {0};
    for (int i = 0; i < c->chain.n_inputs; i++)
        in[i] = c->in[i]->device;
    in[0] = (const char *)in[0] + c->skipped * (int64_t)sy_dtype_bytes(c->in[0]->type);
    return sy_kernel_chain(kernel_stream, &c->chain, in, c->out->device);
}

static double unary(const struct sy_math_chain_step *s, double x)
{
    double alpha = (double)s->alpha, linear = alpha * x + (double)s->beta;
    switch ((enum sy_math_chain_code)s->code) {
    case SY_CHAIN_LEAKY:
        return x >= 0 || isnan(x) ? x : s->alpha == 0 ? 0 : alpha * x;
    case SY_CHAIN_SIGMOID:
        return 1 / (1 + exp(-x));
    case SY_CHAIN_TANH:
        return tanh(x);
    case SY_CHAIN_CLIP:
        return x < alpha ? alpha : x > (double)s->beta ? (double)s->beta : x;
    case SY_CHAIN_ELU:
        return x < 0 ? alpha * expm1(x) : x;
    case SY_CHAIN_EXP:
        return exp(x);
    case SY_CHAIN_LOG:
        return log(x);
    case SY_CHAIN_SQRT:
        return sqrt(x);
    case SY_CHAIN_ABS:
        return fabs(x);
    case SY_CHAIN_LINEAR:
        return linear;
    case SY_CHAIN_RECIPROCAL:
        return 1 / x;
    case SY_CHAIN_GELU_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case SY_CHAIN_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case SY_CHAIN_ERF:
        return erf(x);
    case SY_CHAIN_HARD_SIGMOID:
        return fmax(0, fmin(1, linear));
    case SY_CHAIN_HARD_SWISH:
        return x * fmax(0, fmin(1, x / 6 + 0.5));
    default:
        fail_msg("code %d", (int)s->code);
        return 0;
    }
}

static double gelu_slope(double x, bool by_tanh)
{
    struct sy_math_chain_step s = {.code = by_tanh ? SY_CHAIN_GELU_TANH : SY_CHAIN_GELU_ERF};
    return (unary(&s, x + 1e-6) - unary(&s, x - 1e-6)) / 2e-6;
}

static double chain_value(const struct sy_math_chain_step *s, double x, double y)
{
    switch ((enum sy_math_chain_code)s->code) {
    case SY_CHAIN_LOAD:
        return y;
    case SY_CHAIN_ADD:
        return x + y;
    case SY_CHAIN_SUB:
        return x - y;
    case SY_CHAIN_MUL:
        return x * y;
    case SY_CHAIN_DIV:
        return x / y;
    case SY_CHAIN_POW:
        return pow(x, y);
    case SY_CHAIN_MAX:
        return isnan(x) ? x : x > y ? x : y;
    case SY_CHAIN_MIN:
        return isnan(x) ? x : x < y ? x : y;
    case SY_CHAIN_MUL_RSQRT:
        return x / sqrt(y + (double)s->alpha);
    case SY_CHAIN_GRAD_LEAKY:
        return y > 0 ? x : (double)s->alpha * x;
    case SY_CHAIN_GRAD_SIGMOID:
        return x * y * (1 - y);
    case SY_CHAIN_GRAD_TANH:
        return x * (1 - y * y);
    case SY_CHAIN_GRAD_ELU:
        return y > 0 ? x : x * (y + (double)s->alpha);
    case SY_CHAIN_GRAD_GELU_ERF:
    case SY_CHAIN_GRAD_GELU_TANH:
        return x * gelu_slope(y, s->code == SY_CHAIN_GRAD_GELU_TANH);
    case SY_CHAIN_GRAD_HARD_SWISH:
        return y <= -3 ? 0 : y >= 3 ? x : x * (y / 3 + 0.5);
    case SY_CHAIN_GRAD_CLIP:
        return y > (double)s->alpha && y < (double)s->beta ? x : 0;
    default:
        return unary(s, x);
    }
}

static int64_t integer_value(int32_t code, int64_t x, int64_t y)
{
    switch ((enum sy_math_chain_code)code) {
    case SY_CHAIN_ADD:
        return (int64_t)((uint64_t)x + (uint64_t)y);
    case SY_CHAIN_SUB:
        return (int64_t)((uint64_t)x - (uint64_t)y);
    case SY_CHAIN_MUL:
        return (int64_t)((uint64_t)x * (uint64_t)y);
    case SY_CHAIN_DIV:
        return y == 0 ? 0 : x / y;
    case SY_CHAIN_MAX:
        return x > y ? x : y;
    case SY_CHAIN_MIN:
        return x < y ? x : y;
    default:
        return y;
    }
}

/* What runs four elements a thread, and what is next to it: rows of columns. */
static void rows_of_columns(struct sy_math_chain *c)
{
    c->rank = (int)kernel_between(1, 2);
    kernel_dims(c->rank, 40, c->dims);
    if (c->dims[c->rank - 1] > 0 && kernel_between(0, 3) > 0)
        c->dims[c->rank - 1] = (c->dims[c->rank - 1] + 3) / 4 * 4;
}

/* Layouts for every array; input 0 may be laid out as it likes too. */
static void make_arrays(struct chain_case *c, bool odd)
{
    struct sy_math_chain *m = &c->chain;
    bool permuted = m->rank > 1 && kernel_between(0, 3) == 0;
    kernel_dense(m->rank, m->dims, m->out_strides);
    if (permuted) { /* the first dimension lies innermost */
        m->out_strides[0] = 1;
        kernel_dense(m->rank - 1, m->dims + 1, m->out_strides + 1);
        for (int d = 1; d < m->rank; d++)
            m->out_strides[d] *= m->dims[0];
    }
    for (int i = 0; i < m->n_inputs; i++) {
        int64_t n = kernel_broadcast(m->rank, m->dims, m->in_strides[i]);
        enum sy_dtype type = m->in_types[i] ? m->in_types[i] : m->dtype;
        c->in[i] = odd ? kernel_odd(type, n) : kernel_random(type, n);
    }
    c->out = kernel_tensor(m->out_type ? m->out_type : m->dtype, kernel_elements(m->rank, m->dims));
}

static void check_chain(struct chain_case *c, double scale)
{
    const struct sy_math_chain *m = &c->chain;
    kernel_run(launch_chain, c);
    for (int64_t k = 0; k < kernel_elements(m->rank, m->dims); k++) {
        double x = 0;
        int64_t integer = 0, at = kernel_offset(k, m->rank, m->dims, m->out_strides);
        for (int s = 0; s < m->n_steps; s++) {
            const struct sy_math_chain_step *step = &m->steps[s];
            int64_t from = kernel_offset(k, m->rank, m->dims, m->in_strides[step->input]) +
                           (step->input == 0 ? c->skipped : 0);
            double y =
                step->code <= SY_CHAIN_LAST_OPERAND ? kernel_get(c->in[step->input], from) : 0;
            if (m->dtype == SY_DTYPE_F32)
                x = chain_value(step, x, y);
            else
                integer = integer_value(step->code, integer, (int64_t)y);
        }
        if (m->dtype == SY_DTYPE_I32)
            assert_int_equal(((int32_t *)c->out->at)[at], (int32_t)integer);
        else if (m->dtype == SY_DTYPE_I64)
            assert_int_equal(((int64_t *)c->out->at)[at], integer);
        else
            kernel_compare(c->out, at, x, scale);
    }
}

/* Each code, all layouts and types. */
static void test_chain_codes(void **state)
{
    for (int code = 0; code <= SY_CHAIN_HARD_SWISH; code++)
        for (int round = 0; round < 16; round++) {
            struct chain_case c = {.chain = {.dtype = SY_DTYPE_F32, .n_inputs = 2, .n_steps = 2}};
            if (round % 2)
                rows_of_columns(&c.chain);
            else
                kernel_dims(c.chain.rank = (int)kernel_between(0, 4), 6, c.chain.dims);
            for (int i = 0; i < 2; i++)
                c.chain.in_types[i] = round % 4 > 1 ? kernel_float_type() : SY_DTYPE_F32;
            c.chain.out_type = round % 4 > 1 ? kernel_float_type() : SY_DTYPE_F32;
            c.chain.steps[0] = (struct sy_math_chain_step){.code = SY_CHAIN_LOAD};
            c.chain.steps[1] = (struct sy_math_chain_step){
                .code = code, .input = 1, .alpha = round == 0 ? 0 : 0.25f, .beta = 0.75f};
            make_arrays(&c, false);
            check_chain(&c, 4);
            kernel_end(state);
        }
}

static void test_chains_of_all_lengths(void **state)
{
    static const int32_t codes[] = {SY_CHAIN_ADD, SY_CHAIN_SUB, SY_CHAIN_MUL,
                                    SY_CHAIN_MAX, SY_CHAIN_MIN, SY_CHAIN_DIV};
    static const enum sy_dtype dtypes[] = {SY_DTYPE_F32, SY_DTYPE_I32, SY_DTYPE_I64};
    for (int round = 0; round < ROUNDS; round++) {
        struct chain_case c = {.chain = {.dtype = dtypes[round % 3],
                                         .n_inputs = (int)kernel_between(1, SY_MATH_CHAIN_IN),
                                         .n_steps = (int)kernel_between(1, SY_MATH_CHAIN_STEP)}};
        bool is_float = c.chain.dtype == SY_DTYPE_F32;
        rows_of_columns(&c.chain);
        for (int s = 0; s < c.chain.n_steps; s++)
            c.chain.steps[s] = (struct sy_math_chain_step){
                .code = s == 0 ? SY_CHAIN_LOAD : codes[kernel_between(0, is_float ? 4 : 5)],
                .input = (int32_t)kernel_between(0, c.chain.n_inputs - 1)};
        make_arrays(&c, false);
        check_chain(&c, 100);
        kernel_end(state);
    }
}

/* Rows of columns that are not side by side, in the result or in an input, or that begin where four at once may not. */
static void test_rows_that_lie_apart(void **state)
{
    for (int round = 0; round < 24; round++) {
        struct chain_case c = {.chain = {.dtype = SY_DTYPE_F32,
                                         .rank = 2,
                                         .n_inputs = 2,
                                         .n_steps = 2,
                                         .dims = {5, 8},
                                         .out_strides = {8 + round % 3 * 4, 1},
                                         .in_strides = {{8 + round / 3 % 4 * 3, 1}, {0, 1}}},
                               .skipped = round / 12};
        for (int i = 0; i < 2; i++)
            c.chain.in_types[i] = kernel_float_type();
        c.chain.out_type = kernel_float_type();
        c.chain.steps[0] = (struct sy_math_chain_step){.code = SY_CHAIN_LOAD};
        c.chain.steps[1] = (struct sy_math_chain_step){.code = SY_CHAIN_ADD, .input = 1};
        c.in[0] = kernel_random(c.chain.in_types[0], 5 * c.chain.in_strides[0][0] + c.skipped);
        c.in[1] = kernel_random(c.chain.in_types[1], 8);
        c.out = kernel_tensor(c.chain.out_type, 5 * c.chain.out_strides[0]);
        check_chain(&c, 4);
        kernel_end(state);
    }
}

/* NaN passes, infinity and -0 are what they are, in the wide and the narrow way. */
static void test_chain_odd_numbers(void **state)
{
    static const int32_t codes[] = {SY_CHAIN_LOAD, SY_CHAIN_ADD, SY_CHAIN_MUL,  SY_CHAIN_MAX,
                                    SY_CHAIN_MIN,  SY_CHAIN_ABS, SY_CHAIN_CLIP, SY_CHAIN_LEAKY,
                                    SY_CHAIN_TANH, SY_CHAIN_DIV, SY_CHAIN_ERF};
    for (int round = 0; round < ROUNDS; round++) {
        int32_t code = codes[round % (int)(sizeof codes / sizeof *codes)];
        struct chain_case c = {.chain = {.dtype = SY_DTYPE_F32, .n_inputs = 2, .n_steps = 2}};
        rows_of_columns(&c.chain);
        c.chain.steps[0] = (struct sy_math_chain_step){.code = SY_CHAIN_LOAD};
        c.chain.steps[1] = (struct sy_math_chain_step){
            .code = code, .input = 1, .alpha = round % 2 ? 0 : 0.5f, .beta = 0.75f};
        make_arrays(&c, true);
        check_chain(&c, 0);
        for (int64_t k = 0; k < c.out->n && code == SY_CHAIN_TANH; k++) {
            int rank = c.chain.rank;
            double x =
                kernel_get(c.in[0], kernel_offset(k, rank, c.chain.dims, c.chain.in_strides[0]));
            int64_t at = kernel_offset(k, rank, c.chain.dims, c.chain.out_strides);
            assert_int_equal(!signbit(kernel_get(c.out, at)) || isnan(x), !signbit(x) || isnan(x));
        }
        kernel_end(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_chain_codes, kernel_end),
        cmocka_unit_test_teardown(test_chains_of_all_lengths, kernel_end),
        cmocka_unit_test_teardown(test_rows_that_lie_apart, kernel_end),
        cmocka_unit_test_teardown(test_chain_odd_numbers, kernel_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
