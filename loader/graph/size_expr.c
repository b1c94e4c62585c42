/* Expressions of sizes above sums: quotients, minima, substitution. */
#include "loader/graph/size_expr.h"

#include <string.h>

#include "loader/graph/size_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* ---- quotients -------------------------------------------------------------------------------- */

/* a / b, of single terms. */
static bool divide_terms(const struct sy_size_term *a, const struct sy_size_term *b,
                         struct sy_size_term *out)
{
    *out = (struct sy_size_term){0};
    if (b->factor == 0 || b->factor == -1 || a->factor % b->factor != 0)
        return false;
    out->factor = a->factor / b->factor;
    int k = 0;
    for (int i = 0; i < a->n_atoms; i++) {
        if (k < b->n_atoms && a->atoms[i] == b->atoms[k])
            k++;
        else
            out->atoms[out->n_atoms++] = a->atoms[i];
    }
    return k == b->n_atoms;
}

/* Long division, by the first terms. */
int sy_size_div(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    struct sy_sum rest, divisor, quotient = {0};
    sy_sum_load(a, &rest);
    sy_sum_load(b, &divisor);
    if (divisor.n == 0)
        return SY_EUNSUPPORTED;
    if (divisor.terms[0].factor == -1) { /* INT64_MIN / -1 cannot be */
        SY_TRY(sy_size_sub((struct sy_dim){0, 0}, a, &a));
        SY_TRY(sy_size_sub((struct sy_dim){0, 0}, b, &b));
        return sy_size_div(a, b, out);
    }
    for (int i = 0; rest.n > 0; i++) {
        struct sy_size_term part;
        if (i == 4 * SY_SIZE_MAX_TERMS || !divide_terms(&rest.terms[0], &divisor.terms[0], &part))
            return SY_EUNSUPPORTED;
        SY_TRY(sy_sum_add_term(&quotient, &part));
        if (part.factor == INT64_MIN)
            return SY_EUNSUPPORTED;
        part.factor = -part.factor;
        SY_TRY(sy_sum_add(&rest, &divisor, &part));
    }
    return sy_sum_store(&quotient, out);
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

static int64_t floor_number(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static bool mentions_n(const struct sy_sum *sum)
{
    for (int i = 0; i < sum->n; i++)
        if (sum->terms[i].n_atoms > 0 && sum->terms[i].atoms[0] == 0)
            return true;
    return false;
}

/* floor(x / d) + c of one floor by a number: (floor(x / d) + c) / by is (x + c * d) / (d * by). */
static bool is_floor_of_floor(const struct sy_sum *sum, int64_t by, struct sy_dim *x, int64_t *d)
{
    int64_t c = 0, shift;
    if (sum->n < 1 || sum->n > 2 || sum->terms[0].factor != 1 || sum->terms[0].n_atoms != 1 ||
        (sum->n == 2 && sum->terms[1].n_atoms != 0) || sum->terms[0].atoms[0] == 0)
        return false;
    if (sum->n == 2)
        c = sum->terms[1].factor;
    struct sy_atom atom = sy_size_atom(sum->terms[0].atoms[0]);
    if (atom.kind != SY_ATOM_FLOOR || !sy_dim_is_number(atom.b))
        return false;
    return !__builtin_mul_overflow(c, atom.b.fixed, &shift) &&
           !__builtin_mul_overflow(atom.b.fixed, by, d) &&
           sy_size_add(atom.a, (struct sy_dim){shift, 0}, x) == SY_OK;
}

static int put_floor(const struct sy_sum *a, struct sy_dim b, struct sy_dim *out)
{
    struct sy_dim top;
    int atom;
    if (mentions_n(a))
        return SY_EUNSUPPORTED;
    SY_TRY(sy_sum_store(a, &top));
    SY_TRY(sy_size_put_atom(SY_ATOM_FLOOR, "", top, b, &atom));
    return sy_size_atom_dim(atom, out);
}

/* Division by d > 0: divisible terms leave the floor, then common factors of the rest and d cancel. */
static int floor_by_number(const struct sy_sum *a, int64_t d, struct sy_dim *out)
{
    struct sy_sum whole = {0}, rest = {0};
    struct sy_dim quotient, fraction = {0, 0}, x;
    int64_t common = d, by;
    for (int i = 0; i < a->n; i++) {
        struct sy_size_term part = a->terms[i];
        part.factor = floor_number(a->terms[i].factor, d);
        SY_TRY(sy_sum_add_term(&whole, &part));
        part.factor = a->terms[i].factor - part.factor * d;
        SY_TRY(sy_sum_add_term(&rest, &part));
        if (part.n_atoms > 0)
            common = gcd(common, part.factor);
    }
    SY_TRY(sy_sum_store(&whole, &quotient));
    bool open = rest.n > 0 && rest.terms[0].n_atoms > 0;
    struct sy_sum reduced = {0};
    for (int i = 0; open && i < rest.n; i++) {
        rest.terms[i].factor /= common; /* all are at least 0 */
        SY_TRY(sy_sum_add_term(&reduced, &rest.terms[i]));
    }
    d /= common;
    if (open && d == 1)
        SY_TRY(sy_sum_store(&reduced, &fraction));
    else if (open && is_floor_of_floor(&reduced, d, &x, &by))
        SY_TRY(sy_size_floor_div(x, (struct sy_dim){by, 0}, &fraction));
    else if (open)
        SY_TRY(put_floor(&reduced, (struct sy_dim){d, 0}, &fraction));
    return sy_size_add(quotient, fraction, out);
}

int sy_size_floor_div(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    struct sy_sum top, bottom;
    int64_t least, most;
    sy_sum_load(a, &top);
    if (sy_dim_is_number(b))
        return b.fixed > 0 ? floor_by_number(&top, b.fixed, out) : SY_EUNSUPPORTED;
    if (sy_size_div(a, b, out) == SY_OK)
        return SY_OK;
    sy_size_bounds(b, &least, &most);
    sy_sum_load(b, &bottom);
    return least < 0 || mentions_n(&bottom) ? SY_EUNSUPPORTED : put_floor(&top, b, out);
}

/* ---- minima ----------------------------------------------------------------------------------- */

/* min(0, x), x's first factor positive and no factor in common. */
static int negative_part(const struct sy_sum *x, struct sy_dim *out)
{
    struct sy_sum reduced = *x;
    struct sy_dim inner;
    int64_t common = 0;
    int atom;
    if (mentions_n(x))
        return SY_EUNSUPPORTED;
    for (int i = 0; i < x->n; i++)
        common = gcd(common, x->terms[i].factor == INT64_MIN ? 1 : x->terms[i].factor);
    for (int i = 0; i < x->n; i++)
        reduced.terms[i].factor /= common;
    SY_TRY(sy_sum_store(&reduced, &inner));
    SY_TRY(sy_size_put_atom(SY_ATOM_MIN, "", inner, (struct sy_dim){0, 0}, &atom));
    SY_TRY(sy_size_atom_dim(atom, out));
    return sy_size_mul(*out, (struct sy_dim){common, 0}, out);
}

int sy_size_min(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    struct sy_dim difference;
    struct sy_sum sum;
    int64_t least, most;
    SY_TRY(sy_size_sub(b, a, &difference));
    sy_size_bounds(difference, &least, &most);
    if (least >= 0 || most <= 0) {
        *out = least >= 0 ? a : b;
        return SY_OK;
    }
    sy_sum_load(difference, &sum);
    if (sum.terms[0].factor < 0) {
        struct sy_dim swap = a;
        a = b;
        b = swap;
        SY_TRY(sy_size_sub(b, a, &difference));
        sy_sum_load(difference, &sum);
    }
    SY_TRY(negative_part(&sum, out));
    return sy_size_add(a, *out, out);
}

int sy_size_max(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    struct sy_dim sum, least;
    SY_TRY(sy_size_add(a, b, &sum));
    SY_TRY(sy_size_min(a, b, &least));
    return sy_size_sub(sum, least, out);
}

/* ---- substitution ------------------------------------------------------------------------------- */

static int substitute_atom(int from, int atom, struct sy_dim to, struct sy_dim *out)
{
    struct sy_dim a, b, zero = {0, 0};
    if (from == atom) {
        *out = to;
        return SY_OK;
    }
    struct sy_atom parts = sy_size_atom(from);
    if (parts.kind == SY_ATOM_N || parts.kind == SY_ATOM_SYMBOL)
        return sy_size_atom_dim(from, out);
    SY_TRY(sy_size_substitute(parts.a, atom, to, &a));
    if (parts.kind == SY_ATOM_MIN)
        return sy_size_min(a, zero, out);
    SY_TRY(sy_size_substitute(parts.b, atom, to, &b));
    return sy_size_floor_div(a, b, out);
}

int sy_size_substitute(struct sy_dim dim, int atom, struct sy_dim to, struct sy_dim *out)
{
    struct sy_sum sum;
    struct sy_dim total = {0, 0};
    *out = dim;
    if (!sy_dim_is_expr(dim) || !sy_size_mentions(dim, atom))
        return SY_OK;
    sy_sum_load(dim, &sum);
    for (int i = 0; i < sum.n; i++) {
        struct sy_dim product = {sum.terms[i].factor, 0}, factor;
        for (int k = 0; k < sum.terms[i].n_atoms; k++) {
            SY_TRY(substitute_atom(sum.terms[i].atoms[k], atom, to, &factor));
            SY_TRY(sy_size_mul(product, factor, &product));
        }
        SY_TRY(sy_size_add(total, product, &total));
    }
    *out = total;
    return SY_OK;
}
