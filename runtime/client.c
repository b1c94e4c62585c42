/* The client of a running server: blocking calls over one socket, every wait bounded by the call's deadline. */
#include "runtime/switchyard.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <msgpack.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/clock.h"
#include "runtime/base/msgpack_scan.h"
#include "runtime/base/status.h"
#include "runtime/base/tcp_port.h"
#include "runtime/client_internal.h"
#include "runtime/json_msgpack.h"

#define DEFAULT_TIMEOUT_MS  60000u
#define MAX_ANSWER_BYTES    (2ull << 30)
#define MAX_ANSWER_ELEMENTS (8ull << 20) /* a long trace */
#define FIRST_CAPACITY      (64u * 1024u)

struct sy_client {
    int fd;
    sy_ns timeout_ns, deadline;
    uint64_t next_id;
    unsigned char *buffer; /* the answer being received */
    uint64_t used, capacity;
    char error[512];
};

/* ---- the socket ---------------------------------------------------------------------------------------- */

static int wait_for(sy_client *client, short events)
{
    for (;;) {
        struct pollfd poller = {.fd = client->fd, .events = events};
        sy_ns now = sy_clock_now();
        int n;

        if (now >= client->deadline)
            return sy_error_set(SY_EDEADLINE, "the server did not answer within %llu ms",
                                (unsigned long long)(client->timeout_ns / SY_NS_PER_MS));
        n = poll(&poller, 1, (int)((client->deadline - now) / SY_NS_PER_MS) + 1);
        if (n > 0)
            return SY_OK;
        if (n < 0 && errno != EINTR)
            return sy_error_set(SY_EIO, "poll: %s", strerror(errno));
    }
}

static int connect_bounded(sy_client *client, const struct sockaddr *address, socklen_t n_bytes,
                           const char *text)
{
    int error = 0;
    socklen_t n = sizeof(error);

    client->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (client->fd < 0)
        return sy_error_set(SY_EIO, "cannot make a socket: %s", strerror(errno));
    if (connect(client->fd, address, n_bytes) == 0)
        return SY_OK;
    if (errno != EINPROGRESS)
        return sy_error_set(SY_EPEER, "no server answers on %s: %s", text, strerror(errno));
    SY_TRY(wait_for(client, POLLOUT));
    getsockopt(client->fd, SOL_SOCKET, SO_ERROR, &error, &n);
    if (error)
        return sy_error_set(SY_EPEER, "no server answers on %s: %s", text, strerror(error));
    return SY_OK;
}

static int connect_unix(sy_client *client, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof(address.sun_path))
        return sy_error_set(SY_EARG, "socket path %s is longer than %zu bytes", path,
                            sizeof(address.sun_path) - 1);
    strcpy(address.sun_path, path);
    return connect_bounded(client, (struct sockaddr *)&address, sizeof(address), path);
}

static int connect_tcp(sy_client *client, const char *text)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *info = NULL;
    const char *colon = strrchr(text, ':');
    char host[256];
    int failed, status, one = 1;

    if (!colon || (size_t)(colon - text) >= sizeof(host))
        return sy_error_set(SY_EARG, "\"tcp:%s\" is no tcp:HOST:PORT", text);
    if (!sy_tcp_port_is_possible(colon + 1))
        return sy_error_set(SY_EARG, "%s: '%s' is no port; 0 to 65535", text, colon + 1);
    snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
    failed = getaddrinfo(host, colon + 1, &hints, &info);
    if (failed)
        return sy_error_set(SY_EARG, "cannot resolve %s: %s", text, gai_strerror(failed));
    status = connect_bounded(client, info->ai_addr, info->ai_addrlen, text);
    freeaddrinfo(info);
    if (status == SY_OK)
        setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return status;
}

int sy_client_connect(const char *address, unsigned timeout_ms, sy_client **out)
{
    sy_client *client = calloc(1, sizeof(*client));
    int status;

    *out = client; /* also on failure: it holds the error's words, and is closed as usual */
    if (!client)
        return SY_ENOMEM_HOST;
    client->fd = -1;
    client->timeout_ns = (timeout_ms ? timeout_ms : DEFAULT_TIMEOUT_MS) * SY_NS_PER_MS;
    client->deadline = sy_clock_now() + client->timeout_ns;
    if (strncmp(address, "tcp:", 4) == 0)
        status = connect_tcp(client, address + 4);
    else
        status = connect_unix(client, strncmp(address, "unix:", 5) == 0 ? address + 5 : address);
    if (status < 0)
        snprintf(client->error, sizeof(client->error), "%s", sy_error_text());
    return status;
}

void sy_client_close(sy_client *client)
{
    if (!client)
        return;
    if (client->fd >= 0)
        close(client->fd);
    free(client->buffer);
    free(client);
}

const char *sy_client_error(const sy_client *client)
{
    return client ? client->error : "no memory for a client";
}

static int send_parts(sy_client *client, struct iovec *parts, int n_parts)
{
    while (n_parts > 0) {
        struct msghdr header = {.msg_iov = parts, .msg_iovlen = (size_t)n_parts};
        ssize_t n = sendmsg(client->fd, &header, MSG_NOSIGNAL);

        if (n < 0 && errno == EAGAIN) {
            SY_TRY(wait_for(client, POLLOUT));
            continue;
        }
        if (n < 0 && errno != EINTR)
            return sy_error_set(SY_EPEER, "the server is gone: %s", strerror(errno));
        for (; n_parts > 0 && n >= (ssize_t)parts->iov_len; n_parts--, parts++)
            n -= (ssize_t)parts->iov_len;
        if (n_parts > 0 && n > 0) {
            parts->iov_base = (char *)parts->iov_base + n;
            parts->iov_len -= (size_t)n;
        }
    }
    return SY_OK;
}

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

static int receive_answer(sy_client *client, uint64_t *out_bytes)
{
    struct sy_msgpack_scan scan;
    int complete = 0;

    client->used = 0;
    sy_msgpack_scan_init(&scan, MAX_ANSWER_BYTES, MAX_ANSWER_ELEMENTS);
    while (!complete) {
        ssize_t n;

        SY_TRY(make_room(client));
        n = recv(client->fd, client->buffer + client->used, client->capacity - client->used, 0);
        if (n < 0 && errno == EAGAIN) {
            SY_TRY(wait_for(client, POLLIN));
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return sy_error_set(SY_EPEER, "the server closed the connection");
        client->used += (uint64_t)n;
        complete = sy_msgpack_scan(&scan, client->buffer, client->used);
        SY_TRY(complete);
    }
    *out_bytes = scan.at;
    return SY_OK;
}

/* ---- requests and answers ------------------------------------------------------------------------------- */

static const msgpack_object *get(const msgpack_object *map, const char *key)
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

static void pack_text(msgpack_packer *packer, const char *text)
{
    msgpack_pack_str(packer, strlen(text));
    msgpack_pack_str_body(packer, text, strlen(text));
}

static void pack_request(sy_client *client, msgpack_packer *packer, const char *method)
{
    msgpack_pack_array(packer, 4);
    msgpack_pack_int(packer, 0);
    msgpack_pack_uint64(packer, client->next_id);
    pack_text(packer, method);
}

static int server_error(const msgpack_object *error)
{
    const msgpack_object *name = get(error, "status"), *message = get(error, "message");
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
    int sent = send_parts(client, parts, n_parts);
    if (sent < 0 && sent != SY_EPEER) /* a server that closes may have said why */
        return sent;
    SY_TRY(receive_answer(client, &bytes));
    if (msgpack_unpack_next(unpacked, (char *)client->buffer, bytes, &offset) !=
            MSGPACK_UNPACK_SUCCESS ||
        unpacked->data.type != MSGPACK_OBJECT_ARRAY || unpacked->data.via.array.size != 4)
        return sy_error_set(SY_EPROTO, "the server's answer is no msgpack-RPC response");
    item = unpacked->data.via.array.ptr;
    if (item[1].type != MSGPACK_OBJECT_POSITIVE_INTEGER || item[1].via.u64 != client->next_id)
        return item[2].type == MSGPACK_OBJECT_NIL
                   ? sy_error_set(SY_EPROTO, "the server answered another request")
                   : server_error(&item[2]); /* the server could not read which */
    *response = item;
    return SY_OK;
}

/* As exchange, and gives the result inside the response. After a broken exchange, what comes next on the socket is unknown: the
 * connection is closed. An error that the server answers with, whatever its code, leaves the connection as it is. */
static int ask(sy_client *client, struct iovec *parts, int n_parts, msgpack_unpacked *unpacked,
               const msgpack_object **result)
{
    const msgpack_object *response = NULL;
    int status;

    if (client->fd < 0)
        return sy_error_set(SY_EPEER, "not connected");
    status = exchange(client, parts, n_parts, unpacked, &response);
    if (status < 0) {
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

static int finish(sy_client *client, int status)
{
    client->next_id++;
    return status < 0 ? sy_client_fail(client, status) : status;
}

static int pack_params(msgpack_packer *packer, const char *text)
{
    json_error_t where;
    json_t *params = text && *text ? json_loads(text, 0, &where) : json_array();
    int failed;

    if (!params)
        return sy_error_set(SY_EARG, "parameters are no JSON: line %d: %s", where.line, where.text);
    if (!json_is_array(params))
        msgpack_pack_array(packer, 1);
    failed = sy_json_to_msgpack(packer, params);
    json_decref(params);
    return failed ? sy_error_set(SY_ENOMEM_HOST, "no memory for a request") : SY_OK;
}

static int result_text(const msgpack_object *result, char **out)
{
    json_t *json;

    SY_TRY(sy_json_from_msgpack(result, &json));
    *out = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(json);
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for the answer");
}

int sy_client_call(sy_client *client, const char *method, const char *params_json, char **out_json)
{
    const msgpack_object *result = NULL;
    msgpack_unpacked unpacked;
    msgpack_sbuffer buffer;
    msgpack_packer packer;
    struct iovec part;
    int status;

    *out_json = NULL;
    msgpack_sbuffer_init(&buffer);
    msgpack_unpacked_init(&unpacked);
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    pack_request(client, &packer, method);
    SY_TRY_GOTO(pack_params(&packer, params_json), done);
    part = (struct iovec){buffer.data, buffer.size};
    SY_TRY_GOTO(ask(client, &part, 1, &unpacked, &result), done);
    status = result_text(result, out_json);
done:
    msgpack_unpacked_destroy(&unpacked);
    msgpack_sbuffer_destroy(&buffer);
    return finish(client, status);
}

/* ---- infer ------------------------------------------------------------------------------------------------ */

static void pack_input(msgpack_packer *packer, const sy_client_tensor *input)
{
    msgpack_pack_map(packer, 4);
    pack_text(packer, "name");
    pack_text(packer, input->name);
    pack_text(packer, "dtype");
    pack_text(packer, input->dtype);
    pack_text(packer, "shape");
    msgpack_pack_array(packer, (size_t)input->rank);
    for (int i = 0; i < input->rank; i++)
        msgpack_pack_int64(packer, input->shape[i]);
    pack_text(packer, "data");
    msgpack_pack_bin(packer, input->bytes);
}

static int check_inputs(const sy_client_tensor *inputs, int n_inputs)
{
    if (n_inputs < 0 || n_inputs > SWITCHYARD_MAX_TENSORS)
        return sy_error_set(SY_EARG, "%d inputs; at most %d are possible", n_inputs,
                            SWITCHYARD_MAX_TENSORS);
    for (int i = 0; i < n_inputs; i++) {
        const sy_client_tensor *x = &inputs[i];
        if (!x->name || !x->dtype)
            return sy_error_set(SY_EARG, "input %d has no %s", i, x->name ? "dtype" : "name");
        if (x->rank < 0 || x->rank > SWITCHYARD_MAX_RANK)
            return sy_error_set(SY_EARG,
                                "input '%.100s' has %d dimensions; at most %d are possible",
                                x->name, x->rank, SWITCHYARD_MAX_RANK);
        if (x->bytes > UINT32_MAX)
            return sy_error_set(SY_EARG, "input '%.100s' has %llu bytes; a message holds %u",
                                x->name, (unsigned long long)x->bytes, UINT32_MAX);
    }
    return SY_OK;
}

static void pack_options(msgpack_packer *packer, const sy_client_options *options)
{
    pack_text(packer, "class");
    msgpack_pack_int(packer, options->urgency_class);
    pack_text(packer, "deadline_ms");
    if (options->deadline_ms > 0)
        msgpack_pack_double(packer, options->deadline_ms);
    else
        msgpack_pack_nil(packer);
    if (!options->tenant)
        return;
    pack_text(packer, "tenant");
    pack_text(packer, options->tenant);
}

/* Tensors stay where they are: the packed bytes are cut at each tensor's place. */
static int infer_ask(sy_client *client, const char *model, const sy_client_tensor *inputs,
                     int n_inputs, const sy_client_options *options, msgpack_sbuffer *buffer,
                     msgpack_unpacked *unpacked, const msgpack_object **result)
{
    struct iovec parts[2 * SWITCHYARD_MAX_TENSORS + 1];
    size_t cut[SWITCHYARD_MAX_TENSORS + 1], from = 0;
    msgpack_packer packer;
    int n = 0;

    SY_TRY(check_inputs(inputs, n_inputs));
    msgpack_packer_init(&packer, buffer, msgpack_sbuffer_write);
    pack_request(client, &packer, "infer");
    msgpack_pack_array(&packer, 1);
    msgpack_pack_map(&packer, options ? 4 + (options->tenant != NULL) : 2);
    pack_text(&packer, "model");
    pack_text(&packer, model);
    if (options)
        pack_options(&packer, options);
    pack_text(&packer, "inputs");
    msgpack_pack_array(&packer, (size_t)n_inputs);
    cut[0] = buffer->size;
    for (int i = 0; i < n_inputs; i++) {
        pack_input(&packer, &inputs[i]);
        cut[i] = buffer->size;
    }
    for (int i = 0; i < n_inputs; i++) {
        parts[n++] = (struct iovec){buffer->data + from, cut[i] - from};
        parts[n++] = (struct iovec){(void *)inputs[i].data, inputs[i].bytes};
        from = cut[i];
    }
    if (n_inputs == 0)
        parts[n++] = (struct iovec){buffer->data, buffer->size};
    return ask(client, parts, n, unpacked, result);
}

static uint64_t number(const msgpack_object *map, const char *key)
{
    const msgpack_object *value = get(map, key);

    if (value && value->type == MSGPACK_OBJECT_BOOLEAN)
        return value->via.boolean;
    return value && value->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? value->via.u64 : 0;
}

static char *text_of(const msgpack_object *map, const char *key)
{
    const msgpack_object *value = get(map, key);

    return value && value->type == MSGPACK_OBJECT_STR && value->via.str.ptr
               ? strndup(value->via.str.ptr, value->via.str.size)
               : NULL;
}

/* Copies one output out of the client's buffer, where it is not aligned. */
static int take_output(const msgpack_object *map, sy_client_tensor *out)
{
    const msgpack_object *shape = get(map, "shape"), *data = get(map, "data");
    void *copy;

    out->name = text_of(map, "name");
    out->dtype = text_of(map, "dtype");
    if (!out->name || !out->dtype || !shape || shape->type != MSGPACK_OBJECT_ARRAY ||
        shape->via.array.size > SWITCHYARD_MAX_RANK || !data || data->type != MSGPACK_OBJECT_BIN)
        return sy_error_set(SY_EPROTO,
                            "the server's answer has an output without name, dtype, shape or data");
    out->rank = (int)shape->via.array.size;
    for (int i = 0; i < out->rank; i++)
        out->shape[i] = shape->via.array.ptr[i].via.i64;
    out->bytes = data->via.bin.size;
    copy = aligned_alloc(64, SY_ALIGN_UP(out->bytes + 1, 64));
    if (!copy)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for an output of %zu bytes", out->bytes);
    if (out->bytes > 0)
        memcpy(copy, data->via.bin.ptr, out->bytes);
    out->data = copy;
    return SY_OK;
}

static void take_timing(const msgpack_object *timing, sy_client_result *result)
{
    result->queue_ns = number(timing, "queue_ns");
    result->preempt_wait_ns = number(timing, "preempt_wait_ns");
    result->swap_ns = number(timing, "swap_ns");
    result->total_ns = number(timing, "total_ns");
    result->first_layer_ns = number(timing, "first_layer_ns");
    result->bound_ns = number(timing, "bound_ns");
    result->predicted_ns = number(timing, "predicted_ns");
    result->served_ns = number(timing, "served_ns");
    result->moved_bytes = number(timing, "moved_bytes");
    result->swapped = (int)number(timing, "swapped");
    result->preempted = (int)number(timing, "preempted");
    result->attempts = (int)number(timing, "attempts");
}

static int take_result(const msgpack_object *answer, sy_client_result **out)
{
    const msgpack_object *outputs = get(answer, "outputs");
    sy_client_result *result = calloc(1, sizeof(*result));
    int status = SY_OK;

    if (!result)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for the answer");
    if (!outputs || outputs->type != MSGPACK_OBJECT_ARRAY) {
        free(result);
        return sy_error_set(SY_EPROTO, "the server's answer has no outputs");
    }
    result->outputs = calloc(outputs->via.array.size + 1, sizeof(*result->outputs));
    if (!result->outputs)
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for the answer");
    for (uint32_t i = 0; status == SY_OK && i < outputs->via.array.size; i++) {
        result->n_outputs++;
        status = take_output(&outputs->via.array.ptr[i], &result->outputs[i]);
    }
    take_timing(get(answer, "timing"), result);
    if (status < 0)
        sy_client_result_free(result);
    else
        *out = result;
    return status;
}

int sy_client_infer(sy_client *client, const char *model, const sy_client_tensor *inputs,
                    int n_inputs, sy_client_result **out)
{
    return sy_client_infer_with(client, model, inputs, n_inputs, NULL, out);
}

int sy_client_infer_with(sy_client *client, const char *model, const sy_client_tensor *inputs,
                         int n_inputs, const sy_client_options *options, sy_client_result **out)
{
    const msgpack_object *answer = NULL;
    msgpack_unpacked unpacked;
    msgpack_sbuffer buffer;
    int status;

    *out = NULL;
    msgpack_sbuffer_init(&buffer);
    msgpack_unpacked_init(&unpacked);
    status = infer_ask(client, model, inputs, n_inputs, options, &buffer, &unpacked, &answer);
    if (status == SY_OK)
        status = take_result(answer, out);
    msgpack_unpacked_destroy(&unpacked);
    msgpack_sbuffer_destroy(&buffer);
    return finish(client, status);
}

void sy_client_result_free(sy_client_result *result)
{
    if (!result)
        return;
    for (int i = 0; i < result->n_outputs; i++) {
        free((void *)result->outputs[i].name);
        free((void *)result->outputs[i].dtype);
        free((void *)result->outputs[i].data);
    }
    free(result->outputs);
    free(result);
}
