/* Sizes that are not linear in N alone: sums of whole numbers times products of atoms. An atom is N, a symbol (an open size of the
 * model, by its name), floor(sum / sum), or min(0, sum).
 *
 * Expressions are kept once per process in one canonical form, and a struct sy_dim names them, so two that are written differently but can be seen
 * to be the same are equal as structs. The table only grows, up to a bound (EUNSUPPORTED). Symbols stand for numbers from 0 to SY_SIZE_MOST, N
 * for 1 to SY_SIZE_MOST. Everything stays linear in N: N in a product with itself, below a floor or in a min is EUNSUPPORTED, without a text, and so is an
 * overflow. Any thread. */
#ifndef SY_LOADER_GRAPH_SIZE_EXPR_H
#define SY_LOADER_GRAPH_SIZE_EXPR_H

#include "loader/graph/graph.h"

enum { SY_SIZE_MAX_TERMS = 24, SY_SIZE_MAX_DEGREE = 8, SY_SIZE_MOST_SYMBOLS = 64 };

/* Larger than any dimension of a request; exporters write it for "to the end". */
#define SY_SIZE_MOST 1000000000

/* Atoms by number: 0 is N. */
enum sy_atom_kind { SY_ATOM_N, SY_ATOM_SYMBOL, SY_ATOM_FLOOR, SY_ATOM_MIN };

struct sy_atom {
    enum sy_atom_kind kind;
    const char *name;   /* of a symbol; of the process */
    struct sy_dim a, b; /* FLOOR: a / b. MIN: min(0, a) */
};

struct sy_size_term {
    int64_t factor;
    int n_atoms, atoms[SY_SIZE_MAX_DEGREE];
};

/* ---- making ---- */

int sy_size_symbol(const char *name, struct sy_dim *out);
/* The operands may be numbers, linear in N, or expressions. */
int sy_size_add(struct sy_dim a, struct sy_dim b, struct sy_dim *out);
int sy_size_sub(struct sy_dim a, struct sy_dim b, struct sy_dim *out);
int sy_size_mul(struct sy_dim a, struct sy_dim b, struct sy_dim *out);
/* Exact for all sizes. */
int sy_size_div(struct sy_dim a, struct sy_dim b, struct sy_dim *out);
/* Rounded down; b must be above 0 for all sizes; EUNSUPPORTED if that is not known. */
int sy_size_floor_div(struct sy_dim a, struct sy_dim b, struct sy_dim *out);
int sy_size_min(struct sy_dim a, struct sy_dim b, struct sy_dim *out);
int sy_size_max(struct sy_dim a, struct sy_dim b, struct sy_dim *out);
/* Replaces `atom` by `to`. */
int sy_size_substitute(struct sy_dim dim, int atom, struct sy_dim to, struct sy_dim *out);

/* ---- looking ---- */

int sy_size_terms(struct sy_dim dim, struct sy_size_term terms[SY_SIZE_MAX_TERMS]); /* how many */
struct sy_atom sy_size_atom(int atom);
int sy_size_atom_dim(int atom, struct sy_dim *out);
bool sy_size_is_symbol(struct sy_dim dim, int *atom); /* a single symbol and nothing else */
bool sy_size_mentions(struct sy_dim dim, int atom);   /* at any depth */
/* Bounds that hold for all sizes; INT64_MIN and INT64_MAX: none known. */
void sy_size_bounds(struct sy_dim dim, int64_t *least, int64_t *most);
/* If `zero` is 0 only where some symbol has one certain value, or a size that all its terms are products of is 0: that symbol (of several one
 * whose value is not below 0, then the one made last) and value. */
bool sy_size_isolate(struct sy_dim zero, int *atom, struct sy_dim *value);
/* Writes text such as "2*seq+1", as far as it fits; returns its full length. */
int sy_size_text(struct sy_dim dim, char *buffer, size_t bytes);

/* ---- numbers ---- */

struct sy_size_env {
    int n, symbols[SY_SIZE_MOST_SYMBOLS];
    int64_t values[SY_SIZE_MOST_SYMBOLS];
};

/* Linear in N. EUNSUPPORTED: an overflow, a division by 0, or a symbol that env does not have. */
int sy_size_evaluate(struct sy_dim dim, const struct sy_size_env *env, struct sy_dim *out);
/* If one symbol, or N, alone keeps `dim` from being a number, and but one number of it makes dim `value`: which (N: 0), and that number. *known
 * false otherwise. *n: N, or below 0 where it is not known. */
bool sy_size_solve(struct sy_dim dim, const struct sy_size_env *env, int64_t n, int64_t value,
                   int *atom, int64_t *number);

#endif
