/* Assumptions of inference about open sizes: conditions, and what follows from them for other sizes. */
#ifndef SY_LOADER_SHAPE_SIZE_FACTS_H
#define SY_LOADER_SHAPE_SIZE_FACTS_H

#include "loader/shape/graph_infer.h"

struct sy_facts {
    int n_conditions;
    struct sy_condition *conditions;
    int n_rewrites, n_applied;
    struct sy_rewrite {
        int atom; /* size_expr.h */
        struct sy_dim to;
    } * rewrites;
    struct sy_branches *choices; /* of branches; the caller's */
    int64_t n_misfits;           /* of sizes that were to be the same, and cannot be */
};

void sy_facts_finish(struct sy_facts *facts);
/* Saves the present facts, to restore them if the following node is deferred and so not computed. Then call restore, or free `to`. */
int sy_facts_save(const struct sy_facts *facts, struct sy_facts *to);
void sy_facts_restore(struct sy_facts *facts, struct sy_facts *saved); /* takes `saved` */
/* Moves the facts since `saved` to `aside`, and restores; takes `saved`. `aside` holds the new conditions, all rewrites; sy_facts_finish it. */
int sy_facts_set_aside(struct sy_facts *facts, struct sy_facts *saved, struct sy_facts *aside);
/* Whether the facts, of the conditions those from `first` on, are the ones that were set aside. */
bool sy_facts_are(const struct sy_facts *facts, int first, const struct sy_facts *aside);
/* Puts in place of sizes what new facts say that they are, everywhere in the outermost graph. Between nodes. */
int sy_facts_apply(struct sy_infer *in);
/* At the end: the conditions become the graph's; symbols that no input has any more go. */
int sy_facts_commit(struct sy_infer *in);

#endif
