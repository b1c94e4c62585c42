/* Windows and transforms of signals, counts of n-grams. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/reference/kernel.h"

static const double pi = 3.14159265358979323846;

/* ---- windows -------------------------------------------------------------------------------------- */

static int run_window(const struct sy_call *call)
{
    const struct sy_array *y = &call->out[0];
    bool periodic = sy_node_int(call->node, "periodic", 1) != 0;
    double n = (double)(periodic ? y->n : y->n - 1);
    if (sy_get_int(&call->in[0], 0) != y->n)
        return sy_kernel_fail(call, "its size is not %lld as declared", (long long)y->n);
    for (int64_t i = 0; i < y->n; i++) {
        double turn = n > 0 ? 2 * pi * (double)i / n : 0, value = 0.5 - 0.5 * cos(turn);
        if (call->node->op == SY_OP_HAMMING_WINDOW)
            value = 25.0 / 46 - (1 - 25.0 / 46) * cos(turn);
        else if (call->node->op == SY_OP_BLACKMAN_WINDOW)
            value = 0.42 - 0.5 * cos(turn) + 0.08 * cos(2 * turn);
        sy_put(y, i, value);
    }
    return SY_OK;
}

static int check_window(const struct sy_call *call)
{
    return call->in[0].n == 1 && call->out[0].rank == 1
               ? SY_OK
               : sy_kernel_refuse(call, "a size that is not one number");
}

/* ---- DFT ------------------------------------------------------------------------------------------ */

/* Input of a transform: `bins` numbers, of which the first n (its length) count; an inverse of half the bins continues with their conjugates. */
struct dft {
    const struct sy_array *x;
    int64_t n, bins, inner;
    bool inverse, from_half;
    const double *turns; /* cos, sin of all parts of a turn */
};

static struct dft plan_dft(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0], *length = sy_call_in(call, 1);
    int axis = (int)sy_node_int(call->node, "axis", 1);
    struct dft d = {.x = x,
                    .bins = x->dims[axis],
                    .n = y->dims[axis],
                    .inner = sy_array_extent(x, axis + 1, x->rank - 1),
                    .inverse = sy_node_int(call->node, "inverse", 0) != 0};
    bool onesided = sy_node_int(call->node, "onesided", 0) != 0;
    d.from_half = onesided && d.inverse;
    if (onesided && !d.inverse)
        d.n = length && length->data ? sy_get_int(length, 0) : d.bins;
    return d;
}

/* By definition: signals are short where a network has one. */
static void transform_one(const struct dft *d, int64_t first, int64_t bin, double *re, double *im)
{
    int64_t parts = d->x->dims[d->x->rank - 1];
    *re = *im = 0;
    for (int64_t k = 0; k < d->n; k++) {
        bool mirrored = d->from_half && k > d->n / 2;
        int64_t at = mirrored ? d->n - k : k;
        if (at >= d->bins)
            continue;
        int64_t from = (first + at * d->inner) * parts, turn = bin * k % d->n;
        double a = sy_get(d->x, from), b = parts == 2 ? sy_get(d->x, from + 1) : 0;
        double c = d->turns[2 * turn],
               s = d->inverse ? d->turns[2 * turn + 1] : -d->turns[2 * turn + 1];
        b = mirrored ? -b : b;
        *re += a * c - b * s;
        *im += a * s + b * c;
    }
}

static int run_dft(const struct sy_call *call)
{
    const struct sy_array *y = &call->out[0];
    struct dft d = plan_dft(call);
    int64_t axis = sy_node_int(call->node, "axis", 1), bins = y->dims[axis],
            parts = y->dims[y->rank - 1];
    double *turns = call->scratch, share = d.inverse ? 1 / (double)d.n : 1;
    if (d.n < 1 || d.n > SY_MAX(d.bins, 2 * bins))
        return sy_kernel_fail(call, "a length of %lld", (long long)d.n);
    for (int64_t i = 0; i < d.n; i++) {
        turns[2 * i] = cos(2 * pi * (double)i / (double)d.n);
        turns[2 * i + 1] = sin(2 * pi * (double)i / (double)d.n);
    }
    d.turns = turns;
#pragma omp parallel for schedule(static) if (y->n * d.n > 65536)
    for (int64_t i = 0; i < y->n / parts; i++) {
        double re, im;
        transform_one(&d, i / d.inner / bins * d.bins * d.inner + i % d.inner, i / d.inner % bins,
                      &re, &im);
        sy_put(y, parts * i, re * share);
        if (parts == 2)
            sy_put(y, parts * i + 1, im * share);
    }
    return SY_OK;
}

static int64_t scratch_dft(const struct sy_call *call)
{
    int64_t axis = sy_node_int(call->node, "axis", 1);
    return 2 * (int64_t)sizeof(double) *
           SY_MAX(call->in[0].dims[axis], 2 * call->out[0].dims[axis]);
}

static int check_dft(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    int64_t axis = sy_node_int(call->node, "axis", 1);
    bool to_half =
        sy_node_int(call->node, "inverse", 0) != 0 && sy_node_int(call->node, "onesided", 0) != 0;
    bool fits = x->rank >= 2 && y->rank == x->rank && axis >= 0 && axis < x->rank - 1 &&
                y->dims[y->rank - 1] == (to_half ? 1 : 2) && x->dims[x->rank - 1] >= 1 &&
                x->dims[x->rank - 1] <= 2;
    for (int d = 0; fits && d < x->rank - 1; d++)
        fits = d == axis ? y->dims[d] > 0 && x->dims[d] > 0 : y->dims[d] == x->dims[d];
    return fits ? SY_OK : sy_kernel_refuse(call, "an axis or a result that does not fit");
}

#define WINDOW(op)                                         \
    {                                                      \
        op, run_window, {SY_ANY_INDEX}, check_window, NULL \
    }
const struct sy_kernel sy_kernels_signal[] = {
    WINDOW(SY_OP_HANN_WINDOW),
    WINDOW(SY_OP_HAMMING_WINDOW),
    WINDOW(SY_OP_BLACKMAN_WINDOW),
    {SY_OP_DFT, run_dft, {SY_ANY_FLOAT, SY_ANY_INDEX}, check_dft, scratch_dft},
    {0}};
