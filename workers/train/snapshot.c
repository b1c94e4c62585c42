#include "workers/train/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

#define SUFFIX ".safetensors"

/* ---- names --------------------------------------------------------------------------------------- */

/* The text behind "JOB-STEP.safetensors" in `file`, "" for a snapshot; NULL: it is no file of this job. */
static const char *tail_of(const char *file, const char *job, uint64_t *step)
{
    size_t n = strlen(job);
    char *end;
    if (strncmp(file, job, n) || file[n] != '-' || file[n + 1] < '0' || file[n + 1] > '9')
        return NULL;
    *step = strtoull(file + n + 1, &end, 10);
    return strncmp(end, SUFFIX, strlen(SUFFIX)) ? NULL : end + strlen(SUFFIX);
}

static void path_of(const struct sy_snapshot_layout *l, uint64_t step, char *path)
{
    snprintf(path, SY_SNAPSHOT_PATH_BYTES, "%s/%s-%" PRIu64 SUFFIX, l->folder, l->job_name, step);
}

static int newest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static int open_folder(const struct sy_snapshot_layout *l, DIR **out)
{
    *out = opendir(l->folder);
    return *out ? SY_OK
                : sy_error_set(SY_EIO, "snapshot folder '%s': %s", l->folder, strerror(errno));
}

/* Steps of the job's snapshots, newest first; malloc'd. */
static int list_steps(const struct sy_snapshot_layout *l, uint64_t **steps, int *n)
{
    DIR *dir;
    uint64_t step;
    *steps = NULL;
    *n = 0;
    SY_TRY(open_folder(l, &dir));
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *tail = tail_of(entry->d_name, l->job_name, &step);
        if (!tail || *tail)
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

static void remove_old(const struct sy_snapshot_layout *l)
{
    uint64_t *steps;
    int n;
    char path[SY_SNAPSHOT_PATH_BYTES];
    if (list_steps(l, &steps, &n) < 0)
        return;
    for (int i = SY_SNAPSHOT_KEPT; i < n; i++) {
        path_of(l, steps[i], path);
        unlink(path);
    }
    free(steps);
}

/* Removes files of killed writers: SNAPSHOT.tmp-PID. */
static int remove_temporaries(const struct sy_snapshot_layout *l)
{
    DIR *dir;
    uint64_t step;
    SY_TRY(open_folder(l, &dir));
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *tail = tail_of(entry->d_name, l->job_name, &step);
        if (tail && strncmp(tail, ".tmp", 4) == 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
    return SY_OK;
}

/* ---- one writer a name (N4) -------------------------------------------------------------------------- */

#define CLAIM_WAITS   100 /* a writer that was killed may still hang in its fsync */
#define CLAIM_WAIT_US 20000

/* The name of a socket that is bound while a writer lives: the kernel gives it back with the process, and no file is left. */
static socklen_t claim_name(const struct sy_snapshot_layout *l, const struct stat *folder,
                            struct sockaddr_un *out)
{
    char text[256]; /* names have at most 100 letters */
    int n = snprintf(text, sizeof text, "%ju/%ju/%s", (uintmax_t)folder->st_dev,
                     (uintmax_t)folder->st_ino, l->job_name);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    n = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "switchyard-snapshots-%016" PRIx64,
                 XXH3_64bits(text, (size_t)SY_MIN(n, (int)sizeof text - 1)));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int claim(const struct sy_snapshot_layout *l, int *out)
{
    struct stat folder;
    struct sockaddr_un name;
    if (stat(l->folder, &folder) < 0)
        return sy_error_set(SY_EIO, "snapshot folder '%s': %s", l->folder, strerror(errno));
    socklen_t n_bytes = claim_name(l, &folder, &name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return sy_error_set(SY_EIO, "cannot make a socket: %s", strerror(errno));
    for (int i = 0; bind(fd, (struct sockaddr *)&name, n_bytes) < 0; i++) {
        int error = errno;
        if (error == EADDRINUSE && i < CLAIM_WAITS && usleep(CLAIM_WAIT_US) == 0)
            continue;
        close(fd);
        return error == EADDRINUSE
                   ? sy_error_set(
                         SY_EBUSY,
                         "another job '%s' runs with the snapshot folder '%s'; name one of "
                         "them, or its folder, otherwise",
                         l->job_name, l->folder)
                   : sy_error_set(SY_EIO, "cannot bind a socket: %s", strerror(error));
    }
    *out = fd;
    return SY_OK;
}

static int prepare_folder(const struct sy_snapshot_layout *l, int *claim_fd)
{
    if (mkdir(l->folder, 0777) < 0 && errno != EEXIST)
        return sy_error_set(SY_EIO, "snapshot folder '%s': %s; make it, or name another in the job",
                            l->folder, strerror(errno));
    SY_TRY(claim(l, claim_fd));
    int status = remove_temporaries(l); /* N1 */
    if (status < 0)
        close(*claim_fd);
    return status;
}

/* ---- the header's hash (N2) ------------------------------------------------------------------------ */

static const char *const hashed_keys[] = {"format", "job", "job_hash", "step", "loss", "data_xxh3"};

struct hash_input {
    const char *texts[SY_ARRAY_LEN(hashed_keys)];
    const struct sy_safetensor *tensors; /* in the order of their offsets */
    int n_tensors;
};

static int hash_header(const struct hash_input *in, uint64_t *out)
{
    XXH3_state_t *state = XXH3_createState();
    SY_TRY_ALLOC(state, "no room for a hash");
    XXH3_64bits_reset(state);
    for (size_t i = 0; i < SY_ARRAY_LEN(hashed_keys); i++)
        XXH3_64bits_update(state, in->texts[i], strlen(in->texts[i]) + 1);
    for (int i = 0; i < in->n_tensors; i++) {
        const struct sy_safetensor *t = &in->tensors[i];
        int64_t numbers[4 + SY_MAX_RANK] = {t->dtype, t->rank, (int64_t)t->offset_bytes,
                                            (int64_t)t->bytes};
        for (int d = 0; d < t->rank; d++)
            numbers[4 + d] = t->shape[d];
        XXH3_64bits_update(state, t->name, strlen(t->name) + 1);
        XXH3_64bits_update(state, numbers, sizeof numbers);
    }
    *out = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return SY_OK;
}

/* ---- writing ------------------------------------------------------------------------------------- */

int sy_snapshot_write(const struct sy_snapshot_layout *l, const struct sy_snapshot_info *info,
                      const void *data, char *path)
{
    char step[32], loss[64], job_hash[32], hash[32], header[32];
    uint64_t header_hash;
    snprintf(step, sizeof step, "%" PRIu64, info->step);
    snprintf(loss, sizeof loss, "%.17g", info->loss);
    snprintf(job_hash, sizeof job_hash, "%016" PRIx64, l->job_hash);
    snprintf(hash, sizeof hash, "%016" PRIx64, XXH3_64bits(data, l->data_bytes));
    const struct hash_input in = {
        {SY_SNAPSHOT_FORMAT, l->job_name, job_hash, step, loss, hash}, l->tensors, l->n_tensors};
    SY_TRY(hash_header(&in, &header_hash));
    snprintf(header, sizeof header, "%016" PRIx64, header_hash);
    const struct sy_safetensors_text texts[] = {{"format", SY_SNAPSHOT_FORMAT},
                                                {"job", l->job_name},
                                                {"job_hash", job_hash},
                                                {"step", step},
                                                {"loss", loss},
                                                {"data_xxh3", hash},
                                                {"header_xxh3", header}};
    path_of(l, info->step, path);
    int status = sy_safetensors_write(path, l->tensors, l->n_tensors, texts, SY_ARRAY_LEN(texts),
                                      data, l->data_bytes);
    if (status < 0)
        return sy_error_prefix(status, "snapshot"); /* N3 */
    remove_old(l);
    return SY_OK;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static const char *metadata(const struct sy_safetensors *file, const char *key)
{
    const char *text = sy_safetensors_metadata(file, key);
    return text ? text : "";
}

static int refuse_format(const struct sy_safetensors *file)
{
    return sy_error_set(SY_EUNSUPPORTED,
                        "%s: its format is '%s', this version reads '%s'; go on with the version "
                        "that wrote it, or give the job another snapshot folder",
                        file->path, metadata(file, "format"), SY_SNAPSHOT_FORMAT);
}

/* A later version may hash other keys; its snapshots must not be replaced by those of a run from the beginning. */
static bool is_newer(const struct sy_safetensors *file)
{
    const size_t n = sizeof SY_SNAPSHOT_FORMAT - 2; /* all but the number */
    const char *format = metadata(file, "format");
    return !strncmp(format, SY_SNAPSHOT_FORMAT, n) &&
           strtoul(format + n, NULL, 10) > strtoul(&SY_SNAPSHOT_FORMAT[n], NULL, 10);
}

static int check_header(const struct sy_safetensors *file)
{
    if (is_newer(file))
        return refuse_format(file);
    uint64_t hash, wanted = strtoull(metadata(file, "header_xxh3"), NULL, 16);
    struct hash_input in = {.tensors = file->tensors, .n_tensors = file->n_tensors};
    for (size_t i = 0; i < SY_ARRAY_LEN(hashed_keys); i++)
        in.texts[i] = metadata(file, hashed_keys[i]);
    SY_TRY(hash_header(&in, &hash));
    if (hash != wanted)
        return sy_error_set(SY_ECORRUPT,
                            "%s: its header has hash %016" PRIx64 " and says %016" PRIx64,
                            file->path, hash, wanted);
    return SY_OK;
}

/* The header is intact: a mismatch means another job or model. */
static int check_job(const struct sy_snapshot_layout *l, const struct sy_safetensors *file)
{
    if (strcmp(metadata(file, "format"), SY_SNAPSHOT_FORMAT))
        return refuse_format(file);
    uint64_t hash = strtoull(metadata(file, "job_hash"), NULL, 16);
    if (hash != l->job_hash || strcmp(metadata(file, "job"), l->job_name))
        return sy_error_set(SY_EARG,
                            "%s is of job '%s' with settings %016" PRIx64 ", this is job '%s' with "
                            "settings %016" PRIx64
                            "; give the job another name or snapshot folder, or take back the "
                            "change",
                            file->path, metadata(file, "job"), hash, l->job_name, l->job_hash);
    return SY_OK;
}

static bool is_same_tensor(const struct sy_safetensor *a, const struct sy_safetensor *b)
{
    return a && a->dtype == b->dtype && a->offset_bytes == b->offset_bytes &&
           a->bytes == b->bytes && a->rank == b->rank &&
           (a->rank == 0 || !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape));
}

static int check_tensors(const struct sy_snapshot_layout *l, const struct sy_safetensors *file)
{
    for (int i = 0; i < l->n_tensors; i++)
        if (!is_same_tensor(sy_safetensors_find(file, l->tensors[i].name), &l->tensors[i]))
            return sy_error_set(SY_EARG,
                                "%s is of another model: tensor '%s' is missing or of another "
                                "size; give the job another name or snapshot folder",
                                file->path, l->tensors[i].name);
    if (file->n_tensors != l->n_tensors)
        return sy_error_set(SY_EARG, "%s is of another model: %d tensors, should be %d", file->path,
                            file->n_tensors, l->n_tensors);
    return SY_OK;
}

static int read_data(const struct sy_snapshot_layout *l, const struct sy_safetensors *file,
                     void *data)
{
    SY_TRY(sy_safetensors_read(file, 0, l->data_bytes, data));
    uint64_t wanted = strtoull(metadata(file, "data_xxh3"), NULL, 16),
             hash = XXH3_64bits(data, l->data_bytes);
    if (hash != wanted)
        return sy_error_set(SY_ECORRUPT,
                            "%s: its tensors have hash %016" PRIx64 ", the header says %016" PRIx64,
                            file->path, hash, wanted);
    return SY_OK;
}

static int read_one(const struct sy_snapshot_layout *l, const char *path,
                    struct sy_snapshot_info *info, void *data)
{
    int status;
    struct sy_safetensors *file = NULL;
    status = sy_safetensors_open(path, &file);
    if (status == SY_EARG ||
        status == SY_EUNSUPPORTED) /* a folder, a type that never was written */
        status = SY_ECORRUPT;
    SY_TRY_GOTO(status, done);
    SY_TRY_GOTO(check_header(file), done);
    SY_TRY_GOTO(check_job(l, file), done);
    SY_TRY_GOTO(check_tensors(l, file), done);
    SY_TRY_GOTO(read_data(l, file, data), done);
    info->step = strtoull(metadata(file, "step"), NULL, 10);
    info->loss = strtod(metadata(file, "loss"), NULL);
done:
    sy_safetensors_close(file);
    return status < 0 ? sy_error_prefix(status, "snapshot") : SY_OK;
}

int sy_snapshot_read_newest(const struct sy_snapshot_layout *l, struct sy_snapshot_info *info,
                            void *data, char *path)
{
    uint64_t *steps;
    int n, status = SY_ENOTFOUND;
    SY_TRY(list_steps(l, &steps, &n));
    for (int i = 0; i < n; i++) {
        path_of(l, steps[i], path);
        status = read_one(l, path, info, data);
        if (status != SY_ECORRUPT && status != SY_EIO && status != SY_ENOTFOUND)
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
    int claim_fd; /* N4 */
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
    int claim_fd;
    SY_TRY(prepare_folder(layout, &claim_fd));
    struct sy_snapshot_writer *w = calloc(1, sizeof *w);
    void *data = malloc(layout->data_bytes + 1);
    pthread_condattr_t attr;
    if (!w || !data)
        goto no_memory;
    w->layout = *layout;
    w->data = data;
    w->claim_fd = claim_fd;
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
    close(claim_fd);
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
    close(w->claim_fd);
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
