/* Untrained networks of usual architectures, for examples/training/ and the training bench. */
#include <math.h>

#include "examples/models/models.h"

enum { FLOAT = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, INT64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64 };

#define LANGUAGES 8
#define BYTES     256 /* the alphabet of a text */

static const char *flatten(struct onnx_writer *w, const char *x)
{
    x = onnx_node(w, "Flatten", "flatten", x, NULL);
    onnx_int(w, "axis", 1);
    return x;
}

static const char *linear_relu(struct onnx_writer *w, const char *scope, const char *x, int64_t in,
                               int64_t out)
{
    x = model_linear(w, scope, x, in, out, 2);
    return onnx_node(w, "Relu", scope, x, NULL);
}

/* ---- images, 1x28x28 ------------------------------------------------------------------------------------- */

void model_fashion_mlp(struct onnx_writer *w)
{
    const char *x = onnx_input(w, "input", FLOAT, ONNX_DIMS(ONNX_BATCH, 1, 28, 28));
    x = flatten(w, x);
    x = linear_relu(w, "fc1", x, 784, 512);
    x = linear_relu(w, "fc2", x, 512, 256);
    x = model_linear(w, "fc3", x, 256, 10, 1);
    onnx_output(w, x, "logits", FLOAT, ONNX_DIMS(ONNX_BATCH, 10));
}

static const char *conv_bn(struct onnx_writer *w, const char *scope, const char *x, int64_t in,
                           int64_t out, int64_t kernel, int64_t stride, float gamma)
{
    int64_t pad = kernel / 2;
    return model_conv_bn(
        w, scope, x,
        &(struct model_conv){in, out, kernel, kernel, stride, pad, pad, gamma, 1e-5f, 1});
}

/* VGG's pairs of 3x3 convolutions, each with batch normalisation. */
void model_fashion_vgg(struct onnx_writer *w)
{
    static const int64_t widths[] = {32, 64, 128};
    const char *x = onnx_input(w, "input", FLOAT, ONNX_DIMS(ONNX_BATCH, 1, 28, 28));
    int64_t in = 1;
    for (int stage = 0; stage < 3; stage++) {
        for (int i = 0; i < 2; i++) {
            const char *scope = onnx_name(w, "conv%d_%d", stage + 1, i + 1);
            x = conv_bn(w, scope, x, in, widths[stage], 3, 1, 1);
            x = onnx_node(w, "Relu", scope, x, NULL);
            in = widths[stage];
        }
        x = model_pool(w, "MaxPool", onnx_name(w, "pool%d", stage + 1), x, 2, 2, 0);
    }
    x = flatten(w, x);
    x = linear_relu(w, "fc1", x, 128 * 3 * 3, 256);
    x = model_linear(w, "fc2", x, 256, 10, 1);
    onnx_output(w, x, "logits", FLOAT, ONNX_DIMS(ONNX_BATCH, 10));
}

static const char *residual(struct onnx_writer *w, const char *scope, const char *x, int64_t in,
                            int64_t out, int64_t stride)
{
    const char *branch = conv_bn(w, onnx_name(w, "%s.1", scope), x, in, out, 3, stride, 1);
    branch = onnx_node(w, "Relu", scope, branch, NULL);
    branch = conv_bn(w, onnx_name(w, "%s.2", scope), branch, out, out, 3, 1, 0.5f);
    if (in != out)
        x = conv_bn(w, onnx_name(w, "%s.downsample", scope), x, in, out, 1, stride, 1);
    x = onnx_node(w, "Add", scope, branch, x, NULL);
    return onnx_node(w, "Relu", scope, x, NULL);
}

/* ResNet-18 with the stem of small images: 3x3, then pooled to 14x14. */
void model_fashion_resnet18(struct onnx_writer *w)
{
    const char *x = onnx_input(w, "input", FLOAT, ONNX_DIMS(ONNX_BATCH, 1, 28, 28));
    x = conv_bn(w, "stem", x, 1, 64, 3, 1, 1);
    x = onnx_node(w, "Relu", "stem", x, NULL);
    x = model_pool(w, "MaxPool", "stem", x, 2, 2, 0);
    int64_t in = 64;
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < 2; i++) {
            int64_t out = 64ll << stage;
            x = residual(w, onnx_name(w, "layer%d.%d", stage + 1, i), x, in, out,
                         stage > 0 && i == 0 ? 2 : 1);
            in = out;
        }
    x = onnx_node(w, "GlobalAveragePool", "avgpool", x, NULL);
    x = model_linear(w, "fc", flatten(w, x), 512, 10, 1);
    onnx_output(w, x, "logits", FLOAT, ONNX_DIMS(ONNX_BATCH, 10));
}

/* ---- texts, indices [N, length] -------------------------------------------------------------------------- */

static const char *embed(struct onnx_writer *w, const char *indices, int64_t n, int64_t width,
                         double deviation)
{
    const char *table = onnx_random(w, "embedding.weight", ONNX_DIMS(n, width), 0, deviation);
    return onnx_node(w, "Gather", "embedding", table, indices, NULL);
}

static const char *mean_over(struct onnx_writer *w, const char *x, int64_t axis)
{
    x = onnx_node(w, "ReduceMean", "mean", x, NULL);
    onnx_ints(w, "axes", ONNX_DIMS(axis));
    onnx_int(w, "keepdims", 0);
    return x;
}

static const char *transpose(struct onnx_writer *w, const char *scope, const char *x, int rank,
                             const int64_t *order)
{
    x = onnx_node(w, "Transpose", scope, x, NULL);
    onnx_ints(w, "perm", rank, order);
    return x;
}

static const char *reshape(struct onnx_writer *w, const char *scope, const char *x, int rank,
                           const int64_t *dims)
{
    const char *shape = onnx_int64s(w, onnx_name(w, "%s.shape", scope), 1, rank, dims);
    return onnx_node(w, "Reshape", scope, x, shape, NULL);
}

/* fastText's: the mean of the embeddings of hashed n-grams, then one linear layer. */
void model_text_bag(struct onnx_writer *w)
{
    const char *x = onnx_input(w, "ngrams", INT64, ONNX_DIMS(ONNX_BATCH, 96));
    x = mean_over(w, embed(w, x, 1 << 15, 32, 0.1), 1);
    x = model_linear(w, "classifier", x, 32, LANGUAGES, 1);
    onnx_output(w, x, "logits", FLOAT, ONNX_DIMS(ONNX_BATCH, LANGUAGES));
}

/* [T, N, in] -> [T, N, directions * width] */
static const char *lstm(struct onnx_writer *w, const char *scope, const char *x, int64_t in,
                        int64_t width, int64_t directions)
{
    double deviation = 0.6 / sqrt((double)width);
    const char *weights = onnx_random(w, onnx_name(w, "%s.weight_ih", scope),
                                      ONNX_DIMS(directions, 4 * width, in), 0, deviation),
               *recurrence = onnx_random(w, onnx_name(w, "%s.weight_hh", scope),
                                         ONNX_DIMS(directions, 4 * width, width), 0, deviation),
               *bias = onnx_random(w, onnx_name(w, "%s.bias", scope),
                                   ONNX_DIMS(directions, 8 * width), 0, deviation);
    const char *y = onnx_node(w, "LSTM", scope, x, weights, recurrence, bias, NULL);
    onnx_int(w, "hidden_size", width);
    if (directions == 2)
        onnx_string(w, "direction", "bidirectional");
    y = transpose(w, scope, y, ONNX_DIMS(0, 2, 1, 3));
    return reshape(w, scope, y, ONNX_DIMS(0, 0, -1));
}

void model_text_bilstm(struct onnx_writer *w)
{
    const char *x = onnx_input(w, "bytes", INT64, ONNX_DIMS(ONNX_BATCH, 96));
    x = embed(w, x, BYTES, 32, 0.5);
    x = transpose(w, "lstm", x, ONNX_DIMS(1, 0, 2));
    x = mean_over(w, lstm(w, "lstm", x, 32, 64, 2), 0);
    x = model_linear(w, "classifier", x, 128, LANGUAGES, 1);
    onnx_output(w, x, "logits", FLOAT, ONNX_DIMS(ONNX_BATCH, LANGUAGES));
}

/* The next byte after each: logits [N, T, 256]. */
void model_text_lstm(struct onnx_writer *w)
{
    const char *x = onnx_input(w, "bytes", INT64, ONNX_DIMS(ONNX_BATCH, 64));
    x = embed(w, x, BYTES, 64, 0.5);
    x = transpose(w, "lstm", x, ONNX_DIMS(1, 0, 2));
    x = lstm(w, "lstm", x, 64, 256, 1);
    x = transpose(w, "lstm", x, ONNX_DIMS(1, 0, 2));
    x = onnx_node(w, "MatMul", "head", x,
                  onnx_random(w, "head.weight", ONNX_DIMS(256, BYTES), 0, 1.0 / 16), NULL);
    x = onnx_node(w, "Add", "head", x, onnx_random(w, "head.bias", ONNX_DIMS(BYTES), 0, 0.01),
                  NULL);
    onnx_output(w, x, "logits", FLOAT, ONNX_DIMS(ONNX_BATCH, 64, BYTES));
}

/* ---- transformers ---------------------------------------------------------------------------------------- */

struct encoder {
    int64_t n_layers, width, heads, inner, vocabulary, length, classes;
    const char *two, *half, *one, *sqrt2, *epsilon; /* constants that many nodes share */
};

static const char *dense(struct onnx_writer *w, const char *scope, const char *x, int64_t in,
                         int64_t out, double deviation)
{
    const char *weight =
        onnx_random(w, onnx_name(w, "%s.weight", scope), ONNX_DIMS(in, out), 0, deviation);
    const char *y = onnx_node(w, "MatMul", scope, x, weight, NULL);
    return onnx_node(w, "Add", scope, y,
                     onnx_random(w, onnx_name(w, "%s.bias", scope), ONNX_DIMS(out), 0, 0.001),
                     NULL);
}

static const char *layer_norm(struct onnx_writer *w, const struct encoder *e, const char *scope,
                              const char *x)
{
    const char *gamma = onnx_random(w, onnx_name(w, "%s.weight", scope), ONNX_DIMS(e->width), 1, 0);
    const char *beta = onnx_random(w, onnx_name(w, "%s.bias", scope), ONNX_DIMS(e->width), 0, 0);
    const char *mean = onnx_node(w, "ReduceMean", scope, x, NULL);
    onnx_ints(w, "axes", ONNX_DIMS(-1));
    const char *centred = onnx_node(w, "Sub", scope, x, mean, NULL);
    const char *square = onnx_node(w, "Pow", scope, centred, e->two, NULL);
    const char *variance = onnx_node(w, "ReduceMean", scope, square, NULL);
    onnx_ints(w, "axes", ONNX_DIMS(-1));
    variance = onnx_node(w, "Add", scope, variance, e->epsilon, NULL);
    const char *y =
        onnx_node(w, "Div", scope, centred, onnx_node(w, "Sqrt", scope, variance, NULL), NULL);
    y = onnx_node(w, "Mul", scope, y, gamma, NULL);
    return onnx_node(w, "Add", scope, y, beta, NULL);
}

static const char *gelu(struct onnx_writer *w, const struct encoder *e, const char *scope,
                        const char *x)
{
    const char *y = onnx_node(w, "Div", scope, x, e->sqrt2, NULL);
    y = onnx_node(w, "Erf", scope, y, NULL);
    y = onnx_node(w, "Add", scope, y, e->one, NULL);
    y = onnx_node(w, "Mul", scope, x, y, NULL);
    return onnx_node(w, "Mul", scope, y, e->half, NULL);
}

static const char *head(struct onnx_writer *w, const struct encoder *e, const char *scope,
                        const char *part, const char *x, int n_order, const int64_t *order)
{
    const char *name = onnx_name(w, "%s.%s", scope, part);
    x = dense(w, name, x, e->width, e->width, 0.02);
    x = reshape(w, name, x, ONNX_DIMS(0, 0, e->heads, e->width / e->heads));
    return transpose(w, name, x, n_order, order);
}

static const char *attention(struct onnx_writer *w, const struct encoder *e, const char *scope,
                             const char *x)
{
    const char *root =
        onnx_scalar(w, onnx_name(w, "%s.root", scope), sqrtf((float)e->width / (float)e->heads));
    const char *q = head(w, e, scope, "query", x, ONNX_DIMS(0, 2, 1, 3));
    const char *k = head(w, e, scope, "key", x, ONNX_DIMS(0, 2, 3, 1));
    const char *v = head(w, e, scope, "value", x, ONNX_DIMS(0, 2, 1, 3));
    const char *scores = onnx_node(w, "MatMul", scope, q, k, NULL);
    scores = onnx_node(w, "Div", scope, scores, root, NULL);
    scores = onnx_node(w, "Softmax", scope, scores, NULL);
    onnx_int(w, "axis", -1);
    const char *y = onnx_node(w, "MatMul", scope, scores, v, NULL);
    y = transpose(w, scope, y, ONNX_DIMS(0, 2, 1, 3));
    y = reshape(w, scope, y, ONNX_DIMS(0, 0, e->width));
    return dense(w, onnx_name(w, "%s.output", scope), y, e->width, e->width, 0.02);
}

static const char *encoder_layer(struct onnx_writer *w, const struct encoder *e, const char *scope,
                                 const char *x)
{
    const char *y = attention(w, e, onnx_name(w, "%s.attention", scope), x);
    y = onnx_node(w, "Add", scope, y, x, NULL);
    x = layer_norm(w, e, onnx_name(w, "%s.norm1", scope), y);
    y = dense(w, onnx_name(w, "%s.inner", scope), x, e->width, e->inner, 0.02);
    y = gelu(w, e, onnx_name(w, "%s.inner", scope), y);
    y = dense(w, onnx_name(w, "%s.outer", scope), y, e->inner, e->width, 0.02);
    y = onnx_node(w, "Add", scope, y, x, NULL);
    return layer_norm(w, e, onnx_name(w, "%s.norm2", scope), y);
}

static void encoder(struct onnx_writer *w, struct encoder e)
{
    e.two = onnx_scalar(w, "two", 2);
    e.half = onnx_scalar(w, "half", 0.5f);
    e.one = onnx_scalar(w, "one", 1);
    e.sqrt2 = onnx_scalar(w, "sqrt_2", 1.41421354f);
    e.epsilon = onnx_scalar(w, "epsilon", 1e-5f);
    const char *x = onnx_input(w, "tokens", INT64, ONNX_DIMS(ONNX_BATCH, e.length));
    const char *places =
        onnx_random(w, "position.weight", ONNX_DIMS(1, e.length, e.width), 0, 0.02);
    x = embed(w, x, e.vocabulary, e.width, 0.02);
    x = onnx_node(w, "Add", "embedding", x, places, NULL);
    x = layer_norm(w, &e, "embedding.norm", x);
    for (int i = 0; i < e.n_layers; i++)
        x = encoder_layer(w, &e, onnx_name(w, "layer.%d", i), x);
    x = model_linear(w, "classifier", mean_over(w, x, 1), e.width, e.classes, 1);
    onnx_output(w, x, "logits", FLOAT, ONNX_DIMS(ONNX_BATCH, e.classes));
}

void model_text_transformer(struct onnx_writer *w)
{
    encoder(w, (struct encoder){.n_layers = 2,
                                .width = 64,
                                .heads = 4,
                                .inner = 256,
                                .vocabulary = BYTES,
                                .length = 96,
                                .classes = LANGUAGES});
}

void model_bert_classifier(struct onnx_writer *w)
{
    encoder(w, (struct encoder){.n_layers = 12,
                                .width = 768,
                                .heads = 12,
                                .inner = 3072,
                                .vocabulary = 30522,
                                .length = 128,
                                .classes = 16});
}
