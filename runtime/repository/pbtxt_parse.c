/* The text as tokens, and tokens as fields: recursive descent, T2 deep at most. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/base/text_copy.h"
#include "runtime/repository/pbtxt_internal.h"

enum token { END, WORD, NUMBER, QUOTED, SIGN };

struct parser {
    struct sy_pbtxt_builder builder;
    const char *at, *end;
    int line, column; /* of `at` */
    enum token token;
    char sign; /* of SIGN: the character */
    const char *start;
    size_t bytes; /* of WORD, NUMBER, QUOTED: as they stand there, without quotes */
    int token_line, token_column;
    const char *field; /* field being read, for errors; NULL: none */
};

static int fail_at(const struct parser *p, int line, int column, const char *what)
{
    return p->field ? sy_error_set(SY_EARG, "line %d, column %d: field %.80s: %s", line, column,
                                   p->field, what)
                    : sy_error_set(SY_EARG, "line %d, column %d: %s", line, column, what);
}

static int fail(const struct parser *p, const char *what)
{
    return fail_at(p, p->token_line, p->token_column, what);
}

/* As in a file with a byte order mark, or in UTF-16. */
static int fail_character(const struct parser *p, unsigned char c)
{
    char what[120];

    if (c > ' ' && c < 0x7f)
        snprintf(what, sizeof what, "'%c' has no meaning here", c);
    else
        snprintf(what, sizeof what,
                 "byte 0x%02X has no meaning here; text is ASCII, or UTF-8 in quotes, without a "
                 "byte order mark",
                 c);
    return fail(p, what);
}

/* ---- tokens ------------------------------------------------------------------------------------------------ */

static void advance(struct parser *p)
{
    p->column++;
    if (*p->at++ == '\n') {
        p->line++;
        p->column = 1;
    }
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static void skip_space(struct parser *p)
{
    while (p->at < p->end && (is_space(*p->at) || *p->at == '#')) {
        if (*p->at == '#')
            while (p->at < p->end && *p->at != '\n')
                advance(p);
        else
            advance(p);
    }
}

static int read_quoted(struct parser *p)
{
    char quote = *p->at;

    advance(p);
    p->start = p->at;
    while (p->at < p->end && *p->at != quote && *p->at != '\n') {
        if (*p->at == '\\')
            advance(p);
        if (p->at < p->end)
            advance(p);
    }
    if (p->at == p->end || *p->at != quote)
        return fail(p, "a string without its closing quote");
    p->bytes = (size_t)(p->at - p->start);
    p->token = QUOTED;
    advance(p);
    return SY_OK;
}

/* A number goes on through its exponent's sign: 1e-3. */
static bool continues(const struct parser *p, bool number)
{
    char c = *p->at;

    if (is_letter(c) || is_digit(c))
        return true;
    if (!number)
        return false;
    return c == '.' || ((c == '+' || c == '-') && (p->at[-1] == 'e' || p->at[-1] == 'E') &&
                        !(p->start[0] == '0' && p->at - p->start > 1 && (p->start[1] | 32) == 'x'));
}

static int next_token(struct parser *p)
{
    skip_space(p);
    p->token_line = p->line;
    p->token_column = p->column;
    p->start = p->at;
    p->token = END;
    if (p->at == p->end)
        return SY_OK;
    char c = *p->at;
    if (c == '"' || c == '\'')
        return read_quoted(p);
    bool number = is_digit(c) || (c == '.' && p->at + 1 < p->end && is_digit(p->at[1]));
    if (number || is_letter(c)) {
        p->token = number ? NUMBER : WORD;
        do
            advance(p);
        while (p->at < p->end && continues(p, number));
        p->bytes = (size_t)(p->at - p->start);
        return SY_OK;
    }
    if (!strchr(":{}<>[],;-", c) || c == 0)
        return fail_character(p, (unsigned char)c);
    p->token = SIGN;
    p->sign = c;
    advance(p);
    return SY_OK;
}

static bool is_sign(const struct parser *p, char sign)
{
    return p->token == SIGN && p->sign == sign;
}

/* ---- strings ------------------------------------------------------------------------------------------------ */

static int digit_of(char c, int base)
{
    int digit = is_digit(c)                          ? c - '0'
                : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                     : 99;

    return digit < base ? digit : -1;
}

/* Up to `most` digits behind *at; -1: none. */
static long read_digits(const char **at, const char *end, int base, int most)
{
    long value = -1;

    for (int n = 0; n < most && *at < end && digit_of(**at, base) >= 0; n++)
        value = (value < 0 ? 0 : value) * base + digit_of(*(*at)++, base);
    return value;
}

static size_t put_utf8(char *to, long code)
{
    if (code < 0x80)
        return (size_t)(to[0] = (char)code, 1);
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (char)(lead[more] | (code >> (6 * more)));
    for (int i = 1; i <= more; i++)
        to[i] = (char)(0x80 | ((code >> (6 * (more - i))) & 0x3f));
    return (size_t)more + 1;
}

/* Decodes the escape behind a backslash. Returns the bytes written, at most as many as it has in the text; 0: not an escape. */
static size_t unescape(const char **at, const char *end, char *to)
{
    static const char from[] = "abfnrtv\\'\"?", into[] = "\a\b\f\n\r\t\v\\'\"?";
    const char *known = *at < end && **at ? strchr(from, **at) : NULL;
    long value;

    if (known) {
        ++*at;
        *to = into[known - from];
        return 1;
    }
    if (*at < end && (**at == 'u' || **at == 'U')) {
        int n = *(*at)++ == 'u' ? 4 : 8;
        const char *begin = *at;
        value = read_digits(at, end, 16, n);
        if (*at - begin != n || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
            return 0;
        return put_utf8(to, value);
    }
    bool is_hex = *at < end && (**at | 32) == 'x';
    *at += is_hex;
    value = is_hex ? read_digits(at, end, 16, 2) : read_digits(at, end, 8, 3);
    if (value < 0 || value > 255)
        return 0;
    *to = (char)value;
    return 1;
}

/* Appends the token's string to the field. */
static int append_string(struct parser *p, struct sy_pbtxt *field)
{
    const char *at = p->start, *end = p->start + p->bytes;
    char *text = realloc(field->text, field->bytes + p->bytes + 1);

    SY_TRY_ALLOC(text, "no memory for a string");
    field->text = text;
    while (at < end) {
        if (*at != '\\') {
            text[field->bytes++] = *at++;
            continue;
        }
        at++;
        size_t n = unescape(&at, end, text + field->bytes);
        if (n == 0) {
            text[field->bytes] = 0;
            return fail(p, "an invalid escape");
        }
        field->bytes += n;
    }
    text[field->bytes] = 0;
    return SY_OK;
}

/* "a" "b" is one string. */
static int read_string(struct parser *p, struct sy_pbtxt *field)
{
    field->kind = SY_PBTXT_STRING;
    while (p->token == QUOTED) {
        SY_TRY(append_string(p, field));
        SY_TRY(next_token(p));
    }
    return SY_OK;
}

/* ---- fields ------------------------------------------------------------------------------------------------- */

static int read_fields(struct parser *p, char closing, int depth, struct sy_pbtxt **first);

static int read_scalar(struct parser *p, struct sy_pbtxt *field)
{
    bool minus = is_sign(p, '-');

    if (minus)
        SY_TRY(next_token(p));
    if (p->token != NUMBER && p->token != WORD)
        return fail(p, minus ? "a number is missing behind '-'" : "its value is missing");
    field->kind = p->token == NUMBER ? SY_PBTXT_NUMBER : SY_PBTXT_NAME;
    field->text = malloc(p->bytes + 2);
    SY_TRY_ALLOC(field->text, "no memory for a value");
    field->text[0] = '-';
    memcpy(field->text + minus, p->start, p->bytes);
    field->bytes = p->bytes + minus;
    field->text[field->bytes] = 0;
    return next_token(p);
}

static int read_value(struct parser *p, const struct sy_pbtxt *like, int depth,
                      struct sy_pbtxt ***end)
{
    struct sy_pbtxt *field;

    SY_TRY(sy_pbtxt_add(&p->builder, like, end, &field));
    p->field = field->name;
    if (p->token == QUOTED)
        return read_string(p, field);
    if (!is_sign(p, '{') && !is_sign(p, '<'))
        return read_scalar(p, field);
    char closing = is_sign(p, '{') ? '}' : '>';
    field->kind = SY_PBTXT_MESSAGE;
    SY_TRY(next_token(p));
    return read_fields(p, closing, depth + 1, &field->first);
}

static int read_list(struct parser *p, const struct sy_pbtxt *like, int depth,
                     struct sy_pbtxt ***end)
{
    SY_TRY(next_token(p));
    while (!is_sign(p, ']')) {
        SY_TRY(read_value(p, like, depth, end));
        p->field = like->name;
        if (is_sign(p, ']'))
            break;
        if (!is_sign(p, ','))
            return fail(p, "a list goes on with ',' or ends with ']'");
        SY_TRY(next_token(p));
        if (is_sign(p, ']'))
            return fail(p, "a value is missing behind ','");
    }
    return next_token(p);
}

/* "name: value", "name { }", "name: [ ]" */
static int read_field_of(struct parser *p, const struct sy_pbtxt *like, int depth,
                         struct sy_pbtxt ***end)
{
    bool has_colon;

    SY_TRY(next_token(p));
    has_colon = is_sign(p, ':');
    if (has_colon)
        SY_TRY(next_token(p));
    if (!has_colon && !is_sign(p, '{') && !is_sign(p, '<') && !is_sign(p, '['))
        return fail(p, "':' is missing behind its name");
    SY_TRY(is_sign(p, '[') ? read_list(p, like, depth, end) : read_value(p, like, depth, end));
    if (is_sign(p, ',') || is_sign(p, ';'))
        SY_TRY(next_token(p));
    return SY_OK;
}

static int read_field(struct parser *p, int depth, struct sy_pbtxt ***end)
{
    struct sy_pbtxt like = {.line = p->token_line, .column = p->token_column};
    int status;

    like.name = sy_text_copy(p->start, p->bytes);
    SY_TRY_ALLOC(like.name, "no memory for a field");
    p->field = like.name;
    status = read_field_of(p, &like, depth, end);
    p->field = NULL;
    free(like.name);
    return status;
}

/* Up to `closing`, or the end if it is 0. */
static int read_fields(struct parser *p, char closing, int depth, struct sy_pbtxt **first)
{
    struct sy_pbtxt **end = first;
    char what[64];

    if (depth > SY_PBTXT_MOST_DEPTH)
        return fail(p, "messages lie too deep");
    while (p->token == WORD)
        SY_TRY(read_field(p, depth, &end));
    if (closing && is_sign(p, closing))
        return next_token(p);
    if (!closing && p->token == END)
        return SY_OK;
    if (p->token == END)
        snprintf(what, sizeof what, "'%c' is missing at the end", closing);
    else if (is_sign(p, '['))
        snprintf(what, sizeof what, "extensions and Any are not supported");
    else
        snprintf(what, sizeof what, "a field's name is expected");
    return fail(p, what);
}

int sy_pbtxt_parse(const char *text, size_t bytes, struct sy_pbtxt **out)
{
    struct parser p = {.at = text, .end = text + bytes, .line = 1, .column = 1};
    struct sy_pbtxt *root;
    int status;

    if (bytes > SY_PBTXT_MOST_BYTES)
        return sy_error_set(SY_EARG, "%zu bytes of text; at most %u", bytes, SY_PBTXT_MOST_BYTES);
    root = calloc(1, sizeof *root);
    SY_TRY_ALLOC(root, "no memory for a message");
    status = next_token(&p);
    if (status == SY_OK)
        status = read_fields(&p, 0, 1, &root->first);
    if (status < 0) {
        sy_pbtxt_free(root);
        return status;
    }
    *out = root;
    return SY_OK;
}
