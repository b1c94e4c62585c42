#include "runtime/client/client_block.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define ALIGN      64u
#define LONG_BYTES (256u << 10) /* shorter ones are the C library's affair */
#define HUGE_BYTES (2u << 20)

static struct kept {
    void *at;
    size_t bytes;
} kept[SY_CLIENT_KEPT_BLOCKS];
static size_t kept_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The size allocated for n bytes: the same in take and give. */
static size_t rounded(size_t bytes)
{
    size_t to = bytes >= LONG_BYTES ? 4096 : ALIGN;

    return SY_ALIGN_UP(bytes + 1, to);
}

/* A free one of exactly this size: a client asks for the same sizes repeatedly. */
static void *take_kept(size_t bytes)
{
    void *found = NULL;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < SY_CLIENT_KEPT_BLOCKS && !found; i++)
        if (kept[i].bytes == bytes) {
            found = kept[i].at;
            kept_bytes -= bytes;
            kept[i] = (struct kept){NULL, 0};
        }
    pthread_mutex_unlock(&lock);
    return found;
}

int sy_client_block_take(size_t bytes, void **out)
{
    size_t size = rounded(bytes);

    *out = bytes >= LONG_BYTES ? take_kept(size) : NULL;
    if (*out)
        return SY_OK;
    bool huge = size >= HUGE_BYTES;
    *out = aligned_alloc(huge ? HUGE_BYTES : ALIGN, huge ? SY_ALIGN_UP(size, HUGE_BYTES) : size);
    if (!*out)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for an output of %zu bytes", bytes);
    if (huge)
        (void)madvise(*out, SY_ALIGN_UP(size, HUGE_BYTES), MADV_HUGEPAGE); /* best effort */
    return SY_OK;
}

/* The oldest go first: those at the end of the list. */
void sy_client_block_give(void *block, size_t bytes)
{
    struct kept out[SY_CLIENT_KEPT_BLOCKS + 1] = {{NULL, 0}};
    size_t size = rounded(bytes);
    int n_out = 0;

    if (!block || bytes < LONG_BYTES || size > SY_CLIENT_KEPT_BYTES) {
        free(block);
        return;
    }
    pthread_mutex_lock(&lock);
    for (int i = SY_CLIENT_KEPT_BLOCKS - 1; i >= 0; i--)
        if (i == SY_CLIENT_KEPT_BLOCKS - 1 || kept_bytes + size > SY_CLIENT_KEPT_BYTES) {
            kept_bytes -= kept[i].bytes;
            out[n_out++] = kept[i];
            kept[i] = (struct kept){NULL, 0};
        }
    for (int i = SY_CLIENT_KEPT_BLOCKS - 1; i > 0; i--)
        kept[i] = kept[i - 1];
    kept[0] = (struct kept){block, size};
    kept_bytes += size;
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < n_out; i++)
        free(out[i].at);
}
