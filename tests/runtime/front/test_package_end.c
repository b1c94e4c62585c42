/* A server that ends while a download waits for a thread: the client gets no byte that nobody has read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <event2/event.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/package/package.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

#include "runtime/front/http/http_internal.h"
#include "runtime/front/http/http_protocol.h"
#include "runtime/front/request/offload.h"
#include "tests/fakes/fake_http.h"

#define PACKAGE_BYTES (1u << 20)

static struct sy_package package = {.name = "m"};
static struct sy_core_model_ref model = {.package = &package, .name = "m", .version = 1};
static int n_refs;
static atomic_bool is_busy;

static int acquire(void *core, const char *name, int64_t version, struct sy_core_model_ref **out)
{
    (void)core, (void)name, (void)version;
    n_refs++;
    *out = &model;
    return SY_OK;
}

static void release(void *core, struct sy_core_model_ref *ref)
{
    (void)core, (void)ref;
    n_refs--;
}

static void be_busy(void *offload)
{
    atomic_store(&is_busy, true);
    while (!atomic_load(sy_offload_stops(offload)))
        usleep(1000);
}

static void nothing(void *ctx)
{
    (void)ctx;
}

static void test_no_byte_that_nobody_read(void **state)
{
    static const struct sy_core_handlers handlers = {.model_acquire = acquire,
                                                     .model_release = release};
    static const char ask[] = "GET /v2/models/m/package HTTP/1.1\r\nHost: x\r\n\r\n";
    static struct sy_front front = {.handlers = &handlers, .is_ready = true};
    const struct sy_http_config config = {.address = "127.0.0.1:0"};
    struct sy_http_server *server;
    char got[8192];
    size_t had = 0;
    ssize_t n;
    (void)state;
    front.base = event_base_new();
    package.fd = memfd_create("package", MFD_CLOEXEC);
    assert_int_equal(ftruncate(package.fd, PACKAGE_BYTES), 0);
    assert_int_equal(sy_offload_create(front.base, 1, 4, &front.offload), SY_OK);
    assert_int_equal(sy_offload_run(front.offload, be_busy, nothing, front.offload), SY_OK);
    while (!atomic_load(&is_busy))
        usleep(1000);
    assert_int_equal(sy_http_server_create(&config, &front, &server), SY_OK);
    assert_int_equal(sy_http_protocol_add(server, &front), SY_OK);
    int fd = http_connect(sy_http_server_port(server));
    assert_int_equal(write(fd, ask, sizeof ask - 1), sizeof ask - 1);
    while (server->n_packages == 0)
        event_base_loop(front.base, EVLOOP_ONCE);

    sy_offload_destroy(front.offload);
    front.offload = NULL;
    sy_http_server_destroy(server);
    assert_int_equal(n_refs, 0);
    while (had < sizeof got - 1 && (n = read(fd, got + had, sizeof got - 1 - had)) > 0)
        had += (size_t)n;
    got[had] = '\0';
    const char *body = strstr(got, "\r\n\r\n");
    assert_non_null(body);
    assert_non_null(strstr(got, "200 OK"));
    assert_int_equal(body + 4 - got, had);
    close(fd);
    close(package.fd);
    event_base_free(front.base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_byte_that_nobody_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
