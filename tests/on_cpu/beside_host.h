/* The CUDA engine on the CPU and the host engine, side by side. */
#ifndef SY_TESTS_BESIDE_HOST_H
#define SY_TESTS_BESIDE_HOST_H

#include "tests/rigs/engine_rig.h"

extern const struct rig_engine beside_host, beside_cuda;

/* Whether the host engine has the operator; what its trainer makes of it. */
bool beside_host_has(enum sy_op op);
enum beside_training { BESIDE_NOT_TRAINED, BESIDE_ENDS_GRADIENTS, BESIDE_TRAINED };
enum beside_training beside_host_trains(enum sy_op op);
/* The CUDA engine on the fake mathematics; the test detaches it. */
void beside_attach(void);
/* Of a graph at batch size 3. */
void beside_results(const struct rig_engine *engine, const struct sy_graph *g,
                    const struct rig_tensors *in, struct rig_tensors *out);
/* Of the first results: the norm of the difference by that of a. */
double beside_distance(const struct rig_tensors *a, const struct rig_tensors *b);

#endif
