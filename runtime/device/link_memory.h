/* Host memory that a link is measured with. */
#ifndef SY_DEVICE_LINK_MEMORY_H
#define SY_DEVICE_LINK_MEMORY_H

#include <stdint.h>

#include "runtime/device/device.h"

/* As a swap's comes: touched, and registered with the device. What cannot be registered costs speed; the log says so. To be dropped before the device is
 * closed. ENOMEM_HOST. */
int sy_link_host_take(struct sy_device *device, uint64_t bytes, void **out);
void sy_link_host_drop(struct sy_device *device, void *host); /* NULL is fine */

#endif
