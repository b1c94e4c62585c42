/* Models that no exporter should have written: each is refused at import with what is wrong and where, in bounded time and memory,
 * or it runs to its end. Each in a process of its own, with little of both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "tests/bounded_child.h"
#include "tests/model_lines.h"
#include "tests/onnx_bytes.h"
#include "tests/whole_import.h"

#define MEMORY_BYTES (1ull << 30)
#ifdef SY_SANITIZED
#define CPU_SECONDS 60u
#else
#define CPU_SECONDS 20u
#endif

#define DIMS(...)                                                          \
    (int)SY_ARRAY_LEN(((const int64_t[]){__VA_ARGS__})), (const int64_t[]) \
    {                                                                      \
        __VA_ARGS__                                                        \
    }
#define NAMES(...)        \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

static char folder[64], path[96], package[96];
static struct ob graph, node;

#ifdef SY_SANITIZED
/* The sanitizers' library looks this up: an allocation that cannot be is refused, as everywhere. */
__attribute__((visibility("default"), no_sanitize("address"))) const char *__asan_default_options(
    void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=1024";
}
#endif

/* ---- one model in a child ------------------------------------------------------------------------- */

static void import_work(const void *ctx, struct child_report *report)
{
    const struct whole_limits limits = {2, 1 << 22, 256u << 20};
    (void)ctx;
    sy_error_set(SY_OK, "%s", "");
    whole_import(path, package, &limits, 1, &report->stage, &report->status);
    snprintf(report->text, sizeof report->text, "%s", sy_error_text());
}

static struct child_end import_here(const char *what)
{
    struct child_end end;
    bounded_child_run(import_work, NULL, MEMORY_BYTES, CPU_SECONDS, &end);
    unlink(package);
    if (end.signal || end.exit_code)
        fail_msg("%s: ended by signal %d, code %d, in %s", what, end.signal, end.exit_code,
                 whole_stage_name(end.report.stage));
    if (end.report.status < 0 && !*end.report.text)
        fail_msg("%s: refused without a reason", what);
    return end;
}

/* Refused at import, with these words (NULL: any). */
static void expect_refused(const char *what, const char *word, const char *word2)
{
    struct child_end end = import_here(what);
    if (end.report.status >= 0 || end.report.stage > WHOLE_PACKAGE)
        fail_msg("%s: not refused at import (%s: %s)", what, whole_stage_name(end.report.stage),
                 end.report.text);
    if ((word && !strstr(end.report.text, word)) || (word2 && !strstr(end.report.text, word2)))
        fail_msg("%s: '%s' and '%s' are not both in: %s", what, word ? word : "",
                 word2 ? word2 : "", end.report.text);
    for (const char *c = end.report.text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            fail_msg("%s: the reason holds the control character %d", what, *c);
}

static void expect_runs(const char *what)
{
    struct child_end end = import_here(what);
    if (end.report.stage != WHOLE_DONE)
        fail_msg("%s: %s: %s", what, whole_stage_name(end.report.stage), end.report.text);
}

/* ---- models of one node ----------------------------------------------------------------------------- */

/* word: in the refusal, besides a name; NULL: any reason, or it runs. */
struct one_node {
    const char *line, *word;
};

static const struct one_node attributes[] = {
    /* another type than the operator's */
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .group=1.5f", "group"},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .strides=2", "strides"},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .pads='1,1,1,1'", "pads"},
    {"Softmax x:f[N,8] .axis=[1]", "axis"},
    {"LeakyRelu x:f[N,8] .alpha=1", "alpha"},
    {"Transpose x:f[N,8] .perm=[1f,0f]", "perm"},
    {"Concat x:f[N,8] x .axis='1'", "axis"},
    {"Resize x:f[N,1,4,4] - s=f{1,1,2,2} .mode=1", "mode"},
    {"Cast x:f[N,8] .to='FLOAT'", "to"},
    /* unknown */
    {"Relu x:f[N,8] .alpha=1f", "alpha"},
    {"MatMul x:f[N,8] w=f[8,8] .alpha=2f", "alpha"},
    {"Softmax x:f[N,8] .flat=1", "flat"},
    {"Add x:f[N,8] x .residual=1", "residual"},
    /* given twice is the last one's in protobuf, but not in ONNX */
    {"Softmax x:f[N,8] .axis=0 .axis=1", "axis"},
    /* convolution */
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .kernel_shape=[0,0]", "kernel_shape"},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .kernel_shape=[1099511627776,3]", "kernel_shape"},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .kernel_shape=[3]", "kernel_shape"},
    {"Conv x:f[N,3,8,8] w=f[4,3,0,3]", NULL},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .pads=[-1,0,0,0]", "pads"},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .pads=[1,1,1]", "pads"},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .pads=[9223372036854775807,0,9223372036854775807,0]", "pads"},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .pads=[1099511627776,0,0,0]", NULL},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .strides=[0,1]", "strides"},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .strides=[-1,1]", "strides"},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .strides=[1099511627776,1]", NULL},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .dilations=[0,1]", "dilations"},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .dilations=[4611686018427387904,1]", "dilations"},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .group=0", "group"},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .group=-3", "group"},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .group=2", "group"},
    {"Conv x:f[N,4,8,8] w=f[3,2,3,3] .group=2", "group"},
    {"Conv x:f[N,3,8,8] w=f[4,3,9,9]", NULL},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] .auto_pad='SAME'", "auto_pad"},
    {"ConvTranspose x:f[N,3,8,8] w=f[3,4,3,3] .strides=[1073741824,1073741824]", NULL},
    {"ConvTranspose x:f[N,3,8,8] w=f[3,4,3,3] .output_padding=[9223372036854775807,0]", NULL},
    {"ConvTranspose x:f[N,3,8,8] w=f[3,4,3,3] .output_shape=[1099511627776,1099511627776]", NULL},
    {"ConvTranspose x:f[N,3,8,8] w=f[3,4,3,3] .output_shape=[-1,0]", NULL},
    {"ConvTranspose x:f[N,3,8,8] w=f[3,4,3,3] .group=0", "group"},
    /* pooling */
    {"MaxPool x:f[N,3,8,8]", "kernel_shape"},
    {"MaxPool x:f[N,3,8,8] .kernel_shape=[0,2]", "kernel_shape"},
    {"MaxPool x:f[N,3,8,8] .kernel_shape=[1099511627776,1]", "kernel_shape"},
    {"MaxPool x:f[N,3,8,8] .kernel_shape=[1073741824,1] .pads=[1073741823,0,1073741823,0]", NULL},
    {"AveragePool x:f[N,3,8,8] .kernel_shape=[2,2] .strides=[0,0]", "strides"},
    {"AveragePool x:f[N,3,8,8] .kernel_shape=[2,2] .pads=[-3,0,0,0]", "pads"},
    {"LpPool x:f[N,3,8,8] .kernel_shape=[2,2] .p=0", NULL},
    {"GlobalAveragePool x:f[N,3]", NULL},
    /* axes */
    {"Softmax x:f[N,8] .axis=2", "axis"},
    {"Softmax x:f[N,8] .axis=-3", "axis"},
    {"Softmax x:f[N,8] .axis=-9223372036854775808", "axis"},
    {"Concat x:f[N,8] x .axis=9223372036854775807", "axis"},
    {"Gather x:f[N,8] i=i{0} .axis=7", "axis"},
    {"Split x:f[N,8] s=i{4,4} .axis=5 ->y ->z", "axis"},
    {"LayerNormalization@17 x:f[N,8] g=f[8] .axis=4", "axis"},
    {"Flatten x:f[N,8] .axis=4", "axis"},
    {"TopK x:f[N,8] k=i{3} .axis=4 ->y ->z", "axis"},
    {"ArgMax x:f[N,8] .axis=4", "axis"},
    {"ReduceMean x:f[N,8] .axes=[4]", "axis"},
    {"ReduceMean x:f[N,8] .axes=[1,1,1,1,1,1,1,1,1,1,1]", NULL},
    {"CumSum x:f[N,8] a=i(9)", "axis"},
    {"OneHot x:i[N] d=i(4) v=f{0,1} .axis=6", "axis"},
    {"Unsqueeze x:f[N,8] a=i{9}", NULL},
    {"Squeeze x:f[N,8] a=i{1}", NULL},
    {"Transpose x:f[N,8] .perm=[0,0]", "perm"},
    {"Transpose x:f[N,8] .perm=[0,9]", "axis 9"},
    {"Transpose x:f[N,8] .perm=[0]", "perm"},
    {"GatherElements x:f[N,8] i:i[N,8] .axis=2", "axis"},
    {"ReverseSequence x:f[4,N,8] s:i[N] .batch_axis=1 .time_axis=1", NULL},
    /* numbers that are none */
    {"LayerNormalization@17 x:f[N,8] g=f[8] .epsilon=nanf", NULL},
    {"BatchNormalization x:f[N,8] s=f[8] b=f[8] m=f[8] v=f[8] .epsilon=-inff", NULL},
    {"Clip@6 x:f[N,8] .min=inff .max=-inff", NULL},
    {"LeakyRelu x:f[N,8] .alpha=nanf", NULL},
    {"LRN x:f[N,8,2,2] .size=0", "a size"},
    {"LRN x:f[N,8,2,2] .size=4611686018427387904", NULL},
    {"Dropout@7 x:f[N,8] .ratio=nanf", NULL},
    {"Gemm x:f[N,8] w=f[8,4] .alpha=inff .beta=nanf", NULL},
    {"Cast x:f[N,8] .to=99", "99"},
    {"Cast x:f[N,8] .to=-1", NULL},
    {"Cast x:f[N,8]", "to"},
    {"DepthToSpace x:f[N,8,2,2] .blocksize=0", "blocks of 0"},
    {"DepthToSpace x:f[N,8,2,2] .blocksize=3037000500", "blocks of"},
    {"SpaceToDepth x:f[N,8,2,2] .blocksize=-2", "blocks of -2"},
    {"LSTM x:f[5,2,4] w=f[1,12,4] r=f[1,12,3] .hidden_size=1099511627776", NULL},
    {"LSTM x:f[5,2,4] w=f[1,12,4] r=f[1,12,3] .hidden_size=-3", NULL},
    {"LSTM x:f[5,2,4] w=f[1,12,4] r=f[1,12,3] .hidden_size=3 .direction='sideways'", "direction"},
    {"LSTM x:f[5,2,4] w=f[1,12,4] r=f[1,12,3] .hidden_size=3 .clip=nanf", NULL},
    {"GroupNormalization@18 x:f[N,8,4] s=f[3] b=f[3] .num_groups=3", NULL},
    {"GroupNormalization@18 x:f[N,8,4] s=f[0] b=f[0] .num_groups=0", NULL},
    {"BitShift x:u[N,8] x .direction='UP'", "direction"},
    {"Gelu@20 x:f[N,8] .approximate='roughly'", "approximate"},
    {"DepthToSpace x:f[N,8,2,2] .blocksize=2 .mode='DRC'", "mode"},
    {"GridSample@16 x:f[N,1,4,4] g:f[N,2,2,2] .mode='best'", "mode"},
    {"ScatterND@16 x:f[4,8] i=i[2,1] u=f[2,8] .reduction='sub'", "reduction"},
    {"Einsum x:f[N,8] x .equation='ij,jk'", NULL},
    {"Einsum x:f[N,8] .equation='ii->i'", NULL},
    {"Einsum x:f[N,8] .equation='->->'", NULL},
    {"Einsum x:f[N,8]", NULL},
};

static const struct one_node sizes[] = {
    /* results that no machine holds */
    {"Expand x:f[N,1] s=i{1,1125899906842624}", "1125899906842624"},
    {"Expand x:f[1] s=i{4294967296,4294967296}", NULL},
    {"Expand x:f[N,1] s=i{1,-5}", NULL},
    {"Expand c=f(1) s=i{1125899906842624}", NULL},
    {"Expand c=f(1) s=i{4294967296}", NULL},
    {"Tile x:f[N,8] r=i{1,1125899906842624}", NULL},
    {"Tile x:f[N,8] r=i{4611686018427387904,4611686018427387904}", NULL},
    {"Tile x:f[N,8] r=i{1,-1}", NULL},
    {"Tile x:f[N,8] r=i{1}", NULL},
    {"Tile c=f{1,2} r=i{1125899906842624}", NULL},
    {"ConstantOfShape s=i{1125899906842624}", NULL},
    {"ConstantOfShape s=i{4294967296,4294967296}", NULL},
    {"ConstantOfShape s=i{-1}", NULL},
    {"ConstantOfShape s=i{3,1,1,1,1,1,1,1,1,1}", NULL},
    {"ConstantOfShape s:i[3]", NULL},
    {"Range a=i(0) b=i(1125899906842624) c=i(1)", NULL},
    {"Range a=i(0) b=i(9223372036854775807) c=i(1)", NULL},
    {"Range a=i(-9223372036854775808) b=i(9223372036854775807) c=i(1)", NULL},
    {"Range a=i(9223372036854775807) b=i(-9223372036854775808) c=i(-1)", NULL},
    {"Range a=i(0) b=i(8) c=i(0)", NULL},
    {"Range a=f(0) b=f(inf) c=f(1)", NULL},
    {"Range a=f(0) b=f(1e30) c=f(1e-30)", NULL},
    {"Range a=f(0) b=f(nan) c=f(1)", NULL},
    {"Range a=f(0) b=f(8) c=f(0)", NULL},
    {"Pad x:f[N,8] p=i{0,0,0,1125899906842624}", NULL},
    {"Pad x:f[N,8] p=i{0,9223372036854775807,0,9223372036854775807}", NULL},
    {"Pad x:f[N,8] p=i{0,-9,0,0}", NULL},
    {"Pad x:f[N,8] p=i{0,0,0}", NULL},
    {"Pad x:f[N,8] p=i{0,9,0,9} .mode='reflect'", NULL},
    {"Pad x:f[N,8] p=i{0,0,0,1125899906842624} .mode='edge'", NULL},
    {"Pad x:f[N,8] p=i{0,0,0,1} .mode='sideways'", "mode"},
    {"Resize x:f[N,1,4,4] - s=f{1,1,1e9,1e9}", NULL},
    {"Resize x:f[N,1,4,4] - s=f{1,1,0,0}", NULL},
    {"Resize x:f[N,1,4,4] - s=f{1,1,-2,2}", NULL},
    {"Resize x:f[N,1,4,4] - s=f{1,1,nan,2}", NULL},
    {"Resize x:f[N,1,4,4] - s=f{1,1,inf,2}", NULL},
    {"Resize x:f[N,1,4,4] - s=f{1,1,1e-9,1}", NULL},
    {"Resize x:f[N,1,4,4] - s=f{2,2}", NULL},
    {"Resize x:f[N,1,4,4] - - z=i{1,1,0,4}", NULL},
    {"Resize x:f[N,1,4,4] - - z=i{1,1,-4,4}", NULL},
    {"Resize x:f[N,1,4,4] - - z=i{1,1,1099511627776,1099511627776}", NULL},
    {"Resize x:f[N,1,4,4]", NULL},
    {"Resize x:f[N,1,4,4] - s=f{1,1,2,2} .mode='cubical'", "mode"},
    {"Upsample@9 x:f[N,1,4,4] s=f{1,1,1e18,1e18}", NULL},
    {"OneHot x:i[N] d=i(1125899906842624) v=f{0,1}", NULL},
    {"OneHot x:i[N] d=i(-4) v=f{0,1}", NULL},
    {"EyeLike x:f[1048576,1048576]", NULL},
    {"Reshape x:f[N,8] s=i{4611686018427387904,4}", NULL},
    {"Reshape x:f[N,8] s=i{-1,-1}", NULL},
    {"Reshape x:f[N,8] s=i{-2,4}", NULL},
    {"Reshape x:f[N,8] s=i{0,0,0}", NULL},
    {"Reshape x:f[N,8] s=i{-1,0}", NULL},
    {"Reshape x:f[4,0] s=i{-1,0} .allowzero=1", NULL},
    {"Reshape x:f[N,8] s=i{3,5}", NULL},
    {"Slice x:f[N,8] a=i{0} b=i{9} c=i{1} d=i{0}", NULL},
    {"Slice x:f[N,8] a=i{-9223372036854775808} b=i{9223372036854775807} c=i{1}", NULL},
    {"Slice x:f[N,8] a=i{9223372036854775807} b=i{-9223372036854775808} c=i{1} "
     "d=i{-9223372036854775808}",
     NULL},
    {"Slice x:f[N,8] a=i{0,0} b=i{4} c=i{1}", NULL},
    {"Slice x:f[N,8] a=i{0,0} b=i{4,4} c=i{1,1}", NULL},
    {"Split x:f[N,8] s=i{4,5} .axis=1 ->y ->z", NULL},
    {"Split x:f[N,8] s=i{-4,12} .axis=1 ->y ->z", NULL},
    {"Split x:f[N,8] s=i{9223372036854775807,9223372036854775807} .axis=1 ->y ->z", NULL},
    {"Split x:f[N,8] .axis=1 ->y ->z ->a", NULL},
    {"TopK x:f[N,8] k=i{9} ->y ->z", NULL},
    {"TopK x:f[N,8] k=i{-1} ->y ->z", NULL},
    {"TopK x:f[N,8] k=i{9223372036854775807} ->y ->z", NULL},
    {"Concat x:f[N,4611686018427387904] x x x .axis=1", NULL},
    {"MatMul x:f[N,1048576,1] w=f[1,1048576]", NULL},
    {"Gather x:f[N,1048576] i:i[1048576,1048576] .axis=1", NULL},
    {"Gather c=f[4] i=i{4}", NULL},
    {"Gather c=f[4] i=i{-9223372036854775808}", NULL},
    {"GatherND x:f[N,8] i=i[2,7]", NULL},
    {"ScatterND x:f[4,8] i=i[2,9] u=f[2]", NULL},
    {"HannWindow@17 n=i(1125899906842624)", NULL},
    {"HannWindow@17 n=i(-1)", NULL},
    {"DFT@17 x:f[N,8,1] n=i(1125899906842624)", NULL},
    {"DFT@17 x:f[N,8,1] n=i(0)", NULL},
    {"RoiAlign@16 x:f[1,2,4,4] r:f[N,4] b:i[N] .output_height=1048576 .output_width=1048576", NULL},
    {"RoiAlign@16 x:f[1,2,4,4] r:f[N,4] b:i[N] .sampling_ratio=-5", NULL},
    {"MaxUnpool x:f[1,1,2,2] i:i[1,1,2,2] s=i{1,1,1048576,1048576} .kernel_shape=[2,2]", NULL},
    {"NonMaxSuppression b:f[1,4,4] s:f[1,1,4] m=i{9223372036854775807}", NULL},
    /* no elements at all */
    {"Relu x:f[N,0]", NULL},
    {"Conv x:f[N,0,8,8] w=f[4,0,3,3]", NULL},
    {"Conv x:f[N,3,0,0] w=f[4,3,3,3]", NULL},
    {"MatMul x:f[N,0] w=f[0,4]", NULL},
    {"MatMul x:f[N,4] w=f[4,0]", NULL},
    {"Gemm x:f[N,0] w=f[0,4] b=f[4]", NULL},
    {"Softmax x:f[N,0]", NULL},
    {"ReduceMean x:f[N,0] .axes=[1]", NULL},
    {"ReduceMax x:f[N,0] .axes=[1]", NULL},
    {"ArgMax x:f[N,0] .axis=1", NULL},
    {"MaxPool x:f[N,3,0,4] .kernel_shape=[2,2]", NULL},
    {"GlobalAveragePool x:f[N,3,0,0]", NULL},
    {"LayerNormalization@17 x:f[N,0] g=f[0]", NULL},
    {"Concat x:f[N,0] x .axis=1", NULL},
    {"Transpose x:f[N,0] .perm=[1,0]", NULL},
    {"Gather x:f[N,0] i=i{0} .axis=1", NULL},
    {"Gather x:f[N,4] i=i[0] .axis=1", NULL},
    {"TopK x:f[N,0] k=i{0} ->y ->z", NULL},
    {"Resize x:f[N,1,0,4] - s=f{1,1,2,2}", NULL},
    {"Tile x:f[N,4] r=i{1,0}", NULL},
    {"LSTM x:f[0,N,4] w=f[1,12,4] r=f[1,12,3] .hidden_size=3", NULL},
    {"InstanceNormalization x:f[N,3,0] s=f[3] b=f[3]", NULL},
};

static const struct one_node wiring[] = {
    {"Relu", "input"},
    {"Relu x:f[N,8] x", "input"},
    {"Add x:f[N,8]", "input"},
    {"Add x:f[N,8] x x", "input"},
    {"Conv x:f[N,3,8,8]", "input"},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] b=f[4] c=f[4]", "input"},
    {"Conv - w=f[4,3,3,3]", "input"},
    {"Gemm x:f[N,8]", "input"},
    {"BatchNormalization x:f[N,8] s=f[8]", "input"},
    {"LSTM x:f[5,2,4] .hidden_size=3", "input"},
    {"Where c:b[N] x:f[N]", "input"},
    {"Concat .axis=0", "input"},
    {"Slice x:f[N,8] a=i{0}", NULL},
    {"Resize@10 x:f[N,1,4,4]", NULL},
    {"ScatterElements x:f[N,8] i:i[N,8]", "input"},
    {"Einsum .equation='ij->ji'", "input"},
    {"Relu x:f[N,8] ->y ->z", "output"},
    {"Split x:f[N,8] .axis=1 ->y ->y", "twice"},
    {"Relu x:f[N,8] ->x", "twice"},
    /* shapes and types that do not go together */
    {"Add x:f[N,8] w=f[7]", NULL},
    {"Add x:f[N,8] w=i[8]", NULL},
    {"MatMul x:f[N,8] w=f[7,4]", NULL},
    {"Gemm x:f[N,8] w=f[7,4]", NULL},
    {"Gemm x:f[N,8] w=f[8,4] b=f[5]", NULL},
    {"Conv x:f[N,3,8,8] w=f[4,2,3,3]", NULL},
    {"Conv x:f[N,3,8,8] w=f[4,3,3]", NULL},
    {"Conv x:f[N,3,8,8] w=f[4,3,3,3] b=f[5]", NULL},
    {"Conv x:i[N,3,8,8] w=i[4,3,3,3]", NULL},
    {"BatchNormalization x:f[N,8] s=f[7] b=f[8] m=f[8] v=f[8]", NULL},
    {"LSTM x:f[5,2,4] w=f[1,12,5] r=f[1,12,3] .hidden_size=3", NULL},
    {"LSTM x:f[5,2,4] w=f[1,12,4] r=f[1,12,3] b=f[1,7] .hidden_size=3", NULL},
    {"Concat x:f[N,8] c=f[1,7] .axis=0", NULL},
    {"Gather x:f[N,8] i:f[3]", NULL},
    {"Where c:f[N] x:f[N] x", NULL},
    {"Not x:f[N]", NULL},
    {"Reshape x:f[N,8] s=f{8,1}", NULL},
    {"Softmax x:i[N,8]", NULL},
    {"LayerNormalization@17 x:f[N,8] g=f[7]", NULL},
    {"ScatterElements x:f[N,8] i=i[2,9] u=f[2,8]", NULL},
    {"GatherElements x:f[4,8] i=i[5,9]", NULL},
    {"If x:f[N,8]", NULL},
    {"Loop x:f[N,8]", NULL},
    /* constants that are not what they claim */
    {"Add x:f[N,8] w=f!", "'w'"},
    {"Add x:f[N,8] w=f[4611686018427387904]", "'w'"},
    {"Add x:f[N,8] w=f[4294967296,4294967296]", "'w'"},
    {"Add x:f[N,8] w=f[2305843009213693952,2,2]", "'w'"},
    {"Add x:f[N,8] w=f[-8]", "'w'"},
    {"Add x:f[N,8] w=f[1,1,1,1,1,1,1,1,1]", "'w'"},
    /* inputs that are too large, alone and together */
    {"Relu x:f[N,4611686018427387904]", NULL},
    {"Relu x:f[N,1048576,1048576,1048576,1048576]", NULL},
    {"Relu x:f[N,2147483648,2147483648,2]", NULL},
    {"Relu x:f[9223372036854775807]", NULL},
    /* names that are this project's own */
    {"switchyard.SkipLayerNorm x:f[N,8] x g=f[8] b=f[8]", "switchyard.SkipLayerNorm"},
    {"switchyard.Numbers .fixed=[1f] .per_batch=[1f]", "switchyard.Numbers"},
    {"switchyard.RunReshape x:f[N,8] s:i[2]", "switchyard.RunReshape"},
    {"Constant .value_int=3 .value_float=1f", NULL},
};

static void check_table(const struct one_node *table, size_t n)
{
    int failed = 0;
    for (size_t i = 0; i < n; i++) {
        model_line_save(path, table[i].line);
        struct child_end end = import_here(table[i].line);
        bool refused = end.report.status < 0 && end.report.stage <= WHOLE_PACKAGE;
        /* What only a run sees, in the values that it gets. */
        bool ran = end.report.stage == WHOLE_DONE || end.report.stage == WHOLE_LARGE ||
                   (end.report.stage == WHOLE_RUN && end.report.status == SY_EARG);
        const char *word = table[i].word, *text = end.report.text;
        bool good = word ? refused && strstr(text, word) : refused || ran;
        good = good && (end.report.status >= 0 || strstr(text, "'y'") || strstr(text, "node y") ||
                        strstr(text, "'w'") || strstr(text, "'x'"));
        if (!good) {
            print_message("%s\n    wanted %s: %s: %s\n", table[i].line, word ? word : "a reason",
                          whole_stage_name(end.report.stage), text);
            failed++;
        } else if (getenv("SY_VERBOSE")) {
            print_message("%s\n    %s: %s\n", table[i].line, whole_stage_name(end.report.stage),
                          text);
        }
    }
    assert_int_equal(failed, 0);
}

static void test_attributes(void **state)
{
    (void)state;
    check_table(attributes, SY_ARRAY_LEN(attributes));
}

static void test_sizes(void **state)
{
    (void)state;
    check_table(sizes, SY_ARRAY_LEN(sizes));
}

static void test_wiring(void **state)
{
    (void)state;
    check_table(wiring, SY_ARRAY_LEN(wiring));
}

/* ---- graphs --------------------------------------------------------------------------------------------- */

static void start(void)
{
    graph.n = 0;
    ob_text(&graph, 2, "g");
}

static void add(const char *op, const char *const *inputs, const char *const *outputs)
{
    ob_node(&node, op, inputs, outputs);
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

static void input_and_output(const char *input, const char *output)
{
    start();
    ob_input(&graph, OB_GRAPH_INPUT, input, 1, DIMS(-1, 4));
    ob_input(&graph, OB_GRAPH_OUTPUT, output, 1, DIMS(-1, 4));
}

static void save(int opset)
{
    ob_save(path, &graph, opset);
}

static void test_names_that_come_twice(void **state)
{
    (void)state;
    static const float four[4];
    input_and_output("x", "y");
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 5));
    add("Relu", NAMES("x"), NAMES("y"));
    save(13);
    expect_refused("an input twice", "'x'", "twice");
    input_and_output("x", "y");
    ob_initializer(&graph, "w", 1, DIMS(4), four, sizeof four);
    ob_initializer(&graph, "w", 1, DIMS(2), four, 8);
    add("Add", NAMES("x", "w"), NAMES("y"));
    save(13);
    expect_refused("a constant twice", "'w'", "twice");
    input_and_output("x", "y");
    ob_initializer(&graph, "w", 1, DIMS(4), four, sizeof four);
    add("Relu", NAMES("x"), NAMES("w"));
    add("Add", NAMES("x", "w"), NAMES("y"));
    save(13);
    expect_refused("a constant and a result", "'w'", "twice");
    input_and_output(
        "x",
        "y"); /* an output listed twice is two outputs of one name: a client could not tell them apart */
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(-1, 4));
    add("Relu", NAMES("x"), NAMES("y"));
    save(13);
    expect_refused("an output twice", "'y'", "twice");
}

static void test_missing_parts(void **state)
{
    (void)state;
    static struct ob model, import;
    start();
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(-1, 4));
    add("Relu", NAMES("x"), NAMES("y"));
    save(13);
    expect_refused("no outputs", "output", path);
    input_and_output("x", "y");
    save(13);
    expect_refused("no nodes", "'y'", path);
    start();
    save(13);
    expect_refused("nothing", "output", path);
    input_and_output("x", "y");
    add("Relu", NAMES("gone"), NAMES("y"));
    save(13);
    expect_refused("an input that nothing makes", "'gone'", "'y'");
    input_and_output("x", "y");
    add("", NAMES("x"), NAMES("y"));
    save(13);
    expect_refused("no operator", "node 'y'", NULL);
    for (int version = 0; version < 4; version++) {
        static const int64_t versions[] = {0, -1, 1ll << 40, 22};
        input_and_output("x", "y");
        add("Relu", NAMES("x"), NAMES("y"));
        model.n = import.n = 0;
        ob_varint(&import, 2, (uint64_t)versions[version]);
        ob_varint(&model, 1, 7);
        ob_message(&model, 7, &graph);
        ob_message(&model, 8, &import);
        FILE *file = fopen(path, "wb");
        assert_int_equal(fwrite(model.bytes, model.n, 1, file), 1);
        fclose(file);
        expect_refused("an opset that is none", "opset", path);
    }
    model.n = 0;
    ob_varint(&model, 1, 7);
    ob_message(&model, 7, &graph);
    FILE *file = fopen(path, "wb");
    assert_int_equal(fwrite(model.bytes, model.n, 1, file), 1);
    fclose(file);
    expect_refused("no opset", "opset", path);
}

/* Printed, logged and sent to clients: they may not move a terminal's cursor or end a line of the log. */
static void test_strange_names(void **state)
{
    (void)state;
    static char longest[5000];
    memset(longest, 'a', sizeof longest - 1);
    const char *const bad[] = {"a\nready", "\x1b[2Ja", "\x01", "\x7f", "\xff\xfe", "\xc3", longest};
    for (size_t i = 0; i < SY_ARRAY_LEN(bad); i++) {
        input_and_output(bad[i], "y");
        add("Relu", NAMES(bad[i]), NAMES("y"));
        save(13);
        expect_refused("a strange input", "input", NULL);
        input_and_output("x", bad[i]);
        add("Relu", NAMES("x"), NAMES(bad[i]));
        save(13);
        expect_refused("a strange output", "output", NULL);
        input_and_output("x", "y"); /* inside, they are never shown but in errors */
        add("Relu", NAMES("x"), NAMES(bad[i]));
        add("Tanh", NAMES(bad[i]), NAMES("y"));
        save(13);
        expect_runs("a strange name inside");
        input_and_output("x", "y");
        add("Nothing", NAMES("x"), NAMES(bad[i]));
        add(bad[i], NAMES(bad[i]), NAMES("y"));
        save(13);
        expect_refused("a strange operator", "not supported", NULL);
    }
    input_and_output("\xc3\xa4 / b:0", "\xe6\x97\xa5");
    add("Relu", NAMES("\xc3\xa4 / b:0"), NAMES("\xe6\x97\xa5"));
    save(13);
    expect_runs("names in other scripts");
}

/* ---- bodies ----------------------------------------------------------------------------------------------- */

static struct ob body;

static void begin_body(void)
{
    body.n = 0;
    ob_text(&body, 2, "b");
}

static void body_node(const char *op, const char *const *inputs, const char *const *outputs)
{
    static struct ob inner;
    ob_node(&inner, op, inputs, outputs);
    ob_message(&body, OB_GRAPH_NODE, &inner);
}

static void loop_body(const char *condition)
{
    begin_body();
    ob_input(&body, OB_GRAPH_INPUT, "i", 7, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "go", 9, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "v", 1, DIMS(4));
    body_node("Identity", NAMES(condition), NAMES("on"));
    body_node("Tanh", NAMES("v"), NAMES("next"));
    ob_input(&body, OB_GRAPH_OUTPUT, "on", 9, 0, NULL);
    ob_input(&body, OB_GRAPH_OUTPUT, "next", 1, DIMS(4));
}

static void loop_model(const char *trips, const char *condition)
{
    static const unsigned char yes = 1;
    static const int64_t many = INT64_MAX;
    start();
    ob_input(&graph, OB_GRAPH_INPUT, "x", 1, DIMS(4));
    ob_input(&graph, OB_GRAPH_INPUT, "some", 7, 0, NULL);
    ob_input(&graph, OB_GRAPH_OUTPUT, "y", 1, DIMS(4));
    ob_initializer(&graph, "yes", 9, 0, NULL, &yes, 1);
    ob_initializer(&graph, "many", 7, 0, NULL, &many, 8);
    ob_node(&node, "Loop", NAMES(trips, condition, "x"), NAMES("y"));
    ob_attr_graph(&node, "body", &body);
    ob_message(&graph, OB_GRAPH_NODE, &node);
}

static void test_loops(void **state)
{
    (void)state;
    static struct ob inner;
    loop_body("go");
    loop_model("", "");
    save(13);
    expect_refused("a loop that never ends", "'y'", "never ends");
    loop_model("", "yes");
    save(13);
    expect_refused("a loop whose condition stays true", "'y'", "never ends");
    loop_model("many", "yes");
    save(13);
    expect_refused("a loop of 2^63 turns", "'y'", "9223372036854775807");
    loop_model("some", "yes");
    save(13);
    expect_runs("a loop of some turns");
    /* Loops in a loop, each of a count that only the request knows: bounded together. */
    inner = body;
    begin_body();
    ob_input(&body, OB_GRAPH_INPUT, "j", 7, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "go2", 9, 0, NULL);
    ob_input(&body, OB_GRAPH_INPUT, "v2", 1, DIMS(4));
    body_node("Identity", NAMES("go2"), NAMES("on2"));
    ob_node(&node, "Loop", NAMES("huge", "", "v2"), NAMES("next2"));
    ob_attr_graph(&node, "body", &inner);
    ob_message(&body, OB_GRAPH_NODE, &node);
    ob_input(&body, OB_GRAPH_OUTPUT, "on2", 9, 0, NULL);
    ob_input(&body, OB_GRAPH_OUTPUT, "next2", 1, DIMS(4));
    loop_model("huge", "yes");
    add("Mul", NAMES("some", "many"), NAMES("most"));
    add("Max", NAMES("most", "many"), NAMES("huge"));
    save(13);
    struct child_end end = import_here("loops in loops");
    assert_int_equal(end.report.stage, WHOLE_RUN);
    assert_int_equal(end.report.status, SY_EARG);
    assert_non_null(strstr(end.report.text, "iterations"));
}

static void test_bodies(void **state)
{
    (void)state;
    static struct ob inner;
    static const unsigned char yes = 1;
    /* A body that reads what its own node makes. */
    begin_body();
    body_node("Relu", NAMES("y"), NAMES("r"));
    ob_input(&body, OB_GRAPH_OUTPUT, "r", 1, DIMS(-1, 4));
    input_and_output("x", "y");
    ob_input(&graph, OB_GRAPH_INPUT, "c", 9, 0, NULL);
    ob_node(&node, "If", NAMES("c"), NAMES("y"));
    ob_attr_graph(&node, "then_branch", &body);
    ob_attr_graph(&node, "else_branch", &body);
    ob_message(&graph, OB_GRAPH_NODE, &node);
    save(13);
    expect_refused("a body that reads its own result", "depends on itself", "'y'");
    /* If in If in If ... */
    begin_body();
    body_node("Relu", NAMES("x"), NAMES("r"));
    ob_input(&body, OB_GRAPH_OUTPUT, "r", 1, DIMS(-1, 4));
    for (int depth = 0; depth < 12; depth++) {
        inner = body;
        begin_body();
        ob_node(&node, "If", NAMES("c"), NAMES("r"));
        ob_attr_graph(&node, "then_branch", &inner);
        if (depth < 2)
            ob_attr_graph(&node, "else_branch", &inner);
        ob_message(&body, OB_GRAPH_NODE, &node);
        ob_input(&body, OB_GRAPH_OUTPUT, "r", 1, DIMS(-1, 4));
        input_and_output("x", "y");
        ob_input(&graph, OB_GRAPH_INPUT, "c", 9, 0, NULL);
        ob_initializer(&graph, "yes", 9, 0, NULL, &yes, 1);
        ob_node(&node, "If", NAMES("c"), NAMES("y"));
        ob_attr_graph(&node, "then_branch", &body);
        ob_attr_graph(&node, "else_branch", &body);
        ob_message(&graph, OB_GRAPH_NODE, &node);
        save(13);
        if (depth >= 3)
            expect_refused("bodies in bodies", "nested", NULL);
        else
            import_here("bodies in bodies");
    }
}

/* ---- files --------------------------------------------------------------------------------------------------- */

/* If in If, ten thousand deep: written from the inside outwards, to the end of a block. */
static void test_deepest_nesting(void **state)
{
    (void)state;
    enum { DEPTH = 10000, ROOM = DEPTH * 24 };
    static unsigned char block[ROOM];
    size_t at = ROOM;
    const unsigned char fields[] = {6 << 3 | 2, 5 << 3 | 2, 1 << 3 | 2}; /* g, attribute, node */
    for (int i = 0; i < 3 * DEPTH + 1; i++) {
        size_t n = ROOM - at;
        unsigned char length[8];
        int used = 0;
        for (; n > 0x7f; n >>= 7)
            length[used++] = (unsigned char)(n | 0x80);
        length[used++] = (unsigned char)n;
        at -= (size_t)used;
        memcpy(block + at, length, (size_t)used);
        block[--at] = i == 3 * DEPTH ? 7 << 3 | 2 : fields[i % 3];
    }
    FILE *file = fopen(path, "wb");
    assert_int_equal(fwrite(block + at, ROOM - at, 1, file), 1);
    fclose(file);
    expect_refused("ten thousand bodies", "nested deeper", path);
}

static void test_garbage(void **state)
{
    (void)state;
    static unsigned char bytes[1 << 20];
    static const unsigned char headers[][8] = {
        {0x3a, 0x80, 0x80, 0x80, 0x32},          /* a graph of 100 MiB */
        {0x08, 7, 0x12, 0x80, 0x80, 0x80, 0x32}, /* a producer's name of as much */
        {0x1f, 0x8b, 8},                         /* gzip */
        {0x0a}};
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof bytes; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        bytes[i] = (unsigned char)(seed >> 56);
    }
    for (size_t h = 0; h < SY_ARRAY_LEN(headers); h++) {
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        fwrite(headers[h], 1, sizeof headers[h], file);
        for (int i = 0; i < 100; i++)
            assert_int_equal(fwrite(bytes, sizeof bytes, 1, file), 1);
        fclose(file);
        expect_refused("100 MiB of garbage", path, NULL);
    }
}

static void external(const char *location, const char *offset, const char *length)
{
    static struct ob tensor, entry;
    const char *const pairs[][2] = {{"location", location}, {"offset", offset}, {"length", length}};
    tensor.n = 0;
    ob_varint(&tensor, 1, 4);
    ob_varint(&tensor, 2, 1);
    ob_text(&tensor, 8, "w");
    for (int i = 0; i < 3; i++) {
        entry.n = 0;
        ob_text(&entry, 1, pairs[i][0]);
        ob_text(&entry, 2, pairs[i][1]);
        ob_message(&tensor, 13, &entry);
    }
    ob_varint(&tensor, 14, 1);
    input_and_output("x", "y");
    ob_message(&graph, 5, &tensor);
    add("Add", NAMES("x", "w"), NAMES("y"));
    save(13);
    expect_refused(location, "'w'", NULL);
}

static void test_external_data(void **state)
{
    (void)state;
    char name[128], link[128];
    snprintf(name, sizeof name, "%s/pipe", folder);
    assert_int_equal(mkfifo(name, 0600), 0);
    external("pipe", "0", "16"); /* must not wait for a writer */
    unlink(name);
    snprintf(name, sizeof name, "%s/sub", folder);
    assert_int_equal(mkdir(name, 0700), 0);
    external("sub", "0", "16");
    external("sub/../../x", "0", "16");
    external("sub/", "0", "16");
    snprintf(link, sizeof link, "%s/sub/up", folder);
    assert_int_equal(symlink("../..", link), 0);
    external("sub/up/x", "0", "16");
    unlink(link);
    rmdir(name);
    external(".", "0", "16");
    external("", "0", "16");
    external("model.onnx", "18446744073709551600", "16");
    external("model.onnx", "9223372036854775800", "16");
    external("model.onnx", "0", "18446744073709551615");
    external("model.onnx", "99999999999999999999999", "16");
    external("model.onnx", "0x10", "16");
    external("/proc/self/environ", "0", "16");
    external("\x1b[2J", "0", "16");
}

static int open_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/sy-bad-models-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    snprintf(package, sizeof package, "%s/model.sypkg", folder);
    return 0;
}

static int close_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    sy_log_threshold = SY_LOG_ERROR;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attributes),      cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_wiring),          cmocka_unit_test(test_names_that_come_twice),
        cmocka_unit_test(test_missing_parts),   cmocka_unit_test(test_strange_names),
        cmocka_unit_test(test_loops),           cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_deepest_nesting), cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_external_data),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
