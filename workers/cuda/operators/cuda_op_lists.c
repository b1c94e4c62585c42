/* Lists of numbers that are no tensors: they travel with the kernels' arguments. Sizes that somebody computes with (Numbers); the grams of a
 * TfIdfVectorizer, some in each step. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_program.h"
#include "workers/host/reference/kernel.h"

/* A step of its own for a part of what `all` describes. */
static int add_part(struct sy_program *p, const struct sy_cuda_formula *all,
                    const struct sy_math_generic *part)
{
    struct sy_cuda_formula *each = malloc(sizeof *each);
    SY_TRY_ALLOC(each, "node %s: no memory for its step", sy_cuda_node(p)->name);
    *each = *all;
    each->of = *part;
    return sy_cuda_formula_add(p, each);
}

/* ---- Numbers: `fixed + per_batch * N` -------------------------------------------------------------------- */

/* Adds as many steps as the arguments need: each holds a limited number. */
static int add_numbers(struct sy_program *p, const struct sy_cuda_formula *all)
{
    const struct sy_node *node = sy_cuda_node(p);
    const struct sy_attr *fixed = sy_node_attr(node, "fixed"),
                         *per_batch = sy_node_attr(node, "per_batch");
    const struct sy_generic_array *y = &all->of.at[SY_GENERIC_IN];
    int64_t n = 1;
    for (int d = 0; d < y->rank; d++)
        n *= y->dims[d];
    if (sy_is_float(y->dtype) || !fixed || !per_batch || fixed->kind != SY_ATTR_INTS ||
        per_batch->kind != SY_ATTR_INTS || fixed->n != per_batch->n || fixed->n != n)
        return sy_unsupported(node, "numbers of another count than its result");
    struct sy_math_generic part = all->of;
    struct sy_generic_numbers *numbers = &part.as.numbers;
    part.kind = SY_GENERIC_NUMBERS;
    part.op = node->op;
    for (numbers->first = 0; numbers->first < n; numbers->first += part.items) {
        part.items = SY_MIN(n - numbers->first, SY_GENERIC_NUMBERS_MOST);
        for (int64_t i = 0, k = numbers->first; i < part.items; i++, k++)
            numbers->at[i] =
                sy_dim_at((struct sy_dim){fixed->ints[k], per_batch->ints[k]}, p->batch);
        SY_TRY(add_part(p, all, &part));
    }
    return SY_OK;
}

static int build_numbers(struct sy_program *p)
{
    struct sy_cuda_formula *all;
    SY_TRY(sy_cuda_formula_open(p, &all));
    int status = add_numbers(p, all);
    free(all);
    return status;
}

/* ---- TfIdfVectorizer ---------------------------------------------------------------------------------------- */

/* Grams of one length are contiguous in the pool, from counts[length - 1] on. */
struct pool {
    const struct sy_attr *counts, *pool, *indexes, *weights;
    int64_t length, at, end; /* in the pool */
    int64_t gram;
};

/* Goes on to the next length that has grams left; false: there is none. */
static bool next_length(struct pool *g)
{
    while (g->length == 0 || g->at + g->length > g->end) {
        if (g->length == g->counts->n)
            return false;
        g->at = g->counts->ints[g->length++];
        g->end = g->length < g->counts->n ? g->counts->ints[g->length] : g->pool->n;
    }
    return true;
}

/* As many grams of one length, which sy_generic_check has bounded by SY_GENERIC_POOL_MOST, as an argument has room for. */
static void take_grams(struct pool *g, struct sy_generic_grams *to)
{
    to->length = (int32_t)g->length;
    for (to->n = 0;
         to->n < SY_GENERIC_GRAMS_MOST && (to->n + 1) * g->length <= SY_GENERIC_POOL_MOST;
         to->n++) {
        if (g->at + g->length > g->end)
            return;
        memcpy(to->pool + to->n * g->length, g->pool->ints + g->at,
               (size_t)g->length * sizeof *to->pool);
        to->index[to->n] = g->indexes->ints[g->gram];
        to->weights[to->n] = g->weights ? g->weights->floats[g->gram] : 1;
        g->at += g->length;
        g->gram++;
    }
}

/* The first step is there even if no gram counts: it writes the zeros. */
static int add_grams(struct sy_program *p, const struct sy_cuda_formula *all, struct pool *g)
{
    int64_t shortest = sy_node_int(sy_cuda_node(p), "min_gram_length", 1),
            longest = sy_node_int(sy_cuda_node(p), "max_gram_length", 1);
    bool more, begins = true;
    do {
        struct sy_math_generic part = all->of;
        struct sy_generic_grams *grams = &part.as.grams;
        more = next_length(g);
        grams->begins = begins;
        grams->skips = g->length == 1 ? 0 : grams->skips;
        if (more)
            take_grams(g, grams);
        if (grams->length < shortest || grams->length > longest)
            grams->n = 0;
        if (grams->n > 0 || begins)
            SY_TRY(add_part(p, all, &part));
        begins = false;
    } while (more);
    return SY_OK;
}

static int build_grams(struct sy_program *p)
{
    const struct sy_node *node = sy_cuda_node(p);
    const struct sy_attr *mode = sy_node_attr(node, "mode");
    struct pool g = {.counts = sy_node_attr(node, "ngram_counts"),
                     .pool = sy_node_attr(node, "pool_int64s"),
                     .indexes = sy_node_attr(node, "ngram_indexes"),
                     .weights = sy_node_attr(node, "weights")};
    struct sy_cuda_formula *all;
    if (node->n_inputs != 1 || node->inputs[0] < 0)
        return sy_unsupported(node, "other than one input");
    SY_TRY(sy_cuda_formula_open(p, &all));
    struct sy_math_generic *e = &all->of;
    int status = sy_generic_check(node, e);
    if (status == SY_OK) {
        const struct sy_generic_array *y = &e->at[SY_GENERIC_IN];
        e->kind = SY_GENERIC_GRAMS;
        e->items = y->n;
        e->as.grams = (struct sy_generic_grams){.counts = strcmp(mode->s, "IDF") != 0,
                                                .weighs = g.weights && strcmp(mode->s, "TF") != 0,
                                                .skips = sy_node_int(node, "max_skip_count", 0),
                                                .columns = y->dims[y->rank - 1]};
        status = add_grams(p, all, &g);
    }
    free(all);
    return status;
}

const struct sy_cuda_op sy_cuda_ops_lists[] = {{.build = build_numbers, SY_OPS(SY_OP_NUMBERS)},
                                               {.build = build_grams, SY_OPS(SY_OP_TF_IDF)},
                                               {0}};
