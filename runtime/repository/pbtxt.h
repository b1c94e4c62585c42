/* Protobuf text format, read without a schema: bytes become a tree of fields by name. Pure.
 *
 *   name: "a"  dims: [ 1, -1 ]          a field is one node for each value: dims is two of them
 *   input { name: "x" }                 a message has fields below it
 *
 * T1: memory is bounded by the text: one node for each value that stands there, at most SY_PBTXT_MOST_NODES.
 * T2: messages lie at most SY_PBTXT_MOST_DEPTH deep.
 * T3: an error text ends in nothing but what was wrong: "line 3, column 7: field dims: ...".
 *
 * Not read: extensions and Any ("[type.url/name] { }"). */
#ifndef SY_REPOSITORY_PBTXT_H
#define SY_REPOSITORY_PBTXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SY_PBTXT_MOST_BYTES (4u << 20)
#define SY_PBTXT_MOST_NODES (1 << 18)
#define SY_PBTXT_MOST_DEPTH 32

enum sy_pbtxt_kind {
    SY_PBTXT_MESSAGE,
    SY_PBTXT_STRING, /* in quotes */
    SY_PBTXT_NUMBER, /* with its sign, as it stands there */
    SY_PBTXT_NAME    /* an enum's value, true, false, inf, nan */
};

struct sy_pbtxt {
    struct sy_pbtxt *next;  /* next in its message */
    struct sy_pbtxt *first; /* MESSAGE: its fields, in the order of the text */
    char *name;             /* name of the field; NULL at the root */
    int line, column;       /* position of the field's name, from 1; 0: from JSON */
    enum sy_pbtxt_kind kind;
    char *text; /* unescaped, zero-terminated; a string may hold zeros besides. NULL of a message */
    size_t bytes;
};

/* The root is a MESSAGE. EARG: not in this format, or over a bound; ENOMEM_HOST. */
int sy_pbtxt_parse(const char *text, size_t bytes, struct sy_pbtxt **out);
/* As sy_pbtxt_parse, from protobuf's JSON form: arrays are repeated fields, null is left out. EARG: no object, or over a bound. */
int sy_pbtxt_from_json(const json_t *json, struct sy_pbtxt **out);
void sy_pbtxt_free(struct sy_pbtxt *tree); /* NULL is fine */

/* The first field of this name, or NULL. */
const struct sy_pbtxt *sy_pbtxt_find(const struct sy_pbtxt *message, const char *name);

/* Values; EARG names the field, its place and what is possible. Integers may be decimal, hexadecimal (0x) or octal (0); from JSON they may stand
 * in quotes. */
int sy_pbtxt_integer(const struct sy_pbtxt *field, int64_t least, int64_t most, int64_t *out);
int sy_pbtxt_bool(const struct sy_pbtxt *field, bool *out);
int sy_pbtxt_string(const struct sy_pbtxt *field, const char **out); /* EARG: a zero byte in it */
/* "line 3, column 7: field dims" */
const char *sy_pbtxt_place(const struct sy_pbtxt *field, char *buffer, size_t bytes);

#endif
