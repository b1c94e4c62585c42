#include "runtime/telemetry/trace_context.h"

#include <string.h>

#define PARENT_CHARS 55 /* of version 00: 2 + 32 + 16 + 2 digits and three dashes */
#define MOST_MEMBERS 32
#define MOST_KEY     256
#define MOST_VALUE   256

/* ---- traceparent ------------------------------------------------------------------------------------------------ */

/* Small letters only, as the specification says; -1: no digit. */
static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_bytes(const char *text, int n, uint8_t *out)
{
    for (int i = 0; i < n; i++) {
        int high = digit(text[2 * i]), low = high < 0 ? -1 : digit(text[2 * i + 1]);

        if (low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool is_zero(const uint8_t *bytes, int n)
{
    for (int i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

static bool read_parent(const char *text, struct sy_trace_context *out)
{
    size_t n = strnlen(text, PARENT_CHARS + 1);
    uint8_t version;

    if (n < PARENT_CHARS || text[2] != '-' || text[35] != '-' || text[52] != '-' ||
        !read_bytes(text, 1, &version) || version == 0xff)
        return false;
    if (n > PARENT_CHARS && (version == 0 || text[PARENT_CHARS] != '-'))
        return false;
    return read_bytes(text + 3, SY_TRACE_ID_BYTES, out->trace_id) &&
           read_bytes(text + 36, SY_SPAN_ID_BYTES, out->parent_id) &&
           read_bytes(text + 53, 1, &out->flags) && !is_zero(out->trace_id, SY_TRACE_ID_BYTES) &&
           !is_zero(out->parent_id, SY_SPAN_ID_BYTES);
}

bool sy_trace_context_parse(const char *traceparent, struct sy_trace_context *out)
{
    memset(out, 0, sizeof *out);
    if (!traceparent || !read_parent(traceparent, out)) {
        memset(out, 0, sizeof *out);
        return false;
    }
    out->is_given = true;
    return true;
}

/* ---- tracestate -------------------------------------------------------------------------------------------------- */

struct span {
    const char *at;
    size_t n;
};

static bool is_small(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* "vendor" or "tenant@vendor". */
static bool is_key(struct span key)
{
    int n_at = 0;

    if (key.n == 0 || key.n > MOST_KEY || !is_small(key.at[0]))
        return false;
    for (size_t i = 1; i < key.n; i++) {
        char c = key.at[i];

        if (!is_small(c) && !(c && strchr("_-*/@", c)))
            return false;
        n_at += c == '@';
    }
    return n_at <= 1 && key.at[key.n - 1] != '@';
}

static bool is_value(struct span value)
{
    if (value.n == 0 || value.n > MOST_VALUE || value.at[value.n - 1] == ' ')
        return false;
    for (size_t i = 0; i < value.n; i++)
        if (value.at[i] < 0x20 || value.at[i] > 0x7e || value.at[i] == '=')
            return false;
    return true;
}

static struct span trimmed(struct span s)
{
    for (; s.n > 0 && (*s.at == ' ' || *s.at == '\t'); s.n--)
        s.at++;
    while (s.n > 0 && (s.at[s.n - 1] == ' ' || s.at[s.n - 1] == '\t'))
        s.n--;
    return s;
}

static bool is_among(const struct span *keys, int n, struct span key)
{
    for (int i = 0; i < n; i++)
        if (keys[i].n == key.n && memcmp(keys[i].at, key.at, key.n) == 0)
            return true;
    return false;
}

bool sy_trace_state_is_valid(const char *text)
{
    struct span keys[MOST_MEMBERS];
    int n = 0;

    if (!text || strlen(text) >= SY_TRACE_STATE_BYTES)
        return false;
    while (*text) {
        size_t length = strcspn(text, ",");
        struct span member = trimmed((struct span){text, length});
        const char *equals = memchr(member.at, '=', member.n);

        text += length + (text[length] == ',');
        if (member.n == 0)
            continue; /* empty members are allowed */
        if (!equals || n == MOST_MEMBERS)
            return false;
        struct span key = {member.at, (size_t)(equals - member.at)};
        struct span value = {equals + 1, member.n - key.n - 1};
        if (!is_key(key) || !is_value(value) || is_among(keys, n, key))
            return false;
        keys[n++] = key;
    }
    return n > 0;
}
