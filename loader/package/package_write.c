#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "loader/graph/graph_bind.h"
#include "loader/package/package_header.h"
#include "loader/package/package_meta.h"
#include "runtime/base/assert.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"

/* The meta section is written behind the weights' hashes are known, in front of them in the file: room is kept for it.
 * Hashes are encoded as UINT64_MAX while the room is measured (the longest number), and a profile of the longest numbers is
 * counted in, so that setting one later does not move the weights. */
#define NUMBER_BYTES 9u

/* `bound`: the package's graph with its usual sizes, for which layouts are chosen. */
static int layout_layers(struct sy_package *package, const struct sy_graph *bound,
                         const struct sy_engine_ops *engine)
{
    int n = package->graph->n_nodes;
    uint64_t offset = 0;
    if (n < 1)
        return sy_error_set(SY_EARG, "model %s has no nodes", package->name);
    package->layers = calloc((size_t)n, sizeof *package->layers);
    package->layer_hash = calloc((size_t)n, sizeof *package->layer_hash);
    SY_TRY_ALLOC(package->layers && package->layer_hash, "no memory for %d layers", n);
    for (int i = 0; i < n; i++) {
        struct sy_layer *layer = &package->layers[i];
        layer->node = i;
        package->n_layers++;
        SY_TRY(engine->layout_layer(bound, layer));
        layer->bytes = SY_ALIGN_UP(layer->bytes, SY_LAYER_ALIGN);
        layer->offset_bytes = offset;
        offset += layer->bytes;
        package->layer_hash[i] = UINT64_MAX;
    }
    package->weights_bytes = offset;
    return SY_OK;
}

/* Decodes what was encoded: a package that the reader would reject must not replace a readable one. */
static int check_readable(const struct sy_package *package, const void *meta, size_t bytes)
{
    struct sy_package *again = calloc(1, sizeof *again);
    SY_TRY_ALLOC(again, "no memory to check package %s", package->name);
    again->fd = -1;
    int status = sy_package_meta_decode(meta, bytes, again);
    sy_package_close(again);
    return status < 0
               ? sy_error_prefix(SY_EARG, "package %.200s could not be read again", package->name)
               : SY_OK;
}

static int measure_meta(const struct sy_package *package, uint64_t *weights_offset)
{
    void *meta = NULL;
    size_t bytes = 0;
    SY_TRY(sy_package_meta_encode(package, &meta, &bytes));
    int status = check_readable(package, meta, bytes);
    free(meta);
    SY_TRY(status);
    bytes += (size_t)package->n_layers * SY_PROFILE_BATCHES * NUMBER_BYTES + 64;
    *weights_offset = SY_ALIGN_UP(SY_PACKAGE_ALIGN + bytes, SY_PACKAGE_ALIGN);
    return SY_OK;
}

static int write_layer(struct sy_package *package, const struct sy_graph *bound, int i,
                       const struct sy_engine_ops *engine, void *buffer,
                       struct sy_durable_file *file)
{
    struct sy_layer *layer = &package->layers[i];
    memset(buffer, 0, layer->bytes);
    SY_TRY(engine->pack_layer(bound, layer, buffer));
    package->layer_hash[i] = XXH3_64bits(buffer, layer->bytes);
    return sy_write_fully(file->fd, file->path, buffer, layer->bytes,
                          package->weights_offset + layer->offset_bytes);
}

static int write_weights(struct sy_package *package, const struct sy_graph *bound,
                         const struct sy_engine_ops *engine, struct sy_durable_file *file,
                         void (*progress)(void *ctx, uint64_t done, uint64_t total), void *ctx)
{
    uint64_t largest = SY_LAYER_ALIGN;
    void *buffer = NULL;
    int status = SY_OK;
    for (int i = 0; i < package->n_layers; i++)
        largest = SY_MAX(largest, package->layers[i].bytes);
    if (posix_memalign(&buffer, SY_LAYER_ALIGN, largest) != 0)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a layer of %llu bytes",
                            (unsigned long long)largest);
    for (int i = 0; i < package->n_layers && status == SY_OK; i++) {
        const struct sy_layer *layer = &package->layers[i];
        if (layer->bytes == 0) {
            package->layer_hash[i] = XXH3_64bits(NULL, 0);
            continue;
        }
        status = write_layer(package, bound, i, engine, buffer, file);
        if (progress)
            progress(ctx, layer->offset_bytes + layer->bytes, package->weights_bytes);
    }
    free(buffer);
    return status;
}

/* Header, meta and the zeroes up to the weights. The file's length is set too: a last layer without bytes writes nothing. */
static int write_front(const struct sy_package *package, struct sy_durable_file *file)
{
    void *meta = NULL;
    size_t meta_bytes = 0;
    SY_TRY(sy_package_meta_encode(package, &meta, &meta_bytes));
    assert(SY_PACKAGE_ALIGN + meta_bytes <= package->weights_offset);
    struct sy_package_header header = {
        .version = SY_PACKAGE_VERSION,
        .meta_bytes = meta_bytes,
        .meta_hash = XXH3_64bits(meta, meta_bytes),
        .weights_offset = package->weights_offset,
        .weights_bytes = package->weights_bytes,
    };
    memcpy(header.magic, SY_PACKAGE_MAGIC, sizeof header.magic);
    header.header_hash = sy_package_header_hash(&header);
    int status = sy_write_fully(file->fd, file->path, &header, sizeof header, 0);
    if (status == SY_OK)
        status = sy_write_fully(file->fd, file->path, meta, meta_bytes, SY_PACKAGE_ALIGN);
    free(meta);
    if (status == SY_OK &&
        ftruncate(file->fd, (off_t)(package->weights_offset + package->weights_bytes)) != 0)
        status =
            sy_error_set(SY_EIO, "cannot set the length of %s: %s", file->path, strerror(errno));
    return status;
}

static void release_layers(struct sy_package *package)
{
    for (int i = 0; i < package->n_layers; i++) {
        for (int p = 0; p < package->layers[i].n_params; p++)
            free(package->layers[i].params[p].layout);
        free(package->layers[i].params);
    }
    free(package->layers);
    free(package->layer_hash);
}

int sy_package_write(const char *path, const char *name, const struct sy_graph *graph,
                     const struct sy_engine_ops *engine,
                     void (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes),
                     void *ctx)
{
    char packed_for[256];
    struct sy_durable_file file = {.fd = -1};
    struct sy_package package = {
        .name = (char *)name, .packed_for = packed_for, .graph = (struct sy_graph *)graph};
    struct sy_graph *bound = NULL;
    struct sy_sizes sizes;
    sy_graph_usual_sizes(graph, &sizes);
    int status = sy_package_packed_for(engine, graph->precision, packed_for, sizeof packed_for);
    if (status == SY_OK)
        status = sy_graph_bind(graph, &sizes, &bound);
    if (status == SY_OK)
        status = layout_layers(&package, bound, engine);
    if (status == SY_OK)
        status = measure_meta(&package, &package.weights_offset);
    if (status == SY_OK)
        status = sy_durable_file_create(path, &file);
    if (status == SY_OK)
        status = write_weights(&package, bound, engine, &file, progress, ctx);
    if (status == SY_OK)
        status = write_front(&package, &file);
    if (status == SY_OK)
        status = sy_durable_file_commit(&file);
    sy_durable_file_discard(&file);
    sy_graph_free(bound);
    release_layers(&package);
    return status;
}

#define COPY_BYTES (1u << 20)

/* Through memory: where the kernel cannot copy (another file system behind a symbolic link, an old one). */
static int copy_by_hand(int from, const char *path, uint64_t from_offset, uint64_t to_offset,
                        uint64_t bytes, struct sy_durable_file *file)
{
    int status = SY_OK;
    void *buffer = malloc(COPY_BYTES);
    SY_TRY_ALLOC(buffer, "no memory to copy the weights of %s", path);
    for (uint64_t done = 0; done < bytes && status == SY_OK; done += COPY_BYTES) {
        size_t n = (size_t)SY_MIN(bytes - done, (uint64_t)COPY_BYTES);
        status = sy_read_fully(from, path, buffer, n, from_offset + done);
        if (status == SY_OK)
            status = sy_write_fully(file->fd, file->path, buffer, n, to_offset + done);
    }
    free(buffer);
    return status;
}

static int copy_weights(const struct sy_package *from, uint64_t to_offset,
                        struct sy_durable_file *file)
{
    loff_t in = (loff_t)from->weights_offset, out = (loff_t)to_offset;
    uint64_t left = from->weights_bytes;
    int fd = open(from->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return sy_error_set(SY_EIO, "cannot open %s: %s", from->path, strerror(errno));
    while (left > 0) {
        ssize_t n = copy_file_range(fd, &in, file->fd, &out, left, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        left -= (uint64_t)n;
    }
    /* Whatever failed: reading and writing instead either succeeds or reports the error. */
    int status =
        left == 0 ? SY_OK : copy_by_hand(fd, from->path, (uint64_t)in, (uint64_t)out, left, file);
    close(fd);
    return status;
}

int sy_package_set_profile(const char *path, const struct sy_profile *profile)
{
    struct sy_package *package = NULL;
    struct sy_durable_file file = {.fd = -1};
    SY_TRY(sy_package_open(path, &package));
    struct sy_package changed = *package;
    changed.profile = *profile;
    int status = measure_meta(&changed, &changed.weights_offset);
    changed.weights_offset = SY_MAX(changed.weights_offset, package->weights_offset);
    if (status == SY_OK)
        status = sy_durable_file_create(path, &file);
    if (status == SY_OK)
        status = copy_weights(package, changed.weights_offset, &file);
    if (status == SY_OK)
        status = write_front(&changed, &file);
    if (status == SY_OK)
        status = sy_durable_file_commit(&file);
    sy_durable_file_discard(&file);
    sy_package_close(package);
    return status;
}
