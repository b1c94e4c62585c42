/* One training job as a child of bench/train/train.py: it runs steps when it is told to, so that two frameworks can take turns on the
 * same cores.
 *
 *   run N            N iterations             {"ms": [...], "loss": [...]}
 *   preempt N P      the same, with P pauses at random steps in which other memory is walked; ms without the pauses
 *   hash             of everything persistent {"hash": "..."}
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/cli/train/local_job.h"
#include "workers/job/job.h"

#define PAUSE_US 2000
/* larger than a core's caches, so that nothing of what ran before stays in them */
#define OTHER_BYTES (32u << 20)
#define MOST_STEPS  100000

static double ms[MOST_STEPS], losses[MOST_STEPS];

static void walk_other_memory(void)
{
    static char other[OTHER_BYTES];
    for (size_t i = 0; i < sizeof other; i += 64)
        other[i]++;
    usleep(PAUSE_US);
}

/* One iteration; *chance: expected number of remaining pauses per advance. */
static int run_step(struct sy_local_job *job, double chance, double *took_ms)
{
    enum sy_train_state state;
    uint64_t step = sy_train_run_step(job->run), spent = 0;
    bool is_over = false;
    while (!is_over) {
        const char *unused;
        is_over = sy_train_run_next(job->run, &unused) == SY_TRAIN_OTHER &&
                  sy_train_run_step(job->run) > step;
        if (chance > 0 && rand() < chance * RAND_MAX)
            walk_other_memory();
        uint64_t before = sy_clock_now();
        SY_TRY(sy_train_run_advance(job->run, &state));
        spent += sy_clock_now() - before;
    }
    *took_ms = (double)spent / 1e6;
    return SY_OK;
}

static int count_advances(struct sy_local_job *job)
{
    uint64_t step = sy_train_run_step(job->run);
    int n = 0;
    enum sy_train_state state;
    for (; sy_train_run_step(job->run) == step; n++)
        SY_TRY(sy_train_run_advance(job->run, &state));
    return n;
}

static void print_list(const char *name, const double *values, int n, const char *end)
{
    printf("\"%s\": [", name);
    for (int i = 0; i < n; i++)
        printf("%s%.17g", i ? ", " : "", values[i]);
    printf("]%s", end);
}

static int run(struct sy_local_job *job, int n, int n_pauses)
{
    double chance = 0;
    if (n_pauses) {
        int advances = count_advances(job); /* this was one of the n */
        SY_TRY(advances);
        chance = (double)n_pauses / ((double)advances * --n);
    }
    for (int i = 0; i < n; i++) {
        SY_TRY(run_step(job, chance, &ms[i]));
        losses[i] = sy_train_run_loss(job->run);
    }
    printf("{");
    print_list("ms", ms, n, ", ");
    print_list("loss", losses, n, "}\n");
    return SY_OK;
}

static int obey(struct sy_local_job *job, const char *line)
{
    int n, pauses = 0;
    if (sscanf(line, "preempt %d %d", &n, &pauses) == 2 && n > 1 && n <= MOST_STEPS)
        return run(job, n, pauses);
    if (sscanf(line, "run %d", &n) == 1 && n > 0 && n <= MOST_STEPS)
        return run(job, n, 0);
    if (strncmp(line, "hash", 4) == 0) {
        const char *state = (const char *)job->page + (2u << 20) + 4096;
        printf("{\"hash\": \"%016llx\"}\n",
               (unsigned long long)XXH3_64bits(state, job->needs.persistent_bytes - 4096));
        return SY_OK;
    }
    return sy_error_set(SY_EARG, "no such order: %s", line);
}

int main(int argc, char **argv)
{
    char line[128], *text = NULL;
    struct sy_local_job job = {0};
    int status = argc == 2 ? sy_job_load(argv[1], &text)
                           : sy_error_set(SY_EARG, "usage: train_steps JOB.json");
    if (status == SY_OK)
        status = sy_local_job_open(text, SY_HUGE_ALWAYS, NULL, NULL, &job);
    while (status == SY_OK && fgets(line, sizeof line, stdin)) {
        status = obey(&job, line);
        fflush(stdout);
    }
    if (status < 0)
        fprintf(stderr, "train_steps: %s\n", sy_error_text());
    sy_local_job_finish(&job);
    free(text);
    return status < 0;
}
