/* Pairs of an output and the next run's input that it feeds: a decoder's cache of keys and values. Pure.
 *
 * Exporters name them in pairs: past_key_values.0.key and present.0.key, past_0 and present_0, past.0.value and present_key_values.0.value. An input whose name has
 * "past_key_values" or "past" in it belongs to the output whose name has "present_key_values" or "present" in its place, if dtype and rank are the same; strings are no state. */
#ifndef SY_LOADER_GRAPH_STATE_PAIRS_H
#define SY_LOADER_GRAPH_STATE_PAIRS_H

#include "loader/graph/graph.h"

struct sy_state_pair {
    int input, output; /* indices into graph->inputs and graph->outputs */
};

/* Each input and output is used at most once, in the order of the inputs, up to `most` pairs. Returns their number; 0: the graph keeps no state. */
int sy_state_pairs_find(const struct sy_graph *graph, struct sy_state_pair *pairs, int most);

#endif
