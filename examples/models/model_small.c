#include "examples/models/models.h"

static const char *conv3x3_relu(struct onnx_writer *w, const char *scope, const char *x, int64_t in,
                                int64_t out)
{
    x = model_conv_bias(w, scope, x, &(struct model_conv){in, out, 3, 3, 1, 1, 1, 0, 0, 1});
    return onnx_node(w, "Relu", scope, x, NULL);
}

static const char *flatten(struct onnx_writer *w, const char *x)
{
    x = onnx_node(w, "Flatten", "flatten", x, NULL);
    onnx_int(w, "axis", 1);
    return x;
}

void model_mnist_cnn(struct onnx_writer *w)
{
    const char *x = onnx_input(w, "input", 1, ONNX_DIMS(ONNX_BATCH, 1, 28, 28));
    x = conv3x3_relu(w, "conv1", x, 1, 32);
    x = conv3x3_relu(w, "conv2", x, 32, 32);
    x = model_pool(w, "MaxPool", "pool1", x, 2, 2, 0);
    x = conv3x3_relu(w, "conv3", x, 32, 64);
    x = model_pool(w, "MaxPool", "pool2", x, 2, 2, 0);
    x = flatten(w, x);
    x = model_linear(w, "fc1", x, 64 * 7 * 7, 128, 2);
    x = onnx_node(w, "Relu", "fc1", x, NULL);
    x = model_linear(w, "fc2", x, 128, 10, 1);
    onnx_output(w, x, "logits", 1, ONNX_DIMS(ONNX_BATCH, 10));
}

void model_tiny_cnn(struct onnx_writer *w)
{
    const char *x = onnx_input(w, "input", 1, ONNX_DIMS(ONNX_BATCH, 3, 16, 16));
    x = model_conv_bn(w, "conv1", x, &(struct model_conv){3, 8, 3, 3, 2, 1, 1, 1, 1e-5f, 1});
    x = onnx_node(w, "Relu", "conv1", x, NULL);
    const char *branch =
        model_conv_bn(w, "conv2", x, &(struct model_conv){8, 8, 3, 3, 1, 1, 1, 0.5f, 1e-5f, 1});
    x = onnx_node(w, "Add", "residual", branch, x, NULL);
    x = onnx_node(w, "Relu", "residual", x, NULL);
    x = onnx_node(w, "GlobalAveragePool", "pool", x, NULL);
    x = flatten(w, x);
    x = model_linear(w, "fc", x, 8, 10, 1);
    onnx_output(w, x, "output", 1, ONNX_DIMS(ONNX_BATCH, 10));
}

void model_mlp(struct onnx_writer *w)
{
    const char *x = onnx_input(w, "input", 1, ONNX_DIMS(ONNX_BATCH, 16));
    x = model_linear(w, "fc1", x, 16, 32, 2);
    x = onnx_node(w, "Relu", "fc1", x, NULL);
    x = model_linear(w, "fc2", x, 32, 4, 1);
    onnx_output(w, x, "output", 1, ONNX_DIMS(ONNX_BATCH, 4));
}

void model_identity(struct onnx_writer *w)
{
    const char *x = onnx_input(w, "input", 1, ONNX_DIMS(ONNX_BATCH, 4));
    x = onnx_node(w, "Identity", "identity", x, NULL);
    onnx_output(w, x, "output", 1, ONNX_DIMS(ONNX_BATCH, 4));
}
