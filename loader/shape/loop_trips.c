/* How often a Loop runs whose condition is made of counters: integers that begin with numbers and become others by themselves. Turn after turn
 * of what the condition needs is computed here; all else of the body is passed over. How often at most: as if it went on wherever that is not known. */
#include "loader/shape/loop_trips.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MOST_TURNS = 4096, EXACT = 1 << 24 /* whole numbers up to here are floats too */ };

/* A tensor of one whole number or boolean, if it is known; tf2onnx compares counters as floats. */
struct number {
    bool known;
    int64_t value;
};

static struct number of_constant(const struct sy_tensor *t)
{
    bool taken =
        sy_dtype_is_integer(t->dtype) || t->dtype == SY_DTYPE_BOOL || t->dtype == SY_DTYPE_F32;
    if (!t->data || !taken || t->data_bytes != sy_dtype_bytes(t->dtype))
        return (struct number){false, 0};
    if (t->dtype == SY_DTYPE_F32) {
        float value;
        memcpy(&value, t->data, sizeof value);
        bool whole = value >= -EXACT && value <= EXACT && value == floorf(value);
        return (struct number){whole, whole ? (int64_t)value : 0};
    }
    if (t->dtype == SY_DTYPE_BOOL)
        return (struct number){true, *(const unsigned char *)t->data != 0};
    return (struct number){true, sy_load_integer(t->dtype, t->data)};
}

static bool compute_two(enum sy_op op, int64_t a, int64_t b, int64_t *out)
{
    switch (op) {
    case SY_OP_ADD:
        return !__builtin_add_overflow(a, b, out);
    case SY_OP_SUB:
        return !__builtin_sub_overflow(a, b, out);
    case SY_OP_MUL:
        return !__builtin_mul_overflow(a, b, out);
    case SY_OP_MIN:
        *out = SY_MIN(a, b);
        return true;
    case SY_OP_MAX:
        *out = SY_MAX(a, b);
        return true;
    case SY_OP_LESS:
        *out = a < b;
        return true;
    case SY_OP_LESS_OR_EQUAL:
        *out = a <= b;
        return true;
    case SY_OP_GREATER:
        *out = a > b;
        return true;
    case SY_OP_GREATER_OR_EQUAL:
        *out = a >= b;
        return true;
    case SY_OP_EQUAL:
        *out = a == b;
        return true;
    case SY_OP_AND:
        *out = a && b;
        return true;
    case SY_OP_OR:
        *out = a || b;
        return true;
    default:
        return false;
    }
}

static bool fits(enum sy_dtype dtype, int64_t value)
{
    return dtype == SY_DTYPE_I64 || dtype == SY_DTYPE_BOOL ||
           (dtype == SY_DTYPE_I32 && value >= INT32_MIN && value <= INT32_MAX) ||
           (dtype == SY_DTYPE_F32 && value >= -EXACT && value <= EXACT);
}

/* Its value cast to boolean. */
static int64_t as(enum sy_dtype dtype, int64_t value)
{
    return dtype == SY_DTYPE_BOOL ? value != 0 : value;
}

/* By one operand alone, whatever the other is. */
static bool is_decided(enum sy_op op, struct number a, struct number b, int64_t *out)
{
    *out = op == SY_OP_OR;
    return (op == SY_OP_AND || op == SY_OP_OR) &&
           ((a.known && !a.value == !*out) || (b.known && !b.value == !*out));
}

static struct number compute(const struct sy_graph *body, const struct sy_node *node,
                             const struct number *numbers)
{
    struct number a = {false, 0}, b = {true, 0}, out = {false, 0};
    if (node->n_outputs != 1 || node->n_inputs < 1 || node->inputs[0] < 0)
        return out;
    a = numbers[node->inputs[0]];
    if (node->n_inputs > 1)
        b = node->inputs[1] < 0 ? out : numbers[node->inputs[1]];
    out.known = node->n_inputs == 2 && is_decided(node->op, a, b, &out.value);
    if (out.known || !a.known || !b.known || node->n_inputs > 2)
        return out;
    switch (node->op) {
    case SY_OP_IDENTITY:
    case SY_OP_CAST:
    case SY_OP_RESHAPE:
    case SY_OP_SQUEEZE:
    case SY_OP_UNSQUEEZE:
        out = (struct number){true, as(body->tensors[node->outputs[0]].dtype, a.value)};
        break;
    case SY_OP_NOT:
        out = (struct number){true, !a.value};
        break;
    default:
        out.known = node->n_inputs == 2 && compute_two(node->op, a.value, b.value, &out.value);
    }
    out.known = out.known && fits(body->tensors[node->outputs[0]].dtype, out.value);
    return out;
}

/* Evaluates one iteration of the body. */
static struct number run_turn(const struct sy_graph *body, struct number *numbers)
{
    for (int n = 0; n < body->n_nodes; n++)
        for (int i = 0; i < body->nodes[n].n_outputs; i++)
            if (body->nodes[n].outputs[i] >= 0)
                numbers[body->nodes[n].outputs[i]] = compute(body, &body->nodes[n], numbers);
    return numbers[body->outputs[0]];
}

static int64_t count(const struct sy_graph *body, struct number *numbers, struct number *carried,
                     int n_carried, int64_t most, bool at_most)
{
    bool goes_on = true;
    int64_t turn = 0;
    for (; goes_on && (most < 0 || turn < most); turn++) {
        if (turn == (at_most ? SY_MOST_TURNS_WRITTEN + 1 : MOST_TURNS))
            return -1;
        numbers[body->inputs[0]] = (struct number){true, turn};
        numbers[body->inputs[1]] = (struct number){true, 1};
        for (int i = 0; i < n_carried; i++)
            numbers[body->inputs[2 + i]] = carried[i];
        struct number condition = run_turn(body, numbers);
        if (!condition.known && !at_most)
            return -1;
        goes_on = !condition.known || condition.value != 0;
        for (int i = 0; i < n_carried; i++)
            carried[i] = numbers[body->outputs[1 + i]];
    }
    return turn;
}

static int64_t find_trips(const struct sy_graph *graph, const struct sy_node *node,
                          const struct sy_graph *body, bool at_most)
{
    int n_carried = (int)sy_node_int(node, "formal", 0) - 2;
    struct number most = {true, -1}, starts = {true, 1}, *numbers;
    int64_t trips = -1;
    if (node->inputs[0] >= 0)
        most = of_constant(&graph->tensors[node->inputs[0]]);
    if (node->inputs[1] >= 0)
        starts = of_constant(&graph->tensors[node->inputs[1]]);
    if (at_most && !most.known)
        most = (struct number){true, -1};
    else if (!most.known || (!starts.known && !at_most))
        return -1;
    else if ((starts.known && !starts.value) || (node->inputs[0] >= 0 && most.value <= 0))
        return 0;
    numbers = calloc((size_t)body->n_tensors + (size_t)n_carried + 1, sizeof *numbers);
    if (!numbers)
        return -1;
    for (int t = 0; t < body->n_tensors; t++)
        numbers[t] = of_constant(&body->tensors[t]);
    struct number *carried = numbers + body->n_tensors;
    for (int i = 0; i < n_carried; i++)
        if (node->inputs[2 + i] >= 0)
            carried[i] = of_constant(&graph->tensors[node->inputs[2 + i]]);
    trips = count(body, numbers, carried, n_carried, most.value, at_most);
    free(numbers);
    return trips;
}

int64_t sy_loop_trips(const struct sy_graph *graph, const struct sy_node *node,
                      const struct sy_graph *body)
{
    return find_trips(graph, node, body, false);
}

int64_t sy_loop_most_trips(const struct sy_graph *graph, const struct sy_node *node,
                           const struct sy_graph *body)
{
    return find_trips(graph, node, body, true);
}
