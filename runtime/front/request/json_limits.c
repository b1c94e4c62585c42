#include "runtime/front/request/json_limits.h"

#include <stdbool.h>

#include "runtime/base/status.h"

/* Behind the quote that ends the string that begins at i, or the end of the text. */
static uint64_t skip_string(const char *text, uint64_t bytes, uint64_t i)
{
    for (i++; i < bytes && text[i] != '"'; i++)
        i += text[i] == '\\';
    return i + 1;
}

/* A first look without a tree: brackets and separators outside of strings. */
static int check(const char *text, uint64_t bytes, int most_depth)
{
    int depth = 0, n_values = 1;

    for (uint64_t i = 0; i < bytes;) {
        if (text[i] == '"') {
            i = skip_string(text, bytes, i);
            continue;
        }
        char c = text[i++];
        bool opens = c == '[' || c == '{';
        depth += opens - (c == ']' || c == '}');
        n_values += opens || c == ',';
        if (depth > most_depth)
            return sy_error_set(SY_EARG, "the JSON is nested deeper than %d", most_depth);
        if (n_values > SY_JSON_MOST_VALUES)
            return sy_error_set(SY_EARG, "the JSON has more than %d values", SY_JSON_MOST_VALUES);
    }
    return SY_OK;
}

int sy_json_parse_limited(const char *text, uint64_t bytes, int most_depth, json_t **out)
{
    json_error_t error;

    if (bytes == 0)
        return sy_error_set(SY_EARG, "failed to parse the request JSON: the body is empty");
    SY_TRY(check(text, bytes, most_depth));
    *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (*out)
        return SY_OK;
    return sy_error_set(SY_EARG, "failed to parse the request JSON: line %d, column %d: %.200s",
                        error.line, error.column, error.text);
}
