/* Batches made ahead by one thread, so that a step does not wait for files, decoding or shuffling.
 *
 *   thread:  fill slot 0 -> fill slot 1 -> (both full: sleep) -> ...        trainer: take batch i, i + 1, ...
 *
 * P1: at most SY_PREFETCH_DEPTH batches are ready or being made; a job that is paused costs that much memory and no time.
 * P2: batch i is a function of i (train_data.h, T2), so there is no state to keep: whoever asks for another batch than the next one
 *     gets that, and what was made ahead is dropped. */
#ifndef SY_WORKERS_DATA_PREFETCH_H
#define SY_WORKERS_DATA_PREFETCH_H

#include "workers/data/train_data.h"

#define SY_PREFETCH_DEPTH 2

struct sy_prefetch;

/* Borrowed until destroy: nobody else may fill from `data` in the meantime. The thread begins with the first take. ENOMEM_HOST. */
int sy_prefetch_create(const struct sy_train_data *data, const struct sy_data_want *want,
                       int64_t rows, struct sy_prefetch **out);
void sy_prefetch_destroy(
    struct sy_prefetch *prefetch); /* NULL is fine; waits for the sample in work */
/* 1: batch `index` (of the test set, or of the stream) is in place. 0: not yet, after wait_us. Else the reader's error. One thread. */
int sy_prefetch_take(struct sy_prefetch *prefetch, bool is_test, uint64_t index, int wait_us,
                     void *const *inputs, void *labels);

#endif
