/* ONNX's own operators that others say as well: spectra and Col2Im as products with constants, what constants decide, numbers
 * drawn in a given shape. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

enum { MAX_CONSTANT = 1 << 24 };

/* ---- STFT ------------------------------------------------------------------------------------- */

struct stft {
    int64_t step, frame, bins;
    bool is_complex;
    const float *window; /* NULL: ones, or one that is computed */
    int computed;        /* a window that only the run knows; -1: none */
};

static int one_number(struct sy_expand *e, int input, int64_t *out)
{
    int n = 1;
    if (sy_expand_input(e, input) < 0)
        return SY_OK;
    SY_TRY(sy_infer_ints(e->in, e->node, input, "length", 1, &n, out));
    return n == 1 ? SY_OK : sy_expand_fail(e, SY_ECORRUPT, "input %d is not one number", input);
}

static int find_window(struct sy_expand *e, struct stft *s)
{
    const struct sy_tensor *window = sy_expand_tensor(e, 2);
    s->computed = -1;
    if (!window)
        return SY_OK;
    if (window->dtype != SY_DTYPE_F32 || window->shape.rank != 1)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "a window that is not a list of float32");
    s->window = window->data;
    if (!window->data)
        s->computed = sy_expand_input(e, 2);
    return sy_infer_fixed(e->in, e->node, &window->shape, 0, &s->frame);
}

static int find_stft(struct sy_expand *e, struct stft *s)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    if (!x || x->dtype != SY_DTYPE_F32 || x->shape.rank < 2 || x->shape.rank > 3 ||
        (x->shape.rank == 3 && !sy_dim_is(x->shape.dims[2], 1) && !sy_dim_is(x->shape.dims[2], 2)))
        return sy_expand_fail(e, SY_EUNSUPPORTED, "a signal that is not of float32");
    struct sy_dim length = x->shape.dims[1];
    s->is_complex = x->shape.rank == 3 && sy_dim_is(x->shape.dims[2], 2);
    SY_TRY(find_window(e, s));
    int64_t window = s->frame;
    bool one_sided = sy_node_int(e->node, "onesided", 1) != 0;
    SY_TRY(one_number(e, 1, &s->step));
    SY_TRY(one_number(e, 3, &s->frame));
    if (s->step < 1 || s->frame < 1 || (sy_dim_is_number(length) && s->frame > length.fixed) ||
        (sy_expand_input(e, 2) >= 0 && s->frame != window) || (s->is_complex && one_sided))
        return sy_expand_fail(e, SY_EUNSUPPORTED, "frames of %lld, each %lld, of %lld samples%s",
                              (long long)s->frame, (long long)s->step, (long long)length.fixed,
                              s->is_complex && one_sided ? ", half a spectrum of complex ones"
                                                         : "");
    s->bins = one_sided ? s->frame / 2 + 1 : s->frame;
    if (s->frame > MAX_CONSTANT / s->bins / 4)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "frames of %lld", (long long)s->frame);
    return SY_OK;
}

/* [bins * 2, parts, frame]: the window times cosine and minus sine; of imaginary samples times sine and cosine. */
static int spectrum_filters(struct sy_expand *e, const struct stft *s)
{
    const int64_t parts = s->is_complex ? 2 : 1, dims[] = {s->bins * 2, parts, s->frame},
                  n = s->bins * 2 * parts * s->frame;
    float *m;
    if (e->status == SY_OK)
        e->status = sy_graph_alloc((size_t)n, sizeof *m, &m);
    if (e->status < 0)
        return -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t t = i % s->frame, part = i / s->frame % parts, row = i / s->frame / parts;
        double angle = 2 * M_PI * (double)(t * (row / 2) % s->frame) / (double)s->frame;
        bool takes_cosine = row % 2 == part;
        double w = s->window ? (double)s->window[t] : 1;
        m[i] = (float)(w * (takes_cosine ? cos(angle) : part ? sin(angle) : -sin(angle)));
    }
    int flat = sy_expand_floats(e, m, (int)n);
    free(m);
    int filters = sy_expand_reshape(e, flat, dims, 3);
    return s->computed < 0 ? filters : SY_EXPAND(e, MUL, filters, s->computed);
}

/* A convolution, so that the signal's length may be open. */
static int expand_stft(struct sy_expand *e)
{
    static const int64_t one_channel[] = {0, 1, -1}, turn[] = {0, 2, 1};
    struct stft s = {0};
    SY_TRY(find_stft(e, &s));
    const int64_t split[] = {0, 0, s.bins, 2};
    int x = sy_expand_input(e, 0);
    x = s.is_complex ? sy_expand_transpose(e, x, turn, 3) : sy_expand_reshape(e, x, one_channel, 3);
    int filters = spectrum_filters(e, &s);
    int y = SY_EXPAND(e, CONV, x, filters);
    if (e->status == SY_OK)
        e->status =
            sy_node_set_ints(&e->graph->nodes[e->graph->n_nodes - 1], "strides", 1, &s.step);
    y = sy_expand_transpose(e, y, turn, 3);
    sy_expand_result(e, 0, sy_expand_reshape(e, y, split, 4));
    return e->status;
}

/* ---- MelWeightMatrix -------------------------------------------------------------------------- */

struct mel {
    int64_t bins, length, rate; /* of the matrix, of the transform, samples a second */
    double low, high;           /* Hz */
};

/* The scalar in the constant input i. */
static int one_real(struct sy_expand *e, int i, double *out)
{
    const struct sy_tensor *t = sy_expand_tensor(e, i);
    if (!t || sy_shape_elements(&t->shape, 1) != 1 ||
        (t->dtype != SY_DTYPE_F32 && t->dtype != SY_DTYPE_F64))
        return sy_expand_fail(e, SY_EUNSUPPORTED, "input %d is not one float32", i);
    if (!t->data)
        return sy_expand_defer(e, "input %d is known at run only", i);
    *out = t->dtype == SY_DTYPE_F32 ? (double)*(const float *)t->data : *(const double *)t->data;
    return SY_OK;
}

static int find_mel(struct sy_expand *e, struct mel *m)
{
    *m = (struct mel){0};
    SY_TRY(one_number(e, 0, &m->bins));
    SY_TRY(one_number(e, 1, &m->length));
    SY_TRY(one_number(e, 2, &m->rate));
    SY_TRY(one_real(e, 3, &m->low));
    SY_TRY(one_real(e, 4, &m->high));
    if (m->bins < 1 || m->length < 1 || m->rate < 1 || m->bins > MAX_CONSTANT / 8 / m->length ||
        !(m->low >= 0) || !(m->high >= m->low) || m->high > (double)m->rate)
        return sy_expand_fail(e, SY_ECORRUPT, "%lld bands of %g to %g Hz at %lld, %lld samples",
                              (long long)m->bins, m->low, m->high, (long long)m->rate,
                              (long long)m->length);
    return SY_OK;
}

/* Which line of the spectrum the i-th edge of the bands is: they are equally far from each other in mel. */
static int64_t edge_of(const struct mel *m, int64_t i)
{
    double low = 2595 * log10(1 + m->low / 700), high = 2595 * log10(1 + m->high / 700),
           mel = low + (double)i * (high - low) / (double)(m->bins + 2),
           hertz = 700 * (pow(10, mel / 2595) - 1);
    return (int64_t)floor((double)(m->length + 1) * hertz / (double)m->rate);
}

/* Triangles, [lines, bands]. */
static void fill_bands(const struct mel *m, int64_t lines, float *to)
{
    for (int64_t band = 0; band < m->bins; band++) {
        int64_t low = edge_of(m, band), peak = edge_of(m, band + 1), high = edge_of(m, band + 2);
        if (peak == low && peak < lines)
            to[peak * m->bins + band] = 1;
        for (int64_t k = low; k <= peak && k < lines && peak > low; k++)
            to[k * m->bins + band] = (float)(k - low) / (float)(peak - low);
        for (int64_t k = peak; k < high && k < lines; k++)
            to[k * m->bins + band] = (float)(high - k) / (float)(high - peak);
    }
}

static int expand_mel(struct sy_expand *e)
{
    struct mel m;
    float *bands;
    SY_TRY(find_mel(e, &m));
    const int64_t lines = m.length / 2 + 1, dims[] = {lines, m.bins};
    enum sy_dtype to = (enum sy_dtype)sy_node_int(e->node, "output_datatype", SY_DTYPE_F32);
    SY_TRY(sy_graph_alloc((size_t)(lines * m.bins), sizeof *bands, &bands));
    fill_bands(&m, lines, bands);
    int flat = sy_expand_floats(e, bands, (int)(lines * m.bins));
    free(bands);
    sy_expand_result(e, 0, sy_expand_cast(e, sy_expand_reshape(e, flat, dims, 2), to));
    return e->status;
}

/* ---- reductions of bool ----------------------------------------------------------------------- */

bool sy_expand_reduces_bool(const struct sy_infer *in, const struct sy_node *node)
{
    int x = sy_node_input(node, 0);
    return (node->op == SY_OP_REDUCE_MAX || node->op == SY_OP_REDUCE_MIN) && x >= 0 &&
           in->graph->tensors[x].dtype == SY_DTYPE_BOOL;
}

/* ReduceMax and ReduceMin of bool, computed on the numbers 0 and 1. */
static int expand_reduce_bool(struct sy_expand *e)
{
    const int inputs[] = {sy_expand_cast(e, sy_expand_input(e, 0), SY_DTYPE_U8),
                          sy_expand_input(e, 1)};
    int y = sy_expand_op(e, e->node->op, inputs, inputs[1] < 0 ? 1 : 2);
    sy_expand_pass(e, "keepdims");
    sy_expand_pass(e, "noop_with_empty_axes");
    sy_expand_result(e, 0, sy_expand_cast(e, y, SY_DTYPE_BOOL));
    return e->status;
}

/* ---- Col2Im ----------------------------------------------------------------------------------- */

struct columns {
    int n; /* spatial dimensions */
    int64_t image[SY_MAX_RANK], block[SY_MAX_RANK], strides[SY_MAX_RANK], dilations[SY_MAX_RANK],
        pads[2 * SY_MAX_RANK], more[SY_MAX_RANK], places[SY_MAX_RANK];
    int64_t channels, size; /* size: of a block */
};

/* The list of the node, or all `otherwise`. */
static int spatial(struct sy_expand *e, const char *name, int n, int64_t otherwise, int64_t *out)
{
    const struct sy_attr *list = sy_node_attr(e->node, name);
    bool given = list && list->kind == SY_ATTR_INTS;
    if (given && list->n != n)
        return sy_expand_fail(e, SY_ECORRUPT, "%d numbers in '%s'", list->n, name);
    for (int i = 0; i < n; i++) {
        out[i] = given ? list->ints[i] : otherwise;
        if (out[i] < 0 || out[i] > MAX_CONSTANT)
            return sy_expand_fail(e, SY_ECORRUPT, "'%s' of %lld", name, (long long)out[i]);
    }
    return SY_OK;
}

static int find_columns(struct sy_expand *e, struct columns *c)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    int64_t rows, places, all = 1;
    int n;
    if (!x || x->shape.rank != 3 || sy_expand_input(e, 1) < 0 || sy_expand_input(e, 2) < 0)
        return sy_expand_fail(e, SY_ECORRUPT, "not three inputs, the first of 3 dimensions");
    SY_TRY(sy_infer_ints(e->in, e->node, 1, "image_shape", SY_MAX_RANK - 2, &c->n, c->image));
    SY_TRY(sy_infer_ints(e->in, e->node, 2, "block_shape", SY_MAX_RANK - 2, &n, c->block));
    SY_TRY(spatial(e, "strides", c->n, 1, c->strides));
    SY_TRY(spatial(e, "dilations", c->n, 1, c->dilations));
    SY_TRY(spatial(e, "pads", 2 * c->n, 0, c->pads));
    SY_TRY(sy_infer_fixed(e->in, e->node, &x->shape, 1, &rows));
    SY_TRY(sy_infer_fixed(e->in, e->node, &x->shape, 2, &places));
    c->size = 1;
    for (int i = 0; i < c->n && n == c->n; i++) {
        int64_t reach = c->dilations[i] * (c->block[i] - 1) + 1,
                room = c->image[i] + c->pads[i] + c->pads[i + c->n] - reach;
        if (c->block[i] < 1 || c->block[i] > 1024 || c->strides[i] < 1 || c->image[i] < 1 ||
            c->image[i] > MAX_CONSTANT || room < 0)
            return sy_expand_fail(e, SY_ECORRUPT, "blocks that do not fit the image");
        c->places[i] = room / c->strides[i] + 1;
        c->more[i] = room % c->strides[i];
        c->size *= c->block[i];
        all *= c->places[i];
    }
    if (n != c->n || n < 1 || all != places || rows % c->size != 0 || c->size > 4096)
        return sy_expand_fail(e, SY_ECORRUPT, "%lld rows and %lld columns", (long long)rows,
                              (long long)places);
    c->channels = rows / c->size;
    return c->channels <= MAX_CONSTANT / c->size / c->size
               ? SY_OK
               : sy_expand_fail(e, SY_EUNSUPPORTED, "%lld rows", (long long)rows);
}

/* [channels * size, 1, block...]: row i of a channel becomes element i of the block. */
static int one_hot_blocks(struct sy_expand *e, const struct columns *c)
{
    int64_t dims[SY_MAX_RANK] = {c->channels * c->size, 1}, n = c->channels * c->size * c->size;
    float *w;
    memcpy(dims + 2, c->block, (size_t)c->n * sizeof *dims);
    if (e->status == SY_OK)
        e->status = sy_graph_alloc((size_t)n, sizeof *w, &w);
    if (e->status < 0)
        return -1;
    for (int64_t i = 0; i < c->channels * c->size; i++)
        w[i * c->size + i % c->size] = 1;
    int flat = sy_expand_floats(e, w, (int)n);
    free(w);
    return sy_expand_reshape(e, flat, dims, c->n + 2);
}

static void pass_ints(struct sy_expand *e, const char *name, const int64_t *values, int n)
{
    if (e->status == SY_OK)
        e->status = sy_node_set_ints(&e->graph->nodes[e->graph->n_nodes - 1], name, n, values);
}

/* ConvTranspose adds up blocks where they overlap. */
static int expand_col2im(struct sy_expand *e)
{
    struct columns c = {0};
    int64_t dims[SY_MAX_RANK] = {0, 0};
    SY_TRY(find_columns(e, &c));
    memcpy(dims + 2, c.places, (size_t)c.n * sizeof *dims);
    int x = sy_expand_reshape(e, sy_expand_input(e, 0), dims, c.n + 2);
    int y = SY_EXPAND(e, CONV_TRANSPOSE, x, one_hot_blocks(e, &c));
    sy_expand_set_int(e, "group", c.channels);
    pass_ints(e, "strides", c.strides, c.n);
    pass_ints(e, "dilations", c.dilations, c.n);
    pass_ints(e, "pads", c.pads, 2 * c.n);
    pass_ints(e, "output_padding", c.more, c.n);
    sy_expand_result(e, 0, y);
    return e->status;
}

/* ---- AffineGrid ------------------------------------------------------------------------------- */

/* [points, n + 1]: the places of a grid from -1 to 1, x first, and a one. */
static int base_grid(struct sy_expand *e, const int64_t *sizes, int n, int64_t points)
{
    bool corners = sy_node_int(e->node, "align_corners", 0) != 0;
    const int64_t dims[] = {points, n + 1};
    float *grid;
    if (e->status == SY_OK)
        e->status = sy_graph_alloc((size_t)(points * (n + 1)), sizeof *grid, &grid);
    if (e->status < 0)
        return -1;
    for (int64_t p = 0; p < points; p++) {
        int64_t left = p;
        for (int i = n - 1; i >= 0; i--) {
            double at = (double)(left % sizes[i]), size = (double)sizes[i];
            left /= sizes[i];
            grid[p * (n + 1) + n - 1 - i] =
                (float)(corners ? (size > 1 ? 2 * at / (size - 1) - 1 : -1)
                                : (2 * at + 1) / size - 1);
        }
        grid[p * (n + 1) + n] = 1;
    }
    int flat = sy_expand_floats(e, grid, (int)(points * (n + 1)));
    free(grid);
    return sy_expand_reshape(e, flat, dims, 2);
}

static int expand_affine_grid(struct sy_expand *e)
{
    static const int64_t turn[] = {0, 2, 1};
    struct sy_dim *size = NULL;
    int64_t dims[SY_MAX_RANK] = {0}, points = 1;
    int n;
    SY_TRY(sy_infer_dims(e->in, e->node, 1, "size", &n, &size));
    int status = n == 4 || n == 5 ? SY_OK : sy_expand_fail(e, SY_ECORRUPT, "%d sizes", n);
    for (int i = 2; status == SY_OK && i < n; i++) {
        dims[i - 1] = size[i].fixed;
        if (size[i].per_batch != 0 || size[i].fixed < 1 || size[i].fixed > MAX_CONSTANT / points)
            status = sy_expand_fail(e, SY_EUNSUPPORTED, "a grid of such a size");
        else
            points *= size[i].fixed;
    }
    free(size);
    SY_TRY(status);
    if (points > MAX_CONSTANT / 4)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "a grid of %lld points", (long long)points);
    dims[n - 1] = n - 2;
    int theta = sy_expand_transpose(e, sy_expand_input(e, 0), turn, 3);
    int y = SY_EXPAND(e, MATMUL, base_grid(e, dims + 1, n - 2, points), theta);
    sy_expand_result(e, 0, sy_expand_reshape(e, y, dims, n));
    return e->status;
}

/* ---- NonZero of what is known ----------------------------------------------------------------- */

static bool is_nonzero(const struct sy_tensor *t, int64_t i)
{
    size_t each = sy_dtype_bytes(t->dtype);
    const unsigned char *at = (const unsigned char *)t->data + (size_t)i * each;
    bool whole = sy_dtype_is_integer(t->dtype);
    unsigned char sum = 0;
    for (size_t k = 0; k < each; k++) /* without the sign, which a zero may have */
        sum |= k + 1 == each && !whole ? at[k] & 0x7f : at[k];
    return sum != 0;
}

bool sy_expand_is_constant(const struct sy_infer *in, const struct sy_node *node)
{
    int x = sy_node_input(node, 0);
    return x >= 0 && in->graph->tensors[x].data != NULL;
}

static int expand_non_zero(struct sy_expand *e)
{
    struct sy_tensor t = *sy_expand_tensor(e, 0); /* tensors move */
    int64_t n = sy_shape_elements(&t.shape, 0), count = 0, k = 0, *at;
    const int64_t dims[] = {t.shape.rank, -1}, empty[] = {t.shape.rank, 0};
    for (int64_t i = 0; i < n; i++)
        count += is_nonzero(&t, i);
    if (count > MAX_CONSTANT / 8)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "%lld elements", (long long)count);
    SY_TRY(sy_graph_alloc((size_t)(count * SY_MAX(t.shape.rank, 1)), sizeof *at, &at));
    for (int64_t i = 0; i < n; i++) {
        int64_t left = i;
        if (!is_nonzero(&t, i))
            continue;
        for (int d = t.shape.rank - 1; d >= 0; d--) {
            at[d * count + k] = left % t.shape.dims[d].fixed;
            left /= t.shape.dims[d].fixed;
        }
        k++;
    }
    int flat = sy_expand_ints(e, at, (int)(count * t.shape.rank));
    free(at);
    if (count > 0)
        sy_expand_result(e, 0, sy_expand_reshape(e, flat, dims, 2));
    else {
        flat = sy_expand_reshape(e, flat, empty, 2);
        sy_expand_set_int(e, "allowzero", 1);
        sy_expand_result(e, 0, flat);
    }
    return e->status;
}

/* ---- numbers drawn ---------------------------------------------------------------------------- */

/* RandomNormal, RandomUniform: like ones in their shape. */
static int expand_random(struct sy_expand *e)
{
    static const char *const names[] = {"dtype", "high", "low", "mean", "scale", "seed"};
    const struct sy_attr *shape = sy_node_attr(e->node, "shape");
    enum sy_op op =
        e->node->op == SY_OP_RANDOM_NORMAL ? SY_OP_RANDOM_NORMAL_LIKE : SY_OP_RANDOM_UNIFORM_LIKE;
    if (!shape || shape->kind != SY_ATTR_INTS)
        return sy_expand_fail(e, SY_ECORRUPT, "no shape");
    int like = SY_EXPAND(e, CONSTANT_OF_SHAPE, sy_expand_ints(e, shape->ints, shape->n));
    int y = sy_expand_op(e, op, &like, 1);
    for (size_t i = 0; i < SY_ARRAY_LEN(names); i++)
        sy_expand_pass(e, names[i]);
    sy_expand_result(e, 0, y);
    return e->status;
}

/* Numbers in [0, 1), in the shape of `like`. */
static int uniform(struct sy_expand *e, int like, enum sy_dtype dtype)
{
    int u = SY_EXPAND(e, RANDOM_UNIFORM_LIKE, like);
    sy_expand_set_int(e, "dtype", dtype);
    sy_expand_pass(e, "seed");
    return u;
}

/* 1 where a number in [0, 1) is less than the probability. */
static int expand_bernoulli(struct sy_expand *e)
{
    int p = sy_expand_cast(e, sy_expand_input(e, 0), SY_DTYPE_F64);
    enum sy_dtype to = (enum sy_dtype)sy_node_int(e->node, "dtype", sy_expand_dtype(e, 0));
    int is_less = SY_EXPAND(e, LESS, uniform(e, p, SY_DTYPE_F64), p);
    sy_expand_result(e, 0, sy_expand_cast(e, is_less, to));
    return e->status;
}

/* Draws `sample_size` classes of each row of logarithms: a class is the number of running sums of the probabilities that do not exceed a random number. */
static int expand_multinomial(struct sy_expand *e)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    int64_t n = sy_node_int(e->node, "sample_size", 1), classes, last = 2;
    enum sy_dtype to = (enum sy_dtype)sy_node_int(e->node, "dtype", SY_DTYPE_I32);
    if (!x || x->shape.rank != 2 || n < 1 || n > MAX_CONSTANT ||
        (to != SY_DTYPE_I32 && to != SY_DTYPE_I64))
        return sy_expand_fail(e, SY_ECORRUPT, "%lld numbers of element type %d", (long long)n,
                              (int)to);
    SY_TRY(sy_infer_fixed(e->in, e->node, &x->shape, 1, &classes));
    if (classes < 1)
        return sy_expand_fail(e, SY_ECORRUPT, "no classes");
    const int64_t times[] = {1, n};
    int p = SY_EXPAND(e, SOFTMAX, sy_expand_cast(e, sy_expand_input(e, 0), SY_DTYPE_F64));
    sy_expand_set_int(e, "axis", 1);
    int sums = SY_EXPAND(e, CUM_SUM, p, sy_expand_int(e, 1));
    int total = sy_expand_slice(e, sums, 1, classes - 1, classes);
    int like = SY_EXPAND(e, EXPAND, total, sy_expand_ints(e, times, 2));
    int drawn = SY_EXPAND(e, MUL, uniform(e, like, SY_DTYPE_F64), total);
    int is_before = SY_EXPAND(e, LESS_OR_EQUAL, sy_expand_unsqueeze(e, sums, 1),
                              sy_expand_unsqueeze(e, drawn, 2));
    int count =
        SY_EXPAND(e, REDUCE_SUM, sy_expand_cast(e, is_before, to), sy_expand_ints(e, &last, 1));
    sy_expand_set_int(e, "keepdims", 0);
    sy_expand_result(e, 0, count);
    return e->status;
}

/* ---- SpaceToDepth ------------------------------------------------------------------------------ */

/* CRD: a channel's pixels lie beside each other, where DCR has the channels of each pixel. */
static int expand_space(struct sy_expand *e)
{
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    int64_t channels, n, block = sy_node_int(e->node, "blocksize", 0), *places;
    if (!x || x->shape.rank != 4 || block < 1 || block > INT16_MAX)
        return sy_expand_fail(e, SY_ECORRUPT, "blocks of %lld in other than 4 dimensions",
                              (long long)block);
    SY_TRY(sy_infer_fixed(e->in, e->node, &x->shape, 1, &channels));
    int64_t pixels = block * block;
    if (__builtin_mul_overflow(channels, pixels, &n) || n > MAX_CONSTANT)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "%lld channels in blocks of %lld",
                              (long long)channels, (long long)block);
    SY_TRY(sy_graph_alloc((size_t)n, sizeof *places, &places));
    for (int64_t i = 0; i < n; i++)
        places[i] = i % pixels * channels + i / pixels;
    int y = SY_EXPAND(e, SPACE_TO_DEPTH, sy_expand_input(e, 0));
    sy_expand_set_int(e, "blocksize", block);
    y = SY_EXPAND(e, GATHER, y, sy_expand_ints(e, places, (int)n));
    sy_expand_set_int(e, "axis", 1);
    free(places);
    sy_expand_result(e, 0, y);
    return e->status;
}

const struct sy_expander_line sy_expanders_various[] = {{SY_OP_STFT, expand_stft},
                                                        {SY_OP_MEL_WEIGHTS, expand_mel},
                                                        {SY_OP_REDUCE_MAX, expand_reduce_bool},
                                                        {SY_OP_REDUCE_MIN, expand_reduce_bool},
                                                        {SY_OP_COL2IM, expand_col2im},
                                                        {SY_OP_AFFINE_GRID, expand_affine_grid},
                                                        {SY_OP_NON_ZERO, expand_non_zero},
                                                        {SY_OP_RANDOM_NORMAL, expand_random},
                                                        {SY_OP_RANDOM_UNIFORM, expand_random},
                                                        {SY_OP_BERNOULLI, expand_bernoulli},
                                                        {SY_OP_MULTINOMIAL, expand_multinomial},
                                                        {SY_OP_SPACE_TO_DEPTH, expand_space},
                                                        {0}};
