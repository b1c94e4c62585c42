/* Applies a scan of the folder to a model: its configuration, its versions, and which of them are to be loaded. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/repository/repository_internal.h"

/* ---- what a scan says of a model ------------------------------------------------------------------------------- */

static void set_model_error(struct sy_repository_model *model, int status, const char *why)
{
    if (model->status == status && strcmp(model->reason, why) == 0)
        return;
    model->status = status;
    snprintf(model->reason, sizeof model->reason, "%s", why);
    if (status < 0)
        sy_log_error("repository", "event=refused model=%s why=\"%s\"", model->name, why);
}

/* Takes the configuration over. One that is refused leaves what is served as it is. */
static void take_config(struct sy_repository_model *model, struct sy_scanned_model *scanned,
                        enum sy_scan_reason reason, bool is_given)
{
    bool same = scanned->config_stamp == model->config_stamp && model->config &&
                !model->config_is_given && !is_given;

    if (reason == SY_SCAN_BY_POLL && model->config_is_given)
        return;
    model->config_stamp = scanned->config_stamp;
    set_model_error(model, scanned->status, scanned->error);
    if (same && scanned->config)
        return;
    sy_model_config_free(model->config);
    model->config = scanned->config;
    scanned->config = NULL;
    model->config_is_given = is_given;
    model->config_serial++;
    if (model->config && model->config->warning)
        sy_log_warn("repository", "event=config model=%s without_effect=\"%s\"", model->name,
                    model->config->warning);
}

/* Versions that have been removed from the folder are unloaded and forgotten. */
static void drop_gone(struct sy_repository_model *model, const struct sy_scanned_model *scanned)
{
    struct sy_repository_version *v, *next;

    for (v = model->versions; v; v = next) {
        bool is_there = false;

        next = v->next;
        for (int i = 0; scanned && i < scanned->n_versions; i++)
            is_there |= scanned->versions[i].version == v->version;
        v->gone = !is_there;
        if (v->gone)
            v->chosen = false;
    }
    for (v = model->versions; v; v = next) {
        next = v->next;
        if (v->gone && v->state == SY_VERSION_UNLOADED && !v->serves)
            model->repository->rests(v);
        else if (v->gone)
            sy_repository_version_drop(v);
    }
}

static int note_versions(struct sy_repository_model *model, const struct sy_scanned_model *scanned)
{
    static const struct sy_version_policy latest;
    int64_t versions[SY_MOST_VERSIONS];
    bool chosen[SY_MOST_VERSIONS];
    struct sy_repository_version *v;

    for (int i = 0; i < scanned->n_versions; i++)
        versions[i] = scanned->versions[i].version;
    sy_version_policy_choose(model->config ? &model->config->versions : &latest, versions,
                             scanned->n_versions, chosen);
    for (int i = 0; i < scanned->n_versions; i++) {
        SY_TRY(sy_repository_version_make(model, versions[i], &v));
        v->chosen = chosen[i];
        v->has.source = scanned->versions[i].source_stamp;
        v->has.package = scanned->versions[i].package_stamp;
    }
    return SY_OK;
}

/* Triton's error for a model that nothing is served of. */
static void check_versions(struct sy_repository_model *model,
                           const struct sy_scanned_model *scanned)
{
    int64_t versions[SY_MOST_VERSIONS], missing = 0;
    char why[200];

    if (model->status < 0 || !model->config)
        return;
    for (int i = 0; i < scanned->n_versions; i++)
        versions[i] = scanned->versions[i].version;
    missing = sy_version_policy_missing(&model->config->versions, versions, scanned->n_versions);
    if (scanned->n_versions == 0)
        set_model_error(model, SY_ENOTFOUND,
                        "it has no version: a folder named by a number, as 1, with model.onnx");
    else if (missing) {
        snprintf(why, sizeof why,
                 "version_policy asks for version %" PRId64 ", which does not exist", missing);
        set_model_error(model, SY_ENOTFOUND, why);
    }
}

static bool is_new_content(const struct sy_repository_version *v)
{
    const struct sy_repository_content *than =
        v->state == SY_VERSION_READY ? &v->served : &v->loading;

    return v->has.source != than->source || v->model->config_serial != than->config ||
           (v->has.package != than->package && v->state == SY_VERSION_READY);
}

bool sy_repository_is_startup(const struct sy_repository *r, const char *name)
{
    if (r->control != SY_REPOSITORY_EXPLICIT)
        return true;
    for (int i = 0; i < r->n_startup; i++)
        if (strcmp(r->startup[i], "*") == 0 || strcmp(r->startup[i], name) == 0)
            return true;
    return false;
}

/* Whether the version is to be loaded now. */
static bool wants(const struct sy_repository_version *v, enum sy_scan_reason reason, bool is_new)
{
    if (!v->chosen)
        return false;
    if (reason == SY_SCAN_BY_LOAD)
        return true;
    if (reason == SY_SCAN_AT_START)
        return sy_repository_is_startup(v->model->repository, v->model->name);
    return !v->off && (is_new || is_new_content(v)) &&
           (v->state != SY_VERSION_UNLOADED || !v->evicted);
}

static void apply_version(struct sy_repository_version *v, enum sy_scan_reason reason)
{
    struct sy_repository *r = v->model->repository;
    bool is_new = v->state == SY_VERSION_UNLOADED && !v->off && !v->evicted;

    if (!v->chosen) {
        sy_repository_version_drop(v);
        return;
    }
    if (!wants(v, reason, is_new) || (!v->model->config && v->serves))
        return;
    if (reason == SY_SCAN_AT_START) {
        v->at_start = true;
        r->n_starting++;
    }
    sy_repository_version_want(v);
}

/* A version may be freed in the walk: each is looked up by its number. */
static int apply_busy(struct sy_repository_model *model, struct sy_scanned_model *scanned,
                      enum sy_scan_reason reason, bool config_is_given)
{
    take_config(model, scanned, reason, config_is_given);
    SY_TRY(note_versions(model, scanned));
    check_versions(model, scanned);
    drop_gone(model, scanned);
    for (int i = 0; i < scanned->n_versions; i++) {
        struct sy_repository_version *v =
            sy_repository_version_find(model, scanned->versions[i].version);

        if (v)
            apply_version(v, reason);
    }
    return SY_OK;
}

int sy_repository_apply(struct sy_repository_model *model, struct sy_scanned_model *scanned,
                        enum sy_scan_reason reason, bool config_is_given)
{
    model->n_busy++;
    int status = apply_busy(model, scanned, reason, config_is_given);
    model->n_busy--;
    return status;
}

void sy_repository_forget(struct sy_repository_model *model)
{
    sy_model_config_free(model->config);
    model->config = NULL;
    model->config_is_given = false;
    model->status = SY_OK;
    model->n_busy++;
    drop_gone(model, NULL);
    model->n_busy--;
}

/* ---- a given configuration that the model does not fit ---------------------------------------------------------- */

void sy_repository_config_remember(struct sy_repository_model *model,
                                   struct sy_repository_config_before *before)
{
    *before = (struct sy_repository_config_before){
        .config = model->config ? sy_model_config_hold(model->config) : NULL,
        .stamp = model->config_stamp,
        .is_given = model->config_is_given,
        .status = model->status,
    };
    snprintf(before->reason, sizeof before->reason, "%s", model->reason);
    for (struct sy_repository_version *v = model->versions; v; v = v->next) {
        v->before.loaded = v->serves || v->state == SY_VERSION_UNAVAILABLE ||
                           (sy_repository_version_is_busy(v) && !v->dropped);
        v->before.off = v->off;
        v->before.evicted = v->evicted;
    }
}

static void put_back(struct sy_repository_model *model, struct sy_repository_config_before *before)
{
    sy_model_config_free(model->config);
    model->config = before->config;
    before->config = NULL;
    model->config_stamp = before->stamp;
    model->config_is_given = before->is_given;
    model->config_serial++;
    set_model_error(model, before->status, before->reason);
}

static void restore_version(struct sy_repository_version *v)
{
    if (v->chosen && v->before.loaded) {
        sy_repository_version_want(v);
        return;
    }
    v->off = v->before.off; /* the load has turned it on */
    v->evicted = v->before.evicted;
    sy_repository_version_drop(v);
}

/* Versions that were served, were loading, or had failed, load again: what serves goes on meanwhile. */
static int restore_versions(struct sy_repository_model *model,
                            const struct sy_scanned_model *scanned)
{
    SY_TRY(note_versions(model, scanned));
    for (int i = 0; i < scanned->n_versions; i++) {
        struct sy_repository_version *v =
            sy_repository_version_find(model, scanned->versions[i].version);

        if (v)
            restore_version(v);
    }
    return SY_OK;
}

void sy_repository_config_restore(struct sy_repository_model *model,
                                  const struct sy_scanned_model *scanned,
                                  struct sy_repository_config_before *before)
{
    model->n_busy++;
    bool was_known = before->config || before->status < 0;
    put_back(model, before);
    if (!was_known)
        drop_gone(model, NULL);
    else if (restore_versions(model, scanned) < 0)
        sy_log_error("repository", "event=not_restored model=%s why=\"%s\"", model->name,
                     sy_error_text());
    model->n_busy--;
}
