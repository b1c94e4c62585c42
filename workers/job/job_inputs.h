/* The keys "data.inputs" and "data.test_inputs" of a job file: where each of a model's inputs comes from.
 *
 *   "inputs": "x.npy"                                            npy, a model with one input
 *   "inputs": {"input_ids": "text", "attention_mask": "mask"}    a word of the kind, a path (npy), columns (csv), or a number
 *
 * Private to job*.c. */
#ifndef SY_WORKERS_JOB_JOB_INPUTS_H
#define SY_WORKERS_JOB_JOB_INPUTS_H

#include "workers/job/job_data.h"

/* Into spec->fields, spec->kind being known. EARG names key and input; what was taken is freed by sy_job_inputs_free. */
int sy_job_inputs_take(const json_t *object, struct sy_data_spec *spec);
void sy_job_inputs_free(struct sy_data_spec *spec);
/* As sy_job_data_each_path, of the paths in these keys. */
void sy_job_inputs_each_path(json_t *object,
                             void (*change)(json_t *object, const char *name, void *context),
                             void *context);

#endif
