#include "runtime/front/grpc/grpc_block.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define FIRST_CAPACITY ((size_t)4096)
/* From here on a block has its whole capacity at once: a large allocation's pages cost nothing before they are written, while growing
 * step by step copies. */
#define WHOLE_FROM ((size_t)1 << 20)

static int count(struct sy_grpc_budget *budget, size_t n)
{
    uint64_t used = atomic_fetch_add(&budget->used_bytes, n) + n;

    if (used <= budget->most_bytes)
        return SY_OK;
    budget->used_bytes -= n;
    return sy_error_set(SY_EBUSY,
                        "%" PRIu64
                        " bytes of unfinished gRPC messages are held already, of at most "
                        "%" PRIu64 "; try again later",
                        used - n, budget->most_bytes);
}

static int make_room(struct sy_grpc_block *block, size_t needs, size_t expected)
{
    size_t capacity = block->capacity ? block->capacity : FIRST_CAPACITY;
    uint8_t *data;

    if (needs <= block->capacity)
        return SY_OK;
    while (capacity < needs)
        capacity *= 2;
    if (needs >= WHOLE_FROM)
        capacity = SY_MAX(capacity, expected);
    data = realloc(block->data, capacity);
    SY_TRY_ALLOC(data, "no memory for a message of %zu bytes", needs);
    block->data = data;
    block->capacity = capacity;
    return SY_OK;
}

int sy_grpc_block_append(struct sy_grpc_block *block, const void *data, size_t n, size_t expected)
{
    if (n == 0)
        return SY_OK;
    SY_TRY(count(block->budget, n));
    int status = make_room(block, block->n + n, expected);
    if (status < 0) {
        block->budget->used_bytes -= n;
        return status;
    }
    memcpy(block->data + block->n, data, n);
    block->n += n;
    return SY_OK;
}

int sy_grpc_block_extend(struct sy_grpc_block *block, size_t n, uint8_t **out)
{
    SY_TRY(count(block->budget, n));
    int status = make_room(block, block->n + n, 0);
    if (status < 0) {
        block->budget->used_bytes -= n;
        return status;
    }
    *out = block->data + block->n;
    block->n += n;
    return SY_OK;
}

void sy_grpc_block_shrink(struct sy_grpc_block *block, size_t n)
{
    block->n -= n;
    block->budget->used_bytes -= n;
}

void sy_grpc_block_drop(struct sy_grpc_block *block, size_t n)
{
    if (n == 0)
        return;
    memmove(block->data, block->data + n, block->n - n);
    sy_grpc_block_shrink(block, n);
    if (block->n == 0)
        sy_grpc_block_free(block);
}

void sy_grpc_block_free(struct sy_grpc_block *block)
{
    if (block->budget)
        block->budget->used_bytes -= block->n;
    free(block->data);
    *block = (struct sy_grpc_block){.budget = block->budget};
}

struct sy_grpc_bytes sy_grpc_block_bytes(const struct sy_grpc_block *block)
{
    return (struct sy_grpc_bytes){block->data, block->n};
}
