/* Sequences, optionals and maps at a model's inputs and outputs, as tensors. For one called NAME a client sends, and gets:
 *
 *   NAME            [elements]        the elements of all its tensors, one tensor behind the other, each row-major
 *   NAME.shapes     INT64 [n, rank]   the dimensions of each tensor; -1 from where a tensor has fewer than `rank`
 *   NAME.has_value  BOOL [1]          of an optional sequence only: whether there is one
 *
 * A map, of inputs only, is NAME.keys and NAME.values, of as many elements each: the keys differ from each other.
 *
 * An optional tensor is a sequence of one tensor, or of none. Of a sequence of no tensors all parts are empty.
 *
 * LE1: in the graph, lists are made of their parts, and parts of lists, by the nodes ListOfParts (attributes `sequence`, `optional`, and `dims` where the file
 *      declares the dimensions of its tensors, -1 for open ones) and PartsOfList (`sequence`, `optional`, `dtype`). Both have data-dependent shapes (G12).
 * LE2: an output list whose tensors are known at import becomes one output for each (sequence_ends.h); an optional that holds a tensor becomes that tensor. */
#ifndef SY_LOADER_GRAPH_LIST_ENDS_H
#define SY_LOADER_GRAPH_LIST_ENDS_H

#define SY_LIST_PARTS  3
#define SY_LIST_SHAPES ".shapes"
#define SY_LIST_HAS    ".has_value"
#define SY_MAP_KEYS    ".keys"
#define SY_MAP_VALUES  ".values"

#endif
