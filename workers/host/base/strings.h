/* The strings of a run: one heap for all its tensors, whose elements are entries that point into it (loader/graph/string_tensor.h).
 *
 *   | used: uint64, steps: uint64 | text text text ... |     a value of the program, from its first layer to its last
 *
 * A program lends the heap before it runs; kernels and bodies that it runs use it. Only appended to: entries stay good until the run ends, in
 * whatever process its layers are computed. Whatever an entry says, nothing outside the heap is read. One thread, as programs are run. */
#ifndef SY_WORKERS_HOST_BASE_STRINGS_H
#define SY_WORKERS_HOST_BASE_STRINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/string_tensor.h"

#define SY_STRINGS_HEAD 16
/* Limit on the pattern steps of a run: some 0.6 s, far below the hang timeout even on a busy machine. */
#define SY_STRINGS_STEPS UINT64_C(60000000)

/* Uses this memory as the heap; `afresh`: it is empty. */
void sy_strings_use(void *memory, uint64_t bytes, bool afresh);
/* Counts calls of sy_strings_use. Entries made while it had its present value are valid. */
uint64_t sy_strings_lent(void);
/* An entry's text, not zero-terminated; empty if it points outside of the heap. Valid until the next run. */
const char *sy_strings_text(struct sy_string entry, uint32_t *bytes);
/* Allocates a text for the caller to write: ETOOBIG names the heap's size. */
int sy_strings_room(uint64_t bytes, char **text, struct sy_string *out);
int sy_strings_add(const char *text, uint64_t bytes, struct sy_string *out);
/* Converts the n strings of a block to entries. EARG: the block has another number of strings; `name` is the tensor's. */
int sy_strings_take(const char *name, const void *block, uint64_t room, int64_t n,
                    struct sy_string *to);
/* Converts n entries to a block. ETOOBIG: `room` is too small. */
int sy_strings_give(const char *name, const struct sy_string *from, int64_t n, void *block,
                    uint64_t room);
/* Charges pattern-matching steps to the run: EARG once it has used SY_STRINGS_STEPS. Without a heap nothing is counted. */
int sy_strings_spend(uint64_t steps);
/* Like memcmp on the texts; a text sorts before its extensions. */
int sy_strings_compare(struct sy_string a, struct sy_string b);
bool sy_strings_equal(struct sy_string a, struct sy_string b);

#endif
