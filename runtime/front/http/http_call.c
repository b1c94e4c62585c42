/* A call: its request line and header lines, kept as one text and found by name; its body. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_internal.h"
#include "runtime/front/request/json_limits.h"
#include "runtime/front/request/offload.h"
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
    call->server->base.refs++;
    call->connection = connection;
    return call;
}

static void free_body(struct sy_http_call *call)
{
    if (call->has_inflate)
        inflateEnd(&call->inflate);
    call->has_inflate = false;
    sy_offload_free(call->server->front->offload, call->body, call->body_size);
    call->server->buffered_bytes -= call->body_size;
    call->body = NULL;
    call->body_used = call->body_size = 0;
}

void sy_http_call_free(struct sy_http_call *call)
{
    if (!call)
        return;
    free_body(call);
    sy_front_server_release(&call->server->base);
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
        return sy_error_set(SY_ETOOBIG,
                            "request line and header lines have more than %llu bytes; the "
                            "server's --http-header-bytes is the limit",
                            (unsigned long long)limit);
    if (call->text_used + n + 2 > call->text_size) {
        uint32_t size = (uint32_t)SY_MAX(2 * call->text_size, call->text_used + n + 2);
        char *text = realloc(call->text, size);

        SY_TRY_ALLOC(text, "no memory for header lines");
        call->text = text;
        call->text_size = size;
    }
    memcpy(call->text + call->text_used, at, n);
    call->text_used += (uint32_t)n;
    return SY_OK;
}

void sy_http_call_end_text(struct sy_http_call *call)
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
    sy_http_call_end_text(call); /* of the URL, or the value before */
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
        sy_http_call_end_text(call);
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
