/* Rules of nodes with bodies, and of numbers that are known. A body is inferred with the types and shapes that it is called with. */
#include <stdlib.h>
#include <string.h>

#include "loader/graph/size_expr.h"
#include "loader/shape/branch_choices.h"
#include "loader/shape/graph_infer.h"
#include "loader/shape/loop_trips.h"
#include "loader/shape/size_facts.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MAX_CARRIED = 64 };

static int open_numbers(struct sy_infer *in, struct sy_node *node, const struct sy_attr *values)
{
    int out = node->outputs[0];
    if (values->n != sy_shape_elements(&in->graph->tensors[out].shape, 0))
        return sy_infer_fail(node, SY_ECORRUPT, "other numbers than its result has");
    if (in->values[out])
        return SY_OK;
    SY_TRY(sy_graph_alloc((size_t)values->n, sizeof *in->values[out], &in->values[out]));
    memcpy(in->values[out], values->sizes, (size_t)values->n * sizeof *values->sizes);
    return SY_OK;
}

/* A value again, for the body that it was handed down to. */
int sy_rule_numbers(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_attr *fixed = sy_node_attr(node, "fixed"),
                         *per_batch = sy_node_attr(node, "per_batch");
    const struct sy_attr *values = sy_node_attr(node, "values");
    int out = node->outputs[0];
    if (values && values->kind == SY_ATTR_SIZES)
        return open_numbers(in, node, values);
    if (!fixed || !per_batch || fixed->n != per_batch->n ||
        fixed->n != sy_shape_elements(&in->graph->tensors[out].shape, 0))
        return sy_infer_fail(node, SY_ECORRUPT, "other numbers than its result has");
    if (in->values[out])
        return SY_OK;
    SY_TRY(sy_graph_alloc((size_t)fixed->n, sizeof *in->values[out], &in->values[out]));
    for (int i = 0; i < fixed->n; i++)
        in->values[out][i] = (struct sy_dim){fixed->ints[i], per_batch->ints[i]};
    return SY_OK;
}

static const struct sy_tensor *body_output(const struct sy_graph *body, int i)
{
    return &body->tensors[body->outputs[i]];
}

static void drop_attr(struct sy_node *node, const char *name)
{
    for (int i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, name) == 0) {
            sy_attr_finish(&node->attrs[i]);
            node->attrs[i] = node->attrs[--node->n_attrs];
            return;
        }
}

/* A branch that may not run, for the sizes of which there are none that fit both, is inferred where it runs. */
static int infer_branch(struct sy_infer *in, struct sy_node *node, const char *name, bool is_open,
                        struct sy_graph **body)
{
    int64_t before = in->facts ? in->facts->n_misfits : 0;
    int status = sy_infer_body(in, node, name, 0, NULL, body);
    bool misfits = in->facts && in->facts->n_misfits > before;
    if (!is_open || !misfits || !in->puts_off ||
        (status != SY_ECORRUPT && status != SY_EUNSUPPORTED))
        return status;
    *in->puts_off = true;
    return sy_error_prefix(SY_EUNSUPPORTED, "a branch of other sizes");
}

static const char *const branch_names[] = {"else_branch", "then_branch"};

/* Both branches of an If that the run decides, each without what the other one assumes of sizes. *agree: they assume the same, which so holds for every run. */
static int infer_both(struct sy_infer *in, struct sy_node *node, struct sy_graph **bodies,
                      bool *agree)
{
    struct sy_facts before = {0}, aside = {0};
    int n = in->facts ? in->facts->n_conditions : 0;
    if (in->facts)
        SY_TRY(sy_facts_save(in->facts, &before));
    int status = infer_branch(in, node, branch_names[0], true, &bodies[0]);
    if (status == SY_OK && in->facts)
        status = sy_facts_set_aside(in->facts, &before, &aside);
    else
        free(before.rewrites);
    if (status == SY_OK)
        status = infer_branch(in, node, branch_names[1], true, &bodies[1]);
    *agree = status == SY_OK && (!in->facts || sy_facts_are(in->facts, n, &aside));
    sy_facts_finish(&aside);
    return status;
}

/* How much has been assumed about sizes. */
static int n_facts(const struct sy_infer *in)
{
    return in->facts ? in->facts->n_conditions + in->facts->n_rewrites : 0;
}

static int infer_branches(struct sy_infer *in, struct sy_node *node, int known,
                          struct sy_graph **bodies, bool *agree)
{
    *agree = true;
    if (known < 0) {
        SY_TRY(infer_both(in, node, bodies, agree));
    } else {
        drop_attr(node, branch_names[1 - known]);
        SY_TRY(infer_branch(in, node, branch_names[known], false, &bodies[known]));
    }
    for (int i = 0; i < 2; i++)
        if (bodies[i] && bodies[i]->n_outputs != node->n_outputs)
            return sy_infer_fail(node, SY_ECORRUPT, "'%s' has %d results", branch_names[i],
                                 bodies[i]->n_outputs);
    return SY_OK;
}

/* A condition that is known leaves one branch. Else both must give the same types and shapes, for all sizes: what one branch assumes of sizes, or that
 * the results are alike, is not true of a run that takes the other branch. */
int sy_rule_if(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *condition;
    struct sy_graph *bodies[2] = {NULL};
    bool agree;
    SY_TRY(sy_infer_need(in, node, 0, &condition));
    if (condition->dtype != SY_DTYPE_BOOL || sy_shape_elements(&condition->shape, 1) != 1)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "a condition that is not one boolean");
    int known = condition->data ? *(const unsigned char *)condition->data != 0 : -1;
    SY_TRY(infer_branches(in, node, known, bodies, &agree));
    if (!agree) {
        SY_TRY(sy_branches_offer(in, node));
        return sy_infer_defer(in, node, "its branches need other sizes");
    }
    int before = n_facts(in);
    const struct sy_graph *one = bodies[1] ? bodies[1] : bodies[0];
    for (int i = 0; i < node->n_outputs; i++) {
        const struct sy_tensor *a = body_output(one, i);
        const struct sy_tensor *b = bodies[0] ? body_output(bodies[0], i) : a;
        if (a->dtype != b->dtype)
            return sy_infer_fail(node, SY_EUNSUPPORTED, "its branches give result %d other types",
                                 i);
        if (!sy_infer_same_shape(in, node, &a->shape, &b->shape) ||
            (known < 0 && n_facts(in) > before)) {
            SY_TRY(sy_branches_offer(in, node));
            return sy_infer_defer(in, node, "its branches give result %d other shapes", i);
        }
        if (node->outputs[i] >= 0)
            sy_infer_set(in, node, i, a->dtype, &a->shape);
    }
    return SY_OK;
}

/* ---- Loop --------------------------------------------------------------------------------------- */

/* Whether result `out` of the body is true whatever happens, if its condition was. */
static bool stays_true(const struct sy_graph *body, int out)
{
    for (int n = 0; n < body->n_nodes; n++) {
        const struct sy_node *node = &body->nodes[n];
        if (node->outputs[0] != out)
            continue;
        if (node->op != SY_OP_IDENTITY)
            return false;
        const struct sy_tensor *from = &body->tensors[node->inputs[0]];
        return node->inputs[0] == body->inputs[1] ||
               (from->data && *(const unsigned char *)from->data != 0);
    }
    return out == body->inputs[1];
}

static bool starts_true(const struct sy_infer *in, const struct sy_node *node)
{
    int condition = sy_node_input(node, 1);
    if (condition < 0)
        return true;
    const struct sy_tensor *t = &in->graph->tensors[condition];
    return t->data && *(const unsigned char *)t->data != 0;
}

/* How often it runs, if that is known. */
static bool count_trips(const struct sy_infer *in, const struct sy_node *node,
                        const struct sy_graph *body, struct sy_dim *trips)
{
    int count = sy_node_input(node, 0);
    if (count < 0 || !starts_true(in, node) || !stays_true(body, body->outputs[0]))
        return false;
    const struct sy_tensor *t = &in->graph->tensors[count];
    if (in->values[count])
        *trips = in->values[count][0];
    else if (t->data)
        *trips = (struct sy_dim){sy_load_integer(t->dtype, t->data), 0};
    else
        return false;
    if (sy_dim_is_expr(*trips))
        return sy_size_max(*trips, (struct sy_dim){0, 0}, trips) == SY_OK;
    if (trips->per_batch == 0)
        trips->fixed = SY_MAX(trips->fixed, 0);
    return trips->per_batch >= 0 && sy_dim_at(*trips, 1) >= 0;
}

/* The body's condition is that it runs. */
static int run_always(struct sy_graph *body, const char *name)
{
    const struct sy_shape scalar = {.rank = 0};
    int still;
    SY_TRY(sy_graph_add_tensor(body, name, SY_DTYPE_BOOL, &scalar, &still));
    SY_TRY(sy_graph_add_node(body, SY_OP_IDENTITY, 13, name, 1, &body->inputs[1], 1, &still, NULL));
    body->outputs[0] = still;
    return sy_graph_remove_dead(body);
}

/* A Loop whose condition only counts becomes one that runs so often. */
static int settle_trips(struct sy_infer *in, struct sy_node *node, struct sy_graph *body)
{
    const struct sy_shape scalar = {.rank = 0};
    struct sy_dim known;
    void *data;
    if (count_trips(in, node, body, &known))
        return SY_OK;
    int64_t trips = sy_loop_trips(in->graph, node, body);
    if (trips < 0)
        return sy_node_set_int(node, "most_trips", sy_loop_most_trips(in->graph, node, body));
    SY_TRY(sy_graph_alloc(1, sizeof trips, &data));
    memcpy(data, &trips, sizeof trips);
    SY_TRY(sy_graph_add_constant(in->graph, node->name, SY_DTYPE_I64, &scalar, data, sizeof trips,
                                 &node->inputs[0]));
    node->inputs[1] = -1;
    return run_always(body, node->name);
}

/* Loops of too many iterations, or without an end, are refused here if that is known. */
static int check_end(const struct sy_infer *in, const struct sy_node *node,
                     const struct sy_graph *body)
{
    struct sy_dim trips;
    if (count_trips(in, node, body, &trips) && !sy_dim_is_expr(trips) &&
        sy_dim_at(trips, 1) > SY_LOOP_MOST_TRIPS)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "%lld iterations, at most %d are supported",
                             (long long)sy_dim_at(trips, 1), SY_LOOP_MOST_TRIPS);
    if (sy_node_input(node, 0) < 0 && starts_true(in, node) && stays_true(body, body->outputs[0]))
        return sy_infer_fail(node, SY_EUNSUPPORTED, "it never ends");
    return SY_OK;
}

static int set_carried(struct sy_infer *in, const struct sy_node *node, const struct sy_graph *body,
                       const struct sy_tensor *given, int n)
{
    char a[160], b[160];
    for (int i = 0; i < n; i++) {
        const struct sy_tensor *next = body_output(body, 1 + i);
        if (next->dtype != given[2 + i].dtype || !sy_shape_equal(&next->shape, &given[2 + i].shape))
            return sy_infer_defer(in, node,
                                  "a carried value changes its shape: result %d from %s to %s", i,
                                  sy_shape_text(&given[2 + i].shape, a, sizeof a),
                                  sy_shape_text(&next->shape, b, sizeof b));
        if (node->outputs[i] >= 0)
            sy_infer_set(in, node, i, next->dtype, &next->shape);
    }
    return SY_OK;
}

/* Results of all iterations, one after the other: as many as the file declares, if the count is not known. */
static int set_scans(struct sy_infer *in, struct sy_node *node, const struct sy_graph *body, int n)
{
    struct sy_dim trips;
    bool known = count_trips(in, node, body, &trips);
    for (int i = n; i < node->n_outputs; i++) {
        const struct sy_tensor *each = body_output(body, 1 + i);
        struct sy_shape shape = {.rank = each->shape.rank + 1}, declared;
        if (node->outputs[i] < 0)
            continue;
        if (shape.rank > SY_MAX_RANK)
            return sy_infer_fail(node, SY_EUNSUPPORTED, "a result of %d dimensions", shape.rank);
        if (!known) {
            SY_TRY(sy_infer_declared(in, node, i, &declared));
            trips = declared.dims[0];
        }
        shape.dims[0] = trips;
        memcpy(&shape.dims[1], each->shape.dims, (size_t)each->shape.rank * sizeof *shape.dims);
        sy_infer_set(in, node, i, each->dtype, &shape);
    }
    return SY_OK;
}

int sy_rule_loop(struct sy_infer *in, struct sy_node *node)
{
    struct sy_tensor given[2 + MAX_CARRIED] = {{.dtype = SY_DTYPE_I64}, {.dtype = SY_DTYPE_BOOL}};
    int formal = (int)sy_node_int(node, "formal", 0), n = formal - 2;
    struct sy_graph *body;
    if (n < 0 || n > MAX_CARRIED || formal > node->n_inputs || n > node->n_outputs)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "%d inputs, %d results", formal,
                             node->n_outputs);
    for (int i = 0; i < 2; i++) {
        int tensor = node->inputs[i];
        if (tensor >= 0 && (in->graph->tensors[tensor].dtype != given[i].dtype ||
                            sy_shape_elements(&in->graph->tensors[tensor].shape, 1) != 1))
            return sy_infer_fail(node, SY_EUNSUPPORTED, "input %d is not one %s", i,
                                 i ? "boolean" : "integer");
    }
    for (int i = 0; i < n; i++) {
        const struct sy_tensor *from;
        SY_TRY(sy_infer_need(in, node, 2 + i, &from));
        given[2 + i].dtype = from->dtype;
        given[2 + i].shape = from->shape;
    }
    SY_TRY(sy_infer_body(in, node, "body", formal, given, &body));
    if (body->n_outputs != node->n_outputs + 1 || body_output(body, 0)->dtype != SY_DTYPE_BOOL)
        return sy_infer_fail(node, SY_ECORRUPT, "its body gives %d results", body->n_outputs);
    SY_TRY(settle_trips(in, node, body));
    SY_TRY(check_end(in, node, body));
    SY_TRY(set_carried(in, node, body, given, n));
    return set_scans(in, node, body, n);
}
