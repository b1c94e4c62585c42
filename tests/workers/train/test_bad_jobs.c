/* Jobs that cannot be trained as they stand: texts and data files, refused with the reason in bounded time and memory. A server among
 * them: test_bad_jobs_served.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>
#include <zlib.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "tests/rigs/bounded_child.h"
#include "workers/data/train_data.h"
#include "workers/job/job.h"

/* ---- the text ----------------------------------------------------------------------------------------------- */

/* A good job with its "KEY": VALUE put in place of KEY's own, or added. Quotes are written as '. */
static char *job_with(const char *section, const char *key, const char *value)
{
    json_error_t error;
    char text[512];
    json_t *job =
        json_pack("{s:s, s:s, s:{s:f}, s:{s:s, s:i}, s:{s:s}, s:{s:s}}", "name", "a", "model",
                  "/m.onnx", "optimizer", "learning_rate", 0.1, "data", "kind", "synthetic",
                  "samples", 8, "snapshot", "folder", "/s", "schedule", "kind", "constant");
    assert_non_null(job);
    snprintf(text, sizeof text, "[%s]", value);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *list = json_loads(text, 0, &error);
    if (!list)
        fail_msg("%s: %s", value, error.text);
    json_object_set(*section ? json_object_get(job, section) : job, key, json_array_get(list, 0));
    char *result = json_dumps(job, 0);
    json_decref(list);
    json_decref(job);
    return result;
}

static void refused_text(const char *text, const char *word)
{
    struct sy_job job;
    int status = sy_job_parse(text, &job);
    if (status != SY_EARG || !strstr(sy_error_text(), word))
        fail_msg("%.200s: %s: %s; \"%s\" was expected", text, sy_status_name(status),
                 sy_error_text(), word);
}

/* What carries the gradients of ranks is no part of the hash: the bits are the same. */
static void test_ways_of_an_exchange(void **state)
{
    static const char *const ways[] = {NULL, "'nccl'", "'host'"};
    uint64_t hash = 0;
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct sy_job job;
        char *text = job_with("", ways[i] ? "exchange" : "name", ways[i] ? ways[i] : "'a'");
        assert_int_equal(sy_job_parse(text, &job), SY_OK);
        assert_int_equal(job.exchange, i == 2 ? SY_EXCHANGE_HOST : SY_EXCHANGE_NCCL);
        assert_true(i == 0 || job.hash == hash);
        hash = job.hash;
        sy_job_finish(&job);
        free(text);
    }
    char *text = job_with("", "exchange", "'mpi'");
    refused_text(text, "exchange");
    free(text);
}

static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *section, *key, *values[14];
    } cases[] = {
        {"", "batch", {"0", "-1", "1e300", "'64'", "64.5", "65537", "[64]", "{}", "true", "null"}},
        {"", "epochs", {"0", "-1", "1e300", "'many'", "1.5", "9223372036854775807", "null"}},
        {"", "max_steps", {"-1", "1e300", "'9'", "9223372036854775807"}},
        {"", "seed", {"-1", "0.5", "'x'"}},
        {"", "ranks", {"0", "65", "-1", "'2'", "1.5", "null"}},
        {"", "staleness", {"17", "-1", "'2'", "1.5", "null"}},
        {"", "accumulate", {"0", "-1", "65537", "2.0"}},
        {"", "clip_norm", {"-1", "1e300", "'1'"}},
        {"", "target_accuracy", {"-0.1", "1.1", "'high'", "0.9" /* there is no test set */}},
        {"", "evaluate_every_steps", {"-1", "1e300"}},
        {"", "recompute", {"1", "'yes'", "null"}},
        {"", "precision", {"'f17'", "32", "null"}},
        {"", "loss", {"'hinge'", "1", "[]"}},
        {"", "frozen", {"[]", "'w'", "[1]"}},
        {"", "class", {"'gold'", "7"}},
        {"", "priority", {"1001", "-1001", "'high'", "1e300", "-1.5", "1e2"}},
        {"", "tenant", {"7", "''", "[]"}},
        {"", "name", {"''", "'../a'", "'a/b'", "'.a'", "7", "'a b'", "'a\\nb'"}},
        {"", "model", {"''", "7", "null"}},
        {"", "optimizer", {"[]", "'sgd'", "7", "null"}},
        {"", "data", {"[]", "'idx'", "null"}},
        {"", "snapshot", {"'/s'", "[]"}},
        {"optimizer", "learning_rate", {"-1", "1e300", "'0.1'", "null", "[]", "1000001"}},
        {"optimizer", "momentum", {"-0.1", "1.1", "'0.9'"}},
        {"optimizer", "beta1", {"1", "-1", "'x'"}},
        {"optimizer", "beta2", {"1", "2"}},
        {"optimizer", "epsilon", {"0", "-1", "2"}},
        {"optimizer", "weight_decay", {"-1", "1e300"}},
        {"optimizer", "kind", {"'lion'", "3"}},
        {"optimizer", "nesterov", {"true", "1"}},
        {"schedule", "kind", {"'zigzag'", "7"}},
        {"schedule", "every_steps", {"0", "-1"}},
        {"schedule", "factor", {"-1", "1e300"}},
        {"schedule", "warmup_steps", {"-1", "1e300"}},
        {"snapshot", "every_steps", {"-1", "1.5", "1e300"}},
        {"snapshot", "every_seconds", {"-1", "1e300", "'often'"}},
        {"snapshot", "folder", {"''", "7", "null"}},
        {"data", "kind", {"'parquet'", "3"}},
        {"data", "samples", {"0", "-1", "1e300", "'8'"}},
        {"data", "noise", {"-1", "1e300"}},
        {"data", "holdout", {"-0.1", "1", "'half'"}},
        {"data", "vocabulary", {"0", "1", "1e300"}},
    };
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++)
        for (int v = 0; cases[i].values[v]; v++) {
            char *text = job_with(cases[i].section, cases[i].key, cases[i].values[v]);
            refused_text(text, cases[i].key);
            free(text);
        }
}

static void test_unknown_keys(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"", "bacth", "did you mean 'batch'"},
        {"", "Epochs", "did you mean 'epochs'"},
        {"", "max_step", "did you mean 'max_steps'"},
        {"", "optimiser", "did you mean 'optimizer'"},
        {"optimizer", "lr", "unknown key 'optimizer.lr'"},
        {"optimizer", "learning-rate", "did you mean 'optimizer.learning_rate'"},
        {"snapshot", "every_step", "did you mean 'snapshot.every_steps'"},
        {"schedule", "warmup", "did you mean 'schedule."},
        {"data", "sample", "did you mean 'data.samples'"},
        {"data", "images", "unknown key 'data.images'"}, /* of another kind of data */
    };
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        char *text = job_with(cases[i][0], cases[i][1], "1");
        refused_text(text, cases[i][2]);
        free(text);
    }
}

/* Brackets without end, keys and texts of megabytes, numbers of a thousand digits. */
static void parse_large(const void *ctx, struct child_report *report)
{
    static const size_t n = 4u << 20;
    const char *const *parts = ctx; /* before, repeated, after */
    size_t each = strlen(parts[1]);
    char *text = malloc(n * each + strlen(parts[0]) + strlen(parts[2]) + 1), *to = text;
    to = stpcpy(to, parts[0]);
    for (size_t i = 0; i < n; i++, to += each)
        memcpy(to, parts[1], each);
    strcpy(to, parts[2]);
    struct sy_job job;
    report->status = sy_job_parse(text, &job);
    snprintf(report->text, sizeof report->text, "%s", sy_error_text());
    free(text);
}

static void test_large_texts(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"", "[", ""},
        {"{\"name\": ", "{\"a\": ", ""},
        {"{\"name\": \"", "a",
         "\", \"model\": \"/m\", \"optimizer\": {\"learning_rate\": 1}, \"data\": {\"kind\": "
         "\"synthetic\"}}"},
        {"{\"", "k", "\": 1}"},
        {"{\"batch\": ", "9", "}"},
        {"{\"batch\": 0.", "0", "1}"},
        {"{\"name\": \"a\", \"name", "\xff", "\": 1}"},
        {"{\"a\": 1}", " ", "x"},
        {"", "{}", ""}};
    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        struct child_end end;
        bounded_child_run(parse_large, cases[i], 1ull << 30, 20, &end);
        if (end.signal || end.exit_code || end.report.status != SY_EARG || !end.report.text[0])
            fail_msg("%.40s: signal %d, code %d, %s: %s", cases[i][0], end.signal, end.exit_code,
                     sy_status_name(end.report.status), end.report.text);
    }
    refused_text("", "line 1");
    refused_text("{\"batch\": 1, \"batch\": 2}", "duplicate");
    refused_text("{\"name\": \"a\\u0000b\"}", "line 1");
    refused_text("{\"optimizer\": {\"learning_rate\": NaN}}", "line 1");
    refused_text("nonsense", "line 1");
}

/* ---- data files ------------------------------------------------------------------------------------------------ */

static char folder[64];

static char *path_of(const char *name)
{
    static char paths[8][200];
    static int at;
    char *path = paths[at++ % 8];
    snprintf(path, sizeof *paths, "%s/%s", folder, name);
    return path;
}

static const char *write_bytes(const char *name, const void *bytes, size_t n)
{
    const char *path = path_of(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
    return path;
}

/* A gzip file of so many zeros, which take a thousandth of it. */
static const char *write_bomb(const char *name, const void *head, size_t head_bytes, uint64_t zeros)
{
    static const char block[1 << 16];
    const char *path = path_of(name);
    gzFile file = gzopen(path, "wb1");
    assert_non_null(file);
    gzwrite(file, head, (unsigned)head_bytes);
    for (uint64_t done = 0; done < zeros; done += sizeof block)
        gzwrite(file, block, sizeof block);
    gzclose(file);
    return path;
}

struct data_case {
    struct sy_data_spec *spec;
    struct sy_data_want want;
};

static void open_data(const void *ctx, struct child_report *report)
{
    const struct data_case *c = ctx;
    struct sy_train_data data;
    static float input[1 << 16];
    int32_t label;
    sy_error_set(SY_OK, "%s", "");
    report->status = sy_train_data_open(c->spec, &c->want, &data);
    for (uint64_t i = 0; report->status == SY_OK && i < data.n && i < 64; i++)
        report->status =
            sy_train_data_fill(&data, &c->want, i, false, 1, (void *const[]){input}, &label);
    snprintf(report->text, sizeof report->text, "%s", sy_error_text());
}

/* Refused with a text that names `part`, in little memory and time. */
static void refused_data(const char *section, int64_t n_inputs, int64_t n_classes, const char *part)
{
    struct sy_data_spec spec = {0};
    struct child_end end;
    char text[1024];
    snprintf(text, sizeof text, "%s", section);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    assert_int_equal(sy_job_data_take(json, 5, &spec), SY_OK);
    json_decref(json);
    struct data_case c = {
        &spec,
        {.n_inputs = 1,
         .inputs =
             {{.dtype = SY_DTYPE_F32, .rank = 1, .dims = {n_inputs}, .n = (uint64_t)n_inputs}},
         .are_classes = true,
         .n_labels = 1,
         .n_classes = n_classes}};
    bounded_child_run(open_data, &c, 1ull << 30, 20, &end);
    sy_job_data_free(&spec);
    if (end.signal || end.exit_code || end.report.status >= 0 || !strstr(end.report.text, part))
        fail_msg("%s: signal %d, code %d, %s: %s; \"%s\" was expected", section, end.signal,
                 end.exit_code, sy_status_name(end.report.status), end.report.text, part);
}

static void refused_idx(const char *images, const char *labels, const char *part)
{
    char section[700];
    snprintf(section, sizeof section, "{'kind': 'idx', 'images': '%s', 'labels': '%s'}", images,
             labels);
    refused_data(section, 4, 4, part);
}

static void test_idx_files(void **state)
{
    (void)state;
    static const unsigned char good[] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2,  0,  0,
                                         0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const unsigned char names[] = {0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 2};
    unsigned char bad[sizeof good + 1] = {0};
    char labels[200], images[200];
    snprintf(labels, sizeof labels, "%s", write_bytes("labels", names, sizeof names));
    snprintf(images, sizeof images, "%s", write_bytes("images", good, sizeof good));
    for (size_t n = 0; n < sizeof good; n++)
        refused_idx(write_bytes("cut", good, n), labels, "cut");
    memcpy(bad, good, sizeof good);
    refused_idx(write_bytes("long", bad, sizeof bad), labels, "long");
    /* Headers that claim more than there is, more than there can be, or another thing. */
    static const struct {
        int at;
        unsigned char value;
    } changes[] = {{0, 1}, {2, 0},    {2, 9}, {2, 13}, {2, 0xff}, {3, 0},  {3, 255},
                   {3, 1}, {4, 0xff}, {7, 0}, {7, 4},  {8, 0x80}, {11, 0}, {12, 0xff}};
    for (size_t i = 0; i < SY_ARRAY_LEN(changes); i++) {
        memcpy(bad, good, sizeof good);
        bad[changes[i].at] = changes[i].value;
        refused_idx(write_bytes("changed", bad, sizeof good), labels, "changed");
    }
    memcpy(bad, good, sizeof good);
    memset(bad + 4, 0xff, 12); /* (2^32 - 1)^3 */
    refused_idx(write_bytes("huge", bad, sizeof good), labels, "huge");
    memcpy(bad, names, sizeof names);
    bad[10] = 4;
    refused_idx(images, write_bytes("range", bad, sizeof names), "range");
    bad[10] = 255;
    refused_idx(images, write_bytes("range", bad, sizeof names), "range");
    refused_idx(images, write_bytes("few", names, sizeof names - 1), "few");
    bad[7] = 2;
    refused_idx(images, write_bytes("two", bad, sizeof names - 1), "two");
    refused_idx(labels, images, folder);
    refused_idx(folder, labels, folder);
    refused_idx(images, path_of("nowhere"), "nowhere");
    const char *pipe = path_of("pipe");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    refused_idx(pipe, labels, "pipe"); /* nobody writes into it: not waited for */
    refused_idx("/dev/zero", labels, "/dev/zero");
    /* Compressed: cut, damaged, and more zeros than the memory that is there. */
    const char *path = write_bomb("gz", good, sizeof good, 0);
    FILE *file = fopen(path, "rb");
    unsigned char packed[512];
    size_t n = fread(packed, 1, sizeof packed, file);
    fclose(file);
    for (size_t cut = 0; cut < n; cut += 5)
        refused_idx(write_bytes("cut.gz", packed, cut), labels, "cut.gz");
    packed[n - 6] ^= 1; /* its checksum */
    refused_idx(write_bytes("sum.gz", packed, n), labels, "sum.gz");
#ifndef SY_SANITIZED
    refused_idx(write_bomb("bomb.gz", good, sizeof good, 1280ull << 20), labels, "bomb.gz");
    memcpy(bad, good, sizeof good);
    bad[5] = 0xff; /* a header that wants them */
    refused_idx(write_bomb("bomb2.gz", bad, 16, 1280ull << 20), labels, "bomb2.gz");
#endif
}

static void test_other_files(void **state)
{
    (void)state;
    char section[700];
    static const char *const headers[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4, 5, 6, 7, 8, 9, 10), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (3, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3000000, 4), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }",
        "{'descr': '>f3', 'fortran_order': False, 'shape': (3, 4), }",
        "{'shape': (3, 4), }",
        "((((((((",
        ""};
    for (size_t i = 0; i < SY_ARRAY_LEN(headers); i++) {
        char bytes[512] = "\x93NUMPY\x01";
        bytes[8] = 118;
        memset(bytes + 10, ' ', 118);
        memcpy(bytes + 10, headers[i], strlen(headers[i]));
        bytes[127] = '\n';
        snprintf(section, sizeof section, "{'kind': 'npy', 'inputs': '%s', 'labels': '%s'}",
                 write_bytes("x.npy", bytes, 128 + 48), path_of("x.npy"));
        refused_data(section, 4, 4, "x.npy");
    }
    /* One field of 8 MB, a million columns, lines without end. */
    static char wide[8 << 20];
    for (size_t i = 0; i < sizeof wide; i++)
        wide[i] = i % 8 == 7 ? ',' : 'a';
    write_bytes("wide.csv", wide, sizeof wide);
    snprintf(section, sizeof section, "{'kind': 'csv', 'file': '%s', 'label': 'y'}",
             path_of("wide.csv"));
    refused_data(section, 4, 4, "wide.csv");
    memset(wide, '"', sizeof wide);
    write_bytes("wide.csv", wide, sizeof wide);
    refused_data(section, 4, 4, "wide.csv");
    memset(wide, 0, sizeof wide);
    write_bytes("wide.csv", wide, sizeof wide);
    refused_data(section, 4, 4, "wide.csv");
    refused_data("{'kind': 'csv', 'file': '/dev/zero', 'label': 'y'}", 4, 4, "/dev/zero");
    refused_data("{'kind': 'text', 'file': '/dev/zero'}", 4, 4, "/dev/zero");
    /* A folder of images with one of a billion pixels in a few bytes, and one that is a folder. */
    static const unsigned char png[] = {0x89, 'P',  'N', 'G', 13,  10, 26, 10,   0,    0,    0,
                                        13,   'I',  'H', 'D', 'R', 0,  0,  0xff, 0xff, 0,    0,
                                        0xff, 0xff, 8,   2,   0,   0,  0,  0xd5, 0x62, 0x7d, 0x50};
    mkdir(path_of("pictures"), 0777);
    mkdir(path_of("pictures/a"), 0777);
    mkdir(path_of("pictures/b"), 0777);
    write_bytes("pictures/a/huge.png", png, sizeof png);
    snprintf(section, sizeof section, "{'kind': 'images', 'folder': '%s'}", path_of("pictures"));
    refused_data(section, 4, 2, "pictures");
    unlink(path_of("pictures/a/huge.png"));
    refused_data(section, 4, 2, "pictures");
}

static int open_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/sy_bad_jobs_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int close_folder(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) == 0 ? 0 : -1;
}

int main(void)
{
    sy_log_threshold = SY_LOG_ERROR;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),      cmocka_unit_test(test_unknown_keys),
        cmocka_unit_test(test_large_texts), cmocka_unit_test(test_idx_files),
        cmocka_unit_test(test_other_files), cmocka_unit_test(test_ways_of_an_exchange),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
