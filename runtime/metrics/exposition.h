/* Writes metrics as text: Prometheus' format 0.0.4, or OpenMetrics 1.0. Pure.
 *
 *   sy_exposition_family(e, SY_METRIC_COUNTER, "switchyard_swaps", "Requests whose weights had to move.");
 *   sy_exposition_labels(e, (struct sy_label[]){{"model", name}}, 1);
 *   sy_exposition_count(e, n);
 *
 * E1: a family is begun once, and its samples follow it. Names are the program's ([a-z0-9_]); label values are anybody's: they are escaped, and what is
 *     no UTF-8 or cannot be shown becomes U+FFFD.
 * E2: a counter's family is named without "_total"; its samples, and its family in Prometheus' format, have it. Names that end in _seconds or _bytes
 *     have that unit in OpenMetrics.
 * E3: the first failure (no memory, too long) ends the writing, and sy_exposition_end returns it. */
#ifndef SY_METRICS_EXPOSITION_H
#define SY_METRICS_EXPOSITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/text_builder.h"
#include "runtime/metrics/histogram.h"

enum sy_exposition_format { SY_EXPOSITION_TEXT, SY_EXPOSITION_OPENMETRICS };

/* By an Accept header's value (NULL: none): OpenMetrics where it is named in a version that this is, and liked more than text/plain; else text. */
enum sy_exposition_format sy_exposition_choose(const char *accept);
const char *sy_exposition_content_type(enum sy_exposition_format format);

/* SY_METRIC_PLAIN_COUNTER: a counter whose name others chose, without "_total": OpenMetrics has no such counters, there it is of type "unknown". */
enum sy_metric_kind {
    SY_METRIC_COUNTER,
    SY_METRIC_PLAIN_COUNTER,
    SY_METRIC_GAUGE,
    SY_METRIC_HISTOGRAM
};

struct sy_label {
    const char *name, *value;
};

#define SY_EXPOSITION_LABELS 1536 /* bytes of one sample's labels, as they are written */

struct sy_exposition {
    enum sy_exposition_format format;
    struct sy_text text;
    size_t most;
    int status;
    enum sy_metric_kind kind;
    const char *name;                  /* name of the family */
    char labels[SY_EXPOSITION_LABELS]; /* labels of the samples as written, without braces */
    size_t labels_used;
};

/* The caller's memory. At most most_bytes are written; more is SY_ETOOBIG. */
void sy_exposition_init(struct sy_exposition *e, enum sy_exposition_format format,
                        size_t most_bytes);
void sy_exposition_finish(struct sy_exposition *e); /* also after sy_exposition_end */

/* The strings outlive the exposition. */
void sy_exposition_family(struct sy_exposition *e, enum sy_metric_kind kind, const char *name,
                          const char *help);
/* Sets the labels of the following samples, until the next family or call. n 0: none. Longer than SY_EXPOSITION_LABELS: SY_ETOOBIG. */
void sy_exposition_labels(struct sy_exposition *e, const struct sy_label *labels, int n);

void sy_exposition_count(struct sy_exposition *e, uint64_t value);
void sy_exposition_real(struct sy_exposition *e, double value);   /* NaN and infinities, too */
void sy_exposition_seconds(struct sy_exposition *e, sy_ns value); /* exact to the nanosecond */
void sy_exposition_histogram(struct sy_exposition *e, const struct sy_histogram *h);

/* Ends the text; it is the caller's to free. ENOMEM_HOST, ETOOBIG: nothing is given. */
int sy_exposition_end(struct sy_exposition *e, char **out_text, size_t *out_bytes);

#endif
