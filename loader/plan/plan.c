#include "loader/plan/plan.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"

/* Prefix sums over layers: index i is the sum over the first i layers, in ns. */
struct tables {
    int n;
    double *copy_ns;    /* bytes(0..i-1) / BW */
    double *compute_ns; /* Cp */
    struct sy_compute_beside beside;
    int *first_cut; /* smallest j such that layers j..i-1 may be one group */
    double *end[2]; /* ex[.][k-1] and ex[.][k] */
    int *queue;
    int *from; /* [k * (n + 1) + i]: the j that yields ex[i][k] */
    void *memory;
};

/* lower bound of the speed: a larger effect of copies would be a measuring error */
#define LEAST_SPEED 0.1

struct sy_compute_beside sy_compute_beside(const struct sy_link_cost *cost, double bytes)
{
    return (struct sy_compute_beside){
        bytes / cost->bytes_per_ns,
        fmax(1 - cost->lost_ns_per_byte * cost->bytes_per_ns, LEAST_SPEED)};
}

double sy_compute_done(const struct sy_compute_beside *beside, double t_ns)
{
    return t_ns - (1 - beside->speed) * fmin(t_ns, beside->moving_ns);
}

double sy_compute_until(const struct sy_compute_beside *beside, double done_ns)
{
    double while_moving = beside->speed * beside->moving_ns;
    return done_ns < while_moving ? done_ns / beside->speed
                                  : done_ns + beside->moving_ns - while_moving;
}

struct sy_link_cost sy_link_careful(const struct sy_link_cost *cost)
{
    struct sy_link_cost careful = *cost;
    careful.bytes_per_ns *= SY_LINK_CARE;
    return careful;
}

static int check_cost(const struct sy_link_cost *cost)
{
    bool good = isfinite(cost->alpha_ns) && cost->alpha_ns >= 0 && isfinite(cost->sigma_ns) &&
                cost->sigma_ns >= 0 && isfinite(cost->bytes_per_ns) && cost->bytes_per_ns > 0 &&
                isfinite(cost->lost_ns_per_byte) && cost->lost_ns_per_byte >= 0;
    if (good)
        return SY_OK;
    return sy_error_set(
        SY_EARG,
        "plan: link cost alpha=%g ns sigma=%g ns lost=%g ns/byte bandwidth=%g bytes/ns: "
        "the first three must be >= 0 and the bandwidth > 0; measure the link "
        "again",
        cost->alpha_ns, cost->sigma_ns, cost->lost_ns_per_byte, cost->bytes_per_ns);
}

static int check_layers(const struct sy_plan_layer *layers, int n_layers)
{
    if (n_layers < 1)
        return sy_error_set(SY_EARG, "plan: %d layers; a plan needs at least one", n_layers);
    uint64_t bytes = 0, compute = 0;
    for (int i = 0; i < n_layers; i++)
        if (__builtin_add_overflow(bytes, layers[i].bytes, &bytes) ||
            __builtin_add_overflow(compute, layers[i].compute_ns, &compute))
            return sy_error_set(SY_EARG,
                                "plan: the sum of bytes or ns overflows 64 bits at layer %d", i);
    return SY_OK;
}

static int tables_init(struct tables *t, int n, int max_groups)
{
    size_t rows = (size_t)n + 1;
    size_t bytes = rows * (4 * sizeof(double) + (2 + (size_t)max_groups + 1) * sizeof(int));
    char *at = t->memory = calloc(1, bytes);
    SY_TRY_ALLOC(at, "plan: no memory for %zu bytes of tables", bytes);
    t->n = n;
    t->copy_ns = (double *)at;
    t->compute_ns = t->copy_ns + rows;
    t->end[0] = t->compute_ns + rows;
    t->end[1] = t->end[0] + rows;
    t->first_cut = (int *)(t->end[1] + rows);
    t->queue = t->first_cut + rows;
    t->from = t->queue + rows;
    return SY_OK;
}

static void tables_fill(struct tables *t, const struct sy_plan_layer *layers,
                        const struct sy_link_cost *cost, uint64_t max_group_bytes)
{
    uint64_t bytes = 0, compute = 0, behind = 0; /* behind: bytes of layers first..i-1 */
    int first = 0;
    for (int i = 1; i <= t->n; i++) {
        bytes += layers[i - 1].bytes;
        compute += layers[i - 1].compute_ns;
        behind += layers[i - 1].bytes;
        while (max_group_bytes && behind > max_group_bytes && first < i - 1)
            behind -= layers[first++].bytes;
        t->copy_ns[i] = (double)bytes / cost->bytes_per_ns;
        t->compute_ns[i] = (double)compute;
        t->first_cut[i] = first;
    }
    t->beside = sy_compute_beside(cost, (double)bytes);
}

static double candidate(const struct tables *t, const double *previous, double arrival, int j)
{
    return fmax(arrival, previous[j]) - t->compute_ns[j];
}

/* Arrival of group k that ends with layer i-1, on the time scale of computing. */
static double arrival_of(const struct tables *t, int k, int i, const struct sy_link_cost *cost)
{
    return sy_compute_done(&t->beside, k * cost->alpha_ns + t->copy_ns[i]);
}

/* One k of the recurrence in O(n) instead of O(n^2), and still exact.
 *
 * With T = done by k*alpha + copy(i), ex[i][k] = sigma + Cp[i] + min over j of max(T - Cp[j], d[j]), where
 * d[j] = ex[j][k-1] - Cp[j]. Cp never falls with j, so:
 *   - a cut j with d[j] >= d[j2], j < j2, is never better than j2, whatever T is: the queue keeps
 *     only cuts with d rising (hence ex[j][k-1] rising too);
 *   - T never falls with i: once the second cut is there (ex <= T), the first is beaten
 *     for good (T - Cp falls with j) and leaves. The best is then the first or the second: beyond those d
 *     only rises;
 *   - the size limit takes cuts off the front only, since first_cut never falls with i. */
static void one_more_group(struct tables *t, int k, const struct sy_link_cost *cost)
{
    const double *previous = t->end[(k - 1) & 1];
    double *end = t->end[k & 1];
    int *queue = t->queue, head = 0, tail = 0;
    end[0] = INFINITY;
    for (int i = 1; i <= t->n; i++) {
        double d = previous[i - 1] - t->compute_ns[i - 1];
        if (isfinite(d)) {
            while (tail > head && previous[queue[tail - 1]] - t->compute_ns[queue[tail - 1]] >= d)
                tail--;
            queue[tail++] = i - 1;
        }
        double arrival = arrival_of(t, k, i, cost);
        while (head < tail && queue[head] < t->first_cut[i])
            head++;
        while (head + 1 < tail && previous[queue[head + 1]] <= arrival)
            head++;
        end[i] = INFINITY;
        if (head == tail)
            continue;
        int best = queue[head];
        if (head + 1 < tail && candidate(t, previous, arrival, queue[head + 1]) <
                                   candidate(t, previous, arrival, best))
            best = queue[head + 1];
        end[i] = candidate(t, previous, arrival, best) + cost->sigma_ns + t->compute_ns[i];
        t->from[(size_t)k * ((size_t)t->n + 1) + (size_t)i] = best;
    }
}

/* The number of groups of the best plan, the fewest on a tie; 0: the size limit allows none. */
static int search(struct tables *t, const struct sy_link_cost *cost, int max_groups)
{
    double best = INFINITY;
    int best_k = 0;
    for (int i = 0; i <= t->n; i++)
        t->end[0][i] = i ? INFINITY : 0;
    for (int k = 1; k <= max_groups && k <= t->n; k++) {
        /* The last group cannot arrive before k*alpha + copy(n), and this only rises with k. */
        if (arrival_of(t, k, t->n, cost) + cost->sigma_ns >= best)
            break;
        one_more_group(t, k, cost);
        if (t->end[k & 1][t->n] < best) {
            best = t->end[k & 1][t->n];
            best_k = k;
        }
    }
    return best_k;
}

static void read_back(const struct tables *t, const struct sy_plan_layer *layers,
                      struct sy_plan *out)
{
    int end = t->n;
    for (int k = out->n_groups; k > 0; k--) {
        int first = t->from[(size_t)k * ((size_t)t->n + 1) + (size_t)end];
        out->groups[k - 1] = (struct sy_group){.first_layer = first, .n_layers = end - first};
        end = first;
    }
    uint64_t offset = 0;
    for (int k = 0; k < out->n_groups; k++) {
        struct sy_group *group = &out->groups[k];
        group->offset_bytes = offset;
        for (int i = 0; i < group->n_layers; i++)
            group->bytes += layers[group->first_layer + i].bytes;
        offset += group->bytes;
    }
}

int sy_plan_make(const struct sy_plan_layer *layers, int n_layers, const struct sy_link_cost *cost,
                 int max_groups, uint64_t max_group_bytes, struct sy_plan *out)
{
    SY_TRY(check_layers(layers, n_layers));
    SY_TRY(check_cost(cost));
    if (max_groups < 1 || max_groups > SY_MAX_GROUPS)
        return sy_error_set(SY_EARG, "plan: max_groups=%d is not in 1..%d", max_groups,
                            SY_MAX_GROUPS);
    struct tables t = {0};
    SY_TRY(tables_init(&t, n_layers, max_groups));
    tables_fill(&t, layers, cost, max_group_bytes);
    memset(out, 0, sizeof(*out));
    out->n_groups = search(&t, cost, max_groups);
    read_back(&t, layers, out);
    free(t.memory);
    if (!out->n_groups)
        return sy_error_set(SY_ETOOBIG,
                            "plan: %d layers do not fit in %d groups of at most %llu bytes; allow "
                            "larger groups",
                            n_layers, max_groups, (unsigned long long)max_group_bytes);
    out->predicted_ns = sy_plan_simulate(layers, out->groups, out->n_groups, cost, NULL);
    out->bound_ns = sy_plan_bound(layers, n_layers, cost);
    return SY_OK;
}

int sy_plan_per_layer(const struct sy_plan_layer *layers, int n_layers, struct sy_group **out,
                      int *n_groups)
{
    SY_TRY(check_layers(layers, n_layers));
    struct sy_group *groups = calloc((size_t)n_layers, sizeof(*groups));
    SY_TRY_ALLOC(groups, "plan: no memory for %d groups", n_layers);
    int n = 1; /* layers without parameters join the group before, or the first */
    for (int i = 0; i < n_layers; i++) {
        struct sy_group *last = &groups[n - 1];
        if (layers[i].bytes && last->bytes) {
            groups[n] = (struct sy_group){.first_layer = i,
                                          .offset_bytes = last->offset_bytes + last->bytes};
            last = &groups[n++];
        }
        last->n_layers++;
        last->bytes += layers[i].bytes;
    }
    *out = groups;
    *n_groups = n;
    return SY_OK;
}

static double total_bytes(const struct sy_plan_layer *layers, int n)
{
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += layers[i].bytes;
    return (double)bytes;
}

static int layers_of(const struct sy_group *groups, int n_groups)
{
    return n_groups > 0 ? groups[n_groups - 1].first_layer + groups[n_groups - 1].n_layers : 0;
}

uint64_t sy_plan_simulate(const struct sy_plan_layer *layers, const struct sy_group *groups,
                          int n_groups, const struct sy_link_cost *cost, uint64_t *spans)
{
    struct sy_compute_beside beside =
        sy_compute_beside(cost, total_bytes(layers, layers_of(groups, n_groups)));
    uint64_t bytes = 0;
    double copy_end = 0, done = 0; /* done: compute time completed, as slowed by copies */
    for (int g = 0; g < n_groups; g++) {
        double copy_start = copy_end, compute = 0;
        for (int i = 0; i < groups[g].n_layers; i++) {
            bytes += layers[groups[g].first_layer + i].bytes;
            compute += (double)layers[groups[g].first_layer + i].compute_ns;
        }
        copy_end = (g + 1) * cost->alpha_ns + (double)bytes / cost->bytes_per_ns;
        double start = fmax(sy_compute_done(&beside, copy_end), done);
        done = start + cost->sigma_ns + compute;
        if (!spans)
            continue;
        spans[4 * g] = (uint64_t)llround(copy_start);
        spans[4 * g + 1] = (uint64_t)llround(copy_end);
        spans[4 * g + 2] = (uint64_t)llround(sy_compute_until(&beside, start));
        spans[4 * g + 3] = (uint64_t)llround(sy_compute_until(&beside, done));
    }
    return (uint64_t)llround(sy_compute_until(&beside, done));
}

uint64_t sy_plan_bound(const struct sy_plan_layer *layers, int n_layers,
                       const struct sy_link_cost *cost)
{
    struct sy_compute_beside beside = sy_compute_beside(cost, total_bytes(layers, n_layers));
    uint64_t left = 0, bytes = 0;
    double bound = 0;
    for (int i = 0; i < n_layers; i++)
        left += layers[i].compute_ns;
    for (int i = 0; i < n_layers; i++) {
        bytes += layers[i].bytes;
        bound = fmax(bound,
                     sy_compute_done(&beside, (double)bytes / cost->bytes_per_ns) + (double)left);
        left -= layers[i].compute_ns;
    }
    return (uint64_t)sy_compute_until(&beside, bound); /* rounded down: it stays a bound */
}
