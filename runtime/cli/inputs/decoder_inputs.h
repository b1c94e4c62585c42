/* The inputs of a decoder's next request, by what the server says of its model. */
#ifndef SY_CLI_DECODER_INPUTS_H
#define SY_CLI_DECODER_INPUTS_H

#include <jansson.h>
#include <stdint.h>

#include "runtime/client/switchyard.h"

struct sy_decoder_inputs {
    int n;
    sy_client_tensor tensors[SWITCHYARD_MAX_TENSORS]; /* data is the struct's */
};

/* `model`: its entry of what "models" answered. One row: `tokens` behind `past` positions that the session has. By their names: input_ids (the tokens),
 * masks (ones, over past and tokens), position_ids and cache_position, seqlens_k and total_sequence_length (as com.microsoft's attention has them),
 * use_cache_branch. Inputs that the session keeps are left out. Names are borrowed of `model`. EUNSUPPORTED: another input, or no tokens; ENOMEM_HOST. Freed
 * by finish, also after a failure. */
int sy_decoder_inputs_make(json_t *model, const int64_t *tokens, int64_t n, int64_t past,
                           struct sy_decoder_inputs *out);
void sy_decoder_inputs_finish(struct sy_decoder_inputs *inputs);

#endif
