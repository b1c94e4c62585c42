/* Concatenations that grow out of each other (concat_homes.h): one value holds them all, and each part is copied there once. What reads parts where
 * they lie asks for them (sy_program_input_part); for all others a part is a pending value, which becomes a copy when somebody asks. */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/program/channel_layout.h"
#include "workers/host/program/concat_homes.h"
#include "workers/host/program/program_part_copy.h"

int sy_program_plan_parts(struct sy_program *p)
{
    size_t n = (size_t)p->graph->n_tensors + 1;
    p->homes = malloc(n * sizeof *p->homes);
    p->parts = malloc(n * sizeof *p->parts);
    SY_TRY_ALLOC(p->homes && p->parts, "no memory for %d tensors", p->graph->n_tensors);
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

/* Made by the first layer that writes there. -1: a Concat by itself of row-major inputs. */
static int take_root(struct sy_program *p, int root, int *out)
{
    int64_t dims[SY_MAX_RANK];
    dnnl_memory_desc_t md;
    *out = p->parts[root].value;
    if (*out >= 0)
        return SY_OK;
    enum sy_channel_layout layout = choose_layout(p, root);
    if (layout == SY_CHANNELS_ROWS && !p->homes[root].joined)
        return SY_OK;
    sy_program_dims(p, root, dims);
    SY_TRY(sy_channel_layout_md(layout, p->graph->tensors[root].shape.rank, dims, &md));
    SY_TRY(sy_program_new_laid_out(p, root, &md, out));
    p->parts[root] = (struct sy_part){.value = *out};
    return SY_OK;
}

/* ---- Concat ---------------------------------------------------------------------------------------------------- */

/* Input `input` in this layout: a part of another value of that layout, or all of one. */
static int take_input(struct sy_program *p, int input, enum sy_channel_layout layout,
                      struct sy_part *from)
{
    int64_t dims[SY_MAX_RANK];
    dnnl_memory_desc_t md;
    int tensor = sy_program_node(p)->inputs[input];
    if (sy_program_input_part(p, input, from) &&
        sy_channel_layout_of(&p->values[from->value]) == layout)
        return SY_OK;
    sy_program_dims(p, tensor, dims);
    SY_TRY(sy_channel_layout_md(layout, p->graph->tensors[tensor].shape.rank, dims, &md));
    *from = (struct sy_part){.first = 0};
    return sy_program_input_as(p, input, &md, &from->value);
}

/* Input `input` to channels [first, ...) of the group, unless it is there. */
static int add_input(struct sy_program *p, int input, int root, int64_t first)
{
    int tensor = sy_program_node(p)->inputs[input];
    enum sy_channel_layout layout = sy_channel_layout_of(&p->values[root]);
    const struct sy_part to = {root, first};
    struct sy_part from;
    if (p->parts[tensor].value == root && p->parts[tensor].first == first)
        return SY_OK;
    SY_TRY(take_input(p, input, layout, &from));
    const struct sy_part_copy copy = sy_part_copy_plan(p, tensor, layout, from, to);
    SY_TRY(sy_part_copy_add(p, &copy, from.value, root));
    if (p->parts[tensor].value < 0 && !sy_program_is_param(p, input))
        p->parts[tensor] = to;
    return SY_OK;
}

int sy_program_show_part(struct sy_program *p, int output, int value, int64_t first)
{
    int64_t dims[SY_MAX_RANK];
    dnnl_memory_desc_t md;
    int tensor = sy_program_node(p)->outputs[output], out;
    sy_program_dims(p, tensor, dims);
    SY_TRY(sy_channel_layout_md(sy_channel_layout_of(&p->values[value]),
                                p->graph->tensors[tensor].shape.rank, dims, &md));
    SY_TRY(sy_program_new_laid_out(p, tensor, &md, &out));
    p->values[out].pending = true;
    p->values[out].bytes = 0;
    sy_program_touch(p, value);
    p->parts[tensor] = (struct sy_part){value, first};
    sy_program_set_output(p, output, out);
    return SY_OK;
}

bool sy_program_shows_parts(const struct sy_program *p, int value, const int64_t *channels, int n)
{
    const struct sy_value *v = &p->values[value];
    enum sy_channel_layout layout = sy_channel_layout_of(v);
    int64_t first = 0;
    bool fits = layout > SY_CHANNELS_ROWS && v->place == SY_IN_WORKSPACE;
    for (int i = 0; fits && i < n; i++) {
        fits = sy_channel_layout_fits(layout, channels[i]) &&
               (first == 0 || sy_channel_layout_fits(layout, first));
        first += channels[i];
    }
    return fits;
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
    *built = root >= 0;
    if (!*built)
        return SY_OK;
    for (int i = 0; i < node->n_inputs; i++) {
        SY_TRY(add_input(p, i, root, first));
        first += p->graph->tensors[node->inputs[i]].shape.dims[1].fixed;
    }
    if (tensor != home.root)
        return sy_program_show_part(p, 0, root, home.first);
    sy_program_touch(p, root);
    sy_program_set_output(p, 0, root);
    return SY_OK;
}
