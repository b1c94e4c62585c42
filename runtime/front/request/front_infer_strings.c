/* A request's strings: how many bytes they have, and the heap that its run gets for them. */
#include <inttypes.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/request/front_infer_internal.h"
#include "runtime/front/request/front_room.h"
#include "runtime/front/request/front_strings.h"

bool sy_front_infer_has_strings(const struct sy_front_infer *infer, int input)
{
    return infer->graph->tensors[infer->graph->inputs[input]].dtype == SY_DTYPE_STRING;
}

int64_t sy_front_infer_elements(const struct sy_front_infer *infer, int input)
{
    return infer->inputs[input].n;
}

/* bytes */
static int64_t most_strings(const struct sy_front_infer *infer)
{
    return infer->front->string_bytes > 0 ? SY_MIN(infer->front->string_bytes, SY_STRING_MOST)
                                          : SY_FRONT_STRING_BYTES;
}

uint64_t sy_front_infer_string_heap(const struct sy_front_infer *infer)
{
    int size = sy_graph_string_size(infer->graph);

    return size < 0 ? 0 : (uint64_t)infer->sizes.of[size];
}

int sy_front_infer_announce_strings(struct sy_front_infer *infer, int input, uint64_t bytes)
{
    const char *name = infer->graph->tensors[infer->graph->inputs[input]].name;
    uint64_t least = (uint64_t)infer->inputs[input].n * sizeof(uint32_t);
    uint64_t most = (uint64_t)most_strings(infer), all = bytes;

    assert(infer->phase == SY_FRONT_SOLVED);
    if (bytes < least)
        return sy_error_set(SY_EARG,
                            "input \"%s\" has %" PRIu64 " bytes of data; its %" PRId64
                            " strings need %" PRIu64 " for their lengths alone",
                            name, bytes, infer->inputs[input].n, least);
    for (int i = 0; i < infer->graph->n_inputs; i++)
        if (i != input && sy_front_infer_has_strings(infer, i))
            all += infer->inputs[i].bytes;
    if (bytes > most || all > most)
        return sy_error_set(SY_ETOOBIG,
                            "input \"%s\": the request's strings have %" PRIu64
                            " bytes; the server takes %" PRIu64 " (--string-bytes)",
                            name, all, most);
    infer->inputs[input].bytes = bytes;
    return SY_OK;
}

/* Rooms are remembered by content; strings' under another number: how many times what the request's own strings take. */
static uint64_t key_of(const struct sy_front_infer *infer)
{
    return ~infer->model->package->content_hash;
}

int64_t sy_front_infer_most_heap(const struct sy_front_infer *infer)
{
    return sy_graph_string_heap(infer->graph, (uint64_t)most_strings(infer));
}

void sy_front_infer_size_strings(struct sy_front_infer *infer)
{
    int size = sy_graph_string_size(infer->graph);
    uint64_t bytes = 0;

    if (size < 0)
        return;
    for (int i = 0; i < infer->graph->n_inputs; i++)
        if (sy_front_infer_has_strings(infer, i))
            bytes += infer->inputs[i].bytes;
    int64_t most = sy_front_infer_most_heap(infer),
            times = sy_front_room_recall(infer->front, key_of(infer));
    infer->string_base = sy_graph_string_heap(infer->graph, bytes);
    infer->sizes.of[size] = infer->string_base < most / SY_MAX(times, 1)
                                ? infer->string_base * SY_MAX(times, 1)
                                : SY_MAX(infer->string_base, most);
}

void sy_front_infer_remember_strings(struct sy_front_infer *infer)
{
    int size = sy_graph_string_size(infer->graph);

    if (size >= 0 && infer->string_base > 0 && infer->sizes.of[size] > infer->string_base)
        sy_front_room_remember(infer->front, key_of(infer),
                               (infer->sizes.of[size] + infer->string_base - 1) /
                                   infer->string_base);
}
