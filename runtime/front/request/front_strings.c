#include "runtime/front/request/front_strings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/status.h"

/* ---- JSON -> strings --------------------------------------------------------------------------------------- */

struct reader {
    const char *name, *at, *end;
    uint64_t n, i;
    char *to;
};

static int bad_data(const struct reader *r, const char *what)
{
    return sy_error_set(SY_EARG, "input \"%s\": element %" PRIu64 " of \"data\" %s", r->name, r->i,
                        what);
}

/* Four hexadecimal digits; -1: they are not. */
static int32_t read_hex(const char *at, const char *end)
{
    int32_t value = 0;

    if (end - at < 4)
        return -1;
    for (int k = 0; k < 4; k++) {
        char c = at[k] | 0x20;
        int32_t digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

        if (digit < 0 || (c != at[k] && c < 'a'))
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static char *put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    }
    return to;
}

/* Behind "\u": one character, of two such where it is beyond 16 bits. NULL: it is none. */
static char *read_code(struct reader *r, char *to)
{
    int32_t high = read_hex(r->at, r->end), low;

    if (high < 0 || (high >= 0xdc00 && high < 0xe000))
        return NULL;
    r->at += 4;
    if (high < 0xd800 || high >= 0xe000)
        return put_utf8(to, (uint32_t)high);
    if (r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
        return NULL;
    low = read_hex(r->at + 2, r->end);
    if (low < 0xdc00 || low >= 0xe000)
        return NULL;
    r->at += 6;
    return put_utf8(to, 0x10000 + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00));
}

static char *read_escape(struct reader *r, char *to)
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char c = r->at < r->end ? *r->at++ : '\0';
    const char *name = c ? strchr(names, c) : NULL;

    if (c == 'u')
        return read_code(r, to);
    if (!name)
        return NULL;
    *to = meant[name - names];
    return to + 1;
}

/* At its first quote: the text without quotes, never longer than what it was read from. */
static int read_string(struct reader *r)
{
    char *start = r->to + sizeof(uint32_t), *to = start;

    if (r->i == r->n)
        return sy_error_set(SY_EARG,
                            "input \"%s\": \"data\" has more than the %" PRIu64
                            " elements that its shape says",
                            r->name, r->n);
    for (r->at++; to && r->at < r->end && *r->at != '"';) {
        char c = *r->at++;

        if (c == '\\')
            to = read_escape(r, to);
        else if ((unsigned char)c < 0x20)
            to = NULL;
        else
            *to++ = c;
    }
    if (!to || r->at == r->end)
        return bad_data(r, "is not a string of JSON");
    uint32_t bytes = (uint32_t)(to - start);
    memcpy(r->to, &bytes, sizeof bytes);
    r->to = to;
    r->at++;
    r->i++;
    return SY_OK;
}

enum place { OPENED, AFTER_COMMA, AFTER_VALUE };

/* Brackets and commas up to the next value, or the end. */
static int read_brackets(struct reader *r, int *depth, enum place *place)
{
    for (;; r->at++) {
        while (r->at < r->end && strchr(" \n\r\t", *r->at) && *r->at)
            r->at++;
        char c = r->at < r->end ? *r->at : '\0';
        if (*depth == 0 && *place == AFTER_VALUE)
            return r->at == r->end ? SY_OK : bad_data(r, "is behind its end");
        if (c == '[' && *place != AFTER_VALUE) {
            ++*depth;
            *place = OPENED;
        } else if (c == ']' && *place != AFTER_COMMA && *depth > 0) {
            --*depth;
            *place = AFTER_VALUE;
        } else if (c == ',' && *place == AFTER_VALUE) {
            *place = AFTER_COMMA;
        } else {
            return c == '"' && *place != AFTER_VALUE && *depth > 0 ? SY_OK
                                                                   : bad_data(r, "is not a string");
        }
    }
}

uint64_t sy_strings_json_bytes(const struct sy_json_cut *data, uint64_t n)
{
    return data->bytes + n * sizeof(uint32_t);
}

int sy_strings_from_json(const struct sy_json_cut *data, const char *name, uint64_t n, void *to)
{
    struct reader r = {
        .name = name, .at = data->text, .end = data->text + data->bytes, .n = n, .to = to};
    enum place place = AFTER_COMMA;
    int depth = 0;

    for (;;) {
        SY_TRY(read_brackets(&r, &depth, &place));
        if (depth == 0)
            break;
        SY_TRY(read_string(&r));
        place = AFTER_VALUE;
    }
    if (r.i < n)
        return sy_error_set(
            SY_EARG, "input \"%s\": \"data\" has %" PRIu64 " elements; its shape says %" PRIu64,
            name, r.i, n);
    sy_string_block_end(to, (uint64_t)(r.to - (char *)to));
    return SY_OK;
}

/* ---- strings -> JSON --------------------------------------------------------------------------------------- */

/* Bytes of the character at `at`; 0: it is no UTF-8. */
static uint32_t character_bytes(const unsigned char *at, uint32_t left)
{
    static const struct {
        unsigned char from, to; /* range of the first byte */
        uint32_t bytes;
        unsigned char least, most; /* range of the second byte */
    } forms[] = {
        {0x00, 0x7f, 1, 0, 0},       {0xc2, 0xdf, 2, 0x80, 0xbf}, {0xe0, 0xe0, 3, 0xa0, 0xbf},
        {0xe1, 0xec, 3, 0x80, 0xbf}, {0xed, 0xed, 3, 0x80, 0x9f}, {0xee, 0xef, 3, 0x80, 0xbf},
        {0xf0, 0xf0, 4, 0x90, 0xbf}, {0xf1, 0xf3, 4, 0x80, 0xbf}, {0xf4, 0xf4, 4, 0x80, 0x8f}};

    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        if (at[0] < forms[k].from || at[0] > forms[k].to)
            continue;
        bool good = forms[k].bytes <= left;
        if (good && forms[k].bytes > 1)
            good = at[1] >= forms[k].least && at[1] <= forms[k].most;
        for (uint32_t i = 2; good && i < forms[k].bytes; i++)
            good = at[i] >= 0x80 && at[i] <= 0xbf;
        return good ? forms[k].bytes : 0;
    }
    return 0;
}

/* False: it is no UTF-8. */
static bool add_string(struct sy_text *text, const char *from, uint32_t n)
{
    uint32_t plain = 0, i = 0;
    char escape[8];

    sy_text_add(text, "\"", 1);
    while (i < n) {
        uint32_t bytes = character_bytes((const unsigned char *)from + i, n - i);
        unsigned char c = (unsigned char)from[i];

        if (bytes == 0)
            return false;
        if (c < 0x20 || c == '"' || c == '\\') {
            sy_text_add(text, from + plain, i - plain);
            int k = c < 0x20 ? snprintf(escape, sizeof escape, "\\u%04x", c)
                             : snprintf(escape, sizeof escape, "\\%c", c);
            sy_text_add(text, escape, (size_t)k);
            plain = i + 1;
        }
        i += bytes;
    }
    sy_text_add(text, from + plain, n - plain);
    sy_text_add(text, "\"", 1);
    return true;
}

int sy_strings_to_json(struct sy_text *text, const struct sy_front_tensor *tensor)
{
    const char *at = tensor->data, *end = at + tensor->bytes;
    uint64_t n_strings = 1;

    for (int d = 0; d < tensor->rank; d++)
        n_strings *= (uint64_t)tensor->dims[d];

    sy_text_add(text, "[", 1);
    for (uint64_t i = 0; i < n_strings; i++) {
        uint32_t n = UINT32_MAX;

        if (i > 0)
            sy_text_add(text, ",", 1);
        if ((size_t)(end - at) >= sizeof n)
            memcpy(&n, at, sizeof n);
        if ((size_t)(end - at) < sizeof n || n > (size_t)(end - at) - sizeof n)
            return sy_error_set(SY_ECORRUPT, "output \"%s\": string %" PRIu64 " is not whole",
                                tensor->name, i);
        if (!add_string(text, at + sizeof n, n))
            return sy_error_set(SY_EARG,
                                "output \"%s\": string %" PRIu64
                                " is not UTF-8, which JSON needs: ask for it with "
                                "\"binary_data\": true",
                                tensor->name, i);
        at += sizeof n + n;
    }
    sy_text_add(text, "]", 1);
    return text->failed
               ? sy_error_set(SY_ENOMEM_HOST, "no memory for output \"%s\" as JSON", tensor->name)
               : SY_OK;
}
