/* The models that a worker knows: opened packages, their cut into groups, and programs by batch size. */
#ifndef SY_WORKERS_WORKER_MODELS_H
#define SY_WORKERS_WORKER_MODELS_H

#include <stdint.h>

#include "loader/engine.h"
#include "loader/package.h"

#define SY_MODEL_MAX_PROGRAMS 8 /* batch sizes kept a model; the least recently used goes */

struct sy_worker_model {
    struct sy_package *package;
    int *group_layers;
    int n_groups;
};

struct sy_worker_models;

int sy_worker_models_create(const struct sy_engine_ops *engine, struct sy_worker_models **out);
void sy_worker_models_destroy(struct sy_worker_models *models);

/* Opens the package. EARG: id taken or out of range, or cuts that do not ascend from 0. */
int sy_worker_models_add(struct sy_worker_models *models, uint64_t id, const char *path,
                         const uint64_t *group_layers, size_t n_groups);
int sy_worker_models_regroup(struct sy_worker_models *models, uint64_t id,
                             const uint64_t *group_layers, size_t n_groups);
void sy_worker_models_drop(struct sy_worker_models *models, uint64_t id); /* unknown ids are fine */
/* ENOTFOUND names the id. */
int sy_worker_models_find(struct sy_worker_models *models, uint64_t id,
                          struct sy_worker_model **out);
/* The program for this batch size, made if it is not there. Borrowed until the next call for this model. */
int sy_worker_models_program(struct sy_worker_models *models, uint64_t id, uint64_t batch,
                             struct sy_program **out);

#endif
