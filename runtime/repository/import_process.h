/* An import in a process of its own, beside the loop: it pins threads and fills memory, which the server should not inherit.
 *
 * Its error output goes on to ours; the last line of it is the reason when it fails. It has a lower priority than the server.
 * One thread, the event loop's. */
#ifndef SY_REPOSITORY_IMPORT_PROCESS_H
#define SY_REPOSITORY_IMPORT_PROCESS_H

#include "runtime/base/clock.h"

struct event_base;
struct sy_import_process;

/* done(ctx, status, why): from the loop, once; the process is over and freed behind it. EIO: it failed, was killed, or took longer than limit_ns. */
typedef void (*sy_import_done)(void *ctx, int status, const char *why);

/* argv: NULL-terminated, read during the call; argv[0] is the program's name, `program` its file. EIO, ENOMEM_HOST. */
int sy_import_process_start(struct event_base *base, const char *program, const char *const *argv,
                            sy_ns limit_ns, sy_import_done done, void *ctx,
                            struct sy_import_process **out);
/* Kills it and waits for its end; done is not called. NULL is fine. */
void sy_import_process_stop(struct sy_import_process *process);

#endif
