/* Weights in another layout than the package's. A package has one layout for all sizes, and oneDNN's code for a size that a request chose may want
 * another: of a short sequence, moving a convolution's weights takes as long as multiplying by them. Programs therefore keep what they moved, in
 * this process's memory, from the first run on (P15). */
#ifndef SY_WORKERS_HOST_PROGRAM_KEPT_WEIGHTS_H
#define SY_WORKERS_HOST_PROGRAM_KEPT_WEIGHTS_H

#include <stdint.h>

#include "workers/host/program/program_internal.h"

/* A weight that is multiplied by more rows than these is moved in each run: a hundredth of the layer's time. */
#define SY_KEPT_MOST_ROWS  1024
#define SY_KEPT_MOST_BYTES (64ull << 20) /* of a process */

/* Value `packed`, input `input` of the layer being built, in the layout `md`: a parameter, or one that the graph of a body captures; rows: how often the
 * layer multiplies by each weight. The value itself if that is its layout. Programs of one layer table share what they keep. */
int sy_program_weights_as(struct sy_program *p, int packed, int input, const dnnl_memory_desc_t *md,
                          int64_t rows, int *out);

uint64_t sy_kept_weights_bytes(void);
/* Sets the limit, initially SY_KEPT_MOST_BYTES; less in tests. Weights kept already stay. */
void sy_kept_weights_limit(uint64_t bytes);

#endif
