#include "runtime/cli/cli_fields.h"

#include <string.h>

#include "runtime/base/status.h"

static int store_integer(const struct sy_cli_field *field, char *to, const char *value)
{
    int64_t number;
    int narrow;

    SY_TRY(sy_cli_integer(value, field->least, field->most, &number));
    narrow = (int)number;
    if (field->kind == SY_CLI_IS_INT)
        memcpy(to, &narrow, sizeof narrow);
    else
        memcpy(to, &number, sizeof number);
    return SY_OK;
}

static int store_real(const struct sy_cli_field *field, double *to, const char *value)
{
    SY_TRY(sy_cli_real(value, to));
    if (field->high > 0 && (*to < field->low || *to > field->high))
        return sy_error_set(SY_EARG, "\"%s\" is not from %g to %g", value, field->low, field->high);
    return SY_OK;
}

static int store_bytes(const struct sy_cli_field *field, uint64_t *to, const char *value)
{
    SY_TRY(sy_cli_bytes(value, to));
    return *to > 0 || field->least == 0
               ? SY_OK
               : sy_error_set(SY_EARG, "\"%s\" is not more than 0 bytes", value);
}

static int store_time(const struct sy_cli_field *field, sy_ns *to, const char *value)
{
    double ns;

    SY_TRY(store_real(field, &ns, value));
    ns *= field->unit_ns;
    if (ns > 1e18)
        return sy_error_set(SY_EARG, "%s is more than 30 years", value);
    if (ns > 0 && ns < 1)
        return sy_error_set(SY_EARG, "%s is less than a nanosecond", value);
    *to = (sy_ns)ns;
    return SY_OK;
}

int sy_cli_store(const struct sy_cli_field *field, void *command, const char *value)
{
    char *to = (char *)command + field->at;

    switch (field->kind) {
    case SY_CLI_IS_TEXT:
        *(const char **)to = value;
        return SY_OK;
    case SY_CLI_IS_TEXT_OR_OFF:
        *(const char **)to = strcmp(value, "off") == 0 ? NULL : value;
        return SY_OK;
    case SY_CLI_IS_SWITCH:
    case SY_CLI_IS_OFF:
        *(bool *)to = field->kind == SY_CLI_IS_SWITCH;
        return SY_OK;
    case SY_CLI_IS_INT:
    case SY_CLI_IS_INT64:
        return store_integer(field, to, value);
    case SY_CLI_IS_REAL:
        return store_real(field, (double *)to, value);
    case SY_CLI_IS_BYTES:
        return store_bytes(field, (uint64_t *)to, value);
    case SY_CLI_IS_TIME:
        return store_time(field, (sy_ns *)to, value);
    case SY_CLI_IS_SET:
        return field->set(command, value);
    }
    return SY_EARG;
}

static int take_word(const struct sy_cli_fields *f, const char *name, void *command,
                     const char *word)
{
    if (!f->word)
        return sy_error_set(SY_EARG, "%s takes no words: %s", name, word);
    return f->word(command, word);
}

static int read_fields(const struct sy_cli_fields *f, struct sy_cli_parser *parser, void *command,
                       bool ends_at_word, const char **word)
{
    struct sy_cli_option options[SY_CLI_MAX_FIELDS + 1] = {{NULL, NULL, NULL}};
    const char *name = parser->argv[0], *value;
    int got;

    sy_assert_internal(f->n <= SY_CLI_MAX_FIELDS);
    for (size_t i = 0; i < f->n; i++)
        options[i] = f->fields[i].option;
    parser->options = options;
    while ((got = sy_cli_next(parser, &value)) >= 0 || (got == SY_CLI_WORD && !ends_at_word)) {
        if (got == SY_CLI_WORD && take_word(f, name, command, value) < 0)
            return sy_cli_usage("%s", sy_error_text());
        if (got >= 0 && sy_cli_store(&f->fields[got], command, value) < 0)
            return sy_cli_usage("--%s: %s", options[got].name, sy_error_text());
    }
    *word = got == SY_CLI_WORD ? value : NULL;
    return got == SY_CLI_END || got == SY_CLI_WORD ? SY_CLI_END : got == SY_CLI_HELP ? 0 : 2;
}

int sy_cli_read(const struct sy_cli_fields *f, int argc, char **argv, void *command)
{
    struct sy_cli_parser parser = {f->usage, NULL, argc, argv, 0};
    const char *word;

    return read_fields(f, &parser, command, false, &word);
}

int sy_cli_read_program(const struct sy_cli_fields *f, int argc, char **argv, void *command,
                        char ***rest)
{
    struct sy_cli_parser parser = {f->usage, NULL, argc, argv, 0};
    const char *word;

    *rest = NULL;
    for (int i = 1; i < parser.argc; i++)
        if (strcmp(argv[i], "--") == 0) {
            parser.argc = i;
            *rest = argv + i + 1;
        }
    int status = read_fields(f, &parser, command, true, &word);
    if (status != SY_CLI_END || !word)
        return status;
    if (*rest)
        return sy_cli_usage("%s: '%s' stands in front of '--'; see switchyard %s --help", argv[0],
                            word, argv[0]);
    *rest = argv + parser.at - 1;
    return SY_CLI_END;
}
