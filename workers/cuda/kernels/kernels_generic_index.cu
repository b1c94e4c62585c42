/* Reading and writing by index: moves, masks, gathers, scatters, the largest k. An index that is outside is told. */
#include "workers/cuda/kernels/generic_arrays.cuh"
#include "workers/engine/train_philox.h"

SY_KERNEL_FILE(each_index)

/* ---- masks and moves ---------------------------------------------------------------------------------- */

struct fill {
    __device__ static void of(const each &c, int64_t i)
    {
        int y = GENERIC_OUT + c.e.as.fill.result;
        int64_t columns = c.array(y).rank > 1 ? c.array(y).dims[1] : 1;
        c.put(y, i,
              !c.e.as.fill.is_diagonal || i % columns - i / columns == c.e.as.fill.diagonal);
    }
};

struct triangle {
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0);
        int64_t rows = x.dims[x.rank - 2], columns = x.dims[x.rank - 1], most = rows + columns;
        int64_t k = c.has(1) ? c.get_int(1, 0) : 0, at = i % columns - i / columns % rows;
        k = k < -most ? -most : k > most ? most : k;
        if (c.e.as.triangle.is_upper ? at >= k : at <= k)
            c.copy(GENERIC_OUT, i, 0, i);
        else
            c.put(GENERIC_OUT, i, 0);
    }
};

/* Inputs: start, limit, step. */
struct range {
    __device__ static void of(const each &c, int64_t i)
    {
        double step = c.get(2, 0), count = step == 0 ? -1 : ceil((c.get(1, 0) - c.get(0, 0)) / step);
        if (step == 0 || (count < 0 ? 0 : count) != (double)c.array(GENERIC_OUT).n)
            c.tell((int64_t)count);
        if (c.is_float(GENERIC_OUT))
            c.put(GENERIC_OUT, i, c.get(0, 0) + (double)i * step);
        else
            c.put_int(GENERIC_OUT, i,
                      (int64_t)((uint64_t)c.get_int(0, 0) + (uint64_t)i * (uint64_t)c.get_int(2, 0)));
    }
};

struct one_hot {
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &y = c.array(GENERIC_OUT);
        int axis = (int)c.e.axis;
        int64_t depth = y.dims[axis], inner = c.extent(GENERIC_OUT, axis + 1, y.rank);
        int64_t index = (int64_t)c.get(0, i / inner / depth * inner + i % inner);
        if ((int64_t)c.get(1, 0) != depth)
            c.tell((int64_t)c.get(1, 0));
        index += index < 0 ? depth : 0;
        c.copy(GENERIC_OUT, i, 2, index == i / inner % depth);
    }
};

struct reverse {
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0);
        int time = (int)c.e.axis, batch = c.e.as.reverse.batch_axis;
        int64_t at = i / x.strides[time] % x.dims[time],
                length = c.get_int(1, i / x.strides[batch] % x.dims[batch]);
        if (length < 0 || length > x.dims[time]) {
            c.tell(length);
            length = 0;
        }
        int64_t from = at < length ? length - 1 - at : at;
        c.copy(GENERIC_OUT, i, 0, i + (from - at) * x.strides[time]);
    }
};

struct random_number {
    __device__ static void of(const each &c, int64_t i)
    {
        c.put(GENERIC_OUT, i, sy_draw_element(&c.e.as.random, i));
    }
};

/* Where position `at` of the padded axis comes from; -1: from the padding. */
__device__ static int64_t padded_source(enum sy_generic_padding mode, int64_t at, int64_t n)
{
    if (at >= 0 && at < n)
        return at;
    if (mode == SY_GENERIC_EDGE)
        return at < 0 ? 0 : n - 1;
    if (mode == SY_GENERIC_WRAP)
        return n ? (at % n + n) % n : -1;
    if (mode != SY_GENERIC_REFLECT)
        return -1;
    if (n <= 1)
        return n - 1;
    int64_t period = 2 * (n - 1);
    at = (at % period + period) % period;
    return at < n ? at : period - at;
}

/* Inputs of RunPad: x, pads, the value, axes; one item more looks at the shape. */
struct pad {
    /* Sizes and places below this add up without overflow. */
    __device__ static bool is_small(int64_t value)
    {
        return value > -((int64_t)1 << 48) && value < (int64_t)1 << 48;
    }
    __device__ static bool read(const each &c, int64_t *before)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        int64_t n = c.has(3) ? c.array(3).n : x.rank, after[SY_MAX_RANK] = {0};
        for (int d = 0; d < x.rank; d++)
            before[d] = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t axis = c.has(3) ? c.get_int(3, i) : i, at = axis < 0 ? axis + x.rank : axis;
            if (at < 0 || at >= x.rank || !is_small(c.get_int(1, i)) ||
                !is_small(c.get_int(1, i + n))) {
                c.tell(at < 0 || at >= x.rank ? axis : c.get_int(1, i));
                return false;
            }
            before[at] = c.get_int(1, i);
            after[at] = c.get_int(1, i + n);
        }
        for (int d = 0; d < x.rank; d++)
            if (y.dims[d] != x.dims[d] + before[d] + after[d]) {
                c.tell(before[d] + after[d]);
                return false;
            }
        return true;
    }
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        bool is_dynamic = c.e.op == SY_OP_RUN_PAD;
        int64_t from = 0, left = i, read_now[SY_MAX_RANK];
        const int64_t *before = is_dynamic ? read_now : c.e.as.pad.before;
        if ((is_dynamic && !read(c, read_now)) || i == y.n)
            return;
        for (int d = x.rank - 1; d >= 0 && from >= 0; d--) {
            int64_t source =
                padded_source(c.e.as.pad.mode, left % y.dims[d] - before[d], x.dims[d]);
            from = source < 0 ? -1 : from + source * x.strides[d];
            left /= y.dims[d];
        }
        if (from >= 0)
            c.copy(GENERIC_OUT, i, 0, from);
        else if (is_dynamic && c.has(2))
            c.copy(GENERIC_OUT, i, 2, 0);
        else
            c.put(GENERIC_OUT, i, c.e.as.pad.value);
    }
};

/* The gradient of Pad, of a result's shape in the second input's place: the sum over all places of the result that an element went to. */
struct pad_back {
    /* The next place from `at` on that has element `wanted` of the dimension; -1: none. */
    __device__ static int64_t next(const each &c, int d, int64_t at, int64_t wanted)
    {
        for (; at < c.array(1).dims[d]; at++)
            if (padded_source(c.e.as.pad.mode, at - c.e.as.pad.before[d],
                              c.array(0).dims[d]) == wanted)
                return at;
        return -1;
    }
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(1);
        int64_t wanted[SY_MAX_RANK], place[SY_MAX_RANK], left = i;
        double sum = 0;
        bool more = true;
        for (int d = x.rank - 1; d >= 0; d--) {
            wanted[d] = left % x.dims[d];
            left /= x.dims[d];
            place[d] = next(c, d, 0, wanted[d]);
            more = more && place[d] >= 0;
        }
        while (more) {
            int64_t from = 0;
            for (int d = 0; d < x.rank; d++)
                from += place[d] * y.strides[d];
            sum += c.get(1, from);
            more = false;
            for (int d = x.rank - 1; d >= 0 && !more; d--) {
                place[d] = next(c, d, place[d] + 1, wanted[d]);
                more = place[d] >= 0;
                place[d] = more ? place[d] : next(c, d, 0, wanted[d]);
            }
        }
        c.put(GENERIC_OUT, i, sum);
    }
};

/* A thread for each element, over what comes before it: the axis is known at run only, and lines are short. */
struct running_sum {
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0);
        bool floats = c.is_float(0), backward = c.e.as.running_sum.backward;
        int axis = (int)c.checked(c.get_int(1, 0), x.rank);
        int64_t step = x.strides[axis], at = i / step % x.dims[axis], start = i - at * step;
        int64_t n = (backward ? x.dims[axis] - 1 - at : at) + (c.e.as.running_sum.excludes ? 0 : 1);
        double sum = 0;
        uint64_t whole = 0;
        for (int64_t k = 0; k < n; k++) {
            int64_t from = start + (backward ? x.dims[axis] - 1 - k : k) * step;
            if (floats)
                sum += c.get(0, from);
            else
                whole += (uint64_t)c.get_int(0, from);
        }
        if (floats)
            c.put(GENERIC_OUT, i, sum);
        else
            c.put_int(GENERIC_OUT, i, (int64_t)whole);
    }
};

/* ---- the largest k ------------------------------------------------------------------------------------ */

/* Whether element a goes before b: larger (or smaller), of equal ones the first; NaN last. */
__device__ static bool goes_before(const each &c, int64_t a, int64_t b, bool largest)
{
    if (!c.is_float(0)) {
        int64_t p = c.get_int(0, a), q = c.get_int(0, b);
        return p != q ? (p > q) == largest : a < b;
    }
    double p = c.get(0, a), q = c.get(0, b);
    if (p != p || q != q)
        return p == p || (q != q && a < b);
    return p != q ? (p > q) == largest : a < b;
}

/* How many of its line go before it: that is where it lies in the result, if that has so many. */
struct top {
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0);
        int axis = (int)c.e.axis;
        int64_t step = x.strides[axis], n = x.dims[axis], k = c.array(GENERIC_OUT).dims[axis];
        int64_t at = i / step % n, start = i - at * step, rank = 0;
        bool largest = c.e.as.top.largest;
        if (c.has(1) && c.get_int(1, 0) != k)
            c.tell(c.get_int(1, 0));
        for (int64_t other = 0; other < n && rank < k; other++)
            rank += goes_before(c, start + other * step, i, largest);
        if (rank >= k)
            return;
        int64_t to = start / (step * n) * step * k + start % step + rank * step;
        c.copy(GENERIC_OUT, to, 0, i);
        if (c.has(GENERIC_OUT + 1))
            c.put_int(GENERIC_OUT + 1, to, at);
    }
};

/* ---- gathers ------------------------------------------------------------------------------------------ */

/* The offset in the first input of row-major element i of the indices, `index` in place of the axis's. */
__device__ static int64_t along(const each &c, int64_t i, int64_t index)
{
    const sy_generic_array &x = c.array(0), &indices = c.array(1);
    int64_t at = 0;
    for (int d = x.rank - 1; d >= 0; d--) {
        at += (d == (int)c.e.axis ? index : i % indices.dims[d]) * x.strides[d];
        i /= indices.dims[d];
    }
    return at;
}

struct gather_along {
    __device__ static void of(const each &c, int64_t i)
    {
        int64_t index = c.checked(c.get_int(1, i), c.array(0).dims[c.e.axis]);
        c.copy(GENERIC_OUT, i, 0, along(c, i, index));
    }
};

/* The offset of what tuple k names, indices of dimensions from `first` on. */
__device__ static int64_t tuple_offset(const each &c, int64_t k, int first)
{
    int64_t depth = c.e.as.indices.depth, at = 0;
    for (int d = 0; d < (int)depth; d++)
        at += c.checked(c.get_int(1, k * depth + d), c.array(0).dims[first + d]) *
              c.array(0).strides[first + d];
    return at;
}

struct gather_tuples {
    __device__ static void of(const each &c, int64_t i)
    {
        int64_t run = c.e.as.indices.run, k = i / run;
        c.copy(GENERIC_OUT, i, 0,
               k / c.e.as.indices.tuples * c.e.as.indices.block +
                   tuple_offset(c, k, c.e.as.indices.first) + i % run);
    }
};

/* ---- scatters: the result is a copy of the first input already ----------------------------------------- */

__device__ static void scatter_one(const each &c, int64_t to, int64_t from)
{
    enum sy_generic_combine how = c.e.as.indices.reduction;
    if (how == SY_GENERIC_PUT) {
        c.copy(GENERIC_OUT, to, 2, from);
    } else if (c.is_float(GENERIC_OUT)) {
        double a = c.get(GENERIC_OUT, to), b = c.get(2, from);
        c.put(GENERIC_OUT, to,
              how == SY_GENERIC_ADD   ? a + b
              : how == SY_GENERIC_MUL ? a * b
              : how == SY_GENERIC_MAX ? fmax(a, b)
                           : fmin(a, b));
    } else {
        int64_t a = c.get_int(GENERIC_OUT, to), b = c.get_int(2, from);
        c.put_int(GENERIC_OUT, to,
                  how == SY_GENERIC_ADD   ? (int64_t)((uint64_t)a + (uint64_t)b)
                  : how == SY_GENERIC_MUL ? (int64_t)((uint64_t)a * (uint64_t)b)
                  : how == SY_GENERIC_MAX ? (a > b ? a : b)
                               : (a < b ? a : b));
    }
}

struct scatter_along {
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &indices = c.array(1);
        int64_t parts = c.e.as.indices.parts, part = i % parts, column = i / parts;
        int64_t step = indices.strides[c.e.axis], rows = indices.dims[c.e.axis];
        int64_t start = column / step * step * rows + column % step;
        for (int64_t r = 0; r < rows; r++) {
            int64_t k = start + r * step,
                    index = c.checked(c.get_int(1, k), c.array(0).dims[c.e.axis]);
            if (index % parts == part)
                scatter_one(c, along(c, k, index), k);
        }
    }
};

struct scatter_tuples {
    __device__ static void of(const each &c, int64_t i)
    {
        int64_t parts = c.e.as.indices.parts, run = c.e.as.indices.run, part = i / run, in = i % run;
        int64_t tuples = c.array(1).n / c.e.as.indices.depth;
        for (int64_t k = 0; k < tuples; k++) {
            int64_t at = tuple_offset(c, k, 0);
            if (at / run % parts == part)
                scatter_one(c, at + in, k * run + in);
        }
    }
};

int sy_kernel_each_index(struct CUstream_st *stream, const struct sy_math_generic *e, void *const *at,
                         struct sy_math_fault *fault)
{
    switch (e->kind) {
    case SY_GENERIC_FILL:
        return generic_launch<fill>(stream, e, at, fault);
    case SY_GENERIC_TRIANGLE:
        return generic_launch<triangle>(stream, e, at, fault);
    case SY_GENERIC_RANGE:
        return generic_launch<range>(stream, e, at, fault);
    case SY_GENERIC_ONE_HOT:
        return generic_launch<one_hot>(stream, e, at, fault);
    case SY_GENERIC_REVERSE:
        return generic_launch<reverse>(stream, e, at, fault);
    case SY_GENERIC_RANDOM:
        return generic_launch<random_number>(stream, e, at, fault);
    case SY_GENERIC_PAD:
        return generic_launch<pad>(stream, e, at, fault);
    case SY_GENERIC_PAD_BACK:
        return generic_launch<pad_back>(stream, e, at, fault);
    case SY_GENERIC_RUNNING_SUM:
        return generic_launch<running_sum>(stream, e, at, fault);
    case SY_GENERIC_TOP:
        return generic_launch<top>(stream, e, at, fault);
    case SY_GENERIC_GATHER_ALONG:
        return generic_launch<gather_along>(stream, e, at, fault);
    case SY_GENERIC_GATHER_TUPLES:
        return generic_launch<gather_tuples>(stream, e, at, fault);
    case SY_GENERIC_SCATTER_ALONG:
        return generic_launch<scatter_along>(stream, e, at, fault);
    case SY_GENERIC_SCATTER_TUPLES:
        return generic_launch<scatter_tuples>(stream, e, at, fault);
    default:
        return -1;
    }
}
