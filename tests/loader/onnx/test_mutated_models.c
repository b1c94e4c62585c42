/* ONNX's own test models and our examples, changed at random but still well-formed files: refused at import with a reason, or run to their end
 * or to an error of the data's. Each in a process of its own, with little memory and time. */
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "tests/nets/model_edit.h"
#include "tests/rigs/bounded_child.h"
#include "tests/rigs/seed.h"
#include "tests/rigs/server_fixture.h"
#include "tests/rigs/whole_import.h"

#define MAX_MODELS  4000
#define LARGEST     (4 << 20) /* of a model file; larger ones only cost time */
#define MEMORY      (1ull << 30)
#define CPU_SECONDS 30u
#ifdef SY_SANITIZED
#define ROUNDS 300
#else
#define ROUNDS 2500
#endif

static char folder[64], path[96], package[96];
static char *models[MAX_MODELS];
static int n_models;
static uint64_t random_state;
static unsigned char bytes[LARGEST];

#ifdef SY_SANITIZED
__attribute__((visibility("default"), no_sanitize("address"))) const char *__asan_default_options(
    void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=1024";
}
#endif

static uint64_t draw(void *ctx)
{
    uint64_t z = (random_state += 0x9e3779b97f4a7c15ull);
    (void)ctx;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static int note_model(const char *name, const struct stat *info, int kind, struct FTW *where)
{
    size_t n = strlen(name);
    (void)where;
    if (kind == FTW_F && n > 5 && strcmp(name + n - 5, ".onnx") == 0 && info->st_size < LARGEST &&
        n_models < MAX_MODELS)
        models[n_models++] = strdup(name);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The changed model is at `path`; what was changed is in `text`. false: this model's file is not read by protobuf-c. */
static bool make_model(const char *from, char *text, size_t text_bytes)
{
    const struct edit_choices choices = {draw, NULL};
    FILE *file = fopen(from, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, sizeof bytes, file), used = 0;
    fclose(file);
    Onnx__ModelProto *model = onnx__model_proto__unpack(NULL, n, bytes);
    if (!model)
        return false;
    *text = 0;
    for (int i = 0, edits = 1 + (int)(draw(NULL) % 2); i < edits; i++) {
        char edit[160];
        model_edit(model, &choices, edit, sizeof edit);
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", i ? ", " : "", edit);
    }
    unsigned char *packed = malloc(onnx__model_proto__get_packed_size(model) + 1);
    assert_non_null(packed);
    n = onnx__model_proto__pack(model, packed);
    file = fopen(path, "wb");
    assert_int_equal(fwrite(packed, 1, n, file), n);
    fclose(file);
    free(packed);
    onnx__model_proto__free_unpacked(model, NULL);
    return true;
}

static void import_work(const void *ctx, struct child_report *report)
{
    const struct whole_limits limits = {2, 1 << 20, 64u << 20};
    (void)ctx;
    sy_error_set(SY_OK, "%s", "");
    whole_import(path, package, &limits, 1, &report->stage, &report->status);
    snprintf(report->text, sizeof report->text, "%s", sy_error_text());
}

/* Whether that is an end that an import may have. An engine refuses what it lacks at import, not when a program is made; only what a
 * batch size makes of the shapes, or the machine's memory, is known no earlier. */
static bool is_good(const struct child_end *end)
{
    const struct child_report *r = &end->report;
    if (end->signal || end->exit_code)
        return false;
    if (r->status < 0 && (!*r->text || r->stage >= WHOLE_LARGE + 2))
        return false;
    return r->stage != WHOLE_PROGRAM || r->status == SY_ENOMEM_HOST || r->status == SY_EARG;
}

static void test_mutated_models(void **state)
{
    (void)state;
    int ends[WHOLE_DONE + 1] = {0}, failed = 0;
    char text[400];
    for (int round = 0; round < ROUNDS; round++) {
        struct child_end end;
        const char *from = models[draw(NULL) % (uint64_t)n_models];
        uint64_t before = random_state;
        if (!make_model(from, text, sizeof text))
            continue;
        bounded_child_run(import_work, NULL, MEMORY, CPU_SECONDS, &end);
        unlink(package);
        ends[end.report.stage]++;
        if (is_good(&end))
            continue;
        failed++;
        print_message("%s, state %llu: %s: signal %d, code %d, in %s: %s: %s\n", from,
                      (unsigned long long)before, text, end.signal, end.exit_code,
                      whole_stage_name(end.report.stage), sy_status_name(end.report.status),
                      end.report.text);
        if (getenv("SY_KEEP")) {
            char kept[200];
            snprintf(kept, sizeof kept, "%s/%d.onnx", getenv("SY_KEEP"), round);
            rename(path, kept); /* on the same file system */
        }
    }
    for (int stage = 0; stage <= WHOLE_DONE; stage++)
        print_message("%s %s: %d\n", stage < WHOLE_LARGE ? "refused in" : "ended in",
                      whole_stage_name(stage), ends[stage]);
    assert_int_equal(failed, 0);
    assert_true(ends[WHOLE_DONE] > 0 && ends[WHOLE_INFER] > 0);
}

static int open_folder(void **state)
{
    (void)state;
    random_state = seed_of_run(1);
    snprintf(folder, sizeof folder, "%s/sy-mutated-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    snprintf(package, sizeof package, "%s/model.sypkg", folder);
    nftw("/usr/share/libonnx-testdata/data", note_model, 8, FTW_PHYS);
    nftw(fixture_models(), note_model, 8, FTW_PHYS);
    nftw("tests/data", note_model, 8, FTW_PHYS);
    qsort(models, (size_t)n_models, sizeof *models, by_name);
    print_message("%d models\n", n_models);
    return n_models > 0 ? 0 : -1;
}

static int close_folder(void **state)
{
    (void)state;
    while (n_models > 0)
        free(models[--n_models]);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    sy_log_threshold = SY_LOG_ERROR;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutated_models)};
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
