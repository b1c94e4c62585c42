/* A TOML file of one level as a list of keys and values. The parser is cpptoml (Debian), which is C++: hence the one .cc file of the program. */
#ifndef SY_CLI_CONFIG_CONF_TOML_H
#define SY_CLI_CONFIG_CONF_TOML_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SY_CONF_MAX_BYTES  (1 << 20)
#define SY_CONF_MAX_ARRAYS 1024 /* '[' in the file: what the parser can go down */

enum sy_conf_kind { SY_CONF_TEXT, SY_CONF_NUMBER, SY_CONF_SWITCH };

/* key = value; an array gives one entry for each element, an empty one none. */
struct sy_conf_entry {
    char *key,
        *value; /* numbers as they would stand on a command line; switches: "true", "false" */
    enum sy_conf_kind kind;
};

struct sy_conf {
    struct sy_conf_entry *entries; /* sorted by key */
    size_t n;
};

/* *out is the caller's. EIO: cannot be read; EARG: no TOML (with the line), tables, dates, arrays in arrays; ENOMEM_HOST. */
int sy_conf_toml_read(const char *path, struct sy_conf **out);
void sy_conf_destroy(struct sy_conf *conf); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
