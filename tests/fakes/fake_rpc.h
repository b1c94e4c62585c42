/* An RPC server and a gRPC server on the fake core (fake_core.h), in the fake core's thread. */
#ifndef SY_TESTS_FAKES_FAKE_RPC_H
#define SY_TESTS_FAKES_FAKE_RPC_H

#include "runtime/base/clock.h"

#define FAKE_CORE_MOST_CLIENTS 32
#define FAKE_CORE_STALL_NS \
    (60 *                  \
     SY_NS_PER_S) /* as long may a client's message or answer stand; tests skip it (skip_clock.h) */

extern char fake_core_path[100], fake_core_tcp[40]; /* where RPC is answered */
extern int fake_core_grpc_port;                     /* and gRPC */

/* A socket connected to fake_core_path, whose reads end after a minute. Fails the test otherwise. */
int fake_core_connect(void);
int fake_core_grpc_connections(void);
/* Inside of fake_core_call: both servers look for stalled clients next, before they read anything. */
void fake_core_look(void);

/* cmocka's setup and teardown: afterwards nothing is left, whatever the clients did. */
int fake_core_start(void **state);
int fake_core_finish(void **state);

#endif
