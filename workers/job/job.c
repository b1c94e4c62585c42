#include "workers/job/job.h"

#include <errno.h>
#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "workers/job/job_keys.h"

/* ---- the keys ----------------------------------------------------------------------------------- */

#define AT(member) offsetof(struct sy_job, member)
#define HUGE_COUNT 9007199254740992.0

static const struct key keys[] = {
    {"", "name", KIND_TEXT, 1, AT(name), 0, 0, 0},
    {"", "model", KIND_PATH, 1, AT(model), 0, 0, 0},
    {"", "output", KIND_TEXT, 0, AT(output), 0, 0, 0},
    {"", "dims", KIND_OWN, 0, SIZE_MAX, 0, 0, 0},
    {"", "loss", KIND_TEXT, 0, SIZE_MAX, 0, 0, 0},
    {"", "optimizer", KIND_OBJECT, 1, SIZE_MAX, 0, 0, 0},
    {"", "data", KIND_OBJECT, 1, SIZE_MAX, 0, 0, 0},
    {"", "snapshot", KIND_OBJECT, 0, SIZE_MAX, 0, 0, 0},
    {"", "batch", KIND_COUNT, 0, AT(options.batch), 1, 65536, 64},
    {"", "ranks", KIND_COUNT, 0, AT(ranks), 1, 64, 1},
    {"", "staleness", KIND_COUNT, 0, AT(staleness), 0, 16, 0},
    {"", "exchange", KIND_TEXT, 0, SIZE_MAX, 0, 0, 0},
    {"", "accumulate", KIND_COUNT, 0, AT(options.accumulate), 1, 65536, 1},
    {"", "clip_norm", KIND_NUMBER, 0, AT(options.clip_norm), 0, 1e30, 0},
    {"", "precision", KIND_TEXT, 0, SIZE_MAX, 0, 0, 0},
    {"", "recompute", KIND_FLAG, 0, AT(options.recomputes), 0, 0, 0},
    {"", "frozen", KIND_TEXTS, 0, AT(options.frozen), 0, 0, 0},
    {"", "schedule", KIND_OBJECT, 0, SIZE_MAX, 0, 0, 0},
    {"", "epochs", KIND_COUNT, 0, AT(epochs), 1, 1e9, 1},
    {"", "max_steps", KIND_COUNT, 0, AT(max_steps), 0, HUGE_COUNT, 0},
    {"", "evaluate_every_steps", KIND_COUNT, 0, AT(evaluate_every_steps), 0, HUGE_COUNT, 0},
    {"", "target_accuracy", KIND_NUMBER, 0, AT(target_accuracy), 0, 1, 0},
    {"", "seed", KIND_COUNT, 0, AT(seed), 0, HUGE_COUNT, 0},
    {"", "class", KIND_TEXT, 0, SIZE_MAX, 0, 0, 0},            /* the runtime's */
    {"", "tenant", KIND_TEXT, 0, SIZE_MAX, 0, 0, 0},           /* the runtime's */
    {"", "slice", KIND_TEXT, 0, SIZE_MAX, 0, 0, 0},            /* the runtime's */
    {"", "priority", KIND_COUNT, 0, SIZE_MAX, -1000, 1000, 0}, /* the runtime's */
    {"optimizer", "kind", KIND_TEXT, 0, SIZE_MAX, 0, 0, 0},
    {"optimizer", "learning_rate", KIND_NUMBER, 1, AT(options.learning_rate), 0, 1e6, 0},
    {"optimizer", "momentum", KIND_NUMBER, 0, AT(options.momentum), 0, 1, 0},
    {"optimizer", "weight_decay", KIND_NUMBER, 0, AT(options.weight_decay), 0, 1e6, 0},
    {"optimizer", "beta1", KIND_NUMBER, 0, AT(options.beta1), 0, 0.9999999, 0.9},
    {"optimizer", "beta2", KIND_NUMBER, 0, AT(options.beta2), 0, 0.9999999, 0.999},
    {"optimizer", "nesterov", KIND_FLAG, 0, AT(options.is_nesterov), 0, 0, 0},
    {"optimizer", "decay", KIND_TEXT, 0, SIZE_MAX, 0, 0, 0},
    {"schedule", "kind", KIND_TEXT, 0, SIZE_MAX, 0, 0, 0},
    {"schedule", "warmup_steps", KIND_COUNT, 0, AT(options.schedule.warmup_steps), 0, HUGE_COUNT,
     0},
    {"schedule", "every_steps", KIND_COUNT, 0, AT(options.schedule.every_steps), 1, HUGE_COUNT, 1},
    {"schedule", "factor", KIND_NUMBER, 0, AT(options.schedule.factor), 0, 1e6, 0.1},
    {"schedule", "steps", KIND_COUNT, 0, AT(options.schedule.steps), 0, HUGE_COUNT, 0},
    {"schedule", "final_rate", KIND_NUMBER, 0, AT(options.schedule.final_rate), 0, 1e6, 0},
    {"optimizer", "epsilon", KIND_NUMBER, 0, AT(options.epsilon), 1e-30, 1, 1e-8},
    {"snapshot", "folder", KIND_PATH, 1, AT(snapshot_folder), 0, 0, 0},
    {"snapshot", "every_steps", KIND_COUNT, 0, AT(snapshot_every_steps), 0, HUGE_COUNT, 0},
    {"snapshot", "every_seconds", KIND_NUMBER, 0, AT(snapshot_every_s), 0, 1e9, 0},
};

static int take_key(const struct key *key, const json_t *value, struct sy_job *job)
{
    SY_TRY(sy_job_keys_take(key, value, job));
    if (key->kind != KIND_OBJECT || !value || !strcmp(key->name, "data"))
        return SY_OK;
    return sy_job_keys_check(keys, SY_ARRAY_LEN(keys), key->name, 0, value);
}

static const json_t *lookup(const json_t *root, const char *section, const char *name)
{
    return json_object_get(*section ? json_object_get(root, section) : root, name);
}

static int take_choice(const json_t *root, const char *section, const char *name,
                       const char *const *words, int *out)
{
    return sy_job_keys_choose(section, name, lookup(root, section, name), words, out);
}

static int take_choices(const json_t *root, struct sy_job *job)
{
    static const char *const classes[] = {"guaranteed", "opportunistic", NULL};
    static const char *const losses[] = {"softmax_cross_entropy", "mse", "bce", NULL};
    static const char *const optimizers[] = {"sgd", "adam", "adamw", NULL};
    static const char *const schedules[] = {"constant", "step", "cosine", "linear", NULL};
    static const char *const precisions[] = {"f32", "bf16", NULL};
    static const char *const decays[] = {"all", "weights", NULL};
    static const char *const ways[] = {
        [SY_EXCHANGE_NCCL] = "nccl", [SY_EXCHANGE_HOST] = "host", NULL};
    struct sy_train_options *o = &job->options;
    int at;
    SY_TRY(take_choice(root, "", "loss", losses, &at));
    o->loss = (enum sy_loss_kind)at;
    SY_TRY(take_choice(root, "optimizer", "kind", optimizers, &at));
    o->optimizer = (enum sy_optimizer_kind)at;
    SY_TRY(take_choice(root, "optimizer", "decay", decays, &at));
    o->spares_vectors = at == 1;
    SY_TRY(take_choice(root, "schedule", "kind", schedules, &at));
    o->schedule.kind = (enum sy_schedule_kind)at;
    SY_TRY(take_choice(root, "", "class", classes, &at));
    job->opportunistic = at == 1;
    SY_TRY(take_choice(root, "", "precision", precisions, &at));
    o->precision = (enum sy_train_precision)at;
    SY_TRY(take_choice(root, "", "exchange", ways, &at));
    job->exchange = (enum sy_exchange_way)at;
    if (o->schedule.kind >= SY_SCHEDULE_COSINE && o->schedule.steps <= o->schedule.warmup_steps)
        return sy_error_set(
            SY_EARG,
            "job: 'schedule.steps' is %llu: a %s schedule needs how many steps it takes "
            "in all, more than 'schedule.warmup_steps' (%llu)",
            (unsigned long long)o->schedule.steps, schedules[o->schedule.kind],
            (unsigned long long)o->schedule.warmup_steps);
    if (o->is_nesterov && (o->optimizer != SY_OPTIMIZER_SGD || !(o->momentum > 0.0)))
        return sy_error_set(SY_EARG, "job: 'optimizer.nesterov' goes with sgd and a momentum");
    o->seed = job->seed;
    return SY_OK;
}

/* {"sequence": 128}: sizes of dimensions that the model's file leaves open. */
static int take_dims(const json_t *dims, struct sy_job *job)
{
    const char *name;
    json_t *value;
    if (dims && !json_is_object(dims))
        return sy_error_set(SY_EARG, "job: 'dims' must be an object in braces: names and sizes");
    job->dims = calloc(json_object_size(dims) + 1, sizeof *job->dims);
    SY_TRY_ALLOC(job->dims, "job: no room for 'dims'");
    json_object_foreach((json_t *)(uintptr_t)dims, name, value)
    {
        json_int_t size = json_integer_value(value);
        if (size < 1 || size > INT32_MAX)
            return sy_error_set(SY_EARG, "job: 'dims.%s' must be a whole number from 1 to %d", name,
                                INT32_MAX);
        char *copy = strdup(name);
        SY_TRY_ALLOC(copy, "job: no room for 'dims'");
        job->dims[job->n_dims++] = (struct sy_onnx_dim){.name = copy, .size = size};
    }
    return SY_OK;
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
static void keep_last_part(json_t *object, const char *name, void *unused)
{
    (void)unused;
    const char *path = json_string_value(json_object_get(object, name));
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (slash)
        json_object_set_new(object, name, json_string(slash + 1));
}

/* The keys that decide the weights. */
static uint64_t hash_of(const json_t *root)
{
    json_t *copy = json_deep_copy(root);
    keep_last_part(copy, "model", NULL);
    sy_job_data_each_path(json_object_get(copy, "data"), keep_last_part, NULL);
    const char *outside[] = {"epochs",    "target_accuracy",
                             "max_steps", "evaluate_every_steps",
                             "snapshot",  "name",
                             "recompute", "tenant",
                             "priority",  "class",
                             "slice",     "ranks",
                             "exchange"};
    for (size_t i = 0; i < SY_ARRAY_LEN(outside); i++)
        json_object_del(copy, outside[i]);
    sy_job_data_drop_test(json_object_get(copy, "data"));
    char *text = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t hash = text ? XXH3_64bits(text, strlen(text)) : 0;
    free(text);
    json_decref(copy);
    return hash;
}

static int take_all(const json_t *root, struct sy_job *job)
{
    SY_TRY(sy_job_keys_check(keys, SY_ARRAY_LEN(keys), "", 0, root));
    for (size_t i = 0; i < SY_ARRAY_LEN(keys); i++)
        if (!*keys[i].section || json_object_get(root, keys[i].section))
            SY_TRY(take_key(&keys[i], lookup(root, keys[i].section, keys[i].name), job));
    SY_TRY(take_choices(root, job));
    SY_TRY(take_dims(json_object_get(root, "dims"), job));
    SY_TRY(check_name(job->name));
    SY_TRY(sy_job_data_take(json_object_get(root, "data"), job->seed, &job->data));
    job->hash = hash_of(root);
    if (job->target_accuracy > 0.0 && !sy_job_data_has_test(&job->data) &&
        !(job->data.holdout > 0.0))
        return sy_error_set(SY_EARG,
                            "job: 'target_accuracy' is of a test set; 'data' has none, and no "
                            "'holdout' that makes one");
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
    sy_job_keys_free(keys, SY_ARRAY_LEN(keys), job);
    sy_job_data_free(&job->data);
    for (int i = 0; i < job->n_dims; i++)
        free((char *)(uintptr_t)job->dims[i].name);
    free(job->dims);
    memset(job, 0, sizeof *job);
}

/* ---- the file ----------------------------------------------------------------------------------- */

static void make_absolute(json_t *object, const char *name, void *folder)
{
    const char *path = json_string_value(json_object_get(object, name));
    if (path && *path && path[0] != '/')
        json_object_set_new(object, name, json_sprintf("%s/%s", (const char *)folder, path));
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

void sy_job_each_path(json_t *root, void (*change)(json_t *object, const char *name, void *ctx),
                      void *ctx)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(keys); i++)
        if (keys[i].kind == KIND_PATH)
            change(*keys[i].section ? json_object_get(root, keys[i].section) : root, keys[i].name,
                   ctx);
    sy_job_data_each_path(json_object_get(root, "data"), change, ctx);
}

static int normalize(json_t *root, char *folder, char **text)
{
    sy_job_each_path(root, make_absolute, folder);
    *text = json_dumps(root, JSON_COMPACT);
    return *text ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "job file: no room for its text");
}

/* Behind the byte order mark that some editors put in front of a text. The file may be a pipe. */
static json_t *read_json(const char *path, json_error_t *error)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    int first = getc(file);
    bool has_mark = first == 0xef && getc(file) == 0xbb && getc(file) == 0xbf;
    if (!has_mark && first != EOF)
        ungetc(first, file);
    json_t *root = json_loadf(file, JSON_REJECT_DUPLICATES, error);
    fclose(file);
    return root;
}

int sy_job_load(const char *path, char **text)
{
    char folder[PATH_MAX];
    struct sy_job job;
    SY_TRY(folder_of(path, folder));
    errno = 0;
    json_error_t error = {0};
    json_t *root = read_json(path, &error);
    if (!root && !error.text[0])
        return sy_error_set(SY_ENOTFOUND, "job file '%s': %s", path, strerror(errno));
    if (!root)
        return sy_error_set(SY_EARG, "job file '%s': line %d: %s", path, error.line, error.text);
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
