/* ConvTranspose: by columns (op_columns.h), or oneDNN's deconvolution, from one to three spatial dimensions; what it does not take is a kernel
 * (kernel_window.c). */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/operators/op_columns.h"
#include "workers/host/program/kept_weights.h"
#include "workers/host/program/program_internal.h"

struct deconv {
    int rank, weights_rank;
    int64_t groups;
    dnnl_dims_t src, dst, weights, bias, strides, dilations, before, after;
    /* the model's weights [in, out / groups, window...] as oneDNN names their dimensions */
    dnnl_memory_desc_t seen;
};

/* oneDNN's order is [groups,] out, in, window. */
static void read_weights(struct deconv *d, const int64_t *dims)
{
    int64_t window = 1;
    dnnl_dims_t strides;
    int at = 0;
    for (int i = 2; i < d->rank; i++)
        window *= dims[i];
    if (d->groups > 1) {
        d->weights[at] = d->groups;
        strides[at++] = dims[0] / d->groups * dims[1] * window;
    }
    d->weights[at] = dims[1];
    strides[at++] = window;
    d->weights[at] = dims[0] / d->groups;
    strides[at++] = dims[1] * window;
    for (int i = 2; i < d->rank; i++) {
        window /= dims[i];
        d->weights[at] = dims[i];
        strides[at++] = window;
    }
    d->weights_rank = at;
    dnnl_memory_desc_init_by_strides(&d->seen, at, d->weights, dnnl_f32, strides);
}

/* False: oneDNN does not support it. */
static bool read_shape(const struct sy_graph *graph, const struct sy_node *node, int64_t batch,
                       struct deconv *d)
{
    const struct sy_tensor *x = &graph->tensors[node->inputs[0]],
                           *w = &graph->tensors[node->inputs[1]],
                           *y = &graph->tensors[node->outputs[0]];
    int64_t dims[SY_MAX_RANK];
    *d = (struct deconv){.rank = x->shape.rank, .groups = sy_node_int(node, "group", 1)};
    if (x->dtype != SY_DTYPE_F32 || w->dtype != SY_DTYPE_F32 || d->rank < 3 || d->rank > 5 ||
        w->shape.rank != d->rank || y->shape.rank != d->rank || node->residual_input >= 0)
        return false;
    bool good = true;
    for (int i = 0; i < d->rank; i++) {
        d->src[i] = sy_dim_at(x->shape.dims[i], batch);
        d->dst[i] = sy_dim_at(y->shape.dims[i], batch);
        dims[i] = sy_dim_at(w->shape.dims[i], batch);
        good = good && d->src[i] > 0 && d->dst[i] > 0 && dims[i] > 0;
    }
    if (!good || d->groups < 1 || dims[0] != d->src[1] || dims[0] % d->groups != 0 ||
        dims[1] * d->groups != d->dst[1])
        return false;
    for (int i = 0; i < d->rank - 2 && good; i++) {
        int64_t stride = sy_node_int_at(node, "strides", i, 1),
                dilation = sy_node_int_at(node, "dilations", i, 1);
        d->strides[i] = stride;
        d->dilations[i] = dilation - 1;
        d->before[i] = sy_node_int_at(node, "pads", i, 0);
        d->after[i] = (d->src[i + 2] - 1) * stride + (dims[i + 2] - 1) * dilation + 1 -
                      d->before[i] - d->dst[i + 2];
        good = stride > 0 && dilation > 0 && d->before[i] >= 0 && d->after[i] + stride >= 0;
    }
    d->bias[0] = d->dst[1];
    read_weights(d, dims);
    return good;
}

/* Fills *c; false: not computed by columns. */
static bool goes_by_columns(const struct deconv *d, struct sy_columns *c)
{
    int last = d->rank - 3; /* of the strides and what else begins at the first spatial dimension */
    *c = (struct sy_columns){.images = d->src[0],
                             .in = d->src[1],
                             .out = d->dst[1],
                             .size = {1, 1},
                             .out_size = {1, 1},
                             .kernel = {1, 1},
                             .strides = {1, 1}};
    for (int i = 0; i <= last && i < 2; i++) {
        if (d->dilations[i] != 0)
            return false;
        c->size[i] = d->src[2 + i];
        c->out_size[i] = d->dst[2 + i];
        c->kernel[i] = d->weights[d->weights_rank - 1 - last + i];
        c->strides[i] = d->strides[i];
        c->before[i] = d->before[i];
    }
    return d->groups == 1 && d->rank < 5 && sy_columns_fit(c);
}

/* Whether all layouts that oneDNN chose can be named (dnnl_compat.h: of 3.x some cannot, and nothing can be brought into them). */
static bool has_known_layouts(const_dnnl_primitive_desc_t pd)
{
    return dnnl_memory_desc_get_size(sy_dnnl_md(pd, dnnl_query_src_md)) > 0 &&
           dnnl_memory_desc_get_size(sy_dnnl_md(pd, dnnl_query_weights_md)) > 0 &&
           dnnl_memory_desc_get_size(sy_dnnl_md(pd, dnnl_query_dst_md)) > 0;
}

/* weights: NULL lets oneDNN choose. EUNSUPPORTED: oneDNN cannot compute it. */
static int make_pd(const struct sy_node *node, const struct deconv *d,
                   const dnnl_memory_desc_t *weights, dnnl_primitive_desc_t *out)
{
    dnnl_deconvolution_desc_t desc;
    dnnl_memory_desc_t src, w, bias, dst;
    dnnl_primitive_attr_t attr;
    dnnl_memory_desc_init_by_tag(&src, d->rank, d->src, dnnl_f32, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&dst, d->rank, d->dst, dnnl_f32, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&w, d->weights_rank, d->weights, dnnl_f32, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&bias, 1, d->bias, dnnl_f32, dnnl_a);
    SY_TRY(sy_dnnl_check_sizes(node->name, &src, &w, &dst));
    dnnl_status_t status = dnnl_dilated_deconvolution_forward_desc_init(
        &desc, dnnl_forward_inference, dnnl_deconvolution_direct, &src, weights ? weights : &w,
        sy_node_input(node, 2) >= 0 ? &bias : NULL, &dst, d->strides, d->dilations, d->before,
        d->after);
    if (status == dnnl_success) {
        SY_TRY(sy_dnnl_node_attr(node, dnnl_f32, 0, &attr));
        status = dnnl_primitive_desc_create(out, &desc, attr, sy_dnnl_engine(), NULL);
        dnnl_primitive_attr_destroy(attr);
    }
    if (status == dnnl_success && !has_known_layouts(*out)) {
        dnnl_primitive_desc_destroy(*out);
        status = dnnl_unimplemented;
    }
    /* Which of the two statuses rejects a window depends on oneDNN's version. */
    if (status == dnnl_invalid_arguments || status == dnnl_unimplemented)
        return sy_unsupported(node, "a window that oneDNN does not take");
    return sy_dnnl_check(status, "deconvolution", node->name);
}

/* One row for columns; else what oneDNN likes for one image; *md of no dimensions: it takes none, or weights are bf16, which are stored as they lie
 * (engine.c). */
static int choose_layout(const struct sy_graph *graph, const struct sy_node *node, struct deconv *d,
                         dnnl_memory_desc_t *md)
{
    dnnl_primitive_desc_t pd;
    *md = (dnnl_memory_desc_t){0};
    if (graph->precision == SY_PRECISION_BF16 || !read_shape(graph, node, 1, d))
        return SY_OK;
    struct sy_columns columns;
    if (goes_by_columns(d, &columns)) {
        sy_columns_md(&columns, md);
        return SY_OK;
    }
    int status = make_pd(node, d, NULL, &pd);
    if (status == SY_EUNSUPPORTED)
        return SY_OK;
    SY_TRY(status);
    *md = *sy_dnnl_md(pd, dnnl_query_weights_md);
    dnnl_primitive_desc_destroy(pd);
    return SY_OK;
}

static int layout_deconv(const struct sy_graph *graph, const struct sy_node *node, int input,
                         dnnl_memory_desc_t *md)
{
    struct deconv d;
    return input == 1 ? choose_layout(graph, node, &d, md) : SY_OK;
}

/* [in, out / groups, window] -> [groups, out / groups, in / groups, window] */
static int prepare_deconv(const struct sy_graph *graph, const struct sy_node *node, int input,
                          void *to)
{
    const struct sy_tensor *t = &graph->tensors[node->inputs[input]];
    struct deconv d;
    dnnl_memory_desc_t md = {0};
    if (input == 1)
        SY_TRY(choose_layout(graph, node, &d, &md));
    if (md.ndims == 0) {
        memcpy(to, t->data, t->data_bytes);
        return SY_OK;
    }
    struct sy_columns columns;
    if (md.ndims == 1 && goes_by_columns(&d, &columns))
        return sy_columns_prepare(node, &columns, t->data, to);
    const float *from = t->data;
    float *packed = to;
    int64_t in = d.src[1] / d.groups, out = d.dst[1] / d.groups, window = 1;
    for (int i = 2; i < d.rank; i++)
        window *= t->shape.dims[i].fixed;
    for (int64_t g = 0; g < d.groups; g++)
        for (int64_t o = 0; o < out; o++)
            for (int64_t i = 0; i < in; i++, packed += window)
                memcpy(packed, from + ((g * in + i) * out + o) * window,
                       (size_t)window * sizeof *packed);
    return SY_OK;
}

/* Number of multiplications per weight. */
static int64_t count_rows(const struct deconv *d)
{
    int64_t n = d->src[0];
    for (int i = 2; i < d->rank; i++)
        n *= d->src[i];
    return n;
}

/* Gets the weights in the layout `md`. */
static int take_weights(struct sy_program *p, const struct deconv *d, int given,
                        const dnnl_memory_desc_t *md, int *out)
{
    int tensor = sy_program_node(p)->inputs[1];
    const dnnl_memory_desc_t want = *md;
    if (given < 0) {
        int plain;
        SY_TRY(sy_program_input_plain(p, 1, &plain));
        SY_TRY(sy_program_new_alias(p, plain, tensor, &d->seen, &given));
    }
    return sy_program_weights_as(p, given, 1, &want, count_rows(d), out);
}

static int build_with(struct sy_program *p, const struct deconv *d, int given,
                      dnnl_primitive_desc_t pd)
{
    const struct sy_node *node = sy_program_node(p);
    dnnl_memory_desc_t src_md = *sy_dnnl_md(pd, dnnl_query_src_md),
                       dst_md = *sy_dnnl_md(pd, dnnl_query_dst_md);
    int src, dst, weights, bias = -1;
    SY_TRY(sy_program_input_as(p, 0, &src_md, &src));
    SY_TRY(take_weights(p, d, given, sy_dnnl_md(pd, dnnl_query_weights_md), &weights));
    if (sy_node_input(node, 2) >= 0)
        SY_TRY(sy_program_input_plain(p, 2, &bias));
    SY_TRY(sy_program_new_laid_out(p, node->outputs[0], &dst_md, &dst));
    return sy_program_add_weighted(p, pd, src, weights, bias, dst);
}

/* Packed by layout_deconv; bf16 keeps the model's layout. */
static bool is_packed(const struct sy_program *p)
{
    const struct sy_param *weights = sy_layer_param(&p->layers[p->layer], 1);
    return weights && weights->layout_bytes > 0 && p->graph->precision != SY_PRECISION_BF16;
}

/* *built false: unsuitable, or packed in another layout by an older version. */
static int build_columns(struct sy_program *p, const struct deconv *d, bool *built)
{
    struct sy_columns columns;
    dnnl_memory_desc_t md;
    int stored;
    *built = goes_by_columns(d, &columns);
    if (!*built)
        return SY_OK;
    sy_columns_md(&columns, &md);
    SY_TRY(sy_program_stored_param(p, 1, &stored));
    *built = dnnl_memory_desc_equal(&md, &p->values[stored].md);
    return *built ? sy_columns_build(p, &columns, sy_node_input(sy_program_node(p), 2) >= 0)
                  : SY_OK;
}

static int build_deconv(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    struct deconv d;
    dnnl_primitive_desc_t pd;
    int given = -1, status = SY_EUNSUPPORTED;
    if (!read_shape(p->graph, node, p->batch, &d))
        return sy_program_add_kernel(p);
    if (is_packed(p)) {
        bool built;
        SY_TRY(build_columns(p, &d, &built));
        if (built)
            return SY_OK;
        SY_TRY(sy_program_param(p, 1, &given));
    }
    if (given >= 0)
        status = make_pd(node, &d, &p->values[given].md, &pd);
    if (status == SY_EUNSUPPORTED)
        status = make_pd(node, &d, NULL, &pd);
    if (status == SY_EUNSUPPORTED && given < 0)
        return sy_program_add_kernel(p);
    SY_TRY(status);
    status = build_with(p, &d, given, pd);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

const struct sy_host_op sy_host_ops_deconv[] = {{.build = build_deconv,
                                                 .layout = layout_deconv,
                                                 .prepare = prepare_deconv,
                                                 SY_OPS(SY_OP_CONV_TRANSPOSE)},
                                                {0}};
