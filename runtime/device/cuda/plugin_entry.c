/* Takes the place of status.c, log.c and fault.c in the plugin: the same functions, on the process's own state. Before the
 * plugin is opened nothing here runs. */
#include "runtime/device/cuda/plugin_entry.h"

#include <stdarg.h>
#include <stdio.h>

#include "runtime/base/fault.h"
#include "runtime/device/cuda/cuda_device.h"

static const struct sy_plugin_host *host;

enum sy_log_level sy_log_threshold = SY_LOG_INFO;
bool sy_fault_enabled;

void sy_error_write(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    host->error_write("%s", text);
}

void sy_error_write_prefix(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    host->error_write_prefix("%s", text);
}

const char *sy_error_text(void)
{
    return host->error_text();
}

const char *sy_status_name(int status)
{
    return host->status_name(status);
}

const char *sy_status_text(int status)
{
    return host->status_text(status);
}

void sy_log_write(enum sy_log_level level, const char *component, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    host->log_write(level, component, "%s", text);
}

int sy_fault_check(const char *op)
{
    return host->fault_check(op);
}

const struct sy_device_ops *sy_cuda_device_ops_v1(const struct sy_plugin_host *of_process)
{
    if (of_process->abi != SY_PLUGIN_ABI || of_process->layout_bytes != SY_PLUGIN_LAYOUT_BYTES) {
        of_process->error_write("the CUDA plugin is of another build of switchyard (%u.%u, not "
                                "%u.%u): build both again with make",
                                SY_PLUGIN_ABI, SY_PLUGIN_LAYOUT_BYTES, of_process->abi,
                                of_process->layout_bytes);
        return NULL;
    }
    host = of_process;
    sy_log_threshold = *of_process->log_threshold;
    sy_fault_enabled = *of_process->fault_enabled;
    return &sy_cuda_ops;
}
