/* If and Loop whose turns import could not write out: the step waits for the device, reads the condition, runs a body.
 *
 *   Loop   constants, what is carried, the counts ──> place;  wait
 *          turn:  the body's program, which copies what it carries and gives back ──> place;  rows of results ──> results;  wait, look
 *          what was carried ──> results
 *
 * At most one turn is in flight. How large everything is was known when the program was made. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/program/cuda_body.h"
#include "workers/cuda/program/cuda_program.h"
#include "workers/cuda/program/cuda_run.h"

/* Depth of the nested Loops that run, and the trips that they have done together. One instance: one thread runs programs. */
static struct {
    int depth;
    int64_t done;
} turns;

/* What the device reads of the host, and writes. */
struct said {
    int64_t trips, turn;
    unsigned char condition;
};

struct sy_cuda_control {
    struct sy_cuda_body bodies[2]; /* If: else, then; Loop: the first */
    int formal, n_carried, n_in, n_out;
    int *in, *out, place; /* values; -1: left out */
    struct said *said;
    uint64_t place_bytes;
    uint64_t turn_at, going_at, next_at;
    uint64_t *bytes, *at; /* per result: of one turn, in the place */
};

static void destroy_control(const struct sy_program *p, void *state)
{
    struct sy_cuda_control *c = state;
    if (!c)
        return;
    for (int i = 0; i < 2; i++)
        sy_cuda_body_finish(p, &c->bodies[i]);
    if (c->said)
        p->ops->host_drop(p->math, c->said);
    void *lists[] = {c->in, c->out, c->bytes, c->at, c};
    for (size_t i = 0; i < SY_ARRAY_LEN(lists); i++)
        free(lists[i]);
}

/* ---- building ------------------------------------------------------------------------------------ */

static int new_control(struct sy_program *p, struct sy_cuda_control **out)
{
    const struct sy_node *node = sy_cuda_node(p);
    size_t n_in = (size_t)node->n_inputs + 1, n_out = (size_t)node->n_outputs + 1;
    struct sy_cuda_control *c = calloc(1, sizeof *c);
    void *said = NULL;
    if (c) {
        c->in = calloc(n_in, sizeof *c->in);
        c->out = calloc(n_out, sizeof *c->out);
        c->bytes = calloc(n_out, sizeof *c->bytes);
        c->at = calloc(n_out, sizeof *c->at);
    }
    if (!c || !c->in || !c->out || !c->bytes || !c->at) {
        destroy_control(p, c);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for node %s", node->name);
    }
    c->formal = (int)sy_node_int(node, "formal", node->n_inputs);
    c->n_in = node->n_inputs;
    c->n_out = node->n_outputs;
    int status = p->math ? p->ops->host_take(p->math, sizeof *c->said, &said) : SY_OK;
    if (status < 0) {
        destroy_control(p, c);
        return status;
    }
    c->said = said;
    *out = c;
    return SY_OK;
}

/* Bodies run one at a time, in the same memory. */
static int add_body(struct sy_program *p, struct sy_cuda_control *c, int which, const char *name,
                    int formal)
{
    const struct sy_attr *attr = sy_node_attr(sy_cuda_node(p), name);
    uint64_t bytes = 0;
    if (!attr || attr->kind != SY_ATTR_GRAPH)
        return SY_OK; /* a branch that is never taken */
    SY_TRY(sy_cuda_body_init(p, attr->graph, formal, &bytes, &c->bodies[which]));
    c->place_bytes = SY_MAX(c->place_bytes, bytes);
    return SY_OK;
}

static uint64_t tensor_bytes(const struct sy_program *p, const struct sy_tensor *t)
{
    return (uint64_t)sy_shape_elements(&t->shape, p->batch) * sy_dtype_bytes(t->dtype);
}

/* Results of bodies, from output `first` of theirs on, have a place. */
static void reserve_results(struct sy_program *p, struct sy_cuda_control *c,
                            const struct sy_graph *body, int first)
{
    for (int i = 0; i < c->n_out; i++) {
        c->bytes[i] = tensor_bytes(p, &body->tensors[body->outputs[first + i]]);
        c->at[i] = sy_cuda_reserve(&c->place_bytes, c->bytes[i]);
    }
}

static int take_values(struct sy_program *p, struct sy_cuda_control *c)
{
    const struct sy_node *node = sy_cuda_node(p);
    int64_t bytes = (int64_t)(c->place_bytes + SY_CUDA_PLACE_ALIGN);
    for (int i = 0; i < c->n_in; i++) {
        c->in[i] = -1;
        if (node->inputs[i] >= 0)
            SY_TRY(sy_cuda_input_plain(p, i, &c->in[i]));
    }
    for (int i = 0; i < c->n_out; i++) {
        c->out[i] = -1;
        if (node->outputs[i] >= 0)
            SY_TRY(sy_cuda_output(p, i, false, &c->out[i]));
    }
    return sy_cuda_new_value(p, SY_DTYPE_U8, 1, &bytes, false, &c->place);
}

/* Takes `c`, whatever happens; status: so far. */
static int add_step(struct sy_program *p, sy_cuda_step_run run, struct sy_cuda_control *c,
                    int status)
{
    struct sy_cuda_step *step;
    if (status == SY_OK)
        status = take_values(p, c);
    if (status == SY_OK)
        status = sy_cuda_add_step(p, run, &c->place, 1, &step);
    if (status < 0) {
        destroy_control(p, c);
        return status;
    }
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] >= 0)
            sy_cuda_touch(p, c->in[i]);
    step->state = c;
    step->destroy = destroy_control;
    step->on_host_memory = true;
    return SY_OK;
}

/* ---- runs ---------------------------------------------------------------------------------------- */

static unsigned char *place_of(const struct sy_program *p, const struct sy_cuda_control *c)
{
    uintptr_t at = (uintptr_t)sy_cuda_pointer(p, c->place);
    return (unsigned char *)SY_ALIGN_UP(at, (uintptr_t)SY_CUDA_PLACE_ALIGN);
}

static void bind_captured(const struct sy_program *p, const struct sy_cuda_control *c,
                          struct sy_cuda_body *b, int first)
{
    for (int i = c->formal; i < c->n_in; i++)
        b->inputs[first + i - c->formal] = sy_cuda_pointer(p, c->in[i]);
}

static int wait(struct sy_program *p)
{
    SY_TRY(p->ops->synchronize(p->math));
    return sy_cuda_between_turns();
}

/* ---- If ------------------------------------------------------------------------------------------ */

static int run_if(struct sy_program *p, const struct sy_cuda_step *step)
{
    struct sy_cuda_control *c = step->state;
    unsigned char *place = place_of(p, c);
    SY_TRY(p->ops->to_host(p->math, sy_cuda_pointer(p, c->in[0]), &c->said->condition, 1));
    SY_TRY(wait(p));
    if (sy_cuda_program_has_fault(p))
        return SY_OK;
    struct sy_cuda_body *b = &c->bodies[c->said->condition != 0];
    if (!b->program) /* the condition was a constant */
        b = &c->bodies[b == &c->bodies[0]];
    bind_captured(p, c, b, 0);
    for (int i = 0; i < c->n_out; i++)
        b->outputs[i] = c->out[i] >= 0 ? sy_cuda_pointer(p, c->out[i]) : place + c->at[i];
    SY_TRY(sy_cuda_body_bring(p, b, place));
    SY_TRY(sy_cuda_body_run(b, place));
    SY_TRY(wait(p));
    return sy_cuda_body_check_bounds(b);
}

static int add_branches(struct sy_program *p, struct sy_cuda_control *c)
{
    const struct sy_node *node = sy_cuda_node(p);
    if (c->formal != 1 || c->n_in < 1 || node->inputs[0] < 0)
        return sy_unsupported(node, "other inputs");
    SY_TRY(add_body(p, c, 0, "else_branch", 0));
    SY_TRY(add_body(p, c, 1, "then_branch", 0));
    for (int i = 0; i < 2; i++) {
        const struct sy_graph *body = c->bodies[i].graph;
        if (body && (body->n_outputs != c->n_out || body->n_inputs != c->n_in - c->formal))
            return sy_unsupported(node, "a body with other inputs or results");
    }
    const struct sy_graph *one = c->bodies[c->bodies[0].graph ? 0 : 1].graph;
    if (!one)
        return sy_unsupported(node, "no branches");
    reserve_results(p, c, one, 0);
    return SY_OK;
}

static int build_if(struct sy_program *p)
{
    struct sy_cuda_control *c;
    SY_TRY(new_control(p, &c));
    return add_step(p, run_if, c, add_branches(p, c));
}

/* ---- Loop ---------------------------------------------------------------------------------------- */

/* Copies the initial values of the loop; afterwards its trip count and condition are on the host. */
static int begin(struct sy_program *p, struct sy_cuda_control *c, unsigned char *place)
{
    struct sy_cuda_body *b = &c->bodies[0];
    *c->said = (struct said){.trips = -1, .condition = 1};
    SY_TRY(sy_cuda_body_bring(p, b, place));
    SY_TRY(p->ops->to_device(p->math, &c->said->condition, place + c->going_at, 1));
    for (int i = 0; i < c->n_carried; i++)
        SY_TRY(
            p->ops->copy(p->math, sy_cuda_pointer(p, c->in[2 + i]), place + c->at[i], c->bytes[i]));
    SY_TRY(p->ops->synchronize(p->math)); /* the 1 is over there */
    if (c->in[0] >= 0)
        SY_TRY(p->ops->to_host(p->math, sy_cuda_pointer(p, c->in[0]), &c->said->trips,
                               sizeof c->said->trips));
    if (c->in[1] >= 0)
        SY_TRY(p->ops->to_host(p->math, sy_cuda_pointer(p, c->in[1]), &c->said->condition, 1));
    SY_TRY(wait(p));
    if (c->in[0] >= 0)
        c->said->trips = SY_MAX(c->said->trips, 0);
    return SY_OK;
}

static void bind_turns(struct sy_program *p, struct sy_cuda_control *c, unsigned char *place)
{
    struct sy_cuda_body *b = &c->bodies[0];
    b->inputs[0] = place + c->turn_at;
    b->inputs[1] = place + c->going_at;
    b->outputs[0] = place + c->next_at;
    for (int i = 0; i < c->n_out; i++)
        b->outputs[1 + i] = place + c->at[i];
    for (int i = 0; i < c->n_carried; i++)
        b->inputs[2 + i] = place + c->at[i];
    bind_captured(p, c, b, c->formal);
}

/* Behind the rows of the turns before. */
static int add_rows(struct sy_program *p, const struct sy_cuda_step *step, unsigned char *place)
{
    const struct sy_cuda_control *c = step->state;
    for (int i = c->n_carried; i < c->n_out; i++) {
        unsigned char *all = sy_cuda_pointer(p, c->out[i]);
        uint64_t where = (uint64_t)c->said->turn * c->bytes[i];
        if (!all)
            continue;
        if (where + c->bytes[i] > p->values[c->out[i]].bytes)
            return sy_error_set(SY_EARG, "node %s: Loop runs more often than its file says",
                                step->node->name);
        SY_TRY(p->ops->copy(p->math, place + c->at[i], all + where, c->bytes[i]));
    }
    return SY_OK;
}

static int run_turns(struct sy_program *p, const struct sy_cuda_step *step, unsigned char *place)
{
    struct sy_cuda_control *c = step->state;
    struct said *said = c->said;
    for (; said->condition && (said->trips < 0 || said->turn < said->trips); said->turn++) {
        if (turns.done++ == SY_LOOP_MOST_TRIPS)
            return sy_error_set(SY_EARG, "node %s: Loop is not done after %d iterations",
                                step->node->name, SY_LOOP_MOST_TRIPS);
        SY_TRY(p->ops->to_device(p->math, &said->turn, place + c->turn_at, sizeof said->turn));
        SY_TRY(sy_cuda_body_run(&c->bodies[0], place));
        SY_TRY(add_rows(p, step, place));
        SY_TRY(p->ops->to_host(p->math, place + c->next_at, &said->condition, 1));
        SY_TRY(wait(p));
        SY_TRY(sy_cuda_body_check_bounds(&c->bodies[0]));
    }
    return SY_OK;
}

static int end(struct sy_program *p, const struct sy_cuda_step *step, unsigned char *place)
{
    const struct sy_cuda_control *c = step->state;
    for (int i = 0; i < c->n_out; i++) {
        void *to = sy_cuda_pointer(p, c->out[i]);
        if (to && i < c->n_carried)
            SY_TRY(p->ops->copy(p->math, place + c->at[i], to, c->bytes[i]));
        else if (to && (uint64_t)c->said->turn * c->bytes[i] != p->values[c->out[i]].bytes)
            return sy_error_set(SY_EARG, "node %s: Loop ran %lld times, its result has more",
                                step->node->name, (long long)c->said->turn);
    }
    return SY_OK;
}

static int run_loop(struct sy_program *p, const struct sy_cuda_step *step)
{
    struct sy_cuda_control *c = step->state;
    unsigned char *place = place_of(p, c);
    SY_TRY(begin(p, c, place));
    if (sy_cuda_program_has_fault(p))
        return SY_OK;
    bind_turns(p, c, place);
    if (turns.depth++ == 0)
        turns.done = 0;
    int status = run_turns(p, step, place);
    turns.depth--;
    SY_TRY(status);
    return end(p, step, place);
}

/* The body's results and inputs as the step binds them: sizes must be the node's. */
static int check_loop(const struct sy_program *p, const struct sy_cuda_control *c)
{
    const struct sy_node *node = sy_cuda_node(p);
    const struct sy_graph *g = c->bodies[0].graph;
    if (!g || g->n_inputs != c->n_in || g->n_outputs != c->n_out + 1 || c->formal > c->n_in ||
        c->n_carried < 0 || c->n_carried > c->n_out)
        return sy_unsupported(node, "a body with other inputs or results");
    for (int i = 0; i < c->n_carried; i++) {
        if (node->inputs[2 + i] < 0)
            return sy_unsupported(node, "a carried value is omitted");
        uint64_t bytes = tensor_bytes(p, &p->graph->tensors[node->inputs[2 + i]]);
        if (bytes != tensor_bytes(p, &g->tensors[g->inputs[2 + i]]) ||
            bytes != tensor_bytes(p, &g->tensors[g->outputs[1 + i]]))
            return sy_unsupported(node, "a carried value changes its size");
    }
    return tensor_bytes(p, &g->tensors[g->outputs[0]]) == 1
               ? SY_OK
               : sy_unsupported(node, "a condition that is not one boolean");
}

static int add_turns(struct sy_program *p, struct sy_cuda_control *c)
{
    c->n_carried = c->formal - 2;
    SY_TRY(add_body(p, c, 0, "body", c->formal));
    SY_TRY(check_loop(p, c));
    reserve_results(p, c, c->bodies[0].graph, 1);
    c->turn_at = sy_cuda_reserve(&c->place_bytes, sizeof c->said->turn);
    c->going_at = sy_cuda_reserve(&c->place_bytes, 1);
    c->next_at = sy_cuda_reserve(&c->place_bytes, 1);
    return SY_OK;
}

static int build_loop(struct sy_program *p)
{
    struct sy_cuda_control *c;
    SY_TRY(new_control(p, &c));
    return add_step(p, run_loop, c, add_turns(p, c));
}

const struct sy_cuda_op sy_cuda_ops_control[] = {
    {.build = build_if, SY_OPS(SY_OP_IF)}, {.build = build_loop, SY_OPS(SY_OP_LOOP)}, {0}};
