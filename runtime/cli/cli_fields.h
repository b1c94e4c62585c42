/* Options whose values go straight into a command's struct: one row gives parsing, bounds and help. Rows also read serve's configuration
 * file (config/serve_conf.h).
 *
 *   static const struct sy_cli_field fields[] = {
 *       {{"batch", "N", "batch size; default 1"}, SY_CLI_INT64(struct infer, batch, 1, 1024)},
 *   };
 */
#ifndef SY_CLI_CLI_FIELDS_H
#define SY_CLI_CLI_FIELDS_H

#include <stddef.h>

#include "runtime/base/assert.h"
#include "runtime/cli/cli.h"

enum sy_cli_kind {
    SY_CLI_IS_TEXT,        /* const char *: the word itself */
    SY_CLI_IS_TEXT_OR_OFF, /* const char *: the word itself; of "off" NULL */
    SY_CLI_IS_SWITCH,      /* bool: set to true */
    SY_CLI_IS_OFF,         /* bool: set to false */
    SY_CLI_IS_INT,         /* int, least to most */
    SY_CLI_IS_INT64,       /* 64 bits, least to most */
    SY_CLI_IS_REAL,        /* double, at least 0; low to high */
    SY_CLI_IS_BYTES,       /* uint64_t: a size; least 1: not 0 */
    SY_CLI_IS_TIME,        /* sy_ns: low to high; without these 0, or 1 ns to 30 years */
    SY_CLI_IS_SET,         /* by `set` */
};

struct sy_cli_field {
    struct sy_cli_option option;
    enum sy_cli_kind kind;
    size_t at; /* offset in the command's struct */
    int64_t least, most;
    double unit_ns;                               /* of a time */
    double low, high;                             /* in the option's unit; high 0: no bounds */
    int (*set)(void *command, const char *value); /* SY_OK; negative: the error text says why */
};

/* The field's offset; does not compile if it has another type than its row says. */
#define SY_CLI_AT(type, field, is_right)                                                    \
    .at = offsetof(type, field) + 0 * sizeof(struct {                                       \
                                      _Static_assert(is_right, #field " has another type"); \
                                      int unused;                                           \
                                  })
#define SY_CLI_OF(type, field, as) _Generic(((type *)0)->field, as : true, default : false)

#define SY_CLI_TEXT(type, field) \
    .kind = SY_CLI_IS_TEXT, SY_CLI_AT(type, field, SY_CLI_OF(type, field, const char *))
#define SY_CLI_TEXT_OR_OFF(type, field) \
    .kind = SY_CLI_IS_TEXT_OR_OFF, SY_CLI_AT(type, field, SY_CLI_OF(type, field, const char *))
#define SY_CLI_SWITCH(type, field) \
    .kind = SY_CLI_IS_SWITCH, SY_CLI_AT(type, field, SY_CLI_OF(type, field, bool))
#define SY_CLI_OFF(type, field) \
    .kind = SY_CLI_IS_OFF, SY_CLI_AT(type, field, SY_CLI_OF(type, field, bool))
#define SY_CLI_INT(type, field, least_, most_)                 \
    .kind = SY_CLI_IS_INT, .least = (least_), .most = (most_), \
    SY_CLI_AT(type, field, SY_CLI_OF(type, field, int))
#define SY_CLI_INT64(type, field, least_, most_)                 \
    .kind = SY_CLI_IS_INT64, .least = (least_), .most = (most_), \
    SY_CLI_AT(type, field, sizeof(((type *)0)->field) == 8)
#define SY_CLI_REAL(type, field) \
    .kind = SY_CLI_IS_REAL, SY_CLI_AT(type, field, SY_CLI_OF(type, field, double))
#define SY_CLI_REAL_WITHIN(type, field, low_, high_) \
    SY_CLI_REAL(type, field), .low = (low_), .high = (high_)
#define SY_CLI_BYTES(type, field) \
    .kind = SY_CLI_IS_BYTES, SY_CLI_AT(type, field, SY_CLI_OF(type, field, uint64_t))
#define SY_CLI_TIME(type, field, unit_ns_)         \
    .kind = SY_CLI_IS_TIME, .unit_ns = (unit_ns_), \
    SY_CLI_AT(type, field, SY_CLI_OF(type, field, sy_ns))
#define SY_CLI_SOME_BYTES(type, field) SY_CLI_BYTES(type, field), .least = 1
#define SY_CLI_TIME_WITHIN(type, field, unit_ns_, low_, high_) \
    SY_CLI_TIME(type, field, unit_ns_), .low = (low_), .high = (high_)
#define SY_CLI_SET(set_) .kind = SY_CLI_IS_SET, .set = (set_)

#define SY_CLI_MAX_FIELDS 96

struct sy_cli_fields {
    const char *usage; /* as struct sy_cli_parser has it */
    const struct sy_cli_field *fields;
    size_t n; /* at most SY_CLI_MAX_FIELDS */
    /* (optional) A word that is no option; without it, such words are refused. Negative: the error text says why. */
    int (*word)(void *command, const char *word);
};

/* Sets one option's field; value NULL: of a switch. Texts are not copied. EARG, and what `set` says. */
int sy_cli_store(const struct sy_cli_field *field, void *command, const char *value);
/* Reads the command line into the struct. SY_CLI_END: go on; else the command's exit status, after one line on stderr, or the help. */
int sy_cli_read(const struct sy_cli_fields *f, int argc, char **argv, void *command);
/* As sy_cli_read, for a command that takes a program and its arguments: these begin behind "--", or with the first word. *rest: the first of them; NULL: none. */
int sy_cli_read_program(const struct sy_cli_fields *f, int argc, char **argv, void *command,
                        char ***rest);

#endif
