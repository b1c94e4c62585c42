/* Reductions over any dimensions, the place of the largest, running sums, the largest k. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/reduction_formulas.h"
#include "workers/host/base/strings.h"
#include "workers/host/reference/kernel.h"
#include "workers/host/rows/collect_rows.h"
#include "workers/host/rows/scan_rows.h"
#include "workers/host/rows/top_rows.h"

/* ---- reductions ----------------------------------------------------------------------------------- */

static bool list_has(const struct sy_attr *list, int64_t value)
{
    for (int i = 0; i < list->n; i++)
        if (list->ints[i] == value)
            return true;
    return false;
}

/* From the attribute, which inference made, or from input 1, known only now. */
static int reduced_axes(const struct sy_call *call, bool *is_reduced)
{
    const struct sy_attr *attr = sy_node_attr(call->node, "axes");
    const struct sy_array *axes = sy_call_in(call, 1);
    int rank = call->in[0].rank;
    bool all = axes && axes->n == 0 && sy_node_int(call->node, "noop_with_empty_axes", 0) == 0;
    for (int i = 0; i < rank; i++)
        is_reduced[i] = all || (!axes && attr && attr->kind == SY_ATTR_INTS && list_has(attr, i));
    for (int64_t i = 0; axes && i < axes->n; i++) {
        int64_t axis = sy_get_int(axes, i);
        if (axis < -rank || axis >= rank)
            return sy_kernel_fail(call, "axis %lld of %d dimensions", (long long)axis, rank);
        is_reduced[axis < 0 ? axis + rank : axis] = true;
    }
    return SY_OK;
}

/* Strides of the result seen with the input's rank: 0 where it is reduced. False if the result has another shape. */
static bool result_strides(const struct sy_array *x, const struct sy_array *y,
                           const bool *is_reduced, bool keep, int64_t *strides)
{
    int k = y->rank - 1;
    int64_t stride = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        bool has = !is_reduced[i] || keep;
        int64_t wanted = is_reduced[i] ? 1 : x->dims[i];
        if (has && (k < 0 || y->dims[k] != wanted))
            return false;
        strides[i] = is_reduced[i] ? 0 : stride;
        stride *= wanted;
        k -= has;
    }
    return k < 0;
}

#define PIECE 256 /* elements of a row that are widened at once */

/* Elements [from, from + n) as doubles. */
static void widen(const struct sy_array *x, int64_t from, int64_t n, double *to)
{
    if (x->dtype == SY_DTYPE_F64)
        memcpy(to, (const double *)x->data + from, (size_t)n * sizeof *to);
    else if (x->dtype == SY_DTYPE_F32)
        for (int64_t i = 0; i < n; i++)
            to[i] = (double)((const float *)x->data)[from + i];
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = sy_get(x, from + i);
}

/* Elements [from, from + n) in the order of the integers where the reduction asks for it. */
static void widen_integers(const struct sy_array *x, bool ordered, int64_t from, int64_t n,
                           int64_t *to)
{
    if (x->dtype == SY_DTYPE_I64)
        memcpy(to, (const int64_t *)x->data + from, (size_t)n * sizeof *to);
    else if (x->dtype == SY_DTYPE_I32)
        for (int64_t i = 0; i < n; i++)
            to[i] = ((const int32_t *)x->data)[from + i];
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = ordered ? sy_get_ordered(x, from + i) : sy_get_int(x, from + i);
}

/* A row of x: elements that follow each other and go to sums `stride` apart. Without dimensions it is one element. */
struct rows {
    int64_t length, stride;
};

static struct rows rows_of(const struct sy_array *x, const int64_t *strides)
{
    return x->rank == 0 ? (struct rows){1, 0}
                        : (struct rows){x->dims[x->rank - 1], strides[x->rank - 1]};
}

/* In scratch: one accumulator for each element of the result. */
static void reduce_floats(const struct sy_call *call, const int64_t *strides, double *sums)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    const struct rows rows = rows_of(x, strides);
    enum sy_op op = call->node->op;
    double piece[PIECE];
    for (int64_t i = 0; i < y->n; i++)
        sums[i] = op == SY_OP_REDUCE_LOG_SUM_EXP ? -INFINITY : sy_reduction_start(op);
    for (int64_t row = 0; row < x->n; row += rows.length) {
        double *to = &sums[sy_array_offset(x, row, strides)];
        for (int64_t i = 0, n; i < rows.length; i += n) {
            n = SY_MIN(rows.length - i, PIECE);
            widen(x, row + i, n, piece);
            sy_collect_row(op, n, piece, to + i * rows.stride, rows.stride);
        }
    }
    for (int64_t i = 0; i < y->n; i++)
        sy_put(y, i, sy_reduction_finish(op, sums[i], y->n ? x->n / y->n : 0));
}

/* A sum of n elements, as the result has it. */
static int64_t finish_integer(enum sy_op op, const struct sy_array *x, int64_t sum, int64_t n)
{
    bool is_unsigned = x->dtype == SY_DTYPE_U64;
    if (is_unsigned && (op == SY_OP_REDUCE_MAX || op == SY_OP_REDUCE_MIN))
        return n > 0 ? sum ^ INT64_MIN : sum; /* they were collected in order */
    if (op != SY_OP_REDUCE_MEAN || n == 0)
        return sum;
    return is_unsigned ? (int64_t)((uint64_t)sum / (uint64_t)n) : sum / n;
}

static void reduce_integers(const struct sy_call *call, const int64_t *strides, int64_t *sums)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    const struct rows rows = rows_of(x, strides);
    enum sy_op op = call->node->op, how = op;
    bool ordered = op == SY_OP_REDUCE_MAX || op == SY_OP_REDUCE_MIN;
    int64_t *seen = sums + y->n, count = y->n ? x->n / y->n : 0, piece[PIECE];
    if (op == SY_OP_REDUCE_L1 && x->dtype == SY_DTYPE_U64)
        how = SY_OP_REDUCE_SUM; /* nothing is below 0 */
    memset(sums, 0, 2 * (size_t)y->n * sizeof *sums);
    for (int64_t row = 0; row < x->n; row += rows.length) {
        int64_t at = sy_array_offset(x, row, strides);
        for (int64_t i = 0, n; i < rows.length; i += n) {
            n = SY_MIN(rows.length - i, PIECE);
            widen_integers(x, ordered, row + i, n, piece);
            sy_collect_integers(how, n, piece, &sums[at + i * rows.stride],
                                &seen[at + i * rows.stride], rows.stride);
        }
    }
    for (int64_t i = 0; i < y->n; i++)
        sy_put_int(y, i, finish_integer(op, x, sums[i], count));
}

static int run_reduce(const struct sy_call *call)
{
    bool is_reduced[SY_MAX_RANK] = {false};
    int64_t strides[SY_MAX_RANK];
    SY_TRY(reduced_axes(call, is_reduced));
    if (!result_strides(&call->in[0], &call->out[0], is_reduced,
                        sy_node_int(call->node, "keepdims", 1) != 0, strides))
        return sy_kernel_fail(call, "its axes lead to another shape than the file declares");
    bool whole = !sy_is_float(call->in[0].dtype) && call->node->op != SY_OP_REDUCE_L2 &&
                 call->node->op != SY_OP_REDUCE_LOG_SUM &&
                 call->node->op != SY_OP_REDUCE_LOG_SUM_EXP;
    if (whole)
        reduce_integers(call, strides, call->scratch);
    else
        reduce_floats(call, strides, call->scratch);
    return SY_OK;
}

static int64_t scratch_reduce(const struct sy_call *call)
{
    return 2 * call->out[0].n * (int64_t)sizeof(double);
}

static int check_reduce(const struct sy_call *call)
{
    bool is_reduced[SY_MAX_RANK] = {false};
    int64_t strides[SY_MAX_RANK];
    if (call->n_in > 1)
        return SY_OK; /* when it runs */
    SY_TRY(reduced_axes(call, is_reduced));
    if (!result_strides(&call->in[0], &call->out[0], is_reduced,
                        sy_node_int(call->node, "keepdims", 1) != 0, strides))
        return sy_kernel_refuse(call, "a result of another shape");
    return SY_OK;
}

/* ---- along one axis ------------------------------------------------------------------------------- */

/* Lines along an axis: the first element of line k, and the step. */
struct lines {
    int64_t count, length, step;
};

static struct lines lines_of(const struct sy_array *x, int axis)
{
    return (struct lines){.count = x->dims[axis] ? x->n / x->dims[axis] : 0,
                          .length = x->dims[axis],
                          .step = sy_array_extent(x, axis + 1, x->rank)};
}

static int64_t line_start(const struct lines *l, int64_t k)
{
    return k / l->step * l->step * l->length + k % l->step;
}

static int axis_of(const struct sy_call *call)
{
    int64_t axis = sy_node_int(call->node, "axis", -1);
    int rank = call->in[0].rank;
    axis = axis < 0 ? axis + rank : axis;
    return axis >= 0 && axis < rank ? (int)axis : -1;
}

/* Below 0: element b of the type goes before element a; 0: they are equal. */
static int arg_order(const struct sy_array *x, bool largest, int64_t a, int64_t b)
{
    if (!sy_is_float(x->dtype)) {
        int64_t p = sy_get_ordered(x, a), q = sy_get_ordered(x, b);
        return p == q ? 0 : (p > q) == largest ? 1 : -1;
    }
    double p = sy_get(x, a), q = sy_get(x, b);
    return p == q ? 0 : (largest ? p > q : p < q) ? 1 : -1;
}

static int run_arg(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    struct lines l = lines_of(x, axis_of(call));
    bool largest = call->node->op == SY_OP_ARG_MAX;
    bool last = sy_node_int(call->node, "select_last_index", 0) != 0;
    for (int64_t k = 0; k < l.count; k++) {
        int64_t start = line_start(&l, k), best = 0;
        for (int64_t i = 1; i < l.length; i++) {
            int order = arg_order(x, largest, start + i * l.step, start + best * l.step);
            if (order > 0 || (last && order == 0))
                best = i;
        }
        sy_put_int(&call->out[0], k, best);
    }
    return SY_OK;
}

static int check_arg(const struct sy_call *call)
{
    int axis = axis_of(call);
    if (axis < 0 || call->out[0].dtype != SY_DTYPE_I64 ||
        call->out[0].n != lines_of(&call->in[0], axis).count)
        return sy_kernel_refuse(call, "an axis or a result that does not fit");
    return SY_OK;
}

/* False: of another type. */
static bool scan_rows(const struct sy_call *call, const struct sy_scan *s)
{
    const struct sy_array *x = &call->in[0];
    void *y = call->out[0].data;
    if (x->dtype == SY_DTYPE_F32)
        sy_scan_floats(s, x->data, y);
    else if (x->dtype == SY_DTYPE_I32)
        sy_scan_int32s(s, x->data, y);
    else if (x->dtype == SY_DTYPE_I64)
        sy_scan_int64s(s, x->data, y);
    else
        return false;
    return true;
}

static int run_cum_sum(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    int64_t axis = sy_get_int(&call->in[1], 0);
    axis = axis < 0 ? axis + x->rank : axis;
    if (axis < 0 || axis >= x->rank)
        return sy_kernel_fail(call, "axis %lld of %d dimensions", (long long)axis, x->rank);
    struct lines l = lines_of(x, (int)axis);
    bool exclusive = sy_node_int(call->node, "exclusive", 0) != 0,
         backward = sy_node_int(call->node, "reverse", 0) != 0, floats = sy_is_float(x->dtype);
    bool multiplies = call->node->op == SY_OP_CUM_PROD;
    if (x->n == 0)
        return SY_OK;
    if (!multiplies &&
        scan_rows(call, &(struct sy_scan){l.count / l.step, l.length, l.step, backward, exclusive}))
        return SY_OK;
    for (int64_t k = 0; k < l.count; k++) {
        int64_t start = line_start(&l, k), whole = multiplies;
        double sum = multiplies;
        for (int64_t i = 0; i < l.length; i++) {
            int64_t at = start + (backward ? l.length - 1 - i : i) * l.step;
            double before = sum;
            int64_t whole_before = whole;
            double value = floats ? sy_get(x, at) : 0;
            uint64_t number = (uint64_t)(floats ? 0 : sy_get_int(x, at));
            sum = multiplies ? sum * value : sum + value;
            whole = (int64_t)(multiplies ? (uint64_t)whole * number : (uint64_t)whole + number);
            if (floats)
                sy_put(&call->out[0], at, exclusive ? before : sum);
            else
                sy_put_int(&call->out[0], at, exclusive ? whole_before : whole);
        }
    }
    return SY_OK;
}

static int check_cum_sum(const struct sy_call *call)
{
    if (call->n_in != 2 || call->in[1].n != 1 || !sy_array_same_dims(&call->in[0], &call->out[0]))
        return sy_kernel_refuse(call, "an axis that is not one number");
    return SY_OK;
}

/* ---- TopK ----------------------------------------------------------------------------------------- */

/* Whether element a of the line goes before b: larger (or smaller), of equal ones the first. */
static bool before(const struct sy_array *x, double sign, int64_t start, int64_t step, int64_t a,
                   int64_t b)
{
    if (!sy_is_float(x->dtype)) {
        int64_t p = sy_get_ordered(x, start + a * step), q = sy_get_ordered(x, start + b * step);
        return p != q ? (p > q) == (sign > 0) : a < b;
    }
    double p = sign * sy_get(x, start + a * step), q = sign * sy_get(x, start + b * step);
    return p != q ? p > q : a < b;
}

/* The k first of the order, kept sorted by insertion from the end: k is small in what people have. */
static void best_of_line(const struct sy_array *x, const struct lines *l, int64_t start,
                         double sign, int64_t k, int64_t *best)
{
    int64_t n = 0;
    for (int64_t i = 0; i < l->length; i++) {
        if (n == k && (k == 0 || !before(x, sign, start, l->step, i, best[k - 1])))
            continue;
        int64_t at = n < k ? n++ : k - 1;
        for (; at > 0 && before(x, sign, start, l->step, i, best[at - 1]); at--)
            best[at] = best[at - 1];
        best[at] = i;
    }
}

static int run_top_k(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *values = &call->out[0],
                          *indices = sy_call_out(call, 1), *given = sy_call_in(call, 1);
    int axis = axis_of(call);
    struct lines l = lines_of(x, axis), to = lines_of(values, axis);
    double sign = sy_node_int(call->node, "largest", 1) != 0 ? 1 : -1;
    if (given && sy_get_int(given, 0) != values->dims[axis])
        return sy_kernel_fail(call, "K is %lld, the file declares a result of %lld",
                              (long long)sy_get_int(given, 0), (long long)values->dims[axis]);
    if (x->dtype == SY_DTYPE_F32 && l.length <= UINT32_MAX) {
        sy_top_rows(&(struct sy_top){l.count, l.length, l.step, to.length, sign < 0}, x->data,
                    call->scratch, values->data, indices ? indices->data : NULL);
        return SY_OK;
    }
    for (int64_t k = 0; k < l.count; k++) {
        int64_t *best = call->scratch, start = line_start(&l, k), out = line_start(&to, k);
        best_of_line(x, &l, start, sign, to.length, best);
        for (int64_t i = 0; i < to.length; i++) {
            sy_array_copy(values, out + i * to.step, x, start + best[i] * l.step);
            if (indices)
                sy_put_int(indices, out + i * to.step, best[i]);
        }
    }
    return SY_OK;
}

static int check_top_k(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0], *indices = sy_call_out(call, 1);
    int axis = axis_of(call);
    bool fits = axis >= 0 && y->rank == x->rank && y->dtype == x->dtype &&
                (!indices || (sy_array_same_dims(indices, y) && indices->dtype == SY_DTYPE_I64));
    for (int i = 0; fits && i < x->rank; i++)
        fits = i == axis ? y->dims[i] <= x->dims[i] : y->dims[i] == x->dims[i];
    if (!fits || (sy_call_in(call, 1) && call->in[1].n != 1))
        return sy_kernel_refuse(call, "a result that does not fit");
    return SY_OK;
}

static int64_t scratch_top_k(const struct sy_call *call)
{
    struct lines to = lines_of(&call->out[0], axis_of(call));
    return (sy_top_scratch(to.count, to.length) + 1) * (int64_t)sizeof(int64_t);
}

/* ---- Unique --------------------------------------------------------------------------------------- */

/* Slices along an axis (single elements without one) are compared element by element. */
struct slices {
    const struct sy_array *x;
    struct lines l; /* `step` elements at a time; count / step blocks */
    int64_t n;
};

/* NaN sorts last; all NaNs are one value. */
static int compare_elements(const struct sy_array *x, int64_t i, int64_t k)
{
    if (x->dtype == SY_DTYPE_STRING)
        return sy_strings_compare(((const struct sy_string *)x->data)[i],
                                  ((const struct sy_string *)x->data)[k]);
    if (!sy_is_float(x->dtype)) {
        int64_t p = sy_get_ordered(x, i), q = sy_get_ordered(x, k);
        return p < q ? -1 : p > q;
    }
    double p = sy_get(x, i), q = sy_get(x, k);
    return isnan(p) || isnan(q) ? isnan(p) - isnan(q) : p < q ? -1 : p > q;
}

static int compare_slices(const struct slices *s, int64_t a, int64_t b)
{
    int order = 0;
    for (int64_t k = 0; k < s->l.count && order == 0; k++) {
        int64_t start = line_start(&s->l, k);
        order = compare_elements(s->x, start + a * s->l.step, start + b * s->l.step);
    }
    return order;
}

/* Two sorted runs, [low, middle) and [middle, high), into one; what is equal keeps its order. */
static void merge(const struct slices *s, const int64_t *from, int64_t low, int64_t middle,
                  int64_t high, int64_t *to)
{
    int64_t a = low, b = middle;
    for (int64_t i = low; i < high; i++) {
        bool takes_first = a < middle && (b == high || compare_slices(s, from[a], from[b]) <= 0);
        to[i] = takes_first ? from[a++] : from[b++];
    }
}

/* All slices by their values, those that are equal as they come; in `order` or `spare`. */
static int64_t *sort_slices(const struct slices *s, int64_t *order, int64_t *spare)
{
    for (int64_t i = 0; i < s->n; i++)
        order[i] = i;
    for (int64_t run = 1; run < s->n; run *= 2) {
        for (int64_t low = 0; low < s->n; low += 2 * run)
            merge(s, order, low, SY_MIN(low + run, s->n), SY_MIN(low + 2 * run, s->n), spare);
        int64_t *sorted = spare;
        spare = order;
        order = sorted;
    }
    return order;
}

/* Values in the order in which they appear, which ends at `n`; place[n] is overwritten. */
static void order_by_appearance(int64_t slices, int64_t n, int64_t *first, int64_t *rank_of,
                                int64_t *counts, int64_t *place)
{
    int64_t *old_counts = place + n, next = 0;
    memcpy(old_counts, counts, (size_t)n * sizeof *counts);
    for (int64_t i = 0; i < slices; i++) {
        int64_t k = rank_of[i];
        if (first[k] == i)
            place[k] = next++;
        rank_of[i] = place[k];
    }
    for (int64_t k = 0; k < n; k++)
        counts[place[k]] = old_counts[k];
    memset(first, 0xff, (size_t)n * sizeof *first);
    for (int64_t i = slices - 1; i >= 0; i--)
        first[rank_of[i]] = i;
}

/* first[i]: the first slice of the i-th value, in order of appearance or sorted; rank_of[slice]: its i; counts[i]. spare: of two elements a
 * slice. Returns how many. */
static int64_t find_unique(const struct slices *s, bool sorted, int64_t *first, int64_t *rank_of,
                           int64_t *counts, int64_t *spare)
{
    const int64_t *order = sort_slices(s, spare, spare + s->n);
    int64_t n = 0;
    for (int64_t i = 0; i < s->n; i++) {
        if (i == 0 || compare_slices(s, order[i - 1], order[i]) != 0) {
            first[n] = order[i];
            counts[n++] = 0;
        }
        rank_of[order[i]] = n - 1;
        counts[n - 1]++;
    }
    if (!sorted)
        order_by_appearance(s->n, n, first, rank_of, counts, spare);
    return n;
}

static struct slices slices_of(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    struct slices s = {.x = x, .l = {1, x->n, 1}, .n = x->n};
    if (sy_node_attr(call->node, "axis")) {
        s.l = lines_of(x, axis_of(call));
        s.n = s.l.length;
    }
    return s;
}

static int run_unique(const struct sy_call *call)
{
    struct slices s = slices_of(call);
    int64_t *first = call->scratch, *rank_of = first + s.n, *counts = rank_of + s.n,
            *spare = counts + s.n;
    const struct sy_array *y = &call->out[0];
    int64_t n =
        find_unique(&s, sy_node_int(call->node, "sorted", 1) != 0, first, rank_of, counts, spare);
    bool has_axis = sy_node_attr(call->node, "axis") != NULL;
    SY_TRY(sy_kernel_count(call, n, has_axis ? y->dims[axis_of(call)] : y->n));
    if (call->counted)
        return SY_OK;
    struct lines to = has_axis ? lines_of(y, axis_of(call)) : (struct lines){1, n, 1};
    for (int64_t k = 0; k < to.count; k++)
        for (int64_t i = 0; i < n; i++)
            sy_array_copy(y, line_start(&to, k) + i * to.step, s.x,
                          line_start(&s.l, k) + first[i] * s.l.step);
    for (int o = 1; o < call->n_out; o++) {
        const struct sy_array *list = sy_call_out(call, o);
        const int64_t *from = o == 1 ? first : o == 2 ? rank_of : counts;
        if (list && list->n != (o == 2 ? s.n : n))
            return sy_kernel_fail(call, "output %d is declared with another size", o);
        for (int64_t i = 0; list && i < list->n; i++)
            sy_put_int(list, i, from[i]);
    }
    return SY_OK;
}

static int check_unique(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    bool has_axis = sy_node_attr(call->node, "axis") != NULL;
    int axis = axis_of(call);
    bool fits = y->dtype == x->dtype && x->n > 0 && (!has_axis || axis >= 0) &&
                y->rank == (has_axis ? x->rank : 1);
    for (int i = 0; fits && has_axis && i < x->rank; i++)
        fits = i == axis || y->dims[i] == x->dims[i];
    for (int o = 1; o < call->n_out; o++)
        fits = fits && (!sy_call_out(call, o) || call->out[o].dtype == SY_DTYPE_I64);
    return fits ? SY_OK : sy_kernel_refuse(call, "no elements, or a result that does not fit");
}

static int64_t scratch_unique(const struct sy_call *call)
{
    return (5 * call->in[0].n + 5) * (int64_t)sizeof(int64_t);
}

#define REDUCE(op)                                                                  \
    {                                                                               \
        op, run_reduce, {SY_ANY_NUMBER, SY_ANY_INDEX}, check_reduce, scratch_reduce \
    }
const struct sy_kernel sy_kernels_reduce[] = {
    REDUCE(SY_OP_REDUCE_MEAN),
    REDUCE(SY_OP_REDUCE_SUM),
    REDUCE(SY_OP_REDUCE_MAX),
    REDUCE(SY_OP_REDUCE_MIN),
    REDUCE(SY_OP_REDUCE_PROD),
    REDUCE(SY_OP_REDUCE_L1),
    REDUCE(SY_OP_REDUCE_L2),
    REDUCE(SY_OP_REDUCE_LOG_SUM),
    REDUCE(SY_OP_REDUCE_LOG_SUM_EXP),
    REDUCE(SY_OP_REDUCE_SUM_SQUARE),
    {SY_OP_ARG_MAX, run_arg, {SY_ANY_NUMBER}, check_arg, NULL},
    {SY_OP_ARG_MIN, run_arg, {SY_ANY_NUMBER}, check_arg, NULL},
    {SY_OP_CUM_PROD, run_cum_sum, {SY_ANY_NUMBER, SY_ANY_INDEX}, check_cum_sum, NULL},
    {SY_OP_CUM_SUM, run_cum_sum, {SY_ANY_NUMBER, SY_ANY_INDEX}, check_cum_sum, NULL},
    {SY_OP_TOP_K, run_top_k, {SY_ANY_NUMBER, SY_ANY_INDEX}, check_top_k, scratch_top_k},
    {SY_OP_UNIQUE, run_unique, {SY_ANY_MOVED}, check_unique, scratch_unique},
    {0}};
