#include "runtime/cli/serve_values.h"

#include <stdlib.h>

#include "runtime/base/status.h"
#include "runtime/cli/cli.h"

#define MAX_POLL_US 10000

int sy_serve_set_count(const char *value, int64_t least, int64_t most, int *out)
{
    int64_t number;

    SY_TRY(sy_cli_integer(value, least, most, &number));
    *out = (int)number;
    return SY_OK;
}

int sy_serve_set_bytes(const char *value, uint64_t *out)
{
    SY_TRY(sy_cli_bytes(value, out));
    return *out > 0 ? SY_OK : sy_error_set(SY_EARG, "\"%s\" is no room at all", value);
}

int sy_serve_set_poll(const char *value, int *out)
{
    int64_t us;

    SY_TRY(sy_cli_integer(value, 0, MAX_POLL_US, &us));
    *out = (int)us;
    return SY_OK;
}

int sy_serve_set_mode(const char *value, unsigned *out)
{
    char *end;
    unsigned long mode = strtoul(value, &end, 8);

    *out = (unsigned)mode;
    if (!*value || *end || mode == 0 || mode > 0777)
        return sy_error_set(SY_EARG, "\"%s\" is no mode from 1 to 777", value);
    return SY_OK;
}

int sy_serve_set_seconds(const char *value, sy_ns *out)
{
    double seconds;

    SY_TRY(sy_cli_real(value, &seconds));
    if (seconds < 0.01 || seconds > 1e6)
        return sy_error_set(SY_EARG, "\"%s\" is not a time from 0.01 to 1e6 seconds", value);
    *out = (sy_ns)(seconds * 1e9);
    return SY_OK;
}

int sy_serve_set_text(const char **to, const char *value)
{
    *to = value;
    return SY_OK;
}
