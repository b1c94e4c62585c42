/* Layouts of images (3 to 5 dimensions, float32) that loops over channels support. */
#ifndef SY_WORKERS_HOST_PROGRAM_CHANNEL_LAYOUT_H
#define SY_WORKERS_HOST_PROGRAM_CHANNEL_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "workers/host/program/program_internal.h"
#include "workers/host/rows/channel_rows.h"

enum sy_channel_layout {
    SY_CHANNELS_OTHER, /* none of these */
    SY_CHANNELS_ROWS,  /* row-major */
    SY_CHANNELS_LAST,
    SY_CHANNELS_BY_16, /* whole blocks: none is filled up */
    SY_CHANNELS_BY_8
};

enum sy_channel_layout sy_channel_layout_of(const struct sy_value *v);
/* Whether `channels` channels, also as a part of others, can have this layout. */
bool sy_channel_layout_fits(enum sy_channel_layout layout, int64_t channels);
/* Descriptor of a dense tensor; not for OTHER. */
int sy_channel_layout_md(enum sy_channel_layout layout, int rank, const int64_t *dims,
                         dnnl_memory_desc_t *md);
/* Channels [first, first + n) of a tensor of `whole` channels: dims are theirs. *offset: of the first one, in floats. Both sides of `rows` are
 * set as if the other were as dense: the caller keeps what it needs. */
void sy_channel_layout_rows(enum sy_channel_layout layout, int rank, const int64_t *dims,
                            int64_t whole, int64_t first, struct sy_channel_rows *rows,
                            int64_t *offset);

#endif
