#include "runtime/front/http/http_deflate.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/http/http_internal.h"

#define GZIP_WINDOW (15 + 16)
#define LEVEL       Z_BEST_SPEED /* tensors hardly shrink further, and the client waits */
#define PIECE       (256u << 10)

/* The weight of one coding in thousandths; -1: it is not named. */
static int weight_of(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = list; at && *at;) {
        at += strspn(at, " \t,");
        size_t bytes = strcspn(at, ",");
        size_t word = strcspn(at, " \t,;");

        if (word == n && strncasecmp(at, name, n) == 0) {
            const char *q = memchr(at, '=', bytes);

            return q ? (int)(atof(q + 1) * 1000) : 1000;
        }
        at += bytes;
    }
    return -1;
}

enum sy_http_coding sy_http_accepted_coding(const char *accept_encoding)
{
    int gzip = weight_of(accept_encoding, "gzip"), deflate = weight_of(accept_encoding, "deflate");

    if (gzip > 0 && gzip >= deflate)
        return SY_HTTP_GZIP;
    return deflate > 0 ? SY_HTTP_DEFLATE : SY_HTTP_PLAIN;
}

const char *sy_http_coding_name(enum sy_http_coding coding)
{
    return coding == SY_HTTP_GZIP ? "gzip" : coding == SY_HTTP_DEFLATE ? "deflate" : "identity";
}

struct block {
    unsigned char *at;
    uint64_t used, size;
};

static bool make_room(struct block *block)
{
    if (block->size - block->used >= PIECE)
        return true;
    uint64_t size = block->size + SY_MAX(block->size / 2, (uint64_t)PIECE * 2);
    unsigned char *at = realloc(block->at, size);

    if (!at)
        return false;
    block->at = at;
    block->size = size;
    return true;
}

/* One segment; zlib's lengths have 32 bits. */
static bool feed(z_stream *z, const struct sy_http_segment *segment, int flush, struct block *block)
{
    uint64_t done = 0;

    do {
        uint64_t n = SY_MIN(segment->bytes - done, (uint64_t)PIECE);

        z->next_in = (Bytef *)(uintptr_t)segment->data + done;
        z->avail_in = (uInt)n;
        done += n;
        do {
            if (!make_room(block))
                return false;
            z->next_out = block->at + block->used;
            z->avail_out = PIECE;
            deflate(z, done == segment->bytes ? flush : Z_NO_FLUSH);
            block->used += PIECE - z->avail_out;
        } while (z->avail_out == 0);
    } while (done < segment->bytes);
    return true;
}

int sy_http_compress(enum sy_http_coding coding, const struct sy_http_segment *segments, int n,
                     unsigned char **out, uint64_t *out_bytes)
{
    struct block block = {0};
    z_stream z = {0};
    bool good = deflateInit2(&z, LEVEL, Z_DEFLATED, coding == SY_HTTP_GZIP ? GZIP_WINDOW : 15, 8,
                             Z_DEFAULT_STRATEGY) == Z_OK;

    if (!good)
        return sy_error_set(SY_ENOMEM_HOST, "no memory to compress an answer");
    for (int i = 0; i < n && good; i++)
        good = feed(&z, &segments[i], i == n - 1 ? Z_FINISH : Z_NO_FLUSH, &block);
    deflateEnd(&z);
    if (!good) {
        free(block.at);
        return sy_error_set(SY_ENOMEM_HOST, "no memory to compress an answer");
    }
    *out = block.at;
    *out_bytes = block.used;
    return SY_OK;
}
