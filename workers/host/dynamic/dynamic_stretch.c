/* The cache of stretches, and their execution. */
#include "workers/host/dynamic/dynamic_stretch.h"

#include <stdlib.h>

#include <xxhash.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/engine/heap_held.h"
#include "workers/host/dynamic/dynamic_help.h"
#include "workers/host/dynamic/dynamic_stretch_make.h"
#include "workers/host/program/program.h"

/* Minimum size counted for a stretch: its lists and its share of oneDNN's memory. */
enum { LEAST_BYTES = 16 << 10 };

/* State of an input when the stretch was made. */
struct key {
    int tensor, param;
    bool is_constant;
    struct sy_array a;
};

struct stretch {
    struct stretch *newer, *older;
    struct sy_at_stretches *owner;
    struct stretch *next; /* next of the same owner, newest first */
    uint64_t begins;      /* hash over, per node of the graph, whether it is done */
    int n_keys;
    struct key *keys;
    struct sy_stretch_made made;
    uint64_t bytes;
};

struct sy_at_stretches {
    struct sy_at_identity who;
    int refs;
    struct sy_at_stretches *next; /* of all graphs */
    struct stretch *first;
};

static struct sy_at_stretches *all_graphs;

/* Programs are made and run by one thread at a time. */
static struct {
    struct stretch *newest, *oldest;
    int n, most;
    uint64_t bytes, most_bytes;
} cache = {.most = SY_STRETCHES_KEPT, .most_bytes = SY_STRETCHES_MAX_BYTES};

static bool are_off;

void sy_at_stretches_use(bool on)
{
    are_off = !on;
}

void sy_at_stretches_limit(int n, uint64_t bytes)
{
    cache.most = n;
    cache.most_bytes = bytes;
}

int sy_at_stretches_n(void)
{
    return cache.n;
}

uint64_t sy_at_stretches_bytes(void)
{
    return cache.bytes;
}

/* S5 */
int sy_at_stretches_acquire(const struct sy_at_identity *who, struct sy_at_stretches **out)
{
    struct sy_at_stretches *s = who->model ? all_graphs : NULL;
    while (s &&
           !(s->who.model == who->model && s->who.node == who->node && s->who.graph == who->graph))
        s = s->next;
    if (!s) {
        s = calloc(1, sizeof *s);
        SY_TRY_ALLOC(s, "no memory for a graph");
        s->who = *who;
        s->next = all_graphs;
        all_graphs = s;
    }
    s->refs++;
    *out = s;
    return SY_OK;
}

/* ---- the cache ----------------------------------------------------------------------------------- */

static void unlink_used(struct stretch *s)
{
    *(s->newer ? &s->newer->older : &cache.newest) = s->older;
    *(s->older ? &s->older->newer : &cache.oldest) = s->newer;
}

static void link_used(struct stretch *s)
{
    s->newer = NULL;
    s->older = cache.newest;
    *(s->older ? &s->older->newer : &cache.oldest) = s;
    cache.newest = s;
}

static void free_stretch(struct stretch *s)
{
    sy_stretch_made_finish(&s->made);
    free(s->keys);
    free(s);
}

static void drop(struct stretch *s)
{
    struct stretch **at = &s->owner->first;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    unlink_used(s);
    cache.n--;
    cache.bytes -= s->bytes;
    free_stretch(s);
}

void sy_at_stretches_release(struct sy_at_stretches *s)
{
    struct sy_at_stretches **at = &all_graphs;
    if (!s || --s->refs > 0)
        return;
    while (s->first)
        drop(s->first);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    free(s);
}

/* S3. Called before the newest one runs. */
static void keep_within_bounds(void)
{
    while (cache.oldest != cache.newest && (cache.n > cache.most || cache.bytes > cache.most_bytes))
        drop(cache.oldest);
}

static void keep(struct sy_at_stretches *all, struct stretch *s)
{
    s->owner = all;
    s->next = all->first;
    all->first = s;
    link_used(s);
    cache.n++;
    cache.bytes += s->bytes;
    keep_within_bounds();
}

/* ---- finding ------------------------------------------------------------------------------------- */

static bool is_same(const struct key *key, const struct sy_at_value *v)
{
    if (!v || v->is_list || key->param != v->param || key->is_constant != v->is_constant)
        return false;
    if (v->is_constant)
        return key->a.data == v->a.data;
    return key->a.dtype == v->a.dtype && sy_array_same_dims(&key->a, &v->a);
}

static uint64_t hash_done(const struct sy_at_frame *f)
{
    return XXH3_64bits(f->done, (size_t)f->graph->n_nodes * sizeof *f->done);
}

static bool fits(const struct stretch *s, const struct sy_at_frame *f, uint64_t begins)
{
    bool same = s->begins == begins;
    for (int i = 0; same && i < s->n_keys; i++)
        same = is_same(&s->keys[i], f->values[s->keys[i].tensor]);
    return same;
}

static struct stretch *find(struct sy_at_stretches *all, const struct sy_at_frame *f)
{
    uint64_t begins = hash_done(f);
    struct stretch *s = all->first;
    while (s && !fits(s, f, begins))
        s = s->next;
    if (s) {
        unlink_used(s);
        link_used(s);
    }
    return s;
}

/* Finds the same stretch with other sizes, to share its packed weights. */
static struct stretch *find_like(const struct sy_at_stretches *all, const struct sy_at_frame *f)
{
    uint64_t begins = hash_done(f);
    struct stretch *s = all->first;
    while (s && !(s->made.n > 0 && s->begins == begins))
        s = s->next;
    return s;
}

/* ---- making -------------------------------------------------------------------------------------- */

static int fill(struct stretch *s, const struct sy_at_frame *f,
                const struct sy_stretch_nodes *nodes)
{
    s->keys = calloc((size_t)nodes->n_inputs + 1, sizeof *s->keys);
    SY_TRY_ALLOC(s->keys, "no memory for a stretch of %d nodes", nodes->n);
    s->begins = hash_done(f);
    s->n_keys = nodes->n_inputs;
    for (int i = 0; i < nodes->n_inputs; i++) {
        const struct sy_at_value *v = f->values[nodes->inputs[i]];
        s->keys[i] = (struct key){.tensor = nodes->inputs[i],
                                  .param = v->param,
                                  .is_constant = v->is_constant,
                                  .a = v->a};
    }
    return SY_OK;
}

static int make(struct sy_at_stretches *all, const struct sy_at_frame *f,
                const struct sy_stretch_nodes *nodes, struct stretch **out)
{
    struct stretch *like = find_like(all, f), *s = calloc(1, sizeof *s);
    uint64_t held = sy_heap_held_bytes(), packed = sy_body_packed_bytes();
    int status = s ? fill(s, f, nodes) : sy_error_set(SY_ENOMEM_HOST, "no memory for a stretch");
    if (status == SY_OK)
        status = sy_stretch_make(f, nodes, like ? &like->made : NULL, &s->made);
    if (status < 0) {
        if (s)
            free_stretch(s);
        return status;
    }
    uint64_t more = sy_heap_held_bytes() - held, weights = sy_body_packed_bytes() - packed;
    s->bytes = (int64_t)(more - weights) > LEAST_BYTES ? more - weights : LEAST_BYTES;
    keep(all, s);
    *out = s;
    return SY_OK;
}

/* ---- running ------------------------------------------------------------------------------------- */

static void drop_uses(struct sy_at_frame *f, int tensor)
{
    if (tensor < 0 || --f->uses[tensor] > 0)
        return;
    sy_at_value_drop(f->state, f->values[tensor]);
    f->values[tensor] = NULL;
}

void sy_at_frame_done(struct sy_at_frame *f, int n)
{
    const struct sy_node *node = &f->graph->nodes[n];
    f->done[n] = true;
    for (int i = 0; i < node->n_inputs; i++)
        drop_uses(f, node->inputs[i]);
}

static int take_results(struct sy_at_frame *f, struct sy_stretch_made *m)
{
    for (int i = 0; i < m->graph->n_outputs; i++) {
        const struct sy_tensor *t = &m->graph->tensors[m->graph->outputs[i]];
        int64_t dims[SY_MAX_RANK];
        for (int d = 0; d < t->shape.rank; d++)
            dims[d] = t->shape.dims[d].fixed;
        struct sy_at_value **to = &f->values[m->results[i]];
        SY_TRY(sy_at_value_new(f->state, t->dtype, t->shape.rank, dims, to));
        m->body.outputs[i] = (*to)->a.data;
    }
    return SY_OK;
}

/* Runs layer by layer, so that other tasks can interrupt the worker in between. */
static int run_layers(struct sy_stretch_made *m, void *workspace)
{
    struct sy_binding binding = {m->body.params, workspace, m->body.inputs, m->body.outputs};
    for (int l = 0; l < m->graph->n_nodes; l++) {
        SY_TRY(sy_dynamic_between_turns());
        SY_TRY(sy_program_run(m->body.program, &binding, l, 1));
    }
    return SY_OK;
}

static int run(struct sy_at_frame *f, struct sy_stretch_made *m)
{
    uint64_t bytes = SY_ALIGN_UP(sy_program_workspace_bytes(m->body.program) + 1, SY_PARAM_ALIGN);
    for (int i = 0; i < m->graph->n_inputs; i++)
        m->body.inputs[i] = f->values[m->given[i]]->a.data;
    SY_TRY(take_results(f, m));
    void *workspace = bytes <= SY_DYNAMIC_BYTES ? sy_at_alloc(bytes) : NULL;
    SY_TRY_ALLOC(workspace, "no memory for a workspace of %llu bytes", (unsigned long long)bytes);
    int status = run_layers(m, workspace);
    sy_at_free(workspace, bytes);
    for (int i = 0; status == SY_OK && i < m->n; i++)
        sy_at_frame_done(f, m->nodes[i]);
    return status;
}

int sy_at_stretch_run(struct sy_at_stretches *all, struct sy_at_frame *f, bool *ran)
{
    *ran = false;
    if (are_off || f->state->by_node ||
        sy_dynamic_has_helper()) /* a helper takes large nodes one by one */
        return SY_OK;
    struct stretch *s = find(all, f);
    if (!s) {
        struct sy_stretch_nodes nodes;
        int status = sy_stretch_find_nodes(f, &nodes);
        if (status == SY_OK && nodes.n > 1)
            status = make(all, f, &nodes, &s);
        sy_stretch_nodes_finish(&nodes);
        SY_TRY(status);
    }
    *ran = s && s->made.n > 0;
    return *ran ? run(f, &s->made) : SY_OK;
}
