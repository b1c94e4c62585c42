/* Networks with several inputs: what each kind of data puts into each, what is refused by name, and a job on such a network that is
 * resumed in the middle of an epoch. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/rigs/shell.h"
#include "workers/data/npy.h"
#include "workers/data/prefetch.h"
#include "workers/data/train_data.h"
#include "workers/job/job.h"
#include "workers/train/train_run.h"

enum { FLOAT = 1, INT64 = 7 };

static char folder[64];

static char *path_of(const char *name)
{
    static char paths[8][256];
    static int at;
    char *path = paths[at++ % 8];
    snprintf(path, sizeof *paths, "%s/%s", folder, name);
    return path;
}

static char *write_text(const char *name, const char *text)
{
    char *path = path_of(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    fclose(file);
    return path;
}

/* What the readers are asked for: ids [3] int64, mask [3] int64, size [2] float. */
static struct sy_data_want three_inputs(void)
{
    return (struct sy_data_want){
        .n_inputs = 3,
        .inputs = {{.name = "ids", .dtype = SY_DTYPE_I64, .rank = 1, .dims = {3}, .n = 3},
                   {.name = "mask", .dtype = SY_DTYPE_I64, .rank = 1, .dims = {3}, .n = 3},
                   {.name = "size", .dtype = SY_DTYPE_F32, .rank = 1, .dims = {2}, .n = 2}},
        .are_classes = true,
        .n_labels = 1,
        .n_classes = 4};
}

struct sample {
    int64_t ids[3], mask[3];
    float size[2];
    int32_t label;
};

static int take_section(const char *format, va_list args, struct sy_data_spec *spec)
{
    char text[2048];
    vsnprintf(text, sizeof text, format, args);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    int status = sy_job_data_take(json, 5, spec);
    json_decref(json);
    return status;
}

static void open_data(struct sy_data_spec *spec, const struct sy_data_want *want,
                      struct sy_train_data *data, const char *format, ...)
{
    va_list args;
    *spec = (struct sy_data_spec){0};
    va_start(args, format);
    int status = take_section(format, args, spec);
    va_end(args);
    if (status < 0 || sy_train_data_open(spec, want, data) < 0)
        fail_msg("%s", sy_error_text());
}

static void close_data(struct sy_data_spec *spec, struct sy_train_data *data)
{
    sy_train_data_close(data);
    sy_job_data_free(spec);
}

/* At the section, or when the data is opened: a text that names `part`. */
static void check_refused(const char *part, const char *format, ...)
{
    struct sy_data_spec spec = {0};
    struct sy_data_want want = three_inputs();
    struct sy_train_data data;
    va_list args;
    va_start(args, format);
    int status = take_section(format, args, &spec);
    va_end(args);
    if (status == SY_OK)
        status = sy_train_data_open(&spec, &want, &data);
    assert_int_not_equal(status, SY_OK);
    if (!strstr(sy_error_text(), part))
        fail_msg("'%s' is not in: %s", part, sy_error_text());
    sy_job_data_free(&spec);
}

static struct sample read_sample(const struct sy_train_data *data, const struct sy_data_want *want,
                                 uint64_t position, bool is_test)
{
    struct sample s;
    void *places[] = {s.ids, s.mask, s.size};
    if (sy_train_data_fill(data, want, position, is_test, 1, places, &s.label) < 0)
        fail_msg("%s", sy_error_text());
    return s;
}

static void check_row(const int64_t *row, int64_t a, int64_t b, int64_t c)
{
    assert_int_equal(row[0], a);
    assert_int_equal(row[1], b);
    assert_int_equal(row[2], c);
}

/* ---- readers ------------------------------------------------------------------------------------------- */

static void write_arrays(int n)
{
    int64_t ids[32], labels[8];
    int8_t mask[32];
    double sizes[16];
    for (int i = 0; i < n; i++) {
        labels[i] = i % 4;
        for (int k = 0; k < 3; k++) {
            ids[3 * i + k] = 10 * i + k;
            mask[3 * i + k] = (int8_t)(k <= i % 3);
        }
        sizes[2 * i] = i + 0.5;
        sizes[2 * i + 1] = -i;
    }
    sy_npy_write(path_of("ids.npy"), SY_DTYPE_I64, 2, (const int64_t[]){n, 3}, ids);
    sy_npy_write(path_of("mask.npy"), SY_DTYPE_I8, 2, (const int64_t[]){n, 3}, mask);
    sy_npy_write(path_of("size.npy"), SY_DTYPE_F64, 2, (const int64_t[]){n, 2}, sizes);
    sy_npy_write(path_of("labels.npy"), SY_DTYPE_I64, 1, (const int64_t[]){n}, labels);
}

static void test_npy(void **state)
{
    (void)state;
    struct sy_data_spec spec;
    struct sy_train_data data;
    struct sy_data_want want = three_inputs();
    const char *at = folder;
    write_arrays(5);
    open_data(&spec, &want, &data,
              "{'kind': 'npy', 'labels': '%s/labels.npy', 'shuffle': false, 'test_labels': "
              "'%s/labels.npy', 'inputs': {'size': '%s/size.npy', 'ids': '%s/ids.npy', 'mask': "
              "'%s/mask.npy'}, 'test_inputs': {'ids': '%s/ids.npy', 'mask': '%s/mask.npy', 'size': "
              "'%s/size.npy'}}",
              at, at, at, at, at, at, at, at);
    assert_int_equal(data.n_test, 5);
    for (int i = 0; i < 10; i++) {
        struct sample s = read_sample(&data, &want, (uint64_t)i % 5, i >= 5);
        int row = i % 5;
        check_row(s.ids, 10 * row, 10 * row + 1, 10 * row + 2);
        check_row(s.mask, 1, row % 3 >= 1, row % 3 >= 2);
        assert_true(s.size[0] == (float)row + 0.5f && s.size[1] == (float)-row);
        assert_int_equal(s.label, row % 4);
    }
    close_data(&spec, &data);
    open_data(
        &spec, &want, &data,
        "{'kind': 'npy', 'labels': '%s/labels.npy', 'shuffle': false, 'inputs': {'size': 1.5, "
        "'ids': '%s/ids.npy', 'mask': 1}}",
        at, at);
    struct sample s = read_sample(&data, &want, 2, false);
    check_row(s.ids, 20, 21, 22);
    check_row(s.mask, 1, 1, 1);
    assert_true(s.size[0] == 1.5f && s.size[1] == 1.5f);
    close_data(&spec, &data);
}

static void test_bad_npy(void **state)
{
    (void)state;
    const char *at = folder;
    write_arrays(5);
#define NPY "{'kind': 'npy', 'labels': '%s/labels.npy', 'inputs': "
    check_refused("'ids', 'mask', 'size'", NPY "'%s/ids.npy'}", at, at);
    check_refused("'data.inputs' lacks 'size'", NPY "{'ids': '%s/ids.npy', 'mask': 1}}", at, at);
    check_refused("'data.inputs.msk': the model's inputs are 'ids', 'mask', 'size'",
                  NPY "{'ids': '%s/ids.npy', 'msk': 1, 'size': 1}}", at, at);
    check_refused("input 'size' has 3 values a sample",
                  NPY "{'ids': '%s/ids.npy', 'mask': 1, 'size': '%s/ids.npy'}}", at, at, at);
    check_refused("input 'ids' is FP64, the model's input takes INT64",
                  NPY "{'ids': '%s/wide.npy', 'mask': 1, 'size': 1}}", at,
                  (sy_npy_write(path_of("wide.npy"), SY_DTYPE_F64, 2, (const int64_t[]){5, 3},
                                (const double[15]){0}),
                   at));
    check_refused("4 samples", NPY "{'ids': '%s/few.npy', 'mask': 1, 'size': 1}}", at,
                  (sy_npy_write(path_of("few.npy"), SY_DTYPE_I64, 2, (const int64_t[]){4, 3},
                                (const int64_t[12]){0}),
                   at));
    check_refused("none.npy", NPY "{'ids': '%s/none.npy', 'mask': 1, 'size': 1}}", at, at);
    check_refused("'data.inputs.ids' must be a path", NPY "{'ids': [1], 'mask': 1, 'size': 1}}",
                  at);
    check_refused("0 inputs", NPY "{}}", at);
    check_refused("'data.test_inputs.ids' must be a path",
                  NPY "{'ids': '%s/ids.npy', 'mask': 1, 'size': 1}, 'test_inputs': {}, "
                      "'test_labels': '%s/labels.npy'}",
                  at, at, at);
    check_refused("'data.test_inputs.mask'",
                  NPY "{'ids': '%s/ids.npy', 'mask': 1, 'size': 1}, 'test_inputs': {'mask': 'x'}, "
                      "'test_labels': '%s/labels.npy'}",
                  at, at, at);
    check_refused("go together",
                  NPY "{'ids': '%s/ids.npy', 'mask': 1, 'size': 1}, 'test_labels': 'y'}", at, at);
    check_refused("'data.inputs' is missing", "{'kind': 'npy', 'labels': 'y'}");
}

static void test_csv(void **state)
{
    (void)state;
    struct sy_data_spec spec;
    struct sy_train_data data;
    struct sy_data_want want = three_inputs();
    const char *file = write_text("a.csv", "a,b,c,height,width,y\n1,2,3,0.5,7,2\n4,5,6,1.5,9,3\n");
    open_data(&spec, &want, &data,
              "{'kind': 'csv', 'file': '%s', 'label': 'y', 'shuffle': false, 'inputs': {'size': "
              "['width', 'height'], 'ids': ['a', 'b', 'c'], 'mask': ['c', 'c', 'a']}}",
              file);
    struct sample s = read_sample(&data, &want, 1, false);
    check_row(s.ids, 4, 5, 6);
    check_row(s.mask, 6, 6, 4);
    assert_true(s.size[0] == 9.0f && s.size[1] == 1.5f);
    assert_int_equal(s.label, 3);
    close_data(&spec, &data);
#define CSV "{'kind': 'csv', 'file': '%s', 'label': 'y', 'inputs': "
    check_refused("input 'size': 1 feature columns, the model's input takes 2",
                  CSV "{'size': 'width', 'ids': ['a', 'b', 'c'], 'mask': 1}}", file);
    check_refused("no column 'wide'", CSV "{'size': ['wide', 'a'], 'ids': 1, 'mask': 1}}", file);
    check_refused("none of 'data.inputs' is a column", CSV "{'size': 1, 'ids': 1, 'mask': 1}}",
                  file);
    check_refused("must be a column", CSV "{'size': {}, 'ids': 1, 'mask': 1}}", file);
    check_refused("'data.features'", CSV "{'size': 1, 'ids': 1, 'mask': 1}, 'features': ['a']}",
                  file);
}

static void test_text(void **state)
{
    (void)state;
    struct sy_data_spec spec;
    struct sy_train_data data;
    struct sy_data_want want = three_inputs();
    mkdir(path_of("text"), 0777);
    write_text("text/a.txt", "xy\nlonger\n");
    write_text("text/b.txt", "z\n");
    open_data(&spec, &want, &data,
              "{'kind': 'text', 'folder': '%s/text', 'shuffle': false, 'inputs': {'ids': 'text', "
              "'mask': 'mask', 'size': 'length'}}",
              folder);
    assert_int_equal(data.n, 3);
    struct sample s = read_sample(&data, &want, 0, false);
    check_row(s.ids, 'x', 'y', 0);
    check_row(s.mask, 1, 1, 0);
    assert_true(s.size[0] == 2.0f);
    s = read_sample(&data, &want, 1, false); /* cut */
    check_row(s.ids, 'l', 'o', 'n');
    check_row(s.mask, 1, 1, 1);
    assert_true(s.size[0] == 3.0f);
    s = read_sample(&data, &want, 2, false);
    check_row(s.mask, 1, 0, 0);
    assert_int_equal(s.label, 1);
    close_data(&spec, &data);
#define TEXT "{'kind': 'text', 'folder': '%s/text', 'inputs': "
    check_refused("'data.inputs.mask' is 'masc'; known: 'text', 'mask', 'length', 'positions'",
                  TEXT "{'ids': 'text', 'mask': 'masc', 'size': 0}}", folder);
    check_refused("none of 'data.inputs' is 'text'",
                  TEXT "{'ids': 'positions', 'mask': 'mask', 'size': 0}}", folder);
    check_refused("must be an object", TEXT "'text'}", folder);
}

/* Each input is drawn for itself; masks and lengths tell the same; the batches made ahead are those of fill. */
static void test_synthetic(void **state)
{
    (void)state;
    struct sy_data_spec spec;
    struct sy_train_data data;
    struct sy_data_want want = three_inputs();
    struct sy_prefetch *prefetch;
    int n_masked = 0;
    open_data(&spec, &want, &data,
              "{'kind': 'synthetic', 'samples': 60, 'vocabulary': 50, 'inputs': {'ids': 'random', "
              "'mask': 'mask', 'size': 'length'}}");
    assert_int_equal(sy_prefetch_create(&data, &want, 2, NULL, &prefetch), SY_OK);
    for (uint64_t i = 0; i < 60; i += 2) {
        int64_t ids[2][3], mask[2][3];
        float size[2][2];
        int32_t labels[2];
        int got;
        void *places[] = {ids, mask, size};
        while ((got = sy_prefetch_take(prefetch, false, i / 2, 1000, places, labels)) == 0)
            continue;
        assert_int_equal(got, 1);
        for (int row = 0; row < 2; row++) {
            struct sample s = read_sample(&data, &want, i + (uint64_t)row, false);
            assert_memory_equal(ids[row], s.ids, sizeof s.ids);
            assert_memory_equal(mask[row], s.mask, sizeof s.mask);
            assert_memory_equal(size[row], s.size, sizeof s.size);
            assert_int_equal(labels[row], s.label);
            assert_int_equal(s.mask[0] + s.mask[1] + s.mask[2], (int64_t)s.size[0]);
            for (int k = 0; k < 3; k++)
                assert_in_range(s.ids[k], 0, 49);
            n_masked += s.mask[2] == 0;
        }
    }
    assert_in_range(n_masked, 10, 55);
    sy_prefetch_destroy(prefetch);
    close_data(&spec, &data);
}

/* ---- a job ----------------------------------------------------------------------------------------------- */

#define MAX_BYTES (1u << 20)

/* logits = [mean of embeddings where the mask is 1, size] W + b */
static void write_model(const char *path)
{
    static struct ob graph;
    struct ob node;
    float table[20 * 4], weights[6 * 4], bias[4] = {0};
    for (int i = 0; i < 80; i++)
        table[i] = (float)sin(i * 1.7);
    for (int i = 0; i < 24; i++)
        weights[i] = (float)cos(i * 2.3) / 3;
    memset(&graph, 0, sizeof graph);
    ob_input(&graph, OB_GRAPH_INPUT, "ids", INT64, 2, (const int64_t[]){-1, 3});
    ob_input(&graph, OB_GRAPH_INPUT, "mask", INT64, 2, (const int64_t[]){-1, 3});
    ob_input(&graph, OB_GRAPH_INPUT, "size", FLOAT, 2, (const int64_t[]){-1, 2});
    ob_initializer(&graph, "table", FLOAT, 2, (const int64_t[]){20, 4}, table, sizeof table);
    ob_initializer(&graph, "weights", FLOAT, 2, (const int64_t[]){6, 4}, weights, sizeof weights);
    ob_initializer(&graph, "bias", FLOAT, 1, (const int64_t[]){4}, bias, sizeof bias);
    ob_int64s(&graph, "last", 1, (const int64_t[]){2});
#define NODE(op, inputs, output, attribute)                     \
    node.n = 0;                                                 \
    ob_node(&node, op, inputs, (const char *[]){output, NULL}); \
    attribute;                                                  \
    ob_message(&graph, OB_GRAPH_NODE, &node)
#define FROM(...) ((const char *[]){__VA_ARGS__, NULL})
    NODE("Gather", FROM("table", "ids"), "words", (void)0);
    NODE("Cast", FROM("mask"), "m", ob_attr_int(&node, "to", FLOAT));
    NODE("Unsqueeze", FROM("m", "last"), "m3", (void)0);
    NODE("Mul", FROM("words", "m3"), "kept", (void)0);
    NODE("ReduceMean", FROM("kept"), "mean",
         (ob_attr_ints(&node, "axes", 1, (const int64_t[]){1}), ob_attr_int(&node, "keepdims", 0)));
    NODE("Concat", FROM("mean", "size"), "all", ob_attr_int(&node, "axis", 1));
    NODE("Gemm", FROM("all", "weights", "bias"), "logits", (void)0);
    NODE("Tanh", FROM("mean"), "other", (void)0);
    ob_input(&graph, OB_GRAPH_OUTPUT, "other", FLOAT, 2, (const int64_t[]){-1, 4});
    ob_input(&graph, OB_GRAPH_OUTPUT, "logits", FLOAT, 2, (const int64_t[]){-1, 4});
    ob_save(path, &graph, 13);
}

/* In single quotes, as the sections above. */
static char *job_text(const char *output, const char *inputs)
{
    char *text = malloc(2048);
    snprintf(text, 2048,
             "{'name': 'three', 'model': '%s/three.onnx', %s 'optimizer': {'learning_rate': 0.3, "
             "'momentum': 0.9}, 'batch': 4, 'epochs': 9, 'seed': 2, 'data': {'kind': 'synthetic', "
             "'samples': 22, 'test_samples': 40, 'noise': 0.4, 'vocabulary': 20, 'inputs': %s}}",
             folder, output, inputs);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return text;
}

static const char names_logits[] = "'output': 'logits',",
                  all_inputs[] = "{'ids': 'random', 'mask': 'mask', 'size': 'random'}";

static struct sy_train_run *open_run(void)
{
    struct sy_train_run *run;
    struct sy_train_needs needs;
    char *text = job_text(names_logits, all_inputs);
    if (sy_train_run_create(text, &sy_host_trainer, NULL, &run) < 0)
        fail_msg("%s", sy_error_text());
    free(text);
    sy_train_run_needs(run, &needs);
    assert_true(needs.persistent_bytes <= MAX_BYTES && needs.ephemeral_bytes <= MAX_BYTES);
    assert_int_equal(needs.total_steps, 50); /* 9 * 22 / 4, the last one reaches further */
    return run;
}

static char *open_memory(void)
{
    char *memory = mmap(NULL, 2 * MAX_BYTES + 4096, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

/* Trains until `n_advances` were done or the job is over; the worker dies there. True: it is over. */
static bool train(char *memory, int in_memory, int n_advances, double *accuracy)
{
    enum sy_train_state now = SY_TRAIN_RUNNING;
    struct sy_train_run *run = open_run();
    memset(memory + MAX_BYTES, 0xff, MAX_BYTES);
    int status = sy_train_run_start(run, memory, memory + MAX_BYTES, in_memory,
                                    (void *)(memory + 2 * MAX_BYTES));
    for (int i = 0; status == SY_OK && i < n_advances && now == SY_TRAIN_RUNNING; i++)
        status = sy_train_run_advance(run, &now);
    if (status == SY_ECORRUPT) { /* it died in an update: again from the beginning */
        sy_train_run_destroy(run);
        return train(memory, 0, n_advances, accuracy);
    }
    if (status < 0)
        fail_msg("%s", sy_error_text());
    *accuracy = sy_train_run_accuracy(run);
    sy_train_run_destroy(run);
    return now == SY_TRAIN_FINISHED;
}

static void test_job_learns_and_resumes(void **state)
{
    (void)state;
    char *alone = open_memory(), *often = open_memory();
    double accuracy, again;
    bool is_over = false;
    write_model(path_of("three.onnx"));
    assert_true(train(alone, 0, INT_MAX, &accuracy));
    assert_true(accuracy > 0.7);
    for (int i = 0; i < 1000 && !is_over; i++)
        is_over = train(often, i > 0, 60 + 7 * i, &again);
    assert_true(is_over && again == accuracy);
    assert_memory_equal(alone + 4096, often + 4096, MAX_BYTES - 4096);
    munmap(alone, 2 * MAX_BYTES + 4096);
    munmap(often, 2 * MAX_BYTES + 4096);
}

static void check_bad_job(const char *output, const char *inputs, const char *part)
{
    struct sy_train_run *run;
    char *text = job_text(output, inputs);
    assert_int_not_equal(sy_train_run_create(text, &sy_host_trainer, NULL, &run), SY_OK);
    if (!strstr(sy_error_text(), part))
        fail_msg("'%s' is not in: %s", part, sy_error_text());
    free(text);
}

static void test_bad_jobs(void **state)
{
    (void)state;
    write_model(path_of("three.onnx"));
    check_bad_job("", all_inputs, "outputs 'other', 'logits': 'output' must name");
    check_bad_job("'output': 'logit',", all_inputs, "no output 'logit'; it has 'other', 'logits'");
    check_bad_job(names_logits, "{'ids': 'random', 'mask': 'mask'}", "lacks 'size'");
    check_bad_job(names_logits, "{'ids': 'random', 'mask': 'mask', 'sizes': 1, 'size': 1}",
                  "'data.inputs.sizes'");
    check_bad_job("'output': 'logits', 'dims': {'N': 0},", all_inputs, "'dims.N'");
    check_bad_job("'output': 'logits', 'dims': {'M': 2},", all_inputs, "'M'");
}

/* The paths of a map are made absolute, and count by their last part. */
static void test_paths(void **state)
{
    (void)state;
    struct sy_job a, b;
    char *text;
    const char *job = "{\"name\": \"p\", \"model\": \"m.onnx\", \"optimizer\": {\"learning_rate\": "
                      "1}, \"data\": {\"kind\": \"npy\", \"labels\": \"y.npy\", \"inputs\": "
                      "{\"a\": \"x/a.npy\", \"b\": 2, \"c\": \"/x/c.npy\"}}}";
    assert_int_equal(sy_job_parse(job, &a), SY_OK);
    assert_int_equal(sy_job_load(write_text("job.json", job), &text), SY_OK);
    assert_int_equal(sy_job_parse(text, &b), SY_OK);
    assert_true(a.hash == b.hash);
    assert_int_equal(b.data.n_fields, 3);
    for (int i = 0; i < 3; i++)
        if (b.data.fields[i].file[0])
            assert_int_equal(b.data.fields[i].file[0][0], '/');
    sy_job_finish(&b);
    free(text);
    char marked[1024];
    snprintf(marked, sizeof marked, "\xef\xbb\xbf%s", job); /* as some editors save it */
    assert_int_equal(sy_job_load(write_text("marked.json", marked), &text), SY_OK);
    assert_int_equal(sy_job_parse(text, &b), SY_OK);
    assert_true(a.hash == b.hash);
    sy_job_finish(&a);
    sy_job_finish(&b);
    free(text);
    assert_int_equal(sy_job_load(write_text("empty.json", ""), &text), SY_EARG);
    assert_int_equal(sy_job_load(path_of("none.json"), &text), SY_ENOTFOUND);
    assert_non_null(strstr(sy_error_text(), "none.json': No such file"));
    assert_int_equal(sy_job_load(folder, &text), SY_EARG);
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/sy_train_inputs_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return remove_tree(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy),       cmocka_unit_test(test_bad_npy),
        cmocka_unit_test(test_csv),       cmocka_unit_test(test_text),
        cmocka_unit_test(test_synthetic), cmocka_unit_test(test_job_learns_and_resumes),
        cmocka_unit_test(test_bad_jobs),  cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
