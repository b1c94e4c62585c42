#include "workers/host/program/program_part_copy.h"

#include "runtime/base/status.h"

static int run_copy(struct sy_program *p, struct sy_step *step)
{
    const struct sy_part_copy *c = (const struct sy_part_copy *)(const void *)step->numbers;
    sy_channel_rows_copy(&c->rows,
                         (const float *)sy_program_pointer(p, step->args[0].value) + c->from,
                         (float *)sy_program_pointer(p, step->args[1].value) + c->to);
    return SY_OK;
}

int sy_part_copy_add(struct sy_program *p, const struct sy_part_copy *copy, int from, int to)
{
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_copy, (int[]){from, to}, 2, &step));
    _Static_assert(sizeof *copy % sizeof(int64_t) == 0, "stored as numbers");
    return sy_step_set_numbers(step, (const int64_t *)(const void *)copy,
                               (int)(sizeof *copy / sizeof(int64_t)));
}

struct sy_part_copy sy_part_copy_plan(const struct sy_program *p, int tensor,
                                      enum sy_channel_layout layout, struct sy_part from,
                                      struct sy_part to)
{
    struct sy_channel_rows target;
    struct sy_part_copy copy;
    int64_t dims[SY_MAX_RANK];
    int rank = p->graph->tensors[tensor].shape.rank;
    sy_program_dims(p, tensor, dims);
    sy_channel_layout_rows(layout, rank, dims, p->values[from.value].dims[1], from.first,
                           &copy.rows, &copy.from);
    sy_channel_layout_rows(layout, rank, dims, p->values[to.value].dims[1], to.first, &target,
                           &copy.to);
    copy.rows.to_image = target.to_image;
    copy.rows.to_block = target.to_block;
    copy.rows.to_pixel = target.to_pixel;
    return copy;
}

int sy_program_fetch(struct sy_program *p, int tensor)
{
    const struct sy_part part = p->parts[tensor];
    enum sy_channel_layout layout = sy_channel_layout_of(&p->values[part.value]);
    int64_t dims[SY_MAX_RANK];
    dnnl_memory_desc_t md;
    int out;
    sy_program_dims(p, tensor, dims);
    SY_TRY(sy_channel_layout_md(layout, p->graph->tensors[tensor].shape.rank, dims, &md));
    SY_TRY(sy_program_new_laid_out(p, tensor, &md, &out));
    p->native[tensor] = out;
    const struct sy_part_copy copy =
        sy_part_copy_plan(p, tensor, layout, part, (struct sy_part){.value = out});
    return sy_part_copy_add(p, &copy, part.value, out);
}
