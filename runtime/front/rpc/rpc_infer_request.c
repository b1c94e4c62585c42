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
    struct sy_rpc_infer *infers[256], *infer = LIST_FIRST(&connection->infers);
    int n = 0;

    for (; infer && n < 256; infer = LIST_NEXT(infer, link))
        infers[n++] = infer;
    for (int i = 0; i < n; i++)
        sy_front_infer_cancel(infers[i]->request);
}

void sy_rpc_infer_unlink(struct sy_rpc_infer *infer)
{
    LIST_REMOVE(infer, link);
}

void sy_rpc_infer_link(struct sy_rpc_infer *infer)
{
    struct sy_rpc_connection *connection = infer->connection;

    LIST_INSERT_HEAD(&connection->infers, infer, link);
    connection->refs++;
}
