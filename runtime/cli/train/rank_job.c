#include "runtime/cli/train/rank_job.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/status.h"
#include "runtime/cli/cli.h"
#include "runtime/cli/train/local_job.h"
#include "runtime/cli/train/rank_devices.h"

#define MAX_WORDS 40
/* An operator of one core may take some hundred ms; a rank that hangs is stopped after this. */
#define GRACE_MS "2000"
/* A canceled job ends its iteration and writes a snapshot. */
#define KILL_AFTER_S "600"

struct words {
    const char *argv[MAX_WORDS + 1];
    int n;
};

static void add(struct words *words, const char *first, const char *second)
{
    words->argv[words->n++] = first;
    if (second)
        words->argv[words->n++] = second;
}

/* Needs of one rank, on the first device. Errors are the job's: its batch, model or data. */
static int find_needs(const struct sy_rank_job *job, struct sy_train_needs *needs)
{
    char *first = job->devices ? strdup(job->devices) : NULL;
    if (first)
        first[strcspn(first, ",")] = '\0';
    int status = sy_local_job_needs(job->text, first, job->n_ranks, needs);
    free(first);
    return status;
}

/* Keys of the job file that the runtime reads become options of `run`. */
static void add_runtime_keys(struct words *words, const json_t *root, char *priority, size_t bytes)
{
    static const char *const keys[] = {"name", "tenant", "class"};
    static const char *const flags[] = {"--name", "--tenant", "--class"};
    const json_t *number = json_object_get(root, "priority");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *value = json_string_value(json_object_get(root, keys[i]));
        if (value)
            add(words, flags[i], value);
    }
    snprintf(priority, bytes, "%" JSON_INTEGER_FORMAT, json_integer_value(number));
    if (number)
        add(words, "--priority", priority);
}

int sy_rank_job_exec(const struct sy_rank_job *job)
{
    char memory[32], device_memory[32], steps[32], ranks[16], priority[32];
    struct sy_train_needs needs;
    struct words words = {.n = 0};
    if (find_needs(job, &needs) < 0)
        return sy_cli_fail_status();
    json_t *root = json_loads(job->text, 0, NULL);
    if (json_object_get(root, "slice")) {
        json_decref(root);
        return sy_cli_fail("%s: 'slice' and %d ranks do not go together: a job of ranks is "
                           "preempted as a whole",
                           job->path, job->n_ranks);
    }
    uint64_t each = needs.persistent_bytes + needs.ephemeral_bytes + needs.exchange_bytes;
    int n_on_one = sy_rank_devices_most_on_one(job->devices, job->n_ranks);
    snprintf(memory, sizeof memory, "%" PRIu64, each * (uint64_t)job->n_ranks);
    snprintf(device_memory, sizeof device_memory, "%" PRIu64, each * (uint64_t)n_on_one);
    snprintf(steps, sizeof steps, "%" PRIu64, needs.total_steps);
    snprintf(ranks, sizeof ranks, "%d", job->n_ranks);
    add(&words, "switchyard", "run");
    if (job->address)
        add(&words, "--socket", job->address);
    add_runtime_keys(&words, root, priority, sizeof priority);
    add(&words, "--memory", memory);
    add(&words, "--device-memory", device_memory);
    add(&words, "--steps", steps);
    add(&words, "--stop-after", GRACE_MS);
    add(&words, "--kill-after", KILL_AFTER_S);
    add(&words, "--no-hooks", "--");
    add(&words, "/proc/self/exe", "train");
    add(&words, job->path, "--local");
    add(&words, "--ranks", ranks);
    if (job->mpi_options)
        add(&words, "--mpi-options", job->mpi_options);
    if (job->devices)
        add(&words, "--device", job->devices);
    fflush(stdout);
    execv("/proc/self/exe", (char **)(uintptr_t)words.argv);
    json_decref(root);
    return sy_cli_fail("this program cannot be started again: %s", strerror(errno));
}
