/* The lanes' state, and the search for a job's place. Private to lanes.c, lanes_place.c and lanes_check.c. */
#ifndef SY_ALLOCATOR_LANES_INTERNAL_H
#define SY_ALLOCATOR_LANES_INTERNAL_H

#include "allocator/lanes.h"

struct job_books {
    bool used, running, announce, fresh; /* announce: has news; fresh: they are its admission */
    struct sy_lane_job is;               /* sizes rounded up */
    int lane;                            /* -1: waits */
    int overtaken;
    uint64_t arrival;
    int n_pieces;
    struct sy_lane_piece pieces[SY_LANES_MAX_PIECES];
};

struct lane_books {
    int n_jobs;  /* 0: closed */
    int running; /* the job's slot, or -1 */
    uint64_t offset, bytes;
};

/* Target offsets of each admitted job and lane, which a rebuild moves them to. */
struct lane_plan {
    int *lane_of;    /* by job slot */
    uint64_t *bytes; /* by lane */
    uint64_t *offset;
    int *order; /* scratch, for sorting */
};

struct sy_lanes {
    struct sy_lanes_config config;
    uint64_t most_bytes;          /* at least config.capacity_bytes */
    struct sy_pool *pool, *trial; /* trial: contents mean nothing between calls */
    struct sy_quotas *quotas;
    struct job_books *jobs;
    struct lane_books *lanes; /* as many as jobs */
    int *queue;               /* slots of waiting jobs, next first */
    struct lane_plan plan;
    int n_waiting, n_lanes, n_running, n_announce;
    uint64_t persistent_bytes, ephemeral_bytes; /* of admitted jobs; of lanes */
    uint64_t n_arrived, wanted_bytes;
    bool untidy;     /* a lane may be too large or may slide */
    bool improvable; /* lanes or jobs have changed since sy_lanes_maximize last looked */
    bool draining;   /* no iteration begins until all lanes are empty */
    bool stuck;      /* even with all lanes empty the first in the queue found no place */
    bool hopeless;   /* the sums admit no waiting job; neither sums nor queue changed since */
    struct sy_lanes_counts counts;
};

enum lane_step { STEP_NONE, STEP_NEW, STEP_JOIN, STEP_GROW, STEP_REGROUP };

struct lane_choice {
    enum lane_step step;
    int lane; /* JOIN, GROW */
};

/* ---- lanes_place.c ---- */
/* By the sums alone: the paper's steps, then regrouping. */
struct lane_choice sy_lanes_choose(const struct sy_lanes *l, uint64_t persistent,
                                   uint64_t ephemeral);
/* Carries the choice out for a waiting job while other lanes run. False: not possible in this layout, nothing changed. */
bool sy_lanes_place(struct sy_lanes *l, int slot, struct lane_choice choice);
/* As sy_lanes_place, with all lanes empty: they are laid out anew. */
bool sy_lanes_rebuild(struct sy_lanes *l, int slot, struct lane_choice choice);
void sy_lanes_give_pieces(struct sy_pool *pool, struct job_books *j, int keep);
/* The job leaves its lane, which shrinks or closes when it is empty. */
void sy_lanes_exit(struct sy_lanes *l, int slot);
/* Empty lanes shrink to what they need and slide up. */
void sy_lanes_shrink_empty(struct sy_lanes *l);
/* One job of an empty lane gets a lane of its own, if there is room. */
bool sy_lanes_spread(struct sy_lanes *l);
/* With all lanes empty: the most lanes that the admitted jobs can have. False: nothing changed. */
bool sy_lanes_maximize(struct sy_lanes *l);

#endif
