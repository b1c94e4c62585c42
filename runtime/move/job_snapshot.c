#include "runtime/move/job_snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "loader/package/safetensors.h"
#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/move/job_state.h"

#define SUFFIX   ".safetensors"
#define MOST_OLD 16 /* a job keeps two; others were put there by hand */

int sy_job_snapshot_path(const char *folder, const char *name, uint64_t step,
                         char path[SY_JOB_SNAPSHOT_PATH_BYTES])
{
    int n = snprintf(path, SY_JOB_SNAPSHOT_PATH_BYTES, "%s/%s-%" PRIu64 SUFFIX, folder, name, step);
    return n < SY_JOB_SNAPSHOT_PATH_BYTES
               ? SY_OK
               : sy_error_set(SY_EARG, "a snapshot folder's name of %zu bytes", strlen(folder));
}

static int check_words(const struct sy_safetensors *file, const char *name, uint64_t step)
{
    const char *job = sy_safetensors_metadata(file, "job");
    const char *at = sy_safetensors_metadata(file, "step");
    if (!job || strcmp(job, name) != 0 || !at || strtoull(at, NULL, 10) != step)
        return sy_error_set(
            SY_ECORRUPT, "%s is of job '%.100s' at step %.20s, and should be of '%s' at %" PRIu64,
            file->path, job ? job : "", at ? at : "?", name, step);
    return SY_OK;
}

static int check_data(const struct sy_safetensors *file, const _Atomic bool *stop)
{
    const char *text = sy_safetensors_metadata(file, "data_xxh3");
    uint64_t hash;
    SY_TRY(
        sy_job_state_hash(file->fd, file->path, file->data_offset, file->data_bytes, stop, &hash));
    if (!text || strtoull(text, NULL, 16) != hash)
        return sy_error_set(SY_ECORRUPT,
                            "%s: its tensors have hash %016" PRIx64 ", the header says %.20s",
                            file->path, hash, text ? text : "nothing");
    return SY_OK;
}

int sy_job_snapshot_check(const char *path, const char *name, uint64_t step,
                          const _Atomic bool *stop, struct sy_job_snapshot *out)
{
    struct sy_safetensors *file = NULL;
    int status = sy_safetensors_open(path, &file);
    if (status == SY_EARG || status == SY_EUNSUPPORTED)
        status = SY_ECORRUPT;
    SY_TRY_GOTO(status, done);
    SY_TRY_GOTO(check_words(file, name, step), done);
    SY_TRY_GOTO(check_data(file, stop), done);
    out->step = step;
    out->bytes = file->data_offset + file->data_bytes;
    SY_TRY_GOTO(sy_job_state_hash(file->fd, path, 0, out->bytes, stop, &out->xxh3), done);
done:
    sy_safetensors_close(file);
    return status;
}

/* Steps, newest first, at most MOST_OLD; the number of them. */
static int list_steps(DIR *folder, const char *name, uint64_t steps[MOST_OLD])
{
    size_t length = strlen(name);
    int n = 0;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        const char *rest = entry->d_name + length;
        char *end;
        if (strncmp(entry->d_name, name, length) != 0 || rest[0] != '-' || rest[1] < '0' ||
            rest[1] > '9')
            continue;
        uint64_t step = strtoull(rest + 1, &end, 10);
        int at = SY_MIN(n, MOST_OLD - 1);
        if (strcmp(end, SUFFIX) != 0 || (n == MOST_OLD && step <= steps[at]))
            continue;
        for (; at > 0 && steps[at - 1] < step; at--)
            steps[at] = steps[at - 1];
        steps[at] = step;
        n = SY_MIN(n + 1, MOST_OLD);
    }
    return n;
}

int sy_job_snapshot_find(const char *folder, const char *name, const _Atomic bool *stop,
                         struct sy_job_snapshot *out)
{
    uint64_t steps[MOST_OLD];
    char path[SY_JOB_SNAPSHOT_PATH_BYTES];
    DIR *entries = opendir(folder);
    if (!entries && errno == ENOENT)
        return sy_error_set(SY_ENOTFOUND, "there is no snapshot folder '%s'", folder);
    if (!entries)
        return sy_error_set(SY_EIO, "snapshot folder '%s': %s", folder, strerror(errno));
    int n = list_steps(entries, name, steps), status = SY_ENOTFOUND;
    closedir(entries);
    if (n == 0)
        return sy_error_set(SY_ENOTFOUND, "there is no snapshot of '%s' in %s", name, folder);
    for (int i = 0; i < n; i++) {
        SY_TRY(sy_job_snapshot_path(folder, name, steps[i], path));
        status = sy_job_snapshot_check(path, name, steps[i], stop, out);
        if (status == SY_OK || status == SY_ECANCELED)
            return status;
        sy_log_warn("move", "event=bad_snapshot why=\"%s\"", sy_error_text());
    }
    return sy_error_prefix(SY_ECORRUPT, "no snapshot of '%s' is good", name);
}
