/* Decoder-only transformers by Llama's plan (Touvron et al. 2023; no rotation, no mask): RMS norms, a gated feed-forward part. All layers name
 * the same weights, so that a file of one layer's size becomes a package of n_layers times that: each layer is packed by itself. */
#include <math.h>
#include <stdbool.h>

#include "examples/models/models.h"

enum { FLOAT = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, INT64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64 };

struct decoder {
    int64_t n_layers, hidden, heads, intermediate, vocabulary, sequence;
    const char *query, *key, *value, *out, *gate, *up, *down, *norm;
    const char *two, *epsilon, *root, *as_heads, *as_rows;
};

static const char *weight(struct onnx_writer *w, const char *name, int64_t rows, int64_t columns)
{
    return onnx_random(w, name, ONNX_DIMS(rows, columns), 0, 1 / sqrt((double)rows));
}

static void share_weights(struct onnx_writer *w, struct decoder *d)
{
    const int64_t h = d->hidden, width = h / d->heads;
    d->query = weight(w, "layer.query", h, h);
    d->key = weight(w, "layer.key", h, h);
    d->value = weight(w, "layer.value", h, h);
    d->out = weight(w, "layer.out", h, h);
    d->gate = weight(w, "layer.gate", h, d->intermediate);
    d->up = weight(w, "layer.up", h, d->intermediate);
    d->down = weight(w, "layer.down", d->intermediate, h);
    d->norm = onnx_random(w, "layer.norm", ONNX_DIMS(h), 1, 0.05);
    d->two = onnx_scalar(w, "two", 2);
    d->epsilon = onnx_scalar(w, "epsilon", 1e-5f);
    d->root = onnx_scalar(w, "root", 1 / sqrtf((float)width));
    d->as_heads =
        onnx_int64s(w, "as_heads", 1, 4, (const int64_t[]){0, d->sequence, d->heads, width});
    d->as_rows = onnx_int64s(w, "as_rows", 1, 3, (const int64_t[]){0, d->sequence, h});
}

static const char *rms_norm(struct onnx_writer *w, const struct decoder *d, const char *scope,
                            const char *x)
{
    const char *y = onnx_node(w, "Pow", scope, x, d->two, NULL);
    y = onnx_node(w, "ReduceMean", scope, y, NULL);
    onnx_ints(w, "axes", ONNX_DIMS(-1));
    y = onnx_node(w, "Add", scope, y, d->epsilon, NULL);
    y = onnx_node(w, "Sqrt", scope, y, NULL);
    y = onnx_node(w, "Div", scope, x, y, NULL);
    return onnx_node(w, "Mul", scope, y, d->norm, NULL);
}

static const char *heads(struct onnx_writer *w, const struct decoder *d, const char *scope,
                         const char *x, const char *weights, bool transposed)
{
    x = onnx_node(w, "MatMul", scope, x, weights, NULL);
    x = onnx_node(w, "Reshape", scope, x, d->as_heads, NULL);
    x = onnx_node(w, "Transpose", scope, x, NULL);
    onnx_ints(w, "perm", ONNX_DIMS(0, 2, transposed ? 3 : 1, transposed ? 1 : 3));
    return x;
}

static const char *attention(struct onnx_writer *w, const struct decoder *d, const char *scope,
                             const char *x)
{
    const char *q = heads(w, d, scope, x, d->query, false),
               *k = heads(w, d, scope, x, d->key, true),
               *v = heads(w, d, scope, x, d->value, false);
    x = onnx_node(w, "MatMul", scope, q, k, NULL);
    x = onnx_node(w, "Mul", scope, x, d->root, NULL);
    x = onnx_node(w, "Softmax", scope, x, NULL);
    onnx_int(w, "axis", -1);
    x = onnx_node(w, "MatMul", scope, x, v, NULL);
    x = onnx_node(w, "Transpose", scope, x, NULL);
    onnx_ints(w, "perm", ONNX_DIMS(0, 2, 1, 3));
    x = onnx_node(w, "Reshape", scope, x, d->as_rows, NULL);
    return onnx_node(w, "MatMul", scope, x, d->out, NULL);
}

static const char *layer(struct onnx_writer *w, const struct decoder *d, const char *scope,
                         const char *x)
{
    const char *y = attention(w, d, scope, rms_norm(w, d, scope, x));
    x = onnx_node(w, "Add", scope, x, y, NULL);
    y = rms_norm(w, d, scope, x);
    const char *gate = onnx_node(w, "MatMul", scope, y, d->gate, NULL);
    const char *up = onnx_node(w, "MatMul", scope, y, d->up, NULL);
    const char *open = onnx_node(w, "Sigmoid", scope, gate, NULL);
    y = onnx_node(w, "Mul", scope, gate, open, NULL);
    y = onnx_node(w, "Mul", scope, y, up, NULL);
    y = onnx_node(w, "MatMul", scope, y, d->down, NULL);
    return onnx_node(w, "Add", scope, x, y, NULL);
}

/* The last position's scores come from the table that the tokens were looked up in. */
static void decoder_model(struct onnx_writer *w, struct decoder d)
{
    const char *ids = onnx_input(w, "input_ids", INT64, ONNX_DIMS(ONNX_BATCH, d.sequence));
    const char *table = onnx_random(w, "table", ONNX_DIMS(d.vocabulary, d.hidden), 0, 0.02);
    const char *last = onnx_int64s(w, "last", 0, 1, (const int64_t[]){d.sequence - 1});
    share_weights(w, &d);
    const char *x = onnx_node(w, "Gather", "embedding", table, ids, NULL);
    for (int i = 0; i < d.n_layers; i++)
        x = layer(w, &d, onnx_name(w, "layer.%d", i), x);
    x = onnx_node(w, "Gather", "last", rms_norm(w, &d, "last", x), last, NULL);
    onnx_int(w, "axis", 1);
    x = onnx_node(w, "Gemm", "scores", x, table, NULL);
    onnx_int(w, "transB", 1);
    onnx_output(w, x, "scores", FLOAT, ONNX_DIMS(ONNX_BATCH, d.vocabulary));
}

void model_decoder_8b(struct onnx_writer *w)
{
    decoder_model(w, (struct decoder){.n_layers = 32,
                                      .hidden = 4096,
                                      .heads = 32,
                                      .intermediate = 14336,
                                      .vocabulary = 32000,
                                      .sequence = 128});
}

void model_decoder_tiny(struct onnx_writer *w)
{
    decoder_model(w, (struct decoder){.n_layers = 3,
                                      .hidden = 64,
                                      .heads = 4,
                                      .intermediate = 160,
                                      .vocabulary = 100,
                                      .sequence = 20});
}
