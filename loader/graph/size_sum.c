/* Sums of products of atoms in their one form: the tables that hold them, addition, multiplication. */
#include <string.h>

#include "loader/graph/size_intern.h"
#include "loader/graph/size_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MOST_EXPRS = 1 << 18, MOST_ATOMS = 1 << 16, MAX_NAME = 512, MAX_DEPTH = 24 };

static struct sy_intern expr_table = SY_INTERN_OF(MOST_EXPRS),
                        atom_table = SY_INTERN_OF(MOST_ATOMS);

/* An atom in the table; a symbol's name follows. */
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

int sy_size_put_atom(enum sy_atom_kind kind, const char *name, struct sy_dim a, struct sy_dim b,
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
    SY_TRY(sy_size_put_atom(SY_ATOM_SYMBOL, name, (struct sy_dim){0, 0}, (struct sy_dim){0, 0},
                            &atom));
    return sy_size_atom_dim(atom, out);
}

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
int sy_sum_add_term(struct sy_sum *to, const struct sy_size_term *term)
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
        SY_TRY(sy_sum_add_term(to, &product));
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
