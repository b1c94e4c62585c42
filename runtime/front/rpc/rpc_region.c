#include "runtime/front/rpc/rpc_region.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/shared_memory.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/rpc/rpc_internal.h"

/* `wanted` more bytes, or one more region, within the limits of the connection and of all. */
static int check_limits(const struct sy_rpc_connection *connection, uint64_t wanted)
{
    const struct sy_rpc_limits *limits = &connection->server->limits;
    uint64_t all = connection->server->region_bytes;

    if (wanted == 0)
        return sy_error_set(SY_EARG, "a region of 0 bytes; ask for 1 or more");
    if (connection->n_regions >= limits->max_regions)
        return sy_error_set(SY_EBUSY,
                            "this connection has %d regions of shared memory, as many as are "
                            "allowed; drop one first (region_drop)",
                            connection->n_regions);
    if (wanted > limits->region_bytes || connection->region_bytes > limits->region_bytes - wanted)
        return sy_error_set(wanted > limits->region_bytes ? SY_ETOOBIG : SY_EBUSY,
                            "%" PRIu64 " bytes of shared memory: this connection has %" PRIu64
                            " of at most %" PRIu64 "; drop regions first, or send the tensors in "
                            "the message",
                            wanted, connection->region_bytes, limits->region_bytes);
    if (wanted > limits->all_region_bytes || all > limits->all_region_bytes - wanted)
        return sy_error_set(SY_EBUSY,
                            "%" PRIu64 " bytes of shared memory: all clients together have "
                            "%" PRIu64 " of at most %" PRIu64 "; try again later",
                            wanted, all, limits->all_region_bytes);
    return SY_OK;
}

/* A file of exactly `bytes` for good: neither side can take memory away from under the other. */
static int make_file(uint64_t bytes)
{
    int fd = sy_shared_memory_file("switchyard-region", bytes);

    SY_TRY(fd);
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0)
        return fd;
    int error = errno;
    close(fd);
    return sy_error_set(SY_ENOMEM_HOST, "cannot seal %" PRIu64 " bytes of shared memory: %s", bytes,
                        strerror(error));
}

static int add_to_core(const struct sy_rpc_connection *connection, int fd, uint64_t bytes,
                       uint64_t *out_id)
{
    const struct sy_front *front = connection->server->front;

    if (!front->handlers->region_add)
        return sy_error_set(SY_EUNSUPPORTED, "this server shares no memory with clients");
    return front->handlers->region_add(front->core, fd, 0, bytes, true, out_id);
}

static void link_region(struct sy_rpc_connection *connection, struct sy_rpc_region *region)
{
    region->connection = connection;
    region->refs = 1;
    region->next = connection->regions;
    connection->regions = region;
    connection->n_regions++;
    connection->region_bytes += region->bytes;
    connection->server->region_bytes += region->bytes;
}

int sy_rpc_region_create(struct sy_rpc_connection *connection, uint64_t bytes,
                         struct sy_rpc_region **out, int *out_fd)
{
    struct sy_rpc_region *region;
    int status;

    if (!connection->is_local)
        return sy_error_set(SY_EUNSUPPORTED,
                            "shared memory needs the Unix socket; over TCP send the tensors in the "
                            "message");
    SY_TRY(check_limits(connection, bytes));
    region = calloc(1, sizeof *region);
    SY_TRY_ALLOC(region, "no memory for a region");
    region->bytes = bytes;
    SY_TRY_GOTO(*out_fd = make_file(bytes), free_region);
    SY_TRY_GOTO(add_to_core(connection, *out_fd, bytes, &region->id), close_file);
    link_region(connection, region);
    *out = region;
    return SY_OK;
close_file:
    close(*out_fd);
free_region:
    free(region);
    return status;
}

struct sy_rpc_region *sy_rpc_region_find(const struct sy_rpc_connection *connection, uint64_t id)
{
    struct sy_rpc_region *region = connection->regions;

    while (region && region->id != id)
        region = region->next;
    return region;
}

struct sy_rpc_region *sy_rpc_region_hold(struct sy_rpc_region *region)
{
    region->refs++;
    return region;
}

void sy_rpc_region_release(struct sy_rpc_region *region)
{
    struct sy_rpc_connection *connection = region->connection;
    const struct sy_front *front = connection->server->front;

    if (--region->refs > 0)
        return;
    front->handlers->region_drop(front->core, region->id);
    connection->n_regions--;
    connection->region_bytes -= region->bytes;
    connection->server->region_bytes -= region->bytes;
    free(region);
}

void sy_rpc_region_drop(struct sy_rpc_region *region)
{
    struct sy_rpc_region **at = &region->connection->regions;

    while (*at != region)
        at = &(*at)->next;
    *at = region->next;
    sy_rpc_region_release(region);
}

void sy_rpc_region_drop_all(struct sy_rpc_connection *connection)
{
    while (connection->regions)
        sy_rpc_region_drop(connection->regions);
}
