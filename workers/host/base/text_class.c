#include "workers/host/base/text_class.h"

#include <string.h>

#include "runtime/base/assert.h"

enum {
    ASCII = 128,
    LARGEST = 1000
}; /* LARGEST: limit of a quantifier; larger ones are left to PCRE2 */

/* ---- parsing ------------------------------------------------------------------------------------------ */

static bool is_word(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

static bool is_letter(unsigned char c)
{
    return is_word(c) && c != '_' && (c < '0' || c > '9');
}

static bool is_blank(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

/* Adds what \d, \S and their like stand for; false: `name` is none of them. */
static bool add_named(char name, bool *has)
{
    static const struct {
        char name;
        bool (*is)(unsigned char c);
    } all[] = {{'w', is_word}, {'s', is_blank}, {'d', is_digit}};
    for (size_t i = 0; i < SY_ARRAY_LEN(all); i++) {
        bool plain = name == all[i].name, negated = name == all[i].name - 32;
        for (int c = 0; c < 256 && (plain || negated); c++)
            has[c] = has[c] || all[i].is((unsigned char)c) == plain;
        if (plain || negated)
            return true;
    }
    return false;
}

/* The literal character at *at, escaped or not; 0: none, or a special one. */
static char take_literal(const char **at)
{
    static const char names[] = "ntrf", of[] = "\n\t\r\f";
    unsigned char c = (unsigned char)**at;
    const char *name;
    if (c == 0 || c >= ASCII)
        return 0;
    if (c != '\\')
        return *(*at)++;
    c = (unsigned char)(*at)[1];
    if (c == 0 || c >= ASCII)
        return 0;
    name = strchr(names, c);
    if (!name && (is_letter(c) || is_digit(c)))
        return 0;
    *at += 2;
    return name ? of[name - names] : (char)c;
}

/* The class between brackets; *at is behind the opening one. */
static bool take_set(const char **at, bool *has)
{
    bool negated = **at == '^';
    *at += negated;
    if (**at == ']')
        return false;
    while (**at && **at != ']') {
        const char *begin = *at;
        if (*begin == '[' || (*begin == '-' && begin[1] != ']'))
            return false;
        if (*begin == '\\' && add_named(begin[1], has)) {
            *at += 2;
            continue;
        }
        unsigned char first = (unsigned char)take_literal(at), last = first;
        if (!first)
            return false;
        if (**at == '-' && (*at)[1] != ']') {
            (*at)++;
            if (**at == '[' || !(last = (unsigned char)take_literal(at)) || last < first)
                return false;
        }
        for (int c = first; c <= last; c++)
            has[c] = true;
    }
    for (int c = 0; c < 256; c++)
        has[c] = has[c] != negated;
    return *(*at)++ == ']';
}

static bool take_class(const char **at, bool *has)
{
    memset(has, 0, 256 * sizeof *has);
    if (**at == '[') {
        (*at)++;
        return take_set(at, has);
    }
    if (**at == '.') {
        (*at)++;
        memset(has, true, 256 * sizeof *has);
        has['\n'] = false;
        return true;
    }
    if (**at == '\\' && add_named((*at)[1], has)) {
        *at += 2;
        return true;
    }
    if (strchr("^$|?*+(){", **at))
        return false;
    unsigned char c = (unsigned char)take_literal(at);
    has[c] = c != 0;
    return c != 0;
}

static bool take_number(const char **at, int64_t *out)
{
    const char *begin = *at;
    for (*out = 0; is_digit((unsigned char)**at) && *out <= LARGEST; (*at)++)
        *out = *out * 10 + (**at - '0');
    return *at > begin && *out <= LARGEST;
}

static bool take_counts(const char **at, int64_t *least, int64_t *most)
{
    (*at)++;
    if (!take_number(at, least))
        return false;
    *most = *least;
    if (**at == ',') {
        (*at)++;
        *most = INT64_MAX;
        if (**at != '}' && !take_number(at, most))
            return false;
    }
    return *(*at)++ == '}' && *most >= *least;
}

/* Parses a quantifier; non-greedy ones are not accepted. */
static bool take_quantifier(const char **at, int64_t *least, int64_t *most)
{
    char c = **at;
    *least = c == '*' || c == '?' ? 0 : 1;
    *most = c == '*' || c == '+' ? INT64_MAX : 1;
    if (c == '{' && !take_counts(at, least, most))
        return false;
    if (c == '*' || c == '+' || c == '?')
        (*at)++;
    else if (c != '{')
        return true;
    return **at == 0 || !strchr("?*+{", **at);
}

/* Merges consecutive items of one class, adding their counts. */
static bool take_items(const char **at, struct sy_text_class *out)
{
    bool more[256];
    int64_t least, most;
    out->least = out->most = 0;
    for (int n = 0; **at && !(n > 0 && strcmp(*at, "\\b") == 0); n++) {
        if (!take_class(at, n == 0 ? out->has : more) || !take_quantifier(at, &least, &most))
            return false;
        if (n > 0 && memcmp(more, out->has, sizeof more) != 0)
            return false;
        out->least += least;
        if (most == INT64_MAX || out->most == INT64_MAX)
            out->most = INT64_MAX;
        else
            out->most += most;
    }
    return out->least > 0;
}

bool sy_text_class_parse(const char *pattern, struct sy_text_class *out)
{
    const char *at = pattern;
    *out = (struct sy_text_class){.word_starts = strncmp(pattern, "\\b", 2) == 0};
    at += out->word_starts ? 2 : 0;
    if (!take_items(&at, out))
        return false;
    out->word_ends = *at != 0;
    if (out->word_starts || out->word_ends)
        for (int c = 0; c < 256; c++)
            if (out->has[c] && !is_word((unsigned char)c))
                return false;
    return true;
}

/* ---- finding ------------------------------------------------------------------------------------------ */

static size_t next_character(const char *text, size_t bytes, size_t at)
{
    at++;
    while (at < bytes && ((unsigned char)text[at] & 0xc0) == 0x80)
        at++;
    return at;
}

/* Extends a match from a character of the class, up to `most` characters; *n: their number. */
static size_t run_end(const struct sy_text_class *c, const char *text, size_t bytes, size_t at,
                      int64_t most, int64_t *n)
{
    for (*n = 0; at < bytes && *n < most && c->has[(unsigned char)text[at]]; (*n)++)
        at = next_character(text, bytes, at);
    return at;
}

/* In a run of word characters only its ends are a word's. All from *start to *end are of the class, which has word characters only. */
static bool find_in_word(const struct sy_text_class *c, const char *text, size_t bytes,
                         size_t *start, size_t *end)
{
    int64_t n = (int64_t)(*end - *start), most = SY_MIN(n, c->most);
    bool in_word = *start > 0 && is_word((unsigned char)text[*start - 1]);
    bool goes_on = *end < bytes && is_word((unsigned char)text[*end]);
    if (n < c->least || (c->word_starts && in_word) || (c->word_ends && goes_on) ||
        (c->word_starts && c->word_ends && n > most))
        return false;
    if (c->word_ends)
        *start = *end - (size_t)most;
    else
        *end = *start + (size_t)most;
    return true;
}

bool sy_text_class_find(const struct sy_text_class *c, const char *text, size_t bytes, size_t from,
                        size_t *start, size_t *end)
{
    bool words = c->word_starts || c->word_ends;
    size_t at = from;
    while (at < bytes) {
        int64_t n;
        if (!c->has[(unsigned char)text[at]]) {
            at++;
            continue;
        }
        *start = at;
        at = *end = run_end(c, text, bytes, at, words ? INT64_MAX : c->most, &n);
        if (words ? find_in_word(c, text, bytes, start, end) : n >= c->least)
            return true;
    }
    return false;
}

bool sy_text_class_is_all(const struct sy_text_class *c, const char *text, size_t bytes)
{
    int64_t n;
    return run_end(c, text, bytes, 0, c->most, &n) == bytes && n >= c->least;
}

/* ---- UTF-8 -------------------------------------------------------------------------------------------- */

/* Length of the UTF-8 character at the beginning; 0: invalid. */
static size_t character_bytes(const unsigned char *text, size_t left)
{
    unsigned char c = text[0];
    size_t n = c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    bool is_long = (c == 0xe0 && text[1] < 0xa0) || (c == 0xf0 && text[1] < 0x90);
    bool is_surrogate = c == 0xed && text[1] > 0x9f, is_beyond = c == 0xf4 && text[1] > 0x8f;
    return is_long || is_surrogate || is_beyond ? 0 : n;
}

bool sy_text_is_utf8(const char *text, size_t bytes)
{
    for (size_t i = 0, n; i < bytes; i += n) {
        n = (unsigned char)text[i] < ASCII
                ? 1
                : character_bytes((const unsigned char *)text + i, bytes - i);
        if (n == 0)
            return false;
    }
    return true;
}
