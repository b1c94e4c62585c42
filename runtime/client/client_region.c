/* Memory that the server shares with a client: mapped here, named by its number in requests. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/client/client_internal.h"

/* A call with one number as its parameter. */
static int ask_number(sy_client *client, const char *method, const char *key, uint64_t value,
                      msgpack_unpacked *unpacked, const msgpack_object **result)
{
    msgpack_sbuffer buffer;
    msgpack_packer packer;
    struct iovec part;
    int status;

    msgpack_sbuffer_init(&buffer);
    msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
    sy_client_pack_request(client, &packer, method);
    msgpack_pack_array(&packer, 1);
    msgpack_pack_map(&packer, 1);
    sy_client_pack_text(&packer, key);
    msgpack_pack_uint64(&packer, value);
    part = (struct iovec){buffer.data, buffer.size};
    status = sy_client_ask(client, &part, 1, unpacked, result);
    msgpack_sbuffer_destroy(&buffer);
    return status;
}

static int map_region(sy_client_region *region, int fd)
{
    struct stat file;
    void *data;

    if (fd < 0)
        return sy_error_set(SY_EPROTO, "the server passed no memory");
    if (fstat(fd, &file) != 0 || file.st_size < 0 || (uint64_t)file.st_size < region->bytes)
        return sy_error_set(SY_EPROTO, "the server passed memory that is too small");
    data = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return sy_error_set(SY_ENOMEM_HOST, "cannot map %zu bytes of shared memory: %s",
                            region->bytes, strerror(errno));
    (void)madvise(data, region->bytes, MADV_HUGEPAGE); /* best effort */
    region->data = data;
    return SY_OK;
}

static int create(sy_client *client, sy_client_region *region)
{
    const msgpack_object *result = NULL, *id;
    msgpack_unpacked unpacked;
    int status;

    msgpack_unpacked_init(&unpacked);
    client->expects_fd = true;
    status = ask_number(client, "region_create", "bytes", region->bytes, &unpacked, &result);
    client->expects_fd = false;
    if (status == SY_OK) {
        id = sy_client_get(result, "region");
        region->id = id && id->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? id->via.u64 : 0;
        status = map_region(region, client->received_fd);
    }
    if (client->received_fd >= 0)
        close(client->received_fd);
    client->received_fd = -1;
    msgpack_unpacked_destroy(&unpacked);
    return status;
}

int sy_client_region_create(sy_client *client, size_t bytes, sy_client_region **out)
{
    sy_client_region *region = calloc(1, sizeof *region);
    int status;

    *out = NULL;
    if (!region)
        return sy_client_fail(client, sy_error_set(SY_ENOMEM_HOST, "no memory for a region"));
    region->bytes = bytes;
    status = create(client, region);
    if (status == SY_OK) {
        region->client = client;
        region->next = client->regions;
        client->regions = region;
        *out = region;
    } else {
        free(region);
    }
    return sy_client_finish(client, status);
}

static void unlink_region(sy_client_region *region)
{
    sy_client_region **at = &region->client->regions;

    while (*at != region)
        at = &(*at)->next;
    *at = region->next;
}

void sy_client_region_destroy(sy_client_region *region)
{
    const msgpack_object *result;
    msgpack_unpacked unpacked;

    if (!region)
        return;
    if (region->client) {
        sy_client *client = region->client;

        unlink_region(region);
        msgpack_unpacked_init(&unpacked);
        (void)sy_client_finish(client, ask_number(client, "region_drop", "region", region->id,
                                                  &unpacked, &result)); /* gone with the server */
        msgpack_unpacked_destroy(&unpacked);
    }
    munmap(region->data, region->bytes);
    free(region);
}

void *sy_client_region_data(const sy_client_region *region)
{
    return region->data;
}

size_t sy_client_region_bytes(const sy_client_region *region)
{
    return region->bytes;
}

const sy_client_region *sy_client_region_of(const sy_client *client, const void *data, size_t bytes)
{
    uintptr_t at = (uintptr_t)data;

    if (at % SWITCHYARD_REGION_ALIGN != 0 || bytes == 0)
        return NULL;
    for (const sy_client_region *region = client->regions; region; region = region->next) {
        uintptr_t from = (uintptr_t)region->data;

        if (at >= from && at - from < region->bytes && bytes <= region->bytes - (at - from))
            return region;
    }
    return NULL;
}

const sy_client_region *sy_client_region_find(const sy_client *client, uint64_t id, uint64_t offset,
                                              uint64_t bytes)
{
    const sy_client_region *region = client->regions;

    while (region && region->id != id)
        region = region->next;
    return region && offset <= region->bytes && bytes <= region->bytes - offset ? region : NULL;
}

void sy_client_region_orphan_all(sy_client *client)
{
    for (sy_client_region *region = client->regions; region; region = region->next)
        region->client = NULL;
}
