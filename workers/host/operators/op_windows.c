#include "workers/host/operators/op_windows.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/operators/op_blocked.h"
#include "workers/host/products/packed_product.h"

/* Below these, oneDNN's tap-by-tap loops cost no more. */
enum { LEAST_TAPS = 8, LEAST_FILTERS = 16 };
/* Rows of the result that a thread computes at once, with one panel of the weights. */
enum { ROWS_AT_ONCE = 32 };

struct windows_step {
    int64_t images, length, places, filters, taps, stride, pad;
    int n_threads;
    int src, weights, bias, dst; /* values; bias -1: none */
};

bool sy_windows_fit(const struct sy_node *node, const struct sy_conv_shape *c)
{
    return c->spatial == 1 && c->groups == 1 && c->src[1] == 1 && c->weights_rank == 3 &&
           c->weights[0] >= LEAST_FILTERS && c->weights[2] >= LEAST_TAPS && c->dilations[0] == 0 &&
           c->type == dnnl_f32 && c->dst_type == dnnl_f32 && node->residual_input < 0;
}

int sy_windows_weights_md(const struct sy_node *node, const struct sy_conv_shape *c,
                          dnnl_memory_desc_t *md)
{
    _Static_assert(SY_PACKED_COLUMNS == 32, "the layout's block");
    SY_DNNL(dnnl_memory_desc_init_by_tag(md, 3, c->weights, dnnl_f32, dnnl_Acb32a), node->name);
    return SY_OK;
}

/* Rows [from, to) whose windows lie within the signal, where it lies; or one row by way of `room`, with zeros around the signal. */
static void multiply(const struct windows_step *s, const float *weights, const float *bias,
                     const float *signal, float *out, int64_t from, int64_t to)
{
    for (int64_t r = from; bias && r < to; r++)
        memcpy(out + r * s->filters, bias, (size_t)s->filters * sizeof *out);
    sy_packed_product(bias != NULL, to - from, s->filters, s->taps, signal, s->stride, weights,
                      out + from * s->filters, s->filters);
}

static void copy_window(const struct windows_step *s, const float *signal, int64_t first,
                        float *room)
{
    int64_t from = SY_MIN(SY_MAX(-first, 0), s->taps),
            to = SY_MAX(SY_MIN(s->length - first, s->taps), from);
    memset(room, 0, (size_t)s->taps * sizeof *room);
    memcpy(room + from, signal + first + from, (size_t)(to - from) * sizeof *room);
}

static void some_rows(const struct windows_step *s, const float *weights, const float *bias,
                      const float *signal, float *out, int64_t from, int64_t to, float *room)
{
    for (int64_t r = from, end; r < to; r = end) {
        int64_t first = r * s->stride - s->pad;
        int64_t last = s->length - s->taps - first; /* limit of the windows' positions */
        bool is_inside = first >= 0 && last >= 0;
        end = is_inside ? SY_MIN(to, r + last / s->stride + 1) : r + 1;
        if (!is_inside)
            copy_window(s, signal, first, room);
        multiply(s, weights, bias, is_inside ? signal + first : room, out, r, end);
    }
}

static int run_windows(struct sy_program *p, struct sy_step *step)
{
    const struct windows_step *s = step->state;
    const float *src = sy_program_pointer(p, s->src), *weights = sy_program_pointer(p, s->weights),
                *bias = s->bias >= 0 ? sy_program_pointer(p, s->bias) : NULL;
    float *dst = sy_program_pointer(p, s->dst);
    float *rooms = (float *)(void *)((char *)p->binding->workspace + p->scratch_offset);
    int64_t pieces = (s->places + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
#pragma omp parallel for num_threads(s->n_threads) schedule(static)
    for (int64_t i = 0; i < s->images * pieces; i++) {
        int64_t image = i / pieces, from = i % pieces * ROWS_AT_ONCE;
        some_rows(s, weights, bias, src + image * s->length, dst + image * s->places * s->filters,
                  from, SY_MIN(from + ROWS_AT_ONCE, s->places),
                  rooms + omp_get_thread_num() * s->taps);
    }
    return SY_OK;
}

static int add_step(struct sy_program *p, const struct windows_step *s)
{
    const int values[] = {s->src, s->weights, s->bias, s->dst};
    SY_TRY(sy_program_add_own_step(p, run_windows, s, sizeof *s, values, SY_ARRAY_LEN(values)));
    p->scratch_bytes = SY_MAX(p->scratch_bytes, (uint64_t)(s->n_threads * s->taps) * sizeof(float));
    return SY_OK;
}

int sy_windows_build(struct sy_program *p, const struct sy_conv_shape *c, bool *built)
{
    const struct sy_node *node = sy_program_node(p);
    dnnl_memory_desc_t weights_md, dst_md;
    struct windows_step s = {.images = c->src[0],
                             .length = c->src[2],
                             .places = c->dst[2],
                             .filters = c->weights[0],
                             .taps = c->weights[2],
                             .stride = c->strides[0],
                             .pad = c->pad_left[0],
                             .n_threads = omp_get_max_threads(),
                             .bias = -1};
    SY_TRY(sy_windows_weights_md(node, c, &weights_md));
    SY_TRY(sy_program_param(p, 1, &s.weights));
    *built = sy_windows_fit(node, c) && s.images > 0 && s.length > 0 && s.places > 0 &&
             dnnl_memory_desc_equal(&p->values[s.weights].md, &weights_md);
    if (!*built)
        return SY_OK;
    SY_DNNL(dnnl_memory_desc_init_by_tag(&dst_md, 3, c->dst, dnnl_f32, dnnl_nwc), node->name);
    SY_TRY(sy_program_input_plain(p, 0, &s.src));
    if (sy_conv_has_bias(node))
        SY_TRY(sy_program_input_plain(p, 2, &s.bias));
    SY_TRY(sy_program_new_laid_out(p, node->outputs[0], &dst_md, &s.dst));
    sy_program_set_output(p, 0, s.dst);
    SY_TRY(add_step(p, &s));
    return sy_program_add_activation(p, s.dst);
}
