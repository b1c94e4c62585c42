/* The end of a connection: its call, stream and replies go when it closes, the rest with its last reference. */
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/front/http/http_internal.h"

void sy_http_connection_free(struct sy_http_connection *connection)
{
    sy_socket_events_finish(&connection->events);
    free(connection->held);
    free(connection);
}

void sy_http_connection_release(struct sy_http_connection *connection)
{
    struct sy_http_server *server = connection->server;

    if (--connection->refs > 0)
        return;
    sy_http_connection_free(connection);
    sy_front_server_release(&server->base);
}

/* The call belongs to its handler until that replies; otherwise it is freed here. */
static void lose_call(struct sy_http_connection *connection)
{
    struct sy_http_call *call = connection->call;

    connection->call = NULL;
    if (!call)
        return;
    bool is_handled = call->is_whole && !call->replied && !call->sink.drop;
    call->connection = NULL;
    sy_http_sink_drop(call);
    if (!is_handled)
        sy_http_call_free(call);
}

static void lose_stream(struct sy_http_connection *connection)
{
    struct sy_http_stream *stream = connection->stream;

    connection->stream = NULL;
    if (!stream)
        return;
    stream->closed(stream->ctx);
    free(stream);
}

void sy_http_connection_close(struct sy_http_connection *connection)
{
    struct sy_http_server *server = connection->server;

    if (connection->fd < 0)
        return;
    sy_socket_events_stop(&connection->events);
    sy_tls_stream_destroy(connection->tls);
    connection->tls = NULL;
    sy_front_server_close(&server->base, connection->fd);
    connection->fd = -1;
    sy_front_server_disconnected(&server->base, connection, LIST_NEXT(connection, link));
    LIST_REMOVE(connection, link);
    sy_http_reply_drop_all(connection);
    lose_stream(connection);
    lose_call(connection);
    sy_http_connection_release(connection);
}
