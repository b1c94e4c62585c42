/* Data sets of jobs for tests: files in a folder of the test's own, and data sets opened over them. */
#ifndef SY_TESTS_RIGS_DATA_RIG_H
#define SY_TESTS_RIGS_DATA_RIG_H

#include "workers/data/train_data.h"
#include "workers/job/job_data.h"

/* The places of a network's one input. */
#define ONE(place) ((void *[]){place})

/* A cmocka group's setup and teardown. */
int make_data_folder(void **state);
int remove_data_folder(void **state);

/* In the folder. One of eight places: the next calls write over it. */
char *path_of(const char *name);
char *write_bytes(const char *name, const void *bytes, size_t n);
char *write_text(const char *name, const char *text);

/* What a network of one input takes: numbers, or indices (int64); and one class a sample. */
struct sy_data_want want_numbers(int64_t n_inputs, int64_t n_classes);
struct sy_data_want want_indices(int64_t n_inputs, int64_t n_classes);

/* A section "data" as a job file has it, with ' for "; finish with sy_job_data_free. */
struct sy_data_spec spec_of(const char *format, ...);
void open_data(const struct sy_data_spec *spec, const struct sy_data_want *want,
               struct sy_train_data *data);
/* Opens, closes, and gives what was written to stderr meanwhile; good until the next call. */
char *warned_by(const struct sy_data_spec *spec, const struct sy_data_want *want);
/* Refused with this status, and a text that names `part`. Finishes `spec`. */
void check_refused(struct sy_data_spec spec, struct sy_data_want want, int status,
                   const char *part);

#endif
