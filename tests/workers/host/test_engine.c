/* The host engine on whole graphs: random ones, with everything that rig_check asks of each; batch sizes over one set of packed
 * weights; memory; what it refuses. Operators one by one: test_engine_conv, _matrix, _elements. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"

static uint64_t seed;

/* ---- random graphs ------------------------------------------------------------------------------ */

#define MAX_PICTURES 24

/* A graph of pictures [N, channels, size, size] that grows. */
struct sketch {
    struct sy_graph *g;
    int n;
    struct picture {
        int tensor;
        int64_t channels, size;
    } pictures[MAX_PICTURES];
};

static struct picture pick(const struct sketch *s)
{
    return s->pictures[rig_int(&seed, s->n > 5 ? s->n - 5 : 0, s->n - 1)];
}

static void keep(struct sketch *s, int tensor, int64_t channels, int64_t size)
{
    s->pictures[s->n++] = (struct picture){tensor, channels, size};
}

#define PICTURE(channels, size) DIMS(1, channels, size, size)

static void grow_conv(struct sketch *s)
{
    static const int64_t channels[] = {1, 3, 8, 16, 17, 24, 33};
    struct picture x = pick(s);
    int64_t out = rig_int(&seed, 0, 1) ? x.channels : channels[rig_int(&seed, 0, 6)];
    int64_t kernel = rig_int(&seed, 0, 1) ? 3 : 1, stride = x.size > 3 ? rig_int(&seed, 1, 2) : 1;
    int64_t size = (x.size - 1) / stride + 1, pad = kernel / 2;
    bool depthwise = out == x.channels && rig_int(&seed, 0, 3) == 0;
    double scale = 1 / sqrt((double)((depthwise ? 1 : x.channels) * kernel * kernel));
    int w = gb_constant(s->g, "w", DIMS(out, depthwise ? 1 : x.channels, kernel, kernel), &seed,
                        -1.7 * scale, 1.7 * scale);
    int b = gb_constant(s->g, "b", DIMS(out), &seed, -0.3, 0.3);
    int y = gb_node(s->g, SY_OP_CONV, (int)rig_int(&seed, 2, 3), (int[]){x.tensor, w, b},
                    PICTURE(out, size));
    gb_ints(s->g, "kernel_shape", DIMS(kernel, kernel));
    gb_ints(s->g, "strides", DIMS(stride, stride));
    gb_ints(s->g, "pads", DIMS(pad, pad, pad, pad));
    gb_int(s->g, "group", depthwise ? x.channels : 1);
    keep(s, y, out, size);
}

static void grow_pool(struct sketch *s)
{
    struct picture x = pick(s);
    bool average = rig_int(&seed, 0, 1);
    int64_t stride = x.size > 3 ? 2 : 1, size = (x.size - 1) / stride + 1;
    int y = gb_node(s->g, average ? SY_OP_AVERAGE_POOL : SY_OP_MAX_POOL, INPUTS(x.tensor),
                    PICTURE(x.channels, size));
    gb_ints(s->g, "kernel_shape", DIMS(3, 3));
    gb_ints(s->g, "strides", DIMS(stride, stride));
    gb_ints(s->g, "pads", DIMS(1, 1, 1, 1));
    keep(s, y, x.channels, size);
}

static void grow_unary(struct sketch *s)
{
    static const enum sy_op ops[] = {SY_OP_RELU,    SY_OP_RELU, SY_OP_SIGMOID,  SY_OP_TANH,
                                     SY_OP_GELU,    SY_OP_CLIP, SY_OP_IDENTITY, SY_OP_NEG,
                                     SY_OP_SOFTMAX, SY_OP_ERF};
    struct picture x = pick(s);
    enum sy_op op = ops[rig_int(&seed, 0, 9)];
    int y = gb_node(s->g, op, INPUTS(x.tensor), PICTURE(x.channels, x.size));
    if (op == SY_OP_CLIP) {
        gb_float(s->g, "min", -0.5f);
        gb_float(s->g, "max", 0.5f);
    } else if (op == SY_OP_SOFTMAX) {
        gb_int(s->g, "axis", rig_int(&seed, 1, 3));
    }
    keep(s, y, x.channels, x.size);
}

static void grow_batch_norm(struct sketch *s)
{
    struct picture x = pick(s);
    int inputs[5] = {x.tensor, gb_constant(s->g, "scale", DIMS(x.channels), &seed, 0.5, 1.2),
                     gb_constant(s->g, "shift", DIMS(x.channels), &seed, -0.3, 0.3),
                     gb_constant(s->g, "mean", DIMS(x.channels), &seed, -0.3, 0.3),
                     gb_constant(s->g, "variance", DIMS(x.channels), &seed, 0.5, 2)};
    keep(s, gb_node(s->g, SY_OP_BATCH_NORM, 5, inputs, PICTURE(x.channels, x.size)), x.channels,
         x.size);
}

/* With the latest picture of the same shape, if there is another; else with a constant per channel. */
static void grow_binary(struct sketch *s)
{
    static const enum sy_op ops[] = {SY_OP_ADD, SY_OP_ADD, SY_OP_SUB, SY_OP_MUL, SY_OP_MAX};
    struct picture x = pick(s);
    int other = -1;
    for (int i = s->n - 1; i >= 0 && other < 0; i--)
        if (s->pictures[i].tensor != x.tensor && s->pictures[i].channels == x.channels &&
            s->pictures[i].size == x.size)
            other = s->pictures[i].tensor;
    if (other < 0)
        other = gb_constant(s->g, "c", DIMS(x.channels, 1, 1), &seed, -1, 1);
    keep(s,
         gb_node(s->g, ops[rig_int(&seed, 0, 4)], INPUTS(x.tensor, other),
                 PICTURE(x.channels, x.size)),
         x.channels, x.size);
}

static void grow_concat(struct sketch *s)
{
    struct picture x = pick(s);
    int64_t channels = x.channels;
    int inputs[3] = {x.tensor}, n = 1;
    for (int i = s->n - 1; i >= 0 && n < 3; i--)
        if (s->pictures[i].size == x.size) {
            inputs[n++] = s->pictures[i].tensor;
            channels += s->pictures[i].channels;
        }
    if (channels > 90)
        return;
    keep(s, gb_node(s->g, SY_OP_CONCAT, n, inputs, PICTURE(channels, x.size)), channels, x.size);
    gb_int(s->g, "axis", 1);
}

static void grow_slice(struct sketch *s)
{
    struct picture x = pick(s);
    int64_t first = rig_int(&seed, 0, x.channels - 1), n = rig_int(&seed, 1, x.channels - first);
    keep(s, gb_node(s->g, SY_OP_SLICE, INPUTS(x.tensor), PICTURE(n, x.size)), n, x.size);
    gb_ints(s->g, "starts", DIMS(0, first, 0, 0));
    gb_ints(s->g, "steps", DIMS(1, 1, 1, 1));
}

/* Each channel times its mean: broadcasting over pictures, and one result read twice. */
static void grow_attention(struct sketch *s)
{
    struct picture x = pick(s);
    int mean = gb_node(s->g, SY_OP_GLOBAL_AVERAGE_POOL, INPUTS(x.tensor), PICTURE(x.channels, 1));
    keep(s, gb_node(s->g, SY_OP_MUL, INPUTS(x.tensor, mean), PICTURE(x.channels, x.size)),
         x.channels, x.size);
}

/* As rows of channels, normalised, and back. */
static void grow_rows(struct sketch *s)
{
    struct picture x = pick(s);
    int64_t area = x.size * x.size, c = x.channels;
    int y = gb_node(s->g, SY_OP_RESHAPE, INPUTS(x.tensor), DIMS(1, c, area));
    y = gb_node(s->g, SY_OP_TRANSPOSE, INPUTS(y), DIMS(1, area, c));
    gb_ints(s->g, "perm", DIMS(0, 2, 1));
    int scale = gb_constant(s->g, "scale", DIMS(c), &seed, 0.3, 0.8),
        bias = gb_constant(s->g, "bias", DIMS(c), &seed, -0.3, 0.3);
    int w = gb_constant(s->g, "w", DIMS(c, c), &seed, -1 / sqrt((double)c), 1 / sqrt((double)c));
    y = gb_node(s->g, SY_OP_LAYER_NORM, INPUTS(y, scale, bias), DIMS(1, area, c));
    gb_float(s->g, "epsilon", 0.1f);
    gb_int(s->g, "axis", 2);
    y = gb_node(s->g, SY_OP_MATMUL, INPUTS(y, w), DIMS(1, area, c));
    y = gb_node(s->g, SY_OP_TRANSPOSE, INPUTS(y), DIMS(1, c, area));
    gb_ints(s->g, "perm", DIMS(0, 2, 1));
    keep(s, gb_node(s->g, SY_OP_RESHAPE, INPUTS(y), PICTURE(c, x.size)), c, x.size);
}

static struct sy_graph *random_graph(int number)
{
    static void (*const grow[])(struct sketch *) = {
        grow_conv,  grow_conv,      grow_conv,   grow_conv,      grow_pool,
        grow_unary, grow_unary,     grow_binary, grow_binary,    grow_concat,
        grow_slice, grow_attention, grow_rows,   grow_batch_norm};
    char name[64];
    snprintf(name, sizeof name, "random graph %d", number);
    struct sketch s = {.g = gb_new(name)};
    int64_t channels = rig_int(&seed, 1, 20), size = rig_int(&seed, 3, 8);
    keep(&s, gb_input(s.g, PICTURE(channels, size)), channels, size);
    while (s.n < 12)
        grow[rig_int(&seed, 0, (int64_t)(sizeof grow / sizeof *grow) - 1)](&s);
    gb_output(s.g, s.pictures[s.n - 1].tensor);
    for (int i = 0; i < 2; i++) { /* results from the middle, which later layers may read, too */
        int tensor = s.pictures[rig_int(&seed, 1, s.n - 2)].tensor;
        if (i == 0 || s.g->outputs[1] != tensor)
            gb_output(s.g, tensor);
    }
    return s.g;
}

static void check_random(int first, int n, bool optimize)
{
    for (int i = first; i < first + n; i++) {
        struct engine_case c = {.graph = random_graph(i), .optimize = optimize, .tolerance = 1e-4};
        rig_check(&c, &seed);
    }
}

static void test_random_graphs(void **state)
{
    (void)state;
    check_random(0, 30, false);
}

static void test_random_graphs_optimized(void **state)
{
    (void)state;
    check_random(100, 30, true);
}

/* bf16 rounds at every product, so only the magnitude can be asked for; everything else must hold to the bit. */
static void test_random_graphs_narrow(void **state)
{
    (void)state;
    if (!rig_engine.ops->check_precision || rig_engine.ops->check_precision(SY_PRECISION_BF16) < 0)
        skip();
    for (int i = 400; i < 440; i++) {
        struct engine_case c = {.graph = random_graph(i), .optimize = i & 1, .tolerance = 0.15};
        c.graph->precision = SY_PRECISION_BF16;
        rig_check(&c, &seed);
    }
}

/* ---- batch sizes -------------------------------------------------------------------------------- */

static void close_to(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-4f * (1 + fabsf(b[i]))))
            fail_msg("[%lld] %.9g and %.9g", (long long)i, (double)a[i], (double)b[i]);
}

/* Rows [first, first + batch) of `all` through a program of that batch size; compared with the same rows of `want`. */
static void run_rows(const struct engine_rig *rig, const struct rig_tensors *all,
                     const struct rig_tensors *want, int64_t first, int64_t batch, int64_t total)
{
    struct sy_program *program = rig_program(rig, batch);
    const struct sy_graph *g = rig->graph;
    struct rig_tensors in, out;
    rig_take(rig, g->inputs, g->n_inputs, batch, 0, &in);
    rig_take(rig, g->outputs, g->n_outputs, batch, 0, &out);
    for (int i = 0; i < in.n; i++)
        memcpy(in.data[i], (char *)all->data[i] + all->bytes[i] / (uint64_t)total * (uint64_t)first,
               in.bytes[i]);
    assert_int_equal(rig_run(rig, program, &in, &out, 0xff, NULL), SY_OK);
    for (int i = 0; i < out.n; i++)
        close_to(
            out.data[i],
            (float *)((char *)want->data[i] + want->bytes[i] / (uint64_t)total * (uint64_t)first),
            (int64_t)(out.bytes[i] / sizeof(float)));
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
}

/* A batch of 7, cut into 1 + 6, 2 + 5, ...: the same rows, whatever batch they came in. */
static void test_batch_sizes_agree(void **state)
{
    (void)state;
    const int64_t total = 7;
    for (int i = 0; i < 6; i++) {
        struct engine_case c = {.graph = random_graph(200 + i)};
        struct engine_rig rig;
        struct rig_tensors in, out;
        assert_int_equal(rig_open(&rig, c.graph, true), SY_OK);
        struct sy_program *program = rig_program(&rig, total);
        rig_take(&rig, rig.graph->inputs, 1, total, 0, &in);
        rig_take(&rig, rig.graph->outputs, rig.graph->n_outputs, total, 0, &out);
        rig_fill(&rig, &c, &in, &seed);
        assert_int_equal(rig_run(&rig, program, &in, &out, 0xff, NULL), SY_OK);
        for (int64_t cut = 1; cut < total; cut += 2) {
            run_rows(&rig, &in, &out, 0, cut, total);
            run_rows(&rig, &in, &out, cut, total - cut, total);
        }
        rig_engine.ops->program_destroy(program);
        rig_drop(&in);
        rig_drop(&out);
        rig_close(&rig);
        sy_graph_free(c.graph);
    }
}

static void test_no_batch(void **state)
{
    (void)state;
    struct sy_graph *g = random_graph(300);
    struct engine_rig rig;
    struct sy_program *program;
    assert_int_equal(rig_open(&rig, g, false), SY_OK);
    for (int64_t batch = -1; batch < 1; batch++) {
        assert_int_equal(
            rig_engine.ops->program_create(rig.graph, rig.layers, rig.n_layers, batch, &program),
            SY_EARG);
        assert_non_null(strstr(sy_error_text(), "batch size"));
    }
    rig_close(&rig);
    sy_graph_free(g);
}

/* Rows of which each sample has several: the batch size in products of dimensions, and back. */
static void test_rows_of_samples(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct sy_graph *g = gb_new("rows of samples");
        int x = gb_input(g, DIMS(1, 4, 6)), w = gb_constant(g, "w", DIMS(6, 9), &seed, -1, 1),
            b = gb_constant(g, "b", DIMS(9), &seed, -1, 1);
        int y = gb_node(g, SY_OP_RESHAPE, INPUTS(x), DIMS(4, 6)); /* [4 N, 6] */
        y = gb_node(g, SY_OP_GEMM, INPUTS(y, w, b), DIMS(4, 9));
        y = gb_node(g, i & 1 ? SY_OP_SOFTMAX : SY_OP_RELU, INPUTS(y), DIMS(4, 9));
        gb_int(g, "axis", 1);
        y = gb_node(g, SY_OP_RESHAPE, INPUTS(y), DIMS(2, 2, 9)); /* [2 N, 2, 9] */
        y = gb_node(g, SY_OP_TRANSPOSE, INPUTS(y), DIMS(2, 9, 2));
        gb_ints(g, "perm", DIMS(0, 2, 1));
        gb_output(g, gb_node(g, SY_OP_RESHAPE, INPUTS(y), DIMS(1, 36)));
        struct engine_case c = {.graph = g, .optimize = i & 2};
        rig_check(&c, &seed);
    }
}

/* Without a dimension: constants, results, indices. */
static void test_scalars(void **state)
{
    (void)state;
    static const enum sy_op ops[] = {SY_OP_ADD, SY_OP_SUB, SY_OP_MUL, SY_OP_DIV,
                                     SY_OP_POW, SY_OP_MAX, SY_OP_SUM};
    for (int i = 0; i < 14; i++) {
        struct sy_graph *g = gb_new("scalars");
        int x = gb_input(g, DIMS(1, 5)), c = gb_constant(g, "c", 0, NULL, &seed, 0.5, 2);
        int y = gb_node(g, ops[i / 2], INPUTS(i & 1 ? c : x, i & 1 ? x : c), DIMS(1, 5));
        int mean = gb_node(g, SY_OP_REDUCE_MEAN, INPUTS(y), 0, NULL);
        gb_ints(g, "axes", DIMS(0, 1));
        gb_int(g, "keepdims", 0);
        gb_output(g, gb_node(g, SY_OP_SUB, INPUTS(y, mean), DIMS(1, 5)));
        gb_output(g, gb_node(g, SY_OP_EXP, INPUTS(mean), 0, NULL));
        gb_output(g, gb_node(g, SY_OP_EXPAND, INPUTS(mean), DIMS(1, 3)));
        struct engine_case k = {.graph = g, .low = 0.3, .high = 2, .optimize = i & 2};
        rig_check(&k, &seed);
    }
    struct sy_graph *g = gb_new("an index without dimensions");
    int x = gb_input(g, DIMS(1, 4, 3)),
        at = gb_constant_of(g, SY_DTYPE_I64, 0, NULL, (int64_t[]){-2});
    gb_output(g, gb_node(g, SY_OP_GATHER, INPUTS(x, at), DIMS(1, 3)));
    gb_int(g, "axis", 1);
    struct engine_case k = {.graph = g};
    rig_check(&k, &seed);
}

/* ---- memory ------------------------------------------------------------------------------------- */

/* In a chain at most what a layer reads and what it writes are alive. */
static void test_workspace_is_reused(void **state)
{
    (void)state;
    struct sy_graph *g = gb_new("chain");
    int x = gb_input(g, DIMS(1, 64, 48));
    for (int i = 0; i < 20; i++) {
        x = gb_node(g, SY_OP_TRANSPOSE, INPUTS(x), DIMS(1, i & 1 ? 64 : 48, i & 1 ? 48 : 64));
        gb_ints(g, "perm", DIMS(0, 2, 1));
    }
    gb_output(g, x);
    struct engine_rig rig;
    assert_int_equal(rig_open(&rig, g, false), SY_OK);
    for (int64_t batch = 1; batch < 9; batch *= 2) {
        struct sy_program *program = rig_program(&rig, batch);
        uint64_t each = 64 * 48 * sizeof(float) * (uint64_t)batch;
        assert_true(rig_engine.ops->program_workspace_bytes(program) <= 2 * each + 4096);
        rig_engine.ops->program_destroy(program);
    }
    rig_close(&rig);
    struct engine_case c = {.graph = g};
    rig_check(&c, &seed);
}

/* Two programs take turns in one workspace, layer by layer each its own run: nothing in it survives a run, nothing outside is kept. */
static void test_programs_take_turns(void **state)
{
    (void)state;
    struct engine_case c = {.graph = random_graph(400)};
    struct engine_rig rig;
    struct rig_tensors in[2], first[2], again[2];
    struct sy_program *programs[2];
    assert_int_equal(rig_open(&rig, c.graph, true), SY_OK);
    for (int i = 0; i < 2; i++) {
        programs[i] = rig_program(&rig, 2 + i);
        rig_take(&rig, rig.graph->inputs, 1, 2 + i, 0, &in[i]);
        rig_take(&rig, rig.graph->outputs, rig.graph->n_outputs, 2 + i, 0, &first[i]);
        rig_take(&rig, rig.graph->outputs, rig.graph->n_outputs, 2 + i, 0, &again[i]);
        rig_fill(&rig, &c, &in[i], &seed);
    }
    for (int turn = 0; turn < 6; turn++) {
        int i = turn & 1;
        assert_int_equal(rig_run(&rig, programs[i], &in[i], turn < 2 ? &first[i] : &again[i],
                                 turn * 40, turn & 2 ? &seed : NULL),
                         SY_OK);
    }
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < first[i].n; k++)
            assert_memory_equal(first[i].data[k], again[i].data[k], first[i].bytes[k]);
        rig_engine.ops->program_destroy(programs[i]);
        rig_drop(&in[i]);
        rig_drop(&first[i]);
        rig_drop(&again[i]);
    }
    rig_close(&rig);
    sy_graph_free(c.graph);
}

/* ---- refused ------------------------------------------------------------------------------------ */

/* A layer table that does not fit the graph, as a damaged package would have. */
static void test_damaged_layer_table(void **state)
{
    (void)state;
    struct sy_graph *g = gb_new("damaged");
    struct sy_program *program;
    struct engine_rig rig;
    int x = gb_input(g, DIMS(1, 20)), w = gb_constant(g, "w", DIMS(20, 30), &seed, -1, 1);
    gb_output(g, gb_node(g, SY_OP_MATMUL, INPUTS(x, w), DIMS(1, 30)));
    assert_int_equal(rig_open(&rig, g, false), SY_OK);
    struct sy_param *param = &rig.layers[0].params[0], whole = *param;
    const struct sy_param damaged[] = {
        {0, whole.offset_bytes, whole.bytes - 1, whole.layout_bytes, whole.layout},
        {0, 1ull << 40, whole.bytes, whole.layout_bytes, whole.layout},
        {0, UINT64_MAX - 63, whole.bytes, whole.layout_bytes, whole.layout},
        {0, whole.offset_bytes, UINT64_MAX, whole.layout_bytes, whole.layout},
        {0, whole.offset_bytes, whole.bytes, whole.layout_bytes - 1, whole.layout},
        {0, whole.offset_bytes, 20 * 30 * sizeof(float) - 1, 0, NULL}};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        *param = damaged[i];
        param->input = 1;
        assert_int_equal(rig_engine.ops->program_create(rig.graph, rig.layers, 1, 1, &program),
                         SY_ECORRUPT);
        assert_non_null(strstr(sy_error_text(), "node0"));
    }
    *param = whole;
    rig_engine.ops->program_destroy(rig_program(&rig, 1));
    rig_close(&rig);
    sy_graph_free(g);
}

/* Every operator that there is: the engine has it, or import says that it has not, by name. */
static void test_every_operator_is_known_or_refused(void **state)
{
    (void)state;
    int n_refused = 0;
    for (int op = 0; op < SY_OP_COUNT; op++) {
        struct sy_graph *g = gb_new("one operator");
        struct sy_layer layer = {0};
        int x = gb_input(g, DIMS(1, 4, 4, 4)), inputs[5] = {x, x, x, x, x};
        gb_output(g, gb_node(g, (enum sy_op)op, 5, inputs, DIMS(1, 4, 4, 4)));
        int status = rig_engine.ops->layout_layer(g, &layer);
        if (status < 0) {
            n_refused++;
            if (status != SY_EUNSUPPORTED && status != SY_ECORRUPT && status != SY_EBUG)
                fail_msg("%s: status %d, %s", sy_op_name((enum sy_op)op), status, sy_error_text());
            assert_non_null(strstr(sy_error_text(), "node0"));
        }
        for (int k = 0; k < layer.n_params; k++)
            free(layer.params[k].layout);
        free(layer.params);
        sy_graph_free(g);
    }
    assert_true(SY_OP_COUNT - n_refused >=
                40); /* five inputs of one shape suit many, but not most */
}

/* oneDNN counts in 32 bits: it has ended the process where such a program was built. */
static void test_more_than_32_bits_count(void **state)
{
    (void)state;
    if (rig_engine.ops != &sy_host_engine)
        skip();
    const int64_t much = (int64_t)1 << 36, half = (int64_t)1 << 18;
    for (int kind = 0; kind < 3; kind++) {
        struct sy_graph *g = gb_new("too many");
        struct sy_layer layer = {0};
        if (kind == 0) {
            int w = gb_constant(g, "w", DIMS(4, 12), &seed, -1, 1);
            int x = gb_input(g, DIMS(1, much, 4));
            gb_output(g, gb_node(g, SY_OP_MATMUL, 2, (const int[]){x, w}, DIMS(1, much, 12)));
        } else if (kind == 1) {
            int x = gb_input(g, DIMS(1, half, half)), y = gb_input(g, DIMS(1, half, half));
            gb_output(g, gb_node(g, SY_OP_MATMUL, 2, (const int[]){x, y}, DIMS(1, half, half)));
        } else {
            int w = gb_constant(g, "w", DIMS(16, 16, 1, 1), &seed, -1, 1);
            int x = gb_input(g, DIMS(1, 16, 8, much));
            gb_output(g, gb_node(g, SY_OP_CONV, 2, (const int[]){x, w}, DIMS(1, 16, 8, much)));
            gb_ints(g, "kernel_shape", 2, (const int64_t[]){1, 1});
        }
        int status = rig_engine.ops->layout_layer(g, &layer);
        if (status != SY_EUNSUPPORTED || !strstr(sy_error_text(), "node0") ||
            !strstr(sy_error_text(), "2^32"))
            fail_msg("kind %d: %d, %s", kind, status, sy_error_text());
        for (int k = 0; k < layer.n_params; k++)
            free(layer.params[k].layout);
        free(layer.params);
        sy_graph_free(g);
    }
}

static void test_describe(void **state)
{
    (void)state;
    char text[128] = "", tiny[4];
    assert_int_equal(rig_engine.ops->describe(text, sizeof text), SY_OK);
    const char *name = rig_engine.ops == &sy_host_engine ? "onednn-" : rig_engine.ops->name;
    assert_int_equal(strncmp(text, name, strlen(name)), 0);
    assert_non_null(strchr(text, ' '));
    assert_int_equal(rig_engine.ops->describe(tiny, sizeof tiny), SY_OK);
    assert_int_equal(strlen(tiny), 3);
    assert_int_equal(rig_engine.ops->set_threads(NULL, 0), SY_EARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_graphs),
        cmocka_unit_test(test_random_graphs_optimized),
        cmocka_unit_test(test_random_graphs_narrow),
        cmocka_unit_test(test_batch_sizes_agree),
        cmocka_unit_test(test_no_batch),
        cmocka_unit_test(test_rows_of_samples),
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_workspace_is_reused),
        cmocka_unit_test(test_programs_take_turns),
        cmocka_unit_test(test_damaged_layer_table),
        cmocka_unit_test(test_every_operator_is_known_or_refused),
        cmocka_unit_test(test_more_than_32_bits_count),
        cmocka_unit_test(test_describe),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
