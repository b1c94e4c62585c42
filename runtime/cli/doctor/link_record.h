/* Measurements of a device's link, for a server that restarts soon: FOLDER/link.json. It holds for ten minutes, and as long as this machine
 * runs. */
#ifndef SY_CLI_LINK_RECORD_H
#define SY_CLI_LINK_RECORD_H

#include <stdbool.h>

#include "loader/plan/plan.h"

/* EIO, ENOMEM_HOST. Replaces what was there. */
int sy_link_record_write(const char *folder, const char *device_spec,
                         const struct sy_link_cost *cost);
/* False: nothing is known of this device's link, or no longer, or the file cannot be read. */
bool sy_link_record_read(const char *folder, const char *device_spec, struct sy_link_cost *out);

#endif
