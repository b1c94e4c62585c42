#include "runtime/sched/policy.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

#define MAX_JOBS 4096
/* Upper bound of the device time that a tenant with a hard share may catch up on after other tenants' iterations delayed it (P5). */
#define HARD_CREDIT_NS SY_NS_PER_S
#define ITERATION_W    8 /* weight of a new iteration in the measured time: 1/8 */

struct job {
    struct sy_policy_job is;
    bool running, blocked;
    uint64_t arrival, turn; /* turn: sequence number of its last start, 0: none */
    /* fair: device time since it joined or came back, plus the virtual clock at that time */
    uint64_t virtual_ns;
    sy_ns used_ns, ready_since;
};

struct tenant {
    unsigned weight, hard_permille;
    int n_active;        /* jobs that are not blocked */
    uint64_t virtual_ns; /* weighted: device time / weight */
    sy_ns rest_ns;       /* remainder of that division */
    sy_ns used_ns, not_before_ns;
};

struct sy_policy {
    struct sy_policy_config config;
    struct job *jobs; /* the first n_jobs are used; unordered */
    bool *lane_busy;
    int n_jobs, n_running, n_active;
    uint64_t n_arrived, n_turns;
    uint64_t clock_ns, tenant_clock_ns; /* virtual time of the job, or tenant, that ran last */
    struct tenant tenants[SY_POLICY_MAX_TENANTS];
};

static const struct sy_policy_rule *const rules[] = {
#define X(NAME, name) &sy_policy_##name,
    SY_POLICY_TABLE(X)
#undef X
};

const char *sy_policy_name(enum sy_policy_kind kind)
{
    return (unsigned)kind < SY_POLICY_N_KINDS ? rules[kind]->name : "?";
}

const char *sy_policy_text(enum sy_policy_kind kind)
{
    return (unsigned)kind < SY_POLICY_N_KINDS ? rules[kind]->text : "?";
}

int sy_policy_parse(const char *text, enum sy_policy_kind *out)
{
    for (int i = 0; i < SY_POLICY_N_KINDS; i++)
        if (strcmp(text, rules[i]->name) == 0) {
            *out = (enum sy_policy_kind)i;
            return SY_OK;
        }
    return sy_error_set(SY_EARG, "no policy %s; there are" SY_POLICY_WORDS, text);
}

static int check_kind(enum sy_policy_kind kind, int n_parallel)
{
    if ((unsigned)kind < SY_POLICY_N_KINDS && n_parallel >= 0)
        return SY_OK;
    return sy_error_set(SY_EARG, "policy %d with %d at once: there are %d policies, and at least 0",
                        (int)kind, n_parallel, SY_POLICY_N_KINDS);
}

int sy_policy_create(const struct sy_policy_config *config, struct sy_policy **out)
{
    *out = NULL;
    SY_TRY(check_kind(config->kind, config->n_parallel));
    if (config->max_jobs < 1 || config->max_jobs > MAX_JOBS)
        return sy_error_set(SY_EARG, "a policy for %d jobs: 1 to %d", config->max_jobs, MAX_JOBS);
    struct sy_policy *p = calloc(1, sizeof *p);
    struct job *jobs = calloc((size_t)config->max_jobs, sizeof *jobs);
    bool *lane_busy = calloc((size_t)config->max_jobs, sizeof *lane_busy);
    if (!p || !jobs || !lane_busy) {
        free(p);
        free(jobs);
        free(lane_busy);
        return sy_error_set(SY_ENOMEM_HOST, "no memory for a policy of %d jobs", config->max_jobs);
    }
    p->config = *config;
    p->jobs = jobs;
    p->lane_busy = lane_busy;
    for (int i = 0; i < SY_POLICY_MAX_TENANTS; i++)
        p->tenants[i].weight = 1;
    *out = p;
    return SY_OK;
}

void sy_policy_destroy(struct sy_policy *p)
{
    if (!p)
        return;
    free(p->jobs);
    free(p->lane_busy);
    free(p);
}

/* P4: resets all tenants' claims. */
static void count_tenants_anew(struct sy_policy *p)
{
    for (int i = 0; i < SY_POLICY_MAX_TENANTS; i++)
        p->tenants[i].virtual_ns = p->tenant_clock_ns;
}

/* P4: claims from before the switch are reset. */
int sy_policy_set(struct sy_policy *p, enum sy_policy_kind kind, int n_parallel, sy_ns max_wait_ns)
{
    SY_TRY(check_kind(kind, n_parallel));
    if (kind != p->config.kind) {
        for (int i = 0; i < p->n_jobs; i++)
            p->jobs[i].virtual_ns = p->clock_ns;
        count_tenants_anew(p);
    }
    p->config.kind = kind;
    p->config.n_parallel = n_parallel;
    p->config.max_wait_ns = max_wait_ns;
    return SY_OK;
}

void sy_policy_copy_rules(struct sy_policy *p, const struct sy_policy *from)
{
    p->config.kind = from->config.kind;
    p->config.n_parallel = from->config.n_parallel;
    p->config.max_wait_ns = from->config.max_wait_ns;
    for (int i = 0; i < SY_POLICY_MAX_TENANTS; i++) {
        p->tenants[i].weight = from->tenants[i].weight;
        p->tenants[i].hard_permille = from->tenants[i].hard_permille;
    }
}

static int check_tenant(int tenant)
{
    if (tenant >= 0 && tenant < SY_POLICY_MAX_TENANTS)
        return SY_OK;
    return sy_error_set(SY_EARG, "no tenant %d: 0 to %d", tenant, SY_POLICY_MAX_TENANTS - 1);
}

int sy_policy_set_tenant(struct sy_policy *p, int tenant, unsigned weight, unsigned hard_permille)
{
    SY_TRY(check_tenant(tenant));
    if (weight < 1 || weight > 1000000 || hard_permille > 1000)
        return sy_error_set(SY_EARG,
                            "tenant %d: weight %u, hard share %u per mille: 1 to 1000000, "
                            "0 to 1000",
                            tenant, weight, hard_permille);
    /* Setting an unchanged hard share, such as only a new weight, keeps the time already used up. */
    if (hard_permille != p->tenants[tenant].hard_permille) {
        p->tenants[tenant].not_before_ns = 0;
        count_tenants_anew(p); /* time that a hard share withheld from a tenant is no claim */
    }
    p->tenants[tenant].weight = weight;
    p->tenants[tenant].hard_permille = hard_permille;
    return SY_OK;
}

/* ---- jobs ---- */

static struct job *find(const struct sy_policy *p, uint64_t id)
{
    for (int i = 0; i < p->n_jobs; i++)
        if (p->jobs[i].is.id == id)
            return &p->jobs[i];
    return NULL;
}

static int no_job(uint64_t id)
{
    return sy_error_set(SY_ENOTFOUND, "the policy knows no job %llu", (unsigned long long)id);
}

/* P4: starts level with the job that ran last. */
static void activate(struct sy_policy *p, struct job *j, sy_ns now)
{
    struct tenant *t = &p->tenants[j->is.tenant];
    j->blocked = false;
    j->ready_since = now;
    j->virtual_ns = SY_MAX(j->virtual_ns, p->clock_ns);
    p->n_active++;
    if (t->n_active++ == 0)
        t->virtual_ns = SY_MAX(t->virtual_ns, p->tenant_clock_ns);
}

static void deactivate(struct sy_policy *p, struct job *j)
{
    if (j->blocked)
        return;
    j->blocked = true;
    p->n_active--;
    p->tenants[j->is.tenant].n_active--;
}

static bool is_lane(const struct sy_policy *p, int lane)
{
    return lane >= 0 && lane < p->config.max_jobs;
}

static void stop_running(struct sy_policy *p, struct job *j)
{
    if (!j->running)
        return;
    j->running = p->lane_busy[j->is.lane] = false;
    p->n_running--;
}

int sy_policy_join(struct sy_policy *p, const struct sy_policy_job *job, sy_ns now)
{
    SY_TRY(check_tenant(job->tenant));
    if (!is_lane(p, job->lane) || find(p, job->id))
        return sy_error_set(SY_EARG, "job %llu on lane %d: lanes are 0 to %d, ids in use once",
                            (unsigned long long)job->id, job->lane, p->config.max_jobs - 1);
    if (p->n_jobs == p->config.max_jobs)
        return sy_error_set(SY_EBUSY, "the policy has its %d jobs already", p->n_jobs);
    struct job *j = &p->jobs[p->n_jobs++];
    *j = (struct job){.is = *job, .blocked = true, .arrival = p->n_arrived++};
    activate(p, j, now);
    return SY_OK;
}

int sy_policy_leave(struct sy_policy *p, uint64_t job)
{
    struct job *j = find(p, job);
    if (!j)
        return no_job(job);
    stop_running(p, j);
    deactivate(p, j);
    *j = p->jobs[--p->n_jobs];
    return SY_OK;
}

int sy_policy_move(struct sy_policy *from, struct sy_policy *to, uint64_t job, sy_ns now)
{
    const struct job *was = find(from, job);
    if (!was)
        return no_job(job);
    SY_TRY(sy_policy_join(to, &was->is, now));
    find(to, job)->used_ns = was->used_ns;
    return sy_policy_leave(from, job);
}

int sy_policy_block(struct sy_policy *p, uint64_t job, bool blocked, sy_ns now)
{
    struct job *j = find(p, job);
    if (!j)
        return no_job(job);
    if (blocked)
        deactivate(p, j);
    else if (j->blocked)
        activate(p, j, now);
    return SY_OK;
}

int sy_policy_set_lane(struct sy_policy *p, uint64_t job, int lane)
{
    struct job *j = find(p, job);
    if (!j)
        return no_job(job);
    if (!is_lane(p, lane) || j->running)
        return sy_error_set(SY_EARG, "job %llu cannot go to lane %d%s", (unsigned long long)job,
                            lane, j->running ? " while it runs" : "");
    j->is.lane = lane;
    return SY_OK;
}

int sy_policy_set_priority(struct sy_policy *p, uint64_t job, int priority)
{
    struct job *j = find(p, job);
    if (!j)
        return no_job(job);
    j->is.priority = priority;
    return SY_OK;
}

int sy_policy_set_left(struct sy_policy *p, uint64_t job, uint64_t iterations_left)
{
    struct job *j = find(p, job);
    if (!j)
        return no_job(job);
    j->is.iterations_left = iterations_left;
    return SY_OK;
}

/* ---- the decision ---- */

static sy_ns left_ns(const struct job *j)
{
    uint64_t ns;
    if (j->is.iteration_ns == 0)
        return 0;
    if (j->is.iterations_left == 0 ||
        __builtin_mul_overflow(j->is.iterations_left, j->is.iteration_ns, &ns))
        return UINT64_MAX;
    return ns;
}

struct key {
    struct sy_policy_key by;
    uint64_t arrival;
};

static struct key key_of(const struct sy_policy *p, const struct job *j)
{
    struct sy_policy_facts facts = {
        .turn = j->turn,
        .left_ns = left_ns(j),
        .used_ns = j->used_ns,
        .virtual_ns = j->virtual_ns,
        .tenant_virtual_ns = p->tenants[j->is.tenant].virtual_ns,
        .priority = (uint64_t)((int64_t)j->is.priority - INT32_MIN),
    };
    return (struct key){rules[p->config.kind]->key(&facts), j->arrival};
}

static bool is_before(const struct key *a, const struct key *b)
{
    if (a->by.first != b->by.first)
        return a->by.first < b->by.first;
    if (a->by.second != b->by.second)
        return a->by.second < b->by.second;
    return a->arrival < b->arrival;
}

/* P3: jobs that waited too long go before all others, the longest wait first. */
static bool waited_too_long(const struct sy_policy *p, const struct job *j, sy_ns now)
{
    return p->config.max_wait_ns > 0 && now - j->ready_since >= p->config.max_wait_ns;
}

static int at_once(const struct sy_policy *p)
{
    if (p->config.n_parallel > 0)
        return p->config.n_parallel;
    return rules[p->config.kind]->all_lanes ? p->config.max_jobs : 1;
}

/* P5 */
static bool may_start(const struct sy_policy *p, const struct job *j, sy_ns now, sy_ns *again_ns)
{
    sy_ns at = p->tenants[j->is.tenant].not_before_ns;
    if (at <= now)
        return true;
    if (*again_ns == 0 || at < *again_ns)
        *again_ns = at;
    return false;
}

static struct job *choose(const struct sy_policy *p, sy_ns now, sy_ns *again_ns)
{
    struct job *best = NULL;
    struct key best_key = {{0, 0}, 0};
    bool best_late = false;
    for (int i = 0; i < p->n_jobs; i++) {
        struct job *j = &p->jobs[i];
        if (j->running || j->blocked)
            continue;
        bool late = waited_too_long(p, j, now);
        struct key key = late ? (struct key){{j->ready_since, 0}, j->arrival} : key_of(p, j);
        bool better = !best || (late != best_late ? late : is_before(&key, &best_key));
        if (!better || p->lane_busy[j->is.lane] || !may_start(p, j, now, again_ns))
            continue;
        best = j;
        best_key = key;
        best_late = late;
    }
    return best;
}

bool sy_policy_next(struct sy_policy *p, sy_ns now, uint64_t *job, sy_ns *again_ns)
{
    *again_ns = 0;
    if (p->n_running >= at_once(p))
        return false;
    struct job *j = choose(p, now, again_ns);
    if (!j)
        return false;
    struct tenant *t = &p->tenants[j->is.tenant];
    p->clock_ns = SY_MAX(p->clock_ns, j->virtual_ns);
    p->tenant_clock_ns = SY_MAX(p->tenant_clock_ns, t->virtual_ns);
    j->running = p->lane_busy[j->is.lane] = true;
    j->turn = ++p->n_turns;
    p->n_running++;
    *job = j->is.id;
    *again_ns = 0;
    return true;
}

static int not_running(uint64_t job)
{
    return sy_error_set(SY_EARG, "job %llu does not run", (unsigned long long)job);
}

static void charge_tenant(struct tenant *t, sy_ns ns, sy_ns now)
{
    sy_ns total = ns + t->rest_ns;
    t->used_ns += ns;
    t->virtual_ns += total / t->weight;
    t->rest_ns = total % t->weight;
    if (t->hard_permille > 0) {
        sy_ns oldest = ns + HARD_CREDIT_NS;
        oldest = now > oldest ? now - oldest : 0;
        unsigned __int128 next = (unsigned __int128)ns * 1000 / t->hard_permille;
        next += SY_MAX(t->not_before_ns, oldest);
        t->not_before_ns = (sy_ns)SY_MIN(next, UINT64_MAX / 2); /* 292 years */
    }
}

int sy_policy_done(struct sy_policy *p, uint64_t job, sy_ns ns, sy_ns now)
{
    return sy_policy_done_many(p, job, 1, ns, now);
}

int sy_policy_done_many(struct sy_policy *p, uint64_t job, uint64_t n, sy_ns ns, sy_ns now)
{
    SY_TRY(sy_policy_undo(p, job));
    struct job *j = find(p, job);
    j->ready_since = now;
    j->used_ns += ns;
    j->virtual_ns += ns;
    charge_tenant(&p->tenants[j->is.tenant], ns, now);
    if (n == 0)
        return SY_OK;
    /* The device's time, so never 0: 0 means unknown. */
    sy_ns each = ns / n;
    j->is.iteration_ns =
        j->is.iteration_ns == 0
            ? SY_MAX(each, 1)
            : SY_MAX((j->is.iteration_ns * (ITERATION_W - 1) + each) / ITERATION_W, 1);
    if (j->is.iterations_left > 1)
        j->is.iterations_left -= SY_MIN(n, j->is.iterations_left - 1);
    return SY_OK;
}

int sy_policy_undo(struct sy_policy *p, uint64_t job)
{
    struct job *j = find(p, job);
    if (!j)
        return no_job(job);
    if (!j->running)
        return not_running(job);
    stop_running(p, j);
    return SY_OK;
}

/* ---- looking ---- */

enum sy_policy_kind sy_policy_kind(const struct sy_policy *p)
{
    return p->config.kind;
}

int sy_policy_n_jobs(const struct sy_policy *p)
{
    return p->n_jobs;
}

int sy_policy_n_ready(const struct sy_policy *p)
{
    return p->n_active;
}

bool sy_policy_can_use(const struct sy_policy *p, sy_ns now)
{
    for (int i = 0; i < p->n_jobs; i++) {
        const struct job *j = &p->jobs[i];
        if (j->running || (!j->blocked && p->tenants[j->is.tenant].not_before_ns <= now))
            return true;
    }
    return false;
}

unsigned sy_policy_usable_permille(const struct sy_policy *p)
{
    bool seen[SY_POLICY_MAX_TENANTS] = {false};
    unsigned sum = 0;
    for (int i = 0; i < p->n_jobs; i++) {
        const struct job *j = &p->jobs[i];
        unsigned hard = p->tenants[j->is.tenant].hard_permille;
        if ((j->blocked && !j->running) || seen[j->is.tenant])
            continue;
        seen[j->is.tenant] = true;
        sum += hard > 0 ? hard : 1000;
    }
    return SY_MIN(sum, 1000);
}

sy_ns sy_policy_job_ns(const struct sy_policy *p, uint64_t job)
{
    const struct job *j = find(p, job);
    return j ? j->used_ns : 0;
}

sy_ns sy_policy_tenant_ns(const struct sy_policy *p, int tenant)
{
    return check_tenant(tenant) < 0 ? 0 : p->tenants[tenant].used_ns;
}

sy_ns sy_policy_left_ns(const struct sy_policy *p, uint64_t job)
{
    const struct job *j = find(p, job);
    return j && j->is.iteration_ns > 0 ? left_ns(j) : UINT64_MAX;
}
