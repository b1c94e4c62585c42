/* The log: one function, one line a call, `time level component key=value ...` on stderr.
 *
 * | level | what it prints                                         | how often              |
 * | error | something that somebody has to act on                  | on failure             |
 * | warn  | a fallback taken, a worker replaced                    | once per cause         |
 * | info  | start, stop, a model loaded, a job admitted            | per rare event         |
 * | debug | state moves, scheduler actions                         | per request, off by default |
 *
 * SY_LOG=error|warn|info|debug sets the level. Nothing is printed on the hot path at info. */
#ifndef SY_BASE_LOG_H
#define SY_BASE_LOG_H

#include <stdbool.h>

enum sy_log_level { SY_LOG_ERROR, SY_LOG_WARN, SY_LOG_INFO, SY_LOG_DEBUG, SY_LOG_N_LEVELS };

/* Levels above it are not shown; of those below, all but what sy_log_show hid. */
extern enum sy_log_level sy_log_threshold;

/* Reads SY_LOG; call once at process start. `process` (copied, 31 bytes) is shown in every line. */
void sy_log_init(const char *process);
void sy_log_write(enum sy_log_level level, const char *component, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A level alone, on or off; moves the threshold as needed. */
void sy_log_show(enum sy_log_level level, bool on);
bool sy_log_shows(enum sy_log_level level);
/* Lines begin with date and time in ISO 8601; else, as at first, with the time. UTC. */
void sy_log_set_dates(bool on);
bool sy_log_has_dates(void);

#define sy_log_at(level, ...)                   \
    do {                                        \
        if ((level) <= sy_log_threshold)        \
            sy_log_write((level), __VA_ARGS__); \
    } while (0)
#define sy_log_error(...) sy_log_at(SY_LOG_ERROR, __VA_ARGS__)
#define sy_log_warn(...)  sy_log_at(SY_LOG_WARN, __VA_ARGS__)
#define sy_log_info(...)  sy_log_at(SY_LOG_INFO, __VA_ARGS__)
#define sy_log_debug(...) sy_log_at(SY_LOG_DEBUG, __VA_ARGS__)

#endif
