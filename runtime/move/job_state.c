#include "runtime/move/job_state.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "runtime/base/assert.h"
#include "runtime/base/durable_file.h"
#include "runtime/base/status.h"

static const unsigned char magic[8] = {'S', 'Y', 'J', 'O', 'B', 0, 0, 1};

void sy_job_state_finish(struct sy_job_state *state)
{
    free(state->text);
    *state = (struct sy_job_state){0};
}

int sy_job_state_name(const json_t *job, char name[SY_JOB_STATE_NAME])
{
    const char *text = json_string_value(json_object_get(job, "name"));
    size_t n = text ? strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789._-")
                    : 0;
    if (n == 0 || text[n] || text[0] == '.' || n >= SY_JOB_STATE_NAME)
        return sy_error_set(SY_EARG,
                            "job: name '%.120s': 1 to %d letters, digits, '.', '_' and '-', as it "
                            "names files",
                            text ? text : "", SY_JOB_STATE_NAME - 1);
    memcpy(name, text, n + 1);
    return SY_OK;
}

json_t *sy_job_state_json(const struct sy_job_state *state)
{
    char hash[20];
    snprintf(hash, sizeof hash, "%016" PRIx64, state->xxh3);
    json_t *json =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:s}", "format", SY_JOB_STATE_FORMAT, "text",
                  state->text, "step", (json_int_t)state->step, "total_steps",
                  (json_int_t)state->total_steps, "bytes", (json_int_t)state->bytes, "xxh3", hash);
    if (json && state->has_priority)
        json_object_set_new(json, "priority", json_integer(state->priority));
    return json;
}

/* ---- from JSON -------------------------------------------------------------------------------- */

static int take_count(const json_t *json, const char *key, uint64_t most, uint64_t *out)
{
    const json_t *value = json_object_get(json, key);
    json_int_t count = json_integer_value(value);
    if (!json_is_integer(value) || count < 0)
        return sy_error_set(SY_EARG, "a job's state: \"%s\" is missing or no count", key);
    if ((uint64_t)count > most)
        return sy_error_set(SY_ETOOBIG,
                            "a job's state: \"%s\" is %" JSON_INTEGER_FORMAT ", at most %" PRIu64,
                            key, count, most);
    *out = (uint64_t)count;
    return SY_OK;
}

static int take_hash(const json_t *json, uint64_t *out)
{
    const char *text = json_string_value(json_object_get(json, "xxh3"));
    if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return sy_error_set(SY_EARG, "a job's state: \"xxh3\" is missing or not 16 digits");
    *out = strtoull(text, NULL, 16);
    return SY_OK;
}

static int take_format(const json_t *json)
{
    const char *format = json_string_value(json_object_get(json, "format"));
    if (!format || strcmp(format, SY_JOB_STATE_FORMAT) != 0)
        return sy_error_set(SY_EUNSUPPORTED,
                            "a job's state: its format is '%.40s', this version reads '%s'",
                            format ? format : "", SY_JOB_STATE_FORMAT);
    return SY_OK;
}

static int take_text(const json_t *json, struct sy_job_state *out)
{
    const json_t *value = json_object_get(json, "text");
    const char *text = json_string_value(value);
    json_error_t error;
    if (!text)
        return sy_error_set(SY_EARG, "a job's state: \"text\" is missing or not a string");
    if (json_string_length(value) > SY_JOB_STATE_TEXT_BYTES)
        return sy_error_set(SY_ETOOBIG, "a job's state: a job file of %zu bytes, at most %u",
                            json_string_length(value), SY_JOB_STATE_TEXT_BYTES);
    json_t *job = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    int status = json_is_object(job)
                     ? sy_job_state_name(job, out->name)
                     : sy_error_set(SY_EARG, "a job's state: \"text\" is not a job file: %s",
                                    job ? "no object in braces" : error.text);
    json_decref(job);
    SY_TRY(status);
    out->text = strdup(text);
    return out->text ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no memory for a job");
}

static int take_priority(const json_t *json, struct sy_job_state *out)
{
    const json_t *value = json_object_get(json, "priority");
    json_int_t priority = json_integer_value(value);
    if (!value)
        return SY_OK;
    if (!json_is_integer(value) || priority < -1000 || priority > 1000)
        return sy_error_set(SY_EARG, "a job's state: \"priority\": a number from -1000 to 1000");
    out->has_priority = true;
    out->priority = (int)priority;
    return SY_OK;
}

int sy_job_state_parse(const json_t *json, struct sy_job_state *out)
{
    *out = (struct sy_job_state){0};
    if (!json_is_object(json))
        return sy_error_set(SY_EARG, "a job's state is an object");
    SY_TRY(take_format(json));
    SY_TRY(take_count(json, "step", INT64_MAX, &out->step));
    SY_TRY(take_count(json, "total_steps", INT64_MAX, &out->total_steps));
    SY_TRY(take_count(json, "bytes", SY_JOB_STATE_MOST_BYTES, &out->bytes));
    SY_TRY(take_hash(json, &out->xxh3));
    SY_TRY(take_priority(json, out));
    if (out->bytes == 0 && out->step != 0)
        return sy_error_set(SY_EARG, "a job's state: step %" PRIu64 " without a snapshot",
                            out->step);
    return take_text(json, out);
}

/* ---- the file --------------------------------------------------------------------------------- */

static void put_u64(unsigned char *to, uint64_t value)
{
    value = htole64(value);
    memcpy(to, &value, sizeof value);
}

static uint64_t get_u64(const unsigned char *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return le64toh(value);
}

int sy_job_state_pack(const struct sy_job_state *state, unsigned char **out, size_t *n)
{
    json_t *json = sy_job_state_json(state);
    size_t bytes = json ? json_dumpb(json, NULL, 0, JSON_COMPACT) : 0;
    unsigned char *whole = bytes ? malloc(SY_JOB_STATE_PREFIX_BYTES + bytes) : NULL;
    if (whole) {
        char *header = (char *)whole + SY_JOB_STATE_PREFIX_BYTES;
        json_dumpb(json, header, bytes, JSON_COMPACT);
        memcpy(whole, magic, sizeof magic);
        put_u64(whole + 8, bytes);
        put_u64(whole + 16, XXH3_64bits(header, bytes));
    }
    json_decref(json);
    SY_TRY_ALLOC(whole, "no memory for a job's state");
    *out = whole;
    *n = SY_JOB_STATE_PREFIX_BYTES + bytes;
    return SY_OK;
}

/* The length of the header that follows a prefix of SY_JOB_STATE_PREFIX_BYTES bytes. ECORRUPT, EUNSUPPORTED. */
static int header_bytes(const unsigned char *prefix, size_t n, size_t *out)
{
    if (n < SY_JOB_STATE_PREFIX_BYTES || memcmp(prefix, magic, sizeof magic - 1) != 0)
        return sy_error_set(SY_ECORRUPT,
                            "no state of a job: it does not begin as 'switchyard jobs export' "
                            "writes one");
    if (prefix[7] != magic[7])
        return sy_error_set(SY_EUNSUPPORTED, "a job's state of version %d; this program reads %d",
                            prefix[7], magic[7]);
    uint64_t bytes = get_u64(prefix + 8);
    if (bytes > SY_JOB_STATE_HEADER_BYTES)
        return sy_error_set(SY_ECORRUPT, "a job's state: a header of %" PRIu64 " bytes, at most %u",
                            bytes, SY_JOB_STATE_HEADER_BYTES);
    *out = (size_t)bytes;
    return SY_OK;
}

int sy_job_state_unpack(const unsigned char *bytes, size_t n, struct sy_job_state *out)
{
    size_t header;
    json_error_t error;
    *out = (struct sy_job_state){0};
    SY_TRY(header_bytes(bytes, n, &header));
    const unsigned char *at = bytes + SY_JOB_STATE_PREFIX_BYTES;
    if (header > n - SY_JOB_STATE_PREFIX_BYTES)
        return sy_error_set(SY_ECORRUPT, "a job's state is cut off in its header");
    if (XXH3_64bits(at, header) != get_u64(bytes + 16))
        return sy_error_set(SY_ECORRUPT, "a job's state: its header was changed (its hash)");
    json_t *json = json_loadb((const char *)at, header, JSON_REJECT_DUPLICATES, &error);
    int status = json ? sy_job_state_parse(json, out)
                      : sy_error_set(SY_ECORRUPT, "a job's state: its header: %s", error.text);
    json_decref(json);
    if (status < 0)
        sy_job_state_finish(out);
    return status;
}

#define HASH_BYTES (1u << 20)

int sy_job_state_hash(int fd, const char *path, uint64_t at, uint64_t bytes,
                      const _Atomic bool *stop, uint64_t *out)
{
    XXH3_state_t *state = XXH3_createState();
    unsigned char *piece = malloc(HASH_BYTES);
    int status = state && piece ? SY_OK : sy_error_set(SY_ENOMEM_HOST, "no room for a hash");
    if (status == SY_OK)
        XXH3_64bits_reset(state);
    for (uint64_t done = 0; status == SY_OK && done < bytes; done += HASH_BYTES) {
        size_t n = (size_t)SY_MIN(bytes - done, (uint64_t)HASH_BYTES);
        status = stop && *stop ? sy_error_set(SY_ECANCELED, "%s: stopped while it was read", path)
                               : sy_read_fully(fd, path, piece, n, at + done);
        if (status == SY_OK)
            XXH3_64bits_update(state, piece, n);
    }
    if (status == SY_OK)
        *out = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    free(piece);
    return status;
}

static int read_header(int fd, const char *path, struct sy_job_state *out, uint64_t *at)
{
    unsigned char prefix[SY_JOB_STATE_PREFIX_BYTES];
    size_t header;
    SY_TRY(sy_read_fully(fd, path, prefix, sizeof prefix, 0));
    SY_TRY(header_bytes(prefix, sizeof prefix, &header));
    unsigned char *whole = malloc(sizeof prefix + header);
    SY_TRY_ALLOC(whole, "no memory for a job's state");
    int status = sy_read_fully(fd, path, whole, sizeof prefix + header, 0);
    if (status == SY_OK)
        status = sy_job_state_unpack(whole, sizeof prefix + header, out);
    free(whole);
    *at = sizeof prefix + header;
    return status;
}

static int check_snapshot(int fd, const char *path, const struct sy_job_state *state, uint64_t at)
{
    struct stat info;
    uint64_t hash = 0;
    if (fstat(fd, &info) != 0)
        return sy_error_set(SY_EIO, "%s: %s", path, strerror(errno));
    if ((uint64_t)info.st_size != at + state->bytes)
        return sy_error_set(SY_ECORRUPT, "%s has %lld bytes, its header says %" PRIu64, path,
                            (long long)info.st_size, at + state->bytes);
    SY_TRY(sy_job_state_hash(fd, path, at, state->bytes, NULL, &hash));
    if (state->bytes > 0 && hash != state->xxh3)
        return sy_error_set(SY_ECORRUPT,
                            "%s: its snapshot has hash %016" PRIx64 ", its header says %016" PRIx64,
                            path, hash, state->xxh3);
    return SY_OK;
}

int sy_job_state_open(const char *path, struct sy_job_state *out, int *fd, uint64_t *at)
{
    struct stat info;
    *out = (struct sy_job_state){0};
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused, not waited for */
    if (*fd < 0)
        return sy_error_set(errno == ENOENT ? SY_ENOTFOUND : SY_EIO, "%s: %s", path,
                            strerror(errno));
    int status = fstat(*fd, &info) == 0 && S_ISREG(info.st_mode)
                     ? read_header(*fd, path, out, at)
                     : sy_error_set(SY_EARG, "%s is not a regular file", path);
    if (status == SY_OK)
        status = check_snapshot(*fd, path, out, *at);
    if (status == SY_OK)
        return SY_OK;
    close(*fd);
    *fd = -1;
    sy_job_state_finish(out);
    return sy_error_prefix(status, "'%s'", path);
}
