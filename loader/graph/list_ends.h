/* How sequences and optionals come into a model, and leave it, as tensors. A client sends, and gets, for one called NAME:
 *
 *   NAME            [elements]        the elements of all its tensors, one tensor behind the other, each row-major
 *   NAME.shapes     INT64 [n, rank]   the dimensions of each tensor; -1 from where a tensor has fewer than `rank`
 *   NAME.has_value  BOOL [1]          of an optional sequence only: whether there is one
 *
 * An optional tensor is a sequence of one tensor, or of none. Of a sequence of no tensors all parts are empty.
 *
 * LE1: inside, a list is made of its parts, and parts of a list, by the nodes ListOfParts (attributes `sequence`, `optional`, and `dims` where the file
 *      declares the dimensions of its tensors, -1 for open ones) and PartsOfList (`sequence`, `optional`, `dtype`). Both are the run's (G12).
 * LE2: an output whose tensors import knows is an output for each of them instead (sequence_ends.h), an optional one that holds a tensor that tensor. */
#ifndef SY_LOADER_GRAPH_LIST_ENDS_H
#define SY_LOADER_GRAPH_LIST_ENDS_H

#define SY_LIST_PARTS  3
#define SY_LIST_SHAPES ".shapes"
#define SY_LIST_HAS    ".has_value"

#endif
