/* Queries on an expression: its parts, its text, its value for given sizes. */
#include <stdio.h>
#include <string.h>

#include "loader/graph/size_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

int sy_size_terms(struct sy_dim dim, struct sy_size_term terms[SY_SIZE_MAX_TERMS])
{
    struct sy_sum sum;
    sy_sum_load(dim, &sum);
    memcpy(terms, sum.terms, (size_t)sum.n * sizeof *terms);
    return sum.n;
}

bool sy_size_is_symbol(struct sy_dim dim, int *atom)
{
    struct sy_sum sum;
    if (!sy_dim_is_expr(dim))
        return false;
    sy_sum_load(dim, &sum);
    if (sum.n != 1 || sum.terms[0].factor != 1 || sum.terms[0].n_atoms != 1)
        return false;
    *atom = sum.terms[0].atoms[0];
    return sy_size_atom(*atom).kind == SY_ATOM_SYMBOL;
}

/* ---- one symbol --------------------------------------------------------------------------------- */

/* The term is the only place where its one atom, a symbol, is. */
static bool is_alone(const struct sy_sum *sum, int i)
{
    const struct sy_size_term *t = &sum->terms[i];
    if (t->n_atoms != 1 || sy_size_atom(t->atoms[0]).kind != SY_ATOM_SYMBOL)
        return false;
    for (int k = 0; k < sum->n; k++)
        for (int n = 0; k != i && n < sum->terms[k].n_atoms; n++)
            if (sy_atom_mentions(sum->terms[k].atoms[n], t->atoms[0]))
                return false;
    return true;
}

/* The value of the symbol of term i for which the sum is 0. */
static bool isolate_term(struct sy_dim zero, const struct sy_size_term *term, struct sy_dim *value)
{
    struct sy_dim own, rest, factor = {term->factor, 0};
    return sy_size_atom_dim(term->atoms[0], &own) == SY_OK &&
           sy_size_mul(own, factor, &own) == SY_OK && sy_size_sub(own, zero, &rest) == SY_OK &&
           sy_size_div(rest, factor, value) == SY_OK;
}

/* Without the sizes that all its terms are products of: where none of those is 0, `zero` is 0 where the rest is. */
static struct sy_dim without_common(struct sy_dim zero)
{
    struct sy_size_term terms[SY_SIZE_MAX_TERMS];
    struct sy_dim atom, rest = zero;
    if (sy_size_terms(zero, terms) < 2)
        return zero;
    for (int i = 0; i < terms[0].n_atoms; i++)
        if (sy_size_atom_dim(terms[0].atoms[i], &atom) == SY_OK)
            (void)sy_size_div(rest, atom, &rest);
    return rest;
}

/* A sum (all = before + new) is better than a difference, which could be below 0. */
bool sy_size_isolate(struct sy_dim zero, int *atom, struct sy_dim *value)
{
    struct sy_sum sum;
    bool found = false, is_sum = false;
    zero = without_common(zero);
    sy_sum_load(zero, &sum);
    for (int i = 0; i < sum.n; i++) {
        struct sy_dim dim;
        int64_t least, most;
        if (!is_alone(&sum, i) || !isolate_term(zero, &sum.terms[i], &dim))
            continue;
        sy_size_bounds(dim, &least, &most);
        if (found && (least >= 0) == is_sum ? sum.terms[i].atoms[0] < *atom : found && is_sum)
            continue;
        found = true;
        is_sum = least >= 0;
        *atom = sum.terms[i].atoms[0];
        *value = dim;
    }
    return found;
}

/* ---- text --------------------------------------------------------------------------------------- */

static int say(char *buffer, size_t bytes, int used, const char *text)
{
    size_t at = (size_t)used < bytes ? (size_t)used : bytes;
    return used + snprintf(bytes ? buffer + at : NULL, bytes - at, "%s", text);
}

static int say_dim(char *buffer, size_t bytes, int used, struct sy_dim dim)
{
    size_t at = (size_t)used < bytes ? (size_t)used : bytes;
    return used + sy_size_text(dim, bytes ? buffer + at : NULL, bytes - at);
}

static int say_atom(char *buffer, size_t bytes, int used, int atom)
{
    struct sy_atom parts = sy_size_atom(atom);
    if (parts.kind == SY_ATOM_N || parts.kind == SY_ATOM_SYMBOL)
        return say(buffer, bytes, used, parts.name);
    used = say(buffer, bytes, used, parts.kind == SY_ATOM_MIN ? "min(0, " : "floor((");
    used = say_dim(buffer, bytes, used, parts.a);
    if (parts.kind == SY_ATOM_FLOOR) {
        used = say(buffer, bytes, used, ") / (");
        used = say_dim(buffer, bytes, used, parts.b);
        used = say(buffer, bytes, used, ")");
    }
    return say(buffer, bytes, used, ")");
}

int sy_size_text(struct sy_dim dim, char *buffer, size_t bytes)
{
    struct sy_sum sum;
    int used = 0;
    sy_sum_load(dim, &sum);
    if (sum.n == 0)
        return say(buffer, bytes, used, "0");
    for (int i = 0; i < sum.n; i++) {
        const struct sy_size_term *t = &sum.terms[i];
        char factor[32];
        snprintf(factor, sizeof factor, i > 0 ? "%+lld" : "%lld", (long long)t->factor);
        bool plain = t->n_atoms > 0 && t->factor == 1, minus = t->n_atoms > 0 && t->factor == -1;
        used = say(buffer, bytes, used, plain ? (i > 0 ? "+" : "") : minus ? "-" : factor);
        for (int k = 0; k < t->n_atoms; k++) {
            if (k > 0 || (!plain && !minus))
                used = say(buffer, bytes, used, "*");
            used = say_atom(buffer, bytes, used, t->atoms[k]);
        }
    }
    return used;
}

/* ---- values ------------------------------------------------------------------------------------- */

static bool find_symbol(const struct sy_size_env *env, int atom, int64_t *value)
{
    for (int i = 0; i < env->n; i++)
        if (env->symbols[i] == atom) {
            *value = env->values[i];
            return true;
        }
    return false;
}

static bool evaluate_number(struct sy_dim dim, const struct sy_size_env *env, int64_t *out)
{
    struct sy_dim value;
    if (sy_size_evaluate(dim, env, &value) < 0 || !sy_dim_is_number(value))
        return false;
    *out = value.fixed;
    return true;
}

static bool evaluate_atom(int atom, const struct sy_size_env *env, int64_t *out)
{
    struct sy_atom parts = sy_size_atom(atom);
    int64_t a, b = 1;
    if (parts.kind == SY_ATOM_SYMBOL)
        return find_symbol(env, atom, out);
    if (!evaluate_number(parts.a, env, &a))
        return false;
    if (parts.kind == SY_ATOM_MIN) {
        *out = SY_MIN(0, a);
        return true;
    }
    if (!evaluate_number(parts.b, env, &b) || b <= 0)
        return false;
    *out = a / b - (a % b < 0);
    return true;
}

int sy_size_evaluate(struct sy_dim dim, const struct sy_size_env *env, struct sy_dim *out)
{
    struct sy_sum sum;
    *out = dim;
    if (!sy_dim_is_expr(dim))
        return SY_OK;
    *out = (struct sy_dim){0, 0};
    sy_sum_load(dim, &sum);
    for (int i = 0; i < sum.n; i++) {
        int64_t product = sum.terms[i].factor, value;
        bool times_n = false;
        for (int k = 0; k < sum.terms[i].n_atoms; k++) {
            if (sum.terms[i].atoms[k] == 0) {
                times_n = true;
                continue;
            }
            if (!evaluate_atom(sum.terms[i].atoms[k], env, &value) ||
                __builtin_mul_overflow(product, value, &product))
                return SY_EUNSUPPORTED;
        }
        int64_t *to = times_n ? &out->per_batch : &out->fixed;
        if (__builtin_add_overflow(*to, product, to))
            return SY_EUNSUPPORTED;
    }
    return sy_dim_is_expr(*out) ? SY_EUNSUPPORTED : SY_OK;
}

/* The only atom that has no number yet; -1: none, -2: several, or one inside another. */
static int unknown_atom(const struct sy_sum *sum, const struct sy_size_env *env, int64_t n)
{
    int found = -1;
    int64_t value;
    for (int i = 0; i < sum->n; i++)
        for (int k = 0; k < sum->terms[i].n_atoms; k++) {
            int atom = sum->terms[i].atoms[k];
            if (atom == found || (atom == 0 ? n >= 0 : evaluate_atom(atom, env, &value)))
                continue;
            bool plain = atom == 0 || sy_size_atom(atom).kind == SY_ATOM_SYMBOL;
            found = found == -1 && plain ? atom : -2;
        }
    return found;
}

/* The rest of a term without `unknown`, as a number. */
static bool term_value(const struct sy_size_term *term, int unknown, const struct sy_size_env *env,
                       int64_t n, int64_t *out, int *degree)
{
    *out = term->factor;
    *degree = 0;
    for (int k = 0; k < term->n_atoms; k++) {
        int64_t value = n;
        if (term->atoms[k] == unknown) {
            ++*degree;
            continue;
        }
        if ((term->atoms[k] != 0 && !evaluate_atom(term->atoms[k], env, &value)) ||
            __builtin_mul_overflow(*out, value, out))
            return false;
    }
    return *degree <= 1;
}

bool sy_size_solve(struct sy_dim dim, const struct sy_size_env *env, int64_t n, int64_t value,
                   int *atom, int64_t *number)
{
    struct sy_sum sum;
    int64_t factor = 0, rest = value;
    sy_sum_load(dim, &sum);
    *atom = unknown_atom(&sum, env, n);
    if (*atom < 0)
        return false;
    for (int i = 0; i < sum.n; i++) {
        int64_t part;
        int degree;
        if (!term_value(&sum.terms[i], *atom, env, n, &part, &degree) ||
            (degree == 1 ? __builtin_add_overflow(factor, part, &factor)
                         : __builtin_sub_overflow(rest, part, &rest)))
            return false;
    }
    if (factor == 0 || factor == -1 || rest % factor != 0)
        return false;
    *number = rest / factor;
    return true;
}
