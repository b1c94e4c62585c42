/* Where a training step's time goes, and what each switch of this machine's CPU is worth to the job: measured, in processes of their
 * own, in turns. */
#ifndef SY_CLI_TRAIN_EXPLAIN_H
#define SY_CLI_TRAIN_EXPLAIN_H

/* `text`: a normalized job. Prints to stdout; nothing of the job is kept, its snapshots are neither read nor written. Exit status. Must be
 * called before this process has computed anything (it forks). */
int sy_train_explain(const char *text, int n_steps);

#endif
