/* If and Loop: their bodies are programs of their own, made with the outer one and run by a step of it.
 *
 * A body's workspace, what a Loop carries (twice: this iteration's and the next one's) and its conditions lie in one value of the outer
 * workspace. Inputs of a body are what its iteration carries, and the node's captured inputs where they lie. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/dynamic/dynamic.h"
#include "workers/host/program/body.h"
#include "workers/host/program/program.h"
#include "workers/host/program/program_internal.h"

/* Nesting depth of the Loops that this thread executes, and the iterations done since the outermost one began. */
static _Thread_local struct {
    int depth;
    int64_t done;
} turns;

struct control {
    struct sy_body bodies[2]; /* If: else, then; Loop: the first */
    int formal, n_carried, n_in, n_out;
    uint64_t workspace_bytes;
    uint64_t *carried_bytes, *carried_at; /* two places each */
};

static void control_free(void *state)
{
    struct control *c = state;
    sy_body_finish(&c->bodies[0]);
    sy_body_finish(&c->bodies[1]);
    free(c->carried_bytes);
    free(c->carried_at);
    free(c);
}

/* first: the body's input that is the first captured one. */
static int add_body(struct sy_program *p, struct control *c, int which, const char *name, int first)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_attr *attr = sy_node_attr(node, name);
    if (!attr)
        return SY_OK; /* a branch that is never taken */
    int n = attr->graph->n_inputs;
    struct sy_captured_param *captured = calloc((size_t)n + 1, sizeof *captured);
    SY_TRY_ALLOC(captured, "no memory for a body of %d inputs", n);
    for (int i = c->formal; i < c->n_in && first + i - c->formal < n; i++)
        if (node->inputs[i] >= 0)
            captured[first + i - c->formal] = sy_program_param_of(p, i);
    int status = sy_body_init_inside(&c->bodies[which], attr->graph, p->batch, captured);
    free(captured);
    SY_TRY(status);
    c->workspace_bytes =
        SY_MAX(c->workspace_bytes, sy_program_workspace_bytes(c->bodies[which].program));
    return SY_OK;
}

/* Values of all inputs (-1: left out), of all outputs, and the place for workspaces and what is carried. */
static int take_values(struct sy_program *p, int64_t bytes, int *ids)
{
    const struct sy_node *node = sy_program_node(p);
    for (int i = 0; i < node->n_inputs; i++) {
        ids[i] = -1;
        if (node->inputs[i] >= 0)
            SY_TRY(sy_program_input_plain(p, i, &ids[i]));
    }
    for (int i = 0; i < node->n_outputs; i++) {
        ids[node->n_inputs + i] = -1;
        if (node->outputs[i] >= 0)
            SY_TRY(sy_program_output_plain(p, i, &ids[node->n_inputs + i]));
    }
    return sy_program_new_value(p, SY_DTYPE_U8, 1, &bytes, &ids[node->n_inputs + node->n_outputs]);
}

/* Takes ownership of `c`, also on failure. */
static int add_step(struct sy_program *p, sy_step_run run, struct control *c, int64_t bytes)
{
    const struct sy_node *node = sy_program_node(p);
    int n = node->n_inputs + node->n_outputs + 1;
    int *ids = calloc((size_t)n, sizeof *ids);
    int status = ids ? take_values(p, bytes, ids)
                     : sy_error_set(SY_ENOMEM_HOST, "no memory for %d values", n);
    struct sy_step *step = status == SY_OK ? sy_program_add_step(p, run, n) : NULL;
    if (!step) {
        free(ids);
        control_free(c);
        return status < 0 ? status : sy_error_set(SY_ENOMEM_HOST, "no memory for a step");
    }
    for (int i = 0; i < n; i++)
        sy_step_set(p, step, i, 0, ids[i]);
    step->state = c;
    step->free_state = control_free;
    free(ids);
    return SY_OK;
}

static void *argument(const struct sy_program *p, const struct sy_step *step, int i)
{
    return step->args[i].value < 0 ? NULL : sy_program_pointer(p, step->args[i].value);
}

/* ---- If ------------------------------------------------------------------------------------------ */

static int run_if(struct sy_program *p, struct sy_step *step)
{
    struct control *c = step->state;
    unsigned char *place = argument(p, step, c->n_in + c->n_out);
    struct sy_body *b = &c->bodies[*(unsigned char *)argument(p, step, 0) != 0];
    if (!b->program) /* the condition was a constant */
        b = &c->bodies[b == &c->bodies[0]];
    for (int i = c->formal; i < c->n_in; i++)
        b->inputs[i - c->formal] = argument(p, step, i);
    for (int i = 0; i < c->n_out; i++) {
        b->outputs[i] = argument(p, step, c->n_in + i);
        if (!b->outputs[i]) /* the output has no reader */
            b->outputs[i] = place + c->carried_at[i];
    }
    return sy_body_run(b, place);
}

static uint64_t tensor_bytes(const struct sy_tensor *t, int64_t batch)
{
    return (uint64_t)sy_shape_elements(&t->shape, batch) * sy_dtype_bytes(t->dtype);
}

static int new_control(struct sy_program *p, struct control **out)
{
    const struct sy_node *node = sy_program_node(p);
    struct control *c = calloc(1, sizeof *c);
    size_t n = (size_t)node->n_inputs + (size_t)node->n_outputs + 4;
    if (c) {
        c->carried_bytes = calloc(n, sizeof *c->carried_bytes);
        c->carried_at = calloc(2 * n, sizeof *c->carried_at);
    }
    if (!c || !c->carried_bytes || !c->carried_at) {
        if (c)
            control_free(c);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for node %s", node->name);
    }
    c->formal = (int)sy_node_int(node, "formal", node->n_inputs);
    c->n_in = node->n_inputs;
    c->n_out = node->n_outputs;
    *out = c;
    return SY_OK;
}

/* Reserves `bytes` more; returns their offset. */
static uint64_t reserve(uint64_t *total, uint64_t bytes)
{
    uint64_t at = SY_ALIGN_UP(*total, (uint64_t)SY_PARAM_ALIGN);
    *total = at + bytes;
    return at;
}

static int build_if(struct sy_program *p)
{
    struct control *c;
    SY_TRY(new_control(p, &c));
    int status = c->formal == 1 ? SY_OK : sy_unsupported(sy_program_node(p), "other inputs");
    if (status == SY_OK)
        status = add_body(p, c, 0, "else_branch", 0);
    if (status == SY_OK)
        status = add_body(p, c, 1, "then_branch", 0);
    const struct sy_body *one = &c->bodies[c->bodies[0].program ? 0 : 1];
    if (status == SY_OK && (!one->program || one->graph->n_outputs != c->n_out ||
                            one->graph->n_inputs != c->n_in - c->formal))
        status = sy_unsupported(sy_program_node(p), "a body with other inputs or results");
    if (status < 0) {
        control_free(c);
        return status;
    }
    uint64_t total = c->workspace_bytes;
    for (int i = 0; i < c->n_out; i++)
        c->carried_at[i] =
            reserve(&total, tensor_bytes(&one->graph->tensors[one->graph->outputs[i]], p->batch));
    return add_step(p, run_if, c, (int64_t)total);
}

/* ---- Loop ---------------------------------------------------------------------------------------- */

/* State of one run of a Loop. */
struct turn {
    struct control *c;
    unsigned char *place;
    int64_t at, trips; /* trips -1: until the condition ends it */
    unsigned char condition;
};

/* Input 1 is the condition, inputs from 2 on what is carried; the other of the two places gets the body's results. */
static void bind_turn(struct turn *t)
{
    struct control *c = t->c;
    struct sy_body *b = &c->bodies[0];
    int now = (int)(t->at & 1);
    b->inputs[0] = &t->at;
    for (int i = 0; i < c->n_carried; i++) {
        b->inputs[2 + i] = t->place + c->carried_at[2 * i + now];
        b->outputs[1 + i] = t->place + c->carried_at[2 * i + 1 - now];
    }
}

static int run_turns(struct sy_program *p, struct sy_step *step, struct turn *t)
{
    struct control *c = t->c;
    struct sy_body *b = &c->bodies[0];
    unsigned char next;
    b->inputs[1] = &t->condition;
    b->outputs[0] = &next;
    for (; t->condition && (t->trips < 0 || t->at < t->trips); t->at++) {
        if (turns.done++ == SY_LOOP_MOST_TRIPS)
            return sy_error_set(SY_EARG, "node %s: Loop is not done after %d iterations",
                                step->name, SY_LOOP_MOST_TRIPS);
        SY_TRY(sy_dynamic_between_turns());
        bind_turn(t);
        for (int i = c->n_carried; i < c->n_out; i++) {
            unsigned char *all = argument(p, step, c->n_in + i);
            uint64_t each = c->carried_bytes[i], where = (uint64_t)t->at * each;
            if (all && where + each > p->values[step->args[c->n_in + i].value].bytes)
                return sy_error_set(SY_EARG, "node %s: Loop runs more often than its file says",
                                    step->name);
            b->outputs[1 + i] = all ? all + where : t->place + c->carried_at[2 * i];
        }
        SY_TRY(sy_body_run(b, t->place));
        t->condition = next;
    }
    return SY_OK;
}

static int run_loop(struct sy_program *p, struct sy_step *step)
{
    struct control *c = step->state;
    struct turn t = {
        .c = c, .place = argument(p, step, c->n_in + c->n_out), .trips = -1, .condition = 1};
    const unsigned char *condition = argument(p, step, 1);
    const void *trips = argument(p, step, 0);
    if (condition)
        t.condition = *condition != 0;
    if (trips) {
        memcpy(&t.trips, trips, sizeof t.trips);
        t.trips = SY_MAX(t.trips, 0);
    }
    for (int i = 0; i < c->n_carried; i++)
        memcpy(t.place + c->carried_at[2 * i], argument(p, step, 2 + i), c->carried_bytes[i]);
    for (int i = c->formal; i < c->n_in; i++)
        c->bodies[0].inputs[i] = argument(p, step, i);
    if (turns.depth++ == 0)
        turns.done = 0;
    int status = run_turns(p, step, &t);
    turns.depth--;
    SY_TRY(status);
    for (int i = 0; i < c->n_out; i++) {
        void *to = argument(p, step, c->n_in + i);
        if (to && i < c->n_carried)
            memcpy(to, t.place + c->carried_at[2 * i + (t.at & 1)], c->carried_bytes[i]);
        else if (to && (uint64_t)t.at * c->carried_bytes[i] !=
                           p->values[step->args[c->n_in + i].value].bytes)
            return sy_error_set(SY_EARG, "node %s: Loop ran %lld times, its result has more",
                                step->name, (long long)t.at);
    }
    return SY_OK;
}

/* The body's results and inputs as the step binds them: sizes must be the node's. */
static int check_loop(const struct sy_program *p, const struct control *c)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_graph *g = c->bodies[0].graph;
    if (!g || g->n_inputs != c->n_in || g->n_outputs != c->n_out + 1 || c->n_carried < 0 ||
        c->n_carried > c->n_out)
        return sy_unsupported(node, "a body with other inputs or results");
    for (int i = 0; i < c->n_carried; i++) {
        if (node->inputs[2 + i] < 0)
            return sy_unsupported(node, "a carried value is omitted");
        uint64_t bytes = tensor_bytes(&p->graph->tensors[node->inputs[2 + i]], p->batch);
        if (bytes != tensor_bytes(&g->tensors[g->inputs[2 + i]], p->batch) ||
            bytes != tensor_bytes(&g->tensors[g->outputs[1 + i]], p->batch))
            return sy_unsupported(node, "a carried value changes its size");
    }
    return tensor_bytes(&g->tensors[g->outputs[0]], p->batch) == 1
               ? SY_OK
               : sy_unsupported(node, "a condition that is not one boolean");
}

static int build_loop(struct sy_program *p)
{
    struct control *c;
    SY_TRY(new_control(p, &c));
    c->n_carried = c->formal - 2;
    int status = add_body(p, c, 0, "body", c->formal);
    if (status == SY_OK)
        status = check_loop(p, c);
    if (status < 0) {
        control_free(c);
        return status;
    }
    const struct sy_graph *g = c->bodies[0].graph;
    uint64_t total = c->workspace_bytes;
    for (int i = 0; i < c->n_out; i++) {
        c->carried_bytes[i] = tensor_bytes(&g->tensors[g->outputs[1 + i]], p->batch);
        for (int k = 0; k < 2; k++)
            c->carried_at[2 * i + k] = reserve(&total, c->carried_bytes[i]);
    }
    return add_step(p, run_loop, c, (int64_t)total);
}

const struct sy_host_op sy_host_ops_control[] = {
    {.build = build_if, SY_OPS(SY_OP_IF)}, {.build = build_loop, SY_OPS(SY_OP_LOOP)}, {0}};
