/* What ONNX Runtime's passes write for other layouts and for GPUs, its distances and hashes; tables in blocks. Results against closed forms, or against
 * the same network in ONNX's own operators. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"

#define SLOPE 0.25f

enum { FLOAT = 1, INT32 = 6, UINT32 = 12, DOMAIN = 7, BATCH = 2, MOST = 1024 };

static char path[64];
static struct ob graph, node;
static uint64_t seed;

static void begin(int type, int rank, const int64_t *dims)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", type, rank, dims);
}

static void foreign(const char *domain, const char *op, const char *const *inputs,
                    const char *const *outputs)
{
    ob_node(&node, op, inputs, outputs);
    ob_text(&node, DOMAIN, domain);
}

static void floats(const char *name, int rank, const int64_t *dims, const float *values)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= dims[i];
    ob_initializer(&graph, name, FLOAT, rank, dims, values, (size_t)n * sizeof *values);
}

/* Runs the graph, whose first output is "y", on x; out's bytes are its first. Returns how many there are. */
static size_t run(const void *x, void *out, int type)
{
    struct engine_rig rig;
    struct rig_tensors in, result;
    struct sy_graph *g;
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", type, 0, NULL);
    ob_save(path, &graph, 13);
    g = onnx_optimized(path);
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, BATCH);
    rig_take(&rig, g->inputs, g->n_inputs, BATCH, 0, &in);
    memcpy(in.data[0], x, in.bytes[0]);
    rig_take(&rig, g->outputs, g->n_outputs, BATCH, 0xff, &result);
    assert_int_equal(rig_run(&rig, program, &in, &result, 0xff, &seed), SY_OK);
    size_t bytes = result.bytes[0];
    assert_true(bytes <= MOST * sizeof(float));
    memcpy(out, result.data[0], bytes);
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&result);
    rig_close(&rig);
    sy_graph_free(g);
    return bytes;
}

static void assert_gives(const float *x, const float *want, int n)
{
    float got[MOST];
    assert_int_equal(run(x, got, FLOAT), (size_t)n * sizeof *got);
    for (int i = 0; i < n; i++)
        if (fabsf(got[i] - want[i]) > 1e-4f)
            fail_msg("element %d is %g, not %g", i, (double)got[i], (double)want[i]);
}

static void random_floats(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)((double)((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 40) /
                           (1 << 23) -
                       1);
}

/* ---- channels in blocks ------------------------------------------------------------------------ */

enum { SIDE = 4, PLACES = 9, FEW = 3, MIDDLE = 32, LAST = 20 };
static float first[MIDDLE * FEW * PLACES], second[MIDDLE * MIDDLE * PLACES];
static const int64_t first_dims[] = {MIDDLE, FEW, 3, 3}, second_dims[] = {MIDDLE, MIDDLE, 3, 3};

static int block_channels(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") ? 16 : 8;
#else
    return 16;
#endif
}

/* In the order that a machine with these blocks reads; input channels in blocks of `each`. */
static void in_blocks(const float *w, int in, int each, float *to)
{
    int block = block_channels();
    for (int o = 0; o < MIDDLE; o += block)
        for (int i = 0; i < in; i += each)
            for (int k = 0; k < PLACES; k++)
                for (int ii = 0; ii < each; ii++)
                    for (int oo = 0; oo < block; oo++)
                        *to++ = w[((o + oo) * in + i + ii) * PLACES + k];
}

static void add_floats(const char *name, float value)
{
    static struct ob attr;
    enum { NAME = 1, FLOATS = 7, KIND = 20, ATTRIBUTE = 5, LIST_OF_FLOATS = 6 };
    attr.n = 0;
    ob_text(&attr, NAME, name);
    ob_float(&attr, FLOATS, value);
    ob_varint(&attr, KIND, LIST_OF_FLOATS);
    ob_message(&node, ATTRIBUTE, &attr);
}

static void conv(bool blocked, const char *const *inputs, const char *const *outputs)
{
    ob_node(&node, "Conv", inputs, outputs);
    if (blocked)
        ob_text(&node, DOMAIN, "com.microsoft.nchwc");
    ob_attr_ints(&node, "pads", 4, (const int64_t[]){1, 1, 1, 1});
    ob_attr_ints(&node, "kernel_shape", 2, (const int64_t[]){3, 3});
    if (blocked) {
        ob_attr_text(&node, "activation", "LeakyRelu");
        add_floats("activation_params", SLOPE);
    }
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

static void leak(const char *const *inputs, const char *const *outputs)
{
    ob_node(&node, "LeakyRelu", inputs, outputs);
    ob_attr_float(&node, "alpha", SLOPE);
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

/* Two convolutions and a pool; the plain network has ONNX's operators. Of the last one's 32 channels 20 are real. */
static void two_convolutions(bool blocked)
{
    static float a[MIDDLE * FEW * PLACES], b[MIDDLE * MIDDLE * PLACES];
    begin(FLOAT, 4, (const int64_t[]){-1, FEW, SIDE, SIDE});
    in_blocks(first, FEW, 1, a);
    in_blocks(second, MIDDLE, block_channels(), b);
    floats("a", 4, first_dims, blocked ? a : first);
    floats("b", 4, second_dims, blocked ? b : second);
    conv(blocked, NAMES("x", "a"), NAMES(blocked ? "r" : "q"));
    if (!blocked)
        leak(NAMES("q"), NAMES("r"));
    conv(blocked, NAMES("r", "b"), NAMES(blocked ? "t" : "s"));
    if (!blocked)
        leak(NAMES("s"), NAMES("t"));
    ob_node(&node, "GlobalAveragePool", NAMES("t"), NAMES("p"));
    if (blocked)
        ob_text(&node, DOMAIN, "com.microsoft.nchwc");
    ob_message(&graph, OB_GRAPH_NODE, &node);
    if (blocked) {
        foreign("com.microsoft.nchwc", "ReorderOutput", NAMES("p"), NAMES("y"));
        ob_attr_int(&node, "channels", LAST);
        ob_message(&graph, OB_GRAPH_NODE, &node);
        return;
    }
    ob_int64s(&graph, "from", 1, (const int64_t[]){0});
    ob_int64s(&graph, "to", 1, (const int64_t[]){LAST});
    ob_int64s(&graph, "axis", 1, (const int64_t[]){1});
    ob_add(&graph, "Slice", NAMES("p", "from", "to", "axis"), NAMES("y"));
}

static void test_blocks(void **state)
{
    (void)state;
    float x[BATCH * FEW * SIDE * SIDE], want[MOST];
    random_floats(x, BATCH * FEW * SIDE * SIDE);
    random_floats(first, MIDDLE * FEW * PLACES);
    random_floats(second, MIDDLE * MIDDLE * PLACES);
    for (int i = 0; i < MIDDLE * MIDDLE * PLACES; i++)
        second[i] /= MIDDLE;
    two_convolutions(false);
    assert_int_equal(run(x, want, FLOAT), BATCH * LAST * sizeof *want);
    two_convolutions(true);
    assert_gives(x, want, BATCH * LAST);
}

/* 20 channels are padded to whole blocks, pooled, and cut again. */
static void test_padded_blocks(void **state)
{
    (void)state;
    float x[BATCH * LAST * 2], want[BATCH * LAST];
    random_floats(x, BATCH * LAST * 2);
    for (int i = 0; i < BATCH * LAST; i++)
        want[i] = fmaxf(x[2 * i], x[2 * i + 1]);
    begin(FLOAT, 4, (const int64_t[]){-1, LAST, 1, 2});
    foreign("com.microsoft.nchwc", "ReorderInput", NAMES("x"), NAMES("b"));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    foreign("com.microsoft.nchwc", "MaxPool", NAMES("b"), NAMES("m"));
    ob_attr_ints(&node, "kernel_shape", 2, (const int64_t[]){1, 2});
    ob_message(&graph, OB_GRAPH_NODE, &node);
    foreign("com.microsoft.nchwc", "ReorderOutput", NAMES("m"), NAMES("y"));
    ob_attr_int(&node, "channels", LAST);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    assert_gives(x, want, BATCH * LAST);
}

static void assert_refused(const char *part)
{
    struct sy_graph *g = NULL;
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_save(path, &graph, 13);
    assert_int_equal(sy_onnx_read(path, &g), SY_OK);
    assert_int_equal(sy_graph_infer(g), SY_EUNSUPPORTED);
    if (!strstr(sy_error_text(), part))
        fail_msg("'%s' is not in '%s'", part, sy_error_text());
    sy_graph_free(g);
}

/* Extents that are no whole blocks of this machine's, but may be of another's. */
static void test_blocks_of_another_machine(void **state)
{
    static float w[MIDDLE * MIDDLE * PLACES];
    const int64_t block = block_channels(), in = block + block / 2;
    (void)state;
    begin(FLOAT, 4, (const int64_t[]){-1, in, SIDE, SIDE});
    floats("w", 4, (const int64_t[]){MIDDLE, in, 3, 3}, w);
    conv(true, NAMES("x", "w"), NAMES("y"));
    assert_refused("weights of");
    begin(FLOAT, 4, (const int64_t[]){-1, MIDDLE, SIDE, SIDE});
    floats("w", 4, (const int64_t[]){MIDDLE, block / 2, 3, 3}, w);
    ob_node(&node, "Conv", NAMES("x", "w"), NAMES("y"));
    ob_text(&node, DOMAIN, "com.microsoft.nchwc");
    ob_attr_int(&node, "group", MIDDLE / (block / 2));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    assert_refused("weights of");
    for (int cut = 0; cut < 3; cut++) {
        begin(FLOAT, 4, (const int64_t[]){-1, LAST, 1, 2});
        foreign("com.microsoft.nchwc", "ReorderInput", NAMES("x"), NAMES("b"));
        ob_message(&graph, OB_GRAPH_NODE, &node);
        foreign("com.microsoft.nchwc", "ReorderOutput", NAMES("b"), NAMES("y"));
        ob_attr_int(&node, "channels", cut == 0 ? LAST - block : cut == 1 ? 0 : INT64_MAX);
        ob_message(&graph, OB_GRAPH_NODE, &node);
        assert_refused(cut == 0 ? "in blocks of another machine's size" : "channels of blocks");
    }
}

/* How often `part` is in what is logged while the graph is inferred. */
static int count_logged(const char *part)
{
    static char text[1 << 14];
    struct sy_graph *g;
    FILE *file = tmpfile();
    int n = 0, before = dup(STDERR_FILENO);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_save(path, &graph, 13);
    assert_int_equal(sy_onnx_read(path, &g), SY_OK);
    assert_int_equal(dup2(fileno(file), STDERR_FILENO), STDERR_FILENO);
    int status = sy_graph_infer(g);
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    close(before);
    assert_int_equal(status, SY_OK);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    sy_graph_free(g);
    for (const char *at = text; (at = strstr(at, part)); at++)
        n++;
    return n;
}

/* Import says once how the weights of both convolutions were taken. */
static void test_blocks_are_told(void **state)
{
    char part[80];
    enum sy_log_level before = sy_log_threshold;
    (void)state;
    snprintf(part, sizeof part, " channels=%d why=\"the file does not say", block_channels());
    sy_log_threshold = SY_LOG_INFO;
    two_convolutions(true);
    int n = count_logged(part);
    two_convolutions(false);
    int none = count_logged("event=channel_blocks");
    sy_log_threshold = before;
    assert_int_equal(n, 1);
    assert_int_equal(none, 0);
}

static void rows_of_table(int64_t columns, int64_t blocks, int64_t block)
{
    static const unsigned char zeros[20 * 8 * sizeof(float)];
    enum { UINT8 = 2 };
    begin(INT32, 2, (const int64_t[]){-1, 2});
    ob_initializer(&graph, "d", UINT8, 2, (const int64_t[]){20, columns}, zeros,
                   (size_t)(20 * columns));
    ob_initializer(&graph, "s", FLOAT, 2, (const int64_t[]){20, blocks}, zeros,
                   (size_t)(20 * blocks) * sizeof(float));
    foreign("com.microsoft", "GatherBlockQuantized", NAMES("d", "x", "s"), NAMES("y"));
    ob_attr_int(&node, "block_size", block);
    ob_attr_int(&node, "bits", 8);
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

/* Extents of a table in blocks that would be divided by, or that a sum would take beyond what there is. */
static void test_tables_without_blocks(void **state)
{
    float y[MOST];
    const int32_t x[BATCH * 2] = {0};
    (void)state;
    rows_of_table(32, 2, 16);
    assert_int_equal(run(x, y, FLOAT), BATCH * 2 * 32 * sizeof *y);
    rows_of_table(0, 0, 16);
    assert_refused("0 columns in blocks of 16");
    rows_of_table(32, 0, INT64_MAX);
    assert_refused("32 columns in blocks of 9223372036854775807");
    rows_of_table(32, 1, 33);
    assert_refused("32 columns in blocks of 33");
    rows_of_table(32, 2, 15);
    assert_refused("32 columns in blocks of 15");
    rows_of_table(32, 3, 16);
    assert_refused("scales of other than the 2 blocks of a row");
}

/* ---- for GPUs ---------------------------------------------------------------------------------- */

enum { HIGH = 3, WIDE = 2, IN = 4, OUT = 2 };

/* One place at a time: a convolution of 1 by 2 whose weights have their channels last. */
static void test_conv_of_last_channels(void **state)
{
    (void)state;
    float x[BATCH * HIGH * WIDE * IN], w[OUT * 2 * IN], want[BATCH * HIGH * OUT];
    random_floats(x, BATCH * HIGH * WIDE * IN);
    random_floats(w, OUT * 2 * IN);
    for (int row = 0; row < BATCH * HIGH; row++)
        for (int o = 0; o < OUT; o++) {
            want[row * OUT + o] = 0;
            for (int i = 0; i < 2 * IN; i++)
                want[row * OUT + o] += x[row * WIDE * IN + i] * w[o * 2 * IN + i];
        }
    begin(FLOAT, 4, (const int64_t[]){-1, HIGH, WIDE, IN});
    floats("w", 4, (const int64_t[]){OUT, 1, 2, IN}, w);
    foreign("com.microsoft", "NhwcConv", NAMES("x", "w"), NAMES("y"));
    ob_attr_ints(&node, "kernel_shape", 2, (const int64_t[]){1, 2});
    ob_message(&graph, OB_GRAPH_NODE, &node);
    assert_gives(x, want, BATCH * HIGH * OUT);
}

static void test_bias(void **state)
{
    (void)state;
    float x[BATCH * 2 * IN], bias[2 * IN], want[BATCH * 2 * IN];
    random_floats(x, BATCH * 2 * IN);
    random_floats(bias, 2 * IN);
    begin(FLOAT, 3, (const int64_t[]){-1, 1, 2 * IN});
    floats("b", 1, (const int64_t[]){2 * IN}, bias);
    foreign("com.microsoft", "BiasAdd", NAMES("x", "b", "x"), NAMES("y"));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    for (int i = 0; i < BATCH * 2 * IN; i++)
        want[i] = 2 * x[i] + bias[i % (2 * IN)];
    assert_gives(x, want, BATCH * 2 * IN);
    begin(FLOAT, 3, (const int64_t[]){-1, 1, 2 * IN});
    floats("b", 1, (const int64_t[]){2 * IN}, bias);
    foreign("com.microsoft", "BiasSplitGelu", NAMES("x", "b"), NAMES("y"));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    for (int i = 0; i < BATCH * IN; i++) {
        const float *row = x + i / IN * 2 * IN;
        double left = (double)(row[i % IN] + bias[i % IN]),
               right = (double)(row[IN + i % IN] + bias[IN + i % IN]);
        want[i] = (float)(left * 0.5 * right * (1 + erf(right / sqrt(2))));
    }
    assert_gives(x, want, BATCH * IN);
}

/* The norm, of one group, of x + skip + bias: IN numbers an image, since an image is one place. */
static void test_skip_group_norm(void **state)
{
    (void)state;
    float x[BATCH * IN], bias[IN], gamma[IN], beta[IN], want[BATCH * IN];
    random_floats(x, BATCH * IN);
    random_floats(bias, IN);
    random_floats(gamma, IN);
    random_floats(beta, IN);
    for (int n = 0; n < BATCH; n++) {
        double mean = 0, square = 0, sum[IN];
        for (int i = 0; i < IN; i++) {
            sum[i] = 2.0 * (double)x[n * IN + i] + (double)bias[i];
            mean += sum[i] / IN;
        }
        for (int i = 0; i < IN; i++)
            square += (sum[i] - mean) * (sum[i] - mean) / IN;
        for (int i = 0; i < IN; i++) {
            double y = (sum[i] - mean) / sqrt(square + 1e-5) * (double)gamma[i] + (double)beta[i];
            want[n * IN + i] = (float)(y / (1 + exp(-y)));
        }
    }
    begin(FLOAT, 4, (const int64_t[]){-1, 1, 1, IN});
    floats("g", 1, (const int64_t[]){IN}, gamma);
    floats("b", 1, (const int64_t[]){IN}, beta);
    floats("bias", 1, (const int64_t[]){IN}, bias);
    foreign("com.microsoft", "SkipGroupNorm", NAMES("x", "g", "b", "x", "bias"), NAMES("y"));
    ob_attr_int(&node, "groups", 1);
    ob_attr_int(&node, "activation", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    assert_gives(x, want, BATCH * IN);
}

/* ---- distances and hashes ---------------------------------------------------------------------- */

static void test_distances(void **state)
{
    (void)state;
    float x[BATCH * IN], rows[3 * IN], want[BATCH * 3];
    random_floats(x, BATCH * IN);
    random_floats(rows, 3 * IN);
    for (int root = 0; root < 2; root++) {
        for (int i = 0; i < BATCH * 3; i++) {
            double sum = 0;
            for (int k = 0; k < IN; k++) {
                double off = (double)(x[i / 3 * IN + k] - rows[i % 3 * IN + k]);
                sum += off * off;
            }
            want[i] = (float)(root ? sqrt(sum) : sum);
        }
        begin(FLOAT, 2, (const int64_t[]){-1, IN});
        floats("rows", 2, (const int64_t[]){3, IN}, rows);
        foreign("com.microsoft", "CDist", NAMES("x", "rows"), NAMES("y"));
        ob_attr_text(&node, "metric", root ? "euclidean" : "sqeuclidean");
        ob_message(&graph, OB_GRAPH_NODE, &node);
        assert_gives(x, want, BATCH * 3);
    }
}

/* Vectors of the function's author's test: of the bytes 21 43 65 87, and of four zeros. */
static void test_hashes(void **state)
{
    (void)state;
    const uint32_t x[BATCH] = {0x87654321u, 0}, want[BATCH] = {0xf55b516bu, 0x2362f9deu};
    for (int positive = 0; positive < 2; positive++) {
        uint32_t got[MOST];
        begin(INT32, 1, (const int64_t[]){-1});
        foreign("com.microsoft", "MurmurHash3", NAMES("x"), NAMES("y"));
        ob_attr_int(&node, "positive", positive);
        ob_message(&graph, OB_GRAPH_NODE, &node);
        assert_int_equal(run(x, got, positive ? UINT32 : INT32), sizeof x);
        assert_memory_equal(got, want, sizeof want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_padded_blocks),
        cmocka_unit_test(test_blocks_of_another_machine),
        cmocka_unit_test(test_blocks_are_told),
        cmocka_unit_test(test_tables_without_blocks),
        cmocka_unit_test(test_conv_of_last_channels),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_skip_group_norm),
        cmocka_unit_test(test_distances),
        cmocka_unit_test(test_hashes),
    };
    seed = rig_start();
    snprintf(path, sizeof path, "/tmp/sy-layouts-%d.onnx", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
