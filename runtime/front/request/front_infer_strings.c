/* A request's strings: the heap that its run gets, its inputs' blocks in the slab. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/request/front_infer_internal.h"
#include "runtime/front/request/front_room.h"
#include "runtime/front/request/front_strings.h"
#include "runtime/front/request/offload.h"

#define GROWS_BY     4          /* few sizes, so that programs are found again */
#define MOST_ON_LOOP (1u << 20) /* bytes that are copied in some 0.1 ms */

bool sy_front_infer_has_strings(const struct sy_front_infer *infer, int input)
{
    return infer->graph->tensors[infer->graph->inputs[input]].dtype == SY_DTYPE_STRING;
}

int64_t sy_front_infer_elements(const struct sy_front_infer *infer, int input)
{
    return infer->inputs[input].n;
}

int64_t sy_front_infer_most_strings(const struct sy_front_infer *infer)
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
    uint64_t most = (uint64_t)sy_front_infer_most_strings(infer), all = bytes;

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

/* The most bytes of strings that a run may have. */
static int64_t most_heap(const struct sy_front_infer *infer)
{
    return sy_graph_string_heap(infer->graph, (uint64_t)sy_front_infer_most_strings(infer));
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
    int64_t most = most_heap(infer), times = sy_front_room_recall(infer->front, key_of(infer));
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

void sy_front_infer_write_heads(struct sy_front_infer *infer)
{
    for (int i = 0; i < infer->graph->n_inputs; i++)
        if (sy_front_infer_has_strings(infer, i) && infer->inputs[i].in_slab)
            sy_string_block_end((char *)sy_front_infer_pointer(infer, &infer->inputs[i]) +
                                    SY_STRING_HEAD,
                                infer->inputs[i].bytes);
}

/* ---- more room ---------------------------------------------------------------------------------------------- */

/* Inputs on their way to larger memory: a worker takes a block for as long as the heap says. */
struct sy_front_move {
    int n;
    uint64_t bytes;
    bool is_done;
    struct moved {
        void *to;
        const void *from;
        uint64_t bytes;
        struct sy_front_piece old;
    } inputs[];
};

static void copy_all(struct sy_front_move *move)
{
    for (int i = 0; i < move->n; i++)
        memcpy(move->inputs[i].to, move->inputs[i].from, move->inputs[i].bytes);
    move->is_done = true;
}

static int add_move(struct sy_front_infer *infer, int input)
{
    struct sy_front_piece *piece = &infer->inputs[input];
    struct moved *m = &infer->move->inputs[infer->move->n++];

    *m = (struct moved){.bytes = SY_STRING_HEAD + piece->bytes, .old = *piece};
    piece->in_slab = false;
    SY_TRY(sy_front_infer_take_input(infer, input));
    m->from = sy_front_infer_pointer(infer, &m->old);
    m->to = sy_front_infer_pointer(infer, piece);
    infer->move->bytes += m->bytes;
    return SY_OK;
}

void sy_front_infer_drop_move(struct sy_front_infer *infer)
{
    for (int i = 0; infer->move && i < infer->move->n; i++)
        sy_front_infer_give_back(infer, &infer->move->inputs[i].old, 1);
    free(infer->move);
    infer->move = NULL;
}

static void move_beside(void *ctx)
{
    struct sy_front_infer *infer = ctx;

    copy_all(infer->move);
}

int sy_front_infer_move_strings(struct sy_front_infer *infer, void (*moved)(void *infer),
                                bool *later)
{
    struct sy_offload *offload = infer->front->offload;

    *later = infer->move->bytes > MOST_ON_LOOP && offload;
    if (*later)
        return sy_offload_run(offload, move_beside, moved, infer);
    copy_all(infer->move);
    sy_front_infer_drop_move(infer);
    return SY_OK;
}

int sy_front_infer_end_move(struct sy_front_infer *infer)
{
    bool is_done = infer->move->is_done;

    sy_front_infer_drop_move(infer);
    return is_done ? SY_OK : sy_error_set(SY_EBUSY, "the server stops");
}

int sy_front_infer_grow_strings(struct sy_front_infer *infer, bool *more)
{
    int64_t *heap = &infer->sizes.of[sy_graph_string_size(infer->graph)];
    int64_t most = most_heap(infer);

    *more = *heap < most;
    if (!*more)
        return SY_OK;
    *heap = SY_MIN(*heap * GROWS_BY, most);
    infer->move =
        calloc(1, sizeof *infer->move + (size_t)infer->graph->n_inputs * sizeof(struct moved));
    if (!infer->move)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a request's strings");
    for (int i = 0; i < infer->graph->n_inputs; i++)
        if (sy_front_infer_has_strings(infer, i) && infer->inputs[i].in_slab)
            SY_TRY(add_move(infer, i));
    return SY_OK;
}
