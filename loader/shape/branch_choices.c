#include "loader/shape/branch_choices.h"

#include <string.h>

#include "loader/shape/size_facts.h"
#include "runtime/base/status.h"

/* NULL: there are none. Conditions that a body puts on sizes are not the model's: the body may not run. */
static struct sy_branches *choices_of(const struct sy_infer *in)
{
    return in->facts && !in->is_body ? in->facts->choices : NULL;
}

static const struct sy_choice *find_choice(const struct sy_infer *in, const struct sy_node *node)
{
    const struct sy_branches *c = choices_of(in);
    const char *result = node->n_outputs > 0 && node->outputs[0] >= 0
                             ? in->graph->tensors[node->outputs[0]].name
                             : "";
    for (int i = 0; c && i < c->n; i++)
        if (strcmp(c->of[i].result, result) == 0)
            return &c->of[i];
    return NULL;
}

int sy_branches_offer(const struct sy_infer *in, const struct sy_node *node)
{
    struct sy_branches *c = choices_of(in);
    int condition = sy_node_input(node, 0);
    if (!c || c->open || c->n == SY_MOST_CHOICES || condition < 0 || !in->values[condition] ||
        node->outputs[0] < 0 || find_choice(in, node))
        return SY_OK;
    return sy_graph_strdup(in->graph->tensors[node->outputs[0]].name, &c->open);
}

bool sy_branches_find(const struct sy_infer *in, const struct sy_node *node, int *taken)
{
    const struct sy_choice *choice = find_choice(in, node);
    int condition = sy_node_input(node, 0);
    if (!choice || choice->taken == SY_LEFT_TO_RUN || condition < 0 || !in->values[condition])
        return false;
    *taken = choice->taken;
    return true;
}
