#include "workers/host/program/channel_layout.h"

#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static const struct {
    dnnl_format_tag_t tags[6]; /* by rank */
    int64_t block;             /* 0: all channels */
} forms[] = {
    [SY_CHANNELS_ROWS] = {{[3] = dnnl_ncw, [4] = dnnl_nchw, [5] = dnnl_ncdhw}, 1},
    [SY_CHANNELS_LAST] = {{[3] = dnnl_nwc, [4] = dnnl_nhwc, [5] = dnnl_ndhwc}, 0},
    [SY_CHANNELS_BY_16] = {{[3] = dnnl_nCw16c, [4] = dnnl_nChw16c, [5] = dnnl_nCdhw16c}, 16},
    [SY_CHANNELS_BY_8] = {{[3] = dnnl_nCw8c, [4] = dnnl_nChw8c, [5] = dnnl_nCdhw8c}, 8}};

bool sy_channel_layout_fits(enum sy_channel_layout layout, int64_t channels)
{
    return channels > 0 && (forms[layout].block < 2 || channels % forms[layout].block == 0);
}

int sy_channel_layout_md(enum sy_channel_layout layout, int rank, const int64_t *dims,
                         dnnl_memory_desc_t *md)
{
    dnnl_dims_t d = {0};
    memcpy(d, dims, (size_t)rank * sizeof *d);
    return sy_dnnl_check(
        dnnl_memory_desc_init_by_tag(md, rank, d, dnnl_f32, forms[layout].tags[rank]), "a layout",
        "of channels");
}

enum sy_channel_layout sy_channel_layout_of(const struct sy_value *v)
{
    dnnl_memory_desc_t md;
    if (v->dtype != SY_DTYPE_F32 || v->rank < 3 || v->rank > 5)
        return SY_CHANNELS_OTHER;
    for (enum sy_channel_layout i = SY_CHANNELS_ROWS; i <= SY_CHANNELS_BY_8; i++)
        if (sy_channel_layout_fits(i, v->dims[1]) &&
            sy_channel_layout_md(i, v->rank, v->dims, &md) == SY_OK &&
            dnnl_memory_desc_equal(&md, &v->md))
            return i;
    return SY_CHANNELS_OTHER;
}

void sy_channel_layout_rows(enum sy_channel_layout layout, int rank, const int64_t *dims,
                            int64_t whole, int64_t first, struct sy_channel_rows *rows,
                            int64_t *offset)
{
    bool last = layout == SY_CHANNELS_LAST;
    int64_t pixels = 1, block = last ? dims[1] : forms[layout].block;
    for (int i = 2; i < rank; i++)
        pixels *= dims[i];
    *rows = (struct sy_channel_rows){.images = dims[0],
                                     .blocks = dims[1] / block,
                                     .pixels = pixels,
                                     .block = block,
                                     .from_image = whole * pixels,
                                     .from_block = pixels * block,
                                     .from_pixel = last ? whole : block};
    rows->to_image = rows->from_image;
    rows->to_block = rows->from_block;
    rows->to_pixel = rows->from_pixel;
    *offset = last ? first : first * pixels;
}
