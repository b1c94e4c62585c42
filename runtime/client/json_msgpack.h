/* JSON values as msgpack and back: for the small messages of the RPC (status, parameters). Tensors never pass here. */
#ifndef SY_RUNTIME_CLIENT_JSON_MSGPACK_H
#define SY_RUNTIME_CLIENT_JSON_MSGPACK_H

#include <jansson.h>
#include <msgpack.h>

/* 0, or -1 when the packer's write function failed. Integers stay integers. */
int sy_json_to_msgpack(msgpack_packer *packer, const json_t *value);
/* New reference. EUNSUPPORTED for what JSON has no word for (bin, ext, keys that are not strings); ENOMEM_HOST. The nesting must be
 * bounded already (sy_msgpack_scan). */
int sy_json_from_msgpack(const msgpack_object *object, json_t **out);

#endif
