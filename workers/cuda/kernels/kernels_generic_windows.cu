/* Windows and products, of 8 bits too: a thread for each element of the result. */
#include "workers/cuda/kernels/generic_arrays.cuh"

SY_KERNEL_FILE(generic_windows)

/* ---- products ----------------------------------------------------------------------------------------- */

/* The index of each label for result o and summand s: both are decomposed from their last label on. */
struct label_places {
    int64_t at[SY_GENERIC_LABELS];
    __device__ void find(const each &c, int64_t o, int64_t s)
    {
        int n_out = c.e.as.product.n_result;
        at[0] = 0; /* what is left over of a factor's labels says 0 */
        for (int l = c.e.as.product.n_labels - 1; l >= 0; l--) {
            int64_t &left = l < n_out ? o : s;
            at[l] = left % c.e.as.product.sizes[l];
            left /= c.e.as.product.sizes[l];
        }
    }
    /* The element of array a that lies there. */
    __device__ int64_t in(const each &c, int a) const
    {
        int64_t sum = 0;
        for (int i = 0; i < c.array(a).rank; i++)
            sum += at[c.e.as.product.labels[a][i]] * c.array(a).strides[i];
        return sum;
    }
};

__device__ static int64_t summands(const each &c)
{
    int64_t n = 1;
    for (int l = c.e.as.product.n_result; l < c.e.as.product.n_labels; l++)
        n *= c.e.as.product.sizes[l];
    return n;
}

/* How far apart the summands of a factor lie, if one label is summed over. */
__device__ static int64_t factor_step(const each &c, int factor)
{
    int64_t step = 0;
    for (int i = 0; i < c.array(factor).rank; i++)
        if (c.e.as.product.labels[factor][i] == c.e.as.product.n_result)
            step += c.array(factor).strides[i];
    return step;
}

struct product {
    __device__ static void of(const each &c, int64_t o)
    {
        int64_t n = summands(c), first[SY_GENERIC_IN], step[SY_GENERIC_IN];
        label_places places;
        double sum = 0;
        uint64_t whole = 0;
        bool floats = c.is_float(GENERIC_OUT),
             walks = c.e.as.product.n_labels == c.e.as.product.n_result + 1;
        places.find(c, o, 0);
        for (int k = 0; k < c.e.n_in; k++) {
            first[k] = places.in(c, k);
            step[k] = factor_step(c, k);
        }
        for (int64_t s = 0; s < n; s++) {
            double one = 1;
            uint64_t whole_one = 1;
            if (!walks)
                places.find(c, o, s);
            for (int k = 0; k < c.e.n_in; k++) {
                int64_t at = walks ? first[k] + s * step[k] : places.in(c, k);
                if (floats)
                    one *= c.get(k, at);
                else
                    whole_one *= (uint64_t)c.get_int(k, at);
            }
            sum += one;
            whole += whole_one;
        }
        if (floats)
            c.put(GENERIC_OUT, o, c.e.op == SY_OP_MATMUL ? sum * c.e.as.product.alpha : sum);
        else
            c.put_int(GENERIC_OUT, o, (int64_t)whole);
    }
};

/* ---- 8 bits ------------------------------------------------------------------------------------------- */

/* Element k of a scale or zero point that is one number or one for each; 0 where it is left out. */
__device__ static double parameter(const each &c, int a, int64_t k)
{
    return c.has(a) ? c.get(a, c.array(a).n == 1 ? 0 : k) : 0;
}

__device__ static void put_saturated(const each &c, int64_t i, double value)
{
    bool is_signed = c.array(GENERIC_OUT).dtype == SY_DTYPE_I8;
    double low = is_signed ? -128 : 0, high = is_signed ? 127 : 255;
    value = value > high ? high : value >= low ? value : low; /* of a NaN the least */
    c.put_int(GENERIC_OUT, i, (int64_t)value);
}

struct quantize {
    __device__ static void of(const each &c, int64_t i)
    {
        int64_t k = i / c.e.as.quantize.inner % c.e.as.quantize.length;
        if (c.e.op == SY_OP_DEQUANTIZE_LINEAR) {
            c.put(GENERIC_OUT, i, (c.get(0, i) - parameter(c, 2, k)) * c.get(1, k));
            return;
        }
        double quotient = c.get(0, i) / c.get(1, k);
        if (c.array(0).dtype == SY_DTYPE_F32) /* halves are those of the quotient as float32 */
            quotient = (double)(float)quotient;
        put_saturated(c, i, nearbyint(quotient) + parameter(c, 2, k));
    }
};

/* The linear forms have inputs a, scale, zero, b, scale, zero, scale of the result, zero of the result; the others a, b, zero, zero. */
struct operands {
    int b, zero_a, zero_b;
    bool linear;
};

__device__ static operands operands_of(const each &c)
{
    bool linear = c.e.op == SY_OP_QLINEAR_CONV || c.e.op == SY_OP_QLINEAR_MATMUL;
    operands o = {linear ? 3 : 1, 2, linear ? 5 : 3, linear};
    return o;
}

__device__ static void finish(const each &c, const operands &q, int64_t to, int64_t k, int64_t sum)
{
    if (!q.linear) {
        c.put_int(GENERIC_OUT, to, sum);
        return;
    }
    double scale = c.get(1, 0) * parameter(c, 4, k) / c.get(6, 0);
    put_saturated(c, to, nearbyint((double)sum * scale) + parameter(c, 7, 0));
}

/* The index of result o along a label; 0 if it lacks the label. */
__device__ static int64_t label_at(const each &c, int64_t o, int64_t label)
{
    for (int l = c.e.as.product.n_result - 1; l > label; l--)
        o /= c.e.as.product.sizes[l];
    return label < 0 ? 0 : o % c.e.as.product.sizes[label];
}

struct integer_product {
    __device__ static void of(const each &c, int64_t o)
    {
        operands q = operands_of(c);
        int64_t n = summands(c), row = label_at(c, o, c.e.as.product.row_label),
                column = label_at(c, o, c.e.as.product.column_label), sum = 0;
        int64_t zero_a = (int64_t)parameter(c, q.zero_a, row),
                zero_b = (int64_t)parameter(c, q.zero_b, column);
        label_places places;
        places.find(c, o, 0);
        int64_t a = places.in(c, 0), b = places.in(c, q.b), a_step = factor_step(c, 0),
                b_step = factor_step(c, q.b);
        for (int64_t s = 0; s < n; s++)
            sum +=
                (c.get_int(0, a + s * a_step) - zero_a) * (c.get_int(q.b, b + s * b_step) - zero_b);
        finish(c, q, o, column, sum);
    }
};

/* ---- windows ------------------------------------------------------------------------------------------ */

/* Where position k of the window of the result's element i lies in its channel of the input; -1: in the padding. */
__device__ static int64_t window_at(const each &c, int64_t i, int64_t k)
{
    const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
    int64_t offset = 0, stride = 1;
    for (int d = x.rank - 3; d >= 0; d--) {
        int64_t kernel = c.e.as.window.kernel[d];
        int64_t at = i % y.dims[d + 2] * c.e.as.window.strides[d] - c.e.as.window.pads[d] +
                     k % kernel * c.e.as.window.dilations[d];
        i /= y.dims[d + 2];
        k /= kernel;
        if (at < 0 || at >= x.dims[d + 2])
            return -1;
        offset += at * stride;
        stride *= x.dims[d + 2];
    }
    return offset;
}

struct integer_conv {
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        operands q = operands_of(c);
        int64_t inner = c.extent(0, 2, x.rank), outer = c.extent(GENERIC_OUT, 2, y.rank);
        int64_t size = c.e.as.window.size, depth = c.array(q.b).dims[1];
        int64_t m = i / outer % y.dims[1], image = i / outer / y.dims[1];
        int64_t first =
            (image * x.dims[1] + m / (y.dims[1] / c.e.as.window.groups) * depth) * inner;
        int64_t zero_x = (int64_t)parameter(c, q.zero_a, 0),
                zero_w = (int64_t)parameter(c, q.zero_b, m);
        int64_t sum = q.linear && c.has(8) ? c.get_int(8, m) : 0;
        for (int64_t k = 0; k < size; k++) {
            int64_t from = window_at(c, i, k);
            for (int64_t d = 0; from >= 0 && d < depth; d++)
                sum += (c.get_int(0, first + d * inner + from) - zero_x) *
                       (c.get_int(q.b, (m * depth + d) * size + k) - zero_w);
        }
        finish(c, q, i, m, sum);
    }
};

struct window {
    /* Positions that count for an average: the window without what lies behind the end padding (ceil_mode). */
    __device__ static int64_t counted(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        int64_t n = 1;
        for (int d = x.rank - 3; d >= 0; d--) {
            int64_t end = x.dims[d + 2] + c.e.as.window.pads_behind[d], inside = 0;
            int64_t start = i % y.dims[d + 2] * c.e.as.window.strides[d] - c.e.as.window.pads[d];
            for (int64_t k = 0; k < c.e.as.window.kernel[d]; k++)
                inside += start + k * c.e.as.window.dilations[d] < end;
            n *= inside;
            i /= y.dims[d + 2];
        }
        return n;
    }
    /* Row-major among the spatial dimensions, or column-major. */
    __device__ static int64_t turned(const each &c, int64_t offset)
    {
        const sy_generic_array &x = c.array(0);
        int64_t at = 0, left = c.extent(0, 2, x.rank);
        if (!c.e.as.window.turns)
            return offset;
        for (int d = x.rank - 1; d >= 2; d--) {
            left /= x.dims[d];
            at += offset % x.dims[d] * left;
            offset /= x.dims[d];
        }
        return at;
    }
    __device__ static void largest(const each &c, int64_t i, int64_t channel, int64_t inner)
    {
        int64_t best = -1, first = channel * inner;
        for (int64_t k = 0; k < c.e.as.window.size; k++) {
            int64_t from = window_at(c, i, k);
            if (from >= 0 && (best < 0 || c.get(0, first + from) > c.get(0, first + best)))
                best = from;
        }
        if (best < 0) {
            c.tell(i);
            best = 0;
        }
        c.copy(GENERIC_OUT, i, 0, first + best);
        if (c.has(GENERIC_OUT + 1))
            c.put_int(GENERIC_OUT + 1, i, first + turned(c, best));
    }
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        enum sy_op op = c.e.op;
        int64_t inner = c.extent(0, 2, x.rank), channel = i / c.extent(GENERIC_OUT, 2, y.rank), n = 0;
        bool lp = op == SY_OP_LP_POOL || op == SY_OP_GLOBAL_LP_POOL;
        double p = (double)c.e.as.window.p, sum = 0;
        if (op == SY_OP_MAX_POOL || op == SY_OP_GLOBAL_MAX_POOL) {
            largest(c, i, channel, inner);
            return;
        }
        for (int64_t k = 0; k < c.e.as.window.size; k++) {
            int64_t from = window_at(c, i, k);
            if (from < 0)
                continue;
            double value = c.get(0, channel * inner + from);
            sum += lp ? pow(fabs(value), p) : value;
            n++;
        }
        if (!lp && c.e.as.window.counts_padding)
            n = counted(c, i);
        c.put(GENERIC_OUT, i, lp ? pow(sum, 1 / p) : n ? sum / (double)n : 0);
    }
};

int sy_kernel_each_windows(struct CUstream_st *stream, const struct sy_math_generic *e,
                           void *const *at, struct sy_math_fault *fault)
{
    switch (e->kind) {
    case SY_GENERIC_PRODUCT:
        return generic_launch<product>(stream, e, at, fault);
    case SY_GENERIC_QUANTIZE:
        return generic_launch<quantize>(stream, e, at, fault);
    case SY_GENERIC_INTEGER_PRODUCT:
        return generic_launch<integer_product>(stream, e, at, fault);
    case SY_GENERIC_INTEGER_CONV:
        return generic_launch<integer_conv>(stream, e, at, fault);
    case SY_GENERIC_WINDOW:
        return generic_launch<window>(stream, e, at, fault);
    default:
        return -1;
    }
}
