/* switchyard jobs: the training jobs of a server, and what can be done with them. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/cli_fields.h"
#include "runtime/cli/job_transfer.h"

#define STOP_TIMEOUT_MS 600000u /* an iteration, a snapshot, its hash */

/* Share: of the device's time since the server's start. */
static void print_job(const json_t *job, double elapsed_ns)
{
    const json_t *left = json_object_get(job, "left_s");
    char until[24] = "-";

    if (json_is_number(left))
        snprintf(until, sizeof(until), "%.0f s", json_number_value(left));
    printf("%4.0f  %-20.20s %-10s %-10.10s %5.0f  %8.0f /%8.0f  %9.4f %6.1f %%  %8s  "
           "%7.0f+%.0f MB\n",
           sy_cli_number(job, "job"), sy_cli_word(job, "name"), sy_cli_word(job, "state"),
           sy_cli_word(job, "tenant"), sy_cli_number(job, "priority"), sy_cli_number(job, "step"),
           sy_cli_number(job, "total_steps"), sy_cli_number(job, "loss"),
           elapsed_ns > 0 ? 100 * sy_cli_number(job, "device_ns") / elapsed_ns : 0, until,
           sy_cli_number(job, "persistent_bytes") / 1e6,
           sy_cli_number(job, "ephemeral_bytes") / 1e6);
    if (json_is_string(json_object_get(job, "waits_for")))
        printf("      waits for %s\n", sy_cli_word(job, "waits_for"));
    if (*sy_cli_word(job, "error") && strcmp(sy_cli_word(job, "error"), "-") != 0)
        printf("      %s\n", sy_cli_word(job, "error"));
    if (json_is_true(json_object_get(job, "parked")))
        printf("      in its snapshot only; to go on: switchyard jobs resume %.0f\n",
               sy_cli_number(job, "job"));
    else if (json_is_true(json_object_get(job, "kept")))
        printf("      the server's next start goes on with it; to forget it: switchyard jobs "
               "cancel %.0f\n",
               sy_cli_number(job, "job"));
}

static int list_jobs(sy_client *client)
{
    json_t *status, *job;
    size_t i;

    if (sy_cli_call(client, "status", json_object(), &status))
        return 1;
    double elapsed = sy_cli_number(json_object_get(status, "account"), "elapsed_ns");
    if (json_array_size(json_object_get(status, "jobs")) == 0)
        printf("no jobs; start one with: switchyard train JOB.json\n");
    else
        printf(" job  name                 state      tenant      prio      step /   total       "
               "loss  device      left  memory (persistent+ephemeral)\n");
    json_array_foreach(json_object_get(status, "jobs"), i, job) print_job(job, elapsed);
    json_decref(status);
    return 0;
}

enum { PAUSE, RESUME, CANCEL, PRIORITY, SUSPEND, EXPORT, RESUME_FROM, MOVE };
static const char *const verbs[] = {"pause",  "resume",      "cancel", "priority", "suspend",
                                    "export", "resume-from", "move",   NULL};
static const char *const methods[] = {"job_pause", "job_resume", "train_stop", "job_priority",
                                      "job_suspend"};

/* The command line. */
struct order {
    int verb;
    int64_t job, priority;
    const char *address, *file, *to, *words[3];
    int n_words;
    sy_client_security security; /* of `to` */
};

static int move(sy_client *client, const struct order *order)
{
    sy_client *to;
    int result = 1;

    if (sy_client_connect_secure(order->to, STOP_TIMEOUT_MS, &order->security, &to) == SY_OK)
        result = sy_cli_job_move(client, order->job, to, order->to);
    else
        sy_cli_fail("--to %s: %s", order->to, sy_client_error(to));
    sy_client_close(to);
    return result;
}

static int act(sy_client *client, const struct order *order)
{
    int verb = order->verb;

    if (verb == EXPORT)
        return sy_cli_job_export(client, order->job, order->file);
    if (verb == RESUME_FROM)
        return sy_cli_job_resume_from(client, order->file);
    if (verb == MOVE)
        return move(client, order);
    json_t *params = json_pack("{s:I}", "job", (json_int_t)order->job), *answer;

    if (verb == PRIORITY)
        json_object_set_new(params, "priority", json_integer((json_int_t)order->priority));
    int result = sy_cli_call(client, methods[verb], params, &answer);
    json_decref(answer);
    return result;
}

static int verb_of(const char *text)
{
    int verb = 0;

    while (verbs[verb] && strcmp(verbs[verb], text) != 0)
        verb++;
    if (verbs[verb])
        return verb;
    const char *near = sy_cli_nearest(text, verbs);
    return -sy_cli_usage(
        "jobs: '%s' is not pause, resume, cancel, priority, suspend, export, resume-from or "
        "move%s%s%s",
        text, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* words: VERB JOB [PRIORITY or FILE], or resume-from FILE. */
static int parse(const char *const *words, int n, struct order *order)
{
    int verb = order->verb = verb_of(words[0]);
    if (verb < 0)
        return 2;
    if (n != (verb == PRIORITY || verb == EXPORT ? 3 : 2))
        return sy_cli_usage("jobs %s takes %s%s", verbs[verb],
                            verb == RESUME_FROM ? "a file" : "a job's number",
                            verb == PRIORITY ? " and a priority"
                            : verb == EXPORT ? " and a file"
                                             : "");
    if (!order->to != (verb != MOVE))
        return sy_cli_usage(verb == MOVE ? "jobs move JOB takes --to tcp:HOST:PORT"
                                         : "jobs: --to goes with 'jobs move'");
    order->file = verb == RESUME_FROM ? words[1] : n > 2 ? words[2] : NULL;
    if (verb != RESUME_FROM && sy_cli_integer(words[1], 0, INT64_MAX, &order->job) < 0)
        return sy_cli_usage("jobs %s: %s", verbs[verb], sy_error_text());
    if (verb == PRIORITY && sy_cli_integer(words[2], -1000, 1000, &order->priority) < 0)
        return sy_cli_usage("jobs priority: %s", sy_error_text());
    return 0;
}

static const struct sy_cli_field fields[] = {
    {{"socket", "ADDRESS", "unix:PATH or tcp:HOST:PORT of the server"},
     SY_CLI_TEXT(struct order, address)},
    {{"to", "ADDRESS", "with move: the server that the job goes to"},
     SY_CLI_TEXT(struct order, to)},
    {{"to-token-file", "FILE", "its token; default: as --token-file"},
     SY_CLI_TEXT(struct order, security.token_file)},
    {{"to-tls-ca", "FILE", "its certificates; default: as --tls-ca"},
     SY_CLI_TEXT(struct order, security.tls_ca)},
    {{"to-tls-name", "NAME", "what its certificate must be for; default: its address's host"},
     SY_CLI_TEXT(struct order, security.tls_name)},
};

static const char usage[] =
    "jobs [VERB JOB] [options]\n\n"
    "Lists the training jobs of a server, or changes one:\n\n"
    "  jobs                    the list\n"
    "  jobs pause JOB          no more iterations; it keeps its memory\n"
    "  jobs resume JOB         continues it after a pause or a suspension\n"
    "  jobs cancel JOB         ends it after its iteration, with a snapshot\n"
    "  jobs priority JOB N     -1000 to 1000, smaller is more urgent; used by 'switchyard policy "
    "priority'\n"
    "  jobs suspend JOB        ends it after its iteration, with a snapshot, and frees its memory; "
    "it "
    "stays in the\n"
    "                          list, also over restarts, until it is resumed or cancelled\n"
    "  jobs export JOB FILE    the state of a suspended job (its job file and its snapshot) as one "
    "file\n"
    "  jobs resume-from FILE   a new job that continues from such a file, bit for bit\n"
    "  jobs move JOB --to ADDRESS  suspends it, sends its state, and resumes it there; it never "
    "runs on both, and\n"
    "                          is resumed here if that fails there\n\n"
    "A job on another server needs its model and data there: at the same path below that "
    "server's --models folder, or,\n"
    "where they lie outside of it, at the same absolute path (which needs a token with 'admin'). "
    "Its "
    "snapshots are kept\n"
    "below that server's --state folder. Bits are the same with the same number of threads and the "
    "same kind of CPU.";

static int take_word(void *command, const char *word)
{
    struct order *order = command;
    if (order->n_words == (int)SY_ARRAY_LEN(order->words))
        return sy_error_set(SY_EARG, "jobs: '%s' is too much", word);
    order->words[order->n_words++] = word;
    return SY_OK;
}

/* SY_CLI_END, or the exit status. */
static int read_order(int argc, char **argv, struct order *order)
{
    static const struct sy_cli_fields command = {usage, fields, SY_ARRAY_LEN(fields), take_word};
    int status = sy_cli_read(&command, argc, argv, order);
    if (status != SY_CLI_END)
        return status;
    if (!order->security.token_file)
        order->security.token_file = sy_cli_security()->token_file;
    if (!order->security.tls_ca)
        order->security.tls_ca = sy_cli_security()->tls_ca;
    int bad = order->n_words > 0 ? parse(order->words, order->n_words, order)
              : order->to        ? sy_cli_usage("jobs: --to goes with 'jobs move JOB'")
                                 : 0;
    return bad ? bad : SY_CLI_END;
}

int sy_cmd_jobs(int argc, char **argv)
{
    struct order order = {.verb = -1};
    sy_client *client;
    int result = read_order(argc, argv, &order);

    if (result != SY_CLI_END)
        return result;
    bool takes_long = order.verb == CANCEL || order.verb >= SUSPEND;
    if (sy_cli_connect(order.address, takes_long ? STOP_TIMEOUT_MS : 0, &client))
        return 1;
    result = order.verb >= 0 ? act(client, &order) : list_jobs(client);
    sy_client_close(client);
    return result;
}
