/* The paper's models on the GPU against the host engine; memory over a thousand swaps. Run by gpu_check.sh; skips itself without a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "tests/rigs/server_fixture.h"

#define N_SWAPS 1000

static const char *spec_text;

struct paper_model {
    const char *name;
    int n_inputs, rank;
    const char *inputs[3];
    int64_t dims[3]; /* behind the batch */
    float largest;   /* of |difference| / (1 + |reference|) */
};

static const struct paper_model paper_models[] = {
    {"resnet152", 1, 3, {"input"}, {3, 224, 224}, 2e-3f},
    {"inception_v3", 1, 3, {"input"}, {3, 299, 299}, 2e-3f},
    {"bert_base", 3, 1, {"input_ids", "attention_mask", "token_type_ids"}, {128}, 2e-3f},
};
#define N_MODELS 3

static sy_client_result *ask(struct fixture *f, const struct paper_model *m, int64_t batch)
{
    sy_client_tensor inputs[3];
    sy_client_result *result = NULL;
    unsigned seed = 7;
    for (int i = 0; i < m->n_inputs; i++) {
        size_t n = (size_t)batch, size = m->rank == 1 ? 8 : 4;
        inputs[i] = (sy_client_tensor){.name = m->inputs[i],
                                       .dtype = m->rank == 1 ? "INT64" : "FP32",
                                       .rank = m->rank + 1,
                                       .shape = {batch}};
        for (int d = 0; d < m->rank; d++) {
            inputs[i].shape[d + 1] = m->dims[d];
            n *= (size_t)m->dims[d];
        }
        void *data = calloc(n, size);
        assert_non_null(data);
        for (size_t k = 0; k < n; k++) {
            seed = seed * 1664525u + 1013904223u;
            if (m->rank == 1)
                ((int64_t *)data)[k] = i == 0 ? (int64_t)(seed >> 18) : i == 1 ? 1 : 0;
            else
                ((float *)data)[k] = (float)(seed >> 8) / 8388608.0f - 1.0f;
        }
        inputs[i].data = data;
        inputs[i].bytes = n * size;
    }
    int status = sy_client_infer(f->client, m->name, inputs, m->n_inputs, &result);
    for (int i = 0; i < m->n_inputs; i++)
        free((void *)(uintptr_t)inputs[i].data);
    if (status < 0)
        fail_msg("%s: %s", m->name, sy_client_error(f->client));
    return result;
}

static void ask_all(const char *models, const char *device, const char *pool,
                    sy_client_result *out[N_MODELS][2])
{
    struct fixture f;
    fixture_init(&f, "models");
    const char *const args[] = {"--models", models, "--device", device, "--pool-bytes", pool, NULL};
    fixture_start(&f, args);
    for (int m = 0; m < N_MODELS; m++)
        for (int b = 0; b < 2; b++)
            out[m][b] = ask(&f, &paper_models[m], b ? 8 : 1);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static void compare(const struct paper_model *m, const sy_client_result *a,
                    const sy_client_result *b)
{
    double worst = 0;
    assert_int_equal(a->n_outputs, b->n_outputs);
    for (int i = 0; i < a->n_outputs; i++) {
        const float *x = a->outputs[i].data, *y = b->outputs[i].data;
        assert_int_equal(a->outputs[i].bytes, b->outputs[i].bytes);
        for (size_t k = 0; k < a->outputs[i].bytes / sizeof *x; k++) {
            double d = fabs((double)x[k] - (double)y[k]) / (1 + fabs((double)x[k]));
            worst = d > worst || isnan(d) ? d : worst;
        }
    }
    print_message("%s: largest difference %.2e\n", m->name, worst);
    assert_true(worst <= (double)m->largest);
}

/* Root mean squares, of all outputs. */
static void compare_narrow(const struct paper_model *m, const char *precision, double most,
                           const sy_client_result *a, const sy_client_result *b)
{
    double off = 0, all = 0;
    assert_int_equal(a->n_outputs, b->n_outputs);
    for (int i = 0; i < a->n_outputs; i++) {
        const float *x = a->outputs[i].data, *y = b->outputs[i].data;
        assert_int_equal(a->outputs[i].bytes, b->outputs[i].bytes);
        for (size_t k = 0; k < a->outputs[i].bytes / sizeof *x; k++) {
            off += ((double)x[k] - (double)y[k]) * ((double)x[k] - (double)y[k]);
            all += (double)x[k] * (double)x[k];
        }
    }
    print_message("%s in %s: relative difference %.2e\n", m->name, precision, sqrt(off / all));
    assert_true(sqrt(off / all) <= most);
}

/* The models' packages are made anew in this precision, which the server keeps. */
static void narrow_models(const char *models, const char *precision, double most,
                          sy_client_result *host[N_MODELS][2])
{
    static char command[2048];
    sy_client_result *gpu[N_MODELS][2];
    for (int m = 0; m < N_MODELS; m++) {
        snprintf(command, sizeof command,
                 "'%s' import '%s/%s/1/model.onnx' --name %s --device %s --precision %s >/dev/null",
                 fixture_program("switchyard"), models, paper_models[m].name, paper_models[m].name,
                 spec_text, precision);
        assert_int_equal(system(command), 0);
    }
    ask_all(models, spec_text, "2G", gpu);
    for (int m = 0; m < N_MODELS; m++)
        for (int b = 0; b < 2; b++) {
            compare_narrow(&paper_models[m], precision, most, host[m][b], gpu[m][b]);
            sy_client_result_free(gpu[m][b]);
        }
}

static void test_paper_models_against_the_host_engine(void **state)
{
    (void)state;
    static char models[600], command[2048];
    sy_client_result *host[N_MODELS][2], *gpu[N_MODELS][2];
    snprintf(models, sizeof models, "%s", fixture_program("gpu-models"));
    snprintf(command, sizeof command, "'%s' --out '%s' resnet152 inception_v3 bert_base >/dev/null",
             fixture_program("make-models"), models);
    assert_int_equal(system(command), 0);
    ask_all(models, "host", "2G", host);
    ask_all(models, spec_text, "2G", gpu);
    for (int m = 0; m < N_MODELS; m++)
        for (int b = 0; b < 2; b++) {
            compare(&paper_models[m], host[m][b], gpu[m][b]);
            sy_client_result_free(gpu[m][b]);
        }
    /* The host engine's own bf16 is 0.004 to 0.006 from its float32; f16 has three bits more. */
    narrow_models(models, "bf16", 0.02, host);
    narrow_models(models, "f16", 0.004, host);
    for (int m = 0; m < N_MODELS; m++)
        for (int b = 0; b < 2; b++)
            sy_client_result_free(host[m][b]);
}

/* What the driver says is used on the GPU; negative: it does not say. */
static double used_mib(void)
{
    char command[160];
    double mib = -1;
    struct sy_device_spec spec;
    assert_int_equal(sy_device_spec_parse(spec_text, &spec), SY_OK);
    snprintf(command, sizeof command,
             "nvidia-smi --id=%d --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null",
             spec.ordinal);
    FILE *pipe = popen(command, "r");
    if (!pipe || fscanf(pipe, "%lf", &mib) != 1)
        mib = -1;
    if (pipe)
        pclose(pipe);
    return mib;
}

static void test_a_thousand_swaps_leak_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"tiny_cnn", "mlp", "bert_tiny"};
    struct fixture f;
    double before = -1;
    fixture_init(&f, "leak");
    const char *const args[] = {"--models",     fixture_models(), "--device", spec_text,
                                "--pool-bytes", "200M",           NULL};
    fixture_start(&f, args);
    for (int i = 0; i < N_SWAPS; i++) {
        if (i == N_SWAPS / 10)
            before = used_mib();
        json_decref(fixture_call(&f, "evict", json_pack("{s:s}", "model", names[i % 3])));
        sy_client_result_free(fixture_infer(&f, names[i % 3], 1, i % 5, NULL));
    }
    double after = used_mib();
    print_message("used after %d swaps: %.0f MiB, after %d: %.0f MiB\n", N_SWAPS / 10, before,
                  N_SWAPS, after);
    assert_true(before < 0 || after <= before + 16);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static bool device_is_here(void)
{
    struct sy_device_spec spec;
    struct sy_device *device;
    if (sy_device_spec_parse(spec_text, &spec) < 0 || sy_device_open(&spec, &device) < 0)
        return false;
    sy_device_close(device);
    return true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paper_models_against_the_host_engine),
        cmocka_unit_test(test_a_thousand_swaps_leak_nothing),
    };
    spec_text = getenv("SY_TEST_DEVICE");
    if (!spec_text || !device_is_here()) {
        printf("skip: no GPU: %s\n",
               spec_text ? sy_error_text() : "make gpu-check sets SY_TEST_DEVICE");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
