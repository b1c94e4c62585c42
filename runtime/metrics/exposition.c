#include "runtime/metrics/exposition.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"

#define NOT_SHOWN "\xef\xbf\xbd" /* U+FFFD */

void sy_exposition_init(struct sy_exposition *e, enum sy_exposition_format format,
                        size_t most_bytes)
{
    memset(e, 0, sizeof *e);
    e->format = format;
    e->most = most_bytes;
}

void sy_exposition_finish(struct sy_exposition *e)
{
    sy_text_finish(&e->text);
}

/* ---- text ---------------------------------------------------------------------------------------------------- */

/* E3 */
static void put(struct sy_exposition *e, const char *bytes, size_t n)
{
    if (e->status < 0)
        return;
    if (e->text.used + n > e->most)
        e->status =
            sy_error_set(SY_ETOOBIG, "the metrics are longer than %zu bytes of text", e->most);
    else
        sy_text_add(&e->text, bytes, n);
    if (e->text.failed)
        e->status = sy_error_set(SY_ENOMEM_HOST, "no memory for the metrics");
}

static void put_text(struct sy_exposition *e, const char *text)
{
    put(e, text, strlen(text));
}

/* Not by snprintf: it would be half of the time of a large exposition. */
static void put_count(struct sy_exposition *e, uint64_t value)
{
    char text[24], *end = text + sizeof text, *from = end;

    do {
        *--from = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    put(e, from, (size_t)(end - from));
}

/* "0.0025": all digits that matter, at least one after the point. */
static void put_seconds(struct sy_exposition *e, sy_ns value)
{
    char text[16];
    uint64_t rest = value % SY_NS_PER_S;
    int n = 10;

    put_count(e, value / SY_NS_PER_S);
    text[0] = '.';
    for (int i = 9; i > 0; i--, rest /= 10)
        text[i] = (char)('0' + rest % 10);
    while (n > 2 && text[n - 1] == '0')
        n--;
    put(e, text, (size_t)n);
}

static void put_real(struct sy_exposition *e, double value)
{
    char text[32];

    if (isnan(value))
        put_text(e, "NaN");
    else if (isinf(value))
        put_text(e, value > 0 ? "+Inf" : "-Inf");
    else {
        snprintf(text, sizeof text, "%.17g", value);
        put_text(e, text);
    }
}

/* ---- families ------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

static const char *type_of(const struct sy_exposition *e)
{
    switch (e->kind) {
    case SY_METRIC_COUNTER:
        return "counter";
    case SY_METRIC_PLAIN_COUNTER:
        return e->format == SY_EXPOSITION_OPENMETRICS ? "unknown" : "counter";
    case SY_METRIC_GAUGE:
        return "gauge";
    default:
        return "histogram";
    }
}

/* E2: what a family is called in its comment lines. */
static void put_comment(struct sy_exposition *e, const char *what)
{
    put_text(e, what);
    put_text(e, e->name);
    if (e->kind == SY_METRIC_COUNTER && e->format == SY_EXPOSITION_TEXT)
        put_text(e, "_total");
    put_text(e, " ");
}

static void put_help(struct sy_exposition *e, const char *help)
{
    for (; *help; help++)
        if (*help == '\n')
            put_text(e, "\\n");
        else if (*help == '\\' || (*help == '"' && e->format == SY_EXPOSITION_OPENMETRICS))
            put(e, (char[]){'\\', *help}, 2);
        else
            put(e, help, 1);
}

void sy_exposition_family(struct sy_exposition *e, enum sy_metric_kind kind, const char *name,
                          const char *help)
{
    const char *unit = ends_with(name, "_seconds") ? "seconds"
                       : ends_with(name, "_bytes") ? "bytes"
                                                   : NULL;

    sy_assert_internal(kind != SY_METRIC_COUNTER || !ends_with(name, "_total"));
    e->kind = kind;
    e->name = name;
    e->labels_used = 0;
    put_comment(e, "# HELP ");
    put_help(e, help);
    put_text(e, "\n");
    put_comment(e, "# TYPE ");
    put_text(e, type_of(e));
    put_text(e, "\n");
    if (!unit || e->format != SY_EXPOSITION_OPENMETRICS)
        return;
    put_comment(e, "# UNIT ");
    put_text(e, unit);
    put_text(e, "\n");
}

/* ---- labels ---------------------------------------------------------------------------------------------------- */

static void add_label_bytes(struct sy_exposition *e, const char *bytes, size_t n)
{
    if (e->labels_used + n > sizeof e->labels) {
        if (e->status >= 0)
            e->status = sy_error_set(SY_ETOOBIG, "the labels of a sample of %s are longer than %d",
                                     e->name, SY_EXPOSITION_LABELS);
        return;
    }
    memcpy(e->labels + e->labels_used, bytes, n);
    e->labels_used += n;
}

static void add_label_value(struct sy_exposition *e, const char *value)
{
    while (*value) {
        size_t shown = sy_printable_length(value), plain = strcspn(value, "\\\"\n");
        size_t n = SY_MIN(shown, plain);

        add_label_bytes(e, value, n);
        value += n;
        if (!*value)
            break;
        if (*value == '\n')
            add_label_bytes(e, "\\n", 2);
        else if (plain <= shown)
            add_label_bytes(e, (char[]){'\\', *value}, 2);
        else
            add_label_bytes(e, NOT_SHOWN, strlen(NOT_SHOWN));
        value++;
    }
}

void sy_exposition_labels(struct sy_exposition *e, const struct sy_label *labels, int n)
{
    e->labels_used = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0)
            add_label_bytes(e, ",", 1);
        add_label_bytes(e, labels[i].name, strlen(labels[i].name));
        add_label_bytes(e, "=\"", 2);
        add_label_value(e, labels[i].value);
        add_label_bytes(e, "\"", 1);
    }
}

/* ---- samples --------------------------------------------------------------------------------------------------- */

/* Name, suffix and labels, up to where `le` or the closing brace goes. */
static void begin_sample(struct sy_exposition *e, const char *suffix, bool has_more_labels)
{
    put_text(e, e->name);
    put_text(e, suffix);
    if (e->labels_used == 0 && !has_more_labels)
        return;
    put(e, "{", 1);
    put(e, e->labels, e->labels_used);
    if (has_more_labels && e->labels_used > 0)
        put(e, ",", 1);
}

static void begin_value(struct sy_exposition *e)
{
    begin_sample(e, e->kind == SY_METRIC_COUNTER ? "_total" : "", false);
    put_text(e, e->labels_used > 0 ? "} " : " ");
}

void sy_exposition_count(struct sy_exposition *e, uint64_t value)
{
    begin_value(e);
    put_count(e, value);
    put(e, "\n", 1);
}

void sy_exposition_real(struct sy_exposition *e, double value)
{
    begin_value(e);
    put_real(e, value);
    put(e, "\n", 1);
}

void sy_exposition_seconds(struct sy_exposition *e, sy_ns value)
{
    begin_value(e);
    put_seconds(e, value);
    put(e, "\n", 1);
}

void sy_exposition_histogram(struct sy_exposition *e, const struct sy_histogram *h)
{
    const char *closing = e->labels_used > 0 ? "} " : " ";
    uint64_t n = 0;

    for (int i = 0; i <= SY_HISTOGRAM_BOUNDS; i++) {
        n += h->counts[i];
        begin_sample(e, "_bucket", true);
        put_text(e, "le=\"");
        if (i < SY_HISTOGRAM_BOUNDS)
            put_seconds(e, sy_histogram_bound_ns(i));
        else
            put_text(e, "+Inf");
        put_text(e, "\"} ");
        put_count(e, n);
        put(e, "\n", 1);
    }
    begin_sample(e, "_sum", false);
    put_text(e, closing);
    put_seconds(e, h->sum_ns);
    put(e, "\n", 1);
    begin_sample(e, "_count", false);
    put_text(e, closing);
    put_count(e, n);
    put(e, "\n", 1);
}

int sy_exposition_end(struct sy_exposition *e, char **out_text, size_t *out_bytes)
{
    if (e->format == SY_EXPOSITION_OPENMETRICS)
        put_text(e, "# EOF\n");
    if (e->status < 0)
        return e->status;
    *out_text = e->text.at;
    *out_bytes = e->text.used;
    e->text = (struct sy_text){0};
    return SY_OK;
}
