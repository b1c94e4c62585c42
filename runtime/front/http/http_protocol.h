/* The routes of the Open Inference Protocol (version 2) with Triton's extensions, on an HTTP server. */
#ifndef SY_FRONT_HTTP_PROTOCOL_H
#define SY_FRONT_HTTP_PROTOCOL_H

#include "runtime/front/http/http_server.h"

/* `front` is the server's. */
int sy_http_protocol_add(struct sy_http_server *server, struct sy_front *front);

#endif
