/* Bytes of another process's connection through a client's: `switchyard attach`. */
#ifndef SY_RUNTIME_CLIENT_CLIENT_RELAY_H
#define SY_RUNTIME_CLIENT_CLIENT_RELAY_H

#include "runtime/client/switchyard.h"

/* Carries what comes on `fd` (a connected stream socket, made non-blocking, the caller's) to the server and back, until either side ends; blocks for so long.
 * The client's connection is of no use afterwards; its token has been shown already, so that the other process needs none. Holds two buffers of 256 KiB and no
 * message: a side that does not read is not read from either. SY_OK: the other process ended it; EPEER: the server did, with the reason; ENOMEM_HOST. */
int sy_client_relay(sy_client *client, int fd);

#endif
