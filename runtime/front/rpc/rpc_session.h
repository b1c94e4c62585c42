/* Sessions over RPC, besides infer: what a model keeps, which sessions there are, ending one. */
#ifndef SY_RPC_SESSION_H
#define SY_RPC_SESSION_H

#include <jansson.h>

#include "runtime/front/access/access.h"
#include "runtime/front/request/front.h"

/* [{"input", "output"}]: what a session of the model keeps; caller decrefs. NULL: no memory. */
json_t *sy_rpc_session_state(const struct sy_core_model_ref *model);
/* {"sessions": [...]} (session_table.h), of the grant's tenant if it has one; caller decrefs. EUNSUPPORTED, ENOMEM_HOST. */
int sy_rpc_session_list(const struct sy_front *front, const struct sy_grant *grant, json_t **out);
/* params: model, session, tenant. EARG, EDENIED, ENOTFOUND, EBUSY. */
int sy_rpc_session_end(const struct sy_front *front, const struct sy_grant *grant,
                       const json_t *params);

#endif
