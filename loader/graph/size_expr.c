/* Canonical expressions of sizes: sums, products, quotients, minima. */
#include "loader/graph/size_expr.h"

#include <string.h>

#include "loader/graph/size_intern.h"
#include "loader/graph/size_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MOST_EXPRS = 1 << 18, MOST_ATOMS = 1 << 16, MAX_NAME = 512, MAX_DEPTH = 24 };

static struct sy_intern expr_table = SY_INTERN_OF(MOST_EXPRS),
                        atom_table = SY_INTERN_OF(MOST_ATOMS);

/* ---- atoms ------------------------------------------------------------------------------------ */

/* What the table holds of an atom; a symbol's name follows. */
struct atom_bytes {
    int64_t kind, depth;
    struct sy_dim a, b;
};

static struct atom_bytes load_atom(int atom, const char **name)
{
    struct sy_interned item = sy_intern_get(&atom_table, atom - 1);
    struct atom_bytes bytes;
    memcpy(&bytes, item.bytes, sizeof bytes);
    *name = (const char *)item.bytes + sizeof bytes;
    return bytes;
}

struct sy_atom sy_size_atom(int atom)
{
    const char *name;
    if (atom == 0)
        return (struct sy_atom){.kind = SY_ATOM_N, .name = "N"};
    struct atom_bytes bytes = load_atom(atom, &name);
    struct sy_atom out = {(enum sy_atom_kind)bytes.kind, NULL, bytes.a, bytes.b};
    if (out.kind == SY_ATOM_SYMBOL)
        out.name = name;
    return out;
}

static int64_t depth_of(struct sy_dim dim)
{
    struct sy_sum sum;
    int64_t depth = 0;
    const char *name;
    sy_sum_load(dim, &sum);
    for (int i = 0; i < sum.n; i++)
        for (int k = 0; k < sum.terms[i].n_atoms; k++)
            if (sum.terms[i].atoms[k] != 0)
                depth = SY_MAX(depth, load_atom(sum.terms[i].atoms[k], &name).depth);
    return depth;
}

static int put_atom(enum sy_atom_kind kind, const char *name, struct sy_dim a, struct sy_dim b,
                    int *out)
{
    unsigned char bytes[sizeof(struct atom_bytes) + MAX_NAME + 1] = {0};
    size_t n = strlen(name);
    struct atom_bytes head = {.kind = kind, .a = a, .b = b};
    head.depth = 1 + SY_MAX(depth_of(a), depth_of(b));
    if (n > MAX_NAME || head.depth > MAX_DEPTH)
        return SY_EUNSUPPORTED;
    memcpy(bytes, &head, sizeof head);
    memcpy(bytes + sizeof head, name, n + 1); /* its end as well: names are compared so */
    SY_TRY(sy_intern_put(&atom_table, bytes, sizeof head + n + 1, out));
    ++*out;
    return SY_OK;
}

int sy_size_atom_dim(int atom, struct sy_dim *out)
{
    struct sy_sum sum = {.n = 1, .terms = {{.factor = 1, .n_atoms = 1, .atoms = {atom}}}};
    return sy_sum_store(&sum, out);
}

int sy_size_symbol(const char *name, struct sy_dim *out)
{
    int atom;
    SY_TRY(put_atom(SY_ATOM_SYMBOL, name, (struct sy_dim){0, 0}, (struct sy_dim){0, 0}, &atom));
    return sy_size_atom_dim(atom, out);
}

/* ---- sums ------------------------------------------------------------------------------------- */

static int compare_terms(const struct sy_size_term *a, const struct sy_size_term *b)
{
    if (a->n_atoms != b->n_atoms)
        return b->n_atoms - a->n_atoms;
    for (int i = 0; i < a->n_atoms; i++)
        if (a->atoms[i] != b->atoms[i])
            return a->atoms[i] - b->atoms[i];
    return 0;
}

void sy_sum_load(struct sy_dim dim, struct sy_sum *sum)
{
    sum->n = 0;
    if (sy_dim_is_expr(dim)) {
        struct sy_interned item = sy_intern_get(&expr_table, (int)(dim.per_batch - INT64_MIN));
        sum->n = (int)(item.n / sizeof *sum->terms);
        memcpy(sum->terms, item.bytes, item.n);
        return;
    }
    if (dim.per_batch != 0)
        sum->terms[sum->n++] = (struct sy_size_term){.factor = dim.per_batch, .n_atoms = 1};
    if (dim.fixed != 0)
        sum->terms[sum->n++] = (struct sy_size_term){.factor = dim.fixed};
}

int sy_sum_store(const struct sy_sum *sum, struct sy_dim *out)
{
    struct sy_dim linear = {0, 0};
    bool is_linear = true;
    int id;
    for (int i = 0; i < sum->n; i++) {
        const struct sy_size_term *t = &sum->terms[i];
        if (t->n_atoms > 1 && t->atoms[1] == 0)
            return SY_EUNSUPPORTED; /* N * N; atoms are sorted */
        if (t->n_atoms == 0)
            linear.fixed = t->factor;
        else if (t->n_atoms == 1 && t->atoms[0] == 0)
            linear.per_batch = t->factor;
        else
            is_linear = false;
    }
    if (is_linear) {
        *out = linear;
        return sy_dim_is_expr(linear) ? SY_EUNSUPPORTED : SY_OK;
    }
    SY_TRY(sy_intern_put(&expr_table, sum->terms, (size_t)sum->n * sizeof *sum->terms, &id));
    *out = (struct sy_dim){0, INT64_MIN + id};
    return SY_OK;
}

/* Places the term where it belongs, into one of the same atoms if there is one. */
static int add_term(struct sy_sum *to, const struct sy_size_term *term)
{
    int i = 0;
    while (i < to->n && compare_terms(&to->terms[i], term) < 0)
        i++;
    if (i < to->n && compare_terms(&to->terms[i], term) == 0) {
        if (__builtin_add_overflow(to->terms[i].factor, term->factor, &to->terms[i].factor))
            return SY_EUNSUPPORTED;
        if (to->terms[i].factor == 0)
            memmove(&to->terms[i], &to->terms[i + 1], (size_t)(--to->n - i) * sizeof *to->terms);
        return SY_OK;
    }
    if (term->factor == 0)
        return SY_OK;
    if (to->n == SY_SIZE_MAX_TERMS)
        return SY_EUNSUPPORTED;
    memmove(&to->terms[i + 1], &to->terms[i], (size_t)(to->n++ - i) * sizeof *to->terms);
    to->terms[i] = *term;
    return SY_OK;
}

static int multiply_terms(const struct sy_size_term *a, const struct sy_size_term *b,
                          struct sy_size_term *out)
{
    *out = (struct sy_size_term){.n_atoms = a->n_atoms + b->n_atoms};
    if (out->n_atoms > SY_SIZE_MAX_DEGREE ||
        __builtin_mul_overflow(a->factor, b->factor, &out->factor))
        return SY_EUNSUPPORTED;
    for (int i = 0, k = 0, n = 0; n < out->n_atoms; n++) {
        bool from_a = i < a->n_atoms && (k == b->n_atoms || a->atoms[i] <= b->atoms[k]);
        out->atoms[n] = from_a ? a->atoms[i++] : b->atoms[k++];
    }
    return SY_OK;
}

int sy_sum_add(struct sy_sum *to, const struct sy_sum *x, const struct sy_size_term *times)
{
    for (int i = 0; i < x->n; i++) {
        struct sy_size_term product;
        SY_TRY(multiply_terms(&x->terms[i], times, &product));
        SY_TRY(add_term(to, &product));
    }
    return SY_OK;
}

static int combine(struct sy_dim a, struct sy_dim b, int64_t factor, struct sy_dim *out)
{
    struct sy_sum sum, second;
    sy_sum_load(a, &sum);
    sy_sum_load(b, &second);
    SY_TRY(sy_sum_add(&sum, &second, &(struct sy_size_term){.factor = factor}));
    return sy_sum_store(&sum, out);
}

int sy_size_add(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    return combine(a, b, 1, out);
}

int sy_size_sub(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    return combine(a, b, -1, out);
}

int sy_size_mul(struct sy_dim a, struct sy_dim b, struct sy_dim *out)
{
    struct sy_sum x, y, product = {0};
    sy_sum_load(a, &x);
    sy_sum_load(b, &y);
    for (int i = 0; i < y.n; i++)
        SY_TRY(sy_sum_add(&product, &x, &y.terms[i]));
    return sy_sum_store(&product, out);
}

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
        SY_TRY(add_term(&quotient, &part));
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
    SY_TRY(put_atom(SY_ATOM_FLOOR, "", top, b, &atom));
    return sy_size_atom_dim(atom, out);
}

/* By d > 0: what is divisible goes out of the floor, then what all that is left has in common with d. */
static int floor_by_number(const struct sy_sum *a, int64_t d, struct sy_dim *out)
{
    struct sy_sum whole = {0}, rest = {0};
    struct sy_dim quotient, fraction = {0, 0}, x;
    int64_t common = d, by;
    for (int i = 0; i < a->n; i++) {
        struct sy_size_term part = a->terms[i];
        part.factor = floor_number(a->terms[i].factor, d);
        SY_TRY(add_term(&whole, &part));
        part.factor = a->terms[i].factor - part.factor * d;
        SY_TRY(add_term(&rest, &part));
        if (part.n_atoms > 0)
            common = gcd(common, part.factor);
    }
    SY_TRY(sy_sum_store(&whole, &quotient));
    bool open = rest.n > 0 && rest.terms[0].n_atoms > 0;
    struct sy_sum reduced = {0};
    for (int i = 0; open && i < rest.n; i++) {
        rest.terms[i].factor /= common; /* all are at least 0 */
        SY_TRY(add_term(&reduced, &rest.terms[i]));
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
    SY_TRY(put_atom(SY_ATOM_MIN, "", inner, (struct sy_dim){0, 0}, &atom));
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
