#include "tests/on_cpu/kernel_rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/half.h"
#include "tests/on_cpu/cpu_launch.h"
#include "tests/rigs/seed.h"

#define MAX_TENSORS 32
#ifdef __SANITIZE_ADDRESS__
static const size_t guard_bytes = 0; /* the sanitizer watches the ends, reads too */
#else
static const size_t guard_bytes = 64;
#endif
#define GUARD 0xa5

static struct kernel_tensor tensors[MAX_TENSORS];
static int n_tensors;
static uint64_t random_state;

static int take_now(struct CUstream_st *stream, const struct cpu_work *work)
{
    (void)stream;
    cpu_run(work);
    return 0;
}

static struct CUstream_st stream = {take_now};
struct CUstream_st *const kernel_stream = &stream;

/* ---- random numbers --------------------------------------------------------------------------------- */

static uint64_t next(void)
{
    if (random_state == 0)
        random_state = seed_of_run(20260101);
    return seed_next(&random_state) * 0x2545f4914f6cdd1dull;
}

int64_t kernel_between(int64_t low, int64_t high)
{
    return low + (int64_t)((next() >> 11) % (uint64_t)(high - low + 1));
}

double kernel_uniform(void)
{
    return (double)(next() >> 11) * 0x1p-52 - 1;
}

enum sy_dtype kernel_float_type(void)
{
    static const enum sy_dtype types[] = {SY_DTYPE_F32, SY_DTYPE_BF16, SY_DTYPE_F16};
    return types[kernel_between(0, 2)];
}

/* ---- tensors ---------------------------------------------------------------------------------------- */

static size_t bytes_of(const struct kernel_tensor *t)
{
    return (size_t)t->n * sy_dtype_bytes(t->type);
}

struct kernel_tensor *kernel_tensor(enum sy_dtype type, int64_t n)
{
    assert_true(n_tensors < MAX_TENSORS);
    struct kernel_tensor *t = &tensors[n_tensors++];
    *t = (struct kernel_tensor){.type = type, .n = n};
    t->at = malloc(bytes_of(t) + guard_bytes + (n == 0));
    assert_non_null(t->at);
    t->device = (void *)((uintptr_t)t->at | CPU_MARK);
    memset(t->at, 0xff, bytes_of(t));
    for (size_t k = 0; k < guard_bytes; k++)
        ((uint8_t *)t->at)[bytes_of(t) + k] = GUARD;
    return t;
}

double kernel_get(const struct kernel_tensor *t, int64_t i)
{
    assert_true(i >= 0 && i < t->n);
    switch (t->type) {
    case SY_DTYPE_F16:
        return (double)sy_half_to_float(((const uint16_t *)t->at)[i]);
    case SY_DTYPE_BF16:
        return (double)sy_bf16_to_float(((const uint16_t *)t->at)[i]);
    case SY_DTYPE_F32:
        return (double)((const float *)t->at)[i];
    case SY_DTYPE_F64:
        return ((const double *)t->at)[i];
    case SY_DTYPE_I64:
        return (double)((const int64_t *)t->at)[i];
    case SY_DTYPE_I32:
        return (double)((const int32_t *)t->at)[i];
    default:
        return (double)((const uint8_t *)t->at)[i];
    }
}

void kernel_put(struct kernel_tensor *t, int64_t i, double value)
{
    assert_true(i >= 0 && i < t->n);
    switch (t->type) {
    case SY_DTYPE_F16:
        ((uint16_t *)t->at)[i] = sy_float_to_half((float)value);
        break;
    case SY_DTYPE_BF16:
        ((uint16_t *)t->at)[i] = sy_float_to_bf16((float)value);
        break;
    case SY_DTYPE_F32:
        ((float *)t->at)[i] = (float)value;
        break;
    case SY_DTYPE_F64:
        ((double *)t->at)[i] = value;
        break;
    case SY_DTYPE_I64:
        ((int64_t *)t->at)[i] = (int64_t)value;
        break;
    case SY_DTYPE_I32:
        ((int32_t *)t->at)[i] = (int32_t)value;
        break;
    default:
        ((uint8_t *)t->at)[i] = (uint8_t)value;
    }
}

static bool is_float(enum sy_dtype type)
{
    return type == SY_DTYPE_F32 || type == SY_DTYPE_F16 || type == SY_DTYPE_BF16 ||
           type == SY_DTYPE_F64;
}

struct kernel_tensor *kernel_random(enum sy_dtype type, int64_t n)
{
    struct kernel_tensor *t = kernel_tensor(type, n);
    for (int64_t i = 0; i < n; i++)
        kernel_put(t, i,
                   is_float(type)          ? 2 * kernel_uniform()
                   : type == SY_DTYPE_BOOL ? (double)kernel_between(0, 1)
                                           : (double)kernel_between(0, 9));
    return t;
}

struct kernel_tensor *kernel_odd(enum sy_dtype type, int64_t n)
{
    static const double odd[] = {NAN,  INFINITY, -INFINITY, -0.0, 0.0,  1e9,   -1e9,
                                 3e18, 1e19,     -1e19,     1e-8, 1e38, -1e38, 2147483648.0};
    struct kernel_tensor *t = kernel_random(type, n);
    for (int64_t i = 0; i < n && is_float(type); i++)
        if (kernel_between(0, 2) == 0)
            kernel_put(t, i, odd[kernel_between(0, (int64_t)(sizeof odd / sizeof *odd) - 1)]);
    for (int64_t i = 0; i < n && (type == SY_DTYPE_I64 || type == SY_DTYPE_I32); i++)
        kernel_put(t, i,
                   (double)kernel_between(-3000000, 3000000) * (type == SY_DTYPE_I64 ? 9e9 : 700));
    return t;
}

int kernel_end(void **state)
{
    (void)state;
    while (n_tensors > 0)
        free(tensors[--n_tensors].at);
    return 0;
}

/* ---- running ---------------------------------------------------------------------------------------- */

static void *copies_of(void)
{
    size_t all = 0, at = 0;
    for (int i = 0; i < n_tensors; i++)
        all += bytes_of(&tensors[i]);
    char *copies = malloc(all + 1);
    assert_non_null(copies);
    for (int i = 0; i < n_tensors; at += bytes_of(&tensors[i++]))
        memcpy(copies + at, tensors[i].at, bytes_of(&tensors[i]));
    return copies;
}

static void check_guards(void)
{
    for (int i = 0; i < n_tensors; i++)
        for (size_t k = 0; k < guard_bytes; k++)
            if (((uint8_t *)tensors[i].at)[bytes_of(&tensors[i]) + k] != GUARD)
                fail_msg("a kernel wrote behind the end of tensor %d", i);
}

void kernel_run(int (*launch)(void *arg), void *arg)
{
    char *before = copies_of(), *first = NULL;
    for (enum cpu_order order = CPU_FORWARD; order <= CPU_SHUFFLED; order++) {
        size_t at = 0;
        for (int i = 0; i < n_tensors; at += bytes_of(&tensors[i++]))
            memcpy(tensors[i].at, before + at, bytes_of(&tensors[i]));
        cpu_set_order(order);
        assert_int_equal(launch(arg), 0);
        check_guards();
        if (!first)
            first = copies_of();
        at = 0;
        for (int i = 0; i < n_tensors; at += bytes_of(&tensors[i++]))
            if (memcmp(tensors[i].at, first + at, bytes_of(&tensors[i])) != 0)
                fail_msg("tensor %d depends on the order of the threads", i);
    }
    cpu_set_order(CPU_FORWARD);
    free(before);
    free(first);
}

void kernel_compare(const struct kernel_tensor *t, int64_t i, double want, double scale)
{
    double got = kernel_get(t, i);
    double unit = t->type == SY_DTYPE_BF16  ? 1.0 / 200
                  : t->type == SY_DTYPE_F16 ? 1.0 / 1500
                                            : 2e-6;
    double least = t->type == SY_DTYPE_F16 ? 6e-8 : 2e-45; /* numbers around 0 are so far apart */
    double most = t->type == SY_DTYPE_F16 ? 65504 : 3.4e38;
    if (isnan(want) ? isnan(got)
        : fabs(want) > most * (1 - unit) && fabs(got) > most * (1 - 2 * unit)
            ? (want > 0) == (got > 0)
            : fabs(got - want) <= unit * (scale + fabs(want)) + least)
        return;
    fail_msg("element %lld: %.9g instead of %.9g", (long long)i, got, want);
}

/* ---- strides ---------------------------------------------------------------------------------------- */

void kernel_dims(int rank, int64_t most, int64_t *dims)
{
    for (int d = 0; d < rank; d++)
        dims[d] = kernel_between(0, 9) == 0 ? 1 : kernel_between(1, most);
    if (rank > 0 && kernel_between(0, 15) == 0)
        dims[kernel_between(0, rank - 1)] = 0;
}

int64_t kernel_elements(int rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= dims[d];
    return n;
}

void kernel_dense(int rank, const int64_t *dims, int64_t *strides)
{
    int64_t stride = 1;
    for (int d = rank - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= dims[d];
    }
}

int64_t kernel_offset(int64_t k, int rank, const int64_t *dims, const int64_t *strides)
{
    int64_t offset = 0;
    for (int d = rank - 1; d >= 0; d--) {
        offset += k % dims[d] * strides[d];
        k /= dims[d];
    }
    return offset;
}

int64_t kernel_broadcast(int rank, const int64_t *dims, int64_t *strides)
{
    int64_t n = 1;
    for (int d = rank - 1; d >= 0; d--) {
        bool repeats = kernel_between(0, 2) == 0;
        strides[d] = repeats ? 0 : n;
        n *= repeats ? 1 : dims[d];
    }
    return n;
}
