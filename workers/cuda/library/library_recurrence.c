#include "workers/cuda/math/library_recurrence.h"

#include <math.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/kernels/kernel_ops.h"
#include "workers/cuda/kernels/kernels_library.h"

#define RECURRENCE_WORD (-3) /* the first; a pool has -2, a product -1 */
#define ROOM_ALIGN      256u

/* ---- what it is --------------------------------------------------------------------------------------- */

static bool has_curves(const struct sy_cell_rules *rules, enum sy_op op, bool relu)
{
    const enum sy_cell_curve_kind end = relu ? SY_CELL_CURVE_RELU : SY_CELL_CURVE_TANH;
    if (isfinite(rules->clip) || rules->couples)
        return false;
    if (op == SY_OP_RNN)
        return rules->curves[0].kind == end;
    return rules->curves[0].kind == SY_CELL_CURVE_SIGMOID &&
           rules->curves[1].kind == SY_CELL_CURVE_TANH &&
           (op == SY_OP_GRU || rules->curves[2].kind == SY_CELL_CURVE_TANH);
}

static bool fits_int(int64_t n)
{
    return n >= 1 && n <= INT32_MAX;
}

bool sy_library_recurrence_of(enum sy_op op, const struct sy_recurrent_node *node,
                              struct sy_math_recurrence *out)
{
    bool relu = op == SY_OP_RNN && node->rules[0].curves[0].kind == SY_CELL_CURVE_RELU;
    *out = (struct sy_math_recurrence){.op = op,
                                       .relu = relu,
                                       .steps = node->steps,
                                       .batch = node->batch,
                                       .input = node->input,
                                       .hidden = node->hidden,
                                       .gates = node->gates,
                                       .directions = node->directions};
    for (int d = 0; d < node->directions; d++)
        if (!has_curves(&node->rules[d], op, relu))
            return false;
    return !node->is_reverse && !node->has_peepholes && (op != SY_OP_GRU || node->resets_late) &&
           fits_int(node->steps) && fits_int(node->batch) && fits_int(node->input) &&
           fits_int(node->hidden);
}

void sy_library_recurrence_words(const struct sy_math_recurrence *r, int64_t *words)
{
    const int64_t all[] = {RECURRENCE_WORD, r->batch, (int64_t)r->op, r->relu,   r->has_bias,
                           r->has_y,        r->steps, r->input,       r->hidden, r->directions};
    memset(words, 0, SY_CHOICE_WORDS * sizeof *words);
    memcpy(words, all, sizeof all);
}

/* ---- weights ------------------------------------------------------------------------------------------ */

static void add_part(struct sy_library_parts *parts, enum sy_recurrence_role role, int64_t from,
                     int64_t to, int64_t n)
{
    assert(parts->n < SY_LIBRARY_PARTS);
    parts->list[parts->n++] =
        (struct sy_library_part){.from = from, .to = to, .n = n, .role = role};
}

void sy_library_recurrence_parts(const struct sy_math_recurrence *r,
                                 const struct sy_library_places *places,
                                 struct sy_library_parts *out)
{
    static const int64_t lstm[] = {0, 2, 3, 1}, gru[] = {1, 0, 2}, rnn[] = {0};
    const int64_t *order = r->op == SY_OP_LSTM ? lstm : r->op == SY_OP_GRU ? gru : rnn;
    *out = (struct sy_library_parts){0};
    for (int64_t d = 0; d < r->directions; d++)
        for (int64_t k = 0; k < 2 * r->gates; k++) {
            bool of_state = k >= r->gates;
            int64_t gate = order[k % r->gates], columns = of_state ? r->hidden : r->input;
            int64_t each = r->hidden * columns;
            add_part(out, of_state ? SY_RECURRENCE_R : SY_RECURRENCE_W,
                     (d * r->gates + gate) * each, places->matrix[d][k], each);
            if (r->has_bias) /* Wb, then Rb */
                add_part(out, SY_RECURRENCE_BIAS,
                         ((2 * d + of_state) * r->gates + gate) * r->hidden, places->bias[d][k],
                         r->hidden);
        }
}

void sy_library_recurrence_room(const struct sy_math_recurrence *r, uint64_t weight_bytes,
                                uint64_t work_bytes, struct sy_library_room *out)
{
    uint64_t y = (uint64_t)(r->steps * r->batch * r->directions * r->hidden) * sizeof(float);
    out->keeps_y = r->directions > 1 || !r->has_y;
    out->weights = 0;
    out->y = SY_ALIGN_UP(weight_bytes, ROOM_ALIGN);
    out->work = out->y + (out->keeps_y ? SY_ALIGN_UP(y, ROOM_ALIGN) : 0);
    out->bytes = out->work + work_bytes;
}

/* ---- enqueue ------------------------------------------------------------------------------------------ */

int sy_library_recurrence_begin(struct sy_math *math, const struct sy_library_parts *parts,
                                const struct sy_library_room *room, void *const *at, void *scratch)
{
    return sy_math_kernel_check(math,
                                sy_kernel_parts(sy_math_kernel_stream(math), parts, at,
                                                (unsigned char *)scratch + room->weights),
                                "weights' gathering");
}

int sy_library_recurrence_turn(struct sy_math *math, const struct sy_math_recurrence *r,
                               const void *kept, void *y)
{
    int64_t n = r->hidden, row = r->directions * n;
    struct sy_math_move move = {.element_bytes = sizeof(float),
                                .rank = 4,
                                .dims = {r->steps, r->directions, r->batch, n},
                                .from_strides = {r->batch * row, n, row, 1},
                                .to_strides = {r->batch * row, r->batch * n, n, 1}};
    return sy_kernel_ops_move(math, &move, kept, y);
}
