/* What a read leaves in the record of a kept image: by how far the read came. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/core/core_image.h"
#include "runtime/keeper/image_book.h"

#define PAGE 4096ull
#define N    4

struct fixture {
    struct sy_core *core;
    struct sy_image_book book;
    struct sy_storage_group groups[N];
    struct sy_storage_job job;
    _Atomic uint32_t arrivals[N];
};

static struct sy_image_group record_of(int group)
{
    return (struct sy_image_group){.content_hash = 7,
                                   .bytes = PAGE,
                                   .first_layer = (uint32_t)group,
                                   .n_layers = 1,
                                   .offset = (uint64_t)group * PAGE};
}

static int set_up(void **state)
{
    static struct sy_package package = {.content_hash = 7};
    static struct sy_group groups[N];
    static uint64_t bytes[N];
    struct sy_sched_config config = {
        .pool_bytes = 16 * PAGE, .image_bytes = 16 * PAGE, .n_workers = 2, .max_queue = 4};
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->core = calloc(1, sizeof *f->core);
    assert_non_null(f->core);
    for (int g = 0; g < N; g++) {
        groups[g] = (struct sy_group){.first_layer = g, .n_layers = 1};
        bytes[g] = PAGE;
    }
    struct sy_core_model *m = &f->core->models[0];
    m->package = &package;
    m->n_groups = N;
    m->groups = groups;
    m->group_bytes = bytes;
    assert_int_equal(sy_sched_create(&config, &f->core->sched), SY_OK);
    assert_int_equal(sy_sched_model_add(f->core->sched, 0, N, bytes, PAGE), SY_OK);
    sy_image_book_start(&f->book, calloc(1, sy_image_book_bytes()), 16 * PAGE);
    f->core->image_book = &f->book;
    for (int g = 0; g < N; g++)
        f->groups[g] = (struct sy_storage_group){.group = g,
                                                 .bytes = PAGE,
                                                 .pool_offset = (uint64_t)g * PAGE,
                                                 .arrival = &f->arrivals[g]};
    f->job = (struct sy_storage_job){.n_groups = N, .groups = f->groups};
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    sy_sched_destroy(f->core->sched);
    free(f->core);
    free(f->book.head);
    free(f);
    return 0;
}

static void note(struct fixture *f, int group)
{
    struct sy_image_group record = record_of(group);
    sy_image_book_note(&f->book, &record);
}

static bool has(struct fixture *f, int group)
{
    struct sy_image_group record = record_of(group);
    return sy_image_book_has(&f->book, &record);
}

static void arrive(struct fixture *f, int i, uint32_t how)
{
    atomic_store(f->groups[i].arrival, how);
}

static void test_whole_read(void **state)
{
    struct fixture *f = *state;
    note(f, 0);
    sy_core_image_before_read(f->core, &f->job);
    assert_true(f->groups[0].is_kept);
    assert_false(f->groups[1].is_kept);
    f->job.n_verified = N;
    for (int i = 0; i < N; i++)
        arrive(f, i, i == 3 ? SY_ARRIVAL_FAILED : SY_ARRIVAL_HERE);
    sy_core_image_after_read(f->core, &f->job);
    for (int g = 0; g < N; g++)
        assert_int_equal(has(f, g), g != 3);
}

/* Groups 0 and 1 were looked at (0 is there, 1 is not what the package says), then the run was over. */
static void test_canceled_read(void **state)
{
    struct fixture *f = *state;
    for (int g = 0; g < 3; g++)
        note(f, g);
    sy_core_image_before_read(f->core, &f->job);
    f->job.n_verified = 2;
    f->job.kept_bytes = PAGE;
    arrive(f, 0, SY_ARRIVAL_HERE);
    for (int i = 1; i < N; i++)
        arrive(f, i, SY_ARRIVAL_FAILED);
    sy_core_image_after_read(f->core, &f->job);
    assert_true(has(f, 0));
    assert_false(has(f, 1));
    assert_true(has(f, 2)); /* its bytes are as they were */
    assert_false(has(f, 3));
    assert_int_equal(f->core->image_kept_bytes, PAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_canceled_read, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
