/* Shared by the readers. Private to data_*.c and train_data.c. */
#ifndef SY_WORKERS_DATA_DATA_INTERNAL_H
#define SY_WORKERS_DATA_DATA_INTERNAL_H

#include "workers/data/train_data.h"

/* The readers: as sy_data_source_open. */
typedef int sy_data_open(const struct sy_data_spec *spec, const struct sy_data_want *want,
                         struct sy_data_source *training, struct sy_data_source **out);
sy_data_open sy_data_idx_open, sy_data_npy_open, sy_data_csv_open, sy_data_text_open,
    sy_data_images_open, sy_data_synthetic_open;

/* A class as the loss wants it: its number, one value (a single output), or zeros with a one. EARG names source, sample and label. */
int sy_data_put_class(const struct sy_data_want *want, const char *where, uint64_t sample,
                      int64_t label, void *labels);
/* The number of classes that the outputs can represent; a single value: two. */
uint64_t sy_data_max_classes(const struct sy_data_want *want);
/* Whether the field feeds that input. */
bool sy_data_is_for(const struct sy_data_field *field, const struct sy_data_input *input);
/* Source of the model's i-th input; never NULL. */
const struct sy_data_field *sy_data_field_of(const struct sy_data_spec *spec,
                                             const struct sy_data_want *want, int i);
/* Element i of an input. */
void sy_data_put_input(const struct sy_data_input *input, uint64_t i, double value, void *to);
/* Inputs that need no reader, for a sample with `length` elements: constants, masks, lengths, positions. False: the reader fills it in. */
bool sy_data_put_given(const struct sy_data_field *field, const struct sy_data_input *input,
                       uint64_t length, void *to);
/* Elements of the largest input that the reader fills in; 0: it fills in none. */
uint64_t sy_data_longest(const struct sy_data_spec *spec, const struct sy_data_want *want);
/* ", input 'NAME'" in messages of models with several; else nothing. `text` has room for 96 bytes. */
const char *sy_data_input_text(const struct sy_data_want *want, int i, char *text);
/* splitmix64's finisher: each bit of the result depends on each of the input. */
uint64_t sy_data_mix(uint64_t z);

/* ---- a folder's entries ---------------------------------------------------------------------------- */

#define SY_DATA_MAX_FILES 10000000u

struct sy_data_names {
    char **names;
    uint64_t n;
};

enum sy_data_entries {
    SY_DATA_FOLDERS,
    SY_DATA_FILES,
    SY_DATA_FILES_BELOW, /* and those in its folders, theirs and so on, as "folder/name" */
};

/* Entries of a folder, sorted by name, hidden ones left out. ENOTFOUND, EIO; ETOOBIG over SY_DATA_MAX_FILES; EARG for a link to a folder
 * that it is in. */
int sy_data_list(const char *folder, enum sy_data_entries wanted, struct sy_data_names *out);
/* Appends a copy; errors name `folder`. */
int sy_data_names_add(struct sy_data_names *names, const char *folder, const char *name);
void sy_data_names_free(struct sy_data_names *names);
/* "folder/name", malloc'd; NULL without memory. */
char *sy_data_path(const char *folder, const char *name);
/* Its number, or -1. */
int64_t sy_data_names_find(const struct sy_data_names *names, const char *name);

#endif
