#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "workers/data/idx_reader.h"

#define FASHION "/usr/share/datasets/fashion-mnist/train-labels-idx1-ubyte.gz"

static int read_bytes(const void *bytes, size_t n, struct sy_idx *out)
{
    char path[] = "/tmp/sy_idx_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
    int status = sy_idx_read(path, out);
    if (status < 0)
        assert_non_null(strstr(sy_error_text(), path));
    unlink(path);
    return status;
}

static void plain_and_damaged(void **state)
{
    (void)state;
    const uint8_t good[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6, 99};
    struct sy_idx idx;
    assert_int_equal(read_bytes(good, 18, &idx), SY_OK);
    assert_int_equal(idx.rank, 2);
    assert_int_equal(idx.dims[1], 3);
    assert_memory_equal(idx.data, good + 12, 6);
    sy_idx_finish(&idx);
    for (size_t n = 0; n < 18; n++)
        assert_int_equal(read_bytes(good, n, &idx), SY_ECORRUPT);
    assert_int_equal(read_bytes(good, 19, &idx), SY_ECORRUPT);
    const uint8_t floats[] = {0, 0, 13, 1, 0, 0, 0, 1, 0, 0, 0, 0};
    assert_int_equal(read_bytes(floats, 12, &idx), SY_EUNSUPPORTED);
    const uint8_t huge[] = {0, 0, 8, 2, 255, 255, 255, 255, 255, 255, 255, 255};
    assert_int_equal(read_bytes(huge, 12, &idx), SY_ETOOBIG);
    assert_int_equal(sy_idx_read("/nonexistent", &idx), SY_ENOTFOUND);
}

static void fashion_mnist(void **state)
{
    (void)state;
    if (access(FASHION, R_OK))
        skip();
    struct sy_idx idx;
    assert_int_equal(sy_idx_read(FASHION, &idx), SY_OK);
    assert_int_equal(idx.dims[0], 60000);
    const uint8_t first[] = {9, 0, 0, 3}; /* as the data set's page shows */
    assert_memory_equal(idx.data, first, 4);
    sy_idx_finish(&idx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_and_damaged),
        cmocka_unit_test(fashion_mnist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
