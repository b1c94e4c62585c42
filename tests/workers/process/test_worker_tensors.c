/* A run's tensors in memory that its client goes on writing to: what chooses where an operator reads or writes is a copy (E4). */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "runtime/wire/tensor_at.h"
#include "workers/process/worker_internal.h"
#include "workers/process/worker_regions.h"
#include "workers/process/worker_tensors.h"

#define REGION 7u
#define BYTES  65536u
#define N      1000

enum { IDS, VALUES, PICKED, RESULT, LAST, NARROW, N_TENSORS };

static struct sy_worker worker;
static struct sy_control_page page;
static unsigned char slab[BYTES];
static unsigned char *client;

/* IDS, VALUES, NARROW -> node -> PICKED -> node -> RESULT, LAST */
static int first_in[] = {IDS, VALUES, NARROW}, first_out[] = {PICKED}, then_in[] = {PICKED},
           then_out[] = {RESULT, LAST}, ends_in[] = {IDS, VALUES, NARROW},
           ends_out[] = {PICKED, RESULT, LAST};
static struct sy_node nodes[] = {
    {.op = SY_OP_GATHER, .n_inputs = 3, .inputs = first_in, .n_outputs = 1, .outputs = first_out},
    {.op = SY_OP_GATHER, .n_inputs = 1, .inputs = then_in, .n_outputs = 2, .outputs = then_out},
};
#define TENSOR(type)                                                                              \
    {                                                                                             \
        .name = (char *)(uintptr_t) #type, .dtype = type, .shape = {.rank = 1, .dims = {{N, 0}} } \
    }
static struct sy_tensor tensors[N_TENSORS] = {
    [IDS] = TENSOR(SY_DTYPE_I64),    [VALUES] = TENSOR(SY_DTYPE_F32),
    [PICKED] = TENSOR(SY_DTYPE_I64), [RESULT] = TENSOR(SY_DTYPE_F32),
    [LAST] = TENSOR(SY_DTYPE_I64),   [NARROW] = TENSOR(SY_DTYPE_I32)};
static const struct sy_graph graph = {.n_tensors = N_TENSORS,
                                      .tensors = tensors,
                                      .n_nodes = 2,
                                      .nodes = nodes,
                                      .n_inputs = 3,
                                      .inputs = ends_in,
                                      .n_outputs = 3,
                                      .outputs = ends_out};

static uint64_t in_region(int tensor)
{
    return (uint64_t)REGION << SY_TENSOR_REGION_SHIFT | (uint64_t)(tensor * 8192);
}

static unsigned char *at_client(int tensor)
{
    return client + tensor * 8192;
}

static int set_up(void **state)
{
    struct sy_device_spec spec;
    int fd = memfd_create("region", MFD_CLOEXEC);
    (void)state;
    assert_true(fd >= 0 && ftruncate(fd, BYTES) == 0);
    client = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(client, MAP_FAILED);
    for (unsigned i = 0; i < BYTES; i++)
        client[i] = (unsigned char)(i % 251);
    worker = (struct sy_worker){.page = &page, .slab = {.base = slab, .bytes = BYTES}};
    assert_int_equal(sy_device_spec_parse("host", &spec), SY_OK);
    assert_int_equal(sy_device_open(&spec, &worker.device), SY_OK);
    assert_int_equal(sy_worker_regions_start(), SY_OK);
    struct sy_msg_region_add message = {REGION, 0, BYTES, false};
    assert_int_equal(sy_worker_region_add(worker.device, &message, fd), SY_OK);
    close(fd);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sy_worker_regions_finish(worker.device);
    sy_device_close(worker.device);
    munmap(client, BYTES);
    return 0;
}

static int locate(const uint64_t *in, size_t n_in, const uint64_t *out,
                  struct sy_worker_tensors *tensors_of)
{
    struct sy_u64s inputs = {n_in, (uint64_t *)(uintptr_t)in},
                   outputs = {3, (uint64_t *)(uintptr_t)out};
    return sy_worker_tensors_locate(&worker, &graph, 1, &inputs, &outputs, tensors_of);
}

/* Its view of a tensor is the client's own memory: what one writes there the other sees. */
static bool is_shared(const void *place, int tensor)
{
    unsigned char *own = at_client(tensor), before = *own;
    *own = (unsigned char)~before;
    bool seen = *(const unsigned char *)place == *own;
    *own = before;
    return seen;
}

static void test_indices_are_copied(void **state)
{
    (void)state;
    const uint64_t in[] = {in_region(IDS), in_region(VALUES), in_region(NARROW)},
                   out[] = {in_region(PICKED), in_region(RESULT), in_region(LAST)};
    unsigned char before[N * 8];
    struct sy_worker_tensors t;
    assert_int_equal(locate(in, 3, out, &t), SY_OK);
    assert_true(is_shared(t.inputs[1], VALUES));
    assert_true(is_shared(t.outputs[1], RESULT));
    assert_true(is_shared(t.outputs[2], LAST)); /* no node reads it */
    memcpy(before, at_client(IDS), sizeof before);
    memset(at_client(IDS), 0xff, sizeof before);
    assert_memory_equal(t.inputs[0], before, sizeof before);
    assert_false(is_shared(t.inputs[2], NARROW));
    assert_memory_equal(t.inputs[2], at_client(NARROW), N * 4);
    memcpy(before, at_client(PICKED), sizeof before);
    assert_memory_equal(t.outputs[0], before, sizeof before); /* as a run left it that goes on */
    memset(t.outputs[0], 0x5a, N * 8);
    assert_memory_equal(at_client(PICKED), before, sizeof before);
    unsigned char behind = at_client(PICKED)[N * 8];
    sy_worker_tensors_finish(&worker, &t);
    memset(before, 0x5a, sizeof before);
    assert_memory_equal(at_client(PICKED), before, sizeof before);
    assert_int_equal(at_client(PICKED)[N * 8], behind);
    assert_int_equal(at_client(IDS)[0], 0xff); /* inputs are not written */
}

/* What clients cannot reach stays where it lies. */
static void test_slab_is_used_in_place(void **state)
{
    (void)state;
    const uint64_t in[] = {0, 8192, 16384}, out[] = {24576, 32768, 40960};
    struct sy_worker_tensors t;
    assert_int_equal(locate(in, 3, out, &t), SY_OK);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(t.inputs[i], slab + in[i]);
        assert_ptr_equal(t.outputs[i], slab + out[i]);
    }
    sy_worker_tensors_finish(&worker, &t);
}

static void test_refusals(void **state)
{
    (void)state;
    const uint64_t in[] = {in_region(IDS), in_region(VALUES), in_region(NARROW)},
                   out[] = {in_region(PICKED), in_region(RESULT), in_region(LAST)},
                   behind[] = {BYTES - N * 8 + 1, in[1], in[2]},
                   above[] = {((uint64_t)REGION << SY_TENSOR_REGION_SHIFT) + BYTES - 64, in[1],
                              in[2]},
                   none[] = {(uint64_t)(REGION + 1) << SY_TENSOR_REGION_SHIFT, in[1], in[2]};
    struct sy_worker_tensors t;
    assert_int_equal(locate(in, 2, out, &t), SY_EPROTO);
    sy_worker_tensors_finish(&worker, &t);
    assert_int_equal(locate(behind, 3, out, &t), SY_EPROTO);
    sy_worker_tensors_finish(&worker, &t);
    assert_int_equal(locate(above, 3, out, &t), SY_EARG);
    sy_worker_tensors_finish(&worker, &t);
    assert_int_equal(locate(none, 3, out, &t), SY_EPROTO);
    sy_worker_tensors_finish(&worker, &t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_indices_are_copied, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_slab_is_used_in_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
