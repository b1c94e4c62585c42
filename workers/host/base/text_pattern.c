#define PCRE2_CODE_UNIT_WIDTH 8
#include "workers/host/base/text_pattern.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "workers/host/base/strings.h"
#include "workers/host/base/text_class.h"

#define MOST_STEPS 10000000u /* limit for one starting position of a match */
#define MOST_HEAP  65536u    /* KiB */
#define KEPT       16        /* unused compiled patterns that are kept; a model has one or two */

enum { BYTES_A_STEP = 16 }; /* bytes that an item of a pattern matches in the time of a step */

struct sy_pattern {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    size_t at;            /* position in the text at the last callout */
    bool whole, is_class; /* is_class: `of` finds the matches, PCRE2 is not used */
    struct sy_text_class of;
    char *text;
};

/* Called before each item of the pattern: PCRE2's own limit applies per starting position, of which there are as many as bytes. */
static int count_step(pcre2_callout_block *block, void *ctx)
{
    struct sy_pattern *p = ctx;
    size_t to = block->current_position, moved = to > p->at ? to - p->at : 0;
    p->at = to;
    return sy_strings_spend(1 + moved / BYTES_A_STEP) < 0 ? PCRE2_ERROR_CALLOUT : 0;
}

/* Cache of unused compiled patterns for the next run of the same model: compiling took a third of a short run. One per thread; when full, entries are replaced
 * in turn. */
static _Thread_local struct {
    struct sy_pattern *kept[KEPT];
    unsigned next;
} unused;

static void free_pattern(struct sy_pattern *p)
{
    if (!p)
        return;
    pcre2_match_context_free(p->limits);
    pcre2_match_data_free(p->match);
    pcre2_code_free(p->code);
    free(p->text);
    free(p);
}

static struct sy_pattern *take_unused(const char *text, bool whole)
{
    for (int i = 0; i < KEPT; i++) {
        struct sy_pattern *p = unused.kept[i];
        if (!p || p->whole != whole || strcmp(p->text, text) != 0)
            continue;
        unused.kept[i] = NULL;
        return p;
    }
    return NULL;
}

int sy_pattern_create(const char *pattern, bool whole, struct sy_pattern **out)
{
    int error = 0;
    PCRE2_SIZE at = 0;
    if ((*out = take_unused(pattern, whole)) != NULL)
        return SY_OK;
    struct sy_pattern *p = calloc(1, sizeof *p);
    SY_TRY_ALLOC(p, "no memory for a pattern");
    p->whole = whole;
    p->text = strdup(pattern);
    p->is_class =
        sy_text_class_parse(pattern, &p->of) && !(whole && (p->of.word_starts || p->of.word_ends));
    if (p->is_class && p->text) {
        *out = p;
        return SY_OK;
    }
    p->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_AUTO_CALLOUT |
                                (whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0),
                            &error, &at, NULL);
    if (!p->code) {
        PCRE2_UCHAR why[120];
        pcre2_get_error_message(error, why, sizeof why);
        free_pattern(p);
        return sy_error_set(SY_EUNSUPPORTED, "pattern '%.80s', character %zu: %s", pattern, at,
                            (const char *)why);
    }
    p->match = pcre2_match_data_create_from_pattern(p->code, NULL);
    p->limits = pcre2_match_context_create(NULL);
    if (!p->match || !p->limits || !p->text) {
        free_pattern(p);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a pattern");
    }
    pcre2_set_match_limit(p->limits, MOST_STEPS);
    pcre2_set_heap_limit(p->limits, MOST_HEAP);
    pcre2_set_callout(p->limits, count_step, p);
    *out = p;
    return SY_OK;
}

void sy_pattern_destroy(struct sy_pattern *p)
{
    int at = 0;
    if (!p)
        return;
    while (at < KEPT && unused.kept[at])
        at++;
    if (at == KEPT)
        at = (int)(unused.next++ % KEPT);
    free_pattern(unused.kept[at]);
    unused.kept[at] = p;
}

static int find_class(const struct sy_pattern *p, const char *text, size_t bytes, size_t from,
                      bool *found, size_t *start, size_t *end)
{
    if (from == 0 && !sy_text_is_utf8(text, bytes))
        return sy_error_set(SY_EARG, "a text of %zu bytes is not UTF-8", bytes);
    *start = from;
    *end = bytes;
    *found = p->whole ? sy_text_class_is_all(&p->of, text + from, bytes - from)
                      : sy_text_class_find(&p->of, text, bytes, from, start, end);
    return sy_strings_spend(1 + ((*found ? *end : bytes) - from) / BYTES_A_STEP);
}

int sy_pattern_find(struct sy_pattern *p, const char *text, size_t bytes, size_t from, bool *found,
                    size_t *start, size_t *end)
{
    if (p->is_class)
        return find_class(p, text, bytes, from, found, start, end);
    p->at = from;
    SY_TRY(sy_strings_spend(
        1 + (from > 0 ? 0 : bytes / BYTES_A_STEP))); /* the cost of the UTF-8 check */
    /* The match at the beginning has validated the whole text: repeating the check would make long texts quadratic. */
    int n = pcre2_match(p->code, (PCRE2_SPTR)text, bytes, from, from > 0 ? PCRE2_NO_UTF_CHECK : 0,
                        p->match, p->limits);
    *found = n >= 0;
    if (n == PCRE2_ERROR_NOMATCH)
        return SY_OK;
    if (n == PCRE2_ERROR_CALLOUT)
        return SY_EARG; /* the error text has the reason */
    if (n < 0) {
        PCRE2_UCHAR why[120];
        pcre2_get_error_message(n, why, sizeof why);
        return sy_error_set(SY_EARG, "a text of %zu bytes: %s", bytes, (const char *)why);
    }
    *start = pcre2_get_ovector_pointer(p->match)[0];
    *end = pcre2_get_ovector_pointer(p->match)[1];
    return SY_OK;
}
