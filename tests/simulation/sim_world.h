/* What is around the simulated runtime: workers, storage, clients. All that happens is drawn from one seed.
 *
 *   sim_os.c       clock, processes, the loop's wait     sim_worker.c   workers: they answer, late, twice, wrongly, die, hang
 *   sim_storage.c  the reader of packages                sim_clients.c  requests, jobs, models and rules that come and go; what must hold
 *   sim_front.c    HTTP and RPC servers, and clients on connections to them
 *
 * What fails says what, ends the process, and prints the last things that happened. */
#ifndef SY_TESTS_SIMULATION_SIM_WORLD_H
#define SY_TESTS_SIMULATION_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/shared_memory.h"
#include "runtime/core/core_internal.h"
#include "tests/rigs/core_rig.h"
#include "tests/simulation/sim_os.h"

#define SIM_MAX_WORKERS 6
#define SIM_MAX_GROUPS  16
#define SIM_MAX_PARTS   64
#define SIM_MAX_JOBS    256 /* of one walk */
#define SIM_PERSISTENT  16384u
#define SIM_EPHEMERAL   8192u
#define SIM_NEVER       UINT64_MAX

struct sim_group {
    uint64_t offset, image_offset, word;
    int32_t after_group;
    bool resident, direct, is_here;
};

struct sim_worker {
    int pid, fd;                        /* pid 0: there is none */
    bool greeted, hangs, closed, exits; /* exits: it is gone at wake_ns */
    int wait_status;
    sy_ns wake_ns; /* SIM_NEVER: when it is sent something */
    /* its run */
    bool loaded, told_to_run, fetches;
    uint64_t run, model, batch, n_parts, workspace, first_layer;
    int n_groups, n_computed;
    struct sim_group groups[SIM_MAX_GROUPS];
    uint64_t inputs[SIM_MAX_PARTS], outputs[SIM_MAX_PARTS];
    /* its job */
    uint64_t job, step, total, persistent, ephemeral;
    bool started, has_turn, stops, leaves, is_out, goes_out, comes_back;
    uint32_t announced;
};

/* What is outside of workers, and outlives them. */
struct sim_job {
    bool has_spill, has_snapshot;
    uint64_t spilled_step, snapshot_step, total;
};

struct sim_request;
struct sim_call;

struct sim_world {
    uint64_t seed, random;
    struct core_rig rig;
    struct sy_core *core;
    bool unified, calm;    /* calm: no faults, and no client begins anything any more */
    uint64_t fault_one_in; /* of all that workers do; 0: none */
    struct sy_shared_memory pool_memory;
    unsigned char *pool; /* as workers see it */
    struct sim_worker workers[SIM_MAX_WORKERS];
    int n_workers;
    struct sim_job jobs[SIM_MAX_JOBS];
    struct sim_request *requests;
    struct sim_call *calls;
    sy_ns client_ns; /* when one does something next */
    uint64_t n_events, n_faults, n_answered, n_failed, n_canceled, n_refused, n_steps;
    uint64_t n_front_answered[3]; /* HTTP, RPC, gRPC */
    uint64_t n_front_refused, n_front_ended, n_front_left, n_front_continuations;
    uint64_t slab_bytes; /* that requests hold, but those of connections */
    bool has_front;      /* clients on connections, too (sim_front.h) */
    bool was_refused;    /* what a client asked last */
    bool over;
};

extern struct sim_world sim;

uint64_t sim_draw(uint64_t n); /* 0 .. n - 1 */
/* A time, drawn: seldom much more than usual_ns. */
sy_ns sim_time(sy_ns usual_ns);
/* One line of the trace. */
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Something does not hold: the trace, and the end. */
_Noreturn void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define SIM_CHECK(what, ...)       \
    do {                           \
        if (!(what))               \
            sim_fail(__VA_ARGS__); \
    } while (0)

/* What lies where a group does. */
uint64_t sim_group_mark(int model, int group);

/* sim_worker.c */
void sim_worker_spawned(void *world, int pid, int index, int fd);
void sim_worker_killed(void *world, int pid);
sy_ns sim_workers_next(void);
void sim_workers_happen(void);    /* of the one that is next */
void sim_workers_were_sent(void); /* something */
void sim_workers_beat(void);
/* sim_storage.c */
sy_ns sim_storage_next(void);
void sim_storage_happen(void);
/* sim_clients.c */
void sim_clients_begin(void);    /* models are loaded */
void sim_client_acts(void);      /* one of them, now */
void sim_clients_look(void);     /* whatever must hold between two events */
bool sim_clients_have_all(void); /* every answer */
void sim_clients_finish(void);   /* forgets them; each had exactly one answer */
void sim_clients_end_jobs(void);
void sim_clients_remove_models(void);

#endif
