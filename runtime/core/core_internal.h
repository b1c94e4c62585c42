/* Shared by the core's files.
 *
 *   core.c           start, stop, drain, queries            core_actions.c   carries out the scheduler's actions
 *   core_requests.c  requests in the scheduler              core_messages.c  messages from workers
 *   core_batch.c     requests that run together             core_predict.c   how long a request takes
 *   core_models.c    the model table                        core_sizes.c     choices of open sizes
 *   jobs/            training jobs                          slices/          parts of the device's compute
 *   core_rules.c     policy, shares                         core_tenants.c   tenants
 *   core_status.c    status JSON                            core_metrics.c   counters, for scrapers
 *   core_regions.c   memory that clients share              core_tick.c      time, and when actions are carried out */
#ifndef SY_RUNTIME_CORE_CORE_INTERNAL_H
#define SY_RUNTIME_CORE_CORE_INTERNAL_H

#include <sched.h>

#include "allocator/shared_memory.h"
#include "loader/plan/plan.h"
#include "runtime/core/core.h"
#include "runtime/core/core_cache.h"
#include "runtime/core/core_metrics.h"
#include "runtime/core/storage/job_store.h"
#include "runtime/core/storage/storage_thread.h"
#include "runtime/core/trace/trace.h"
#include "runtime/device/device.h"
#include "runtime/sched/account.h"
#include "runtime/sched/fill.h"
#include "runtime/sched/interference.h"
#include "runtime/sched/sched.h"
#include "runtime/sched/slice_plan.h"
#include "runtime/supervisor/supervisor.h"
#include "runtime/wire/link_turn.h"

#define SY_CORE_MAX_CORES  1024
#define SY_CORE_MAX_GROUPS 1024 /* per model, so that a LOAD of all groups fits into one message */
#define SY_CORE_WARM       8
#define SY_CORE_ENDED_JOBS 64 /* ended jobs that the status remembers */
#define SY_CORE_WAITS      4096

enum sy_core_model_state { SY_MODEL_ADDING, SY_MODEL_READY, SY_MODEL_UNAVAILABLE };

/* The value of a model's head: core_heads.c. */
struct sy_model_heads {
    int free_prefix; /* number of groups */
    uint64_t *bytes; /* [0..n_groups]: [k]: bytes of the first k groups */
    /* [0..n_groups]: [k]: time that a swap saves with the first k groups resident */
    double *saved_ns;
    sy_ns nothing_ns;    /* duration of a swap with none resident */
    uint64_t pool_bytes; /* sum over all groups */
    bool out;            /* was evicted by command: no head until the next request */
    double rate;         /* recent requests per second */
    sy_ns rate_ns;       /* time of the rate's last update */
    double scale;        /* sy_core_compute_scale at the time of the estimates above */
};

#define SY_CORE_SIZE_CLASSES 8 /* classes of sizes by compute time, each twice the one before */
#define SY_CORE_USUAL_SIZES  3 /* class of the usual sizes */
/* Unused size choices remembered per model, besides those of its requests. */
#define SY_CORE_IDLE_SIZES 32

/* One choice of a model's open sizes, other than the usual one. */
struct sy_core_sizes {
    struct sy_core_sizes *next;
    uint64_t id; /* its number in the scheduler; never reused */
    struct sy_sizes of;
    float *work; /* per layer: relative compute, 1 with the usual sizes */
    int class_;  /* 0 .. SY_CORE_SIZE_CLASSES - 1 */
    int n_users; /* requests and batches */
    uint64_t last_use;
};

/* core_corun.c: co-run measurements of a model. The lists are by task; NULL: it is not measured. */
struct sy_core_corun_model {
    unsigned n_alone;
    float recent[32];   /* measured / predicted time of undisturbed runs */
    double alone;       /* median of `recent` */
    double alone_block; /* median before the last 8 undisturbed runs */
    /* its error against these 8 runs, as computed for pairs: the machine's own variation */
    double alone_error;
    double lost[2]; /* fraction of its runs in which it had no core: alone, beside others */
    sy_ns *retry_at_ns, *wait_ns;
    bool *apart;
};

struct sy_core_model {
    struct sy_core_model_ref ref; /* first member: what sy_core_model_acquire returns */
    bool used;
    /* unloaded: lookups do not find it; it is freed after its last reference and the answers to its messages in flight */
    bool leaving;
    struct sy_class_labels *labels; /* ref.labels, owned */
    int n_held;                     /* references by front ends, requests, batches */
    bool replaces;
    sy_ns max_delay_ns; /* limit for gathering; 0: as configured for all */
    int64_t max_batch;
    enum sy_core_model_state state;
    char *name, *path;
    struct sy_core_sizes *sizes; /* newest first */
    int tenant;                  /* the tenant that loaded it; -1: none */
    char slice[SY_SLICE_NAME];   /* the slice that its configuration names; "": none */
    uint64_t charged_bytes;
    struct sy_package *package;
    struct sy_group *groups;
    int n_groups;
    uint64_t *group_layers, *group_bytes; /* n_groups each */
    bool *direct;              /* n_groups: read in the image (loader/storage/direct_read.h) */
    bool rows_are_independent; /* rows of several requests may share one run */
    struct sy_model_heads heads;
    struct {
        uint64_t batch, bytes;
    } workspaces[SY_CORE_WARM];
    int n_workspaces;
    int status; /* why it cannot be used */
    char error[256];
    int n_lost; /* consecutive workers lost while loading it */
    struct {
        bool due, over; /* due: runs may start; over: the arrival has ended */
        sy_ns first_ns; /* time of the first look */
        uint64_t first_bytes;
    } arrival; /* for a package that was incomplete when it was added (core_arrival.h) */
    sy_core_done done;
    void *done_ctx;
    /* Longest run by the workers' measurement since it was loaded, without round trips: of one part where there are several. */
    bool was_run;
    sy_ns longest_run_ns;
    /* measured / predicted, running mean over runs without transfers; 0: none yet */
    double run_scale;
    uint64_t n_requests, n_failed, n_swaps;
    /* bytes sent over the link for it: groups, and rows of tables that stay in the image */
    uint64_t link_bytes;
    struct sy_account_owner account;
    struct sy_phase_histograms phases; /* of its requests */
    struct sy_core_corun_model corun;
};

struct sy_core_tenant {
    char name[SY_CORE_TENANT_NAME];
    unsigned weight, hard_permille;
    uint64_t memory_bytes; /* quota for its jobs and models; 0: no limit */
    sy_ns used_ns;
    uint64_t named; /* value of core->n_named when it was last named */
};

enum sy_core_has { SY_HAS_NOT, SY_HAS_SENT, SY_HAS_IT };

struct sy_core_worker {
    unsigned char has[SY_MAX_MODELS]; /* enum sy_core_has */
    int n_pending;                    /* MODEL_ADDED messages outstanding */
    bool gone;                        /* given up */
};

/* A prediction by profile, corrected for the model's observed computation; the deviation of runs with transfers is learned separately. */
struct sy_core_guess {
    int class_; /* class of its sizes: deviations are learned per class */
    sy_ns ns;
    bool moves;
};

struct sy_core_request {
    struct sy_core_request *next;
    uint64_t id, run;
    int model, tenant, class_;
    int slice;  /* its slice when RUN was sent */
    int beside; /* the task computing in other slices at that time (core_corun.c) */
    sy_ns deadline_ns;
    /* prediction at arrival, then at its start, by the groups resident at that time */
    struct sy_core_guess guess;
    int n_resident; /* leading groups in the pool when it started */
    int64_t batch;
    struct sy_core_sizes *sizes; /* NULL: the usual ones */
    int n_parts; /* requests that run back to back in this one (core_batch.h): all tensors of the first, then of the second, ... */
    uint64_t *inputs, *outputs;
    int n_inputs, n_outputs; /* over all parts */
    bool is_batch;           /* its members' ends are recorded individually */
    bool holds_regions;      /* it holds the regions of its tensors */
    sy_core_infer_done done;
    void *ctx;
    struct sy_request_report report;
};

enum sy_core_job_state {
    SY_JOB_QUEUED,
    SY_JOB_PREPARING,
    SY_JOB_STARTING,
    SY_JOB_TRAINING,
    SY_JOB_ENDED,
    SY_JOB_FAILED
};

struct sy_core_job {
    struct sy_core_job *next;
    uint64_t id;
    char *text, *name;
    enum sy_core_job_state state;
    int worker; /* -1: none */
    int tenant, priority;
    char slice[SY_SLICE_NAME]; /* the slice that its job file names; "": none */
    bool slice_set;            /* the slice was set at run time and overrides the job file's */
    bool has_snapshots;
    int team; /* number of threads that computed its weights since it started */
    bool stop_wanted, evaluate, suspended, opportunistic;
    bool is_script; /* a foreign process: no snapshot outlives it */
    int spill_file; /* shared memory that its persistent state is spilled to, which survives its worker; -1: none */
    bool priority_set;   /* the priority was set at run time and overrides the job file's */
    bool resumed;        /* found in the state folder at this start, and not started since */
    bool kept;           /* ended here, but its file stays: the next start resumes it */
    bool park_wanted;    /* park it when it has stopped (core_job_keep.c) */
    bool parked;         /* kept; resumed only when a client asks */
    bool pauses_first;   /* it is suspended once it has started, before its first iteration */
    sy_ns turn_began_ns; /* account.used_ns when its turn began */
    struct sy_account_owner account; /* active while it computes, as far as the core knows */
    sy_ns since_ns;                  /* start of the current compute; 0: paused */
    struct sy_fill fill; /* guaranteed jobs: effect of opportunistic ones (core_fill.c) */
    uint64_t fill_step, fill_busy_ns; /* step and busy time at the window's begin */
    uint64_t step, total_steps, first_step, snapshot_step, persistent_bytes, ephemeral_bytes,
        longest_layer_ns;
    char longest_what[SY_LONGEST_BYTES]; /* what took longest in that stretch */
    uint64_t busy_ns;
    double loss, accuracy; /* accuracy < 0: not evaluated */
    uint64_t accuracy_step;
    sy_ns started_ns;
    int status;
    char error[256];
    sy_core_done done, stop_done;
    void *done_ctx, *stop_ctx;
};

/* Counters, updated as events happen; see core_metrics.h. */
struct sy_core_counts {
    struct sy_phase_histograms phases;
    struct sy_histogram preempt_wait;
    struct sy_refusals refused;
    uint64_t failed[SY_CORE_N_STATUS];
    sy_ns gone_jobs_ns; /* the part of gone_ns due to jobs */
};

/* A part of the device's compute. */
struct sy_core_slice {
    char name[SY_SLICE_NAME];
    uint64_t cores[SY_CORE_MAX_CORES];
    size_t n_cores;
    sy_ns last_finish_ns, last_served_ns; /* last request's end and its exclusive device time */
    sy_ns used_ns;                        /* time in which something computed there */
};

/* The units of slices: cores, or parts of a GPU's multiprocessors. */
struct sy_core_units {
    uint64_t ids[SY_CORE_MAX_CORES]; /* core numbers; of a GPU, parts from 0 on */
    size_t n;
    unsigned each; /* multiprocessors per unit; 1: cores */
    char no_slice[256],
        no_slices
            [256]; /* reason why slices, or two at a time, are impossible; "": they are possible */
};

struct sy_core_drainer {
    void (*done)(void *ctx);
    void *ctx;
    struct sy_core_drainer *next;
};

struct sy_core {
    struct event_base *base;
    struct event *pump_event, *drain_event;
    struct sy_device_spec spec;
    struct sy_device *device;
    bool unified;
    struct sy_pool_memory *pool;
    unsigned char *pool_base; /* unified: mapped in this process */
    int pool_fd;
    struct sy_shared_memory image, arrivals_memory;
    struct sy_image_book *image_book; /* borrowed; NULL: no keeper has the image */
    uint64_t image_kept_bytes;        /* bytes taken over from an existing image without reading */
    _Atomic uint32_t *arrivals;
    struct sy_link_board *board; /* behind them */
    struct sy_slab *slab;
    uint64_t cores[SY_CORE_MAX_CORES];
    size_t n_cores;
    struct sy_core_units units;
    int64_t link_core;
    struct sy_core_slice slices[SY_SCHED_MAX_SLICES];
    int n_slices;
    struct sy_core_cache cache;
    struct {
        struct sy_interference slow;
        /* a model of class 0 or with deadlines takes turns with tasks that would slow it down by more than this factor; 0: never */
        double bound;
    } corun;
    struct { /* core_fill.c */
        struct event *event;
        bool begins; /* the window has no measurement yet */
        /* fraction of its speed that a guaranteed job keeps beside opportunistic ones; 0: no guarantee */
        double keep;
        sy_ns since_ns,
            had_ns; /* the window's begin; compute time in it of opportunistic jobs that are paused now */
    } fill;
    char for_jobs[SY_SLICE_NAME],
        for_models[SY_SLICE_NAME];   /* slices of jobs and models that name none; "": the first */
    char for_runtime[SY_SLICE_NAME]; /* the slice whose cores this thread uses; "": all */
    int n_workers, max_queue, poll_us;
    struct {
        sy_ns at_ns, computed_ns; /* time of the last look, and the process's CPU time then */
        sy_ns other_work_until_ns;
    } poll_look;
    bool whole_models;
    char *grouping;
    uint64_t warm_batches[SY_CORE_WARM];
    size_t n_warm;
    struct sy_link_cost link; /* unified: storage */

    struct sy_sched *sched;
    struct sy_supervisor *supervisor;
    struct sy_storage_thread *storage;
    struct sy_job_store *store;
    struct sy_trace *trace;
    struct sy_core_worker workers[SY_CORE_MAX_WORKERS];
    struct sy_core_model models[SY_MAX_MODELS];
    struct sy_core_request *requests; /* at most max_queue + 2: a scan suffices */
    int n_requests;
    uint64_t last_request, last_job, last_sizes;
    bool jobs_held;           /* sy_core_hold_jobs */
    struct sy_core_job *jobs; /* including ended ones */

    bool pumping, draining, stopping;
    bool polls; /* workers may post in shared memory: sy_core_poll */
    sy_ns poll_until_ns;
    sy_ns drain_deadline;
    struct sy_core_drainer *drainers; /* callers waiting for the end of the drain */

    struct sy_core_batches *batches;
    struct sy_core_regions *regions;
    struct sy_predictor *predictor;
    /* by model: time to prepare programs for new batches and sizes */
    struct sy_predictor *preparing;
    uint64_t n_spills, spilled_bytes; /* in both directions */
    uint64_t n_late, n_refused_late, n_interrupts, n_continued;
    uint64_t preempting_request;
    sy_ns preempted_ns;
    struct sy_account account;
    sy_ns gone_ns; /* device time of models and jobs that are no longer listed */
    /* [0]: requests and jobs without a tenant */
    struct sy_core_tenant tenants[SY_POLICY_MAX_TENANTS];
    int n_tenants;
    uint64_t n_named;
    double at_once, max_wait_s, train_share; /* as configured */
    struct event *wake_event;                /* for decisions that depend on time alone */
    sy_ns heads_ns;                          /* time of the last choice of heads */
    sy_ns tick_ns;                           /* the scheduler's time */
    uint64_t link_bytes;
    uint64_t n_done, n_failed, n_swaps, n_preemptions, moved_bytes, storage_bytes;
    uint64_t waits[SY_CORE_WAITS]; /* recent preemption waits in ns; a ring */
    uint64_t n_waits;
    struct sy_core_counts counts;
};

/* core_poll.c */
enum { SY_CORE_POLLED_RUNS = 2 }; /* runs of up to this many poll_us are polled for */
/* Call before RUN is sent: detects whether the runtime computed much since the last run, such as on a long body and its JSON. The kernel preempts a polling
 * thread that has used up its share of a core for such work until the work ends (70 ms for 100 MB), whereas a sleeping thread is scheduled at once. */
void sy_core_poll_check_load(struct sy_core *core);
/* How long workers may poll after a run: the configured time; 0 while a worker has a job or the runtime has other work, since polling would take core time
 * from them. */
uint32_t sy_core_poll_us(const struct sy_core *core);
/* Call when RUN was sent. one_thread: the run uses a single thread; otherwise its threads need the cores, and the loop sleeps. */
void sy_core_poll_run(struct sy_core *core, sy_ns expected_ns, bool one_thread);
void sy_core_poll_next(struct sy_core *core); /* a request has ended */

/* slices/core_slices.c */
#define SY_CORE_ALL_SLICE "all" /* name of the single slice that exists while none is configured */
void sy_core_slices_start(struct sy_core *core); /* one slice of all cores */
/* The slice; slice 0 for a removed one whose last requests have yet to end. */
const struct sy_core_slice *sy_core_slice_at(const struct sy_core *core, int slice);
/* The slice's cores as in RUN and similar messages; empty where it has all. Valid until slices are set. */
struct sy_u64s sy_core_slice_cores(struct sy_core *core, int slice);

/* ---- slices/core_units.c ---- */

/* Call once the device and its cores are known. Creates no context. */
void sy_core_units_start(struct sy_core *core);
/* Checks that this many slices can be made. EUNSUPPORTED says why not. */
int sy_core_units_check(const struct sy_core *core, size_t n_slices);
/* Why slices, or two at a time, are impossible: a text, or null. */
json_t *sy_core_units_limit(const struct sy_core *core);
/* Converts a number of cores or multiprocessors, as users give it, to units; EARG: not a whole number of units. */
int sy_core_units_read(const struct sy_core *core, struct sy_slice_wish *wish, uint64_t *listed);
/* The reverse: "0-63". Returns buffer. */
const char *sy_core_units_text(const struct sy_core *core, const struct sy_core_slice *slice,
                               char *buffer, size_t bytes);
bool sy_core_slice_has_all_cores(const struct sy_core *core, int slice);
const char *sy_core_slice_name(const struct sy_core *core, int slice);
int sy_core_slice_check(const struct sy_core *core, const char *name); /* ENOTFOUND; "" is fine */
int sy_core_slice_of_job(const struct sy_core *core, const struct sy_core_job *j);
/* Assigns the model to its slice. anew: the slice has other cores, or the model was replaced; otherwise its measurements stay valid as long as it does not
 * move. */
void sy_core_slices_place(struct sy_core *core, int model, bool anew);
json_t *sy_core_slices_json(const struct sy_core *core); /* STATUS.md */
json_t *sy_core_slices_rules(const struct sy_core *core);
/* slices/core_home.c */
int sy_core_home_check(const struct sy_core *core, const char *slice); /* EUNSUPPORTED */
void sy_core_home_follow(struct sy_core *core); /* call after slices, or for_runtime, were set */

/* slices/core_corun.c */
void sy_core_corun_start(struct sy_core *core);
/* RUN was sent. continued: resumed after a preemption, so not a measurement. */
void sy_core_corun_begins(struct sy_core *core, struct sy_core_request *r, bool continued);
/* lost: the part of `took` in which it had no core. */
void sy_core_corun_ends(struct sy_core *core, const struct sy_core_request *r, sy_ns took,
                        sy_ns lost);
/* Call when the model was added or moved, or its slice resized. */
void sy_core_corun_reset(struct sy_core *core, int model);
void sy_core_corun_leave(struct sy_core *core, int model); /* call when the model was removed */
/* Call when the job is new. */
void sy_core_corun_forget_job(struct sy_core *core, const struct sy_core_job *j);
void sy_core_corun_judge(struct sy_core *core, int model);
void sy_core_corun_judge_all(struct sy_core *core);
json_t *sy_core_corun_json(const struct sy_core *core);
/* slices/core_fill.c */
int sy_core_fill_create(struct sy_core *core); /* ENOMEM_HOST */
void sy_core_fill_destroy(struct sy_core *core);
void sy_core_fill_watch(struct sy_core *core); /* call when jobs or slices have changed */
void sy_core_fill_reset(struct sy_core *core); /* discards earlier measurements */
/* Call while since_ns is still set. */
void sy_core_fill_compute_end(struct sy_core *core, const struct sy_core_job *j, sy_ns at);
json_t *sy_core_fill_json(const struct sy_core *core, const struct sy_core_job *j);
/* slices/core_slices_set.c */
/* `params`: the parsed arguments of sy_core_slices_set, without unknown keys. */
int sy_core_slices_apply(struct sy_core *core, const json_t *params);

/* core_tick.c */
void sy_core_tick(struct sy_core *core); /* call before each event: sets the scheduler's time */
/* For API calls: callbacks must not run inside the call. */
void sy_core_pump_soon(struct sy_core *core);

/* core_requests.c */
/* The work of one run of a model. */
struct sy_core_work {
    int model; /* its index */
    int64_t batch;
    struct sy_core_sizes *sizes;
    const uint64_t *inputs, *outputs; /* over all parts */
    int n_parts;
    bool is_batch; /* a batch: its members' ends are recorded individually */
    uint64_t id;   /* an id that its client knows already; 0: assign one */
};
/* As sy_core_infer, without gathering. */
int sy_core_infer_alone(struct sy_core *core, const struct sy_core_work *work,
                        const struct sy_core_infer_options *options, sy_core_infer_done done,
                        void *ctx, uint64_t *out_id);
struct sy_core_request *sy_core_find_run(struct sy_core *core, uint64_t run);
struct sy_core_request *sy_core_find_request(struct sy_core *core, uint64_t id);
void sy_core_end_request(struct sy_core *core, struct sy_core_request *r, int status,
                         const char *error);
/* Records the end of a request; members of a batch are recorded individually, not their common run. */
void sy_core_note_end(struct sy_core *core, int model, int status,
                      const struct sy_request_report *report);

/* core_actions.c */
void sy_core_pump(struct sy_core *core); /* carries out all waiting actions */
void sy_core_read_done(void *core, const struct sy_storage_job *job);

/* core_messages.c */
int sy_core_message(void *core, int worker, const struct sy_message *message);
void sy_core_worker_lost(void *core, int worker, enum sy_worker_state was, bool comes_back,
                         const char *why);

/* core_models.c */
/* core_model_names.c */
void sy_core_models_answer_left(struct sy_core *core); /* as sy_core_jobs_answer_left */
/* Whether lookups find it: not unloaded, with this name and version (0: any). */
bool sy_core_model_is_named(const struct sy_core_model *m, const char *name, int64_t version);
/* The index of the highest version that is ready, else of the highest. ENOTFOUND lists the existing ones. */
int sy_core_model_lookup(const struct sy_core *core, const char *name, int64_t version);
/* While held (n_held), an unloaded model's memory stays. */
void sy_core_model_hold(struct sy_core *core, int model);
void sy_core_model_unhold(struct sy_core *core, int model);
void sy_core_send_models(struct sy_core *core, int worker);
/* Handles MODEL_ADDED. A worker that lacks memory for a model which others have is replaced; the third failure in a row makes the model unavailable. */
int sy_core_model_added(struct sy_core *core, int worker, const struct sy_msg_model_added *m);
int sy_core_model_prepared(struct sy_core *core, int worker, const struct sy_msg_prepared *m);
/* Number of workers that were not given up. */
int sy_core_n_workers_left(const struct sy_core *core);
/* Clears the worker's state in all models. A model whose load kills several workers is rejected. */
void sy_core_models_worker_lost(struct sy_core *core, int worker, bool comes_back, const char *why);
/* Updates which models all workers have, and which workers have all models. */
void sy_core_settle_models(struct sy_core *core);
/* Frees unloaded models whose groups are no longer in transfer. */
void sy_core_models_leave(struct sy_core *core);
void sy_core_free_models(struct sy_core *core);

/* core_sizes.c */
/* Finds or makes the entry for `wants`; NULL, or the usual sizes: *out is NULL. Return it with sy_core_sizes_release. EARG: the model does not allow
 * them; ENOMEM_DEVICE: a tensor would exceed the pool; ENOMEM_HOST. */
int sy_core_sizes_take(struct sy_core *core, struct sy_core_model *m, const struct sy_sizes *wants,
                       struct sy_core_sizes **out);
struct sy_core_sizes *sy_core_sizes_hold(struct sy_core_sizes *sizes); /* NULL is fine */
void sy_core_sizes_release(struct sy_core_model *m, struct sy_core_sizes *sizes);
void sy_core_sizes_free(struct sy_core_model *m);
/* Shape of an input or output with these sizes, linear in N. Cannot fail: sy_core_sizes_take has computed it before. */
struct sy_shape sy_core_sizes_shape(const struct sy_core_model *m,
                                    const struct sy_core_sizes *sizes, int tensor);
/* Encodes the sizes for messages, into a buffer of SY_MAX_SYMBOLS; returns the count. */
size_t sy_core_sizes_words(const struct sy_core_model *m, const struct sy_core_sizes *sizes,
                           uint64_t *words);
/* Finds the sizes that a worker names; false: no longer remembered. NULL in *out: the usual ones. */
bool sy_core_sizes_find(const struct sy_core_model *m, const struct sy_u64s *words,
                        struct sy_core_sizes **out);
/* ", seq 77": the sizes that the request's inputs have; "" for a model without open sizes. */
const char *sy_core_sizes_text(const struct sy_core_model *m, const struct sy_core_sizes *sizes,
                               char *buffer, size_t bytes);

/* core_regions.c */
int sy_core_regions_create(struct sy_core *core); /* ENOMEM_HOST */
void sy_core_regions_destroy(struct sy_core *core);
/* Checks the addresses of a new request. EARG: an unknown or dropped region, or an address outside of it. */
int sy_core_regions_check(const struct sy_core *core, const uint64_t *at, int n);
/* Keeps the regions of n tensors, which were checked or are held, until as many releases as holds. */
void sy_core_regions_hold(struct sy_core *core, const uint64_t *at, int n);
void sy_core_regions_release(struct sy_core *core, const uint64_t *at, int n);
bool sy_core_regions_any(const uint64_t *at, int n); /* some tensor is not in the slab */
/* Call before a RUN with these tensors: sends REGION_ADD for regions that the worker has not mapped. */
void sy_core_regions_send(struct sy_core *core, int worker, const uint64_t *at, int n);
void sy_core_regions_worker_lost(struct sy_core *core, int worker);
int sy_core_regions_n_mapped(const struct sy_core *core, int worker);
int sy_core_regions_n(const struct sy_core *core); /* slots in use */

/* core_predict.c */
struct sy_link_cost sy_core_link(const struct sy_core *core, const struct sy_package *p);
/* Takes the groups from the package, or plans them for this device. ENOMEM_HOST. */
int sy_core_cut_groups(const struct sy_core *core, struct sy_core_model *m);
/* By layer: bytes that a run of this batch reads of tables that may stay in the image; all 0 where the device cannot read them there. The caller frees it;
 * NULL: no memory. */
uint64_t *sy_core_table_reads(const struct sy_core *core, const struct sy_package *p,
                              uint64_t batch);
/* The planner's view of a model with its usual sizes, with compute times as observed here; the caller frees it. NULL: no memory. */
struct sy_plan_layer *sy_core_plan_layers(const struct sy_core *core, const struct sy_core_model *m,
                                          int64_t batch);
/* Observed / profiled compute time, with the usual sizes. */
double sy_core_compute_scale(const struct sy_core *core, const struct sy_core_model *m);
/* Lower bound, by profile, of a run's duration from these places. */
sy_ns sy_core_swap_bound(const struct sy_core *core, const struct sy_core_model *m, int64_t batch,
                         const struct sy_core_sizes *sizes, const struct sy_group_place *places,
                         int n_places);
struct sy_core_guess sy_core_guess(const struct sy_core *core, const struct sy_core_model *m,
                                   int64_t batch, const struct sy_core_sizes *sizes,
                                   const struct sy_group_place *places, int n_places);
/* Scales a prediction to n_parts runs back to back. Slightly too high where weights move, since only the first run loads them. */
struct sy_core_guess sy_core_guess_parts(struct sy_core_guess guess, int n_parts);
/* Predicts a new request, with the groups of its model that will be resident at its start, given the present queue. */
struct sy_core_guess sy_core_predict(const struct sy_core *core,
                                     const struct sy_core_request *wants);
struct sy_duration sy_core_duration(const struct sy_core *core, int model,
                                    struct sy_core_guess guess);
/* Remaining duration from this layer on, with this many leading groups in the pool. */
struct sy_duration sy_core_remaining(const struct sy_core *core, const struct sy_core_request *r,
                                     int first_layer, int n_resident);
/* As sy_core_remaining, for a request that stopped there and will resume later, given the present queue. */
struct sy_duration sy_core_remaining_later(const struct sy_core *core,
                                           const struct sy_core_request *r, int first_layer,
                                           int n_arrived);
void sy_core_learn(struct sy_core *core, int model, struct sy_core_guess guess, sy_ns took_ns);
/* Call when a request with `left_ns` until its deadline was rejected: if observations alone, not the profile, caused that, forgets some of them. */
void sy_core_forget_after_refusal(struct sy_core *core, int model, struct sy_core_guess guess,
                                  sy_ns left_ns);
void sy_core_forget(struct sy_core *core, int model); /* forgets the model's observations */

/* core_prepare.c: the wait for a worker to make a program for a new batch size or sizes. */
/* Duration of preparation and run, for a request that has not been admitted. */
struct sy_duration sy_core_whole_duration(const struct sy_core *core,
                                          const struct sy_core_request *wants);
/* Prepends to the current error how much of the prediction was preparation, if any. Returns `status`. */
int sy_core_explain_preparing(const struct sy_core *core, const struct sy_core_request *wants,
                              int status);
void sy_core_learn_preparing(struct sy_core *core, int model, sy_ns took_ns); /* 0: ignored */

/* core_heads.c: which heads the pool keeps, by recent requests. */
/* Computes the head values of a model with groups; call again to apply newer observations. On ENOMEM_HOST nothing changes. */
int sy_core_heads_update(const struct sy_core *core, struct sy_core_model *m);
void sy_core_heads_free(struct sy_core_model *m);
/* Call when a request for the model has arrived. */
void sy_core_heads_note(struct sy_core *core, struct sy_core_model *m);
/* Reassigns the room for heads; cheap enough to call after any change. */
void sy_core_heads_choose(struct sy_core *core);
double sy_core_heads_rate(const struct sy_core_model *m, sy_ns now);
/* Swap time with the groups resident now, on an idle link; 0: not profiled. */
sy_ns sy_core_heads_predict(const struct sy_core *core, int model);

/* core_tenants.c */
/* Finds or adds a tenant. When the table is full, a new name replaces the tenant named longest ago that has no rules, jobs or requests, so requests alone
 * cannot exhaust the table. EARG: the name is not printable; EBUSY: all entries are in use. */
int sy_core_tenant_find(struct sy_core *core, const char *name, int *out);

/* core_rules.c */
json_t *sy_core_rules_json(struct sy_core *core);
/* Applies stored rules; invalid ones are logged. */
void sy_core_resume_rules(struct sy_core *core);

/* core_status.c */
/* A1 for the status: charged_ns equals gone_ns plus the device_ns of all listed models and jobs. */
bool sy_core_account_is_valid(const struct sy_core *core);

#endif
