/* serve's configuration file as an administrator meets it: each option by its name, what is refused, what SIGHUP changes. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
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

#include "runtime/base/assert.h"
#include "tests/rigs/server_fixture.h"
#include "tests/rigs/shell.h"

static struct fixture f;
static char output[1 << 16], conf_path[256];

static int run(const char *arguments)
{
    return shell_run(output, sizeof output, "'%s' %s 2>&1 </dev/null",
                     fixture_program("switchyard"), arguments);
}

static void write_conf(const char *text)
{
    snprintf(conf_path, sizeof conf_path, "%s/switchyard.conf", f.folder);
    FILE *file = fopen(conf_path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void the_printed_file_has_every_option(void **state)
{
    (void)state;
    static char help[1 << 16];
    int n = 0;

    assert_int_equal(run("serve --help"), 0);
    memcpy(help, output, sizeof help);
    assert_int_equal(run("serve --print-config"), 0);
    for (char *line = strtok(help, "\n"); line; line = strtok(NULL, "\n")) {
        char name[64], wanted[80];

        if (sscanf(line, "  --%63s", name) != 1 || strcmp(name, "help") == 0 ||
            strcmp(name, "config") == 0 || strcmp(name, "print-config") == 0 ||
            strcmp(name, "check-config") == 0 || strcmp(name, "ready-fd") == 0)
            continue;
        snprintf(wanted, sizeof wanted, "\n#%s = ", name);
        if (!strstr(output, wanted))
            fail_msg("--print-config leaves out %s", name);
        n++;
    }
    assert_true(n > 40);
}

/* Each printed line with the value that stands for one: quoted words are TOML, and the option itself says what is wrong with them. */
static void the_printed_file_is_toml_when_uncommented(void **state)
{
    (void)state;
    char *text, *rest, *line, kept[1 << 15] = "", arguments[400];

    assert_int_equal(run("serve --print-config"), 0);
    text = rest = strdup(output);
    while ((line = strsep(&rest, "\n")))
        if (strstr(line, " = \"") && line[0] == '#' && line[1] != ' ') {
            strcat(kept, line + 1);
            strcat(kept, "\n");
        }
    free(text);
    write_conf(kept);
    snprintf(arguments, sizeof arguments, "serve --config %s", conf_path);
    assert_int_equal(run(arguments), 2);
    assert_non_null(strstr(output, "pool-bytes: \"SIZE\" is not a size"));
}

static void what_is_wrong_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"polici = \"fifo\"\n", "no option polici; did you mean policy"},
        {"policy = \"last\"\n", "policy: "},
        {"policy = true\n", "policy = true: it takes NAME"},
        {"strict = 1\n", "strict = 1: write true or false"},
        {"strict = \"true\"\n", "write true or false"},
        {"workers = 1000\n", "workers: \"1000\" is not a number from 2 to 64"},
        {"slab-bytes = 0\n", "slab-bytes: \"0\" is not more than 0 bytes"},
        {"hang-timeout = 0.01\n", "hang-timeout: \"0.01\" is not from 0.1 to 1e+06"},
        {"otlp-sample = 1.5\n", "otlp-sample: \"1.5\" is not from 0 to 1"},
        {"socket-mode = \"8\"\n", "socket-mode: \"8\" is no mode from 1 to 777"},
        {"workers = [2, [3]]\n", ""},
        {"workers = 1979-05-27\n", "workers is neither"},
        {"[http]\nidle = 3\n", "[http] is a table"},
        {"workers = \n", "line 1"},
        {"workers = 2\nworkers = 3\n", "workers"},
        {"\xef\xbb\xbfworkers = 1000\r\n",
         "conf: workers: \"1000\""}, /* a byte order mark is passed over */
        {"policy = \"fifo\\u0000lifo\"\n", "policy has a zero byte"},
        {"config = \"other\"\n", "--config is for the command line only"},
        {"ready-fd = 3\n", "--ready-fd is for the command line only"},
    };
    char arguments[400];

    for (size_t i = 0; i < SY_ARRAY_LEN(cases); i++) {
        write_conf(cases[i].text);
        snprintf(arguments, sizeof arguments, "serve --config %s", conf_path);
        assert_int_equal(run(arguments), 2);
        if (!strstr(output, cases[i].says) || !strstr(output, conf_path) ||
            strchr(output, '\n') != output + strlen(output) - 1)
            fail_msg("%s: one line with the file and \"%s\" was expected: %s", cases[i].text,
                     cases[i].says, output);
    }
    assert_int_equal(run("serve --config /nowhere/at.all"), 2);
    assert_non_null(strstr(output, "/nowhere/at.all: No such file"));
    assert_int_equal(run("serve --config /"), 2);
    assert_non_null(strstr(output, "cannot read /: Is a directory"));
    assert_int_equal(run("serve --config /dev/zero"), 2);
    assert_non_null(strstr(output, "/dev/zero: more than 1048576 bytes"));
}

/* At SIGHUP a file that blocks would hold up all requests. */
static void a_pipe_is_read_or_refused(void **state)
{
    (void)state;
    char arguments[400];

    snprintf(conf_path, sizeof conf_path, "%s/pipe", f.folder);
    assert_int_equal(mkfifo(conf_path, 0600), 0);
    snprintf(arguments, sizeof arguments, "serve --check-config --config %s", conf_path);
    assert_int_equal(run(arguments), 2);
    assert_non_null(strstr(output, "a pipe, and nobody writes to it"));
    int status = shell_run(output, sizeof output,
                           "bash -c \"'%s' serve --check-config --config <(sleep 0.1; echo '"
                           "workers = true')\" 2>&1 </dev/null",
                           fixture_program("switchyard"));
    assert_int_equal(status, 2);
    assert_non_null(strstr(output, "workers"));
}

static void deep_nesting_is_refused(void **state)
{
    (void)state;
    size_t n = 200000;
    char *text = malloc(n + 16), arguments[400];

    strcpy(text, "workers = ");
    memset(text + 10, '[', n);
    text[10 + n] = 0;
    write_conf(text);
    free(text);
    snprintf(arguments, sizeof arguments, "serve --config %s", conf_path);
    assert_int_equal(run(arguments), 2);
    assert_non_null(strstr(output, "more than 1024 '['"));
}

static void assert_policy(const char *wanted)
{
    json_t *answer = fixture_status(&f);
    const char *policy =
        json_string_value(json_object_get(json_object_get(answer, "rules"), "policy"));

    assert_non_null(policy);
    assert_string_equal(policy, wanted);
    json_decref(answer);
}

static void wait_for_log(const char *text)
{
    for (int i = 0; i < 3000 && !fixture_log_has(&f, text); i++)
        usleep(10000);
    if (!fixture_log_has(&f, text))
        fail_msg("the log never said %s", text);
}

static void a_file_is_checked_without_a_server(void **state)
{
    char command[300];

    (void)state;
    write_conf("policy = \"srtf\"\nworkers = 2\n");
    snprintf(command, sizeof command, "serve --config '%s' --check-config", conf_path);
    assert_int_equal(run(command), 0);
    assert_string_equal(output, "");
    write_conf("workers = 2\nhttp-idle = \"soon\"\n");
    assert_int_equal(run(command), 2);
    assert_non_null(strstr(output, "http-idle"));
    write_conf("policy = \"quickest\"\n");
    assert_int_equal(run(command), 2);
    assert_non_null(strstr(output, "quickest"));
    write_conf("check-config = true\n");
    assert_int_equal(run(command), 2);
    assert_non_null(strstr(output, "command line only"));
}

static void hang_up(const char *conf, const char *says)
{
    write_conf(conf);
    assert_int_equal(kill(f.pid, SIGHUP), 0);
    wait_for_log(says);
}

static void a_reload_changes_what_can_be_changed(void **state)
{
    (void)state;
    write_conf("policy = \"srtf\"\nworkers = 2\nhttp-idle = 60\nhttp = \"off\"\n");
    const char *const args[] = {"--config", conf_path, NULL};

    fixture_start(&f, args);
    assert_policy("srtf");
    hang_up("policy = \"fifo\"\nworkers = 2\nhttp-idle = 60\nhttp = \"off\"\n",
            "option=policy applies=now");
    assert_policy("fifo");
    hang_up("policy = \"fifo\"\nworkers = 3\nhttp-idle = 1\nhttp = \"off\"\n",
            "option=workers applies=at_restart");
    wait_for_log("option=http-idle applies=now");
    hang_up("policy = \"las\"\nhttp-idle = \"soon\"\n", "event=reload_failed");
    assert_policy("fifo"); /* of a wrong file nothing is taken */
    hang_up("policy = \"las\"\n", "option=http applies=at_restart");
    assert_policy("las");
    assert_int_equal(fixture_stop(&f), 0);
}

static void the_command_line_counts(void **state)
{
    (void)state;
    write_conf("policy = \"srtf\"\nworkers = 2\n");
    const char *const args[] = {"--policy", "fifo", "--config", conf_path, NULL};

    fixture_start(&f, args);
    assert_policy("fifo");
    assert_int_equal(fixture_stop(&f), 0);
}

/* ---- slices ---------------------------------------------------------------------------------------------- */

static void assert_slices(const char *wanted)
{
    json_t *answer = fixture_status(&f), *slice;
    char names[200] = "";
    size_t i;

    json_array_foreach(json_object_get(answer, "slices"), i, slice)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s=%d", i ? " " : "",
                 json_string_value(json_object_get(slice, "name")),
                 (int)json_integer_value(json_object_get(slice, "n_cores")));
    assert_string_equal(names, wanted);
    json_decref(answer);
}

static bool is_of_slice(const char *name, const char *kind, const char *wanted)
{
    json_t *answer = fixture_status(&f), *slice, *task;
    bool found = false;
    size_t i, k;

    json_array_foreach(json_object_get(answer, "slices"), i, slice)
        json_array_foreach(json_object_get(slice, kind), k, task) found |=
        strcmp(json_string_value(json_object_get(slice, "name")), name) == 0 &&
        (!wanted || strcmp(json_string_value(task), wanted) == 0);
    json_decref(answer);
    return found;
}

static bool has_two_cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) >= 2;
}

static void the_file_cuts_slices_before_anything_computes(void **state)
{
    (void)state;
    if (!has_two_cores())
        skip();
    const char *job = fixture_make_job(&f, "sliced", 1000000, 0);
    write_conf("slices = [\"train=@0\", \"serve=@1\"]\nfor-jobs = \"train\"\n"
               "for-models = \"serve\"\nhttp = \"off\"\n");
    const char *const args[] = {"--config", conf_path,  "--cores",        "0-1", "--train",
                                job,        "--models", fixture_models(), NULL};

    fixture_start(&f, args);
    assert_slices("train=1 serve=1");
    assert_true(is_of_slice("train", "jobs", NULL));
    assert_true(is_of_slice("serve", "models", "mlp"));
    hang_up("slices = \"train=@1,0\"\nhttp = \"off\"\n", "option=slices applies=now");
    assert_slices("train=2");
    hang_up("slices = \"train=@0 serve=@1,7\"\nhttp = \"off\"\n", "option=slices why=");
    assert_slices("train=2"); /* as they were */
    hang_up("http = \"off\"\nfor-jobs = \"nobody\"\n", "option=for-jobs applies=now");
    wait_for_log("there is no slice 'nobody'");
    assert_slices("train=2");
    hang_up("slices = \"a=1,b=w1\"\nhttp = \"off\"\n", "name=b cores=");
    assert_slices("a=1 b=1");
    hang_up("http = \"off\"\n", "name=all");
    assert_slices("all=2");
    assert_int_equal(fixture_stop(&f), 0);
}

static void slices_of_the_command_line_count(void **state)
{
    (void)state;
    if (!has_two_cores())
        skip();
    write_conf("slices = \"of_file=2\"\n");
    const char *const args[] = {"--slices", "x=1",     "--config", conf_path, "--slices",
                                "y=50%",    "--cores", "0-1",      NULL};

    fixture_start(&f, args);
    assert_slices("x=1 y=1");
    assert_int_equal(fixture_stop(&f), 0);
}

static void slices_that_cannot_be_end_the_start(void **state)
{
    (void)state;
    const char *const many[] = {"--slices", "a=900", NULL};
    const char *const nobody[] = {"--for-models", "nobody", NULL};

    assert_int_equal(run("serve --slices a"), 2);
    assert_non_null(strstr(output, "--slices: slices: 'a': NAME=SIZE is expected"));
    assert_int_equal(run("serve --slices a=1,b=x"), 2);
    assert_non_null(strstr(output, "'b=x': a size is 2, 50%, w3 or @0-3"));
    assert_int_equal(run("serve --slices ' , '"), 2);
    assert_int_equal(fixture_start_refused(&f, many), 1);
    assert_true(fixture_log_has(&f, "slice 'a' wants 900 cores"));
    assert_int_equal(fixture_start_refused(&f, nobody), 1);
    assert_true(fixture_log_has(&f, "there is no slice 'nobody'"));
}

static int set_up(void **state)
{
    (void)state;
    fixture_init(&f, "serve_config");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_finish(&f);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_printed_file_has_every_option),
        cmocka_unit_test_setup_teardown(the_printed_file_is_toml_when_uncommented, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_is_wrong_is_refused_by_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_pipe_is_read_or_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(deep_nesting_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_is_checked_without_a_server, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_reload_changes_what_can_be_changed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_command_line_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_file_cuts_slices_before_anything_computes, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(slices_of_the_command_line_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slices_that_cannot_be_end_the_start, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
