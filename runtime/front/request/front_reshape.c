#include "runtime/front/request/front_reshape.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/status.h"

const struct sy_core_reshape *sy_front_reshape_of(const struct sy_core_model_ref *model,
                                                  bool is_output, int index)
{
    for (int i = 0; i < model->n_reshapes; i++)
        if (model->reshapes[i].is_output == is_output && model->reshapes[i].index == index)
            return &model->reshapes[i];
    return NULL;
}

/* False: dims do not fit the pattern `from`. */
static bool translate(bool has_batch, const int64_t *from, int from_rank, const int64_t *to,
                      int to_rank, int *rank, int64_t *dims)
{
    int64_t open[SY_MAX_RANK], result[SY_MAX_RANK];
    int n_open = 0, taken = 0;

    if (*rank != from_rank + has_batch || to_rank + has_batch > SY_MAX_RANK)
        return false;
    for (int i = 0; i < from_rank; i++) {
        if (from[i] >= 0 && dims[i + has_batch] != from[i])
            return false;
        if (from[i] < 0)
            open[n_open++] = dims[i + has_batch];
    }
    for (int i = 0; i < to_rank; i++) {
        if (to[i] < 0 && taken == n_open)
            return false;
        result[i] = to[i] < 0 ? open[taken++] : to[i];
    }
    memcpy(dims + has_batch, result, (size_t)to_rank * sizeof *dims);
    *rank = to_rank + has_batch;
    return true;
}

static void pattern_text(const struct sy_core_reshape *r, char *to, size_t bytes)
{
    size_t used = (size_t)snprintf(to, bytes, "[%s", r->has_batch ? "N" : "");

    for (int i = 0; i < r->rank && used < bytes; i++)
        used += (size_t)snprintf(to + used, bytes - used, "%s%lld", i || r->has_batch ? ", " : "",
                                 (long long)r->dims[i]);
    if (used < bytes)
        snprintf(to + used, bytes - used, "]");
}

int sy_front_reshape_input(const struct sy_core_reshape *r, const char *name, int *rank,
                           int64_t *dims)
{
    char pattern[160];

    if (translate(r->has_batch, r->dims, r->rank, r->model_dims, r->model_rank, rank, dims))
        return SY_OK;
    pattern_text(r, pattern, sizeof pattern);
    return sy_error_set(SY_EARG, "input \"%s\": its %d dimensions are not those of %s", name, *rank,
                        pattern);
}

void sy_front_reshape_output(const struct sy_core_reshape *r, int *rank, int64_t *dims)
{
    (void)translate(r->has_batch, r->model_dims, r->model_rank, r->dims, r->rank, rank, dims);
}
