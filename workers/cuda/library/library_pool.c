#include "workers/cuda/math/library_pool.h"

#include <string.h>

#define POOL_WORD (-2) /* the first; convolutions have 2 or 3 there, products -1 */

static bool fits_axis(const struct sy_math_pool *p, int i)
{
    int64_t room = p->in[i] + 2 * p->pads[i] - p->kernel[i];
    return (p->dilations[i] == 1 || p->kernel[i] == 1) && p->pads[i] >= 0 &&
           p->pads[i] < p->kernel[i] && room >= 0 && room / p->strides[i] + 1 == p->out[i];
}

static bool is_trivial(const struct sy_math_pool *p, int i)
{
    return p->in[i] == 1 && p->out[i] == 1 && p->kernel[i] == 1 && p->pads[i] == 0;
}

/* Dims of the tensor and its dense strides, row-major or with channels last; false if those that were given are others where they matter, or too
 * many elements. */
static bool lay_out(const struct sy_math_pool *p, bool last, int spatial, const int64_t *sizes,
                    const int64_t *given, int *dims, int *strides)
{
    int64_t n = 1;
    dims[0] = (int)p->batch;
    dims[1] = (int)p->channels;
    for (int i = 0; i < spatial; i++)
        dims[2 + i] = (int)sizes[i];
    for (int k = spatial + 1; k >= 0; k--) { /* innermost first */
        int i = !last || k == 0 ? k : k == spatial + 1 ? 1 : k + 1;
        if (n > INT32_MAX || (dims[i] > 1 && given[i] != n))
            return false;
        strides[i] = (int)n;
        n *= dims[i];
    }
    return n <= INT32_MAX;
}

static void write_words(const struct sy_library_pool *s, int64_t *words)
{
    int n = 0;
    memset(words, 0, SY_CHOICE_WORDS * sizeof *words);
    words[n++] = POOL_WORD;
    words[n++] = s->x_dims[0];
    words[n++] = s->type;
    words[n++] = s->max;
    words[n++] = s->count_padding;
    words[n++] = s->spatial;
    words[n++] = s->x_strides[1] == 1;
    words[n++] = s->x_dims[1];
    for (int i = 0; i < s->spatial; i++) {
        words[n++] = s->x_dims[2 + i];
        words[n++] = s->y_dims[2 + i];
        words[n++] = s->window[i];
        words[n++] = s->pads[i];
        words[n++] = s->strides[i];
    }
}

static bool fits_int(int64_t n)
{
    return n >= 1 && n <= INT32_MAX;
}

/* x and y in the same of the two layouts: cuDNN reads it from the strides, also where a tensor of one element a channel lies in both. */
static bool lay_out_both(const struct sy_math_pool *p, struct sy_library_pool *out)
{
    for (int last = 0; last < 2; last++)
        if (lay_out(p, last, out->spatial, p->in, p->in_strides, out->x_dims, out->x_strides) &&
            lay_out(p, last, out->spatial, p->out, p->out_strides, out->y_dims, out->y_strides))
            return true;
    return false;
}

bool sy_library_pool_of(const struct sy_math_pool *p, struct sy_library_pool *out)
{
    *out = (struct sy_library_pool){.type = sy_math_is_narrow(p->type) ? p->type : SY_DTYPE_F32,
                                    .max = p->max,
                                    .count_padding = p->count_padding,
                                    .spatial = is_trivial(p, 2) ? 2 : 3};
    bool fits = fits_int(p->batch) && fits_int(p->channels);
    for (int i = 0; i < SY_MATH_SPATIAL; i++)
        fits = fits && fits_axis(p, i) && fits_int(p->in[i]) && fits_int(p->out[i]) &&
               fits_int(p->kernel[i]) && fits_int(p->strides[i]);
    if (!fits || !lay_out_both(p, out))
        return false;
    for (int i = 0; i < out->spatial; i++) {
        out->window[i] = (int)p->kernel[i];
        out->pads[i] = (int)p->pads[i];
        out->strides[i] = (int)p->strides[i];
    }
    write_words(out, out->words);
    return true;
}
