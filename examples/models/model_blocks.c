#include <math.h>

#include "examples/models/models.h"

static const char *conv_node(struct onnx_writer *w, const char *scope, const char *x,
                             const struct model_conv *c)
{
    int64_t groups = c->groups ? c->groups : 1;
    int64_t fan_in = c->in / groups * c->kernel_h * c->kernel_w;
    const char *weight = onnx_random(w, onnx_name(w, "%s.weight", scope),
                                     ONNX_DIMS(c->out, c->in / groups, c->kernel_h, c->kernel_w), 0,
                                     sqrt(2 / (double)fan_in));
    const char *y = onnx_node(w, "Conv", scope, x, weight, NULL);
    onnx_ints(w, "dilations", ONNX_DIMS(1, 1));
    onnx_int(w, "group", groups);
    onnx_ints(w, "kernel_shape", ONNX_DIMS(c->kernel_h, c->kernel_w));
    onnx_ints(w, "pads", ONNX_DIMS(c->pad_h, c->pad_w, c->pad_h, c->pad_w));
    onnx_ints(w, "strides", ONNX_DIMS(c->stride, c->stride));
    return y;
}

const char *model_conv_bias(struct onnx_writer *w, const char *scope, const char *x,
                            const struct model_conv *conv)
{
    const char *y = conv_node(w, scope, x, conv);
    onnx_add_input(w,
                   onnx_random(w, onnx_name(w, "%s.bias", scope), ONNX_DIMS(conv->out), 0, 0.05));
    return y;
}

/* Statistics near those that He initialisation gives (mean 0, variance 1), but not trivial, so that a wrong
 * folding shows in the output. */
const char *model_conv_bn(struct onnx_writer *w, const char *scope, const char *x,
                          const struct model_conv *conv)
{
    const char *y = conv_node(w, onnx_name(w, "%s.conv", scope), x, conv);
    const char *bn = onnx_name(w, "%s.bn", scope);
    double gamma = conv->gamma;
    const char *scale =
        onnx_random(w, onnx_name(w, "%s.weight", bn), ONNX_DIMS(conv->out), gamma, 0.1 * gamma);
    const char *bias = onnx_random(w, onnx_name(w, "%s.bias", bn), ONNX_DIMS(conv->out), 0, 0.05);
    const char *mean =
        onnx_random(w, onnx_name(w, "%s.running_mean", bn), ONNX_DIMS(conv->out), 0, 0.05);
    const char *var =
        onnx_random(w, onnx_name(w, "%s.running_var", bn), ONNX_DIMS(conv->out), 1, 0.05);
    y = onnx_node(w, "BatchNormalization", bn, y, scale, bias, mean, var, NULL);
    onnx_float(w, "epsilon", conv->epsilon);
    onnx_float(w, "momentum", 0.9f);
    return y;
}

const char *model_linear(struct onnx_writer *w, const char *scope, const char *x, int64_t in,
                         int64_t out, double gain)
{
    const char *weight = onnx_random(w, onnx_name(w, "%s.weight", scope), ONNX_DIMS(out, in), 0,
                                     sqrt(gain / (double)in));
    const char *bias = onnx_random(w, onnx_name(w, "%s.bias", scope), ONNX_DIMS(out), 0, 0.05);
    const char *y = onnx_node(w, "Gemm", scope, x, weight, bias, NULL);
    onnx_float(w, "alpha", 1);
    onnx_float(w, "beta", 1);
    onnx_int(w, "transB", 1);
    return y;
}

const char *model_pool(struct onnx_writer *w, const char *op, const char *scope, const char *x,
                       int64_t kernel, int64_t stride, int64_t pad)
{
    const char *y = onnx_node(w, op, scope, x, NULL);
    onnx_ints(w, "kernel_shape", ONNX_DIMS(kernel, kernel));
    onnx_ints(w, "pads", ONNX_DIMS(pad, pad, pad, pad));
    onnx_ints(w, "strides", ONNX_DIMS(stride, stride));
    return y;
}
