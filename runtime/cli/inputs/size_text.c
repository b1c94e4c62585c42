#include "runtime/cli/inputs/size_text.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 32

struct reader {
    const char *at;
    const struct sy_size_names *names;
    int depth;
};

static bool read_sum(struct reader *r, int64_t *out);

static bool skip(struct reader *r, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

static bool read_floor(struct reader *r, int64_t *out)
{
    int64_t a, b;
    if (!read_sum(r, &a) || !skip(r, ") / (") || !read_sum(r, &b) || !skip(r, "))") || b <= 0)
        return false;
    *out = a / b - (a % b < 0);
    return true;
}

static bool read_least(struct reader *r, int64_t *out)
{
    if (!read_sum(r, out) || !skip(r, ")"))
        return false;
    *out = *out < 0 ? *out : 0;
    return true;
}

static bool read_name(struct reader *r, int64_t *out)
{
    size_t longest = 0;
    for (int i = 0; i < r->names->n; i++) {
        size_t n = strlen(r->names->names[i]);
        if (n <= longest || strncmp(r->at, r->names->names[i], n) != 0)
            continue;
        longest = n;
        *out = r->names->values[i];
    }
    r->at += longest;
    return longest > 0;
}

static bool read_atom(struct reader *r, int64_t *out)
{
    if (read_name(r, out)) /* first: a name may begin like anything else */
        return true;
    if (skip(r, "floor(("))
        return read_floor(r, out);
    if (skip(r, "min(0, "))
        return read_least(r, out);
    char *end;
    if (*r->at < '0' || *r->at > '9')
        return false;
    *out = strtoll(r->at, &end, 10);
    r->at = end;
    return true;
}

static bool read_product(struct reader *r, int64_t *out)
{
    int64_t next;
    if (!read_atom(r, out))
        return false;
    while (skip(r, "*"))
        if (!read_atom(r, &next) || __builtin_mul_overflow(*out, next, out))
            return false;
    return true;
}

static bool read_sum(struct reader *r, int64_t *out)
{
    bool more = true;
    if (++r->depth > MAX_DEPTH)
        return false;
    *out = 0;
    for (bool minus = skip(r, "-"); more;) {
        int64_t term;
        if (!read_product(r, &term) || (minus ? __builtin_sub_overflow(*out, term, out)
                                              : __builtin_add_overflow(*out, term, out)))
            return false;
        minus = skip(r, "-");
        more = minus || skip(r, "+");
    }
    r->depth--;
    return true;
}

bool sy_cli_size_of(const char *text, const struct sy_size_names *names, int64_t *out)
{
    struct reader r = {.at = text, .names = names};
    return read_sum(&r, out) && *r.at == '\0';
}
