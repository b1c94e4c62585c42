/* Moves whose sizes, places and axes are data: the shape that the data leads to is compared with the one that was declared, and told if it
 * is another. Results that are counted: one block, so that all of it knows how many there are. */
#include "workers/cuda/kernels/generic_arrays.cuh"

SY_KERNEL_FILE(generic_run)

/* Numbers that are arguments: what was known when the program was made. */
struct numbers {
    __device__ static void of(const each &c, int64_t i)
    {
        c.put_int(GENERIC_OUT, c.e.as.numbers.first + i, c.e.as.numbers.at[i]);
    }
};

/* ---- the same elements: one item more, which looks at the shape --------------------------------------------- */

struct run_view {
    __device__ static void check_reshape(const each &c)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        int open = 0;
        for (int d = 0; d < y.rank; d++) {
            int64_t want = c.get_int(1, d), is = want;
            if (want == 0 && !c.e.as.view.keeps_zero && d < x.rank)
                is = x.dims[d];
            open += is == -1;
            if ((is != -1 && is != y.dims[d]) || open > 1)
                c.tell(want);
        }
    }
    /* Squeeze takes the axes out of the input's shape, Unsqueeze out of the result's. */
    __device__ static void check_axes(const each &c)
    {
        bool squeezes = c.e.op == SY_OP_RUN_SQUEEZE;
        const sy_generic_array &large = c.array(squeezes ? 0 : GENERIC_OUT),
                            &small = c.array(squeezes ? GENERIC_OUT : 0);
        bool marked[SY_MAX_RANK] = {false};
        int k = 0;
        for (int64_t i = 0; i < c.array(1).n; i++) {
            int64_t axis = c.get_int(1, i), at = axis < 0 ? axis + large.rank : axis;
            if (at < 0 || at >= large.rank || marked[at] || large.dims[at] != 1) {
                c.tell(axis);
                return;
            }
            marked[at] = true;
        }
        for (int d = 0; d < large.rank; d++)
            if (!marked[d] && (k >= small.rank || small.dims[k++] != large.dims[d])) {
                c.tell(d);
                return;
            }
        if (k != small.rank)
            c.tell(k);
    }
    __device__ static void of(const each &c, int64_t i)
    {
        if (i < c.array(GENERIC_OUT).n)
            c.copy(GENERIC_OUT, i, 0, i);
        else if (c.e.op == SY_OP_RUN_RESHAPE)
            check_reshape(c);
        else
            check_axes(c);
    }
};

/* ---- repeats -------------------------------------------------------------------------------------------- */

struct run_expand {
    /* Input 1 is broadcast against the input as well. */
    __device__ static void check(const each &c)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        for (int d = 0; d < y.rank; d++) {
            int64_t k = d - (y.rank - c.array(1).n), m = d - (y.rank - x.rank);
            int64_t want = k >= 0 ? c.get_int(1, k) : 1, have = m >= 0 ? x.dims[m] : 1;
            if (y.dims[d] != (want == 1 ? have : want))
                c.tell(want);
        }
    }
    __device__ static void of(const each &c, int64_t i)
    {
        if (i < c.array(GENERIC_OUT).n)
            c.copy(GENERIC_OUT, i, 0, c.seen(0, i));
        else
            check(c);
    }
};

struct run_tile {
    __device__ static void check(const each &c)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        for (int d = 0; d < x.rank; d++) {
            int64_t times = c.get_int(1, d);
            if (x.dims[d] == 0 ? y.dims[d] != 0 : y.dims[d] % x.dims[d] || y.dims[d] / x.dims[d] != times)
                c.tell(times);
        }
    }
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        int64_t from = 0, left = i;
        if (i == y.n) {
            check(c);
            return;
        }
        for (int d = x.rank - 1; d >= 0; d--) {
            from += left % y.dims[d] % x.dims[d] * x.strides[d];
            left /= y.dims[d];
        }
        c.copy(GENERIC_OUT, i, 0, from);
    }
};

/* ---- parts ---------------------------------------------------------------------------------------------- */

/* Inputs: x, starts, ends, axes, steps; numpy's rules. */
struct run_slice {
    struct part {
        int64_t start, step, count;
    };
    __device__ static int64_t clamped(int64_t value, int64_t low, int64_t high)
    {
        return value < low ? low : value > high ? high : value;
    }
    __device__ static part part_of(int64_t n, int64_t start, int64_t end, int64_t step)
    {
        start = start < 0 ? start + n : start;
        end = end < 0 ? (end < -n ? -1 - n : end) + n : end;
        start = step > 0 ? clamped(start, 0, n) : clamped(start, 0, n - 1);
        end = step > 0 ? clamped(end, 0, n) : clamped(end, -1, n - 1);
        int64_t span = step > 0 ? end - start : start - end, stride = step > 0 ? step : -step;
        part p = {start, step, span <= 0 ? 0 : (span - 1) / stride + 1};
        return p;
    }
    __device__ static bool read(const each &c, part *parts)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        for (int d = 0; d < x.rank; d++)
            parts[d] = part_of(x.dims[d], 0, x.dims[d], 1);
        for (int64_t i = 0; i < c.array(1).n; i++) {
            int64_t axis = c.has(3) ? c.get_int(3, i) : i, step = c.has(4) ? c.get_int(4, i) : 1;
            int64_t at = axis < 0 ? axis + x.rank : axis;
            bool steps = step != 0 && step != INT64_MIN;
            if (at < 0 || at >= x.rank || !steps) {
                c.tell(steps ? axis : step);
                return false;
            }
            parts[at] = part_of(x.dims[at], c.get_int(1, i), c.get_int(2, i), step);
        }
        for (int d = 0; d < x.rank; d++)
            if (parts[d].count != y.dims[d]) {
                c.tell(parts[d].count);
                return false;
            }
        return true;
    }
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        part parts[SY_MAX_RANK];
        int64_t from = 0, left = i;
        if (!read(c, parts) || i == y.n)
            return;
        for (int d = x.rank - 1; d >= 0; d--) {
            from += (parts[d].start + left % y.dims[d] * parts[d].step) * x.strides[d];
            left /= y.dims[d];
        }
        c.copy(GENERIC_OUT, i, 0, from);
    }
};

/* A thread for each element of the input; input 1 has the parts' sizes, those of the last results are together the input's. */
struct run_split {
    __device__ static void check(const each &c)
    {
        const sy_generic_split &s = c.e.as.split;
        int64_t all = s.offset;
        for (int o = 0; o < c.e.n_out; o++) {
            int64_t size = c.get_int(1, s.before + o);
            if (size != c.array(GENERIC_OUT + o).dims[c.e.axis])
                c.tell(size);
            all += c.array(GENERIC_OUT + o).dims[c.e.axis];
        }
        if (s.before + c.e.n_out == s.parts && all != c.array(0).dims[c.e.axis])
            c.tell(all);
    }
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0);
        int64_t inner = x.strides[c.e.axis], length = x.dims[c.e.axis];
        if (i == x.n) {
            check(c);
            return;
        }
        int64_t at = i / inner % length - c.e.as.split.offset, outer = i / inner / length;
        for (int o = 0; o < c.e.n_out; o++) {
            int64_t size = c.array(GENERIC_OUT + o).dims[c.e.axis];
            if (at >= 0 && at < size)
                c.copy(GENERIC_OUT + o, (outer * size + at) * inner + i % inner, 0, i);
            at -= size;
        }
    }
};

/* ---- what is counted ------------------------------------------------------------------------------------ */

/* How many all threads have, and those in front of this one. */
__device__ static int64_t shares(int64_t own, int64_t *before)
{
    SY_SHARED(int64_t, each_has, [SY_KERNEL_THREADS]);
    int64_t all = 0;
    __syncthreads(); /* those before are read */
    each_has[threadIdx.x] = own;
    __syncthreads();
    for (unsigned t = 0; t < SY_KERNEL_THREADS; t++) {
        if (t == threadIdx.x)
            *before = all;
        all += each_has[t];
    }
    return all;
}

/* This thread's stretch of n. */
__device__ static void stretch(int64_t n, int64_t *first, int64_t *end)
{
    int64_t each = (n + SY_KERNEL_THREADS - 1) / SY_KERNEL_THREADS, start = each * threadIdx.x;
    *first = start < n ? start : n;
    *end = start + each < n ? start + each : n;
}

/* In an order of rows: [rank, how many]. */
struct non_zero {
    __device__ static void of(const each &c, int64_t)
    {
        const sy_generic_array &x = c.array(0);
        int64_t room = c.array(GENERIC_OUT).dims[1], own = 0, at = 0, first, end;
        stretch(x.n, &first, &end);
        for (int64_t i = first; i < end; i++)
            own += c.get(0, i) != 0;
        int64_t all = shares(own, &at);
        if (all != room) {
            c.tell(all);
            return;
        }
        for (int64_t i = first; i < end; i++) {
            if (c.get(0, i) == 0)
                continue;
            int64_t left = i;
            for (int d = x.rank - 1; d >= 0; d--) {
                c.put_int(GENERIC_OUT, d * room + at, left % x.dims[d]);
                left /= x.dims[d];
            }
            at++;
        }
    }
};

struct compress {
    __device__ static void of(const each &c, int64_t)
    {
        const sy_generic_counted &s = c.e.as.counted;
        int64_t own = 0, at = 0, first, end, n = c.array(1).n < s.length ? c.array(1).n : s.length;
        stretch(n, &first, &end);
        for (int64_t i = first; i < end; i++)
            own += c.get_int(1, i) != 0;
        int64_t kept = shares(own, &at);
        if (kept * s.outer * s.inner != c.array(GENERIC_OUT).n) {
            c.tell(kept);
            return;
        }
        for (int64_t i = first; i < end; i++) {
            if (!c.get_int(1, i))
                continue;
            for (int64_t o = 0; o < s.outer; o++)
                for (int64_t k = 0; k < s.inner; k++)
                    c.copy(GENERIC_OUT, (o * kept + at) * s.inner + k, 0,
                           (o * s.length + i) * s.inner + k);
            at++;
        }
    }
};

/* Slices along an axis, or elements. In the room: of each slice the first one that is equal, then its place in the result. */
struct unique {
    /* -1, 0, 1; a number that is none comes last, and is equal to nothing. */
    __device__ static int compare(const each &c, int64_t a, int64_t b, bool *equal)
    {
        const sy_generic_counted &s = c.e.as.counted;
        *equal = true;
        for (int64_t o = 0; o < s.outer; o++)
            for (int64_t k = 0; k < s.inner; k++) {
                double p = c.get(0, (o * s.length + a) * s.inner + k),
                       q = c.get(0, (o * s.length + b) * s.inner + k);
                bool no_p = p != p, no_q = q != q;
                *equal = *equal && p == q;
                if (p == q || (no_p && no_q))
                    continue;
                *equal = false;
                return no_p ? 1 : no_q ? -1 : p < q ? -1 : 1;
            }
        return 0;
    }
    __device__ static bool comes_before(const each &c, int64_t a, int64_t b)
    {
        bool equal;
        int order = c.e.as.counted.sorted ? compare(c, a, b, &equal) : 0;
        return order < 0 || (order == 0 && a < b);
    }
    __device__ static void leave(const each &c, int64_t i, int64_t place, int64_t count)
    {
        const sy_generic_counted &s = c.e.as.counted;
        int64_t n = c.array(GENERIC_OUT).n / (s.outer * s.inner);
        for (int64_t o = 0; o < s.outer; o++)
            for (int64_t k = 0; k < s.inner; k++)
                c.copy(GENERIC_OUT, (o * n + place) * s.inner + k, 0, (o * s.length + i) * s.inner + k);
        if (c.has(GENERIC_OUT + 1))
            c.put_int(GENERIC_OUT + 1, place, i);
        if (c.has(GENERIC_OUT + 3))
            c.put_int(GENERIC_OUT + 3, place, count);
    }
    __device__ static void of(const each &c, int64_t)
    {
        const sy_generic_counted &s = c.e.as.counted;
        int64_t *same = (int64_t *)c.p.at[SY_GENERIC_ROOM], *place = same + s.length, own = 0, all;
        for (int64_t i = threadIdx.x; i < s.length; i += blockDim.x) {
            bool equal = false;
            int64_t k = 0;
            for (; k < i && !equal; k += !equal)
                (void)compare(c, k, i, &equal);
            same[i] = k;
            own += k == i;
        }
        __syncthreads();
        all = sy_block_reduce<sy_add>(own);
        if (all * s.outer * s.inner != c.array(GENERIC_OUT).n) {
            if (threadIdx.x == 0)
                c.tell(all);
            return;
        }
        for (int64_t i = threadIdx.x; i < s.length; i += blockDim.x) {
            int64_t before = 0, count = 0;
            for (int64_t k = 0; k < s.length; k++) {
                before += same[i] == i && same[k] == k && comes_before(c, k, i);
                count += same[k] == i;
            }
            place[i] = before;
            if (same[i] == i)
                leave(c, i, before, count);
        }
        __syncthreads();
        for (int64_t i = threadIdx.x; c.has(GENERIC_OUT + 2) && i < s.length; i += blockDim.x)
            c.put_int(GENERIC_OUT + 2, i, place[same[i]]);
    }
};

/* ---- NonMaxSuppression ------------------------------------------------------------------------------------ */

struct sy_candidate {
    double score;
    int64_t box; /* -1: none */
};

/* The higher score; of equal ones the first. */
struct sy_better {
    template <typename V> __device__ static V of(V a, V b)
    {
        if (a.box < 0 || b.box < 0)
            return a.box < 0 ? b : a;
        return a.score > b.score || (a.score == b.score && a.box < b.box) ? a : b;
    }
};

/* Boxes and scores, then how many of a class, how much two may share, which scores count. The best that is left is kept, and strikes out
 * those that share too much with it, until none is left. In the room: what is struck out. Overlaps are float32, as on the host: one of exactly
 * the limit is not beyond it. */
struct suppress {
    struct corners {
        float top, left, bottom, right;
    };
    __device__ static corners box_at(const each &c, int64_t i)
    {
        float v[4];
        for (int k = 0; k < 4; k++)
            v[k] = (float)c.get(0, i * 4 + k);
        corners by_center = {v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2},
                by_corners = {fminf(v[0], v[2]), fminf(v[1], v[3]), fmaxf(v[0], v[2]), fmaxf(v[1], v[3])};
        return c.e.as.suppress.has_centers ? by_center : by_corners;
    }
    /* Through double, so that no multiply-add leaves out the rounding. */
    __device__ static float product(float a, float b)
    {
        return (float)((double)a * b);
    }
    __device__ static float area(const corners &b)
    {
        return product(b.bottom - b.top, b.right - b.left);
    }
    __device__ static bool shares_more(const corners &box, const corners &kept, float limit)
    {
        float lower = box.bottom < kept.bottom ? box.bottom : kept.bottom,
               upper = box.top > kept.top ? box.top : kept.top,
               end = box.right < kept.right ? box.right : kept.right,
               begin = box.left > kept.left ? box.left : kept.left;
        float height = lower - upper, width = end - begin;
        float common = height > 0 && width > 0 ? product(height, width) : 0;
        float both = area(box) + area(kept) - common;
        return (both > 0 ? common / both : 0) > limit;
    }
    /* One class of one image, whose scores begin at `first`; how many rows there are then. */
    __device__ static int64_t pick(const each &c, int64_t image, int64_t which, int64_t rows)
    {
        const sy_generic_array &scores = c.array(1);
        int64_t n = scores.dims[2], first = (image * scores.dims[1] + which) * n,
                most = c.has(2) ? c.get_int(2, 0) : 0, *out = (int64_t *)c.p.at[SY_GENERIC_ROOM];
        double least = c.has(4) ? c.get(4, 0) : 0;
        float limit = c.has(3) ? (float)c.get(3, 0) : 0;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            double score = c.get(1, first + i);
            out[i] = !(c.has(4) ? score > least : score == score);
        }
        for (int64_t kept = 0; kept < most; kept++) {
            sy_candidate best = {0, -1};
            for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
                sy_candidate here = {c.get(1, first + i), out[i] ? -1 : i};
                best = sy_better::of(best, here);
            }
            best = sy_block_reduce<sy_better>(best);
            if (best.box < 0)
                break;
            corners by = box_at(c, image * n + best.box);
            for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
                out[i] = out[i] || i == best.box || shares_more(box_at(c, image * n + i), by, limit);
            const int64_t row[3] = {image, which, best.box};
            for (int k = 0; k < 3 && threadIdx.x == 0 && rows < c.array(GENERIC_OUT).dims[0]; k++)
                c.put_int(GENERIC_OUT, rows * 3 + k, row[k]);
            rows++;
        }
        return rows;
    }
    __device__ static void of(const each &c, int64_t)
    {
        int64_t rows = 0;
        for (int64_t image = 0; image < c.array(1).dims[0]; image++)
            for (int64_t k = 0; k < c.array(1).dims[1]; k++)
                rows = pick(c, image, k, rows);
        if (rows != c.array(GENERIC_OUT).dims[0] && threadIdx.x == 0)
            c.tell(rows);
    }
};

int sy_kernel_each_run(struct CUstream_st *stream, const struct sy_math_generic *e, void *const *at,
                       struct sy_math_fault *fault)
{
    switch (e->kind) {
    case SY_GENERIC_NUMBERS:
        return generic_launch<numbers>(stream, e, at, fault);
    case SY_GENERIC_VIEW:
        return generic_launch<run_view>(stream, e, at, fault);
    case SY_GENERIC_EXPAND:
        return generic_launch<run_expand>(stream, e, at, fault);
    case SY_GENERIC_TILE:
        return generic_launch<run_tile>(stream, e, at, fault);
    case SY_GENERIC_SLICE:
        return generic_launch<run_slice>(stream, e, at, fault);
    case SY_GENERIC_SPLIT:
        return generic_launch<run_split>(stream, e, at, fault);
    case SY_GENERIC_NON_ZERO:
        return generic_launch_blocks<non_zero>(stream, e, at, fault);
    case SY_GENERIC_COMPRESS:
        return generic_launch_blocks<compress>(stream, e, at, fault);
    case SY_GENERIC_UNIQUE:
        return generic_launch_blocks<unique>(stream, e, at, fault);
    case SY_GENERIC_SUPPRESS:
        return generic_launch_blocks<suppress>(stream, e, at, fault);
    default:
        return -1;
    }
}
