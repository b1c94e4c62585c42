/* Windows and transforms of signals, determinants, counts of n-grams, MaxUnpool. */
#include "workers/cuda/kernels/generic_arrays.cuh"

SY_KERNEL_FILE(generic_signal)

#define FULL_TURN 6.283185307179586

/* ---- window functions: the input says how long they are; one item more looks at that -------------------------- */

struct taper {
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &y = c.array(GENERIC_OUT);
        double n = (double)(c.e.as.taper.periodic ? y.n : y.n - 1);
        double turn = n > 0 ? FULL_TURN * (double)i / n : 0, value = 0.5 - 0.5 * cos(turn);
        if (i == y.n) {
            if (c.get_int(0, 0) != y.n)
                c.tell(c.get_int(0, 0));
            return;
        }
        if (c.e.op == SY_OP_HAMMING_WINDOW)
            value = 25.0 / 46 - (1 - 25.0 / 46) * cos(turn);
        else if (c.e.op == SY_OP_BLACKMAN_WINDOW)
            value = 0.42 - 0.5 * cos(turn) + 0.08 * cos(2 * turn);
        c.put(GENERIC_OUT, i, value);
    }
};

/* ---- DFT by definition: a thread a bin ------------------------------------------------------------------------ */

/* The first n of `bins` numbers are used; an inverse of half the bins continues with their conjugates. */
struct dft {
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        const sy_generic_dft &d = c.e.as.dft;
        int64_t parts = x.dims[x.rank - 1], out_parts = y.dims[y.rank - 1],
                out_bins = y.dims[c.e.axis], bin = i / d.inner % out_bins, n = d.n;
        int64_t first = i / d.inner / out_bins * d.bins * d.inner + i % d.inner;
        double re = 0, im = 0;
        if (n == 0)
            n = c.get_int(1, 0);
        if (n < 1 || n > (d.bins > 2 * out_bins ? d.bins : 2 * out_bins)) {
            c.tell(n);
            return;
        }
        for (int64_t k = 0; k < n; k++) {
            bool mirrored = d.from_half && k > n / 2;
            int64_t at = mirrored ? n - k : k, from = (first + at * d.inner) * parts;
            if (at >= d.bins)
                continue;
            double a = c.get(0, from), b = parts == 2 ? c.get(0, from + 1) : 0,
                   turn = FULL_TURN * (double)(bin * k % n) / (double)n;
            double cosine = cos(turn), sine = d.inverse ? sin(turn) : -sin(turn);
            b = mirrored ? -b : b;
            re += a * cosine - b * sine;
            im += a * sine + b * cosine;
        }
        double share = d.inverse ? 1 / (double)n : 1;
        c.put(GENERIC_OUT, out_parts * i, re * share);
        if (out_parts == 2)
            c.put(GENERIC_OUT, out_parts * i + 1, im * share);
    }
};

/* ---- Det: a block a matrix, by elimination with pivots in the room ---------------------------------------------- */

struct determinant {
    __device__ static int64_t pivot_of(const double *m, int64_t n, int64_t k)
    {
        int64_t pivot = k;
        for (int64_t r = k + 1; r < n; r++)
            pivot = fabs(m[r * n + k]) > fabs(m[pivot * n + k]) ? r : pivot;
        return pivot;
    }
    /* Rows k and `pivot` change places, then row k is taken from those below. */
    __device__ static void eliminate(double *m, int64_t n, int64_t k, int64_t pivot)
    {
        for (int64_t i = threadIdx.x; pivot != k && i < n; i += blockDim.x) {
            double held = m[k * n + i];
            m[k * n + i] = m[pivot * n + i];
            m[pivot * n + i] = held;
        }
        __syncthreads();
        int64_t rest = n - k - 1;
        for (int64_t i = threadIdx.x; i < rest * rest; i += blockDim.x) {
            int64_t r = k + 1 + i / rest, column = k + 1 + i % rest;
            m[r * n + column] -= m[r * n + k] / m[k * n + k] * m[k * n + column];
        }
        __syncthreads();
    }
    __device__ static void of(const each &c, int64_t which)
    {
        int64_t n = c.array(0).dims[c.array(0).rank - 1];
        double *m = (double *)c.p.at[SY_GENERIC_ROOM] + which * n * n, det = 1;
        for (int64_t i = threadIdx.x; i < n * n; i += blockDim.x)
            m[i] = c.get(0, which * n * n + i);
        __syncthreads();
        for (int64_t k = 0; k < n && det != 0; k++) {
            int64_t pivot = pivot_of(m, n, k);
            double at_pivot = m[pivot * n + k];
            det *= pivot != k ? -at_pivot : at_pivot;
            __syncthreads(); /* all have seen the pivot */
            if (at_pivot == 0)
                det = 0;
            else
                eliminate(m, n, k, pivot);
        }
        if (threadIdx.x == 0)
            c.put(GENERIC_OUT, which, det);
    }
};

/* ---- TfIdfVectorizer: a thread a number of the result, some of the grams ---------------------------------------- */

struct grams {
    /* How often a gram occurs in the row with `step` between its items. */
    __device__ static int64_t occurrences(const each &c, int64_t first, int64_t n,
                                          const int64_t *gram, int64_t step)
    {
        int64_t count = 0, length = c.e.as.grams.length;
        for (int64_t i = 0; i + (length - 1) * step < n; i++) {
            int64_t k = 0;
            while (k < length && c.get_int(0, first + i + k * step) == gram[k])
                k++;
            count += k == length;
        }
        return count;
    }
    __device__ static void of(const each &c, int64_t i)
    {
        const sy_generic_grams &g = c.e.as.grams;
        const sy_generic_array &x = c.array(0);
        int64_t n = x.dims[x.rank - 1], first = i / g.columns * n;
        double sum = g.begins ? 0 : c.get(GENERIC_OUT, i);
        for (int k = 0; k < g.n; k++) {
            int64_t count = 0;
            if (g.index[k] != i % g.columns)
                continue;
            for (int64_t skip = 0; skip <= g.skips; skip++)
                count += occurrences(c, first, n, g.pool + k * g.length, skip + 1);
            double often = g.counts ? (double)count : count > 0, weight = g.weighs ? (double)g.weights[k] : 1;
            sum = c.rounded(GENERIC_OUT, sum + often * weight);
        }
        c.put(GENERIC_OUT, i, sum);
    }
};

/* ---- MaxUnpool -------------------------------------------------------------------------------------------------- */

/* Indices count in the shape that the pool had. What meets at one place is one thread's, in the order of the indices. */
struct unpool {
    /* Where the index lies in the result; -1: outside, and told. */
    __device__ static int64_t place_of(const each &c, int64_t index)
    {
        const sy_generic_array &x = c.array(0), &y = c.array(GENERIC_OUT);
        int64_t at[SY_MAX_RANK], left = index, place = 0;
        for (int d = x.rank - 1; d >= 0; d--) {
            int64_t extent = d < 2 ? x.dims[d] : c.e.as.window.kernel[d - 2];
            at[d] = extent > 0 ? left % extent : 0;
            left = extent > 0 ? left / extent : -1;
        }
        bool fits = index >= 0 && left == 0;
        for (int d = 0; fits && d < x.rank; d++) {
            fits = at[d] < y.dims[d];
            place = place * y.dims[d] + at[d];
        }
        if (!fits)
            c.tell(index);
        return fits ? place : -1;
    }
    __device__ static void of(const each &c, int64_t part)
    {
        int64_t parts = c.e.items;
        for (int64_t i = part; i < c.array(GENERIC_OUT).n; i += parts)
            c.put(GENERIC_OUT, i, 0);
        for (int64_t i = 0; i < c.array(0).n; i++) {
            int64_t place = place_of(c, c.get_int(1, i));
            if (place >= 0 && place % parts == part)
                c.copy(GENERIC_OUT, place, 0, i);
        }
    }
};

int sy_kernel_each_signal(struct CUstream_st *stream, const struct sy_math_generic *e, void *const *at,
                          struct sy_math_fault *fault)
{
    switch (e->kind) {
    case SY_GENERIC_TAPER:
        return generic_launch<taper>(stream, e, at, fault);
    case SY_GENERIC_DFT:
        return generic_launch<dft>(stream, e, at, fault);
    case SY_GENERIC_DET:
        return generic_launch_blocks<determinant>(stream, e, at, fault);
    case SY_GENERIC_GRAMS:
        return generic_launch<grams>(stream, e, at, fault);
    case SY_GENERIC_UNPOOL:
        return generic_launch<unpool>(stream, e, at, fault);
    default:
        return -1;
    }
}
