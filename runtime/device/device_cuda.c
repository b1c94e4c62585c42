#include "runtime/device/device_cuda.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/fault.h"
#include "runtime/device/plugin_host.h"

#define PATH_BYTES 4096

/* The link that plans assume if it could not be measured: PCIe 4.0 with 16 lanes, roughly. */
#define ASSUMED_GBPS     25.0
#define ASSUMED_ALPHA_NS 5000

static const struct sy_plugin_host host_functions = {.abi = SY_PLUGIN_ABI,
                                                     .layout_bytes = SY_PLUGIN_LAYOUT_BYTES,
                                                     .error_write = sy_error_write,
                                                     .error_write_prefix = sy_error_write_prefix,
                                                     .error_text = sy_error_text,
                                                     .status_name = sy_status_name,
                                                     .status_text = sy_status_text,
                                                     .log_write = sy_log_write,
                                                     .log_threshold = &sy_log_threshold,
                                                     .fault_check = sy_fault_check,
                                                     .fault_enabled = &sy_fault_enabled};

static pthread_mutex_t plugin_lock = PTHREAD_MUTEX_INITIALIZER;
static void
    *plugin; /* open until the process ends: CUDA's libraries do not survive being unloaded */

/* ---- spec -------------------------------------------------------------------------------------------- */

static bool read_ordinal(const char *text, int *out)
{
    char *end;
    long ordinal = strtol(text, &end, 10);
    *out = (int)ordinal;
    return text[0] >= '0' && text[0] <= '9' && !*end && ordinal <= SY_CUDA_MAX_ORDINAL;
}

/* "GPU-" or "MIG-", then hexadecimal digits where this has an x. */
static bool is_uuid(const char *text)
{
    static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
        return false;
    text += 4;
    for (size_t i = 0; i < sizeof form; i++)
        if (form[i] == 'x' ? !isxdigit((unsigned char)text[i]) : text[i] != form[i])
            return false;
    return true;
}

int sy_device_cuda_parse(const char *kind, struct sy_device_spec *out)
{
    if (strcmp(kind, "cuda") != 0 && strncmp(kind, "cuda:", 5) != 0)
        return 0;
    if (kind[4] == ':' && is_uuid(kind + 5))
        snprintf(out->uuid, sizeof out->uuid, "%s", kind + 5);
    else if (kind[4] == ':' && !read_ordinal(kind + 5, &out->ordinal))
        return sy_error_set(SY_EARG,
                            "device \"%s\": cuda:N takes a number from 0 to %d; cuda:UUID takes "
                            "GPU-UUID or MIG-UUID as nvidia-smi -L lists them",
                            kind, SY_CUDA_MAX_ORDINAL);
    strcpy(out->kind, "cuda");
    out->link_gbps = ASSUMED_GBPS;
    out->link_alpha_ns = ASSUMED_ALPHA_NS;
    return 1;
}

/* ---- loading ----------------------------------------------------------------------------------------- */

/* The folder of the running program; "." when /proc does not say. */
static void program_folder(char *out)
{
    ssize_t n = readlink("/proc/self/exe", out, PATH_BYTES - 1);
    out[n < 0 ? 0 : n] = 0;
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = 0;
    else
        strcpy(out, ".");
}

static int open_file(const char *path)
{
    plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *why = plugin ? NULL : dlerror();
    return plugin ? SY_OK
                  : sy_error_set(SY_ENODEVICE, "cannot load %s: %s", path, why ? why : "no reason");
}

static int open_plugin(void)
{
    static const char *const places[] = {"", "/../lib"};
    char folder[PATH_BYTES], path[PATH_BYTES + 64];
    const char *named = getenv("SY_CUDA_PLUGIN");
    if (named && *named)
        return open_file(named);
    program_folder(folder);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, sizeof path, "%s%s/" SY_CUDA_PLUGIN_FILE, folder, places[i]);
        if (access(path, F_OK) == 0)
            return open_file(path);
    }
    plugin = dlopen(SY_CUDA_PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL);
    if (plugin)
        return SY_OK;
    return sy_error_set(SY_ENODEVICE,
                        SY_CUDA_PLUGIN_FILE " is neither in %s, nor in ../lib from there, nor on "
                                            "the library search path: build it with make CUDA=1, "
                                            "name it in SY_CUDA_PLUGIN, or use --device host",
                        folder);
}

/* The plugin's errors and log are this process's from the first call on, whichever symbol it is that is asked for first. */
static int share_functions(void)
{
    sy_plugin_entry entry = (sy_plugin_entry)dlsym(plugin, SY_CUDA_PLUGIN_ENTRY);
    return !entry || entry(&host_functions) ? SY_OK : SY_ENODEVICE;
}

int sy_device_cuda_symbol(const char *name, void **out)
{
    pthread_mutex_lock(&plugin_lock);
    int status = plugin ? SY_OK : open_plugin();
    if (status == SY_OK)
        status = share_functions();
    pthread_mutex_unlock(&plugin_lock);
    SY_TRY(status);
    *out = dlsym(plugin, name);
    return *out ? SY_OK
                : sy_error_set(SY_ENODEVICE,
                               SY_CUDA_PLUGIN_FILE
                               " has no %s: it is of another version; build it again with make",
                               name);
}

static int open_cuda(const struct sy_device_spec *spec, struct sy_device **out)
{
    void *symbol;
    int status = sy_device_cuda_symbol(SY_CUDA_PLUGIN_ENTRY, &symbol);
    if (status < 0)
        return sy_error_prefix(status, "%s", spec->text);
    const struct sy_device_ops *ops = ((sy_plugin_entry)symbol)(&host_functions);
    return ops ? ops->open(spec, out) : SY_ENODEVICE;
}

/* Only what sy_device_open needs; an open device has the plugin's table. */
const struct sy_device_ops sy_device_cuda_ops = {.kind = "cuda", .open = open_cuda};
