#include "examples/models/models.h"

/* Convolution, BatchNormalization (epsilon 1e-3), ReLU. */
static const char *conv(struct onnx_writer *w, const char *scope, const char *name, const char *x,
                        int64_t in, int64_t out, int64_t kernel_h, int64_t kernel_w, int64_t stride,
                        int64_t pad_h, int64_t pad_w)
{
    const char *full = *scope ? onnx_name(w, "%s.%s", scope, name) : name;
    x = model_conv_bn(
        w, full, x,
        &(struct model_conv){in, out, kernel_h, kernel_w, stride, pad_h, pad_w, 1.0f, 1e-3f, 1});
    return onnx_node(w, "Relu", full, x, NULL);
}

static const char *conv1x1(struct onnx_writer *w, const char *scope, const char *name,
                           const char *x, int64_t in, int64_t out)
{
    return conv(w, scope, name, x, in, out, 1, 1, 1, 0, 0);
}

static const char *conv_same(struct onnx_writer *w, const char *scope, const char *name,
                             const char *x, int64_t in, int64_t out, int64_t kernel_h,
                             int64_t kernel_w)
{
    return conv(w, scope, name, x, in, out, kernel_h, kernel_w, 1, kernel_h / 2, kernel_w / 2);
}

static const char *pool_branch(struct onnx_writer *w, const char *scope, const char *x, int64_t in,
                               int64_t out)
{
    x = model_pool(w, "AveragePool", scope, x, 3, 1, 1);
    onnx_int(w, "count_include_pad", 1);
    return conv1x1(w, scope, "branch_pool", x, in, out);
}

static const char *concat(struct onnx_writer *w, const char *scope, const char *a, const char *b,
                          const char *c, const char *d)
{
    const char *y =
        onnx_node(w, "Concat", scope, a, b, c, d, NULL); /* c, d may be NULL: fewer inputs */
    onnx_int(w, "axis", 1);
    return y;
}

static const char *module_a(struct onnx_writer *w, const char *s, const char *x, int64_t in,
                            int64_t pool_out)
{
    const char *b1 = conv1x1(w, s, "branch1x1", x, in, 64);
    const char *b5 = conv1x1(w, s, "branch5x5_1", x, in, 48);
    b5 = conv_same(w, s, "branch5x5_2", b5, 48, 64, 5, 5);
    const char *b3 = conv1x1(w, s, "branch3x3dbl_1", x, in, 64);
    b3 = conv_same(w, s, "branch3x3dbl_2", b3, 64, 96, 3, 3);
    b3 = conv_same(w, s, "branch3x3dbl_3", b3, 96, 96, 3, 3);
    return concat(w, s, b1, b5, b3, pool_branch(w, s, x, in, pool_out));
}

static const char *module_b(struct onnx_writer *w, const char *s, const char *x, int64_t in)
{
    const char *b3 = conv(w, s, "branch3x3", x, in, 384, 3, 3, 2, 0, 0);
    const char *dbl = conv1x1(w, s, "branch3x3dbl_1", x, in, 64);
    dbl = conv_same(w, s, "branch3x3dbl_2", dbl, 64, 96, 3, 3);
    dbl = conv(w, s, "branch3x3dbl_3", dbl, 96, 96, 3, 3, 2, 0, 0);
    return concat(w, s, b3, dbl, model_pool(w, "MaxPool", s, x, 3, 2, 0), NULL);
}

static const char *module_c(struct onnx_writer *w, const char *s, const char *x, int64_t c7)
{
    const char *b1 = conv1x1(w, s, "branch1x1", x, 768, 192);
    const char *b7 = conv1x1(w, s, "branch7x7_1", x, 768, c7);
    b7 = conv_same(w, s, "branch7x7_2", b7, c7, c7, 1, 7);
    b7 = conv_same(w, s, "branch7x7_3", b7, c7, 192, 7, 1);
    const char *dbl = conv1x1(w, s, "branch7x7dbl_1", x, 768, c7);
    dbl = conv_same(w, s, "branch7x7dbl_2", dbl, c7, c7, 7, 1);
    dbl = conv_same(w, s, "branch7x7dbl_3", dbl, c7, c7, 1, 7);
    dbl = conv_same(w, s, "branch7x7dbl_4", dbl, c7, c7, 7, 1);
    dbl = conv_same(w, s, "branch7x7dbl_5", dbl, c7, 192, 1, 7);
    return concat(w, s, b1, b7, dbl, pool_branch(w, s, x, 768, 192));
}

static const char *module_d(struct onnx_writer *w, const char *s, const char *x)
{
    const char *b3 = conv1x1(w, s, "branch3x3_1", x, 768, 192);
    b3 = conv(w, s, "branch3x3_2", b3, 192, 320, 3, 3, 2, 0, 0);
    const char *b7 = conv1x1(w, s, "branch7x7x3_1", x, 768, 192);
    b7 = conv_same(w, s, "branch7x7x3_2", b7, 192, 192, 1, 7);
    b7 = conv_same(w, s, "branch7x7x3_3", b7, 192, 192, 7, 1);
    b7 = conv(w, s, "branch7x7x3_4", b7, 192, 192, 3, 3, 2, 0, 0);
    return concat(w, s, b3, b7, model_pool(w, "MaxPool", s, x, 3, 2, 0), NULL);
}

/* A 1x3 and a 3x1 convolution side by side. */
static const char *fork_3(struct onnx_writer *w, const char *s, const char *name, const char *x)
{
    const char *a = conv_same(w, s, onnx_name(w, "%sa", name), x, 384, 384, 1, 3);
    const char *b = conv_same(w, s, onnx_name(w, "%sb", name), x, 384, 384, 3, 1);
    return concat(w, s, a, b, NULL, NULL);
}

static const char *module_e(struct onnx_writer *w, const char *s, const char *x, int64_t in)
{
    const char *b1 = conv1x1(w, s, "branch1x1", x, in, 320);
    const char *b3 = conv1x1(w, s, "branch3x3_1", x, in, 384);
    b3 = fork_3(w, s, "branch3x3_2", b3);
    const char *dbl = conv1x1(w, s, "branch3x3dbl_1", x, in, 448);
    dbl = conv_same(w, s, "branch3x3dbl_2", dbl, 448, 384, 3, 3);
    dbl = fork_3(w, s, "branch3x3dbl_3", dbl);
    return concat(w, s, b1, b3, dbl, pool_branch(w, s, x, in, 192));
}

static const char *stem(struct onnx_writer *w, const char *x)
{
    x = conv(w, "", "Conv2d_1a_3x3", x, 3, 32, 3, 3, 2, 0, 0);
    x = conv(w, "", "Conv2d_2a_3x3", x, 32, 32, 3, 3, 1, 0, 0);
    x = conv_same(w, "", "Conv2d_2b_3x3", x, 32, 64, 3, 3);
    x = model_pool(w, "MaxPool", "maxpool1", x, 3, 2, 0);
    x = conv1x1(w, "", "Conv2d_3b_1x1", x, 64, 80);
    x = conv(w, "", "Conv2d_4a_3x3", x, 80, 192, 3, 3, 1, 0, 0);
    return model_pool(w, "MaxPool", "maxpool2", x, 3, 2, 0);
}

void model_inception_v3(struct onnx_writer *w)
{
    const char *x = onnx_input(w, "input", 1, ONNX_DIMS(ONNX_BATCH, 3, 299, 299));
    x = stem(w, x);
    x = module_a(w, "Mixed_5b", x, 192, 32);
    x = module_a(w, "Mixed_5c", x, 256, 64);
    x = module_a(w, "Mixed_5d", x, 288, 64);
    x = module_b(w, "Mixed_6a", x, 288);
    x = module_c(w, "Mixed_6b", x, 128);
    x = module_c(w, "Mixed_6c", x, 160);
    x = module_c(w, "Mixed_6d", x, 160);
    x = module_c(w, "Mixed_6e", x, 192);
    x = module_d(w, "Mixed_7a", x);
    x = module_e(w, "Mixed_7b", x, 1280);
    x = module_e(w, "Mixed_7c", x, 2048);
    x = onnx_node(w, "GlobalAveragePool", "avgpool", x, NULL);
    x = onnx_node(w, "Flatten", "flatten", x, NULL);
    onnx_int(w, "axis", 1);
    x = model_linear(w, "fc", x, 2048, 1000, 1);
    onnx_output(w, x, "output", 1, ONNX_DIMS(ONNX_BATCH, 1000));
}
