#include "runtime/metrics/refusal.h"

const char *sy_refusal_label(enum sy_refusal reason)
{
    static const char *const labels[] = {
#define X(name, label, why) label,
        SY_REFUSAL_TABLE(X)
#undef X
    };

    return labels[reason];
}
