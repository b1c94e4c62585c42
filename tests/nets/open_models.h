/* Models with open sizes as ONNX files have them, made in `open_graph`; and what they are made with. */
#ifndef SY_TESTS_NETS_OPEN_MODELS_H
#define SY_TESTS_NETS_OPEN_MODELS_H

#include <stdint.h>

#include "tests/nets/onnx_bytes.h"

extern struct ob open_graph, open_node; /* open_node: the one that is being made */
extern uint64_t open_seed;              /* of the weights */

#define N (-1) /* the dimension's name is N; S, T: others */
#define S (-2)
#define T (-3)
#define P (-4)

/* An input of the graph, of ONNX's element type; an output; weights, up to 4096; a list of integers. */
void open_in(const char *name, int type, int n, const int64_t *dims);
void open_out(const char *name);
void open_weights(const char *name, int n, const int64_t *dims);
void open_numbers(const char *name, int n, const int64_t *values);
/* A node with one output; with an attribute of integers, or of one (n 0). */
void open_add(const char *op, const char *const *inputs, const char *output);
void open_add_with(const char *op, const char *const *inputs, const char *output, const char *attr,
                   int n, const int64_t *values);

/* Tokens, 24 learned positions of which the first S are taken, attention of two heads with a causal mask made of sizes. */
void open_text_model(void);
/* Strides, pooling that rounds up, padding that keeps sizes, and back to the size of a tensor before. */
void open_image_model(void);
/* A step with what came before: keys of P + S, of which the last S are cut out again; a mask whose length has a name of its own. */
void open_cache_model(void);
/* One token behind what is past: its position is a row of a table, picked by a length. */
void open_position_model(void);
/* Ends of slices that count from behind, steps backwards, halves. */
void open_slice_model(void);
/* Sizes that are worked out in floats: factors of images, positions that count up and down; a remainder, a part that is cut out of the middle, the
 * first of a list beside what it is taken from. No node waits for the run. */
void open_float_model(void);

#endif
