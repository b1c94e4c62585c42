/* import's report of what a precision costs: results against those in float32, on given or random inputs. */
#ifndef SY_CLI_IMPORT_PRECISION_H
#define SY_CLI_IMPORT_PRECISION_H

#include "loader/graph/engine.h"

/* words: n of "FILE.npy" (a model with one input) or "NAME=FILE.npy", one for each input; or none: four random samples. Prints a
 * line per float32 output on stderr. What random inputs cannot do (a model that wants valid indices) is said and no failure. */
int sy_cli_report_precision(const struct sy_graph *graph, const struct sy_engine_ops *engine,
                            const char *const *words, int n);

#endif
