/* Shared by the builders of field trees: pbtxt_parse.c, pbtxt_json.c. */
#ifndef SY_REPOSITORY_PBTXT_INTERNAL_H
#define SY_REPOSITORY_PBTXT_INTERNAL_H

#include "runtime/repository/pbtxt.h"

struct sy_pbtxt_builder {
    int n_nodes;
};

/* A node at **end, which is moved behind it: name (copied), place and kind of `like`. EARG over the bound, ENOMEM_HOST. */
int sy_pbtxt_add(struct sy_pbtxt_builder *builder, const struct sy_pbtxt *like,
                 struct sy_pbtxt ***end, struct sy_pbtxt **out);

#endif
