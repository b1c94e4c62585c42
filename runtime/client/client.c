/* The client of a running server: blocking calls over one socket, every wait bounded by the call's deadline. */
#include "runtime/client/switchyard.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <msgpack.h>
#include <netdb.h>
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
#include "runtime/client/client_internal.h"
#include "runtime/client/client_json.h"
#include "runtime/client/json_msgpack.h"
#include "runtime/net/tls.h"

#define DEFAULT_TIMEOUT_MS  60000u
#define MAX_ANSWER_BYTES    (2ull << 30)
#define MAX_ANSWER_ELEMENTS (8ull << 20) /* a long trace */
#define FIRST_CAPACITY      (64u * 1024u)
#define TLS_ALERT           0x15 /* a record of TLS, and no response of msgpack-RPC */

/* ---- the socket ---------------------------------------------------------------------------------------- */

int sy_client_wait(sy_client *client, short events)
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
    static const int send_bytes =
        2 << 20; /* for `switchyard attach`, through which tensors go as bytes */
    int error = 0;
    socklen_t n = sizeof(error);

    client->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (client->fd < 0)
        return sy_error_set(SY_EIO, "cannot make a socket: %s", strerror(errno));
    if (address->sa_family == AF_UNIX) /* TCP sizes its own */
        (void)setsockopt(client->fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
    if (connect(client->fd, address, n_bytes) == 0)
        return SY_OK;
    if (errno != EINPROGRESS)
        return sy_error_set(SY_EPEER, "no server answers on %s: %s", text, strerror(errno));
    SY_TRY(sy_client_wait(client, POLLOUT));
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

static int connect_tcp(sy_client *client, const char *text, const sy_client_security *security)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *info = NULL;
    const char *colon = strrchr(text, ':');
    char host[256];
    int failed, status;

    if (!colon || (size_t)(colon - text) >= sizeof(host))
        return sy_error_set(SY_EARG, "\"tcp:%s\" is no tcp:HOST:PORT", text);
    if (!sy_tcp_port_is_possible(colon + 1))
        return sy_error_set(SY_EARG, "%s: '%s' is no port; 0 to 65535", text, colon + 1);
    if (*text == '[' && colon > text + 2 && colon[-1] == ']') /* [::1]:port */
        snprintf(host, sizeof(host), "%.*s", (int)(colon - text) - 2, text + 1);
    else
        snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
    failed = getaddrinfo(*host ? host : "127.0.0.1", colon + 1, &hints, &info);
    if (failed)
        return sy_error_set(SY_EARG, "cannot resolve %s: %s", text, gai_strerror(failed));
    status = SY_EPEER;
    for (const struct addrinfo *at = info; at && status == SY_EPEER; at = at->ai_next) {
        if (client->fd >= 0)
            close(client->fd);
        status = connect_bounded(client, at->ai_addr, at->ai_addrlen, text);
    }
    freeaddrinfo(info);
    SY_TRY(status);
    sy_net_set_tcp(client->fd);
    return sy_client_start_tls(client, *host ? host : "127.0.0.1", security);
}

int sy_client_connect(const char *address, unsigned timeout_ms, sy_client **out)
{
    return sy_client_connect_secure(address, timeout_ms, NULL, out);
}

int sy_client_connect_secure(const char *address, unsigned timeout_ms,
                             const sy_client_security *security, sy_client **out)
{
    bool is_tcp = strncmp(address, "tcp:", 4) == 0;
    sy_client *client = calloc(1, sizeof(*client));
    int status;

    *out = client; /* also on failure: it holds the error's words, and is closed as usual */
    if (!client)
        return SY_ENOMEM_HOST;
    client->fd = client->received_fd = -1;
    client->timeout_ns = (timeout_ms ? timeout_ms : DEFAULT_TIMEOUT_MS) * SY_NS_PER_MS;
    client->deadline = sy_clock_now() + client->timeout_ns;
    client->is_tcp = is_tcp;
    if (is_tcp)
        status = connect_tcp(client, address + 4, security);
    else
        status = connect_unix(client, strncmp(address, "unix:", 5) == 0 ? address + 5 : address);
    if (status == SY_OK)
        status = sy_client_show_token(client, is_tcp, security);
    if (status < 0)
        snprintf(client->error, sizeof(client->error), "%s", sy_error_text());
    return status;
}

void sy_client_close(sy_client *client)
{
    if (!client)
        return;
    sy_client_end_tls(client);
    if (client->fd >= 0)
        close(client->fd);
    sy_client_region_orphan_all(client);
    sy_client_long_drop(client);
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
        ssize_t n = sy_net_write(client->fd, client->tls, parts, (size_t)n_parts);

        if (n < 0 && errno == EAGAIN) {
            SY_TRY(sy_client_wait(client, POLLOUT));
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

/* What has come, and a descriptor with it if the call expects one; where it does not, the kernel drops it. */
static ssize_t receive_some(sy_client *client, void *to, uint64_t room)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {to, room};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    struct cmsghdr *header;
    ssize_t n;

    if (client->tls)
        return sy_tls_read(client->tls, part.iov_base, part.iov_len);
    if (client->expects_fd) {
        message.msg_control = control.space;
        message.msg_controllen = sizeof control.space;
    }
    n = recvmsg(client->fd, &message, MSG_CMSG_CLOEXEC);
    header = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int))) {
        if (client->received_fd >= 0) /* a server that passes two */
            close(client->received_fd);
        memcpy(&client->received_fd, CMSG_DATA(header), sizeof(int));
    }
    return n;
}

/* A server with TLS closes at the first plain bytes, and its alert may be lost with them. */
static bool may_be_tls(const sy_client *client)
{
    return client->is_tcp && !client->tls && client->next_id == 0;
}

/* At least a byte of at most `room`; *n: how many. */
static int receive_more(sy_client *client, void *to, uint64_t room, uint64_t *n)
{
    for (;;) {
        ssize_t got = receive_some(client, to, room);

        *n = got > 0 ? (uint64_t)got : 0;
        if (got > 0)
            return SY_OK;
        if (got < 0 && errno == EAGAIN)
            SY_TRY(sy_client_wait(client, POLLIN));
        else if (got == 0 || errno != EINTR)
            return sy_error_set(SY_EPEER, "the server closed the connection%s%s%s",
                                *sy_tls_why(client->tls) ? ": " : "", sy_tls_why(client->tls),
                                may_be_tls(client) ? "; if its port speaks TLS, give --tls-ca "
                                                     "(tls_ca, SWITCHYARD_TLS_CA)"
                                                   : "");
    }
}

/* A long tensor that the scan stands in, straight to where its reader keeps it. */
static int receive_long(sy_client *client, struct sy_msgpack_scan *scan)
{
    unsigned char *to = NULL;
    uint64_t room = 0, n;

    SY_TRY(sy_client_long_begin(client, scan, &to, &room));
    for (; room > 0; to += n, room -= n)
        SY_TRY(receive_more(client, to, room, &n));
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
        SY_TRY(receive_more(client, client->buffer + client->used, client->capacity - client->used,
                            &n));
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

/* ---- requests and answers ------------------------------------------------------------------------------- */

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
