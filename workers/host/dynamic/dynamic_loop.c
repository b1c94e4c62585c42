/* If, Loop and SequenceMap: bodies that are plans of their own (dynamic.c). */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "workers/host/dynamic/dynamic_internal.h"

static int is_true(const struct sy_node *node, const struct sy_at_value *v, bool *out)
{
    int64_t value;
    SY_TRY(sy_at_value_integer(node, v, 1, &value));
    *out = value != 0;
    return SY_OK;
}

int sy_at_if_run(struct sy_at_state *state, const struct sy_node *node,
                 struct sy_at_plan *const *bodies, struct sy_at_value *const *inputs,
                 struct sy_at_value **outputs)
{
    bool condition;
    if (!inputs[0])
        return sy_at_fail(node, "no condition");
    SY_TRY(is_true(node, inputs[0], &condition));
    int status =
        sy_at_plan_run(state, bodies[condition], inputs + sy_node_int(node, "formal", 1), outputs);
    /* A branch that does not fit fails for this request's sizes and data only: other requests may take the other branch. */
    if (status != SY_ECORRUPT && status != SY_EUNSUPPORTED)
        return status;
    return sy_error_prefix(SY_EARG, "in the %s branch of node '%.120s'",
                           condition ? "then" : "else", node->name);
}

struct loop {
    struct sy_at_state *state;
    const struct sy_node *node;
    struct sy_at_plan *body;
    int formal, n_carried, n_scans;
    struct sy_at_value **given;   /* the body's inputs: iteration, condition, carried, captured */
    struct sy_at_value **results; /* the body's results: condition, carried, scanned */
    struct sy_at_value **scans;   /* one list per scanned result */
    int64_t trips;
    bool grows; /* the last iteration's results had other shapes than its inputs */
};

static int set_number(struct loop *l, int i, enum sy_dtype dtype, int64_t value)
{
    sy_at_value_drop(l->state, l->given[i]);
    l->given[i] = NULL;
    SY_TRY(sy_at_value_new(l->state, dtype, 0, NULL, &l->given[i]));
    sy_put_int(&l->given[i]->a, 0, value);
    return SY_OK;
}

static bool are_alike(const struct sy_at_value *a, const struct sy_at_value *b)
{
    return a->is_list == b->is_list && a->is_none == b->is_none && a->a.dtype == b->a.dtype &&
           (a->is_list || sy_array_same_dims(&a->a, &b->a));
}

/* Passes the iteration's results to the next one. */
static int take_results(struct loop *l)
{
    l->grows = false;
    for (int i = 0; i < l->n_carried; i++) {
        l->grows = l->grows || !are_alike(l->given[2 + i], l->results[1 + i]);
        sy_at_value_drop(l->state, l->given[2 + i]);
        l->given[2 + i] = l->results[1 + i];
        l->results[1 + i] = NULL;
    }
    for (int i = 0; i < l->n_scans; i++) {
        SY_TRY(sy_at_value_append(l->scans[i], l->results[1 + l->n_carried + i]));
        l->results[1 + l->n_carried + i] = NULL;
    }
    return SY_OK;
}

/* Only loops can take long: a graph has a limited number of nodes. */
static void open_loop(struct sy_at_state *state)
{
    if (state->n_open++ == 0)
        state->open_since = sy_clock_now();
}

static void close_loop(struct sy_at_state *state)
{
    if (--state->n_open == 0)
        state->open_ns +=
            SY_MIN(sy_clock_now() - state->open_since, SY_DYNAMIC_NS - state->open_ns);
}

/* A program for one iteration's shapes would run only once, so iterations with changing shapes are executed node by node (S1: which ones depends on the inputs
 * alone). */
static int run_turn(struct loop *l)
{
    bool by_node = l->state->by_node;
    l->state->by_node = by_node || l->grows;
    int status = sy_at_plan_run(l->state, l->body, l->given, l->results);
    l->state->by_node = by_node;
    return status;
}

static int run_turns(struct loop *l, bool condition)
{
    for (int64_t turn = 0; condition && (l->trips < 0 || turn < l->trips); turn++) {
        if (l->state->n_turns++ == SY_DYNAMIC_TURNS)
            return sy_at_fail(l->node, "not done after %d iterations", SY_DYNAMIC_TURNS);
        SY_TRY(set_number(l, 0, SY_DTYPE_I64, turn));
        SY_TRY(set_number(l, 1, SY_DTYPE_BOOL, condition));
        SY_TRY(run_turn(l));
        SY_TRY(is_true(l->node, l->results[0], &condition));
        SY_TRY(take_results(l));
        sy_at_values_drop(l->state, l->results, 1);
    }
    return SY_OK;
}

/* Without an iteration, only its declaration gives the shape of a scanned result. */
static int empty_scan(struct loop *l, int i, struct sy_at_value **out)
{
    const struct sy_graph *g = sy_at_plan_graph(l->body);
    const struct sy_tensor *t = &g->tensors[g->outputs[1 + l->n_carried + i]];
    int64_t dims[SY_MAX_RANK] = {0};
    if (sy_dtype_bytes(t->dtype) == 0 || t->shape.rank >= SY_MAX_RANK)
        return sy_at_fail(l->node, "no iteration, and the type of result %d is not declared",
                          l->n_carried + i);
    for (int d = 0; d < t->shape.rank; d++)
        dims[1 + d] = SY_MAX(t->shape.dims[d].fixed, 0);
    return sy_at_value_new(l->state, t->dtype, 1 + t->shape.rank, dims, out);
}

static int finish_loop(struct loop *l, struct sy_at_value **outputs)
{
    for (int i = 0; i < l->n_carried; i++)
        if (l->node->outputs[i] >= 0)
            outputs[i] = sy_at_value_ref(l->given[2 + i]);
    for (int i = 0; i < l->n_scans; i++) {
        struct sy_at_value *list = l->scans[i];
        if (l->node->outputs[l->n_carried + i] < 0)
            continue;
        SY_TRY(list->n_items == 0 ? empty_scan(l, i, &outputs[l->n_carried + i])
                                  : sy_at_concat(l->state, l->node, list->items, list->n_items, 0,
                                                 true, &outputs[l->n_carried + i]));
    }
    return SY_OK;
}

static int start_loop(struct loop *l, struct sy_at_value *const *inputs)
{
    size_t n_in = (size_t)sy_at_plan_graph(l->body)->n_inputs + 3,
           n_out = (size_t)sy_at_plan_graph(l->body)->n_outputs + 1;
    l->given = calloc(n_in, sizeof *l->given);
    l->results = calloc(n_out, sizeof *l->results);
    l->scans = calloc(n_out, sizeof *l->scans);
    SY_TRY_ALLOC(l->given && l->results && l->scans, "no memory for a loop");
    for (int i = 2; i < l->node->n_inputs; i++)
        l->given[i] = inputs[i] ? sy_at_value_ref(inputs[i]) : NULL;
    for (int i = 0; i < l->n_carried; i++)
        if (!inputs[2 + i])
            return sy_at_fail(l->node, "a carried value is omitted");
    for (int i = 0; i < l->n_scans; i++)
        SY_TRY(sy_at_value_new_list(NULL, 0, &l->scans[i]));
    return SY_OK;
}

int sy_at_loop_run(struct sy_at_state *state, const struct sy_node *node, struct sy_at_plan *body,
                   struct sy_at_value *const *inputs, struct sy_at_value **outputs)
{
    int formal = (int)sy_node_int(node, "formal", 2);
    struct loop l = {.state = state,
                     .node = node,
                     .body = body,
                     .formal = formal,
                     .n_carried = formal - 2,
                     .n_scans = node->n_outputs - (formal - 2)};
    bool condition;
    SY_TRY(sy_at_value_integer(node, inputs[0], -1, &l.trips));
    SY_TRY(is_true(node, inputs[1], &condition));
    if (inputs[0])
        l.trips = SY_MAX(l.trips, 0);
    int status = start_loop(&l, inputs);
    bool is_open = l.trips < 0 || l.trips > SY_DYNAMIC_COUNTED;
    if (is_open)
        open_loop(state);
    if (status == SY_OK)
        status = run_turns(&l, condition);
    if (is_open)
        close_loop(state);
    if (status == SY_OK)
        status = finish_loop(&l, outputs);
    if (l.given)
        sy_at_values_drop(state, l.given, SY_MAX(node->n_inputs, 2));
    if (l.results)
        sy_at_values_drop(state, l.results, sy_at_plan_graph(body)->n_outputs);
    if (l.scans)
        sy_at_values_drop(state, l.scans, l.n_scans);
    free(l.given);
    free(l.results);
    free(l.scans);
    return status;
}

/* ---- SequenceMap ---------------------------------------------------------------------------------- */

struct map {
    struct sy_at_state *state;
    const struct sy_node *node;
    struct sy_at_plan *body;
    struct sy_at_value *const *inputs;
    int formal, n;
    const struct sy_at_value **given; /* the body's inputs; borrowed */
    struct sy_at_value **results;
};

static bool is_mapped(const struct map *m, int k)
{
    return k < m->formal && m->inputs[k]->is_list;
}

static int check_lists(const struct map *m)
{
    for (int k = 0; k < m->node->n_inputs; k++) {
        const struct sy_at_value *v = m->inputs[k];
        if (!v || v->is_none || (k == 0 && !v->is_list))
            return sy_at_fail(m->node, "input %d is not a list", k);
        if (is_mapped(m, k) && v->n_items != m->n)
            return sy_at_fail(m->node, "lists of %d and %d", m->n, v->n_items);
    }
    return SY_OK;
}

/* Whether the items of this turn have the shapes of those before. */
static bool is_alike_turn(const struct map *m, int turn)
{
    bool alike = true;
    for (int k = 0; alike && turn > 0 && k < m->node->n_inputs; k++)
        alike =
            !is_mapped(m, k) || are_alike(m->inputs[k]->items[turn], m->inputs[k]->items[turn - 1]);
    return alike;
}

static int map_turn(struct map *m, int turn, struct sy_at_value **outputs)
{
    bool by_node = m->state->by_node;
    if (m->state->n_turns++ == SY_DYNAMIC_TURNS)
        return sy_at_fail(m->node, "not done after %d iterations", SY_DYNAMIC_TURNS);
    for (int k = 0; k < m->node->n_inputs; k++)
        m->given[k] = is_mapped(m, k) ? m->inputs[k]->items[turn] : m->inputs[k];
    m->state->by_node = by_node || !is_alike_turn(m, turn);
    int status =
        sy_at_plan_run(m->state, m->body, (struct sy_at_value *const *)m->given, m->results);
    m->state->by_node = by_node;
    for (int i = 0; status == SY_OK && i < m->node->n_outputs; i++) {
        status = sy_at_value_append(outputs[i], m->results[i]);
        if (status == SY_OK)
            m->results[i] = NULL;
    }
    return status;
}

int sy_at_map_run(struct sy_at_state *state, const struct sy_node *node, struct sy_at_plan *body,
                  struct sy_at_value *const *inputs, struct sy_at_value **outputs)
{
    struct map m = {.state = state,
                    .node = node,
                    .body = body,
                    .inputs = inputs,
                    .formal = (int)sy_node_int(node, "formal", node->n_inputs),
                    .n = inputs[0] ? inputs[0]->n_items : 0};
    SY_TRY(check_lists(&m));
    m.given = calloc((size_t)node->n_inputs + 1, sizeof *m.given);
    m.results = calloc((size_t)node->n_outputs + 1, sizeof *m.results);
    int status = m.given && m.results ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a map");
    for (int i = 0; status == SY_OK && i < node->n_outputs; i++)
        status = sy_at_value_new_list(NULL, 0, &outputs[i]);
    for (int turn = 0; status == SY_OK && turn < m.n; turn++)
        status = map_turn(&m, turn, outputs);
    if (m.results)
        sy_at_values_drop(state, m.results, node->n_outputs);
    free(m.given);
    free(m.results);
    return status;
}
