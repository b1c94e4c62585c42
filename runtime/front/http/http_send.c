/* Replies on their way out: what lies where, in the order of their requests. */
#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>

#include "runtime/base/assert.h"
#include "runtime/front/http/http_internal.h"
#include "runtime/front/request/offload.h"

#define MAX_PARTS 64

void sy_http_reply_free(struct sy_http_reply *reply)
{
    if (reply->release)
        reply->release(reply->ctx);
    sy_offload_free(reply->server->front->offload, reply->text.at, reply->text.size);
    free(reply->head);
    free(reply);
}

void sy_http_reply_drop_all(struct sy_http_connection *connection)
{
    while (connection->first_reply) {
        struct sy_http_reply *reply = connection->first_reply;

        connection->first_reply = reply->next;
        sy_http_reply_free(reply);
    }
    connection->last_reply = NULL;
    connection->unsent_bytes = 0;
}

/* The first parts of what is left of all replies, up to `most` bytes: one call over loopback goes on for as long as the client reads, 2 to 6 ms of an answer of
 * 100 MB. */
static int next_parts(const struct sy_http_connection *connection, uint64_t most,
                      struct iovec *parts)
{
    int n = 0;

    for (const struct sy_http_reply *reply = connection->first_reply; reply; reply = reply->next) {
        uint64_t skip = reply->sent;

        for (int i = 0; i < reply->n_segments && n < MAX_PARTS && most > 0; i++) {
            const struct sy_http_segment *s = &reply->segments[i];
            uint64_t drop = SY_MIN(skip, s->bytes), bytes = SY_MIN(s->bytes - drop, most);

            skip -= drop;
            most -= bytes;
            if (bytes > 0)
                parts[n++] = (struct iovec){(char *)(uintptr_t)s->data + drop, bytes};
        }
        if (n == MAX_PARTS || most == 0)
            break;
    }
    return n;
}

static void note_sent(struct sy_http_connection *connection, uint64_t n)
{
    sy_pace_add_bytes(&connection->pace, n, connection->server->front->least_bytes_per_s,
                      connection->server->limits.stall_ns);
    connection->unsent_bytes -= n;
    if (connection->unsent_bytes == 0)
        sy_pace_restart(&connection->pace);
    while (connection->first_reply) {
        struct sy_http_reply *reply = connection->first_reply;
        uint64_t part = SY_MIN(n, reply->bytes - reply->sent);

        reply->sent += part;
        n -= part;
        if (reply->sent < reply->bytes)
            return;
        connection->first_reply = reply->next;
        if (!reply->next)
            connection->last_reply = NULL;
        sy_http_reply_free(reply);
    }
}

bool sy_http_reply_flush(struct sy_http_connection *connection)
{
    uint64_t turn = 0;

    while (connection->first_reply && turn < SY_HTTP_TURN_BYTES) {
        struct iovec parts[MAX_PARTS];
        ssize_t n;

        n = sy_net_write(connection->fd, connection->tls, parts,
                         (size_t)next_parts(connection, SY_HTTP_TURN_BYTES - turn, parts));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0)
            break;
        turn += (uint64_t)n;
        note_sent(connection, (uint64_t)n);
    }
    sy_socket_write(&connection->events, connection->first_reply != NULL);
    return true;
}

struct sy_http_reply *sy_http_reply_create(struct sy_http_server *server, char *head,
                                           uint64_t bytes, int more_segments)
{
    size_t n = 1 + (size_t)more_segments;
    struct sy_http_reply *reply =
        head ? calloc(1, sizeof(*reply) + n * sizeof(*reply->segments)) : NULL;

    if (!reply) {
        free(head);
        return NULL;
    }
    reply->server = server;
    reply->head = head;
    reply->segments = (struct sy_http_segment *)(reply + 1);
    reply->segments[reply->n_segments++] = (struct sy_http_segment){head, bytes};
    reply->bytes = bytes;
    return reply;
}

void sy_http_reply_add(struct sy_http_reply *reply, const void *data, uint64_t bytes)
{
    reply->segments[reply->n_segments++] = (struct sy_http_segment){data, bytes};
    reply->bytes += bytes;
}

void sy_http_reply_send(struct sy_http_connection *connection, struct sy_http_reply *reply)
{
    bool idle = connection->first_reply == NULL;

    if (!reply || connection->broken) {
        connection->broken = true;
        if (reply)
            sy_http_reply_free(reply);
        return;
    }
    if (connection->last_reply)
        connection->last_reply->next = reply;
    else
        connection->first_reply = reply;
    connection->last_reply = reply;
    reply->sent = connection->begun_bytes;
    connection->begun_bytes = 0;
    connection->unsent_bytes += reply->bytes - reply->sent;
    if (idle)
        sy_pace_restart(&connection->pace);
    if (idle && !sy_http_reply_flush(connection))
        connection->broken = true;
}
