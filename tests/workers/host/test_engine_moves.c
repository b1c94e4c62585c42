/* The host engine's operators that move elements against their definition. */
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
#include "tests/rigs/engine_rig.h"

static uint64_t seed;

static void check(struct sy_graph *g)
{
    struct engine_case c = {.graph = g, .int_low = -9, .int_high = 9};
    rig_check(&c, &seed);
}

static const enum sy_dtype movable[] = {SY_DTYPE_F32, SY_DTYPE_I64, SY_DTYPE_I32, SY_DTYPE_BOOL};

static void test_transpose(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        int64_t dims[8], out[8], perm[8] = {0};
        int rank = rig_dims(&seed, 1, 6, dims);
        for (int d = 0; d < rank; d++) { /* N stays in front, as gb_node has it */
            int k = d ? (int)rig_int(&seed, 1, d) : 0;
            perm[d] = perm[k];
            perm[k] = d;
        }
        for (int d = 0; d < rank; d++)
            out[d] = dims[perm[d]];
        struct sy_graph *g = gb_new("transpose");
        int x = gb_input_of(g, movable[i & 3], rank, dims),
            y = gb_node(g, SY_OP_TRANSPOSE, INPUTS(x), rank, out);
        gb_type(g, y, movable[i & 3]);
        gb_ints(g, "perm", rank, perm);
        gb_output(g, y);
        check(g);
    }
}

/* N goes elsewhere and comes back. */
static void test_transpose_of_the_batch(void **state)
{
    (void)state;
    struct sy_graph *g = gb_new("transpose of N");
    int x = gb_input(g, DIMS(1, 3, 5)), y = gb_node(g, SY_OP_TRANSPOSE, INPUTS(x), DIMS(5, 3, 1));
    gb_ints(g, "perm", DIMS(2, 1, 0));
    g->tensors[y].shape = (struct sy_shape){3, {{5, 0}, {3, 0}, {0, 1}}};
    y = gb_node(g, SY_OP_TRANSPOSE, INPUTS(y), DIMS(1, 3, 5));
    gb_ints(g, "perm", DIMS(2, 1, 0));
    gb_output(g, gb_node(g, SY_OP_RELU, INPUTS(y), DIMS(1, 3, 5)));
    check(g);
}

static void test_slice(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        int64_t dims[8], out[8] = {1}, starts[8] = {0}, steps[8] = {1};
        int rank = rig_dims(&seed, 1, 5, dims);
        for (int d = 1; d < rank; d++) {
            steps[d] = rig_int(&seed, 1, 3) * (rig_int(&seed, 0, 1) ? 1 : -1);
            starts[d] = rig_int(&seed, 0, dims[d] - 1);
            int64_t room =
                steps[d] > 0 ? (dims[d] - 1 - starts[d]) / steps[d] : starts[d] / -steps[d];
            out[d] = rig_int(&seed, 1, room + 1);
        }
        struct sy_graph *g = gb_new("slice");
        int x = gb_input_of(g, movable[i & 3], rank, dims),
            y = gb_node(g, SY_OP_SLICE, INPUTS(x), rank, out);
        gb_type(g, y, movable[i & 3]);
        gb_ints(g, "starts", rank, starts);
        gb_ints(g, "steps", rank, steps);
        gb_output(g, y);
        check(g);
    }
}

static void test_pad(void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        int64_t dims[8], out[8] = {1}, pads[16] = {0};
        int rank = rig_dims(&seed, 2, 5, dims);
        for (int d = 1; d < rank; d++) {
            pads[d] = rig_int(&seed, 0, 3);
            pads[rank + d] = rig_int(&seed, 0, 3);
            out[d] = dims[d] + pads[d] + pads[rank + d];
        }
        struct sy_graph *g = gb_new("pad");
        int x = gb_input(g, rank, dims);
        gb_output(g, gb_node(g, SY_OP_PAD, INPUTS(x), rank, out));
        gb_ints(g, "pads", 2 * rank, pads);
        if (i & 1)
            gb_float(g, "value", -2.5f);
        check(g);
    }
}

static void test_gather(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++) {
        int64_t dims[8], out[8];
        int rank = rig_dims(&seed, 1, 4, dims), axis = (int)rig_int(&seed, rank > 1, rank - 1),
            n = 0;
        bool table = i & 1; /* a constant table and N rows of indices, or the other way round */
        struct sy_graph *g = gb_new("gather");
        int64_t extent = 7, index_dims[2] = {table ? 1 : 3, 2}, values[6];
        dims[axis] = extent;
        for (int k = 0; k < 6; k++)
            values[k] = rig_int(&seed, -extent, extent - 1);
        if (table || axis == 0)
            axis = 0;
        dims[0] = axis == 0 ? extent : 1;
        enum sy_dtype wide = i & 2 ? SY_DTYPE_I64 : SY_DTYPE_I32;
        int x = table ? gb_constant(g, "table", rank, dims, &seed, -1, 1) : gb_input(g, rank, dims);
        int indices = table ? gb_input_of(g, wide, 2, index_dims)
                            : gb_constant_of(g, wide, 2, index_dims, values);
        if (!table && axis == 0)
            gb_fixed(g, x);
        for (int d = 0; d < axis; d++)
            out[n++] = dims[d];
        out[n++] = index_dims[0];
        out[n++] = index_dims[1];
        for (int d = axis + 1; d < rank; d++)
            out[n++] = dims[d];
        int y = gb_node(g, SY_OP_GATHER, INPUTS(x, indices), n, out);
        if (!table && axis == 0)
            gb_fixed(g, y);
        gb_int(g, "axis", axis);
        gb_output(g, y);
        struct engine_case c = {.graph = g, .int_low = -extent, .int_high = extent - 1};
        rig_check(&c, &seed);
    }
}

static void test_concat_and_split(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        int64_t dims[8], parts[5], at = 0;
        int rank = rig_dims(&seed, 2, 5, dims), axis = (int)rig_int(&seed, 1, rank - 1);
        int n = (int)rig_int(&seed, 1, 5), inputs[5];
        enum sy_dtype dtype = movable[i % 5 < 4 ? 0 : 1 + i % 3];
        struct sy_graph *g = gb_new("concat and split");
        for (int k = 0; k < n; k++) {
            at += dims[axis] = parts[k] = rig_int(&seed, 1, 5);
            inputs[k] = gb_input_of(g, dtype, rank, dims);
        }
        dims[axis] = at;
        int y = gb_node(g, SY_OP_CONCAT, n, inputs, rank, dims);
        gb_int(g, "axis", axis);
        gb_type(g, y, dtype);
        gb_output(g, y);
        /* The last part as an output of its own, the others too. */
        dims[axis] = parts[0];
        int first = gb_node(g, SY_OP_SPLIT, INPUTS(y), rank, dims);
        struct sy_node *split = &g->nodes[g->n_nodes - 1];
        gb_int(g, "axis", axis);
        gb_ints(g, "split", n, parts);
        split->outputs = realloc(split->outputs, (size_t)n * sizeof *split->outputs);
        assert_non_null(split->outputs);
        gb_type(g, first, dtype);
        gb_output(g, first);
        for (int k = 1; k < n; k++) {
            dims[axis] = parts[k];
            /* A tensor is made by an input of the graph's, and then taken out of the list of inputs. */
            int t = gb_input_of(g, dtype, rank, dims);
            g->n_inputs--;
            split->outputs[split->n_outputs++] = t;
            gb_output(g, t);
        }
        check(g);
    }
}

/* Many rows of a few elements, which are copied; one part too long for that leaves all to the primitive. */
static void test_concat_of_short_parts(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        int64_t rows = rig_int(&seed, 60, 90), columns = rig_int(&seed, 60, 90), last = 0;
        int inputs[3];
        struct sy_graph *g = gb_new("short parts");
        for (int k = 0; k < 3; k++) {
            int64_t part = k == 1 && i % 4 == 3 ? 70 : 1 + 3 * k;
            inputs[k] = gb_input(g, DIMS(rows, columns, part));
            last += part;
        }
        int y = gb_node(g, SY_OP_CONCAT, 3, inputs, DIMS(rows, columns, last));
        gb_int(g, "axis", 2);
        gb_output(g, y);
        check(g);
    }
}

/* Images as convolutions leave them: channels in blocks, which are filled up in every other graph. */
static void test_concat_of_convolutions(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        int64_t size = i < 2 ? 53 : rig_int(&seed, 1, 9), width = rig_int(&seed, 1, 9) + size,
                channels = 0;
        int n = (int)rig_int(&seed, 1, 4), parts[4];
        struct sy_graph *g = gb_new("concat of convolutions");
        int x = gb_input(g, 4, (const int64_t[]){1, 8, size, width});
        for (int k = 0; k < n; k++) {
            int64_t filters = i % 2 ? rig_int(&seed, 1, 20) : 8 * rig_int(&seed, 1, 4);
            int w = gb_constant(g, "w", 4, (const int64_t[]){filters, 8, 1, 1}, &seed, -0.5, 0.5);
            parts[k] = gb_node(g, SY_OP_CONV, INPUTS(x, w), DIMS(1, filters, size, width));
            channels += filters;
        }
        int y = gb_node(g, SY_OP_CONCAT, n, parts, DIMS(1, channels, size, width));
        gb_int(g, "axis", 1);
        gb_output(g, gb_node(g, SY_OP_RELU, INPUTS(y), DIMS(1, channels, size, width)));
        check(g);
    }
}

static void test_views(void **state)
{
    (void)state;
    static const enum sy_op ops[] = {SY_OP_RESHAPE, SY_OP_FLATTEN, SY_OP_UNSQUEEZE, SY_OP_SQUEEZE};
    for (int i = 0; i < 32; i++) {
        struct sy_graph *g = gb_new("views");
        int x = gb_input_of(g, movable[i >> 3], DIMS(1, 3, 1, 4)), y = x;
        if (i & 4 && movable[i >> 3] == SY_DTYPE_F32)
            y = gb_node(g, SY_OP_NEG, INPUTS(x), DIMS(1, 3, 1, 4));
        enum sy_op op = ops[i & 3];
        y = op == SY_OP_RESHAPE   ? gb_node(g, op, INPUTS(y), DIMS(1, 2, 6))
            : op == SY_OP_FLATTEN ? gb_node(g, op, INPUTS(y), DIMS(1, 12))
            : op == SY_OP_SQUEEZE ? gb_node(g, op, INPUTS(y), DIMS(1, 3, 4))
                                  : gb_node(g, op, INPUTS(y), DIMS(1, 3, 1, 1, 4));
        gb_type(g, y, movable[i >> 3]);
        gb_output(g, y);
        check(g);
    }
}

/* A view of a constant, which is a parameter of its layer only. */
static void test_view_of_a_constant(void **state)
{
    (void)state;
    static const enum sy_op ops[] = {SY_OP_RESHAPE, SY_OP_IDENTITY, SY_OP_UNSQUEEZE};
    for (int i = 0; i < 3; i++) {
        struct sy_graph *g = gb_new("view of a constant");
        int x = gb_input(g, DIMS(1, 12)), c = gb_constant(g, "c", DIMS(12), &seed, -1, 1);
        int v = gb_node(g, ops[i], INPUTS(c), DIMS(1, 12));
        gb_fixed(g, v);
        int y = gb_node(g, SY_OP_NEG, INPUTS(x), DIMS(1, 12));
        gb_output(g, gb_node(g, SY_OP_MUL, INPUTS(y, v), DIMS(1, 12)));
        check(g);
    }
}

static void test_index_outside(void **state)
{
    (void)state;
    struct sy_graph *g = gb_new("index outside");
    int x = gb_constant(g, "table", DIMS(5, 2), &seed, -1, 1),
        i = gb_input_of(g, SY_DTYPE_I64, DIMS(1));
    gb_output(g, gb_node(g, SY_OP_GATHER, INPUTS(x, i), DIMS(1, 2)));
    gb_int(g, "axis", 0);
    struct engine_rig rig;
    struct rig_tensors in, out;
    assert_int_equal(rig_open(&rig, g, false), SY_OK);
    struct sy_program *program = rig_program(&rig, 1);
    rig_take(&rig, g->inputs, 1, 1, 0, &in);
    rig_take(&rig, g->outputs, 1, 1, 0, &out);
    static const int64_t bad[] = {5, -6, INT64_MAX, INT64_MIN};
    for (int k = 0; k < 4; k++) {
        *(int64_t *)in.data[0] = bad[k];
        assert_int_equal(rig_run(&rig, program, &in, &out, 0, NULL), SY_EARG);
        assert_non_null(strstr(sy_error_text(), "node0"));
    }
    *(int64_t *)in.data[0] = -5;
    assert_int_equal(rig_run(&rig, program, &in, &out, 0, NULL), SY_OK);
    rig_engine.ops->program_destroy(program);
    rig_drop(&in);
    rig_drop(&out);
    rig_close(&rig);
    sy_graph_free(g);
}

static void test_refused(void **state)
{
    (void)state;
    struct sy_graph *g = gb_new("pad by a rule that is not known");
    int x = gb_input(g, DIMS(1, 4));
    gb_output(g, gb_node(g, SY_OP_PAD, INPUTS(x), DIMS(1, 6)));
    gb_ints(g, "pads", DIMS(0, 1, 0, 1));
    gb_string(g, "mode", "mirror");
    rig_refused(g, false, 0, "mode");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transpose),
        cmocka_unit_test(test_transpose_of_the_batch),
        cmocka_unit_test(test_slice),
        cmocka_unit_test(test_pad),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_concat_and_split),
        cmocka_unit_test(test_concat_of_short_parts),
        cmocka_unit_test(test_concat_of_convolutions),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_view_of_a_constant),
        cmocka_unit_test(test_index_outside),
        cmocka_unit_test(test_refused),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
