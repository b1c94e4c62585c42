/* Shared by the commands. A command gets its own name as argv[0] and returns the exit status: 0, 1 (failed), 2 (bad usage). */
#ifndef SY_CLI_CLI_H
#define SY_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"
#include "runtime/base/clock.h"
#include "runtime/client/switchyard.h"

int sy_cmd_serve(int argc, char **argv);
int sy_cmd_attach(int argc, char **argv);
int sy_cmd_import(int argc, char **argv);
int sy_cmd_fetch(int argc, char **argv);
int sy_cmd_plan(int argc, char **argv);
int sy_cmd_infer(int argc, char **argv);
int sy_cmd_generate(int argc, char **argv);
int sy_cmd_train(int argc, char **argv);
int sy_cmd_run(int argc, char **argv);
int sy_cmd_models(int argc, char **argv);
int sy_cmd_jobs(int argc, char **argv);
int sy_cmd_policy(int argc, char **argv);
int sy_cmd_slices(int argc, char **argv);
int sy_cmd_status(int argc, char **argv);
int sy_cmd_simulate(int argc, char **argv);
int sy_cmd_replay(int argc, char **argv);
int sy_cmd_bench_link(int argc, char **argv);
int sy_cmd_doctor(int argc, char **argv);
int sy_cmd_version(int argc, char **argv);
int sy_cmd_worker(int argc, char **argv);
int sy_cmd_keep(int argc, char **argv);

/* One option of a command; the last has name NULL. `argument`: its name in the help, NULL for a switch. */
struct sy_cli_option {
    const char *name, *argument, *help;
};

struct sy_cli_parser {
    const char *usage; /* "serve [options]", then what the command does */
    const struct sy_cli_option *options;
    int argc;
    char **argv;
    int at; /* next word */
};

/* The next option: its index with *value set, SY_CLI_WORD with a word that is no option, SY_CLI_END, or SY_CLI_BAD after
 * one line on stderr. --help prints the help and gives SY_CLI_HELP. */
enum { SY_CLI_END = -1, SY_CLI_WORD = -2, SY_CLI_BAD = -3, SY_CLI_HELP = -4 };
int sy_cli_next(struct sy_cli_parser *parser, const char **value);
/* The nearest of `names` (NULL-terminated) to `word`, or NULL when none is near. */
const char *sy_cli_nearest(const char *word, const char *const *names);

/* "switchyard: ..." on stderr, returns 1; the second with the thread's error text. */
int sy_cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
int sy_cli_fail_status(void);
int sy_cli_usage(const char *format, ...) __attribute__((format(printf, 1, 2))); /* returns 2 */

/* "400M" (K, M, G: powers of ten; Ki, Mi, Gi: powers of two). EARG. */
int sy_cli_bytes(const char *text, uint64_t *out);
int sy_cli_integer(const char *text, int64_t least, int64_t most, int64_t *out);
int sy_cli_real(const char *text, double *out); /* at least 0 */
#define SY_CLI_MAX_DIMS 16
/* NAME=SIZE, one more of *n; the name is cut out of the argument, which lives as long as the program. */
int sy_cli_dim(const char *text, struct sy_onnx_dim dims[SY_CLI_MAX_DIMS], int *n);
const char *sy_cli_default_socket(void);
/* Values of --token-file, --tls-ca and --tls-name, for all commands that connect. */
const sy_client_security *sy_cli_security(void);
/* Connects, or says why not and returns 1. */
int sy_cli_connect(const char *address, unsigned timeout_ms, sy_client **out);

#define SY_CLI_MAX_CALIBRATE 32

struct sy_cli_import {
    const char *device; /* whose engine packs and is timed; NULL: host */
    enum sy_precision precision;
    const char *calibrate[SY_CLI_MAX_CALIBRATE]; /* "[NAME=]FILE.npy": see import_precision.h */
    int n_calibrate;
    struct sy_onnx_dim dims[SY_CLI_MAX_DIMS]; /* numbers for symbolic dimensions */
    int n_dims;
    bool profile;          /* times the layers, which needs the device itself */
    bool allow_host_ops;   /* cuda: what its engine lacks is computed on the host */
    int n_threads;         /* of the profile; 0: all cores */
    sy_ns limit_ns;        /* 0: an hour */
    uint64_t memory_bytes; /* 0: three quarters of the machine's */
};

/* One call; takes `params`. The answer is the caller's; or says why not and returns 1. */
int sy_cli_call(sy_client *client, const char *method, json_t *params, json_t **out);
/* 0 and "-" where there is none. */
double sy_cli_number(const json_t *object, const char *key);
const char *sy_cli_word(const json_t *object, const char *key);

/* Imports an ONNX file into a package, in a confined process (confined.h). */
int sy_cli_import(const char *onnx, const char *package, const char *name,
                  const struct sy_cli_import *options);
/* Whether `package` is there, not older than `onnx`, of this version and packed for this machine's engine of `device` (NULL: host). A
 * damaged one counts as current: it is to be refused by name, not replaced silently. If false, sy_error_text() says why. */
bool sy_cli_is_imported(const char *onnx, const char *package, const char *device);

/* The precision in which to import the model of `package` again: its own. If there is none that can be read, or the device does not compute
 * in it (said on stderr), f32. */
enum sy_precision sy_cli_kept_precision(const char *package, const char *device);

#endif
