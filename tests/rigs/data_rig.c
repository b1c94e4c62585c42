#include "tests/rigs/data_rig.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/shell.h"

static char folder[64];

char *path_of(const char *name)
{
    static char paths[8][256];
    static int at;
    char *path = paths[at++ % 8];
    snprintf(path, sizeof *paths, "%s/%s", folder, name);
    return path;
}

char *write_bytes(const char *name, const void *bytes, size_t n)
{
    char *path = path_of(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
    return path;
}

char *write_text(const char *name, const char *text)
{
    return write_bytes(name, text, strlen(text));
}

struct sy_data_want want_numbers(int64_t n_inputs, int64_t n_classes)
{
    return (struct sy_data_want){
        .n_inputs = 1,
        .inputs = {{.dtype = SY_DTYPE_F32, .rank = 1, .dims = {n_inputs}, .n = (uint64_t)n_inputs}},
        .are_classes = true,
        .n_labels = 1,
        .n_classes = n_classes};
}

struct sy_data_want want_indices(int64_t n_inputs, int64_t n_classes)
{
    struct sy_data_want want = want_numbers(n_inputs, n_classes);
    want.inputs[0].dtype = SY_DTYPE_I64;
    return want;
}

struct sy_data_spec spec_of(const char *format, ...)
{
    char text[1024];
    struct sy_data_spec spec = {0};
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    if (sy_job_data_take(json, 5, &spec) < 0)
        fail_msg("%s", sy_error_text());
    json_decref(json);
    return spec;
}

void open_data(const struct sy_data_spec *spec, const struct sy_data_want *want,
               struct sy_train_data *data)
{
    if (sy_train_data_open(spec, want, data) < 0)
        fail_msg("%s", sy_error_text());
}

void check_refused(struct sy_data_spec spec, struct sy_data_want want, int status, const char *part)
{
    struct sy_train_data data;
    assert_int_equal(sy_train_data_open(&spec, &want, &data), status);
    if (!strstr(sy_error_text(), part))
        fail_msg("'%s' is not in: %s", part, sy_error_text());
    sy_job_data_free(&spec);
}

char *warned_by(const struct sy_data_spec *spec, const struct sy_data_want *want)
{
    static char said[4096];
    struct sy_train_data data;
    char *path = path_of("said");
    fflush(stderr);
    int kept = dup(STDERR_FILENO), to = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(kept >= 0 && to >= 0);
    dup2(to, STDERR_FILENO);
    int status = sy_train_data_open(spec, want, &data);
    dup2(kept, STDERR_FILENO);
    close(kept);
    if (status < 0)
        fail_msg("%s", sy_error_text());
    sy_train_data_close(&data);
    ssize_t n = pread(to, said, sizeof said - 1, 0);
    close(to);
    assert_true(n >= 0);
    said[n] = '\0';
    return said;
}

int make_data_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/sy_data_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

int remove_data_folder(void **state)
{
    (void)state;
    return remove_tree(folder);
}
