#include "runtime/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/printable.h"

static _Thread_local char error_text[512] = "no error";

const char *sy_status_name(int status)
{
    switch (status) {
#define X(name, value, text) \
    case value:              \
        return #name;
        SY_STATUS_TABLE(X)
#undef X
    default:
        return "EUNKNOWN";
    }
}

const char *sy_status_text(int status)
{
    switch (status) {
#define X(name, value, text) \
    case value:              \
        return text;
        SY_STATUS_TABLE(X)
#undef X
    default:
        return "unknown status";
    }
}

void sy_error_write(const char *format, ...)
{
    char text[sizeof error_text]; /* the arguments may be the error text itself */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(error_text, text, strlen(text) + 1);
    sy_printable_make(error_text); /* it may quote a file or a client */
}

void sy_error_write_prefix(const char *format, ...)
{
    char head[sizeof error_text];
    char tail[sizeof error_text];
    va_list args;
    va_start(args, format);
    vsnprintf(head, sizeof head, format, args);
    va_end(args);
    memcpy(tail, error_text, sizeof tail);
    size_t used = strlen(head);
    memcpy(error_text, head, used + 1);
    snprintf(error_text + used, sizeof error_text - used, ": %s", tail);
    sy_printable_make(error_text);
}

const char *sy_error_text(void)
{
    return error_text;
}
