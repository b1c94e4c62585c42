/* The end of a connection: what it holds goes when it closes, the rest with its last reference. */
#include <stdlib.h>
#include <unistd.h>

#include "runtime/front/rpc/rpc_internal.h"
#include "runtime/front/rpc/rpc_receive.h"
#include "runtime/front/rpc/rpc_region.h"

void sy_rpc_connection_free(struct sy_rpc_connection *connection)
{
    sy_socket_events_finish(&connection->events);
    free(connection->buffer);
    free(connection);
}

void sy_rpc_connection_release(struct sy_rpc_connection *connection)
{
    struct sy_rpc_server *server = connection->server;

    if (--connection->refs > 0)
        return;
    sy_rpc_connection_free(connection);
    sy_front_server_release(&server->base);
}

void sy_rpc_connection_close(struct sy_rpc_connection *connection)
{
    struct sy_rpc_server *server = connection->server;

    if (connection->fd < 0)
        return;
    sy_socket_events_stop(&connection->events);
    sy_tls_stream_destroy(connection->tls);
    connection->tls = NULL;
    sy_front_server_close(&server->base, connection->fd);
    connection->fd = -1;
    server->buffered_bytes -= connection->capacity;
    connection->used = connection->capacity = 0;
    sy_rpc_long_drop(connection);
    while (connection->first_reply) {
        struct sy_rpc_reply *reply = connection->first_reply;

        connection->first_reply = reply->next;
        sy_rpc_reply_free(reply);
    }
    connection->last_reply = NULL;
    sy_front_server_disconnected(&server->base, connection, LIST_NEXT(connection, link));
    LIST_REMOVE(connection, link);
    sy_repository_wait_cancel(&connection->wait);
    sy_rpc_infer_cancel_all(connection);
    sy_rpc_region_drop_all(connection);
    sy_rpc_receive_drop(connection);
    sy_rpc_connection_release(connection);
}
