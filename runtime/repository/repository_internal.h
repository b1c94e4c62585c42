/* Shared by the repository's files.
 *
 *   repository.c           create, destroy, acquire, unload
 *   repository_index.c     what is said of models
 *   repository_models.c    the table of models and versions, by name
 *   repository_apply.c     what the folder has becomes what is wanted of each version
 *   repository_load.c      loads and scans: when the folder is read, and who hears of it
 *   repository_version.c   one version's way: its states, and what is done in each
 *   repository_task.c      what the thread does for a version: is it imported, open its package
 *   repository_warmup.c    a version's warm-up runs */
#ifndef SY_REPOSITORY_INTERNAL_H
#define SY_REPOSITORY_INTERNAL_H

#include <limits.h>

#include "runtime/base/clock.h"
#include "runtime/front/request/front.h"
#include "runtime/repository/import_process.h"
#include "runtime/repository/model_config.h"
#include "runtime/repository/repository.h"
#include "runtime/repository/repository_scan.h"
#include "runtime/repository/version_state.h"

#define SY_REPOSITORY_MOST_LOADS 4096

struct sy_class_labels;
struct sy_warmup_files;
struct sy_offload;
struct sy_warmup;

/* The identity of a version's content: another number, another content. */
struct sy_repository_content {
    uint64_t source, package; /* stamps; 0: there is none */
    uint64_t config;          /* the model's config_serial at that time */
};

struct sy_repository_version {
    struct sy_repository_version *next; /* next version of its model, ascending */
    struct sy_repository_model *model;
    int64_t version;
    enum sy_version_state state;
    bool serves;   /* the core has it and answers requests on it, whatever is loaded beside it */
    bool chosen;   /* by the version policy */
    bool off;      /* unloaded by command: only a load turns it on */
    bool evicted;  /* was served, and was evicted for another */
    bool dropped;  /* the load in progress ends in UNLOADED */
    bool again;    /* the load in progress is outdated: load once more afterwards */
    bool gone;     /* removed from the folder: freed once it rests */
    bool at_start; /* counts for `started` */
    struct {
        bool loaded, off, evicted; /* loaded: or was on its way, or had failed */
    } before; /* the load whose configuration is tried; sy_repository_config_remember */
    struct sy_repository_content has;     /* at the last scan of the folder */
    struct sy_repository_content loading; /* content of the load in progress */
    struct sy_repository_content served;
    uint64_t package_of; /* the source's stamp that the package is made of; 0: not known */
    sy_ns used_ns;       /* last acquired */
    sy_ns failed_ns;     /* when it became UNAVAILABLE */
    int status;          /* UNAVAILABLE: why */
    char reason[512];
    enum sy_precision precision;    /* precision of the import */
    struct sy_model_config *config; /* configuration that it is loaded with; held */
    struct sy_package *package;     /* PLACING, with its labels */
    struct sy_class_labels *labels;
    struct sy_warmup_files *warmup_files; /* until WARMING takes them */
    struct sy_import_process *import;
    struct sy_repository_version *next_import; /* QUEUED */
    struct event *place_event;                 /* PLACING: asks again */
    int n_asked;
    struct sy_warmup *warmup;
};

struct sy_repository_model {
    struct sy_repository_model *next; /* in its bucket */
    struct sy_repository *repository;
    char *name;
    struct sy_model_config *config; /* NULL: refused */
    uint64_t config_stamp, config_serial;
    bool config_is_given; /* by load */
    bool seen;            /* by the scan that is being looked at */
    int status;           /* status of the model as a whole; reason below */
    char reason[512];
    struct sy_repository_version *versions;
    int n_loads; /* loads in progress, or waiting for it */
    int n_busy;  /* callers that walk it: it stays, and no load of it ends */
    struct sy_repository_wait *waits;
};

/* A model's configuration before a load that brought its own. */
struct sy_repository_config_before {
    struct sy_model_config *config; /* held */
    uint64_t stamp;
    bool is_given;
    int status;
    char reason[512];
};

/* A load in progress: by sy_repository_load, or of a model at start. */
struct sy_repository_load {
    struct sy_repository_load *next;
    struct sy_repository *repository;
    struct sy_repository_model *model;
    enum { SY_LOAD_WAITS, SY_LOAD_SCANS, SY_LOAD_RUNS, SY_LOAD_OVER } state;
    bool unloaded;                             /* meanwhile */
    char *config;                              /* JSON, or NULL */
    struct sy_repository_config_before before; /* where there is a config, from RUNS on */
    struct sy_scanned_model scanned;
    int status;
    char error[512];
    bool ran; /* on the thread */
    sy_core_done done;
    void *ctx;
};

struct sy_repository {
    struct event_base *base;
    char *folder, *device;
    enum sy_repository_control control;
    sy_ns poll_ns;
    struct sy_repository_importer importer;
    char **startup;
    int n_startup;
    sy_core_done started;
    void *started_ctx;
    int n_starting; /* versions and loads that `started` waits for */
    int start_status;
    char start_error[512];
    const struct sy_core_handlers *handlers;
    void *core;
    struct sy_front front; /* for warm-up runs: no repository, no statistics */
    struct sy_offload *thread;
    struct sy_repository_model **buckets;
    int n_models, n_buckets;
    struct sy_repository_load *loads;
    int n_loads;
    struct sy_repository_version *imports, **imports_end; /* QUEUED, in turn */
    bool importing;
    struct sy_repository_wait *woken;
    int n_waits;
    struct event *wake_event, *poll_event;
    void (*rests)(struct sy_repository_version *v); /* sy_repository_version_settled */
    char ignored[512];                              /* said */
    bool stops;
};

/* ---- repository_models.c ---- */
struct sy_repository_model *sy_repository_find(const struct sy_repository *r, const char *name);
int sy_repository_model_make(struct sy_repository *r, const char *name,
                             struct sy_repository_model **out);
/* Forgotten if the folder has it no more and nothing of it is left. */
void sy_repository_model_free_if_gone(struct sy_repository_model *model);
void sy_repository_model_free(struct sy_repository_model *model);
struct sy_repository_version *sy_repository_version_find(const struct sy_repository_model *model,
                                                         int64_t version);
int sy_repository_version_make(struct sy_repository_model *model, int64_t version,
                               struct sy_repository_version **out);
void sy_repository_version_free(struct sy_repository_version *v);
void sy_repository_close_package(struct sy_repository_version *v);
/* All models in the order of their names; the caller frees the list. NULL: no memory. */
struct sy_repository_model **sy_repository_models_sorted(const struct sy_repository *r);
/* Completion is reported by the loop: sy_repository_call_woken, sy_repository_run_callbacks. */
void sy_repository_run_callbacks_soon(struct sy_repository *r);
/* Waiters for the model are called by the next sy_repository_call_woken. */
void sy_repository_wake(struct sy_repository_model *model);
void sy_repository_call_woken(struct sy_repository *r);
int sy_repository_park(struct sy_repository_model *model, struct sy_repository_wait *wait);

/* ---- repository_apply.c ---- */
enum sy_scan_reason { SY_SCAN_AT_START, SY_SCAN_BY_POLL, SY_SCAN_BY_LOAD };
/* Takes configuration and versions over, and begins to load what the reason asks for. */
int sy_repository_apply(struct sy_repository_model *model, struct sy_scanned_model *scanned,
                        enum sy_scan_reason reason, bool config_is_given);
/* A model whose folder is gone. */
void sy_repository_forget(struct sy_repository_model *model);
bool sy_repository_is_startup(const struct sy_repository *r, const char *name);
/* Before a configuration that came with a load is applied; `before` is freed by its config. */
void sy_repository_config_remember(struct sy_repository_model *model,
                                   struct sy_repository_config_before *before);
/* The load has failed: restores the model's configuration (R7). */
void sy_repository_config_restore(struct sy_repository_model *model,
                                  const struct sy_scanned_model *scanned,
                                  struct sy_repository_config_before *before);

/* ---- repository_load.c ---- */
/* A version rests: continues loads that waited for it. May free the model. */
void sy_repository_version_settled(struct sy_repository_version *v);
/* Ends the model's running load if all its versions rest, and begins the next. May free the model. */
void sy_repository_loads_check(struct sy_repository_model *model);
/* Reads the folder for the first time, and begins to load what is loaded at start. */
int sy_repository_begin(struct sy_repository *r);
/* Calls `done` of loads that are over, and `started`. */
void sy_repository_run_callbacks(struct sy_repository *r);
int sy_repository_poll(struct sy_repository *r);
/* After poll_ns. */
void sy_repository_poll_later(struct sy_repository *r);
void sy_repository_loads_drop(struct sy_repository *r);
/* Loads of the model that wait end with SY_OK: unload came behind them. */
void sy_repository_loads_overtaken(struct sy_repository_model *model);

/* ---- repository_version.c ---- */
/* Serves the version, as its folder is now. */
void sy_repository_version_want(struct sy_repository_version *v);
/* No longer serves it. */
void sy_repository_version_drop(struct sy_repository_version *v);
bool sy_repository_version_is_busy(const struct sy_repository_version *v); /* is on its way */

/* ---- repository_task.c ---- */
/* status < 0: it failed, because of `why`; else `event` is what comes next. On the loop. May free the version. */
typedef void (*sy_version_task_ended)(struct sy_repository_version *v, int status, const char *why,
                                      enum sy_version_event event);
/* Each calls `ended` later, once, unless the repository stops before. */
int sy_repository_inspect(struct sy_repository_version *v, sy_version_task_ended ended);
int sy_repository_open(struct sy_repository_version *v, sy_version_task_ended ended);

/* ---- repository_warmup.c ---- */
/* done(ctx, status, error) comes later, once. files: what the configuration names, taken over unless it fails; ref: taken over. */
int sy_warmup_start(const struct sy_front *front, struct sy_model_config *config,
                    struct sy_warmup_files *files, struct sy_core_model_ref *ref, sy_core_done done,
                    void *ctx, struct sy_warmup **out);
void sy_warmup_stop(struct sy_warmup *warmup); /* done comes early */
/* done does not come any more: it ends by itself, at the latest when the core goes. NULL is fine. */
void sy_warmup_abandon(struct sy_warmup *warmup);

#endif
