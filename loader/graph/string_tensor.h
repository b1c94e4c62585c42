/* Tensors of strings.
 *
 *   outside: inputs and outputs in the slab, constants in a graph; the Open Inference Protocol's form of BYTES, behind a head
 *
 *     | bytes: uint64, 0 uint64 | length: uint32, text | length, text | ...     row-major, little-endian; `bytes` are those behind the head
 *
 *   inside a run: an element is an entry, 8 bytes, which operators that only move elements move as any other
 *
 *     | offset: uint32, bytes: uint32 | ...  ──>  the run's string heap, one for all its tensors (workers/host/base/strings.h)
 *
 * S1: `bytes` of 0 stands for a tensor whose strings are all empty, whatever their number: zeroed memory is a valid tensor.
 * S2: a model with strings has an extra open size, SY_STRING_SIZE: the bytes of the run's string heap. It follows from the request's
 *     strings, rounded up to a power of two, so that programs are reused. A run that needs more fails with ETOOBIG, and the
 *     front end runs it again with more, up to its limit.
 * S3: strings are arbitrary bytes, zeros too. Operators that fold case or split by characters read them as UTF-8.
 *
 * Pure. */
#ifndef SY_LOADER_GRAPH_STRING_TENSOR_H
#define SY_LOADER_GRAPH_STRING_TENSOR_H

#include "loader/graph/graph.h"

#define SY_STRING_SIZE  "switchyard.strings" /* the symbol's name */
#define SY_STRING_HEAD  16                   /* bytes */
#define SY_STRING_LEAST 4096                 /* bytes of the smallest heap */
#define SY_STRING_MOST  (INT64_C(1) << 30)   /* of the largest */

struct sy_string {
    uint32_t offset, bytes;
};

/* Bytes of a block, including its head, for n strings with `bytes` of text in total. */
uint64_t sy_string_block_bytes(int64_t n, uint64_t bytes);
/* Whether a block in `room` bytes holds exactly n strings. */
bool sy_string_block_is_valid(const void *block, uint64_t room, int64_t n);
/* Walks over a block: the next string from *at on, which starts as 0. False: there is none, or it is not whole. A block that S1 is about gives
 * empty strings. */
bool sy_string_block_next(const void *block, uint64_t room, uint64_t *at, const char **text,
                          uint32_t *bytes);

/* Writes the head of a block whose strings begin at `text`. */
void sy_string_block_end(void *text, uint64_t bytes);

/* Index of the size among the graph's symbols; -1: the graph has no strings. */
int sy_graph_string_size(const struct sy_graph *graph);
/* Whether this size is independent of the inputs: room for strings, or for results (sy_graph_room_size). */
bool sy_graph_is_own_size(const struct sy_graph *graph, int symbol);
/* The heap for a request whose inputs have so many bytes: twice that and what the model itself brings, as a power of two; at most SY_STRING_MOST. */
int64_t sy_graph_string_heap(const struct sy_graph *graph, uint64_t input_bytes);
/* After inference: gives the graph its size if some tensor has strings. EUNSUPPORTED: it has SY_MAX_SYMBOLS sizes already. */
int sy_graph_open_strings(struct sy_graph *graph);
/* Offset of a string input's or output's block in the memory that sy_graph_shaped_room counts. */
uint64_t sy_graph_string_offset(const struct sy_graph *graph, int tensor,
                                const struct sy_shape *shape, int64_t batch);

/* A list of strings that will become an attribute. */
struct sy_text_list {
    int n;
    size_t bytes, room_bytes, room;
    char *texts;
    int64_t *offsets;
};
/* ENOMEM_HOST: the list is empty then. */
int sy_text_list_add(struct sy_text_list *list, const void *text, size_t bytes);
/* Moves the list into `attr` as SY_ATTR_STRINGS; the list is empty afterwards. */
int sy_text_list_take(struct sy_text_list *list, struct sy_attr *attr);
void sy_text_list_finish(struct sy_text_list *list);

#endif
