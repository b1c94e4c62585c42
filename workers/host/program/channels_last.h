/* Transpose and Reshape around images with the channels last: oneDNN's convolutions, and ours, leave and want them so, and [N, H, W, C] of a
 * transformer's rows is the same bytes. What only names such bytes anew copies nothing.
 *
 *   [N, L, C] ──Transpose──> [N, C, L] ──Reshape──> [N, C, H, W] ──Conv──> ... ──Reshape, Transpose──> [N, L, C]
 *   row-major                acb                    acdb, nhwc             nhwc                        row-major
 */
#ifndef SY_WORKERS_HOST_PROGRAM_CHANNELS_LAST_H
#define SY_WORKERS_HOST_PROGRAM_CHANNELS_LAST_H

#include "workers/host/program/program_internal.h"

/* The output of the Transpose, or of the node that keeps all elements in order (Reshape, Flatten, Squeeze, Unsqueeze), that is being built
 * as another view of its input's bytes. *built false: it is not one, or its readers want it row-major; nothing was added. */
int sy_channels_last_transpose(struct sy_program *p, bool *built);
int sy_channels_last_reshape(struct sy_program *p, bool *built);

#endif
