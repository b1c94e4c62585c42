/* The token that a client shows before anything else. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/client/client_internal.h"

#define TOKEN_BYTES 300

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
        file = sy_client_setting(file, "SWITCHYARD_TOKEN_FILE");
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
        return sy_error_set(SY_EARG, "the token is not UTF-8");
    status = sy_client_call(client, "auth", params, &answer);
    free(params);
    free(answer);
    return status;
}
