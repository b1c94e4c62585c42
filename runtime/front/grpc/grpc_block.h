/* Bytes of messages that are not whole yet or wait, counted against one limit for all connections.
 *
 * The count may be changed by several threads; a block belongs to one at a time. */
#ifndef SY_FRONT_GRPC_BLOCK_H
#define SY_FRONT_GRPC_BLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/front/grpc/grpc_wire.h"

struct sy_grpc_budget {
    _Atomic uint64_t used_bytes;
    uint64_t most_bytes;
};

struct sy_grpc_block {
    struct sy_grpc_budget *budget;
    uint8_t *data;
    size_t n, capacity; /* n are counted: pages behind them were never touched */
};

/* Appends. `expected`: as many bytes as the block will have, if known, else 0. EBUSY: over the budget; ENOMEM_HOST. */
int sy_grpc_block_append(struct sy_grpc_block *block, const void *data, size_t n, size_t expected);
/* Room for `n` more bytes, at the block's end and counted. */
int sy_grpc_block_extend(struct sy_grpc_block *block, size_t n, uint8_t **out);
/* Gives back the last n bytes, or removes the first n. */
void sy_grpc_block_shrink(struct sy_grpc_block *block, size_t n);
void sy_grpc_block_drop(struct sy_grpc_block *block, size_t n);
void sy_grpc_block_free(struct sy_grpc_block *block); /* empty again */
struct sy_grpc_bytes sy_grpc_block_bytes(const struct sy_grpc_block *block);

#endif
