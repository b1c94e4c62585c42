/* The models that a worker knows: opened packages, their cut into groups, and programs by batch and sizes. */
#ifndef SY_WORKERS_PROCESS_WORKER_MODELS_H
#define SY_WORKERS_PROCESS_WORKER_MODELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loader/graph/engine.h"
#include "loader/package/package.h"
#include "runtime/base/clock.h"

/* Programs of one model, beside those with `keep` set; the least recently used is dropped. A text model alternates between lengths. */
#define SY_MODEL_MAX_PROGRAMS 16
#define SY_MODEL_MAX_KEPT     8
/* Limit of host memory for the programs of all models, besides those with `keep`: a text model's takes some 0.4 MB, ResNet-152's 3 MB. */
#define SY_MODELS_PROGRAM_BYTES (256ull << 20)

struct sy_worker_model {
    struct sy_package *package;
    int *group_layers;
    int n_groups;
};

/* The program of one batch size and one set of open sizes. */
struct sy_worker_program {
    struct sy_program *program;
    const struct sy_graph *graph; /* with these sizes */
    sy_ns took_ns;                /* to make it now; 0: it was made before */
};

struct sy_worker_models;

/* program_bytes: SY_MODELS_PROGRAM_BYTES; less in tests. One program is allowed whatever its size. */
int sy_worker_models_create(const struct sy_engine_ops *engine, uint64_t program_bytes,
                            struct sy_worker_models **out);
/* Programs that are prepared and found from now on are for a team of this many threads. */
void sy_worker_models_set_team(struct sy_worker_models *models, int team);
void sy_worker_models_destroy(struct sy_worker_models *models);

/* fd: the package's file, taken over, also on failure; `path` is for error texts. EARG: id taken or out of range, or cuts that do not ascend from 0. */
int sy_worker_models_add(struct sy_worker_models *models, uint64_t id, int fd, const char *path,
                         const uint64_t *group_layers, size_t n_groups);
int sy_worker_models_regroup(struct sy_worker_models *models, uint64_t id,
                             const uint64_t *group_layers, size_t n_groups);
void sy_worker_models_drop(struct sy_worker_models *models, uint64_t id); /* unknown ids are fine */
/* ENOTFOUND names the id. */
int sy_worker_models_find(struct sy_worker_models *models, uint64_t id,
                          struct sy_worker_model **out);
/* The program for this batch and these sizes (of the graph's symbols; n_sizes 0: the usual ones), made if there is none; keep: until the model is
 * dropped. Borrowed until the next call. EARG: sizes that the model cannot have. */
int sy_worker_models_program(struct sy_worker_models *models, uint64_t id, uint64_t batch,
                             const uint64_t *sizes, size_t n_sizes, bool keep,
                             struct sy_worker_program *out);
/* Bytes of the programs that are not kept. */
uint64_t sy_worker_models_program_bytes(const struct sy_worker_models *models);
int sy_worker_models_n_programs(const struct sy_worker_models *models); /* kept ones too */

#endif
