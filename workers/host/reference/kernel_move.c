/* Moves: repeats, blocks, triangles, and the forms of Reshape, Slice, Pad... whose operands are known at run only. Those compare what
 * the operands say with the result's shape as the file declares it, and refuse the run if they differ. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/reference/kernel.h"
#include "workers/host/reference/pick.h"
#include "workers/host/rows/movement.h"

#define PARALLEL_FROM 16384

static int misfit(const struct sy_call *call)
{
    return sy_kernel_fail(call, "its operands lead to another shape than the file declares");
}

static int check_any(const struct sy_call *call)
{
    return call->in[0].dtype == call->out[0].dtype
               ? SY_OK
               : sy_kernel_refuse(call, "a result of another type");
}

static void copy_all(const struct sy_call *call)
{
    memcpy(call->out[0].data, call->in[0].data,
           (size_t)call->in[0].n * sy_dtype_bytes(call->in[0].dtype));
}

static int64_t scratch_pick(const struct sy_call *call)
{
    return sy_pick_scratch(&call->out[0]);
}

/* ---- the same elements ---------------------------------------------------------------------------- */

static int run_reshape(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *to = &call->in[1], *y = &call->out[0];
    bool keep_zero = sy_node_int(call->node, "allowzero", 0) != 0;
    if (to->n != y->rank || x->n != y->n)
        return misfit(call);
    int open = 0;
    for (int i = 0; i < y->rank; i++) {
        int64_t want = sy_get_int(to, i);
        if (want == 0 && !keep_zero && i < x->rank)
            want = x->dims[i];
        open += want == -1;
        if ((want != -1 && want != y->dims[i]) || open > 1)
            return misfit(call);
    }
    copy_all(call);
    return SY_OK;
}

/* Squeeze takes the axes out of the input's shape, Unsqueeze out of the result's. */
static int run_squeeze(const struct sy_call *call)
{
    bool squeeze = call->node->op == SY_OP_RUN_SQUEEZE;
    const struct sy_array *large = squeeze ? &call->in[0] : &call->out[0],
                          *small = squeeze ? &call->out[0] : &call->in[0], *axes = &call->in[1];
    bool marked[SY_MAX_RANK] = {false};
    int k = 0;
    for (int64_t i = 0; i < axes->n; i++) {
        int64_t axis = sy_get_int(axes, i);
        axis += axis < 0 ? large->rank : 0;
        if (axis < 0 || axis >= large->rank || marked[axis] || large->dims[axis] != 1)
            return misfit(call);
        marked[axis] = true;
    }
    for (int i = 0; i < large->rank; i++)
        if (!marked[i] && (k >= small->rank || small->dims[k++] != large->dims[i]))
            return misfit(call);
    if (k != small->rank)
        return misfit(call);
    copy_all(call);
    return SY_OK;
}

static int check_view(const struct sy_call *call)
{
    if (call->n_in != 2 || call->in[0].n != call->out[0].n)
        return sy_kernel_refuse(call, "a declared result of another size");
    return check_any(call);
}

/* ---- repeats -------------------------------------------------------------------------------------- */

/* Expand: the operand is broadcast against the input as well. */
static int run_expand(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *to = &call->in[1], *y = &call->out[0];
    int64_t strides[SY_MAX_RANK];
    bool fill = x->n == 1 && x->rank <= 1;
    if (to->n > y->rank || !(sy_array_broadcast_strides(x, y, strides) || fill))
        return misfit(call);
    for (int i = 0; i < y->rank; i++) {
        int k = i - (y->rank - (int)to->n), m = i - (y->rank - x->rank);
        int64_t want = k >= 0 ? sy_get_int(to, k) : 1;
        int64_t have = m >= 0 ? x->dims[m] : 1;
        if (y->dims[i] != (want == 1 ? have : want))
            return misfit(call);
    }
    struct sy_pick pick;
    sy_pick_start(&pick, y, call->scratch);
    for (int d = 0; d < y->rank; d++)
        for (int64_t i = 0; i < y->dims[d]; i++)
            pick.from[d][i] = fill ? 0 : i * strides[d];
    sy_pick(&pick, x, y, NULL);
    return SY_OK;
}

/* Repeats as input 1 only if they are known at run; the result's size says the same otherwise. */
static int run_tile(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *repeats = sy_call_in(call, 1), *y = &call->out[0];
    int64_t strides[SY_MAX_RANK];
    struct sy_pick pick;
    for (int i = 0; repeats && i < x->rank; i++)
        if (repeats->n != x->rank ||
            __builtin_mul_overflow(sy_get_int(repeats, i), x->dims[i], &strides[i]) ||
            strides[i] != y->dims[i])
            return misfit(call);
    sy_array_strides(x, strides);
    sy_pick_start(&pick, y, call->scratch);
    for (int d = 0; d < x->rank; d++)
        for (int64_t i = 0; i < y->dims[d]; i++)
            pick.from[d][i] = i % x->dims[d] * strides[d];
    sy_pick(&pick, x, y, NULL);
    return SY_OK;
}

static int check_tile(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    bool fits = x->rank == y->rank;
    for (int i = 0; fits && i < x->rank; i++)
        fits = y->dims[i] == 0 || (x->dims[i] > 0 && y->dims[i] % x->dims[i] == 0);
    return fits ? check_any(call) : sy_kernel_refuse(call, "a result that does not fit");
}

/* ---- parts ---------------------------------------------------------------------------------------- */

struct range {
    int64_t start, step, count;
};

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* numpy's rules. */
static struct range slice_range(int64_t n, int64_t start, int64_t end, int64_t step)
{
    start = start < 0 ? start + n : start;
    end = end < 0 ? (end < -n ? -1 - n : end) + n : end;
    start = step > 0 ? clamp(start, 0, n) : clamp(start, 0, n - 1);
    end = step > 0 ? clamp(end, 0, n) : clamp(end, -1, n - 1);
    int64_t span = step > 0 ? end - start : start - end, stride = step > 0 ? step : -step;
    return (struct range){start, step, span <= 0 ? 0 : (span - 1) / stride + 1};
}

/* Inputs: x, starts, ends, axes, steps. */
static int read_ranges(const struct sy_call *call, struct range *ranges)
{
    const struct sy_array *x = &call->in[0], *starts = &call->in[1], *ends = &call->in[2],
                          *axes = sy_call_in(call, 3), *steps = sy_call_in(call, 4);
    if (ends->n != starts->n || (axes && axes->n != starts->n) || (steps && steps->n != starts->n))
        return sy_kernel_fail(call, "starts, ends, axes and steps differ in length");
    for (int i = 0; i < x->rank; i++)
        ranges[i] = (struct range){0, 1, x->dims[i]};
    for (int64_t i = 0; i < starts->n; i++) {
        int64_t axis = axes ? sy_get_int(axes, i) : i, step = steps ? sy_get_int(steps, i) : 1;
        axis += axis < 0 ? x->rank : 0;
        if (axis < 0 || axis >= x->rank || step == 0 || step == INT64_MIN)
            return sy_kernel_fail(call, "axis %lld, step %lld", (long long)axis, (long long)step);
        ranges[axis] = slice_range(x->dims[axis], sy_get_int(starts, i), sy_get_int(ends, i), step);
    }
    return SY_OK;
}

static int run_slice(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    struct range ranges[SY_MAX_RANK];
    int64_t strides[SY_MAX_RANK];
    struct sy_pick pick;
    SY_TRY(read_ranges(call, ranges));
    for (int d = 0; d < x->rank; d++)
        if (ranges[d].count != y->dims[d])
            return misfit(call);
    sy_array_strides(x, strides);
    sy_pick_start(&pick, y, call->scratch);
    for (int d = 0; d < x->rank; d++)
        for (int64_t i = 0; i < y->dims[d]; i++)
            pick.from[d][i] = (ranges[d].start + i * ranges[d].step) * strides[d];
    sy_pick(&pick, x, y, NULL);
    return SY_OK;
}

static int check_slice(const struct sy_call *call)
{
    if (call->n_in < 3 || !sy_call_in(call, 1) || !sy_call_in(call, 2) ||
        call->in[0].rank != call->out[0].rank)
        return sy_kernel_refuse(call, "operands that do not fit");
    return check_any(call);
}

static int run_split(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *parts = &call->in[1];
    int64_t axis = sy_node_int(call->node, "axis", 0), at = 0;
    axis += axis < 0 ? x->rank : 0;
    int64_t inner = sy_array_extent(x, (int)axis + 1, x->rank),
            outer = sy_array_extent(x, 0, (int)axis);
    size_t bytes = sy_dtype_bytes(x->dtype);
    for (int o = 0; o < call->n_out; o++) {
        const struct sy_array *y = &call->out[o];
        int64_t size = o < parts->n ? sy_get_int(parts, o) : -1;
        if (parts->n != call->n_out || size != y->dims[axis] || at + size > x->dims[axis])
            return misfit(call);
        for (int64_t i = 0; i < outer; i++)
            memcpy((char *)y->data + (size_t)(i * size * inner) * bytes,
                   (const char *)x->data + (size_t)((i * x->dims[axis] + at) * inner) * bytes,
                   (size_t)(size * inner) * bytes);
        at += size;
    }
    return at == x->dims[axis] ? SY_OK : misfit(call);
}

static int check_split(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    int64_t axis = sy_node_int(call->node, "axis", 0);
    axis += axis < 0 ? x->rank : 0;
    bool fits = call->n_in == 2 && axis >= 0 && axis < x->rank;
    for (int o = 0; fits && o < call->n_out; o++) {
        fits = call->out[o].dtype == x->dtype && call->out[o].rank == x->rank;
        for (int d = 0; fits && d < x->rank; d++)
            fits = d == axis || call->out[o].dims[d] == x->dims[d];
    }
    return fits ? SY_OK : sy_kernel_refuse(call, "parts that do not fit");
}

/* ---- Pad ------------------------------------------------------------------------------------------ */

/* Source of position `at` of the padded axis; -1: the padding. */
static int64_t padded_source(const char *mode, int64_t at, int64_t n)
{
    if (at >= 0 && at < n)
        return at;
    if (strcmp(mode, "edge") == 0)
        return at < 0 ? 0 : n - 1;
    if (strcmp(mode, "wrap") == 0)
        return n ? (at % n + n) % n : -1;
    if (strcmp(mode, "reflect") != 0)
        return -1;
    if (n <= 1)
        return n - 1;
    int64_t period = 2 * (n - 1);
    at = (at % period + period) % period;
    return at < n ? at : period - at;
}

/* Sums of a few do not overflow. */
static bool is_small(int64_t value)
{
    return value > -((int64_t)1 << 48) && value < (int64_t)1 << 48;
}

/* Reads the padding before each dimension, from the attribute (all axes) or the inputs (perhaps some). */
static int read_pads(const struct sy_call *call, int64_t *before)
{
    const struct sy_array *x = &call->in[0], *given = sy_call_in(call, 1),
                          *axes = sy_call_in(call, 3), *y = &call->out[0];
    const struct sy_attr *attr = sy_node_attr(call->node, "pads");
    int64_t after[SY_MAX_RANK] = {0}, n = given && axes ? axes->n : x->rank;
    memset(before, 0, SY_MAX_RANK * sizeof *before);
    if ((given ? given->n : attr && attr->kind == SY_ATTR_INTS ? attr->n : -1) != 2 * n)
        return sy_kernel_fail(call, "pads do not fit %d dimensions", x->rank);
    for (int64_t i = 0; i < n; i++) {
        int64_t axis = given && axes ? sy_get_int(axes, i) : i;
        axis += axis < 0 ? x->rank : 0;
        if (axis < 0 || axis >= x->rank)
            return sy_kernel_fail(call, "axis %lld", (long long)axis);
        before[axis] = given ? sy_get_int(given, i) : attr->ints[i];
        after[axis] = given ? sy_get_int(given, i + n) : attr->ints[i + n];
        if (!is_small(before[axis]) || !is_small(after[axis]))
            return misfit(call);
    }
    for (int d = 0; d < x->rank; d++)
        if (y->rank != x->rank || y->dims[d] != x->dims[d] + before[d] + after[d])
            return misfit(call);
    return SY_OK;
}

/* One element. */
static const void *padding_of(const struct sy_call *call, int64_t *room)
{
    const struct sy_array *value = sy_call_in(call, 2);
    struct sy_array one = {.dtype = call->out[0].dtype, .n = 1, .data = room};
    if (value && call->node->op == SY_OP_RUN_PAD)
        return value->data;
    sy_put(&one, 0, (double)sy_node_float(call->node, "value", 0));
    return room;
}

static int run_pad(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    const struct sy_attr *attr = sy_node_attr(call->node, "mode");
    const char *mode = attr && attr->s ? attr->s : "constant";
    int64_t before[SY_MAX_RANK], strides[SY_MAX_RANK], room = 0;
    struct sy_pick pick;
    SY_TRY(read_pads(call, before));
    sy_array_strides(x, strides);
    sy_pick_start(&pick, y, call->scratch);
    for (int d = 0; d < x->rank; d++)
        for (int64_t i = 0; i < y->dims[d]; i++) {
            int64_t source = padded_source(mode, i - before[d], x->dims[d]);
            pick.from[d][i] = source < 0 ? -1 : source * strides[d];
        }
    sy_pick(&pick, x, y, padding_of(call, &room));
    return SY_OK;
}

static int check_pad(const struct sy_call *call)
{
    static const char *const modes[] = {"constant", "edge", "reflect", "wrap"};
    const struct sy_attr *mode = sy_node_attr(call->node, "mode");
    bool known = !mode || !mode->s;
    for (int i = 0; !known && i < 4; i++)
        known = strcmp(mode->s, modes[i]) == 0;
    if (!known)
        return sy_kernel_refuse(call, "this mode");
    if (mode && mode->s && strcmp(mode->s, "constant") != 0 && call->in[0].n == 0)
        return sy_kernel_refuse(call, "repeating what is in an empty tensor");
    if (call->in[0].rank != call->out[0].rank ||
        (sy_call_in(call, 2) && (call->in[2].n != 1 || call->in[2].dtype != call->in[0].dtype)))
        return sy_kernel_refuse(call, "a value or a result that does not fit");
    return check_any(call);
}

/* ---- diagonals, numbers, blocks ------------------------------------------------------------------- */

static int run_trilu(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    int64_t rows = x->dims[x->rank - 2], columns = x->dims[x->rank - 1];
    int64_t k = sy_call_in(call, 1) ? sy_get_int(&call->in[1], 0) : 0;
    bool upper = sy_node_int(call->node, "upper", 1) != 0;
    size_t bytes = sy_dtype_bytes(x->dtype);
    int64_t lines = columns ? x->n / columns : 0;
    k = clamp(k, -rows - columns, rows + columns);
#pragma omp parallel for schedule(static) if (x->n > PARALLEL_FROM)
    for (int64_t line = 0; line < lines; line++) {
        int64_t edge = line % rows + k, first = upper ? clamp(edge, 0, columns) : 0,
                end = upper ? columns : clamp(edge + 1, 0, columns);
        char *to = (char *)y->data + (size_t)(line * columns) * bytes;
        const char *from = (const char *)x->data + (size_t)(line * columns) * bytes;
        memset(to, 0, (size_t)first * bytes);
        memcpy(to + (size_t)first * bytes, from + (size_t)first * bytes,
               (size_t)(end - first) * bytes);
        memset(to + (size_t)end * bytes, 0, (size_t)(columns - end) * bytes);
    }
    return SY_OK;
}

static int check_trilu(const struct sy_call *call)
{
    if (call->in[0].rank < 2 || !sy_array_same_dims(&call->in[0], &call->out[0]) ||
        (sy_call_in(call, 1) && (call->in[1].n != 1 || call->in[1].dtype != SY_DTYPE_I64)))
        return sy_kernel_refuse(call, "operands that do not fit");
    return check_any(call);
}

static int run_eye_like(const struct sy_call *call)
{
    const struct sy_array *y = &call->out[0];
    int64_t k = sy_node_int(call->node, "k", 0);
    memset(y->data, 0, (size_t)y->n * sy_dtype_bytes(y->dtype));
    for (int64_t i = 0; i < y->dims[0]; i++)
        if (k < y->dims[1] && i + k >= 0 && i + k < y->dims[1])
            sy_put(y, i * y->dims[1] + i + k, 1);
    return SY_OK;
}

static int check_eye_like(const struct sy_call *call)
{
    return call->out[0].rank == 2 ? SY_OK : sy_kernel_refuse(call, "other than a matrix");
}

static int run_range(const struct sy_call *call)
{
    const struct sy_array *y = &call->out[0];
    bool floats = sy_is_float(y->dtype);
    double span = sy_get(&call->in[1], 0) - sy_get(&call->in[0], 0), step = sy_get(&call->in[2], 0);
    double count = step == 0 ? -1 : ceil(span / step);
    if ((count < 0 ? 0 : count) != (double)y->n || step == 0)
        return misfit(call);
    for (int64_t i = 0; i < y->n; i++) {
        if (floats)
            sy_put(y, i, sy_get(&call->in[0], 0) + (double)i * step);
        else
            sy_put_int(y, i,
                       (int64_t)((uint64_t)sy_get_int(&call->in[0], 0) +
                                 (uint64_t)i * (uint64_t)sy_get_int(&call->in[2], 0)));
    }
    return SY_OK;
}

static int check_range(const struct sy_call *call)
{
    for (int i = 0; i < 3; i++)
        if (call->n_in != 3 || !sy_call_in(call, i) || call->in[i].n != 1)
            return sy_kernel_refuse(call, "limits that are not one number each");
    return check_any(call);
}

/* Both arrangements as six dimensions: batch, channel, row of blocks, row and column in the block, column of blocks. */
static int run_blocks(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    const struct sy_attr *mode = sy_node_attr(call->node, "mode");
    int64_t b = sy_node_int(call->node, "blocksize", 1);
    bool to_space = call->node->op == SY_OP_DEPTH_TO_SPACE,
         crd = to_space && mode && mode->s && strcmp(mode->s, "CRD") == 0;
    const struct sy_array *image = to_space ? y : x, *deep = to_space ? x : y;
    int64_t channels = image->dims[1], height = deep->dims[2], width = deep->dims[3];
    int64_t plane = height * width, row = width * b, each = crd ? plane : channels * plane;
    int64_t in_deep[6] =
        {deep->dims[1] * plane, crd ? b * b * plane : plane, width, b * each, each, 1},
            in_image[6] = {channels * plane * b * b, plane * b * b, row * b, row, 1, b};
    struct sy_strided_move move = {.element_bytes = (int64_t)sy_dtype_bytes(x->dtype),
                                   .rank = 6,
                                   .dims = {image->dims[0], channels, height, b, b, width}};
    memcpy(move.from_strides, to_space ? in_deep : in_image, sizeof in_deep);
    memcpy(move.to_strides, to_space ? in_image : in_deep, sizeof in_deep);
    sy_move(&move, x->data, y->data);
    return SY_OK;
}

static int check_blocks(const struct sy_call *call)
{
    bool to_space = call->node->op == SY_OP_DEPTH_TO_SPACE;
    const struct sy_array *image = &call->out[0], *deep = &call->in[0];
    int64_t b = sy_node_int(call->node, "blocksize", 0);
    if (!to_space) {
        image = &call->in[0];
        deep = &call->out[0];
    }
    if (image->rank != 4 || deep->rank != 4 || b < 1 || image->dims[0] != deep->dims[0] ||
        image->dims[1] * b * b != deep->dims[1] || image->dims[2] != deep->dims[2] * b ||
        image->dims[3] != deep->dims[3] * b)
        return sy_kernel_refuse(call, "blocks that do not fit");
    return check_any(call);
}

#define OPERANDS                   \
    {                              \
        SY_ANY_MOVED, SY_ANY_INDEX \
    }
static int run_bits(const struct sy_call *call)
{
    size_t bytes = (size_t)call->in[0].n * sy_dtype_bytes(call->in[0].dtype);
    if (bytes > 0)
        memcpy(call->out[0].data, call->in[0].data, bytes);
    return SY_OK;
}

static int check_bits(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    return sy_dtype_bytes(x->dtype) == sy_dtype_bytes(y->dtype) && sy_array_same_dims(x, y)
               ? SY_OK
               : sy_kernel_refuse(call, "a result of another size");
}

const struct sy_kernel sy_kernels_move[] = {
    {SY_OP_RUN_RESHAPE, run_reshape, OPERANDS, check_view, NULL},
    {SY_OP_RUN_SQUEEZE, run_squeeze, OPERANDS, check_view, NULL},
    {SY_OP_RUN_UNSQUEEZE, run_squeeze, OPERANDS, check_view, NULL},
    {SY_OP_RUN_EXPAND, run_expand, OPERANDS, check_any, scratch_pick},
    {SY_OP_RUN_SLICE, run_slice, OPERANDS, check_slice, scratch_pick},
    {SY_OP_RUN_SPLIT, run_split, OPERANDS, check_split, NULL},
    {SY_OP_RUN_PAD,
     run_pad,
     {SY_ANY_MOVED, SY_ANY_INDEX, SY_ANY_MOVED, SY_ANY_INDEX},
     check_pad,
     scratch_pick},
    {SY_OP_PAD, run_pad, {SY_ANY_TYPE}, check_pad, scratch_pick},
    {SY_OP_TILE, run_tile, OPERANDS, check_tile, scratch_pick},
    {SY_OP_TRILU, run_trilu, OPERANDS, check_trilu, NULL},
    {SY_OP_BIT_CAST, run_bits, {SY_ANY_TYPE}, check_bits, NULL},
    {SY_OP_EYE_LIKE, run_eye_like, {SY_ANY_TYPE}, check_eye_like, NULL},
    {SY_OP_RANGE, run_range, {SY_ANY_NUMBER, SY_AS_FIRST}, check_range, NULL},
    {SY_OP_DEPTH_TO_SPACE, run_blocks, {SY_ANY_TYPE}, check_blocks, NULL},
    {SY_OP_SPACE_TO_DEPTH, run_blocks, {SY_ANY_TYPE}, check_blocks, NULL},
    {0}};
