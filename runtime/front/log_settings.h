/* Triton's log settings, on this process's log (runtime/base/log.h); workers' lines go by what they were started with.
 *
 *   {"log_file": "", "log_info": true, "log_warning": true, "log_error": true, "log_verbose_level": 0, "log_format": "default"}
 *
 * log_verbose_level above 0 is our level debug. log_format is "default" (time of day) or "ISO8601" (date and time). The log goes to stderr: log_file is
 * refused. One thread, the event loop's. */
#ifndef SY_FRONT_LOG_SETTINGS_H
#define SY_FRONT_LOG_SETTINGS_H

#include <jansson.h>

/* *out: all settings, the caller's reference. ENOMEM_HOST. */
int sy_log_settings_get(json_t **out);
/* `changes` is an object (borrowed); what is left out or null stays. EARG, EUNSUPPORTED: names the setting, and nothing is changed. */
int sy_log_settings_update(json_t *changes);

#endif
