/* Operators of ONNX Runtime's and scikit-learn's domains, small types, maps and inputs without a shape, in files by hand and against their definitions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/graph_bind.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/rigs/engine_rig.h"

enum { FLOAT = 1, INT64 = 7, INT4 = 22, FLOAT8 = 17, BATCH = 2, NODE_DOMAIN = 7 };

static struct ob graph, node;
static uint64_t seed;
static struct sy_graph *whole, *bound;
static struct engine_rig rig;
static struct sy_program *program;
static struct rig_tensors in, out;

static void start(const char *op, const char *domain, const char *const *inputs)
{
    ob_graph(&graph);
    ob_node(&node, op, inputs, NAMES("y"));
    if (domain)
        ob_text(&node, NODE_DOMAIN, domain);
}

/* Makes a program of the node, its open size `size`, with room for inputs and results. */
static void make(int64_t size)
{
    struct sy_sizes sizes;
    if (node.n > 0)
        ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_save(ob_path, &graph, 21);
    if (sy_onnx_read(ob_path, &whole) < 0 || sy_graph_infer(whole) < 0)
        fail_msg("%s", sy_error_text());
    sy_graph_usual_sizes(whole, &sizes);
    if (whole->n_symbols > 0)
        sizes.of[0] = size;
    if (sy_graph_optimize(whole) < 0 || sy_graph_bind(whole, &sizes, &bound) < 0 ||
        rig_open(&rig, bound, false) < 0)
        fail_msg("%s", sy_error_text());
    program = rig_program(&rig, BATCH);
    rig_take(&rig, bound->inputs, bound->n_inputs, BATCH, 0, &in);
    rig_take(&rig, bound->outputs, bound->n_outputs, BATCH, 0xff, &out);
}

static void fill(int i, double low, double high)
{
    for (uint64_t k = 0; k < in.bytes[i] / sizeof(float); k++)
        ((float *)in.data[i])[k] = (float)gb_uniform(&seed, low, high);
}

static const float *run(void)
{
    assert_int_equal(rig_run(&rig, program, &in, &out, 0xff, &seed), SY_OK);
    return out.data[0];
}

static void finish(void)
{
    rig_drop(&in);
    rig_drop(&out);
    rig_engine.ops->program_destroy(program);
    rig_close(&rig);
    sy_graph_free(bound);
    sy_graph_free(whole);
}

static void assert_near(float got, double want)
{
    if (!(fabs((double)got - want) < 2e-5 * (1 + fabs(want))) && !((double)got == want))
        fail_msg("%g, not %g", (double)got, want);
}

static void refuse(const char *word)
{
    struct sy_graph *g;
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_save(ob_path, &graph, 21);
    int status = sy_onnx_read(ob_path, &g);
    if (status == SY_OK) {
        status = sy_graph_infer(g);
        sy_graph_free(g);
    }
    assert_int_equal(status, SY_EUNSUPPORTED);
    if (!strstr(sy_error_text(), word))
        fail_msg("'%s' does not contain '%s'", sy_error_text(), word);
}

/* ---- com.microsoft ------------------------------------------------------------------------------ */

/* x times its inverse is the unit matrix; the first number of each is 0, so that rows have to change places. */
static void test_inverse(void **state)
{
    enum { N = 5 };
    (void)state;
    start("Inverse", "com.microsoft", NAMES("x"));
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, N, N));
    make(0);
    fill(0, -1, 1);
    float *x = in.data[0];
    x[0] = x[N * N] = 0;
    const float *y = run();
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < N * N; i++) {
            double sum = 0;
            for (int k = 0; k < N; k++)
                sum += (double)x[(b * N + i / N) * N + k] * (double)y[(b * N + k) * N + i % N];
            if (!(fabs(sum - (i / N == i % N)) < 1e-3))
                fail_msg("number %d of x times its inverse is %g", i, sum);
        }
    finish();
}

/* Whether a token at the end of the row would repeat an n-gram. */
static bool repeats(const int64_t *row, int length, int n, int64_t token)
{
    for (int at = 0; at + n <= length; at++) {
        bool same = row[at + n - 1] == token;
        for (int k = 0; k < n - 1; k++)
            same = same && row[at + k] == row[length - n + 1 + k];
        if (same)
            return true;
    }
    return false;
}

static void test_repeated_ngrams(void **state)
{
    enum { LENGTH = 12, TOKENS = 5 };
    (void)state;
    for (int n = 1; n <= 3; n++) {
        start("NGramRepeatBlock", "com.microsoft", NAMES("ids", "scores"));
        ob_attr_int(&node, "ngram_size", n);
        ob_input(&graph, OB_GRAPH_INPUT, "ids", INT64, DIMS(-1, LENGTH));
        ob_input(&graph, OB_GRAPH_INPUT, "scores", FLOAT, DIMS(-1, TOKENS));
        make(0);
        fill(1, -1, 1);
        int64_t *ids = in.data[0];
        for (int i = 0; i < BATCH * LENGTH; i++)
            ids[i] = rig_int(&seed, 0, TOKENS - 2);
        const float *y = run(), *scores = in.data[1];
        for (int i = 0; i < BATCH * TOKENS; i++)
            assert_true(repeats(ids + i / TOKENS * LENGTH, LENGTH, n, i % TOKENS)
                            ? y[i] < 0 && isinf(y[i])
                            : y[i] == scores[i]);
        finish();
    }
}

enum { HIGH = 6, WIDE = 7, CROP = 4 };

/* A sample of an image [HIGH, WIDE] between its pixels; 0.25 outside. */
static double sample(const float *image, double row, double column)
{
    if (row < 0 || row > HIGH - 1 || column < 0 || column > WIDE - 1)
        return 0.25;
    int r = (int)row, c = (int)column, below = r + (row > r), right = c + (column > c);
    double down = row - r, along = column - c;
    return (1 - down) * ((1 - along) * (double)image[r * WIDE + c] +
                         along * (double)image[r * WIDE + right]) +
           down * ((1 - along) * (double)image[below * WIDE + c] +
                   along * (double)image[below * WIDE + right]);
}

static void test_crops(void **state)
{
    static const float boxes[2][4] = {{0.12f, 0.3f, 0.77f, 0.9f}, {-0.4f, 0.2f, 0.6f, 1.3f}};
    static const int64_t sizes[] = {CROP, CROP + 1}, which[] = {1, 0};
    (void)state;
    start("CropAndResize", "com.microsoft", NAMES("x", "boxes", "which", "sizes"));
    ob_attr_float(&node, "extrapolation_value", 0.25f);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(2, 1, HIGH, WIDE));
    ob_initializer(&graph, "boxes", FLOAT, DIMS(2, 4), boxes, sizeof boxes);
    ob_int64s(&graph, "which", 2, which);
    ob_int64s(&graph, "sizes", 2, sizes);
    make(0);
    fill(0, -1, 1);
    const float *y = run(), *x = in.data[0];
    for (int i = 0; i < 2 * CROP * (CROP + 1); i++) {
        int box = i / (CROP * (CROP + 1)), r = i / (CROP + 1) % CROP, c = i % (CROP + 1);
        const float *b = boxes[box];
        double row = ((double)b[0] + r * ((double)b[2] - (double)b[0]) / (CROP - 1)) * (HIGH - 1);
        double column = ((double)b[1] + c * ((double)b[3] - (double)b[1]) / CROP) * (WIDE - 1);
        assert_near(y[i], sample(x + which[box] * HIGH * WIDE, row, column));
    }
    finish();
}

/* Three positions a token; pairs 0 and 1 are turned by the first, 2 by the second, 3 by the third. */
static void test_rotary_of_three_streams(void **state)
{
    enum { HEADS = 2, LENGTH = 3, SIZE = 8, HALF = SIZE / 2, ROWS = 9 };
    static const int64_t sections[] = {2, 1, 1};
    static const int stream[HALF] = {0, 0, 1, 2};
    float cosines[ROWS * HALF], sines[ROWS * HALF];
    (void)state;
    for (int i = 0; i < ROWS * HALF; i++) {
        cosines[i] = cosf((float)i);
        sines[i] = sinf((float)i);
    }
    start("MRotaryEmbedding", "com.microsoft", NAMES("x", "at", "cos", "sin"));
    ob_attr_ints(&node, "mrope_section", 3, sections);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(2, HEADS, LENGTH, SIZE));
    ob_input(&graph, OB_GRAPH_INPUT, "at", INT64, DIMS(3, 2, LENGTH));
    ob_initializer(&graph, "cos", FLOAT, DIMS(ROWS, HALF), cosines, sizeof cosines);
    ob_initializer(&graph, "sin", FLOAT, DIMS(ROWS, HALF), sines, sizeof sines);
    make(0);
    fill(0, -1, 1);
    for (int i = 0; i < 3 * 2 * LENGTH; i++)
        ((int64_t *)in.data[1])[i] = rig_int(&seed, 0, ROWS - 1);
    const float *y = run(), *x = in.data[0];
    for (int row = 0; row < 2 * HEADS * LENGTH; row++)
        for (int i = 0; i < HALF; i++) {
            int b = row / (HEADS * LENGTH), t = row % LENGTH;
            int64_t at = ((int64_t *)in.data[1])[(stream[i] * 2 + b) * LENGTH + t];
            double c = (double)cosines[at * HALF + i], s = (double)sines[at * HALF + i];
            double p = (double)x[row * SIZE + i], q = (double)x[row * SIZE + HALF + i];
            assert_near(y[row * SIZE + i], p * c - q * s);
            assert_near(y[row * SIZE + HALF + i], p * s + q * c);
        }
    finish();
}

static void test_gated_norm(void **state)
{
    enum { PARTS = 2, SIZE = 4, ALL = PARTS * SIZE };
    static const float scale[SIZE] = {0.5f, 1, -1, 2};
    (void)state;
    start("GatedRMSNorm", "com.microsoft", NAMES("x", "scale", "gate"));
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 3, ALL));
    ob_input(&graph, OB_GRAPH_INPUT, "gate", FLOAT, DIMS(-1, 3, ALL));
    ob_initializer(&graph, "scale", FLOAT, DIMS(SIZE), scale, sizeof scale);
    make(0);
    fill(0, -2, 2);
    fill(1, -3, 3);
    const float *y = run(), *x = in.data[0], *gate = in.data[1];
    for (int i = 0; i < BATCH * 3 * ALL; i++) {
        double squares = 0, z = (double)gate[i];
        for (int k = 0; k < SIZE; k++)
            squares += pow((double)x[i / SIZE * SIZE + k], 2);
        assert_near(y[i], (double)x[i] / sqrt(squares / SIZE + 1e-5) * (double)scale[i % SIZE] * z /
                              (1 + exp(-z)));
    }
    finish();
}

/* ---- ONNX's newest ------------------------------------------------------------------------------ */

/* Scores pass through a body that doubles them, less what it captures; two heads of queries share one of keys. */
static void test_attention_with_a_body(void **state)
{
    enum { HEADS = 2, QUERIES = 3, KEYS = 4, SIZE = 2 };
    static struct ob body;
    static const float less = 0.5f;
    double p[KEYS];
    (void)state;
    ob_graph(&body);
    ob_input(&body, OB_GRAPH_INPUT, "s", FLOAT, 0, NULL);
    ob_add(&body, "Add", NAMES("s", "s"), NAMES("twice"));
    ob_add(&body, "Sub", NAMES("twice", "less"), NAMES("t"));
    ob_input(&body, OB_GRAPH_OUTPUT, "t", FLOAT, 0, NULL);
    start("FlexAttention", "ai.onnx.preview", NAMES("q", "k", "v"));
    ob_attr_graph(&node, "score_mod", &body);
    ob_input(&graph, OB_GRAPH_INPUT, "q", FLOAT, DIMS(1, HEADS, QUERIES, SIZE));
    ob_input(&graph, OB_GRAPH_INPUT, "k", FLOAT, DIMS(1, 1, KEYS, SIZE));
    ob_input(&graph, OB_GRAPH_INPUT, "v", FLOAT, DIMS(1, 1, KEYS, SIZE));
    ob_initializer(&graph, "less", FLOAT, 0, NULL, &less, sizeof less);
    make(0);
    for (int i = 0; i < 3; i++)
        fill(i, -1, 1);
    const float *y = run(), *q = in.data[0], *k = in.data[1], *v = in.data[2];
    for (int row = 0; row < HEADS * QUERIES; row++) {
        double sum = 0, want[SIZE] = {0};
        for (int i = 0; i < KEYS; i++) {
            double dot = 0;
            for (int c = 0; c < SIZE; c++)
                dot += (double)q[row * SIZE + c] * (double)k[i * SIZE + c];
            sum += p[i] = exp(2 * dot / sqrt(SIZE) - (double)less);
        }
        for (int i = 0; i < KEYS * SIZE; i++)
            want[i % SIZE] += p[i / SIZE] / sum * (double)v[i];
        for (int c = 0; c < SIZE; c++)
            assert_near(y[row * SIZE + c], want[c]);
    }
    finish();
}

/* Values whose size only a run knows: the run expands the node. */
static void test_attention_of_open_values(void **state)
{
    struct sy_graph *g;
    (void)state;
    start("FlexAttention", "ai.onnx.preview", NAMES("q", "k", "v"));
    ob_input(&graph, OB_GRAPH_INPUT, "q", FLOAT, DIMS(1, 2, 3, 4));
    ob_input(&graph, OB_GRAPH_INPUT, "k", FLOAT, DIMS(1, 1, 5, 4));
    ob_input(&graph, OB_GRAPH_INPUT, "v", FLOAT, DIMS(1, 1, 5, -1));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_save(ob_path, &graph, 21);
    if (sy_onnx_read(ob_path, &g) < 0 || sy_graph_infer(g) < 0)
        fail_msg("%s", sy_error_text());
    sy_graph_free(g);
}

/* With CRD result channel c * 4 + r * 2 + w holds pixels (r, w) of channel c's blocks. */
static void test_space_to_depth(void **state)
{
    enum { CHANNELS = 3, SIDE = 4 };
    (void)state;
    start("SpaceToDepth", NULL, NAMES("x"));
    ob_attr_int(&node, "blocksize", 2);
    ob_attr_text(&node, "mode", "CRD");
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(1, CHANNELS, SIDE, SIDE));
    make(0);
    fill(0, -1, 1);
    const float *y = run(), *x = in.data[0];
    for (int i = 0; i < CHANNELS * SIDE * SIDE; i++) {
        int channel = i / 4, r = i / 2 % 2, c = i % 2; /* of the result, 2 x 2 pixels */
        int row = 2 * r + channel / 2 % 2, column = 2 * c + channel % 2;
        assert_true(y[i] == x[(channel / 4 * SIDE + row) * SIDE + column]);
    }
    finish();
}

static void test_refused(void **state)
{
    (void)state;
    start("LinearAttention", "com.microsoft", NAMES("x", "x", "x"));
    ob_attr_int(&node, "q_num_heads", 1);
    ob_attr_int(&node, "kv_num_heads", 1);
    ob_attr_int(&node, "state_window", 4);
    ob_attr_text(&node, "update_rule", "linear");
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 3, 4));
    refuse("windows of states");
    start("BranchwiseRMSNorm", "com.microsoft", NAMES("x"));
    ob_attr_int(&node, "num_branches", 2);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 0));
    refuse("2 branches of 0 numbers");
    start("BranchwiseRMSNorm", "com.microsoft", NAMES("x", "scale"));
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 4));
    ob_input(&graph, OB_GRAPH_INPUT, "scale", FLOAT, DIMS(0));
    refuse("with a scale of 0");
    start("BranchwiseRMSNorm", "com.microsoft", NAMES("x", "scale"));
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 4));
    ob_input(&graph, OB_GRAPH_INPUT, "scale", FLOAT, DIMS(8));
    refuse("with a scale of 8");
    start("BeamSearch", "com.microsoft", NAMES("x"));
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 3, 4));
    refuse("BeamSearch");
}

/* ---- small types -------------------------------------------------------------------------------- */

/* To whole numbers of 4 bits, from -8 to 7: a zero point of 1. */
static void test_four_bits(void **state)
{
    static const unsigned char one = 1;
    static const float scale = 0.25f;
    (void)state;
    start("QuantizeLinear", NULL, NAMES("x", "scale", "zero"));
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 40));
    ob_initializer(&graph, "scale", FLOAT, 0, NULL, &scale, sizeof scale);
    ob_initializer(&graph, "zero", INT4, 0, NULL, &one, 1);
    make(0);
    assert_int_equal(bound->tensors[bound->outputs[0]].dtype, SY_DTYPE_I8);
    fill(0, -3, 3);
    const signed char *y = (const void *)run();
    for (int i = 0; i < BATCH * 40; i++)
        assert_int_equal(y[i], (int)fmax(-8, fmin(7, rint(((float *)in.data[0])[i] * 4.0) + 1)));
    finish();
}

/* The same within a body, which inference copies. */
static void test_four_bits_in_a_body(void **state)
{
    enum { BOOL = 9, WIDTH = 20 };
    static struct ob body, other;
    static const unsigned char one = 1;
    static const float scale = 0.25f;
    (void)state;
    ob_graph(&body);
    ob_initializer(&body, "scale", FLOAT, 0, NULL, &scale, sizeof scale);
    ob_initializer(&body, "zero", INT4, 0, NULL, &one, 1);
    ob_add(&body, "QuantizeLinear", NAMES("x", "scale", "zero"), NAMES("q"));
    ob_add(&body, "DequantizeLinear", NAMES("q", "scale", "zero"), NAMES("d"));
    ob_input(&body, OB_GRAPH_OUTPUT, "d", FLOAT, 0, NULL);
    ob_graph(&other);
    ob_add(&other, "Neg", NAMES("x"), NAMES("n"));
    ob_input(&other, OB_GRAPH_OUTPUT, "n", FLOAT, 0, NULL);
    start("If", NULL, NAMES("c"));
    ob_attr_graph(&node, "then_branch", &body);
    ob_attr_graph(&node, "else_branch", &other);
    ob_input(&graph, OB_GRAPH_INPUT, "c", BOOL, DIMS(1));
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, WIDTH));
    make(0);
    *(unsigned char *)in.data[0] = 1;
    fill(1, -3, 3);
    const float *y = run(), *x = in.data[1];
    for (int i = 0; i < BATCH * WIDTH; i++)
        assert_near(y[i], (fmax(-8, fmin(7, rint((double)x[i] * 4) + 1)) - 1) / 4);
    finish();
}

/* To floats of 8 bits and back: three bits behind the first one, multiples of 2^-9 below 2^-6, 448 at most. */
static void test_eight_bit_floats(void **state)
{
    (void)state;
    start("Cast", NULL, NAMES("x"));
    ob_attr_int(&node, "to", FLOAT8);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 50));
    make(0);
    fill(0, -600, 600);
    float *x = in.data[0];
    for (int i = 0; i < 50; i++)
        x[i] /= 30000; /* small ones */
    const float *y = run();
    for (int i = 0; i < BATCH * 50; i++) {
        double step = exp2(fmax(floor(log2(fabs((double)x[i]))), -6) - 3);
        double want = rint((double)x[i] / step) * step;
        assert_true((double)y[i] == fmax(-448, fmin(448, want)));
    }
    finish();
}

/* ---- maps and shapes ---------------------------------------------------------------------------- */

/* TypeProto.map_type of int64 to float. */
static void map_input(const char *name)
{
    static struct ob tensor, value, map, type, info;
    tensor.n = value.n = map.n = type.n = info.n = 0;
    ob_varint(&tensor, 1, FLOAT);
    ob_message(&value, 1, &tensor);
    ob_varint(&map, 1, INT64);
    ob_message(&map, 2, &value);
    ob_message(&type, 5, &map);
    ob_text(&info, 1, name);
    ob_message(&info, 2, &type);
    ob_message(&graph, OB_GRAPH_INPUT, &info);
}

/* Keys and values of a map come as two tensors; keys that the vocabulary lacks are left out, and those that the map lacks are 0. */
static void test_map_by_vocabulary(void **state)
{
    static const int64_t vocabulary[] = {40, 10, 20, 30}, keys[] = {20, 99, 40};
    static const float values[] = {2.5f, 9, -4}, want[] = {-4, 0, 2.5f, 0};
    (void)state;
    start("DictVectorizer", "ai.onnx.ml", NAMES("m"));
    ob_attr_ints(&node, "int64_vocabulary", 4, vocabulary);
    map_input("m");
    make(3);
    assert_int_equal(bound->n_inputs, 2);
    assert_string_equal(bound->tensors[bound->inputs[0]].name, "m.keys");
    assert_string_equal(bound->tensors[bound->inputs[1]].name, "m.values");
    memcpy(in.data[0], keys, sizeof keys);
    memcpy(in.data[1], values, sizeof values);
    assert_memory_equal(run(), want, sizeof want);
    finish();
}

/* The values in the order of their keys; or each at its key's place. */
static void test_map_as_tensor(void **state)
{
    static const int64_t keys[] = {3, 0, 2};
    static const float values[] = {30, 1, 20}, dense[] = {1, 20, 30}, sparse[] = {1, 0, 20, 30, 0};
    (void)state;
    for (int is_sparse = 0; is_sparse < 2; is_sparse++) {
        start("CastMap", "ai.onnx.ml", NAMES("m"));
        ob_attr_text(&node, "map_form", is_sparse ? "SPARSE" : "DENSE");
        ob_attr_int(&node, "max_map", 5);
        map_input("m");
        make(3);
        memcpy(in.data[0], keys, sizeof keys);
        memcpy(in.data[1], values, sizeof values);
        assert_memory_equal(run(), is_sparse ? sparse : dense,
                            is_sparse ? sizeof sparse : sizeof dense);
        finish();
    }
}

static void shapeless(const char *name)
{
    static struct ob tensor, type, info;
    tensor.n = type.n = info.n = 0;
    ob_varint(&tensor, 1, FLOAT);
    ob_message(&type, 1, &tensor);
    ob_text(&info, 1, name);
    ob_message(&info, 2, &type);
    ob_message(&graph, OB_GRAPH_INPUT, &info);
}

/* The weights of a convolution behind a Relu tell its rank; where nothing does, the caller has to. */
static void test_inputs_without_a_shape(void **state)
{
    static const float weight[2 * 3] = {1};
    struct sy_graph *g = NULL;
    (void)state;
    ob_graph(&graph);
    shapeless("x");
    ob_initializer(&graph, "w", FLOAT, DIMS(2, 3, 1, 1), weight, sizeof weight);
    ob_add(&graph, "Relu", NAMES("x"), NAMES("r"));
    ob_add(&graph, "Conv", NAMES("r", "w"), NAMES("y"));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_save(ob_path, &graph, 21);
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_OK);
    assert_int_equal(g->tensors[g->inputs[0]].shape.rank, 4);
    sy_graph_free(g);
    ob_graph(&graph);
    shapeless("x");
    ob_add(&graph, "Relu", NAMES("x"), NAMES("y"));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_save(ob_path, &graph, 21);
    assert_int_equal(sy_onnx_read(ob_path, &g), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), "--dim x.rank="));
    assert_int_equal(sy_onnx_read_sized(ob_path, &(struct sy_onnx_dim){"x.rank", 3}, 1, &g), SY_OK);
    assert_int_equal(sy_graph_infer(g), SY_OK);
    assert_int_equal(g->tensors[g->outputs[0]].shape.rank, 3);
    assert_int_equal(g->tensors[g->outputs[0]].shape.dims[0].per_batch, 1);
    sy_graph_free(g);
}

/* How a request with 2 rows of one input and 5 of another one ends; the file calls both sizes N. */
static int solve_two_sizes(const char *op, const struct sy_onnx_dim *dims, int n_dims)
{
    const int64_t two[] = {2, 3}, five[] = {5, 3};
    const struct sy_given_input given[] = {{0, 2, two}, {1, 2, five}};
    struct sy_sizes sizes;
    struct sy_graph *g = NULL;
    int64_t batch;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "a", FLOAT, DIMS(-1, 3));
    ob_input(&graph, OB_GRAPH_INPUT, "b", FLOAT, DIMS(-1, 3));
    ob_node(&node, op, NAMES("a", "b"), NAMES("y"));
    if (strcmp(op, "Concat") == 0)
        ob_attr_int(&node, "axis", 0);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_save(ob_path, &graph, 21);
    assert_int_equal(sy_onnx_read_sized(ob_path, dims, n_dims, &g), SY_OK);
    assert_int_equal(sy_graph_infer(g), SY_OK);
    int status = sy_graph_solve(g, 2, given, &batch, &sizes);
    if (status == SY_OK)
        status = sy_graph_bind(g, &sizes, &bound);
    if (status == SY_OK)
        sy_graph_free(bound);
    sy_graph_free(g);
    return status;
}

/* What is joined along N may have two sizes if the caller says so; what is added may not. */
static void test_one_name_for_two_sizes(void **state)
{
    static const struct sy_onnx_dim apart = {"N", SY_ONNX_APART};
    struct sy_graph *g;
    (void)state;
    assert_int_equal(solve_two_sizes("Concat", NULL, 0), SY_EARG);
    assert_int_equal(solve_two_sizes("Concat", &apart, 1), SY_OK);
    assert_int_equal(solve_two_sizes("Add", &apart, 1), SY_EARG);
    const struct sy_onnx_dim other = {"M", SY_ONNX_APART};
    assert_int_equal(sy_onnx_read_sized(ob_path, &other, 1, &g), SY_EARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inverse),
        cmocka_unit_test(test_repeated_ngrams),
        cmocka_unit_test(test_crops),
        cmocka_unit_test(test_rotary_of_three_streams),
        cmocka_unit_test(test_gated_norm),
        cmocka_unit_test(test_attention_with_a_body),
        cmocka_unit_test(test_attention_of_open_values),
        cmocka_unit_test(test_space_to_depth),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_four_bits),
        cmocka_unit_test(test_four_bits_in_a_body),
        cmocka_unit_test(test_eight_bit_floats),
        cmocka_unit_test(test_map_by_vocabulary),
        cmocka_unit_test(test_map_as_tensor),
        cmocka_unit_test(test_inputs_without_a_shape),
        cmocka_unit_test(test_one_name_for_two_sizes),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}
