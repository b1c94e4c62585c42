/* The thread's work for a version: decides whether to import it, opens its package and checks it against the configuration. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/package/class_labels.h"
#include "loader/package/package.h"
#include "runtime/base/status.h"
#include "runtime/front/request/offload.h"
#include "runtime/repository/repository_internal.h"
#include "runtime/repository/warmup_files.h"

struct task {
    struct sy_repository_version *version; /* the loop's: the thread does not inspect */
    sy_version_task_ended ended;
    struct sy_repository *repository;
    struct sy_model_config *config; /* held */
    char folder[PATH_MAX], source[PATH_MAX], package_path[PATH_MAX];
    bool forced;
    /* results */
    bool ran, is_current;
    enum sy_precision precision;
    struct sy_package *package;
    struct sy_class_labels *labels;
    struct sy_warmup_files *warmup_files;
    uint64_t stamp;
    int status;
    char error[512];
};

static int task_create(struct sy_repository_version *v, sy_version_task_ended ended,
                       struct task **out)
{
    struct sy_repository *r = v->model->repository;
    struct task *task = calloc(1, sizeof *task);
    int status;

    SY_TRY_ALLOC(task, "no memory to load a model");
    task->version = v;
    task->ended = ended;
    task->repository = r;
    task->config = sy_model_config_hold(v->config);
    snprintf(task->folder, sizeof task->folder, "%s/%s", r->folder, v->model->name);
    status = sy_repository_source_path(r->folder, v->model->name, v->version, v->config->model_file,
                                       task->source);
    if (status == SY_OK)
        status =
            sy_repository_package_path(r->folder, v->model->name, v->version, task->package_path);
    if (status < 0) {
        sy_model_config_free(task->config);
        free(task);
        return status;
    }
    *out = task;
    return SY_OK;
}

static void task_free(struct task *task)
{
    sy_model_config_free(task->config);
    sy_package_close(task->package);
    sy_class_labels_free(task->labels);
    sy_warmup_files_free(task->warmup_files);
    free(task);
}

static int run_task(struct task *task, void (*work)(void *ctx), void (*done)(void *ctx))
{
    int status = sy_offload_run(task->repository->thread, work, done, task);

    if (status < 0)
        task_free(task);
    return status;
}

/* Work that did not run has failed, too. */
static void end_task(struct task *task, enum sy_version_event event)
{
    int status = task->ran ? task->status : SY_EIO;

    task->ended(task->version, status, task->error, event);
    task_free(task);
}

static void note_error(struct task *task, int status)
{
    task->ran = true;
    task->status = status;
    if (status < 0)
        snprintf(task->error, sizeof task->error, "%s", sy_error_text());
}

/* ---- is it imported? ------------------------------------------------------------------------------------------ */

static int package_precision(const char *path, enum sy_precision *out)
{
    struct sy_package *package;

    SY_TRY(sy_package_open(path, &package));
    *out = package->graph->precision;
    sy_package_close(package);
    return SY_OK;
}

/* Its configuration may ask for another precision than the package has. */
static int compare_precision(struct task *task, bool has_source)
{
    enum sy_precision wanted = task->config->precision, is;

    if (!task->is_current || !task->config->has_precision ||
        package_precision(task->package_path, &is) < 0 || is == wanted)
        return SY_OK;
    if (!has_source)
        return sy_error_set(SY_EARG,
                            "parameter precision: %s; the package is in %s, and there is "
                            "no model to import again",
                            sy_precision_name(wanted), sy_precision_name(is));
    task->is_current = false;
    snprintf(task->error, sizeof task->error, "it is in %s, to be in %s", sy_precision_name(is),
             sy_precision_name(wanted));
    return SY_OK;
}

static int inspect(struct task *task)
{
    const struct sy_repository_importer *importer = &task->repository->importer;
    const char *device = task->repository->device;
    bool has_source = access(task->source, F_OK) == 0;

    if (!has_source && access(task->package_path, F_OK) != 0)
        return sy_error_set(SY_ENOTFOUND, "its folder holds neither %s nor model" SY_PACKAGE_SUFFIX,
                            task->config->model_file);
    task->is_current =
        !has_source ||
        (!task->forced && importer->is_imported(task->source, task->package_path, device));
    if (!task->is_current)
        snprintf(task->error, sizeof task->error, "%s",
                 task->forced ? "its source changed" : sy_error_text());
    SY_TRY(compare_precision(task, has_source));
    task->precision = task->config->precision;
    if (!task->is_current && !task->config->has_precision)
        task->precision = importer->kept_precision(task->package_path, device);
    return SY_OK;
}

static void inspect_work(void *ctx)
{
    struct task *task = ctx;

    note_error(task, inspect(task));
}

static void inspect_done(void *ctx)
{
    struct task *task = ctx;
    struct sy_repository_version *v = task->version;

    if (task->repository->stops) {
        task_free(task);
        return;
    }
    v->precision = task->precision;
    if (task->ran && task->status == SY_OK && !task->is_current)
        snprintf(v->reason, sizeof v->reason, "%s", task->error);
    end_task(task, task->is_current ? SY_VERSION_EVENT_CURRENT : SY_VERSION_EVENT_STALE);
}

int sy_repository_inspect(struct sy_repository_version *v, sy_version_task_ended ended)
{
    struct task *task;

    SY_TRY(task_create(v, ended, &task));
    task->forced = v->package_of != 0 && v->package_of != v->loading.source;
    return run_task(task, inspect_work, inspect_done);
}

/* ---- the package ------------------------------------------------------------------------------------------------ */

/* Beside config.pbtxt, or below it. */
static int labels_path(const struct task *task, const char *file, char to[PATH_MAX])
{
    if (*file == '/' || strstr(file, "..") ||
        snprintf(to, PATH_MAX, "%s/%s", task->folder, file) >= PATH_MAX)
        return sy_error_set(SY_EARG, "label_filename \"%.200s\": a file within the model's folder",
                            file);
    return SY_OK;
}

static int find_output(const struct sy_graph *graph, const char *name)
{
    for (int i = 0; i < graph->n_outputs; i++)
        if (strcmp(graph->tensors[graph->outputs[i]].name, name) == 0)
            return i;
    return -1;
}

/* Reads the labels of every output that has some. */
static int read_labels(struct task *task)
{
    for (int i = 0; i < task->config->n_outputs; i++) {
        const struct sy_config_tensor *said = &task->config->outputs[i];
        int output = find_output(task->package->graph, said->name);
        struct sy_class_labels *labels;
        char path[PATH_MAX];

        if (!said->labels || !*said->labels || output < 0)
            continue;
        SY_TRY(labels_path(task, said->labels, path));
        SY_TRY(sy_class_labels_read(path, output, &labels));
        labels->next = task->labels;
        task->labels = labels;
    }
    return SY_OK;
}

static int open_package(struct task *task)
{
    int status;

    SY_TRY(sy_package_open(task->package_path, &task->package));
    task->stamp = sy_repository_file_stamp(task->package->fd);
    status = sy_model_config_check(task->config, task->package->graph);
    if (status < 0)
        return sy_error_prefix(status, "%s", task->config->origin);
    SY_TRY(read_labels(task));
    return sy_warmup_files_read(task->folder, task->config, &task->warmup_files);
}

static void open_work(void *ctx)
{
    struct task *task = ctx;

    note_error(task, open_package(task));
}

static void open_done(void *ctx)
{
    struct task *task = ctx;
    struct sy_repository_version *v = task->version;

    if (task->repository->stops) {
        task_free(task);
        return;
    }
    if (task->ran && task->status == SY_OK) {
        v->loading.package = task->stamp;
        v->package = task->package;
        v->labels = task->labels;
        v->warmup_files = task->warmup_files;
        task->package = NULL;
        task->labels = NULL;
        task->warmup_files = NULL;
    }
    end_task(task, SY_VERSION_EVENT_OPENED);
}

int sy_repository_open(struct sy_repository_version *v, sy_version_task_ended ended)
{
    struct task *task;

    SY_TRY(task_create(v, ended, &task));
    return run_task(task, open_work, open_done);
}
