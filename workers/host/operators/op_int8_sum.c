/* QuantizedSum: one or two tensors of 8 bits and one shape, each with a scale; added or multiplied as float32, activated, and rounded to 8 bits
 * again. In the layout of the first where that has no padding: numbers are taken one by one. */
#include <math.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/clones.h"
#include "workers/host/program/program_internal.h"

#define PIECE 4096

/* Numbers first, then floats, so that both fit a step's lists. */
struct sum {
    int64_t n, parts, product, sign_a, sign_b, sign_y;
};
enum { SCALE_A, ZERO_A, SCALE_B, ZERO_B, LOW, HIGH, SCALE_Y, ZERO_Y, N_FLOATS };

SY_CLONES static void widen(int64_t n, bool is_signed, const uint8_t *x, float zero, float scale,
                            float *y)
{
    if (is_signed)
        for (int64_t i = 0; i < n; i++)
            y[i] = ((float)(int8_t)x[i] - zero) * scale;
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = ((float)x[i] - zero) * scale;
}

SY_CLONES static void combine(int64_t n, bool product, const float *b, float *a)
{
    if (product)
        for (int64_t i = 0; i < n; i++)
            a[i] *= b[i];
    else
        for (int64_t i = 0; i < n; i++)
            a[i] += b[i];
}

SY_CLONES static void narrow(int64_t n, bool is_signed, const float *x, const float *f, uint8_t *y)
{
    const float low = f[LOW], high = f[HIGH], scale = f[SCALE_Y], zero = f[ZERO_Y];
    const float least = is_signed ? -128 : 0, most = is_signed ? 127 : 255;
    for (int64_t i = 0; i < n; i++) {
        float v = x[i] < low ? low : x[i];
        v = v > high ? high : v;
        v = nearbyintf(v / scale) + zero;
        v = v > most ? most : v >= least ? v : least;
        y[i] = (uint8_t)(int32_t)v;
    }
}

/* args: a, b (or -1), y. */
static int run_sum(struct sy_program *p, struct sy_step *step)
{
    const struct sum *s = (const struct sum *)step->numbers;
    const float *f = step->floats;
    const uint8_t *a = sy_program_pointer(p, step->args[0].value),
                  *b = s->parts > 1 ? sy_program_pointer(p, step->args[1].value) : NULL;
    uint8_t *y = sy_program_pointer(p, step->args[2].value);
#pragma omp parallel for schedule(static) if (s->n > 4 * PIECE)
    for (int64_t i = 0; i < (s->n + PIECE - 1) / PIECE; i++) {
        float wide[PIECE], other[PIECE];
        int64_t at = i * PIECE, n = SY_MIN((int64_t)PIECE, s->n - at);
        widen(n, s->sign_a != 0, a + at, f[ZERO_A], f[SCALE_A], wide);
        if (b) {
            widen(n, s->sign_b != 0, b + at, f[ZERO_B], f[SCALE_B], other);
            combine(n, s->product != 0, other, wide);
        }
        narrow(n, s->sign_y != 0, wide, f, y + at);
    }
    return SY_OK;
}

static int read_sum(const struct sy_program *p, struct sum *s, float *f)
{
    const struct sy_node *node = sy_program_node(p);
    const struct sy_attr *factors = sy_node_attr(node, "factors"),
                         *zeros = sy_node_attr(node, "zeros");
    int n = node->n_inputs;
    if (n < 1 || n > 2 || !factors || factors->n != n || !factors->floats || !zeros ||
        zeros->n != n || !zeros->ints ||
        (node->activation != SY_ACT_NONE && node->activation != SY_ACT_RELU &&
         node->activation != SY_ACT_CLIP))
        return sy_error_set(SY_ECORRUPT, "node %s: a sum of 8 bits without its scales", node->name);
    for (int i = 0; i < n; i++) {
        f[i ? SCALE_B : SCALE_A] = factors->floats[i];
        f[i ? ZERO_B : ZERO_A] = (float)zeros->ints[i];
    }
    f[LOW] = node->activation == SY_ACT_NONE ? -INFINITY : node->act_alpha;
    f[HIGH] = node->activation == SY_ACT_CLIP ? node->act_beta : INFINITY;
    f[SCALE_Y] = sy_node_float(node, "y_scale", 1);
    f[ZERO_Y] = (float)sy_node_int(node, "y_zero", 0);
    s->parts = n;
    s->product = sy_node_int(node, "product", 0);
    s->sign_a = sy_program_input_tensor(p, 0)->dtype == SY_DTYPE_I8;
    s->sign_b = n > 1 && sy_program_input_tensor(p, 1)->dtype == SY_DTYPE_I8;
    s->sign_y = p->graph->tensors[node->outputs[0]].dtype == SY_DTYPE_I8;
    return SY_OK;
}

/* `md` with the type of `dtype`. */
static dnnl_memory_desc_t typed(const dnnl_memory_desc_t *md, enum sy_dtype dtype)
{
    dnnl_memory_desc_t same = *md;
    same.data_type = sy_dnnl_type(dtype);
    return same;
}

int sy_build_quantized_sum(struct sy_program *p)
{
    const struct sy_node *node = sy_program_node(p);
    struct sum s = {0};
    float f[N_FLOATS] = {0};
    int a, b = -1, y;
    SY_TRY(read_sum(p, &s, f));
    SY_TRY(sy_program_input_native(p, 0, &a));
    s.n = 1;
    for (int i = 0; i < p->values[a].rank; i++)
        s.n *= p->values[a].dims[i];
    dnnl_memory_desc_t md = p->values[a].md;
    if (dnnl_memory_desc_get_size(&md) != (size_t)s.n || s.n == 0) { /* padding between numbers */
        SY_TRY(sy_program_input_plain(p, 0, &a));
        md = p->values[a].md;
    }
    if (s.parts > 1) {
        dnnl_memory_desc_t of_b = typed(&md, sy_program_input_tensor(p, 1)->dtype);
        SY_TRY(sy_program_input_as(p, 1, &of_b, &b));
    }
    md = typed(&md, p->graph->tensors[node->outputs[0]].dtype);
    SY_TRY(sy_program_new_laid_out(p, node->outputs[0], &md, &y));
    sy_program_set_output(p, 0, y);
    struct sy_step *step;
    SY_TRY(sy_program_add_values(p, run_sum, (int[]){a, b, y}, 3, &step));
    SY_TRY(sy_step_set_floats(step, f, N_FLOATS));
    _Static_assert(sizeof s % sizeof(int64_t) == 0, "stored as numbers");
    return sy_step_set_numbers(step, (const int64_t *)&s, (int)(sizeof s / sizeof(int64_t)));
}
