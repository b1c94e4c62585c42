#include "runtime/front/metrics/metrics_body.h"

int sy_metrics_body(const struct sy_metrics_input *in, char **out_text, size_t *out_bytes)
{
    struct sy_exposition e;

    sy_exposition_init(&e, in->format, SY_METRICS_MOST_BYTES);
    if (in->triton)
        sy_metrics_body_triton(&e, in);
    if (in->own)
        sy_metrics_body_own(&e, in);
    int status = sy_exposition_end(&e, out_text, out_bytes);
    sy_exposition_finish(&e);
    return status;
}
