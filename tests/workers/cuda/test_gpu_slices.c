/* Slices of a GPU's multiprocessors, which only a GPU can show: where kernels run, that slices are disjoint, bits, resizing, leaks, and what
 * two tasks beside one another gain over turns. Run by gpu_check.sh; skips itself where there is no GPU. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/device/device.h"
#include "runtime/device/device_cuda.h"

#define N_BLOCKS  1024 /* of kernels that say where they are */
#define N_KEPT    8    /* slices that a stream keeps (SY_CUDA_KEPT_SLICES) */
#define MAX_SM    1024
#define MAX_PARTS 64

static const char *spec_text;
static char own_path[4096];

static struct {
    void *(*handle)(struct sy_stream *stream); /* the plugin's */
    int (*where)(void *stream, int n, unsigned *on);
    int (*work)(void *stream, int times, int n, int steps, float *out);
    unsigned long long (*free_bytes)(void);
    void (*use)(int ordinal);
} gpu;

struct rig {
    struct sy_device *device;
    struct sy_compute_parts parts;
    struct sy_stream *streams[2];
};

static bool load_kernels(int ordinal)
{
    char path[5000];
    snprintf(path, sizeof path, "%.*s/libgpu_slices.so", (int)(strrchr(own_path, '/') - own_path),
             own_path);
    void *library = dlopen(path, RTLD_NOW), *handle = NULL;
    if (!library || sy_device_cuda_symbol("sy_cuda_stream_handle", &handle) < 0)
        return false;
    *(void **)&gpu.handle = handle;
    *(void **)&gpu.where = dlsym(library, "gpu_where");
    *(void **)&gpu.work = dlsym(library, "gpu_work");
    *(void **)&gpu.free_bytes = dlsym(library, "gpu_free_bytes");
    *(void **)&gpu.use = dlsym(library, "gpu_use");
    if (!gpu.where || !gpu.work || !gpu.free_bytes || !gpu.use)
        return false;
    gpu.use(ordinal);
    return true;
}

static bool open_device(struct sy_device **out)
{
    struct sy_device_spec spec;
    return sy_device_spec_parse(spec_text, &spec) == SY_OK && sy_device_open(&spec, out) == SY_OK;
}

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_true(open_device(&r->device));
    assert_int_equal(sy_device_compute_parts(r->device, &r->parts), SY_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sy_stream_create(r->device, SY_STREAM_COMPUTE, &r->streams[i]), SY_OK);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    for (int i = 0; i < 2; i++)
        sy_stream_destroy(r->streams[i]);
    sy_device_close(r->device);
    free(r);
    return 0;
}

static int confine(struct sy_stream *stream, int first, int n)
{
    int list[MAX_PARTS];
    for (int i = 0; i < n; i++)
        list[i] = first + i;
    return sy_stream_confine(stream, list, n);
}

/* How many multiprocessors the stream's kernels were on, a flag each. */
static int see(struct sy_stream *stream, bool seen[MAX_SM])
{
    static unsigned on[N_BLOCKS];
    int n = 0;
    memset(seen, 0, MAX_SM);
    assert_int_equal(gpu.where(gpu.handle(stream), N_BLOCKS, on), 0);
    for (int i = 0; i < N_BLOCKS; i++) {
        assert_true(on[i] < MAX_SM);
        n += !seen[on[i]];
        seen[on[i]] = true;
    }
    return n;
}

static int n_common(const bool a[MAX_SM], const bool b[MAX_SM])
{
    int n = 0;
    for (int i = 0; i < MAX_SM; i++)
        n += a[i] && b[i];
    return n;
}

static void test_kernels_stay_in_their_slice(void **state)
{
    struct rig *r = *state;
    bool whole[MAX_SM], left[MAX_SM], right[MAX_SM];
    int half = r->parts.n / 2, n_whole = see(r->streams[0], whole);
    print_message("%d parts of %d multiprocessors, %d in all; MPS %s\n", r->parts.n, r->parts.n_sms,
                  n_whole, r->parts.beside ? "runs" : "does not run");
    assert_true(n_whole >= r->parts.n * r->parts.n_sms);
    assert_int_equal(confine(r->streams[0], 0, half), SY_OK);
    assert_int_equal(confine(r->streams[1], half, r->parts.n - half), SY_OK);
    int n_left = see(r->streams[0], left), n_right = see(r->streams[1], right);
    print_message("slices of %d and %d multiprocessors: seen on %d and %d, %d of them common\n",
                  half * r->parts.n_sms, (r->parts.n - half) * r->parts.n_sms, n_left, n_right,
                  n_common(left, right));
    assert_in_range(n_left, 1, half * r->parts.n_sms);
    assert_in_range(n_right, 1, (r->parts.n - half) * r->parts.n_sms);
    assert_int_equal(n_common(left, right), 0);
}

static void test_a_slice_is_resized_and_taken_back(void **state)
{
    struct rig *r = *state;
    bool seen[MAX_SM];
    for (int n = 1; n <= r->parts.n; n += n) {
        assert_int_equal(confine(r->streams[0], 0, n), SY_OK);
        assert_in_range(see(r->streams[0], seen), 1, n * r->parts.n_sms);
    }
    assert_int_equal(sy_stream_confine(r->streams[0], NULL, 0), SY_OK);
    assert_true(see(r->streams[0], seen) >= r->parts.n * r->parts.n_sms);
    assert_int_equal(confine(r->streams[0], r->parts.n, 1), SY_EARG); /* stays where it is */
    assert_true(see(r->streams[0], seen) >= r->parts.n * r->parts.n_sms);
}

/* A slice elsewhere, of the same size, and of another: the kernel's order of sums does not depend on where its blocks are. */
static void test_bits_are_the_same(void **state)
{
    struct rig *r = *state;
    static float whole[512], part[512];
    assert_int_equal(gpu.work(gpu.handle(r->streams[0]), 1, 512, 1000, whole), 0);
    for (int first = 0; first < r->parts.n; first += r->parts.n / 2) {
        assert_int_equal(confine(r->streams[0], first, 1), SY_OK);
        memset(part, 0, sizeof part);
        assert_int_equal(gpu.work(gpu.handle(r->streams[0]), 1, 512, 1000, part), 0);
        assert_memory_equal(part, whole, sizeof part);
    }
}

/* Copies and events that were queued before a move end before it; those after it are in order (D2). */
static void test_events_keep_their_order(void **state)
{
    struct rig *r = *state;
    struct sy_event *before, *after;
    assert_int_equal(sy_event_create(r->device, &before), SY_OK);
    assert_int_equal(sy_event_create(r->device, &after), SY_OK);
    assert_int_equal(sy_event_record(before, r->streams[0]), SY_OK);
    assert_int_equal(confine(r->streams[0], 0, 1), SY_OK);
    assert_int_equal(sy_event_query(before), 1);
    assert_int_equal(sy_stream_wait_event(r->streams[0], before), SY_OK);
    assert_int_equal(sy_event_record(after, r->streams[0]), SY_OK);
    assert_int_equal(sy_stream_wait_event(r->streams[1], after), SY_OK);
    assert_int_equal(sy_stream_synchronize(r->streams[1]), SY_OK);
    assert_int_equal(sy_event_query(after), 1);
    assert_true(sy_event_time(after) >= sy_event_time(before));
    sy_event_destroy(before);
    sy_event_destroy(after);
}

static void test_a_hundred_slices_leak_nothing(void **state)
{
    struct rig *r = *state;
    bool seen[MAX_SM];
    unsigned long long before = 0;
    sy_ns longest = 0;
    for (int i = 0; i < 101; i++) {
        int part = i % SY_MIN(N_KEPT, r->parts.n - 1);
        sy_ns begin = sy_clock_now();
        assert_int_equal(confine(r->streams[0], part, 2), SY_OK);
        longest = SY_MAX(longest, sy_clock_now() - begin);
        if (i == N_KEPT)
            before = gpu.free_bytes();
    }
    assert_in_range(see(r->streams[0], seen), 1, 2 * r->parts.n_sms);
    unsigned long long after = gpu.free_bytes();
    print_message("a move takes at most %.1f ms; %.1f MiB less are free after 100, in turns of "
                  "those that are kept\n",
                  (double)longest / 1e6, (double)(long long)(before - after) / (1 << 20));
    assert_true(before > 0 && after + (8ull << 20) >= before); /* 90 KiB a move would show */
}

/* ---- beside one another ---------------------------------------------------------------------------------------- */

struct task {
    struct sy_stream *stream;
    int times, n_blocks, error;
    sy_ns took;
};

static void *run_task(void *arg)
{
    struct task *t = arg;
    static _Thread_local float out[4096];
    sy_ns begin = sy_clock_now();
    t->error = gpu.work(gpu.handle(t->stream), t->times, t->n_blocks, 20000, out);
    t->took = sy_clock_now() - begin;
    return NULL;
}

static double both_ms(struct task tasks[2], bool at_once)
{
    pthread_t threads[2];
    sy_ns begin = sy_clock_now();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_task, &tasks[i]), 0);
        if (!at_once)
            pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < 2 && at_once; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(tasks[0].error | tasks[1].error, 0);
    return (double)(sy_clock_now() - begin) / 1e6;
}

/* Each leaves most of the device idle: as many blocks as half of it has multiprocessors. Printed; that turns take longer is asserted, since
 * beside one another is what slices are for. */
static void test_small_tasks_beside_one_another(void **state)
{
    struct rig *r = *state;
    int half = r->parts.n / 2;
    struct task tasks[2];
    for (int i = 0; i < 2; i++)
        tasks[i] =
            (struct task){.stream = r->streams[i], .times = 50, .n_blocks = half * r->parts.n_sms};
    (void)both_ms(tasks, false); /* warm */
    double turns = both_ms(tasks, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(confine(r->streams[i], i * half, half), SY_OK);
    (void)both_ms(tasks, true);
    double beside = both_ms(tasks, true);
    print_message("two tasks of half a device in one process: by turns %.2f ms, in two slices "
                  "%.2f ms: %.2f times the throughput\n",
                  turns, beside, turns / beside);
    assert_true(beside < turns);
}

/* ---- two processes under MPS ----------------------------------------------------------------------------------- */

/* This binary again: a worker of slice (first, n; n 0: the whole device). Says where its kernels ran, then for each line on stdin how long the
 * work took. */
static int play_worker(int first, int n)
{
    struct sy_device *device;
    struct sy_compute_parts parts;
    struct sy_stream *stream;
    bool seen[MAX_SM];
    char line[16];
    if (!open_device(&device) || sy_device_compute_parts(device, &parts) < 0 ||
        sy_stream_create(device, SY_STREAM_COMPUTE, &stream) < 0 || confine(stream, first, n) < 0) {
        printf("failed: %s\n", sy_error_text());
        return 1;
    }
    struct task task = {.stream = stream, .times = 50, .n_blocks = parts.n / 2 * parts.n_sms};
    run_task(&task); /* warm */
    (void)see(stream, seen);
    printf("%d", parts.beside);
    for (int i = 0; i < MAX_SM; i++)
        if (seen[i])
            printf(" %d", i);
    printf("\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        run_task(&task);
        printf("%d %llu\n", task.error, (unsigned long long)task.took);
        fflush(stdout);
    }
    sy_stream_destroy(stream);
    sy_device_close(device);
    return 0;
}

struct worker {
    pid_t pid;
    FILE *to, *from;
    bool seen[MAX_SM];
    int n_seen, beside;
};

static void start_worker(struct worker *w, int first, int n)
{
    int to[2], from[2];
    char first_text[16], n_text[16], line[8192], *at = line, *end;
    snprintf(first_text, sizeof first_text, "%d", first);
    snprintf(n_text, sizeof n_text, "%d", n);
    assert_true(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    *w = (struct worker){.pid = fork()};
    if (w->pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        execl(own_path, own_path, "--worker", first_text, n_text, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    w->to = fdopen(to[1], "w");
    w->from = fdopen(from[0], "r");
    assert_non_null(fgets(line, sizeof line, w->from));
    if (strncmp(line, "failed", 6) == 0)
        fail_msg("a worker %s", line);
    w->beside = (int)strtol(at, &at, 10);
    for (long sm = strtol(at, &end, 10); end != at; at = end, sm = strtol(at, &end, 10)) {
        assert_in_range(sm, 0, MAX_SM - 1);
        w->n_seen += !w->seen[sm];
        w->seen[sm] = true;
    }
}

static void go(struct worker *w)
{
    fputs("go\n", w->to);
    fflush(w->to);
}

static void await(struct worker *w)
{
    char line[64];
    assert_non_null(fgets(line, sizeof line, w->from));
    assert_int_equal(atoi(line), 0);
}

static void end_worker(struct worker *w)
{
    int result;
    fclose(w->to);
    assert_int_equal(waitpid(w->pid, &result, 0), w->pid);
    assert_int_equal(result, 0);
    fclose(w->from);
}

struct pair_times {
    double turns_ms, at_once_ms;
    int beside, n_seen[2], n_common;
};

/* Medians of five, in turns. */
static struct pair_times time_pair(int first0, int n0, int first1, int n1)
{
    struct worker w[2];
    double turns[5], at_once[5];
    start_worker(&w[0], first0, n0);
    start_worker(&w[1], first1, n1);
    for (int k = 0; k < 5; k++) {
        sy_ns begin = sy_clock_now();
        for (int i = 0; i < 2; i++) {
            go(&w[i]);
            await(&w[i]);
        }
        sy_ns middle = sy_clock_now();
        for (int i = 0; i < 2; i++)
            go(&w[i]);
        for (int i = 0; i < 2; i++)
            await(&w[i]);
        turns[k] = (double)(middle - begin) / 1e6;
        at_once[k] = (double)(sy_clock_now() - middle) / 1e6;
    }
    for (int k = 1; k < 5; k++) /* sorted */
        for (int i = k; i > 0; i--) {
            double a = turns[i - 1], b = at_once[i - 1];
            turns[i - 1] = SY_MIN(a, turns[i]), turns[i] = SY_MAX(a, turns[i]);
            at_once[i - 1] = SY_MIN(b, at_once[i]), at_once[i] = SY_MAX(b, at_once[i]);
        }
    struct pair_times t = {.turns_ms = turns[2],
                           .at_once_ms = at_once[2],
                           .beside = w[0].beside && w[1].beside,
                           .n_seen = {w[0].n_seen, w[1].n_seen},
                           .n_common = n_common(w[0].seen, w[1].seen)};
    end_worker(&w[0]);
    end_worker(&w[1]);
    return t;
}

static void say_pair(const char *what, const struct pair_times *t)
{
    print_message("%s: on %d and %d multiprocessors, %d common; by turns %.2f ms, at once %.2f ms "
                  "(%.2f)\n",
                  what, t->n_seen[0], t->n_seen[1], t->n_common, t->turns_ms, t->at_once_ms,
                  t->turns_ms / t->at_once_ms);
}

/* What is said in words (runtime/core/slices/core_units.c): without MPS processes compute by turns. Printed, so that it can be read from the log. */
static void test_two_processes_without_mps(void **state)
{
    struct rig *r = *state;
    int half = r->parts.n / 2;
    if (r->parts.beside) {
        print_message("skip: MPS runs here\n");
        skip();
    }
    struct pair_times whole = time_pair(0, 0, 0, 0), slices = time_pair(0, half, half, half);
    say_pair("two processes, no MPS, whole device", &whole);
    say_pair("two processes, no MPS, two slices", &slices);
    assert_int_equal(whole.beside | slices.beside, 0);
    assert_int_equal(slices.n_common, 0);
}

static bool start_mps(char *folder)
{
    if (!mkdtemp(folder))
        return false;
    setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1);
    setenv("CUDA_MPS_LOG_DIRECTORY", folder, 1);
    return system("command -v nvidia-cuda-mps-control >/dev/null && timeout 20 "
                  "nvidia-cuda-mps-control -d") == 0;
}

static void stop_mps(const char *folder)
{
    char command[200];
    (void)!system("echo quit -t 5 | timeout 20 nvidia-cuda-mps-control");
    snprintf(command, sizeof command, "rm -rf '%.100s'", folder);
    (void)!system(command);
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    unsetenv("CUDA_MPS_LOG_DIRECTORY");
}

/* A server of our own, which others on the GPU do not see. */
static void test_two_processes_under_mps(void **state)
{
    struct rig *r = *state;
    char folder[] = "/tmp/switchyard-mps-XXXXXX";
    int answer;
    if (r->parts.beside || !start_mps(folder)) {
        print_message("skip: nvidia-cuda-mps-control cannot be started here\n");
        skip();
    }
    /* Whether clients reach it is seen in another process, so that a failure here ends with the server stopped. */
    pid_t child = fork();
    if (child == 0) {
        execl(own_path, own_path, "--pair", (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &answer, 0), child);
    stop_mps(folder);
    if (WIFEXITED(answer) && WEXITSTATUS(answer) == 77) {
        print_message("skip: the driver does not take MPS's clients here\n");
        skip();
    }
    assert_int_equal(answer, 0);
}

/* Under MPS. 77: the driver says that it does not run. */
static void test_pair(void **state)
{
    (void)state;
    struct sy_device *device;
    struct sy_compute_parts parts;
    assert_true(open_device(&device));
    assert_int_equal(sy_device_compute_parts(device, &parts), SY_OK);
    sy_device_close(device);
    if (!parts.beside)
        exit(77);
    int half = parts.n / 2;
    struct pair_times whole = time_pair(0, 0, 0, 0), slices = time_pair(0, half, half, half);
    say_pair("two processes under MPS, whole device", &whole);
    say_pair("two processes under MPS, two slices", &slices);
    assert_in_range(slices.n_seen[0], 1, half * parts.n_sms);
    assert_in_range(slices.n_seen[1], 1, half * parts.n_sms);
    /* Not asserted: on an H200 both clients see the same numbers, and compute at the same time all the same. */
    assert_true(slices.at_once_ms < slices.turns_ms);
}

static int skip_all(const char *why)
{
    printf("skip: %s\n", why);
    return 77;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_kernels_stay_in_their_slice, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_slice_is_resized_and_taken_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bits_are_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_events_keep_their_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_hundred_slices_leak_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_small_tasks_beside_one_another, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_two_processes_without_mps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_two_processes_under_mps, set_up, tear_down),
    };
    const struct CMUnitTest pair[] = {cmocka_unit_test(test_pair)};
    struct sy_device_spec spec;
    struct sy_device *device;
    struct sy_compute_parts parts;
    spec_text = getenv("SY_TEST_DEVICE");
    if (!spec_text)
        return skip_all("no GPU: make gpu-check sets SY_TEST_DEVICE");
    if (readlink("/proc/self/exe", own_path, sizeof own_path - 1) < 0)
        return 1;
    if (!open_device(&device))
        return skip_all(sy_error_text());
    int status = sy_device_compute_parts(device, &parts);
    sy_device_close(device);
    if (status == SY_EUNSUPPORTED)
        return skip_all(sy_error_text());
    if (sy_device_spec_parse(spec_text, &spec) < 0 || !load_kernels(spec.ordinal))
        return skip_all("no libgpu_slices.so, made with nvcc, beside this test");
    signal(SIGPIPE, SIG_IGN);
    if (argc == 4 && strcmp(argv[1], "--worker") == 0)
        return play_worker(atoi(argv[2]), atoi(argv[3]));
    if (argc == 2 && strcmp(argv[1], "--pair") == 0)
        return cmocka_run_group_tests(pair, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
