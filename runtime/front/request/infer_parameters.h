/* The parameters of an inference request that Triton's protocols share, JSON or not: priority, timeout, tenant, sequences.
 *
 * | parameter                   | means                                                                                     |
 * | priority                    | 1 is the most urgent: class priority - 1, at most 9; 0: the model's                        |
 * | timeout                     | microseconds from now: the deadline; 0: none                                               |
 * | tenant                      | the tenant that the request counts for                                                     |
 * | class, deadline_ms          | as the native protocol has them                                                            |
 * | sequence_id                 | the session (session_table.h): a number from 0 on or a string; 0, "": none                 |
 * | sequence_start, _end        | it begins, or is over, with this request                                                   |
 *
 * Others are a backend's own, and mean nothing here. */
#ifndef SY_RUNTIME_FRONT_REQUEST_INFER_PARAMETERS_H
#define SY_RUNTIME_FRONT_REQUEST_INFER_PARAMETERS_H

#include <jansson.h>

#include "runtime/front/request/front_infer.h"

/* EARG, EUNSUPPORTED: names the parameter. */
int sy_infer_parameters_set(struct sy_front_infer *request, const json_t *parameters);

#endif
