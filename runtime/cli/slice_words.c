#include "runtime/cli/slice_words.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"

static int read_size(json_t *entry, const char *word, const char *size)
{
    char *end;
    if (*size == '@') {
        if (json_object_set_new(entry, "cores", json_string(size + 1)) < 0)
            return sy_error_set(SY_EARG, "slices: '%s': cores are numbers, like @0-3,6", word);
        return SY_OK;
    }
    bool weighs = *size == 'w';
    double value = strtod(size + weighs, &end);
    bool is_share = *end == '%';
    if (end == size + weighs || end[is_share] || (weighs && is_share) || !(value > 0))
        return sy_error_set(SY_EARG, "slices: '%s': a size is 2, 50%%, w3 or @0-3", word);
    if (is_share)
        return json_object_set_new(entry, "share", json_real(value / 100));
    if (!(value < 1e9) || value != (double)(long)value)
        return sy_error_set(SY_EARG, "slices: '%s': cores and weights are whole numbers", word);
    return json_object_set_new(entry, weighs ? "weight" : "cores", json_integer((json_int_t)value));
}

int sy_cli_slice_add(json_t *list, const char *word)
{
    const char *size = strchr(word, '=');
    char name[64];
    if (!size || size == word || (size_t)(size - word) >= sizeof name || !size[1])
        return sy_error_set(
            SY_EARG, "slices: '%s': NAME=SIZE is expected, like train=1 or serve=50%%", word);
    snprintf(name, sizeof name, "%.*s", (int)(size - word), word);
    json_t *entry = json_pack("{s:s}", "name", name);
    if (!entry)
        return sy_error_set(SY_EARG, "slices: '%s': a name is UTF-8", word);
    if (json_array_append_new(list, entry) < 0)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for slices");
    return read_size(entry, word, size + 1);
}

/* Behind the word at `at`: a comma whose next piece has no '=' continues a list of cores. */
static size_t word_length(const char *at)
{
    size_t n = 0;
    for (;;) {
        n += strcspn(at + n, ", \t");
        if (at[n] != ',' || at[n + 1 + strcspn(at + n + 1, "=, \t")] == '=' ||
            !isdigit((unsigned char)at[n + 1]))
            return n;
        n++;
    }
}

int sy_cli_slice_list(const char *text, json_t **out)
{
    json_t *list = json_array();
    char word[512];
    int status = list ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for slices");
    for (const char *at = text + strspn(text, ", \t"); status == SY_OK && *at;
         at += strspn(at, ", \t")) {
        size_t n = word_length(at);
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        status = n < sizeof word
                     ? sy_cli_slice_add(list, word)
                     : sy_error_set(SY_EARG, "slices: '%.60s...': a word of %zu bytes", at, n);
        at += n;
    }
    if (status == SY_OK && json_array_size(list) == 0)
        status =
            sy_error_set(SY_EARG, "slices: no NAME=SIZE in '%.60s', like train=1 serve=1", text);
    if (status < 0)
        json_decref(list);
    *out = status < 0 ? NULL : list;
    return status;
}
