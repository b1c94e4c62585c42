#include "workers/engine/train_rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"

int sy_train_logits(const struct sy_graph *graph, enum sy_loss_kind loss, int *n_nodes)
{
    const struct sy_node *last = &graph->nodes[graph->n_nodes - 1];
    bool is_part = loss == SY_LOSS_SOFTMAX_CROSS_ENTROPY
                       ? last->op == SY_OP_SOFTMAX || last->op == SY_OP_LOG_SOFTMAX
                       : loss == SY_LOSS_BCE && last->op == SY_OP_SIGMOID;
    *n_nodes = graph->n_nodes;
    if (!is_part || last->outputs[0] != graph->outputs[0])
        return graph->outputs[0];
    *n_nodes = graph->n_nodes - 1;
    return last->inputs[0];
}

char *sy_train_state_name(const char *parameter, enum sy_optimizer_kind optimizer, int slot)
{
    const char *suffix = slot < 0                        ? ""
                         : optimizer == SY_OPTIMIZER_SGD ? ".momentum"
                         : slot == 0                     ? ".adam_m"
                                                         : ".adam_v";
    size_t bytes = strlen(parameter) + strlen(suffix) + 1;
    char *name = malloc(bytes);
    if (!name) {
        sy_error_set(SY_ENOMEM_HOST, "no room for a name of %zu bytes", bytes);
        return NULL;
    }
    strcpy(name, parameter);
    return strcat(name, suffix);
}

static int64_t largest(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

int64_t sy_train_count_right(enum sy_loss_kind loss, const float *x, const void *wanted,
                             int64_t rows, int64_t n)
{
    const int32_t *classes = wanted;
    const float *outputs = wanted;
    int64_t right = 0;
    for (int64_t r = 0; r < rows; r++, x += n, outputs += n) {
        if (loss == SY_LOSS_SOFTMAX_CROSS_ENTROPY)
            right += largest(x, n) == classes[r];
        else if (loss == SY_LOSS_BCE && n == 1)
            right += (x[0] > 0.0f) == (outputs[0] > 0.5f);
        else
            right += largest(x, n) == largest(outputs, n);
    }
    return right;
}

int sy_train_not_finite(const char *what, double value, double rate)
{
    return sy_error_set(SY_EARG,
                        "%s is %g (a smaller learning rate than %g, or clip_norm, may help)", what,
                        isnan(value) ? NAN : value, rate); /* never -nan */
}
