/* A process beside `switchyard run` that does what a killed one cannot: it ends the script and all that descends from it, or lets a process that joined by
 * itself go on, which
 * would stand for ever if it stood; and it removes the socket.
 *
 *   run ── a pipe ──> keeper sleeps ──┬─ a byte: the script has ended ──> ends
 *                                     └─ the pipe's end: run was killed ──> does it, ends */
#ifndef SY_CLI_SCRIPT_KEEPER_H
#define SY_CLI_SCRIPT_KEEPER_H

#include "runtime/cli/script_process.h"

/* Once p->pid is known; from a process of one thread. EIO. */
int sy_script_keeper_start(struct sy_script_process *p);
/* Waits for its end, which is near. One that was not started is fine. */
void sy_script_keeper_end(struct sy_script_process *p);

#endif
