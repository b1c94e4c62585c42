#include <jansson.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simulation/sim_front.h"
#include "tests/simulation/sim_world.h"

static bool put(struct sim_connection *c, const void *bytes, size_t n)
{
    if (n > sizeof c->said - c->n_said)
        return false;
    memcpy(c->said + c->n_said, bytes, n);
    c->n_said += n;
    return true;
}

/* ---- requests ----------------------------------------------------------------------------------- */

static bool ask_http(struct sim_connection *c, struct sim_ask *ask, const char *model)
{
    char body[2048], text[2560];
    int n = snprintf(body, sizeof body,
                     "{\"inputs\":[{\"name\":\"input\",\"datatype\":\"FP32\",\"shape\":[%d,%d],"
                     "\"data\":[",
                     ask->rows, FAKE_ROW);
    if (ask->rows == 0)
        n = snprintf(text, sizeof text, "GET /v2/health/live HTTP/1.1\r\nHost: h\r\n\r\n");
    for (int i = 0; i < ask->rows * FAKE_ROW; i++)
        n += snprintf(body + n, sizeof body - (size_t)n, "%s%g", i ? "," : "", ask->x[i]);
    if (ask->rows > 0) {
        n += snprintf(body + n, sizeof body - (size_t)n, "]}]}");
        n = snprintf(text, sizeof text,
                     "POST /v2/models/%s/infer HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s",
                     model, n, body);
    }
    return put(c, text, (size_t)n);
}

static void pack_text(msgpack_packer *to, const char *text)
{
    msgpack_pack_str_with_body(to, text, strlen(text));
}

static void pack_infer(msgpack_packer *to, const struct sim_ask *ask, const char *model)
{
    size_t bytes = (size_t)ask->rows * FAKE_ROW * sizeof(float);
    msgpack_pack_array(to, 1);
    msgpack_pack_map(to, 2);
    pack_text(to, "model");
    pack_text(to, model);
    pack_text(to, "inputs");
    msgpack_pack_array(to, 1);
    msgpack_pack_map(to, 4);
    pack_text(to, "name");
    pack_text(to, "input");
    pack_text(to, "dtype");
    pack_text(to, "FP32");
    pack_text(to, "shape");
    msgpack_pack_array(to, 2);
    msgpack_pack_int(to, ask->rows);
    msgpack_pack_int(to, FAKE_ROW);
    pack_text(to, "data");
    msgpack_pack_bin_with_body(to, ask->x, bytes);
}

static bool ask_rpc(struct sim_connection *c, struct sim_ask *ask, const char *model)
{
    msgpack_sbuffer buffer;
    msgpack_packer to;
    msgpack_sbuffer_init(&buffer);
    msgpack_packer_init(&to, &buffer, msgpack_sbuffer_write);
    msgpack_pack_array(&to, 4);
    msgpack_pack_int(&to, 0);
    msgpack_pack_uint64(&to, ask->id);
    pack_text(&to, ask->rows ? "infer" : "ping");
    if (ask->rows)
        pack_infer(&to, ask, model);
    else
        msgpack_pack_array(&to, 0);
    bool fits = put(c, buffer.data, buffer.size);
    msgpack_sbuffer_destroy(&buffer);
    return fits;
}

bool sim_front_ask(struct sim_connection *c, struct sim_ask *ask, const char *model)
{
    bool (*const asks[])(struct sim_connection *, struct sim_ask *,
                         const char *) = {ask_http, ask_rpc, sim_front_grpc_ask};
    bool fits = asks[c->protocol](c, ask, model);
    ask->end = c->protocol == SIM_GRPC ? 0 : c->n_sent + c->n_said;
    return fits;
}

/* Neither a method of HTTP nor an array of msgpack begins so. */
void sim_front_talk_nonsense(struct sim_connection *c)
{
    unsigned char bytes[24];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)sim_front_draw(256);
    bytes[0] = 0xc1;
    c->nonsense |= put(c, bytes, 1 + sim_front_draw(sizeof bytes));
}

/* ---- answers ------------------------------------------------------------------------------------ */

static void take_bytes(struct sim_connection *c, size_t n)
{
    c->n_read -= n;
    memmove(c->read, c->read + n, c->n_read);
    c->n_answers++;
}

/* All of it must have been sent unless it was refused. */
void sim_front_answered(struct sim_connection *c, struct sim_ask **at, bool is_ok, const float *y)
{
    struct sim_ask *ask = *at;
    SIM_CHECK(!is_ok || ask->end <= c->n_sent,
              "connection %llu: request %llu is answered, which was not whole",
              (unsigned long long)c->number, (unsigned long long)ask->id);
    for (int i = 0; is_ok && i < ask->rows * FAKE_ROW; i++)
        SIM_CHECK(y[i] == 2 * ask->x[i] + 1, "connection %llu: request %llu has a wrong answer",
                  (unsigned long long)c->number, (unsigned long long)ask->id);
    sim_say("connection %llu: request %llu %s", (unsigned long long)c->number,
            (unsigned long long)ask->id, is_ok ? "answered" : "refused");
    sim.n_front_answered[c->protocol] += is_ok;
    sim.n_front_refused += !is_ok;
    *at = ask->next;
    sim_front_grpc_free(ask);
    free(ask);
}

/* The numbers of an answer's only output. */
static void read_numbers(const struct sim_connection *c, const char *body, size_t n, float *y,
                         size_t n_y)
{
    json_t *root = json_loadb(body, n, 0, NULL);
    json_t *data = json_object_get(json_array_get(json_object_get(root, "outputs"), 0), "data");
    SIM_CHECK(json_array_size(data) == n_y, "connection %llu: %zu numbers, not %zu",
              (unsigned long long)c->number, json_array_size(data), n_y);
    for (size_t i = 0; i < n_y; i++)
        y[i] = (float)json_number_value(json_array_get(data, i));
    json_decref(root);
}

/* Asks a client that has half-closed whether it still reads. */
static bool skip_interim(struct sim_connection *c)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    size_t n = sizeof interim - 1;
    if (c->n_read < n || memcmp(c->read, interim, n) != 0)
        return false;
    SIM_CHECK(c->half_closed, "connection %llu: 100 Continue to a client that has not half-closed",
              (unsigned long long)c->number);
    c->n_read -= n;
    memmove(c->read, c->read + n, c->n_read);
    return true;
}

static bool take_http(struct sim_connection *c)
{
    const char *text = (const char *)c->read;
    const char *end = memmem(text, c->n_read, "\r\n\r\n", 4);
    float y[SIM_ASK_ROWS * FAKE_ROW];
    if (!end)
        return false;
    if (skip_interim(c))
        return true;
    size_t head = (size_t)(end + 4 - text);
    const char *length = memmem(text, head, "\r\nContent-Length: ", 18);
    SIM_CHECK(memcmp(text, "HTTP/1.1 ", 9) == 0 && length, "connection %llu: no HTTP",
              (unsigned long long)c->number);
    size_t bytes = strtoull(length + 18, NULL, 10);
    if (c->n_read < head + bytes)
        return false;
    int code = atoi(text + 9);
    c->ends |= memmem(text, head, "\r\nConnection: close", 19) != NULL;
    SIM_CHECK(c->asks || (code >= 400 && (c->nonsense || c->half_closed)),
              "connection %llu: an answer (%d) that nobody waits for",
              (unsigned long long)c->number, code);
    if (c->asks && code == 200 && c->asks->rows)
        read_numbers(c, text + head, bytes, y, (size_t)c->asks->rows * FAKE_ROW);
    if (c->asks)
        sim_front_answered(c, &c->asks, code == 200, y);
    take_bytes(c, head + bytes);
    return true;
}

static const msgpack_object *member(const msgpack_object *map, const char *key)
{
    for (uint32_t i = 0; map && map->type == MSGPACK_OBJECT_MAP && i < map->via.map.size; i++) {
        const msgpack_object_kv *kv = &map->via.map.ptr[i];
        if (kv->key.via.str.size == strlen(key) &&
            memcmp(kv->key.via.str.ptr, key, strlen(key)) == 0)
            return &kv->val;
    }
    return NULL;
}

static const float *output_of(const struct sim_connection *c, const msgpack_object *result,
                              size_t n_y)
{
    const msgpack_object *outputs = member(result, "outputs");
    const msgpack_object *data =
        outputs && outputs->via.array.size == 1 ? member(outputs->via.array.ptr, "data") : NULL;
    SIM_CHECK(data && data->via.bin.size == n_y * sizeof(float),
              "connection %llu: no output, or a short one", (unsigned long long)c->number);
    return (const float *)(const void *)data->via.bin.ptr;
}

static void check_response(struct sim_connection *c, const msgpack_object *message)
{
    float y[SIM_ASK_ROWS * FAKE_ROW];
    SIM_CHECK(message->type == MSGPACK_OBJECT_ARRAY && message->via.array.size == 4,
              "connection %llu: no response", (unsigned long long)c->number);
    const msgpack_object *part = message->via.array.ptr;
    uint64_t id = part[1].via.u64;
    struct sim_ask **at = &c->asks;
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    bool is_ok = part[2].type == MSGPACK_OBJECT_NIL;
    if (!*at) {
        SIM_CHECK(id == 0 && !is_ok && c->nonsense,
                  "connection %llu: an answer to %llu, that nobody waits for",
                  (unsigned long long)c->number, (unsigned long long)id);
        return;
    }
    if (is_ok && (*at)->rows) {
        size_t n_y = (size_t)(*at)->rows * FAKE_ROW;
        memcpy(y, output_of(c, &part[3], n_y), n_y * sizeof *y);
    }
    sim_front_answered(c, at, is_ok, y);
}

static bool take_rpc(struct sim_connection *c)
{
    msgpack_unpacked unpacked;
    size_t at = 0;
    msgpack_unpacked_init(&unpacked);
    msgpack_unpack_return got =
        msgpack_unpack_next(&unpacked, (const char *)c->read, c->n_read, &at);
    SIM_CHECK(got == MSGPACK_UNPACK_SUCCESS || got == MSGPACK_UNPACK_CONTINUE,
              "connection %llu: no msgpack", (unsigned long long)c->number);
    if (got == MSGPACK_UNPACK_SUCCESS) {
        check_response(c, &unpacked.data);
        take_bytes(c, at);
    }
    msgpack_unpacked_destroy(&unpacked);
    return got == MSGPACK_UNPACK_SUCCESS;
}

bool sim_front_take_answer(struct sim_connection *c)
{
    if (c->n_read == 0)
        return false;
    if (c->protocol == SIM_GRPC)
        sim_front_grpc_take(c);
    else
        return c->protocol == SIM_RPC ? take_rpc(c) : take_http(c);
    return false;
}
