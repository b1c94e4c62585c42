/* LSTM, GRU and RNN: the inputs' product at once, then for each time a product of the state and the cell; a GRU that resets in front of the
 * third gate's product has two products and two cells. All of a direction is one step: between two times nobody else wants the device. Where a
 * matrix of weights is packed narrow, what is multiplied with it is rounded to that; states, sums and cells are float32. A step in front of them has the
 * whole layer done by a library where that was measured to be faster (cuda_candidates.h); then these do nothing. */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/math/device_math_train.h"
#include "workers/cuda/math/library_recurrence.h"
#include "workers/cuda/program/cuda_program.h"

#define ROOM_ALIGN 64 /* floats */

/* ---- running ------------------------------------------------------------------------------------------ */

/* Workspace of a direction, in floats: two states, two of c or one of GRU's, a product, a narrow state. */
struct room {
    int64_t state, rec, narrow, floats;
};

static struct room room_of(const struct sy_cuda_cells *c)
{
    struct room r = {.state = (int64_t)SY_ALIGN_UP(c->of.batch * c->of.hidden, ROOM_ALIGN)};
    r.rec = 4 * r.state;
    r.narrow = (int64_t)SY_ALIGN_UP(r.rec + c->of.batch * c->of.gates * c->of.hidden, ROOM_ALIGN);
    r.floats = r.narrow + r.state;
    return r;
}

/* Element `at` of number `direction` of a value of [directions, each], or NULL. */
static void *element_of(const struct sy_program *p, const struct sy_cuda_cells *c,
                        enum sy_cuda_cell_value which, int64_t each, int64_t at)
{
    int value = c->values[which];
    unsigned char *first = sy_cuda_pointer(p, value);
    return first ? first +
                       (c->direction * each + at) * (int64_t)sy_dtype_bytes(p->values[value].dtype)
                 : NULL;
}

static void *part_of(const struct sy_program *p, const struct sy_cuda_cells *c,
                     enum sy_cuda_cell_value which, int64_t each)
{
    return element_of(p, c, which, each, 0);
}

static float *room_at(const struct sy_program *p, const struct sy_cuda_cells *c, int64_t floats)
{
    return (float *)sy_cuda_pointer(p, c->values[SY_CUDA_CELL_ROOM]) + floats;
}

/* The recurrent weights' type if it is narrow, else NONE. */
static enum sy_dtype narrow_of(const struct sy_program *p, const struct sy_cuda_cells *c)
{
    enum sy_dtype dtype = p->values[c->values[SY_CUDA_CELL_R]].dtype;
    return sy_math_is_narrow(dtype) ? dtype : SY_DTYPE_NONE;
}

static int begin_state(struct sy_program *p, const struct sy_cuda_cells *c,
                       enum sy_cuda_cell_value from, float *to)
{
    int64_t n = c->of.batch * c->of.hidden;
    const float *at = part_of(p, c, from, n);
    uint64_t bytes = (uint64_t)n * sizeof(float);
    return at ? p->ops->copy(p->math, at, to, bytes) : p->ops->zero(p->math, to, bytes);
}

static int leave_state(struct sy_program *p, const struct sy_cuda_cells *c, const float *from,
                       enum sy_cuda_cell_value to)
{
    int64_t n = c->of.batch * c->of.hidden;
    float *at = part_of(p, c, to, n);
    return at ? p->ops->copy(p->math, from, at, (uint64_t)n * sizeof(float)) : SY_OK;
}

/* The state, or what is left of it, by the rows of R from gate `first` on. */
static int run_product(struct sy_program *p, const struct sy_cuda_step *of, const float *state,
                       int64_t first, float *rec)
{
    const struct sy_cuda_cells *s = &of->cells;
    int64_t n = s->of.hidden;
    const void *r = element_of(p, s, SY_CUDA_CELL_R, s->of.gates * n * n, first * n * n),
               *by = narrow_of(p, s) ? room_at(p, s, room_of(s).narrow) : state;
    return p->ops->matmul(p->math, of->plan, by, r, NULL, NULL, rec,
                          (unsigned char *)p->binding->workspace + p->scratch_offset);
}

static bool resets_early(const struct sy_cuda_step *step)
{
    return step->node->op == SY_OP_GRU && !step->cells.of.resets_late;
}

static int run_time(struct sy_program *p, const struct sy_cuda_step *step, int64_t time, float *h,
                    float *h_new, float *c, float *c_new)
{
    const struct sy_cuda_cells *s = &step->cells;
    int64_t n = s->of.hidden, width = s->of.gates * n, row = s->of.batch * n;
    float *rec = room_at(p, s, room_of(s).rec), *y = sy_cuda_pointer(p, s->values[SY_CUDA_CELL_Y]);
    struct sy_math_cell cell = {.op = step->node->op,
                                .part = SY_CELL_PART_GATES,
                                .resets_late = s->of.resets_late,
                                .rules = s->of.rules[s->direction],
                                .narrow = narrow_of(p, s),
                                .time = time,
                                .batch = s->of.batch,
                                .hidden = n};
    void *at[SY_CELL_ROLES] = {
        [SY_CELL_REC] = rec,
        [SY_CELL_BIAS] = part_of(p, s, SY_CUDA_CELL_BIAS, 2 * width),
        [SY_CELL_LENGTHS] = sy_cuda_pointer(p, s->values[SY_CUDA_CELL_LENGTHS]),
        [SY_CELL_H] = h,
        [SY_CELL_C] = c,
        [SY_CELL_PEEPS] = part_of(p, s, SY_CUDA_CELL_PEEPHOLES, 3 * n),
        [SY_CELL_G] =
            (float *)sy_cuda_pointer(p, s->values[SY_CUDA_CELL_GATES]) + time * s->of.batch * width,
        [SY_CELL_EXTRA] = c_new,
        [SY_CELL_H_NEW] = h_new,
        [SY_CELL_NARROW] = cell.narrow ? room_at(p, s, room_of(s).narrow) : NULL,
        [SY_CELL_Y] = y ? y + (time * s->of.directions + s->direction) * row : NULL};
    SY_TRY(run_product(p, step, h, 0, rec));
    SY_TRY(p->ops->train->cell(p->math, &cell, at));
    if (!resets_early(step))
        return SY_OK;
    cell.part = SY_CELL_PART_END;
    SY_TRY(run_product(p, step - 1, c_new, 2, rec));
    return p->ops->train->cell(p->math, &cell, at);
}

/* Only has the plan of the third gate's product, for the step behind it. */
static int run_nothing(struct sy_program *p, const struct sy_cuda_step *step)
{
    (void)p;
    (void)step;
    return SY_OK;
}

static bool is_done(const struct sy_program *p, const struct sy_cuda_cells *s)
{
    return s->library >= 0 && p->steps[s->library].by_library;
}

static int run_cells(struct sy_program *p, const struct sy_cuda_step *step)
{
    const struct sy_cuda_cells *s = &step->cells;
    if (is_done(p, s))
        return SY_OK;
    int64_t state = room_of(s).state;
    float *h = room_at(p, s, 0), *c = h + 2 * state;
    float *other_h = h + state, *other_c = c + state;
    SY_TRY(begin_state(p, s, SY_CUDA_CELL_H0, h));
    SY_TRY(begin_state(p, s, SY_CUDA_CELL_C0, c));
    if (narrow_of(p, s))
        SY_TRY(p->ops->cast(p->math, SY_DTYPE_F32, narrow_of(p, s), s->of.batch * s->of.hidden, h,
                            room_at(p, s, room_of(s).narrow)));
    for (int64_t i = 0; i < s->of.steps; i++) {
        int64_t time = s->of.is_reverse ? s->of.steps - 1 - i : i;
        SY_TRY(run_time(p, step, time, h, other_h, c, other_c));
        float *held_h = h, *held_c = c;
        h = other_h;
        c = other_c;
        other_h = held_h;
        other_c = held_c;
    }
    SY_TRY(leave_state(p, s, h, SY_CUDA_CELL_YH));
    return leave_state(p, s, c, SY_CUDA_CELL_YC);
}

/* The gates' share of the inputs. */
static int run_inputs(struct sy_program *p, const struct sy_cuda_step *step)
{
    const struct sy_cuda_cells *s = &step->cells;
    if (is_done(p, s))
        return SY_OK;
    return p->ops->matmul(p->math, step->plan, sy_cuda_pointer(p, s->values[SY_CUDA_CELL_X]),
                          part_of(p, s, SY_CUDA_CELL_W, s->of.gates * s->of.hidden * s->of.input),
                          NULL, NULL, sy_cuda_pointer(p, s->values[SY_CUDA_CELL_GATES]),
                          (unsigned char *)p->binding->workspace + p->scratch_offset);
}

/* ---- building ----------------------------------------------------------------------------------------- */

static int read_shape(struct sy_program *p, struct sy_cuda_cells *c)
{
    const struct sy_node *node = sy_cuda_node(p);
    struct sy_recurrent_node of;
    int64_t x[SY_MAX_RANK], w[SY_MAX_RANK], r[SY_MAX_RANK];
    if (node->n_inputs < 3 || sy_cuda_input_tensor(p, 0)->dtype != SY_DTYPE_F32 ||
        sy_cuda_input_tensor(p, 0)->shape.rank != 3 ||
        sy_cuda_input_tensor(p, 1)->shape.rank != 3 || sy_cuda_input_tensor(p, 2)->shape.rank != 3)
        return sy_unsupported(node, "other than float32 of three dimensions");
    sy_cuda_dims(p, node->inputs[0], x);
    sy_cuda_dims(p, node->inputs[1], w);
    sy_cuda_dims(p, node->inputs[2], r);
    const char *why = sy_recurrent_node_read(node, x, w, r, &of);
    if (why)
        return sy_unsupported(node, why);
    *c = (struct sy_cuda_cells){.of = of};
    return SY_OK;
}

static int64_t elements_of(const struct sy_cuda_cells *c, enum sy_cuda_cell_value which)
{
    int64_t state = c->of.directions * c->of.batch * c->of.hidden;
    switch (which) {
    case SY_CUDA_CELL_BIAS:
        return 2 * c->of.directions * c->of.gates * c->of.hidden;
    case SY_CUDA_CELL_LENGTHS:
        return c->of.batch;
    case SY_CUDA_CELL_Y:
        return c->of.steps * state;
    case SY_CUDA_CELL_PEEPHOLES:
        return 3 * c->of.directions * c->of.hidden;
    default:
        return state;
    }
}

/* Weights as they are packed; what is multiplied with those of the input as they are. */
static int take_input(struct sy_program *p, int i, int *out)
{
    if ((i == SY_CUDA_CELL_W || i == SY_CUDA_CELL_R) && sy_cuda_is_param(p, i))
        return sy_cuda_input(p, i, out);
    bool narrow = i == SY_CUDA_CELL_X && sy_cuda_multiplies_narrow(p, &p->layers[p->layer]);
    return sy_cuda_input_as(p, i, false, narrow, out);
}

static int read_inputs(struct sy_program *p, struct sy_cuda_cells *c)
{
    const struct sy_node *node = sy_cuda_node(p);
    int last = c->of.has_peepholes ? SY_CUDA_CELL_PEEPHOLES : SY_CUDA_CELL_C0;
    for (int i = 0; i < SY_CUDA_CELL_VALUES; i++)
        c->values[i] = -1;
    for (int i = 0; i <= last; i++) {
        if (sy_node_input(node, i) < 0)
            continue;
        SY_TRY(take_input(p, i, &c->values[i]));
        enum sy_dtype wanted = i == SY_CUDA_CELL_LENGTHS ? SY_DTYPE_I32 : SY_DTYPE_F32;
        const struct sy_cuda_value *v = &p->values[c->values[i]];
        bool fits = v->dtype == wanted || (i <= SY_CUDA_CELL_R && v->dtype == p->narrow);
        if (!fits ||
            (i > SY_CUDA_CELL_R && sy_cuda_count(v) != elements_of(c, (enum sy_cuda_cell_value)i)))
            return sy_unsupported(node, "an input of another type or size");
    }
    return SY_OK;
}

/* ---- layout 1: the batch in front of time, and of directions ------------------------------------------- */

/* Permutations between the two layouts: the source of each dimension. Y has four. */
static const int others[3] = {1, 0, 2}, results[4] = {2, 0, 1, 3}, times[4] = {1, 2, 0, 3};

static int add_permuted(struct sy_program *p, int from, const int *perm, int to)
{
    const struct sy_cuda_value *v = &p->values[to];
    struct sy_math_move move = {.element_bytes = (int64_t)sy_dtype_bytes(v->dtype),
                                .rank = v->rank};
    int64_t strides[SY_MAX_RANK];
    sy_cuda_strides(&p->values[from], strides);
    sy_cuda_strides(v, move.to_strides);
    memcpy(move.dims, v->dims, sizeof move.dims);
    for (int i = 0; i < v->rank; i++)
        move.from_strides[i] = strides[perm[i]];
    return sy_cuda_add_move(p, &move, from, to);
}

/* A value of the same elements, its dimensions in the other order. */
static int new_permuted(struct sy_program *p, int of, const int *perm, int *out)
{
    const struct sy_cuda_value v = p->values[of];
    int64_t dims[SY_MAX_RANK];
    for (int i = 0; i < v.rank; i++)
        dims[i] = v.dims[perm[i]];
    return sy_cuda_new_value(p, v.dtype, v.rank, dims, false, out);
}

static int turn_inputs(struct sy_program *p, struct sy_cuda_cells *c)
{
    static const enum sy_cuda_cell_value which[] = {SY_CUDA_CELL_X, SY_CUDA_CELL_H0,
                                                    SY_CUDA_CELL_C0};
    for (size_t i = 0; i < SY_ARRAY_LEN(which); i++) {
        int *value = &c->values[which[i]], turned;
        if (*value < 0)
            continue;
        if (p->values[*value].rank != 3)
            return sy_unsupported(sy_cuda_node(p), "states of other than three dimensions");
        SY_TRY(new_permuted(p, *value, others, &turned));
        SY_TRY(add_permuted(p, *value, others, turned));
        *value = turned;
    }
    return SY_OK;
}

/* ---- results --------------------------------------------------------------------------------------------- */

/* as_asked: what the node's readers get, -1 where there is none. */
static int take_results(struct sy_program *p, struct sy_cuda_cells *c, int *as_asked)
{
    const struct sy_node *node = sy_cuda_node(p);
    for (int i = 0; i < 3; i++) {
        enum sy_cuda_cell_value which = (enum sy_cuda_cell_value)(SY_CUDA_CELL_Y + i);
        as_asked[i] = -1;
        if (i >= node->n_outputs || node->outputs[i] < 0)
            continue;
        SY_TRY(sy_cuda_output(p, i, false, &as_asked[i]));
        const struct sy_cuda_value *v = &p->values[as_asked[i]];
        if (sy_cuda_count(v) != elements_of(c, which) || v->rank != (i ? 3 : 4))
            return sy_unsupported(node, "a result of another size");
        c->values[which] = as_asked[i];
        if (c->of.batch_first)
            SY_TRY(new_permuted(p, as_asked[i], i ? others : times, &c->values[which]));
    }
    return SY_OK;
}

static int turn_results(struct sy_program *p, const struct sy_cuda_cells *c, const int *as_asked)
{
    for (int i = 0; i < 3; i++)
        if (as_asked[i] >= 0)
            SY_TRY(
                add_permuted(p, c->values[SY_CUDA_CELL_Y + i], i ? others : results, as_asked[i]));
    return SY_OK;
}

/* m rows by so many gates of the direction's transposed matrix [gates hidden, k] of that type. */
static void describe_product(const struct sy_cuda_cells *c, enum sy_dtype type, int64_t m,
                             int64_t gates, int64_t k, struct sy_math_matmul *out)
{
    bool begins_within = c->of.directions > 1 || gates < c->of.gates;
    *out = (struct sy_math_matmul){.type = type,
                                   .y_type = SY_DTYPE_F32,
                                   .m = m,
                                   .n = gates * c->of.hidden,
                                   .k = k,
                                   .count = 1,
                                   .b_transposed = true,
                                   .alpha = 1,
                                   .align_bytes = 16};
    while (begins_within && c->of.hidden * k * sy_math_float_bytes(type) % out->align_bytes)
        out->align_bytes /= 2;
}

static int add_step(struct sy_program *p, const struct sy_cuda_cells *c, sy_cuda_step_run run,
                    int64_t m, int64_t gates, int64_t k)
{
    struct sy_cuda_step *step;
    for (int i = 0; i < SY_CUDA_CELL_VALUES; i++)
        if (c->values[i] >= 0)
            sy_cuda_touch(p, c->values[i]);
    SY_TRY(sy_cuda_add_step(p, run, NULL, 0, &step));
    step->cells = *c;
    int weights = c->values[run == run_inputs ? SY_CUDA_CELL_W : SY_CUDA_CELL_R];
    describe_product(c, p->values[weights].dtype, m, gates, k, &step->matmul);
    step->plan_kind = SY_CUDA_MATMUL_PLAN;
    return SY_OK;
}

/* ---- by a library -------------------------------------------------------------------------------------- */

static int run_library(struct sy_program *p, const struct sy_cuda_step *step)
{
    static const enum sy_cuda_cell_value roles[SY_RECURRENCE_ROLES] = {
        [SY_RECURRENCE_X] = SY_CUDA_CELL_X,   [SY_RECURRENCE_W] = SY_CUDA_CELL_W,
        [SY_RECURRENCE_R] = SY_CUDA_CELL_R,   [SY_RECURRENCE_BIAS] = SY_CUDA_CELL_BIAS,
        [SY_RECURRENCE_H0] = SY_CUDA_CELL_H0, [SY_RECURRENCE_C0] = SY_CUDA_CELL_C0,
        [SY_RECURRENCE_Y] = SY_CUDA_CELL_Y,   [SY_RECURRENCE_YH] = SY_CUDA_CELL_YH,
        [SY_RECURRENCE_YC] = SY_CUDA_CELL_YC};
    void *at[SY_RECURRENCE_ROLES];
    if (!step->by_library)
        return SY_OK;
    for (int i = 0; i < SY_RECURRENCE_ROLES; i++)
        at[i] = sy_cuda_pointer(p, step->cells.values[roles[i]]);
    return p->ops->library->recurrence(p->math, step->by_library, at,
                                       (unsigned char *)p->binding->workspace + p->scratch_offset);
}

/* c->library: the step that has it, which computes nothing unless the library was measured to be faster. */
static int add_candidate(struct sy_program *p, struct sy_cuda_cells *c)
{
    struct sy_math_recurrence r;
    struct sy_cuda_step *step;
    c->library = -1;
    if (!sy_library_recurrence_of(sy_cuda_node(p)->op, &c->of, &r) ||
        c->values[SY_CUDA_CELL_LENGTHS] >= 0)
        return SY_OK;
    for (int i = SY_CUDA_CELL_X; i <= SY_CUDA_CELL_R; i++)
        if (p->values[c->values[i]].dtype != SY_DTYPE_F32)
            return SY_OK;
    r.has_bias = c->values[SY_CUDA_CELL_BIAS] >= 0;
    r.has_y = c->values[SY_CUDA_CELL_Y] >= 0;
    c->library = p->n_steps;
    SY_TRY(sy_cuda_add_step(p, run_library, NULL, 0, &step));
    step->cells = *c;
    step->recurrence = r;
    step->candidate = SY_CUDA_RECURRENCE;
    return SY_OK;
}

static int build_recurrent(struct sy_program *p)
{
    struct sy_cuda_cells c;
    int as_asked[3];
    SY_TRY(read_shape(p, &c));
    SY_TRY(read_inputs(p, &c));
    if (c.of.batch_first)
        SY_TRY(turn_inputs(p, &c));
    SY_TRY(take_results(p, &c, as_asked));
    bool is_reverse = c.of.is_reverse,
         early = sy_cuda_node(p)->op == SY_OP_GRU && !c.of.resets_late;
    SY_TRY(add_candidate(p, &c));
    for (int d = 0; d < c.of.directions; d++) {
        int64_t rows = c.of.steps * c.of.batch, gates[2] = {rows, c.of.gates * c.of.hidden};
        c.direction = d;
        c.of.is_reverse = is_reverse || d == 1;
        int64_t floats = room_of(&c).floats;
        SY_TRY(sy_cuda_new_value(p, SY_DTYPE_F32, 2, gates, false, &c.values[SY_CUDA_CELL_GATES]));
        SY_TRY(sy_cuda_new_value(p, SY_DTYPE_F32, 1, &floats, false, &c.values[SY_CUDA_CELL_ROOM]));
        SY_TRY(add_step(p, &c, run_inputs, rows, c.of.gates, c.of.input));
        if (early)
            SY_TRY(add_step(p, &c, run_nothing, c.of.batch, 1, c.of.hidden));
        SY_TRY(add_step(p, &c, run_cells, c.of.batch, early ? 2 : c.of.gates, c.of.hidden));
    }
    if (c.library >= 0)
        p->steps[c.library].n_compared = p->n_steps - c.library;
    return c.of.batch_first ? turn_results(p, &c, as_asked) : SY_OK;
}

const struct sy_cuda_op sy_cuda_ops_recurrent[] = {
    {.build = build_recurrent, SY_OPS(SY_OP_LSTM, SY_OP_GRU, SY_OP_RNN)}, {0}};
