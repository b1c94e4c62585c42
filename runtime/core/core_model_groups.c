/* A model's groups: those of its package, or planned for this device; which bytes of each are read. */
#include <stdlib.h>
#include <string.h>

#include "loader/storage/direct_read.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/core/core_internal.h"

static int one_group(const struct sy_package *p, struct sy_group **groups, int *n)
{
    *groups = calloc(1, sizeof **groups);
    SY_TRY_ALLOC(*groups, "no memory for a group");
    **groups = (struct sy_group){.n_layers = p->n_layers, .bytes = p->weights_bytes};
    *n = 1;
    return SY_OK;
}

uint64_t *sy_core_table_reads(const struct sy_core *core, const struct sy_package *p,
                              uint64_t batch)
{
    uint64_t *reads = calloc((size_t)p->n_layers + 1, sizeof *reads);
    for (int i = 0; reads && sy_device_get_properties(core->device)->host_reads && i < p->n_layers;
         i++)
        reads[i] = sy_layer_read_bytes(p->usual, &p->layers[i], (int64_t)batch);
    return reads;
}

static uint64_t largest_warm(const struct sy_core *core)
{
    uint64_t batch = 1;
    for (size_t i = 0; i < core->n_warm; i++)
        batch = SY_MAX(batch, core->warm_batches[i]);
    return batch;
}

/* Replaces `layers` by the pipeline's view of them. */
static int planned(const struct sy_core *core, const struct sy_package *p,
                   struct sy_plan_layer *layers, struct sy_group **groups, int *n)
{
    struct sy_link_cost link = sy_core_link(core, p);
    struct sy_direct_plan plan;
    uint64_t *reads = sy_core_table_reads(core, p, largest_warm(core));
    SY_TRY_ALLOC(reads, "no memory to plan %d layers", p->n_layers);
    int status =
        sy_direct_plan_for_pool(layers, reads, p->n_layers, &link, sy_pool_size(core->pool), &plan);
    if (status == SY_OK) {
        sy_direct_apply(&plan, reads, &link, layers);
        *groups = plan.groups;
        *n = plan.n_groups;
    }
    free(reads);
    return status;
}

static int note_groups(struct sy_core_model *m)
{
    m->group_layers = calloc((size_t)m->n_groups, sizeof *m->group_layers);
    m->group_bytes = calloc((size_t)m->n_groups, sizeof *m->group_bytes);
    m->direct = calloc((size_t)m->n_groups, sizeof *m->direct);
    SY_TRY_ALLOC(m->group_layers && m->group_bytes && m->direct, "no memory for %d groups",
                 m->n_groups);
    for (int g = 0; g < m->n_groups; g++) {
        m->group_layers[g] = (uint64_t)m->groups[g].first_layer;
        m->group_bytes[g] = m->groups[g].bytes;
        m->direct[g] = m->groups[g].direct;
    }
    return SY_OK;
}

int sy_core_cut_groups(const struct sy_core *core, struct sy_core_model *m)
{
    struct sy_plan_layer *layers = sy_core_plan_layers(core, m, 1);
    int status;
    SY_TRY_ALLOC(layers, "no memory to plan %d layers", m->package->n_layers);
    if (!strcmp(core->grouping, "whole"))
        status = one_group(m->package, &m->groups, &m->n_groups);
    else if (!strcmp(core->grouping, "per_layer"))
        status = sy_plan_per_layer(layers, m->package->n_layers, &m->groups, &m->n_groups);
    else
        status = planned(core, m->package, layers, &m->groups, &m->n_groups);
    if (status == SY_OK && m->n_groups > SY_CORE_MAX_GROUPS)
        status = sy_error_set(SY_EUNSUPPORTED, "model %s has %d groups; at most %d are possible",
                              m->name, m->n_groups, SY_CORE_MAX_GROUPS);
    if (status == SY_OK)
        status = note_groups(m);
    free(layers);
    return status;
}
