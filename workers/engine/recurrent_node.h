/* Description of an LSTM, GRU or RNN node, for all engines and trainers that run step by step. */
#ifndef SY_WORKERS_ENGINE_RECURRENT_NODE_H
#define SY_WORKERS_ENGINE_RECURRENT_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/graph/graph.h"
#include "workers/engine/cell_curves.h"

struct sy_recurrent_node {
    int64_t steps, batch, input, hidden, gates, directions;
    bool is_reverse;               /* of the first direction; a second one is reversed */
    bool resets_late;              /* GRU: linear_before_reset */
    bool batch_first;              /* of inputs, results and states */
    bool has_peepholes;            /* LSTM: input 7 */
    struct sy_cell_rules rules[2]; /* of each direction */
};

/* The rules of one direction. NULL, or what of them none of us does. */
const char *sy_recurrent_node_rules(const struct sy_node *node, int direction,
                                    struct sy_cell_rules *out);

/* x [steps, batch, input], or [batch, steps, input] with layout 1, w [directions, gates hidden, input], r [directions, gates hidden, hidden]:
 * dimensions, three each. NULL, or what of the node none of us does. */
const char *sy_recurrent_node_read(const struct sy_node *node, const int64_t *x, const int64_t *w,
                                   const int64_t *r, struct sy_recurrent_node *out);

/* Whether the cells are the usual ones: no layout 1, peepholes, clip, input_forget, and the curves that ONNX names where none are given. */
bool sy_recurrent_node_is_usual(const struct sy_node *node);

/* sy_recurrent_node_read for engines that compute the usual cells only: NULL, or what they lack. */
const char *sy_recurrent_node_read_usual(const struct sy_node *node, const int64_t *x,
                                         const int64_t *w, const int64_t *r,
                                         struct sy_recurrent_node *out);

#endif
