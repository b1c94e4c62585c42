/* MurmurHash3 of 32 bits, as FeatureHasher exports it: an element's bytes, or a string's. */
#include "runtime/base/status.h"
#include "workers/host/base/strings.h"
#include "workers/host/reference/kernel.h"

static uint32_t rotated(uint32_t x, int by)
{
    return x << by | x >> (32 - by);
}

static uint32_t scrambled(uint32_t block)
{
    return rotated(block * 0xcc9e2d51u, 15) * 0x1b873593u;
}

/* A block of at most four bytes, lowest first. */
static uint32_t block_of(const unsigned char *from, uint32_t n)
{
    uint32_t block = 0;
    for (uint32_t i = 0; i < n; i++)
        block |= (uint32_t)from[i] << (8 * i);
    return block;
}

static uint32_t hash_of(const void *data, uint32_t n, uint32_t seed)
{
    const unsigned char *from = data;
    uint32_t h = seed, whole = n / 4 * 4;
    for (uint32_t i = 0; i < whole; i += 4)
        h = rotated(h ^ scrambled(block_of(from + i, 4)), 13) * 5 + 0xe6546b64u;
    if (n > whole)
        h ^= scrambled(block_of(from + whole, n - whole));
    h ^= n;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return h ^ h >> 16;
}

static int run_hash(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    uint32_t *to = call->out[0].data, seed = (uint32_t)sy_node_int(call->node, "seed", 0),
             bytes = (uint32_t)sy_dtype_bytes(x->dtype);
    for (int64_t i = 0; i < x->n; i++) {
        const void *from = (const char *)x->data + i * (int64_t)bytes;
        uint32_t n = bytes;
        if (x->dtype == SY_DTYPE_STRING)
            from = sy_strings_text(((const struct sy_string *)x->data)[i], &n);
        to[i] = hash_of(from, n, seed);
    }
    return SY_OK;
}

#define HASHED                                                                                 \
    {                                                                                          \
        SY_BIT(STRING) | SY_BIT(I32) | SY_BIT(U32) | SY_BIT(I64) | SY_BIT(U64) | SY_BIT(F32) | \
            SY_BIT(F64)                                                                        \
    }
const struct sy_kernel sy_kernels_hash[] = {{SY_OP_MS_MURMUR_HASH, run_hash, HASHED, NULL, NULL},
                                            {0}};
