/* Status codes: what every fallible function of Switchyard returns.
 *
 * Negative is failure, zero is success; values are pinned, since they travel on the wire. A code
 * says who can act on it; the words for a person are the error text beside it (see sy_error_set). */
#ifndef SY_BASE_STATUS_H
#define SY_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, value, text) */
#define SY_STATUS_TABLE(X)                       \
    X(OK, 0, "ok")                               \
    X(EARG, -1, "bad argument")                  \
    X(ENOMEM_HOST, -2, "out of host memory")     \
    X(ENOMEM_DEVICE, -3, "out of device memory") \
    X(ENODEVICE, -4, "no such device")           \
    X(EDEVICE, -5, "device failed")              \
    X(EPEER, -6, "peer gone")                    \
    X(EPROTO, -7, "protocol error")              \
    X(EBUSY, -8, "busy")                         \
    X(EDEADLINE, -9, "past deadline")            \
    X(ECORRUPT, -10, "corrupt file")             \
    X(EUNSUPPORTED, -11, "unsupported")          \
    X(ENOTFOUND, -12, "not found")               \
    X(EIO, -13, "input/output error")            \
    X(ECANCELED, -14, "canceled")                \
    X(ETOOBIG, -15, "too large")                 \
    X(EBUG, -16, "internal error")               \
    X(EDENIED, -17, "not allowed")

enum sy_status {
#define X(name, value, text) SY_##name = value,
    SY_STATUS_TABLE(X)
#undef X
};

/* Whether a number from elsewhere is a code: not one that a cast to int would make another. */
static inline bool sy_status_is_known(int64_t status)
{
#define X(name, value, text) || status == (value)
    return false SY_STATUS_TABLE(X);
#undef X
}

/* The code's name ("EARG") and its text ("bad argument"); never NULL, also for unknown codes. */
const char *sy_status_name(int status);
const char *sy_status_text(int status);

/* The calling thread's last error text. A function that fails sets it: what failed, with which
 * numbers, and what to try. sy_error_set returns `status`, so that `return sy_error_set(SY_EARG,
 * "...")` is one line. sy_error_prefix puts context in front of the text that is there. The text is valid
 * until the thread's next failure; at most 511 bytes are kept. */
#define sy_error_set(status, ...)    sy_error_pass((sy_error_write(__VA_ARGS__), (status)))
#define sy_error_prefix(status, ...) sy_error_pass((sy_error_write_prefix(__VA_ARGS__), (status)))
/* The parts of these macros; macros, so that the compiler sees which status is returned. */
void sy_error_write(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sy_error_write_prefix(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline int sy_error_pass(int status)
{
    return status;
}
const char *sy_error_text(void);

#define SY_TRY(expr)                 \
    do {                             \
        int sy_try_status_ = (expr); \
        if (sy_try_status_ < 0)      \
            return sy_try_status_;   \
    } while (0)

/* ENOMEM_HOST with this text if the pointer is NULL. */
#define SY_TRY_ALLOC(pointer, ...)                            \
    do {                                                      \
        if (!(pointer))                                       \
            return sy_error_set(SY_ENOMEM_HOST, __VA_ARGS__); \
    } while (0)

/* Needs an `int status` in scope; the label's code undoes what was done and returns status. */
#define SY_TRY_GOTO(expr, label) \
    do {                         \
        status = (expr);         \
        if (status < 0)          \
            goto label;          \
    } while (0)

/* On a path that is failing already: run, log a failure, go on. */
#define SY_CLEANUP(expr)                                                              \
    do {                                                                              \
        int sy_cleanup_status_ = (expr);                                              \
        if (sy_cleanup_status_ < 0)                                                   \
            sy_log_warn("base", "event=cleanup_failed expr=\"%s\" why=\"%s\"", #expr, \
                        sy_error_text());                                             \
    } while (0)

#endif
