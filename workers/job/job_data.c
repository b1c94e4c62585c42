#include "workers/job/job_data.h"

#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/job/job_inputs.h"
#include "workers/job/job_keys.h"

#define AT(member) offsetof(struct sy_data_spec, member)
#define IDX        KEY_OF(SY_DATA_IDX)
#define NPY        KEY_OF(SY_DATA_NPY)
#define CSV        KEY_OF(SY_DATA_CSV)
#define TEXT       KEY_OF(SY_DATA_TEXT)
#define IMAGES     KEY_OF(SY_DATA_IMAGES)
#define SYNTHETIC  KEY_OF(SY_DATA_SYNTHETIC)

static const struct key keys[] = {
    {"data", "kind", KIND_TEXT, 0, SIZE_MAX, 0, 0, 0},
    {"data", "images", KIND_PATH, KEY_NEEDED | IDX, AT(inputs[0]), 0, 0, 0},
    {"data", "labels", KIND_PATH, KEY_NEEDED | IDX | NPY, AT(labels[0]), 0, 0, 0},
    {"data", "test_images", KIND_PATH, IDX, AT(inputs[1]), 0, 0, 0},
    {"data", "test_labels", KIND_PATH, IDX | NPY, AT(labels[1]), 0, 0, 0},
    {"data", "inputs", KIND_OWN, 0, SIZE_MAX, 0, 0, 0},
    {"data", "test_inputs", KIND_OWN, NPY, SIZE_MAX, 0, 0, 0},
    {"data", "file", KIND_PATH, CSV | TEXT, AT(inputs[0]), 0, 0, 0},
    {"data", "test_file", KIND_PATH, CSV | TEXT, AT(inputs[1]), 0, 0, 0},
    {"data", "folder", KIND_PATH, TEXT | IMAGES, AT(folder[0]), 0, 0, 0},
    {"data", "test_folder", KIND_PATH, TEXT | IMAGES, AT(folder[1]), 0, 0, 0},
    {"data", "label", KIND_TEXT, KEY_NEEDED | CSV, AT(label), 0, 0, 0},
    {"data", "features", KIND_TEXTS, CSV, AT(features), 0, 0, 0},
    {"data", "separator", KIND_TEXT, CSV, AT(separator), 0, 0, 0},
    {"data", "header", KIND_FLAG, CSV, AT(has_header), 0, 0, 1},
    {"data", "standardize", KIND_FLAG, CSV, AT(standardize), 0, 0, 0},
    {"data", "split", KIND_TEXT, TEXT, SIZE_MAX, 0, 0, 0},
    {"data", "ngram", KIND_COUNT, TEXT, AT(ngram), 1, 16, 1},
    {"data", "vocabulary", KIND_COUNT, TEXT | SYNTHETIC, AT(vocabulary), 2, 1 << 24, 256},
    {"data", "samples", KIND_COUNT, SYNTHETIC, AT(samples[0]), 1, 1e9, 1024},
    {"data", "test_samples", KIND_COUNT, SYNTHETIC, AT(samples[1]), 0, 1e9, 0},
    {"data", "noise", KIND_NUMBER, SYNTHETIC, AT(noise), 0, 1e6, 1},
    {"data", "mean", KIND_NUMBER, IDX | NPY | IMAGES, AT(mean), -1e6, 1e6, 0},
    {"data", "std", KIND_NUMBER, IDX | NPY | IMAGES, AT(std), 1e-9, 1e6, 1},
    {"data", "holdout", KIND_NUMBER, 0, AT(holdout), 0, 0.9, 0},
    {"data", "shuffle", KIND_FLAG, 0, AT(shuffle), 0, 0, 1},
};

static int check_pairs(const struct sy_data_spec *spec)
{
    if (spec->kind == SY_DATA_IDX && !spec->inputs[1] != !spec->labels[1])
        return sy_error_set(SY_EARG, "job: 'data.test_images' and 'data.test_labels' go together");
    if (spec->kind == SY_DATA_CSV && !spec->inputs[0])
        return sy_error_set(SY_EARG, "job: 'data.file' is missing");
    if (spec->kind == SY_DATA_IMAGES && !spec->folder[0])
        return sy_error_set(SY_EARG, "job: 'data.folder' is missing");
    if (spec->kind == SY_DATA_TEXT &&
        (!spec->inputs[0] == !spec->folder[0] || (spec->inputs[1] && !spec->inputs[0]) ||
         (spec->folder[1] && !spec->folder[0])))
        return sy_error_set(SY_EARG, "job: text is either 'data.folder' (classes) or 'data.file' "
                                     "(what comes next), and its test set is of the same kind");
    if (spec->holdout > 0.0 && sy_job_data_has_test(spec))
        return sy_error_set(SY_EARG,
                            "job: 'data.holdout' makes the test set; there is one already");
    if (spec->kind == SY_DATA_TEXT && spec->ngram == 1 && spec->vocabulary != 256)
        return sy_error_set(SY_EARG,
                            "job: 'data.vocabulary' is of n-grams; with 'data.ngram' 1 a text is "
                            "bytes, of which there are 256");
    if (spec->separator && strlen(spec->separator) != 1)
        return sy_error_set(SY_EARG, "job: 'data.separator' is '%s'; one character",
                            spec->separator);
    return SY_OK;
}

int sy_job_data_take(const json_t *object, uint64_t seed, struct sy_data_spec *spec)
{
    static const char *const kinds[] = {"idx", "npy", "csv", "text", "images", "synthetic", NULL};
    static const char *const splits[] = {"lines", "files", "windows", NULL};
    int at;
    SY_TRY(sy_job_keys_choose("data", "kind", json_object_get(object, "kind"), kinds, &at));
    spec->kind = (enum sy_data_kind)at;
    SY_TRY(sy_job_keys_check(keys, SY_ARRAY_LEN(keys), "data", at, object));
    for (size_t i = 0; i < SY_ARRAY_LEN(keys); i++)
        if (sy_job_keys_has(&keys[i], at))
            SY_TRY(sy_job_keys_take(&keys[i], json_object_get(object, keys[i].name), spec));
    SY_TRY(sy_job_keys_choose("data", "split", json_object_get(object, "split"), splits, &at));
    spec->split = (enum sy_text_split)at;
    spec->seed = seed;
    SY_TRY(sy_job_inputs_take(object, spec));
    return check_pairs(spec);
}

void sy_job_data_free(struct sy_data_spec *spec)
{
    sy_job_keys_free(keys, SY_ARRAY_LEN(keys), spec);
    sy_job_inputs_free(spec);
}

bool sy_job_data_has_test(const struct sy_data_spec *spec)
{
    return spec->inputs[1] || spec->folder[1] || spec->samples[1] || spec->labels[1];
}

void sy_job_data_each_path(json_t *object,
                           void (*change)(json_t *object, const char *name, void *context),
                           void *context)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(keys); i++)
        if (keys[i].kind == KIND_PATH)
            change(object, keys[i].name, context);
    sy_job_inputs_each_path(object, change, context);
}

void sy_job_data_drop_test(json_t *object)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(keys); i++)
        if (!strncmp(keys[i].name, "test_", 5))
            json_object_del(object, keys[i].name);
}
