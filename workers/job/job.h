/* The job file: what to train, on what, how (keys: examples/training/README.md). JSON.
 *
 * The file's text travels to another process, so the command line sends it normalized: absolute paths, all keys checked. */
#ifndef SY_WORKERS_JOB_JOB_H
#define SY_WORKERS_JOB_JOB_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "workers/engine/trainer.h"
#include "workers/job/job_data.h"

struct sy_job {
    char *name;               /* of the snapshots too: letters, digits, '.', '_', '-' */
    char *model;              /* .onnx; as all paths absolute after sy_job_load */
    char *output;             /* output that the loss is computed from; NULL: the only one */
    struct sy_onnx_dim *dims; /* sizes of the model's symbolic dimensions */
    int n_dims;
    char *snapshot_folder;         /* NULL: no snapshots */
    uint64_t snapshot_every_steps; /* 0: not by steps */
    double snapshot_every_s;       /* 0: not by time */
    uint64_t epochs, max_steps;    /* max_steps 0: no limit */
    double target_accuracy;        /* watchers are told when the end is below it; 0: none */
    uint64_t evaluate_every_steps; /* on the test set; 0: at the end only */
    uint64_t seed;
    uint64_t ranks;     /* processes that train it together; their owner is who starts them */
    uint64_t staleness; /* iterations that they may be apart (train_exchange.h); 0: none */
    enum sy_exchange_way exchange; /* how ranks' gradients travel */
    bool opportunistic;            /* class */
    struct sy_data_spec data;
    struct sy_train_options options;
    /* of everything that decides the weights after N steps; epochs, limits, snapshots are not in it */
    uint64_t hash;
};

/* Reads and checks the file; relative paths are taken from its folder. *text is normalized JSON, malloc'd. EARG names key and file,
 * and for an unknown key the nearest known one; ENOTFOUND, EIO for the file. */
int sy_job_load(const char *path, char **text);
/* Fills in *job from JSON text; sy_job_finish frees what it points to (also fine on a zeroed job). */
int sy_job_parse(const char *text, struct sy_job *job);
void sy_job_finish(struct sy_job *job);
/* Calls `change` for each key of a job's JSON that holds a path, also where it is missing: its object and its name. */
void sy_job_each_path(json_t *root, void (*change)(json_t *object, const char *name, void *ctx),
                      void *ctx);

#endif
