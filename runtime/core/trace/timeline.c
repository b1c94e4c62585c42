#include "runtime/core/trace/timeline.h"

#include <stdbool.h>
#include <string.h>

#include "runtime/base/assert.h"

void sy_timeline_clear(struct sy_timeline *t)
{
    t->n = 0;
    memset(t->last, 0, sizeof(t->last));
}

static void widen(struct sy_timeline_span *s, sy_ns start, sy_ns end)
{
    s->busy_ns += end - start;
    s->start = SY_MIN(s->start, start);
    s->end = SY_MAX(s->end, end);
    s->busy_ns = SY_MIN(s->busy_ns, s->end - s->start);
    s->n++;
}

static bool continues(const struct sy_timeline_span *s, const char *name, sy_ns start)
{
    return start >= s->start && start <= s->end + SY_TIMELINE_GAP_NS && strcmp(s->name, name) == 0;
}

/* L2: the last entries are reserved for lanes that have none yet. */
static bool is_full(const struct sy_timeline *t, int lane)
{
    return t->last[lane] && t->n >= SY_TIMELINE_SPANS - SY_TIMELINE_LANES;
}

/* Truncates at a character boundary, since readers expect UTF-8. */
static void copy_name(char *to, size_t size, const char *name)
{
    size_t n = strnlen(name, size - 1);

    if (name[n])
        while (n > 0 && (name[n] & 0xC0) == 0x80)
            n--;
    memcpy(to, name, n);
    to[n] = '\0';
}

void sy_timeline_add(struct sy_timeline *t, int lane, const char *name, sy_ns start, sy_ns end)
{
    struct sy_timeline_span *last = t->last[lane] ? &t->spans[t->last[lane] - 1] : NULL;
    struct sy_timeline_span span = {
        .lane = lane, .n = 1, .start = start, .end = end, .busy_ns = end - start};

    if (end <= start)
        return;
    copy_name(span.name, sizeof(span.name), name);
    if (last && continues(last, span.name, start)) {
        widen(last, start, end);
    } else if (is_full(t, lane)) {
        widen(last, start, end);
        last->name[0] = '\0';
    } else {
        t->spans[t->n++] = span;
        t->last[lane] = t->n;
    }
}
