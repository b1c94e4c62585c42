/* Shared by expanders of ai.onnx.ml's models: labels, and the post-processing of scores. */
#ifndef SY_LOADER_EXPAND_EXPAND_LEARN_H
#define SY_LOADER_EXPAND_EXPAND_LEARN_H

#include "loader/expand/expand.h"

extern const struct sy_expander_line sy_expanders_trees[], sy_expanders_svm[];

/* The node's post_transform, by name or (the second) by number, of scores in the last dimension. EUNSUPPORTED: PROBIT. */
int sy_learn_transform(struct sy_expand *e, int scores);
int sy_learn_transform_numbered(struct sy_expand *e, int scores);
/* How many labels the node has, whole numbers or strings; fails where it has none. */
int64_t sy_learn_labels(struct sy_expand *e);
/* The labels of these indices. */
int sy_learn_label(struct sy_expand *e, int indices);
/* Results of a classifier from a score for each label: the label of the largest, the scores transformed. */
void sy_learn_classify(struct sy_expand *e, int scores);

#endif
