/* make-models [--out DIR] [NAME...]: writes DIR/NAME/1/model.onnx, the layout of a Triton model repository. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "examples/models/models.h"

static const struct model {
    const char *name;
    void (*build)(struct onnx_writer *w);
    const char *what;
} models[] = {
    {"resnet152", model_resnet152, "ResNet-152 v1.5, 224x224, 241 MB"},
    {"inception_v3", model_inception_v3, "Inception-v3 without auxiliary head, 299x299, 95 MB"},
    {"bert_base", model_bert_base, "BERT-base, sequence 128, 438 MB"},
    {"resnet50", model_resnet50, "ResNet-50 v1.5, 224x224, 102 MB"},
    {"mobilenet_v2", model_mobilenet_v2, "MobileNet-v2, 224x224, 14 MB"},
    {"lstm_text", model_lstm_text, "2 bidirectional LSTM layers of 512, sequence 128, 63 MB"},
    {"mnist_cnn", model_mnist_cnn, "CNN for 28x28 images, for training"},
    {"fashion_mlp", model_fashion_mlp, "three linear layers for 28x28 images, for training"},
    {"fashion_vgg", model_fashion_vgg, "VGG style with batch normalisation, for training"},
    {"fashion_resnet18", model_fashion_resnet18, "ResNet-18 for 28x28 images, for training"},
    {"text_bag", model_text_bag, "mean of n-gram embeddings, 8 classes, for training"},
    {"text_bilstm", model_text_bilstm, "bidirectional LSTM, 8 classes, for training"},
    {"text_transformer", model_text_transformer, "2 encoder layers, 8 classes, for training"},
    {"text_lstm", model_text_lstm, "LSTM that tells the next byte, for training"},
    {"bert_classifier", model_bert_classifier, "BERT-base's encoder, 16 classes, for training"},
    {"bert_sequence", model_bert_sequence, "BERT-base, three inputs, 16 classes, for training"},
    {"bert_tiny_sequence", model_bert_tiny_sequence, "bert_tiny with 8 classes, for training"},
    {"resnet18", model_resnet18, "ResNet-18, 47 MB"},
    {"bert_tiny", model_bert_tiny, "BERT of 2 layers, sequence 32"},
    {"decoder_tiny", model_decoder_tiny, "decoder of 3 layers, sequence 20"},
    {"decoder_8b", model_decoder_8b,
     "decoder of 8 billion weights, sequence 128, 1.5 GB; made only when named"},
    {"attention_128", model_attention_128, "32 layers of attention alone, 128 positions"},
    {"attention_1024", model_attention_1024, "the same of 1024 positions"},
    {"attention_causal_1024", model_attention_causal_1024, "the same with a causal mask"},
    {"tiny_cnn", model_tiny_cnn, "two convolutions and a residual"},
    {"mlp", model_mlp, "two linear layers"},
    {"identity", model_identity, "nothing: output = input"},
};

static void usage(FILE *to)
{
    fprintf(to, "usage: make-models [--out DIR] [NAME...]\n"
                "Writes DIR/NAME/1/model.onnx (DIR: build/models); all but the largest when none "
                "is named.\n");
    for (int i = 0; i < ONNX_LEN(models); i++)
        fprintf(to, "  %-14s %s\n", models[i].name, models[i].what);
}

/* mkdir -p of everything before the last slash. */
static int make_folders(const char *path)
{
    char folder[4096];
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    return 0;
}

static int make_model(const struct model *model, const char *out)
{
    char path[4096];
    struct stat info;
    if (snprintf(path, sizeof path, "%s/%s/1/model.onnx", out, model->name) >= (int)sizeof path) {
        fprintf(stderr, "make-models: the path of %s is too long\n", model->name);
        return -1;
    }
    if (stat(path, &info) == 0) {
        printf("%-14s is there: %s\n", model->name, path);
        return 0;
    }
    printf("%-14s ...", model->name);
    fflush(stdout);
    struct onnx_writer *w = onnx_writer_open(model->name);
    model->build(w);
    int status = make_folders(path) == 0 ? onnx_writer_save(w, path) : -1;
    int why = errno;
    onnx_writer_close(w);
    if (status != 0 || stat(path, &info) != 0) {
        printf("\n");
        fprintf(stderr, "make-models: cannot write %s: %s\n", path, strerror(why));
        return -1;
    }
    printf(" %7.1f MB  %s\n", (double)info.st_size / 1e6, path);
    return 0;
}

static const struct model *find(const char *name)
{
    for (int i = 0; i < ONNX_LEN(models); i++)
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    fprintf(stderr, "make-models: no model '%s'; --help lists them\n", name);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *out = "build/models";
    const struct model *chosen[ONNX_LEN(models)];
    int n_chosen = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            usage(stdout);
            return 0;
        }
        if (strcmp(argv[i], "--out") == 0 && i + 1 < argc) {
            out = argv[++i];
        } else {
            const struct model *model = find(argv[i]);
            if (!model || n_chosen == ONNX_LEN(models))
                return 2;
            chosen[n_chosen++] = model;
        }
    }
    for (int i = 0; n_chosen == 0 && i < ONNX_LEN(models); i++)
        if (models[i].build != model_decoder_8b && make_model(&models[i], out) != 0)
            return 1;
    for (int i = 0; i < n_chosen; i++)
        if (make_model(chosen[i], out) != 0)
            return 1;
    return 0;
}
