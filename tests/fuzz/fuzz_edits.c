/* Well-formed models that are wrong: an input is which model, and the choices of some edits of it (tests/nets/model_edit.h). Whatever comes out is
 * refused, or imported and run. */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "tests/fuzz/fuzz.h"
#include "tests/nets/model_edit.h"
#include "tests/nets/model_lines.h"
#include "tests/rigs/whole_import.h"

#define MAX_MODELS 2000
#define MAX_BYTES  16384
#define MAX_EDITS  6

static const char *const lines[] = {
    "Conv x:f[N,3,8,8] w=f[4,3,3,3] b=f[4] .pads=[1,1,1,1] .strides=[2,2]",
    "MaxPool x:f[N,3,8,8] .kernel_shape=[2,2] .strides=[2,2]",
    "Gemm x:f[N,8] w=f[4,8] b=f[4] .transB=1",
    "LSTM x:f[5,N,4] w=f[1,12,4] r=f[1,12,3] .hidden_size=3",
    "Resize x:f[N,1,4,4] - s=f{1,1,2,2} .mode='linear'",
    "Slice x:f[N,8] a=i{1} b=i{7} c=i{1} d=i{2}",
    "Reshape x:f[N,8] s=i{-1,2,4}",
};

struct stored {
    size_t n;
    unsigned char *bytes;
};

static struct stored models[MAX_MODELS];
static int n_models;
static char folder[64];

static void keep(const char *path)
{
    static unsigned char bytes[MAX_BYTES];
    FILE *file = fopen(path, "rb");
    FUZZ_CHECK(file);
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    if (n == 0 || n == sizeof bytes || n_models == MAX_MODELS)
        return;
    models[n_models].bytes = malloc(n);
    FUZZ_CHECK(models[n_models].bytes);
    memcpy(models[n_models].bytes, bytes, n);
    models[n_models++].n = n;
}

static char *found[MAX_MODELS];
static int n_found;

static int note(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)where;
    if (kind == FTW_F && strcmp(strrchr(path, '/') + 1, "model.onnx") == 0 &&
        info->st_size < MAX_BYTES && n_found < MAX_MODELS)
        found[n_found++] = strdup(path);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Ours first, then ONNX's own, where they are installed, in the same order everywhere. */
static void load_models(void)
{
    char path[96];
    if (n_models > 0)
        return;
    snprintf(folder, sizeof folder, "%s/sy-edits-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/line.onnx", folder);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        model_line_save(path, lines[i]);
        keep(path);
    }
    unlink(path);
    nftw("/usr/share/libonnx-testdata/data", note, 8, FTW_PHYS);
    qsort(found, (size_t)n_found, sizeof *found, by_name);
    for (int i = 0; i < n_found; i++) {
        keep(found[i]);
        free(found[i]);
    }
}

/* Two bytes a choice; zeros behind the end. */
struct stream {
    const uint8_t *at, *end;
};

static uint64_t draw(void *ctx)
{
    struct stream *s = ctx;
    uint64_t value = 0;
    for (int i = 0; i < 2 && s->at < s->end; i++)
        value = value << 8 | *s->at++;
    return value;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct whole_limits limits = {2, 1 << 14, 16u << 20};
    struct stream stream = {data, data + size};
    const struct edit_choices choices = {draw, &stream};
    volatile int stage = 0;
    int status;
    char text[160], package[96];
    load_models();
    snprintf(package, sizeof package, "%s/model.sypkg", folder);
    const struct stored *from = &models[draw(&stream) % (uint64_t)n_models];
    Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, from->n, from->bytes);
    FUZZ_CHECK(model);
    for (int i = 0; i < MAX_EDITS && stream.at < stream.end; i++)
        model_edit(model, &choices, text, sizeof text);
    size_t n = onnx__model_proto__get_packed_size(model);
    unsigned char *bytes = malloc(n + 1);
    FUZZ_CHECK(bytes);
    onnx__model_proto__pack(model, bytes);
    onnx__model_proto__free_unpacked(model, NULL);
    sy_error_set(SY_OK, "%s", "");
    whole_import(fuzz_file(bytes, n), package, &limits, (unsigned)size, &stage, &status);
    FUZZ_CHECK(status == SY_OK || *sy_error_text());
    free(bytes);
    return 0;
}

/* Every model, with choices that pick an edit each. */
size_t fuzz_seed(int i, uint8_t *to, size_t room)
{
    load_models();
    if (i >= 512 || room < 16)
        return 0;
    unsigned seed = (unsigned)i + 1;
    int model = (int)((long)i * n_models / 512);
    to[0] = (uint8_t)(model >> 8);
    to[1] = (uint8_t)model;
    for (int k = 2; k < 16; k++)
        to[k] = (uint8_t)rand_r(&seed);
    return 16;
}

__attribute__((destructor)) static void forget_models(void)
{
    while (n_models > 0)
        free(models[--n_models].bytes);
    if (*folder)
        rmdir(folder);
}
