/* .npy files: read as numpy writes them, refused when damaged, written as numpy reads them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/seed.h"
#include "workers/data/npy.h"

#define MUTATIONS 4000

static char path[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(path, "/tmp/sy_npy_XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

static void put(const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

/* A file by hand, as numpy.lib.format describes it: version, dictionary, data. */
static size_t compose(unsigned char *to, int version, const char *dictionary, const void *data,
                      size_t n)
{
    size_t prefix = version == 1 ? 10 : 12, length = strlen(dictionary);
    memcpy(to, "\x93NUMPY", 6);
    to[6] = (unsigned char)version;
    to[7] = 0;
    to[8] = (unsigned char)length;
    to[9] = (unsigned char)(length >> 8);
    if (version > 1)
        to[10] = to[11] = 0;
    memcpy(to + prefix, dictionary, length);
    if (n > 0)
        memcpy(to + prefix + length, data, n);
    return prefix + length + n;
}

static int read_composed(int version, const char *dictionary, const void *data, size_t n,
                         struct sy_npy *out)
{
    unsigned char file[2048];
    put(file, compose(file, version, dictionary, data, n));
    int status = sy_npy_read(path, out);
    if (status < 0)
        assert_non_null(strstr(sy_error_text(), path));
    return status;
}

static void reads_what_numpy_writes(void **state)
{
    (void)state;
    const float values[6] = {1, 2, 3, 4, 5, 6};
    struct sy_npy npy;
    for (int version = 1; version <= 3; version++) {
        assert_int_equal(
            read_composed(version,
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n",
                          values, sizeof values, &npy),
            SY_OK);
        assert_int_equal(npy.dtype, SY_DTYPE_F32);
        assert_int_equal(npy.rank, 2);
        assert_int_equal(npy.dims[0], 2);
        assert_int_equal(npy.dims[1], 3);
        assert_memory_equal(npy.data, values, sizeof values);
        sy_npy_finish(&npy);
    }
    /* np.save(np.float32(3)): a scalar; np.save(np.zeros((0, 4), bool)): nothing */
    assert_int_equal(read_composed(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n",
                                   values, 4, &npy),
                     SY_OK);
    assert_int_equal(npy.rank, 0);
    assert_int_equal(npy.bytes, 4);
    sy_npy_finish(&npy);
    assert_int_equal(
        read_composed(1, "{'shape': (0, 4), 'fortran_order': True, 'descr': '|b1'}", NULL, 0, &npy),
        SY_OK);
    assert_int_equal(npy.bytes, 0);
    sy_npy_finish(&npy);
}

static void column_major_comes_out_row_major(void **state)
{
    (void)state;
    int32_t columns[24], expected[24];
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < 4; c++) {
                expected[(a * 3 + b) * 4 + c] = 100 * a + 10 * b + c;
                columns[(c * 3 + b) * 2 + a] = 100 * a + 10 * b + c;
            }
    struct sy_npy npy;
    assert_int_equal(read_composed(1, "{'descr':'<i4','fortran_order':True,'shape':(2,3,4)}",
                                   columns, sizeof columns, &npy),
                     SY_OK);
    assert_memory_equal(npy.data, expected, sizeof expected);
    sy_npy_finish(&npy);
}

/* What a machine of the other byte order wrote, and whole numbers of other sizes. */
static void other_types_come_out_as_those_here(void **state)
{
    (void)state;
    static const struct {
        const char *descr;
        size_t bytes; /* of two elements */
        const char data[17];
        enum sy_dtype dtype;
        double wanted[2];
    } cases[] = {
        {">f4", 8, "\x3f\x80\0\0\xc0\0\0\0", SY_DTYPE_F32, {1, -2}},
        {">f8", 16, "\x3f\xf0\0\0\0\0\0\0\xc0\0\0\0\0\0\0\0", SY_DTYPE_F64, {1, -2}},
        {">i4", 8, "\0\0\1\2\xff\xff\xff\xfe", SY_DTYPE_I32, {258, -2}},
        {"<u2", 4, "\1\2\xff\xff", SY_DTYPE_U16, {513, 65535}},
        {">u2", 4, "\1\2\xff\xff", SY_DTYPE_U16, {258, 65535}},
        {"<i2", 4, "\1\2\xfe\xff", SY_DTYPE_I16, {513, -2}},
        {"<u4", 8, "\1\0\0\0\xff\xff\xff\xff", SY_DTYPE_U32, {1, 4294967295.0}},
        {"<u8", 16, "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x80", SY_DTYPE_U64, {1, 0x1p63}},
        {">i8", 16, "\0\0\0\0\0\0\1\2\xff\xff\xff\xff\xff\xff\xff\xfe", SY_DTYPE_I64, {258, -2}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int is_column_major = 0; is_column_major < 2; is_column_major++) {
            char dictionary[128];
            struct sy_npy npy;
            snprintf(dictionary, sizeof dictionary,
                     "{'descr': '%s', 'fortran_order': %s, 'shape': (1, 2)}", cases[i].descr,
                     is_column_major ? "True" : "False");
            assert_int_equal(read_composed(1, dictionary, cases[i].data, cases[i].bytes, &npy),
                             SY_OK);
            assert_int_equal(npy.dtype, cases[i].dtype);
            for (int e = 0; e < 2; e++) {
                double got = npy.dtype == SY_DTYPE_F32   ? ((float *)npy.data)[e]
                             : npy.dtype == SY_DTYPE_F64 ? ((double *)npy.data)[e]
                             : npy.dtype == SY_DTYPE_I32 ? ((int32_t *)npy.data)[e]
                             : npy.dtype == SY_DTYPE_U32 ? ((uint32_t *)npy.data)[e]
                             : npy.dtype == SY_DTYPE_U16 ? ((uint16_t *)npy.data)[e]
                             : npy.dtype == SY_DTYPE_I16 ? ((int16_t *)npy.data)[e]
                             : npy.dtype == SY_DTYPE_U64 ? (double)((uint64_t *)npy.data)[e]
                                                         : (double)((int64_t *)npy.data)[e];
                assert_true(got == cases[i].wanted[e]);
            }
            sy_npy_finish(&npy);
        }
}

static void refuses(void **state)
{
    (void)state;
    static const struct {
        const char *dictionary;
        size_t bytes;
        int status;
    } cases[] = {
        {"{'descr': '=f4', 'fortran_order': False, 'shape': (1,)}", 4, SY_EUNSUPPORTED},
        {"{'descr': '>f3', 'fortran_order': False, 'shape': (1,)}", 3, SY_EUNSUPPORTED},
        {"{'descr': '|u2', 'fortran_order': False, 'shape': (1,)}", 2, SY_EUNSUPPORTED},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (2,)}", 8, SY_ECORRUPT},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", 8, SY_EUNSUPPORTED},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", 8, SY_EUNSUPPORTED},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4, SY_EUNSUPPORTED},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 4,
         SY_EUNSUPPORTED},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 4, SY_ECORRUPT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 8, SY_ECORRUPT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 4, SY_ECORRUPT},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", 4, SY_ECORRUPT},
        {"{'descr': '<f4', 'fortran_order': False}", 4, SY_ECORRUPT},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4, SY_ECORRUPT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", 4, SY_ECORRUPT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", 4, SY_ECORRUPT},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}", 4,
         SY_ETOOBIG},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000,4000000000)}", 4,
         SY_ETOOBIG},
        {"", 4, SY_ECORRUPT},
    };
    const unsigned char zeroes[16] = {0};
    struct sy_npy npy;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(read_composed(1, cases[i].dictionary, zeroes, cases[i].bytes, &npy),
                         cases[i].status);
    assert_int_equal(read_composed(4, cases[5].dictionary, zeroes, 4, &npy), SY_EUNSUPPORTED);
    put("PK\3\4 an archive", 14);
    assert_int_equal(sy_npy_read(path, &npy), SY_ECORRUPT);
    assert_int_equal(sy_npy_read("/nonexistent.npy", &npy), SY_ENOTFOUND);
}

static void round_trip(void **state)
{
    (void)state;
    static const enum sy_dtype dtypes[] = {
#define X(name, value, bytes, wire, npy) SY_DTYPE_##name,
        SY_DTYPE_TABLE(X)
#undef X
    };
    unsigned char data[2 * 3 * 5 * 8];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 37 + 11);
    const int64_t dims[] = {2, 3, 5};
    const int64_t counts[] = {1, 2, 6, 30};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int rank = 0; rank <= 3; rank++) {
            struct sy_npy npy;
            assert_int_equal(sy_npy_write(path, dtypes[d], rank, dims, data), SY_OK);
            assert_int_equal(sy_npy_read(path, &npy), SY_OK);
            assert_int_equal(npy.dtype, dtypes[d]);
            assert_int_equal(npy.rank, rank);
            assert_int_equal(npy.bytes, (size_t)counts[rank] * sy_dtype_bytes(dtypes[d]));
            assert_memory_equal(npy.data, data, npy.bytes);
            sy_npy_finish(&npy);
        }
    assert_int_equal(sy_npy_write(path, SY_DTYPE_F32, 9, dims, data), SY_EARG);
    assert_int_equal(sy_npy_write("/nonexistent/x.npy", SY_DTYPE_F32, 1, dims, data), SY_EIO);
}

/* Whatever the bytes are: an answer, no crash, and what is accepted has the length that its shape says. */
static void mutated_files(void **state)
{
    (void)state;
    unsigned seed = (unsigned)seed_of_run(1);
    unsigned char good[256], file[256];
    const float values[6] = {1, 2, 3, 4, 5, 6};
    size_t n = compose(good, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } \n",
                       values, sizeof values);
    int accepted = 0;
    for (int i = 0; i < MUTATIONS; i++) {
        memcpy(file, good, n);
        for (int k = 1 + rand_r(&seed) % 3; k > 0; k--)
            file[(size_t)rand_r(&seed) % n] = (unsigned char)rand_r(&seed);
        put(file, rand_r(&seed) % 8 ? n : (size_t)rand_r(&seed) % n);
        struct sy_npy npy;
        if (sy_npy_read(path, &npy) < 0)
            continue;
        uint64_t bytes = sy_dtype_bytes(npy.dtype);
        for (int d = 0; d < npy.rank; d++)
            bytes *= (uint64_t)npy.dims[d];
        assert_int_equal(bytes, npy.bytes);
        accepted++;
        sy_npy_finish(&npy);
    }
    assert_true(accepted > 0 && accepted < MUTATIONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads_what_numpy_writes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(column_major_comes_out_row_major, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_types_come_out_as_those_here, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(round_trip, set_up, tear_down),
        cmocka_unit_test_setup_teardown(mutated_files, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
