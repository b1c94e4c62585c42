/* A job's state as a file: what was packed is unpacked, any flipped bit and any cut is refused, and so is a header whose hash fits and whose words do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/move/job_state.h"

static char text[] = "{\"name\": \"a-1\", \"snapshot\": {\"folder\": \"s\"}}";
static const unsigned char snapshot[] = "not looked into here";

static struct sy_job_state state_of(void)
{
    return (struct sy_job_state){.text = text,
                                 .step = 7,
                                 .total_steps = 90,
                                 .bytes = sizeof snapshot,
                                 .xxh3 = XXH3_64bits(snapshot, sizeof snapshot),
                                 .has_priority = true,
                                 .priority = -3};
}

static void pack_and_unpack(void **unused)
{
    (void)unused;
    const struct sy_job_state in = state_of();
    struct sy_job_state out;
    unsigned char *bytes;
    size_t n;
    assert_int_equal(sy_job_state_pack(&in, &bytes, &n), SY_OK);
    assert_int_equal(sy_job_state_unpack(bytes, n, &out), SY_OK);
    assert_string_equal(out.text, text);
    assert_string_equal(out.name, "a-1");
    assert_int_equal(out.step, 7);
    assert_int_equal(out.total_steps, 90);
    assert_int_equal(out.bytes, sizeof snapshot);
    assert_int_equal(out.xxh3, in.xxh3);
    assert_true(out.has_priority && out.priority == -3);
    sy_job_state_finish(&out);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_true(sy_job_state_unpack(bytes, n, &out) < 0);
        assert_null(out.text);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(sy_job_state_unpack(bytes, cut, &out), SY_ECORRUPT);
    free(bytes);
}

/* The JSON under its right hash: 0, or the error. */
static int unpack_json(const char *json)
{
    unsigned char bytes[4096] = {'S', 'Y', 'J', 'O', 'B', 0, 0, 1};
    uint64_t n = strlen(json), hash = XXH3_64bits(json, n);
    struct sy_job_state out;
    memcpy(bytes + 8, &n, sizeof n);
    memcpy(bytes + 16, &hash, sizeof hash);
    memcpy(bytes + SY_JOB_STATE_PREFIX_BYTES, json, n);
    int status = sy_job_state_unpack(bytes, SY_JOB_STATE_PREFIX_BYTES + n, &out);
    sy_job_state_finish(&out);
    return status;
}

#define HEAD "{\"format\":\"switchyard-job-1\",\"xxh3\":\"0123456789abcdef\",\"total_steps\":9,"
#define REST "\"step\":1,\"bytes\":5,"

static void words_are_checked(void **unused)
{
    (void)unused;
    assert_int_equal(unpack_json(HEAD REST "\"text\":\"{\\\"name\\\":\\\"a\\\"}\"}"), SY_OK);
    static const struct {
        const char *json;
        int status;
    } cases[] = {
        {"[]", SY_EARG},
        {"{}", SY_EUNSUPPORTED},
        {"{\"format\":\"switchyard-job-2\"}", SY_EUNSUPPORTED},
        {HEAD REST "\"text\":7}", SY_EARG},
        {HEAD REST "\"text\":\"[]\"}", SY_EARG},
        {HEAD REST "\"text\":\"{\"}", SY_EARG},
        {HEAD REST "\"text\":\"{}\"}", SY_EARG},
        {HEAD REST "\"text\":\"{\\\"name\\\":\\\"../a\\\"}\"}", SY_EARG},
        {HEAD REST "\"text\":\"{\\\"name\\\":\\\".a\\\"}\"}", SY_EARG},
        {HEAD REST "\"text\":\"{\\\"name\\\":\\\"\\\"}\"}", SY_EARG},
        {HEAD REST "\"priority\":1001,\"text\":\"{\\\"name\\\":\\\"a\\\"}\"}", SY_EARG},
        {HEAD "\"step\":-1,\"bytes\":5,\"text\":\"{\\\"name\\\":\\\"a\\\"}\"}", SY_EARG},
        {HEAD "\"step\":1.5,\"bytes\":5,\"text\":\"{\\\"name\\\":\\\"a\\\"}\"}", SY_EARG},
        {HEAD "\"step\":1,\"bytes\":0,\"text\":\"{\\\"name\\\":\\\"a\\\"}\"}", SY_EARG},
        {HEAD "\"step\":1,\"bytes\":1099511627777,\"text\":\"{\\\"name\\\":\\\"a\\\"}\"}",
         SY_ETOOBIG},
        {HEAD REST "\"step\":2,\"text\":\"{\\\"name\\\":\\\"a\\\"}\"}", SY_ECORRUPT}, /* twice */
        {"{\"format\":\"switchyard-job-1\"," REST "\"xxh3\":\"0123456789ABCDEF\"}", SY_EARG},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (unpack_json(cases[i].json) != cases[i].status)
            fail_msg("%s: %s", cases[i].json, sy_error_text());
}

static int open_bytes(const unsigned char *bytes, size_t n)
{
    char path[] = "/tmp/job-state-XXXXXX";
    struct sy_job_state out;
    uint64_t at = 0;
    int file = mkstemp(path), fd = -1;
    assert_int_equal(write(file, bytes, n), n);
    close(file);
    int status = sy_job_state_open(path, &out, &fd, &at);
    if (status == SY_OK) {
        unsigned char found[sizeof snapshot];
        assert_int_equal(pread(fd, found, sizeof found, (off_t)at), sizeof found);
        assert_memory_equal(found, snapshot, sizeof snapshot);
        close(fd);
        sy_job_state_finish(&out);
    }
    unlink(path);
    return status;
}

static void files_are_checked(void **unused)
{
    (void)unused;
    const struct sy_job_state in = state_of();
    struct sy_job_state out;
    unsigned char *head, whole[4096];
    size_t n;
    uint64_t at;
    int fd;
    assert_int_equal(sy_job_state_pack(&in, &head, &n), SY_OK);
    memcpy(whole, head, n);
    memcpy(whole + n, snapshot, sizeof snapshot);
    n += sizeof snapshot;
    free(head);
    assert_int_equal(open_bytes(whole, n), SY_OK);
    assert_int_equal(open_bytes(whole, n - 1), SY_ECORRUPT);
    assert_int_equal(open_bytes(whole, n + 1), SY_ECORRUPT);
    assert_int_equal(open_bytes(whole, 0), SY_ECORRUPT);
    whole[n - 1] ^= 4;
    assert_int_equal(open_bytes(whole, n), SY_ECORRUPT);
    assert_int_equal(sy_job_state_open("/nowhere", &out, &fd, &at), SY_ENOTFOUND);
    assert_int_equal(sy_job_state_open("/tmp", &out, &fd, &at), SY_EARG);
    assert_int_equal(sy_job_state_open("/dev/zero", &out, &fd, &at), SY_EARG);
}

/* A long file is not read to its end for a server that ends. */
static void hashing_stops(void **unused)
{
    (void)unused;
    char path[] = "/tmp/job-state-XXXXXX";
    _Atomic bool stop = false;
    uint64_t hash = 0;
    int file = mkstemp(path);
    assert_int_equal(write(file, snapshot, sizeof snapshot), sizeof snapshot);
    assert_int_equal(sy_job_state_hash(file, path, 0, sizeof snapshot, &stop, &hash), SY_OK);
    assert_int_equal(hash, XXH3_64bits(snapshot, sizeof snapshot));
    stop = true;
    assert_int_equal(sy_job_state_hash(file, path, 0, sizeof snapshot, &stop, &hash), SY_ECANCELED);
    assert_non_null(strstr(sy_error_text(), path));
    close(file);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pack_and_unpack), cmocka_unit_test(words_are_checked),
        cmocka_unit_test(files_are_checked), cmocka_unit_test(hashing_stops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
