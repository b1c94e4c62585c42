/* The operating system as the simulated runtime sees it: a clock that moves only when nothing else can happen, processes that are objects of this one, and
 * the wait of the event loop, which is where everything outside of the runtime happens.
 *
 *   event loop ──epoll_wait──> something is ready? ──yes──> in a drawn order, to the loop
 *                                      └─no─> the clock jumps to what comes next: a timer of the loop, or sim_world's next thing, which is done
 *
 * The names of the C library that the runtime calls for these (clock_gettime, epoll_wait, posix_spawn, waitpid, kill, pidfd_open ...) are defined here, and
 * lead to the C library's own where no simulation is open. Sockets, shared memory and files are real. One thread. */
#ifndef SY_TESTS_SIMULATION_SIM_OS_H
#define SY_TESTS_SIMULATION_SIM_OS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/clock.h"

#define SIM_OS_CORES     4
#define SIM_OS_PROCESSES 16 /* that live, or are not reaped, at one time */

struct sim_os_ops {
    /* The runtime has started a process: the other end of its control socket, which is the caller's from now on. */
    void (*spawned)(void *ctx, int pid, int index, int fd);
    void (*killed)(void *ctx, int pid); /* SIGKILL; sim_os_exit when it is gone */
    sy_ns (*next)(
        void *
            ctx); /* when something happens next outside of the runtime; UINT64_MAX: nothing any more */
    void (*happen)(void *ctx); /* it is that time; once */
    void (*look)(void *ctx);   /* the loop waits: whatever must hold then */
    void (*spins)(void *ctx);  /* something is ready turn after turn, and nobody takes it */
    uint64_t (*draw)(void *ctx, uint64_t n); /* 0 .. n - 1 */
    void *ctx;
};

void sim_os_open(const struct sim_os_ops *ops);
void sim_os_close(void);
sy_ns sim_os_now(void);
/* Since it was asked last: the runtime has sent a message to some worker. */
bool sim_os_was_sent(void);
void sim_os_pass(sy_ns ns); /* so long something took */
/* The process is gone; its parent may reap it. wait_status as waitpid says it. */
void sim_os_exit(int pid, int wait_status);
int sim_os_n_processes(void);  /* not reaped yet */
uint64_t sim_os_n_turns(void); /* of the loop */

#endif
