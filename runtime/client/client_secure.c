/* A server on another machine: TLS. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/client/client_internal.h"
#include "runtime/net/tls.h"

const char *sy_client_setting(const char *value, const char *name)
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
    const char *ca = sy_client_setting(security ? security->tls_ca : NULL, "SWITCHYARD_TLS_CA");
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
