#include "workers/host/operators/op_columns.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/clones.h"
#include "workers/host/operators/op_blocked.h"
#include "workers/host/products/packed_product.h"

/* Columns of a thread, so that they are summed from the second cache; and of rows that are too wide for it. */
enum { FLOATS_AT_ONCE = 96 << 10, MOST_FLOATS = 4 << 20 };
/* Columns that one pixel of the result takes its sums from: with more, pieces would be columns of their neighbours for the most part. */
enum { MOST_OF_PIXEL = 512 << 10 };
/* Channels of the source: with more of them oneDNN's own way is the faster one. */
enum { MOST_CHANNELS = 256 };

struct columns_step {
    struct sy_columns shape;
    int64_t rows, width; /* rows and columns of the result that a thread computes at once */
    int64_t room;        /* floats of a thread */
    int n_threads;
    int src, weights, bias, dst; /* values; bias -1: none */
};

static int64_t n_columns(const struct sy_columns *c)
{
    return c->out * c->kernel[0] * c->kernel[1];
}

static bool is_line(const struct sy_columns *c)
{
    return c->size[1] == 1 && c->out_size[1] == 1 && c->kernel[1] == 1 && c->before[1] == 0;
}

/* Number of source pixels along dimension `d`, beyond the first, that contribute to a pixel of the result. */
static int64_t halo(const struct sy_columns *c, int d)
{
    return (c->kernel[d] - 1) / c->strides[d];
}

bool sy_columns_fit(const struct sy_columns *c)
{
    return (c->strides[0] > 1 || c->strides[1] > 1) && c->in <= MOST_CHANNELS &&
           (halo(c, 0) + 1) * (halo(c, 1) + 1) <= MOST_OF_PIXEL / n_columns(c);
}

void sy_columns_md(const struct sy_columns *c, dnnl_memory_desc_t *md)
{
    int64_t elements = sy_packed_floats(n_columns(c), c->in);
    sy_dnnl_plain_md(md, 1, &elements);
}

int sy_columns_prepare(const struct sy_node *node, const struct sy_columns *c, const float *weights,
                       float *to)
{
    int64_t taps = c->kernel[0] * c->kernel[1], n = n_columns(c);
    float *ordered = malloc((size_t)(c->in * n) * sizeof *ordered);
    SY_TRY_ALLOC(ordered, "no memory to pack the weights of %s", node->name);
    for (int64_t i = 0; i < c->in; i++)
        for (int64_t o = 0; o < c->out; o++)
            for (int64_t t = 0; t < taps; t++)
                ordered[i * n + t * c->out + o] = weights[(i * c->out + o) * taps + t];
    sy_packed_make(n, c->in, ordered, n, 1, to);
    free(ordered);
    return SY_OK;
}

/* ---- a run ------------------------------------------------------------------------------------------------------ */

enum { BLOCK = 16 };

/* Every `to_step` floats of `to`, a pixel's channels are added: one, blocks of them, any number. */
SY_CLONES static void add_pixels(int64_t n, int64_t channels, const float *restrict from,
                                 int64_t from_step, float *restrict to, int64_t to_step)
{
    if (channels == 1)
        for (int64_t i = 0; i < n; i++)
            to[i * to_step] += from[i * from_step];
    for (int64_t b = 0; channels % BLOCK == 0 && b < channels; b += BLOCK)
        for (int64_t i = 0; i < n; i++)
            for (int c = 0; c < BLOCK; c++)
                to[i * to_step + b + c] += from[i * from_step + b + c];
    for (int64_t i = 0; channels != 1 && channels % BLOCK != 0 && i < n; i++)
        for (int64_t c = 0; c < channels; c++)
            to[i * to_step + c] += from[i * from_step + c];
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a > 0 ? (a + b - 1) / b : -(-a / b);
}

/* The range [*first, *end) of the source along dimension `d` that contributes to [from, to) of the result. */
static void source_range(const struct sy_columns *c, int d, int64_t from, int64_t to,
                         int64_t *first, int64_t *end)
{
    *first = SY_MAX(0, divide_up(from + c->before[d] - (c->kernel[d] - 1), c->strides[d]));
    *end = SY_MIN(c->size[d], (to - 1 + c->before[d]) / c->strides[d] + 1);
    *end = SY_MAX(*first, *end);
}

/* Adds the contribution of tap (., tap) of a row's columns to a row of the result: only source pixels that fall into it. */
static void add_tap(const struct sy_columns *c, int64_t tap, const float *columns, float *out)
{
    int64_t shift = tap - c->before[1], stride = c->strides[1];
    int64_t first = SY_MAX(0, divide_up(-shift, stride));
    int64_t end = SY_MIN(c->size[1], divide_up(c->out_size[1] - shift, stride));
    if (first < end)
        add_pixels(end - first, c->out, columns + first * n_columns(c), n_columns(c),
                   out + (first * stride + shift) * c->out, stride * c->out);
}

static void start_pixels(int64_t n, int64_t channels, const float *bias, float *out)
{
    const int64_t all = n * channels;
    int64_t done = bias ? SY_MIN(channels, all) : all;
    if (!bias)
        memset(out, 0, (size_t)all * sizeof *out);
    else
        memcpy(out, bias, (size_t)done * sizeof *out);
    for (int64_t more; done < all; done += more) { /* twice as many each time */
        more = SY_MIN(done, all - done);
        memcpy(out + done, out, (size_t)more * sizeof *out);
    }
}

/* Pixels [from, to) of a line, a tap at a time: their rows are one pixel each. */
static void make_line(const struct sy_columns *c, int64_t from, int64_t to, int64_t first,
                      int64_t end, const float *columns, const float *bias, float *out)
{
    int64_t stride = c->strides[0], of_pixel = n_columns(c);
    start_pixels(to - from, c->out, bias, out);
    for (int64_t tap = 0; tap < c->kernel[0]; tap++) {
        int64_t shift = tap - c->before[0], a = SY_MAX(first, divide_up(from - shift, stride)),
                b = SY_MIN(end, divide_up(to - shift, stride));
        if (a < b)
            add_pixels(b - a, c->out, columns + (a - first) * of_pixel + tap * c->out, of_pixel,
                       out + (a * stride + shift - from) * c->out, stride * c->out);
    }
}

static void make_row(const struct sy_columns *c, int64_t y, int64_t first, int64_t end,
                     const float *columns, const float *bias, float *out)
{
    start_pixels(c->out_size[1], c->out, bias, out);
    for (int64_t ky = 0; ky < c->kernel[0]; ky++) {
        int64_t at = y + c->before[0] - ky, row = at / c->strides[0];
        if (at < 0 || at % c->strides[0] != 0 || row < first || row >= end)
            continue;
        const float *of_row = columns + (row - first) * c->size[1] * n_columns(c);
        for (int64_t kx = 0; kx < c->kernel[1]; kx++)
            add_tap(c, kx, of_row + (ky * c->kernel[1] + kx) * c->out, out);
    }
}

struct columns_run {
    const float *src, *weights, *bias;
    float *dst;
};

/* Source pixels `left` to `right` of rows [first, end) as columns. */
static void multiply(const struct columns_run *r, const struct sy_columns *c, const float *image,
                     int64_t first, int64_t end, int64_t left, int64_t right, float *columns)
{
    bool whole = right - left == c->size[1];
    int64_t width = right - left, at_once = whole ? end - first : 1;
    for (int64_t y = first; y < end; y += at_once)
        sy_packed_product(false, at_once * width, n_columns(c), c->in,
                          image + (y * c->size[1] + left) * c->in, c->in, r->weights,
                          columns + (y - first) * width * n_columns(c), n_columns(c));
}

/* Rows from `from`, columns from `x` on. */
static void make_piece(const struct columns_step *s, const struct columns_run *r, int64_t image,
                       int64_t from, int64_t x, float *columns)
{
    const struct sy_columns *c = &s->shape;
    int64_t to = SY_MIN(from + s->rows, c->out_size[0]),
            end_x = SY_MIN(x + s->width, c->out_size[1]);
    int64_t first, end, left, right;
    float *out = r->dst + ((image * c->out_size[0] + from) * c->out_size[1] + x) * c->out;
    source_range(c, 0, from, to, &first, &end);
    source_range(c, 1, x, end_x, &left, &right);
    multiply(r, c, r->src + image * c->size[0] * c->size[1] * c->in, first, end, left, right,
             columns);
    if (is_line(c)) {
        make_line(c, from, to, first, end, columns, r->bias, out);
        return;
    }
    struct sy_columns part = *c; /* as if the piece's were all pixels of a row */
    part.size[1] = right - left;
    part.out_size[1] = end_x - x;
    part.before[1] += x - left * c->strides[1];
    for (int64_t y = from; y < to; y++)
        make_row(&part, y, first, end, columns, r->bias,
                 out + (y - from) * c->out_size[1] * c->out);
}

static int run_columns(struct sy_program *p, struct sy_step *step)
{
    const struct columns_step *s = step->state;
    const struct sy_columns *c = &s->shape;
    const struct columns_run r = {sy_program_pointer(p, s->src), sy_program_pointer(p, s->weights),
                                  s->bias >= 0 ? sy_program_pointer(p, s->bias) : NULL,
                                  sy_program_pointer(p, s->dst)};
    float *rooms = (float *)(void *)((char *)p->binding->workspace + p->scratch_offset);
    int64_t down = (c->out_size[0] + s->rows - 1) / s->rows,
            across = (c->out_size[1] + s->width - 1) / s->width;
#pragma omp parallel for num_threads(s->n_threads) schedule(static)
    for (int64_t i = 0; i < c->images * down * across; i++)
        make_piece(s, &r, i / across / down, i / across % down * s->rows, i % across * s->width,
                   rooms + omp_get_thread_num() * s->room);
    return SY_OK;
}

/* ---- making it -------------------------------------------------------------------------------------------------- */

/* Whole rows, unless even a few rows would be too many columns. */
static void choose_width(struct columns_step *s)
{
    const struct sy_columns *c = &s->shape;
    int64_t of_pixel = (5 * halo(c, 0) + 2) * n_columns(c), around = halo(c, 1);
    s->width = c->out_size[1];
    if (c->size[1] > MOST_FLOATS / of_pixel)
        s->width = SY_MIN(s->width, SY_MAX(4 * around + 1, MOST_FLOATS / of_pixel - around - 1) *
                                        c->strides[1]);
}

/* Maximum number of source pixels that contribute to n pixels of the result. */
static int64_t most_source(const struct sy_columns *c, int d, int64_t n)
{
    return SY_MIN(c->size[d], (n - 1) / c->strides[d] + halo(c, d) + 2);
}

/* As many rows of the source as fit into the second-level cache as columns, but at least a share for each thread; rows needed by two pieces are computed
 * twice. */
static void choose_rows(struct columns_step *s)
{
    const struct sy_columns *c = &s->shape;
    choose_width(s);
    int64_t of_row = most_source(c, 1, s->width) * n_columns(c);
    int64_t rows = SY_MAX(4 * halo(c, 0) + 1, FLOATS_AT_ONCE / of_row) * c->strides[0];
    int64_t share = (c->out_size[0] + s->n_threads - 1) / s->n_threads;
    s->rows = SY_MAX(1, SY_MIN(rows, c->images % s->n_threads ? share : c->out_size[0]));
    s->room = most_source(c, 0, s->rows) * of_row;
}

static int add_step(struct sy_program *p, const struct columns_step *s)
{
    const int values[] = {s->src, s->weights, s->bias, s->dst};
    SY_TRY(sy_program_add_own_step(p, run_columns, s, sizeof *s, values, SY_ARRAY_LEN(values)));
    p->scratch_bytes = SY_MAX(p->scratch_bytes, (uint64_t)(s->n_threads * s->room) * sizeof(float));
    return SY_OK;
}

static int take_weights(struct sy_program *p, const struct sy_columns *c, int *out)
{
    uint64_t least = (uint64_t)sy_packed_floats(n_columns(c), c->in) * sizeof(float);
    SY_TRY(sy_program_stored_param(p, 1, out));
    if (p->values[*out].bytes < least)
        return sy_error_set(SY_ECORRUPT, "node %s: %llu bytes of weights, %llu needed",
                            sy_program_node(p)->name, (unsigned long long)p->values[*out].bytes,
                            (unsigned long long)least);
    return SY_OK;
}

int sy_columns_build(struct sy_program *p, const struct sy_columns *c, bool has_bias)
{
    const struct sy_node *node = sy_program_node(p);
    struct columns_step s = {.shape = *c, .n_threads = omp_get_max_threads(), .bias = -1};
    int rank = sy_program_input_tensor(p, 0)->shape.rank;
    dnnl_format_tag_t tag = rank == 3 ? dnnl_nwc : dnnl_nhwc;
    dnnl_memory_desc_t src_md, dst_md;
    const dnnl_dims_t in = {c->images, c->in, c->size[0], c->size[1]},
                      out = {c->images, c->out, c->out_size[0], c->out_size[1]};
    choose_rows(&s);
    SY_DNNL(dnnl_memory_desc_init_by_tag(&src_md, rank, in, dnnl_f32, tag), node->name);
    SY_DNNL(dnnl_memory_desc_init_by_tag(&dst_md, rank, out, dnnl_f32, tag), node->name);
    SY_TRY(sy_program_input_as(p, 0, &src_md, &s.src));
    SY_TRY(take_weights(p, c, &s.weights));
    if (has_bias)
        SY_TRY(sy_program_input_plain(p, 2, &s.bias));
    SY_TRY(sy_program_new_laid_out(p, node->outputs[0], &dst_md, &s.dst));
    sy_program_set_output(p, 0, s.dst);
    SY_TRY(add_step(p, &s));
    return sy_program_add_activation(p, s.dst);
}
