#include <event2/event.h>
#include <jansson.h>
#include <msgpack.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>

#include "runtime/cli/cli.h"

#ifndef SY_COMMIT
#define SY_COMMIT "unknown"
#endif

int sy_cmd_version(int argc, char **argv)
{
    static const struct sy_cli_option options[] = {{NULL, NULL, NULL}};
    struct sy_cli_parser parser = {"version\n\nPrints version, commit and libraries.", options,
                                   argc, argv, 0};
    const char *value;
    int got = sy_cli_next(&parser, &value);

    if (got != SY_CLI_END)
        return got == SY_CLI_HELP  ? 0
               : got == SY_CLI_BAD ? 2
                                   : sy_cli_usage("version takes no arguments");
    printf("switchyard %s (%s)\nlibevent %s\nmsgpack-c %s\njansson %s\noneDNN %d.%d.%d\n",
           SWITCHYARD_VERSION, SY_COMMIT, event_get_version(), msgpack_version(), JANSSON_VERSION,
           dnnl_version()->major, dnnl_version()->minor, dnnl_version()->patch);
    return 0;
}
