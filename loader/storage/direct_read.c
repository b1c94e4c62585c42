#include "loader/storage/direct_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define SMALLEST_GROUP (64ull << 10)

static bool picks_elements(enum sy_op op)
{
    return op == SY_OP_GATHER || op == SY_OP_GATHER_ELEMENTS || op == SY_OP_GATHER_ND;
}

uint64_t sy_layer_read_bytes(const struct sy_graph *graph, const struct sy_layer *layer,
                             int64_t batch)
{
    const struct sy_node *node = &graph->nodes[layer->node];
    if (!picks_elements(node->op) || layer->n_params != 1 || layer->params[0].input != 0 ||
        node->n_outputs < 1)
        return 0;
    const struct sy_tensor *out = &graph->tensors[node->outputs[0]],
                           *table = &graph->tensors[node->inputs[0]];
    int64_t elements = sy_shape_elements(&out->shape, batch),
            n_packed = sy_shape_elements(&table->shape, batch);
    if (elements <= 0 || n_packed <= 0)
        return 0;
    /* A packed element may be smaller than the tensor's type. */
    uint64_t bytes = (uint64_t)elements * (layer->params[0].bytes / (uint64_t)n_packed);
    return bytes < layer->bytes ? bytes : 0;
}

/* ---- choosing ------------------------------------------------------------------------------------- */

struct chooser {
    const struct sy_plan_layer *layers; /* as they are */
    const uint64_t *read_bytes;
    int n_layers, max_groups;
    const struct sy_link_cost *cost; /* as planned for */
    uint64_t max_group_bytes;
    /* layers as changed: direct ones have no copy and longer compute times */
    struct sy_plan_layer *changed;
    bool *direct, *seen;
};

static uint64_t read_ns(const struct sy_link_cost *cost, uint64_t bytes)
{
    return (uint64_t)llround(cost->alpha_ns + (double)bytes / cost->bytes_per_ns);
}

/* The largest layer not considered yet; -1: none. */
static int next_candidate(const struct chooser *c)
{
    int best = -1;
    for (int i = 0; i < c->n_layers; i++)
        if (!c->seen[i] && c->read_bytes[i] > 0 && c->read_bytes[i] < c->layers[i].bytes &&
            (best < 0 || c->layers[i].bytes > c->layers[best].bytes))
            best = i;
    return best;
}

static int plan(const struct chooser *c, struct sy_plan *out)
{
    return sy_plan_make(c->changed, c->n_layers, c->cost, c->max_groups, c->max_group_bytes, out);
}

static int choose(struct chooser *c, struct sy_plan *best)
{
    for (int i = next_candidate(c); i >= 0; i = next_candidate(c)) {
        struct sy_plan with;
        uint64_t longer = read_ns(c->cost, c->read_bytes[i]);
        c->seen[i] = true;
        c->changed[i].bytes = 0;
        c->changed[i].compute_ns += longer;
        /* Without the layer the size limit may be met where it was not before; never the other way round. */
        SY_TRY(plan(c, &with));
        if (with.predicted_ns < best->predicted_ns &&
            best->predicted_ns - with.predicted_ns > longer) {
            c->direct[i] = true;
            *best = with;
        } else {
            c->changed[i] = c->layers[i];
        }
    }
    return SY_OK;
}

/* ---- cutting -------------------------------------------------------------------------------------- */

static void add_layer(struct sy_direct_plan *p, const struct chooser *c, int layer, bool begins)
{
    struct sy_group *g = p->n_groups ? &p->groups[p->n_groups - 1] : NULL;
    if (begins || c->direct[layer] || g->direct) {
        uint64_t offset = g ? g->offset_bytes + g->bytes : 0;
        p->groups[p->n_groups++] = (struct sy_group){
            .first_layer = layer, .offset_bytes = offset, .direct = c->direct[layer]};
        p->n_direct += c->direct[layer];
        g = &p->groups[p->n_groups - 1];
    }
    g->n_layers++;
    g->bytes += c->layers[layer].bytes;
}

/* Predictions use the measured link. */
static int cut(const struct chooser *c, const struct sy_plan *from, const struct sy_link_cost *cost,
               struct sy_direct_plan *out)
{
    out->groups = calloc((size_t)c->n_layers, sizeof *out->groups);
    SY_TRY_ALLOC(out->groups, "plan: no memory for %d groups", c->n_layers);
    for (int g = 0; g < from->n_groups; g++)
        for (int i = 0; i < from->groups[g].n_layers; i++)
            add_layer(out, c, from->groups[g].first_layer + i, i == 0);
    for (int i = 0; i < c->n_layers; i++)
        if (c->direct[i])
            c->changed[i].compute_ns = c->layers[i].compute_ns + read_ns(cost, c->read_bytes[i]);
    out->predicted_ns = sy_plan_simulate(c->changed, out->groups, out->n_groups, cost, NULL);
    out->bound_ns = sy_plan_bound(c->changed, c->n_layers, cost);
    return SY_OK;
}

int sy_direct_plan_make(const struct sy_plan_layer *layers, const uint64_t *read_bytes,
                        int n_layers, const struct sy_link_cost *cost, int max_groups,
                        uint64_t max_group_bytes, struct sy_direct_plan *out)
{
    struct sy_link_cost careful = sy_link_careful(cost);
    struct chooser c = {.layers = layers,
                        .read_bytes = read_bytes,
                        .n_layers = n_layers,
                        .max_groups = max_groups,
                        .cost = &careful,
                        .max_group_bytes = max_group_bytes};
    struct sy_plan best;
    *out = (struct sy_direct_plan){0};
    SY_TRY(sy_plan_make(layers, n_layers, &careful, max_groups, max_group_bytes, &best));
    out->copied_ns = sy_plan_simulate(layers, best.groups, best.n_groups, cost, NULL);
    size_t n = (size_t)n_layers;
    c.changed = calloc(n, sizeof *c.changed);
    c.direct = calloc(2 * n, sizeof *c.direct);
    int status = c.changed && c.direct
                     ? SY_OK
                     : sy_error_set(SY_ENOMEM_HOST, "plan: no memory for %d layers", n_layers);
    if (status == SY_OK) {
        c.seen = c.direct + n;
        memcpy(c.changed, layers, n * sizeof *layers);
        status = choose(&c, &best);
    }
    if (status == SY_OK)
        status = cut(&c, &best, cost, out);
    free(c.changed);
    free(c.direct);
    return status;
}

static uint64_t group_limit(const struct sy_link_cost *cost, uint64_t all, uint64_t pool_bytes)
{
    uint64_t cheap = (uint64_t)(100 * (cost->alpha_ns + cost->sigma_ns) * cost->bytes_per_ns);
    uint64_t least = SY_MAX(all / (SY_MAX_GROUPS / 2), SMALLEST_GROUP);
    return SY_MAX(SY_MIN(pool_bytes / 16, cheap), least);
}

int sy_direct_plan_for_pool(const struct sy_plan_layer *layers, const uint64_t *read_bytes,
                            int n_layers, const struct sy_link_cost *cost, uint64_t pool_bytes,
                            struct sy_direct_plan *out)
{
    uint64_t all = 0;
    for (int i = 0; i < n_layers; i++)
        all += layers[i].bytes;
    uint64_t limit = group_limit(cost, all, pool_bytes);
    int status = sy_direct_plan_make(layers, read_bytes, n_layers, cost, SY_MAX_GROUPS, limit, out);
    while (status == SY_ETOOBIG && limit < all) {
        limit *= 2;
        status = sy_direct_plan_make(layers, read_bytes, n_layers, cost, SY_MAX_GROUPS, limit, out);
    }
    return status;
}

void sy_direct_apply(const struct sy_direct_plan *plan, const uint64_t *read_bytes,
                     const struct sy_link_cost *cost, struct sy_plan_layer *layers)
{
    for (int g = 0; g < plan->n_groups; g++) {
        int layer = plan->groups[g].first_layer;
        if (!plan->groups[g].direct)
            continue;
        layers[layer].bytes = 0;
        layers[layer].compute_ns += read_ns(cost, read_bytes[layer]);
    }
}
