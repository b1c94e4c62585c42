/* Server reflection, v1 and v1alpha: what tools like grpcurl ask to learn the services. The files are those that this server's own messages are made of, as the
 * compiler serialized them (a FileDescriptorSet, in which each is looked for by walking it: 26 KB, for people). */
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_descriptors.h"
#include "runtime/front/grpc/grpc_internal.h"
#include "runtime/front/grpc/grpc_json.h"

#define SYMBOL 256 /* bytes of a name that is looked for, with its end */

/* Field numbers of FileDescriptorSet and what it holds. */
enum { SET_FILE = 1 };
enum {
    FILE_NAME = 1,
    FILE_PACKAGE = 2,
    FILE_IMPORT = 3,
    FILE_MESSAGE = 4,
    FILE_ENUM = 5,
    FILE_SERVICE = 6
};
enum { MESSAGE_NAME = 1, MESSAGE_NESTED = 3, MESSAGE_ENUM = 4 };
enum { SERVICE_NAME = 1, SERVICE_METHOD = 2 };

static struct sy_grpc_bytes whole_set(void)
{
    return (struct sy_grpc_bytes){sy_grpc_descriptor_set, sy_grpc_descriptor_set_bytes};
}

/* The next field of this number; false: there is none. The bytes are the compiler's, so they are whole. */
static bool next(struct sy_grpc_bytes *at, uint32_t number, struct sy_grpc_bytes *out)
{
    struct sy_grpc_field field;

    while (sy_grpc_wire_next(at, &field) == SY_GRPC_FIELD)
        if (field.number == number && field.type == SY_GRPC_BYTES) {
            *out = field.bytes;
            return true;
        }
    return false;
}

static struct sy_grpc_bytes first(struct sy_grpc_bytes of, uint32_t number)
{
    struct sy_grpc_bytes found = {NULL, 0};

    next(&of, number, &found);
    return found;
}

/* ---- symbols ------------------------------------------------------------------------------------------------------- */

/* Takes "name" or "name." off the front of a symbol; false: it begins with something else. */
static bool strip(const char **symbol, struct sy_grpc_bytes name)
{
    if (strncmp(*symbol, (const char *)name.data, name.n) != 0 ||
        ((*symbol)[name.n] != '.' && (*symbol)[name.n] != '\0'))
        return false;
    *symbol += name.n + ((*symbol)[name.n] == '.');
    return true;
}

/* A type of this name among those of `number`, or nested in one. */
static bool has_message(struct sy_grpc_bytes in, uint32_t number, const char *symbol, int depth)
{
    struct sy_grpc_bytes message, nested;

    while (depth < SY_GRPC_JSON_DEPTH && next(&in, number, &message)) {
        const char *rest = symbol;

        if (!strip(&rest, first(message, MESSAGE_NAME)))
            continue;
        if (*rest == '\0' || has_message(message, MESSAGE_NESTED, rest, depth + 1))
            return true;
        for (struct sy_grpc_bytes at = message; next(&at, MESSAGE_ENUM, &nested);)
            if (sy_grpc_bytes_equal(first(nested, MESSAGE_NAME), rest))
                return true;
    }
    return false;
}

/* A service, or a method of one. */
static bool has_service(struct sy_grpc_bytes file, const char *symbol)
{
    struct sy_grpc_bytes service, method;

    while (next(&file, FILE_SERVICE, &service)) {
        const char *rest = symbol;

        if (!strip(&rest, first(service, SERVICE_NAME)))
            continue;
        if (*rest == '\0')
            return true;
        while (next(&service, SERVICE_METHOD, &method))
            if (sy_grpc_bytes_equal(first(method, SERVICE_NAME), rest))
                return true;
    }
    return false;
}

static bool has_enum(struct sy_grpc_bytes file, const char *symbol)
{
    struct sy_grpc_bytes of;

    while (next(&file, FILE_ENUM, &of))
        if (sy_grpc_bytes_equal(first(of, MESSAGE_NAME), symbol))
            return true;
    return false;
}

static bool has_symbol(struct sy_grpc_bytes file, const char *symbol)
{
    return strip(&symbol, first(file, FILE_PACKAGE)) &&
           (has_message(file, FILE_MESSAGE, symbol, 0) || has_service(file, symbol) ||
            has_enum(file, symbol));
}

static bool has_name(struct sy_grpc_bytes file, const char *name)
{
    return sy_grpc_bytes_equal(first(file, FILE_NAME), name);
}

static bool find_file(bool (*is_it)(struct sy_grpc_bytes file, const char *name), const char *name,
                      struct sy_grpc_bytes *out)
{
    struct sy_grpc_bytes set = whole_set();

    while (next(&set, SET_FILE, out))
        if (is_it(*out, name))
            return true;
    return false;
}

/* ---- answers ------------------------------------------------------------------------------------------------------- */

static json_t *error(enum sy_grpc_code code, const char *what)
{
    return json_pack("{s:{s:i, s:s}}", "error_response", "error_code", code, "error_message", what);
}

static json_t *bytes_json(struct sy_grpc_bytes bytes)
{
    return json_stringn_nocheck((const char *)bytes.data, bytes.n);
}

/* The file, and what it imports: each once, and no import here imports another. */
static json_t *answer_file(bool (*is_it)(struct sy_grpc_bytes file, const char *name),
                           const char *name)
{
    struct sy_grpc_bytes file, import, imported;
    char path[SYMBOL];
    json_t *files;

    if (!find_file(is_it, name, &file))
        return error(SY_GRPC_NOT_FOUND, "there is no such file or symbol");
    files = json_array();
    json_array_append_new(files, bytes_json(file));
    while (next(&file, FILE_IMPORT, &import))
        if (sy_grpc_bytes_copy(import, path, sizeof path) && find_file(has_name, path, &imported))
            json_array_append_new(files, bytes_json(imported));
    return json_pack("{s:{s:o}}", "file_descriptor_response", "file_descriptor_proto", files);
}

static void add_service(json_t *services, struct sy_grpc_bytes package, struct sy_grpc_bytes name)
{
    json_array_append_new(services, json_pack("{s:o}", "name",
                                              json_sprintf("%.*s.%.*s", (int)package.n,
                                                           package.data, (int)name.n, name.data)));
}

static json_t *answer_services(void)
{
    struct sy_grpc_bytes set = whole_set(), file, service;
    json_t *services = json_array();

    while (next(&set, SET_FILE, &file))
        for (struct sy_grpc_bytes at = file; next(&at, FILE_SERVICE, &service);)
            add_service(services, first(file, FILE_PACKAGE), first(service, SERVICE_NAME));
    return json_pack("{s:{s:o}}", "list_services_response", "service", services);
}

static json_t *answer_to(const json_t *request)
{
    const char *name;

    if (json_object_get(request, "list_services"))
        return answer_services();
    name = json_string_value(json_object_get(request, "file_by_filename"));
    if (name)
        return answer_file(has_name, name);
    name = json_string_value(json_object_get(request, "file_containing_symbol"));
    if (name)
        return answer_file(has_symbol, name);
    name = json_string_value(json_object_get(request, "all_extension_numbers_of_type"));
    if (name) {
        struct sy_grpc_bytes file;

        return find_file(has_symbol, name, &file)
                   ? json_pack("{s:{s:s}}", "all_extension_numbers_response", "base_type_name",
                               name)
                   : error(SY_GRPC_NOT_FOUND, "there is no such type");
    }
    if (json_object_get(request, "file_containing_extension"))
        return error(SY_GRPC_NOT_FOUND, "there are no extensions");
    return error(SY_GRPC_INVALID_ARGUMENT, "the request asks for nothing");
}

void sy_grpc_reflection_message(struct sy_grpc_stream *stream, struct sy_grpc_bytes message)
{
    json_t *request = NULL, *answer = NULL;
    int status = sy_grpc_json_read(stream->method->request, message, &request);

    if (status == SY_OK) {
        const char *host = json_string_value(json_object_get(request, "host"));

        answer = answer_to(request);
        if (!answer || json_object_set_new(answer, "valid_host", json_string(host ? host : "")) ||
            json_object_set(answer, "original_request", request))
            status = sy_error_set(SY_ENOMEM_HOST, "no memory for an answer");
    }
    json_decref(request);
    sy_grpc_stream_answer(stream, status, answer);
}

void sy_grpc_reflection_end(struct sy_grpc_stream *stream)
{
    sy_grpc_stream_finish(stream, SY_GRPC_OK, NULL);
}
