/* The section "data" of a job file: which data set, and what is done to it (keys: examples/training/README.md). */
#ifndef SY_WORKERS_JOB_JOB_DATA_H
#define SY_WORKERS_JOB_JOB_DATA_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum sy_data_kind {
    SY_DATA_IDX,
    SY_DATA_NPY,
    SY_DATA_CSV,
    SY_DATA_TEXT,
    SY_DATA_IMAGES,
    SY_DATA_SYNTHETIC
};

enum sy_text_split { SY_SPLIT_LINES, SY_SPLIT_FILES, SY_SPLIT_WINDOWS };

#define SY_DATA_MAX_INPUTS 16

/* Where one of the model's inputs comes from. */
enum sy_data_from {
    SY_FROM_SAMPLE, /* content by kind: pixels, arrays, columns, bytes, random numbers */
    SY_FROM_CONSTANT,
    SY_FROM_MASK,     /* 1 where the sample has something, 0 behind its end */
    SY_FROM_LENGTH,   /* how many those are */
    SY_FROM_POSITIONS /* 0, 1, 2 ... */
};

struct sy_data_field {
    char *input; /* its name in the model; NULL: the only one */
    enum sy_data_from from;
    double constant;
    char *file[2];  /* npy */
    char **columns; /* csv; NULL: `features` */
};

/* Paths and counts come in pairs: [0] for training, [1] for the test set; no second one: NULL, 0. */
struct sy_data_spec {
    enum sy_data_kind kind;
    char *inputs[2];              /* idx: images; csv, text: the file */
    struct sy_data_field *fields; /* one for each input that `data.inputs` names; none: one input */
    int n_fields;
    char *labels[2];            /* idx, npy */
    char *folder[2];            /* text, images: a class a subfolder (text: or file) */
    char *label;                /* csv: the label's column */
    char **features;            /* csv: columns, NULL: all others */
    char *separator;            /* csv: NULL: a comma */
    bool has_header;            /* csv */
    bool standardize;           /* csv: each feature by the training set's mean and deviation */
    enum sy_text_split split;   /* text in folders */
    uint64_t ngram, vocabulary; /* text: > 1: hashed byte n-grams; both text and synthetic */
    uint64_t samples[2];        /* synthetic */
    double noise;               /* synthetic */
    double mean, std;           /* idx, npy, images */
    double holdout;             /* share of the training set that is kept out as the test set */
    bool shuffle;
    uint64_t seed; /* the job's */
};

/* Checks and takes the section; on failure what was taken is freed by sy_job_data_free. EARG names the key. */
int sy_job_data_take(const json_t *object, uint64_t seed, struct sy_data_spec *out);
void sy_job_data_free(struct sy_data_spec *spec);
bool sy_job_data_has_test(const struct sy_data_spec *spec);
/* For each path of the section: change(object, name, context). */
void sy_job_data_each_path(json_t *object,
                           void (*change)(json_t *object, const char *name, void *context),
                           void *context);
/* Takes out what does not decide the weights: the test set. */
void sy_job_data_drop_test(json_t *object);

#endif
