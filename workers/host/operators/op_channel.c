/* ChannelAffine: batch normalisation in front of its Relu (loader/fuse/fuse_affine.c), in the layout that the input has. */
#include <math.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/program/program_internal.h"
#include "workers/host/rows/channel_rows.h"

/* Channels last, or in whole blocks of 16 or 8; else *block stays 1. */
static int find_block(const struct sy_node *node, const struct sy_value *v, int64_t *block)
{
    static const struct {
        dnnl_format_tag_t tags[SY_MAX_RANK + 1]; /* by rank */
        int64_t block;                           /* 0: all channels */
    } forms[] = {{{[3] = dnnl_nwc, [4] = dnnl_nhwc, [5] = dnnl_ndhwc}, 0},
                 {{[3] = dnnl_nCw16c, [4] = dnnl_nChw16c, [5] = dnnl_nCdhw16c}, 16},
                 {{[3] = dnnl_nCw8c, [4] = dnnl_nChw8c, [5] = dnnl_nCdhw8c}, 8}};
    *block = 1;
    if (v->rank < 3 || v->rank > 5)
        return SY_OK;
    for (size_t i = 0; i < SY_ARRAY_LEN(forms); i++) {
        dnnl_memory_desc_t md;
        int64_t width = forms[i].block ? forms[i].block : v->dims[1];
        dnnl_dims_t dims = {0};
        memcpy(dims, v->dims, (size_t)v->rank * sizeof *dims);
        SY_DNNL(dnnl_memory_desc_init_by_tag(&md, v->rank, dims, dnnl_f32, forms[i].tags[v->rank]),
                node->name);
        if (v->dims[1] % width == 0 && dnnl_memory_desc_equal(&md, &v->md)) {
            *block = width;
            return SY_OK;
        }
    }
    return SY_OK;
}

/* In the layout that it has, or row-major. */
static int take_input(struct sy_program *p, int *src, struct sy_channel_rows *r)
{
    const struct sy_node *node = sy_program_node(p);
    int64_t block = 1;
    SY_TRY(sy_program_input_native(p, 0, src));
    if (!sy_value_is_narrow(&p->values[*src]) && !sy_program_is_plain(&p->values[*src]))
        SY_TRY(find_block(node, &p->values[*src], &block));
    if (block == 1)
        SY_TRY(sy_program_input_plain(p, 0, src));
    const struct sy_value *x = &p->values[*src];
    int64_t pixels = 1;
    for (int i = 2; i < x->rank; i++)
        pixels *= x->dims[i];
    *r = (struct sy_channel_rows){.images = x->dims[0],
                                  .blocks = x->dims[1] / block,
                                  .pixels = pixels,
                                  .block = block,
                                  .from_image = x->dims[1] * pixels,
                                  .from_block = pixels * block,
                                  .from_pixel = block};
    return SY_OK;
}

static int run_channel(struct sy_program *p, struct sy_step *step)
{
    sy_channel_rows_run(
        (const struct sy_channel_rows *)step->numbers, sy_program_pointer(p, step->args[0].value),
        sy_program_pointer(p, step->args[1].value), sy_program_pointer(p, step->args[2].value),
        step->floats[0], step->floats[1], sy_program_pointer(p, step->args[3].value));
    return SY_OK;
}

static int add_step(struct sy_program *p, const struct sy_channel_rows *r, const int *values)
{
    const struct sy_node *node = sy_program_node(p);
    bool clip = node->activation == SY_ACT_CLIP;
    float low = clip ? node->act_alpha : node->activation == SY_ACT_RELU ? 0 : -INFINITY;
    struct sy_step *step = sy_program_add_step(p, run_channel, 4);
    if (!step)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a step");
    for (int i = 0; i < 4; i++)
        sy_step_set(p, step, i, 0, values[i]);
    SY_TRY(sy_step_set_floats(step, (float[]){low, clip ? node->act_beta : INFINITY}, 2));
    _Static_assert(sizeof *r % sizeof(int64_t) == 0, "stored as numbers");
    return sy_step_set_numbers(step, (const int64_t *)r, (int)(sizeof *r / sizeof(int64_t)));
}

/* Over the input where nothing reads it afterwards. */
static int build_channel(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    struct sy_channel_rows r;
    int values[4];
    if (sy_program_input_tensor(p, 0)->dtype != SY_DTYPE_F32 || node->n_inputs != 3 ||
        sy_program_input_tensor(p, 0)->shape.rank < 2 || node->residual_input >= 0)
        return sy_unsupported(node, "other than float32 of two dimensions and more");
    if (node->activation != SY_ACT_NONE && node->activation != SY_ACT_RELU &&
        node->activation != SY_ACT_CLIP)
        return sy_unsupported(node, "this activation");
    SY_TRY(take_input(p, &values[0], &r));
    for (int i = 1; i < 3; i++) {
        SY_TRY(sy_program_input_plain(p, i, &values[i]));
        if (p->values[values[i]].bytes != (uint64_t)p->values[values[0]].dims[1] * sizeof(float))
            return sy_unsupported(node, "a parameter that has not one float per channel");
    }
    dnnl_memory_desc_t md = p->values[values[0]].md;
    int tensor = node->outputs[0];
    if (sy_program_is_last_use(p, 0, values[0]))
        SY_TRY(sy_program_new_alias(p, values[0], tensor, &md, &values[3]));
    else
        SY_TRY(sy_program_new_laid_out(p, tensor, &md, &values[3]));
    sy_program_set_output(p, 0, values[3]);
    return add_step(p, &r, values);
}

const struct sy_host_op sy_host_ops_channel[] = {{SY_OP_CHANNEL_AFFINE, build_channel, NULL, NULL},
                                                 {0}};
