#include "workers/host/reference/tokens.h"

#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/text_case.h"
#include "workers/host/base/text_pattern.h"

const char *sy_text_attr(const struct sy_node *node, const char *name, const char *otherwise)
{
    const struct sy_attr *attr = sy_node_attr(node, name);
    return attr && attr->kind == SY_ATTR_STRING && attr->s ? attr->s : otherwise;
}

void sy_parts_add(struct sy_parts *p, uint64_t from, uint64_t bytes)
{
    if (p->n < p->room)
        p->to[p->n] = (struct sy_string){p->whole.offset + (uint32_t)from, (uint32_t)bytes};
    p->n++;
}

void sy_tokens_finish(struct sy_tokens *t)
{
    sy_pattern_destroy(t->pattern);
    for (int i = 0; i < t->n_separators; i++)
        sy_pattern_destroy(t->separators[i]);
    free(t->separators);
}

int sy_tokens_open(const struct sy_node *node, struct sy_tokens *t)
{
    const struct sy_attr *list = sy_node_attr(node, "separators");
    const char *pattern = sy_text_attr(node, "tokenexp", "");
    *t = (struct sy_tokens){.least = SY_MAX(sy_node_int(node, "mincharnum", 1), 1)};
    if (*pattern)
        return sy_pattern_create(pattern, false, &t->pattern);
    if (!list || list->kind != SY_ATTR_STRINGS || list->n == 0)
        return sy_error_set(SY_EUNSUPPORTED,
                            "node %s: %s (opset %d): neither a pattern nor separators", node->name,
                            sy_op_name(node->op), node->opset);
    size_t n;
    sy_attr_string(list, 0, &n);
    t->by_character = list->n == 1 && n == 0;
    if (t->by_character)
        return SY_OK;
    t->separators = calloc((size_t)list->n, sizeof(struct sy_pattern *));
    SY_TRY_ALLOC(t->separators, "no memory for separators");
    for (; t->n_separators < list->n; t->n_separators++)
        SY_TRY(sy_pattern_create(sy_attr_string(list, t->n_separators, &n), false,
                                 &t->separators[t->n_separators]));
    return SY_OK;
}

static void add_token(const struct sy_tokens *t, struct sy_parts *p, const char *text, size_t from,
                      size_t to)
{
    if (sy_text_characters(text + from, (uint32_t)(to - from)) >= t->least && to > from)
        sy_parts_add(p, from, to - from);
}

static void take_characters(const struct sy_tokens *t, struct sy_parts *p, const char *text,
                            uint32_t n)
{
    for (uint32_t i = 0; i < n;) {
        uint32_t bytes = sy_text_character(text + i, n - i);
        add_token(t, p, text, i, i + bytes);
        i += bytes;
    }
}

static int take_matches(const struct sy_tokens *t, struct sy_parts *p, const char *text, uint32_t n)
{
    size_t at = 0, start, end;
    bool found = true;
    while (at < n) {
        SY_TRY(sy_pattern_find(t->pattern, text, n, at, &found, &start, &end));
        if (!found)
            break;
        add_token(t, p, text, start, end);
        at = end > start ? end : end + sy_text_character(text + SY_MIN(end, (size_t)n - 1), 4);
    }
    return SY_OK;
}

/* Pieces between separators: the first separator cuts the text, the next ones cut its pieces. */
static int cut(const struct sy_tokens *t, struct sy_parts *p, const char *text, size_t from,
               size_t to, int level)
{
    size_t at = from, start, end;
    bool found = true;
    if (level == t->n_separators) {
        add_token(t, p, text, from, to);
        return SY_OK;
    }
    while (at < to) {
        SY_TRY(sy_pattern_find(t->separators[level], text, to, at, &found, &start, &end));
        if (!found || end == start)
            break;
        SY_TRY(cut(t, p, text, at, start, level + 1));
        at = end;
    }
    return cut(t, p, text, at, to, level + 1);
}

int sy_tokens_cut(const struct sy_tokens *t, struct sy_parts *parts, const char *text, uint32_t n)
{
    if (t->pattern)
        return take_matches(t, parts, text, n);
    if (!t->by_character)
        return cut(t, parts, text, 0, n, 0);
    take_characters(t, parts, text, n);
    return SY_OK;
}
