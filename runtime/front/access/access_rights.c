/* The words of rights, as the command line and the token file have them. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/access/access_internal.h"

static const struct {
    const char *name;
    unsigned bits;
} right_names[] = {
    {"read", SY_RIGHT_READ},
    {"infer", SY_RIGHT_READ | SY_RIGHT_INFER},
    {"models", SY_RIGHT_READ | SY_RIGHT_MODELS},
    {"jobs", SY_RIGHT_READ | SY_RIGHT_JOBS},
    {"admin", SY_RIGHTS_ALL},
};

int sy_access_parse_rights(const char *text, unsigned *out)
{
    *out = 0;
    if (strcmp(text, "none") == 0)
        return SY_OK;
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ","), i = 0;

        while (i < SY_ARRAY_LEN(right_names) &&
               (strlen(right_names[i].name) != n || memcmp(right_names[i].name, at, n) != 0))
            i++;
        if (i == SY_ARRAY_LEN(right_names))
            return sy_error_set(SY_EARG,
                                "\"%.*s\" is no right; there are read, infer, models, jobs, admin, "
                                "and none",
                                (int)SY_MIN(n, (size_t)40), at);
        *out |= right_names[i].bits;
        at += n;
        if (!*at)
            return SY_OK;
    }
}

const char *sy_access_right_name(unsigned right)
{
    const char *name = "admin";

    for (size_t i = 0; i < SY_ARRAY_LEN(right_names); i++)
        if (right_names[i].bits == (right | SY_RIGHT_READ))
            name = right_names[i].name;
    return name;
}
