/* Shared memory of local clients: what the C client does with it, and requests that name memory which is not theirs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/client/switchyard.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_rpc.h"

#define ROW (4 * sizeof(float))

static sy_client *client_at(const char *address)
{
    sy_client *client;

    assert_int_equal(sy_client_connect(address, 10000, &client), SY_OK);
    return client;
}

static sy_client_region *region_of(sy_client *client, size_t bytes)
{
    sy_client_region *region;

    if (sy_client_region_create(client, bytes, &region) != SY_OK)
        fail_msg("%s", sy_client_error(client));
    return region;
}

/* The server notices that a connection has closed. */
static void wait_for_regions(int n)
{
    for (int i = 0; i < 1000 && fake_core_n_regions != n; i++)
        usleep(10000);
    assert_int_equal(fake_core_n_regions, n);
}

static void fill(float *x, int64_t rows, int from)
{
    for (int i = 0; i < 4 * rows; i++)
        x[i] = (float)(i + from);
}

/* Input and output in shared memory or not, in each of the four ways: the same numbers, and those that are shared are nowhere else. */
static void test_tensors_in_a_region(void **state)
{
    sy_client *client = client_at(fake_core_path);
    sy_client_region *region = region_of(client, 1 << 20);
    float *memory = sy_client_region_data(region), own[40];
    sy_client_result *result;

    (void)state;
    assert_int_equal(sy_client_region_bytes(region), 1 << 20);
    for (int way = 0; way < 4; way++) {
        float *x = way & 1 ? memory + 64 : own, *y = memory + 4096;
        sy_client_tensor input = {"x", "FP32", 2, {10, 4}, x, 10 * ROW};
        sy_client_place place = {"y", y, 12 * ROW};
        sy_client_options options = {
            .urgency_class = 1, .places = &place, .n_places = way & 2 ? 1 : 0};

        fill(x, 10, way);
        memset(y, 0xff, 12 * ROW);
        assert_int_equal(sy_client_infer_with(client, "double", &input, 1, &options, &result),
                         SY_OK);
        assert_int_equal(result->outputs[0].bytes, 10 * ROW);
        assert_int_equal(result->outputs[0].data == y, (way & 2) != 0);
        for (int i = 0; i < 40; i++)
            assert_true(((const float *)result->outputs[0].data)[i] == 2 * x[i]);
        sy_client_result_free(result);
    }
    sy_client_region_destroy(region);
    sy_client_close(client);
    wait_for_regions(0);
}

/* What is not wholly in a region, or not where a tensor may begin, is sent as bytes. */
static void test_tensors_beside_a_region(void **state)
{
    sy_client *client = client_at(fake_core_path);
    sy_client_region *region = region_of(client, 4096);
    char *memory = sy_client_region_data(region);
    sy_client_result *result;

    (void)state;
    for (int shift = 0; shift < 64; shift += 4) {
        sy_client_tensor input = {"x", "FP32", 2, {3, 4}, memory + shift, 3 * ROW};

        fill((float *)(memory + shift), 3, shift);
        assert_int_equal(sy_client_infer(client, "double", &input, 1, &result), SY_OK);
        assert_true(((const float *)result->outputs[0].data)[11] == 2 * (float)(11 + shift));
        sy_client_result_free(result);
    }
    sy_client_place place = {"y", memory + 4, 3 * ROW};
    sy_client_options options = {.places = &place, .n_places = 1};
    sy_client_tensor input = {"x", "FP32", 2, {3, 4}, memory, 3 * ROW};
    assert_int_equal(sy_client_infer_with(client, "double", &input, 1, &options, &result), SY_EARG);
    assert_non_null(strstr(sy_client_error(client), "not in a region of this client"));
    place.data = memory + 4096 - 64;
    place.bytes = 128;
    assert_int_equal(sy_client_infer_with(client, "double", &input, 1, &options, &result), SY_EARG);
    place.bytes = 16;
    assert_int_equal(sy_client_infer_with(client, "double", &input, 1, &options, &result), SY_EARG);
    assert_non_null(strstr(sy_client_error(client), "48 bytes; its place in shared memory has 16"));
    place.bytes = 64;
    assert_int_equal(sy_client_infer_with(client, "double", &input, 1, &options, &result), SY_OK);
    sy_client_result_free(result);
    place.bytes = 48;
    assert_int_equal(sy_client_infer_with(client, "cut", &input, 1, &options, &result),
                     SY_EUNSUPPORTED);
    assert_non_null(strstr(sy_client_error(client), "only a run knows"));
    sy_client_region_destroy(region);
    sy_client_close(client);
}

static void test_empty_batches(void **state)
{
    sy_client *client = client_at(fake_core_path);
    sy_client_region *region = region_of(client, 4096);
    char *memory = sy_client_region_data(region);
    sy_client_tensor input = {"x", "FP32", 2, {0, 4}, memory, 0};
    sy_client_place place = {"y", memory + 64, 64};
    sy_client_options options = {.places = &place, .n_places = 1};
    sy_client_result *result;

    (void)state;
    assert_int_equal(sy_client_infer_with(client, "double", &input, 1, &options, &result), SY_OK);
    assert_int_equal(result->outputs[0].shape[0], 0);
    assert_int_equal(result->outputs[0].bytes, 0);
    sy_client_result_free(result);
    sy_client_region_destroy(region);
    sy_client_close(client);
}

static void test_limits(void **state)
{
    sy_client *client = client_at(fake_core_path), *others[2];
    sy_client_region *regions[4], *all[2], *more;

    (void)state;
    assert_int_equal(sy_client_region_create(client, 0, &more), SY_EARG);
    assert_int_equal(sy_client_region_create(client, (8 << 20) + 1, &more), SY_ETOOBIG);
    assert_int_equal(sy_client_region_create(client, SIZE_MAX, &more), SY_EARG);
    for (int i = 0; i < 3; i++)
        regions[i] = region_of(client, 2 << 20);
    assert_int_equal(sy_client_region_create(client, 3 << 20, &more), SY_EBUSY);
    assert_non_null(strstr(sy_client_error(client), "of at most 8388608"));
    regions[3] = region_of(client, 4096);
    assert_int_equal(sy_client_region_create(client, 4096, &more), SY_EBUSY);
    assert_non_null(strstr(sy_client_error(client), "4 regions"));
    for (int i = 0; i < 2; i++) {
        others[i] = client_at(fake_core_path);
        all[i] = i == 0 ? region_of(others[i], 8 << 20) : NULL;
    }
    assert_int_equal(sy_client_region_create(others[1], 8 << 20, &more), SY_EBUSY);
    assert_non_null(strstr(sy_client_error(others[1]), "all clients together"));
    sy_client_region_destroy(regions[0]);
    more = region_of(others[1], 4 << 20);
    for (int i = 1; i < 4; i++)
        sy_client_region_destroy(regions[i]);
    sy_client_close(client);
    for (int i = 0; i < 2; i++)
        sy_client_close(others[i]);
    wait_for_regions(0);
    memset(sy_client_region_data(more), 1, 4 << 20); /* stays until it is destroyed */
    sy_client_region_destroy(more);
    sy_client_region_destroy(all[0]);
}

static void test_tcp_shares_nothing(void **state)
{
    sy_client *client = client_at(fake_core_tcp);
    sy_client_region *region;
    char *text;

    (void)state;
    assert_int_equal(sy_client_region_create(client, 4096, &region), SY_EUNSUPPORTED);
    assert_null(region);
    assert_non_null(strstr(sy_client_error(client), "Unix socket"));
    assert_int_equal(sy_client_call(client, "ping", NULL, &text), SY_OK);
    free(text);
    sy_client_close(client);
}

/* A client that does not take descriptors: the answer is one like others, and what it does next works. */
static void test_a_client_without_descriptors(void **state)
{
    sy_client *client = client_at(fake_core_path);
    char *text;

    (void)state;
    assert_int_equal(sy_client_call(client, "region_create", "{\"bytes\": 4096}", &text), SY_OK);
    assert_non_null(strstr(text, "\"bytes\":4096"));
    free(text);
    assert_int_equal(sy_client_call(client, "ping", NULL, &text), SY_OK);
    free(text);
    sy_client_close(client);
    wait_for_regions(0);
}

/* The region that the call makes, by its number. */
static int64_t region_number(sy_client *client)
{
    char *text, *at;

    assert_int_equal(sy_client_call(client, "region_create", "{\"bytes\": 4096}", &text), SY_OK);
    at = strstr(text, "\"region\":");
    assert_non_null(at);
    int64_t number = strtoll(at + 9, NULL, 10);
    free(text);
    return number;
}

/* `format` has one %lld for the region; as JSON, which has no bins: no request of these gets as far as its data. */
static void refused(sy_client *client, int64_t region, const char *format, const char *words)
{
    char *text = NULL, params[600], map[400];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(map, sizeof map, format, (long long)region);
#pragma GCC diagnostic pop
    snprintf(params, sizeof params, "{\"model\":\"double\",\"inputs\":[%s}", map);
    if (sy_client_call(client, "infer", params, &text) != SY_EARG)
        fail_msg("%s is not refused", params);
    if (!strstr(sy_client_error(client), words))
        fail_msg("\"%s\" is not in \"%s\"", words, sy_client_error(client));
    free(text);
}

#define X(rest) "{\"name\":\"x\",\"dtype\":\"FP32\",\"shape\":[2,4]," rest "}"
#define GOOD    X("\"region\":%lld,\"offset\":0,\"bytes\":32")

static void test_bad_places(void **state)
{
    static const struct {
        const char *format, *words;
    } bad[] = {
        {X("\"region\":%lld,\"offset\":8,\"bytes\":32") "]", "offset 8 is not a multiple of 64"},
        {X("\"region\":%lld,\"offset\":4096,\"bytes\":32") "]", "32 bytes at offset 4096 are not"},
        {X("\"region\":%lld,\"offset\":4096,\"bytes\":0") "]", "which has 4096"},
        {X("\"region\":%lld,\"offset\":4032,\"bytes\":65") "]", "65 bytes at offset 4032"},
        {X("\"region\":%lld,\"offset\":64,\"bytes\":9223372036854775807") "]", "not in region"},
        {X("\"region\":%lld,\"offset\":9223372036854775744,\"bytes\":64") "]", "not in region"},
        {X("\"region\":%lld,\"offset\":0,\"bytes\":28") "]", "28 bytes of data; its shape"},
        {X("\"region\":%lld,\"offset\":-64,\"bytes\":32") "]", "\"offset\" is missing or no whole"},
        {X("\"region\":%lld,\"bytes\":32") "]", "\"offset\" is missing"},
        {X("\"region\":%lld,\"offset\":0") "]", "\"bytes\" is missing"},
        {X("\"region\":\"%lld\",\"offset\":0,\"bytes\":32") "]", "\"region\" is missing or no"},
        {X("\"region\":%lld,\"offset\":0,\"bytes\":32,\"data\":\"\"") "]", "both"},
        {X("\"region\":77%lld,\"offset\":0,\"bytes\":32") "]", "this connection has no region 77"},
        {GOOD "],\"outputs\":7", "\"outputs\" is not an array"},
        {GOOD "],\"outputs\":[{\"name\":\"z\"}]", "no output \"z\"; it has y"},
        {GOOD "],\"outputs\":[{\"name\":\"y\"}]", "output \"y\": \"region\" is missing"},
        {GOOD "],\"outputs\":[{\"name\":\"y\",\"region\":99,\"offset\":0,\"bytes\":32}]",
         "no region 99"},
    };
    sy_client *client = client_at(fake_core_path);
    int64_t region = region_number(client);

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(client, region, bad[i].format, bad[i].words);
    sy_client_close(client);
    wait_for_regions(0);
}

static void test_outputs_overlap(void **state)
{
    sy_client *client = client_at(fake_core_path);
    sy_client_region *region = region_of(client, 4096);
    char *memory = sy_client_region_data(region);
    sy_client_tensor input = {"x", "FP32", 2, {8, 4}, memory + 64, 8 * ROW};
    sy_client_place places[2] = {{"y", memory + 128, 8 * ROW}, {"y", memory + 1024, 8 * ROW}};
    sy_client_options options = {.places = places, .n_places = 1};
    sy_client_result *result;

    (void)state;
    assert_int_equal(sy_client_infer_with(client, "double", &input, 1, &options, &result), SY_EARG);
    assert_non_null(strstr(sy_client_error(client), "output \"y\" overlaps input \"x\""));
    places[0].data = memory + 64 + 8 * ROW;
    assert_int_equal(sy_client_infer_with(client, "double", &input, 1, &options, &result), SY_OK);
    sy_client_result_free(result);
    options.n_places = 2;
    assert_int_equal(sy_client_infer_with(client, "double", &input, 1, &options, &result), SY_EARG);
    assert_non_null(strstr(sy_client_error(client), "two places"));
    sy_client_region_destroy(region);
    sy_client_close(client);
}

static void test_regions_of_others(void **state)
{
    sy_client *owner = client_at(fake_core_path), *thief = client_at(fake_core_path);
    int64_t region = region_number(owner);
    char params[60], *text;

    (void)state;
    refused(thief, region, GOOD "]", "this connection has no region");
    snprintf(params, sizeof params, "{\"region\": %lld}", (long long)region);
    assert_int_equal(sy_client_call(thief, "region_drop", params, &text), SY_ENOTFOUND);
    assert_int_equal(sy_client_call(owner, "region_drop", params, &text), SY_OK);
    free(text);
    assert_int_equal(sy_client_call(owner, "region_drop", params, &text), SY_ENOTFOUND);
    assert_int_equal(sy_client_call(owner, "region_drop", "{\"region\": -1}", &text), SY_EARG);
    assert_int_equal(sy_client_call(owner, "region_create", "{\"bytes\": -1}", &text), SY_EARG);
    assert_int_equal(sy_client_call(owner, "region_create", "{}", &text), SY_EARG);
    sy_client_close(owner);
    sy_client_close(thief);
}

/* ---- bytes on the socket ------------------------------------------------------------------------------------- */

/* One answer and the descriptor that came with it, or -1. */
static int receive(int socket, char *bytes, size_t *n)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct iovec part = {bytes, *n};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof control.space};
    ssize_t got = recvmsg(socket, &message, 0);
    int fd = -1;

    assert_true(got > 0);
    *n = (size_t)got;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header)
        return -1;
    assert_int_equal(header->cmsg_type, SCM_RIGHTS);
    assert_int_equal(header->cmsg_len, CMSG_LEN(sizeof fd));
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

static const char create_4096[] = "\x94\x00\x01\xadregion_create\x91\x81\xa5"
                                  "bytes\xcd\x10\x00";

/* Each answer's first byte carries its own descriptor, also when many are on their way; and no seal can be taken or added. */
static void test_a_descriptor_for_each_answer(void **state)
{
    static const char ping[] = "\x94\x00\x07\xa4ping\x90";
    char all[3 * sizeof create_4096 + sizeof ping], answer[200];
    size_t n = sizeof create_4096 - 1;
    int socket = fake_core_connect();

    (void)state;
    for (int i = 0; i < 3; i++)
        memcpy(all + (size_t)i * n, create_4096, n);
    memcpy(all + 3 * n, ping, sizeof ping - 1);
    assert_int_equal(send(socket, all, 3 * n + sizeof ping - 1, 0), 3 * n + sizeof ping - 1);
    for (int i = 0; i < 3; i++) {
        size_t got = sizeof answer;
        int fd = receive(socket, answer, &got);

        assert_true(fd >= 0);
        assert_memory_equal(answer, "\x94\x01\x01\xc0\x82", 5);
        assert_int_equal(lseek(fd, 0, SEEK_END), 4096);
        assert_int_equal(ftruncate(fd, 0), -1);
        assert_int_equal(ftruncate(fd, 1 << 20), -1);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
        close(fd);
    }
    size_t got = sizeof answer;
    assert_int_equal(receive(socket, answer, &got), -1);
    assert_memory_equal(answer, "\x94\x01\x07\xc0\xa4pong", 9);
    close(socket);
    wait_for_regions(0);
}

/* A notification is not answered: it makes nothing. */
static void test_a_notification_makes_no_region(void **state)
{
    static const char bytes[] = "\x93\x02\xadregion_create\x91\x81\xa5"
                                "bytes\xcd\x10\x00"
                                "\x94\x00\x07\xa4ping\x90";
    char answer[200];
    size_t got = sizeof answer;
    int socket = fake_core_connect();

    (void)state;
    assert_int_equal(send(socket, bytes, sizeof bytes - 1, 0), sizeof bytes - 1);
    assert_int_equal(receive(socket, answer, &got), -1);
    assert_int_equal(got, 9);
    assert_int_equal(fake_core_n_regions, 0);
    close(socket);
}

/* A region, then requests that stay at the core with tensors in it. */
static int hold_requests(int n_requests, int64_t *region)
{
    char request[] = "\x94\x00\x05\xa5infer\x91\x83\xa5model\xa4"
                     "held\xa6inputs\x91\x86\xa4name\xa1x\xa5"
                     "dtype\xa4"
                     "FP32\xa5shape\x92\x01\x04\xa6region\x01\xa6"
                     "offset\x00\xa5"
                     "bytes\x10\xa7outputs\x91\x84\xa4name\xa1y\xa6region\x01\xa6"
                     "offset\x40\xa5"
                     "bytes\x10";
    char answer[200];
    size_t got = sizeof answer;
    int socket = fake_core_connect();

    assert_int_equal(send(socket, create_4096, sizeof create_4096 - 1, 0), sizeof create_4096 - 1);
    close(receive(socket, answer, &got));
    char *at = memmem(answer, got, "\xa6region", 7);
    assert_non_null(at);
    *region = at[7];
    for (char *place = request;
         (place = memmem(place, (size_t)(request + sizeof request - place), "\xa6region", 7));
         place += 7)
        place[7] = at[7];
    for (int i = 0; i < n_requests; i++)
        assert_int_equal(send(socket, request, sizeof request - 1, 0), sizeof request - 1);
    for (int i = 0; i < 1000 && fake_core_n_held < n_requests; i++)
        usleep(10000);
    assert_int_equal(fake_core_n_held, n_requests);
    return socket;
}

static void test_lost_with_requests_in_flight(void **state)
{
    int64_t region;
    int socket = hold_requests(5, &region);

    (void)state;
    assert_int_equal(fake_core_n_regions, 1);
    close(socket);
    wait_for_regions(0);
    assert_int_equal(fake_core_n_held, 0);
}

/* What is dropped stays, and counts, for the requests that use it; no later one finds it. */
static void test_dropped_with_requests_in_flight(void **state)
{
    char drop[] = "\x94\x00\x06\xabregion_drop\x91\x81\xa6region\x00", answer[200];
    size_t got = sizeof answer;
    int64_t region;
    int socket = hold_requests(2, &region);

    (void)state;
    drop[sizeof drop - 2] = (char)region;
    for (int again = 0; again < 2; again++) {
        assert_int_equal(send(socket, drop, sizeof drop - 1, 0), sizeof drop - 1);
        got = sizeof answer;
        assert_int_equal(receive(socket, answer, &got), -1);
        assert_int_equal(memmem(answer, got, "ENOTFOUND", 9) != NULL, again);
    }
    assert_int_equal(fake_core_n_regions, 1);
    for (int i = 0; i < 4; i++) { /* of the four that it may have, one is in use */
        got = sizeof answer;
        assert_int_equal(send(socket, create_4096, sizeof create_4096 - 1, 0),
                         sizeof create_4096 - 1);
        int fd = receive(socket, answer, &got);
        assert_int_equal(fd >= 0, i < 3);
        if (fd >= 0)
            close(fd);
    }
    close(socket);
    wait_for_regions(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_in_a_region),
        cmocka_unit_test(test_tensors_beside_a_region),
        cmocka_unit_test(test_empty_batches),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_tcp_shares_nothing),
        cmocka_unit_test(test_a_client_without_descriptors),
        cmocka_unit_test(test_bad_places),
        cmocka_unit_test(test_outputs_overlap),
        cmocka_unit_test(test_regions_of_others),
        cmocka_unit_test(test_a_descriptor_for_each_answer),
        cmocka_unit_test(test_a_notification_makes_no_region),
        cmocka_unit_test(test_lost_with_requests_in_flight),
        cmocka_unit_test(test_dropped_with_requests_in_flight),
    };

    return cmocka_run_group_tests(tests, fake_core_start, fake_core_finish);
}
