/* switchyard policy: shows and sets a server's scheduling policy. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/sched/policy.h"

static int set(sy_client *client, const char *method, json_t *params)
{
    json_t *answer;
    int result = sy_cli_call(client, method, json_incref(params), &answer);

    json_decref(answer);
    return result;
}

static int show(sy_client *client)
{
    char *text;
    size_t i;
    json_t *tenant;

    if (sy_client_call(client, "status", "{}", &text) < 0)
        return sy_cli_fail("%s", sy_client_error(client));
    json_t *status = json_loads(text, 0, NULL);
    const json_t *rules = json_object_get(status, "rules");
    const char *policy = json_string_value(json_object_get(rules, "policy"));
    printf("policy       %s\n", policy ? policy : "-");
    printf("at once      %.0f%s\n", sy_cli_number(rules, "at_once"),
           sy_cli_number(rules, "at_once") > 0 ? "" : " (as the policy has it)");
    printf("max wait     %.1f s%s\n", sy_cli_number(rules, "max_wait_s"),
           sy_cli_number(rules, "max_wait_s") > 0 ? "" : " (no bound)");
    printf("train share  %.0f %% of the time, whatever requests come\n",
           100 * sy_cli_number(rules, "train_share"));
    printf(
        "\ntenant                weight  hard share     memory                    device time\n");
    json_array_foreach(json_object_get(rules, "tenants"), i, tenant) printf(
        "%-20s  %6.0f  %8.0f %%  %8.0f of %6.0f MB%s  %10.1f s\n",
        json_string_value(json_object_get(tenant, "tenant")), sy_cli_number(tenant, "weight"),
        100 * sy_cli_number(tenant, "hard_share"), sy_cli_number(tenant, "memory_used_bytes") / 1e6,
        sy_cli_number(tenant, "memory_bytes") / 1e6,
        sy_cli_number(tenant, "memory_bytes") > 0 ? "" : "*",
        sy_cli_number(tenant, "used_ns") / 1e9);
    printf("\nhard share 0: elastic, what others leave may be used. *: no limit\n");
    json_decref(status);
    free(text);
    return 0;
}

/* Index in the options' table: what is asked for. */
enum { SOCKET, AT_ONCE, MAX_WAIT, TRAIN_SHARE, TENANT, WEIGHT, HARD_SHARE, MEMORY };

struct wishes {
    json_t *policy, *tenant;
};

static int take(struct wishes *w, int option, const char *value)
{
    uint64_t bytes;
    double real = 0;

    if (option == TENANT)
        return json_object_set_new(w->tenant, "tenant", json_string(value));
    if (option == MEMORY) {
        if (sy_cli_bytes(value, &bytes) < 0)
            return sy_cli_usage("policy: %s", sy_error_text());
        return json_object_set_new(w->tenant, "memory_bytes", json_integer((json_int_t)bytes));
    }
    if (sy_cli_real(value, &real) < 0)
        return sy_cli_usage("policy: %s", sy_error_text());
    static const char *const keys[] = {[AT_ONCE] = "at_once",
                                       [MAX_WAIT] = "max_wait_s",
                                       [TRAIN_SHARE] = "train_share",
                                       [WEIGHT] = "weight",
                                       [HARD_SHARE] = "hard_share"};
    json_t *to = option == WEIGHT || option == HARD_SHARE ? w->tenant : w->policy;
    return json_object_set_new(to, keys[option], json_real(real));
}

static int apply(sy_client *client, const struct wishes *w)
{
    bool changes = json_object_size(w->policy) > 0 || json_object_size(w->tenant) > 0;
    int result = 0;

    if (json_object_size(w->policy) > 0)
        result = set(client, "policy", w->policy);
    if (result == 0 && json_object_size(w->tenant) > 0)
        result = set(client, "tenant", w->tenant);
    return result || changes ? result : show(client);
}

static const struct sy_cli_option options[] = {
    [SOCKET] = {"socket", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"},
    [AT_ONCE] = {"at-once", "N",
                 "jobs whose iterations run beside each other; 0: as the policy has it"},
    [MAX_WAIT] = {"max-wait", "SECONDS", "no job that is ready waits longer; 0: no bound"},
    [TRAIN_SHARE] = {"train-share", "X",
                     "0 to 1: so much of the time is training's, whatever requests come"},
    [TENANT] = {"tenant", "NAME",
                "what follows is for this tenant (a job file's \"tenant\", a request's)"},
    [WEIGHT] = {"weight", "N", "its share beside others' under 'weighted'"},
    [HARD_SHARE] = {"hard-share", "X", "0 to 1: its jobs never get more of the device; 0: elastic"},
    [MEMORY] = {"memory", "BYTES", "its jobs' memory and its models' together; 0: no limit"},
    {NULL, NULL, NULL}};

/* Static. */
static const char *usage(void)
{
    static char text[1024];
    size_t n = (size_t)snprintf(text, sizeof text,
                                "policy [NAME] [options]\n\n"
                                "Shows a server's scheduling policy, or sets it while it runs. "
                                "NAME, among training jobs:\n");
    for (int kind = 0; kind < SY_POLICY_N_KINDS && n < sizeof text; kind++)
        n += (size_t)snprintf(text + n, sizeof text - n, "\n  %-9s %s",
                              sy_policy_name((enum sy_policy_kind)kind),
                              sy_policy_text((enum sy_policy_kind)kind));
    return text;
}

int sy_cmd_policy(int argc, char **argv)
{
    struct sy_cli_parser parser = {usage(), options, argc, argv, 0};
    struct wishes wishes = {json_object(), json_object()};
    const char *value, *address = NULL;
    int got, result = 0;
    sy_client *client;

    while (result == 0 && ((got = sy_cli_next(&parser, &value)) >= 0 || got == SY_CLI_WORD)) {
        if (got == SOCKET)
            address = value;
        else if (got == SY_CLI_WORD && json_object_get(wishes.policy, "policy"))
            result = sy_cli_usage("policy: '%s' is a second name; one is set at a time", value);
        else if (got == SY_CLI_WORD)
            json_object_set_new(wishes.policy, "policy", json_string(value));
        else
            result = take(&wishes, got, value);
    }
    if (result == 0 && got != SY_CLI_END)
        result = got == SY_CLI_HELP ? -1 : 2;
    if (result == 0 && json_object_size(wishes.tenant) > 0 &&
        !json_object_get(wishes.tenant, "tenant"))
        result = sy_cli_usage("policy: --weight, --hard-share and --memory want --tenant NAME");
    if (result == 0 && sy_cli_connect(address, 0, &client)) {
        result = 1;
    } else if (result == 0) {
        result = apply(client, &wishes);
        sy_client_close(client);
    }
    json_decref(wishes.policy);
    json_decref(wishes.tenant);
    return result < 0 ? 0 : result;
}
