/* The cost of one scheduling decision: a request from admission to its end (prediction, admission, placement in the pool with evictions, correction), and a
 * training iteration's turn (lanes and policy), with many jobs and models. */
#include <stdio.h>
#include <stdlib.h>

#include "allocator/lanes.h"
#include "allocator/pool.h"
#include "allocator/residency.h"
#include "bench/gbench.h"
#include "runtime/base/status.h"
#include "runtime/sched/admission.h"
#include "runtime/sched/policy.h"
#include "runtime/sched/predictor.h"

#define MB       (1ull << 20)
#define N_GROUPS 20
#define QUEUE    32 /* waiting requests */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

struct rig {
    struct sy_pool *pool;
    struct sy_lanes *lanes;
    struct sy_residency *residency;
    struct sy_policy *policy;
    struct sy_admission *admission;
    struct sy_predictor *predictor;
    uint64_t random, now, next_id;
    int n_models;
};

struct size {
    enum sy_policy_kind kind;
    int n_jobs, n_models;
    int part; /* one model in `part` fits into the pool */
};

static void close_rig(struct rig *r)
{
    sy_residency_free(r->residency);
    sy_lanes_free(r->lanes);
    sy_pool_free(r->pool);
    sy_policy_destroy(r->policy);
    sy_admission_destroy(r->admission);
    sy_predictor_destroy(r->predictor);
}

static int add_jobs(struct rig *r, int n_jobs)
{
    for (int i = 0; i < n_jobs; i++) {
        struct sy_lane_job job = {
            (uint64_t)i + 1, i % 3, 8 * MB, (10 + (uint64_t)i) * MB, 0, 4, false};
        SY_TRY(sy_lanes_join(r->lanes, &job));
    }
    struct sy_lanes_change change;
    while (sy_lanes_next(r->lanes, &change)) {
        struct sy_policy_job job = {change.job, change.lane, (int)change.job % 3,
                                    0,          1000000,     1000000};
        SY_TRY(change.admitted ? sy_policy_join(r->policy, &job, 0)
                               : sy_policy_set_lane(r->policy, change.job, change.lane));
    }
    return sy_policy_n_jobs(r->policy) == n_jobs ? SY_OK : sy_error_set(SY_EBUG, "jobs wait");
}

static int open_rig(struct rig *r, const struct size *size)
{
    uint64_t group_bytes[N_GROUPS],
        lanes_bytes = (uint64_t)size->n_jobs * (24 + (uint64_t)size->n_jobs) * MB;
    uint64_t pool = lanes_bytes + (uint64_t)size->n_models * N_GROUPS * MB / (uint64_t)size->part;
    int n = size->n_jobs > 0 ? size->n_jobs : 1;
    struct sy_lanes_config lanes = {lanes_bytes ? lanes_bytes : MB, n, 16, true};
    struct sy_policy_config policy = {size->kind, n, 0, 0};
    struct sy_admission_config admission = {.max_requests = 2 * QUEUE};
    *r = (struct rig){.random = 88172645463325252ull, .n_models = size->n_models};
    SY_TRY(sy_pool_new(pool, &r->pool));
    SY_TRY(sy_lanes_new(r->pool, NULL, &lanes, &r->lanes));
    SY_TRY(sy_policy_create(&policy, &r->policy));
    SY_TRY(sy_residency_new(r->pool, &r->residency));
    SY_TRY(sy_admission_create(&admission, &r->admission));
    SY_TRY(sy_predictor_create(size->n_models, 0.99, &r->predictor));
    for (int i = 0; i < N_GROUPS; i++)
        group_bytes[i] = MB;
    for (int i = 0; i < size->n_models; i++)
        SY_TRY(sy_residency_add_model(r->residency, i, N_GROUPS, group_bytes));
    return add_jobs(r, size->n_jobs);
}

static int ask(struct rig *r)
{
    int model = (int)(next_random(&r->random) % (uint64_t)r->n_models);
    struct sy_prediction prediction;
    struct sy_admission_request q = {.id = r->next_id++ << 16 | (unsigned)model,
                                     .class_ = (int)(r->next_id % 3)};
    q.duration = sy_predictor_correct(r->predictor, model, 10000, 1000000);
    q.deadline_ns = r->now + 100ull * QUEUE * 1000000;
    return sy_admission_ask(r->admission, &q, r->now, &prediction);
}

/* Admits one request, starts another and ends it. */
static int decide_request(struct rig *r)
{
    struct sy_group_place places[N_GROUPS];
    struct sy_admission_request next;
    SY_TRY(ask(r));
    if (sy_admission_next(r->admission, r->now, &next) != SY_ADMISSION_START)
        return sy_error_set(SY_EBUG, "nothing starts");
    int model = (int)(next.id & 0xffff);
    SY_TRY(sy_residency_place(r->residency, model, true, places));
    sy_residency_unpin(r->residency, model, NULL);
    r->now += 1000000;
    sy_predictor_observe_compute(r->predictor, model, 1000000,
                                 900000 + next_random(&r->random) % 200000);
    sy_admission_done(r->admission);
    return SY_OK;
}

static int decide_turn(struct rig *r)
{
    uint64_t job, offset, again;
    struct sy_lanes_change change;
    if (!sy_policy_next(r->policy, r->now, &job, &again))
        return sy_error_set(SY_EBUG, "no job is next");
    SY_TRY(sy_lanes_begin(r->lanes, job, &offset));
    r->now += 900000 + next_random(&r->random) % 200000;
    SY_TRY(sy_lanes_end(r->lanes, job));
    SY_TRY(sy_policy_done(r->policy, job, 1000000, r->now));
    while (sy_lanes_next(r->lanes, &change))
        ;
    return SY_OK;
}

static void run(struct gb_state *state, const struct size *size, int (*decide)(struct rig *r))
{
    struct rig r;
    int status = open_rig(&r, size);
    for (int i = 0; i < QUEUE && status == SY_OK && decide == decide_request; i++)
        status = ask(&r);
    while (status == SY_OK && gb_keep_running(state))
        status = decide(&r);
    if (status == SY_OK && !(sy_lanes_is_valid(r.lanes) && sy_admission_is_valid(r.admission)))
        status = sy_error_set(SY_EBUG, "the lanes or the queue are not valid");
    if (status < 0)
        gb_fail(state, sy_error_text());
    close_rig(&r);
}

static void run_request(struct gb_state *state, void *arg)
{
    run(state, arg, decide_request);
}

static void run_turn(struct gb_state *state, void *arg)
{
    run(state, arg, decide_turn);
}

int main(int argc, char **argv)
{
    static struct size requests[] = {{SY_POLICY_FIFO, 10, 100, 1},
                                     {SY_POLICY_FIFO, 10, 100, 10},
                                     {SY_POLICY_FIFO, 10, 1000, 1},
                                     {SY_POLICY_FIFO, 10, 1000, 10}};
    static struct size turns[] = {{SY_POLICY_FIFO, 10, 1, 1},     {SY_POLICY_SRTF, 10, 1, 1},
                                  {SY_POLICY_FAIR, 10, 1, 1},     {SY_POLICY_WEIGHTED, 10, 1, 1},
                                  {SY_POLICY_PRIORITY, 10, 1, 1}, {SY_POLICY_FAIR, 100, 1, 1}};
    struct gb_options options = {0};
    char name[96];
    gb_initialize(&argc, argv);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        snprintf(name, sizeof name, "decision/request/jobs:%d/models:%d/fit:1in%d",
                 requests[i].n_jobs, requests[i].n_models, requests[i].part);
        gb_register(name, run_request, &requests[i], &options);
    }
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        snprintf(name, sizeof name, "decision/turn/%s/jobs:%d", sy_policy_name(turns[i].kind),
                 turns[i].n_jobs);
        gb_register(name, run_turn, &turns[i], &options);
    }
    return gb_run() > 0 ? 0 : 1;
}
