/* What a read leaves in the record of a kept image, and where its groups are placed next: by how far the read came. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/assert.h"
#include "runtime/base/status.h"
#include "runtime/core/core_image.h"
#include "runtime/keeper/image_book.h"
#include "runtime/sched/sched_internal.h"

#define PAGE  4096ull
#define N     4
#define IMAGE (16 * PAGE)

struct fixture {
    struct sy_core *core;
    struct sy_image_book book;
    struct sy_storage_group groups[N];
    struct sy_storage_job job;
    _Atomic uint32_t arrivals[N];
};

/* Where an empty image places no group by itself: apart, and from the middle on. */
static uint64_t place_of(int group)
{
    return (uint64_t)(8 + 2 * group) * PAGE;
}

static struct sy_image_group record_of(int group)
{
    return (struct sy_image_group){.content_hash = 7,
                                   .bytes = PAGE,
                                   .first_layer = (uint32_t)group,
                                   .n_layers = 1,
                                   .offset = place_of(group)};
}

static int set_up(void **state)
{
    static struct sy_package package = {.content_hash = 7};
    static struct sy_group groups[N];
    static uint64_t bytes[N];
    struct sy_sched_config config = {
        .pool_bytes = IMAGE, .image_bytes = IMAGE, .n_workers = 2, .max_queue = 4};
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
    sy_image_book_start(&f->book, calloc(1, sy_image_book_bytes()), IMAGE);
    f->core->image_book = &f->book;
    for (int g = 0; g < N; g++)
        f->groups[g] = (struct sy_storage_group){
            .group = g, .bytes = PAGE, .pool_offset = place_of(g), .arrival = &f->arrivals[g]};
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

static void arrive(struct fixture *f, int group, uint32_t how)
{
    atomic_store(&f->arrivals[group], how);
}

/* The image has room for all: a group is at its place of before only if it is preferred. */
static void expect_preferred(struct fixture *f, const bool *is_preferred)
{
    struct sy_group_place places[N];
    assert_int_equal(sy_residency_place(f->core->sched->image_residency, 0, false, places), SY_OK);
    for (int g = 0; g < N; g++)
        assert_int_equal(places[g].offset == place_of(g), is_preferred[g]);
    sy_residency_unpin(f->core->sched->image_residency, 0, NULL);
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
    expect_preferred(f, (const bool[N]){false});
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
    expect_preferred(f, (const bool[N]){[2] = true});
}

/* Groups that are to be read move to the front while the others are looked at (storage_thread.c): of 1, 2 and 3, which are kept, 1 is there and 2 is not. */
static void test_canceled_read_out_of_order(void **state)
{
    struct fixture *f = *state;
    for (int g = 1; g < N; g++)
        note(f, g);
    sy_core_image_before_read(f->core, &f->job);
    struct sy_storage_group of[N];
    memcpy(of, f->groups, sizeof of);
    static const int order[N] = {0, 2, 1, 3};
    for (int i = 0; i < N; i++)
        f->groups[i] = of[order[i]];
    f->job.n_verified = 3;
    f->job.n_to_read = 2;
    f->job.kept_bytes = PAGE;
    for (int g = 0; g < N; g++)
        arrive(f, g, g == 1 ? SY_ARRIVAL_HERE : SY_ARRIVAL_FAILED);
    sy_core_image_after_read(f->core, &f->job);
    for (int g = 0; g < N; g++)
        assert_int_equal(has(f, g), g == 1 || g == 3);
    expect_preferred(f, (const bool[N]){[3] = true});
}

/* A server that takes over an image prefers the places that its book has. */
static void test_places_of_a_book(void **state)
{
    struct fixture *f = *state;
    note(f, 0);
    note(f, 3);
    sy_core_image_prefer(f->core, 0);
    expect_preferred(f, (const bool[N]){[0] = true, [3] = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_canceled_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_canceled_read_out_of_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_places_of_a_book, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
