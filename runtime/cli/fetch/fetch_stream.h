/* A package that is used while it comes: its table of layers comes first, and tells of each layer whether it is right.
 *
 *   bytes ──> header, meta: checked ──> begun(total)          the file has its full length from here on
 *         ──> layer after layer: hashed ──> arrived(bytes)    what lies below is right, and is never written again
 */
#ifndef SY_CLI_FETCH_FETCH_STREAM_H
#define SY_CLI_FETCH_FETCH_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sy_fetch_stream;

struct sy_fetch_stream_config {
    const char *path;   /* of the file that it comes into, for error texts */
    uint64_t max_bytes; /* of the whole */
    void (*begun)(void *ctx, uint64_t total_bytes);
    void (*arrived)(void *ctx, uint64_t bytes);
    void *ctx;
};

/* ENOMEM_HOST. */
int sy_fetch_stream_create(const struct sy_fetch_stream_config *config,
                           struct sy_fetch_stream **out);
void sy_fetch_stream_destroy(struct sy_fetch_stream *stream); /* NULL is fine */
/* `n` bytes have come and lie in the file at `at`, behind all before; `bytes`: the same, in memory. ECORRUPT: no package, another length than its header's,
 * or a layer that is not what its table says; it is named. EUNSUPPORTED: another version. EARG: larger than it may be. EIO. */
int sy_fetch_stream_took(struct sy_fetch_stream *stream, int fd, uint64_t at, const void *bytes,
                         size_t n);
/* The first `n` bytes of the file were there before: as if they came now. */
int sy_fetch_stream_take_over(struct sy_fetch_stream *stream, int fd, uint64_t n);
/* Fetches unverified bytes again, perhaps from another source; all of them if verification has not begun. */
void sy_fetch_stream_rewind(struct sy_fetch_stream *stream);
/* The source says that this was all. EIO: it is less than the package has. */
int sy_fetch_stream_check_whole(const struct sy_fetch_stream *stream, const char *url,
                                uint64_t bytes);
/* How many of the file's first `n` bytes an earlier fetch left right: its head and whole layers, each hashed again. 0: the file is not a package of full
 * length, or less than its head is there. Reads them. */
uint64_t sy_fetch_stream_count(const char *path, int fd, uint64_t n);
bool sy_fetch_stream_has_begun(const struct sy_fetch_stream *stream);
uint64_t sy_fetch_stream_verified(const struct sy_fetch_stream *stream); /* bytes */

#endif
