#include "workers/host/base/dnnl_compat.h"

#if DNNL_VERSION_MAJOR >= 3

#include <string.h>

/* Restores oneDNN 3.x's own functions, whose names the header redefines. */
#undef dnnl_memory_desc_get_size
#undef dnnl_memory_desc_equal
#undef dnnl_memory_desc_permute_axes
#undef dnnl_memory_desc_reshape
#undef dnnl_memory_create
#undef dnnl_reorder_primitive_desc_create
#undef dnnl_concat_primitive_desc_create
#undef dnnl_post_ops_append_sum
#undef dnnl_post_ops_append_eltwise
#undef dnnl_post_ops_append_binary
#undef dnnl_primitive_desc_query_md
#undef dnnl_memory_desc_t

typedef struct sy_dnnl3_md value;
typedef dnnl_memory_desc_t handle;

#define OPAQUE dnnl_format_tag_last /* a tag that names no layout */

enum { RECENT_TAGS = 16, MAX_OPERANDS = 64 };

#define TRY(expr)                       \
    do {                                \
        dnnl_status_t status_ = (expr); \
        if (status_ != dnnl_success)    \
            return status_;             \
    } while (0)

/* ---- memory descriptors ---------------------------------------------------------------------------------- */

/* NULL and no dimensions: no handle, as 3.x takes operands that are left out. Destroyed by the caller. */
static dnnl_status_t open_md(const value *md, handle *out)
{
    *out = NULL;
    if (!md || md->ndims == 0)
        return dnnl_success;
    if (md->tag != dnnl_format_tag_undef)
        return dnnl_memory_desc_create_with_tag(out, md->ndims, md->dims, md->data_type, md->tag);
    return dnnl_memory_desc_create_with_strides(out, md->ndims, md->dims, md->data_type,
                                                md->strides);
}

static void close_mds(handle *mds, int n)
{
    for (int i = 0; i < n; i++)
        if (mds[i])
            dnnl_memory_desc_destroy(mds[i]);
}

/* All or none. */
static dnnl_status_t open_mds(const value *const *mds, int n, handle *out)
{
    for (int i = 0; i < n; i++) {
        dnnl_status_t status = open_md(mds[i], &out[i]);
        if (status != dnnl_success) {
            close_mds(out, i);
            return status;
        }
    }
    return dnnl_success;
}

static int has_tag(handle md, const value *v, dnnl_format_tag_t tag)
{
    handle tried;
    if (dnnl_memory_desc_create_with_tag(&tried, v->ndims, v->dims, v->data_type, tag) !=
        dnnl_success)
        return 0;
    int same = dnnl_memory_desc_equal(md, tried);
    dnnl_memory_desc_destroy(tried);
    return same;
}

/* Finds the tag of a layout: oneDNN 3.x does not report it, so each is tried, recently found ones first. */
static dnnl_format_tag_t tag_of(handle md, const value *v)
{
    static _Thread_local dnnl_format_tag_t recent[RECENT_TAGS];
    int at = RECENT_TAGS - 1;
    dnnl_format_tag_t found = OPAQUE;
    for (int i = 0; i < RECENT_TAGS && found == OPAQUE; i++)
        if (recent[i] != dnnl_format_tag_undef && has_tag(md, v, recent[i])) {
            found = recent[i];
            at = i;
        }
    for (int tag = dnnl_format_tag_any; tag < dnnl_format_tag_last && found == OPAQUE; tag++)
        if (has_tag(md, v, (dnnl_format_tag_t)tag))
            found = (dnnl_format_tag_t)tag;
    if (found == OPAQUE)
        return found;
    memmove(&recent[1], &recent[0], (size_t)at * sizeof *recent);
    recent[0] = found;
    return found;
}

static void read_md(const_dnnl_memory_desc_t md, value *out)
{
    handle same = NULL, own = NULL;
    const dnnl_dims_t *dims = NULL, *strides = NULL;
    memset(out, 0, sizeof *out);
    dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &out->ndims);
    dnnl_memory_desc_query(md, dnnl_query_data_type, &out->data_type);
    dnnl_memory_desc_query(md, dnnl_query_dims, &dims);
    if (out->ndims == 0 || !dims)
        return;
    memcpy(out->dims, dims, (size_t)out->ndims * sizeof(*dims)[0]);
    if (dnnl_memory_desc_query(md, dnnl_query_strides, &strides) == dnnl_success && strides) {
        memcpy(out->strides, strides, (size_t)out->ndims * sizeof(*strides)[0]);
        if (open_md(out, &same) == dnnl_success && dnnl_memory_desc_equal(md, same))
            strides = NULL;
        else
            memset(out->strides, 0, sizeof out->strides);
        close_mds(&same, 1);
        if (!strides)
            return;
    }
    if (dnnl_memory_desc_clone(&own, md) == dnnl_success)
        out->tag = tag_of(own, out);
    close_mds(&own, 1);
}

const value *sy_dnnl3_query_md(value *room, const_dnnl_primitive_desc_t pd, dnnl_query_t what,
                               int index)
{
    const_dnnl_memory_desc_t md = dnnl_primitive_desc_query_md(pd, what, index);
    if (!md)
        return NULL;
    read_md(md, room);
    return room;
}

/* Normalises the descriptor's representation, so that values can be compared. */
static dnnl_status_t in_own_words(value *md)
{
    handle own;
    if (md->tag == dnnl_format_tag_any)
        return dnnl_success;
    TRY(open_md(md, &own));
    if (own)
        read_md(own, md);
    close_mds(&own, 1);
    return dnnl_success;
}

dnnl_status_t dnnl_memory_desc_init_by_tag(value *md, int ndims, const dnnl_dims_t dims,
                                           dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    *md = (value){.ndims = ndims, .data_type = type, .tag = tag};
    memcpy(md->dims, dims, (size_t)ndims * sizeof *dims);
    return in_own_words(md);
}

dnnl_status_t dnnl_memory_desc_init_by_strides(value *md, int ndims, const dnnl_dims_t dims,
                                               dnnl_data_type_t type, const dnnl_dims_t strides)
{
    *md = (value){.ndims = ndims, .data_type = type};
    memcpy(md->dims, dims, (size_t)ndims * sizeof *dims);
    dnnl_dim_t dense = 1; /* no strides: row-major */
    for (int i = ndims - 1; i >= 0; i--) {
        md->strides[i] = strides ? strides[i] : dense;
        dense *= dims[i];
    }
    return in_own_words(md);
}

size_t sy_dnnl3_md_bytes(const value *md)
{
    handle own;
    if (open_md(md, &own) != dnnl_success || !own)
        return 0;
    size_t bytes = dnnl_memory_desc_get_size(own);
    close_mds(&own, 1);
    return bytes;
}

int sy_dnnl3_md_equal(const value *a, const value *b)
{
    handle own[2] = {0};
    if (open_mds((const value *[]){a, b}, 2, own) != dnnl_success)
        return 0;
    int equal = own[0] && own[1] ? dnnl_memory_desc_equal(own[0], own[1]) : own[0] == own[1];
    close_mds(own, 2);
    return equal;
}

/* Converts a handle to a value; destroys both handles. */
static dnnl_status_t taken(dnnl_status_t status, handle from, handle made, value *to)
{
    if (status == dnnl_success)
        read_md(made, to);
    close_mds((handle[]){from, status == dnnl_success ? made : NULL}, 2);
    return status == dnnl_success && to->tag == OPAQUE ? dnnl_unimplemented : status;
}

dnnl_status_t sy_dnnl3_md_permute(value *to, const value *from, const int *axes)
{
    handle own, made = NULL;
    TRY(open_md(from, &own));
    return taken(dnnl_memory_desc_permute_axes(&made, own, axes), own, made, to);
}

dnnl_status_t sy_dnnl3_md_reshape(value *to, const value *from, int ndims, const dnnl_dims_t dims)
{
    handle own, made = NULL;
    TRY(open_md(from, &own));
    return taken(dnnl_memory_desc_reshape(&made, own, ndims, dims), own, made, to);
}

dnnl_status_t sy_dnnl3_memory_create(dnnl_memory_t *memory, const value *md, dnnl_engine_t engine,
                                     void *data)
{
    handle own;
    TRY(open_md(md, &own));
    dnnl_status_t status = dnnl_memory_create(memory, own, engine, data);
    close_mds(&own, 1);
    return status;
}

/* ---- attributes -------------------------------------------------------------------------------------------- */

dnnl_status_t sy_dnnl3_append_sum(dnnl_post_ops_t ops, float scale)
{
    return dnnl_post_ops_append_sum(ops, scale, 0, dnnl_data_type_undef);
}

/* In 3.x the factor behind the curve is a different parameter. */
dnnl_status_t sy_dnnl3_append_eltwise(dnnl_post_ops_t ops, float scale, dnnl_alg_kind_t algorithm,
                                      float alpha, float beta)
{
    TRY(dnnl_post_ops_append_eltwise(ops, algorithm, alpha, beta));
    return scale == 1 ? dnnl_success
                      : dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_linear, scale, 0);
}

dnnl_status_t sy_dnnl3_append_binary(dnnl_post_ops_t ops, dnnl_alg_kind_t algorithm,
                                     const value *md)
{
    handle own;
    TRY(open_md(md, &own));
    dnnl_status_t status = dnnl_post_ops_append_binary(ops, algorithm, own);
    close_mds(&own, 1);
    return status;
}

static dnnl_status_t copy_operation(const_dnnl_post_ops_t from, int i, dnnl_post_ops_t to)
{
    dnnl_alg_kind_t algorithm;
    dnnl_data_type_t type;
    float alpha, beta;
    int32_t zero;
    if (dnnl_post_ops_get_kind(from, i) == dnnl_sum) {
        TRY(dnnl_post_ops_get_params_sum(from, i, &alpha, &zero, &type));
        return dnnl_post_ops_append_sum(to, alpha, zero, type);
    }
    TRY(dnnl_post_ops_get_params_eltwise(from, i, &algorithm, &alpha, &beta));
    return dnnl_post_ops_append_eltwise(to, algorithm, alpha, beta);
}

dnnl_status_t dnnl_primitive_attr_set_output_scales(dnnl_primitive_attr_t attr, dnnl_dim_t n,
                                                    int mask, const float *scale)
{
    const_dnnl_post_ops_t before;
    dnnl_post_ops_t ops;
    if (n != 1 || mask != 0)
        return dnnl_unimplemented;
    TRY(dnnl_primitive_attr_get_post_ops(attr, &before));
    TRY(dnnl_post_ops_create(&ops));
    dnnl_status_t status = dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_linear, *scale, 0);
    for (int i = 0; i < dnnl_post_ops_len(before) && status == dnnl_success; i++)
        status = copy_operation(before, i, ops);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
    return status;
}

/* ---- primitive descriptors ----------------------------------------------------------------------------------- */

enum { SRC, WEIGHTS, BIAS, DST, N_OPERANDS };

struct request {
    const struct sy_dnnl3_op *op;
    const_dnnl_primitive_attr_t attr;
    const_dnnl_primitive_desc_t hint;
    dnnl_engine_t engine;
    handle md[N_OPERANDS];
};

static dnnl_status_t create_window(const struct request *r, dnnl_primitive_desc_t *pd)
{
    const struct sy_dnnl3_op *op = r->op;
    switch (op->kind) {
    case SY_DNNL3_CONVOLUTION:
        return dnnl_convolution_forward_primitive_desc_create(
            pd, r->engine, op->prop, op->algorithm, r->md[SRC], r->md[WEIGHTS], r->md[BIAS],
            r->md[DST], op->strides, op->dilations, op->before, op->after, r->attr);
    case SY_DNNL3_CONVOLUTION_DATA:
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd, r->engine, op->algorithm, r->md[SRC], r->md[WEIGHTS], r->md[DST], op->strides,
            op->dilations, op->before, op->after, r->hint, r->attr);
    case SY_DNNL3_CONVOLUTION_WEIGHTS:
        return dnnl_convolution_backward_weights_primitive_desc_create(
            pd, r->engine, op->algorithm, r->md[SRC], r->md[WEIGHTS], r->md[BIAS], r->md[DST],
            op->strides, op->dilations, op->before, op->after, r->hint, r->attr);
    case SY_DNNL3_DECONVOLUTION:
        return dnnl_deconvolution_forward_primitive_desc_create(
            pd, r->engine, op->prop, op->algorithm, r->md[SRC], r->md[WEIGHTS], r->md[BIAS],
            r->md[DST], op->strides, op->dilations, op->before, op->after, r->attr);
    case SY_DNNL3_DECONVOLUTION_DATA:
        return dnnl_deconvolution_backward_data_primitive_desc_create(
            pd, r->engine, op->algorithm, r->md[SRC], r->md[WEIGHTS], r->md[DST], op->strides,
            op->dilations, op->before, op->after, r->hint, r->attr);
    case SY_DNNL3_DECONVOLUTION_WEIGHTS:
        return dnnl_deconvolution_backward_weights_primitive_desc_create(
            pd, r->engine, op->algorithm, r->md[SRC], r->md[WEIGHTS], r->md[BIAS], r->md[DST],
            op->strides, op->dilations, op->before, op->after, r->hint, r->attr);
    case SY_DNNL3_POOLING:
        return dnnl_pooling_forward_primitive_desc_create(
            pd, r->engine, op->prop, op->algorithm, r->md[SRC], r->md[DST], op->strides, op->kernel,
            op->dilations, op->before, op->after, r->attr);
    default:
        return dnnl_pooling_backward_primitive_desc_create(
            pd, r->engine, op->algorithm, r->md[SRC], r->md[DST], op->strides, op->kernel,
            op->dilations, op->before, op->after, r->hint, r->attr);
    }
}

static dnnl_status_t create_product(const struct request *r, dnnl_primitive_desc_t *pd)
{
    switch (r->op->kind) {
    case SY_DNNL3_MATMUL:
        return dnnl_matmul_primitive_desc_create(pd, r->engine, r->md[SRC], r->md[WEIGHTS],
                                                 r->md[BIAS], r->md[DST], r->attr);
    case SY_DNNL3_INNER_PRODUCT:
        return dnnl_inner_product_forward_primitive_desc_create(pd, r->engine, r->op->prop,
                                                                r->md[SRC], r->md[WEIGHTS],
                                                                r->md[BIAS], r->md[DST], r->attr);
    case SY_DNNL3_INNER_PRODUCT_DATA:
        return dnnl_inner_product_backward_data_primitive_desc_create(
            pd, r->engine, r->md[SRC], r->md[WEIGHTS], r->md[DST], r->hint, r->attr);
    default:
        return dnnl_inner_product_backward_weights_primitive_desc_create(
            pd, r->engine, r->md[SRC], r->md[WEIGHTS], r->md[BIAS], r->md[DST], r->hint, r->attr);
    }
}

static dnnl_status_t create_pointwise(const struct request *r, dnnl_primitive_desc_t *pd)
{
    const struct sy_dnnl3_op *op = r->op;
    switch (op->kind) {
    case SY_DNNL3_ELTWISE:
        return dnnl_eltwise_forward_primitive_desc_create(pd, r->engine, op->prop, op->algorithm,
                                                          r->md[SRC], r->md[DST], op->alpha,
                                                          op->beta, r->attr);
    case SY_DNNL3_ELTWISE_BACKWARD:
        return dnnl_eltwise_backward_primitive_desc_create(pd, r->engine, op->algorithm, r->md[DST],
                                                           r->md[DST], r->md[SRC], op->alpha,
                                                           op->beta, r->hint, r->attr);
    case SY_DNNL3_BATCH_NORM:
        return dnnl_batch_normalization_forward_primitive_desc_create(
            pd, r->engine, op->prop, r->md[SRC], r->md[DST], op->alpha, op->flags, r->attr);
    default:
        return dnnl_batch_normalization_backward_primitive_desc_create(
            pd, r->engine, op->prop, r->md[DST], r->md[DST], r->md[SRC], op->alpha, op->flags,
            r->hint, r->attr);
    }
}

static dnnl_status_t create(const struct request *r, dnnl_primitive_desc_t *pd)
{
    switch (r->op->kind) {
    case SY_DNNL3_MATMUL:
    case SY_DNNL3_INNER_PRODUCT:
    case SY_DNNL3_INNER_PRODUCT_DATA:
    case SY_DNNL3_INNER_PRODUCT_WEIGHTS:
        return create_product(r, pd);
    case SY_DNNL3_ELTWISE:
    case SY_DNNL3_ELTWISE_BACKWARD:
    case SY_DNNL3_BATCH_NORM:
    case SY_DNNL3_BATCH_NORM_BACKWARD:
        return create_pointwise(r, pd);
    default:
        return create_window(r, pd);
    }
}

dnnl_status_t dnnl_primitive_desc_create(dnnl_primitive_desc_t *pd, const_dnnl_op_desc_t desc,
                                         const_dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                                         const_dnnl_primitive_desc_t hint)
{
    const struct sy_dnnl3_op *op = desc;
    struct request r = {.op = op, .attr = attr, .hint = hint, .engine = engine};
    TRY(open_mds((const value *[]){&op->src, &op->weights, &op->bias, &op->dst}, N_OPERANDS, r.md));
    dnnl_status_t status = create(&r, pd);
    close_mds(r.md, N_OPERANDS);
    return status;
}

dnnl_status_t sy_dnnl3_reorder(dnnl_primitive_desc_t *pd, const value *from,
                               dnnl_engine_t from_engine, const value *to, dnnl_engine_t to_engine,
                               const_dnnl_primitive_attr_t attr)
{
    handle md[2] = {0};
    TRY(open_mds((const value *[]){from, to}, 2, md));
    dnnl_status_t status =
        dnnl_reorder_primitive_desc_create(pd, md[0], from_engine, md[1], to_engine, attr);
    close_mds(md, 2);
    return status;
}

dnnl_status_t sy_dnnl3_concat(dnnl_primitive_desc_t *pd, const value *dst, int n, int axis,
                              const value *src, const_dnnl_primitive_attr_t attr,
                              dnnl_engine_t engine)
{
    const value *all[MAX_OPERANDS];
    handle md[MAX_OPERANDS] = {0};
    if (n + 1 > MAX_OPERANDS)
        return dnnl_unimplemented;
    all[0] = dst;
    for (int i = 0; i < n; i++)
        all[i + 1] = &src[i];
    TRY(open_mds(all, n + 1, md));
    dnnl_status_t status = dnnl_concat_primitive_desc_create(
        pd, engine, md[0], n, axis, (const_dnnl_memory_desc_t const *)(md + 1), attr);
    close_mds(md, n + 1);
    return status;
}

bool sy_dnnl_take_later(dnnl_primitive_desc_t *pd, const_dnnl_op_desc_t desc,
                        const_dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                        bool (*takes)(const_dnnl_primitive_desc_t pd))
{
    dnnl_primitive_desc_t later;
    if (dnnl_primitive_desc_create(&later, desc, attr, engine, NULL) != dnnl_success)
        return false;
    while (dnnl_primitive_desc_next_impl(later) == dnnl_success)
        if (takes(later)) {
            dnnl_primitive_desc_destroy(*pd);
            *pd = later;
            return true;
        }
    dnnl_primitive_desc_destroy(later);
    return false;
}

#else

bool sy_dnnl_take_later(dnnl_primitive_desc_t *pd, const_dnnl_op_desc_t desc,
                        const_dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                        bool (*takes)(const_dnnl_primitive_desc_t pd))
{
    dnnl_primitive_desc_iterator_t all;
    bool taken = false;
    if (dnnl_primitive_desc_iterator_create(&all, desc, attr, engine, NULL) != dnnl_success)
        return false;
    while (!taken && dnnl_primitive_desc_iterator_next(all) == dnnl_success) {
        dnnl_primitive_desc_t later = dnnl_primitive_desc_iterator_fetch(all);
        taken = later && takes(later);
        dnnl_primitive_desc_destroy(taken ? *pd : later);
        if (taken)
            *pd = later;
    }
    dnnl_primitive_desc_iterator_destroy(all);
    return taken;
}

#endif
