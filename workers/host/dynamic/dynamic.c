/* Executes graphs node by node: plans (a graph with the programs of its nodes), frames (its values in one run). */
#include "workers/host/dynamic/dynamic.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/strings.h"
#include "workers/host/dynamic/dynamic_internal.h"
#include "workers/host/dynamic/dynamic_stretch.h"

enum { MOST_OPERANDS = 1024 };

struct sy_at_plan {
    const struct sy_graph *graph;
    int *last_use; /* per tensor: the last node that reads it; n_nodes for outputs; -1: none */
    int *uses;     /* per tensor: readers among executed nodes, plus 1 for an output */
    bool *is_read; /* per node: it is executed */
    bool *alone;   /* per node: sy_at_find_alone */
    struct sy_at_stretches *stretches;
    struct sy_at_value **constants;
    /* constants too; strings are in the heap of the run identified by strings_lent */
    struct sy_at_value **strings;
    uint64_t strings_lent;
    struct sy_at_node **made;        /* per node */
    struct sy_at_plan *(*bodies)[2]; /* per node: else and then branch, or a Loop's body */
};

struct sy_dynamic {
    struct sy_at_plan *plan;
    struct sy_at_state state;
    struct sy_at_value **outputs;
    bool *is_param; /* per input */
};

const struct sy_graph *sy_at_plan_graph(const struct sy_at_plan *p)
{
    return p->graph;
}

static struct {
    int (*turn)(void *ctx);
    void *ctx;
} on_turn;

void sy_dynamic_on_turn(int (*turn)(void *ctx), void *ctx)
{
    on_turn.turn = turn;
    on_turn.ctx = ctx;
}

int sy_dynamic_between_turns(void)
{
    return on_turn.turn ? on_turn.turn(on_turn.ctx) : SY_OK;
}

/* ---- plans --------------------------------------------------------------------------------------- */

static void plan_destroy(struct sy_at_plan *p)
{
    struct sy_at_state none = {0};
    if (!p)
        return;
    for (int t = 0; p->constants && t < p->graph->n_tensors; t++)
        sy_at_value_drop(&none, p->constants[t]);
    for (int t = 0; p->strings && t < p->graph->n_tensors; t++)
        sy_at_value_drop(&none, p->strings[t]);
    for (int n = 0; n < p->graph->n_nodes; n++) {
        if (p->made)
            sy_at_node_free(p->made[n]);
        for (int k = 0; p->bodies && k < 2; k++)
            plan_destroy(p->bodies[n][k]);
    }
    sy_at_stretches_release(p->stretches);
    free(p->last_use);
    free(p->uses);
    free(p->is_read);
    free(p->alone);
    free(p->constants);
    free(p->strings);
    free(p->made);
    free(p->bodies);
    free(p);
}

static int plan_constants(struct sy_at_plan *p)
{
    for (int t = 0; t < p->graph->n_tensors; t++) {
        const struct sy_tensor *from = &p->graph->tensors[t];
        struct sy_array a = {.dtype = from->dtype,
                             .rank = from->shape.rank,
                             .n = sy_shape_elements(&from->shape, 1),
                             .data = from->data};
        if (!from->data ||
            from->dtype == SY_DTYPE_STRING) /* each run copies string constants into its heap */
            continue;
        for (int i = 0; i < a.rank; i++)
            a.dims[i] = from->shape.dims[i].fixed;
        SY_TRY(sy_at_value_borrow(&a, &p->constants[t]));
        p->constants[t]->is_constant = true;
    }
    return SY_OK;
}

static void plan_last_uses(struct sy_at_plan *p)
{
    const struct sy_graph *g = p->graph;
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_inputs; i++)
            if (g->nodes[n].inputs[i] >= 0)
                p->last_use[g->nodes[n].inputs[i]] = n;
    for (int i = 0; i < g->n_outputs; i++)
        p->last_use[g->outputs[i]] = g->n_nodes;
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_outputs; i++)
            p->is_read[n] |=
                g->nodes[n].outputs[i] >= 0 && p->last_use[g->nodes[n].outputs[i]] >= 0;
    for (int n = 0; n < g->n_nodes; n++)
        for (int i = 0; p->is_read[n] && i < g->nodes[n].n_inputs; i++)
            if (g->nodes[n].inputs[i] >= 0)
                p->uses[g->nodes[n].inputs[i]]++;
    for (int i = 0; i < g->n_outputs; i++)
        p->uses[g->outputs[i]]++;
}

static int plan_create(const struct sy_graph *graph, struct sy_at_identity *who,
                       struct sy_at_plan **out);

/* Plans body `name`, the k-th; it has n_in inputs and n_out results. */
static int plan_body(struct sy_at_plan *p, int n, int k, const char *name, int n_in, int n_out,
                     struct sy_at_identity *who)
{
    const struct sy_node *node = &p->graph->nodes[n];
    const struct sy_attr *attr = sy_node_attr(node, name);
    if (!attr || attr->kind != SY_ATTR_GRAPH)
        return sy_at_fail(node, "no body '%s'", name);
    if (attr->graph->n_inputs != n_in || attr->graph->n_outputs != n_out)
        return sy_at_fail(node, "a body with other inputs or results");
    return plan_create(attr->graph, who, &p->bodies[n][k]);
}

static int plan_bodies(struct sy_at_plan *p, int n, struct sy_at_identity *who)
{
    const struct sy_node *node = &p->graph->nodes[n];
    int formal = (int)sy_node_int(node, "formal", -1), n_in = node->n_inputs,
        n_out = node->n_outputs;
    if (n_in > MOST_OPERANDS || n_out > MOST_OPERANDS)
        return sy_at_fail(node, "%d inputs, %d outputs", n_in, n_out);
    bool is_if = node->op == SY_OP_IF, is_loop = node->op == SY_OP_LOOP;
    if (!is_if && !is_loop && node->op != SY_OP_SEQUENCE_MAP)
        return SY_OK;
    if (formal < (is_loop ? 2 : 1) || formal > n_in || (is_loop && n_out < formal - 2))
        return sy_at_fail(node, "%d inputs of its own, of %d", formal, n_in);
    if (!is_if)
        return plan_body(p, n, 0, "body", n_in, n_out + is_loop, who);
    SY_TRY(plan_body(p, n, 0, "else_branch", n_in - formal, n_out, who));
    return plan_body(p, n, 1, "then_branch", n_in - formal, n_out, who);
}

static int plan_fill(struct sy_at_plan *p, struct sy_at_identity *who)
{
    size_t n = (size_t)p->graph->n_nodes + 1, t = (size_t)p->graph->n_tensors + 1;
    p->last_use = malloc(t * sizeof *p->last_use);
    p->uses = calloc(t, sizeof *p->uses);
    p->is_read = calloc(n, sizeof *p->is_read);
    p->alone = calloc(n, sizeof *p->alone);
    p->constants = calloc(t, sizeof *p->constants);
    p->strings = calloc(t, sizeof *p->strings);
    p->made = calloc(n, sizeof *p->made);
    p->bodies = calloc(n, sizeof *p->bodies);
    SY_TRY_ALLOC(p->last_use && p->uses && p->is_read && p->alone && p->constants && p->strings &&
                     p->made && p->bodies,
                 "no memory for a graph of %zu nodes", n);
    memset(p->last_use, 0xff, t * sizeof *p->last_use);
    plan_last_uses(p);
    SY_TRY(sy_at_find_alone(p->graph, p->alone));
    SY_TRY(sy_at_stretches_acquire(who, &p->stretches));
    who->graph++;
    SY_TRY(plan_constants(p));
    for (int k = 0; k < p->graph->n_nodes; k++)
        SY_TRY(plan_bodies(p, k, who));
    return SY_OK;
}

static int plan_create(const struct sy_graph *graph, struct sy_at_identity *who,
                       struct sy_at_plan **out)
{
    struct sy_at_plan *p = calloc(1, sizeof *p);
    SY_TRY_ALLOC(p, "no memory for a graph");
    p->graph = graph;
    int status = plan_fill(p, who);
    if (status < 0) {
        plan_destroy(p);
        return status;
    }
    *out = p;
    return SY_OK;
}

/* ---- nodes --------------------------------------------------------------------------------------- */

static int run_node(struct sy_at_state *state, struct sy_at_plan *p, int n, struct sy_at_value **in,
                    struct sy_at_value **out)
{
    const struct sy_node *node = &p->graph->nodes[n];
    if (node->op == SY_OP_IF)
        return sy_at_if_run(state, node, p->bodies[n], in, out);
    if (node->op == SY_OP_LOOP)
        return sy_at_loop_run(state, node, p->bodies[n][0], in, out);
    if (node->op == SY_OP_SEQUENCE_MAP)
        return sy_at_map_run(state, node, p->bodies[n][0], in, out);
    if (sy_at_is_of_lists(node->op))
        return sy_at_list_run(state, node, in, out);
    if (sy_at_node_counts(node->op))
        return sy_at_node_count(state, node, in, out);
    if (node->op == SY_OP_IDENTITY && in[0]) {
        out[0] = sy_at_value_ref(in[0]);
        return SY_OK;
    }
    if (node->op == SY_OP_CONCAT && sy_at_joins_rows(in, node->n_inputs))
        return sy_at_concat(state, node, in, node->n_inputs, sy_node_int(node, "axis", 0), false,
                            out);
    const struct sy_at_call call = {.state = state,
                                    .graph = p->graph,
                                    .node = node,
                                    .last_use = p->last_use,
                                    .inputs = in,
                                    .outputs = out};
    return sy_at_node_run(&call, &p->made[n]);
}

/* An output without readers is freed at once. */
static void take_outputs(struct sy_at_frame *f, const struct sy_node *node,
                         struct sy_at_value **out, int status)
{
    for (int i = 0; i < node->n_outputs; i++) {
        int t = node->outputs[i];
        if (t >= 0 && status == SY_OK && f->uses[t] > 0)
            f->values[t] = out[i];
        else
            sy_at_value_drop(f->state, out[i]);
    }
}

static int step(struct sy_at_frame *f, struct sy_at_plan *p, int n)
{
    const struct sy_node *node = &p->graph->nodes[n];
    const struct sy_at_state *state = f->state;
    SY_TRY(sy_dynamic_between_turns());
    if (state->n_open > 0 && sy_clock_now() - state->open_since > SY_DYNAMIC_NS - state->open_ns)
        return sy_at_fail(node, "its loop is not done after %d s",
                          (int)(SY_DYNAMIC_NS / SY_NS_PER_S));
    struct sy_at_value **io = calloc((size_t)(node->n_inputs + node->n_outputs) + 3, sizeof *io);
    SY_TRY_ALLOC(io, "no memory for a node");
    struct sy_at_value **out = io + SY_MAX(node->n_inputs, 2);
    int status = SY_OK;
    for (int i = 0; i < node->n_inputs; i++) {
        io[i] = node->inputs[i] >= 0 ? f->values[node->inputs[i]] : NULL;
        if (node->inputs[i] >= 0 && !io[i])
            status = sy_at_fail(node, "input %d is left out where it is needed", i);
    }
    if (status == SY_OK)
        status = run_node(f->state, p, n, io, out);
    take_outputs(f, node, out, status);
    free(io);
    if (status == SY_OK)
        sy_at_frame_done(f, n);
    return status;
}

static int take_string(struct sy_at_state *state, const struct sy_tensor *t,
                       struct sy_at_value **out)
{
    int64_t dims[SY_MAX_RANK];
    for (int d = 0; d < t->shape.rank; d++)
        dims[d] = t->shape.dims[d].fixed;
    SY_TRY(sy_at_value_new(state, t->dtype, t->shape.rank, dims, out));
    return sy_strings_take(t->name, t->data, t->data_bytes, (*out)->a.n, (*out)->a.data);
}

/* Copies string constants to the heap, once per run even if the graph is executed repeatedly. */
static int take_strings(struct sy_at_state *state, struct sy_at_plan *p)
{
    const struct sy_graph *g = p->graph;
    if (p->strings_lent == sy_strings_lent())
        return SY_OK;
    p->strings_lent = 0;
    sy_at_values_drop(state, p->strings, g->n_tensors);
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensors[t].data && g->tensors[t].dtype == SY_DTYPE_STRING)
            SY_TRY(take_string(state, &g->tensors[t], &p->strings[t]));
    p->strings_lent = sy_strings_lent();
    return SY_OK;
}

static int frame_start(struct sy_at_frame *f, struct sy_at_plan *p,
                       struct sy_at_value *const *inputs)
{
    const struct sy_graph *g = p->graph;
    size_t n_tensors = (size_t)g->n_tensors + 1;
    f->values = calloc(n_tensors, sizeof *f->values);
    f->uses = malloc(n_tensors * sizeof *f->uses);
    f->done = calloc((size_t)g->n_nodes + 1, sizeof *f->done);
    SY_TRY_ALLOC(f->values && f->uses && f->done, "no memory for a graph's values");
    memcpy(f->uses, p->uses, n_tensors * sizeof *f->uses);
    SY_TRY(take_strings(f->state, p));
    for (int t = 0; t < g->n_tensors; t++) {
        struct sy_at_value *v = p->constants[t] ? p->constants[t] : p->strings[t];
        f->values[t] = v ? sy_at_value_ref(v) : NULL;
    }
    for (int i = 0; i < g->n_inputs; i++)
        if (inputs[i] && !f->values[g->inputs[i]])
            f->values[g->inputs[i]] = sy_at_value_ref(inputs[i]);
    return SY_OK;
}

static bool may_step(const struct sy_at_frame *f, const struct sy_at_plan *p, int n)
{
    const struct sy_node *node = &p->graph->nodes[n];
    bool may = p->is_read[n] && !f->done[n];
    for (int i = 0; may && i < node->n_inputs; i++)
        may = node->inputs[i] < 0 || f->values[node->inputs[i]];
    return may;
}

/* Executes every node outside of stretches whose inputs exist, so that the next stretch is as long as possible. */
static int step_alone(struct sy_at_frame *f, struct sy_at_plan *p)
{
    for (int n = 0; n < p->graph->n_nodes; n++)
        if (p->alone[n] && may_step(f, p, n))
            SY_TRY(step(f, p, n));
    return SY_OK;
}

/* Executes stretches while there are any, then the next remaining node. */
static int run_nodes(struct sy_at_frame *f, struct sy_at_plan *p)
{
    for (int n = 0; n < p->graph->n_nodes; n++) {
        bool ran = p->is_read[n] && !f->done[n];
        while (ran) {
            SY_TRY(step_alone(f, p));
            SY_TRY(sy_at_stretch_run(p->stretches, f, &ran));
        }
        if (p->is_read[n] && !f->done[n])
            SY_TRY(step(f, p, n));
    }
    return SY_OK;
}

int sy_at_plan_run(struct sy_at_state *state, struct sy_at_plan *p,
                   struct sy_at_value *const *inputs, struct sy_at_value **results)
{
    const struct sy_graph *g = p->graph;
    struct sy_at_frame f = {.state = state, .graph = g, .is_read = p->is_read, .alone = p->alone};
    int status = frame_start(&f, p, inputs);
    if (status == SY_OK)
        status = run_nodes(&f, p);
    for (int i = 0; status == SY_OK && i < g->n_outputs; i++) {
        struct sy_at_value *v = f.values[g->outputs[i]];
        if (v)
            results[i] = sy_at_value_ref(v);
        else
            status = sy_error_set(SY_EARG, "nothing makes the result '%.100s'",
                                  g->tensors[g->outputs[i]].name);
    }
    if (f.values)
        sy_at_values_drop(state, f.values, g->n_tensors);
    free(f.values);
    free(f.uses);
    free(f.done);
    return status;
}

/* ---- from outside -------------------------------------------------------------------------------- */

int sy_dynamic_create(const struct sy_graph *body, const bool *is_param, const void *model,
                      int node, struct sy_dynamic **out)
{
    struct sy_at_identity who = {.model = model, .node = node};
    struct sy_dynamic *run = calloc(1, sizeof *run);
    SY_TRY_ALLOC(run, "no memory for what is sized at run");
    run->outputs = calloc((size_t)body->n_outputs + 1, sizeof *run->outputs);
    run->is_param = calloc((size_t)body->n_inputs + 1, sizeof *run->is_param);
    int status = run->outputs && run->is_param
                     ? plan_create(body, &who, &run->plan)
                     : sy_error_set(SY_ENOMEM_HOST, "no memory for outputs");
    if (status == SY_OK && is_param)
        memcpy(run->is_param, is_param, (size_t)body->n_inputs * sizeof *is_param);
    if (status < 0) {
        sy_dynamic_destroy(run);
        return status;
    }
    *out = run;
    return SY_OK;
}

void sy_dynamic_destroy(struct sy_dynamic *run)
{
    if (!run)
        return;
    if (run->outputs && run->plan)
        sy_at_values_drop(&run->state, run->outputs, run->plan->graph->n_outputs);
    plan_destroy(run->plan);
    free(run->outputs);
    free(run->is_param);
    free(run);
    sy_at_free_kept();
}

int sy_dynamic_run(struct sy_dynamic *run, const struct sy_array *inputs, struct sy_array *outputs)
{
    const struct sy_graph *g = run->plan->graph;
    struct sy_at_value **given = calloc((size_t)g->n_inputs + 1, sizeof *given);
    int status = given ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for inputs");
    sy_at_values_drop(&run->state, run->outputs, g->n_outputs);
    run->state.by_node = false;
    run->state.n_turns = 0;
    run->state.n_open = 0;
    run->state.open_ns = 0;
    for (int i = 0; status == SY_OK && i < g->n_inputs; i++)
        if ((status = sy_at_value_borrow(&inputs[i], &given[i])) == SY_OK && run->is_param[i])
            given[i]->param = i + 1;
    if (status == SY_OK)
        status = sy_at_plan_run(&run->state, run->plan, given, run->outputs);
    for (int i = 0; status == SY_OK && i < g->n_outputs; i++) {
        if (run->outputs[i]->is_list)
            status = sy_error_set(SY_EUNSUPPORTED, "output '%.100s' is a sequence",
                                  g->tensors[g->outputs[i]].name);
        else
            outputs[i] = run->outputs[i]->a;
    }
    if (given)
        sy_at_values_drop(&run->state, given, g->n_inputs);
    free(given);
    return status;
}
