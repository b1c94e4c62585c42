#include "runtime/front/grpc/grpc_gzip.h"

#include <inttypes.h>
#include <limits.h>
#include <zlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define WINDOW      15
#define ANY_FORMAT  32 /* zlib: gzip's header or its own */
#define GZIP_FORMAT 16
#define STEP        ((size_t)64 << 10)
#define MOST_AVAIL  ((size_t)1 << 30) /* zlib counts in 32 bits */

static int bad_data(const z_stream *stream)
{
    return sy_error_set(SY_EARG, "a compressed message is damaged: %s",
                        stream->msg ? stream->msg : "it does not end");
}

/* One step of output; *ended with the last. */
static int inflate_step(z_stream *stream, struct sy_grpc_bytes *in, uint64_t most,
                        struct sy_grpc_block *out, bool *ended)
{
    size_t room = SY_MAX(STEP, out->n / 2);
    uint8_t *to;
    int got;

    if (out->n > most)
        return sy_error_set(
            SY_ETOOBIG, "a compressed message has more than %" PRIu64 " bytes when inflated", most);
    room = SY_MIN(SY_MIN(room, MOST_AVAIL), (size_t)(most - out->n) + 1);
    SY_TRY(sy_grpc_block_extend(out, room, &to));
    stream->next_in = (Bytef *)(uintptr_t)in->data;
    stream->avail_in = (uInt)SY_MIN(in->n, MOST_AVAIL);
    stream->next_out = to;
    stream->avail_out = (uInt)room;
    got = inflate(stream, Z_NO_FLUSH);
    in->n -= (size_t)(stream->next_in - in->data);
    in->data = stream->next_in;
    sy_grpc_block_shrink(out, stream->avail_out);
    *ended = got == Z_STREAM_END;
    if (got == Z_MEM_ERROR)
        return sy_error_set(SY_ENOMEM_HOST, "no memory to inflate a message");
    if (got != Z_OK && !*ended)
        return bad_data(stream);
    return SY_OK;
}

int sy_grpc_inflate(struct sy_grpc_bytes in, uint64_t most, struct sy_grpc_block *out)
{
    z_stream stream = {0};
    bool ended = false;
    int status = SY_OK;

    if (inflateInit2(&stream, WINDOW + ANY_FORMAT) != Z_OK)
        return sy_error_set(SY_ENOMEM_HOST, "no memory to inflate a message");
    while (!ended && status == SY_OK)
        status = inflate_step(&stream, &in, most, out, &ended);
    inflateEnd(&stream);
    if (status == SY_OK && out->n > most)
        status = sy_error_set(
            SY_ETOOBIG, "a compressed message has more than %" PRIu64 " bytes when inflated", most);
    if (status == SY_OK && in.n > 0)
        status = sy_error_set(SY_EARG, "a compressed message has %zu bytes behind its end", in.n);
    return status;
}

static int deflate_piece(z_stream *stream, struct sy_grpc_bytes piece, int flush,
                         struct sy_grpc_buffer *out)
{
    bool over = false;

    while (!over) {
        uint8_t *to = sy_grpc_buffer_extend(out, STEP);
        size_t part = SY_MIN(piece.n, MOST_AVAIL);

        SY_TRY_ALLOC(to, "no memory to compress a message");
        stream->next_in = (Bytef *)(uintptr_t)piece.data;
        stream->avail_in = (uInt)part;
        stream->next_out = to;
        stream->avail_out = (uInt)STEP;
        int got = deflate(stream, part < piece.n ? Z_NO_FLUSH : flush);
        piece.data += part - stream->avail_in;
        piece.n -= part - stream->avail_in;
        out->n -= stream->avail_out;
        over = flush == Z_FINISH ? got == Z_STREAM_END : piece.n == 0 && stream->avail_out > 0;
    }
    return SY_OK;
}

int sy_grpc_deflate(const struct sy_grpc_bytes *pieces, int n, enum sy_grpc_encoding encoding,
                    struct sy_grpc_buffer *out)
{
    z_stream stream = {0};
    int window = WINDOW + (encoding == SY_GRPC_GZIP ? GZIP_FORMAT : 0), status = SY_OK;

    if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return sy_error_set(SY_ENOMEM_HOST, "no memory to compress a message");
    for (int i = 0; i < n && status == SY_OK; i++)
        status = deflate_piece(&stream, pieces[i], Z_NO_FLUSH, out);
    if (status == SY_OK)
        status =
            deflate_piece(&stream, (struct sy_grpc_bytes){(const uint8_t *)"", 0}, Z_FINISH, out);
    deflateEnd(&stream);
    return status;
}
