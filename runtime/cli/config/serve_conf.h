/* serve's configuration file: each option of the command line by its name.
 *
 *   policy = "srtf"                  --policy srtf
 *   http-idle = 30                   --http-idle 30
 *   package = ["a.sypkg", "b.sypkg"] --package a.sypkg --package b.sypkg
 *   strict = true                    --strict; false: as if it were not there
 *
 * The command line comes after it: what it says counts. There is no second list of options: the table of the command is the schema. */
#ifndef SY_CLI_CONFIG_SERVE_CONF_H
#define SY_CLI_CONFIG_SERVE_CONF_H

#include "runtime/cli/cli_fields.h"
#include "runtime/cli/config/conf_toml.h"

/* Reads the file and stores each option in the command's struct, in the table's order. *out is the caller's, and lives as long as the struct: texts are its. EIO,
 * EARG (names file and option), or what a row's `set` says. */
int sy_serve_conf_read(const char *path, const struct sy_cli_fields *options, void *command,
                       struct sy_conf **out);
/* The value of --config on a command line, the last; NULL: none. The rest is not looked at. */
const char *sy_serve_conf_path(int argc, char **argv);
/* Whether the two say different things of this option. NULL: an empty file. */
bool sy_serve_conf_differs(const struct sy_conf *a, const struct sy_conf *b, const char *name);
/* One log line for each option of which the two files differ: whether it applies now or at a restart. */
void sy_serve_conf_log_changes(const struct sy_conf *before, const struct sy_conf *after,
                               const struct sy_cli_fields *options,
                               bool (*is_live)(const char *name));
/* A file with all options, each commented out below what it does. */
void sy_serve_conf_print(const struct sy_cli_fields *options);

#endif
