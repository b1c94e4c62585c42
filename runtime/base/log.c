#include "runtime/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum sy_log_level sy_log_threshold = SY_LOG_INFO;

static char process_name[32] = "switchyard";
static const char *const level_names[] = {"error", "warn", "info", "debug"};
static bool hidden[SY_LOG_N_LEVELS], has_dates;

void sy_log_init(const char *process)
{
    snprintf(process_name, sizeof process_name, "%s", process);
    const char *wanted = getenv("SY_LOG");
    for (int i = 0; wanted && i <= SY_LOG_DEBUG; i++)
        if (strcmp(wanted, level_names[i]) == 0)
            sy_log_threshold = (enum sy_log_level)i;
}

bool sy_log_shows(enum sy_log_level level)
{
    return level <= sy_log_threshold && !hidden[level];
}

/* Levels that a higher threshold would add stay hidden; a threshold above the hidden level is lowered, so that hidden lines cost nothing. */
void sy_log_show(enum sy_log_level level, bool on)
{
    for (int below = (int)sy_log_threshold + 1; below < (int)level; below++)
        hidden[below] = true;
    hidden[level] = !on;
    if (on && level > sy_log_threshold)
        sy_log_threshold = level;
    while (sy_log_threshold > SY_LOG_ERROR && hidden[sy_log_threshold])
        sy_log_threshold = (enum sy_log_level)(sy_log_threshold - 1);
}

void sy_log_set_dates(bool on)
{
    has_dates = on;
}

bool sy_log_has_dates(void)
{
    return has_dates;
}

void sy_log_write(enum sy_log_level level, const char *component, const char *format, ...)
{
    char line[1024], date[16] = "";
    if (hidden[level])
        return;
    struct timespec now;
    struct tm wall;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &wall);
    if (has_dates)
        strftime(date, sizeof date, "%Y-%m-%dT", &wall);
    int used =
        snprintf(line, sizeof line, "%s%02d:%02d:%02d.%03ld%s %-5s %s[%d] %s ", date, wall.tm_hour,
                 wall.tm_min, wall.tm_sec, now.tv_nsec / 1000000, has_dates ? "Z" : "",
                 level_names[level], process_name, (int)getpid(), component);
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    va_end(args);
    size_t end = (size_t)used + (size_t)(more < 0 ? 0 : more);
    if (end > sizeof line - 2)
        end = sizeof line - 2;
    line[end] = '\n';
    /* One write, so that lines of several processes do not mix; a full stderr loses the line. */
    ssize_t written = write(STDERR_FILENO, line, end + 1);
    (void)written;
}
