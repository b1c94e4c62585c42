/* Measures a device's link in a process of its own, so that the server neither holds the device's libraries nor pays for
 * their threads. */
#ifndef SY_CLI_LINK_PROBE_H
#define SY_CLI_LINK_PROBE_H

#include "loader/plan/plan.h"

/* Runs `switchyard bench-link --device SPEC --json` and reads its answer. Blocks for about half a second. EIO with the reason
 * when it fails, says nothing sensible, makes no progress for ten seconds, computes for ten, or takes two minutes. */
int sy_link_probe(const char *device_spec, struct sy_link_cost *out);

#endif
