/* What inference takes for granted of open sizes: conditions, and what follows from them for other sizes. */
#ifndef SY_LOADER_SIZE_FACTS_H
#define SY_LOADER_SIZE_FACTS_H

#include "loader/graph_infer.h"

struct sy_facts {
    int n_conditions;
    struct sy_condition *conditions;
    int n_rewrites, n_applied;
    struct sy_rewrite {
        int atom; /* size_expr.h */
        struct sy_dim to;
    } * rewrites;
};

void sy_facts_finish(struct sy_facts *facts);
/* Puts in place of sizes what new facts say that they are, everywhere in the outermost graph. Between nodes. */
int sy_facts_apply(struct sy_infer *in);
/* At the end: the conditions become the graph's; symbols that no input has any more go. */
int sy_facts_settle(struct sy_infer *in);

#endif
