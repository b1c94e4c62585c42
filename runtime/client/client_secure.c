/* A server on another machine: TLS, and the token. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/client/client_internal.h"
#include "runtime/net/tls.h"

#define TOKEN_BYTES 300

/* An empty variable is none. */
static const char *or_environment(const char *value, const char *name)
{
    const char *set = value ? value : getenv(name);

    return set && *set ? set : NULL;
}

/* A server that is plain, or that refuses this client before the handshake, says so in its own protocol: that cannot be read here. */
static int handshake(sy_client *client)
{
    bool wants_write;
    int done;

    while ((done = sy_tls_handshake(client->tls, &wants_write)) == 0)
        SY_TRY(sy_client_wait(client, wants_write ? POLLOUT : POLLIN));
    return done == 1 ? SY_OK : sy_error_set(SY_EPEER, "%s", sy_tls_why(client->tls));
}

int sy_client_start_tls(sy_client *client, const char *host, const sy_client_security *security)
{
    const char *ca = or_environment(security ? security->tls_ca : NULL, "SWITCHYARD_TLS_CA");
    const char *name = security && security->tls_name ? security->tls_name : host;

    if (!ca)
        return SY_OK;
    SY_TRY(sy_tls_client_create(strcmp(ca, "system") == 0 ? NULL : ca, &client->tls_context));
    SY_TRY(sy_tls_stream_create(client->tls_context, client->fd, name, &client->tls));
    return handshake(client);
}

void sy_client_end_tls(sy_client *client)
{
    sy_tls_stream_destroy(client->tls);
    sy_tls_destroy(client->tls_context);
    client->tls = NULL;
    client->tls_context = NULL;
}

/* The first line, without what surrounds it. */
static int read_token(const char *path, char *token)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, token, TOKEN_BYTES - 1) : -1;
    int error = errno;
    size_t from, bytes;

    if (fd >= 0)
        close(fd);
    if (n < 0)
        return sy_error_set(SY_EARG, "the token file %s: %s", path, strerror(error));
    token[n] = '\0';
    from = strspn(token, " \t\r\n");
    bytes = strcspn(token + from, "\r\n");
    while (bytes > 0 && (token[from + bytes - 1] == ' ' || token[from + bytes - 1] == '\t'))
        bytes--;
    memmove(token, token + from, bytes);
    token[bytes] = '\0';
    if (bytes == 0 || strpbrk(token, " \t"))
        return sy_error_set(SY_EARG,
                            "the token file %s holds no token: one line with the secret alone "
                            "(not the server's lines NAME TOKEN RIGHTS)",
                            path);
    return SY_OK;
}

int sy_client_show_token(sy_client *client, bool is_tcp, const sy_client_security *security)
{
    const char *file = security ? security->token_file : NULL;
    char token[TOKEN_BYTES] = "", *params, *answer = NULL;
    json_t *object;
    int status;

    if (is_tcp && !(security && security->token))
        file = or_environment(file, "SWITCHYARD_TOKEN_FILE");
    if (security && security->token)
        object = json_pack("{s:s}", "token", security->token);
    else if (file) {
        SY_TRY(read_token(file, token));
        object = json_pack("{s:s}", "token", token);
    } else {
        return SY_OK;
    }
    params = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (!params)
        return sy_error_set(SY_EARG, "the token is no UTF-8");
    status = sy_client_call(client, "auth", params, &answer);
    free(params);
    free(answer);
    return status;
}
