/* The curves of recurrent cells: one text for the host's loops and the CUDA kernels. */
#ifndef SY_WORKERS_ENGINE_CELL_CURVES_H
#define SY_WORKERS_ENGINE_CELL_CURVES_H

#include <math.h>
#include <stdbool.h>

#include "workers/engine/formula.h"
#include "workers/engine/train_formulas.h"

/* X(enumerator, name in lower case, alpha, beta): what a curve has where the lists of parameters end; NAN: it takes none. */
#define SY_CELL_CURVE_TABLE(X)                        \
    X(SIGMOID, "sigmoid", NAN, NAN)                   \
    X(TANH, "tanh", NAN, NAN)                         \
    X(RELU, "relu", NAN, NAN)                         \
    X(HARD_SIGMOID, "hardsigmoid", 0.2f, 0.5f)        \
    X(SOFTSIGN, "softsign", NAN, NAN)                 \
    X(SOFTPLUS, "softplus", NAN, NAN)                 \
    X(LEAKY_RELU, "leakyrelu", 0.01f, NAN)            \
    X(THRESHOLDED_RELU, "thresholdedrelu", 1.0f, NAN) \
    X(ELU, "elu", 1.0f, NAN)                          \
    X(AFFINE, "affine", 1.0f, 0.0f)                   \
    X(SCALED_TANH, "scaledtanh", 1.0f, 1.0f)

enum sy_cell_curve_kind {
#define X(name, text, alpha, beta) SY_CELL_CURVE_##name,
    SY_CELL_CURVE_TABLE(X)
#undef X
};

struct sy_cell_curve {
    enum sy_cell_curve_kind kind;
    float alpha, beta;
};

#define SY_CELL_CURVES 3 /* of gates, of what is new, of what LSTM's state gives */

struct sy_cell_rules {
    struct sy_cell_curve curves[SY_CELL_CURVES];
    float clip;   /* of what gates and what is new are made of; INFINITY: none */
    bool couples; /* LSTM: what is forgotten is what the input leaves room for */
};

SY_FORMULA float sy_cell_curve_at(const struct sy_cell_curve *curve, float x)
{
    switch (curve->kind) {
    case SY_CELL_CURVE_SIGMOID:
        return sy_formula_sigmoid(x);
    case SY_CELL_CURVE_TANH:
        return tanhf(x);
    case SY_CELL_CURVE_RELU:
        return x < 0.0f ? 0.0f : x;
    case SY_CELL_CURVE_HARD_SIGMOID:
        return sy_formula_clamp(curve->alpha * x + curve->beta, 0.0f, 1.0f);
    case SY_CELL_CURVE_SOFTSIGN:
        return x / (1.0f + fabsf(x));
    case SY_CELL_CURVE_SOFTPLUS:
        return sy_formula_softplus(x);
    case SY_CELL_CURVE_LEAKY_RELU:
        return x < 0.0f ? curve->alpha * x : x;
    case SY_CELL_CURVE_THRESHOLDED_RELU:
        return x <= curve->alpha ? 0.0f : x;
    case SY_CELL_CURVE_ELU:
        return x < 0.0f ? curve->alpha * expm1f(x) : x;
    case SY_CELL_CURVE_AFFINE:
        return curve->alpha * x + curve->beta;
    default: /* SCALED_TANH */
        return curve->alpha * tanhf(curve->beta * x);
    }
}

/* A gate, or what is new (`which` of the curves), from the sum that makes it. */
SY_FORMULA float sy_cell_bent(const struct sy_cell_rules *rules, int which, float sum)
{
    return sy_cell_curve_at(&rules->curves[which],
                            sy_formula_clamp(sum, -rules->clip, rules->clip));
}

#endif
