#include "runtime/front/request/tensor_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/half.h"
#include "runtime/base/status.h"
#include "runtime/front/request/json_limits.h"

#define CUTS_AT_ONCE 8
#define MOST_REST    (1u << 20) /* bytes of a request without its tensors */
#define MOST_CUTS    1024 /* "data"s of one request: four times the inputs that a model can have */

/* ---- cutting ---------------------------------------------------------------------------------------------- */

struct scanner {
    const char *at, *end;
    int depth, most_depth;
};

static void skip_space(struct scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t'))
        s->at++;
}

/* At its first quote; false: it does not end. */
static bool skip_string(struct scanner *s)
{
    for (s->at++; s->at < s->end; s->at++) {
        if (*s->at == '\\')
            s->at++;
        else if (*s->at == '"')
            return s->at++, true;
    }
    return false;
}

/* A character of a number or word; not the ends of values, nor a zero byte, which JSON has nowhere. */
static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' ||
           c == '-' || c == '.';
}

static bool is_opening(char c)
{
    return c == '[' || c == '{';
}

/* Any value, without looking at more than its brackets and strings. False: it does not end, or is nested too deep. */
static bool skip_value(struct scanner *s)
{
    int base = s->depth;

    do {
        skip_space(s);
        if (s->at >= s->end)
            return false;
        char c = *s->at;
        if (c == '"') {
            if (!skip_string(s))
                return false;
        } else if (is_opening(c)) {
            if (++s->depth > s->most_depth)
                return false;
            s->at++;
        } else if (c == ']' || c == '}') {
            if (--s->depth < base)
                return false;
            s->at++;
        } else if (c == ',' || c == ':') {
            if (s->depth == base)
                return true;
            s->at++;
        } else if (is_word(c)) {
            while (s->at < s->end && is_word(*s->at))
                s->at++;
        } else {
            return false;
        }
    } while (s->depth > base);
    return true;
}

static int add_cut(struct sy_request_json *out, const char *text, uint64_t bytes)
{
    if (out->n_cuts == MOST_CUTS)
        return sy_error_set(SY_EARG, "the request has more than %d tensors", MOST_CUTS);
    if (out->n_cuts % CUTS_AT_ONCE == 0) {
        size_t n = (size_t)out->n_cuts + CUTS_AT_ONCE;
        struct sy_json_cut *cuts = realloc(out->cuts, n * sizeof(*cuts));

        SY_TRY_ALLOC(cuts, "no memory for the request's tensors");
        out->cuts = cuts;
    }
    out->cuts[out->n_cuts++] = (struct sy_json_cut){text, bytes};
    return SY_OK;
}

/* Behind the key "sequence_id". Integers of jansson end at 2^63 - 1, ids of sequences at 2^64 - 1: one above becomes the text of its digits, which means
 * the same id. */
static void quote_large_id(struct scanner *s, struct sy_text *rest)
{
    const char *from = s->at, *digits;
    uint64_t value = 0;
    bool fits = true;

    skip_space(s);
    s->at += s->at < s->end && *s->at == ':';
    skip_space(s);
    for (digits = s->at; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
        fits = fits && !__builtin_mul_overflow(value, 10u, &value) &&
               !__builtin_add_overflow(value, (uint64_t)(*s->at - '0'), &value);
    bool quoted =
        fits && value > INT64_MAX && *digits != '0' && (s->at == s->end || !is_word(*s->at));
    sy_text_add(rest, from, (size_t)(digits - from));
    sy_text_add_string(rest, quoted ? "\"" : "");
    sy_text_add(rest, digits, (size_t)(s->at - digits));
    sy_text_add_string(rest, quoted ? "\"" : "");
}

#define DATA_DEPTH 3 /* the top object, its list, the object in it */

/* Behind the key "data": its value becomes its index. */
static int cut_value(struct scanner *s, struct sy_text *rest, struct sy_request_json *out)
{
    const char *from;

    skip_space(s);
    if (s->at >= s->end || *s->at != ':')
        return SY_OK; /* a string, or no JSON: the parser says so */
    s->at++;
    skip_space(s);
    from = s->at;
    if (!skip_value(s) || s->at == from)
        return sy_error_set(
            SY_EARG,
            "failed to parse the request JSON: \"data\" of tensor %d is not JSON, does "
            "not end, or is nested deeper than %d",
            out->n_cuts, s->most_depth);
    sy_text_add(rest, ":", 1);
    sy_text_add_int(rest, out->n_cuts);
    return add_cut(out, from, (uint64_t)(s->at - from));
}

static int cut_all(struct scanner *s, struct sy_text *rest, struct sy_request_json *out)
{
    while (s->at < s->end) {
        const char *from = s->at;
        char c = *from;

        if (c == '"') {
            if (!skip_string(s))
                s->at = s->end;
            sy_text_add(rest, from, (size_t)(s->at - from));
            if (s->depth == DATA_DEPTH && s->at - from == 6 && memcmp(from, "\"data\"", 6) == 0)
                SY_TRY(cut_value(s, rest, out));
            else if (s->at - from == 13 && memcmp(from, "\"sequence_id\"", 13) == 0)
                quote_large_id(s, rest);
            continue;
        }
        if (rest->used > MOST_REST)
            return sy_error_set(
                SY_EARG, "the request JSON has more than %u bytes besides its tensors", MOST_REST);
        s->depth += is_opening(c) - (c == ']' || c == '}');
        if (s->depth > s->most_depth)
            return sy_error_set(SY_EARG, "the request JSON is nested deeper than %d",
                                s->most_depth);
        sy_text_add(rest, from, 1);
        s->at++;
    }
    return rest->failed ? sy_error_set(SY_ENOMEM_HOST, "no memory for the request's JSON") : SY_OK;
}

static int parse_rest(const struct sy_text *rest, int most_depth, json_t **out)
{
    SY_TRY(sy_json_parse_limited(rest->at ? rest->at : "", rest->used, most_depth, out));
    if (json_is_object(*out))
        return SY_OK;
    json_decref(*out);
    *out = NULL;
    return sy_error_set(SY_EARG, "failed to parse the request JSON: it is not an object");
}

int sy_request_json_parse(const char *text, uint64_t bytes, int most_depth,
                          struct sy_request_json *out)
{
    struct scanner scanner = {
        .at = text, .end = bytes ? text + bytes : text, .most_depth = most_depth};
    struct sy_text rest = {0};

    *out = (struct sy_request_json){0};
    int status = cut_all(&scanner, &rest, out);
    if (status == SY_OK)
        status = parse_rest(&rest, most_depth, &out->root);
    sy_text_finish(&rest);
    if (status < 0)
        sy_request_json_finish(out);
    return status;
}

void sy_request_json_finish(struct sy_request_json *request)
{
    json_decref(request->root);
    free(request->cuts);
    *request = (struct sy_request_json){0};
}

/* ---- numbers -> tensor -------------------------------------------------------------------------------------- */

struct reader {
    const char *name;
    enum sy_dtype dtype;
    uint64_t n, i;
    char *to;
};

/* Kind of a value that is not a number, by its first letter; NULL: a number, or not JSON. */
static const char *kind_of(const char *at, const char *end)
{
    switch (at < end ? *at : '\0') {
    case '"':
        return "a string";
    case '{':
        return "an object";
    case 't':
    case 'f':
        return "true or false";
    case 'n':
        return "null";
    default:
        return NULL;
    }
}

static int bad_kind(const struct reader *r, const char *kind)
{
    return sy_error_set(SY_EARG,
                        "input \"%s\": element %" PRIu64 " of \"data\" is %s, no number of %s",
                        r->name, r->i, kind, sy_dtype_wire_name(r->dtype));
}

static int bad_element(const struct reader *r, const char *what)
{
    return sy_error_set(SY_EARG, "input \"%s\": element %" PRIu64 " of \"data\" %s %s", r->name,
                        r->i, what, sy_dtype_wire_name(r->dtype));
}

static bool is_float(enum sy_dtype dtype)
{
    return dtype == SY_DTYPE_F32 || dtype == SY_DTYPE_F64 || dtype == SY_DTYPE_F16 ||
           dtype == SY_DTYPE_BF16;
}

static int put_float(struct reader *r, double value)
{
    char *to = r->to + r->i * sy_dtype_bytes(r->dtype);
    float single = (float)value;
    uint16_t half;
    bool fits = isfinite(single);

    switch (r->dtype) {
    case SY_DTYPE_F64:
        fits = isfinite(value);
        memcpy(to, &value, sizeof(value));
        break;
    case SY_DTYPE_F16:
        half = sy_float_to_half(single);
        fits = fits && isfinite(sy_half_to_float(half));
        memcpy(to, &half, sizeof(half));
        break;
    case SY_DTYPE_BF16:
        half = sy_float_to_bf16(single);
        fits = fits && isfinite(sy_bf16_to_float(half));
        memcpy(to, &half, sizeof(half));
        break;
    default:
        memcpy(to, &single, sizeof(single));
    }
    return fits ? SY_OK : bad_element(r, "is out of the range of");
}

static int put_int(struct reader *r, int64_t value)
{
    static const struct {
        enum sy_dtype dtype;
        int64_t least, most;
    } ranges[] = {{SY_DTYPE_U8, 0, UINT8_MAX},          {SY_DTYPE_I8, INT8_MIN, INT8_MAX},
                  {SY_DTYPE_U16, 0, UINT16_MAX},        {SY_DTYPE_I16, INT16_MIN, INT16_MAX},
                  {SY_DTYPE_U32, 0, UINT32_MAX},        {SY_DTYPE_I32, INT32_MIN, INT32_MAX},
                  {SY_DTYPE_I64, INT64_MIN, INT64_MAX}, {SY_DTYPE_BOOL, 0, 1}};
    size_t bytes = sy_dtype_bytes(r->dtype);

    for (size_t k = 0; k < SY_ARRAY_LEN(ranges); k++)
        if (ranges[k].dtype == r->dtype && (value < ranges[k].least || value > ranges[k].most))
            return bad_element(r, "is out of the range of");
    memcpy(r->to + r->i * bytes, &value, bytes); /* little-endian */
    return SY_OK;
}

#define MOST_DIGITS 1100 /* a double has at most 1077 digits; longer texts are refused */

/* A number of JSON: its text, and its value where that takes no more than 19 digits. */
struct number {
    size_t length; /* 0: none */
    bool is_negative, is_whole, fits;
    uint64_t digits; /* times 10^exponent */
    int exponent;
};

static void add_digit(struct number *number, char c, bool in_fraction)
{
    uint64_t more;

    number->fits = number->fits && !__builtin_mul_overflow(number->digits, 10u, &more) &&
                   !__builtin_add_overflow(more, (uint64_t)(c - '0'), &number->digits);
    number->exponent -= in_fraction;
}

/* Digits from `at` on; where they end. */
static const char *scan_digits(struct number *number, const char *at, const char *end,
                               bool in_fraction)
{
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        add_digit(number, *at, in_fraction);
    return at;
}

/* Behind an 'e'; NULL: no digits. */
static const char *scan_exponent(struct number *number, const char *at, const char *end)
{
    bool is_negative = at < end && *at == '-';
    int value = 0;

    at += at < end && (*at == '-' || *at == '+');
    const char *from = at;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        value = SY_MIN(value * 10 + (*at - '0'), 100000);
    number->exponent += is_negative ? -value : value;
    return at > from ? at : NULL;
}

/* As JSON has them: no '+', no zeros in front, digits on both sides of a point. */
static struct number scan_number(const char *text, const char *end)
{
    struct number number = {.is_whole = true, .fits = true};
    const char *at = text, *from;

    number.is_negative = at < end && *at == '-';
    from = at += number.is_negative;
    at = scan_digits(&number, at, end, false);
    if (at == from || (*from == '0' && at > from + 1))
        return number;
    if (at < end && *at == '.') {
        number.is_whole = false;
        from = at + 1;
        at = scan_digits(&number, from, end, true);
        if (at == from)
            return number;
    }
    if (at < end && (*at | 0x20) == 'e') {
        number.is_whole = false;
        at = scan_exponent(&number, at + 1, end);
    }
    if (at && at - text <= MOST_DIGITS)
        number.length = (size_t)(at - text);
    return number;
}

/* Exact for up to 53 bits of digits and powers of ten that a double has; the rest is strtod's. */
static double float_value(const struct number *number, const char *text)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    char copy[MOST_DIGITS + 1];
    int exponent = number->exponent;

    if (number->fits && number->digits <= 1ull << 53 && abs(exponent) < (int)SY_ARRAY_LEN(powers)) {
        double value = (double)number->digits;

        value = exponent < 0 ? value / powers[-exponent] : value * powers[exponent];
        return number->is_negative ? -value : value;
    }
    memcpy(copy, text, number->length); /* so that strtod ends where the number does */
    copy[number->length] = '\0';
    return strtod(copy, NULL);
}

static int put_whole(struct reader *r, const struct number *number)
{
    uint64_t most = (uint64_t)INT64_MAX + number->is_negative;

    if (!number->is_whole)
        return bad_element(r, "is not a whole number, as is wanted of");
    if (r->dtype == SY_DTYPE_U64) /* more than int64 has; of negative numbers only -0 */
        most = number->is_negative ? 0 : UINT64_MAX;
    if (!number->fits || number->digits > most)
        return bad_element(r, "is out of the range of");
    return put_int(r, (int64_t)(number->is_negative ? 0 - number->digits : number->digits));
}

static int read_number(struct reader *r, struct scanner *s)
{
    const struct number number = scan_number(s->at, s->end);
    const char *text = s->at;

    const char *kind = number.length == 0 ? kind_of(s->at, s->end) : NULL;
    if (kind)
        return bad_kind(r, kind);
    if (number.length == 0)
        return bad_element(r, "is not a number of");
    s->at += number.length;
    return is_float(r->dtype) ? put_float(r, float_value(&number, text)) : put_whole(r, &number);
}

static int read_element(struct reader *r, struct scanner *s)
{
    static const struct {
        const char *word;
        size_t n;
        int64_t value;
    } words[] = {{"true", 4, 1}, {"false", 5, 0}};

    if (r->i == r->n)
        return sy_error_set(SY_EARG,
                            "input \"%s\": \"data\" has more than the %" PRIu64
                            " elements that its shape says",
                            r->name, r->n);
    for (size_t w = 0; w < SY_ARRAY_LEN(words) && r->dtype == SY_DTYPE_BOOL; w++)
        if ((size_t)(s->end - s->at) >= words[w].n &&
            memcmp(s->at, words[w].word, words[w].n) == 0) {
            s->at += words[w].n;
            SY_TRY(put_int(r, words[w].value));
            r->i++;
            return SY_OK;
        }
    SY_TRY(read_number(r, s));
    r->i++;
    return SY_OK;
}

static int bad_array(const struct reader *r, const struct scanner *s)
{
    const char *kind = s->depth == 0 && r->i == 0 ? kind_of(s->at, s->end) : NULL;
    return sy_error_set(
        SY_EARG, "input \"%s\": \"data\" is %s%sno array of numbers (at element %" PRIu64 ")",
        r->name, kind ? kind : "", kind ? ", " : "", r->i);
}

enum place { OPENED, AFTER_COMMA, AFTER_VALUE };

/* Between values: the brackets and commas up to the next value, or the end. */
static int read_brackets(struct reader *r, struct scanner *s, enum place *place)
{
    for (;; s->at++) {
        skip_space(s);
        if (s->depth == 0 && *place == AFTER_VALUE)
            return s->at == s->end ? SY_OK : bad_array(r, s);
        char c = s->at < s->end ? *s->at : '\0';
        if (c == '[' && *place != AFTER_VALUE) {
            s->depth++;
            *place = OPENED;
        } else if (c == ']' && *place != AFTER_COMMA) {
            s->depth--;
            *place = AFTER_VALUE;
        } else if (c == ',' && *place == AFTER_VALUE) {
            *place = AFTER_COMMA;
        } else {
            return *place != AFTER_VALUE && s->depth > 0 && c ? SY_OK : bad_array(r, s);
        }
    }
}

int sy_tensor_json_few(const struct sy_json_cut *data, const char *name, enum sy_dtype dtype)
{
    const struct reader r = {.name = name, .dtype = dtype};
    struct scanner s = {.at = data->text, .end = data->text + data->bytes};
    for (skip_space(&s); s.at < s.end && *s.at == '['; skip_space(&s))
        s.at++;
    const char *kind = kind_of(s.at, s.end);
    if (kind && !(dtype == SY_DTYPE_BOOL && (*s.at == 't' || *s.at == 'f')))
        return bad_kind(&r, kind);
    return sy_error_set(SY_EARG, "input \"%s\": \"data\" has fewer elements than its shape says",
                        name);
}

int sy_tensor_from_json(const struct sy_json_cut *data, const char *name, enum sy_dtype dtype,
                        uint64_t n, void *to)
{
    struct reader r = {.name = name, .dtype = dtype, .n = n, .to = to};
    struct scanner s = {.at = data->text, .end = data->text + data->bytes};
    enum place place = AFTER_COMMA;

    if (sy_dtype_bytes(dtype) == 0)
        return sy_error_set(SY_EUNSUPPORTED, "input \"%s\": its datatype has no numbers", name);
    for (;;) {
        SY_TRY(read_brackets(&r, &s, &place));
        if (s.depth == 0)
            break;
        SY_TRY(read_element(&r, &s));
        place = AFTER_VALUE;
    }
    if (r.i < n)
        return sy_error_set(
            SY_EARG, "input \"%s\": \"data\" has %" PRIu64 " elements; its shape says %" PRIu64,
            name, r.i, n);
    return SY_OK;
}
