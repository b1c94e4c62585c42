/* Stops and continues a script: the gate of its page, its spilled tensors, signals to its group and to processes that left the group. */
#ifndef SY_CLI_SCRIPT_SIGNALS_H
#define SY_CLI_SCRIPT_SIGNALS_H

#include "runtime/cli/script_process.h"

/* Opens (0) or closes (1) the gate, while no worker has it. */
void sy_script_set_gate(struct sy_script_process *p, uint32_t closed);
/* All processes of the script but the keeper. pids: SY_SCRIPT_TREE_MOST. How many. */
int sy_script_list_processes(const struct sy_script_process *p, pid_t *pids);
/* To the script's group; nothing if it has ended. */
void sy_script_signal_group(const struct sy_script_process *p, int number);
/* Signals processes with a group or session of their own one by one. Returns their number; signal 0 only counts. */
int sy_script_signal_strays(const struct sy_script_process *p, int number);
/* SIGSTOP to all, and SIGCONT if it was. */
void sy_script_stop(struct sy_script_process *p);
void sy_script_continue(struct sy_script_process *p);
/* Tensors that were spilled. */
void sy_script_restore_tensors(struct sy_script_process *p);
/* It goes on without a server: tensors back, gate open, not stopped. */
void sy_script_let_go(struct sy_script_process *p);

#endif
