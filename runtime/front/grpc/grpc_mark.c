/* Connections with something to be sent: they are marked, and flushed at the end of this turn of the loop. */
#include "runtime/base/log.h"
#include "runtime/front/grpc/grpc_internal.h"

void sy_grpc_connection_mark(struct sy_grpc_connection *connection)
{
    struct sy_grpc_server *server = connection->server;

    if (connection->is_dirty)
        return;
    if (!server->dirty)
        event_active(server->flush_event, EV_TIMEOUT, 0);
    connection->is_dirty = true;
    connection->next_dirty = NULL;
    connection->previous_dirty = server->dirty_end;
    *server->dirty_end = connection;
    server->dirty_end = &connection->next_dirty;
}

void sy_grpc_connection_submitted(struct sy_grpc_connection *connection, int result)
{
    if (result == 0 || !nghttp2_is_fatal(result))
        return;
    sy_log_warn("grpc", "event=connection_ends why=\"%s\"", nghttp2_strerror(result));
    connection->closes = true;
    sy_grpc_connection_mark(connection);
}
