/* The core's interface as a table of functions. */
#ifndef SY_RUNTIME_CORE_CORE_HANDLERS_H
#define SY_RUNTIME_CORE_CORE_HANDLERS_H

#include "runtime/core/core.h"
#include "runtime/core/core_metrics.h"

/* The interface of the core to front ends and the repository, each function as in runtime/core/core.h. Tests bind fakes. */
struct sy_core_handlers {
    struct sy_slab *(*slab)(void *core);
    int (*model_acquire)(void *core, const char *name, int64_t version,
                         struct sy_core_model_ref **out);
    void (*model_release)(void *core, struct sy_core_model_ref *ref);
    int (*infer)(void *core, const struct sy_core_model_ref *model, int64_t batch,
                 const uint64_t *inputs, const uint64_t *outputs,
                 const struct sy_core_infer_options *options, sy_core_infer_done done, void *ctx,
                 uint64_t *out_id);
    void (*infer_cancel)(void *core, uint64_t id);
    int (*model_room)(void *core);
    int (*model_add)(void *core, const char *path, const struct sy_core_model_options *options,
                     sy_core_done done, void *ctx);
    void (*arrived)(void *core);
    int (*model_remove)(void *core, const char *name, int64_t version);
    int (*model_evict)(void *core, const char *name, bool image_too);
    int (*region_add)(void *core, int fd, uint64_t offset_bytes, uint64_t bytes, bool is_sealed,
                      uint64_t *out_region);
    void (*region_drop)(void *core, uint64_t region);
    int (*job_submit)(void *core, const char *text, sy_core_done done, void *ctx,
                      uint64_t *out_job);
    int (*job_stop)(void *core, uint64_t job, bool evaluate, sy_core_done done, void *ctx);
    int (*job_suspend)(void *core, uint64_t job, bool suspended);
    int (*job_resume_paused)(void *core, uint64_t job);
    int (*job_folder)(void *core, uint64_t job, char **out);
    int (*job_park)(void *core, uint64_t job, sy_core_done done, void *ctx);
    int (*job_tenant)(void *core, uint64_t job, const char **out);
    int (*job_parked)(void *core, uint64_t job, struct sy_core_parked *out);
    int (*job_receive)(void *core, const struct sy_core_parked *parked, uint64_t *out_job);
    int (*job_set_priority)(void *core, uint64_t job, int priority);
    int (*policy_set)(void *core, json_t *params);
    int (*tenant_set)(void *core, json_t *params);
    int (*slices_set)(void *core, json_t *params);
    int (*status)(void *core, json_t **out);
    int (*status_part)(void *core, const struct sy_core_status_part *part, json_t **out);
    int (*timeline_watch)(void *core, bool on);
    int (*timeline_take)(void *core, json_t **out);
    int (*metrics)(void *core, struct sy_core_metrics **out);
    void (*trace_enable)(void *core, bool enable);
    int (*trace_dump)(void *core, json_t **out);
    int (*drain)(void *core, sy_ns grace_ns, void (*done)(void *ctx), void *ctx);
};

/* `core` is the struct sy_core. */
extern const struct sy_core_handlers sy_core_own_handlers;

#endif
