#include "workers/host/rows/elementwise.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/pair_formulas.h"
#include "workers/host/base/clones.h"
#include "workers/host/rows/pair_rows.h"

#define FEW_ROWS      64    /* fewer are cut */
#define PARALLEL_FROM 16384 /* elements; below it waking the threads costs more than they save */

#define FLAT(name, expression)                                                              \
    SY_CLONES static void name(int64_t n, const float *restrict a, const float *restrict b, \
                               float *out)                                                  \
    {                                                                                       \
        for (int64_t i = 0; i < n; i++)                                                     \
            out[i] = (expression);                                                          \
    }
FLAT(flat_add, a[i] + b[i])
FLAT(flat_sub, a[i] - b[i])
FLAT(flat_mul, a[i] * b[i])
FLAT(flat_div, a[i] / b[i])
FLAT(flat_max, a[i] > b[i] || a[i] != a[i] ? a[i] : b[i]) /* NaN goes on */
FLAT(flat_min, a[i] < b[i] || a[i] != a[i] ? a[i] : b[i])
FLAT(flat_prelu, a[i] < 0 ? a[i] * b[i] : a[i])
FLAT(scalar_add, a[i] + b[0])
FLAT(scalar_sub, a[i] - b[0])
FLAT(scalar_mul, a[i] * b[0])
FLAT(scalar_div, a[i] / b[0])
FLAT(scalar_max, a[i] > b[0] || a[i] != a[i] ? a[i] : b[0])
FLAT(scalar_min, a[i] < b[0] || a[i] != a[i] ? a[i] : b[0])
FLAT(scalar_prelu, a[i] < 0 ? a[i] * b[0] : a[i])
FLAT(left_sub, a[0] - b[i])
FLAT(left_div, a[0] / b[i])
FLAT(left_max, a[0] > b[i] || a[0] != a[0] ? a[0] : b[i])
FLAT(left_min, a[0] < b[i] || a[0] != a[0] ? a[0] : b[i])
FLAT(left_prelu, a[0] < 0 ? a[0] * b[i] : a[0])

SY_CLONES static void divide_block(int64_t n, float by, float *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] /= by;
}

SY_CLONES static void square(int64_t n, const float *restrict a, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] * a[i];
}

SY_CLONES static void cube(int64_t n, const float *restrict a, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] * a[i] * a[i];
}

static void scalar_pow(int64_t n, const float *restrict a, const float *restrict b, float *out)
{
    if (b[0] == 2)
        square(n, a, out);
    else if (b[0] == 3)
        cube(n, a, out);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = powf(a[i], b[0]);
}

typedef void (*flat_fn)(int64_t n, const float *restrict a, const float *restrict b, float *out);

static flat_fn flat_function(int64_t op)
{
    switch (op) {
    case SY_OP_ADD:
        return flat_add;
    case SY_OP_SUB:
        return flat_sub;
    case SY_OP_MUL:
        return flat_mul;
    case SY_OP_DIV:
        return flat_div;
    case SY_OP_MAX:
        return flat_max;
    case SY_OP_MIN:
        return flat_min;
    case SY_OP_PRELU:
        return flat_prelu;
    default:
        return NULL;
    }
}

static flat_fn scalar_function(int64_t op)
{
    switch (op) {
    case SY_OP_ADD:
        return scalar_add;
    case SY_OP_SUB:
        return scalar_sub;
    case SY_OP_MUL:
        return scalar_mul;
    case SY_OP_DIV:
        return scalar_div;
    case SY_OP_POW:
        return scalar_pow;
    case SY_OP_MAX:
        return scalar_max;
    case SY_OP_MIN:
        return scalar_min;
    case SY_OP_PRELU:
        return scalar_prelu;
    default:
        return NULL;
    }
}

/* One number on the left. */
static flat_fn left_function(int64_t op)
{
    switch (op) {
    case SY_OP_SUB:
        return left_sub;
    case SY_OP_DIV:
        return left_div;
    case SY_OP_MAX:
        return left_max;
    case SY_OP_MIN:
        return left_min;
    case SY_OP_PRELU:
        return left_prelu;
    default:
        return NULL;
    }
}

void sy_elementwise_flat(enum sy_op op, int64_t n, const float *a, const float *b, float *out)
{
    flat_fn fn = flat_function(op);
    int64_t block = PARALLEL_FROM;
#pragma omp parallel for schedule(static) if (n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i += block)
        fn(n - i < block ? n - i : block, a + i, b + i, out + i);
}

void sy_elementwise_divide(int64_t n, float by, float *x)
{
    int64_t block = PARALLEL_FROM;
#pragma omp parallel for schedule(static) if (n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i += block)
        divide_block(n - i < block ? n - i : block, by, x + i);
}

#define PIECE 512 /* of numbers made wide: two and the result stay in the first cache */

SY_CLONES void sy_elementwise_widen(int64_t n, const uint16_t *from, float *to)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
}

SY_CLONES void sy_elementwise_narrow(int64_t n, const float *from, uint16_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
        to[i] = (uint16_t)(is_nan ? bits >> 16 | 0x40 : rounded);
    }
}

void sy_elementwise_flat_narrow(enum sy_op op, int64_t n, const uint16_t *a, const uint16_t *b,
                                uint16_t *out)
{
    flat_fn fn = flat_function(op);
#pragma omp parallel for schedule(static) if (n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i += PIECE) {
        float x[PIECE], y[PIECE];
        int64_t count = n - i < PIECE ? n - i : PIECE;
        sy_elementwise_widen(count, a + i, x);
        sy_elementwise_widen(count, b + i, y);
        fn(count, x, y, x);
        sy_elementwise_narrow(count, x, out + i);
    }
}

/* ---- broadcasting --------------------------------------------------------------------------------------- */

static float binary_float(int64_t op, float a, float b)
{
    switch (op) {
    case SY_OP_ADD:
        return a + b;
    case SY_OP_SUB:
        return a - b;
    case SY_OP_MUL:
        return a * b;
    case SY_OP_DIV:
        return a / b;
    case SY_OP_POW:
        return b == 2 ? a * a : b == 3 ? a * a * a : powf(a, b);
    case SY_OP_MAX:
        return a > b || a != a ? a : b; /* NaN goes on */
    case SY_OP_MIN:
        return a < b || a != a ? a : b;
    case SY_OP_PRELU:
        return a < 0 ? a * b : a;
    default:
        return 0;
    }
}

bool sy_elementwise_compares(enum sy_op op)
{
    return op == SY_OP_EQUAL || op == SY_OP_LESS || op == SY_OP_LESS_OR_EQUAL ||
           op == SY_OP_GREATER || op == SY_OP_GREATER_OR_EQUAL;
}

bool sy_elementwise_supports(const struct sy_broadcast *b)
{
    switch (b->op) {
    case SY_OP_WHERE:
    case SY_OP_IDENTITY:
        return sy_dtype_bytes((enum sy_dtype)b->dtype) > 0;
    default:
        return (b->op == SY_OP_EQUAL && b->dtype == SY_DTYPE_BOOL) || b->dtype == SY_DTYPE_F32 ||
               b->dtype == SY_DTYPE_F64 || b->dtype == SY_DTYPE_I32 || b->dtype == SY_DTYPE_I64;
    }
}

/* Element `i` of a row; rows of the last dimension are walked with the inputs' last strides. */
static void one_element(const struct sy_broadcast *b, const void *const *in, const int64_t *at,
                        void *out, int64_t to)
{
    size_t bytes = sy_dtype_bytes((enum sy_dtype)b->dtype);
    struct sy_pair_rules rules = {.op = (enum sy_op)b->op};
    if (b->op == SY_OP_IDENTITY) {
        memcpy((char *)out + (size_t)to * bytes, (const char *)in[0] + (size_t)at[0] * bytes,
               bytes);
    } else if (b->op == SY_OP_WHERE) {
        int pick = ((const uint8_t *)in[0])[at[0]] ? 1 : 2;
        memcpy((char *)out + (size_t)to * bytes, (const char *)in[pick] + (size_t)at[pick] * bytes,
               bytes);
    } else if (b->dtype == SY_DTYPE_F32) {
        ((float *)out)[to] =
            binary_float(b->op, ((const float *)in[0])[at[0]], ((const float *)in[1])[at[1]]);
    } else if (b->dtype == SY_DTYPE_F64) {
        ((double *)out)[to] = sy_pair_of_floats(&rules, ((const double *)in[0])[at[0]],
                                                ((const double *)in[1])[at[1]]);
    } else if (b->dtype == SY_DTYPE_I64) {
        ((int64_t *)out)[to] = sy_pair_of_integers(&rules, ((const int64_t *)in[0])[at[0]],
                                                   ((const int64_t *)in[1])[at[1]]);
    } else {
        ((int32_t *)out)[to] = (int32_t)sy_pair_of_integers(&rules, ((const int32_t *)in[0])[at[0]],
                                                            ((const int32_t *)in[1])[at[1]]);
    }
}

#define COMPARE(name, type)                                                                       \
    SY_CLONES static void name(int64_t op, int64_t n, const type *a, int64_t of_a, const type *b, \
                               int64_t of_b, uint8_t *out)                                        \
    {                                                                                             \
        for (int64_t i = 0; op == SY_OP_EQUAL && i < n; i++)                                      \
            out[i] = a[i * of_a] == b[i * of_b];                                                  \
        for (int64_t i = 0; op == SY_OP_LESS && i < n; i++)                                       \
            out[i] = a[i * of_a] < b[i * of_b];                                                   \
        for (int64_t i = 0; op == SY_OP_LESS_OR_EQUAL && i < n; i++)                              \
            out[i] = a[i * of_a] <= b[i * of_b];                                                  \
        for (int64_t i = 0; op == SY_OP_GREATER && i < n; i++)                                    \
            out[i] = a[i * of_a] > b[i * of_b];                                                   \
        for (int64_t i = 0; op == SY_OP_GREATER_OR_EQUAL && i < n; i++)                           \
            out[i] = a[i * of_a] >= b[i * of_b];                                                  \
    }
COMPARE(compare_floats, float)
COMPARE(compare_doubles, double)
COMPARE(compare_int32s, int32_t)
COMPARE(compare_int64s, int64_t)
COMPARE(compare_bools, uint8_t)

static bool compared_row(const struct sy_broadcast *b, const void *const *in, const int64_t *at,
                         uint8_t *out, int64_t n)
{
    int64_t last = b->rank - 1, of_a = last < 0 ? 0 : b->strides[0][last],
            of_b = last < 0 ? 0 : b->strides[1][last];
    if (!sy_elementwise_compares((enum sy_op)b->op))
        return false;
    if (b->dtype == SY_DTYPE_F32)
        compare_floats(b->op, n, (const float *)in[0] + at[0], of_a, (const float *)in[1] + at[1],
                       of_b, out);
    else if (b->dtype == SY_DTYPE_F64)
        compare_doubles(b->op, n, (const double *)in[0] + at[0], of_a,
                        (const double *)in[1] + at[1], of_b, out);
    else if (b->dtype == SY_DTYPE_I32)
        compare_int32s(b->op, n, (const int32_t *)in[0] + at[0], of_a,
                       (const int32_t *)in[1] + at[1], of_b, out);
    else if (b->dtype == SY_DTYPE_I64)
        compare_int64s(b->op, n, (const int64_t *)in[0] + at[0], of_a,
                       (const int64_t *)in[1] + at[1], of_b, out);
    else
        compare_bools(b->op, n, (const uint8_t *)in[0] + at[0], of_a,
                      (const uint8_t *)in[1] + at[1], of_b, out);
    return true;
}

/* A row of floats with unit or zero strides runs vectorised. */
static bool fast_row(const struct sy_broadcast *b, const void *const *in, const int64_t *at,
                     float *out, int64_t to, int64_t n)
{
    int64_t last = b->rank - 1;
    if (b->dtype != SY_DTYPE_F32 || b->n_inputs != 2 || b->rank < 1)
        return false;
    const float *x = (const float *)in[0] + at[0], *y = (const float *)in[1] + at[1];
    bool is_left = b->strides[0][last] == 0 && b->strides[1][last] == 1,
         commutes = b->op == SY_OP_ADD || b->op == SY_OP_MUL;
    if ((b->strides[0][last] != 1 && !is_left) || b->strides[1][last] > 1)
        return false;
    flat_fn fn = is_left ? (commutes ? scalar_function(b->op) : left_function(b->op))
                 : b->strides[1][last] == 1 ? flat_function(b->op)
                                            : scalar_function(b->op);
    if (!fn)
        return false;
    fn(n, is_left && commutes ? y : x, is_left && commutes ? x : y, out + to);
    return true;
}

/* A row of other numbers. */
static bool pair_row(const struct sy_broadcast *b, const void *const *in, const int64_t *at,
                     char *out, int64_t n)
{
    size_t bytes = sy_dtype_bytes((enum sy_dtype)b->dtype);
    int64_t last = b->rank - 1;
    return b->n_inputs == 2 && last >= 0 &&
           sy_pair_row((enum sy_op)b->op, (enum sy_dtype)b->dtype, n,
                       (const char *)in[0] + (size_t)at[0] * bytes, b->strides[0][last],
                       (const char *)in[1] + (size_t)at[1] * bytes, b->strides[1][last], out);
}

#define CHOSEN(name, type)                                                               \
    static void name(int64_t n, const uint8_t *choice, int64_t of_choice, const type *a, \
                     int64_t of_a, const type *b, int64_t of_b, type *out)               \
    {                                                                                    \
        for (int64_t i = 0; i < n; i++)                                                  \
            out[i] = choice[i * of_choice] ? a[i * of_a] : b[i * of_b];                  \
    }
CHOSEN(chosen_4_bytes, uint32_t)
CHOSEN(chosen_8_bytes, uint64_t)

/* Masks: elements of 4 or 8 bytes, chosen one by one. */
static bool chosen_row(const struct sy_broadcast *b, const void *const *in, const int64_t *at,
                       void *out, int64_t to, int64_t n)
{
    size_t bytes = sy_dtype_bytes((enum sy_dtype)b->dtype);
    int64_t last = b->rank - 1;
    if (b->op != SY_OP_WHERE || last < 0 || (bytes != 4 && bytes != 8))
        return false;
    int64_t of_choice = b->strides[0][last], of_a = b->strides[1][last], of_b = b->strides[2][last];
    const uint8_t *choice = (const uint8_t *)in[0] + at[0];
    if (bytes == 4)
        chosen_4_bytes(n, choice, of_choice, (const uint32_t *)in[1] + at[1], of_a,
                       (const uint32_t *)in[2] + at[2], of_b, (uint32_t *)out + to);
    else
        chosen_8_bytes(n, choice, of_choice, (const uint64_t *)in[1] + at[1], of_a,
                       (const uint64_t *)in[2] + at[2], of_b, (uint64_t *)out + to);
    return true;
}

/* Elements that follow each other, or one element again and again. */
static bool copied_row(const struct sy_broadcast *b, const char *in, char *out, int64_t n)
{
    size_t bytes = sy_dtype_bytes((enum sy_dtype)b->dtype);
    int64_t stride = b->rank > 0 ? b->strides[0][b->rank - 1] : 0;
    if (b->op != SY_OP_IDENTITY || stride > 1)
        return false;
    if (stride == 1)
        memcpy(out, in, (size_t)n * bytes);
    else if (bytes == sizeof(int64_t))
        for (int64_t i = 0, x = *(const int64_t *)(const void *)in; i < n; i++)
            ((int64_t *)(void *)out)[i] = x;
    else if (bytes == sizeof(int32_t))
        for (int64_t i = 0, x = *(const int32_t *)(const void *)in; i < n; i++)
            ((int32_t *)(void *)out)[i] = (int32_t)x;
    else
        return false;
    return true;
}

/* Elements [from, from + n) of a row. */
static void one_row(const struct sy_broadcast *b, const void *const *in, int64_t row, int64_t from,
                    int64_t n, void *out)
{
    int64_t at[3] = {0}, left = row, last = b->rank - 1;
    int64_t to = row * (b->rank > 0 ? b->dims[last] : 1) + from;
    size_t bytes = sy_dtype_bytes((enum sy_dtype)b->dtype);
    for (int64_t k = 0; k < b->n_inputs && b->rank > 0; k++)
        at[k] = from * b->strides[k][last];
    for (int64_t d = last - 1; d >= 0; d--) {
        int64_t index = left % b->dims[d];
        left /= b->dims[d];
        for (int64_t k = 0; k < b->n_inputs; k++)
            at[k] += index * b->strides[k][d];
    }
    if (compared_row(b, in, at, (uint8_t *)out + to, n) || fast_row(b, in, at, out, to, n) ||
        pair_row(b, in, at, (char *)out + (size_t)to * bytes, n) ||
        chosen_row(b, in, at, out, to, n) ||
        copied_row(b, (const char *)in[0] + (size_t)at[0] * bytes, (char *)out + (size_t)to * bytes,
                   n))
        return;
    for (int64_t i = 0; i < n; i++) {
        one_element(b, in, at, out, to + i);
        for (int64_t k = 0; k < b->n_inputs && b->rank > 0; k++)
            at[k] += b->strides[k][last];
    }
}

/* Dimensions that all inputs walk as one are one, so that rows are long. */
static struct sy_broadcast join_dimensions(const struct sy_broadcast *b)
{
    struct sy_broadcast to = *b;
    to.rank = 0;
    for (int64_t d = 0; d < b->rank; d++) {
        bool joins = to.rank > 0;
        if (b->dims[d] == 1)
            continue;
        for (int64_t k = 0; k < b->n_inputs; k++)
            joins = joins && to.strides[k][to.rank - 1] == b->strides[k][d] * b->dims[d];
        int64_t at = joins ? to.rank - 1 : to.rank++;
        to.dims[at] = joins ? to.dims[at] * b->dims[d] : b->dims[d];
        for (int64_t k = 0; k < b->n_inputs; k++)
            to.strides[k][at] = b->strides[k][d];
    }
    return to;
}

int sy_elementwise_broadcast(const struct sy_broadcast *b, const void *const *inputs, void *output)
{
    const struct sy_broadcast joined = join_dimensions(b);
    int64_t n = joined.rank > 0 ? joined.dims[joined.rank - 1] : 1, rows = 1;
    for (int64_t d = 0; d + 1 < joined.rank; d++)
        rows *= joined.dims[d];
    int64_t piece = rows < FEW_ROWS ? PARALLEL_FROM : SY_MAX(n, 1);
    int64_t pieces = (n + piece - 1) / piece;
#pragma omp parallel for schedule(static) if (rows * n > PARALLEL_FROM && rows * pieces > 1)
    for (int64_t i = 0; i < rows * pieces; i++) {
        int64_t from = i % pieces * piece;
        one_row(&joined, inputs, i / pieces, from, SY_MIN(piece, n - from), output);
    }
    return SY_OK;
}
