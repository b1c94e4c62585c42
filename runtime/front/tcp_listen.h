/* TCP listeners of the front ends, and where their clients are. */
#ifndef SY_RUNTIME_FRONT_TCP_LISTEN_H
#define SY_RUNTIME_FRONT_TCP_LISTEN_H

#include <stdbool.h>

/* Binds "host:port", "[::1]:port" or ":port" (127.0.0.1); port 0: any. *out_fd: close-on-exec, not listening yet, the caller's. *out_port: the port in
 * use. A socket of the service manager on that address is taken instead (service_manager.h). EARG: no such address; EBUSY: the port is taken; EIO. Blocks while a name is resolved. */
int sy_tcp_bind(const char *address, int *out_fd, int *out_port);
/* Whether the other end of a connected TCP socket is on this machine: a loopback address, or the one that it was connected to. False: closed, or no TCP. */
bool sy_tcp_is_local(int fd);

#endif
