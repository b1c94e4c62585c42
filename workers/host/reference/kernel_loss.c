/* Losses: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss. Scores [N, C, d...], targets [N, d...]. */
#include "runtime/base/status.h"
#include "workers/host/reference/kernel.h"

struct loss {
    const struct sy_array *x, *target, *weights;
    int64_t classes, inner, ignored;
    bool has_ignored;
};

static struct loss read_loss(const struct sy_call *call)
{
    const struct sy_array *x = &call->in[0];
    return (struct loss){.x = x,
                         .target = &call->in[1],
                         .weights = sy_call_in(call, 2),
                         .classes = x->dims[1],
                         .inner = sy_array_extent(x, 2, x->rank),
                         .ignored = sy_node_int(call->node, "ignore_index", 0),
                         .has_ignored = sy_node_attr(call->node, "ignore_index") != NULL};
}

/* Offset of target i's class c in the scores. */
static int64_t score_at(const struct loss *l, int64_t i, int64_t c)
{
    return (i / l->inner * l->classes + c) * l->inner + i % l->inner;
}

/* log(sum(exp(scores))) of target i; 0 where the scores are logarithms already. */
static double log_sum(const struct sy_call *call, const struct loss *l, int64_t i)
{
    double top = -INFINITY, sum = 0;
    if (call->node->op == SY_OP_NLL_LOSS)
        return 0;
    for (int64_t c = 0; c < l->classes; c++)
        top = fmax(top, sy_get(l->x, score_at(l, i, c)));
    for (int64_t c = 0; c < l->classes; c++)
        sum += exp(sy_get(l->x, score_at(l, i, c)) - top);
    return top + log(sum);
}

static void put_log_probabilities(const struct sy_call *call, const struct loss *l, int64_t i,
                                  double shift)
{
    const struct sy_array *out = sy_call_out(call, 1);
    for (int64_t c = 0; out && c < l->classes; c++)
        sy_put(out, score_at(l, i, c), sy_get(l->x, score_at(l, i, c)) - shift);
}

/* The loss of target i, weighted, and its weight. */
static int one_loss(const struct sy_call *call, const struct loss *l, int64_t i, double *loss,
                    double *weight)
{
    int64_t c = sy_get_int(l->target, i);
    double shift = log_sum(call, l, i);
    put_log_probabilities(call, l, i, shift);
    *loss = *weight = 0;
    if (l->has_ignored && c == l->ignored)
        return SY_OK;
    if (c < 0 || c >= l->classes)
        return sy_kernel_fail(call, "target %lld of %lld classes", (long long)c,
                              (long long)l->classes);
    *weight = l->weights ? sy_get(l->weights, c) : 1;
    *loss = -*weight * (sy_get(l->x, score_at(l, i, c)) - shift);
    return SY_OK;
}

static int run_loss(const struct sy_call *call)
{
    struct loss l = read_loss(call);
    const struct sy_attr *attr = sy_node_attr(call->node, "reduction");
    const char *how = attr && attr->s ? attr->s : "mean";
    double sum = 0, weights = 0;
    for (int64_t i = 0; i < l.target->n; i++) {
        double loss, weight;
        SY_TRY(one_loss(call, &l, i, &loss, &weight));
        if (strcmp(how, "none") == 0)
            sy_put(&call->out[0], i, loss);
        sum += loss;
        weights += weight;
    }
    if (strcmp(how, "none") != 0)
        sy_put(&call->out[0], 0, strcmp(how, "sum") == 0 ? sum : sum / weights);
    return SY_OK;
}

static int check_loss(const struct sy_call *call)
{
    const struct sy_attr *attr = sy_node_attr(call->node, "reduction");
    bool none = attr && attr->s && strcmp(attr->s, "none") == 0;
    const struct sy_array *x = &call->in[0], *out = sy_call_out(call, 1);
    if (call->n_in < 2 || call->n_in > 3 || x->rank < 2 || !sy_call_in(call, 1) || x->dims[1] < 1 ||
        call->in[1].n != x->n / x->dims[1] || call->out[0].n != (none ? call->in[1].n : 1))
        return sy_kernel_refuse(call, "scores, targets or a result that do not fit");
    if ((sy_call_in(call, 2) && call->in[2].n != x->dims[1]) ||
        (out && !sy_array_same_dims(out, x)))
        return sy_kernel_refuse(call, "weights or a second result that do not fit");
    return SY_OK;
}

#define LOSS(op)                                                                  \
    {                                                                             \
        op, run_loss, {SY_ANY_FLOAT, SY_ANY_INDEX, SY_AS_FIRST}, check_loss, NULL \
    }
const struct sy_kernel sy_kernels_loss[] = {LOSS(SY_OP_NLL_LOSS), LOSS(SY_OP_SOFTMAX_LOSS), {0}};
