/* Which of the host engine's operators the CUDA engine and trainer have: of themselves, by formula, or not at all. What is missing is
 * written down here, so that nothing gets lost unseen; and is refused by name, or computed by the host engine where that is allowed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/graph/graph_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/on_cpu/beside_host.h"
#include "tests/rigs/engine_rig.h"
#include "workers/cuda/program/cuda_engine.h"
#include "workers/cuda/program/cuda_program.h"
#include "workers/cuda/program/host_ops.h"
#include "workers/cuda/train/cuda_train.h"

static uint64_t seed;

static bool is_in(enum sy_op op, const enum sy_op *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == op)
            return true;
    return false;
}

/* Products of 8 bits, which this engine leaves as they were written; bodies that only the run knows the sizes of; texts, trees; two of opset 26; inverses;
 * small types. */
static const enum sy_op lacked[] = {
    SY_OP_QUANTIZED_CONV, SY_OP_QUANTIZED_MATMUL, SY_OP_QUANTIZED_SUM, SY_OP_QUANTIZED_LSTM,
    SY_OP_CHANNEL_AFFINE, SY_OP_DYNAMIC,          SY_OP_STRING_CONCAT, SY_OP_STRING_NORMALIZER,
    SY_OP_STRING_SPLIT,   SY_OP_REGEX_FULL_MATCH, SY_OP_MS_TOKENIZER,  SY_OP_ML_LABEL_ENCODER,
    SY_OP_ML_ONE_HOT,     SY_OP_COUPLE,           SY_OP_TREES,         SY_OP_CUM_PROD,
    SY_OP_BIT_CAST,       SY_OP_MS_MURMUR_HASH,   SY_OP_MS_INVERSE,    SY_OP_SMALL};

static void test_inference(void **state)
{
    int own = 0, by_formula = 0;
    (void)state;
    for (int i = 0; i < SY_OP_COUNT; i++) {
        enum sy_op op = (enum sy_op)i;
        bool has = sy_cuda_op_find(op) != NULL, formula = sy_generic_has(op);
        if (!beside_host_has(op))
            continue;
        own += has;
        by_formula += formula && !has;
        if (!has && !formula)
            printf("not on the device: %s\n", sy_op_name(op));
        if ((!has && !formula) != is_in(op, lacked, SY_ARRAY_LEN(lacked)))
            fail_msg("%s is %s", sy_op_name(op),
                     has || formula ? "there, but in the list" : "neither there nor in the list");
    }
    printf("%d operators with steps of their own, %d by formula only\n", own, by_formula);
}

/* What the host trains the device trains; what has no gradient there has none here. Attention as one node is made for this trainer alone
 * (sy_trainer_ops.fuses): the host's has its parts. */
static void test_training(void **state)
{
    (void)state;
    for (int i = 0; i < SY_OP_COUNT; i++) {
        const struct sy_gradient_steps *op = sy_cutr_gradient_of((enum sy_op)i);
        enum beside_training has = !op                                   ? BESIDE_NOT_TRAINED
                                   : op->backward == sy_cutr_no_backward ? BESIDE_ENDS_GRADIENTS
                                                                         : BESIDE_TRAINED;
        enum beside_training host =
            i == SY_OP_ATTENTION ? BESIDE_TRAINED : beside_host_trains((enum sy_op)i);
        if (has != host)
            fail_msg("%s: %d, the host's trainer has %d", sy_op_name((enum sy_op)i), (int)has,
                     (int)host);
    }
}

/* ---- on the host --------------------------------------------------------------------------------------- */

/* All that is left of a transposed convolution is its bias: what padding adds on one side begins where the result has ended. */
static struct sy_graph *with_pads_that_leave_nothing(void)
{
    struct sy_graph *g = gb_new("pads");
    int w = gb_constant(g, "w", DIMS(2, 2, 1, 3), &seed, -1, 1),
        b = gb_constant(g, "b", DIMS(2), &seed, 1, 2),
        y = gb_node(g, SY_OP_CONV_TRANSPOSE, INPUTS(gb_input(g, DIMS(1, 2, 1, 4)), w, b),
                    DIMS(1, 2, 1, 6));
    gb_ints(g, "kernel_shape", DIMS(1, 3));
    gb_ints(g, "strides", DIMS(2, 1));
    gb_ints(g, "pads", DIMS(1, 0, 0, 0));
    gb_ints(g, "output_padding", DIMS(1, 0));
    gb_output(g, gb_node(g, SY_OP_EXP, INPUTS(y), DIMS(1, 2, 1, 6)));
    return g;
}

/* Ten inputs of float64, and five operands with dimensions that have no letters. */
static struct sy_graph *with_ten_inputs(void)
{
    struct sy_graph *g = gb_new("inputs");
    int x = gb_input(g, DIMS(1, 4)), wide = gb_node(g, SY_OP_CAST, INPUTS(x), DIMS(1, 4));
    gb_type(g, wide, SY_DTYPE_F64);
    int sum =
        gb_node(g, SY_OP_SUM, INPUTS(wide, wide, wide, wide, wide, wide, wide, wide, wide, wide),
                DIMS(1, 4));
    gb_type(g, sum, SY_DTYPE_F64);
    gb_output(g, gb_node(g, SY_OP_CAST, INPUTS(sum), DIMS(1, 4)));
    return g;
}

static struct sy_graph *with_five_operands(void)
{
    struct sy_graph *g = gb_new("operands");
    int x = gb_input(g, DIMS(1, 4)), y = gb_node(g, SY_OP_TANH, INPUTS(x), DIMS(1, 4));
    y = gb_node(g, SY_OP_EINSUM, INPUTS(y, x, y, x, y), DIMS(1, 4));
    gb_string(g, "equation", "...j,...j,...j,...j,...j->...j");
    gb_output(g, gb_node(g, SY_OP_EXP, INPUTS(y), DIMS(1, 4)));
    return g;
}

static void refused(struct sy_graph *g, const char *operator)
{
    struct engine_rig rig;
    rig_engine = beside_cuda;
    assert_int_equal(rig_open(&rig, g, true), SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_error_text(), operator));
    rig_close(&rig);
}

/* Takes the graph. */
static void both_engines(struct sy_graph *g)
{
    struct engine_case c = {0};
    struct engine_rig rig;
    struct rig_tensors in, want, got;
    rig_engine = beside_host;
    if (rig_open(&rig, g, true) < 0)
        fail_msg("%s", sy_error_text());
    rig_take(&rig, rig.graph->inputs, rig.graph->n_inputs, 3, 0, &in);
    rig_fill(&rig, &c, &in, &seed);
    rig_close(&rig);
    beside_results(&beside_host, g, &in, &want);
    beside_results(&beside_cuda, g, &in, &got);
    assert_true(beside_distance(&want, &got) < 1e-5);
    rig_drop(&in);
    rig_drop(&want);
    rig_drop(&got);
    sy_graph_free(g);
}

static void test_the_host_computes_what_is_lacked(void **state)
{
    struct sy_graph *g = with_pads_that_leave_nothing();
    (void)state;
    beside_attach();
    refused(g, "ConvTranspose");
    sy_cuda_host_engine_use(&sy_host_engine);
    sy_cuda_engine.allow_host_ops(true);
    both_engines(g);
    sy_cuda_engine.allow_host_ops(false);
    sy_cuda_host_engine_use(NULL);
    sy_cuda_engine.detach();
}

/* As many inputs as the host engine's kernels take. */
static void test_many_inputs(void **state)
{
    (void)state;
    beside_attach();
    both_engines(with_ten_inputs());
    both_engines(with_five_operands());
    sy_cuda_engine.detach();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inference),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_many_inputs),
        cmocka_unit_test(test_the_host_computes_what_is_lacked),
    };
    seed = rig_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
