#include "workers/host/base/strings.h"

#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static struct {
    char *text;
    uint64_t *used, *steps, room, lent;
} heap;

void sy_strings_use(void *memory, uint64_t bytes, bool afresh)
{
    heap.lent++;
    heap.used = memory;
    heap.steps = heap.used + 1;
    heap.text = (char *)memory + SY_STRINGS_HEAD;
    heap.room = SY_MIN(bytes - SY_STRINGS_HEAD, (uint64_t)UINT32_MAX);
    if (afresh || *heap.used > heap.room)
        *heap.used = *heap.steps = 0;
}

int sy_strings_spend(uint64_t steps)
{
    if (!heap.steps)
        return SY_OK;
    if (steps > SY_STRINGS_STEPS || *heap.steps > SY_STRINGS_STEPS - steps)
        return sy_error_set(SY_EARG,
                            "the patterns of this run take more than %llu steps on its texts",
                            (unsigned long long)SY_STRINGS_STEPS);
    *heap.steps += steps;
    return SY_OK;
}

uint64_t sy_strings_lent(void)
{
    return heap.lent;
}

const char *sy_strings_text(struct sy_string entry, uint32_t *bytes)
{
    bool inside =
        heap.used && entry.offset <= *heap.used && entry.bytes <= *heap.used - entry.offset;
    *bytes = inside ? entry.bytes : 0;
    return inside && entry.bytes ? heap.text + entry.offset : "";
}

int sy_strings_room(uint64_t bytes, char **text, struct sy_string *out)
{
    uint64_t used = heap.used ? *heap.used : 0, room = heap.used ? heap.room : 0;
    if (bytes > room - used)
        return sy_error_set(SY_ETOOBIG,
                            "the strings of this run need more than the %llu bytes that it has",
                            (unsigned long long)room);
    *out = (struct sy_string){(uint32_t)used, (uint32_t)bytes};
    *text = heap.text + used;
    if (bytes > 0)
        *heap.used = used + bytes;
    return SY_OK;
}

int sy_strings_add(const char *text, uint64_t bytes, struct sy_string *out)
{
    char *to;
    SY_TRY(sy_strings_room(bytes, &to, out));
    if (bytes > 0)
        memcpy(to, text, bytes);
    return SY_OK;
}

int sy_strings_take(const char *name, const void *block, uint64_t room, int64_t n,
                    struct sy_string *to)
{
    uint64_t at = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        const char *text;
        uint32_t bytes;
        if (!sy_string_block_next(block, room, &at, &text, &bytes))
            return sy_error_set(SY_EARG, "tensor '%.100s': string %lld of %lld is not whole", name,
                                (long long)i, (long long)n);
        SY_TRY(sy_strings_add(text, bytes, &to[i]));
    }
    memcpy(&all, block, sizeof all);
    if (at != all && n > 0)
        return sy_error_set(SY_EARG,
                            "tensor '%.100s' has more bytes than its shape's %lld strings take",
                            name, (long long)n);
    return SY_OK;
}

int sy_strings_give(const char *name, const struct sy_string *from, int64_t n, void *block,
                    uint64_t room)
{
    char *to = (char *)block + SY_STRING_HEAD;
    uint64_t at = 0, left = room - SY_STRING_HEAD;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bytes;
        const char *text = sy_strings_text(from[i], &bytes);
        if (left - at < sizeof bytes + (uint64_t)bytes)
            return sy_error_set(SY_ETOOBIG,
                                "output '%.100s': its strings need more than %llu bytes", name,
                                (unsigned long long)left);
        memcpy(to + at, &bytes, sizeof bytes);
        memcpy(to + at + sizeof bytes, text, bytes);
        at += sizeof bytes + bytes;
    }
    memset(block, 0, SY_STRING_HEAD);
    memcpy(block, &at, sizeof at);
    return SY_OK;
}

int sy_strings_compare(struct sy_string a, struct sy_string b)
{
    uint32_t n, m;
    const char *x = sy_strings_text(a, &n), *y = sy_strings_text(b, &m);
    int order = memcmp(x, y, SY_MIN(n, m));
    return order ? order : (n > m) - (n < m);
}

bool sy_strings_equal(struct sy_string a, struct sy_string b)
{
    return a.bytes == b.bytes && (a.offset == b.offset || sy_strings_compare(a, b) == 0);
}
