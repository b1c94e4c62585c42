/* A request of the method infer: of its connection while it is at the core. */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/front/rpc/rpc_infer_internal.h"

void sy_rpc_infer_free(struct sy_rpc_infer *infer)
{
    if (!infer)
        return;
    sy_front_infer_destroy(infer->request);
    sy_rpc_infer_free_places(infer);
    free(infer);
}

void sy_rpc_infer_cancel_all(struct sy_rpc_connection *connection)
{
    struct sy_rpc_infer *infers[256];
    int n = 0;

    for (struct sy_rpc_infer *infer = connection->infers; infer && n < 256; infer = infer->next)
        infers[n++] = infer;
    for (int i = 0; i < n; i++)
        sy_front_infer_cancel(infers[i]->request);
}

void sy_rpc_infer_unlink(struct sy_rpc_infer *infer)
{
    if (infer->previous)
        infer->previous->next = infer->next;
    else
        infer->connection->infers = infer->next;
    if (infer->next)
        infer->next->previous = infer->previous;
}

void sy_rpc_infer_link(struct sy_rpc_infer *infer)
{
    struct sy_rpc_connection *connection = infer->connection;

    infer->next = connection->infers;
    if (infer->next)
        infer->next->previous = infer;
    connection->infers = infer;
    connection->refs++;
}
