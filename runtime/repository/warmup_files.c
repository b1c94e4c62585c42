#include "runtime/repository/warmup_files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"

struct file {
    int warmup, input;
    void *data;
    uint64_t bytes;
};

struct sy_warmup_files {
    int n;
    uint64_t bytes; /* of all */
    struct file files[];
};

static bool leaves(const char *file)
{
    const char *up = strstr(file, "..");

    for (; up; up = strstr(up + 1, ".."))
        if ((up == file || up[-1] == '/') && (up[2] == '\0' || up[2] == '/'))
            return true;
    return *file == '/';
}

static int file_path(const char *folder, const char *file, char to[PATH_MAX])
{
    if (leaves(file) || snprintf(to, PATH_MAX, "%s/warmup/%s", folder, file) >= PATH_MAX)
        return sy_error_set(SY_EARG, "\"%.200s\": a file within the model's folder warmup", file);
    return SY_OK;
}

static int check_size(const struct sy_config_warmup_input *input, const char *path, uint64_t bytes)
{
    uint64_t wanted = sy_dtype_bytes(input->dtype);

    if (input->dtype == SY_DTYPE_STRING)
        return SY_OK;
    for (int d = 0; d < input->rank; d++)
        if (__builtin_mul_overflow(wanted, (uint64_t)input->dims[d], &wanted))
            return sy_error_set(SY_EARG, "its dims have more bytes than can be counted");
    if (bytes != wanted)
        return sy_error_set(SY_EARG, "%s has %llu bytes; one row of its dims has %llu", path,
                            (unsigned long long)bytes, (unsigned long long)wanted);
    return SY_OK;
}

static int check_room(const struct sy_warmup_files *files, const char *path, uint64_t bytes)
{
    if (bytes <= SY_WARMUP_MOST_BYTES - files->bytes)
        return SY_OK;
    return sy_error_set(SY_ETOOBIG,
                        "%s has %llu bytes; a version's warm-up files have at most %llu", path,
                        (unsigned long long)bytes, SY_WARMUP_MOST_BYTES);
}

static int read_open(struct sy_warmup_files *files, const struct sy_config_warmup_input *input,
                     int fd, const char *path, struct file *to)
{
    struct stat st;

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return sy_error_set(SY_EIO, "%s is no file", path);
    to->bytes = (uint64_t)st.st_size;
    SY_TRY(check_size(input, path, to->bytes));
    SY_TRY(check_room(files, path, to->bytes));
    to->data = malloc(to->bytes + 1);
    if (!to->data)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %s", path);
    files->bytes += to->bytes;
    return sy_read_fully(fd, path, to->data, to->bytes, 0);
}

static int read_file(struct sy_warmup_files *files, const char *folder,
                     const struct sy_config_warmup_input *input, struct file *to)
{
    char path[PATH_MAX];

    SY_TRY(file_path(folder, input->file, path));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return sy_error_set(SY_EIO, "cannot open %s: %s", path, strerror(errno));
    int status = read_open(files, input, fd, path, to);
    close(fd);
    return status;
}

static int read_warmup(struct sy_warmup_files *files, const char *folder,
                       const struct sy_model_config *config, int warmup)
{
    const struct sy_config_warmup *said = &config->warmups[warmup];
    for (int i = 0; i < said->n_inputs; i++) {
        if (!said->inputs[i].file)
            continue;
        struct file *to = &files->files[files->n++];

        *to = (struct file){.warmup = warmup, .input = i};
        int status = read_file(files, folder, &said->inputs[i], to);
        if (status < 0)
            return sy_error_prefix(status, "model_warmup '%.100s': input '%.100s': input_data_file",
                                   said->name, said->inputs[i].name);
    }
    return SY_OK;
}

static size_t count(const struct sy_model_config *config)
{
    size_t n = 0;

    for (int w = 0; w < config->n_warmups; w++)
        for (int i = 0; i < config->warmups[w].n_inputs; i++)
            n += config->warmups[w].inputs[i].file != NULL;
    return n;
}

int sy_warmup_files_read(const char *folder, const struct sy_model_config *config,
                         struct sy_warmup_files **out)
{
    size_t n = count(config);
    int status = SY_OK;

    *out = NULL;
    if (n == 0)
        return SY_OK;
    struct sy_warmup_files *files = calloc(1, sizeof *files + n * sizeof *files->files);
    if (!files)
        return sy_error_set(SY_ENOMEM_HOST, "no memory for %zu warm-up files", n);
    for (int w = 0; status == SY_OK && w < config->n_warmups; w++)
        status = read_warmup(files, folder, config, w);
    if (status < 0)
        sy_warmup_files_free(files);
    else
        *out = files;
    return status;
}

void sy_warmup_files_free(struct sy_warmup_files *files)
{
    for (int i = 0; files && i < files->n; i++)
        free(files->files[i].data);
    free(files);
}

const void *sy_warmup_file(const struct sy_warmup_files *files, int warmup, int input,
                           uint64_t *bytes)
{
    for (int i = 0; files && i < files->n; i++)
        if (files->files[i].warmup == warmup && files->files[i].input == input) {
            *bytes = files->files[i].bytes;
            return files->files[i].data;
        }
    return NULL;
}
