/* Which of a struct sy_math_each's numbers is what: each.c writes them, the kernels read them. Of one kind no two share a place. */
#ifndef SY_WORKERS_CUDA_EACH_NUMBERS_H
#define SY_WORKERS_CUDA_EACH_NUMBERS_H

#include "loader/graph.h"

enum {
    /* ONE */
    EACH_IS_TANH_FORM = 0,
    EACH_POSITIVE = 1,
    EACH_NEGATIVE = 2,
    /* PAIR */
    EACH_C_RULE = 0,
    EACH_IS_LEFT = 1,
    /* FILL */
    EACH_RESULT = 0, /* which one */
    EACH_IS_DIAGONAL = 1,
    EACH_DIAGONAL = 2,
    /* TRIANGLE, REVERSE, TOP */
    EACH_IS_UPPER = 0,
    EACH_BATCH_AXIS = 0,
    EACH_LARGEST = 0,
    /* PAD, RESIZE, SAMPLE, LOSS (mean, sum, none) */
    EACH_MODE = 0,
    EACH_BEFORE = 1, /* by dimension */
    /* RUNNING_SUM, RESIZE */
    EACH_EXCLUDES = 1,
    EACH_BACKWARD = 2,
    /* tuples of indices, scatters */
    EACH_FIRST = 0, /* dimension that they begin with */
    EACH_DEPTH = 1,
    EACH_RUN = 2,   /* elements that one tuple names */
    EACH_BLOCK = 3, /* elements of a batch */
    EACH_EACH = 4,  /* tuples of a batch */
    EACH_REDUCTION = 5,
    EACH_PARTS = 6,
    /* lines, sums, windows */
    EACH_LENGTH = 0,
    EACH_INNER = 1,
    EACH_P = 2,
    EACH_TAKES_LAST = 3,
    EACH_N_KEPT = 4,
    EACH_N_REDUCED = 5,
    EACH_KEPT = 8, /* sizes, the last dimension first */
    EACH_KEPT_STRIDES = EACH_KEPT + SY_MAX_RANK,
    EACH_REDUCED = EACH_KEPT_STRIDES + SY_MAX_RANK,
    EACH_REDUCED_STRIDES = EACH_REDUCED + SY_MAX_RANK,
    EACH_COUNTS_PADDING = 3,
    EACH_TURNS = 4,
    EACH_GROUPS = 5,
    EACH_KERNEL = 8,
    EACH_STRIDES = EACH_KERNEL + SY_MAX_RANK,
    EACH_DILATIONS = EACH_STRIDES + SY_MAX_RANK,
    EACH_PADS = EACH_DILATIONS + SY_MAX_RANK,
    EACH_PADS_BEHIND = EACH_PADS + SY_MAX_RANK,
    /* LOSS */
    EACH_HAS_IGNORED = 1,
    EACH_IGNORED = 2,
    /* RESIZE */
    EACH_ROUNDING = 2,
    EACH_PLACE = 3,
    EACH_HAS_ROI = 4,
    EACH_SCALES_GIVEN = 5, /* as input 2 */
    EACH_N_AXES = 6,
    EACH_AXES = 8,                         /* by dimension: which of the scales; -1: none */
    EACH_SCALES = EACH_AXES + SY_MAX_RANK, /* floats, by their bits */
    /* products: labels of the result first */
    EACH_N_LABELS = 0,
    EACH_N_RESULT = 1,
    EACH_ROW_LABEL = 2,
    EACH_COLUMN_LABEL = 3,
    EACH_MAX_LABELS = 24,
    EACH_MAX_FACTORS = 4,
    EACH_SIZES = 8,
    EACH_FACTORS = EACH_SIZES + EACH_MAX_LABELS, /* strides, by operand */
    /* SAMPLE, REGION */
    EACH_TAPS = 1,
    EACH_ALIGNS = 2,
    EACH_IS_HALF = 2
};

#endif
