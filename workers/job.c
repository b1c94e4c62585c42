#include "workers/job.h"

#include <errno.h>
#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"

/* ---- the keys ----------------------------------------------------------------------------------- */

enum kind { KIND_TEXT, KIND_PATH, KIND_COUNT, KIND_NUMBER, KIND_OBJECT };

struct key {
    const char *section; /* "" at the top */
    const char *name;
    enum kind kind;
    int is_needed;
    size_t offset; /* in struct sy_job */
    double low, high;
    double otherwise;
};

#define AT(member) offsetof(struct sy_job, member)
#define HUGE_COUNT 9007199254740992.0

static const struct key keys[] = {
    {"", "name", KIND_TEXT, 1, AT(name), 0, 0, 0},
    {"", "model", KIND_PATH, 1, AT(model), 0, 0, 0},
    {"", "loss", KIND_TEXT, 0, SIZE_MAX, 0, 0, 0},
    {"", "optimizer", KIND_OBJECT, 1, SIZE_MAX, 0, 0, 0},
    {"", "data", KIND_OBJECT, 1, SIZE_MAX, 0, 0, 0},
    {"", "snapshot", KIND_OBJECT, 0, SIZE_MAX, 0, 0, 0},
    {"", "batch", KIND_COUNT, 0, AT(options.batch), 1, 65536, 64},
    {"", "epochs", KIND_COUNT, 0, AT(epochs), 1, 1e9, 1},
    {"", "max_steps", KIND_COUNT, 0, AT(max_steps), 0, HUGE_COUNT, 0},
    {"", "seed", KIND_COUNT, 0, AT(seed), 0, HUGE_COUNT, 0},
    {"", "tenant", KIND_TEXT, 0, SIZE_MAX, 0, 0, 0},            /* the runtime's */
    {"", "priority", KIND_NUMBER, 0, SIZE_MAX, -1000, 1000, 0}, /* the runtime's */
    {"optimizer", "kind", KIND_TEXT, 0, SIZE_MAX, 0, 0, 0},
    {"optimizer", "learning_rate", KIND_NUMBER, 1, AT(options.learning_rate), 0, 1e6, 0},
    {"optimizer", "momentum", KIND_NUMBER, 0, AT(options.momentum), 0, 1, 0},
    {"optimizer", "weight_decay", KIND_NUMBER, 0, AT(options.weight_decay), 0, 1e6, 0},
    {"optimizer", "beta1", KIND_NUMBER, 0, AT(options.beta1), 0, 0.9999999, 0.9},
    {"optimizer", "beta2", KIND_NUMBER, 0, AT(options.beta2), 0, 0.9999999, 0.999},
    {"optimizer", "epsilon", KIND_NUMBER, 0, AT(options.epsilon), 1e-30, 1, 1e-8},
    {"data", "kind", KIND_TEXT, 0, SIZE_MAX, 0, 0, 0},
    {"data", "images", KIND_PATH, 1, AT(images), 0, 0, 0},
    {"data", "labels", KIND_PATH, 1, AT(labels), 0, 0, 0},
    {"data", "test_images", KIND_PATH, 0, AT(test_images), 0, 0, 0},
    {"data", "test_labels", KIND_PATH, 0, AT(test_labels), 0, 0, 0},
    {"data", "mean", KIND_NUMBER, 0, AT(mean), -1e6, 1e6, 0},
    {"data", "std", KIND_NUMBER, 0, AT(std), 1e-9, 1e6, 1},
    {"snapshot", "folder", KIND_PATH, 1, AT(snapshot_folder), 0, 0, 0},
    {"snapshot", "every_steps", KIND_COUNT, 0, AT(snapshot_every_steps), 0, HUGE_COUNT, 0},
    {"snapshot", "every_seconds", KIND_NUMBER, 0, AT(snapshot_every_s), 0, 1e9, 0},
};

/* Letters to change to make one word the other. Words are at most 63 long here. */
static int distance(const char *a, const char *b)
{
    int row[64], n = (int)strnlen(b, 63);
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; *a && i < 64; i++, a++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int change = diagonal + (*a != b[j - 1]);
            diagonal = row[j];
            row[j] = SY_MIN(change, SY_MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[n];
}

static const struct key *find_key(const char *section, const char *name, const char **nearest)
{
    int best = INT_MAX;
    for (size_t i = 0; i < SY_ARRAY_LEN(keys); i++) {
        if (strcmp(keys[i].section, section))
            continue;
        int d = distance(name, keys[i].name);
        if (d == 0)
            return &keys[i];
        if (d < best) {
            best = d;
            *nearest = keys[i].name;
        }
    }
    return NULL;
}

static const char *dot(const char *section)
{
    return *section ? "." : "";
}

static int check_known(const char *section, const json_t *object)
{
    const char *name, *nearest = "";
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        if (!find_key(section, name, &nearest))
            return sy_error_set(SY_EARG, "job: unknown key '%s%s%s'; did you mean '%s%s%s'?",
                                section, dot(section), name, section, dot(section), nearest);
    }
    return SY_OK;
}

/* ---- values ------------------------------------------------------------------------------------- */

static int take_text(const struct key *key, const json_t *value, struct sy_job *job)
{
    if (!json_is_string(value) || !*json_string_value(value))
        return sy_error_set(SY_EARG, "job: '%s%s%s' must be a text", key->section,
                            dot(key->section), key->name);
    if (key->offset == SIZE_MAX)
        return SY_OK;
    char *copy = strdup(json_string_value(value));
    if (!copy)
        return sy_error_set(SY_ENOMEM_HOST, "job: no room for '%s'", key->name);
    *(char **)(void *)((char *)job + key->offset) = copy;
    return SY_OK;
}

static int take_number(const struct key *key, const json_t *value, struct sy_job *job)
{
    double number = value ? json_number_value(value) : key->otherwise;
    if (value && (!json_is_number(value) || !(number >= key->low && number <= key->high) ||
                  (key->kind == KIND_COUNT && !json_is_integer(value))))
        return sy_error_set(
            SY_EARG, "job: '%s%s%s' must be a %s from %g to %g", key->section, dot(key->section),
            key->name, key->kind == KIND_COUNT ? "whole number" : "number", key->low, key->high);
    if (key->offset == SIZE_MAX)
        return SY_OK;
    void *to = (char *)job + key->offset;
    if (key->kind == KIND_COUNT)
        *(uint64_t *)to =
            (uint64_t)(value ? json_integer_value(value) : (json_int_t)key->otherwise);
    else
        *(double *)to = number;
    return SY_OK;
}

static int take_key(const struct key *key, const json_t *value, struct sy_job *job)
{
    if (!value && key->is_needed)
        return sy_error_set(SY_EARG, "job: '%s%s%s' is missing", key->section, dot(key->section),
                            key->name);
    switch (key->kind) {
    case KIND_OBJECT:
        if (value && !json_is_object(value))
            return sy_error_set(SY_EARG, "job: '%s' must be an object in braces", key->name);
        return value ? check_known(key->name, value) : SY_OK;
    case KIND_TEXT:
    case KIND_PATH:
        return value ? take_text(key, value, job) : SY_OK;
    default:
        return take_number(key, value, job);
    }
}

static const json_t *lookup(const json_t *root, const char *section, const char *name)
{
    return json_object_get(*section ? json_object_get(root, section) : root, name);
}

/* One of a few words; the first is the default. */
static int take_choice(const json_t *root, const char *section, const char *name,
                       const char *const *words, int *out)
{
    const char *text = json_string_value(lookup(root, section, name));
    *out = 0;
    if (!text)
        return SY_OK;
    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], text)) {
            *out = i;
            return SY_OK;
        }
    return sy_error_set(SY_EARG, "job: '%s%s%s' is '%s'; known: '%s'%s%s%s", section, dot(section),
                        name, text, words[0], words[1] ? " and '" : "", words[1] ? words[1] : "",
                        words[1] ? "'" : "");
}

static int take_choices(const json_t *root, struct sy_job *job)
{
    static const char *const losses[] = {"softmax_cross_entropy", "mse", NULL};
    static const char *const optimizers[] = {"sgd", "adam", NULL};
    static const char *const data[] = {"idx", NULL};
    int at;
    SY_TRY(take_choice(root, "", "loss", losses, &at));
    job->options.loss = at == 0 ? SY_LOSS_SOFTMAX_CROSS_ENTROPY : SY_LOSS_MSE;
    SY_TRY(take_choice(root, "optimizer", "kind", optimizers, &at));
    job->options.optimizer = at == 0 ? SY_OPTIMIZER_SGD : SY_OPTIMIZER_ADAM;
    return take_choice(root, "data", "kind", data, &at);
}

static int check_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    if (name[n] || name[0] == '.' || n > 100)
        return sy_error_set(
            SY_EARG,
            "job: name '%s': at most 100 letters, digits, '.', '_' and '-', as it names files",
            name);
    return SY_OK;
}

/* A moved folder is the same job: paths count by their last part. */
static void keep_last_part(json_t *object, const char *name)
{
    const char *path = json_string_value(json_object_get(object, name));
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (slash)
        json_object_set_new(object, name, json_string(slash + 1));
}

/* The keys that decide the weights. */
static uint64_t hash_of(const json_t *root)
{
    json_t *copy = json_deep_copy(root);
    keep_last_part(copy, "model");
    keep_last_part(json_object_get(copy, "data"), "images");
    keep_last_part(json_object_get(copy, "data"), "labels");
    const char *outside[] = {"epochs", "max_steps", "snapshot", "name", "tenant", "priority"};
    for (size_t i = 0; i < SY_ARRAY_LEN(outside); i++)
        json_object_del(copy, outside[i]);
    json_object_del(json_object_get(copy, "data"), "test_images");
    json_object_del(json_object_get(copy, "data"), "test_labels");
    char *text = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t hash = text ? XXH3_64bits(text, strlen(text)) : 0;
    free(text);
    json_decref(copy);
    return hash;
}

static int take_all(const json_t *root, struct sy_job *job)
{
    SY_TRY(check_known("", root));
    for (size_t i = 0; i < SY_ARRAY_LEN(keys); i++)
        if (!*keys[i].section || json_object_get(root, keys[i].section))
            SY_TRY(take_key(&keys[i], lookup(root, keys[i].section, keys[i].name), job));
    SY_TRY(take_choices(root, job));
    SY_TRY(check_name(job->name));
    if (!job->test_images != !job->test_labels)
        return sy_error_set(SY_EARG, "job: 'data.test_images' and 'data.test_labels' go together");
    job->hash = hash_of(root);
    return SY_OK;
}

static int parse_json(const char *text, json_t **out)
{
    json_error_t error;
    *out = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!*out)
        return sy_error_set(SY_EARG, "job: line %d, column %d: %s", error.line, error.column,
                            error.text);
    if (json_is_object(*out))
        return SY_OK;
    json_decref(*out);
    return sy_error_set(SY_EARG, "job: must be an object in braces");
}

int sy_job_parse(const char *text, struct sy_job *job)
{
    json_t *root;
    memset(job, 0, sizeof *job);
    SY_TRY(parse_json(text, &root));
    int status = take_all(root, job);
    json_decref(root);
    if (status < 0)
        sy_job_finish(job);
    return status;
}

void sy_job_finish(struct sy_job *job)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(keys); i++)
        if ((keys[i].kind == KIND_TEXT || keys[i].kind == KIND_PATH) && keys[i].offset != SIZE_MAX)
            free(*(char **)(void *)((char *)job + keys[i].offset));
    memset(job, 0, sizeof *job);
}

/* ---- the file ----------------------------------------------------------------------------------- */

static void make_absolute(json_t *object, const char *name, const char *folder)
{
    const char *path = json_string_value(json_object_get(object, name));
    if (path && *path && path[0] != '/')
        json_object_set_new(object, name, json_sprintf("%s/%s", folder, path));
}

static int folder_of(const char *path, char *out)
{
    char copy[PATH_MAX];
    if (strlen(path) >= sizeof copy)
        return sy_error_set(SY_EARG, "job file: a path of %zu bytes is too long", strlen(path));
    strcpy(copy, path);
    if (!realpath(dirname(copy), out))
        return sy_error_set(SY_ENOTFOUND, "job file '%s': %s", path, strerror(errno));
    return SY_OK;
}

static int normalize(json_t *root, const char *folder, char **text)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(keys); i++)
        if (keys[i].kind == KIND_PATH)
            make_absolute(*keys[i].section ? json_object_get(root, keys[i].section) : root,
                          keys[i].name, folder);
    *text = json_dumps(root, JSON_COMPACT);
    return *text ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "job file: no room for its text");
}

int sy_job_load(const char *path, char **text)
{
    char folder[PATH_MAX];
    json_error_t error;
    struct sy_job job;
    SY_TRY(folder_of(path, folder));
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return sy_error_set(json_error_code(&error) == json_error_cannot_open_file ? SY_ENOTFOUND
                                                                                   : SY_EARG,
                            "job file '%s': line %d: %s", path, error.line, error.text);
    int status = json_is_object(root)
                     ? normalize(root, folder, text)
                     : sy_error_set(SY_EARG, "job file '%s': must be an object in braces", path);
    json_decref(root);
    SY_TRY(status);
    status = sy_job_parse(*text, &job);
    if (status < 0) {
        free(*text);
        *text = NULL;
        return sy_error_prefix(status, "'%s'", path);
    }
    sy_job_finish(&job);
    return SY_OK;
}
