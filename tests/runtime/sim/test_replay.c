/* The same trace replayed at a server and simulated: the same words, each request answered once, at its time. */
#include <dirent.h>
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
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_slice.h"
#include "tests/rigs/server_fixture.h"
#include "tests/rigs/shell.h"

static char output[1 << 16];

/* Exit status; `output` is stdout, and stderr too if that is asked for. */
static int run(bool errors, const char *format, ...)
{
    char arguments[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    return shell_run(output, sizeof output, "'%s' %s 2>%s </dev/null",
                     fixture_program("switchyard"), arguments, errors ? "&1" : "/dev/null");
}

static json_t *answer_of(const char *what)
{
    json_t *json = json_loads(output, 0, NULL);
    if (!json)
        fail_msg("%s printed no JSON: %s", what, output);
    return json;
}

static void assert_same_keys(json_t *a, json_t *b, const char *where)
{
    const char *key;
    json_t *value;
    json_object_foreach(a, key, value)
    {
        json_t *other = json_object_get(b, key);
        if (!other)
            fail_msg("%s has no %s", where, key);
        if (json_is_object(value) && strcmp(key, "tenants") != 0)
            assert_same_keys(value, other, key);
    }
}

static int64_t integer(json_t *answer, const char *key)
{
    json_t *value = json_object_get(answer, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* 60 requests of two classes within 0.6 s, to two models of different bytes. */
static void write_trace(const char *path, const char *third_model)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "time_s,model,class\n");
    for (int i = 0; i < 60; i++)
        fprintf(file, "%.3f,%s,%d\n", i * 0.01,
                i == 30 && third_model ? third_model
                : i % 3                ? "identity"
                                       : "tiny_cnn",
                i % 2);
    fclose(file);
}

/* A process that kills the server once it has answered more requests than now. Its own connection: nobody else's is used twice. */
static pid_t kill_in_the_middle(const struct fixture *f)
{
    struct fixture own = *f;
    int64_t before = fixture_counter(&own, "requests");
    pid_t killer = fork();
    assert_true(killer >= 0);
    if (killer > 0)
        return killer;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (sy_client_connect(f->address, 300000, &own.client) < 0)
        _exit(1);
    while (fixture_counter(&own, "requests") < before + 2)
        usleep(1000);
    kill(f->pid, SIGKILL);
    _exit(0);
}

static double used_by_models_ms(struct fixture *f)
{
    json_t *now = fixture_status(f), *model;
    size_t i;
    double sum = 0;
    json_array_foreach(json_object_get(now, "models"), i, model) sum +=
        json_number_value(json_object_get(model, "device_ns")) / 1e6;
    json_decref(now);
    return sum;
}

/* However late and in whatever order answers come to the client's threads: what requests are said to have had the device for is at least what
 * they computed, and no time is two requests'. */
static void assert_served_is_what_the_device_was_used(struct fixture *f, const char *trace)
{
    char answers[320], line[300];
    double sum = 0, used = used_by_models_ms(f);
    int n = 0;
    snprintf(answers, sizeof answers, "%s.answers", trace);
    sy_ns begun = sy_clock_now();
    assert_int_equal(run(false, "replay %s --server %s --speed 20 --connections 16 --answers %s",
                         trace, f->address, answers),
                     0);
    double wall = (double)(sy_clock_now() - begun) / 1e6;
    assert_non_null(strstr(output, "60 done"));
    FILE *file = fopen(answers, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        double latency, served;
        if (sscanf(line, "%*[^,],%*[^,],%*[^,],%*[^,],done,%lf,%lf", &latency, &served) != 2)
            continue;
        assert_true(served > 0 && served <= latency);
        sum += served;
        n++;
    }
    fclose(file);
    unlink(answers);
    assert_int_equal(n, 60);
    assert_true(sum >= used_by_models_ms(f) - used - 0.001 * n); /* as printed, rounded */
    assert_true(sum <= wall);
}

/* A replay of more than three seconds says on a terminal how far it is, and takes the line away again. */
static void assert_progress_is_shown(struct fixture *f, const char *trace)
{
    char command[2048], shown[4096] = "";
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    int other = open(ptsname(terminal), O_RDWR | O_NOCTTY); /* what was written stays to be read */
    snprintf(command, sizeof command, "'%s' replay %s --server %s --speed 0.15 2>%s >/dev/null",
             fixture_program("switchyard"), trace, f->address, ptsname(terminal));
    assert_int_equal(system(command), 0);
    /* A terminal gives what was written piece by piece. */
    for (size_t n = 0; !strstr(shown, "\r\033[K");) {
        ssize_t got = read(terminal, shown + n, sizeof shown - 1 - n);
        assert_true(got > 0);
        n += (size_t)got;
        shown[n] = '\0';
    }
    unsigned done = 0;
    assert_int_equal(sscanf(shown, "\r%u of 60 requests, 0 refused, 0 failed", &done), 1);
    assert_in_range(done, 1, 60);
    close(other);
    close(terminal);
}

/* The slice of a thread of another process, as sched_getattr(2) tells it; 0: a kernel before 6.12, or the thread has ended. */
static sy_ns slice_of(pid_t thread)
{
    struct {
        uint32_t bytes, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } a = {0};
    return syscall(SYS_sched_getattr, thread, &a, sizeof a, 0) == 0 ? a.runtime_ns : 0;
}

/* Of a replay's threads but the first, which sends nothing. */
static int n_senders(pid_t replay, bool with_usual_slice)
{
    char path[64];
    sy_ns usual = slice_of(replay);
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)replay);
    DIR *threads = opendir(path);
    assert_non_null(threads);
    for (struct dirent *e; (e = readdir(threads));) {
        pid_t thread = (pid_t)atoi(e->d_name);
        n += thread > 0 && thread != replay &&
             (!with_usual_slice || (usual > 0 && slice_of(thread) == usual));
    }
    closedir(threads);
    return n;
}

static void *try_slice(void *slice)
{
    *(int *)slice = sy_thread_slice_set(SY_NS_PER_MS);
    return NULL;
}

/* Not under SCHED_BATCH, nor where a filter of system calls forbids it: the senders go on with the usual slice. */
static bool may_set_slice(void)
{
    pthread_t thread;
    int status;
    assert_int_equal(pthread_create(&thread, NULL, try_slice, &status), 0);
    pthread_join(thread, NULL);
    return status == SY_OK;
}

/* Threads that send take a core as soon as their time comes; each says so as it begins. */
static void assert_senders_have_short_slices(pid_t replay)
{
    assert_true(n_senders(replay, false) > 0);
    if (!may_set_slice())
        return;
    for (int i = 0; i < 1000 && n_senders(replay, true) > 0; i++)
        usleep(10000);
    assert_int_equal(n_senders(replay, true), 0);
}

/* Interrupted, it reports what was answered by then. */
static void assert_interrupted_reports(struct fixture *f, const char *trace)
{
    char path[300], words[300], text[4096] = "";
    snprintf(path, sizeof path, "%s/early.json", f->folder);
    snprintf(words, sizeof words, "%s/early.txt", f->folder);
    int64_t before = fixture_counter(f, "requests");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (freopen(path, "w", stdout) && freopen(words, "w", stderr))
            execl(fixture_program("switchyard"), "switchyard", "replay", trace, "--server",
                  f->address, "--speed", "0.01", "--json", NULL);
        _exit(127);
    }
    while (fixture_counter(f, "requests") == before) {
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
        usleep(1000);
    }
    assert_senders_have_short_slices(child);
    kill(child, SIGINT);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    json_t *measured = json_load_file(path, 0, NULL);
    assert_in_range(integer(measured, "requests"), 1, 59);
    assert_int_equal(integer(measured, "failed") + integer(measured, "refused"), 0);
    json_decref(measured);
    FILE *file = fopen(words, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    assert_non_null(strstr(text, "interrupted"));
    unlink(path);
    unlink(words);
}

/* A model with the longest name that a server takes is like any other, in a trace and beside it. */
static void assert_long_names_are_fine(struct fixture *f, const char *trace)
{
    char package[512], name[128];
    memset(name, 'm', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(package, sizeof package, "%s/identity/1/model.sypkg", fixture_models());
    json_decref(
        fixture_call(f, "model_load", json_pack("{s:s, s:s}", "path", package, "name", name)));
    write_trace(trace, name);
    assert_int_equal(run(true, "replay %s --server %s", trace, f->address), 0);
    assert_non_null(strstr(output, "60 done"));
    write_trace(trace, NULL);
}

static void replay_and_simulate(void **state)
{
    (void)state;
    struct fixture f;
    char trace[300], plot[300];
    fixture_init(&f, "replay");
    const char *const args[] = {"--models", fixture_models(), "--pool-bytes", "64M", NULL};
    fixture_start(&f, args);
    snprintf(trace, sizeof trace, "%s/trace.csv", f.folder);
    snprintf(plot, sizeof plot, "%s/plot.svg", f.folder);
    assert_long_names_are_fine(&f, trace);

    assert_int_equal(run(false, "replay %s --server %s --json --connections 8 --plot %s", trace,
                         f.address, plot),
                     0);
    json_t *measured = answer_of("replay");
    assert_int_equal(integer(measured, "requests"), 60);
    assert_int_equal(integer(measured, "failed") + integer(measured, "refused"), 0);
    json_t *latency = json_object_get(measured, "latency_ms");
    for (int i = 0; i < 2; i++) {
        json_t *class_ = json_object_get(latency, i ? "1" : "0");
        assert_int_equal(integer(class_, "n"), 30);
        assert_true(json_real_value(json_object_get(class_, "p50")) > 0);
    }
    assert_true(json_real_value(json_object_get(measured, "makespan_s")) >= 0.59);
    assert_int_equal(access(plot, R_OK), 0);
    unlink(plot);

    assert_int_equal(run(false,
                         "simulate --requests %s --packages %s --like-this-machine host --json",
                         trace, fixture_models()),
                     0);
    json_t *simulated = answer_of("simulate");
    assert_int_equal(integer(simulated, "requests"), 60);
    assert_same_keys(simulated, measured, "replay");
    assert_same_keys(measured, simulated, "simulate");
    json_decref(measured);
    json_decref(simulated);

    assert_served_is_what_the_device_was_used(&f, trace);
    assert_progress_is_shown(&f, trace);
    assert_interrupted_reports(&f, trace);
    /* Half of them have a deadline that nobody can meet: refused, and counted so. The others have none, or years. */
    FILE *file = fopen(trace, "w");
    assert_non_null(file);
    fprintf(file, "time_s,model,class,deadline_ms\n");
    for (int i = 0; i < 20; i++)
        fprintf(file, "%.2f,tiny_cnn,1,%s\n", i * 0.02, i % 2 ? "0.0011" : i % 4 ? "1e11" : "0");
    fclose(file);
    assert_int_equal(run(false, "replay %s --server %s --json", trace, f.address), 0);
    measured = answer_of("replay");
    assert_int_equal(integer(measured, "refused"), 10);
    assert_int_equal(integer(json_object_get(json_object_get(measured, "latency_ms"), "1"), "n"),
                     10);
    assert_int_equal(integer(measured, "failed"), 0);
    file = fopen(trace, "w");
    assert_non_null(file);
    fputs("time_s,model\n1e9,tiny_cnn\n", file);
    fclose(file);
    assert_int_equal(run(true, "replay %s --server %s --speed 0.000001", trace, f.address), 1);
    assert_non_null(strstr(output, "more than 30 years from now"));
    json_decref(measured);
    write_trace(trace, "nosuch");
    assert_int_equal(run(true, "replay %s --server %s", trace, f.address), 1);
    assert_non_null(strstr(output, "trace.csv:32: no model nosuch"));
    assert_int_equal(run(true, "simulate --requests %s --packages %s", trace, f.folder), 1);
    assert_non_null(strstr(output, f.folder));

    /* The server goes away in the middle, and is not there: said, and not waited for. */
    write_trace(trace, NULL);
    pid_t killer = kill_in_the_middle(&f);
    assert_int_equal(run(true, "replay %s --server %s --speed 0.01", trace, f.address), 1);
    assert_non_null(strstr(output, "not sent; the first: "));
    assert_int_equal(waitpid(killer, NULL, 0), killer);
    fixture_kill(&f);
    assert_int_equal(run(true, "replay %s --server %s", trace, f.address), 1);
    assert_non_null(strstr(output, "no server"));
    unlink(trace);
    fixture_finish(&f);
}

static void bad_usage_is_exit_2(void **state)
{
    (void)state;
    assert_int_equal(run(true, "replay"), 2);
    assert_int_equal(run(true, "replay a b"), 2);
    assert_int_equal(run(true, "replay a --speed 0"), 2);
    assert_int_equal(run(true, "replay a --connections 0"), 2);
    assert_int_equal(run(true, "simulate --generate rate=1 --models a --packages b"), 2);
    assert_int_equal(run(true, "simulate --generate rate=1 --seconds 1e-10"),
                     2); /* 0 has a meaning */
    assert_int_equal(run(true, "replay --help"), 0);
    assert_non_null(strstr(output, "usage: switchyard replay"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_usage_is_exit_2),
        cmocka_unit_test(replay_and_simulate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
