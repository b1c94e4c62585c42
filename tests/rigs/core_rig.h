/* The runtime's core in this process, with fake workers (fake_worker.h): models, requests that check their answers, jobs, and
 * what must hold when everything has calmed down. */
#ifndef SY_TESTS_RIGS_CORE_RIG_H
#define SY_TESTS_RIGS_CORE_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/core/core.h"
#include "runtime/supervisor/worker_state.h"
#include "tests/fakes/fake_worker.h"

struct core_rig {
    struct event_base *base;
    struct sy_core *core;
    struct fake_script *script;
    char folder[64], script_path[96];
    int n_workers;
    uint64_t pool_bytes;
};

struct core_answer {
    struct core_rig *rig;
    bool over;
    int n_calls, status;
    char error[400];
    int64_t batch;
    uint64_t id, in, out; /* slab offsets */
    struct sy_request_report report;
};

/* A call with a done callback: submit, stop, add. */
struct core_done {
    int n_calls, status;
    char error[400];
};

/* Packages a and b are made, and the core is started with small memory. Workers hang after 1.5 s without a heartbeat: shorter, and those that
 * only wait for a core of a busy machine would be taken for hung. */
void core_rig_open(struct core_rig *r, const char *device, int n_workers);
/* Workers hang after a minute: one that is stopped stays until the test ends it. */
void core_rig_open_patient(struct core_rig *r, const char *device, int n_workers);
/* As core_rig_open with a pool of this size instead of 1 MiB. */
void core_rig_open_small(struct core_rig *r, const char *device, int n_workers,
                         uint64_t pool_bytes);
void core_rig_open_gathering(struct core_rig *r, const char *device, int n_workers,
                             uint64_t pool_bytes, sy_ns max_delay_ns);
/* Device, pool, workers, patience and gathering as in `config`; the rest is the rig's. */
void core_rig_open_with(struct core_rig *r, const struct sy_core_config *config);
void core_rig_close(struct core_rig *r);
/* Forgets the fault and sets another one: `times` times, on any worker. */
void core_rig_fault(struct core_rig *r, enum fake_moment moment, enum fake_fault fault, int times);

typedef bool (*core_condition)(struct core_rig *r, void *ctx);
/* Runs the event loop until it holds; fails the test, naming `what`, if that takes more than 2 minutes. */
void core_rig_until(struct core_rig *r, core_condition holds, void *ctx, const char *what);
void core_rig_turn(struct core_rig *r, int ms); /* runs the event loop for about so long */

void core_rig_done(void *ctx, int status, const char *error); /* ctx: struct core_done */
/* Waits until the callback was called; returns the status. */
int core_rig_wait_done(struct core_rig *r, struct core_done *done, const char *what);
/* Loads package `name` ("a" or "b"), whether that works or not. */
int core_rig_add(struct core_rig *r, const char *name, struct core_done *done);
void core_rig_add_both(struct core_rig *r);

/* sy_core_infer of the model's highest version, held during the call only. */
int core_rig_send(struct core_rig *r, const char *model, int64_t batch, uint64_t in, uint64_t out,
                  const struct sy_core_infer_options *options, sy_core_infer_done done, void *ctx,
                  uint64_t *id);

/* Starts a request; its input and the memory for its output are in the slab. */
void core_rig_infer(struct core_rig *r, const char *model, int64_t batch,
                    struct core_answer *answer);
/* The same with a deadline, so long from now. Negative: refused; the error is set, the memory released, nobody is called. */
int core_rig_infer_by(struct core_rig *r, const char *model, int64_t batch, sy_ns deadline_ns,
                      struct core_answer *answer);
/* Waits, releases the memory, and checks the output if the request succeeded. Returns the status. */
int core_rig_wait(struct core_rig *r, struct core_answer *answer);
/* One request, from start to end, that must succeed. */
void core_rig_must_infer(struct core_rig *r, const char *model, struct core_answer *answer);

/* The worker in this state, or -1. */
int core_rig_worker_in(struct core_rig *r, enum sy_worker_state state);
void core_rig_await_state(struct core_rig *r, enum sy_worker_state state);
int core_rig_deaths(struct core_rig *r); /* of all workers */
void core_rig_await_deaths(struct core_rig *r, int n);
/* Kills the process of a worker with SIGKILL, from outside. */
void core_rig_kill(struct core_rig *r, int worker);

/* Waits until no request is there, every worker is idle (or trains or is paused), and checks that nothing was lost or is held: scheduler and
 * residency are valid, no model's memory is pinned, no slab memory is taken. */
void core_rig_calm(struct core_rig *r);

/* A training job; *id. Waits until it trains unless `done` is given. */
void core_rig_submit(struct core_rig *r, struct core_done *done, uint64_t *id);
json_t *core_rig_job(struct core_rig *r, uint64_t id); /* from status; caller decrefs */
bool core_rig_job_is(struct core_rig *r, uint64_t id, const char *state);
void core_rig_await_job(struct core_rig *r, uint64_t id, const char *state);
uint64_t core_rig_step(struct core_rig *r, uint64_t id);
void core_rig_await_step(struct core_rig *r, uint64_t id, uint64_t step);
int core_rig_stop(struct core_rig *r, uint64_t id);

#endif
