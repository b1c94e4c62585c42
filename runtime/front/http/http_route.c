/* To which route a call goes, by method and path; the path's segments and the query. */
#include "runtime/front/http/http_route.h"

#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_internal.h"

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* In place; a zero byte is none of a name's. False: a '%' without two digits, or a zero byte. */
static bool decode(char *text, bool plus_is_space)
{
    char *to = text;

    for (const char *from = text; *from; from++) {
        char c = *from;

        if (c == '%') {
            int high = hex_digit(from[1]), low = high < 0 ? -1 : hex_digit(from[2]);

            if (low < 0 || (high == 0 && low == 0))
                return false;
            c = (char)(high * 16 + low);
            from += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        *to++ = c;
    }
    *to = '\0';
    return true;
}

/* One segment of the path against one of the pattern. `path` is cut at its '/'. */
static bool match(struct sy_http_call *call, const char *pattern, char *path)
{
    call->n_segments = 0;
    for (;;) {
        size_t n = strcspn(path, "/"), m = strcspn(pattern, "/");

        if (m == 2 && pattern[0] == '{') {
            if (n == 0 || call->n_segments == SY_HTTP_MAX_SEGMENTS)
                return false;
            call->segments[call->n_segments++] = (uint32_t)(path - call->text);
        } else if (n != m || memcmp(path, pattern, n) != 0) {
            return false;
        }
        if (!path[n] || !pattern[m])
            return !path[n] && !pattern[m];
        path += n + 1;
        pattern += m + 1;
    }
}

/* After the match: each {} ends where its segment does. */
static bool cut_segments(struct sy_http_call *call)
{
    bool good = true;

    for (int i = 0; i < call->n_segments; i++) {
        char *segment = call->text + call->segments[i];

        segment[strcspn(segment, "/")] = '\0';
    }
    for (int i = 0; i < call->n_segments; i++)
        good = decode(call->text + call->segments[i], false) && good;
    return good;
}

/* "a=1&b" as names and values. False: a '%' that is no escape, or too many. */
static bool split_query(struct sy_http_call *call, char *at)
{
    while (*at) {
        char *end = at + strcspn(at, "&"), *next = end + (*end == '&'), *value;

        if (call->n_queries == SY_HTTP_MAX_QUERIES)
            return false;
        *end = '\0';
        value = at + strcspn(at, "=");
        if (*value)
            *value++ = '\0';
        if (!decode(at, true) || !decode(value, true))
            return false;
        call->queries[call->n_queries++] = (struct sy_http_field){
            .name = (uint32_t)(at - call->text), .value = (uint32_t)(value - call->text)};
        at = next;
    }
    return true;
}

/* "/path?query" or "http://host/path?query", which proxies send; a host alone is its "/". */
static bool split_url(struct sy_http_call *call)
{
    struct http_parser_url url;

    http_parser_url_init(&url);
    if (call->method == HTTP_CONNECT ||
        http_parser_parse_url(call->text, call->url_bytes, false, &url))
        return false;
    if (!(url.field_set & 1 << UF_PATH)) {
        call->text[0] = '/';
        url.field_data[UF_PATH].off = 0;
        url.field_data[UF_PATH].len = 1;
    }
    call->path = url.field_data[UF_PATH].off;
    call->text[call->path + url.field_data[UF_PATH].len] = '\0';
    char *query = call->text + url.field_data[UF_QUERY].off;
    if (url.field_set & 1 << UF_QUERY) {
        query[url.field_data[UF_QUERY].len] = '\0';
        if (!split_query(call, query))
            return false;
    }
    uint32_t n = url.field_data[UF_PATH].len;
    if (n > 1 && call->text[call->path + n - 1] == '/')
        call->text[call->path + n - 1] = '\0';
    return true;
}

static bool is_method(const struct sy_http_call *call, const char *method)
{
    return strcmp(http_method_str(call->method), method) == 0 ||
           (call->is_head && strcmp(method, "GET") == 0);
}

static void add_allowed(char *allowed, size_t bytes, const char *method)
{
    size_t n = strlen(allowed);

    if (!strstr(allowed, method) && n + strlen(method) + 8 < bytes)
        strcpy(allowed + n, n ? ", " : ""), strcat(allowed, method);
    if (strcmp(method, "GET") == 0 && !strstr(allowed, "HEAD") && n + 16 < bytes)
        strcat(allowed, ", HEAD");
}

/* A proxy in front may have read "Content-Length : 5" otherwise than the parser: RFC 9112, 5.1. */
static bool names_are_tokens(const struct sy_http_call *call)
{
    for (int i = 0; i < call->n_fields; i++)
        if (strpbrk(call->text + call->fields[i].name, " \t"))
            return false;
    return true;
}

/* No route matched: 404, or 405 with the methods that the path has. */
static int refuse(struct sy_http_call *call, const char *allowed, const char **why)
{
    const char *path = call->text + call->path;

    if (*allowed) {
        sy_http_call_add_header(call, "Allow", allowed);
        sy_error_set(SY_EARG, "%.200s does not have the method %s; it has %s", path,
                     http_method_str(call->method), allowed);
    } else {
        sy_error_set(SY_ENOTFOUND,
                     "there is no path %.200s; GET /v2/openapi.json lists those that there are",
                     path);
    }
    *why = sy_error_text();
    return *allowed ? 405 : 404;
}

int sy_http_call_route(struct sy_http_call *call, const char **why)
{
    struct sy_http_server *server = call->server;
    char allowed[64] = "";

    sy_http_call_end_text(call);
    if (!names_are_tokens(call)) {
        call->keeps_alive = false;
        *why = "a header line's name has a space in it";
        return 400;
    }
    if (!split_url(call)) {
        *why = "the request's target is not a path, or its query is not a list of NAME=VALUE";
        return 400;
    }
    for (int i = 0; i < server->n_routes; i++) {
        const struct sy_http_route_entry *entry = &server->routes[i];

        if (!match(call, entry->route->pattern + 1, call->text + call->path + 1))
            continue;
        if (!is_method(call, entry->route->method)) {
            add_allowed(allowed, sizeof(allowed), entry->route->method);
            continue;
        }
        call->entry = entry;
        *why = "the path has a '%' that is no escape";
        return cut_segments(call) ? sy_http_call_allow(call, why) : 400;
    }
    return refuse(call, allowed, why);
}
