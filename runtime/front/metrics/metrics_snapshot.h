/* The numbers of /metrics as they are now: taken on the loop, read on any thread. */
#ifndef SY_FRONT_METRICS_SNAPSHOT_H
#define SY_FRONT_METRICS_SNAPSHOT_H

#include "runtime/front/metrics/metrics_body.h"
#include "runtime/front/request/front.h"

/* Everything but the format, which names, and what /proc says. To be given back, also after a failure. ENOMEM_HOST. */
int sy_metrics_snapshot_take(const struct sy_front *front, struct sy_metrics_input *out);
void sy_metrics_snapshot_finish(struct sy_metrics_input *in);

#endif
