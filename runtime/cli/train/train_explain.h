/* Time of a training step by layer, and the job's gain from each CPU setting of this machine: measured in processes of their
 * own, in turns. */
#ifndef SY_CLI_TRAIN_EXPLAIN_H
#define SY_CLI_TRAIN_EXPLAIN_H

/* `text`: a normalized job. Prints to stdout; nothing of the job is kept, its snapshots are neither read nor written. Exit status. Must be
 * called before this process has computed anything (it forks). */
int sy_train_explain(const char *text, int n_steps);

#endif
