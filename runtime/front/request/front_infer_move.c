/* A request whose strings found too little memory: its inputs go to larger blocks of the slab, and it runs again. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/request/front_infer_internal.h"
#include "runtime/front/request/front_strings.h"
#include "runtime/front/request/offload.h"

#define GROWS_BY     4          /* few sizes, so that programs are found again */
#define MOST_ON_LOOP (1u << 20) /* bytes that are copied in some 0.1 ms */

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
    int64_t most = sy_front_infer_most_heap(infer);

    *more = *heap < most;
    if (!*more)
        return SY_OK;
    *heap = SY_MIN(*heap * GROWS_BY, most);
    infer->move =
        calloc(1, sizeof *infer->move + (size_t)infer->graph->n_inputs * sizeof(struct moved));
    SY_TRY_ALLOC(infer->move, "no memory for a request's strings");
    for (int i = 0; i < infer->graph->n_inputs; i++)
        if (sy_front_infer_has_strings(infer, i) && infer->inputs[i].in_slab)
            SY_TRY(add_move(infer, i));
    return SY_OK;
}
