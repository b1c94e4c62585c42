/* Copies of the parts of a concatenation (program_parts.c), channels at a time. */
#ifndef SY_WORKERS_HOST_PROGRAM_PROGRAM_PART_COPY_H
#define SY_WORKERS_HOST_PROGRAM_PROGRAM_PART_COPY_H

#include "workers/host/program/channel_layout.h"
#include "workers/host/program/program_internal.h"

struct sy_part_copy {
    struct sy_channel_rows rows;
    int64_t from, to; /* floats from the value's begin */
};

/* Plans a copy of `tensor` from its place (a value, or a part of one) to another, in values of this layout. */
struct sy_part_copy sy_part_copy_plan(const struct sy_program *p, int tensor,
                                      enum sy_channel_layout layout, struct sy_part from,
                                      struct sy_part to);
/* The copy as a step, between these values. */
int sy_part_copy_add(struct sy_program *p, const struct sy_part_copy *copy, int from, int to);

#endif
