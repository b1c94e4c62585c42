/* FlexAttention (ai.onnx.preview): attention whose scores and probabilities pass through bodies that the model brings. */
#include <math.h>
#include <stdlib.h>

#include "loader/expand/expand.h"
#include "runtime/base/status.h"

enum { QUERY, KEY, VALUE, OPERANDS };

struct flex {
    int64_t heads, groups, size;
    enum sy_dtype dtype, as; /* of the operands; of scores and probabilities */
};

static int measure_flex(struct sy_expand *e, struct flex *f)
{
    int64_t width;
    for (int i = QUERY; i <= VALUE; i++) {
        const struct sy_tensor *t = sy_expand_tensor(e, i);
        if (!t || t->shape.rank != 4)
            return sy_expand_fail(e, SY_ECORRUPT, "operands of other than 4 dimensions");
    }
    const struct sy_tensor *q = sy_expand_tensor(e, QUERY), *k = sy_expand_tensor(e, KEY);
    SY_TRY(sy_infer_fixed(e->in, e->node, &q->shape, 1, &f->heads));
    SY_TRY(sy_infer_fixed(e->in, e->node, &k->shape, 1, &f->groups));
    SY_TRY(sy_infer_fixed(e->in, e->node, &q->shape, 3, &f->size));
    SY_TRY(sy_infer_fixed(e->in, e->node, &k->shape, 3, &width));
    f->dtype = q->dtype;
    f->as = f->dtype == SY_DTYPE_F64 ? SY_DTYPE_F64 : SY_DTYPE_F32;
    int64_t precision = sy_node_int(e->node, "softmax_precision", f->as);
    if (f->groups < 1 || f->heads % f->groups != 0 || f->size < 1 || width != f->size ||
        precision != (int64_t)f->as)
        return sy_expand_fail(e, SY_EUNSUPPORTED,
                              "%lld heads for %lld of keys, or a softmax in element type %lld",
                              (long long)f->heads, (long long)f->groups, (long long)precision);
    return SY_OK;
}

/* Input i in the type that is computed in, each head of it as often as heads of queries share it. */
static int operand(struct sy_expand *e, const struct flex *f, int i)
{
    const struct sy_tensor *t = sy_expand_tensor(e, i);
    int64_t size = 0, times[] = {1, 1, f->heads / f->groups, 1, 1}, flat[] = {0, f->heads, -1, 0};
    int x = sy_expand_input(e, i);
    if (e->status == SY_OK)
        e->status = sy_infer_fixed(e->in, e->node, &t->shape, 3, &size);
    if (e->status < 0)
        return -1;
    if (f->dtype != f->as)
        x = sy_expand_cast(e, x, f->as);
    if (i == QUERY || f->heads == f->groups)
        return x;
    flat[3] = size;
    int many = SY_EXPAND(e, EXPAND, sy_expand_unsqueeze(e, x, 2), sy_expand_ints(e, times, 5));
    return sy_expand_reshape(e, many, flat, 4);
}

/* x through the body of that name, if there is one; what it captures are the node's last inputs. */
static int modified(struct sy_expand *e, const char *name, int x)
{
    const struct sy_attr *attr = sy_node_attr(e->node, name);
    const struct sy_graph *body = attr && attr->kind == SY_ATTR_GRAPH ? attr->graph : NULL;
    int n_captured = e->node->n_inputs - OPERANDS, *given, y = -1;
    if (!attr || e->status < 0)
        return x;
    if (!body || body->n_inputs != 1 + n_captured || body->n_outputs != 1)
        return sy_expand_fail(e, SY_ECORRUPT, "a body of other than one tensor and one result"), -1;
    e->status = sy_graph_alloc((size_t)body->n_inputs, sizeof *given, &given);
    if (e->status < 0)
        return -1;
    given[0] = x;
    for (int i = 0; i < n_captured; i++)
        given[1 + i] = sy_expand_input(e, OPERANDS + i);
    sy_expand_body(e, body, given, NULL, &y);
    free(given);
    return y;
}

static int expand_flex(struct sy_expand *e)
{
    static const int64_t swapped[] = {0, 1, 3, 2};
    struct flex f;
    SY_TRY(measure_flex(e, &f));
    double scale = (double)sy_node_float(e->node, "scale", (float)(1 / sqrt((double)f.size)));
    int k = sy_expand_transpose(e, operand(e, &f, KEY), swapped, 4);
    int x = SY_EXPAND(e, MATMUL, operand(e, &f, QUERY), k);
    x = modified(e, "score_mod", SY_EXPAND(e, MUL, x, sy_expand_number(e, f.as, scale)));
    x = SY_EXPAND(e, SOFTMAX, x);
    sy_expand_set_int(e, "axis", -1);
    x = SY_EXPAND(e, MATMUL, modified(e, "prob_mod", x), operand(e, &f, VALUE));
    sy_expand_result(e, 0, f.dtype == f.as ? x : sy_expand_cast(e, x, f.dtype));
    return e->status;
}

const struct sy_expander_line sy_expanders_flex[] = {{SY_OP_FLEX_ATTENTION, expand_flex}, {0}};
