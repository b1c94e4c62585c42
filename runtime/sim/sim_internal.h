/* Internal declarations of the simulator. */
#ifndef SY_SIM_SIM_INTERNAL_H
#define SY_SIM_SIM_INTERNAL_H

#include "allocator/lanes.h"
#include "allocator/quota.h"
#include "runtime/base/assert.h"
#include "runtime/sched/admission.h"
#include "runtime/sched/policy.h"
#include "runtime/sched/predictor.h"
#include "runtime/sim/sim.h"
#include "runtime/sim/sim_agenda.h"
#include "runtime/sim/sim_chance.h"
#include "runtime/sim/sim_ring.h"
#include "runtime/sim/sim_tree.h"

#define NEVER       UINT64_MAX
#define SY_SIM_LINE 64u /* bytes */
/* Beyond it nothing is simulated, and no duration is longer: a time and three durations are below NEVER. 126 years. */
#define LATEST_NS 4000000000000000000ull

/* A computed duration, clamped: one that 64 bits cannot hold must not wrap to a short one. */
static inline sy_ns sy_sim_ns(double ns)
{
    return ns < (double)LATEST_NS ? (sy_ns)ns : LATEST_NS;
}

/* One iteration that runs. */
struct running {
    int job;
    double left_ns, rate; /* of its own time; own time a nanosecond (M3, M9); 0: it is paused */
    double used_ns;       /* device time so far */
};

/* The served request's swap, kept where faults may change it. */
struct swap {
    uint64_t missing; /* bytes, when it began; 0: nothing is copied */
    sy_ns compute_ns; /* 0: how long it is served is given (R6) */
    sy_ns pause_ns;
};

/* Fields that requests need on every event come first, in one cache line; the others are used with jobs, faults or preemption, and when models move. */
struct device {
    sy_ns serve_from_ns, serve_until_ns;
    sy_ns came_ns,
        deadline_ns; /* deadline of the request being served, copied since its own line has left the cache by its end */
    sy_ns link_free_ns, prefetch_from_ns;
    int prefetch_model; /* -1: none */
    int n_running;
    uint8_t class_; /* class of the request being served */
    bool serving;
    bool has_newcomers : 1;
    bool listed : 1; /* in the agenda */
    bool alone;      /* the served request is known here only: the queue was not told (R5) */
    uint32_t serves; /* the request that is served */

    uint64_t resident_bytes __attribute__((aligned(64)));
    sy_ns yield_at_ns;  /* where requests are preempted */
    uint64_t job_bytes; /* the pool's bytes available to jobs */
    /* faults */
    sy_ns down_until_ns; /* no worker */
    sy_ns link_slow_from_ns, link_slow_until_ns;
    double link_factor;
    /* jobs */
    sy_ns requests_from_ns;   /* jobs have their share until then */
    unsigned share_permille;  /* share that jobs can use */
    sy_ns advanced_ns;        /* of iterations, while any runs */
    sy_ns again_ns;           /* when to ask the policy again */
    struct sy_policy *policy; /* NULL: no jobs were here */
    struct sy_pool *pool;
    struct sy_quotas *quotas; /* NULL: no tenant has one */
    struct sy_lanes *lanes;
    struct running *running; /* one a lane */
    int n_jobs;
    struct swap swap;
    /* slices (M9) */
    double slow;    /* slow-down of the served request now; 1: as alone */
    bool stretches; /* the current request slows down beside its neighbours */
    sy_ns alone_ns,
        alone_compute_ns; /* how long it would be served alone, and its computation in that */

    char apart[SY_SIM_LINE] __attribute__((aligned(SY_SIM_LINE))); /* R5: an odd number of lines */
} __attribute__((aligned(SY_SIM_LINE)));

struct job_state {
    uint64_t left;
    sy_ns used_ns, first_ns;
    int device;
    bool started, admitted;
    sy_ns owed_ns; /* of copies, when it is back from host memory */
};

/* Bit masks for 64 models on a device: every request reads them, so they are small enough that those of thousands of devices stay in the caches. */
struct held {
    uint64_t some, whole;
};

/* A model on a device. Events read it only if the model is resident in part (see struct held). */
struct place {
    uint64_t bytes; /* resident: a head */
    int holder;     /* place in the model's list of holders, -1: none */
};
#define USE_MAX_REQUESTS (1 << 30) /* each counts twice at most */

/* The devices that a request asks, among those that have its model: drawn once, also for looking ahead. */
#define SY_SIM_CANDIDATES 4
#define SY_SIM_DRAWN      32 /* requests; a power of two, more than are looked ahead */
struct drawn {
    uint64_t next; /* the request's number + 1; 0: none yet */
    int n;         /* so many had the model */
    int at[SY_SIM_CANDIDATES];
};

/* Predictions for a request, by missing bytes: mostly none are missing, or all. */
struct sy_sim_asked {
    struct sy_admission_request is;
    uint64_t missing;
    const struct kind *kind; /* kind of the device; NULL: not known */
};

/* A model on one kind of device. */
struct model_here {
    sy_ns compute_ns;
    int n_groups;
    bool fits, served; /* served: it fits, and its tenant's quota allows it */
};

struct kind {
    const struct sy_sim_kind *is;
    int first; /* device */
    struct model_here *models;
    struct sy_quotas *quotas; /* with the models charged; NULL: no tenant has one */
    uint64_t largest_bytes;   /* largest of the models that are served */
    struct sy_sim_tree load;  /* by device, from `first` on: when it is expected to be drained */
};

/* The devices that serve a model: whole kinds. */
#define MAX_FLEETS 64
struct fleet {
    uint64_t kinds; /* a bit each */
    int n_devices;
    uint64_t n_requests;      /* on them; kept for routers that go by it */
    struct sy_sim_ring *ring; /* of the hashing router: places are indices in the fleet */
};

struct sy_sim_answers;
struct slowdowns; /* sim_slowdown.c */

struct sim {
    const struct sy_sim_config *config;
    const struct sy_sim_input *in;
    struct sy_sim_report *report;
    int n_all;
    int n_devices; /* devices simulated at once: all, or one after the other (sim_by_device.c) */
    int apart;     /* which one then is at place 0 */
    struct kind *kinds;
    int n_kinds;
    uint8_t *kind_of; /* by device; NULL: there is one kind */
    struct fleet fleets[MAX_FLEETS];
    int n_fleets;
    uint8_t *fleet_of; /* by model */
    sy_ns *fastest_ns; /* by model: its computation where that is shortest */
    struct device *devices;
    uint16_t *loads; /* by device: requests waiting and served; side by side, for the routers */
    char *queues, *far_queues; /* all devices' admission */
    /* the state of every empty queue; NULL: every queue is told of each request */
    struct sy_admission *idle;
    size_t queue_bytes, order_at;
    struct sy_sim_tree due; /* by device: its next event */
    /* instead of it, where only the served request's end is one, and does not move */
    struct sy_sim_agenda agenda;
    bool has_agenda;
    struct place *places; /* [device][model] */
    /* [device][model]: tick of the last use; NULL: all models fit, none is evicted */
    uint32_t *uses;
    struct held *held; /* [device][model / 64] */
    size_t n_held;     /* of a device */
    int **holders;     /* by model: devices that have some of it */
    int *n_holders, *max_holders;
    struct job_state *jobs;
    uint8_t *deaths; /* by request */
    sy_ns *left_ns;  /* by request, when they are preempted: what is left; 0: all */
    struct sy_predictor *predictor;
    uint64_t random;
    struct sy_sim_answers
        *answers;  /* answers delivered at the end, in order of time; NULL: delivered at once */
    uint32_t tick; /* of uses */
    struct drawn drawn[SY_SIM_DRAWN];
    struct slowdowns *slowdowns; /* NULL: devices are not cut (M9) */
    bool has_outside; /* a model's requests take something outside of their device (M10) */
    sy_ns now;
};

/* M10. Where no model has any, models are not looked at (R5). */
static inline sy_ns sy_sim_outside_ns(const struct sim *s, uint64_t request)
{
    return s->has_outside ? s->in->models[s->in->requests[request].model].outside_ns : 0;
}

/* ---- sim_slowdown.c: M9 ---- */
/* EARG: a pair names no task, or a model's or job's slice does not exist. */
int sy_sim_slowdown_open(struct sim *s);
void sy_sim_slowdown_close(struct sim *s); /* of one that was not opened, too */
/* S12: the head of that slice's queue must not start now. */
bool sy_sim_must_wait(const struct sim *s, int device, uint64_t request);
/* S12: a running iteration of the job waits for what another slice serves. */
bool sy_sim_job_is_held(const struct sim *s, int device, int job);
/* Its slow-down by the other slices. */
double sy_sim_job_slow_down(const struct sim *s, int device, int job);
/* The served request's slow-down by the other slices. */
double sy_sim_request_slow_down(const struct sim *s, int device);
/* The nth slice of the device whose one slice this is. */
int sy_sim_slice_at(const struct sim *s, int device, int nth);

/* ---- sim_chance.c ---- */
uint64_t sy_sim_random(struct sim *s);
/* A random number that depends on this request alone, so that it can be drawn ahead of time. `nth` distinguishes draws of one request. */
static inline uint64_t sy_sim_draw(const struct sim *s, uint64_t request, int nth)
{
    uint64_t own = sy_sim_mix(s->config->seed + 0x9e3779b97f4a7c15ull * (request + 1));
    return sy_sim_mix(own + (uint64_t)nth);
}
double sy_sim_noise(struct sim *s);
/* The same, of this request alone: two draws from `nth` on. */
double sy_sim_noise_of(const struct sim *s, uint64_t request, int nth);

/* ---- a device's kind, queue, times ---- */
static inline const struct kind *sy_sim_kind_of(const struct sim *s, int device)
{
    return s->kind_of ? &s->kinds[s->kind_of[s->apart + device]] : s->kinds;
}
static inline const struct model_here *sy_sim_model_on(const struct sim *s, int device, int model)
{
    return &sy_sim_kind_of(s, device)->models[model];
}
static inline struct sy_admission *sy_sim_queue(const struct sim *s, int device)
{
    return (struct sy_admission *)(void *)(s->queues + (size_t)device * s->queue_bytes);
}
/* Without faults and jobs, events read only the first line of a device. */
static inline sy_ns sy_sim_down_until(const struct sim *s, const struct device *d)
{
    return s->in->n_faults > 0 ? d->down_until_ns : 0;
}
static inline bool sy_sim_has_jobs(const struct sim *s, const struct device *d)
{
    return s->in->n_jobs > 0 && d->policy;
}
static inline sy_ns sy_sim_requests_from(const struct sim *s, const struct device *d)
{
    return s->in->n_jobs > 0 ? d->requests_from_ns : 0;
}
static inline sy_ns sy_sim_yield_at(const struct sim *s, const struct device *d)
{
    return s->config->preempt_ns > 0 ? d->yield_at_ns : NEVER;
}
/* Jobs have so much of the pool. */
static inline uint64_t sy_sim_job_bytes(const struct device *d)
{
    return d->lanes ? sy_lanes_persistent_bytes(d->lanes) + sy_lanes_ephemeral_bytes(d->lanes) : 0;
}
/* The device was used for it until now. */
static inline void sy_sim_note_used(struct sim *s, const struct device *d, enum sy_sim_use use,
                                    sy_ns from)
{
    int kind = s->kind_of ? s->kind_of[s->apart + (int)(d - s->devices)] : 0;
    sy_sim_note_use(s->report, kind, use, from, s->now);
}

/* ---- what is needed soon ---- */
#define SY_SIM_MANY 2048 /* devices: of fewer, asking ahead takes longer than it saves */
/* gcc takes a function of prefetches alone for one without effect, and drops its calls: hence the empty statement. */
static inline void sy_sim_expect(const void *at)
{
    __builtin_prefetch(at, 1);
    __asm__ volatile("");
}
/* All bits or none: as good as half of the devices are busy, so that a branch on it would be a wrong guess each second time. */
static inline uintptr_t sy_sim_all_if(bool is)
{
    return (uintptr_t)0 - is;
}
/* The device is needed soon: its state comes out of memory meanwhile. With thousands of devices each event finds another one's, and
 * waiting for memory would be most of its time. */
static inline void sy_sim_expect_queue(const struct sim *s, int device)
{
    const char *queue = s->queues + (size_t)device * s->queue_bytes;
    sy_sim_expect(queue);
    sy_sim_expect(queue + (s->order_at & sy_sim_all_if(s->loads[device] > 0)));
}
/* Prefetches the device's state. Where empty queues share one state (s->idle), its queue only if the device has more than `alone` requests: 0 when one
 * arrives, 1 when one ends. */
static inline void sy_sim_expect_device(const struct sim *s, int device, uint32_t alone)
{
    if (s->n_devices < SY_SIM_MANY)
        return;
    sy_sim_expect(&s->devices[device]);
    if (!s->has_agenda)
        sy_sim_expect(&s->due.levels[0].keys[device]);
    sy_sim_expect(&s->held[(size_t)device * s->n_held]);
    if (!s->idle || s->loads[device] > alone)
        sy_sim_expect_queue(s, device);
    if (s->config->router >= SY_SIM_LEAST) {
        const struct kind *kind = sy_sim_kind_of(s, device);
        sy_sim_expect(&kind->load.levels[0].keys[device - kind->first]);
    }
    if (s->fleets[0].ring && s->fleets[0].n_devices == s->n_all)
        sy_sim_expect(sy_sim_ring_places(s->fleets[0].ring, device));
}

/* ---- sim_kinds.c ---- */
/* EARG: a model fits no device. */
int sy_sim_kinds_open(struct sim *s);
void sy_sim_kinds_close(struct sim *s);
sy_ns sy_sim_iteration_ns(const struct kind *kind, const struct sy_sim_job *j);
/* The persistent and ephemeral bytes that jobs may have on such a device. */
uint64_t sy_sim_bytes_for_jobs(const struct sim *s, const struct kind *k);
static inline const struct fleet *sy_sim_fleet_of(const struct sim *s, int model)
{
    return &s->fleets[s->fleet_of[model]];
}
/* For a fleet of some kinds only. */
int sy_sim_device_of_part(const struct sim *s, const struct fleet *f, int nth);
int sy_sim_place_in_part(const struct sim *s, const struct fleet *f, int device);
/* The nth of its devices; and which one of them a device is, -1: it is not of the fleet. */
static inline int sy_sim_fleet_device(const struct sim *s, const struct fleet *f, int nth)
{
    return f->n_devices == s->n_all ? nth : sy_sim_device_of_part(s, f, nth);
}
static inline int sy_sim_fleet_place(const struct sim *s, const struct fleet *f, int device)
{
    return f->n_devices == s->n_all ? device : sy_sim_place_in_part(s, f, device);
}

/* ---- sim_open.c ---- */
/* With its kinds, residency, slices and router. Failed: close it, too. */
int sy_sim_open(struct sim *s);
void sy_sim_close(struct sim *s);
/* Back to the initial state: no requests, no models. */
int sy_sim_empty_device(struct sim *s, int device);

/* ---- sim_loop.c ---- */
/* The requests and faults of a run, or those of one device of many: what they are, by place. */
struct sy_sim_streams {
    const uint32_t *requests, *faults; /* which ones; NULL: all of them */
    uint64_t n_requests, n_faults;     /* places behind the last */
    uint64_t request, fault;           /* next places */
    int job;
};
/* Runs these events and those that follow from them. */
int sy_sim_loop(struct sim *s, struct sy_sim_streams *at);

/* ---- sim_by_device.c ---- */
/* No device's events depend on another's. */
bool sy_sim_is_independent(const struct sim *s);
int sy_sim_loop_by_device(struct sim *s);

/* ---- sim_answers.c ---- */
struct sy_sim_answer {
    sy_ns at_ns, served_ns;
    uint64_t request;
    int device;
    enum sy_sim_outcome outcome;
};
/* `answered` is told now. */
void sy_sim_tell(const struct sim *s, const struct sy_sim_answer *answer);
/* Each request ends at most once. ENOMEM_HOST. */
int sy_sim_answers_create(uint64_t n_requests, struct sy_sim_answers **out);
void sy_sim_answers_destroy(struct sy_sim_answers *answers); /* NULL is fine */
void sy_sim_answers_keep(struct sy_sim_answers *answers, const struct sy_sim_answer *answer);
/* Reports all that were kept, by time. */
void sy_sim_answers_tell(struct sim *s);

/* ---- sim_residency.c ---- */
int sy_sim_residency_open(struct sim *s);
void sy_sim_residency_close(struct sim *s);
void sy_sim_residency_empty(struct sim *s); /* of the device at place 0, the only one */
/* Bytes of the model that are not resident on the device. */
uint64_t sy_sim_missing_bytes(const struct sim *s, int device, int model);
/* Duration of a copy that begins at that time, by the link's rate as faults have set it so far. */
sy_ns sy_sim_copy_ns(const struct sim *s, const struct device *d, uint64_t bytes, sy_ns from_ns);
/* Bytes of the copy that are still in flight. */
uint64_t sy_sim_bytes_left(const struct sim *s, const struct device *d);
/* The copy stops: bytes in flight are not resident. */
void sy_sim_stop_copy(struct sim *s, int device, int model);
/* By M1, on that device; copy_ns: of the missing bytes, what is left of it. */
sy_ns sy_sim_service_ns(const struct sim *s, int device, int model, sy_ns copy_ns, uint64_t missing,
                        sy_ns compute_ns);
/* Time that a swap adds to the computation by the profile's link rate; a slower link is learned from observations. */
sy_ns sy_sim_profiled_swap_ns(const struct sim *s, int device, int model, uint64_t missing);
/* Makes the whole model resident, evicting others. */
void sy_sim_bring_in(struct sim *s, int device, int model);
/* Evicts idle models until the jobs' bytes fit. */
void sy_sim_make_room(struct sim *s, int device, uint64_t bytes, int but_model);

/* ---- sim_request.c ---- */
/* 0: none. */
sy_ns sy_sim_deadline_ns(const struct sim *s, sy_ns came_ns, sy_ns within_ns);
/* The query for admission on that device, kept in `asked`; computed unless `asked` has it for this request and time. */
const struct sy_admission_request *sy_sim_ask_for(const struct sim *s, int device, uint64_t request,
                                                  struct sy_sim_asked *asked);

/* ---- sim_router.c ---- */
int sy_sim_router_open(struct sim *s);
void sy_sim_router_close(struct sim *s);
/* For a model that some device serves. `asked` is empty, or known afterwards. */
int sy_sim_route(struct sim *s, const struct sy_sim_request *r, struct sy_sim_asked *asked);
int sy_sim_route_at_random(const struct sim *s, uint64_t request);
/* Prefetches the state that routing the requests after this one will read. */
void sy_sim_expect_request(struct sim *s, uint64_t request);
int sy_sim_route_job(struct sim *s, const struct sy_sim_job *j);
/* The device's load changes: a request was added (1) or has ended (-1). */
void sy_sim_note_load(struct sim *s, int device, int change);

/* ---- sim_due.c ---- */
/* After a change on the device: computes its next event again. */
void sy_sim_reschedule(struct sim *s, int device);
/* The earliest event of all devices; NEVER: none has one. */
static inline sy_ns sy_sim_due_ns(const struct sim *s)
{
    return s->has_agenda ? s->agenda.first_key : sy_sim_tree_first_key(&s->due);
}
/* Whose it is; that device is handled now. */
int sy_sim_take_due(struct sim *s);

/* ---- sim_device.c ---- */
int sy_sim_arrive(struct sim *s, uint64_t request);
void sy_sim_fault(struct sim *s, int device, const struct sy_sim_fault *f);
/* Handles the device's event that is due now. */
void sy_sim_turn(struct sim *s, int device);
bool sy_sim_device_is_valid(const struct sim *s, int device);

/* ---- sim_jobs.c ---- */
int sy_sim_submit(struct sim *s, int job);
void sy_sim_welcome(struct sim *s, struct device *d);
/* Recomputes the rates of running iterations. */
void sy_sim_set_rates(struct sim *s, struct device *d);
/* Running iterations advance to now. */
void sy_sim_advance(struct sim *s, struct device *d);
void sy_sim_end_iterations(struct sim *s, struct device *d);
void sy_sim_begin_iterations(struct sim *s, struct device *d);
void sy_sim_lose_iterations(struct sim *s, struct device *d);
sy_ns sy_sim_next_iteration_end(const struct sim *s, const struct device *d);
/* At the end: charges running iterations up to now. */
void sy_sim_close_books(struct sim *s);

#endif
