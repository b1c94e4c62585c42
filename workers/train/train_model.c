#include "workers/train/train_model.h"

#include <stdio.h>
#include <string.h>

#include "loader/package/package.h"
#include "runtime/base/status.h"
#include "workers/engine/train_choice.h"

/* Keeps one output, the only one if `name` is NULL; nodes that no kept output needs are removed when shapes are inferred. */
static int keep_output(struct sy_graph *graph, const char *name)
{
    char known[512] = "";
    if (!name && graph->n_outputs == 1)
        return SY_OK;
    for (int i = 0; i < graph->n_outputs; i++) {
        const char *output = graph->tensors[graph->outputs[i]].name;
        if (name && strcmp(output, name) == 0) {
            graph->outputs[0] = graph->outputs[i];
            graph->n_outputs = 1;
            return SY_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s'%s'", i ? ", " : "", output);
    }
    if (!name)
        return sy_error_set(SY_EARG,
                            "the model has outputs %s: 'output' must name the one to train", known);
    return sy_error_set(SY_EARG, "the model has no output '%s'; it has %s", name, known);
}

static int prepare(const struct sy_job *job, const struct sy_trainer_ops *ops,
                   struct sy_graph *graph)
{
    SY_TRY(keep_output(graph, job->output));
    SY_TRY(ops->prepare ? ops->prepare(graph) : sy_graph_infer(graph));
    return ops->fuses ? sy_graph_fuse_training(graph, ops->fuses) : SY_OK;
}

int sy_train_model_open(const struct sy_job *job, const struct sy_trainer_ops *ops,
                        struct sy_graph **graph, struct sy_trainer **trainer)
{
    const char *ending = strrchr(job->model, '.');
    if (ending && strcmp(ending, SY_PACKAGE_SUFFIX) == 0)
        return sy_error_set(SY_EARG,
                            "'%s' is a package: packed for inference, in bf16 perhaps; training "
                            "reads the ONNX file",
                            job->model);
    SY_TRY(sy_onnx_read_sized(job->model, job->dims, job->n_dims, graph));
    int status = prepare(job, ops, *graph);
    if (status < 0)
        return sy_error_prefix(status, "'%s'", job->model);
    SY_TRY(sy_train_check_frozen(*graph, job->options.frozen));
    return ops->create(*graph, &job->options, trainer);
}
