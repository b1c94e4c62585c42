/* Written node by node as PyTorch's exporter writes BERT: shape arithmetic around the dynamic batch, linear layers as
 * MatMul + Add, GELU and layer normalisation taken apart. */
#include <math.h>

#include "examples/models/models.h"

enum { FLOAT = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, INT64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64 };

static const double weight_deviation = 0.02; /* as published */

struct bert {
    int64_t n_layers, hidden, heads, intermediate, vocabulary, positions, sequence;
    int64_t classes; /* of a classifier behind the pooler; 0: the encoder's outputs */
    /* constants that many nodes share */
    const char *int0, *int1, *axes0, *one, *two, *half, *sqrt2, *epsilon;
};

static const char *weight(struct onnx_writer *w, const char *scope, const char *name, int64_t rows,
                          int64_t columns)
{
    return onnx_random(w, onnx_name(w, "%s.%s", scope, name), ONNX_DIMS(rows, columns), 0,
                       weight_deviation);
}

static const char *dense(struct onnx_writer *w, const char *scope, const char *x, int64_t in,
                         int64_t out)
{
    const char *y = onnx_node(w, "MatMul", scope, x, weight(w, scope, "weight", in, out), NULL);
    const char *bias =
        onnx_random(w, onnx_name(w, "%s.bias", scope), ONNX_DIMS(out), 0, weight_deviation);
    return onnx_node(w, "Add", scope, bias, y, NULL);
}

static const char *layer_norm(struct onnx_writer *w, const struct bert *bert, const char *scope,
                              const char *x)
{
    const char *gamma =
        onnx_random(w, onnx_name(w, "%s.weight", scope), ONNX_DIMS(bert->hidden), 1, 0.05);
    const char *beta =
        onnx_random(w, onnx_name(w, "%s.bias", scope), ONNX_DIMS(bert->hidden), 0, 0.05);
    const char *mean = onnx_node(w, "ReduceMean", scope, x, NULL);
    onnx_ints(w, "axes", ONNX_DIMS(-1));
    const char *centred = onnx_node(w, "Sub", scope, x, mean, NULL);
    const char *square = onnx_node(w, "Pow", scope, centred, bert->two, NULL);
    const char *variance = onnx_node(w, "ReduceMean", scope, square, NULL);
    onnx_ints(w, "axes", ONNX_DIMS(-1));
    variance = onnx_node(w, "Add", scope, variance, bert->epsilon, NULL);
    const char *deviation = onnx_node(w, "Sqrt", scope, variance, NULL);
    const char *y = onnx_node(w, "Div", scope, centred, deviation, NULL);
    y = onnx_node(w, "Mul", scope, y, gamma, NULL);
    return onnx_node(w, "Add", scope, y, beta, NULL);
}

static const char *gelu(struct onnx_writer *w, const struct bert *bert, const char *scope,
                        const char *x)
{
    const char *y = onnx_node(w, "Div", scope, x, bert->sqrt2, NULL);
    y = onnx_node(w, "Erf", scope, y, NULL);
    y = onnx_node(w, "Add", scope, y, bert->one, NULL);
    y = onnx_node(w, "Mul", scope, x, y, NULL);
    return onnx_node(w, "Mul", scope, y, bert->half, NULL);
}

/* Dimension `which` of x as a vector of one element: x.size(which) in the exporter's words. */
static const char *size_of(struct onnx_writer *w, const struct bert *bert, const char *scope,
                           const char *x, int which)
{
    const char *shape = onnx_node(w, "Shape", scope, x, NULL);
    const char *size = onnx_node(w, "Gather", scope, shape, which ? bert->int1 : bert->int0, NULL);
    onnx_int(w, "axis", 0);
    return onnx_node(w, "Unsqueeze", scope, size, bert->axes0, NULL);
}

/* x.view(batch, sequence, tail...) */
static const char *view(struct onnx_writer *w, const struct bert *bert, const char *scope,
                        const char *x, int n_tail, const int64_t *tail)
{
    const char *batch = size_of(w, bert, scope, x, 0);
    const char *sequence = size_of(w, bert, scope, x, 1);
    const char *rest = onnx_int64s(w, onnx_name(w, "%s.view_tail", scope), 1, n_tail, tail);
    const char *shape = onnx_node(w, "Concat", scope, batch, sequence, rest, NULL);
    onnx_int(w, "axis", 0);
    return onnx_node(w, "Reshape", scope, x, shape, NULL);
}

static const char *transpose(struct onnx_writer *w, const char *scope, const char *x, int64_t a,
                             int64_t b, int64_t c, int64_t d)
{
    const char *y = onnx_node(w, "Transpose", scope, x, NULL);
    onnx_ints(w, "perm", ONNX_DIMS(a, b, c, d));
    return y;
}

static const char *heads(struct onnx_writer *w, const struct bert *bert, const char *scope,
                         const char *x)
{
    x = dense(w, scope, x, bert->hidden, bert->hidden);
    return view(w, bert, scope, x, ONNX_DIMS(bert->heads, bert->hidden / bert->heads));
}

static const char *attention(struct onnx_writer *w, const struct bert *bert, const char *scope,
                             const char *x, const char *mask)
{
    const char *root = onnx_scalar(w, onnx_name(w, "%s.root", scope),
                                   sqrtf((float)bert->hidden / (float)bert->heads));
    const char *q = heads(w, bert, onnx_name(w, "%s.query", scope), x);
    const char *k = heads(w, bert, onnx_name(w, "%s.key", scope), x);
    const char *v = heads(w, bert, onnx_name(w, "%s.value", scope), x);
    q = transpose(w, scope, q, 0, 2, 1, 3);
    k = transpose(w, scope, k, 0, 2, 3, 1);
    v = transpose(w, scope, v, 0, 2, 1, 3);
    const char *scores = onnx_node(w, "MatMul", scope, q, k, NULL);
    scores = onnx_node(w, "Div", scope, scores, root, NULL);
    scores = onnx_node(w, "Add", scope, scores, mask, NULL);
    scores = onnx_node(w, "Softmax", scope, scores, NULL);
    onnx_int(w, "axis", -1);
    const char *context = onnx_node(w, "MatMul", scope, scores, v, NULL);
    context = transpose(w, scope, context, 0, 2, 1, 3);
    return view(w, bert, scope, context, ONNX_DIMS(bert->hidden));
}

static const char *layer(struct onnx_writer *w, const struct bert *bert, const char *scope,
                         const char *x, const char *mask)
{
    const char *y = attention(w, bert, onnx_name(w, "%s.attention.self", scope), x, mask);
    y = dense(w, onnx_name(w, "%s.attention.output.dense", scope), y, bert->hidden, bert->hidden);
    y = onnx_node(w, "Add", scope, y, x, NULL);
    x = layer_norm(w, bert, onnx_name(w, "%s.attention.output.LayerNorm", scope), y);
    y = dense(w, onnx_name(w, "%s.intermediate.dense", scope), x, bert->hidden, bert->intermediate);
    y = gelu(w, bert, onnx_name(w, "%s.intermediate", scope), y);
    y = dense(w, onnx_name(w, "%s.output.dense", scope), y, bert->intermediate, bert->hidden);
    y = onnx_node(w, "Add", scope, y, x, NULL);
    return layer_norm(w, bert, onnx_name(w, "%s.output.LayerNorm", scope), y);
}

/* position_ids[:, :sequence], the sequence read from the input's shape. */
static const char *position_ids(struct onnx_writer *w, const struct bert *bert, const char *ids)
{
    int64_t values[512];
    for (int64_t i = 0; i < bert->positions; i++)
        values[i] = i;
    const char *all = onnx_int64s(w, "embeddings.position_ids", 1, (int)bert->positions, values);
    const char *row = onnx_node(w, "Unsqueeze", "embeddings", all, bert->axes0, NULL);
    const char *axes1 = onnx_int64s(w, "axes_1", 1, 1, (const int64_t[]){1});
    const char *step = onnx_int64s(w, "step_1", 1, 1, (const int64_t[]){1});
    const char *length = size_of(w, bert, "embeddings", ids, 1);
    return onnx_node(w, "Slice", "embeddings", row, bert->axes0, length, axes1, step, NULL);
}

static const char *embeddings(struct onnx_writer *w, const struct bert *bert, const char *ids,
                              const char *types)
{
    const char *scope = "embeddings";
    const char *words = weight(w, scope, "word_embeddings.weight", bert->vocabulary, bert->hidden);
    const char *kinds = weight(w, scope, "token_type_embeddings.weight", 2, bert->hidden);
    const char *places =
        weight(w, scope, "position_embeddings.weight", bert->positions, bert->hidden);
    const char *positions = position_ids(w, bert, ids);
    words = onnx_node(w, "Gather", scope, words, ids, NULL);
    kinds = onnx_node(w, "Gather", scope, kinds, types, NULL);
    places = onnx_node(w, "Gather", scope, places, positions, NULL);
    const char *x = onnx_node(w, "Add", scope, words, kinds, NULL);
    x = onnx_node(w, "Add", scope, x, places, NULL);
    return layer_norm(w, bert, "embeddings.LayerNorm", x);
}

/* (1 - mask) * -10000, as [N, 1, 1, sequence]. */
static const char *additive_mask(struct onnx_writer *w, const struct bert *bert, const char *mask)
{
    const char *axes1 = onnx_int64s(w, "mask_axes_1", 1, 1, (const int64_t[]){1});
    const char *axes2 = onnx_int64s(w, "mask_axes_2", 1, 1, (const int64_t[]){2});
    const char *floor = onnx_scalar(w, "mask_floor", -10000);
    const char *x = onnx_node(w, "Unsqueeze", "mask", mask, axes1, NULL);
    x = onnx_node(w, "Unsqueeze", "mask", x, axes2, NULL);
    x = onnx_node(w, "Cast", "mask", x, NULL);
    onnx_int(w, "to", FLOAT);
    x = onnx_node(w, "Sub", "mask", bert->one, x, NULL);
    return onnx_node(w, "Mul", "mask", x, floor, NULL);
}

static const char *pooler(struct onnx_writer *w, const struct bert *bert, const char *x)
{
    x = onnx_node(w, "Gather", "pooler", x, bert->int0, NULL);
    onnx_int(w, "axis", 1);
    x = model_linear(w, "pooler.dense", x, bert->hidden, bert->hidden, 1);
    return onnx_node(w, "Tanh", "pooler", x, NULL);
}

static void shared_constants(struct onnx_writer *w, struct bert *bert)
{
    bert->int0 = onnx_int64s(w, "int_0", 0, 1, (const int64_t[]){0});
    bert->int1 = onnx_int64s(w, "int_1", 0, 1, (const int64_t[]){1});
    bert->axes0 = onnx_int64s(w, "axes_0", 1, 1, (const int64_t[]){0});
    bert->one = onnx_scalar(w, "one", 1);
    bert->two = onnx_scalar(w, "two", 2);
    bert->half = onnx_scalar(w, "half", 0.5f);
    bert->sqrt2 = onnx_scalar(w, "sqrt_2", 1.41421354f);
    bert->epsilon = onnx_scalar(w, "epsilon", 1e-12f);
}

static void bert_model(struct onnx_writer *w, struct bert bert)
{
    shared_constants(w, &bert);
    const char *ids = onnx_input(w, "input_ids", INT64, ONNX_DIMS(ONNX_BATCH, bert.sequence));
    const char *mask = onnx_input(w, "attention_mask", INT64, ONNX_DIMS(ONNX_BATCH, bert.sequence));
    const char *types =
        onnx_input(w, "token_type_ids", INT64, ONNX_DIMS(ONNX_BATCH, bert.sequence));
    mask = additive_mask(w, &bert, mask);
    const char *x = embeddings(w, &bert, ids, types);
    for (int i = 0; i < bert.n_layers; i++)
        x = layer(w, &bert, onnx_name(w, "encoder.layer.%d", i), x, mask);
    const char *pooled = pooler(w, &bert, x);
    if (bert.classes) {
        x = model_linear(w, "classifier", pooled, bert.hidden, bert.classes, 1);
        onnx_output(w, x, "logits", FLOAT, ONNX_DIMS(ONNX_BATCH, bert.classes));
        return;
    }
    onnx_output(w, x, "last_hidden_state", FLOAT,
                ONNX_DIMS(ONNX_BATCH, bert.sequence, bert.hidden));
    onnx_output(w, pooled, "pooler_output", FLOAT, ONNX_DIMS(ONNX_BATCH, bert.hidden));
}

static const struct bert base = {.n_layers = 12,
                                 .hidden = 768,
                                 .heads = 12,
                                 .intermediate = 3072,
                                 .vocabulary = 30522,
                                 .positions = 512,
                                 .sequence = 128},
                         tiny = {.n_layers = 2,
                                 .hidden = 128,
                                 .heads = 2,
                                 .intermediate = 512,
                                 .vocabulary = 1000,
                                 .positions = 64,
                                 .sequence = 32};

void model_bert_base(struct onnx_writer *w)
{
    bert_model(w, base);
}

void model_bert_tiny(struct onnx_writer *w)
{
    bert_model(w, tiny);
}

void model_bert_sequence(struct onnx_writer *w)
{
    struct bert bert = base;
    bert.classes = 16;
    bert_model(w, bert);
}

void model_bert_tiny_sequence(struct onnx_writer *w)
{
    struct bert bert = tiny;
    bert.classes = 8;
    bert_model(w, bert);
}
