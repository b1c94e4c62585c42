/* Batches made ahead by one thread, so that a step does not wait for files, decoding or shuffling.
 *
 *   thread:  fill place 0 -> fill place 1 -> (all full: sleep) -> ...        trainer: take batch i, i + 1, ...
 *
 * P1: at most SY_PREFETCH_DEPTH batches are ready or being made, one more while none is held in the caller's places; a job that is
 *     paused costs that much memory and no time.
 * P2: batch i is a function of i (train_data.h, T2), so there is no state to keep: whoever asks for another batch than the next one
 *     gets that, and what was made ahead is dropped.
 * P3: a batch that is held is not written to until it is released. */
#ifndef SY_WORKERS_DATA_PREFETCH_H
#define SY_WORKERS_DATA_PREFETCH_H

#include "workers/data/train_data.h"

#define SY_PREFETCH_DEPTH 2

#define SY_PREFETCH_PLACES (SY_PREFETCH_DEPTH + 1) /* one more: it is held */

struct sy_prefetch;

/* Where a batch is made: memory for each of the inputs, and for the labels. */
struct sy_batch_place {
    void *inputs[SY_DATA_MAX_INPUTS], *labels;
};

/* `data` and `want` are borrowed until destroy: nobody else may fill from `data` in the meantime. places: SY_PREFETCH_PLACES of them, whose memory is borrowed
 * too; NULL: memory of its own. The thread begins with the first batch that is asked for. ENOMEM_HOST. */
int sy_prefetch_create(const struct sy_train_data *data, const struct sy_data_want *want,
                       int64_t rows, const struct sy_batch_place *places, struct sy_prefetch **out);
void sy_prefetch_destroy(
    struct sy_prefetch *prefetch); /* NULL is fine; waits for the sample in work */
/* 1: batch `index` (of the test set, or of the stream) is in place number *place, and held. 0: not yet, after wait_us. Else the reader's error. None may be
 * held already. One thread, as below. */
int sy_prefetch_hold(struct sy_prefetch *prefetch, bool is_test, uint64_t index, int wait_us,
                     int *place);
/* The batch that is held, if one is, is of no more use. */
void sy_prefetch_release(struct sy_prefetch *prefetch);
/* Holds, copies to these inputs and labels, and releases. */
int sy_prefetch_take(struct sy_prefetch *prefetch, bool is_test, uint64_t index, int wait_us,
                     void *const *inputs, void *labels);

#endif
