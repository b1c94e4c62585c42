/* Jobs that come from another server, against a fake core: files are made beside the loop, one that stalls goes, and what the end of the server keeps from
 * running has not succeeded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <dirent.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/client/switchyard.h"
#include "runtime/front/request/offload.h"
#include "runtime/front/rpc/rpc_server.h"
#include "tests/fakes/fake_core.h"
#include "tests/rigs/shell.h"

/* 1000 bytes, and none: a job that has not begun. */
#define RECEIVE(step, bytes)                                                                \
    "{\"state\": {\"format\": \"switchyard-job-1\", \"text\": \"{\\\"name\\\": \\\"a\\\", " \
    "\\\"snapshot\\\": {}}\", \"step\": " step ", \"total_steps\": 9, \"bytes\": " bytes    \
    ", \"xxh3\": "                                                                          \
    "\"0000000000000000\"}}"

static char folder[] = "/tmp/test_rpc_receive_XXXXXX", address[100];
static struct sy_core_handlers handlers;
static struct sy_front *front;
static struct sy_rpc_server *server;
static _Atomic int n_received;
static _Atomic bool is_open; /* the gate in front of the works of moves */

static int receive(void *core, const struct sy_core_parked *parked, uint64_t *out)
{
    (void)core;
    assert_non_null(strstr(parked->text, "/moved/a-"));
    *out = (uint64_t)++n_received;
    return SY_OK;
}

static void paths_of(json_t *job, void (*change)(json_t *, const char *, void *), void *ctx)
{
    (void)job, (void)change, (void)ctx;
}

static int start(void **state)
{
    struct sy_rpc_config config = {.socket_path = address,
                                   .limits = {.receive_ns = SY_NS_PER_S / 2}};

    (void)state;
    assert_non_null(mkdtemp(strcpy(folder, "/tmp/test_rpc_receive_XXXXXX")));
    snprintf(address, sizeof address, "%s/socket", folder);
    front = fake_core_open();
    handlers = *front->handlers;
    handlers.job_receive = receive;
    front->handlers = &handlers;
    front->state_folder = folder;
    front->job_paths = paths_of;
    n_received = 0;
    assert_int_equal(sy_offload_create(front->base, 1, 64, &front->moves), SY_OK);
    assert_int_equal(sy_rpc_server_create(&config, front, &server), SY_OK);
    fake_core_run();
    return 0;
}

static int finish(void **state)
{
    (void)state;
    fake_core_stop();
    sy_offload_destroy(front->moves);
    front->moves = NULL;
    sy_rpc_server_destroy(server);
    fake_core_close();
    return remove_tree(folder);
}

static sy_client *client(void)
{
    sy_client *out;

    assert_int_equal(sy_client_connect(address, 10000, &out), SY_OK);
    return out;
}

static int call(sy_client *on, const char *method, const char *params)
{
    char *text = NULL;
    int status = sy_client_call(on, method, params, &text);

    free(text);
    return status;
}

/* Folders of jobs that come. */
static int n_moved(void)
{
    char path[100];
    int n = 0;

    snprintf(path, sizeof path, "%s/moved", folder);
    DIR *entries = opendir(path);
    for (const struct dirent *entry; entries && (entry = readdir(entries));)
        n += *entry->d_name != '.';
    if (entries)
        closedir(entries);
    return n;
}

static void wait_for_moved(int wanted)
{
    for (int i = 0; i < 2000 && n_moved() != wanted; i++)
        usleep(5000);
    assert_int_equal(n_moved(), wanted);
}

static void one_that_stalls_goes(void **state)
{
    sy_client *c = client();

    (void)state;
    assert_int_equal(call(c, "job_receive", RECEIVE("3", "1000")), SY_OK);
    assert_int_equal(n_moved(), 1);
    wait_for_moved(0);
    assert_int_equal(call(c, "job_receive_end", "{}"), SY_EARG);
    assert_non_null(strstr(sy_client_error(c), "receives no job"));
    assert_int_equal(call(c, "job_receive", RECEIVE("3", "1000")),
                     SY_OK); /* the connection goes on */
    assert_int_equal(n_moved(), 1);
    sy_client_close(c);
    wait_for_moved(0);
    assert_int_equal(n_received, 0);
}

static void one_that_is_whole_stays(void **state)
{
    sy_client *c = client();

    (void)state;
    assert_int_equal(call(c, "job_receive", RECEIVE("0", "0")), SY_OK);
    assert_int_equal(call(c, "job_receive_end", "{}"), SY_OK);
    sy_client_close(c);
    assert_int_equal(n_received, 1);
    assert_int_equal(n_moved(), 1);
}

static void wait_at_gate(void *ctx)
{
    (void)ctx;
    while (!is_open && !*sy_offload_stops(front->moves))
        usleep(1000);
}

static void nothing(void *ctx)
{
    (void)ctx;
}

static void close_gate(void)
{
    is_open = false;
    assert_int_equal(sy_offload_run(front->moves, wait_at_gate, nothing, NULL), SY_OK);
}

struct later {
    sy_client *client;
    const char *method, *params;
    int status;
    pthread_t thread;
};

static void *call_later(void *ctx)
{
    struct later *l = ctx;

    l->status = call(l->client, l->method, l->params);
    return NULL;
}

/* While files of one wait for the disk, others are answered. */
static void the_loop_goes_on(void **state)
{
    struct later l = {.client = client(), .method = "job_receive", .params = RECEIVE("0", "0")};
    sy_client *other = client();

    (void)state;
    close_gate();
    assert_int_equal(pthread_create(&l.thread, NULL, call_later, &l), 0);
    usleep(50000);
    for (int i = 0; i < 20; i++)
        assert_int_equal(call(other, "ping", NULL), SY_OK);
    assert_int_equal(n_moved(), 0);
    usleep(700000); /* nor does it stall meanwhile */
    is_open = true;
    pthread_join(l.thread, NULL);
    assert_int_equal(l.status, SY_OK);
    assert_int_equal(n_moved(), 1);
    sy_client_close(l.client);
    sy_client_close(other);
    wait_for_moved(0);
}

/* The end of the server, while the end of a job waits: the core does not get it. */
static void what_did_not_run_is_not_taken(void **state)
{
    struct later l = {.client = client(), .method = "job_receive_end", .params = "{}"};

    (void)state;
    assert_int_equal(call(l.client, "job_receive", RECEIVE("0", "0")), SY_OK);
    close_gate();
    assert_int_equal(pthread_create(&l.thread, NULL, call_later, &l), 0);
    usleep(100000);
    finish(NULL);
    pthread_join(l.thread, NULL);
    assert_true(l.status < 0);
    assert_int_equal(n_received, 0);
    sy_client_close(l.client);
    start(NULL); /* for the teardown */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_that_stalls_goes, start, finish),
        cmocka_unit_test_setup_teardown(one_that_is_whole_stays, start, finish),
        cmocka_unit_test_setup_teardown(the_loop_goes_on, start, finish),
        cmocka_unit_test_setup_teardown(what_did_not_run_is_not_taken, start, finish),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
