/* LSTM whose weights are whole numbers times steps (attributes `w_steps`, `r_steps`: expand_quantized.c), for engines that compute it in 8 bits:
 * switchyard.QuantizedLSTM, inputs and shapes as LSTM's, weights of s8. Number n of a column stands for (n - zero) * step: attributes
 * `w_zeros`, `r_zeros` beside the steps, one for each column of each direction. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "loader/fuse/fuse.h"
#include "loader/fuse/fuse_int8.h"
#include "runtime/base/status.h"

/* Sigmoid, Tanh, Tanh for each direction, or nothing said. */
static bool has_usual_curves(const struct sy_node *node)
{
    const char *const usual = "Sigmoid,Tanh,Tanh";
    const struct sy_attr *names = sy_node_attr(node, "activations");
    size_t n = strlen(usual);
    if (!names || names->kind != SY_ATTR_STRING || !names->s || !*names->s)
        return true;
    const char *text = names->s;
    if (strncasecmp(text, usual, n) != 0)
        return false;
    return text[n] == 0 || (text[n] == ',' && strcasecmp(text + n + 1, usual) == 0);
}

/* Without lengths, peepholes, clip, coupled gates. */
static bool is_usual(const struct sy_node *node)
{
    return sy_node_input(node, 4) < 0 && sy_node_input(node, 7) < 0 && has_usual_curves(node) &&
           !sy_node_attr(node, "clip") && sy_node_int(node, "input_forget", 0) == 0 &&
           sy_node_int(node, "layout", 0) == 0;
}

struct column {
    const float *from;
    int64_t depth;
    float step;
};

/* Integers within a range of 256 values, as s8 and their zero point *zero. */
static bool take_column(const struct column *c, int8_t *to, int64_t *zero)
{
    float low = 0, high = 0;
    if (!(fabsf(c->step) > 0) || !isfinite(c->step))
        return false;
    for (int64_t k = 0; k < c->depth; k++) {
        float value = c->from[k] / c->step, whole = rintf(value);
        if (!(fabsf(value - whole) < 1e-2f) || fabsf(whole) > 255)
            return false;
        low = fminf(low, whole);
        high = fmaxf(high, whole);
    }
    if (high - low > 255)
        return false;
    *zero = low < -128 ? -128 - (int64_t)low : high > 127 ? 127 - (int64_t)high : 0;
    for (int64_t k = 0; k < c->depth; k++)
        to[k] = (int8_t)((int64_t)rintf(c->from[k] / c->step) + *zero);
    return true;
}

struct taken {
    int8_t *numbers;
    int64_t *zeros;
    int64_t n, columns;
};

static int take_weights(const struct sy_tensor *t, const struct sy_attr *steps, struct taken *out,
                        bool *fits)
{
    *fits = false;
    if (!t->data || t->dtype != SY_DTYPE_F32 || t->shape.rank != 3 || !steps ||
        steps->kind != SY_ATTR_FLOATS || steps->n < 1)
        return SY_OK;
    out->n = sy_shape_elements(&t->shape, 1);
    out->columns = t->shape.dims[0].fixed * t->shape.dims[1].fixed;
    int64_t depth = t->shape.dims[2].fixed;
    if (out->columns != steps->n || depth < 1 || depth > SY_INT8_DEEPEST)
        return SY_OK;
    SY_TRY(sy_graph_alloc((size_t)out->n, 1, &out->numbers));
    SY_TRY(sy_graph_alloc((size_t)out->columns, sizeof *out->zeros, &out->zeros));
    *fits = true;
    for (int64_t c = 0; c < out->columns && *fits; c++) {
        const struct column column = {(const float *)t->data + c * depth, depth, steps->floats[c]};
        *fits = take_column(&column, out->numbers + c * depth, &out->zeros[c]);
    }
    return SY_OK;
}

static int put_weights(struct sy_fuse *f, struct sy_node *node, int input, const char *zeros,
                       struct taken *taken)
{
    const struct sy_tensor *t = &f->graph->tensors[node->inputs[input]];
    const struct sy_shape shape = t->shape;
    int8_t *numbers = taken->numbers;
    int made;
    taken->numbers = NULL;
    SY_TRY(sy_graph_add_constant(f->graph, t->name, SY_DTYPE_I8, &shape, numbers, (size_t)taken->n,
                                 &made));
    node->inputs[input] = made;
    return sy_node_set_ints(node, zeros, (int)taken->columns, taken->zeros);
}

static int rewrite(struct sy_fuse *f, struct sy_node *node, struct taken taken[2])
{
    static const char *const steps[] = {"w_steps", "r_steps"}, *const zeros[] = {"w_zeros",
                                                                                 "r_zeros"};
    bool fits = true;
    for (int i = 0; i < 2 && fits; i++)
        SY_TRY(take_weights(&f->graph->tensors[node->inputs[1 + i]], sy_node_attr(node, steps[i]),
                            &taken[i], &fits));
    if (!fits)
        return SY_OK;
    for (int i = 0; i < 2; i++)
        SY_TRY(put_weights(f, node, 1 + i, zeros[i], &taken[i]));
    node->op = SY_OP_QUANTIZED_LSTM;
    return SY_OK;
}

int sy_fuse_int8_recurrences(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *node = &f->graph->nodes[n];
        struct taken taken[2] = {{0}, {0}};
        if (node->op != SY_OP_LSTM || node->n_inputs < 3 || !is_usual(node))
            continue;
        int status = rewrite(f, node, taken);
        for (int i = 0; i < 2; i++) {
            free(taken[i].numbers);
            free(taken[i].zeros);
        }
        SY_TRY(status);
    }
    return SY_OK;
}
