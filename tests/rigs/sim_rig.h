/* Simulations for tests: usual settings, a run that must succeed, a job. */
#ifndef SY_TESTS_RIGS_SIM_RIG_H
#define SY_TESTS_RIGS_SIM_RIG_H

#include "runtime/sim/sim.h"

/* The defaults, but no pauses, a link of 10 GB/s, and the books checked after each event. */
struct sy_sim_config sim_plain(void);
/* The caller frees the report. The test fails if the run does. */
struct sy_sim_report *sim_run(const struct sy_sim_config *c, const struct sy_sim_input *in);
/* A job that keeps the device busy alone, in memory of its own. */
struct sy_sim_job sim_job(const char *name, sy_ns submit_ns, uint64_t n, sy_ns iteration_ns);

#endif
