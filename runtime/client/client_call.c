/* A call: a request, and the answer to it. */
#include <errno.h>
#include <jansson.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/msgpack_scan.h"
#include "runtime/base/status.h"
#include "runtime/client/client_internal.h"
#include "runtime/client/client_json.h"
#include "runtime/client/json_msgpack.h"
#include "runtime/net/low_water.h"

#define MAX_ANSWER_BYTES    (2ull << 30)
#define MAX_ANSWER_ELEMENTS (8ull << 20) /* a long trace */
#define FIRST_CAPACITY      (64u * 1024u)
#define TLS_ALERT           0x15 /* a record of TLS, and no response of msgpack-RPC */

static int make_room(sy_client *client)
{
    uint64_t capacity = SY_MAX(client->capacity * 2, (uint64_t)FIRST_CAPACITY);
    unsigned char *buffer;

    if (client->used < client->capacity)
        return SY_OK;
    buffer = realloc(client->buffer, capacity);
    if (!buffer)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for an answer of %llu bytes",
                            (unsigned long long)capacity);
    client->buffer = buffer;
    client->capacity = capacity;
    return SY_OK;
}

/* A long tensor that the scan stands in, straight to where its reader keeps it. */
static int receive_long(sy_client *client, struct sy_msgpack_scan *scan)
{
    unsigned char *to = NULL;
    uint64_t room = 0, n;

    SY_TRY(sy_client_long_begin(client, scan, &to, &room));
    for (; room > 0; to += n, room -= n) {
        if (client->is_tcp && !client->tls)
            sy_net_set_low_water(client->fd, &client->low_water, room);
        SY_TRY(sy_client_receive(client, to, room, &n));
    }
    if (client->low_water > 0)
        sy_net_set_low_water(client->fd, &client->low_water, 0);
    return SY_OK;
}

static int receive_answer(sy_client *client, uint64_t *out_bytes)
{
    struct sy_msgpack_scan scan;
    int complete = 0;

    client->used = 0;
    sy_client_long_drop(client);
    sy_msgpack_scan_init(&scan, MAX_ANSWER_BYTES, MAX_ANSWER_ELEMENTS);
    while (!complete) {
        uint64_t n;

        SY_TRY(make_room(client));
        SY_TRY(sy_client_receive(client, client->buffer + client->used,
                                 client->capacity - client->used, &n));
        client->used += n;
        if (!client->tls && client->used > 2 && client->buffer[0] == TLS_ALERT &&
            client->buffer[1] == 3)
            return sy_error_set(SY_EPEER, "the server speaks TLS on this port; give --tls-ca "
                                          "(tls_ca, SWITCHYARD_TLS_CA)");
        complete = sy_msgpack_scan(&scan, client->buffer, client->used);
        SY_TRY(complete);
        if (!complete && client->takes_longs) {
            SY_TRY(receive_long(client, &scan));
            complete = sy_msgpack_scan(&scan, client->buffer, client->used);
            SY_TRY(complete);
        }
    }
    *out_bytes = scan.at;
    return SY_OK;
}

const msgpack_object *sy_client_get(const msgpack_object *map, const char *key)
{
    size_t n = strlen(key);

    for (uint32_t i = 0; map && map->type == MSGPACK_OBJECT_MAP && i < map->via.map.size; i++) {
        const msgpack_object *name = &map->via.map.ptr[i].key;

        if (name->type == MSGPACK_OBJECT_STR && name->via.str.size == n &&
            memcmp(name->via.str.ptr, key, n) == 0)
            return &map->via.map.ptr[i].val;
    }
    return NULL;
}

void sy_client_pack_text(msgpack_packer *packer, const char *text)
{
    msgpack_pack_str(packer, strlen(text));
    msgpack_pack_str_body(packer, text, strlen(text));
}

void sy_client_pack_request(sy_client *client, msgpack_packer *packer, const char *method)
{
    msgpack_pack_array(packer, 4);
    msgpack_pack_int(packer, 0);
    msgpack_pack_uint64(packer, client->next_id);
    sy_client_pack_text(packer, method);
}

static int server_error(const msgpack_object *error)
{
    const msgpack_object *name = sy_client_get(error, "status"),
                         *message = sy_client_get(error, "message");
    int status = SY_EPROTO;

    if (name && name->type == MSGPACK_OBJECT_STR) {
#define X(code, value, text)                                      \
    if (strlen(#code) == name->via.str.size &&                    \
        memcmp(name->via.str.ptr, #code, sizeof(#code) - 1) == 0) \
        status = SY_##code;
        SY_STATUS_TABLE(X)
#undef X
    }
    if (status == SY_OK)
        status = SY_EPROTO;
    if (message && message->type == MSGPACK_OBJECT_STR && message->via.str.ptr)
        return sy_error_set(status, "%.*s", (int)message->via.str.size, message->via.str.ptr);
    return sy_error_set(status, "%s", sy_status_text(status));
}

/* Sends, receives, and gives the response [1, id, error, result] inside `unpacked`, which points into the client's buffer. */
static int exchange(sy_client *client, struct iovec *parts, int n_parts, msgpack_unpacked *unpacked,
                    const msgpack_object **response)
{
    const msgpack_object *item;
    uint64_t bytes = 0;
    size_t offset = 0;

    client->deadline = sy_clock_now() + client->timeout_ns;
    int sent = sy_client_send(client, parts, n_parts);
    if (sent < 0 && sent != SY_EPEER) /* a server that closes may have said why */
        return sent;
    SY_TRY(receive_answer(client, &bytes));
    if (msgpack_unpack_next(unpacked, (char *)client->buffer, bytes, &offset) !=
            MSGPACK_UNPACK_SUCCESS ||
        unpacked->data.type != MSGPACK_OBJECT_ARRAY || unpacked->data.via.array.size != 4)
        return sy_error_set(SY_EPROTO, "the server's answer is not a msgpack-RPC response");
    item = unpacked->data.via.array.ptr;
    if (item[1].type != MSGPACK_OBJECT_POSITIVE_INTEGER || item[1].via.u64 != client->next_id)
        return item[2].type == MSGPACK_OBJECT_NIL
                   ? sy_error_set(SY_EPROTO, "the server answered another request")
                   : server_error(&item[2]); /* the server could not read which */
    *response = item;
    return SY_OK;
}

/* After a broken exchange, what comes next on the socket is unknown: the connection is closed. An error that the server answers with,
 * whatever its code, leaves the connection as it is. */
int sy_client_ask(sy_client *client, struct iovec *parts, int n_parts, msgpack_unpacked *unpacked,
                  const msgpack_object **result)
{
    const msgpack_object *response = NULL;
    int status;

    if (client->fd < 0)
        return sy_error_set(SY_EPEER, "not connected");
    status = exchange(client, parts, n_parts, unpacked, &response);
    if (status < 0) {
        sy_client_end_tls(client);
        close(client->fd);
        client->fd = -1;
        return status;
    }
    if (response[2].type != MSGPACK_OBJECT_NIL)
        return server_error(&response[2]);
    *result = &response[3];
    return SY_OK;
}

int sy_client_fail(sy_client *client, int status)
{
    snprintf(client->error, sizeof(client->error), "%s", sy_error_text());
    return status;
}

int sy_client_finish(sy_client *client, int status)
{
    client->next_id++;
    return status < 0 ? sy_client_fail(client, status) : status;
}

static int pack_params(msgpack_packer *packer, const json_t *params)
{
    if (!json_is_array(params))
        msgpack_pack_array(packer, 1);
    return sy_json_to_msgpack(packer, params)
               ? sy_error_set(SY_ENOMEM_HOST, "no memory for a request")
               : SY_OK;
}

json_t *sy_json_named(const json_t *array, const char *name)
{
    json_t *entry;
    size_t i;

    json_array_foreach(array, i, entry)
    {
        const char *its = json_string_value(json_object_get(entry, "name"));

        if (its && strcmp(its, name) == 0)
            return entry;
    }
    return NULL;
}

int sy_client_call_json(sy_client *client, const char *method, const json_t *params, json_t **out)
{
    const msgpack_object *result = NULL;
    msgpack_unpacked unpacked;
    msgpack_sbuffer buffer;
    msgpack_packer packer;
    struct iovec part;
    int status;

    *out = NULL;
    msgpack_sbuffer_init(&buffer);
    msgpack_unpacked_init(&unpacked);
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    sy_client_pack_request(client, &packer, method);
    SY_TRY_GOTO(pack_params(&packer, params), done);
    part = (struct iovec){buffer.data, buffer.size};
    SY_TRY_GOTO(sy_client_ask(client, &part, 1, &unpacked, &result), done);
    status = sy_json_from_msgpack(result, out);
done:
    msgpack_unpacked_destroy(&unpacked);
    msgpack_sbuffer_destroy(&buffer);
    return sy_client_finish(client, status);
}

int sy_client_call(sy_client *client, const char *method, const char *params_json, char **out_json)
{
    json_error_t where;
    json_t *params =
        params_json && *params_json ? json_loads(params_json, 0, &where) : json_array();
    json_t *result = NULL;
    int status;

    *out_json = NULL;
    if (!params)
        return sy_client_finish(client, sy_error_set(SY_EARG, "parameters are no JSON: line %d: %s",
                                                     where.line, where.text));
    status = sy_client_call_json(client, method, params, &result);
    json_decref(params);
    if (status < 0)
        return status;
    *out_json = json_dumps(result, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(result);
    return *out_json
               ? SY_OK
               : sy_client_fail(client, sy_error_set(SY_ENOMEM_HOST, "no memory for the answer"));
}
