/* TCP listeners of the front ends. */
#ifndef SY_RUNTIME_FRONT_TCP_LISTEN_H
#define SY_RUNTIME_FRONT_TCP_LISTEN_H

/* Binds "host:port", "[::1]:port" or ":port" (127.0.0.1); port 0: any. *out_fd: close-on-exec, not listening yet, the caller's. *out_port: the port in
 * use. A socket of the service manager on that address is taken instead (service_manager.h). EARG: no such address; EBUSY: the port is taken; EIO. Blocks while a name is resolved. */
int sy_tcp_bind(const char *address, int *out_fd, int *out_port);

#endif
