/* Which text a scraper wants: the Accept header. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/metrics/exposition.h"

const char *sy_exposition_content_type(enum sy_exposition_format format)
{
    return format == SY_EXPOSITION_OPENMETRICS
               ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
               : "text/plain; version=0.0.4; charset=utf-8";
}

/* One element of the list, its parameters included: [at, end). */
struct range {
    const char *at, *end;
};

static struct range trimmed(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    while (end > at && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    return (struct range){at, end};
}

static bool is(struct range r, const char *text)
{
    size_t n = strlen(text);

    return (size_t)(r.end - r.at) == n && strncasecmp(r.at, text, n) == 0;
}

/* Cuts *rest at `separator`. */
static struct range next(struct range *rest, char separator)
{
    const char *end = memchr(rest->at, separator, (size_t)(rest->end - rest->at));
    struct range r = trimmed(rest->at, end ? end : rest->end);

    rest->at = end ? end + 1 : rest->end;
    return r;
}

/* Quality from 0 to 1; malformed: 0. */
static double quality(struct range value)
{
    char text[8] = "", *end;
    size_t n = (size_t)(value.end - value.at);

    if (n == 0 || n >= sizeof text)
        return 0;
    memcpy(text, value.at, n);
    double q = strtod(text, &end);
    return *end || !(q >= 0 && q <= 1) ? 0 : q;
}

/* How much the element wants `type`; a version of OpenMetrics that this is not is not wanted. */
static double wants(struct range element, const char *type)
{
    double q = 1;

    if (!is(next(&element, ';'), type))
        return 0;
    while (element.at < element.end) {
        struct range value = next(&element, ';'), name = next(&value, '=');

        value = trimmed(value.at, value.end);
        if (is(name, "q"))
            q = quality(value);
        else if (is(name, "version") && type[0] == 'a' && !is(value, "1.0.0") &&
                 !is(value, "0.0.1"))
            return 0;
    }
    return q;
}

enum sy_exposition_format sy_exposition_choose(const char *accept)
{
    struct range rest = {accept, accept ? accept + strlen(accept) : NULL};
    double open = 0, text = 0;

    while (accept && rest.at < rest.end) {
        struct range element = next(&rest, ',');

        open = fmax(open, wants(element, "application/openmetrics-text"));
        text = fmax(text, wants(element, "text/plain"));
    }
    return open > 0 && open >= text ? SY_EXPOSITION_OPENMETRICS : SY_EXPOSITION_TEXT;
}
