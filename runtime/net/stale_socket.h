/* The file that an earlier listener on a Unix socket left behind. */
#ifndef SY_NET_STALE_SOCKET_H
#define SY_NET_STALE_SOCKET_H

#include <sys/un.h>

/* Removes it if it is a socket on which nobody answers; nothing there is fine. EARG: it is no socket; EBUSY: somebody answers; EIO. */
int sy_net_clear_stale(const struct sockaddr_un *address);

#endif
