/* Long tensors of an answer: received straight into the memory that the result keeps. As runtime/front/rpc/rpc_long.h does for requests: the bin in the
 * client's buffer becomes an ext of as many bytes as its head had. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/msgpack_scan.h"
#include "runtime/base/status.h"
#include "runtime/client/client_block.h"
#include "runtime/client/client_internal.h"

#define LONG_BYTES (256u << 10)
#define BIN32      0xc6u
#define EXT8       0xc7u
#define HEAD_BYTES 5u
#define EXT_TYPE   0x53

int sy_client_long_begin(sy_client *client, struct sy_msgpack_scan *scan, unsigned char **to,
                         uint64_t *room)
{
    struct sy_client_long *one = &client->longs[SY_MIN(client->n_longs, SY_CLIENT_MAX_LONGS - 1)];
    uint64_t data_at = scan->leaf_at + HEAD_BYTES;
    unsigned char *head = client->buffer + scan->leaf_at;

    *room = 0;
    if (scan->at < client->used + LONG_BYTES / 2 || data_at > client->used || *head != BIN32 ||
        client->n_longs == SY_CLIENT_MAX_LONGS)
        return SY_OK;
    uint64_t came = client->used - data_at;

    one->bytes = scan->at - data_at;
    SY_TRY(sy_client_block_take(one->bytes, &one->data));
    memcpy(one->data, client->buffer + data_at, came);
    memcpy(head, (unsigned char[]){EXT8, 2, EXT_TYPE, 0, (unsigned char)client->n_longs++},
           HEAD_BYTES);
    *to = (unsigned char *)one->data + came;
    *room = one->bytes - came;
    client->used = scan->at = data_at;
    scan->max_bytes -= one->bytes;
    return SY_OK;
}

void *sy_client_long_take(sy_client *client, const msgpack_object *data, size_t *bytes)
{
    if (!data || data->type != MSGPACK_OBJECT_EXT || data->via.ext.type != EXT_TYPE ||
        data->via.ext.size != 2)
        return NULL;
    int index = (unsigned char)data->via.ext.ptr[1];
    if (data->via.ext.ptr[0] != 0 || index >= client->n_longs)
        return NULL;
    void *taken = client->longs[index].data;

    *bytes = client->longs[index].bytes;
    client->longs[index].data = NULL;
    return taken;
}

void sy_client_long_drop(sy_client *client)
{
    for (int i = 0; i < client->n_longs; i++)
        sy_client_block_give(client->longs[i].data, client->longs[i].bytes);
    client->n_longs = 0;
}
