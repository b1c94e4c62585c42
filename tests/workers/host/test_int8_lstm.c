/* Our own products of 8 bits against sums of whole numbers, and DynamicQuantizeLSTM against its definition in ONNX Runtime: x is quantised by its
 * range, the states of a group of sequences before each step. Sizes, types, scales and zero points by chance. */
#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"
#include "workers/host/products/int8_matrix.h"
#include "workers/host/products/int8_panel.h"
#include "workers/host/products/recurrence.h"
#include "workers/host/program/program_internal.h"

enum { FLOAT = 1, UINT8 = 2, INT8 = 3, DOMAIN = 7, GATES = 4, N_NETS = 12 };

static struct ob graph, node;
static uint64_t seed;

/* ---- products ---------------------------------------------------------------------------------------- */

static int64_t sum_of(const uint8_t *a, const int8_t *w, int64_t n)
{
    int64_t sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += a[k] * w[k];
    return sum;
}

/* Numbers of the largest size, which pairs of 16 bits would not hold, among others. */
static void test_panels(void **state)
{
    (void)state;
    sy_int8_panel_run *const forms[] = {sy_int8_panel_plain,
                                        sy_dnnl_has_avx2() ? sy_int8_panel_avx2 : NULL,
                                        sy_dnnl_has_int8() ? sy_int8_panel_vnni : NULL,
                                        sy_dnnl_has_int8_tiles() ? sy_int8_panel_tiles : NULL};
    for (int turn = 0; turn < 40; turn++) {
        int64_t quads = rig_int(&seed, 1, 40), stride = quads * 4 + 4 * rig_int(&seed, 0, 3);
        int most = (int)rig_int(&seed, 1, SY_INT8_TILE_ROWS), columns = (int)rig_int(&seed, 1, 64);
        uint8_t *a = malloc((size_t)(most * stride));
        int8_t *w = malloc((size_t)quads * 256), column[160];
        int32_t sums[SY_INT8_TILE_ROWS * SY_INT8_COLUMNS];
        for (int64_t i = 0; i < most * stride; i++)
            a[i] = (uint8_t)(turn % 2 ? 255 : rig_int(&seed, 0, 255));
        for (int64_t i = 0; i < quads * 256; i++)
            w[i] = (int8_t)(turn % 2 ? 127 : rig_int(&seed, -128, 127));
        for (size_t f = 0; f < SY_ARRAY_LEN(forms); f++) {
            if (!forms[f])
                continue;
            int rows = forms[f] == sy_int8_panel_tiles ? most : SY_MIN(most, SY_INT8_ROWS);
            forms[f](quads, columns, rows, a, stride, w, sums);
            for (int c = 0; c < columns; c++) {
                for (int64_t k = 0; k < quads * 4; k++)
                    column[k] = w[(k / 4 * 64 + c) * 4 + k % 4];
                for (int r = 0; r < rows; r++)
                    assert_int_equal(sums[r * 64 + c], sum_of(a + r * stride, column, quads * 4));
            }
        }
        free(a);
        free(w);
    }
}

static void check_product(int64_t depth, int64_t columns, int64_t n)
{
    int64_t stride = SY_ALIGN_UP(depth, 4), zero = rig_int(&seed, 0, 255);
    int8_t *w = malloc((size_t)(depth * columns));
    uint8_t *a = malloc((size_t)(n * stride));
    int32_t *sums = malloc((size_t)n * sizeof *sums), *zeros = malloc((size_t)columns * 4);
    float *y = malloc((size_t)(n * columns) * sizeof *y);
    void *packed = calloc(1, (size_t)sy_int8_matrix_bytes(depth, columns));
    for (int64_t i = 0; i < depth * columns; i++)
        w[i] = (int8_t)rig_int(&seed, -128, 127);
    for (int64_t i = 0; i < n * stride; i++)
        a[i] = (uint8_t)rig_int(&seed, 0, 255);
    for (int64_t c = 0; c < columns; c++) {
        zeros[c] = (int32_t)rig_int(&seed, -128, 127);
        const struct sy_int8_column column = {w + c * depth, 1, zeros[c], 0.5f};
        sy_int8_matrix_set(packed, depth, columns, c, &column);
    }
    for (int64_t r = 0; r < n; r++)
        sums[r] = sy_int8_sum(depth, a + r * stride);
    struct sy_int8_matrix m = sy_int8_matrix_view(packed, depth, columns);
    const struct sy_int8_rows rows = {n, stride, a, sums, 0.25f, (int32_t)zero};
    sy_int8_multiply(&m, &rows, NULL, y, columns);
    for (int64_t i = 0; i < n * columns; i++) {
        int64_t sum = 0, c = i % columns;
        for (int64_t k = 0; k < depth; k++)
            sum += (a[i / columns * stride + k] - zero) * (w[c * depth + k] - zeros[c]);
        assert_true(y[i] == (float)sum * 0.125f);
    }
    free(w);
    free(a);
    free(sums);
    free(zeros);
    free(y);
    free(packed);
}

static void test_products(void **state)
{
    (void)state;
    for (int turn = 0; turn < 20; turn++)
        check_product(rig_int(&seed, 1, 90), rig_int(&seed, 1, 150), rig_int(&seed, 1, 120));
}

/* ---- LSTM -------------------------------------------------------------------------------------------- */

struct net {
    int64_t steps, batch, input, hidden, directions;
    bool is_signed, per_column;
    uint8_t *w, *r; /* [directions][depth][gates * hidden] */
    float *bias, *scales[2];
    uint8_t *zeros[2];
    int64_t n_scales;
};

static float *floats(int64_t n, double low, double high)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)gb_uniform(&seed, low, high);
    return x;
}

static uint8_t *bytes(int64_t n, int64_t low, int64_t high)
{
    uint8_t *x = malloc((size_t)n);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (uint8_t)rig_int(&seed, low, high);
    return x;
}

static struct net random_net(void)
{
    struct net n = {.steps = rig_int(&seed, 1, 5),
                    .batch = rig_int(&seed, 1, 7),
                    .input = rig_int(&seed, 1, 30),
                    .hidden = rig_int(&seed, 1, 40),
                    .directions = rig_int(&seed, 1, 2),
                    .is_signed = rig_int(&seed, 0, 1) != 0,
                    .per_column = rig_int(&seed, 0, 1) != 0};
    int64_t columns = GATES * n.hidden;
    n.n_scales = n.directions * (n.per_column ? columns : 1);
    n.w = bytes(n.directions * n.input * columns, 0, 255);
    n.r = bytes(n.directions * n.hidden * columns, 0, 255);
    n.bias = floats(n.directions * 2 * columns, -0.3, 0.3);
    for (int i = 0; i < 2; i++) {
        n.scales[i] = floats(n.n_scales, 0.002, 0.006);
        n.zeros[i] = bytes(n.n_scales, n.is_signed ? 0 : 100, n.is_signed ? 0 : 100);
    }
    return n;
}

static void free_net(struct net *n)
{
    free(n->w);
    free(n->r);
    free(n->bias);
    for (int i = 0; i < 2; i++) {
        free(n->scales[i]);
        free(n->zeros[i]);
    }
}

static void write_net(const struct net *n)
{
    int type = n->is_signed ? INT8 : UINT8, rank = n->per_column ? 2 : 1;
    const int64_t columns = GATES * n->hidden, scales[] = {n->directions, columns};
    size_t count = (size_t)n->n_scales;
    ob_graph(&graph);
    ob_input(&graph, OB_GRAPH_INPUT, "x", FLOAT, DIMS(-1, n->batch, n->input));
    ob_initializer(&graph, "w", type, DIMS(n->directions, n->input, columns), n->w,
                   (size_t)(n->directions * n->input * columns));
    ob_initializer(&graph, "r", type, DIMS(n->directions, n->hidden, columns), n->r,
                   (size_t)(n->directions * n->hidden * columns));
    ob_initializer(&graph, "b", FLOAT, DIMS(n->directions, 2 * columns), n->bias,
                   (size_t)(n->directions * 2 * columns) * sizeof(float));
    ob_initializer(&graph, "ws", FLOAT, rank, scales, n->scales[0], count * sizeof(float));
    ob_initializer(&graph, "wz", type, rank, scales, n->zeros[0], count);
    ob_initializer(&graph, "rs", FLOAT, rank, scales, n->scales[1], count * sizeof(float));
    ob_initializer(&graph, "rz", type, rank, scales, n->zeros[1], count);
    ob_node(&node, "DynamicQuantizeLSTM",
            NAMES("x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"),
            NAMES("y", "h", "c"));
    ob_text(&node, DOMAIN, "com.microsoft");
    ob_attr_int(&node, "hidden_size", n->hidden);
    ob_attr_text(&node, "direction", n->directions == 2 ? "bidirectional" : "forward");
    ob_message(&graph, OB_GRAPH_NODE, &node);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", FLOAT, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "h", FLOAT, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "c", FLOAT, 0, NULL);
    ob_save(ob_path, &graph, 17);
}

/* n numbers, in steps of their common range. */
static float quantised(const float *x, int64_t n, int *out, int *zero)
{
    float low = 0, high = 0;
    for (int64_t i = 0; i < n; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    float scale = (high - low) / 255;
    scale = scale == 0 ? 1 : scale;
    *zero = (int)nearbyintf(fmaxf(0, fminf(255, -low / scale)));
    for (int64_t i = 0; i < n; i++)
        out[i] = (int)fmaxf(0, fminf(255, nearbyintf(x[i] / scale) + (float)*zero));
    return scale;
}

/* Row `a` of `depth` numbers times column `c` of w (0) or r (1) of a direction, in floats. */
static float product(const struct net *n, int which, int64_t d, int64_t c, const int *a, int zero,
                     float scale)
{
    int64_t depth = which ? n->hidden : n->input, columns = GATES * n->hidden, sum = 0,
            at = n->per_column ? d * columns + c : d;
    const uint8_t *w = which ? n->r : n->w;
    for (int64_t k = 0; k < depth; k++) {
        uint8_t q = w[(d * depth + k) * columns + c];
        sum += (a[k] - zero) * (n->is_signed ? (int8_t)q : (int)q - (int)n->zeros[which][at]);
    }
    return (float)sum * (scale * n->scales[which][at]);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* One step of sequence b: h and c are its states. */
static void naive_step(const struct net *n, int64_t d, const int *x, int x_zero, float x_scale,
                       const int *q, int q_zero, float q_scale, float *h, float *c)
{
    for (int64_t i = 0; i < n->hidden; i++) {
        double gate[GATES];
        for (int64_t g = 0; g < GATES; g++) {
            int64_t column = g * n->hidden + i;
            const float *bias = n->bias + d * 2 * GATES * n->hidden;
            gate[g] = (double)(product(n, 0, d, column, x, x_zero, x_scale) +
                               product(n, 1, d, column, q, q_zero, q_scale) +
                               (bias[column] + bias[GATES * n->hidden + column]));
        }
        c[i] = (float)(sigmoid(gate[2]) * (double)c[i] + sigmoid(gate[0]) * tanh(gate[3]));
        h[i] = (float)(sigmoid(gate[1]) * tanh((double)c[i]));
    }
}

static void naive_direction(const struct net *n, int64_t d, int64_t group, const int *x, int x_zero,
                            float x_scale, float *y)
{
    int64_t size = n->batch * n->hidden;
    float *h = calloc((size_t)size, sizeof *h), *c = calloc((size_t)size, sizeof *c);
    int *q = calloc((size_t)size, sizeof *q);
    for (int64_t s = 0; s < n->steps; s++) {
        int64_t time = d ? n->steps - 1 - s : s;
        for (int64_t b = 0; b < n->batch; b += group) {
            int64_t end = SY_MIN(b + group, n->batch);
            int zero;
            float scale =
                quantised(h + b * n->hidden, (end - b) * n->hidden, q + b * n->hidden, &zero);
            for (int64_t i = b; i < end; i++)
                naive_step(n, d, x + (time * n->batch + i) * n->input, x_zero, x_scale,
                           q + i * n->hidden, zero, scale, h + i * n->hidden, c + i * n->hidden);
        }
        memcpy(y + (time * n->directions + d) * size, h, (size_t)size * sizeof *h);
    }
    free(h);
    free(c);
    free(q);
}

static float *naive(const struct net *n, const float *x)
{
    int64_t count = n->steps * n->batch * n->input,
            group = sy_recurrence_int8_group(n->batch, n->hidden, omp_get_max_threads());
    float *y = malloc((size_t)(n->steps * n->directions * n->batch * n->hidden) * sizeof *y);
    int *q = malloc((size_t)count * sizeof *q), zero;
    float scale = quantised(x, count, q, &zero);
    for (int64_t d = 0; d < n->directions; d++)
        naive_direction(n, d, group, q, zero, scale, y);
    free(q);
    return y;
}

/* A state beside a rounding's edge may go the other way: such a net is off by some steps, and *edges counts it. */
static void check_net(const struct net *n, int *edges)
{
    struct engine_rig rig;
    struct rig_tensors in, out;
    struct sy_graph *g;
    double off = 0;
    write_net(n);
    g = onnx_inferred(ob_path);
    if (rig_open(&rig, g, true) < 0)
        fail_msg("%s", sy_error_text());
    assert_int_equal(rig.graph->nodes[0].op, SY_OP_QUANTIZED_LSTM);
    struct sy_program *program = rig_program(&rig, n->steps);
    rig_take(&rig, rig.graph->inputs, 1, n->steps, 0, &in);
    rig_take(&rig, rig.graph->outputs, 3, n->steps, 0xff, &out);
    for (uint64_t i = 0; i < in.bytes[0] / sizeof(float); i++)
        ((float *)in.data[0])[i] = (float)gb_uniform(&seed, -1, 2);
    assert_int_equal(rig_run(&rig, program, &in, &out, 0xff, &seed), SY_OK);
    float *want = naive(n, in.data[0]);
    for (uint64_t i = 0; i < out.bytes[0] / sizeof(float); i++)
        off = fmax(off, fabs((double)((float *)out.data[0])[i] - (double)want[i]));
    assert_true(off < 0.05);
    *edges += off > 1e-5;
    free(want);
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
    rig_close(&rig);
    sy_graph_free(g);
}

static void test_lstm(void **state)
{
    (void)state;
    int edges = 0;
    for (int i = 0; i < N_NETS; i++) {
        struct net n = random_net();
        check_net(&n, &edges);
        free_net(&n);
    }
    assert_in_range(edges, 0, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_panels),
                                       cmocka_unit_test(test_products),
                                       cmocka_unit_test(test_lstm)};
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}
