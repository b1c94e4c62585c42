/* Arguments and files that a person mistypes or a program damages: an end with one line that names them, never a server that half runs, a
 * file lost, memory without bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/rigs/server_fixture.h"
#include "tests/rigs/shell.h"

static char output[1 << 16]; /* of the last command: stdout and stderr */
static char folder[64];

static const char *in_folder(const char *name)
{
    static char paths[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(paths[turn], sizeof paths[turn], "%s/%s", folder, name);
    return paths[turn];
}

static const char *write_file(const char *name, const char *text)
{
    const char *path = in_folder(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return path;
}

/* Exit status of `switchyard ARGUMENTS`, given up after a few minutes; 4 GiB of memory are more than enough to say no. */
static int run(const char *arguments)
{
#ifdef SY_SANITIZED
    const char *limit = "";
#else
    const char *limit = "ulimit -v 4194304; ";
#endif
    return shell_run(output, sizeof output, "%stimeout 250 '%s' %s 2>&1 </dev/null", limit,
                     fixture_program("switchyard"), arguments);
}

/* Ends with this status (0: 1 or 2) and one line that has the words. */
static void expect_end(const char *arguments, int status, const char *word)
{
    int got = run(arguments);
    const char *newline = strchr(output, '\n');
    if ((status ? got != status : got != 1 && got != 2) || !newline || newline[1] ||
        !strstr(output, word))
        fail_msg("switchyard %.300s: ended with %d; one line with \"%s\" was expected: %.400s",
                 arguments, got, word, output);
}

/* ---- serve ------------------------------------------------------------------------------------------------ */

/* The log of a server that did not come up has the word, and it ended by itself. */
static void serve_refused(const char *option, const char *value, int status, const char *word)
{
    struct fixture f;
    fixture_init(&f, "arguments");
    const char *const args[] = {option, value, "--strict", NULL};
    int got = fixture_start_refused(&f, args);
    if (got != status || !fixture_log_has(&f, word))
        fail_msg("serve %s '%s': ended with %d, %d and \"%s\" were expected", option, value, got,
                 status, word);
    fixture_finish(&f);
}

static void serve_arguments(void **state)
{
    (void)state;
    static const char *const sizes[] = {"0", "-1",  "1e30", "nan", "inf",   "-inf",
                                        "",  "12Q", "0x",   "1 G", "1e400", "--workers"};
    static const char *const options[] = {"--pool-bytes", "--image-bytes", "--slab-bytes"};
    for (size_t o = 0; o < 3; o++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            serve_refused(options[o], sizes[i], 2, options[o]);
    /* Sizes that are numbers, and that no machine has. */
    serve_refused("--pool-bytes", "900000000G", 1, "900000000000000000");
    serve_refused("--slab-bytes", "900000000G", 1, "cannot map");
    static const char *const counts[] = {"0",   "-1", "10000", "99999999999999999999",
                                         "1.5", "x",  ""};
    static const char *const counted[] = {"--workers", "--threads", "--max-batch", "--warm-batches",
                                          "--ready-fd"};
    for (size_t o = 0; o < 5; o++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            if (o != 4 || i != 2)
                serve_refused(counted[o], counts[i], 2, counted[o]);
    serve_refused("--warm-batches", "1,,2", 2, "--warm-batches");
    serve_refused("--warm-batches", "1,2,3,4,5,6,7,8,9", 2, "--warm-batches");
    static const char *const seconds[] = {"0", "-1", "nan", "inf", "1e300", "soon", ""};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        serve_refused("--hang-timeout", seconds[i], 2, "--hang-timeout");
        if (i > 0)
            serve_refused("--max-delay-ms", seconds[i], 2, "--max-delay-ms");
    }
    serve_refused("--grouping", "sideways", 1, "sideways");
    serve_refused("--train", in_folder("none.json"), 1, "none.json");
    serve_refused("--train", write_file("job.json", "{\"naem\": 1}"), 1, "naem");
    serve_refused("--state", write_file("file", ""), 1, folder);
}

static void serve_devices_and_cores(void **state)
{
    (void)state;
    static const char *const devices[] = {"abacus",
                                          "emulated,link-gbps=0",
                                          "emulated,link-gbps=nan",
                                          "emulated,link-gbps=-1",
                                          "emulated,link-gbps=inf",
                                          "emulated,link-gbps=",
                                          "emulated,speed=1",
                                          "emulated,link-alpha-us=nan",
                                          "host,link-gbps=1",
                                          "cuda:-1",
                                          "cuda:x",
                                          "cuda:99999999999"};
    serve_refused("--device", "", 1, "device");
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        serve_refused("--device", devices[i], 1, devices[i]);
    static const char *const cores[] = {"x", "0-", "-1", "9999", "0-99999999999", "3-1", "0,,1"};
    serve_refused("--cores", "", 1, "cores");
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++)
        serve_refused("--cores", cores[i], 1, cores[i]);
}

static void serve_addresses(void **state)
{
    (void)state;
    static const char *const addresses[] = {"nonsense", "1.2.3.4",      ":99999",
                                            ":-1",      "256.1.1.1:80", "no such host:80",
                                            ":http-",   "[::1:80",      "127.0.0.1:"};
    char longest[400];
    struct stat info;
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
        serve_refused("--tcp", addresses[i], 1, addresses[i]);
    /* A file in the socket's place is somebody's. */
    const char *file = write_file("precious", "kept");
    serve_refused("--socket", file, 1, "precious");
    assert_int_equal(stat(file, &info), 0);
    assert_int_equal(info.st_size, 4);
    snprintf(longest, sizeof longest, "unix:%s", file); /* as clients write it */
    serve_refused("--socket", longest, 1, "is not a socket");
    assert_int_equal(stat(file, &info), 0);
    serve_refused("--socket", folder, 1, folder);
    serve_refused("--socket", in_folder("no/such/folder"), 1, "no/such/folder");
    serve_refused("--socket", "", 1, "socket");
    memset(longest, 'a', sizeof longest - 1);
    longest[0] = '/';
    longest[sizeof longest - 1] = 0;
    serve_refused("--socket", longest, 1, "socket path");
}

static void serve_models(void **state)
{
    (void)state;
    struct fixture f;
    char path[300], models[200];
    serve_refused("--models", in_folder("nowhere"), 1, "nowhere");
    serve_refused("--models", write_file("a_file", ""), 1, "a_file");
    serve_refused("--package", in_folder("none.sypkg"), 1, "none.sypkg");
    serve_refused("--package", folder, 1, folder);
    serve_refused("--package", write_file("bad.sypkg", "SYPKG and then nothing"), 1, "bad.sypkg");
    snprintf(models, sizeof models, "%s", in_folder("models"));
    mkdir(models, 0777);
    if (geteuid() != 0) {
        chmod(models, 0);
        serve_refused("--models", models, 1, models);
        chmod(models, 0777);
    }
    snprintf(path, sizeof path, "%s/m", models);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/m/1", models);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/m/latest", models);
    mkdir(path, 0777);
    /* Nothing in it that can be served: a server without models, which says why. */
    fixture_init(&f, "arguments");
    const char *const args[] = {"--models", models, "--pool-bytes", "16M", NULL};
    fixture_start(&f, args);
    json_t *list = fixture_call(&f, "models", json_object());
    assert_int_equal(json_array_size(list), 1);
    json_t *model = json_array_get(list, 0);
    assert_string_equal(json_string_value(json_object_get(model, "name")), "m");
    assert_string_equal(json_string_value(json_object_get(model, "state")), "unavailable");
    assert_non_null(strstr(json_string_value(json_object_get(model, "error")), "model.onnx"));
    json_decref(list);
    assert_int_equal(fixture_stop(&f), 0);
    fixture_finish(&f);
    snprintf(path, sizeof path, "models/m/1/model.onnx");
    write_file(path, "no model");
    serve_refused("--models", models, 1, "models/m/1/model.onnx");
    unlink(in_folder(path));
    write_file("models/m/1/model.sypkg", "no package");
    serve_refused("--models", models, 1, "models/m/1/model.sypkg");
}

/* ---- the others --------------------------------------------------------------------------------------------- */

static void clients_without_a_server(void **state)
{
    (void)state;
    static const char *const commands[] = {"infer m",      "status", "status --json",
                                           "replay x.csv", "policy", "jobs"};
    static const char *const addresses[] = {"tcp:",  "tcp:1.2.3.4",     "tcp:127.0.0.1:99999",
                                            "unix:", "tcp:127.0.0.1:1", "ftp://a"};
    char line[512];
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++)
        for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
            snprintf(line, sizeof line, "%s --socket '%s'", commands[c], addresses[i]);
            const char *host = strncmp(addresses[i], "tcp:", 4) ? addresses[i] : addresses[i] + 4;
            expect_end(line, 1, strcmp(host, "unix:") ? host : "no server");
        }
}

static void numbers_of_other_commands(void **state)
{
    (void)state;
    static const char *const lines[] = {"infer m --repeat 0",
                                        "infer m --repeat 1e9",
                                        "infer m --batch 0",
                                        "infer m --batch -1",
                                        "infer m --batch 99999999999999999999",
                                        "plan m.onnx --batch x",
                                        "plan m.onnx --link-gbps nan",
                                        "plan m.onnx --link-gbps inf",
                                        "plan m.onnx --link-gbps -1",
                                        "plan m.onnx --sigma-us -1",
                                        "plan m.onnx --sigma-us inf",
                                        "import m.onnx --threads -1",
                                        "import m.onnx --dim n",
                                        "import m.onnx --dim n=0",
                                        "import m.onnx --dim n=-1",
                                        "import m.onnx --dim n=1e9",
                                        "import m.onnx --dim =3",
                                        "replay t.csv --speed nan",
                                        "replay t.csv --speed inf",
                                        "replay t.csv --speed -1",
                                        "replay t.csv --connections 99999",
                                        "replay t.csv --batch 0",
                                        "replay t.csv --seed -1",
                                        "simulate --jobs j.csv --devices 0",
                                        "simulate --jobs j.csv --devices 1e9",
                                        "simulate --jobs j.csv --devices 1.5",
                                        "train j.json --steps -1"};
    char option[64];
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const char *at = strrchr(lines[i], '-');
        while (at > lines[i] && at[-1] != ' ')
            at--;
        if (at[1] != '-') /* a negative number: the word before it */
            for (at -= 2; at > lines[i] && at[-1] != ' ';)
                at--;
        snprintf(option, sizeof option, "%.*s", (int)strcspn(at, " "), at);
        expect_end(lines[i], 2, option);
    }
    expect_end("simulate --generate rate=nan", 0, "rate=nan");
    expect_end("simulate --generate rate=-1", 0, "rate=-1");
    expect_end("simulate --generate rate=1 --policy fair --spill", 0, "this is fair");
    expect_end("simulate --generate rate=1e300", 0, "rate");
    expect_end("simulate --generate rate=1,seconds=1e300", 0, "seconds");
}

static void names_with_control_characters(void **state)
{
    (void)state;
    expect_end("import \"$(printf 'a\\033[2J\\nb.onnx')\"", 1, "a?[2J?b.onnx");
    expect_end("\"$(printf 'se\\nrve')\"", 2, "se?rve");
    expect_end("serve --grouping \"$(printf 'x\\ny')\"", 0, "x?y");
}

/* ---- traces ------------------------------------------------------------------------------------------------ */

static void refused_trace(const char *text, const char *word)
{
    char line[1024];
    const char *trace = write_file("trace.csv", text);
    snprintf(line, sizeof line, "simulate --requests %s --models %s", trace,
             in_folder("models.csv"));
    expect_end(line, 1, word);
}

static void write_wide_trace(const char *path, int columns, bool has_newlines)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fprintf(file, "time_s,model");
    for (int i = 0; i < columns; i++)
        fprintf(file, ",c%d", i);
    fprintf(file, "%s0.5,m", has_newlines ? "\n" : ",");
    for (int i = 0; i < columns; i++)
        fprintf(file, ",%d", i);
    fprintf(file, "\n");
    fclose(file);
}

static void traces(void **state)
{
    (void)state;
    char line[1024];
    write_file("models.csv", "model,mb,compute_ms\nm,1,1\n");
    refused_trace("time_s,model\nnan,m\n", "trace.csv:2: time_s");
    refused_trace("time_s,model\n-nan,m\n", "trace.csv:2: time_s");
    refused_trace("time_s,model\ninf,m\n", "trace.csv:2: time_s");
    refused_trace("time_s,model\n0,m\n-1,m\n", "trace.csv:3: time_s");
    refused_trace("time_s,model\n1e300,m\n", "trace.csv:2: time_s");
    refused_trace("time_s,model\n1e12,m\n", "trace.csv:2: time_s");
    refused_trace("time_s,model\n0x,m\n", "trace.csv:2: time_s");
    refused_trace("time_s,model\n1\n", "trace.csv:2");
    refused_trace("time_s\n1\n", "no column model");
    refused_trace("model\nm\n", "no column time_s");
    refused_trace("time_s,model,time_s\n1,m,2\n", "two columns");
    refused_trace("time_s,model,class\n1,m,-1\n", "trace.csv:2: class");
    refused_trace("time_s,model,deadline_ms\n1,m,nan\n", "trace.csv:2: deadline_ms");
    refused_trace("time_s,model\n1,\x1b[2J\n", "trace.csv:2");
    refused_trace("time_s,model\n1,resnet152,3\n", "3 fields; the first line names 2");
    snprintf(line, sizeof line, "simulate --requests %s --models %s", folder,
             in_folder("models.csv"));
    expect_end(line, 1, folder);
    snprintf(line, sizeof line, "simulate --requests /dev/zero --models %s",
             in_folder("models.csv"));
    expect_end(line, 1, "/dev/zero");
    /* Columns that nobody asked for do no harm, a million of them neither; nor a needed one behind many others. */
    write_wide_trace(in_folder("wide.csv"), 20, true);
    snprintf(line, sizeof line, "simulate --requests %s --models %s", in_folder("wide.csv"),
             in_folder("models.csv"));
    assert_int_equal(run(line), 0);
    write_file("behind.csv", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,time_s,model\n"
                             ",,,,,,,,,,,,,,0.5,m\n,,,,,,,,,,,,,,0.25,m\n");
    snprintf(line, sizeof line, "simulate --requests %s --models %s", in_folder("behind.csv"),
             in_folder("models.csv"));
    assert_int_equal(run(line), 0);
    write_wide_trace(in_folder("wide.csv"), 1000000, true);
    snprintf(line, sizeof line, "simulate --requests %s --models %s", in_folder("wide.csv"),
             in_folder("models.csv"));
    expect_end(line, 1, "wide.csv:1");
}

/* ---- packages ------------------------------------------------------------------------------------------------- */

static void packages(void **state)
{
    (void)state;
    char line[1024], onnx[700];
    struct stat info;
    snprintf(onnx, sizeof onnx, "%s/mlp/1/model.onnx", fixture_models());
    snprintf(line, sizeof line, "import %s -o %s --no-profile", onnx, in_folder("mlp.sypkg"));
    assert_int_equal(run(line), 0);
    assert_int_equal(stat(in_folder("mlp.sypkg"), &info), 0);
    /* Cut, and grown, as a person sees it: named, with what to do being theirs. */
    static const double cuts[] = {0, 0.1, 0.5, 0.99, 2};
    snprintf(line, sizeof line, "plan %s", in_folder("mlp.sypkg"));
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        assert_int_equal(truncate(in_folder("mlp.sypkg"), (off_t)((double)info.st_size * cuts[i])),
                         0);
        expect_end(line, 1, "mlp.sypkg");
    }
    /* An output that cannot be written leaves what was there. */
    write_file("kept.sypkg", "kept");
    snprintf(line, sizeof line, "import %s -o %s/no/where.sypkg", onnx, folder);
    expect_end(line, 1, "where.sypkg");
    snprintf(line, sizeof line, "import %s -o %s", onnx, folder);
    expect_end(line, 1, folder);
    snprintf(line, sizeof line, "import %s -o %s", in_folder("kept.sypkg"),
             in_folder("kept.sypkg"));
    expect_end(line, 1, "kept.sypkg");
    assert_int_equal(stat(in_folder("kept.sypkg"), &info), 0);
    assert_int_equal(info.st_size, 4);
}

static int open_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/sy_bad_arguments_XXXXXX");
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(serve_arguments),
        cmocka_unit_test(serve_devices_and_cores),
        cmocka_unit_test(serve_addresses),
        cmocka_unit_test(serve_models),
        cmocka_unit_test(clients_without_a_server),
        cmocka_unit_test(numbers_of_other_commands),
        cmocka_unit_test(names_with_control_characters),
        cmocka_unit_test(traces),
        cmocka_unit_test(packages),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
