/* LSTM, GRU and RNN: one product of all inputs, then for each time a product of the state and the cell; backward the same the other way,
 * then each weight's gradient in one product. What the cells do is workers/cuda/kernels/cell_formulas.h.
 *
 *   gates [T, B, G H], h and c [T + 1, B, H]: forward the state before time t is number t, behind it t + 1; reverse the other way round
 *
 * Everything is float32, as in the host's trainer. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/train/cuda_train.h"
#include "workers/engine/recurrent_node.h"

enum { GATES, STATES, CELLS }; /* of sy_cutr_node's saved; CELLS: LSTM's c, GRU's EXTRA */

struct recurrence {
    const struct sy_node *node;
    struct sy_recurrent_node of;
    int direction;
    int r, bias, lengths; /* values: R and B of this direction; -1 */
    int saved[3];
};

static int output_of(const struct sy_node *node, int i)
{
    return i < node->n_outputs ? node->outputs[i] : -1;
}

static int describe(const struct sy_trainer *t, const struct sy_node *node, struct recurrence *c)
{
    int64_t x[SY_MAX_RANK], w[SY_MAX_RANK], r[SY_MAX_RANK];
    struct sy_recurrent_node of;
    int ranks[3] = {sy_cutr_dims(t, node->inputs[0], x), sy_cutr_dims(t, node->inputs[1], w),
                    sy_cutr_dims(t, node->inputs[2], r)};
    for (int i = 0; i < 3; i++)
        SY_TRY(ranks[i]);
    if (ranks[0] != 3 || ranks[1] != 3 || ranks[2] != 3)
        return sy_cutr_refuse(node, "other than three dimensions");
    const char *why = sy_recurrent_node_read_usual(node, x, w, r, &of);
    if (why)
        return sy_cutr_refuse(node, why);
    *c = (struct recurrence){.node = node, .of = of, .r = -1, .bias = -1, .lengths = -1};
    return SY_OK;
}

/* ---- parts of values -------------------------------------------------------------------------------- */

/* [rows, columns] from element `first` on. */
static int part(struct sy_trainer *t, int value, int64_t first, int64_t rows, int64_t columns,
                int *out)
{
    *out = -1;
    return value < 0 ? SY_OK
                     : sy_cutr_view(t, value, 2, (int64_t[]){rows, columns}, false,
                                    (uint64_t)first * sizeof(float), out);
}

/* Number `at` of so many [batch, hidden]. */
static int state_at(struct sy_trainer *t, const struct recurrence *c, int value, int64_t at,
                    int *out)
{
    return part(t, value, at * c->of.batch * c->of.hidden, c->of.batch, c->of.hidden, out);
}

static int gates_at(struct sy_trainer *t, const struct recurrence *c, int value, int64_t time,
                    int *out)
{
    int64_t width = c->of.gates * c->of.hidden;
    return part(t, value, time * c->of.batch * width, c->of.batch, width, out);
}

static int64_t before(const struct recurrence *c, int64_t time)
{
    return c->of.is_reverse ? time + 1 : time;
}

static int64_t behind(const struct recurrence *c, int64_t time)
{
    return c->of.is_reverse ? time : time + 1;
}

static int64_t time_of(const struct recurrence *c, int64_t step)
{
    return c->of.is_reverse ? c->of.steps - 1 - step : step;
}

static int new_value(struct sy_trainer *t, int64_t rows, int64_t columns, int *out)
{
    return sy_cutr_value_new(t, 2, (int64_t[]){rows, columns}, false, false, out);
}

static int copy(struct sy_trainer *t, unsigned when, const struct recurrence *c, int from, int to)
{
    struct sy_math_chain load = {.n_inputs = 1, .n_steps = 1, .steps = {{SY_CHAIN_LOAD, 0, 0, 0}}};
    return sy_cutr_chain(t, when, c->node->name, &load, &from, (bool[]){false}, 1, to);
}

/* `to` begins as number `direction` of `from`; -1: as zero. */
static int start(struct sy_trainer *t, unsigned when, const struct recurrence *c, int from, int to)
{
    if (from < 0)
        return sy_cutr_fill(t, when, c->node->name, to, 0);
    SY_TRY(state_at(t, c, from, c->direction, &from));
    return copy(t, when, c, from, to);
}

static int product(struct sy_trainer *t, unsigned when, const struct recurrence *c,
                   struct sy_math_matmul m, int a, int b, int y)
{
    m.count = 1;
    m.alpha = 1;
    return sy_cutr_add_product(t, when, c->node->name, m, (int[]){a, b, -1, y});
}

static int run_cell(struct sy_trainer *t, const struct sy_cutr_step *step)
{
    void *at[SY_CELL_ROLES];
    for (int i = 0; i < SY_CELL_ROLES; i++)
        at[i] = sy_cutr_pointer(t, step->args[i]);
    return t->ops->train->cell(t->math, &step->cell, at);
}

/* Forward: the results are those from G to Y. */
static int add_cell(struct sy_trainer *t, const struct recurrence *c, enum sy_cell_part which,
                    int64_t time, const int *roles)
{
    bool is_back = which >= SY_CELL_PART_BACK;
    struct sy_cutr_step *step;
    SY_TRY(sy_cutr_step_new(t, is_back ? SY_CUTR_TRAIN : SY_CUTR_FORWARD, c->node->name, run_cell,
                            roles, is_back ? SY_CELL_ROLES : SY_CELL_Y + 1, &step));
    step->n_results = is_back ? SY_CELL_ROLES - SY_CELL_G : SY_CELL_Y + 1 - SY_CELL_G;
    step->cell = (struct sy_math_cell){.op = c->node->op,
                                       .part = which,
                                       .resets_late = c->of.resets_late,
                                       .rules = c->of.rules[c->direction],
                                       .time = time,
                                       .batch = c->of.batch,
                                       .hidden = c->of.hidden};
    return SY_OK;
}

/* Shared by forward and backward of a time step. */
static int read_time(struct sy_trainer *t, const struct recurrence *c, int64_t time, int *roles)
{
    bool is_lstm = c->node->op == SY_OP_LSTM;
    memset(roles, 0xff, SY_CELL_ROLES * sizeof *roles); /* -1 */
    roles[SY_CELL_LENGTHS] = c->lengths;
    SY_TRY(gates_at(t, c, c->saved[GATES], time, &roles[SY_CELL_G]));
    SY_TRY(state_at(t, c, c->saved[STATES], before(c, time), &roles[SY_CELL_H]));
    if (is_lstm)
        SY_TRY(state_at(t, c, c->saved[CELLS], before(c, time), &roles[SY_CELL_C]));
    return state_at(t, c, c->saved[CELLS], is_lstm ? behind(c, time) : time, &roles[SY_CELL_EXTRA]);
}

/* ---- forward ---------------------------------------------------------------------------------------- */

/* The state's products are values of their own: a step that is run again must find what it read (cuda_train_recompute.c). */
static int forward_time(struct sy_trainer *t, const struct recurrence *c, int64_t time, int y)
{
    int roles[SY_CELL_ROLES], r;
    bool is_early = c->node->op == SY_OP_GRU && !c->of.resets_late;
    int64_t n = c->of.hidden, first = is_early ? 2 : c->of.gates;
    struct sy_math_matmul m = {.m = c->of.batch, .n = first * n, .k = n, .b_transposed = true};
    SY_TRY(read_time(t, c, time, roles));
    roles[SY_CELL_BIAS] = c->bias;
    SY_TRY(new_value(t, c->of.batch, first * n, &roles[SY_CELL_REC]));
    SY_TRY(part(t, c->r, 0, first * n, n, &r));
    SY_TRY(product(t, SY_CUTR_FORWARD, c, m, roles[SY_CELL_H], r, roles[SY_CELL_REC]));
    int state;
    SY_TRY(state_at(t, c, c->saved[STATES], behind(c, time), &state));
    if (!is_early) {
        roles[SY_CELL_H_NEW] = state;
        SY_TRY(state_at(t, c, y, time * c->of.directions + c->direction, &roles[SY_CELL_Y]));
        return add_cell(t, c, SY_CELL_PART_GATES, time, roles);
    }
    SY_TRY(add_cell(t, c, SY_CELL_PART_GATES, time, roles));
    m.n = n;
    SY_TRY(new_value(t, c->of.batch, n, &roles[SY_CELL_REC]));
    SY_TRY(part(t, c->r, 2 * n * n, n, n, &r));
    SY_TRY(product(t, SY_CUTR_FORWARD, c, m, roles[SY_CELL_EXTRA], r, roles[SY_CELL_REC]));
    roles[SY_CELL_H_NEW] = state;
    SY_TRY(state_at(t, c, y, time * c->of.directions + c->direction, &roles[SY_CELL_Y]));
    return add_cell(t, c, SY_CELL_PART_END, time, roles);
}

static int take_direction(struct sy_trainer *t, int n, int direction, unsigned when,
                          struct recurrence *c)
{
    const struct sy_node *node = c->node;
    int64_t width = c->of.gates * c->of.hidden;
    c->direction = direction;
    c->of.is_reverse |= direction == 1;
    SY_TRY(sy_cutr_operand(t, when, node->inputs[2], SY_CUTR_PLAIN, &c->r));
    SY_TRY(part(t, c->r, direction * width * c->of.hidden, width, c->of.hidden, &c->r));
    if (sy_node_input(node, 3) >= 0) {
        SY_TRY(sy_cutr_operand(t, when, node->inputs[3], SY_CUTR_PLAIN, &c->bias));
        SY_TRY(part(t, c->bias, direction * 2 * width, 2, width, &c->bias));
    }
    if (sy_node_input(node, 4) >= 0)
        SY_TRY(sy_cutr_operand(t, when, node->inputs[4], SY_CUTR_PLAIN, &c->lengths));
    memcpy(c->saved, t->nodes[n].saved[direction], sizeof c->saved);
    return SY_OK;
}

static int make_room(struct sy_trainer *t, int n, const struct recurrence *c, int direction)
{
    int *saved = t->nodes[n].saved[direction];
    int64_t rows = c->of.steps * c->of.batch, more = rows + c->of.batch;
    SY_TRY(new_value(t, rows, c->of.gates * c->of.hidden, &saved[GATES]));
    SY_TRY(new_value(t, more, c->of.hidden, &saved[STATES]));
    saved[CELLS] = -1;
    return c->node->op == SY_OP_RNN
               ? SY_OK
               : new_value(t, c->node->op == SY_OP_LSTM ? more : rows, c->of.hidden, &saved[CELLS]);
}

static int begin_states(struct sy_trainer *t, const struct recurrence *c)
{
    int from, to;
    for (int i = 0; i < (c->node->op == SY_OP_LSTM ? 2 : 1); i++) {
        from = sy_node_input(c->node, 5 + i);
        if (from >= 0)
            SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, from, SY_CUTR_PLAIN, &from));
        SY_TRY(
            state_at(t, c, c->saved[i ? CELLS : STATES], c->of.is_reverse ? c->of.steps : 0, &to));
        SY_TRY(start(t, SY_CUTR_FORWARD, c, from, to));
    }
    return SY_OK;
}

/* The last state of this direction into number `direction` of the result. */
static int leave_state(struct sy_trainer *t, const struct recurrence *c, int saved, int result)
{
    int from, to;
    if (result < 0)
        return SY_OK;
    SY_TRY(state_at(t, c, saved, c->of.is_reverse ? 0 : c->of.steps, &from));
    SY_TRY(state_at(t, c, result, c->direction, &to));
    return copy(t, SY_CUTR_FORWARD, c, from, to);
}

static int forward_direction(struct sy_trainer *t, const struct recurrence *c, int x,
                             const int *results)
{
    int64_t rows = c->of.steps * c->of.batch, width = c->of.gates * c->of.hidden;
    int w;
    struct sy_math_matmul m = {.m = rows, .n = width, .k = c->of.input, .b_transposed = true};
    SY_TRY(begin_states(t, c));
    SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, c->node->inputs[1], SY_CUTR_PLAIN, &w));
    SY_TRY(part(t, w, c->direction * width * c->of.input, width, c->of.input, &w));
    SY_TRY(product(t, SY_CUTR_FORWARD, c, m, x, w, c->saved[GATES]));
    for (int64_t s = 0; s < c->of.steps; s++)
        SY_TRY(forward_time(t, c, time_of(c, s), results[0]));
    SY_TRY(leave_state(t, c, c->saved[STATES], results[1]));
    return leave_state(t, c, c->saved[CELLS], results[2]);
}

int sy_cutr_recurrent_forward(struct sy_trainer *t, int n)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct recurrence all, c;
    int x, results[3] = {-1, -1, -1};
    SY_TRY(describe(t, node, &all));
    for (int i = 0; i < 4; i++) /* parameters in the order in which the host's trainer has them */
        if (sy_node_input(node, i) >= 0)
            SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[i], SY_CUTR_PLAIN, &x));
    SY_TRY(sy_cutr_operand(t, SY_CUTR_FORWARD, node->inputs[0], SY_CUTR_PLAIN, &x));
    t->nodes[n].source = x;
    for (int i = 0; i < 3; i++)
        if (output_of(node, i) >= 0)
            SY_TRY(sy_cutr_result(t, node->outputs[i], false, &results[i]));
    for (int d = 0; d < all.of.directions; d++) {
        c = all;
        SY_TRY(make_room(t, n, &c, d));
        SY_TRY(take_direction(t, n, d, SY_CUTR_FORWARD, &c));
        SY_TRY(forward_direction(t, &c, x, results));
    }
    return SY_OK;
}

/* ---- backward --------------------------------------------------------------------------------------- */

/* Values of one direction's backward. */
struct back {
    int dy;             /* of the whole result, or -1 */
    int dh, dc;         /* [batch, hidden] */
    int dg, dg_h;       /* [T, B, gates, hidden]; the same unless GRU */
    int third, d;       /* GRU that resets early: [T, B, H], [B, H] */
    int dx, dw, dr, db; /* of the whole; -1: not needed */
};

static int backward_time(struct sy_trainer *t, const struct recurrence *c, const struct back *b,
                         int64_t time)
{
    int roles[SY_CELL_ROLES], r, dg_h;
    int64_t n = c->of.hidden;
    struct sy_math_matmul m = {.m = c->of.batch, .n = n, .k = c->of.gates * n, .beta = 1};
    SY_TRY(read_time(t, c, time, roles));
    SY_TRY(state_at(t, c, b->dy, time * c->of.directions + c->direction, &roles[SY_CELL_DY]));
    roles[SY_CELL_DH] = b->dh;
    roles[SY_CELL_DC] = b->dc;
    SY_TRY(gates_at(t, c, b->dg, time, &roles[SY_CELL_DG]));
    SY_TRY(gates_at(t, c, b->dg_h, time, &dg_h));
    if (b->dg_h != b->dg)
        roles[SY_CELL_DG_H] = dg_h;
    SY_TRY(state_at(t, c, b->third, time, &roles[SY_CELL_THIRD]));
    SY_TRY(add_cell(t, c, SY_CELL_PART_BACK, time, roles));
    if (b->third >= 0) {
        struct sy_math_matmul early = {.m = c->of.batch, .n = n, .k = n};
        SY_TRY(part(t, c->r, 2 * n * n, n, n, &r));
        SY_TRY(product(t, SY_CUTR_TRAIN, c, early, roles[SY_CELL_THIRD], r, b->d));
        roles[SY_CELL_D] = b->d;
        SY_TRY(add_cell(t, c, SY_CELL_PART_BACK_END, time, roles));
    }
    return product(t, SY_CUTR_TRAIN, c, m, dg_h, c->r, b->dh);
}

/* y [m, n] = a' b over all times. */
static int over_times(struct sy_trainer *t, const struct recurrence *c, int a, int64_t m, int b,
                      int64_t n, int y)
{
    struct sy_math_matmul p = {
        .m = m, .n = n, .k = c->of.steps * c->of.batch, .a_transposed = true};
    return product(t, SY_CUTR_TRAIN, c, p, a, b, y);
}

static int sum_over_times(struct sy_trainer *t, const struct recurrence *c, int from,
                          int64_t columns, int to)
{
    int64_t dims[2] = {c->of.steps * c->of.batch, columns};
    return sy_cutr_sum(t, SY_CUTR_TRAIN, c->node->name, 2, dims, (bool[]){true, false}, from, to);
}

static int recurrent_weights(struct sy_trainer *t, const struct recurrence *c, const struct back *b)
{
    int64_t n = c->of.hidden, width = c->of.gates * n, rows = c->of.steps * c->of.batch;
    int h, dr, third;
    SY_TRY(part(t, c->saved[STATES], c->of.is_reverse ? c->of.batch * n : 0, rows, n, &h));
    SY_TRY(part(t, b->dr, c->direction * width * n, width, n, &dr));
    SY_TRY(over_times(t, c, b->dg_h, width, h, n, dr));
    if (b->third < 0)
        return SY_OK;
    SY_TRY(part(t, b->dr, (c->direction * width + 2 * n) * n, n, n, &third));
    return over_times(t, c, b->third, n, c->saved[CELLS], n, third);
}

static int biases(struct sy_trainer *t, const struct recurrence *c, const struct back *b)
{
    int64_t width = c->of.gates * c->of.hidden, first = c->direction * 2 * width;
    int row;
    SY_TRY(part(t, b->db, first, 1, width, &row));
    SY_TRY(sum_over_times(t, c, b->dg, width, row));
    SY_TRY(part(t, b->db, first + width, 1, width, &row));
    SY_TRY(sum_over_times(t, c, b->dg_h, width, row));
    if (b->third < 0)
        return SY_OK;
    SY_TRY(part(t, b->db, first + width + 2 * c->of.hidden, 1, c->of.hidden, &row));
    return sum_over_times(t, c, b->third, c->of.hidden, row);
}

/* The first direction makes the input's gradient, the second adds. */
static int inputs(struct sy_trainer *t, const struct recurrence *c, const struct back *b)
{
    int64_t width = c->of.gates * c->of.hidden;
    int w;
    struct sy_math_matmul m = {.m = c->of.steps * c->of.batch,
                               .n = c->of.input,
                               .k = width,
                               .beta = c->direction ? 1.0f : 0.0f};
    SY_TRY(sy_cutr_operand(t, SY_CUTR_TRAIN, c->node->inputs[1], SY_CUTR_PLAIN, &w));
    SY_TRY(part(t, w, c->direction * width * c->of.input, width, c->of.input, &w));
    return product(t, SY_CUTR_TRAIN, c, m, b->dg, w, b->dx);
}

static int room_for_back(struct sy_trainer *t, const struct recurrence *c, struct back *b)
{
    int64_t rows = c->of.steps * c->of.batch, width = c->of.gates * c->of.hidden;
    bool is_gru = c->node->op == SY_OP_GRU;
    b->dc = b->third = b->d = -1;
    SY_TRY(new_value(t, c->of.batch, c->of.hidden, &b->dh));
    if (c->node->op == SY_OP_LSTM)
        SY_TRY(new_value(t, c->of.batch, c->of.hidden, &b->dc));
    SY_TRY(new_value(t, rows, width, &b->dg));
    b->dg_h = b->dg;
    if (is_gru)
        SY_TRY(new_value(t, rows, width, &b->dg_h));
    if (!is_gru || c->of.resets_late)
        return SY_OK;
    SY_TRY(new_value(t, rows, c->of.hidden, &b->third));
    return new_value(t, c->of.batch, c->of.hidden, &b->d);
}

static int backward_direction(struct sy_trainer *t, const struct recurrence *c, struct back *b,
                              int x, const int *states, const int *d_states)
{
    int64_t width = c->of.gates * c->of.hidden;
    int to;
    SY_TRY(room_for_back(t, c, b));
    SY_TRY(start(t, SY_CUTR_TRAIN, c, states[0], b->dh));
    if (b->dc >= 0)
        SY_TRY(start(t, SY_CUTR_TRAIN, c, states[1], b->dc));
    for (int64_t s = c->of.steps - 1; s >= 0; s--)
        SY_TRY(backward_time(t, c, b, time_of(c, s)));
    if (b->dw >= 0) {
        SY_TRY(part(t, b->dw, c->direction * width * c->of.input, width, c->of.input, &to));
        SY_TRY(over_times(t, c, b->dg, width, x, c->of.input, to));
    }
    if (b->dr >= 0)
        SY_TRY(recurrent_weights(t, c, b));
    if (b->db >= 0)
        SY_TRY(biases(t, c, b));
    if (b->dx >= 0)
        SY_TRY(inputs(t, c, b));
    for (int i = 0; i < 2; i++) {
        SY_TRY(state_at(t, c, d_states[i], c->direction, &to));
        if (to >= 0)
            SY_TRY(copy(t, SY_CUTR_TRAIN, c, i ? b->dc : b->dh, to));
    }
    return SY_OK;
}

/* *value: the value for the tensor's gradient; -1: none is wanted. */
static int begin_gradient(struct sy_trainer *t, int tensor, int *value)
{
    *value = -1;
    return sy_cutr_needs(t, tensor) ? sy_cutr_diff_begin(t, tensor, false, value) : SY_OK;
}

int sy_cutr_recurrent_backward(struct sy_trainer *t, int n, int gradient)
{
    const struct sy_node *node = &t->graph->nodes[n];
    struct recurrence all, c;
    struct back b;
    int results[3] = {-1, -1, -1}, d_states[2], *whole[4] = {&b.dx, &b.dw, &b.dr, &b.db};
    (void)gradient;
    SY_TRY(describe(t, node, &all));
    for (int i = 0; i < 3; i++)
        if (output_of(node, i) >= 0 && t->tensors[node->outputs[i]].gradient >= 0)
            SY_TRY(sy_cutr_as(t, SY_CUTR_TRAIN, t->tensors[node->outputs[i]].gradient, false,
                              &results[i]));
    b.dy = results[0];
    for (int i = 0; i < 4; i++)
        SY_TRY(begin_gradient(t, sy_node_input(node, i), whole[i]));
    for (int i = 0; i < 2; i++)
        SY_TRY(begin_gradient(t, sy_node_input(node, 5 + i), &d_states[i]));
    for (int d = 0; d < all.of.directions; d++) {
        c = all;
        SY_TRY(take_direction(t, n, d, SY_CUTR_TRAIN, &c));
        SY_TRY(backward_direction(t, &c, &b, t->nodes[n].source, results + 1, d_states));
    }
    for (int i = 0; i < 4; i++)
        if (*whole[i] >= 0)
            SY_TRY(sy_cutr_diff_end(t, node->inputs[i], *whole[i]));
    for (int i = 0; i < 2; i++)
        if (d_states[i] >= 0)
            SY_TRY(sy_cutr_diff_end(t, node->inputs[5 + i], d_states[i]));
    return SY_OK;
}
