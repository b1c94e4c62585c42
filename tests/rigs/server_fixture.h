/* A real server for end-to-end tests: `switchyard serve` in a folder of its own, with small models and a small job. */
#ifndef SY_TESTS_RIGS_SERVER_FIXTURE_H
#define SY_TESTS_RIGS_SERVER_FIXTURE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/client/switchyard.h"

struct fixture {
    char folder[128];  /* removed by fixture_finish */
    char address[200]; /* of the server */
    char log[200];
    pid_t pid;
    sy_client *client;
};

/* Path of a built program: next to the test binaries' folder, or in SY_BUILD. */
const char *fixture_program(const char *name);
/* Folder with the small models, made by make-models once per build. */
const char *fixture_models(void);

void fixture_init(struct fixture *f, const char *name);
void fixture_finish(struct fixture *f); /* stops the server if it runs */

/* Where servers are on a GPU and take seconds to start: a line with the time since the first one, so that a run that was cut off says how far
 * it came. The functions below say theirs. number: 0 where there is none to tell. */
void fixture_say(const char *what, uint64_t number);

/* Starts the server with these arguments besides the socket (NULL-terminated), waits until it is ready, connects. Fails the test otherwise,
 * showing the log. Unless they say something else, a worker is taken for hung after a minute: a busy machine slows workers down. */
void fixture_start(struct fixture *f, const char *const *args);
/* As fixture_start, but the server is expected not to come up: returns its exit status. */
int fixture_start_refused(struct fixture *f, const char *const *args);
int fixture_stop(struct fixture *f);  /* SIGTERM; the exit status */
void fixture_kill(struct fixture *f); /* SIGKILL */
bool fixture_log_has(const struct fixture *f, const char *text);

json_t *fixture_call(struct fixture *f, const char *method,
                     json_t *params); /* fails the test on an error */
json_t *fixture_status(struct fixture *f);
/* status.workers[i].pid of a worker in this state ("training", "running" ...), 0: none. */
pid_t fixture_worker_in(struct fixture *f, const char *state);
/* As above, once there is one: within a minute, or the test fails. */
pid_t fixture_wait_for_worker_in(struct fixture *f, const char *state);
int64_t fixture_counter(struct fixture *f, const char *name);

/* One request with the seeded input `variant` of one of the small models; asserts success unless `status` is not NULL. */
sy_client_result *fixture_infer(struct fixture *f, const char *model, int64_t batch, int variant,
                                int *status);
sy_client_result *fixture_infer_on(sy_client *client, const char *model, int64_t batch, int variant,
                                   int *status);
/* The same with a class, a deadline. */
sy_client_result *fixture_infer_with(sy_client *client, const char *model, int64_t batch,
                                     int variant, const sy_client_options *options, int *status);
bool fixture_same(const sy_client_result *a, const sy_client_result *b);

/* A job on synthetic images that takes `steps` iterations; writes data and job file into the folder; returns its path. */
const char *fixture_make_job(struct fixture *f, const char *name, int steps, int snapshot_every);
uint64_t fixture_submit(struct fixture *f, const char *job_path);
/* Waits until the job has made `step` steps or ended (10 minutes). Returns its step. */
uint64_t fixture_wait_step(struct fixture *f, uint64_t job, uint64_t step);
void fixture_wait_ended(struct fixture *f, uint64_t job);
/* Ends the job where it stands; returns the step of its last snapshot. A job that is to be disturbed has no end of its own, however slow
 * the machine: whoever disturbed it ends it, and compares with one that was left alone for as many steps. */
uint64_t fixture_end_job(struct fixture *f, uint64_t job);
/* Tensors of the snapshot of NAME at STEP (header left out). malloc'd. */
void *fixture_read_snapshot(const struct fixture *f, const char *name, uint64_t step,
                            size_t *bytes);

#endif
