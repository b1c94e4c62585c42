/* Lines along an axis, sums over any dimensions, in double or int64. */
#include "workers/cuda/kernels/generic_arrays.cuh"
#include "workers/engine/reduction_formulas.h"

SY_KERNEL_FILE(generic_lines)

/* ---- lines: softmax, hardmax, Lp ---------------------------------------------------------------------- */

__device__ static int64_t line_start(const each &c, int64_t k)
{
    int64_t inner = c.e.as.line.inner;
    return k / inner * inner * c.e.as.line.length + k % inner;
}

struct line {
    __device__ static void soften(const each &c, int64_t start, int64_t step, int64_t n)
    {
        double top = -INFINITY, sum = 0;
        int64_t best = 0;
        for (int64_t i = 0; i < n; i++) {
            double value = c.get(0, start + i * step);
            best = value > top ? i : best;
            top = fmax(top, value);
        }
        for (int64_t i = 0; i < n; i++)
            sum += exp(c.get(0, start + i * step) - top);
        for (int64_t i = 0; i < n; i++) {
            double value = c.get(0, start + i * step) - top;
            if (c.e.op == SY_OP_HARDMAX)
                value = i == best;
            else
                value = c.e.op == SY_OP_SOFTMAX ? exp(value) / sum : value - log(sum);
            c.put(GENERIC_OUT, start + i * step, value);
        }
    }
    __device__ static void of(const each &c, int64_t k)
    {
        int64_t start = line_start(c, k), step = c.e.as.line.inner, n = c.e.as.line.length;
        bool first = c.e.as.line.p == 1;
        double norm = 0;
        if (c.e.op != SY_OP_LP_NORM) {
            soften(c, start, step, n);
            return;
        }
        for (int64_t i = 0; i < n; i++) {
            double value = c.get(0, start + i * step);
            norm += first ? fabs(value) : value * value;
        }
        norm = first ? norm : sqrt(norm);
        for (int64_t i = 0; i < n; i++)
            c.put(GENERIC_OUT, start + i * step, norm == 0 ? 0 : c.get(0, start + i * step) / norm);
    }
};

/* ---- the place of the largest: a block a line ---------------------------------------------------------- */

/* `at` below zero: nothing yet. */
struct place {
    double value;
    int64_t at;
};

/* A NaN in front stays, others never win. */
__device__ static bool wins(const place &a, const place &b, bool last)
{
    if (a.at < 0 || b.at < 0)
        return a.at >= 0;
    if (a.value != a.value || b.value != b.value)
        return a.value != a.value ? a.at == 0 : b.at != 0;
    return a.value != b.value ? a.value > b.value : (a.at > b.at) == last;
}

struct first_place {
    template <typename V> __device__ static V of(V a, V b)
    {
        return wins(b, a, false) ? b : a;
    }
};

struct last_place {
    template <typename V> __device__ static V of(V a, V b)
    {
        return wins(b, a, true) ? b : a;
    }
};

struct arg {
    __device__ static void of(const each &c, int64_t k)
    {
        int64_t start = line_start(c, k), step = c.e.as.line.inner, n = c.e.as.line.length;
        bool last = c.e.as.line.takes_last;
        double sign = c.e.op == SY_OP_ARG_MAX ? 1 : -1;
        place best = {0, -1};
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            place here = {sign * c.get(0, start + i * step), i};
            best = wins(here, best, last) ? here : best;
        }
        best = last ? sy_block_reduce<last_place>(best) : sy_block_reduce<first_place>(best);
        if (threadIdx.x == 0)
            c.put_int(GENERIC_OUT, k, best.at);
    }
};

/* ---- sums over any dimensions --------------------------------------------------------------------------- */

/* Where element i of these dimensions lies. */
__device__ static int64_t place_among(const sy_generic_dims &dims, int64_t i)
{
    int64_t at = 0;
    for (int d = 0; d < dims.n; d++) {
        at += i % dims.sizes[d] * dims.strides[d];
        i /= dims.sizes[d];
    }
    return at;
}

struct reduction {
    const each &c;
    const sy_generic_reduction &f;
    int64_t base, n;

    __device__ int64_t at(int64_t i) const
    {
        return base + place_among(f.reduced, i);
    }
    __device__ void floats(int64_t k) const
    {
        enum sy_op op = c.e.op;
        double sum = sy_reduction_start(op);
        for (int64_t i = 0; i < n; i++)
            sum = sy_reduction_collect(op, sum, c.get(0, at(i)));
        c.put(GENERIC_OUT, k, sy_reduction_finish(op, sum, n));
    }
    __device__ double log_sum_exp() const
    {
        double top = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++)
            top = fmax(top, c.get(0, at(i)));
        double shift = sy_reduction_shift(top);
        for (int64_t i = 0; i < n; i++)
            sum += exp(c.get(0, at(i)) - shift);
        return shift + log(sum);
    }
    /* Every element less the mean, by the deviation. */
    __device__ void normalise() const
    {
        double mean = 0, square = 0;
        for (int64_t i = 0; i < n; i++)
            mean += c.get(0, at(i)) / (double)n;
        for (int64_t i = 0; i < n; i++) {
            double d = c.get(0, at(i)) - mean;
            square += d * d / (double)n;
        }
        for (int64_t i = 0; i < n; i++)
            c.put(GENERIC_OUT, at(i),
                  (c.get(0, at(i)) - mean) / (sqrt(square) + 1e-9));
    }
    __device__ void one(int64_t k) const
    {
        enum sy_op op = c.e.op;
        int64_t sum = 0;
        if (op == SY_OP_MEAN_VARIANCE_NORM) {
            normalise();
        } else if (op == SY_OP_REDUCE_LOG_SUM_EXP) {
            c.put(GENERIC_OUT, k, log_sum_exp());
        } else if (c.is_float(0) || op == SY_OP_REDUCE_L2 || op == SY_OP_REDUCE_LOG_SUM) {
            floats(k);
        } else {
            for (int64_t i = 0; i < n; i++)
                sum = sy_reduction_collect_integer(op, sum, c.get_int(0, at(i)), i == 0);
            c.put_int(GENERIC_OUT, k, op == SY_OP_REDUCE_MEAN && n ? sum / n : sum);
        }
    }
    /* Axes as input 1. */
    __device__ static bool read_axes(const each &c, bool *reduced)
    {
        int rank = c.array(0).rank;
        int64_t n = c.array(1).n;
        for (int d = 0; d < rank; d++)
            reduced[d] = n == 0 && c.e.as.reduction.none_is_all;
        for (int64_t i = 0; i < n; i++) {
            int64_t axis = c.get_int(1, i);
            if (axis < -rank || axis >= rank) {
                c.tell(axis);
                return false;
            }
            reduced[axis < 0 ? axis + rank : axis] = true;
        }
        return true;
    }
    /* False, and told, if the result was declared with another shape. */
    __device__ static bool read(const each &c, sy_generic_reduction *f)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        bool reduced[SY_MAX_RANK];
        int k = y.rank - 1;
        f->kept.n = f->reduced.n = 0;
        f->length = 1;
        if (!read_axes(c, reduced))
            return false;
        for (int d = x.rank - 1; d >= 0; d--) {
            sy_generic_dims &to = reduced[d] ? f->reduced : f->kept;
            to.sizes[to.n] = x.dims[d];
            to.strides[to.n++] = x.strides[d];
            f->length *= reduced[d] ? x.dims[d] : 1;
            if (reduced[d] && !c.e.as.reduction.keeps)
                continue;
            if (k < 0 || y.dims[k] != (reduced[d] ? 1 : x.dims[d])) {
                c.tell(d);
                return false;
            }
            k--;
        }
        if (k >= 0)
            c.tell(k);
        return k < 0;
    }
    __device__ static void of(const each &c, int64_t k)
    {
        sy_generic_reduction read_now;
        bool is_dynamic = c.e.as.reduction.is_dynamic;
        if ((is_dynamic && !read(c, &read_now)) || (is_dynamic && k == c.array(GENERIC_OUT).n))
            return;
        const sy_generic_reduction &f = is_dynamic ? read_now : c.e.as.reduction;
        const reduction here = {c, f, place_among(f.kept, k), f.length};
        here.one(k);
    }
};

/* ---- normalisations ------------------------------------------------------------------------------------- */

/* Inputs: x, scale, bias, running mean, running variance. A block a channel: its own mean and variance, the running ones moved by them. */
struct batch {
    __device__ static int64_t at(const each &c, int64_t channel, int64_t inner, int64_t i)
    {
        return (i / inner * c.array(0).dims[1] + channel) * inner + i % inner;
    }
    __device__ static void of(const each &c, int64_t channel)
    {
        const sy_generic_array &x = c.array(0);
        int64_t inner = c.extent(0, 2, x.rank), n = x.dims[0] * inner;
        double now[2] = {0, 0};
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
            now[0] += c.get(0, at(c, channel, inner, i));
        now[0] = sy_block_reduce<sy_add>(now[0]) / (double)n;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            double d = c.get(0, at(c, channel, inner, i)) - now[0];
            now[1] += d * d;
        }
        now[1] = sy_block_reduce<sy_add>(now[1]) / (double)n;
        double scale = c.get(1, channel) / sqrt(now[1] + c.e.as.norm.epsilon), shift = c.get(2, channel);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            int64_t k = at(c, channel, inner, i);
            c.put(GENERIC_OUT, k, (c.get(0, k) - now[0]) * scale + shift);
        }
        for (int i = 0; i < 2; i++)
            if (threadIdx.x == 0 && c.has(GENERIC_OUT + 1 + i))
                c.put(GENERIC_OUT + 1 + i, channel,
                      c.get(3 + i, channel) * c.e.as.norm.momentum + now[i] * (1 - c.e.as.norm.momentum));
    }
};

/* A block a row: by its own mean and deviation, which are the second and third result. */
struct row_norm {
    __device__ static void of(const each &c, int64_t row)
    {
        int64_t n = c.e.as.norm.length, first = row * n;
        double mean = 0, square = 0;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
            mean += c.get(0, first + i);
        mean = sy_block_reduce<sy_add>(mean) / (double)n;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            double d = c.get(0, first + i) - mean;
            square += d * d;
        }
        double rate = 1 / sqrt(sy_block_reduce<sy_add>(square) / (double)n + c.e.as.norm.epsilon);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            double value = (c.get(0, first + i) - mean) * rate * c.get(1, c.seen(1, first + i));
            c.put(GENERIC_OUT, first + i, value + (c.has(2) ? c.get(2, c.seen(2, first + i)) : 0));
        }
        if (threadIdx.x == 0 && c.has(GENERIC_OUT + 1))
            c.put(GENERIC_OUT + 1, row, mean);
        if (threadIdx.x == 0 && c.has(GENERIC_OUT + 2))
            c.put(GENERIC_OUT + 2, row, rate);
    }
};

/* LRN: squares of `size` channels around each. */
struct neighbours {
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0);
        int64_t size = c.e.as.neighbours.size, inner = c.extent(0, 2, x.rank);
        int64_t channel = i / inner % x.dims[1], first = channel - (size - 1) / 2,
                last = channel + size / 2;
        double sum = 0;
        first = first < 0 ? 0 : first;
        last = last >= x.dims[1] ? x.dims[1] - 1 : last;
        for (int64_t k = first; k <= last; k++) {
            double value = c.get(0, i + (k - channel) * inner);
            sum += value * value;
        }
        c.put(GENERIC_OUT, i,
              c.get(0, i) / pow(c.e.as.neighbours.bias + c.e.as.neighbours.alpha / (double)size * sum, c.e.as.neighbours.beta));
    }
};

/* ---- to 8 bits by the tensor's own range: one block ------------------------------------------------------ */

struct dynamic {
    __device__ static void of(const each &c, int64_t)
    {
        float low = 0, high = 0;
        int64_t n = c.array(0).n;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            low = fminf(low, (float)c.get(0, i));
            high = fmaxf(high, (float)c.get(0, i));
        }
        low = -sy_block_reduce<sy_larger>(-low);
        high = sy_block_reduce<sy_larger>(high);
        float scale = (high - low) / 255;
        scale = scale == 0 ? 1 : scale;
        float zero = nearbyintf(fmaxf(0, fminf(255, -low / scale)));
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            float value = nearbyintf((float)c.get(0, i) / scale) + zero;
            c.put_int(GENERIC_OUT, i, (int64_t)(value > 0 ? fminf(value, 255) : 0));
        }
        if (threadIdx.x == 0 && c.has(GENERIC_OUT + 1))
            c.put(GENERIC_OUT + 1, 0, (double)scale);
        if (threadIdx.x == 0 && c.has(GENERIC_OUT + 2))
            c.put(GENERIC_OUT + 2, 0, (double)zero);
    }
};

/* ---- losses: scores [N, C, d...], targets [N, d...], weights of classes; one block ------------------------- */

struct loss {
    /* Where class k of target i lies in the scores. */
    __device__ static int64_t at(const each &c, int64_t inner, int64_t i, int64_t k)
    {
        return (i / inner * c.array(0).dims[1] + k) * inner + i % inner;
    }
    /* log(sum(exp(scores))) of a target; 0 where the scores are logarithms already. */
    __device__ static double shift_of(const each &c, int64_t inner, int64_t i)
    {
        int64_t classes = c.array(0).dims[1];
        double top = -INFINITY, sum = 0;
        if (c.e.op == SY_OP_NLL_LOSS)
            return 0;
        for (int64_t k = 0; k < classes; k++)
            top = fmax(top, c.get(0, at(c, inner, i, k)));
        for (int64_t k = 0; k < classes; k++)
            sum += exp(c.get(0, at(c, inner, i, k)) - top);
        return top + log(sum);
    }
    __device__ static double one(const each &c, int64_t inner, int64_t i, double *weight)
    {
        int64_t classes = c.array(0).dims[1], target = c.get_int(1, i);
        double shift = shift_of(c, inner, i);
        for (int64_t k = 0; c.has(GENERIC_OUT + 1) && k < classes; k++)
            c.put(GENERIC_OUT + 1, at(c, inner, i, k), c.get(0, at(c, inner, i, k)) - shift);
        *weight = 0;
        if (c.e.as.loss.has_ignored && target == c.e.as.loss.ignored)
            return 0;
        if (target < 0 || target >= classes) {
            c.tell(target);
            return 0;
        }
        *weight = c.has(2) ? c.get(2, target) : 1;
        return -*weight * (c.get(0, at(c, inner, i, target)) - shift);
    }
    __device__ static void of(const each &c, int64_t)
    {
        int64_t inner = c.extent(0, 2, c.array(0).rank), n = c.array(1).n;
        double sum = 0, weights = 0, weight;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            double value = one(c, inner, i, &weight);
            if (c.e.as.loss.total == SY_GENERIC_LOSS_NONE)
                c.put(GENERIC_OUT, i, value);
            sum += value;
            weights += weight;
        }
        sum = sy_block_reduce<sy_add>(sum);
        weights = sy_block_reduce<sy_add>(weights);
        if (threadIdx.x == 0 && c.e.as.loss.total != SY_GENERIC_LOSS_NONE)
            c.put(GENERIC_OUT, 0, c.e.as.loss.total == SY_GENERIC_LOSS_SUM ? sum : sum / weights);
    }
};

int sy_kernel_each_lines(struct CUstream_st *stream, const struct sy_math_generic *e, void *const *at,
                         struct sy_math_fault *fault)
{
    switch (e->kind) {
    case SY_GENERIC_LINE:
        return generic_launch<line>(stream, e, at, fault);
    case SY_GENERIC_ARG:
        return generic_launch_blocks<arg>(stream, e, at, fault);
    case SY_GENERIC_REDUCTION:
        return generic_launch<reduction>(stream, e, at, fault);
    case SY_GENERIC_BATCH:
        return generic_launch_blocks<batch>(stream, e, at, fault);
    case SY_GENERIC_NORM:
        return generic_launch_blocks<row_norm>(stream, e, at, fault);
    case SY_GENERIC_NEIGHBOURS:
        return generic_launch<neighbours>(stream, e, at, fault);
    case SY_GENERIC_LOSS:
        return generic_launch_blocks<loss>(stream, e, at, fault);
    case SY_GENERIC_DYNAMIC:
        return generic_launch_blocks<dynamic>(stream, e, at, fault);
    default:
        return -1;
    }
}
