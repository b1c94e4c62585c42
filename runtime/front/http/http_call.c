/* A call's request line and header lines: kept as one text, found by name; the route by method and path. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_internal.h"
#include "runtime/front/request/json_limits.h"
#include "runtime/front/tcp_listen.h"

#define FIRST_TEXT 1024u

struct sy_http_call *sy_http_call_create(struct sy_http_connection *connection)
{
    struct sy_http_call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    call->text = malloc(FIRST_TEXT);
    if (!call->text) {
        free(call);
        return NULL;
    }
    call->text_size = FIRST_TEXT;
    call->server = connection->server;
    call->server->refs++;
    call->connection = connection;
    return call;
}

void sy_http_call_free(struct sy_http_call *call)
{
    if (!call)
        return;
    sy_http_body_finish(call);
    sy_http_server_release(call->server);
    json_decref(call->parsed);
    free(call->parse_why);
    free(call->extra_headers);
    free(call->text);
    free(call);
}

/* ---- header text ------------------------------------------------------------------------------------- */

static int add_text(struct sy_http_call *call, const char *at, size_t n)
{
    uint64_t limit = call->server->limits.header_bytes;

    if (call->text_used + n + 2 > limit)
        return sy_error_set(SY_ETOOBIG, "request line and header lines have more than %llu bytes",
                            (unsigned long long)limit);
    if (call->text_used + n + 2 > call->text_size) {
        uint32_t size = (uint32_t)SY_MAX(2 * call->text_size, call->text_used + n + 2);
        char *text = realloc(call->text, size);

        if (!text)
            return sy_error_set(SY_ENOMEM_HOST, "no memory for header lines");
        call->text = text;
        call->text_size = size;
    }
    memcpy(call->text + call->text_used, at, n);
    call->text_used += (uint32_t)n;
    return SY_OK;
}

static void end_text(struct sy_http_call *call)
{
    call->text[call->text_used++] = '\0'; /* add_text left room for it */
}

int sy_http_call_add_url(struct sy_http_call *call, const char *at, size_t n)
{
    SY_TRY(add_text(call, at, n));
    call->url_bytes += (uint32_t)n;
    return SY_OK;
}

static int begin_field(struct sy_http_call *call)
{
    SY_TRY(add_text(call, "", 0));
    end_text(call); /* of the URL, or the value before */
    if (call->n_fields == SY_HTTP_MAX_FIELDS)
        return sy_error_set(SY_ETOOBIG, "more than %d header lines", SY_HTTP_MAX_FIELDS);
    call->fields[call->n_fields++] = (struct sy_http_field){.name = call->text_used};
    call->in_value = false;
    return SY_OK;
}

int sy_http_call_add_field(struct sy_http_call *call, const char *at, size_t n, bool is_value)
{
    if (!is_value && (call->n_fields == 0 || call->in_value))
        SY_TRY(begin_field(call));
    if (is_value && !call->in_value) {
        SY_TRY(add_text(call, "", 0));
        end_text(call);
        call->fields[call->n_fields - 1].value = call->text_used;
        call->in_value = true;
    }
    uint32_t from = call->text_used;
    SY_TRY(add_text(call, at, n));
    for (uint32_t i = from; !is_value && i < call->text_used; i++)
        call->text[i] = (char)tolower((unsigned char)call->text[i]);
    return SY_OK;
}

static bool is_same_name(const char *small, const char *name)
{
    while (*small && *small == tolower((unsigned char)*name)) {
        small++;
        name++;
    }
    return *small == *name;
}

const char *sy_http_call_header(const struct sy_http_call *call, const char *name)
{
    for (int i = 0; i < call->n_fields; i++)
        if (call->fields[i].value && is_same_name(call->text + call->fields[i].name, name))
            return call->text + call->fields[i].value;
    return NULL;
}

bool sy_http_call_is_local(const struct sy_http_call *call)
{
    return call->connection && sy_tcp_is_local(call->connection->fd);
}

bool sy_http_call_number(const struct sy_http_call *call, const char *name, uint64_t *out)
{
    const char *text = sy_http_call_header(call, name);
    size_t n = text ? strlen(text) : 0;

    if (!text)
        return false;
    *out =
        n > 0 && n < 20 && strspn(text, "0123456789") == n ? strtoull(text, NULL, 10) : UINT64_MAX;
    return true;
}

/* ---- the path ------------------------------------------------------------------------------------------ */

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

int sy_http_call_route(struct sy_http_call *call, const char **why)
{
    struct sy_http_server *server = call->server;
    char allowed[64] = "";

    end_text(call);
    if (!names_are_tokens(call)) {
        call->keeps_alive = false;
        *why = "a header line's name has a space in it";
        return 400;
    }
    if (!split_url(call)) {
        *why = "the request's target is no path, or its query no list of NAME=VALUE";
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
    if (!*allowed) {
        *why = "Not Found";
        return 404;
    }
    sy_http_call_add_header(call, "Allow", allowed);
    *why = "Method Not Allowed";
    return 405;
}

const char *sy_http_call_segment(const struct sy_http_call *call, int index)
{
    return index < call->n_segments ? call->text + call->segments[index] : NULL;
}

/* ---- the rest of the request ------------------------------------------------------------------------------ */

const char *sy_http_call_query(const struct sy_http_call *call, const char *name)
{
    for (int i = 0; i < call->n_queries; i++)
        if (strcmp(call->text + call->queries[i].name, name) == 0)
            return call->text + call->queries[i].value;
    return NULL;
}

const void *sy_http_call_body(const struct sy_http_call *call, uint64_t *bytes)
{
    *bytes = call->body_used;
    return call->body;
}

int sy_http_call_json(const struct sy_http_call *call, json_t **out)
{
    if (call->parsed) {
        *out = json_incref(call->parsed);
        return SY_OK;
    }
    if (call->parse_status < 0)
        return sy_error_set(call->parse_status, "%s", call->parse_why);
    if (call->body_used > 0)
        return sy_json_parse_limited((const char *)call->body, call->body_used,
                                     call->server->limits.json_depth, out);
    *out = json_object();
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for JSON");
}

void sy_http_call_on_gone(struct sy_http_call *call, void (*gone)(void *ctx), void *ctx)
{
    call->gone = gone;
    call->gone_ctx = ctx;
}

void sy_http_call_add_header(struct sy_http_call *call, const char *name, const char *value)
{
    size_t used = call->extra_headers ? strlen(call->extra_headers) : 0;
    size_t n = strlen(name) + strlen(value) + 5;
    char *more = realloc(call->extra_headers, used + n);

    if (!more) { /* a reply that says less would be read wrongly */
        call->lacks_header = true;
        return;
    }
    call->extra_headers = more;
    snprintf(more + used, n, "%s: %s\r\n", name, value);
}
