/* The next token from a decoder's scores. Pure: the same scores, settings and state give the same token. */
#ifndef SY_CLI_SAMPLE_TOKEN_H
#define SY_CLI_SAMPLE_TOKEN_H

#include <stdint.h>

struct sy_sampler {
    double temperature; /* 0: always the likeliest */
    int64_t top_k;      /* among so many of the likeliest; 0: all */
    uint64_t state;     /* state of the generator; initially the seed */
};

/* The first of equal scores is the likelier. *out_token: an index into `scores`. EARG: no scores, or one that is NaN; ENOMEM_HOST. */
int sy_sample_token(struct sy_sampler *sampler, const float *scores, int64_t n, int64_t *out_token);

#endif
