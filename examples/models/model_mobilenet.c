#include "examples/models/models.h"

static const float bn_epsilon = 1e-5f;

static const char *relu6(struct onnx_writer *w, const char *scope, const char *x)
{
    const char *low = onnx_scalar(w, onnx_name(w, "%s.low", scope), 0),
               *high = onnx_scalar(w, onnx_name(w, "%s.high", scope), 6);
    return onnx_node(w, "Clip", scope, x, low, high, NULL);
}

static const char *conv(struct onnx_writer *w, const char *scope, const char *x,
                        struct model_conv c)
{
    c.kernel_w = c.kernel_h;
    c.pad_h = c.pad_w = c.kernel_h / 2;
    c.epsilon = bn_epsilon;
    return model_conv_bn(w, scope, x, &c);
}

/* Expand, depthwise, project; a sum where input and output agree. */
static const char *block(struct onnx_writer *w, const char *scope, const char *x, int64_t in,
                         int64_t out, int64_t stride, int64_t expansion)
{
    const char *y = x, *name;
    int64_t wide = in * expansion;
    if (expansion != 1) {
        name = onnx_name(w, "%s.expand", scope);
        y = conv(
            w, name, y,
            (struct model_conv){.in = in, .out = wide, .kernel_h = 1, .stride = 1, .gamma = 1});
        y = relu6(w, name, y);
    }
    name = onnx_name(w, "%s.depthwise", scope);
    y = conv(
        w, name, y,
        (struct model_conv){
            .in = wide, .out = wide, .kernel_h = 3, .stride = stride, .gamma = 1, .groups = wide});
    y = relu6(w, name, y);
    y = conv(
        w, onnx_name(w, "%s.project", scope), y,
        (struct model_conv){.in = wide, .out = out, .kernel_h = 1, .stride = 1, .gamma = 0.5f});
    return in == out && stride == 1 ? onnx_node(w, "Add", scope, x, y, NULL) : y;
}

void model_mobilenet_v2(struct onnx_writer *w)
{
    static const struct {
        int64_t expansion, out;
        int n;
        int64_t stride;
    } stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                  {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    const char *x = onnx_input(w, "input", 1, ONNX_DIMS(ONNX_BATCH, 3, 224, 224));
    int64_t in = 32;
    x = conv(w, "stem", x,
             (struct model_conv){.in = 3, .out = in, .kernel_h = 3, .stride = 2, .gamma = 1});
    x = relu6(w, "stem", x);
    for (int s = 0; s < ONNX_LEN(stages); s++)
        for (int i = 0; i < stages[s].n; i++) {
            x = block(w, onnx_name(w, "stage%d.%d", s, i), x, in, stages[s].out,
                      i == 0 ? stages[s].stride : 1, stages[s].expansion);
            in = stages[s].out;
        }
    x = conv(w, "head", x,
             (struct model_conv){.in = in, .out = 1280, .kernel_h = 1, .stride = 1, .gamma = 1});
    x = relu6(w, "head", x);
    x = onnx_node(w, "GlobalAveragePool", "avgpool", x, NULL);
    x = onnx_node(w, "Flatten", "flatten", x, NULL);
    onnx_int(w, "axis", 1);
    x = model_linear(w, "classifier", x, 1280, 1000, 1);
    onnx_output(w, x, "output", 1, ONNX_DIMS(ONNX_BATCH, 1000));
}
