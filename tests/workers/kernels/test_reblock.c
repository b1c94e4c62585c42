/* Weights from one block size to another: random shapes against oneDNN's own reorders, padding included. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/rigs/engine_rig.h"
#include "workers/host/products/reblock.h"
#include "workers/host/program/program_internal.h"

static uint64_t seed;

static void reorder(const dnnl_memory_desc_t *from_md, float *from, const dnnl_memory_desc_t *to_md,
                    float *to)
{
    dnnl_engine_t engine = sy_dnnl_engine();
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    dnnl_memory_t memory[2];
    assert_int_equal(dnnl_reorder_primitive_desc_create(&pd, from_md, engine, to_md, engine, NULL),
                     dnnl_success);
    assert_int_equal(dnnl_primitive_create(&primitive, pd), dnnl_success);
    assert_int_equal(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), dnnl_success);
    assert_int_equal(dnnl_memory_create(&memory[0], from_md, engine, from), dnnl_success);
    assert_int_equal(dnnl_memory_create(&memory[1], to_md, engine, to), dnnl_success);
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, memory[0]}, {DNNL_ARG_TO, memory[1]}};
    assert_int_equal(dnnl_primitive_execute(primitive, stream, 2, args), dnnl_success);
    dnnl_stream_wait(stream);
    dnnl_memory_destroy(memory[0]);
    dnnl_memory_destroy(memory[1]);
    dnnl_stream_destroy(stream);
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(pd);
}

static float *floats_of(const dnnl_memory_desc_t *md, int byte)
{
    size_t bytes = dnnl_memory_desc_get_size(md);
    float *floats = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(floats);
    memset(floats, byte, bytes);
    return floats;
}

static void check_pair(int rank, const int64_t *dims, dnnl_format_tag_t a, dnnl_format_tag_t b)
{
    dnnl_memory_desc_t plain_md, a_md, b_md;
    struct sy_reblock r;
    sy_dnnl_plain_md(&plain_md, rank, dims);
    assert_int_equal(dnnl_memory_desc_init_by_tag(&a_md, rank, plain_md.dims, dnnl_f32, a),
                     dnnl_success);
    assert_int_equal(dnnl_memory_desc_init_by_tag(&b_md, rank, plain_md.dims, dnnl_f32, b),
                     dnnl_success);
    if (!sy_reblock_read(&a_md, &b_md, &r)) {
        assert_true(DNNL_VERSION_MAJOR >= 3);
        return;
    }
    float *plain = floats_of(&plain_md, 0), *from = floats_of(&a_md, 0xff);
    float *want = floats_of(&b_md, 0xff), *got = floats_of(&b_md, 0xff);
    for (size_t i = 0; i < dnnl_memory_desc_get_size(&plain_md) / sizeof *plain; i++)
        plain[i] = (float)rig_int(&seed, -1000, 1000);
    reorder(&plain_md, plain, &a_md, from);
    reorder(&plain_md, plain, &b_md, want);
    sy_reblock_run(&r, from, got);
    assert_memory_equal(got, want, dnnl_memory_desc_get_size(&b_md));
    free(plain);
    free(from);
    free(want);
    free(got);
}

static void test_random_blocks(void **state)
{
    static const dnnl_format_tag_t lines[] = {dnnl_Acb16a, dnnl_Acb32a, dnnl_Acb48a, dnnl_Acb64a},
                                   images[] = {dnnl_Acdb16a, dnnl_Acdb32a, dnnl_Acdb48a,
                                               dnnl_Acdb64a};
    (void)state;
    for (int i = 0; i < 200; i++) {
        int rank = (int)rig_int(&seed, 3, 4);
        const dnnl_format_tag_t *tags = rank == 3 ? lines : images;
        const int64_t dims[] = {rig_int(&seed, 1, 200), rig_int(&seed, 1, 20), rig_int(&seed, 1, 5),
                                rig_int(&seed, 1, 5)};
        check_pair(rank, dims, tags[rig_int(&seed, 0, 3)], tags[rig_int(&seed, 0, 3)]);
    }
}

/* Blocks of two dimensions, of different ones, and none are oneDNN's. */
static void test_other_layouts(void **state)
{
    static const dnnl_format_tag_t others[] = {dnnl_abcd, dnnl_ABcd16b16a, dnnl_aBcd16b};
    const int64_t dims[] = {32, 32, 3, 3};
    dnnl_memory_desc_t plain, a, b;
    struct sy_reblock r;
    (void)state;
    sy_dnnl_plain_md(&plain, 4, dims);
    assert_int_equal(dnnl_memory_desc_init_by_tag(&a, 4, plain.dims, dnnl_f32, dnnl_Acdb16a),
                     dnnl_success);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(dnnl_memory_desc_init_by_tag(&b, 4, plain.dims, dnnl_f32, others[i]),
                         dnnl_success);
        assert_false(sy_reblock_read(&a, &b, &r));
        assert_false(sy_reblock_read(&b, &a, &r));
    }
}

int main(void)
{
    seed = rig_start();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_blocks),
                                       cmocka_unit_test(test_other_layouts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
