/* The example models. Each function adds one whole model to the writer. */
#ifndef EXAMPLES_MODELS_H
#define EXAMPLES_MODELS_H

#include "examples/models/onnx_writer.h"

/* ResNet v1.5 (He et al. 2016; stride on the 3x3 convolution as in torchvision). */
void model_resnet152(struct onnx_writer *w);
void model_resnet50(struct onnx_writer *w);
void model_resnet18(struct onnx_writer *w);
/* Inception-v3 (Szegedy et al. 2016), no auxiliary head, 299x299. */
void model_inception_v3(struct onnx_writer *w);
/* MobileNet-v2, width 1 (Sandler et al. 2018): depthwise convolutions and ReLU6 as Clip. */
void model_mobilenet_v2(struct onnx_writer *w);
/* Text classifier: embedding of 10000 tokens, 2 bidirectional LSTM layers of 512, mean over 128 steps, 20 classes. Tokens 0..9999. */
void model_lstm_text(struct onnx_writer *w);
/* BERT-base, uncased sizes (Devlin et al. 2019), sequence 128. Tokens 0..30521, types 0..1, mask 0 or 1. */
void model_bert_base(struct onnx_writer *w);
/* 2 layers, hidden 128, 2 heads, vocabulary 1000, sequence 32. */
void model_bert_tiny(struct onnx_writer *w);
void model_bert_sequence(struct onnx_writer *w);
void model_bert_tiny_sequence(struct onnx_writer *w);

/* 8.05 thousand million weights in 32 layers, tokens 0..31999, sequence 128; the file has one layer's, 1.5 GB. */
void model_decoder_8b(struct onnx_writer *w);
/* 3 layers, hidden 64, tokens 0..99, sequence 20. */
void model_decoder_tiny(struct onnx_writer *w);

/* 32 layers of attention alone, 12 heads of 64: of 128 and of 1024 positions, and of 1024 that see only what is before them. */
void model_attention_128(struct onnx_writer *w);
void model_attention_1024(struct onnx_writer *w);
void model_attention_causal_1024(struct onnx_writer *w);

/* To be trained: Fashion-MNIST's images, texts of 8 languages (bytes or n-grams), the next byte of a text; BERT-base's encoder with one
 * input and a mean over the text, 16 classes. */
void model_fashion_mlp(struct onnx_writer *w);
void model_fashion_vgg(struct onnx_writer *w);
void model_fashion_resnet18(struct onnx_writer *w);
void model_text_bag(struct onnx_writer *w);
void model_text_bilstm(struct onnx_writer *w);
void model_text_lstm(struct onnx_writer *w);
void model_text_transformer(struct onnx_writer *w);
void model_bert_classifier(struct onnx_writer *w);

void model_mnist_cnn(struct onnx_writer *w);
void model_tiny_cnn(struct onnx_writer *w);
void model_mlp(struct onnx_writer *w);
void model_identity(struct onnx_writer *w);

/* Building blocks. */

struct model_conv {
    int64_t in, out, kernel_h, kernel_w, stride, pad_h, pad_w;
    float gamma;    /* BN: mean of the scale */
    float epsilon;  /* BN */
    int64_t groups; /* 0: one */
};

/* Convolution with He-initialised weights `scope`.weight and a bias. */
const char *model_conv_bias(struct onnx_writer *w, const char *scope, const char *x,
                            const struct model_conv *conv);
/* Convolution without bias, then BatchNormalization. */
const char *model_conv_bn(struct onnx_writer *w, const char *scope, const char *x,
                          const struct model_conv *conv);
/* Gemm with transB, as nn.Linear exports on 2-D input. `gain`: 1 linear, 2 before ReLU. */
const char *model_linear(struct onnx_writer *w, const char *scope, const char *x, int64_t in,
                         int64_t out, double gain);
/* "MaxPool" or "AveragePool" with a square window. */
const char *model_pool(struct onnx_writer *w, const char *op, const char *scope, const char *x,
                       int64_t kernel, int64_t stride, int64_t pad);

#endif
