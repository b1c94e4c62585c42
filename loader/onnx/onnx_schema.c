/* Numbers of inputs and outputs and the kinds of attributes of each operator, over all versions that are read: otherwise an attribute without a rule would be
 * silently ignored. */
#include <string.h>

#include "loader/onnx/onnx_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define AUTO_PADS  "NOTSET SAME_UPPER SAME_LOWER VALID "
#define DIRECTIONS "forward reverse bidirectional "

static const struct {
    Onnx__AttributeProto__AttributeType type;
    char letter;
    const char *text;
} kinds[] = {
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT, 'f', "a float"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, 'i', "a whole number"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING, 's', "a string"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR, 't', "a tensor"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH, 'g', "a graph"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS, 'F', "floats"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS, 'I', "whole numbers"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS, 'S', "strings"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTO, 'p', "a type"},
};

/* Allowed values of string attributes; an unknown value must not be treated like the default. */
static const struct {
    enum sy_op op;
    const char *attribute, *words; /* each value followed by a blank */
} choices[] = {
    {SY_OP_CONV, "auto_pad", AUTO_PADS},
    {SY_OP_CONV_TRANSPOSE, "auto_pad", AUTO_PADS},
    {SY_OP_QLINEAR_CONV, "auto_pad", AUTO_PADS},
    {SY_OP_CONV_INTEGER, "auto_pad", AUTO_PADS},
    {SY_OP_MAX_POOL, "auto_pad", AUTO_PADS},
    {SY_OP_AVERAGE_POOL, "auto_pad", AUTO_PADS},
    {SY_OP_LP_POOL, "auto_pad", AUTO_PADS},
    {SY_OP_LSTM, "direction", DIRECTIONS},
    {SY_OP_GRU, "direction", DIRECTIONS},
    {SY_OP_RNN, "direction", DIRECTIONS},
    {SY_OP_BIT_SHIFT, "direction", "LEFT RIGHT "},
    {SY_OP_PAD, "mode", "constant reflect edge wrap "},
    {SY_OP_RESIZE, "mode", "nearest linear cubic "},
    {SY_OP_RESIZE, "coordinate_transformation_mode",
     "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric "
     "tf_half_pixel_for_nn tf_crop_and_resize "},
    {SY_OP_RESIZE, "nearest_mode", "round_prefer_floor round_prefer_ceil floor ceil "},
    {SY_OP_RESIZE, "keep_aspect_ratio_policy", "stretch not_larger not_smaller "},
    {SY_OP_UPSAMPLE, "mode", "nearest linear bilinear "},
    {SY_OP_DEPTH_TO_SPACE, "mode", "DCR CRD "},
    {SY_OP_SPACE_TO_DEPTH, "mode", "DCR CRD "},
    {SY_OP_GELU, "approximate", "none tanh "},
    {SY_OP_SCATTER_ELEMENTS, "reduction", "none add mul max min "},
    {SY_OP_SCATTER_ND, "reduction", "none add mul max min "},
    {SY_OP_NLL_LOSS, "reduction", "none sum mean "},
    {SY_OP_SOFTMAX_LOSS, "reduction", "none sum mean "},
    {SY_OP_ROI_ALIGN, "mode", "avg max "},
    {SY_OP_ROI_ALIGN, "coordinate_transformation_mode", "half_pixel output_half_pixel "},
    {SY_OP_GRID_SAMPLE, "mode", "bilinear nearest bicubic linear cubic "},
    {SY_OP_GRID_SAMPLE, "padding_mode", "zeros border reflection "},
    {SY_OP_TF_IDF, "mode", "TF IDF TFIDF "},
    {SY_OP_TENSOR_SCATTER, "mode", "linear circular "},
    {SY_OP_STEP_MOMENTUM, "mode", "standard nesterov "},
    {SY_OP_CAST, "round_mode", "up down nearest "}, /* of powers of two */
    {SY_OP_CAST_LIKE, "round_mode", "up down nearest "},
};

static bool is_word(const char *words, const ProtobufCBinaryData *text)
{
    for (size_t n; (n = strcspn(words, " ")) > 0; words += n + 1)
        if (n == text->len && memcmp(words, text->data, n) == 0)
            return true;
    return false;
}

static int check_choice(enum sy_op op, const Onnx__AttributeProto *attr)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(choices); i++)
        if (choices[i].op == op && strcmp(choices[i].attribute, attr->name) == 0 &&
            attr->s.len > 0 && !is_word(choices[i].words, &attr->s))
            return sy_error_set(SY_EUNSUPPORTED, "attribute '%.60s' is '%.*s'; known: %s",
                                attr->name, (int)SY_MIN(attr->s.len, 60u),
                                (const char *)attr->s.data, choices[i].words);
    return SY_OK;
}

/* The letter of the attribute's kind; 0: the operator has no such attribute. */
static char find_attribute(const struct sy_op_facts *facts, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = facts->attributes; *at;) {
        size_t length = strcspn(at, "=");
        if (length == n && memcmp(at, name, n) == 0)
            return at[n + 1];
        at += length + 2;
        at += strspn(at, " ");
    }
    return 0;
}

static int check_attribute(const struct sy_op_facts *facts, const Onnx__AttributeProto *attr)
{
    const char *name = sy_onnx_text(attr->name);
    char letter = find_attribute(facts, name);
    if (!letter)
        return sy_error_set(SY_EUNSUPPORTED, "it has no attribute '%.60s' that is supported", name);
    for (size_t i = 0; i < SY_ARRAY_LEN(kinds); i++)
        if (kinds[i].letter == letter && kinds[i].type != attr->type)
            return sy_error_set(SY_ECORRUPT, "attribute '%.60s' has kind %d, it must be %s", name,
                                (int)attr->type, kinds[i].text);
    return SY_OK;
}

int sy_onnx_check_node(enum sy_op op, const Onnx__NodeProto *node)
{
    const struct sy_op_facts *facts = sy_op_facts(op);
    if (!facts->attributes)
        return SY_OK;
    size_t n = node->n_input;
    while (n > 0 && !*sy_onnx_text(node->input[n - 1])) /* left out */
        n--;
    if (n < (size_t)facts->least_inputs || n > (size_t)facts->most_inputs)
        return sy_error_set(SY_ECORRUPT, "%zu inputs; it takes %d to %d", n, facts->least_inputs,
                            facts->most_inputs);
    if (node->n_output > (size_t)facts->most_outputs)
        return sy_error_set(SY_ECORRUPT, "%zu outputs; it has at most %d", node->n_output,
                            facts->most_outputs);
    for (size_t i = 0; i < node->n_attribute; i++) {
        SY_TRY(check_attribute(facts, node->attribute[i]));
        SY_TRY(check_choice(op, node->attribute[i]));
        for (size_t k = 0; k < i; k++) /* all names are in the schema, so there are few */
            if (strcmp(node->attribute[k]->name, node->attribute[i]->name) == 0)
                return sy_error_set(SY_ECORRUPT, "attribute '%.60s' occurs twice",
                                    node->attribute[i]->name);
    }
    return SY_OK;
}
