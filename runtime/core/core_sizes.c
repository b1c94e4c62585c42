/* Choices of a model's open sizes: each has a number while requests use it, and some unused ones are remembered so that their programs are found again. The
 * table is bounded, so a client that keeps choosing new sizes cannot overflow it or those that depend on it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader/graph/graph_bind.h"
#include "loader/graph/string_tensor.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/core/core_internal.h"

/* ---- compute per layer, with these sizes and with the usual ones ---- */

static double elements(const struct sy_graph *g, const int *tensors, int n, int i)
{
    int tensor = i < n ? tensors[i] : -1;
    int64_t all = tensor < 0 ? 0 : sy_shape_elements(&g->tensors[tensor].shape, 1);
    return all > 0 ? (double)all : 0;
}

/* A number proportional to the node's compute time. Products of matrices m x k and k x n: the root of mk * kn * mn. */
static double work_of(const struct sy_graph *g, const struct sy_node *node)
{
    double a = elements(g, node->inputs, node->n_inputs, 0);
    double b = elements(g, node->inputs, node->n_inputs, 1);
    double out = elements(g, node->outputs, node->n_outputs, 0);
    if (node->op == SY_OP_MATMUL || node->op == SY_OP_GEMM)
        return sqrt(a * b * out);
    return node->op == SY_OP_ATTENTION ? a * b : a + out;
}

static float ratio(double now, double usual)
{
    double r = usual > 0 ? now / usual : 1;
    return (float)fmin(fmax(r, 1e-9), 1e9);
}

/* The class by compute time, where the package was profiled. */
static int class_of(const struct sy_package *p, const float *work)
{
    double sum = 0, usual = 0;
    for (int i = 0; i < p->n_layers; i++) {
        double ns = (double)sy_package_layer_ns(p, i, 1) + 1;
        usual += ns;
        sum += ns * (double)work[i];
    }
    int steps = (int)lround(log2(sum / fmax(usual, 1)));
    return SY_MIN(SY_MAX(SY_CORE_USUAL_SIZES + steps, 0), SY_CORE_SIZE_CLASSES - 1);
}

static int compare_work(const struct sy_package *p, const struct sy_graph *bound,
                        struct sy_core_sizes *sizes)
{
    sizes->work = calloc((size_t)p->n_layers + 1, sizeof *sizes->work);
    SY_TRY_ALLOC(sizes->work, "no memory for sizes of %d layers", p->n_layers);
    for (int i = 0; i < p->n_layers; i++) {
        int node = p->layers[i].node;
        sizes->work[i] =
            ratio(work_of(bound, &bound->nodes[node]), work_of(p->usual, &p->usual->nodes[node]));
    }
    sizes->class_ = class_of(p, sizes->work);
    return SY_OK;
}

/* Rejects sizes that can never run: a single layer's result exceeds the pool. */
static int check_results(const struct sy_core *core, const struct sy_graph *bound)
{
    uint64_t pool = sy_pool_size(core->pool);
    for (int n = 0; n < bound->n_nodes; n++)
        for (int i = 0; i < bound->nodes[n].n_outputs; i++) {
            int tensor = bound->nodes[n].outputs[i];
            uint64_t bytes = tensor < 0 ? 0 : sy_graph_tensor_room(bound, tensor, 1);
            if (bytes == UINT64_MAX)
                return sy_error_set(SY_ENOMEM_DEVICE, "%.100s would have 2^63 bytes or more",
                                    bound->tensors[tensor].name);
            if (bytes > pool)
                return sy_error_set(SY_ENOMEM_DEVICE,
                                    "%.100s would have %llu bytes a row, the pool has %llu; make "
                                    "it larger (--pool-bytes), or the request smaller",
                                    bound->tensors[tensor].name, (unsigned long long)bytes,
                                    (unsigned long long)pool);
        }
    return SY_OK;
}

/* ---- the table ---- */

static void free_sizes(struct sy_core_sizes *sizes)
{
    free(sizes->work);
    free(sizes);
}

void sy_core_sizes_free(struct sy_core_model *m)
{
    while (m->sizes) {
        struct sy_core_sizes *next = m->sizes->next;
        free_sizes(m->sizes);
        m->sizes = next;
    }
}

static int make_sizes(struct sy_core *core, struct sy_core_model *m, const struct sy_sizes *of,
                      struct sy_core_sizes **out)
{
    char text[256];
    struct sy_graph *bound = NULL;
    struct sy_core_sizes *sizes = calloc(1, sizeof *sizes);
    SY_TRY_ALLOC(sizes, "no memory for a request");
    sizes->of = *of;
    int status = sy_graph_bind(m->package->graph, of, &bound);
    if (status == SY_OK)
        status = check_results(core, bound);
    if (status == SY_OK)
        status = compare_work(m->package, bound, sizes);
    sy_graph_free(bound);
    if (status < 0) {
        sy_core_sizes_text(m, sizes, text, sizeof text);
        free_sizes(sizes);
        return sy_error_prefix(status, "model %s%s", m->name, text);
    }
    sizes->id = ++core->last_sizes;
    sizes->next = m->sizes;
    m->sizes = sizes;
    *out = sizes;
    return SY_OK;
}

static struct sy_core_sizes *find(const struct sy_core_model *m, const struct sy_sizes *of)
{
    struct sy_core_sizes *at = m->sizes;
    size_t bytes = (size_t)m->package->graph->n_symbols * sizeof of->of[0];
    while (at && memcmp(at->of.of, of->of, bytes) != 0)
        at = at->next;
    return at;
}

static bool are_usual(const struct sy_core_model *m, const struct sy_sizes *of)
{
    const struct sy_graph *g = m->package->graph;
    for (int i = 0; i < g->n_symbols; i++)
        if (of->of[i] != g->symbols[i].usual)
            return false;
    return true;
}

struct sy_core_sizes *sy_core_sizes_hold(struct sy_core_sizes *sizes)
{
    if (sizes)
        sizes->n_users++;
    return sizes;
}

int sy_core_sizes_take(struct sy_core *core, struct sy_core_model *m, const struct sy_sizes *wants,
                       struct sy_core_sizes **out)
{
    *out = NULL;
    if (!wants || are_usual(m, wants))
        return SY_OK;
    *out = find(m, wants);
    if (!*out)
        SY_TRY(make_sizes(core, m, wants, out));
    (*out)->last_use = ++core->last_sizes;
    (*out)->n_users++;
    return SY_OK;
}

static void drop_oldest(struct sy_core_model *m)
{
    struct sy_core_sizes **oldest = NULL;
    int n = 0;
    for (struct sy_core_sizes **at = &m->sizes; *at; at = &(*at)->next) {
        if ((*at)->n_users > 0)
            continue;
        n++;
        if (!oldest || (*at)->last_use < (*oldest)->last_use)
            oldest = at;
    }
    if (n <= SY_CORE_IDLE_SIZES)
        return;
    struct sy_core_sizes *gone = *oldest;
    *oldest = gone->next;
    free_sizes(gone);
}

void sy_core_sizes_release(struct sy_core_model *m, struct sy_core_sizes *sizes)
{
    if (sizes && --sizes->n_users == 0)
        drop_oldest(m);
}

/* ---- looking ---- */

struct sy_shape sy_core_sizes_shape(const struct sy_core_model *m,
                                    const struct sy_core_sizes *sizes, int tensor)
{
    struct sy_shape shape = m->package->usual->tensors[tensor].shape;
    if (sizes)
        SY_CLEANUP(sy_graph_bind_shape(m->package->graph, tensor, &sizes->of, &shape));
    return shape;
}

size_t sy_core_sizes_words(const struct sy_core_model *m, const struct sy_core_sizes *sizes,
                           uint64_t *words)
{
    int n = sizes ? m->package->graph->n_symbols : 0;
    for (int i = 0; i < n; i++)
        words[i] = (uint64_t)sizes->of.of[i];
    return (size_t)n;
}

bool sy_core_sizes_find(const struct sy_core_model *m, const struct sy_u64s *words,
                        struct sy_core_sizes **out)
{
    struct sy_sizes of = {{0}};
    *out = NULL;
    if (words->n == 0)
        return true;
    if (words->n != (size_t)m->package->graph->n_symbols)
        return false;
    for (size_t i = 0; i < words->n; i++)
        of.of[i] = words->v[i] > INT64_MAX ? -1 : (int64_t)words->v[i];
    *out = find(m, &of);
    return *out != NULL;
}

const char *sy_core_sizes_text(const struct sy_core_model *m, const struct sy_core_sizes *sizes,
                               char *buffer, size_t bytes)
{
    const struct sy_graph *g = m->package->graph;
    size_t used = 0;
    buffer[0] = '\0';
    for (int i = 0; i < g->n_symbols && used < bytes; i++)
        if (!sy_graph_is_own_size(g, i))
            used +=
                (size_t)snprintf(buffer + used, bytes - used, ", %.60s %lld", g->symbols[i].name,
                                 (long long)(sizes ? sizes->of.of[i] : g->symbols[i].usual));
    return buffer;
}
