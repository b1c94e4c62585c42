/* Which models' rows may be computed together: by what their operators are, and, where the answer is yes, by computing them together and alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/graph_bind.h"
#include "loader/graph/row_independence.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/nets/model_lines.h"
#include "tests/nets/onnx_bytes.h"
#include "tests/nets/onnx_import.h"
#include "tests/rigs/engine_rig.h"

enum { ROWS = 3 };

static uint64_t seed;

static const char *const apart[] = {
    "Relu x:f[N,8]",
    "Add x:f[N,8] z:f[N,8]",
    "Mul x:f[N,4,2] s=f{2,3}",
    "Where c:b[N,1] x:f[N,8] z:f[N,8]",
    "Conv@13 x:f[N,1,4,4] w=f[2,1,3,3] b=f{1,2}",
    "MaxPool@12 x:f[N,3,8,8] .kernel_shape=[2,2]",
    "GlobalAveragePool x:f[N,3,4,4]",
    "InstanceNormalization x:f[N,2,4] s=f{1,2} b=f{0,1}",
    "Softmax@13 x:f[N,3,8] .axis=1",
    "Softmax@11 x:f[N,3,8] .axis=1",
    "ReduceMean@13 x:f[N,3,8] .axes=[1,2]",
    "ReduceMax@13 x:f[N,3,8] .axes=[1] .keepdims=0",
    "ArgMax@13 x:f[N,8] .axis=1",
    "LayerNormalization@17 x:f[N,4] g=f{1,2,3,4}",
    "Concat@13 x:f[N,3] z:f[N,5] .axis=1",
    "Transpose@13 x:f[N,3,2] .perm=[1,0,2]",
    "Flatten@13 x:f[N,3,2]",
    "Reshape@13 x:f[N,6] s=i{-1,2}",
    "Slice@13 x:f[N,8] b=i{1} e=i{7} a=i{1} t=i{2}",
    "Slice@13 x:f[N,8] b=i{7} e=i{-9} a=i{1} t=i{-1}",
    "Pad@13 x:f[N,8] p=i{0,1,0,2}",
    "Gather@13 t=f{1,2,3,4} i:i[N,2] .axis=0",
    "Gather@13 x:f[N,8] i=i{3,1} .axis=1",
    "GatherElements@13 x:f[N,4] i:i[N,4] .axis=1",
    "TopK@11 x:f[N,8] k=i{3} .axis=1 ->y ->z",
    "MatMul@13 x:f[N,2] w=f[2,4]",
    "MatMul@13 x:f[N,3,2] z:f[N,2,4]",
    "Gemm@13 x:f[N,2] w=f[2,4]",
    "Resize@13 x:f[N,1,4,4] - s=f{1,1,2,2} .mode='linear'",
    "DequantizeLinear@13 x:u[N,4] s=f(2) z=u(3)",
    "Expand@13 x:f[N,1] s=i{1,4}",
};

static const char *const mixed[] = {
    "ReduceMax@13 x:f[N,8] .axes=[0]",
    "ReduceMean@13 x:f[N,8] .axes=[0] .keepdims=0",
    "Softmax@13 x:f[N,8] .axis=0",
    "Softmax@11 x:f[N,8] .axis=0",
    "Slice@13 x:f[N,8] b=i{-1} e=i{-9223372036854775807} a=i{0} t=i{-1}",
    "Pad@13 x:f[N,8] p=i{1,0,-1,0}",
    "Concat@13 x:f[N,3] x .axis=0",
    "Gather@13 x:f[N,8] i:i[N] .axis=0",
    "GatherElements@13 x:f[N,4] i:i[N,4] .axis=0",
    "TopK@11 x:f[N,8] k=i{1} .axis=0 ->y ->z",
    "CumSum@14 x:f[N,8] a=i(0)",
    "RoiAlign@16 x:f[N,1,4,4] r:f[N,4] i:i[N] .output_height=1 .output_width=1",
    "MaxRoiPool x:f[N,1,4,4] r:f[N,5] .pooled_shape=[1,1]",
    "DynamicQuantizeLinear@11 x:f[N,4] ->y ->s ->z",
    "Shape@13 x:f[N,8]",
    "Size@13 x:f[N,8]",
    "ScatterND@16 x:f[N,8] i:i[N,1] u:f[N,8]",
    "ReverseSequence@10 x:f[N,8] s:i[8] .batch_axis=1 .time_axis=0",
    "MeanVarianceNormalization@13 x:f[N,2,4,4]",
};

static struct sy_graph *graph_of(const char *line)
{
    struct sy_graph *g;
    model_line_save(ob_path, line);
    if (onnx_try_optimized(ob_path, &g) < 0)
        fail_msg("%s: %s", line, sy_error_text());
    return g;
}

static bool is_apart(const struct sy_graph *g)
{
    struct sy_sizes sizes;
    struct sy_graph *usual;
    sy_graph_usual_sizes(g, &sizes);
    assert_int_equal(sy_graph_bind(g, &sizes, &usual), SY_OK);
    bool yes = sy_graph_rows_are_independent(g, usual);
    sy_graph_free(usual);
    return yes;
}

static void fill(const struct sy_graph *g, struct rig_tensors *in)
{
    for (int i = 0; i < in->n; i++) {
        enum sy_dtype type = g->tensors[g->inputs[i]].dtype;
        size_t each = sy_dtype_bytes(type);
        for (uint64_t k = 0; k < in->bytes[i] / each; k++) {
            unsigned char *at = (unsigned char *)in->data[i] + k * each;
            float x = (float)gb_uniform(&seed, -2, 2);
            int64_t whole = (int64_t)gb_uniform(&seed, 0, 3.99);
            if (type == SY_DTYPE_F32)
                memcpy(at, &x, sizeof x);
            else if (type == SY_DTYPE_I64)
                memcpy(at, &whole, sizeof whole);
            else
                *at = (unsigned char)(type == SY_DTYPE_BOOL ? whole & 1 : whole);
        }
    }
}

static void run(const struct engine_rig *rig, int64_t batch, const struct rig_tensors *in,
                struct rig_tensors *out)
{
    struct sy_program *program = rig_program(rig, batch);
    rig_take(rig, rig->graph->outputs, rig->graph->n_outputs, batch, 0xff, out);
    if (rig_run(rig, program, in, out, 0xff, NULL) < 0)
        fail_msg("%s", sy_error_text());
    rig_engine.ops->program_destroy(program);
}

static void assert_close(const char *line, const struct sy_tensor *t, const void *a, const void *b,
                         uint64_t bytes)
{
    if (t->dtype != SY_DTYPE_F32) {
        if (memcmp(a, b, bytes))
            fail_msg("%s: %s differs", line, t->name);
        return;
    }
    for (uint64_t k = 0; k < bytes / sizeof(float); k++) {
        float x = ((const float *)a)[k], y = ((const float *)b)[k];
        if (!(fabsf(x - y) <= 1e-5f * (1 + fabsf(x))))
            fail_msg("%s: %s[%llu] is %g together, %g alone", line, t->name, (unsigned long long)k,
                     (double)x, (double)y);
    }
}

/* Results that have the batch elsewhere are looked at as blocks of the first axis' extent in front of it. */
static void compare_row(const char *line, const struct engine_rig *rig, int row,
                        const struct rig_tensors *together, const struct rig_tensors *alone)
{
    for (int o = 0; o < alone->n; o++) {
        const struct sy_tensor *t = &rig->graph->tensors[rig->graph->outputs[o]];
        uint64_t blocks = 1;
        for (int d = 0; d < t->shape.rank && t->shape.dims[d].per_batch == 0; d++)
            blocks *= (uint64_t)t->shape.dims[d].fixed;
        uint64_t each = alone->bytes[o] / blocks;
        for (uint64_t k = 0; k < blocks; k++)
            assert_close(line, t,
                         (const char *)together->data[o] + (k * ROWS + (uint64_t)row) * each,
                         (const char *)alone->data[o] + k * each, each);
    }
}

static void together_and_alone(const char *line, const struct sy_graph *g)
{
    struct engine_rig rig;
    struct rig_tensors all, results, one, result;
    if (rig_open(&rig, g, false) < 0)
        fail_msg("%s: %s", line, sy_error_text());
    rig_take(&rig, g->inputs, g->n_inputs, ROWS, 0, &all);
    fill(g, &all);
    run(&rig, ROWS, &all, &results);
    for (int row = 0; row < ROWS; row++) {
        rig_take(&rig, g->inputs, g->n_inputs, 1, 0, &one);
        for (int i = 0; i < one.n; i++)
            memcpy(one.data[i], (const char *)all.data[i] + (uint64_t)row * one.bytes[i],
                   one.bytes[i]);
        run(&rig, 1, &one, &result);
        compare_row(line, &rig, row, &results, &result);
        rig_drop(&one);
        rig_drop(&result);
    }
    rig_drop(&all);
    rig_drop(&results);
    rig_close(&rig);
}

static void test_apart(void **state)
{
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(apart); i++) {
        struct sy_graph *g = graph_of(apart[i]);
        if (!is_apart(g))
            fail_msg("%s: its rows are apart", apart[i]);
        together_and_alone(apart[i], g);
        sy_graph_free(g);
    }
}

static void test_mixed(void **state)
{
    (void)state;
    for (size_t i = 0; i < SY_ARRAY_LEN(mixed); i++) {
        struct sy_graph *g = graph_of(mixed[i]);
        if (is_apart(g))
            fail_msg("%s: a row depends on others", mixed[i]);
        sy_graph_free(g);
    }
}

/* What is left without rows comes back to them: x - max over the batch. */
static void test_through_what_has_no_rows(void **state)
{
    static struct ob graph, node;
    struct sy_graph *g;
    (void)state;
    for (int of_rows = 0; of_rows < 2; of_rows++) {
        int64_t axis = of_rows;
        ob_graph(&graph);
        ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 8));
        ob_node(&node, "ReduceMax", NAMES("x"), NAMES("most"));
        ob_attr_ints(&node, "axes", 1, &axis);
        ob_message(&graph, OB_GRAPH_NODE, &node);
        ob_add(&graph, "Sub", NAMES("x", "most"), NAMES("y"));
        ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 8));
        ob_save(ob_path, &graph, 13);
        g = onnx_inferred(ob_path);
        assert_int_equal(is_apart(g), of_rows);
        sy_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_through_what_has_no_rows),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}
