/* Graphs with numbers for their open sizes. */
#include "loader/graph/graph_bind.h"

#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph_internal.h"
#include "loader/graph/size_expr.h"
#include "loader/graph/string_tensor.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define MOST_BYTES (INT64_C(1) << 40) /* of one tensor at batch 1, as in inference */

/* Queries the process-wide tables once; bodies use the same values. */
static int make_env(const struct sy_graph *graph, const struct sy_sizes *sizes,
                    struct sy_size_env *env)
{
    *env = (struct sy_size_env){0};
    for (int i = 0; i < graph->n_symbols; i++) {
        struct sy_dim dim;
        SY_TRY(sy_size_symbol(graph->symbols[i].name, &dim));
        if (!sy_size_is_symbol(dim, &env->symbols[i]))
            return sy_error_set(SY_ECORRUPT, "'%.100s' is not a size", graph->symbols[i].name);
        env->values[i] = sizes->of[i];
        env->n++;
    }
    return SY_OK;
}

void sy_graph_usual_sizes(const struct sy_graph *graph, struct sy_sizes *out)
{
    *out = (struct sy_sizes){{0}};
    for (int i = 0; i < graph->n_symbols; i++)
        out->of[i] = graph->symbols[i].usual;
}

int64_t sy_graph_usual_elements(const struct sy_graph *graph, const struct sy_shape *shape)
{
    struct sy_sizes sizes;
    struct sy_size_env env;
    struct sy_shape bound = *shape;
    sy_graph_usual_sizes(graph, &sizes);
    if (make_env(graph, &sizes, &env) < 0)
        return INT64_MAX;
    for (int i = 0; i < bound.rank; i++)
        if (sy_size_evaluate(shape->dims[i], &env, &bound.dims[i]) < 0)
            return INT64_MAX;
    int64_t n = sy_shape_elements(&bound, 1);
    return n < 0 ? INT64_MAX : n;
}

/* ---- numbers ------------------------------------------------------------------------------------ */

static int no_number(const char *what, struct sy_dim dim)
{
    char text[200];
    sy_size_text(dim, text, sizeof text);
    return sy_error_set(SY_EARG, "%.120s: size %s has no value with the sizes that are given", what,
                        text);
}

static int bind_dim(const char *what, struct sy_dim dim, const struct sy_size_env *env,
                    struct sy_dim *out)
{
    return sy_size_evaluate(dim, env, out) < 0 ? no_number(what, dim) : SY_OK;
}

static int bind_shape(const struct sy_tensor *t, const struct sy_size_env *env,
                      struct sy_shape *out)
{
    char text[160];
    int64_t bytes = (int64_t)SY_MAX(sy_dtype_bytes(t->dtype), 1);
    *out = t->shape;
    if (!sy_shape_is_open(&t->shape))
        return SY_OK;
    for (int i = 0; i < out->rank; i++) {
        SY_TRY(bind_dim(t->name, t->shape.dims[i], env, &out->dims[i]));
        struct sy_dim dim = out->dims[i];
        int64_t first;
        if (dim.per_batch < 0 || __builtin_add_overflow(dim.fixed, dim.per_batch, &first) ||
            first < 0 || __builtin_mul_overflow(bytes, SY_MAX(first, 1), &bytes))
            bytes = -1;
        if (bytes < 0 || bytes > MOST_BYTES)
            return sy_error_set(SY_EARG, "'%.120s' of shape %s: dimension %d gets %lld", t->name,
                                sy_shape_text(&t->shape, text, sizeof text), i,
                                (long long)dim.fixed);
    }
    return SY_OK;
}

int sy_graph_bind_shape(const struct sy_graph *graph, int tensor, const struct sy_sizes *sizes,
                        struct sy_shape *out)
{
    struct sy_size_env env;
    SY_TRY(make_env(graph, sizes, &env));
    return bind_shape(&graph->tensors[tensor], &env, out);
}

/* The batch sizes for which a condition is checked. */
enum batches { FOR_ALL, FOR_SOME, FOR_ONE };

static bool holds(const struct sy_condition *c, struct sy_dim left, struct sy_dim right,
                  enum batches batches, int64_t batch)
{
    if (batches == FOR_ONE)
        return c->at_most ? sy_dim_at(left, batch) <= sy_dim_at(right, batch)
                          : sy_dim_at(left, batch) == sy_dim_at(right, batch);
    if (!c->at_most)
        return left.fixed == right.fixed && left.per_batch == right.per_batch;
    if (batches == FOR_SOME && left.per_batch < right.per_batch)
        return true;
    return sy_dim_at(left, 1) <= sy_dim_at(right, 1) && left.per_batch <= right.per_batch;
}

static int check_condition(const struct sy_condition *c, const struct sy_size_env *env,
                           enum batches batches, int64_t batch)
{
    struct sy_dim left, right;
    char a[160], b[160];
    SY_TRY(bind_dim(c->where, c->left, env, &left));
    SY_TRY(bind_dim(c->where, c->right, env, &right));
    if (holds(c, left, right, batches, batch))
        return SY_OK;
    sy_size_text(c->left, a, sizeof a);
    sy_size_text(c->right, b, sizeof b);
    return sy_error_set(SY_EARG,
                        "%s: the model works only where %s %s %s; here that is %lld and %lld",
                        c->where, a, c->at_most ? "is at most" : "is", b,
                        (long long)sy_dim_at(left, batch), (long long)sy_dim_at(right, batch));
}

static int check_sizes(const struct sy_graph *graph, const struct sy_sizes *sizes,
                       const struct sy_size_env *env, enum batches batches)
{
    for (int i = 0; i < graph->n_symbols; i++)
        if (sizes->of[i] < 0 || sizes->of[i] > SY_SIZE_MOST)
            return sy_error_set(SY_EARG, "size '%.100s' is %lld; 0 to %d", graph->symbols[i].name,
                                (long long)sizes->of[i], SY_SIZE_MOST);
    for (int i = 0; i < graph->n_conditions; i++)
        SY_TRY(check_condition(&graph->conditions[i], env, batches, 1));
    return SY_OK;
}

static int check_for_all(const struct sy_graph *graph, const struct sy_sizes *sizes)
{
    struct sy_size_env env;
    SY_TRY(make_env(graph, sizes, &env));
    return check_sizes(graph, sizes, &env, FOR_ALL);
}

/* ---- the copy ----------------------------------------------------------------------------------- */

static int copy_ints(int n, const int *from, int **out)
{
    SY_TRY(sy_graph_alloc((size_t)n, sizeof **out, out));
    if (n > 0)
        memcpy(*out, from, (size_t)n * sizeof **out);
    return SY_OK;
}

static int bind_tensor(const struct sy_tensor *from, const struct sy_size_env *env,
                       struct sy_tensor *to)
{
    struct sy_shape shape;
    char *name;
    SY_TRY(bind_shape(from, env, &shape));
    SY_TRY(sy_graph_strdup(from->name, &name));
    *to = *from;
    to->name = name;
    to->shape = shape;
    return SY_OK;
}

/* Sizes linear in N are stored as two lists. */
static int bind_numbers(struct sy_node *node, int n, const struct sy_dim *values)
{
    int64_t *list;
    SY_TRY(sy_graph_alloc((size_t)n, sizeof *list, &list));
    for (int i = 0; i < n; i++)
        list[i] = values[i].fixed;
    int status = sy_node_set_ints(node, "fixed", n, list);
    for (int i = 0; i < n; i++)
        list[i] = values[i].per_batch;
    if (status == SY_OK)
        status = sy_node_set_ints(node, "per_batch", n, list);
    free(list);
    return status;
}

static int bind_sizes(struct sy_node *node, const struct sy_attr *attr,
                      const struct sy_size_env *env)
{
    struct sy_dim *values;
    int status = SY_OK;
    SY_TRY(sy_graph_alloc((size_t)attr->n, sizeof *values, &values));
    for (int i = 0; i < attr->n && status == SY_OK; i++) {
        status = bind_dim(node->name, attr->sizes[i], env, &values[i]);
        if (status == SY_OK && node->op != SY_OP_NUMBERS && !sy_dim_is_number(values[i]))
            status = sy_error_set(SY_EARG, "node '%.100s': '%.60s' grows with the batch",
                                  node->name, attr->name);
    }
    if (status == SY_OK)
        status = node->op == SY_OP_NUMBERS ? bind_numbers(node, attr->n, values)
                                           : sy_node_set_sizes(node, attr->name, attr->n, values);
    free(values);
    return status;
}

static int bind_graph(const struct sy_graph *graph, const struct sy_size_env *env,
                      struct sy_graph **out);

static int bind_node(const struct sy_node *from, const struct sy_size_env *env, struct sy_node *to)
{
    for (int i = 0; i < from->n_attrs; i++) {
        const struct sy_attr *attr = &from->attrs[i];
        if (attr->kind == SY_ATTR_GRAPH)
            SY_TRY(bind_graph(attr->graph, env, &to->attrs[i].graph));
        if (attr->kind == SY_ATTR_SIZES)
            SY_TRY(bind_sizes(to, attr, env));
    }
    return SY_OK;
}

static int bind_into(const struct sy_graph *graph, const struct sy_size_env *env,
                     struct sy_graph *to)
{
    to->precision = graph->precision;
    SY_TRY(sy_graph_alloc((size_t)graph->n_tensors + 1, sizeof(struct sy_tensor), &to->tensors));
    for (int t = 0; t < graph->n_tensors; t++) {
        SY_TRY(bind_tensor(&graph->tensors[t], env, &to->tensors[t]));
        to->n_tensors++;
    }
    SY_TRY(sy_graph_alloc((size_t)graph->n_nodes + 1, sizeof(struct sy_node), &to->nodes));
    for (int n = 0; n < graph->n_nodes; n++) {
        SY_TRY(sy_node_clone_flat(&graph->nodes[n], &to->nodes[n]));
        to->n_nodes++;
        SY_TRY(bind_node(&graph->nodes[n], env, &to->nodes[n]));
    }
    SY_TRY(copy_ints(graph->n_inputs, graph->inputs, &to->inputs));
    to->n_inputs = graph->n_inputs;
    SY_TRY(copy_ints(graph->n_outputs, graph->outputs, &to->outputs));
    to->n_outputs = graph->n_outputs;
    return SY_OK;
}

static int bind_graph(const struct sy_graph *graph, const struct sy_size_env *env,
                      struct sy_graph **out)
{
    struct sy_graph *to;
    SY_TRY(sy_graph_create(graph->name, &to));
    to->borrows_data = true;
    int status = bind_into(graph, env, to);
    if (status < 0) {
        sy_graph_free(to);
        return status;
    }
    *out = to;
    return SY_OK;
}

int sy_graph_bind(const struct sy_graph *graph, const struct sy_sizes *sizes, struct sy_graph **out)
{
    struct sy_size_env env;
    SY_TRY(make_env(graph, sizes, &env));
    SY_TRY(check_sizes(graph, sizes, &env, FOR_SOME));
    SY_TRY(bind_graph(graph, &env, out));
    int strings = sy_graph_string_size(graph);
    (*out)->string_bytes = strings < 0 ? 0 : (uint64_t)SY_MAX(sizes->of[strings], 1);
    return SY_OK;
}

/* ---- sizes of a request ------------------------------------------------------------------------- */

/* Solves for one more size from known ones; false: none can be solved. */
static bool solve_one(const struct sy_graph *graph, const struct sy_given_input *given,
                      struct sy_size_env *env, int64_t *batch)
{
    const struct sy_shape *shape = &graph->tensors[graph->inputs[given->input]].shape;
    for (int i = 0; i < given->rank; i++) {
        int atom;
        int64_t number;
        if (!sy_size_solve(shape->dims[i], env, *batch, given->dims[i], &atom, &number))
            continue;
        if (atom == 0) {
            *batch = number;
        } else {
            env->symbols[env->n] = atom;
            env->values[env->n++] = number;
        }
        return true;
    }
    return false;
}

static int check_rank(const struct sy_graph *graph, const struct sy_given_input *given)
{
    const struct sy_tensor *t = &graph->tensors[graph->inputs[given->input]];
    char text[160];
    if (given->rank == t->shape.rank)
        return SY_OK;
    return sy_error_set(SY_EARG, "input '%.100s' has %d dimensions; %s is wanted", t->name,
                        given->rank, sy_shape_text(&t->shape, text, sizeof text));
}

static int check_given(const struct sy_graph *graph, const struct sy_given_input *given,
                       const struct sy_size_env *env, int64_t batch)
{
    const struct sy_tensor *t = &graph->tensors[graph->inputs[given->input]];
    struct sy_shape shape;
    char text[160];
    SY_TRY(bind_shape(t, env, &shape));
    for (int i = 0; i < given->rank; i++) {
        int64_t wanted;
        if (__builtin_mul_overflow(shape.dims[i].per_batch, batch, &wanted) ||
            __builtin_add_overflow(wanted, shape.dims[i].fixed, &wanted) || wanted < 0 ||
            wanted != given->dims[i])
            return sy_error_set(SY_EARG,
                                "input '%.100s': dimension %d is %lld; %s is wanted, here %lld",
                                t->name, i, (long long)given->dims[i],
                                sy_shape_text(&t->shape, text, sizeof text), (long long)wanted);
    }
    return SY_OK;
}

/* Symbols that no input determines get their usual sizes. */
static void take_solved(const struct sy_graph *graph, struct sy_size_env *all,
                        const struct sy_size_env *solved, struct sy_sizes *sizes)
{
    for (int i = 0; i < graph->n_symbols; i++)
        for (int k = 0; k < solved->n; k++)
            if (all->symbols[i] == solved->symbols[k])
                all->values[i] = sizes->of[i] = solved->values[k];
}

/* Whether it is an upper bound that depends on the batch size (indices below N): binding takes it for true if a batch can satisfy it (FOR_SOME),
 * sy_graph_solve checks it for the batch. */
static bool batch_decides(const struct sy_condition *c)
{
    return c->at_most && sy_size_mentions(c->right, 0);
}

int sy_graph_solve(const struct sy_graph *graph, int n_given, const struct sy_given_input *given,
                   int64_t *batch, struct sy_sizes *sizes)
{
    struct sy_size_env env, solved = {0};
    *batch = -1;
    sy_graph_usual_sizes(graph, sizes);
    SY_TRY(make_env(graph, sizes, &env));
    for (int i = 0; i < n_given; i++)
        SY_TRY(check_rank(graph, &given[i]));
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < n_given; i++)
            while (solved.n < SY_MAX_SYMBOLS + 1 && solve_one(graph, &given[i], &solved, batch))
                more = true;
    }
    *batch = *batch < 0 ? 1 : *batch;
    if (*batch > SY_SIZE_MOST)
        return sy_error_set(SY_EARG, "a batch of %lld; at most %d are possible", (long long)*batch,
                            SY_SIZE_MOST);
    take_solved(graph, &env, &solved, sizes);
    for (int i = 0; i < n_given; i++)
        SY_TRY(check_given(graph, &given[i], &env, *batch));
    for (int i = 0; i < graph->n_conditions; i++)
        if (batch_decides(&graph->conditions[i]))
            SY_TRY(check_condition(&graph->conditions[i], &env, FOR_ONE, *batch));
    return SY_OK;
}

/* ---- usual sizes -------------------------------------------------------------------------------- */

static bool has_empty(const struct sy_graph *graph)
{
    for (int n = 0; n < graph->n_nodes; n++)
        for (int i = 0; i < graph->nodes[n].n_outputs; i++)
            if (graph->nodes[n].outputs[i] >= 0 &&
                sy_shape_elements(&graph->tensors[graph->nodes[n].outputs[i]].shape, 1) == 0)
                return true;
    return false;
}

/* is_full: also rejects tensors without elements, for which no layout could be chosen. */
static bool fits(const struct sy_graph *graph, const struct sy_sizes *sizes, bool is_full)
{
    struct sy_graph *bound;
    if (check_for_all(graph, sizes) < 0 || sy_graph_bind(graph, sizes, &bound) < 0)
        return false;
    bool good = !is_full || !has_empty(bound);
    sy_graph_free(bound);
    return good;
}

/* The room of results does not depend on inputs, and is kept. */
static bool take(struct sy_graph *graph, const struct sy_sizes *tried, bool is_full)
{
    struct sy_sizes sizes = *tried;
    int room = sy_graph_room_size(graph);
    if (room >= 0)
        sizes.of[room] = graph->symbols[room].usual;
    if (!fits(graph, &sizes, is_full))
        return false;
    for (int i = 0; i < graph->n_symbols; i++)
        graph->symbols[i].usual = sizes.of[i];
    return true;
}

/* Lowers sizes to the upper bounds that conditions on a single symbol set, such as the length of a table of positions. */
static void keep_limits(const struct sy_graph *graph, struct sy_sizes *sizes)
{
    for (int i = 0; i < graph->n_conditions; i++) {
        const struct sy_condition *c = &graph->conditions[i];
        struct sy_dim own, room;
        for (int k = 0; k < graph->n_symbols; k++)
            if (c->at_most && sy_size_symbol(graph->symbols[k].name, &own) == SY_OK &&
                sy_size_sub(c->right, c->left, &room) == SY_OK &&
                sy_size_add(room, own, &room) == SY_OK && sy_dim_is_number(room) && room.fixed >= 0)
                sizes->of[k] = SY_MIN(sizes->of[k], room.fixed);
    }
}

/* Whether the room that the condition leaves is the size and what does not depend on it. */
static bool gives_room(const struct sy_condition *c, int atom)
{
    struct sy_dim own, room;
    return c->at_most && sy_size_atom_dim(atom, &own) == SY_OK &&
           sy_size_sub(c->right, c->left, &room) == SY_OK &&
           sy_size_sub(room, own, &room) == SY_OK && !sy_size_mentions(room, atom);
}

/* Raises a size where a condition does not hold, such as a mask's length, which the past and the new tokens share. */
static void make_room(const struct sy_graph *graph, struct sy_sizes *sizes)
{
    struct sy_size_env env;
    if (make_env(graph, sizes, &env) < 0)
        return;
    for (int i = 0; i < graph->n_conditions; i++) {
        const struct sy_condition *c = &graph->conditions[i];
        struct sy_dim left, right;
        if (sy_size_evaluate(c->left, &env, &left) < 0 ||
            sy_size_evaluate(c->right, &env, &right) < 0)
            continue;
        int64_t lack = sy_dim_at(left, 1) - sy_dim_at(right, 1);
        for (int k = 0; k < env.n && lack > 0; k++)
            if (gives_room(c, env.symbols[k])) {
                sizes->of[k] = env.values[k] += lack;
                break;
            }
    }
}

static bool find_sizes(struct sy_graph *graph, const struct sy_sizes *first, bool is_full)
{
    static const int scales[] = {0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6, 7, -7, 8};
    static const int common[] = {224, 256, 384, 512, 299, 320, 336, 448, 518, 640, 1024, 32, 16, 1};
    struct sy_sizes sizes = *first;
    if (take(graph, &sizes, is_full))
        return true;
    for (int k = 0; k < graph->n_symbols;
         k++) { /* sizes that differ, as the total length exceeds the past */
        sizes = *first;
        sizes.of[k] *= 2;
        keep_limits(graph, &sizes);
        if (take(graph, &sizes, is_full))
            return true;
    }
    sizes = *first;
    make_room(graph, &sizes);
    if (take(graph, &sizes, is_full))
        return true;
    for (size_t k = 0; k < SY_ARRAY_LEN(scales); k++) {
        for (int i = 0; i < SY_MAX_SYMBOLS; i++)
            sizes.of[i] = scales[k] < 0 ? first->of[i] >> -scales[k] : first->of[i] << scales[k];
        keep_limits(graph, &sizes);
        if (take(graph, &sizes, is_full))
            return true;
    }
    for (size_t k = 0; k < SY_ARRAY_LEN(common); k++) {
        for (int i = 0; i < SY_MAX_SYMBOLS; i++)
            sizes.of[i] = common[k];
        if (take(graph, &sizes, is_full))
            return true;
    }
    return false;
}

int sy_graph_find_usual_sizes(struct sy_graph *graph)
{
    struct sy_sizes first;
    sy_graph_usual_sizes(graph, &first);
    keep_limits(graph, &first);
    if (find_sizes(graph, &first, true) || find_sizes(graph, &first, false))
        return SY_OK;
    int status = fits(graph, &first, false) ? SY_OK : SY_EUNSUPPORTED;
    return status == SY_OK ? status
                           : sy_error_prefix(status, "no sizes found that the model allows");
}
