#include "workers/train_data.h"

#include <string.h>

#include "loader/idx_reader.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

int sy_train_data_open(const char *images, const char *labels, struct sy_train_data *out)
{
    struct sy_idx pictures, classes;
    SY_TRY(sy_idx_read(images, &pictures));
    int status = sy_idx_read(labels, &classes);
    if (status < 0) {
        sy_idx_finish(&pictures);
        return status;
    }
    if (pictures.rank < 2 || classes.rank != 1 || pictures.dims[0] != classes.dims[0] ||
        pictures.dims[0] == 0) {
        status = sy_error_set(
            SY_ECORRUPT,
            "data set '%s': rank %d with %u samples, and '%s': rank %d with %u; wanted as "
            "many images as labels",
            images, pictures.rank, pictures.dims[0], labels, classes.rank, classes.dims[0]);
        sy_idx_finish(&pictures);
        sy_idx_finish(&classes);
        return status;
    }
    *out = (struct sy_train_data){.images = pictures.data,
                                  .labels = classes.data,
                                  .n = pictures.dims[0],
                                  .pixels = pictures.bytes / pictures.dims[0]};
    return SY_OK;
}

void sy_train_data_close(struct sy_train_data *data)
{
    struct sy_idx images = {.data = data->images}, labels = {.data = data->labels};
    sy_idx_finish(&images);
    sy_idx_finish(&labels);
    memset(data, 0, sizeof *data);
}

/* splitmix64's finisher: each bit of the result depends on each of the input. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* A Feistel network over 2 * half bits, which is a permutation whatever `mix` does; six rounds mix well. */
static uint64_t shuffle_bits(uint64_t x, unsigned half, uint64_t key)
{
    uint64_t mask = (1ull << half) - 1, left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 6; round++) {
        uint64_t next = left ^ (mix(right + mix(key + round * 0x9e3779b97f4a7c15ull)) & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

uint64_t sy_train_data_index(uint64_t n, uint64_t seed, uint64_t position)
{
    uint64_t x = position % n, key = mix(seed + 0x9e3779b97f4a7c15ull) ^ mix(position / n + 1);
    unsigned half = 1;
    while (1ull << (2 * half) < n)
        half++;
    do /* walks the cycle back into range: under four rounds on average, since 4^half < 4 n */
        x = shuffle_bits(x, half, key);
    while (x >= n);
    return x;
}

static int put_label(const struct sy_train_data *data, const struct sy_job *job, uint64_t sample,
                     int64_t row, int64_t n_outputs, void *labels)
{
    uint8_t label = data->labels[sample];
    if (label >= n_outputs)
        return sy_error_set(SY_EARG,
                            "sample %llu of '%s' has label %d, but the model has %lld outputs",
                            (unsigned long long)sample, job->labels, label, (long long)n_outputs);
    if (job->options.loss == SY_LOSS_SOFTMAX_CROSS_ENTROPY) {
        ((int32_t *)labels)[row] = label;
        return SY_OK;
    }
    for (int64_t i = 0; i < n_outputs; i++)
        ((float *)labels)[row * n_outputs + i] = i == label ? 1.0f : 0.0f;
    return SY_OK;
}

int sy_train_data_fill(const struct sy_train_data *data, const struct sy_job *job,
                       uint64_t position, int in_order, int64_t rows, int64_t n_outputs,
                       float *input, void *labels)
{
    float table[256]; /* a pixel has 256 values */
    for (int i = 0; i < 256; i++)
        table[i] = (float)((i / 255.0 - job->mean) / job->std);
    for (int64_t row = 0; row < rows; row++) {
        uint64_t at = position + (uint64_t)row;
        uint64_t sample =
            in_order ? SY_MIN(at, data->n - 1) : sy_train_data_index(data->n, job->seed, at);
        const uint8_t *pixels = data->images + sample * data->pixels;
        float *to = input + (uint64_t)row * data->pixels;
        for (uint64_t i = 0; i < data->pixels; i++)
            to[i] = table[pixels[i]];
        SY_TRY(put_label(data, job, sample, row, n_outputs, labels));
    }
    return SY_OK;
}
