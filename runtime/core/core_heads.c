/* Which resident prefixes (heads) the pool keeps: by the latency that each saves (planner), the observed request rate of its model, and the free memory. */
#include <math.h>
#include <stdlib.h>

#include "loader/plan/free_prefix.h"
#include "loader/plan/head_budget.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/core/core_arrival.h"
#include "runtime/core/core_internal.h"

#define MEMORY_NS (30 * SY_NS_PER_S)   /* decay time: requests this old weigh 1/e */
#define SPEND_NS  (100 * SY_NS_PER_MS) /* minimum time between two choices */
/* relative change of the compute time that triggers a new estimate of what heads save */
#define OFF         0.1
#define RATE_OF_ALL 1e-3 /* weight of a model without requests: it gets only spare room */

/* ---- one model ------------------------------------------------------------------------------------ */

static int take_room(struct sy_model_heads *h, int n_groups)
{
    h->bytes = calloc((size_t)n_groups + 1, sizeof *h->bytes);
    h->saved_ns = calloc((size_t)n_groups + 1, sizeof *h->saved_ns);
    if (h->bytes && h->saved_ns)
        return SY_OK;
    return sy_error_set(SY_ENOMEM_HOST, "no memory for %d groups", n_groups);
}

static void fill(struct sy_model_heads *h, const struct sy_run_group *groups, int n,
                 const struct sy_link_cost *link)
{
    double nothing = (double)sy_swap_predict(groups, n, link, 0);
    h->free_prefix = sy_free_prefix(groups, n, link, sy_free_prefix_slack(groups, n));
    h->pool_bytes = sy_prefix_bytes(groups, n);
    for (int k = 0; k <= n; k++)
        h->saved_ns[k] = nothing - (double)sy_swap_predict(groups, n, link, k);
    for (int k = 1; k <= n; k++)
        h->bytes[k] = h->bytes[k - 1] + SY_ALIGN_UP(groups[k - 1].bytes, SY_POOL_ALIGN);
    h->nothing_ns = (sy_ns)nothing;
}

int sy_core_heads_update(const struct sy_core *core, struct sy_core_model *m)
{
    int n = m->n_groups, status = SY_OK;
    struct sy_link_cost link = sy_core_link(core, m->package);
    struct sy_plan_layer *layers = sy_core_plan_layers(core, m, 1);
    struct sy_run_group *groups = calloc((size_t)n, sizeof *groups);
    uint64_t *reads = sy_core_table_reads(core, m->package, 1);
    if (!layers || !groups || !reads)
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for %d groups", n);
    if (status == SY_OK && !m->heads.saved_ns)
        status = take_room(&m->heads, n);
    if (status == SY_OK) {
        sy_run_groups(layers, reads, m->groups, n, groups);
        fill(&m->heads, groups, n, &link);
        m->heads.scale = sy_core_compute_scale(core, m);
    }
    free(layers);
    free(groups);
    free(reads);
    return status;
}

void sy_core_heads_free(struct sy_core_model *m)
{
    free(m->heads.bytes);
    free(m->heads.saved_ns);
    m->heads = (struct sy_model_heads){0};
}

/* Recomputes the latency that a head saves, which depends on the model's compute time. On lack of memory the old values stay. */
static void refresh(const struct sy_core *core, struct sy_core_model *m)
{
    double now = sy_core_compute_scale(core, m);
    if (fabs(now - m->heads.scale) > OFF * m->heads.scale)
        SY_CLEANUP(sy_core_heads_update(core, m));
}

double sy_core_heads_rate(const struct sy_core_model *m, sy_ns now)
{
    double age = now > m->heads.rate_ns ? (double)(now - m->heads.rate_ns) : 0;
    return m->heads.rate * exp(-age / (double)MEMORY_NS);
}

sy_ns sy_core_heads_predict(const struct sy_core *core, int model)
{
    const struct sy_core_model *m = &core->models[model];
    if (!m->heads.saved_ns)
        return 0;
    int k = SY_MIN(sy_residency_n_resident(sy_sched_residency(core->sched), model), m->n_groups);
    return m->heads.nothing_ns - (sy_ns)m->heads.saved_ns[k];
}

/* ---- all of them ---------------------------------------------------------------------------------- */

void sy_core_heads_note(struct sy_core *core, struct sy_core_model *m)
{
    sy_ns now = sy_clock_now();
    m->heads.rate = sy_core_heads_rate(m, now) + (double)SY_NS_PER_S / (double)MEMORY_NS;
    m->heads.rate_ns = now;
    m->heads.out = false;
    if (now - core->heads_ns >= SPEND_NS)
        sy_core_heads_choose(core);
}

static bool has_head(const struct sy_core *core, int model)
{
    return core->models[model].used && !core->models[model].leaving &&
           core->models[model].state == SY_MODEL_READY && !sy_core_arrival_holds(core, model);
}

/* Bytes available to heads: the pool less jobs, workspace and what a usual request brings in, so that usual requests evict no head. A larger request evicts
 * the heads of least value, which costs less than reserving its room permanently. */
static uint64_t room_for_heads(const struct sy_core *core, sy_ns now)
{
    const struct sy_pool *pool = sy_sched_pool(core->sched);
    const struct sy_residency *r = sy_sched_residency(core->sched);
    uint64_t room = sy_pool_free_bytes(pool);
    double rates = 0, usual = 0;
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        if (has_head(core, i))
            room += sy_residency_resident_bytes(r, i);
    for (int i = 0; i < (int)SY_MAX_MODELS; i++) {
        const struct sy_core_model *m = &core->models[i];
        if (!has_head(core, i) || m->heads.pool_bytes > room)
            continue;
        rates += sy_core_heads_rate(m, now) + RATE_OF_ALL;
        usual += (sy_core_heads_rate(m, now) + RATE_OF_ALL) * (double)m->heads.pool_bytes;
    }
    return rates > 0 ? room - (uint64_t)(usual / rates) : room;
}

void sy_core_heads_choose(struct sy_core *core)
{
    static struct sy_head_curve curves[SY_MAX_MODELS]; /* only the loop's thread uses it */
    static int ids[SY_MAX_MODELS], heads[SY_MAX_MODELS];
    static double worth[SY_MAX_MODELS];
    sy_ns now = sy_clock_now();
    int n = 0;
    if (core->whole_models)
        return;
    for (int i = 0; i < (int)SY_MAX_MODELS; i++) {
        struct sy_core_model *m = &core->models[i];
        if (!has_head(core, i))
            continue;
        refresh(core, m);
        ids[n] = i;
        curves[n++] = (struct sy_head_curve){.rate = sy_core_heads_rate(m, now) + RATE_OF_ALL,
                                             .n = m->heads.out ? 0 : m->heads.free_prefix,
                                             .bytes = m->heads.bytes,
                                             .saved_ns = m->heads.saved_ns};
    }
    sy_head_budget(curves, n, room_for_heads(core, now), heads, worth);
    for (int i = 0; i < n; i++)
        SY_CLEANUP(sy_sched_model_head(core->sched, ids[i], heads[i], SY_MIN(worth[i], 1e300)));
    core->heads_ns = now;
}
