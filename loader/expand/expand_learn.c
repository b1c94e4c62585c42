/* Pre- and post-processing operators of scikit-learn's domain (ai.onnx.ml): scaling, picking columns and labels, linear models. */
#include <stdlib.h>
#include <string.h>

#include "loader/expand/expand_learn.h"
#include "loader/graph/string_tensor.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
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

/* As ONNX Runtime: zeros stay 0. */
static int softmax_zero(struct sy_expand *e, int x)
{
    const int64_t last = -1;
    int axes = sy_expand_ints(e, &last, 1);
    int top = SY_EXPAND(e, REDUCE_MAX, x, axes);
    int parts = SY_EXPAND(e, EXP, SY_EXPAND(e, SUB, x, top));
    int is_there =
        SY_EXPAND(e, GREATER, SY_EXPAND(e, ABS, x), sy_expand_number(e, SY_DTYPE_F32, 1e-7));
    parts = SY_EXPAND(e, MUL, parts, sy_expand_cast(e, is_there, SY_DTYPE_F32));
    return SY_EXPAND(e, DIV, parts, SY_EXPAND(e, REDUCE_SUM, parts, axes));
}

static int transform(struct sy_expand *e, int x, const char *how)
{
    int y = x;
    if (strcmp(how, "SOFTMAX") == 0) {
        y = SY_EXPAND(e, SOFTMAX, x);
        sy_expand_set_int(e, "axis", -1);
    } else if (strcmp(how, "LOGISTIC") == 0)
        y = SY_EXPAND(e, SIGMOID, x);
    else if (strcmp(how, "SOFTMAX_ZERO") == 0)
        y = softmax_zero(e, x);
    else if (strcmp(how, "NONE") != 0)
        sy_expand_fail(e, SY_EUNSUPPORTED, "post_transform '%.40s'", how);
    return y;
}

int sy_learn_transform(struct sy_expand *e, int scores)
{
    return transform(e, scores, sy_infer_text(e->node, "post_transform", "NONE"));
}

int sy_learn_transform_numbered(struct sy_expand *e, int scores)
{
    static const char *const names[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
    int64_t i = sy_node_int(e->node, "post_transform", 0);
    return transform(e, scores, i >= 0 && i < 5 ? names[i] : "of another number");
}

/* ---- labels -------------------------------------------------------------------------------------- */

static const struct sy_attr *labels_of(const struct sy_expand *e)
{
    static const char *const names[] = {"classlabels_int64s", "classlabels_ints",
                                        "classlabels_strings"};
    for (size_t i = 0; i < SY_ARRAY_LEN(names); i++) {
        const struct sy_attr *attr = sy_node_attr(e->node, names[i]);
        if (attr && attr->n > 0 && (attr->kind == SY_ATTR_INTS || attr->kind == SY_ATTR_STRINGS))
            return attr;
    }
    return NULL;
}

int64_t sy_learn_labels(struct sy_expand *e)
{
    const struct sy_attr *labels = labels_of(e);
    if (!labels)
        sy_expand_fail(e, SY_ECORRUPT, "no labels");
    return labels ? labels->n : 0;
}

/* Strings of an attribute as a constant. */
static int string_list(struct sy_expand *e, const struct sy_attr *list)
{
    struct sy_shape shape = {.rank = 1, .dims = {{list->n, 0}}};
    uint64_t bytes = SY_STRING_HEAD, all = 0;
    char *block;
    int out = -1;
    for (int i = 0; i < list->n; i++) {
        size_t n;
        sy_attr_string(list, i, &n);
        bytes += sizeof(uint32_t) + n;
    }
    if (e->status < 0 || (e->status = sy_graph_alloc(bytes, 1, &block)) < 0)
        return -1;
    for (int i = 0; i < list->n; i++) {
        size_t n;
        const char *text = sy_attr_string(list, i, &n);
        uint32_t length = (uint32_t)n;
        memcpy(block + SY_STRING_HEAD + all, &length, sizeof length);
        memcpy(block + SY_STRING_HEAD + all + sizeof length, text, n);
        all += sizeof length + n;
    }
    sy_string_block_end(block + SY_STRING_HEAD, all);
    e->status =
        sy_graph_add_constant(e->graph, "labels", SY_DTYPE_STRING, &shape, block, bytes, &out);
    if (e->status == SY_OK)
        e->status = sy_expand_grow(e->in);
    return out;
}

int sy_learn_label(struct sy_expand *e, int indices)
{
    const struct sy_attr *labels = labels_of(e);
    if (!labels)
        return sy_expand_fail(e, SY_ECORRUPT, "no labels"), -1;
    int list = labels->kind == SY_ATTR_INTS ? sy_expand_ints(e, labels->ints, labels->n)
                                            : string_list(e, labels);
    return SY_EXPAND(e, GATHER, list, indices);
}

void sy_learn_classify(struct sy_expand *e, int scores)
{
    if (sy_expand_wanted(e, 0)) {
        int best = SY_EXPAND(e, ARG_MAX, scores);
        sy_expand_set_int(e, "axis", 1);
        sy_expand_set_int(e, "keepdims", 0);
        sy_expand_result(e, 0, sy_learn_label(e, best));
    }
    if (sy_expand_wanted(e, 1))
        sy_expand_result(e, 1, sy_learn_transform(e, scores));
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
    sy_expand_result(e, 0, sy_learn_transform(e, linear(e, sy_node_int(e->node, "targets", 1))));
    return e->status;
}

/* Two classes may share one row of coefficients: refused, as rules for the sign differ. */
static int expand_classifier(struct sy_expand *e)
{
    const struct sy_attr *shifts = sy_node_attr(e->node, "intercepts");
    int64_t n = sy_learn_labels(e);
    if (n < 2)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "%lld labels", (long long)n);
    if (shifts && shifts->kind == SY_ATTR_FLOATS && shifts->n != n)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "%d rows of coefficients for %lld classes",
                              shifts->n, (long long)n);
    sy_learn_classify(e, linear(e, n));
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
    else if (strcmp(norm, "MAX") == 0)
        size = SY_EXPAND(e, REDUCE_MAX, x, axes);
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

/* Missing values are replaced by the column's value, or by the one value for all columns. */
static int expand_imputer(struct sy_expand *e)
{
    const struct sy_attr *whole = sy_node_attr(e->node, "imputed_value_int64s");
    int n, x = sy_expand_input(e, 0), given = float_list(e, "imputed_value_floats", &n), is_missing;
    enum sy_dtype dtype = sy_expand_dtype(e, 0);
    float missing = sy_node_float(e->node, "replaced_value_float", 0);
    if (given < 0 && whole && whole->kind == SY_ATTR_INTS && whole->n > 0) {
        given = sy_expand_ints(e, whole->ints, whole->n);
        is_missing = SY_EXPAND(e, EQUAL, x,
                               sy_expand_int(e, sy_node_int(e->node, "replaced_value_int64", 0)));
    } else if (given >= 0) {
        given = dtype == SY_DTYPE_F32 ? given : sy_expand_cast(e, given, dtype);
        is_missing = missing != missing
                         ? SY_EXPAND(e, IS_NAN, x)
                         : SY_EXPAND(e, EQUAL, x, sy_expand_number(e, dtype, (double)missing));
    } else
        return sy_expand_fail(e, SY_ECORRUPT, "no values");
    sy_expand_result(e, 0, SY_EXPAND(e, WHERE, is_missing, given, x));
    return e->status;
}

/* A sequence of maps, label to probability: here the probabilities, a column for each label in their order. */
static int expand_zip_map(struct sy_expand *e)
{
    sy_log_info("import",
                "event=zip_map node=\"%s\" why=\"its output is the tensor of probabilities, a "
                "column for each label, not a sequence of maps\"",
                e->node->name);
    sy_expand_result(e, 0, SY_EXPAND(e, IDENTITY, sy_expand_input(e, 0)));
    return e->status;
}

/* ---- maps: a sequence of their keys and their values -------------------------------------------- */

static int keys_and_values(struct sy_expand *e, int *keys, int *values)
{
    int map = sy_expand_input(e, 0);
    const struct sy_sequence *parts = map < 0 ? NULL : e->in->sequences[map];
    if (!parts || parts->n != 2)
        return sy_expand_fail(e, SY_EUNSUPPORTED, "other than a map that is an input of the model");
    *keys = parts->tensors[0];
    *values = parts->tensors[1];
    return SY_OK;
}

/* The value of each key in `wanted`, 0 for those that the map has not: [1, wanted]. */
static int values_of(struct sy_expand *e, int keys, int values, enum sy_dtype dtype, int wanted)
{
    const int64_t row[] = {1, -1};
    int64_t last = -1;
    int is_it = SY_EXPAND(e, EQUAL, sy_expand_unsqueeze(e, wanted, 1), keys);
    int zero = sy_expand_cast(e, sy_expand_number(e, SY_DTYPE_F32, 0), dtype);
    int sums = SY_EXPAND(e, REDUCE_SUM, SY_EXPAND(e, WHERE, is_it, values, zero),
                         sy_expand_ints(e, &last, 1));
    sy_expand_set_int(e, "keepdims", 0);
    return sy_expand_reshape(e, sums, row, 2);
}

static int expand_dict(struct sy_expand *e)
{
    const struct sy_attr *names = sy_node_attr(e->node, "string_vocabulary"),
                         *numbers = sy_node_attr(e->node, "int64_vocabulary");
    int keys, values;
    SY_TRY(keys_and_values(e, &keys, &values));
    enum sy_dtype dtype = e->graph->tensors[values].dtype;
    bool of_names = e->graph->tensors[keys].dtype == SY_DTYPE_STRING;
    const struct sy_attr *words = of_names ? names : numbers;
    if (!words || words->n < 1 || dtype == SY_DTYPE_STRING ||
        words->kind != (of_names ? SY_ATTR_STRINGS : SY_ATTR_INTS))
        return sy_expand_fail(e, SY_EUNSUPPORTED,
                              "no vocabulary of the keys' type, or values that are texts");
    int wanted = of_names ? string_list(e, words) : sy_expand_ints(e, words->ints, words->n);
    sy_expand_result(e, 0, values_of(e, keys, values, dtype, wanted));
    return e->status;
}

/* DENSE: the values in the order of their keys; SPARSE: value k at place k. */
static int expand_cast_map(struct sy_expand *e)
{
    static const struct {
        const char *name;
        enum sy_dtype dtype;
    } types[] = {
        {"TO_FLOAT", SY_DTYPE_F32}, {"TO_INT64", SY_DTYPE_I64}, {"TO_STRING", SY_DTYPE_STRING}};
    const char *to = sy_infer_text(e->node, "cast_to", "TO_FLOAT");
    bool dense = strcmp(sy_infer_text(e->node, "map_form", "DENSE"), "DENSE") == 0;
    int64_t most = sy_node_int(e->node, "max_map", 1);
    int keys, values, sorted[2];
    const int64_t row[] = {1, -1};
    enum sy_dtype dtype = SY_DTYPE_NONE;
    SY_TRY(keys_and_values(e, &keys, &values));
    for (size_t i = 0; i < SY_ARRAY_LEN(types); i++)
        dtype = strcmp(types[i].name, to) == 0 ? types[i].dtype : dtype;
    if (dtype == SY_DTYPE_NONE || e->graph->tensors[keys].dtype != SY_DTYPE_I64 ||
        (!dense && (most < 1 || dtype == SY_DTYPE_STRING)))
        return sy_expand_fail(e, SY_EUNSUPPORTED, "'%.40s' of keys that are texts, or with gaps",
                              to);
    if (e->graph->tensors[values].dtype != dtype)
        values = sy_expand_cast(e, values, dtype);
    if (!dense) {
        int wanted = sy_expand_count(e, sy_expand_int(e, most));
        sy_expand_result(e, 0, values_of(e, keys, values, dtype, wanted));
        return e->status;
    }
    const int operands[] = {keys, SY_EXPAND(e, SHAPE, keys)};
    sy_expand_op_many(e, SY_OP_TOP_K, operands, 2, sorted, 2);
    sy_expand_set_int(e, "largest", 0);
    sy_expand_result(e, 0, sy_expand_reshape(e, SY_EXPAND(e, GATHER, values, sorted[1]), row, 2));
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
    {SY_OP_ML_IMPUTER, expand_imputer},
    {SY_OP_ML_ZIP_MAP, expand_zip_map},
    {SY_OP_ML_DICT_VECTORIZER, expand_dict},
    {SY_OP_ML_CAST_MAP, expand_cast_map},
    {0}};
