/* Support vector machines (ai.onnx.ml) as products: kernels of rows and support vectors, sums of them by coefficients. */
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand_learn.h"
#include "runtime/base/status.h"

static const struct sy_attr *floats(const struct sy_expand *e, const char *name)
{
    const struct sy_attr *attr = sy_node_attr(e->node, name);
    return attr && attr->kind == SY_ATTR_FLOATS && attr->n > 0 ? attr : NULL;
}

static int number(struct sy_expand *e, double value)
{
    return sy_expand_number(e, SY_DTYPE_F32, value);
}

static int as_float(struct sy_expand *e)
{
    int x = sy_expand_input(e, 0);
    return sy_expand_dtype(e, 0) == SY_DTYPE_F32 ? x : sy_expand_cast(e, x, SY_DTYPE_F32);
}

/* exp(-gamma |x - s|^2), the distance by its parts: |x|^2 - 2 x s + |s|^2. */
static int radial(struct sy_expand *e, int x, int dots, const float *vectors, int n, int64_t width,
                  double gamma)
{
    const int64_t last = -1;
    float *squares = calloc((size_t)n, sizeof *squares);
    if (!squares)
        return sy_expand_fail(e, SY_ENOMEM_HOST, "no memory for %d vectors", n), -1;
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t k = 0; k < width; k++)
            sum += (double)vectors[i * width + k] * (double)vectors[i * width + k];
        squares[i] = (float)sum;
    }
    int own = SY_EXPAND(e, REDUCE_SUM_SQUARE, x, sy_expand_ints(e, &last, 1));
    int all = SY_EXPAND(e, ADD, own, sy_expand_floats(e, squares, n));
    free(squares);
    int far = SY_EXPAND(e, SUB, all, SY_EXPAND(e, MUL, dots, number(e, 2)));
    far = SY_EXPAND(e, MAX, far, number(e, 0));
    return SY_EXPAND(e, EXP, SY_EXPAND(e, MUL, far, number(e, -gamma)));
}

/* The kernel of each row and each of n vectors: [rows, n]. */
static int kernel(struct sy_expand *e, const struct sy_attr *vectors, int n)
{
    const char *type = sy_infer_text(e->node, "kernel_type", "LINEAR");
    const struct sy_attr *params = floats(e, "kernel_params");
    double gamma = params && params->n > 0 ? (double)params->floats[0] : 0,
           coef0 = params && params->n > 1 ? (double)params->floats[1] : 0,
           degree = params && params->n > 2 ? (double)params->floats[2] : 0;
    int64_t width = vectors->n / n;
    const int64_t dims[] = {n, width}, perm[] = {1, 0};
    int x = as_float(e);
    int matrix = sy_expand_reshape(e, sy_expand_floats(e, vectors->floats, vectors->n), dims, 2);
    int dots = SY_EXPAND(e, MATMUL, x, sy_expand_transpose(e, matrix, perm, 2));
    if (strcmp(type, "LINEAR") == 0)
        return dots;
    if (strcmp(type, "RBF") == 0)
        return radial(e, x, dots, vectors->floats, n, width, gamma);
    int bent = SY_EXPAND(e, ADD, SY_EXPAND(e, MUL, dots, number(e, gamma)), number(e, coef0));
    if (strcmp(type, "POLY") == 0)
        return SY_EXPAND(e, POW, bent, number(e, degree));
    if (strcmp(type, "SIGMOID") == 0)
        return SY_EXPAND(e, TANH, bent);
    return sy_expand_fail(e, SY_EUNSUPPORTED, "kernel_type '%.40s'", type), -1;
}

/* x times a matrix [columns, rows] of floats. */
static int times(struct sy_expand *e, int x, const float *matrix, int64_t rows, int64_t columns)
{
    const int64_t dims[] = {columns, rows}, perm[] = {1, 0};
    int m = sy_expand_reshape(e, sy_expand_floats(e, matrix, (int)(rows * columns)), dims, 2);
    return SY_EXPAND(e, MATMUL, x, sy_expand_transpose(e, m, perm, 2));
}

/* As if all coefficients were of features where there are no support vectors. */
static int expand_svm_regressor(struct sy_expand *e)
{
    const struct sy_attr *weights = floats(e, "coefficients"), *rho = floats(e, "rho"),
                         *vectors = floats(e, "support_vectors");
    int64_t n = sy_node_int(e->node, "n_supports", 0);
    if (!weights || !rho || (n > 0 && (!vectors || weights->n != n || vectors->n % n != 0)))
        return sy_expand_fail(e, SY_ECORRUPT, "vectors or coefficients that do not fit");
    int k = n > 0 ? kernel(e, vectors, (int)n) : as_float(e);
    int y = SY_EXPAND(e, ADD, times(e, k, weights->floats, weights->n, 1),
                      number(e, (double)rho->floats[0]));
    if (sy_node_int(e->node, "one_class", 0) != 0) {
        int inside = sy_expand_cast(e, SY_EXPAND(e, GREATER, y, number(e, 0)), SY_DTYPE_F32);
        y = SY_EXPAND(e, SUB, SY_EXPAND(e, MUL, inside, number(e, 2)), number(e, 1));
    }
    sy_expand_result(e, 0, sy_learn_transform(e, y));
    return e->status;
}

/* ---- classifiers: one against one ------------------------------------------------------------------------- */

struct classes {
    int n, n_pairs, n_vectors;
    const int64_t *sizes; /* vectors of each class */
};

static int64_t first_of(const struct classes *c, int class_)
{
    int64_t first = 0;
    for (int i = 0; i < class_; i++)
        first += c->sizes[i];
    return first;
}

/* Coefficients of a pair (i, j): vectors of i have those of row j - 1, vectors of j those of row i. As a matrix [pairs, vectors]. */
static int pair_scores(struct sy_expand *e, const struct classes *c, int k, const float *weights,
                       const struct sy_attr *rho)
{
    float *matrix = calloc((size_t)c->n_pairs * (size_t)c->n_vectors + 1, sizeof *matrix);
    if (!matrix)
        return sy_expand_fail(e, SY_ENOMEM_HOST, "no memory for %d classes", c->n), -1;
    int64_t n = c->n_vectors, pair = 0;
    for (int i = 0; i < c->n; i++)
        for (int j = i + 1; j < c->n; j++, pair++) {
            for (int64_t v = first_of(c, i), end = v + c->sizes[i]; v < end; v++)
                matrix[pair * n + v] = weights[(j - 1) * n + v];
            for (int64_t v = first_of(c, j), end = v + c->sizes[j]; v < end; v++)
                matrix[pair * n + v] = weights[i * n + v];
        }
    int sums = times(e, k, matrix, n, c->n_pairs);
    free(matrix);
    return SY_EXPAND(e, ADD, sums, sy_expand_floats(e, rho->floats, c->n_pairs));
}

/* Votes: a pair's class is i where its score is above 0, else j. */
static int votes(struct sy_expand *e, const struct classes *c, int scores)
{
    float *matrix = calloc((size_t)c->n * (size_t)c->n_pairs + 1, sizeof *matrix),
          *base = calloc((size_t)c->n + 1, sizeof *base);
    int out = -1, pair = 0;
    for (int i = 0; matrix && base && i < c->n; i++)
        for (int j = i + 1; j < c->n; j++, pair++) {
            matrix[i * c->n_pairs + pair] = 1;
            matrix[j * c->n_pairs + pair] = -1;
            base[j] += 1;
        }
    if (matrix && base) {
        int won = sy_expand_cast(e, SY_EXPAND(e, GREATER, scores, number(e, 0)), SY_DTYPE_F32);
        out = SY_EXPAND(e, ADD, times(e, won, matrix, c->n_pairs, c->n),
                        sy_expand_floats(e, base, c->n));
    } else
        sy_expand_fail(e, SY_ENOMEM_HOST, "no memory for %d classes", c->n);
    free(matrix);
    free(base);
    return out;
}

static bool read_classes(const struct sy_expand *e, struct classes *c, int64_t n_labels)
{
    const struct sy_attr *sizes = sy_node_attr(e->node, "vectors_per_class");
    int64_t all = 0;
    if (!sizes || sizes->kind != SY_ATTR_INTS || sizes->n != n_labels || sizes->n < 2 ||
        sizes->n > 1000)
        return false;
    for (int i = 0; i < sizes->n; i++) {
        if (sizes->ints[i] < 0 || sizes->ints[i] > INT32_MAX / 2)
            return false;
        all += sizes->ints[i];
    }
    *c = (struct classes){sizes->n, sizes->n * (sizes->n - 1) / 2, (int)all, sizes->ints};
    return all > 0 && all < INT32_MAX;
}

/* The label is the one with most votes, also where there are probabilities (prob_a): those libsvm couples from the pairs' by an iteration, which is
 * the kernel's. */
static int expand_svm_classifier(struct sy_expand *e)
{
    const struct sy_attr *weights = floats(e, "coefficients"), *rho = floats(e, "rho"),
                         *vectors = floats(e, "support_vectors"), *a = floats(e, "prob_a"),
                         *b = floats(e, "prob_b");
    struct classes c;
    int64_t n_labels = sy_learn_labels(e);
    if (!vectors)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "no support vectors");
    if (!read_classes(e, &c, n_labels) || !weights || !rho || vectors->n % c.n_vectors != 0 ||
        weights->n != (c.n - 1) * c.n_vectors || rho->n != c.n_pairs ||
        (a && (!b || a->n != c.n_pairs || b->n != c.n_pairs)))
        return sy_expand_fail(e, SY_ECORRUPT, "vectors or coefficients that do not fit");
    int scores = pair_scores(e, &c, kernel(e, vectors, c.n_vectors), weights->floats, rho);
    int shown = scores;
    if (a) {
        int by_a = SY_EXPAND(e, MUL, scores, sy_expand_floats(e, a->floats, c.n_pairs));
        int pairs = SY_EXPAND(e, ADD, by_a, sy_expand_floats(e, b->floats, c.n_pairs));
        shown = SY_EXPAND(e, COUPLE, pairs);
        sy_expand_set_int(e, "classes", c.n);
    }
    if (sy_expand_wanted(e, 0)) {
        int best = SY_EXPAND(e, ARG_MAX, votes(e, &c, scores));
        sy_expand_set_int(e, "axis", 1);
        sy_expand_set_int(e, "keepdims", 0);
        sy_expand_result(e, 0, sy_learn_label(e, best));
    }
    if (!sy_expand_wanted(e, 1))
        return e->status;
    if (!a && c.n == 2) /* both signs */
        shown = sy_expand_join(e, SY_EXPAND(e, NEG, scores), scores, 1);
    sy_expand_result(e, 1, sy_learn_transform(e, shown));
    return e->status;
}

const struct sy_expander_line sy_expanders_svm[] = {
    {SY_OP_ML_SVM_REGRESSOR, expand_svm_regressor},
    {SY_OP_ML_SVM_CLASSIFIER, expand_svm_classifier},
    {0}};
