/* A script's job against a 'switchyard run' that this test plays: what it is refused for, and how it ends when nobody ends it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "runtime/wire/control_page.h"
#include "runtime/wire/messages.h"
#include "workers/process/worker_internal.h"
#include "workers/process/worker_script.h"
#include "workers/torch/script_job.h"
#include "workers/torch/script_link.h"
#include "workers/torch/script_page.h"

#define KILL_AFTER_S 1
#define FAREWELL_S   3
#define GRACE_MS     60000 /* nothing is stopped by time here */

struct run {
    char folder[64], socket[96];
    int listener, link, page_file;
    struct sy_script_page *page;
    pthread_t thread;
};

static void *greet(void *arg)
{
    struct run *r = arg;
    struct pollfd p = {.fd = r->listener, .events = POLLIN};
    (void)poll(&p, 1, 10000); /* accepting does not block */
    r->link = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
    if (r->link >= 0)
        (void)sy_script_send(r->link, SY_SCRIPT_HELLO, SY_SCRIPT_LINK_VERSION, r->page_file);
    return NULL;
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Its greeter waits for a connection; join it once one was made. */
static void open_run(struct run *r, int seals, char *text, size_t bytes)
{
    snprintf(r->folder, sizeof r->folder, "/tmp/switchyard-script-XXXXXX");
    assert_non_null(mkdtemp(r->folder));
    snprintf(r->socket, sizeof r->socket, "%s/socket", r->folder);
    r->page_file = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(r->page_file, SY_SCRIPT_PAGE_BYTES), 0);
    r->page = mmap(NULL, SY_SCRIPT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, r->page_file, 0);
    assert_true(r->page != MAP_FAILED);
    r->page->magic = SY_SCRIPT_MAGIC;
    if (seals)
        assert_int_equal(fcntl(r->page_file, F_ADD_SEALS, seals), 0);
    assert_int_equal(sy_script_listen(r->socket, &r->listener), SY_OK);
    assert_int_equal(pthread_create(&r->thread, NULL, greet, r), 0);
    snprintf(text, bytes,
             "{\"script\": {\"socket\": \"%s\", \"kill_after_s\": %d, \"grace_ms\": "
             "%d}}",
             r->socket, KILL_AFTER_S, GRACE_MS);
}

static int make_job(struct run *r, int seals, struct sy_script_job **out)
{
    char text[256];
    open_run(r, seals, text, sizeof text);
    int status = sy_script_job_create(text, connect_to(r->socket), out);
    pthread_join(r->thread, NULL);
    return status;
}

static void close_run(struct run *r)
{
    munmap(r->page, SY_SCRIPT_PAGE_BYTES);
    close(r->page_file);
    close(r->listener);
    if (r->link >= 0)
        close(r->link);
    unlink(r->socket);
    rmdir(r->folder);
}

static void test_a_page_that_could_shrink_is_refused(void **state)
{
    struct run r;
    struct sy_script_job *job = NULL;
    (void)state;
    assert_int_equal(make_job(&r, 0, &job), SY_EPROTO);
    assert_non_null(strstr(sy_error_text(), "not sealed"));
    assert_null(job);
    close_run(&r);
    assert_int_equal(make_job(&r, F_SEAL_GROW, &job), SY_EPROTO);
    close_run(&r);
    assert_int_equal(make_job(&r, F_SEAL_SHRINK, &job), SY_OK);
    sy_script_job_destroy(job);
    close_run(&r);
}

static void test_one_that_is_not_there_is_named(void **state)
{
    struct sy_script_job *job = NULL;
    (void)state;
    assert_int_equal(sy_script_job_create("{\"script\": {\"socket\": \"/tmp/gone\"}}", -1, &job),
                     SY_ENOTFOUND);
    assert_non_null(strstr(sy_error_text(), "/tmp/gone"));
    assert_null(job);
}

/* G3: the gate is closed and no operator computes, but what they launched on an accelerator does. */
static void test_it_stands_still_once_its_accelerator_does(void **state)
{
    struct run r;
    struct sy_script_job *job = NULL;
    (void)state;
    assert_int_equal(make_job(&r, F_SEAL_SHRINK, &job), SY_OK);
    assert_int_equal(sy_script_job_look(job, SY_NS_PER_MS), SY_SCRIPT_STILL); /* it uses none */
    sy_script_job_open(job);
    atomic_store(&r.page->device, 1);
    atomic_store(&r.page->drained, atomic_load(&r.page->gate) - 1); /* an earlier pause's */
    sy_script_job_close(job);
    assert_int_equal(sy_script_job_look(job, SY_NS_PER_MS), SY_SCRIPT_RUNNING);
    atomic_store(&r.page->busy, 1);
    atomic_store(&r.page->drained, atomic_load(&r.page->gate));
    assert_int_equal(sy_script_job_look(job, 0), SY_SCRIPT_RUNNING);
    atomic_store(&r.page->busy, 0);
    assert_int_equal(sy_script_job_look(job, 0), SY_SCRIPT_STILL);
    sy_script_job_destroy(job);
    close_run(&r);
}

/* G4 */
static void test_its_tensors_go_out_and_come_back(void **state)
{
    struct run r;
    struct sy_script_job *job = NULL;
    (void)state;
    assert_int_equal(make_job(&r, F_SEAL_SHRINK, &job), SY_OK);
    assert_int_equal(sy_script_job_spill(job), SY_EUNSUPPORTED); /* nobody there who could */
    assert_int_equal(atomic_load(&r.page->spill_want), 0);
    atomic_store(&r.page->spill_state, SY_SCRIPT_SPILL_IN);
    assert_int_equal(sy_script_job_spill(job), SY_OK);
    assert_int_equal(atomic_load(&r.page->spill_want), 1);
    assert_int_equal(sy_script_job_place(job), SY_SCRIPT_MOVING);
    atomic_store(&r.page->spill_state, SY_SCRIPT_SPILL_OUT);
    assert_int_equal(sy_script_job_place(job), SY_SCRIPT_OUT);
    sy_script_job_open(job);
    assert_int_equal(atomic_load(&r.page->spill_want), 0);
    assert_int_equal(sy_script_job_place(job), SY_SCRIPT_MOVING);
    atomic_store(&r.page->spill_state, SY_SCRIPT_SPILL_IN);
    assert_int_equal(sy_script_job_place(job), SY_SCRIPT_IN);
    sy_script_job_destroy(job);
    close_run(&r);
}

static void test_a_spill_that_fails_says_why(void **state)
{
    struct run r;
    struct sy_script_job *job = NULL;
    (void)state;
    assert_int_equal(make_job(&r, F_SEAL_SHRINK, &job), SY_OK);
    atomic_store(&r.page->spill_state, SY_SCRIPT_SPILL_IN);
    assert_int_equal(sy_script_job_spill(job), SY_OK);
    atomic_store(&r.page->spill_errno, ENOSPC);
    atomic_store(&r.page->spill_state, SY_SCRIPT_SPILL_FAILED);
    assert_int_equal(sy_script_job_place(job), SY_SCRIPT_FAILED);
    assert_non_null(strstr(sy_error_text(), strerror(ENOSPC)));
    sy_script_job_unspill(job);
    assert_int_equal(atomic_load(&r.page->spill_want), 0);
    assert_int_equal(sy_script_job_place(job), SY_SCRIPT_IN); /* nobody may be left who says so */
    sy_script_job_destroy(job);
    close_run(&r);
}

/* ---- its worker ------------------------------------------------------------------------------- */

#define JOB 7

struct rig {
    struct run run;
    struct sy_worker worker;
    int runtime; /* the other end of the worker's control socket */
};

/* What the worker says next. *bytes: of JOB_SPILLED. The status that it says, if any. */
static int hear(struct rig *g, int wanted, uint64_t *bytes)
{
    struct sy_message message;
    int status = SY_OK, n_fds = 0, fds[SY_MESSAGE_MAX_FDS];
    const struct timeval patience = {.tv_sec = 20};
    setsockopt(g->runtime, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(sy_message_receive(g->runtime, SY_TO_RUNTIME, &message, fds, &n_fds), SY_OK);
    assert_int_equal(message.id, wanted);
    if (wanted == SY_MSG_JOB_SPILLED) {
        status = (int)message.job_spilled.status;
        *bytes = message.job_spilled.bytes;
    }
    sy_message_finish(&message);
    return status;
}

/* The job has started, and its tensors may be spilled. */
static void open_rig(struct rig *g)
{
    static struct sy_control_page control;
    struct sy_device_spec spec;
    char text[256];
    int pair[2];
    memset(&control, 0, sizeof control);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    *g = (struct rig){.worker = {.fd = pair[0], .page = &control}, .runtime = pair[1]};
    assert_int_equal(sy_device_spec_parse("host", &spec), SY_OK);
    assert_int_equal(sy_device_open(&spec, &g->worker.device), SY_OK);
    open_run(&g->run, F_SEAL_SHRINK, text, sizeof text);
    atomic_store(&g->run.page->spill_state, SY_SCRIPT_SPILL_IN);
    int link = connect_to(g->run.socket);
    struct sy_msg_job_prepare prepare = {.job = JOB, .text = text};
    assert_int_equal(sy_worker_script_prepare(&g->worker, &prepare, &link), SY_OK);
    pthread_join(g->run.thread, NULL);
    hear(g, SY_MSG_JOB_PREPARED, NULL);
    struct sy_msg_job_start start = {.job = JOB};
    assert_int_equal(sy_worker_script_start(&g->worker, &start), SY_OK);
    hear(g, SY_MSG_JOB_STARTED, NULL);
}

static void close_rig(struct rig *g)
{
    sy_worker_script_forget(&g->worker);
    sy_device_close(g->worker.device);
    close_run(&g->run);
    close(g->worker.fd);
    close(g->runtime);
}

/* The process that was asked ends, and another one of the script's starts: it writes 0 to spill_want, and has nothing in a file. */
static void test_a_new_process_has_spilled_nothing(void **state)
{
    const uint32_t states[] = {SY_SCRIPT_SPILL_NONE, SY_SCRIPT_SPILL_IN};
    (void)state;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        struct rig g;
        uint64_t bytes = 1;
        struct sy_msg_job_spill spill = {.job = JOB};
        open_rig(&g);
        atomic_store(&g.run.page->spilled_bytes, 4096); /* of an earlier spill */
        assert_int_equal(sy_worker_script_spill(&g.worker, &spill), SY_OK);
        atomic_store(&g.run.page->spill_want, 0);
        atomic_store(&g.run.page->spill_state, states[i]);
        assert_int_equal(sy_worker_script_advance(&g.worker), SY_OK);
        assert_true(hear(&g, SY_MSG_JOB_SPILLED, &bytes) < 0);
        assert_int_equal(bytes, 0);
        close_rig(&g);
    }
}

static void test_what_was_spilled_is_said(void **state)
{
    struct rig g;
    uint64_t bytes = 0;
    struct sy_msg_job_spill spill = {.job = JOB};
    (void)state;
    open_rig(&g);
    assert_int_equal(sy_worker_script_spill(&g.worker, &spill), SY_OK);
    atomic_store(&g.run.page->spilled_bytes, 4096);
    atomic_store(&g.run.page->spill_state, SY_SCRIPT_SPILL_OUT);
    assert_int_equal(sy_worker_script_advance(&g.worker), SY_OK);
    assert_int_equal(hear(&g, SY_MSG_JOB_SPILLED, &bytes), SY_OK);
    assert_int_equal(bytes, 4096);
    close_rig(&g);
}

/* ---- its end ---------------------------------------------------------------------------------- */

/* As one that is stopped with Ctrl-Z: the socket takes the words, nobody reads them. */
static void test_a_cancel_that_nobody_hears_ends(void **state)
{
    struct run r;
    struct sy_script_job *job = NULL;
    struct sy_script_packet packet;
    int file;
    (void)state;
    assert_int_equal(make_job(&r, F_SEAL_SHRINK, &job), SY_OK);
    sy_ns end = sy_clock_now() + 60 * SY_NS_PER_S, began = sy_clock_now();
    sy_script_job_terminate(job);
    sy_script_job_terminate(job); /* asked for twice: no second time */
    while (sy_script_job_look(job, SY_NS_PER_MS) != SY_SCRIPT_OVER && sy_clock_now() < end)
        ;
    assert_true(sy_clock_now() - began >= (KILL_AFTER_S + FAREWELL_S) * SY_NS_PER_S);
    assert_true(sy_clock_now() < end);
    assert_true(sy_script_job_is_given_up(job));
    assert_int_equal(sy_script_job_result(job), SY_EPEER);
    assert_non_null(strstr(sy_error_text(), "within 4 s"));
    assert_non_null(strstr(sy_error_text(), "stopped (Ctrl-Z)"));
    sy_script_job_destroy(job);
    /* It hears so when it goes on. */
    assert_int_equal(sy_script_receive(r.link, 1000, &packet, &file), 1);
    assert_int_equal(packet.word, SY_SCRIPT_CONTINUE); /* an earlier worker may have stopped it */
    assert_int_equal(sy_script_receive(r.link, 1000, &packet, &file), 1);
    assert_int_equal(packet.word, SY_SCRIPT_TERMINATE);
    close_run(&r);
}

static void test_a_cancel_that_is_heard_is_none_of_these(void **state)
{
    struct run r;
    struct sy_script_job *job = NULL;
    (void)state;
    assert_int_equal(make_job(&r, F_SEAL_SHRINK, &job), SY_OK);
    sy_script_job_terminate(job);
    assert_int_equal(sy_script_job_look(job, 0), SY_SCRIPT_RUNNING);
    assert_int_equal(sy_script_send(r.link, SY_SCRIPT_ENDED, 0, -1), SY_OK);
    assert_int_equal(sy_script_job_look(job, SY_NS_PER_S), SY_SCRIPT_OVER);
    assert_false(sy_script_job_is_given_up(job));
    assert_int_equal(sy_script_job_result(job), SY_OK);
    sy_script_job_destroy(job);
    close_run(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_page_that_could_shrink_is_refused),
        cmocka_unit_test(test_one_that_is_not_there_is_named),
        cmocka_unit_test(test_it_stands_still_once_its_accelerator_does),
        cmocka_unit_test(test_its_tensors_go_out_and_come_back),
        cmocka_unit_test(test_a_spill_that_fails_says_why),
        cmocka_unit_test(test_a_new_process_has_spilled_nothing),
        cmocka_unit_test(test_what_was_spilled_is_said),
        cmocka_unit_test(test_a_cancel_that_nobody_hears_ends),
        cmocka_unit_test(test_a_cancel_that_is_heard_is_none_of_these),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
