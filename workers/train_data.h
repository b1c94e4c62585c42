/* The data set of a job, in this process's memory as bytes, and its batches.
 *
 * T2: the samples come as one endless stream, epoch after epoch, each epoch in an order of its own; batch `step` is
 * samples [step * batch, (step + 1) * batch) of it. Each sample comes exactly once per epoch, and a batch
 * may reach into the next epoch. The order is a keyed permutation that is computed, not stored. */
#ifndef SY_WORKERS_TRAIN_DATA_H
#define SY_WORKERS_TRAIN_DATA_H

#include <stdint.h>

#include "workers/job.h"

struct sy_train_data {
    uint8_t *images, *labels;
    uint64_t n, pixels; /* of one image */
};

/* Reads two IDX files of bytes. EARG/ECORRUPT/ENOTFOUND names the file and the numbers that do not fit. */
int sy_train_data_open(const char *images, const char *labels, struct sy_train_data *out);
void sy_train_data_close(struct sy_train_data *data);

/* Where sample number `position` of the stream is in the data set. */
uint64_t sy_train_data_index(uint64_t n, uint64_t seed, uint64_t position);
/* Puts rows samples from `position` in place: in the stream's order, or (in_order) as stored, repeating the last one.
 * Labels as classes, or as rows of n_outputs zeros with a one for mse. EARG names a label out of range. */
int sy_train_data_fill(const struct sy_train_data *data, const struct sy_job *job,
                       uint64_t position, int in_order, int64_t rows, int64_t n_outputs,
                       float *input, void *labels);

#endif
