/* Operators that import writes out as others: sequences, Scan, loops that grow, other domains. Results against closed forms, refusals by name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"

enum { FLOAT = 1, INT64 = 7, BOOL = 9, DOMAIN = 7, STEPS = 6, WIDTH = 5 };

static char path[64];
static struct ob graph, body, other, node;
static uint64_t seed;

static void value(struct ob *to, int field, const char *name, int type)
{
    ob_input(to, field, name, type, 0, NULL);
}

static int opset = 13;

static int read_graph(struct sy_graph **g)
{
    ob_save(path, &graph, opset);
    return onnx_try_inferred(path, g);
}

/* Runs the graph on `x`; its first output must be `want`. */
static void assert_gives(const float *x, const float *want, size_t n_want, bool optimize)
{
    struct engine_rig rig;
    struct rig_tensors in, out;
    struct sy_graph *g;
    if (read_graph(&g) < 0 || (optimize && sy_graph_optimize(g) < 0) ||
        rig_open(&rig, g, false) < 0)
        fail_msg("%s", sy_error_text());
    struct sy_program *program = rig_program(&rig, 2);
    rig_take(&rig, g->inputs, g->n_inputs, 2, 0, &in);
    memcpy(in.data[0], x, in.bytes[0]);
    rig_take(&rig, g->outputs, g->n_outputs, 2, 0xff, &out);
    assert_int_equal(rig_run(&rig, program, &in, &out, 0xff, &seed), SY_OK);
    assert_int_equal(out.bytes[0], n_want * sizeof *want);
    for (size_t i = 0; i < n_want; i++)
        assert_true(fabsf(((const float *)out.data[0])[i] - want[i]) < 1e-5f);
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
    rig_close(&rig);
    sy_graph_free(g);
}

static void random_floats(float *to, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = (float)gb_uniform(&seed, -1, 1);
}

static void assert_refused(const char *part)
{
    struct sy_graph *g;
    assert_int_equal(read_graph(&g), SY_EUNSUPPORTED);
    if (!strstr(sy_error_text(), part))
        fail_msg("'%s' is not in '%s'", part, sy_error_text());
}

/* x [N, 6] is cut in threes; their order is turned: sequence operators leave only a Split and a Concat. */
static void cut_and_turn(void)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, STEPS));
    ob_int64s(&graph, "three", 0, (const int64_t[]){3});
    ob_int64s(&graph, "minus", 0, (const int64_t[]){-1});
    ob_int64s(&graph, "zero", 0, (const int64_t[]){0});
    ob_node(&node, "SplitToSequence", NAMES("x", "three"), NAMES("s"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "SequenceAt", NAMES("s", "minus"), NAMES("last"));
    ob_add(&graph, "SequenceErase", NAMES("s"), NAMES("short"));
    ob_add(&graph, "SequenceInsert", NAMES("short", "last", "zero"), NAMES("turned"));
    ob_add(&graph, "Identity", NAMES("turned"), NAMES("same"));
}

static void test_sequences(void **state)
{
    (void)state;
    float x[2 * STEPS], want[2 * STEPS];
    random_floats(x, 2 * STEPS);
    for (int i = 0; i < 2 * STEPS; i++)
        want[i] = x[i / STEPS * STEPS + (i + 3) % STEPS];
    for (int optimize = 0; optimize < 2; optimize++) {
        cut_and_turn();
        ob_node(&node, "ConcatFromSequence", NAMES("same"), NAMES("y"));
        ob_attr_int(&node, "axis", 1);
        ob_message(&graph, OB_GRAPH_NODE, &node);
        value(&graph, OB_GRAPH_OUTPUT, "y", FLOAT);
        assert_gives(x, want, 2 * STEPS, optimize);
    }
}

static void test_sequences_stay_inside(void **state)
{
    (void)state;
    cut_and_turn();
    ob_add(&graph, "Relu", NAMES("turned"), NAMES("y"));
    value(&graph, OB_GRAPH_OUTPUT, "y", FLOAT);
    assert_refused("(Relu, opset 13): input 0, 'turned', is a sequence");
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, STEPS));
    ob_int64s(&graph, "at", 0, (const int64_t[]){0});
    ob_add(&graph, "SequenceAt", NAMES("x", "at"), NAMES("y"));
    value(&graph, OB_GRAPH_OUTPUT, "y", FLOAT);
    assert_refused("(SequenceAt, opset 13): input 0 is not a sequence");
}

/* h <- h + x[:, t], forwards or backwards; all h, in order or turned, at place 0 or 1. */
static void running_sum(bool backwards, bool turned, bool second)
{
    ob_graph(&body);
    value(&body, OB_GRAPH_INPUT, "h", FLOAT);
    value(&body, OB_GRAPH_INPUT, "a", FLOAT);
    ob_add(&body, "Add", NAMES("h", "a"), NAMES("next"));
    ob_add(&body, "Identity", NAMES("next"), NAMES("each"));
    value(&body, OB_GRAPH_OUTPUT, "next", FLOAT);
    value(&body, OB_GRAPH_OUTPUT, "each", FLOAT);
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, STEPS));
    ob_int64s(&graph, "list", 1, (const int64_t[]){1});
    ob_add(&graph, "Sub", NAMES("x", "x"), NAMES("zeros"));
    ob_node(&node, "ReduceSum", NAMES("zeros", "list"), NAMES("h0"));
    ob_attr_int(&node, "keepdims", 0);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_node(&node, "Scan", NAMES("h0", "x"), NAMES("last", "all"));
    ob_attr_int(&node, "num_scan_inputs", 1);
    ob_attr_ints(&node, "scan_input_axes", 1, (const int64_t[]){-1});
    ob_attr_ints(&node, "scan_input_directions", 1, (const int64_t[]){backwards});
    ob_attr_ints(&node, "scan_output_axes", 1, (const int64_t[]){second});
    ob_attr_ints(&node, "scan_output_directions", 1, (const int64_t[]){turned});
    ob_attr_graph(&node, "body", &body);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    value(&graph, OB_GRAPH_OUTPUT, "all", FLOAT);
    value(&graph, OB_GRAPH_OUTPUT, "last", FLOAT);
}

static void test_scan(void **state)
{
    (void)state;
    for (int form = 0; form < 16; form++) {
        bool backwards = form & 1, turned = form & 2, second = form & 4;
        float x[2 * STEPS], want[2 * STEPS], sum[2] = {0, 0};
        random_floats(x, 2 * STEPS);
        for (int t = 0; t < STEPS; t++)
            for (int b = 0; b < 2; b++) {
                int row = turned ? STEPS - 1 - t : t;
                sum[b] += x[b * STEPS + (backwards ? STEPS - 1 - t : t)];
                want[second ? b * STEPS + row : row * 2 + b] = sum[b];
            }
        running_sum(backwards, turned, second);
        assert_gives(x, want, 2 * STEPS, form & 8);
    }
}

/* y = [x, x * 0, x * 1, ...]: what the Loop carries gets longer with each turn. */
static void growing_loop(void)
{
    ob_graph(&body);
    value(&body, OB_GRAPH_INPUT, "i", INT64);
    value(&body, OB_GRAPH_INPUT, "more", BOOL);
    value(&body, OB_GRAPH_INPUT, "g", FLOAT);
    ob_add(&body, "Identity", NAMES("more"), NAMES("go"));
    ob_node(&node, "Cast", NAMES("i"), NAMES("f"));
    ob_attr_int(&node, "to", FLOAT);
    ob_message(&body, OB_GRAPH_NODE, &node);
    ob_add(&body, "Mul", NAMES("x", "f"), NAMES("p"));
    ob_node(&node, "Concat", NAMES("g", "p"), NAMES("longer"));
    ob_attr_int(&node, "axis", 1);
    ob_message(&body, OB_GRAPH_NODE, &node);
    value(&body, OB_GRAPH_OUTPUT, "go", BOOL);
    value(&body, OB_GRAPH_OUTPUT, "longer", FLOAT);
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, WIDTH));
    ob_int64s(&graph, "n", 0, (const int64_t[]){STEPS});
    ob_node(&node, "Loop", NAMES("n", "", "x"), NAMES("y"));
    ob_attr_graph(&node, "body", &body);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    value(&graph, OB_GRAPH_OUTPUT, "y", FLOAT);
}

static void test_loop_that_grows(void **state)
{
    (void)state;
    enum { LONG = WIDTH * (1 + STEPS) };
    float x[2 * WIDTH], want[2 * LONG];
    random_floats(x, 2 * WIDTH);
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < LONG; i++)
            want[b * LONG + i] =
                x[b * WIDTH + i % WIDTH] * (i < WIDTH ? 1 : (float)(i / WIDTH - 1));
    growing_loop();
    assert_gives(x, want, 2 * LONG, true);
}

/* The branch that is taken has one dimension less than the other. */
static void test_known_condition(void **state)
{
    (void)state;
    float x[2 * WIDTH];
    random_floats(x, 2 * WIDTH);
    unsigned char yes = 1;
    ob_graph(&body);
    ob_add(&body, "Squeeze", NAMES("x", "one"), NAMES("flat"));
    value(&body, OB_GRAPH_OUTPUT, "flat", FLOAT);
    ob_graph(&other);
    value(&other, OB_GRAPH_OUTPUT, "x", FLOAT);
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 1, WIDTH));
    ob_int64s(&graph, "one", 1, (const int64_t[]){1});
    ob_initializer(&graph, "flag", BOOL, 0, NULL, &yes, 1);
    ob_node(&node, "If", NAMES("flag"), NAMES("y"));
    ob_attr_graph(&node, "then_branch", &body);
    ob_attr_graph(&node, "else_branch", &other);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    value(&graph, OB_GRAPH_OUTPUT, "y", FLOAT);
    assert_gives(x, x, 2 * WIDTH, true);
}

static void foreign(const char *op, const char *domain)
{
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, WIDTH));
    ob_node(&node, op, NAMES("x"), NAMES("y"));
    ob_text(&node, DOMAIN, domain);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    value(&graph, OB_GRAPH_OUTPUT, "y", FLOAT);
}

static void test_other_domains(void **state)
{
    (void)state;
    float x[2 * WIDTH], want[2 * WIDTH];
    random_floats(x, 2 * WIDTH);
    for (int i = 0; i < 2 * WIDTH; i++)
        want[i] = (float)(0.5 * (double)x[i] * (1 + erf((double)x[i] / sqrt(2))));
    foreign("Gelu", "com.microsoft");
    assert_gives(x, want, 2 * WIDTH, true);
    for (int i = 0; i < 2 * WIDTH; i++)
        want[i] = (float)((double)x[i] / (1 + exp(-1.702 * (double)x[i])));
    foreign("QuickGelu", "com.microsoft");
    assert_gives(x, want, 2 * WIDTH, true);
    foreign("Sampling", "com.microsoft");
    assert_refused("'y' (Sampling, opset 13): operator 'com.microsoft.Sampling'");
    foreign("Relu", "somebody.else");
    assert_refused("domain 'somebody.else'");
    foreign("DictVectorizer", "ai.onnx.ml");
    assert_refused("other than a map");
}

/* An output "y" that is a sequence of maps from int64 to float. */
static void output_of_maps(void)
{
    static struct ob tensor, value_type, map, each, sequence, type, info;
    tensor.n = value_type.n = map.n = each.n = sequence.n = type.n = info.n = 0;
    ob_varint(&tensor, 1, FLOAT);
    ob_message(&value_type, 1, &tensor);
    ob_varint(&map, 1, INT64);
    ob_message(&map, 2, &value_type);
    ob_message(&each, 5, &map);
    ob_message(&sequence, 1, &each);
    ob_message(&type, 4, &sequence);
    ob_text(&info, 1, "y");
    ob_message(&info, 2, &type);
    ob_message(&graph, OB_GRAPH_OUTPUT, &info);
}

/* Classifiers as skl2onnx exports them by default: each row's probabilities are a map. They leave as the tensor that the maps are made of. */
static void test_maps_of_probabilities(void **state)
{
    (void)state;
    float x[2 * WIDTH];
    int64_t labels[WIDTH];
    random_floats(x, 2 * WIDTH);
    for (int i = 0; i < WIDTH; i++)
        labels[i] = 10 + i;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, WIDTH));
    ob_node(&node, "ZipMap", NAMES("x"), NAMES("y"));
    ob_text(&node, DOMAIN, "ai.onnx.ml");
    ob_attr_ints(&node, "classlabels_int64s", WIDTH, labels);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    output_of_maps();
    assert_gives(x, x, 2 * WIDTH, true);
}

/* A node of ONNX Runtime's domain, with attributes "name", value, ... */
static void microsoft(const char *op, const char *const *inputs, const char *const *outputs,
                      const char *const *names, const int64_t *values)
{
    ob_node(&node, op, inputs, outputs);
    ob_text(&node, DOMAIN, "com.microsoft");
    for (int i = 0; names[i]; i++)
        ob_attr_int(&node, names[i], values[i]);
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

/* Weights of 4 bits in blocks of 16: (q - zero) scale, the lower bits first; zeros of 8 where they are left out; rows may name whose scale they have. */
static void test_few_bits(void **state)
{
    (void)state;
    enum { K = 32, N = 3, BLOCKS = K / 16 };
    float x[2 * K], want[2 * N], scales[N * BLOCKS];
    unsigned char q[N][K / 2], zeros[N];
    int32_t groups[K];
    random_floats(x, 2 * K);
    random_floats(scales, N * BLOCKS);
    for (int i = 0; i < N * K / 2; i++)
        q[i / (K / 2)][i % (K / 2)] = (unsigned char)gb_uniform(&seed, 0, 256);
    for (int i = 0; i < N; i++)
        zeros[i] = (unsigned char)gb_uniform(&seed, 0, 256);
    for (int i = 0; i < K; i++)
        groups[i] = i % BLOCKS;
    for (int form = 0; form < 3; form++) {
        bool has_zeros = form > 0, has_groups = form == 2;
        for (int i = 0; i < 2 * N; i++) {
            double sum = 0;
            for (int k = 0; k < K; k++) {
                int n = i % N, block = has_groups ? groups[k] : k / 16,
                    bits = q[n][k / 2] >> (k % 2 * 4) & 15;
                int zero = has_zeros ? zeros[n] >> (block * 4) & 15 : 8;
                sum +=
                    (double)x[i / N * K + k] * (double)scales[n * BLOCKS + block] * (bits - zero);
            }
            want[i] = (float)sum;
        }
        ob_graph(&graph);
        ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, K));
        ob_initializer(&graph, "q", 2, DIMS(N, BLOCKS, 8), q, sizeof q);
        ob_initializer(&graph, "s", FLOAT, DIMS(N * BLOCKS), scales, sizeof scales);
        ob_initializer(&graph, "z", 2, DIMS(N), zeros, sizeof zeros);
        ob_initializer(&graph, "g", 6, DIMS(K), groups, sizeof groups);
        microsoft("MatMulNBits",
                  has_groups  ? NAMES("x", "q", "s", "z", "g")
                  : has_zeros ? NAMES("x", "q", "s", "z")
                              : NAMES("x", "q", "s"),
                  NAMES("y"), NAMES("K", "N", "bits", "block_size"),
                  (const int64_t[]){K, N, 4, 16});
        value(&graph, OB_GRAPH_OUTPUT, "y", FLOAT);
        assert_gives(x, want, 2 * N, has_zeros);
    }
}

/* Two heads of four numbers at positions 1 and 2: numbers i and i + 2 of a head, or 2i and 2i + 1, are turned by one angle. */
static void test_rotary(void **state)
{
    (void)state;
    enum { LENGTH = 2, HEADS = 2, SIZE = 4, N_X = 2 * LENGTH * HEADS * SIZE };
    float x[N_X], want[N_X], cosines[3][2], sines[3][2];
    random_floats(x, N_X);
    for (int i = 0; i < 6; i++) {
        cosines[i / 2][i % 2] = cosf((float)i);
        sines[i / 2][i % 2] = sinf((float)i);
    }
    for (int pairs = 0; pairs < 2; pairs++) {
        for (int i = 0; i < N_X; i += SIZE)
            for (int k = 0; k < 2; k++) {
                int at = i / SIZE / HEADS % LENGTH + 1, a = i + (pairs ? 2 * k : k),
                    b = pairs ? a + 1 : a + 2;
                want[a] = x[a] * cosines[at][k] - x[b] * sines[at][k];
                want[b] = x[a] * sines[at][k] + x[b] * cosines[at][k];
            }
        ob_graph(&graph);
        ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, LENGTH, HEADS * SIZE));
        ob_int64s(&graph, "at", 1, (const int64_t[]){1});
        ob_initializer(&graph, "cos", FLOAT, DIMS(3, 2), cosines, sizeof cosines);
        ob_initializer(&graph, "sin", FLOAT, DIMS(3, 2), sines, sizeof sines);
        microsoft("RotaryEmbedding", NAMES("x", "at", "cos", "sin"), NAMES("y"),
                  NAMES("interleaved"), (const int64_t[]){pairs});
        value(&graph, OB_GRAPH_OUTPUT, "y", FLOAT);
        assert_gives(x, want, N_X, pairs);
    }
}

/* Half as many columns: each is weighed 1/8, 3/8, 3/8, 1/8 of its neighbours; what lies outside counts for the edge. */
static void test_antialias(void **state)
{
    (void)state;
    float x[2 * 2 * 6], want[2 * 2 * 3];
    static const float weights[] = {0.125f, 0.375f, 0.375f, 0.125f};
    random_floats(x, 24);
    for (int i = 0; i < 12; i++) {
        want[i] = 0;
        for (int k = 0; k < 4; k++) {
            int at = 2 * (i % 3) - 1 + k;
            want[i] += weights[k] * x[i / 3 * 6 + (at < 0 ? 0 : at > 5 ? 5 : at)];
        }
    }
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 1, 2, 6));
    ob_initializer(&graph, "scales", FLOAT, DIMS(4), (const float[]){1, 1, 1, 0.5f}, 16);
    ob_node(&node, "Resize", NAMES("x", "", "scales"), NAMES("y"));
    ob_attr_int(&node, "antialias", 1);
    ob_attr_text(&node, "mode", "linear");
    ob_message(&graph, OB_GRAPH_NODE, &node);
    value(&graph, OB_GRAPH_OUTPUT, "y", FLOAT);
    assert_gives(x, want, 12, true);
}

/* Which column is taken: 3 / 0.3f is 10 in float32, though 0.3f is more than 0.3. */
static void test_nearest(void **state)
{
    (void)state;
    static const int columns[] = {0, 3, 6, 10};
    float x[2 * 14], want[2 * 4];
    random_floats(x, 28);
    for (int i = 0; i < 8; i++)
        want[i] = x[i / 4 * 14 + columns[i % 4]];
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 1, 14));
    ob_initializer(&graph, "scales", FLOAT, DIMS(3), (const float[]){1, 1, 0.3f}, 12);
    ob_node(&node, "Resize", NAMES("x", "", "scales"), NAMES("y"));
    ob_attr_text(&node, "mode", "nearest");
    ob_attr_text(&node, "nearest_mode", "floor");
    ob_attr_text(&node, "coordinate_transformation_mode", "asymmetric");
    ob_message(&graph, OB_GRAPH_NODE, &node);
    value(&graph, OB_GRAPH_OUTPUT, "y", FLOAT);
    assert_gives(x, want, 8, true);
}

/* Positions that are counted in float64. */
static void test_doubles(void **state)
{
    (void)state;
    static const double limits[] = {0, 3, 0.75};
    static const char *const names[] = {"from", "to", "step"};
    enum { DOUBLE = 11 };
    float x[2 * 4], want[2 * 4];
    random_floats(x, 8);
    for (int i = 0; i < 8; i++)
        want[i] = x[i] + 0.75f * (float)(i % 4);
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 4));
    for (int i = 0; i < 3; i++)
        ob_initializer(&graph, names[i], DOUBLE, 0, NULL, &limits[i], sizeof(double));
    ob_node(&node, "Range", NAMES("from", "to", "step"), NAMES("range"));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_node(&node, "Cast", NAMES("range"), NAMES("floats"));
    ob_attr_int(&node, "to", FLOAT);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_node(&node, "Add", NAMES("x", "floats"), NAMES("y"));
    ob_message(&graph, OB_GRAPH_NODE, &node);
    value(&graph, OB_GRAPH_OUTPUT, "y", FLOAT);
    assert_gives(x, want, 8, true);
}

/* What is no number becomes the least of 8 bits, as ONNX Runtime has it. */
static void test_quantized_nan(void **state)
{
    (void)state;
    const float x[2 * 4] = {NAN, 1, -NAN, 1000, -1000, 0, NAN, -2},
                      want[2 * 4] = {-128, 1, -128, 127, -128, 0, -128, -2}, one = 1;
    const signed char zero = 0;
    enum { INT8 = 3 };
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 4));
    ob_initializer(&graph, "s", FLOAT, 0, NULL, &one, sizeof one);
    ob_initializer(&graph, "z", INT8, 0, NULL, &zero, sizeof zero);
    ob_add(&graph, "QuantizeLinear", NAMES("x", "s", "z"), NAMES("eight"));
    ob_add(&graph, "DequantizeLinear", NAMES("eight", "s", "z"), NAMES("y"));
    value(&graph, OB_GRAPH_OUTPUT, "y", FLOAT);
    assert_gives(x, want, 8, true);
}

/* Half of a real signal's spectrum, and back: of even and odd lengths, one made longer by zeros. */
static void test_spectrum(void **state)
{
    (void)state;
    static const int64_t lengths[] = {8, 7, 12};
    float x[2 * 8], want[2 * 12];
    opset = 17;
    for (int k = 0; k < 3; k++) {
        int64_t n = k == 1 ? 7 : 8, to = lengths[k];
        random_floats(x, (int)(2 * n));
        for (int64_t i = 0; i < 2 * to; i++)
            want[i] = i % to < n ? x[i / to * n + i % to] : 0;
        ob_graph(&graph);
        ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, n, 1));
        ob_int64s(&graph, "length", 0, &to);
        for (int back = 0; back < 2; back++) {
            ob_node(&node, "DFT", NAMES(back ? "half" : "x", "length"), NAMES(back ? "y" : "half"));
            ob_attr_int(&node, "axis", 1);
            ob_attr_int(&node, "onesided", 1);
            ob_attr_int(&node, "inverse", back);
            ob_message(&graph, OB_GRAPH_NODE, &node);
        }
        value(&graph, OB_GRAPH_OUTPUT, "y", FLOAT);
        assert_gives(x, want, (size_t)(2 * to), true);
    }
    opset = 13;
}

/* Constants of 4 bits, a scale and a zero point for each two rows. */
static void test_blocks_of_four_bits(void **state)
{
    (void)state;
    enum { INT4 = 22 };
    const unsigned char q[] = {0x8f, 0x07, 0x21, 0xc3}, zeros[] = {0xe1, 0x20};
    const int rows[4][2] = {{-1, -8}, {7, 0}, {1, 2}, {3, -4}}, zero[2][2] = {{1, -2}, {0, 2}};
    float x[2 * 4], want[2 * 2], scales[4];
    random_floats(x, 8);
    random_floats(scales, 4);
    for (int i = 0; i < 4; i++) {
        want[i] = 0;
        for (int k = 0; k < 4; k++)
            want[i] += x[i / 2 * 4 + k] * scales[k / 2 * 2 + i % 2] *
                       (float)(rows[k][i % 2] - zero[k / 2][i % 2]);
    }
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, 4));
    ob_initializer(&graph, "q", INT4, DIMS(4, 2), q, sizeof q);
    ob_initializer(&graph, "s", FLOAT, DIMS(2, 2), scales, sizeof scales);
    ob_initializer(&graph, "z", INT4, DIMS(2, 2), zeros, sizeof zeros);
    ob_node(&node, "DequantizeLinear", NAMES("q", "s", "z"), NAMES("w"));
    ob_attr_int(&node, "axis", 0);
    ob_attr_int(&node, "block_size", 2);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_add(&graph, "MatMul", NAMES("x", "w"), NAMES("y"));
    value(&graph, OB_GRAPH_OUTPUT, "y", FLOAT);
    assert_gives(x, want, 4, true);
    ob_add(&graph, "QuantizeLinear", NAMES("y", "s", "z"), NAMES("eight"));
    value(&graph, OB_GRAPH_OUTPUT, "eight", 3);
    assert_refused("a scale of several dimensions");
}

/* Buckets of positions: the logarithm is rounded, so it must be right at powers of two to the last bit. */
static void test_buckets_by_logarithm(void **state)
{
    (void)state;
    float x[2 * STEPS], want[2 * STEPS];
    float unit = (float)log(2);
    for (int i = 0; i < 2 * STEPS; i++) {
        x[i] = ldexpf(1, i + 1);
        want[i] = floorf((float)log(x[i]) / unit);
    }
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, STEPS));
    ob_initializer(&graph, "unit", FLOAT, 0, NULL, &unit, sizeof unit);
    ob_add(&graph, "Log", NAMES("x"), NAMES("l"));
    ob_add(&graph, "Div", NAMES("l", "unit"), NAMES("q"));
    ob_add(&graph, "Floor", NAMES("q"), NAMES("y"));
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, DIMS(-1, STEPS));
    assert_gives(x, want, 2 * STEPS, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets_by_logarithm),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_sequences_stay_inside),
        cmocka_unit_test(test_scan),
        cmocka_unit_test(test_loop_that_grows),
        cmocka_unit_test(test_known_condition),
        cmocka_unit_test(test_other_domains),
        cmocka_unit_test(test_maps_of_probabilities),
        cmocka_unit_test(test_few_bits),
        cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_antialias),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_spectrum),
        cmocka_unit_test(test_doubles),
        cmocka_unit_test(test_quantized_nan),
        cmocka_unit_test(test_blocks_of_four_bits),
    };
    seed = rig_start();
    snprintf(path, sizeof path, "/tmp/sy-expand-%d.onnx", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
