/* Generated requests. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/sim/sim_memory.h"
#include "runtime/sim/sim_trace.h"

#define MAX_CANDIDATES 1e9 /* a minute's work */
#define MAX_SECONDS    1e9
#define MAX_DEADLINE_S 5e9 /* of the last class, beside MAX_SECONDS in 63 bits of nanoseconds */

static sy_ns ns_of(double seconds)
{
    return (sy_ns)(seconds * 1e9 + 0.5);
}

static int set_field(struct sy_sim_generator *g, const char *name, double value)
{
    const struct {
        const char *name;
        double *real;
        int *integer;
    } fields[] = {{"rate", &g->rate, NULL},
                  {"seconds", &g->seconds, NULL},
                  {"zipf", &g->zipf, NULL},
                  {"swing", &g->swing, NULL},
                  {"period", &g->period_s, NULL},
                  {"burst", &g->burst, NULL},
                  {"burst-every", &g->burst_every_s, NULL},
                  {"burst-last", &g->burst_last_s, NULL},
                  {"models", NULL, &g->n_models},
                  {"classes", NULL, &g->n_classes},
                  {"deadline-ms", &g->deadline_ms, NULL}};
    for (size_t i = 0; i < SY_ARRAY_LEN(fields); i++)
        if (strcmp(fields[i].name, name) == 0) {
            if (fields[i].real)
                *fields[i].real = value;
            else
                *fields[i].integer = (int)SY_MIN(value, 1e6);
            if (fields[i].integer && value != floor(value))
                return sy_error_set(SY_EARG, "generator option %s=%g: a whole number", name, value);
            return SY_OK;
        }
    return sy_error_set(
        SY_EARG,
        "no generator option %s: rate, seconds, zipf, models, classes, deadline-ms, "
        "swing, period, burst, burst-every, burst-last",
        name);
}

static double deadline_s(const struct sy_sim_generator *g, int class_)
{
    return g->deadline_ms / 1e3 * pow(10, class_);
}

static int check_work(const struct sy_sim_generator *g)
{
    double candidates = g->rate * (1 + g->swing) * g->burst * g->seconds;
    double bursts = g->seconds / (g->burst_every_s + g->burst_last_s);
    double longest_s = deadline_s(g, g->n_classes - 1);
    if (!(longest_s <= MAX_DEADLINE_S))
        return sy_error_set(SY_EARG,
                            "generated requests: deadline-ms %g is %g seconds for the last of %d "
                            "classes; at most %g can be",
                            g->deadline_ms, longest_s, g->n_classes, MAX_DEADLINE_S);
    if (candidates + bursts <= MAX_CANDIDATES && g->seconds <= MAX_SECONDS)
        return SY_OK;
    return sy_error_set(SY_EARG,
                        "generated requests: rate, swing and burst for %g seconds draw %g, with "
                        "%g bursts; at most %g can be, in at most %g seconds",
                        g->seconds, candidates, bursts, MAX_CANDIDATES, MAX_SECONDS);
}

static int check_generator(const struct sy_sim_generator *g)
{
    if (g->rate > 0 && g->seconds > 0 && g->n_models >= 1 && g->n_models <= 100000 &&
        g->n_classes >= 1 && g->n_classes <= SY_SIM_MAX_CLASSES && g->swing <= 1 &&
        g->period_s > 0 && g->burst >= 1 && g->burst_every_s > 0 && g->burst_last_s > 0) {
        if (g->rate * g->seconds <= (double)g->n_at_most)
            return check_work(g);
        return sy_error_set(
            SY_ETOOBIG, "generated requests: rate %g for %g seconds are %g; at most %llu", g->rate,
            g->seconds, g->rate * g->seconds, (unsigned long long)g->n_at_most);
    }
    return sy_error_set(SY_EARG,
                        "generated requests: rate, seconds, period, burst-every and "
                        "burst-last above 0, 1 to 100000 models, 1 to %d classes, swing at "
                        "most 1, burst at least 1",
                        SY_SIM_MAX_CLASSES);
}

int sy_sim_generator_parse(const char *text, struct sy_sim_generator *out)
{
    char copy[512], *at = copy, *item;
    *out = (struct sy_sim_generator){.rate = 20,
                                     .seconds = 60,
                                     .zipf = 1,
                                     .period_s = 86400,
                                     .burst = 1,
                                     .burst_every_s = 30,
                                     .burst_last_s = 2,
                                     .n_models = 3,
                                     .n_classes = 1,
                                     .n_at_most = 50000000};
    if (strlen(text) >= sizeof copy)
        return sy_error_set(SY_EARG, "generator options of more than %zu letters", sizeof copy - 1);
    memcpy(copy, text, strlen(text) + 1);
    while ((item = strsep(&at, ","))) {
        char *equals = strchr(item, '='), *end = NULL;
        double value = equals ? strtod(equals + 1, &end) : -1;
        if (item[0] == '\0')
            continue;
        if (!equals || end == equals + 1 || *end || !(value >= 0) || isinf(value))
            return sy_error_set(SY_EARG, "generator option %s: NAME=NUMBER, at least 0", item);
        *equals = '\0';
        SY_TRY(set_field(out, item, value));
    }
    return check_generator(out);
}

struct dice {
    uint64_t state;
};

static double draw_uniform(struct dice *d)
{
    uint64_t x = d->state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    x ^= x >> 31;
    return ((double)(x >> 11) + 0.5) * 0x1p-53;
}

static double *zipf_sums(const struct sy_sim_generator *g)
{
    double *sums = malloc((size_t)g->n_models * sizeof *sums), sum = 0;
    for (int i = 0; sums && i < g->n_models; i++)
        sums[i] = sum += pow(i + 1, -g->zipf);
    for (int i = 0; sums && i < g->n_models; i++)
        sums[i] /= sum;
    return sums;
}

static int32_t pick(const double *sums, int n, double x)
{
    int low = 0, high = n - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (sums[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct burst {
    double from_s, to_s;
};

static double rate_at(const struct sy_sim_generator *g, const struct burst *burst, double t)
{
    double rate = g->rate * (1 + g->swing * sin(2 * M_PI * t / g->period_s));
    return t >= burst->from_s && t < burst->to_s ? rate * g->burst : rate;
}

static void next_burst(const struct sy_sim_generator *g, struct burst *burst, struct dice *dice,
                       double t)
{
    while (t >= burst->to_s) {
        burst->from_s = burst->to_s - log(draw_uniform(dice)) * g->burst_every_s;
        burst->to_s = burst->from_s - log(draw_uniform(dice)) * g->burst_last_s;
    }
}

static struct sy_sim_request make_request(const struct sy_sim_generator *g, struct dice *dice,
                                          const double *sums, double t)
{
    struct sy_sim_request r = {.at_ns = ns_of(t),
                               .model = pick(sums, g->n_models, draw_uniform(dice))};
    r.class_ = (int32_t)(draw_uniform(dice) * g->n_classes);
    r.deadline_ns = ns_of(deadline_s(g, r.class_));
    return r;
}

/* By thinning: candidates at the highest rate there can be, each kept with the part that the rate has of it. */
int sy_sim_generate(const struct sy_sim_generator *g, uint64_t seed, struct sy_sim_request **out,
                    uint64_t *n)
{
    struct dice dice = {seed * 0x9e3779b97f4a7c15ull + 0x1234567};
    struct burst burst = {0, 0};
    double most = g->rate * (1 + g->swing) * g->burst, *sums;
    uint64_t max = 0;
    SY_TRY(check_generator(g));
    sums = zipf_sums(g);
    *out = NULL;
    *n = 0;
    for (double t = 0; sums;) {
        t -= log(draw_uniform(&dice)) / most;
        if (t >= g->seconds)
            break;
        if (*n >= g->n_at_most)
            goto too_many;
        next_burst(g, &burst, &dice, t);
        if (draw_uniform(&dice) * most > rate_at(g, &burst, t))
            continue;
        if (*n == max) {
            max = max ? 2 * max : 1024;
            struct sy_sim_request *more = sy_sim_grow(*out, *n * sizeof *more, max * sizeof *more);
            if (!more)
                goto no_memory;
            *out = more;
        }
        (*out)[(*n)++] = make_request(g, &dice, sums, t);
    }
    if (sums) {
        free(sums);
        return SY_OK;
    }
no_memory:
    free(sums);
    free(*out);
    *out = NULL;
    return sy_error_set(SY_ENOMEM_HOST, "no memory for generated requests");
too_many:
    free(sums);
    free(*out);
    *out = NULL;
    return sy_error_set(SY_ETOOBIG, "generated requests: more than %llu come within %g seconds",
                        (unsigned long long)g->n_at_most, g->seconds);
}
