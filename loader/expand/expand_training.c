/* Operators of training models: Dropout in training mode, and the steps of optimizers (ai.onnx.preview.training), as arithmetic. */
#include "loader/expand/expand.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

/* ---- Dropout ------------------------------------------------------------------------------------ */

bool sy_expand_drops(const struct sy_infer *in, const struct sy_node *node)
{
    int mode = sy_node_input(node, 2);
    if (in->for_training || mode < 0)
        return false;
    const struct sy_tensor *t = &in->graph->tensors[mode];
    return !t->data || (t->data_bytes == 1 && *(const unsigned char *)t->data != 0);
}

static int scalar(struct sy_expand *e, int x)
{
    return sy_expand_reshape(e, x, NULL, 0);
}

/* Numbers in [0, 1) as RandomUniformLike draws them: of the seed, or the node's name, so the same in each run. */
static int draw(struct sy_expand *e)
{
    int u = SY_EXPAND(e, RANDOM_UNIFORM_LIKE, sy_expand_input(e, 0));
    sy_expand_set_int(e, "dtype", SY_DTYPE_F32);
    if (sy_node_attr(e->node, "seed"))
        sy_expand_set_float(e, "seed", (float)sy_node_int(e->node, "seed", 0));
    return u;
}

static int expand_dropout(struct sy_expand *e)
{
    enum sy_dtype dtype = sy_expand_dtype(e, 0);
    if (sy_expand_tensor(e, 2)->data)
        sy_log_info("import",
                    "event=dropout node=\"%s\" why=\"its training_mode is true: it drops, the same "
                    "elements in each run\"",
                    e->node->name);
    int x = sy_expand_input(e, 0), mode = scalar(e, sy_expand_input(e, 2));
    int ratio = sy_expand_input(e, 1) < 0
                    ? sy_expand_number(e, SY_DTYPE_F32, 0.5)
                    : sy_expand_cast(e, scalar(e, sy_expand_input(e, 1)), SY_DTYPE_F32);
    int none = sy_expand_number(e, SY_DTYPE_F32, 0), one = sy_expand_number(e, SY_DTYPE_F32, 1);
    ratio = SY_EXPAND(e, WHERE, mode, ratio, none);
    int keep = SY_EXPAND(e, NOT, SY_EXPAND(e, LESS, draw(e), ratio));
    int scale = SY_EXPAND(e, DIV, one, SY_EXPAND(e, SUB, one, ratio));
    int kept = SY_EXPAND(e, MUL, x, sy_expand_cast(e, scale, dtype));
    sy_expand_result(e, 0, SY_EXPAND(e, WHERE, keep, kept, sy_expand_number(e, dtype, 0)));
    sy_expand_result(e, 1, keep);
    return e->status;
}

/* ---- steps of optimizers -------------------------------------------------------------------------- */

/* Inputs R, T, then n each of tensors, gradients and `n_states` states; results n each of tensors and states. */
struct step {
    struct sy_expand *e;
    int n, n_states, i;
    enum sy_dtype dtype;
    int rate, count; /* R and T, of the tensors' type */
};

static int open_step(struct sy_expand *e, int n_states, struct step *s)
{
    *s = (struct step){.e = e, .n_states = n_states};
    int n = e->node->n_inputs - 2, each = 2 + n_states;
    s->n = n / each;
    if (n < each || n % each != 0 || e->node->n_outputs > s->n * (1 + n_states))
        return sy_expand_fail(e, SY_ECORRUPT, "%d inputs, %d outputs", e->node->n_inputs,
                              e->node->n_outputs);
    for (int i = 0; i < e->node->n_inputs; i++)
        if (e->node->inputs[i] < 0)
            return sy_expand_fail(e, SY_ECORRUPT, "input %d is left out", i);
    s->dtype = sy_expand_dtype(e, 2);
    s->rate = sy_expand_cast(e, scalar(e, sy_expand_input(e, 0)), s->dtype);
    s->count = sy_expand_cast(e, scalar(e, sy_expand_input(e, 1)), s->dtype);
    return e->status;
}

/* The k-th kind of input of the current tensor: itself, its gradient, its states. */
static int of(const struct step *s, int k)
{
    return sy_expand_input(s->e, 2 + k * s->n + s->i);
}

static void give(struct step *s, int k, int tensor)
{
    sy_expand_result(s->e, k * s->n + s->i, tensor);
}

static int number(const struct step *s, double value)
{
    return sy_expand_number(s->e, s->dtype, value);
}

static double attribute(const struct step *s, const char *name, float otherwise)
{
    return (double)sy_node_float(s->e->node, name, otherwise);
}

static int times(struct step *s, double factor, int x)
{
    return SY_EXPAND(s->e, MUL, number(s, factor), x);
}

/* factor * a + b */
static int weighted(struct step *s, double factor, int a, int b)
{
    return SY_EXPAND(s->e, ADD, times(s, factor, a), b);
}

/* The gradient with what draws the tensor to 0. */
static int gradient(struct step *s)
{
    return weighted(s, attribute(s, "norm_coefficient", 0), of(s, 0), of(s, 1));
}

static int square(struct step *s, int x)
{
    return SY_EXPAND(s->e, MUL, x, x);
}

static int is_begun(struct step *s)
{
    return SY_EXPAND(s->e, GREATER, s->count, number(s, 0));
}

static int expand_adagrad(struct sy_expand *e)
{
    struct step s;
    SY_TRY(open_step(e, 1, &s));
    int decay = weighted(&s, attribute(&s, "decay_factor", 0), s.count, number(&s, 1));
    int rate = SY_EXPAND(e, DIV, s.rate, decay);
    for (; s.i < s.n; s.i++) {
        int g = gradient(&s), sum = SY_EXPAND(e, ADD, of(&s, 2), square(&s, g));
        int size =
            SY_EXPAND(e, ADD, SY_EXPAND(e, SQRT, sum), number(&s, attribute(&s, "epsilon", 1e-6f)));
        int step = SY_EXPAND(e, DIV, SY_EXPAND(e, MUL, rate, g), size);
        give(&s, 0, SY_EXPAND(e, SUB, of(&s, 0), step));
        give(&s, 1, sum);
    }
    return e->status;
}

/* R sqrt(1 - beta^T) / (1 - alpha^T), R in the first step. */
static int adam_rate(struct step *s, double alpha, double beta)
{
    struct sy_expand *e = s->e;
    int one = number(s, 1);
    int over = SY_EXPAND(e, SUB, one, SY_EXPAND(e, POW, number(s, beta), s->count));
    int under = SY_EXPAND(e, SUB, one, SY_EXPAND(e, POW, number(s, alpha), s->count));
    int begun = is_begun(s); /* 0 / 0 where it is not */
    int factor = SY_EXPAND(e, DIV, SY_EXPAND(e, SQRT, over), under);
    return SY_EXPAND(e, MUL, s->rate, SY_EXPAND(e, WHERE, begun, factor, one));
}

static int expand_adam(struct sy_expand *e)
{
    struct step s;
    SY_TRY(open_step(e, 2, &s));
    double alpha = attribute(&s, "alpha", 0.9f), beta = attribute(&s, "beta", 0.999f);
    double epsilon = attribute(&s, "epsilon", 1e-6f);
    int rate = adam_rate(&s, alpha, beta);
    for (; s.i < s.n; s.i++) {
        int g = gradient(&s);
        int mean = weighted(&s, alpha, of(&s, 2), times(&s, 1 - alpha, g));
        int square_mean = weighted(&s, beta, of(&s, 3), times(&s, 1 - beta, square(&s, g)));
        int size = SY_EXPAND(e, ADD, SY_EXPAND(e, SQRT, square_mean), number(&s, epsilon));
        int step = SY_EXPAND(e, DIV, SY_EXPAND(e, MUL, rate, mean), size);
        int moved = SY_EXPAND(e, SUB, of(&s, 0), step);
        give(&s, 0, times(&s, 1 - attribute(&s, "norm_coefficient_post", 0), moved));
        give(&s, 1, mean);
        give(&s, 2, square_mean);
    }
    return e->status;
}

static int expand_momentum(struct sy_expand *e)
{
    struct step s;
    const char *mode = sy_infer_text(e->node, "mode", "standard");
    SY_TRY(open_step(e, 1, &s));
    double alpha = attribute(&s, "alpha", 0);
    int beta =
        SY_EXPAND(e, WHERE, is_begun(&s), number(&s, attribute(&s, "beta", 1)), number(&s, 1));
    for (; s.i < s.n; s.i++) {
        int g = gradient(&s);
        int v = weighted(&s, alpha, of(&s, 2), SY_EXPAND(e, MUL, beta, g));
        int along = mode[0] == 'n' ? weighted(&s, alpha, v, g) : v;
        give(&s, 0, SY_EXPAND(e, SUB, of(&s, 0), SY_EXPAND(e, MUL, s.rate, along)));
        give(&s, 1, v);
    }
    return e->status;
}

const struct sy_expander_line sy_expanders_training[] = {{SY_OP_DROPOUT, expand_dropout},
                                                         {SY_OP_STEP_ADAGRAD, expand_adagrad},
                                                         {SY_OP_STEP_ADAM, expand_adam},
                                                         {SY_OP_STEP_MOMENTUM, expand_momentum},
                                                         {0}};
