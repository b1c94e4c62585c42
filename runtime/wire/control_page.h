/* The control page: 16 KiB of shared memory per worker, for what must cost no system call.
 *
 * Each field is written by one side only. Times are CLOCK_MONOTONIC nanoseconds. */
#ifndef SY_WIRE_CONTROL_PAGE_H
#define SY_WIRE_CONTROL_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/wire/post_box.h"

#define SY_CONTROL_PAGE_BYTES 16384u
#define SY_LONGEST_BYTES      96
#define SY_PAGE_CORE_WORDS    16 /* of 64 cores each */

enum sy_train_phase { SY_PHASE_NONE = 0, SY_PHASE_GRADIENT = 1, SY_PHASE_UPDATE = 2 };

struct sy_control_page {
    /* --- written by the runtime ------------------------------------------------------------- */
    /* Odd: training must pause. Even: it may run. Bumped by one each time, release; the worker reads it relaxed
     * between layers, and sleeps on it (futex) while it is odd. */
    _Alignas(64) _Atomic uint32_t preempt_epoch;
    _Atomic uint64_t preempt_ns; /* when the epoch was last made odd; relaxed, before the bump */
    /* 1: the job's turn goes on from one iteration to the next; read relaxed between two iterations. */
    _Atomic uint32_t turn_keeps;
    /* After a run the worker looks at its socket for so long before it sleeps; 0: it sleeps at once. Relaxed, before RUN is sent. */
    _Atomic uint32_t poll_us;
    _Atomic uint64_t interrupted_run; /* this run is to stop before its next layer; read relaxed */
    /* A run's slice was resized: before its next layer its threads move to these cores, a bit each. Version: release, after run and cores; read acquire
     * between layers. */
    _Atomic uint32_t cores_version;
    _Atomic uint64_t confined_run;
    _Atomic uint64_t cores[SY_PAGE_CORE_WORDS];

    /* --- written by the worker -------------------------------------------------------------- */
    _Alignas(64) _Atomic uint64_t
        heartbeat_ns; /* relaxed; at least every 500 ms and between layers */
    /* (run << 16) | groups computed of that run: release after each group. The storage reader looks at it before it writes over a group. */
    _Atomic uint64_t run_progress;
    _Atomic uint32_t paused_epoch; /* the odd epoch at which training paused; release */
    _Atomic uint64_t paused_ns;    /* when it had paused */

    _Alignas(64) _Atomic uint64_t job;    /* id of the training job, 0 none */
    _Atomic uint32_t train_phase;         /* enum sy_train_phase: release on entry of a phase */
    _Atomic uint64_t train_step;          /* iterations finished since the job's beginning */
    _Atomic uint64_t train_loss_bits;     /* last iteration's loss, double as bits */
    _Atomic uint64_t train_accuracy_bits; /* of the last evaluation, double as bits */
    _Atomic uint64_t train_accuracy_step; /* its step, 0: none yet; release, after the bits */
    _Atomic uint64_t train_busy_ns;       /* time spent training, pauses excluded */
    _Atomic uint64_t
        longest_layer_ns;           /* longest stretch between two looks at the epoch, this job */
    _Atomic uint64_t snapshot_step; /* of the last durable snapshot */
    _Atomic uint64_t train_total_steps; /* set by a script while it runs; 0: as in JOB_PREPARED */
    /* Name of that stretch: "backward conv1, step 7". The version is odd while it is written. */
    _Atomic uint32_t longest_version;
    char longest_what[SY_LONGEST_BYTES];

    /* --- messages of processes that are awake, beside the control socket ------------------------ */
    struct sy_post_box to_worker, to_runtime;
};

_Static_assert(sizeof(struct sy_control_page) <= SY_CONTROL_PAGE_BYTES, "all of it");

/* The longest stretch so far, and what it was. By the worker alone. */
void sy_page_set_longest(struct sy_control_page *page, uint64_t ns, const char *what);
/* Both as they were at one time, what with its 0 (SY_LONGEST_BYTES), printable. False: it is being written, or its writer died then. */
bool sy_page_longest(const struct sy_control_page *page, uint64_t *ns, char *what);

/* A shared futex word: wait until *word != seen or the timeout passed (UINT64_MAX: no timeout), wake all waiters. Returns at once
 * when the word differs already. Works across processes. */
void sy_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t timeout_ns);
void sy_futex_wake(_Atomic uint32_t *word);

/* Arrivals: one futex word per (model, group) in a shared table that the runtime writes and workers read. */
enum sy_arrival {
    SY_ARRIVAL_ABSENT = 0,
    SY_ARRIVAL_COMING = 1,
    SY_ARRIVAL_HERE = 2,
    SY_ARRIVAL_FAILED = 3
};
#define SY_MAX_MODELS    256u
#define SY_ARRIVAL_WORDS (SY_MAX_MODELS * 1024u) /* index: model * 1024 + group */
/* The shared table: the words, then the link's board (link_turn.h), which workers write too. */
#define SY_ARRIVALS_BYTES (SY_ARRIVAL_WORDS * sizeof(uint32_t) + SY_CONTROL_PAGE_BYTES)

#endif
