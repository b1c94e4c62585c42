/* Einsum of more than two tensors -> Einsums of two. Einsum of two tensors that is a product of matrices -> Transpose, Reshape, MatMul,
 * Reshape, Transpose.
 *
 *   ij,jk,kl->il       ij,jk->ik  ik,kl->il: of all pairs the one whose result is smallest, then again
 *   bhid,bhjd->bhij    labels of both and the result: batch (b, h); of one and the result: rows (i), columns (j); of both alone: sum (d) */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/fuse/fuse.h"
#include "loader/graph/graph_bind.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MAX_LABELS = SY_MAX_RANK };

struct term {
    int n;
    char labels[MAX_LABELS];
};

/* Groups of labels, in the order in which the product has them. */
struct product {
    struct term in[2], out, batch, rows, columns, sum;
};

static int find(const struct term *term, char label)
{
    for (int i = 0; i < term->n; i++)
        if (term->labels[i] == label)
            return i;
    return -1;
}

static bool add_label(struct term *term, char label)
{
    if (term->n == MAX_LABELS || find(term, label) >= 0)
        return false;
    term->labels[term->n++] = label;
    return true;
}

/* "ab,bc->ac": letters, each once in a term, nothing left to guess. */
static bool parse(const char *equation, struct product *p)
{
    struct term *at = &p->in[0];
    memset(p, 0, sizeof *p);
    for (; *equation; equation++) {
        if (*equation == ' ')
            continue;
        if (*equation == ',' && at == &p->in[0])
            at = &p->in[1];
        else if (*equation == '-' && equation[1] == '>' && at == &p->in[1])
            at = &p->out, equation++;
        else if (!isalpha((unsigned char)*equation) || !add_label(at, *equation))
            return false;
    }
    return at == &p->out;
}

/* False where a label is summed that only one tensor has, or made of nothing. */
static bool classify(struct product *p)
{
    for (int i = 0; i < p->out.n; i++) {
        char c = p->out.labels[i];
        bool a = find(&p->in[0], c) >= 0, b = find(&p->in[1], c) >= 0;
        if ((!a && !b) || !add_label(a && b ? &p->batch : a ? &p->rows : &p->columns, c))
            return false;
    }
    for (int i = 0; i < p->in[0].n; i++) {
        char c = p->in[0].labels[i];
        if (find(&p->out, c) < 0 && (find(&p->in[1], c) < 0 || !add_label(&p->sum, c)))
            return false;
    }
    for (int i = 0; i < p->in[1].n; i++)
        if (find(&p->out, p->in[1].labels[i]) < 0 && find(&p->in[0], p->in[1].labels[i]) < 0)
            return false;
    return p->sum.n > 0 && p->batch.n + 2 <= SY_MAX_RANK;
}

/* Size of a label; false where the tensors disagree (a 1 that is repeated, too). */
static bool sizes_agree(const struct sy_fuse *f, const struct sy_node *node,
                        const struct product *p)
{
    const struct sy_shape *a = &sy_fuse_tensor(f, node->inputs[0])->shape,
                          *b = &sy_fuse_tensor(f, node->inputs[1])->shape;
    if (a->rank != p->in[0].n || b->rank != p->in[1].n)
        return false;
    for (int i = 0; i < a->rank; i++) {
        int k = find(&p->in[1], p->in[0].labels[i]);
        if (k >= 0 && !sy_dim_equal(a->dims[i], b->dims[k]))
            return false;
    }
    return true;
}

static struct sy_dim size_of(const struct sy_fuse *f, const struct sy_node *node,
                             const struct product *p, char label)
{
    int k = find(&p->in[0], label);
    return k >= 0 ? sy_fuse_tensor(f, node->inputs[0])->shape.dims[k]
                  : sy_fuse_tensor(f, node->inputs[1])->shape.dims[find(&p->in[1], label)];
}

static struct term join(const struct term *a, const struct term *b, const struct term *c)
{
    struct term all = *a;
    for (int i = 0; i < b->n && all.n < MAX_LABELS; i++)
        all.labels[all.n++] = b->labels[i];
    for (int i = 0; i < c->n && all.n < MAX_LABELS; i++)
        all.labels[all.n++] = c->labels[i];
    return all;
}

static int add_step(struct sy_fuse *f, const struct sy_node *like, enum sy_op op, int n,
                    const int *inputs, const struct sy_shape *shape, int *out)
{
    char name[256];
    snprintf(name, sizeof name, "%.200s/%s%d", like->name, sy_op_name(op), f->graph->n_tensors);
    enum sy_dtype dtype = f->graph->tensors[inputs[0]].dtype;
    SY_TRY(sy_graph_add_tensor(f->graph, name, dtype, shape, out));
    return sy_graph_add_node(f->graph, op, 13, name, n, inputs, 1, out, NULL);
}

/* `x`, whose dimensions are `from`, with them in the order of `to`. */
static int permute(struct sy_fuse *f, const struct sy_node *like, int x, const struct term *from,
                   const struct term *to, int *out)
{
    struct sy_shape shape = {.rank = to->n};
    int64_t perm[MAX_LABELS];
    for (int i = 0; i < to->n; i++) {
        perm[i] = find(from, to->labels[i]);
        shape.dims[i] = f->graph->tensors[x].shape.dims[perm[i]];
    }
    SY_TRY(add_step(f, like, SY_OP_TRANSPOSE, 1, &x, &shape, out));
    return sy_node_set_ints(&f->graph->nodes[f->graph->n_nodes - 1], "perm", to->n, perm);
}

/* The shape [batch..., labels of a, labels of b]. */
static int matrix_shape(const struct sy_fuse *f, const struct sy_node *node,
                        const struct product *p, const struct term *a, const struct term *b,
                        struct sy_shape *shape)
{
    *shape = (struct sy_shape){.rank = p->batch.n + 2};
    for (int i = 0; i < p->batch.n; i++)
        shape->dims[i] = size_of(f, node, p, p->batch.labels[i]);
    const struct term *sides[2] = {a, b};
    for (int s = 0; s < 2; s++) {
        struct sy_dim *dim = &shape->dims[p->batch.n + s];
        *dim = (struct sy_dim){1, 0};
        for (int i = 0; i < sides[s]->n; i++)
            SY_TRY(sy_dim_mul(*dim, size_of(f, node, p, sides[s]->labels[i]), dim));
    }
    return SY_OK;
}

/* Takes a copy of the node: adding others moves it. */
static int expand(struct sy_fuse *f, const struct sy_node *node, const struct product *p,
                  const struct sy_shape shapes[3])
{
    struct term orders[2] = {join(&p->batch, &p->rows, &p->sum),
                             join(&p->batch, &p->sum, &p->columns)};
    struct term made = join(&p->batch, &p->rows, &p->columns);
    struct sy_shape apart = {.rank = made.n};
    int sides[2], product, split, out = node->outputs[0];
    for (int i = 0; i < 2; i++) {
        int turned;
        SY_TRY(permute(f, node, node->inputs[i], &p->in[i], &orders[i], &turned));
        SY_TRY(add_step(f, node, SY_OP_RESHAPE, 1, &turned, &shapes[i], &sides[i]));
    }
    SY_TRY(add_step(f, node, SY_OP_MATMUL, 2, sides, &shapes[2], &product));
    for (int i = 0; i < made.n; i++)
        apart.dims[i] = size_of(f, node, p, made.labels[i]);
    SY_TRY(add_step(f, node, SY_OP_RESHAPE, 1, &product, &apart, &split));
    int64_t perm[MAX_LABELS];
    for (int i = 0; i < p->out.n; i++)
        perm[i] = find(&made, p->out.labels[i]);
    SY_TRY(sy_graph_add_node(f->graph, SY_OP_TRANSPOSE, 13, node->name, 1, &split, 1, &out, NULL));
    return sy_node_set_ints(&f->graph->nodes[f->graph->n_nodes - 1], "perm", p->out.n, perm);
}

static int expand_node(struct sy_fuse *f, int n, bool *changed)
{
    struct sy_node node = f->graph->nodes[n];
    const struct sy_attr *equation = sy_node_attr(&node, "equation");
    struct product p;
    struct sy_shape shapes[3];
    if (node.n_inputs != 2 || node.n_outputs != 1 || !equation ||
        equation->kind != SY_ATTR_STRING || !equation->s || !parse(equation->s, &p) ||
        !classify(&p) || !sizes_agree(f, &node, &p))
        return SY_OK;
    if (sy_fuse_tensor(f, node.inputs[0])->dtype != SY_DTYPE_F32 ||
        matrix_shape(f, &node, &p, &p.rows, &p.sum, &shapes[0]) < 0 ||
        matrix_shape(f, &node, &p, &p.sum, &p.columns, &shapes[1]) < 0 ||
        matrix_shape(f, &node, &p, &p.rows, &p.columns, &shapes[2]) < 0)
        return SY_OK;
    SY_TRY(expand(f, &node, &p, shapes));
    sy_node_finish(&f->graph->nodes[n]);
    *changed = true;
    return SY_OK;
}

/* ---- more than two -------------------------------------------------------------------------------------- */

enum { MOST_FACTORS = 32 };

/* `labels` of `in` are those of its dimensions; a letter may be there twice. */
struct factors {
    int n, tensors[MOST_FACTORS];
    struct term in[MOST_FACTORS], out;
};

static bool parse_terms(const char *equation, struct factors *s)
{
    const char *arrow = strstr(equation, "->");
    bool before = true;
    memset(s, 0, sizeof *s);
    s->n = 1;
    for (const char *c = equation; *c; c++) {
        struct term *at = before ? &s->in[s->n - 1] : &s->out;
        if (*c == ' ')
            continue;
        if (*c == ',' && before && s->n < MOST_FACTORS)
            s->n++;
        else if (c == arrow)
            before = false, c++;
        else if (!isalpha((unsigned char)*c) || at->n == MAX_LABELS)
            return false;
        else
            at->labels[at->n++] = *c;
    }
    return arrow;
}

static bool has_label(const struct factors *s, char label, int but, int and_but)
{
    bool found = find(&s->out, label) >= 0;
    for (int i = 0; i < s->n && !found; i++)
        found = i != but && i != and_but && find(&s->in[i], label) >= 0;
    return found;
}

/* The labels of the product of a and b: those that other operands or the result have. False: too many, or of different sizes. */
static bool merge(const struct sy_fuse *f, const struct factors *s, int a, int b, struct term *out,
                  struct sy_shape *shape)
{
    const int sides[2] = {a, b};
    *out = (struct term){0};
    *shape = (struct sy_shape){.rank = 0};
    for (int side = 0; side < 2; side++) {
        const struct term *from = &s->in[sides[side]];
        for (int d = 0; d < from->n; d++) {
            struct sy_dim dim = sy_fuse_tensor(f, s->tensors[sides[side]])->shape.dims[d];
            int k = find(out, from->labels[d]);
            if (k < 0 && !has_label(s, from->labels[d], a, b))
                continue;
            if (k < 0 && !add_label(out, from->labels[d]))
                return false;
            if (k < 0 || sy_dim_is(shape->dims[k], 1))
                shape->dims[k < 0 ? shape->rank++ : k] = dim;
            else if (!sy_dim_is(dim, 1) && !sy_dim_equal(dim, shape->dims[k]))
                return false;
        }
    }
    return true;
}

/* The pair whose result is smallest with the usual sizes and a batch of one; false: no pair can be taken alone. */
static bool choose(const struct sy_fuse *f, const struct factors *s, int *a, int *b)
{
    int64_t least = -1;
    for (int i = 0; i < s->n; i++)
        for (int k = i + 1; k < s->n; k++) {
            struct term left;
            struct sy_shape shape;
            if (!merge(f, s, i, k, &left, &shape))
                continue;
            int64_t elements = sy_graph_usual_elements(f->graph, &shape);
            if (least >= 0 && elements >= least)
                continue;
            least = elements;
            *a = i;
            *b = k;
        }
    return least >= 0;
}

static int set_equation(struct sy_fuse *f, const struct factors *s, const int *which, int n,
                        const struct term *out)
{
    char text[MOST_FACTORS * (MAX_LABELS + 1) + MAX_LABELS + 3];
    struct sy_attr *attr;
    size_t used = 0;
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.*s", i ? "," : "",
                                 s->in[which[i]].n, s->in[which[i]].labels);
    snprintf(text + used, sizeof text - used, "->%.*s", out->n, out->labels);
    SY_TRY(sy_node_attr_slot(&f->graph->nodes[f->graph->n_nodes - 1], "equation", &attr));
    attr->kind = SY_ATTR_STRING;
    return sy_graph_strdup(text, &attr->s);
}

static int multiply_pair(struct sy_fuse *f, const struct sy_node *like, struct factors *s, int a,
                         int b)
{
    const int inputs[2] = {s->tensors[a], s->tensors[b]};
    struct term left;
    struct sy_shape shape;
    int made;
    if (!merge(f, s, a, b, &left, &shape))
        return sy_error_set(SY_EBUG, "node %s: factors %d and %d", like->name, a, b);
    SY_TRY(add_step(f, like, SY_OP_EINSUM, 2, inputs, &shape, &made));
    SY_TRY(set_equation(f, s, (int[]){a, b}, 2, &left));
    s->in[a] = left;
    s->tensors[a] = made;
    s->n--;
    memmove(&s->in[b], &s->in[b + 1], (size_t)(s->n - b) * sizeof *s->in);
    memmove(&s->tensors[b], &s->tensors[b + 1], (size_t)(s->n - b) * sizeof *s->tensors);
    return SY_OK;
}

static bool read_factors(const struct sy_fuse *f, const struct sy_node *node, struct factors *s)
{
    const struct sy_attr *equation = sy_node_attr(node, "equation");
    if (node->n_inputs < 3 || node->n_outputs != 1 || !equation ||
        equation->kind != SY_ATTR_STRING || !equation->s || !parse_terms(equation->s, s) ||
        s->n != node->n_inputs)
        return false;
    enum sy_dtype dtype = sy_fuse_tensor(f, node->inputs[0])->dtype;
    for (int i = 0; i < s->n; i++) {
        s->tensors[i] = node->inputs[i];
        if (sy_fuse_tensor(f, node->inputs[i])->shape.rank != s->in[i].n)
            return false;
    }
    return sy_dtype_is_integer(dtype) || dtype == SY_DTYPE_F32 || dtype == SY_DTYPE_F64;
}

static int pair_node(struct sy_fuse *f, int n, bool *changed)
{
    struct sy_node node = f->graph->nodes[n];
    struct factors s;
    int a = 0, b = 0, all[MOST_FACTORS];
    if (!read_factors(f, &node, &s) || !choose(f, &s, &a, &b))
        return SY_OK;
    while (s.n > 2 && choose(f, &s, &a, &b))
        SY_TRY(multiply_pair(f, &node, &s, a, b));
    for (int i = 0; i < s.n; i++)
        all[i] = i;
    SY_TRY(sy_graph_add_node(f->graph, SY_OP_EINSUM, 13, node.name, s.n, s.tensors, 1, node.outputs,
                             NULL));
    SY_TRY(set_equation(f, &s, all, s.n, &s.out));
    sy_node_finish(&f->graph->nodes[n]);
    *changed = true;
    return SY_OK;
}

/* ---- the passes ------------------------------------------------------------------------------------------ */

static int each_einsum(struct sy_fuse *f, int (*pass)(struct sy_fuse *f, int n, bool *changed))
{
    bool changed = false;
    int n_nodes = f->graph->n_nodes;
    for (int n = 0; n < n_nodes; n++)
        if (f->graph->nodes[n].op == SY_OP_EINSUM)
            SY_TRY(pass(f, n, &changed));
    if (!changed)
        return SY_OK;
    sy_graph_compact(f->graph);
    return sy_graph_sort(f->graph);
}

int sy_fuse_einsum_pairs(struct sy_fuse *f)
{
    return each_einsum(f, pair_node);
}

int sy_fuse_einsums(struct sy_fuse *f)
{
    return each_einsum(f, expand_node);
}
