/* Taking a node out, putting others in its place; what expanders build with. */
#include "loader/expand/expand.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand_learn.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MAX_EXPANDED = 20000 }; /* each moves the nodes behind it */

/* ---- the driver's side ------------------------------------------------------------------------ */

static const struct sy_expander_line *const families[] = {
    sy_expanders_microsoft, sy_expanders_attention, sy_expanders_attend,   sy_expanders_decoder,
    sy_expanders_resize,    sy_expanders_quantized, sy_expanders_sequence, sy_expanders_control,
    sy_expanders_learn,     sy_expanders_various,   sy_expanders_sizes,    sy_expanders_trees,
    sy_expanders_svm,       sy_expanders_training,  sy_expanders_deform,   sy_expanders_gradient};

static sy_expander *find(enum sy_op op)
{
    for (size_t f = 0; f < SY_ARRAY_LEN(families); f++)
        for (const struct sy_expander_line *line = families[f]; line->expand; line++)
            if (line->op == op)
                return line->expand;
    return NULL;
}

void sy_sequence_free(struct sy_sequence *s)
{
    if (s)
        free(s->tensors);
    free(s);
}

static int grow_array(void *array, size_t from, size_t to, size_t bytes)
{
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, to * bytes);
    if (!grown)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %zu tensors", to);
    memset((char *)grown + from * bytes, 0, (to - from) * bytes);
    memcpy(array, &grown, sizeof grown);
    return SY_OK;
}

int sy_expand_grow(struct sy_infer *in)
{
    int capacity = in->graph->n_tensors + in->graph->n_nodes;
    size_t from = (size_t)in->capacity, to = (size_t)SY_MAX(capacity, 2 * in->capacity);
    if (capacity <= in->capacity)
        return SY_OK;
    SY_TRY(grow_array(&in->values, from, to, sizeof *in->values));
    SY_TRY(grow_array(&in->fractions, from, to, sizeof *in->fractions));
    SY_TRY(grow_array(&in->sequences, from, to, sizeof *in->sequences));
    SY_TRY(grow_array(&in->uses, from, to, sizeof *in->uses));
    SY_TRY(grow_array(&in->at_run, from, to, sizeof *in->at_run));
    in->capacity = (int)to;
    return SY_OK;
}

static void count_uses(struct sy_infer *in, const struct sy_node *node, int by)
{
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0)
            in->uses[node->inputs[i]] += by;
}

/* Nodes from `first` on go behind node n. */
static int move_into_place(struct sy_graph *graph, int n, int first)
{
    size_t added = (size_t)(graph->n_nodes - first), between = (size_t)(first - n - 1);
    struct sy_node *keep;
    if (added == 0 || between == 0)
        return SY_OK;
    SY_TRY(sy_graph_alloc(added, sizeof *keep, &keep));
    memcpy(keep, &graph->nodes[first], added * sizeof *keep);
    memmove(&graph->nodes[n + 1 + (int)added], &graph->nodes[n + 1], between * sizeof *keep);
    memcpy(&graph->nodes[n + 1], keep, added * sizeof *keep);
    free(keep);
    return SY_OK;
}

/* Results that are read have a maker in the expansion, or are sequences. */
static int check_results(struct sy_expand *e)
{
    for (int i = 0; i < e->node->n_outputs; i++) {
        int out = e->node->outputs[i];
        bool made = !sy_expand_wanted(e, i) || (out < e->in->capacity && e->in->sequences[out]);
        for (int n = e->first; n < e->graph->n_nodes && !made; n++)
            for (int k = 0; k < e->graph->nodes[n].n_outputs; k++)
                made = made || e->graph->nodes[n].outputs[k] == out;
        if (!made)
            return sy_infer_fail(e->node, SY_EUNSUPPORTED, "output %d is used, which is not made",
                                 i);
    }
    return SY_OK;
}

int sy_expand_by(struct sy_infer *in, int n, sy_expander *expander)
{
    struct sy_graph *graph = in->graph;
    struct sy_node node = graph->nodes[n];
    struct sy_expand e = {.in = in, .graph = graph, .node = &node, .first = graph->n_nodes};
    if (++in->n_expanded > MAX_EXPANDED)
        return sy_infer_fail(&node, SY_EUNSUPPORTED, "more than %d operators are to be written out",
                             MAX_EXPANDED);
    graph->nodes[n] = (struct sy_node){.bias_input = -1, .residual_input = -1};
    int status = expander(&e);
    if (status == SY_OK)
        status = e.status;
    if (status == SY_OK)
        status = check_results(&e);
    if (status == SY_OK)
        status = sy_expand_grow(in);
    if (status == SY_OK) {
        count_uses(in, &node, -1);
        for (int i = e.first; i < graph->n_nodes; i++)
            count_uses(in, &graph->nodes[i], 1);
    }
    sy_node_finish(&node);
    SY_TRY(status);
    return move_into_place(graph, n, e.first);
}

static bool reads_sequence(const struct sy_infer *in, const struct sy_node *node)
{
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] >= 0 && in->sequences[node->inputs[i]])
            return true;
    return false;
}

int sy_expand_node(struct sy_infer *in, int n, bool *replaced)
{
    const struct sy_node *node = &in->graph->nodes[n];
    sy_expander *expander = find(node->op);
    *replaced = false;
    if (node->op == SY_OP_IDENTITY && !reads_sequence(in, node))
        return SY_OK;
    if (node->op == SY_OP_IF && !sy_expand_is_decided(in, node))
        return SY_OK;
    if ((node->op == SY_OP_REDUCE_MAX || node->op == SY_OP_REDUCE_MIN) &&
        !sy_expand_reduces_bool(in, node))
        return SY_OK;
    if (node->op == SY_OP_NON_ZERO && !sy_expand_is_constant(in, node))
        return SY_OK;
    if (node->op == SY_OP_DROPOUT && !sy_expand_drops(in, node))
        return SY_OK;
    if (node->op == SY_OP_SPLIT && !sy_expand_splits_sizes(in, node))
        return SY_OK;
    if ((node->op == SY_OP_QUANTIZE_LINEAR || node->op == SY_OP_DEQUANTIZE_LINEAR) &&
        sy_node_int(node, "block_size", 0) == 0)
        return SY_OK;
    if (node->op == SY_OP_RESIZE && sy_node_int(node, "antialias", 0) == 0)
        return SY_OK;
    if (!expander)
        return SY_OK;
    *replaced = true;
    return sy_expand_by(in, n, expander);
}

/* ---- the expanders' side ---------------------------------------------------------------------- */

int sy_expand_fail(struct sy_expand *e, int status, const char *format, ...)
{
    char text[256];
    va_list args;
    if (e->status < 0)
        return e->status;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    e->status = sy_infer_fail(e->node, status, "%s", text);
    return e->status;
}

int sy_expand_put_off(struct sy_expand *e, const char *format, ...)
{
    char text[256];
    va_list args;
    if (e->status < 0)
        return e->status;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    e->status = sy_infer_put_off(e->in, e->node, "%s", text);
    return e->status;
}

int sy_expand_input(const struct sy_expand *e, int i)
{
    return sy_node_input(e->node, i);
}

const struct sy_tensor *sy_expand_tensor(const struct sy_expand *e, int i)
{
    int tensor = sy_node_input(e->node, i);
    return tensor < 0 ? NULL : &e->graph->tensors[tensor];
}

enum sy_dtype sy_expand_dtype(const struct sy_expand *e, int i)
{
    const struct sy_tensor *t = sy_expand_tensor(e, i);
    return t ? t->dtype : SY_DTYPE_F32;
}

bool sy_expand_wanted(const struct sy_expand *e, int i)
{
    return i < e->node->n_outputs && e->node->outputs[i] >= 0 &&
           e->in->uses[e->node->outputs[i]] > 0;
}

static struct sy_node *last_node(struct sy_expand *e)
{
    return e->status < 0 || e->graph->n_nodes == e->first ? NULL
                                                          : &e->graph->nodes[e->graph->n_nodes - 1];
}

void sy_expand_op_many(struct sy_expand *e, enum sy_op op, const int *inputs, int n, int *out,
                       int n_out)
{
    for (int i = 0; i < n_out; i++) {
        out[i] = -1;
        if (e->status == SY_OK)
            e->status = sy_graph_add_tensor(e->graph, e->node->name, SY_DTYPE_NONE, NULL, &out[i]);
    }
    if (e->status == SY_OK)
        e->status = sy_graph_add_node(e->graph, op, SY_EXPAND_OPSET, e->node->name, n, inputs,
                                      n_out, out, NULL);
}

int sy_expand_op(struct sy_expand *e, enum sy_op op, const int *inputs, int n)
{
    int out;
    sy_expand_op_many(e, op, inputs, n, &out, 1);
    return out;
}

void sy_expand_set_int(struct sy_expand *e, const char *name, int64_t value)
{
    struct sy_node *node = last_node(e);
    if (node)
        e->status = sy_node_set_int(node, name, value);
}

void sy_expand_set_float(struct sy_expand *e, const char *name, float value)
{
    struct sy_node *node = last_node(e);
    if (node)
        e->status = sy_node_set_float(node, name, value);
}

void sy_expand_set_floats(struct sy_expand *e, const char *name, const float *values, int n)
{
    struct sy_node *node = last_node(e);
    if (node)
        e->status = sy_node_set_floats(node, name, n, values);
}

void sy_expand_set_text(struct sy_expand *e, const char *name, const char *value)
{
    struct sy_node *node = last_node(e);
    struct sy_attr *attr;
    if (!node)
        return;
    e->status = sy_node_attr_slot(node, name, &attr);
    if (e->status < 0)
        return;
    attr->kind = SY_ATTR_STRING;
    e->status = sy_graph_strdup(value, &attr->s);
}

void sy_expand_pass(struct sy_expand *e, const char *name)
{
    struct sy_node *node = last_node(e);
    const struct sy_attr *attr = sy_node_attr(e->node, name);
    if (!node || !attr)
        return;
    if (attr->kind == SY_ATTR_INT)
        sy_expand_set_int(e, name, attr->i);
    else if (attr->kind == SY_ATTR_FLOAT)
        sy_expand_set_float(e, name, attr->f);
    else if (attr->kind == SY_ATTR_STRING)
        sy_expand_set_text(e, name, attr->s);
    else if (attr->kind == SY_ATTR_INTS)
        e->status = sy_node_set_ints(node, name, attr->n, attr->ints);
    else
        sy_expand_fail(e, SY_ECORRUPT, "attribute '%.60s' is of another kind", name);
}

/* Takes a copy of `data`. */
static int add_shaped(struct sy_expand *e, enum sy_dtype dtype, const struct sy_shape *shape,
                      int64_t n, const void *data)
{
    size_t bytes = (size_t)n * sy_dtype_bytes(dtype);
    void *copy;
    int out = -1;
    if (e->status < 0)
        return -1;
    e->status = sy_graph_alloc(bytes, 1, &copy);
    if (e->status < 0)
        return -1;
    if (bytes > 0)
        memcpy(copy, data, bytes);
    e->status = sy_graph_add_constant(e->graph, e->node->name, dtype, shape, copy, bytes, &out);
    if (e->status < 0)
        return -1;
    e->graph->tensors[out].is_derived = true;
    return out;
}

static int add_constant(struct sy_expand *e, enum sy_dtype dtype, int rank, int64_t n,
                        const void *data)
{
    const struct sy_shape shape = {.rank = rank, .dims = {{n, 0}}};
    return add_shaped(e, dtype, &shape, n, data);
}

int sy_expand_float_array(struct sy_expand *e, const float *values, int rank, const int64_t *dims)
{
    struct sy_shape shape = {.rank = rank};
    int64_t n = 1;
    for (int i = 0; i < rank; i++) {
        shape.dims[i].fixed = dims[i];
        n *= dims[i];
    }
    return add_shaped(e, SY_DTYPE_F32, &shape, n, values);
}

int sy_expand_ints(struct sy_expand *e, const int64_t *values, int n)
{
    return add_constant(e, SY_DTYPE_I64, 1, n, values);
}

int sy_expand_int(struct sy_expand *e, int64_t value)
{
    return add_constant(e, SY_DTYPE_I64, 0, 1, &value);
}

int sy_expand_floats(struct sy_expand *e, const float *values, int n)
{
    return add_constant(e, SY_DTYPE_F32, 1, n, values);
}

int sy_expand_number(struct sy_expand *e, enum sy_dtype dtype, double value)
{
    float narrow = (float)value;
    if (dtype == SY_DTYPE_F64)
        return add_constant(e, dtype, 0, 1, &value);
    int number = add_constant(e, SY_DTYPE_F32, 0, 1, &narrow);
    return dtype == SY_DTYPE_F32 ? number : sy_expand_cast(e, number, dtype);
}

int sy_expand_reshape(struct sy_expand *e, int x, const int64_t *dims, int n)
{
    return SY_EXPAND(e, RESHAPE, x, sy_expand_ints(e, dims, n));
}

int sy_expand_transpose(struct sy_expand *e, int x, const int64_t *perm, int n)
{
    int out = SY_EXPAND(e, TRANSPOSE, x);
    struct sy_node *node = last_node(e);
    if (node)
        e->status = sy_node_set_ints(node, "perm", n, perm);
    return out;
}

int sy_expand_cast(struct sy_expand *e, int x, enum sy_dtype to)
{
    int out = SY_EXPAND(e, CAST, x);
    sy_expand_set_int(e, "to", to);
    return out;
}

int sy_expand_unsqueeze(struct sy_expand *e, int x, int64_t axis)
{
    return SY_EXPAND(e, UNSQUEEZE, x, sy_expand_ints(e, &axis, 1));
}

int sy_expand_join(struct sy_expand *e, int a, int b, int axis)
{
    int all = SY_EXPAND(e, CONCAT, a, b);
    sy_expand_set_int(e, "axis", axis);
    return all;
}

int sy_expand_heads_first(struct sy_expand *e, int x)
{
    static const int64_t perm[] = {0, 2, 1, 3};
    return sy_expand_transpose(e, x, perm, 4);
}

int sy_expand_size(struct sy_expand *e, struct sy_dim dim, int tensor, int axis)
{
    if (dim.per_batch == 0)
        return sy_expand_int(e, dim.fixed);
    return SY_EXPAND(e, GATHER, SY_EXPAND(e, SHAPE, tensor), sy_expand_int(e, axis));
}

int sy_expand_count(struct sy_expand *e, int end)
{
    return SY_EXPAND(e, RANGE, sy_expand_int(e, 0), end, sy_expand_int(e, 1));
}

int sy_expand_slice(struct sy_expand *e, int x, int axis, int64_t first, int64_t end)
{
    int64_t place = axis;
    int a = sy_expand_ints(e, &first, 1), b = sy_expand_ints(e, &end, 1);
    return SY_EXPAND(e, SLICE, x, a, b, sy_expand_ints(e, &place, 1));
}

/* A copy, which later passes take away. */
void sy_expand_result(struct sy_expand *e, int i, int tensor)
{
    if (e->status < 0 || i >= e->node->n_outputs || e->node->outputs[i] < 0)
        return;
    int out = e->node->outputs[i];
    e->status = sy_graph_add_node(e->graph, SY_OP_IDENTITY, SY_EXPAND_OPSET, e->node->name, 1,
                                  &tensor, 1, &out, NULL);
}
