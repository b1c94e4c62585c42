#include "loader/package/package.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "loader/graph/graph_bind.h"
#include "loader/package/package_header.h"
#include "loader/package/package_meta.h"
#include "runtime/base/assert.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"

#define MAX_META_BYTES    (1ull << 30)
#define MAX_WEIGHTS_BYTES (1ull << 51)
/* hours; an untrusted profile may hold any number, and sums must not overflow */
#define MAX_LAYER_NS 10000000000000ull

/* Names the section in which the file was truncated. */
static int check_length(const char *path, const struct sy_package_header *h, uint64_t file_bytes)
{
    uint64_t wanted = h->weights_offset + h->weights_bytes;
    if (file_bytes == wanted)
        return SY_OK;
    const char *section = file_bytes < SY_PACKAGE_ALIGN + h->meta_bytes ? "meta"
                          : file_bytes < h->weights_offset              ? "padding"
                                                                        : "weights";
    return sy_error_set(SY_ECORRUPT, "%s: %s: the file has %llu bytes, %llu are expected", path,
                        section, (unsigned long long)file_bytes, (unsigned long long)wanted);
}

static int check_header(const char *path, const struct sy_package_header *h, uint64_t file_bytes)
{
    if (memcmp(h->magic, SY_PACKAGE_MAGIC, sizeof h->magic) != 0)
        return sy_error_set(SY_ECORRUPT, "%s: header: this is not a Switchyard package", path);
    if (sy_package_header_hash(h) != h->header_hash)
        return sy_error_set(SY_ECORRUPT, "%s: header: hash mismatch", path);
    if (h->version != SY_PACKAGE_VERSION)
        return sy_error_set(SY_EUNSUPPORTED,
                            "%s: version %u, this program reads %u: import the model again", path,
                            h->version, SY_PACKAGE_VERSION);
    if (h->meta_bytes > MAX_META_BYTES || h->weights_offset < SY_PACKAGE_ALIGN + h->meta_bytes ||
        h->weights_offset > 2 * MAX_META_BYTES || h->weights_bytes > MAX_WEIGHTS_BYTES ||
        h->weights_offset % SY_PACKAGE_ALIGN || h->weights_bytes % SY_PACKAGE_ALIGN)
        return sy_error_set(SY_ECORRUPT, "%s: header: sections do not fit together", path);
    return check_length(path, h, file_bytes);
}

static int check_padding(const char *path, const unsigned char *bytes, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (bytes[i] != 0)
            return sy_error_set(SY_ECORRUPT,
                                "%s: padding: byte %llu behind the meta section is not zero", path,
                                (unsigned long long)i);
    return SY_OK;
}

static int read_meta(int fd, const struct sy_package_header *h, struct sy_package *package)
{
    uint64_t room = h->weights_offset - SY_PACKAGE_ALIGN;
    unsigned char *meta = malloc(room ? room : 1);
    SY_TRY_ALLOC(meta, "no memory for the %llu bytes of meta of %s", (unsigned long long)room,
                 package->path);
    int status = sy_read_fully(fd, package->path, meta, room, SY_PACKAGE_ALIGN);
    if (status == SY_OK && XXH3_64bits(meta, h->meta_bytes) != h->meta_hash)
        status = sy_error_set(SY_ECORRUPT, "%s: meta: hash mismatch", package->path);
    if (status == SY_OK)
        status = check_padding(package->path, meta + h->meta_bytes, room - h->meta_bytes);
    if (status == SY_OK) {
        status = sy_package_meta_decode(meta, h->meta_bytes, package);
        if (status < 0)
            sy_error_prefix(status, "%s", package->path);
    }
    if (status == SY_OK && package->weights_bytes != h->weights_bytes)
        status = sy_error_set(SY_ECORRUPT, "%s: meta: its layers have %llu bytes, the weights %llu",
                              package->path, (unsigned long long)package->weights_bytes,
                              (unsigned long long)h->weights_bytes);
    free(meta);
    return status;
}

static int read_all(int fd, struct sy_package *package)
{
    struct sy_package_header header;
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return sy_error_set(SY_EARG, "%s is not a file", package->path);
    if ((uint64_t)st.st_size < sizeof header)
        return sy_error_set(SY_ECORRUPT, "%s: header: the file has %llu bytes, a header %zu",
                            package->path, (unsigned long long)st.st_size, sizeof header);
    SY_TRY(sy_read_fully(fd, package->path, &header, sizeof header, 0));
    SY_TRY(check_header(package->path, &header, (uint64_t)st.st_size));
    package->weights_offset = header.weights_offset;
    package->content_hash = header.header_hash;
    return read_meta(fd, &header, package);
}

static int bind_usual(struct sy_package *package)
{
    struct sy_sizes sizes;
    package->usual = package->graph;
    if (package->graph->n_symbols == 0)
        return SY_OK;
    package->usual = NULL;
    sy_graph_usual_sizes(package->graph, &sizes);
    int status = sy_graph_bind(package->graph, &sizes, &package->usual);
    return status < 0 ? sy_error_set(SY_ECORRUPT, "%s: meta: %s", package->path, sy_error_text())
                      : SY_OK;
}

int sy_package_open(const char *path, struct sy_package **out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */
    if (fd < 0)
        return sy_error_set(errno == ENOENT ? SY_ENOTFOUND : SY_EIO, "cannot open %s: %s", path,
                            strerror(errno));
    return sy_package_open_file(path, fd, out);
}

int sy_package_open_file(const char *path, int fd, struct sy_package **out)
{
    struct sy_package *package = calloc(1, sizeof *package);
    char *name = strdup(path);
    if (!package || !name) {
        free(package);
        free(name);
        close(fd);
        return sy_error_set(SY_ENOMEM_HOST, "no memory to open %s", path);
    }
    package->path = name;
    package->fd = fd;
    int status = read_all(fd, package);
    if (status == SY_OK)
        status = bind_usual(package);
    if (status < 0) {
        sy_package_close(package);
        return status;
    }
    *out = package;
    return SY_OK;
}

void sy_package_close(struct sy_package *package)
{
    if (!package)
        return;
    for (int i = 0; i < package->n_layers; i++) {
        for (int p = 0; p < package->layers[i].n_params; p++)
            free(package->layers[i].params[p].layout);
        free(package->layers[i].params);
    }
    for (int b = 0; b < SY_PROFILE_BATCHES; b++)
        free(package->profile.layer_ns[b]);
    sy_arrival_release(package->arrival);
    free(package->profile.choices);
    free(package->profile.solo_batches);
    free(package->layers);
    free(package->layer_hash);
    if (package->usual != package->graph)
        sy_graph_free(package->usual);
    sy_graph_free(package->graph);
    free(package->packed_for);
    free(package->name);
    free(package->path);
    if (package->fd >= 0)
        close(package->fd);
    free(package);
}

int sy_package_verify(const struct sy_package *package, int first, int n, const void *weights)
{
    const unsigned char *at = weights;
    for (int i = first; i < first + n; i++) {
        const struct sy_layer *layer = &package->layers[i];
        if (layer->bytes == 0)
            continue;
        if (XXH3_64bits(at, layer->bytes) != package->layer_hash[i])
            return sy_error_set(SY_ECORRUPT, "%s: weights of layer %d (%s): hash mismatch",
                                package->path, i, package->graph->nodes[layer->node].name);
        at += layer->bytes;
    }
    return SY_OK;
}

int sy_package_packed_for(const struct sy_engine_ops *engine, enum sy_precision precision,
                          char *buffer, size_t bytes)
{
    if (precision != SY_PRECISION_F32 && !engine->check_precision)
        return sy_error_set(SY_EUNSUPPORTED, "the %s engine computes in f32 only, not in %s",
                            engine->name, sy_precision_name(precision));
    if (precision != SY_PRECISION_F32)
        SY_TRY(engine->check_precision(precision));
    SY_TRY(engine->describe(buffer, bytes));
    size_t used = strlen(buffer);
    if (precision != SY_PRECISION_F32)
        snprintf(buffer + used, bytes - used, " %s", sy_precision_name(precision));
    return SY_OK;
}

int sy_package_check_engine(const struct sy_package *package, const struct sy_engine_ops *engine)
{
    char here[256];
    int status = sy_package_packed_for(engine, package->graph->precision, here, sizeof here);
    if (status < 0)
        return sy_error_prefix(status, "%s", package->path);
    if (strcmp(here, package->packed_for) != 0)
        return sy_error_set(SY_EUNSUPPORTED,
                            "%s: packed for \"%s\", this machine computes with \"%s\": import the "
                            "model again",
                            package->path, package->packed_for, here);
    return SY_OK;
}

uint64_t sy_package_layer_ns(const struct sy_package *package, int layer, int64_t batch)
{
    const struct sy_profile *p = &package->profile;
    if (!p->layer_ns[0])
        return 0;
    double low = (double)p->layer_ns[0][layer];
    if (!p->layer_ns[1] || p->batch[1] == p->batch[0])
        return SY_MIN(p->layer_ns[0][layer], MAX_LAYER_NS);
    double high = (double)p->layer_ns[1][layer];
    double share = (double)(batch - p->batch[0]) / (double)(p->batch[1] - p->batch[0]);
    double ns = low + (high - low) * share;
    if (ns < 1)
        return low > 0 || high > 0;
    return ns < (double)MAX_LAYER_NS ? (uint64_t)ns : MAX_LAYER_NS;
}
