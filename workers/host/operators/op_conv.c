/* Conv: oneDNN's convolution with the bias, the residual (as sum) and the activation fused. */
#include "workers/host/operators/op_conv.h"

#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/operators/late_curve.h"
#include "workers/host/operators/op_blocked.h"
#include "workers/host/operators/op_depthwise.h"
#include "workers/host/operators/op_windows.h"
#include "workers/host/operators/op_winograd.h"
#include "workers/host/program/kept_weights.h"
#include "workers/host/rows/curve_rows.h"

static const int64_t reference_batches[] = {
    8, 1, 3}; /* the weights' layout is chosen for these batch sizes */
#define N_REFERENCE_BATCHES 3

/* ---- images of one column ---------------------------------------------------------------------------- */

/* Number of trailing spatial dimensions of size 1 under a window of 1. */
static int count_thin(const struct sy_conv_shape *c)
{
    int n = 0;
    for (int i = c->spatial - 1; i > 0; i--, n++)
        if (c->src[2 + i] != 1 || c->dst[2 + i] != 1 ||
            c->weights[c->weights_rank - c->spatial + i] != 1 || c->pad_left[i] != 0)
            break;
    return n;
}

/* Moves the last `by` of `n` to the front. */
static void rotate(dnnl_dim_t *dims, int n, int by)
{
    dnnl_dims_t old;
    memcpy(old, dims, (size_t)n * sizeof *dims);
    for (int i = 0; i < n; i++)
        dims[(i + by) % n] = old[i];
}

/* A signal that is written as an image of one column (TensorFlow's Conv1D) becomes one of one row: oneDNN's blocks lie along the last
 * dimension, and with 1 there a product of 508 rows became 508 of one (5.1 ms where 1.3 are possible). Its loops for
 * depthwise ones lie along the first (fuse.h, sy_fuse_depthwise_lines). */
static void turn_thin(struct sy_conv_shape *c)
{
    int by = count_thin(c);
    bool is_depthwise = c->groups > 1 && c->weights[1] == 1 && c->weights[2] == 1;
    if (by == 0 || is_depthwise || c->src[1 + c->spatial - by] == 1)
        return;
    c->turned = by;
    dnnl_dim_t *spatial[] = {&c->src[2],  &c->dst[2],   &c->weights[c->weights_rank - c->spatial],
                             c->strides,  c->dilations, c->pad_left,
                             c->pad_right};
    for (size_t i = 0; i < sizeof spatial / sizeof *spatial; i++)
        rotate(spatial[i], c->spatial, by);
}

/* Permutes dimensions from the node's order to the convolution's; `back`: the reverse. */
static int turn_md(const struct sy_node *node, const struct sy_conv_shape *c, bool back,
                   dnnl_memory_desc_t *md)
{
    int to[SY_MAX_RANK], plain = md->ndims - c->spatial;
    int by = back ? c->spatial - c->turned : c->turned;
    if (c->turned == 0)
        return SY_OK;
    for (int i = 0; i < md->ndims; i++)
        to[i] = i < plain ? i : plain + (i - plain + by) % c->spatial;
    const dnnl_memory_desc_t from = *md;
    SY_DNNL(dnnl_memory_desc_permute_axes(md, &from, to), node->name);
    return SY_OK;
}

/* The layout that the primitive prefers, in the node's order of dimensions. */
static int wanted_md(const struct sy_node *node, const struct sy_conv_shape *c,
                     dnnl_primitive_desc_t pd, dnnl_query_t what, dnnl_memory_desc_t *md)
{
    *md = *sy_dnnl_md(pd, what);
    return turn_md(node, c, true, md);
}

static int read_turned(const struct sy_graph *graph, const struct sy_node *node, int64_t batch,
                       struct sy_conv_shape *c)
{
    SY_TRY(sy_conv_shape_read(graph, node, batch, c));
    turn_thin(c);
    return SY_OK;
}

/* ---- primitives ---------------------------------------------------------------------------------------- */

int sy_conv_make_pd(const struct sy_node *node, const struct sy_conv_shape *c,
                    const dnnl_memory_desc_t *weights, dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t desc;
    dnnl_memory_desc_t src, w, bias, dst;
    dnnl_primitive_attr_t attr;
    int rank = c->spatial + 2;
    dnnl_memory_desc_init_by_tag(&src, rank, c->src, c->type, c->data);
    dnnl_memory_desc_init_by_tag(&dst, rank, c->dst, c->dst_type, c->data);
    dnnl_memory_desc_init_by_tag(&w, c->weights_rank, c->weights, c->type, dnnl_format_tag_any);
    if (weights) {
        w = *weights;
        SY_TRY(turn_md(node, c, false, &w));
    }
    dnnl_memory_desc_init_by_tag(&bias, 1, c->bias, dnnl_f32, dnnl_a);
    SY_TRY(sy_dnnl_check_sizes(node->name, &src, &w, &dst));
    SY_DNNL(dnnl_dilated_convolution_forward_desc_init(
                &desc, dnnl_forward_inference, dnnl_convolution_direct, &src, &w,
                sy_conv_has_bias(node) ? &bias : NULL, &dst, c->strides, c->dilations, c->pad_left,
                c->pad_right),
            node->name);
    SY_TRY(sy_dnnl_node_attr(node, c->dst_type, node->residual_input >= 0 ? 1 : 0, &attr));
    dnnl_status_t status = dnnl_primitive_desc_create(out, &desc, attr, sy_dnnl_engine(), NULL);
    dnnl_primitive_attr_destroy(attr);
    return sy_dnnl_check(status, "convolution", node->name);
}

/* Whether oneDNN has more than its reference loops for these weights at this batch size. */
static int is_fast_at(const struct sy_graph *graph, const struct sy_node *node, int64_t batch,
                      const dnnl_memory_desc_t *weights, bool *fast)
{
    struct sy_conv_shape c;
    dnnl_primitive_desc_t pd;
    SY_TRY(read_turned(graph, node, batch, &c));
    c.type = c.dst_type = weights->data_type;
    int status = sy_conv_make_pd(node, &c, weights, &pd);
    *fast = false;
    if (status == SY_EUNSUPPORTED && c.type != dnnl_f32)
        return SY_OK;
    SY_TRY(status);
    *fast = !sy_conv_is_reference(pd);
    dnnl_primitive_desc_destroy(pd);
    return SY_OK;
}

/* Candidate `i`: oneDNN's preference at one of the batch sizes, and the classic blocked layout. *out false: no more. */
static int candidate_layout(const struct sy_graph *graph, const struct sy_node *node,
                            dnnl_data_type_t type, int i, dnnl_memory_desc_t *md, bool *out)
{
    struct sy_conv_shape c;
    dnnl_primitive_desc_t pd;
    *out = true;
    SY_TRY(read_turned(graph, node, reference_batches[i % N_REFERENCE_BATCHES], &c));
    c.type = c.dst_type = type;
    if (i == N_REFERENCE_BATCHES && c.weights_rank == 4 && c.groups == 1) {
        SY_DNNL(dnnl_memory_desc_init_by_tag(md, 4, c.weights, type,
                                             type == dnnl_f32 ? dnnl_OIhw16i16o : dnnl_OIhw8i16o2i),
                node->name);
        return turn_md(node, &c, true, md);
    }
    *out = i < N_REFERENCE_BATCHES;
    SY_TRY(sy_conv_make_pd(node, &c, NULL, &pd));
    int status = wanted_md(node, &c, pd, dnnl_query_weights_md, md);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

/* The first candidate for which oneDNN has fast code at all reference batches. Its preference at 8 may be slow at 1: a 1x1 convolution with 192 outputs ran
 * 100 times slower. */
static int find_layout(const struct sy_graph *graph, const struct sy_node *node,
                       dnnl_data_type_t type, dnnl_memory_desc_t *md, bool *fast)
{
    bool more = true;
    *fast = false;
    for (int i = 0; more && !*fast; i++) {
        SY_TRY(candidate_layout(graph, node, type, i, md, &more));
        *fast = more;
        for (int k = 0; k < N_REFERENCE_BATCHES && *fast; k++)
            SY_TRY(is_fast_at(graph, node, reference_batches[k], md, fast));
    }
    return SY_OK;
}

/* bf16 only if there is fast code for it. Otherwise oneDNN's preference at the first batch size. */
static int layout_conv(const struct sy_graph *graph, const struct sy_node *node, int input,
                       dnnl_memory_desc_t *md)
{
    bool fast = false, more;
    struct sy_conv_shape c;
    struct sy_depthwise depthwise;
    if (input != 1)
        return SY_OK;
    if (sy_node_packs_narrow(graph, node)) {
        int status = find_layout(graph, node, dnnl_bf16, md, &fast);
        if (status < 0 && status != SY_EUNSUPPORTED)
            return status;
    }
    SY_TRY(sy_conv_shape_read(graph, node, reference_batches[0], &c));
    if (!fast && sy_depthwise_read(node, &c, &depthwise))
        return sy_depthwise_weights_md(node, &c, md);
    if (!fast && sy_windows_fit(node, &c))
        return sy_windows_weights_md(node, &c, md);
    if (!fast)
        SY_TRY(find_layout(graph, node, dnnl_f32, md, &fast));
    return fast ? SY_OK : candidate_layout(graph, node, dnnl_f32, 0, md, &more);
}

static int build_with(struct sy_program *p, const struct sy_conv_shape *c, dnnl_primitive_desc_t pd,
                      int weights)
{
    const struct sy_node *node = sy_program_node(p);
    dnnl_memory_desc_t src_md, dst_md;
    SY_TRY(wanted_md(node, c, pd, dnnl_query_src_md, &src_md));
    SY_TRY(wanted_md(node, c, pd, dnnl_query_dst_md, &dst_md));
    int src, dst, bias = -1;
    SY_TRY(sy_program_input_as(p, 0, &src_md, &src));
    if (sy_conv_has_bias(node))
        SY_TRY(sy_program_input_plain(p, 2, &bias));
    SY_TRY(sy_conv_place_output(p, &dst_md, &dst));
    SY_TRY(sy_program_add_weighted(p, pd, src, weights, bias, dst));
    return sy_activation_is_own(node, dst_md.data_type) ? sy_program_add_activation(p, dst) : SY_OK;
}

/* No fast code for the packed layout at this size: tries other layouts of the weights. */
static int choose_again(struct sy_program *p, const struct sy_node *node, struct sy_conv_shape *c,
                        dnnl_primitive_desc_t *pd, int *weights)
{
    dnnl_primitive_desc_t other;
    SY_TRY(sy_conv_make_pd(node, c, NULL, &other));
    if (sy_conv_is_reference(other)) {
        dnnl_primitive_desc_destroy(other);
        if (c->type == dnnl_f32)
            return SY_OK;
        c->type = c->dst_type = dnnl_f32;
        return choose_again(p, node, c, pd, weights);
    }
    dnnl_primitive_desc_destroy(*pd);
    *pd = other;
    dnnl_memory_desc_t md;
    int packed = *weights;
    SY_TRY(wanted_md(node, c, other, dnnl_query_weights_md, &md));
    return sy_program_weights_as(p, packed, 1, &md, sy_conv_rows(c), weights);
}

static bool has_sizes(const int64_t *sizes, int n)
{
    for (int i = 0; i < n; i++)
        if (sizes[i] < 1)
            return false;
    return true;
}

/* Weights that are computed, captured by a body, or belong to a node that is executed alone: each run reorders those that may differ. */
static int build_with_computed(struct sy_program *p)
{
    struct sy_conv_shape c;
    dnnl_primitive_desc_t pd;
    dnnl_memory_desc_t md;
    const struct sy_node *node = sy_program_node(p);
    int plain, seen, weights;
    SY_TRY(read_turned(p->graph, node, p->batch, &c));
    if (!has_sizes(c.src, c.spatial + 2) || !has_sizes(c.weights, c.weights_rank) ||
        !has_sizes(c.dst, c.spatial + 2) || !has_sizes(c.strides, c.spatial))
        return sy_program_add_kernel(p);
    SY_TRY(sy_program_input_plain(p, 1, &plain));
    sy_dnnl_plain_md(&md, c.weights_rank, c.weights); /* with the groups apart */
    SY_TRY(turn_md(node, &c, true, &md));
    SY_TRY(sy_program_new_alias(p, plain, node->inputs[1], &md, &seen));
    SY_TRY(sy_conv_make_pd(node, &c, NULL, &pd));
    int status = wanted_md(node, &c, pd, dnnl_query_weights_md, &md);
    if (status == SY_OK)
        status = sy_program_weights_as(p, seen, 1, &md, sy_conv_rows(&c), &weights);
    if (status == SY_OK)
        status = build_with(p, &c, pd, weights);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

/* With the node's activation fused, or as a following step. */
static int build_with_packed(struct sy_program *p, struct sy_conv_shape *c)
{
    struct sy_node node = *sy_program_node(p);
    struct sy_curve curve;
    dnnl_primitive_desc_t pd;
    int weights;
    bool is_late = c->dst_type == dnnl_f32 &&
                   sy_late_curve_is_gain(&node, sy_conv_elements(c->dst, c->spatial), &curve);
    if (is_late)
        node.activation = SY_ACT_NONE;
    SY_TRY(sy_program_param(p, 1, &weights));
    SY_TRY(sy_conv_make_pd(&node, c, &p->values[weights].md, &pd));
    int status = sy_conv_is_reference(pd) ? choose_again(p, &node, c, &pd, &weights) : SY_OK;
    if (status == SY_OK)
        status = build_with(p, c, pd, weights);
    if (status == SY_OK && is_late)
        status = sy_late_curve_add(p, p->native[node.outputs[0]], &curve);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static int build_conv(struct sy_program *p)
{
    struct sy_conv_shape c;
    const struct sy_node *node = sy_program_node(p);
    const struct sy_tensor *x = sy_program_input_tensor(p, 0);
    bool computed = !sy_program_is_param(p, 1);
    if (x->dtype != SY_DTYPE_F32 || (computed && x->shape.rank > 5))
        return sy_program_add_kernel(p);
    if (computed)
        return build_with_computed(p);
    SY_TRY(read_turned(p->graph, node, p->batch, &c));
    c.type = sy_program_multiplies_narrow(p, &p->layers[p->layer]) ? dnnl_bf16 : dnnl_f32;
    if (c.type == dnnl_bf16 && sy_program_wanted(p, 0) & SY_WANT_NARROW)
        c.dst_type = dnnl_bf16;
    bool built;
    SY_TRY(sy_winograd_build(p, &c, &built));
    if (!built)
        SY_TRY(sy_depthwise_build(p, &c, &built));
    if (!built && sy_windows_fit(node, &c))
        SY_TRY(sy_windows_build(p, &c, &built));
    if (built)
        return SY_OK;
    return build_with_packed(p, &c);
}

const struct sy_host_op sy_host_ops_conv[] = {
    {.build = build_conv, .layout = layout_conv, SY_OPS(SY_OP_CONV)}, {0}};
