/* How much of a package's file has arrived while it is being fetched.
 *
 *   COMING ──all bytes have arrived, verified──> WHOLE
 *      └──the source failed, or its bytes are wrong──> FAILED, with the reason
 *
 * The file has its full length from the start; the bytes below `bytes` have arrived and match the hashes of the package's own table.
 * One thread (the event loop's) advances it, any thread may ask. Reference counted. */
#ifndef SY_LOADER_PACKAGE_ARRIVAL_H
#define SY_LOADER_PACKAGE_ARRIVAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum sy_arrival_state { SY_ARRIVAL_IS_COMING, SY_ARRIVAL_IS_WHOLE, SY_ARRIVAL_IS_FAILED };

struct sy_package_arrival {
    _Atomic int n_holders;
    /* bytes of the file from its start; stored with release before readers look at them */
    _Atomic uint64_t bytes;
    _Atomic int state; /* enum sy_arrival_state; FAILED is stored with release behind `why` */
    char why[256];
};

/* State COMING with no bytes, held once. ENOMEM_HOST. */
int sy_arrival_create(struct sy_package_arrival **out);
struct sy_package_arrival *sy_arrival_hold(struct sy_package_arrival *arrival);
void sy_arrival_release(struct sy_package_arrival *arrival); /* NULL is fine */
/* For the writer: whether no other reference is left. */
bool sy_arrival_is_abandoned(const struct sy_package_arrival *arrival);
void sy_arrival_moved(struct sy_package_arrival *arrival, uint64_t bytes);
void sy_arrival_whole(struct sy_package_arrival *arrival);
void sy_arrival_failed(struct sy_package_arrival *arrival, const char *why);

enum sy_arrival_state sy_arrival_state(const struct sy_package_arrival *arrival);
/* Number of bytes that may be read; UINT64_MAX: all (complete, or `arrival` is NULL: the package was never fetched). */
uint64_t sy_arrival_bytes(const struct sy_package_arrival *arrival);

#endif
