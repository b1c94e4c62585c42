/* Operators as a formula for each element, or each line, of the result: arrays of any element type, row-major, computed in double or in
 * int64 and rounded once, as the host engine's kernels (workers/host/reference/kernel.h), whose checks say what fits. For what is rare, and for types
 * that the other kernels do not know. Pure description: kernels_generic*.cu compute it. */
#ifndef SY_WORKERS_CUDA_MATH_GENERIC_H
#define SY_WORKERS_CUDA_MATH_GENERIC_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"
#include "workers/engine/curve_formulas.h"
#include "workers/engine/train_philox.h"

#define SY_GENERIC_IN     32 /* as many as the host engine's kernels take */
#define SY_GENERIC_OUT    4
#define SY_GENERIC_ARRAYS (SY_GENERIC_IN + SY_GENERIC_OUT + 1)
#define SY_GENERIC_ROOM \
    (SY_GENERIC_IN + SY_GENERIC_OUT) /* of int64 or double: what the kernel needs for itself */

struct sy_generic_array {
    enum sy_dtype dtype; /* NONE: left out */
    int rank;
    int64_t n, dims[SY_MAX_RANK];
    int64_t strides
        [SY_MAX_RANK]; /* seen with the first result's dims where the operator repeats its inputs, else its own */
};

/* X(name): one kernel each. */
#define SY_GENERIC_TABLE(X) \
    X(ONE)                  \
    X(PAIR)                 \
    X(WHERE)                \
    X(BOUND)                \
    X(FILL)                 \
    X(TRIANGLE)             \
    X(RANGE)                \
    X(ONE_HOT)              \
    X(REVERSE)              \
    X(RANDOM)               \
    X(PAD)                  \
    X(PAD_BACK)             \
    X(RUNNING_SUM)          \
    X(TOP)                  \
    X(GATHER_ALONG)         \
    X(GATHER_TUPLES)        \
    X(SCATTER_ALONG)        \
    X(SCATTER_TUPLES)       \
    X(LINE)                 \
    X(ARG)                  \
    X(BATCH)                \
    X(NORM)                 \
    X(DYNAMIC)              \
    X(LOSS)                 \
    X(REDUCTION)            \
    X(NEIGHBOURS)           \
    X(RESIZE)               \
    X(PRODUCT)              \
    X(QUANTIZE)             \
    X(INTEGER_PRODUCT)      \
    X(INTEGER_CONV)         \
    X(WINDOW)               \
    X(SAMPLE)               \
    X(REGION)               \
    X(PIXEL_REGION)         \
    X(UNPOOL)               \
    X(NUMBERS)              \
    X(VIEW)                 \
    X(EXPAND)               \
    X(TILE)                 \
    X(SLICE)                \
    X(SPLIT)                \
    X(NON_ZERO)             \
    X(COMPRESS)             \
    X(UNIQUE)               \
    X(SUPPRESS)             \
    X(TAPER)                \
    X(DFT)                  \
    X(DET)                  \
    X(GRAMS)

enum sy_generic_kind {
#define X(name) SY_GENERIC_##name,
    SY_GENERIC_TABLE(X)
#undef X
};

/* ---- what each kind has beside its arrays: the node's attributes, and sizes made of the shapes ----------- */

struct sy_generic_one {
    struct sy_curve curve;
    bool positive, negative; /* IsInf: which count */
};

struct sy_generic_pair {
    bool c_rule;  /* Mod: the sign of the dividend */
    bool is_left; /* BitShift */
};

struct sy_generic_fill {
    int result; /* which one */
    bool is_diagonal;
    int64_t diagonal;
};

struct sy_generic_triangle {
    bool is_upper;
};

struct sy_generic_reverse {
    int batch_axis;
};

struct sy_generic_top {
    bool largest;
};

enum sy_generic_padding {
    SY_GENERIC_CONSTANT,
    SY_GENERIC_EDGE,
    SY_GENERIC_REFLECT,
    SY_GENERIC_WRAP
};

struct sy_generic_pad {
    enum sy_generic_padding mode;
    int64_t before[SY_MAX_RANK];
    double value;
};

struct sy_generic_running_sum {
    bool excludes, backward;
};

enum sy_generic_combine {
    SY_GENERIC_PUT,
    SY_GENERIC_ADD,
    SY_GENERIC_MUL,
    SY_GENERIC_MAX,
    SY_GENERIC_MIN
};

/* Tuples of indices, and scatters. */
struct sy_generic_indices {
    int first;      /* dimension that tuples begin with */
    int depth;      /* indices of a tuple */
    int64_t run;    /* elements that one tuple names */
    int64_t block;  /* elements of a batch */
    int64_t tuples; /* of a batch */
    enum sy_generic_combine reduction;
    int64_t parts; /* threads that share a column */
};

struct sy_generic_line {
    int64_t length, inner; /* elements, and how far apart they are */
    int64_t p;             /* LpNormalization */
    bool takes_last;       /* ArgMax: of equal ones */
};

/* Dimensions of the input, the last one first. */
struct sy_generic_dims {
    int n;
    int64_t sizes[SY_MAX_RANK], strides[SY_MAX_RANK];
};

struct sy_generic_reduction {
    struct sy_generic_dims kept, reduced;
    int64_t length;  /* elements of one sum */
    bool is_dynamic; /* axes are input 1: the kernel says what is kept and what is reduced */
    bool keeps, none_is_all;
};

struct sy_generic_norm {
    int64_t length; /* of a row */
    double epsilon, momentum;
};

struct sy_generic_neighbours {
    int64_t size;
    double alpha, beta, bias;
};

enum sy_generic_total { SY_GENERIC_LOSS_MEAN, SY_GENERIC_LOSS_SUM, SY_GENERIC_LOSS_NONE };

struct sy_generic_loss {
    enum sy_generic_total total;
    bool has_ignored;
    int64_t ignored;
};

enum sy_generic_interpolation { SY_GENERIC_NEAREST, SY_GENERIC_LINEAR, SY_GENERIC_CUBIC };
enum sy_generic_rounding {
    SY_GENERIC_HALF_DOWN,
    SY_GENERIC_HALF_UP,
    SY_GENERIC_FLOOR,
    SY_GENERIC_CEIL
};
enum sy_generic_place {
    SY_GENERIC_HALF_PIXEL,
    SY_GENERIC_PYTORCH_HALF_PIXEL,
    SY_GENERIC_ALIGN_CORNERS,
    SY_GENERIC_ASYMMETRIC,
    SY_GENERIC_TF_HALF_PIXEL,
    SY_GENERIC_TF_CROP,
    SY_GENERIC_HALF_PIXEL_SYMMETRIC
};

struct sy_generic_resize {
    enum sy_generic_interpolation mode;
    enum sy_generic_rounding rounding;
    enum sy_generic_place place;
    bool excludes;                 /* positions outside */
    bool has_roi;                  /* as input 1 */
    bool scales_given;             /* as input 2 */
    int n_axes, axes[SY_MAX_RANK]; /* by dimension: which of the scales; -1: none */
    float scales[SY_MAX_RANK];
    double cubic, outside; /* coefficient; value of what a crop takes from outside */
};

#define SY_GENERIC_LABELS 24

/* Labels of the result first, then those that are summed over. A factor's strides are those of its labels; what is left over is 0. */
struct sy_generic_product {
    int n_labels, n_result;
    int row_label, column_label; /* -1: a vector has none */
    int64_t sizes[SY_GENERIC_LABELS];
    uint8_t labels[SY_GENERIC_IN][SY_MAX_RANK]; /* by array */
    double alpha;
};

struct sy_generic_quantize {
    int64_t length, inner; /* scales, and elements between two */
};

struct sy_generic_window {
    int64_t size; /* elements */
    int64_t kernel[SY_MAX_RANK], strides[SY_MAX_RANK], dilations[SY_MAX_RANK], pads[SY_MAX_RANK],
        pads_behind[SY_MAX_RANK];
    int64_t p, groups;
    bool counts_padding;
    bool turns; /* indices of a maximum: column-major */
};

enum sy_generic_border { SY_GENERIC_ZEROS, SY_GENERIC_BORDER, SY_GENERIC_REFLECTION };

struct sy_generic_sample {
    int taps; /* pixels along a dimension */
    enum sy_generic_border padding;
    bool aligns;
};

struct sy_generic_region {
    int64_t samples; /* of a bin along a dimension; 0: by its size */
    bool is_half;
    bool is_max; /* the largest sample of a bin, not their mean */
    double scale;
};

/* Whole pixels, their largest. */
struct sy_generic_pixel_region {
    float scale;
};

#define SY_GENERIC_NUMBERS_MOST 96

/* Some of the result's elements. */
struct sy_generic_numbers {
    int64_t first, at[SY_GENERIC_NUMBERS_MOST];
};

/* Some of the parts. Who makes more than one node's worth of them says which, before the description is made. */
struct sy_generic_split {
    int64_t parts;  /* of the node; 0: these are all */
    int64_t before; /* parts in front of these */
    int64_t offset; /* their elements along the axis */
};

struct sy_generic_view {
    bool keeps_zero; /* RunReshape: a 0 is no dimension of the input */
};

/* Results whose size the data says, and a single one: those along an axis, or of all elements. */
struct sy_generic_counted {
    int64_t outer, length, inner;
    bool sorted;
};

struct sy_generic_suppress {
    bool has_centers;
};

struct sy_generic_taper {
    bool periodic;
};

struct sy_generic_dft {
    int64_t n, bins, inner; /* n: 0 if input 1 says it */
    bool inverse, from_half;
};

#define SY_GENERIC_GRAMS_MOST 24
#define SY_GENERIC_POOL_MOST  64

/* Some of the grams; the first of them begin with zeros. */
struct sy_generic_grams {
    bool begins, counts, weighs;
    int32_t n, length; /* of each */
    int64_t skips, columns;
    int64_t pool[SY_GENERIC_POOL_MOST], index[SY_GENERIC_GRAMS_MOST];
    float weights[SY_GENERIC_GRAMS_MOST];
};

struct sy_math_generic {
    enum sy_generic_kind kind;
    enum sy_op op;
    int n_in, n_out;
    struct sy_generic_array at[SY_GENERIC_ARRAYS]; /* inputs, then results from SY_GENERIC_IN on */
    int64_t items;                                 /* threads that have something to do */
    int64_t axis, step;                            /* step: what to write into the fault */
    union {
        struct sy_generic_one one;
        struct sy_generic_pair pair;
        struct sy_generic_fill fill;
        struct sy_generic_triangle triangle;
        struct sy_generic_reverse reverse;
        struct sy_draw random;
        struct sy_generic_top top;
        struct sy_generic_pad pad;
        struct sy_generic_running_sum running_sum;
        struct sy_generic_indices indices;
        struct sy_generic_line line;
        struct sy_generic_reduction reduction;
        struct sy_generic_norm norm;
        struct sy_generic_neighbours neighbours;
        struct sy_generic_loss loss;
        struct sy_generic_resize resize;
        struct sy_generic_product product;
        struct sy_generic_quantize quantize;
        struct sy_generic_window window;
        struct sy_generic_sample sample;
        struct sy_generic_region region;
        struct sy_generic_pixel_region pixel_region;
        struct sy_generic_numbers numbers;
        struct sy_generic_view view;
        struct sy_generic_split split;
        struct sy_generic_counted counted;
        struct sy_generic_suppress suppress;
        struct sy_generic_taper taper;
        struct sy_generic_dft dft;
        struct sy_generic_grams grams;
    } as; /* by kind */
};

/* Whether there is a formula, of some types. */
bool sy_generic_has(enum sy_op op);
/* Inputs and results by dtype, rank, dims (n and strides are filled in); the node's attributes. `copies_first`: the first result is a copy of the
 * first input before the kernel runs. EUNSUPPORTED names the node: no formula, other types, what does not fit. */
int sy_generic_describe(const struct sy_node *node, struct sy_math_generic *each,
                        bool *copies_first);
/* The part of it that looks at types and shapes, for operators that have no formula of their own in the table. */
int sy_generic_check(const struct sy_node *node, struct sy_math_generic *each);

#endif
