/* A text classifier as PyTorch's exporter writes nn.LSTM with batch_first and no states given. */
#include <math.h>

#include "examples/models/models.h"

enum { TOKENS = 10000, STEPS = 128, WIDTH = 512, CLASSES = 20 };

static const char *transpose(struct onnx_writer *w, const char *scope, const char *x, int rank,
                             const int64_t *order)
{
    const char *y = onnx_node(w, "Transpose", scope, x, NULL);
    onnx_ints(w, "perm", rank, order);
    return y;
}

/* [STEPS, N, in] -> [STEPS, N, 2 * WIDTH] */
static const char *lstm(struct onnx_writer *w, const char *scope, const char *x, int64_t in)
{
    double deviation = 1 / sqrt(WIDTH);
    const char *weights = onnx_random(w, onnx_name(w, "%s.weight_ih", scope),
                                      ONNX_DIMS(2, 4 * WIDTH, in), 0, deviation),
               *recurrence = onnx_random(w, onnx_name(w, "%s.weight_hh", scope),
                                         ONNX_DIMS(2, 4 * WIDTH, WIDTH), 0, deviation),
               *bias = onnx_random(w, onnx_name(w, "%s.bias", scope), ONNX_DIMS(2, 8 * WIDTH), 0,
                                   deviation);
    const char *y = onnx_node(w, "LSTM", scope, x, weights, recurrence, bias, NULL);
    onnx_int(w, "hidden_size", WIDTH);
    onnx_string(w, "direction", "bidirectional");
    y = transpose(w, scope, y, ONNX_DIMS(0, 2, 1, 3));
    const char *shape = onnx_int64s(w, onnx_name(w, "%s.shape", scope), 1, ONNX_DIMS(0, 0, -1));
    return onnx_node(w, "Reshape", scope, y, shape, NULL);
}

void model_lstm_text(struct onnx_writer *w)
{
    const char *tokens =
        onnx_input(w, "tokens", ONNX__TENSOR_PROTO__DATA_TYPE__INT64, ONNX_DIMS(ONNX_BATCH, STEPS));
    const char *table = onnx_random(w, "embedding.weight", ONNX_DIMS(TOKENS, WIDTH), 0, 1);
    const char *x = onnx_node(w, "Gather", "embedding", table, tokens, NULL);
    x = transpose(w, "lstm", x, ONNX_DIMS(1, 0, 2));
    x = lstm(w, "lstm.0", x, WIDTH);
    x = lstm(w, "lstm.1", x, 2 * WIDTH);
    x = transpose(w, "lstm", x, ONNX_DIMS(1, 0, 2));
    x = onnx_node(w, "ReduceMean", "mean", x, NULL);
    onnx_ints(w, "axes", ONNX_DIMS(1));
    onnx_int(w, "keepdims", 0);
    x = model_linear(w, "classifier", x, 2 * WIDTH, CLASSES, 1);
    onnx_output(w, x, "output", 1, ONNX_DIMS(ONNX_BATCH, CLASSES));
}
