#include "workers/engine/recurrent_node.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/assert.h"

static int n_curves(enum sy_op op)
{
    return op == SY_OP_LSTM ? 3 : op == SY_OP_GRU ? 2 : 1;
}

static const struct known_curve {
    const char *name;
    struct sy_cell_curve curve;
} known_curves[] = {
#define X(name, text, alpha, beta) {text, {SY_CELL_CURVE_##name, alpha, beta}},
    SY_CELL_CURVE_TABLE(X)
#undef X
};

static enum sy_cell_curve_kind usual_curve(enum sy_op op, int k)
{
    return op == SY_OP_RNN || k > 0 ? SY_CELL_CURVE_TANH : SY_CELL_CURVE_SIGMOID;
}

static int n_names(const char *list)
{
    int n = 1;
    for (; *list; list++)
        n += *list == ',';
    return n;
}

/* Name k of the comma-separated list; NULL: none of ours. */
static const struct sy_cell_curve *find_curve(const char *list, int k)
{
    while (k-- > 0 && list)
        list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL;
    size_t n = list ? strcspn(list, ",") : 0;
    for (size_t i = 0; list && i < SY_ARRAY_LEN(known_curves); i++)
        if (n == strlen(known_curves[i].name) && strncasecmp(list, known_curves[i].name, n) == 0)
            return &known_curves[i].curve;
    return NULL;
}

/* The next of the parameters that a curve takes. */
static float take_parameter(const struct sy_attr *list, int *next, float otherwise)
{
    if (isnan(otherwise) || !list || list->kind != SY_ATTR_FLOATS || *next >= list->n)
        return otherwise;
    return list->floats[(*next)++];
}

/* Parameters are taken in the order of the activations, those of the other direction too; names for one direction serve both. */
const char *sy_recurrent_node_rules(const struct sy_node *node, int direction,
                                    struct sy_cell_rules *out)
{
    const struct sy_attr *names = sy_node_attr(node, "activations"),
                         *alphas = sy_node_attr(node, "activation_alpha"),
                         *betas = sy_node_attr(node, "activation_beta");
    bool given = names && names->kind == SY_ATTR_STRING && names->s && *names->s;
    int n = n_curves(node->op), alpha = 0, beta = 0;
    int n_given = given && n_names(names->s) == n ? n : 2 * n;
    *out = (struct sy_cell_rules){.clip = sy_node_float(node, "clip", INFINITY),
                                  .couples = sy_node_int(node, "input_forget", 0) != 0};
    for (int i = 0; i < (direction + 1) * n; i++) {
        const struct sy_cell_curve *curve = given
                                                ? find_curve(names->s, i % n_given)
                                                : &known_curves[usual_curve(node->op, i % n)].curve;
        if (!curve)
            return "these activations";
        out->curves[i % n] =
            (struct sy_cell_curve){curve->kind, take_parameter(alphas, &alpha, curve->alpha),
                                   take_parameter(betas, &beta, curve->beta)};
    }
    return NULL;
}

static bool has_peepholes(const struct sy_node *node)
{
    return node->op == SY_OP_LSTM && sy_node_input(node, 7) >= 0;
}

const char *sy_recurrent_node_read(const struct sy_node *node, const int64_t *x, const int64_t *w,
                                   const int64_t *r, struct sy_recurrent_node *out)
{
    const struct sy_attr *way = sy_node_attr(node, "direction");
    bool batch_first = sy_node_int(node, "layout", 0) != 0;
    *out =
        (struct sy_recurrent_node){.steps = x[batch_first],
                                   .batch = x[!batch_first],
                                   .input = x[2],
                                   .hidden = r[2],
                                   .directions = r[0],
                                   .gates = node->op == SY_OP_LSTM  ? 4
                                            : node->op == SY_OP_GRU ? 3
                                                                    : 1,
                                   .is_reverse = way && way->s && !strcmp(way->s, "reverse"),
                                   .resets_late = sy_node_int(node, "linear_before_reset", 0) != 0,
                                   .batch_first = batch_first,
                                   .has_peepholes = has_peepholes(node)};
    if (w[0] != r[0] || w[2] != x[2] || w[1] != out->gates * r[2] || r[1] != w[1] || r[0] < 1 ||
        r[0] > 2)
        return "weights that do not fit the input and each other";
    for (int d = 0; d < out->directions; d++) {
        const char *why = sy_recurrent_node_rules(node, d, &out->rules[d]);
        if (why)
            return why;
    }
    return NULL;
}

static bool has_usual_rules(const struct sy_node *node, int direction)
{
    struct sy_cell_rules rules;
    if (sy_recurrent_node_rules(node, direction, &rules))
        return false;
    bool usual = isinf(rules.clip) && !rules.couples;
    for (int i = 0; i < n_curves(node->op); i++)
        usual = usual && rules.curves[i].kind == usual_curve(node->op, i);
    return usual;
}

bool sy_recurrent_node_is_usual(const struct sy_node *node)
{
    const struct sy_attr *way = sy_node_attr(node, "direction");
    bool both_ways = way && way->s && strcmp(way->s, "bidirectional") == 0;
    return sy_node_int(node, "layout", 0) == 0 && !has_peepholes(node) &&
           has_usual_rules(node, 0) && (!both_ways || has_usual_rules(node, 1));
}

const char *sy_recurrent_node_read_usual(const struct sy_node *node, const int64_t *x,
                                         const int64_t *w, const int64_t *r,
                                         struct sy_recurrent_node *out)
{
    if (!sy_recurrent_node_is_usual(node))
        return "layout 1, clip, input_forget, peepholes, or activations other than the usual ones";
    return sy_recurrent_node_read(node, x, w, r, out);
}
