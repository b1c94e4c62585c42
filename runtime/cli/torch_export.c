#include "runtime/cli/torch_export.h"

#include <dirent.h>
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

extern char **environ;

/* Beside an installed program, or in the source tree of a built one. */
const char *sy_torch_package_folder(const char *file)
{
    static const char *const places[] = {"../share/switchyard/python", "../runtime/python",
                                         "../../runtime/python"};
    static char folder[4160];
    char program[3072], path[4300];
    const char *said = getenv("SWITCHYARD_PYTHON");
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(program, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = 0; i < SY_ARRAY_LEN(places) + 1; i++) {
        if (i == 0 && said)
            snprintf(folder, sizeof folder, "%s/switchyard", said);
        else if (i > 0)
            snprintf(folder, sizeof folder, "%s/%s/switchyard", program, places[i - 1]);
        snprintf(path, sizeof path, "%s/%s", folder, file);
        if ((i > 0 || said) && access(path, R_OK) == 0)
            return folder;
    }
    return NULL;
}

bool sy_torch_export_names(const char *model, struct sy_torch_export *e)
{
    size_t n = strlen(model);
    const char *colon = strstr(model, ".py:");
    *e = (struct sy_torch_export){0};
    if (n > 4 && strcmp(model + n - 4, ".pt2") == 0) {
        snprintf(e->nominal, sizeof e->nominal, "%s", model);
        snprintf(e->source, sizeof e->source, "%s", model);
        return true;
    }
    if (!colon || !colon[4] || strchr(colon, '/'))
        return false;
    snprintf(e->source, sizeof e->source, "%.*s", (int)(colon - model + 3), model);
    const char *slash = strrchr(e->source, '/');
    int folder = slash ? (int)(slash - e->source) + 1 : 0;
    snprintf(e->nominal, sizeof e->nominal, "%.*s%s.onnx", folder, e->source, colon + 4);
    return true;
}

/* argv: of the helper; the third names the model, the fourth the file to write. */
static int run_helper(char **argv)
{
    pid_t pid;
    int status, error = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
    if (error)
        return sy_error_set(SY_ENOTFOUND, "%s: %s; --python names an interpreter with PyTorch",
                            argv[0], strerror(error));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        return sy_error_set(SY_EUNSUPPORTED, "%s: the export was killed by signal %d (%s)", argv[2],
                            WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) != 0)
        return sy_error_set(SY_EUNSUPPORTED, "%s: PyTorch's export to ONNX failed", argv[2]);
    return access(argv[3], R_OK) == 0
               ? SY_OK
               : sy_error_set(SY_EUNSUPPORTED, "%s: ended before it had exported a model", argv[2]);
}

int sy_torch_export_run(const char *model, const char *python, struct sy_torch_export *e)
{
    char script[4300];
    const char *folder = sy_torch_package_folder("_torch_export.py");
    if (!folder)
        return sy_error_set(SY_ENOTFOUND, "the Python package is not found; SWITCHYARD_PYTHON "
                                          "names the folder that holds 'switchyard'");
    snprintf(e->folder, sizeof e->folder, "/tmp/switchyard-export-XXXXXX");
    if (!mkdtemp(e->folder)) {
        e->folder[0] = '\0';
        return sy_error_set(SY_EIO, "a folder in /tmp: %s", strerror(errno));
    }
    snprintf(script, sizeof script, "%s/_torch_export.py", folder);
    snprintf(e->onnx, sizeof e->onnx, "%s/model.onnx", e->folder);
    char *argv[] = {(char *)(python ? python : "python3"), script, (char *)model, e->onnx, NULL};
    return run_helper(argv);
}

void sy_torch_export_finish(struct sy_torch_export *e)
{
    struct dirent *entry;
    char path[512];
    DIR *folder = e->folder[0] ? opendir(e->folder) : NULL;
    while (folder && (entry = readdir(folder))) {
        snprintf(path, sizeof path, "%s/%s", e->folder, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(path);
    }
    if (folder)
        closedir(folder);
    if (e->folder[0])
        rmdir(e->folder);
    e->folder[0] = '\0';
}
