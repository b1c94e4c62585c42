/* A job's data sets: samples by number, whatever they lie in, and the order in which they come.
 *
 *   data_idx.c data_npy.c data_csv.c data_text.c data_images.c data_synthetic.c     one reader each, behind struct sy_data_source
 *   train_data.c    opens what the job names, order, batches                         prefetch.c    batches ahead, by a thread
 *
 * T2: the samples come as one endless stream, epoch after epoch, each epoch in an order of its own; batch `step` is
 * samples [step * batch, (step + 1) * batch) of it. Each sample comes exactly once per epoch, and a batch
 * may reach into the next epoch. The order is a keyed permutation that is computed, not stored, so that a job goes on in the
 * middle of an epoch knowing its step alone. */
#ifndef SY_WORKERS_DATA_TRAIN_DATA_H
#define SY_WORKERS_DATA_TRAIN_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include "workers/job/job.h"

/* An input of the network for one sample, and its label. */
struct sy_data_input {
    const char *name;    /* in the model; borrowed from the graph */
    enum sy_dtype dtype; /* F32, I64, I32 or BOOL */
    int rank;
    int64_t dims[SY_MAX_RANK]; /* without the batch */
    uint64_t n;                /* their product */
};

struct sy_data_want {
    int n_inputs;
    struct sy_data_input inputs[SY_DATA_MAX_INPUTS];
    bool are_classes;  /* labels are int32 classes, else float values */
    uint64_t n_labels; /* classes: rows of outputs; values: outputs */
    int64_t n_classes; /* the outputs' last dimension */
};

/* EUNSUPPORTED: more inputs than SY_DATA_MAX_INPUTS, several outputs, sizes that are not fixed, an input of another type. */
int sy_data_want_of(const struct sy_graph *graph, const struct sy_train_options *options,
                    struct sy_data_want *out);

/* One set of samples. Readers put this first in a struct of their own. One thread at a time. */
struct sy_data_source {
    uint64_t n; /* at least 1 */
    /* Sample `index`: each of the inputs to its place, and labels (n_labels elements). Errors name file and sample. */
    int (*read)(struct sy_data_source *source, uint64_t index, void *const *inputs, void *labels);
    void (*close)(struct sy_data_source *source);
};

/* The training set, or the test set `training` being open: it has the training set's classes, columns, scales. Blocks. EARG, ECORRUPT,
 * ENOTFOUND, ETOOBIG name file and numbers. `spec` and `want` must live as long as the source. */
int sy_data_source_open(const struct sy_data_spec *spec, const struct sy_data_want *want,
                        struct sy_data_source *training, struct sy_data_source **out);

/* Bytes of one sample in an input of the batch. */
uint64_t sy_data_input_bytes(const struct sy_data_input *input);

/* Both sets of a job. */
struct sy_train_data {
    struct sy_data_source *training, *test; /* test NULL: none, or held out */
    uint64_t n, n_test;                     /* samples of each */
    const struct sy_data_spec *spec;
};

/* EARG also: `data.inputs` lacks an input of the model, or names one that it has not. */
int sy_train_data_open(const struct sy_data_spec *spec, const struct sy_data_want *want,
                       struct sy_train_data *out);
void sy_train_data_close(struct sy_train_data *data);

/* The index, in a set of n, of sample number `position` of the shuffled stream. */
uint64_t sy_train_data_index(uint64_t n, uint64_t seed, uint64_t position);
/* Puts `rows` samples from `position` in place, a place for each input: of the training stream, or (is_test) of the test set as stored, repeating the last. */
int sy_train_data_fill(const struct sy_train_data *data, const struct sy_data_want *want,
                       uint64_t position, bool is_test, int64_t rows, void *const *inputs,
                       void *labels);

#endif
