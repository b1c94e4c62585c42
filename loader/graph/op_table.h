/* The operators, one row each: ONNX's own by their ONNX name, other domains' with the domain in front, and those that the loader makes itself
 * ("switchyard."). All facts about an operator but its computation stand here; the tables of loader and engines are generated from it.
 *
 * X(id, name, shape, rows, fold, narrow, gradient, least inputs, most inputs, most outputs, attributes)
 *
 * shape       its rule sy_rule_SHAPE (loader/shape/); none: it is written out as others (loader/expand/), or made when shapes are known already
 * rows        whether requests may share a batch: its rule is_ROWS (row_independence.c); unknown: they may not
 * fold        how it is computed at import where its inputs are known (loader/fold/):
 *             ELEMENTS element by element, VIEW the same elements, REDUCE over axes, OWN a function of its own; NONE: never
 * narrow      precision rule: whether it takes and gives bf16 or f16 (graph.h, enum sy_narrow_rule)
 * gradient    the family whose forward and backward steps the engines' trainers have; NONE: it cannot be trained
 * inputs, outputs, attributes
 *             what a file may say over all opsets that are read, "NAME=KIND ..." with the kinds of loader/onnx/onnx_schema.c; anything else is refused.
 *             NULL: not checked, since no file has it
 *
 * Which engines compute it: a row in the table of the engine's file that computes it. */
#ifndef SY_LOADER_GRAPH_OP_TABLE_H
#define SY_LOADER_GRAPH_OP_TABLE_H

#include <limits.h>

#define SY_MANY INT_MAX

/* clang-format off */
#define SY_OP_TABLE(X) \
    X(CONV, "Conv",                                  conv,        first,       NONE,     NEVER,  CONV,       2, 3, 1, \
        "auto_pad=s dilations=I group=i kernel_shape=I pads=I strides=I") \
    X(BATCH_NORM, "BatchNormalization",              batch_norm,  first,       OWN,      NEVER,  BATCH_NORM, 5, 5, 5, \
        "epsilon=f is_test=i momentum=f spatial=i training_mode=i") \
    X(RELU, "Relu",                                  same,        elementwise, ELEMENTS, ALWAYS, ACTIVATION, 1, 1, 1, "") \
    X(LEAKY_RELU, "LeakyRelu",                       same,        elementwise, NONE,     ALWAYS, ACTIVATION, 1, 1, 1, "alpha=f") \
    X(SIGMOID, "Sigmoid",                            same,        elementwise, ELEMENTS, ALWAYS, ACTIVATION, 1, 1, 1, "") \
    X(TANH, "Tanh",                                  same,        elementwise, ELEMENTS, ALWAYS, ACTIVATION, 1, 1, 1, "") \
    X(ERF, "Erf",                                    same,        elementwise, ELEMENTS, NEVER,  CURVE,      1, 1, 1, "") \
    X(CLIP, "Clip",                                  clip,        elementwise, ELEMENTS, ALWAYS, CHAIN,      1, 3, 1, "max=f min=f") \
    X(HARD_SIGMOID, "HardSigmoid",                   same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "alpha=f beta=f") \
    X(HARD_SWISH, "HardSwish",                       same,        elementwise, NONE,     ALWAYS, CHAIN,      1, 1, 1, "") \
    X(ELU, "Elu",                                    same,        elementwise, NONE,     NEVER,  CHAIN,      1, 1, 1, "alpha=f") \
    X(EXP, "Exp",                                    same,        elementwise, ELEMENTS, NEVER,  CURVE,      1, 1, 1, "") \
    X(LOG, "Log",                                    same,        elementwise, ELEMENTS, NEVER,  CURVE,      1, 1, 1, "") \
    X(SQRT, "Sqrt",                                  same,        elementwise, ELEMENTS, NEVER,  CURVE,      1, 1, 1, "") \
    X(NEG, "Neg",                                    same,        elementwise, ELEMENTS, NEVER,  CURVE,      1, 1, 1, "") \
    X(ABS, "Abs",                                    same,        elementwise, ELEMENTS, NEVER,  CURVE,      1, 1, 1, "") \
    X(RECIPROCAL, "Reciprocal",                      same,        elementwise, ELEMENTS, NEVER,  CURVE,      1, 1, 1, "") \
    X(POW, "Pow",                                    broadcast,   elementwise, ELEMENTS, NEVER,  PAIR,       2, 2, 1, "axis=i broadcast=i") \
    X(ADD, "Add",                                    broadcast,   elementwise, ELEMENTS, ALIKE,  ADD,        2, 2, 1, "axis=i broadcast=i") \
    X(SUB, "Sub",                                    broadcast,   elementwise, ELEMENTS, ALIKE,  PAIR,       2, 2, 1, "axis=i broadcast=i") \
    X(MUL, "Mul",                                    broadcast,   elementwise, ELEMENTS, ALIKE,  PAIR,       2, 2, 1, "axis=i broadcast=i") \
    X(DIV, "Div",                                    broadcast,   elementwise, ELEMENTS, NEVER,  PAIR,       2, 2, 1, "axis=i broadcast=i") \
    X(MIN, "Min",                                    broadcast,   elementwise, ELEMENTS, NEVER,  PAIR,       1, SY_MANY, 1, "") \
    X(MAX, "Max",                                    broadcast,   elementwise, ELEMENTS, NEVER,  PAIR,       1, SY_MANY, 1, "") \
    X(SUM, "Sum",                                    broadcast,   elementwise, ELEMENTS, NEVER,  NONE,       1, SY_MANY, 1, "") \
    X(MAX_POOL, "MaxPool",                           pool,        first,       NONE,     ALWAYS, POOL,       1, 1, 2, \
        "auto_pad=s ceil_mode=i dilations=I kernel_shape=I pads=I storage_order=i strides=I") \
    X(AVERAGE_POOL, "AveragePool",                   pool,        first,       NONE,     ALWAYS, POOL,       1, 1, 1, \
        "auto_pad=s ceil_mode=i count_include_pad=i dilations=I kernel_shape=I pads=I strides=I") \
    X(GLOBAL_AVERAGE_POOL, "GlobalAveragePool",      global_pool, first,       NONE,     ALWAYS, POOL,       1, 1, 1, "") \
    X(GLOBAL_MAX_POOL, "GlobalMaxPool",              global_pool, first,       NONE,     ALWAYS, POOL,       1, 1, 1, "") \
    X(GEMM, "Gemm",                                  gemm,        product,     NONE,     NEVER,  PRODUCT,    2, 3, 1, \
        "alpha=f beta=f broadcast=i transA=i transB=i") \
    X(MATMUL, "MatMul",                              matmul,      product,     NONE,     NEVER,  PRODUCT,    2, 2, 1, "") \
    X(SOFTMAX, "Softmax",                            softmax,     softmax,     NONE,     NEVER,  SOFTMAX,    1, 1, 1, "axis=i") \
    X(LOG_SOFTMAX, "LogSoftmax",                     softmax,     softmax,     NONE,     NEVER,  SOFTMAX,    1, 1, 1, "axis=i") \
    X(LAYER_NORM, "LayerNormalization",              layer_norm,  row_norm,    NONE,     NEVER,  ROWS,       2, 3, 3, "axis=i epsilon=f stash_type=i") \
    X(REDUCE_MEAN, "ReduceMean",                     reduce,      kept,        REDUCE,   NEVER,  REDUCE,     1, 2, 1, \
        "axes=I keepdims=i noop_with_empty_axes=i") \
    X(REDUCE_SUM, "ReduceSum",                       reduce,      kept,        REDUCE,   NEVER,  REDUCE,     1, 2, 1, \
        "axes=I keepdims=i noop_with_empty_axes=i") \
    X(GATHER, "Gather",                              gather,      gather,      OWN,      NEVER,  GATHER,     2, 2, 1, "axis=i") \
    X(CONCAT, "Concat",                              concat,      concat,      OWN,      ALWAYS, MOVE,       1, SY_MANY, 1, "axis=i") \
    X(SPLIT, "Split",                                split,       kept,        NONE,     ALWAYS, MOVE,       1, 2, SY_MANY, \
        "axis=i num_outputs=i split=I") \
    X(SLICE, "Slice",                                slice,       slice,       OWN,      ALWAYS, MOVE,       1, 5, 1, "axes=I ends=I starts=I") \
    X(TRANSPOSE, "Transpose",                        transpose,   kept,        OWN,      ALWAYS, MOVE,       1, 1, 1, "perm=I") \
    X(RESHAPE, "Reshape",                            reshape,     view,        VIEW,     ALWAYS, VIEW,       1, 2, 1, "allowzero=i shape=I") \
    X(FLATTEN, "Flatten",                            flatten,     view,        VIEW,     ALWAYS, VIEW,       1, 1, 1, "axis=i") \
    X(SQUEEZE, "Squeeze",                            squeeze,     view,        VIEW,     ALWAYS, VIEW,       1, 2, 1, "axes=I") \
    X(UNSQUEEZE, "Unsqueeze",                        unsqueeze,   view,        VIEW,     ALWAYS, VIEW,       1, 2, 1, "axes=I") \
    X(IDENTITY, "Identity",                          same,        elementwise, VIEW,     ALWAYS, IDENTITY,   1, 1, 1, "") \
    X(DROPOUT, "Dropout",                            dropout,     elementwise, NONE,     NEVER,  DROPOUT,    1, 3, 2, "is_test=i ratio=f seed=i") \
    X(CAST, "Cast",                                  cast,        elementwise, ELEMENTS, NEVER,  CAST,       1, 1, 1, "round_mode=s saturate=i to=i") \
    X(PAD, "Pad",                                    pad,         pad,         NONE,     NEVER,  PAD,        1, 4, 1, "mode=s pads=I value=f") \
    X(EXPAND, "Expand",                              expand,      elementwise, OWN,      NEVER,  MOVE,       2, 2, 1, "") \
    X(WHERE, "Where",                                broadcast,   elementwise, ELEMENTS, NEVER,  WHERE,      3, 3, 1, "") \
    X(EQUAL, "Equal",                                broadcast,   elementwise, ELEMENTS, NEVER,  COMPARE,    2, 2, 1, "axis=i broadcast=i") \
    X(LRN, "LRN",                                    same,        first,       NONE,     NEVER,  NONE,       1, 1, 1, "alpha=f beta=f bias=f size=i") \
    X(SHAPE, "Shape",                                shape,       unknown,     OWN,      NEVER,  NONE,       1, 1, 1, "end=i start=i") \
    X(CONSTANT, "Constant",                          none,        unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) \
    X(CONSTANT_OF_SHAPE, "ConstantOfShape",          constant_of_shape, constant,    NONE,     NEVER,  NONE,       1, 1, 1, "value=t") \
    X(RANGE, "Range",                                range,       unknown,     OWN,      NEVER,  NONE,       3, 3, 1, "stash_type=i") \
    X(GELU, "Gelu",                                  same,        elementwise, NONE,     ALWAYS, CHAIN,      1, 1, 1, "approximate=s") /* fused from x*0.5*(1+erf(x/sqrt2)), or ONNX 20 */ \
    X(SKIP_LAYER_NORM, "switchyard.SkipLayerNorm",   none,        row_norm,    NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) /* layer norm of a + b */ \
    X(ATTENTION, "switchyard.Attention",             none,        attention,   NONE,     NEVER,  ATTENTION,  0, SY_MANY, SY_MANY, NULL) /* softmax(q * k + masks) * v; attributes: loader/fuse/fuse_attention.c */ \
    X(SWISH, "Swish",                                same,        elementwise, NONE,     ALWAYS, NONE,       1, 1, 1, "alpha=f") /* x * sigmoid(alpha * x) */ \
    X(ACOS, "Acos",                                  same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "") \
    X(ACOSH, "Acosh",                                same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "") \
    X(ASIN, "Asin",                                  same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "") \
    X(ASINH, "Asinh",                                same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "") \
    X(ATAN, "Atan",                                  same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "") \
    X(ATANH, "Atanh",                                same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "") \
    X(CEIL, "Ceil",                                  same,        elementwise, ELEMENTS, NEVER,  STEP,       1, 1, 1, "") \
    X(FLOOR, "Floor",                                same,        elementwise, ELEMENTS, NEVER,  STEP,       1, 1, 1, "") \
    X(ROUND, "Round",                                same,        elementwise, ELEMENTS, NEVER,  STEP,       1, 1, 1, "") \
    X(COS, "Cos",                                    same,        elementwise, ELEMENTS, NEVER,  CURVE,      1, 1, 1, "") \
    X(COSH, "Cosh",                                  same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "") \
    X(SIN, "Sin",                                    same,        elementwise, ELEMENTS, NEVER,  CURVE,      1, 1, 1, "") \
    X(SINH, "Sinh",                                  same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "") \
    X(TAN, "Tan",                                    same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "") \
    X(SIGN, "Sign",                                  same,        elementwise, ELEMENTS, NEVER,  STEP,       1, 1, 1, "") \
    X(SOFTPLUS, "Softplus",                          same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "") \
    X(SOFTSIGN, "Softsign",                          same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "") \
    X(SELU, "Selu",                                  same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "alpha=f gamma=f") \
    X(CELU, "Celu",                                  same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "alpha=f") \
    X(THRESHOLDED_RELU, "ThresholdedRelu",           same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "alpha=f") \
    X(SHRINK, "Shrink",                              same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "bias=f lambd=f") \
    X(IS_INF, "IsInf",                               test,        elementwise, NONE,     NEVER,  STEP,       1, 1, 1, \
        "detect_negative=i detect_positive=i") \
    X(IS_NAN, "IsNaN",                               test,        elementwise, NONE,     NEVER,  STEP,       1, 1, 1, "") \
    X(NOT, "Not",                                    same,        elementwise, ELEMENTS, NEVER,  STEP,       1, 1, 1, "") \
    X(BITWISE_NOT, "BitwiseNot",                     same,        elementwise, NONE,     NEVER,  NONE,       1, 1, 1, "") \
    X(MISH, "Mish",                                  same,        elementwise, NONE,     NEVER,  CURVE,      1, 1, 1, "") \
    X(PRELU, "PRelu",                                broadcast,   elementwise, NONE,     NEVER,  PAIR,       2, 2, 1, "") \
    X(MOD, "Mod",                                    broadcast,   elementwise, ELEMENTS, NEVER,  NONE,       2, 2, 1, "fmod=i") \
    X(GREATER, "Greater",                            broadcast,   elementwise, ELEMENTS, NEVER,  COMPARE,    2, 2, 1, "axis=i broadcast=i") \
    X(GREATER_OR_EQUAL, "GreaterOrEqual",            broadcast,   elementwise, ELEMENTS, NEVER,  COMPARE,    2, 2, 1, "") \
    X(LESS, "Less",                                  broadcast,   elementwise, ELEMENTS, NEVER,  COMPARE,    2, 2, 1, "axis=i broadcast=i") \
    X(LESS_OR_EQUAL, "LessOrEqual",                  broadcast,   elementwise, ELEMENTS, NEVER,  COMPARE,    2, 2, 1, "") \
    X(AND, "And",                                    broadcast,   elementwise, ELEMENTS, NEVER,  STEP,       2, 2, 1, "axis=i broadcast=i") \
    X(OR, "Or",                                      broadcast,   elementwise, ELEMENTS, NEVER,  STEP,       2, 2, 1, "axis=i broadcast=i") \
    X(XOR, "Xor",                                    broadcast,   elementwise, ELEMENTS, NEVER,  STEP,       2, 2, 1, "axis=i broadcast=i") \
    X(BITWISE_AND, "BitwiseAnd",                     broadcast,   elementwise, NONE,     NEVER,  NONE,       2, 2, 1, "") \
    X(BITWISE_OR, "BitwiseOr",                       broadcast,   elementwise, NONE,     NEVER,  NONE,       2, 2, 1, "") \
    X(BITWISE_XOR, "BitwiseXor",                     broadcast,   elementwise, NONE,     NEVER,  NONE,       2, 2, 1, "") \
    X(BIT_SHIFT, "BitShift",                         broadcast,   elementwise, NONE,     NEVER,  NONE,       2, 2, 1, "direction=s") \
    X(MEAN, "Mean",                                  broadcast,   elementwise, NONE,     NEVER,  NONE,       1, SY_MANY, 1, "") \
    X(REDUCE_MAX, "ReduceMax",                       reduce,      kept,        REDUCE,   NEVER,  REDUCE,     1, 2, 1, \
        "axes=I keepdims=i noop_with_empty_axes=i") \
    X(REDUCE_MIN, "ReduceMin",                       reduce,      kept,        REDUCE,   NEVER,  REDUCE,     1, 2, 1, \
        "axes=I keepdims=i noop_with_empty_axes=i") \
    X(REDUCE_PROD, "ReduceProd",                     reduce,      kept,        REDUCE,   NEVER,  REDUCE,     1, 2, 1, \
        "axes=I keepdims=i noop_with_empty_axes=i") \
    X(REDUCE_L1, "ReduceL1",                         reduce,      kept,        NONE,     NEVER,  REDUCE,     1, 2, 1, \
        "axes=I keepdims=i noop_with_empty_axes=i") \
    X(REDUCE_L2, "ReduceL2",                         reduce,      kept,        NONE,     NEVER,  REDUCE,     1, 2, 1, \
        "axes=I keepdims=i noop_with_empty_axes=i") \
    X(REDUCE_LOG_SUM, "ReduceLogSum",                reduce,      kept,        NONE,     NEVER,  REDUCE,     1, 2, 1, \
        "axes=I keepdims=i noop_with_empty_axes=i") \
    X(REDUCE_LOG_SUM_EXP, "ReduceLogSumExp",         reduce,      kept,        NONE,     NEVER,  REDUCE,     1, 2, 1, \
        "axes=I keepdims=i noop_with_empty_axes=i") \
    X(REDUCE_SUM_SQUARE, "ReduceSumSquare",          reduce,      kept,        NONE,     NEVER,  REDUCE,     1, 2, 1, \
        "axes=I keepdims=i noop_with_empty_axes=i") \
    X(ARG_MAX, "ArgMax",                             arg,         kept,        OWN,      NEVER,  STEP,       1, 1, 1, \
        "axis=i keepdims=i select_last_index=i") \
    X(ARG_MIN, "ArgMin",                             arg,         kept,        OWN,      NEVER,  STEP,       1, 1, 1, \
        "axis=i keepdims=i select_last_index=i") \
    X(CUM_SUM, "CumSum",                             cum_sum,     unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "exclusive=i reverse=i") \
    X(CUM_PROD, "CumProd",                           cum_sum,     unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "exclusive=i reverse=i") \
    X(BIT_CAST, "BitCast",                           bit_cast,    unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "to=i") \
    X(GATHER_ELEMENTS, "GatherElements",             gather_elements, along_axis,  OWN,      NEVER,  NONE,       2, 2, 1, "axis=i") \
    X(GATHER_ND, "GatherND",                         gather_nd,   unknown,     OWN,      NEVER,  NONE,       2, 2, 1, "batch_dims=i") \
    X(SCATTER_ELEMENTS, "ScatterElements",           scatter,     unknown,     OWN,      NEVER,  NONE,       3, 3, 1, "axis=i reduction=s") \
    X(SCATTER, "Scatter",                            scatter,     unknown,     NONE,     NEVER,  NONE,       3, 3, 1, "axis=i") \
    X(SCATTER_ND, "ScatterND",                       scatter,     unknown,     OWN,      NEVER,  NONE,       3, 3, 1, "reduction=s") \
    X(ONE_HOT, "OneHot",                             one_hot,     unknown,     NONE,     NEVER,  STEP,       3, 3, 1, "axis=i") \
    X(COMPRESS, "Compress",                          compress,    unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "axis=i") \
    X(NON_ZERO, "NonZero",                           non_zero,    unknown,     OWN,      NEVER,  NONE,       1, 1, 1, "") \
    X(REVERSE_SEQUENCE, "ReverseSequence",           reverse_sequence, unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "batch_axis=i time_axis=i") \
    X(UNIQUE, "Unique",                              unique,      unknown,     NONE,     NEVER,  NONE,       1, 1, 4, "axis=i sorted=i") \
    X(TOP_K, "TopK",                                 top_k,       along_axis,  NONE,     NEVER,  NONE,       1, 2, 2, "axis=i k=i largest=i sorted=i") \
    X(TILE, "Tile",                                  tile,        elementwise, OWN,      NEVER,  TILE,       2, 3, 1, "") \
    X(SIZE, "Size",                                  size,        unknown,     OWN,      NEVER,  NONE,       1, 1, 1, "") \
    X(EYE_LIKE, "EyeLike",                           eye_like,    unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "dtype=i k=i") \
    X(RANDOM_NORMAL, "RandomNormal",                 none,        unknown,     NONE,     NEVER,  NONE,       0, 0, 1, \
        "dtype=i mean=f scale=f seed=f shape=I") \
    X(RANDOM_NORMAL_LIKE, "RandomNormalLike",        random_like, unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "dtype=i mean=f scale=f seed=f") \
    X(RANDOM_UNIFORM, "RandomUniform",               none,        unknown,     NONE,     NEVER,  NONE,       0, 0, 1, \
        "dtype=i high=f low=f seed=f shape=I") \
    X(RANDOM_UNIFORM_LIKE, "RandomUniformLike",      random_like, unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "dtype=i high=f low=f seed=f") \
    X(BERNOULLI, "Bernoulli",                        none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "dtype=i seed=f") \
    X(MULTINOMIAL, "Multinomial",                    none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "dtype=i sample_size=i seed=f") \
    X(TRILU, "Trilu",                                trilu,       unknown,     NONE,     NEVER,  TRIANGLE,   1, 2, 1, "upper=i") \
    X(DEPTH_TO_SPACE, "DepthToSpace",                depth_to_space, first,       NONE,     NEVER,  BLOCKS,     1, 1, 1, "blocksize=i mode=s") \
    X(SPACE_TO_DEPTH, "SpaceToDepth",                space_to_depth, first,       NONE,     NEVER,  BLOCKS,     1, 1, 1, "blocksize=i mode=s") \
    X(CAST_LIKE, "CastLike",                         cast,        elementwise, NONE,     NEVER,  NONE,       2, 2, 1, "round_mode=s saturate=i") \
    X(CONV_TRANSPOSE, "ConvTranspose",               conv_transpose, first,       NONE,     NEVER,  DECONV,     2, 3, 1, \
        "auto_pad=s dilations=I group=i kernel_shape=I output_padding=I output_shape=I pads=I strides=I") \
    X(MAX_UNPOOL, "MaxUnpool",                       max_unpool,  unknown,     NONE,     NEVER,  NONE,       2, 3, 1, \
        "kernel_shape=I pads=I strides=I") \
    X(LP_POOL, "LpPool",                             pool,        first,       NONE,     NEVER,  NONE,       1, 1, 1, \
        "auto_pad=s ceil_mode=i dilations=I kernel_shape=I p=i pads=I strides=I") \
    X(GLOBAL_LP_POOL, "GlobalLpPool",                global_pool, first,       NONE,     NEVER,  NONE,       1, 1, 1, "p=i") \
    X(LP_NORM, "LpNormalization",                    norm,        along_axis,  NONE,     NEVER,  NONE,       1, 1, 1, "axis=i p=i") \
    X(MEAN_VARIANCE_NORM, "MeanVarianceNormalization", norm,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "axes=I") \
    X(INSTANCE_NORM, "InstanceNormalization",        norm,        first,       NONE,     NEVER,  ROWS,       3, 3, 1, "epsilon=f") \
    X(GROUP_NORM, "GroupNormalization",              norm,        first,       NONE,     NEVER,  ROWS,       3, 3, 1, \
        "epsilon=f num_groups=i stash_type=i") \
    X(RMS_NORM, "RMSNormalization",                  norm,        row_norm,    NONE,     NEVER,  ROWS,       2, 2, 1, "axis=i epsilon=f stash_type=i") \
    X(HARDMAX, "Hardmax",                            softmax,     softmax,     NONE,     NEVER,  NONE,       1, 1, 1, "axis=i") \
    X(EINSUM, "Einsum",                              einsum,      unknown,     NONE,     NEVER,  NONE,       1, SY_MANY, 1, "equation=s") \
    X(RESIZE, "Resize",                              resize,      resize,      NONE,     NEVER,  NONE,       1, 4, 1, \
        "antialias=i axes=I coordinate_transformation_mode=s cubic_coeff_a=f exclude_outside=i extrapolation_value=f keep_aspect_ratio_policy=s " \
        "mode=s nearest_mode=s") \
    X(UPSAMPLE, "Upsample",                          resize,      resize,      NONE,     NEVER,  NONE,       1, 2, 1, \
        "height_scale=f mode=s scales=F width_scale=f") \
    X(LSTM, "LSTM",                                  recurrent,   recurrent,   NONE,     NEVER,  RECURRENT,  3, 8, 3, \
        "activation_alpha=F activation_beta=F activations=S clip=f direction=s hidden_size=i input_forget=i layout=i output_sequence=i") \
    X(GRU, "GRU",                                    recurrent,   recurrent,   NONE,     NEVER,  RECURRENT,  3, 6, 2, \
        "activation_alpha=F activation_beta=F activations=S clip=f direction=s hidden_size=i layout=i linear_before_reset=i output_sequence=i") \
    X(RNN, "RNN",                                    recurrent,   recurrent,   NONE,     NEVER,  RECURRENT,  3, 6, 2, \
        "activation_alpha=F activation_beta=F activations=S clip=f direction=s hidden_size=i layout=i output_sequence=i") \
    X(NON_MAX_SUPPRESSION, "NonMaxSuppression",      nms,         unknown,     NONE,     NEVER,  NONE,       2, 5, 1, "center_point_box=i") \
    X(ROI_ALIGN, "RoiAlign",                         roi_align,   unknown,     NONE,     NEVER,  NONE,       3, 3, 1, \
        "coordinate_transformation_mode=s mode=s output_height=i output_width=i sampling_ratio=i spatial_scale=f") \
    X(MAX_ROI_POOL, "MaxRoiPool",                    max_roi_pool, unknown,     NONE,     NEVER,  NONE,       2, 2, 1, \
        "pooled_shape=I spatial_scale=f") \
    X(GRID_SAMPLE, "GridSample",                     grid_sample, first,       NONE,     NEVER,  NONE,       2, 2, 1, \
        "align_corners=i mode=s padding_mode=s") \
    X(NLL_LOSS, "NegativeLogLikelihoodLoss",         nll_loss,    unknown,     NONE,     NEVER,  NONE,       2, 3, 1, "ignore_index=i reduction=s") \
    X(SOFTMAX_LOSS, "SoftmaxCrossEntropyLoss",       softmax_loss, unknown,     NONE,     NEVER,  NONE,       2, 3, 2, "ignore_index=i reduction=s") \
    X(DET, "Det",                                    det,         unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "") \
    X(QUANTIZE_LINEAR, "QuantizeLinear",             quantize,    elementwise, NONE,     NEVER,  NONE,       2, 3, 1, \
        "axis=i block_size=i output_dtype=i precision=i saturate=i") \
    X(DEQUANTIZE_LINEAR, "DequantizeLinear",         dequantize,  elementwise, NONE,     NEVER,  NONE,       2, 3, 1, \
        "axis=i block_size=i output_dtype=i") \
    X(DYNAMIC_QUANTIZE_LINEAR, "DynamicQuantizeLinear", dynamic_quantize, unknown,     NONE,     NEVER,  NONE,       1, 1, 3, "") \
    X(QLINEAR_CONV, "QLinearConv",                   qlinear_conv, first,       NONE,     NEVER,  NONE,       8, 9, 1, \
        "auto_pad=s dilations=I group=i kernel_shape=I pads=I strides=I") \
    X(QLINEAR_MATMUL, "QLinearMatMul",               qlinear_matmul, product,     NONE,     NEVER,  NONE,       8, 8, 1, "") \
    X(CONV_INTEGER, "ConvInteger",                   qlinear_conv, first,       NONE,     NEVER,  NONE,       2, 4, 1, \
        "auto_pad=s dilations=I group=i kernel_shape=I pads=I strides=I") \
    X(MATMUL_INTEGER, "MatMulInteger",               qlinear_matmul, product,     NONE,     NEVER,  NONE,       2, 4, 1, "") \
    /* 8 bits in, int32 sums, float32 or 8 bits out; made by sy_graph_fuse (loader/fuse/README.md, "8 bits") */ \
    X(QUANTIZED_CONV, "switchyard.QuantizedConv",    none,        first,       NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) \
    X(QUANTIZED_MATMUL, "switchyard.QuantizedMatMul", none,        unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) \
    X(QUANTIZED_SUM, "switchyard.QuantizedSum",      none,        unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) \
    X(QUANTIZED_LSTM, "switchyard.QuantizedLSTM",    recurrent,   unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) \
    X(CHANNEL_AFFINE, "switchyard.ChannelAffine",    same,        first,       NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) /* x * scale + shift by channel; made by sy_graph_fuse */ \
    X(BLACKMAN_WINDOW, "BlackmanWindow",             window,      unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "output_datatype=i periodic=i") \
    X(HAMMING_WINDOW, "HammingWindow",               window,      unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "output_datatype=i periodic=i") \
    X(HANN_WINDOW, "HannWindow",                     window,      unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "output_datatype=i periodic=i") \
    X(DFT, "DFT",                                    dft,         unknown,     NONE,     NEVER,  NONE,       1, 3, 1, "axis=i inverse=i onesided=i") \
    X(TF_IDF, "TfIdfVectorizer",                     tf_idf,      unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "max_gram_length=i max_skip_count=i min_gram_length=i mode=s ngram_counts=I ngram_indexes=I pool_int64s=I pool_strings=S weights=F") \
    X(STRING_NORMALIZER, "StringNormalizer",         string_normalizer, unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "case_change_action=s is_case_sensitive=i locale=s stopwords=S") \
    X(STRING_CONCAT, "StringConcat",                 string_concat, unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "") \
    X(STRING_SPLIT, "StringSplit",                   string_parts, unknown,     NONE,     NEVER,  NONE,       1, 1, 2, "delimiter=s maxsplit=i") \
    X(REGEX_FULL_MATCH, "RegexFullMatch",            regex,       unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "pattern=s") \
    X(MS_TOKENIZER, "com.microsoft.Tokenizer",       string_parts, unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "mark=i mincharnum=i pad_value=s separators=S tokenexp=s") \
    X(ML_LABEL_ENCODER, "ai.onnx.ml.LabelEncoder",   label_encoder, unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "classes_strings=S default_float=f default_int64=i default_string=s default_tensor=t keys_floats=F keys_int64s=I keys_strings=S " \
        "keys_tensor=t values_floats=F values_int64s=I values_strings=S values_tensor=t") \
    X(ML_CATEGORY_MAPPER, "ai.onnx.ml.CategoryMapper", category_mapper, unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "cats_int64s=I cats_strings=S default_int64=i default_string=s") \
    X(ML_ONE_HOT, "ai.onnx.ml.OneHotEncoder",        ml_one_hot,  unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "cats_int64s=I cats_strings=S zeros=i") \
    X(COUPLE, "switchyard.Couple",                   couple,      unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) /* probabilities of classes from those of their pairs */ \
    X(TREES, "switchyard.Trees",                     trees,       unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) /* ensembles of ai.onnx.ml, as they are walked (loader/expand/expand_trees.c) */ \
    X(IF, "If",                                      if,          unknown,     NONE,     NEVER,  NONE,       1, 1, SY_MANY, "else_branch=g then_branch=g") \
    X(LOOP, "Loop",                                  loop,        unknown,     NONE,     NEVER,  NONE,       2, SY_MANY, SY_MANY, "body=g") \
    X(NUMBERS, "switchyard.Numbers",                 numbers,     unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) /* integers `fixed + per_batch * N`: sizes that somebody computes with */ \
    /* operands that are known at run only; the file declares what the result is, and the run checks it */ \
    X(RUN_RESHAPE, "switchyard.RunReshape",          none,        unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) \
    X(RUN_SQUEEZE, "switchyard.RunSqueeze",          none,        unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) \
    X(RUN_UNSQUEEZE, "switchyard.RunUnsqueeze",      none,        unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) \
    X(RUN_EXPAND, "switchyard.RunExpand",            none,        unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) \
    X(RUN_SLICE, "switchyard.RunSlice",              none,        unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) \
    X(RUN_SPLIT, "switchyard.RunSplit",              none,        unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) \
    X(RUN_PAD, "switchyard.RunPad",                  none,        unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) \
    X(RUN_CLIP, "switchyard.RunClip",                none,        unknown,     ELEMENTS, NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) \
    X(DYNAMIC, "switchyard.AtRun",                    none,        unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) /* a body whose sizes only a run knows (loader/infer/deferred.h) */ \
    /* written out as others while shapes are inferred (expand.h): no engine sees them */ \
    X(SCAN, "Scan",                                  none,        unknown,     NONE,     NEVER,  NONE,       1, SY_MANY, SY_MANY, \
        "body=g directions=I num_scan_inputs=i scan_input_axes=I scan_input_directions=I scan_output_axes=I scan_output_directions=I") \
    X(MOVE_FIRST, "switchyard.MoveFirst",            none,        unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) \
    X(SEQUENCE_EMPTY, "SequenceEmpty",               none,        unknown,     NONE,     NEVER,  NONE,       0, 0, 1, "dtype=i") \
    X(SEQUENCE_CONSTRUCT, "SequenceConstruct",       none,        unknown,     NONE,     NEVER,  NONE,       1, SY_MANY, 1, "") \
    X(SEQUENCE_INSERT, "SequenceInsert",             none,        unknown,     NONE,     NEVER,  NONE,       2, 3, 1, "") \
    X(SEQUENCE_ERASE, "SequenceErase",               none,        unknown,     NONE,     NEVER,  NONE,       1, 2, 1, "") \
    X(SEQUENCE_AT, "SequenceAt",                     none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "") \
    X(SEQUENCE_LENGTH, "SequenceLength",             none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "") \
    X(CONCAT_FROM_SEQUENCE, "ConcatFromSequence",    none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "axis=i new_axis=i") \
    X(SPLIT_TO_SEQUENCE, "SplitToSequence",          none,        unknown,     NONE,     NEVER,  NONE,       1, 2, 1, "axis=i keepdims=i") \
    X(SEQUENCE_MAP, "SequenceMap",                   none,        unknown,     NONE,     NEVER,  NONE,       1, SY_MANY, SY_MANY, "body=g") \
    X(OPTIONAL, "Optional",                          none,        unknown,     NONE,     NEVER,  NONE,       0, 1, 1, "type=p") \
    X(OPTIONAL_HAS_ELEMENT, "OptionalHasElement",    none,        unknown,     NONE,     NEVER,  NONE,       0, 1, 1, "") \
    X(OPTIONAL_GET_ELEMENT, "OptionalGetElement",    none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "") \
    X(LIST_OF_PARTS, "switchyard.ListOfParts",       none,        unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) /* a sequence or an optional from the tensors that stand for it outside (list_ends.h) */ \
    X(PARTS_OF_LIST, "switchyard.PartsOfList",       none,        unknown,     NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) /* the other way */ \
    X(SWIGLU, "SwiGLU",                              none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "alpha=f") \
    X(DEFORM_CONV, "DeformConv",                     none,        unknown,     NONE,     NEVER,  NONE,       3, 5, 1, \
        "dilations=I group=i kernel_shape=I offset_group=i pads=I strides=I") \
    X(CENTER_CROP_PAD, "CenterCropPad",              none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "axes=I") \
    X(CAUSAL_CONV, "CausalConvWithState",            none,        unknown,     NONE,     NEVER,  NONE,       2, 4, 2, "activation=s") \
    X(LINEAR_ATTENTION, "LinearAttention",           none,        unknown,     NONE,     NEVER,  NONE,       3, 6, 2, \
        "chunk_size=i kv_num_heads=i q_num_heads=i scale=f update_rule=s") \
    X(FLEX_ATTENTION, "ai.onnx.preview.FlexAttention", none,        unknown,     NONE,     NEVER,  NONE,       3, 3, 1, \
        "prob_mod=g scale=f score_mod=g softmax_precision=i") \
    X(STEP_ADAGRAD, "ai.onnx.preview.training.Adagrad", none,        unknown,     NONE,     NEVER,  NONE,       3, SY_MANY, SY_MANY, \
        "decay_factor=f epsilon=f norm_coefficient=f") \
    X(STEP_ADAM, "ai.onnx.preview.training.Adam",    none,        unknown,     NONE,     NEVER,  NONE,       3, SY_MANY, SY_MANY, \
        "alpha=f beta=f epsilon=f norm_coefficient=f norm_coefficient_post=f") \
    X(GRADIENT, "ai.onnx.preview.training.Gradient", none,        unknown,     NONE,     NEVER,  NONE,       1, SY_MANY, SY_MANY, "xs=S y=s zs=S") \
    X(STEP_MOMENTUM, "ai.onnx.preview.training.Momentum", none,        unknown,     NONE,     NEVER,  NONE,       3, SY_MANY, SY_MANY, \
        "alpha=f beta=f mode=s norm_coefficient=f") \
    X(STFT, "STFT",                                  none,        unknown,     NONE,     NEVER,  NONE,       2, 4, 1, "onesided=i") \
    X(ONNX_ATTENTION, "Attention",                   none,        unknown,     NONE,     NEVER,  NONE,       3, 7, 4, \
        "is_causal=i kv_num_heads=i left_window_size=i q_num_heads=i qk_matmul_output_mode=i right_window_size=i scale=f softcap=f " \
        "softmax_precision=i") \
    X(ROTARY_EMBEDDING, "RotaryEmbedding",           none,        unknown,     NONE,     NEVER,  NONE,       3, 4, 1, \
        "interleaved=i num_heads=i rotary_embedding_dim=i") \
    X(TENSOR_SCATTER, "TensorScatter",               none,        unknown,     NONE,     NEVER,  NONE,       2, 3, 1, "axis=i mode=s") \
    X(COL2IM, "Col2Im",                              none,        unknown,     NONE,     NEVER,  NONE,       3, 3, 1, "dilations=I pads=I strides=I") \
    X(MEL_WEIGHTS, "MelWeightMatrix",                none,        unknown,     NONE,     NEVER,  NONE,       5, 5, 1, "output_datatype=i") \
    X(AFFINE_GRID, "AffineGrid",                     none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "align_corners=i") \
    X(SIMPLIFIED_LAYER_NORM, "SimplifiedLayerNormalization", none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 2, \
        "axis=i epsilon=f stash_type=i") \
    X(MS_GELU, "com.microsoft.Gelu",                 none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "") \
    X(MS_FAST_GELU, "com.microsoft.FastGelu",        none,        unknown,     NONE,     NEVER,  NONE,       1, 2, 1, "") \
    X(MS_BIAS_GELU, "com.microsoft.BiasGelu",        none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "") \
    X(MS_QUICK_GELU, "com.microsoft.QuickGelu",      none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "alpha=f") \
    X(MS_FUSED_MATMUL, "com.microsoft.FusedMatMul",  none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, \
        "alpha=f transA=i transB=i transBatchA=i transBatchB=i") \
    X(MS_TRANSPOSE_MATMUL, "com.microsoft.TransposeMatMul", none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, \
        "alpha=f transA=i transB=i") \
    X(MS_FUSED_MATMUL_ACTIVATION, "com.microsoft.FusedMatMulActivation", none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, \
        "activation=s activation_alpha=f activation_axis=i activation_beta=f activation_gamma=f alpha=f transA=i transB=i transBatchA=i " \
        "transBatchB=i") \
    X(MS_FUSED_GEMM, "com.microsoft.FusedGemm",      none,        unknown,     NONE,     NEVER,  NONE,       2, 3, 1, \
        "activation=s activation_alpha=f activation_beta=f activation_gamma=f alpha=f beta=f transA=i transB=i") \
    X(MS_FUSED_CONV, "com.microsoft.FusedConv",      none,        unknown,     NONE,     NEVER,  NONE,       2, 4, 1, \
        "activation=s activation_params=F auto_pad=s dilations=I group=i kernel_shape=I pads=I strides=I") \
    X(MS_SKIP_LAYER_NORM, "com.microsoft.SkipLayerNormalization", none,        unknown,     NONE,     NEVER,  NONE,       3, 5, 4, "epsilon=f") \
    X(MS_SKIP_SIMPLIFIED_NORM, "com.microsoft.SkipSimplifiedLayerNormalization", none,        unknown,     NONE,     NEVER,  NONE,       3, 4, 4, \
        "epsilon=f") \
    X(MS_EMBED_LAYER_NORM, "com.microsoft.EmbedLayerNormalization", none,        unknown,     NONE,     NEVER,  NONE,       7, 9, 3, \
        "epsilon=f mask_index_type=i") \
    X(MS_GROUP_NORM, "com.microsoft.GroupNorm",      none,        unknown,     NONE,     NEVER,  NONE,       3, 3, 1, \
        "activation=i channels_last=i epsilon=f groups=i") \
    X(MS_ATTENTION, "com.microsoft.Attention",       none,        unknown,     NONE,     NEVER,  NONE,       2, 7, 2, \
        "do_rotary=i mask_filter_value=f num_heads=i past_present_share_buffer=i qkv_hidden_sizes=I rotary_embedding_dim=i scale=f unidirectional=i") \
    X(MS_QATTENTION, "com.microsoft.QAttention",     none,        unknown,     NONE,     NEVER,  NONE,       5, 9, 2, \
        "do_rotary=i mask_filter_value=f num_heads=i past_present_share_buffer=i scale=f unidirectional=i") \
    X(MS_MULTI_HEAD_ATTENTION, "com.microsoft.MultiHeadAttention", none,        unknown,     NONE,     NEVER,  NONE,       1, 10, 4, \
        "mask_filter_value=f num_heads=i scale=f unidirectional=i") \
    X(MS_ROTARY_EMBEDDING, "com.microsoft.RotaryEmbedding", none,        unknown,     NONE,     NEVER,  NONE,       4, 4, 1, \
        "interleaved=i is_packed_batching=i num_heads=i rotary_embedding_dim=i scale=f") \
    X(MS_GROUP_QUERY_ATTENTION, "com.microsoft.GroupQueryAttention", none,        unknown,     NONE,     NEVER,  NONE,       7, 16, 4, \
        "causal=i do_rotary=i k_quant_type=s kv_cache_bit_width=i kv_num_heads=i local_window_size=i num_heads=i qk_norm_epsilon=f qk_output=i " \
        "rotary_interleaved=i scale=f sliding_window_cache=i smooth_softmax=i softcap=f v_quant_type=s") \
    X(MS_MATMUL_NBITS, "com.microsoft.MatMulNBits",  none,        unknown,     NONE,     NEVER,  NONE,       3, 6, 1, \
        "K=i N=i accuracy_level=i bits=i block_size=i weight_prepacked=i") \
    X(MS_MATMUL_BNB4, "com.microsoft.MatMulBnb4",    none,        unknown,     NONE,     NEVER,  NONE,       3, 3, 1, \
        "K=i N=i block_size=i quant_type=i training_mode=i transB=i") \
    X(MS_MOE, "com.microsoft.MoE",                   none,        unknown,     NONE,     NEVER,  NONE,       5, 8, 1, \
        "activation_alpha=f activation_beta=f activation_type=s k=i normalize_routing_weights=i swiglu_fusion=i swiglu_limit=f use_sparse_mixer=i") \
    X(MS_QMOE, "com.microsoft.QMoE",                 none,        unknown,     NONE,     NEVER,  NONE,       6, 21, 1, \
        "accuracy_level=i activation_alpha=f activation_beta=f activation_type=s block_size=i expert_weight_bits=i fc1_expert_weight_bits=i " \
        "fc2_expert_weight_bits=i fc3_expert_weight_bits=i k=i normalize_routing_weights=i quant_type=s swiglu_fusion=i swiglu_limit=f " \
        "use_sparse_mixer=i weights_prepacked=i") \
    X(MS_QUANTIZE, "com.microsoft.QuantizeLinear",   none,        unknown,     NONE,     NEVER,  NONE,       2, 3, 1, "axis=i") \
    X(MS_DEQUANTIZE, "com.microsoft.DequantizeLinear", none,        unknown,     NONE,     NEVER,  NONE,       2, 3, 1, "axis=i") \
    X(MS_TRILU, "com.microsoft.Trilu",               none,        unknown,     NONE,     NEVER,  NONE,       1, 2, 1, "upper=i") \
    X(MS_UNIQUE, "com.microsoft.Unique",             none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 3, "") \
    X(MS_RANGE, "com.microsoft.Range",               none,        unknown,     NONE,     NEVER,  NONE,       2, 3, 1, "") \
    X(MS_GRID_SAMPLE, "com.microsoft.GridSample",    none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, \
        "align_corners=i mode=s padding_mode=s") \
    X(MS_GATHER_ND, "com.microsoft.GatherND",        none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "") \
    X(MS_PAD, "com.microsoft.Pad",                   none,        unknown,     NONE,     NEVER,  NONE,       2, 3, 1, "mode=s") \
    X(MS_QLINEAR_ADD, "com.microsoft.QLinearAdd",    none,        unknown,     NONE,     NEVER,  NONE,       7, 8, 1, "") \
    X(MS_QLINEAR_MUL, "com.microsoft.QLinearMul",    none,        unknown,     NONE,     NEVER,  NONE,       7, 8, 1, "") \
    X(MS_QLINEAR_SIGMOID, "com.microsoft.QLinearSigmoid", none,        unknown,     NONE,     NEVER,  NONE,       4, 5, 1, "") \
    X(MS_QLINEAR_LEAKY_RELU, "com.microsoft.QLinearLeakyRelu", none,        unknown,     NONE,     NEVER,  NONE,       4, 5, 1, "alpha=f") \
    X(MS_QLINEAR_SOFTMAX, "com.microsoft.QLinearSoftmax", none,        unknown,     NONE,     NEVER,  NONE,       5, 5, 1, "axis=i opset=i") \
    X(MS_QLINEAR_POOL, "com.microsoft.QLinearAveragePool", none,        unknown,     NONE,     NEVER,  NONE,       4, 5, 1, \
        "auto_pad=s ceil_mode=i channels_last=i count_include_pad=i kernel_shape=I pads=I strides=I") \
    X(MS_QLINEAR_GLOBAL_POOL, "com.microsoft.QLinearGlobalAveragePool", none,        unknown,     NONE,     NEVER,  NONE,       5, 5, 1, \
        "channels_last=i") \
    X(MS_QLINEAR_CONCAT, "com.microsoft.QLinearConcat", none,        unknown,     NONE,     NEVER,  NONE,       3, SY_MANY, 1, "axis=i") \
    X(MS_QLINEAR_WHERE, "com.microsoft.QLinearWhere", none,        unknown,     NONE,     NEVER,  NONE,       9, 9, 1, "") \
    X(MS_QGEMM, "com.microsoft.QGemm",               none,        unknown,     NONE,     NEVER,  NONE,       6, 9, 1, "alpha=f transA=i transB=i") \
    X(MS_DYNAMIC_QUANTIZE_MATMUL, "com.microsoft.DynamicQuantizeMatMul", none,        unknown,     NONE,     NEVER,  NONE,       3, 5, 1, "") \
    X(MS_MATMUL_INTEGER_TO_FLOAT, "com.microsoft.MatMulIntegerToFloat", none,        unknown,     NONE,     NEVER,  NONE,       4, 7, 1, "") \
    X(MS_DYNAMIC_QUANTIZE_LSTM, "com.microsoft.DynamicQuantizeLSTM", none,        unknown,     NONE,     NEVER,  NONE,       12, 12, 3, \
        "activation_alpha=F activation_beta=F activations=S clip=f direction=s hidden_size=i input_forget=i") \
    X(MS_CDIST, "com.microsoft.CDist",               none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "metric=s") \
    X(MS_EXPAND_DIMS, "com.microsoft.ExpandDims",    none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "") \
    X(MS_MURMUR_HASH, "com.microsoft.MurmurHash3",   hash,        elementwise, NONE,     NEVER,  NONE,       1, 1, 1, "positive=i seed=i") \
    X(MS_QEMBED_LAYER_NORM, "com.microsoft.QEmbedLayerNormalization", none,        unknown,     NONE,     NEVER,  NONE,       13, 18, 2, "epsilon=f") \
    X(MS_GATHER_BLOCKS, "com.microsoft.GatherBlockQuantized", none,        unknown,     NONE,     NEVER,  NONE,       3, 4, 1, \
        "bits=i block_size=i gather_axis=i quantize_axis=i") \
    X(MS_QLINEAR_CONV, "com.microsoft.QLinearConv",  none,        unknown,     NONE,     NEVER,  NONE,       8, 9, 1, \
        "auto_pad=s channels_last=i dilations=I group=i kernel_shape=I pads=I strides=I") \
    X(MS_NHWC_MAX_POOL, "com.microsoft.NhwcMaxPool", none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "auto_pad=s ceil_mode=i dilations=I kernel_shape=I pads=I strides=I") \
    X(MS_NHWC_CONV, "com.microsoft.NhwcConv",        none,        unknown,     NONE,     NEVER,  NONE,       2, 3, 1, \
        "auto_pad=s dilations=I group=i kernel_shape=I pads=I strides=I") \
    X(MS_BIAS_ADD, "com.microsoft.BiasAdd",          none,        unknown,     NONE,     NEVER,  NONE,       3, 3, 1, "") \
    X(MS_BIAS_SPLIT_GELU, "com.microsoft.BiasSplitGelu", none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "") \
    X(MS_SKIP_GROUP_NORM, "com.microsoft.SkipGroupNorm", none,        unknown,     NONE,     NEVER,  NONE,       4, 5, 2, \
        "activation=i channels_last=i epsilon=f groups=i") \
    X(MS_GATED_ADD, "com.microsoft.GatedAdd",        none,        unknown,     NONE,     NEVER,  NONE,       3, 3, 1, "") \
    X(MS_SCALED_SILU, "com.microsoft.ScaledSiLU",    none,        unknown,     NONE,     NEVER,  NONE,       1, 2, 1, "alpha=f") \
    X(MS_ATTENTION_GATE, "com.microsoft.LinearAttentionGate", none,        unknown,     NONE,     NEVER,  NONE,       3, 4, 2, "") \
    X(MS_GATED_NORM, "com.microsoft.GatedRMSNorm",   none,        unknown,     NONE,     NEVER,  NONE,       3, 3, 1, "activation=s epsilon=f") \
    X(MS_BRANCH_NORM, "com.microsoft.BranchwiseRMSNorm", none,        unknown,     NONE,     NEVER,  NONE,       1, 2, 1, "epsilon=f num_branches=i") \
    X(MS_UNFOLD, "com.microsoft.UnfoldTensor",       none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "dim=i size=i step=i") \
    X(MS_EMBEDDING, "com.microsoft.TorchEmbedding",  none,        unknown,     NONE,     NEVER,  NONE,       2, 4, 1, "") \
    X(MS_NGRAM_REPEAT, "com.microsoft.NGramRepeatBlock", none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "ngram_size=i") \
    X(MS_CROP_AND_RESIZE, "com.microsoft.CropAndResize", none,        unknown,     NONE,     NEVER,  NONE,       4, 4, 1, \
        "extrapolation_value=f mode=s") \
    X(MS_PADDED_TRANSPOSE, "com.microsoft.ConvTransposeWithDynamicPads", none,        unknown,     NONE,     NEVER,  NONE,       2, 4, 1, \
        "auto_pad=s dilations=I group=i kernel_shape=I output_padding=I strides=I") \
    X(MS_MATMUL_INTEGER16, "com.microsoft.MatMulInteger16", none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "") \
    X(MS_CAUSAL_CONV, "com.microsoft.CausalConvWithState", none,        unknown,     NONE,     NEVER,  NONE,       2, 4, 2, \
        "activation=s channels_last=i dilation=i ndim=i state_window=i") \
    X(MS_LINEAR_ATTENTION, "com.microsoft.LinearAttention", none,        unknown,     NONE,     NEVER,  NONE,       3, 6, 2, \
        "chunk_size=i kv_num_heads=i q_num_heads=i scale=f state_window=i update_rule=s") \
    X(MS_MROTARY, "com.microsoft.MRotaryEmbedding",  none,        unknown,     NONE,     NEVER,  NONE,       4, 4, 1, \
        "interleaved=i is_packed_batching=i mrope_layout=i mrope_section=I num_heads=i rotary_embedding_dim=i scale=f") \
    X(MS_INVERSE, "com.microsoft.Inverse",           same,        unknown,      NONE,     NEVER,  NONE,       1, 1, 1, "") \
    X(BLOCKED_CONV, "com.microsoft.nchwc.Conv",      none,        unknown,     NONE,     NEVER,  NONE,       2, 4, 1, \
        "activation=s activation_params=F auto_pad=s dilations=I group=i kernel_shape=I pads=I strides=I") \
    X(BLOCKED_MAX_POOL, "com.microsoft.nchwc.MaxPool", none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "auto_pad=s ceil_mode=i dilations=I kernel_shape=I pads=I storage_order=i strides=I") \
    X(BLOCKED_AVERAGE_POOL, "com.microsoft.nchwc.AveragePool", none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "auto_pad=s ceil_mode=i count_include_pad=i dilations=I kernel_shape=I pads=I strides=I") \
    X(BLOCKED_GLOBAL_MAX_POOL, "com.microsoft.nchwc.GlobalMaxPool", none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "") \
    X(BLOCKED_GLOBAL_POOL, "com.microsoft.nchwc.GlobalAveragePool", none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "") \
    X(BLOCKED_UPSAMPLE, "com.microsoft.nchwc.Upsample", none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "coordinate_transformation_mode=s mode=s scales=I") \
    X(BLOCKED_REORDER_INPUT, "com.microsoft.nchwc.ReorderInput", none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "channels_last=i") \
    X(BLOCKED_REORDER_OUTPUT, "com.microsoft.nchwc.ReorderOutput", none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "channels=i channels_last=i") \
    X(ML_SCALER, "ai.onnx.ml.Scaler",                none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "offset=F scale=F") \
    X(ML_EXTRACT, "ai.onnx.ml.ArrayFeatureExtractor", none,        unknown,     NONE,     NEVER,  NONE,       2, 2, 1, "") \
    X(ML_BINARIZER, "ai.onnx.ml.Binarizer",          none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "threshold=f") \
    X(ML_LINEAR_REGRESSOR, "ai.onnx.ml.LinearRegressor", none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "coefficients=F intercepts=F post_transform=s targets=i") \
    X(ML_LINEAR_CLASSIFIER, "ai.onnx.ml.LinearClassifier", none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 2, \
        "classlabels_ints=I classlabels_strings=S coefficients=F intercepts=F multi_class=i post_transform=s") \
    X(ML_NORMALIZER, "ai.onnx.ml.Normalizer",        none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "norm=s") \
    X(ML_FEATURE_VECTORIZER, "ai.onnx.ml.FeatureVectorizer", none,        unknown,     NONE,     NEVER,  NONE,       1, SY_MANY, 1, "inputdimensions=I") \
    X(ML_IMPUTER, "ai.onnx.ml.Imputer",              none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "imputed_value_floats=F imputed_value_int64s=I replaced_value_float=f replaced_value_int64=i") \
    X(ML_DICT_VECTORIZER, "ai.onnx.ml.DictVectorizer", none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "int64_vocabulary=I string_vocabulary=S") \
    X(ML_CAST_MAP, "ai.onnx.ml.CastMap",             none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, "cast_to=s map_form=s max_map=i") \
    X(SMALL, "switchyard.Small",                     same,        elementwise, NONE,     NEVER,  NONE,       0, SY_MANY, SY_MANY, NULL) /* to the numbers that a type below 8 bits, or of 8-bit floats, has: attribute `to` */ \
    X(ML_ZIP_MAP, "ai.onnx.ml.ZipMap",               none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "classlabels_int64s=I classlabels_strings=S") \
    X(ML_TREE_REGRESSOR, "ai.onnx.ml.TreeEnsembleRegressor", none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "aggregate_function=s base_values=F base_values_as_tensor=t n_targets=i nodes_falsenodeids=I nodes_featureids=I nodes_hitrates=F " \
        "nodes_hitrates_as_tensor=t nodes_missing_value_tracks_true=I nodes_modes=S nodes_nodeids=I nodes_treeids=I nodes_truenodeids=I " \
        "nodes_values=F nodes_values_as_tensor=t post_transform=s target_ids=I target_nodeids=I target_treeids=I target_weights=F " \
        "target_weights_as_tensor=t") \
    X(ML_TREE_CLASSIFIER, "ai.onnx.ml.TreeEnsembleClassifier", none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 2, \
        "base_values=F base_values_as_tensor=t class_ids=I class_nodeids=I class_treeids=I class_weights=F class_weights_as_tensor=t " \
        "classlabels_int64s=I classlabels_strings=S nodes_falsenodeids=I nodes_featureids=I nodes_hitrates=F nodes_hitrates_as_tensor=t " \
        "nodes_missing_value_tracks_true=I nodes_modes=S nodes_nodeids=I nodes_treeids=I nodes_truenodeids=I nodes_values=F nodes_values_as_tensor=t " \
        "post_transform=s") \
    X(ML_TREE_ENSEMBLE, "ai.onnx.ml.TreeEnsemble",   none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "aggregate_function=i leaf_targetids=I leaf_weights=t membership_values=t n_targets=i nodes_falseleafs=I nodes_falsenodeids=I " \
        "nodes_featureids=I nodes_hitrates=t nodes_missing_value_tracks_true=I nodes_modes=t nodes_splits=t nodes_trueleafs=I nodes_truenodeids=I " \
        "post_transform=i tree_roots=I") \
    X(ML_SVM_REGRESSOR, "ai.onnx.ml.SVMRegressor",   none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 1, \
        "coefficients=F kernel_params=F kernel_type=s n_supports=i one_class=i post_transform=s rho=F support_vectors=F") \
    X(ML_SVM_CLASSIFIER, "ai.onnx.ml.SVMClassifier", none,        unknown,     NONE,     NEVER,  NONE,       1, 1, 2, \
        "classlabels_ints=I classlabels_strings=S coefficients=F kernel_params=F kernel_type=s post_transform=s prob_a=F prob_b=F rho=F " \
        "support_vectors=F vectors_per_class=I")
/* clang-format on */

#endif
