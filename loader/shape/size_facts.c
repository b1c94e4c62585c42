#include "loader/shape/size_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/size_expr.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MOST_CONDITIONS = 4096, MOST_REWRITES = 256 };

void sy_facts_finish(struct sy_facts *facts)
{
    for (int i = 0; i < facts->n_conditions; i++)
        free(facts->conditions[i].where);
    free(facts->conditions);
    free(facts->rewrites);
    *facts = (struct sy_facts){0};
}

int sy_facts_save(const struct sy_facts *facts, struct sy_facts *to)
{
    *to = (struct sy_facts){.n_conditions = facts->n_conditions, .n_rewrites = facts->n_rewrites};
    if (facts->n_rewrites == 0)
        return SY_OK;
    SY_TRY(sy_graph_alloc((size_t)facts->n_rewrites, sizeof *to->rewrites, &to->rewrites));
    memcpy(to->rewrites, facts->rewrites, (size_t)facts->n_rewrites * sizeof *to->rewrites);
    return SY_OK;
}

/* New conditions come last; a new rewrite changes those before it. */
void sy_facts_restore(struct sy_facts *facts, struct sy_facts *saved)
{
    while (facts->n_conditions > saved->n_conditions)
        free(facts->conditions[--facts->n_conditions].where);
    if (saved->n_rewrites > 0)
        memcpy(facts->rewrites, saved->rewrites,
               (size_t)saved->n_rewrites * sizeof *saved->rewrites);
    facts->n_rewrites = saved->n_rewrites;
    free(saved->rewrites);
}

int sy_facts_set_aside(struct sy_facts *facts, struct sy_facts *saved, struct sy_facts *aside)
{
    int n = facts->n_conditions - saved->n_conditions;
    *aside = (struct sy_facts){0};
    int status = sy_graph_alloc((size_t)n + 1, sizeof *aside->conditions, &aside->conditions);
    if (status == SY_OK)
        status = sy_graph_alloc((size_t)facts->n_rewrites + 1, sizeof *aside->rewrites,
                                &aside->rewrites);
    if (status == SY_OK) {
        for (int i = 0; i < n; i++) {
            aside->conditions[i] = facts->conditions[saved->n_conditions + i];
            aside->conditions[i].where = NULL;
        }
        if (facts->n_rewrites > 0)
            memcpy(aside->rewrites, facts->rewrites,
                   (size_t)facts->n_rewrites * sizeof *facts->rewrites);
        aside->n_conditions = n;
        aside->n_rewrites = facts->n_rewrites;
    }
    sy_facts_restore(facts, saved);
    return status;
}

static bool has_rewrite(const struct sy_facts *facts, const struct sy_rewrite *wanted)
{
    for (int i = 0; i < facts->n_rewrites; i++)
        if (facts->rewrites[i].atom == wanted->atom &&
            sy_dim_equal(facts->rewrites[i].to, wanted->to))
            return true;
    return false;
}

static bool has_condition(int n, const struct sy_condition *list, const struct sy_condition *wanted)
{
    for (int i = 0; i < n; i++)
        if (list[i].at_most == wanted->at_most && sy_dim_equal(list[i].left, wanted->left) &&
            sy_dim_equal(list[i].right, wanted->right))
            return true;
    return false;
}

bool sy_facts_are(const struct sy_facts *facts, int first, const struct sy_facts *aside)
{
    int n = facts->n_conditions - first;
    bool same = n == aside->n_conditions && facts->n_rewrites == aside->n_rewrites;
    for (int i = 0; i < aside->n_rewrites && same; i++)
        same = has_rewrite(facts, &aside->rewrites[i]);
    for (int i = 0; i < n && same; i++)
        same = has_condition(n, facts->conditions + first, &aside->conditions[i]);
    return same;
}

static int rewritten(const struct sy_facts *facts, struct sy_dim dim, struct sy_dim *out)
{
    *out = dim;
    for (int i = 0; i < facts->n_rewrites && sy_dim_is_expr(*out); i++)
        SY_TRY(sy_size_substitute(*out, facts->rewrites[i].atom, facts->rewrites[i].to, out));
    return SY_OK;
}

/* ---- new facts ---------------------------------------------------------------------------------- */

static bool add_condition(struct sy_facts *facts, const struct sy_node *node, struct sy_dim left,
                          struct sy_dim right, bool at_most)
{
    struct sy_condition *grown;
    char text[256];
    for (int i = 0; i < facts->n_conditions; i++) {
        const struct sy_condition *c = &facts->conditions[i];
        if (c->at_most == at_most && memcmp(&c->left, &left, sizeof left) == 0 &&
            memcmp(&c->right, &right, sizeof right) == 0)
            return true;
    }
    if (facts->n_conditions == MOST_CONDITIONS)
        return false;
    grown = realloc(facts->conditions, (size_t)(facts->n_conditions + 1) * sizeof *grown);
    if (!grown)
        return false;
    facts->conditions = grown;
    char *where = strdup(sy_node_text(node, text, sizeof text));
    if (!where)
        return false;
    grown[facts->n_conditions++] = (struct sy_condition){left, right, at_most, where};
    return true;
}

/* Replaces the atom by `to` from now on, and in all facts known so far. */
static bool add_rewrite(struct sy_facts *facts, int atom, struct sy_dim to)
{
    struct sy_rewrite *grown;
    if (facts->n_rewrites == MOST_REWRITES)
        return false;
    for (int i = 0; i < facts->n_rewrites; i++)
        if (sy_size_substitute(facts->rewrites[i].to, atom, to, &facts->rewrites[i].to) < 0)
            return false;
    grown = realloc(facts->rewrites, (size_t)(facts->n_rewrites + 1) * sizeof *grown);
    if (!grown)
        return false;
    facts->rewrites = grown;
    grown[facts->n_rewrites++] = (struct sy_rewrite){atom, to};
    return true;
}

/* x <= 0, said as a person would: seq <= 96, not seq - 96 <= 0. */
static bool add_at_most_zero(struct sy_facts *facts, const struct sy_node *node, struct sy_dim x)
{
    struct sy_size_term terms[SY_SIZE_MAX_TERMS];
    struct sy_dim left = {0, 0}, right;
    int n = sy_size_terms(x, terms);
    for (int i = 0; i < n; i++) {
        struct sy_dim product = {terms[i].factor, 0}, atom;
        for (int k = 0; terms[i].factor > 0 && k < terms[i].n_atoms; k++)
            if (sy_size_atom_dim(terms[i].atoms[k], &atom) < 0 ||
                sy_size_mul(product, atom, &product) < 0)
                return false;
        if (terms[i].factor > 0 && sy_size_add(left, product, &left) < 0)
            return false;
    }
    return sy_size_sub(left, x, &right) == SY_OK && add_condition(facts, node, left, right, true);
}

/* A difference that is a min(0, x), or that minus x, is 0 where x is on one side of 0. */
static bool assume_side(struct sy_facts *facts, const struct sy_node *node, struct sy_dim zero)
{
    struct sy_size_term terms[SY_SIZE_MAX_TERMS];
    int n = sy_size_terms(zero, terms);
    for (int i = 0; i < n; i++) {
        struct sy_dim min, rest, scaled, minus, none = {0, 0}, factor = {terms[i].factor, 0};
        if (terms[i].n_atoms != 1)
            continue;
        int id = terms[i].atoms[0];
        struct sy_atom atom = sy_size_atom(id);
        if (atom.kind != SY_ATOM_MIN || sy_size_atom_dim(id, &min) < 0 ||
            sy_size_mul(min, factor, &min) < 0 || sy_size_sub(min, zero, &rest) < 0 ||
            sy_size_mul(atom.a, factor, &scaled) < 0)
            continue;
        if (sy_dim_is(rest, 0)) /* min(0, x) = 0 */
            return sy_size_sub(none, atom.a, &minus) == SY_OK &&
                   add_at_most_zero(facts, node, minus) && add_rewrite(facts, id, none);
        if (sy_dim_equal(rest, scaled)) /* min(0, x) = x */
            return add_at_most_zero(facts, node, atom.a) && add_rewrite(facts, id, atom.a);
    }
    return false;
}

static bool is_first_size(const struct sy_graph *graph, int atom)
{
    int symbol;
    for (int i = 0; i < graph->n_inputs; i++) {
        const struct sy_shape *shape = &graph->tensors[graph->inputs[i]].shape;
        if (shape->rank > 0 && sy_size_is_symbol(shape->dims[0], &symbol) && symbol == atom)
            return true;
    }
    return false;
}

static bool has_atom(const struct sy_size_term *term, int atom)
{
    for (int k = 0; k < term->n_atoms; k++)
        if (term->atoms[k] == atom)
            return true;
    return false;
}

/* An input's first size among the term's becomes N. */
static bool make_batch(struct sy_infer *in, const struct sy_size_term *term)
{
    for (int k = 0; k < term->n_atoms; k++)
        if (is_first_size(in->graph, term->atoms[k]))
            return add_rewrite(in->facts, term->atoms[k], (struct sy_dim){0, 1});
    return false;
}

/* N*T = M*S, and M is an input's first size: that is N, so the other two are one. */
static bool assume_batch(struct sy_infer *in, struct sy_dim zero)
{
    struct sy_size_term terms[SY_SIZE_MAX_TERMS];
    if (sy_size_terms(zero, terms) != 2 || has_atom(&terms[0], 0) == has_atom(&terms[1], 0))
        return false;
    return make_batch(in, &terms[has_atom(&terms[0], 0)]);
}

bool sy_infer_meet_batch(struct sy_infer *in, struct sy_dim *total, struct sy_dim known)
{
    struct sy_size_term terms[SY_SIZE_MAX_TERMS];
    if (!in->facts || sy_dim_is_expr(known) || known.fixed != 0 || known.per_batch == 0 ||
        sy_size_terms(*total, terms) != 1 || has_atom(&terms[0], 0))
        return false;
    return make_batch(in, &terms[0]) && rewritten(in->facts, *total, total) == SY_OK;
}

/* An input's first size that the file gives no name. */
static bool is_nameless_first_size(const struct sy_graph *graph, struct sy_dim dim)
{
    char name[256];
    for (int i = 0; i < graph->n_inputs; i++) {
        const struct sy_tensor *t = &graph->tensors[graph->inputs[i]];
        struct sy_dim own;
        snprintf(name, sizeof name, "%.200s.0", t->name);
        if (t->shape.rank > 0 && sy_dim_equal(t->shape.dims[0], dim) &&
            sy_size_symbol(name, &own) == SY_OK && sy_dim_equal(own, dim))
            return true;
    }
    return false;
}

bool sy_infer_meet_sliced(struct sy_infer *in, struct sy_dim size, struct sy_dim count)
{
    int atom;
    return in->facts && count.fixed == 0 && count.per_batch == 1 &&
           sy_size_is_symbol(size, &atom) && is_nameless_first_size(in->graph, size) &&
           add_rewrite(in->facts, atom, count);
}

/* Makes the difference 0. */
static bool assume_zero(struct sy_infer *in, const struct sy_node *node, struct sy_dim a,
                        struct sy_dim b, struct sy_dim zero)
{
    int64_t least, most;
    int atom;
    struct sy_dim value;
    sy_size_bounds(zero, &least, &most);
    if (least > 0 || most < 0)
        return false;
    if (!sy_size_isolate(zero, &atom, &value) && assume_batch(in, zero) &&
        rewritten(in->facts, zero, &zero) < 0)
        return false;
    if (sy_dim_is(zero, 0))
        return true;
    if (sy_size_isolate(zero, &atom, &value)) {
        sy_size_bounds(value, &least, &most);
        return most >= 0 && add_rewrite(in->facts, atom, value);
    }
    return assume_side(in->facts, node, zero) || add_condition(in->facts, node, a, b, false);
}

static bool may_be_same(struct sy_infer *in, const struct sy_node *node, struct sy_dim *a,
                        struct sy_dim b)
{
    struct sy_dim zero, left = *a;
    if (sy_dim_equal(left, b))
        return true;
    if (!in->facts || rewritten(in->facts, left, &left) < 0 || rewritten(in->facts, b, &b) < 0)
        return false;
    *a = sy_dim_is_number(b) ? b : left;
    if (sy_dim_equal(left, b))
        return true;
    if (sy_dim_sub(left, b, &zero) < 0 || !sy_dim_is_expr(zero) ||
        !assume_zero(in, node, left, b, zero))
        return false;
    return rewritten(in->facts, *a, a) == SY_OK;
}

bool sy_infer_same_size(struct sy_infer *in, const struct sy_node *node, struct sy_dim *a,
                        struct sy_dim b)
{
    bool same = may_be_same(in, node, a, b);
    if (in->facts)
        in->facts->n_misfits += !same;
    return same;
}

bool sy_infer_same_shape(struct sy_infer *in, const struct sy_node *node, const struct sy_shape *a,
                         const struct sy_shape *b)
{
    bool same = a->rank == b->rank;
    for (int i = 0; i < a->rank && same; i++) {
        struct sy_dim dim = a->dims[i];
        same = sy_infer_same_size(in, node, &dim, b->dims[i]);
    }
    return same;
}

bool sy_infer_at_most(struct sy_infer *in, const struct sy_node *node, struct sy_dim left,
                      struct sy_dim right)
{
    struct sy_dim room;
    int64_t least, most;
    int atom;
    if (in->facts && !sy_dim_is_expr(left) && left.per_batch > 0 &&
        sy_size_is_symbol(right, &atom) && is_first_size(in->graph, atom))
        return add_rewrite(in->facts, atom, left); /* no constant is at least N for all N */
    if (sy_dim_sub(right, left, &room) < 0)
        return false;
    sy_size_bounds(room, &least, &most);
    if (least >= 0 || most < 0 || !sy_dim_is_expr(room))
        return least >= 0;
    return in->facts && add_condition(in->facts, node, left, right, true);
}

/* ---- everywhere --------------------------------------------------------------------------------- */

static int apply_list(const struct sy_facts *facts, int64_t n, struct sy_dim *dims)
{
    for (int64_t i = 0; i < n; i++)
        SY_TRY(rewritten(facts, dims[i], &dims[i]));
    return SY_OK;
}

static int apply_graph(const struct sy_facts *facts, struct sy_graph *graph)
{
    for (int t = 0; t < graph->n_tensors; t++)
        SY_TRY(apply_list(facts, graph->tensors[t].shape.rank, graph->tensors[t].shape.dims));
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_attrs; i++) {
            struct sy_attr *attr = &graph->nodes[n].attrs[i];
            if (attr->kind == SY_ATTR_GRAPH)
                SY_TRY(apply_graph(facts, attr->graph));
            if (attr->kind == SY_ATTR_SIZES)
                SY_TRY(apply_list(facts, attr->n, attr->sizes));
        }
    return SY_OK;
}

int sy_facts_apply(struct sy_infer *in)
{
    struct sy_facts *facts = in->facts;
    if (facts->n_applied == facts->n_rewrites)
        return SY_OK;
    SY_TRY(apply_graph(facts, in->graph));
    for (int t = 0; t < in->graph->n_tensors; t++)
        if (in->values[t])
            SY_TRY(apply_list(facts, sy_shape_elements(&in->graph->tensors[t].shape, 0),
                              in->values[t]));
    for (int t = 0; t < in->graph->n_tensors; t++) {
        int64_t n = in->fractions[t] ? sy_shape_elements(&in->graph->tensors[t].shape, 0) : 0;
        for (int64_t i = 0; i < n; i++) {
            SY_TRY(rewritten(facts, in->fractions[t][i].over, &in->fractions[t][i].over));
            SY_TRY(rewritten(facts, in->fractions[t][i].under, &in->fractions[t][i].under));
        }
    }
    facts->n_applied = facts->n_rewrites;
    return SY_OK;
}

/* ---- the end ------------------------------------------------------------------------------------ */

static int settle_conditions(struct sy_facts *facts, struct sy_graph *graph)
{
    for (int i = 0; i < facts->n_conditions; i++) {
        struct sy_condition *c = &facts->conditions[i];
        struct sy_dim room;
        int64_t least, most;
        SY_TRY(rewritten(facts, c->left, &c->left));
        SY_TRY(rewritten(facts, c->right, &c->right));
        SY_TRY(sy_dim_sub(c->right, c->left, &room));
        sy_size_bounds(room, &least, &most);
        if (c->at_most ? most < 0 : least > 0 || most < 0)
            return sy_error_set(SY_EUNSUPPORTED, "%s: no sizes fit", c->where);
        if (c->at_most ? least >= 0 : least == 0 && most == 0) {
            free(c->where);
            *c = facts->conditions[--facts->n_conditions];
            i--;
        }
    }
    free(graph->conditions); /* none, but maybe a list for them */
    graph->conditions = facts->conditions;
    graph->n_conditions = facts->n_conditions;
    facts->conditions = NULL;
    facts->n_conditions = 0;
    return SY_OK;
}

static bool input_mentions(const struct sy_graph *graph, int atom)
{
    for (int i = 0; i < graph->n_inputs; i++) {
        const struct sy_shape *shape = &graph->tensors[graph->inputs[i]].shape;
        for (int d = 0; d < shape->rank; d++)
            if (sy_dim_is_expr(shape->dims[d]) && sy_size_mentions(shape->dims[d], atom))
                return true;
    }
    return false;
}

static int settle_symbols(struct sy_graph *graph)
{
    int n = 0;
    for (int i = 0; i < graph->n_symbols; i++) {
        struct sy_dim dim;
        int atom;
        SY_TRY(sy_size_symbol(graph->symbols[i].name, &dim));
        if (sy_size_is_symbol(dim, &atom) && input_mentions(graph, atom))
            graph->symbols[n++] = graph->symbols[i];
        else
            free(graph->symbols[i].name);
    }
    graph->n_symbols = n;
    if (n > SY_MAX_SYMBOLS)
        return sy_error_set(SY_EUNSUPPORTED,
                            "%d sizes are open, from %.80s to %.80s; at most %d may be", n,
                            graph->symbols[0].name, graph->symbols[n - 1].name, SY_MAX_SYMBOLS);
    return SY_OK;
}

int sy_facts_commit(struct sy_infer *in)
{
    SY_TRY(sy_facts_apply(in));
    SY_TRY(settle_conditions(in->facts, in->graph));
    return settle_symbols(in->graph);
}
