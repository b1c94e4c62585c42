#include "workers/cuda/math/deconv_node.h"

#include <string.h>

#include "runtime/base/assert.h"

/* Whether equal padding on both sides leads from y to x. */
static bool is_symmetric(const struct sy_math_conv *c)
{
    for (int i = 0; i < SY_MATH_SPATIAL; i++) {
        int64_t room = c->in[i] + 2 * c->pads[i] - (c->kernel[i] - 1) * c->dilations[i] - 1;
        if (room < 0 || room / c->strides[i] + 1 != c->out[i])
            return false;
    }
    return true;
}

static void without_pads(struct sy_deconv_node *d)
{
    struct sy_math_conv *c = &d->conv;
    d->padded = true;
    for (int k = 0; k < SY_MATH_SPATIAL; k++) {
        d->pad_left[k] = c->pads[k];
        c->in[k] = (c->out[k] - 1) * c->strides[k] + (c->kernel[k] - 1) * c->dilations[k] + 1;
        c->pads[k] = 0;
    }
}

const char *sy_deconv_node_read(const struct sy_node *node, int rank, const int64_t *x,
                                const int64_t *weights, const int64_t *y,
                                struct sy_deconv_node *out)
{
    struct sy_math_conv *c = &out->conv;
    if (rank < 3 || rank > 5)
        return "other than 1 to 3 spatial dimensions";
    *out = (struct sy_deconv_node){.conv = {.direction = SY_MATH_DATA,
                                            .spatial = SY_MAX(rank - 2, 2),
                                            .batch = x[0],
                                            .in_channels = y[1],
                                            .out_channels = x[1],
                                            .groups = sy_node_int(node, "group", 1),
                                            .in = {1, 1, 1},
                                            .out = {1, 1, 1},
                                            .kernel = {1, 1, 1},
                                            .strides = {1, 1, 1},
                                            .dilations = {1, 1, 1}}};
    if (c->groups < 1 || weights[0] != x[1] || weights[1] * c->groups != y[1] || x[1] % c->groups)
        return "weights, channels and groups that do not fit together";
    for (int i = 0; i < rank - 2; i++) {
        int k = rank == 3 ? 1 : i;
        c->in[k] = y[2 + i];
        c->out[k] = x[2 + i];
        c->kernel[k] = weights[2 + i];
        c->strides[k] = sy_node_int_at(node, "strides", i, 1);
        c->dilations[k] = sy_node_int_at(node, "dilations", i, 1);
        c->pads[k] = sy_node_int_at(node, "pads", i, 0);
        if (c->kernel[k] < 1 || c->strides[k] < 1 || c->dilations[k] < 1 || c->pads[k] < 0)
            return "a window of no size, or negative pads";
    }
    if (!is_symmetric(c))
        without_pads(out);
    return NULL;
}

bool sy_deconv_common(int rank, const int64_t *y, const int64_t *full, const int64_t *full_strides,
                      const int64_t *pad_left, int64_t *dims, int64_t *offset)
{
    memcpy(dims, y, SY_MAX_RANK * sizeof *dims);
    for (int i = 2; i < rank; i++) {
        int64_t left = pad_left[rank == 3 ? 1 : i - 2];
        dims[i] = SY_MIN(y[i], full[i] - left);
        *offset += left * full_strides[i];
        if (dims[i] < 1)
            return false;
    }
    return true;
}
