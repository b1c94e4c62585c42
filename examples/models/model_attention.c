/* Attention and nothing else, layer behind layer, so that a run's inputs and outputs weigh little beside it: heads of one tensor attend to
 * themselves. As PyTorch's exporter writes scaled_dot_product_attention; a causal mask as comparisons of positions, which the import folds. */
#include <math.h>
#include <stdbool.h>

#include "examples/models/models.h"

enum { FLOAT = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT };
enum { LAYERS = 32, HEADS = 12, SIZE = 64, MOST_LENGTH = 1024 };

/* Whether column <= row, [length, length]. */
static const char *causal_mask(struct onnx_writer *w, int64_t length)
{
    int64_t positions[MOST_LENGTH];
    for (int64_t i = 0; i < length; i++)
        positions[i] = i;
    const char *columns = onnx_int64s(w, "positions", 1, (int)length, positions);
    const char *shape = onnx_int64s(w, "down", 1, 2, (int64_t[]){length, 1});
    const char *rows = onnx_node(w, "Reshape", "mask", columns, shape, NULL);
    return onnx_node(w, "LessOrEqual", "mask", columns, rows, NULL);
}

static const char *moved(struct onnx_writer *w, const char *scope, const char *x, int64_t a,
                         int64_t b, int64_t c)
{
    const char *y = onnx_node(w, "Transpose", scope, x, NULL);
    onnx_ints(w, "perm", ONNX_DIMS(0, a, b, c));
    return y;
}

/* x and the result: [N, length, HEADS, SIZE]. */
static const char *attend(struct onnx_writer *w, const char *scope, const char *x, const char *mask,
                          const char *root, const char *gone)
{
    const char *q = moved(w, scope, x, 2, 1, 3), *k = moved(w, scope, x, 2, 3, 1),
               *v = moved(w, scope, x, 2, 1, 3);
    const char *scores = onnx_node(w, "MatMul", scope, q, k, NULL);
    scores = onnx_node(w, "Div", scope, scores, root, NULL);
    if (mask)
        scores = onnx_node(w, "Where", scope, mask, scores, gone, NULL);
    const char *p = onnx_node(w, "Softmax", scope, scores, NULL);
    onnx_int(w, "axis", -1);
    return moved(w, scope, onnx_node(w, "MatMul", scope, p, v, NULL), 2, 1, 3);
}

static void stack(struct onnx_writer *w, int64_t length, bool is_causal)
{
    const char *x = onnx_input(w, "x", FLOAT, ONNX_DIMS(ONNX_BATCH, length, HEADS, SIZE));
    const char *root = onnx_scalar(w, "root", sqrtf(SIZE)), *gone = NULL, *mask = NULL;
    if (is_causal) {
        mask = causal_mask(w, length);
        gone = onnx_scalar(w, "gone", -INFINITY);
    }
    x = onnx_node(w, "Add", "shift", x, onnx_random(w, "shift.bias", ONNX_DIMS(SIZE), 0, 0.05),
                  NULL);
    for (int i = 0; i < LAYERS; i++)
        x = attend(w, onnx_name(w, "layer.%d", i), x, mask, root, gone);
    onnx_output(w, x, "y", FLOAT, ONNX_DIMS(ONNX_BATCH, length, HEADS, SIZE));
}

void model_attention_128(struct onnx_writer *w)
{
    stack(w, 128, false);
}

void model_attention_1024(struct onnx_writer *w)
{
    stack(w, 1024, false);
}

void model_attention_causal_1024(struct onnx_writer *w)
{
    stack(w, 1024, true);
}
