#include "examples/models/models.h"

/* Small last scale of each residual branch: otherwise 50 summed branches grow the activations. */
static const float residual_gamma = 0.2f;
static const float bn_epsilon = 1e-5f;

struct resnet {
    int bottleneck;
    int n_blocks[4];
};

static const char *conv(struct onnx_writer *w, const char *scope, const char *x, int64_t in,
                        int64_t out, int64_t kernel, int64_t stride, float gamma)
{
    int64_t pad = kernel / 2;
    return model_conv_bn(
        w, scope, x,
        &(struct model_conv){in, out, kernel, kernel, stride, pad, pad, gamma, bn_epsilon, 1});
}

static const char *basic_branch(struct onnx_writer *w, const char *scope, const char *x, int64_t in,
                                int64_t width, int64_t stride)
{
    x = conv(w, onnx_name(w, "%s.1", scope), x, in, width, 3, stride, 1);
    x = onnx_node(w, "Relu", scope, x, NULL);
    return conv(w, onnx_name(w, "%s.2", scope), x, width, width, 3, 1, residual_gamma);
}

static const char *bottleneck_branch(struct onnx_writer *w, const char *scope, const char *x,
                                     int64_t in, int64_t width, int64_t stride)
{
    x = conv(w, onnx_name(w, "%s.1", scope), x, in, width, 1, 1, 1);
    x = onnx_node(w, "Relu", scope, x, NULL);
    x = conv(w, onnx_name(w, "%s.2", scope), x, width, width, 3, stride, 1);
    x = onnx_node(w, "Relu", scope, x, NULL);
    return conv(w, onnx_name(w, "%s.3", scope), x, width, 4 * width, 1, 1, residual_gamma);
}

static const char *block(struct onnx_writer *w, const struct resnet *net, const char *scope,
                         const char *x, int64_t in, int64_t width, int64_t stride)
{
    int64_t out = net->bottleneck ? 4 * width : width;
    const char *branch = net->bottleneck ? bottleneck_branch(w, scope, x, in, width, stride)
                                         : basic_branch(w, scope, x, in, width, stride);
    if (in != out || stride != 1)
        x = conv(w, onnx_name(w, "%s.downsample", scope), x, in, out, 1, stride, 1);
    x = onnx_node(w, "Add", scope, branch, x, NULL);
    return onnx_node(w, "Relu", scope, x, NULL);
}

static void resnet(struct onnx_writer *w, const struct resnet *net)
{
    const char *x = onnx_input(w, "input", 1, ONNX_DIMS(ONNX_BATCH, 3, 224, 224));
    x = conv(w, "stem", x, 3, 64, 7, 2, 1);
    x = onnx_node(w, "Relu", "stem", x, NULL);
    x = model_pool(w, "MaxPool", "stem", x, 3, 2, 1);
    int64_t in = 64;
    for (int stage = 0; stage < 4; stage++) {
        int64_t width = 64ll << stage;
        for (int i = 0; i < net->n_blocks[stage]; i++) {
            const char *scope = onnx_name(w, "layer%d.%d", stage + 1, i);
            x = block(w, net, scope, x, in, width, stage > 0 && i == 0 ? 2 : 1);
            in = net->bottleneck ? 4 * width : width;
        }
    }
    x = onnx_node(w, "GlobalAveragePool", "avgpool", x, NULL);
    x = onnx_node(w, "Flatten", "flatten", x, NULL);
    onnx_int(w, "axis", 1);
    x = model_linear(w, "fc", x, in, 1000, 1);
    onnx_output(w, x, "output", 1, ONNX_DIMS(ONNX_BATCH, 1000));
}

void model_resnet152(struct onnx_writer *w)
{
    resnet(w, &(struct resnet){1, {3, 8, 36, 3}});
}

void model_resnet50(struct onnx_writer *w)
{
    resnet(w, &(struct resnet){1, {3, 4, 6, 3}});
}

void model_resnet18(struct onnx_writer *w)
{
    resnet(w, &(struct resnet){0, {2, 2, 2, 2}});
}
