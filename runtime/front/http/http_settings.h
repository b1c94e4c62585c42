/* Triton's routes for settings: GET and POST /v2/logging, /v2/trace/setting, /v2/models/{}/trace/setting. Each answers with what holds then. */
#ifndef SY_FRONT_HTTP_SETTINGS_H
#define SY_FRONT_HTTP_SETTINGS_H

#include "runtime/front/http/http_route.h"
#include "runtime/front/request/front.h"

/* `front` outlives the server; its trace_settings are there. ENOMEM_HOST. */
int sy_http_settings_add(struct sy_http_server *server, struct sy_front *front);

#endif
