/* NonMaxSuppression against its definition, box by box. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/status.h"
#include "tests/rigs/engine_rig.h"
#include "workers/host/reference/kernel.h"

enum { BOXES = 300, CLASSES = 2 };

static uint64_t seed;

struct scene {
    int64_t n, most;
    float boxes[BOXES][4], scores[CLASSES][BOXES], overlap, least;
};

static double area(const float *b)
{
    return (double)(b[2] - b[0]) * (double)(b[3] - b[1]);
}

static double share(const float *a, const float *b)
{
    double height = fmin(a[2], b[2]) - fmax(a[0], b[0]),
           width = fmin(a[3], b[3]) - fmax(a[1], b[1]);
    double common = height > 0 && width > 0 ? height * width : 0;
    double both = area(a) + area(b) - common;
    return both > 0 ? common / both : 0;
}

/* The best that is left, until none is; of equal ones the first. */
static int64_t by_definition(const struct scene *s, int64_t (*out)[3])
{
    int64_t found = 0;
    for (int64_t class = 0; class < CLASSES; class ++) {
        bool gone[BOXES] = {false};
        for (int64_t kept = 0; kept < s->most; kept++) {
            int64_t best = -1;
            for (int64_t i = 0; i < s->n; i++)
                if (!gone[i] && s->scores[class][i] > s->least &&
                    (best < 0 || s->scores[class][i] > s->scores[class][best]))
                    best = i;
            if (best < 0)
                break;
            for (int64_t i = 0; i < s->n; i++)
                gone[i] =
                    gone[i] || i == best || share(s->boxes[i], s->boxes[best]) > (double)s->overlap;
            memcpy(out[found++], (int64_t[]){0, class, best}, sizeof out[0]);
        }
    }
    return found;
}

/* Whole numbers, so that both sides compute the same; groups of boxes far from each other, as exporters shift classes. */
static void draw(struct scene *s, int64_t groups)
{
    static const float overlaps[] = {0, 0.25f, 0.5f, 0.7f, -1};
    s->n = rig_int(&seed, 0, BOXES);
    s->most = rig_int(&seed, 0, 1) ? BOXES : rig_int(&seed, 0, 40);
    s->overlap = overlaps[rig_int(&seed, 0, 4)];
    s->least = (float)rig_int(&seed, 0, 2) / 4 - 0.01f;
    for (int64_t i = 0; i < s->n; i++) {
        float shift = (float)(1000 * rig_int(&seed, 0, groups - 1));
        float top = (float)rig_int(&seed, 0, 60), left = (float)rig_int(&seed, 0, 60);
        float height = (float)rig_int(&seed, 0, 40), width = (float)rig_int(&seed, 0, 40);
        memcpy(s->boxes[i],
               (float[]){top + shift, left + shift, top + shift + height, left + shift + width},
               sizeof s->boxes[i]);
        for (int c = 0; c < CLASSES; c++)
            s->scores[c][i] = (float)rig_int(&seed, 0, 20) / 20;
    }
}

static struct sy_array array(enum sy_dtype dtype, int rank, const int64_t *dims, void *data)
{
    struct sy_array a = {.dtype = dtype, .rank = rank, .n = 1, .data = data};
    for (int i = 0; i < rank; i++) {
        a.dims[i] = dims[i];
        a.n *= dims[i];
    }
    return a;
}

/* Corners, the second one first, or center and size. */
static void check(struct scene *s, bool centers)
{
    static int64_t expected[CLASSES * BOXES][3], got[CLASSES * BOXES][3];
    static float boxes[BOXES][4];
    const struct sy_kernel *kernel = sy_kernel_find(SY_OP_NON_MAX_SUPPRESSION);
    struct sy_attr attr = {.name = "center_point_box", .kind = SY_ATTR_INT, .i = centers};
    struct sy_node node = {
        .op = SY_OP_NON_MAX_SUPPRESSION, .attrs = &attr, .n_attrs = 1, .name = "n"};
    int64_t n_expected = by_definition(s, expected), counted = -1;
    for (int64_t i = 0; i < s->n; i++) {
        const float *b = s->boxes[i];
        float corners[4] = {b[2], b[1], b[0], b[3]};
        float center[4] = {(b[1] + b[3]) / 2, (b[0] + b[2]) / 2, b[3] - b[1], b[2] - b[0]};
        memcpy(boxes[i], centers ? center : corners, sizeof boxes[i]);
    }
    static float scores[CLASSES * BOXES];
    for (int64_t c = 0; c < CLASSES; c++)
        memcpy(&scores[c * s->n], s->scores[c], (size_t)s->n * sizeof *scores);
    struct sy_call call = {.node = &node,
                           .n_in = 5,
                           .n_out = 1,
                           .in = {array(SY_DTYPE_F32, 3, (int64_t[]){1, s->n, 4}, boxes),
                                  array(SY_DTYPE_F32, 3, (int64_t[]){1, CLASSES, s->n}, scores),
                                  array(SY_DTYPE_I64, 0, NULL, &s->most),
                                  array(SY_DTYPE_F32, 0, NULL, &s->overlap),
                                  array(SY_DTYPE_F32, 0, NULL, &s->least)},
                           .out = {array(SY_DTYPE_I64, 2, (int64_t[]){CLASSES * BOXES, 3}, got)},
                           .counted = &counted};
    assert_int_equal(kernel->check(&call), SY_OK);
    call.scratch = malloc((size_t)kernel->scratch(&call)); /* as much: the sanitizer looks */
    assert_int_equal(kernel->run(&call), SY_OK);
    free(call.scratch);
    assert_int_equal(counted, n_expected);
    assert_memory_equal(got, expected, (size_t)n_expected * sizeof got[0]);
}

static void test_random_scenes(void **state)
{
    static struct scene s;
    (void)state;
    for (int i = 0; i < 300; i++) {
        draw(&s, 1 + i % 7);
        check(&s, i & 1);
    }
}

/* What is no number lies in no strip; all boxes are compared with all then. */
static void test_not_a_number(void **state)
{
    static struct scene s;
    (void)state;
    draw(&s, 3);
    s.n = 3;
    s.most = 3;
    s.overlap = 0.5f;
    s.least = 0;
    memcpy(s.boxes,
           (float[3][4]){{0, 0, 10, 10}, {INFINITY, INFINITY, INFINITY, INFINITY}, {0, 0, 10, 9}},
           sizeof(float[3][4]));
    for (int c = 0; c < CLASSES; c++)
        memcpy(s.scores[c], (float[]){0.9f, 0.8f, 0.7f}, 3 * sizeof(float));
    check(&s, false);
}

int main(void)
{
    seed = rig_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_scenes),
        cmocka_unit_test(test_not_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
