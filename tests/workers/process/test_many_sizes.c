/* Programs for sizes that were never seen before: what the process keeps of them is bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Before open_models.h: its names for sizes are also arguments in oneDNN's header. */
#include "tests/nets/onnx_import.h"
#include "workers/host/program/program_internal.h"

#include "loader/graph/graph_bind.h"
#include "runtime/base/status.h"
#include "tests/nets/open_models.h"
#include "tests/rigs/engine_rig.h"

enum { FIRST = 120, MORE = 360 };

/* What the process has to itself; 0: the system does not say. */
static uint64_t private_bytes(void)
{
    char line[256];
    unsigned long long kib, sum = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Private_Clean: %llu", &kib) == 1 ||
            sscanf(line, "Private_Dirty: %llu", &kib) == 1)
            sum += kib << 10;
    if (f)
        fclose(f);
    return sum;
}

static struct sy_graph *image_graph(void)
{
    open_image_model();
    ob_save(ob_path, &open_graph, 17);
    return onnx_optimized(ob_path);
}

/* A program for the n-th size of a walk over all of them, made and dropped. */
static void make_one(const struct engine_rig *rig, const struct sy_graph *open, int n)
{
    struct sy_sizes sizes;
    struct sy_graph *bound;
    struct sy_program *program;
    sy_graph_usual_sizes(open, &sizes);
    for (int i = 0; i < open->n_symbols; i++)
        sizes.of[i] = 32 + (n * 7 + i * 3) % 499;
    assert_int_equal(sy_graph_bind(open, &sizes, &bound), SY_OK);
    if (rig_engine.ops->program_create(bound, rig->layers, rig->n_layers, 1, &program) < 0)
        fail_msg("%s", sy_error_text());
    rig_engine.ops->program_destroy(program);
    sy_graph_free(bound);
}

static void test_the_cache_of_primitives_is_bounded(void **state)
{
    (void)state;
    int capacity = 0;
    assert_int_equal(dnnl_get_primitive_cache_capacity(&capacity), dnnl_success);
    assert_int_equal(capacity, SY_PRIMITIVES_KEPT);
    assert_true(capacity <= 512); /* 0.1 MB each */
}

static void test_new_sizes_leave_no_memory_behind(void **state)
{
    (void)state;
    struct engine_rig rig;
    struct sy_graph *g, *usual;
    struct sy_sizes sizes;
    if (private_bytes() == 0)
        skip();
#ifdef SY_SANITIZED
    skip(); /* the sanitizer keeps what was freed */
#endif
    g = image_graph();
    sy_graph_usual_sizes(g, &sizes);
    assert_int_equal(sy_graph_bind(g, &sizes, &usual), SY_OK);
    assert_int_equal(rig_open(&rig, usual, false), SY_OK);
    for (int n = 0; n < FIRST; n++)
        make_one(&rig, g, n);
    uint64_t before = private_bytes();
    for (int n = FIRST; n < FIRST + MORE; n++)
        make_one(&rig, g, n);
    uint64_t after = private_bytes();
    print_message("%.1f MB after %d sizes, %.1f MB after %d\n", (double)before / 1e6, FIRST,
                  (double)after / 1e6, FIRST + MORE);
    assert_true(after < before + (12u << 20));
    rig_close(&rig);
    sy_graph_free(usual);
    sy_graph_free(g);
}

int main(void)
{
    open_seed = rig_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_cache_of_primitives_is_bounded),
        cmocka_unit_test(test_new_sizes_leave_no_memory_behind),
    };
    return cmocka_run_group_tests(tests, ob_open_folder, ob_close_folder);
}
