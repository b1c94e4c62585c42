/* The network of a training job: read, cut to the output that is trained, and built by an engine. */
#ifndef SY_WORKERS_TRAIN_TRAIN_MODEL_H
#define SY_WORKERS_TRAIN_TRAIN_MODEL_H

#include "workers/engine/trainer.h"
#include "workers/job/job.h"

/* *graph and *trainer are the caller's, also after a failure that left them set. EARG, EUNSUPPORTED name file, node, output. */
int sy_train_model_open(const struct sy_job *job, const struct sy_trainer_ops *ops,
                        struct sy_graph **graph, struct sy_trainer **trainer);

#endif
