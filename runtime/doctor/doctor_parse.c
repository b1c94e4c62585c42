#include "runtime/doctor/doctor_parse.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"

#define NO_LIMIT 9e18 /* cgroup v1 writes 2^63 rounded down to the page */

static void copy(const char *from, size_t length, char *out, size_t size)
{
    length = SY_MIN(length, size - 1);
    memcpy(out, from, length);
    out[length] = '\0';
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : NULL;
}

double sy_parse_meminfo(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *line = text; line && *line; line = next_line(line)) {
        char *end;
        if (strncmp(line, key, n) != 0 || line[n] != ':')
            continue;
        double value = strtod(line + n + 1, &end);
        if (end == line + n + 1)
            return NAN;
        return strncmp(end, " kB", 3) == 0 ? value * 1024 : value;
    }
    return NAN;
}

void sy_parse_chosen(const char *text, char *out, size_t size)
{
    const char *start = strchr(text, '['), *end = start ? strchr(start, ']') : NULL;
    copy(end ? start + 1 : "", end ? (size_t)(end - start - 1) : 0, out, size);
}

void sy_parse_cpuinfo(const char *text, const char *key, char *out, size_t size)
{
    size_t n = strlen(key);
    out[0] = '\0';
    for (const char *line = text; line && *line; line = next_line(line)) {
        const char *at = line + n;
        if (strncmp(line, key, n) != 0)
            continue;
        at += strspn(at, " \t");
        if (*at != ':')
            continue;
        at++;
        at += strspn(at, " \t");
        copy(at, strcspn(at, "\n"), out, size);
        return;
    }
}

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = strstr(words, word); at; at = strstr(at + 1, word))
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

void sy_parse_cpu_features(const char *cpuinfo, char *out, size_t size)
{
    static const struct {
        const char *flag, *name;
    } known[] = {
        {"avx2", "AVX2"},         {"avx512f", "AVX-512"},   {"avx512_vnni", "AVX-512 VNNI"},
        {"avx_vnni", "AVX-VNNI"}, {"avx512_bf16", "BF16"},  {"avx512_fp16", "FP16"},
        {"amx_tile", "AMX"},      {"amx_bf16", "AMX-BF16"}, {"amx_int8", "AMX-INT8"},
        {"asimd", "NEON"},        {"sve", "SVE"},           {"bf16", "BF16"},
        {"i8mm", "I8MM"}};
    char flags[8192];
    size_t used = 0;
    sy_parse_cpuinfo(cpuinfo, "flags", flags, sizeof flags);
    if (!flags[0])
        sy_parse_cpuinfo(cpuinfo, "Features", flags, sizeof flags);
    out[0] = '\0';
    for (size_t i = 0; i < SY_ARRAY_LEN(known); i++)
        if (has_word(flags, known[i].flag) && used < size)
            used +=
                (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", known[i].name);
}

double sy_parse_cpu_max(const char *text)
{
    char *end;
    if (strncmp(text, "max", 3) == 0)
        return INFINITY;
    double quota = strtod(text, &end);
    if (end == text || *end != ' ')
        return NAN;
    double period = strtod(end, NULL);
    return period > 0 && quota > 0 ? quota / period : NAN;
}

double sy_parse_memory_max(const char *text)
{
    char *end;
    if (strncmp(text, "max", 3) == 0)
        return INFINITY;
    double bytes = strtod(text, &end);
    if (end == text || bytes < 0)
        return NAN;
    return bytes > NO_LIMIT ? INFINITY : bytes;
}

double sy_parse_stat(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *line = text; line && *line; line = next_line(line))
        if (strncmp(line, key, n) == 0 && line[n] == ' ')
            return strtod(line + n, NULL);
    return NAN;
}

/* Whether `list`, comma separated and `n` long, has `word`; "" is in the empty list only. */
static bool listed(const char *list, size_t n, const char *word)
{
    size_t m = strlen(word);
    if (m == 0)
        return n == 0;
    for (size_t i = 0; i + m <= n; i++)
        if (strncmp(list + i, word, m) == 0 && (i == 0 || list[i - 1] == ',') &&
            (i + m == n || list[i + m] == ','))
            return true;
    return false;
}

void sy_parse_cgroup_path(const char *text, const char *controller, char *out, size_t size)
{
    out[0] = '\0';
    for (const char *line = text; line && *line; line = next_line(line)) {
        const char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;
        const char *end = line + strcspn(line, "\n");
        if (!path || path >= end || !listed(list + 1, (size_t)(path - list - 1), controller))
            continue;
        copy(path + 1, (size_t)(end - path - 1), out, size);
        return;
    }
}
