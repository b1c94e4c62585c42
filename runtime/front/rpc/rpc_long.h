/* Long tensors of a message: read from the socket straight into the slab, where a request takes them over without a copy.
 *
 *   buffer  [0, id, "infer", [{.. "data": bin32 n]            <- the scan stands inside of a bin of n bytes, of which some have come
 *   buffer  [0, id, "infer", [{.. "data": ext8(index)]  ..    <- the bin became five other bytes; its n bytes go to the slab
 *
 * L1: only a client with the right to infer is given memory for what it announces: a bin of at least SY_RPC_LONG_BYTES, while at most half of the slab is in use, and within
 *     the server's limit of buffered bytes, and while what this caller (a token; all without one are one) has announced and not sent is at most a quarter of
 *     the slab. Else the bytes are buffered as any others. A connection that sends too slowly is closed (least_rate.h).
 * L2: a client may send such an ext itself: it names a tensor of its own message, or none, and each is taken once.
 * L3: while a client sends one fast over plain TCP, its socket is readable with half a megabyte, or the tensor's rest if that is less (../../net/low_water.h).
 *     Each look for stalled clients takes that back, so that what a client sends slowly from then on counts. */
#ifndef SY_RUNTIME_RPC_LONG_H
#define SY_RUNTIME_RPC_LONG_H

#include <msgpack.h>
#include <stdbool.h>
#include <stdint.h>

#define SY_RPC_LONG_BYTES (256ull << 10) /* shorter ones: their copy costs less than 50 us */
#define SY_RPC_MAX_LONGS  16             /* of one message */

struct sy_rpc_connection;

struct sy_rpc_long {
    uint64_t offset, bytes; /* in the slab */
    bool held;              /* it is the message's; false: a request has it */
};

struct sy_rpc_longs { /* zeroed: none */
    struct sy_rpc_long of[SY_RPC_MAX_LONGS];
    int n;
    uint64_t left; /* bytes of the last that are still to come */
};

/* After the scan asked for more of the message at the front of the buffer: if it stands inside of a long bin, that goes to the slab from now on. */
void sy_rpc_long_begin(struct sy_rpc_connection *connection);
/* Destination and room of the socket's next bytes; NULL: the buffer. */
void *sy_rpc_long_next(const struct sy_rpc_connection *connection, uint64_t *room);
void sy_rpc_long_filled(struct sy_rpc_connection *connection, uint64_t n);
/* The tensor that `data` stands for; NULL: none. The caller that keeps its memory sets held to false. */
struct sy_rpc_long *sy_rpc_long_find(struct sy_rpc_connection *connection,
                                     const msgpack_object *data);
/* After a turn of the loop that took moved_bytes of the socket, also of no long tensor; and, with 0, at each look for stalled clients. L3. */
void sy_rpc_long_after_turn(struct sy_rpc_connection *connection, uint64_t moved_bytes);
/* The message is over: gives back bins that were not taken. */
void sy_rpc_long_drop(struct sy_rpc_connection *connection);
/* A slab offset as an address. */
void *sy_rpc_long_data(const struct sy_rpc_connection *connection, const struct sy_rpc_long *one);

#endif
