/* One line on the terminal that says how far a long run is; nothing where stderr is no terminal, or the run is short. */
#ifndef SY_CLI_RUN_PROGRESS_H
#define SY_CLI_RUN_PROGRESS_H

#include <stdbool.h>

#include "runtime/base/clock.h"

struct sy_cli_run_progress {
    sy_ns next; /* when it is shown; 0: never */
    bool shown;
};

/* Nothing is ever due if stderr is no terminal. */
void sy_cli_run_progress_begin(struct sy_cli_run_progress *p);
/* Whether it is time to show it: two seconds after the beginning, then each second. */
bool sy_cli_run_progress_is_due(const struct sy_cli_run_progress *p);
void sy_cli_run_progress_show(struct sy_cli_run_progress *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The line goes away again. */
void sy_cli_run_progress_end(struct sy_cli_run_progress *p);

#endif
