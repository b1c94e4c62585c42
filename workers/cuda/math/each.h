/* Operators as a formula for each element, or each line, of the result: arrays of any element type, row-major, computed in double or in
 * int64 and rounded once, as the host engine's kernels (workers/host/reference/kernel.h), whose checks say what fits. For what is rare, and for types
 * that the other kernels do not know. Pure description: kernels_each*.cu compute it. */
#ifndef SY_WORKERS_CUDA_MATH_EACH_H
#define SY_WORKERS_CUDA_MATH_EACH_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"
#include "workers/engine/curve_formulas.h"
#include "workers/engine/train_philox.h"

#define SY_EACH_IN     32 /* as many as the host engine's kernels take */
#define SY_EACH_OUT    4
#define SY_EACH_ARRAYS (SY_EACH_IN + SY_EACH_OUT + 1)
#define SY_EACH_ROOM \
    (SY_EACH_IN + SY_EACH_OUT) /* of int64 or double: what the kernel needs for itself */

struct sy_each_array {
    enum sy_dtype dtype; /* NONE: left out */
    int rank;
    int64_t n, dims[SY_MAX_RANK];
    int64_t strides
        [SY_MAX_RANK]; /* seen with the first result's dims where the operator repeats its inputs, else its own */
};

/* X(name): one kernel each. */
#define SY_EACH_TABLE(X) \
    X(ONE)               \
    X(PAIR)              \
    X(WHERE)             \
    X(BOUND)             \
    X(FILL)              \
    X(TRIANGLE)          \
    X(RANGE)             \
    X(ONE_HOT)           \
    X(REVERSE)           \
    X(RANDOM)            \
    X(PAD)               \
    X(PAD_BACK)          \
    X(RUNNING_SUM)       \
    X(TOP)               \
    X(GATHER_ALONG)      \
    X(GATHER_TUPLES)     \
    X(SCATTER_ALONG)     \
    X(SCATTER_TUPLES)    \
    X(LINE)              \
    X(ARG)               \
    X(BATCH)             \
    X(NORM)              \
    X(DYNAMIC)           \
    X(LOSS)              \
    X(FOLD)              \
    X(NEIGHBOURS)        \
    X(RESIZE)            \
    X(PRODUCT)           \
    X(QUANTIZE)          \
    X(INTEGER_PRODUCT)   \
    X(INTEGER_CONV)      \
    X(WINDOW)            \
    X(SAMPLE)            \
    X(REGION)            \
    X(PIXEL_REGION)      \
    X(UNPOOL)            \
    X(NUMBERS)           \
    X(VIEW)              \
    X(EXPAND)            \
    X(TILE)              \
    X(SLICE)             \
    X(SPLIT)             \
    X(NON_ZERO)          \
    X(COMPRESS)          \
    X(UNIQUE)            \
    X(SUPPRESS)          \
    X(TAPER)             \
    X(DFT)               \
    X(DET)               \
    X(GRAMS)

enum sy_each_kind {
#define X(name) SY_EACH_##name,
    SY_EACH_TABLE(X)
#undef X
};

/* ---- what each kind has beside its arrays: the node's attributes, and sizes made of the shapes ----------- */

struct sy_each_one {
    struct sy_curve curve;
    bool positive, negative; /* IsInf: which count */
};

struct sy_each_pair {
    bool c_rule;  /* Mod: the sign of the dividend */
    bool is_left; /* BitShift */
};

struct sy_each_fill {
    int result; /* which one */
    bool is_diagonal;
    int64_t diagonal;
};

struct sy_each_triangle {
    bool is_upper;
};

struct sy_each_reverse {
    int batch_axis;
};

struct sy_each_top {
    bool largest;
};

enum sy_each_padding { SY_EACH_CONSTANT, SY_EACH_EDGE, SY_EACH_REFLECT, SY_EACH_WRAP };

struct sy_each_pad {
    enum sy_each_padding mode;
    int64_t before[SY_MAX_RANK];
    double value;
};

struct sy_each_running_sum {
    bool excludes, backward;
};

enum sy_each_reduction { SY_EACH_PUT, SY_EACH_ADD, SY_EACH_MUL, SY_EACH_MAX, SY_EACH_MIN };

/* Tuples of indices, and scatters. */
struct sy_each_indices {
    int first;      /* dimension that tuples begin with */
    int depth;      /* indices of a tuple */
    int64_t run;    /* elements that one tuple names */
    int64_t block;  /* elements of a batch */
    int64_t tuples; /* of a batch */
    enum sy_each_reduction reduction;
    int64_t parts; /* threads that share a column */
};

struct sy_each_line {
    int64_t length, inner; /* elements, and how far apart they are */
    int64_t p;             /* LpNormalization */
    bool takes_last;       /* ArgMax: of equal ones */
};

/* Dimensions of the input, the last one first. */
struct sy_each_dims {
    int n;
    int64_t sizes[SY_MAX_RANK], strides[SY_MAX_RANK];
};

struct sy_each_fold {
    struct sy_each_dims kept, reduced;
    int64_t length; /* elements of one sum */
    bool at_run;    /* axes are input 1: the kernel says what is kept and what is reduced */
    bool keeps, none_is_all;
};

struct sy_each_norm {
    int64_t length; /* of a row */
    double epsilon, momentum;
};

struct sy_each_neighbours {
    int64_t size;
    double alpha, beta, bias;
};

enum sy_each_total { SY_EACH_LOSS_MEAN, SY_EACH_LOSS_SUM, SY_EACH_LOSS_NONE };

struct sy_each_loss {
    enum sy_each_total total;
    bool has_ignored;
    int64_t ignored;
};

enum sy_each_interpolation { SY_EACH_NEAREST, SY_EACH_LINEAR, SY_EACH_CUBIC };
enum sy_each_rounding { SY_EACH_HALF_DOWN, SY_EACH_HALF_UP, SY_EACH_FLOOR, SY_EACH_CEIL };
enum sy_each_place {
    SY_EACH_HALF_PIXEL,
    SY_EACH_PYTORCH_HALF_PIXEL,
    SY_EACH_ALIGN_CORNERS,
    SY_EACH_ASYMMETRIC,
    SY_EACH_TF_HALF_PIXEL,
    SY_EACH_TF_CROP,
    SY_EACH_HALF_PIXEL_SYMMETRIC
};

struct sy_each_resize {
    enum sy_each_interpolation mode;
    enum sy_each_rounding rounding;
    enum sy_each_place place;
    bool excludes;                 /* positions outside */
    bool has_roi;                  /* as input 1 */
    bool scales_given;             /* as input 2 */
    int n_axes, axes[SY_MAX_RANK]; /* by dimension: which of the scales; -1: none */
    float scales[SY_MAX_RANK];
    double cubic, outside; /* coefficient; value of what a crop takes from outside */
};

#define SY_EACH_LABELS 24

/* Labels of the result first, then those that are summed over. A factor's strides are those of its labels; what is left over is 0. */
struct sy_each_product {
    int n_labels, n_result;
    int row_label, column_label; /* -1: a vector has none */
    int64_t sizes[SY_EACH_LABELS];
    uint8_t labels[SY_EACH_IN][SY_MAX_RANK]; /* by array */
    double alpha;
};

struct sy_each_quantize {
    int64_t length, inner; /* scales, and elements between two */
};

struct sy_each_window {
    int64_t size; /* elements */
    int64_t kernel[SY_MAX_RANK], strides[SY_MAX_RANK], dilations[SY_MAX_RANK], pads[SY_MAX_RANK],
        pads_behind[SY_MAX_RANK];
    int64_t p, groups;
    bool counts_padding;
    bool turns; /* indices of a maximum: column-major */
};

enum sy_each_border { SY_EACH_ZEROS, SY_EACH_BORDER, SY_EACH_REFLECTION };

struct sy_each_sample {
    int taps; /* pixels along a dimension */
    enum sy_each_border padding;
    bool aligns;
};

struct sy_each_region {
    int64_t samples; /* of a bin along a dimension; 0: by its size */
    bool is_half;
    bool is_max; /* the largest sample of a bin, not their mean */
    double scale;
};

/* Whole pixels, their largest. */
struct sy_each_pixel_region {
    float scale;
};

#define SY_EACH_NUMBERS_MOST 96

/* Some of the result's elements. */
struct sy_each_numbers {
    int64_t first, at[SY_EACH_NUMBERS_MOST];
};

/* Some of the parts. Who makes more than one node's worth of them says which, before the description is made. */
struct sy_each_split {
    int64_t parts;  /* of the node; 0: these are all */
    int64_t before; /* parts in front of these */
    int64_t offset; /* their elements along the axis */
};

struct sy_each_view {
    bool keeps_zero; /* RunReshape: a 0 is no dimension of the input */
};

/* Results whose size the data says, and a single one: those along an axis, or of all elements. */
struct sy_each_counted {
    int64_t outer, length, inner;
    bool sorted;
};

struct sy_each_suppress {
    bool has_centers;
};

struct sy_each_taper {
    bool periodic;
};

struct sy_each_dft {
    int64_t n, bins, inner; /* n: 0 if input 1 says it */
    bool inverse, from_half;
};

#define SY_EACH_GRAMS_MOST 24
#define SY_EACH_POOL_MOST  64

/* Some of the grams; the first of them begin with zeros. */
struct sy_each_grams {
    bool begins, counts, weighs;
    int32_t n, length; /* of each */
    int64_t skips, columns;
    int64_t pool[SY_EACH_POOL_MOST], index[SY_EACH_GRAMS_MOST];
    float weights[SY_EACH_GRAMS_MOST];
};

struct sy_math_each {
    enum sy_each_kind kind;
    enum sy_op op;
    int n_in, n_out;
    struct sy_each_array at[SY_EACH_ARRAYS]; /* inputs, then results from SY_EACH_IN on */
    int64_t items;                           /* threads that have something to do */
    int64_t axis, step;                      /* step: what to write into the fault */
    union {
        struct sy_each_one one;
        struct sy_each_pair pair;
        struct sy_each_fill fill;
        struct sy_each_triangle triangle;
        struct sy_each_reverse reverse;
        struct sy_draw random;
        struct sy_each_top top;
        struct sy_each_pad pad;
        struct sy_each_running_sum running_sum;
        struct sy_each_indices indices;
        struct sy_each_line line;
        struct sy_each_fold fold;
        struct sy_each_norm norm;
        struct sy_each_neighbours neighbours;
        struct sy_each_loss loss;
        struct sy_each_resize resize;
        struct sy_each_product product;
        struct sy_each_quantize quantize;
        struct sy_each_window window;
        struct sy_each_sample sample;
        struct sy_each_region region;
        struct sy_each_pixel_region pixel_region;
        struct sy_each_numbers numbers;
        struct sy_each_view view;
        struct sy_each_split split;
        struct sy_each_counted counted;
        struct sy_each_suppress suppress;
        struct sy_each_taper taper;
        struct sy_each_dft dft;
        struct sy_each_grams grams;
    } as; /* by kind */
};

/* Whether there is a formula, of some types. */
bool sy_each_has(enum sy_op op);
/* Inputs and results by dtype, rank, dims (n and strides are filled in); the node's attributes. `copies_first`: the first result is a copy of the
 * first input before the kernel runs. EUNSUPPORTED names the node: no formula, other types, what does not fit. */
int sy_each_describe(const struct sy_node *node, struct sy_math_each *each, bool *copies_first);
/* The part of it that looks at types and shapes, for operators that have no formula of their own in the table. */
int sy_each_check(const struct sy_node *node, struct sy_math_each *each);

#endif
