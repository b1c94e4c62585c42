#include "runtime/front/grpc/grpc_out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "runtime/base/assert.h"
#include "runtime/front/grpc/grpc_internal.h"

#define COPIED_BYTES ((size_t)128 << 10)
#define MOST_PIECES  256
#define COPY_BELOW   ((size_t)2048) /* a copy of so much costs less than a piece of its own */

struct piece {
    const uint8_t *data;
    size_t n;
    struct sy_grpc_reply *reply; /* NULL: copied */
};

struct sy_grpc_out {
    size_t n_copied, n_bytes;
    int first, n;
    struct piece pieces[MOST_PIECES];
    uint8_t copied[COPIED_BYTES];
};

struct sy_grpc_out *sy_grpc_out_create(void)
{
    struct sy_grpc_out *out = malloc(sizeof *out);

    if (out) {
        out->n_copied = out->n_bytes = 0;
        out->first = out->n = 0;
    }
    return out;
}

void sy_grpc_out_destroy(struct sy_grpc_out *out)
{
    if (!out)
        return;
    for (int i = out->first; i < out->n; i++)
        if (out->pieces[i].reply)
            sy_grpc_reply_unref(out->pieces[i].reply);
    free(out);
}

bool sy_grpc_out_is_empty(const struct sy_grpc_out *out)
{
    return out->first == out->n;
}

/* At worst each COPY_BELOW bytes are a piece with a copy in front of it. */
bool sy_grpc_out_has_room(const struct sy_grpc_out *out, size_t n)
{
    return out->n_bytes < SY_GRPC_OUT_BYTES && out->n_copied + n + 9 <= COPIED_BYTES &&
           (size_t)out->n + 2 * (n / COPY_BELOW + 2) <= MOST_PIECES;
}

void sy_grpc_out_copy(struct sy_grpc_out *out, const void *data, size_t n)
{
    struct piece *last = out->n > out->first ? &out->pieces[out->n - 1] : NULL;
    uint8_t *to = out->copied + out->n_copied;

    memcpy(to, data, n);
    out->n_copied += n;
    out->n_bytes += n;
    if (last && !last->reply)
        last->n += n; /* copies lie one behind the other */
    else
        out->pieces[out->n++] = (struct piece){to, n, NULL};
}

void sy_grpc_out_piece(void *ctx, const uint8_t *data, size_t n, struct sy_grpc_reply *reply)
{
    struct sy_grpc_out *out = ctx;

    if (n < COPY_BELOW) {
        sy_grpc_out_copy(out, data, n);
        return;
    }
    reply->refs++;
    out->n_bytes += n;
    out->pieces[out->n++] = (struct piece){data, n, reply};
}

static void take_written(struct sy_grpc_out *out, size_t n)
{
    out->n_bytes -= n;
    while (n > 0) {
        struct piece *piece = &out->pieces[out->first];
        size_t part = SY_MIN(n, piece->n);

        piece->data += part;
        piece->n -= part;
        n -= part;
        if (piece->n > 0)
            return;
        if (piece->reply)
            sy_grpc_reply_unref(piece->reply);
        out->first++;
    }
    if (out->first == out->n) {
        out->first = out->n = 0;
        out->n_copied = 0;
    }
}

long sy_grpc_out_write(struct sy_grpc_out *out, int fd, struct sy_tls_stream *tls)
{
    struct iovec vectors[MOST_PIECES];
    int n = 0;
    ssize_t written;

    for (int i = out->first; i < out->n; i++)
        vectors[n++] = (struct iovec){(void *)(uintptr_t)out->pieces[i].data, out->pieces[i].n};
    do
        written = sy_net_write(fd, tls, vectors, (size_t)n);
    while (written < 0 && errno == EINTR);
    if (written < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
    take_written(out, (size_t)written);
    return (long)written;
}
