/* Products of 8-bit numbers on oneDNN: u8 times s8, summed in 32 bits, then factors, bias, activation and rounding in its kernel.
 *
 *   result = quantize(activation(sum (x - zero) w * factor + bias))       zero * sum of w is in the bias (fuse_int8.c)
 *
 * oneDNN pads with 0, so where zero is another number a copy of the input has a border of it. Numbers with a sign get 128 added in that
 * copy: oneDNN multiplies both signs by correcting afterwards, in layouts that 3.x does not tell. A zero point of the run (the
 * input was quantised there) makes its bias in the run. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/operators/op_conv.h"
#include "workers/host/program/kept_weights.h"
#include "workers/host/program/program_internal.h"
#include "workers/host/rows/int8_rows.h"

enum { X, WEIGHTS, BIAS, RUN_ZERO, RUN_SCALE, SUMS };

#define REFERENCE_ROWS     128
#define MOST_VNNI_PRODUCTS (4 << 20) /* 5 us on two cores */
static const int64_t reference_batches[] = {8, 1, 3};

/* Parameters of oneDNN's primitive. */
struct product {
    const struct sy_node *node;
    dnnl_data_type_t dst_type;
    bool with_bias, with_scale,
        with_late_bias; /* oneDNN's bias; the scale of the run, and the bias behind it */
    int64_t columns;
    int rank, weights_mask; /* rank of the result; dimensions of the weights that a factor is for */
};

static void read_product(const struct sy_graph *graph, const struct sy_node *node,
                         struct product *p)
{
    const struct sy_attr *factors = sy_node_attr(node, "factors");
    bool conv = node->op == SY_OP_QUANTIZED_CONV, run_zero = sy_node_input(node, RUN_ZERO) >= 0;
    *p = (struct product){.node = node,
                          .dst_type = sy_dnnl_type(graph->tensors[node->outputs[0]].dtype),
                          .columns = factors ? factors->n : 0,
                          .with_bias = run_zero || sy_node_input(node, BIAS) >= 0,
                          .with_scale = sy_node_input(node, RUN_SCALE) >= 0,
                          .with_late_bias = run_zero && sy_node_input(node, BIAS) >= 0,
                          .rank = graph->tensors[node->outputs[0]].shape.rank,
                          .weights_mask = 2};
    if (conv)
        p->weights_mask = sy_node_int(node, "group", 1) > 1 ? 3 : 1;
}

static int check_product(const struct sy_node *node, const struct product *p)
{
    const struct sy_attr *factors = sy_node_attr(node, "factors");
    if (!factors || factors->kind != SY_ATTR_FLOATS || factors->n < 1 || node->n_inputs <= SUMS)
        return sy_error_set(SY_ECORRUPT, "node %s: a product of 8 bits without its factors",
                            node->name);
    for (int i = 0; SY_DNNL_BIAS_IS_SCALED && i < factors->n; i++)
        if (factors->floats[i] == 0)
            return sy_error_set(SY_ECORRUPT, "node %s: factor %d is 0", node->name, i);
    return p->dst_type == dnnl_data_type_undef ? sy_unsupported(node, "its element types") : SY_OK;
}

/* A scalar, or a value for each column, as an operand applied after the product. */
static void operand_md(const struct product *p, int rank, bool of_columns, dnnl_memory_desc_t *md)
{
    int64_t dims[SY_MAX_RANK];
    for (int i = 0; i < rank; i++)
        dims[i] = 1;
    if (of_columns)
        dims[p->node->op == SY_OP_QUANTIZED_CONV ? 1 : rank - 1] = p->columns;
    sy_dnnl_plain_md(md, rank, dims);
}

static dnnl_status_t append_operand(dnnl_post_ops_t ops, const struct product *p, int rank,
                                    dnnl_alg_kind_t kind)
{
    dnnl_memory_desc_t md;
    operand_md(p, rank, kind == dnnl_binary_add, &md);
    return dnnl_post_ops_append_binary(ops, kind, &md);
}

static int make_attr(const struct product *p, int rank, dnnl_primitive_attr_t *out)
{
    const struct sy_attr *factors = sy_node_attr(p->node, "factors");
    float scale = sy_node_float(p->node, "y_scale", 0);
    float zero = (float)sy_node_int(p->node, "y_zero", 0);
    dnnl_post_ops_t ops;
    SY_DNNL(dnnl_primitive_attr_create(out), p->node->name);
    SY_DNNL(dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user),
            p->node->name);
    SY_DNNL(sy_dnnl_set_factors(*out, factors->n, factors->floats, p->weights_mask), p->node->name);
    SY_DNNL(dnnl_post_ops_create(&ops), p->node->name);
    dnnl_status_t status = dnnl_success;
    if (p->with_scale)
        status = append_operand(ops, p, rank, dnnl_binary_mul);
    if (status == dnnl_success && p->with_late_bias)
        status = append_operand(ops, p, rank, dnnl_binary_add);
    if (status == dnnl_success)
        status = sy_dnnl_append_activation(p->node, ops);
    if (status == dnnl_success && p->dst_type != dnnl_f32 && (scale != 1 || zero != 0))
        status = dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_linear, 1 / scale, zero);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*out, ops);
    dnnl_post_ops_destroy(ops);
    return sy_dnnl_check(status, "factors and activation", p->node->name);
}

/* ---- oneDNN's convolution and matmul ---------------------------------------------------------------- */

static dnnl_format_tag_t channels_last(int rank)
{
    return rank == 3 ? dnnl_nwc : rank == 4 ? dnnl_nhwc : dnnl_ndhwc;
}

/* Whether the input is copied with a border (or with 128 added), instead of padding by oneDNN. */
static bool is_copied(const struct sy_graph *graph, const struct sy_node *node,
                      const struct sy_conv_shape *c)
{
    bool padded = false;
    if (graph->tensors[node->inputs[X]].dtype == SY_DTYPE_I8)
        return true;
    for (int i = 0; i < c->spatial; i++)
        padded = padded || c->pad_left[i] > 0 || c->pad_right[i] > 0;
    return padded && (sy_node_input(node, RUN_ZERO) >= 0 || sy_node_int(node, "zero", 0) != 0);
}

static int read_conv(const struct sy_graph *graph, const struct sy_node *node, int64_t batch,
                     struct sy_conv_shape *c, bool *copied)
{
    SY_TRY(sy_conv_shape_read(graph, node, batch, c));
    *copied = is_copied(graph, node, c);
    for (int i = 0; i < c->spatial; i++)
        if (*copied && (c->pad_left[i] < 0 || c->src[2 + i] + c->pad_right[i] < 1))
            return sy_unsupported(node, "negative padding");
    return SY_OK;
}

static const char *impl_name(const_dnnl_primitive_desc_t pd)
{
    const char *name = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return name;
}

static bool is_vnni(const_dnnl_primitive_desc_t pd)
{
    return strstr(impl_name(pd), "vnni") != NULL;
}

/* oneDNN's older loops for AMX ("jit", unlike "brgconv") execute CPUID in each call, which traps in a virtual machine: 10 to 13 us a convolution. With
 * so few multiplications VNNI is done earlier. */
static bool begins_slowly(const struct sy_conv_shape *c, const_dnnl_primitive_desc_t pd)
{
    double products = (double)sy_conv_rows(c);
    for (int i = 0; i < c->weights_rank; i++)
        products *= (double)c->weights[i];
    return products <= MOST_VNNI_PRODUCTS && strncmp(impl_name(pd), "jit", 3) == 0 &&
           strstr(impl_name(pd), "amx") != NULL;
}

static int make_conv_pd(const struct product *p, const struct sy_conv_shape *c, bool copied,
                        const dnnl_memory_desc_t *weights, dnnl_primitive_desc_t *out)
{
    static const dnnl_dims_t none;
    dnnl_convolution_desc_t desc;
    dnnl_memory_desc_t src, w, bias, dst;
    dnnl_primitive_attr_t attr;
    dnnl_dims_t from;
    int rank = c->spatial + 2;
    for (int i = 0; i < rank; i++)
        from[i] = c->src[i] + (copied && i >= 2 ? c->pad_left[i - 2] + c->pad_right[i - 2] : 0);
    dnnl_memory_desc_init_by_tag(&src, rank, from, dnnl_u8, channels_last(rank));
    dnnl_memory_desc_init_by_tag(&dst, rank, c->dst, p->dst_type, channels_last(rank));
    dnnl_memory_desc_init_by_tag(&w, c->weights_rank, c->weights, dnnl_s8, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&bias, 1, c->bias, dnnl_f32, dnnl_a);
    SY_TRY(sy_dnnl_check_sizes(p->node->name, &src, &w, &dst));
    SY_DNNL(dnnl_dilated_convolution_forward_desc_init(
                &desc, dnnl_forward_inference, dnnl_convolution_direct, &src,
                weights ? weights : &w, p->with_bias ? &bias : NULL, &dst, c->strides, c->dilations,
                copied ? none : c->pad_left, copied ? none : c->pad_right),
            p->node->name);
    SY_TRY(make_attr(p, rank, &attr));
    dnnl_status_t status = dnnl_primitive_desc_create(out, &desc, attr, sy_dnnl_engine(), NULL);
    if (status == dnnl_success && begins_slowly(c, *out))
        sy_dnnl_take_later(out, &desc, attr, sy_dnnl_engine(), is_vnni);
    dnnl_primitive_attr_destroy(attr);
    return sy_dnnl_check(status, "convolution of 8 bits", p->node->name);
}

/* rows x depth times depth x columns. */
static int make_matmul_pd(const struct product *p, int64_t rows, int64_t depth,
                          const dnnl_memory_desc_t *weights, dnnl_primitive_desc_t *out)
{
    dnnl_matmul_desc_t desc;
    dnnl_memory_desc_t src, w, bias, dst;
    dnnl_primitive_attr_t attr;
    sy_dnnl_plain_md_of(&src, dnnl_u8, 2, (int64_t[]){rows, depth});
    sy_dnnl_plain_md_of(&dst, p->dst_type, 2, (int64_t[]){rows, p->columns});
    sy_dnnl_plain_md(&bias, 2, (int64_t[]){1, p->columns});
    dnnl_memory_desc_init_by_tag(&w, 2, (dnnl_dims_t){depth, p->columns}, dnnl_s8,
                                 dnnl_format_tag_any);
    SY_TRY(sy_dnnl_check_sizes(p->node->name, &src, &w, &dst));
    SY_DNNL(dnnl_matmul_desc_init(&desc, &src, weights ? weights : &w, p->with_bias ? &bias : NULL,
                                  &dst),
            p->node->name);
    SY_TRY(make_attr(p, 2, &attr));
    dnnl_status_t status = dnnl_primitive_desc_create(out, &desc, attr, sy_dnnl_engine(), NULL);
    dnnl_primitive_attr_destroy(attr);
    return sy_dnnl_check(status, "matmul of 8 bits", p->node->name);
}

/* ---- packing ---------------------------------------------------------------------------------------- */

static int make_pd_at(const struct sy_graph *graph, const struct product *p, int64_t batch,
                      const dnnl_memory_desc_t *weights, dnnl_primitive_desc_t *out)
{
    if (p->node->op == SY_OP_QUANTIZED_MATMUL) {
        const struct sy_tensor *w = &graph->tensors[p->node->inputs[WEIGHTS]];
        int64_t rows = batch == 8 ? REFERENCE_ROWS : batch;
        return make_matmul_pd(p, rows, w->shape.dims[0].fixed, weights, out);
    }
    struct sy_conv_shape c;
    bool copied;
    SY_TRY(read_conv(graph, p->node, batch, &c, &copied));
    return make_conv_pd(p, &c, copied, weights, out);
}

/* Candidate i: oneDNN's preference at a reference batch; then the classic blocked layout, which it supports at all sizes. *more false: no such. */
static int candidate_layout(const struct sy_graph *graph, const struct product *p, size_t i,
                            dnnl_memory_desc_t *md, bool *more)
{
    const struct sy_tensor *w = &graph->tensors[p->node->inputs[WEIGHTS]];
    dnnl_primitive_desc_t pd;
    *more = true;
    if (i < SY_ARRAY_LEN(reference_batches)) {
        SY_TRY(make_pd_at(graph, p, reference_batches[i], NULL, &pd));
        *md = *sy_dnnl_md(pd, dnnl_query_weights_md);
        dnnl_primitive_desc_destroy(pd);
        return SY_OK;
    }
    *more = p->node->op == SY_OP_QUANTIZED_CONV && w->shape.rank == 4 &&
            sy_node_int(p->node, "group", 1) == 1;
    if (!*more)
        return SY_OK;
    dnnl_dims_t dims;
    for (int d = 0; d < 4; d++)
        dims[d] = w->shape.dims[d].fixed;
    SY_DNNL(dnnl_memory_desc_init_by_tag(md, 4, dims, dnnl_s8, dnnl_OIhw4i16o4i), p->node->name);
    return SY_OK;
}

/* The first candidate for which oneDNN has fast code at all reference batches, since reordering weights in each run costs more than most of these
 * convolutions; else its preference at batch 1. */
static int layout_int8(const struct sy_graph *graph, const struct sy_node *node, int input,
                       dnnl_memory_desc_t *md)
{
    struct product p;
    dnnl_memory_desc_t liked;
    dnnl_primitive_desc_t pd;
    bool fast = false, more = true;
    if (input != WEIGHTS)
        return SY_OK;
    read_product(graph, node, &p);
    SY_TRY(check_product(node, &p));
    for (size_t i = 0; i <= SY_ARRAY_LEN(reference_batches) && !fast; i++) {
        SY_TRY(candidate_layout(graph, &p, i, &liked, &more));
        fast = more;
        for (size_t k = 0; k < SY_ARRAY_LEN(reference_batches) && fast; k++) {
            SY_TRY(make_pd_at(graph, &p, reference_batches[k], &liked, &pd));
            fast = !sy_conv_is_reference(pd);
            dnnl_primitive_desc_destroy(pd);
        }
        if (fast || (more && reference_batches[SY_MIN(i, (size_t)2)] == 1))
            *md = liked;
    }
    return SY_OK;
}

/* oneDNN 2.6 adds the bias before it multiplies by the factors. The sums are what the run's zero point is multiplied with to become that bias. */
static int prepare_int8(const struct sy_graph *graph, const struct sy_node *node, int input,
                        void *out)
{
    const struct sy_tensor *t = &graph->tensors[node->inputs[input]];
    const struct sy_attr *factors = sy_node_attr(node, "factors");
    bool early = input == BIAS && sy_node_input(node, RUN_ZERO) < 0;
    memcpy(out, t->data, t->data_bytes);
    if (input != SUMS && !early)
        return SY_OK;
    float *to = out;
    for (int i = 0; factors && i < factors->n && (size_t)i < t->data_bytes / sizeof *to; i++) {
        if (early && SY_DNNL_BIAS_IS_SCALED)
            to[i] /= factors->floats[i];
        if (input == SUMS && !SY_DNNL_BIAS_IS_SCALED)
            to[i] *= factors->floats[i];
    }
    return SY_OK;
}

/* ---- steps ------------------------------------------------------------------------------------------- */

/* args: sums, zero point, bias. */
static int run_bias(struct sy_program *p, struct sy_step *step)
{
    const float *sums = sy_program_pointer(p, step->args[0].value);
    float zero = (float)*(const uint8_t *)sy_program_pointer(p, step->args[1].value),
          *to = sy_program_pointer(p, step->args[2].value);
    for (int64_t i = 0; i < step->numbers[0]; i++)
        to[i] = -zero * sums[i];
    return SY_OK;
}

static int add_run_bias(struct sy_program *p, const struct product *product, int *out)
{
    int sums, zero;
    SY_TRY(sy_program_input_plain(p, SUMS, &sums));
    SY_TRY(sy_program_input_plain(p, RUN_ZERO, &zero));
    SY_TRY(sy_program_new_value(p, SY_DTYPE_F32, 1, &product->columns, out));
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_bias, (int[]){sums, zero, *out}, 3, &step));
    return sy_step_set_numbers(step, &product->columns, 1);
}

struct arguments {
    int list[9][2], n;
};

static void add_argument(struct arguments *a, int kind, int value)
{
    a->list[a->n][0] = kind;
    a->list[a->n++][1] = value;
}

/* Views the floats of value `from` as `md`. */
static int seen_as(struct sy_program *p, int from, int input, const dnnl_memory_desc_t *md,
                   int *out)
{
    return sy_program_new_alias(p, from, sy_program_node(p)->inputs[input], md, out);
}

/* Bias, factors where they are arguments, and the operands behind; rank: of the result as oneDNN sees it. */
static int add_operands(struct sy_program *p, const struct product *product, int rank,
                        struct arguments *a)
{
    const struct sy_node *node = product->node;
    dnnl_memory_desc_t md;
    int value, behind = 0;
    if (product->with_bias) {
        if (sy_node_input(node, RUN_ZERO) >= 0)
            SY_TRY(add_run_bias(p, product, &value));
        else
            SY_TRY(sy_program_input_plain(p, BIAS, &value));
        sy_dnnl_plain_md(&md, node->op == SY_OP_QUANTIZED_CONV ? 1 : 2,
                         node->op == SY_OP_QUANTIZED_CONV ? &product->columns
                                                          : (int64_t[]){1, product->columns});
        SY_TRY(seen_as(p, value, sy_node_input(node, RUN_ZERO) >= 0 ? SUMS : BIAS, &md, &value));
        add_argument(a, DNNL_ARG_BIAS, value);
    }
    if (SY_DNNL_FACTORS_ARGUMENT) {
        SY_TRY(sy_program_new_value(p, SY_DTYPE_F32, 1, &product->columns, &value));
        p->values[value].place = SY_IN_CONSTANT;
        p->values[value].constant = sy_node_attr(node, "factors")->floats;
        add_argument(a, SY_DNNL_FACTORS_ARGUMENT, value);
    }
    for (int i = 0; i < 2; i++) {
        if (i == 0 ? !product->with_scale : !product->with_late_bias)
            continue;
        int input = i == 0 ? RUN_SCALE : BIAS;
        SY_TRY(sy_program_input_plain(p, input, &value));
        operand_md(product, rank, i == 1, &md);
        SY_TRY(seen_as(p, value, input, &md, &value));
        add_argument(a, DNNL_ARG_ATTR_MULTIPLE_POST_OP(behind) | DNNL_ARG_SRC_1, value);
        behind++;
    }
    return SY_OK;
}

/* ---- convolutions ----------------------------------------------------------------------------------- */

/* args: from, to, zero point of the run (-1: numbers have it). */
static int run_border(struct sy_program *p, struct sy_step *step)
{
    const struct sy_border *b = (const struct sy_border *)step->numbers;
    uint8_t zero = (uint8_t)b->zero;
    if (step->args[2].value >= 0)
        zero = *(const uint8_t *)sy_program_pointer(p, step->args[2].value);
    sy_int8_border(b, zero, sy_program_pointer(p, step->args[0].value),
                   sy_program_pointer(p, step->args[1].value));
    return SY_OK;
}

/* Input X as u8 in layout `md`: `from` with the border, whose value is `zero` or, if that is -1, the border's own. */
static int add_bordered(struct sy_program *p, const struct sy_border *b,
                        const dnnl_memory_desc_t *md, int from, int zero, int *out)
{
    SY_TRY(sy_program_new_laid_out(p, sy_program_node(p)->inputs[X], md, out));
    p->values[*out].dtype = SY_DTYPE_U8;
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_border, (int[]){from, *out, zero}, 3, &step));
    _Static_assert(sizeof *b % sizeof(int64_t) == 0, "stored as numbers");
    return sy_step_set_numbers(step, (const int64_t *)b, (int)(sizeof *b / sizeof(int64_t)));
}

/* The input with its border, u8, channels last. */
static int add_border(struct sy_program *p, const struct sy_conv_shape *c,
                      const dnnl_memory_desc_t *md, int *out)
{
    const struct sy_node *node = sy_program_node(p);
    dnnl_memory_desc_t last;
    int from, zero = -1;
    bool sign = sy_program_input_tensor(p, X)->dtype == SY_DTYPE_I8;
    dnnl_memory_desc_init_by_tag(&last, c->spatial + 2, c->src, sign ? dnnl_s8 : dnnl_u8,
                                 channels_last(c->spatial + 2));
    SY_TRY(sy_program_input_as(p, X, &last, &from));
    if (sy_node_input(node, RUN_ZERO) >= 0)
        SY_TRY(sy_program_input_plain(p, RUN_ZERO, &zero));
    struct sy_border b = {.images = c->src[0],
                          .channels = c->src[1],
                          .flip = sign ? 0x80 : 0,
                          .zero = sy_node_int(node, "zero", 0) + (sign ? 128 : 0)};
    for (int i = 0; i < 3; i++) {
        int at = i - (3 - c->spatial);
        b.size[i] = at < 0 ? 1 : c->src[2 + at];
        b.before[i] = at < 0 ? 0 : c->pad_left[at];
        b.after[i] = at < 0 ? 0 : c->pad_right[at];
    }
    return add_bordered(p, &b, md, from, zero, out);
}

/* Whether other weights' layout would do better: oneDNN has only reference code for the packed one at this size, or code that begins slowly; then weights
 * must not be moved in each run. */
static bool wants_other(const struct sy_conv_shape *c, const_dnnl_primitive_desc_t pd)
{
    return sy_conv_is_reference(pd) ||
           (sy_conv_rows(c) <= SY_KEPT_MOST_ROWS && begins_slowly(c, pd));
}

/* Reference code is slower than any other by orders; of two that begin slowly, the one with the packed weights. */
static bool is_no_gain(const struct sy_conv_shape *c, const_dnnl_primitive_desc_t packed,
                       const_dnnl_primitive_desc_t other)
{
    return sy_conv_is_reference(other) ||
           (!sy_conv_is_reference(packed) && begins_slowly(c, other));
}

/* The packed weights, or reordered to another layout. */
static int choose_weights(struct sy_program *p, const struct product *product,
                          const struct sy_conv_shape *c, bool copied, dnnl_primitive_desc_t *pd,
                          int *weights)
{
    dnnl_primitive_desc_t other;
    SY_TRY(make_conv_pd(product, c, copied, &p->values[*weights].md, pd));
    if (!wants_other(c, *pd))
        return SY_OK;
    int status = make_conv_pd(product, c, copied, NULL, &other);
    if (status < 0 || is_no_gain(c, *pd, other)) {
        if (status == SY_OK)
            dnnl_primitive_desc_destroy(other);
        return SY_OK;
    }
    dnnl_primitive_desc_destroy(*pd);
    *pd = other;
    const dnnl_memory_desc_t md = *sy_dnnl_md(other, dnnl_query_weights_md);
    return sy_program_weights_as(p, *weights, WEIGHTS, &md, sy_conv_rows(c), weights);
}

static int build_quantized_conv(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    struct product product;
    struct sy_conv_shape c;
    struct arguments a = {.n = 0};
    dnnl_primitive_desc_t pd;
    int src, weights, dst;
    bool copied;
    read_product(p->graph, node, &product);
    SY_TRY(check_product(node, &product));
    SY_TRY(read_conv(p->graph, node, p->batch, &c, &copied));
    SY_TRY(sy_program_param(p, WEIGHTS, &weights));
    SY_TRY(choose_weights(p, &product, &c, copied, &pd, &weights));
    const dnnl_memory_desc_t src_md = *sy_dnnl_md(pd, dnnl_query_src_md),
                             dst_md = *sy_dnnl_md(pd, dnnl_query_dst_md);
    int status =
        copied ? add_border(p, &c, &src_md, &src) : sy_program_input_as(p, X, &src_md, &src);
    if (status == SY_OK)
        status = sy_program_new_laid_out(p, node->outputs[0], &dst_md, &dst);
    if (status == SY_OK)
        status = add_operands(p, &product, c.spatial + 2, &a);
    if (status < 0) {
        dnnl_primitive_desc_destroy(pd);
        return status;
    }
    add_argument(&a, DNNL_ARG_SRC, src);
    add_argument(&a, DNNL_ARG_WEIGHTS, weights);
    add_argument(&a, DNNL_ARG_DST, dst);
    sy_program_set_output(p, 0, dst);
    return sy_program_add_primitive(p, pd, (const int(*)[2])a.list, a.n);
}

/* ---- products of matrices ---------------------------------------------------------------------------- */

/* The input as u8 [rows, depth]; signed inputs are copied. */
static int matrix_input(struct sy_program *p, int64_t rows, int64_t depth, int *out)
{
    const struct sy_node *node = sy_program_node(p);
    dnnl_memory_desc_t md;
    int from;
    SY_TRY(sy_program_input_plain(p, X, &from));
    sy_dnnl_plain_md_of(&md, dnnl_u8, 2, (int64_t[]){rows, depth});
    if (sy_program_input_tensor(p, X)->dtype == SY_DTYPE_U8)
        return sy_program_new_alias(p, from, node->inputs[X], &md, out);
    struct sy_border b = {
        .images = rows, .channels = depth, .size = {1, 1, 1}, .flip = 0x80, .zero = 0};
    return add_bordered(p, &b, &md, from, -1, out);
}

static int build_quantized_matmul(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    struct product product;
    struct arguments a = {.n = 0};
    dnnl_primitive_desc_t pd;
    dnnl_memory_desc_t md;
    int64_t rows = 1, dims[SY_MAX_RANK];
    int src, weights, made, dst;
    read_product(p->graph, node, &product);
    SY_TRY(check_product(node, &product));
    sy_program_dims(p, node->outputs[0], dims);
    for (int i = 0; i + 1 < product.rank; i++)
        rows *= dims[i];
    int64_t depth = sy_program_input_tensor(p, WEIGHTS)->shape.dims[0].fixed;
    SY_TRY(sy_program_param(p, WEIGHTS, &weights));
    SY_TRY(matrix_input(p, rows, depth, &src));
    SY_TRY(sy_program_output_plain(p, 0, &made));
    sy_dnnl_plain_md_of(&md, product.dst_type, 2, (int64_t[]){rows, product.columns});
    SY_TRY(sy_program_new_alias(p, made, node->outputs[0], &md, &dst));
    SY_TRY(add_operands(p, &product, 2, &a));
    add_argument(&a, DNNL_ARG_SRC, src);
    add_argument(&a, DNNL_ARG_WEIGHTS, weights);
    add_argument(&a, DNNL_ARG_DST, dst);
    SY_TRY(make_matmul_pd(&product, rows, depth, &p->values[weights].md, &pd));
    return sy_program_add_primitive(p, pd, (const int(*)[2])a.list, a.n);
}

const struct sy_host_op sy_host_ops_int8[] = {
    {.build = build_quantized_conv,
     .layout = layout_int8,
     .prepare = prepare_int8,
     SY_OPS(SY_OP_QUANTIZED_CONV)},
    {.build = build_quantized_matmul,
     .layout = layout_int8,
     .prepare = prepare_int8,
     SY_OPS(SY_OP_QUANTIZED_MATMUL)},
    {.build = sy_build_quantized_sum, SY_OPS(SY_OP_QUANTIZED_SUM)},
    {0}};
