#include "runtime/cli/doctor/doctor_models.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/package/package.h"
#include "runtime/base/status.h"

#define PATH_BYTES 4096

/* ---- finding them -------------------------------------------------------------------------------------- */

static int add(struct sy_doctor_models *models, const char *path, const char *why)
{
    struct sy_doctor_model *more =
        realloc(models->list, ((size_t)models->n + 1) * sizeof *models->list);
    SY_TRY_ALLOC(more, "no memory for %d models", models->n + 1);
    models->list = more;
    struct sy_doctor_model *model = &models->list[models->n];
    *model = (struct sy_doctor_model){.path = strdup(path)};
    SY_TRY_ALLOC(model->path, "no memory for a path");
    snprintf(model->why, sizeof model->why, "%s", why);
    models->n++;
    return SY_OK;
}

/* glob's own characters in a folder's name are names like others. */
static void escape(const char *folder, char *out, size_t size)
{
    size_t n = 0;
    for (; *folder && n + 2 < size; folder++) {
        if (strchr("*?[]\\", *folder))
            out[n++] = '\\';
        out[n++] = *folder;
    }
    out[n] = '\0';
}

/* Whether a package lies beside this ONNX file. */
static bool has_package(const char *onnx)
{
    char path[PATH_BYTES];
    size_t n = strlen(onnx) - strlen(".onnx");
    snprintf(path, sizeof path, "%.*s" SY_PACKAGE_SUFFIX, (int)n, onnx);
    return access(path, F_OK) == 0;
}

static int add_matches(struct sy_doctor_models *models, const char *folder, const char *pattern,
                       bool sources)
{
    char full[PATH_BYTES];
    glob_t found;
    int status = SY_OK;
    escape(folder, full, sizeof full - 64);
    strcat(full, pattern);
    if (glob(full, 0, NULL, &found) != 0)
        return SY_OK; /* none */
    for (size_t i = 0; status == SY_OK && i < found.gl_pathc; i++)
        if (!sources)
            status = add(models, found.gl_pathv[i], "");
        else if (!has_package(found.gl_pathv[i]))
            status = add(models, found.gl_pathv[i], "not imported yet; serve does that");
    globfree(&found);
    return status;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct sy_doctor_model *)a)->path,
                  ((const struct sy_doctor_model *)b)->path);
}

int sy_doctor_models_find(const char *folder, struct sy_doctor_models *out)
{
    DIR *there = opendir(folder);
    *out = (struct sy_doctor_models){0};
    if (!there)
        return sy_error_set(SY_EIO, "cannot read the models folder %s: %s", folder,
                            strerror(errno));
    closedir(there);
    SY_TRY(add_matches(out, folder, "/*" SY_PACKAGE_SUFFIX, false));
    SY_TRY(add_matches(out, folder, "/*/*/model" SY_PACKAGE_SUFFIX, false));
    SY_TRY(add_matches(out, folder, "/*/*/model.onnx", true));
    if (out->n > 0)
        qsort(out->list, (size_t)out->n, sizeof *out->list, by_path);
    return SY_OK;
}

const char *sy_doctor_models_largest(const struct sy_doctor_models *models, uint64_t least_bytes)
{
    const char *best = NULL;
    for (int i = 0; i < models->n; i++) {
        struct stat st;
        const struct sy_doctor_model *model = &models->list[i];
        if (*model->why || stat(model->path, &st) != 0 || (uint64_t)st.st_size < least_bytes)
            continue;
        best = model->path;
        least_bytes = (uint64_t)st.st_size;
    }
    return best;
}

/* ---- predicting ---------------------------------------------------------------------------------------- */

static int predict_package(struct sy_doctor_model *model, const struct sy_doctor_facts *facts,
                           const struct sy_package *package)
{
    size_t n = (size_t)package->n_layers;
    struct sy_plan_layer *layers = calloc(n + 1, sizeof *layers);
    SY_TRY_ALLOC(layers, "no memory for %zu layers", n);
    for (int i = 0; i < package->n_layers; i++)
        layers[i] =
            (struct sy_plan_layer){package->layers[i].bytes, sy_package_layer_ns(package, i, 1)};
    snprintf(model->name, sizeof model->name, "%s", package->name);
    model->bytes = package->weights_bytes;
    model->is_profiled = package->profile.layer_ns[0] != NULL;
    int status =
        sy_swap_forecast_model(facts, layers, package->n_layers, model->is_profiled, &model->swap);
    free(layers);
    return status;
}

void sy_doctor_models_predict(struct sy_doctor_models *models, const struct sy_doctor_facts *facts)
{
    for (int i = 0; i < models->n; i++) {
        struct sy_doctor_model *model = &models->list[i];
        struct sy_package *package;
        if (*model->why)
            continue;
        int status = sy_package_open(model->path, &package);
        if (status == SY_OK) {
            status = predict_package(model, facts, package);
            sy_package_close(package);
        }
        if (status < 0)
            snprintf(model->why, sizeof model->why, "%s", sy_error_text());
    }
}

void sy_doctor_models_finish(struct sy_doctor_models *models)
{
    for (int i = 0; i < models->n; i++)
        free(models->list[i].path);
    free(models->list);
    *models = (struct sy_doctor_models){0};
}
