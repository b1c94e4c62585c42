#include "runtime/cli/inputs/sample_token.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

struct candidate {
    float score;
    int64_t token;
};

/* Splitmix64 (Steele, Lea, Flood, 2014), as a number in [0, 1). */
static double next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static int find_best(const float *scores, int64_t n, int64_t *out)
{
    *out = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(scores[i]))
            return sy_error_set(SY_EARG, "the score of token %lld is not a number", (long long)i);
        if (scores[i] > scores[*out])
            *out = i;
    }
    return n > 0 ? SY_OK : sy_error_set(SY_EARG, "the model gave no scores");
}

static int by_score(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;

    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return a->token < b->token ? -1 : 1;
}

/* Draws by exp(score / temperature), from the likeliest on. */
static int64_t draw(struct sy_sampler *sampler, const struct candidate *of, int64_t n)
{
    double sum = 0, best = of[0].score;

    if (isinf(best))
        return of[0].token;
    for (int64_t i = 0; i < n; i++)
        sum += exp((of[i].score - best) / sampler->temperature);
    double left = next_random(&sampler->state) * sum;
    for (int64_t i = 0; i < n; i++) {
        left -= exp((of[i].score - best) / sampler->temperature);
        if (left < 0)
            return of[i].token;
    }
    return of[0].token;
}

int sy_sample_token(struct sy_sampler *sampler, const float *scores, int64_t n, int64_t *out_token)
{
    SY_TRY(find_best(scores, n, out_token));
    if (sampler->temperature <= 0 || sampler->top_k == 1)
        return SY_OK;
    struct candidate *of = calloc((size_t)n, sizeof *of);
    SY_TRY_ALLOC(of, "no memory for %lld tokens", (long long)n);
    for (int64_t i = 0; i < n; i++)
        of[i] = (struct candidate){scores[i], i};
    qsort(of, (size_t)n, sizeof *of, by_score);
    *out_token = draw(sampler, of, sampler->top_k > 0 ? SY_MIN(sampler->top_k, n) : n);
    free(of);
    return SY_OK;
}
