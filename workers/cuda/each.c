#include "workers/cuda/each.h"

#include <float.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/cuda/each_numbers.h"
#include "workers/host/kernel_product.h"

#define SCATTER_PARTS 8192 /* threads of a scatter that has few columns */

static int refuse(const struct sy_node *node, const char *what)
{
    return sy_error_set(SY_EUNSUPPORTED, "node %s: %s (opset %d): %s", node->name,
                        sy_op_name(node->op), node->opset, what);
}

static int64_t attr_at(const struct sy_node *node, const char *name, int i, int64_t otherwise)
{
    const struct sy_attr *a = sy_node_attr(node, name);
    return a && a->kind == SY_ATTR_INTS && i < a->n ? a->ints[i] : otherwise;
}

/* Which of the texts the attribute is; the first without it, -1: none of them. */
static int text_index(const struct sy_node *node, const char *name, const char *const *texts)
{
    const struct sy_attr *a = sy_node_attr(node, name);
    if (!a || a->kind != SY_ATTR_STRING || !a->s)
        return 0;
    for (int i = 0; texts[i]; i++)
        if (strcmp(a->s, texts[i]) == 0)
            return i;
    return -1;
}

static int64_t extent(const struct sy_each_array *a, int first, int end)
{
    int64_t n = 1;
    for (int i = first; i < end; i++)
        n *= a->dims[i];
    return n;
}

static void set_own_strides(struct sy_each_array *a)
{
    int64_t stride = 1;
    for (int i = a->rank - 1; i >= 0; i--) {
        a->strides[i] = stride;
        stride *= a->dims[i];
    }
    a->n = stride;
}

static const struct sy_each_array *input(const struct sy_math_each *e, int i)
{
    return i < e->n_in && e->at[i].dtype != SY_DTYPE_NONE ? &e->at[i] : NULL;
}

/* The first n inputs seen with the result's dims, by numpy's rule. */
static int spread(const struct sy_node *node, struct sy_math_each *e, int n)
{
    const struct sy_each_array *y = &e->at[SY_EACH_IN];
    for (int k = 0; k < n; k++) {
        struct sy_each_array *a = &e->at[k];
        int64_t own[SY_MAX_RANK];
        memcpy(own, a->strides, sizeof own);
        if (a->dtype == SY_DTYPE_NONE || a->rank > y->rank)
            return refuse(node, "shapes that cannot be broadcast");
        for (int d = 0; d < y->rank; d++) {
            int i = d - (y->rank - a->rank);
            bool repeats = i < 0 || a->dims[i] == 1;
            if (!repeats && a->dims[i] != y->dims[d])
                return refuse(node, "shapes that cannot be broadcast");
            a->strides[d] = repeats ? 0 : own[i];
        }
    }
    return SY_OK;
}

/* ---- elements ----------------------------------------------------------------------------------------- */

static int fill_one(const struct sy_node *node, struct sy_math_each *e)
{
    static const struct {
        enum sy_op op;
        const char *names[2];
        float otherwise[2];
    } parameters[] = {
        {SY_OP_LEAKY_RELU, {"alpha"}, {0.01f}},
        {SY_OP_ELU, {"alpha"}, {1}},
        {SY_OP_CELU, {"alpha"}, {1}},
        {SY_OP_SELU, {"alpha", "gamma"}, {1.67326319217681884765625f, 1.05070102214813232421875f}},
        {SY_OP_THRESHOLDED_RELU, {"alpha"}, {1}},
        {SY_OP_HARD_SIGMOID, {"alpha", "beta"}, {0.2f, 0.5f}},
        {SY_OP_SHRINK, {"lambd", "bias"}, {0.5f, 0}},
        {SY_OP_CLIP, {"min", "max"}, {-FLT_MAX, FLT_MAX}}};
    static const char *const forms[] = {"none", "tanh", NULL};
    for (size_t i = 0; i < SY_ARRAY_LEN(parameters); i++)
        for (int k = 0; k < 2 && parameters[i].op == node->op && parameters[i].names[k]; k++)
            e->floats[k] =
                (double)sy_node_float(node, parameters[i].names[k], parameters[i].otherwise[k]);
    e->numbers[EACH_IS_TANH_FORM] = text_index(node, "approximate", forms) == 1;
    e->numbers[EACH_POSITIVE] = sy_node_int(node, "detect_positive", 1);
    e->numbers[EACH_NEGATIVE] = sy_node_int(node, "detect_negative", 1);
    return SY_OK;
}

static int fill_pair(const struct sy_node *node, struct sy_math_each *e)
{
    static const char *const ways[] = {"RIGHT", "LEFT", NULL};
    e->numbers[EACH_C_RULE] = sy_node_int(node, "fmod", 0);
    e->numbers[EACH_IS_LEFT] = text_index(node, "direction", ways) == 1;
    return spread(node, e, e->n_in);
}

static int fill_where(const struct sy_node *node, struct sy_math_each *e)
{
    return spread(node, e, 3);
}

/* The diagonal of EyeLike; the mask of a Dropout that drops nothing. */
static int fill_fill(const struct sy_node *node, struct sy_math_each *e)
{
    bool masks = node->op == SY_OP_DROPOUT;
    e->numbers[EACH_RESULT] = masks;
    e->numbers[EACH_IS_DIAGONAL] = !masks;
    e->numbers[EACH_DIAGONAL] = sy_node_int(node, "k", 0);
    if (masks && e->n_out != 2)
        return refuse(node, "without a mask");
    e->items = e->at[SY_EACH_IN + masks].n;
    return SY_OK;
}

/* ---- by index ----------------------------------------------------------------------------------------- */

static int fill_triangle(const struct sy_node *node, struct sy_math_each *e)
{
    e->numbers[EACH_IS_UPPER] = sy_node_int(node, "upper", 1) != 0;
    return SY_OK;
}

static int fill_reverse(const struct sy_node *node, struct sy_math_each *e)
{
    e->numbers[EACH_BATCH_AXIS] = sy_node_int(node, "batch_axis", 1);
    e->axis = sy_node_int(node, "time_axis", 0);
    return SY_OK;
}

static int fill_pad(const struct sy_node *node, struct sy_math_each *e)
{
    static const char *const modes[] = {"constant", "edge", "reflect", "wrap", NULL};
    const struct sy_attr *pads = sy_node_attr(node, "pads");
    const struct sy_each_array *x = &e->at[0], *y = &e->at[SY_EACH_IN];
    if (!pads || pads->kind != SY_ATTR_INTS || pads->n != 2 * x->rank)
        return refuse(node, "without pads of every dimension");
    for (int d = 0; d < x->rank; d++) {
        e->numbers[EACH_BEFORE + d] = pads->ints[d];
        if (x->dims[d] + pads->ints[d] + pads->ints[d + x->rank] != y->dims[d])
            return refuse(node, "pads that lead to another shape than the file declares");
    }
    e->numbers[EACH_MODE] = text_index(node, "mode", modes);
    e->floats[0] = (double)sy_node_float(node, "value", 0);
    return SY_OK;
}

static int fill_running_sum(const struct sy_node *node, struct sy_math_each *e)
{
    e->numbers[EACH_EXCLUDES] = sy_node_int(node, "exclusive", 0) != 0;
    e->numbers[EACH_BACKWARD] = sy_node_int(node, "reverse", 0) != 0;
    return SY_OK;
}

/* A thread for each element of the input: its place in the order of its line. */
static int fill_top(const struct sy_node *node, struct sy_math_each *e)
{
    e->numbers[EACH_LARGEST] = sy_node_int(node, "largest", 1) != 0;
    e->items = e->at[0].n;
    return SY_OK;
}

static int fill_gather_tuples(const struct sy_node *node, struct sy_math_each *e)
{
    const struct sy_each_array *x = &e->at[0], *indices = &e->at[1];
    int64_t batch = sy_node_int(node, "batch_dims", 0), depth = indices->dims[indices->rank - 1];
    e->numbers[EACH_FIRST] = batch;
    e->numbers[EACH_DEPTH] = depth;
    e->numbers[EACH_RUN] = extent(x, (int)(batch + depth), x->rank);
    e->numbers[EACH_BLOCK] = extent(x, (int)batch, x->rank);
    e->numbers[EACH_EACH] = extent(indices, (int)batch, indices->rank - 1);
    return SY_OK;
}

static const char *const reductions[] = {"none", "add", "mul", "max", "min", NULL};

/* What may meet at one place of the result is one thread's, in the order of the indices; columns never meet. Where they are few, several
 * threads share one, each with the places of its own. */
static void share_out(struct sy_math_each *e, int64_t columns, int64_t updates)
{
    int64_t parts = columns > 0 && columns < SCATTER_PARTS ? SCATTER_PARTS / columns : 1;
    e->numbers[EACH_PARTS] = SY_MAX(SY_MIN(parts, updates), 1);
    e->items = columns * e->numbers[EACH_PARTS];
}

static int fill_scatter_along(const struct sy_node *node, struct sy_math_each *e)
{
    const struct sy_each_array *indices = &e->at[1];
    int64_t rows = indices->dims[e->axis];
    e->numbers[EACH_REDUCTION] = text_index(node, "reduction", reductions);
    share_out(e, rows ? indices->n / rows : 0, rows);
    return SY_OK;
}

static int fill_scatter_tuples(const struct sy_node *node, struct sy_math_each *e)
{
    const struct sy_each_array *x = &e->at[0], *indices = &e->at[1];
    int64_t depth = indices->dims[indices->rank - 1], run = extent(x, (int)depth, x->rank);
    e->numbers[EACH_REDUCTION] = text_index(node, "reduction", reductions);
    e->numbers[EACH_DEPTH] = depth;
    e->numbers[EACH_RUN] = run;
    share_out(e, run, indices->n / depth);
    return SY_OK;
}

/* ---- lines and sums ----------------------------------------------------------------------------------- */

static int fill_line(const struct sy_node *node, struct sy_math_each *e)
{
    const struct sy_each_array *x = &e->at[0];
    bool flat = sy_node_int(node, "flat", 0) != 0;
    int axis = (int)e->axis;
    e->numbers[EACH_LENGTH] = flat ? extent(x, axis, x->rank) : x->dims[axis];
    e->numbers[EACH_INNER] = flat ? 1 : extent(x, axis + 1, x->rank);
    e->numbers[EACH_P] = sy_node_int(node, "p", 2);
    e->numbers[EACH_TAKES_LAST] = sy_node_int(node, "select_last_index", 0) != 0;
    e->items = e->numbers[EACH_LENGTH] ? x->n / e->numbers[EACH_LENGTH] : 0;
    return SY_OK;
}

static bool is_reduced(const struct sy_node *node, int rank, int d)
{
    const struct sy_attr *axes = sy_node_attr(node, "axes");
    bool found = false;
    if (!axes)
        return node->op != SY_OP_MEAN_VARIANCE_NORM || d != 1;
    for (int i = 0; i < axes->n; i++)
        found = found || axes->ints[i] == d || axes->ints[i] + rank == d;
    return found;
}

static int fill_fold(const struct sy_node *node, struct sy_math_each *e)
{
    const struct sy_each_array *x = &e->at[0], *y = &e->at[SY_EACH_IN];
    int64_t *n = e->numbers, each = 1, kept = 1;
    if (e->n_in > 1)
        return refuse(node, "axes that are known at run only");
    for (int d = x->rank - 1; d >= 0; d--) {
        bool reduced = is_reduced(node, x->rank, d);
        int64_t *count = &n[reduced ? EACH_N_REDUCED : EACH_N_KEPT];
        n[(reduced ? EACH_REDUCED : EACH_KEPT) + *count] = x->dims[d];
        n[(reduced ? EACH_REDUCED_STRIDES : EACH_KEPT_STRIDES) + (*count)++] = x->strides[d];
        *(reduced ? &each : &kept) *= x->dims[d];
    }
    if (kept != y->n && node->op != SY_OP_MEAN_VARIANCE_NORM)
        return refuse(node, "a result of another size");
    n[EACH_LENGTH] = each;
    e->items = kept;
    return SY_OK;
}

static int fill_batch(const struct sy_node *node, struct sy_math_each *e)
{
    e->floats[0] = (double)sy_node_float(node, "epsilon", 1e-5f);
    e->floats[1] = (double)sy_node_float(node, "momentum", 0.9f);
    e->items = e->at[0].dims[1];
    if (sy_node_int(node, "training_mode", 0) == 0)
        return refuse(node, "of another type than float32");
    return SY_OK;
}

/* LayerNormalization with its second and third result. */
static int fill_norm(const struct sy_node *node, struct sy_math_each *e)
{
    const struct sy_each_array *x = &e->at[0]; /* scale and bias are repeated as it has them */
    for (int i = 1; i < e->n_in; i++)
        if (input(e, i)) {
            struct sy_math_each one = {.at = {e->at[i]}};
            one.at[SY_EACH_IN] = *x;
            SY_TRY(spread(node, &one, 1));
            e->at[i] = one.at[0];
        }
    e->floats[0] = (double)sy_node_float(node, "epsilon", 1e-5f);
    e->numbers[EACH_LENGTH] = extent(x, (int)e->axis, x->rank);
    e->items = e->numbers[EACH_LENGTH] ? x->n / e->numbers[EACH_LENGTH] : 0;
    return SY_OK;
}

static int fill_neighbours(const struct sy_node *node, struct sy_math_each *e)
{
    e->numbers[EACH_LENGTH] = sy_node_int(node, "size", 1);
    e->floats[0] = (double)sy_node_float(node, "alpha", 1e-4f);
    e->floats[1] = (double)sy_node_float(node, "beta", 0.75f);
    e->floats[2] = (double)sy_node_float(node, "bias", 1);
    return SY_OK;
}

/* ---- resizing ----------------------------------------------------------------------------------------- */

/* Where a dimension's scale and region lie: its place among the axes; -1: it has none. */
static void set_axes(const struct sy_node *node, struct sy_math_each *e)
{
    const struct sy_attr *axes = sy_node_attr(node, "axes");
    int rank = e->at[0].rank;
    e->numbers[EACH_N_AXES] = axes ? axes->n : rank;
    for (int d = 0; d < rank; d++) {
        e->numbers[EACH_AXES + d] = axes ? -1 : d;
        for (int i = 0; axes && i < axes->n; i++)
            if (axes->ints[i] == d)
                e->numbers[EACH_AXES + d] = i;
    }
}

static int fill_resize(const struct sy_node *node, struct sy_math_each *e)
{
    static const char *const modes[] = {"nearest", "linear", "cubic", NULL},
                             *const rounding[] = {"round_prefer_floor", "round_prefer_ceil",
                                                  "floor", "ceil", NULL},
                             *const places[] = {"half_pixel",           "pytorch_half_pixel",
                                                "align_corners",        "asymmetric",
                                                "tf_half_pixel_for_nn", "tf_crop_and_resize",
                                                "half_pixel_symmetric", NULL};
    const struct sy_attr *scales = sy_node_attr(node, "scales");
    const struct sy_each_array *sizes = input(e, 3), *given = input(e, 2), *roi = input(e, 1);
    int64_t *n = e->numbers;
    bool old = sy_node_int(node, "asymmetric", 0) != 0, by_sizes = sizes && sizes->n > 0;
    n[EACH_MODE] = text_index(node, "mode", modes);
    n[EACH_ROUNDING] = old ? 2 : text_index(node, "nearest_mode", rounding);
    n[EACH_PLACE] = old ? 3 : text_index(node, "coordinate_transformation_mode", places);
    n[EACH_EXCLUDES] = sy_node_int(node, "exclude_outside", 0) != 0;
    e->floats[0] = (double)sy_node_float(node, "cubic_coeff_a", -0.75f);
    e->floats[1] = (double)sy_node_float(node, "extrapolation_value", 0);
    set_axes(node, e);
    n[EACH_HAS_ROI] = roi && roi->n == 2 * n[EACH_N_AXES];
    n[EACH_SCALES_GIVEN] = !by_sizes && given && given->n > 0;
    if (by_sizes ? sizes->n != n[EACH_N_AXES] : n[EACH_SCALES_GIVEN] && given->n != n[EACH_N_AXES])
        return refuse(node, "other scales or sizes than it has axes");
    for (int d = 0; d < e->at[0].rank; d++) {
        int64_t i = n[EACH_AXES + d];
        bool has = !by_sizes && i >= 0 && scales && scales->kind == SY_ATTR_FLOATS && i < scales->n;
        float scale =
            has ? scales->floats[i] : (float)e->at[SY_EACH_IN].dims[d] / (float)e->at[0].dims[d];
        memcpy(&n[EACH_SCALES + d], &scale, sizeof scale);
    }
    return SY_OK;
}

/* ---- products ----------------------------------------------------------------------------------------- */

/* Operands as the product of all labels: results first, then what is summed over. */
static int fill_einsum(const struct sy_node *node, struct sy_math_each *e)
{
    struct sy_call call = {.node = node, .n_in = e->n_in, .n_out = 1};
    struct sy_einsum f;
    for (int k = 0; k < e->n_in; k++)
        call.in[k] =
            (struct sy_array){.dtype = e->at[k].dtype, .rank = e->at[k].rank, .n = e->at[k].n};
    for (int k = 0; k < e->n_in; k++)
        memcpy(call.in[k].dims, e->at[k].dims, sizeof call.in[k].dims);
    call.out[0] =
        (struct sy_array){.dtype = e->at[SY_EACH_IN].dtype, .rank = e->at[SY_EACH_IN].rank};
    memcpy(call.out[0].dims, e->at[SY_EACH_IN].dims, sizeof call.out[0].dims);
    if (e->n_in > EACH_MAX_FACTORS || !sy_einsum_read(&call, &f))
        return refuse(node, "this equation");
    e->numbers[EACH_N_LABELS] = f.n;
    e->numbers[EACH_N_RESULT] = f.n_out;
    for (int i = 0; i < f.n; i++) {
        e->numbers[EACH_SIZES + i] = f.sizes[i];
        for (int k = 0; k < e->n_in; k++)
            e->numbers[EACH_FACTORS + k * EACH_MAX_LABELS + i] = f.strides[k][i];
    }
    return SY_OK;
}

/* As a product over the labels of the result and the depth; vectors have no row, or no column. */
static int fill_matmul(const struct sy_node *node, struct sy_math_each *e)
{
    const struct sy_each_array *a = &e->at[0], *y = &e->at[SY_EACH_IN],
                               *b = &e->at[node->op == SY_OP_QLINEAR_MATMUL ? 3 : 1];
    int rows = a->rank > 1, columns = b->rank > 1, batches = y->rank - rows - columns;
    int64_t *left = &e->numbers[EACH_FACTORS], *right = left + EACH_MAX_LABELS;
    for (int d = 0; d < y->rank; d++)
        e->numbers[EACH_SIZES + d] = y->dims[d];
    for (int d = 0; d < batches; d++) {
        int i = d - (batches - (a->rank - 2)), k = d - (batches - (b->rank - 2));
        left[d] = rows && i >= 0 && a->dims[i] != 1 ? a->strides[i] : 0;
        right[d] = columns && k >= 0 && b->dims[k] != 1 ? b->strides[k] : 0;
    }
    if (rows)
        left[batches] = a->strides[a->rank - 2];
    if (columns)
        right[batches + rows] = 1;
    left[y->rank] = 1;
    right[y->rank] = columns ? b->strides[b->rank - 2] : 1;
    e->numbers[EACH_SIZES + y->rank] = a->dims[a->rank - 1];
    e->numbers[EACH_N_LABELS] = y->rank + 1;
    e->numbers[EACH_N_RESULT] = y->rank;
    e->numbers[EACH_ROW_LABEL] = rows ? batches : -1;
    e->numbers[EACH_COLUMN_LABEL] = columns ? batches + rows : -1;
    e->floats[0] = (double)sy_node_float(node, "alpha", 1);
    return SY_OK;
}

static int fill_quantize(const struct sy_node *node, struct sy_math_each *e)
{
    const struct sy_each_array *x = &e->at[0];
    bool one = e->at[1].n == 1;
    e->numbers[EACH_LENGTH] = one ? 1 : x->dims[e->axis];
    e->numbers[EACH_INNER] = one ? 1 : extent(x, (int)e->axis + 1, x->rank);
    (void)node;
    return SY_OK;
}

/* One block for all targets: sums are of one order. */
static int fill_loss(const struct sy_node *node, struct sy_math_each *e)
{
    static const char *const ways[] = {"mean", "sum", "none", NULL};
    e->numbers[EACH_MODE] = text_index(node, "reduction", ways);
    e->numbers[EACH_HAS_IGNORED] = sy_node_attr(node, "ignore_index") != NULL;
    e->numbers[EACH_IGNORED] = sy_node_int(node, "ignore_index", 0);
    e->items = 1;
    return e->numbers[EACH_MODE] < 0 ? refuse(node, "this reduction") : SY_OK;
}

static int fill_dynamic(const struct sy_node *node, struct sy_math_each *e)
{
    (void)node;
    e->items = 1;
    return SY_OK;
}

/* ---- windows ------------------------------------------------------------------------------------------ */

static int fill_window(const struct sy_node *node, struct sy_math_each *e)
{
    const struct sy_each_array *x = &e->at[0];
    bool global = node->op == SY_OP_GLOBAL_AVERAGE_POOL || node->op == SY_OP_GLOBAL_MAX_POOL ||
                  node->op == SY_OP_GLOBAL_LP_POOL;
    bool pools = global || node->op == SY_OP_MAX_POOL || node->op == SY_OP_AVERAGE_POOL ||
                 node->op == SY_OP_LP_POOL;
    const struct sy_each_array *w = &e->at[node->op == SY_OP_QLINEAR_CONV ? 3 : 1];
    int n = x->rank - 2;
    e->numbers[EACH_LENGTH] = 1;
    for (int i = 0; i < n; i++) {
        e->numbers[EACH_KERNEL + i] = global  ? x->dims[i + 2]
                                      : pools ? attr_at(node, "kernel_shape", i, 1)
                                              : w->dims[i + 2];
        e->numbers[EACH_STRIDES + i] = attr_at(node, "strides", i, 1);
        e->numbers[EACH_DILATIONS + i] = attr_at(node, "dilations", i, 1);
        e->numbers[EACH_PADS + i] = attr_at(node, "pads", i, 0);
        e->numbers[EACH_PADS_BEHIND + i] = attr_at(node, "pads", n + i, 0);
        e->numbers[EACH_LENGTH] *= e->numbers[EACH_KERNEL + i];
    }
    e->numbers[EACH_P] = sy_node_int(node, "p", 2);
    e->numbers[EACH_COUNTS_PADDING] = sy_node_int(node, "count_include_pad", 0) != 0;
    e->numbers[EACH_TURNS] = sy_node_int(node, "storage_order", 0) != 0;
    e->numbers[EACH_GROUPS] = sy_node_int(node, "group", 1);
    return SY_OK;
}

static int fill_sample(const struct sy_node *node, struct sy_math_each *e)
{
    static const char *const modes[] = {"bilinear", "linear", "nearest", "bicubic", "cubic", NULL},
                             *const paddings[] = {"zeros", "border", "reflection", NULL};
    static const int taps[] = {2, 2, 1, 4, 4};
    e->numbers[EACH_TAPS] = taps[text_index(node, "mode", modes)];
    e->numbers[EACH_MODE] = text_index(node, "padding_mode", paddings);
    e->numbers[EACH_ALIGNS] = sy_node_int(node, "align_corners", 0) != 0;
    return SY_OK;
}

static int fill_region(const struct sy_node *node, struct sy_math_each *e)
{
    const struct sy_attr *mode = sy_node_attr(node, "coordinate_transformation_mode");
    e->numbers[EACH_IS_HALF] =
        mode && mode->s ? strcmp(mode->s, "half_pixel") == 0 : node->opset >= 16;
    e->numbers[EACH_TAPS] = sy_node_int(node, "sampling_ratio", 0);
    e->floats[0] = (double)sy_node_float(node, "spatial_scale", 1);
    return SY_OK;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

typedef int fill_fn(const struct sy_node *node, struct sy_math_each *e);

struct form {
    enum sy_op op;
    enum sy_each_kind kind;
    fill_fn *fill;
    int64_t axis; /* without the attribute */
};

#define ONE(op)                              \
    {                                        \
        SY_OP_##op, SY_EACH_ONE, fill_one, 0 \
    }
#define PAIR(op)                               \
    {                                          \
        SY_OP_##op, SY_EACH_PAIR, fill_pair, 0 \
    }
#define FOLD(op)                               \
    {                                          \
        SY_OP_##op, SY_EACH_FOLD, fill_fold, 0 \
    }
#define WINDOW(op, kind)                           \
    {                                              \
        SY_OP_##op, SY_EACH_##kind, fill_window, 0 \
    }
static const struct form forms[] = {
    ONE(RELU),
    ONE(LEAKY_RELU),
    ONE(SIGMOID),
    ONE(TANH),
    ONE(ERF),
    ONE(CLIP),
    ONE(HARD_SIGMOID),
    ONE(HARD_SWISH),
    ONE(ELU),
    ONE(EXP),
    ONE(LOG),
    ONE(SQRT),
    ONE(NEG),
    ONE(ABS),
    ONE(RECIPROCAL),
    ONE(GELU),
    ONE(CELU),
    ONE(SELU),
    ONE(SOFTPLUS),
    ONE(SOFTSIGN),
    ONE(MISH),
    ONE(SHRINK),
    ONE(THRESHOLDED_RELU),
    ONE(SIN),
    ONE(COS),
    ONE(TAN),
    ONE(ASIN),
    ONE(ACOS),
    ONE(ATAN),
    ONE(SINH),
    ONE(COSH),
    ONE(ASINH),
    ONE(ACOSH),
    ONE(ATANH),
    ONE(FLOOR),
    ONE(CEIL),
    ONE(ROUND),
    ONE(SIGN),
    ONE(NOT),
    ONE(BITWISE_NOT),
    ONE(IS_NAN),
    ONE(IS_INF),
    ONE(CAST),
    PAIR(ADD),
    PAIR(SUB),
    PAIR(MUL),
    PAIR(DIV),
    PAIR(POW),
    PAIR(MIN),
    PAIR(MAX),
    PAIR(SUM),
    PAIR(MEAN),
    PAIR(MOD),
    PAIR(PRELU),
    PAIR(EQUAL),
    PAIR(GREATER),
    PAIR(GREATER_OR_EQUAL),
    PAIR(LESS),
    PAIR(LESS_OR_EQUAL),
    PAIR(AND),
    PAIR(OR),
    PAIR(XOR),
    PAIR(BITWISE_AND),
    PAIR(BITWISE_OR),
    PAIR(BITWISE_XOR),
    PAIR(BIT_SHIFT),
    {SY_OP_WHERE, SY_EACH_WHERE, fill_where, 0},
    {SY_OP_RUN_CLIP, SY_EACH_BOUND, NULL, 0},
    {SY_OP_EYE_LIKE, SY_EACH_FILL, fill_fill, 0},
    {SY_OP_DROPOUT, SY_EACH_FILL, fill_fill, 0},
    {SY_OP_TRILU, SY_EACH_TRIANGLE, fill_triangle, 0},
    {SY_OP_RANGE, SY_EACH_RANGE, NULL, 0},
    {SY_OP_ONE_HOT, SY_EACH_ONE_HOT, NULL, -1},
    {SY_OP_REVERSE_SEQUENCE, SY_EACH_REVERSE, fill_reverse, 0},
    {SY_OP_PAD, SY_EACH_PAD, fill_pad, 0},
    {SY_OP_CUM_SUM, SY_EACH_RUNNING_SUM, fill_running_sum, 0},
    {SY_OP_TOP_K, SY_EACH_TOP, fill_top, -1},
    {SY_OP_GATHER_ELEMENTS, SY_EACH_GATHER_ALONG, NULL, 0},
    {SY_OP_GATHER_ND, SY_EACH_GATHER_TUPLES, fill_gather_tuples, 0},
    {SY_OP_SCATTER_ELEMENTS, SY_EACH_SCATTER_ALONG, fill_scatter_along, 0},
    {SY_OP_SCATTER_ND, SY_EACH_SCATTER_TUPLES, fill_scatter_tuples, 0},
    {SY_OP_HARDMAX, SY_EACH_LINE, fill_line, -1},
    {SY_OP_LP_NORM, SY_EACH_LINE, fill_line, -1},
    {SY_OP_SOFTMAX, SY_EACH_LINE, fill_line, -1},
    {SY_OP_LOG_SOFTMAX, SY_EACH_LINE, fill_line, -1},
    {SY_OP_ARG_MAX, SY_EACH_ARG, fill_line, -1},
    {SY_OP_ARG_MIN, SY_EACH_ARG, fill_line, -1},
    FOLD(REDUCE_MEAN),
    FOLD(REDUCE_SUM),
    FOLD(REDUCE_MAX),
    FOLD(REDUCE_MIN),
    FOLD(REDUCE_PROD),
    FOLD(REDUCE_L1),
    FOLD(REDUCE_L2),
    FOLD(REDUCE_LOG_SUM),
    FOLD(REDUCE_LOG_SUM_EXP),
    FOLD(REDUCE_SUM_SQUARE),
    FOLD(MEAN_VARIANCE_NORM),
    {SY_OP_BATCH_NORM, SY_EACH_BATCH, fill_batch, 0},
    {SY_OP_LAYER_NORM, SY_EACH_NORM, fill_norm, -1},
    {SY_OP_LRN, SY_EACH_NEIGHBOURS, fill_neighbours, 0},
    {SY_OP_RESIZE, SY_EACH_RESIZE, fill_resize, 0},
    {SY_OP_EINSUM, SY_EACH_PRODUCT, fill_einsum, 0},
    {SY_OP_MATMUL, SY_EACH_PRODUCT, fill_matmul, 0},
    {SY_OP_MATMUL_INTEGER, SY_EACH_INTEGER_PRODUCT, fill_matmul, 0},
    {SY_OP_QLINEAR_MATMUL, SY_EACH_INTEGER_PRODUCT, fill_matmul, 0},
    {SY_OP_QUANTIZE_LINEAR, SY_EACH_QUANTIZE, fill_quantize, 1},
    {SY_OP_DEQUANTIZE_LINEAR, SY_EACH_QUANTIZE, fill_quantize, 1},
    {SY_OP_DYNAMIC_QUANTIZE_LINEAR, SY_EACH_DYNAMIC, fill_dynamic, 0},
    {SY_OP_NLL_LOSS, SY_EACH_LOSS, fill_loss, 0},
    {SY_OP_SOFTMAX_LOSS, SY_EACH_LOSS, fill_loss, 0},
    WINDOW(CONV_INTEGER, INTEGER_CONV),
    WINDOW(QLINEAR_CONV, INTEGER_CONV),
    WINDOW(MAX_POOL, WINDOW),
    WINDOW(GLOBAL_MAX_POOL, WINDOW),
    WINDOW(AVERAGE_POOL, WINDOW),
    WINDOW(GLOBAL_AVERAGE_POOL, WINDOW),
    WINDOW(LP_POOL, WINDOW),
    WINDOW(GLOBAL_LP_POOL, WINDOW),
    {SY_OP_GRID_SAMPLE, SY_EACH_SAMPLE, fill_sample, 0},
    {SY_OP_ROI_ALIGN, SY_EACH_REGION, fill_region, 0},
};

/* The host kernel's own checks of types and shapes. */
static int check(const struct sy_node *node, const struct sy_math_each *e)
{
    const struct sy_kernel *kernel = sy_kernel_find(node->op);
    struct sy_call call = {.node = node, .n_in = e->n_in, .n_out = e->n_out};
    if (!kernel)
        return refuse(node, "no formula");
    for (int i = 0; i < SY_EACH_ARRAYS; i++) {
        const struct sy_each_array *from = &e->at[i];
        struct sy_array *to = i < SY_EACH_IN ? &call.in[i] : &call.out[i - SY_EACH_IN];
        *to = (struct sy_array){.dtype = from->dtype, .rank = from->rank, .n = from->n};
        memcpy(to->dims, from->dims, sizeof to->dims);
    }
    SY_TRY(sy_kernel_check_types(kernel, &call));
    return kernel->check ? kernel->check(&call) : SY_OK;
}

static const struct form *form_of(enum sy_op op)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(forms); i++)
        if (forms[i].op == op)
            return &forms[i];
    return NULL;
}

bool sy_each_has(enum sy_op op)
{
    return form_of(op) != NULL;
}

static bool copies_first(enum sy_each_kind kind, enum sy_op op)
{
    return kind == SY_EACH_SCATTER_ALONG || kind == SY_EACH_SCATTER_TUPLES || op == SY_OP_DROPOUT;
}

int sy_each_describe(const struct sy_node *node, struct sy_math_each *e, bool *copies)
{
    const struct form *form = form_of(node->op);
    if (!form)
        return refuse(node, "no formula");
    if (node->activation != SY_ACT_NONE || node->residual_input >= 0 || node->bias_input >= 0)
        return refuse(node, "something fused to it");
    e->kind = form->kind;
    e->op = node->op;
    for (int i = 0; i < SY_EACH_ARRAYS; i++)
        set_own_strides(&e->at[i]);
    SY_TRY(check(node, e));
    int rank = e->at[node->op == SY_OP_ONE_HOT ? SY_EACH_IN : 0].rank;
    e->axis = sy_node_int(node, "axis", form->axis);
    e->axis += e->axis < 0 ? rank : 0;
    e->items = e->at[SY_EACH_IN].n;
    *copies = copies_first(e->kind, e->op);
    return form->fill ? form->fill(node, e) : SY_OK;
}
