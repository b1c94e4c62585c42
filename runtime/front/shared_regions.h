/* System shared memory of clients, as Triton's extension has it: a client makes a POSIX shared memory object, registers it by name, and its requests say where in it
 * their tensors lie.
 *
 * SM1: names are the server's, for all clients. A request that was begun keeps what it uses, whatever is unregistered meanwhile (core.h).
 * SM2: the client may truncate the file: it is never accessed through a mapping here, and a worker that finds it shorter fails that request only.
 * SM3: only clients on this machine register.
 *
 * One thread, the event loop's. */
#ifndef SY_RUNTIME_FRONT_SHARED_REGIONS_H
#define SY_RUNTIME_FRONT_SHARED_REGIONS_H

#include <jansson.h>
#include <stdint.h>

#include "runtime/front/request/front.h"

#define SY_SHARED_REGIONS_MOST 512

struct sy_shared_regions;

int sy_shared_regions_create(struct sy_front *front, struct sy_shared_regions **out);
void sy_shared_regions_destroy(struct sy_shared_regions *regions); /* NULL is fine */

/* EDENIED: a client of another machine has no shared memory objects here. */
int sy_shared_regions_check_client(bool is_local);
/* key: of shm_open. EARG: a name that is there already, or none; nothing to map; ENOTFOUND: no such object; EUNSUPPORTED: the core shares no memory; EBUSY:
 * too many, or the object is under another process's lease. Never waits for that process. */
int sy_shared_regions_register(struct sy_shared_regions *regions, const char *name, const char *key,
                               uint64_t offset, uint64_t bytes);
/* name NULL: all. One that is not there is fine, as in Triton. */
void sy_shared_regions_unregister(struct sy_shared_regions *regions, const char *name);
/* [{"name", "key", "offset", "byte_size"}]; name NULL: all. ENOTFOUND. */
int sy_shared_regions_status(struct sy_shared_regions *regions, const char *name, json_t **out);

/* The core's *region, and the offset *at in it, of bytes [offset, offset + bytes) of a name; *at may be any number. EARG: no such name, or outside of it. */
int sy_shared_regions_find(struct sy_shared_regions *regions, const char *name, uint64_t offset,
                           uint64_t bytes, uint64_t *region, uint64_t *at);

/* Bytes of a region for copies beside the loop: stays usable when the region is unregistered. */
struct sy_region_file {
    int fd;
    uint64_t at;           /* in the object */
    uint64_t least_object; /* bytes that the object had when it was registered; at least */
};
/* EARG: no such name, or outside of it; EBUSY: no file descriptors. close once. */
int sy_region_file_open(struct sy_shared_regions *regions, const char *name, uint64_t offset,
                        uint64_t bytes, struct sy_region_file *out);
/* n bytes, at most those that it was opened with. Any thread. EIO: the object is shorter than it was registered. */
int sy_region_file_read(const struct sy_region_file *file, void *to, uint64_t n);
int sy_region_file_write(const struct sy_region_file *file, const void *from, uint64_t n);
void sy_region_file_close(struct sy_region_file *file);

#endif
