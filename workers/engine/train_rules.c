#include "workers/engine/train_rules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "workers/engine/append.h"

const struct sy_gradient_steps *sy_gradient_steps_of(const struct sy_gradient_steps *families,
                                                     enum sy_op op)
{
    const struct sy_gradient_steps *steps = &families[sy_op_facts(op)->gradient];
    return steps->forward ? steps : NULL;
}

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

bool sy_train_adds_results(const struct sy_graph *graph, const struct sy_node *node)
{
    const struct sy_tensor *x = graph->tensors, *y = &x[node->outputs[0]];
    if (node->op != SY_OP_ADD || node->n_inputs != 2 || y->dtype != SY_DTYPE_F32)
        return false;
    for (int i = 0; i < 2; i++)
        if (x[node->inputs[i]].data || !sy_shape_equal(&x[node->inputs[i]].shape, &y->shape))
            return false;
    return true;
}

static char *state_name(const char *parameter, enum sy_optimizer_kind optimizer, int slot)
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

int sy_train_add_states(struct sy_state_slot **states, int *n, int param, const char *name,
                        enum sy_optimizer_kind optimizer, int n_slots)
{
    for (int slot = -1; slot < n_slots; slot++) {
        struct sy_state_slot *state = sy_append(states, n, sizeof *state);
        if (!state)
            return SY_ENOMEM_HOST;
        *state = (struct sy_state_slot){
            .name = state_name(name, optimizer, slot), .param = param, .slot = slot};
        if (!state->name)
            return SY_ENOMEM_HOST;
    }
    return SY_OK;
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

int sy_train_fail_not_finite(const char *what, double value, double rate)
{
    return sy_error_set(SY_EARG,
                        "%s is %g (a smaller learning rate than %g, or clip_norm, may help)", what,
                        isnan(value) ? NAN : value, rate); /* never -nan */
}
