#include "runtime/cli/package_models.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/package/package.h"
#include "loader/storage/direct_read.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"

struct found {
    const struct sy_link_cost *link;
    const struct sy_sim_kind *kind;
    struct sy_sim_model *models;
    int n, max;
};

static int describe(const struct sy_package *package, const struct found *found,
                    struct sy_sim_model *out)
{
    struct sy_plan_layer *layers = calloc((size_t)package->n_layers + 1, sizeof *layers);
    uint64_t *reads = calloc((size_t)package->n_layers + 1, sizeof *reads); /* all is copied */
    struct sy_direct_plan plan = {0};
    int status = layers && reads
                     ? SY_OK
                     : sy_error_set(SY_ENOMEM_HOST, "no memory for %d layers", package->n_layers);
    snprintf(out->name, sizeof out->name, "%s", package->name);
    for (int i = 0; status == SY_OK && i < package->n_layers; i++) {
        uint64_t compute_ns = sy_package_layer_ns(package, i, 1);
        out->compute_ns += compute_ns;
        layers[i] = (struct sy_plan_layer){.bytes = package->layers[i].bytes,
                                           .compute_ns =
                                               (uint64_t)((double)compute_ns / found->kind->speed)};
    }
    if (status == SY_OK)
        status = sy_direct_plan_for_pool(layers, reads, package->n_layers, found->link,
                                         found->kind->pool_bytes, &plan);
    free(layers);
    free(reads);
    free(plan.groups);
    out->bytes = package->weights_bytes;
    out->n_groups = SY_MAX(plan.n_groups, 1);
    if (status == SY_OK && (!package->profile.layer_ns[0] || out->compute_ns == 0))
        return sy_error_set(SY_EARG, "%s was not profiled; import it again", package->path);
    return status;
}

static int add_package(struct found *found, const char *path)
{
    struct sy_package *package;
    if (found->n == found->max) {
        int max = found->max ? 2 * found->max : 16;
        struct sy_sim_model *more = realloc(found->models, (size_t)max * sizeof *more);
        SY_TRY_ALLOC(more, "no memory for %d models", max);
        found->models = more;
        found->max = max;
    }
    struct sy_sim_model *model = &found->models[found->n];
    *model = (struct sy_sim_model){0};
    SY_TRY(sy_package_open(path, &package));
    int status = describe(package, found, model);
    sy_package_close(package);
    found->n += status == SY_OK;
    return status;
}

/* The package of the highest version in a model's folder, or "". */
static int newest(const char *folder, char *out, size_t size)
{
    struct dirent **entries;
    long highest = -1;
    int n = scandir(folder, &entries, NULL, alphasort);
    out[0] = '\0';
    for (int i = 0; i < n; i++) {
        char *end, path[1024];
        long version = strtol(entries[i]->d_name, &end, 10);
        int length = snprintf(path, sizeof path, "%s/%s/model" SY_PACKAGE_SUFFIX, folder,
                              entries[i]->d_name);
        if (*end == '\0' && version > highest && length < (int)size && access(path, R_OK) == 0) {
            highest = version;
            memcpy(out, path, (size_t)length + 1);
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return highest >= 0;
}

static int add_entry(struct found *found, const char *folder, const char *name)
{
    char path[700], package[1024];
    size_t n = strlen(name), m = strlen(SY_PACKAGE_SUFFIX);
    if (name[0] == '.')
        return SY_OK;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return sy_error_set(SY_EARG, "%s/%s: the path is too long", folder, name);
    if (n > m && strcmp(name + n - m, SY_PACKAGE_SUFFIX) == 0)
        return add_package(found, path);
    return newest(path, package, sizeof package) ? add_package(found, package) : SY_OK;
}

int sy_cli_package_models(const char *folder, const struct sy_link_cost *link,
                          const struct sy_sim_kind *kind, struct sy_sim_model **out, int *n_out)
{
    struct found found = {.link = link, .kind = kind};
    struct dirent **entries;
    int status = SY_OK, n = scandir(folder, &entries, NULL, alphasort);
    if (n < 0)
        return sy_error_set(SY_EIO, "cannot read the folder %s: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        if (status == SY_OK)
            status = add_entry(&found, folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    if (status == SY_OK && found.n == 0)
        status = sy_error_set(SY_ENOTFOUND,
                              "no package in %s: FILE.sypkg or NAME/VERSION/model.sypkg", folder);
    if (status < 0) {
        free(found.models);
        return status;
    }
    *out = found.models;
    *n_out = found.n;
    return SY_OK;
}
