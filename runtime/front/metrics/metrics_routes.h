/* GET /metrics. `?only=switchyard` or `?only=triton` for one of the two families of names; both otherwise.
 *
 * M1: the loop takes a copy of the numbers (256 models: well below a millisecond); the text is made on a thread (front->offload).
 * M2: one text is made at a time: requests that come meanwhile wait for the next one, so scrapers in number cost no more than one after the other. At most
 *     SY_METRICS_MOST_WAITING wait, more are answered 503. */
#ifndef SY_FRONT_METRICS_ROUTES_H
#define SY_FRONT_METRICS_ROUTES_H

#include "runtime/front/http/http_route.h"
#include "runtime/front/request/front.h"

#define SY_METRICS_MOST_WAITING 64

struct sy_metrics_routes;

/* `version` of the program, `front`: outlive it. To be added to as many servers as there are (metrics have a port of their own, too). ENOMEM_HOST. */
int sy_metrics_routes_create(struct sy_front *front, const char *version,
                             struct sy_metrics_routes **out);
/* After the servers and the offload are destroyed. NULL is fine. */
void sy_metrics_routes_destroy(struct sy_metrics_routes *routes);
int sy_metrics_routes_add(struct sy_metrics_routes *routes, struct sy_http_server *server);

#endif
