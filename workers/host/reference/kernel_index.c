/* Reading and writing by index. Every index is checked when it is used. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/clones.h"
#include "workers/host/reference/kernel.h"

enum { PARALLEL_FROM = 16384, SCATTER_COLUMNS = 2048 };

static int check_index(const struct sy_call *call, int64_t *index, int64_t extent)
{
    if (*index < -extent || *index >= extent)
        return sy_kernel_fail(call, "index %lld is not in [-%lld, %lld)", (long long)*index,
                              (long long)extent, (long long)extent);
    *index += *index < 0 ? extent : 0;
    return SY_OK;
}

/* Elements of the common sizes, and longer runs. */
static inline void copy_run(char *to, const char *from, size_t bytes)
{
    if (bytes == sizeof(uint32_t))
        memcpy(to, from, sizeof(uint32_t));
    else if (bytes == sizeof(uint64_t))
        memcpy(to, from, sizeof(uint64_t));
    else
        memcpy(to, from, bytes);
}

/* The first index outside, in order. */
static int name_bad_index(const struct sy_call *call, int64_t extent)
{
    for (int64_t i = 0; i < call->in[1].n; i++) {
        int64_t index = sy_get_int(&call->in[1], i);
        SY_TRY(check_index(call, &index, extent));
    }
    return SY_OK;
}

static int axis_of(const struct sy_call *call, int64_t otherwise, int rank)
{
    int64_t axis = sy_node_int(call->node, "axis", otherwise);
    axis = axis < 0 ? axis + rank : axis;
    return axis >= 0 && axis < rank ? (int)axis : -1;
}

/* ---- along one axis ------------------------------------------------------------------------------- */

/* Along a row of indices: element i comes from base + i * along + index * stride. Inlined where `bytes` is a constant. False: an index is
 * outside. */
static inline bool gather_row(const struct sy_array *indices, int64_t row, int64_t n,
                              int64_t extent, int64_t along, int64_t stride, const char *base,
                              char *to, int64_t bytes)
{
    bool inside = true;
    for (int64_t i = 0; inside && i < n; i++) {
        int64_t index = sy_get_int(indices, row * n + i);
        inside = index >= -extent && index < extent;
        index += index < 0 ? extent : 0;
        if (inside)
            memcpy(to + i * bytes, base + (i * along + index * stride) * bytes, (size_t)bytes);
    }
    return inside;
}

/* Computes one row of the result. */
static bool gather_elements(const struct sy_call *call, int axis, const int64_t *strides,
                            int64_t row)
{
    const struct sy_array *x = &call->in[0], *indices = &call->in[1];
    int last = x->rank - 1;
    int64_t n = indices->dims[last], along = axis == last ? 0 : 1, left = row, from = 0,
            bytes = (int64_t)sy_dtype_bytes(x->dtype), extent = x->dims[axis];
    for (int d = last - 1; d >= 0; d--) {
        from += d == axis ? 0 : left % indices->dims[d] * strides[d];
        left /= indices->dims[d];
    }
    const char *base = (const char *)x->data + from * bytes;
    char *to = (char *)call->out[0].data + row * n * bytes;
    if (bytes == 4)
        return gather_row(indices, row, n, extent, along, strides[axis], base, to, 4);
    if (bytes == 8)
        return gather_row(indices, row, n, extent, along, strides[axis], base, to, 8);
    return gather_row(indices, row, n, extent, along, strides[axis], base, to, bytes);
}

static int run_gather_elements(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *indices = &call->in[1];
    int axis = axis_of(call, 0, x->rank);
    int64_t strides[SY_MAX_RANK], rows = indices->n ? indices->n / indices->dims[x->rank - 1] : 0;
    bool inside = true;
    sy_array_strides(x, strides);
#pragma omp parallel for schedule(static) if (indices->n > PARALLEL_FROM) reduction(&& : inside)
    for (int64_t row = 0; row < rows; row++)
        inside = gather_elements(call, axis, strides, row) && inside;
    return inside ? SY_OK : name_bad_index(call, x->dims[axis]);
}

/* Indices may be smaller than the data but for the axis. */
static bool indices_fit(const struct sy_array *x, const struct sy_array *indices, int axis)
{
    bool fits = axis >= 0 && indices->rank == x->rank;
    for (int i = 0; fits && i < x->rank; i++)
        fits = i == axis || indices->dims[i] <= x->dims[i];
    return fits;
}

static int check_gather_elements(const struct sy_call *call)
{
    if (call->n_in != 2 ||
        !indices_fit(&call->in[0], &call->in[1], axis_of(call, 0, call->in[0].rank)) ||
        !sy_array_same_dims(&call->in[1], &call->out[0]))
        return sy_kernel_refuse(call, "indices that do not fit");
    return SY_OK;
}

enum reduction { PUT, ADD, MUL, MAX, MIN, UNKNOWN };

static enum reduction reduction_of(const struct sy_node *node)
{
    static const char *const names[] = {"none", "add", "mul", "max", "min"};
    const struct sy_attr *attr = sy_node_attr(node, "reduction");
    for (int i = 0; attr && attr->s && i < UNKNOWN; i++)
        if (strcmp(attr->s, names[i]) == 0)
            return (enum reduction)i;
    return attr ? UNKNOWN : PUT;
}

/* n updates that follow each other, to elements that do. */
SY_CLONES static void scatter_floats(enum reduction how, int64_t n, float *restrict to,
                                     const float *restrict from)
{
    for (int64_t i = 0; how == ADD && i < n; i++)
        to[i] += from[i];
    for (int64_t i = 0; how == MUL && i < n; i++)
        to[i] *= from[i];
}

static void scatter_one(enum reduction how, const struct sy_array *y, int64_t to,
                        const struct sy_array *updates, int64_t from)
{
    double a, b;
    if (how == PUT) {
        sy_array_copy(y, to, updates, from);
    } else if (sy_is_float(y->dtype)) {
        a = sy_get(y, to);
        b = sy_get(updates, from);
        sy_put(y, to,
               how == ADD   ? a + b
               : how == MUL ? a * b
               : how == MAX ? fmax(a, b)
                            : fmin(a, b));
    } else {
        int64_t p = sy_get_int(y, to), q = sy_get_int(updates, from);
        bool is_more = sy_get_ordered(y, to) > sy_get_ordered(updates, from);
        int64_t sum = (int64_t)((uint64_t)p + (uint64_t)q),
                product = (int64_t)((uint64_t)p * (uint64_t)q);
        sy_put_int(y, to,
                   how == ADD   ? sum
                   : how == MUL ? product
                   : how == MAX ? (is_more ? p : q)
                                : (is_more ? q : p));
    }
}

static void scatter_run(enum reduction how, const struct sy_array *y, int64_t to,
                        const struct sy_array *updates, int64_t from, int64_t n)
{
    size_t bytes = sy_dtype_bytes(y->dtype);
    if (how == PUT)
        copy_run((char *)y->data + (size_t)to * bytes,
                 (const char *)updates->data + (size_t)from * bytes, (size_t)n * bytes);
    else if (y->dtype == SY_DTYPE_F32 && (how == ADD || how == MUL))
        scatter_floats(how, n, (float *)y->data + to, (const float *)updates->data + from);
    else
        for (int64_t i = 0; i < n; i++)
            scatter_one(how, y, to + i, updates, from + i);
}

/* Indices as large as the data but along the axis: what an element replaces lies in its own column. */
static bool has_columns(const struct sy_call *call, int axis)
{
    const struct sy_array *x = &call->in[0], *indices = &call->in[1];
    bool same = true;
    for (int d = 0; same && d < x->rank; d++)
        same = d == axis || x->dims[d] == indices->dims[d];
    return same;
}

/* Columns [from, to) of a row of indices into the rows that they name; neighbours with one index go together. */
static int scatter_row(const struct sy_call *call, enum reduction how, int64_t size, int64_t row,
                       int64_t outer, int64_t inner, int64_t from, int64_t to)
{
    const struct sy_array *indices = &call->in[1], *updates = &call->in[2], *y = &call->out[0];
    const int64_t *wide = indices->dtype == SY_DTYPE_I64 ? indices->data : NULL;
    for (int64_t i = from, next; i < to; i = next) {
        int64_t at = row * inner + i, index = sy_get_int(indices, at), given = index;
        SY_TRY(check_index(call, &index, size));
        next = i + 1;
        while (wide && next < to && wide[row * inner + next] == given)
            next++;
        int64_t k = (outer * size + index) * inner + i;
        scatter_run(how, y, k, updates, at, next - i);
    }
    return SY_OK;
}

/* Threads share the columns: which of two elements for one place comes last is seen by one thread. */
static int scatter_columns(const struct sy_call *call, int axis, enum reduction how)
{
    const struct sy_array *x = &call->in[0], *indices = &call->in[1];
    int64_t inner = sy_array_extent(x, axis + 1, x->rank), rows = indices->dims[axis],
            outer = sy_array_extent(x, 0, axis), size = x->dims[axis];
    int64_t piece = SCATTER_COLUMNS, pieces = (inner + piece - 1) / piece;
    int failed = SY_OK;
#pragma omp parallel for schedule(static) if (indices->n > PARALLEL_FROM && pieces > 1)
    for (int64_t p = 0; p < pieces; p++) {
        int64_t from = p * piece, to = SY_MIN(from + piece, inner);
        int status = SY_OK;
        for (int64_t r = 0; r < outer * rows && status == SY_OK; r++)
            status = scatter_row(call, how, size, r, r / rows, inner, from, to);
        if (status < 0) {
#pragma omp critical(sy_scatter)
            failed = status;
        }
    }
    return failed < 0 ? name_bad_index(call, size) : SY_OK; /* the text was the thread's own */
}

/* A row of indices, whose first element without the axis would go to `base`: each `along` further. */
static int scatter_indices(const struct sy_call *call, enum reduction how, int64_t row,
                           int64_t base, int64_t along, int axis, int64_t stride)
{
    const struct sy_array *indices = &call->in[1], *updates = &call->in[2], *y = &call->out[0];
    int64_t n = indices->dims[indices->rank - 1], size = y->dims[axis];
    for (int64_t i = 0; i < n; i++) {
        int64_t from = row * n + i, index = sy_get_int(indices, from);
        SY_TRY(check_index(call, &index, size));
        int64_t to = base + i * along + index * stride;
        if (y->dtype == SY_DTYPE_F32 && how <= ADD) {
            float *at = (float *)y->data + to, update = ((const float *)updates->data)[from];
            *at = how == PUT ? update : *at + update;
        } else {
            scatter_one(how, y, to, updates, from);
        }
    }
    return SY_OK;
}

static int run_scatter_elements(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *indices = &call->in[1], *y = &call->out[0];
    int axis = axis_of(call, 0, x->rank), last = x->rank - 1;
    int64_t strides[SY_MAX_RANK], rows = indices->n ? indices->n / indices->dims[last] : 0;
    enum reduction how = reduction_of(call->node);
    sy_array_strides(y, strides);
    memcpy(y->data, x->data, (size_t)x->n * sy_dtype_bytes(x->dtype));
    if (axis != last && has_columns(call, axis))
        return scatter_columns(call, axis, how);
    for (int64_t row = 0; row < rows; row++) {
        int64_t left = row, base = 0;
        for (int d = last - 1; d >= 0; d--) {
            base += d == axis ? 0 : left % indices->dims[d] * strides[d];
            left /= indices->dims[d];
        }
        SY_TRY(scatter_indices(call, how, row, base, axis != last, axis, strides[axis]));
    }
    return SY_OK;
}

static int check_scatter_elements(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    if (call->n_in != 3 || call->in[2].dtype != x->dtype ||
        !indices_fit(x, &call->in[1], axis_of(call, 0, x->rank)) ||
        !sy_array_same_dims(&call->in[1], &call->in[2]) || !sy_array_same_dims(x, &call->out[0]))
        return sy_kernel_refuse(call, "indices or updates that do not fit");
    if (reduction_of(call->node) == UNKNOWN ||
        (x->dtype == SY_DTYPE_STRING && reduction_of(call->node) != PUT))
        return sy_kernel_refuse(call, "this reduction");
    return SY_OK;
}

/* ---- tuples of indices ---------------------------------------------------------------------------- */

/* The offset of the slice that tuple k names, `depth` indices from dimension `first` on. */
static int tuple_offset(const struct sy_call *call, const int64_t *strides, int64_t k, int first,
                        int64_t depth, int64_t *out)
{
    const struct sy_array *x = &call->in[0];
    *out = 0;
    for (int64_t i = 0; i < depth; i++) {
        int64_t index = sy_get_int(&call->in[1], k * depth + i);
        SY_TRY(check_index(call, &index, x->dims[first + i]));
        *out += index * strides[first + i];
    }
    return SY_OK;
}

static int run_gather_nd(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *indices = &call->in[1], *y = &call->out[0];
    int batch = (int)sy_node_int(call->node, "batch_dims", 0);
    int64_t depth = indices->dims[indices->rank - 1], tuples = depth ? indices->n / depth : 0;
    int64_t batches = sy_array_extent(x, 0, batch), each = batches ? tuples / batches : 0;
    int64_t block = sy_array_extent(x, batch, x->rank),
            run = sy_array_extent(x, batch + (int)depth, x->rank);
    size_t bytes = sy_dtype_bytes(x->dtype);
    int64_t strides[SY_MAX_RANK];
    sy_array_strides(x, strides);
    for (int64_t k = 0; k < tuples; k++) {
        int64_t offset;
        SY_TRY(tuple_offset(call, strides, k, batch, depth, &offset));
        copy_run((char *)y->data + (size_t)(k * run) * bytes,
                 (const char *)x->data + (size_t)(k / each * block + offset) * bytes,
                 (size_t)run * bytes);
    }
    return SY_OK;
}

static int check_gather_nd(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *indices = &call->in[1];
    int64_t batch = sy_node_int(call->node, "batch_dims", 0);
    if (call->n_in != 2 || indices->rank < 1 || batch < 0 || batch >= indices->rank ||
        batch > x->rank)
        return sy_kernel_refuse(call, "indices that do not fit");
    int64_t depth = indices->dims[indices->rank - 1];
    bool fits = depth >= 1 && batch + depth <= x->rank;
    for (int i = 0; fits && i < batch; i++)
        fits = indices->dims[i] == x->dims[i];
    if (!fits ||
        call->out[0].n != indices->n / depth * sy_array_extent(x, (int)(batch + depth), x->rank))
        return sy_kernel_refuse(call, "indices that do not fit");
    return SY_OK;
}

static int run_scatter_nd(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *indices = &call->in[1], *y = &call->out[0];
    int64_t depth = indices->dims[indices->rank - 1], tuples = indices->n / depth;
    int64_t run = sy_array_extent(x, (int)depth, x->rank);
    enum reduction how = reduction_of(call->node);
    int64_t strides[SY_MAX_RANK];
    sy_array_strides(x, strides);
    memcpy(y->data, x->data, (size_t)x->n * sy_dtype_bytes(x->dtype));
    for (int64_t k = 0; k < tuples; k++) {
        int64_t offset;
        SY_TRY(tuple_offset(call, strides, k, 0, depth, &offset));
        scatter_run(how, y, offset, &call->in[2], k * run, run);
    }
    return SY_OK;
}

static int check_scatter_nd(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *indices = &call->in[1];
    int64_t depth = call->n_in == 3 && indices->rank > 0 ? indices->dims[indices->rank - 1] : 0;
    if (depth < 1 || depth > x->rank || call->in[2].dtype != x->dtype ||
        !sy_array_same_dims(x, &call->out[0]) ||
        call->in[2].n != indices->n / depth * sy_array_extent(x, (int)depth, x->rank))
        return sy_kernel_refuse(call, "indices or updates that do not fit");
    if (reduction_of(call->node) == UNKNOWN ||
        (x->dtype == SY_DTYPE_STRING && reduction_of(call->node) != PUT))
        return sy_kernel_refuse(call, "this reduction");
    return SY_OK;
}

/* ---- masks ---------------------------------------------------------------------------------------- */

/* n times element 0 of `value`. */
static void fill(const struct sy_array *y, const struct sy_array *value)
{
    if (sy_dtype_bytes(y->dtype) == sizeof(uint32_t)) {
        uint32_t *to = y->data, x = *(const uint32_t *)value->data;
        for (int64_t i = 0; i < y->n; i++)
            to[i] = x;
    } else if (sy_dtype_bytes(y->dtype) == sizeof(uint64_t)) {
        uint64_t *to = y->data, x = *(const uint64_t *)value->data;
        for (int64_t i = 0; i < y->n; i++)
            to[i] = x;
    } else {
        for (int64_t i = 0; i < y->n; i++)
            sy_array_copy(y, i, value, 0);
    }
}

static int run_one_hot(const struct sy_call *call)
{
    const struct sy_array *indices = &call->in[0], *values = &call->in[2], *y = &call->out[0];
    int axis = axis_of(call, -1, y->rank);
    int64_t depth = y->dims[axis], inner = sy_array_extent(y, axis + 1, y->rank);
    if ((int64_t)sy_get(&call->in[1], 0) != depth)
        return sy_kernel_fail(call, "its depth is not %lld as declared", (long long)depth);
    fill(y, values);
    for (int64_t i = 0; i < indices->n; i++) {
        int64_t index = (int64_t)sy_get(indices, i);
        index += index < 0 ? depth : 0;
        if (index >= 0 && index < depth)
            sy_array_copy(y, (i / inner * depth + index) * inner + i % inner, values, 1);
    }
    return SY_OK;
}

static int check_one_hot(const struct sy_call *call)
{
    const struct sy_array *y = &call->out[0];
    int axis = axis_of(call, -1, y->rank);
    if (call->n_in != 3 || axis < 0 || call->in[1].n != 1 || call->in[2].n != 2 ||
        call->in[2].dtype != y->dtype || y->rank != call->in[0].rank + 1 ||
        y->n != call->in[0].n * y->dims[axis])
        return sy_kernel_refuse(call, "a depth, values or a result that do not fit");
    return SY_OK;
}

static int run_compress(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *keep = &call->in[1], *y = &call->out[0];
    bool flat = sy_node_attr(call->node, "axis") == NULL;
    int axis = flat ? 0 : axis_of(call, 0, x->rank);
    int64_t inner = flat ? 1 : sy_array_extent(x, axis + 1, x->rank),
            length = flat ? x->n : x->dims[axis], outer = flat ? 1 : sy_array_extent(x, 0, axis);
    int64_t to = 0;
    const uint8_t *kept = keep->data;
    size_t run = (size_t)inner * sy_dtype_bytes(x->dtype);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < length && i < keep->n; i++) {
            if (!kept[i])
                continue;
            if (to + inner <= y->n)
                copy_run((char *)y->data + (size_t)(to / (inner ? inner : 1)) * run,
                         (const char *)x->data + (size_t)(o * length + i) * run, run);
            to += inner;
        }
    return sy_kernel_count(call, to, y->n);
}

static int check_compress(const struct sy_call *call)
{
    if (call->n_in != 2 || call->out[0].dtype != call->in[0].dtype ||
        (sy_node_attr(call->node, "axis") && axis_of(call, 0, call->in[0].rank) < 0))
        return sy_kernel_refuse(call, "an axis that does not fit");
    return SY_OK;
}

static int run_non_zero(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    int64_t at[SY_MAX_RANK], found = 0, room = y->dims[1], *to = y->data;
    int64_t n = x->rank > 0 ? x->dims[x->rank - 1] : 1, rows = n > 0 ? x->n / n : 0;
    for (int64_t row = 0; row < rows; row++) {
        sy_array_at(x, row * n, at);
        for (int64_t i = 0; i < n; i++) {
            if (sy_get(x, row * n + i) == 0)
                continue;
            for (int d = 0; d < x->rank && found < room; d++)
                to[d * room + found] = at[d] + (d == x->rank - 1 ? i : 0);
            found++;
        }
    }
    return sy_kernel_count(call, found, room);
}

static int check_non_zero(const struct sy_call *call)
{
    const struct sy_array *y = &call->out[0];
    if (y->rank != 2 || y->dims[0] != call->in[0].rank || y->dtype != SY_DTYPE_I64)
        return sy_kernel_refuse(call, "a declared result that does not fit");
    return SY_OK;
}

static int run_reverse_sequence(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *lengths = &call->in[1];
    int time = (int)sy_node_int(call->node, "time_axis", 0);
    int64_t rows = x->dims[0], columns = x->dims[1], inner = sy_array_extent(x, 2, x->rank);
    size_t run = (size_t)inner * sy_dtype_bytes(x->dtype);
    for (int64_t i = 0; i < lengths->n; i++)
        if (sy_get_int(lengths, i) < 0 || sy_get_int(lengths, i) > x->dims[time])
            return sy_kernel_fail(call, "a length of %lld", (long long)sy_get_int(lengths, i));
#pragma omp parallel for schedule(static) if (x->n > PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            int64_t length = sy_get_int(lengths, time == 0 ? c : r), at = time == 0 ? r : c;
            int64_t from = at < length ? length - 1 - at : at;
            int64_t source = time == 0 ? from * columns + c : r * columns + from;
            copy_run((char *)call->out[0].data + (size_t)(r * columns + c) * run,
                     (const char *)x->data + (size_t)source * run, run);
        }
    return SY_OK;
}

static int check_reverse_sequence(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    int64_t batch = sy_node_int(call->node, "batch_axis", 1),
            time = sy_node_int(call->node, "time_axis", 0);
    if (call->n_in != 2 || x->rank < 2 || batch < 0 || batch > 1 || time != 1 - batch ||
        call->in[1].n != x->dims[batch] || !sy_array_same_dims(x, &call->out[0]))
        return sy_kernel_refuse(call, "axes or lengths that do not fit");
    return SY_OK;
}

#define INDEXED                                  \
    {                                            \
        SY_ANY_MOVED, SY_ANY_INDEX, SY_ANY_MOVED \
    }
const struct sy_kernel sy_kernels_index[] = {
    {SY_OP_GATHER_ELEMENTS, run_gather_elements, INDEXED, check_gather_elements, NULL},
    {SY_OP_SCATTER_ELEMENTS, run_scatter_elements, INDEXED, check_scatter_elements, NULL},
    {SY_OP_GATHER_ND, run_gather_nd, INDEXED, check_gather_nd, NULL},
    {SY_OP_SCATTER_ND, run_scatter_nd, INDEXED, check_scatter_nd, NULL},
    {SY_OP_ONE_HOT, run_one_hot, {SY_ANY_NUMBER, SY_ANY_NUMBER, SY_ANY_MOVED}, check_one_hot, NULL},
    {SY_OP_COMPRESS, run_compress, {SY_ANY_MOVED, SY_BIT(BOOL)}, check_compress, NULL},
    {SY_OP_NON_ZERO, run_non_zero, {SY_ANY_TYPE}, check_non_zero, NULL},
    {SY_OP_REVERSE_SEQUENCE,
     run_reverse_sequence,
     {SY_ANY_MOVED, SY_ANY_INDEX},
     check_reverse_sequence,
     NULL},
    {0}};
