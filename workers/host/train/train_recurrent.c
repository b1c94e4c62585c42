/* LSTM, GRU and RNN in the plan: values, steps and their pieces. What the steps do is in train_recurrent_forward.c and _backward.c. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/recurrent_node.h"
#include "workers/host/train/train_recurrent.h"

double sy_tr_recurrent_piece_flops = 100e6; /* a few milliseconds on one core */

static int output_of(const struct sy_node *node, int i)
{
    return i < node->n_outputs ? node->outputs[i] : -1;
}

static int describe(const struct sy_trainer *t, const struct sy_node *node, struct cell *c)
{
    int64_t x[SY_MAX_RANK], w[SY_MAX_RANK], r[SY_MAX_RANK];
    struct sy_recurrent_node of;
    int ranks[3] = {sy_tr_dims(t, node->inputs[0], x), sy_tr_dims(t, node->inputs[1], w),
                    sy_tr_dims(t, node->inputs[2], r)};
    for (int i = 0; i < 3; i++)
        SY_TRY(ranks[i]);
    if (ranks[0] != 3 || ranks[1] != 3 || ranks[2] != 3)
        return sy_tr_refuse(node, "other than three dimensions");
    const char *why = sy_recurrent_node_read_usual(node, x, w, r, &of);
    if (why)
        return sy_tr_refuse(node, why);
    *c = (struct cell){.op = node->op,
                       .steps = of.steps,
                       .batch = of.batch,
                       .input = of.input,
                       .hidden = of.hidden,
                       .gates = of.gates,
                       .directions = of.directions,
                       .is_reverse = of.is_reverse,
                       .resets_late = of.resets_late};
    double of_step =
        2.0 * (double)(c->batch * c->gates * c->hidden) * (double)(c->input + c->hidden);
    c->piece_steps =
        (int64_t)SY_MIN(SY_MAX(sy_tr_recurrent_piece_flops / of_step, 1.0), (double)c->steps);
    return SY_OK;
}

static int add_run(struct sy_trainer *t, unsigned when, sy_tr_fn *run, int n_results, int n_values,
                   const int *values, struct cell *c)
{
    int n = (int)((c->steps + c->piece_steps - 1) / c->piece_steps);
    SY_TRY(sy_tr_add_call(t, when, run, n_results, n_values, values, c));
    t->steps[t->n_steps - 1].n_pieces = n;
    return SY_OK;
}

/* Initial h and c behind each other, so that a step has one value for both. */
static int run_join_states(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const int64_t *n = step->data;
    float *to = sy_tr_at(t, step, 0);
    for (int i = 0; i < 2; i++) {
        const float *from = sy_tr_at(t, step, 1 + i);
        if (from)
            memcpy(to + i * *n, from, (size_t)*n * sizeof *to);
        else
            memset(to + i * *n, 0, (size_t)*n * sizeof *to);
    }
    return SY_OK;
}

static int add_states(struct sy_trainer *t, const struct sy_node *node, const struct cell *c,
                      int *value)
{
    int h = sy_node_input(node, 5), cell = node->op == SY_OP_LSTM ? sy_node_input(node, 6) : -1;
    int64_t n = c->directions * c->batch * c->hidden, both = 2 * n, *data;
    *value = -1;
    if (h < 0 && cell < 0)
        return SY_OK;
    if (h >= 0)
        SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, h, &h));
    if (cell >= 0)
        SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, cell, &cell));
    dnnl_memory_desc_t md = sy_tr_plain(1, &both);
    SY_TRY(sy_tr_value_new(t, &md, false, value));
    SY_TRY(sy_tr_alloc(sizeof *data, &data));
    *data = n;
    return sy_tr_add_call(t, SY_TR_FORWARD, run_join_states, 1, 3, (const int[]){*value, h, cell},
                          data);
}

static int forward_values(struct sy_trainer *t, const struct sy_node *node, const struct cell *c,
                          int *v)
{
    for (int i = 0; i < F_COUNT; i++)
        v[i] = -1;
    for (int i = 0; i < 3; i++)
        if (output_of(node, i) >= 0)
            SY_TRY(sy_tr_result(t, node->outputs[i], &v[F_Y + i]));
    for (int i = 0; i < 4; i++)
        if (sy_node_input(node, i) >= 0)
            SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[i], &v[F_X + i]));
    if (sy_node_input(node, 4) >= 0)
        SY_TRY(sy_tr_operand(t, SY_TR_FORWARD, node->inputs[4], &v[F_LENGTHS]));
    return add_states(t, node, c, &v[F_STATE]);
}

int sy_tr_recurrent_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct sy_tr_node *record = &t->nodes[n];
    struct cell c, *copy;
    int v[F_COUNT];
    SY_TRY(describe(t, node, &c));
    SY_TRY(forward_values(t, node, &c, v));
    for (int d = 0; d < c.directions; d++) {
        int64_t floats = sy_tr_recurrent_floats(&c);
        dnnl_memory_desc_t md = sy_tr_plain(1, &floats);
        SY_TRY(sy_tr_value_new(t, &md, false, &v[F_SAVED]));
        *(d ? &record->variance : &record->mean) = v[F_SAVED];
        SY_TRY(sy_tr_alloc(sizeof *copy, &copy));
        c.direction = d;
        *copy = c;
        copy->is_reverse |= d == 1;
        SY_TRY(
            add_run(t, SY_TR_FORWARD, sy_tr_recurrent_run_forward, F_SAVED + 1, F_COUNT, v, copy));
    }
    record->source = v[F_LENGTHS];
    record->workspace = v[F_STATE];
    return SY_OK;
}

/* Half of the joined gradient. */
static int run_take_state(struct sy_trainer *t, const struct sy_tr_step *step)
{
    const int64_t *part = step->data; /* elements, which half */
    const float *from = sy_tr_at(t, step, 1);
    memcpy(sy_tr_at(t, step, 0), from + part[0] * part[1], (size_t)part[0] * sizeof *from);
    return SY_OK;
}

static int state_gradients(struct sy_trainer *t, const struct sy_node *node, const struct cell *c,
                           int joined)
{
    for (int i = 0; i < 2 && joined >= 0; i++) {
        int tensor = sy_node_input(node, 5 + i), d;
        int64_t *part;
        if (!sy_tr_needs(t, tensor))
            continue;
        SY_TRY(sy_tr_diff_begin(t, tensor, &d));
        SY_TRY(sy_tr_alloc(2 * sizeof *part, &part));
        part[0] = c->directions * c->batch * c->hidden;
        part[1] = i;
        SY_TRY(
            sy_tr_add_call(t, SY_TR_TRAIN, run_take_state, 1, 2, (const int[]){d, joined}, part));
        SY_TRY(sy_tr_diff_end(t, tensor, d));
    }
    return SY_OK;
}

static int backward_values(struct sy_trainer *t, const struct sy_node *node, const struct cell *c,
                           int *v)
{
    for (int i = 0; i < B_COUNT; i++)
        v[i] = -1;
    for (int i = 0; i < 4; i++)
        if (sy_tr_needs(t, sy_node_input(node, i)))
            SY_TRY(sy_tr_diff_begin(t, node->inputs[i], &v[B_DX + i]));
    if (sy_tr_needs(t, sy_node_input(node, 5)) || sy_tr_needs(t, sy_node_input(node, 6))) {
        int64_t both = 2 * c->directions * c->batch * c->hidden;
        dnnl_memory_desc_t md = sy_tr_plain(1, &both);
        SY_TRY(sy_tr_value_new(t, &md, false, &v[B_DSTATE]));
    }
    for (int i = 0; i < 3; i++)
        if (output_of(node, i) >= 0 && t->tensors[node->outputs[i]].gradient >= 0)
            SY_TRY(sy_tr_diff_of(t, node->outputs[i], &v[B_DY + i]));
    return SY_OK;
}

static int add_backward(struct sy_trainer *t, int n, const struct cell *c, int d, int *v)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct cell *copy;
    v[B_SAVED] = d ? t->nodes[n].variance : t->nodes[n].mean;
    v[B_LENGTHS] = t->nodes[n].source;
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->inputs[1], &v[B_W]));
    SY_TRY(sy_tr_operand(t, SY_TR_TRAIN, node->inputs[2], &v[B_R]));
    SY_TRY(sy_tr_alloc(sizeof *copy, &copy));
    *copy = *c;
    copy->direction = d;
    copy->is_reverse |= d == 1;
    copy->clears = d == 0;
    return add_run(t, SY_TR_TRAIN, sy_tr_recurrent_run_backward, B_SAVED + 1, B_COUNT, v, copy);
}

int sy_tr_recurrent_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct cell c;
    int v[B_COUNT];
    (void)gradient;
    SY_TRY(describe(t, node, &c));
    SY_TRY(backward_values(t, node, &c, v));
    for (int d = 0; d < c.directions; d++)
        SY_TRY(add_backward(t, n, &c, d, v));
    for (int i = 0; i < 4; i++)
        if (v[B_DX + i] >= 0)
            SY_TRY(sy_tr_diff_end(t, node->inputs[i], v[B_DX + i]));
    return state_gradients(t, node, &c, v[B_DSTATE]);
}
