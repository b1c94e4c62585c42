/* Divides the pool's spare memory among resident heads, by latency saved per byte at the models' request rates. Pure.
 *
 * Each model has a curve: with its first k groups resident, a request ends saved_ns[k] earlier than with none. The curve need not
 * be concave, so steps are taken along its upper hull, the steepest first over all models. The result is optimal but for at most one
 * step (the one that did not fit), and optimal if all steps up to some slope fit. */
#ifndef SY_LOADER_PLAN_HEAD_BUDGET_H
#define SY_LOADER_PLAN_HEAD_BUDGET_H

#include <stdint.h>

struct sy_head_curve {
    double rate;            /* requests per second, or any weight */
    int n;                  /* longest useful head, in groups: the free prefix */
    const uint64_t *bytes;  /* [0..n]: of the first k groups; non-decreasing */
    const double *saved_ns; /* [0..n]: non-decreasing */
};

/* heads[i]: groups of model i's head; worth[i]: time saved per second and byte of its last step taken, 0 without one (for the order in
 * which heads are given up). Sum of bytes <= room_bytes. */
void sy_head_budget(const struct sy_head_curve *models, int n_models, uint64_t room_bytes,
                    int *heads, double *worth);

#endif
