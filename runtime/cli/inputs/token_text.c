#include "runtime/cli/inputs/token_text.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define MOST_TOKENS \
    (1 << 24) /* ids from there on are none: the table would be larger than any vocabulary */

#define BYTE_LEVEL_SPACE "\xc4\xa0"     /* U+0120: the byte 32 */
#define PIECE_SPACE      "\xe2\x96\x81" /* U+2581 */

struct sy_vocabulary {
    json_t *root;
    const char **tokens; /* by id, of root; NULL: there is none */
    int64_t n;
    bool is_byte_level; /* letters stand for bytes */
};

/* ---- reading --------------------------------------------------------------------------------------------------- */

static int64_t last_id(const json_t *map, const json_t *added)
{
    const char *key;
    json_t *value;
    int64_t last = -1;
    size_t i;

    json_object_foreach((json_t *)map, key, value) last = SY_MAX(last, json_integer_value(value));
    json_array_foreach(added, i, value) last =
        SY_MAX(last, json_integer_value(json_object_get(value, "id")));
    return last;
}

static void note(struct sy_vocabulary *v, const char *token, const json_t *id)
{
    int64_t at = json_is_integer(id) ? json_integer_value(id) : -1;

    if (token && at >= 0 && at < v->n)
        v->tokens[at] = token;
}

/* {"token": id}, or Unigram's [["token", score], ...]. */
static int take_tokens(struct sy_vocabulary *v, const json_t *vocab, const json_t *added)
{
    const char *key;
    json_t *value;
    size_t i;

    v->n = json_is_array(vocab) ? (int64_t)json_array_size(vocab) : 0;
    int64_t last = last_id(vocab, added);
    v->n = last + 1 > v->n ? last + 1 : v->n;
    if (v->n == 0 || v->n > MOST_TOKENS)
        return sy_error_set(SY_ECORRUPT, "no vocabulary of 1 to %d tokens", MOST_TOKENS);
    v->tokens = calloc((size_t)v->n, sizeof *v->tokens);
    SY_TRY_ALLOC(v->tokens, "no memory for %lld tokens", (long long)v->n);
    json_object_foreach((json_t *)vocab, key, value) note(v, key, value);
    for (i = 0; json_is_array(vocab) && i < json_array_size(vocab); i++)
        v->tokens[i] = json_string_value(json_array_get(json_array_get(vocab, i), 0));
    v->is_byte_level =
        json_object_get(vocab, BYTE_LEVEL_SPACE) && !json_object_get(vocab, PIECE_SPACE);
    json_array_foreach(added, i, value)
        note(v, json_string_value(json_object_get(value, "content")), json_object_get(value, "id"));
    return SY_OK;
}

int sy_vocabulary_open(const char *path, struct sy_vocabulary **out)
{
    json_error_t error;
    struct sy_vocabulary *v = calloc(1, sizeof *v);

    SY_TRY_ALLOC(v, "no memory for a vocabulary");
    v->root = json_load_file(path, 0, &error);
    const json_t *model = json_object_get(v->root, "model"),
                 *vocab = model ? json_object_get(model, "vocab") : v->root;
    int status = v->root ? take_tokens(v, vocab, json_object_get(v->root, "added_tokens"))
                         : sy_error_set(SY_ECORRUPT, "line %d: %s", error.line, error.text);
    if (status < 0) {
        sy_vocabulary_close(v);
        return sy_error_prefix(status, "%s", path);
    }
    *out = v;
    return SY_OK;
}

void sy_vocabulary_close(struct sy_vocabulary *v)
{
    if (!v)
        return;
    free(v->tokens);
    json_decref(v->root);
    free(v);
}

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

/* One character of UTF-8, which jansson has checked; *at moves behind it. */
static uint32_t next_character(const unsigned char **at)
{
    const unsigned char *c = *at;
    int more = c[0] >= 0xf0 ? 3 : c[0] >= 0xe0 ? 2 : c[0] >= 0xc0 ? 1 : 0;
    uint32_t code = more ? c[0] & (0x3fu >> more) : c[0];

    for (int i = 1; i <= more; i++)
        code = code << 6 | (c[i] & 0x3fu);
    *at += more + 1;
    return code;
}

/* Byte-level BPE writes the 68 bytes that are no visible Latin-1 character as U+0100 and on, in their order; the others as themselves. */
static int byte_of_letter(uint32_t code)
{
    if (code < 0x100)
        return (int)code;
    if (code >= 0x100 + 68)
        return -1;
    uint32_t place = code - 0x100;
    return (int)(place <= 32 ? place : place < 67 ? place - 33 + 127 : 173);
}

static int byte_of(const struct sy_vocabulary *v, uint32_t code)
{
    if (v->is_byte_level)
        return byte_of_letter(code);
    return code == 0x2581 ? ' ' : -1;
}

static bool is_byte_token(const char *token, unsigned *byte)
{
    char end;
    return strlen(token) == 6 && sscanf(token, "<0x%2x%c", byte, &end) == 2 && end == '>';
}

size_t sy_vocabulary_text(const struct sy_vocabulary *v, int64_t token, char *to, size_t room)
{
    const char *text = token >= 0 && token < v->n ? v->tokens[token] : NULL;
    const unsigned char *at = (const unsigned char *)text, *from;
    size_t used = 0;
    unsigned byte;

    if (text && room > 0 && is_byte_token(text, &byte)) {
        to[0] = (char)byte;
        return 1;
    }
    while (at && *(from = at)) {
        uint32_t code = next_character(&at);
        int byte_now = byte_of(v, code);
        size_t n = byte_now >= 0 ? 1 : (size_t)(at - from);

        if (used + n > room)
            break;
        if (byte_now >= 0)
            to[used] = (char)byte_now;
        else
            memcpy(to + used, from, n);
        used += n;
    }
    return used;
}
