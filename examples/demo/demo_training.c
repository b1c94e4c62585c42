#include "examples/demo/demo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA "/usr/share/datasets/fashion-mnist/"

int demo_write_job(const struct demo *demo, const char *path, const char *name, uint64_t max_steps)
{
    char model[512], folder[512];
    char *base = realpath(demo->models_folder, NULL);
    char *out = realpath(demo->folder, NULL);
    snprintf(model, sizeof model, "%s/mnist_cnn/1/model.onnx", base ? base : demo->models_folder);
    snprintf(folder, sizeof folder, "%s/snapshots-%s", out ? out : demo->folder, name);
    free(base);
    free(out);
    json_t *job = json_pack(
        "{s:s, s:s, s:s, s:{s:s, s:f, s:f}, s:{s:s, s:s, s:s, s:s, s:s}, s:i, s:i, s:I, s:i, "
        "s:{s:s, s:i}}",
        "name", name, "model", model, "loss", "softmax_cross_entropy", "optimizer", "kind", "sgd",
        "learning_rate", 0.02, "momentum", 0.9, "data", "kind", "idx", "images",
        DATA "train-images-idx3-ubyte.gz", "labels", DATA "train-labels-idx1-ubyte.gz",
        "test_images", DATA "t10k-images-idx3-ubyte.gz", "test_labels",
        DATA "t10k-labels-idx1-ubyte.gz", "batch", 64, "epochs", 1000, "max_steps",
        (json_int_t)max_steps, "seed", 1, "snapshot", "folder", folder, "every_steps", 500);
    int status = job ? json_dump_file(job, path, JSON_INDENT(2)) : -1;
    json_decref(job);
    return status;
}

int demo_job_submit(sy_client *client, const char *path, uint64_t *out)
{
    json_error_t error;
    json_t *job = json_load_file(path, 0, &error);
    char *text = job ? json_dumps(job, JSON_COMPACT) : NULL;
    json_t *answer = text ? demo_call(client, "train", json_pack("{s:s}", "text", text)) : NULL;
    json_t *id = json_object_get(answer, "job");
    *out = (uint64_t)json_integer_value(id);
    int status = id ? 0 : -1;
    json_decref(job);
    json_decref(answer);
    free(text);
    return status;
}

int demo_job_state(json_t *status, uint64_t job, struct demo_job_state *out)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(status, "jobs"), i, entry)
    {
        if ((uint64_t)json_integer_value(json_object_get(entry, "job")) != job)
            continue;
        json_t *accuracy = json_object_get(entry, "accuracy");
        const char *state = json_string_value(json_object_get(entry, "state"));
        const char *error = json_string_value(json_object_get(entry, "error"));
        out->step = (uint64_t)json_integer_value(json_object_get(entry, "step"));
        out->snapshot_step = (uint64_t)json_integer_value(json_object_get(entry, "snapshot_step"));
        out->loss = json_number_value(json_object_get(entry, "loss"));
        out->accuracy = json_is_number(accuracy) ? json_number_value(accuracy) : -1;
        out->longest_layer_ms = json_number_value(json_object_get(entry, "longest_layer_ns")) / 1e6;
        const char *longest = json_string_value(json_object_get(entry, "longest_layer"));
        snprintf(out->longest_layer, sizeof out->longest_layer, "%s", longest ? longest : "");
        out->ended = state && (strcmp(state, "ended") == 0 || strcmp(state, "failed") == 0);
        snprintf(out->error, sizeof out->error, "%s", error ? error : "");
        return 0;
    }
    return -1;
}

/* A safetensors file without its header: 8 bytes of length, the header, then the tensors. */
static char *read_tensors(const char *path, size_t *bytes)
{
    unsigned char head[8];
    uint64_t skip = 0;
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *data = NULL;
    if (fread(head, 1, 8, file) == 8) {
        for (int i = 7; i >= 0; i--)
            skip = skip << 8 | head[i];
        fseek(file, 0, SEEK_END);
        long end = ftell(file);
        if (end > 0 && skip < (uint64_t)end - 8) {
            *bytes = (size_t)end - 8 - skip;
            fseek(file, (long)(8 + skip), SEEK_SET);
            data = malloc(*bytes);
            if (data && fread(data, 1, *bytes, file) != *bytes) {
                free(data);
                data = NULL;
            }
        }
    }
    fclose(file);
    return data;
}

int demo_same_snapshots(const char *a, const char *b, bool *same)
{
    size_t a_bytes = 0, b_bytes = 0;
    char *x = read_tensors(a, &a_bytes), *y = read_tensors(b, &b_bytes);
    int status = x && y ? 0 : -1;
    if (status < 0)
        fprintf(stderr, "demo: cannot read %s\n", x ? b : a);
    *same = status == 0 && a_bytes == b_bytes && memcmp(x, y, a_bytes) == 0;
    free(x);
    free(y);
    return status;
}
