/* Predicted durations of requests: from the profile, the groups expected in the pool at their start, and observed durations.
 *
 * The profile is of the usual sizes; for others each layer's time is scaled by its amount of computation (core_sizes.c). A correction is learned for
 * each class of sizes, so that long sequences do not change predictions of short ones; a class without observations uses its neighbour's.
 *
 * Runs without transfers and runs with transfers are learned separately. The first give the correction of the profile's compute time (other
 * threads, other load); the second are predicted with it, and the remaining error is attributed to the link. */
#include <stdlib.h>
#include <string.h>

#include "loader/storage/direct_read.h"
#include "runtime/base/assert.h"
#include "runtime/core/core_internal.h"

#define SCALE_NS (1000 * SY_NS_PER_S) /* an arbitrary large time, for exact ratios */

struct sy_link_cost sy_core_link(const struct sy_core *core, const struct sy_package *p)
{
    struct sy_link_cost link = core->link;

    if (core->unified && p->profile.storage_bytes_per_s > 0)
        link.bytes_per_ns = (double)p->profile.storage_bytes_per_s / 1e9;
    return link;
}

/* The number of threads that the profile was measured with / those of this device. Compute time scales with it on cores; other devices ignore it. */
static double thread_scale(const struct sy_core *core, const struct sy_package *p)
{
    bool on_cores = strcmp(core->spec.kind, "cuda") != 0;
    return on_cores && core->n_cores > 0 && p->profile.n_threads > 0
               ? (double)p->profile.n_threads / (double)core->n_cores
               : 1;
}

/* Plan layers with `scale` times the profile's compute times. */
static struct sy_plan_layer *scaled_layers(const struct sy_package *p, int64_t batch,
                                           const struct sy_core_sizes *sizes, double scale)
{
    struct sy_plan_layer *layers = calloc((size_t)p->n_layers + 1, sizeof *layers);
    for (int i = 0; layers && i < p->n_layers; i++)
        layers[i] = (struct sy_plan_layer){
            .bytes = p->layers[i].bytes,
            .compute_ns = (uint64_t)(scale * (sizes ? (double)sizes->work[i] : 1) *
                                     (double)sy_package_layer_ns(p, i, batch))};
    return layers;
}

/* ---- what was learned, by model and class of sizes ---- */

static int slot_of(int model, int class_)
{
    return model * SY_CORE_SIZE_CLASSES + class_;
}

/* The class itself, or the nearest one with observations. */
static int nearest_slot(const struct sy_core *core, int model, int class_, bool moves)
{
    for (int far = 0; far < SY_CORE_SIZE_CLASSES; far++)
        for (int side = -1; side <= 1; side += 2) {
            int at = class_ + side * far;
            if (at >= 0 && at < SY_CORE_SIZE_CLASSES &&
                sy_predictor_n_seen(core->predictor, slot_of(model, at), moves) > 0)
                return slot_of(model, at);
        }
    return slot_of(model, class_);
}

static double scale_of(const struct sy_core *core, const struct sy_core_model *m, int class_)
{
    int slot = nearest_slot(core, (int)(m - core->models), class_, false);
    sy_ns seen = sy_predictor_correct(core->predictor, slot, 0, SCALE_NS).expected_ns;
    return thread_scale(core, m->package) * (double)seen / (double)SCALE_NS;
}

double sy_core_compute_scale(const struct sy_core *core, const struct sy_core_model *m)
{
    return scale_of(core, m, SY_CORE_USUAL_SIZES);
}

void sy_core_forget(struct sy_core *core, int model)
{
    for (int class_ = 0; class_ < SY_CORE_SIZE_CLASSES; class_++)
        sy_predictor_forget(core->predictor, slot_of(model, class_));
    sy_predictor_forget(core->preparing, model);
}

struct sy_plan_layer *sy_core_plan_layers(const struct sy_core *core, const struct sy_core_model *m,
                                          int64_t batch)
{
    return scaled_layers(m->package, batch, NULL, sy_core_compute_scale(core, m));
}

/* ---- one run, as its model's groups are ---- */

/* Adds the table's rows, which cross the link in each run. */
static void read_in_image(const struct sy_core_model *m, int64_t batch,
                          const struct sy_core_sizes *sizes, const struct sy_link_cost *link,
                          struct sy_plan_layer *layer, int which)
{
    uint64_t usual = sy_layer_read_bytes(m->package->usual, &m->package->layers[which], batch);
    double rows = (double)usual * (sizes ? (double)sizes->work[which] : 1);
    layer->bytes = 0;
    layer->compute_ns += (uint64_t)(rows / link->bytes_per_ns);
}

/* Lower bound of a run from `first_layer` on: groups before it cross the link, but are not computed. */
static sy_ns bound(const struct sy_core_model *m, int64_t batch, const struct sy_core_sizes *sizes,
                   double scale, struct sy_link_cost link, const struct sy_group_place *places,
                   int n_places, int first_layer)
{
    struct sy_plan_layer *layers = scaled_layers(m->package, batch, sizes, scale);
    if (!layers)
        return 0;
    for (int g = 0; g < n_places; g++)
        for (int l = 0; places[g].resident && l < m->groups[g].n_layers; l++)
            layers[m->groups[g].first_layer + l].bytes = 0;
    for (int g = 0; g < m->n_groups; g++)
        if (m->direct[g])
            read_in_image(m, batch, sizes, &link, &layers[m->groups[g].first_layer],
                          m->groups[g].first_layer);
    for (int l = 0; l < first_layer; l++)
        layers[l].compute_ns = 0;
    sy_ns at_least = sy_plan_bound(layers, m->package->n_layers, &link);
    free(layers);
    return at_least;
}

sy_ns sy_core_swap_bound(const struct sy_core *core, const struct sy_core_model *m, int64_t batch,
                         const struct sy_core_sizes *sizes, const struct sy_group_place *places,
                         int n_places)
{
    struct sy_link_cost link = sy_core_link(core, m->package);
    link.lost_ns_per_byte = 0; /* the lower bound excludes the time that swaps may lose */
    return bound(m, batch, sizes, thread_scale(core, m->package), link, places, n_places, 0);
}

static struct sy_core_guess guess_from(const struct sy_core *core, const struct sy_core_model *m,
                                       int64_t batch, const struct sy_core_sizes *sizes,
                                       const struct sy_group_place *places, int n_places,
                                       int first_layer)
{
    struct sy_core_guess guess = {.class_ = sizes ? sizes->class_ : SY_CORE_USUAL_SIZES};
    for (int g = 0; g < m->n_groups; g++)
        guess.moves |=
            (g >= n_places || !places[g].resident) && m->group_bytes[g] > 0 && !m->direct[g];
    double scale = guess.moves ? scale_of(core, m, guess.class_) : thread_scale(core, m->package);
    guess.ns = bound(m, batch, sizes, scale, sy_core_link(core, m->package), places, n_places,
                     first_layer);
    return guess;
}

struct sy_core_guess sy_core_guess(const struct sy_core *core, const struct sy_core_model *m,
                                   int64_t batch, const struct sy_core_sizes *sizes,
                                   const struct sy_group_place *places, int n_places)
{
    return guess_from(core, m, batch, sizes, places, n_places, 0);
}

struct sy_duration sy_core_duration(const struct sy_core *core, int model,
                                    struct sy_core_guess guess)
{
    int slot = nearest_slot(core, model, guess.class_, guess.moves);
    return sy_predictor_correct(core->predictor, slot, guess.moves ? guess.ns : 0,
                                guess.moves ? 0 : guess.ns);
}

void sy_core_learn(struct sy_core *core, int model, struct sy_core_guess guess, sy_ns took_ns)
{
    int slot = slot_of(model, guess.class_);
    if (guess.moves)
        sy_predictor_observe_swap(core->predictor, slot, guess.ns, took_ns);
    else
        sy_predictor_observe_compute(core->predictor, slot, guess.ns, took_ns);
}

void sy_core_forget_after_refusal(struct sy_core *core, int model, struct sy_core_guess guess,
                                  sy_ns left_ns)
{
    struct sy_duration alone = sy_core_duration(core, model, guess);
    if (guess.ns < left_ns && alone.expected_ns + alone.margin_ns > left_ns)
        sy_predictor_forget_oldest(
            core->predictor, nearest_slot(core, model, guess.class_, guess.moves), guess.moves);
}

/* ---- one that waits ---- */

static bool runs_before(const struct sy_core_request *r, const struct sy_core_request *wants)
{
    sy_ns none = UINT64_MAX, deadline = r->deadline_ns ? r->deadline_ns : none;
    if (r->run != 0 || r->class_ != wants->class_)
        return r->run != 0 || r->class_ < wants->class_;
    return deadline <= (wants->deadline_ns ? wants->deadline_ns : none);
}

/* How requests that run before this one change its model's resident groups. */
struct ahead {
    bool same;              /* one of them is for the same model */
    uint64_t bytes, coming; /* bytes of the other models; the part that is not in the pool now */
};

static struct ahead find_ahead(const struct sy_core *core, const struct sy_core_request *wants)
{
    const struct sy_residency *pool = sy_sched_residency(core->sched);
    bool seen[SY_MAX_MODELS] = {false};
    struct ahead ahead = {0};
    for (const struct sy_core_request *r = core->requests; r; r = r->next) {
        if (r == wants || seen[r->model] || !runs_before(r, wants))
            continue;
        seen[r->model] = true;
        if (r->model == wants->model) {
            ahead.same = true;
            continue;
        }
        uint64_t all = core->models[r->model].heads.pool_bytes;
        uint64_t here = sy_residency_resident_bytes(pool, r->model);
        ahead.bytes += all;
        ahead.coming += all > here ? all - here : 0;
    }
    return ahead;
}

/* Bytes of the pool less jobs and workspace. */
static uint64_t room_of_models(const struct sy_core *core)
{
    uint64_t room = sy_pool_free_bytes(sy_sched_pool(core->sched));
    for (int i = 0; i < (int)SY_MAX_MODELS; i++)
        if (core->models[i].used)
            room += sy_residency_resident_bytes(sy_sched_residency(core->sched), i);
    return room;
}

/* Predicts the number of groups resident at its start. After a request for the same model: all, if the models of those ahead fit beside it; the head, if only
 * it fits; else those resident now. Without one: those resident now, or the head if those ahead need the room. */
static int n_resident_then(const struct sy_core *core, const struct sy_core_request *wants)
{
    const struct sy_residency *residency = sy_sched_residency(core->sched);
    const struct sy_core_model *m = &core->models[wants->model];
    const struct sy_pool *pool = sy_sched_pool(core->sched);
    int now = sy_residency_n_resident(residency, wants->model);
    int head = SY_MIN(now, sy_residency_n_head(residency, wants->model));
    struct ahead ahead = find_ahead(core, wants);
    if (ahead.same) {
        uint64_t room = room_of_models(core);
        return m->heads.pool_bytes + ahead.bytes <= room ? m->n_groups
               : m->heads.pool_bytes <= room             ? head
                                                         : now;
    }
    uint64_t spare =
        sy_pool_free_bytes(pool) + sy_residency_older_tail_bytes(residency, wants->model);
    return ahead.coming <= spare ? now : head;
}

struct sy_core_guess sy_core_guess_parts(struct sy_core_guess guess, int n_parts)
{
    guess.ns *= (sy_ns)n_parts;
    return guess;
}

/* The prediction from `first_layer` on, with the first `n_resident` groups in the pool. */
static struct sy_core_guess guess_with(const struct sy_core *core,
                                       const struct sy_core_request *wants, int n_resident,
                                       int first_layer)
{
    const struct sy_core_model *m = &core->models[wants->model];
    struct sy_group_place places[SY_CORE_MAX_GROUPS];
    int n = SY_MIN(m->n_groups, SY_CORE_MAX_GROUPS);
    for (int g = 0; g < n; g++)
        places[g] = (struct sy_group_place){.resident = g < n_resident};
    struct sy_core_guess guess =
        guess_from(core, m, wants->batch, wants->sizes, places, n, first_layer);
    return sy_core_guess_parts(guess, wants->n_parts);
}

struct sy_core_guess sy_core_predict(const struct sy_core *core,
                                     const struct sy_core_request *wants)
{
    return guess_with(core, wants, n_resident_then(core, wants), 0);
}

struct sy_duration sy_core_remaining(const struct sy_core *core, const struct sy_core_request *r,
                                     int first_layer, int n_resident)
{
    return sy_core_duration(core, r->model, guess_with(core, r, n_resident, first_layer));
}

struct sy_duration sy_core_remaining_later(const struct sy_core *core,
                                           const struct sy_core_request *r, int first_layer,
                                           int n_arrived)
{
    int n_resident = SY_MIN(n_resident_then(core, r), n_arrived);
    return sy_core_remaining(core, r, first_layer, n_resident);
}
