/* Made-up samples that can be learnt, each a function of (seed, set, number): a class is a pattern plus noise; indices come half from
 * a class's own words; values (mse, bce) are weighted sums of the inputs. */
#include <math.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/data/data_internal.h"
#include "workers/data/normal_draws.h"

#define BLOCK 512 /* numbers whose sums are on the stack */

struct synthetic_source {
    struct sy_data_source base;
    const struct sy_data_want *want;
    const struct sy_data_spec *spec;
    uint64_t longest; /* length of the drawn inputs */
    uint64_t seed, set, vocabulary;
    double noise;
};

static void synthetic_close(struct sy_data_source *source)
{
    free(source);
}

static double uniform(uint64_t bits)
{
    return ((double)(bits >> 11) + 0.5) / 9007199254740992.0;
}

/* Numbers [first, first + n) of an input. */
static void put_block(const struct synthetic_source *s, uint64_t key, int64_t class, uint64_t first,
                      uint64_t n, float *to)
{
    uint32_t pattern[BLOCK], own[BLOCK];
    sy_data_draw_sums(key, first, n, own);
    if (class >= 0)
        sy_data_draw_sums(sy_data_draw(s->seed, 1000003u + (uint64_t) class), first, n, pattern);
    for (uint64_t i = 0; i < n; i++)
        to[first + i] = (float)((class < 0 ? 0.0 : sy_data_normal_of(pattern[i])) +
                                s->noise * sy_data_normal_of(own[i]));
}

static void put_numbers(const struct synthetic_source *s, uint64_t key, int64_t class, uint64_t n,
                        float *to)
{
    for (uint64_t i = 0; i < n; i += BLOCK)
        put_block(s, key, class, i, SY_MIN(n - i, (uint64_t)BLOCK), to);
}

static void put_indices(const struct synthetic_source *s, uint64_t key, int64_t class,
                        const struct sy_data_input *input, void *to)
{
    uint64_t classes = (uint64_t)s->want->n_classes;
    for (uint64_t i = 0; i < input->n; i++) {
        uint64_t bits = sy_data_draw(key, i), word = bits / 2 % s->vocabulary;
        if (bits & 1 && class >= 0 && classes < s->vocabulary) /* of the class's own */
            word = word / classes * classes + (uint64_t) class;
        sy_data_put_input(input, i, (double)(word < s->vocabulary ? word : (uint64_t) class), to);
    }
}

static double weighted_sum(uint64_t key, const float *x, uint64_t n)
{
    uint32_t weights[BLOCK];
    double sum = 0.0;
    for (uint64_t i = 0; i < n; i++) {
        if (i % BLOCK == 0)
            sy_data_draw_sums(key, i, SY_MIN(n - i, (uint64_t)BLOCK), weights);
        sum += x[i] * sy_data_normal_of(weights[i % BLOCK]);
    }
    return sum;
}

/* Writes the values of the first drawn input of floats. */
static bool put_values(const struct synthetic_source *s, void *const *inputs, float *labels)
{
    const struct sy_data_want *want = s->want;
    int k = 0;
    while (k < want->n_inputs && (want->inputs[k].dtype != SY_DTYPE_F32 ||
                                  sy_data_field_of(s->spec, want, k)->from != SY_FROM_SAMPLE))
        k++;
    for (uint64_t j = 0; k < want->n_inputs && j < want->n_labels; j++) {
        const float *input = inputs[k];
        double sum = weighted_sum(sy_data_draw(s->seed, 7u + j), input, want->inputs[k].n);
        labels[j] = (float)(1.0 / (1.0 + exp(-sum / sqrt((double)want->inputs[k].n))));
    }
    return k < want->n_inputs;
}

/* Each input has numbers of its own; the first one's key is the sample's. */
static void put_inputs(const struct synthetic_source *s, uint64_t key, int64_t class,
                       void *const *inputs)
{
    uint64_t length = 1 + sy_data_draw(key, UINT64_MAX - 1) % SY_MAX(s->longest, 1u);
    for (int k = 0; k < s->want->n_inputs; k++) {
        const struct sy_data_input *input = &s->want->inputs[k];
        uint64_t own = k ? sy_data_draw(key, UINT64_MAX - 2 - (uint64_t)k) : key;
        if (sy_data_put_given(sy_data_field_of(s->spec, s->want, k), input, length, inputs[k]))
            continue;
        if (input->dtype == SY_DTYPE_F32)
            put_numbers(s, own, class, input->n, inputs[k]);
        else
            put_indices(s, own, class, input, inputs[k]);
    }
}

static int synthetic_read(struct sy_data_source *source, uint64_t index, void *const *inputs,
                          void *labels)
{
    const struct synthetic_source *s = (struct synthetic_source *)source;
    const struct sy_data_want *want = s->want;
    uint64_t key = sy_data_draw(sy_data_draw(s->seed, s->set), index);
    bool is_classified = want->are_classes && want->n_labels == 1;
    int64_t class =
        is_classified ? (int64_t)(uniform(sy_data_draw(key, ~0ull)) * (double)want->n_classes) : -1;
    put_inputs(s, key, class, inputs);
    if (is_classified)
        *(int32_t *)labels = (int32_t) class;
    else if (want->are_classes)
        for (uint64_t i = 0; i < want->n_labels; i++)
            ((int32_t *)labels)[i] = (int32_t)(sy_data_draw(key, ~i) % (uint64_t)want->n_classes);
    else if (!put_values(s, inputs, labels))
        for (uint64_t i = 0; i < want->n_labels; i++)
            ((float *)labels)[i] = (float)uniform(sy_data_draw(key, ~i));
    return SY_OK;
}

int sy_data_synthetic_open(const struct sy_data_spec *spec, const struct sy_data_want *want,
                           struct sy_data_source *training, struct sy_data_source **out)
{
    struct synthetic_source *s = calloc(1, sizeof *s);
    SY_TRY_ALLOC(s, "no room for a synthetic data set");
    *s = (struct synthetic_source){.base = {.n = spec->samples[training != NULL],
                                            .read = synthetic_read,
                                            .close = synthetic_close},
                                   .want = want,
                                   .spec = spec,
                                   .longest = sy_data_longest(spec, want),
                                   .seed = spec->seed,
                                   .set = training != NULL,
                                   .vocabulary = spec->vocabulary,
                                   .noise = spec->noise};
    *out = &s->base;
    return SY_OK;
}
