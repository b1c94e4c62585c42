/* The host engine's kernels that gather, scatter and keep elements by index or mask, as ONNX defines them: random shapes, every size of an element. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "tests/nets/kernel_case.h"
#include "tests/rigs/engine_rig.h"

static uint64_t seed;

/* ---- by index ------------------------------------------------------------------------------------------- */

/* Indices of both signs, of fewer rows and columns than the data but along the axis. */
static void test_elements_by_index(void **state)
{
    static int64_t indices[KERNEL_MOST];
    (void)state;
    for (int round = 0; round < KERNEL_ROUNDS; round++) {
        int64_t dims[KERNEL_RANK];
        kernel_case_start(&seed, SY_OP_GATHER_ELEMENTS, round);
        const struct sy_array *x = &kernel_case.call.in[0];
        int axis = (int)rig_int(&seed, 0, x->rank - 1);
        for (int d = 0; d < x->rank; d++)
            dims[d] = d == axis ? rig_int(&seed, 1, 9) : SY_MAX(x->dims[d] - round / 8 % 2, 1);
        kernel_case_attr((struct sy_attr){.name = "axis", .kind = SY_ATTR_INT, .i = axis});
        kernel_case_resize(dims);
        kernel_case.call.n_in = 2;
        kernel_case.call.in[1] = array_of(SY_DTYPE_I64, x->rank, dims, indices);
        for (int64_t i = 0; i < kernel_case.call.out[0].n; i++) {
            int64_t left = i, stride = 1;
            indices[i] = rig_int(&seed, -x->dims[axis], x->dims[axis] - 1);
            kernel_case.from[i] = 0;
            for (int d = x->rank - 1; d >= 0; d--) {
                int64_t place = indices[i] < 0 ? indices[i] + x->dims[d] : indices[i];
                kernel_case.from[i] += (d == axis ? place : left % dims[d]) * stride;
                left /= dims[d];
                stride *= x->dims[d];
            }
        }
        kernel_case_run(SY_OK, NULL);
        indices[kernel_case.call.out[0].n - 1] = x->dims[axis];
        kernel_case_run(SY_EARG, NULL);
        assert_non_null(strstr(sy_error_text(), "index "));
    }
}

static int64_t random_index(int64_t extent)
{
    return rig_int(&seed, -extent, extent - 1);
}

static int64_t counted(int64_t index, int64_t extent)
{
    return index < 0 ? index + extent : index;
}

/* Updates lie in the data too, far behind what is scattered into, so that they have an origin. */
static int64_t give_updates(int rank, const int64_t *dims)
{
    const struct sy_array *x = &kernel_case.call.in[0];
    kernel_case.call.n_in = 3;
    kernel_case.call.in[2] =
        array_of(x->dtype, rank, dims, kernel_data + (KERNEL_MOST / 2) * sy_dtype_bytes(x->dtype));
    assert_true(x->n <= KERNEL_MOST / 2 && kernel_case.call.in[2].n <= KERNEL_MOST / 2);
    return KERNEL_MOST / 2;
}

/* Of two elements for one place the last counts. */
static void test_scattered_elements(void **state)
{
    static int64_t indices[KERNEL_MOST];
    (void)state;
    for (int round = 0; round < KERNEL_ROUNDS; round++) {
        int64_t dims[KERNEL_RANK], at[KERNEL_RANK];
        kernel_case_start(&seed, SY_OP_SCATTER_ELEMENTS, round);
        const struct sy_array *x = &kernel_case.call.in[0];
        int axis = (int)rig_int(&seed, 0, x->rank - 1);
        for (int d = 0; d < x->rank; d++)
            dims[d] = d == axis ? rig_int(&seed, 1, 9) : SY_MAX(x->dims[d] - round / 8 % 2, 1);
        kernel_case_attr((struct sy_attr){.name = "axis", .kind = SY_ATTR_INT, .i = axis});
        kernel_case.call.in[1] = array_of(SY_DTYPE_I64, x->rank, dims, indices);
        int64_t updates = give_updates(x->rank, dims);
        for (int64_t i = 0; i < x->n; i++)
            kernel_case.from[i] = i;
        for (int64_t i = 0; i < kernel_case.call.in[1].n; i++) {
            indices[i] = random_index(x->dims[axis]);
            sy_array_at(&kernel_case.call.in[1], i, at);
            at[axis] = counted(indices[i], x->dims[axis]);
            kernel_case.from[kernel_offset_in(x, at)] = updates + i;
        }
        kernel_case_run(SY_OK, NULL);
        indices[kernel_case.call.in[1].n - 1] = -x->dims[axis] - 1;
        kernel_case_run(SY_EARG, NULL);
    }
}

/* Tuples that name elements, and slices of one dimension and more. */
static void test_tuples(void **state)
{
    static int64_t indices[KERNEL_MOST];
    (void)state;
    for (int round = 0; round < 2 * KERNEL_ROUNDS; round++) {
        bool scatter = round % 2;
        kernel_case_start(&seed, scatter ? SY_OP_SCATTER_ND : SY_OP_GATHER_ND, round / 2);
        const struct sy_array *x = &kernel_case.call.in[0];
        int rank = x->rank, depth = (int)rig_int(&seed, 1, rank);
        int64_t tuples = rig_int(&seed, 1, 9), dims[KERNEL_RANK + 1] = {tuples}, updates = 0;
        memcpy(&dims[1], &x->dims[depth], (size_t)(rank - depth) * sizeof *dims);
        kernel_case.call.n_in = 2;
        kernel_case.call.in[1] = array_of(SY_DTYPE_I64, 2, (int64_t[]){tuples, depth}, indices);
        if (scatter)
            updates = give_updates(rank - depth + 1, dims);
        else
            kernel_case.call.out[0] = array_of(x->dtype, rank - depth + 1, dims, kernel_result);
        int64_t n = sy_array_extent(x, depth, rank);
        for (int64_t i = 0; scatter && i < x->n; i++)
            kernel_case.from[i] = i;
        for (int64_t k = 0; k < tuples; k++) {
            int64_t at[KERNEL_RANK] = {0};
            for (int d = 0; d < depth; d++) {
                indices[k * depth + d] = random_index(x->dims[d]);
                at[d] = counted(indices[k * depth + d], x->dims[d]);
            }
            for (int64_t i = 0; i < n; i++)
                if (scatter)
                    kernel_case.from[kernel_offset_in(x, at) + i] = updates + k * n + i;
                else
                    kernel_case.from[k * n + i] = kernel_offset_in(x, at) + i;
        }
        kernel_case_run(SY_OK, NULL);
        indices[0] = x->dims[0];
        kernel_case_run(SY_EARG, NULL);
    }
}

/* What is added and multiplied, element by element. */
static void test_scattered_sums(void **state)
{
    static char *names[] = {"add", "mul", "max", "min"};
    static const float want[] = {1 + 2 + 4, 1 * 2 * 4, 4, 1};
    (void)state;
    for (int i = 0; i < 8; i++) {
        float to[6] = {1, 1, 1, 1, 1, 1}, updates[6] = {2, 2, 2, 4, 4, 4}, got[6];
        int64_t indices[6] = {1, 1, 1, 1, 1, 1};
        bool tuples = i >= 4;
        kernel_case = (struct kernel_case){
            .node = {.name = "summed", .attrs = kernel_case.attrs, .n_attrs = 0}};
        kernel_case.node.op = tuples ? SY_OP_SCATTER_ND : SY_OP_SCATTER_ELEMENTS;
        kernel_case_attr(
            (struct sy_attr){.name = "reduction", .kind = SY_ATTR_STRING, .s = names[i % 4]});
        kernel_case.call = (struct sy_call){.node = &kernel_case.node, .n_in = 3, .n_out = 1};
        kernel_case.call.in[0] = array_of(SY_DTYPE_F32, 2, (int64_t[]){2, 3}, to);
        kernel_case.call.in[1] = array_of(SY_DTYPE_I64, 2, (int64_t[]){2, tuples ? 1 : 3}, indices);
        kernel_case.call.in[2] = array_of(SY_DTYPE_F32, 2, (int64_t[]){2, 3}, updates);
        kernel_case.call.out[0] = array_of(SY_DTYPE_F32, 2, (int64_t[]){2, 3}, got);
        const struct sy_kernel *kernel = sy_kernel_find(kernel_case.node.op);
        assert_int_equal(kernel->check(&kernel_case.call), SY_OK);
        assert_int_equal(kernel->run(&kernel_case.call), SY_OK);
        for (int k = 0; k < 6; k++)
            assert_true(got[k] == (k < 3 ? 1 : want[i % 4]));
    }
}

/* A mask that may be shorter than the axis; without an axis of all elements. */
static void test_compressed(void **state)
{
    static uint8_t keep[KERNEL_MOST];
    (void)state;
    for (int round = 0; round < KERNEL_ROUNDS; round++) {
        kernel_case_start(&seed, SY_OP_COMPRESS, round);
        const struct sy_array *x = &kernel_case.call.in[0];
        int axis = (int)rig_int(&seed, -1, x->rank - 1);
        int64_t length = axis < 0 ? x->n : x->dims[axis], masked = rig_int(&seed, 0, length), n = 0,
                dims[KERNEL_RANK], at[KERNEL_RANK], kept = 0;
        for (int64_t i = 0; i < masked; i++)
            kept += keep[i] = (uint8_t)rig_int(&seed, 0, 1);
        memcpy(dims, x->dims, sizeof dims);
        dims[axis < 0 ? 0 : axis] = kept;
        if (axis >= 0)
            kernel_case_attr((struct sy_attr){.name = "axis", .kind = SY_ATTR_INT, .i = axis});
        kernel_case.call.n_in = 2;
        kernel_case.call.in[1] = array_of(SY_DTYPE_BOOL, 1, &masked, keep);
        kernel_case.call.out[0] = array_of(x->dtype, axis < 0 ? 1 : x->rank, dims, kernel_result);
        for (int64_t i = 0; i < x->n; i++) {
            sy_array_at(x, i, at);
            int64_t place = axis < 0 ? i : at[axis];
            if (place < masked && keep[place])
                kernel_case.from[n++] = i;
        }
        kernel_case_run(SY_OK, NULL);
    }
}

/* Of all types, with elements that are not found. */
static void test_masks(void **state)
{
    (void)state;
    const float indices[] = {0, -1, 5, -4, 2, 1};
    float values[] = {7, 9}, depth = 3, hot[18];
    kernel_case = (struct kernel_case){
        .node = {.op = SY_OP_ONE_HOT, .name = "hot", .attrs = kernel_case.attrs, .n_attrs = 0}};
    kernel_case_attr((struct sy_attr){.name = "axis", .kind = SY_ATTR_INT, .i = 1});
    kernel_case.call = (struct sy_call){.node = &kernel_case.node, .n_in = 3, .n_out = 1};
    kernel_case.call.in[0] = array_of(SY_DTYPE_F32, 2, (int64_t[]){2, 3}, (void *)indices);
    kernel_case.call.in[1] = array_of(SY_DTYPE_F32, 0, NULL, &depth);
    kernel_case.call.in[2] = array_of(SY_DTYPE_F32, 1, (int64_t[]){2}, values);
    kernel_case.call.out[0] = array_of(SY_DTYPE_F32, 3, (int64_t[]){2, 3, 3}, hot);
    assert_int_equal(sy_kernel_find(SY_OP_ONE_HOT)->check(&kernel_case.call), SY_OK);
    assert_int_equal(sy_kernel_find(SY_OP_ONE_HOT)->run(&kernel_case.call), SY_OK);
    for (int i = 0; i < 18; i++) {
        int index = (int)indices[i / 9 * 3 + i % 3], place = i / 3 % 3;
        assert_true(hot[i] == (index == place || index + 3 == place ? 9 : 7));
    }
    const float x[] = {0, -0.0f, NAN, 1, 0, -2};
    int64_t found[2][3];
    kernel_case.node = (struct sy_node){.op = SY_OP_NON_ZERO, .name = "found"};
    kernel_case.call.n_in = 1;
    kernel_case.call.in[0] = array_of(SY_DTYPE_F32, 2, (int64_t[]){2, 3}, (void *)x);
    kernel_case.call.out[0] = array_of(SY_DTYPE_I64, 2, (int64_t[]){2, 3}, found);
    assert_int_equal(sy_kernel_find(SY_OP_NON_ZERO)->run(&kernel_case.call), SY_OK);
    assert_memory_equal(found, ((int64_t[]){0, 1, 1, 2, 0, 2}), sizeof found);
    for (int64_t k = -5; k < 6; k++) {
        float eye[12];
        kernel_case.node =
            (struct sy_node){.op = SY_OP_EYE_LIKE, .name = "eye", .attrs = kernel_case.attrs};
        kernel_case_attr((struct sy_attr){.name = "k", .kind = SY_ATTR_INT, .i = k});
        kernel_case.call.out[0] = array_of(SY_DTYPE_F32, 2, (int64_t[]){3, 4}, eye);
        assert_int_equal(sy_kernel_find(SY_OP_EYE_LIKE)->run(&kernel_case.call), SY_OK);
        for (int i = 0; i < 12; i++)
            assert_true(eye[i] == (i % 4 - i / 4 == k ? 1 : 0));
    }
}

int main(void)
{
    seed = rig_start();
    kernel_case_fill();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_elements_by_index),
                                       cmocka_unit_test(test_scattered_elements),
                                       cmocka_unit_test(test_tuples),
                                       cmocka_unit_test(test_scattered_sums),
                                       cmocka_unit_test(test_compressed),
                                       cmocka_unit_test(test_masks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
