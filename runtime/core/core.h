/* The runtime's core as its front ends see it: models, requests, jobs, status. One thread, the event loop's.
 *
 * Front ends check requests against the package, write tensors into the slab and hand offsets over; the core decides
 * (runtime/sched), supervises workers and calls back when the outputs are in the slab. */
#ifndef SY_RUNTIME_CORE_CORE_H
#define SY_RUNTIME_CORE_CORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/slab.h"
#include "loader/graph/state_pairs.h"
#include "loader/package/package.h"
#include "loader/plan/plan.h"
#include "runtime/base/clock.h"

struct event_base;
struct sy_core;
struct sy_image_book;
struct sy_class_labels;

struct sy_core_config {
    const char *device;   /* "host", "emulated,link-gbps=..." */
    uint64_t pool_bytes;  /* 0: sy_core_usual_pool_bytes */
    uint64_t image_bytes; /* discrete devices; 0: half of the machine's memory, at most 8 GiB */
    uint64_t slab_bytes;  /* 0: 256 MiB */
    int n_workers;        /* 0: 4 */
    /* "0-1": compute cores; NULL: all that this process may use, less the link's */
    const char *cores;
    const char *state_folder; /* training jobs are stored here; NULL: they are not stored */
    /* argv[0] of workers; NULL: /proc/self/exe; run as `PROGRAM worker --fd N --index I`, with GOMP_SPINCOUNT=20000 in the environment: a paused worker's
     * threads must not spin */
    const char *worker_program;
    uint64_t hang_timeout_ns; /* 0: 10 s without a heartbeat kills a worker */
    int poll_us; /* how long workers poll for the next request before they sleep, unless a worker has a job; 0: never */
    int max_queue; /* 0: 1024 waiting requests; more are rejected with EBUSY */
    /* batch sizes whose programs are made when a model is added; NULL: {1} */
    const int64_t *warm_batches;
    int n_warm_batches;
    /* how long requests for one model are gathered at most while the device is busy; 0: never (core_batch.h) */
    uint64_t max_delay_ns;
    int max_batch;                   /* 0: 8 rows */
    const struct sy_link_cost *link; /* measured; NULL: by the device's description */
    bool fetch_heads;                /* prefetch missing heads while no request waits */
    /* no heads: a model is evicted whole, least recently used first; for comparison */
    bool whole_models;
    int image_fd; /* with image_book, of a discrete device: the image is this file, of image_bytes (sy_keeper_image_fd); borrowed */
    /* records what is in the image, for the next runtime; borrowed until destroy; NULL: the core has an image of its own */
    struct sy_image_book *image_book;
    const char *grouping; /* NULL or "planned"; "per_layer", "whole": for comparison */
    /* where the kernel's resctrl may be mounted (runtime/device/cache_ways.h); NULL: slices share caches */
    const char *resctrl;
};

struct sy_device_properties;
/* The pool's default size: half of the machine's memory, at most 8 GiB; three quarters of a GPU's. */
uint64_t sy_core_usual_pool_bytes(const struct sy_device_properties *device);
/* The host image's default size. */
uint64_t sy_core_usual_image_bytes(void);
/* Call when the models of the start are loaded: a kept image frees what it holds of other models. */
void sy_core_image_drop_unused(struct sy_core *core);
/* Starts: opens the device, takes pool, image and slab, spawns workers, resumes jobs found in the state folder. */
int sy_core_create(struct event_base *base, const struct sy_core_config *config,
                   struct sy_core **out);
void sy_core_destroy(struct sy_core *core); /* kills remaining workers */
/* Stops accepting requests (EBUSY "draining"); running ones finish; training jobs write snapshots, waiting jobs do not start; then done(ctx) is called, at the
 * latest after grace_ns. May be called again, also after the drain: the first bound holds, and each call's done is called once, from the loop. ENOMEM_HOST:
 * done will not be called. */
int sy_core_drain(struct sy_core *core, sy_ns grace_ns, void (*done)(void *ctx), void *ctx);

/* Call before each turn of the event loop: takes what workers have posted in shared memory. True: an event is due so soon (the end of a short run, the next
 * request after an answer) that the turn should not block (EVLOOP_NONBLOCK). False from three times poll_us after the last event on. A loop that never calls
 * it is served through the sockets alone. */
bool sy_core_poll(struct sy_core *core);

struct sy_slab *sy_core_slab(struct sy_core *core); /* borrowed; ends with the core */

#define SY_CORE_MAX_WORKERS 64
#define SY_CORE_MODEL_NAME  128 /* bytes of a model's name, with its terminator */

#define SY_CORE_TENANT_NAME 64 /* bytes of a tenant's name, with its terminator */

/* Defaults of a model's requests; front ends apply them. */
struct sy_core_model_defaults {
    bool has_class;
    int class_;
    char tenant[SY_CORE_TENANT_NAME]; /* "": none */
    char slice[32];                   /* name of a slice; "": none */
    /* deadline of requests that have none of their own, and upper bound of theirs; 0: none */
    sy_ns deadline_ns;
    bool keeps_deadline; /* ignore the request's own deadline */
    int64_t most_rows;   /* larger batches are rejected; 0: no limit */
};

/* A tensor that requests see in another shape than the model has, with the same elements (runtime/front/request/front_reshape.h). The core only stores it with
 * the model. */
struct sy_core_reshape {
    bool is_output;
    int index; /* of the graph's inputs or outputs */
    /* both shapes have the batch dimension first, which dims and model_dims leave out */
    bool has_batch;
    int rank, model_rank;
    int64_t dims[SY_MAX_RANK], model_dims[SY_MAX_RANK]; /* -1: open */
};

/* A held reference to a version of a model: its package and memory stay until the reference is released, even if the model is replaced or unloaded. */
struct sy_core_model_ref {
    const struct sy_package *package;
    const char *name;
    int64_t version;
    struct sy_core_model_defaults defaults;
    int n_reshapes;
    const struct sy_core_reshape *reshapes;
    int n_states; /* state tensors of a session, as configured; 0: derived from tensor names */
    const struct sy_state_pair *states;
    sy_ns session_idle_ns; /* an unused session ends after this time; 0: the front ends' default */
    const struct sy_class_labels *labels; /* class_labels.h; NULL: none */
};

struct sy_core_model_options {
    const char *name;   /* NULL or "": the package's */
    int64_t version;    /* 0: 1. One name may have several versions at once */
    const char *tenant; /* the tenant whose memory quota is charged; NULL: none */
    /* a ready model of this name and version serves until this one is ready, and is removed then; without the flag EBUSY */
    bool replaces;
    /* how long its requests are gathered at most; 0: as configured for the core */
    sy_ns max_delay_ns;
    int max_batch; /* rows gathered at most; 0: as configured for the core */
    struct sy_core_model_defaults defaults;
    int n_reshapes; /* copied */
    const struct sy_core_reshape *reshapes;
    int n_states; /* copied */
    const struct sy_state_pair *states;
    sy_ns session_idle_ns;
    /* the package at `path`, already open: owned by the core unless add fails; NULL: add opens it */
    struct sy_package *package;
    struct sy_class_labels *labels; /* owned by the core unless add fails; NULL: none */
};

/* How many more models can be added, of SY_MAX_MODELS. A removed model counts until its last reference is released. */
int sy_core_model_room(const struct sy_core *core);
/* Models. add: opens the package, plans its groups; done(ctx, status, error) when every live worker has it (or not).
 * Refused when it can never fit: ENOMEM_DEVICE with the sizes. EBUSY: the name and version are there, or too many models are; EBUSY or
 * ENOMEM_DEVICE with the sizes when the tenant is over its quota. options: NULL for none. */
typedef void (*sy_core_done)(void *ctx, int status, const char *error);
int sy_core_model_add(struct sy_core *core, const char *path,
                      const struct sy_core_model_options *options, sy_core_done done, void *ctx);
/* Call when a package's arrival (options->package->arrival) has progressed: reads and requests that wait for it continue, or end with the reason of its
 * failure. */
void sy_core_arrived(struct sy_core *core);
/* Unloads: later acquires do not find the model; held references, waiting and running requests end normally, then its memory is freed. version 0: all
 * versions. ENOTFOUND; EBUSY: it is loading (the model that it was to replace is removed). */
int sy_core_model_remove(struct sy_core *core, const char *name, int64_t version);
/* Release the reference afterwards. version 0: the highest that is ready. ENOTFOUND names the model and lists up to 8 that exist. EBUSY while loading,
 * EIO/ECORRUPT when unavailable, with the reason. */
int sy_core_model_acquire(struct sy_core *core, const char *name, int64_t version,
                          struct sy_core_model_ref **out);
void sy_core_model_release(struct sy_core *core, struct sy_core_model_ref *ref); /* NULL is fine */
/* Drops an idle model's groups from the pool (and the image if `image_too`; on a unified device the pool is the image). For measuring. */
int sy_core_model_evict(struct sy_core *core, const char *name, bool image_too);

/* Memory shared by a client, for tensors of requests. A worker maps it once, with its first run that uses it. */
#define SY_CORE_MAX_REGIONS 1024
/* `fd` is duplicated: a memfd or POSIX shared memory, to read and write; `bytes` from `offset_bytes` on (a multiple of the page). is_sealed: the file
 * cannot shrink (held against its seals). Where it can, and does, a run that touches what is gone fails with EIO, and nothing else does; so do later ones of
 * this region. *out_region: 1 or above; an id is given out again after 1023 others at the earliest. EARG, EBUSY (too many), ENOMEM_HOST. */
int sy_core_region_add(struct sy_core *core, int fd, uint64_t offset_bytes, uint64_t bytes,
                       bool is_sealed, uint64_t *out_region);
/* Later requests do not find the region; it is unmapped soon (0.1 s) after the last request that uses it has ended. Unknown ids are ignored. */
void sy_core_region_drop(struct sy_core *core, uint64_t region);
/* A tensor's address for sy_core_infer: an offset in a region, or in the slab (region 0: the offset itself). */
#define SY_CORE_REGION_SHIFT 44
static inline uint64_t sy_core_tensor_at(uint64_t region, uint64_t offset)
{
    return region << SY_CORE_REGION_SHIFT | offset;
}

/* The report of a request; times are CLOCK_MONOTONIC, 0: did not happen. */
struct sy_request_report {
    uint64_t id;
    sy_ns arrived_ns, started_ns /* LOAD sent */, run_ns /* RUN sent */, first_layer_ns,
        computed_ns /* end of the worker's last layer */, finished_ns;
    /* from the preempt until training was paused; 0 when nothing was preempted */
    sy_ns preempt_wait_ns;
    bool preempted, swapped; /* swapped: at least one group had to be moved */
    uint64_t moved_bytes, storage_bytes;
    sy_ns storage_start_ns, storage_end_ns, copy_start_ns, copy_end_ns, compute_wait_ns;
    sy_ns predicted_ns; /* predicted at its arrival: from its arrival to its end */
    /* Exclusive device time: each time from its LOAD, or the end of the request before it, until it stopped; of a batch, the first request has it. */
    sy_ns served_ns;
    /* lower bound of this swap, given the groups that were resident: see loader/plan/plan.h */
    sy_ns bound_ns;
    /* rows of its run, all requests included; in the report of the first request of a run, 0 in the others */
    int64_t run_rows;
    int worker, attempts;
};
typedef void (*sy_core_infer_done)(void *ctx, int status, const char *error,
                                   const struct sy_request_report *report);

struct sy_core_infer_options {
    int class_;         /* 0 (most urgent) .. 9 */
    sy_ns deadline_ns;  /* relative to now; 0: none */
    const char *tenant; /* NULL: no tenant */
    /* sizes of the model's open dimensions, borrowed during the call; NULL: the usual ones */
    const struct sy_sizes *sizes;
};
#define SY_CORE_USUAL_CLASS 1

/* options: NULL for the usual class, no deadline, the usual sizes. EDEADLINE: late by prediction. inputs: where each of the graph's inputs lies
 * (sy_core_tensor_at), plain row-major for `batch` and the sizes, 64-byte aligned; outputs likewise, allocated by the caller; all stay the caller's and must
 * stay allocated until done is called (always exactly once, never from inside this call unless it fails: then not at all). The model stays held until then. */
int sy_core_infer(struct sy_core *core, const struct sy_core_model_ref *model, int64_t batch,
                  const uint64_t *inputs, const uint64_t *outputs,
                  const struct sy_core_infer_options *options, sy_core_infer_done done, void *ctx,
                  uint64_t *out_id);
/* The client has gone: a waiting request is dropped; one that computes is canceled between two layers, unless others compute in the same run. done is called
 * with ECANCELED, or normally if it was done already. */
void sy_core_infer_cancel(struct sy_core *core, uint64_t id);

/* While held, no job starts; draining makes the hold permanent. For models that must be resident first: loaded before the jobs, each finds room in the pool. */
void sy_core_hold_jobs(struct sy_core *core, bool hold);
/* Training jobs. text: the job file. *out_job is its id. done(ctx, status, error) when it was admitted and started, or refused. */
int sy_core_job_submit(struct sy_core *core, const char *text, sy_core_done done, void *ctx,
                       uint64_t *out_job);
/* A suspended job is not scheduled and keeps its memory until it is resumed. ENOTFOUND; EBUSY: it has ended or is being stopped. */
int sy_core_job_suspend(struct sy_core *core, uint64_t job, bool suspended);
/* A smaller priority is more urgent. */
int sy_core_job_set_priority(struct sy_core *core, uint64_t job, int priority);
/* {policy: "fair", at_once: 0, max_wait_s: 0, train_share: 0.2}; missing keys keep their values. EARG names the key. */
int sy_core_policy_set(struct sy_core *core, json_t *params);
/* {tenant: NAME, weight: 2, hard_share: 0.3, memory_bytes: 1e9}; hard_share 0: elastic; memory_bytes 0: no limit. EARG. */
int sy_core_tenant_set(struct sy_core *core, json_t *params);
/* Cuts the device's compute into slices, while it runs: {slices: [{name, and one of cores: 2 or "0-1", share: 0.5, weight: 3}, ...], for_jobs: NAME,
 * for_models: NAME, for_runtime: NAME (whose cores the calling thread computes on from then on; "": on those that it began with)}; an empty list: one slice
 * of all cores. {model: NAME, slice: NAME} or {job: ID, slice: NAME} moves one. What is left out stays. Requests that compute move to the slice's new cores
 * before their next layer; jobs between two iterations. EARG names what is wrong; ENOTFOUND; EUNSUPPORTED: the device has no slices. */
int sy_core_slices_set(struct sy_core *core, json_t *params);
/* done is called when it has ended */
int sy_core_job_stop(struct sy_core *core, uint64_t job, bool evaluate, sy_core_done done,
                     void *ctx);

/* Resumes a parked job that is paused before its first iteration: it starts, with a worker and memory, or is refused, as any other. EBUSY: it is not parked. */
int sy_core_job_resume_paused(struct sy_core *core, uint64_t job);
/* Parks a job: it ends after its iteration with a snapshot, and releases its worker and memory. It stays in the list and in the state folder, also across
 * restarts, until sy_core_job_suspend(core, job, false) queues it again. done: it is parked; EBUSY: it completed its last iteration meanwhile. EUNSUPPORTED:
 * it writes no snapshots. */
int sy_core_job_park(struct sy_core *core, uint64_t job, sy_core_done done, void *ctx);
/* The job's tenant, "" for none; *out is borrowed until the job is removed. ENOTFOUND. */
int sy_core_job_tenant(struct sy_core *core, uint64_t job, const char **out);
/* The state that another server needs to resume it; text borrowed until the job is removed. */
struct sy_core_parked {
    const char *text, *tenant;
    uint64_t step, total_steps;
    int priority;
    bool priority_set; /* the priority was set at run time and overrides the job file's */
};
/* ENOTFOUND; EBUSY: it is not parked. */
int sy_core_job_parked(struct sy_core *core, uint64_t job, struct sy_core_parked *out);
/* The folder of the snapshots of a job that is over, and that no start goes on with; the caller's to free. EBUSY: it is not over; ENOTFOUND: no job, or
 * none with snapshots; ENOMEM_HOST. */
int sy_core_job_folder(struct sy_core *core, uint64_t job, char **out);
/* Adds a parked job from another server; it is stored before this returns. EBUSY: draining, or too many jobs; ETOOBIG, EARG, EIO. */
int sy_core_job_receive(struct sy_core *core, const struct sy_core_parked *parked,
                        uint64_t *out_job);

/* Everything that a person or a tool wants to know, as one JSON object (caller decrefs): device, pool map, image, workers with state and pid, models
 * with resident bytes and requests, queue, jobs with step, loss, accuracy, steps per second, counters (requests, failed, swaps, evictions, preemptions,
 * moved bytes), preempt_wait_ns {n,p50,p99,max}. Keys in STATUS.md. */
int sy_core_status(struct sy_core *core, json_t **out);
/* The status in parts that each take well under a millisecond, independent of the number of models and jobs: for clients that poll. */
struct sy_core_status_part {
    int first_model;    /* first index in the model table, of SY_CORE_MODEL_PLACES */
    int n_models;       /* maximum number of models */
    uint64_t after_job; /* only jobs with larger ids, in ascending order */
    int n_jobs;         /* maximum number of jobs */
    uint64_t gap_bytes; /* free blocks up to this size are shown as used */
};
#define SY_CORE_MODEL_PLACES 256
/* As sy_core_status, restricted to these models (each with its `place`) and jobs; caller decrefs. ENOMEM_HOST. */
int sy_core_status_part(struct sy_core *core, const struct sy_core_status_part *part, json_t **out);
/* The device's timeline, for one reader. watch: recording begins, or ends and is forgotten; ENOMEM_HOST. take: what was recorded since the last call,
 * {"now_ns", "spans": [[lane, name, start_ns, end_ns, busy_ns, n]], "under_way": [[lane, name, start_ns]]}; lanes are those of runtime/core/trace/trace.h,
 * spans those of runtime/core/trace/timeline.h; caller decrefs. ENOMEM_HOST. */
int sy_core_timeline_watch(struct sy_core *core, bool on);
int sy_core_timeline_take(struct sy_core *core, json_t **out);
/* Chrome trace events since the trace was started, at most 200 000 kept. enable=true clears and starts. */
void sy_core_trace_enable(struct sy_core *core, bool enable);
int sy_core_trace_dump(struct sy_core *core, json_t **out);

#endif
