/* Concatenations that grow out of each other (concat_homes.h): one value holds them all, and each part is copied there once. What reads parts where
 * they lie asks for them (sy_program_input_part); for all others a part is a pending value, which becomes a copy when somebody asks. */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/program/channel_layout.h"
#include "workers/host/program/concat_homes.h"

int sy_program_plan_parts(struct sy_program *p)
{
    size_t n = (size_t)p->graph->n_tensors + 1;
    p->homes = malloc(n * sizeof *p->homes);
    p->parts = malloc(n * sizeof *p->parts);
    if (!p->homes || !p->parts)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %d tensors", p->graph->n_tensors);
    for (size_t t = 0; t < n; t++) {
        p->parts[t] = (struct sy_part){.value = -1};
        p->homes[t] = (struct sy_concat_home){.root = -1};
    }
    if (!sy_computes_narrow(p->graph))
        sy_concat_homes_find(p->graph, p->layers, p->n_layers, p->homes);
    return SY_OK;
}

bool sy_program_input_part(struct sy_program *p, int input, struct sy_part *out)
{
    int tensor = sy_program_node(p)->inputs[input];
    if (sy_program_is_param(p, input) || p->native[tensor] < 0 ||
        !p->values[p->native[tensor]].pending)
        return false;
    *out = p->parts[tensor];
    sy_program_touch(p, out->value);
    return true;
}

/* ---- copies ------------------------------------------------------------------------------------------------- */

struct copy {
    struct sy_channel_rows rows;
    int64_t from, to; /* floats from the value's begin */
};

static int run_copy(struct sy_program *p, struct sy_step *step)
{
    const struct copy *c = (const struct copy *)(const void *)step->numbers;
    sy_channel_rows_copy(&c->rows,
                         (const float *)sy_program_pointer(p, step->args[0].value) + c->from,
                         (float *)sy_program_pointer(p, step->args[1].value) + c->to);
    return SY_OK;
}

static int add_copy(struct sy_program *p, const struct copy *copy, int from, int to)
{
    struct sy_step *step = sy_program_add_step(p, run_copy, 2);
    if (!step)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a step");
    sy_step_set(p, step, 0, 0, from);
    sy_step_set(p, step, 1, 0, to);
    _Static_assert(sizeof *copy % sizeof(int64_t) == 0, "stored as numbers");
    return sy_step_set_numbers(step, (const int64_t *)(const void *)copy,
                               (int)(sizeof *copy / sizeof(int64_t)));
}

/* All of `tensor` and channels [first, ...) of `whole`, a value of that layout: the copy from there, or to there. */
static struct copy plan_copy(const struct sy_program *p, int tensor, enum sy_channel_layout layout,
                             int whole, int64_t first, bool to_whole)
{
    struct sy_channel_rows part, dense;
    int64_t dims[SY_MAX_RANK], at, zero;
    int rank = p->graph->tensors[tensor].shape.rank;
    sy_program_dims(p, tensor, dims);
    sy_channel_layout_rows(layout, rank, dims, p->values[whole].dims[1], first, &part, &at);
    sy_channel_layout_rows(layout, rank, dims, dims[1], 0, &dense, &zero);
    struct sy_channel_rows rows = to_whole ? dense : part, *to = to_whole ? &part : &dense;
    rows.to_image = to->to_image;
    rows.to_block = to->to_block;
    rows.to_pixel = to->to_pixel;
    return (struct copy){rows, to_whole ? 0 : at, to_whole ? at : 0};
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
    const struct copy copy = plan_copy(p, tensor, layout, part.value, part.first, false);
    return add_copy(p, &copy, part.value, out);
}

/* ---- the group's value --------------------------------------------------------------------------------------- */

static bool fits_all(const struct sy_program *p, const struct sy_node *node, int64_t channels,
                     int64_t first, enum sy_channel_layout layout)
{
    bool fits = sy_channel_layout_fits(layout, channels) &&
                (first == 0 || sy_channel_layout_fits(layout, first));
    for (int i = 0; fits && i < node->n_inputs; i++)
        fits =
            sy_channel_layout_fits(layout, p->graph->tensors[node->inputs[i]].shape.dims[1].fixed);
    return fits;
}

/* Whether all parts of the group can lie so. */
static bool group_fits(const struct sy_program *p, int root, enum sy_channel_layout layout)
{
    bool fits = true;
    for (int l = 0; fits && l < p->n_layers; l++) {
        const struct sy_node *node = &p->graph->nodes[p->layers[l].node];
        int y = node->op == SY_OP_CONCAT ? node->outputs[0] : -1;
        if (y >= 0 && p->homes[y].root == root)
            fits = fits_all(p, node, p->graph->tensors[y].shape.dims[1].fixed, p->homes[y].first,
                            layout);
    }
    return fits;
}

/* The layout of most channels that come into the group first, if all others can lie so; row-major where nothing else is. */
static enum sy_channel_layout choose_layout(const struct sy_program *p, int root)
{
    const struct sy_node *node = sy_program_node(p);
    enum sy_channel_layout chosen = SY_CHANNELS_ROWS;
    int64_t most = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        int value = sy_program_is_param(p, i) ? -1 : p->native[node->inputs[i]];
        enum sy_channel_layout layout =
            value < 0 ? SY_CHANNELS_OTHER : sy_channel_layout_of(&p->values[value]);
        if (layout > SY_CHANNELS_ROWS && p->values[value].dims[1] > most &&
            group_fits(p, root, layout)) {
            most = p->values[value].dims[1];
            chosen = layout;
        }
    }
    return chosen;
}

/* Made by the first layer that writes there. */
static int take_root(struct sy_program *p, int root, int *out)
{
    int64_t dims[SY_MAX_RANK];
    dnnl_memory_desc_t md;
    *out = p->parts[root].value;
    if (*out >= 0)
        return SY_OK;
    sy_program_dims(p, root, dims);
    SY_TRY(sy_channel_layout_md(choose_layout(p, root), p->graph->tensors[root].shape.rank, dims,
                                &md));
    SY_TRY(sy_program_new_laid_out(p, root, &md, out));
    p->parts[root] = (struct sy_part){.value = *out};
    return SY_OK;
}

/* ---- Concat ---------------------------------------------------------------------------------------------------- */

/* Input `input` to channels [first, ...) of the group, unless it is there. */
static int add_input(struct sy_program *p, int input, int root, int64_t first)
{
    int tensor = sy_program_node(p)->inputs[input], from;
    struct sy_part *part = &p->parts[tensor];
    enum sy_channel_layout layout = sy_channel_layout_of(&p->values[root]);
    int64_t dims[SY_MAX_RANK];
    dnnl_memory_desc_t md;
    if (part->value == root && part->first == first)
        return SY_OK;
    sy_program_dims(p, tensor, dims);
    SY_TRY(sy_channel_layout_md(layout, p->graph->tensors[tensor].shape.rank, dims, &md));
    SY_TRY(sy_program_input_as(p, input, &md, &from));
    const struct copy copy = plan_copy(p, tensor, layout, root, first, true);
    SY_TRY(add_copy(p, &copy, from, root));
    if (part->value < 0 && !sy_program_is_param(p, input))
        *part = (struct sy_part){root, first};
    return SY_OK;
}

/* The node's output, which looks as it will when it is fetched. */
static int add_pending(struct sy_program *p, int tensor, int root)
{
    int64_t dims[SY_MAX_RANK];
    dnnl_memory_desc_t md;
    int out;
    sy_program_dims(p, tensor, dims);
    SY_TRY(sy_channel_layout_md(sy_channel_layout_of(&p->values[root]),
                                p->graph->tensors[tensor].shape.rank, dims, &md));
    SY_TRY(sy_program_new_laid_out(p, tensor, &md, &out));
    p->values[out].pending = true;
    p->values[out].bytes = 0;
    sy_program_set_output(p, 0, out);
    return SY_OK;
}

int sy_program_add_part(struct sy_program *p, bool *built)
{
    const struct sy_node *node = sy_program_node(p);
    int tensor = node->outputs[0], root;
    const struct sy_concat_home home = p->homes[tensor];
    int64_t first = home.first;
    *built = home.root >= 0;
    if (!*built)
        return SY_OK;
    SY_TRY(take_root(p, home.root, &root));
    for (int i = 0; i < node->n_inputs; i++) {
        SY_TRY(add_input(p, i, root, first));
        first += p->graph->tensors[node->inputs[i]].shape.dims[1].fixed;
    }
    sy_program_touch(p, root);
    p->parts[tensor] = (struct sy_part){root, home.first};
    if (tensor == home.root) {
        sy_program_set_output(p, 0, root);
        return SY_OK;
    }
    return add_pending(p, tensor, root);
}
