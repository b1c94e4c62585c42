/* The host engine's kernels that move elements, element by element as ONNX defines them: random shapes, every size of an element. */
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
#include "tests/engine_rig.h"
#include "workers/host/kernel.h"
#include "workers/host/movement.h"

enum { RANK = 4, ROUNDS = 120, MOST = 1 << 19, BEHIND = 64 };

static uint64_t seed;
static const enum sy_dtype types[] = {SY_DTYPE_U8, SY_DTYPE_BF16, SY_DTYPE_F32, SY_DTYPE_I64};

/* A call with one data input, and the result by definition: from[i] is the element of the input, -1 the padding, -2 zero. */
struct move {
    struct sy_attr attrs[4];
    struct sy_node node;
    struct sy_call call;
    int64_t numbers[2 * RANK], *from;
};
static struct move m;
static int64_t origins[MOST];
static unsigned char data[MOST * 8], result[MOST * 8 + BEHIND];

static struct sy_array array(enum sy_dtype dtype, int rank, const int64_t *dims, void *at)
{
    struct sy_array a = {.dtype = dtype, .rank = rank, .n = 1, .data = at};
    for (int i = 0; i < rank; i++)
        a.n *= a.dims[i] = dims[i];
    return a;
}

/* Every fourth round is large enough for the threads. */
static void start(enum sy_op op, int round)
{
    int rank = 2 + round % 3;
    int64_t dims[RANK], most = round % 4 ? 5 : rank == 2 ? 170 : rank == 3 ? 30 : 13;
    m = (struct move){.node = {.op = op, .name = "moved", .attrs = m.attrs, .n_attrs = 0},
                      .from = origins};
    for (int d = 0; d < rank; d++)
        dims[d] = rig_int(&seed, round % 4 ? 1 : most - 3, most);
    m.call = (struct sy_call){.node = &m.node, .n_in = 1, .n_out = 1};
    m.call.in[0] = array(types[round / 2 % 4], rank, dims, data);
    m.call.out[0] = m.call.in[0];
    m.call.out[0].data = result;
}

static void resize(const int64_t *dims)
{
    m.call.out[0] = array(m.call.in[0].dtype, m.call.in[0].rank, dims, result);
    assert_true(m.call.out[0].n <= MOST);
}

static void attr(struct sy_attr a)
{
    m.attrs[m.node.n_attrs++] = a;
}

static void run(int status, const void *padding)
{
    static const unsigned char zeros[8];
    const struct sy_kernel *kernel = sy_kernel_find(m.node.op);
    size_t bytes = sy_dtype_bytes(m.call.in[0].dtype);
    assert_int_equal(kernel->check(&m.call), SY_OK);
    m.call.scratch = kernel->scratch ? malloc((size_t)kernel->scratch(&m.call) + 1) : NULL;
    size_t end = (size_t)m.call.out[0].n * bytes;
    memset(result, 0xa5, end + BEHIND);
    int got = kernel->run(&m.call);
    free(m.call.scratch);
    assert_int_equal(got, status);
    if (status < 0)
        return;
    for (int64_t i = 0; i < m.call.out[0].n; i++) {
        const void *want = m.from[i] == -1   ? padding
                           : m.from[i] == -2 ? zeros
                                             : data + (size_t)m.from[i] * bytes;
        if (memcmp(result + (size_t)i * bytes, want, bytes))
            fail_msg("%s: element %lld", sy_op_name(m.node.op), (long long)i);
    }
    for (size_t i = end; i < end + BEHIND; i++)
        assert_int_equal(result[i], 0xa5);
}

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
    const struct sy_array *x = &m.call.in[0], *y = &m.call.out[0];
    for (int64_t i = 0; i < y->n; i++) {
        int64_t left = i, stride = 1;
        m.from[i] = 0;
        for (int d = x->rank - 1; d >= 0; d--) {
            int64_t source = walked(mode, left % y->dims[d] - before[d], x->dims[d]);
            left /= y->dims[d];
            m.from[i] = source < 0 || m.from[i] < 0 ? -1 : m.from[i] + source * stride;
            stride *= x->dims[d];
        }
    }
}

static void test_pads(void **state)
{
    static char *modes[] = {"constant", "edge", "reflect", "wrap"};
    (void)state;
    for (int round = 0; round < 4 * ROUNDS; round++) {
        int64_t dims[RANK], value = (int64_t)0x0102030405060708;
        int mode = (int)rig_int(&seed, 0, 3);
        start(SY_OP_RUN_PAD, round);
        int rank = m.call.in[0].rank;
        for (int d = 0; d < rank; d++) {
            bool padded = rig_int(&seed, 0, 2) > 0;
            m.numbers[d] = padded ? rig_int(&seed, -1, 4) : 0;
            m.numbers[rank + d] = padded ? rig_int(&seed, 0, 4) : 0;
            dims[d] = m.call.in[0].dims[d] + m.numbers[d] + m.numbers[rank + d];
        }
        resize(dims);
        attr((struct sy_attr){.name = "mode", .kind = SY_ATTR_STRING, .s = modes[mode]});
        m.call.n_in = 3;
        m.call.in[1] = array(SY_DTYPE_I64, 1, (int64_t[]){2 * rank}, m.numbers);
        m.call.in[2] = array(m.call.in[0].dtype, 0, NULL, &value);
        pad_by_definition(mode, m.numbers);
        run(SY_OK, &value);
        m.numbers[0]++;
        run(SY_EARG, NULL);
    }
}

/* ---- repeats and parts ---------------------------------------------------------------------------------- */

/* Where element i of the result comes from if place k of dimension d comes from start[d] + k * step[d], around the input. */
static void around(const int64_t *start, const int64_t *step)
{
    const struct sy_array *x = &m.call.in[0], *y = &m.call.out[0];
    for (int64_t i = 0; i < y->n; i++) {
        int64_t left = i, stride = 1;
        m.from[i] = 0;
        for (int d = x->rank - 1; d >= 0; d--) {
            m.from[i] += (start[d] + left % y->dims[d] * step[d]) % x->dims[d] * stride;
            left /= y->dims[d];
            stride *= x->dims[d];
        }
    }
}

static void test_repeats(void **state)
{
    static const int64_t start_at[RANK], ones[RANK] = {1, 1, 1, 1};
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t dims[RANK], most = round % 4 ? 4 : 2;
        bool expand = round % 8 > 4;
        start(expand ? SY_OP_RUN_EXPAND : SY_OP_TILE, round);
        int rank = m.call.in[0].rank;
        for (int d = 0; d < rank; d++) {
            m.numbers[d] = rig_int(&seed, 1, most);
            dims[d] = m.call.in[0].dims[d] * m.numbers[d];
            if (expand && m.call.in[0].dims[d] > 1)
                dims[d] = m.call.in[0].dims[d];
            if (expand)
                m.numbers[d] = dims[d];
        }
        resize(dims);
        m.call.n_in = 2;
        m.call.in[1] = array(SY_DTYPE_I64, 1, (int64_t[]){rank}, m.numbers);
        around(start_at, ones);
        run(SY_OK, NULL);
        m.numbers[rank - 1] += dims[rank - 1] + 1;
        run(SY_EARG, NULL);
    }
}

static void test_slices(void **state)
{
    (void)state;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        int64_t starts[RANK], ends[RANK], steps[RANK], dims[RANK];
        start(SY_OP_RUN_SLICE, round);
        struct sy_array *x = &m.call.in[0];
        for (int d = 0; d < x->rank; d++) {
            bool back = rig_int(&seed, 0, 3) == 0, whole = rig_int(&seed, 0, 1);
            steps[d] = whole ? 1 : rig_int(&seed, 1, 3) * (back ? -1 : 1);
            starts[d] = whole ? 0 : rig_int(&seed, 0, x->dims[d] - 1);
            int64_t room = steps[d] > 0 ? x->dims[d] - starts[d] : starts[d] + 1;
            dims[d] = (room - 1) / llabs(steps[d]) + 1;
            ends[d] = steps[d] > 0 ? x->dims[d] : -x->dims[d] - 1;
        }
        resize(dims);
        m.call.n_in = 5;
        for (int i = 0; i < x->rank; i++)
            m.numbers[i] = i;
        m.call.in[1] = array(SY_DTYPE_I64, 1, (int64_t[]){x->rank}, starts);
        m.call.in[2] = array(SY_DTYPE_I64, 1, (int64_t[]){x->rank}, ends);
        m.call.in[3] = array(SY_DTYPE_I64, 1, (int64_t[]){x->rank}, m.numbers);
        m.call.in[4] = array(SY_DTYPE_I64, 1, (int64_t[]){x->rank}, steps);
        around(starts, steps);
        run(SY_OK, NULL);
    }
}

/* ---- strided moves -------------------------------------------------------------------------------------- */

/* Element i of the result, whose dimensions are the input's in another order, some every other element backwards or not at all. */
static void check_move(const struct sy_array *x, const int64_t *order, const int64_t *steps)
{
    struct sy_strided_move move = {.element_bytes = (int64_t)sy_dtype_bytes(x->dtype),
                                   .rank = x->rank};
    int64_t strides[RANK], n = 1;
    sy_array_strides(x, strides);
    for (int d = x->rank - 1; d >= 0; d--) {
        int64_t of = order[d], step = steps[d];
        move.dims[d] = (x->dims[of] - 1) / llabs(step) + 1;
        move.from_strides[d] = strides[of] * step;
        move.from_offset += step < 0 ? (x->dims[of] - 1) * strides[of] : 0;
        move.to_strides[d] = n;
        n *= move.dims[d];
    }
    memset(result, 0xa5, (size_t)(n * move.element_bytes) + BEHIND);
    sy_move(&move, data, result);
    for (int64_t i = 0; i < n; i++) {
        int64_t left = i, from = move.from_offset;
        for (int d = x->rank - 1; d >= 0; d--) {
            from += left % move.dims[d] * move.from_strides[d];
            left /= move.dims[d];
        }
        assert_memory_equal(result + i * move.element_bytes, data + from * move.element_bytes,
                            (size_t)move.element_bytes);
    }
    for (int64_t i = n * move.element_bytes; i < n * move.element_bytes + BEHIND; i++)
        assert_int_equal(result[i], 0xa5);
}

static void test_moves(void **state)
{
    (void)state;
    for (int round = 0; round < 8 * ROUNDS; round++) {
        int64_t order[RANK], steps[RANK];
        start(SY_OP_TRANSPOSE, round);
        struct sy_array x = m.call.in[0];
        if (round % 8 == 0) /* one side of 1, 3 or 130: tiles and their rests */
            x = array(
                x.dtype, 3,
                (int64_t[]){rig_int(&seed, 1, 3), rig_int(&seed, 1, 130), rig_int(&seed, 1, 130)},
                data);
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
    memset(result, 0xa5, 8);
    sy_move(&move, data, result);
    assert_int_equal(result[0], 0xa5);
    move = (struct sy_strided_move){.element_bytes = 4, .from_offset = 3, .to_offset = 1};
    sy_move(&move, data, result);
    assert_memory_equal(result + 4, data + 12, 4);
    assert_int_equal(result[3], 0xa5);
}

/* ---- triangles and blocks ------------------------------------------------------------------------------- */

static void test_triangles(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t k = rig_int(&seed, -8, 8), upper = round / 8 % 2;
        start(SY_OP_TRILU, round);
        const struct sy_array *x = &m.call.in[0];
        attr((struct sy_attr){.name = "upper", .kind = SY_ATTR_INT, .i = upper});
        m.call.n_in = 2;
        m.call.in[1] = array(SY_DTYPE_I64, 0, NULL, &k);
        for (int64_t i = 0; i < x->n; i++) {
            int64_t column = i % x->dims[x->rank - 1],
                    row = i / x->dims[x->rank - 1] % x->dims[x->rank - 2];
            bool stays = upper ? column >= row + k : column <= row + k;
            m.from[i] = stays ? i : -2;
        }
        run(SY_OK, NULL);
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
    for (int round = 0; round < ROUNDS; round++) {
        bool to_space = round % 2, crd = to_space && round / 2 % 2;
        int64_t b = rig_int(&seed, 1, 4), n = rig_int(&seed, 1, 2), c = rig_int(&seed, 1, 4),
                h = rig_int(&seed, 1, 8), w = rig_int(&seed, 1, round % 4 ? 9 : 70), at = 0;
        const int64_t image[4] = {n, c, h * b, w * b}, deep[4] = {n, c * b * b, h, w};
        start(to_space ? SY_OP_DEPTH_TO_SPACE : SY_OP_SPACE_TO_DEPTH, round);
        attr((struct sy_attr){.name = "blocksize", .kind = SY_ATTR_INT, .i = b});
        attr((struct sy_attr){.name = "mode", .kind = SY_ATTR_STRING, .s = crd ? "CRD" : "DCR"});
        m.call.in[0] = array(m.call.in[0].dtype, 4, to_space ? deep : image, data);
        resize(to_space ? image : deep);
        for (int64_t plane = 0; plane < n * c; plane++)
            for (int64_t y = 0; y < h * b; y++)
                for (int64_t x = 0; x < w * b; x++, at++) {
                    int64_t d = depth_of(b, crd, c, plane % c, y % b, x % b),
                            k = ((plane / c * c * b * b + d) * h + y / b) * w + x / b;
                    m.from[to_space ? at : k] = to_space ? k : at;
                }
        run(SY_OK, NULL);
    }
}

/* ---- by index ------------------------------------------------------------------------------------------- */

/* Indices of both signs, of fewer rows and columns than the data but along the axis. */
static void test_elements_by_index(void **state)
{
    static int64_t indices[MOST];
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t dims[RANK];
        start(SY_OP_GATHER_ELEMENTS, round);
        const struct sy_array *x = &m.call.in[0];
        int axis = (int)rig_int(&seed, 0, x->rank - 1);
        for (int d = 0; d < x->rank; d++)
            dims[d] = d == axis ? rig_int(&seed, 1, 9) : SY_MAX(x->dims[d] - round / 8 % 2, 1);
        attr((struct sy_attr){.name = "axis", .kind = SY_ATTR_INT, .i = axis});
        resize(dims);
        m.call.n_in = 2;
        m.call.in[1] = array(SY_DTYPE_I64, x->rank, dims, indices);
        for (int64_t i = 0; i < m.call.out[0].n; i++) {
            int64_t left = i, stride = 1;
            indices[i] = rig_int(&seed, -x->dims[axis], x->dims[axis] - 1);
            m.from[i] = 0;
            for (int d = x->rank - 1; d >= 0; d--) {
                int64_t place = indices[i] < 0 ? indices[i] + x->dims[d] : indices[i];
                m.from[i] += (d == axis ? place : left % dims[d]) * stride;
                left /= dims[d];
                stride *= x->dims[d];
            }
        }
        run(SY_OK, NULL);
        indices[m.call.out[0].n - 1] = x->dims[axis];
        run(SY_EARG, NULL);
        assert_non_null(strstr(sy_error_text(), "index "));
    }
}

/* Offset of an index tuple in the data. */
static int64_t offset_in(const struct sy_array *x, const int64_t *at)
{
    int64_t offset = 0;
    for (int d = 0; d < x->rank; d++)
        offset = offset * x->dims[d] + at[d];
    return offset;
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
    const struct sy_array *x = &m.call.in[0];
    m.call.n_in = 3;
    m.call.in[2] = array(x->dtype, rank, dims, data + (MOST / 2) * sy_dtype_bytes(x->dtype));
    assert_true(x->n <= MOST / 2 && m.call.in[2].n <= MOST / 2);
    return MOST / 2;
}

/* Of two elements for one place the last counts. */
static void test_scattered_elements(void **state)
{
    static int64_t indices[MOST];
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t dims[RANK], at[RANK];
        start(SY_OP_SCATTER_ELEMENTS, round);
        const struct sy_array *x = &m.call.in[0];
        int axis = (int)rig_int(&seed, 0, x->rank - 1);
        for (int d = 0; d < x->rank; d++)
            dims[d] = d == axis ? rig_int(&seed, 1, 9) : SY_MAX(x->dims[d] - round / 8 % 2, 1);
        attr((struct sy_attr){.name = "axis", .kind = SY_ATTR_INT, .i = axis});
        m.call.in[1] = array(SY_DTYPE_I64, x->rank, dims, indices);
        int64_t updates = give_updates(x->rank, dims);
        for (int64_t i = 0; i < x->n; i++)
            m.from[i] = i;
        for (int64_t i = 0; i < m.call.in[1].n; i++) {
            indices[i] = random_index(x->dims[axis]);
            sy_array_at(&m.call.in[1], i, at);
            at[axis] = counted(indices[i], x->dims[axis]);
            m.from[offset_in(x, at)] = updates + i;
        }
        run(SY_OK, NULL);
        indices[m.call.in[1].n - 1] = -x->dims[axis] - 1;
        run(SY_EARG, NULL);
    }
}

/* Tuples that name elements, and slices of one dimension and more. */
static void test_tuples(void **state)
{
    static int64_t indices[MOST];
    (void)state;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        bool scatter = round % 2;
        start(scatter ? SY_OP_SCATTER_ND : SY_OP_GATHER_ND, round / 2);
        const struct sy_array *x = &m.call.in[0];
        int rank = x->rank, depth = (int)rig_int(&seed, 1, rank);
        int64_t tuples = rig_int(&seed, 1, 9), dims[RANK + 1] = {tuples}, updates = 0;
        memcpy(&dims[1], &x->dims[depth], (size_t)(rank - depth) * sizeof *dims);
        m.call.n_in = 2;
        m.call.in[1] = array(SY_DTYPE_I64, 2, (int64_t[]){tuples, depth}, indices);
        if (scatter)
            updates = give_updates(rank - depth + 1, dims);
        else
            m.call.out[0] = array(x->dtype, rank - depth + 1, dims, result);
        int64_t n = sy_array_extent(x, depth, rank);
        for (int64_t i = 0; scatter && i < x->n; i++)
            m.from[i] = i;
        for (int64_t k = 0; k < tuples; k++) {
            int64_t at[RANK] = {0};
            for (int d = 0; d < depth; d++) {
                indices[k * depth + d] = random_index(x->dims[d]);
                at[d] = counted(indices[k * depth + d], x->dims[d]);
            }
            for (int64_t i = 0; i < n; i++)
                if (scatter)
                    m.from[offset_in(x, at) + i] = updates + k * n + i;
                else
                    m.from[k * n + i] = offset_in(x, at) + i;
        }
        run(SY_OK, NULL);
        indices[0] = x->dims[0];
        run(SY_EARG, NULL);
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
        m = (struct move){.node = {.name = "summed", .attrs = m.attrs, .n_attrs = 0}};
        m.node.op = tuples ? SY_OP_SCATTER_ND : SY_OP_SCATTER_ELEMENTS;
        attr((struct sy_attr){.name = "reduction", .kind = SY_ATTR_STRING, .s = names[i % 4]});
        m.call = (struct sy_call){.node = &m.node, .n_in = 3, .n_out = 1};
        m.call.in[0] = array(SY_DTYPE_F32, 2, (int64_t[]){2, 3}, to);
        m.call.in[1] = array(SY_DTYPE_I64, 2, (int64_t[]){2, tuples ? 1 : 3}, indices);
        m.call.in[2] = array(SY_DTYPE_F32, 2, (int64_t[]){2, 3}, updates);
        m.call.out[0] = array(SY_DTYPE_F32, 2, (int64_t[]){2, 3}, got);
        const struct sy_kernel *kernel = sy_kernel_find(m.node.op);
        assert_int_equal(kernel->check(&m.call), SY_OK);
        assert_int_equal(kernel->run(&m.call), SY_OK);
        for (int k = 0; k < 6; k++)
            assert_true(got[k] == (k < 3 ? 1 : want[i % 4]));
    }
}

static void test_reversed(void **state)
{
    static int64_t lengths[MOST];
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        int time = round / 8 % 2;
        start(SY_OP_REVERSE_SEQUENCE, round);
        const struct sy_array *x = &m.call.in[0];
        attr((struct sy_attr){.name = "time_axis", .kind = SY_ATTR_INT, .i = time});
        attr((struct sy_attr){.name = "batch_axis", .kind = SY_ATTR_INT, .i = 1 - time});
        m.call.n_in = 2;
        m.call.in[1] = array(SY_DTYPE_I64, 1, &x->dims[1 - time], lengths);
        for (int64_t i = 0; i < x->dims[1 - time]; i++)
            lengths[i] = rig_int(&seed, 0, x->dims[time]);
        for (int64_t i = 0; i < x->n; i++) {
            int64_t at[RANK];
            sy_array_at(x, i, at);
            int64_t length = lengths[at[1 - time]];
            at[time] = at[time] < length ? length - 1 - at[time] : at[time];
            m.from[i] = offset_in(x, at);
        }
        run(SY_OK, NULL);
        lengths[0] = x->dims[time] + 1;
        run(SY_EARG, NULL);
    }
}

/* A mask that may be shorter than the axis; without an axis of all elements. */
static void test_compressed(void **state)
{
    static uint8_t keep[MOST];
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        start(SY_OP_COMPRESS, round);
        const struct sy_array *x = &m.call.in[0];
        int axis = (int)rig_int(&seed, -1, x->rank - 1);
        int64_t length = axis < 0 ? x->n : x->dims[axis], masked = rig_int(&seed, 0, length), n = 0,
                dims[RANK], at[RANK], kept = 0;
        for (int64_t i = 0; i < masked; i++)
            kept += keep[i] = (uint8_t)rig_int(&seed, 0, 1);
        memcpy(dims, x->dims, sizeof dims);
        dims[axis < 0 ? 0 : axis] = kept;
        if (axis >= 0)
            attr((struct sy_attr){.name = "axis", .kind = SY_ATTR_INT, .i = axis});
        m.call.n_in = 2;
        m.call.in[1] = array(SY_DTYPE_BOOL, 1, &masked, keep);
        m.call.out[0] = array(x->dtype, axis < 0 ? 1 : x->rank, dims, result);
        for (int64_t i = 0; i < x->n; i++) {
            sy_array_at(x, i, at);
            int64_t place = axis < 0 ? i : at[axis];
            if (place < masked && keep[place])
                m.from[n++] = i;
        }
        run(SY_OK, NULL);
    }
}

/* Of all types, with elements that are not found. */
static void test_masks(void **state)
{
    (void)state;
    const float indices[] = {0, -1, 5, -4, 2, 1};
    float values[] = {7, 9}, depth = 3, hot[18];
    m = (struct move){.node = {.op = SY_OP_ONE_HOT, .name = "hot", .attrs = m.attrs, .n_attrs = 0}};
    attr((struct sy_attr){.name = "axis", .kind = SY_ATTR_INT, .i = 1});
    m.call = (struct sy_call){.node = &m.node, .n_in = 3, .n_out = 1};
    m.call.in[0] = array(SY_DTYPE_F32, 2, (int64_t[]){2, 3}, (void *)indices);
    m.call.in[1] = array(SY_DTYPE_F32, 0, NULL, &depth);
    m.call.in[2] = array(SY_DTYPE_F32, 1, (int64_t[]){2}, values);
    m.call.out[0] = array(SY_DTYPE_F32, 3, (int64_t[]){2, 3, 3}, hot);
    assert_int_equal(sy_kernel_find(SY_OP_ONE_HOT)->check(&m.call), SY_OK);
    assert_int_equal(sy_kernel_find(SY_OP_ONE_HOT)->run(&m.call), SY_OK);
    for (int i = 0; i < 18; i++) {
        int index = (int)indices[i / 9 * 3 + i % 3], place = i / 3 % 3;
        assert_true(hot[i] == (index == place || index + 3 == place ? 9 : 7));
    }
    const float x[] = {0, -0.0f, NAN, 1, 0, -2};
    int64_t found[2][3];
    m.node = (struct sy_node){.op = SY_OP_NON_ZERO, .name = "found"};
    m.call.n_in = 1;
    m.call.in[0] = array(SY_DTYPE_F32, 2, (int64_t[]){2, 3}, (void *)x);
    m.call.out[0] = array(SY_DTYPE_I64, 2, (int64_t[]){2, 3}, found);
    assert_int_equal(sy_kernel_find(SY_OP_NON_ZERO)->run(&m.call), SY_OK);
    assert_memory_equal(found, ((int64_t[]){0, 1, 1, 2, 0, 2}), sizeof found);
    for (int64_t k = -5; k < 6; k++) {
        float eye[12];
        m.node = (struct sy_node){.op = SY_OP_EYE_LIKE, .name = "eye", .attrs = m.attrs};
        attr((struct sy_attr){.name = "k", .kind = SY_ATTR_INT, .i = k});
        m.call.out[0] = array(SY_DTYPE_F32, 2, (int64_t[]){3, 4}, eye);
        assert_int_equal(sy_kernel_find(SY_OP_EYE_LIKE)->run(&m.call), SY_OK);
        for (int i = 0; i < 12; i++)
            assert_true(eye[i] == (i % 4 - i / 4 == k ? 1 : 0));
    }
}

/* ---- remainders ----------------------------------------------------------------------------------------- */

/* As the library's, to the bit, also where the quotient is too large to be taken in one step. */
static void test_remainders(void **state)
{
    static const float special[] = {0, -0.0f, 1, -1, 2.5f, 1e-45f, 3e38f, 1e9f, INFINITY, NAN, -7};
    enum { N = 400 };
    static float a[N], b[N], got[N];
    (void)state;
    for (int round = 0; round < 60; round++) {
        bool scalar = round % 3 == 0;
        for (int i = 0; i < N; i++) {
            int64_t pick = rig_int(&seed, 0, round % 2 ? 10 : 10000);
            a[i] = pick < 11 ? special[pick] : (float)rig_int(&seed, -100000, 100000) / 64;
            pick = rig_int(&seed, 0, round % 2 ? 10 : 10000);
            b[i] = pick < 11 ? special[pick] : (float)rig_int(&seed, -1000, 1000) / 256;
        }
        m = (struct move){.node = {.op = SY_OP_MOD, .name = "rest", .attrs = m.attrs}};
        attr((struct sy_attr){.name = "fmod", .kind = SY_ATTR_INT, .i = 1});
        m.call = (struct sy_call){.node = &m.node, .n_in = 2, .n_out = 1};
        m.call.in[0] = array(SY_DTYPE_F32, 2, (int64_t[]){4, N / 4}, a);
        m.call.in[1] = array(SY_DTYPE_F32, 1, (int64_t[]){scalar ? 1 : N / 4}, b);
        m.call.out[0] = array(SY_DTYPE_F32, 2, (int64_t[]){4, N / 4}, got);
        assert_int_equal(sy_kernel_find(SY_OP_MOD)->run(&m.call), SY_OK);
        for (int i = 0; i < N; i++) {
            float want = fmodf(a[i], b[scalar ? 0 : i % (N / 4)]);
            if (isnan(want) ? !isnan(got[i]) : memcmp(&want, &got[i], sizeof want) != 0)
                fail_msg("%a mod %a is %a", (double)a[i], (double)b[scalar ? 0 : i % (N / 4)],
                         (double)got[i]);
        }
    }
}

/* Rows, one value for a row and one for all; what is true need not be 1. */
static void test_logic(void **state)
{
    static const enum sy_op ops[] = {SY_OP_AND, SY_OP_OR, SY_OP_XOR};
    static uint8_t a[3 * 71], b[3 * 71], got[3 * 71];
    (void)state;
    for (int round = 0; round < 60; round++) {
        enum sy_op op = ops[round % 3];
        int64_t dims[2] = {rig_int(&seed, 0, 1) ? 3 : 1, rig_int(&seed, 0, 1) ? 71 : 1};
        for (int i = 0; i < 3 * 71; i++) {
            a[i] = (uint8_t)(rig_int(&seed, 0, 1) * 4);
            b[i] = (uint8_t)rig_int(&seed, 0, 2);
        }
        m = (struct move){.node = {.op = op, .name = "logic", .attrs = m.attrs}};
        m.call = (struct sy_call){.node = &m.node, .n_in = 2, .n_out = 1};
        m.call.in[0] = array(SY_DTYPE_BOOL, 2, (int64_t[]){3, 71}, a);
        m.call.in[1] = array(SY_DTYPE_BOOL, 2, dims, b);
        m.call.out[0] = array(SY_DTYPE_BOOL, 2, (int64_t[]){3, 71}, got);
        assert_int_equal(sy_kernel_find(op)->run(&m.call), SY_OK);
        for (int i = 0; i < 3 * 71; i++) {
            bool p = a[i], q = b[i / 71 % dims[0] * dims[1] + i % dims[1]];
            assert_int_equal(got[i], op == SY_OP_AND ? p && q : op == SY_OP_OR ? p || q : p != q);
        }
    }
}

int main(void)
{
    seed = rig_start();
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pads),
                                       cmocka_unit_test(test_moves),
                                       cmocka_unit_test(test_small_moves),
                                       cmocka_unit_test(test_repeats),
                                       cmocka_unit_test(test_slices),
                                       cmocka_unit_test(test_triangles),
                                       cmocka_unit_test(test_blocks),
                                       cmocka_unit_test(test_elements_by_index),
                                       cmocka_unit_test(test_scattered_elements),
                                       cmocka_unit_test(test_tuples),
                                       cmocka_unit_test(test_scattered_sums),
                                       cmocka_unit_test(test_reversed),
                                       cmocka_unit_test(test_compressed),
                                       cmocka_unit_test(test_masks),
                                       cmocka_unit_test(test_remainders),
                                       cmocka_unit_test(test_logic)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
