/* Finds the end of a msgpack value while its bytes arrive, before anything is allocated for it.
 *
 * A few bytes of msgpack can claim an array of 2^32 elements; the library would reserve room for it. So untrusted
 * bytes pass here first: nesting, element count and total length are bounded, and each byte is looked at once, however
 * many pieces it came in. */
#ifndef SY_BASE_MSGPACK_SCAN_H
#define SY_BASE_MSGPACK_SCAN_H

#include <stddef.h>
#include <stdint.h>

#define SY_MSGPACK_MAX_DEPTH 32 /* msgpack-c's own limit */

struct sy_msgpack_scan {
    uint64_t max_bytes, max_elements; /* limits; set by init */
    uint64_t at;      /* bytes of the value that are understood; its length when it is complete */
    uint64_t leaf_at; /* where the last value begins that is no array and no map */
    uint64_t n_elements;
    int depth;
    uint64_t left[SY_MSGPACK_MAX_DEPTH]; /* elements still to come, per open array or map */
};

void sy_msgpack_scan_init(struct sy_msgpack_scan *scan, uint64_t max_bytes, uint64_t max_elements);
/* `bytes` are the first n_bytes of the value (call again with more of the same). 1: complete, scan->at is its length. 0:
 * more is needed, at least scan->at bytes in all. EPROTO: not msgpack, or too deep, or too many elements; ETOOBIG: longer than
 * max_bytes. */
int sy_msgpack_scan(struct sy_msgpack_scan *scan, const void *bytes, uint64_t n_bytes);

#endif
