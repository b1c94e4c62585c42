/* A request's slab memory, and how it grows when results exceed their buffers. */
#include <inttypes.h>
#include <stdio.h>

#include "loader/graph/string_tensor.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/request/front_infer_internal.h"
#include "runtime/front/request/front_room.h"
#include "runtime/front/request/front_strings.h"
#include "runtime/sched/admission.h"

static struct sy_slab *slab_of(const struct sy_front_infer *infer)
{
    return infer->front->handlers->slab(infer->front->core);
}

void sy_front_infer_give_back(struct sy_front_infer *infer, struct sy_front_piece *pieces, int n)
{
    for (int i = 0; i < n; i++) {
        if (pieces[i].in_slab)
            sy_slab_release(slab_of(infer), pieces[i].at);
        pieces[i].in_slab = false;
    }
}

/* ---- the slab ------------------------------------------------------------------------------------------------ */

int sy_front_infer_output_shape(const struct sy_front_infer *infer, int output,
                                struct sy_shape *shape)
{
    return sy_graph_bind_shape(infer->graph, infer->graph->outputs[output], &infer->sizes, shape);
}

static int output_room(const struct sy_front_infer *infer, int output, uint64_t *bytes)
{
    int tensor = infer->graph->outputs[output];
    struct sy_shape shape;

    SY_TRY(sy_front_infer_output_shape(infer, output, &shape));
    *bytes = sy_graph_shaped_room(infer->graph, tensor, &shape, infer->batch);
    if (infer->graph->tensors[tensor].dtype == SY_DTYPE_STRING && *bytes != UINT64_MAX)
        *bytes += SY_ALIGN_UP(sy_front_infer_string_heap(infer), 16u);
    if (*bytes == UINT64_MAX)
        return sy_error_set(SY_EARG, "output \"%s\" would have more bytes than can be counted",
                            infer->graph->tensors[tensor].name);
    return SY_OK;
}

static int take_piece(struct sy_front_infer *infer, struct sy_front_piece *piece, uint64_t bytes)
{
    SY_TRY(sy_slab_alloc(slab_of(infer), SY_MAX(bytes, 1), &piece->at));
    piece->in_slab = true;
    return SY_OK;
}

int sy_front_infer_take_output(struct sy_front_infer *infer, int output)
{
    struct sy_front_piece *piece = &infer->outputs[output];
    uint64_t bytes;

    SY_TRY(output_room(infer, output, &bytes));
    if (piece->region == 0)
        return take_piece(infer, piece, bytes);
    if (sy_graph_is_dynamic(infer->graph, infer->graph->outputs[output]) ||
        infer->graph->tensors[infer->graph->outputs[output]].dtype == SY_DTYPE_STRING)
        return sy_error_set(SY_EUNSUPPORTED,
                            "output \"%s\" has a size that only a run knows: it cannot be written "
                            "to shared memory; ask for it in the answer",
                            infer->graph->tensors[infer->graph->outputs[output]].name);
    if (bytes > piece->bytes)
        return sy_error_set(
            SY_EARG, "output \"%s\" has %" PRIu64 " bytes; its place in shared memory has %" PRIu64,
            infer->graph->tensors[infer->graph->outputs[output]].name, bytes, piece->bytes);
    return SY_OK;
}

static uint64_t input_room(const struct sy_front_infer *infer, int input)
{
    const struct sy_front_piece *piece = &infer->inputs[input];

    return sy_front_infer_has_strings(infer, input)
               ? sy_string_block_bytes(piece->n, sy_front_infer_string_heap(infer))
               : piece->bytes;
}

int sy_front_infer_take_input(struct sy_front_infer *infer, int input)
{
    return take_piece(infer, &infer->inputs[input], input_room(infer, input));
}

void sy_front_infer_adopt_input(struct sy_front_infer *infer, int input, uint64_t offset)
{
    struct sy_front_piece *piece = &infer->inputs[input];

    assert(infer->phase == SY_FRONT_SOLVED && !sy_front_infer_has_strings(infer, input));
    piece->at = offset;
    piece->in_slab = true;
}

static bool wants_room(const struct sy_front_piece *input)
{
    return input->region == 0 && !input->is_lent && !input->in_slab;
}

static int take_tensors(struct sy_front_infer *infer)
{
    for (int i = 0; i < infer->graph->n_inputs; i++)
        if (wants_room(&infer->inputs[i]))
            SY_TRY(sy_front_infer_take_input(infer, i));
    for (int i = 0; i < infer->graph->n_outputs; i++)
        SY_TRY(sy_front_infer_take_output(infer, i));
    return SY_OK;
}

/* Slab bytes of the whole request; counting stops beyond the slab's size. */
static int slab_bytes_wanted(const struct sy_front_infer *infer, uint64_t size, uint64_t *out)
{
    uint64_t wants = 0, bytes;

    for (int i = 0; i < infer->graph->n_inputs; i++)
        if (wants_room(&infer->inputs[i]))
            wants += SY_MIN(input_room(infer, i), size);
    for (int i = 0; i < infer->graph->n_outputs && wants <= size; i++) {
        SY_TRY(output_room(infer, i, &bytes));
        if (infer->outputs[i].region == 0)
            wants += SY_MIN(bytes, size);
    }
    *out = wants;
    return SY_OK;
}

/* Patient requests leave a part of the slab to urgent ones, as of the queue (runtime/sched/admission.h, Q7). */
static int check_kept_room(const struct sy_front_infer *infer, uint64_t size, uint64_t used,
                           uint64_t wants)
{
    uint64_t kept = sy_admission_kept(size, infer->options.class_);

    if (used + wants + kept <= size)
        return SY_OK;
    return sy_error_set(SY_EBUSY,
                        "no room for %llu bytes in the tensor slab: %llu of %llu in use, and %llu "
                        "are kept for classes before %d; try again later or make the slab larger "
                        "(--slab-bytes)",
                        (unsigned long long)wants, (unsigned long long)used,
                        (unsigned long long)size, (unsigned long long)kept, infer->options.class_);
}

/* Slab bytes that the caller has placed inputs in. */
static uint64_t adopted_bytes(const struct sy_front_infer *infer)
{
    uint64_t bytes = 0;

    for (int i = 0; i < infer->graph->n_inputs; i++)
        if (infer->inputs[i].in_slab)
            bytes += sy_slab_piece_bytes(slab_of(infer), infer->inputs[i].at);
    return bytes;
}

/* A request that is alone may take the whole slab, and learns what it can never get; beside others there is room later: EBUSY. */
int sy_front_infer_take_slab(struct sy_front_infer *infer)
{
    struct sy_slab *slab = slab_of(infer);
    uint64_t size = sy_slab_size(slab), used = sy_slab_used_bytes(slab), wants;
    char why[512];

    SY_TRY(slab_bytes_wanted(infer, size, &wants));
    if (used == adopted_bytes(infer) || wants > size)
        return take_tensors(infer);
    SY_TRY(check_kept_room(infer, size, used, wants));
    int status = take_tensors(infer);
    if (status != SY_ENOMEM_HOST)
        return status;
    snprintf(why, sizeof why, "%s", sy_error_text());
    return sy_error_set(SY_EBUSY, "%s", why);
}

/* ---- results that are larger than their room ---------------------------------------------------------------- */

void sy_front_infer_recall_room(struct sy_front_infer *infer)
{
    int64_t times = sy_front_room_recall(infer->front, infer->model->package->content_hash);
    int size = sy_graph_room_size(infer->graph);

    if (size >= 0)
        infer->sizes.of[size] = SY_MAX(infer->sizes.of[size], times);
}

void *sy_front_infer_pointer(const struct sy_front_infer *infer, const struct sy_front_piece *piece)
{
    return piece->in_slab ? sy_slab_pointer(slab_of(infer), piece->at) : NULL;
}

int sy_front_infer_grow_room(struct sy_front_infer *infer, bool *more)
{
    struct sy_sizes sizes = infer->sizes;

    *more = false;
    for (int i = 0; i < infer->graph->n_outputs; i++) {
        int tensor = infer->graph->outputs[i];
        struct sy_shape room, shape;
        uint64_t needs;

        SY_TRY(sy_front_infer_output_shape(infer, i, &room));
        if (!infer->outputs[i].in_slab ||
            sy_graph_shaped_output(infer->graph, tensor, &room, infer->batch,
                                   sy_front_infer_pointer(infer, &infer->outputs[i]), &shape,
                                   &needs) != SY_ENOMEM_HOST)
            continue;
        uint64_t has = (uint64_t)sy_shape_elements(&room, infer->batch) *
                       sy_dtype_bytes(infer->graph->tensors[tensor].dtype);
        struct sy_sizes grown = infer->sizes;
        if (!sy_graph_grow_room(infer->graph, has, needs, &grown))
            return SY_ENOMEM_HOST; /* the text says how much */
        int size = sy_graph_room_size(infer->graph);
        sizes.of[size] = SY_MAX(sizes.of[size], grown.of[size]);
        *more = true;
    }
    infer->sizes = sizes;
    return SY_OK;
}

void sy_front_infer_write_heads(struct sy_front_infer *infer)
{
    for (int i = 0; i < infer->graph->n_inputs; i++)
        if (sy_front_infer_has_strings(infer, i) && infer->inputs[i].in_slab)
            sy_string_block_end((char *)sy_front_infer_pointer(infer, &infer->inputs[i]) +
                                    SY_STRING_HEAD,
                                infer->inputs[i].bytes);
}
