/* Models of one node that no exporter should have written: each is refused at import with what is wrong and where, in bounded time and memory,
 * or it runs to its end. */
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
#include "tests/fakes/bad_import.h"
#include "tests/nets/model_lines.h"
#include "tests/rigs/whole_import.h"

#ifdef SY_SANITIZED
/* The sanitizers' library looks this up: an allocation that cannot be is refused, as everywhere. */
__attribute__((visibility("default"), no_sanitize("address"))) const char *__asan_default_options(
    void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=1024";
}
#endif

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
    {"QLinearMatMul@10 x:u[2,4] s:f[1] z:i[1] w:u[4,2] s2:f[1] z2:u[1] s3:f[1] z3:u[1]",
     "zero points"},
    {"QLinearConv@10 x:u[1,1,4,4] s:f[1] z:u[1] w:u[1,1,3,3] s2:f[1] z2:i[1] s3:f[1] z3:u[1]",
     "zero points"},
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
    {"Gather x:f[N,16,1048576] i:i[1048576] .axis=1", NULL},
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
        model_line_save(bad_import_path, table[i].line);
        struct child_end end = bad_import(table[i].line);
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

int main(void)
{
    sy_log_threshold = SY_LOG_ERROR;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_wiring),
    };
    return cmocka_run_group_tests(tests, bad_import_open, bad_import_close);
}
