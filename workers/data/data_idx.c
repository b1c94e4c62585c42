/* IDX: images and labels as bytes, in memory. */
#include <stdlib.h>

#include "runtime/base/status.h"
#include "workers/data/data_internal.h"
#include "workers/data/idx_reader.h"

struct idx_source {
    struct sy_data_source base;
    const struct sy_data_want *want;
    const struct sy_data_spec *spec;
    const char *label_path;
    struct sy_idx images, labels;
    float table[256]; /* a pixel has 256 values */
};

static void idx_close(struct sy_data_source *source)
{
    struct idx_source *s = (struct idx_source *)source;
    sy_idx_finish(&s->images);
    sy_idx_finish(&s->labels);
    free(s);
}

static void put_pixels(const struct idx_source *s, uint64_t index,
                       const struct sy_data_input *input, void *to)
{
    const uint8_t *pixels = s->images.data + index * input->n;
    if (input->dtype == SY_DTYPE_F32)
        for (uint64_t i = 0; i < input->n; i++)
            ((float *)to)[i] = s->table[pixels[i]];
    else /* indices stay what they are */
        for (uint64_t i = 0; i < input->n; i++)
            sy_data_put_input(input, i, pixels[i], to);
}

static int idx_read(struct sy_data_source *source, uint64_t index, void *const *inputs,
                    void *labels)
{
    const struct idx_source *s = (struct idx_source *)source;
    for (int k = 0; k < s->want->n_inputs; k++)
        if (!sy_data_put_given(sy_data_field_of(s->spec, s->want, k), &s->want->inputs[k], 0,
                               inputs[k]))
            put_pixels(s, index, &s->want->inputs[k], inputs[k]);
    return sy_data_put_class(s->want, s->label_path, index, s->labels.data[index], labels);
}

static int check_sizes(const struct idx_source *s, const char *images, const char *labels)
{
    if (s->images.rank < 2 || s->labels.rank != 1 || s->images.dims[0] != s->labels.dims[0])
        return sy_error_set(
            SY_ECORRUPT,
            "data set '%s': rank %d with %u samples, and '%s': rank %d with %u; wanted images of "
            "rank 2 or more, and as many labels of rank 1",
            images, s->images.rank, s->images.dims[0], labels, s->labels.rank, s->labels.dims[0]);
    uint64_t pixels = s->images.bytes / s->images.dims[0];
    char text[96];
    for (int k = 0; k < s->want->n_inputs; k++)
        if (sy_data_field_of(s->spec, s->want, k)->from == SY_FROM_SAMPLE &&
            pixels != s->want->inputs[k].n)
            return sy_error_set(
                SY_EARG, "data set '%s'%s has %llu values a sample, the model's input takes %llu",
                images, sy_data_input_text(s->want, k, text), (unsigned long long)pixels,
                (unsigned long long)s->want->inputs[k].n);
    return SY_OK;
}

/* All labels before the first step: a job that would fail in its second hour is refused at once. */
static int check_labels(const struct idx_source *s)
{
    float room[256];
    struct sy_data_want want = *s->want;
    if (!want.are_classes && want.n_labels > 256)
        return sy_error_set(SY_EARG, "'%s' has bytes as labels, the model has %llu outputs",
                            s->label_path, (unsigned long long)want.n_labels);
    for (uint64_t i = 0; i < s->labels.dims[0]; i++)
        SY_TRY(sy_data_put_class(&want, s->label_path, i, s->labels.data[i], room));
    return SY_OK;
}

int sy_data_idx_open(const struct sy_data_spec *spec, const struct sy_data_want *want,
                     struct sy_data_source *training, struct sy_data_source **out)
{
    int which = training != NULL, status;
    struct idx_source *s = calloc(1, sizeof *s);
    SY_TRY_ALLOC(s, "no room for data set '%s'", spec->inputs[which]);
    s->base.read = idx_read;
    s->base.close = idx_close;
    s->want = want;
    s->spec = spec;
    s->label_path = spec->labels[which];
    for (int i = 0; i < 256; i++)
        s->table[i] = (float)((i / 255.0 - spec->mean) / spec->std);
    SY_TRY_GOTO(sy_idx_read(spec->inputs[which], &s->images), fail);
    SY_TRY_GOTO(sy_idx_read(s->label_path, &s->labels), fail);
    SY_TRY_GOTO(check_sizes(s, spec->inputs[which], s->label_path), fail);
    SY_TRY_GOTO(check_labels(s), fail);
    s->base.n = s->images.dims[0];
    *out = &s->base;
    return SY_OK;
fail:
    idx_close(&s->base);
    return status;
}
