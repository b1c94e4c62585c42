#include "workers/host/operators/op_winograd.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/operators/late_curve.h"
#include "workers/host/operators/op_blocked.h"
#include "workers/host/products/winograd.h"

struct winograd_step {
    struct sy_winograd shape;
    int n_threads;
    struct sy_winograd_plain form;
    int plain, weights, src, bias, dst; /* values; bias -1: none */
};

static int run_weights(struct sy_program *p, struct sy_step *step)
{
    const struct winograd_step *s = step->state;
    struct sy_winograd_plain plain = s->form;
    plain.at = sy_program_pointer(p, s->plain);
    sy_winograd_weights(&s->shape, s->n_threads, &plain, sy_program_pointer(p, s->weights));
    return SY_OK;
}

static int run_winograd(struct sy_program *p, struct sy_step *step)
{
    const struct winograd_step *s = step->state;
    char *scratch = (char *)p->binding->workspace + p->scratch_offset;
    sy_winograd_run(&s->shape, s->n_threads, sy_program_pointer(p, s->src),
                    sy_program_pointer(p, s->weights),
                    s->bias >= 0 ? sy_program_pointer(p, s->bias) : NULL,
                    sy_program_pointer(p, s->dst), (float *)(void *)scratch);
    return SY_OK;
}

/* Limits of what it clamps to; false: an activation of another form. */
static bool read_limits(const struct sy_node *node, float *low, float *high)
{
    bool clip = node->activation == SY_ACT_CLIP;
    *low = clip ? node->act_alpha : node->activation == SY_ACT_RELU ? 0 : -INFINITY;
    *high = clip ? node->act_beta : INFINITY;
    return clip || node->activation == SY_ACT_RELU || node->activation == SY_ACT_NONE;
}

/* 3x3, stride 1, float32; not of whole numbers, whose plain sums are exact. */
static bool read_shape(const struct sy_node *node, const struct sy_conv_shape *c,
                       struct sy_winograd *w)
{
    bool fits = c->spatial == 2 && c->groups == 1 && c->type == dnnl_f32 &&
                c->dst_type == dnnl_f32 && c->weights[2] == 3 && c->weights[3] == 3 &&
                c->strides[0] == 1 && c->strides[1] == 1 && c->dilations[0] == 0 &&
                c->dilations[1] == 0 && c->pad_left[0] >= 0 && c->pad_left[1] >= 0;
    for (int i = 0; i < 4; i++)
        fits = fits && c->src[i] > 0 && c->dst[i] > 0;
    *w = (struct sy_winograd){.images = c->src[0],
                              .height = c->src[2],
                              .width = c->src[3],
                              .channels = c->src[1],
                              .out_height = c->dst[2],
                              .out_width = c->dst[3],
                              .filters = c->dst[1],
                              .pad_top = c->pad_left[0],
                              .pad_left = c->pad_left[1],
                              .adds = node->residual_input >= 0};
    return fits && !sy_node_int(node, "whole", 0);
}

static int new_floats(struct sy_program *p, int64_t n, int *out)
{
    return sy_program_new_value(p, SY_DTYPE_F32, 1, &n, out);
}

static int add_step(struct sy_program *p, sy_step_run run, const struct winograd_step *s)
{
    const int values[] = {s->plain, s->weights, s->src, s->bias, s->dst};
    return sy_program_add_own_step(p, run, s, sizeof *s, values, SY_ARRAY_LEN(values));
}

/* Which of the layouts that can be transformed as they lie `md` is; false: none of them. */
static bool read_form(const struct sy_conv_shape *c, const dnnl_memory_desc_t *md,
                      struct sy_winograd_plain *form)
{
    static const struct {
        dnnl_format_tag_t tag;
        int64_t block; /* 0: none */
    } forms[] = {{dnnl_hwio, 0}, {dnnl_OIhw8i8o, 8}, {dnnl_OIhw16i16o, 16}};
    if (md->data_type != dnnl_f32 && md->data_type != dnnl_bf16)
        return false; /* from a damaged package: the reorder reads what is there */
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        dnnl_memory_desc_t other;
        int64_t block = forms[i].block, filters = block ? block : c->weights[0],
                channels = block ? block : c->weights[1];
        if (block % sy_winograd_lanes() != 0 ||
            dnnl_memory_desc_init_by_tag(&other, 4, c->weights, md->data_type, forms[i].tag) !=
                dnnl_success ||
            !dnnl_memory_desc_equal(md, &other))
            continue;
        *form = (struct sy_winograd_plain){.narrow = md->data_type == dnnl_bf16,
                                           .filters = filters,
                                           .channels = channels,
                                           .tap_step = filters * channels,
                                           .channel_step = 9 * filters * channels};
        form->filter_step = form->channel_step * ((c->weights[1] + channels - 1) / channels);
        return true;
    }
    return false;
}

/* The weights as they are stored if they can be read so, else as [3][3][channels][filters]; then transformed. */
static int add_weights(struct sy_program *p, const struct sy_conv_shape *c, struct winograd_step *s)
{
    const struct sy_node *node = sy_program_node(p);
    dnnl_memory_desc_t md;
    int packed;
    SY_TRY(sy_program_stored_param(p, 1, &s->plain));
    if (!read_form(c, &p->values[s->plain].md, &s->form)) {
        SY_TRY(sy_program_param(p, 1, &packed));
        SY_DNNL(dnnl_memory_desc_init_by_tag(&md, 4, c->weights, dnnl_f32, dnnl_hwio), node->name);
        SY_TRY(sy_program_new_laid_out(p, node->inputs[1], &md, &s->plain));
        SY_TRY(sy_program_add_reorder(p, packed, s->plain));
        if (!read_form(c, &md, &s->form))
            return sy_error_set(SY_EBUG, "node %s: weights as hwio are not", node->name);
    }
    SY_TRY(new_floats(p, sy_winograd_weights_floats(&s->shape), &s->weights));
    return add_step(p, run_weights, s);
}

static int add_activation(struct sy_program *p, const struct sy_conv_shape *c, int value)
{
    const struct sy_node *node = sy_program_node(p);
    dnnl_eltwise_desc_t desc;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_attr_t attr;
    float alpha, beta;
    dnnl_alg_kind_t kind = sy_dnnl_activation(node, &alpha, &beta);
    dnnl_memory_desc_t md = p->values[value].md;
    struct sy_curve curve;
    if (sy_late_curve_is_gain(node, sy_conv_elements(c->dst, c->spatial), &curve))
        return sy_late_curve_add(p, value, &curve);
    SY_DNNL(dnnl_eltwise_forward_desc_init(&desc, dnnl_forward_inference, kind, &md, alpha, beta),
            node->name);
    SY_DNNL(dnnl_primitive_attr_create(&attr), node->name);
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    dnnl_status_t status = dnnl_primitive_desc_create(&pd, &desc, attr, sy_dnnl_engine(), NULL);
    dnnl_primitive_attr_destroy(attr);
    SY_DNNL(status, node->name);
    const int args[][2] = {{DNNL_ARG_SRC, value}, {DNNL_ARG_DST, value}};
    return sy_program_add_primitive(p, pd, args, 2);
}

int sy_winograd_build(struct sy_program *p, const struct sy_conv_shape *c, bool *built)
{
    const struct sy_node *node = sy_program_node(p);
    struct winograd_step s = {.n_threads = omp_get_max_threads(),
                              .plain = -1,
                              .weights = -1,
                              .src = -1,
                              .bias = -1,
                              .dst = -1};
    dnnl_memory_desc_t src_md, dst_md;
    *built = read_shape(node, c, &s.shape) && sy_winograd_is_gain(&s.shape);
    if (!*built)
        return SY_OK;
    bool limits_do = read_limits(node, &s.shape.low, &s.shape.high);
    /* With AVX-512 oneDNN's blocks are of 16. */
    s.shape.blocked = sy_winograd_lanes() == 8 && c->src[1] % 8 == 0 && c->dst[1] % 8 == 0;
    dnnl_format_tag_t tag = s.shape.blocked ? dnnl_nChw8c : dnnl_nhwc;
    SY_DNNL(dnnl_memory_desc_init_by_tag(&src_md, 4, c->src, dnnl_f32, tag), node->name);
    SY_DNNL(dnnl_memory_desc_init_by_tag(&dst_md, 4, c->dst, dnnl_f32, tag), node->name);
    SY_TRY(add_weights(p, c, &s));
    SY_TRY(sy_program_input_as(p, 0, &src_md, &s.src));
    if (sy_conv_has_bias(node))
        SY_TRY(sy_program_input_plain(p, 2, &s.bias));
    SY_TRY(sy_conv_place_output(p, &dst_md, &s.dst));
    sy_program_set_output(p, 0, s.dst);
    uint64_t floats = (uint64_t)sy_winograd_scratch_floats(&s.shape, s.n_threads);
    p->scratch_bytes = SY_MAX(p->scratch_bytes, floats * sizeof(float));
    SY_TRY(add_step(p, run_winograd, &s));
    if (sy_activation_is_own(node, c->dst_type))
        return sy_program_add_activation(p, s.dst);
    return limits_do ? SY_OK : add_activation(p, c, s.dst);
}
