/* The socket between a foreign job's `switchyard run`, which owns the script's process, and the worker that stands for it.
 *
 *   run: listens at the path that the job's text names      runtime: connects, for the worker that prepares the job (which may not, W6)
 *   run    -> worker   HELLO with the page's file, STOPPED, ENDED
 *   worker -> run      STOP, CONTINUE, TERMINATE, DETACH
 *
 * SOCK_SEQPACKET, one struct a packet. A connection that closes means: the worker is gone, another may come; or run is gone, the job is over. */
#ifndef SY_WORKERS_TORCH_SCRIPT_LINK_H
#define SY_WORKERS_TORCH_SCRIPT_LINK_H

#include <stdint.h>

#define SY_SCRIPT_LINK_VERSION 1

enum sy_script_word {
    SY_SCRIPT_HELLO = 1,     /* value: SY_SCRIPT_LINK_VERSION */
    SY_SCRIPT_STOPPED = 2,   /* the process group is stopped */
    SY_SCRIPT_ENDED = 3,     /* value: as of waitpid; -1: not known */
    SY_SCRIPT_STOP = 4,      /* SIGSTOP: it did not park in time */
    SY_SCRIPT_CONTINUE = 5,  /* SIGCONT */
    SY_SCRIPT_TERMINATE = 6, /* the job is canceled: SIGTERM, and SIGKILL after the script's time */
    SY_SCRIPT_DETACH = 7     /* the server stops: the script goes on by itself */
};

struct sy_script_packet {
    uint32_t word; /* enum sy_script_word */
    int32_t value;
};

/* Listens at `path` (a new socket file). The descriptor is the caller's. EARG for a path that is too long, EIO. */
int sy_script_listen(const char *path, int *out_fd);
/* file: goes along; -1: none. EPEER if the other side is gone. Does not block. */
int sy_script_send(int fd, enum sy_script_word word, int value, int file);
/* Waits for a packet for timeout_ms at most: 1 with *packet (and *file, the caller's then, if the packet brought one, else -1), 0 without, EPEER when the
 * other side is gone, EPROTO. */
int sy_script_receive(int fd, int timeout_ms, struct sy_script_packet *packet, int *file);

#endif
