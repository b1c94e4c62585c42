/* Folding: what is known at import has the values of ONNX's own node tests (Debian's libonnx-testdata). */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/shape/graph_infer.h"
#include "onnx.pb-c.h"
#include "runtime/base/status.h"
#include "tests/nets/graph_builder.h"

static Onnx__TensorProto *load_tensor(const char *suite_folder, const char *name, const char *file)
{
    static unsigned char bytes[1 << 20];
    char full[1024];
    snprintf(full, sizeof full, "%s/%s/test_data_set_0/%s", suite_folder, name, file);
    FILE *in = fopen(full, "rb");
    if (!in)
        return NULL;
    size_t n = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    return onnx__tensor_proto__unpack(NULL, n, bytes);
}

/* Makes the graph's inputs constants with the test's values. */
static bool bind_inputs(struct sy_graph *g, const char *suite_folder, const char *name)
{
    for (int i = 0; i < g->n_inputs; i++) {
        char file[32];
        snprintf(file, sizeof file, "input_%d.pb", i);
        Onnx__TensorProto *proto = load_tensor(suite_folder, name, file);
        struct sy_tensor *t = &g->tensors[g->inputs[i]];
        bool fits = proto && proto->has_raw_data && (int)t->dtype == proto->data_type;
        if (fits) {
            t->data = malloc(proto->raw_data.len + 1);
            t->data_bytes = proto->raw_data.len;
            if (proto->raw_data.len > 0)
                memcpy(t->data, proto->raw_data.data, proto->raw_data.len);
            t->shape = (struct sy_shape){.rank = (int)proto->n_dims};
            for (size_t k = 0; k < proto->n_dims; k++)
                t->shape.dims[k].fixed = proto->dims[k];
        }
        if (proto)
            onnx__tensor_proto__free_unpacked(proto, NULL);
        if (!fits)
            return false;
    }
    g->n_inputs = 0;
    return true;
}

static double element(enum sy_dtype dtype, const void *data, size_t i)
{
    if (dtype == SY_DTYPE_F32)
        return ((const float *)data)[i];
    if (dtype == SY_DTYPE_F64)
        return ((const double *)data)[i];
    return (double)sy_load_integer(dtype, (const char *)data + i * sy_dtype_bytes(dtype));
}

static void compare_constant(const char *name, const struct sy_tensor *got,
                             const Onnx__TensorProto *want)
{
    if (!want->has_raw_data || got->data_bytes != want->raw_data.len ||
        (int)got->dtype != want->data_type)
        fail_msg("%s: %zu bytes, not %zu", name, got->data_bytes, want->raw_data.len);
    for (size_t i = 0; i < got->data_bytes / sy_dtype_bytes(got->dtype); i++) {
        double a = element(got->dtype, got->data, i),
               b = element(got->dtype, want->raw_data.data, i);
        if (!(fabs(a - b) <= 1e-6 + 1e-5 * fabs(b)) && !(isnan(a) && isnan(b)) && a != b)
            fail_msg("%s: element %zu is %g, not %g", name, i, a, b);
    }
}

/* A constant output is the copy of one. Of a sequence there would be several (NAME[0], ...), in a file of another kind. */
static const struct sy_tensor *known_output(const struct sy_graph *g)
{
    const char *name = g->tensors[g->outputs[0]].name;
    if (name[strlen(name) - 1] == ']')
        return NULL;
    for (int n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].op == SY_OP_IDENTITY && g->nodes[n].outputs[0] == g->outputs[0] &&
            g->tensors[g->nodes[n].inputs[0]].data)
            return &g->tensors[g->nodes[n].inputs[0]];
    return NULL;
}

static int check_fold(const char *suite_folder, const char *name)
{
    char file[1024];
    struct sy_graph *g;
    int compared = 0;
    if (strcmp(name, "test_adam_multiple") == 0) /* of an epsilon that its model does not say */
        return 0;
    snprintf(file, sizeof file, "%s/%s/model.onnx", suite_folder, name);
    if (sy_onnx_read(file, &g) < 0)
        return 0;
    if (bind_inputs(g, suite_folder, name) && sy_graph_infer(g) == SY_OK && known_output(g)) {
        enum sy_dtype dtype = known_output(g)->dtype;
        Onnx__TensorProto *want = load_tensor(suite_folder, name, "output_0.pb");
        if (want && dtype != SY_DTYPE_F16 && dtype != SY_DTYPE_BF16) {
            compare_constant(name, known_output(g), want);
            compared = 1;
        }
        if (want)
            onnx__tensor_proto__free_unpacked(want, NULL);
    }
    sy_graph_free(g);
    return compared;
}

static void test_folded_values(void **state)
{
    (void)state;
    static const char suite[] = "/usr/share/libonnx-testdata/data/node";
    DIR *dir = opendir(suite);
    int n = 0;
    if (!dir) {
        print_message("skipped: %s is not installed (package libonnx-testdata)\n", suite);
        skip();
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.')
            n += check_fold(suite, entry->d_name);
    closedir(dir);
    print_message("%d node tests folded to the expected values\n", n);
    assert_true(n >= 60);
}

/* Weights that are standardised by a BatchNormalization with training_mode, as normalizer-free networks are exported. */
static void test_standardised_weights(void **state)
{
    (void)state;
    enum { CHANNELS = 3, EACH = 7 };
    static const int64_t dims[] = {1, CHANNELS, EACH};
    static const float eps = 1e-4f;
    uint64_t seed = 3;
    struct sy_graph *g = gb_new("standardised");
    int w = gb_constant(g, "w", 3, dims, &seed, -1, 1),
        scale = gb_constant(g, "scale", 1, &dims[1], &seed, 0.5, 2),
        shift = gb_constant(g, "shift", 1, &dims[1], &seed, -1, 1);
    int y = gb_node(g, SY_OP_BATCH_NORM, 5, (int[]){w, scale, shift, shift, scale}, 3, dims);
    g->nodes[0].opset = 15;
    gb_int(g, "training_mode", 1);
    gb_float(g, "epsilon", eps);
    gb_output(g, y);
    float *x = g->tensors[w].data, want[CHANNELS][EACH];
    for (int c = 0; c < CHANNELS; c++) {
        double mean = 0, var = 0;
        for (int i = 0; i < EACH; i++)
            mean += (double)x[c * EACH + i] / EACH;
        for (int i = 0; i < EACH; i++)
            var += ((double)x[c * EACH + i] - mean) * ((double)x[c * EACH + i] - mean) / EACH;
        for (int i = 0; i < EACH; i++)
            want[c][i] = (float)(((double)x[c * EACH + i] - mean) / sqrt(var + (double)eps) *
                                     (double)((float *)g->tensors[scale].data)[c] +
                                 (double)((float *)g->tensors[shift].data)[c]);
    }
    assert_int_equal(sy_graph_infer(g), SY_OK);
    const struct sy_tensor *got = known_output(g);
    assert_non_null(got);
    assert_int_equal(got->data_bytes, sizeof want);
    for (int i = 0; i < CHANNELS * EACH; i++)
        assert_true(fabsf(((float *)got->data)[i] - want[i / EACH][i % EACH]) < 1e-5f);
    sy_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_folded_values),
                                       cmocka_unit_test(test_standardised_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
