/* The command line as people and scripts meet it: help, exit codes, one line for bad usage, files in and out. */
#include <sched.h>
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

#include "runtime/base/status.h"
#include "tests/rigs/server_fixture.h"
#include "tests/rigs/shell.h"
#include "workers/data/npy.h"

static char output[1 << 16]; /* of the last command: stdout and stderr */

/* Exit status of `switchyard ARGUMENTS`. */
static int run(const char *format, ...)
{
    char arguments[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    return shell_run(output, sizeof output, "'%s' %s 2>&1 </dev/null",
                     fixture_program("switchyard"), arguments);
}

static int count_lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void assert_usage(const char *arguments, const char *says)
{
    assert_int_equal(run("%s", arguments), 2);
    if (count_lines(output) != 1 || !strstr(output, says))
        fail_msg("switchyard %s: one line with \"%s\" was expected: %s", arguments, says, output);
}

static void every_command_explains_itself(void **state)
{
    (void)state;
    static const char *const commands[] = {"serve",    "import",     "plan",    "infer", "train",
                                           "status",   "bench-link", "version", "jobs",  "policy",
                                           "simulate", "replay",     "models",  "doctor"};
    assert_int_equal(run("help"), 0);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        assert_non_null(strstr(output, commands[i]));
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        assert_int_equal(run("%s --help", commands[i]), 0);
        assert_non_null(strstr(output, "usage: switchyard"));
        assert_non_null(strstr(output, commands[i]));
        assert_int_equal(run("help %s", commands[i]), 0);
        assert_non_null(strstr(output, "usage: switchyard"));
    }
    assert_usage("help sevre", "did you mean serve");
}

static void bad_usage_is_one_line_and_exit_2(void **state)
{
    (void)state;
    assert_usage("", "which command");
    assert_usage("sevre", "did you mean serve");
    assert_usage("models laod x", "did you mean 'load'");
    assert_usage("models unload", "a model's name");
    assert_usage("serve --workers 65", "from 2 to 64");
    assert_int_equal(run("jobs foo 1"), 2); /* far from all verbs: none is proposed */
    assert_null(strstr(output, "did you mean"));
    assert_usage("models unload a b", "'b' is too much");
    assert_usage("models unload a --image", "--image with evict");
    assert_usage("serve --pool-byte 3M", "did you mean --pool-bytes");
    assert_usage("serve --pool-bytes lots", "lots");
    assert_usage("serve --pool-bytes", "--pool-bytes needs");
    assert_usage("serve here", "here");
    assert_usage("serve --policy lifo", "lifo");
    assert_usage("serve --hang-timeout 1e300", "1e300");
    assert_usage("serve --poll-us 10001", "10001");
    assert_usage("serve --poll-us -1", "-1");
    assert_usage("serve --max-delay-ms inf", "inf");
    assert_usage("policy fifo srtf", "srtf");
    assert_usage("import", "which model");
    assert_usage("import a.onnx b.onnx", "b.onnx");
    assert_usage("import a.onnx --threads 0", "--threads");
    assert_usage("plan", "which model");
    assert_usage("plan x.sypkg --link-gbps 0", "--link-gbps");
    assert_usage("plan x.sypkg --batch 0", "--batch");
    assert_usage("infer", "which model");
    assert_usage("infer m --repeat -1", "--repeat");
    assert_usage("status --wach", "did you mean --watch");
    assert_usage("policy --tenant a --memory 0.5", "not a size"); /* 0 is no limit */
    assert_usage("bench-link --device abacus", "abacus");
}

/* Each kind of value that a row of cli_fields.h has, beyond its bounds, and words that no command takes. */
static void values_are_held_to_their_bounds(void **state)
{
    (void)state;
    assert_usage("infer m --class 10", "from 0 to 9");
    assert_usage("infer m --deadline-ms -1", "at least 0");
    assert_usage("infer m --dim N", "NAME=SIZE");
    assert_usage("infer m --random=yes", "takes no value");
    assert_usage("generate m --tokens 1,x", "not a token");
    assert_usage("generate m --max-tokens 0", "--max-tokens");
    assert_usage("generate a b", "not also b");
    assert_usage("fetch http://h/x --stall 0", "from 1 to 3600");
    assert_usage("fetch http://h/x --max-bytes much", "not a size");
    assert_usage("fetch 1 2 3 4 5 6 7 8 9", "at most 8");
    assert_usage("replay a b", "one trace");
    assert_usage("simulate --pause-ms 1e30", "30 years");
    assert_usage("simulate --pause-ms 1e-9", "less than a nanosecond");
    assert_usage("simulate --bound 0.5", "0.5");
    assert_usage("simulate --queue 65535", "65534");
    assert_usage("simulate here", "takes no words: here");
    assert_usage("status now", "takes no words: now");
    assert_usage("doctor now", "takes no words: now");
    assert_usage("doctor --device abacus", "abacus");
    assert_usage("import a.onnx --limit 0", "--limit");
    assert_usage("import a.onnx --precision f8", "f8");
    assert_usage("policy --weight heavy", "--weight: ");
    assert_usage("slices --job 0 --to a", "--job: ");
    assert_usage("train --steps 1001", "--steps: ");
    assert_usage("run --stop-after 60001 -- true", "--stop-after: ");
    assert_usage("run --class best -- true", "guaranteed or opportunistic");
    assert_usage("run --share 2 -- true", "from 0 to 1");
}

/* A program's own options are not the command's: they begin behind "--", or with the first word. */
static void run_ends_its_options_at_the_program(void **state)
{
    (void)state;
    assert_usage("run", "takes a program");
    assert_usage("run --", "no program behind '--'");
    assert_usage("run early -- true", "'early' stands in front of '--'");
    assert_usage("run --share 0.5 true --steps x", "--tenant says whose");
    assert_usage("run --share 0.5 -- true --steps x", "--tenant says whose");
}

static void options_that_go_together_are_checked(void **state)
{
    (void)state;
    assert_usage("train a.json b.json", "not 'b.json' too");
    assert_usage("train --ranks 2", "a job file");
    assert_usage("jobs pause 1 2 3", "'3' is too much");
    assert_usage("jobs --to tcp:a:1", "jobs move JOB");
    assert_usage("policy --weight 2", "want --tenant");
    assert_usage("slices train", "NAME=SIZE");
    assert_usage("slices train=w0", "a size is 2");
    assert_usage("slices --none train=1", "takes slices back, and 1");
    assert_usage("slices --to serve", "go together");
    assert_usage("policy $(printf '\\377')", "a name is UTF-8");
    assert_usage("policy --weight 2 --tenant $(printf '\\377')", "a name is UTF-8");
    assert_usage("slices --for-jobs $(printf '\\377')", "not UTF-8");
    assert_usage("slices a=@$(printf '\\377')", "cores are numbers");
}

static void failures_are_exit_1_and_name_the_thing(void **state)
{
    (void)state;
    assert_int_equal(run("version > /dev/full"), 1);
    assert_int_equal(run("simulate --generate rate=5,seconds=5 --json > /dev/full"), 1);
    assert_int_equal(run("import /nonexistent/m.onnx"), 1);
    assert_non_null(strstr(output, "/nonexistent/m.onnx"));
    assert_int_equal(run("plan /nonexistent/m.sypkg"), 1);
    assert_non_null(strstr(output, "/nonexistent/m.sypkg"));
    assert_int_equal(run("infer m --socket /nonexistent/socket"), 1);
    assert_non_null(strstr(output, "/nonexistent/socket"));
    assert_int_equal(run("jobs priority 1 -5 --socket /nonexistent/socket"), 1); /* no option */
    /* without ports, which another server on the machine may have */
    assert_int_equal(run("serve --models /nonexistent --http off --grpc off --metrics off --socket "
                         "/tmp/sy-test-cli-%d",
                         (int)getpid()),
                     1);
    assert_non_null(strstr(output, "/nonexistent"));
    assert_int_equal(run("serve --threads 900 --http off --grpc off --metrics off --socket "
                         "/tmp/sy-test-cli-%d",
                         (int)getpid()),
                     1);
    assert_non_null(strstr(output, "900"));
}

static void plan_draws_packages_and_onnx_files(void **state)
{
    (void)state;
    char folder[700];
    snprintf(folder, sizeof folder, "%s/tiny_cnn/1", fixture_models());
    assert_int_equal(run("import %s/model.onnx -o %s/cli.sypkg --name tiny_cnn", folder, folder),
                     0);
    assert_int_equal(run("import %s/model.onnx -o %s/named.sypkg", folder, folder), 0);
    assert_int_equal(run("plan %s/named.sypkg", folder), 0);
    assert_non_null(strstr(output, "tiny_cnn")); /* from tiny_cnn/1/model.onnx */
    assert_int_equal(run("plan %s/cli.sypkg --link-gbps 0.5", folder), 0);
    assert_non_null(strstr(output, "link    |"));
    assert_non_null(strstr(output, "compute |"));
    assert_non_null(strstr(output, "0.50 GB/s"));
    assert_int_equal(run("plan %s/cli.sypkg --device host", folder), 0);
    assert_int_equal(run("plan %s/model.onnx --device emulated,link-gbps=2 --sigma-us 7", folder),
                     0);
    assert_non_null(strstr(output, "7.00 us a group's signal"));
    snprintf(folder + strlen(folder), sizeof folder - strlen(folder), "/cli.sypkg");
    assert_int_equal(unlink(folder), 0);
}

static void import_explains_without_a_package(void **state)
{
    (void)state;
    char package[700];
    snprintf(package, sizeof package, "%s/explained.sypkg", fixture_models());
    assert_int_equal(
        run("import %s/tiny_cnn/1/model.onnx --explain -o %s", fixture_models(), package), 0);
    assert_string_equal(output, "nothing is sized at run\n");
    assert_int_equal(access(package, F_OK), -1);
    assert_int_equal(run("import --explain /nonexistent/m.onnx"), 1);
    assert_non_null(strstr(output, "/nonexistent"));
}

static json_t *simulated(const char *arguments)
{
    if (run("simulate --json %s", arguments) != 0)
        fail_msg("simulate %s: %s", arguments, output);
    json_t *json = json_loads(output, 0, NULL);
    assert_non_null(json);
    return json;
}

/* Of so many devices of a kind, how much of their time was requests'. */
static double assert_kind(json_t *answer, size_t at, const char *name, int n)
{
    json_t *kind = json_array_get(json_object_get(answer, "devices"), at);
    assert_string_equal(json_string_value(json_object_get(kind, "device")), name);
    assert_int_equal(json_integer_value(json_object_get(kind, "n")), n);
    return json_real_value(json_object_get(kind, "requests"));
}

static void put_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void simulate_takes_unequal_devices_and_tenants(void **state)
{
    (void)state;
    char folder[64], path[128], arguments[1024];
    json_t *answer = simulated("--devices examples/traces/devices.csv --router least "
                               "--generate rate=100,seconds=20,models=9,zipf=1 --check");
    assert_true(assert_kind(answer, 0, "large", 2) > assert_kind(answer, 1, "medium", 3));
    assert_kind(answer, 2, "small", 4);
    json_decref(answer);
    snprintf(folder, sizeof folder, "/tmp/sy-test-cli-%d", (int)getpid());
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/tiny.sypkg", folder);
    assert_int_equal(run("import %s/tiny_cnn/1/model.onnx -o %s", fixture_models(), path), 0);
    snprintf(arguments, sizeof arguments,
             "--devices examples/traces/devices.csv --router residency --packages %s "
             "--generate rate=100,seconds=20",
             folder);
    answer = simulated(arguments);
    assert_int_equal(json_integer_value(json_object_get(answer, "refused")), 0);
    json_decref(answer);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
    answer = simulated("--devices 3 --generate rate=9,seconds=9");
    assert_int_equal(json_array_size(json_object_get(answer, "devices")), 1);
    assert_kind(answer, 0, "device", 3);
    json_decref(answer);

    snprintf(path, sizeof path, "/tmp/sy-test-cli-%d.csv", (int)getpid());
    put_text(path, "name,submit_s,iterations,iteration_ms,persistent_mb,ephemeral_mb,tenant\n"
                   "a,0,100000,10,1000,1000,batch\nb,0,100000,10,1000,1000,research\n"
                   "c,0,100000,10,5000,3000,batch\n");
    snprintf(arguments, sizeof arguments,
             "--jobs %s --tenants examples/traces/tenants.csv --policy fair --seconds 100", path);
    answer = simulated(arguments);
    json_t *tenants = json_object_get(json_object_get(answer, "shares"), "tenants");
    assert_true(json_real_value(json_object_get(tenants, "batch")) < 0.31);
    assert_true(json_real_value(json_object_get(tenants, "research")) > 0.69);
    assert_non_null(strstr(json_string_value(json_object_get(answer, "first_refusal")),
                           "job c: the job needs 8"));
    json_decref(answer);
    put_text(path, "tenant,memory_mb\nbatch,1\n"); /* nobody's models are not batch's */
    snprintf(arguments, sizeof arguments, "--generate rate=9,seconds=9 --tenants %s", path);
    answer = simulated(arguments);
    assert_int_equal(json_integer_value(json_object_get(answer, "refused")), 0);
    json_decref(answer);
    put_text(path, "device,count\nx,none\n");
    assert_int_equal(run("simulate --generate rate=1 --devices %s", path), 1);
    assert_non_null(strstr(output, ":2: count is \"none\""));
    unlink(path);
    assert_int_equal(run("simulate --generate rate=1 --devices %s", path), 1);
    assert_non_null(strstr(output, path));
    assert_usage("simulate --generate rate=1 --devices 0", "--devices");
    assert_usage("simulate --generate rate=1 --devices -1", "--devices");
}

static void put_samples(const char *path, int64_t n, int64_t channels)
{
    const int64_t dims[] = {n, channels, 16, 16};
    float *values = calloc((size_t)(n * channels * 256), sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n * channels * 256; i++)
        values[i] = (float)(i % 17) / 8 - 1;
    assert_int_equal(sy_npy_write(path, SY_DTYPE_F32, 4, dims, values), SY_OK);
    free(values);
}

static void import_reports_and_keeps_its_precision(void **state)
{
    (void)state;
    char folder[700], samples[800], made[800], line[900];
    snprintf(folder, sizeof folder, "%s/tiny_cnn/1", fixture_models());
    snprintf(made, sizeof made, "%s/narrow.sypkg", folder);
    snprintf(samples, sizeof samples, "%s/samples.npy", folder);
    snprintf(line, sizeof line, "import %s/model.onnx -o %s --no-profile", folder, made);
    assert_usage("import a.onnx --precision f17", "f17");
    assert_usage("import a.onnx --calibrate x.npy", "--precision");
    setenv("DNNL_MAX_CPU_ISA", "AVX2", 1);
    assert_int_equal(run("%s --precision bf16", line), 0); /* stored, and widened to compute */
    assert_non_null(strstr(output, "4 random samples"));
    unsetenv("DNNL_MAX_CPU_ISA");
    assert_int_equal(run("%s --precision bf16", line), 0);
    assert_non_null(strstr(output, "4 random samples"));
    assert_non_null(strstr(output, "max abs"));
    put_samples(samples, 11, 3);
    assert_int_equal(run("%s --precision bf16 --calibrate %s", line, samples), 0);
    assert_non_null(strstr(output, "11 given samples"));
    put_samples(samples, 2, 5);
    assert_int_equal(run("%s --precision bf16 --calibrate %s", line, samples), 1);
    assert_non_null(strstr(output, "does not fit input"));
    /* Up to date; then on another CPU; then asked for. */
    assert_int_equal(run("%s --update", line), 0);
    assert_null(strstr(output, "samples"));
    setenv("DNNL_MAX_CPU_ISA", "AVX2", 1);
    assert_int_equal(run("%s --update", line), 0);
    assert_null(strstr(output, "it becomes"));
    unsetenv("DNNL_MAX_CPU_ISA");
    assert_int_equal(run("%s --update --precision f32", line), 0);
    assert_int_equal(run("%s --update --precision bf16", line), 0);
    assert_non_null(strstr(output, "random samples"));
    assert_int_equal(unlink(samples), 0);
    assert_int_equal(unlink(made), 0);
}

static void bench_link_measures_what_was_asked_for(void **state)
{
    (void)state;
    assert_int_equal(run("bench-link --device emulated,link-gbps=1 --json"), 0);
    json_t *answer = json_loads(output, 0, NULL);
    assert_non_null(answer);
    double gbps = json_number_value(json_object_get(answer, "h2d_gbps"));
    /* Not a test of speed: the link is paced, so it cannot be faster than it was set to. */
    assert_true(gbps > 0 && gbps < 1.1);
    json_decref(answer);
}

/* ---- with a server ------------------------------------------------------------------------------------- */

/* A tiny job without a server: trained, drawn, explained; nothing is left but what was asked for. */
static void train_runs_draws_and_explains_here(void **state)
{
    (void)state;
    char folder[] = "/tmp/sy_cli_train_XXXXXX", job[64], model[4096];
    assert_non_null(mkdtemp(folder));
    assert_non_null(realpath("tests/data/train_step/model.onnx", model));
    snprintf(job, sizeof job, "%s/job.json", folder);
    FILE *file = fopen(job, "wb");
    fprintf(file,
            "{\"name\": \"tiny\", \"model\": \"%s\", \"optimizer\": {\"learning_rate\": 0.01}, "
            "\"batch\": 8, \"epochs\": 9, \"max_steps\": 12, \"evaluate_every_steps\": 5, "
            "\"data\": {\"kind\": "
            "\"synthetic\", \"samples\": 64, \"test_samples\": 16}}",
            model);
    fclose(file);
    assert_int_equal(run("train %s --local --plot %s/curve.svg", job, folder), 0);
    assert_non_null(strstr(output, "step 12/12"));
    assert_non_null(strstr(output, "accuracy"));
    assert_non_null(strstr(output, "12 points of loss, 3 of accuracy"));
    assert_int_equal(run("train %s --local --plot /nowhere/curve.svg", job), 1);
    assert_int_equal(run("train %s --explain --steps 3", job), 0);
    assert_non_null(strstr(output, "forward"));
    assert_non_null(strstr(output, "huge pages: never"));
    assert_non_null(strstr(output, "convolutions: channels last"));
    assert_int_equal(setenv("SY_TRAIN_LAYOUT", "last", 1), 0);
    assert_int_equal(run("train %s --local", job), 1);
    assert_non_null(strstr(output, "SY_TRAIN_LAYOUT is 'last'"));
    unsetenv("SY_TRAIN_LAYOUT");
    assert_int_equal(run("train %s %s", job, job), 2);
    assert_int_equal(run("train %s --steps 0", job), 2);
    file = fopen(job, "wb");
    fprintf(file, "{\"name\": \"tiny\", \"modle\": \"x\"}");
    fclose(file);
    assert_int_equal(run("train %s --local", job), 1);
    assert_non_null(strstr(output, "unknown key 'modle'; did you mean 'model'"));
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void put_npy(const char *path, int64_t rows, int64_t columns, float first)
{
    float values[64];
    const int64_t dims[] = {rows, columns};
    for (int i = 0; i < 64; i++)
        values[i] = first + (float)i;
    assert_int_equal(sy_npy_write(path, SY_DTYPE_F32, 2, dims, values), SY_OK);
}

static void tensors_go_in_and_out_as_npy_files(void **state)
{
    (void)state;
    struct fixture f;
    char input[300], folder[300], path[900], name[64] = "";
    fixture_init(&f, "cli");
    const char *const args[] = {"--models", fixture_models(), "--pool-bytes", "64M", NULL};
    fixture_start(&f, args);
    snprintf(input, sizeof input, "%s/x.npy", f.folder);
    snprintf(folder, sizeof folder, "%s/answers", f.folder);

    json_t *list = fixture_call(&f, "models", json_object()), *model;
    size_t i;
    json_t *shape = NULL;
    json_array_foreach(list, i, model)
    {
        if (strcmp(json_string_value(json_object_get(model, "name")), "identity") == 0) {
            json_t *first = json_array_get(json_object_get(model, "inputs"), 0);
            snprintf(name, sizeof name, "%s", json_string_value(json_object_get(first, "name")));
            shape = json_object_get(first, "shape");
        }
    }
    assert_int_equal(json_array_size(shape), 2);
    int64_t columns = json_integer_value(json_array_get(shape, 1));
    assert_in_range(columns, 1, 32);
    put_npy(input, 2, columns, 0.5f);

    assert_int_equal(
        run("infer identity %s=%s --output %s --socket %s", name, input, folder, f.address), 0);
    char *last = strstr(output, folder);
    assert_non_null(last);
    snprintf(path, sizeof path, "%.*s", (int)strcspn(last, "\n"), last);
    struct sy_npy sent, received;
    assert_int_equal(sy_npy_read(input, &sent), SY_OK);
    assert_int_equal(sy_npy_read(path, &received), SY_OK);
    assert_int_equal(received.bytes, sent.bytes);
    assert_int_equal(received.dims[0], 2);
    assert_memory_equal(received.data, sent.data, sent.bytes);
    sy_npy_finish(&sent);
    sy_npy_finish(&received);

    /* Without a name where there is one input; random where nothing is said. */
    assert_int_equal(run("infer identity %s --socket %s", input, f.address), 0);
    assert_int_equal(run("infer identity --repeat 2 --socket %s", f.address), 0);
    assert_int_equal(count_lines(output), 2);
    /* Refused: another name, another shape, twice, an unknown model. */
    assert_int_equal(run("infer identity nosuch=%s --socket %s", input, f.address), 1);
    assert_int_equal(
        run("infer identity %s=%s %s=%s --socket %s", name, input, name, input, f.address), 1);
    put_npy(input, 1, columns + 1, 0);
    assert_int_equal(run("infer identity %s --socket %s", input, f.address), 1);
    assert_non_null(strstr(output, name));
    assert_int_equal(run("infer nosuch --socket %s", f.address), 1);
    assert_non_null(strstr(output, "nosuch"));

    assert_int_equal(run("status --socket %s", f.address), 0);
    assert_non_null(strstr(output, "identity"));
    assert_non_null(strstr(output, "H, t: heads, tails"));
    assert_null(strstr(output, " 0 MB")); /* the model has a few bytes */
    assert_null(strstr(output, " 0.0 MB"));
    assert_int_equal(run("status --json --socket %s", f.address), 0);
    json_t *answer = json_loads(output, 0, NULL);
    assert_non_null(json_object_get(answer, "models"));
    json_decref(answer);
    json_decref(list);
    unlink(path);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

static void models_come_and_go(void **state)
{
    (void)state;
    struct fixture f;
    char package[700];
    fixture_init(&f, "models");
    const char *const args[] = {"--pool-bytes", "64M", NULL};
    snprintf(package, sizeof package, "%s/mlp/1/model.sypkg", fixture_models());
    fixture_start(&f, args);
    assert_int_equal(run("models --socket %s", f.address), 0);
    assert_non_null(strstr(output, "no models"));
    assert_int_equal(run("models load %s --socket %s", package, f.address), 0);
    assert_int_equal(run("models load %s --name second --socket %s", package, f.address), 0);
    assert_int_equal(run("models load %s --socket %s", package, f.address), 1);
    assert_non_null(strstr(output, "'mlp' already"));
    assert_int_equal(run("infer second --socket %s", f.address), 0);
    assert_int_equal(run("models --socket %s", f.address), 0);
    assert_int_equal(count_lines(output), 3);
    assert_int_equal(run("models evict second --image --socket %s", f.address), 0);
    assert_int_equal(run("models unload mlp --socket %s", f.address), 0);
    assert_int_equal(run("infer mlp --socket %s", f.address), 1);
    assert_int_equal(run("infer second --socket %s", f.address), 0);
    assert_int_equal(run("models unload mlp --socket %s", f.address), 1);
    assert_non_null(strstr(output, "there are: second"));
    assert_int_equal(run("models load %s.nosuch --socket %s", package, f.address), 1);
    assert_non_null(strstr(output, "model.sypkg.nosuch"));
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_explains_itself),
        cmocka_unit_test(bad_usage_is_one_line_and_exit_2),
        cmocka_unit_test(values_are_held_to_their_bounds),
        cmocka_unit_test(run_ends_its_options_at_the_program),
        cmocka_unit_test(options_that_go_together_are_checked),
        cmocka_unit_test(failures_are_exit_1_and_name_the_thing),
        cmocka_unit_test(plan_draws_packages_and_onnx_files),
        cmocka_unit_test(import_explains_without_a_package),
        cmocka_unit_test(simulate_takes_unequal_devices_and_tenants),
        cmocka_unit_test(import_reports_and_keeps_its_precision),
        cmocka_unit_test(bench_link_measures_what_was_asked_for),
        cmocka_unit_test(train_runs_draws_and_explains_here),
        cmocka_unit_test(tensors_go_in_and_out_as_npy_files),
        cmocka_unit_test(models_come_and_go),
    };
#ifdef __SANITIZE_THREAD__
    /* On one core commands compute with one thread: OpenMP's would seem to race. */
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(sched_getcpu(), &core);
    if (sched_setaffinity(0, sizeof core, &core) != 0)
        return 1;
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
