/* Operators that make strings: case and stop words, concatenation, parts, patterns. Text is UTF-8. */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/strings.h"
#include "workers/host/base/text_case.h"
#include "workers/host/base/text_pattern.h"
#include "workers/host/reference/kernel.h"
#include "workers/host/reference/tokens.h"

static const struct sy_string *entries(const struct sy_array *a)
{
    return a->data;
}

static int check_strings(const struct sy_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (!sy_call_in(call, i))
            return sy_kernel_refuse(call, "an input that is left out");
    return SY_OK;
}

/* ---- StringNormalizer ----------------------------------------------------------------------------------- */

static int change_case(const struct sy_string *from, enum sy_text_case to, struct sy_string *out)
{
    uint32_t bytes;
    char *room;
    const char *text = sy_strings_text(*from, &bytes);
    if (to == SY_CASE_AS_IT_IS) {
        *out = *from;
        return SY_OK;
    }
    uint64_t wanted = sy_text_case(to, text, bytes, NULL);
    SY_TRY(sy_strings_room(wanted, &room, out));
    sy_text_case(to, text, bytes, room);
    return SY_OK;
}

/* Whether the text is one of the words, both in lower case unless case counts. */
static int is_stop_word(const struct sy_attr *words, bool case_counts,
                        const struct sy_string *entry, bool *out)
{
    struct sy_string folded = *entry;
    uint32_t bytes;
    *out = false;
    if (!case_counts)
        SY_TRY(change_case(entry, SY_CASE_LOWER, &folded));
    const char *text = sy_strings_text(folded, &bytes);
    for (int i = 0; words && i < words->n && !*out; i++) {
        size_t n;
        const char *word = sy_attr_string(words, i, &n);
        *out = case_counts ? n == bytes && memcmp(word, text, n) == 0
                           : sy_text_is_lower_of(text, bytes, word, (uint32_t)n);
    }
    return SY_OK;
}

static int run_normalizer(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    const struct sy_attr *words = sy_node_attr(call->node, "stopwords");
    const char *action = sy_text_attr(call->node, "case_change_action", "NONE");
    bool case_counts = sy_node_int(call->node, "is_case_sensitive", 0) != 0;
    enum sy_text_case to = strcmp(action, "LOWER") == 0   ? SY_CASE_LOWER
                           : strcmp(action, "UPPER") == 0 ? SY_CASE_UPPER
                                                          : SY_CASE_AS_IT_IS;
    int64_t kept = 0;
    for (int64_t i = 0; i < x->n; i++) {
        bool stops = false;
        if (words && words->n > 0)
            SY_TRY(is_stop_word(words, case_counts, &entries(x)[i], &stops));
        if (stops)
            continue;
        if (kept < y->n)
            SY_TRY(change_case(&entries(x)[i], to, (struct sy_string *)y->data + kept));
        kept++;
    }
    if (kept == 0 && words && words->n > 0) { /* one empty string */
        kept = 1;
        if (y->n > 0)
            *(struct sy_string *)y->data = (struct sy_string){0, 0};
    }
    return sy_kernel_count(call, kept, y->n);
}

/* ---- StringConcat ----------------------------------------------------------------------------------------- */

static int run_concat(const struct sy_call *call)
{
    const struct sy_array *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    int64_t sa[SY_MAX_RANK], sb[SY_MAX_RANK];
    sy_array_broadcast_strides(a, y, sa);
    sy_array_broadcast_strides(b, y, sb);
    for (int64_t i = 0; i < y->n; i++) {
        uint32_t n, m;
        char *to;
        struct sy_string *out = (struct sy_string *)y->data + i;
        struct sy_string left = entries(a)[sy_array_offset(y, i, sa)],
                         right = entries(b)[sy_array_offset(y, i, sb)];
        const char *first = sy_strings_text(left, &n), *second = sy_strings_text(right, &m);
        SY_TRY(sy_strings_room((uint64_t)n + m, &to, out));
        memcpy(to, first, n);
        memcpy(to + n, second, m);
    }
    return SY_OK;
}

static int check_concat(const struct sy_call *call)
{
    int64_t strides[SY_MAX_RANK];
    SY_TRY(check_strings(call));
    return call->n_in == 2 && sy_array_broadcast_strides(&call->in[0], &call->out[0], strides) &&
                   sy_array_broadcast_strides(&call->in[1], &call->out[0], strides)
               ? SY_OK
               : sy_kernel_refuse(call, "shapes that cannot be broadcast");
}

/* ---- parts ---------------------------------------------------------------------------------------------------- */

/* As Python's split(): at runs of blanks, none at the ends. */
static void split_at_blanks(struct sy_parts *p, const char *text, uint32_t n, int64_t most)
{
    uint32_t i = 0;
    while (i < n) {
        while (i < n && strchr(" \t\n\r\f\v", text[i]) && text[i])
            i++;
        uint32_t from = i;
        if (most > 0 && p->n == most) {
            if (i < n)
                sy_parts_add(p, i, n - i);
            return;
        }
        while (i < n && !(strchr(" \t\n\r\f\v", text[i]) && text[i]))
            i++;
        if (i > from)
            sy_parts_add(p, from, i - from);
    }
}

static void split_at(struct sy_parts *p, const char *text, uint32_t n, const char *delimiter,
                     int64_t most)
{
    size_t length = strlen(delimiter);
    uint32_t from = 0;
    if (n == 0)
        return;
    while (most <= 0 || p->n < most) {
        const char *at = memmem(text + from, n - from, delimiter, length);
        if (!at)
            break;
        sy_parts_add(p, from, (uint64_t)(at - text) - from);
        from = (uint32_t)((uint64_t)(at - text) + length);
    }
    sy_parts_add(p, from, n - from);
}

static void fill_rest(struct sy_parts *p, struct sy_string with)
{
    for (int64_t i = p->n; i < p->room; i++)
        p->to[i] = with;
}

static int run_split(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0], *counts = sy_call_out(call, 1);
    const char *delimiter = sy_text_attr(call->node, "delimiter", "");
    int64_t most = sy_node_int(call->node, "maxsplit", -1), longest = 0;
    int64_t room = y->rank > 0 ? y->dims[y->rank - 1] : 0;
    for (int64_t i = 0; i < x->n; i++) {
        uint32_t n;
        const char *text = sy_strings_text(entries(x)[i], &n);
        struct sy_parts p = {.whole = entries(x)[i],
                             .to = (struct sy_string *)y->data + i * room,
                             .room = call->counted ? 0 : room};
        if (*delimiter)
            split_at(&p, text, n, delimiter, most);
        else
            split_at_blanks(&p, text, n, most);
        fill_rest(&p, (struct sy_string){0, 0});
        if (counts && !call->counted)
            sy_put_int(counts, i, p.n);
        longest = SY_MAX(longest, p.n);
    }
    return sy_kernel_count(call, longest, room);
}

/* ---- Tokenizer, of ONNX Runtime ------------------------------------------------------------------------------- */

static int tokenize(const struct sy_tokens *t, const struct sy_call *call, struct sy_string marks,
                    struct sy_string pad, int64_t *longest)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    bool mark = sy_node_int(call->node, "mark", 0) != 0;
    int64_t room = y->rank > 0 ? y->dims[y->rank - 1] : 0;
    for (int64_t i = 0; i < x->n; i++) {
        uint32_t n;
        const char *text = sy_strings_text(entries(x)[i], &n);
        struct sy_parts p = {.whole = entries(x)[i],
                             .to = (struct sy_string *)y->data + i * room,
                             .room = call->counted ? 0 : room};
        if (mark && p.n++ < p.room)
            p.to[0] = (struct sy_string){marks.offset, 1};
        SY_TRY(sy_tokens_cut(t, &p, text, n));
        if (mark && p.n++ < p.room)
            p.to[p.n - 1] = (struct sy_string){marks.offset + 1, 1};
        fill_rest(&p, pad);
        *longest = SY_MAX(*longest, p.n);
    }
    return SY_OK;
}

static int run_tokenizer(const struct sy_call *call)
{
    const struct sy_array *y = &call->out[0];
    const char *pad_text = sy_text_attr(call->node, "pad_value", "");
    struct sy_string marks, pad;
    struct sy_tokens t;
    int64_t longest = 0;
    SY_TRY(sy_strings_add("\x02\x03", 2, &marks));
    SY_TRY(sy_strings_add(pad_text, strlen(pad_text), &pad));
    int status = sy_tokens_open(call->node, &t);
    if (status == SY_OK)
        status = tokenize(&t, call, marks, pad, &longest);
    sy_tokens_finish(&t);
    SY_TRY(status);
    return sy_kernel_count(call, longest, y->rank > 0 ? y->dims[y->rank - 1] : 0);
}

/* ---- RegexFullMatch --------------------------------------------------------------------------------------------- */

static int run_regex(const struct sy_call *call)
{
    struct sy_pattern *pattern;
    int status = sy_pattern_create(sy_text_attr(call->node, "pattern", ""), true, &pattern);
    SY_TRY(status);
    for (int64_t i = 0; i < call->in[0].n && status == SY_OK; i++) {
        uint32_t n;
        bool found = false;
        size_t start, end;
        const char *text = sy_strings_text(entries(&call->in[0])[i], &n);
        status = sy_pattern_find(pattern, text, n, 0, &found, &start, &end);
        ((uint8_t *)call->out[0].data)[i] = found;
    }
    sy_pattern_destroy(pattern);
    return status;
}

static int check_regex(const struct sy_call *call)
{
    struct sy_pattern *pattern;
    SY_TRY(sy_pattern_create(sy_text_attr(call->node, "pattern", ""), true, &pattern));
    sy_pattern_destroy(pattern);
    return check_strings(call);
}

#define STRINGS        \
    {                  \
        SY_BIT(STRING) \
    }
const struct sy_kernel sy_kernels_text[] = {
    {SY_OP_STRING_NORMALIZER, run_normalizer, STRINGS, check_strings, NULL},
    {SY_OP_STRING_CONCAT, run_concat, STRINGS, check_concat, NULL},
    {SY_OP_STRING_SPLIT, run_split, STRINGS, check_strings, NULL},
    {SY_OP_MS_TOKENIZER, run_tokenizer, STRINGS, check_strings, NULL},
    {SY_OP_REGEX_FULL_MATCH, run_regex, STRINGS, check_regex, NULL},
    {0}};
