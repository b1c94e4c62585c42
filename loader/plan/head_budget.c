#include "loader/plan/head_budget.h"

#include <math.h>

struct step {
    int to;
    double slope; /* time saved per second and byte */
};

/* The steepest step from `from` groups that takes at most `room` more bytes; of equals the longer one. to < 0: there is none. */
static struct step steepest(const struct sy_head_curve *m, int from, uint64_t room)
{
    struct step best = {-1, 0};
    for (int k = from + 1; k <= m->n; k++) {
        uint64_t bytes = m->bytes[k] - m->bytes[from];
        double saved = (m->saved_ns[k] - m->saved_ns[from]) * m->rate;
        if (bytes > room)
            break;
        if (!(saved > 0))
            continue;
        double slope = bytes ? saved / (double)bytes : INFINITY;
        if (slope >= best.slope)
            best = (struct step){k, slope};
    }
    return best;
}

void sy_head_budget(const struct sy_head_curve *models, int n_models, uint64_t room_bytes,
                    int *heads, double *worth)
{
    uint64_t left = room_bytes;
    for (int i = 0; i < n_models; i++) {
        heads[i] = 0;
        worth[i] = 0;
    }
    for (;;) {
        struct step best = {-1, 0};
        int model = -1;
        for (int i = 0; i < n_models; i++) {
            struct step s = steepest(&models[i], heads[i], left);
            if (s.to >= 0 && s.slope > best.slope) {
                best = s;
                model = i;
            }
        }
        if (model < 0)
            return;
        left -= models[model].bytes[best.to] - models[model].bytes[heads[model]];
        heads[model] = best.to;
        worth[model] = best.slope;
    }
}
