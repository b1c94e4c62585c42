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
#define SY_CORE_MAX_GROUPS 1024 /* of one model: a LOAD of them fits into one message */
#define SY_CORE_WARM       8
#define SY_CORE_ENDED_JOBS 64 /* remembered for status */
#define SY_CORE_WAITS      4096

enum sy_core_model_state { SY_MODEL_ADDING, SY_MODEL_READY, SY_MODEL_UNAVAILABLE };

/* The value of its head: core_heads.c. */
struct sy_model_heads {
    int free_prefix;     /* groups */
    uint64_t *bytes;     /* [0..n_groups]: [k] of the first k groups */
    double *saved_ns;    /* [0..n_groups]: what a swap saves with them there */
    sy_ns nothing_ns;    /* a swap with none of them */
    uint64_t pool_bytes; /* of all groups */
    bool out;            /* was evicted by command: no head until the next request */
    double rate;         /* requests a second, lately */
    sy_ns rate_ns;       /* when that was */
    double scale;        /* sy_core_compute_scale that the times above were made with */
};

#define SY_CORE_SIZE_CLASSES 8  /* by how much a run computes, each twice the one before */
#define SY_CORE_USUAL_SIZES  3  /* of the usual sizes */
#define SY_CORE_IDLE_SIZES   32 /* remembered a model, beside those of its requests */

/* One choice of a model's open sizes, other than the usual one. */
struct sy_core_sizes {
    struct sy_core_sizes *next;
    uint64_t id; /* that the scheduler knows it by; never given out again */
    struct sy_sizes of;
    float *work; /* per layer: what it computes, 1 with the usual sizes */
    int class_;  /* 0 .. SY_CORE_SIZE_CLASSES - 1 */
    int n_users; /* requests and batches */
    uint64_t last_use;
};

/* core_corun.c: what is known of a model beside others. The lists are by task; NULL: it is not measured. */
struct sy_core_corun_model {
    unsigned n_alone;
    float recent[32];   /* measured / guessed of runs that had no neighbour */
    double alone;       /* the median of these */
    double alone_block; /* the same before the last 8 runs alone */
    double alone_error; /* of it against these 8, as of pairs: what the machine varies by itself */
    double lost[2];     /* part of its runs that it stood without a core: alone, beside */
    sy_ns *retry_at_ns, *wait_ns;
    bool *apart;
};

struct sy_core_model {
    struct sy_core_model_ref ref; /* first: what sy_core_model_acquire gives out */
    bool used;
    bool
        leaving; /* unloaded: it cannot be found any more; it is freed when its last holder released it and its messages in flight were answered */
    struct sy_class_labels *labels; /* ref.labels, owned */
    int n_held;                     /* by front ends, requests, batches */
    bool replaces;
    sy_ns max_delay_ns; /* of gathering; 0: as configured for all */
    int64_t max_batch;
    enum sy_core_model_state state;
    char *name, *path;
    struct sy_core_sizes *sizes; /* the latest first */
    int tenant;                  /* that loaded it; -1: none */
    char slice[SY_SLICE_NAME];   /* that it names; "": none */
    uint64_t charged_bytes;
    struct sy_package *package;
    struct sy_group *groups;
    int n_groups;
    uint64_t *group_layers, *group_bytes; /* n_groups each */
    bool *direct;              /* n_groups: read in the image (loader/storage/direct_read.h) */
    bool rows_are_independent; /* those of several requests may be one run */
    struct sy_model_heads heads;
    struct {
        uint64_t batch, bytes;
    } workspaces[SY_CORE_WARM];
    int n_workspaces;
    int status; /* why it cannot be used */
    char error[256];
    int n_lost; /* workers in a row that were lost over its loading */
    struct {
        bool due, over; /* runs may start; nothing more is to be looked at */
        sy_ns first_ns; /* when it was looked at first */
        uint64_t first_bytes;
    } arrival; /* of a package that was not whole when it was added (core_arrival.h) */
    sy_core_done done;
    void *done_ctx;
    /* What workers measured of its runs since it was loaded, without the way there and back: of each part of several. */
    bool was_run;
    sy_ns longest_run_ns;
    double run_scale; /* of the last ones that moved nothing: measured / guessed; 0: none yet */
    uint64_t n_requests, n_failed, n_swaps;
    uint64_t
        link_bytes; /* given to the link for it: groups, and rows of tables that stay in the image */
    struct sy_account_owner account;
    struct sy_phase_histograms phases; /* of its requests */
    struct sy_core_corun_model corun;
};

struct sy_core_tenant {
    char name[SY_CORE_TENANT_NAME];
    unsigned weight, hard_permille;
    uint64_t memory_bytes; /* of its jobs and models; 0: no limit */
    sy_ns used_ns;
    uint64_t named; /* when it was named last: core->n_named then */
};

enum sy_core_has { SY_HAS_NOT, SY_HAS_SENT, SY_HAS_IT };

struct sy_core_worker {
    unsigned char has[SY_MAX_MODELS]; /* enum sy_core_has */
    int n_pending;                    /* MODEL_ADDED still to come */
    bool gone;                        /* given up */
};

/* By profile and what was learned of the model's computation; how far runs that move something are off besides is learned apart. */
struct sy_core_guess {
    int class_; /* of its sizes: how far predictions are off is learned for each */
    sy_ns ns;
    bool moves;
};

struct sy_core_request {
    struct sy_core_request *next;
    uint64_t id, run;
    int model, tenant, class_;
    int slice;  /* since RUN was sent */
    int beside; /* the task in other slices then (core_corun.c) */
    sy_ns deadline_ns;
    struct sy_core_guess
        guess;      /* for what of its model is there: when it came, then when it started */
    int n_resident; /* leading groups that were in the pool when it started */
    int64_t batch;
    struct sy_core_sizes *sizes; /* NULL: the usual ones */
    int n_parts; /* requests that run back to back as this one (core_batch.h): all tensors of the first, then of the second ... */
    uint64_t *inputs, *outputs;
    int n_inputs, n_outputs; /* of all parts */
    bool is_batch;           /* of other requests, which are noted each */
    bool holds_regions;      /* those that its tensors lie in */
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
    char slice[SY_SLICE_NAME]; /* that it names; "": none */
    bool slice_set;            /* set while it ran, instead of its job file's */
    bool has_snapshots;
    int team; /* threads that its weights were computed by since it started */
    bool stop_wanted, evaluate, suspended, opportunistic;
    bool is_script; /* a foreign process: no snapshot outlives it */
    int spill_file; /* where its persistent state is spilled to, so that it survives its worker; -1: none */
    bool priority_set;   /* set while it ran, instead of its job file's */
    bool resumed;        /* it was in the state folder at this start, and has not begun since */
    bool kept;           /* ended here, but its file stays: the next start resumes it */
    bool park_wanted;    /* it shall be parked when it has stopped (core_job_keep.c) */
    bool parked;         /* kept, but no start resumes it: a client has to */
    sy_ns turn_began_ns; /* account.used_ns when its turn began */
    struct sy_account_owner account;  /* uses: it computes now, as far as is known here */
    sy_ns since_ns;                   /* since when it computes; 0: it is paused */
    struct sy_fill fill;              /* guaranteed: beside opportunistic ones (core_fill.c) */
    uint64_t fill_step, fill_busy_ns; /* when the window began */
    uint64_t step, total_steps, first_step, snapshot_step, persistent_bytes, ephemeral_bytes,
        longest_layer_ns;
    char longest_what[SY_LONGEST_BYTES]; /* that stretch */
    uint64_t busy_ns;
    double loss, accuracy; /* accuracy < 0: not evaluated */
    uint64_t accuracy_step;
    sy_ns started_ns;
    int status;
    char error[256];
    sy_core_done done, stop_done;
    void *done_ctx, *stop_ctx;
};

/* Counted as it happens; see core_metrics.h. */
struct sy_core_counts {
    struct sy_phase_histograms phases;
    struct sy_histogram preempt_wait;
    struct sy_refusals refused;
    uint64_t failed[SY_CORE_N_STATUS];
    sy_ns gone_jobs_ns; /* of gone_ns: jobs */
};

/* A part of the device's compute. */
struct sy_core_slice {
    char name[SY_SLICE_NAME];
    uint64_t cores[SY_CORE_MAX_CORES];
    size_t n_cores;
    sy_ns last_finish_ns, last_served_ns; /* of a request; of one's turn there */
    sy_ns used_ns;                        /* that something computed there */
};

/* The units of slices: cores, or parts of a GPU's multiprocessors. */
struct sy_core_units {
    uint64_t ids[SY_CORE_MAX_CORES]; /* cores; a GPU's parts from 0 on */
    size_t n;
    unsigned each; /* multiprocessors of one; 1: cores */
    char no_slice[256],
        no_slices[256]; /* why there are none at all, or not two at a time; "": there are */
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
    unsigned char *pool_base; /* unified: this process's view */
    int pool_fd;
    struct sy_shared_memory image, arrivals_memory;
    struct sy_image_book *image_book; /* borrowed; NULL: no keeper has the image */
    uint64_t image_kept_bytes;        /* taken from an image that was there, and not read */
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
        double
            bound; /* a model of class 0 or with deadlines takes turns with tasks that would slow it down by more; 0: with none */
    } corun;
    struct { /* core_fill.c */
        struct event *event;
        bool begins; /* nothing was measured in the window yet */
        double
            keep; /* of its speed, that a guaranteed job keeps beside opportunistic ones; 0: nothing is promised */
        sy_ns since_ns,
            had_ns; /* the window's begin; what opportunistic jobs that stand still now computed in it */
    } fill;
    char for_jobs[SY_SLICE_NAME],
        for_models[SY_SLICE_NAME];   /* those that name none; "": the first */
    char for_runtime[SY_SLICE_NAME]; /* whose cores this thread computes on; "": on all */
    int n_workers, max_queue, poll_us;
    struct {
        sy_ns at_ns, computed_ns; /* the last look, and the process's time then */
        sy_ns other_work_until_ns;
    } poll_look;
    bool whole_models;
    char *grouping;
    uint64_t warm_batches[SY_CORE_WARM];
    size_t n_warm;
    struct sy_link_cost link; /* unified: storage's */

    struct sy_sched *sched;
    struct sy_supervisor *supervisor;
    struct sy_storage_thread *storage;
    struct sy_job_store *store;
    struct sy_trace *trace;
    struct sy_core_worker workers[SY_CORE_MAX_WORKERS];
    struct sy_core_model models[SY_MAX_MODELS];
    struct sy_core_request *requests; /* at most max_queue and two: a scan will do */
    int n_requests;
    uint64_t last_request, last_job, last_sizes;
    bool jobs_held;           /* sy_core_hold_jobs */
    struct sy_core_job *jobs; /* ended ones too */

    bool pumping, draining, stopping;
    bool polls; /* workers may post: sy_core_poll */
    sy_ns poll_until_ns;
    sy_ns drain_deadline;
    struct sy_core_drainer *drainers; /* that wait for the end of the drain */

    struct sy_core_batches *batches;
    struct sy_core_regions *regions;
    struct sy_predictor *predictor;
    struct sy_predictor *preparing;   /* by model: programs for batches and sizes that are new */
    uint64_t n_spills, spilled_bytes; /* both ways */
    uint64_t n_late, n_refused_late, n_interrupts, n_continued;
    uint64_t preempting_request;
    sy_ns preempted_ns;
    struct sy_account account;
    sy_ns gone_ns; /* of the account: models and jobs that are no longer listed */
    struct sy_core_tenant tenants[SY_POLICY_MAX_TENANTS]; /* 0: requests and jobs that name none */
    int n_tenants;
    uint64_t n_named;
    double at_once, max_wait_s, train_share; /* as they were set */
    struct event *wake_event;                /* what time alone decides */
    sy_ns heads_ns;                          /* when heads were chosen last */
    sy_ns tick_ns;                           /* the scheduler's time */
    uint64_t link_bytes;
    uint64_t n_done, n_failed, n_swaps, n_preemptions, moved_bytes, storage_bytes;
    uint64_t waits[SY_CORE_WAITS]; /* the last preempt waits, ns; a ring */
    uint64_t n_waits;
    struct sy_core_counts counts;
};

/* core_poll.c */
enum { SY_CORE_POLLED_RUNS = 2 }; /* runs of up to this many poll_us are polled for */
/* Before RUN is sent: whether the runtime computed much since the last run, such as a long body and its JSON. A thread that polls is not woken and has used up its
 * share of a core: preempted for such work it waits until the work ends, 70 ms of 100 MB, where one that slept is run at once. */
void sy_core_poll_look(struct sy_core *core);
/* What workers may poll after a run: the configured time, 0 while a worker has a job or the runtime other work, from which polling would take a core's time. */
uint32_t sy_core_poll_us(const struct sy_core *core);
/* RUN was sent. one_thread: of all the worker's; else its other threads want the cores, and the loop sleeps. */
void sy_core_poll_run(struct sy_core *core, sy_ns expected_ns, bool one_thread);
void sy_core_poll_next(struct sy_core *core); /* a request has ended */

/* slices/core_slices.c */
#define SY_CORE_ALL_SLICE "all" /* the one slice that there is as long as none is named */
void sy_core_slices_start(struct sy_core *core); /* one, of all cores */
/* The first one that was removed and whose last requests end. */
const struct sy_core_slice *sy_core_slice_at(const struct sy_core *core, int slice);
/* As RUN and its like say them; none where the slice has all. Valid until slices are set. */
struct sy_u64s sy_core_slice_cores(struct sy_core *core, int slice);

/* ---- slices/core_units.c ---- */

/* Once the device and its cores are known. Makes no context. */
void sy_core_units_start(struct sy_core *core);
/* Whether this many slices can be made. EUNSUPPORTED: why not. */
int sy_core_units_check(const struct sy_core *core, size_t n_slices);
/* Why there are none, or not two at a time: a text, or null. */
json_t *sy_core_units_limit(const struct sy_core *core);
/* A number of cores or multiprocessors, as users give it, in units; EARG: it is not a whole number of units. */
int sy_core_units_read(const struct sy_core *core, struct sy_slice_wish *wish, uint64_t *listed);
/* And back: "0-63". Returns buffer. */
const char *sy_core_units_text(const struct sy_core *core, const struct sy_core_slice *slice,
                               char *buffer, size_t bytes);
bool sy_core_slices_whole(const struct sy_core *core, int slice); /* it has all cores */
const char *sy_core_slice_name(const struct sy_core *core, int slice);
int sy_core_slice_check(const struct sy_core *core, const char *name); /* ENOTFOUND; "" is fine */
int sy_core_slice_of_job(const struct sy_core *core, const struct sy_core_job *j);
/* Into its slice. anew: that has other cores, or it is another model. Else what was measured of it holds as long as it stays where it is. */
void sy_core_slices_place(struct sy_core *core, int model, bool anew);
json_t *sy_core_slices_json(const struct sy_core *core); /* STATUS.md */
json_t *sy_core_slices_rules(const struct sy_core *core);
/* slices/core_home.c */
int sy_core_home_check(const struct sy_core *core, const char *slice); /* EUNSUPPORTED */
void sy_core_home_follow(struct sy_core *core); /* slices, or for_runtime, were set */

/* slices/core_corun.c */
void sy_core_corun_start(struct sy_core *core);
/* RUN was sent. continued: resumed where it was preempted, so it is no measurement. */
void sy_core_corun_begins(struct sy_core *core, struct sy_core_request *r, bool continued);
/* lost: of what it took, that it stood without a core. */
void sy_core_corun_ends(struct sy_core *core, const struct sy_core_request *r, sy_ns took,
                        sy_ns lost);
void sy_core_corun_reset(struct sy_core *core, int model); /* added, moved, or its slice resized */
void sy_core_corun_leave(struct sy_core *core, int model); /* removed */
void sy_core_corun_forget_job(struct sy_core *core, const struct sy_core_job *j); /* it is new */
void sy_core_corun_judge(struct sy_core *core, int model);
void sy_core_corun_judge_all(struct sy_core *core);
json_t *sy_core_corun_json(const struct sy_core *core);
/* slices/core_fill.c */
int sy_core_fill_create(struct sy_core *core); /* ENOMEM_HOST */
void sy_core_fill_destroy(struct sy_core *core);
void sy_core_fill_watch(struct sy_core *core); /* jobs, or slices, are others than before */
void sy_core_fill_reset(struct sy_core *core); /* earlier measurements are void */
void sy_core_fill_stands(struct sy_core *core, const struct sy_core_job *j,
                         sy_ns at); /* since_ns is still there */
json_t *sy_core_fill_json(const struct sy_core *core, const struct sy_core_job *j);
/* slices/core_slices_set.c */
/* The parsed arguments of sy_core_slices_set, without unknown keys. */
int sy_core_slices_apply(struct sy_core *core, const json_t *params);

/* core_tick.c */
void sy_core_tick(struct sy_core *core); /* before each event: sets the scheduler's time */
void sy_core_pump_soon(
    struct sy_core *core); /* from the API: callbacks must not be made inside the call */

/* core_requests.c */
/* The compute time of one run of a model. */
struct sy_core_work {
    int model; /* its index */
    int64_t batch;
    struct sy_core_sizes *sizes;
    const uint64_t *inputs, *outputs; /* of all parts */
    int n_parts;
    bool is_batch; /* what it answers are others, which are noted each */
    uint64_t id;   /* that its client knows already; 0: a new one */
};
/* As sy_core_infer, and never gathered with others. */
int sy_core_infer_alone(struct sy_core *core, const struct sy_core_work *work,
                        const struct sy_core_infer_options *options, sy_core_infer_done done,
                        void *ctx, uint64_t *out_id);
struct sy_core_request *sy_core_find_run(struct sy_core *core, uint64_t run);
struct sy_core_request *sy_core_find_request(struct sy_core *core, uint64_t id);
void sy_core_end_request(struct sy_core *core, struct sy_core_request *r, int status,
                         const char *error);
/* A request of this model has ended: gathered ones are noted each, not their common run. */
void sy_core_note_end(struct sy_core *core, int model, int status,
                      const struct sy_request_report *report);

/* core_actions.c */
void sy_core_pump(struct sy_core *core); /* carries out all actions that are waiting */
void sy_core_read_done(void *core, const struct sy_storage_job *job);

/* core_messages.c */
int sy_core_message(void *core, int worker, const struct sy_message *message);
void sy_core_worker_lost(void *core, int worker, enum sy_worker_state was, bool comes_back,
                         const char *why);

/* core_models.c */
/* core_model_names.c */
void sy_core_models_answer_left(struct sy_core *core); /* as sy_core_jobs_answer_left */
/* Whether it can be found: not leaving, of this name and version (0: any). */
bool sy_core_model_is_named(const struct sy_core_model *m, const char *name, int64_t version);
/* The index of the highest version that is ready, else the highest. ENOTFOUND lists what there is. */
int sy_core_model_lookup(const struct sy_core *core, const char *name, int64_t version);
/* While held (n_held), a model that leaves stays. */
void sy_core_model_hold(struct sy_core *core, int model);
void sy_core_model_let_go(struct sy_core *core, int model);
void sy_core_send_models(struct sy_core *core, int worker);
/* A model that others have and this worker has no memory for: an error, which ends the worker; the third in a row ends the model. */
int sy_core_model_added(struct sy_core *core, int worker, const struct sy_msg_model_added *m);
int sy_core_model_prepared(struct sy_core *core, int worker, const struct sy_msg_prepared *m);
int sy_core_n_left(const struct sy_core *core); /* workers that were not given up */
/* Forgets what the worker had. A model that takes several workers with it while it is added is refused. */
void sy_core_models_worker_lost(struct sy_core *core, int worker, bool comes_back, const char *why);
void sy_core_settle_models(
    struct sy_core *core); /* models that all workers have now, and workers that have all */
/* Ends the leave of models whose groups are no longer on their way. */
void sy_core_models_leave(struct sy_core *core);
void sy_core_free_models(struct sy_core *core);

/* core_sizes.c */
/* Of `wants`; NULL, or as the usual ones: *out is NULL. To be given back. EARG: the model cannot have them; ENOMEM_DEVICE: a tensor
 * would be larger than the pool; ENOMEM_HOST. */
int sy_core_sizes_take(struct sy_core *core, struct sy_core_model *m, const struct sy_sizes *wants,
                       struct sy_core_sizes **out);
struct sy_core_sizes *sy_core_sizes_again(struct sy_core_sizes *sizes); /* NULL is fine */
void sy_core_sizes_give(struct sy_core_model *m, struct sy_core_sizes *sizes);
void sy_core_sizes_free(struct sy_core_model *m);
/* Shape of an input or output with them, linear in N. It was asked for before, so it is there. */
struct sy_shape sy_core_sizes_shape(const struct sy_core_model *m,
                                    const struct sy_core_sizes *sizes, int tensor);
/* As the wire has them, into a buffer of SY_MAX_SYMBOLS; how many. */
size_t sy_core_sizes_words(const struct sy_core_model *m, const struct sy_core_sizes *sizes,
                           uint64_t *words);
/* Those that a worker names; false: they are not remembered any more. NULL in *out: the usual. */
bool sy_core_sizes_find(const struct sy_core_model *m, const struct sy_u64s *words,
                        struct sy_core_sizes **out);
/* ", seq 77", or "" for a model without open sizes. */
const char *sy_core_sizes_text(const struct sy_core_model *m, const struct sy_core_sizes *sizes,
                               char *buffer, size_t bytes);

/* core_regions.c */
int sy_core_regions_create(struct sy_core *core); /* ENOMEM_HOST */
void sy_core_regions_destroy(struct sy_core *core);
/* Of a new request. EARG: a region is not there or was dropped, or the place is none in it. */
int sy_core_regions_check(const struct sy_core *core, const uint64_t *at, int n);
/* Those that n tensors lie in, which were checked or are held, stay until they are released as often as they were held. */
void sy_core_regions_hold(struct sy_core *core, const uint64_t *at, int n);
void sy_core_regions_release(struct sy_core *core, const uint64_t *at, int n);
bool sy_core_regions_any(const uint64_t *at, int n); /* one of n tensors is not in the slab */
/* Before a RUN with these tensors: sends REGION_ADD for regions that the worker does not map yet. */
void sy_core_regions_send(struct sy_core *core, int worker, const uint64_t *at, int n);
void sy_core_regions_worker_lost(struct sy_core *core, int worker);
int sy_core_regions_n_mapped(const struct sy_core *core, int worker);
int sy_core_regions_n(const struct sy_core *core); /* slots that are taken */

/* core_predict.c */
struct sy_link_cost sy_core_link(const struct sy_core *core, const struct sy_package *p);
/* As its package has them, or planned for this device. ENOMEM_HOST. */
int sy_core_cut_groups(const struct sy_core *core, struct sy_core_model *m);
/* By layer: what a run of this batch reads of the tables that may stay in the image; all 0 where the device does not
 * read them there. The caller frees it; NULL: no memory. */
uint64_t *sy_core_table_reads(const struct sy_core *core, const struct sy_package *p,
                              uint64_t batch);
/* What the planner sees of a model with its usual sizes, its computation as it was observed here; to be freed. NULL: no memory. */
struct sy_plan_layer *sy_core_plan_layers(const struct sy_core *core, const struct sy_core_model *m,
                                          int64_t batch);
/* Observed computation / profile, with the usual sizes. */
double sy_core_compute_scale(const struct sy_core *core, const struct sy_core_model *m);
/* No run with these places ends earlier, by profile. */
sy_ns sy_core_swap_bound(const struct sy_core *core, const struct sy_core_model *m, int64_t batch,
                         const struct sy_core_sizes *sizes, const struct sy_group_place *places,
                         int n_places);
struct sy_core_guess sy_core_guess(const struct sy_core *core, const struct sy_core_model *m,
                                   int64_t batch, const struct sy_core_sizes *sizes,
                                   const struct sy_group_place *places, int n_places);
/* Of so many runs back to back; the first one's weights are there for the others, so that it is a little too much where some move. */
struct sy_core_guess sy_core_guess_parts(struct sy_core_guess guess, int n_parts);
/* This request, not yet taken, with what of its model will be resident when its turn comes: as the queue is now. */
struct sy_core_guess sy_core_predict(const struct sy_core *core,
                                     const struct sy_core_request *wants);
struct sy_duration sy_core_duration(const struct sy_core *core, int model,
                                    struct sy_core_guess guess);
/* From this layer on, with this many leading groups in the pool. */
struct sy_duration sy_core_rest(const struct sy_core *core, const struct sy_core_request *r,
                                int first_layer, int n_resident);
/* The same of one that stopped there, with so many of its groups in the pool now: when its turn comes again, as the queue is. */
struct sy_duration sy_core_rest_later(const struct sy_core *core, const struct sy_core_request *r,
                                      int first_layer, int n_arrived);
void sy_core_learn(struct sy_core *core, int model, struct sy_core_guess guess, sy_ns took_ns);
/* A request with `left_ns` until its deadline was refused: if what was learned alone did that, and not the profile, some of it is forgotten. */
void sy_core_doubt(struct sy_core *core, int model, struct sy_core_guess guess, sy_ns left_ns);
void sy_core_forget(struct sy_core *core, int model); /* what was learned of it */

/* core_prepare.c: what a request waits for where no worker has a program for its batch and sizes. */
/* Its run and that, of a request that is not taken yet. */
struct sy_duration sy_core_whole_duration(const struct sy_core *core,
                                          const struct sy_core_request *wants);
/* Puts in front of the error that is set how much of the prediction it was, if any. Returns `status`. */
int sy_core_say_preparing(const struct sy_core *core, const struct sy_core_request *wants,
                          int status);
void sy_core_learn_preparing(struct sy_core *core, int model, sy_ns took_ns); /* 0: nothing */

/* core_heads.c: which heads the pool keeps, by the requests that were seen. */
/* Of a model that is cut; again later: with what was learned meanwhile. On ENOMEM_HOST nothing changed. */
int sy_core_heads_make(const struct sy_core *core, struct sy_core_model *m);
void sy_core_heads_free(struct sy_core_model *m);
void sy_core_heads_note(struct sy_core *core, struct sy_core_model *m); /* a request for it came */
void sy_core_heads_spend(
    struct sy_core *core); /* the room was spent anew; cheap enough after any change */
double sy_core_heads_rate(const struct sy_core_model *m, sy_ns now);
/* With what is resident now, on an idle link; 0: not profiled. */
sy_ns sy_core_heads_predict(const struct sy_core *core, int model);

/* core_tenants.c */
/* The tenant of this name. A new name takes the place of the one named longest ago without rules, jobs and requests, when all places
 * are taken: requests alone cannot use them up. EARG: no name that can be shown; EBUSY: all are needed. */
int sy_core_tenant_find(struct sy_core *core, const char *name, int *out);

/* core_rules.c */
json_t *sy_core_rules_json(struct sy_core *core);
/* Rules that were kept; those that cannot be used are logged. */
void sy_core_resume_rules(struct sy_core *core);

/* core_status.c */
/* A1 for what the status lists: charged_ns is the device_ns of all models and jobs that are listed, and gone_ns. */
bool sy_core_account_is_valid(const struct sy_core *core);

#endif
