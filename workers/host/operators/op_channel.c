/* ChannelAffine: batch normalisation in front of its Relu (loader/fuse/fuse_affine.c), in the layout that the input has. */
#include <math.h>

#include "runtime/base/status.h"
#include "workers/host/program/channel_layout.h"
#include "workers/host/program/program_internal.h"

/* Part of a larger value, or in the layout that it has, or row-major; the result lies as `md` says. */
static int take_input(struct sy_program *p, int *src, struct sy_channel_rows *r, int64_t *offset,
                      dnnl_memory_desc_t *md)
{
    const struct sy_tensor *t = sy_program_input_tensor(p, 0);
    struct sy_channel_rows dense;
    struct sy_part part;
    int64_t dims[SY_MAX_RANK], none, whole;
    int rank = t->shape.rank;
    enum sy_channel_layout layout;
    sy_program_dims(p, sy_program_node(p)->inputs[0], dims);
    bool is_part = sy_program_input_part(p, 0, &part);
    if (!is_part)
        SY_TRY(sy_program_input_native(p, 0, &part.value));
    layout = sy_channel_layout_of(&p->values[part.value]);
    if (layout == SY_CHANNELS_OTHER) {
        SY_TRY(sy_program_input_plain(p, 0, &part.value));
        layout = SY_CHANNELS_ROWS;
    }
    *src = part.value;
    *md = p->values[*src].md;
    if (is_part)
        SY_TRY(sy_channel_layout_md(layout, rank, dims, md));
    whole = p->values[*src].dims[1];
    sy_channel_layout_rows(layout, rank, dims, whole, is_part ? part.first : 0, r, offset);
    sy_channel_layout_rows(layout, rank, dims, dims[1], 0, &dense, &none);
    r->to_image = dense.to_image;
    r->to_block = dense.to_block;
    r->to_pixel = dense.to_pixel;
    return SY_OK;
}

static int run_channel(struct sy_program *p, struct sy_step *step)
{
    const int64_t offset = step->numbers[sizeof(struct sy_channel_rows) / sizeof(int64_t)];
    sy_channel_rows_run((const struct sy_channel_rows *)step->numbers,
                        (const float *)sy_program_pointer(p, step->args[0].value) + offset,
                        sy_program_pointer(p, step->args[1].value),
                        sy_program_pointer(p, step->args[2].value), step->floats[0],
                        step->floats[1], sy_program_pointer(p, step->args[3].value));
    return SY_OK;
}

static int add_step(struct sy_program *p, const struct sy_channel_rows *r, int64_t offset,
                    const int *values)
{
    const struct sy_node *node = sy_program_node(p);
    bool clip = node->activation == SY_ACT_CLIP;
    float low = clip ? node->act_alpha : node->activation == SY_ACT_RELU ? 0 : -INFINITY;
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_channel, values, 4, &step));
    SY_TRY(sy_step_set_floats(step, (float[]){low, clip ? node->act_beta : INFINITY}, 2));
    struct {
        struct sy_channel_rows rows;
        int64_t offset;
    } numbers = {*r, offset};
    _Static_assert(sizeof numbers % sizeof(int64_t) == 0, "stored as numbers");
    return sy_step_set_numbers(step, (const int64_t *)(const void *)&numbers,
                               (int)(sizeof numbers / sizeof(int64_t)));
}

/* Over the input where nothing reads it afterwards. */
static int build_channel(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    struct sy_channel_rows r;
    dnnl_memory_desc_t md;
    int64_t offset;
    int values[4];
    if (sy_program_input_tensor(p, 0)->dtype != SY_DTYPE_F32 || node->n_inputs != 3 ||
        sy_program_input_tensor(p, 0)->shape.rank < 2 || node->residual_input >= 0)
        return sy_unsupported(node, "other than float32 of two dimensions and more");
    if (node->activation != SY_ACT_NONE && node->activation != SY_ACT_RELU &&
        node->activation != SY_ACT_CLIP)
        return sy_unsupported(node, "this activation");
    SY_TRY(take_input(p, &values[0], &r, &offset, &md));
    for (int i = 1; i < 3; i++) {
        SY_TRY(sy_program_input_plain(p, i, &values[i]));
        if (p->values[values[i]].bytes != (uint64_t)(r.blocks * r.block) * sizeof(float))
            return sy_unsupported(node, "a parameter that has not one float per channel");
    }
    int tensor = node->outputs[0];
    if (dnnl_memory_desc_equal(&md, &p->values[values[0]].md) &&
        sy_program_is_last_use(p, 0, values[0]))
        SY_TRY(sy_program_new_alias(p, values[0], tensor, &md, &values[3]));
    else
        SY_TRY(sy_program_new_laid_out(p, tensor, &md, &values[3]));
    sy_program_set_output(p, 0, values[3]);
    return add_step(p, &r, offset, values);
}

const struct sy_host_op sy_host_ops_channel[] = {
    {.build = build_channel, SY_OPS(SY_OP_CHANNEL_AFFINE)}, {0}};
