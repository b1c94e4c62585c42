#include "runtime/front/log_settings.h"

#include <stdbool.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/status.h"

#define MOST_VERBOSE 2147483647ll

struct settings {
    bool shows[SY_LOG_N_LEVELS];
    bool has_dates;
};

/* How Triton calls our levels; debug is a number. */
static const struct {
    const char *name;
    enum sy_log_level level;
} flags[] = {{"log_info", SY_LOG_INFO}, {"log_warning", SY_LOG_WARN}, {"log_error", SY_LOG_ERROR}};
#define N_FLAGS (sizeof flags / sizeof *flags)

static int verbose_level; /* as it was set: our log has one such level */

static struct settings current(void)
{
    struct settings s;

    for (int level = 0; level < SY_LOG_N_LEVELS; level++)
        s.shows[level] = sy_log_shows((enum sy_log_level)level);
    s.has_dates = sy_log_has_dates();
    return s;
}

int sy_log_settings_get(json_t **out)
{
    struct settings s = current();
    int verbose = !s.shows[SY_LOG_DEBUG] ? 0 : verbose_level > 0 ? verbose_level : 1;

    *out = json_pack("{s:s, s:i, s:s}", "log_file", "", "log_verbose_level", verbose, "log_format",
                     s.has_dates ? "ISO8601" : "default");
    for (size_t i = 0; *out && i < N_FLAGS; i++)
        json_object_set_new(*out, flags[i].name, json_boolean(s.shows[flags[i].level]));
    return *out ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for log settings");
}

static int change_verbose(struct settings *s, int *verbose, const json_t *value)
{
    json_int_t level = json_integer_value(value);

    if (!json_is_integer(value) || level < 0 || level > MOST_VERBOSE)
        return sy_error_set(SY_EARG, "setting 'log_verbose_level' takes a number from 0 to %lld",
                            MOST_VERBOSE);
    *verbose = (int)level;
    s->shows[SY_LOG_DEBUG] = level > 0;
    return SY_OK;
}

static int change_format(struct settings *s, const json_t *value)
{
    const char *format = json_string_value(value);

    s->has_dates = format && strcmp(format, "ISO8601") == 0;
    if (!format || (!s->has_dates && strcmp(format, "default") != 0))
        return sy_error_set(SY_EARG, "setting 'log_format' takes \"default\" or \"ISO8601\"%s%.40s",
                            format ? ", not " : "", format ? format : "");
    return SY_OK;
}

static int change(struct settings *s, int *verbose, const char *name, const json_t *value)
{
    for (size_t i = 0; i < N_FLAGS; i++) {
        if (strcmp(name, flags[i].name) != 0)
            continue;
        if (!json_is_boolean(value))
            return sy_error_set(SY_EARG, "setting '%s' takes true or false", name);
        s->shows[flags[i].level] = json_is_true(value);
        return SY_OK;
    }
    if (strcmp(name, "log_verbose_level") == 0)
        return change_verbose(s, verbose, value);
    if (strcmp(name, "log_format") == 0)
        return change_format(s, value);
    if (strcmp(name, "log_file") == 0)
        return sy_error_set(SY_EUNSUPPORTED,
                            "setting 'log_file' cannot be changed by clients: the log goes to the "
                            "server's stderr");
    return sy_error_set(SY_EARG,
                        "setting '%.40s' is not known: log_info, log_warning, log_error, "
                        "log_verbose_level, log_format",
                        name);
}

int sy_log_settings_update(json_t *changes)
{
    struct settings s = current();
    int verbose = verbose_level;
    const char *name;
    json_t *value;

    if (!json_is_object(changes))
        return sy_error_set(SY_EARG, "log settings are a JSON object");
    json_object_foreach(changes, name, value)
    {
        if (!json_is_null(value))
            SY_TRY(change(&s, &verbose, name, value));
    }
    verbose_level = verbose;
    for (int level = 0; level < SY_LOG_N_LEVELS; level++)
        sy_log_show((enum sy_log_level)level, s.shows[level]);
    sy_log_set_dates(s.has_dates);
    return SY_OK;
}
