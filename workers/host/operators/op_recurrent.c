/* LSTM and GRU with constant weights, as PyTorch and Keras export them: what comes from the inputs is one product for all steps and
 * directions on oneDNN, what comes from the state is recurrence.c. Everything else (peepholes, lengths, other curves, RNN) is a kernel. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/recurrent_node.h"
#include "workers/host/operators/op_blocked.h"
#include "workers/host/products/recurrence.h"
#include "workers/host/program/program_internal.h"

#define REFERENCE_ROWS 128 /* rows of the input that the weights' layout is chosen for */

struct sizes {
    int64_t gates, directions, hidden, input, columns; /* columns: gates of all directions */
};

static const struct sy_tensor *input_of(const struct sy_graph *graph, const struct sy_node *node,
                                        int i)
{
    return i < node->n_inputs && node->inputs[i] >= 0 ? &graph->tensors[node->inputs[i]] : NULL;
}

static bool is_plain(const struct sy_node *node)
{
    return sy_recurrent_node_is_usual(node) &&
           (node->op == SY_OP_LSTM || sy_node_int(node, "linear_before_reset", 0) != 0);
}

static bool is_floats(const struct sy_tensor *t, int rank, int64_t elements)
{
    return t->dtype == SY_DTYPE_F32 && t->shape.rank == rank &&
           sy_shape_elements(&t->shape, 1) == elements;
}

/* Shapes and attributes, which are the same at import and in a worker. */
static bool fits(const struct sy_graph *graph, const struct sy_node *node, struct sizes *s)
{
    const struct sy_tensor *x = input_of(graph, node, 0), *w = input_of(graph, node, 1),
                           *r = input_of(graph, node, 2), *b = input_of(graph, node, 3);
    if (!is_plain(node) || !x || !w || !r || x->dtype != SY_DTYPE_F32 || x->shape.rank != 3 ||
        w->shape.rank != 3 || r->shape.rank != 3 || input_of(graph, node, 4) ||
        input_of(graph, node, 7) || sy_shape_elements(&x->shape, 1) <= 0)
        return false;
    *s = (struct sizes){.gates = node->op == SY_OP_LSTM ? 4 : 3,
                        .directions = w->shape.dims[0].fixed,
                        .hidden = r->shape.dims[2].fixed,
                        .input = w->shape.dims[2].fixed};
    s->columns = s->directions * s->gates * s->hidden;
    return s->columns > 0 && s->input > 0 && s->directions <= 2 &&
           is_floats(w, 3, s->columns * s->input) && is_floats(r, 3, s->columns * s->hidden) &&
           (!b || is_floats(b, 2, 2 * s->columns)) && sy_dim_at(x->shape.dims[2], 1) == s->input;
}

/* At import, where constants have data. */
static bool is_packed(const struct sy_graph *graph, const struct sy_node *node, struct sizes *s)
{
    for (int i = 1; i <= 3; i++)
        if (input_of(graph, node, i) && !input_of(graph, node, i)->data)
            return false;
    return fits(graph, node, s);
}

/* In a program, where constants are parameters. */
static bool was_packed(const struct sy_program *p, struct sizes *s)
{
    const struct sy_node *node = sy_program_node(p);
    for (int i = 1; i <= 3; i++)
        if (input_of(p->graph, node, i) && !sy_program_is_param(p, i))
            return false;
    return fits(p->graph, node, s);
}

static int make_pd(const struct sy_node *node, const struct sizes *s, int64_t rows, bool with_bias,
                   dnnl_data_type_t type, const dnnl_memory_desc_t *weights,
                   dnnl_primitive_desc_t *out)
{
    dnnl_matmul_desc_t desc;
    dnnl_memory_desc_t src, w, bias, dst;
    dnnl_primitive_attr_t attr;
    sy_dnnl_plain_md_of(&src, type, 2, (int64_t[]){rows, s->input});
    sy_dnnl_plain_md(&dst, 2, (int64_t[]){rows, s->columns});
    sy_dnnl_plain_md(&bias, 2, (int64_t[]){1, s->columns});
    dnnl_memory_desc_init_by_tag(&w, 2, (dnnl_dims_t){s->input, s->columns}, type,
                                 dnnl_format_tag_any);
    SY_TRY(sy_dnnl_check_sizes(node->name, &src, &w, &dst));
    SY_DNNL(
        dnnl_matmul_desc_init(&desc, &src, weights ? weights : &w, with_bias ? &bias : NULL, &dst),
        node->name);
    SY_DNNL(dnnl_primitive_attr_create(&attr), node->name);
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    dnnl_status_t status = dnnl_primitive_desc_create(out, &desc, attr, sy_dnnl_engine(), NULL);
    dnnl_primitive_attr_destroy(attr);
    return sy_dnnl_check(status, "matmul", node->name);
}

/* Units per block of packed weights: as wide as the CPU's vectors. CPUs that multiply bf16 have AVX-512. */
static int units_of_block(void)
{
    return sy_dnnl_has_avx512() ? SY_RECURRENCE_MOST_UNITS : SY_RECURRENCE_UNITS;
}

static int layout_recurrent(const struct sy_graph *graph, const struct sy_node *node, int input,
                            dnnl_memory_desc_t *md)
{
    struct sizes s;
    dnnl_primitive_desc_t pd;
    if (!is_packed(graph, node, &s) || (input != 1 && input != 2))
        return SY_OK;
    dnnl_data_type_t type = sy_computes_narrow(graph) ? dnnl_bf16 : dnnl_f32;
    if (input == 2) {
        int64_t n = sy_recurrence_packed(s.directions, s.gates, s.hidden, units_of_block(),
                                         type == dnnl_bf16);
        sy_dnnl_plain_md_of(md, type, 1, &n);
        return SY_OK;
    }
    if (sy_blocked_is_gain()) {
        sy_blocked_md(s.input, s.columns, md);
        return SY_OK;
    }
    SY_TRY(make_pd(node, &s, REFERENCE_ROWS, input_of(graph, node, 3) != NULL, type, NULL, &pd));
    *md = *sy_dnnl_md(pd, dnnl_query_weights_md);
    dnnl_primitive_desc_destroy(pd);
    return SY_OK;
}

/* The sums of both biases, then (GRU) those of the hidden gate's state part, which its reset multiplies. */
static void prepare_bias(const struct sizes *s, const float *b, float *to)
{
    int64_t rows = s->gates * s->hidden;
    memset(to, 0, (size_t)(2 * s->columns) * sizeof *to);
    for (int64_t d = 0; d < s->directions; d++)
        for (int64_t i = 0; i < rows; i++) {
            float from_x = b[d * 2 * rows + i], from_h = b[d * 2 * rows + rows + i];
            bool late = s->gates == 3 && i >= 2 * s->hidden;
            to[d * rows + i] = late ? from_x : from_x + from_h;
            if (late)
                to[s->columns + d * s->hidden + i - 2 * s->hidden] = from_h;
        }
}

static int prepare_recurrent(const struct sy_graph *graph, const struct sy_node *node, int input,
                             void *out)
{
    const struct sy_tensor *t = input_of(graph, node, input);
    const float *from = t->data;
    float *to = out;
    struct sizes s;
    if (!is_packed(graph, node, &s) || input < 1 || input > 3) {
        memcpy(to, from, t->data_bytes);
    } else if (input == 1) {
        for (int64_t c = 0; c < s.columns; c++)
            for (int64_t i = 0; i < s.input; i++)
                to[i * s.columns + c] = from[c * s.input + i];
        if (sy_blocked_is_gain())
            return sy_blocked_prepare(node, s.input, s.columns, to);
    } else if (input == 2) {
        sy_recurrence_pack(s.directions, s.gates, s.hidden, units_of_block(),
                           sy_computes_narrow(graph), from, to);
    } else {
        prepare_bias(&s, from, to);
    }
    return SY_OK;
}

enum { FROM_X, WEIGHTS, BIAS, H0, C0, Y, LAST_H, CELL, STATES, N_VALUES };

static void *pointer_or_null(struct sy_program *p, const struct sy_step *step, int arg)
{
    return step->args[arg].value >= 0 ? sy_program_pointer(p, step->args[arg].value) : NULL;
}

/* numbers: sizes of the recurrence as it stands in the struct, then columns. */
static int run_recurrence(struct sy_program *p, struct sy_step *step)
{
    const int64_t *n = step->numbers;
    const float *bias = pointer_or_null(p, step, BIAS);
    struct sy_recurrence r = {.gates = n[0],
                              .units = units_of_block(),
                              .steps = n[1],
                              .batch = n[2],
                              .hidden = n[3],
                              .directions = n[4],
                              .first_is_reverse = n[5] != 0,
                              .from_x = pointer_or_null(p, step, FROM_X),
                              .weights = pointer_or_null(p, step, WEIGHTS),
                              .narrow = sy_value_is_narrow(&p->values[step->args[WEIGHTS].value]),
                              .narrow_states = pointer_or_null(p, step, STATES),
                              .late_bias = bias && n[0] == 3 ? bias + n[6] : NULL,
                              .h0 = pointer_or_null(p, step, H0),
                              .c0 = pointer_or_null(p, step, C0),
                              .y = pointer_or_null(p, step, Y),
                              .last_h = pointer_or_null(p, step, LAST_H),
                              .cell = pointer_or_null(p, step, CELL)};
    sy_recurrence_run(&r);
    return SY_OK;
}

static int add_blocked_projection(struct sy_program *p, const struct sizes *s, int64_t rows,
                                  int bias, int *out)
{
    struct sy_blocked_step step = {.m = rows, .k = s->input, .n = s->columns, .bias = bias};
    SY_TRY(sy_program_input_plain(p, 0, &step.x));
    SY_TRY(sy_program_new_value(p, SY_DTYPE_F32, 2, (int64_t[]){rows, s->columns}, out));
    step.y = *out;
    return sy_program_add_blocked(p, 1, &step);
}

/* W x + b for all steps, sequences, directions and gates. */
static int add_projection(struct sy_program *p, const struct sizes *s, int64_t rows, int bias,
                          int *out)
{
    const struct sy_node *node = sy_program_node(p);
    dnnl_memory_desc_t src_md, bias_md;
    dnnl_primitive_desc_t pd;
    int src, weights, row = -1;
    if (sy_blocked_is_packed(p, 1))
        return add_blocked_projection(p, s, rows, bias, out);
    SY_TRY(sy_program_param(p, 1, &weights));
    const dnnl_data_type_t type = p->values[weights].md.data_type;
    sy_dnnl_plain_md_of(&src_md, type, 2, (int64_t[]){rows, s->input});
    sy_dnnl_plain_md(&bias_md, 2, (int64_t[]){1, s->columns});
    SY_TRY(type == dnnl_bf16 ? sy_program_input_narrow(p, 0, &src)
                             : sy_program_input_plain(p, 0, &src));
    SY_TRY(sy_program_new_alias(p, src, node->inputs[0], &src_md, &src));
    if (bias >= 0)
        SY_TRY(sy_program_new_alias(p, bias, node->inputs[3], &bias_md, &row));
    SY_TRY(sy_program_new_value(p, SY_DTYPE_F32, 2, (int64_t[]){rows, s->columns}, out));
    SY_TRY(make_pd(node, s, rows, bias >= 0, type, &p->values[weights].md, &pd));
    const int args[][2] = {{DNNL_ARG_SRC, src},
                           {DNNL_ARG_WEIGHTS, weights},
                           {DNNL_ARG_DST, *out},
                           {DNNL_ARG_BIAS, row}};
    return sy_program_add_primitive(p, pd, args, bias >= 0 ? 4 : 3);
}

static int collect_values(struct sy_program *p, const struct sizes *s, const int64_t *x,
                          int *values)
{
    bool lstm = s->gates == 4;
    const int64_t y[] = {x[0], s->directions, x[1], s->hidden};
    for (int i = BIAS; i <= C0; i++)
        if (input_of(p->graph, sy_program_node(p), i == BIAS ? 3 : i + 2))
            SY_TRY(sy_program_input_plain(p, i == BIAS ? 3 : i + 2, &values[i]));
    for (int i = H0; i <= C0; i++)
        if (values[i] >= 0 &&
            p->values[values[i]].bytes != (uint64_t)(y[1] * y[2] * y[3]) * sizeof(float))
            return sy_error_set(SY_ECORRUPT, "node %s: a first state of another size",
                                sy_program_node(p)->name);
    SY_TRY(add_projection(p, s, x[0] * x[1], values[BIAS], &values[FROM_X]));
    SY_TRY(sy_program_param(p, 2, &values[WEIGHTS]));
    /* In floats, of which the workspace knows the size: two states each. */
    int64_t states = sy_recurrence_narrow_states(y[1], y[2], y[3]) / 2;
    if (sy_value_is_narrow(&p->values[values[WEIGHTS]]))
        SY_TRY(sy_program_new_value(p, SY_DTYPE_F32, 1, &states, &values[STATES]));
    SY_TRY(sy_program_output_or_room(p, 0, true, 4, y, &values[Y]));
    SY_TRY(sy_program_output_or_room(p, 1, false, 0, NULL, &values[LAST_H]));
    return lstm ? sy_program_output_or_room(p, 2, true, 3, y + 1, &values[CELL]) : SY_OK;
}

static int build_recurrent(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_attr *way = sy_node_attr(node, "direction");
    bool both = way && way->s && strcmp(way->s, "bidirectional") == 0;
    bool reverse = way && way->s && strcmp(way->s, "reverse") == 0;
    int values[N_VALUES];
    int64_t x[SY_MAX_RANK];
    struct sizes s;
    if (!was_packed(p, &s))
        return sy_program_add_kernel(p);
    if (s.directions != (both ? 2 : 1))
        return sy_unsupported(node, "weights of another number of directions");
    memset(values, 0xff, sizeof values);
    sy_program_dims(p, node->inputs[0], x);
    SY_TRY(collect_values(p, &s, x, values));
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_recurrence, values, N_VALUES, &step));
    const int64_t numbers[] = {s.gates, x[0], x[1], s.hidden, s.directions, reverse, s.columns};
    return sy_step_set_numbers(step, numbers, (int)SY_ARRAY_LEN(numbers));
}

const struct sy_host_op sy_host_ops_recurrent[] = {{.build = build_recurrent,
                                                    .layout = layout_recurrent,
                                                    .prepare = prepare_recurrent,
                                                    SY_OPS(SY_OP_LSTM, SY_OP_GRU)},
                                                   {0}};
