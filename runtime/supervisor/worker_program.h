/* A worker as a process: its program, arguments and environment. */
#ifndef SY_RUNTIME_SUPERVISOR_WORKER_PROGRAM_H
#define SY_RUNTIME_SUPERVISOR_WORKER_PROGRAM_H

#include <sys/types.h>

/* This process's environment with GOMP_SPINCOUNT, unless it is set already: threads of a paused worker must not spin. The caller frees the list, not the
 * strings. NULL: no memory. */
char **sy_worker_program_environment(void);
/* Starts worker `index`, child_fd its control socket, on the cores that this process had at first. *pid is 0 on EIO. */
int sy_worker_program_start(const char *program, char *const *environment, int index, int child_fd,
                            pid_t *pid);
/* Reaps a child that has ended, beside the caller. The kernel may take hundreds of milliseconds for that: it waits for whoever looks at the process in /proc. From
 * now on the number may be another process's. */
void sy_worker_program_reap(pid_t pid);

#endif
