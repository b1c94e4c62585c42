#include "workers/host/operators/op_depthwise.h"

#include <omp.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/operators/late_curve.h"
#include "workers/host/program/kept_weights.h"

struct depthwise_step {
    struct sy_depthwise shape;
    int64_t images, height, out_height, pad_top, rows; /* rows of the result per piece */
    int n_threads;
    int src, weights, bias, dst; /* values; bias -1: none */
};

bool sy_depthwise_read(const struct sy_node *node, const struct sy_conv_shape *c,
                       struct sy_depthwise *d)
{
    bool fits = c->spatial == 2 && c->groups > 1 && c->groups == c->src[1] &&
                c->weights_rank == 5 && c->weights[1] == 1 && c->weights[2] == 1 &&
                c->type == dnnl_f32 && c->dst_type == dnnl_f32 && node->residual_input < 0;
    for (int i = 0; i < 4; i++)
        fits = fits && c->src[i] > 0 && c->dst[i] > 0;
    for (int i = 0; i < 2; i++)
        fits = fits && c->weights[3 + i] > 0 && c->strides[i] > 0 && c->dilations[i] >= 0;
    if (!fits || !sy_dnnl_has_avx512())
        return false;
    *d = (struct sy_depthwise){.channels = c->src[1],
                               .height = c->src[2],
                               .width = c->src[3],
                               .out_height = c->dst[2],
                               .out_width = c->dst[3],
                               .kernel = {c->weights[3], c->weights[4]},
                               .strides = {c->strides[0], c->strides[1]},
                               .dilations = {c->dilations[0] + 1, c->dilations[1] + 1},
                               .pad_left = c->pad_left[1]};
    d->is_curved = sy_fused_curve_read(node, &d->curve);
    return true;
}

int sy_depthwise_weights_md(const struct sy_node *node, const struct sy_conv_shape *c,
                            dnnl_memory_desc_t *md)
{
    SY_DNNL(dnnl_memory_desc_init_by_tag(md, 5, c->weights, dnnl_f32, dnnl_Goihw16g), node->name);
    return SY_OK;
}

static int run_depthwise(struct sy_program *p, struct sy_step *step)
{
    const struct depthwise_step *s = step->state;
    const struct sy_depthwise *d = &s->shape;
    const float *src = sy_program_pointer(p, s->src), *weights = sy_program_pointer(p, s->weights),
                *bias = s->bias >= 0 ? sy_program_pointer(p, s->bias) : NULL;
    float *dst = sy_program_pointer(p, s->dst);
    int64_t pieces = (d->out_height + s->rows - 1) / s->rows;
    int64_t step_of_pixel = d->is_blocked ? SY_DEPTHWISE_LANES : d->channels;
#pragma omp parallel for num_threads(s->n_threads) schedule(static)
    for (int64_t i = 0; i < s->images * pieces; i++) {
        int64_t image = i / pieces, from = i % pieces * s->rows,
                to = SY_MIN(from + s->rows, d->out_height);
        int64_t first = from * d->strides[0] - s->pad_top, above = SY_MAX(first, 0);
        struct sy_depthwise_rows rows = {.weights = weights,
                                         .bias = bias,
                                         .src = src + image * d->height * d->width * d->channels +
                                                above * d->width * step_of_pixel,
                                         .n_src = d->height - above,
                                         .pad_top = above - first,
                                         .dst = dst +
                                                image * d->out_height * d->out_width * d->channels +
                                                from * d->out_width * step_of_pixel,
                                         .n = to - from};
        sy_depthwise_run(d, &rows);
    }
    return SY_OK;
}

/* Balances reuse of the weights against an equal number of pieces per thread. */
static int64_t rows_of_piece(const struct depthwise_step *s)
{
    int64_t share = s->images % s->n_threads == 0 ? s->shape.out_height
                                                  : SY_MAX(1, s->shape.out_height / s->n_threads);
    return SY_MIN(share, SY_MAX(1, (s->shape.out_height + 7) / 8));
}

static int add_step(struct sy_program *p, const struct depthwise_step *s)
{
    const int values[] = {s->src, s->weights, s->bias, s->dst};
    return sy_program_add_own_step(p, run_depthwise, s, sizeof *s, values, SY_ARRAY_LEN(values));
}

int sy_depthwise_build(struct sy_program *p, const struct sy_conv_shape *c, bool *built)
{
    const struct sy_node *node = sy_program_node(p);
    struct depthwise_step s = {.images = c->src[0],
                               .pad_top = c->pad_left[0],
                               .n_threads = omp_get_max_threads(),
                               .bias = -1};
    dnnl_memory_desc_t src_md, dst_md, weights_md;
    int packed, native;
    *built = sy_depthwise_read(node, c, &s.shape);
    if (!*built)
        return SY_OK;
    s.rows = rows_of_piece(&s);
    SY_TRY(sy_program_input_native(p, 0, &native));
    SY_DNNL(dnnl_memory_desc_init_by_tag(&src_md, 4, c->src, dnnl_f32, dnnl_nChw16c), node->name);
    s.shape.is_blocked = c->src[1] % SY_DEPTHWISE_LANES == 0 &&
                         dnnl_memory_desc_equal(&p->values[native].md, &src_md);
    dnnl_format_tag_t tag = s.shape.is_blocked ? dnnl_nChw16c : dnnl_nhwc;
    SY_DNNL(dnnl_memory_desc_init_by_tag(&src_md, 4, c->src, dnnl_f32, tag), node->name);
    SY_DNNL(dnnl_memory_desc_init_by_tag(&dst_md, 4, c->dst, dnnl_f32, tag), node->name);
    SY_TRY(sy_depthwise_weights_md(node, c, &weights_md));
    SY_TRY(sy_program_param(p, 1, &packed));
    SY_TRY(sy_program_weights_as(p, packed, 1, &weights_md, sy_conv_rows(c), &s.weights));
    SY_TRY(sy_program_input_as(p, 0, &src_md, &s.src));
    if (sy_conv_has_bias(node))
        SY_TRY(sy_program_input_plain(p, 2, &s.bias));
    SY_TRY(sy_program_new_laid_out(p, node->outputs[0], &dst_md, &s.dst));
    sy_program_set_output(p, 0, s.dst);
    return add_step(p, &s);
}
