/* Random inputs for a model, of the shapes that the server describes. */
#ifndef SY_CLI_RANDOM_INPUTS_H
#define SY_CLI_RANDOM_INPUTS_H

#include <jansson.h>
#include <stdint.h>

#include "runtime/cli/cli.h"
#include "runtime/client/switchyard.h"

/* Open sizes by their names (cli.h). */
struct sy_cli_sizes {
    struct sy_onnx_dim dims[SY_CLI_MAX_DIMS];
    int n;
};

/* Fills in dtype, shape and data of the input that `entry` (of the method "models") describes; out->name is set already. The batch becomes `batch`, open
 * sizes those of `sizes` (NULL: the usual). Floats in [-1, 1); whole numbers are 0 or 1, valid as indices of any table that is worth one. *state is the
 * generator's. out->data is the caller's to free, out->dtype lives as long as `entry`. EPROTO, ENOMEM_HOST; ETOOBIG: no message to a server may have so many
 * bytes. */
int sy_cli_random_input(json_t *entry, int64_t batch, const struct sy_cli_sizes *sizes,
                        uint64_t *state, sy_client_tensor *out);
/* Adds the usual sizes of `model` that were not asked for. EARG: it has no open size of one of these names; it says which it has. Names are
 * borrowed of `models`: as below. */
int sy_cli_complete_sizes(json_t *models, const char *model, struct sy_cli_sizes *sizes);
/* The entry "inputs" of `model` in what "models" answered, borrowed; NULL: no such model. */
json_t *sy_cli_inputs_of(json_t *models, const char *model);

#endif
