/* What the client's files share. */
#ifndef SY_RUNTIME_CLIENT_INTERNAL_H
#define SY_RUNTIME_CLIENT_INTERNAL_H

#include "runtime/switchyard.h"

/* Keeps the thread's error text for sy_client_error; gives `status`. */
int sy_client_fail(sy_client *client, int status);

#endif
