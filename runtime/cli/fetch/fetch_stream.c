#include "runtime/cli/fetch/fetch_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "loader/package/package.h"
#include "loader/package/package_header.h"
#include "runtime/base/assert.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"

#define BUFFER_BYTES (1ull << 20)

struct sy_fetch_stream {
    struct sy_fetch_stream_config config;
    struct sy_package *package; /* NULL: not begun */
    uint64_t total, weights_at; /* 0: the header has not come */
    int layer;                  /* the first that is not verified */
    XXH3_state_t *hash;         /* of what has come of it */
    uint64_t hashed, verified;  /* bytes of the file */
};

int sy_fetch_stream_create(const struct sy_fetch_stream_config *config,
                           struct sy_fetch_stream **out)
{
    struct sy_fetch_stream *stream = calloc(1, sizeof(*stream));

    SY_TRY_ALLOC(stream, "no memory to fetch");
    stream->config = *config;
    stream->hash = XXH3_createState();
    if (!stream->hash) {
        free(stream);
        return sy_error_set(SY_ENOMEM_HOST, "no memory to fetch");
    }
    *out = stream;
    return SY_OK;
}

void sy_fetch_stream_destroy(struct sy_fetch_stream *stream)
{
    if (!stream)
        return;
    XXH3_freeState(stream->hash);
    sy_package_close(stream->package);
    free(stream);
}

/* How long the file is, by its header; what else the header says is checked when the package is opened. */
static int read_header(struct sy_fetch_stream *stream, int fd)
{
    const char *path = stream->config.path;
    struct sy_package_header h;

    SY_TRY(sy_read_fully(fd, path, &h, sizeof(h), 0));
    if (memcmp(h.magic, SY_PACKAGE_MAGIC, sizeof(h.magic)) != 0)
        return sy_error_set(SY_ECORRUPT, "%s: header: this is not a Switchyard package", path);
    if (sy_package_header_hash(&h) != h.header_hash)
        return sy_error_set(SY_ECORRUPT, "%s: header: hash mismatch", path);
    if (h.weights_bytes > stream->config.max_bytes ||
        h.weights_offset > stream->config.max_bytes - h.weights_bytes)
        return sy_error_set(
            SY_EARG, "%s: its header says %llu and %llu bytes, more than %llu (--max-bytes)", path,
            (unsigned long long)h.weights_offset, (unsigned long long)h.weights_bytes,
            (unsigned long long)stream->config.max_bytes);
    stream->weights_at = h.weights_offset;
    stream->total = h.weights_offset + h.weights_bytes;
    return SY_OK;
}

static int begin(struct sy_fetch_stream *stream, int fd)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (own < 0 || ftruncate(fd, (off_t)stream->total)) {
        if (own >= 0)
            close(own);
        return sy_error_set(SY_EIO, "cannot make room for %llu bytes at %s: %s",
                            (unsigned long long)stream->total, stream->config.path,
                            strerror(errno));
    }
    SY_TRY(sy_package_open_file(stream->config.path, own, &stream->package));
    stream->hashed = stream->verified = stream->weights_at;
    XXH3_64bits_reset(stream->hash);
    stream->config.begun(stream->config.ctx, stream->total);
    return SY_OK;
}

static int end_layer(struct sy_fetch_stream *stream)
{
    const struct sy_package *package = stream->package;
    const struct sy_layer *layer = &package->layers[stream->layer];

    if (layer->bytes > 0 && XXH3_64bits_digest(stream->hash) != package->layer_hash[stream->layer])
        return sy_error_set(SY_ECORRUPT, "%s: weights of layer %d (%s): hash mismatch",
                            package->path, stream->layer, package->graph->nodes[layer->node].name);
    XXH3_64bits_reset(stream->hash);
    stream->verified += layer->bytes;
    stream->layer++;
    return SY_OK;
}

/* The bytes behind those hashed so far. */
static int hash_layers(struct sy_fetch_stream *stream, const char *bytes, uint64_t n)
{
    const struct sy_package *package = stream->package;
    uint64_t before = stream->verified;
    int status = SY_OK;

    while (status == SY_OK && stream->layer < package->n_layers) {
        uint64_t end = stream->verified + package->layers[stream->layer].bytes;
        uint64_t part = SY_MIN(end - stream->hashed, n);

        XXH3_64bits_update(stream->hash, bytes, part);
        stream->hashed += part;
        bytes += part;
        n -= part;
        if (stream->hashed < end)
            break;
        status = end_layer(stream);
    }
    if (stream->verified > before)
        stream->config.arrived(stream->config.ctx, stream->verified);
    return status;
}

int sy_fetch_stream_took(struct sy_fetch_stream *stream, int fd, uint64_t at, const void *bytes,
                         size_t n)
{
    uint64_t end = at + n, skip;

    if (stream->total == 0 && end >= SY_PACKAGE_ALIGN)
        SY_TRY(read_header(stream, fd));
    if (stream->total == 0)
        return SY_OK;
    if (end > stream->total)
        return sy_error_set(SY_ECORRUPT, "%s: more bytes come than the %llu that its header says",
                            stream->config.path, (unsigned long long)stream->total);
    if (!stream->package && end >= stream->weights_at)
        SY_TRY(begin(stream, fd));
    if (!stream->package)
        return SY_OK;
    skip = stream->hashed - at; /* of head */
    return hash_layers(stream, (const char *)bytes + skip, n - skip);
}

int sy_fetch_stream_take_over(struct sy_fetch_stream *stream, int fd, uint64_t n)
{
    char *buffer = malloc(BUFFER_BYTES);
    int status = buffer ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory to fetch");

    for (uint64_t at = 0; status == SY_OK && at < n; at += SY_MIN(BUFFER_BYTES, n - at)) {
        size_t part = (size_t)SY_MIN(BUFFER_BYTES, n - at);

        status = sy_read_fully(fd, stream->config.path, buffer, part, at);
        if (status == SY_OK)
            status = sy_fetch_stream_took(stream, fd, at, buffer, part);
    }
    free(buffer);
    return status;
}

static bool is_layer_right(const struct sy_package *package, int layer, uint64_t at, char *buffer)
{
    XXH3_state_t *hash = XXH3_createState();
    uint64_t left = package->layers[layer].bytes;
    int status = hash ? SY_OK : SY_ENOMEM_HOST;

    if (hash)
        XXH3_64bits_reset(hash);
    for (size_t part; status == SY_OK && left > 0; left -= part, at += part) {
        part = (size_t)SY_MIN(BUFFER_BYTES, left);
        status = sy_read_fully(package->fd, package->path, buffer, part, at);
        if (status == SY_OK)
            XXH3_64bits_update(hash, buffer, part);
    }
    bool right = status == SY_OK && (package->layers[layer].bytes == 0 ||
                                     XXH3_64bits_digest(hash) == package->layer_hash[layer]);
    XXH3_freeState(hash);
    return right;
}

uint64_t sy_fetch_stream_count(const char *path, int fd, uint64_t n)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    char *buffer = malloc(BUFFER_BYTES);
    struct sy_package *package = NULL;
    uint64_t at = 0;

    if (own >= 0 && sy_package_open_file(path, own, &package) == SY_OK && buffer &&
        package->weights_offset <= n) {
        at = package->weights_offset;
        for (int i = 0; i < package->n_layers && package->layers[i].bytes <= n - at &&
                        is_layer_right(package, i, at, buffer);
             i++)
            at += package->layers[i].bytes;
    }
    sy_package_close(package);
    free(buffer);
    return at;
}

int sy_fetch_stream_check_whole(const struct sy_fetch_stream *stream, const char *url,
                                uint64_t bytes)
{
    if (stream->package && stream->verified == stream->total)
        return SY_OK;
    if (stream->total == 0)
        return sy_error_set(SY_EIO,
                            "%s: it ends after %llu bytes: this is not a Switchyard package", url,
                            (unsigned long long)bytes);
    return sy_error_set(SY_EIO, "%s: it ends after %llu bytes, and its package has %llu", url,
                        (unsigned long long)bytes, (unsigned long long)stream->total);
}

void sy_fetch_stream_rewind(struct sy_fetch_stream *stream)
{
    if (!stream->package)
        stream->total = stream->weights_at = 0;
    stream->hashed = stream->verified;
    XXH3_64bits_reset(stream->hash);
}

bool sy_fetch_stream_has_begun(const struct sy_fetch_stream *stream)
{
    return stream->package != NULL;
}

uint64_t sy_fetch_stream_verified(const struct sy_fetch_stream *stream)
{
    return stream->verified;
}
