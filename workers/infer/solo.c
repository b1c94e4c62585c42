#include "workers/infer/solo.h"

#include "runtime/base/assert.h"

/* The others wake at one layer; before it all layers are solo, and from it on each takes the cheaper. */
void sy_solo_choose(int n, const uint64_t *one_ns, const uint64_t *team_ns, uint64_t wake_ns,
                    unsigned char *solo)
{
    int wakes = n;                      /* at this layer; n: at none */
    uint64_t saved = 0, most = wake_ns; /* by waking at layer i */
    for (int i = n - 1; i >= 0; i--) {
        if (team_ns[i] >= one_ns[i])
            continue;
        saved += one_ns[i] - team_ns[i];
        if (saved > most) {
            most = saved;
            wakes = i;
        }
    }
    for (int i = 0; i < n; i++)
        solo[i] = i < wakes || team_ns[i] >= one_ns[i];
}
