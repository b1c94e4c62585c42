/* Consistent hashing with bounded load: each device has a few points on a ring, a model begins at one place and goes on along the
 * ring to the first device whose load is below the bound.
 *
 * A popular model fills many devices in a row. So that finding the next one does not walk over all of them, there is a bitmap of the
 * points for each load: bit set = the point's device has less than that. A change of a device's load by one changes its
 * points in one bitmap. Bitmaps that are not queried are not kept up to date: the mean load of thousands of devices hardly moves, so that one
 * or two are asked. */
#ifndef SY_SIM_SIM_RING_H
#define SY_SIM_SIM_RING_H

#include <stdint.h>

struct sy_sim_ring;

/* All loads are 0. ENOMEM_HOST. */
int sy_sim_ring_create(int n_devices, int n_models, struct sy_sim_ring **out);
void sy_sim_ring_destroy(struct sy_sim_ring *r); /* NULL is fine */
/* `before` is the load that was set last; they differ by one. */
void sy_sim_ring_set_load(struct sy_sim_ring *r, int device, uint64_t before, uint64_t after);
/* Memory that a change of the device's load begins with. */
const void *sy_sim_ring_places(const struct sy_sim_ring *r, int device);
/* The first device from the model's place on with a load below `bound`; if there is none, the model's first. */
int sy_sim_ring_find(struct sy_sim_ring *r, int model, double bound);

#endif
