#include "runtime/repository/repository_scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "loader/package/package.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/printable.h"
#include "runtime/base/status.h"

/* ---- paths ------------------------------------------------------------------------------------------------------ */

static int join(char out[PATH_MAX], const char *folder, const char *name)
{
    if (snprintf(out, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return sy_error_set(SY_EARG, "the path %.100s/%.100s is too long", folder, name);
    return SY_OK;
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int version_path(const char *folder, const char *name, int64_t version, const char *file,
                        char out[PATH_MAX])
{
    if (snprintf(out, PATH_MAX, "%s/%s/%" PRId64 "/%s", folder, name, version, file) >= PATH_MAX)
        return sy_error_set(SY_EARG, "the path %.100s/%.100s/%" PRId64 "/%.100s is too long",
                            folder, name, version, file);
    return SY_OK;
}

/* model.onnx may be a folder: then the model in it has the same name, beside its weights' files. */
int sy_repository_source_path(const char *folder, const char *name, int64_t version,
                              const char *model_file, char out[PATH_MAX])
{
    char path[PATH_MAX];

    SY_TRY(version_path(folder, name, version, model_file, path));
    return is_folder(path) ? join(out, path, model_file)
                           : version_path(folder, name, version, model_file, out);
}

int sy_repository_package_path(const char *folder, const char *name, int64_t version,
                               char out[PATH_MAX])
{
    return version_path(folder, name, version, "model" SY_PACKAGE_SUFFIX, out);
}

/* ---- stamps ----------------------------------------------------------------------------------------------------- */

static uint64_t stamp_of(const struct stat *st, const char *name)
{
    uint64_t parts[] = {(uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec,
                        (uint64_t)st->st_size, (uint64_t)st->st_ino};
    uint64_t stamp = XXH3_64bits_withSeed(parts, sizeof parts, XXH3_64bits(name, strlen(name)));

    return stamp ? stamp : 1;
}

uint64_t sy_repository_file_stamp(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 ? stamp_of(&st, "") : 0;
}

static uint64_t path_stamp(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? stamp_of(&st, "") : 0;
}

/* Written by imports. */
static bool is_written_by_import(const char *name)
{
    return strstr(name, SY_PACKAGE_SUFFIX) != NULL;
}

/* Stamp of all files in the folder: a model's weights may lie beside it. Sums, since folders have no order. */
static uint64_t folder_stamp(const char *folder)
{
    DIR *dir = opendir(folder);
    uint64_t sum = 0;
    struct stat st;

    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (!is_written_by_import(entry->d_name) &&
            fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && S_ISREG(st.st_mode))
            sum += stamp_of(&st, entry->d_name);
    if (dir)
        closedir(dir);
    return sum;
}

static uint64_t source_stamp(const char *source)
{
    char folder[PATH_MAX];
    uint64_t stamp;

    if (path_stamp(source) == 0)
        return 0;
    snprintf(folder, sizeof folder, "%s", source);
    *strrchr(folder, '/') = '\0';
    stamp = folder_stamp(folder);
    return stamp ? stamp : 1;
}

/* ---- one model ------------------------------------------------------------------------------------------------- */

/* 0: none. */
static int64_t version_of(const char *name)
{
    char *end;
    long long version;

    if (name[0] < '1' || name[0] > '9')
        return 0;
    errno = 0;
    version = strtoll(name, &end, 10);
    return *end || errno ? 0 : version;
}

static int by_version(const void *a, const void *b)
{
    int64_t x = ((const struct sy_scanned_version *)a)->version,
            y = ((const struct sy_scanned_version *)b)->version;

    return (x > y) - (x < y);
}

/* The highest SY_MOST_VERSIONS. */
static void note_version(struct sy_scanned_model *model, int64_t version)
{
    struct sy_scanned_version *least = &model->versions[0];

    if (model->n_versions < SY_MOST_VERSIONS) {
        model->versions[model->n_versions++].version = version;
        return;
    }
    for (int i = 1; i < model->n_versions; i++)
        if (model->versions[i].version < least->version)
            least = &model->versions[i];
    if (version > least->version)
        least->version = version;
}

static void find_versions(const char *path, struct sy_scanned_model *model)
{
    char child[PATH_MAX];
    DIR *dir = opendir(path);

    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        int64_t version = version_of(entry->d_name);

        if (version > 0 && join(child, path, entry->d_name) == SY_OK && is_folder(child))
            note_version(model, version);
    }
    if (dir)
        closedir(dir);
    qsort(model->versions, (size_t)model->n_versions, sizeof *model->versions, by_version);
}

static int read_config_file(const char *path, char **text, size_t *bytes)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), status;

    if (fd < 0)
        return sy_error_set(SY_EIO, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > SY_CONFIG_MOST_BYTES) {
        close(fd);
        return sy_error_set(SY_EARG, "%s is not a file of at most %u bytes", path,
                            SY_CONFIG_MOST_BYTES);
    }
    *bytes = (size_t)st.st_size;
    *text = malloc(*bytes + 1);
    status = *text ? sy_read_fully(fd, path, *text, *bytes, 0)
                   : sy_error_set(SY_ENOMEM_HOST, "no memory for %s", path);
    close(fd);
    return status;
}

static int read_config(const char *path, struct sy_scanned_model *model)
{
    char file[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    int status;

    SY_TRY(join(file, path, "config.pbtxt"));
    model->config_stamp = path_stamp(file);
    status = access(file, F_OK) == 0 ? read_config_file(file, &text, &bytes) : SY_OK;
    if (status == SY_OK)
        status = sy_model_config_parse(text, bytes, model->name, &model->config);
    if (status == SY_EARG || status == SY_EUNSUPPORTED)
        status = sy_error_prefix(status, "config.pbtxt");
    free(text);
    return status;
}

/* A client's configuration, in the place of the folder's. */
static int take_config(const char *config, struct sy_scanned_model *model)
{
    int status = sy_model_config_parse_json(config, model->name, &model->config);

    return status == SY_EARG || status == SY_EUNSUPPORTED ? sy_error_prefix(status, "config")
                                                          : status;
}

static void stamp_versions(const char *folder, struct sy_scanned_model *model)
{
    char path[PATH_MAX];

    for (int i = 0; model->config && i < model->n_versions; i++) {
        struct sy_scanned_version *v = &model->versions[i];

        if (sy_repository_source_path(folder, model->name, v->version, model->config->model_file,
                                      path) == SY_OK)
            v->source_stamp = source_stamp(path);
        if (sy_repository_package_path(folder, model->name, v->version, path) == SY_OK)
            v->package_stamp = path_stamp(path);
    }
}

static int check_name(const char *name)
{
    if (*name == '.' || *name == '\0' || strchr(name, '/') || strlen(name) >= SY_CORE_MODEL_NAME ||
        name[sy_printable_length(name)])
        return sy_error_set(SY_ENOTFOUND, "'%.100s' is not the name of a model", name);
    return SY_OK;
}

int sy_repository_scan_model(const char *folder, const char *name, const char *config,
                             struct sy_scanned_model *out)
{
    char path[PATH_MAX];

    *out = (struct sy_scanned_model){0};
    SY_TRY(check_name(name));
    SY_TRY(join(path, folder, name));
    if (!is_folder(path))
        return sy_error_set(SY_ENOTFOUND, "there is no model '%.100s' in the repository %s", name,
                            folder);
    out->name = strdup(name);
    SY_TRY_ALLOC(out->name, "no memory for a model");
    find_versions(path, out);
    out->status = config ? take_config(config, out) : read_config(path, out);
    if (out->status < 0)
        snprintf(out->error, sizeof out->error, "%s", sy_error_text());
    stamp_versions(folder, out);
    return SY_OK;
}

void sy_scanned_model_finish(struct sy_scanned_model *model)
{
    free(model->name);
    sy_model_config_free(model->config);
    *model = (struct sy_scanned_model){0};
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

static void ignore(struct sy_scan *scan, const char *name)
{
    size_t used = strlen(scan->ignored);
    char shown[80];

    if (name[0] == '.' || used + sizeof shown + 2 > sizeof scan->ignored)
        return;
    snprintf(shown, sizeof shown, "%s", name);
    sy_printable_make(shown);
    snprintf(scan->ignored + used, sizeof scan->ignored - used, "%s%s", used ? ", " : "", shown);
}

static int add_model(struct sy_scan *scan, const char *folder, const char *name)
{
    struct sy_scanned_model model;
    int status = sy_repository_scan_model(folder, name, NULL, &model);

    if (status == SY_OK && (model.n_versions > 0 || model.config_stamp)) {
        scan->models[scan->n++] = model;
        return SY_OK;
    }
    sy_scanned_model_finish(&model);
    if (status == SY_ENOMEM_HOST)
        return status;
    ignore(scan, name);
    return SY_OK;
}

int sy_repository_scan(const char *folder, struct sy_scan *out)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort), status = SY_OK;

    *out = (struct sy_scan){0};
    if (n < 0)
        return sy_error_set(SY_EIO, "cannot read the models folder %s: %s", folder,
                            strerror(errno));
    out->models = calloc((size_t)n + 1, sizeof *out->models);
    if (!out->models)
        status = sy_error_set(SY_ENOMEM_HOST, "no memory for %d models", n);
    for (int i = 0; i < n; i++) {
        if (status == SY_OK && out->n < SY_SCAN_MOST_MODELS)
            status = add_model(out, folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    if (status < 0)
        sy_scan_finish(out);
    return status;
}

void sy_scan_finish(struct sy_scan *scan)
{
    for (int i = 0; i < scan->n; i++)
        sy_scanned_model_finish(&scan->models[i]);
    free(scan->models);
    *scan = (struct sy_scan){0};
}
