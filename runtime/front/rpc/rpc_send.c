/* Answers on their way out: in the order in which they are ready, as far as the socket takes them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/client/json_msgpack.h"
#include "runtime/front/rpc/rpc_internal.h"

#define MAX_PARTS      (2 * SY_RPC_MAX_TENSORS + 1)
#define TOGETHER_BYTES (16u * 1024u) /* larger ones: the call is little beside their copy */

#define TURN_BYTES (1u << 20) /* of one flush: a client that reads fast does not hold the loop */

/* Head and tensors in the order of the wire, without the first `skip` bytes. */
static int reply_parts(const struct sy_rpc_reply *reply, uint64_t skip, struct iovec *parts)
{
    size_t from = 0;
    int n = 0, n_left = 0;

    for (int i = 0; i <= reply->n_tensors; i++) {
        size_t to = i < reply->n_tensors ? reply->cut[i] : reply->head.size;

        parts[n++] = (struct iovec){reply->head.data + from, to - from};
        from = to;
        if (i < reply->n_tensors)
            parts[n++] = (struct iovec){(void *)reply->tensor[i], reply->tensor_bytes[i]};
    }
    for (int i = 0; i < n; i++) {
        uint64_t drop = SY_MIN(skip, parts[i].iov_len);

        skip -= drop;
        if (parts[i].iov_len > drop)
            parts[n_left++] =
                (struct iovec){(char *)parts[i].iov_base + drop, parts[i].iov_len - drop};
    }
    return n_left;
}

static void first_reply_done(struct sy_rpc_connection *connection)
{
    struct sy_rpc_reply *reply = connection->first_reply;

    connection->first_reply = reply->next;
    if (!reply->next)
        connection->last_reply = NULL;
    connection->sent = 0;
    if (reply->answers)
        connection->n_outstanding--;
    sy_rpc_reply_free(reply);
}

/* Space for one descriptor in a message. */
union passed_fd {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
};

static void attach_fd(struct msghdr *message, union passed_fd *control, int fd)
{
    struct cmsghdr *header;

    memset(control, 0, sizeof *control);
    message->msg_control = control->space;
    message->msg_controllen = sizeof control->space;
    header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
}

/* Segments of the replies that one call sends; replies after the first only whole. A reply with a descriptor is sent alone. */
static size_t queued_parts(const struct sy_rpc_connection *connection, struct iovec *parts)
{
    const struct sy_rpc_reply *reply = connection->first_reply;
    size_t n = (size_t)reply_parts(reply, connection->sent, parts);

    if (reply->fd >= 0)
        return n;
    for (reply = reply->next; reply && reply->fd < 0; reply = reply->next) {
        if (n + 2 * (size_t)reply->n_tensors + 1 > MAX_PARTS)
            break;
        n += (size_t)reply_parts(reply, 0, parts + n);
    }
    return n;
}

/* No more than `most` bytes of them; how many parts that are. */
static size_t cut_parts(struct iovec *parts, size_t n, uint64_t most)
{
    for (size_t i = 0; i < n; i++) {
        if (parts[i].iov_len >= most) {
            parts[i].iov_len = most;
            return i + 1;
        }
        most -= parts[i].iov_len;
    }
    return n;
}

static void note_sent(struct sy_rpc_connection *connection, uint64_t n)
{
    sy_pace_add_bytes(&connection->pace, n, connection->server->front->least_bytes_per_s,
                      connection->server->limits.stall_ns);
    connection->unsent_bytes -= n;
    connection->sent += n;
    while (connection->first_reply && connection->sent >= connection->first_reply->bytes) {
        uint64_t next = connection->sent - connection->first_reply->bytes;

        first_reply_done(connection);
        connection->sent = next;
    }
}

bool sy_rpc_reply_flush(struct sy_rpc_connection *connection)
{
    uint64_t left = TURN_BYTES;

    while (connection->first_reply && left > 0) {
        struct sy_rpc_reply *reply = connection->first_reply;
        struct iovec parts[MAX_PARTS];
        struct msghdr header = {.msg_iov = parts};
        union passed_fd control;
        ssize_t n;

        header.msg_iovlen = cut_parts(parts, queued_parts(connection, parts), left);
        if (reply->fd >= 0 && connection->sent == 0)
            attach_fd(&header, &control, reply->fd);
        n = connection->tls ? sy_tls_write(connection->tls, parts, header.msg_iovlen)
                            : sendmsg(connection->fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0)
            break;
        left -= SY_MIN((uint64_t)n, left);
        note_sent(connection, (uint64_t)n);
    }
    sy_socket_write(&connection->events, connection->first_reply != NULL);
    return true;
}

/* Answers that come together go out in one call, at the end of the loop's turn: a call for each is what small requests cost most. A client
 * that waits for this answer only has it at once. */
static bool flush_in_time(struct sy_rpc_connection *connection, const struct sy_rpc_reply *reply)
{
    if (connection->n_outstanding <= 1 || reply->bytes > TOGETHER_BYTES)
        return sy_rpc_reply_flush(connection);
    event_active(connection->events.write, EV_WRITE, 0);
    return true;
}

static void enqueue(struct sy_rpc_connection *connection, struct sy_rpc_reply *reply)
{
    reply->bytes = reply->head.size;
    for (int i = 0; i < reply->n_tensors; i++)
        reply->bytes += reply->tensor_bytes[i];
    if (connection->last_reply)
        connection->last_reply->next = reply;
    else
        connection->first_reply = reply;
    connection->last_reply = reply;
    connection->unsent_bytes += reply->bytes;
}

void sy_rpc_reply_send(struct sy_rpc_connection *connection, struct sy_rpc_reply *reply)
{
    bool idle = connection->first_reply == NULL;

    if (connection->fd < 0 || reply->failed) {
        if (reply->answers)
            connection->n_outstanding--;
        if (connection->fd >= 0) /* a client must not wait for ever for what cannot be said */
            sy_rpc_connection_close(connection);
        sy_rpc_reply_free(reply);
        return;
    }
    enqueue(connection, reply);
    if (idle)
        sy_pace_restart(&connection->pace);
    if (idle && !flush_in_time(connection, reply)) {
        sy_rpc_connection_close(connection);
        return;
    }
    if (connection->unsent_bytes > connection->server->limits.unsent_bytes) {
        sy_log_warn("rpc", "event=slow_reader unsent_bytes=%llu",
                    (unsigned long long)connection->unsent_bytes);
        sy_rpc_connection_close(connection);
    }
}

static void pack_text(msgpack_packer *packer, const char *text)
{
    size_t n = strlen(text);

    msgpack_pack_str(packer, n);
    msgpack_pack_str_body(packer, text, n);
}

/* Error messages may quote the client's bytes, and long ones are cut anywhere: makes them valid UTF-8. */
static void pack_message(msgpack_packer *packer, const char *message)
{
    char plain[512];
    json_t *valid = json_string(message);

    if (valid) {
        pack_text(packer, message);
        json_decref(valid);
        return;
    }
    snprintf(plain, sizeof(plain), "%s", message);
    for (char *c = plain; *c; c++)
        if (*c & 0x80)
            *c = '?';
    pack_text(packer, plain);
}

/* Out of memory for an answer: the client must not wait for ever, so the connection goes. */
static void give_up(struct sy_rpc_connection *connection)
{
    connection->n_outstanding--;
    sy_rpc_connection_close(connection);
}

void sy_rpc_answer_json(struct sy_rpc_connection *connection, bool answers, uint64_t id,
                        json_t *result)
{
    sy_rpc_answer_json_with_fd(connection, answers, id, result, -1);
}

void sy_rpc_answer_json_with_fd(struct sy_rpc_connection *connection, bool answers, uint64_t id,
                                json_t *result, int fd)
{
    struct sy_rpc_reply *reply = answers ? sy_rpc_reply_create() : NULL;
    msgpack_packer packer;

    if (reply) {
        msgpack_packer_init(&packer, reply, sy_rpc_reply_write);
        msgpack_pack_array(&packer, 4);
        msgpack_pack_int(&packer, 1);
        msgpack_pack_uint64(&packer, id);
        msgpack_pack_nil(&packer);
        if (!result || sy_json_to_msgpack(&packer, result)) {
            sy_rpc_reply_free(reply);
            reply = NULL;
        }
    }
    json_decref(result);
    if (reply)
        reply->fd = fd;
    else if (fd >= 0)
        close(fd);
    if (reply)
        sy_rpc_reply_send(connection, reply);
    else if (answers)
        give_up(connection);
    else
        connection->n_outstanding--;
}

static void pack_error(void *to, msgpack_packer_write write, uint64_t id, int status,
                       const char *message)
{
    msgpack_packer packer;

    msgpack_packer_init(&packer, to, write);
    msgpack_pack_array(&packer, 4);
    msgpack_pack_int(&packer, 1);
    msgpack_pack_uint64(&packer, id);
    msgpack_pack_map(&packer, 2);
    pack_text(&packer, "status");
    pack_text(&packer, sy_status_name(status));
    pack_text(&packer, "message");
    pack_message(&packer, message && *message ? message : sy_status_text(status));
    msgpack_pack_nil(&packer);
}

void sy_rpc_answer_error(struct sy_rpc_connection *connection, bool answers, uint64_t id,
                         int status, const char *message)
{
    struct sy_rpc_reply *reply;

    if (!answers) {
        connection->n_outstanding--;
        return;
    }
    reply = sy_rpc_reply_create();
    if (!reply) {
        give_up(connection);
        return;
    }
    pack_error(reply, sy_rpc_reply_write, id, status, message);
    sy_rpc_reply_send(connection, reply);
}

void sy_rpc_refuse(int fd, int status, const char *message)
{
    msgpack_sbuffer bytes;

    msgpack_sbuffer_init(&bytes);
    pack_error(&bytes, msgpack_sbuffer_write, 0, status, message);
    (void)!send(fd, bytes.data, bytes.size, MSG_NOSIGNAL | MSG_DONTWAIT); /* it is closed anyway */
    msgpack_sbuffer_destroy(&bytes);
}
