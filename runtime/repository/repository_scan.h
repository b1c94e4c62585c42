/* The current content of a repository's folder. Reads names, sizes, times and configurations, no model. Blocks: for a thread beside the loop.
 *
 * S1: a model is a folder whose name the core takes, with a folder named by a number from 1 on, without leading zeros, or with a config.pbtxt. What
 *     else lies there is named in `ignored`.
 * S2: links are followed: a model, a version or a file may be one.
 * S3: a stamp is another number whenever a file of its source was written, replaced, added or taken away. */
#ifndef SY_REPOSITORY_SCAN_H
#define SY_REPOSITORY_SCAN_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/repository/model_config.h"

#define SY_SCAN_MOST_MODELS 65536

struct sy_scanned_version {
    int64_t version;
    uint64_t
        source_stamp; /* of all that the model's file may refer to; 0: there is no model.onnx */
    uint64_t package_stamp; /* 0: there is no package */
};

struct sy_scanned_model {
    char *name;
    uint64_t config_stamp;          /* 0: no config.pbtxt */
    struct sy_model_config *config; /* NULL: it is refused, see status and error */
    int status;
    char error[512];
    int n_versions; /* ascending */
    struct sy_scanned_version versions[SY_MOST_VERSIONS];
};

struct sy_scan {
    int n;
    struct sy_scanned_model *models; /* by name */
    char ignored[512];               /* "a, b/c" */
};

/* EIO: the folder itself cannot be read. sy_scan_finish frees what *out has. */
int sy_repository_scan(const char *folder, struct sy_scan *out);
void sy_scan_finish(struct sy_scan *scan); /* a zeroed one is fine */
/* One model. config: JSON in the place of config.pbtxt, or NULL. ENOTFOUND: no such model. */
int sy_repository_scan_model(const char *folder, const char *name, const char *config,
                             struct sy_scanned_model *out);
void sy_scanned_model_finish(struct sy_scanned_model *model); /* a zeroed one is fine */

/* FOLDER/NAME/VERSION/... of the model's source and package. EARG: longer than a path can be. */
int sy_repository_source_path(const char *folder, const char *name, int64_t version,
                              const char *model_file, char out[PATH_MAX]);
int sy_repository_package_path(const char *folder, const char *name, int64_t version,
                               char out[PATH_MAX]);
/* The stamp that an open package's file has. */
uint64_t sy_repository_file_stamp(int fd);

#endif
