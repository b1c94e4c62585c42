#include "runtime/front/rpc/rpc_long.h"

#include <string.h>

#include "allocator/slab.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/rpc/rpc_internal.h"
#include "runtime/net/low_water.h"

#define BIN32      0xc6u
#define EXT8       0xc7u
#define HEAD_BYTES 5u /* heads of a bin32, and of an ext8 with two bytes */
#define EXT_TYPE   0x53
#define FAST_BYTES (32u << 10) /* in one turn: a link of 1 Gbit/s brings less */

static struct sy_slab *slab_of(const struct sy_rpc_connection *connection)
{
    struct sy_front *front = connection->server->front;

    return front->handlers->slab(front->core);
}

/* Bytes of long tensors that this caller has announced but not sent, over all of its connections. Callers without a token count as one. */
static uint64_t on_its_way(const struct sy_rpc_connection *connection)
{
    uint64_t bytes = 0;

    const struct sy_rpc_connection *c;
    LIST_FOREACH (c, &connection->server->connections, link) {
        bool same = strcmp(c->grant.name, connection->grant.name) == 0 &&
                    strcmp(c->grant.tenant, connection->grant.tenant) == 0;
        for (int i = 0; same && c->longs.left > 0 && i < c->longs.n; i++)
            bytes += c->longs.of[i].bytes;
    }
    return bytes;
}

/* L1. */
static bool may_announce(const struct sy_rpc_connection *connection, uint64_t bytes)
{
    const struct sy_rpc_server *server = connection->server;
    struct sy_slab *slab = slab_of(connection);
    uint64_t most = sy_slab_size(slab) / 2;

    return (connection->grant.rights & SY_RIGHT_INFER) && connection->longs.n < SY_RPC_MAX_LONGS &&
           bytes <= most && sy_slab_used_bytes(slab) <= most - bytes &&
           on_its_way(connection) + bytes <= most / 2 &&
           server->buffered_bytes + bytes <= server->limits.buffered_bytes;
}

static void write_reference(unsigned char *head, int index)
{
    head[0] = EXT8;
    head[1] = 2;
    head[2] = EXT_TYPE;
    head[3] = (unsigned char)(index >> 8);
    head[4] = (unsigned char)index;
}

void sy_rpc_long_begin(struct sy_rpc_connection *connection)
{
    struct sy_msgpack_scan *scan = &connection->scan;
    struct sy_rpc_longs *longs = &connection->longs;
    struct sy_rpc_long *one = &longs->of[SY_MIN(longs->n, SY_RPC_MAX_LONGS - 1)];
    uint64_t data_at = scan->leaf_at + HEAD_BYTES, bytes = scan->at - data_at;

    if (scan->at < connection->used + SY_RPC_LONG_BYTES / 2 || data_at > connection->used ||
        connection->buffer[scan->leaf_at] != BIN32 || bytes < SY_RPC_LONG_BYTES ||
        !may_announce(connection, bytes))
        return;
    if (sy_slab_alloc(slab_of(connection), bytes, &one->offset) < 0)
        return; /* it is buffered, and the request is told when it wants the room */
    one->bytes = bytes;
    one->held = true;
    uint64_t came = connection->used - data_at;

    memcpy(sy_rpc_long_data(connection, one), connection->buffer + data_at, came);
    write_reference(connection->buffer + scan->leaf_at, longs->n++);
    longs->left = bytes - came;
    connection->server->buffered_bytes += bytes;
    connection->used = scan->at = data_at;
    scan->max_bytes -= bytes;
}

void *sy_rpc_long_next(const struct sy_rpc_connection *connection, uint64_t *room)
{
    const struct sy_rpc_longs *longs = &connection->longs;

    if (longs->left == 0)
        return NULL;
    const struct sy_rpc_long *one = &longs->of[longs->n - 1];

    *room = longs->left;
    return (char *)sy_rpc_long_data(connection, one) + (one->bytes - longs->left);
}

void sy_rpc_long_filled(struct sy_rpc_connection *connection, uint64_t n)
{
    assert(n <= connection->longs.left);
    connection->longs.left -= n;
}

void sy_rpc_long_after_turn(struct sy_rpc_connection *connection, uint64_t moved_bytes)
{
    uint64_t left = moved_bytes >= FAST_BYTES ? connection->longs.left : 0;

    if (connection->fd >= 0 && !connection->is_local && !connection->tls)
        sy_net_set_low_water(connection->fd, &connection->low_water, left);
}

struct sy_rpc_long *sy_rpc_long_find(struct sy_rpc_connection *connection,
                                     const msgpack_object *data)
{
    struct sy_rpc_longs *longs = &connection->longs;

    if (!data || data->type != MSGPACK_OBJECT_EXT || data->via.ext.type != EXT_TYPE ||
        data->via.ext.size != 2)
        return NULL;
    int index = (unsigned char)data->via.ext.ptr[0] << 8 | (unsigned char)data->via.ext.ptr[1];

    return index < longs->n && longs->of[index].held ? &longs->of[index] : NULL; /* L2 */
}

void sy_rpc_long_drop(struct sy_rpc_connection *connection)
{
    struct sy_rpc_longs *longs = &connection->longs;

    for (int i = 0; i < longs->n; i++) {
        if (longs->of[i].held)
            sy_slab_release(slab_of(connection), longs->of[i].offset);
        connection->server->buffered_bytes -= longs->of[i].bytes;
    }
    longs->n = 0;
    longs->left = 0;
}

void *sy_rpc_long_data(const struct sy_rpc_connection *connection, const struct sy_rpc_long *one)
{
    return sy_slab_pointer(slab_of(connection), one->offset);
}
