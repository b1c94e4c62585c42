/* Which activations a trainer forgets, and when it makes them again for backward. Pure.
 *
 * The forward steps are cut into segments. What one segment hands to later ones is kept; the rest is forgotten when its segment
 * ends, and made again, into new buffers, before the first backward step that reads it:
 *
 *   F1 F2 F3 loss B3   F2' B2   F1' B1           peak: what is handed on, and one segment, instead of all
 *
 * A step that runs again reads the same values (parameters do not change before the update; dropout's bits are a function of the
 * element), so the bits are those without. The cut is the number of segments with the smallest peak. */
#ifndef SY_WORKERS_ENGINE_RECOMPUTE_PLAN_H
#define SY_WORKERS_ENGINE_RECOMPUTE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

struct sy_recompute_step {
    bool trains;             /* it runs in training; others are never run again */
    int first_use, end_uses; /* its part of the uses */
};

/* A step names an ephemeral buffer. */
struct sy_recompute_use {
    int buffer;
    bool is_written;
};

struct sy_recompute_buffer {
    uint64_t bytes;
    bool is_pinned; /* never forgotten */
    /* the plan's: */
    bool is_forgotten;      /* backward reads a second buffer in its place */
    bool is_read;           /* by backward, or to make again what backward reads */
    int maker, last_reader; /* forward steps; maker -1: none */
};

/* A step in the order of execution. */
struct sy_recompute_turn {
    int step;
    bool is_again;
};

struct sy_recompute {
    int n_forward, n_steps, n_buffers; /* steps before n_forward are forward ones */
    bool
        keeps_together; /* results of one step are kept together or not at all: steps may change one of them in place */
    struct sy_recompute_step *steps;
    struct sy_recompute_buffer *buffers;
    struct sy_recompute_use *uses;
    int n_uses;
    int *segments; /* by forward step */
    struct sy_recompute_turn *turns;
    int n_turns;
};

/* Zero, with room for steps and buffers. ENOMEM_HOST. finish in any case. */
int sy_recompute_init(struct sy_recompute *r, int n_forward, int n_steps, int n_buffers);
void sy_recompute_finish(struct sy_recompute *r);
/* The step after the last one described, or one more buffer that it names. */
void sy_recompute_add_step(struct sy_recompute *r, bool trains);
int sy_recompute_add_use(struct sy_recompute *r, int buffer, bool is_written);
/* Once all steps and buffers are described: fills is_forgotten and turns. ENOMEM_HOST. */
int sy_recompute_plan(struct sy_recompute *r);

#endif
