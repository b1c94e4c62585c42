/* A worker that computes nothing and misbehaves on demand, for tests of the runtime's core: it speaks the control protocol, and at
 * a chosen moment does a chosen wrong thing. The test binary is its own worker program: main calls fake_worker_main first. */
#ifndef SY_TESTS_FAKES_FAKE_WORKER_H
#define SY_TESTS_FAKES_FAKE_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/clock.h"

#define FAKE_ROW        4 /* floats a row of the models' input and output; output = 2 * input + 1 */
#define FAKE_WORKSPACE  4096
#define FAKE_PREPARE_NS (40 * SY_NS_PER_MS) /* that a program took, as it says */

/* X(name, the state that the runtime has the worker in then) */
#define FAKE_MOMENT_TABLE(X)        \
    X(NEVER, "")                    \
    X(START, "SPAWNED")             \
    X(WELCOME, "CONFIGURING")       \
    X(MODEL_ADD, "LOADING_MODELS")  \
    X(PREPARE, "IDLE")              \
    X(LOAD, "LOADED")               \
    X(RUN, "RUNNING")               \
    X(GROUP, "RUNNING")             \
    X(CANCEL, "CANCELING")          \
    X(JOB_PREPARE, "PREPARING_JOB") \
    X(JOB_START, "STARTING_JOB")    \
    X(TURN, "WAITING_TURN")         \
    X(STEP, "TRAINING")             \
    X(PREEMPT, "PAUSING")           \
    X(STANDING, "PAUSED")           \
    X(JOB_STOP, "TRAINING")         \
    X(SHUTDOWN, "STOPPING")

enum fake_moment {
#define X(name, state) FAKE_AT_##name,
    FAKE_MOMENT_TABLE(X)
#undef X
        FAKE_N_MOMENTS
};

/* X(name, what) */
#define FAKE_FAULT_TABLE(X)                                              \
    X(DIE, "kills itself")                                               \
    X(EXIT, "exits")                                                     \
    X(STOP, "stops, and its heartbeat with it")                          \
    X(CLOSE, "closes the control socket and lives on")                   \
    X(GARBAGE, "sends random bytes")                                     \
    X(HALF, "sends a message without its last byte")                     \
    X(EMPTY, "sends an empty packet")                                    \
    X(LARGE, "sends a packet that is larger than any message")           \
    X(WRONG_WAY, "sends a message that only the runtime sends")          \
    X(OUT_OF_TURN, "sends a message that does not fit its state")        \
    X(FOREIGN_RUN, "says that a run is done which it does not have")     \
    X(BAD_NUMBER, "sends an id that is out of range")                    \
    X(BAD_STATUS, "ends a run with a status that there is not")          \
    X(BAD_SPANS, "ends a run with more spans than the model has groups") \
    X(OLD_VERSION, "says hello in another version")                      \
    X(FAIL, "answers with EDEVICE: not wrong, but no success either")    \
    X(NO_MEMORY, "answers with ENOMEM_HOST")

enum fake_fault {
#define X(name, what) FAKE_##name,
    FAKE_FAULT_TABLE(X)
#undef X
        FAKE_N_FAULTS
};

/* Shared with all workers. The first part is the test's, the second the workers'. */
struct fake_script {
    _Atomic int moment, fault, left; /* `left` times more */
    _Atomic int worker;              /* only this one; -1: any */
    _Atomic int hold_runs;           /* while not 0, runs do not end */
    _Atomic int phase;               /* enum sy_train_phase that a training worker shows */
    _Atomic uint64_t total_steps, step_us;

    _Atomic uint64_t n_seen[FAKE_N_MOMENTS];
    _Atomic uint64_t n_struck;                     /* faults that happened */
    _Atomic uint64_t n_in_memory, n_from_snapshot; /* JOB_STARTs */
    _Atomic uint64_t n_back_to_back;               /* runs of more than one part */
    _Atomic uint64_t n_absent; /* groups that were not there when a run was told to compute */
};

const char *fake_moment_name(enum fake_moment moment);
const char *fake_fault_name(enum fake_fault fault);

/* The script, in a file of its own that workers find by an environment variable. Fails the test. */
struct fake_script *fake_script_create(const char *path);
void fake_script_destroy(struct fake_script *script, const char *path);

bool fake_is_worker(int argc, char **argv); /* "worker" is the first argument */
int fake_worker_main(char **argv);          /* the exit status */

#endif
