#include "runtime/core/core_handlers.h"

static struct sy_slab *core_slab(void *core)
{
    return sy_core_slab(core);
}

static int core_model_acquire(void *core, const char *name, int64_t version,
                              struct sy_core_model_ref **out)
{
    return sy_core_model_acquire(core, name, version, out);
}

static void core_model_release(void *core, struct sy_core_model_ref *ref)
{
    sy_core_model_release(core, ref);
}

static int core_infer(void *core, const struct sy_core_model_ref *model, int64_t batch,
                      const uint64_t *inputs, const uint64_t *outputs,
                      const struct sy_core_infer_options *options, sy_core_infer_done done,
                      void *ctx, uint64_t *out_id)
{
    return sy_core_infer(core, model, batch, inputs, outputs, options, done, ctx, out_id);
}

static void core_infer_cancel(void *core, uint64_t id)
{
    sy_core_infer_cancel(core, id);
}

static int core_model_room(void *core)
{
    return sy_core_model_room(core);
}

static int core_model_add(void *core, const char *path, const struct sy_core_model_options *options,
                          sy_core_done done, void *ctx)
{
    return sy_core_model_add(core, path, options, done, ctx);
}

static void core_arrived(void *core)
{
    sy_core_arrived(core);
}

static int core_model_remove(void *core, const char *name, int64_t version)
{
    return sy_core_model_remove(core, name, version);
}

static int core_model_evict(void *core, const char *name, bool image_too)
{
    return sy_core_model_evict(core, name, image_too);
}

static int core_region_add(void *core, int fd, uint64_t offset_bytes, uint64_t bytes,
                           bool is_sealed, uint64_t *out_region)
{
    return sy_core_region_add(core, fd, offset_bytes, bytes, is_sealed, out_region);
}

static void core_region_drop(void *core, uint64_t region)
{
    sy_core_region_drop(core, region);
}

static int core_job_submit(void *core, const char *text, sy_core_done done, void *ctx,
                           uint64_t *out_job)
{
    return sy_core_job_submit(core, text, done, ctx, out_job);
}

static int core_job_stop(void *core, uint64_t job, bool evaluate, sy_core_done done, void *ctx)
{
    return sy_core_job_stop(core, job, evaluate, done, ctx);
}

static int core_job_suspend(void *core, uint64_t job, bool suspended)
{
    return sy_core_job_suspend(core, job, suspended);
}

static int core_job_resume_paused(void *core, uint64_t job)
{
    return sy_core_job_resume_paused(core, job);
}

static int core_job_folder(void *core, uint64_t job, char **out)
{
    return sy_core_job_folder(core, job, out);
}

static int core_job_park(void *core, uint64_t job, sy_core_done done, void *ctx)
{
    return sy_core_job_park(core, job, done, ctx);
}

static int core_job_tenant(void *core, uint64_t job, const char **out)
{
    return sy_core_job_tenant(core, job, out);
}

static int core_job_parked(void *core, uint64_t job, struct sy_core_parked *out)
{
    return sy_core_job_parked(core, job, out);
}

static int core_job_receive(void *core, const struct sy_core_parked *parked, uint64_t *out_job)
{
    return sy_core_job_receive(core, parked, out_job);
}

static int core_job_set_priority(void *core, uint64_t job, int priority)
{
    return sy_core_job_set_priority(core, job, priority);
}

static int core_policy_set(void *core, json_t *params)
{
    return sy_core_policy_set(core, params);
}

static int core_tenant_set(void *core, json_t *params)
{
    return sy_core_tenant_set(core, params);
}

static int core_status(void *core, json_t **out)
{
    return sy_core_status(core, out);
}

static int core_status_part(void *core, const struct sy_core_status_part *part, json_t **out)
{
    return sy_core_status_part(core, part, out);
}

static int core_slices_set(void *core, json_t *params)
{
    return sy_core_slices_set(core, params);
}

static int core_timeline_watch(void *core, bool on)
{
    return sy_core_timeline_watch(core, on);
}

static int core_timeline_take(void *core, json_t **out)
{
    return sy_core_timeline_take(core, out);
}

static int core_metrics(void *core, struct sy_core_metrics **out)
{
    return sy_core_metrics(core, out);
}

static void core_trace_enable(void *core, bool enable)
{
    sy_core_trace_enable(core, enable);
}

static int core_trace_dump(void *core, json_t **out)
{
    return sy_core_trace_dump(core, out);
}

static int core_drain(void *core, sy_ns grace_ns, void (*done)(void *ctx), void *ctx)
{
    return sy_core_drain(core, grace_ns, done, ctx);
}

const struct sy_core_handlers sy_core_own_handlers = {
    .slab = core_slab,
    .model_acquire = core_model_acquire,
    .model_release = core_model_release,
    .infer = core_infer,
    .infer_cancel = core_infer_cancel,
    .model_room = core_model_room,
    .model_add = core_model_add,
    .arrived = core_arrived,
    .model_remove = core_model_remove,
    .model_evict = core_model_evict,
    .region_add = core_region_add,
    .region_drop = core_region_drop,
    .job_submit = core_job_submit,
    .job_stop = core_job_stop,
    .job_suspend = core_job_suspend,
    .job_resume_paused = core_job_resume_paused,
    .job_folder = core_job_folder,
    .job_park = core_job_park,
    .job_tenant = core_job_tenant,
    .job_parked = core_job_parked,
    .job_receive = core_job_receive,
    .job_set_priority = core_job_set_priority,
    .policy_set = core_policy_set,
    .tenant_set = core_tenant_set,
    .slices_set = core_slices_set,
    .status = core_status,
    .status_part = core_status_part,
    .timeline_watch = core_timeline_watch,
    .timeline_take = core_timeline_take,
    .metrics = core_metrics,
    .trace_enable = core_trace_enable,
    .trace_dump = core_trace_dump,
    .drain = core_drain,
};
