/* Products that oneDNN does not take: of vectors, integers, by formula; determinants. */
#include "runtime/base/status.h"
#include "workers/host/reference/kernel.h"
#include "workers/host/reference/kernel_product.h"

/* ---- MatMul --------------------------------------------------------------------------------------- */

/* A vector becomes a matrix of one row (left) or one column (right). */
static struct sy_array as_matrix(const struct sy_array *a, bool left)
{
    struct sy_array m = *a;
    if (a->rank == 1) {
        m.rank = 2;
        m.dims[0] = left ? 1 : a->dims[0];
        m.dims[1] = left ? a->dims[0] : 1;
    }
    return m;
}

/* The result seen with the dimensions that vectors drop. */
static struct sy_array full_result(const struct sy_array *a, const struct sy_array *b,
                                   const struct sy_array *y)
{
    struct sy_array full = *y;
    if (a->rank == 1) {
        int at = full.rank - (b->rank > 1);
        for (int i = full.rank++; i > at; i--)
            full.dims[i] = full.dims[i - 1];
        full.dims[at] = 1;
    }
    if (b->rank == 1)
        full.dims[full.rank++] = 1;
    return full;
}

bool sy_product_fits(const struct sy_array *a, const struct sy_array *b, const struct sy_array *y)
{
    struct sy_array ma = as_matrix(a, true), mb = as_matrix(b, false);
    if (a->rank < 1 || b->rank < 1 || y->rank + (a->rank == 1) + (b->rank == 1) > SY_MAX_RANK)
        return false;
    struct sy_array full = full_result(a, b, y);
    int64_t strides[SY_MAX_RANK];
    if (full.rank < 2 || ma.dims[ma.rank - 1] != mb.dims[mb.rank - 2] ||
        full.dims[full.rank - 2] != ma.dims[ma.rank - 2] ||
        full.dims[full.rank - 1] != mb.dims[mb.rank - 1])
        return false;
    ma.rank -= 2;
    mb.rank -= 2;
    full.rank -= 2;
    return sy_array_broadcast_strides(&ma, &full, strides) &&
           sy_array_broadcast_strides(&mb, &full, strides);
}

int sy_product_run(const struct sy_array *a, const struct sy_array *b, const struct sy_array *y,
                   sy_product_cell *cell, void *context)
{
    struct sy_array ma = as_matrix(a, true), mb = as_matrix(b, false), full = full_result(a, b, y);
    struct sy_product p = {.a = a, .b = b, .y = y};
    p.rows = full.dims[full.rank - 2];
    p.columns = full.dims[full.rank - 1];
    p.depth = ma.dims[ma.rank - 1];
    int64_t sa[SY_MAX_RANK], sb[SY_MAX_RANK];
    ma.rank -= 2;
    mb.rank -= 2;
    full.rank -= 2;
    sy_array_broadcast_strides(&ma, &full, sa);
    sy_array_broadcast_strides(&mb, &full, sb);
    int64_t batches = sy_array_extent(&full, 0, full.rank);
    for (int64_t k = 0; k < batches; k++) {
        p.a_start = sy_array_offset(&full, k, sa) * p.rows * p.depth;
        p.b_start = sy_array_offset(&full, k, sb) * p.depth * p.columns;
        for (p.row = 0; p.row < p.rows; p.row++)
            for (p.column = 0; p.column < p.columns; p.column++)
                cell(&p, (k * p.rows + p.row) * p.columns + p.column, context);
    }
    return SY_OK;
}

/* alpha * a*b + bias: what passes may have made of a MatMul. */
static void number_cell(const struct sy_product *p, int64_t to, void *context)
{
    const struct sy_call *call = context;
    const struct sy_array *bias =
        call->node->bias_input >= 0 ? sy_call_in(call, call->node->bias_input) : NULL;
    double sum = 0;
    uint64_t whole = 0;
    bool floats = sy_is_float(p->a->dtype);
    for (int64_t k = 0; k < p->depth; k++) {
        int64_t ia = p->a_start + p->row * p->depth + k,
                ib = p->b_start + k * p->columns + p->column;
        if (floats)
            sum += sy_get(p->a, ia) * sy_get(p->b, ib);
        else
            whole += (uint64_t)sy_get_int(p->a, ia) * (uint64_t)sy_get_int(p->b, ib);
    }
    if (!floats) {
        sy_put_int(p->y, to, (int64_t)whole);
        return;
    }
    sum *= (double)sy_node_float(call->node, "alpha", 1);
    if (bias)
        sum += sy_get(bias, bias->n == 1 ? 0 : p->column);
    sy_put(p->y, to, sum);
}

static int run_matmul(const struct sy_call *call)
{
    return sy_product_run(&call->in[0], &call->in[1], &call->out[0], number_cell, (void *)call);
}

static int check_matmul(const struct sy_call *call)
{
    int bias = call->node->bias_input;
    if (call->n_in < 2 || !sy_product_fits(&call->in[0], &call->in[1], &call->out[0]) ||
        call->out[0].dtype != call->in[0].dtype)
        return sy_kernel_refuse(call, "operands that do not fit");
    const struct sy_array *y = &call->out[0], *b = &call->in[1];
    if (bias >= 0 && sy_call_in(call, bias) && call->in[bias].n != 1 &&
        (b->rank < 2 || call->in[bias].n != y->dims[y->rank - 1]))
        return sy_kernel_refuse(call, "a bias that does not fit");
    return SY_OK;
}

/* ---- Gemm ----------------------------------------------------------------------------------------- */

static int run_gemm(const struct sy_call *call)
{
    const struct sy_array *a = &call->in[0], *b = &call->in[1], *c = sy_call_in(call, 2),
                          *y = &call->out[0];
    bool turn_a = sy_node_int(call->node, "transA", 0) != 0,
         turn_b = sy_node_int(call->node, "transB", 0) != 0, floats = sy_is_float(a->dtype);
    double alpha = (double)sy_node_float(call->node, "alpha", 1),
           beta = (double)sy_node_float(call->node, "beta", 1);
    int64_t rows = y->dims[0], columns = y->dims[1], depth = a->dims[!turn_a];
    int64_t strides[SY_MAX_RANK];
    if (c)
        sy_array_broadcast_strides(c, y, strides);
    for (int64_t i = 0; i < y->n; i++) {
        int64_t r = i / columns, q = i % columns;
        double sum = 0;
        uint64_t whole = 0;
        for (int64_t k = 0; k < depth; k++) {
            int64_t ia = turn_a ? k * rows + r : r * depth + k,
                    ib = turn_b ? q * depth + k : k * columns + q;
            if (floats)
                sum += sy_get(a, ia) * sy_get(b, ib);
            else
                whole += (uint64_t)sy_get_int(a, ia) * (uint64_t)sy_get_int(b, ib);
        }
        if (!floats)
            sum = (double)(int64_t)whole;
        sum *= alpha;
        sy_put(y, i, sum + (c ? beta * sy_get(c, sy_array_offset(y, i, strides)) : 0));
    }
    return SY_OK;
}

static int check_gemm(const struct sy_call *call)
{
    const struct sy_array *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    int turn_a = sy_node_int(call->node, "transA", 0) != 0,
        turn_b = sy_node_int(call->node, "transB", 0) != 0;
    int64_t strides[SY_MAX_RANK];
    if (call->n_in < 2 || call->n_in > 3 || a->rank != 2 || b->rank != 2 || y->rank != 2 ||
        a->dims[!turn_a] != b->dims[turn_b] || y->dims[0] != a->dims[turn_a] ||
        y->dims[1] != b->dims[!turn_b] ||
        (sy_call_in(call, 2) && !sy_array_broadcast_strides(&call->in[2], y, strides)))
        return sy_kernel_refuse(call, "operands that do not fit");
    return SY_OK;
}

/* ---- Einsum --------------------------------------------------------------------------------------- */

enum { DOTS = 256 };

static int label_index(struct sy_einsum *f, int label)
{
    for (int i = 0; i < f->n; i++)
        if (f->labels[i] == label)
            return i;
    if (f->n == SY_EINSUM_LABELS)
        return -1;
    f->labels[f->n] = label;
    f->sizes[f->n] = 1;
    return f->n++;
}

/* Labels of one term into out; their number, or -1. `rank` gives the ellipsis its length. */
static int term_labels(const char **at, int rank, int *out)
{
    int n = 0, letters = 0;
    const char *c = *at;
    for (const char *s = c; *s && *s != ',' && *s != '-'; s++)
        letters += *s != ' ' && *s != '.';
    for (; *c && *c != ',' && *c != '-'; c++) {
        if (*c == '.') {
            for (int i = rank - letters; i > 0 && n < SY_MAX_RANK; i--)
                out[n++] = DOTS + i;
            c += 2;
        } else if (*c != ' ') {
            if (n == SY_MAX_RANK)
                return -1;
            out[n++] = (unsigned char)*c;
        }
    }
    *at = c;
    return n;
}

/* The result's labels: as written, or the ellipsis and the letters that come once, in order. */
static int result_labels(const struct sy_call *call, const char *equation, int *out)
{
    const char *arrow = strstr(equation, "->");
    int n = 0, counts[128] = {0};
    if (arrow) {
        const char *at = arrow + 2;
        return term_labels(&at, call->out[0].rank, out);
    }
    for (const char *c = equation; *c; c++)
        counts[(unsigned char)*c & 127] += *c != ' ' && *c != ',' && *c != '.';
    int letters = 0;
    for (int c = 0; c < 128; c++)
        letters += counts[c] == 1;
    for (int i = call->out[0].rank - letters; i > 0 && n < SY_MAX_RANK; i--)
        out[n++] = DOTS + i;
    for (int c = 0; c < 128 && n < SY_MAX_RANK; c++)
        if (counts[c] == 1)
            out[n++] = c;
    return n;
}

static bool add_operand(struct sy_einsum *f, const struct sy_array *a, const int *labels, int n,
                        int64_t *strides)
{
    int64_t own[SY_MAX_RANK];
    sy_array_strides(a, own);
    for (int d = 0; d < n; d++) {
        int i = label_index(f, labels[d]);
        if (i < 0 || (f->sizes[i] != 1 && a->dims[d] != 1 && f->sizes[i] != a->dims[d]))
            return false;
        if (a->dims[d] == 1 && f->sizes[i] != 1)
            continue;
        f->sizes[i] = a->dims[d];
        strides[i] += a->dims[d] == 1 ? 0 : own[d];
    }
    return true;
}

bool sy_einsum_read(const struct sy_call *call, struct sy_einsum *f)
{
    const struct sy_attr *attr = sy_node_attr(call->node, "equation");
    int labels[SY_MAX_RANK + 1];
    if (!attr || attr->kind != SY_ATTR_STRING || !attr->s)
        return false;
    memset(f, 0, sizeof *f);
    f->n_out = result_labels(call, attr->s, labels);
    for (int i = 0; i < f->n_out; i++)
        if (label_index(f, labels[i]) != i)
            return false;
    const char *at = attr->s;
    for (int k = 0; k < call->n_in; k++) {
        int n = term_labels(&at, call->in[k].rank, labels);
        if (n != call->in[k].rank || !add_operand(f, &call->in[k], labels, n, f->strides[k]))
            return false;
        at += *at == ',';
    }
    bool fits = f->n_out == call->out[0].rank;
    for (int i = 0; fits && i < f->n_out; i++)
        fits = f->sizes[i] == call->out[0].dims[i];
    return fits;
}

static int run_einsum(const struct sy_call *call)
{
    struct sy_einsum f;
    int64_t inner = 1;
    bool floats = sy_is_float(call->out[0].dtype);
    if (!sy_einsum_read(call, &f))
        return sy_kernel_fail(call, "its equation does not fit");
    for (int i = f.n_out; i < f.n; i++)
        inner *= f.sizes[i];
    for (int64_t o = 0; o < call->out[0].n; o++) {
        double sum = 0;
        uint64_t whole = 0;
        for (int64_t s = 0; s < inner; s++) {
            int64_t at[SY_KERNEL_INPUTS] = {0}, left = s;
            for (int i = f.n - 1; i >= 0; i--) {
                left = i == f.n_out - 1 ? o : left;
                for (int k = 0; k < call->n_in; k++)
                    at[k] += left % f.sizes[i] * f.strides[k][i];
                left /= f.sizes[i];
            }
            double product = 1;
            uint64_t whole_product = 1;
            for (int k = 0; k < call->n_in; k++) {
                if (floats)
                    product *= sy_get(&call->in[k], at[k]);
                else
                    whole_product *= (uint64_t)sy_get_int(&call->in[k], at[k]);
            }
            sum += product;
            whole += whole_product;
        }
        if (floats)
            sy_put(&call->out[0], o, sum);
        else
            sy_put_int(&call->out[0], o, (int64_t)whole);
    }
    return SY_OK;
}

static int check_einsum(const struct sy_call *call)
{
    struct sy_einsum f;
    for (int k = 0; k < call->n_in; k++)
        if (!sy_call_in(call, k))
            return sy_kernel_refuse(call, "an operand that is left out");
    return sy_einsum_read(call, &f) ? SY_OK : sy_kernel_refuse(call, "this equation");
}

/* ---- Det ------------------------------------------------------------------------------------------ */

/* By elimination with pivots, in scratch. */
static double determinant(double *m, int64_t n)
{
    double det = 1;
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        for (int64_t r = k + 1; r < n; r++)
            pivot = fabs(m[r * n + k]) > fabs(m[pivot * n + k]) ? r : pivot;
        if (m[pivot * n + k] == 0)
            return 0;
        for (int64_t c = 0; pivot != k && c < n; c++) {
            double swap = m[k * n + c];
            m[k * n + c] = m[pivot * n + c];
            m[pivot * n + c] = swap;
        }
        det *= pivot != k ? -m[k * n + k] : m[k * n + k];
        for (int64_t r = k + 1; r < n; r++) {
            double factor = m[r * n + k] / m[k * n + k];
            for (int64_t c = k; c < n; c++)
                m[r * n + c] -= factor * m[k * n + c];
        }
    }
    return det;
}

static int run_det(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    int64_t n = x->dims[x->rank - 1];
    double *m = call->scratch;
    for (int64_t k = 0; k < call->out[0].n; k++) {
        for (int64_t i = 0; i < n * n; i++)
            m[i] = sy_get(x, k * n * n + i);
        sy_put(&call->out[0], k, determinant(m, n));
    }
    return SY_OK;
}

static int check_det(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    if (x->rank < 2 || x->dims[x->rank - 1] != x->dims[x->rank - 2] ||
        call->out[0].n != sy_array_extent(x, 0, x->rank - 2))
        return sy_kernel_refuse(call, "no square matrices");
    return SY_OK;
}

static int64_t scratch_det(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    return (x->dims[x->rank - 1] * x->dims[x->rank - 1] + 1) * (int64_t)sizeof(double);
}

/* ---- Inverse -------------------------------------------------------------------------------------- */

/* Row r of both matrices. */
static void swap_rows(double *a, double *b, int64_t n, int64_t r, int64_t s)
{
    for (int64_t c = 0; r != s && c < n; c++) {
        double x = a[r * n + c], y = b[r * n + c];
        a[r * n + c] = a[s * n + c];
        b[r * n + c] = b[s * n + c];
        a[s * n + c] = x;
        b[s * n + c] = y;
    }
}

/* By elimination with pivots: m becomes the unit matrix, `inverse`, which is the unit matrix before, its inverse. Not finite where there is none. */
static void invert(double *m, double *inverse, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        for (int64_t r = k + 1; r < n; r++)
            pivot = fabs(m[r * n + k]) > fabs(m[pivot * n + k]) ? r : pivot;
        swap_rows(m, inverse, n, k, pivot);
        double by = m[k * n + k];
        for (int64_t c = 0; c < n; c++) {
            m[k * n + c] /= by;
            inverse[k * n + c] /= by;
        }
        for (int64_t r = 0; r < n; r++) {
            double factor = r == k ? 0 : m[r * n + k];
            for (int64_t c = 0; factor != 0 && c < n; c++) {
                m[r * n + c] -= factor * m[k * n + c];
                inverse[r * n + c] -= factor * inverse[k * n + c];
            }
        }
    }
}

static int run_inverse(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    int64_t n = x->dims[x->rank - 1], each = n * n;
    double *m = call->scratch, *inverse = m + each;
    for (int64_t first = 0; each > 0 && first < x->n; first += each) {
        for (int64_t i = 0; i < each; i++) {
            m[i] = sy_get(x, first + i);
            inverse[i] = i / n == i % n;
        }
        invert(m, inverse, n);
        for (int64_t i = 0; i < each; i++)
            sy_put(&call->out[0], first + i, inverse[i]);
    }
    return SY_OK;
}

static int check_inverse(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    if (x->rank < 2 || x->dims[x->rank - 1] != x->dims[x->rank - 2] || call->out[0].n != x->n)
        return sy_kernel_refuse(call, "no square matrices");
    return SY_OK;
}

static int64_t scratch_inverse(const struct sy_call *call)
{
    return 2 * scratch_det(call);
}

const struct sy_kernel sy_kernels_matrix[] = {
    {SY_OP_MATMUL, run_matmul, {SY_ANY_NUMBER, SY_AS_FIRST}, check_matmul, NULL},
    {SY_OP_GEMM, run_gemm, {SY_ANY_NUMBER, SY_AS_FIRST}, check_gemm, NULL},
    {SY_OP_EINSUM, run_einsum, {SY_ANY_NUMBER, SY_AS_FIRST}, check_einsum, NULL},
    {SY_OP_DET, run_det, {SY_ANY_FLOAT}, check_det, scratch_det},
    {SY_OP_MS_INVERSE, run_inverse, {SY_ANY_FLOAT}, check_inverse, scratch_inverse},
    {0}};
