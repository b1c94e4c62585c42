/* How a finding is written, and what its words are. */
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/doctor/findings_internal.h"

const char *sy_finding_group_title(enum sy_finding_group group)
{
    static const char *const titles[] = {
#define X(name, title) title,
        SY_FINDING_GROUPS(X)
#undef X
    };
    return titles[group];
}

const char *sy_finding_level_name(enum sy_finding_level level)
{
    static const char *const names[] = {"ok", "warn", "FAIL"};
    return names[level];
}

struct sy_finding *sy_finding_add(struct sy_findings *out, enum sy_finding_group group,
                                  const char *id, enum sy_finding_level level, const char *format,
                                  ...)
{
    va_list arguments;
    assert(out->n < SY_MAX_FINDINGS); /* each id is added at most once */
    struct sy_finding *finding = &out->list[out->n++];
    *finding = (struct sy_finding){.group = group, .level = level, .id = id};
    va_start(arguments, format);
    vsnprintf(finding->value, sizeof finding->value, format, arguments);
    va_end(arguments);
    return finding;
}

void sy_finding_append(struct sy_finding *finding, const char *format, ...)
{
    size_t used = strlen(finding->value);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->value + used, sizeof finding->value - used, format, arguments);
    va_end(arguments);
}

void sy_finding_advise(struct sy_finding *finding, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->advice, sizeof finding->advice, format, arguments);
    va_end(arguments);
}

const char *sy_finding_bytes(double bytes, char out[SY_SIZE_TEXT_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;
    if (isnan(bytes) || isinf(bytes)) {
        snprintf(out, SY_SIZE_TEXT_BYTES, "%s", isnan(bytes) ? "unknown" : "unlimited");
        return out;
    }
    for (; bytes >= 1024 && unit + 1 < SY_ARRAY_LEN(units); unit++)
        bytes /= 1024;
    snprintf(out, SY_SIZE_TEXT_BYTES, unit == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes,
             units[unit]);
    return out;
}
