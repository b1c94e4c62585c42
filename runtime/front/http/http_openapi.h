/* GET /v2/openapi.json: what the routes take and answer, from openapi.json beside this file. */
#ifndef SY_FRONT_HTTP_OPENAPI_H
#define SY_FRONT_HTTP_OPENAPI_H

#include "runtime/front/http/http_route.h"

/* ENOMEM_HOST. */
int sy_http_openapi_add(struct sy_http_server *server);

#endif
