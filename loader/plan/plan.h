/* The group planner (PipeSwitch, OSDI '20, section 4.2; exact here): pure.
 *
 *   ex[i][k] = min over j of max(k*alpha + bytes(0..i)/BW, ex[j][k-1]) + sigma + compute(j+1..i)
 *
 * with compute times stretched while copies run (sy_compute_done).
 * O(n^2 K). tests/ compares with brute force. */
#ifndef SY_LOADER_PLAN_PLAN_H
#define SY_LOADER_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define SY_MAX_GROUPS 64

struct sy_link_cost {
    double alpha_ns;     /* fixed cost of one copy */
    double bytes_per_ns; /* = GB/s */
    double sigma_ns;     /* cost of one group's synchronisation */
    /* time that computing is delayed per byte moved meanwhile; 0: none, as with a GPU's copy engine */
    double lost_ns_per_byte;
};

/* Computing beside copies, for the plan's and everybody's predictions. While bytes move, computing gets on by `speed`; they are taken to
 * move back to back from the start on.
 *
 *   done by t, when nothing waits:   speed * t  up to moving_ns,  then one for one */
struct sy_compute_beside {
    double moving_ns, speed;
};
struct sy_compute_beside sy_compute_beside(const struct sy_link_cost *cost, double bytes);
/* Undisturbed compute time, in ns, that is done by the time t; and the inverse. */
double sy_compute_done(const struct sy_compute_beside *beside, double t_ns);
double sy_compute_until(const struct sy_compute_beside *beside, double done_ns);

#define SY_LINK_CARE 0.8
/* The link that groups and free prefixes are made for: SY_LINK_CARE times as fast as it was measured. One group more costs sigma; one that comes
 * late, because the link or the profile was off, costs all that is waited for it. Predictions are of the link as it is. */
struct sy_link_cost sy_link_careful(const struct sy_link_cost *cost);

struct sy_plan_layer {
    uint64_t bytes;
    uint64_t compute_ns;
};

struct sy_group {
    int first_layer, n_layers;
    uint64_t offset_bytes, bytes; /* range in the package's weights */
    /* a single layer that is read in the host image: no copy (loader/storage/direct_read.h) */
    bool direct;
};

struct sy_plan {
    int n_groups;
    struct sy_group groups[SY_MAX_GROUPS];
    uint64_t predicted_ns; /* swap time with nothing resident */
    uint64_t bound_ns;     /* lower bound of any plan: see sy_plan_bound */
};

/* The best plan with at most max_groups (<= SY_MAX_GROUPS) groups. EARG on n_layers < 1; ENOMEM_HOST.
 * max_group_bytes: no group may be larger unless it is one layer (0: no limit). */
int sy_plan_make(const struct sy_plan_layer *layers, int n_layers, const struct sy_link_cost *cost,
                 int max_groups, uint64_t max_group_bytes, struct sy_plan *out);
/* Fixed cuts for comparison: one group a layer with parameters (not bounded by SY_MAX_GROUPS: returns malloc'd groups), or all in one. */
int sy_plan_per_layer(const struct sy_plan_layer *layers, int n_layers, struct sy_group **out,
                      int *n_groups);
/* Predicted end of the pipeline for given groups: the recurrence's forward simulation. Fills start/end of copy and compute per
 * group if `spans` is not NULL (4 ns values a group: copy start, copy end, compute start, compute end). */
uint64_t sy_plan_simulate(const struct sy_plan_layer *layers, const struct sy_group *groups,
                          int n_groups, const struct sy_link_cost *cost, uint64_t *spans);
/* Lower bound of any swap: with free and infinitely fine groups (alpha = sigma = 0, a layer starts when its bytes are there): max over i of
 * bytes(0..i)/BW + compute(i..n-1), computing slowed by what moves. */
uint64_t sy_plan_bound(const struct sy_plan_layer *layers, int n_layers,
                       const struct sy_link_cost *cost);

#endif
