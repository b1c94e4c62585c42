/* switchyard policy: shows and sets a server's scheduling policy. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/cli_fields.h"
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

#define NOT_GIVEN UINT64_MAX

struct wishes {
    const char *address, *policy, *tenant;
    double at_once, max_wait_s, train_share, weight, hard_share; /* negative: not given */
    uint64_t memory_bytes;
};

static void add_real(json_t *params, const char *key, double value)
{
    if (value >= 0)
        json_object_set_new(params, key, json_real(value));
}

/* NULL: the name is not UTF-8. */
static json_t *policy_of(const struct wishes *w)
{
    json_t *params = json_pack("{s:s*}", "policy", w->policy);
    add_real(params, "at_once", w->at_once);
    add_real(params, "max_wait_s", w->max_wait_s);
    add_real(params, "train_share", w->train_share);
    return params;
}

/* NULL: as above. */
static json_t *tenant_of(const struct wishes *w)
{
    json_t *params = json_pack("{s:s*}", "tenant", w->tenant);
    add_real(params, "weight", w->weight);
    add_real(params, "hard_share", w->hard_share);
    if (w->memory_bytes != NOT_GIVEN)
        json_object_set_new(params, "memory_bytes", json_integer((json_int_t)w->memory_bytes));
    return params;
}

static int apply(sy_client *client, json_t *policy, json_t *tenant)
{
    bool changes = json_object_size(policy) > 0 || json_object_size(tenant) > 0;
    int result = 0;

    if (json_object_size(policy) > 0)
        result = set(client, "policy", policy);
    if (result == 0 && json_object_size(tenant) > 0)
        result = set(client, "tenant", tenant);
    return result || changes ? result : show(client);
}

static const struct sy_cli_field fields[] = {
    {{"socket", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"},
     SY_CLI_TEXT(struct wishes, address)},
    {{"at-once", "N", "jobs whose iterations run beside each other; 0: as the policy has it"},
     SY_CLI_REAL(struct wishes, at_once)},
    {{"max-wait", "SECONDS", "no job that is ready waits longer; 0: no bound"},
     SY_CLI_REAL(struct wishes, max_wait_s)},
    {{"train-share", "X", "0 to 1: so much of the time is training's, whatever requests come"},
     SY_CLI_REAL(struct wishes, train_share)},
    {{"tenant", "NAME", "what follows is for this tenant (a job file's \"tenant\", a request's)"},
     SY_CLI_TEXT(struct wishes, tenant)},
    {{"weight", "N", "its share beside others' under 'weighted'"},
     SY_CLI_REAL(struct wishes, weight)},
    {{"hard-share", "X", "0 to 1: its jobs never get more of the device; 0: elastic"},
     SY_CLI_REAL(struct wishes, hard_share)},
    {{"memory", "BYTES", "its jobs' memory and its models' together; 0: no limit"},
     SY_CLI_BYTES(struct wishes, memory_bytes)},
};

static int take_name(void *command, const char *word)
{
    struct wishes *w = command;
    if (w->policy)
        return sy_error_set(SY_EARG, "policy: '%s' is a second name; one is set at a time", word);
    w->policy = word;
    return SY_OK;
}

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
    const struct sy_cli_fields command = {usage(), fields, SY_ARRAY_LEN(fields), take_name};
    struct wishes wishes = {.at_once = -1,
                            .max_wait_s = -1,
                            .train_share = -1,
                            .weight = -1,
                            .hard_share = -1,
                            .memory_bytes = NOT_GIVEN};
    sy_client *client;
    int result = sy_cli_read(&command, argc, argv, &wishes);
    if (result != SY_CLI_END)
        return result;
    if (!wishes.tenant &&
        (wishes.weight >= 0 || wishes.hard_share >= 0 || wishes.memory_bytes != NOT_GIVEN))
        return sy_cli_usage("policy: --weight, --hard-share and --memory want --tenant NAME");
    json_t *policy = policy_of(&wishes), *tenant = tenant_of(&wishes);
    if (!policy || !tenant)
        result =
            sy_cli_usage("policy: '%s': a name is UTF-8", policy ? wishes.tenant : wishes.policy);
    else if (sy_cli_connect(wishes.address, 0, &client))
        result = 1;
    else {
        result = apply(client, policy, tenant);
        sy_client_close(client);
    }
    json_decref(policy);
    json_decref(tenant);
    return result;
}
