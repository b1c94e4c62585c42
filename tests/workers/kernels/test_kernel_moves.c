/* The host engine's kernels that move elements by rules, element by element as ONNX defines them: random shapes, every size of an element. */
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
#include "workers/host/rows/movement.h"

static uint64_t seed;

/* ---- padding -------------------------------------------------------------------------------------------- */

/* By walking: a step at a time from the edge. */
static int64_t walked(int mode, int64_t at, int64_t n)
{
    if (at >= 0 && at < n)
        return at;
    if (mode < 2)
        return mode == 0 ? -1 : at < 0 ? 0 : n - 1;
    if (mode == 3)
        return at < 0 ? walked(3, at + n, n) : walked(3, at - n, n);
    if (n == 1)
        return 0;
    int64_t left = at < 0 ? -at : at - (n - 1), place = at < 0 ? 0 : n - 1;
    for (int64_t step = at < 0 ? 1 : -1; left > 0; left--) {
        place += step;
        if (place == 0 || place == n - 1)
            step = -step;
    }
    return place;
}

static void pad_by_definition(int mode, const int64_t *before)
{
    const struct sy_array *x = &kernel_case.call.in[0], *y = &kernel_case.call.out[0];
    for (int64_t i = 0; i < y->n; i++) {
        int64_t left = i, stride = 1;
        kernel_case.from[i] = 0;
        for (int d = x->rank - 1; d >= 0; d--) {
            int64_t source = walked(mode, left % y->dims[d] - before[d], x->dims[d]);
            left /= y->dims[d];
            kernel_case.from[i] =
                source < 0 || kernel_case.from[i] < 0 ? -1 : kernel_case.from[i] + source * stride;
            stride *= x->dims[d];
        }
    }
}

static void test_pads(void **state)
{
    static char *modes[] = {"constant", "edge", "reflect", "wrap"};
    (void)state;
    for (int round = 0; round < 4 * KERNEL_ROUNDS; round++) {
        int64_t dims[KERNEL_RANK], value = (int64_t)0x0102030405060708;
        int mode = (int)rig_int(&seed, 0, 3);
        kernel_case_start(&seed, SY_OP_RUN_PAD, round);
        int rank = kernel_case.call.in[0].rank;
        for (int d = 0; d < rank; d++) {
            bool padded = rig_int(&seed, 0, 2) > 0;
            kernel_case.numbers[d] = padded ? rig_int(&seed, -1, 4) : 0;
            kernel_case.numbers[rank + d] = padded ? rig_int(&seed, 0, 4) : 0;
            dims[d] = kernel_case.call.in[0].dims[d] + kernel_case.numbers[d] +
                      kernel_case.numbers[rank + d];
        }
        kernel_case_resize(dims);
        kernel_case_attr(
            (struct sy_attr){.name = "mode", .kind = SY_ATTR_STRING, .s = modes[mode]});
        kernel_case.call.n_in = 3;
        kernel_case.call.in[1] =
            array_of(SY_DTYPE_I64, 1, (int64_t[]){2 * rank}, kernel_case.numbers);
        kernel_case.call.in[2] = array_of(kernel_case.call.in[0].dtype, 0, NULL, &value);
        pad_by_definition(mode, kernel_case.numbers);
        kernel_case_run(SY_OK, &value);
        kernel_case.numbers[0]++;
        kernel_case_run(SY_EARG, NULL);
    }
}

/* ---- repeats and parts ---------------------------------------------------------------------------------- */

/* Where element i of the kernel_result comes from if place k of dimension d comes from start[d] + k * step[d], around the input. */
static void around(const int64_t *start, const int64_t *step)
{
    const struct sy_array *x = &kernel_case.call.in[0], *y = &kernel_case.call.out[0];
    for (int64_t i = 0; i < y->n; i++) {
        int64_t left = i, stride = 1;
        kernel_case.from[i] = 0;
        for (int d = x->rank - 1; d >= 0; d--) {
            kernel_case.from[i] += (start[d] + left % y->dims[d] * step[d]) % x->dims[d] * stride;
            left /= y->dims[d];
            stride *= x->dims[d];
        }
    }
}

static void test_repeats(void **state)
{
    static const int64_t start_at[KERNEL_RANK], ones[KERNEL_RANK] = {1, 1, 1, 1};
    (void)state;
    for (int round = 0; round < KERNEL_ROUNDS; round++) {
        int64_t dims[KERNEL_RANK], most = round % 4 ? 4 : 2;
        bool expand = round % 8 > 4;
        kernel_case_start(&seed, expand ? SY_OP_RUN_EXPAND : SY_OP_TILE, round);
        int rank = kernel_case.call.in[0].rank;
        for (int d = 0; d < rank; d++) {
            kernel_case.numbers[d] = rig_int(&seed, 1, most);
            dims[d] = kernel_case.call.in[0].dims[d] * kernel_case.numbers[d];
            if (expand && kernel_case.call.in[0].dims[d] > 1)
                dims[d] = kernel_case.call.in[0].dims[d];
            if (expand)
                kernel_case.numbers[d] = dims[d];
        }
        kernel_case_resize(dims);
        kernel_case.call.n_in = 2;
        kernel_case.call.in[1] = array_of(SY_DTYPE_I64, 1, (int64_t[]){rank}, kernel_case.numbers);
        around(start_at, ones);
        kernel_case_run(SY_OK, NULL);
        kernel_case.numbers[rank - 1] += dims[rank - 1] + 1;
        kernel_case_run(SY_EARG, NULL);
    }
}

static void test_slices(void **state)
{
    (void)state;
    for (int round = 0; round < 2 * KERNEL_ROUNDS; round++) {
        int64_t starts[KERNEL_RANK], ends[KERNEL_RANK], steps[KERNEL_RANK], dims[KERNEL_RANK];
        kernel_case_start(&seed, SY_OP_RUN_SLICE, round);
        struct sy_array *x = &kernel_case.call.in[0];
        for (int d = 0; d < x->rank; d++) {
            bool back = rig_int(&seed, 0, 3) == 0, whole = rig_int(&seed, 0, 1);
            steps[d] = whole ? 1 : rig_int(&seed, 1, 3) * (back ? -1 : 1);
            starts[d] = whole ? 0 : rig_int(&seed, 0, x->dims[d] - 1);
            int64_t room = steps[d] > 0 ? x->dims[d] - starts[d] : starts[d] + 1;
            dims[d] = (room - 1) / llabs(steps[d]) + 1;
            ends[d] = steps[d] > 0 ? x->dims[d] : -x->dims[d] - 1;
        }
        kernel_case_resize(dims);
        kernel_case.call.n_in = 5;
        for (int i = 0; i < x->rank; i++)
            kernel_case.numbers[i] = i;
        kernel_case.call.in[1] = array_of(SY_DTYPE_I64, 1, (int64_t[]){x->rank}, starts);
        kernel_case.call.in[2] = array_of(SY_DTYPE_I64, 1, (int64_t[]){x->rank}, ends);
        kernel_case.call.in[3] =
            array_of(SY_DTYPE_I64, 1, (int64_t[]){x->rank}, kernel_case.numbers);
        kernel_case.call.in[4] = array_of(SY_DTYPE_I64, 1, (int64_t[]){x->rank}, steps);
        around(starts, steps);
        kernel_case_run(SY_OK, NULL);
    }
}

/* ---- strided moves -------------------------------------------------------------------------------------- */

/* Element i of the kernel_result, whose dimensions are the input's in another order, some every other element backwards or not at all. */
static void check_move(const struct sy_array *x, const int64_t *order, const int64_t *steps)
{
    struct sy_strided_move move = {.element_bytes = (int64_t)sy_dtype_bytes(x->dtype),
                                   .rank = x->rank};
    int64_t strides[KERNEL_RANK], n = 1;
    sy_array_strides(x, strides);
    for (int d = x->rank - 1; d >= 0; d--) {
        int64_t of = order[d], step = steps[d];
        move.dims[d] = (x->dims[of] - 1) / llabs(step) + 1;
        move.from_strides[d] = strides[of] * step;
        move.from_offset += step < 0 ? (x->dims[of] - 1) * strides[of] : 0;
        move.to_strides[d] = n;
        n *= move.dims[d];
    }
    memset(kernel_result, 0xa5, (size_t)(n * move.element_bytes) + KERNEL_BEHIND);
    sy_move(&move, kernel_data, kernel_result);
    for (int64_t i = 0; i < n; i++) {
        int64_t left = i, from = move.from_offset;
        for (int d = x->rank - 1; d >= 0; d--) {
            from += left % move.dims[d] * move.from_strides[d];
            left /= move.dims[d];
        }
        assert_memory_equal(kernel_result + i * move.element_bytes,
                            kernel_data + from * move.element_bytes, (size_t)move.element_bytes);
    }
    for (int64_t i = n * move.element_bytes; i < n * move.element_bytes + KERNEL_BEHIND; i++)
        assert_int_equal(kernel_result[i], 0xa5);
}

static void test_moves(void **state)
{
    (void)state;
    for (int round = 0; round < 8 * KERNEL_ROUNDS; round++) {
        int64_t order[KERNEL_RANK], steps[KERNEL_RANK];
        kernel_case_start(&seed, SY_OP_TRANSPOSE, round);
        struct sy_array x = kernel_case.call.in[0];
        if (round % 8 == 0) /* one side of 1, 3 or 130: tiles and their rests */
            x = array_of(
                x.dtype, 3,
                (int64_t[]){rig_int(&seed, 1, 3), rig_int(&seed, 1, 130), rig_int(&seed, 1, 130)},
                kernel_data);
        for (int d = 0; d < x.rank; d++) {
            int with = (int)rig_int(&seed, 0, d);
            order[d] = order[with];
            order[with] = d;
            steps[d] = rig_int(&seed, 0, 3) ? 1 : rig_int(&seed, 0, 1) ? 2 : -1;
        }
        check_move(&x, order, steps);
    }
}

/* Nothing to move, and one element. */
static void test_small_moves(void **state)
{
    struct sy_strided_move move = {.element_bytes = 4,
                                   .rank = 2,
                                   .dims = {0, 5},
                                   .from_strides = {1, 1},
                                   .to_strides = {5, 1}};
    (void)state;
    memset(kernel_result, 0xa5, 8);
    sy_move(&move, kernel_data, kernel_result);
    assert_int_equal(kernel_result[0], 0xa5);
    move = (struct sy_strided_move){.element_bytes = 4, .from_offset = 3, .to_offset = 1};
    sy_move(&move, kernel_data, kernel_result);
    assert_memory_equal(kernel_result + 4, kernel_data + 12, 4);
    assert_int_equal(kernel_result[3], 0xa5);
}

/* ---- triangles and blocks ------------------------------------------------------------------------------- */

static void test_triangles(void **state)
{
    (void)state;
    for (int round = 0; round < KERNEL_ROUNDS; round++) {
        int64_t k = rig_int(&seed, -8, 8), upper = round / 8 % 2;
        kernel_case_start(&seed, SY_OP_TRILU, round);
        const struct sy_array *x = &kernel_case.call.in[0];
        kernel_case_attr((struct sy_attr){.name = "upper", .kind = SY_ATTR_INT, .i = upper});
        kernel_case.call.n_in = 2;
        kernel_case.call.in[1] = array_of(SY_DTYPE_I64, 0, NULL, &k);
        for (int64_t i = 0; i < x->n; i++) {
            int64_t column = i % x->dims[x->rank - 1],
                    row = i / x->dims[x->rank - 1] % x->dims[x->rank - 2];
            bool stays = upper ? column >= row + k : column <= row + k;
            kernel_case.from[i] = stays ? i : -2;
        }
        kernel_case_run(SY_OK, NULL);
    }
}

/* What ONNX's text writes as a reshape, a transpose and a reshape: element [n, c, h, i, w, j] of the image. */
static int64_t depth_of(int64_t b, bool crd, int64_t channels, int64_t c, int64_t i, int64_t j)
{
    return crd ? c * b * b + i * b + j : (i * b + j) * channels + c;
}

static void test_blocks(void **state)
{
    (void)state;
    for (int round = 0; round < KERNEL_ROUNDS; round++) {
        bool to_space = round % 2, crd = to_space && round / 2 % 2;
        int64_t b = rig_int(&seed, 1, 4), n = rig_int(&seed, 1, 2), c = rig_int(&seed, 1, 4),
                h = rig_int(&seed, 1, 8), w = rig_int(&seed, 1, round % 4 ? 9 : 70), at = 0;
        const int64_t image[4] = {n, c, h * b, w * b}, deep[4] = {n, c * b * b, h, w};
        kernel_case_start(&seed, to_space ? SY_OP_DEPTH_TO_SPACE : SY_OP_SPACE_TO_DEPTH, round);
        kernel_case_attr((struct sy_attr){.name = "blocksize", .kind = SY_ATTR_INT, .i = b});
        kernel_case_attr(
            (struct sy_attr){.name = "mode", .kind = SY_ATTR_STRING, .s = crd ? "CRD" : "DCR"});
        kernel_case.call.in[0] =
            array_of(kernel_case.call.in[0].dtype, 4, to_space ? deep : image, kernel_data);
        kernel_case_resize(to_space ? image : deep);
        for (int64_t plane = 0; plane < n * c; plane++)
            for (int64_t y = 0; y < h * b; y++)
                for (int64_t x = 0; x < w * b; x++, at++) {
                    int64_t d = depth_of(b, crd, c, plane % c, y % b, x % b),
                            k = ((plane / c * c * b * b + d) * h + y / b) * w + x / b;
                    kernel_case.from[to_space ? at : k] = to_space ? k : at;
                }
        kernel_case_run(SY_OK, NULL);
    }
}

/* ---- sequences ---------------------------------------------------------------------------------------- */

static void test_reversed(void **state)
{
    static int64_t lengths[KERNEL_MOST];
    (void)state;
    for (int round = 0; round < KERNEL_ROUNDS; round++) {
        int time = round / 8 % 2;
        kernel_case_start(&seed, SY_OP_REVERSE_SEQUENCE, round);
        const struct sy_array *x = &kernel_case.call.in[0];
        kernel_case_attr((struct sy_attr){.name = "time_axis", .kind = SY_ATTR_INT, .i = time});
        kernel_case_attr(
            (struct sy_attr){.name = "batch_axis", .kind = SY_ATTR_INT, .i = 1 - time});
        kernel_case.call.n_in = 2;
        kernel_case.call.in[1] = array_of(SY_DTYPE_I64, 1, &x->dims[1 - time], lengths);
        for (int64_t i = 0; i < x->dims[1 - time]; i++)
            lengths[i] = rig_int(&seed, 0, x->dims[time]);
        for (int64_t i = 0; i < x->n; i++) {
            int64_t at[KERNEL_RANK];
            sy_array_at(x, i, at);
            int64_t length = lengths[at[1 - time]];
            at[time] = at[time] < length ? length - 1 - at[time] : at[time];
            kernel_case.from[i] = kernel_offset_in(x, at);
        }
        kernel_case_run(SY_OK, NULL);
        lengths[0] = x->dims[time] + 1;
        kernel_case_run(SY_EARG, NULL);
    }
}

int main(void)
{
    seed = rig_start();
    kernel_case_fill();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pads),        cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_slices),      cmocka_unit_test(test_moves),
        cmocka_unit_test(test_small_moves), cmocka_unit_test(test_triangles),
        cmocka_unit_test(test_blocks),      cmocka_unit_test(test_reversed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
