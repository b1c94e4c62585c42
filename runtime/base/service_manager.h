/* What a service manager (systemd) hands over and wants to hear: sockets that listen already (sd_listen_fds(3)), and messages about the state of the service
 * (sd_notify(3)). Both protocols are a few lines of environment; libsystemd would bring more than it does.
 *
 * The state is the process's, as the environment is. One thread, before workers are started: they must not inherit it. */
#ifndef SY_RUNTIME_BASE_SERVICE_MANAGER_H
#define SY_RUNTIME_BASE_SERVICE_MANAGER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define SY_SERVICE_MAX_SOCKETS 16

/* Reads LISTEN_PID, LISTEN_FDS, NOTIFY_SOCKET and WATCHDOG_USEC and takes them out of the environment; sockets become close-on-exec. Without a service
 * manager it does nothing. EARG: a variable that is not a number, more than SY_SERVICE_MAX_SOCKETS sockets, or a descriptor that is not a listening stream socket. */
int sy_service_take(void);
/* The inherited socket that listens on this address (Unix: the same path), the caller's from then on; -1: none. */
int sy_service_socket(const struct sockaddr *address, socklen_t n_bytes);
/* EARG, with its address, if an inherited socket was not asked for: its clients would wait for ever. */
int sy_service_check_all_taken(void);
/* Tells the service manager, as "READY=1"; lines are apart by "\n". Without one it does nothing; a message that cannot be sent is lost (it never blocks). */
void sy_service_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Whether the manager stores descriptors across restarts (systemd sets FDSTORE, of systemd 254 and later, to how many). */
bool sy_service_stores(void);
/* Stores a descriptor under a name (FDSTORE=1), which stays the caller's; forgets it. Lost if it cannot be sent. */
void sy_service_store(const char *name, int fd);
void sy_service_forget(const char *name);
/* A descriptor that an earlier process of this service stored, now owned by the caller; -1: none. Descriptors that are not taken are closed with the
 * process. */
int sy_service_stored(const char *name);
/* How often "WATCHDOG=1" must come, in nanoseconds; 0: it need not. */
uint64_t sy_service_watchdog_ns(void);

#endif
