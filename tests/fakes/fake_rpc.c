#include "tests/fakes/fake_rpc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/front/grpc/grpc_internal.h"
#include "runtime/front/request/offload.h"
#include "runtime/front/rpc/rpc_internal.h"
#include "tests/fakes/fake_core.h"

char fake_core_path[100], fake_core_tcp[40];
int fake_core_grpc_port;
static struct sy_front *front;
static struct sy_rpc_server *server;
static struct sy_grpc_server *grpc_server;

static void start_grpc(void)
{
    struct sy_grpc_config config = {.address = ":0",
                                    .limits = {.message_bytes = 4 << 20,
                                               .buffered_bytes = 8 << 20,
                                               .max_connections = FAKE_CORE_MOST_CLIENTS,
                                               .max_streams = 16,
                                               .max_outstanding = 4,
                                               .pings_per_s = 200,
                                               .header_ns = FAKE_CORE_STALL_NS,
                                               .stall_ns = FAKE_CORE_STALL_NS}};

    assert_int_equal(sy_offload_create(front->base, 1, 16, &front->offload), SY_OK);
    assert_int_equal(sy_grpc_server_create(&config, front, &grpc_server), SY_OK);
    fake_core_grpc_port = sy_grpc_server_port(grpc_server);
}

int fake_core_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {60, 0};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    strcpy(address.sun_path, fake_core_path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    return fd;
}

static void count_connections(void *ctx)
{
    *(int *)ctx = sy_grpc_server_connections(grpc_server);
}

int fake_core_grpc_connections(void)
{
    int n;

    fake_core_call(count_connections, &n);
    return n;
}

void fake_core_look(void)
{
    server->base.looks.was_late = false; /* however busy the machine was until now */
    grpc_server->base.looks.was_late = false;
    event_active(server->base.tick, EV_TIMEOUT, 0);
    event_active(grpc_server->base.tick, EV_TIMEOUT, 0);
}

int fake_core_start(void **state)
{
    struct sy_rpc_config config = {.socket_path = fake_core_path,
                                   .tcp_address = ":0",
                                   .limits = {.stall_ns = FAKE_CORE_STALL_NS,
                                              .message_bytes = 1 << 20,
                                              .max_connections = FAKE_CORE_MOST_CLIENTS,
                                              .region_bytes = 8 << 20,
                                              .all_region_bytes = 20 << 20,
                                              .max_regions = 4}};

    (void)state;
    front = fake_core_open();
    snprintf(fake_core_path, sizeof(fake_core_path), "/tmp/test_rpc_%d.sock", (int)getpid());
    assert_int_equal(sy_rpc_server_create(&config, front, &server), SY_OK);
    snprintf(fake_core_tcp, sizeof(fake_core_tcp), "tcp:127.0.0.1:%d", sy_rpc_server_port(server));
    start_grpc();
    fake_core_run();
    return 0;
}

int fake_core_finish(void **state)
{
    (void)state;
    fake_core_stop();
    sy_rpc_server_destroy(server);
    sy_offload_destroy(front->offload);
    front->offload = NULL;
    sy_grpc_server_destroy(grpc_server);
    assert_int_not_equal(access(fake_core_path, F_OK), 0);
    fake_core_close();
    return 0;
}
