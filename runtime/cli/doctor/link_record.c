#include "runtime/cli/doctor/link_record.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"

#define FRESH_S 600.0 /* measurements beside load expire after this */

static bool path_of(const char *folder, char *path)
{
    return snprintf(path, PATH_MAX, "%s/link.json", folder) < PATH_MAX;
}

/* A link may be another one after a restart of the machine. "": unknown. */
static void read_boot(char *boot, size_t bytes)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    *boot = 0;
    if (!file)
        return;
    if (!fgets(boot, (int)bytes, file))
        *boot = 0;
    boot[strcspn(boot, "\n")] = 0;
    fclose(file);
}

/* Time since this machine booted, including sleep. */
static double seconds_now(void)
{
    struct timespec t = {0};

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int write_text(const char *path, const char *text)
{
    struct sy_durable_file file;
    int status;

    SY_TRY(sy_durable_file_create(path, &file));
    SY_TRY_GOTO(sy_write_fully(file.fd, path, text, strlen(text), 0), fail);
    return sy_durable_file_commit(&file);
fail:
    sy_durable_file_discard(&file);
    return status;
}

int sy_link_record_write(const char *folder, const char *device_spec,
                         const struct sy_link_cost *cost)
{
    char path[PATH_MAX], boot[64];
    read_boot(boot, sizeof boot);
    if (!path_of(folder, path) || !*boot)
        return sy_error_set(SY_EIO, "a link is not remembered in %s: %s", folder,
                            *boot ? "the path is too long" : "the machine's start is unknown");
    json_t *root = json_pack("{s:s, s:f, s:s, s:f, s:f, s:f, s:f}", "boot", boot, "measured_s",
                             seconds_now(), "device", device_spec, "alpha_ns", cost->alpha_ns,
                             "bytes_per_ns", cost->bytes_per_ns, "sigma_ns", cost->sigma_ns,
                             "lost_ns_per_byte", cost->lost_ns_per_byte);
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    int status =
        text ? write_text(path, text) : sy_error_set(SY_ENOMEM_HOST, "no memory for a link");
    free(text);
    json_decref(root);
    return status;
}

static bool is_text(const json_t *root, const char *key, const char *expected)
{
    const char *text = json_string_value(json_object_get(root, key));
    return text && *expected && strcmp(text, expected) == 0;
}

/* The ranges that the simulator takes (runtime/sim/sim.c): what lies beyond was not measured. */
static bool is_link(const struct sy_link_cost *cost)
{
    return cost->bytes_per_ns >= 1e-6 && cost->bytes_per_ns <= 1e6 && cost->alpha_ns >= 0 &&
           cost->alpha_ns <= 1e9 && cost->sigma_ns >= 0 && cost->sigma_ns <= 1e9 &&
           cost->lost_ns_per_byte >= 0 && cost->lost_ns_per_byte <= 1e6;
}

static double number(const json_t *root, const char *key)
{
    return json_number_value(json_object_get(root, key));
}

bool sy_link_record_read(const char *folder, const char *device_spec, struct sy_link_cost *out)
{
    char path[PATH_MAX], boot[64];
    read_boot(boot, sizeof boot);
    json_t *root = path_of(folder, path) ? json_load_file(path, 0, NULL) : NULL;
    *out = (struct sy_link_cost){.alpha_ns = number(root, "alpha_ns"),
                                 .bytes_per_ns = number(root, "bytes_per_ns"),
                                 .sigma_ns = number(root, "sigma_ns"),
                                 .lost_ns_per_byte = number(root, "lost_ns_per_byte")};
    double age_s = seconds_now() - number(root, "measured_s");
    bool is_known = age_s >= 0 && age_s <= FRESH_S && is_text(root, "boot", boot) &&
                    is_text(root, "device", device_spec) && is_link(out);
    json_decref(root);
    return is_known;
}
