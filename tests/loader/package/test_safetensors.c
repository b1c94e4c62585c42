/* safetensors: what is written reads back, files made by hand are read as the format says, hostile headers are refused by name. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/package/safetensors.h"
#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/rigs/seed.h"

static char folder[] = "/tmp/sy-safetensors-XXXXXX";
static char path[64];
static uint64_t random_state;

static uint64_t draw(uint64_t n)
{
    return seed_below(&random_state, n);
}

static int start(void **state)
{
    (void)state;
    random_state = seed_of_run(20260101);
    signal(SIGXFSZ, SIG_IGN);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/t.safetensors", folder);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    unlink(path);
    assert_int_equal(rmdir(folder), 0); /* no temporary file was left */
    return 0;
}

/* A file by hand: the length as given (0: the right one), header, data. */
static void put_file(uint64_t length, const char *header, size_t header_bytes, const void *data,
                     size_t data_bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    if (length == 0)
        length = header_bytes;
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> 8 * i & 0xff), file);
    assert_int_equal(fwrite(header, 1, header_bytes, file), header_bytes);
    assert_int_equal(fwrite(data, 1, data_bytes, file), data_bytes);
    assert_int_equal(fclose(file), 0);
}

static void expect_refused(int status, const char *words)
{
    struct sy_safetensors *file = NULL;
    int got = sy_safetensors_open(path, &file);
    if (got != status || !strstr(sy_error_text(), path) || !strstr(sy_error_text(), words))
        fail_msg("got %s \"%s\", expected %s with \"%s\"", sy_status_name(got),
                 got < 0 ? sy_error_text() : "", sy_status_name(status), words);
    assert_null(file);
}

/* ---- the format ------------------------------------------------------------------------------------------------- */

/* Byte for byte what the format says, with nothing of ours. */
static void test_written_bytes(void **state)
{
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"a\":\"b\"},\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":"
        "[0,8]},\"y\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[8,9]}}";
    const struct sy_safetensor tensors[] = {
        {.name = "x", .dtype = SY_DTYPE_F32, .rank = 1, .shape = {2}, .bytes = 8},
        {.name = "y", .dtype = SY_DTYPE_U8, .offset_bytes = 8, .bytes = 1},
    };
    unsigned char bytes[512];
    assert_int_equal(sy_safetensors_write(path, tensors, 2, &(struct sy_safetensors_text){"a", "b"},
                                          1, "12345678z", 9),
                     SY_OK);
    FILE *file = fopen(path, "rb");
    size_t n = fread(bytes, 1, sizeof bytes, file), length = sizeof header - 1;
    fclose(file);
    size_t padded = (length + 7) / 8 * 8;
    assert_int_equal(n, 8 + padded + 9);
    assert_int_equal(bytes[0], padded);
    assert_int_equal(bytes[1] | bytes[2] | bytes[3] | bytes[4] | bytes[5] | bytes[6] | bytes[7], 0);
    assert_memory_equal(bytes + 8, header, length);
    for (size_t i = length; i < padded; i++)
        assert_int_equal(bytes[8 + i], ' ');
    assert_memory_equal(bytes + 8 + padded, "12345678z", 9);
}

/* Tensors in another order than their data, empty ones, spaces and line ends, an escape in a name, no metadata. */
static void test_reads_a_file_by_hand(void **state)
{
    (void)state;
    static const char header[] =
        "{ \"b\\u00e9\" : {\"shape\": [1, 2],\n \"data_offsets\": [4, 8], \"dtype\": \"F16\"},\r\n"
        "\"empty\": {\"dtype\": \"I64\", \"shape\": [3, 0], \"data_offsets\": [4, 4]},"
        "\"a\": {\"dtype\": \"I32\", \"shape\": [], \"data_offsets\": [0, 4]}}  \n";
    struct sy_safetensors *file;
    char data[8];
    put_file(0, header, sizeof header - 1, "AAAABBBB", 8);
    assert_int_equal(sy_safetensors_open(path, &file), SY_OK);
    assert_int_equal(file->n_tensors, 3);
    assert_int_equal(file->data_offset, 8 + sizeof header - 1);
    assert_int_equal(file->data_bytes, 8);
    assert_string_equal(file->tensors[0].name, "a");
    assert_string_equal(file->tensors[1].name, "empty");
    const struct sy_safetensor *b = sy_safetensors_find(file, "b\xc3\xa9");
    assert_ptr_equal(b, &file->tensors[2]);
    assert_int_equal(b->dtype, SY_DTYPE_F16);
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->shape[1], 2);
    assert_int_equal(sy_safetensors_read(file, b->offset_bytes, b->bytes, data), SY_OK);
    assert_memory_equal(data, "BBBB", 4);
    assert_null(sy_safetensors_find(file, "c"));
    assert_null(sy_safetensors_metadata(file, "format"));
    assert_int_equal(sy_safetensors_read(file, 5, 4, data), SY_EARG);
    assert_int_equal(sy_safetensors_read(file, UINT64_MAX, 2, data), SY_EARG);
    assert_int_equal(sy_safetensors_read(file, 8, 0, data), SY_OK);
    assert_int_equal(truncate(path, 100), 0); /* under our feet */
    assert_int_equal(sy_safetensors_read(file, 0, 8, data), SY_ECORRUPT);
    sy_safetensors_close(file);
    put_file(0, "{}", 2, "", 0);
    assert_int_equal(sy_safetensors_open(path, &file), SY_OK);
    assert_int_equal(file->n_tensors, 0);
    sy_safetensors_close(file);
    sy_safetensors_close(NULL);
}

static void test_data_is_aligned(void **state)
{
    (void)state;
    char name[40] = "";
    for (int n = 1; n < 34; n++) {
        struct sy_safetensors *file;
        memset(name, 'n', (size_t)n);
        const struct sy_safetensor t = {
            .name = name, .dtype = SY_DTYPE_F64, .rank = 1, .shape = {1}, .bytes = 8};
        assert_int_equal(sy_safetensors_write(path, &t, 1, NULL, 0, "12345678", 8), SY_OK);
        assert_int_equal(sy_safetensors_open(path, &file), SY_OK);
        assert_int_equal(file->data_offset % 8, 0);
        assert_string_equal(file->tensors[0].name, name);
        sy_safetensors_close(file);
    }
}

/* ---- round trips -------------------------------------------------------------------------------------------------- */

#define MAX_TENSORS 20

static const enum sy_dtype dtypes[] = {SY_DTYPE_F32, SY_DTYPE_U8,  SY_DTYPE_I8,
                                       SY_DTYPE_I32, SY_DTYPE_I64, SY_DTYPE_BOOL,
                                       SY_DTYPE_F16, SY_DTYPE_F64, SY_DTYPE_BF16};

static uint64_t random_tensors(struct sy_safetensor *tensors, int n, char names[][64])
{
    static const char *const odd[] = {"\"", "\\", "\n", "\xc3\xa9", "\xf0\x9f\x98\x80", "/", " "};
    uint64_t offset = 0;
    for (int i = 0; i < n; i++) {
        struct sy_safetensor *t = &tensors[i];
        snprintf(names[i], 64, "%s%d%s.w", odd[draw(7)], i, odd[draw(7)]);
        *t = (struct sy_safetensor){.name = names[i],
                                    .dtype = dtypes[draw(SY_ARRAY_LEN(dtypes))],
                                    .rank = (int)draw(SY_MAX_RANK + 1),
                                    .offset_bytes = offset};
        t->bytes = sy_dtype_bytes(t->dtype);
        for (int d = 0; d < t->rank; d++) {
            t->shape[d] = (int64_t)(draw(12) == 0 ? 0 : 1 + draw(3));
            t->bytes *= (uint64_t)t->shape[d];
        }
        offset += t->bytes;
    }
    return offset;
}

static void expect_same(const struct sy_safetensors *file, const struct sy_safetensor *tensors,
                        int n, const unsigned char *data)
{
    assert_int_equal(file->n_tensors, n);
    for (int i = 0; i < n; i++) {
        const struct sy_safetensor *t = sy_safetensors_find(file, tensors[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, tensors[i].dtype);
        assert_int_equal(t->rank, tensors[i].rank);
        assert_memory_equal(t->shape, tensors[i].shape, sizeof t->shape);
        assert_int_equal(t->offset_bytes, tensors[i].offset_bytes);
        assert_int_equal(t->bytes, tensors[i].bytes);
        unsigned char *got = malloc(t->bytes + 1);
        assert_int_equal(sy_safetensors_read(file, t->offset_bytes, t->bytes, got), SY_OK);
        assert_memory_equal(got, data + t->offset_bytes, t->bytes);
        free(got);
    }
}

static void test_round_trips(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        struct sy_safetensor tensors[MAX_TENSORS];
        char names[MAX_TENSORS][64];
        const struct sy_safetensors_text texts[] = {{"\xc3\xa9\"", "\n{}[]"}, {"", ""}};
        int n = (int)draw(MAX_TENSORS + 1), n_texts = (int)draw(3);
        uint64_t bytes = random_tensors(tensors, n, names);
        unsigned char *data = malloc(bytes + 1);
        for (uint64_t i = 0; i < bytes; i++)
            data[i] = (unsigned char)draw(256);
        assert_int_equal(sy_safetensors_write(path, tensors, n, texts, n_texts, data, bytes),
                         SY_OK);
        struct sy_safetensors *file;
        if (sy_safetensors_open(path, &file) < 0)
            fail_msg("%s", sy_error_text());
        expect_same(file, tensors, n, data);
        for (int i = 0; i < n_texts; i++)
            assert_string_equal(sy_safetensors_metadata(file, texts[i].key), texts[i].value);
        sy_safetensors_close(file);
        free(data);
    }
}

/* ---- hostile headers ---------------------------------------------------------------------------------------------- */

/* Eight bytes of data behind the header. */
static void hostile(int status, const char *header, const char *words)
{
    put_file(0, header, strlen(header), "AAAABBBB", 8);
    expect_refused(status, words);
}

#define A "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}"
#define B "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}"
#define ONE(dtype, shape, offsets) \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void test_hostile_places(void **state)
{
    (void)state;
    hostile(SY_ECORRUPT, "{" A "," A "}", "duplicate");
    hostile(SY_ECORRUPT, "{" A "}", "its tensors have 4 bytes, the data has 8");
    hostile(SY_ECORRUPT, "{" B "}", "'b' begins at byte 4 of the data");
    hostile(SY_ECORRUPT, "{" A ",\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
            "begins at byte 0 of the data, the one before ends at 4");
    hostile(SY_ECORRUPT, "{" A ",\"c\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[2,8]}}",
            "'c' begins at byte 2");
    hostile(SY_ECORRUPT, ONE("F32", "[3]", "[0,12]"), "'a' ends at byte 12 of the data");
    hostile(SY_ECORRUPT, ONE("F32", "[2]", "[8,0]"), "'a': its data_offsets");
    hostile(SY_ECORRUPT, ONE("F32", "[2]", "[-8,0]"), "'a': its data_offsets");
    hostile(SY_ECORRUPT, ONE("F32", "[2]", "[0,8.0]"), "'a': its data_offsets");
    hostile(SY_ECORRUPT, ONE("F32", "[2]", "[0]"), "'a': its data_offsets");
    hostile(SY_ECORRUPT, ONE("F32", "[2]", "[0,8,8]"), "'a': its data_offsets");
    hostile(SY_ECORRUPT, ONE("F32", "[2]", "\"08\""), "'a': its data_offsets");
    hostile(SY_ECORRUPT, ONE("F32", "[2]", "[0,4611686018427387904]"), "'a' ends at byte");
    hostile(SY_ECORRUPT, ONE("F32", "[2]", "[9223372036854775807,9223372036854775807]"),
            "'a' ends at byte");
    hostile(SY_ECORRUPT, ONE("F32", "[2]", "[0,18446744073709551616]"), "header");
}

static void test_hostile_shapes(void **state)
{
    (void)state;
    hostile(SY_ECORRUPT, ONE("F32", "[1]", "[0,8]"), "its type and shape need another number");
    hostile(SY_ECORRUPT, ONE("F32", "[4611686018427387904]", "[0,8]"), "need another number");
    /* 2^62 * 2 floats are 2^65 bytes; 2^64 + 8 bytes would be 8 */
    hostile(SY_ECORRUPT, ONE("F32", "[4611686018427387904,2]", "[0,8]"), "need another number");
    hostile(SY_ECORRUPT, ONE("U8", "[2305843009213693952,8]", "[0,0]"), "need another number");
    hostile(SY_ECORRUPT, ONE("F32", "[-2]", "[0,8]"), "'a': a dimension is not a length");
    hostile(SY_ECORRUPT, ONE("F32", "[2.0]", "[0,8]"), "'a': a dimension is not a length");
    hostile(SY_ECORRUPT, ONE("F32", "2", "[0,8]"), "'a': its shape");
    hostile(SY_EUNSUPPORTED, ONE("F32", "[2,1,1,1,1,1,1,1,1]", "[0,8]"), "'a' has 9 dimensions");
    hostile(SY_EUNSUPPORTED, ONE("F8_E4M3", "[8]", "[0,8]"), "'a' has type 'F8_E4M3'");
    hostile(SY_EUNSUPPORTED, ONE("f32", "[2]", "[0,8]"), "type 'f32'");
    hostile(SY_ECORRUPT, "{\"a\":[]}", "'a': it is not");
    hostile(SY_ECORRUPT, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "'a': it is not");
    hostile(SY_ECORRUPT, "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}",
            "'a': it is not");
    hostile(SY_ECORRUPT, "{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}",
            "'a': it is not");
}

static void test_hostile_json(void **state)
{
    (void)state;
    const size_t deep = 3 << 20;
    char *nested = malloc(deep);
    hostile(SY_ECORRUPT, "[]", "does not begin with '{'");
    hostile(SY_ECORRUPT, " {}", "does not begin with '{'");
    hostile(SY_ECORRUPT, "{\"a\":", "header");
    hostile(SY_ECORRUPT, "{} {}", "header");
    hostile(SY_ECORRUPT, "{\"a\\u0000b\":{}}", "header");
    hostile(SY_ECORRUPT, "{\"\xff\":{}}", "header");
    hostile(SY_ECORRUPT, "{\"__metadata__\":[]}", "__metadata__ is not an object");
    hostile(SY_ECORRUPT, "{\"__metadata__\":{\"k\":1}}", "__metadata__ 'k' is not text");
    for (int kind = 0; kind < 2; kind++) {
        memcpy(nested, "{\"a\":", 5);
        for (size_t i = 5; i < deep; i++)
            nested[i] = kind ? "{\"a\":"[i % 5] : '[';
        put_file(0, nested, deep, "", 0);
        expect_refused(SY_ECORRUPT, "header");
    }
    free(nested);
}

static void test_header_length_lies(void **state)
{
    (void)state;
    const char good[] = "{" A "," B "}";
    const size_t n = sizeof good - 1;
    const uint64_t lies[] = {1,          n - 1,         n + 1,
                             n + 8,      n + 9,         SY_SAFETENSORS_MAX_HEADER + 1,
                             1ull << 32, 1ull << 62,    (1ull << 63) + n,
                             UINT64_MAX, UINT64_MAX - 7};
    struct sy_safetensors *file;
    for (size_t i = 0; i < SY_ARRAY_LEN(lies); i++) {
        put_file(lies[i], good, n, "AAAABBBB", 8);
        expect_refused(SY_ECORRUPT, "header");
    }
    put_file(n, good, n, "AAAABBBB", 8);
    assert_int_equal(sy_safetensors_open(path, &file), SY_OK);
    sy_safetensors_close(file);
    for (off_t cut = 0; cut < (off_t)(8 + n + 8); cut++) {
        put_file(n, good, n, "AAAABBBB", 8);
        assert_int_equal(truncate(path, cut), 0);
        expect_refused(SY_ECORRUPT, "");
    }
    put_file(n, good, n, "AAAABBBBx", 9);
    expect_refused(SY_ECORRUPT, "the data has 9");
    put_file(n, "", 0, "", 0);
    expect_refused(SY_ECORRUPT, "header");
}

static void test_what_is_no_file(void **state)
{
    (void)state;
    unlink(path);
    expect_refused(SY_ENOTFOUND, "");
    assert_int_equal(mkdir(path, 0700), 0);
    expect_refused(SY_EARG, "");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refused(SY_EARG, "");
    unlink(path);
}

#ifdef SY_SANITIZED
#define ROUNDS 2000
#else
#define ROUNDS 8000
#endif

/* Whatever opens covers the data exactly, and can be written again as it is. */
static void test_mutated_files(void **state)
{
    (void)state;
    static const char good[] = "{\"__metadata__\":{\"k\":\"v\"}," A "," B ",\"c\":{\"dtype\":"
                               "\"U8\",\"shape\":[2,1],\"data_offsets\":[8,10]}}";
    static const char alphabet[] = "0123456789-,:.\"[]{} eE\\abFU";
    char header[sizeof good], data[10];
    int n_opened = 0;
    for (int round = 0; round < ROUNDS; round++) {
        size_t n = sizeof good - 1;
        struct sy_safetensors *file;
        memcpy(header, good, n);
        for (int i = 1 + (int)draw(3); i > 0; i--)
            header[draw(n)] = alphabet[draw(sizeof alphabet - 1)];
        put_file(draw(8) ? 0 : n + draw(9) - 4, header, n, "AAAABBBBCC", 10);
        if (sy_safetensors_open(path, &file) < 0)
            continue;
        uint64_t end = 0;
        for (int i = 0; i < file->n_tensors; i++) {
            assert_int_equal(file->tensors[i].offset_bytes, end);
            end += file->tensors[i].bytes;
            assert_int_equal(sy_safetensors_read(file, file->tensors[i].offset_bytes,
                                                 file->tensors[i].bytes, data),
                             SY_OK);
        }
        assert_int_equal(end, file->data_bytes);
        assert_true(end <= sizeof data);
        if (++n_opened % 16 == 0)
            assert_int_equal(sy_safetensors_write(path, file->tensors, file->n_tensors, NULL, 0,
                                                  data, file->data_bytes),
                             SY_OK);
        sy_safetensors_close(file);
    }
    print_message("%d of %d still opened\n", n_opened, ROUNDS);
    assert_true(n_opened > 0);
}

/* ---- writing ------------------------------------------------------------------------------------------------------ */

static void spoil(int how, struct sy_safetensor *t, uint64_t *data_bytes)
{
    switch (how) {
    case 0:
        *data_bytes = 10;
        break;
    case 1:
        t[1].offset_bytes = 4;
        break;
    case 2:
        t[1].offset_bytes = 9;
        break;
    case 3:
        t[0].shape[0] = 3;
        break;
    case 4:
        t[0].shape[0] = -2;
        break;
    case 5:
        t[0].dtype = SY_DTYPE_NONE;
        break;
    case 6:
        t[1].name = "x";
        break;
    case 7:
        t[1].name = "\xff";
        break;
    default:
        t[1].name = "__metadata__";
    }
}

static void test_refuses_to_write(void **state)
{
    (void)state;
    const struct sy_safetensor good[2] = {
        {.name = "x", .dtype = SY_DTYPE_F32, .rank = 1, .shape = {2}, .bytes = 8},
        {.name = "y", .dtype = SY_DTYPE_U8, .rank = 1, .shape = {1}, .offset_bytes = 8, .bytes = 1},
    };
    struct sy_safetensor bad[2];
    unlink(path);
    for (int i = 0; i < 9; i++) {
        memcpy(bad, good, sizeof good);
        uint64_t bytes = 9;
        spoil(i, bad, &bytes);
        assert_int_equal(sy_safetensors_write(path, bad, 2, NULL, 0, "123456789", bytes), SY_EARG);
        assert_int_equal(access(path, F_OK), -1);
    }
    const struct sy_safetensors_text texts[] = {{"k", "1"}, {"l", "\xff"}};
    assert_int_equal(sy_safetensors_write(path, good, 2, texts, 2, "123456789", 9), SY_EARG);
    assert_int_equal(sy_safetensors_write(path, good, 2, texts, 1, "123456789", 9), SY_OK);
}

static void test_failed_write_keeps_the_old(void **state)
{
    (void)state;
    struct rlimit old, now;
    const struct sy_safetensor t = {
        .name = "x", .dtype = SY_DTYPE_U8, .rank = 1, .shape = {4}, .bytes = 4};
    struct sy_safetensors *file;
    char data[4];
    assert_int_equal(sy_safetensors_write(path, &t, 1, NULL, 0, "old!", 4), SY_OK);
    getrlimit(RLIMIT_FSIZE, &old);
    for (rlim_t limit = 0; limit < 68; limit += 4) {
        now = old, now.rlim_cur = limit;
        setrlimit(RLIMIT_FSIZE, &now);
        int status = sy_safetensors_write(path, &t, 1, NULL, 0, "new!", 4);
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(status, SY_EIO);
        assert_int_equal(sy_safetensors_open(path, &file), SY_OK);
        assert_int_equal(sy_safetensors_read(file, 0, 4, data), SY_OK);
        assert_memory_equal(data, "old!", 4);
        sy_safetensors_close(file);
    }
    assert_int_equal(sy_safetensors_write("/nowhere/at/all", &t, 1, NULL, 0, "new!", 4), SY_EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_bytes),    cmocka_unit_test(test_reads_a_file_by_hand),
        cmocka_unit_test(test_data_is_aligned),  cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_hostile_places),   cmocka_unit_test(test_hostile_shapes),
        cmocka_unit_test(test_hostile_json),     cmocka_unit_test(test_header_length_lies),
        cmocka_unit_test(test_what_is_no_file),  cmocka_unit_test(test_mutated_files),
        cmocka_unit_test(test_refuses_to_write), cmocka_unit_test(test_failed_write_keeps_the_old),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
