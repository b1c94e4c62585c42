/* A model as a graph: tensors, nodes in execution order, shapes with a symbolic batch and open sizes.
 *
 * A dimension is `fixed + per_batch * N`, N the batch size, or an expression (size_expr.h) over N and the graph's symbols: the other
 * sizes that a request may choose. Shapes are resolved at import; sy_graph_bind (graph_bind.h) puts numbers for the symbols, and
 * engines are given such graphs only, in which N alone is left. */
#ifndef SY_LOADER_GRAPH_GRAPH_H
#define SY_LOADER_GRAPH_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SY_MAX_RANK    8
#define SY_MAX_SYMBOLS 16  /* of a graph: a sequence that comes in has two or three */
#define SY_MAX_ENDS    256 /* inputs, or outputs, of a model */
#define SY_LOOP_MOST_TRIPS \
    (1 << 24) /* of a run's loops together: what does not end is an error, not a hang */

/* X(name, ONNX TensorProto.DataType value, bytes, KServe v2 name, numpy descr) */
#define SY_DTYPE_TABLE(X)          \
    X(F32, 1, 4, "FP32", "<f4")    \
    X(U8, 2, 1, "UINT8", "|u1")    \
    X(I8, 3, 1, "INT8", "|i1")     \
    X(U16, 4, 2, "UINT16", "<u2")  \
    X(I16, 5, 2, "INT16", "<i2")   \
    X(I32, 6, 4, "INT32", "<i4")   \
    X(I64, 7, 8, "INT64", "<i8")   \
    X(BOOL, 9, 1, "BOOL", "|b1")   \
    X(F16, 10, 2, "FP16", "<f2")   \
    X(F64, 11, 8, "FP64", "<f8")   \
    X(U32, 12, 4, "UINT32", "<u4") \
    X(U64, 13, 8, "UINT64", "<u8") \
    X(BF16, 16, 2, "BF16", "<V2")

enum sy_dtype {
    SY_DTYPE_NONE = 0,
#define X(name, value, bytes, wire, npy) SY_DTYPE_##name = value,
    SY_DTYPE_TABLE(X)
#undef X
        SY_DTYPE_STRING =
            8, /* "BYTES"; not in the table: its elements are not all of a tensor (string_tensor.h) */
};

size_t sy_dtype_bytes(enum sy_dtype dtype);              /* 0 for unknown; of a string: its entry */
const char *sy_dtype_wire_name(enum sy_dtype dtype);     /* "FP32" */
enum sy_dtype sy_dtype_from_wire_name(const char *name); /* NONE if unknown */

/* An expression is named by its `per_batch` (sy_dim_is_expr, size_expr.h), far below any number of a model; `fixed` is 0 then. */
struct sy_dim {
    int64_t fixed, per_batch;
};
#define SY_DIM_EXPR_END (INT64_MIN + INT64_C(0x7fffffff))

static inline bool sy_dim_is_expr(struct sy_dim dim)
{
    return dim.per_batch < SY_DIM_EXPR_END;
}

/* A size known at import. */
static inline bool sy_dim_is_number(struct sy_dim dim)
{
    return dim.per_batch == 0;
}

struct sy_shape {
    int rank;
    struct sy_dim dims[SY_MAX_RANK];
};

int64_t sy_dim_at(struct sy_dim dim, int64_t batch); /* no expression */
/* Elements of the shape at this batch size; -1 on overflow, a negative dimension, or an expression. */
int64_t sy_shape_elements(const struct sy_shape *shape, int64_t batch);
bool sy_shape_is_open(const struct sy_shape *shape); /* has an expression */
bool sy_shape_equal(const struct sy_shape *a, const struct sy_shape *b);
/* "[N, 3, 224, 224]" */
const char *sy_shape_text(const struct sy_shape *shape, char *buffer, size_t bytes);

/* Operators after reading and fusion: ONNX's own by their ONNX name, and the fused ones at the end. X(enum, "ONNX name") */
/* clang-format off */
#define SY_OP_TABLE(X) \
    X(CONV, "Conv") \
    X(BATCH_NORM, "BatchNormalization") \
    X(RELU, "Relu") \
    X(LEAKY_RELU, "LeakyRelu") \
    X(SIGMOID, "Sigmoid") \
    X(TANH, "Tanh") \
    X(ERF, "Erf") \
    X(CLIP, "Clip") \
    X(HARD_SIGMOID, "HardSigmoid") \
    X(HARD_SWISH, "HardSwish") \
    X(ELU, "Elu") \
    X(EXP, "Exp") \
    X(LOG, "Log") \
    X(SQRT, "Sqrt") \
    X(NEG, "Neg") \
    X(ABS, "Abs") \
    X(RECIPROCAL, "Reciprocal") \
    X(POW, "Pow") \
    X(ADD, "Add") \
    X(SUB, "Sub") \
    X(MUL, "Mul") \
    X(DIV, "Div") \
    X(MIN, "Min") \
    X(MAX, "Max") \
    X(SUM, "Sum") \
    X(MAX_POOL, "MaxPool") \
    X(AVERAGE_POOL, "AveragePool") \
    X(GLOBAL_AVERAGE_POOL, "GlobalAveragePool") \
    X(GLOBAL_MAX_POOL, "GlobalMaxPool") \
    X(GEMM, "Gemm") \
    X(MATMUL, "MatMul") \
    X(SOFTMAX, "Softmax") \
    X(LOG_SOFTMAX, "LogSoftmax") \
    X(LAYER_NORM, "LayerNormalization") \
    X(REDUCE_MEAN, "ReduceMean") \
    X(REDUCE_SUM, "ReduceSum") \
    X(GATHER, "Gather") \
    X(CONCAT, "Concat") \
    X(SPLIT, "Split") \
    X(SLICE, "Slice") \
    X(TRANSPOSE, "Transpose") \
    X(RESHAPE, "Reshape") \
    X(FLATTEN, "Flatten") \
    X(SQUEEZE, "Squeeze") \
    X(UNSQUEEZE, "Unsqueeze") \
    X(IDENTITY, "Identity") \
    X(DROPOUT, "Dropout") \
    X(CAST, "Cast") \
    X(PAD, "Pad") \
    X(EXPAND, "Expand") \
    X(WHERE, "Where") \
    X(EQUAL, "Equal") \
    X(LRN, "LRN") \
    X(SHAPE, "Shape") \
    X(CONSTANT, "Constant") \
    X(CONSTANT_OF_SHAPE, "ConstantOfShape") \
    X(RANGE, "Range") \
    X(GELU, "Gelu") /* fused from x*0.5*(1+erf(x/sqrt2)), or ONNX 20 */ \
    X(SKIP_LAYER_NORM, "switchyard.SkipLayerNorm") /* layer norm of a + b */ \
    X(ATTENTION, "switchyard.Attention") /* softmax(q * k + masks) * v; attributes: loader/fuse/fuse_attention.c */ \
    X(SWISH, "Swish") /* x * sigmoid(alpha * x) */ \
    X(ACOS, "Acos") \
    X(ACOSH, "Acosh") \
    X(ASIN, "Asin") \
    X(ASINH, "Asinh") \
    X(ATAN, "Atan") \
    X(ATANH, "Atanh") \
    X(CEIL, "Ceil") \
    X(FLOOR, "Floor") \
    X(ROUND, "Round") \
    X(COS, "Cos") \
    X(COSH, "Cosh") \
    X(SIN, "Sin") \
    X(SINH, "Sinh") \
    X(TAN, "Tan") \
    X(SIGN, "Sign") \
    X(SOFTPLUS, "Softplus") \
    X(SOFTSIGN, "Softsign") \
    X(SELU, "Selu") \
    X(CELU, "Celu") \
    X(THRESHOLDED_RELU, "ThresholdedRelu") \
    X(SHRINK, "Shrink") \
    X(IS_INF, "IsInf") \
    X(IS_NAN, "IsNaN") \
    X(NOT, "Not") \
    X(BITWISE_NOT, "BitwiseNot") \
    X(MISH, "Mish") \
    X(PRELU, "PRelu") \
    X(MOD, "Mod") \
    X(GREATER, "Greater") \
    X(GREATER_OR_EQUAL, "GreaterOrEqual") \
    X(LESS, "Less") \
    X(LESS_OR_EQUAL, "LessOrEqual") \
    X(AND, "And") \
    X(OR, "Or") \
    X(XOR, "Xor") \
    X(BITWISE_AND, "BitwiseAnd") \
    X(BITWISE_OR, "BitwiseOr") \
    X(BITWISE_XOR, "BitwiseXor") \
    X(BIT_SHIFT, "BitShift") \
    X(MEAN, "Mean") \
    X(REDUCE_MAX, "ReduceMax") \
    X(REDUCE_MIN, "ReduceMin") \
    X(REDUCE_PROD, "ReduceProd") \
    X(REDUCE_L1, "ReduceL1") \
    X(REDUCE_L2, "ReduceL2") \
    X(REDUCE_LOG_SUM, "ReduceLogSum") \
    X(REDUCE_LOG_SUM_EXP, "ReduceLogSumExp") \
    X(REDUCE_SUM_SQUARE, "ReduceSumSquare") \
    X(ARG_MAX, "ArgMax") \
    X(ARG_MIN, "ArgMin") \
    X(CUM_SUM, "CumSum") \
    X(CUM_PROD, "CumProd") \
    X(BIT_CAST, "BitCast") \
    X(GATHER_ELEMENTS, "GatherElements") \
    X(GATHER_ND, "GatherND") \
    X(SCATTER_ELEMENTS, "ScatterElements") \
    X(SCATTER, "Scatter") \
    X(SCATTER_ND, "ScatterND") \
    X(ONE_HOT, "OneHot") \
    X(COMPRESS, "Compress") \
    X(NON_ZERO, "NonZero") \
    X(REVERSE_SEQUENCE, "ReverseSequence") \
    X(UNIQUE, "Unique") \
    X(TOP_K, "TopK") \
    X(TILE, "Tile") \
    X(SIZE, "Size") \
    X(EYE_LIKE, "EyeLike") \
    X(RANDOM_NORMAL, "RandomNormal") \
    X(RANDOM_NORMAL_LIKE, "RandomNormalLike") \
    X(RANDOM_UNIFORM, "RandomUniform") \
    X(RANDOM_UNIFORM_LIKE, "RandomUniformLike") \
    X(BERNOULLI, "Bernoulli") \
    X(MULTINOMIAL, "Multinomial") \
    X(TRILU, "Trilu") \
    X(DEPTH_TO_SPACE, "DepthToSpace") \
    X(SPACE_TO_DEPTH, "SpaceToDepth") \
    X(CAST_LIKE, "CastLike") \
    X(CONV_TRANSPOSE, "ConvTranspose") \
    X(MAX_UNPOOL, "MaxUnpool") \
    X(LP_POOL, "LpPool") \
    X(GLOBAL_LP_POOL, "GlobalLpPool") \
    X(LP_NORM, "LpNormalization") \
    X(MEAN_VARIANCE_NORM, "MeanVarianceNormalization") \
    X(INSTANCE_NORM, "InstanceNormalization") \
    X(GROUP_NORM, "GroupNormalization") \
    X(RMS_NORM, "RMSNormalization") \
    X(HARDMAX, "Hardmax") \
    X(EINSUM, "Einsum") \
    X(RESIZE, "Resize") \
    X(UPSAMPLE, "Upsample") \
    X(LSTM, "LSTM") \
    X(GRU, "GRU") \
    X(RNN, "RNN") \
    X(NON_MAX_SUPPRESSION, "NonMaxSuppression") \
    X(ROI_ALIGN, "RoiAlign") \
    X(MAX_ROI_POOL, "MaxRoiPool") \
    X(GRID_SAMPLE, "GridSample") \
    X(NLL_LOSS, "NegativeLogLikelihoodLoss") \
    X(SOFTMAX_LOSS, "SoftmaxCrossEntropyLoss") \
    X(DET, "Det") \
    X(QUANTIZE_LINEAR, "QuantizeLinear") \
    X(DEQUANTIZE_LINEAR, "DequantizeLinear") \
    X(DYNAMIC_QUANTIZE_LINEAR, "DynamicQuantizeLinear") \
    X(QLINEAR_CONV, "QLinearConv") \
    X(QLINEAR_MATMUL, "QLinearMatMul") \
    X(CONV_INTEGER, "ConvInteger") \
    X(MATMUL_INTEGER, "MatMulInteger") \
    /* 8 bits in, int32 sums, float32 or 8 bits out; made by sy_graph_fuse (loader/fuse/README.md, "8 bits") */ \
    X(QUANTIZED_CONV, "switchyard.QuantizedConv") \
    X(QUANTIZED_MATMUL, "switchyard.QuantizedMatMul") \
    X(QUANTIZED_SUM, "switchyard.QuantizedSum") \
    X(QUANTIZED_LSTM, "switchyard.QuantizedLSTM") \
    X(CHANNEL_AFFINE, "switchyard.ChannelAffine") /* x * scale + shift by channel; made by sy_graph_fuse */ \
    X(BLACKMAN_WINDOW, "BlackmanWindow") \
    X(HAMMING_WINDOW, "HammingWindow") \
    X(HANN_WINDOW, "HannWindow") \
    X(DFT, "DFT") \
    X(TF_IDF, "TfIdfVectorizer") \
    X(STRING_NORMALIZER, "StringNormalizer") \
    X(STRING_CONCAT, "StringConcat") \
    X(STRING_SPLIT, "StringSplit") \
    X(REGEX_FULL_MATCH, "RegexFullMatch") \
    X(MS_TOKENIZER, "com.microsoft.Tokenizer") \
    X(ML_LABEL_ENCODER, "ai.onnx.ml.LabelEncoder") \
    X(ML_CATEGORY_MAPPER, "ai.onnx.ml.CategoryMapper") \
    X(ML_ONE_HOT, "ai.onnx.ml.OneHotEncoder") \
    X(COUPLE, "switchyard.Couple") /* probabilities of classes from those of their pairs */ \
    X(TREES, "switchyard.Trees") /* ensembles of ai.onnx.ml, as they are walked (loader/expand/expand_trees.c) */ \
    X(IF, "If") \
    X(LOOP, "Loop") \
    X(NUMBERS, "switchyard.Numbers") /* integers `fixed + per_batch * N`: sizes that somebody computes with */ \
    /* operands that are known at run only; the file declares what the result is, and the run checks it */ \
    X(RUN_RESHAPE, "switchyard.RunReshape") \
    X(RUN_SQUEEZE, "switchyard.RunSqueeze") \
    X(RUN_UNSQUEEZE, "switchyard.RunUnsqueeze") \
    X(RUN_EXPAND, "switchyard.RunExpand") \
    X(RUN_SLICE, "switchyard.RunSlice") \
    X(RUN_SPLIT, "switchyard.RunSplit") \
    X(RUN_PAD, "switchyard.RunPad") \
    X(RUN_CLIP, "switchyard.RunClip") \
    X(AT_RUN, "switchyard.AtRun") /* a body whose sizes only a run knows (loader/infer/put_off.h) */ \
    /* written out as others while shapes are inferred (expand.h): no engine sees them */ \
    X(SCAN, "Scan") \
    X(MOVE_FIRST, "switchyard.MoveFirst") \
    X(SEQUENCE_EMPTY, "SequenceEmpty") \
    X(SEQUENCE_CONSTRUCT, "SequenceConstruct") \
    X(SEQUENCE_INSERT, "SequenceInsert") \
    X(SEQUENCE_ERASE, "SequenceErase") \
    X(SEQUENCE_AT, "SequenceAt") \
    X(SEQUENCE_LENGTH, "SequenceLength") \
    X(CONCAT_FROM_SEQUENCE, "ConcatFromSequence") \
    X(SPLIT_TO_SEQUENCE, "SplitToSequence") \
    X(SEQUENCE_MAP, "SequenceMap") \
    X(OPTIONAL, "Optional") \
    X(OPTIONAL_HAS_ELEMENT, "OptionalHasElement") \
    X(OPTIONAL_GET_ELEMENT, "OptionalGetElement") \
    X(LIST_OF_PARTS, "switchyard.ListOfParts") /* a sequence or an optional from the tensors that stand for it outside (list_ends.h) */ \
    X(PARTS_OF_LIST, "switchyard.PartsOfList") /* the other way */ \
    X(SWIGLU, "SwiGLU") \
    X(DEFORM_CONV, "DeformConv") \
    X(CENTER_CROP_PAD, "CenterCropPad") \
    X(STEP_ADAGRAD, "ai.onnx.preview.training.Adagrad") \
    X(STEP_ADAM, "ai.onnx.preview.training.Adam") \
    X(GRADIENT, "ai.onnx.preview.training.Gradient") \
    X(STEP_MOMENTUM, "ai.onnx.preview.training.Momentum") \
    X(STFT, "STFT") \
    X(ONNX_ATTENTION, "Attention") \
    X(ROTARY_EMBEDDING, "RotaryEmbedding") \
    X(TENSOR_SCATTER, "TensorScatter") \
    X(COL2IM, "Col2Im") \
    X(MEL_WEIGHTS, "MelWeightMatrix") \
    X(AFFINE_GRID, "AffineGrid") \
    X(SIMPLIFIED_LAYER_NORM, "SimplifiedLayerNormalization") \
    X(MS_GELU, "com.microsoft.Gelu") \
    X(MS_FAST_GELU, "com.microsoft.FastGelu") \
    X(MS_BIAS_GELU, "com.microsoft.BiasGelu") \
    X(MS_QUICK_GELU, "com.microsoft.QuickGelu") \
    X(MS_FUSED_MATMUL, "com.microsoft.FusedMatMul") \
    X(MS_TRANSPOSE_MATMUL, "com.microsoft.TransposeMatMul") \
    X(MS_FUSED_MATMUL_ACTIVATION, "com.microsoft.FusedMatMulActivation") \
    X(MS_FUSED_GEMM, "com.microsoft.FusedGemm") \
    X(MS_FUSED_CONV, "com.microsoft.FusedConv") \
    X(MS_SKIP_LAYER_NORM, "com.microsoft.SkipLayerNormalization") \
    X(MS_SKIP_SIMPLIFIED_NORM, "com.microsoft.SkipSimplifiedLayerNormalization") \
    X(MS_EMBED_LAYER_NORM, "com.microsoft.EmbedLayerNormalization") \
    X(MS_GROUP_NORM, "com.microsoft.GroupNorm") \
    X(MS_ATTENTION, "com.microsoft.Attention") \
    X(MS_QATTENTION, "com.microsoft.QAttention") \
    X(MS_MULTI_HEAD_ATTENTION, "com.microsoft.MultiHeadAttention") \
    X(MS_ROTARY_EMBEDDING, "com.microsoft.RotaryEmbedding") \
    X(MS_GROUP_QUERY_ATTENTION, "com.microsoft.GroupQueryAttention") \
    X(MS_MATMUL_NBITS, "com.microsoft.MatMulNBits") \
    X(MS_QUANTIZE, "com.microsoft.QuantizeLinear") \
    X(MS_DEQUANTIZE, "com.microsoft.DequantizeLinear") \
    X(MS_TRILU, "com.microsoft.Trilu") \
    X(MS_UNIQUE, "com.microsoft.Unique") \
    X(MS_RANGE, "com.microsoft.Range") \
    X(MS_GRID_SAMPLE, "com.microsoft.GridSample") \
    X(MS_GATHER_ND, "com.microsoft.GatherND") \
    X(MS_PAD, "com.microsoft.Pad") \
    X(MS_QLINEAR_ADD, "com.microsoft.QLinearAdd") \
    X(MS_QLINEAR_MUL, "com.microsoft.QLinearMul") \
    X(MS_QLINEAR_SIGMOID, "com.microsoft.QLinearSigmoid") \
    X(MS_QLINEAR_LEAKY_RELU, "com.microsoft.QLinearLeakyRelu") \
    X(MS_QLINEAR_SOFTMAX, "com.microsoft.QLinearSoftmax") \
    X(MS_QLINEAR_POOL, "com.microsoft.QLinearAveragePool") \
    X(MS_QLINEAR_GLOBAL_POOL, "com.microsoft.QLinearGlobalAveragePool") \
    X(MS_QLINEAR_CONCAT, "com.microsoft.QLinearConcat") \
    X(MS_QLINEAR_WHERE, "com.microsoft.QLinearWhere") \
    X(MS_QGEMM, "com.microsoft.QGemm") \
    X(MS_DYNAMIC_QUANTIZE_MATMUL, "com.microsoft.DynamicQuantizeMatMul") \
    X(MS_MATMUL_INTEGER_TO_FLOAT, "com.microsoft.MatMulIntegerToFloat") \
    X(MS_DYNAMIC_QUANTIZE_LSTM, "com.microsoft.DynamicQuantizeLSTM") \
    X(ML_SCALER, "ai.onnx.ml.Scaler") \
    X(ML_EXTRACT, "ai.onnx.ml.ArrayFeatureExtractor") \
    X(ML_BINARIZER, "ai.onnx.ml.Binarizer") \
    X(ML_LINEAR_REGRESSOR, "ai.onnx.ml.LinearRegressor") \
    X(ML_LINEAR_CLASSIFIER, "ai.onnx.ml.LinearClassifier") \
    X(ML_NORMALIZER, "ai.onnx.ml.Normalizer") \
    X(ML_FEATURE_VECTORIZER, "ai.onnx.ml.FeatureVectorizer") \
    X(ML_IMPUTER, "ai.onnx.ml.Imputer") \
    X(ML_ZIP_MAP, "ai.onnx.ml.ZipMap") \
    X(ML_TREE_REGRESSOR, "ai.onnx.ml.TreeEnsembleRegressor") \
    X(ML_TREE_CLASSIFIER, "ai.onnx.ml.TreeEnsembleClassifier") \
    X(ML_TREE_ENSEMBLE, "ai.onnx.ml.TreeEnsemble") \
    X(ML_SVM_REGRESSOR, "ai.onnx.ml.SVMRegressor") \
    X(ML_SVM_CLASSIFIER, "ai.onnx.ml.SVMClassifier")
/* clang-format on */

enum sy_op {
#define X(name, text) SY_OP_##name,
    SY_OP_TABLE(X)
#undef X
        SY_OP_COUNT
};

const char *sy_op_name(enum sy_op op);
int sy_op_from_name(const char *onnx_name, enum sy_op *out); /* EUNSUPPORTED names it */

enum sy_attr_kind {
    SY_ATTR_INT,
    SY_ATTR_FLOAT,
    SY_ATTR_INTS,
    SY_ATTR_FLOATS,
    SY_ATTR_STRING,
    SY_ATTR_TENSOR,
    SY_ATTR_GRAPH,
    SY_ATTR_SIZES, /* numbers that depend on the graph's symbols: INTS once it is bound */
    SY_ATTR_STRINGS
};

struct sy_attr {
    char *name;
    enum sy_attr_kind kind;
    int64_t i;
    float f;
    char *
        s; /* STRINGS: one behind the other, each ended by a zero; string i begins at ints[i], of n + 1 */
    int n; /* of ints, floats, sizes or strings */
    int64_t *ints;
    float *floats;
    struct sy_dim *sizes;
    int tensor; /* ATTR_TENSOR: index of a constant tensor of the graph */
    struct sy_graph
        *graph; /* ATTR_GRAPH: a body, owned. Its inputs are the last of the node's (G10) */
};

struct sy_tensor {
    char *name;
    enum sy_dtype dtype;
    struct sy_shape shape;
    void *data; /* constant: its elements, owned, plain row-major; NULL otherwise */
    size_t data_bytes;
    bool is_borrowed;  /* a constant whose data is not the graph's to free */
    bool is_four_bits; /* a constant of the file of 4 bits, here one a byte */
    bool
        is_derived; /* a constant that is no parameter of the file: a Constant node's, or computed at import */
};

/* What fusion appended to a CONV, GEMM or MATMUL, in this order: + residual, then activation. */
enum sy_activation {
    SY_ACT_NONE,
    SY_ACT_RELU,
    SY_ACT_GELU_ERF,
    SY_ACT_TANH,
    SY_ACT_SIGMOID,
    SY_ACT_CLIP,
    /* these two by sy_graph_fuse only: */
    SY_ACT_SWISH,
    SY_ACT_HARD_SWISH
};

struct sy_node {
    enum sy_op op;
    int opset;
    char *name;
    int n_inputs, *inputs; /* tensor indices; -1: optional input left out */
    int n_outputs, *outputs;
    int n_attrs;
    struct sy_attr *attrs;
    /* fused: */
    enum sy_activation activation;
    float act_alpha, act_beta; /* CLIP: lower, upper; SWISH: alpha */
    int bias_input; /* index into inputs of the bias, or -1 (CONV: 2; fused MATMUL: where it was put) */
    int residual_input; /* index into inputs of the summed residual, or -1 */
};

/* What an engine may compute with instead of float32, where it gains by it: float32 tensors keep their type, and only multiplied
 * numbers are rounded; sums and normalisations stay float32. */
enum sy_precision { SY_PRECISION_F32, SY_PRECISION_BF16, SY_PRECISION_F16 };

const char *sy_precision_name(enum sy_precision precision);           /* "f32", "bf16", "f16" */
int sy_precision_from_name(const char *name, enum sy_precision *out); /* EARG names it */

/* A size of the inputs, other than N, that each request may choose. */
struct sy_symbol {
    char *name; /* of the file, or INPUT.INDEX; unique in the graph */
    int64_t
        usual; /* what the model is laid out for, profiled with and shown with: a typical one that the model allows */
};

/* A number for each of a graph's symbols, in their order; the rest is ignored. */
struct sy_sizes {
    int64_t of[SY_MAX_SYMBOLS];
};

/* What must hold of the sizes for the model to make sense, and is not true of all: two tensors that are added have the same length. */
struct sy_condition {
    struct sy_dim left, right;
    bool at_most; /* left <= right; else left == right */
    char *where;  /* the node, for error texts */
};

/* Why inference put a node off to the run (explain.h). Texts may be "". */
struct sy_run_reason {
    char *result; /* the node's first result */
    char *why;    /* names the node */
    char *input;  /* the tensor that decides on the size */
    char *maker;  /* "made by node ...", or what else it is */
};

struct sy_graph {
    char *name;
    char *batch_name; /* of N in the file, or INPUT.INDEX; NULL: none. From reading to inference */
    enum sy_precision precision;
    int n_symbols; /* 0: all sizes but N are known */
    struct sy_symbol *symbols;
    int n_conditions;
    struct sy_condition *conditions;
    int n_reasons; /* from inference on; packages do not keep them */
    struct sy_run_reason *reasons;
    uint64_t
        string_bytes; /* bound graphs with strings: what a run has for them (string_tensor.h) */
    bool
        borrows_data; /* constants' data belongs to the graph that this one was bound from (graph_bind.h) */
    int n_tensors;
    struct sy_tensor *tensors;
    int n_nodes;
    struct sy_node *nodes; /* in execution order */
    int n_inputs, *inputs; /* tensor indices, initializers excluded */
    int n_outputs, *outputs;
};

/* ---- outputs whose size only a run knows ----
 * Results of an AT_RUN node: their tensors' shapes say how many elements there is room for. In a binding, and wherever outputs lie,
 * the elements of the run come first, and at the end of the room 1 + SY_MAX_RANK int64: the run's rank and dimensions. Where no bound can be
 * told of a result, its room grows with a size of the graph that no input has: a run whose result is larger says SY_NEEDS_ROOM for its rank, and
 * the bytes that it needs for its first dimension; nothing of the result is there. */
#define SY_NEEDS_ROOM (-1)
#define SY_SIZED_AT_RUN_BYTES \
    ((1 + SY_MAX_RANK) * sizeof(int64_t)) /* of the rank and the dimensions */
/* Index of that size among the graph's symbols; -1: it has none. */
int sy_graph_room_size(const struct sy_graph *graph);
/* That size doubled until a room of `has` bytes becomes one of `needs`. False: there is none, or it cannot. */
bool sy_graph_grow_room(const struct sy_graph *graph, uint64_t has, uint64_t needs,
                        struct sy_sizes *sizes);
bool sy_graph_is_sized_at_run(const struct sy_graph *graph, int tensor);
/* Of those: the run decides one dimension only, by counting elements (NonZero, NonMaxSuppression), so where there is room for none the room's shape is
 * the result's. */
bool sy_graph_is_counted(const struct sy_graph *graph, int tensor);
/* Room of any input or output in memory; what follows from its shape, and the dimensions behind it where a run says them. */
uint64_t sy_graph_tensor_room(const struct sy_graph *graph, int tensor, int64_t batch);
/* The same of a tensor of this shape, that it has with certain sizes (graph_bind.h). UINT64_MAX: more than can be counted. */
uint64_t sy_graph_shaped_room(const struct sy_graph *graph, int tensor,
                              const struct sy_shape *shape, int64_t batch);
/* Shape and bytes of an output that lies at `data`. ENOMEM_HOST: the run needs more room, *bytes. ECORRUPT: what lies there was not written by a
 * run. */
int sy_graph_output_shape(const struct sy_graph *graph, int tensor, int64_t batch, const void *data,
                          struct sy_shape *shape, uint64_t *bytes);
/* The same of one that has room for the shape `as`. */
int sy_graph_shaped_output(const struct sy_graph *graph, int tensor, const struct sy_shape *as,
                           int64_t batch, const void *data, struct sy_shape *shape,
                           uint64_t *bytes);

bool sy_graph_is_input(const struct sy_graph *graph, int tensor);
bool sy_graph_is_output(const struct sy_graph *graph, int tensor);
/* By a node, or as an output of the graph. */
bool sy_graph_is_read(const struct sy_graph *graph, int tensor);
void sy_graph_free(struct sy_graph *graph);                                       /* NULL is fine */
const struct sy_attr *sy_node_attr(const struct sy_node *node, const char *name); /* or NULL */
/* String i of a list; *bytes without its ending zero. */
const char *sy_attr_string(const struct sy_attr *attr, int i, size_t *bytes);
int64_t sy_node_int(const struct sy_node *node, const char *name, int64_t otherwise);
float sy_node_float(const struct sy_node *node, const char *name, float otherwise);

/* Reads an ONNX file (external data next to it too): graph as written, in topological order, shapes not yet
 * inferred. Every refusal names node, operator, opset and what is missing. Caller frees. */
int sy_onnx_read(const char *path, struct sy_graph **out);

/* A symbolic dimension of the file, by its name, or as INPUT.INDEX ("tokens.1"), and the number that it gets. */
struct sy_onnx_dim {
    const char *name;
    int64_t size;
};
/* The same with numbers for symbolic dimensions. EARG names one that no input has. */
int sy_onnx_read_sized(const char *path, const struct sy_onnx_dim *dims, int n_dims,
                       struct sy_graph **out);

/* Infers all shapes and dtypes, folds constants and shape arithmetic (Shape, Gather, Concat ... on
 * values linear in N), removes dead nodes. The first dimension of every input that is symbolic is N. EUNSUPPORTED/EARG name
 * the node. After it, every tensor has dtype and shape; Reshape targets and the like are constants
 * (Reshape nodes: use the output tensor's shape). */
int sy_graph_infer(struct sy_graph *graph);

/* The same of a few nodes, all of whose inputs have numbers for shapes: nothing is put off to the run. *needs_values: it failed because an
 * input's elements decide on a size. */
int sy_graph_infer_now(struct sy_graph *graph, bool *needs_values);
/* The same, as far as it goes: (*waits)[t], of each tensor that the graph has then: its size, or what it is made of, needs elements that nobody has yet, or an
 * operator that is not supported. *waits: the caller's. The graph is good for nothing else afterwards than to read shapes from. */
int sy_graph_infer_ready(struct sy_graph *graph, bool **waits);

/* The same for a graph that is to be trained: what depends on a float parameter of the file is not folded, Dropout stays (with the
 * attribute `ratio`), and so do training modes. */
int sy_graph_infer_training(struct sy_graph *graph);

/* Passes that keep every parameter as the file has it: identity removal, gelu and layer norm recognition, biases of matrix products. */
int sy_graph_optimize_training(struct sy_graph *graph);

/* Passes for inference, each its own function (loader/fuse/fuse.h), each keeps the outputs: identity removal, conv +
 * batch norm folding, activation / residual / bias fusion, gelu and layer norm recognition, then dead nodes. What nodes
 * look like afterwards: loader/shape/README.md. Two attributes are this project's own: MATMUL `alpha` (float, default 1: result =
 * alpha * a*b + bias), SKIP_LAYER_NORM `axis` and `epsilon` as LAYER_NORM; its inputs are a, b, gamma, beta. */
int sy_graph_optimize(struct sy_graph *graph);

/* After it: passes that make nodes which not every engine has (Attention, Swish, RMSNormalization), for those that `has` says it has. size:
 * of Attention the larger of its heads' sizes, for q and k and for v, INT64_MAX where the batch decides on them; 0 where none is known yet, and
 * of the others. Last, depthwise convolutions of one dimension become two-dimensional ones, for which engines have fast code. */
int sy_graph_fuse(struct sy_graph *graph, bool (*has)(enum sy_op op, int64_t size));

/* The same after sy_graph_optimize_training, of Attention alone, and only where no mask that is added is trained or follows from what is.
 * Dropout nodes have the attribute `number` afterwards: their place before, from which follows what they draw. */
int sy_graph_fuse_training(struct sy_graph *graph, bool (*has)(enum sy_op op, int64_t size));

/* msgpack image of the graph without the data of tensors that `keep_data[t]` is false for. *out is malloc'd. */
int sy_graph_encode(const struct sy_graph *graph, const bool *keep_data, void **out,
                    size_t *out_bytes);
int sy_graph_decode(const void *bytes, size_t n_bytes,
                    struct sy_graph **out); /* untrusted bytes: ECORRUPT */

#endif
