/* dnnl_compat.h on 3.x: operations, which 2.x describes before a primitive is made of them, are kept as they were asked for. */
#include "workers/host/base/dnnl_compat.h"

#if DNNL_VERSION_MAJOR >= 3

#include <string.h>

typedef struct sy_dnnl3_md value;

static void set_md(value *to, const value *from)
{
    if (from)
        *to = *from;
}

static void set_dims(dnnl_dims_t to, const dnnl_dims_t from, int n)
{
    memcpy(to, from, (size_t)n * sizeof *from);
}

static void set_operands(struct sy_dnnl3_op *op, enum sy_dnnl3_op_kind kind, const value *src,
                         const value *weights, const value *bias, const value *dst)
{
    *op = (struct sy_dnnl3_op){.kind = kind};
    set_md(&op->src, src);
    set_md(&op->weights, weights);
    set_md(&op->bias, bias);
    set_md(&op->dst, dst);
}

/* Convolutions and transposed ones, in each direction. */
static dnnl_status_t set_convolution(struct sy_dnnl3_op *op, dnnl_prop_kind_t prop,
                                     dnnl_alg_kind_t algorithm, const dnnl_dims_t strides,
                                     const dnnl_dims_t dilations, const dnnl_dims_t before,
                                     const dnnl_dims_t after)
{
    int n = op->src.ndims - 2;
    op->prop = prop;
    op->algorithm = algorithm;
    set_dims(op->strides, strides, n);
    set_dims(op->dilations, dilations, n);
    set_dims(op->before, before, n);
    set_dims(op->after, after, n);
    return dnnl_success;
}

dnnl_status_t dnnl_dilated_convolution_forward_desc_init(
    struct sy_dnnl3_op *op, dnnl_prop_kind_t prop, dnnl_alg_kind_t algorithm, const value *src,
    const value *weights, const value *bias, const value *dst, const dnnl_dims_t strides,
    const dnnl_dims_t dilations, const dnnl_dims_t before, const dnnl_dims_t after)
{
    set_operands(op, SY_DNNL3_CONVOLUTION, src, weights, bias, dst);
    return set_convolution(op, prop, algorithm, strides, dilations, before, after);
}

dnnl_status_t dnnl_dilated_convolution_backward_data_desc_init(
    struct sy_dnnl3_op *op, dnnl_alg_kind_t algorithm, const value *src, const value *weights,
    const value *dst, const dnnl_dims_t strides, const dnnl_dims_t dilations,
    const dnnl_dims_t before, const dnnl_dims_t after)
{
    set_operands(op, SY_DNNL3_CONVOLUTION_DATA, src, weights, NULL, dst);
    return set_convolution(op, dnnl_prop_kind_undef, algorithm, strides, dilations, before, after);
}

dnnl_status_t dnnl_dilated_convolution_backward_weights_desc_init(
    struct sy_dnnl3_op *op, dnnl_alg_kind_t algorithm, const value *src, const value *weights,
    const value *bias, const value *dst, const dnnl_dims_t strides, const dnnl_dims_t dilations,
    const dnnl_dims_t before, const dnnl_dims_t after)
{
    set_operands(op, SY_DNNL3_CONVOLUTION_WEIGHTS, src, weights, bias, dst);
    return set_convolution(op, dnnl_prop_kind_undef, algorithm, strides, dilations, before, after);
}

dnnl_status_t dnnl_dilated_deconvolution_forward_desc_init(
    struct sy_dnnl3_op *op, dnnl_prop_kind_t prop, dnnl_alg_kind_t algorithm, const value *src,
    const value *weights, const value *bias, const value *dst, const dnnl_dims_t strides,
    const dnnl_dims_t dilations, const dnnl_dims_t before, const dnnl_dims_t after)
{
    set_operands(op, SY_DNNL3_DECONVOLUTION, src, weights, bias, dst);
    return set_convolution(op, prop, algorithm, strides, dilations, before, after);
}

dnnl_status_t dnnl_dilated_deconvolution_backward_data_desc_init(
    struct sy_dnnl3_op *op, dnnl_alg_kind_t algorithm, const value *src, const value *weights,
    const value *dst, const dnnl_dims_t strides, const dnnl_dims_t dilations,
    const dnnl_dims_t before, const dnnl_dims_t after)
{
    set_operands(op, SY_DNNL3_DECONVOLUTION_DATA, src, weights, NULL, dst);
    return set_convolution(op, dnnl_prop_kind_undef, algorithm, strides, dilations, before, after);
}

dnnl_status_t dnnl_dilated_deconvolution_backward_weights_desc_init(
    struct sy_dnnl3_op *op, dnnl_alg_kind_t algorithm, const value *src, const value *weights,
    const value *bias, const value *dst, const dnnl_dims_t strides, const dnnl_dims_t dilations,
    const dnnl_dims_t before, const dnnl_dims_t after)
{
    set_operands(op, SY_DNNL3_DECONVOLUTION_WEIGHTS, src, weights, bias, dst);
    return set_convolution(op, dnnl_prop_kind_undef, algorithm, strides, dilations, before, after);
}

dnnl_status_t dnnl_matmul_desc_init(struct sy_dnnl3_op *op, const value *src, const value *weights,
                                    const value *bias, const value *dst)
{
    set_operands(op, SY_DNNL3_MATMUL, src, weights, bias, dst);
    return dnnl_success;
}

dnnl_status_t dnnl_inner_product_forward_desc_init(struct sy_dnnl3_op *op, dnnl_prop_kind_t prop,
                                                   const value *src, const value *weights,
                                                   const value *bias, const value *dst)
{
    set_operands(op, SY_DNNL3_INNER_PRODUCT, src, weights, bias, dst);
    op->prop = prop;
    return dnnl_success;
}

dnnl_status_t dnnl_inner_product_backward_data_desc_init(struct sy_dnnl3_op *op, const value *src,
                                                         const value *weights, const value *dst)
{
    set_operands(op, SY_DNNL3_INNER_PRODUCT_DATA, src, weights, NULL, dst);
    return dnnl_success;
}

dnnl_status_t dnnl_inner_product_backward_weights_desc_init(struct sy_dnnl3_op *op,
                                                            const value *src, const value *weights,
                                                            const value *bias, const value *dst)
{
    set_operands(op, SY_DNNL3_INNER_PRODUCT_WEIGHTS, src, weights, bias, dst);
    return dnnl_success;
}

dnnl_status_t dnnl_eltwise_forward_desc_init(struct sy_dnnl3_op *op, dnnl_prop_kind_t prop,
                                             dnnl_alg_kind_t algorithm, const value *data,
                                             float alpha, float beta)
{
    set_operands(op, SY_DNNL3_ELTWISE, data, NULL, NULL, data);
    op->prop = prop;
    op->algorithm = algorithm;
    op->alpha = alpha;
    op->beta = beta;
    return dnnl_success;
}

/* src: the data; dst: both gradients. */
dnnl_status_t dnnl_eltwise_backward_desc_init(struct sy_dnnl3_op *op, dnnl_alg_kind_t algorithm,
                                              const value *gradient, const value *data, float alpha,
                                              float beta)
{
    set_operands(op, SY_DNNL3_ELTWISE_BACKWARD, data, NULL, NULL, gradient);
    op->algorithm = algorithm;
    op->alpha = alpha;
    op->beta = beta;
    return dnnl_success;
}

dnnl_status_t dnnl_pooling_v2_forward_desc_init(struct sy_dnnl3_op *op, dnnl_prop_kind_t prop,
                                                dnnl_alg_kind_t algorithm, const value *src,
                                                const value *dst, const dnnl_dims_t strides,
                                                const dnnl_dims_t kernel,
                                                const dnnl_dims_t dilations,
                                                const dnnl_dims_t before, const dnnl_dims_t after)
{
    set_operands(op, SY_DNNL3_POOLING, src, NULL, NULL, dst);
    op->prop = prop;
    op->algorithm = algorithm;
    set_window(op, strides, dilations, before, after);
    set_dims(op->kernel, kernel, src->ndims - 2);
    return dnnl_success;
}

dnnl_status_t dnnl_pooling_v2_backward_desc_init(struct sy_dnnl3_op *op, dnnl_alg_kind_t algorithm,
                                                 const value *src, const value *dst,
                                                 const dnnl_dims_t strides,
                                                 const dnnl_dims_t kernel,
                                                 const dnnl_dims_t dilations,
                                                 const dnnl_dims_t before, const dnnl_dims_t after)
{
    set_operands(op, SY_DNNL3_POOLING_BACKWARD, src, NULL, NULL, dst);
    op->algorithm = algorithm;
    set_window(op, strides, dilations, before, after);
    set_dims(op->kernel, kernel, src->ndims - 2);
    return dnnl_success;
}

dnnl_status_t dnnl_batch_normalization_forward_desc_init(struct sy_dnnl3_op *op,
                                                         dnnl_prop_kind_t prop, const value *data,
                                                         float epsilon, unsigned flags)
{
    set_operands(op, SY_DNNL3_BATCH_NORM, data, NULL, NULL, data);
    op->prop = prop;
    op->alpha = epsilon;
    op->flags = flags;
    return dnnl_success;
}

dnnl_status_t dnnl_batch_normalization_backward_desc_init(struct sy_dnnl3_op *op,
                                                          dnnl_prop_kind_t prop,
                                                          const value *gradient, const value *data,
                                                          float epsilon, unsigned flags)
{
    set_operands(op, SY_DNNL3_BATCH_NORM_BACKWARD, data, NULL, NULL, gradient);
    op->prop = prop;
    op->alpha = epsilon;
    op->flags = flags;
    return dnnl_success;
}

#endif
