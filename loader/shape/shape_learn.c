/* Shape rules: operators on strings and labels, trees. */
#include <stdio.h>
#include <string.h>

#include "loader/graph/string_tensor.h"
#include "loader/shape/graph_infer.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

static int need_strings(const struct sy_infer *in, const struct sy_node *node, int i,
                        const struct sy_tensor **out)
{
    SY_TRY(sy_infer_need(in, node, i, out));
    return (*out)->dtype == SY_DTYPE_STRING
               ? SY_OK
               : sy_infer_fail(node, SY_ECORRUPT, "input %d is %s, not strings", i,
                               sy_dtype_wire_name((*out)->dtype));
}

/* Stop words are left out: how many, only the run knows. */
int sy_rule_string_normalizer(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_attr *words = sy_node_attr(node, "stopwords");
    const struct sy_tensor *x;
    SY_TRY(need_strings(in, node, 0, &x));
    if (words && words->n > 0) {
        if (x->shape.rank > 2 || x->shape.rank < 1 ||
            (x->shape.rank == 2 && !sy_dim_is(x->shape.dims[0], 1)))
            return sy_infer_fail(node, SY_ECORRUPT,
                                 "stop words of other than [C] or [1, C] strings");
        if (!in->is_bound)
            return sy_infer_defer(in, node, "the number of words that are no stop words");
    }
    return sy_infer_same(in, node);
}

int sy_rule_string_concat(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(need_strings(in, node, 0, &x));
    SY_TRY(need_strings(in, node, 1, &x));
    return sy_rule_broadcast(in, node);
}

/* StringSplit, Tokenizer: one dimension more, the most parts that a string has. */
int sy_rule_string_parts(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(need_strings(in, node, 0, &x));
    if (x->shape.rank >= SY_MAX_RANK)
        return sy_infer_fail(node, SY_EUNSUPPORTED, "%d dimensions", x->shape.rank);
    return sy_infer_defer(in, node, "the number of parts of a string");
}

int sy_rule_regex(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(need_strings(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    sy_infer_set(in, node, 0, SY_DTYPE_BOOL, &shape);
    return SY_OK;
}

/* MurmurHash3: a number of 32 bits for each element. */
int sy_rule_hash(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    bool positive = sy_node_int(node, "positive", 1) != 0;
    sy_infer_set(in, node, 0, positive ? SY_DTYPE_U32 : SY_DTYPE_I32, &shape);
    return SY_OK;
}

/* ---- labels ----------------------------------------------------------------------------------------- */

static void drop_attr(struct sy_node *node, const char *name)
{
    for (int i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, name) == 0) {
            sy_attr_finish(&node->attrs[i]);
            memmove(&node->attrs[i], &node->attrs[i + 1],
                    (size_t)(--node->n_attrs - i) * sizeof *node->attrs);
            return;
        }
}

/* A tensor's elements as a list: strings, integers, doubles by their bits. */
static int list_of(const struct sy_node *node, const struct sy_tensor *t, struct sy_attr *attr)
{
    struct sy_text_list texts = {0};
    int64_t n = sy_shape_elements(&t->shape, 1);
    uint64_t at = 0;
    if (!t->data || n < 0 || n > INT32_MAX / 16)
        return sy_infer_fail(node, SY_ECORRUPT, "a table that is no constant");
    attr->kind = SY_ATTR_INTS;
    attr->n = (int)n;
    if (t->dtype != SY_DTYPE_STRING)
        SY_TRY(sy_graph_alloc((size_t)n, sizeof *attr->ints, &attr->ints));
    for (int64_t i = 0; i < n; i++) {
        const char *text;
        uint32_t bytes;
        const char *from = (const char *)t->data + (size_t)i * sy_dtype_bytes(t->dtype);
        double value = 0;
        if (t->dtype == SY_DTYPE_STRING) {
            if (!sy_string_block_next(t->data, t->data_bytes, &at, &text, &bytes))
                return sy_infer_fail(node, SY_ECORRUPT, "a table of strings");
            SY_TRY(sy_text_list_add(&texts, text, bytes));
        } else if (sy_dtype_is_integer(t->dtype) || t->dtype == SY_DTYPE_U64) {
            attr->ints[i] =
                sy_load_integer(t->dtype == SY_DTYPE_U64 ? SY_DTYPE_I64 : t->dtype, from);
        } else {
            value = sy_load_double(t->dtype, from);
            memcpy(&attr->ints[i], &value, sizeof value);
        }
    }
    return t->dtype == SY_DTYPE_STRING ? sy_text_list_take(&texts, attr) : SY_OK;
}

/* One of NAME_strings, NAME_int64s, NAME_floats, NAME_tensor becomes NAME, the last two as doubles by their bits; *dtype: what it holds. */
static int take_list(struct sy_infer *in, struct sy_node *node, const char *name,
                     enum sy_dtype *dtype)
{
    static const struct {
        const char *suffix;
        enum sy_dtype dtype;
    } forms[] = {{"strings", SY_DTYPE_STRING},
                 {"int64s", SY_DTYPE_I64},
                 {"floats", SY_DTYPE_F32},
                 {"tensor", SY_DTYPE_NONE}};
    char from[40];
    struct sy_tensor floats = {.dtype = SY_DTYPE_F32};
    for (size_t i = 0; i < SY_ARRAY_LEN(forms); i++) {
        snprintf(from, sizeof from, "%s_%s", name, forms[i].suffix);
        const struct sy_attr *given = sy_node_attr(node, from);
        struct sy_attr list = {.tensor = -1}, *to;
        if (!given)
            continue;
        *dtype = forms[i].dtype;
        const struct sy_tensor *t = &floats;
        if (given->kind == SY_ATTR_TENSOR) {
            t = &in->graph->tensors[given->tensor];
            *dtype = t->dtype;
        }
        floats.data = given->floats;
        floats.shape = (struct sy_shape){.rank = 1, .dims = {{given->n, 0}}};
        if (given->kind == SY_ATTR_TENSOR || given->kind == SY_ATTR_FLOATS) {
            SY_TRY(list_of(node, t, &list));
            SY_TRY(sy_node_attr_slot(node, name, &to));
            list.name = to->name;
            *to = list;
        } else if (given->kind == SY_ATTR_INTS) {
            SY_TRY(sy_node_set_ints(node, name, given->n, given->ints));
        } else {
            SY_TRY(sy_node_set_strings(node, name, given));
        }
        drop_attr(node, from);
        return SY_OK;
    }
    *dtype = SY_DTYPE_NONE;
    return SY_OK;
}

/* classes_strings, of version 1: both ways between strings and their places. */
static int take_classes(struct sy_node *node, const struct sy_tensor *x)
{
    const struct sy_attr *classes = sy_node_attr(node, "classes_strings");
    bool from_text = x->dtype == SY_DTYPE_STRING;
    struct sy_attr *places;
    if (!classes || classes->kind != SY_ATTR_STRINGS)
        return SY_OK;
    int n = classes->n;
    SY_TRY(sy_node_set_strings(node, from_text ? "keys" : "values", classes));
    SY_TRY(sy_node_attr_slot(node, from_text ? "values" : "keys", &places));
    places->kind = SY_ATTR_INTS;
    SY_TRY(sy_graph_alloc((size_t)n, sizeof *places->ints, &places->ints));
    places->n = n;
    for (int i = 0; i < n; i++)
        places->ints[i] = i;
    drop_attr(node, "classes_strings");
    SY_TRY(sy_node_set_int(node, "key_type", x->dtype));
    return sy_node_set_int(node, "value_type", from_text ? SY_DTYPE_I64 : SY_DTYPE_STRING);
}

/* The default as one more value, the last. */
static int take_default(struct sy_infer *in, struct sy_node *node, enum sy_dtype dtype)
{
    const struct sy_attr *tensor = sy_node_attr(node, "default_tensor");
    struct sy_attr *to, list = {.tensor = -1};
    double number = (double)sy_node_float(node, "default_float", -0.0f);
    if (tensor && tensor->kind == SY_ATTR_TENSOR) {
        SY_TRY(list_of(node, &in->graph->tensors[tensor->tensor], &list));
        if (list.n < 1 || (list.kind == SY_ATTR_STRINGS) != (dtype == SY_DTYPE_STRING)) {
            sy_attr_finish(&list);
            return sy_infer_fail(node, SY_ECORRUPT, "a default of another type");
        }
        SY_TRY(sy_node_attr_slot(node, "otherwise", &to));
        list.name = to->name;
        *to = list;
        drop_attr(node, "default_tensor");
        return SY_OK;
    }
    if (dtype == SY_DTYPE_STRING) {
        struct sy_text_list texts = {0};
        const char *text = sy_infer_text(node, "default_string", "_Unused");
        SY_TRY(sy_text_list_add(&texts, text, strlen(text)));
        SY_TRY(sy_node_attr_slot(node, "otherwise", &to));
        return sy_text_list_take(&texts, to);
    }
    int64_t bits = sy_node_int(node, "default_int64", -1);
    if (dtype == SY_DTYPE_F32 || dtype == SY_DTYPE_F64)
        memcpy(&bits, &number, sizeof bits);
    return sy_node_set_ints(node, "otherwise", 1, &bits);
}

/* Its lists become `keys`, `values`, `otherwise`; floats are doubles by their bits. */
int sy_rule_label_encoder(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    enum sy_dtype keys, values;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    SY_TRY(take_classes(node, x));
    if (!sy_node_attr(node, "value_type")) {
        SY_TRY(take_list(in, node, "keys", &keys));
        SY_TRY(take_list(in, node, "values", &values));
        SY_TRY(sy_node_set_int(node, "key_type", keys));
        SY_TRY(sy_node_set_int(node, "value_type", values));
    }
    keys = (enum sy_dtype)sy_node_int(node, "key_type", 0);
    values = (enum sy_dtype)sy_node_int(node, "value_type", 0);
    const struct sy_attr *k = sy_node_attr(node, "keys"), *v = sy_node_attr(node, "values");
    if (!k || !v || k->n != v->n || k->n > INT32_MAX / 16 || x->dtype != keys ||
        sy_dtype_bytes(values) == 0)
        return sy_infer_fail(node, SY_ECORRUPT, "keys and values that do not fit");
    SY_TRY(take_default(in, node, values));
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    sy_infer_set(in, node, 0, values, &shape);
    return SY_OK;
}

/* A LabelEncoder whose direction follows from the input's type. */
int sy_rule_category_mapper(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_attr *texts = sy_node_attr(node, "cats_strings"),
                         *numbers = sy_node_attr(node, "cats_int64s");
    const struct sy_tensor *x;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    bool from_text = x->dtype == SY_DTYPE_STRING;
    if (!texts || !numbers || texts->kind != SY_ATTR_STRINGS || numbers->kind != SY_ATTR_INTS ||
        texts->n != numbers->n || (!from_text && x->dtype != SY_DTYPE_I64))
        return sy_infer_fail(node, SY_ECORRUPT, "categories that do not fit");
    SY_TRY(sy_node_set_strings(node, from_text ? "keys_strings" : "values_strings", texts));
    numbers = sy_node_attr(node, "cats_int64s"); /* the list of attributes has moved */
    SY_TRY(sy_node_set_ints(node, from_text ? "values_int64s" : "keys_int64s", numbers->n,
                            numbers->ints));
    drop_attr(node, "cats_strings");
    drop_attr(node, "cats_int64s");
    node->op = SY_OP_ML_LABEL_ENCODER;
    return sy_rule_label_encoder(in, node);
}

int sy_rule_ml_one_hot(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_attr *texts = sy_node_attr(node, "cats_strings"),
                         *numbers = sy_node_attr(node, "cats_int64s");
    const struct sy_tensor *x;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    bool by_text = texts && texts->kind == SY_ATTR_STRINGS && texts->n > 0;
    const struct sy_attr *list = by_text ? texts : numbers;
    if (!list || (!by_text && list->kind != SY_ATTR_INTS) || x->shape.rank >= SY_MAX_RANK ||
        by_text != (x->dtype == SY_DTYPE_STRING))
        return sy_infer_fail(node, SY_ECORRUPT, "categories that do not fit the input");
    struct sy_shape shape = x->shape;
    shape.dims[shape.rank++] = (struct sy_dim){list->n, 0};
    sy_infer_set(in, node, 0, SY_DTYPE_F32, &shape);
    return SY_OK;
}

int sy_rule_couple(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    struct sy_shape shape = x->shape;
    if (shape.rank != 2)
        return sy_infer_fail(node, SY_ECORRUPT, "%d dimensions", shape.rank);
    shape.dims[1] = (struct sy_dim){sy_node_int(node, "classes", 2), 0};
    sy_infer_set(in, node, 0, SY_DTYPE_F32, &shape);
    return SY_OK;
}

int sy_rule_trees(struct sy_infer *in, struct sy_node *node)
{
    const struct sy_tensor *x;
    SY_TRY(sy_infer_need(in, node, 0, &x));
    int rank = x->shape.rank;
    if (rank < 1 || rank > 2)
        return sy_infer_fail(node, SY_ECORRUPT, "%d dimensions", rank);
    struct sy_shape shape = {.rank = 2, .dims = {{1, 0}}};
    if (rank == 2)
        shape.dims[0] = x->shape.dims[0];
    shape.dims[1] = (struct sy_dim){sy_node_int(node, "targets", 1), 0};
    sy_infer_set(in, node, 0, SY_DTYPE_F32, &shape);
    return SY_OK;
}
