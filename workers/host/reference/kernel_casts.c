/* Cast between strings and numbers. Floats have as many digits as give them back, as in ONNX's test data (ONNX Runtime has 8 of a float32). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/status.h"
#include "workers/host/base/strings.h"
#include "workers/host/reference/kernel.h"

enum { MOST_DIGITS = 64 };

static bool reads_back(const struct sy_array *x, double value, const char *text)
{
    return x->dtype == SY_DTYPE_F64 ? strtod(text, NULL) == value
                                    : strtof(text, NULL) == (float)value;
}

static int print_number(const struct sy_array *x, int64_t i, char *to)
{
    double value = sy_get(x, i);
    if (x->dtype == SY_DTYPE_U64)
        return snprintf(to, MOST_DIGITS, "%" PRIu64, ((const uint64_t *)x->data)[i]);
    if (!sy_is_float(x->dtype))
        return snprintf(to, MOST_DIGITS, "%" PRId64, sy_get_int(x, i));
    if (isnan(value))
        return snprintf(to, MOST_DIGITS, "NaN");
    if (isinf(value))
        return snprintf(to, MOST_DIGITS, value > 0 ? "INF" : "-INF");
    int digits = 1, n = 0;
    do
        n = snprintf(to, MOST_DIGITS, "%.*g", digits, value);
    while (digits++ < 17 && !reads_back(x, value, to));
    return n;
}

/* As ONNX Runtime reads: the number that the text begins with, whatever stands behind it; one of 64 bits goes into fewer by its lowest bits ("300" is 44 of
 * uint8, as in Cast between integers). False: it begins with none, or with one of more bits. */
static bool read_number(const char *text, const struct sy_array *y, int64_t i)
{
    char *end;
    errno = 0;
    if (sy_is_float(y->dtype)) {
        sy_put(y, i, strtod(text, &end));
        return end > text;
    }
    if (y->dtype == SY_DTYPE_U64)
        sy_put_int(y, i, (int64_t)strtoull(text, &end, 10));
    else
        sy_put_int(y, i, strtoll(text, &end, 10));
    return end > text && errno == 0;
}

static int from_text(const struct sy_call *call, int64_t i)
{
    uint32_t n;
    char copy[MOST_DIGITS + 1];
    const char *text = sy_strings_text(((const struct sy_string *)call->in[0].data)[i], &n);
    if (n <= MOST_DIGITS) {
        memcpy(copy, text, n);
        copy[n] = '\0';
        if (read_number(copy, &call->out[0], i))
            return SY_OK;
    }
    return sy_kernel_fail(call, "string %lld ('%.*s') is not a number of type %s", (long long)i,
                          (int)(n < 40 ? n : 40), text, sy_dtype_wire_name(call->out[0].dtype));
}

int sy_cast_strings(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    bool both = x->dtype == y->dtype;
    for (int64_t i = 0; i < x->n; i++) {
        char digits[MOST_DIGITS];
        if (both)
            sy_array_copy(y, i, x, i);
        else if (x->dtype == SY_DTYPE_STRING)
            SY_TRY(from_text(call, i));
        else
            SY_TRY(sy_strings_add(digits, (uint64_t)print_number(x, i, digits),
                                  (struct sy_string *)y->data + i));
    }
    return SY_OK;
}
