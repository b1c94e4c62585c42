/* LSTM in 8 bits (loader: fuse_int8_recurrent.c), computed as ONNX Runtime's DynamicQuantizeLSTM: all of x is quantised by its range once, the
 * states before each step (recurrence_int8.c). Weights: a packed matrix (int8_matrix.h) for each direction, columns [blocks of 16 units][gates][16]. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/products/int8_matrix.h"
#include "workers/host/products/recurrence.h"
#include "workers/host/program/program_internal.h"
#include "workers/host/rows/int8_rows.h"

enum { X, W, R, BIAS, H0 = 5, C0, GATES = 4, UNITS = SY_RECURRENCE_MOST_UNITS };

struct sizes {
    int64_t directions, hidden, input;
    int64_t columns; /* of a direction, packed */
};

static bool has_numbers(const struct sy_node *node, const char *name, enum sy_attr_kind kind,
                        int64_t n)
{
    const struct sy_attr *a = sy_node_attr(node, name);
    return a && a->kind == kind && a->n == n;
}

/* ECORRUPT unless the node is one that the pass makes. */
static int read_sizes(const struct sy_graph *graph, const struct sy_node *node, struct sizes *s)
{
    for (int i = X; i <= R; i++)
        if (sy_node_input(node, i) < 0 || graph->tensors[node->inputs[i]].shape.rank != 3)
            return sy_error_set(SY_ECORRUPT, "node %s: an LSTM of 8 bits without input %d",
                                node->name, i);
    const struct sy_tensor *x = &graph->tensors[node->inputs[X]],
                           *w = &graph->tensors[node->inputs[W]],
                           *r = &graph->tensors[node->inputs[R]];
    *s = (struct sizes){.directions = w->shape.dims[0].fixed,
                        .hidden = r->shape.dims[2].fixed,
                        .input = w->shape.dims[2].fixed};
    const int64_t n = s->directions * GATES * s->hidden;
    s->columns = SY_ALIGN_UP(s->hidden, (int64_t)UNITS) * GATES;
    bool fits = s->directions >= 1 && s->directions <= 2 && s->hidden >= 1 && s->input >= 1 &&
                s->hidden <= SY_INT8_MOST_DEPTH && s->input <= SY_INT8_MOST_DEPTH &&
                w->dtype == SY_DTYPE_I8 && r->dtype == SY_DTYPE_I8 && x->dtype == SY_DTYPE_F32 &&
                sy_shape_elements(&w->shape, 1) == n * s->input &&
                sy_shape_elements(&r->shape, 1) == n * s->hidden &&
                has_numbers(node, "w_steps", SY_ATTR_FLOATS, n) &&
                has_numbers(node, "r_steps", SY_ATTR_FLOATS, n) &&
                has_numbers(node, "w_zeros", SY_ATTR_INTS, n) &&
                has_numbers(node, "r_zeros", SY_ATTR_INTS, n);
    if (fits && sy_node_input(node, BIAS) >= 0)
        fits = sy_shape_elements(&graph->tensors[node->inputs[BIAS]].shape, 1) == 2 * n;
    return fits ? SY_OK
                : sy_error_set(SY_ECORRUPT, "node %s: weights of an LSTM of 8 bits that do not fit",
                               node->name);
}

/* ---- packing ---------------------------------------------------------------------------------------- */

static int layout_int8_lstm(const struct sy_graph *graph, const struct sy_node *node, int input,
                            dnnl_memory_desc_t *md)
{
    struct sizes s;
    SY_TRY(read_sizes(graph, node, &s));
    int64_t bytes = s.directions * sy_int8_matrix_bytes(input == W ? s.input : s.hidden, s.columns);
    if (input == W || input == R)
        sy_dnnl_plain_md_of(md, dnnl_s8, 1, &bytes);
    else if (input == BIAS)
        sy_dnnl_plain_md(md, 1, (int64_t[]){s.directions * s.columns});
    return SY_OK;
}

/* The column of unit i of gate g within a direction. */
static int64_t column_of(int64_t g, int64_t i)
{
    return (i / UNITS * GATES + g) * UNITS + i % UNITS;
}

static void pack_weights(const struct sy_node *node, const struct sizes *s, int input,
                         const int8_t *from, uint8_t *to)
{
    const int64_t depth = input == W ? s->input : s->hidden,
                  bytes = sy_int8_matrix_bytes(depth, s->columns);
    const float *steps = sy_node_attr(node, input == W ? "w_steps" : "r_steps")->floats;
    const int64_t *zeros = sy_node_attr(node, input == W ? "w_zeros" : "r_zeros")->ints;
    for (int64_t row = 0; row < s->directions * GATES * s->hidden; row++) {
        const struct sy_int8_column column = {from + row * depth, 1, (int32_t)zeros[row],
                                              steps[row]};
        int64_t d = row / (GATES * s->hidden);
        sy_int8_matrix_set(to + d * bytes, depth, s->columns,
                           column_of(row / s->hidden % GATES, row % s->hidden), &column);
    }
}

static int prepare_int8_lstm(const struct sy_graph *graph, const struct sy_node *node, int input,
                             void *out)
{
    const struct sy_tensor *t = &graph->tensors[node->inputs[input]];
    struct sizes s;
    SY_TRY(read_sizes(graph, node, &s));
    if (input == W || input == R)
        pack_weights(node, &s, input, t->data, out);
    else if (input != BIAS)
        memcpy(out, t->data, t->data_bytes);
    const float *b = t->data;
    float *to = out;
    int64_t rows = GATES * s.hidden;
    for (int64_t d = 0; d < s.directions && input == BIAS; d++)
        for (int64_t i = 0; i < rows; i++)
            to[d * s.columns + column_of(i / s.hidden, i % s.hidden)] =
                b[d * 2 * rows + i] + b[d * 2 * rows + rows + i];
    return SY_OK;
}

/* ---- the product with x ------------------------------------------------------------------------------- */

enum { P_X, P_W, P_NUMBERS, P_SUMS, P_Y, P_ARGS };

/* numbers: rows, input, directions, columns, stride of quantised rows. */
static int run_projection(struct sy_program *p, struct sy_step *step)
{
    const int64_t *n = step->numbers, rows = n[0], input = n[1], stride = n[4];
    const float *x = sy_program_pointer(p, step->args[P_X].value);
    const uint8_t *weights = sy_program_pointer(p, step->args[P_W].value);
    uint8_t *numbers = sy_program_pointer(p, step->args[P_NUMBERS].value);
    int32_t *sums = sy_program_pointer(p, step->args[P_SUMS].value);
    float *y = sy_program_pointer(p, step->args[P_Y].value), low, high, scale, zero;
    sy_int8_range(rows * input, x, &low, &high);
    sy_int8_scale_of(low, high, &scale, &zero);
#pragma omp parallel for schedule(static) if (rows * input > 16384)
    for (int64_t i = 0; i < rows; i++) {
        sy_int8_quantize(input, x + i * input, scale, zero, 0, 255, numbers + i * stride);
        sums[i] = sy_int8_sum(input, numbers + i * stride);
    }
    const struct sy_int8_rows all = {rows, stride, numbers, sums, scale, (int32_t)zero};
    for (int64_t d = 0; d < n[2]; d++) {
        const struct sy_int8_matrix m =
            sy_int8_matrix_view(weights + d * sy_int8_matrix_bytes(input, n[3]), input, n[3]);
        sy_int8_multiply(&m, &all, NULL, y + d * n[3], n[2] * n[3]);
    }
    return SY_OK;
}

static int add_projection(struct sy_program *p, const struct sizes *s, int64_t rows, int *out)
{
    int64_t stride = SY_ALIGN_UP(s->input, (int64_t)4);
    int values[P_ARGS];
    SY_TRY(sy_program_input_plain(p, X, &values[P_X]));
    SY_TRY(sy_program_param(p, W, &values[P_W]));
    SY_TRY(sy_program_new_value(p, SY_DTYPE_U8, 1, (int64_t[]){rows * stride}, &values[P_NUMBERS]));
    SY_TRY(sy_program_new_value(p, SY_DTYPE_I32, 1, &rows, &values[P_SUMS]));
    SY_TRY(sy_program_new_value(p, SY_DTYPE_F32, 2, (int64_t[]){rows, s->directions * s->columns},
                                &values[P_Y]));
    *out = values[P_Y];
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_projection, values, P_ARGS, &step));
    const int64_t numbers[] = {rows, s->input, s->directions, s->columns, stride};
    return sy_step_set_numbers(step, numbers, (int)SY_ARRAY_LEN(numbers));
}

/* ---- the steps ---------------------------------------------------------------------------------------- */

enum { V_FROM_X, V_R, V_BIAS, V_H0, V_C0, V_Y, V_LAST_H, V_CELL, V_STATES, N_VALUES };

static void *pointer_or_null(struct sy_program *p, const struct sy_step *step, int arg)
{
    return step->args[arg].value >= 0 ? sy_program_pointer(p, step->args[arg].value) : NULL;
}

/* numbers: steps, batch, hidden, directions, reverse, columns, sequences of a group. */
static int run_steps(struct sy_program *p, struct sy_step *step)
{
    const int64_t *n = step->numbers, hidden = n[2], columns = n[5];
    const uint8_t *weights = pointer_or_null(p, step, V_R);
    struct sy_recurrence_int8 q = {.bias = pointer_or_null(p, step, V_BIAS),
                                   .group = n[6],
                                   .states = pointer_or_null(p, step, V_STATES)};
    for (int64_t d = 0; d < n[3]; d++)
        q.weights[d] = sy_int8_matrix_view(weights + d * sy_int8_matrix_bytes(hidden, columns),
                                           hidden, columns);
    const struct sy_recurrence r = {.gates = GATES,
                                    .units = UNITS,
                                    .steps = n[0],
                                    .batch = n[1],
                                    .hidden = hidden,
                                    .directions = n[3],
                                    .first_is_reverse = n[4] != 0,
                                    .from_x = pointer_or_null(p, step, V_FROM_X),
                                    .int8 = &q,
                                    .h0 = pointer_or_null(p, step, V_H0),
                                    .c0 = pointer_or_null(p, step, V_C0),
                                    .y = pointer_or_null(p, step, V_Y),
                                    .last_h = pointer_or_null(p, step, V_LAST_H),
                                    .cell = pointer_or_null(p, step, V_CELL)};
    sy_recurrence_run(&r);
    return SY_OK;
}

/* x: its dimensions [steps, batch, input]. */
static int collect_values(struct sy_program *p, const struct sizes *s, const int64_t *x,
                          int *values)
{
    const struct sy_node *node = sy_program_node(p);
    const int64_t y[] = {x[0], s->directions, x[1], s->hidden},
                  room = sy_recurrence_int8_bytes(x[1], s->hidden, p->team);
    SY_TRY(add_projection(p, s, x[0] * x[1], &values[V_FROM_X]));
    SY_TRY(sy_program_param(p, R, &values[V_R]));
    if (sy_node_input(node, BIAS) >= 0)
        SY_TRY(sy_program_param(p, BIAS, &values[V_BIAS]));
    for (int i = H0; i <= C0; i++) {
        int *value = &values[i == H0 ? V_H0 : V_C0];
        if (sy_node_input(node, i) < 0)
            continue;
        SY_TRY(sy_program_input_plain(p, i, value));
        if (p->values[*value].bytes != (uint64_t)(y[1] * y[2] * y[3]) * sizeof(float))
            return sy_unsupported(node, "a first state of another size");
    }
    SY_TRY(sy_program_new_value(p, SY_DTYPE_U8, 1, &room, &values[V_STATES]));
    SY_TRY(sy_program_output_or_room(p, 0, true, 4, y, &values[V_Y]));
    SY_TRY(sy_program_output_or_room(p, 1, false, 0, NULL, &values[V_LAST_H]));
    return sy_program_output_or_room(p, 2, true, 3, y + 1, &values[V_CELL]);
}

static int build_int8_lstm(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_attr *way = sy_node_attr(node, "direction");
    bool both = way && way->s && strcmp(way->s, "bidirectional") == 0;
    bool reverse = way && way->s && strcmp(way->s, "reverse") == 0;
    int values[N_VALUES];
    int64_t x[SY_MAX_RANK];
    struct sizes s;
    SY_TRY(read_sizes(p->graph, node, &s));
    sy_program_dims(p, node->inputs[X], x);
    if (s.directions != (both ? 2 : 1) || x[2] != s.input)
        return sy_unsupported(node, "weights of another number of directions or inputs");
    if (x[0] < 1 || x[1] < 1)
        return sy_unsupported(node, "a sequence or batch of none");
    memset(values, 0xff, sizeof values);
    SY_TRY(collect_values(p, &s, x, values));
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_steps, values, N_VALUES, &step));
    const int64_t numbers[] = {x[0],
                               x[1],
                               s.hidden,
                               s.directions,
                               reverse,
                               s.columns,
                               sy_recurrence_int8_group(x[1], s.hidden, p->team)};
    return sy_step_set_numbers(step, numbers, (int)SY_ARRAY_LEN(numbers));
}

const struct sy_host_op sy_host_ops_int8_recurrent[] = {{.build = build_int8_lstm,
                                                         .layout = layout_int8_lstm,
                                                         .prepare = prepare_int8_lstm,
                                                         SY_OPS(SY_OP_QUANTIZED_LSTM)},
                                                        {0}};
