/* How many inputs and outputs each operator has, and which attributes of which kind, over all versions that are read: what a rule does not
 * look at would else be passed over in silence. */
#include <limits.h>
#include <string.h>

#include "loader/onnx/onnx_internal.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define MANY       INT_MAX
#define AUTO_PADS  "NOTSET SAME_UPPER SAME_LOWER VALID "
#define DIRECTIONS "forward reverse bidirectional "

struct schema {
    int least_inputs, most_inputs, most_outputs;
    const char *attributes; /* NAME=KIND ...; kinds by the letters of `kinds`. NULL: not checked */
};

static const struct schema schemas[SY_OP_COUNT] = {
    [SY_OP_CONV] = {2, 3, 1, "auto_pad=s dilations=I group=i kernel_shape=I pads=I strides=I"},
    [SY_OP_BATCH_NORM] = {5, 5, 5, "epsilon=f is_test=i momentum=f spatial=i training_mode=i"},
    [SY_OP_RELU] = {1, 1, 1, ""},
    [SY_OP_LEAKY_RELU] = {1, 1, 1, "alpha=f"},
    [SY_OP_SIGMOID] = {1, 1, 1, ""},
    [SY_OP_TANH] = {1, 1, 1, ""},
    [SY_OP_ERF] = {1, 1, 1, ""},
    [SY_OP_CLIP] = {1, 3, 1, "max=f min=f"},
    [SY_OP_HARD_SIGMOID] = {1, 1, 1, "alpha=f beta=f"},
    [SY_OP_HARD_SWISH] = {1, 1, 1, ""},
    [SY_OP_ELU] = {1, 1, 1, "alpha=f"},
    [SY_OP_EXP] = {1, 1, 1, ""},
    [SY_OP_LOG] = {1, 1, 1, ""},
    [SY_OP_SQRT] = {1, 1, 1, ""},
    [SY_OP_NEG] = {1, 1, 1, ""},
    [SY_OP_ABS] = {1, 1, 1, ""},
    [SY_OP_RECIPROCAL] = {1, 1, 1, ""},
    [SY_OP_POW] = {2, 2, 1, "axis=i broadcast=i"},
    [SY_OP_ADD] = {2, 2, 1, "axis=i broadcast=i"},
    [SY_OP_SUB] = {2, 2, 1, "axis=i broadcast=i"},
    [SY_OP_MUL] = {2, 2, 1, "axis=i broadcast=i"},
    [SY_OP_DIV] = {2, 2, 1, "axis=i broadcast=i"},
    [SY_OP_MIN] = {1, MANY, 1, ""},
    [SY_OP_MAX] = {1, MANY, 1, ""},
    [SY_OP_SUM] = {1, MANY, 1, ""},
    [SY_OP_MAX_POOL] =
        {1, 1, 2,
         "auto_pad=s ceil_mode=i dilations=I kernel_shape=I pads=I storage_order=i strides=I"},
    [SY_OP_AVERAGE_POOL] =
        {1, 1, 1,
         "auto_pad=s ceil_mode=i count_include_pad=i dilations=I kernel_shape=I pads=I strides=I"},
    [SY_OP_GLOBAL_AVERAGE_POOL] = {1, 1, 1, ""},
    [SY_OP_GLOBAL_MAX_POOL] = {1, 1, 1, ""},
    [SY_OP_GEMM] = {2, 3, 1, "alpha=f beta=f broadcast=i transA=i transB=i"},
    [SY_OP_MATMUL] = {2, 2, 1, ""},
    [SY_OP_SOFTMAX] = {1, 1, 1, "axis=i"},
    [SY_OP_LOG_SOFTMAX] = {1, 1, 1, "axis=i"},
    [SY_OP_LAYER_NORM] = {2, 3, 3, "axis=i epsilon=f stash_type=i"},
    [SY_OP_REDUCE_MEAN] = {1, 2, 1, "axes=I keepdims=i noop_with_empty_axes=i"},
    [SY_OP_REDUCE_SUM] = {1, 2, 1, "axes=I keepdims=i noop_with_empty_axes=i"},
    [SY_OP_GATHER] = {2, 2, 1, "axis=i"},
    [SY_OP_CONCAT] = {1, MANY, 1, "axis=i"},
    [SY_OP_SPLIT] = {1, 2, MANY, "axis=i num_outputs=i split=I"},
    [SY_OP_SLICE] = {1, 5, 1, "axes=I ends=I starts=I"},
    [SY_OP_TRANSPOSE] = {1, 1, 1, "perm=I"},
    [SY_OP_RESHAPE] = {1, 2, 1, "allowzero=i shape=I"},
    [SY_OP_FLATTEN] = {1, 1, 1, "axis=i"},
    [SY_OP_SQUEEZE] = {1, 2, 1, "axes=I"},
    [SY_OP_UNSQUEEZE] = {1, 2, 1, "axes=I"},
    [SY_OP_IDENTITY] = {1, 1, 1, ""},
    [SY_OP_DROPOUT] = {1, 3, 2, "is_test=i ratio=f seed=i"},
    [SY_OP_CAST] = {1, 1, 1, "round_mode=s saturate=i to=i"},
    [SY_OP_PAD] = {1, 4, 1, "mode=s pads=I value=f"},
    [SY_OP_EXPAND] = {2, 2, 1, ""},
    [SY_OP_WHERE] = {3, 3, 1, ""},
    [SY_OP_EQUAL] = {2, 2, 1, "axis=i broadcast=i"},
    [SY_OP_LRN] = {1, 1, 1, "alpha=f beta=f bias=f size=i"},
    [SY_OP_SHAPE] = {1, 1, 1, "end=i start=i"},
    [SY_OP_CONSTANT_OF_SHAPE] = {1, 1, 1, "value=t"},
    [SY_OP_RANGE] = {3, 3, 1, "stash_type=i"},
    [SY_OP_GELU] = {1, 1, 1, "approximate=s"},
    [SY_OP_ACOS] = {1, 1, 1, ""},
    [SY_OP_ACOSH] = {1, 1, 1, ""},
    [SY_OP_ASIN] = {1, 1, 1, ""},
    [SY_OP_ASINH] = {1, 1, 1, ""},
    [SY_OP_ATAN] = {1, 1, 1, ""},
    [SY_OP_ATANH] = {1, 1, 1, ""},
    [SY_OP_CEIL] = {1, 1, 1, ""},
    [SY_OP_FLOOR] = {1, 1, 1, ""},
    [SY_OP_ROUND] = {1, 1, 1, ""},
    [SY_OP_COS] = {1, 1, 1, ""},
    [SY_OP_COSH] = {1, 1, 1, ""},
    [SY_OP_SIN] = {1, 1, 1, ""},
    [SY_OP_SINH] = {1, 1, 1, ""},
    [SY_OP_TAN] = {1, 1, 1, ""},
    [SY_OP_SIGN] = {1, 1, 1, ""},
    [SY_OP_SOFTPLUS] = {1, 1, 1, ""},
    [SY_OP_SOFTSIGN] = {1, 1, 1, ""},
    [SY_OP_SELU] = {1, 1, 1, "alpha=f gamma=f"},
    [SY_OP_CELU] = {1, 1, 1, "alpha=f"},
    [SY_OP_THRESHOLDED_RELU] = {1, 1, 1, "alpha=f"},
    [SY_OP_SHRINK] = {1, 1, 1, "bias=f lambd=f"},
    [SY_OP_IS_INF] = {1, 1, 1, "detect_negative=i detect_positive=i"},
    [SY_OP_IS_NAN] = {1, 1, 1, ""},
    [SY_OP_NOT] = {1, 1, 1, ""},
    [SY_OP_BITWISE_NOT] = {1, 1, 1, ""},
    [SY_OP_MISH] = {1, 1, 1, ""},
    [SY_OP_PRELU] = {2, 2, 1, ""},
    [SY_OP_MOD] = {2, 2, 1, "fmod=i"},
    [SY_OP_GREATER] = {2, 2, 1, "axis=i broadcast=i"},
    [SY_OP_GREATER_OR_EQUAL] = {2, 2, 1, ""},
    [SY_OP_LESS] = {2, 2, 1, "axis=i broadcast=i"},
    [SY_OP_LESS_OR_EQUAL] = {2, 2, 1, ""},
    [SY_OP_AND] = {2, 2, 1, "axis=i broadcast=i"},
    [SY_OP_OR] = {2, 2, 1, "axis=i broadcast=i"},
    [SY_OP_XOR] = {2, 2, 1, "axis=i broadcast=i"},
    [SY_OP_BITWISE_AND] = {2, 2, 1, ""},
    [SY_OP_BITWISE_OR] = {2, 2, 1, ""},
    [SY_OP_BITWISE_XOR] = {2, 2, 1, ""},
    [SY_OP_BIT_SHIFT] = {2, 2, 1, "direction=s"},
    [SY_OP_MEAN] = {1, MANY, 1, ""},
    [SY_OP_REDUCE_MAX] = {1, 2, 1, "axes=I keepdims=i noop_with_empty_axes=i"},
    [SY_OP_REDUCE_MIN] = {1, 2, 1, "axes=I keepdims=i noop_with_empty_axes=i"},
    [SY_OP_REDUCE_PROD] = {1, 2, 1, "axes=I keepdims=i noop_with_empty_axes=i"},
    [SY_OP_REDUCE_L1] = {1, 2, 1, "axes=I keepdims=i noop_with_empty_axes=i"},
    [SY_OP_REDUCE_L2] = {1, 2, 1, "axes=I keepdims=i noop_with_empty_axes=i"},
    [SY_OP_REDUCE_LOG_SUM] = {1, 2, 1, "axes=I keepdims=i noop_with_empty_axes=i"},
    [SY_OP_REDUCE_LOG_SUM_EXP] = {1, 2, 1, "axes=I keepdims=i noop_with_empty_axes=i"},
    [SY_OP_REDUCE_SUM_SQUARE] = {1, 2, 1, "axes=I keepdims=i noop_with_empty_axes=i"},
    [SY_OP_ARG_MAX] = {1, 1, 1, "axis=i keepdims=i select_last_index=i"},
    [SY_OP_ARG_MIN] = {1, 1, 1, "axis=i keepdims=i select_last_index=i"},
    [SY_OP_CUM_PROD] = {2, 2, 1, "exclusive=i reverse=i"},
    [SY_OP_BIT_CAST] = {1, 1, 1, "to=i"},
    [SY_OP_CUM_SUM] = {2, 2, 1, "exclusive=i reverse=i"},
    [SY_OP_GATHER_ELEMENTS] = {2, 2, 1, "axis=i"},
    [SY_OP_GATHER_ND] = {2, 2, 1, "batch_dims=i"},
    [SY_OP_SCATTER_ELEMENTS] = {3, 3, 1, "axis=i reduction=s"},
    [SY_OP_SCATTER] = {3, 3, 1, "axis=i"},
    [SY_OP_SCATTER_ND] = {3, 3, 1, "reduction=s"},
    [SY_OP_ONE_HOT] = {3, 3, 1, "axis=i"},
    [SY_OP_COMPRESS] = {2, 2, 1, "axis=i"},
    [SY_OP_NON_ZERO] = {1, 1, 1, ""},
    [SY_OP_REVERSE_SEQUENCE] = {2, 2, 1, "batch_axis=i time_axis=i"},
    [SY_OP_UNIQUE] = {1, 1, 4, "axis=i sorted=i"},
    [SY_OP_TOP_K] = {1, 2, 2, "axis=i k=i largest=i sorted=i"},
    [SY_OP_TILE] = {2, 3, 1, ""},
    [SY_OP_SIZE] = {1, 1, 1, ""},
    [SY_OP_EYE_LIKE] = {1, 1, 1, "dtype=i k=i"},
    [SY_OP_RANDOM_NORMAL] = {0, 0, 1, "dtype=i mean=f scale=f seed=f shape=I"},
    [SY_OP_RANDOM_NORMAL_LIKE] = {1, 1, 1, "dtype=i mean=f scale=f seed=f"},
    [SY_OP_RANDOM_UNIFORM] = {0, 0, 1, "dtype=i high=f low=f seed=f shape=I"},
    [SY_OP_RANDOM_UNIFORM_LIKE] = {1, 1, 1, "dtype=i high=f low=f seed=f"},
    [SY_OP_BERNOULLI] = {1, 1, 1, "dtype=i seed=f"},
    [SY_OP_MULTINOMIAL] = {1, 1, 1, "dtype=i sample_size=i seed=f"},
    [SY_OP_TRILU] = {1, 2, 1, "upper=i"},
    [SY_OP_DEPTH_TO_SPACE] = {1, 1, 1, "blocksize=i mode=s"},
    [SY_OP_SPACE_TO_DEPTH] = {1, 1, 1, "blocksize=i mode=s"},
    [SY_OP_CAST_LIKE] = {2, 2, 1, "round_mode=s saturate=i"},
    [SY_OP_CONV_TRANSPOSE] = {2, 3, 1,
                              "auto_pad=s dilations=I group=i kernel_shape=I output_padding=I "
                              "output_shape=I pads=I strides=I"},
    [SY_OP_MAX_UNPOOL] = {2, 3, 1, "kernel_shape=I pads=I strides=I"},
    [SY_OP_LP_POOL] = {1, 1, 1,
                       "auto_pad=s ceil_mode=i dilations=I kernel_shape=I p=i pads=I strides=I"},
    [SY_OP_GLOBAL_LP_POOL] = {1, 1, 1, "p=i"},
    [SY_OP_LP_NORM] = {1, 1, 1, "axis=i p=i"},
    [SY_OP_MEAN_VARIANCE_NORM] = {1, 1, 1, "axes=I"},
    [SY_OP_INSTANCE_NORM] = {3, 3, 1, "epsilon=f"},
    [SY_OP_GROUP_NORM] = {3, 3, 1, "epsilon=f num_groups=i stash_type=i"},
    [SY_OP_RMS_NORM] = {2, 2, 1, "axis=i epsilon=f stash_type=i"},
    [SY_OP_SIMPLIFIED_LAYER_NORM] = {2, 2, 2, "axis=i epsilon=f stash_type=i"},
    [SY_OP_SWISH] = {1, 1, 1, "alpha=f"},
    [SY_OP_STFT] = {2, 4, 1, "onesided=i"},
    [SY_OP_MEL_WEIGHTS] = {5, 5, 1, "output_datatype=i"},
    [SY_OP_COL2IM] = {3, 3, 1, "dilations=I pads=I strides=I"},
    [SY_OP_AFFINE_GRID] = {2, 2, 1, "align_corners=i"},
    [SY_OP_ONNX_ATTENTION] =
        {3, 7, 4,
         "is_causal=i kv_num_heads=i left_window_size=i q_num_heads=i qk_matmul_output_mode=i "
         "right_window_size=i scale=f softcap=f softmax_precision=i"},
    [SY_OP_ROTARY_EMBEDDING] = {3, 4, 1, "interleaved=i num_heads=i rotary_embedding_dim=i"},
    [SY_OP_TENSOR_SCATTER] = {2, 3, 1, "axis=i mode=s"},
    [SY_OP_SEQUENCE_EMPTY] = {0, 0, 1, "dtype=i"},
    [SY_OP_SEQUENCE_CONSTRUCT] = {1, MANY, 1, ""},
    [SY_OP_SEQUENCE_INSERT] = {2, 3, 1, ""},
    [SY_OP_SEQUENCE_ERASE] = {1, 2, 1, ""},
    [SY_OP_SEQUENCE_AT] = {2, 2, 1, ""},
    [SY_OP_SEQUENCE_LENGTH] = {1, 1, 1, ""},
    [SY_OP_CONCAT_FROM_SEQUENCE] = {1, 1, 1, "axis=i new_axis=i"},
    [SY_OP_SPLIT_TO_SEQUENCE] = {1, 2, 1, "axis=i keepdims=i"},
    [SY_OP_SEQUENCE_MAP] = {1, MANY, MANY, "body=g"},
    [SY_OP_DEFORM_CONV] = {3, 5, 1,
                           "dilations=I group=i kernel_shape=I offset_group=i pads=I strides=I"},
    [SY_OP_SWIGLU] = {2, 2, 1, "alpha=f"},
    [SY_OP_CENTER_CROP_PAD] = {2, 2, 1, "axes=I"},
    [SY_OP_STEP_ADAGRAD] = {3, MANY, MANY, "decay_factor=f epsilon=f norm_coefficient=f"},
    [SY_OP_STEP_ADAM] = {3, MANY, MANY,
                         "alpha=f beta=f epsilon=f norm_coefficient=f norm_coefficient_post=f"},
    [SY_OP_GRADIENT] = {1, MANY, MANY, "xs=S y=s zs=S"},
    [SY_OP_STEP_MOMENTUM] = {3, MANY, MANY, "alpha=f beta=f mode=s norm_coefficient=f"},
    [SY_OP_OPTIONAL] = {0, 1, 1, "type=p"},
    [SY_OP_OPTIONAL_HAS_ELEMENT] = {0, 1, 1, ""},
    [SY_OP_OPTIONAL_GET_ELEMENT] = {1, 1, 1, ""},
    [SY_OP_SCAN] = {1, MANY, MANY,
                    "body=g directions=I num_scan_inputs=i scan_input_axes=I "
                    "scan_input_directions=I scan_output_axes=I scan_output_directions=I"},
    [SY_OP_HARDMAX] = {1, 1, 1, "axis=i"},
    [SY_OP_EINSUM] = {1, MANY, 1, "equation=s"},
    [SY_OP_RESIZE] =
        {1, 4, 1,
         "antialias=i axes=I coordinate_transformation_mode=s cubic_coeff_a=f exclude_outside=i "
         "extrapolation_value=f keep_aspect_ratio_policy=s mode=s nearest_mode=s"},
    [SY_OP_UPSAMPLE] = {1, 2, 1, "height_scale=f mode=s scales=F width_scale=f"},
    [SY_OP_LSTM] = {3, 8, 3,
                    "activation_alpha=F activation_beta=F activations=S clip=f direction=s "
                    "hidden_size=i input_forget=i layout=i output_sequence=i"},
    [SY_OP_GRU] = {3, 6, 2,
                   "activation_alpha=F activation_beta=F activations=S clip=f direction=s "
                   "hidden_size=i layout=i linear_before_reset=i output_sequence=i"},
    [SY_OP_RNN] = {3, 6, 2,
                   "activation_alpha=F activation_beta=F activations=S clip=f direction=s "
                   "hidden_size=i layout=i output_sequence=i"},
    [SY_OP_NON_MAX_SUPPRESSION] = {2, 5, 1, "center_point_box=i"},
    [SY_OP_ROI_ALIGN] = {3, 3, 1,
                         "coordinate_transformation_mode=s mode=s output_height=i output_width=i "
                         "sampling_ratio=i spatial_scale=f"},
    [SY_OP_MAX_ROI_POOL] = {2, 2, 1, "pooled_shape=I spatial_scale=f"},
    [SY_OP_GRID_SAMPLE] = {2, 2, 1, "align_corners=i mode=s padding_mode=s"},
    [SY_OP_NLL_LOSS] = {2, 3, 1, "ignore_index=i reduction=s"},
    [SY_OP_SOFTMAX_LOSS] = {2, 3, 2, "ignore_index=i reduction=s"},
    [SY_OP_DET] = {1, 1, 1, ""},
    [SY_OP_QUANTIZE_LINEAR] = {2, 3, 1,
                               "axis=i block_size=i output_dtype=i precision=i saturate=i"},
    [SY_OP_DEQUANTIZE_LINEAR] = {2, 3, 1, "axis=i block_size=i output_dtype=i"},
    [SY_OP_DYNAMIC_QUANTIZE_LINEAR] = {1, 1, 3, ""},
    [SY_OP_QLINEAR_CONV] = {8, 9, 1,
                            "auto_pad=s dilations=I group=i kernel_shape=I pads=I strides=I"},
    [SY_OP_QLINEAR_MATMUL] = {8, 8, 1, ""},
    [SY_OP_CONV_INTEGER] = {2, 4, 1,
                            "auto_pad=s dilations=I group=i kernel_shape=I pads=I strides=I"},
    [SY_OP_MATMUL_INTEGER] = {2, 4, 1, ""},
    [SY_OP_BLACKMAN_WINDOW] = {1, 1, 1, "output_datatype=i periodic=i"},
    [SY_OP_HAMMING_WINDOW] = {1, 1, 1, "output_datatype=i periodic=i"},
    [SY_OP_HANN_WINDOW] = {1, 1, 1, "output_datatype=i periodic=i"},
    [SY_OP_DFT] = {1, 3, 1, "axis=i inverse=i onesided=i"},
    [SY_OP_TF_IDF] = {1, 1, 1,
                      "max_gram_length=i max_skip_count=i min_gram_length=i mode=s ngram_counts=I "
                      "ngram_indexes=I pool_int64s=I pool_strings=S weights=F"},
    [SY_OP_STRING_NORMALIZER] = {1, 1, 1,
                                 "case_change_action=s is_case_sensitive=i locale=s stopwords=S"},
    [SY_OP_STRING_CONCAT] = {2, 2, 1, ""},
    [SY_OP_STRING_SPLIT] = {1, 1, 2, "delimiter=s maxsplit=i"},
    [SY_OP_REGEX_FULL_MATCH] = {1, 1, 1, "pattern=s"},
    [SY_OP_MS_TOKENIZER] = {1, 1, 1, "mark=i mincharnum=i pad_value=s separators=S tokenexp=s"},
    [SY_OP_IF] = {1, 1, MANY, "else_branch=g then_branch=g"},
    [SY_OP_LOOP] = {2, MANY, MANY, "body=g"},
    /* ONNX Runtime's and scikit-learn's: as ONNX Runtime 1.31 declares them */
    [SY_OP_MS_GELU] = {1, 1, 1, ""},
    [SY_OP_MS_FAST_GELU] = {1, 2, 1, ""},
    [SY_OP_MS_BIAS_GELU] = {2, 2, 1, ""},
    [SY_OP_MS_QUICK_GELU] = {1, 1, 1, "alpha=f"},
    [SY_OP_MS_FUSED_MATMUL] = {2, 2, 1, "alpha=f transA=i transB=i transBatchA=i transBatchB=i"},
    [SY_OP_MS_TRANSPOSE_MATMUL] = {2, 2, 1, "alpha=f transA=i transB=i"},
    [SY_OP_MS_FUSED_MATMUL_ACTIVATION] =
        {2, 2, 1,
         "activation=s activation_alpha=f activation_axis=i activation_beta=f "
         "activation_gamma=f alpha=f transA=i transB=i transBatchA=i transBatchB=i"},
    [SY_OP_MS_FUSED_GEMM] =
        {2, 3, 1,
         "activation=s activation_alpha=f activation_beta=f activation_gamma=f alpha=f beta=f "
         "transA=i transB=i"},
    [SY_OP_MS_FUSED_CONV] =
        {2, 4, 1,
         "activation=s activation_params=F auto_pad=s dilations=I group=i kernel_shape=I pads=I "
         "strides=I"},
    [SY_OP_MS_SKIP_LAYER_NORM] = {3, 5, 4, "epsilon=f"},
    [SY_OP_MS_SKIP_SIMPLIFIED_NORM] = {3, 4, 4, "epsilon=f"},
    [SY_OP_MS_EMBED_LAYER_NORM] = {7, 9, 3, "epsilon=f mask_index_type=i"},
    [SY_OP_MS_GROUP_NORM] = {3, 3, 1, "activation=i channels_last=i epsilon=f groups=i"},
    [SY_OP_MS_ATTENTION] =
        {2, 7, 2,
         "do_rotary=i mask_filter_value=f num_heads=i past_present_share_buffer=i "
         "qkv_hidden_sizes=I rotary_embedding_dim=i scale=f unidirectional=i"},
    [SY_OP_MS_QATTENTION] =
        {5, 9, 2,
         "do_rotary=i mask_filter_value=f num_heads=i past_present_share_buffer=i scale=f "
         "unidirectional=i"},
    [SY_OP_MS_MULTI_HEAD_ATTENTION] = {1, 10, 4,
                                       "mask_filter_value=f num_heads=i scale=f unidirectional=i"},
    [SY_OP_MS_ROTARY_EMBEDDING] =
        {4, 4, 1, "interleaved=i is_packed_batching=i num_heads=i rotary_embedding_dim=i scale=f"},
    [SY_OP_MS_GROUP_QUERY_ATTENTION] =
        {7, 16, 4,
         "causal=i do_rotary=i k_quant_type=s kv_cache_bit_width=i kv_num_heads=i "
         "local_window_size=i num_heads=i qk_norm_epsilon=f qk_output=i rotary_interleaved=i "
         "scale=f sliding_window_cache=i smooth_softmax=i softcap=f v_quant_type=s"},
    [SY_OP_MS_MATMUL_NBITS] = {3, 6, 1,
                               "K=i N=i accuracy_level=i bits=i block_size=i weight_prepacked=i"},
    [SY_OP_MS_QUANTIZE] = {2, 3, 1, "axis=i"},
    [SY_OP_MS_DEQUANTIZE] = {2, 3, 1, "axis=i"},
    [SY_OP_MS_TRILU] = {1, 2, 1, "upper=i"},
    [SY_OP_MS_UNIQUE] = {1, 1, 3, ""},
    [SY_OP_MS_RANGE] = {2, 3, 1, ""},
    [SY_OP_MS_GRID_SAMPLE] = {2, 2, 1, "align_corners=i mode=s padding_mode=s"},
    [SY_OP_MS_GATHER_ND] = {2, 2, 1, ""},
    [SY_OP_MS_PAD] = {2, 3, 1, "mode=s"},
    [SY_OP_MS_QLINEAR_ADD] = {7, 8, 1, ""},
    [SY_OP_MS_QLINEAR_MUL] = {7, 8, 1, ""},
    [SY_OP_MS_QLINEAR_SIGMOID] = {4, 5, 1, ""},
    [SY_OP_MS_QLINEAR_LEAKY_RELU] = {4, 5, 1, "alpha=f"},
    [SY_OP_MS_QLINEAR_SOFTMAX] = {5, 5, 1, "axis=i opset=i"},
    [SY_OP_MS_QLINEAR_POOL] =
        {4, 5, 1,
         "auto_pad=s ceil_mode=i channels_last=i count_include_pad=i kernel_shape=I pads=I "
         "strides=I"},
    [SY_OP_MS_QLINEAR_GLOBAL_POOL] = {5, 5, 1, "channels_last=i"},
    [SY_OP_MS_QLINEAR_CONCAT] = {3, MANY, 1, "axis=i"},
    [SY_OP_MS_QLINEAR_WHERE] = {9, 9, 1, ""},
    [SY_OP_MS_QGEMM] = {6, 9, 1, "alpha=f transA=i transB=i"},
    [SY_OP_MS_DYNAMIC_QUANTIZE_MATMUL] = {3, 5, 1, ""},
    [SY_OP_MS_MATMUL_INTEGER_TO_FLOAT] = {4, 7, 1, ""},
    [SY_OP_MS_DYNAMIC_QUANTIZE_LSTM] =
        {12, 12, 3,
         "activation_alpha=F activation_beta=F activations=S clip=f direction=s hidden_size=i "
         "input_forget=i"},
    [SY_OP_ML_SCALER] = {1, 1, 1, "offset=F scale=F"},
    [SY_OP_ML_EXTRACT] = {2, 2, 1, ""},
    [SY_OP_ML_BINARIZER] = {1, 1, 1, "threshold=f"},
    [SY_OP_ML_LINEAR_REGRESSOR] = {1, 1, 1,
                                   "coefficients=F intercepts=F post_transform=s targets=i"},
    [SY_OP_ML_LINEAR_CLASSIFIER] =
        {1, 1, 2,
         "classlabels_ints=I classlabels_strings=S coefficients=F intercepts=F multi_class=i "
         "post_transform=s"},
    [SY_OP_ML_NORMALIZER] = {1, 1, 1, "norm=s"},
    [SY_OP_ML_IMPUTER] = {1, 1, 1,
                          "imputed_value_floats=F imputed_value_int64s=I replaced_value_float=f "
                          "replaced_value_int64=i"},
    [SY_OP_ML_ZIP_MAP] = {1, 1, 1, "classlabels_int64s=I classlabels_strings=S"},
    [SY_OP_ML_CATEGORY_MAPPER] = {1, 1, 1,
                                  "cats_int64s=I cats_strings=S default_int64=i default_string=s"},
    [SY_OP_ML_ONE_HOT] = {1, 1, 1, "cats_int64s=I cats_strings=S zeros=i"},
    [SY_OP_ML_TREE_REGRESSOR] =
        {1, 1, 1,
         "aggregate_function=s base_values=F base_values_as_tensor=t n_targets=i "
         "nodes_falsenodeids=I nodes_featureids=I nodes_hitrates=F nodes_hitrates_as_tensor=t "
         "nodes_missing_value_tracks_true=I nodes_modes=S nodes_nodeids=I nodes_treeids=I "
         "nodes_truenodeids=I nodes_values=F nodes_values_as_tensor=t post_transform=s "
         "target_ids=I target_nodeids=I target_treeids=I target_weights=F "
         "target_weights_as_tensor=t"},
    [SY_OP_ML_TREE_CLASSIFIER] =
        {1, 1, 2,
         "base_values=F base_values_as_tensor=t class_ids=I class_nodeids=I class_treeids=I "
         "class_weights=F class_weights_as_tensor=t classlabels_int64s=I classlabels_strings=S "
         "nodes_falsenodeids=I nodes_featureids=I nodes_hitrates=F nodes_hitrates_as_tensor=t "
         "nodes_missing_value_tracks_true=I nodes_modes=S nodes_nodeids=I nodes_treeids=I "
         "nodes_truenodeids=I nodes_values=F nodes_values_as_tensor=t post_transform=s"},
    [SY_OP_ML_TREE_ENSEMBLE] =
        {1, 1, 1,
         "aggregate_function=i leaf_targetids=I leaf_weights=t membership_values=t n_targets=i "
         "nodes_falseleafs=I nodes_falsenodeids=I nodes_featureids=I nodes_hitrates=t "
         "nodes_missing_value_tracks_true=I nodes_modes=t nodes_splits=t nodes_trueleafs=I "
         "nodes_truenodeids=I post_transform=i tree_roots=I"},
    [SY_OP_ML_SVM_REGRESSOR] =
        {1, 1, 1,
         "coefficients=F kernel_params=F kernel_type=s n_supports=i one_class=i post_transform=s "
         "rho=F support_vectors=F"},
    [SY_OP_ML_SVM_CLASSIFIER] =
        {1, 1, 2,
         "classlabels_ints=I classlabels_strings=S coefficients=F kernel_params=F kernel_type=s "
         "post_transform=s prob_a=F prob_b=F rho=F support_vectors=F vectors_per_class=I"},
    [SY_OP_ML_FEATURE_VECTORIZER] = {1, MANY, 1, "inputdimensions=I"},
    [SY_OP_ML_LABEL_ENCODER] =
        {1, 1, 1,
         "classes_strings=S default_float=f default_int64=i default_string=s default_tensor=t "
         "keys_floats=F keys_int64s=I keys_strings=S keys_tensor=t values_floats=F "
         "values_int64s=I values_strings=S values_tensor=t"},
};

static const struct {
    Onnx__AttributeProto__AttributeType type;
    char letter;
    const char *text;
} kinds[] = {
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT, 'f', "a float"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT, 'i', "a whole number"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING, 's', "a string"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR, 't', "a tensor"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH, 'g', "a graph"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS, 'F', "floats"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS, 'I', "whole numbers"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS, 'S', "strings"},
    {ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TYPE_PROTO, 'p', "a type"},
};

/* Words that a string attribute may be, of these operators; what ONNX does not know may not be taken for what it is without the attribute. */
static const struct {
    enum sy_op op;
    const char *attribute, *words; /* each word with a blank behind it */
} choices[] = {
    {SY_OP_CONV, "auto_pad", AUTO_PADS},
    {SY_OP_CONV_TRANSPOSE, "auto_pad", AUTO_PADS},
    {SY_OP_QLINEAR_CONV, "auto_pad", AUTO_PADS},
    {SY_OP_CONV_INTEGER, "auto_pad", AUTO_PADS},
    {SY_OP_MAX_POOL, "auto_pad", AUTO_PADS},
    {SY_OP_AVERAGE_POOL, "auto_pad", AUTO_PADS},
    {SY_OP_LP_POOL, "auto_pad", AUTO_PADS},
    {SY_OP_LSTM, "direction", DIRECTIONS},
    {SY_OP_GRU, "direction", DIRECTIONS},
    {SY_OP_RNN, "direction", DIRECTIONS},
    {SY_OP_BIT_SHIFT, "direction", "LEFT RIGHT "},
    {SY_OP_PAD, "mode", "constant reflect edge wrap "},
    {SY_OP_RESIZE, "mode", "nearest linear cubic "},
    {SY_OP_RESIZE, "coordinate_transformation_mode",
     "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric "
     "tf_half_pixel_for_nn tf_crop_and_resize "},
    {SY_OP_RESIZE, "nearest_mode", "round_prefer_floor round_prefer_ceil floor ceil "},
    {SY_OP_RESIZE, "keep_aspect_ratio_policy", "stretch not_larger not_smaller "},
    {SY_OP_UPSAMPLE, "mode", "nearest linear bilinear "},
    {SY_OP_DEPTH_TO_SPACE, "mode", "DCR CRD "},
    {SY_OP_SPACE_TO_DEPTH, "mode", "DCR "},
    {SY_OP_GELU, "approximate", "none tanh "},
    {SY_OP_SCATTER_ELEMENTS, "reduction", "none add mul max min "},
    {SY_OP_SCATTER_ND, "reduction", "none add mul max min "},
    {SY_OP_NLL_LOSS, "reduction", "none sum mean "},
    {SY_OP_SOFTMAX_LOSS, "reduction", "none sum mean "},
    {SY_OP_ROI_ALIGN, "mode", "avg max "},
    {SY_OP_ROI_ALIGN, "coordinate_transformation_mode", "half_pixel output_half_pixel "},
    {SY_OP_GRID_SAMPLE, "mode", "bilinear nearest bicubic linear cubic "},
    {SY_OP_GRID_SAMPLE, "padding_mode", "zeros border reflection "},
    {SY_OP_TF_IDF, "mode", "TF IDF TFIDF "},
    {SY_OP_TENSOR_SCATTER, "mode", "linear circular "},
    {SY_OP_STEP_MOMENTUM, "mode", "standard nesterov "},
    {SY_OP_CAST, "round_mode", "up down nearest "}, /* of float8, which is refused */
    {SY_OP_CAST_LIKE, "round_mode", "up down nearest "},
};

static bool is_word(const char *words, const ProtobufCBinaryData *text)
{
    for (size_t n; (n = strcspn(words, " ")) > 0; words += n + 1)
        if (n == text->len && memcmp(words, text->data, n) == 0)
            return true;
    return false;
}

static int check_choice(enum sy_op op, const Onnx__AttributeProto *attr)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(choices); i++)
        if (choices[i].op == op && strcmp(choices[i].attribute, attr->name) == 0 &&
            attr->s.len > 0 && !is_word(choices[i].words, &attr->s))
            return sy_error_set(SY_EUNSUPPORTED, "attribute '%.60s' is '%.*s'; known: %s",
                                attr->name, (int)SY_MIN(attr->s.len, 60u),
                                (const char *)attr->s.data, choices[i].words);
    return SY_OK;
}

/* The letter of the attribute's kind; 0: the operator has none of that name. */
static char find_attribute(const struct schema *schema, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = schema->attributes; *at;) {
        size_t length = strcspn(at, "=");
        if (length == n && memcmp(at, name, n) == 0)
            return at[n + 1];
        at += length + 2;
        at += strspn(at, " ");
    }
    return 0;
}

static int check_attribute(const struct schema *schema, const Onnx__AttributeProto *attr)
{
    const char *name = sy_onnx_text(attr->name);
    char letter = find_attribute(schema, name);
    if (!letter)
        return sy_error_set(SY_EUNSUPPORTED, "it has no attribute '%.60s' that is supported", name);
    for (size_t i = 0; i < SY_ARRAY_LEN(kinds); i++)
        if (kinds[i].letter == letter && kinds[i].type != attr->type)
            return sy_error_set(SY_ECORRUPT, "attribute '%.60s' has kind %d, it must be %s", name,
                                (int)attr->type, kinds[i].text);
    return SY_OK;
}

int sy_onnx_check_node(enum sy_op op, const Onnx__NodeProto *node)
{
    const struct schema *schema = &schemas[op];
    if (!schema->attributes)
        return SY_OK;
    size_t n = node->n_input;
    while (n > 0 && !*sy_onnx_text(node->input[n - 1])) /* left out */
        n--;
    if (n < (size_t)schema->least_inputs || n > (size_t)schema->most_inputs)
        return sy_error_set(SY_ECORRUPT, "%zu inputs; it takes %d to %d", n, schema->least_inputs,
                            schema->most_inputs);
    if (node->n_output > (size_t)schema->most_outputs)
        return sy_error_set(SY_ECORRUPT, "%zu outputs; it has at most %d", node->n_output,
                            schema->most_outputs);
    for (size_t i = 0; i < node->n_attribute; i++) {
        SY_TRY(check_attribute(schema, node->attribute[i]));
        SY_TRY(check_choice(op, node->attribute[i]));
        for (size_t k = 0; k < i; k++) /* all have names of the schema, so they are few */
            if (strcmp(node->attribute[k]->name, node->attribute[i]->name) == 0)
                return sy_error_set(SY_ECORRUPT, "attribute '%.60s' is there twice",
                                    node->attribute[i]->name);
    }
    return SY_OK;
}
