#include "workers/host/rows/pair_rows.h"

#include "workers/engine/pair_formulas.h"
#include "workers/host/base/clones.h"

/* Inlined where the operator and the steps are constants: the loop becomes vectors. */
#define STEPS(name, type, formula)                                                                 \
    static inline __attribute__((always_inline)) void name(enum sy_op op, int64_t n,               \
                                                           const type *a, int64_t of_a,            \
                                                           const type *b, int64_t of_b, type *out) \
    {                                                                                              \
        const struct sy_pair_rules rules = {.op = op};                                             \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] =                               \
            (type)formula(&rules, a[i * of_a], b[i * of_b]);                                       \
    }
STEPS(steps_f64, double, sy_pair_of_floats)
STEPS(steps_i32, int32_t, sy_pair_of_integers)
STEPS(steps_i64, int64_t, sy_pair_of_integers)

#define OP_ROW(name, steps, type, op)                                                 \
    SY_CLONES static void name(int64_t n, const type *a, int64_t of_a, const type *b, \
                               int64_t of_b, type *out)                               \
    {                                                                                 \
        if (of_a == 1 && of_b == 1)                                                   \
            steps(op, n, a, 1, b, 1, out);                                            \
        else if (of_a == 1 && of_b == 0)                                              \
            steps(op, n, a, 1, b, 0, out);                                            \
        else if (of_a == 0 && of_b == 1)                                              \
            steps(op, n, a, 0, b, 1, out);                                            \
        else                                                                          \
            steps(op, n, a, of_a, b, of_b, out);                                      \
    }

/* row_TYPE: false for an operator without a loop. */
#define ROWS(suffix, type)                                                                         \
    OP_ROW(add_##suffix, steps_##suffix, type, SY_OP_ADD)                                          \
    OP_ROW(sub_##suffix, steps_##suffix, type, SY_OP_SUB)                                          \
    OP_ROW(mul_##suffix, steps_##suffix, type, SY_OP_MUL)                                          \
    OP_ROW(max_##suffix, steps_##suffix, type, SY_OP_MAX)                                          \
    OP_ROW(min_##suffix, steps_##suffix, type, SY_OP_MIN)                                          \
    static bool row_##suffix(enum sy_op op, int64_t n, const type *a, int64_t of_a, const type *b, \
                             int64_t of_b, type *out)                                              \
    {                                                                                              \
        if (op == SY_OP_ADD)                                                                       \
            add_##suffix(n, a, of_a, b, of_b, out);                                                \
        else if (op == SY_OP_SUB)                                                                  \
            sub_##suffix(n, a, of_a, b, of_b, out);                                                \
        else if (op == SY_OP_MUL)                                                                  \
            mul_##suffix(n, a, of_a, b, of_b, out);                                                \
        else if (op == SY_OP_MAX)                                                                  \
            max_##suffix(n, a, of_a, b, of_b, out);                                                \
        else if (op == SY_OP_MIN)                                                                  \
            min_##suffix(n, a, of_a, b, of_b, out);                                                \
        else                                                                                       \
            return false;                                                                          \
        return true;                                                                               \
    }
OP_ROW(div_f64, steps_f64, double, SY_OP_DIV)
ROWS(f64, double)
ROWS(i32, int32_t)
ROWS(i64, int64_t)

bool sy_pair_row(enum sy_op op, enum sy_dtype dtype, int64_t n, const void *a, int64_t of_a,
                 const void *b, int64_t of_b, void *out)
{
    if (dtype == SY_DTYPE_F64 && op == SY_OP_DIV) {
        div_f64(n, a, of_a, b, of_b, out);
        return true;
    }
    return dtype == SY_DTYPE_F64   ? row_f64(op, n, a, of_a, b, of_b, out)
           : dtype == SY_DTYPE_I32 ? row_i32(op, n, a, of_a, b, of_b, out)
           : dtype == SY_DTYPE_I64 ? row_i64(op, n, a, of_a, b, of_b, out)
                                   : false;
}
