#include "runtime/sim/sim_chance.h"

#include <math.h>

#include "runtime/sim/sim_internal.h"

uint64_t sy_sim_random(struct sim *s)
{
    return sy_sim_mix(s->random += 0x9e3779b97f4a7c15ull);
}

static double lognormal(const struct sim *s, uint64_t first, uint64_t second)
{
    double a = ((double)(first >> 11) + 1) * 0x1p-53, b = (double)(second >> 11) * 0x1p-53;
    return exp(s->config->noise * sqrt(-2 * log(a)) * cos(2 * M_PI * b));
}

double sy_sim_noise(struct sim *s)
{
    if (s->config->noise <= 0)
        return 1;
    uint64_t first = sy_sim_random(s);
    return lognormal(s, first, sy_sim_random(s));
}

double sy_sim_noise_of(const struct sim *s, uint64_t request, int nth)
{
    if (s->config->noise <= 0)
        return 1;
    return lognormal(s, sy_sim_draw(s, request, nth), sy_sim_draw(s, request, nth + 1));
}
