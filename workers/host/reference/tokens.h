/* Parts of strings, and what ONNX Runtime's Tokenizer cuts: matches of a pattern, what stands between separators, or characters. */
#ifndef SY_WORKERS_HOST_REFERENCE_TOKENS_H
#define SY_WORKERS_HOST_REFERENCE_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"
#include "loader/graph/string_tensor.h"

struct sy_pattern;

/* Destination of a string's parts: places [0, room) of its row; further parts are only counted. */
struct sy_parts {
    struct sy_string whole, *to;
    int64_t n, room;
};
/* A part is a piece of the string, where it lies. */
void sy_parts_add(struct sy_parts *p, uint64_t from, uint64_t bytes);

struct sy_tokens {
    struct sy_pattern *pattern; /* what tokens look like; NULL: `separators` stand between them */
    struct sy_pattern **separators;
    int n_separators;
    bool by_character;
    int64_t least; /* characters of a token */
};
/* By the node's `tokenexp`, `separators`, `mincharnum`; EUNSUPPORTED, ENOMEM_HOST. Caller calls sy_tokens_finish, also after an error. */
int sy_tokens_open(const struct sy_node *node, struct sy_tokens *t);
void sy_tokens_finish(struct sy_tokens *t);
/* The tokens of a text of n bytes, which are parts of parts->whole. EARG: it is no UTF-8, or matching takes too long. */
int sy_tokens_cut(const struct sy_tokens *t, struct sy_parts *parts, const char *text, uint32_t n);
/* The node's attribute, a text, if it has one. */
const char *sy_text_attr(const struct sy_node *node, const char *name, const char *otherwise);

#endif
