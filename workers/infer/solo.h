/* Which layers one thread computes alone: waking the others costs more than a small step saves. Pure. */
#ifndef SY_WORKERS_INFER_SOLO_H
#define SY_WORKERS_INFER_SOLO_H

#include <stdint.h>

/* The least that a caller should say waking costs, whatever was measured: woken threads look for more work for a while after the run, on cores that the
 * runtime and its clients want then. */
#define SY_SOLO_LEAST_WAKE_NS 20000u

/* one_ns, team_ns: what each of n layers takes with one thread and with all of them awake. The others sleep when a run begins, and wake_ns passes
 * the first time that a layer uses them. solo[i] becomes 1 for layers that one thread computes, else 0, such that the sum over the run is least;
 * of equal sums the one with fewer layers for all threads. */
void sy_solo_choose(int n, const uint64_t *one_ns, const uint64_t *team_ns, uint64_t wake_ns,
                    unsigned char *solo);

#endif
