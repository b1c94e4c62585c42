/* Elementwise operators: oneDNN's for one input, loops of ours for two and more (numpy broadcasting). */
#include <float.h>
#include <string.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/operators/part_rows.h"
#include "workers/host/program/program_internal.h"
#include "workers/host/rows/cast_rows.h"
#include "workers/host/rows/curve_rows.h"
#include "workers/host/rows/elementwise.h"

/* ---- one input ---------------------------------------------------------------------------------------- */

struct unary {
    enum sy_op op;
    dnnl_alg_kind_t kind;
    float alpha, beta; /* defaults of the attributes */
};

/* Without Log: oneDNN's is not exact at powers of two, where models round (position buckets). */
static const struct unary unaries[] = {
    {SY_OP_RELU, dnnl_eltwise_relu, 0, 0},
    {SY_OP_LEAKY_RELU, dnnl_eltwise_relu, 0.01f, 0},
    {SY_OP_SIGMOID, dnnl_eltwise_logistic, 0, 0},
    {SY_OP_TANH, dnnl_eltwise_tanh, 0, 0},
    {SY_OP_CLIP, dnnl_eltwise_clip, 0, 0},
    {SY_OP_ELU, dnnl_eltwise_elu, 1, 0},
    {SY_OP_EXP, dnnl_eltwise_exp, 0, 0},
    {SY_OP_SQRT, dnnl_eltwise_sqrt, 0, 0},
    {SY_OP_NEG, dnnl_eltwise_linear, -1, 0},
    {SY_OP_ABS, dnnl_eltwise_abs, 0, 0},
    {SY_OP_RECIPROCAL, dnnl_eltwise_pow, 1, -1},
    {SY_OP_GELU, dnnl_eltwise_gelu_erf, 0, 0},
    {SY_OP_SWISH, dnnl_eltwise_swish, 1, 0},
    {SY_OP_HARD_SWISH, dnnl_eltwise_hardswish, 1.0f / 6, 0.5f},
};

static void read_alpha_beta(const struct sy_node *node, const struct unary *u, float *alpha,
                            float *beta)
{
    *alpha = u->alpha;
    *beta = u->beta;
    if (u->op == SY_OP_LEAKY_RELU || u->op == SY_OP_ELU || u->op == SY_OP_SWISH)
        *alpha = sy_node_float(node, "alpha", u->alpha);
    if (u->op == SY_OP_CLIP) {
        *alpha = sy_node_float(node, "min", -FLT_MAX);
        *beta = sy_node_float(node, "max", FLT_MAX);
    }
}

static bool has_narrow_unary(enum sy_op op)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(unaries); i++)
        if (unaries[i].op == op)
            return true;
    return false;
}

/* Laid out as the input; over it if nobody else reads it, and it is no output: those are written right there (P8). */
static int make_unary_output(struct sy_program *p, int src, int *dst)
{
    int tensor = sy_program_node(p)->outputs[0];
    dnnl_memory_desc_t md = p->values[src].md;
    if (sy_program_is_last_use(p, 0, src) && !sy_graph_is_output(p->graph, tensor))
        SY_TRY(sy_program_new_alias(p, src, tensor, &md, dst));
    else
        SY_TRY(sy_program_new_laid_out(p, tensor, &md, dst));
    sy_program_set_output(p, 0, *dst);
    return SY_OK;
}

/* For values stored in bf16. */
static int add_narrow_unary(struct sy_program *p, int src)
{
    const struct sy_node *node = sy_program_node(p);
    const struct unary *u = unaries;
    dnnl_eltwise_desc_t desc;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_attr_t attr;
    float alpha, beta;
    int dst;
    while (u->op != node->op)
        u++;
    const struct sy_attr *approximate = sy_node_attr(node, "approximate");
    read_alpha_beta(node, u, &alpha, &beta);
    dnnl_memory_desc_t md = p->values[src].md;
    bool tanh_form = approximate && approximate->s && strcmp(approximate->s, "tanh") == 0;
    SY_DNNL(dnnl_eltwise_forward_desc_init(&desc, dnnl_forward_inference,
                                           tanh_form ? dnnl_eltwise_gelu_tanh : u->kind, &md, alpha,
                                           beta),
            node->name);
    SY_DNNL(dnnl_primitive_attr_create(&attr), node->name);
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    dnnl_status_t status = dnnl_primitive_desc_create(&pd, &desc, attr, sy_dnnl_engine(), NULL);
    dnnl_primitive_attr_destroy(attr);
    SY_DNNL(status, node->name);
    SY_TRY(make_unary_output(p, src, &dst));
    const int args[][2] = {{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}};
    return sy_program_add_primitive(p, pd, args, 2);
}

static int run_curve(struct sy_program *p, struct sy_step *step)
{
    const struct sy_curve c = {.op = (enum sy_op)step->numbers[0],
                               .a = step->floats[0],
                               .b = step->floats[1],
                               .is_tanh_gelu = step->numbers[1] != 0};
    sy_curve_rows(&c, step->numbers[2], sy_program_pointer(p, step->args[0].value),
                  sy_program_pointer(p, step->args[1].value));
    return SY_OK;
}

static int64_t count(const struct sy_value *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++)
        n *= v->dims[i];
    return n;
}

/* Over the bytes in storage order: padding of a layout must stay zero (P7). */
static int add_curve(struct sy_program *p, const struct sy_curve *c, int src)
{
    int dst;
    float zero = 0;
    sy_curve_rows(c, 1, &zero, &zero);
    if (zero != 0 && p->values[src].bytes != (uint64_t)count(&p->values[src]) * sizeof(float))
        SY_TRY(sy_program_input_plain(p, 0, &src));
    SY_TRY(make_unary_output(p, src, &dst));
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_curve, (int[]){src, dst}, 2, &step));
    SY_TRY(sy_step_set_floats(step, (float[]){c->a, c->b}, 2));
    int64_t floats = (int64_t)(p->values[dst].bytes / sizeof(float));
    return sy_step_set_numbers(step, (int64_t[]){c->op, c->is_tanh_gelu, floats}, 3);
}

static int build_unary(struct sy_program *p)
{
    struct sy_curve c;
    int src;
    bool built;
    sy_curve_read(sy_program_node(p), &c);
    if (sy_program_input_tensor(p, 0)->dtype != SY_DTYPE_F32 || !sy_curve_rows_has(&c))
        return sy_program_add_kernel(p);
    SY_TRY(sy_part_curve_build(p, &c, &built));
    if (built)
        return SY_OK;
    SY_TRY(sy_program_input_native(p, 0, &src));
    if (sy_value_is_narrow(&p->values[src])) {
        if (has_narrow_unary(c.op))
            return add_narrow_unary(p, src);
        SY_TRY(sy_program_input_plain(p, 0, &src));
    }
    return add_curve(p, &c, src);
}

/* ---- two inputs and more -------------------------------------------------------------------------------- */

static int run_flat(struct sy_program *p, struct sy_step *step)
{
    sy_elementwise_flat(
        (enum sy_op)step->numbers[0], step->numbers[1], sy_program_pointer(p, step->args[0].value),
        sy_program_pointer(p, step->args[1].value), sy_program_pointer(p, step->args[2].value));
    return SY_OK;
}

static int run_flat_narrow(struct sy_program *p, struct sy_step *step)
{
    sy_elementwise_flat_narrow(
        (enum sy_op)step->numbers[0], step->numbers[1], sy_program_pointer(p, step->args[0].value),
        sy_program_pointer(p, step->args[1].value), sy_program_pointer(p, step->args[2].value));
    return SY_OK;
}

static int run_broadcast(struct sy_program *p, struct sy_step *step)
{
    const void *inputs[3];
    const struct sy_broadcast *b = (const struct sy_broadcast *)step->numbers;
    for (int i = 0; i < b->n_inputs; i++)
        inputs[i] = sy_program_pointer(p, step->args[i].value);
    return sy_elementwise_broadcast(b, inputs,
                                    sy_program_pointer(p, step->args[b->n_inputs].value));
}

/* Both sides have the same layout: the bytes are processed in storage order, including padding (it stays zero under + - *). */
static bool can_run_flat(const struct sy_program *p, enum sy_op op, int a, int b)
{
    const struct sy_value *x = &p->values[a], *y = &p->values[b];
    return x->dtype == SY_DTYPE_F32 && y->dtype == SY_DTYPE_F32 && x->bytes == y->bytes &&
           x->rank == y->rank && dnnl_memory_desc_equal(&x->md, &y->md) &&
           (op == SY_OP_ADD || op == SY_OP_SUB || op == SY_OP_MUL || op == SY_OP_MAX ||
            op == SY_OP_MIN);
}

static int build_flat(struct sy_program *p, enum sy_op op, int a, int b)
{
    int out;
    dnnl_memory_desc_t md = p->values[a].md;
    SY_TRY(sy_program_new_laid_out(p, sy_program_node(p)->outputs[0], &md, &out));
    sy_program_set_output(p, 0, out);
    size_t element = sy_value_element_bytes(&p->values[a]);
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, element == sizeof(float) ? run_flat : run_flat_narrow,
                                 (int[]){a, b, out}, 3, &step));
    return sy_step_set_numbers(step, (int64_t[]){op, (int64_t)(p->values[out].bytes / element)}, 2);
}

/* Numpy's rule: strides of an input seen with the output's rank, 0 where it is repeated. */
static int broadcast_strides(const struct sy_value *in, const struct sy_value *out,
                             int64_t *strides)
{
    int64_t stride = 1;
    for (int i = out->rank - 1; i >= 0; i--) {
        int k = i - (out->rank - in->rank);
        int64_t extent = k >= 0 ? in->dims[k] : 1;
        if (extent != 1 && extent != out->dims[i])
            return SY_EARG;
        strides[i] = extent == 1 ? 0 : stride;
        stride *= extent;
    }
    return SY_OK;
}

/* Inputs and output have one element type, except Where's condition and the results of comparisons, which are bool. */
static bool types_agree(const struct sy_program *p, enum sy_op op, const int *inputs, int n,
                        int out)
{
    enum sy_dtype dtype = p->values[inputs[n - 1]].dtype;
    for (int i = 0; i < n; i++) {
        bool is_choice = op == SY_OP_WHERE && i == 0;
        if (p->values[inputs[i]].dtype != (is_choice ? SY_DTYPE_BOOL : dtype))
            return false;
    }
    return p->values[out].dtype == (sy_elementwise_compares(op) ? SY_DTYPE_BOOL : dtype);
}

static int add_loop(struct sy_program *p, const struct sy_broadcast *b, const int *inputs, int out)
{
    int n = (int)b->n_inputs;
    struct sy_step *step = sy_program_add_step(p, run_broadcast, n + 1);
    SY_TRY_ALLOC(step, "no memory for a step");
    for (int i = 0; i < n; i++)
        sy_step_set(p, step, i, 0, inputs[i]);
    sy_step_set(p, step, n, 0, out);
    _Static_assert(sizeof *b % sizeof(int64_t) == 0, "stored as numbers");
    return sy_step_set_numbers(step, (const int64_t *)b, (int)(sizeof *b / sizeof(int64_t)));
}

static int add_broadcast(struct sy_program *p, enum sy_op op, const int *inputs, int n, int out)
{
    struct sy_broadcast b = {.op = op,
                             .n_inputs = n,
                             .rank = p->values[out].rank,
                             .dtype = p->values[inputs[n - 1]].dtype};
    memcpy(b.dims, p->values[out].dims, sizeof b.dims);
    for (int i = 0; i < n; i++)
        if (broadcast_strides(&p->values[inputs[i]], &p->values[out], b.strides[i]) < 0)
            return sy_unsupported(sy_program_node(p), "shapes that cannot be broadcast");
    if (!types_agree(p, op, inputs, n, out))
        return sy_unsupported(sy_program_node(p), "inputs of different element types");
    if (!sy_elementwise_supports(&b))
        return sy_unsupported(sy_program_node(p), "this element type");
    return add_loop(p, &b, inputs, out);
}

/* Whether the loops support the inputs' types. */
static bool has_loop(const struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    enum sy_dtype dtype = sy_program_input_tensor(p, 0)->dtype;
    for (int i = 1; i < node->n_inputs; i++)
        if (sy_program_input_tensor(p, i)->dtype != dtype)
            return false;
    return dtype == SY_DTYPE_F32 || dtype == SY_DTYPE_F64 || dtype == SY_DTYPE_I32 ||
           dtype == SY_DTYPE_I64 || (node->op == SY_OP_EQUAL && dtype == SY_DTYPE_BOOL);
}

/* Channels last, as oneDNN's convolutions prefer: *order lists the dimensions in storage order, outermost first. */
static bool is_channels_last(const struct sy_value *v, int *order)
{
    static const dnnl_format_tag_t tags[] = {[3] = dnnl_acb, [4] = dnnl_acdb, [5] = dnnl_acdeb};
    dnnl_memory_desc_t md;
    dnnl_dims_t dims = {0};
    memcpy(dims, v->dims, sizeof v->dims);
    if (v->rank < 3 || v->rank > 5 ||
        dnnl_memory_desc_init_by_tag(&md, v->rank, dims, dnnl_f32, tags[v->rank]) != dnnl_success ||
        !dnnl_memory_desc_equal(&md, &v->md))
        return false;
    order[0] = 0;
    for (int i = 2; i < v->rank; i++)
        order[i - 1] = i;
    order[v->rank - 1] = 1;
    return true;
}

/* The pair of a value that lies with the channels last and has the result's shape, and of a smaller one that is read along it. */
struct along {
    int which; /* the index of the larger input */
    int order[SY_MAX_RANK];
    int64_t strides[SY_MAX_RANK]; /* of the smaller one, row-major, by the result's dimensions */
};

/* Whether nothing large is reordered then, and rows of channels run vectorised. */
static bool can_run_along(const struct sy_program *p, int a, int b, struct along *along)
{
    const struct sy_value *x = &p->values[a], *y = &p->values[b];
    const struct sy_shape *out = &p->graph->tensors[sy_program_node(p)->outputs[0]].shape;
    if (x->dtype != SY_DTYPE_F32 || y->dtype != SY_DTYPE_F32 || sy_value_is_narrow(x) ||
        sy_value_is_narrow(y) || x->rank != out->rank || y->rank > x->rank ||
        sy_program_is_plain(x) || !is_channels_last(x, along->order) ||
        broadcast_strides(y, x, along->strides) < 0)
        return false;
    for (int i = 0; i < x->rank; i++)
        if (x->dims[i] != sy_dim_at(out->dims[i], p->batch))
            return false;
    return count(y) < count(x) && along->strides[1] <= 1;
}

static int build_along(struct sy_program *p, enum sy_op op, const int *inputs,
                       const struct along *along)
{
    int out, which = along->which, tensor = sy_program_node(p)->outputs[0];
    const struct sy_value *x = &p->values[inputs[which]];
    dnnl_memory_desc_t md = x->md;
    struct sy_broadcast b = {.op = op, .n_inputs = 2, .rank = x->rank, .dtype = SY_DTYPE_F32};
    int64_t stride = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        b.dims[i] = x->dims[along->order[i]];
        b.strides[which][i] = stride;
        b.strides[1 - which][i] = along->strides[along->order[i]];
        stride *= b.dims[i];
    }
    SY_TRY(sy_program_new_laid_out(p, tensor, &md, &out));
    sy_program_set_output(p, 0, out);
    return add_loop(p, &b, inputs, out);
}

/* Input `which` in its own layout, the other row-major; *built false: not possible. */
static int try_along(struct sy_program *p, enum sy_op op, int which, bool *built)
{
    int inputs[2];
    struct along along = {.which = which};
    SY_TRY(sy_program_input_native(p, which, &inputs[which]));
    SY_TRY(sy_program_input_native(p, 1 - which, &inputs[1 - which]));
    *built = can_run_along(p, inputs[which], inputs[1 - which], &along);
    if (!*built)
        return SY_OK;
    SY_TRY(sy_program_input_plain(p, 1 - which, &inputs[1 - which]));
    return build_along(p, op, inputs, &along);
}

static int build_pair(struct sy_program *p, enum sy_op op)
{
    int inputs[2], out;
    bool built = false;
    SY_TRY(sy_part_pair_build(p, op, &built));
    if (built)
        return SY_OK;
    SY_TRY(sy_program_input_native(p, 0, &inputs[0]));
    SY_TRY(sy_program_input_native(p, 1, &inputs[1]));
    if (can_run_flat(p, op, inputs[0], inputs[1]))
        return build_flat(p, op, inputs[0], inputs[1]);
    for (int which = 0; which < 2 && !built && !sy_elementwise_compares(op); which++)
        SY_TRY(try_along(p, op, which, &built));
    if (built)
        return SY_OK;
    SY_TRY(sy_program_input_plain(p, 0, &inputs[0]));
    SY_TRY(sy_program_input_plain(p, 1, &inputs[1]));
    SY_TRY(sy_program_output_plain(p, 0, &out));
    return add_broadcast(p, op, inputs, 2, out);
}

static int build_binary(struct sy_program *p)
{
    if (!has_loop(p))
        return sy_program_add_kernel(p);
    return build_pair(p, sy_program_node(p)->op);
}

/* Loops for floats only. */
static int build_prelu(struct sy_program *p)
{
    return sy_program_input_tensor(p, 0)->dtype == SY_DTYPE_F32 ? build_binary(p)
                                                                : sy_program_add_kernel(p);
}

/* All inputs, folded from the left into a fresh *out. */
static int add_fold(struct sy_program *p, enum sy_op op, int *out)
{
    const struct sy_node *node = sy_program_node(p);
    int inputs[2];
    SY_TRY(sy_program_input_plain(p, 0, &inputs[0]));
    SY_TRY(sy_program_output_plain(p, 0, out));
    if (node->n_inputs == 1)
        return add_broadcast(p, SY_OP_IDENTITY, inputs, 1, *out);
    for (int i = 1; i < node->n_inputs; i++) {
        SY_TRY(sy_program_input_plain(p, i, &inputs[1]));
        SY_TRY(add_broadcast(p, op, inputs, 2, *out));
        inputs[0] = *out; /* elementwise: may be read and written */
    }
    return SY_OK;
}

/* Sum, Min and Max of any number. */
static int build_variadic(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    enum sy_op op = node->op == SY_OP_SUM ? SY_OP_ADD : node->op;
    int out;
    if (!has_loop(p))
        return sy_program_add_kernel(p);
    return node->n_inputs == 2 ? build_pair(p, op) : add_fold(p, op, &out);
}

static int run_divide(struct sy_program *p, struct sy_step *step)
{
    float *x = sy_program_pointer(p, step->args[0].value);
    sy_elementwise_divide(step->numbers[0], step->floats[0], x);
    return SY_OK;
}

/* The sum, divided where it lies. */
static int build_mean(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    int out;
    for (int i = 0; i < node->n_inputs; i++)
        if (sy_program_input_tensor(p, i)->dtype != SY_DTYPE_F32)
            return sy_program_add_kernel(p);
    SY_TRY(add_fold(p, SY_OP_ADD, &out));
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_divide, (int[]){out}, 1, &step));
    SY_TRY(sy_step_set_floats(step, (float[]){(float)node->n_inputs}, 1));
    return sy_step_set_numbers(step, (int64_t[]){count(&p->values[out])}, 1);
}

static int build_where(struct sy_program *p)
{
    int inputs[3], out;
    for (int i = 0; i < 3; i++)
        SY_TRY(sy_program_input_plain(p, i, &inputs[i]));
    SY_TRY(sy_program_output_plain(p, 0, &out));
    return add_broadcast(p, SY_OP_WHERE, inputs, 3, out);
}

/* ---- other types ------------------------------------------------------------------------------------------ */

static int run_cast(struct sy_program *p, struct sy_step *step)
{
    return sy_elementwise_cast((enum sy_dtype)step->numbers[0], (enum sy_dtype)step->numbers[1],
                               step->numbers[2], sy_program_pointer(p, step->args[0].value),
                               sy_program_pointer(p, step->args[1].value));
}

static int build_cast(struct sy_program *p)
{
    int src, dst;
    const struct sy_node *node = sy_program_node(p);
    enum sy_dtype from = sy_program_input_tensor(p, 0)->dtype,
                  to = p->graph->tensors[node->outputs[0]].dtype;
    if (sy_elementwise_cast(from, to, 0, NULL, NULL) < 0)
        return sy_program_add_kernel(p);
    SY_TRY(sy_program_input_plain(p, 0, &src));
    SY_TRY(sy_program_output_plain(p, 0, &dst));
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_cast, (int[]){src, dst}, 2, &step));
    return sy_step_set_numbers(step, (int64_t[]){from, to, count(&p->values[src])}, 3);
}

int sy_program_add_expand(struct sy_program *p, int from, int to)
{
    return add_broadcast(p, SY_OP_IDENTITY, &from, 1, to);
}

static int build_expand(struct sy_program *p)
{
    int src, dst;
    SY_TRY(sy_program_input_plain(p, 0, &src));
    SY_TRY(sy_program_output_plain(p, 0, &dst));
    return sy_program_add_expand(p, src, dst);
}

const struct sy_host_op sy_host_ops_eltwise[] = {
    {.build = build_unary,
     SY_OPS(SY_OP_RELU, SY_OP_LEAKY_RELU, SY_OP_SIGMOID, SY_OP_TANH, SY_OP_CLIP, SY_OP_ELU,
            SY_OP_EXP, SY_OP_LOG, SY_OP_SQRT, SY_OP_NEG, SY_OP_ABS, SY_OP_RECIPROCAL, SY_OP_GELU,
            SY_OP_ERF, SY_OP_HARD_SIGMOID, SY_OP_FLOOR, SY_OP_CEIL, SY_OP_ROUND,
            SY_OP_THRESHOLDED_RELU, SY_OP_HARD_SWISH, SY_OP_SWISH, SY_OP_SHRINK, SY_OP_SOFTSIGN,
            SY_OP_SIGN, SY_OP_TAN, SY_OP_COS, SY_OP_SIN, SY_OP_ATAN, SY_OP_MISH, SY_OP_SOFTPLUS,
            SY_OP_CELU, SY_OP_SELU)},
    {.build = build_binary,
     SY_OPS(SY_OP_ADD, SY_OP_SUB, SY_OP_MUL, SY_OP_DIV, SY_OP_POW, SY_OP_EQUAL, SY_OP_LESS,
            SY_OP_LESS_OR_EQUAL, SY_OP_GREATER, SY_OP_GREATER_OR_EQUAL)},
    {.build = build_prelu, SY_OPS(SY_OP_PRELU)},
    {.build = build_variadic, SY_OPS(SY_OP_MIN, SY_OP_MAX, SY_OP_SUM)},
    {.build = build_mean, SY_OPS(SY_OP_MEAN)},
    {.build = build_where, SY_OPS(SY_OP_WHERE)},
    {.build = build_cast, SY_OPS(SY_OP_CAST)},
    {.build = build_expand, SY_OPS(SY_OP_EXPAND)},
    {0}};
