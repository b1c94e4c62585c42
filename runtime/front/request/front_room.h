/* Output buffer sizes learned for models with data-dependent shapes; their next requests begin with them. Keyed by content hash, not by name.
 *
 * One thread, the event loop's. */
#ifndef SY_RUNTIME_FRONT_REQUEST_FRONT_ROOM_H
#define SY_RUNTIME_FRONT_REQUEST_FRONT_ROOM_H

#include "runtime/front/request/front.h"

/* `content` is a package's content_hash, `times` what sy_graph_room_size's size was in the end. The one remembered longest is forgotten. */
void sy_front_room_remember(struct sy_front *front, uint64_t content, int64_t times);
int64_t sy_front_room_recall(const struct sy_front *front, uint64_t content); /* 0: nothing */

#endif
