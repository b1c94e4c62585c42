/* The command line: a table of commands. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/log.h"
#include "runtime/cli/cli.h"
#include "runtime/keeper/keeper.h"
#include "runtime/keeper/keeper_wire.h"
#include "workers/process/worker.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help; /* NULL: not for people */
} commands[] = {
    {"serve", sy_cmd_serve, "run the server: one device, models, training"},
    {"import", sy_cmd_import, "make a package of an ONNX file"},
    {"fetch", sy_cmd_fetch, "a package from a registry, by HTTP, resumed and verified"},
    {"plan", sy_cmd_plan, "show how a model is cut into groups, and the pipeline"},
    {"infer", sy_cmd_infer, "send a request to a server"},
    {"attach", sy_cmd_attach, "use a server of another machine as if it were here"},
    {"generate", sy_cmd_generate, "tokens from a decoder, as they come"},
    {"train", sy_cmd_train, "start or stop a training job at a server"},
    {"run", sy_cmd_run, "run a PyTorch script as a job of a server"},
    {"models", sy_cmd_models, "list, load, unload models of a server"},
    {"jobs", sy_cmd_jobs, "list, pause, resume, cancel training jobs at a server"},
    {"policy", sy_cmd_policy, "show and set a server's scheduling policy"},
    {"slices", sy_cmd_slices, "share a server's cores among what computes at the same time"},
    {"status", sy_cmd_status, "what a server is doing"},
    {"simulate", sy_cmd_simulate, "what a policy would do with jobs and requests"},
    {"replay", sy_cmd_replay, "send a trace of requests to a server, each at its time"},
    {"bench-link", sy_cmd_bench_link, "measure the link between host and device"},
    {"doctor", sy_cmd_doctor, "what this machine can do, what limits a swap here, what to change"},
    {"version", sy_cmd_version, "version, commit, libraries"},
    {"worker", sy_cmd_worker, NULL},
    {"keep", sy_cmd_keep, NULL},
};

static void print_help(void)
{
    printf("usage: switchyard COMMAND [options]\n\nTraining and inference on one accelerator.\n\n");
    for (size_t i = 0; i < SY_ARRAY_LEN(commands); i++)
        if (commands[i].help)
            printf("  %-12s%s\n", commands[i].name, commands[i].help);
    printf("\nswitchyard COMMAND --help explains one command. SY_LOG=error|warn|info|debug sets "
           "the log.\n");
}

int sy_cmd_worker(int argc, char **argv)
{
    static const struct sy_cli_option options[] = {
        {"fd", "N", "control socket"}, {"index", "I", "worker's number"}, {NULL, NULL, NULL}};
    struct sy_cli_parser parser = {"worker\n\nStarted by serve.", options, argc, argv, 0};
    int64_t number[2] = {-1, 0};
    const char *value;
    int got;

    while ((got = sy_cli_next(&parser, &value)) >= 0)
        if (sy_cli_integer(value, 0, 1 << 20, &number[got]) < 0)
            return 2;
    if (got != SY_CLI_END || number[0] < 0)
        return got == SY_CLI_HELP ? 0 : sy_cli_usage("worker is started by serve, not by hand");
    sy_log_init("worker");
    return sy_worker_main((int)number[0], (int)number[1]);
}

int sy_cmd_keep(int argc, char **argv)
{
    int64_t seconds;

    if (argc != 2 || sy_cli_integer(argv[1], 1, 1 << 30, &seconds) < 0)
        return sy_cli_usage("keep is started by serve --keep-image, not by hand");
    sy_keeper_run(SY_KEEPER_OWNER_FD, SY_KEEPER_LISTENER_FD, SY_KEEPER_IMAGE_FD, SY_KEEPER_BOOK_FD,
                  (int)seconds);
}

static int unknown_command(const char *word)
{
    const char *names[SY_ARRAY_LEN(commands) + 1] = {NULL};
    const char *near;

    for (size_t i = 0; i < SY_ARRAY_LEN(commands); i++)
        names[i] = commands[i].name;
    near = sy_cli_nearest(word, names);
    return sy_cli_usage("no command %s%s%s; see switchyard help", word,
                        near ? "; did you mean " : "", near ? near : "");
}

/* Output must have been written: a full disk behind '> FILE' is a failure. */
static int checked_output(int result)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return result;
    return result ? result : sy_cli_fail("cannot write the output: %s", strerror(errno));
}

static int run_command(int argc, char **argv)
{
    for (size_t i = 0; i < SY_ARRAY_LEN(commands); i++)
        if (strcmp(argv[0], commands[i].name) == 0)
            return checked_output(commands[i].run(argc, argv));
    return unknown_command(argv[0]);
}

/*
 * A caller may have closed descriptors 0 to 2. The next file or socket would get the number, and what is printed or logged would be
 * written to it. The null device is opened there instead: for stdout such that writing fails, which checked_output reports. A
 * program that is started finds them closed, as it would by itself.
 */
static void hold_standard_descriptors(void)
{
    static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};

    for (int fd = 0; fd < (int)SY_ARRAY_LEN(modes); fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd] | O_CLOEXEC) < 0)
            return;
}

int main(int argc, char **argv)
{
    hold_standard_descriptors();
    sy_log_init("switchyard");
    if (argc < 2)
        return sy_cli_usage("which command? see switchyard help");
    char *explain[] = {argc > 2 ? argv[2] : NULL, "--help", NULL};
    if (strcmp(argv[1], "help") == 0 && argc > 2)
        return run_command(2, explain);
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0) {
        print_help();
        return checked_output(0);
    }
    if (strcmp(argv[1], "--version") == 0)
        return checked_output(sy_cmd_version(1, argv + 1));
    return run_command(argc - 1, argv + 1);
}
