/* What operators of two inputs compute of a pair of elements: floats in double, integers wrapping around. */
#ifndef SY_WORKERS_ENGINE_PAIR_FORMULAS_H
#define SY_WORKERS_ENGINE_PAIR_FORMULAS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"
#include "workers/engine/formula.h"

struct sy_pair_rules {
    enum sy_op op;
    bool is_c_modulo; /* Mod: the rest has the sign of the first, as C's */
    bool is_left;     /* BitShift */
    bool is_unsigned; /* of 64 bits: integers are the bits of uint64 */
};

/* A comparison, of operands that are less, equal, greater, or none of these (NaN). */
SY_FORMULA bool sy_pair_holds(enum sy_op op, bool less, bool equal, bool greater)
{
    switch (op) {
    case SY_OP_EQUAL:
        return equal;
    case SY_OP_GREATER:
        return greater;
    case SY_OP_GREATER_OR_EQUAL:
        return greater || equal;
    case SY_OP_LESS:
        return less;
    default: /* LessOrEqual */
        return less || equal;
    }
}

SY_FORMULA double sy_pair_float_modulo(const struct sy_pair_rules *rules, double a, double b)
{
    double rest = fmod(a, b);
    if (!rules->is_c_modulo && rest == 0)
        return copysign(0.0, b);
    return !rules->is_c_modulo && rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

SY_FORMULA double sy_pair_of_floats(const struct sy_pair_rules *rules, double a, double b)
{
    switch (rules->op) {
    case SY_OP_ADD:
    case SY_OP_SUM:
    case SY_OP_MEAN:
        return a + b;
    case SY_OP_SUB:
        return a - b;
    case SY_OP_MUL:
        return a * b;
    case SY_OP_DIV:
        return a / b;
    case SY_OP_POW:
        return pow(a, b);
    case SY_OP_MAX:
        return a != a || a > b ? a : b;
    case SY_OP_MIN:
        return a != a || a < b ? a : b;
    case SY_OP_MOD:
        return sy_pair_float_modulo(rules, a, b);
    case SY_OP_PRELU:
        return a < 0 ? a * b : a;
    default:
        return sy_pair_holds(rules->op, a<b, a == b, a> b);
    }
}

/* Wraps around; a negative exponent gives 1 / a^-b, rounded toward zero. */
SY_FORMULA int64_t sy_pair_power(int64_t a, int64_t b)
{
    uint64_t result = 1, factor = (uint64_t)a;
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    for (; b > 0; b >>= 1, factor *= factor)
        result *= b & 1 ? factor : 1;
    return (int64_t)result;
}

/* x / 0 and x % 0 are open in ONNX; they must not trap. */
SY_FORMULA int64_t sy_pair_quotient(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

SY_FORMULA int64_t sy_pair_modulo(const struct sy_pair_rules *rules, int64_t a, int64_t b)
{
    if (b == 0 || b == -1)
        return 0;
    int64_t rest = a % b;
    return !rules->is_c_modulo && rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

SY_FORMULA int64_t sy_pair_shift(const struct sy_pair_rules *rules, int64_t a, int64_t b)
{
    if (b < 0 || b > 63)
        return !rules->is_left && a < 0 ? -1 : 0;
    return rules->is_left ? (int64_t)((uint64_t)a << b) : a >> b; /* the sign goes on */
}

/* What differs from int64 for operands of uint64. */
SY_FORMULA bool sy_pair_of_unsigned(const struct sy_pair_rules *rules, uint64_t a, uint64_t b,
                                    uint64_t *out)
{
    switch (rules->op) {
    case SY_OP_DIV:
        *out = b ? a / b : 0;
        return true;
    case SY_OP_MOD:
        *out = b ? a % b : 0;
        return true;
    case SY_OP_MAX:
        *out = a > b ? a : b;
        return true;
    case SY_OP_MIN:
        *out = a < b ? a : b;
        return true;
    case SY_OP_PRELU:
        *out = a;
        return true;
    case SY_OP_BIT_SHIFT:
        *out = b > 63 ? 0 : rules->is_left ? a << b : a >> b;
        return true;
    case SY_OP_EQUAL:
    case SY_OP_GREATER:
    case SY_OP_GREATER_OR_EQUAL:
    case SY_OP_LESS:
    case SY_OP_LESS_OR_EQUAL:
        *out = sy_pair_holds(rules->op, a<b, a == b, a> b);
        return true;
    default:
        return false;
    }
}

SY_FORMULA int64_t sy_pair_of_integers(const struct sy_pair_rules *rules, int64_t a, int64_t b)
{
    uint64_t result;
    if (rules->is_unsigned && sy_pair_of_unsigned(rules, (uint64_t)a, (uint64_t)b, &result))
        return (int64_t)result;
    switch (rules->op) {
    case SY_OP_ADD:
    case SY_OP_SUM:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case SY_OP_SUB:
        return (int64_t)((uint64_t)a - (uint64_t)b);
    case SY_OP_MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case SY_OP_PRELU:
        return a < 0 ? (int64_t)((uint64_t)a * (uint64_t)b) : a;
    case SY_OP_DIV:
        return sy_pair_quotient(a, b);
    case SY_OP_MOD:
        return sy_pair_modulo(rules, a, b);
    case SY_OP_POW:
        return sy_pair_power(a, b);
    case SY_OP_MAX:
        return a > b ? a : b;
    case SY_OP_MIN:
        return a < b ? a : b;
    case SY_OP_AND:
        return a && b;
    case SY_OP_OR:
        return a || b;
    case SY_OP_XOR:
        return !a != !b;
    case SY_OP_BITWISE_AND:
        return a & b;
    case SY_OP_BITWISE_OR:
        return a | b;
    case SY_OP_BITWISE_XOR:
        return a ^ b;
    case SY_OP_BIT_SHIFT:
        return sy_pair_shift(rules, a, b);
    default:
        return sy_pair_holds(rules->op, a<b, a == b, a> b);
    }
}

#endif
