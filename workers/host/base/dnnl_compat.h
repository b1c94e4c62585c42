/* oneDNN as this folder sees it: the interface of 2.6, also on 3.x. The difference between the two stands here and in dnnl_compat.c.
 *
 * In 3.x a memory descriptor is a handle; here it stays a value, as it is kept in packages and compared: dims, type, and either strides or the
 * name (tag) of a blocked layout. Handles are made for the length of a call. An operation descriptor is one struct for all operators, which
 * dnnl_primitive_desc_create turns into the call that 3.x has for each. A layout of 3.x without a name (that of int8 weights with
 * compensation, packed recurrences) is opaque: whatever is made from it is refused by oneDNN as an invalid argument. */
#ifndef SY_WORKERS_HOST_BASE_DNNL_COMPAT_H
#define SY_WORKERS_HOST_BASE_DNNL_COMPAT_H

#include <stdbool.h>

#include <oneapi/dnnl/dnnl.h>

/* Whether batch normalisation's backward pass reads the shift, although its result does not depend on it. */
#define SY_DNNL_BACKWARD_TAKES_SHIFT (DNNL_VERSION_MAJOR < 3)

/* Products of 8 bits. 2.6 multiplies sum + bias by the factors, which it gets with the attributes; 3.x adds the bias afterwards, and
 * takes the factors as an argument of this number. */
#define SY_DNNL_BIAS_IS_SCALED (DNNL_VERSION_MAJOR < 3)
#if DNNL_VERSION_MAJOR >= 3
#define SY_DNNL_FACTORS_ARGUMENT (DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS)
#else
#define SY_DNNL_FACTORS_ARGUMENT 0
#endif
/* Sets a factor for each of the n columns (channels) of the result; weights_mask: the dimensions of the weights that these columns are. */
static inline dnnl_status_t sy_dnnl_set_factors(dnnl_primitive_attr_t attr, int n,
                                                const float *factors, int weights_mask)
{
#if DNNL_VERSION_MAJOR >= 3
    (void)n;
    (void)factors;
    return dnnl_primitive_attr_set_scales_mask(attr, DNNL_ARG_WEIGHTS, weights_mask);
#else
    (void)weights_mask;
    return dnnl_primitive_attr_set_output_scales(attr, n, 1 << 1, factors);
#endif
}

#if DNNL_VERSION_MAJOR >= 3

struct sy_dnnl3_md {
    int ndims;
    dnnl_data_type_t data_type;
    dnnl_format_tag_t tag; /* undef: strides */
    dnnl_dims_t dims, strides;
};
#define dnnl_memory_desc_t struct sy_dnnl3_md

enum sy_dnnl3_op_kind {
    SY_DNNL3_CONVOLUTION,
    SY_DNNL3_CONVOLUTION_DATA,
    SY_DNNL3_CONVOLUTION_WEIGHTS,
    SY_DNNL3_DECONVOLUTION,
    SY_DNNL3_DECONVOLUTION_DATA,
    SY_DNNL3_DECONVOLUTION_WEIGHTS,
    SY_DNNL3_MATMUL,
    SY_DNNL3_INNER_PRODUCT,
    SY_DNNL3_INNER_PRODUCT_DATA,
    SY_DNNL3_INNER_PRODUCT_WEIGHTS,
    SY_DNNL3_ELTWISE,
    SY_DNNL3_ELTWISE_BACKWARD,
    SY_DNNL3_POOLING,
    SY_DNNL3_POOLING_BACKWARD,
    SY_DNNL3_BATCH_NORM,
    SY_DNNL3_BATCH_NORM_BACKWARD
};

/* Which of the operators' arguments are used depends on the kind. */
struct sy_dnnl3_op {
    enum sy_dnnl3_op_kind kind;
    dnnl_prop_kind_t prop;
    dnnl_alg_kind_t algorithm;
    dnnl_memory_desc_t src, weights, bias, dst; /* backward: of the gradients where there are any */
    dnnl_dims_t kernel, strides, dilations, before, after;
    unsigned flags;
    float alpha, beta; /* or epsilon */
};
typedef struct sy_dnnl3_op dnnl_convolution_desc_t, dnnl_deconvolution_desc_t, dnnl_matmul_desc_t,
    dnnl_inner_product_desc_t, dnnl_eltwise_desc_t, dnnl_pooling_v2_desc_t,
    dnnl_batch_normalization_desc_t;
typedef const void *const_dnnl_op_desc_t;

/* Functions that have another signature in 3.x. */
#define dnnl_memory_desc_get_size          sy_dnnl3_md_bytes
#define dnnl_memory_desc_equal             sy_dnnl3_md_equal
#define dnnl_memory_desc_permute_axes      sy_dnnl3_md_permute
#define dnnl_memory_desc_reshape           sy_dnnl3_md_reshape
#define dnnl_memory_create                 sy_dnnl3_memory_create
#define dnnl_reorder_primitive_desc_create sy_dnnl3_reorder
#define dnnl_concat_primitive_desc_create  sy_dnnl3_concat
#define dnnl_post_ops_append_sum           sy_dnnl3_append_sum
#define dnnl_post_ops_append_eltwise       sy_dnnl3_append_eltwise
#define dnnl_post_ops_append_binary        sy_dnnl3_append_binary
/* The result lives until the end of the enclosing block. */
#define dnnl_primitive_desc_query_md(pd, what, index) \
    sy_dnnl3_query_md(&(dnnl_memory_desc_t){0}, (pd), (what), (index))

size_t dnnl_memory_desc_get_size(const dnnl_memory_desc_t *md);
int dnnl_memory_desc_equal(const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b);
dnnl_status_t dnnl_memory_desc_permute_axes(dnnl_memory_desc_t *to, const dnnl_memory_desc_t *from,
                                            const int *axes);
dnnl_status_t dnnl_memory_desc_reshape(dnnl_memory_desc_t *to, const dnnl_memory_desc_t *from,
                                       int ndims, const dnnl_dims_t dims);
dnnl_status_t dnnl_memory_create(dnnl_memory_t *memory, const dnnl_memory_desc_t *md,
                                 dnnl_engine_t engine, void *data);
dnnl_status_t dnnl_reorder_primitive_desc_create(
    dnnl_primitive_desc_t *pd, const dnnl_memory_desc_t *from, dnnl_engine_t from_engine,
    const dnnl_memory_desc_t *to, dnnl_engine_t to_engine, const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_concat_primitive_desc_create(dnnl_primitive_desc_t *pd,
                                                const dnnl_memory_desc_t *dst, int n, int axis,
                                                const dnnl_memory_desc_t *src,
                                                const_dnnl_primitive_attr_t attr,
                                                dnnl_engine_t engine);
dnnl_status_t dnnl_post_ops_append_sum(dnnl_post_ops_t ops, float scale);
dnnl_status_t dnnl_post_ops_append_eltwise(dnnl_post_ops_t ops, float scale,
                                           dnnl_alg_kind_t algorithm, float alpha, float beta);
dnnl_status_t dnnl_post_ops_append_binary(dnnl_post_ops_t ops, dnnl_alg_kind_t algorithm,
                                          const dnnl_memory_desc_t *md);
const dnnl_memory_desc_t *sy_dnnl3_query_md(dnnl_memory_desc_t *room,
                                            const_dnnl_primitive_desc_t pd, dnnl_query_t what,
                                            int index);

/* Removed in 3.x. */
dnnl_status_t dnnl_memory_desc_init_by_tag(dnnl_memory_desc_t *md, int ndims,
                                           const dnnl_dims_t dims, dnnl_data_type_t type,
                                           dnnl_format_tag_t tag);
dnnl_status_t dnnl_memory_desc_init_by_strides(dnnl_memory_desc_t *md, int ndims,
                                               const dnnl_dims_t dims, dnnl_data_type_t type,
                                               const dnnl_dims_t strides);
dnnl_status_t dnnl_primitive_desc_create(dnnl_primitive_desc_t *pd, const_dnnl_op_desc_t desc,
                                         const_dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                                         const_dnnl_primitive_desc_t hint);
/* One scale for the whole result, applied before the sum and the activation. */
dnnl_status_t dnnl_primitive_attr_set_output_scales(dnnl_primitive_attr_t attr, dnnl_dim_t n,
                                                    int mask, const float *scale);

#define SY_WINDOW                                                                     \
    const dnnl_dims_t strides, const dnnl_dims_t dilations, const dnnl_dims_t before, \
        const dnnl_dims_t after
dnnl_status_t dnnl_dilated_convolution_forward_desc_init(
    dnnl_convolution_desc_t *op, dnnl_prop_kind_t prop, dnnl_alg_kind_t algorithm,
    const dnnl_memory_desc_t *src, const dnnl_memory_desc_t *weights,
    const dnnl_memory_desc_t *bias, const dnnl_memory_desc_t *dst, SY_WINDOW);
dnnl_status_t dnnl_dilated_convolution_backward_data_desc_init(
    dnnl_convolution_desc_t *op, dnnl_alg_kind_t algorithm, const dnnl_memory_desc_t *src,
    const dnnl_memory_desc_t *weights, const dnnl_memory_desc_t *dst, SY_WINDOW);
dnnl_status_t dnnl_dilated_convolution_backward_weights_desc_init(
    dnnl_convolution_desc_t *op, dnnl_alg_kind_t algorithm, const dnnl_memory_desc_t *src,
    const dnnl_memory_desc_t *weights, const dnnl_memory_desc_t *bias,
    const dnnl_memory_desc_t *dst, SY_WINDOW);
dnnl_status_t dnnl_dilated_deconvolution_forward_desc_init(
    dnnl_deconvolution_desc_t *op, dnnl_prop_kind_t prop, dnnl_alg_kind_t algorithm,
    const dnnl_memory_desc_t *src, const dnnl_memory_desc_t *weights,
    const dnnl_memory_desc_t *bias, const dnnl_memory_desc_t *dst, SY_WINDOW);
dnnl_status_t dnnl_dilated_deconvolution_backward_data_desc_init(
    dnnl_deconvolution_desc_t *op, dnnl_alg_kind_t algorithm, const dnnl_memory_desc_t *src,
    const dnnl_memory_desc_t *weights, const dnnl_memory_desc_t *dst, SY_WINDOW);
dnnl_status_t dnnl_dilated_deconvolution_backward_weights_desc_init(
    dnnl_deconvolution_desc_t *op, dnnl_alg_kind_t algorithm, const dnnl_memory_desc_t *src,
    const dnnl_memory_desc_t *weights, const dnnl_memory_desc_t *bias,
    const dnnl_memory_desc_t *dst, SY_WINDOW);
dnnl_status_t dnnl_matmul_desc_init(dnnl_matmul_desc_t *op, const dnnl_memory_desc_t *src,
                                    const dnnl_memory_desc_t *weights,
                                    const dnnl_memory_desc_t *bias, const dnnl_memory_desc_t *dst);
dnnl_status_t dnnl_inner_product_forward_desc_init(dnnl_inner_product_desc_t *op,
                                                   dnnl_prop_kind_t prop,
                                                   const dnnl_memory_desc_t *src,
                                                   const dnnl_memory_desc_t *weights,
                                                   const dnnl_memory_desc_t *bias,
                                                   const dnnl_memory_desc_t *dst);
dnnl_status_t dnnl_inner_product_backward_data_desc_init(dnnl_inner_product_desc_t *op,
                                                         const dnnl_memory_desc_t *src,
                                                         const dnnl_memory_desc_t *weights,
                                                         const dnnl_memory_desc_t *dst);
dnnl_status_t dnnl_inner_product_backward_weights_desc_init(dnnl_inner_product_desc_t *op,
                                                            const dnnl_memory_desc_t *src,
                                                            const dnnl_memory_desc_t *weights,
                                                            const dnnl_memory_desc_t *bias,
                                                            const dnnl_memory_desc_t *dst);
dnnl_status_t dnnl_eltwise_forward_desc_init(dnnl_eltwise_desc_t *op, dnnl_prop_kind_t prop,
                                             dnnl_alg_kind_t algorithm,
                                             const dnnl_memory_desc_t *data, float alpha,
                                             float beta);
dnnl_status_t dnnl_eltwise_backward_desc_init(dnnl_eltwise_desc_t *op, dnnl_alg_kind_t algorithm,
                                              const dnnl_memory_desc_t *gradient,
                                              const dnnl_memory_desc_t *data, float alpha,
                                              float beta);
dnnl_status_t dnnl_pooling_v2_forward_desc_init(dnnl_pooling_v2_desc_t *op, dnnl_prop_kind_t prop,
                                                dnnl_alg_kind_t algorithm,
                                                const dnnl_memory_desc_t *src,
                                                const dnnl_memory_desc_t *dst,
                                                const dnnl_dims_t strides, const dnnl_dims_t kernel,
                                                const dnnl_dims_t dilations,
                                                const dnnl_dims_t before, const dnnl_dims_t after);
dnnl_status_t dnnl_pooling_v2_backward_desc_init(
    dnnl_pooling_v2_desc_t *op, dnnl_alg_kind_t algorithm, const dnnl_memory_desc_t *src,
    const dnnl_memory_desc_t *dst, const dnnl_dims_t strides, const dnnl_dims_t kernel,
    const dnnl_dims_t dilations, const dnnl_dims_t before, const dnnl_dims_t after);
dnnl_status_t dnnl_batch_normalization_forward_desc_init(dnnl_batch_normalization_desc_t *op,
                                                         dnnl_prop_kind_t prop,
                                                         const dnnl_memory_desc_t *data,
                                                         float epsilon, unsigned flags);
dnnl_status_t dnnl_batch_normalization_backward_desc_init(dnnl_batch_normalization_desc_t *op,
                                                          dnnl_prop_kind_t prop,
                                                          const dnnl_memory_desc_t *gradient,
                                                          const dnnl_memory_desc_t *data,
                                                          float epsilon, unsigned flags);
#undef SY_WINDOW

#endif

/* Replaces *pd, which was created of `desc` and `attr`, by the first of oneDNN's later implementations that `takes` accepts. False: there is none, and *pd
 * stays. */
bool sy_dnnl_take_later(dnnl_primitive_desc_t *pd, const_dnnl_op_desc_t desc,
                        const_dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                        bool (*takes)(const_dnnl_primitive_desc_t pd));

#endif
