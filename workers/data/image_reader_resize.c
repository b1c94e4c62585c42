#include <math.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/data/image_reader.h"

/* Which source pixels make one target pixel: weights of [first, first + n), which sum to one. */
struct taps {
    uint32_t first, n;
    float *weights; /* into one block for all */
};

/* All taps of one axis; freed with one free. NULL without memory. */
static struct taps *make_taps(uint32_t from, uint32_t to)
{
    double step = (double)from / to, reach = SY_MAX(step, 1.0);
    uint32_t most = (uint32_t)ceil(2.0 * reach) + 2;
    struct taps *taps = calloc(to, sizeof *taps + most * sizeof(float));
    float *weights = taps ? (float *)(void *)(taps + to) : NULL;
    for (uint32_t i = 0; taps && i < to; i++) {
        double centre = (i + 0.5) * step - 0.5, sum = 0.0;
        double low = ceil(centre - reach), high = floor(centre + reach);
        uint32_t first = low > 0.0 ? (uint32_t)low : 0, last = (uint32_t)SY_MIN(high, from - 1.0);
        taps[i] = (struct taps){first, last - first + 1, weights + (size_t)i * most};
        for (uint32_t k = 0; k < taps[i].n; k++) {
            double weight = 1.0 - fabs(first + k - centre) / reach;
            taps[i].weights[k] = (float)SY_MAX(weight, 0.0);
            sum += taps[i].weights[k];
        }
        for (uint32_t k = 0; k < taps[i].n; k++)
            taps[i].weights[k] = (float)(taps[i].weights[k] / sum);
    }
    return taps;
}

/* One source row, one channel, at the target's width. */
static void resize_row(const uint8_t *row, uint32_t channels, const struct taps *taps,
                       uint32_t width, float *to)
{
    for (uint32_t x = 0; x < width; x++) {
        const uint8_t *at = row + (size_t)taps[x].first * channels;
        float sum = 0.0f;
        for (uint32_t k = 0; k < taps[x].n; k++)
            sum += taps[x].weights[k] * at[(size_t)k * channels];
        to[x] = sum;
    }
}

static void resize_plane(const struct sy_image *image, uint32_t channel, const struct taps *across,
                         const struct taps *down, uint32_t width, uint32_t height, float *rows,
                         uint8_t *to)
{
    size_t pitch = (size_t)image->width * image->channels;
    for (uint32_t y = 0; y < image->height; y++)
        resize_row(image->pixels + y * pitch + channel, image->channels, across, width,
                   rows + (size_t)y * width);
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++) {
            float sum = 0.5f; /* rounds */
            for (uint32_t k = 0; k < down[y].n; k++)
                sum += down[y].weights[k] * rows[(size_t)(down[y].first + k) * width + x];
            to[(size_t)y * width + x] = (uint8_t)SY_MIN(sum, 255.0f);
        }
}

int sy_image_resize(const struct sy_image *image, uint32_t width, uint32_t height, uint8_t *to)
{
    int status = SY_OK;
    struct taps *across = make_taps(image->width, width), *down = make_taps(image->height, height);
    float *rows = malloc((size_t)image->height * width * sizeof *rows);
    if (!across || !down || !rows)
        status = sy_error_set(SY_ENOMEM_HOST, "no room to resize %u by %u to %u by %u",
                              image->width, image->height, width, height);
    for (uint32_t c = 0; status == SY_OK && c < image->channels; c++)
        resize_plane(image, c, across, down, width, height, rows, to + (size_t)c * width * height);
    free(across);
    free(down);
    free(rows);
    return status;
}
