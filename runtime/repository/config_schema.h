/* inference.ModelConfig as a table: which fields there are, of which type, and what becomes of each. With it a tree of fields becomes JSON in which each
 * field is what the message says it is: repeated ones are lists, maps are objects. Pure. */
#ifndef SY_REPOSITORY_CONFIG_SCHEMA_H
#define SY_REPOSITORY_CONFIG_SCHEMA_H

#include <jansson.h>

#include "runtime/repository/pbtxt.h"

#define SY_CONFIG_WARNING_BYTES 512

enum sy_config_type {
    SY_CONFIG_BOOL,
    SY_CONFIG_COUNT, /* uint32, uint64 */
    SY_CONFIG_INTEGER,
    SY_CONFIG_STRING,
    SY_CONFIG_ENUM,
    SY_CONFIG_MESSAGE
};

enum sy_config_shape { SY_CONFIG_ONE, SY_CONFIG_REPEATED, SY_CONFIG_MAP /* by string or number */ };
enum sy_config_effect { SY_CONFIG_HONOURED, SY_CONFIG_NO_EFFECT, SY_CONFIG_REFUSED };

struct sy_config_field {
    const char *name;
    enum sy_config_type type;
    enum sy_config_shape shape;
    const struct sy_config_field *fields; /* MESSAGE: of it, the last has name NULL */
    const char *const *words;             /* ENUM: its values by number, then NULL */
    enum sy_config_effect effect;
    const char *why; /* REFUSED */
};

extern const struct sy_config_field sy_config_message[];

/* warning: "a, b" of the fields without effect, which are left out. EARG: an unknown field, another type, a single field given twice; EUNSUPPORTED: one that
 * is refused. */
int sy_config_to_json(const struct sy_pbtxt *message, char warning[SY_CONFIG_WARNING_BYTES],
                      json_t **out);

#endif
