/* The files that model_warmup names in input_data_file: FOLDER/warmup/FILE, an input's raw elements, row-major and little-endian; of strings, each
 * behind its length (the Open Inference Protocol's binary form).
 *
 * W1: a file holds one row of the batch, as its dims say, without the batch: the run repeats it batch_size times.
 * W2: a file of numbers has exactly the bytes of its dims; one of strings is checked when its run starts. */
#ifndef SY_REPOSITORY_WARMUP_FILES_H
#define SY_REPOSITORY_WARMUP_FILES_H

#include <stdint.h>

#include "runtime/repository/model_config.h"

#define SY_WARMUP_MOST_BYTES (256ull << 20) /* of all files of a version */

struct sy_warmup_files;

/* Reads those that the configuration names; folder: the model's. Blocks. *out: NULL if there are none; the caller frees it. EARG: a file of another size,
 * or a path that leaves the folder; EIO: it cannot be read; ETOOBIG: over SY_WARMUP_MOST_BYTES; each names the input and the file. */
int sy_warmup_files_read(const char *folder, const struct sy_model_config *config,
                         struct sy_warmup_files **out);
void sy_warmup_files_free(struct sy_warmup_files *files); /* NULL is fine */
/* Content of config->warmups[warmup].inputs[input], valid until the files are freed. NULL: it names no file. files: NULL is fine. */
const void *sy_warmup_file(const struct sy_warmup_files *files, int warmup, int input,
                           uint64_t *bytes);

#endif
