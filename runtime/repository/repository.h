/* The model repository: a folder laid out as Triton's, and which of its models and versions are served.
 *
 *   FOLDER/NAME/config.pbtxt          optional (model_config.h)
 *   FOLDER/NAME/VERSION/model.onnx    or model.sypkg, the package that is made of it
 *
 * A version of a model is one model of the core. What is not imported yet, or is older than its source, is imported in a process of its own.
 *
 *   UNLOADED ──asked for, load──> LOADING (import, then sy_core_model_add) ──> READY
 *      ^                              │ fails                                  │ source changed (poll): LOADING beside it, then it is replaced
 *      │                              v                                        │
 *      └──────── unload ──── UNAVAILABLE, with the reason                      └── unload, or others need its place ──> UNLOADED
 *
 * R1: a model that does not load keeps no other from being served; its reason stands in the index.
 * R2: a request that was begun on a version ends on it, whatever is loaded or unloaded meanwhile (core.h holds it).
 * R3: at most one import runs at a time; a request waits for its own model only.
 * R4: the folder is read on a thread of its own: nothing here holds the loop longer than a millisecond.
 *
 * README.md has the rest. One thread, the event loop's. */
#ifndef SY_REPOSITORY_REPOSITORY_H
#define SY_REPOSITORY_REPOSITORY_H

#include <jansson.h>
#include <stdbool.h>

#include "loader/graph/graph.h"
#include "runtime/core/core_handlers.h"

struct event_base;
struct sy_repository;

/* As Triton's --model-control-mode. In each, a request for a model that is there and not loaded loads it (EXPLICIT: only if it was loaded
 * once and has been evicted from the table since, so that unload means unload). */
enum sy_repository_control {
    SY_REPOSITORY_NONE, /* all models are loaded at start, in the background of those that are asked for */
    SY_REPOSITORY_POLL, /* besides, the folder is looked at again and again: what is new, changed or gone */
    SY_REPOSITORY_EXPLICIT /* only what load and unload say */
};

/* Functions of the surrounding program that make packages: the runtime does not know engines. */
struct sy_repository_importer {
    const char *program; /* run as `switchyard import ...`; NULL: /proc/self/exe */
    sy_ns limit_ns;      /* of one import; 0: an hour */
    /* Whether the package is there, not older than its source and made for this device; false: the thread's error text says why not. Called from a thread. */
    bool (*is_imported)(const char *source, const char *package, const char *device);
    /* In which a package is made again that no configuration says it of. Called from a thread. */
    enum sy_precision (*kept_precision)(const char *package, const char *device);
};

struct sy_repository_config {
    const char *folder;
    enum sy_repository_control control;
    sy_ns poll_ns;                     /* 0: 15 s */
    const char *const *startup_models; /* EXPLICIT: loaded at start; "*": all */
    int n_startup_models;
    const char *device; /* the device that packages are made for */
    struct sy_repository_importer importer;
    /* Called when what is loaded at start is loaded or has failed. status < 0: the first that failed, and why. */
    sy_core_done started;
    void *ctx;
};

/* Strings of `config` are copied. EIO: the folder cannot be read; EARG; ENOMEM_HOST. */
int sy_repository_create(struct event_base *base, const struct sy_repository_config *config,
                         const struct sy_core_handlers *handlers, void *core,
                         struct sy_repository **out);
/* Answers EBUSY to loads and requests that wait for a model, and to those that come: while there still are front ends to carry the answers. NULL is fine. */
void sy_repository_stop(struct sy_repository *repository);
/* Ends the import that runs, and answers EBUSY to loads that wait. Destroy it before the core, behind the front ends: no `ready` is called any more. NULL is
 * fine. */
void sy_repository_destroy(struct sy_repository *repository);

/* A model that is being loaded because it is asked for: ready(ctx) is called once, from the loop, when it is worth asking again (it is loaded, or will not be).
 * The caller's, zeroed at first. */
struct sy_repository_wait {
    struct sy_repository_wait *next, **previous;
    void (*ready)(void *ctx);
    void *ctx;
    int *n_waits; /* the repository's count of those that wait; NULL: it does not */
};
#define SY_REPOSITORY_LOADS      1    /* the result of acquire in that case */
#define SY_REPOSITORY_MOST_WAITS 8192 /* at once, over all models */
/* Unparks it; fine for one that was never parked or was woken. */
void sy_repository_wait_cancel(struct sy_repository_wait *wait);

/* A version to run a request on, held (to be released at the core). version 0: as the version policy says, the highest that is served. SY_REPOSITORY_LOADS:
 * it is being loaded; `wait` is called then. ENOTFOUND; EBUSY: not loaded, or too many wait; EIO, ECORRUPT, EUNSUPPORTED ...: it is unavailable, with the
 * reason. Names that the folder does not have are looked up in the core. */
int sy_repository_acquire(struct sy_repository *repository, const char *name, int64_t version,
                          struct sy_repository_wait *wait, struct sy_core_model_ref **out);
/* Reads the model's folder again and loads what its version policy says; what is served already and has not changed stays. config: a model configuration as
 * JSON in the place of config.pbtxt, or NULL. done(ctx, status, error) comes once, later; an unload meanwhile ends it with SY_OK. EBUSY: too many loads
 * wait. */
int sy_repository_load(struct sy_repository *repository, const char *name, const char *config,
                       sy_core_done done, void *ctx);
/* No request finds it any more; what runs ends. version 0: all. ENOTFOUND. */
int sy_repository_unload(struct sy_repository *repository, const char *name);
int sy_repository_unload_version(struct sy_repository *repository, const char *name,
                                 int64_t version);
/* [{"name", "version": "1", "state": "READY"|"LOADING"|"UNAVAILABLE"|"UNLOADED", "reason"}], as Triton's index; models of the core that the folder does not
 * have included. UNAVAILABLE with the reason "unloaded": by unload. UNLOADED: a request for it, or load, loads it; the reason says which. */
int sy_repository_index(struct sy_repository *repository, bool only_ready, json_t **out);
/* SY_OK: this model (and version, if not 0) answers requests now. ENOTFOUND, EBUSY (not loaded, loading), or its reason. */
int sy_repository_is_ready(struct sy_repository *repository, const char *name, int64_t version);
/* Its configuration as Triton's model configuration in JSON: what config.pbtxt says, completed from the model. ENOTFOUND; EBUSY: not loaded. */
int sy_repository_config(struct sy_repository *repository, const char *name, int64_t version,
                         json_t **out);
/* The versions that are served, ascending; how many (at most n). */
int sy_repository_versions(struct sy_repository *repository, const char *name, int64_t *out, int n);

#endif
