/* One answer, from its first byte to its end. */
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/front/rpc/rpc_internal.h"

struct sy_rpc_reply *sy_rpc_reply_create(void)
{
    struct sy_rpc_reply *reply = calloc(1, sizeof(*reply));

    if (!reply) {
        sy_error_set(SY_ENOMEM_HOST, "no memory for an answer");
        return NULL;
    }
    reply->answers = true;
    reply->fd = -1;
    msgpack_sbuffer_init(&reply->head);
    return reply;
}

void sy_rpc_reply_free(struct sy_rpc_reply *reply)
{
    if (!reply)
        return;
    sy_rpc_infer_free(reply->infer);
    if (reply->fd >= 0)
        close(reply->fd);
    msgpack_sbuffer_destroy(&reply->head);
    free(reply);
}

int sy_rpc_reply_write(void *ctx, const char *bytes, size_t n)
{
    struct sy_rpc_reply *reply = ctx;
    int failed = msgpack_sbuffer_write(&reply->head, bytes, n);

    reply->failed |= failed != 0;
    return failed;
}
