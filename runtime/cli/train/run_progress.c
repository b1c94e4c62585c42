#include "runtime/cli/train/run_progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define FIRST_NS (2 * SY_NS_PER_S)

void sy_cli_run_progress_begin(struct sy_cli_run_progress *p)
{
    *p = (struct sy_cli_run_progress){isatty(STDERR_FILENO) ? sy_clock_now() + FIRST_NS : 0, false};
}

bool sy_cli_run_progress_is_due(const struct sy_cli_run_progress *p)
{
    return p->next > 0 && sy_clock_now() >= p->next;
}

void sy_cli_run_progress_show(struct sy_cli_run_progress *p, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputc('\r', stderr);
    vfprintf(stderr, format, list);
    fputs("\033[K", stderr);
    fflush(stderr);
    va_end(list);
    p->shown = true;
    p->next = sy_clock_now() + SY_NS_PER_S;
}

void sy_cli_run_progress_end(struct sy_cli_run_progress *p)
{
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->shown = false;
    p->next = 0;
}
