/* Bounds of an expression, and the atoms that it mentions. */
#include "loader/graph/size_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MAX_DEPTH = 4 }; /* each level may cost two more evaluations */

bool sy_atom_mentions(int from, int atom)
{
    if (from == atom)
        return true;
    struct sy_atom parts = sy_size_atom(from);
    return parts.kind != SY_ATOM_N && parts.kind != SY_ATOM_SYMBOL &&
           (sy_size_mentions(parts.a, atom) || sy_size_mentions(parts.b, atom));
}

bool sy_size_mentions(struct sy_dim dim, int atom)
{
    struct sy_sum sum;
    sy_sum_load(dim, &sum);
    for (int i = 0; i < sum.n; i++)
        for (int k = 0; k < sum.terms[i].n_atoms; k++)
            if (sy_atom_mentions(sum.terms[i].atoms[k], atom))
                return true;
    return false;
}

struct bounds {
    int64_t least, most; /* the limits of int64: unknown */
};

static int64_t clamp_wide(__int128 value)
{
    return value <= INT64_MIN ? INT64_MIN : value >= INT64_MAX ? INT64_MAX : (int64_t)value;
}

static bool is_open(int64_t bound)
{
    return bound == INT64_MIN || bound == INT64_MAX;
}

static int64_t floor_quotient(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static struct bounds multiply_bounds(struct bounds x, struct bounds y)
{
    if ((is_open(x.least) || is_open(y.least)) && (x.least < 0 || y.least < 0))
        return (struct bounds){INT64_MIN, INT64_MAX};
    __int128 products[4] = {(__int128)x.least * y.least, (__int128)x.least * y.most,
                            (__int128)x.most * y.least, (__int128)x.most * y.most};
    __int128 least = products[0], most = products[0];
    for (int i = 1; i < 4; i++) {
        least = SY_MIN(least, products[i]);
        most = SY_MAX(most, products[i]);
    }
    bool open = is_open(x.most) || is_open(y.most);
    if (open && least < 0)
        least = INT64_MIN;
    return (struct bounds){clamp_wide(least), open ? INT64_MAX : clamp_wide(most)};
}

static struct bounds bounds_of(struct sy_dim dim, int depth);

static struct bounds atom_bounds(int atom, int depth)
{
    struct sy_atom parts = sy_size_atom(atom);
    struct bounds a, out = {INT64_MIN, INT64_MAX};
    if (parts.kind == SY_ATOM_N)
        return (struct bounds){1, SY_SIZE_MOST};
    if (parts.kind == SY_ATOM_SYMBOL)
        return (struct bounds){0, SY_SIZE_MOST};
    a = bounds_of(parts.a, depth);
    if (parts.kind == SY_ATOM_MIN)
        return (struct bounds){SY_MIN(0, a.least), SY_MIN(0, a.most)};
    if (a.least >= 0)
        out = (struct bounds){0, a.most};
    if (sy_dim_is_number(parts.b) && !is_open(a.least))
        out.least = floor_quotient(a.least, parts.b.fixed);
    if (sy_dim_is_number(parts.b) && !is_open(a.most))
        out.most = floor_quotient(a.most, parts.b.fixed);
    return out;
}

static int64_t add_bounds(int64_t a, int64_t b)
{
    if (is_open(a) || is_open(b))
        return is_open(a) ? a : b;
    return clamp_wide((__int128)a + b);
}

/* Sums the bounds of the terms. */
static struct bounds plain_bounds(struct sy_dim dim, int depth)
{
    struct sy_sum sum;
    struct bounds total = {0, 0};
    sy_sum_load(dim, &sum);
    for (int i = 0; i < sum.n; i++) {
        struct bounds term = {sum.terms[i].factor, sum.terms[i].factor};
        for (int k = 0; k < sum.terms[i].n_atoms; k++)
            term = multiply_bounds(atom_bounds(sum.terms[i].atoms[k], depth + 1), term);
        total.least = add_bounds(total.least, term.least);
        total.most = add_bounds(total.most, term.most);
    }
    return total;
}

/* dim = rest + factor * floor(x / d), so d * dim = d * rest + factor * x - factor * r, r from 0 to d - 1. */
static bool floor_bounds(struct sy_dim dim, struct sy_dim own, int64_t factor,
                         const struct sy_atom *atom, int depth, struct bounds *out)
{
    struct sy_dim rest, x, d = atom->b, times = {factor, 0};
    int64_t r;
    if (__builtin_mul_overflow(factor, d.fixed - 1, &r) || sy_size_sub(dim, own, &rest) < 0 ||
        sy_size_mul(rest, d, &rest) < 0 || sy_size_mul(atom->a, times, &x) < 0 ||
        sy_size_add(rest, x, &rest) < 0)
        return false;
    struct bounds b = bounds_of(rest, depth + 1);
    if (!is_open(b.least)) {
        b.least = add_bounds(b.least, -SY_MAX(r, 0));
        out->least = -floor_quotient(-b.least, d.fixed);
    }
    if (!is_open(b.most)) {
        b.most = add_bounds(b.most, -SY_MIN(r, 0));
        out->most = floor_quotient(b.most, d.fixed);
    }
    return true;
}

/* dim = rest + factor * min(0, x) is rest or rest + factor * x: the smaller of the two, or the larger where the factor is negative. */
static bool min_bounds(struct sy_dim dim, struct sy_dim own, int64_t factor,
                       const struct sy_atom *atom, int depth, struct bounds *out)
{
    struct sy_dim rest, with, times = {factor, 0};
    if (sy_size_sub(dim, own, &rest) < 0 || sy_size_mul(atom->a, times, &with) < 0 ||
        sy_size_add(rest, with, &with) < 0)
        return false;
    struct bounds a = bounds_of(rest, depth + 1), b = bounds_of(with, depth + 1);
    if (factor < 0)
        *out = (struct bounds){SY_MAX(a.least, b.least), SY_MAX(a.most, b.most)};
    else
        *out = (struct bounds){SY_MIN(a.least, b.least), SY_MIN(a.most, b.most)};
    return true;
}

/* The first rounded or smaller part is put in terms of what it is made of, which may cancel out against the rest. */
static struct bounds bounds_of(struct sy_dim dim, int depth)
{
    struct bounds best = plain_bounds(dim, depth);
    struct sy_sum sum;
    sy_sum_load(dim, &sum);
    for (int i = 0; i < sum.n && depth < MAX_DEPTH; i++) {
        const struct sy_size_term *t = &sum.terms[i];
        struct bounds b = {INT64_MIN, INT64_MAX};
        struct sy_dim own, factor = {t->factor, 0};
        if (t->n_atoms != 1 || t->atoms[0] == 0)
            continue;
        struct sy_atom atom = sy_size_atom(t->atoms[0]);
        bool is_floor = atom.kind == SY_ATOM_FLOOR && sy_dim_is_number(atom.b);
        if ((!is_floor && atom.kind != SY_ATOM_MIN) || sy_size_atom_dim(t->atoms[0], &own) < 0 ||
            sy_size_mul(own, factor, &own) < 0)
            continue;
        if (is_floor ? floor_bounds(dim, own, t->factor, &atom, depth, &b)
                     : min_bounds(dim, own, t->factor, &atom, depth, &b)) {
            best.least = SY_MAX(best.least, b.least);
            best.most = SY_MIN(best.most, b.most);
            break;
        }
    }
    return best;
}

void sy_size_bounds(struct sy_dim dim, int64_t *least, int64_t *most)
{
    struct bounds b = bounds_of(dim, 0);
    *least = b.least;
    *most = b.most;
}
