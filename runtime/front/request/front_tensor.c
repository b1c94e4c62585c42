#include "runtime/front/request/front_tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/status.h"

void sy_front_tensor_names(const struct sy_graph *graph, const int *tensors, int n, char *to,
                           size_t bytes)
{
    size_t used = 0;

    *to = '\0';
    for (int i = 0; i < n && used < bytes; i++)
        used += (size_t)snprintf(to + used, bytes - used, "%s%s", i ? ", " : "",
                                 graph->tensors[tensors[i]].name);
}

int sy_front_tensor_find(const struct sy_graph *graph, const int *tensors, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(graph->tensors[tensors[i]].name, name) == 0)
            return i;
    return -1;
}

int sy_front_tensor_check_dims(const struct sy_tensor *tensor, int rank, const int64_t *dims)
{
    char expected[128];

    if (rank != tensor->shape.rank)
        return sy_error_set(SY_EARG, "input \"%s\" has %d dimensions; the model takes %s",
                            tensor->name, rank,
                            sy_shape_text(&tensor->shape, expected, sizeof(expected)));
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0)
            return sy_error_set(SY_EARG, "input \"%s\": dimension %d is %" PRId64, tensor->name, i,
                                dims[i]);
    return SY_OK;
}

int sy_front_tensor_bytes(const struct sy_tensor *tensor, int rank, const int64_t *dims,
                          uint64_t *out)
{
    bool counts = true;

    *out = sy_dtype_bytes(tensor->dtype);
    for (int i = 0; i < rank; i++)
        counts = !__builtin_mul_overflow(*out, (uint64_t)dims[i], out) && counts;
    return counts
               ? SY_OK
               : sy_error_set(SY_EARG, "input \"%s\" has a shape of more bytes than can be counted",
                              tensor->name);
}
