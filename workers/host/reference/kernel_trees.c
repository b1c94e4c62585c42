/* Ensembles of trees (loader/expand/expand_trees.c): 8 walks beside each other, so that each waits for its node's cache line while the others go on. */
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/host/reference/kernel.h"

enum { LANES = 8, LEAST_ROWS = 64, MOST_ROWS = 512, PIECES = 8 };
enum { X, NODES, TREES, LEAVES, THRESHOLDS }; /* inputs */

struct node {
    float threshold;
    int32_t feature; /* times 2, and whether NaN goes to `yes` */
    int32_t side[2]; /* yes, no */
};

/* From each lane's node to its leaf; a leaf leads to itself. Inlined where `lanes` and `has_nan` are constants: without NaN a step is a load of the value, a
 * comparison and a load of the side. */
#define WALK(name, type, threshold)                                                           \
    static inline __attribute__((always_inline)) void name##_lanes(                           \
        const struct node *nodes, const double *wide, int32_t depth, int lanes, bool has_nan, \
        const type *const *x, int32_t *at)                                                    \
    {                                                                                         \
        (void)wide;                                                                           \
        for (int32_t step = 0; step < depth; step++) {                                        \
            int32_t moved = 0;                                                                \
            for (int l = 0; l < lanes; l++) {                                                 \
                const struct node *n = &nodes[at[l]];                                         \
                type v = x[l][n->feature >> 1];                                               \
                bool yes = v <= (threshold);                                                  \
                if (has_nan)                                                                  \
                    yes |= (n->feature & 1) & (v != v);                                       \
                int32_t next = n->side[!yes];                                                 \
                moved |= next ^ at[l];                                                        \
                at[l] = next;                                                                 \
            }                                                                                 \
            if (moved == 0)                                                                   \
                break;                                                                        \
        }                                                                                     \
    }                                                                                         \
    static void name(const struct node *nodes, const double *wide, int32_t depth, int lanes,  \
                     bool has_nan, const type *const *x, int32_t *at)                         \
    {                                                                                         \
        if (lanes == LANES && !has_nan)                                                       \
            name##_lanes(nodes, wide, depth, LANES, false, x, at);                            \
        else                                                                                  \
            name##_lanes(nodes, wide, depth, lanes, true, x, at);                             \
    }
WALK(walk_floats, float, n->threshold)
WALK(walk_doubles, double, (double)n->threshold)
WALK(walk_wide, double, wide[at[l]])

enum aggregate { SUM, AVERAGE, MIN, MAX };

static enum aggregate aggregate_of(const struct sy_node *node)
{
    static const char *const names[] = {"SUM", "AVERAGE", "MIN", "MAX"};
    const struct sy_attr *attr = sy_node_attr(node, "aggregate");
    for (int i = 0; attr && attr->s && i < 4; i++)
        if (strcmp(attr->s, names[i]) == 0)
            return (enum aggregate)i;
    return SUM;
}

struct ensemble {
    const struct sy_call *call;
    const struct node *nodes;
    const int32_t *trees, *leaves;
    const double *wide;
    int64_t n_trees, n_leaves, targets, features;
    bool is_single, is_wide, has_nan; /* has_nan: some value of the input is none */
    enum aggregate how;
};

/* With MIN and MAX a score without a contribution yet is NaN. */
static void collect(enum aggregate how, float value, float *sum)
{
    if (how == MIN)
        *sum = *sum < value ? *sum : value;
    else if (how == MAX)
        *sum = *sum > value ? *sum : value;
    else
        *sum += value;
}

/* A leaf's weights into a row of scores. Inlined where `how` is a constant. */
static inline __attribute__((always_inline)) void add_leaf(const struct ensemble *e,
                                                           enum aggregate how, int32_t leaf,
                                                           float *scores)
{
    const struct node *n = &e->nodes[leaf];
    int32_t at;
    if (e->is_single) {
        collect(how, n->threshold, scores);
        return;
    }
    memcpy(&at, &n->threshold, sizeof at);
    const int32_t *weight = &e->leaves[at + 1], *end = weight + 2 * (int64_t)e->leaves[at];
    for (; weight < end; weight += 2) {
        float value;
        memcpy(&value, &weight[1], sizeof value);
        collect(how, value, &scores[weight[0]]);
    }
}

/* The leaves of some trees for one row (step 0), or of one tree for some rows. */
static void add_leaves(const struct ensemble *e, int lanes, const int32_t *at, float *scores,
                       int64_t step)
{
    if (e->how == SUM || e->how == AVERAGE)
        for (int l = 0; l < lanes; l++)
            add_leaf(e, SUM, at[l], scores + l * step);
    else
        for (int l = 0; l < lanes; l++)
            add_leaf(e, e->how, at[l], scores + l * step);
}

static void walk(const struct ensemble *e, int32_t depth, int lanes, const int64_t *rows,
                 int32_t *at)
{
    const struct sy_array *x = &e->call->in[X];
    const float *narrow[LANES];
    const double *wide[LANES];
    for (int l = 0; l < lanes; l++) {
        narrow[l] = (const float *)x->data + rows[l] * e->features;
        wide[l] = (const double *)x->data + rows[l] * e->features;
    }
    if (x->dtype == SY_DTYPE_F32)
        walk_floats(e->nodes, NULL, depth, lanes, e->has_nan, narrow, at);
    else if (e->is_wide)
        walk_wide(e->nodes, e->wide, depth, lanes, e->has_nan, wide, at);
    else
        walk_doubles(e->nodes, NULL, depth, lanes, e->has_nan, wide, at);
}

/* Scores of one row, 8 trees at a time, summed in the order of the trees. */
static void run_row(const struct ensemble *e, int64_t row, float *scores)
{
    for (int64_t t = 0; t < e->n_trees; t += LANES) {
        int lanes = (int)SY_MIN(LANES, e->n_trees - t);
        int32_t at[LANES], depth = 0;
        int64_t rows[LANES];
        for (int l = 0; l < lanes; l++) {
            at[l] = e->trees[2 * (t + l)];
            depth = SY_MAX(depth, e->trees[2 * (t + l) + 1]);
            rows[l] = row;
        }
        walk(e, depth, lanes, rows, at);
        add_leaves(e, lanes, at, scores, 0);
    }
}

/* Tree after tree for a block of rows: a tree's nodes stay in the cache for all of them. */
static void run_rows(const struct ensemble *e, int64_t first, int64_t n, float *scores)
{
    for (int64_t t = 0; t < e->n_trees; t++)
        for (int64_t i = 0; i < n; i += LANES) {
            int lanes = (int)SY_MIN(LANES, n - i);
            int32_t at[LANES];
            int64_t rows[LANES];
            for (int l = 0; l < lanes; l++) {
                at[l] = e->trees[2 * t];
                rows[l] = first + i + l;
            }
            walk(e, e->trees[2 * t + 1], lanes, rows, at);
            add_leaves(e, lanes, at, scores + i * e->targets, e->targets);
        }
}

static bool has_nan(const struct sy_array *x)
{
    bool found = false;
    if (x->dtype == SY_DTYPE_F32)
        for (int64_t i = 0; i < x->n; i++)
            found |= isnan(((const float *)x->data)[i]) != 0;
    else
        for (int64_t i = 0; i < x->n; i++)
            found |= isnan(((const double *)x->data)[i]) != 0;
    return found;
}

static struct ensemble read_ensemble(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[X];
    return (struct ensemble){.call = call,
                             .nodes = call->in[NODES].data,
                             .trees = call->in[TREES].data,
                             .leaves = call->in[LEAVES].data,
                             .wide = call->in[THRESHOLDS].data,
                             .n_trees = call->in[TREES].n / 2,
                             .n_leaves = call->in[LEAVES].n,
                             .targets = sy_node_int(call->node, "targets", 1),
                             .features = x->dims[x->rank - 1],
                             .is_single = sy_node_int(call->node, "single", 0) != 0,
                             .is_wide = call->in[THRESHOLDS].n * 4 == call->in[NODES].n,
                             .has_nan = has_nan(x),
                             .how = aggregate_of(call->node)};
}

static int run_trees(const struct sy_call *call)
{
    const struct ensemble e = read_ensemble(call);
    float *scores = call->out[0].data;
    int64_t rows = e.targets ? call->out[0].n / e.targets : 0;
    for (int64_t i = 0; i < call->out[0].n; i++)
        scores[i] = e.how == MIN || e.how == MAX ? NAN : 0;
    /* A tree serves a whole block while it is in the cache; threads share the blocks. */
    int64_t block = SY_ALIGN_UP(SY_MIN(SY_MAX(rows / PIECES, LEAST_ROWS), MOST_ROWS), LANES);
#pragma omp parallel for schedule(static) if (rows > block && rows * e.n_trees > 2048)
    for (int64_t first = 0; first < rows; first += block) {
        int64_t n = SY_MIN(block, rows - first);
        if (n < LANES)
            for (int64_t i = 0; i < n; i++)
                run_row(&e, first + i, scores + (first + i) * e.targets);
        else
            run_rows(&e, first, n, scores + first * e.targets);
    }
    for (int64_t i = 0; i < call->out[0].n; i++)
        scores[i] = e.how == AVERAGE   ? scores[i] / (float)SY_MAX(e.n_trees, 1)
                    : isnan(scores[i]) ? 0
                                       : scores[i];
    return SY_OK;
}

/* Checks shapes alone: import wrote the nodes, and the package's hash covers them. */
static int check_trees(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[X], *y = &call->out[0];
    int64_t targets = sy_node_int(call->node, "targets", 0),
            features = sy_node_int(call->node, "features", 0);
    if (call->n_in != 5 || targets < 1 || y->dtype != SY_DTYPE_F32 || x->rank < 1 ||
        call->in[NODES].dtype != SY_DTYPE_I32 || call->in[NODES].n % 4 != 0 ||
        call->in[TREES].dtype != SY_DTYPE_I32 || call->in[LEAVES].dtype != SY_DTYPE_I32 ||
        call->in[THRESHOLDS].dtype != SY_DTYPE_F64 || x->dims[x->rank - 1] < features ||
        x->dims[x->rank - 1] < 1 || y->n != x->n / x->dims[x->rank - 1] * targets)
        return sy_kernel_refuse(call, "trees, features or a result that do not fit");
    return SY_OK;
}

/* ---- pairs of classes ------------------------------------------------------------------------------------------ */

enum { MOST_CLASSES = 64, MOST_ROUNDS = 100 };

/* Probabilities p of n classes that fit those of their pairs best (Wu, Lin and Weng, 2004, the second method): p'Qp is least. */
static void couple(int n, double r[MOST_CLASSES][MOST_CLASSES], double *p)
{
    double q[MOST_CLASSES][MOST_CLASSES] = {{0}}, qp[MOST_CLASSES];
    for (int i = 0; i < n; i++) {
        p[i] = 1.0 / n;
        for (int j = 0; j < n; j++) {
            q[i][i] += j == i ? 0 : r[j][i] * r[j][i];
            q[i][j] = j == i ? q[i][i] : -r[j][i] * r[i][j];
        }
        for (int j = 0; j < i; j++)
            q[i][j] = q[j][i];
    }
    for (int round = 0; round < SY_MAX(MOST_ROUNDS, n); round++) {
        double all = 0, worst = 0;
        for (int i = 0; i < n; i++) {
            qp[i] = 0;
            for (int j = 0; j < n; j++)
                qp[i] += q[i][j] * p[j];
            all += p[i] * qp[i];
        }
        for (int i = 0; i < n; i++)
            worst = fmax(worst, fabs(qp[i] - all));
        if (worst < 0.005 / n)
            break;
        for (int i = 0; i < n; i++) {
            double more = (all - qp[i]) / q[i][i];
            p[i] += more;
            all = (all + more * (more * q[i][i] + 2 * qp[i])) / (1 + more) / (1 + more);
            for (int j = 0; j < n; j++) {
                qp[j] = (qp[j] + more * q[i][j]) / (1 + more);
                p[j] /= 1 + more;
            }
        }
    }
}

static int run_couple(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    int n = (int)y->dims[1];
    for (int64_t row = 0; row < y->dims[0]; row++) {
        double r[MOST_CLASSES][MOST_CLASSES] = {{0}}, p[MOST_CLASSES];
        const float *scores = (const float *)x->data + row * x->dims[1];
        int pair = 0;
        for (int i = 0; i < n; i++)
            for (int j = i + 1; j < n; j++, pair++) {
                double own = 1 - 1 / (1 + exp(-(double)scores[pair]));
                r[i][j] = fmin(fmax(own, 1e-7), 1 - 1e-7);
                r[j][i] = 1 - r[i][j];
            }
        p[0] = r[0][1];
        p[1] = r[1][0];
        if (n > 2)
            couple(n, r, p);
        for (int i = 0; i < n; i++)
            ((float *)y->data)[row * n + i] = (float)p[i];
    }
    return SY_OK;
}

static int check_couple(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0], *y = &call->out[0];
    if (x->rank != 2 || y->rank != 2 || y->dims[1] < 2 || y->dims[1] > MOST_CLASSES ||
        x->dims[0] != y->dims[0] || x->dims[1] != y->dims[1] * (y->dims[1] - 1) / 2)
        return sy_kernel_refuse(call, "so many classes");
    return SY_OK;
}

const struct sy_kernel sy_kernels_trees[] = {
    {SY_OP_COUPLE, run_couple, {SY_BIT(F32)}, check_couple, NULL},
    {SY_OP_TREES,
     run_trees,
     {SY_BIT(F32) | SY_BIT(F64), SY_BIT(I32) | SY_BIT(F64)},
     check_trees,
     NULL},
    {0}};
