/* What the files of a simulated worker share: sim_worker.c, sim_worker_job.c. */
#ifndef SY_TESTS_SIMULATION_SIM_WORKER_INTERNAL_H
#define SY_TESTS_SIMULATION_SIM_WORKER_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/clock.h"
#include "runtime/wire/messages.h"
#include "tests/simulation/sim_world.h"

/* ---- sim_worker.c ---- */

int sim_worker_index(const struct sim_worker *w);
struct sy_control_page *sim_worker_page(const struct sim_worker *w);
uint64_t *sim_worker_pool(uint64_t offset);
void sim_worker_say(const struct sim_worker *w, const struct sy_message *m);
bool sim_worker_fails(void); /* chance: whether what it was asked for fails */

/* ---- sim_worker_job.c: what the worker does with each message; times are until it is done ---- */

void sim_worker_job_prepare(struct sim_worker *w, const struct sy_msg_job_prepare *msg);
void sim_worker_job_start(struct sim_worker *w, const struct sy_msg_job_start *msg);
void sim_worker_job_turn(struct sim_worker *w, const struct sy_msg_job_turn *msg);
void sim_worker_job_trip(struct sim_worker *w, const struct sy_message *m);
void sim_worker_job_stop(struct sim_worker *w, uint64_t job, bool leaves);
sy_ns sim_worker_train(struct sim_worker *w);

#endif
