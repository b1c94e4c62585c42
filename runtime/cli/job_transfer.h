/* A suspended job between a server and a file, or two servers (runtime/front/rpc/rpc_job.h). Each returns the exit status, after a line on stderr if it is
 * 1. */
#ifndef SY_CLI_JOB_TRANSFER_H
#define SY_CLI_JOB_TRANSFER_H

#include <stdint.h>

#include "runtime/client/switchyard.h"

/* The state of a suspended job into a file, whole or not at all. */
int sy_cli_job_export(sy_client *client, int64_t job, const char *path);
/* A new job from such a file; it goes on at once. */
int sy_cli_job_resume_from(sy_client *client, const char *path);
/* Suspends the job at `from`, hands its state to `to`, lets it go on there, and forgets it at `from`: in this order, so that it never runs in both.
 *
 *   running --suspend--> suspended at `from` --pieces--> suspended at both --resume at `to`--> runs at `to` --cancel--> gone at `from`
 *
 * What fails before it runs at `to` lets it go on at `from` (a job that was suspended or paused already stays so), and leaves nothing at `to`. A paused job
 * starts at `to`, or is refused there, and is paused before its first iteration. Where `to` was lost just when it was to resume, the job stays suspended at
 * `from`, and that is said. address: of `to`, for messages. */
int sy_cli_job_move(sy_client *from, int64_t job, sy_client *to, const char *address);

#endif
