/* Curves that exporters take apart: a product or quotient at the end, and behind it, through nodes that no other node reads and
 * constants of one element, one tensor x. There are many ways to write each, so none is looked for: what the nodes compute is tried
 * at points, and compared with the curves that engines have. */
#include <math.h>
#include <string.h>

#include "loader/fuse/fuse.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define MAX_NODES    14 /* GELU by tanh has 9 */
#define MAX_EDGE     8
#define GRID         81  /* points from -20 to 20 */
#define PER_CONSTANT 6   /* points around each constant: where a Clip bends */
#define LARGEST      60. /* exp of it is far from overflow, also in float32 */

/* The nodes of a curve, in the order of the graph from the last back to the first; what they read from outside. */
struct cone {
    const struct sy_node *nodes[MAX_NODES];
    int n, edge[MAX_EDGE], refs[MAX_EDGE], n_edge;
    float constants[2 * MAX_NODES];
    int n_constants;
};

struct curve {
    enum sy_op op;
    double (*at)(double x, double alpha);
    double alpha;
    const char *attr; /* alpha; NULL: none */
    const char *text; /* of attribute `approximate`; NULL: none */
};

/* ---- the nodes --------------------------------------------------------------------------------- */

static double step_to(double x)
{
    return x > 0 ? x : 0;
}

static bool unary_value(const struct sy_node *node, double x, double *y)
{
    switch (node->op) {
    case SY_OP_ERF:
        *y = erf(x);
        return true;
    case SY_OP_TANH:
        *y = tanh(x);
        return true;
    case SY_OP_SIGMOID:
        *y = 1 / (1 + exp(-x));
        return true;
    case SY_OP_EXP:
        *y = exp(x);
        return true;
    case SY_OP_NEG:
        *y = -x;
        return true;
    case SY_OP_RECIPROCAL:
        *y = 1 / x;
        return true;
    case SY_OP_RELU:
        *y = step_to(x);
        return true;
    case SY_OP_CLIP:
        *y = fmin(fmax(x, (double)sy_node_float(node, "min", -INFINITY)),
                  (double)sy_node_float(node, "max", INFINITY));
        return true;
    case SY_OP_HARD_SIGMOID:
        *y = fmin(1, step_to((double)sy_node_float(node, "alpha", 0.2f) * x +
                             (double)sy_node_float(node, "beta", 0.5f)));
        return true;
    default:
        return false;
    }
}

static bool binary_value(enum sy_op op, double a, double b, double *y)
{
    switch (op) {
    case SY_OP_ADD:
        *y = a + b;
        return true;
    case SY_OP_SUB:
        *y = a - b;
        return true;
    case SY_OP_MUL:
        *y = a * b;
        return true;
    case SY_OP_DIV:
        *y = a / b;
        return true;
    case SY_OP_POW:
        *y = pow(a, b);
        return true;
    case SY_OP_MIN:
        *y = fmin(a, b);
        return true;
    case SY_OP_MAX:
        *y = fmax(a, b);
        return true;
    default:
        return false;
    }
}

static bool can_compute(const struct sy_fuse *f, const struct sy_node *node)
{
    double y;
    if (node->n_outputs != 1 || node->activation != SY_ACT_NONE ||
        sy_fuse_tensor(f, node->outputs[0])->dtype != SY_DTYPE_F32)
        return false;
    return node->n_inputs == 1   ? unary_value(node, 1, &y)
           : node->n_inputs == 2 ? binary_value(node->op, 1, 1, &y)
                                 : false;
}

/* ---- the cone ---------------------------------------------------------------------------------- */

static bool add_edge(const struct sy_fuse *f, struct cone *c, int tensor)
{
    float scalar;
    if (sy_graph_scalar(f->graph, tensor, &scalar)) {
        c->constants[c->n_constants++] = scalar;
        return true;
    }
    for (int i = 0; i < c->n_edge; i++)
        if (c->edge[i] == tensor) {
            c->refs[i]++;
            return true;
        }
    if (tensor < 0 || c->n_edge == MAX_EDGE)
        return false;
    c->edge[c->n_edge] = tensor;
    c->refs[c->n_edge++] = 1;
    return true;
}

static bool add_node(const struct sy_fuse *f, struct cone *c, const struct sy_node *node)
{
    if (c->n == MAX_NODES || !can_compute(f, node))
        return false;
    c->nodes[c->n++] = node;
    for (int i = 0; i < node->n_inputs; i++)
        if (!add_edge(f, c, node->inputs[i]))
            return false;
    return true;
}

/* Takes in the maker of the tensor at the edge that is made last: all its readers inside are in already. */
static bool grow(const struct sy_fuse *f, struct cone *c)
{
    int last = 0;
    if (c->n_edge == 0)
        return false;
    for (int i = 1; i < c->n_edge; i++)
        if (f->producer[c->edge[i]] > f->producer[c->edge[last]])
            last = i;
    int tensor = c->edge[last];
    if (f->producer[tensor] < 0 || f->uses[tensor] != c->refs[last])
        return false;
    c->n_edge--;
    c->edge[last] = c->edge[c->n_edge];
    c->refs[last] = c->refs[c->n_edge];
    return add_node(f, c, &f->graph->nodes[f->producer[tensor]]);
}

static double value_of(const struct sy_fuse *f, const struct cone *c, const double *values,
                       int tensor, double x)
{
    float scalar;
    if (sy_graph_scalar(f->graph, tensor, &scalar))
        return (double)scalar;
    for (int i = 0; i < c->n; i++)
        if (c->nodes[i]->outputs[0] == tensor)
            return values[i];
    return x;
}

static double cone_at(const struct sy_fuse *f, const struct cone *c, double x)
{
    double values[MAX_NODES] = {0};
    for (int i = c->n - 1; i >= 0; i--) {
        const struct sy_node *node = c->nodes[i];
        double a = value_of(f, c, values, node->inputs[0], x);
        if (node->n_inputs == 1)
            unary_value(node, a, &values[i]);
        else
            binary_value(node->op, a, value_of(f, c, values, node->inputs[1], x), &values[i]);
    }
    return values[0];
}

/* ---- the curves -------------------------------------------------------------------------------- */

static double gelu_erf(double x, double alpha)
{
    (void)alpha;
    return 0.5 * x * (1 + erf(x * 0.7071067811865476));
}

static double gelu_tanh(double x, double alpha)
{
    (void)alpha;
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double hard_swish(double x, double alpha)
{
    (void)alpha;
    return x * fmin(1, step_to(x / 6 + 0.5));
}

static double swish(double x, double alpha)
{
    return x / (1 + exp(-alpha * x));
}

static const struct curve common[] = {
    {SY_OP_GELU, gelu_erf, 0, NULL, "none"},
    {SY_OP_GELU, gelu_tanh, 0, NULL, "tanh"},
    {SY_OP_HARD_SWISH, hard_swish, 0, NULL, NULL},
};
/* 1.702: the sigmoid approximation of GELU. */
static const struct curve swishes[] = {
    {SY_OP_SWISH, swish, 1, "alpha", NULL},
    {SY_OP_SWISH, swish, 1.702, "alpha", NULL},
};

static bool agrees(const struct sy_fuse *f, const struct cone *c, const struct curve *curve,
                   double x)
{
    double want = curve->at(x, curve->alpha), got = cone_at(f, c, x);
    return fabs(got - want) <= 1e-6 + 1e-5 * fabs(want);
}

static bool is_curve(const struct sy_fuse *f, const struct cone *c, const struct curve *curve)
{
    for (int i = 0; i < GRID; i++)
        if (!agrees(f, c, curve, -20 + 40. * i / (GRID - 1)))
            return false;
    for (int i = 0; i < PER_CONSTANT * c->n_constants; i++) {
        double x = (double)c->constants[i / PER_CONSTANT] * (i % PER_CONSTANT - 2.5) * 0.8;
        if (fabs(x) <= LARGEST && !agrees(f, c, curve, x))
            return false;
    }
    return agrees(f, c, curve, LARGEST) && agrees(f, c, curve, -LARGEST);
}

static int replace_by_curve(struct sy_fuse *f, struct sy_node *node, const struct curve *curve,
                            int x)
{
    struct sy_attr *text;
    SY_TRY(sy_fuse_become(f, node, curve->op, 1, &x));
    if (curve->attr)
        SY_TRY(sy_node_set_float(node, curve->attr, (float)curve->alpha));
    if (!curve->text)
        return SY_OK;
    SY_TRY(sy_node_attr_slot(node, "approximate", &text));
    text->kind = SY_ATTR_STRING;
    return sy_graph_strdup(curve->text, &text->s);
}

static int find_curve(struct sy_fuse *f, struct sy_node *node, const struct curve *curves, int n)
{
    struct cone c = {.n = 0};
    bool more = add_node(f, &c, node);
    while (more) {
        int x = c.edge[0];
        bool whole = c.n >= 2 && c.n_edge == 1 &&
                     sy_shape_equal(&sy_fuse_tensor(f, x)->shape,
                                    &sy_fuse_tensor(f, node->outputs[0])->shape);
        for (int i = 0; i < n && whole; i++)
            if (is_curve(f, &c, &curves[i]))
                return replace_by_curve(f, node, &curves[i], x);
        more = grow(f, &c);
    }
    return SY_OK;
}

static int find_curves(struct sy_fuse *f, const struct curve *curves, int n)
{
    for (int i = 0; i < f->graph->n_nodes; i++) {
        struct sy_node *node = &f->graph->nodes[i];
        if (node->op == SY_OP_MUL || node->op == SY_OP_DIV)
            SY_TRY(find_curve(f, node, curves, n));
    }
    return SY_OK;
}

/* GELU in both forms, HardSwish: every engine has them. */
int sy_fuse_curves(struct sy_fuse *f)
{
    return find_curves(f, common, SY_ARRAY_LEN(common));
}

/* x * sigmoid(alpha * x) -> Swish */
int sy_fuse_swishes(struct sy_fuse *f)
{
    return find_curves(f, swishes, SY_ARRAY_LEN(swishes));
}

/* PRelu by one number for all -> LeakyRelu: a curve, in whatever layout, where PRelu reads a second operand. */
int sy_fuse_prelus(struct sy_fuse *f)
{
    for (int n = 0; n < f->graph->n_nodes; n++) {
        struct sy_node *node = &f->graph->nodes[n];
        float slope;
        if (node->op != SY_OP_PRELU || node->n_inputs != 2 ||
            !sy_graph_scalar(f->graph, node->inputs[1], &slope) ||
            !sy_shape_equal(&sy_fuse_tensor(f, node->inputs[0])->shape,
                            &sy_fuse_tensor(f, node->outputs[0])->shape))
            continue;
        int x = node->inputs[0];
        SY_TRY(sy_fuse_become(f, node, SY_OP_LEAKY_RELU, 1, &x));
        SY_TRY(sy_node_set_float(node, "alpha", slope));
    }
    return SY_OK;
}
