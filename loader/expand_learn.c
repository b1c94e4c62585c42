/* Operators of scikit-learn's domain (ai.onnx.ml) that stand around networks: scaling, picking columns and labels, linear models. */
#include <stdlib.h>
#include <string.h>

#include "loader/expand.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* A list of floats of the node as a constant; -1 if there is none. */
static int float_list(struct sy_expand *e, const char *name, int *n)
{
    const struct sy_attr *attr = sy_node_attr(e->node, name);
    *n = attr && attr->kind == SY_ATTR_FLOATS ? attr->n : 0;
    return *n > 0 ? sy_expand_floats(e, attr->floats, *n) : -1;
}

static int as_float(struct sy_expand *e, int i)
{
    int x = sy_expand_input(e, i);
    return sy_expand_dtype(e, i) == SY_DTYPE_F32 ? x : sy_expand_cast(e, x, SY_DTYPE_F32);
}

/* (x - offset) * scale */
static int expand_scaler(struct sy_expand *e)
{
    int n, x = as_float(e, 0), offset = float_list(e, "offset", &n);
    if (offset >= 0)
        x = SY_EXPAND(e, SUB, x, offset);
    int scale = float_list(e, "scale", &n);
    sy_expand_result(e, 0, scale < 0 ? x : SY_EXPAND(e, MUL, x, scale));
    return e->status;
}

/* Columns of the last dimension; what has one dimension is one row. */
static int expand_extract(struct sy_expand *e)
{
    static const int64_t flat[] = {-1}, row[] = {1, -1};
    const struct sy_tensor *x = sy_expand_tensor(e, 0);
    int from = sy_expand_input(e, 0);
    if (!x)
        return sy_expand_fail(e, SY_ECORRUPT, "input 0 is missing");
    if (x->shape.rank == 1)
        from = sy_expand_reshape(e, from, row, 2);
    int y = SY_EXPAND(e, GATHER, from, sy_expand_reshape(e, sy_expand_input(e, 1), flat, 1));
    sy_expand_set_int(e, "axis", -1);
    sy_expand_result(e, 0, y);
    return e->status;
}

static int expand_binarizer(struct sy_expand *e)
{
    double threshold = (double)sy_node_float(e->node, "threshold", 0);
    int above = SY_EXPAND(e, GREATER, sy_expand_input(e, 0),
                          sy_expand_number(e, sy_expand_dtype(e, 0), threshold));
    sy_expand_result(e, 0, sy_expand_cast(e, above, sy_expand_dtype(e, 0)));
    return e->status;
}

static int after_transform(struct sy_expand *e, int x)
{
    const char *how = sy_infer_text(e->node, "post_transform", "NONE");
    int y = x;
    if (strcmp(how, "SOFTMAX") == 0) {
        y = SY_EXPAND(e, SOFTMAX, x);
        sy_expand_set_int(e, "axis", -1);
    } else if (strcmp(how, "LOGISTIC") == 0)
        y = SY_EXPAND(e, SIGMOID, x);
    else if (strcmp(how, "NONE") != 0)
        sy_expand_fail(e, SY_EUNSUPPORTED, "post_transform '%.40s'", how);
    return y;
}

/* x coefficients' + intercepts; coefficients lie as [targets, features]. */
static int linear(struct sy_expand *e, int64_t targets)
{
    int n, shift, x = as_float(e, 0), w = float_list(e, "coefficients", &n);
    const int64_t dims[] = {targets, -1}, perm[] = {1, 0};
    if (w < 0 || targets < 1 || n % targets != 0) {
        sy_expand_fail(e, SY_ECORRUPT, "%d coefficients for %lld results", n, (long long)targets);
        return -1;
    }
    int y =
        SY_EXPAND(e, MATMUL, x, sy_expand_transpose(e, sy_expand_reshape(e, w, dims, 2), perm, 2));
    shift = float_list(e, "intercepts", &n);
    return shift < 0 ? y : SY_EXPAND(e, ADD, y, shift);
}

static int expand_regressor(struct sy_expand *e)
{
    sy_expand_result(e, 0, after_transform(e, linear(e, sy_node_int(e->node, "targets", 1))));
    return e->status;
}

/* Labels are whole numbers. Two classes may share one row of coefficients: refused, as rules for the sign differ. */
static int expand_classifier(struct sy_expand *e)
{
    const struct sy_attr *labels = sy_node_attr(e->node, "classlabels_ints");
    const struct sy_attr *shifts = sy_node_attr(e->node, "intercepts");
    int64_t one = 1;
    if (!labels || labels->kind != SY_ATTR_INTS || labels->n < 2)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "labels that are not integers");
    if (shifts && shifts->kind == SY_ATTR_FLOATS && shifts->n != labels->n)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "%d rows of coefficients for %d classes",
                              shifts->n, labels->n);
    int scores = linear(e, labels->n);
    if (sy_expand_wanted(e, 0)) {
        int best = SY_EXPAND(e, ARG_MAX, scores);
        sy_expand_set_int(e, "axis", one);
        sy_expand_set_int(e, "keepdims", 0);
        sy_expand_result(e, 0,
                         SY_EXPAND(e, GATHER, sy_expand_ints(e, labels->ints, labels->n), best));
    }
    if (sy_expand_wanted(e, 1))
        sy_expand_result(e, 1, after_transform(e, scores));
    return e->status;
}

/* Rows divided by their norm; rows of zeros stay. */
static int expand_normalizer(struct sy_expand *e)
{
    const char *norm = sy_infer_text(e->node, "norm", "MAX");
    int64_t last = -1;
    int x = as_float(e, 0), axes = sy_expand_ints(e, &last, 1), size;
    if (strcmp(norm, "L2") == 0)
        size = SY_EXPAND(e, REDUCE_L2, x, axes);
    else if (strcmp(norm, "L1") == 0)
        size = SY_EXPAND(e, REDUCE_L1, x, axes);
    else
        return sy_expand_fail(e, SY_EUNSUPPORTED, "norm '%.20s'", norm);
    int zero = sy_expand_number(e, SY_DTYPE_F32, 0), one = sy_expand_number(e, SY_DTYPE_F32, 1);
    size = SY_EXPAND(e, WHERE, SY_EXPAND(e, EQUAL, size, zero), one, size);
    sy_expand_result(e, 0, SY_EXPAND(e, DIV, x, size));
    return e->status;
}

static int expand_feature_vectors(struct sy_expand *e)
{
    enum { MAX_PARTS = 64 };
    int parts[MAX_PARTS], n = e->node->n_inputs;
    if (n < 1 || n > MAX_PARTS)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "%d inputs", n);
    for (int i = 0; i < n; i++)
        parts[i] = as_float(e, i);
    int y = sy_expand_op(e, SY_OP_CONCAT, parts, n);
    sy_expand_set_int(e, "axis", 1);
    sy_expand_result(e, 0, y);
    return e->status;
}

/* Numbers to numbers, by a list; what is not in it becomes the default. */
static int expand_labels(struct sy_expand *e)
{
    enum { MAX_LABELS = 256 };
    const struct sy_attr *keys = sy_node_attr(e->node, "keys_int64s"),
                         *values = sy_node_attr(e->node, "values_int64s");
    if (!keys || !values || keys->kind != SY_ATTR_INTS || values->kind != SY_ATTR_INTS ||
        keys->n != values->n || keys->n > MAX_LABELS)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "other than up to %d integers to integers",
                              MAX_LABELS);
    int x = sy_expand_input(e, 0), y = sy_expand_int(e, sy_node_int(e->node, "default_int64", -1));
    for (int i = 0; i < keys->n; i++)
        y = SY_EXPAND(e, WHERE, SY_EXPAND(e, EQUAL, x, sy_expand_int(e, keys->ints[i])),
                      sy_expand_int(e, values->ints[i]), y);
    sy_expand_result(e, 0, y);
    return e->status;
}

const struct sy_expander_line sy_expanders_learn[] = {
    {SY_OP_ML_SCALER, expand_scaler},
    {SY_OP_ML_EXTRACT, expand_extract},
    {SY_OP_ML_BINARIZER, expand_binarizer},
    {SY_OP_ML_LINEAR_REGRESSOR, expand_regressor},
    {SY_OP_ML_LINEAR_CLASSIFIER, expand_classifier},
    {SY_OP_ML_NORMALIZER, expand_normalizer},
    {SY_OP_ML_FEATURE_VECTORIZER, expand_feature_vectors},
    {SY_OP_ML_LABEL_ENCODER, expand_labels},
    {0}};
