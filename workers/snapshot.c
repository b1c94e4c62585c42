#include "workers/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

#define SUFFIX           ".safetensors"
#define HEADER_MAX_BYTES (64u << 20)

/* ---- names --------------------------------------------------------------------------------------- */

/* The step in "JOB-STEP.safetensors" followed by `tail`, or false. */
static bool step_of(const char *file, const char *job, const char *tail, uint64_t *step)
{
    size_t n = strlen(job);
    char *end;
    if (strncmp(file, job, n) || file[n] != '-' || file[n + 1] < '0' || file[n + 1] > '9')
        return false;
    *step = strtoull(file + n + 1, &end, 10);
    return !strncmp(end, SUFFIX, strlen(SUFFIX)) && !strcmp(end + strlen(SUFFIX), tail);
}

static void path_of(const struct sy_snapshot_layout *l, uint64_t step, const char *tail, char *path)
{
    snprintf(path, SY_SNAPSHOT_PATH_BYTES, "%s/%s-%" PRIu64 SUFFIX "%s", l->folder, l->job_name,
             step, tail);
}

static int newest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Steps of the job's files that end in `tail`, newest first; malloc'd. */
static int list_steps(const struct sy_snapshot_layout *l, const char *tail, uint64_t **steps,
                      int *n)
{
    *steps = NULL;
    *n = 0;
    DIR *dir = opendir(l->folder);
    if (!dir)
        return sy_error_set(SY_EIO, "snapshot folder '%s': %s", l->folder, strerror(errno));
    uint64_t step;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (!step_of(entry->d_name, l->job_name, tail, &step))
            continue;
        uint64_t *grown = realloc(*steps, (size_t)(*n + 1) * sizeof **steps);
        if (!grown)
            break;
        *steps = grown;
        grown[(*n)++] = step;
    }
    closedir(dir);
    if (*n)
        qsort(*steps, (size_t)*n, sizeof **steps, newest_first);
    return SY_OK;
}

static void remove_from(const struct sy_snapshot_layout *l, const char *tail, int first)
{
    uint64_t *steps;
    int n;
    char path[SY_SNAPSHOT_PATH_BYTES];
    if (list_steps(l, tail, &steps, &n) < 0)
        return;
    for (int i = first; i < n; i++) {
        path_of(l, steps[i], tail, path);
        unlink(path);
    }
    free(steps);
}

int sy_snapshot_prepare_folder(const struct sy_snapshot_layout *l)
{
    if (mkdir(l->folder, 0777) < 0 && errno != EEXIST)
        return sy_error_set(SY_EIO, "snapshot folder '%s': %s; make it, or name another in the job",
                            l->folder, strerror(errno));
    remove_from(l, ".tmp", 0); /* N1 */
    return SY_OK;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static json_t *tensor_entry(const struct sy_snapshot_tensor *t)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->shape.rank; i++)
        json_array_append_new(shape, json_integer(t->shape.dims[i].fixed));
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", "F32", "shape", shape, "data_offsets",
                     (json_int_t)t->offset_bytes, (json_int_t)(t->offset_bytes + t->bytes));
}

/* safetensors wants texts in __metadata__. The header is padded with spaces so that the data is 8-aligned. */
static char *make_header(const struct sy_snapshot_layout *l, const struct sy_snapshot_info *info,
                         uint64_t data_hash)
{
    char step[32], loss[64], job_hash[32], hash[32];
    snprintf(step, sizeof step, "%" PRIu64, info->step);
    snprintf(loss, sizeof loss, "%.17g", info->loss);
    snprintf(job_hash, sizeof job_hash, "%016" PRIx64, l->job_hash);
    snprintf(hash, sizeof hash, "%016" PRIx64, data_hash);
    json_t *root = json_pack("{s:{s:s, s:s, s:s, s:s, s:s, s:s}}", "__metadata__", "format",
                             SY_SNAPSHOT_FORMAT, "job", l->job_name, "job_hash", job_hash, "step",
                             step, "loss", loss, "data_xxh3", hash);
    for (int i = 0; i < l->n_tensors; i++)
        json_object_set_new(root, l->tensors[i].name, tensor_entry(&l->tensors[i]));
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    size_t n = text ? strlen(text) : 0, padded = SY_ALIGN_UP(n, 8);
    char *grown = text ? realloc(text, padded + 1) : NULL;
    if (!grown) {
        free(text);
        return NULL;
    }
    memset(grown + n, ' ', padded - n);
    grown[padded] = 0;
    return grown;
}

static int write_all(int fd, const void *data, uint64_t bytes)
{
    const char *at = data;
    while (bytes) {
        ssize_t n = write(fd, at, SY_MIN(bytes, 1u << 20));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

static int write_file(const char *path, const char *header, const void *data, uint64_t bytes)
{
    uint64_t length = strlen(header);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return sy_error_set(SY_EIO, "snapshot '%s': %s", path, strerror(errno));
    int failed = write_all(fd, &length, sizeof length) < 0 || write_all(fd, header, length) < 0 ||
                 write_all(fd, data, bytes) < 0 || fsync(fd) < 0;
    int why = errno;
    failed |= close(fd) < 0 && !failed;
    return failed ? sy_error_set(SY_EIO, "snapshot '%s' of %" PRIu64 " bytes: %s", path, bytes,
                                 strerror(why))
                  : SY_OK;
}

static int sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed = fd < 0 || fsync(fd) < 0;
    int why = errno;
    if (fd >= 0)
        close(fd);
    return failed ? sy_error_set(SY_EIO, "snapshot folder '%s': %s", folder, strerror(why)) : SY_OK;
}

static int write_and_rename(const struct sy_snapshot_layout *l, const char *header,
                            const void *data, const char *temporary, const char *path)
{
    SY_TRY(write_file(temporary, header, data, l->data_bytes));
    if (rename(temporary, path) < 0)
        return sy_error_set(SY_EIO, "snapshot '%s': %s", path, strerror(errno));
    return sync_folder(l->folder);
}

int sy_snapshot_write(const struct sy_snapshot_layout *l, const struct sy_snapshot_info *info,
                      const void *data, char *path)
{
    char temporary[SY_SNAPSHOT_PATH_BYTES];
    path_of(l, info->step, ".tmp", temporary);
    path_of(l, info->step, "", path);
    char *header = make_header(l, info, XXH3_64bits(data, l->data_bytes));
    if (!header)
        return sy_error_set(SY_ENOMEM_HOST, "snapshot '%s': no room for its header", path);
    int status = write_and_rename(l, header, data, temporary, path);
    free(header);
    if (status < 0)
        unlink(temporary); /* N3 */
    else
        remove_from(l, "", SY_SNAPSHOT_KEPT);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static int read_all(int fd, void *to, uint64_t bytes)
{
    char *at = to;
    while (bytes) {
        ssize_t n = read(fd, at, SY_MIN(bytes, 1u << 24));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

static int read_header(int fd, const char *path, uint64_t *header_bytes, json_t **out)
{
    uint64_t length;
    if (read_all(fd, &length, sizeof length) < 0 || length == 0 || length > HEADER_MAX_BYTES)
        return sy_error_set(SY_ECORRUPT, "snapshot '%s': no header", path);
    char *text = malloc(length);
    if (!text)
        return sy_error_set(SY_ENOMEM_HOST,
                            "snapshot '%s': no room for a header of %" PRIu64 " bytes", path,
                            length);
    int failed = read_all(fd, text, length) < 0;
    *out = failed ? NULL : json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    *header_bytes = sizeof length + length;
    return *out ? SY_OK : sy_error_set(SY_ECORRUPT, "snapshot '%s': its header is damaged", path);
}

static const char *metadata(const json_t *root, const char *key)
{
    const char *text =
        json_string_value(json_object_get(json_object_get(root, "__metadata__"), key));
    return text ? text : "";
}

static bool tensor_matches(const json_t *root, const struct sy_snapshot_tensor *t)
{
    const json_t *entry = json_object_get(root, t->name),
                 *ends = json_object_get(entry, "data_offsets");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    return dtype && !strcmp(dtype, "F32") && json_array_size(ends) == 2 &&
           (uint64_t)json_integer_value(json_array_get(ends, 0)) == t->offset_bytes &&
           (uint64_t)json_integer_value(json_array_get(ends, 1)) == t->offset_bytes + t->bytes;
}

static int check_header(const struct sy_snapshot_layout *l, const char *path, const json_t *root,
                        struct sy_snapshot_info *info)
{
    if (strcmp(metadata(root, "format"), SY_SNAPSHOT_FORMAT))
        return sy_error_set(SY_ECORRUPT, "snapshot '%s': its format is '%s', this reads '%s'", path,
                            metadata(root, "format"), SY_SNAPSHOT_FORMAT);
    uint64_t hash = strtoull(metadata(root, "job_hash"), NULL, 16);
    if (hash != l->job_hash || strcmp(metadata(root, "job"), l->job_name))
        return sy_error_set(SY_EARG,
                            "snapshot '%s' is of job '%s' with settings %016" PRIx64
                            ", this is job '%s' with "
                            "settings %016" PRIx64
                            "; give the job another name or snapshot folder, or take back the "
                            "change",
                            path, metadata(root, "job"), hash, l->job_name, l->job_hash);
    for (int i = 0; i < l->n_tensors; i++)
        if (!tensor_matches(root, &l->tensors[i]))
            return sy_error_set(SY_ECORRUPT,
                                "snapshot '%s': tensor '%s' is missing or of another size", path,
                                l->tensors[i].name);
    info->step = strtoull(metadata(root, "step"), NULL, 10);
    info->loss = strtod(metadata(root, "loss"), NULL);
    return SY_OK;
}

static int check_data(const struct sy_snapshot_layout *l, int fd, const char *path,
                      uint64_t header_bytes, const json_t *root, void *data)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || (uint64_t)st.st_size != header_bytes + l->data_bytes)
        return sy_error_set(SY_ECORRUPT,
                            "snapshot '%s': %" PRIu64 " bytes long, should be %" PRIu64, path,
                            (uint64_t)st.st_size, header_bytes + l->data_bytes);
    if (read_all(fd, data, l->data_bytes) < 0)
        return sy_error_set(SY_EIO, "snapshot '%s': %s", path, strerror(errno));
    uint64_t wanted = strtoull(metadata(root, "data_xxh3"), NULL, 16),
             hash = XXH3_64bits(data, l->data_bytes);
    if (hash != wanted)
        return sy_error_set(SY_ECORRUPT,
                            "snapshot '%s': its tensors have hash %016" PRIx64
                            ", the header says %016" PRIx64,
                            path, hash, wanted);
    return SY_OK;
}

static int read_one(const struct sy_snapshot_layout *l, const char *path,
                    struct sy_snapshot_info *info, void *data)
{
    int status;
    json_t *root = NULL;
    uint64_t header_bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return sy_error_set(SY_EIO, "snapshot '%s': %s", path, strerror(errno));
    SY_TRY_GOTO(read_header(fd, path, &header_bytes, &root), done);
    SY_TRY_GOTO(check_header(l, path, root, info), done);
    SY_TRY_GOTO(check_data(l, fd, path, header_bytes, root, data), done);
done:
    json_decref(root);
    close(fd);
    return status;
}

int sy_snapshot_read_newest(const struct sy_snapshot_layout *l, struct sy_snapshot_info *info,
                            void *data, char *path)
{
    uint64_t *steps;
    int n, status = SY_ENOTFOUND;
    SY_TRY(list_steps(l, "", &steps, &n));
    for (int i = 0; i < n; i++) {
        path_of(l, steps[i], "", path);
        status = read_one(l, path, info, data);
        if (status == SY_OK || status == SY_EARG || status == SY_ENOMEM_HOST)
            break;
        sy_log_warn("train", "event=bad_snapshot why=\"%s\" next=\"%s\"", sy_error_text(),
                    i + 1 < n ? "the one before" : "initial weights");
        status = SY_ENOTFOUND;
    }
    free(steps);
    return status;
}

/* ---- the thread ---------------------------------------------------------------------------------- */

enum writer_state { WRITER_IDLE, WRITER_FULL, WRITER_DONE };

struct sy_snapshot_writer {
    struct sy_snapshot_layout layout;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum writer_state state; /* FULL: the thread owns data; DONE: a result waits for poll */
    bool is_ending;
    struct sy_snapshot_info info;
    struct sy_snapshot_result result;
    void *data;
};

static void write_one(struct sy_snapshot_writer *w, struct sy_snapshot_result *result)
{
    char path[SY_SNAPSHOT_PATH_BYTES];
    result->status = sy_snapshot_write(&w->layout, &w->info, w->data, path);
    result->step = w->info.step;
    if (result->status == SY_OK)
        memcpy(result->path, path, sizeof path); /* else: the last good one's stays */
    else
        snprintf(result->error, sizeof result->error, "%s", sy_error_text());
}

static void *writer_main(void *argument)
{
    struct sy_snapshot_writer *w = argument;
    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (w->state != WRITER_FULL && !w->is_ending)
            pthread_cond_wait(&w->changed, &w->mutex);
        if (w->state != WRITER_FULL)
            break;
        pthread_mutex_unlock(&w->mutex);
        write_one(w, &w->result);
        pthread_mutex_lock(&w->mutex);
        w->state = WRITER_DONE;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

int sy_snapshot_writer_create(const struct sy_snapshot_layout *layout,
                              struct sy_snapshot_writer **out)
{
    struct sy_snapshot_writer *w = calloc(1, sizeof *w);
    void *data = malloc(layout->data_bytes + 1);
    pthread_condattr_t attr;
    if (!w || !data)
        goto no_memory;
    w->layout = *layout;
    w->data = data;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&w->thread, NULL, writer_main, w)) {
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->mutex);
        goto no_memory;
    }
    *out = w;
    return SY_OK;
no_memory:
    free(data);
    free(w);
    return sy_error_set(SY_ENOMEM_HOST,
                        "job '%s': no room for a snapshot of %" PRIu64 " bytes or its thread",
                        layout->job_name, layout->data_bytes);
}

void sy_snapshot_writer_destroy(struct sy_snapshot_writer *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->mutex);
    w->is_ending = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    free(w->data);
    free(w);
}

void *sy_snapshot_writer_room(struct sy_snapshot_writer *w)
{
    pthread_mutex_lock(&w->mutex);
    void *room = w->state == WRITER_IDLE ? w->data : NULL;
    pthread_mutex_unlock(&w->mutex);
    return room;
}

void sy_snapshot_writer_submit(struct sy_snapshot_writer *w, const struct sy_snapshot_info *info)
{
    pthread_mutex_lock(&w->mutex);
    assert(w->state == WRITER_IDLE);
    w->info = *info;
    w->state = WRITER_FULL;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

int sy_snapshot_writer_poll(struct sy_snapshot_writer *w, int wait_ms,
                            struct sy_snapshot_result *out)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    long ns = until.tv_nsec + (long)wait_ms * 1000000L;
    until.tv_sec += ns / 1000000000L;
    until.tv_nsec = ns % 1000000000L;
    pthread_mutex_lock(&w->mutex);
    while (wait_ms > 0 && w->state == WRITER_FULL &&
           pthread_cond_timedwait(&w->changed, &w->mutex, &until) == 0)
        continue;
    int is_done = w->state == WRITER_DONE;
    if (is_done) {
        *out = w->result;
        w->state = WRITER_IDLE;
    }
    pthread_mutex_unlock(&w->mutex);
    return is_done;
}
