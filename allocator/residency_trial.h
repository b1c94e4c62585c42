/* The residency's books, and changes to them that are tried on a copy of the pool first. Private to
 * residency.c and its walker. */
#ifndef SY_ALLOCATOR_RESIDENCY_TRIAL_H
#define SY_ALLOCATOR_RESIDENCY_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/cycle.h"
#include "allocator/residency.h"

struct sy_group_books {
    uint64_t bytes;
    uint64_t offset;       /* valid for groups < n_placed; while cycling, for all */
    uint64_t trial_offset; /* while placing */
    int32_t after_group;   /* while cycling */
    bool has_wish;         /* its next place is best at `wish`, if that is free */
    uint64_t wish;
    bool lost; /* placed, pinned, but a run that ended said that it never arrived */
};

/* States:  idle (pins 0): groups 0..n_placed-1 have blocks of their own (R1)
 *          head (pins 1, head_only): the same, and no one evicts them (R2)
 *          placed (pins > 0): n_placed = n_groups
 *          cycles (pins 1): the regions are its blocks, groups lie in them and share bytes (R3) */
struct sy_model_books {
    int n_groups;
    int n_placed;
    int n_kept; /* n_placed after the current trial is committed */
    int pins;
    bool head_only;
    bool cycles;
    int n_undisturbed; /* while cycling: head groups whose place no later group takes */
    int n_head;        /* groups that go last (R4) */
    double worth;      /* value of the head: the least valuable is evicted first */
    uint64_t last_used;
    struct sy_group_books *groups;
    struct sy_cycle_region *regions; /* while cycling */
    int n_regions;
};

struct sy_residency {
    struct sy_pool *pool;  /* borrowed */
    struct sy_pool *trial; /* scratch: contents mean nothing between calls */
    struct sy_model_books *models[SY_RESIDENCY_MAX_MODELS];
    int n_ids; /* highest id in use + 1 */
    /* within a trial: the model that groups are evicted of now; NULL: not looked for */
    struct sy_model_books *victim;
    bool victim_gives_tails;
    bool whole_models;
    uint64_t tick;
    uint64_t n_evicted;
};

/* Pool bytes of group `group`: its size, rounded up. */
uint64_t sy_model_block_bytes(const struct sy_model_books *m, int group);
/* Gives back to `pool` the blocks of groups keep..n_placed-1; of a cycling model its regions. */
void sy_model_give_groups(struct sy_pool *pool, const struct sy_model_books *m, int keep,
                          int n_placed);
void sy_model_give_regions(struct sy_pool *pool, const struct sy_model_books *m);

/* A trial is a copy of the pool in which blocks are given back and taken; n_kept of each model says what
 * of it is left there. It is dropped by beginning the next one. ENOMEM_HOST. */
int sy_trial_begin(struct sy_residency *r);
/* Commits the trial; the caller updates the books of `self` (may be NULL). */
void sy_trial_commit(struct sy_residency *r, const struct sy_model_books *self);
/* Evicts the next group of an idle model other than `self` (R4), but no group of a head that is worth `worth` or more. False: none is left. */
bool sy_trial_evict_below(struct sy_residency *r, const struct sy_model_books *self, double worth);
void sy_trial_evict_all(struct sy_residency *r, const struct sy_model_books *self);
/* The pool as if no other model were there, pinned or not. */
void sy_trial_remove_others(struct sy_residency *r, const struct sy_model_books *self);
/* A block for group `group` of `m` in the trial: at its wish, or anywhere. As sy_pool_take. */
int sy_trial_take_group(struct sy_residency *r, struct sy_model_books *m, int group);
/* Takes a block for each group of `m` from n_kept on and notes it in trial_offset, evicting others as
 * needed (whole), or giving up own heads only (own). False: does not fit. */
bool sy_trial_fit_whole(struct sy_residency *r, struct sy_model_books *m);
bool sy_trial_fit_own(struct sy_residency *r, struct sy_model_books *m);

#endif
