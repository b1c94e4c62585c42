#include "workers/train/ranks.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/status.h"

#define LIBRARY "libswitchyard-mpi.so"

/* In the program's folder, in the lib folder next to it, or in the system's search path. */
static void *open_library(char *why, size_t bytes)
{
    static const char *const places[] = {"/" LIBRARY, "/../lib/" LIBRARY};
    char self[PATH_MAX], path[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    void *library = NULL;
    char *slash;
    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    for (size_t i = 0; slash && !library && i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%.*s%s", (int)(slash - self), self, places[i]);
        if (access(path, F_OK) == 0)
            library = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* MPI opens parts of itself */
    }
    if (!library)
        library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        snprintf(why, bytes, "%s", dlerror());
    return library;
}

static int fail(int status, const char *text)
{
    return sy_error_set(status, "%s", text);
}

int sy_ranks_join_mpi(struct sy_ranks *out)
{
    char why[300];
    void *library = open_library(why, sizeof why);
    sy_ranks_entry entry;
    if (!library)
        return sy_error_set(SY_EUNSUPPORTED,
                            "ranks need MPI, and this build or machine has none (Debian: "
                            "libopenmpi-dev to build, openmpi-bin to run): %s",
                            why);
    *(void **)&entry = dlsym(library, "sy_ranks_mpi");
    out->ops = entry ? entry(fail) : NULL;
    if (!out->ops || out->ops->bytes != sizeof *out->ops)
        return sy_error_set(SY_EUNSUPPORTED, "%s is of another version than this program", LIBRARY);
    return out->ops->join(&out->rank, &out->n);
}
