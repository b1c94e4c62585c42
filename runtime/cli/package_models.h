/* Simulated models from real packages: their bytes, what was profiled, and how the planner groups them. */
#ifndef SY_CLI_PACKAGE_MODELS_H
#define SY_CLI_PACKAGE_MODELS_H

#include "loader/plan/plan.h"
#include "runtime/sim/sim.h"

/* All packages under `folder`, by name: FILE.sypkg, or NAME/VERSION/model.sypkg with the highest VERSION. Groups are those into which a
 * server cuts a model for `link`, and the speed and the pool of `kind`. *out is the caller's to free. ENOTFOUND: none there; EARG: one was
 * not profiled. */
int sy_cli_package_models(const char *folder, const struct sy_link_cost *link,
                          const struct sy_sim_kind *kind, struct sy_sim_model **out, int *n);

#endif
