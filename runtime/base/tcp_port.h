/* Ports in addresses from outside: getaddrinfo cuts larger numbers to 16 bits in silence. */
#ifndef SY_RUNTIME_BASE_TCP_PORT_H
#define SY_RUNTIME_BASE_TCP_PORT_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* false: a number below `least` (0 where the system may choose, 1 for a peer's port), or one that no port has. Names of services are getaddrinfo's to know. */
static inline bool sy_tcp_port_is_possible(const char *text, int least)
{
    size_t n = strspn(text, "0123456789");
    return *text && (text[n] || (n <= 5 && atoi(text) >= least && atoi(text) <= 65535));
}

#endif
