/* The ways to infer a model that has open sizes, of which the best is kept (sy_graph_infer): its first size as the batch N or as a size like
 * others (batch_as_size.h); and branches of an If that sizes decide on. Where the branches give other shapes, as PyTorch exports a squeeze of an open
 * dimension, and the rest of the model fits one branch only, all sizes that the model allows take that one. */
#include "loader/shape/branch_choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/infer/batch_as_size.h"
#include "loader/infer/hoist.h"
#include "loader/shape/size_facts.h"
#include "runtime/base/status.h"

/* One attempt to read the model: its graph, and how inference of it ended. */
struct way {
    struct sy_graph *graph;
    int status;
    char *open; /* its choices->open */
};

struct ways {
    const struct sy_graph *as_read; /* its constants are borrowed */
    bool is_sized;                  /* a symbol stands for N */
    struct sy_branches choices;     /* without `open` */
    struct way best;
};

static int64_t count_dynamic(const struct sy_graph *graph)
{
    int64_t n = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct sy_attr *body = sy_node_attr(&graph->nodes[i], "body");
        if (graph->nodes[i].op == SY_OP_DYNAMIC && body && body->graph)
            n += body->graph->n_nodes;
    }
    return n;
}

static void drop(struct way *way)
{
    sy_graph_free(way->graph);
    free(way->open);
    *way = (struct way){0};
}

static void infer_way(struct way *way, const struct sy_branches *choices)
{
    struct sy_branches own = *choices;
    own.open = NULL;
    way->status = sy_infer_one_way(way->graph, &own);
    way->open = own.open;
}

/* Infers a copy of the graph as read. way->status holds its failure; the return value is that of copying. */
static int try_way(const struct ways *w, bool is_sized, const struct sy_branches *choices,
                   struct way *way)
{
    *way = (struct way){0};
    SY_TRY(sy_batch_copy(w->as_read, is_sized, &way->graph));
    infer_way(way, choices);
    return SY_OK;
}

static bool is_refusal(int status)
{
    return status == SY_EUNSUPPORTED || status == SY_ECORRUPT;
}

/* Tries again with a symbol for N, where N is rejected or leaves nodes to the run. */
static void try_without_batch(struct ways *w)
{
    struct way other;
    bool is_good = w->best.status == SY_OK && count_dynamic(w->best.graph) == 0;
    if (is_good || (w->best.status < 0 && !is_refusal(w->best.status)) ||
        !sy_batch_is_open(w->as_read) || try_way(w, true, &w->choices, &other) < 0)
        return;
    if (other.status == SY_OK &&
        (w->best.status < 0 || count_dynamic(other.graph) < count_dynamic(w->best.graph))) {
        drop(&w->best);
        w->best = other;
        w->is_sized = true;
    } else {
        drop(&other);
    }
}

/* Tries both branches of the If. If only one fits it is chosen, otherwise the run decides. */
static int settle_choice(struct ways *w)
{
    struct way ways[2] = {{0}};
    struct sy_choice *choice = &w->choices.of[w->choices.n++];
    *choice = (struct sy_choice){w->best.open, SY_LEFT_TO_RUN};
    w->best.open = NULL;
    int status = SY_OK;
    for (int taken = 0; taken < 2 && status == SY_OK; taken++) {
        choice->taken = taken ? SY_THEN : SY_ELSE;
        status = try_way(w, w->is_sized, &w->choices, &ways[taken]);
        if (status == SY_OK && ways[taken].status < 0 && !is_refusal(ways[taken].status))
            status = ways[taken].status;
    }
    int fits = ways[1].status == SY_OK;
    bool one_fits = status == SY_OK && (ways[0].status == SY_OK) != (ways[1].status == SY_OK);
    choice->taken = !one_fits ? SY_LEFT_TO_RUN : fits ? SY_THEN : SY_ELSE;
    if (one_fits) {
        drop(&w->best);
        w->best = ways[fits];
        ways[fits] = (struct way){0};
    }
    drop(&ways[0]);
    drop(&ways[1]);
    return status;
}

/* After a choice that was left to the run: finds the next If that allows one. */
static int find_next(struct ways *w)
{
    struct way again;
    if (w->best.open || w->choices.of[w->choices.n - 1].taken != SY_LEFT_TO_RUN)
        return SY_OK;
    SY_TRY(try_way(w, w->is_sized, &w->choices, &again));
    w->best.open = again.open;
    again.open = NULL;
    drop(&again);
    return SY_OK;
}

static int settle_choices(struct ways *w)
{
    while (w->best.status == SY_OK && w->best.open && w->choices.n < SY_MOST_CHOICES) {
        SY_TRY(settle_choice(w));
        SY_TRY(find_next(w));
    }
    return SY_OK;
}

/* Tries all ways; the best one's content is in `graph`. */
static int infer_ways(struct sy_graph *graph, struct sy_graph *as_read)
{
    struct ways w = {.as_read = as_read};
    char text[512];
    SY_TRY(sy_batch_copy(as_read, false, &w.best.graph));
    infer_way(&w.best, &w.choices);
    snprintf(text, sizeof text, "%s", sy_error_text());
    try_without_batch(&w);
    int status = settle_choices(&w);
    if (status == SY_OK && w.best.status < 0)
        status = sy_error_set(w.best.status, "%s", text);
    if (status == SY_OK) {
        struct sy_graph old = *graph;
        *graph = *w.best.graph;
        *w.best.graph = old;
    }
    drop(&w.best);
    for (int i = 0; i < w.choices.n; i++)
        free(w.choices.of[i].result);
    return status;
}

int sy_graph_infer(struct sy_graph *graph)
{
    struct sy_graph *as_read = NULL;
    struct sy_lent lent;
    SY_TRY(sy_hoist_constants(graph));
    if (!sy_batch_is_open(graph) && graph->n_symbols == 0)
        return sy_infer_one_way(graph, NULL);
    SY_TRY(sy_batch_lend(graph, &lent));
    int status = sy_batch_copy(graph, false, &as_read);
    if (status == SY_OK)
        status = infer_ways(graph, as_read);
    sy_graph_free(as_read);
    sy_batch_claim(&lent, graph);
    return status;
}
