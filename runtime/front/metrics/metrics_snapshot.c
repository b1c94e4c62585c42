#include "runtime/front/metrics/metrics_snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/status.h"

static void count_one(void *ctx, const struct sy_front_model_stats *of)
{
    (void)of;
    ++*(int *)ctx;
}

/* Names lie behind the rows. */
struct copy {
    struct sy_front_model_stats *rows;
    char (*names)[SY_CORE_MODEL_NAME];
    int n, most;
};

static void copy_one(void *ctx, const struct sy_front_model_stats *of)
{
    struct copy *copy = ctx;

    if (copy->n == copy->most)
        return;
    strncpy(copy->names[copy->n], of->name, SY_CORE_MODEL_NAME - 1);
    copy->rows[copy->n] = *of;
    copy->rows[copy->n].name = copy->names[copy->n];
    copy->n++;
}

static int copy_stats(const struct sy_front *front, struct sy_metrics_input *out)
{
    struct copy copy = {0};

    if (!front->stats)
        return SY_OK;
    sy_front_stats_walk(front->stats, count_one, &copy.most);
    copy.rows = calloc((size_t)copy.most + 1, sizeof *copy.rows + sizeof *copy.names);
    SY_TRY_ALLOC(copy.rows, "no memory for the metrics of %d models", copy.most);
    copy.names = (char(*)[SY_CORE_MODEL_NAME])(copy.rows + copy.most + 1);
    sy_front_stats_walk(front->stats, copy_one, &copy);
    out->stats = copy.rows;
    out->n_stats = copy.n;
    return SY_OK;
}

int sy_metrics_snapshot_take(const struct sy_front *front, struct sy_metrics_input *out)
{
    memset(out, 0, sizeof *out);
    out->front_refused = front->refused;
    out->has_otlp = front->otlp != NULL;
    if (front->otlp)
        sy_otlp_counts(front->otlp, &out->otlp);
    SY_TRY(copy_stats(front, out));
    return front->handlers->metrics ? front->handlers->metrics(front->core, &out->core) : SY_OK;
}

void sy_metrics_snapshot_finish(struct sy_metrics_input *in)
{
    free(in->core);
    free(in->stats);
    in->core = NULL;
    in->stats = NULL;
}
