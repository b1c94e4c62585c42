/* Helpers of kernels: errors, counting, arrays and their types. */
#include "workers/host/reference/kernel.h"

#include <stdarg.h>
#include <stdio.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

int sy_kernel_refuse(const struct sy_call *call, const char *what)
{
    return sy_error_set(SY_EUNSUPPORTED, "node %s: %s (opset %d): %s", call->node->name,
                        sy_op_name(call->node->op), call->node->opset, what);
}

int sy_kernel_fail(const struct sy_call *call, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return sy_error_set(SY_EARG, "node %s: %s (opset %d): %s", call->node->name,
                        sy_op_name(call->node->op), call->node->opset, text);
}

int sy_kernel_count(const struct sy_call *call, int64_t n, int64_t room)
{
    if (call->counted)
        *call->counted = n;
    else if (n != room)
        return sy_kernel_fail(call, "its data leads to %lld, the file declares %lld", (long long)n,
                              (long long)room);
    return SY_OK;
}

/* ---- arrays --------------------------------------------------------------------------------------- */

bool sy_array_same_dims(const struct sy_array *a, const struct sy_array *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

void sy_array_strides(const struct sy_array *a, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = a->rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= a->dims[i];
    }
}

bool sy_array_broadcast_strides(const struct sy_array *a, const struct sy_array *out,
                                int64_t *strides)
{
    int64_t stride = 1;
    if (a->rank > out->rank)
        return false;
    for (int i = out->rank - 1; i >= 0; i--) {
        int k = i - (out->rank - a->rank);
        int64_t extent = k >= 0 ? a->dims[k] : 1;
        if (extent != 1 && extent != out->dims[i])
            return false;
        strides[i] = extent == 1 ? 0 : stride;
        stride *= extent;
    }
    return true;
}

int64_t sy_array_extent(const struct sy_array *a, int first, int end)
{
    int64_t n = 1;
    for (int i = first; i < end; i++)
        n *= a->dims[i];
    return n;
}

void sy_array_at(const struct sy_array *a, int64_t i, int64_t *at)
{
    for (int d = a->rank - 1; d >= 0; d--) {
        at[d] = i % a->dims[d];
        i /= a->dims[d];
    }
}

int64_t sy_array_offset(const struct sy_array *shape, int64_t i, const int64_t *strides)
{
    int64_t offset = 0;
    for (int d = shape->rank - 1; d >= 0; d--) {
        offset += i % shape->dims[d] * strides[d];
        i /= shape->dims[d];
    }
    return offset;
}

void sy_array_copy(const struct sy_array *to, int64_t i, const struct sy_array *from, int64_t k)
{
    size_t bytes = sy_dtype_bytes(from->dtype);
    memcpy((char *)to->data + (size_t)i * bytes, (const char *)from->data + (size_t)k * bytes,
           bytes);
}

bool sy_is_float(enum sy_dtype dtype)
{
    return dtype < 31 && (SY_ANY_FLOAT >> dtype & 1);
}

int sy_kernel_check_types(const struct sy_kernel *kernel, const struct sy_call *call)
{
    uint32_t allowed = 0;
    char text[96];
    for (int i = 0; i < call->n_in; i++) {
        const struct sy_array *in = sy_call_in(call, i);
        if (i < SY_KERNEL_TYPES && kernel->types[i] != 0)
            allowed = kernel->types[i];
        if (!in)
            continue;
        bool ok =
            allowed == SY_AS_FIRST ? in->dtype == call->in[0].dtype : allowed >> in->dtype & 1;
        if (ok)
            continue;
        snprintf(text, sizeof text, "input %d of type %s", i, sy_dtype_wire_name(in->dtype));
        return sy_kernel_refuse(call, text);
    }
    return SY_OK;
}
