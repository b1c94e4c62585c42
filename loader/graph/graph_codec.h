/* Graphs as msgpack, in a package's meta section.
 *
 *   graph  = [version, name, [tensor...], [node...], [input...], [output...], precision]   precision: only if it is not 0 (f32)
 *            with open sizes version 2, and behind the precision [name, usual, ...], [[left, right, at most, where]...]
 *   tensor = [name, dtype, [fixed, per_batch, ...], constant bytes or nil]     of an expression: [..., sum, nil, ...]
 *   sum    = [[factor, atom...]...]        atom = 0 (N), a symbol's name, [sum, sum] (rounded quotient) or [sum] (min with 0)
 *   node   = [op name, opset, name, [input...], [output...], [attr...], activation, alpha, beta, bias, residual]
 *   attr   = [name, kind, value]                        the value of kind "graph" is a graph, all its constants with it
 *
 * Operators are stored by name, so that the enum may grow anywhere. Decoding trusts nothing: the bytes are scanned before msgpack-c
 * allocates by their claims, and every index is checked. */
#ifndef SY_LOADER_GRAPH_GRAPH_CODEC_H
#define SY_LOADER_GRAPH_GRAPH_CODEC_H

enum { SY_GRAPH_CODEC_VERSION = 1, SY_GRAPH_CODEC_OPEN_VERSION = 2 };

#endif
