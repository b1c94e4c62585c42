/* The scheduler's models: their groups in pool and image, workspaces by batch and sizes. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/sched/sched_internal.h"

void sy_sched_workspaces_lost(struct sy_sched *s, int worker)
{
    s->n_preparing[worker] = s->n_loading[worker] = 0;
    for (int m = 0; m < SY_SCHED_MAX_MODELS; m++)
        for (int i = 0; s->models[m].used && i < SY_SCHED_WORKSPACES; i++) {
            struct workspace *w = &s->models[m].workspaces[i];
            if (w->workers != SY_SCHED_ALL_WORKERS)
                w->workers &= ~(1ull << worker);
        }
}

bool sy_sched_is_ready(const struct sy_sched *s, int model, int64_t batch, uint64_t sizes)
{
    for (int i = 0; i < SY_SCHED_WORKSPACES; i++) {
        const struct workspace *known = &s->models[model].workspaces[i];
        if (known->batch != batch || known->sizes != sizes ||
            known->team != sy_sched_team_of(s, model))
            continue;
        for (int w = 0; w < s->config.n_workers; w++)
            if ((known->workers >> w & 1) &&
                (s->workers[w] == WORKER_IDLE || s->workers[w] == WORKER_REQUEST))
                return true;
    }
    return false;
}

static int check_fit(const struct sy_sched *s, int n_groups, const uint64_t *bytes,
                     uint64_t workspace, uint64_t *largest_group)
{
    uint64_t largest = 0, sum = 0, held = sy_sched_job_bytes(s),
             pool = sy_pool_capacity_bytes(s->pool) - held;
    for (int g = 0; g < n_groups; g++) {
        largest = SY_MAX(largest, SY_ALIGN_UP(bytes[n_groups + g], SY_POOL_ALIGN));
        sum += SY_ALIGN_UP(bytes[g], SY_POOL_ALIGN);
    }
    if (workspace > pool || largest > pool - workspace)
        return sy_error_set(
            SY_ENOMEM_DEVICE,
            "its largest group (%llu bytes) and its workspace (%llu bytes) do not fit into the "
            "pool of %llu bytes, of which training holds %llu; make it larger (--pool-bytes)",
            (unsigned long long)largest, (unsigned long long)workspace,
            (unsigned long long)(pool + held), (unsigned long long)held);
    *largest_group = largest;
    if (s->image && sum > sy_pool_capacity_bytes(s->image))
        return sy_error_set(
            SY_ENOMEM_DEVICE,
            "%llu bytes of weights do not fit into the host image of %llu bytes; make it larger "
            "(--image-bytes)",
            (unsigned long long)sum, (unsigned long long)sy_pool_capacity_bytes(s->image));
    return SY_OK;
}

/* One allocation: bytes in the image, then bytes in the pool. */
static uint64_t *copy_bytes(int n_groups, const uint64_t *group_bytes, const bool *direct,
                            bool *has_direct)
{
    uint64_t *copy = calloc(2 * (size_t)n_groups, sizeof *copy);
    *has_direct = false;
    for (int g = 0; copy && g < n_groups; g++) {
        bool there = direct && direct[g];
        *has_direct |= there;
        copy[g] = group_bytes[g];
        copy[n_groups + g] = there ? 0 : group_bytes[g];
    }
    return copy;
}

static int add_residencies(struct sy_sched *s, int model, int n_groups, const uint64_t *bytes)
{
    SY_TRY(sy_residency_add_model(s->pool_residency, model, n_groups, bytes + n_groups));
    int status = s->image_residency
                     ? sy_residency_add_model(s->image_residency, model, n_groups, bytes)
                     : SY_OK;
    if (status < 0)
        (void)sy_residency_remove_model(s->pool_residency, model);
    return status;
}

void sy_sched_prefer_image_place(struct sy_sched *s, int model, int group, uint64_t offset)
{
    if (s->image_residency)
        SY_CLEANUP(sy_residency_prefer(s->image_residency, model, group, offset));
}

int sy_sched_model_add_direct(struct sy_sched *s, int model, int n_groups,
                              const uint64_t *group_bytes, const bool *direct,
                              uint64_t workspace_bytes)
{
    if (model < 0 || model >= SY_SCHED_MAX_MODELS || s->models[model].used || n_groups < 1)
        return sy_error_set(SY_EARG, "model id %d is taken or not below %d", model,
                            SY_SCHED_MAX_MODELS);
    bool has_direct;
    uint64_t largest = 0, workspace = SY_ALIGN_UP(workspace_bytes, SY_POOL_ALIGN);
    uint64_t *copy = copy_bytes(n_groups, group_bytes, direct, &has_direct);
    SY_TRY_ALLOC(copy, "no memory for %d groups", n_groups);
    int status =
        has_direct && !s->image
            ? sy_error_set(SY_EARG, "model %d: without an image nothing is read in it", model)
            : check_fit(s, n_groups, copy, workspace, &largest);
    if (status == SY_OK)
        status = add_residencies(s, model, n_groups, copy);
    if (status < 0) {
        free(copy);
        return status;
    }
    s->models[model] = (struct model){.used = true,
                                      .n_groups = n_groups,
                                      .group_bytes = copy,
                                      .pool_bytes = copy + n_groups,
                                      .has_direct = has_direct,
                                      .largest_bytes = largest,
                                      .least_bytes = largest + workspace};
    return SY_OK;
}

int sy_sched_model_add(struct sy_sched *s, int model, int n_groups, const uint64_t *group_bytes,
                       uint64_t workspace_bytes)
{
    return sy_sched_model_add_direct(s, model, n_groups, group_bytes, NULL, workspace_bytes);
}

int sy_sched_model_head(struct sy_sched *s, int model, int n_head, double worth)
{
    return sy_residency_set_head(s->pool_residency, model, n_head, worth);
}

int sy_sched_charge(struct sy_sched *s, int tenant, uint64_t bytes, const char *what)
{
    return sy_quota_charge(&s->quotas, tenant, bytes, what);
}

static bool in_use(const struct sy_sched *s, int model)
{
    for (const struct slice *c = s->slices; c < s->slices + s->n_made; c++)
        if ((c->active && c->active->model == model) || (c->next && c->next->model == model))
            return true;
    return s->fetch && s->fetch->model == model;
}

int sy_sched_model_remove(struct sy_sched *s, int model)
{
    if (model < 0 || model >= SY_SCHED_MAX_MODELS || !s->models[model].used)
        return sy_error_set(SY_ENOTFOUND, "there is no model %d", model);
    if (s->models[model].n_requests > 0 || in_use(s, model))
        return sy_error_set(SY_EBUSY, "model %d has %d requests that wait or run", model,
                            s->models[model].n_requests);
    s->admission_stuck = false;
    SY_TRY(sy_residency_remove_model(s->pool_residency, model));
    if (s->image_residency)
        SY_TRY(sy_residency_remove_model(s->image_residency, model));
    free(s->models[model].group_bytes);
    s->models[model] = (struct model){0};
    sy_sched_forget_exclusive(s, model);
    return SY_OK;
}

static int drop_groups(struct sy_residency *r, int model, int n_groups, const uint64_t *bytes)
{
    int n_head = sy_residency_n_head(r, model);
    SY_TRY(sy_residency_remove_model(r, model));
    SY_TRY(sy_residency_add_model(r, model, n_groups, bytes));
    return sy_residency_set_head(r, model, n_head, 0);
}

int sy_sched_model_evict(struct sy_sched *s, int model, bool image_too)
{
    if (model < 0 || model >= SY_SCHED_MAX_MODELS || !s->models[model].used)
        return sy_error_set(SY_ENOTFOUND, "there is no model %d", model);
    if (s->fetch && s->fetch->model == model) {
        sy_sched_drop_fetch(s, image_too);
        return sy_residency_set_head(s->pool_residency, model, 0, 0);
    }
    if (in_use(s, model))
        return sy_error_set(SY_EBUSY, "model %d streams or runs", model);
    const struct model *m = &s->models[model];
    SY_TRY(drop_groups(s->pool_residency, model, m->n_groups, m->pool_bytes));
    return image_too && s->image_residency
               ? drop_groups(s->image_residency, model, m->n_groups, m->group_bytes)
               : SY_OK;
}

void sy_sched_drop_idle_models(struct sy_sched *s)
{
    for (int i = 0; i < SY_SCHED_MAX_MODELS; i++)
        if (s->models[i].used && !in_use(s, i))
            (void)drop_groups(s->pool_residency, i, s->models[i].n_groups, s->models[i].pool_bytes);
}
