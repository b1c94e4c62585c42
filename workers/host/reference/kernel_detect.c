/* Boxes and grids: NonMaxSuppression, GridSample of images and volumes. */
#include <stdlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/base/clones.h"
#include "workers/host/reference/kernel.h"

/* ---- NonMaxSuppression ---------------------------------------------------------------------------- */

/* Numbers of boxes are float32, as what the operator gets, and so is what is computed of them: an overlap of exactly the limit is not beyond it. */
struct box {
    float top, left, bottom, right;
};

/* Corners in any order, or center and size. */
static struct box box_at(const struct sy_call *call, int64_t i)
{
    float v[4];
    for (int k = 0; k < 4; k++)
        v[k] = (float)sy_get(&call->in[0], i * 4 + k);
    if (sy_node_int(call->node, "center_point_box", 0) != 0)
        return (struct box){v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2};
    return (struct box){fminf(v[0], v[2]), fminf(v[1], v[3]), fmaxf(v[0], v[2]), fmaxf(v[1], v[3])};
}

struct suppression {
    int64_t most;
    float overlap;
    double score;
    bool has_score;
};

static struct suppression read_limits(const struct sy_call *call)
{
    const struct sy_array *most = sy_call_in(call, 2), *iou = sy_call_in(call, 3),
                          *score = sy_call_in(call, 4);
    return (struct suppression){.most = most ? sy_get_int(most, 0) : 0,
                                .overlap = iou ? (float)sy_get(iou, 0) : 0,
                                .score = score ? sy_get(score, 0) : 0,
                                .has_score = score != NULL};
}

struct candidate {
    double score;
    int64_t box;
};

/* The best first; of equal ones the first. */
static int compare_candidates(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    if (a->score != b->score)
        return a->score < b->score ? 1 : -1;
    return (a->box > b->box) - (a->box < b->box);
}

/* Boxes of one class whose scores count, sorted; returns how many. */
static int64_t find_candidates(const struct sy_call *call, const struct suppression *s,
                               int64_t first, int64_t n, struct candidate *to)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        double score = sy_get(&call->in[1], first + i);
        if (s->has_score ? score > s->score : !isnan(score))
            to[count++] = (struct candidate){score, i};
    }
    qsort(to, (size_t)count, sizeof *to, compare_candidates);
    return count;
}

/* Boxes that are kept, a number a list: the widest registers compare several at once. */
struct kept {
    float *top, *left, *bottom, *right, *area;
};

enum { AT_ONCE = 64, LISTS = 5 };

/* Whether one of `n` kept boxes from `first` on shares more than `limit` of what both cover. */
SY_CLONES static bool any_overlap(const struct kept *k, int64_t first, int64_t n,
                                  const struct box *box, float limit)
{
    const float *top = k->top + first, *left = k->left + first, *bottom = k->bottom + first,
                *right = k->right + first, *area = k->area + first;
    float own = (box->bottom - box->top) * (box->right - box->left);
    int hit = 0;
    for (int64_t i = 0; i < n; i++) {
        float lower = box->bottom < bottom[i] ? box->bottom : bottom[i],
              upper = box->top > top[i] ? box->top : top[i],
              end = box->right < right[i] ? box->right : right[i],
              begin = box->left > left[i] ? box->left : left[i];
        float height = lower - upper, width = end - begin;
        float common = height > 0 && width > 0 ? height * width : 0;
        float both = own + area[i] - common;
        float share = common / (both > 0 ? both : 1);
        hit |= (both > 0 ? share : 0) > limit;
    }
    return hit;
}

static bool is_suppressed(const struct kept *kept, int64_t first, int64_t n, const struct box *box,
                          float limit)
{
    for (int64_t i = 0; i < n; i += AT_ONCE)
        if (any_overlap(kept, first + i, n - i < AT_ONCE ? n - i : AT_ONCE, box, limit))
            return true;
    return false;
}

/* A candidate from left to right, and the strip that it lies in. */
struct edge {
    float left;
    int64_t candidate;
};

static int compare_edges(const void *left, const void *right)
{
    const struct edge *a = left, *b = right;
    if (a->left != b->left)
        return a->left < b->left ? -1 : 1;
    return (a->candidate > b->candidate) - (a->candidate < b->candidate);
}

/* Cuts the plane into strips that no box reaches out of, so that only boxes of one strip are compared: exporters move the boxes of each class
 * to a place of their own. strips[i]: where the strip of candidate i begins in the lists of kept boxes, which is as long as it has candidates. */
static void find_strips(const struct box *boxes, int64_t n, bool apart, struct edge *edges,
                        int64_t *strips)
{
    float reach = -INFINITY;
    int64_t begin = 0;
    for (int64_t i = 0; i < n; i++) {
        edges[i] = (struct edge){boxes[i].left, i};
        apart = apart && isfinite(boxes[i].left) && isfinite(boxes[i].right);
    }
    if (apart)
        qsort(edges, (size_t)n, sizeof *edges, compare_edges);
    for (int64_t i = 0; i < n; i++) {
        const struct box *box = &boxes[edges[i].candidate];
        if (apart && box->left > reach)
            begin = i;
        reach = box->right > reach ? box->right : reach;
        strips[edges[i].candidate] = begin;
    }
}

static void keep(const struct kept *kept, int64_t at, const struct box *box)
{
    kept->top[at] = box->top;
    kept->left[at] = box->left;
    kept->bottom[at] = box->bottom;
    kept->right[at] = box->right;
    kept->area[at] = (box->bottom - box->top) * (box->right - box->left);
}

/* One class of one image. */
static void suppress(const struct sy_call *call, const struct suppression *s, int64_t image,
                     int64_t class, int64_t *found)
{
    const struct sy_array *y = &call->out[0];
    int64_t classes = call->in[1].dims[1], n = call->in[1].dims[2], n_kept = 0;
    struct candidate *candidates = call->scratch;
    struct box *boxes = (struct box *)(void *)(candidates + n);
    struct edge *edges = (struct edge *)(void *)(boxes + n);
    int64_t *strips = (int64_t *)(void *)(edges + n), *in_strip = strips + n;
    float *lists = (float *)(void *)(in_strip + n);
    const struct kept kept = {lists, lists + n, lists + 2 * n, lists + 3 * n, lists + 4 * n};
    int64_t count = find_candidates(call, s, (image * classes + class) * n, n, candidates);
    for (int64_t i = 0; i < count; i++) {
        boxes[i] = box_at(call, image * n + candidates[i].box);
        in_strip[i] = 0;
    }
    find_strips(boxes, count, s->overlap >= 0, edges, strips);
    for (int64_t i = 0; i < count && n_kept < s->most; i++) {
        int64_t strip = strips[i];
        if (is_suppressed(&kept, strip, in_strip[strip], &boxes[i], s->overlap))
            continue;
        keep(&kept, strip + in_strip[strip]++, &boxes[i]);
        n_kept++;
        const int64_t row[3] = {image, class, candidates[i].box};
        for (int k = 0; k < 3 && *found < y->dims[0]; k++)
            sy_put_int(y, *found * 3 + k, row[k]);
        ++*found;
    }
}

static int run_nms(const struct sy_call *call)
{
    struct suppression s = read_limits(call);
    int64_t found = 0;
    for (int64_t image = 0; image < call->in[1].dims[0]; image++)
        for (int64_t class = 0; class < call->in[1].dims[1]; class ++)
            suppress(call, &s, image, class, &found);
    return sy_kernel_count(call, found, call->out[0].dims[0]);
}

static int check_nms(const struct sy_call *call)
{
    const struct sy_array *boxes = &call->in[0], *scores = sy_call_in(call, 1), *y = &call->out[0];
    if (!scores || boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 ||
        boxes->dims[0] != scores->dims[0] || boxes->dims[1] != scores->dims[2] || y->rank != 2 ||
        y->dims[1] != 3 || y->dtype != SY_DTYPE_I64)
        return sy_kernel_refuse(call, "boxes, scores or a result that do not fit");
    for (int i = 2; i < call->n_in; i++)
        if (sy_call_in(call, i) &&
            (i > 4 || call->in[i].n != 1 || sy_is_float(call->in[i].dtype) != (i > 2)))
            return sy_kernel_refuse(call, "limits that are not one number each");
    return SY_OK;
}

static int64_t scratch_nms(const struct sy_call *call)
{
    return (call->in[1].dims[2] + 1) *
           (int64_t)(sizeof(struct candidate) + sizeof(struct box) + sizeof(struct edge) +
                     2 * sizeof(int64_t) + LISTS * sizeof(float));
}

/* ---- GridSample ----------------------------------------------------------------------------------- */

enum padding { ZEROS, BORDER, REFLECTION };
enum { POINTS = 128, LANES = 16, MOST_TAPS = 64, MOST_ALONG = 4, PARALLEL_FROM = 16384 };

struct sampler {
    const struct sy_array *x;
    enum padding padding;
    bool align;
};

/* Sources of up to POINTS points along one dimension; weight 0: none. */
struct line {
    int32_t at[MOST_ALONG][POINTS];
    double weights[MOST_ALONG][POINTS];
};

/* One dimension of n places. The loops over points are free of branches and calls, so that they become vectors. Their n is
 * a multiple of LANES. */
struct extent {
    double n, low, high; /* REFLECTION turns at low and high */
};

static inline double reflect(double v, const struct extent *e)
{
    double span = e->high - e->low, from_low = fabs(v - e->low);
    double turns = floor(from_low / span), rest = from_low - turns * span;
    double there = turns - 2 * floor(turns / 2) == 0 ? e->low + rest : e->high - rest;
    return span > 0 ? there : e->low;
}

/* Inlined where `padding` is a constant. */
static inline double fold_back(double v, const struct extent *e, enum padding padding)
{
    double least = padding == ZEROS ? -10 : 0, most = padding == ZEROS ? e->n + 10 : e->n - 1;
    double folded = padding == REFLECTION ? reflect(v, e) : v;
    folded = folded < least ? least : folded;
    return folded > most ? most : folded;
}

static inline void fold_points(int64_t n, double *v, const struct extent *e, enum padding padding)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = fold_back(v[i], e, padding);
}

/* The tap at places `first`: its weight stays where that is inside. */
static inline void place_tap(int64_t n, const double *first, double *weights, int32_t *at,
                             const struct extent *e, enum padding padding)
{
    for (int64_t i = 0; i < n; i++) {
        double place = fold_back(first[i], e, padding);
        bool inside = place >= 0 && place < e->n;
        at[i] = inside ? (int32_t)place : 0;
        weights[i] = inside ? weights[i] : 0;
    }
}

SY_CLONES static void fold_all(int64_t n, double *v, const struct extent *e, enum padding padding)
{
    if (padding == ZEROS)
        fold_points(n, v, e, ZEROS);
    else if (padding == BORDER)
        fold_points(n, v, e, BORDER);
    else
        fold_points(n, v, e, REFLECTION);
}

SY_CLONES static void place_all(int64_t n, const double *first, double *weights, int32_t *at,
                                const struct extent *e, enum padding padding)
{
    if (padding == ZEROS)
        place_tap(n, first, weights, at, e, ZEROS);
    else if (padding == BORDER)
        place_tap(n, first, weights, at, e, BORDER);
    else
        place_tap(n, first, weights, at, e, REFLECTION);
}

static void cubic_weights(double t, double w[][POINTS], int64_t i)
{
    const double a = -0.75;
    w[0][i] = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a;
    w[1][i] = ((a + 2) * t - (a + 3)) * t * t + 1;
    w[2][i] = ((a + 2) * (1 - t) - (a + 3)) * (1 - t) * (1 - t) + 1;
    w[3][i] = ((a * (2 - t) - 5 * a) * (2 - t) + 8 * a) * (2 - t) - 4 * a;
}

static int taps_along(char mode) /* a side */
{
    return mode == 'n' ? 1 : mode == 'b' ? 2 : 4;
}

/* Weights by how far v is from its first place; v becomes that place. */
SY_CLONES static void weigh_points(int64_t n, char mode, double *v, double w[][POINTS])
{
    if (mode == 'n')
        for (int64_t i = 0; i < n; i++) {
            v[i] = nearbyint(v[i]);
            w[0][i] = 1;
        }
    else if (mode == 'b')
        for (int64_t i = 0; i < n; i++) {
            double first = floor(v[i]);
            w[1][i] = v[i] - first;
            w[0][i] = 1 - w[1][i];
            v[i] = first;
        }
    else
        for (int64_t i = 0; i < n; i++) {
            double first = floor(v[i]);
            cubic_weights(v[i] - first, w, i);
            v[i] = first - 1;
        }
}

/* v: where the points are, in pixels. */
static void find_line(const struct sampler *s, int64_t n, char mode, double *v,
                      const struct extent *e, struct line *line)
{
    if (mode != 'c') /* cubic folds each place that it takes instead */
        fold_all(n, v, e, s->padding);
    weigh_points(n, mode, v, line->weights);
    for (int t = 0; t < taps_along(mode); t++) {
        place_all(n, v, line->weights[t], line->at[t], e, s->padding);
        for (int64_t i = 0; i < n; i++)
            v[i] += 1;
    }
}

/* 'n'earest, 'b'ilinear, 'c'ubic; 0 for others. */
static char sample_mode(const struct sy_node *node)
{
    const struct sy_attr *mode = sy_node_attr(node, "mode");
    const char *text = mode && mode->s ? mode->s : "bilinear";
    if (strcmp(text, "nearest") == 0)
        return 'n';
    if (strcmp(text, "bilinear") == 0 || strcmp(text, "linear") == 0)
        return 'b';
    return strcmp(text, "bicubic") == 0 || strcmp(text, "cubic") == 0 ? 'c' : 0;
}

static int padding_mode(const struct sy_node *node)
{
    static const char *const names[] = {"zeros", "border", "reflection"};
    const struct sy_attr *attr = sy_node_attr(node, "padding_mode");
    for (int i = 0; attr && attr->s && i < 3; i++)
        if (strcmp(attr->s, names[i]) == 0)
            return i;
    return attr ? -1 : ZEROS;
}

/* The taps of some points, found once for all channels. Floats are summed as floats, others as doubles. */

struct points {
    int64_t n, n_taps;
    int64_t n_lanes; /* n, and so many more that whole vectors are computed */
    int32_t at[MOST_TAPS][POINTS];
    double weight[MOST_TAPS][POINTS];
    float rounded[MOST_TAPS][POINTS];
};

/* A tap of no weight adds nothing, whatever is there; there is always something, so that loads need no condition. */
SY_CLONES static void gather_floats(const struct points *restrict p, const float *restrict plane,
                                    float *restrict out)
{
    for (int64_t i = 0; i < p->n; i++) {
        float there = plane[p->at[0][i]];
        out[i] = p->rounded[0][i] != 0 ? p->rounded[0][i] * there : 0;
    }
    for (int64_t k = 1; k < p->n_taps; k++)
        for (int64_t i = 0; i < p->n; i++) {
            float there = plane[p->at[k][i]];
            out[i] += p->rounded[k][i] != 0 ? p->rounded[k][i] * there : 0;
        }
}

static void gather_any(const struct points *p, const struct sy_array *x, int64_t plane,
                       const struct sy_array *y, int64_t to)
{
    for (int64_t i = 0; i < p->n; i++) {
        double sum = 0;
        for (int64_t k = 0; k < p->n_taps; k++)
            if (p->weight[k][i] != 0)
                sum += p->weight[k][i] * sy_get(x, plane + p->at[k][i]);
        sy_put(y, to + i, sum);
    }
}

/* Tap `to` becomes tap `k` of the dimensions so far with tap `t` of one more. */
SY_CLONES static void join_taps(struct points *p, int64_t to, int64_t k, const struct line *line,
                                int t, int32_t stride)
{
    for (int64_t i = 0; i < p->n_lanes; i++) {
        p->at[to][i] = p->at[k][i] + line->at[t][i] * stride;
        p->weight[to][i] = p->weight[k][i] * line->weights[t][i];
    }
}

/* The points' places along dimension d of the image; the grid names its last dimension first. NaN, and what is beyond int64, is the lower edge, as in
 * ONNX Runtime. */
static void read_grid(const struct sampler *s, const struct sy_array *grid, int64_t first, int d,
                      const struct points *p, const struct extent *e, double *v)
{
    int64_t n_dims = s->x->rank - 2, from = (first + 1) * n_dims - 1 - d;
    for (int64_t i = p->n; i < p->n_lanes; i++)
        v[i] = 0;
    if (grid->dtype == SY_DTYPE_F32)
        for (int64_t i = 0; i < p->n; i++)
            v[i] = (double)((const float *)grid->data)[from + i * n_dims];
    else
        for (int64_t i = 0; i < p->n; i++)
            v[i] = sy_get(grid, from + i * n_dims);
    for (int64_t i = 0; i < p->n; i++) { /* from [-1, 1] to pixels */
        v[i] = s->align ? (v[i] + 1) / 2 * (e->n - 1) : ((v[i] + 1) * e->n - 1) / 2;
        v[i] = fabs(v[i]) < 0x1p63 ? v[i] : e->low;
    }
}

/* Points [first, first + p->n): every choice of one place in each dimension, their weights multiplied. */
static void find_points(const struct sampler *s, const struct sy_call *call, int64_t first,
                        struct points *p)
{
    char mode = sample_mode(call->node);
    int along = taps_along(mode);
    int32_t stride = 1;
    double v[POINTS];
    struct line line;
    p->n_taps = 1;
    for (int64_t i = 0; i < p->n_lanes; i++) {
        p->at[0][i] = 0;
        p->weight[0][i] = 1;
    }
    for (int d = s->x->rank - 3; d >= 0; d--) {
        double n = (double)s->x->dims[d + 2];
        struct extent extent = {n, s->align ? 0 : -0.5, s->align ? n - 1 : n - 0.5};
        read_grid(s, &call->in[1], first, d, p, &extent, v);
        find_line(s, p->n_lanes, mode, v, &extent, &line);
        for (int t = along - 1; t >= 0; t--)
            for (int64_t k = 0; k < p->n_taps; k++)
                join_taps(p, t * p->n_taps + k, k, &line, t, stride);
        p->n_taps *= along;
        stride *= (int32_t)s->x->dims[d + 2];
    }
    for (int64_t k = 0; k < p->n_taps; k++)
        for (int64_t i = 0; i < p->n_lanes; i++)
            p->rounded[k][i] = (float)p->weight[k][i];
}

static void sample_block(const struct sampler *s, const struct sy_call *call, int64_t image,
                         int64_t first)
{
    const struct sy_array *x = s->x, *y = &call->out[0];
    int64_t inner = sy_array_extent(x, 2, x->rank), outer = sy_array_extent(y, 2, y->rank);
    struct points p;
    p.n = SY_MIN(outer - first, POINTS);
    p.n_lanes = (p.n + LANES - 1) / LANES * LANES;
    find_points(s, call, image * outer + first, &p);
    for (int64_t c = 0; c < x->dims[1]; c++) {
        int64_t plane = image * x->dims[1] + c;
        if (x->dtype == SY_DTYPE_F32 && y->dtype == SY_DTYPE_F32)
            gather_floats(&p, (const float *)x->data + plane * inner,
                          (float *)y->data + plane * outer + first);
        else
            gather_any(&p, x, plane * inner, y, plane * outer + first);
    }
}

static int run_grid_sample(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    struct sampler s = {x, (enum padding)padding_mode(call->node),
                        sy_node_int(call->node, "align_corners", 0) != 0};
    int64_t blocks = (sy_array_extent(y, 2, y->rank) + POINTS - 1) / POINTS;
#pragma omp parallel for schedule(static) if (y->n > PARALLEL_FROM)
    for (int64_t k = 0; k < y->dims[0] * blocks; k++)
        sample_block(&s, call, k / blocks, k % blocks * POINTS);
    return SY_OK;
}

static int check_grid_sample(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    if (sample_mode(call->node) == 0 || padding_mode(call->node) < 0)
        return sy_kernel_refuse(call, "this mode");
    if (call->n_in != 2 || (x->rank != 4 && x->rank != 5) || y->rank != x->rank ||
        x->dims[0] != y->dims[0] || x->dims[1] != y->dims[1] ||
        sy_array_extent(x, 2, x->rank) < 1 ||
        call->in[1].n != y->dims[0] * sy_array_extent(y, 2, y->rank) * (y->rank - 2))
        return sy_kernel_refuse(call, "a grid that does not fit");
    if (sy_array_extent(x, 2, x->rank) > INT32_MAX)
        return sy_kernel_refuse(call, "a channel of more than 2^31 - 1 elements");
    return SY_OK;
}

const struct sy_kernel sy_kernels_detect[] = {
    {SY_OP_NON_MAX_SUPPRESSION,
     run_nms,
     {SY_ANY_FLOAT, SY_AS_FIRST, SY_BIT(I64), SY_ANY_FLOAT},
     check_nms,
     scratch_nms},
    {SY_OP_GRID_SAMPLE, run_grid_sample, {SY_ANY_FLOAT, SY_ANY_FLOAT}, check_grid_sample, NULL},
    {0}};
