#include "runtime/front/body_buffer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/request/offload.h"

#define MAPPED_BYTES (256ull << 10) /* from here on it is a mapping */
#define PAGE         4096ull

static bool is_mapped(uint64_t size)
{
    return size >= MAPPED_BYTES;
}

static void *map(uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return at == MAP_FAILED ? NULL : at;
}

static void *grow(const struct sy_body_buffer *buffer, uint64_t size)
{
    if (!is_mapped(size))
        return realloc(buffer->at, size);
    if (is_mapped(buffer->size)) {
        void *moved = mremap(buffer->at, buffer->size, size, MREMAP_MAYMOVE);

        return moved == MAP_FAILED ? NULL : moved;
    }
    unsigned char *at = map(size);
    if (!at)
        return NULL;
    if (buffer->used > 0)
        memcpy(at, buffer->at, buffer->used);
    free(buffer->at);
    return at;
}

int sy_body_buffer_room(struct sy_body_buffer *buffer, uint64_t n, uint64_t expected)
{
    uint64_t needs = buffer->used + n;

    if (needs <= buffer->size)
        return SY_OK;
    uint64_t size = SY_MAX(needs, expected > needs ? expected : 2 * buffer->size);
    if (is_mapped(size))
        size = (size + PAGE - 1) / PAGE * PAGE;
    void *at = grow(buffer, size);
    SY_TRY_ALLOC(at, "no memory for a body of %llu bytes", (unsigned long long)needs);
    buffer->at = at;
    buffer->size = size;
    return SY_OK;
}

void sy_body_buffer_forget(struct sy_body_buffer *buffer, uint64_t n)
{
    if (is_mapped(buffer->size) && n >= PAGE)
        madvise(buffer->at, n / PAGE * PAGE, MADV_DONTNEED);
}

static void unmap(void *ctx)
{
    struct sy_body_buffer *buffer = ctx;

    munmap(buffer->at, buffer->size);
    buffer->at = NULL;
}

static void unmapped(void *ctx)
{
    struct sy_body_buffer *buffer = ctx;

    if (buffer->at) /* the threads stopped before */
        unmap(buffer);
    free(buffer);
}

void sy_body_buffer_finish(struct sy_body_buffer *buffer, struct sy_offload *offload)
{
    struct sy_body_buffer *last;

    if (!is_mapped(buffer->size)) {
        free(buffer->at);
    } else {
        last = offload ? malloc(sizeof *last) : NULL;
        if (last)
            *last = *buffer;
        if (!last || sy_offload_run(offload, unmap, unmapped, last) < 0) {
            unmap(buffer);
            free(last);
        }
    }
    *buffer = (struct sy_body_buffer){0};
}
