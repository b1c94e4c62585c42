/* Slow-down of computing by copies that run at the same time. */
#ifndef SY_DEVICE_COPY_SLOWDOWN_H
#define SY_DEVICE_COPY_SLOWDOWN_H

#include "runtime/device/device.h"

/* How long computing is held up for each byte that is copied to the device meanwhile: the same computing with and without copies beside it,
 * in turns, on what was copied; the median of pairs, at least 0. Where the host computes (host, emulated) copies are made by one of its cores; they
 * run at full speed here, whatever the link's rate, since at a slow link's the difference is lost in what runs differ by. 0 on other devices: a
 * copy engine moves the bytes, and takes of the memory's bandwidth what the link has of it, about a hundredth.
 * Takes 32 MiB for as long as it measures, on the calling thread, which meanwhile keeps off the link's core: `budget_ns`, and up to ten times that
 * where pairs differ so much that their median may be 0.004 ns off. ENOMEM_HOST, or as the device's functions. */
int sy_link_measure_slowdown(struct sy_device *device, sy_ns budget_ns,
                             double *out_lost_ns_per_byte);

#endif
