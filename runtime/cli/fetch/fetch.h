/* A file from a registry: HTTP or HTTPS (S3 by signed URL is no more than that), in pieces if need be, whole and verified or not there.
 *
 *   FILE.part        what has come so far, also of an earlier try that was ended
 *   FILE.part.etag   which content it is of: it is only gone on with while the registry still has that content (If-Range)
 *   FILE             by rename, after the hash is right and the bytes are durable
 *
 * libcurl is opened when it is needed: it brings some thirty libraries that no server or worker should start with. */
#ifndef SY_CLI_FETCH_FETCH_H
#define SY_CLI_FETCH_FETCH_H

#include <stdint.h>

struct sy_fetch {
    /* Where the content is, in the order in which they are tried: http:// or https://; what follows a '?' may be a secret and is never printed. */
    const char *const *urls;
    int n_urls;
    const char *path;   /* where to */
    const char *sha256; /* 64 hexadecimal digits; NULL: not compared */
    uint64_t max_bytes; /* more is refused */
    /* a connection that does not move for so long is given up, and made again where it stood */
    double stall_s;
    int tries; /* in a row without a byte of progress, at each URL */
    /* told of what has come and is right (fetch_stream.h); NULL: none */
    struct sy_fetch_stream *stream;
};

struct sy_fetch_result {
    uint64_t bytes, resumed_bytes; /* of the file; of these, from an earlier try */
    int connections;
    char sha256[65]; /* "": a stream that was asked for none; its layers have hashes of their own */
};

/* Blocks. A URL that fails for good makes way for the next: what has come is gone on with where a hash decides about it at the end (`sha256`, or a stream's
 * layers), and read again where none does. The error is the last URL's. EARG: no such URL or hash; ENOTFOUND: 404; EIO: with what the registry or the
 * network said; ECORRUPT: another hash (FILE.part is removed); EBUSY: another process fetches to that path, for more than two seconds; EPROTO: an answer
 * that is not the file (a redirect without a target, bytes that are coded); EUNSUPPORTED: no libcurl on this machine. Except for ECORRUPT what has come stays
 * for the next try; of a stream its verified layers stay, unless they came from an earlier try and what follows does not fit them. */
int sy_fetch_file(const struct sy_fetch *fetch, struct sy_fetch_result *result);

#endif
