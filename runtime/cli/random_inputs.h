/* Random inputs for a model, of the shapes that the server describes. */
#ifndef SY_CLI_RANDOM_INPUTS_H
#define SY_CLI_RANDOM_INPUTS_H

#include <jansson.h>
#include <stdint.h>

#include "runtime/switchyard.h"

/* Fills in dtype, shape and data of the input that `entry` (of the method "models") describes; out->name is set already. Open
 * dimensions become `batch`. Floats in [-1, 1); whole numbers are 0 or 1, valid as indices of any table that is worth one. *state
 * is the generator's. out->data is the caller's to free, out->dtype lives as long as `entry`. EPROTO, ENOMEM_HOST. */
int sy_cli_random_input(json_t *entry, int64_t batch, uint64_t *state, sy_client_tensor *out);
/* The entry "inputs" of `model` in what "models" answered, borrowed; NULL: no such model. */
json_t *sy_cli_inputs_of(json_t *models, const char *model);

#endif
