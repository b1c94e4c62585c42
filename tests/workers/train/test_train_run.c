/* The training run: the same bits whatever happens to it. Pauses, deaths in each phase, deaths while a snapshot is written,
 * damaged snapshots, full disks, other people's snapshots. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <omp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "tests/rigs/seed.h"
#include "tests/rigs/shell.h"
#include "workers/data/train_data.h"
#include "workers/job/job.h"
#include "workers/train/train_run.h"

#define MODEL      "tests/data/train_step/model.onnx" /* 1x8x8 in, 4 classes */
#define SAMPLES    50
#define STEPS      12
#define KILL_STEPS 600
#define MAX_BYTES  (4u << 20)

static char folder[64];
static unsigned seed;

struct arena { /* what the runtime would hand to a worker; survives it */
    char *persistent, *ephemeral;
    struct sy_control_page *page;
};

static void arena_open(struct arena *a)
{
    char *memory =
        mmap(NULL, 2 * MAX_BYTES + 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    a->persistent = memory;
    a->ephemeral = memory + MAX_BYTES;
    a->page = (struct sy_control_page *)(void *)(memory + 2 * MAX_BYTES);
}

static void arena_close(struct arena *a)
{
    munmap(a->persistent, 2 * MAX_BYTES + 4096);
}

/* ---- a job and its data -------------------------------------------------------------------------- */

static void write_idx(const char *name, int rank, const unsigned char *dims,
                      const unsigned char *data, size_t bytes)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    const unsigned char magic[] = {0, 0, 8, (unsigned char)rank};
    fwrite(magic, 1, 4, file);
    for (int i = 0; i < rank; i++) {
        const unsigned char dim[] = {0, 0, 0, dims[i]};
        fwrite(dim, 1, 4, file);
    }
    fwrite(data, 1, bytes, file);
    fclose(file);
}

static void write_data(void)
{
    unsigned char images[SAMPLES * 64], labels[SAMPLES];
    unsigned random = 12345;
    for (int i = 0; i < SAMPLES; i++) {
        labels[i] = (unsigned char)(i % 4);
        for (int p = 0; p < 64; p++) {
            random = random * 1664525u + 1013904223u;
            images[i * 64 + p] = (unsigned char)((random >> 24) / 4 + (p / 16 == i % 4 ? 128 : 0));
        }
    }
    write_idx("images", 3, (const unsigned char[]){SAMPLES, 8, 8}, images, sizeof images);
    write_idx("labels", 1, (const unsigned char[]){SAMPLES}, labels, sizeof labels);
}

/* `snapshots` is a folder below ours, or NULL. A rate of 1e6 comes with a decay that no number outlives. */
static char *job_text(const char *snapshots, int every_steps, double rate, int n_steps)
{
    char model[PATH_MAX], *text = malloc(2 * PATH_MAX), part[256] = "";
    assert_non_null(realpath(MODEL, model));
    if (snapshots)
        snprintf(part, sizeof part, ", \"snapshot\": {\"folder\": \"%s/%s\", \"every_steps\": %d}",
                 folder, snapshots, every_steps);
    snprintf(text, 2 * PATH_MAX,
             "{\"name\": \"tiny\", \"model\": \"%s\", \"optimizer\": {\"kind\": \"sgd\", "
             "\"learning_rate\": %g, "
             "\"momentum\": 0.9, \"weight_decay\": %g}, \"data\": {\"kind\": \"idx\", \"images\": "
             "\"%s/images\", "
             "\"labels\": \"%s/labels\", "
             "\"test_images\": \"%s/images\", \"test_labels\": \"%s/labels\"}, \"batch\": 8, "
             "\"epochs\": 100, "
             "\"max_steps\": %d, \"seed\": 3%s}",
             model, rate, rate < 1e6 ? 0 : 1e6, folder, folder, folder, folder, n_steps, part);
    return text;
}

/* The host trainer, unless the binary is linked with a rig_choose_trainer (tests/on_cpu/). */
static const struct sy_trainer_ops *ops = &sy_host_trainer;
static void *(*device_view)(void *memory); /* of what is bound; NULL: the pointer itself */
void rig_choose_trainer(const struct sy_trainer_ops **out, void *(**view)(void *memory))
    __attribute__((weak));
/* A killed process takes along what it had enqueued. */
void rig_lose_queue(void) __attribute__((weak));

static int start(struct sy_train_run *run, struct arena *a, int in_memory)
{
    return sy_train_run_start(run, device_view ? device_view(a->persistent) : a->persistent,
                              device_view ? device_view(a->ephemeral) : a->ephemeral, in_memory,
                              a->page);
}

static void die(struct sy_train_run *run)
{
    if (rig_lose_queue)
        rig_lose_queue();
    sy_train_run_destroy(run);
}

static struct sy_train_run *open_run(char *text)
{
    struct sy_train_run *run;
    struct sy_train_needs needs;
    int status = sy_train_run_create(text, ops, NULL, &run);
    if (status < 0)
        fail_msg("create: %s", sy_error_text());
    free(text);
    sy_train_run_needs(run, &needs);
    assert_true(needs.persistent_bytes <= MAX_BYTES && needs.ephemeral_bytes <= MAX_BYTES);
    return run;
}

static int advance_all(struct sy_train_run *run)
{
    enum sy_train_state state = SY_TRAIN_RUNNING;
    int status = SY_OK;
    while (status == SY_OK && state == SY_TRAIN_RUNNING)
        status = sy_train_run_advance(run, &state);
    return status;
}

/* Everything behind the header page: weights, momentum, gradients. */
static void state_of(const struct arena *a, uint64_t bytes, char *to)
{
    memcpy(to, a->persistent + 4096, bytes - 4096);
}

static uint64_t wanted_bytes;
static char wanted[MAX_BYTES];

/* The undisturbed run that all others must equal. */
static int make_wanted(void **state)
{
    (void)state;
    struct arena a;
    struct sy_train_needs needs;
    arena_open(&a);
    struct sy_train_run *run = open_run(job_text(NULL, 0, 0.1, STEPS));
    sy_train_run_needs(run, &needs);
    wanted_bytes = needs.persistent_bytes;
    assert_int_equal(needs.total_steps, STEPS);
    assert_int_equal(start(run, &a, 0), SY_OK);
    assert_int_equal(advance_all(run), SY_OK);
    assert_int_equal(sy_train_run_step(run), STEPS);
    assert_true(sy_train_run_accuracy(run) >= 0.0 && sy_train_run_accuracy(run) <= 1.0);
    state_of(&a, wanted_bytes, wanted);
    sy_train_run_destroy(run);
    arena_close(&a);
    return 0;
}

static void expect_wanted(const struct arena *a)
{
    assert_memory_equal(a->persistent + 4096, wanted, wanted_bytes - 4096);
}

static void finish_and_expect(struct sy_train_run *run, struct arena *a)
{
    if (advance_all(run) < 0)
        fail_msg("advance: %s", sy_error_text());
    assert_int_equal(sy_train_run_step(run), STEPS);
    expect_wanted(a);
    sy_train_run_destroy(run);
    arena_close(a);
}

/* ---- interruptions ------------------------------------------------------------------------------- */

/* The scratch memory is spilled and comes back elsewhere in the meantime, as far as the run can tell: it stands still. */
static void test_pauses(void **state)
{
    (void)state;
    struct arena a;
    enum sy_train_state now = SY_TRAIN_RUNNING;
    char *spilled = malloc(MAX_BYTES);
    arena_open(&a);
    struct sy_train_run *run = open_run(job_text("pauses", 3, 0.1, STEPS));
    assert_int_equal(start(run, &a, 0), SY_OK);
    for (int i = 0; now == SY_TRAIN_RUNNING && i < 100000; i++) {
        assert_non_null(sy_train_run_next_words(run));
        assert_int_equal(sy_train_run_advance(run, &now), SY_OK);
        if (rand_r(&seed) % 8 == 0) {
            assert_int_equal(sy_train_run_synchronize(run), SY_OK);
            memcpy(spilled, a.ephemeral, MAX_BYTES);
            memset(a.ephemeral, 0xff, MAX_BYTES);
            memcpy(a.ephemeral, spilled, MAX_BYTES);
        }
    }
    free(spilled);
    finish_and_expect(run, &a);
}

/* A worker dies at the k-th step of the gradient phase of iteration 3; the next finds the memory. */
static void die_in_gradient(int k)
{
    struct arena a;
    enum sy_train_state now;
    arena_open(&a);
    struct sy_train_run *run = open_run(job_text(NULL, 0, 0.1, STEPS));
    assert_int_equal(start(run, &a, 0), SY_OK);
    while (sy_train_run_step(run) < 2)
        assert_int_equal(sy_train_run_advance(run, &now), SY_OK);
    for (int i = 0; i < k && a.page->train_phase == SY_PHASE_GRADIENT; i++)
        assert_int_equal(sy_train_run_advance(run, &now), SY_OK);
    bool is_gradient = a.page->train_phase == SY_PHASE_GRADIENT;
    die(run);
    memset(a.ephemeral, 0xff, MAX_BYTES);
    run = open_run(job_text(NULL, 0, 0.1, STEPS));
    int status = start(run, &a, 1);
    assert_int_equal(status, is_gradient || ops->read_header ? SY_OK : SY_ECORRUPT);
    if (status == SY_OK) { /* a device that was behind: from the start, to the same end */
        if (!ops->read_header)
            assert_int_equal(sy_train_run_step(run), 2);
        finish_and_expect(run, &a);
        return;
    }
    sy_train_run_destroy(run);
    arena_close(&a);
}

static void test_death_in_gradient_phase(void **state)
{
    (void)state;
    for (int k = 0; k < 32; k++)
        die_in_gradient(k);
}

static void test_death_in_update_phase(void **state)
{
    (void)state;
    struct arena a;
    enum sy_train_state now;
    arena_open(&a);
    struct sy_train_run *run = open_run(job_text("update", 2, 0.1, STEPS));
    assert_int_equal(start(run, &a, 0), SY_OK);
    while (sy_train_run_step(run) < 7 || a.page->train_phase != SY_PHASE_UPDATE)
        assert_int_equal(sy_train_run_advance(run, &now), SY_OK);
    assert_int_equal(sy_train_run_advance(run, &now), SY_OK);
    die(run);
    run = open_run(job_text("update", 2, 0.1, STEPS));
    if (!ops->read_header) {
        assert_int_equal(start(run, &a, 1), SY_ECORRUPT);
        assert_non_null(strstr(sy_error_text(), "snapshot"));
    }
    assert_int_equal(start(run, &a, ops->read_header != NULL), SY_OK);
    assert_true(sy_train_run_step(run) > 0 && sy_train_run_step(run) <= 7);
    finish_and_expect(run, &a);
}

/* A forked worker with a snapshot after every iteration, killed after a random time. One thread: OpenMP's team does not
 * outlive a fork. */
static void train_in_child(const char *snapshots, long kill_after_ns)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct arena a;
        arena_open(&a);
        struct sy_train_run *run = open_run(job_text(snapshots, 1, 0.01, KILL_STEPS));
        int status = start(run, &a, 0);
        _exit(status == SY_OK && advance_all(run) == SY_OK ? 0 : 1);
    }
    int status = -1;
    if (kill_after_ns >= 0) {
        nanosleep(&(struct timespec){0, kill_after_ns}, NULL);
        kill(child, SIGKILL);
    }
    waitpid(child, &status, 0);
    assert_true(status == 0 || (kill_after_ns >= 0 && WIFSIGNALED(status)));
}

static size_t read_last_snapshot(const char *snapshots, char *to, size_t room)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s/tiny-%d.safetensors", folder, snapshots, KILL_STEPS);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(to, 1, room, file);
    fclose(file);
    return n;
}

/* The final snapshots are the same file, byte for byte. */
static void test_killed_while_writing(void **state)
{
    (void)state;
    static char disturbed[65536], undisturbed[65536];
    for (int i = 0; i < 30; i++)
        train_in_child("killed", (long)(rand_r(&seed) % 12000) * 1000L);
    train_in_child("killed", -1);
    train_in_child("alone", -1);
    size_t n = read_last_snapshot("killed", disturbed, sizeof disturbed);
    assert_int_equal(read_last_snapshot("alone", undisturbed, sizeof undisturbed), n);
    assert_true(n > 3000 && n < sizeof disturbed);
    assert_memory_equal(disturbed, undisturbed, n);
}

/* ---- snapshots ----------------------------------------------------------------------------------- */

static void run_to(const char *snapshots, int n_steps)
{
    struct arena a;
    arena_open(&a);
    struct sy_train_run *run = open_run(job_text(snapshots, 3, 0.1, n_steps));
    assert_int_equal(start(run, &a, 0), SY_OK);
    assert_int_equal(advance_all(run), SY_OK);
    sy_train_run_destroy(run);
    arena_close(&a);
}

static int count_files(const char *snapshots)
{
    char path[128];
    int n = 0;
    snprintf(path, sizeof path, "%s/%s", folder, snapshots);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void damage(const char *snapshots, int step, long at)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s/tiny-%d.safetensors", folder, snapshots, step);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, at, at < 0 ? SEEK_END : SEEK_SET);
    int byte = fgetc(file);
    fseek(file, -1, SEEK_CUR);
    fputc(byte ^ 0x40, file);
    fclose(file);
}

static void test_damaged_snapshot(void **state)
{
    (void)state;
    const long places[] = {3, 40, -9};
    char name[32], leftover[128];
    for (int i = 0; i < 3; i++) {
        struct arena a;
        snprintf(name, sizeof name, "damaged%d", i);
        run_to(name, 4);
        run_to(name, 8);
        assert_int_equal(count_files(name), 2);
        snprintf(leftover, sizeof leftover, "%s/%s/tiny-99.safetensors.tmp-7", folder, name);
        fclose(fopen(leftover, "wb"));
        damage(name, 8, places[i]);
        arena_open(&a);
        struct sy_train_run *run = open_run(job_text(name, 3, 0.1, STEPS));
        assert_int_equal(start(run, &a, 0), SY_OK);
        assert_true(sy_train_run_step(run) >= 4 && sy_train_run_step(run) < 8);
        assert_int_equal(access(leftover, F_OK), -1);
        finish_and_expect(run, &a);
    }
}

static void test_snapshot_of_another_job(void **state)
{
    (void)state;
    struct arena a;
    run_to("other", 4);
    arena_open(&a);
    struct sy_train_run *run = open_run(job_text("other", 3, 0.2, STEPS));
    assert_int_equal(start(run, &a, 0), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "tiny-4.safetensors"));
    sy_train_run_destroy(run);
    arena_close(&a);
}

static void remember_failure(void *ctx, int status, uint64_t step, const char *path)
{
    (void)step;
    (void)path;
    *(int *)ctx = status;
}

/* /dev/full refuses every byte: the temporary file's name leads there. */
static void test_full_disk(void **state)
{
    (void)state;
    struct arena a;
    int failure = SY_OK;
    char path[128];
    snprintf(path, sizeof path, "%s/full", folder);
    mkdir(path, 0777);
    struct sy_train_callbacks callbacks = {.snapshot_done = remember_failure, .ctx = &failure};
    struct sy_train_run *run;
    char *text = job_text("full", 0, 0.1, STEPS);
    assert_int_equal(sy_train_run_create(text, ops, &callbacks, &run), SY_OK);
    free(text);
    arena_open(&a);
    assert_int_equal(start(run, &a, 0), SY_OK);
    snprintf(path, sizeof path, "%s/full/tiny-%d.safetensors.tmp-%d", folder, STEPS, (int)getpid());
    assert_int_equal(symlink("/dev/full", path), 0);
    assert_int_equal(advance_all(run), SY_EIO); /* nobody would have the result */
    assert_non_null(strstr(sy_error_text(), "full/tiny-"));
    assert_int_equal(failure, SY_EIO);
    assert_int_equal(count_files("full"), 0);
    assert_int_equal(sy_train_run_step(run), STEPS);
    expect_wanted(&a); /* in memory all is well */
    sy_train_run_destroy(run);
    arena_close(&a);
}

static void test_stop(void **state)
{
    (void)state;
    struct arena a;
    enum sy_train_state now;
    arena_open(&a);
    struct sy_train_run *run = open_run(job_text("stop", 0, 0.1, STEPS));
    assert_int_equal(start(run, &a, 0), SY_OK);
    while (sy_train_run_step(run) < 5)
        assert_int_equal(sy_train_run_advance(run, &now), SY_OK);
    sy_train_run_stop(run, 0);
    assert_int_equal(advance_all(run), SY_OK);
    assert_int_equal(a.page->snapshot_step, 5);
    assert_true(sy_train_run_accuracy(run) < 0.0);
    sy_train_run_destroy(run);
    run = open_run(job_text("stop", 0, 0.1, STEPS));
    assert_int_equal(start(run, &a, 0), SY_OK);
    assert_int_equal(sy_train_run_step(run), 5);
    finish_and_expect(run, &a);
}

static void test_loss_that_is_not_finite(void **state)
{
    (void)state;
    struct arena a;
    arena_open(&a);
    struct sy_train_run *run = open_run(job_text(NULL, 0, 1e6, 100));
    assert_int_equal(start(run, &a, 0), SY_OK);
    assert_int_equal(advance_all(run), SY_EARG);
    assert_non_null(strstr(sy_error_text(), " had loss ")); /* of the step before */
    assert_non_null(strstr(sy_error_text(), "last good snapshot: none"));
    sy_train_run_destroy(run);
    run = open_run(job_text("spoiled", 1, 1e6, 100)); /* the snapshot of step 1 may be in flight */
    assert_int_equal(start(run, &a, 0), SY_OK);
    assert_int_equal(advance_all(run), SY_EARG);
    assert_true(sy_train_run_step(run) > 0);
    assert_non_null(strstr(sy_error_text(), "/spoiled/tiny-"));
    sy_train_run_destroy(run);
    arena_close(&a);
}

/* ---- order of samples, job keys ------------------------------------------------------------------ */

static void test_each_sample_once_an_epoch(void **state)
{
    (void)state;
    const uint64_t sizes[] = {1, 2, 3, 4, 5, 63, 64, 65, 1000, 60000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            uint64_t n = sizes[s], fixed = 0;
            char *seen = calloc(n, 1);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t at = sy_train_data_index(n, 7, epoch * n + i);
                assert_true(at < n && !seen[at]);
                seen[at] = 1;
                fixed += at == sy_train_data_index(n, 7, (epoch + 1) * n + i);
            }
            assert_true(n < 1000 ||
                        fixed < 20); /* another order each epoch; about one stays by chance */
            free(seen);
        }
}

static void test_job_keys(void **state)
{
    (void)state;
    struct sy_job job;
    const char *data = "\"data\": {\"images\": \"/i\", \"labels\": \"/l\"}";
    char text[512];
    snprintf(text, sizeof text,
             "{\"name\": \"a\", \"model\": \"/m\", \"optimizer\": {\"learning_rate\": 1}, %s}",
             data);
    assert_int_equal(sy_job_parse(text, &job), SY_OK);
    assert_int_equal(job.options.batch, 64);
    sy_job_finish(&job);
    snprintf(text, sizeof text,
             "{\"name\": \"a\", \"model\": \"/m\", \"optimizer\": {\"learning_rat\": 1}, %s}",
             data);
    assert_int_equal(sy_job_parse(text, &job), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "'optimizer.learning_rate'"));
    snprintf(text, sizeof text,
             "{\"name\": \"a/b\", \"model\": \"/m\", \"optimizer\": {\"learning_rate\": 1}, %s}",
             data);
    assert_int_equal(sy_job_parse(text, &job), SY_EARG);
    snprintf(text, sizeof text, "{\"name\": \"a\", \"optimizer\": {\"learning_rate\": 1}, %s}",
             data);
    assert_int_equal(sy_job_parse(text, &job), SY_EARG);
    assert_non_null(strstr(sy_error_text(), "'model' is missing"));
    assert_int_equal(sy_job_parse("{", &job), SY_EARG);
    assert_int_equal(sy_job_parse("[]", &job), SY_EARG);
}

static int remove_folder(void **state)
{
    (void)state;
    return remove_tree(folder);
}

static int make_folder(void **state)
{
    strcpy(folder, "/tmp/sy_train_run_XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    write_data();
    return make_wanted(state);
}

int main(void)
{
    seed = (unsigned)seed_of_run(20240607);
    omp_set_num_threads(1);
    if (rig_choose_trainer)
        rig_choose_trainer(&ops, &device_view);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_while_writing), /* first: it forks */
        cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_death_in_gradient_phase),
        cmocka_unit_test(test_death_in_update_phase),
        cmocka_unit_test(test_damaged_snapshot),
        cmocka_unit_test(test_snapshot_of_another_job),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_loss_that_is_not_finite),
        cmocka_unit_test(test_each_sample_once_an_epoch),
        cmocka_unit_test(test_job_keys),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
